"""Work that stops at one of its steps, so that something else is done at that very moment."""

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_SECONDS = 60


class Work:
    """What is done in a thread, and how it ended."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:
            self.error = error

    @property
    def is_under_way(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(_SECONDS)
        assert not self._thread.is_alive()


@contextmanager
def paused_at(
    owner: Any,  # noqa: ANN401
    step: str,
    work: Callable[[], Any],
    *,
    done: bool = False,
) -> Iterator[Work]:
    """Let some work come to a step and stop there until the block ends.

    ``step``: A function of it; only its first call stops. ``done``: whether it stops after the
    step, not before.
    """
    reached, goes_on = threading.Event(), threading.Event()
    original = getattr(owner, step)

    def stopping(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        first = not reached.is_set()
        if first and not done:
            reached.set()
            assert goes_on.wait(_SECONDS)
        result = original(*arguments, **options)
        if first and done:
            reached.set()
            assert goes_on.wait(_SECONDS)
        return result

    is_static = isinstance(inspect.getattr_static(owner, step), staticmethod)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, step, staticmethod(stopping) if is_static else stopping)
        under_way = Work(work)
        try:
            while not reached.wait(0.01):
                assert under_way.is_under_way, under_way.error
            yield under_way
        finally:
            goes_on.set()
            under_way.join()
