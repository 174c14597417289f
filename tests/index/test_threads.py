"""Work split over threads."""

import os
import sys
import threading
from collections.abc import Generator

import pytest

from gcws_search.index.threads import Searches, Workers, give_way, read_ahead, work_alone
from tests.support.forks import done_in_fork


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 4, 17])
def test_every_number_is_worked_on_once(threads: int, count: int) -> None:
    done: list[int] = []
    Workers(threads).split(count, lambda first, last: done.extend(range(first, last)))
    assert sorted(done) == list(range(count))


def test_parts_are_no_smaller_than_asked() -> None:
    sizes: list[int] = []
    Workers(4).split(10, lambda first, last: sizes.append(last - first), min_size=4)
    assert len(sizes) == 2


@pytest.mark.parametrize(("count", "parts"), [(2, 1), (4, 2), (16, 2), (24, 3), (64, 8), (1000, 8)])
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

    busy = threading.Thread(target=workers.split, args=(2, hold))
    busy.start()
    assert started.wait(60)
    done: list[int] = []
    workers.split(6, lambda first, last: done.extend(range(first, last)))
    assert sorted(done) == list(range(6))
    release.set()
    busy.join(60)


def test_an_error_in_any_part_reaches_the_caller() -> None:
    def fail(first: int, last: int) -> None:
        if last == 4:
            raise KeyError(first)

    with pytest.raises(KeyError):
        Workers(2).split(4, fail)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priorities")
def test_threads_that_work_behind_others_give_way_and_the_caller_does_not() -> None:
    together = threading.Barrier(2, timeout=60)
    priorities: dict[int, int] = {}

    def note(first: int, last: int) -> None:
        del first, last
        together.wait()  # so that each thread does one part
        priorities[threading.get_ident()] = os.getpriority(
            os.PRIO_PROCESS, threading.get_native_id()
        )

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    Workers(2, behind=True).split(2, note)
    assert priorities.pop(threading.get_ident()) == before
    assert list(priorities.values()) == [before + 5]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priorities")
def test_threads_that_help_one_who_gives_way_do_so_too_and_no_others() -> None:
    workers, before = Workers(2), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def priorities() -> list[int]:
        together = threading.Barrier(2, timeout=60)
        found: list[int] = []

        def note(first: int, last: int) -> None:
            del first, last
            together.wait()  # so that each thread does one part
            found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

        workers.split(2, note)
        return found

    behind: list[int] = []

    def give_way_and_work() -> None:
        give_way()
        behind.extend(priorities())

    loading = threading.Thread(target=give_way_and_work)
    loading.start()
    loading.join(60)
    assert behind == [before + 5] * 2
    assert priorities() == [before] * 2


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

    caller = threading.Thread(target=work)
    caller.start()
    caller.join(60)
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

    caller = threading.Thread(target=work)
    caller.start()
    caller.join(60)
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

    loading = threading.Thread(target=behind)
    loading.start()
    assert began.wait(60)
    parts: list[int] = []
    workers.split(count, lambda first, last: parts.append(last - first), min_size=2)
    done.set()
    loading.join(60)
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

    caller = threading.Thread(target=work)
    caller.start()
    caller.join(60)
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

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
        assert not caller.is_alive()
    assert sum(done) == 4 * 400
    assert searches.turns_taken == 0


def test_pieces_read_ahead_are_those_of_the_generator_and_made_by_another_thread() -> None:
    makers: set[threading.Thread] = set()

    def pieces() -> Generator[int]:
        for piece in range(50):
            makers.add(threading.current_thread())
            yield piece

    assert [*read_ahead(pieces())] == [*range(50)]
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


def test_what_a_generator_raises_comes_out_behind_its_pieces() -> None:
    def pieces() -> Generator[int]:
        yield 1
        raise OSError("no space")

    ahead = read_ahead(pieces())
    assert next(ahead) == 1
    with pytest.raises(OSError, match="no space"):
        next(ahead)


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
