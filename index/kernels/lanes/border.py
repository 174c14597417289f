"""Calls from Python into compiled code.

numba tells the type of a plain tuple in 0.2 µs, and that of a named one in 1 µs and more: it spells
out the names at each call. So named tuples cross the border as plain ones, and a kernel names their
parts again, which compiled code does for nothing.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast, get_type_hints

P = ParamSpec("P")
R = TypeVar("R")


def from_python(kernel: Callable[P, R]) -> Callable[P, R]:
    """Return a compiled function to be called from Python, by position.

    Parameters
    ----------
    kernel : compiled function
        Where its annotation says a named tuple, it takes a plain one. What is returned has it as
        its attribute ``compiled``.
    """
    function: Any = kernel.py_func  # type: ignore[attr-defined]
    hints = [hint for name, hint in get_type_hints(function).items() if name != "return"]
    named = [place for place, hint in enumerate(hints) if hasattr(hint, "_fields")]

    @wraps(function)
    def call(*args: Any) -> Any:
        plain = list(args)
        for place in named:
            plain[place] = tuple(plain[place])
        return cast("Any", kernel)(*plain)

    call.compiled = kernel  # type: ignore[attr-defined]
    return cast("Callable[P, R]", call)
