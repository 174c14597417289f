"""One collection's SQLite file: rows of bytes in, rows of bytes out, one transaction a write.

A row's key rises with every row put and is never used again, so an item that is updated gets a new
key, and reading by key gives the rows in the order in which they were put.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final, Literal

import orjson
from sqlite_utils import Database, Migrations

from index.directory import bytes_of
from index.errors import (
    CollectionNotFound,
    DamagedFile,
    DirectoryLocked,
    DiskFull,
    IncompatibleFile,
)

Durability = Literal["full", "normal"]

FORMAT_VERSION: Final = 1
CHUNK_BYTES: Final = 1 << 24
"""About this much is read at a time."""

_APPLICATION_ID: Final = 0x47435753
_PAGE_SIZE: Final = 8192
_LOG_BYTES: Final = 1 << 26
"""The log is cut back to this size when a large transaction has grown it."""
_BUSY_SECONDS: Final = 30.0
_MOST_ROWS_PER_CHUNK: Final = 1 << 14

_CREATE_ITEMS: Final = """
CREATE TABLE items (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    vector BLOB NOT NULL,
    codes BLOB NOT NULL,
    payload TEXT
) STRICT
"""
_DELETE: Final = "DELETE FROM items WHERE key IN (SELECT value FROM json_each(?))"
_COUNT: Final = "SELECT count(*) FROM items"
_LAST_KEY: Final = "SELECT seq FROM sqlite_sequence WHERE name = 'items'"
_READ_ALL: Final = "SELECT key, id, vector, codes, CAST(payload AS BLOB) FROM items ORDER BY key"
_READ_PAGE: Final = """
SELECT key, id, vector, CAST(payload AS BLOB) FROM items WHERE key > ? ORDER BY key LIMIT ?
"""

# Every step of a statement gives up the interpreter's lock, and taking it back may wait 5 ms for
# each busy thread: 8,192 rows of one statement each took 9 to 27 s beside one busy thread, and
# 0.4 s by 256 rows a statement. These are the sizes of statement kept prepared.
_ROWS_PER_STATEMENT: Final = (256, 16, 1)
_INSERTS: Final = {
    rows: "INSERT INTO items (key, id, vector, codes, payload) VALUES "
    + ", ".join(repeat("(?, ?, ?, ?, CAST(? AS TEXT))", rows))
    for rows in _ROWS_PER_STATEMENT
}
_READS: Final = {
    rows: "SELECT key, id, vector, CAST(payload AS BLOB) FROM items WHERE id IN "
    f"({', '.join(repeat('?', rows))})"
    for rows in _ROWS_PER_STATEMENT
}

MIGRATIONS: Final = ("0001_items",)
"""Names of all changes of format there have been, in order; a file records those made to it."""

_migrations = Migrations("collection")


@_migrations(name=MIGRATIONS[0])
def _create_tables(database: Database) -> None:
    database.table("meta").create({"name": str, "value": str}, pk="name", strict=True)
    database.execute(_CREATE_ITEMS)


@dataclass(frozen=True, slots=True)
class Identity:
    """What must stay as it is for stored codes to be comparable.

    Attributes
    ----------
    config : dict
        JSON-able.
    algorithm_version : int
        Of the hash the codes come from.
    """

    config: dict[str, Any]
    algorithm_version: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of rows to be put, all of one length."""

    ids: Sequence[str]
    vectors: Sequence[bytes]
    codes: Sequence[bytes]
    payloads: Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class Change:
    """Rows to be removed, by key, and rows to be put after that."""

    gone: Sequence[int]
    rows: Rows


@dataclass(frozen=True, slots=True)
class Chunk:
    """Columns of consecutive rows as read, in order of their keys."""

    keys: Sequence[int]
    ids: Sequence[str]
    vectors: Sequence[bytes]
    codes: Sequence[bytes]
    payloads: Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class Record:
    """One row without its codes."""

    key: int
    id: str
    vector: bytes
    payload: bytes | None


class Store:
    """An open file; one thread writes at a time (the caller sees to it), any thread reads.

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
        with _sql_errors(name, path):
            self._writer = _connect(path)
            try:
                self._prepare(durability)
                self._reader = _connect(path)
                self._reader.execute("PRAGMA query_only = ON")
            except BaseException:
                self._writer.close()
                raise
        self._reading = threading.Lock()
        self._closed = False

    def _prepare(self, durability: Durability) -> None:
        found = self._writer.execute("PRAGMA application_id").fetchone()[0]
        if found != _APPLICATION_ID:
            raise DamagedFile(self.name, "it is not a collection's file")
        _set_up(self._writer, durability)
        database = Database(self._writer, execute_plugins=False)
        try:
            unknown = [m.name for m in _migrations.applied(database) if m.name not in MIGRATIONS]
            if unknown:
                raise IncompatibleFile(self.name, f"one of {MIGRATIONS}", f"a later {unknown}")
            if _migrations.pending(database):
                _migrations.apply(database)
            meta = {row["name"]: row["value"] for row in database.table("meta").rows}
            self.identity = Identity(orjson.loads(meta["config"]), int(meta["algorithm_version"]))
            version = int(meta["format_version"])
        except (KeyError, ValueError, TypeError) as error:
            raise DamagedFile(self.name, f"its description is unreadable ({error})") from error
        if version != FORMAT_VERSION:
            raise IncompatibleFile(self.name, f"format {FORMAT_VERSION}", f"format {version}")
        row = self._writer.execute(_LAST_KEY).fetchone()
        self._next_key = 1 if row is None else int(row[0]) + 1

    @staticmethod
    def create(path: Path, name: str, identity: Identity) -> None:
        """Write a new file of no rows and close it; it is on the disk on return.

        Raises
        ------
        DiskFull
        """
        with _sql_errors(name, path):
            connection = _connect(path, mode="rwc")
            try:
                connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                _set_up(connection, "full")
                database = Database(connection, execute_plugins=False)
                _migrations.apply(database)
                meta = {
                    "format_version": str(FORMAT_VERSION),
                    "algorithm_version": str(identity.algorithm_version),
                    "config": orjson.dumps(identity.config).decode(),
                }
                database.table("meta").insert_all(
                    {"name": key, "value": value} for key, value in meta.items()
                )
            finally:
                connection.close()

    def __len__(self) -> int:
        """Return the number of rows."""
        with self._reading, _sql_errors(self.name, self.path):
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
                self._insert(key, change.rows)
                key += len(change.rows.ids)
        self._next_key = key

    def _insert(self, first: int, rows: Rows) -> None:
        count = len(rows.ids)
        columns = (range(first, first + count), rows.ids, rows.vectors, rows.codes, rows.payloads)
        for piece in _pieces(count):
            cells = zip(*(column[piece] for column in columns), strict=True)
            sql = _INSERTS[piece.stop - piece.start]
            self._writer.execute(sql, tuple(chain.from_iterable(cells)))

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows in order of their keys, about `CHUNK_BYTES` at a time.

        Raises
        ------
        DamagedFile
        """
        count = len(self)
        size = max(1, min(_MOST_ROWS_PER_CHUNK, CHUNK_BYTES * count // (self.bytes_on_disk + 1)))
        with self._reading, _sql_errors(self.name, self.path):
            cursor = self._reader.execute(_READ_ALL)
        while True:
            with self._reading, _sql_errors(self.name, self.path):
                rows = cursor.fetchmany(size)
            if not rows:
                return
            yield Chunk(*zip(*rows, strict=True))

    def fetch(self, ids: Sequence[str]) -> dict[str, Record]:
        """Return the rows of those ids that there are, by id."""
        found: dict[str, Record] = {}
        for piece in _pieces(len(ids)):
            rows = self._read(_READS[piece.stop - piece.start], ids[piece])
            found.update((row[1], Record(*row)) for row in rows)
        return found

    def page(self, *, after: int, limit: int) -> list[Record]:
        """Return the first ``limit`` rows whose keys are above ``after``, in order."""
        return [Record(*row) for row in self._read(_READ_PAGE, (after, limit))]

    def close(self) -> None:
        """Close the file; what its log holds is moved into it."""
        with self._reading:
            self._closed = True
            self._reader.close()
        with suppress(sqlite3.Error):  # everything committed is in the log, and found there again
            self._writer.close()

    def _read(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        with self._reading, _sql_errors(self.name, self.path):
            if self._closed:
                raise CollectionNotFound(self.name)
            return self._reader.execute(sql, parameters).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _sql_errors(self.name, self.path):
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


def _connect(path: Path, *, mode: str = "rw") -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None,
        check_same_thread=False, timeout=_BUSY_SECONDS,
    )  # fmt: skip


def _set_up(connection: sqlite3.Connection, durability: Durability) -> None:
    for pragma in (
        "journal_mode = WAL",
        f"synchronous = {durability.upper()}",
        f"journal_size_limit = {_LOG_BYTES}",
        "secure_delete = ON",
        "trusted_schema = OFF",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()


# A write the file system refuses for a quota or a size limit is an I/O error to SQLite.
_FULL: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)


@contextmanager
def _sql_errors(name: str, path: Path) -> Iterator[None]:
    """Turn SQLite's errors into the package's own."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code in _FULL:
            raise DiskFull(name) from error
        if code & 0xFF == sqlite3.SQLITE_BUSY:
            raise DirectoryLocked(path.parent, "a program that has the file open") from error
        raise DamagedFile(name, str(error)) from error
