"""The collections of a cluster, and what each keeps besides items."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import orjson

from gcws_search import index as ix
from gcws_search.service.cluster.contract import BackendRow, CollectionRow, Moment
from gcws_search.service.cluster.database import schema
from gcws_search.service.cluster.database.connections import Connection, Connections
from gcws_search.service.cluster.database.primary import LOCK
from gcws_search.service.http.errors import StoreUnavailable

_READ: Final = """
SELECT number, name, config, algorithm_version, head
FROM collections JOIN heads ON collection = number
"""
_WRITE_LOAD: Final = """
INSERT INTO loads (collection, key, changed, progress, checksum) VALUES (%b, %b, %b, %b, %b)
ON CONFLICT (collection, key) DO UPDATE
SET changed = excluded.changed, progress = excluded.progress, checksum = excluded.checksum
"""

_TABLES: Final = "commits", "gone", "names", "loads", "backends"
"""What else is of one collection."""


class CollectionTables:
    """Collections by number and name, and what callers keep with them.

    Parameters
    ----------
    connections : Connections
    identity : str
        Of the cluster.
    buckets : int
        Parts of each collection's items.
    """

    def __init__(self, connections: Connections, identity: str, buckets: int) -> None:
        self.connections = connections
        self.identity = identity
        self.buckets = buckets
        self._names: dict[int, str] = {}

    def label(self, number: int) -> str:
        """Return the name of a collection for errors, or its number where no name was read."""
        return self._names.get(number, str(number))

    def collections(self) -> list[CollectionRow]:
        """Return all collections, by name."""
        with self.connections.use() as connection:
            rows = connection.run(_READ + "ORDER BY name").fetchall()
        found = [_collection(row) for row in rows]
        self._names |= {row.number: row.name for row in found}
        return found

    def find(self, name: str) -> CollectionRow | None:
        """Return the collection of a name."""
        with self.connections.use() as connection:
            found = _found(connection, name)
        if found is not None:
            self._names[found.number] = name
        return found

    def create(
        self,
        name: str,
        config: dict[str, Any],
        algorithm_version: int,
        admit: Callable[[int], None] | None = None,
    ) -> tuple[CollectionRow, bool]:
        """Create a collection, unless there is one of that name.

        Parameters
        ----------
        name : str
        config : dict
            JSON-able.
        algorithm_version : int
        admit : callable or None
            Called with the number of collections there are; raises where one more is too many.

        Returns
        -------
        collection : CollectionRow
        is_new : bool
        """
        with self.connections.transaction() as connection:
            connection.run("SELECT pg_advisory_xact_lock(%b)", LOCK)
            found = _found(connection, name)
            if found is not None:
                return found, False
            if admit is not None:
                admit(connection.column("SELECT count(*) FROM collections")[0])
            values = name, orjson.dumps(config).decode(), algorithm_version
            [number] = connection.column(
                "INSERT INTO collections (name, config, algorithm_version) VALUES (%b, %b, %b)"
                " RETURNING number",
                *values,
            )
            connection.run("INSERT INTO heads (collection) VALUES (%b)", number)
            schema.create_items(connection, number, self.buckets)
        return CollectionRow(number, name, config, algorithm_version, 0), True

    def drop(self, number: int) -> bool:
        """Drop a collection; return whether there was one.

        Its rows are removed by the next call that finds nobody reading them.
        """
        with self.connections.transaction() as connection:
            found = _dropped(connection, number)
        self.remove_dropped()
        return found

    def rename(self, number: int, name: str, before: int | None) -> None:
        """Give a collection the name of another, which is dropped, or one that is free.

        Parameters
        ----------
        number : int
        name : str
        before : int or None
            The collection that has the name; None where none may have it.

        Raises
        ------
        CollectionExists
            Another has it.
        """
        with self.connections.transaction() as connection:
            connection.run("SELECT pg_advisory_xact_lock(%b)", LOCK)
            if before is not None:
                _dropped(connection, before)
            if _found(connection, name) is not None:
                raise ix.CollectionExists(name, "already, and is not to be replaced")
            connection.run("UPDATE collections SET name = %b WHERE number = %b", name, number)
        self.remove_dropped()

    def remove_dropped(self) -> None:
        """Remove the rows of collections that were dropped, where nobody reads them."""
        with self.connections.use() as connection:
            numbers = connection.column("SELECT number FROM dropped")
        for number in numbers:
            with suppress(StoreUnavailable), self.connections.transaction() as connection:
                connection.run("SET LOCAL lock_timeout = 100")
                connection.run("DELETE FROM dropped WHERE number = %b", number)
                connection.run(f"DROP TABLE IF EXISTS items_{number}")
                for table in _TABLES:
                    connection.run(f"DELETE FROM {table} WHERE collection = %b", number)

    def head(self, number: int) -> int:
        """Return the key of the last change.

        Raises
        ------
        CollectionNotFound
        """
        return int(self._value(number, "SELECT head FROM heads WHERE collection = %b"))

    def last_moment(self, number: int) -> Moment:
        """Return the moment of the last change."""
        with self.connections.use() as connection:
            keys = connection.column("SELECT head FROM heads WHERE collection = %b", number)
            epoch = connection.epoch_number
        if not keys:
            raise ix.CollectionNotFound(self.label(number))
        return Moment(epoch, keys[0])

    def count(self, number: int) -> int:
        """Return the number of items."""
        return int(self._value(number, "SELECT items FROM heads WHERE collection = %b"))

    def metadata(self, number: int) -> bytes | None:
        """Return what callers keep with a collection."""
        found = self._value(number, "SELECT metadata FROM collections WHERE number = %b")
        return None if found is None else bytes(found)

    def replace_metadata(self, number: int, value: bytes | None) -> None:
        """Keep other metadata with a collection, or none."""
        statement = "UPDATE collections SET metadata = %b WHERE number = %b RETURNING true"
        with self.connections.transaction() as connection:
            found = connection.column(statement, value, number)
        if not found:
            raise ix.CollectionNotFound(self.label(number))

    def loads(self, number: int, since: int, key: str | None = None) -> list[ix.LoadRecord]:
        """Return the loads under keys that have changed since, the last first.

        Parameters
        ----------
        number : int
        since : int
            Seconds since 1970.
        key : str or None
            Of the one load that is wanted; None for all.
        """
        with self.connections.use() as connection:
            rows = connection.run(
                "SELECT key, changed, progress, checksum FROM loads"
                " WHERE collection = %b AND changed >= %b AND coalesce(key = %b, true)"
                " ORDER BY changed DESC, key",
                *(number, since, key),
            ).fetchall()
        records = []
        for *columns, checksum in rows:
            record = ix.LoadRecord(*columns)
            if record.checksum != checksum:
                raise ix.DamagedFile(str(number), f"load {record.key!r} is not what was written")
            records.append(record)
        return records

    def save_load(self, number: int, record: ix.LoadRecord, forgotten: int) -> None:
        """Keep how far a load has come.

        Parameters
        ----------
        number : int
        record : LoadRecord
        forgotten : int
            Seconds since 1970; loads that have not changed since are forgotten.
        """
        with self.connections.transaction() as connection:
            connection.run(
                "DELETE FROM loads WHERE collection = %b AND changed < %b", number, forgotten
            )
            write_load(connection, number, record)

    def backends(self, number: int) -> list[BackendRow]:
        """Return the comparison backends in the order in which they were attached."""
        with self.connections.use() as connection:
            rows = connection.run(
                "SELECT name, kind, params, notes FROM backends"
                " WHERE collection = %b ORDER BY number",
                number,
            ).fetchall()
        return [BackendRow(*row) for row in rows]

    def add_backend(self, number: int, backend: BackendRow) -> None:
        """Keep a comparison backend of a new name.

        Raises
        ------
        BackendExists
        """
        with self.connections.transaction() as connection:
            added = connection.column(
                "INSERT INTO backends (collection, name, kind, params, notes)"
                " VALUES (%b, %b, %b, %b, %b)"
                " ON CONFLICT DO NOTHING RETURNING true",
                *(number, *backend),
            )
        if not added:
            raise ix.BackendExists(backend.name)

    def remove_backend(self, number: int, name: str) -> None:
        """Forget a comparison backend.

        Raises
        ------
        BackendNotFound
        """
        with self.connections.transaction() as connection:
            removed = connection.column(
                "DELETE FROM backends WHERE collection = %b AND name = %b RETURNING true",
                *(number, name),
            )
        if not removed:
            raise ix.BackendNotFound(name)

    def _value(self, number: int, statement: str) -> Any:  # noqa: ANN401
        with self.connections.use() as connection:
            row = connection.run(statement, number).fetchone()
        if row is None:
            raise ix.CollectionNotFound(self.label(number))
        return row[0]


def _dropped(connection: Connection, number: int) -> bool:
    """Take a collection off the list; return whether it was there."""
    # The head is the lock of writes: those that wait for it find no collection.
    found = connection.column("DELETE FROM heads WHERE collection = %b RETURNING 1", number)
    if found:
        connection.run("DELETE FROM collections WHERE number = %b", number)
        connection.run("INSERT INTO dropped VALUES (%b)", number)
    return bool(found)


def _found(connection: Connection, name: str) -> CollectionRow | None:
    row = connection.run(_READ + "WHERE name = %b", name).fetchone()
    return None if row is None else _collection(row)


def _collection(row: tuple[Any, ...]) -> CollectionRow:
    number, name, config, *others = row
    return CollectionRow(number, name, orjson.loads(config), *others)


def write_load(connection: Connection, number: int, record: ix.LoadRecord) -> None:
    """Keep how far a load has come, inside of a transaction."""
    columns = record.key, record.changed, record.progress, record.checksum
    connection.run(_WRITE_LOAD, number, *columns)
