"""Pools, and the choice of where a search runs."""

import asyncio
import os
import sys
import threading
import time
from concurrent.futures import CancelledError
from typing import cast

import pytest

from gcws_search import index as ix
from gcws_search.service.errors import QueueFull, Stopping
from gcws_search.service.metrics import Metrics
from gcws_search.service.pools import Pool, Pools
from gcws_search.service.searches import LocalSearches
from gcws_search.service.settings import Settings
from gcws_search.service.startup import Startup

SMALL = Settings(threads=1, max_queue=4, max_write_queue=4, max_loads=1, inline_seconds=0.001)


def test_a_full_pool_refuses_and_frees_its_places() -> None:
    async def scenario() -> None:
        pool = Pool("searches", threads=1, limit=2)
        go_on = threading.Event()
        waiting = [asyncio.create_task(pool.run(go_on.wait, 60)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull, match="2 searches"):
            await pool.run(int)
        go_on.set()
        assert await asyncio.gather(*waiting) == [True, True]
        assert await pool.run(int) == 0
        assert pool.waiting == 0
        pool.close()

    asyncio.run(scenario())


def test_a_call_given_up_keeps_its_place_until_its_thread_is_done() -> None:
    async def scenario() -> None:
        pool = Pool("writes", threads=1, limit=1)
        began, go_on = threading.Event(), threading.Event()

        def work() -> None:
            began.set()
            go_on.wait(60)

        task = asyncio.create_task(pool.run(work))
        await asyncio.to_thread(began.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(QueueFull):
            await pool.run(int)
        go_on.set()
        await asyncio.to_thread(pool.close)
        async with asyncio.timeout(60):  # the loop hears of the thread's end some turns later
            while pool.waiting:  # noqa: ASYNC110  # no event tells of it
                await asyncio.sleep(0.001)

    asyncio.run(scenario())


@pytest.mark.parametrize("raises", [False, True])
def test_a_call_is_told_to_stop_once_its_client_has_left(raises: bool) -> None:
    async def scenario() -> None:
        pool, stop = Pool("joins", threads=1, limit=1), threading.Event()

        def work() -> str:
            assert stop.wait(60)
            if raises:
                raise CancelledError
            return "what was found"

        async def is_left() -> bool:
            return True

        if raises:
            with pytest.raises(Stopping):
                await pool.run_while_awaited(work, stop, is_left)
        else:
            assert await pool.run_while_awaited(work, stop, is_left) == "what was found"
        assert pool.waiting == 0
        pool.close()

    asyncio.run(scenario())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priorities")
def test_a_pools_threads_have_the_pools_priority_whoever_submits() -> None:
    """A load hands the lead of a group of writes on, from a thread that gives way."""
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    found: list[int] = []

    async def scenario() -> None:
        loop, ended, pool = (
            asyncio.get_running_loop(),
            asyncio.Event(),
            Pool("writes", threads=1, limit=1),
        )

        def note() -> None:
            found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            loop.call_soon_threadsafe(ended.set)

        def load() -> None:
            ix.give_way()
            pool.submit(loop, note, lambda: None)

        threading.Thread(target=load).start()
        await asyncio.wait_for(ended.wait(), 60)
        pool.close()

    asyncio.run(scenario())
    assert found == [before]


def test_what_a_load_submits_after_the_end_is_dropped() -> None:
    loop, pool, dropped = asyncio.new_event_loop(), Pool("writes", threads=1, limit=1), list[bool]()
    loop.close()

    def load() -> None:
        ix.give_way()
        pool.submit(loop, lambda: None, lambda: dropped.append(True))

    loading = threading.Thread(target=load)
    loading.start()
    loading.join(60)
    assert dropped == [True]
    pool.close()


def test_where_a_search_runs_follows_what_those_of_its_kind_took() -> None:
    def work() -> None:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass

    async def scenario() -> None:
        workers = Pools(SMALL)
        searches = LocalSearches(workers, Startup(cast("ix.Catalog", None)), Metrics(), SMALL)

        async def is_inline(entries: int) -> bool:
            thread = await searches.run("a", lambda: entries, threading.current_thread)
            return thread is threading.current_thread()

        assert [await is_inline(10**12), await is_inline(10**12)] == [False, True]
        await searches.run("a", int, work)
        assert [await is_inline(0), await searches.run("b", int, lambda: 1)] == [False, 1]
        for _ in range(30):
            await is_inline(0)
        assert await is_inline(0)
        workers.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("entries", "may_block", "inline"), [(0, False, True), (0, True, False), (10**12, False, False)]
)
def test_short_searches_run_on_the_loop_and_long_ones_do_not(
    entries: int, may_block: bool, inline: bool
) -> None:
    async def scenario() -> None:
        workers = Pools(SMALL)
        searches = LocalSearches(workers, Startup(cast("ix.Catalog", None)), Metrics(), SMALL)
        thread = await searches.run(
            "a", lambda: entries, threading.current_thread, may_block=may_block
        )
        assert (thread is threading.current_thread()) == inline
        workers.close()

    asyncio.run(scenario())
