"""Frees names of coordinates that no item uses: removes them from the database.

The vectors of one moment are read first, then those put since, the last few under the lock of
writes. Unused names are deleted under the same lock, as a change that routers follow. A write that
read its names before that change reads them again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

import numpy as np

from gcws_search import index as ix
from gcws_search.service.cluster.connections import LOCK, Connection
from gcws_search.service.cluster.database import LOCK_HEAD, SNAPSHOT, STAMP_COMMIT, Database
from gcws_search.service.errors import StoreUnavailable

_MANY_ITEMS: Final = 1 << 16  # larger collections wait until as many were removed as are left
_REST: Final = 50.0  # pause between runs, as a multiple of the last run's duration
_FAILED_REST: Final = 60.0  # seconds
_ROWS_AT_ONCE: Final = 4096
_NAMES_AT_ONCE: Final = 4096  # names deleted per lock
_FEW_ROWS: Final = 1024  # rows read under the lock
_MAX_PASSES: Final = 4

_DUE: Final = """
SELECT h.collection FROM heads AS h
WHERE removed > 0 AND rested < now() AND (items <= %b OR removed >= items)
    AND EXISTS (SELECT 1 FROM names AS n WHERE n.collection = h.collection AND stored)
"""
_STATE: Final = "SELECT head, removed FROM heads WHERE collection = %b"
_OLDER_ROUTERS: Final = """
SELECT 1 FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'gcws-search router' LIMIT 1
"""
_FREE: Final = "UPDATE heads SET head = head + 1, freed = head + 1 WHERE collection = %b"
_REST_FOR: Final = """
UPDATE heads SET removed = greatest(0, removed - %b), rested = now() + make_interval(secs => %b)
WHERE collection = %b
"""


def collections_with_unused_names(database: Database) -> list[int]:
    """Return the numbers of collections in which some names may be unused."""
    with database.connections.use() as connection:
        return connection.column(_DUE, _MANY_ITEMS)


def free_names(
    database: Database,
    number: int,  # a collection with an open slot space
    coordinates_of: Callable[[Sequence[bytes]], ix.Int32s],  # of stored vectors
    stop: threading.Event,
) -> int:
    """Delete the unused names in batches; return how many.

    Delete none while another router does, or runs an older program that would not reread names.
    """
    start = time.monotonic()
    with database.connections.lock(LOCK, number, of="%b::int, %b::int") as guard:
        if guard is None or guard.column(_OLDER_ROUTERS):
            return 0
        try:
            return _Sweep(database, number, coordinates_of, stop).run(start)
        except (ix.DamagedFile, StoreUnavailable):  # a retry would read all items again
            guard.run(_REST_FOR, 0, _FAILED_REST, number)
            raise


class _Sweep:
    """The names of one collection, and which of them items use."""

    def __init__(
        self,
        database: Database,
        number: int,
        coordinates_of: Callable[[Sequence[bytes]], ix.Int32s],
        stop: threading.Event,
    ) -> None:
        self._database = database
        self._number = number
        self._coordinates_of = coordinates_of
        self._stop = stop
        self._read = 0  # items up to this key were read

    def run(self, start: float) -> int:
        """Read all items, and delete the names that none of them uses."""
        with self._transaction(SNAPSHOT) as connection:
            removed = self._state(connection)[1]
            names = "SELECT coordinate FROM names WHERE collection = %b AND stored ORDER BY 1"
            self._names = np.array(connection.column(names, self._number), np.int64)
            self._used = np.zeros(len(self._names), bool)
            self._look(connection)
        for _ in range(_MAX_PASSES):
            with self._transaction(SNAPSHOT) as connection:
                if self._look(connection) < _FEW_ROWS:
                    break
        freed = 0
        unused = np.flatnonzero(~self._used)
        for first in range(0, len(unused), _NAMES_AT_ONCE):
            if self._stop.is_set():
                return freed
            with self._transaction() as connection:
                freed += self._delete(connection, unused[first : first + _NAMES_AT_ONCE])
        with self._database.connections.use() as connection:
            rest = _REST * (time.monotonic() - start)
            connection.run(_REST_FOR, removed, rest, self._number)
        return freed

    def _transaction(self, how: str = "") -> AbstractContextManager[Connection]:
        return self._database.connections.transaction(how, self._database.label(self._number))

    def _state(self, connection: Connection) -> tuple[int, int]:
        """Return the last key, and the number of items removed so far."""
        found = connection.run(_STATE, self._number).fetchone()
        if found is None:
            raise ix.CollectionNotFound(self._database.label(self._number))
        return found[0], found[1]

    def _look(self, connection: Connection) -> int:
        """Read the items put since the last call; return how many."""
        head, seen = self._state(connection)[0], 0
        items, read = f"items_{self._number} WHERE key > %b", self._database.read_in_order
        for found in read(connection, self._number, _ROWS_AT_ONCE, items, self._read):
            if self._stop.is_set():
                break
            seen += len(found)
            used = np.unique(self._coordinates_of([row.vector for row in found]))
            if len(self._names):
                places = np.searchsorted(self._names, used).clip(max=len(self._names) - 1)
                self._used[places[self._names[places] == used]] = True
        self._read = head
        return seen

    def _delete(self, connection: Connection, some: ix.Int64s) -> int:
        """Delete some names, except those that items use by now."""
        connection.column(LOCK_HEAD, self._number)
        self._look(connection)
        unused = self._names[some[~self._used[some]]].tolist()
        if not unused or self._stop.is_set():
            return 0
        delete = "DELETE FROM names WHERE collection = %b AND coordinate = ANY(%b)"
        connection.run(delete, self._number, unused)
        connection.run(_FREE, self._number)
        self._read += 1
        connection.run(STAMP_COMMIT, self._number, self._read, os.urandom(16))
        return len(unused)
