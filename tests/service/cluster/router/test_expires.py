"""Items of a cluster that expire: hidden by all shards from one instant on, deleted by the log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gcws_search import index as ix
from tests.model.shelf import lines
from tests.support.index.policies import FEW_ROWS
from tests.support.service.bodies import NDJSON
from tests.support.service.client import Client, Json, Serve, assert_problem
from tests.support.service.http_shards import http_shards, router
from tests.support.waiting import wait_until

URL = "/v1/collections/things"
ITEMS = f"{URL}/items"


class Clock:
    """The database's clock, as far as routers and shards know, in whole seconds since 1970."""

    def __init__(self) -> None:
        self.now = 1_900_000_000

    def __call__(self) -> float:
        return float(self.now)

    def after(self, seconds: int) -> str:
        """Return a time as items show it."""
        shown = ix.expiry_text(1000 * (self.now + seconds))
        assert shown is not None
        return shown


@pytest.fixture
def clock() -> Clock:
    return Clock()


def set_clock(client: Client, clock: Clock) -> None:
    client.app.state.service.collection("things").database.clock = clock


def item(item_id: str, number: float, **more: Any) -> Json:  # noqa: ANN401
    return {"id": item_id, "vector": [number, 1, -2], "payload": {"n": number}, **more}


def put(client: Client, *items: Json, **more: Json) -> Any:  # noqa: ANN401
    return client.put(ITEMS, json={"items": items, **more})


def shown(client: Client) -> dict[str, tuple[str | None, int]]:
    """Return when each item expires, and its version, after all ways to read agree."""
    items = client.get(f"{ITEMS}?limit=100&with_vector=true").json()["items"]
    ids = {each["id"] for each in items}
    plain = client.get(f"{ITEMS}?limit=100").json()["items"]
    assert [each["id"] for each in plain] == [each["id"] for each in items]
    for each in items[:3]:
        assert client.get(f"{ITEMS}/{each['id']}").json() == each
    every = {"must": [{"key": "n", "range": {"gt": 0}}]}
    assert client.get(URL).json()["items"] == len(ids)
    [listed] = client.get("/v1/collections").json()["collections"]
    assert listed["items"] == len(ids)
    for body in ({}, {"filter": every}):
        assert client.post(f"{URL}/count", json=body).json()["count"] == len(ids)
    for more in ({}, {"filter": every}):
        query = {"vector": [1, 1, -2], "limit": 99, "recall": 1, **more}
        hits = client.post(f"{URL}/query", json=query).json()["hits"]
        assert {hit["id"] for hit in hits} == ids
    [batch] = client.post(f"{URL}/query/batch", json={"queries": [query]}).json()["results"]
    assert batch["hits"] == hits
    pairs = client.post(f"{URL}/pairs", json={"min_score": 0.01, "recall": 1}).text.splitlines()
    assert len(pairs) == len(ids) * (len(ids) - 1) // 2
    groups = client.post(f"{URL}/groups", json={"min_score": 0.01, "recall": 1})
    assert groups.text.count('"id"') == len(ids) * (len(ids) > 1)
    joined = client.post(
        f"{URL}/join?min_score=0.01", content=lines([{"vector": [1, 1, -2]}]), headers=NDJSON
    )
    assert joined.text.count('"to"') == len(ids)
    return {each["id"]: (each.get("expires"), each["version"]) for each in items}


def stored_ids(client: Client) -> set[str]:
    """Return the ids of the rows that the database has, expired or not."""
    collection = client.app.state.service.collection("things")
    with collection.database.connections.use() as connection:
        names = connection.column(f"SELECT id FROM items_{collection.number}")
    return {name.decode() for name in names}


def test_items_are_those_of_a_dictionary_as_time_passes(
    serve: Serve, rng: np.random.Generator, clock: Clock
) -> None:
    client = serve(policies=FEW_ROWS)
    assert client.put(URL, json={"dim": 3}).status_code == 201
    set_clock(client, clock)
    model: dict[str, tuple[str | None, int]] = {}
    expired = 0
    for turn in range(60):
        ids = [f"i{n}" for n in rng.choice(12, int(rng.integers(1, 5)), replace=False).tolist()]
        there = [each for each in ids if each in model]
        match int(rng.integers(5)):
            case 0 | 1:
                lives = [[None, 2, 5, 50][int(rng.integers(4))] for _ in ids]
                items = [
                    item(each, turn + 1, expires=life)
                    for each, life in zip(ids, lives, strict=True)
                ]
                answer = put(client, *items).json()
                assert answer == {"inserted": len(ids) - len(there), "updated": len(there)}
                for each, life in zip(ids, lives, strict=True):
                    at = None if life is None else clock.after(life)
                    model[each] = at, model.get(each, ("", 0))[1] + 1
            case 2:
                for each in ids:
                    body = {"payload": {"m": turn}, "merge": True}
                    status = client.request("PATCH", f"{ITEMS}/{each}", json=body).status_code
                    assert status == (200 if each in model else 404)
                model |= {each: (model[each][0], model[each][1] + 1) for each in there}
            case 3:
                deleted = client.post(f"{ITEMS}/delete", json={"ids": ids}).json()["deleted"]
                assert deleted == len(there)
                model = {each: life for each, life in model.items() if each not in there}
            case 4:
                wanted = [model.get(each, ("", 0))[1] for each in ids]
                pairs = zip(ids, wanted, strict=True)
                items = [item(each, turn + 1, if_version=version) for each, version in pairs]
                assert put(client, *items).status_code == 200
                model |= {each: (None, n + 1) for each, n in zip(ids, wanted, strict=True)}
        clock.now += int(rng.integers(3))
        before, now = len(model), clock.after(0)
        model = {each: life for each, life in model.items() if life[0] is None or life[0] > now}
        expired += before - len(model)
        assert shown(client) == model, turn
        if turn % 20 == 19:
            client = serve(policies=FEW_ROWS)
            set_clock(client, clock)
            assert shown(client) == model
    assert expired > 10


def test_what_has_expired_is_deleted_by_the_next_write_or_in_the_background(
    serve: Serve, clock: Clock
) -> None:
    client = serve()
    assert client.put(URL, json={"dim": 3, "ttl": 30}).status_code == 201
    set_clock(client, clock)
    put(client, item("a", 1), item("b", 2, expires=10), item("c", 3, expires=clock.after(99)))
    assert shown(client) == {
        "a": (clock.after(30), 1), "b": (clock.after(10), 1), "c": (clock.after(99), 1),
    }  # fmt: skip
    clock.now += 10
    assert {*shown(client)} == {"a", "c"}
    put(client, item("d", 9))
    assert "b" not in stored_ids(client)
    clock.now += 30
    wait_until(lambda: stored_ids(client) == {"c"})
    assert {*shown(client)} == {"c"}
    assert_problem(client.post(f"{URL}/query", json={"id": "a"}), 404, "item_not_found")
    clock.now += 59
    unless = {"mode": "unless_similar", "min_score": 0.99, "recall": 1}
    assert put(client, item("e", 3), **unless).json()["inserted"] == 1
    client.finish_background_work("things")
    assert {*shown(client)} == {"e"}
    answer = put(client, item("f", 7, expires=clock.after(-9)), item("g", 7), **unless).json()
    assert (answer["inserted"], answer["similar"]) == (2, [])
    assert {*shown(client)} == {"e", "g"}


def test_snapshots_have_the_times(serve: Serve, clock: Clock) -> None:
    client = serve()
    assert client.put(URL, json={"dim": 3, "ttl": 3600}).status_code == 201
    set_clock(client, clock)
    put(client, item("a", 1), item("b", 2, expires=10**8))
    before = shown(client)
    name = client.post(f"{URL}/snapshots").json()["name"]
    put(client, item("a", 3), item("b", 4))
    answer = client.post(f"{URL}/snapshots/{name}/restore?replace=true")
    assert answer.status_code == 200, answer.text
    assert shown(client) == before


@pytest.fixture
def routers(database_url: str, tmp_path: Path) -> Iterator[list[Client]]:
    with (
        http_shards(database_url, tmp_path / "shards", 2, 2),
        router(database_url, tmp_path / "one", 2, 2) as one,
        router(database_url, tmp_path / "two", 2, 2) as two,
    ):
        yield [one, two]


def test_two_routers_hide_an_item_at_the_same_instant(routers: list[Client], clock: Clock) -> None:
    one, two = routers
    assert one.put(URL, json={"dim": 3}).status_code == 201
    wait_until(lambda: two.get(URL).status_code == 200)
    for each in routers:
        set_clock(each, clock)
    put(one, *(item(f"i{n}", n + 1, expires=10) for n in range(8)), item("stays", 2))
    strict = {"vector": [1, 1, -2], "limit": 99, "recall": 1, "consistency": "strict"}
    clock.now += 9
    assert len(two.post(f"{URL}/query", json=strict).json()["hits"]) == 9
    clock.now += 1
    for each in routers:
        assert [h["id"] for h in each.post(f"{URL}/query", json=strict).json()["hits"]] == ["stays"]
    assert put(two, item("i3", 9), mode="insert").json() == {"inserted": 1, "updated": 0}
    wait_until(lambda: stored_ids(one) == {"i3", "stays"})
    for each in routers:
        assert {*shown(each)} == {"i3", "stays"}
