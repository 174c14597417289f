"""Every call of the storage may fail, or be the last: nothing is lost or half done.

Each operation is made once for every call that it asks of the system or of SQLite; each time
another of these calls fails, or the process ends before it, and then the operation is made again.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from gcws_search import index as ix
from gcws_search.index.storage.graph_parts import PART_SEQUENCES
from gcws_search.index.storage.snapshots import sha256_of
from gcws_search.service.problems import kind_of
from tests.support.faults import ALL_FAULTS, ERRNOS, SQLITE, SQLITE_CODES, SYSTEM, Faults, install
from tests.support.index.attached_backends import LANDMARKS
from tests.support.index.fake_backend import backend_of
from tests.support.index.items import (
    DIM,
    SQUARED,
    batch,
    held,
    holding,
    ids_of,
    opened_catalog,
    put,
)
from tests.support.index.saved_graph import FILE, change_file, copied, opened, read_file, some

MAX_CALLS: Final = 300
CONFIG: Final = ix.CollectionConfig(dim=DIM, backend=ix.GcwsParams(bands=2), transform=SQUARED)
MAPPED: Final = replace(CONFIG, storage="mapped")
VALUES: Final = {"a": 1.0, "b": 2.0}
RECORD: Final = ix.BackendRecord("other", "exact", "{}", None)


@dataclass(frozen=True)
class Operation:
    make: Callable[[ix.Catalog], object]
    before: Callable[[ix.Catalog], object] = lambda _: None
    """Makes what the operation needs."""
    after: Callable[[ix.Catalog], object] = lambda _: None
    """Takes back what it did, so that it can be made anew."""


def things(catalog: ix.Catalog) -> ix.StoredCollection:
    return catalog.get("things")


def made(catalog: ix.Catalog) -> ix.StoredCollection:
    stored = catalog.create("things", CONFIG)[0]
    put(stored, VALUES)
    return stored


def drop(catalog: ix.Catalog) -> None:
    catalog.drop("things")


def with_snapshot(catalog: ix.Catalog) -> None:
    made(catalog)
    catalog.snapshot("things", "s")


def with_snapshot_alone(catalog: ix.Catalog) -> None:
    with_snapshot(catalog)
    drop(catalog)


def uploaded(catalog: ix.Catalog) -> None:
    with open(catalog.snapshots.get("things", "s").path, "rb") as file:
        data = file.read()
    incoming = catalog.snapshots.incoming("things", "t")
    try:
        incoming.write(data[:100])
        incoming.write(data[100:])
        incoming.finish(None)
    finally:
        incoming.discard()


def sent(catalog: ix.Catalog) -> None:
    _, file = catalog.snapshots.open("things", "s")
    with file:
        assert file.read()


def emptied(catalog: ix.Catalog) -> None:
    """Make the collection anew: its mapped file has no room for rows yet."""
    drop(catalog)
    catalog.create("things", MAPPED)


def put_more(catalog: ix.Catalog) -> ix.WriteResult:
    return put(things(catalog), {"c": 3.0})


def put_many(catalog: ix.Catalog) -> ix.WriteResult:
    return put(things(catalog), {"a": 5.0, **{f"n{n}": n + 1.0 for n in range(20)}})


OPERATIONS: Final = {
    "create": Operation(lambda c: c.create("things", CONFIG), after=drop),
    "drop": Operation(drop, before=made, after=made),
    "list": Operation(lambda c: c.list(), before=made),
    "describe": Operation(lambda c: things(c).describe(), before=made),
    "put one": Operation(
        put_more, before=made, after=lambda c: things(c).delete(["c"])
    ),
    "put many": Operation(put_many, before=made),
    "put mapped": Operation(
        lambda c: put(things(c), VALUES), before=lambda c: c.create("things", MAPPED),
        after=emptied,
    ),
    "delete": Operation(
        lambda c: things(c).delete(["a", "b"]), before=made,
        after=lambda c: put(things(c), VALUES),
    ),
    "get": Operation(lambda c: things(c).get("a"), before=made),
    "page": Operation(lambda c: things(c).page(with_vector=True), before=made),
    "attach": Operation(
        lambda c: things(c).store.add_backend(RECORD), before=made,
        after=lambda c: things(c).store.remove_backend(RECORD.name),
    ),
    "metadata": Operation(
        lambda c: things(c).replace_metadata(b'{"a":1}'), before=made,
        after=lambda c: things(c).replace_metadata(None),
    ),
    "snapshot": Operation(
        lambda c: c.snapshot("things", "s"), before=made,
        after=lambda c: c.snapshots.remove("things", "s"),
    ),
    "list snapshots": Operation(lambda c: c.snapshots.list("things"), before=with_snapshot),
    "get snapshot": Operation(lambda c: c.snapshots.get("things", "s"), before=with_snapshot),
    "download": Operation(sent, before=with_snapshot),
    "upload": Operation(
        uploaded, before=with_snapshot, after=lambda c: c.snapshots.remove("things", "t")
    ),
    "remove snapshot": Operation(
        lambda c: c.snapshots.remove("things", "s"), before=with_snapshot,
        after=lambda c: c.snapshot("things", "s"),
    ),
    "restore": Operation(
        lambda c: c.restore("things", "s"), before=with_snapshot_alone, after=drop
    ),
    "restore over": Operation(
        lambda c: c.restore("things", "s", replace=True), before=with_snapshot
    ),
}  # fmt: skip

FAULTS: Final = (*ERRNOS, *SQLITE_CODES) if ALL_FAULTS in os.environ else (SYSTEM, SQLITE)

FAILURES: Final = {"disk_full", "out_of_descriptors", "storage_failed", "snapshot_not_found"}
"""The last where a file is said to be missing: it is what that means of a snapshot."""


def agreed(catalog: ix.Catalog, folder: Path) -> dict[str, list[str]]:
    """Return the ids of each collection's items, the same in memory and in its file."""
    found = {}
    for name in sorted(path.name.removesuffix(".sqlite") for path in folder.glob("*.sqlite")):
        rows = read_file(folder, "SELECT id FROM items", f"{name}.sqlite")
        found[name] = sorted(item_id for [item_id] in rows)
    assert {line.name for line in catalog.list()} == set(found)
    for name, ids in found.items():
        assert sorted(item.id for item in catalog.get(name).page().items) == ids
        assert sorted(held(catalog.get(name))) == ids
    return found


def each_call(faults: Faults, step: int = 1) -> Iterator[int]:
    """Yield the number of a call that is to fail, until no call has this number."""
    for turn in range(1, MAX_CALLS, step):
        yield turn
        if faults.failed is None:
            return
    raise AssertionError("it asks without an end")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("what", OPERATIONS)
def test_whatever_call_fails_it_is_a_listed_problem_and_the_operation_can_be_made_again(
    what: str, fault: str, catalog: ix.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation, faults = OPERATIONS[what], Faults(fault)
    install(faults, tmp_path, monkeypatch)
    operation.before(catalog)
    before = agreed(catalog, tmp_path)
    for turn in each_call(faults):
        error: ix.GcwsError | None = None
        with faults.failing(turn):
            try:
                operation.make(catalog)
            except ix.GcwsError as failed:
                error = failed
            failed_at = faults.failed
        if error is not None:
            assert kind_of(error).code in FAILURES, failed_at
            catalog.load()
            now = agreed(catalog, tmp_path)
            assert now == before, failed_at
            operation.make(catalog)
        agreed(catalog, tmp_path)
        operation.after(catalog)
        after = agreed(catalog, tmp_path)
        assert after == before or what == "put many"
        before = after
        assert not [path for path in tmp_path.rglob(".*") if "things" not in path.parent.name]


STEP: Final = 1 if ALL_FAULTS in os.environ else 5
"""One call in so many is made to fail."""
SOUND: Final = {name: x for name, x in some(12).items() if name != "i7"}


def vacuumed(folder: Path) -> str | None:
    """Write the files of a folder anew; return why one could not be."""
    [line] = ix.vacuum_directory(folder)
    return line.error


def repaired(folder: Path) -> str | None:
    """Repair the files of a folder; return why one could not be."""
    [report] = ix.check_directory(folder, repair=True)
    return None if report.repaired else report.findings[-1]


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """Return a folder with a closed file of `SOUND`, and an item that was deleted."""
    folder = tmp_path / "sound"
    with closing(opened_catalog(folder)) as catalog:
        config = ix.CollectionConfig(dim=DIM, backend=ix.GcwsParams(bands=2))
        stored = catalog.create("things", config)[0]
        put(stored, some(12))
        stored.delete(["i7"])
    return folder


@pytest.fixture
def damaged(tmp_path: Path, sound: Path) -> Path:
    """Return a folder with a closed file of `SOUND`, and an item that is not what was written."""
    folder = tmp_path / "damaged"
    shutil.copytree(sound, folder)
    with closing(opened_catalog(folder)) as catalog:
        put(catalog.get("things"), {"i7": 8.0})
    change_file(folder, "UPDATE items SET payload = '{}' WHERE id = 'i7'")
    return folder


def turns(
    faults: Faults, template: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[int, Path]]:
    """Yield the number of a call and a copy of a folder, until no call has this number."""
    for turn in each_call(faults, STEP):
        copy = folder / f"turn {turn}"
        shutil.copytree(template, copy)
        with monkeypatch.context() as patched:
            install(faults, copy, patched)
            yield turn, copy
    assert turn > 1


def tried(work: Callable[[Path], str | None], folder: Path) -> str | None:
    """Return why some work could not be done, None where it was; fail where that is no problem."""
    try:
        return work(folder)
    except OSError as error:  # of the folder itself, which the command names
        return str(error)
    except ix.GcwsError as error:
        failed = error
    assert kind_of(failed).code in FAILURES - {"snapshot_not_found"}
    return str(failed)


def assert_is_whole(folder: Path) -> None:
    assert read_file(folder, "PRAGMA integrity_check") == [("ok",)]
    with closing(opened_catalog(folder)) as catalog:
        assert held(catalog.get("things")) == holding(SOUND)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_vacuum_that_fails_leaves_the_file_and_works_at_the_next_try(
    fault: str, sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(fault)
    for turn, folder in turns(faults, sound, tmp_path, monkeypatch):
        with faults.failing(turn):
            error = tried(vacuumed, folder)
            failed_at = faults.failed
        assert error is None or failed_at
        assert vacuumed(folder) is None, failed_at
        assert {path.name for path in folder.iterdir()} == {FILE, "lock"}, failed_at
        assert_is_whole(folder)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_repair_that_fails_leaves_the_file_and_works_at_the_next_try(
    fault: str, damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(fault)
    for turn, folder in turns(faults, damaged, tmp_path, monkeypatch):
        before = (folder / FILE).read_bytes()
        with faults.failing(turn):
            error = tried(repaired, folder)
            failed_at = faults.failed
        assert error is None or "snapshot" not in error, failed_at
        asides = sorted(folder.glob(f"{FILE}.damaged-*"))
        assert all(aside.read_bytes() == before for aside in asides), failed_at
        if error is not None and (folder / FILE).read_bytes() == before:
            assert repaired(folder) is None, failed_at
        assert (folder / f"{FILE}.damaged-1").read_bytes() == before
        assert not list(folder.glob(".*")), failed_at
        assert_is_whole(folder)


State = tuple[dict[str, list[str]], list[tuple[str, str]]]
"""Ids of the items by collection; names and checksums of the snapshots of "things"."""


def changed_and_snapshot(catalog: ix.Catalog) -> None:
    with_snapshot(catalog)
    put_more(catalog)


KILLED = {
    name: OPERATIONS[name]
    for name in ("create", "drop", "snapshot", "upload", "remove snapshot", "restore")
} | {"restore over": Operation(OPERATIONS["restore over"].make, before=changed_and_snapshot)}


class Copies(Faults):
    """Copies a folder before calls, as often as its files have changed."""

    def __init__(self, folder: Path, copies: Path) -> None:
        super().__init__(SYSTEM)
        self._folder, self._copies = folder, copies
        self._last: object = None
        self._is_on = False
        self.reached: list[tuple[str, Path]] = []

    def switch(self, *, on: bool) -> None:
        self._is_on = on

    def of_system(self, what: str) -> None:
        self._copy(what)

    def of_sqlite(self, what: str) -> None:
        self._copy(what)

    def _copy(self, what: str) -> None:
        if not self._is_on:
            return
        self._is_on = False  # copying makes calls, too
        stats = [(path, path.stat()) for path in sorted(self._folder.rglob("*"))]
        present = [(path, stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
        if present != self._last:
            self._last = present
            copy = self._copies / str(len(self.reached))
            shutil.copytree(self._folder, copy)
            self.reached.append((what, copy))
        self._is_on = True


def state_of(catalog: ix.Catalog) -> State:
    items = {line.name: sorted(held(catalog.get(line.name))) for line in catalog.list()}
    snapshots = catalog.snapshots.list("things")
    assert all(sha256_of(each.path) == each.sha256 for each in snapshots)
    return items, sorted((each.name, each.sha256) for each in snapshots)


@pytest.mark.parametrize("what", KILLED)
def test_a_kill_before_any_call_leaves_what_was_or_what_is_to_be(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, operation = tmp_path / "data", KILLED[what]
    copies = Copies(folder, tmp_path)
    with monkeypatch.context() as patched, closing(opened_catalog(folder)) as catalog:
        install(copies, folder, patched)
        operation.before(catalog)
        before = state_of(catalog)
        copies.switch(on=True)
        operation.make(catalog)
        copies.switch(on=False)
        after = state_of(catalog)
    assert len(copies.reached) > 1
    found = []
    for reached, copy in copies.reached:
        with closing(opened_catalog(copy)) as again:
            state = state_of(again)
            assert state in (before, after), reached
            found.append(state)
            hidden = [path for path in copy.rglob(".*") if path.is_file()]
            assert not hidden, reached
            assert not [path for path in copy.glob("things*") if not state[0]], reached
    assert found[0] == before


_FREE_PAGES: Final = slice(36, 40)
"""Where the header of a file counts its free pages."""

each_code = pytest.mark.parametrize("code", SQLITE_CODES if ALL_FAULTS in os.environ else [SQLITE])


def collections(
    faults: Faults,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    policies: ix.Policies = ix.POLICIES,
) -> Iterator[tuple[int, ix.Catalog, ix.StoredCollection]]:
    """Yield the number of a call and a new collection, until no call has this number."""
    install(faults, folder, monkeypatch)
    for turn in each_call(faults):
        with closing(opened_catalog(folder / str(turn), policies)) as catalog:
            config = ix.CollectionConfig(dim=DIM, backend=ix.ExactParams())
            yield turn, catalog, catalog.create("things", config)[0]
    assert turn > 1


def use(stored: ix.StoredCollection) -> None:
    put(stored, {"used": 0.5, "gone": 0.25})
    assert stored.delete(["gone"]) == 1
    [result] = stored.search(batch(stored, ["query"], [0.5]).vectors, ix.SearchParams(limit=1))
    assert ids_of(result) == ["used"]


@each_code
@pytest.mark.usefixtures("linking")
def test_links_that_could_not_be_written_are_by_the_next_try(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(code, "checkpoint")
    values = some(2 * PART_SEQUENCES + 1)
    for turn, _, stored in collections(faults, tmp_path, monkeypatch):
        put(stored, values)
        with faults.failing(turn):
            stored.checkpoints.bring_up_to_date()
            use(stored)
        stored.checkpoints.bring_up_to_date()
        with opened(copied(tmp_path / str(turn), tmp_path / f"{turn} after a kill")) as again:
            assert backend_of(again).linked == 0
            assert held(again) == held(stored) == holding(values | {"used": 0.5})


@each_code
def test_what_could_not_be_reclaimed_is_without_a_further_delete(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = ix.Policies(min_free_pages=0, free_share=1 << 20, reclaim_rest_seconds=0.01)
    faults = Faults(code, "reclaimer")
    values = some(600)
    for turn, _, stored in collections(faults, tmp_path, monkeypatch, policies):
        put(stored, values)
        stored.finish_background_work()
        path = tmp_path / str(turn) / "things.sqlite"
        with faults.failing(turn):
            stored.delete([*values][1:])
            use(stored)
            thread = stored.reclaimer.thread
            if thread is not None:
                thread.join()
        assert not stored.reclaimer.is_running
        assert path.read_bytes()[_FREE_PAGES] == bytes(4)
        assert path.with_name(f"{path.name}-wal").stat().st_size == 0
        assert held(stored) == holding({"i0": 1.0, "used": 0.5})


@each_code
def test_what_could_not_be_noted_of_an_index_is_when_it_is_closed(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = Faults(code, "optimizer")
    for turn, catalog, stored in collections(faults, tmp_path, monkeypatch):
        put(stored, some(10))
        stored.attach(LANDMARKS)
        drawn = notes(stored)
        with faults.failing(turn), caplog.at_level(logging.CRITICAL):
            put(stored, some(100))
            stored.optimizer.finish()
            use(stored)
        assert (learned := notes(stored)) != drawn
        catalog.close()
        with opened(tmp_path / str(turn)) as again:
            assert notes(again) == learned
            assert held(again) == holding(some(100) | {"used": 0.5})
            put(again, some(1000))
            again.optimizer.finish()
            assert notes(again) != learned


def notes(stored: ix.StoredCollection) -> str:
    """Return what is known of the attached backend."""
    return ix.text_of(stored.memory.view.attached[LANDMARKS.kind].notes)
