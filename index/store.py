"""One collection's SQLite file: rows of bytes in, rows of bytes out, one transaction a write.

A row's key rises with every row put and is never used again, so an item that is updated gets a new
key, and reading by key gives the rows in the order in which they were put.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import orjson

from index.checksums import codes_checksum, content_checksum, content_checksums
from index.connections import Durability, connect, set_up, sql_errors
from index.directory import bytes_of
from index.errors import CollectionNotFound, DamagedFile
from index.records import Change, Chunk, Record, Rows
from index.schema import BackendRecord, Identity, check_mark, create_tables, identity_of, mark

CHUNK_BYTES: Final = 1 << 24
"""About this much is read at a time."""

_KEEPER_PAGES: Final = 500
"""Half of what `write` lets the log grow to before it moves it into the file itself."""
_MOST_ROWS_PER_CHUNK: Final = 1 << 14

_DELETE: Final = "DELETE FROM items WHERE key IN (SELECT value FROM json_each(?))"
_COUNT: Final = "SELECT count(*) FROM items"
_LAST_KEY: Final = """
SELECT max(seq, (SELECT coalesce(max(key), 0) FROM items)) FROM sqlite_sequence
WHERE name = 'items'
"""
_READ_ALL: Final = """
SELECT key, id, vector, codes, CAST(payload AS BLOB), checksum, codes_checksum FROM items
ORDER BY key
"""
_READ_PAGE: Final = """
SELECT key, id, vector, CAST(payload AS BLOB), checksum FROM items WHERE key > ?
ORDER BY key LIMIT ?
"""
_READ_LINKS: Final = "SELECT part, data FROM links ORDER BY part"
_WRITE_LINKS: Final = "INSERT OR REPLACE INTO links (part, data) VALUES (?, ?)"
_DELETE_LINKS: Final = "DELETE FROM links WHERE part = ?"
_READ_NOTES: Final = "SELECT value FROM meta WHERE name = 'notes'"
_WRITE_NOTES: Final = "INSERT OR REPLACE INTO meta (name, value) VALUES ('notes', ?)"
_DELETE_NOTES: Final = "DELETE FROM meta WHERE name = 'notes'"
_READ_BACKENDS: Final = "SELECT name, kind, params, notes, checksum FROM backends ORDER BY rowid"
_ADD_BACKEND: Final = """
INSERT INTO backends (name, kind, params, notes, checksum) VALUES (?, ?, ?, ?, ?)
"""
_NOTE_BACKEND: Final = "UPDATE backends SET notes = ? WHERE name = ?"
_DELETE_BACKEND: Final = "DELETE FROM backends WHERE name = ?"

# Every step of a statement gives up the interpreter's lock, and taking it back may wait 5 ms for
# each busy thread: 8,192 rows of one statement each took 9 to 27 s beside one busy thread, and
# 0.4 s by 256 rows a statement. These are the sizes of statement kept prepared.
_ROWS_PER_STATEMENT: Final = (256, 16, 1)
_INSERTS: Final = {
    rows: "INSERT INTO items (key, id, vector, codes, payload, checksum, codes_checksum) VALUES "
    + ", ".join(repeat("(?, ?, ?, ?, CAST(? AS TEXT), ?, ?)", rows))
    for rows in _ROWS_PER_STATEMENT
}
_READS: Final = {
    rows: "SELECT key, id, vector, CAST(payload AS BLOB), checksum FROM items WHERE id IN "
    f"({', '.join(repeat('?', rows))})"
    for rows in _ROWS_PER_STATEMENT
}


class Store:
    """An open file; one thread writes at a time (the caller sees to it), any thread reads.

    Links and notes may be written by one other thread at the same time.

    Parameters
    ----------
    path : Path
    name : str
        Of the collection, for errors.
    durability : {"full", "normal"}
        Whether a write is on the disk when it returns, or only safe from a crash of the process.

    Raises
    ------
    DamagedFile, IncompatibleFile
    """

    def __init__(self, path: Path, name: str, *, durability: Durability = "full") -> None:
        self.path = path
        self.name = name
        with sql_errors(name, path):
            self._writer = connect(path)
            try:
                self._prepare(durability)
                self._reader = connect(path)
                self._reader.execute("PRAGMA query_only = ON")
            except BaseException:
                self._writer.close()
                raise
        self._keeper: sqlite3.Connection | None = None
        self._reading = threading.Lock()
        self._closed = False

    def _prepare(self, durability: Durability) -> None:
        check_mark(self._writer, self.name)
        set_up(self._writer, durability)
        self.identity = identity_of(self._writer, self.name)
        row = self._writer.execute(_LAST_KEY).fetchone()
        self._next_key = 1 if row is None else int(row[0]) + 1

    @staticmethod
    def create(path: Path, name: str, identity: Identity) -> None:
        """Write a new file of no rows and close it; it is on the disk on return.

        Raises
        ------
        DiskFull
        """
        with sql_errors(name, path):
            connection = connect(path, mode="rwc")
            try:
                mark(connection)
                set_up(connection, "full")
                create_tables(connection, identity)
            finally:
                connection.close()

    def __len__(self) -> int:
        """Return the number of rows."""
        with self._reading, sql_errors(self.name, self.path):
            count: int = self._reader.execute(_COUNT).fetchone()[0]
        return count

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of the file and its log."""
        return bytes_of(self.path)

    @property
    def next_key(self) -> int:
        """Key of the next row that is put; the others follow one by one."""
        return self._next_key

    def write(self, changes: Sequence[Change]) -> None:
        """Make changes, one after the other, in one transaction.

        Parameters
        ----------
        changes : sequence of Change
            The ids of the rows put are new, or those of rows removed.

        Raises
        ------
        DiskFull, DirectoryLocked
            Nothing was stored. After any other error it is unknown whether all was, or nothing.
        """
        key = self._next_key
        with self._transaction():
            for change in changes:
                if change.gone:
                    self._writer.execute(_DELETE, (orjson.dumps(list(change.gone)).decode(),))
                count = len(change.rows.ids)
                self._insert(range(key, key + count), change.rows)
                key += count
        self._next_key = key

    def write_at(self, keys: Sequence[int], rows: Rows) -> None:
        """Put rows of new ids at keys, rising, of which none has been used.

        Raises
        ------
        DiskFull, DamagedFile
        """
        with self._transaction():
            self._insert(keys, rows)
        self._next_key = keys[-1] + 1

    def _insert(self, keys: Sequence[int], rows: Rows) -> None:
        count = len(rows.ids)
        columns = (
            keys, rows.ids, rows.vectors, rows.codes, rows.payloads,
            rows.checksums, rows.codes_checksums,
        )  # fmt: skip
        for piece in _pieces(count):
            cells = zip(*(column[piece] for column in columns), strict=True)
            sql = _INSERTS[piece.stop - piece.start]
            self._writer.execute(sql, tuple(chain.from_iterable(cells)))

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows in order of their keys, about `CHUNK_BYTES` at a time.

        Nothing may be written meanwhile.

        Raises
        ------
        DamagedFile
            Also where a row is not what was written, or rows are missing.
        """
        count = missing = len(self)
        size = max(1, min(_MOST_ROWS_PER_CHUNK, CHUNK_BYTES * count // (self.bytes_on_disk + 1)))
        with self._reading, sql_errors(self.name, self.path):
            cursor = self._reader.execute(_READ_ALL)
        while True:
            with self._reading, sql_errors(self.name, self.path):
                rows = cursor.fetchmany(size)
            if not rows:
                break
            *columns, checksums, codes = zip(*rows, strict=True)
            chunk = Chunk(*columns)
            self._check(chunk, checksums, codes)
            missing -= len(rows)
            yield chunk
        if missing:
            raise DamagedFile(self.name, f"it has {count - missing} rows, and {count} ids")

    def _check(self, chunk: Chunk, checksums: Sequence[int], codes: Sequence[int]) -> None:
        """Raise DamagedFile unless all rows are what was written."""
        try:
            contents = content_checksums(chunk.ids, chunk.vectors, chunk.payloads)
        except UnicodeEncodeError as error:
            raise DamagedFile(self.name, f"rows from {chunk.keys[0]}: {error}") from error
        for found, expected in (
            (contents, checksums),
            ([*map(codes_checksum, chunk.codes)], codes),
        ):
            if found == [*expected]:
                continue
            pairs = zip(found, expected, strict=True)
            at = next(i for i, pair in enumerate(pairs) if pair[0] != pair[1])
            raise DamagedFile(self.name, f"row {chunk.keys[at]} is not what was written")

    def links(self) -> list[tuple[int, bytes]]:
        """Return all parts of links there are, by number (`index.links`).

        Raises
        ------
        DamagedFile
        """
        return self._read(_READ_LINKS, ())

    def write_links(self, part: int, data: bytes | None) -> None:
        """Replace a part of links, None to remove it; the disk is not waited for.

        Raises
        ------
        DiskFull, DirectoryLocked, DamagedFile
        """
        if data is None:
            self._keep(_DELETE_LINKS, (part,))
        else:
            self._keep(_WRITE_LINKS, (part, data))

    def notes(self) -> str | None:
        """Return what `write_notes` was told last, None when there is nothing."""
        rows = self._read(_READ_NOTES, ())
        return rows[0][0] if rows else None

    def write_notes(self, notes: str | None) -> None:
        """Replace the notes, None to remove them; the disk is not waited for.

        Raises
        ------
        DiskFull, DirectoryLocked, DamagedFile
        """
        if notes is None:
            self._keep(_DELETE_NOTES, ())
        else:
            self._keep(_WRITE_NOTES, (notes,))

    def backends(self) -> list[BackendRecord]:
        """Return the comparison backends in the order in which they were attached.

        Raises
        ------
        DamagedFile
        """
        records = []
        for *columns, checksum in self._read(_READ_BACKENDS, ()):
            record = BackendRecord(*columns)
            if record.checksum != checksum:
                raise DamagedFile(self.name, f"backend {record.name!r} is not what was written")
            records.append(record)
        return records

    def add_backend(self, record: BackendRecord) -> None:
        """Keep a comparison backend of a new name; on the disk on return.

        Raises
        ------
        DiskFull, DirectoryLocked, DamagedFile
        """
        columns = (record.name, record.kind, record.params, record.notes, record.checksum)
        self._change(_ADD_BACKEND, columns)

    def note_backend(self, name: str, notes: str | None) -> None:
        """Replace what is kept of a comparison backend's index."""
        self._change(_NOTE_BACKEND, (notes, name))

    def remove_backend(self, name: str) -> None:
        """Forget a comparison backend; on the disk on return."""
        self._change(_DELETE_BACKEND, (name,))

    def _change(self, sql: str, parameters: Sequence[Any]) -> None:
        with self._transaction():
            self._writer.execute(sql, parameters)

    def _keep(self, sql: str, parameters: Sequence[Any]) -> None:
        """Make a transaction of one statement, on the disk with the next that is waited for."""
        with sql_errors(self.name, self.path):
            if self._keeper is None:
                # The other connection waits for the disk, and should not have to empty the log
                # of what this one has put there.
                self._keeper = connect(self.path)
                set_up(self._keeper, "normal")
                self._keeper.execute(f"PRAGMA wal_autocheckpoint = {_KEEPER_PAGES}")
            self._keeper.execute(sql, parameters)

    def fetch(self, ids: Sequence[str]) -> dict[str, Record]:
        """Return the rows of those ids that there are, by id."""
        found: dict[str, Record] = {}
        for piece in _pieces(len(ids)):
            rows = self._read(_READS[piece.stop - piece.start], ids[piece])
            found.update((row[1], self._record(row)) for row in rows)
        return found

    def page(self, *, after: int, limit: int) -> list[Record]:
        """Return the first ``limit`` rows whose keys are above ``after``, in order."""
        return [self._record(row) for row in self._read(_READ_PAGE, (after, limit))]

    def _record(self, row: tuple[Any, ...]) -> Record:
        record = Record(*row[:-1])
        if content_checksum(record.id.encode(), record.vector, record.payload) != row[-1]:
            raise DamagedFile(self.name, f"row {record.key} is not what was written")
        return record

    def copy_to(self, path: Path) -> None:
        """Write a copy of all there is at this moment to a new file; others may write meanwhile.

        Pages that are free are left out. The caller sees to it that the file is on the disk.

        Raises
        ------
        DiskFull, DamagedFile
        """
        with sql_errors(self.name, self.path), closing(connect(self.path)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of the copy
            connection.execute("VACUUM INTO ?", (str(path),))

    def close(self) -> None:
        """Close the file; what its log holds is moved into it."""
        with self._reading:
            self._closed = True
            self._reader.close()
        if self._keeper is not None:
            self._keeper.close()
        with suppress(sqlite3.Error):  # everything committed is in the log, and found there again
            self._writer.close()

    def _read(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        with self._reading, sql_errors(self.name, self.path):
            if self._closed:
                raise CollectionNotFound(self.name)
            return self._reader.execute(sql, parameters).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with sql_errors(self.name, self.path):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise


def _pieces(count: int) -> Iterator[slice]:
    """Yield consecutive slices of sizes that statements are kept for."""
    start = 0
    for size in _ROWS_PER_STATEMENT:
        while count - start >= size:
            yield slice(start, start + size)
            start += size
