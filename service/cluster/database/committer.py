"""Group commit of one collection: writes become one transaction of the database."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Final

from gcws_search import index as ix
from gcws_search.service.cluster.contract import bucket_of
from gcws_search.service.cluster.database.connections import Connection
from gcws_search.service.cluster.database.database import Database
from gcws_search.service.cluster.database.loads import write_load
from gcws_search.service.cluster.database.names import raise_free, store_names
from gcws_search.service.cluster.database.writes import (
    GroupPlan,
    NewRow,
    PreparedDelete,
    PreparedPut,
    PreparedWrite,
)

_LOCK: Final = "SELECT head FROM heads WHERE collection = %b FOR NO KEY UPDATE"
_HEAD: Final = "UPDATE heads SET head = %b, items = items + %b WHERE collection = %b"
_COMMIT: Final = "INSERT INTO commits (collection, key, stamp) VALUES (%b, %b, %b)"
_DELETED: Final = """
INSERT INTO gone (collection, key, bucket, id)
SELECT %b, * FROM unnest(%b::bigint[], %b::smallint[], %b::bytea[])
"""


class Committer:
    """Takes writes of one collection from any thread, one transaction at a time.

    Parameters
    ----------
    database : Database
    number : int
    name : str
        Of the collection, for errors.

    Attributes
    ----------
    last_key : int
        Of the last change that was acknowledged.
    """

    def __init__(self, database: Database, number: int, name: str) -> None:
        self._database = database
        self._number = number
        self._name = name
        self._lock = threading.Lock()
        self.last_key = 0

    def commit(self, write: PreparedWrite) -> ix.WriteResult | int:
        """Make a write; on return it is in the database.

        Returns
        -------
        WriteResult or int
            Of a put, or how many items a delete removed.

        Raises
        ------
        ItemExists, DiskFull, StoreUnavailable, CollectionNotFound
            Nothing was stored.
        """
        with self._lock, self._database.connections.transaction() as connection:
            head = self._locked_head(connection)
            if isinstance(write, PreparedDelete) and write.choose is not None:
                write = PreparedDelete(ids=[*write.ids, *write.choose(head)])
            plan = GroupPlan(head, self._existing(connection, [write]))
            result = plan.add(write)
            self._store(connection, plan, os.urandom(16))
        self.last_key = plan.key
        return result

    def _locked_head(self, connection: Connection) -> int:
        found = connection.column(_LOCK, self._number)
        if not found:
            raise ix.CollectionNotFound(self._name)
        return int(found[0])

    def _existing(
        self, connection: Connection, writes: Sequence[PreparedWrite]
    ) -> dict[str, bytes | None]:
        """Return which of the writes' ids are in the database, with payloads where needed."""
        ids = list(dict.fromkeys(item_id for write in writes for item_id in write.ids))
        keeps = any(isinstance(write, PreparedPut) and write.keeps_payloads for write in writes)
        statement = f"""
            SELECT id, {"payload" if keeps else "NULL"}
            FROM unnest(%b::smallint[], %b::bytea[]) AS asked(bucket, id)
            JOIN items_{self._number} USING (bucket, id)
        """
        rows = connection.run(statement, *self._names(ids)).fetchall()
        return {item_id.decode(): payload for item_id, payload in rows}

    def _names(self, ids: Sequence[str]) -> tuple[list[int], list[bytes]]:
        buckets = self._database.buckets
        return [bucket_of(each, buckets) for each in ids], [each.encode() for each in ids]

    def _store(self, connection: Connection, plan: GroupPlan, stamp: bytes) -> None:
        number = self._number
        if plan.replaced:
            connection.run(
                f"DELETE FROM items_{number}"
                " USING unnest(%b::smallint[], %b::bytea[]) AS asked(bucket, id)"
                f" WHERE items_{number}.bucket = asked.bucket AND items_{number}.id = asked.id",
                *self._names(plan.replaced),
            )
        if plan.rows:
            self._insert(connection, [*plan.rows.values()])
        if plan.deleted:
            buckets, names = self._names([*plan.deleted])
            connection.run(_DELETED, number, [*plan.deleted.values()], buckets, names)
        if plan.names:
            store_names(connection, number, [*plan.names])
        if plan.coordinates:
            raise_free(connection, number, plan.coordinates)
        for load in plan.loads.values():
            write_load(connection, number, load)
        connection.run(_HEAD, plan.key, plan.growth, number)
        connection.run(_COMMIT, number, plan.key, stamp)

    def _insert(self, connection: Connection, rows: Sequence[NewRow]) -> None:
        buckets, names = self._names([row.id for row in rows])
        connection.run(
            f"INSERT INTO items_{self._number} (bucket, key, id, vector, payload, checksum)"
            " SELECT * FROM unnest(%b::smallint[], %b::bigint[], %b::bytea[], %b::bytea[],"
            " %b::bytea[], %b::bigint[])",
            buckets,
            [row.key for row in rows],
            names,
            [row.vector for row in rows],
            [row.payload for row in rows],
            [
                ix.content_checksum(name, row.vector, row.payload)
                for name, row in zip(names, rows, strict=True)
            ],
        )
