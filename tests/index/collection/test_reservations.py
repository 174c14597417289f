"""Operations that meet on one name: which exclude each other, wait, or run side by side."""

import errno
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from gcws_search import index as ix
from gcws_search.index.collection import catalog as catalog_module
from gcws_search.index.collection.attached_backends import AttachedBackends
from gcws_search.index.storage import data_directory, snapshots as snapshots_module
from gcws_search.index.storage.data_directory import DataDirectory
from gcws_search.index.storage.snapshots import sha256_of
from gcws_search.index.storage.store import Store
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
from tests.support.index.saved_graph import opened
from tests.support.pausing import Work, paused_at

CONFIG = ix.CollectionConfig(dim=DIM, backend=ix.GcwsParams(bands=2))
OTHER = ix.CollectionConfig(dim=DIM, backend=ix.ExactParams())
NRFF = ix.FourierParams(kind="nrff", features=8)


def unfinished(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*")]


def sent(catalog: ix.Catalog, name: str, content: bytes) -> ix.Incoming:
    """Return a snapshot of which all has come, and which is not finished."""
    incoming = catalog.snapshots.incoming("things", name)
    incoming.write(content)
    return incoming


def restoring(catalog: ix.Catalog) -> Callable[[], ix.StoredCollection]:
    return lambda: catalog.restore("things", "s", replace=True)


def refuse_all(catalog: ix.Catalog, *names: str) -> None:
    """Expect that every one of these operations on "things" is told that it is busy."""
    operations: dict[str, Callable[[], object]] = {
        "create": lambda: catalog.create("things", CONFIG),
        "drop": lambda: catalog.drop("things"),
        "snapshot": lambda: catalog.snapshot("things"),
        "restore": lambda: catalog.restore("things", "s", replace=True),
    }
    for name in names:
        with pytest.raises(ix.CollectionBusy, match="things"):
            operations[name]()


@pytest.fixture
def snapshot(catalog: ix.Catalog) -> dict[str, Any]:
    """Make a snapshot "s" of "things" and drop these; return the two items it holds."""
    made(catalog, count=2)
    catalog.snapshot("things", "s")
    catalog.drop("things")
    return holding({"i0": 1, "i1": 2})


# One makes a name, others want it


def test_a_collection_created_while_a_snapshot_is_restored_never_gets_its_rows(
    catalog: ix.Catalog, snapshot: dict[str, Any], tmp_path: Path
) -> None:
    with paused_at(catalog_module, "findings_of", lambda: catalog.restore("things", "s")) as work:
        refuse_all(catalog, "create", "drop", "snapshot", "restore")
        assert "things" not in catalog
    assert work.error is None
    assert held(catalog.get("things")) == snapshot
    assert reopened(catalog.get("things"), tmp_path) == snapshot
    assert catalog.create("things", CONFIG) == (work.result, False)


@pytest.mark.usefixtures("snapshot")
@pytest.mark.parametrize("done", [False, True])
def test_what_comes_while_a_collection_is_created_is_refused_or_waits(
    done: bool, catalog: ix.Catalog, tmp_path: Path
) -> None:
    def create() -> tuple[ix.StoredCollection, bool]:
        return catalog.create("things", CONFIG)

    with paused_at(Store, "create", create, done=done) as work:
        refuse_all(catalog, "drop", "snapshot", "restore")
        same, other = Work(create), Work(lambda: catalog.create("things", OTHER))
        assert same.is_under_way
        assert other.is_under_way
    for each in (same, other):
        each.join()
    collection, is_new = work.result
    assert is_new
    assert same.result == (collection, False)
    assert isinstance(other.error, ix.CollectionExists)
    put(collection, {"a": 1})
    assert reopened(collection, tmp_path) == holding({"a": 1})


def test_who_waits_for_a_creation_that_fails_creates(
    catalog: ix.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published, goes_on = threading.Event(), threading.Event()
    publish = DataDirectory.publish

    def full_once(directory: DataDirectory, unfinished: Path, name: str) -> None:
        if not published.is_set():
            published.set()
            assert goes_on.wait(60)
            raise OSError(errno.ENOSPC, "No space left on device")
        publish(directory, unfinished, name)

    monkeypatch.setattr(DataDirectory, "publish", full_once)
    first = Work(lambda: catalog.create("things", CONFIG))
    assert published.wait(60)
    second = Work(lambda: catalog.create("things", CONFIG))
    goes_on.set()
    first.join()
    second.join()
    assert isinstance(first.error, ix.DiskFull)
    assert second.result == (catalog.get("things"), True)
    assert unfinished(tmp_path) == []


# One removes or replaces a name, others want it


@pytest.mark.usefixtures("snapshot")
@pytest.mark.parametrize("step", [(DataDirectory, "remove"), (data_directory, "sync_file")])
def test_what_comes_while_a_collection_is_dropped_is_refused(
    step: tuple[Any, str], catalog: ix.Catalog, tmp_path: Path
) -> None:
    stored = made(catalog)
    with paused_at(*step, lambda: catalog.drop("things")) as work:
        refuse_all(catalog, "create", "drop", "snapshot", "restore")
        with pytest.raises(ix.CollectionNotFound):
            put(stored, {"a": 1})
    assert work.error is None
    assert [path.name for path in tmp_path.glob("*.sqlite*")] == []
    assert len(catalog.create("things", CONFIG)[0]) == 0


def test_a_collection_is_used_while_it_is_checked_what_replaces_it(
    catalog: ix.Catalog, snapshot: dict[str, Any], tmp_path: Path
) -> None:
    stored = made(catalog, count=5)
    with paused_at(catalog_module, "findings_of", restoring(catalog)) as work:
        refuse_all(catalog, "drop", "snapshot", "restore")
        assert put(stored, {"later": 9}).inserted == 1
        assert catalog.create("things", CONFIG) == (stored, False)
        assert "later" in held(catalog.get("things"))
    assert held(work.result) == snapshot
    assert reopened(catalog.get("things"), tmp_path) == snapshot


def test_while_a_collection_is_put_in_its_place_the_one_before_is_searched_and_takes_no_writes(
    catalog: ix.Catalog, snapshot: dict[str, Any]
) -> None:
    stored = made(catalog, count=5)
    with paused_at(DataDirectory, "publish", restoring(catalog)) as work:
        refuse_all(catalog, "drop", "snapshot", "restore")
        for late in (lambda: put(stored, {"later": 9}), lambda: stored.attach(NRFF)):
            with pytest.raises(ix.CollectionLoading):
                late()
        assert catalog.get("things") is stored
        assert len(held(stored)) == 5
        query = stored.space.from_items([vector(3.0)])
        assert len(stored.search(query, ix.SearchParams(limit=10))[0].ids) == 5
    assert held(work.result) == snapshot


def test_a_backend_that_is_made_while_its_collection_is_replaced_does_not_come(
    catalog: ix.Catalog, snapshot: dict[str, Any]
) -> None:
    stored = made(catalog, count=5)
    with paused_at(AttachedBackends, "make", lambda: stored.attach(NRFF)) as work:
        [building] = stored.attached_backends.building
        restoring = Work(lambda: catalog.restore("things", "s", replace=True))
        assert building.stop.wait(60)
    restoring.join()
    assert isinstance(work.error, ix.CollectionLoading)
    assert held(restoring.result) == snapshot
    assert [each.name for each in restoring.result.describe().backends] == ["gcws"]


# Beside a snapshot


def test_beside_a_snapshot_a_collection_is_used_and_not_taken_away(
    catalog: ix.Catalog, tmp_path: Path
) -> None:
    stored = made(catalog, count=2)
    catalog.snapshot("things", "s")
    with paused_at(ix.StoredCollection, "copy_to", lambda: catalog.snapshot("things", "t")) as work:
        refuse_all(catalog, "drop", "restore")
        put(stored, {"later": 9})
        assert stored.attach(NRFF).name == "nrff"
        assert catalog.create("things", CONFIG) == (stored, False)
        catalog.snapshot("things", "u")
        refuse_all(catalog, "drop", "restore")
    assert work.error is None
    assert {each.name for each in catalog.snapshots.list("things")} == {"s", "t", "u"}
    assert "later" in reopened(stored, tmp_path)
    catalog.drop("things")


def test_operations_of_other_names_do_not_wait(
    catalog: ix.Catalog, snapshot: dict[str, Any]
) -> None:
    with paused_at(catalog_module, "findings_of", lambda: catalog.restore("things", "s")):
        made(catalog, "others", count=3)
        catalog.snapshot("others", "s")
        assert len(catalog.restore("others", "s", replace=True)) == 3
        catalog.drop("others")
    with paused_at(Store, "create", lambda: catalog.create("others", CONFIG)):
        made(catalog, "more", count=3)
    assert held(catalog.get("things")) == snapshot


@pytest.mark.usefixtures("snapshot")
@pytest.mark.parametrize("operation", ["create", "restore"])
def test_collections_that_are_being_made_are_counted(operation: str, catalog: ix.Catalog) -> None:
    counts: list[int] = []

    def work() -> object:
        if operation == "create":
            return catalog.create("others", CONFIG, admit=counts.append)
        return catalog.restore("things", "s", admit=counts.append)

    step: tuple[Any, str] = (Store, "create")
    if operation == "restore":
        step = catalog_module, "findings_of"
    with paused_at(*step, work):
        catalog.create("more", CONFIG, admit=counts.append)
    catalog.create("most", CONFIG, admit=counts.append)
    catalog.create("most", CONFIG, admit=counts.append)
    assert counts == [0, 1, 2]


# Snapshots of one name


def test_of_two_that_write_a_snapshot_of_one_name_the_later_is_refused(
    catalog: ix.Catalog, tmp_path: Path
) -> None:
    made(catalog)
    content = catalog.snapshot("things", "s").path.read_bytes()
    incoming = sent(catalog, "sent", content)
    for call in (catalog.snapshots.incoming, catalog.snapshot):
        with pytest.raises(ix.CollectionBusy, match="things"):
            call("things", "sent")
    with pytest.raises(ix.SnapshotNotFound):
        catalog.snapshots.remove("things", "sent")
    assert incoming.finish(None).name == "sent"
    for _ in range(2):
        incoming.discard()
    for call in (catalog.snapshots.incoming, catalog.snapshot):
        with pytest.raises(ix.SnapshotExists):
            call("things", "sent")
    sent(catalog, "x", content).discard()
    assert catalog.snapshot("things", "x").name == "x"
    assert unfinished(tmp_path) == []


def test_a_snapshot_that_is_removed_and_sent_anew_is_restored_as_it_was(
    catalog: ix.Catalog, snapshot: dict[str, Any]
) -> None:
    path = catalog.snapshots.get("things", "s").path
    made(catalog, count=7)
    other = catalog.snapshot("things", "t").path.read_bytes()
    catalog.drop("things")
    old = path.read_bytes()
    with paused_at(ix.Snapshots, "open", lambda: catalog.restore("things", "s"), done=True) as work:
        found, file = catalog.snapshots.open("things", "s")
        catalog.snapshots.remove("things", "s")
        incoming = sent(catalog, "s", other)
        replaced = incoming.finish(None)
        incoming.discard()
        with file:
            assert file.read() == old
        assert found.sha256 != replaced.sha256 == sha256_of(path)
    assert work.error is None
    assert held(catalog.get("things")) == snapshot


def test_two_snapshots_by_the_time_of_one_microsecond_get_two_names(
    catalog: ix.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(catalog)
    times = iter([1, 1, 1, 2])

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":
            return cls(2026, 1, 1, microsecond=next(times), tzinfo=tz)

    monkeypatch.setattr(snapshots_module, "datetime", Clock)
    first = catalog.snapshot("things").name
    with paused_at(ix.StoredCollection, "copy_to", lambda: catalog.snapshot("things", "x")):
        second = catalog.snapshot("things").name
    assert (first, second) == ("20260101T000000.000001Z", "20260101T000000.000002Z")


# What fails


def test_a_damaged_collection_stays_as_it_was_where_nothing_can_replace_it(
    catalog: ix.Catalog, snapshot: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "things.sqlite").write_bytes(b"x" * 10_000)
    catalog.close()
    again = opened_catalog(tmp_path)
    with pytest.raises(ix.CollectionExists):
        again.restore("things", "s")
    full = mock.patch.object(DataDirectory, "publish", side_effect=ix.DiskFull("things"))
    with full, pytest.raises(ix.DiskFull):
        again.restore("things", "s", replace=True)
    assert isinstance(again.failures["things"], ix.DamagedFile)
    assert held(again.restore("things", "s", replace=True)) == snapshot
    assert again.failures == {}
    again.close()


# Closing


def test_closing_waits_for_what_is_under_way_and_refuses_what_comes(
    catalog: ix.Catalog, tmp_path: Path
) -> None:
    made(catalog)
    content = catalog.snapshot("things", "s").path.read_bytes()
    incoming, bad = sent(catalog, "sent", content), sent(catalog, "bad", b"text")
    with paused_at(ix.StoredCollection, "copy_to", lambda: catalog.snapshot("things", "t")) as work:
        closing = Work(catalog.close)
        while not catalog.closing:
            assert closing.is_under_way
        for late in (
            lambda: catalog.create("more", CONFIG),
            lambda: catalog.drop("things"),
            lambda: catalog.snapshot("things"),
            lambda: catalog.restore("more", "s"),
        ):
            with pytest.raises((ix.CollectionNotFound, ix.CollectionBusy, ix.SnapshotNotFound)):
                late()
        assert closing.is_under_way
    closing.join()
    assert work.error is None
    for each in (incoming, bad):
        with pytest.raises(ix.CollectionNotFound):
            each.finish(None)
        each.discard()
    with pytest.raises(ix.CollectionNotFound):
        catalog.snapshots.remove("things", "s")
    again = opened_catalog(tmp_path)
    assert [each.name for each in again.snapshots.list("things")] == ["s", "t"]
    with pytest.raises(ix.CollectionExists):
        again.restore("things", "t")
    again.close()
    assert unfinished(tmp_path) == []


def test_a_snapshot_that_is_being_finished_while_its_catalog_closes_is_refused(
    catalog: ix.Catalog, tmp_path: Path
) -> None:
    made(catalog)
    incoming = sent(catalog, "sent", catalog.snapshot("things", "s").path.read_bytes())
    with paused_at(snapshots_module, "sync_file", lambda: incoming.finish(None)) as work:
        catalog.close()
    assert isinstance(work.error, ix.CollectionNotFound)
    incoming.discard()
    assert unfinished(tmp_path) == []


def test_closing_ends_a_restore_before_it_replaces_anything(
    catalog: ix.Catalog, snapshot: dict[str, Any], tmp_path: Path
) -> None:
    stored = made(catalog, count=5)
    expected = held(stored)
    with paused_at(catalog_module, "findings_of", restoring(catalog)) as work:
        closing = Work(catalog.close)
        while not catalog.closing:
            assert closing.is_under_way
    closing.join()
    assert isinstance(work.error, ix.CollectionNotFound)
    with opened(tmp_path) as again:
        assert held(again) == expected != snapshot


def test_each_operation_writes_a_file_of_its_own(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    paths = {directory.unfinished_path("x" * 128) for _ in range(10)}
    assert len(paths) == 10
    for path in paths:
        path.with_name(f"{path.name}-journal").touch()
    directory.close()
    DataDirectory(tmp_path).close()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_file_is_removed_with_its_log(tmp_path: Path) -> None:
    with closing(DataDirectory(tmp_path)) as directory:
        for each in (directory.file("things"), tmp_path / "things.sqlite-wal"):
            each.touch()
        directory.remove("things")
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
