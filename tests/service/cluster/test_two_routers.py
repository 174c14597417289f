"""What one router changes, as another one sees it, and what is seen while a shard is missing."""

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gcws_search.service.cluster.database import Database
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
    with router(database_url, tmp_path / "one", 2, 1, shard_seconds=60) as client:
        yield client


@pytest.fixture
def other(client: Client, database_url: str, tmp_path: Path) -> Iterator[Client]:
    """Return a client of another router, started after the first one."""
    del client
    with router(database_url, tmp_path / "two", 2, 1, shard_seconds=60) as other:
        yield other


def by_names(*names: str, strict: bool) -> dict[str, object]:
    vector = {"names": names, "values": [1.0] * len(names)}
    return {"vector": vector, "consistency": "strict" if strict else "session"}


def put_plants(client: Client, count: int) -> None:
    """Make the collection, of some items."""
    assert client.put(PLANTS, json={"dim": 2}).status_code == 201
    items = [{"id": str(number), "vector": [1, number + 1]} for number in range(count)]
    assert client.put(f"{PLANTS}/items", json={"items": items}).status_code == 200


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


# Collections


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
