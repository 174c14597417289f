"""Files that are removed, replaced, cut or written by others while a collection is open.

Nothing is acknowledged after that; what was acknowledged before is there at the next start, or the
start says what is wrong.
"""

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from gcws_search import index as ix
from tests.support.index.items import DIM, held, opened_catalog, put, vector
from tests.support.index.saved_graph import FILE, read_file

LOG: Final = f"{FILE}-wal"
INDEX: Final = f"{FILE}-shm"
CONFIG: Final = ix.CollectionConfig(dim=DIM, backend=ix.ExactParams())
FIRST: Final = {f"a{n}": n + 1.0 for n in range(30)}
MORE: Final = {f"b{n}": n + 2.0 for n in range(30)}


def rename(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}.bak"))


def replace(path: Path) -> None:
    rename(path)
    shutil.copyfile(path.with_name(f"{path.name}.bak"), path)


def replace_by_earlier(path: Path) -> None:
    rename(path)
    shutil.copyfile(path.parent / "before" / path.name, path)


def overwrite_by_earlier(path: Path) -> None:
    shutil.copyfile(path.parent / "before" / path.name, path)


def cut(path: Path, share: float = 0.5) -> None:
    os.truncate(path, int(share * path.stat().st_size))


empty = partial(cut, share=0.0)


def touch_again(path: Path) -> None:
    path.unlink()
    path.touch()


def rename_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def replace_folder(path: Path) -> None:
    rename_folder(path)
    shutil.copytree(path.parent.with_name("elsewhere"), path.parent)


WHOLE: Final = "whole"
TOLD: Final = "told"

CHANGES: Final[dict[str, tuple[str, Callable[[Path], object], str]]] = {
    "the file is removed": (FILE, Path.unlink, TOLD),
    "the file is renamed": (FILE, rename, TOLD),
    "the file is replaced by a copy": (FILE, replace, TOLD),
    "the file is replaced by an earlier one": (FILE, replace_by_earlier, TOLD),
    "the file is overwritten by an earlier one": (FILE, overwrite_by_earlier, TOLD),
    "the file is cut": (FILE, cut, TOLD),
    "the file is emptied": (FILE, empty, TOLD),
    "the log is removed": (LOG, Path.unlink, WHOLE),
    "the log is renamed": (LOG, rename, WHOLE),
    "the log is replaced by a copy": (LOG, replace, WHOLE),
    "the log is replaced by an earlier one": (LOG, replace_by_earlier, WHOLE),
    "the log is replaced by an empty one": (LOG, touch_again, WHOLE),
    "the log is overwritten by an earlier one": (LOG, overwrite_by_earlier, TOLD),
    "the log is cut": (LOG, cut, TOLD),
    "the log is emptied": (LOG, empty, TOLD),
    "the log's index is removed": (INDEX, Path.unlink, WHOLE),
    "the log's index is replaced by a copy": (INDEX, replace, WHOLE),
    "the log's index is emptied": (INDEX, empty, WHOLE),
    "the lock is removed": ("lock", Path.unlink, WHOLE),
    "the lock is replaced": ("lock", touch_again, WHOLE),
    "the folder is renamed": (FILE, rename_folder, WHOLE),
    "the folder is replaced by a copy": (FILE, replace_folder, WHOLE),
}  # fmt: skip
"""The file, what is done to it, and whether the next start finds all or says what is wrong."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def opened(folder: Path) -> ix.Catalog:
    """Return an open catalog: a part of the items is in the file, a part in its log."""
    catalog = opened_catalog(folder)
    stored = catalog.create("things", CONFIG)[0]
    put(stored, FIRST)
    (folder / "before").mkdir()
    for name in (FILE, LOG):
        shutil.copyfile(folder / name, folder / "before" / name)
    stored.delete(["a0"])
    stored.finish_background_work()  # moves the log into the file
    for item_id, x in MORE.items():
        put(stored, {item_id: x})
    return catalog


def kept(catalog: ix.Catalog) -> ix.StoredCollection:
    return catalog.get("things")


def found_after(folder: Path, before: object) -> str:
    with closing(opened_catalog(folder)) as catalog:
        if "things" in catalog.failures:
            with pytest.raises(ix.DamagedFile):
                kept(catalog)
            return TOLD
        assert held(kept(catalog)) == before
        return WHOLE


def refuses_all_writes(stored: ix.StoredCollection, name: str) -> None:
    for write in (
        lambda: put(stored, {"new": 1.0}),
        lambda: put(stored, {"new": 1.0, "another": 2.0}),
        lambda: stored.delete(["a1"]),
        lambda: stored.replace_metadata(b"{}"),
        lambda: stored.set_names(["x"]),
        lambda: stored.attach(ix.ExactParams(), "other"),
    ):
        with pytest.raises(ix.DamagedFile, match=f"{name} was ") as caught:
            write()
        assert "opened again" in str(caught.value)


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
@pytest.mark.parametrize("what", CHANGES)
def test_nothing_is_acknowledged_after_a_change_and_nothing_before_it_is_lost_silently(
    what: str, opened: ix.Catalog, folder: Path, *, is_killed: bool
) -> None:
    name, change, outcome = CHANGES[what]
    stored = kept(opened)
    before = held(stored)
    change(folder / name)
    refuses_all_writes(stored, name)
    query = stored.space.from_items([vector(3.0)])
    assert stored.search(query, ix.SearchParams(limit=1))[0].ids  # memory is searched all the same
    moved = folder.with_name("elsewhere")
    there = moved if moved.exists() else folder
    if is_killed:  # what a killed process leaves behind
        copy = shutil.copytree(there, folder.with_name("killed"))
        opened.close()
        there = copy
    else:
        opened.close()
    assert found_after(there, before) == outcome
    if moved.exists() and folder.exists():  # the copy in its place was left alone
        assert found_after(folder, before) == WHOLE


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_that_no_write_has_met_is_noticed_when_the_file_is_closed(
    what: str, opened: ix.Catalog, folder: Path
) -> None:
    name, change, outcome = CHANGES[what]
    before = held(kept(opened))
    change(folder / name)
    opened.close()
    moved = folder.with_name("elsewhere")
    assert found_after(moved if moved.exists() else folder, before) == outcome


def test_a_change_during_a_commit_is_no_acknowledgement(
    opened: ix.Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = kept(opened)
    before = held(stored)
    writing = type(stored.store).write

    def removed_after(*arguments: object) -> None:
        (folder / FILE).unlink()
        writing(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(type(stored.store), "write", removed_after)
    with pytest.raises(ix.DamagedFile):
        put(stored, {"new": 1.0})
    monkeypatch.undo()
    opened.close()
    assert found_after(folder, before) == TOLD


@pytest.mark.parametrize("cure", ["remove the note", "repair", "restore", "drop"])
def test_what_was_told_can_be_mended(cure: str, opened: ix.Catalog, folder: Path) -> None:
    stored = kept(opened)
    before = held(stored)
    opened.snapshot("things", "s")
    replace_by_earlier(folder / FILE)
    refuses_all_writes(stored, FILE)
    opened.close()
    assert found_after(folder, before) == TOLD
    if cure == "remove the note":
        (folder / f"{FILE}-changed").unlink()
    if cure == "repair":
        [report] = ix.check_directory(folder, repair=True)
        assert any("was replaced while it was open" in line for line in report.findings)
    with closing(opened_catalog(folder)) as catalog:
        if cure == "restore":
            assert held(catalog.restore("things", "s", replace=True)) == before
        if cure == "drop":
            catalog.drop("things")
            put(catalog.create("things", CONFIG)[0], FIRST)
        assert put(kept(catalog), {"new": 1.0}).inserted == 1
    with closing(opened_catalog(folder)) as catalog:
        assert "new" in held(kept(catalog))
        assert not (folder / f"{FILE}-changed").exists()


def test_a_collection_whose_file_was_replaced_is_restored_while_it_is_open(
    opened: ix.Catalog, folder: Path
) -> None:
    opened.snapshot("things", "s")
    before = held(kept(opened))
    replace(folder / FILE)
    refuses_all_writes(kept(opened), FILE)
    assert held(opened.restore("things", "s", replace=True)) == before
    assert put(kept(opened), {"new": 1.0}).inserted == 1
    opened.close()
    with closing(opened_catalog(folder)) as catalog:
        assert "new" in held(kept(catalog))


def test_another_programs_checkpoint_is_no_change(opened: ix.Catalog, folder: Path) -> None:
    [[is_busy, *_]] = read_file(folder, "PRAGMA wal_checkpoint(TRUNCATE)")
    assert not is_busy
    assert put(kept(opened), {"new": 1.0}).inserted == 1
    opened.close()


def test_a_folder_stays_locked_when_its_lock_is_removed(opened: ix.Catalog, folder: Path) -> None:
    (folder / "lock").unlink()
    with pytest.raises(ix.DirectoryLocked):
        ix.Catalog.open(folder)
    opened.close()
    ix.Catalog.open(folder).close()


def test_nothing_is_made_or_removed_in_a_folder_that_took_the_place_of_ours(
    opened: ix.Catalog, folder: Path
) -> None:
    replace_folder(folder / FILE)
    for operation in (
        lambda: opened.create("more", CONFIG),
        lambda: opened.drop("things"),
        lambda: opened.snapshot("things"),
    ):
        with pytest.raises(ix.StorageFailed):
            operation()
    assert not (folder / "more.sqlite").exists()
    assert (folder / FILE).exists()
    opened.close()


def frames_of(log: bytes) -> tuple[int, list[bool]]:
    """Return the bytes of a frame of a log, and which frames end a commit."""
    frame = 24 + int.from_bytes(log[8:12], "big")
    return frame, [any(log[at + 4 : at + 8]) for at in range(32, len(log), frame)]


@pytest.fixture
def killed(opened: ix.Catalog, folder: Path) -> Path:
    """Return the folder as a killed process leaves it: later commits are in the log alone."""
    opened.close()
    with closing(opened_catalog(folder)) as catalog:
        for item_id in ("c0", "c1", "c2"):
            put(kept(catalog), {item_id: 7.0})
        return shutil.copytree(folder, folder.with_name("killed"))


def ids_and_warnings(killed: Path, log: bytes, caplog: pytest.LogCaptureFixture) -> list[object]:
    """Return the new ids that a start finds with another log, and of how much it warns."""
    folder = shutil.copytree(killed, killed.with_name("damaged"))
    (folder / LOG).write_bytes(log)
    caplog.clear()
    with closing(opened_catalog(folder)) as catalog:
        ids = [each for each in sorted(held(kept(catalog))) if each.startswith("c")]
    warnings = [each for each in caplog.messages if LOG in each]
    copies = [each.read_bytes() for each in folder.glob(f"{LOG}.damaged-*")]
    assert copies == ([log] if warnings else [])
    shutil.rmtree(folder)
    return [ids, len(warnings)]


def test_a_start_keeps_a_log_whose_later_commits_are_behind_damaged_bytes(
    killed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = (killed / LOG).read_bytes()
    size, ends = frames_of(log)
    last = len(ends) - 2 - ends[-2::-1].index(True)  # the end of the last commit but one
    for number, at in enumerate(range(32, len(log), size)):
        for place in (at, at + 8, at + 16, at + size // 2):
            changed = bytearray(log)
            changed[place] ^= 64
            commits = sum(ends[:number])
            found = ids_and_warnings(killed, bytes(changed), caplog)
            if place == at + 16 and number == last:
                continue  # the next frame would have shown that it was acknowledged
            assert found == [["c0", "c1", "c2"][:commits], int(number <= last)]
    for place in range(32):
        changed = bytearray(log)
        changed[place] ^= 64
        assert ids_and_warnings(killed, bytes(changed), caplog) == [[], 1]


def test_a_log_without_its_end_is_that_of_a_power_cut(
    killed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = (killed / LOG).read_bytes()
    assert ids_and_warnings(killed, log, caplog) == [["c0", "c1", "c2"], 0]
    size, ends = frames_of(log)
    for length in {*range(0, 80, 7), *range(32, len(log), size), *range(0, len(log), 1999)}:
        commits = sum(ends[: max(length - 32, 0) // size])
        found = ids_and_warnings(killed, log[:length], caplog)
        assert found == [["c0", "c1", "c2"][:commits], 0]
    zeros = bytes(32)
    assert ids_and_warnings(killed, zeros + bytes(len(log) - 32), caplog) == [[], 0]
    torn = log[: len(log) - size // 2]
    assert ids_and_warnings(killed, torn + bytes(size // 2), caplog)[1] == 0


def test_a_log_that_could_not_be_copied_is_left_for_the_next_start(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = bytearray((killed / LOG).read_bytes())
    log[100] ^= 1
    (killed / LOG).write_bytes(log)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with closing(opened_catalog(killed)) as catalog:
            assert isinstance(catalog.failures["things"], ix.DiskFull)
    assert (killed / LOG).read_bytes() == log
    assert not [*killed.glob(f"{LOG}.damaged-*")]
    with closing(opened_catalog(killed)) as catalog:
        assert len(held(kept(catalog))) == len(FIRST) - 1 + len(MORE)
    assert [each.read_bytes() for each in killed.glob(f"{LOG}.damaged-*")] == [log]


def test_check_tells_of_a_damaged_log(killed: Path) -> None:
    log = bytearray((killed / LOG).read_bytes())
    log[100] ^= 1
    (killed / LOG).write_bytes(log)
    for repair in (True, False):
        [report] = ix.check_directory(killed, repair=repair)
        assert any(LOG in each for each in report.findings) == repair
    with closing(opened_catalog(killed)) as catalog:
        assert len(held(kept(catalog))) == len(FIRST) - 1 + len(MORE)
