"""Named points at which a server of the test build ends itself by SIGKILL.

Nothing of this is in the program: functions of it are wrapped, and `VARIABLE`, ``NAME:N``, says at
which point, and at which time it is reached, the process ends.
"""

import os
import signal
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


def _at_sql(
    wrap: Callable[..., Callable[[Reached], None]], begin: str, *, inside: bool = False
) -> Callable[[Reached], None]:
    """Return a point before or after statements; ``inside``: those of a transaction of several."""

    def is_meant(connection: FileConnection, statement: str, *_: Any) -> bool:  # noqa: ANN401
        is_here = statement.lstrip().startswith(begin)
        return is_here and (connection.in_transaction or not inside)

    return wrap(FileConnection, "execute", is_meant)


def _at_rename(
    wrap: Callable[..., Callable[[Reached], None]],
    *,
    of_snapshot: bool = True,
    hidden: bool = False,
    checksum: bool = False,
) -> Callable[[Reached], None]:
    """Return a point before or after files get names of this kind."""
    prefix = snapshots._UNFINISHED if of_snapshot else data_directory._DROPPED

    def is_meant(_: Path, target: Path) -> bool:
        return (
            (target.parent.parent.name == SNAPSHOTS) is of_snapshot
            and target.name.startswith(prefix) is hidden
            and (target.suffix != data_directory.SUFFIX) is checksum
        )

    return wrap(Path, "rename", is_meant)


POINTS: Final[dict[str, Callable[[Reached], None]]] = {
    "in a transaction": _at_sql(after, "INSERT INTO items", inside=True),
    "before commit": _at_sql(before, "COMMIT"),
    "after commit, before memory": after(Store, "write"),
    "after the write, before the answer": after(writer, "apply"),
    "during a merge": after(tables, "_merge"),
    "during a compaction": after(GrowingRows, "take"),
    "before an improved index is adopted": before(MemoryCollection, "adopt"),
    "after a part of links": after(Store, "write_links"),
    "a file made, not published": after(Store, "create"),
    "a file about to be published": _at_rename(before, of_snapshot=False),
    "a file named, not synced": _at_rename(after, of_snapshot=False),
    "a file about to be replaced": before(
        Path, "rename", lambda _, target: target.suffix == data_directory.SUFFIX and target.exists()
    ),
    "a file published": after(DataDirectory, "publish"),
    "a file about to be dropped": before(DataDirectory, "remove"),
    "a file dropped, not removed": _at_rename(after, of_snapshot=False, hidden=True),
    "a file removed, not answered": after(DataDirectory, "remove"),
    "a snapshot copied, not published": after(StoredCollection, "copy_to"),
    "a snapshot's checksum named, not its file": _at_rename(after, checksum=True),
    "a snapshot about to be published": _at_rename(before),
    "a snapshot published": _at_rename(after),
    "a snapshot removed, not its checksum": _at_rename(after, hidden=True),
    "a snapshot copied back, not checked": after(Snapshots, "copy"),
    "a snapshot checked, not in its place": after(catalog, "findings_of"),
    "a collection closed, not replaced": after(catalog, "move_log"),
    "a file put back, not loaded": after(Store, "move"),
    "some pages given back": after(reclaim, "_release_some_pages"),
    "a backend stored, not answered": after(Store, "add_backend"),
    "during a migration": _at_sql(after, "UPDATE meta SET value"),
    "while codes are replaced": _at_sql(after, "UPDATE meta SET value = ?"),
    "while weights are replaced": _at_sql(after, "UPDATE backends SET notes = NULL", inside=True),
    "weights replaced, not in memory": before(MemoryCollection, "take_over"),
    "some codes replaced": after(Store, "replace_codes"),
    "during a load": after(recovery, "_decode"),
    "before the log is cut off": _at_sql(before, "PRAGMA wal_checkpoint(TRUNCATE)"),
    "after the log is cut off": _at_sql(after, "PRAGMA wal_checkpoint(TRUNCATE)"),
    "a snapshot written, not published": before(Snapshots, "publish"),
    "a snapshot published, not answered": after(Snapshots, "publish"),
    "while closing": before(Checkpoints, "write_all"),
}
"""What each point does to the program to be reached."""


def install(environment: dict[str, str]) -> None:
    """Let the process end where `VARIABLE` says, if it says so."""
    if VARIABLE in environment:
        name, _, times = environment[VARIABLE].rpartition(":")
        left = iter(range(int(times) - 1, -1, -1))

        def end_in_time() -> None:
            if next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        POINTS[name](end_in_time)
