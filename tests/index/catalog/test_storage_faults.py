"""Every file operation may be refused: each has an error of its own, and leaves nothing half done.

Each operation is made once for every call that it asks of the system or of SQLite; each time
another of these calls fails, and then the operation is made again.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.collection.writer import WriteResult
from gcws_search.index.contracts.errors import GcwsError
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams
from gcws_search.index.storage.schema import BackendRecord
from gcws_search.service.problems import kind_of
from tests.support.faults import ALL_FAULTS, ERRNOS, SQLITE, SYSTEM, Faults, install
from tests.support.index.items import DIM, SQUARED, held, put

MAX_CALLS: Final = 300
CONFIG: Final = CollectionConfig(dim=DIM, backend=GcwsParams(bands=2), transform=SQUARED)
MAPPED: Final = replace(CONFIG, storage="mapped")
VALUES: Final = {"a": 1.0, "b": 2.0}
RECORD: Final = BackendRecord("other", "exact", "{}", None)


@dataclass(frozen=True)
class Operation:
    """One operation of the catalog.

    ``before``: makes what the operation needs. ``after``: takes back what it did, so that it can be
    made anew.
    """

    make: Callable[[Catalog], object]
    before: Callable[[Catalog], object] = lambda _: None
    after: Callable[[Catalog], object] = lambda _: None


def things(catalog: Catalog) -> StoredCollection:
    return catalog.get("things")


def made(catalog: Catalog) -> StoredCollection:
    stored = catalog.create("things", CONFIG)[0]
    put(stored, VALUES)
    return stored


def drop(catalog: Catalog) -> None:
    catalog.drop("things")


def with_snapshot(catalog: Catalog) -> None:
    made(catalog)
    catalog.snapshot("things", "s")


def with_snapshot_alone(catalog: Catalog) -> None:
    with_snapshot(catalog)
    drop(catalog)


def uploaded(catalog: Catalog) -> None:
    with open(catalog.snapshots.get("things", "s").path, "rb") as file:
        data = file.read()
    incoming = catalog.snapshots.incoming("things", "t")
    try:
        incoming.write(data[:100])
        incoming.write(data[100:])
        incoming.finish(None)
    finally:
        incoming.discard()


def sent(catalog: Catalog) -> None:
    _, file = catalog.snapshots.open("things", "s")
    with file:
        assert file.read()


def emptied(catalog: Catalog) -> None:
    """Make the collection anew: its mapped file has no room for rows yet."""
    drop(catalog)
    catalog.create("things", MAPPED)


def put_more(catalog: Catalog) -> WriteResult:
    return put(things(catalog), {"c": 3.0})


def put_many(catalog: Catalog) -> WriteResult:
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

FAULTS: Final = (*(ERRNOS if ALL_FAULTS in os.environ else (SYSTEM,)), SQLITE)

FAILURES: Final = {"disk_full", "out_of_descriptors", "storage_failed", "snapshot_not_found"}
"""The last where a file is said to be missing: it is what that means of a snapshot."""


def agreed(catalog: Catalog, folder: Path) -> dict[str, list[str]]:
    """Return the ids of each collection's items, the same in memory and in its file."""
    found = {}
    for name in sorted(path.name.removesuffix(".sqlite") for path in folder.glob("*.sqlite")):
        with closing(sqlite3.connect(folder / f"{name}.sqlite")) as connection:
            found[name] = sorted(row[0] for row in connection.execute("SELECT id FROM items"))
    assert {line.name for line in catalog.list()} == set(found)
    for name, ids in found.items():
        assert sorted(item.id for item in catalog.get(name).page().items) == ids
        assert sorted(held(catalog.get(name))) == ids
    return found


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("what", OPERATIONS)
def test_whatever_call_fails_it_is_a_listed_problem_and_the_operation_can_be_made_again(
    what: str, fault: str, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation, faults = OPERATIONS[what], Faults(fault)
    install(faults, tmp_path, monkeypatch)
    operation.before(catalog)
    before = agreed(catalog, tmp_path)
    for turn in range(1, MAX_CALLS):
        error: GcwsError | None = None
        with faults.failing(turn):
            try:
                operation.make(catalog)
            except GcwsError as failed:
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
        assert agreed(catalog, tmp_path) == before or what == "put many"
        before = agreed(catalog, tmp_path)
        assert not [path for path in tmp_path.rglob(".*") if "things" not in path.parent.name]
        if failed_at is None:
            return
    raise AssertionError("it asks without an end")
