"""A directory of collections: made, found, dropped, restarted, killed, damaged, shared."""

import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlite_utils import Database, Migrations

from index.catalog import Catalog
from index.directory import DataDirectory
from index.errors import (
    CollectionExists,
    CollectionLoading,
    CollectionNotFound,
    DamagedFile,
    DiskFull,
    IncompatibleFile,
    InvalidParameter,
)
from index.items import ItemBatch
from index.params import CollectionConfig, ExactParams, GcwsParams, SearchParams, Transform
from index.schema import FORMAT_VERSION
from index.store import Store
from index.stored import StoredCollection
from tests.stored_items import DIM, held, holding, put, vector

EXACT = CollectionConfig(dim=3, backend=ExactParams())
REPOSITORY = Path(__file__).parents[2]


def opened(directory: Path) -> Catalog:
    catalog = Catalog.open(directory, threads=1)
    catalog.load()
    return catalog


def fill(stored: StoredCollection, count: int, *, first: int = 0) -> None:
    values = np.arange(first + 1, first + count + 1, dtype=np.float32)
    raw = stored.space.from_dense(np.stack([values, values**0, -values], axis=1))
    ids = [f"i{n}" for n in range(first, first + count)]
    stored.put(ItemBatch(ids, raw, [b'{"n":%d}' % n for n in range(first, first + count)]))


def ids(stored: StoredCollection) -> list[str]:
    return [item.id for item in stored.page(limit=100_000).items]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    made = opened(tmp_path)
    yield made
    made.close()


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
    again = opened(tmp_path)
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


def test_a_collection_made_on_a_full_disk_is_not_made(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", full)
        with pytest.raises(DiskFull):
            catalog.create("things", EXACT)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    assert catalog.create("things", EXACT)[1]


@pytest.mark.parametrize("step", ["create", "publish", "rename", "sync"])
def test_a_kill_while_a_collection_is_made_does_not_break_the_start(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step is run up to its end, and then nothing more, not even the cleaning up."""
    catalog = opened(tmp_path)
    owner: Any = {"create": Store, "publish": DataDirectory, "rename": Path}.get(step)
    owner, name = (owner, step) if owner else (DataDirectory, "_sync")
    original = getattr(owner, name)

    def killed(*args: object) -> None:
        original(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, staticmethod(killed) if step == "create" else killed)
        patched.setattr(DataDirectory, "discard", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            catalog.create("things", EXACT)
    catalog.close()
    again = opened(tmp_path)
    assert again.failures == {}
    assert not any(path.name.startswith(".") for path in tmp_path.iterdir())
    assert len(again.create("things", EXACT)[0]) == 0
    again.close()


@pytest.mark.parametrize("kill_after", [0, 1, 2, 3])
def test_a_kill_while_a_collection_is_dropped_leaves_all_or_nothing(
    tmp_path: Path, kill_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = opened(tmp_path)
    fill(catalog.create("things", EXACT)[0], 10)
    steps = 0

    def counted(original: Any) -> Any:  # noqa: ANN401
        def step(*args: object, **kwargs: object) -> object:
            nonlocal steps
            steps += 1
            if steps > kill_after:
                raise KeyboardInterrupt
            return original(*args, **kwargs)

        return step

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", counted(Path.rename))
        patched.setattr(Path, "unlink", counted(Path.unlink))
        with pytest.raises(KeyboardInterrupt):
            catalog.drop("things")
    catalog.close()
    again = opened(tmp_path)
    assert again.failures == {}
    if kill_after == 0:
        assert len(again.get("things")) == 10
    else:
        assert again.list() == []
        assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    again.close()


# Restarting


@pytest.mark.parametrize("power", [1.0, 2.0])
@pytest.mark.parametrize("encoding", ["full", "zero_bit", "b_bit"])
def test_a_restart_gives_the_same_answers(
    tmp_path: Path,
    rng: np.random.Generator,
    power: float,
    encoding: Any,  # noqa: ANN401
) -> None:
    config = CollectionConfig(
        dim=12, transform=Transform(power=power), backend=GcwsParams(bands=8, encoding=encoding)
    )
    catalog = opened(tmp_path)
    stored = catalog.create("things", config)[0]
    rows = rng.standard_normal((900, 12)).astype(np.float32)
    for start in range(0, 900, 100):
        names = [f"i{n % 700}" for n in range(start, start + 100)]
        stored.put(
            ItemBatch(names, stored.space.from_dense(rows[start : start + 100]), [None] * 100)
        )
    stored.delete([f"i{n}" for n in range(0, 700, 7)])
    queries = stored.space.from_dense(rng.standard_normal((25, 12)).astype(np.float32))

    def answers(collection: StoredCollection) -> list[object]:
        found: list[object] = [ids(collection)]
        for recall in (0.5, 0.9, 1.0):
            results = collection.search(queries, SearchParams(limit=10, recall=recall))
            found += [[(hit.id, hit.score) for hit in result.hits] for result in results]
        found.append(collection.pairs(min_score=0.5, recall=1))
        return found

    before = answers(stored)
    for _ in range(2):
        catalog.close()
        catalog = opened(tmp_path)
        assert answers(catalog.get("things")) == before
    catalog.close()


def test_loading_tells_how_far_it_is(tmp_path: Path) -> None:
    catalog = opened(tmp_path)
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
    catalog = opened(tmp_path)
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
    catalog = opened(tmp_path)
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
    while not again._closing:
        pass
    closed.set()
    closer.join()
    loader.join()
    assert told == ["a"]
    opened(tmp_path).close()  # the directory is free


# Damage


def damage(path: Path, how: str) -> None:
    match how:
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("these are no items\n" * 1000)
        case "cut":
            os.truncate(path, path.stat().st_size // 2)
        case "head":
            with path.open("r+b") as file:
                file.write(b"\xff" * 200)
        case "vector":
            _execute(path, "UPDATE items SET vector = x'00' WHERE key = 7")
        case "zeros":
            _execute(path, "UPDATE items SET vector = zeroblob(length(vector)) WHERE key = 7")
        case "codes":
            _execute(path, "UPDATE items SET codes = x'00' WHERE key = 7")
        case "config":
            _execute(path, "UPDATE meta SET value = '{\"dim\": 0}' WHERE name = 'config'")


def _execute(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(sql)
    connection.close()


@pytest.mark.parametrize(
    "how", ["empty", "text", "cut", "head", "vector", "zeros", "codes", "config"]
)
def test_a_damaged_file_is_named_and_the_others_load(tmp_path: Path, how: str) -> None:
    catalog = opened(tmp_path)
    for name in ("a", "b", "c"):
        fill(catalog.create(name, CollectionConfig(dim=3, backend=GcwsParams(bands=2)))[0], 3000)
    catalog.close()
    damage(tmp_path / "b.sqlite", how)

    again = opened(tmp_path)
    assert [line.name for line in again.list()] == ["a", "c"]
    assert list(again.failures) == ["b"]
    for call in (lambda: again.get("b"), lambda: again.create("b", EXACT)):
        with pytest.raises(DamagedFile) as caught:
            call()
        assert caught.value.name == "b"
        assert "'b'" in str(caught.value)
    again.drop("b")
    assert again.failures == {}
    assert again.create("b", EXACT)[1]
    again.close()


def test_hashes_of_another_version_are_refused(tmp_path: Path) -> None:
    catalog = opened(tmp_path)
    catalog.create("a", EXACT)
    catalog.close()
    _execute(tmp_path / "a.sqlite", "UPDATE meta SET value = '0' WHERE name = 'algorithm_version'")
    again = opened(tmp_path)
    with pytest.raises(IncompatibleFile, match="hashes of version 0"):
        again.get("a")
    again.close()


def test_what_goes_wrong_with_one_collection_keeps_no_other_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = opened(tmp_path)
    for name in ("a", "b", "c"):
        fill(catalog.create(name, EXACT)[0], 5)
    catalog.close()
    load = StoredCollection.load

    def fail(stored: StoredCollection, progress: Any) -> None:  # noqa: ANN401
        if stored.name == "b":
            raise MemoryError
        load(stored, progress)

    with monkeypatch.context() as patched:
        patched.setattr(StoredCollection, "load", fail)
        again = opened(tmp_path)
    assert [line.name for line in again.list()] == ["a", "c"]
    with pytest.raises(DamagedFile, match="MemoryError"):
        again.get("b")
    again.close()
    later = opened(tmp_path)
    assert len(later.get("b")) == 5
    later.close()


def test_a_folder_in_the_place_of_a_file_is_told_of_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").mkdir()
    (tmp_path / "a.sqlite" / "notes.txt").touch()
    for _ in range(2):
        catalog = opened(tmp_path)
        for call in (catalog.get, catalog.drop):
            with pytest.raises(DamagedFile):
                call("a")
        assert list(catalog.failures) == ["a"]
        assert (tmp_path / "a.sqlite" / "notes.txt").exists()
        catalog.close()


def test_a_file_that_cannot_be_removed_is_told_of(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create("things", EXACT)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", refuse)
        with pytest.raises(DamagedFile, match="Permission denied"):
            catalog.drop("things")
    assert (tmp_path / "things.sqlite").exists()
    catalog.drop("things")
    assert catalog.list() == []


# Files of an earlier format


@pytest.fixture
def format_1(tmp_path: Path) -> Path:
    """Return a file as it was written before there were links: gcws, 12 items put, 2 deleted."""
    file = tmp_path / "things.sqlite"
    shutil.copy(Path(__file__).parents[1] / "data" / "format_1.sqlite", file)
    return file


def test_a_file_of_format_1_is_brought_up_to_date(tmp_path: Path, format_1: Path) -> None:
    values: dict[str, float] = {f"i{n}": n + 1 for n in range(12) if n not in (3, 4)}
    values["i0"] = 20
    for turn in range(3):
        catalog = opened(tmp_path)
        stored = catalog.get("things")
        assert stored.config == CollectionConfig(dim=DIM, backend=GcwsParams(bands=2))
        assert stored.describe().versions["format"] == str(FORMAT_VERSION)
        assert held(stored) == holding(values)
        query = stored.space.from_items([vector(20.0)])
        [result] = stored.search(query, SearchParams(limit=1, recall=0.9))
        assert [(hit.id, hit.score) for hit in result.hits] == [("i0", 1.0)]
        put(stored, {f"new{turn}": 50.0})
        values[f"new{turn}"] = 50.0
        catalog.close()


def test_a_migration_broken_off_is_made_at_the_next_start(
    tmp_path: Path, format_1: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Migrations, "_record_applied", killed)
        with pytest.raises(KeyboardInterrupt):
            Store(format_1, "things")
    catalog = opened(tmp_path)
    assert len(catalog.get("things")) == 10
    catalog.close()


def test_a_file_of_a_later_format_is_not_migrated(tmp_path: Path, format_1: Path) -> None:
    _execute(format_1, "UPDATE meta SET value = '7' WHERE name = 'format_version'")
    catalog = opened(tmp_path)
    with pytest.raises(IncompatibleFile, match="format 7"):
        catalog.get("things")
    catalog.close()
    with Database(format_1) as database:
        assert not database.table("links").exists()
