"""Functions of the program wrapped, so that a point before or after them can be watched."""

import functools
from collections.abc import Callable
from inspect import isawaitable
from typing import Any, Final, TypeAlias

Reached: TypeAlias = Callable[[], None]
"""Called where a point is."""
Watched: TypeAlias = Callable[..., bool]
"""Whether a call is meant, by its arguments."""


def _at(
    late: bool,
    owner: Any,  # noqa: ANN401
    name: str,
    watched: Watched | None = None,
) -> Callable[[Reached], None]:
    """Return what installs a point before a function or a coroutine, or after it."""

    def install(reached: Reached) -> None:
        original = getattr(owner, name)

        async def awaited(result: Any) -> Any:  # noqa: ANN401
            found = await result
            reached()
            return found

        @functools.wraps(original)
        def wrapped(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            is_meant = watched is None or watched(*arguments, **options)
            if is_meant and not late:
                reached()
            result = original(*arguments, **options)
            if is_meant and late:
                if isawaitable(result):
                    return awaited(result)
                reached()
            return result

        setattr(owner, name, wrapped)

    return install


before: Final = functools.partial(_at, False)
after: Final = functools.partial(_at, True)
