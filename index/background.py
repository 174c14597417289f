"""Threads in the background: while somebody searches, they leave a processor free.

The system may let a thread that computes run on for milliseconds while a more urgent one is ready.
So a low priority is not enough: one processor must be free. A thread that was given the
interpreter's lock and has no processor delays all others. So threads in the background do not
compete with each other either: they take turns.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_NICE: Final = 5
"""A third of the share of a thread that does not give way."""
_NICEST: Final = 19

_EXPECTED_SECONDS: Final = 1.0
"""After a search, others are expected for this time."""

_TIMEOUT_SECONDS: Final = 1.0
"""No thread waits longer for a turn: the one that has it may wait for what this thread holds."""

_this_thread: Final = threading.local()


def processors() -> list[int]:
    """Return the processors that this process may use, by number."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(os.getpid()))  # this thread may be bound to some
    return [*range(os.cpu_count() or 1)]


def give_way() -> None:
    """Lower the priority of this thread for good.

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
    _this_thread.leaves_first = None  # it begins on the processors of the one that started it


def gives_way() -> bool:
    """Return whether this thread works in the background."""
    return getattr(_this_thread, "gives_way", False)


def _bind(*, leaves_first: bool) -> None:
    """Run this thread on all processors but the first, or on all.

    The main thread is left alone: its processors are those of the process.
    """
    if _this_thread.leaves_first is leaves_first or not hasattr(os, "sched_setaffinity"):
        return
    if threading.current_thread() is threading.main_thread():
        return
    every = processors()
    permitted = every[1:] if leaves_first and len(every) > 1 else every
    with suppress(OSError):  # a container may have lost some meanwhile
        os.sched_setaffinity(0, permitted)
    _this_thread.leaves_first = leaves_first


class FairSemaphore:
    """A semaphore that serves threads in the order in which they came.

    Parameters
    ----------
    permits : int
        Threads that may hold it at once.
    """

    def __init__(self, permits: int) -> None:
        self._permits = permits
        self._lock = threading.Lock()
        self._queue: deque[threading.Lock] = deque()
        self.acquired = 0

    @property
    def waiting(self) -> int:
        """How many threads wait for a permit."""
        return len(self._queue)

    def acquire(self, timeout_seconds: float) -> bool:
        """Take a permit; return False if none was free in time."""
        with self._lock:
            if self.acquired < self._permits:
                self.acquired += 1
                return True
            ticket = threading.Lock()
            ticket.acquire()
            self._queue.append(ticket)
        if ticket.acquire(timeout=timeout_seconds):
            return True
        with self._lock:
            if ticket not in self._queue:  # a permit was given just now
                return True
            self._queue.remove(ticket)
            return False

    def release(self) -> None:
        """Give a permit to the thread that has waited longest, or back."""
        with self._lock:
            if self._queue:
                self._queue.popleft().release()
            else:
                self.acquired -= 1


class Searches:
    """Whether searches are expected, and the turns of threads in the background meanwhile.

    All collections of a catalog have the same, for they share the processors.

    Parameters
    ----------
    clock : callable
        Returns seconds.
    threads : int or None
        Threads that may run at once; None for as many as there are processors.
    timeout_seconds : float
        How long a thread waits for a turn before it goes on without one.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        threads: int | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        self._clock = clock
        self._last = float("-inf")
        self._timeout_seconds = timeout_seconds
        self._turns = FairSemaphore(max(1, (threads or len(processors())) - 1))

    def announce(self) -> None:
        """Record that a search runs now; any thread."""
        self._last = self._clock()

    @property
    def are_expected(self) -> bool:
        """Whether there was a search lately."""
        return self._clock() - self._last < _EXPECTED_SECONDS

    @property
    def turns_taken(self) -> int:
        """How many threads in the background have a turn."""
        return self._turns.acquired

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Take a turn while searches are expected, and leave the first processor free.

        A thread that gets no turn in time goes on without one. Threads that do not give way, and
        those that have a turn, are not affected. Inside, no thread waits for another.
        """
        if not gives_way() or getattr(_this_thread, "is_inside", False):
            yield
            return
        expected = self.are_expected
        _bind(leaves_first=expected)
        if not expected:
            yield
            return
        is_taken = self._turns.acquire(self._timeout_seconds)
        _this_thread.is_inside = True
        try:
            yield
        finally:
            _this_thread.is_inside = False
            if is_taken:
                self._turns.release()
