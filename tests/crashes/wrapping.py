"""Functions of the program wrapped, so that a point before or after them can be watched."""

import functools
from collections.abc import Callable
from inspect import isawaitable
from typing import Any, TypeAlias

Reached: TypeAlias = Callable[[], None]
"""Called where a point is."""
Watched: TypeAlias = Callable[..., bool]
"""Whether a call is meant, by its arguments."""


def before(owner: Any, name: str, watched: Watched | None = None) -> Callable[[Reached], None]:  # noqa: ANN401
    """Return what installs a point before a function or a coroutine."""

    def install(reached: Reached) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            if watched is None or watched(*arguments, **options):
                reached()
            return original(*arguments, **options)

        setattr(owner, name, wrapped)

    return install


def after(owner: Any, name: str, watched: Watched | None = None) -> Callable[[Reached], None]:  # noqa: ANN401
    """Return what installs a point after a function, or after a coroutine is awaited."""

    def install(reached: Reached) -> None:
        original = getattr(owner, name)

        async def awaited(result: Any) -> Any:  # noqa: ANN401
            found = await result
            reached()
            return found

        @functools.wraps(original)
        def wrapped(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            is_meant = watched is None or watched(*arguments, **options)
            result = original(*arguments, **options)
            if is_meant and isawaitable(result):
                return awaited(result)
            if is_meant:
                reached()
            return result

        setattr(owner, name, wrapped)

    return install
