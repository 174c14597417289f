"""SQL statements of a store, and how many rows one statement takes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Final

DELETE: Final = "DELETE FROM items WHERE key IN (SELECT value FROM json_each(?))"
REPLACE_CODES: Final = "UPDATE items SET codes = ?, codes_checksum = ? WHERE key = ?"
SET_ALGORITHM: Final = "UPDATE meta SET value = ? WHERE name = 'algorithm_version'"
COUNT: Final = "SELECT count(*) FROM items"
LAST_SEQUENCES: Final = """
SELECT (SELECT max(seq) FROM sqlite_sequence WHERE name = 'items'), (SELECT max(key) FROM items)
"""
READ_ALL: Final = """
SELECT key, id, vector, codes, CAST(payload AS BLOB), checksum, codes_checksum FROM items
ORDER BY key
"""
READ_IDS: Final = "SELECT key, id FROM items INDEXED BY sqlite_autoindex_items_1 ORDER BY id"
READ_AT: Final = """
SELECT key, id, vector, CAST(payload AS BLOB), checksum FROM items
WHERE key IN (SELECT value FROM json_each(?)) ORDER BY key
"""
READ_LINKS: Final = "SELECT part, data FROM links ORDER BY part"
WRITE_LINKS: Final = "INSERT OR REPLACE INTO links (part, data) VALUES (?, ?)"
DELETE_LINKS: Final = "DELETE FROM links WHERE part = ?"
READ_META: Final = "SELECT value FROM meta WHERE name = ?"
WRITE_META: Final = "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)"
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
DELETE_BACKEND: Final = "DELETE FROM backends WHERE name = ?"

READ_NAMES: Final = "SELECT coordinate, name, checksum FROM names ORDER BY coordinate"
READ_NAMES_PAGE: Final = "SELECT coordinate, name FROM names ORDER BY coordinate LIMIT ?"
FIND_NAMES: Final = """
SELECT coordinate, name FROM names WHERE name >= ? AND name <= ? ORDER BY name LIMIT ?
"""
ADD_NAME: Final = "INSERT INTO names (coordinate, name, checksum) VALUES (?, ?, ?)"
DELETE_NAMES: Final = "DELETE FROM names"
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
    "SELECT key, CAST(id AS BLOB), vector, codes, CAST(payload AS BLOB), checksum, codes_checksum "
    "FROM items "
)
SALVAGE_SOME: Final = f"{_FOUND} WHERE key > ? ORDER BY key LIMIT {SALVAGED_ROWS}"
SALVAGE_ONE: Final = f"{_FOUND} WHERE key = ?"
SALVAGE_LOADS: Final = "SELECT key, changed, progress, checksum FROM loads ORDER BY key"

# Every step of a statement gives up the interpreter's lock, and taking it back may wait 5 ms for
# each busy thread: 8,192 rows of one statement each took 9 to 27 s beside one busy thread, and
# 0.4 s by 256 rows a statement. These are the sizes of statement kept prepared.
ROWS_PER_STATEMENT: Final = (256, 16, 1)
INSERTS: Final = {
    rows: "INSERT INTO items (key, id, vector, codes, payload, checksum, codes_checksum) VALUES "
    + ", ".join(repeat("(?, ?, ?, ?, CAST(? AS TEXT), ?, ?)", rows))
    for rows in ROWS_PER_STATEMENT
}
READS: Final = {
    rows: "SELECT key, id, vector, CAST(payload AS BLOB), checksum FROM items WHERE id IN "
    f"({', '.join(repeat('?', rows))})"
    for rows in ROWS_PER_STATEMENT
}


def pieces(count: int) -> Iterator[slice]:
    """Yield consecutive slices of sizes that statements are kept for."""
    start = 0
    for size in ROWS_PER_STATEMENT:
        while count - start >= size:
            yield slice(start, start + size)
            start += size
