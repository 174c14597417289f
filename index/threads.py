"""Work split over threads: kernels release the interpreter lock, so threads run side by side.

Searches need low latency, loads and builds need throughput. While somebody searches, threads that
called `give_way` use one processor less: a search that waits for a processor waits many times
longer than it computes.

The parallel loops of numba are not used: two callers inside them at once may abort the process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Final

_NICE: Final = 5
"""A third of the share of a thread that does not give way."""
_NICEST: Final = 19

_PIECE: Final = 4
"""Pieces of a thread's part have at least this many times ``min_size`` items."""

_LATELY_SECONDS: Final = 1.0
"""After a search, others are expected for this time."""

_this_thread: Final = threading.local()


class StoppedError(Exception):
    """The way out of work that nobody waits for any more."""


def end_if(stop: threading.Event | None) -> None:
    """Raise StoppedError once ``stop`` is set."""
    if stop is not None and stop.is_set():
        raise StoppedError


class Searches:
    """When somebody searched last, in all collections of a catalog: they share the processors.

    Parameters
    ----------
    clock : callable
        Returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = float("-inf")

    def announce(self) -> None:
        """Say that somebody searches now; any thread."""
        self._last = self._clock()

    @property
    def are_expected(self) -> bool:
        """Whether there was a search lately."""
        return self._clock() - self._last < _LATELY_SECONDS


def available_threads() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def give_way() -> None:
    """Leave, in this thread and for good, most of a processor to others that want it.

    A thread that searched beside a build of the graph on both of two processors waited 5 ms or more
    for one 40 times where this was done, and 180 times where not.
    """
    if sys.platform == "linux":  # elsewhere a priority is the whole process's
        thread = threading.get_native_id()
        with suppress(OSError):
            # From the process's own: a thread begins with the priority of the one that started it.
            nice = os.getpriority(os.PRIO_PROCESS, os.getpid()) + _NICE
            os.setpriority(os.PRIO_PROCESS, thread, min(nice, _NICEST))
    _this_thread.gives_way = True


def work_alone() -> None:
    """Let no other thread help this one, for good.

    For a thread whose work is short and comes again and again, beside processes that want the other
    processors: 16 queries together took 94 µs each of two threads, and 64 of one.
    """
    _this_thread.is_alone = True


def _gives_way() -> bool:
    return getattr(_this_thread, "gives_way", False)


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
        Those that a caller who gives way leaves a thread to; None for none.
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
        self._helpers = None if behind else self._pool()
        self._helpers_behind = self._pool(give_way)

    def behind(self) -> Workers:
        """Return as many threads that give way."""
        return Workers(self.threads, behind=True, searches=self._searches)

    def _pool(self, initializer: Callable[[], None] | None = None) -> ThreadPoolExecutor | None:
        """Return threads that start when they are needed; the caller is one more."""
        if self.threads == 1:
            return None
        name = "kernel" if initializer is None else "kernel-behind"
        return ThreadPoolExecutor(
            self.threads - 1, thread_name_prefix=name, initializer=initializer
        )

    def _pool_of_caller(self) -> ThreadPoolExecutor | None:
        gives_way = _gives_way()
        return self._helpers_behind if gives_way or self._helpers is None else self._helpers

    def _max_parts(self) -> int:
        """Return how many threads may work at once for the caller."""
        if getattr(_this_thread, "is_alone", False):
            return 1
        leaves_one = self.threads > 1 and _gives_way() and self._searches.are_expected
        return self.threads - leaves_one

    def split(
        self, count: int, work: Callable[[int, int], None], *, min_size: int = 1, pieces: int = 1
    ) -> None:
        """Call ``work(first, last)`` on parts that cover range(count), and wait for all of them.

        For a caller who gives way a thread less does it while searches are expected.

        Parameters
        ----------
        count : int
        work : callable
            Must not call `split` again.
        min_size : int
            A part is not made smaller than this.
        pieces : int
            Parts for each thread, where each has at least `_PIECE` times ``min_size`` items.
            More than one, where parts take unlike time: no thread waits long for the last one.
        """
        threads = parts = min(self._max_parts(), count // max(min_size, 1))
        pool = self._pool_of_caller() if parts > 1 else None
        if pool is None:
            if count:
                work(0, count)
            return
        parts = max(threads, min(threads * pieces, count // (_PIECE * max(min_size, 1))))
        left = deque(range(parts))

        def run() -> None:
            while left:
                try:
                    part = left.popleft()
                except IndexError:  # another thread was quicker
                    return
                work(count * part // parts, count * (part + 1) // parts)

        futures = [pool.submit(run) for _ in range(threads - 1)]
        try:
            run()
        finally:
            # Threads that others keep busy have not begun: the caller has done their part.
            started = [future for future in futures if not future.cancel()]
            wait(started)
        for future in started:
            future.result()
