"""A primary that was replaced and comes back is read and written by nobody."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from signal import SIGKILL

import pytest

from gcws_search.service.cluster.committer import Committer, PreparedChoice
from gcws_search.service.cluster.contract import EPOCH_FILE, Behind, EpochMemory, FormerPrimary
from gcws_search.service.cluster.database import Database
from gcws_search.service.errors import StoreUnavailable
from tests.support.service.client import Client, assert_problem
from tests.support.service.http_shards import HttpShard, router
from tests.support.service.postgres import Postgres
from tests.support.service.postgres_pair import PostgresPair, kill_server
from tests.support.service.shards import BUCKETS, Written, ask, fills, held, shards as hosts_of
from tests.support.waiting import wait_until

PLANTS = "/v1/collections/plants"
SHARDS = 2


@pytest.fixture
def pair() -> Iterator[PostgresPair]:
    pair = PostgresPair()
    try:
        pair.start("plants")
        pair.add_standby()
        yield pair
    finally:
        pair.remove()


@contextmanager
def shards(url: str, folder: Path, numbers: Sequence[int] = range(SHARDS)) -> Iterator[None]:
    """Run a replica of each shard, with the files and the memory of its folder."""
    with ExitStack() as stack:
        for shard in numbers:
            memory = EpochMemory(folder / f"{shard}-0" / EPOCH_FILE)
            database = Database.open(url, buckets=BUCKETS, memory=memory)
            stack.callback(database.close)
            database.connections.look_seconds = 0.2
            one = HttpShard(database, folder, shard, SHARDS, 0)
            one.start()
            stack.callback(one.stop)
        yield


def put(client: Client, *ids: str, version: int) -> None:
    """Put items; return once that is acknowledged."""
    items = [{"id": each, "vector": [1, version], "payload": {"v": version}} for each in ids]
    wait_until(lambda: client.put(f"{PLANTS}/items", json={"items": items}).is_success)


def versions(client: Client) -> dict[str, int]:
    """Return the version of each item, as all ways of reading say."""
    query = {"vector": [1, 1], "limit": 9, "recall": 1, "consistency": "strict"}
    found = client.post(f"{PLANTS}/query", json=query)
    assert found.status_code == 200, found.text
    searched = {hit["id"]: hit["payload"]["v"] for hit in found.json()["hits"]}
    read = {each: client.get(f"{PLANTS}/items/{each}").json()["payload"]["v"] for each in searched}
    listed = client.get(f"{PLANTS}/items").json()["items"]
    assert read == searched == {each["id"]: each["payload"]["v"] for each in listed}
    return searched


def start_again(former: Postgres) -> None:
    """Start a former primary, which takes writes by itself."""
    former.start()
    former.wait_for_standby("")


def promote(pair: PostgresPair) -> Postgres:
    """Lose the primary, and promote its standby; return the former one."""
    kill_server(pair.primary, SIGKILL)
    pair.promote_standby()
    return pair.standby


def test_a_former_primary_is_left_alone_whoever_starts_first(
    pair: PostgresPair, tmp_path: Path
) -> None:
    url = pair.url("plants")
    with shards(url, tmp_path), router(url, tmp_path / "one", SHARDS, 1) as client:
        assert client.put(PLANTS, json={"dim": 2}).status_code == 201
        put(client, "a", "b", version=1)
        former = promote(pair)
        put(client, "b", "c", version=2)
        start_again(former)
        put(client, "d", version=3)  # this router had connections with it
        expected = {"a": 1, "b": 2, "c": 2, "d": 3}
        assert versions(client) == expected
    # All have ended. The former primary is the first of the URL.
    with shards(url, tmp_path), router(url, tmp_path / "two", SHARDS, 1) as client:
        assert versions(client) == expected
        put(client, "e", version=4)
        assert versions(client) == expected | {"e": 4}

    kill_server(pair.primary, SIGKILL)  # nobody but the former primary takes writes
    for shard in range(SHARDS):
        memory = EpochMemory(tmp_path / f"{shard}-0" / EPOCH_FILE)
        with pytest.raises(FormerPrimary, match=r"expected epoch 2 \(timeline 2\) or later"):
            Database.open(url, buckets=BUCKETS, memory=memory)
    with router(url, tmp_path / "three", SHARDS, None) as client:  # it remembers nothing
        item = {"id": "f", "vector": [1, 2]}
        for answer in (
            client.get(f"{PLANTS}/items/c"),
            client.get("/v1/collections/nothing"),
            client.put(f"{PLANTS}/items", json={"items": [item]}),
        ):
            assert_problem(answer, 503, "store_unavailable")
        pair.primary.start()
        with shards(url, tmp_path):
            put(client, "f", version=5)
            assert versions(client) == expected | {"e": 4, "f": 5}
    with closing(Database.open(former.url("plants"), buckets=BUCKETS)) as database:
        [collection] = database.collections()
        left = {row.id for rows in database.read_all(collection.number, 99) for row in rows}
    assert left == {"a", "b"}


def test_what_a_replica_read_of_a_former_primary_goes_once_it_hears_of_the_last(
    pair: PostgresPair, tmp_path: Path
) -> None:
    """It has lost its files, and what it remembered with them."""
    url = pair.url("plants")
    with closing(Database.open(url, buckets=BUCKETS)) as database:
        written = Written(database)
        written.put_some("abc")
        former = promote(pair)
        assert wait_until(lambda: is_read(database))
        written.put_some("abd")
        last = database.connections.memory.document
        rows = written.rows()
        kill_server(pair.primary, SIGKILL)
        start_again(former)
        with (
            closing(Database.open(url, buckets=BUCKETS)) as deceived,
            hosts_of(deceived, tmp_path, 1) as [host],
        ):
            lost = Committer(deceived, written.number, "things")
            lost.commit(PreparedChoice(ids=["a"]))
            assert ask(host, "count", written.number, at=lost.last.key).head == {"count": 2}
            for said in (last, None):
                with pytest.raises(Behind):
                    ask(host, "count", written.number, seconds=0.1, epoch=said)
            with pytest.raises(StoreUnavailable):
                lost.commit(PreparedChoice(ids=["b"]))
            pair.primary.start()
            assert wait_until(lambda: is_read(database))
            assert wait_until(lambda: held(host, written) == rows)
            assert fills([host]) == [1]
        written.close()


def is_read(database: Database) -> bool:
    with suppress(StoreUnavailable):
        return bool(database.collections())
    return False


def test_writes_that_shards_know_to_be_too_late_are_not_acknowledged(
    pair: PostgresPair, tmp_path: Path
) -> None:
    """The former primary never ended; a router alone is still with it."""
    url = pair.url("plants")
    with shards(url, tmp_path), router(url, tmp_path / "one", SHARDS, 1) as client:
        client.put(PLANTS, json={"dim": 2})
        put(client, "a", version=1)
        pair.standby.promote()
        for server in (pair.primary, pair.standby):
            server.wait_for_standby("")
        with router(url, tmp_path / "two", SHARDS, None) as other:
            put(other, "b", version=2)
            put(client, "c", version=3)
            assert versions(client) == versions(other) == {"a": 1, "b": 2, "c": 3}
