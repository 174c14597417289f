"""Clients and collections that a process had before it was forked, in both processes after it."""

import asyncio
import gc
import json
import multiprocessing
import os
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.pool import ThreadPool
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Final

import numpy as np
import pytest

import gcws_search
from gcws_search import Collection
from gcws_search.index import Catalog, CollectionConfig, ItemBatch
from gcws_search.index.contracts.parameters import Storage
from tests.support.forks import SECONDS, done_in_fork, fork
from tests.support.processes import running_python
from tests.support.service.client import Json

ROWS: Final = 100

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


# Clients


shared: Final[dict[str, Json]] = {}
"""What the processes of a pool have without being sent it."""


def find(row: int) -> str:
    return str(shared["items"].query(shared["vectors"][row], limit=1).ids[0])


def test_two_processes_of_one_awaited_client_have_their_own_answers(
    url: str, rng: np.random.Generator
) -> None:
    vectors = rng.normal(size=(ROWS, 4))
    server = gcws_search.connect_async(url)

    async def wrong_answers() -> int:
        hits = [await items.query(vector, limit=1) for vector in vectors]
        return sum(each.ids != [str(row)] for row, each in enumerate(hits))

    async def open_filled() -> gcws_search.AsyncCollection:
        items = await server.collection("fork-async", dim=4)
        await items.add(vectors)
        return items

    async def close() -> None:
        await server.close()

    with asyncio.Runner() as runner:
        items = runner.run(open_filled())
        with fork(lambda: asyncio.run(wrong_answers())) as child:
            assert runner.run(wrong_answers()) == 0
            assert child() == "0"
        runner.run(close())


def test_a_pool_of_forked_processes_uses_a_client_made_before(
    url: str, rng: np.random.Generator
) -> None:
    vectors = rng.normal(size=(ROWS, 4))
    with gcws_search.connect(url) as server:
        items = server.collection("fork-pool", dim=4)
        items.add(vectors)
        shared.update(items=items, vectors=vectors)
        with multiprocessing.get_context("fork").Pool(3) as pool:
            found = pool.map(find, range(ROWS), chunksize=5)
    assert found == [*map(str, range(ROWS))]


def copy_of(what: Json) -> Json:
    """Return what another process is sent."""
    return ForkingPickler.loads(ForkingPickler.dumps(what))


def test_a_collection_of_a_server_can_be_sent_to_another_process(url: str) -> None:
    policy = gcws_search.RetryPolicy(attempts=2)
    with gcws_search.connect(url, "a key", timeout_seconds=9, policy=policy) as server:
        items = server.collection("fork-copies", dim=2)
        items.add([[1, 2], [2, 1]])
        copy = copy_of(items)
        assert (copy.name, copy.config, repr(copy)) == (items.name, items.config, repr(items))
        assert copy.query([1, 2], limit=1).ids == ["0"]
        assert copy.place.server.policy == policy
        assert copy_of(server).collection("fork-copies").add([[1, 1]]).ids.first == "2"
        assert [*copy_of([*items])] == [*items]
        groups = items.groups(min_score=0.1, keep="first")
        assert copy_of(groups) == groups

    async def ask() -> int:
        async with gcws_search.connect_async(url) as awaited:
            items = copy_of(await awaited.collection("fork-copies"))
            async with items.place.server:
                return int(await items.count())

    assert asyncio.run(ask()) == 3


@pytest.mark.parametrize("path", [":memory:", "a.sqlite"])
def test_a_collection_of_this_process_is_not_copied(tmp_path: Path, path: str) -> None:
    place = path if path == ":memory:" else tmp_path / path
    with Collection.open(place, dim=2) as items:
        awaited = gcws_search.AsyncCollection(items.place)
        for what in (items, awaited, {"items": items}):
            with pytest.raises(gcws_search.InvalidParameter, match=r"connect.*alone; (open|add)"):
                copy_of(what)
        items.add([[1, 2]])
        assert items.count() == 1


def test_a_client_is_closed_by_the_process_that_opened_it_alone(url: str) -> None:
    with gcws_search.connect(url) as server:
        server.health()

        def leave() -> str:
            with server:
                pass
            gc.collect()
            return "closed"

        assert done_in_fork(leave) == "closed"
        assert server.health()["status"] == "ok"
        assert done_in_fork(lambda: server.health()["status"]) == "ok"


def test_a_fork_waits_for_no_lock_of_a_thread_that_it_does_not_have(url: str) -> None:
    with gcws_search.connect(url) as server, ThreadPool(4) as pool:
        stop = threading.Event()

        def ask(_: int) -> None:
            while not stop.is_set():
                server.health()

        asking = pool.map_async(ask, range(4))
        try:
            for _ in range(10):
                assert done_in_fork(lambda: server.health()["status"]) == "ok"
        finally:
            stop.set()
            asking.get(SECONDS)


# Collections of this process


OPERATIONS: Final[dict[str, Callable[[Json], object]]] = {
    "add": lambda items: items.add([[9, 9]], ids=["child"]),
    "query": lambda items: items.query([1, 2]),
    "query by id": lambda items: items.query(id="a"),
    "query_many": lambda items: items.query_many([[1, 2]]),
    "get": lambda items: items.get("a"),
    "contains": lambda items: "a" in items,
    "delete": lambda items: items.delete("a"),
    "delete where": lambda items: items.delete(where={"x": 1}),
    "pairs": lambda items: items.pairs(min_score=0.5),
    "explain": lambda items: items.explain("a", [1, 2]),
    "map": lambda items: items.map(),
    "profile": lambda items: items.profile(),
    "compare": lambda items: items.compare([[1, 2]]),
    "page": lambda items: items.page(),
    "iteration": lambda items: [*items],
    "names": lambda items: items.names(),
    "names of": lambda items: items.names(indices=[0]),
    "set_names": lambda items: items.set_names(["x"]),
    "count": len,
    "describe": lambda items: items.describe(),
    "index": lambda items: items.index,
    "export": lambda items: items.export("/nowhere/all.ndjson"),
}


def outcomes(operations: dict[str, Callable[[Json], object]], subject: Json) -> dict[str, str]:
    """Return what each operation raises on a subject, or else returns, as text."""
    found = {}
    for name, work in operations.items():
        try:
            found[name] = str(work(subject))
        except gcws_search.GcwsError as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


@pytest.mark.parametrize("kind", ["file", "mapped", "memory"])
def test_a_fork_is_refused_what_its_parent_opened(tmp_path: Path, kind: str) -> None:
    path = ":memory:" if kind == "memory" else tmp_path / "e.sqlite"
    storage: Storage = "mapped" if kind == "mapped" else "memory"
    refusal = f"in use by process {os.getpid()}, which opened it before this one was forked"
    with Collection.open(path, dim=2, storage=storage) as items:
        items.add([[1, 2]], ids=["a"], payloads=[{"x": 1}])
        told = json.loads(done_in_fork(lambda: json.dumps(outcomes(OPERATIONS, items))))
        assert {name: said.split(":")[0] for name, said in told.items()} == dict.fromkeys(
            OPERATIONS, "DirectoryLocked"
        )
        assert all(refusal in said for said in told.values())
        assert items.add([[3, 4]], ids=["b"]).inserted == 1
        assert [each.id for each in items] == ["a", "b"]
    if kind != "memory":
        with Collection.open(path) as items:
            assert [each.id for each in items] == ["a", "b"]


def test_a_fork_changes_nothing_in_a_catalog(tmp_path: Path) -> None:
    catalog = Catalog.open(tmp_path, durability="normal", threads=1)
    try:
        stored, _ = catalog.create("d", CollectionConfig(dim=2))
        items = ItemBatch(["a"], stored.space.from_dense(np.array([[1, 2]], np.float32)), [None])
        stored.put(items)
        works: dict[str, Callable[[Json], object]] = {
            "put": lambda catalog: catalog.get("d").put(items),
            "delete": lambda catalog: catalog.get("d").delete(["a"]),
            "create": lambda catalog: catalog.create("other", CollectionConfig(dim=2)),
            "snapshot": lambda catalog: catalog.snapshot("d"),
            "drop": lambda catalog: catalog.drop("d"),
        }
        told = json.loads(done_in_fork(lambda: json.dumps(outcomes(works, catalog))))
        assert {name: said.split(":")[0] for name, said in told.items()} == dict.fromkeys(
            works, "DirectoryLocked"
        )
        assert stored.put(items).updated == 1
        assert catalog.snapshot("d").name
    finally:
        catalog.close()


ENDS: Final = """
import gc, os, sys
from pathlib import Path
from gcws_search import Collection
from gcws_search.index import Catalog, CollectionConfig

folder = Path(sys.argv[1])
items = Collection.open(folder / "e.sqlite", dim=2)
items.add([[1, 2]], ids=["a"])
catalog = Catalog.open(folder / "catalog")
direct, _ = catalog.create("d", CollectionConfig(dim=2))
for end in ("exit", "close", "delete"):
    if os.fork() == 0:
        if end == "close":
            items.close()
            catalog.close()
        elif end == "delete":
            del items, direct, catalog
            gc.collect()
        sys.exit()  # with finalizers and functions of atexit
    assert os.wait()[1] == 0, end
for file in (folder / "e.sqlite", folder / "catalog" / "d.sqlite"):
    for end in ("", "-wal", "-shm"):
        assert file.with_name(file.name + end).exists(), end
assert (folder / "lock").read_text().startswith(f"process {os.getpid()} "), "the lock's holder"
items.add([[1, 3]], ids=["b"])
shown = sorted(each.id for each in items)
if os.fork() == 0:
    sys.stdin.read()
    try:
        Collection.open(folder / "e.sqlite")
    except Exception as error:
        print(type(error).__name__, flush=True)
    sys.exit()
print(shown, flush=True)
os.wait()
"""
"""A process that has what it had when its children have ended, and is killed while one lives.

That child then tries to open the file.
"""


def test_the_end_of_a_fork_leaves_files_and_locks_to_its_parent_and_that_of_the_parent_to_others(
    tmp_path: Path,
) -> None:
    with running_python(ENDS, str(tmp_path), says="['a', 'b']") as process:
        with pytest.raises(gcws_search.DirectoryLocked, match=f"process {process.pid}"):
            Collection.open(tmp_path / "e.sqlite")
        process.kill()
        process.wait()
        with Collection.open(tmp_path / "e.sqlite") as items:
            assert [each.id for each in items] == ["a", "b"]
            items.add([[2, 1]], ids=["c"])
            said, _ = process.communicate("", SECONDS)
            assert said == "DirectoryLocked\n"
            items.add([[3, 1]], ids=["d"])
    with Collection.open(tmp_path / "e.sqlite") as items:
        assert [each.id for each in items] == ["a", "b", "c", "d"]


def test_a_fork_opens_what_nobody_has_open(tmp_path: Path) -> None:
    def work() -> list[list[str]]:
        found = []
        for path in (":memory:", tmp_path / "child" / "e.sqlite"):
            with Collection.open(path, dim=2) as own:
                own.add([[1, 2], [2, 1]], ids=["a", "b"])
                found.append(own.query([2, 1]).ids)
        return found

    (tmp_path / "child").mkdir()
    with Collection.open(tmp_path / "e.sqlite", dim=2) as items:
        items.add([[1, 2]], ids=["a"])
        assert done_in_fork(work) == "[['b', 'a'], ['b', 'a']]"
        for name in ("e", "other"):
            said = done_in_fork(partial(Collection.open, tmp_path / f"{name}.sqlite", dim=2))
            assert said.startswith("DirectoryLocked")
            assert str(os.getpid()) in said
    assert done_in_fork(lambda: len(Collection.open(tmp_path / "e.sqlite"))) == "1"


def test_a_refusal_comes_back_from_the_processes_of_a_pool(tmp_path: Path) -> None:
    with Collection.open(tmp_path / "e.sqlite", dim=2) as items:
        items.add([[1, 2]], ids=["0"])
        shared.update(items=items, vectors=[[1, 2]])
        with (
            multiprocessing.get_context("fork").Pool(1) as pool,
            pytest.raises(gcws_search.DirectoryLocked) as raised,
        ):
            pool.apply_async(find, [0]).get(SECONDS)
    assert raised.value.directory == tmp_path
    assert raised.value.holder.startswith(f"process {os.getpid()}, ")
