"""Pools, where a search runs, and small writes that wait and are committed together."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable
from concurrent.futures import CancelledError
from typing import Final, cast

import httpx
import pytest

from gcws_search import index as ix
from gcws_search.index import Policies
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.writer import Put
from gcws_search.index.storage.store import Store
from gcws_search.service.errors import QueueFull, Stopping
from gcws_search.service.metrics import Metrics
from gcws_search.service.pools import AwaitedWrites, Pool, Pools
from gcws_search.service.searches import LocalSearches
from gcws_search.service.settings import Settings
from gcws_search.service.startup import Startup
from tests.support.service.client import Client, Json, Serve, count, fill

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
        pool = Pool("joins", threads=1, limit=1)

        def work(stop: threading.Event) -> str:
            assert stop.wait(60)
            if raises:
                raise CancelledError
            return "what was found"

        async def is_left() -> bool:
            return True

        if raises:
            with pytest.raises(Stopping):
                await pool.run_while_awaited(work, is_left)
        else:
            assert await pool.run_while_awaited(work, is_left) == "what was found"
        assert pool.waiting == 0
        pool.close()

    asyncio.run(scenario())


def test_a_call_goes_on_while_another_client_waits_for_the_same() -> None:
    async def scenario() -> None:
        pool, has_left = Pool("analyses", threads=1, limit=2), set[str]()

        def work(stop: threading.Event) -> set[str]:
            assert stop.wait(60)
            return {*has_left}

        def ask(who: str, looks: int) -> Awaitable[set[str]]:
            left = iter([False] * looks)

            async def is_left() -> bool:
                if next(left, True):
                    has_left.add(who)
                return who in has_left

            return pool.run_while_awaited(work, is_left, "a map")

        first, second = await asyncio.gather(ask("first", 0), ask("second", 2))
        assert first == second == {"first", "second"}
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

        async def is_inline(entries: int, kind: str = "a", *, may_block: bool = False) -> bool:
            thread = await searches.run(
                kind, lambda: entries, threading.current_thread, may_block=may_block
            )
            return thread is threading.current_thread()

        assert await is_inline(0, "c")
        assert not await is_inline(0, "d", may_block=True)
        assert [await is_inline(10**12), await is_inline(10**12)] == [False, True]
        await searches.run("a", int, work)
        assert [await is_inline(0), await searches.run("b", int, lambda: 1)] == [False, 1]
        for _ in range(30):
            await is_inline(0)
        assert await is_inline(0)
        workers.close()

    asyncio.run(scenario())


ITEMS_URL: Final = "/v1/collections/plants/items"
SECONDS: Final = 60


class Gate:
    """Stops the first commit until it is opened, and counts the writes of each."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.began, self.may_go_on = threading.Event(), threading.Event()
        self.sizes: list[int] = []
        write = Store.write

        def gated(store: Store, changes: Json, turn: Json) -> None:
            self.sizes.append(len(changes))
            self.began.set()
            assert self.may_go_on.wait(SECONDS)
            write(store, changes, turn)

        patch.setattr(Store, "write", gated)

    async def begin(self, client: Client, url: str = ITEMS_URL) -> "asyncio.Task[httpx.Response]":
        """Send a first write; return once its commit stands still."""
        first = asyncio.create_task(client.http.put(url, json=put("first")))
        assert await asyncio.to_thread(self.began.wait, SECONDS)
        return first


def answers_during_a_commit(
    client: Client, gate: Gate, bodies: list[Json], url: str = ITEMS_URL
) -> list[Json]:
    """Send a first write, then others while it is being committed; return their answers."""
    answers: list[Json] = []

    async def scenario() -> None:
        first = await gate.begin(client, url)
        others = [asyncio.create_task(client.http.put(url, json=body)) for body in bodies]
        await waiting(client, 1 + len(bodies))
        gate.may_go_on.set()
        assert (await first).status_code == 200
        answers.extend(await asyncio.gather(*others))

    client.run(scenario())
    return answers


async def waiting(client: Client, count: int) -> None:
    """Return once so many writes run or wait; nobody announces it."""
    async with asyncio.timeout(SECONDS):
        while client.app.state.service.workers.writes.waiting != count:  # noqa: ASYNC110
            await asyncio.sleep(0)


def put(item_id: str, vector: Json = (1, 2, 3, 4), mode: str = "upsert") -> Json:
    return {"items": [{"id": item_id, "vector": list(vector)}], "mode": mode}


def test_each_of_them_ends_by_itself(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve()
    fill(client, transform={"center": [9, 9, 9, 9]})
    gate = Gate(monkeypatch)
    bodies = [
        put("new"), put("new", mode="insert"), put("short", [1, 2]), put("new", [4, 3, 2, 1]),
        put("nothing", [9, 9, 9, 9]), put("last", mode="insert"),
    ]  # fmt: skip
    answers = answers_during_a_commit(client, gate, bodies)
    assert [answer.status_code for answer in answers] == [200, 409, 422, 200, 422, 200]
    assert answers[3].json() == {"inserted": 0, "updated": 1}
    assert answers[4].json()["errors"][0]["loc"] == ["items", 0, "vector"]
    assert client.get(f"{ITEMS_URL}/new").json()["vector"] == [4, 3, 2, 1]
    assert client.get(f"{ITEMS_URL}/short").status_code == 404


def test_writes_that_come_during_a_commit_share_the_next_one_and_are_hashed_in_one_call(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, hashed, before = Gate(monkeypatch), list[int](), count(client)
    encode = MemoryCollection.encode

    def counting(collection: MemoryCollection, parts: Json) -> Json:
        hashed.append(len(parts))
        return encode(collection, parts)

    monkeypatch.setattr(MemoryCollection, "encode", counting)
    vectors = [[-n, 0, n + 2, 1] for n in range(4)]
    bodies = [put(f"new-{n}", vector) for n, vector in enumerate(vectors)]
    bodies[1]["items"] += put("new-1b", [5, 6, -7, 8])["items"]
    answers = answers_during_a_commit(client, gate, bodies)
    assert [answer.json() for answer in answers] == [
        {"inserted": inserted, "updated": 0} for inserted in (1, 2, 1, 1)
    ]
    assert hashed == gate.sizes == [1, 4]
    assert count(client) == before + 6
    assert client.app.state.service.workers.writes.waiting == 0
    stored = {f"new-{n}": vector for n, vector in enumerate(vectors)} | {"new-1b": [5, 6, -7, 8]}
    for item_id, vector in stored.items():
        body = {"vector": vector, "limit": 1, "with_vector": True}
        [hit] = client.post("/v1/collections/plants/query", json=body).json()["hits"]
        assert (hit["id"], hit["vector"], hit["score"]) == (item_id, vector, 1)


def test_those_who_wait_for_another_turn_are_told_that_the_pool_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(policies=Policies(max_groups=1))
    fill(client)
    gate, pool = Gate(monkeypatch), client.app.state.service.workers.writes

    async def scenario() -> None:
        first = await gate.begin(client)
        others = [
            asyncio.create_task(client.http.put(ITEMS_URL, json=put(f"new-{n}"))) for n in range(3)
        ]
        await waiting(client, 4)
        closing = asyncio.create_task(asyncio.to_thread(pool.close))
        await closed(pool)
        gate.may_go_on.set()
        assert (await first).status_code == 200
        assert {answer.status_code for answer in await asyncio.gather(*others)} == {503}
        await closing

    client.run(scenario())
    assert pool.waiting == 0
    assert client.get(f"{ITEMS_URL}/new-0").status_code == 404


async def closed(pool: Pool) -> None:
    """Return once a pool takes no more calls; nobody announces it."""
    refused = threading.Event()
    async with asyncio.timeout(SECONDS):
        while not refused.is_set():
            pool.submit(asyncio.get_running_loop(), lambda: None, refused.set)
            await asyncio.sleep(0)


def test_those_whose_first_turn_never_comes_are_told_so(client: Client) -> None:
    pool, may_end = Pool("few", threads=1, limit=2), threading.Event()
    client.put("/v1/collections/others", json={"dim": 4})  # nobody has led there yet
    collection = client.app.state.service.collection("others")
    unused: Json = None

    async def scenario() -> None:
        pool.submit(asyncio.get_running_loop(), may_end.wait, lambda: None)
        put = asyncio.create_task(AwaitedWrites(pool).put(collection, unused))
        while not pool.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(pool.close))
        with pytest.raises(Stopping):
            await asyncio.wait_for(put, SECONDS)
        may_end.set()
        await closing

    client.run(scenario())
    assert pool.waiting == 0


def test_a_commit_that_fails_as_a_whole_is_told_to_each(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Put, "plan", failing)
    assert client.put(ITEMS_URL, json=put("a")).status_code == 500
    monkeypatch.undo()
    assert client.put(ITEMS_URL, json=put("a")).status_code == 200


def test_a_write_whose_client_has_gone_is_made_and_gives_its_place_back(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(max_write_queue=2)
    fill(client)
    gate = Gate(monkeypatch)

    async def scenario() -> None:
        first = await gate.begin(client)
        gone = asyncio.create_task(client.http.put(ITEMS_URL, json=put("gone")))
        await waiting(client, 2)
        gone.cancel()
        await asyncio.wait([gone])
        assert (await client.http.put(ITEMS_URL, json=put("third"))).status_code == 429
        gate.may_go_on.set()
        assert (await first).status_code == 200
        await waiting(client, 0)

    client.run(scenario())
    assert client.get(f"{ITEMS_URL}/gone").status_code == 200


def test_collections_do_not_wait_for_each_other(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put("/v1/collections/others", json={"dim": 4})
    gate = Gate(monkeypatch)

    async def scenario() -> None:
        first = await gate.begin(client)
        gate.began.clear()
        other = "/v1/collections/others/items"
        second = asyncio.create_task(client.http.put(other, json=put("second")))
        assert await asyncio.to_thread(gate.began.wait, SECONDS)
        gate.may_go_on.set()
        assert {(await first).status_code, (await second).status_code} == {200}

    client.run(scenario())
    assert gate.sizes == [1, 1]
