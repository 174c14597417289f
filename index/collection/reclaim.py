"""Reclaim the space of deleted and updated items in a collection's file.

SQLite overwrites deleted data in the file itself. But its log keeps the old pages until they are
moved into the file, and the file keeps its free pages. So a thread empties the log soon after items
are deleted or updated, and returns free pages once there are many. Before that, it removes names of
coordinates that no item has: in large collections once as many items were removed as remain.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from gcws_search.index.backends import Policies
from gcws_search.index.collection.fit import as_sent
from gcws_search.index.collection.items import View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.writer import Writer
from gcws_search.index.contracts.errors import DamagedFile, DirectoryLocked, StoreError
from gcws_search.index.storage.connection import connect, logged, sql_errors, storage_errors
from gcws_search.index.storage.data_directory import DataDirectory, bytes_of, discard, sync_file
from gcws_search.index.storage.store import Store
from gcws_search.index.threads import BackgroundTask, StoppedError, end_if

_MAX_REST_SECONDS: Final = 60.0
"""It rests twice as long after each failure, up to this time."""
_RETRY_SECONDS: Final = 0.01
"""Rest at least where others were in the way."""
_STEP_PAGES: Final = 256
"""Given back while writers wait."""
_MANY_ITEMS: Final = 1 << 16
"""Their coordinates are not looked through each time that some are removed. Up to this many names
that no item has stay in memory."""
_AT_ONCE: Final = 4096
"""Items that are looked through between two looks at whether to stop, and names that are removed
while writers wait."""
_log = logging.getLogger(__name__)


class Reclaimer(BackgroundTask):
    """Reclaims space in one collection's file.

    It pauses before each step, for longer after each storage failure.
    """

    name = "reclaimer"

    def __init__(
        self, store: Store, memory: MemoryCollection, writer: Writer, policies: Policies
    ) -> None:
        super().__init__()
        self._store = store
        self._memory = memory
        self._policies = policies
        self._writer = writer
        self._removed = 1  # items removed since the last search for unused names; 1 at the start
        self._due = False
        self._rest_seconds = policies.reclaim_rest_seconds

    def request(self, removed: int = 0) -> None:
        """Request a run after a delete or an update; any thread."""
        self._removed += removed
        self._due = True
        self.start()

    def is_due(self) -> bool:
        """Return whether something has been deleted or updated since the last step."""
        return self._due

    def step(self) -> None:
        """Pause, then reclaim; closing the file empties the log if this is stopped."""
        self.skip_pause.wait(self._rest_seconds)
        if self.stopping.is_set():
            return
        self._due = False
        self._rest_seconds = (
            self._policies.reclaim_rest_seconds
            if self._try_reclaim()
            else min(2.0 * self._rest_seconds, _MAX_REST_SECONDS)
        )

    def _try_reclaim(self) -> bool:
        """Run what is due; return False if the storage failed and it remains due.

        If somebody waits for this thread, a failed run is not repeated.
        """
        try:
            if not self._reclaim():
                self._due = True
                time.sleep(_RETRY_SECONDS)
        except StoreError as error:
            _log.warning(
                "file of collection %r: its space is not reclaimed (%s)", self._store.name, error
            )
        except Exception:
            _log.exception("collection %r: its space is not reclaimed", self._store.name)
        else:
            return True
        self._due = self._due or not self.skip_pause.is_set()
        return False

    def _reclaim(self) -> bool:
        """Run what is due; return False if other readers or writers prevented it."""
        name, path = self._store.name, self._store.path
        self._store.require_same_files()
        with suppress(StoppedError):
            self._free_names()
        try:
            # No other thread waits for this one.
            opening = partial(connect, path, *logged("normal"), "busy_timeout = 0")
            with sql_errors(name, path), closing(opening()) as connection:
                pages = _number(connection, "page_count")
                needed = max(self._policies.min_free_pages, pages // self._policies.free_share)
                if _number(connection, "freelist_count") > needed:
                    self._release_pages(connection)
                # Most of the log is moved while others write, the rest while they wait.
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                return (
                    self._writer.run_between_changes(partial(_empty_log, connection)) is not False
                )
        except DirectoryLocked:
            return False

    def _free_names(self) -> None:
        """Remove the names of coordinates that no item has, if there may be many."""
        memory, names = self._memory, self._memory.names
        if not (names.is_open and len(names) and self._removed):
            return
        if self._removed < memory.stored_view.count > _MANY_ITEMS:
            return
        self._removed = 0
        view = self._writer.run_between_changes(self._watch_names)
        try:
            if view is not None:
                self._find_used_names(view)
                # The last name stays: from it a start knows which coordinates are free.
                stored = sorted(each.coordinate for each in names.listed())[:-1]
                unused = names.unused(stored)
                for first in range(0, len(unused), _AT_ONCE):
                    some = unused[first : first + _AT_ONCE]
                    self._writer.run_between_changes(partial(self._remove_names, some))
        finally:
            names.used = None

    def _watch_names(self) -> View:
        self._memory.names.forget_idle(_MANY_ITEMS)
        self._memory.names.used = set()
        return self._memory.stored_view

    def _find_used_names(self, view: View) -> None:
        """Record the coordinates of a view's items."""
        rows = np.flatnonzero(view.alive)
        for first in range(0, len(rows), _AT_ONCE):
            end_if(self.stopping)
            _, raw = as_sent(view, self._store, rows[first : first + _AT_ONCE])
            self._memory.names.note_used(np.unique(raw.indices).tolist())

    def _remove_names(self, coordinates: Sequence[int]) -> None:
        """Remove the names of some coordinates, except those that items have acquired meanwhile."""
        end_if(self.stopping)
        unused = self._memory.names.unused(coordinates)
        self._store.remove_names(unused)
        self._memory.names.mark_unstored(unused)

    def _release_pages(self, connection: sqlite3.Connection) -> None:
        step = partial(_release_some_pages, connection, _STEP_PAGES)
        resumed = time.perf_counter()
        while not self.stopping.is_set() and self._writer.run_between_changes(step):
            # Let others use the file for as long as this took.
            time.sleep(time.perf_counter() - resumed)
            resumed = time.perf_counter()


def _release_some_pages(connection: sqlite3.Connection, pages: int) -> bool:
    """Return some free pages to the system; False if none are left, or the file cannot."""
    before = _number(connection, "page_count")
    # It takes one step per page; `execute` makes only one step for a statement without columns.
    connection.executescript(f"PRAGMA incremental_vacuum({pages})")
    return _number(connection, "page_count") < before


def move_log(path: Path, name: str, busy_seconds: float) -> None:
    """Move everything in the log of a closed file into the file.

    Raises DiskFull, DamagedFile, DirectoryLocked (another process still reads an earlier state of
        the file).
    """
    opening = partial(connect, path, *logged("full"), busy_seconds=busy_seconds)
    with sql_errors(name, path), closing(opening()) as connection:
        if _number(connection, "wal_checkpoint(FULL)") != 0:
            raise DirectoryLocked(path.parent, "a program that reads the file")


def _empty_log(connection: sqlite3.Connection) -> bool:
    """Move the whole log into the file and truncate it; False if another reader still uses it."""
    return _number(connection, "wal_checkpoint(TRUNCATE)") == 0


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    row: Any = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(row[0])


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """The result of rewriting a file without its free pages.

    before, after: bytes on the disk.
    error: the reason if it was not rewritten.
    """

    name: str
    before: int
    after: int
    error: str | None = None


def vacuum_directory(path: Path) -> Iterator[Vacuumed]:
    """Rewrite every file of a data directory without free pages; yield each result, by name.

    A file created before format 4 can return free pages by itself only after this.

    Raises DirectoryLocked.
    """
    with closing(DataDirectory(path)) as directory:
        for name in directory.names():
            before = after = 0
            error = None
            copy = directory.unfinished_path(name)
            try:
                with storage_errors(name):
                    before = after = bytes_of(directory.file(name))
                    _vacuum(directory, name, copy)
                    after = bytes_of(directory.file(name))
            except StoreError as failure:
                error = str(failure)
            finally:
                discard(copy)
            yield Vacuumed(name, before, after, error)


def _vacuum(directory: DataDirectory, name: str, copy: Path) -> None:
    path = directory.file(name)
    with closing(Store(path, name)) as store:
        store.copy_to(copy)
        count = len(store)
    with closing(Store(copy, name)) as store:
        rows = sum(len(chunk.ids) for chunk in store.chunks())  # this also compares their checksums
    if rows != count:
        raise DamagedFile(name, f"it has {rows} rows, and {count} ids")
    if bytes_of(path) != path.stat().st_size:
        raise DirectoryLocked(directory.path, "a program that has the file open")
    sync_file(copy)
    directory.publish(copy, name)
