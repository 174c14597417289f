"""The schema of a collection's file: tables, rows and checksums, format version, statements.

::

    items    one row per item, with its version, and checksums of it and of its codes
    backends one row per comparison backend, in the order in which they were attached
    links    parts of the data that an index stores beside codes (`index.storage.graph_parts`)
    loads    one row per load with a key, with its progress
    names    one row per coordinate that has a name
    meta     name and value: format_version, algorithm_version, config and its checksum, notes of
             the index, results of audits, the callers' metadata, a random stamp

A CRC-32 beside each row reveals damage that the file system does not report.
"""

from __future__ import annotations

import logging
import re
import secrets
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import orjson
from sqlite_utils import Database, Migrations

from gcws_search.index.contracts.errors import DamagedFile, IncompatibleFile
from gcws_search.index.contracts.parameters import MAX_DENSE_DIM
from gcws_search.index.contracts.saved_index import fields_of


def content_checksum(item_id: bytes, vector: bytes, payload: bytes | None) -> int:
    """Return the CRC-32 of an item's content, without sequence number, codes, version, expiry."""
    size = -1 if payload is None else len(payload)
    head = zlib.crc32(b"%d %d %d %b" % (len(item_id), len(vector), size, item_id))
    found = zlib.crc32(vector, head)
    return zlib.crc32(payload, found) if payload else found


def life_checksum(content: int, version: int, expires: int | None) -> int:
    """Return the checksum of an item as stored, from that of its content.

    For a version of 1 without expiry it equals the content's, as for all items before format 7.
    """
    if version == 1 and expires is None:
        return content
    return zlib.crc32(b"%d %d" % (version, -1 if expires is None else expires), content)


def codes_checksum(codes: bytes) -> int:
    """Return the CRC-32 of an item's codes, which can be recomputed from its vector."""
    return zlib.crc32(codes)


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Columns of rows as written and read, all of one length, and their checksums.

    ``sequences`` is empty if the store numbers the rows; ``versions`` if all are 1; ``expires``, in
    ms since 1970, if no row expires. ``contents`` are the checksums of the rows' contents; empty
    while a row has no id.
    """

    ids: Sequence[str]
    vectors: Sequence[bytes]
    codes: Sequence[bytes]
    payloads: Sequence[bytes | None]
    sequences: Sequence[int] = ()
    versions: Sequence[int] = ()
    expires: Sequence[int | None] = ()
    contents: Sequence[int] = field(init=False)
    codes_checksums: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        """Compute the checksums outside of the commit; only if all rows have ids."""
        contents: list[int] = []
        if all(self.ids):
            columns = zip(self.ids, self.vectors, self.payloads, strict=True)
            contents = [
                content_checksum(item_id.encode(), vector, payload)
                for item_id, vector, payload in columns
            ]
        object.__setattr__(self, "contents", contents)
        object.__setattr__(self, "codes_checksums", [*map(zlib.crc32, self.codes)])

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def checksums(self) -> Sequence[int]:
        """Checksums of the rows as stored, without sequence numbers and codes."""
        if not (self.versions or self.expires):
            return self.contents
        count = len(self)
        columns = self.versions or [1] * count, self.expires or [None] * count
        return [*map(life_checksum, self.contents, *columns)]

    def with_versions(self, versions: Sequence[int]) -> RowBatch:
        """Return the same rows with other versions; checksums of contents are reused."""
        rows = copy(self)
        object.__setattr__(rows, "versions", versions)
        return rows

    def take(self, places: Sequence[int]) -> RowBatch:
        """Return some of the rows."""
        return RowBatch(
            [self.ids[place] for place in places],
            [self.vectors[place] for place in places],
            [self.codes[place] for place in places],
            [self.payloads[place] for place in places],
            [self.sequences[place] for place in places if self.sequences],
            [self.versions[place] for place in places if self.versions],
            [self.expires[place] for place in places if self.expires],
        )


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """The progress of a load with a key.

    changed: seconds since 1970.
    """

    key: str
    changed: int
    progress: str

    @property
    def checksum(self) -> int:
        """Of all three fields."""
        return text_checksum("\n".join((self.key, str(self.changed), self.progress)))


def name_checksum(coordinate: int, name: str) -> int:
    """Return the CRC-32 of a coordinate's name."""
    return text_checksum(f"{coordinate} {name}")


_NO_ROWS: Final = RowBatch((), (), (), ())


@dataclass(slots=True)
class Change:
    """Rows to remove, by sequence number, then rows to put, and other payloads.

    ``payloads`` are sequence numbers of rows that exist then, with their new payloads; the version
    of each rises by one. ``names`` are coordinates and names that are new with the rows. ``load``
    is the progress of a load after them. ``next_id`` follows the numbers given to rows without ids,
    None if all had ids.
    """

    removed: Sequence[int] = ()
    rows: RowBatch = _NO_ROWS
    names: Sequence[tuple[int, str]] = ()
    load: LoadRecord | None = None
    next_id: int | None = None
    payloads: Sequence[tuple[int, bytes | None]] = ()

    @property
    def is_one_payload(self) -> bool:
        """Whether it only changes the payload of one row."""
        return len(self.payloads) == 1

    @property
    def is_one_row(self) -> bool:
        """Whether it only adds one row."""
        is_more = self.removed or self.names or self.load or self.next_id is not None
        return len(self.rows.ids) == 1 and not is_more

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return not (self.removed or self.rows.ids or self.load or self.payloads)


@dataclass(frozen=True, slots=True)
class Record:
    """One row without its codes."""

    sequence: int
    id: str
    vector: bytes
    payload: bytes | None
    version: int = 1
    expires: int | None = None


ReplaceCodes = Callable[[Sequence[int], Sequence[bytes]], None]
"""Takes sequence numbers of rows and the new codes of each."""


def backend_checksum(name: str, kind: str, params: str) -> int:
    """Return the CRC-32 of a comparison backend, without the notes of its index."""
    return text_checksum("\n".join(map(str, (name, kind, params))))


def text_checksum(text: str) -> int:
    """Return the CRC-32 of a text."""
    return zlib.crc32(text.encode())


@dataclass(frozen=True, slots=True)
class Identity:
    """What must not change for stored codes to be comparable.

    algorithm_version: of the hash that computed the codes.
    """

    config: dict[str, Any]
    algorithm_version: int


@dataclass(frozen=True, slots=True)
class BackendRecord:
    """A comparison backend as it was attached."""

    name: str
    kind: str
    params: str
    notes: str | None

    @property
    def checksum(self) -> int:
        """Of all fields except the notes, which change and have their own checksum."""
        return backend_checksum(self.name, self.kind, self.params)


OUTDATED: Final = 0
"""Stands for the version of a hash whose codes belong to another transform."""
FORMAT_VERSION: Final = 8

_APPLICATION_ID: Final = 0x47435753
_PAGE_SIZE: Final = 8192
_ENCODING: Final = "UTF-8"
_MAGIC: Final = b"SQLite format 3\x00"
_HEAD_BYTES: Final = 100


def _to_format(version: int) -> str:
    return (
        f"UPDATE meta SET value = '{version}' "
        f"WHERE name = 'format_version' AND value = '{version - 1}'"
    )


_CREATE_META: Final = "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) STRICT"
_CREATE_ITEMS: Final = """
CREATE TABLE items (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    vector BLOB NOT NULL,
    codes BLOB NOT NULL,
    payload TEXT
) STRICT
"""
_CREATE_LINKS: Final = "CREATE TABLE links (part INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT"
_CREATE_BACKENDS: Final = """
CREATE TABLE backends (
    name TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    params TEXT NOT NULL,
    notes TEXT
) STRICT
"""
_CREATE_LOADS: Final = """
CREATE TABLE loads (
    key TEXT PRIMARY KEY,
    changed INTEGER NOT NULL,
    progress TEXT NOT NULL,
    checksum INTEGER NOT NULL
) STRICT
"""
_CREATE_NAMES: Final = """
CREATE TABLE names (
    coordinate INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    checksum INTEGER NOT NULL
) STRICT
"""
_ADD_CHECKSUMS: Final = (
    "ALTER TABLE items ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE items ADD COLUMN codes_checksum INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE backends ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0",
)
_ADD_LIFE: Final = (
    "ALTER TABLE items ADD COLUMN version INTEGER NOT NULL DEFAULT 1",
    "ALTER TABLE items ADD COLUMN expires INTEGER",
)
"""The time at which an item expires is in ms since 1970, NULL for never."""
_CHECK_ITEMS: Final = """
UPDATE items SET
    checksum = content_checksum(CAST(id AS BLOB), vector, CAST(payload AS BLOB)),
    codes_checksum = codes_checksum(codes)
"""
_KEEP_FIRST_KEYS: Final = """
UPDATE items SET
    codes = substr(codes, 1, 64),
    codes_checksum = CASE WHEN codes_checksum = codes_checksum(codes)
        THEN codes_checksum(substr(codes, 1, 64)) ELSE codes_checksum END
WHERE length(codes) > 64 AND (
    SELECT value ->> '$.backend.kind' = 'gcws'
        AND value ->> '$.backend.params.band_width' IS NULL
    FROM meta WHERE name = 'config'
)
"""
"""Where depth is chosen per query, keys in 8 tables are kept; there were keys in all of them."""
_DROP_SPARSE_KEYS: Final = f"""
UPDATE items SET
    codes = x'',
    codes_checksum = CASE WHEN codes_checksum = codes_checksum(codes)
        THEN codes_checksum(x'') ELSE codes_checksum END
WHERE codes != x'' AND (
    SELECT value ->> '$.backend.kind' = 'gcws'
        AND value ->> '$.backend.params.band_width' IS NULL
        AND coalesce(value ->> '$.dim' > {MAX_DENSE_DIM}, 1)
    FROM meta WHERE name = 'config'
)
"""
"""Sparse rows are hashed when tables are wanted, where depth is chosen per query."""
_FOREIGN: Final = """
SELECT name FROM sqlite_master
WHERE type NOT IN ('table', 'index') OR (type = 'table' AND sql LIKE 'CREATE VIRTUAL%')
"""
_OBJECTS: Final = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
_APPLIED: Final = """
SELECT name FROM _sqlite_migrations WHERE migration_set = 'collection' ORDER BY id
"""
_SPELLING: Final = re.compile(r"[\s\"`\[\]]+")
"""White space and quotes, by which versions of one statement differ."""
_CHECK_BACKENDS: Final = "UPDATE backends SET checksum = backend_checksum(name, kind, params)"
_CHECK_CONFIG: Final = """
INSERT INTO meta (name, value)
SELECT 'config_checksum', CAST(text_checksum(value) AS TEXT) FROM meta WHERE name = 'config'
"""

DELETE: Final = "DELETE FROM items WHERE key IN (SELECT value FROM json_each(?))"
SET_ALGORITHM: Final = "UPDATE meta SET value = ? WHERE name = 'algorithm_version'"
COUNT: Final = "SELECT count(*) FROM items"
LAST_SEQUENCES: Final = """
SELECT (SELECT max(seq) FROM sqlite_sequence WHERE name = 'items'), (SELECT max(key) FROM items)
"""
READ_ALL: Final = """
SELECT key, id, vector, codes, CAST(payload AS BLOB), version, expires, checksum, codes_checksum
FROM items ORDER BY key
"""
READ_IDS: Final = "SELECT key, id FROM items INDEXED BY sqlite_autoindex_items_1 ORDER BY id"
READ_AT: Final = """
SELECT key, id, vector, CAST(payload AS BLOB), version, expires, checksum FROM items
WHERE key IN (SELECT value FROM json_each(?)) ORDER BY key
"""
READ_LINKS: Final = "SELECT part, data FROM links ORDER BY part"
WRITE_LINKS: Final = "INSERT OR REPLACE INTO links (part, data) VALUES (?, ?)"
DELETE_LINKS: Final = "DELETE FROM links WHERE part = ?"
READ_META: Final = "SELECT value FROM meta WHERE name = ?"
WRITE_META: Final = "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)"
DELETE_ALL_LINKS: Final = "DELETE FROM links"
DELETE_META: Final = "DELETE FROM meta WHERE name = ?"
CHANGE_NOTHING: Final = (
    "INSERT OR REPLACE INTO meta (name, value) VALUES ('settling', '')",
    "DELETE FROM meta WHERE name = 'settling'",
)
"""Both in one transaction: it writes to the log, and leaves everything as it is."""
EMPTY_LOG: Final = "PRAGMA wal_checkpoint(TRUNCATE)"
READ_BACKENDS: Final = "SELECT name, kind, params, notes, checksum FROM backends ORDER BY rowid"
ADD_BACKEND: Final = """
INSERT INTO backends (name, kind, params, notes, checksum) VALUES (?, ?, ?, ?, ?)
"""
NOTE_BACKEND: Final = "UPDATE backends SET notes = ? WHERE name = ?"
FORGET_BACKEND_NOTES: Final = "UPDATE backends SET notes = NULL"
DELETE_BACKEND: Final = "DELETE FROM backends WHERE name = ?"

READ_NAMES: Final = "SELECT coordinate, name, checksum FROM names ORDER BY coordinate"
READ_NAMES_PAGE: Final = "SELECT coordinate, name FROM names ORDER BY coordinate LIMIT ?"
FIND_NAMES: Final = """
SELECT coordinate, name FROM names WHERE name >= ? AND name <= ? ORDER BY name LIMIT ?
"""
ADD_NAME: Final = "INSERT INTO names (coordinate, name, checksum) VALUES (?, ?, ?)"
DELETE_NAMES: Final = "DELETE FROM names"
DELETE_NAME: Final = "DELETE FROM names WHERE coordinate = ?"
READ_LOADS: Final = """
SELECT key, changed, progress, checksum FROM loads WHERE changed >= ? ORDER BY changed DESC, key
"""
READ_LOAD: Final = """
SELECT key, changed, progress, checksum FROM loads WHERE key = ? AND changed >= ?
"""
WRITE_LOAD: Final = """
INSERT OR REPLACE INTO loads (key, changed, progress, checksum) VALUES (?, ?, ?, ?)
"""
DELETE_LOADS: Final = "DELETE FROM loads WHERE changed < ?"

SALVAGED_ROWS: Final = 256
_FOUND: Final = (
    "SELECT key, CAST(id AS BLOB), vector, codes, CAST(payload AS BLOB), version, expires, "
    "checksum, codes_checksum FROM items "
)
SALVAGE_SOME: Final = f"{_FOUND} WHERE key > ? ORDER BY key LIMIT {SALVAGED_ROWS}"
SALVAGE_ONE: Final = f"{_FOUND} WHERE key = ?"
SALVAGE_LOADS: Final = "SELECT key, changed, progress, checksum FROM loads ORDER BY key"

# Every step of a statement releases the interpreter lock, and regaining it may take 5 ms per busy
# thread. 8,192 rows took 9 to 27 s with one statement per row beside one busy thread, and 0.4 s
# with 256 rows per statement. These are the sizes of the statements that are kept prepared. A write
# of ten rows takes 0.77 of the time of one with a statement for each.
ROWS_PER_STATEMENT: Final = (256, *range(16, 0, -1))
INSERTS: Final = {
    rows: "INSERT INTO items "
    "(key, id, vector, codes, payload, version, expires, checksum, codes_checksum) "
    f"VALUES {', '.join(repeat('(?, ?, ?, ?, CAST(? AS TEXT), ?, ?, ?, ?)', rows))}"
    for rows in ROWS_PER_STATEMENT
}
READS: Final = {
    rows: "SELECT key, id, vector, CAST(payload AS BLOB), version, expires, checksum FROM items "
    f"WHERE id IN ({', '.join(repeat('?', rows))})"
    for rows in ROWS_PER_STATEMENT
}

UPDATES: Final = {
    rows: "UPDATE items SET payload = CAST(new.column2 AS TEXT), version = new.column3, "
    f"checksum = new.column4 FROM (VALUES {', '.join(repeat('(?, ?, ?, ?)', rows))}) AS new "
    "WHERE key = new.column1"
    for rows in ROWS_PER_STATEMENT
}

NEW_CODES: Final = {
    rows: "UPDATE items SET codes = new.column2, codes_checksum = new.column3 "
    f"FROM (VALUES {', '.join(repeat('(?, ?, ?)', rows))}) AS new WHERE key = new.column1"
    for rows in ROWS_PER_STATEMENT
}

_CHANGES: Final = {
    "0001_items": (_CREATE_META, _CREATE_ITEMS),
    "0002_links": (_CREATE_LINKS, _to_format(2)),
    "0003_backends": (_CREATE_BACKENDS, _to_format(3)),
    "0004_checksums": (
        *_ADD_CHECKSUMS,
        _CHECK_ITEMS,
        _CHECK_BACKENDS,
        _CHECK_CONFIG,
        _to_format(4),
    ),
    "0005_first_tables": (_KEEP_FIRST_KEYS, _to_format(5)),
    "0006_loads_and_names": (_CREATE_LOADS, _CREATE_NAMES, _to_format(6)),
    "0007_life": (*_ADD_LIFE, _to_format(7)),
    "0008_sparse_rows_without_keys": (_DROP_SPARSE_KEYS, _to_format(8)),
}
"""All changes of format there have been, in order: a file records the names of those made to it."""
MIGRATIONS: Final = (*_CHANGES,)

_migrations = Migrations("collection")
_log = logging.getLogger(__name__)


def _add_migration(name: str, statements: Sequence[str]) -> None:
    @_migrations(name=name)
    def migrate(database: Database) -> None:
        for function in (content_checksum, codes_checksum, backend_checksum, text_checksum):
            database.register_function(function)
        for statement in statements:
            database.execute(statement)


for _name, _statements in _CHANGES.items():
    _add_migration(_name, _statements)


def create_tables(connection: sqlite3.Connection, identity: Identity) -> None:
    """Create all tables in a file that `mark` has marked, and store its identity."""
    database = Database(connection, execute_plugins=False)
    _migrations.apply(database)
    config = orjson.dumps(identity.config).decode()
    meta = {
        "format_version": str(FORMAT_VERSION),
        "algorithm_version": str(identity.algorithm_version),
        "config": config,
        "config_checksum": str(text_checksum(config)),
        "stamp": new_stamp(),
    }
    database.table("meta").insert_all({"name": key, "value": value} for key, value in meta.items())


def new_stamp() -> str:
    """Return random text that tells a collection from others that have had its name."""
    return secrets.token_hex(8)


def mark(connection: sqlite3.Connection) -> None:
    """Mark a new file as a collection's; call it before anything else."""
    connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")


def has_mark(path: Path) -> bool:
    """Whether a file's first bytes are those of a collection; nothing more is checked."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return head.startswith(_MAGIC) and head[68:72] == _APPLICATION_ID.to_bytes(4, "big")


def check_mark(connection: sqlite3.Connection, name: str) -> None:
    """Raise DamagedFile unless the file is marked, and no triggers or views were added."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
        raise DamagedFile(name, "it is not a collection's file")
    for pragma, expected in (("page_size", _PAGE_SIZE), ("encoding", _ENCODING)):
        got = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
        if got != expected:
            raise DamagedFile(name, f"its {pragma} is {got}, not {expected}")
    if foreign := connection.execute(_FOREIGN).fetchall():
        raise DamagedFile(name, f"{foreign[0][0]!r} is not a table of a collection")


@lru_cache(maxsize=len(MIGRATIONS) + 1)
def _objects_after(migrations: int) -> dict[str, str]:
    """Return the tables and indexes of a file after its first migrations, by name."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _migrations.apply(
            Database(connection, execute_plugins=False), stop_before=MIGRATIONS[migrations:]
        )
        return _objects(connection)


def _objects(connection: sqlite3.Connection) -> dict[str, str]:
    return {name: _SPELLING.sub("", sql).lower() for name, sql in connection.execute(_OBJECTS)}


def _check_objects(connection: sqlite3.Connection, name: str) -> None:
    """Raise unless a file has exactly the tables and indexes that its migrations create.

    Raises IncompatibleFile, DamagedFile.
    """
    applied = [row[0] for row in connection.execute(_APPLIED)]
    unknown = [each for each in applied if each not in MIGRATIONS]
    if unknown:
        raise IncompatibleFile(name, f"one of {MIGRATIONS}", f"unknown {unknown}")
    if applied != [*MIGRATIONS[: len(applied)]]:
        raise DamagedFile(name, f"its changes of format are {applied}")
    found, expected = _objects(connection), _objects_after(len(applied))
    for each in sorted({*found, *expected}):
        if found.get(each) != expected.get(each):
            raise DamagedFile(
                name, f"{each!r} is not a table of a collection, or is defined differently"
            )


def identity_of(connection: sqlite3.Connection, name: str) -> Identity:
    """Return a file's identity, after migrating a file of an earlier format.

    Raises IncompatibleFile (a later format; nothing was changed), DamagedFile.
    """
    _check_objects(connection, name)
    database = Database(connection, execute_plugins=False)
    pending = _migrations.pending(database)
    try:
        meta = {row["name"]: row["value"] for row in database.table("meta").rows}
        config = fields_of(orjson.loads(meta["config"]))
        identity = Identity(config, int(meta["algorithm_version"]))
        version = int(meta["format_version"])
        if not pending and meta["config_checksum"] != str(text_checksum(meta["config"])):
            raise ValueError("its configuration is damaged")
    except (KeyError, ValueError, TypeError) as error:
        raise DamagedFile(name, f"its description is unreadable ({error})") from error
    if not 1 <= version <= FORMAT_VERSION:
        raise IncompatibleFile(name, f"format 1 to {FORMAT_VERSION}", f"format {version}")
    if pending:
        _log.info("collection %r: from format %d to %d", name, version, FORMAT_VERSION)
        _migrations.apply(database)
    return identity


def pieces(count: int) -> Iterator[slice]:
    """Yield consecutive slices with the sizes of prepared statements."""
    start = 0
    for size in ROWS_PER_STATEMENT:
        while count - start >= size:
            yield slice(start, start + size)
            start += size
