"""Small writes that wait are committed together, and each ends by itself."""

import asyncio
import threading
from typing import Final

import pytest

from index import StoredCollection
from tests.served import Client, Json, Serve, count, fill

_ITEMS: Final = "/v1/collections/plants/items"
SECONDS: Final = 60


class Gate:
    """Stops the first commit until it is opened, and counts the writes of each.

    Parameters
    ----------
    patch : MonkeyPatch
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.began, self.may_go_on = threading.Event(), threading.Event()
        self.sizes: list[int] = []
        commit_all = StoredCollection.commit_all

        def gated(collection: StoredCollection, writes: Json) -> Json:
            self.sizes.append(len(writes))
            self.began.set()
            assert self.may_go_on.wait(SECONDS)
            return commit_all(collection, writes)

        patch.setattr(StoredCollection, "commit_all", gated)


def answers_during_a_commit(client: Client, gate: Gate, bodies: list[Json]) -> list[Json]:
    """Send a first write, then others while it is being committed; return their answers."""
    answers: list[Json] = []

    async def scenario() -> None:
        first = asyncio.create_task(client.http.put(_ITEMS, json=put("first")))
        assert await asyncio.to_thread(gate.began.wait, SECONDS)
        others = [asyncio.create_task(client.http.put(_ITEMS, json=body)) for body in bodies]
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


def test_a_commit_that_fails_as_a_whole_is_told_to_each(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(StoredCollection, "commit_all", failing)
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
