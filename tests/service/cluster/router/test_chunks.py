"""What a write waits for: a chunk of a load for the one before, a small one for its shards."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.collection import ClusterCollection
from gcws_search.service.cluster.contract import bucket_of
from tests.support.service.client import Json, running
from tests.support.service.cluster import BUCKETS, ClusterClient, ThreadReplica, before_each_message

SECONDS = 10.0
ROWS = 10
"""Of a chunk."""


@pytest.fixture
def client(database_url: str, tmp_path: Path) -> Iterator[ClusterClient]:
    with running(ClusterClient(database_url, tmp_path, load_chunk_rows=ROWS)) as client:
        assert client.put("/v1/collections/c", json={"dim": 2}).status_code == 201
        yield client


@pytest.fixture
def collection(client: ClusterClient) -> ClusterCollection:
    found = client.app.state.service.collection("c")
    assert isinstance(found, ClusterCollection)
    return found


def load(client: ClusterClient, rows: int) -> None:
    lines = "".join(f'{{"id": "{row}", "vector": [1, {row}]}}\n' for row in range(rows))
    kind = {"Content-Type": "application/x-ndjson"}
    answer = client.post("/v1/collections/c/load", content=lines.encode(), headers=kind)
    assert answer.json()["inserted"] == rows


def test_a_chunk_is_stored_while_shards_take_in_the_one_before(
    client: ClusterClient, collection: ClusterCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlaps = set[bool]()

    async def hold(_replica: ThreadReplica, head: Json) -> None:
        """Let the shards have the first chunk once the second one is stored."""
        if head["method"] == "follow" and head["key"] <= ROWS:
            end = time.monotonic() + SECONDS
            while collection.committer.commits < 2 and time.monotonic() < end:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            overlaps.add(collection.committer.commits >= 2)

    before_each_message(monkeypatch, hold)
    collection.shards.follow_seconds = SECONDS
    load(client, 3 * ROWS)
    assert overlaps == {True}


def test_a_load_is_answered_when_all_of_it_is_found(
    client: ClusterClient, collection: ClusterCollection
) -> None:
    load(client, 100 * ROWS)
    for replicas in client.shards.replicas:
        for replica in replicas:
            follower = replica.host.follower(collection.number, 0.0)
            assert follower is not None
            assert follower.reached == 100 * ROWS


def test_ids_are_checked_by_the_collection_too(
    client: ClusterClient, collection: ClusterCollection
) -> None:
    """Not by the API alone: rows of a database and of shards could not be read otherwise."""
    vectors = ix.RawBatch("dense", dense=np.ones((2, 2), np.float32))
    for wrong in ("", "x" * 1000, "\ud800"):
        with pytest.raises(ix.InvalidId) as found:
            collection.prepare(ix.ItemBatch(["a", wrong], vectors, [None, None]), "upsert")
        assert found.value.loc == (1, "id")
    assert client.get("/v1/collections/c").json()["items"] == 0


@pytest.mark.parametrize("item_id", ["a", "b", "c", "d"])
def test_a_small_write_waits_for_the_shards_of_its_items_alone(
    client: ClusterClient,
    collection: ClusterCollection,
    monkeypatch: pytest.MonkeyPatch,
    item_id: str,
) -> None:
    seen = dict[int, list[bool]]()
    shard = bucket_of(item_id, BUCKETS) % len(client.shards.replicas)
    is_answered = threading.Event()

    async def hold(replica: ThreadReplica, head: Json) -> None:
        """Let another shard have the item once the write is answered."""
        if head["method"] == "follow":
            own, end = replica.host.place.shard, time.monotonic() + SECONDS / 4
            while own != shard and not is_answered.is_set() and time.monotonic() < end:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            seen.setdefault(own, []).append(is_answered.is_set())

    before_each_message(monkeypatch, hold)
    collection.shards.follow_seconds = SECONDS
    items = {"items": [{"id": item_id, "vector": [1, 2]}]}
    assert client.put("/v1/collections/c/items", json=items).status_code == 200
    is_answered.set()
    found = client.post("/v1/collections/c/query", json={"vector": [1, 2], "limit": 1}).json()
    assert [hit["id"] for hit in found["hits"]] == [item_id]
    assert seen[shard][0] is False
    assert False not in seen.get(1 - shard, [])
