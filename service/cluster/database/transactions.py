"""Several writes of a collection as one transaction, and whether it was stored.

Nobody else writes to the collection from its first statement on: the row of the head is its lock.
Two round trips do for a small write: to lock and look up, to store and commit.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from gcws_search import index as ix
from gcws_search.service.cluster.contract import START, ChangeSet, Position, Row, bucket_of
from gcws_search.service.cluster.database.collections import CollectionTables, write_load
from gcws_search.service.cluster.database.connections import Connection, said
from gcws_search.service.cluster.database.names import raise_free, store_names
from gcws_search.service.cluster.database.writes import (
    GroupPlan,
    PreparedDelete,
    PreparedPut,
    PreparedWrite,
)
from gcws_search.service.cluster.errors import FormerPrimary
from gcws_search.service.http.errors import StoreUnavailable

Outcome: TypeAlias = ix.WriteResult | int | Exception
_Cursor: TypeAlias = psycopg.Cursor[tuple[Any, ...]]

_COPY_ROWS: Final = 256
"""From here on rows are copied. It takes two further round trips, and half the time of each row."""
_COPY_BYTES: Final = 1 << 20
_RETRY_SECONDS: Final = 0.005, 0.5
"""Between two tries to ask whether a commit was stored; doubled from the first to the last."""

_LOCK: Final = """
SELECT h.head, c.stamp, h.free_id
FROM heads AS h LEFT JOIN commits AS c ON c.collection = h.collection AND c.key = h.head
WHERE h.collection = %b FOR NO KEY UPDATE OF h
"""
"""The last key and the stamp of its commit; NULL where that one was made while this one waited."""
_HEAD: Final = """
UPDATE heads SET head = %b, items = items + %b, free_id = greatest(free_id, %b)
WHERE collection = %b
"""
_HIGHEST: Final = """
SELECT max(convert_from(id, 'UTF8')::bigint) FROM items_{number}
WHERE length(id) <= 15 AND convert_from(id, 'UTF8') ~ '^[0-9]+$'
"""
"""Of the ids that are numbers."""
_COMMIT: Final = "INSERT INTO commits (collection, key, stamp) VALUES (%b, %b, %b)"
_KNOWN: Final = "SELECT 1 FROM commits WHERE collection = %b AND key = %b AND stamp = %b"
_END_SILENT: Final = """
SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE relation = 'heads'::regclass AND mode IN ('RowShareLock', 'RowExclusiveLock')
    AND wait_event = 'ClientRead' AND state_change < now() - make_interval(secs => %b)
"""
"""A router that is frozen, or whose link is cut, may have the lock of a collection."""
_DELETED: Final = """
INSERT INTO gone (collection, key, bucket, id)
SELECT %b, * FROM unnest(%b::bigint[], %b::smallint[], %b::bytea[])
"""
_ASKED: Final = "unnest(%b::smallint[], %b::bytea[]) AS asked(bucket, id)"
_COLUMNS: Final = "(bucket, key, id, vector, payload, checksum)"


class Committed(NamedTuple):
    """What became of the writes of a transaction.

    Attributes
    ----------
    outcomes : list of WriteResult, int or Exception
        Of each write.
    key : int
        Of the last change of the collection.
    epoch : int
        Number of the primary's.
    change : ChangeSet or None
        None where nothing was stored, or where it is not known what was before.
    """

    outcomes: list[Outcome]
    key: int
    epoch: int
    change: ChangeSet | None = None


class GroupTransactions:
    """Transactions of one collection.

    Parameters
    ----------
    tables : CollectionTables
    number : int
    name : str
        Of the collection, for errors.
    """

    def __init__(self, tables: CollectionTables, number: int, name: str) -> None:
        self._tables = tables
        self._number = number
        self._name = name

    def commit(self, writes: Sequence[PreparedWrite]) -> Committed:
        """Make writes, one after the other; those that cannot be made are left out.

        Raises
        ------
        DiskFull, CollectionNotFound
            Nothing was stored.
        StoreUnavailable
            Nothing was stored, unless it says that this is not known.
        """
        stamp = os.urandom(16)
        doubt: Exception | None = None
        plan = None
        try:
            with self._tables.connections.use(self._name) as connection:
                epoch = connection.epoch_number
                try:
                    before, planned, outcomes = self._planned(connection, writes)
                    if not planned.is_empty:
                        self._store_rows(connection, planned)
                except BaseException as error:
                    connection.roll_back()
                    if isinstance(error, errors.LockNotAvailable):
                        self._end_silent(connection)
                    raise
                if planned.is_empty:
                    connection.roll_back()
                    return Committed(outcomes, planned.key, epoch)
                plan = planned
                doubt = self._store_and_commit(connection, plan, stamp)
        except FormerPrimary as error:  # a later epoch has begun meanwhile
            if plan is None:
                raise
            doubt = error
        if doubt is not None:
            epoch = self._require_stored(plan.key, stamp, doubt)
        change = None
        if before is not None:
            after = Position(plan.key, plan.key, stamp)
            change = ChangeSet(before, after, [*plan.deleted], sorted(plan.rows.values()))
        return Committed(outcomes, plan.key, epoch, change)

    # Locking and planning

    def _planned(
        self, connection: Connection, writes: Sequence[PreparedWrite]
    ) -> tuple[Position | None, GroupPlan, list[Outcome]]:
        """Return where the collection is, if it is known, what the writes come to, and the rest."""
        if any(map(_needs_lock, writes)):
            connection.run("BEGIN")
            head, before, free_id = self._head(connection.run(_LOCK, self._number))
            writes = [_chosen(each, head) for each in writes]
            writes, free_id = self._numbered(connection, writes, free_id)
            found = self._look_up(connection, writes)
        else:
            with connection.pipeline():
                connection.run("BEGIN")
                lock = connection.run(_LOCK, self._number)
                found = self._look_up(connection, writes)
            head, before, free_id = self._head(lock)
        existing = {item_id.decode(): payload for item_id, payload in found.fetchall()}
        given = (item_id for write in writes for item_id in write.ids)
        plan = GroupPlan(head, existing, max(free_id, ix.number_beyond(given)))
        outcomes: list[Outcome] = []
        for write in writes:
            try:
                outcomes.append(plan.add(write))
            except Exception as error:
                outcomes.append(error)
        return before, plan, outcomes

    def _end_silent(self, connection: Connection) -> None:
        """End transactions that have a lock, and whose router has been silent for too long.

        No timeout of the database does that between the statements of one round trip.
        """
        with suppress(psycopg.Error):  # they are of another user
            connection.run(_END_SILENT, float(connection.seconds))

    def _numbered(
        self, connection: Connection, writes: Sequence[PreparedWrite], free_id: int
    ) -> tuple[list[PreparedWrite], int]:
        """Give items without ids the next numbers; return the one that follows, too."""
        given = (item_id for write in writes for item_id in write.ids)
        free_id = max(free_id, ix.number_beyond(given))

        def taken(ids: Sequence[str]) -> list[str]:
            asked = self._look_up(connection, [PreparedDelete(ids=ids)]).fetchall()
            if not asked:
                return []
            # Written by a program that did not count: go beyond all there are.
            [highest] = connection.column(_HIGHEST.format(number=self._number))
            return [item_id.decode() for item_id, _ in asked] + [str(highest or 0)]

        found: list[PreparedWrite] = []
        for write in writes:
            if isinstance(write, PreparedPut) and None in write.ids:
                ids, numbers = ix.number_items(write.ids, free_id, taken)
                write = replace(write, ids=ids, numbers=numbers)  # noqa: PLW2901
                free_id = numbers.stop
            found.append(write)
        return found, free_id

    def _head(self, lock: _Cursor) -> tuple[int, Position | None, int]:
        row = lock.fetchone()
        if row is None:
            raise ix.CollectionNotFound(self._name)
        head, stamp, free_id = row
        if stamp is not None:
            return head, Position(head, head, stamp), free_id
        return head, None if head else START, free_id

    def _look_up(self, connection: Connection, writes: Sequence[PreparedWrite]) -> _Cursor:
        """Find the writes' ids that are in the database, with payloads where they are needed."""
        named = (each for write in writes for each in write.ids if each is not None)
        ids = list(dict.fromkeys(named))
        keeps = any(isinstance(write, PreparedPut) and write.keeps_payloads for write in writes)
        payload = "payload" if keeps else "NULL::bytea"
        table = f"items_{self._number}"
        if len(ids) == 1:
            [bucket], [name] = self._buckets_and_names(ids)
            statement = f"SELECT id, {payload} FROM {table} WHERE bucket = %b AND id = %b"
            return connection.run(statement, bucket, name)
        statement = f"SELECT id, {payload} FROM {_ASKED} JOIN {table} USING (bucket, id)"
        return connection.run(statement, *self._buckets_and_names(ids))

    def _buckets_and_names(self, ids: Sequence[str]) -> tuple[list[int], list[bytes]]:
        buckets = self._tables.buckets
        return [bucket_of(each, buckets) for each in ids], [each.encode() for each in ids]

    # Storing

    def _store_rows(self, connection: Connection, plan: GroupPlan) -> None:
        """Store what is too much for the round trip of the commit."""
        if len(plan.rows) >= _COPY_ROWS:
            self._delete_replaced(connection, plan)
            copy = f"COPY items_{self._number} {_COLUMNS} FROM STDIN (FORMAT BINARY)"
            with connection.cursor() as cursor, cursor.copy(copy.encode()) as writer:
                for data in self._copied(plan.rows.values()):
                    writer.write(data)

    def _store_and_commit(
        self, connection: Connection, plan: GroupPlan, stamp: bytes
    ) -> psycopg.Error | None:
        """Store what is left, and commit; return what makes it doubtful whether it is stored."""
        connection.warnings.clear()
        try:
            with connection.pipeline():
                if len(plan.rows) < _COPY_ROWS:
                    self._delete_replaced(connection, plan)
                    self._insert(connection, [*plan.rows.values()])
                self._store_others(connection, plan, stamp)
                connection.execute("COMMIT", prepare=False)
        except psycopg.Error as error:
            if connection.info.transaction_status not in _INSIDE:
                connection.close()
                return error
            connection.roll_back()
            raise
        if connection.warnings:
            return psycopg.OperationalError(connection.warnings[0])
        return None

    def _store_others(self, connection: Connection, plan: GroupPlan, stamp: bytes) -> None:
        number = self._number
        if plan.deleted:
            buckets, names = self._buckets_and_names([*plan.deleted])
            connection.run(_DELETED, number, [*plan.deleted.values()], buckets, names)
        # In this order all take the rows of a collection: its head, itself, its names.
        if plan.coordinates:
            raise_free(connection, number, plan.coordinates)
        if plan.names:
            store_names(connection, number, [*plan.names])
        for load in plan.loads.values():
            write_load(connection, number, load)
        connection.run(_HEAD, plan.key, plan.growth, plan.free_id, number)
        connection.run(_COMMIT, number, plan.key, stamp)

    def _delete_replaced(self, connection: Connection, plan: GroupPlan) -> None:
        replaced = plan.replaced
        if replaced:
            connection.run(
                f"DELETE FROM items_{self._number} AS i USING {_ASKED}"
                " WHERE i.bucket = asked.bucket AND i.id = asked.id",
                *self._buckets_and_names(replaced),
            )

    def _insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        if not rows:
            return
        columns = zip(*map(self._columns, rows), strict=True)
        connection.run(
            f"INSERT INTO items_{self._number} {_COLUMNS} SELECT * FROM unnest(%b::smallint[],"
            " %b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bigint[])",
            *map(list, columns),
        )

    def _columns(self, row: Row) -> tuple[int, int, bytes, bytes, bytes | None, int]:
        name = row.id.encode()
        checksum = ix.content_checksum(name, row.vector, row.payload)
        bucket = bucket_of(row.id, self._tables.buckets)
        return bucket, row.key, name, row.vector, row.payload, checksum

    def _copied(self, rows: Iterable[Row]) -> Iterator[bytes]:
        """Yield rows in the format of a binary COPY."""
        data = bytearray(_COPY_HEADER)
        for row in rows:
            bucket, key, name, vector, payload, checksum = self._columns(row)
            data += _COPY_HEAD.pack(6, 2, bucket, 8, key, len(name))
            data += name
            data += _COPY_LENGTH.pack(len(vector))
            data += vector
            data += _COPY_LENGTH.pack(-1 if payload is None else len(payload))
            data += payload or b""
            data += _COPY_CHECKSUM.pack(8, checksum)
            if len(data) >= _COPY_BYTES:
                yield bytes(data)
                data.clear()
        yield bytes(data + _COPY_END)

    # In doubt

    def _require_stored(self, key: int, stamp: bytes, doubt: Exception) -> int:
        """Return once it is certain that a commit is stored: the number of the epoch.

        The question is a transaction that takes the lock of the collection: the commit has ended by
        then, and is on the standby once this one is.

        Raises
        ------
        StoreUnavailable
            It is not stored, or nobody can say.
        """
        end = time.monotonic() + self._tables.connections.seconds
        pause, max_pause = _RETRY_SECONDS
        while True:
            try:
                with self._tables.connections.transaction() as connection:
                    epoch = connection.epoch_number
                    connection.run(_LOCK, self._number)
                    is_stored = bool(connection.column(_KNOWN, self._number, key, stamp))
            except StoreUnavailable:
                if time.monotonic() > end:
                    raise StoreUnavailable(f"{said(doubt)}; the write may be stored") from doubt
                time.sleep(pause)
                pause = min(2 * pause, max_pause)
            else:
                break
        if not is_stored:
            raise StoreUnavailable(said(doubt)) from doubt
        return epoch


_INSIDE: Final = TransactionStatus.INTRANS, TransactionStatus.INERROR
_COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_HEAD: Final = struct.Struct(">hihiqi")
"""Number of columns, the length of each followed by it: bucket, key, and the length of the id."""
_COPY_LENGTH: Final = struct.Struct(">i")
_COPY_CHECKSUM: Final = struct.Struct(">iq")
_COPY_END: Final = struct.pack(">h", -1)


def _needs_lock(write: PreparedWrite) -> bool:
    """Return whether what a write changes is known under the lock alone."""
    return None in write.ids if isinstance(write, PreparedPut) else write.choose is not None


def _chosen(write: PreparedWrite, head: int) -> PreparedWrite:
    """Return a delete with the ids that it chooses."""
    if isinstance(write, PreparedDelete) and write.choose is not None:
        return PreparedDelete(ids=[*write.ids, *write.choose(head)])
    return write
