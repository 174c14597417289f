"""Group commit of one collection: writes become one transaction of the database.

The row of the head is the lock of the collection: nobody else writes to it until the commit. A
small write takes two round trips: lock and look up; store and commit. While any items expire, each
transaction first deletes those that have expired.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from gcws_search import index as ix
from gcws_search.service.cluster.connections import Connection, first_line
from gcws_search.service.cluster.contract import (
    START,
    ChangeSet,
    FormerPrimary,
    Moment,
    Position,
    Row,
)
from gcws_search.service.cluster.database import (
    ASKED,
    STAMP_COMMIT,
    Database,
    raise_free,
    write_load,
)
from gcws_search.service.cluster.segments import COLUMNS, Part, Unread
from gcws_search.service.errors import StoreUnavailable

_Outcome: TypeAlias = ix.WriteResult | int | Exception
_Read: TypeAlias = Callable[
    [Sequence[tuple[Any, ...]], Mapping[Part, bytes | Exception]], Sequence[Row]
]
_Cursor: TypeAlias = psycopg.Cursor[tuple[Any, ...]]

# From this size on rows are copied. COPY costs two more round trips, and half the time per row.
_COPY_ROWS: Final = 256
# Delay between two checks whether a commit was stored; doubled from the first to the last.
_RETRY_SECONDS: Final = 0.005, 0.5

_LOCK: Final = """
SELECT h.head, c.stamp, h.free_id, h.generation, h.freed,
    EXISTS (SELECT 1 FROM expiries AS e WHERE e.collection = h.collection AND at <= %b)
FROM heads AS h LEFT JOIN commits AS c ON c.collection = h.collection AND c.key = h.head
WHERE h.collection = %b FOR NO KEY UPDATE OF h
"""
"""The last key, and the stamp of its commit, NULL where that was made while this one waited; last
whether items have expired."""
_TAKE_DUE: Final = """
DELETE FROM expiries WHERE (collection, at, bucket, id) IN (
    SELECT collection, at, bucket, id FROM expiries
    WHERE collection = %b AND at <= %b ORDER BY at LIMIT %b
) RETURNING id
"""
_MAX_DUE: Final = 4096  # expired items that one transaction deletes
_ADD_EXPIRIES: Final = """
INSERT INTO expiries (collection, at, bucket, id)
SELECT %b, * FROM unnest(%b::bigint[], %b::smallint[], %b::bytea[]) ON CONFLICT DO NOTHING
"""
_REMOVE_EXPIRIES: Final = """
DELETE FROM expiries AS e USING unnest(%b::bigint[], %b::smallint[], %b::bytea[])
    AS gone(at, bucket, id)
WHERE e.collection = %b AND e.at = gone.at AND e.bucket = gone.bucket AND e.id = gone.id
"""
_END: Final = f"""
WITH stamped AS ({STAMP_COMMIT})
UPDATE heads
SET head = %b, items = items + %b, removed = removed + %b, free_id = greatest(free_id, %b)
WHERE collection = %b
"""
HIGHEST: Final = """
SELECT max(encode(id, 'escape')::bigint) FROM items_{number}
WHERE length(id) <= 15 AND encode(id, 'escape') ~ '^[0-9]+$'
"""
"""Of the ids that are numbers; others may have characters that PostgreSQL's texts have not."""
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
_STORE_NAMES: Final = """
UPDATE names SET stored = true WHERE collection = %b AND coordinate = ANY(%b) AND NOT stored
"""
_COLUMNS: Final = "(bucket, key, id, vector, payload, checksum, version, expires)"
_TYPES: Final = "int2", "int8", "bytea", "bytea", "bytea", "int8", "int8", "int8"
_INSIDE: Final = TransactionStatus.INTRANS, TransactionStatus.INERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPut:
    """Encoded items of a put."""

    ids: Sequence[str | None]  # None until the transaction numbers the item
    vectors: Sequence[bytes]  # of `VectorSpace.to_blobs`
    payloads: Sequence[bytes | None]  # JSON text
    # inserts refuse an id that comes twice; in other modes its last item counts
    mode: ix.Mode = "upsert"
    places: Sequence[int] = ()  # position of each item in its request
    keeps_payloads: bool = False  # an item without a payload keeps its present one
    # called with the result just before the commit; returns the load's progress
    progress: Callable[[ix.WriteResult], ix.LoadRecord] | None = None
    coordinates: int = 0  # in an open slot space: greater than all coordinates of the items
    names: Sequence[int] = ()  # coordinates with reserved names in the items
    if_versions: Sequence[int | None] = ()  # as in `ItemBatch`; then all ids are distinct
    versions: Sequence[int] = ()  # of copied items; otherwise each item gets the next version
    expires: Sequence[int | None] = ()  # ms since 1970; empty if no item expires
    numbers: range = range(0)  # assigned to items without ids
    # called under the lock with the number of the current generation, whose weights may have
    # changed since the preparation, and the last change that freed names; returns what to put, or
    # raises if the weights make a vector zero
    check: Callable[[PreparedPut, int, int], PreparedPut] | None = None
    # for modes that leave out similar items: called under the lock with the key of the last change,
    # starts the search for these; returns a function from this put and the plan so far to the put
    # of the remaining items
    leave_out: Callable[[int], Callable[[PreparedPut, GroupPlan], PreparedPut]] | None = None
    left_out: Sequence[ix.LeftOut] = ()  # similar items; some may be in this put


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedChoice:
    """Items to delete, or to store again with the same vectors and other payloads."""

    change: ix.PayloadChange | None = None  # None deletes them
    ids: Sequence[str] = ()
    # called with the key of the last change while the lock is held; returns further ids
    choose: Callable[[int], Sequence[str]] | None = None
    if_version: int | None = None  # the version that each item of ``ids`` must have
    # parts of segments that were read before, or the error; see `Segments.try_read`
    vectors: Mapping[Part, bytes | Exception] = field(default_factory=dict)


PreparedWrite: TypeAlias = PreparedPut | PreparedChoice
_Queued: TypeAlias = ix.QueuedWrite[PreparedWrite, PreparedWrite, Any]


@dataclass(slots=True)
class GroupPlan:
    """The net effect of a group of writes, applied in order."""

    key: int  # the last assigned key; each change raises it
    # items in the database before, without vectors; with payloads if these were read
    existing: dict[str, Row]
    free_id: int = 0  # next number for an item without an id
    rows: dict[str, Row] = field(default_factory=dict)  # items to store
    # ids and keys of items that the database has before the writes and not after
    deleted: dict[str, int] = field(default_factory=dict)
    loads: dict[str, ix.LoadRecord] = field(default_factory=dict)
    coordinates: int = 0
    names: set[int] = field(default_factory=set)
    head: int = 0  # key of the last commit
    now_ms: int = 0  # ms since 1970; items that expire until then are deleted
    # the existing items as read, and a function that returns them with vectors
    found: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    read: _Read = lambda *_: ()

    @classmethod
    def of(
        cls,
        key: int,
        rows: Sequence[tuple[Any, ...]],  # result of `Committer._look_up`
        free_id: int,
        read: _Read,
    ) -> GroupPlan:
        """Return a plan that starts after a change."""
        plan = cls(key, {}, free_id, head=key, read=read)
        for row in rows:
            _, name, _, payload, _, version, expires, *_ = row
            item_id = name.decode()
            if item_id not in plan.existing:
                plan.existing[item_id] = Row(0, item_id, b"", payload, version, expires)
                plan.found[item_id] = row
        return plan

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store, including numbers assigned to deleted items."""
        return self.key == self.head

    def expire(self, now_ms: int, *, takes_due: bool) -> None:
        """Delete expired items, before all writes, and those that a write puts."""
        self.now_ms = now_ms
        self.key += takes_due  # each commit needs a key
        self._delete_expired(self.existing.values())

    def _delete_expired(self, rows: Iterable[Row]) -> None:
        past = (row.id for row in rows if row.expires is not None and row.expires <= self.now_ms)
        self._delete([*past])

    @property
    def ids_to_remove(self) -> list[str]:
        """Ids of stored items that are replaced or deleted."""
        return [each for each in self.existing if each in self.rows or each in self.deleted]

    def add(self, write: PreparedWrite) -> ix.WriteResult | int:
        """Apply a write and return its result; an error leaves the plan as it was."""
        if isinstance(write, PreparedPut):
            self.check_versions(write.ids, write.if_versions)
            return self._put(write)
        if write.if_version is not None:
            self.check_versions(write.ids, [write.if_version] * len(write.ids))
        if write.change is not None:
            return self._change(write.change, write.ids, write.vectors)
        return self._delete(write.ids)

    def check_versions(self, ids: Sequence[str | None], expected: Sequence[int | None]) -> None:
        """Raise VersionConflict unless each item has its expected version; None accepts any."""
        for row, (item_id, wanted) in enumerate(zip(ids, expected, strict=bool(expected))):
            if item_id is not None and wanted is not None:
                got = 0 if (now := self._now(item_id)) is None else now.version
                if got != wanted:
                    raise ix.VersionConflict(item_id, wanted, got, row)

    def _put(self, put: PreparedPut) -> ix.WriteResult:
        last = {each: row for row, each in enumerate(put.ids) if each is not None}
        there = last.keys() & self.existing.keys() | last.keys() & self.rows.keys()
        known = {each: now for each in there if (now := self._now(each)) is not None}
        if put.mode == "insert" and known:
            first = min(known, key=last.__getitem__)
            row = last[first]
            raise ix.ItemExists(first, put.places[row] if put.places else row)
        given = (str(put.numbers[0]), str(put.numbers[-1])) if put.numbers else None
        similar = tuple(ix.similar_items(put.left_out, put.ids))
        result = ix.WriteResult(len(last) - len(known), len(known), given, similar)
        load = None if put.progress is None else put.progress(result)
        if load is not None:
            self.loads[load.key] = load
            self.key += not last  # each commit needs a key
        self.free_id = max(self.free_id, ix.number_beyond(put.ids))
        rows = [*last.values()]
        payloads = [put.payloads[row] for row in rows]
        versions = [put.versions[row] for row in rows] if put.versions else [1] * len(rows)
        for place, item_id in enumerate(last if known else ()):
            if (before := known.get(item_id)) is not None:
                if not put.versions:
                    versions[place] = before.version + 1
                if put.keeps_payloads and payloads[place] is None:
                    payloads[place] = before.payload
        expires = [put.expires[row] for row in rows] if put.expires else [None] * len(rows)
        vectors = [put.vectors[row] for row in rows]
        self._store([*last], vectors, payloads, versions, expires)
        if put.expires:
            self._delete_expired(self.rows[item_id] for item_id in last)
        self.coordinates = max(self.coordinates, put.coordinates)
        self.names.update(put.names)
        return result

    def _store(self, ids: Sequence[str], *columns: Sequence[Any]) -> None:
        """Store items, given their columns from the vectors on, under the next keys."""
        keys = range(self.key + 1, self.key + 1 + len(ids))
        self.rows.update(zip(ids, map(Row, keys, ids, *columns), strict=True))
        self.key += len(ids)
        for item_id in self.deleted.keys() & ids:
            del self.deleted[item_id]

    def _change(
        self,
        change: ix.PayloadChange,
        some: Sequence[str],
        vectors: Mapping[Part, bytes | Exception],
    ) -> int:
        ids = [item_id for item_id in dict.fromkeys(some) if self._now(item_id) is not None]
        found = [self.found[item_id] for item_id in ids if item_id not in self.rows]
        stored = self.read(found, vectors)
        known = {row.id: row for row in stored}
        rows = [self.rows.get(item_id) or known[item_id] for item_id in ids]
        payloads = [change.of(row.payload, row.id) for row in rows]
        if rows:
            _, _, stored, _, versions, expires = zip(*rows, strict=True)
            self._store(ids, stored, payloads, [each + 1 for each in versions], expires)
        return len(rows)

    def _delete(self, ids: Sequence[str]) -> int:
        deleted = [each for each in dict.fromkeys(ids) if self._now(each) is not None]
        for item_id in deleted:
            self.rows.pop(item_id, None)
            self.key += 1
            if item_id in self.existing:
                self.deleted[item_id] = self.key
        return len(deleted)

    def _now(self, item_id: str) -> Row | None:
        """Return an item after the writes so far; None if there is none."""
        row = self.rows.get(item_id)
        return self.existing.get(item_id) if row is None and item_id not in self.deleted else row


class Committer(ix.GroupCommit[PreparedWrite, PreparedWrite, Any]):
    """Commits writes of one collection from any thread, one transaction at a time.

    `commit` returns the WriteResult of a put, or the number of items that a delete removed. After
    an error nothing is stored, unless a StoreUnavailable says that the outcome is unknown.
    """

    def __init__(
        self,
        database: Database,
        number: int,
        name: str,  # of the collection, for errors
        # called with each stored change, in the order of commits, before its writes return
        publish: Callable[[ChangeSet], object] = lambda _: None,
    ) -> None:
        super().__init__(ix.POLICIES.max_groups)
        self.name = name
        self.publish = publish
        self._database = database
        self._number = number
        self.last = Moment(0, 0)  # the last acknowledged change

    def row_count(self, write: PreparedWrite) -> int:
        """Return the number of rows of a write."""
        return len(write.ids)

    def is_barrier(self, write: PreparedWrite) -> bool:
        """Return whether a write must see all earlier writes committed."""
        return not isinstance(write, PreparedPut) and write.choose is not None

    def commit_group(self, group: Sequence[_Queued]) -> None:
        """Read the submitted writes, commit them, and complete each."""
        try:
            for waiting in group:
                if waiting.write is None and waiting.read is not None:
                    try:
                        waiting.write = waiting.read()
                    except Exception as error:
                        waiting.end(error)
            self._commit([waiting for waiting in group if not waiting.done])
        except BaseException as error:
            for waiting in group:
                if not waiting.done:
                    waiting.end(error)
            if not isinstance(error, Exception):
                raise

    def _commit(self, group: Sequence[_Queued]) -> None:
        writes = [waiting.write for waiting in group if waiting.write is not None]
        if not writes:
            return
        start = time.perf_counter()
        try:
            try:
                outcomes, last, change = self._transact(writes)
            except errors.UniqueViolation:  # a program without the counter of numbers wrote
                outcomes, last, change = self._transact(writes, is_counted=False)
        except ix.CollectionNotFound:
            raise self._database.not_found(self.name) from None
        except ix.DiskFull:
            if len(group) == 1:
                raise
            for waiting in group:  # a small write may fit
                self.commit_group([waiting])
            return
        self.count_commit(time.perf_counter() - start)
        self.last = max(self.last, last)
        if change is not None:
            self.publish(change)
        unread = list[tuple[_Queued, Sequence[Part]]]()
        for waiting, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Unread):
                unread.append((waiting, outcome.parts))
            else:
                waiting.end(outcome)
        if unread:
            threading.Thread(target=self._read_for, args=(unread,), daemon=True).start()

    def _read_for(self, unread: Sequence[tuple[_Queued, Sequence[Part]]]) -> None:
        """Read the segments that writes need, without the lock, and queue these writes again."""
        read = self._database.segments.try_read
        try:
            known = read([part for _, parts in unread for part in parts])
            for waiting, parts in unread:
                is_read = not any(isinstance(known[part], Exception) for part in parts)
                write = waiting.write
                assert isinstance(write, PreparedChoice)
                vectors = {**write.vectors, **(known if is_read else read(parts))}
                waiting.write = replace(write, vectors=vectors)
                self.queue_again(waiting)
        except BaseException as error:
            for waiting, _ in unread:
                if not waiting.done:
                    waiting.end(error)
            raise

    # A transaction

    def _transact(
        self, writes: Sequence[PreparedWrite], *, is_counted: bool = True
    ) -> tuple[list[_Outcome], Moment, ChangeSet | None]:
        """Return the outcome of each write, the moment after all, and the change.

        A failed write is left out, and its error is its outcome. There is no change if nothing was
        stored, or if the state before is unknown. If ``is_counted``, the numbers of items without
        ids are assumed to be free from the counter on; UniqueViolation if one is not.
        """
        stamp = os.urandom(16)
        doubt: Exception | None = None
        plan = None
        try:
            with self._database.connections.use(self.name) as connection:
                epoch = connection.epoch_number
                try:
                    before, planned, outcomes = self._plan(connection, writes, is_counted)
                    if not planned.is_empty:
                        self._store_rows(connection, planned)
                except BaseException as error:
                    connection.roll_back()
                    if isinstance(error, errors.LockNotAvailable):
                        # Another router may hang inside its transaction. No timeout of the database
                        # ends that between the statements of one round trip.
                        with suppress(psycopg.Error):  # the sessions of another user
                            connection.run(_END_SILENT, float(connection.seconds))
                    raise
                if planned.is_empty:
                    connection.roll_back()
                    return outcomes, Moment(epoch, planned.key), None
                plan = planned
                doubt = self._store_and_commit(connection, plan, stamp)
        except FormerPrimary as error:  # a later epoch began since
            if plan is None:
                raise
            doubt = error
        if doubt is not None:
            epoch = self._require_stored(plan.key, stamp, doubt)
        change = None
        if before is not None:
            after = Position(plan.key, plan.key, stamp)
            change = ChangeSet(before, after, [*plan.deleted], sorted(plan.rows.values()))
        return outcomes, Moment(epoch, plan.key), change

    # Locking and planning

    def _plan(
        self, connection: Connection, writes: Sequence[PreparedWrite], is_counted: bool
    ) -> tuple[Position | None, GroupPlan, list[_Outcome]]:
        """Lock the collection; return its position (None if unknown), the plan and the outcomes."""
        begun: dict[int, Callable[[PreparedPut, GroupPlan], PreparedPut]] = {}
        segments = self._database.segments
        now_ms = self._database.now_ms
        if any(map(_needs_lock, writes)):
            connection.run("BEGIN")
            lock = connection.run(_LOCK, now_ms, self._number)
            head, before, free_id, *state, is_due = self._head(lock)
            writes = [
                each
                if isinstance(each, PreparedPut) or each.choose is None
                else replace(each, ids=[*each.ids, *each.choose(head)], choose=None)
                for each in writes
            ]
            for place, each in enumerate(writes):
                if isinstance(each, PreparedPut) and each.leave_out is not None:
                    begun[place] = each.leave_out(head)
            found = self._look_up(connection, writes)
        else:
            with connection.pipeline():
                connection.run("BEGIN")
                lock = connection.run(_LOCK, now_ms, self._number)
                found = self._look_up(connection, writes)
            head, before, free_id, *state, is_due = self._head(lock)
        rows, due = found.fetchall(), list[bytes]()
        if is_due:
            due = connection.column(_TAKE_DUE, self._number, now_ms, _MAX_DUE)
            asked = PreparedChoice(ids=[item_id.decode() for item_id in due])
            rows += self._look_up(connection, [asked]).fetchall()
        plan = GroupPlan.of(head, rows, free_id, partial(segments.rows, self._number))
        plan.expire(now_ms, takes_due=bool(due))
        outcomes: list[_Outcome] = []
        for place, write in enumerate(writes):
            try:
                if isinstance(write, PreparedPut):
                    if write.check is not None:
                        write = write.check(write, *state)  # noqa: PLW2901
                    if place in begun:
                        write = begun[place](write, plan)  # noqa: PLW2901
                    write = self._number_items(connection, write, plan, is_counted)  # noqa: PLW2901
                outcomes.append(plan.add(write))
            except psycopg.Error:
                raise
            except Exception as error:
                outcomes.append(error)
        return before, plan, outcomes

    def _number_items(
        self, connection: Connection, put: PreparedPut, plan: GroupPlan, is_counted: bool
    ) -> PreparedPut:
        """Assign numbers to items without ids."""
        if None not in put.ids:
            return put

        def find_taken(ids: Sequence[str]) -> list[str]:
            if is_counted and plan.existing.keys().isdisjoint(ids):
                return []
            asked = self._look_up(connection, [PreparedChoice(ids=ids)]).fetchall()
            if not asked:
                return []
            # A program without this counter wrote: continue above all existing numbers.
            [highest] = connection.column(HIGHEST.format(number=self._number))
            return [item_id.decode() for _, item_id, *_ in asked] + [str(highest or 0)]

        first = max(plan.free_id, ix.number_beyond(put.ids))
        ids, numbers = ix.number_items(put.ids, first, find_taken)
        return replace(put, ids=ids, numbers=numbers)

    def _head(self, lock: _Cursor) -> tuple[int, Position | None, int, int, int, bool]:
        row = lock.fetchone()
        if row is None:
            raise ix.CollectionNotFound(self.name)
        head, stamp, *others = row
        if stamp is not None:
            return head, Position(head, head, stamp), *others
        return head, None if head else START, *others

    def _look_up(self, connection: Connection, writes: Sequence[PreparedWrite]) -> _Cursor:
        """Read the existing items of the writes' ids, with payloads and vectors if needed."""
        named = (each for write in writes for each in write.ids if each is not None)
        ids = list(dict.fromkeys(named))
        keeps = any(isinstance(write, PreparedPut) and write.keeps_payloads for write in writes)
        chosen = (each for each in writes if isinstance(each, PreparedChoice))
        changes = any(each.change is not None for each in chosen)
        payload = "payload" if keeps else "NULL::bytea"
        few = f"key, id, NULL::bytea, {payload}, NULL::bigint, version, expires"
        columns = COLUMNS if changes else few
        where, asked = self._database.items_of(self._number, ids)
        return connection.run(f"SELECT {columns} {where}", *asked)

    # Storing

    def _store_rows(self, connection: Connection, plan: GroupPlan) -> None:
        """COPY the rows of a large group, before the round trip that commits."""
        if len(plan.rows) >= _COPY_ROWS:
            self._delete_replaced(connection, plan)
            self._copy_rows(connection, plan)

    def _copy_rows(self, connection: Connection, plan: GroupPlan) -> None:
        """COPY rows ordered by bucket, so that a shard reads few pages of other shards."""
        copy = f"COPY items_{self._number} {_COLUMNS} FROM STDIN (FORMAT BINARY)"
        with connection.cursor() as cursor, cursor.copy(copy.encode()) as writer:
            writer.set_types(_TYPES)
            for columns in sorted(self._columns(plan.rows.values())):  # by bucket and key
                writer.write_row(columns)

    def _store_and_commit(
        self, connection: Connection, plan: GroupPlan, stamp: bytes
    ) -> psycopg.Error | None:
        """Store the rest and commit; return an error that leaves the outcome unknown."""
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
            buckets, names = self._database.buckets_and_names([*plan.deleted])
            connection.run(_DELETED, number, [*plan.deleted.values()], buckets, names)
        self._store_beside(connection, plan)
        removed = len(plan.ids_to_remove)
        moved = plan.key, len(plan.rows) - removed, removed, plan.free_id, number
        connection.run(_END, number, plan.key, stamp, *moved)

    def _store_beside(self, connection: Connection, plan: GroupPlan) -> None:
        """Store times, names and loads."""
        number = self._number
        until = {row.id: row.expires for row in plan.rows.values() if row.expires is not None}
        if until:
            buckets, names = self._database.buckets_and_names([*until])
            connection.run(_ADD_EXPIRIES, number, [*until.values()], buckets, names)
        # Every writer locks the rows of a collection in this order: head, collection, names.
        if plan.coordinates:
            raise_free(connection, number, plan.coordinates)
        if plan.names:
            connection.run(_STORE_NAMES, number, [*plan.names])
        for load in plan.loads.values():
            write_load(connection, number, load)

    def append(self, connection: Connection, put: PreparedPut, key: int) -> ix.WriteResult:
        """Store items of a collection that has no head yet, in a separate transaction.

        Their keys follow ``key``; items without ids get numbers from it on. Appends may run in
        parallel. The commit does not wait for the disk: the commit of the head does.
        """
        plan = GroupPlan(key, {})
        if None in put.ids:
            ids, numbers = ix.number_items(put.ids, key, lambda _: [])
            put = replace(put, ids=ids, numbers=numbers)
        result = plan.add(put)
        assert isinstance(result, ix.WriteResult)
        with connection.transaction():
            connection.run("SET LOCAL synchronous_commit = off")
            self._copy_rows(connection, plan)
            self._store_beside(connection, plan)
        return result

    def _delete_replaced(self, connection: Connection, plan: GroupPlan) -> None:
        replaced = plan.ids_to_remove
        if replaced:
            connection.run(
                f"DELETE FROM items_{self._number} AS i USING {ASKED}"
                " WHERE i.bucket = asked.bucket AND i.id = asked.id",
                *self._database.buckets_and_names(replaced),
            )
        until = {each: plan.existing[each].expires for each in replaced}
        expiring = [each for each, at in until.items() if at is not None]
        if expiring:
            times = [until[each] for each in expiring]
            lists = times, *self._database.buckets_and_names(expiring)
            connection.run(_REMOVE_EXPIRIES, *lists, self._number)

    def _insert(self, connection: Connection, rows: Sequence[Row]) -> None:
        if not rows:
            return
        columns = zip(*self._columns(rows), strict=True)
        connection.run(
            f"INSERT INTO items_{self._number} {_COLUMNS} SELECT * FROM unnest(%b::smallint[],"
            " %b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bigint[], %b::bigint[],"
            " %b::bigint[])",
            *map(list, columns),
        )

    def _columns(self, rows: Iterable[Row]) -> Iterator[tuple[Any, ...]]:
        """Return rows as the database stores them."""
        keys, ids, vectors, payloads, *life = zip(*rows, strict=True)
        buckets, names = self._database.buckets_and_names(ids)
        checksums = map(ix.content_checksum, names, vectors, payloads)
        return zip(buckets, keys, names, vectors, payloads, checksums, *life, strict=True)

    # Unknown outcomes

    def _require_stored(self, key: int, stamp: bytes, doubt: Exception) -> int:
        """Return the number of the epoch once it is certain that a commit is stored.

        The query takes the lock of the collection in a transaction. When it has the lock, the
        commit has ended; when it commits, the commit has reached the standby.
        """
        end = time.monotonic() + self._database.connections.seconds
        pause, max_pause = _RETRY_SECONDS
        while True:
            try:
                with self._database.connections.transaction() as connection:
                    epoch = connection.epoch_number
                    connection.run(_LOCK, 0, self._number)
                    is_stored = bool(connection.column(_KNOWN, self._number, key, stamp))
                break
            except StoreUnavailable:
                if time.monotonic() > end:
                    text = f"{first_line(doubt)}; the write may be stored"
                    raise StoreUnavailable(text) from doubt
                time.sleep(pause)
                pause = min(2 * pause, max_pause)
        if not is_stored:
            raise StoreUnavailable(first_line(doubt)) from doubt
        return epoch


def _needs_lock(write: PreparedWrite) -> bool:
    """Return whether a write depends on rows that only the lock protects."""
    return (write.leave_out if isinstance(write, PreparedPut) else write.choose) is not None
