"""Functions of the program wrapped, so that a point before or after them can be watched."""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

Reached: TypeAlias = Callable[[], None]
"""Called where a point is."""
Watched: TypeAlias = Callable[..., bool]
"""Whether a call is meant, by its arguments."""


def always(*_arguments: Any, **_options: Any) -> bool:  # noqa: ANN401
    """Mean every call."""
    return True


def before(owner: Any, name: str, watched: Watched = always) -> Callable[[Reached], None]:  # noqa: ANN401
    """Return what installs a point before a function."""

    def install(reached: Reached) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            if watched(*arguments, **options):
                reached()
            return original(*arguments, **options)

        setattr(owner, name, wrapped)

    return install


def after(owner: Any, name: str, watched: Watched = always) -> Callable[[Reached], None]:  # noqa: ANN401
    """Return what installs a point after a function."""

    def install(reached: Reached) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            is_meant = watched(*arguments, **options)
            result = original(*arguments, **options)
            if is_meant:
                reached()
            return result

        setattr(owner, name, wrapped)

    return install


def after_awaited(owner: Any, name: str, watched: Watched = always) -> Callable[[Reached], None]:  # noqa: ANN401
    """Return what installs a point after a coroutine."""

    def install(reached: Reached) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        async def wrapped(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            is_meant = watched(*arguments, **options)
            result = await original(*arguments, **options)
            if is_meant:
                reached()
            return result

        setattr(owner, name, wrapped)

    return install
