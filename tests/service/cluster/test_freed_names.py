"""Names of coordinates that no item has any more, over two routers."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import chain, count
from pathlib import Path

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.catalog import ClusterCatalog
from gcws_search.service.cluster.collection import ClusterCollection
from gcws_search.service.cluster.committer import PreparedChoice, PreparedPut
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.names import collections_with_unused_names
from tests.support.service.client import Client
from tests.support.service.http_shards import http_shards, router
from tests.support.service.shards import BUCKETS
from tests.support.waiting import wait_until

THINGS = "/v1/collections/things"
WORDS = [f"w{n}" for n in range(30)]
IDS = [f"i{n}" for n in range(10)]
Held = tuple[ClusterCollection, str, set[str], ix.RawBatch, ExitStack]
"""A vector that was read and is not stored yet: by whom, of what item, with what words; its write
is in progress until the stack is closed."""


@pytest.fixture
def clients(database_url: str, tmp_path: Path) -> Iterator[list[Client]]:
    with (
        http_shards(database_url, tmp_path / "shards", 2, 1),
        router(database_url, tmp_path / "one", 2, 1) as one,
        router(database_url, tmp_path / "two", 2, 1) as two,
    ):
        assert one.put(THINGS, json={"dim": None}).status_code == 201
        yield [one, two]


@pytest.fixture
def routers(clients: list[Client]) -> list[ClusterCollection]:
    """Return the collection as each router has it."""
    return [client.app.state.service.collection("things") for client in clients]


def read(collection: ClusterCollection, *words: str) -> ix.RawBatch:
    """Return a vector as it is when its body has been read."""
    vectors: list[ix.OneVector] = [ix.named_vector([*words], [1.0 + len(w) for w in words])]
    return ix.InputVectors(mixed=vectors).check(collection.space, collection.names.reserve)


def put(
    collection: ClusterCollection, item_id: str, raw: ix.RawBatch, mode: ix.Mode = "upsert"
) -> None:
    batch = ix.ItemBatch([item_id], raw, [None])
    collection.committer.commit(collection.prepare(batch, mode))


def free(collection: ClusterCollection) -> int:
    return collection.free_names(threading.Event())


def stored_words(database: Database, number: int) -> dict[str, set[str]]:
    """Return the words of each item in the database; each of its coordinates has a name."""
    names = {coordinate: name for coordinate, name in database.names(number)}
    assert len({*names.values()}) == len(names)
    space = ix.VectorSpace.of(ix.CollectionConfig(dim=None), None)
    found = {}
    for row in database.page(number, after=0, limit=1000, with_vector=True):
        found[row.id] = {names[each] for each in space.from_blobs([row.vector]).indices.tolist()}
    return found


@pytest.mark.parametrize("seed", range(4))
def test_each_item_has_its_names_whatever_is_freed_meanwhile(
    routers: list[ClusterCollection], database_url: str, seed: int
) -> None:
    """A model: vectors are read, stored later, replaced and deleted; names are freed between."""
    rng = np.random.default_rng(seed)
    number = routers[0].number
    model = dict[str, set[str]]()
    held = list[Held]()
    owners = dict[int, str]()
    freed = moved = 0
    with closing(Database.open(database_url, buckets=BUCKETS)) as database:
        for _ in range(300):
            one = routers[rng.integers(2)]
            match rng.integers(8):
                case 0 | 1 | 2:
                    words = rng.choice(WORDS, 3, replace=False).tolist()
                    write = ExitStack()
                    write.enter_context(one.names.reading())
                    held.append((one, str(rng.choice(IDS)), {*words}, read(one, *words), write))
                case 3 | 4 if held:
                    by, item_id, used, raw, write = held.pop(rng.integers(len(held)))
                    with write:
                        put(by, item_id, raw)
                    model[item_id] = used
                    last = database.fetch(number, [item_id])[item_id].vector
                    moved += one.space.from_blobs([last]).indices.tolist() != raw.indices.tolist()
                case 5:
                    ids = rng.choice(IDS, 4, replace=False).tolist()
                    one.committer.commit(PreparedChoice(ids=ids))
                    model = {each: used for each, used in model.items() if each not in ids}
                case 6:
                    freed += free(one)
                case 7 if rng.integers(3) == 0:  # it starts again, and remembers nothing
                    place = routers.index(one)
                    routers[place] = ClusterCollection(one.row, one.router)
                    held = [each for each in held if each[0] is not one]
                case _:
                    one.load_names()
            assert stored_words(database, number) == model
            for coordinate, name in database.names(number):
                assert owners.setdefault(coordinate, name) == name
        assert freed > 10
        assert moved > 0, "some were stored by names that had got other coordinates"
        wait_until(lambda: free(routers[0]) == 0)
        used = {*chain.from_iterable(model.values())}
        wait_until(lambda: {name for _, name in database.names(number)} == used)


def test_a_write_in_a_queue_has_its_names_whatever_is_freed_meanwhile(
    clients: list[Client], routers: list[ClusterCollection], database_url: str
) -> None:
    one, two = routers

    def batch(item_id: str, *words: str) -> tuple[ix.ItemBatch, ix.Mode]:
        return ix.ItemBatch([item_id], read(one, *words), [None]), "upsert"

    def free_others() -> tuple[ix.ItemBatch, ix.Mode]:
        for n in range(4):
            put(two, "z", read(two, f"new{n}"))
            two.committer.commit(PreparedChoice(ids=["z"]))
            freed.append(0)
            while not freed[-1]:
                freed[-1] = free(two)
            one.load_names()
        return batch("b", "x")

    async def store_both() -> list[ix.WriteResult | BaseException]:
        loop, leads = asyncio.get_running_loop(), list[Callable[[], None]]()
        outcomes: list[asyncio.Future[ix.WriteResult | BaseException]] = []

        def submit(reads: Callable[[], tuple[ix.ItemBatch, ix.Mode]]) -> None:
            outcome = loop.create_future()
            outcomes.append(outcome)

            def ended(result: ix.WriteResult | BaseException) -> None:
                loop.call_soon_threadsafe(outcome.set_result, result)

            one.submit(reads, ended, lambda lead, _: leads.append(lead))

        submit(lambda: batch("a", "x", "y"))
        submit(free_others)
        await asyncio.to_thread(leads[0])
        return await asyncio.gather(*outcomes)

    freed = list[int]()
    put(one, "c", read(one, "w"))
    assert clients[0].run(store_both()) == [ix.WriteResult(1, 0)] * 2
    with closing(Database.open(database_url, buckets=BUCKETS)) as database:
        found = stored_words(database, one.number)
    assert found == {"a": {"x", "y"}, "b": {"x"}, "c": {"w"}}


def test_writers_and_sweeps_at_once_lose_no_name(
    routers: list[ClusterCollection], database_url: str, rng: np.random.Generator
) -> None:
    def write(collection: ClusterCollection, mine: str, rng: np.random.Generator) -> None:
        for _ in range(40):
            words = rng.choice(WORDS, 3, replace=False).tolist()
            item_id = f"{mine}{rng.integers(3)}"
            put(collection, item_id, read(collection, *words))
            wanted[item_id] = {*words}
            if rng.integers(3) == 0:
                collection.committer.commit(PreparedChoice(ids=[item_id]))
                del wanted[item_id]

    wanted, freed = dict[str, set[str]](), 0
    with ThreadPoolExecutor(6) as threads:
        work = zip(routers * 3, "abcdef", rng.spawn(6), strict=True)
        writing = [threads.submit(write, *each) for each in work]
        while not all(each.done() for each in writing):
            freed += free(routers[0])
        for each in writing:
            each.result()
    assert freed
    with closing(Database.open(database_url, buckets=BUCKETS)) as database:
        assert stored_words(database, routers[0].number) == wanted


def test_names_are_freed_by_themselves_and_the_other_router_follows(clients: list[Client]) -> None:
    one, two = clients
    items = [
        {"id": "a", "vector": {"names": ["alder", "oak"], "values": [1, 2]}},
        {"id": "b", "vector": {"names": ["oak", "yew"], "values": [1, 2]}},
    ]
    assert one.put(f"{THINGS}/items", json={"items": items}).status_code == 200
    query = {"vector": {"names": ["alder"], "values": [1]}, "consistency": "strict"}
    assert two.post(f"{THINGS}/query", json=query).json()["hits"][0]["id"] == "a"
    assert one.delete(f"{THINGS}/items/a").status_code == 204
    wait_until(lambda: one.get(f"{THINGS}/names").json()["count"] == 2)
    for client in (one, two):
        answer = client.post(f"{THINGS}/query", json=query).json()
        assert [hit["score"] for hit in answer["hits"]] == [0]
        assert "no item has the name 'alder'" in answer["hints"][0]
    items[0]["vector"] = {"names": ["ash", "alder"], "values": [1, 2]}
    assert two.put(f"{THINGS}/items", json={"items": items[:1]}).status_code == 200
    assert one.post(f"{THINGS}/query", json=query).json()["hits"][0]["id"] == "a"
    names = one.get(f"{THINGS}/names").json()
    assert {each["name"] for each in names["names"]} == {"ash", "alder", "oak", "yew"}


def test_an_item_compared_with_others_is_sent_again_where_its_coordinates_moved(
    routers: list[ClusterCollection],
) -> None:
    one, two = routers
    put(one, "a", read(one, "x", "y"))
    put(one, "b", read(one, "z"))
    mode = ix.UnlessSimilar(min_score=0.9)
    moved, same = (
        one.prepare(ix.ItemBatch(["c"], read(one, *words), [None]), mode) for words in ("xy", "z")
    )
    one.committer.commit(PreparedChoice(ids=["a"]))
    wait_until(lambda: bool(free(two)) or len(one.database.names(one.number)) == 1)
    fresh = ClusterCollection(two.row, two.router)
    put(fresh, "d", read(fresh, "y", "x"))

    def check(put: PreparedPut) -> PreparedPut:
        """Do what is done under the lock of writes."""
        assert put.check is not None
        return put.check(put, 0, one.database.names_from(one.number, 0)[1])

    assert check(same) is same
    with pytest.raises(ix.CollectionLoading):
        check(moved)


def test_nothing_is_freed_while_an_older_router_runs(
    routers: list[ClusterCollection], database_url: str
) -> None:
    one = routers[0]
    put(one, "a", read(one, "x"))
    with (
        closing(Database.open(database_url, buckets=BUCKETS, application="router")) as older,
        older.connections.use(),
    ):
        one.committer.commit(PreparedChoice(ids=["a"]))
        assert free(one) == 0
        assert len(one.database.names(one.number)) == 1
        older.connections.forget()
    wait_until(lambda: bool(free(one)) or not one.database.names(one.number))


def test_a_sweep_that_ends_in_between_is_done_again(routers: list[ClusterCollection]) -> None:
    one = routers[0]
    put(one, "a", read(one, "x"))
    put(one, "b", read(one, "y"))
    one.committer.commit(PreparedChoice(ids=["a"]))
    stop = threading.Event()
    stop.set()
    assert one.free_names(stop) == 0
    wait_until(lambda: [name for _, name in one.database.names(one.number)] == ["y"])


def test_a_database_of_an_older_program_is_swept_once(
    database: Database, database_url: str
) -> None:
    number = database.create("things", {"dim": None})[0].number
    with database.connections.transaction() as connection:
        connection.run("DELETE FROM migrations WHERE name = 'freed names'")
        for column in ("removed", "freed", "rested"):
            connection.run(f"ALTER TABLE heads DROP COLUMN {column}")
        connection.run("INSERT INTO names VALUES (%b, 0, %b, 0, true)", number, b"x")
    with closing(Database.open(database_url, buckets=BUCKETS)) as opened:
        assert collections_with_unused_names(opened) == [number]
        fresh = opened.create("others", {"dim": None})[0].number
        with opened.connections.transaction() as connection:
            connection.run("INSERT INTO names VALUES (%b, 0, %b, 0, true)", fresh, b"x")
        assert collections_with_unused_names(opened) == [number]


def test_a_snapshot_has_the_names_of_its_items_whatever_is_written_meanwhile(
    routers: list[ClusterCollection], clients: list[Client]
) -> None:
    one, two = routers
    catalog: ClusterCatalog = clients[0].app.state.service.catalog
    put(one, "a", read(one, "x"))
    stop = threading.Event()

    def write() -> None:
        for n in count():
            if stop.is_set():
                return
            put(two, f"i{n}", read(two, f"new{n}"))

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        snapshots = [catalog.snapshot("things").name for _ in range(5)]
        stop.set()
        writing.result()
    for name in snapshots:
        copy = catalog.local.restore("things", name, replace=True)
        named = {coordinate for coordinate, _ in copy.names.listed()}
        for rows in copy.store.chunks():
            assert {*copy.space.from_blobs(rows.vectors).indices.tolist()} <= named
        catalog.local.drop("things")
