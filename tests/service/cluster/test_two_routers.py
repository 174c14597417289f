"""What one router changes, as another one sees it, and what is seen while a shard is missing."""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from gcws_search.index import CoordinateNames, NamedCoordinate
from gcws_search.service.cluster.database import Database
from gcws_search.service.errors import StoreUnavailable
from tests.support.service.client import Client, assert_problem
from tests.support.service.http_shards import Fault, HttpShard, http_shards, router
from tests.support.service.shards import BUCKETS
from tests.support.waiting import wait_until

PLANTS = "/v1/collections/plants"
Shards = list[list[HttpShard]]


@pytest.fixture
def shards(database_url: str, tmp_path: Path) -> Iterator[Shards]:
    with http_shards(database_url, tmp_path / "shards", 2, 1) as running:
        yield running


@pytest.fixture
def client(shards: Shards, database_url: str, tmp_path: Path) -> Iterator[Client]:
    del shards  # they answer it
    with router(database_url, tmp_path / "one", 2, 1) as client:
        yield client


@pytest.fixture
def other(client: Client, database_url: str, tmp_path: Path) -> Iterator[Client]:
    """Return a client of another router, started after the first one."""
    del client
    with router(database_url, tmp_path / "two", 2, 1) as other:
        yield other


def by_names(*names: str, strict: bool) -> dict[str, object]:
    vector = {"names": names, "values": [1.0] * len(names)}
    return {"vector": vector, "consistency": "strict" if strict else "session"}


def put_plants(client: Client, count: int) -> None:
    assert client.put(PLANTS, json={"dim": 2}).status_code == 201
    items = [{"id": str(number), "vector": [1, number + 1]} for number in range(count)]
    assert client.put(f"{PLANTS}/items", json={"items": items}).status_code == 200


def stored(client: Client) -> bool:
    """Return whether the database has items of the collection."""
    return bool(client.get(f"{PLANTS}/items").json().get("items"))


# Names


def test_strict_queries_know_the_names_that_another_router_stored(
    client: Client, other: Client
) -> None:
    def put(by: Client, item_id: str, *names: str) -> None:
        item = {"id": item_id, "vector": by_names(*names, strict=True)["vector"]}
        assert by.put(f"{PLANTS}/items", json={"items": [item]}).status_code == 200

    assert client.put(PLANTS, json={"dim": None}).status_code == 201
    put(client, "a", "u", "v")
    assert other.get(PLANTS).status_code == 200
    put(other, "c", "u", "w")
    query = by_names("u", "w", strict=True)
    for path, body in (("query", query), ("query/batch", {"queries": [query]})):
        answer = client.post(f"{PLANTS}/{path}", json=body).json()
        hits = answer["hits"] if path == "query" else answer["results"][0]["hits"]
        assert (hits[0]["id"], hits[0]["score"]) == ("c", 1.0)


def test_names_that_are_known_are_not_read_again(
    client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, follow = list[list[str]](), CoordinateNames.follow

    def watched(names: CoordinateNames, stored: Sequence[NamedCoordinate], freed: int) -> None:
        read.append([name for _, name in stored])
        follow(names, stored, freed)

    def put(by: Client, *names: str) -> None:
        item = {"id": names[0], "vector": by_names(*names, strict=True)["vector"]}
        assert by.put(f"{PLANTS}/items", json={"items": [item]}).status_code == 200

    def reserve(by: Client, name: str) -> None:
        vector = by_names(name, strict=True)["vector"]
        unstored = {"items": [{"id": "u", "vector": vector, "if_version": 7}]}
        assert by.put(f"{PLANTS}/items", json=unstored).status_code == 409

    assert client.put(PLANTS, json={"dim": None}).status_code == 201
    put(client, "a", "b")
    assert other.get(PLANTS).status_code == 200
    monkeypatch.setattr(CoordinateNames, "follow", watched)
    put(other, "c")
    wait_until(lambda: sum("c" in names for names in read) == 2)  # by both
    read.clear()
    reserve(other, "d")
    put(other, "e")
    wait_until(lambda: ["e"] in read)
    put(other, "d")
    wait_until(lambda: ["d", "e"] in read)
    query = by_names("a", "b", "c", "d", "e", strict=True)
    for by in (client, other):
        assert len(by.post(f"{PLANTS}/query", json=query).json()["hits"]) == 4
    assert not [names for names in read if {"a", "b", "c"} & {*names}]


def test_names_that_another_router_sets_are_known(client: Client, other: Client) -> None:
    put_plants(client, 3)
    assert other.post(f"{PLANTS}/query", json={"vector": [1, 1]}).status_code == 200
    assert client.put(f"{PLANTS}/names", json={"names": ["leaf", "root"]}).status_code == 200
    answer = other.post(f"{PLANTS}/query", json=by_names("leaf", "root", strict=True))
    assert answer.json()["hits"][0]["id"] == "0"

    names = ["root", "leaf"]
    assert client.put(f"{PLANTS}/names", json={"names": names}).status_code == 200
    query = {"vector": {"names": ["leaf"], "values": [1.0]}, "limit": 1}

    def answer_of(by: Client) -> object:
        return by.post(f"{PLANTS}/query", json=query).json()["hits"]

    wait_until(lambda: answer_of(other) == answer_of(client))


def test_names_of_the_first_change_are_known_to_routers_that_read_names_before_it(
    client: Client, other: Client
) -> None:
    query = by_names("a", "b", strict=True)
    assert client.put(PLANTS, json={"dim": None}).status_code == 201
    assert other.post(f"{PLANTS}/query", json=query).json()["hits"] == []
    item = {"id": "x", "vector": query["vector"]}
    assert client.put(f"{PLANTS}/items", json={"items": [item]}).status_code == 200
    [hit] = other.post(f"{PLANTS}/query", json=query).json()["hits"]
    assert (hit["id"], hit["score"]) == ("x", 1.0)

    assert client.delete(PLANTS).status_code == 204
    assert client.put(PLANTS, json={"dim": 2}).status_code == 201
    assert client.post(f"{PLANTS}/query", json=query).status_code == 422
    assert client.put(f"{PLANTS}/names", json={"names": ["a", "b"]}).status_code == 200
    assert client.put(f"{PLANTS}/items", json={"items": [item]}).status_code == 200


# Collections


@pytest.mark.parametrize("dim", [2, None])
def test_a_collection_that_another_router_has_just_replaced_is_loading(
    client: Client, other: Client, dim: int | None
) -> None:
    """And not gone: who hears that it is not there may make another one, or give up."""
    sparse = {"indices": [0, 1], "values": [1, 1]}
    items = [{"id": str(number), "vector": sparse} for number in range(3)]
    assert client.put(PLANTS, json={"dim": dim}).status_code == 201
    assert client.put(f"{PLANTS}/items", json={"items": items}).status_code == 200
    snapshot = client.post(f"{PLANTS}/snapshots").json()["name"]
    named = {"id": "0", "vector": {"names": ["leaf"]}}
    asked: list[tuple[str, str, Any]] = [
        ("PUT", "/items", {"items": [items[0] if dim else named]}),
        ("POST", "/query", {"vector": sparse, "consistency": "strict"}),
        ("POST", "/transform/fit", {"weights": [1.0, 2.0] if dim else "max"}),
        ("POST", "/backends", {"kind": "exact"}),
        ("PATCH", "", {"metadata": {"of": "plants"}}),
        ("GET", "", None),
        ("POST", "/snapshots", None),
        ("PUT", "/names", {"names": ["leaf", "root"]}),
        ("POST", "/items/delete", {"ids": ["1"]}),
        ("GET", "/items", None),
        ("GET", "/items/2", None),
    ]
    assert other.get(f"{PLANTS}/items/2").status_code == 200
    restored = client.post(f"{PLANTS}/snapshots/{snapshot}/restore?replace=true")
    assert restored.status_code == 200
    for method, path, body in asked:
        answer = other.request(method, f"{PLANTS}{path}", json=body)
        if answer.status_code not in (200, 201, 422):  # 422: an open space has no such thing
            assert_problem(answer, 503, "loading")  # its list of collections is older
    wait_until(lambda: other.get(f"{PLANTS}/items/2").status_code == 200)


def test_of_two_routers_that_restore_a_collection_at_once_one_does(
    client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_plants(client, 3)
    create, both = Database.create, Barrier(2)

    def create_together(*given: Any) -> Any:  # noqa: ANN401
        with suppress(BrokenBarrierError):
            both.wait(60)
        return create(*given)

    def restore(each: Client, snapshot: str) -> Any:  # noqa: ANN401
        answer = each.post(f"{PLANTS}/snapshots/{snapshot}/restore?replace=true")
        both.abort()
        return answer

    routers = client, other
    snapshots = [each.post(f"{PLANTS}/snapshots").json()["name"] for each in routers]
    monkeypatch.setattr(Database, "create", create_together)
    with ThreadPoolExecutor(2) as pool:
        answers = sorted(pool.map(restore, routers, snapshots), key=lambda each: each.status_code)
    assert answers[0].status_code == 200, answers[0].text
    assert_problem(answers[1], 409, "collection_busy", "another router")
    for each in routers:
        wait_until(partial(stored, each))


def test_a_collection_stays_where_it_is_not_known_whether_it_was_restored(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was, and the database was lost before it said so."""
    put_plants(client, 3)
    snapshot = client.post(f"{PLANTS}/snapshots").json()["name"]
    rename = Database.rename

    def rename_in_doubt(*given: Any) -> None:  # noqa: ANN401
        rename(*given)
        raise StoreUnavailable("its answer was lost")

    with monkeypatch.context() as patched:
        patched.setattr(Database, "rename", rename_in_doubt)
        answer = client.post(f"{PLANTS}/snapshots/{snapshot}/restore?replace=true")
    assert_problem(answer, 503, "store_unavailable")
    wait_until(partial(stored, client))


def test_an_item_that_changes_while_a_page_is_read_is_on_the_next_one(
    client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_plants(client, 3)
    read = Database.rows_by_key

    def change_and_read(*given: Any) -> Any:  # noqa: ANN401
        monkeypatch.undo()
        body = {"ids": ["1"], "payload": {"seen": True}}
        assert other.request("PATCH", f"{PLANTS}/items", json=body).status_code == 200
        return read(*given)

    monkeypatch.setattr(Database, "rows_by_key", change_and_read)
    asked, seen = {"filter": '{"must_not": []}'}, list[str]()
    while True:
        page = client.get(f"{PLANTS}/items", params=asked).json()
        seen += [each["id"] for each in page["items"]]
        if page["next_cursor"] is None:
            break
        asked["cursor"] = page["next_cursor"]
    assert seen == ["0", "2", "1"]


def test_a_collection_that_another_router_dropped_is_not_found(
    client: Client, other: Client
) -> None:
    put_plants(client, 3)
    assert other.post(f"{PLANTS}/query", json={"vector": [1, 1]}).status_code == 200
    assert client.delete(PLANTS).status_code == 204

    def is_dropped() -> bool:  # shards that have not heard of it answer still
        answer = other.post(f"{PLANTS}/query", json={"vector": [1, 1]})
        assert answer.status_code in (200, 404), answer.text
        return answer.status_code == 404

    wait_until(is_dropped)
    item = {"id": "1", "vector": [1, 1]}
    for answer in (
        other.post(f"{PLANTS}/query", json={"vector": [1, 1]}),
        other.post(f"{PLANTS}/count", json={}),
        other.put(f"{PLANTS}/items", json={"items": [item]}),
        other.get(f"{PLANTS}/items/1"),
        other.get(PLANTS),
    ):
        assert_problem(answer, 404, "collection_not_found", "plants")


def test_collections_are_listed_while_a_shard_is_missing(client: Client, shards: Shards) -> None:
    put_plants(client, 20)
    profile = client.post(f"{PLANTS}/profile", json={"sample": 10}).json()
    assert (profile["items"], profile["sample"]) == (20, 10)
    for missing in (shards[1], shards[0] + shards[1]):
        for replica in missing:
            replica.app.fault = Fault.BROKEN
        [listed] = client.get("/v1/collections").json()["collections"]
        assert (listed["name"], listed["items"]) == ("plants", 20)


def test_nothing_is_created_while_a_shard_is_missing(client: Client, shards: Shards) -> None:
    shards[1][0].app.fault = Fault.BROKEN
    assert_problem(client.put(PLANTS, json={"dim": 2}), 503, "shard_unavailable")
    shards[1][0].app.fault = None
    assert client.get(PLANTS).status_code == 404
    assert client.put(PLANTS, json={"dim": 2}).status_code == 201


# Replicas


def test_two_processes_in_the_place_of_one_replica_are_told_of(
    database_url: str, shards: Shards, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    del shards
    caplog.set_level(logging.ERROR)
    with closing(Database.open(database_url, buckets=BUCKETS)) as database:
        second = HttpShard(database, tmp_path / "second", 0, 2, 0)
        second.start()
        try:
            wait_until(lambda: "that it is replica 0 of shard 0 as well" in caplog.text)
        finally:
            second.stop()


# Items that are stored unless one is like them


def unlike(item_id: str, vector: list[float]) -> dict[str, object]:
    """Return the body of a write of an item that is stored unless one is like it."""
    items = [{"id": item_id, "vector": vector}]
    return {"items": items, "mode": "unless_similar", "min_score": 0.9, "recall": 1}


def test_copies_sent_through_two_routers_at_once_are_stored_once(
    client: Client, other: Client
) -> None:
    """Eight at once, beside a write that takes away what they are like."""
    assert client.put(PLANTS, json={"dim": 3}).status_code == 201
    with ThreadPoolExecutor(2) as pool:
        for turn in range(16):
            vector = [1, -2, 4.0**turn]
            if turn % 2:
                items = [{"id": "like", "vector": vector}]
                assert client.put(f"{PLANTS}/items", json={"items": items}).status_code == 200
            bodies = [unlike(f"{turn}-{sender}", vector) for sender in range(8)]
            moved: dict[str, Any] = {"items": [{"id": "like", "vector": [0, 1, -turn]}]}

            def send(half: int, bodies: list[Any] = bodies, moved: Any = moved) -> list[Any]:  # noqa: ANN401
                own = [*bodies[half::2], moved][: 5 - half]
                asked = [(f"{PLANTS}/items", body) for body in own]
                return (client, other)[half].at_once("PUT", asked)[:4]

            told = [answer.json() for half in pool.map(send, range(2)) for answer in half]
            winners = [body for body in told if body["inserted"]]
            assert len(winners) == 1 or (turn % 2 and not winners), told
            query = {"vector": vector, "min_score": 1, "recall": 1}
            hits = other.post(f"{PLANTS}/query", json=query | {"consistency": "strict"}).json()[
                "hits"
            ]
            stored = [hit["id"] for hit in hits]
            assert len(stored) == len(winners)
            for body in told:
                if not body["inserted"]:
                    [left_out] = body["similar"]
                    assert left_out["to"] in {*stored, "like"}
                    assert left_out["score"] == 1


def test_an_item_is_not_stored_unasked_while_a_shard_is_missing(
    client: Client, other: Client, shards: Shards
) -> None:
    put_plants(client, 3)
    shards[1][0].app.fault = Fault.BROKEN
    items = [{"id": "x", "vector": [5, 1]}]
    asked = other.put(f"{PLANTS}/items", json=unlike("new", [-5, 1]))
    assert_problem(asked, 503, "shard_unavailable")
    assert client.put(f"{PLANTS}/items", json={"items": items}).status_code == 200
    shards[1][0].app.fault = None
    wait_until(lambda: client.put(f"{PLANTS}/items", json=unlike("y", [-5, 1])).status_code == 200)
    told = other.put(f"{PLANTS}/items", json=unlike("z", [-5, 1.01])).json()
    assert [told["inserted"], told["similar"][0]["to"]] == [0, "y"]
    assert [other.get(f"{PLANTS}/items/{each}").status_code for each in ("new", "x")] == [404, 200]


def test_names_of_items_that_are_left_out_are_not_stored(client: Client, other: Client) -> None:
    assert client.put(PLANTS, json={"dim": None}).status_code == 201

    def put(by: Client, item_id: str, *names: str) -> Any:  # noqa: ANN401
        item = {"id": item_id, "vector": {"names": names}}
        body = {"items": [item], "mode": "unless_similar", "min_score": 0.6}
        return by.put(f"{PLANTS}/items", json=body).json()["inserted"]

    assert [put(client, "a", "u", "v"), put(client, "b", "u", "v", "w")] == [1, 0]
    assert [
        client.get(PLANTS).json()["names"],
        len(client.get(f"{PLANTS}/names").json()["names"]),
    ] == [2, 2]
    assert put(client, "c", "w", "x") == 1
    shown = other.get(f"{PLANTS}/names").json()["names"]
    assert {each["name"] for each in shown} == {"u", "v", "w", "x"}
    hits = other.post(f"{PLANTS}/query", json=by_names("w", "x", strict=True)).json()["hits"]
    assert [hits[0]["id"], hits[0]["score"]] == ["c", 1]
