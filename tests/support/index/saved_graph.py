"""A collection whose index keeps links, and its file."""

import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from gcws_search.index import POLICIES, Policies
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.stored_collection import StoredCollection

FILE = "things.sqlite"

Restart = Callable[..., AbstractContextManager[StoredCollection]]
"""Closes the catalog, changes its file by an SQL statement if there is one, opens it again."""


def some(count: int, first: int = 0) -> dict[str, float]:
    return {f"i{n}": n + 1.0 for n in range(first, first + count)}


@contextmanager
def opened(directory: Path, policies: Policies = POLICIES) -> Iterator[StoredCollection]:
    with closing(Catalog.open(directory, threads=1, policies=policies)) as catalog:
        catalog.load()
        yield catalog.get("things")


def copied(directory: Path, to: Path, file: str = FILE) -> Path:
    """Copy what another process would find after a kill.

    Both are copied again where the log changed meanwhile: a log that is cut off while it is read
    would put former pages in the place of those that the file has.
    """
    to.mkdir()
    log = directory / f"{file}-wal"
    while True:
        before = _stamp(log)
        for name in (log.name, file):  # what a checkpoint moves meanwhile is in both, not in none
            if (directory / name).exists():
                shutil.copy(directory / name, to / name)
        if _stamp(log) == before:
            return to


def _stamp(path: Path) -> tuple[int, int] | None:
    if not path.exists():
        return None
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def change_file(directory: Path, sql: str, *parameters: object, file: str = FILE) -> None:
    with closing(sqlite3.connect(directory / file)) as connection, connection:
        connection.execute(sql, parameters)


def read_file(directory: Path, sql: str, file: str = FILE) -> list[Any]:
    with closing(sqlite3.connect(directory / file)) as connection:
        return connection.execute(sql).fetchall()


@contextmanager
def log_limited(directory: Path, room: int) -> Iterator[None]:
    """Let the log have so much room beyond its present size, and no more, as on a full disk."""
    size = (directory / f"{FILE}-wal").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def parts_in(directory: Path) -> list[int]:
    """Return the numbers of the parts in the file."""
    return [part for [part] in read_file(directory, "SELECT part FROM links ORDER BY part")]
