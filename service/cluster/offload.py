"""Moves vectors that all replicas have from bases out of the database, in the background.

One process at a time does so for a collection, under a lock that ends with its database connection.
It lists a segment, writes its file, reads it back, and only then updates the items, on that
connection and under the lock of writes. An item that was replaced since has another key, so it is
not changed. Whenever the process stops, each vector is in the database or in a complete file.

A segment without references stays as long as the database keeps changes after a base: readers of an
earlier moment, such as a restored backup, still find it. A database only removes files that it
lists and that have its own identity.

A database records each of its epochs beside its segments. It removes nothing if it finds an epoch
that it does not know: then it was replaced, or a copy was adopted that needs the files.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import Final

from gcws_search import index as ix
from gcws_search.service.cluster.bases import read_file
from gcws_search.service.cluster.connections import Connection
from gcws_search.service.cluster.contract import Row
from gcws_search.service.cluster.database import BASE_DAYS, LOCK_HEAD, Database
from gcws_search.service.cluster.segments import COLUMNS

# Vectors are moved once this share of the items has changed: fewer would make many small segments.
# Unreferenced segments are looked for at the same time.
_SHARE: Final = 0.125
_LEAST_USED: Final = 0.5  # of a segment; below it, the used vectors move to another segment
_ROWS_AT_ONCE: Final = 2048  # rows per read, for which writes wait
_BYTES_AT_ONCE: Final = 1 << 24  # bytes of their vectors
_EVERY_KEY: Final = -1, 2**63 - 1

_DUE: Final = """
SELECT h.collection, offloaded, min(b.key) FROM heads AS h
    JOIN bases AS b ON b.collection = h.collection AND b.generation = h.generation
WHERE shards = %b AND b.key >= trimmed GROUP BY h.collection
HAVING count(*) = %b AND min(b.key) - offloaded > %b * items
"""
_LIST: Final = """
INSERT INTO segments (collection, file, bytes, sha256) VALUES (%b, %b, %b, %b) RETURNING number
"""
_MOVE: Final = """
UPDATE items_{number} AS i
SET vector = NULL, segment = %b::int, place = moved.place, length = moved.length
FROM unnest(%b::smallint[], %b::bytea[], %b::bigint[], %b::int[], %b::int[])
    AS moved(bucket, id, key, place, length)
WHERE i.bucket = moved.bucket AND i.id = moved.id AND i.key = moved.key
"""
_LAST: Final = """
SELECT max(key) FROM (
    SELECT key, size, sum(size) OVER (ORDER BY key) AS total FROM (
        SELECT key, coalesce(octet_length(vector), length) AS size FROM items_{number}
        WHERE bucket = %b AND key > %b AND key <= %b ORDER BY key LIMIT %b
    ) AS rows
) AS stretch WHERE total - size < %b
"""
_STRETCH: Final = "FROM items_{number} WHERE bucket = %b AND key > %b AND key <= %b"
_USED: Final = f"SELECT segment, sum(length)::bigint {_STRETCH} AND vector IS NULL GROUP BY 1"
_MOVABLE: Final = f"""
SELECT {COLUMNS} {_STRETCH} AND (vector IS NOT NULL OR segment = ANY(%b::int[])) ORDER BY key
"""
_NOTE_USE: Final = """
UPDATE segments SET unused = CASE WHEN number = ANY(%b::int[]) THEN NULL ELSE now() END
WHERE collection = %b AND (unused IS NULL) <> (number = ANY(%b::int[]))
"""
_SEGMENTS: Final = "SELECT number, bytes FROM segments WHERE collection = %b"
_OFFLOADED: Final = """
UPDATE heads SET offloaded = greatest(offloaded, %b) WHERE collection = %b
"""
_NOTE_EMPTY: Final = """
UPDATE segments AS s SET unused = now() WHERE unused IS NULL
    AND NOT EXISTS (SELECT 1 FROM heads AS h WHERE h.collection = s.collection AND items > 0)
"""
"""Those of dropped collections, and of others that have no item."""
_FOLDERS: Final = "SELECT DISTINCT split_part(file, '/', 2) FROM segments"
_USELESS: Final = f"""
SELECT number, file FROM segments WHERE unused < now() - interval '{BASE_DAYS} days'
"""


def due(database: Database, shards: int) -> dict[int, tuple[int, int]]:
    """Return the collections with vectors to move: those between two keys.

    The upper key is the last one that the bases of all shards have.
    """
    with database.connections.use() as connection:
        found = connection.run(_DUE, shards, shards, _SHARE).fetchall()
    return {number: (after, last) for number, after, last in found}


def segment_bytes(database: Database) -> dict[int, int]:
    """Return the bytes of the segments of each collection, including unused ones."""
    statement = "SELECT collection, sum(bytes)::bigint FROM segments GROUP BY collection"
    with database.connections.use() as connection:
        return dict(connection.run(statement).fetchall())


def remove_useless(database: Database) -> None:
    """Remove segments that have long been unreferenced, unless another process is doing so.

    StoreFailed as in `Segments.require_only`.
    """
    with database.connections.lock(f"{_folder(database)}useless") as connection:
        if connection is None:
            return
        connection.run(_NOTE_EMPTY)
        if (epoch := connection.epoch) is not None:
            for folder in connection.column(_FOLDERS):
                database.segments.note_use(folder, epoch)
        for number, file in connection.run(_USELESS).fetchall():
            if file.startswith(_folder(database)):  # else it belongs to another database
                stamps = connection.column("SELECT stamp FROM epochs")
                database.segments.require_only(database.identity, stamps)
                (database.segments.root / file).remove()
            connection.run("DELETE FROM segments WHERE number = %b", number)


def _folder(database: Database) -> str:
    return f"segments/{database.identity}/"


def offload(
    database: Database,
    number: int,  # the collection
    shards: int,
    segment_bytes: int,  # of vectors; enough for a segment
    check: Callable[[], None],  # called between two steps; raises to cancel
) -> int:
    """Move the vectors of a collection that is due; return how many were moved.

    0 if another process is doing so. StoreFailed, StoreUnavailable, DiskFull, and DamagedFile if
    an item or a file differs from what was written: the other vectors stay in the database.
    """
    key, name = f"{_folder(database)}c{number}", database.label(number)
    with database.connections.lock(key, name=name) as connection:
        if connection is None:
            return 0
        found = due(database, shards).get(number)  # another process may just have done it
        if found is None:
            return 0
        return _Offload(database, connection, number, segment_bytes, check).run(*found)


class _Offload:
    """The work on one collection, by the holder of its lock."""

    def __init__(
        self,
        database: Database,
        connection: Connection,
        number: int,
        segment_bytes: int,
        check: Callable[[], None],
    ) -> None:
        self._database = database
        self._connection = connection
        self._number = number
        self._segment_bytes = segment_bytes
        self._check = check

    def run(self, after: int, last: int) -> int:
        """Move the vectors of items between two keys, and those of segments with few used bytes."""
        little_used = self._little_used()
        rows, size, moved = list[Row](), 0, 0
        for row in self._movable(_EVERY_KEY[0] if little_used else after, last, little_used):
            rows.append(row)
            size += len(row.vector)
            if size >= self._segment_bytes:
                moved += self._move(rows)
                rows, size = [], 0
        moved += self._move(rows)
        if little_used:
            self._little_used()
        self._connection.run(_OFFLOADED, last, self._number)
        return moved

    def _stretches(self, after: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Yield ranges of keys, bucket by bucket, with a limited number of items each."""
        statement = _LAST.format(number=self._number)
        for bucket in range(self._database.buckets):
            end: int | None = after
            while end is not None:
                self._check()
                start = end
                asked = bucket, start, last, _ROWS_AT_ONCE, _BYTES_AT_ONCE
                [end] = self._connection.column(statement, *asked)
                if end is not None:
                    yield bucket, start, end

    def _little_used(self) -> list[int]:
        """Record unreferenced segments; return others with few used bytes."""
        segments = self._connection.run(_SEGMENTS, self._number).fetchall()
        if not segments:
            return []
        used, statement = dict[int, int](), _USED.format(number=self._number)
        for stretch in self._stretches(*_EVERY_KEY):
            for segment, nbytes in self._connection.run(statement, *stretch).fetchall():
                used[segment] = used.get(segment, 0) + nbytes
        self._connection.run(_NOTE_USE, [*used], self._number, [*used])
        return [
            segment
            for segment, nbytes in segments
            if segment in used and used[segment] < _LEAST_USED * nbytes
        ]

    def _movable(self, after: int, last: int, segments: Sequence[int]) -> Iterator[Row]:
        """Yield items between two keys with vectors in the database, and items of some segments."""
        statement = _MOVABLE.format(number=self._number)
        for stretch in self._stretches(after, last):
            found = self._connection.run(statement, *stretch, [*segments]).fetchall()
            yield from self._database.segments.rows(self._number, found)

    def _move(self, rows: Sequence[Row]) -> int:
        """Move the vectors of items to a new segment; return how many."""
        if not rows:
            return 0
        connection, database = self._connection, self._database
        sha256 = hashlib.sha256()
        for row in rows:
            sha256.update(row.vector)
        file = f"{_folder(database)}c{self._number}/{secrets.token_hex(8)}.vectors"
        ends = [*accumulate((len(row.vector) for row in rows), initial=0)]
        listed = self._number, file, ends[-1], sha256.hexdigest()
        [segment] = connection.column(_LIST, *listed)
        place = database.segments.root / file
        groups = [rows[at : at + _ROWS_AT_ONCE] for at in range(0, len(rows), _ROWS_AT_ONCE)]
        try:
            place.write(b"".join(row.vector for row in some) for some in groups)
            for _ in read_file(place, file, sha256.hexdigest(), self._check):
                pass
        except BaseException:
            with suppress(OSError):  # it is listed, so it is removed later
                place.remove()
            raise
        move, places = _MOVE.format(number=self._number), iter(pairwise(ends))
        for some in groups:
            self._check()
            parts = [next(places) for _ in some]
            starts, lengths = [start for start, _ in parts], [end - start for start, end in parts]
            asked = *database.buckets_and_names([row.id for row in some]), [row.key for row in some]
            with connection.transaction():
                if not connection.column(LOCK_HEAD, self._number):
                    raise ix.CollectionNotFound(database.label(self._number))
                connection.run(move, segment, *asked, starts, lengths)
        return len(rows)
