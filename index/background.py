"""Threads in the background: while somebody searches, they leave a processor free.

A system lets a thread that computes go on for some milliseconds, though another is ready that
should go first. So a low priority is not enough: there must be a processor that is free. And a
thread that was lent the interpreter's lock keeps all others waiting until it has a processor, so
those in the background do not crowd each other out either. They take turns.
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

_LATELY_SECONDS: Final = 1.0
"""After a search, others are expected for this time."""

_PATIENCE_SECONDS: Final = 1.0
"""Nobody waits longer for a turn: the one who has it may wait for what this thread holds."""

_this_thread: Final = threading.local()


def processors() -> list[int]:
    """Return the processors that this process may use, by number."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(os.getpid()))
    return [*range(os.cpu_count() or 1)]


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
    _this_thread.is_aside = None  # it begins on the processors of the one that started it


def gives_way() -> bool:
    """Return whether this thread works in the background."""
    return getattr(_this_thread, "gives_way", False)


def _stand_aside(*, aside: bool) -> None:
    """Run this thread on all processors but the first, or on all."""
    if _this_thread.is_aside is aside or not hasattr(os, "sched_setaffinity"):
        return
    every = processors()
    with suppress(OSError):  # a container may have lost some meanwhile
        os.sched_setaffinity(0, every[1:] or every if aside else every)
    _this_thread.is_aside = aside


class Turns:
    """A number of places, given to those who wait for one in the order of their coming.

    Parameters
    ----------
    places : int
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._changing = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self.taken = 0

    @property
    def waiting(self) -> int:
        """How many threads wait for a place."""
        return len(self._waiting)

    def take(self, seconds: float) -> bool:
        """Return whether there was a place within this time."""
        with self._changing:
            if self.taken < self._places:
                self.taken += 1
                return True
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        if mine.acquire(timeout=seconds):
            return True
        with self._changing:
            if mine not in self._waiting:  # it was given just now
                return True
            self._waiting.remove(mine)
            return False

    def give_back(self) -> None:
        """Give the place to the one who has waited longest, if anybody has."""
        with self._changing:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self.taken -= 1


class Searches:
    """When somebody searched last, in all collections of a catalog: they share the processors.

    Parameters
    ----------
    clock : callable
        Returns seconds.
    threads : int or None
        Threads that may run at once; None for as many as there are processors.
    patience : float
        Seconds that a thread waits for a turn before it goes on without.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        threads: int | None = None,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        self._patience = patience
        self._clock = clock
        self._last = float("-inf")
        self._turns = Turns(max(1, (threads or len(processors())) - 1))

    def announce(self) -> None:
        """Say that somebody searches now; any thread."""
        self._last = self._clock()

    @property
    def are_expected(self) -> bool:
        """Whether there was a search lately."""
        return self._clock() - self._last < _LATELY_SECONDS

    @property
    def threads_behind(self) -> int:
        """How many threads have a turn in the background."""
        return self._turns.taken

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Work in the background: in turns, on all processors but the first, while searches come.

        Nothing to a thread that does not give way, and inside another turn. No thread should wait
        for others inside.
        """
        if not gives_way() or getattr(_this_thread, "has_turn", False):
            yield
            return
        _stand_aside(aside=self.are_expected)
        if not self.are_expected:
            yield
            return
        is_given = self._turns.take(self._patience)
        _this_thread.has_turn = True
        try:
            yield
        finally:
            _this_thread.has_turn = False
            if is_given:
                self._turns.give_back()
