"""Work split over threads: kernels release the interpreter lock, so threads run side by side.

Searches need low latency, loads and builds need throughput. While searches are expected, those in
the background use one thread fewer, and take turns (`background`).

The parallel loops of numba are not used: two callers inside them at once may abort the process.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from typing import Final, TypeVar

from gcws_search.index.background import Searches, give_way, gives_way, processors

_PIECE: Final = 4
"""Pieces of a thread's part have at least this many times ``min_size`` items."""

_BACKGROUND_PIECES: Final = 8
"""Pieces of a background thread's part while searches are expected: others take turns between."""

_LONG_PART: Final = 64
"""Parts of this many times ``min_size`` items have a thread each, though turns may delay it."""

_AHEAD: Final = 2
"""Pieces that `read_ahead` has asked for before it waits for the first of them."""

_this_thread: Final = threading.local()

T = TypeVar("T")


class StoppedError(Exception):
    """The way out of work that nobody waits for any more."""


def end_if(stop: threading.Event | None) -> None:
    """Raise StoppedError once ``stop`` is set."""
    if stop is not None and stop.is_set():
        raise StoppedError


def available_threads() -> int:
    """Return how many processors this process may use."""
    return len(processors())


def work_alone() -> None:
    """Let no other thread help this one, for good.

    For a thread whose work is short and comes again and again, beside processes that want the other
    processors: 16 queries together took 94 µs each of two threads, and 64 of one.
    """
    _this_thread.is_alone = True


class Workers:
    """A fixed number of threads for kernels.

    Parameters
    ----------
    threads : int or None
        None takes as many as the process may use.
    behind : bool
        Whether the threads, but for the caller's, give way to others; those that help a caller who
        gives way do so anyway.
    searches : Searches or None
        Of all workers of a catalog; None for some of their own.
    """

    def __init__(
        self,
        threads: int | None = None,
        *,
        behind: bool = False,
        searches: Searches | None = None,
    ) -> None:
        self._searches = searches or Searches()
        self.threads = threads or available_threads()
        self._is_behind = behind
        self._make_pools()

    def behind(self) -> Workers:
        """Return as many threads that give way."""
        return Workers(self.threads, behind=True, searches=self._searches)

    def _make_pools(self) -> None:
        self._process = os.getpid()
        self._helpers = None if self._is_behind else self._pool()
        self._helpers_behind = self._pool(give_way)

    def _pool(self, initializer: Callable[[], None] | None = None) -> ThreadPoolExecutor | None:
        """Return threads that start when they are needed; the caller is one more."""
        if self.threads == 1:
            return None
        name = "kernel" if initializer is None else "kernel-behind"
        return ThreadPoolExecutor(
            self.threads - 1, thread_name_prefix=name, initializer=initializer
        )

    def _pool_of_caller(self, *, behind: bool) -> ThreadPoolExecutor | None:
        if self._process != os.getpid():  # a forked process has none of the threads
            self._make_pools()
        return self._helpers_behind if behind or self._helpers is None else self._helpers

    def _thread_count(self, wanted: int, *, behind: bool) -> int:
        """Return how many threads work at once for a caller who has work for ``wanted`` threads."""
        if getattr(_this_thread, "is_alone", False):
            return 1
        if behind:
            free = self.threads - (self.threads > 1 and self._searches.are_expected)
        else:
            free = max(self.threads - self._searches.turns_taken, wanted // _LONG_PART)
        return max(1, min(wanted, self.threads, free))

    def split(
        self, count: int, work: Callable[[int, int], None], *, min_size: int = 1, pieces: int = 1
    ) -> None:
        """Call ``work(first, last)`` on parts that cover range(count), and wait for all of them.

        In the background, while searches are expected, one thread fewer works, in turns. In the
        foreground short work leaves out a thread for each turn that is taken.

        Parameters
        ----------
        work : callable
            Must not call `split` again.
        min_size : int
            A part is not made smaller than this.
        pieces : int
            Parts for each thread, where each has at least `_PIECE` times ``min_size`` items.
            More than one, where parts take unlike time: no thread waits long for the last one.
        """
        behind = gives_way()
        wanted = count // max(min_size, 1)
        threads = self._thread_count(wanted, behind=behind) if wanted > 1 else 1
        if behind and self._searches.are_expected:
            pieces = max(pieces, _BACKGROUND_PIECES)
        elif threads == 1:
            if count:
                work(0, count)
            return
        parts = min(count, max(threads, min(threads * pieces, wanted // _PIECE)))
        left = deque(range(parts))

        def run() -> None:
            while left:
                try:
                    part = left.popleft()
                except IndexError:  # another thread was quicker
                    return
                with self._searches.turn():
                    work(count * part // parts, count * (part + 1) // parts)

        pool = self._pool_of_caller(behind=behind) if threads > 1 else None
        futures = [] if pool is None else [pool.submit(run) for _ in range(threads - 1)]
        try:
            run()
        finally:
            # Threads that others keep busy have not begun: the caller has done their part.
            started = [future for future in futures if not future.cancel()]
            wait(started)
        for future in started:
            future.result()


def read_ahead(pieces: Generator[T]) -> Generator[T]:
    """Yield the pieces of a generator, which a thread of its own makes.

    The next piece is made while the caller uses one. Errors of the generator are raised here, in
    place of a piece. Closing this generator closes that one.

    Parameters
    ----------
    pieces : generator
        Yields no None.
    """
    futures: deque[Future[T | None]] = deque()
    with closing(pieces), ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        try:
            while True:
                while len(futures) < _AHEAD:
                    futures.append(pool.submit(next, pieces, None))
                piece = futures.popleft().result()
                if piece is None:
                    return
                yield piece
        finally:
            for future in futures:
                future.cancel()


ALONE: Final = Workers(1)
"""No thread but the caller's."""
