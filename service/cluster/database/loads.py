"""What a collection keeps besides items: loads under keys, comparison backends."""

from __future__ import annotations

from gcws_search import index as ix
from gcws_search.service.cluster.contract import BackendRow
from gcws_search.service.cluster.database.connections import Connection
from gcws_search.service.cluster.database.names import NameTables

_WRITE = """
INSERT INTO loads (collection, key, changed, progress, checksum) VALUES (%b, %b, %b, %b, %b)
ON CONFLICT (collection, key) DO UPDATE
SET changed = excluded.changed, progress = excluded.progress, checksum = excluded.checksum
"""


class LoadTables(NameTables):
    """How far loads under keys have come, and which backends are attached."""

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
                "SELECT name, kind, params FROM backends WHERE collection = %b ORDER BY number",
                number,
            ).fetchall()
        return [BackendRow(*row) for row in rows]

    def add_backend(self, number: int, backend: BackendRow) -> None:
        """Keep a comparison backend of a new name.

        Raises
        ------
        BackendExists
        """
        with self.connections.use() as connection:
            added = connection.column(
                "INSERT INTO backends (collection, name, kind, params) VALUES (%b, %b, %b, %b)"
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
        with self.connections.use() as connection:
            removed = connection.column(
                "DELETE FROM backends WHERE collection = %b AND name = %b RETURNING true",
                *(number, name),
            )
        if not removed:
            raise ix.BackendNotFound(name)


def write_load(connection: Connection, number: int, record: ix.LoadRecord) -> None:
    """Keep how far a load has come, inside of a transaction."""
    columns = record.key, record.changed, record.progress, record.checksum
    connection.run(_WRITE, number, *columns)
