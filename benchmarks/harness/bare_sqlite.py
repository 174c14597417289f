"""SQLite alone, with the same rows and settings as a collection's file."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.contracts.parameters import CollectionConfig
from gcws_search.index.storage.connection import Durability

_LOADED_AT_ONCE: Final = 4096
_COPIED: Final = ("page_size", "auto_vacuum")
"""What a file says of itself, …"""
_PRAGMAS: Final = ("journal_mode = WAL", "journal_size_limit = 67108864", "secure_delete = ON")
"""… and what each connection is told, as `index.storage.store` tells it."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows as a collection stores them.

    Attributes
    ----------
    tables : sequence of str
        SQL that makes the table.
    pragmas : sequence of str
    rows : sequence of tuple
        All columns of each, in the order in which the items were put.
    """

    tables: Sequence[str]
    pragmas: Sequence[str]
    rows: Sequence[tuple[Any, ...]]


def prepared(folder: Path, config: CollectionConfig, items: ItemBatch) -> Prepared:
    """Put items into a collection, and return their rows in its file."""
    catalog = Catalog.open(folder)
    stored, _ = catalog.create("prepared", config)
    for first in range(0, len(items), _LOADED_AT_ONCE):
        part = slice(first, first + _LOADED_AT_ONCE)
        stored.put(ItemBatch(items.ids[part], items.vectors[part], items.payloads[part]))
    catalog.close()
    file = sqlite3.connect(folder / "prepared.sqlite")
    try:
        made = file.execute("SELECT sql FROM sqlite_master WHERE tbl_name = 'items'").fetchall()
        values = [(name, file.execute(f"PRAGMA {name}").fetchone()[0]) for name in _COPIED]
        rows = file.execute("SELECT * FROM items ORDER BY key").fetchall()
    finally:
        file.close()
    tables = [sql for (sql,) in made if sql]
    return Prepared(tables, [f"{name} = {value}" for name, value in values], rows)


class Bare:
    """An open file with one table, each transaction on the disk when it returns.

    Parameters
    ----------
    path : Path
    like : Prepared
    durability : {"full", "normal"}
        With "normal" a transaction need not be on the disk yet.
    """

    def __init__(self, path: Path, like: Prepared, durability: Durability = "full") -> None:
        self._database = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=60
        )
        for pragma in (*like.pragmas, *_PRAGMAS, f"synchronous = {durability.upper()}"):
            self._database.execute(f"PRAGMA {pragma}").fetchall()
        if not self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for sql in like.tables:
                self._database.execute(sql)
        self._insert = f"INSERT INTO items VALUES ({', '.join('?' * len(like.rows[0]))})"

    def insert(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows in one transaction."""
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany(self._insert, rows)
        self._database.execute("COMMIT")

    def insert_one(self, row: tuple[Any, ...]) -> None:
        """Insert one row in a transaction of its own."""
        self._database.execute("BEGIN IMMEDIATE")
        self._database.execute(self._insert, row)
        self._database.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._database.close()
