"""A kill between any two steps of an operation leaves a collection and its snapshots whole.

Before each call that an operation makes of the system or of SQLite its files are copied, wherever
they have changed: that is what a kill at this moment leaves. A start on each copy finds what there
was before the operation, or what there is after it, and removes everything unfinished.
"""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.storage.snapshots import sha256_of
from tests.index.catalog.test_storage_faults import OPERATIONS, Operation, put_more, with_snapshot
from tests.support.faults import SYSTEM, Faults, install
from tests.support.index.items import held, opened_catalog

State = tuple[dict[str, list[str]], list[tuple[str, str]]]
"""Ids of the items by collection; names and checksums of the snapshots of "things"."""


def changed_and_snapshot(catalog: Catalog) -> None:
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


def state_of(catalog: Catalog) -> State:
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
