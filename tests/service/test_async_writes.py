"""Small writes that wait are committed together, and each ends by itself."""

import asyncio
import threading
from typing import Final

import pytest

from gcws_search.index import Policies
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.writer import Put
from gcws_search.index.storage.store import Store
from gcws_search.service.errors import Stopping
from gcws_search.service.pools import AwaitedPuts, Pool
from tests.support.service.client import Client, Json, Serve, count, fill

_ITEMS: Final = "/v1/collections/plants/items"
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


def answers_during_a_commit(
    client: Client, gate: Gate, bodies: list[Json], url: str = _ITEMS
) -> list[Json]:
    """Send a first write, then others while it is being committed; return their answers."""
    answers: list[Json] = []

    async def scenario() -> None:
        first = asyncio.create_task(client.http.put(url, json=put("first")))
        assert await asyncio.to_thread(gate.began.wait, SECONDS)
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


def test_writes_that_come_during_a_commit_share_the_next_one(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, before = Gate(monkeypatch), count(client)
    bodies = [put(f"new-{number}") for number in range(5)]
    answers = answers_during_a_commit(client, gate, bodies)
    assert [answer.json() for answer in answers] == 5 * [{"inserted": 1, "updated": 0}]
    assert gate.sizes == [1, 5]
    assert count(client) == before + 6
    assert client.app.state.service.workers.writes.waiting == 0


def test_each_of_them_ends_by_itself(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    bodies = [
        put("new"), put("new", mode="insert"), put("short", [1, 2]), put("new", [4, 3, 2, 1]),
        put("zero", [0, 0, 0, 0]), put("last", mode="insert"),
    ]  # fmt: skip
    answers = answers_during_a_commit(client, gate, bodies)
    assert [answer.status_code for answer in answers] == [200, 409, 422, 200, 422, 200]
    assert answers[3].json() == {"inserted": 0, "updated": 1}
    assert client.get(f"{_ITEMS}/new").json()["vector"] == [4, 3, 2, 1]
    assert client.get(f"{_ITEMS}/short").status_code == 404


def test_the_vectors_of_one_commit_are_hashed_in_one_call(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, hashed = Gate(monkeypatch), list[int]()
    encode = MemoryCollection.encode

    def counting(collection: MemoryCollection, parts: Json) -> Json:
        hashed.append(len(parts))
        return encode(collection, parts)

    monkeypatch.setattr(MemoryCollection, "encode", counting)
    vectors = [[-n, 0, n + 2, 1] for n in range(4)]
    bodies = [put(f"new-{n}", vector) for n, vector in enumerate(vectors)]
    bodies[1]["items"] += put("new-1b", [5, 6, -7, 8])["items"]
    answers = answers_during_a_commit(client, gate, bodies)
    assert [answer.json()["inserted"] for answer in answers] == [1, 2, 1, 1]
    assert hashed == [1, 4]
    for item_id, vector in [
        *((f"new-{n}", v) for n, v in enumerate(vectors)),
        ("new-1b", [5, 6, -7, 8]),
    ]:
        body = {"vector": vector, "limit": 1, "with_vector": True}
        [hit] = client.post("/v1/collections/plants/query", json=body).json()["hits"]
        assert (hit["id"], hit["vector"], hit["score"]) == (item_id, vector, 1)


def test_a_vector_of_which_the_transform_leaves_nothing_is_refused_alone(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    transform = {"center": [1, 1, 1, 1]}
    client.put("/v1/collections/others", json={"dim": 4, "transform": transform})
    gate = Gate(monkeypatch)
    bodies = [put("a"), put("nothing", [1, 1, 1, 1]), put("b")]
    answers = answers_during_a_commit(client, gate, bodies, "/v1/collections/others/items")
    assert [answer.status_code for answer in answers] == [200, 422, 200]
    assert answers[1].json()["errors"][0]["loc"] == ["items", 0, "vector"]


def test_those_who_wait_for_another_turn_are_told_that_the_pool_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(policies=Policies(max_groups=1))
    fill(client)
    gate, pool = Gate(monkeypatch), client.app.state.service.workers.writes

    async def scenario() -> None:
        first = asyncio.create_task(client.http.put(_ITEMS, json=put("first")))
        assert await asyncio.to_thread(gate.began.wait, SECONDS)
        others = [
            asyncio.create_task(client.http.put(_ITEMS, json=put(f"new-{n}"))) for n in range(3)
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
    assert client.get(f"{_ITEMS}/new-0").status_code == 404


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
        put = asyncio.create_task(AwaitedPuts(pool).put(collection, unused, "upsert"))
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
    assert client.put(_ITEMS, json=put("a")).status_code == 500
    monkeypatch.undo()
    assert client.put(_ITEMS, json=put("a")).status_code == 200


def test_a_write_whose_client_has_gone_is_made_and_gives_its_place_back(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(max_write_queue=2)
    fill(client)
    gate = Gate(monkeypatch)

    async def scenario() -> None:
        first = asyncio.create_task(client.http.put(_ITEMS, json=put("first")))
        assert await asyncio.to_thread(gate.began.wait, SECONDS)
        gone = asyncio.create_task(client.http.put(_ITEMS, json=put("gone")))
        await waiting(client, 2)
        gone.cancel()
        await asyncio.wait([gone])
        assert (await client.http.put(_ITEMS, json=put("third"))).status_code == 429
        gate.may_go_on.set()
        assert (await first).status_code == 200
        await waiting(client, 0)

    client.run(scenario())
    assert client.get(f"{_ITEMS}/gone").status_code == 200


def test_collections_do_not_wait_for_each_other(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put("/v1/collections/others", json={"dim": 4})
    gate = Gate(monkeypatch)

    async def scenario() -> None:
        first = asyncio.create_task(client.http.put(_ITEMS, json=put("first")))
        assert await asyncio.to_thread(gate.began.wait, SECONDS)
        gate.began.clear()
        other = "/v1/collections/others/items"
        second = asyncio.create_task(client.http.put(other, json=put("second")))
        assert await asyncio.to_thread(gate.began.wait, SECONDS)
        gate.may_go_on.set()
        assert {(await first).status_code, (await second).status_code} == {200}

    client.run(scenario())
    assert gate.sizes == [1, 1]
