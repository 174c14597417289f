"""What replaces a collection, or becomes a snapshot: whole, on the disk, or not at all."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import pytest

from gcws_search.index import Policies
from gcws_search.index.collection import catalog as catalog_module
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.contracts.errors import DamagedFile, DirectoryLocked, DiskFull
from gcws_search.index.contracts.policies import ReclaimPolicy
from gcws_search.index.storage import data_directory, snapshots
from tests.support.index.items import held, holding, made, put, reopened


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


@pytest.mark.parametrize("policies", [Policies(reclaim=ReclaimPolicy(busy_seconds=0.1))])
def test_what_only_the_log_holds_is_kept_while_it_cannot_be_moved_into_the_file(
    catalog: Catalog, tmp_path: Path
) -> None:
    stored = made(catalog, count=2)
    catalog.snapshot("things", "s")
    old = held(stored)
    with read_meanwhile(tmp_path / "things.sqlite"):
        put(stored, {"later": 9})
        with pytest.raises(DirectoryLocked):
            catalog.restore("things", "s", replace=True)
        expected = {**old, **holding({"later": 9})}
        assert held(catalog.get("things")) == expected
        assert reopened(catalog.get("things"), tmp_path) == expected
    assert held(catalog.restore("things", "s", replace=True)) == old


@pytest.mark.parametrize("sound", [True, False])
def test_a_file_that_cannot_be_put_in_its_place_leaves_the_old_one_with_its_log(
    sound: bool, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
            with pytest.raises(DiskFull):
                catalog.restore("things", "s", replace=True)
        assert set(held(catalog.get("things"))) == {"i0", "i1", "later"}
        assert set(reopened(catalog.get("things"), tmp_path)) == {"i0", "i1", "later"}
    assert {path.name for path in tmp_path.glob(".*")} == set()


def damaged(_path: Path, name: str, _policy: ReclaimPolicy) -> None:
    raise DamagedFile(name, "its log cannot be read")


def test_a_reader_of_the_replaced_file_leaves_the_new_one_its_log(
    catalog: Catalog, tmp_path: Path
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
    restoring: bool, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
