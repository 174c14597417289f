"""The database of a cluster as routers and shards call it: all statements except writes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

import orjson

from gcws_search import index as ix
from gcws_search.service.cluster import schema
from gcws_search.service.cluster.connections import LOCK, Connection, Connections
from gcws_search.service.cluster.contract import (
    START,
    ClusterMismatch,
    CollectionRow,
    EpochMemory,
    HistoryLost,
    Moment,
    Position,
    Replica,
    Row,
    bucket_of,
)
from gcws_search.service.cluster.segments import COLUMNS, Segments
from gcws_search.service.errors import StoreUnavailable
from gcws_search.service.keys import cluster_access
from gcws_search.service.settings import Settings

Changes: TypeAlias = tuple[Position, list[str], Iterator[list[Row]], int]
"""Since a position: the one of now, ids that were deleted, rows put by key, number of the epoch."""

SCHEMA: Final = "gcws"  # schema of the tables
BASE_DAYS: Final = 7  # days for which changes after a base are kept
# Name of routers in the database's list of connections. Older programs are listed without the
# number, and may use a name after it was freed.
ROUTER: Final = "router 2"
# Prefix of the hidden name of a collection during a bulk load.
BULK: Final = ".unfinished-bulk."
# Prefix of the keys of bulk load records; requests cannot use it.
BULK_KEYS: Final = "\N{HORIZONTAL ELLIPSIS}"
SNAPSHOT: Final = "ISOLATION LEVEL REPEATABLE READ READ ONLY"

_READ: Final = """
SELECT number, name, coalesce(g.config, c.config), head, h.generation, weights
FROM collections AS c JOIN heads AS h ON h.collection = number
    LEFT JOIN generations AS g ON g.collection = number AND g.generation = h.generation
"""
_NEXT: Final = """
SELECT number, name, g.config, head, g.generation, weights
FROM collections JOIN heads AS h ON h.collection = number
    JOIN generations AS g ON g.collection = number
WHERE g.generation > h.generation AND seen > now() - make_interval(secs => %b)
"""
_OVERTAKEN: Final = "it was given other weights meanwhile"
_ADD_GENERATION: Final = """
INSERT INTO generations (collection, generation, config, weights)
SELECT %b, coalesce(max(generation), 0) + 1, %b, %b FROM generations WHERE collection = %b
RETURNING generation
"""
_WRITE_LOAD: Final = """
INSERT INTO loads (collection, key, changed, progress, checksum) VALUES (%b, %b, %b, %b, %b)
ON CONFLICT (collection, key) DO UPDATE
SET changed = excluded.changed, progress = excluded.progress, checksum = excluded.checksum
"""

# Other data of a collection.
_TABLES: Final = "commits", "gone", "names", "loads", "backends", "generations", "expiries"
_ADD_BACKEND: Final = """
INSERT INTO backends (collection, name, kind, params, notes) VALUES (%b, %b, %b, %b, %b)
ON CONFLICT DO NOTHING RETURNING true
"""
_REMOVE_BACKEND: Final = "DELETE FROM backends WHERE collection = %b AND name = %b RETURNING true"
_LIVE: Final = "coalesce(expires > %b, true)"
"""Of items that have not expired at an instant."""
_CLOCK: Final = "SELECT extract(epoch FROM clock_timestamp())::double precision"
_DUE: Final = """
SELECT number FROM collections WHERE EXISTS (
    SELECT 1 FROM expiries WHERE collection = number AND at <= %b
)
"""
ASKED: Final = "unnest(%b::smallint[], %b::bytea[]) AS asked(bucket, id)"
_BEYOND_TEXT: Final = b"\xff"  # sorts after all UTF-8 text
_NEXT_HEAD: Final = "UPDATE heads SET head = head + 1 WHERE collection = %b RETURNING head"
_HAS_NAMES: Final = "SELECT 1 FROM names WHERE collection = %b LIMIT 1"
_HAS_ITEMS: Final = "SELECT 1 FROM heads WHERE collection = %b AND items > 0"
LOCK_HEAD: Final = "SELECT head FROM heads WHERE collection = %b FOR NO KEY UPDATE"
"""No write goes on beside it."""
STAMP_COMMIT: Final = "INSERT INTO commits (collection, key, stamp) VALUES (%b, %b, %b)"
_ADD_NAMES: Final = """
INSERT INTO names (collection, coordinate, name, checksum, stored)
SELECT %b, * , %b FROM unnest(%b::bigint[], %b::bytea[], %b::bigint[])
"""
_NAMES: Final = """
SELECT coordinate, name, checksum, stored, freed
FROM heads AS h LEFT JOIN names AS n
    ON n.collection = h.collection AND coordinate >= CASE WHEN freed > 0 THEN 0 ELSE %b END
WHERE h.collection = %b ORDER BY coordinate
"""
"""From a coordinate on, unless names were freed: one that was freed may get its former one."""
_HEAD: Final = """
SELECT head, trimmed, coalesce(c.key, 0), coalesce(c.stamp, ''), k.stamp,
    ARRAY(
        SELECT id FROM gone AS g
        WHERE g.collection = h.collection AND g.key > %b AND bucket = ANY(%b) ORDER BY g.key
    )
FROM heads AS h LEFT JOIN commits AS c ON c.collection = h.collection AND c.key = h.head
    LEFT JOIN commits AS k ON k.collection = h.collection AND k.key = %b
WHERE h.collection = %b
"""
"""The last commit, the stamp of an earlier one, and the ids deleted after a key."""
_BEYOND_KEYS: Final = 2**62
"""No change has this key: who has nothing need not be told what was deleted."""
_OLD: Final = """
SELECT h.collection, trimmed, max(key)
FROM heads AS h JOIN commits AS c ON c.collection = h.collection
WHERE time <= now() - make_interval(secs => %b) GROUP BY h.collection
"""
"""Collections with the last key of commits that are old enough to be forgotten."""
_ANNOUNCE: Final = """
WITH listed AS (
    SELECT address FROM replicas WHERE cell = %b AND shards = %b AND shard = %b AND replica = %b
)
INSERT INTO replicas
    (cell, shards, shard, replica, address, positions, nbytes, share, refusal)
VALUES (%b, %b, %b, %b, %b, %b, %b, %b, %b)
ON CONFLICT (cell, shards, shard, replica) DO UPDATE SET address = excluded.address,
    positions = excluded.positions, nbytes = excluded.nbytes, share = excluded.share,
    refusal = excluded.refusal, seen = now()
RETURNING (SELECT address FROM listed)
"""
_WITHDRAW: Final = """
UPDATE replicas SET address = '', seen = to_timestamp(0)
WHERE cell = %b AND shards = %b AND shard = %b AND replica = %b AND address = %b
"""
"""A row that says so: the table is empty after a crash of the database, which says nothing."""
_REPLICAS: Final = """
SELECT shard, replica, address, positions, nbytes, share,
    abs(extract(epoch FROM now() - seen))::double precision, shards, refusal
FROM replicas WHERE cell = %b ORDER BY shards, shard, replica
"""
"""A sign of life of the future was given before the clock was set back: others came since."""
_LIVE_POSITIONS: Final = """
SELECT positions FROM replicas WHERE seen > now() - interval '1 minute'
"""
_YOUNG_BASES: Final = f"""
SELECT collection, min(key) FROM bases WHERE made > now() - interval '{BASE_DAYS} days'
GROUP BY collection
"""
_SET_SHARDS: Final = """
INSERT INTO cells (cell, shards) VALUES (%b, %b)
ON CONFLICT (cell) DO UPDATE SET shards = excluded.shards
"""


class Database:
    """An open database; any thread, any number of processes.

    Each method raises StoreUnavailable if the database does not answer, CollectionNotFound if there
    is no such collection, CollectionLoading if another one has its name now, and DamagedFile if
    rows differ from what was written.
    """

    def __init__(
        self, connections: Connections, identity: str, buckets: int, segments: Segments
    ) -> None:
        self.connections = connections
        self.segments = segments
        self.identity = identity
        self.buckets = buckets
        self._names: dict[int, str] = {}
        self._prepared: set[int] = set()  # collections whose tables have all columns
        # returns the time by which items expire, in seconds since 1970: the database's clock
        self.clock: Callable[[], float] = self._time
        self._ahead = float("-inf")  # offset of its clock from the monotonic clock here

    @classmethod
    def open(  # noqa: PLR0913
        cls,
        url: str,  # of libpq: ``postgresql://user@host:5432/name``
        *,
        buckets: int = 32,  # parts of each collection's items; fixed for the life of a cluster
        max_connections: int = 16,
        application: str = ROUTER,  # name in the database's list of connections
        seconds: float = 10.0,  # timeout for answers of the database
        schema_name: str = SCHEMA,  # schema of the tables
        memory: EpochMemory | None = None,  # remembers the last known epoch; None: a new memory
        # of the cluster; the database stores a salted hash; None: not compared
        key: str | None = None,
        base: str | None = None,  # address of the segments; None: they cannot be read
    ) -> Database:
        """Open a database, and create missing tables; else ClusterMismatch."""
        connections = Connections(
            url,
            schema_name,
            limit=max_connections,
            application=application,
            seconds=seconds,
            memory=memory or EpochMemory(),
        )
        try:
            identity = schema.prepare(connections, buckets, key)
            if not connections.memory.number:  # the tables are new
                connections.forget()
            with connections.use() as connection:
                connections.cluster = identity
                found = cls(connections, identity, buckets, Segments(base))
                found._set_clock(connection)
            return found
        except BaseException:
            connections.close()
            raise

    def rekey(self, key: str) -> None:
        """Replace the key that routers and shards need to start."""
        with self.connections.transaction() as connection:
            schema.set_key(connection, key)

    @staticmethod
    def adopt(url: str) -> str:
        """Adopt a database that was restored from a backup; return its new identity.

        Routers and shards refuse it until they restart, and refuse the former database after that.
        StoreUnavailable if no server accepts writes, or several do.
        """
        connections = Connections(
            url, SCHEMA, limit=1, application="command", seconds=10.0, memory=EpochMemory()
        )
        with connections.only() as connection:
            return schema.adopt(connection)

    def close(self) -> None:
        """Close all connections."""
        self.connections.close()

    # Time: everything that reads items uses an instant of the database's clock

    def _time(self) -> float:
        return time.monotonic() + self._ahead

    def _set_clock(self, connection: Connection) -> None:
        """Read the database's clock; keep the known offset unless the answer contradicts it."""
        asked = time.monotonic()
        [seconds] = connection.column(_CLOCK)
        error = (time.monotonic() - asked) / 2
        ahead = seconds - asked - error
        if abs(ahead - self._ahead) > error:
            self._ahead = ahead

    @property
    def now_ms(self) -> int:
        """The present instant in ms since 1970."""
        return int(1000 * self.clock())

    def collections_due(self) -> list[int]:
        """Return the numbers of collections with expired items; set the clock."""
        with self.connections.use() as connection:
            self._set_clock(connection)
            return connection.column(_DUE, self.now_ms)

    # Collections

    def label(self, number: int) -> str:
        """Return the name of a collection for errors; its number if the name is unknown."""
        return self._names.get(number, str(number))

    def collections(self) -> list[CollectionRow]:
        """Return all collections, by name."""
        listed = _READ + "WHERE NOT starts_with(name, %b) ORDER BY name"
        found = [_collection(row) for row in self._rows(listed, BULK)]
        self._names |= {row.number: row.name for row in found}
        self._add_columns({row.number for row in found})
        return found

    def _add_columns(self, numbers: set[int]) -> None:
        """Add missing columns to the tables of collections that an older program created."""
        new = numbers - self._prepared
        if not new:
            return
        for (number,) in self._rows(schema.WITHOUT_COLUMNS, [*new]):
            with self.connections.transaction() as connection:
                connection.run("SET LOCAL lock_timeout = 100")  # others queue behind it
                connection.execute(schema.ADD_COLUMNS.format(number=number).encode())
        self._prepared |= new

    def find(self, name: str) -> CollectionRow | None:
        """Return the collection of a name."""
        with self.connections.use() as connection:
            found = _find(connection, name)
        if found is not None:
            self._names[found.number] = name
            self._add_columns({found.number})
        return found

    def not_found(self, name: str) -> Exception:
        """Return the error for an unknown collection: it was dropped, or has just been replaced."""
        is_replaced = self.find(name) is not None
        return (ix.CollectionLoading if is_replaced else ix.CollectionNotFound)(name)

    @contextmanager
    def _reading(self, number: int) -> Iterator[str]:
        """Lend a collection's name for errors; raise `not_found` if its table is gone."""
        name = self.label(number)
        try:
            yield name
        except ix.CollectionNotFound:
            raise self.not_found(name) from None

    def create(
        self,
        name: str,
        config: dict[str, Any],  # JSON-able
        # called with the number of collections; raises if one more is too many
        admit: Callable[[int], None] | None = None,
        free_id: int = 0,  # next number for an item without an id
    ) -> tuple[CollectionRow, bool]:
        """Create a collection, unless one has that name."""
        with self.connections.transaction() as connection:
            connection.run("SELECT pg_advisory_xact_lock(%b)", LOCK)
            found = _find(connection, name)
            if found is not None:
                return found, False
            if admit is not None:
                admit(connection.column("SELECT count(*) FROM collections")[0])
            [number] = connection.column(
                "INSERT INTO collections (name, config, algorithm_version) VALUES (%b, %b, %b)"
                " RETURNING number",
                *(name, orjson.dumps(config).decode(), ix.ALGORITHM_VERSION),
            )
            connection.run(
                "INSERT INTO heads (collection, free_id) VALUES (%b, %b)", number, free_id
            )
            tables = schema.ITEMS + schema.INDEXES
            connection.execute(tables.format(number=number).encode())
        return CollectionRow(number, name, config, 0), True

    def drop(self, number: int) -> bool:
        """Drop a collection; return whether it existed.

        Its rows are removed by the next call that finds no readers.
        """
        with self.connections.transaction() as connection:
            found = _drop(connection, number)
        with suppress(StoreUnavailable):  # it is dropped anyway
            self.remove_dropped()
        return found

    def rename(
        self, number: int, name: str, before: int | None, load: ix.LoadRecord | None = None
    ) -> None:
        """Give a collection a free name, or replace ``before`` under its; else CollectionExists.

        ``load`` replaces the records of a bulk load.
        """
        with self.connections.transaction() as connection:
            connection.run("SELECT pg_advisory_xact_lock(%b)", LOCK)
            if before is not None:
                _drop(connection, before)
            if _find(connection, name) is not None:
                raise ix.CollectionExists(name, "already (replace is false)")
            change = "UPDATE collections SET name = %b WHERE number = %b RETURNING true"
            if not connection.column(change, name, number):  # dropped since
                raise ix.CollectionNotFound(self.label(number))
            forget = "DELETE FROM loads WHERE collection = %b AND starts_with(key, %b)"
            connection.run(forget, number, BULK_KEYS)
            if load is not None:
                write_load(connection, number, load)
        with suppress(StoreUnavailable):
            self.remove_dropped()

    def remove_dropped(self) -> None:
        """Remove the rows of dropped collections that nobody reads."""
        with self.connections.use() as connection:
            numbers = connection.column("SELECT number FROM dropped")
        for number in numbers:
            with suppress(StoreUnavailable), self.connections.transaction() as connection:
                connection.run("SET LOCAL lock_timeout = 100")
                connection.run("DELETE FROM dropped WHERE number = %b", number)
                connection.run(f"DROP TABLE IF EXISTS items_{number}")
                for table in _TABLES:
                    connection.run(f"DELETE FROM {table} WHERE collection = %b", number)

    # Weights: shards prepare the same items for a new generation before it becomes current

    def add_generation(
        self, row: CollectionRow, config: dict[str, Any], weights: str
    ) -> CollectionRow:
        """Let shards prepare the items under other weights; return the new generation's row."""
        with self.connections.transaction() as connection:
            lock = "SELECT 1 FROM collections WHERE number = %b FOR UPDATE"
            if not connection.column(lock, row.number):
                raise self.not_found(row.name)
            values = row.number, orjson.dumps(config).decode(), weights, row.number
            [generation] = connection.column(_ADD_GENERATION, *values)
        return row._replace(config=config, generation=generation, weights=weights)

    def next_generations(self, seconds: float) -> list[CollectionRow]:
        """Return the generations that a router waits for, or did within these seconds."""
        return [_collection(row) for row in self._rows(_NEXT, seconds)]

    def await_generation(self, row: CollectionRow) -> None:
        """Record that a router waits for a generation; CollectionBusy if a later one is current."""
        note = "UPDATE generations SET seen = now() WHERE collection = %b AND generation = %b"
        with self.connections.transaction() as connection:
            if not connection.column(f"{note} RETURNING true", row.number, row.generation):
                raise ix.CollectionBusy(row.name, _OVERTAKEN)

    def use_generation(
        self, row: CollectionRow, check: Callable[[Sequence[Row]], None], after: int
    ) -> None:
        """Make a generation current, unless the items put after a key fail a check.

        No write comes between check and change. CollectionBusy if a later generation is current.
        """
        lock = "SELECT generation FROM heads WHERE collection = %b FOR UPDATE"
        new = f"SELECT {COLUMNS} FROM items_{row.number} WHERE key > %b ORDER BY key"
        with self.connections.transaction() as connection:
            if not (found := connection.column(lock, row.number)):
                raise self.not_found(row.name)
            if found[0] >= row.generation:
                raise ix.CollectionBusy(row.name, _OVERTAKEN)
            check(self.segments.rows(row.number, connection.run(new, after).fetchall()))
            use = "UPDATE heads SET generation = %b WHERE collection = %b"
            connection.run(use, row.generation, row.number)
            forget = "DELETE FROM generations WHERE collection = %b AND generation < %b"
            connection.run(forget, row.number, row.generation)

    def last_moment(self, number: int) -> Moment:
        """Return the moment of the last change."""
        with self.connections.use() as connection:
            keys = connection.column("SELECT head FROM heads WHERE collection = %b", number)
            epoch = connection.epoch_number
        if not keys:
            raise self.not_found(self.label(number))
        return Moment(epoch, keys[0])

    def count(self, number: int) -> int:
        """Return the number of items."""
        return int(self._value(number, "SELECT items FROM heads WHERE collection = %b"))

    def free_id(self, number: int) -> int:
        """Return the next number for an item without an id."""
        return int(self._value(number, "SELECT free_id FROM heads WHERE collection = %b"))

    def metadata(self, number: int) -> bytes | None:
        """Return the metadata that callers store with a collection."""
        found = self._value(number, "SELECT metadata FROM collections WHERE number = %b")
        return None if found is None else bytes(found)

    def replace_metadata(self, number: int, value: bytes | None) -> None:
        """Replace the metadata of a collection; None removes it."""
        statement = "UPDATE collections SET metadata = %b WHERE number = %b RETURNING true"
        with self.connections.transaction() as connection:
            if not connection.column(statement, value, number):
                raise self.not_found(self.label(number))

    def loads(self, number: int, since: int, key: str | None = None) -> list[ix.LoadRecord]:
        """Return the loads, or that of one key, that changed since a Unix time; latest first."""
        statement = """
            SELECT key, changed, progress, checksum FROM loads
            WHERE collection = %b AND changed >= %b AND coalesce(key = %b, true)
            ORDER BY changed DESC, key
        """
        records = []
        for *columns, checksum in self._rows(statement, number, since, key):
            record = ix.LoadRecord(*columns)
            if record.checksum != checksum:
                raise ix.DamagedFile(str(number), f"load {record.key!r} is damaged")
            records.append(record)
        return records

    def save_load(self, number: int, record: ix.LoadRecord, forgotten: int) -> None:
        """Save the progress of a load; remove loads unchanged since a Unix time."""
        with self.connections.transaction() as connection:
            connection.run(
                "DELETE FROM loads WHERE collection = %b AND changed < %b", number, forgotten
            )
            write_load(connection, number, record)

    def backends(self, number: int) -> list[ix.BackendRecord]:
        """Return the comparison backends in the order in which they were attached."""
        columns = "SELECT name, kind, params, notes FROM backends"
        rows = self._rows(f"{columns} WHERE collection = %b ORDER BY number", number)
        return [ix.BackendRecord(*row) for row in rows]

    def add_backend(self, number: int, backend: ix.BackendRecord) -> None:
        """Add a comparison backend; BackendExists if the name is taken."""
        with self.connections.transaction() as connection:
            values = backend.name, backend.kind, backend.params, backend.notes
            if not connection.column(_ADD_BACKEND, number, *values):
                raise ix.BackendExists(backend.name)

    def remove_backend(self, number: int, name: str) -> None:
        """Remove a comparison backend; else BackendNotFound."""
        with self.connections.transaction() as connection:
            if not connection.column(_REMOVE_BACKEND, number, name):
                raise ix.BackendNotFound(name)

    def _value(self, number: int, statement: str) -> Any:  # noqa: ANN401
        rows = self._rows(statement, number)
        if not rows:
            raise self.not_found(self.label(number))
        return rows[0][0]

    def _rows(
        self,
        statement: str,
        *parameters: Any,  # noqa: ANN401
        name: str | None = None,  # of the collection, for errors
        is_confirmed: bool = True,  # as in `Connections.use`
    ) -> list[tuple[Any, ...]]:
        with self.connections.use(name, is_confirmed=is_confirmed) as connection:
            return connection.run(statement, *parameters).fetchall()

    # Items

    def _read(self, number: int, clauses: str, *parameters: Any) -> list[Row]:  # noqa: ANN401
        """Return the items of a FROM clause and what follows it."""
        statement = f"SELECT {COLUMNS} {clauses}"
        with self._reading(number) as name:
            found = self._rows(statement, *parameters, name=name)
        return self.segments.rows(number, found)

    def fetch(self, number: int, ids: Sequence[str]) -> dict[str, Row]:
        """Return the existing items of some ids."""
        where, asked = self.items_of(number, ids)
        rows = self._read(number, f"{where} AND {_LIVE}", *asked, self.now_ms)
        return {row.id: row for row in rows}

    def items_of(self, number: int, ids: Sequence[str]) -> tuple[str, tuple[Any, Any]]:
        """Return the FROM and WHERE clauses of items of some ids, and their parameters."""
        buckets, names = self.buckets_and_names(ids)
        if len(ids) == 1:
            where = f"FROM items_{number} WHERE bucket = %b AND id = %b"
            return where, (buckets[0], names[0])
        return f"FROM {ASKED} JOIN items_{number} USING (bucket, id) WHERE true", (buckets, names)

    def buckets_and_names(self, ids: Sequence[str]) -> tuple[list[int], list[bytes]]:
        """Return the buckets of ids, and the ids as the database stores them."""
        return [bucket_of(each, self.buckets) for each in ids], [each.encode() for each in ids]

    def rows_by_key(self, number: int, keys: Sequence[int]) -> list[Row]:
        """Return the existing items of some keys, by key."""
        where = f"FROM items_{number} WHERE key = ANY(%b) AND {_LIVE} ORDER BY key"
        return self._read(number, where, list(keys), self.now_ms)

    def page(self, number: int, *, after: int, limit: int, with_vector: bool) -> list[Row]:
        """Return the first items above a key, by key; without vectors they are not checked."""
        where = f"FROM items_{number} WHERE key > %b AND {_LIVE} ORDER BY key LIMIT %b"
        asked = after, self.now_ms, limit
        if with_vector:
            return self._read(number, where, *asked)
        statement = f"SELECT key, id, payload, version, expires {where}"
        with self._reading(number) as name:
            found = self._rows(statement, *asked, name=name)
        return [Row(key, item_id.decode(), b"", *others) for key, item_id, *others in found]

    def bucket_rows(
        self, number: int, bucket: int, *, after: str, limit: int, now_ms: int
    ) -> list[Row]:
        """Return the first items of a bucket after an id, by id, at an instant."""
        where = f"bucket = %b AND id > %b AND {_LIVE} ORDER BY id LIMIT %b"
        asked = bucket, after.encode(), now_ms, limit
        return self._read(number, f"FROM items_{number} WHERE {where}", *asked)

    @contextmanager
    def one_moment(self, number: int) -> Iterator[Database]:
        """Lend a snapshot of the database to one thread that reads one collection."""
        with (
            self._reading(number) as name,
            self.connections.transaction(SNAPSHOT, name) as connection,
        ):
            moment = copy(self)
            moment.connections = cast(Connections, _OneConnection(connection))
            yield moment

    def read_all(self, number: int, chunk_rows: int) -> Generator[list[Row]]:
        """Yield all items of a snapshot by key, in chunks; close it to return the connection."""
        with (
            self._reading(number) as name,
            self.connections.transaction(SNAPSHOT, name) as connection,
        ):
            items = f"items_{number} WHERE {_LIVE}"
            yield from self.read_in_order(connection, number, chunk_rows, items, self.now_ms)

    def read_in_order(
        self,
        connection: Connection,
        number: int,
        chunk_rows: int,
        items: str,
        *parameters: Any,  # noqa: ANN401
    ) -> Iterator[list[Row]]:
        """Yield the items of a FROM and WHERE clause by key, in chunks, inside a transaction.

        An abandoned generator sends no statement: another thread may use the connection by then.
        """
        declare = f"DECLARE chunks NO SCROLL CURSOR FOR SELECT {COLUMNS} FROM {items} ORDER BY key"
        connection.execute(declare.encode(), parameters)
        fetch = f"FETCH {chunk_rows} FROM chunks".encode()
        while found := connection.execute(fetch, binary=True).fetchall():
            yield self.segments.rows(number, found)
            if len(found) < chunk_rows:
                break

    # Names of coordinates

    def reserve_names(
        self, number: int, names: Sequence[str], former: Mapping[str, int] = MappingProxyType({})
    ) -> dict[str, int]:
        """Return the coordinates of names; new names get the next free coordinates.

        A freed name gets its ``former`` coordinate again, which no other name was given. Routers
        reserve one after another, so that none assigns a coordinate twice. InvalidVector at
        ``(place,)`` if no coordinate is left.
        """
        wanted = dict.fromkeys(names)
        with self.connections.use() as connection:
            found = _find_coordinates(connection, number, [*wanted])
        if len(found) == len(wanted):
            return found
        with self.connections.transaction() as connection:
            free = connection.column(
                "SELECT free_coordinate FROM collections WHERE number = %b FOR UPDATE", number
            )
            if not free:
                raise self.not_found(self.label(number))
            found = _find_coordinates(connection, number, [*wanted])
            added = [(former[e], e) for e in wanted if e not in found and e in former]
            new = [name for name in wanted if name not in found and name not in former]
            if free[0] + len(new) - 1 > ix.MAX_DIM:
                place = names.index(new[ix.MAX_DIM + 1 - free[0]])
                raise ix.InvalidVector(
                    expected="at most 2^31 coordinates", got="one more", loc=(place,)
                )
            added += zip(range(free[0], free[0] + len(new)), new, strict=True)
            add_names(connection, number, added, stored=False)
            raise_free(connection, number, free[0] + len(new))
        return found | {name: coordinate for coordinate, name in added}

    def names(self, number: int) -> list[ix.NamedCoordinate]:
        """Return the named coordinates and their names, in order."""
        return self.names_from(number, 0)[0]

    def names_from(self, number: int, first: int) -> tuple[list[ix.NamedCoordinate], int, int]:
        """Return the names from a coordinate on; all names if some were ever freed.

        Also return the last change that freed names, and the first coordinate at which names may
        still be added: coordinates are reserved in order.
        """
        found, freed, following = list[ix.NamedCoordinate](), 0, list[int]()
        for coordinate, name, checksum, is_stored, freed in self._rows(_NAMES, first, number):  # noqa: B007
            if coordinate is None:  # there are none
                break
            if not is_stored:
                following.append(coordinate)
                continue
            found.append(ix.NamedCoordinate(coordinate, name.decode()))
            if ix.name_checksum(*found[-1]) != checksum:
                reason = f"the name of coordinate {coordinate} is damaged"
                raise ix.DamagedFile(str(number), reason)
        following += [found[-1].coordinate + 1] if found else [first]
        return found, freed, min(following)

    def find_names(self, number: int, prefix: str, limit: int) -> list[ix.NamedCoordinate]:
        """Return the first named coordinates; ordered by name if a prefix is given."""
        start = prefix.encode()
        statement = f"""
            SELECT coordinate, name FROM names
            WHERE collection = %b AND stored AND name >= %b AND name < %b
            ORDER BY {"name" if prefix else "coordinate"} LIMIT %b
        """
        rows = self._rows(statement, number, start, start + _BEYOND_TEXT, limit)
        return [ix.NamedCoordinate(coordinate, name.decode()) for coordinate, name in rows]

    def replace_names(
        self, number: int, names: Sequence[tuple[int, str]], *, replace: bool = True
    ) -> None:
        """Replace all names; as a change, it tells other routers to read them.

        Without ``replace`` only if there are no names, or, if none is given, no items.
        """
        with self.connections.transaction() as connection:
            keys = connection.column(_NEXT_HEAD, number)
            if not keys:
                raise self.not_found(self.label(number))
            connection.run(STAMP_COMMIT, number, keys[0], os.urandom(16))
            connection.run("SELECT 1 FROM collections WHERE number = %b FOR UPDATE", number)
            known = _HAS_NAMES if names else _HAS_ITEMS
            if not replace and connection.column(known, number):
                return
            connection.run("DELETE FROM names WHERE collection = %b", number)
            add_names(connection, number, names, stored=True)
            raise_free(connection, number, max((each for each, _ in names), default=-1) + 1)

    # Replicas

    @contextmanager
    def changes(
        self, number: int, buckets: Sequence[int], position: Position | None, chunk_rows: int
    ) -> Iterator[Changes]:
        """Lend the changes since a position; all items if None; HistoryLost if it is unknown.

        Some deleted ids may have been put again since.
        """
        after = position or START
        with self.connections.transaction(SNAPSHOT, self.label(number)) as connection:
            own = list(buckets)
            asked = after.key or _BEYOND_KEYS, own, after.commit, number
            if (row := connection.run(_HEAD, *asked).fetchone()) is None:
                raise ix.CollectionNotFound(str(number))
            head, trimmed, commit, stamp, known, deleted = row
            is_forgotten = after.key < trimmed
            if (after.key or after.commit) and (is_forgotten or known != after.stamp):
                raise HistoryLost(after.commit, is_forgotten=is_forgotten)
            rows: Iterator[list[Row]] = iter(())
            if head > after.key:
                items = f"({_merge_buckets(number, own)}) AS own WHERE key > %b"
                rows = self.read_in_order(connection, number, chunk_rows, items, after.key)
            ids = [each.decode() for each in deleted]
            yield Position(head, commit, stamp), ids, rows, connection.epoch_number

    def announce(self, replica: Replica) -> str:
        """Add or update a replica's row; return the address listed before, or an empty text."""
        positions = orjson.dumps(replica.positions, option=orjson.OPT_NON_STR_KEYS).decode()
        values = replica.address, positions, replica.nbytes, replica.share, replica.refusal
        place = replica.cell, replica.shards, replica.shard, replica.replica
        [[before]] = self._rows(_ANNOUNCE, *place, *place, *values)
        return str(before or "")

    def withdraw(self, replica: Replica) -> None:
        """Mark a replica as gone, unless another process has replaced it in the list."""
        place = replica.cell, replica.shards, replica.shard, replica.replica
        with self.connections.use() as connection:
            connection.run(_WITHDRAW, *place, replica.address)

    def shards(self, cell: str) -> int | None:
        """Return the number of shards that routers ask in a cell; None if it is not set."""
        statement = "SELECT shards FROM cells WHERE cell = %b"
        found = self._rows(statement, cell, is_confirmed=False)
        return int(found[0][0]) if found else None

    def require_shards(self, cell: str, shards: int) -> None:
        """Raise ClusterMismatch if all replicas of a cell are of another number of shards.

        If a number is set for the cell, routers follow it, and replicas of another number may
        start. ClusterMismatch also if there are more shards than buckets.
        """
        if shards > self.buckets:
            raise ClusterMismatch("shards", f"1 to {self.buckets}, the buckets", str(shards))
        found = {each.shards for each in self.replicas(cell) if each.is_alive}
        if found and shards not in found and self.shards(cell) is None:
            known = " or ".join(map(str, sorted(found)))
            raise ClusterMismatch(f"GCWS_SHARDS of cell {cell!r}", known, str(shards))

    def set_shards(self, cell: str, shards: int | None) -> None:
        """Set the number of shards that routers ask in a cell; None: routers use their settings."""
        with self.connections.use() as connection:
            if shards is None:
                connection.run("DELETE FROM cells WHERE cell = %b", cell)
            else:
                connection.run(_SET_SHARDS, cell, shards)

    def replicas(self, cell: str) -> list[Replica]:
        """Return the replicas of a cell, by number of shards and by shard."""
        found = []
        rows = self._rows(_REPLICAS, cell, is_confirmed=False)
        for shard, replica, address, positions, *others in rows:
            reached = {int(number): key for number, key in orjson.loads(positions).items()}
            found.append(Replica(cell, shard, replica, address, reached, *others))
        return found

    def trim(self, *, keep_seconds: float = 3600.0) -> None:
        """Delete commits and tombstones that no replica needs, and rows of dropped collections.

        Changes after a base are kept for replicas that start from it. Nothing is deleted while no
        replica is alive. A replica that was silent for over a minute is filled again when it
        returns, unless all changes that it lacks are younger than ``keep_seconds``.
        """
        self.remove_dropped()
        with self.connections.transaction() as connection:
            connection.run("DELETE FROM replicas WHERE seen < now() - interval '1 day'")
            positions = [*map(orjson.loads, connection.column(_LIVE_POSITIONS))]
            bases = dict(connection.run(_YOUNG_BASES).fetchall())
            old = connection.run(_OLD, keep_seconds).fetchall()
        if not positions:
            return
        for number, trimmed, oldest in old:
            needed = (each.get(str(number), 0) for each in positions)
            bound = min(oldest, bases.get(number, oldest), *needed)
            if bound > trimmed:
                self._forget(number, bound)

    def _forget(self, number: int, bound: int) -> None:
        with self.connections.transaction() as connection:
            trim = "UPDATE heads SET trimmed = %b WHERE collection = %b AND trimmed < %b"
            if connection.column(f"{trim} RETURNING true", bound, number, bound):
                # The commit at the bound stays: it is the position of replicas.
                old = number, bound
                connection.run("DELETE FROM commits WHERE collection = %b AND key < %b", *old)
                connection.run("DELETE FROM gone WHERE collection = %b AND key <= %b", *old)


@contextmanager
def open_database(
    settings: Settings, seconds: float = 10.0, *, checks_key: bool = True
) -> Iterator[Database]:
    """Lend the database of a cluster to a command; ``seconds`` is the timeout of a statement."""
    url, key = cluster_access(settings)
    opened = partial(Database.open, buckets=settings.buckets, application="command")
    key_to_check = key if checks_key else None
    with closing(opened(url, seconds=seconds, key=key_to_check, base=settings.base)) as database:
        yield database


@dataclass(frozen=True, slots=True)
class _OneConnection:
    """Replaces a pool by one connection inside a transaction."""

    connection: Connection

    def use(self, *_: object, **__: object) -> AbstractContextManager[Connection]:
        return nullcontext(self.connection)

    transaction = use


def _drop(connection: Connection, number: int) -> bool:
    """Remove a collection from the list; return whether it was there."""
    # The head is the lock of writes: waiting writes then find no collection.
    connection.run("DELETE FROM heads WHERE collection = %b", number)
    found = connection.column("DELETE FROM collections WHERE number = %b RETURNING 1", number)
    if found:
        connection.run("INSERT INTO dropped VALUES (%b)", number)
    return bool(found)


def _find(connection: Connection, name: str) -> CollectionRow | None:
    row = connection.run(_READ + "WHERE name = %b", name).fetchone()
    return None if row is None else _collection(row)


def _collection(row: tuple[Any, ...]) -> CollectionRow:
    number, name, config, *others = row
    return CollectionRow(number, name, orjson.loads(config), *others)


def write_load(connection: Connection, number: int, record: ix.LoadRecord) -> None:
    """Save the progress of a load, inside a transaction."""
    columns = record.key, record.changed, record.progress, record.checksum
    connection.run(_WRITE_LOAD, number, *columns)


def _merge_buckets(number: int, buckets: Sequence[int]) -> str:
    """Return SQL for the items of some buckets that PostgreSQL merges by key, without a sort."""
    one = "(SELECT * FROM items_{} WHERE bucket = {} ORDER BY key)".format
    return " UNION ALL ".join(one(number, bucket) for bucket in buckets)


def _find_coordinates(connection: Connection, number: int, names: Sequence[str]) -> dict[str, int]:
    rows = connection.run(
        "SELECT name, coordinate FROM unnest(%b::bytea[]) AS asked(name)"
        " JOIN names USING (name) WHERE collection = %b",
        *([name.encode() for name in names], number),
    ).fetchall()
    return {name.decode(): coordinate for name, coordinate in rows}


def add_names(
    connection: Connection, number: int, names: Sequence[tuple[int, str]], *, stored: bool
) -> None:
    """Add names of coordinates, inside a transaction; names that are not stored are reserved."""
    coordinates = [coordinate for coordinate, _ in names]
    texts = [name.encode() for _, name in names]
    checksums = [ix.name_checksum(coordinate, name) for coordinate, name in names]
    connection.run(_ADD_NAMES, number, stored, coordinates, texts, checksums)


def raise_free(connection: Connection, number: int, free: int) -> None:
    """Raise the first free coordinate to at least ``free``."""
    connection.run(
        "UPDATE collections SET free_coordinate = %b WHERE number = %b AND free_coordinate < %b",
        *(free, number, free),
    )
