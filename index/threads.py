"""Threads: parallel work, and background work that leaves a processor to searches.

Kernels release the interpreter lock, so threads run in parallel. The parallel loops of numba are
not used, because two callers inside them at once may abort the process.

Searches need low latency; loads and builds need throughput. The system may let a computing thread
run for milliseconds while a more urgent one is ready. So a low priority is not enough: one
processor must be free. A thread that gets the interpreter lock but has no processor delays all
others. So while searches are expected, background threads take turns, and one thread fewer
works.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import (
    AbstractContextManager,
    ContextDecorator,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from types import FrameType
from typing import Any, ClassVar, Final, TypeVar

from gcws_search.index.memory import bound_heaps

T = TypeVar("T")

_log = logging.getLogger(__name__)
_this_thread: Final = threading.local()
_FREE: Final = nullcontext()

_NICE: Final = 5
"""A third of the share of a thread that does not give way."""
_NICEST: Final = 19

_EXPECTED_SECONDS: Final = 1.0
"""After a search, others are expected for this time."""

_SIGNALS: Final = tuple(
    signal.Signals[name]
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
"""Those for which programs have handlers that raise. To look at all takes 40 µs."""
_signals: Final[Any] = importlib.import_module("_signal")
"""What `signal` calls, and makes an enumeration of each answer: 20 µs a write."""

_TIMEOUT_SECONDS: Final = 1.0
"""No thread waits longer for a turn: the one that has it may wait for what this thread holds."""


def processors() -> list[int]:
    """Return the numbers of the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(os.getpid()))  # this thread may be bound to some of them
    return [*range(os.cpu_count() or 1)]


def give_way() -> None:
    """Lower the priority of this thread permanently.

    Beside a graph build on both of two processors, a searching thread waited 5 ms or more for a
    processor 40 times with this, and 180 times without.
    """
    if sys.platform == "linux":  # elsewhere a priority belongs to the whole process
        thread = threading.get_native_id()
        with suppress(OSError):
            # Relative to the process, because a thread inherits the priority of its creator.
            nice = os.getpriority(os.PRIO_PROCESS, os.getpid()) + _NICE
            os.setpriority(os.PRIO_PROCESS, thread, min(nice, _NICEST))
    _this_thread.gives_way = True
    _this_thread.leaves_first = None  # it inherits the processors of its creator


def run_uninterrupted(work: Callable[[], T]) -> T:
    """Run a function that Ctrl-C must not interrupt, and return its result.

    Python runs signal handlers in the main thread, between any two steps. The handlers of signals
    that arrive meanwhile run after the function.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    handlers = {n: each for n in _SIGNALS if callable(each := _signals.getsignal(n))}
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)

    try:
        with ExitStack() as stack:
            for number, handler in handlers.items():
                stack.callback(_signals.signal, number, handler)
                _signals.signal(number, note)
            return work()
    finally:
        if came:
            with ExitStack() as stack:  # calls all handlers even if some raise
                for each in reversed(dict.fromkeys(came)):
                    # Sending the signal again would notify an event loop twice.
                    stack.callback(handlers[each], each, sys._getframe())


def gives_way() -> bool:
    """Return whether this thread is a background thread."""
    return getattr(_this_thread, "gives_way", False)


def _bind(*, leaves_first: bool) -> None:
    """Run this thread on all processors except the first, or on all.

    The main thread is not changed: its processors are those of the process.
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
    """A semaphore that serves threads in order of arrival.

    permits: number of threads that may hold it at once.
    """

    def __init__(self, permits: int) -> None:
        self._permits = permits
        self._lock = threading.Lock()
        self._queue: deque[threading.Lock] = deque()
        self.acquired = 0

    @property
    def waiting(self) -> int:
        """Number of threads that wait for a permit."""
        return len(self._queue)

    def acquire(self, timeout_seconds: float) -> bool:
        """Take a permit; return False on timeout."""
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
            if ticket not in self._queue:  # a permit has just been given
                return True
            self._queue.remove(ticket)
            return False

    def release(self) -> None:
        """Give the permit to the thread that has waited longest, or return it."""
        with self._lock:
            if self._queue:
                self._queue.popleft().release()
            else:
                self.acquired -= 1


class Searches:
    """Whether searches are expected, and the turns of background threads meanwhile.

    All collections of a catalog share one, because they share the processors.

    clock: returns seconds.
    threads: number that may run at once; None for as many as there are processors.
    timeout_seconds: how long a thread waits for a turn before it continues without one.
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
        """Record that a search is running; any thread."""
        self._last = self._clock()

    @property
    def are_expected(self) -> bool:
        """Whether there was a search recently."""
        return self._clock() - self._last < _EXPECTED_SECONDS

    @property
    def turns_taken(self) -> int:
        """Number of background threads that have a turn."""
        return self._turns.acquired

    def turn(self) -> AbstractContextManager[None]:
        """Take a turn while searches are expected, and leave the first processor free.

        A thread that gets no turn in time continues without one. Foreground threads, and threads
        that have a turn, are not affected. Code inside must not wait for other threads.
        """
        is_free = not gives_way() or getattr(_this_thread, "is_inside", False)
        return _FREE if is_free else self._take_turn()

    @contextmanager
    def _take_turn(self) -> Iterator[None]:
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


class _BlasLimit(ContextDecorator):
    """Keeps BLAS on the calling threads while any thread is inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._controller: Any = None  # takes 3 ms to create, and 10 µs to use
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._controller is None:
                from threadpoolctl import ThreadpoolController  # noqa: PLC0415  # after NumPy

                self._controller = ThreadpoolController()
            # Set again by each, because a program may have changed the number.
            limit = self._controller.limit(limits=1, user_api="blas")
            if self._inside == 1:
                self._limit = limit

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.restore_original_limits()


limit_blas: Final = _BlasLimit()
"""Work is split over threads above products of matrices. Threads that BLAS starts besides wait
busily for each other: beside other work features by 256 landmarks took 5 s, without them 0.15, and
a map of 1,000 items 1.1 s and 0.05. It holds for the whole process: a server enters it for good."""


PIECES: Final = 4
"""Parts for each thread, of work whose parts take unlike time; see `Workers.split`."""

_PIECE: Final = 4
"""Pieces of a thread's part have at least this many times ``min_size`` items."""

_BACKGROUND_PIECES: Final = 8
"""Pieces of a background thread's part while searches are expected: others take turns between."""

_LONG_PART: Final = 64
"""Parts of this many times ``min_size`` items have a thread each, though turns may delay it."""

_AHEAD: Final = 2
"""Pieces that `read_ahead` has asked for before it waits for the first of them."""


class StoppedError(Exception):
    """Raised to end work whose result is no longer needed."""


def end_if(stop: threading.Event | None) -> None:
    """Raise StoppedError once ``stop`` is set."""
    if stop is not None and stop.is_set():
        raise StoppedError


def available_threads() -> int:
    """Return the number of processors that this process may use."""
    return len(processors())


def work_alone() -> None:
    """Let no other thread help this one, permanently.

    For threads with short, repeated work beside busy processes: of 16 queries together, each took
    94 µs with two threads and 64 µs with one.
    """
    _this_thread.is_alone = True


class Workers:
    """A fixed number of threads for kernels.

    threads: None means as many as the process may use.
    behind: whether the threads, except the caller's, are background threads. Threads that help a
        background thread always are.
    searches: shared by all workers of a catalog; None creates a separate one.
    """

    def __init__(
        self, threads: int | None = None, *, behind: bool = False, searches: Searches | None = None
    ) -> None:
        self._searches = searches or Searches()
        self.threads = threads or available_threads()
        self._is_behind = behind
        bound_heaps()
        self._make_pools()

    @property
    def searches_are_expected(self) -> bool:
        """Whether there was a search recently."""
        return self._searches.are_expected

    def behind(self) -> Workers:
        """Return as many background threads."""
        return Workers(self.threads, behind=True, searches=self._searches)

    def _make_pools(self) -> None:
        self._process = os.getpid()
        self._helpers = None if self._is_behind else self._pool()
        self._helpers_behind = self._pool(give_way)

    def _pool(self, initializer: Callable[[], None] | None = None) -> ThreadPoolExecutor | None:
        """Return threads that start when they are needed; the caller works, too."""
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
        """Return how many threads work for a caller with work for ``wanted`` threads."""
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
        foreground, short work leaves out one thread for each turn that is taken.

        work: must not call `split` again.
        min_size: minimum size of a part.
        pieces: parts per thread, if each has at least `_PIECE` times ``min_size`` items. Use more
            if parts differ in time, so that no thread waits long for the last one.
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
                except IndexError:  # another thread took the last part
                    return
                with self._searches.turn():
                    work(count * part // parts, count * (part + 1) // parts)

        pool = self._pool_of_caller(behind=behind) if threads > 1 else None
        futures: list[Future[None]] = []
        try:
            with suppress(RuntimeError):  # the interpreter is ending and starts no threads
                while pool is not None and len(futures) < threads - 1:
                    futures.append(pool.submit(run))
            run()
        finally:
            started = _end_all(futures)
        for future in started:
            future.result()


def _end_all(futures: Sequence[Future[None]]) -> list[Future[None]]:
    """Wait for threads that have started, and return these; the caller did the others' parts.

    Ctrl-C is raised only after that, because threads write to arrays that the caller then frees.
    """
    try:
        started = [future for future in futures if not future.cancel()]
        wait(started)
    except BaseException:
        _end_all(futures)
        raise
    return started


def read_ahead(pieces: Generator[T]) -> Generator[T]:
    """Yield the pieces of a generator, which runs in its own thread.

    The next piece is made while the caller uses one. Errors of the generator are raised here
    instead of a piece. Closing this generator closes the inner one.

    pieces: must not yield None.
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


class BackgroundTask:
    """A thread of one collection that runs while there is something to do.

    Its lock is acquired before those of the writer, of memory and of SQLite, and held while nothing
    is written. Each task decides what it waits for, before or between its steps.

    stopping: set once nothing more may start.
    skip_pause: set while a caller waits for the work: ends pauses.
    thread: the last one that was started.
    """

    name: ClassVar[str]
    failure: ClassVar[str] = "work in the background failed"
    gives_way: ClassVar[bool] = False
    """Whether its thread leaves the processors to searches."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self.stopping = threading.Event()
        self.skip_pause = threading.Event()
        self.thread: threading.Thread | None = None
        self.is_running = False

    def is_due(self) -> bool:
        """Return whether there is something to do."""
        raise NotImplementedError

    def step(self) -> None:
        """Do a part of it, and pause to let others work."""
        raise NotImplementedError

    def start(self) -> bool:
        """Start a thread if something is due; return whether one was started; any thread."""
        with self._starting:
            # A write waits for this check; a running thread checks by itself.
            if self.is_running or self.stopping.is_set() or not self.is_due():
                return False
            self.is_running = True
            thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            thread.start()
            self.thread = thread  # it has started, so others can join it
            return True

    def join(self) -> None:
        """Return when the thread has ended."""
        thread = self.thread
        if thread is not None:
            thread.join()

    def finish(self) -> None:
        """Do what is due at once; return when it is done, or cannot be."""
        self.start()
        self.skip_pause.set()
        self.join()
        if not self.stopping.is_set():
            self.skip_pause.clear()

    def stop(self) -> None:
        """End the work soon, start no more, and return when it has ended."""
        with self._starting:
            self.stopping.set()
        self.finish()

    def _run(self) -> None:
        if self.gives_way:
            give_way()
        try:
            self.step()
            while self._goes_on():
                self.step()
        except Exception:
            # Others continue without it; the next change tries again.
            _log.exception(self.failure)
            with self._starting:
                self.is_running = False

    def _goes_on(self) -> bool:
        """Return whether there is more to do; after a False, a new start creates a new thread."""
        with self._starting:
            self.is_running = not self.stopping.is_set() and self.is_due()
            return self.is_running
