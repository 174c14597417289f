"""Vacuum and repair survive every failure of the storage: nothing is lost, and the next try works.

Each is done anew many times, and each time another call that it asks of the system, or of SQLite,
fails.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from gcws_search.index.collection.check import check_directory
from gcws_search.index.collection.reclaim import vacuum_directory
from gcws_search.index.contracts.errors import GcwsError
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams
from gcws_search.service.problems import kind_of
from tests.support.faults import ALL_FAULTS, ERRNOS, SQLITE, SQLITE_CODES, SYSTEM, Faults, install
from tests.support.index.items import DIM, held, holding, opened_catalog, put
from tests.support.index.saved_graph import FILE, change_file, some

MAX_CALLS: Final = 300
STEP: Final = 1 if ALL_FAULTS in os.environ else 3
"""One call in so many is made to fail."""
SOUND: Final = {name: x for name, x in some(12).items() if name != "i7"}
FAULTS: Final = (*ERRNOS, *SQLITE_CODES) if ALL_FAULTS in os.environ else (SYSTEM, SQLITE)
FAILURES: Final = {"disk_full", "out_of_descriptors", "storage_failed"}


def vacuumed(folder: Path) -> str | None:
    """Write the files of a folder anew; return why one could not be."""
    [line] = vacuum_directory(folder)
    return line.error


def repaired(folder: Path) -> str | None:
    """Repair the files of a folder; return why one could not be."""
    [report] = check_directory(folder, repair=True, threads=1)
    return None if report.repaired else report.findings[-1]


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """Return a folder with a closed file of `SOUND`, and an item that was deleted."""
    folder = tmp_path / "sound"
    with closing(opened_catalog(folder)) as catalog:
        config = CollectionConfig(dim=DIM, backend=GcwsParams(bands=2))
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
    for turn in range(1, MAX_CALLS, STEP):
        copy = folder / f"turn {turn}"
        shutil.copytree(template, copy)
        with monkeypatch.context() as patched:
            install(faults, copy, patched)
            yield turn, copy
        if faults.failed is None:
            assert turn > 1
            return
    raise AssertionError("it asks without an end")


def tried(work: Callable[[Path], str | None], folder: Path) -> str | None:
    """Return why some work could not be done, None where it was; fail where that is no problem."""
    try:
        return work(folder)
    except OSError as error:  # of the folder itself, which the command names
        return str(error)
    except GcwsError as error:
        failed = error
    assert kind_of(failed).code in FAILURES
    return str(failed)


def assert_is_whole(folder: Path) -> None:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
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
