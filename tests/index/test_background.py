"""Threads in the background: semaphore, processors."""

import os
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.batches import RawBatch
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.threads import FairSemaphore, Searches, give_way, gives_way, processors


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


def run(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_places_are_given_in_the_order_of_coming() -> None:
    semaphore, order = FairSemaphore(1), list[int]()
    assert semaphore.acquire(0)
    waiting = []
    for number in range(5):

        def wait(number: int = number) -> None:
            assert semaphore.acquire(60)
            order.append(number)
            semaphore.release()

        waiting.append(threading.Thread(target=wait))
        waiting[-1].start()
        while semaphore.waiting <= number:
            time.sleep(0.001)
    semaphore.release()
    for thread in waiting:
        thread.join(60)
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

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
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
        now = 102.0
        note("behind, idle again")

    run(behind)
    assert not gives_way()
    searches.announce()
    note("before")
    expected = {"behind, idle": 0, "behind": 1, "behind, idle again": 0, "before": 0}
    assert taken == expected
    assert searches.turns_taken == 0


def test_a_turn_ends_with_an_error() -> None:
    searches = Searches(lambda: 100.0, 2)
    searches.announce()

    def behind() -> None:
        give_way()
        with pytest.raises(KeyError), searches.turn():
            raise KeyError

    run(behind)
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

    threads = [threading.Thread(target=each) for each in (holds_the_lock, holds_the_turn)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
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
