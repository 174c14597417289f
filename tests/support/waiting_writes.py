"""Writes that arrive, one after the other, while a commit is under way."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class _Announced(deque[Any]):
    """A queue that says when something has been put into it."""

    def __init__(self) -> None:
        super().__init__()
        self.arrivals = threading.Semaphore(0)

    def append(self, item: Any) -> None:  # noqa: ANN401
        super().append(item)
        self.arrivals.release()


def together(writer: Any, *calls: Callable[[], object]) -> list[object]:  # noqa: ANN401
    """Make calls that arrive in order during a commit of a writer; return what they gave."""
    writer.queue = queue = _Announced()
    results: list[object] = [None] * len(calls)

    def run(place: int) -> None:
        try:
            results[place] = calls[place]()
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    with writer.lock:
        for thread in threads:
            thread.start()
            assert queue.arrivals.acquire(timeout=60)
    for thread in threads:
        thread.join()
    return results
