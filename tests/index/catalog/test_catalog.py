"""A directory of collections: made, found, dropped, restarted, killed, shared."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.errors import (
    CollectionExists,
    CollectionLoading,
    CollectionNotFound,
    DiskFull,
    InvalidParameter,
)
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    ExactParams,
    GcwsParams,
    SearchParams,
    Transform,
)
from gcws_search.index.storage.data_directory import DataDirectory
from gcws_search.index.storage.store import Store
from tests.support.index.items import fill, opened_catalog

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
    catalog = opened_catalog(tmp_path)
    owner: Any = {"create": Store, "publish": DataDirectory, "rename": Path}.get(step)
    owner, name = (owner, step) if owner else (DataDirectory, "sync")
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
    again = opened_catalog(tmp_path)
    assert again.failures == {}
    assert not any(path.name.startswith(".") for path in tmp_path.iterdir())
    assert len(again.create("things", EXACT)[0]) == 0
    again.close()


@pytest.mark.parametrize("kill_after", [0, 1, 2, 3])
def test_a_kill_while_a_collection_is_dropped_leaves_all_or_nothing(
    tmp_path: Path, kill_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = opened_catalog(tmp_path)
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
    again = opened_catalog(tmp_path)
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
    catalog = opened_catalog(tmp_path)
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
            found += [[*zip(result.ids, result.scores, strict=True)] for result in results]
        found.append(collection.pairs(min_score=0.5, recall=1))
        return found

    before = answers(stored)
    for _ in range(2):
        catalog.close()
        catalog = opened_catalog(tmp_path)
        assert answers(catalog.get("things")) == before
    catalog.close()


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
