"""Named points at which a server of the test build ends itself by SIGKILL.

Nothing of this is in the program: functions of it are wrapped, and `VARIABLE`, ``NAME:N``, says at
which point, and at which time it is reached, the process ends.
"""

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gcws_search.index.collection import catalog, reclaim, recovery, writer
from gcws_search.index.collection.checkpoints import Checkpoints
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.lsh import tables
from gcws_search.index.storage import data_directory, snapshots
from gcws_search.index.storage.connection import FileConnection
from gcws_search.index.storage.data_directory import DataDirectory
from gcws_search.index.storage.snapshots import SNAPSHOTS, Snapshots
from gcws_search.index.storage.store import Store
from gcws_search.index.vectors.growing_rows import GrowingRows
from tests.crashes.wrapping import Reached, after, before

VARIABLE: Final = "GCWS_TEST_POINT"


class Countdown:
    """Ends the process when it has been called ``times`` times."""

    def __init__(self, times: int) -> None:
        self._left = times

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _at_sql(begin: str, *, done: bool, inside: bool = False) -> Callable[[Reached], None]:
    """Return a point before or after statements that begin with some words.

    With ``inside``, only of those in a transaction of several.
    """

    def install(reached: Reached) -> None:
        original = FileConnection.execute

        def execute(connection: FileConnection, *given: Any) -> sqlite3.Cursor:  # noqa: ANN401
            here = given[0].lstrip().startswith(begin)
            if here and not done:
                reached()
            cursor = original(connection, *given)
            if here and done and (connection.in_transaction or not inside):
                reached()
            return cursor

        FileConnection.execute = execute  # type: ignore[assignment, method-assign]

    return install


def _at_rename(to: Callable[[Path], bool], *, done: bool) -> Callable[[Reached], None]:
    """Return a point before or after some files get their names."""

    def install(reached: Reached) -> None:
        original = Path.rename

        def rename(path: Path, target: Path) -> Path:
            here = to(Path(target))
            if here and not done:
                reached()
            result = original(path, target)
            if here and done:
                reached()
            return result

        Path.rename = rename  # type: ignore[assignment, method-assign]

    return install


def _is_dropped(path: Path) -> bool:
    return path.name.startswith(data_directory._DROPPED)


def _is_in_snapshots(path: Path) -> bool:
    return path.parent.parent.name == SNAPSHOTS


def _is_removed(path: Path) -> bool:
    hidden = path.name.startswith(snapshots._UNFINISHED)
    return _is_in_snapshots(path) and hidden and path.suffix == data_directory.SUFFIX


def _is_snapshot(path: Path) -> bool:
    named = not path.name.startswith(snapshots._UNFINISHED)
    return _is_in_snapshots(path) and named and path.suffix == data_directory.SUFFIX


def _is_checksum(path: Path) -> bool:
    named = not path.name.startswith(snapshots._UNFINISHED)
    return _is_in_snapshots(path) and named and path.suffix != data_directory.SUFFIX


def _is_collection(path: Path) -> bool:
    return not _is_dropped(path) and not _is_in_snapshots(path)


POINTS: Final[dict[str, Callable[[Reached], None]]] = {
    "in a transaction": _at_sql("INSERT INTO items", done=True, inside=True),
    "before commit": _at_sql("COMMIT", done=False),
    "after commit, before memory": after(Store, "write"),
    "after the write, before the answer": after(writer, "apply"),
    "during a merge": after(tables, "_merge"),
    "during a compaction": after(GrowingRows, "take"),
    "before an improved index is adopted": before(MemoryCollection, "adopt"),
    "after a part of links": after(Store, "write_links"),
    "a file made, not published": after(Store, "create"),
    "a file about to be published": _at_rename(_is_collection, done=False),
    "a file named, not synced": _at_rename(_is_collection, done=True),
    "a file published": after(DataDirectory, "publish"),
    "a file about to be dropped": before(DataDirectory, "remove"),
    "a file dropped, not removed": _at_rename(_is_dropped, done=True),
    "a file removed, not answered": after(DataDirectory, "remove"),
    "a snapshot copied, not published": after(StoredCollection, "copy_to"),
    "a snapshot's checksum named, not its file": _at_rename(_is_checksum, done=True),
    "a snapshot about to be published": _at_rename(_is_snapshot, done=False),
    "a snapshot published": _at_rename(_is_snapshot, done=True),
    "a snapshot removed, not its checksum": _at_rename(_is_removed, done=True),
    "a snapshot copied back, not checked": after(Snapshots, "copy"),
    "a snapshot checked, not in its place": after(catalog, "findings_of"),
    "a collection closed, not replaced": after(catalog, "move_log"),
    "a file put back, not loaded": after(Store, "move"),
    "some pages given back": after(reclaim, "_release_some_pages"),
    "a backend stored, not answered": after(Store, "add_backend"),
    "during a migration": _at_sql("UPDATE meta SET value", done=True),
    "while codes are replaced": _at_sql("UPDATE meta SET value = ?", done=True),
    "during a load": after(recovery, "_decode"),
    "before the log is cut off": _at_sql("PRAGMA wal_checkpoint(TRUNCATE)", done=False),
    "after the log is cut off": _at_sql("PRAGMA wal_checkpoint(TRUNCATE)", done=True),
    "a snapshot written, not published": before(Snapshots, "publish"),
    "a snapshot published, not answered": after(Snapshots, "publish"),
    "while closing": before(Checkpoints, "write_all"),
}
"""What each point does to the program to be reached."""


def install(environment: dict[str, str]) -> None:
    """Let the process end where `VARIABLE` says, if it says so."""
    if VARIABLE in environment:
        name, _, times = environment[VARIABLE].rpartition(":")
        POINTS[name](Countdown(int(times)))
