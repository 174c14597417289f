"""Snapshots: made while others write, restored whole or not at all, to the same answers."""

import errno
import hashlib
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from gcws_search import index as ix
from gcws_search.index.collection import catalog as catalog_module
from gcws_search.index.storage import data_directory, snapshots
from tests.support.index.fake_backend import backend_of, lists_of
from tests.support.index.items import (
    DIM,
    held,
    holding,
    made,
    opened_catalog,
    put,
    reopened,
    vector,
)
from tests.support.index.saved_graph import Restart, opened
from tests.support.pausing import Work


def answers(stored: ix.StoredCollection) -> list[Any]:
    """Return all that a client can ask of a small collection."""
    queries = stored.space.from_items([vector(float(x)) for x in (1, 7, 30)])
    return [
        held(stored),
        [item.id for item in stored.page(limit=1000).items],
        [
            [*zip(result.ids, result.scores, result.payloads or (), strict=True)]
            for backend in (None, *(each.name for each in stored.describe().backends))
            for result in stored.search(queries, ix.SearchParams(limit=5), backend=backend)
        ],
    ]


def names(catalog: ix.Catalog, collection: str = "things") -> list[str]:
    return [snapshot.name for snapshot in catalog.snapshots.list(collection)]


def received(
    catalog: ix.Catalog, content: bytes, sha256: str | None = None, name: str = "things"
) -> ix.Snapshot:
    incoming = catalog.snapshots.incoming(name, "sent")
    try:
        for start in range(0, len(content), 1000):
            incoming.write(content[start : start + 1000])
        return incoming.finish(sha256)
    finally:
        incoming.discard()


def test_a_snapshot_restored_into_an_empty_directory_answers_the_same(
    catalog: ix.Catalog, tmp_path: Path
) -> None:
    stored = made(catalog)
    stored.delete(["i3", "i8"])
    put(stored, {"i5": 50, "new": 60})
    stored.attach(ix.FourierParams(kind="nrff", features=8))
    snapshot = catalog.snapshot("things")
    expected = answers(stored)

    other = opened_catalog(tmp_path / "other")
    copy = received(other, snapshot.path.read_bytes(), snapshot.sha256.upper())
    assert copy.sha256 == snapshot.sha256
    restored = other.restore("things", "sent")
    assert answers(restored) == expected
    assert put(restored, {"later": 70}).inserted == 1
    other.close()
    with opened(tmp_path / "other") as again:
        assert set(held(again)) == {*held(stored), "later"}


def test_a_snapshot_is_listed_with_its_checksum_until_it_is_removed(
    catalog: ix.Catalog, tmp_path: Path
) -> None:
    made(catalog)
    first, second = catalog.snapshot("things", "first"), catalog.snapshot("things")
    assert {first.name, second.name} == set(names(catalog))
    content = first.path.read_bytes()
    assert (first.sha256, first.bytes_) == (hashlib.sha256(content).hexdigest(), len(content))
    told = (first.path.parent / f"{first.path.name}.sha256").read_text()
    assert told == f"{first.sha256}  {first.path.name}\n"
    with pytest.raises(ix.SnapshotExists):
        catalog.snapshot("things", "first")
    catalog.drop("things")
    assert "first" in names(catalog)  # it outlives its collection
    catalog.snapshots.remove("things", "first")
    assert names(catalog) == [second.name]
    for call in (catalog.snapshots.get, catalog.snapshots.remove, catalog.restore):
        with pytest.raises(ix.SnapshotNotFound):
            call("things", "first")
    assert list(first.path.parent.glob("first*")) == []


def test_a_snapshot_holds_one_moment_while_others_write(catalog: ix.Catalog) -> None:
    stored = made(catalog, count=0)
    put(stored, {"a0": 1, "b0": 1})
    stop = threading.Event()

    def write() -> None:
        turn = 1
        while not stop.is_set():
            put(stored, {f"a{turn}": turn, f"b{turn}": turn})
            turn += 1

    writer = Work(write)
    try:
        for turn in range(5):
            catalog.snapshot("things", f"s{turn}")
    finally:
        stop.set()
        writer.join()
    for turn in range(5):
        catalog.restore("things", f"s{turn}", replace=True)
        found = set(held(catalog.get("things")))
        count = len(found) // 2
        assert found == {f"{letter}{n}" for letter in "ab" for n in range(count)}


@pytest.mark.usefixtures("linking")
def test_a_snapshot_has_the_lists_of_rows_that_were_just_put(catalog: ix.Catalog) -> None:
    stored = catalog.create("things", ix.CollectionConfig(dim=DIM, backend=ix.ExactParams()))[0]
    put(stored, {f"i{n}": n + 1 for n in range(50)})
    before = lists_of(stored)
    catalog.snapshot("things", "s")
    restored = catalog.restore("things", "s", replace=True)
    assert backend_of(restored).linked == 0
    assert lists_of(restored) == before


def test_what_exists_is_replaced_only_when_told_so(restart: Restart, catalog: ix.Catalog) -> None:
    stored = made(catalog, count=2)
    catalog.snapshot("things", "s")
    put(stored, {"later": 9})
    with pytest.raises(ix.CollectionExists):
        catalog.restore("things", "s")
    assert "later" in held(stored)
    restored = catalog.restore("things", "s", replace=True)
    assert held(restored) == holding({"i0": 1, "i1": 2})
    assert catalog.get("things") is restored
    with pytest.raises(ix.CollectionLoading):
        put(stored, {"x": 1})
    with restart() as again:
        assert held(again) == holding({"i0": 1, "i1": 2})


def test_a_snapshot_that_is_not_what_was_written_changes_nothing(catalog: ix.Catalog) -> None:
    stored = made(catalog)
    snapshot = catalog.snapshot("things", "s")
    content = bytearray(snapshot.path.read_bytes())
    content[-100] ^= 1
    snapshot.path.write_bytes(content)
    with pytest.raises(ix.DamagedSnapshot, match="SHA-256"):
        catalog.restore("things", "s", replace=True)
    assert put(stored, {"later": 9}).inserted == 1
    content[-100] ^= 1
    snapshot.path.write_bytes(content)
    assert "later" not in held(catalog.restore("things", "s", replace=True))


@pytest.mark.parametrize("content", [b"", b"no file of a collection" * 1000, None])
def test_what_is_no_collection_or_was_damaged_on_its_way_is_not_received(
    catalog: ix.Catalog, tmp_path: Path, content: bytes | None
) -> None:
    made(catalog)
    snapshot = catalog.snapshot("things", "s")
    damaged, expected = snapshot.path.read_bytes()[:-1], snapshot.sha256
    with pytest.raises(ix.DamagedSnapshot, match="SHA-256" if content is None else None):
        received(catalog, *((damaged, expected) if content is None else (content,)))
    assert names(catalog) == ["s"]
    assert list((tmp_path / "snapshots" / "things").glob(".*")) == []


def test_what_was_damaged_before_it_was_sent_is_not_restored(catalog: ix.Catalog) -> None:
    stored = made(catalog)
    content = bytearray(catalog.snapshot("things", "s").path.read_bytes())
    at = content.index(b'{"x":7')
    content[at + 5] ^= 1
    received(catalog, bytes(content))
    with pytest.raises(ix.DamagedSnapshot, match="is damaged"):
        catalog.restore("things", "sent", replace=True)
    assert catalog.get("things") is stored


@pytest.mark.parametrize("name", ["..", "../things", "a/b", "", ".creating-x", "a\x00b"])
def test_names_reach_no_other_file(catalog: ix.Catalog, name: str) -> None:
    made(catalog)
    for call in (
        lambda: catalog.snapshot("things", name),
        lambda: catalog.snapshots.get("things", name),
        lambda: catalog.snapshots.get(name, "s"),
        lambda: catalog.snapshots.list(name),
        lambda: catalog.snapshots.incoming("things", name),
        lambda: catalog.snapshots.incoming(name, "s"),
        lambda: catalog.snapshots.remove("things", name),
        lambda: catalog.restore("things", name),
    ):
        with pytest.raises(ix.InvalidParameter):
            call()


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots" / "things"
    folder.mkdir(parents=True)
    (folder / ".creating-0123.sqlite").touch()
    (folder / ".creating-0123.sqlite.sha256").touch()
    (folder / "a.sqlite.sha256").touch()  # its file was never renamed
    catalog = ix.Catalog.open(tmp_path)
    assert names(catalog) == []
    assert list(folder.iterdir()) == []
    catalog.close()


def refused_rename(path: Path, target: Path) -> Path:
    """Stand for `Path.rename` on a disk that takes no new name of a collection."""
    if path.name.startswith(".creating-"):
        raise OSError(errno.ENOSPC, "no space left", str(target))
    return path.replace(target)


@contextmanager
def read_meanwhile(path: Path) -> Iterator[None]:
    """Read a file as it is now until the block ends: its log cannot be moved into it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM items").fetchall()
        yield


@pytest.mark.parametrize("policies", [ix.Policies(busy_seconds=0.1)])
def test_what_only_the_log_holds_is_kept_while_it_cannot_be_moved_into_the_file(
    catalog: ix.Catalog, tmp_path: Path
) -> None:
    stored = made(catalog, count=2)
    catalog.snapshot("things", "s")
    old = held(stored)
    with read_meanwhile(tmp_path / "things.sqlite"):
        put(stored, {"later": 9})
        with pytest.raises(ix.DirectoryLocked):
            catalog.restore("things", "s", replace=True)
        expected = {**old, **holding({"later": 9})}
        assert held(catalog.get("things")) == expected
        assert reopened(catalog.get("things"), tmp_path) == expected
    assert held(catalog.restore("things", "s", replace=True)) == old


@pytest.mark.parametrize("sound", [True, False])
def test_a_file_that_cannot_be_put_in_its_place_leaves_the_old_one_with_its_log(
    sound: bool, catalog: ix.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = made(catalog, count=2)
    catalog.snapshot("things", "s")
    # Somebody else has the file open, so closing it leaves the log.
    with read_meanwhile(tmp_path / "things.sqlite") if not sound else nullcontext():
        put(stored, {"later": 9})
        if not sound:
            monkeypatch.setattr(catalog_module, "move_log", damaged)
        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", refused_rename)
            with pytest.raises(ix.DiskFull):
                catalog.restore("things", "s", replace=True)
        assert set(held(catalog.get("things"))) == {"i0", "i1", "later"}
        assert set(reopened(catalog.get("things"), tmp_path)) == {"i0", "i1", "later"}
    assert {path.name for path in tmp_path.glob(".*")} == set()


def damaged(_path: Path, name: str, _busy_seconds: float) -> None:
    raise ix.DamagedFile(name, "its log cannot be read")


def test_a_reader_of_the_replaced_file_leaves_the_new_one_its_log(
    catalog: ix.Catalog, tmp_path: Path
) -> None:
    stored = made(catalog, count=2)
    catalog.snapshot("things", "s")
    with read_meanwhile(tmp_path / "things.sqlite"):
        put(catalog.restore("things", "s", replace=True), {"later": 9})
    # Its connection was the last one of the old file.
    assert stored is not catalog.get("things")
    assert set(reopened(catalog.get("things"), tmp_path)) == {"i0", "i1", "later"}


@pytest.mark.parametrize("restoring", [False, True])
def test_a_file_is_on_the_disk_before_it_has_its_name(
    restoring: bool, catalog: ix.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave the name, and behind it nothing."""
    made(catalog)
    if restoring:
        catalog.snapshot("things", "s")
    steps: list[tuple[str, Path]] = []
    sync, rename = data_directory.sync_file, Path.rename

    def noted_sync(path: Path) -> None:
        steps.append(("synced", path))
        sync(path)

    def noted_rename(path: Path, target: Path) -> Path:
        steps.append(("renamed", path))
        steps.append(("named", Path(target)))
        return rename(path, target)

    for module in (data_directory, snapshots):
        monkeypatch.setattr(module, "sync_file", noted_sync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    if restoring:
        catalog.restore("things", "s", replace=True)
        named = tmp_path.resolve() / "things.sqlite"
    else:
        named = catalog.snapshot("things", "s").path
    at = steps.index(("named", named))
    [renamed] = [path for what, path in steps[at - 1 : at] if what == "renamed"]
    assert ("synced", renamed) in steps[:at]
    assert ("synced", named.parent) in steps[at:]
    if not restoring:
        assert ("synced", renamed.with_name(f"{renamed.name}.sha256")) in steps[:at]
        assert ("named", named.with_name(f"{named.name}.sha256")) in steps[:at]
