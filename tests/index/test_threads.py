"""Work split over threads, and threads that give way to searches."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.batches import RawBatch
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.threads import (
    BackgroundTask,
    FairSemaphore,
    Searches,
    Workers,
    give_way,
    gives_way,
    limit_blas,
    processors,
    read_ahead,
    run_uninterrupted,
    work_alone,
)
from tests.support.forks import done_in_fork
from tests.support.index.blas import blas_threads
from tests.support.pausing import Work


def run(*works: Callable[[], object]) -> None:
    """Do some work in threads at once; fail where one does not end, or fails."""
    for work in [Work(each) for each in works]:
        work.join()
        assert work.error is None


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 4, 17])
def test_every_number_is_worked_on_once(threads: int, count: int) -> None:
    done: list[int] = []
    Workers(threads).split(count, lambda first, last: done.extend(range(first, last)))
    assert sorted(done) == list(range(count))


def test_products_have_one_thread_until_nobody_is_inside_any_more() -> None:
    def other() -> None:
        with limit_blas:
            assert blas_threads() == {1}

    with threadpool_limits(2, user_api="blas"):
        with limit_blas:
            run(other, other)
            assert blas_threads() == {1}
        assert blas_threads() == {2}


def test_work_is_done_while_the_interpreter_ends() -> None:
    program = """
import atexit
from gcws_search.index.threads import Workers
atexit.register(lambda: Workers(2).split(10, lambda first, last: print(first, last)))
"""
    told = subprocess.check_output([sys.executable, "-c", program], text=True).splitlines()
    assert sorted(told) == ["0 5", "5 10"]


@pytest.mark.parametrize(("count", "parts"), [(3, 1), (4, 2), (16, 2), (24, 3), (64, 8), (1000, 8)])
def test_work_is_cut_into_pieces_as_far_as_there_is_enough(count: int, parts: int) -> None:
    done: list[int] = []
    sizes: list[int] = []

    def note(first: int, last: int) -> None:
        sizes.append(last - first)
        done.extend(range(first, last))

    Workers(2).split(count, note, min_size=2, pieces=4)
    assert len(sizes) == parts
    assert max(sizes) - min(sizes) <= 1
    assert sorted(done) == list(range(count))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_process_has_threads_of_its_own() -> None:
    workers = Workers(2)
    workers.split(2, lambda *_: None)

    def meet() -> None:
        meeting = threading.Barrier(2)

        def work(first: int, last: int) -> None:
            del first, last
            meeting.wait(30)

        workers.split(2, work)

    assert done_in_fork(meet) == "None"


def test_a_caller_does_all_the_work_while_others_keep_the_threads_busy() -> None:
    workers = Workers(2)
    started, release = threading.Event(), threading.Event()

    def hold(first: int, last: int) -> None:
        del last
        if first == 0:
            started.set()
        assert release.wait(60)

    busy = Work(lambda: workers.split(2, hold))
    assert started.wait(60)
    done: list[int] = []
    workers.split(6, lambda first, last: done.extend(range(first, last)))
    assert sorted(done) == list(range(6))
    release.set()
    busy.join()


def test_an_error_in_any_part_reaches_the_caller() -> None:
    def fail(first: int, last: int) -> None:
        if last == 4:
            raise KeyError(first)

    with pytest.raises(KeyError):
        Workers(2).split(4, fail)


def priorities(workers: Workers) -> list[int]:
    """Return the priorities of this thread and of the one that helps it."""
    together, found = threading.Barrier(2, timeout=60), dict[int, int]()

    def note(first: int, last: int) -> None:
        del first, last
        together.wait()  # so that each thread does one part
        thread = threading.get_native_id()
        found[thread] = os.getpriority(os.PRIO_PROCESS, thread)

    workers.split(2, note)
    return [found.pop(threading.get_native_id()), *found.values()]


def test_an_interrupt_reaches_the_caller_once_no_thread_works_any_more() -> None:
    caller, began, ended = threading.main_thread(), threading.Event(), threading.Event()

    def meet(first: int, last: int) -> None:
        del first, last
        both.wait()

    def work(first: int, last: int) -> None:
        del first, last
        if threading.current_thread() is caller:
            began.wait()
            return
        began.set()
        for _ in range(3):  # the first breaks off what the caller does, the next what it waits for
            signal.pthread_kill(caller.ident or 0, signal.SIGINT)
            for _ in range(20):
                np.sort(np.arange(100_000.0)[::-1])
        ended.set()

    workers, both = Workers(2), threading.Barrier(2)
    workers.split(2, meet)  # the thread is there
    with pytest.raises(KeyboardInterrupt):
        workers.split(2, work)
    assert ended.is_set()


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """Return a list of signals that have been handled; SIGUSR1 raises, too."""
    found: list[int] = []

    def raise_it(number: int, _: object) -> None:
        found.append(number)
        raise InterruptedError

    kinds = (signal.SIGUSR1, raise_it), (signal.SIGUSR2, lambda number, _: found.append(number))
    before = [(number, signal.signal(number, handler)) for number, handler in kinds]
    yield found
    for number, handler in before:
        signal.signal(number, handler)


def test_signals_that_come_during_a_write_are_handled_behind_it(handled: list[int]) -> None:
    known = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)]
    done: list[list[int]] = []

    def work(*numbers: int) -> int:
        for number in numbers:
            signal.raise_signal(number)
        done.append([*handled])
        return 5

    assert run_uninterrupted(lambda: work(signal.SIGUSR2)) == 5
    assert (done.pop(), handled) == ([], [signal.SIGUSR2])
    with pytest.raises(KeyboardInterrupt):
        run_uninterrupted(lambda: run_uninterrupted(lambda: work(signal.SIGINT)))
    assert done.pop() == [signal.SIGUSR2]
    with pytest.raises(InterruptedError):
        run_uninterrupted(lambda: work(signal.SIGUSR1, signal.SIGUSR2))
    assert (done.pop(), handled[1:]) == ([signal.SIGUSR2], [signal.SIGUSR1, signal.SIGUSR2])
    with pytest.raises(InterruptedError):
        run_uninterrupted(lambda: work(*[signal.SIGUSR1] * 3))  # somebody insists
    assert (len(done), handled.count(signal.SIGUSR1)) == (1, 2)
    now = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)]
    assert now == known
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run_uninterrupted, work).result() == 5


def test_an_event_loop_is_told_once_of_a_signal_that_comes_during_a_write() -> None:
    async def told() -> int:
        loop, came = asyncio.get_running_loop(), list[int]()
        loop.add_signal_handler(signal.SIGUSR1, came.append, 1)
        run_uninterrupted(lambda: signal.raise_signal(signal.SIGUSR1))
        last = loop.create_future()
        loop.add_signal_handler(signal.SIGUSR2, last.set_result, None)
        signal.raise_signal(signal.SIGUSR2)  # comes behind the first
        await last
        return len(came)

    assert asyncio.run(told()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priorities")
def test_helpers_give_way_where_their_caller_or_their_workers_do_and_no_others() -> None:
    workers, before = Workers(2), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    behind: list[int] = []

    def give_way_and_work() -> None:
        give_way()
        behind.extend(priorities(workers))

    run(give_way_and_work)
    assert behind == [before + 5] * 2
    assert priorities(workers) == [before] * 2
    assert priorities(Workers(2, behind=True)) == [before, before + 5]


def threads_of(workers: Workers, wanted: int, *, gives_way: bool) -> int:
    """Return how many threads one `split` uses; each waits until ``wanted`` have begun."""
    together, found = threading.Barrier(wanted, timeout=60), set[int]()

    def note(first: int, last: int) -> None:
        del first, last
        if threading.get_ident() not in found:
            found.add(threading.get_ident())
            together.wait()

    def work() -> None:
        if gives_way:
            give_way()
        workers.split(60, note)

    run(work)
    return len(found)


@pytest.mark.parametrize(("threads", "left"), [(1, 1), (2, 1), (4, 3)])
def test_who_gives_way_has_a_thread_less_while_searches_are_expected(
    threads: int, left: int
) -> None:
    searches = Searches(lambda: 100.0, threads)
    workers = Workers(threads, searches=searches)
    assert threads_of(workers, threads, gives_way=True) == threads
    searches.announce()
    assert threads_of(workers, threads, gives_way=False) == threads
    assert threads_of(workers, left, gives_way=True) == left


@pytest.mark.parametrize(
    ("count", "expected", "parts"),
    [(0, False, 0), (7, False, 1), (60, False, 1), (0, True, 0), (7, True, 1), (60, True, 7)],
)
def test_work_in_the_background_is_cut_into_turns_while_searches_are_expected(
    count: int, expected: bool, parts: int
) -> None:
    searches, sizes = Searches(lambda: 100.0, 2), list[int]()
    workers = Workers(1, searches=searches)
    if expected:
        searches.announce()

    def work() -> None:
        give_way()
        workers.split(count, lambda first, last: sizes.append(last - first), min_size=2)

    run(work)
    assert sum(sizes) == count
    assert len(sizes) == parts


@pytest.mark.parametrize(
    ("processors", "count", "threads"),
    [(2, 8, 1), (2, 250, 1), (2, 256, 2), (2, 1000, 2), (4, 60, 3), (4, 511, 3), (4, 512, 4)],
)
def test_short_work_leaves_out_a_thread_for_each_turn_that_is_taken(
    processors: int, count: int, threads: int
) -> None:
    """It might wait for a processor for many times as long as the work takes."""
    searches = Searches(lambda: 100.0, processors)
    workers = Workers(processors, searches=searches)
    searches.announce()
    began, done = threading.Event(), threading.Event()

    def behind() -> None:
        give_way()
        with searches.turn():
            began.set()
            assert done.wait(60)

    loading = Work(behind)
    assert began.wait(60)
    parts: list[int] = []
    workers.split(count, lambda first, last: parts.append(last - first), min_size=2)
    done.set()
    loading.join()
    assert sum(parts) == count
    assert len(parts) == threads
    workers.split(count, lambda first, last: parts.append(last - first), min_size=2)
    assert len(parts) == threads + processors


def test_who_works_alone_is_helped_by_no_thread() -> None:
    workers, found = Workers(4), dict[str, int]()

    def count(name: str) -> None:
        parts: list[int] = []
        workers.split(60, lambda first, last: parts.append(last - first))
        assert sum(parts) == 60
        found[name] = len(parts)

    def work() -> None:
        count("before")
        work_alone()
        count("alone")

    run(work)
    count("others")
    assert found == {"before": 4, "alone": 1, "others": 4}


def test_threads_in_the_background_that_work_together_do_not_wait_for_each_others_turns() -> None:
    """Each waits for helpers, which take turns; who waits for others has none itself."""
    searches = Searches(lambda: 100.0, 3, timeout_seconds=60)
    searches.announce()
    workers, done = Workers(3, searches=searches), list[int]()

    def work() -> None:
        give_way()
        workers.split(400, lambda first, last: done.append(last - first))

    run(*[work] * 4)
    assert sum(done) == 4 * 400
    assert searches.turns_taken == 0


def test_pieces_read_ahead_and_then_an_error_are_those_of_a_generator_in_another_thread() -> None:
    makers, found = set[threading.Thread](), list[int]()

    def pieces() -> Generator[int]:
        for piece in range(50):
            makers.add(threading.current_thread())
            yield piece
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        found.extend(read_ahead(pieces()))
    assert found == [*range(50)]
    assert len(makers) == 1
    assert threading.current_thread() not in makers


def test_the_next_piece_is_made_while_one_is_used() -> None:
    made = [threading.Event() for _ in range(3)]

    def pieces() -> Generator[int]:
        for piece, event in enumerate(made):
            event.set()
            yield piece

    for piece in read_ahead(pieces()):
        assert made[min(piece + 1, 2)].wait(30)


def test_a_generator_read_ahead_is_closed_with_its_reader() -> None:
    closed = threading.Event()

    def pieces() -> Generator[int]:
        try:
            while True:
                yield 0
        finally:
            closed.set()

    ahead = read_ahead(pieces())
    next(ahead)
    ahead.close()
    assert closed.is_set()


def test_searches_are_expected_for_a_second_after_one() -> None:
    now = 100.0
    searches = Searches(lambda: now)
    assert not searches.are_expected
    searches.announce()
    now = 100.9
    assert searches.are_expected
    now = 101.1
    assert not searches.are_expected


def test_every_search_of_a_collection_is_announced() -> None:
    searches = Searches(lambda: 100.0)
    collection = MemoryCollection(CollectionConfig(dim=2), searches=searches)
    query = collection.space.prepare(RawBatch("dense", dense=np.ones((1, 2), np.float32)))
    collection.search(collection.view, query, SearchParams(limit=1))
    assert searches.are_expected


def test_places_are_given_in_the_order_of_coming() -> None:
    semaphore, order = FairSemaphore(1), list[int]()
    assert semaphore.acquire(0)
    waiting = []
    for number in range(5):

        def wait(number: int = number) -> None:
            assert semaphore.acquire(60)
            order.append(number)
            semaphore.release()

        waiting.append(Work(wait))
        while semaphore.waiting <= number:
            time.sleep(0.001)
    semaphore.release()
    for work in waiting:
        work.join()
    assert order == [*range(5)]
    assert semaphore.acquired == 0


def test_nobody_waits_longer_than_was_said_and_no_place_is_lost() -> None:
    semaphore = FairSemaphore(2)
    assert semaphore.acquire(0)
    assert semaphore.acquire(0)
    assert not semaphore.acquire(0.001)
    assert semaphore.waiting == 0
    semaphore.release()
    assert semaphore.acquire(0)
    semaphore.release()
    semaphore.release()
    assert semaphore.acquired == 0


def test_no_more_have_a_turn_than_there_are_places() -> None:
    semaphore, inside, counts, counted = FairSemaphore(3), 0, list[int](), threading.Lock()

    def work() -> None:
        nonlocal inside
        for _ in range(200):
            assert semaphore.acquire(60)
            with counted:
                inside += 1
                counts.append(inside)
            with counted:
                inside -= 1
            semaphore.release()

    run(*[work] * 8)
    assert len(counts) == 8 * 200
    assert max(counts) <= 3
    assert semaphore.acquired == 0


def test_only_threads_that_give_way_take_semaphore_and_only_while_searches_are_expected() -> None:
    now = 100.0
    searches = Searches(lambda: now, 2)
    taken: dict[str, int] = {}

    def note(name: str) -> None:
        with searches.turn():
            taken[name] = searches.turns_taken
            with searches.turn():  # one turn is enough
                assert searches.turns_taken == taken[name]

    def behind() -> None:
        nonlocal now
        give_way()
        assert gives_way()
        note("behind, idle")
        searches.announce()
        note("behind")
        with pytest.raises(KeyError), searches.turn():
            raise KeyError
        assert searches.turns_taken == 0
        now = 102.0
        note("behind, idle again")

    run(behind)
    assert not gives_way()
    searches.announce()
    note("before")
    expected = {"behind, idle": 0, "behind": 1, "behind, idle again": 0, "before": 0}
    assert taken == expected
    assert searches.turns_taken == 0


def test_a_thread_goes_on_without_a_turn_after_the_time_out() -> None:
    """The one who has the turn may wait for a lock that this thread holds."""
    searches, lock = Searches(lambda: 100.0, 2, timeout_seconds=0.01), threading.Lock()
    searches.announce()
    has_lock, has_turn = threading.Event(), threading.Event()

    def holds_the_lock() -> None:
        give_way()
        with lock:
            has_lock.set()
            assert has_turn.wait(60)
            with searches.turn():
                pass

    def holds_the_turn() -> None:
        give_way()
        assert has_lock.wait(60)
        with searches.turn():
            has_turn.set()
            with lock:
                pass

    run(holds_the_lock, holds_the_turn)
    assert searches.turns_taken == 0


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(processors()) < 2,
    reason="a system that binds threads, and two processors",
)
def test_a_processor_is_left_free_while_searches_are_expected() -> None:
    now, every = 100.0, processors()
    searches, found = Searches(lambda: now), list[list[int]]()

    def note() -> None:
        with searches.turn():
            found.append(sorted(os.sched_getaffinity(0)))

    def started_behind() -> None:
        give_way()
        note()

    def behind() -> None:
        nonlocal now
        give_way()
        note()
        searches.announce()
        note()
        now = 102.0
        run(started_behind)
        note()

    run(behind)
    assert found == [every, every[1:], every, every]
    assert processors() == every


class Due(BackgroundTask):
    """A task that has something to do at once."""

    name = "due"

    def is_due(self) -> bool:
        return self.thread is None

    def step(self) -> None:
        pass


def test_a_task_can_be_waited_for_while_another_thread_begins_it() -> None:
    begins, goes_on, original = threading.Event(), threading.Event(), threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == Due.name:
            begins.set()
            assert goes_on.wait(60)
        original(thread)

    task = Due()
    with patch.object(threading.Thread, "start", start):
        beginning = Work(task.start)
        assert begins.wait(60)
        task.join()
        goes_on.set()
        beginning.join()
    assert beginning.error is None
    assert beginning.result is True
    task.stop()
