"""A directory of collections: made, dropped, restarted, killed, shared, and refused to others."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.errors import (
    CollectionExists,
    CollectionLoading,
    CollectionNotFound,
    DirectoryLocked,
    InvalidParameter,
)
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    ExactParams,
)
from tests.support.index.items import fill, opened_catalog
from tests.support.paths import REPOSITORY

EXACT = CollectionConfig(dim=3, backend=ExactParams())


def ids(stored: StoredCollection) -> list[str]:
    return [item.id for item in stored.page(limit=100_000).items]


# Making, finding, dropping


def test_a_collection_is_made_once(catalog: Catalog) -> None:
    first, created = catalog.create("things", EXACT)
    assert created
    assert catalog.create("things", EXACT) == (first, False)
    assert catalog.get("things") is first
    with pytest.raises(CollectionExists):
        catalog.create("things", CollectionConfig(dim=4, backend=ExactParams()))
    with pytest.raises(CollectionNotFound):
        catalog.get("other")


def test_collections_are_listed_by_name(catalog: Catalog) -> None:
    catalog.create("b", CollectionConfig(dim=None))
    fill(catalog.create("a", EXACT)[0], 5)
    lines = [(line.name, line.items, line.dim, line.backends) for line in catalog.list()]
    assert lines == [("a", 5, 3, ["exact"]), ("b", 0, None, ["gcws"])]
    assert all(line.bytes_on_disk > 0 and line.bytes_in_memory > 0 for line in catalog.list())


@pytest.mark.parametrize("name", ["a", "A9", "0", "a.b", "a..b", "a_b-c.sqlite", "x" * 128])
def test_permitted_names(catalog: Catalog, tmp_path: Path, name: str) -> None:
    catalog.create(name, EXACT)
    assert (tmp_path / f"{name}.sqlite").exists()
    catalog.close()
    again = opened_catalog(tmp_path)
    assert [line.name for line in again.list()] == [name]
    again.close()


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".a", "-a", "_a", "a/b", "../a", "a\\b", "a b", "a\n", "ä", "x" * 129, "a\x00"],
)
def test_names_that_could_be_anything_else_are_refused(catalog: Catalog, name: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        catalog.create(name, EXACT)
    assert caught.value.loc == ("name",)


def test_a_dropped_collection_leaves_no_file_and_its_name_is_free(
    catalog: Catalog, tmp_path: Path
) -> None:
    fill(catalog.create("things", EXACT)[0], 10)
    catalog.drop("things")
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    for call in (catalog.get, catalog.drop):
        with pytest.raises(CollectionNotFound):
            call("things")
    stored, created = catalog.create("things", CollectionConfig(dim=2))
    assert created
    assert len(stored) == 0


def test_a_collection_whose_file_somebody_removed_can_be_dropped(
    catalog: Catalog, tmp_path: Path
) -> None:
    catalog.create("things", EXACT)
    (tmp_path / "things.sqlite").unlink()
    catalog.drop("things")
    assert catalog.list() == []


# Restarting


def test_loading_tells_how_far_it_is(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path)
    fill(catalog.create("a", EXACT)[0], 5)
    catalog.create("b", EXACT)
    fill(catalog.create("c", EXACT)[0], 7)
    catalog.close()

    again = Catalog.open(tmp_path, threads=1)
    with pytest.raises(CollectionLoading):
        again.get("a")
    for call in (lambda: again.drop("a"), lambda: again.create("a", EXACT)):
        with pytest.raises(CollectionLoading):
            call()
    assert again.list() == []
    told: list[tuple[str, int, int]] = []
    again.load(lambda *progress: told.append(progress))
    assert told == [("a", 5, 12), ("c", 12, 12)]
    assert [line.items for line in again.list()] == [5, 0, 7]
    again.close()


def test_other_collections_can_be_made_and_used_while_some_load(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path)
    fill(catalog.create("a", EXACT)[0], 5)
    catalog.close()
    again = Catalog.open(tmp_path, threads=1)

    def use(*_: object) -> None:
        fill(again.create("b", EXACT)[0], 3)
        again.drop("b")

    again.load(use)
    assert [line.name for line in again.list()] == ["a"]
    again.close()


def test_a_load_ends_early_when_the_catalog_is_closed(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path)
    for name in ("a", "b"):
        fill(catalog.create(name, EXACT)[0], 5)
    catalog.close()
    again = Catalog.open(tmp_path, threads=1)
    loading, closed = threading.Event(), threading.Event()
    told: list[str] = []

    def progress(name: str, *_: int) -> None:
        told.append(name)
        loading.set()
        assert closed.wait(timeout=60)

    loader = threading.Thread(target=again.load, args=(progress,))
    loader.start()
    assert loading.wait(timeout=60)
    closer = threading.Thread(target=again.close)
    closer.start()
    while not again.closing:
        pass
    closed.set()
    closer.join()
    loader.join()
    assert told == ["a"]
    opened_catalog(tmp_path).close()  # the directory is free


# Two processes, and one that is killed


def python(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:  # noqa: ANN401
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        **options,
    )


def output_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield whole lines: a killed process may have written a part of its last one."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith("\n"):
            yield line.rstrip("\n")


OWN = """
    import sys
    from pathlib import Path
    from gcws_search.index.collection.catalog import Catalog
    catalog = Catalog.open(Path(sys.argv[1]))
    print("open", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_and_told_who_holds_the_directory(tmp_path: Path) -> None:
    with python(OWN, tmp_path) as owner:
        assert next(output_of(owner)) == "open"
        with pytest.raises(DirectoryLocked) as caught:
            Catalog.open(tmp_path)
        assert caught.value.holder == f"process {owner.pid} on {socket.gethostname()}"
        assert str(owner.pid) in str(caught.value)
        owner.kill()
    opened_catalog(tmp_path).close()  # a killed owner holds nothing


def test_one_process_cannot_open_a_directory_twice(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(DirectoryLocked, match=f"process {os.getpid()}"):
        Catalog.open(tmp_path)
    catalog.create("things", EXACT)
    with pytest.raises(DirectoryLocked):  # the first attempt has not let go of the lock
        Catalog.open(tmp_path)


WRITE = """
    import sys, threading
    from pathlib import Path
    import numpy as np
    from gcws_search.index.collection.catalog import Catalog
    from gcws_search.index.collection.items import ItemBatch
    from gcws_search.index.contracts.parameters import CollectionConfig, ExactParams

    catalog = Catalog.open(Path(sys.argv[1]), threads=1)
    catalog.load()
    stored = catalog.create("things", CollectionConfig(dim=3, backend=ExactParams()))[0]
    printing = threading.Lock()

    def write(thread):
        for turn in range(100_000):
            ids = [f"{thread}.{turn % 50}.{place}" for place in range(3)]
            raw = stored.space.from_dense(np.full((3, 3), turn + 1, np.float32))
            if turn % 10 == 9:
                stored.delete(ids)
            else:
                stored.put(ItemBatch(ids, raw, [b'{"turn":%d}' % turn] * 3))
            with printing:
                print(thread, turn, flush=True)

    for thread in range(3):
        threading.Thread(target=write, args=(thread,), daemon=True).start()
    sys.stdin.read()
"""


@pytest.mark.parametrize("lines", [1, 300])
def test_a_kill_loses_nothing_acknowledged_and_leaves_nothing_half_done(
    tmp_path: Path, lines: int
) -> None:
    acknowledged: dict[int, int] = {}
    with python(WRITE, tmp_path) as writer:
        for count, line in enumerate(output_of(writer), 1):
            thread, turn = map(int, line.split())
            acknowledged[thread] = turn
            if count == lines:
                writer.send_signal(signal.SIGKILL)
    catalog = opened_catalog(tmp_path)
    stored = catalog.get("things")
    turns = {
        item.id: (int(item.vector[0]) - 1, item.payload)
        for item in stored.page(limit=10_000, with_vector=True).items
        if isinstance(item.vector, list)
    }
    assert len(turns) == len(stored)
    for thread in range(3):
        last = acknowledged.get(thread, -1)
        expected = _state_after(thread, last)
        one_more = _state_after(thread, last + 1)  # committed, but not told any more
        found = {name: entry for name, entry in turns.items() if name.startswith(f"{thread}.")}
        assert found in (expected, one_more)
    catalog.close()


def _state_after(thread: int, last: int) -> dict[str, tuple[int, bytes]]:
    state: dict[str, tuple[int, bytes]] = {}
    for turn in range(last + 1):
        for place in range(3):
            name = f"{thread}.{turn % 50}.{place}"
            if turn % 10 == 9:
                state.pop(name, None)
            else:
                state[name] = (turn, b'{"turn":%d}' % turn)
    return state
