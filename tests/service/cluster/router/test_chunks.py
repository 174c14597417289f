"""Chunks of a load: one is stored while shards take in the one before."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gcws_search.service.cluster.messages import unpacked
from gcws_search.service.cluster.router.collection import ClusterCollection
from tests.support.service.cluster import ClusterClient, ThreadReplica
from tests.support.service.postgres import postgres

SECONDS = 10.0
ROWS = 10
"""Of a chunk."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ClusterClient]:
    with postgres().database() as url:
        client = ClusterClient(url, tmp_path, load_chunk_rows=ROWS)
        client.start()
        client.wait_until_ready()
        assert client.put("/v1/collections/c", json={"dim": 2}).status_code == 201
        yield client
        client.stop()


@pytest.fixture
def collection(client: ClusterClient) -> ClusterCollection:
    found = client.app.state.service.collection("c")
    assert isinstance(found, ClusterCollection)
    return found


def load(client: ClusterClient, rows: int) -> None:
    lines = "".join(f'{{"id": "{row}", "vector": [1, {row}]}}\n' for row in range(rows))
    answer = client.post(
        "/v1/collections/c/load",
        content=lines.encode(),
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert answer.json()["inserted"] == rows


def test_a_chunk_is_stored_while_shards_take_in_the_one_before(
    client: ClusterClient, collection: ClusterCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, overlaps = ThreadReplica.ask, set[bool]()

    async def ask(self: ThreadReplica, message: bytes, seconds: float) -> bytes:
        """Let the shards have the first chunk once the second one is stored."""
        head = unpacked(message).head
        if head["method"] == "follow" and head["key"] <= ROWS:
            end = time.monotonic() + SECONDS
            while collection.committer.commits < 2 and time.monotonic() < end:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            overlaps.add(collection.committer.commits >= 2)
        return await asked(self, message, seconds)

    monkeypatch.setattr(ThreadReplica, "ask", ask)
    collection.context.shards.follow_seconds = SECONDS
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
