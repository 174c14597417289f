"""Connections to SQLite: opening a file, the fsync of each commit, storage errors."""

from __future__ import annotations

import ctypes
import errno
import os
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from gcws_search.index.contracts.errors import (
    DamagedFile,
    DirectoryLocked,
    DiskFull,
    OutOfDescriptors,
    StorageFailed,
    StoreError,
)

Durability = Literal["full", "normal"]

_LOG_BYTES: Final = 1 << 26
"""The log is cut back to this size when a large transaction has grown it."""
BUSY_SECONDS: Final = 30.0
"""How long another program's lock on a file is waited for."""
MEMORY: Final = Path(":memory:")
"""In the place of a file: SQLite keeps all in memory, for one connection."""


class FileConnection(sqlite3.Connection):
    """A connection that knows which process opened it."""

    def __init__(self, path: Path, *given: Any, **named: Any) -> None:  # noqa: ANN401
        self.process = os.getpid()
        self.folder = path.parent
        super().__init__(*given, **named)
        _opened.add(self)

    def __del__(self) -> None:
        """Close it: Python 3.13 warns if a collection in memory is not closed."""
        with suppress(sqlite3.ProgrammingError):  # it was never opened
            self.close()


class InheritedConnection(FileConnection):
    """A connection in a fork of the process that opened it; the fork neither uses nor closes it.

    The fork has none of its locks. Closing it could write to the file, or remove a log that another
    process uses by then.
    """

    def execute(self, *_: Any) -> NoReturn:  # noqa: ANN401
        """Raise DirectoryLocked."""
        raise DirectoryLocked.before_fork(self.folder, self.process)

    executemany = executescript = execute

    def close(self) -> None:
        """Leave it open."""


_opened: Final[weakref.WeakSet[FileConnection]] = weakref.WeakSet()


def leave_open(connection: sqlite3.Connection) -> None:
    """Keep a connection open as long as the process lives: freeing it would close it.

    SQLite removes the log and its index by name when the last connection is closed, but these names
    may refer to another file's log by now.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _leave_all() -> None:
    for connection in [*_opened]:
        leave_open(connection)
        connection.__class__ = InheritedConnection


os.register_at_fork(after_in_child=_leave_all)


def connect(path: Path, *pragmas: str, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open a file, or `MEMORY`, with some settings; transactions are begun and ended explicitly."""
    connection = FileConnection(
        path,
        str(path) if path == MEMORY else f"{path.as_uri()}?mode=rw",
        uri=path != MEMORY,
        isolation_level=None,
        check_same_thread=False,
        timeout=busy_seconds,
    )
    try:
        change_settings(connection, *pragmas)
    except BaseException:
        connection.close()
        raise
    return connection


def change_settings(connection: sqlite3.Connection, *pragmas: str) -> None:
    """Change settings of an open connection."""
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}").fetchall()


def logged(durability: Durability) -> tuple[str, ...]:
    """Return the settings of a writing connection: write-ahead log, and ``synchronous``.

    With "full", SQLite syncs the log (fsync) in every COMMIT, so before any answer.
    """
    return (
        "journal_mode = WAL",
        f"synchronous = {durability.upper()}",
        f"journal_size_limit = {_LOG_BYTES}",
        "secure_delete = ON",
        "trusted_schema = OFF",
    )


# SQLite reports a write beyond a quota or a size limit as an I/O error.
_FULL: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
_REFUSED: Final = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
_UNREADABLE: Final = (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_CORRUPTFS)
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
_FILES_OPENED: Final = 4
"""A connection opens the file, its log, the log's index, and a temporary one."""


@contextmanager
def sql_errors(name: str, path: Path) -> Iterator[None]:
    """Convert SQLite's errors to the package's errors."""
    try:
        yield
    except sqlite3.Error as error:
        raise sql_error(error, name, path) from error


@contextmanager
def storage_errors(name: str) -> Iterator[None]:
    """Convert the operating system's errors on a collection's files to the package's errors."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, name) from error


def storage_error(error: OSError, name: str | None = None) -> StoreError:
    """Return the package's error for an error of the operating system."""
    if error.errno in _NO_SPACE:
        return DiskFull(name)
    if error.errno in _NO_DESCRIPTOR:
        return OutOfDescriptors(name)
    cause = errno.errorcode.get(error.errno or 0, type(error).__name__)
    # Without the path, because clients see the message.
    return StorageFailed(name, cause, error.strerror or "no reason given")


def sql_error(error: sqlite3.Error, name: str, path: Path) -> StoreError:
    """Return the package's error for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code in _FULL:
        return DiskFull(name)
    if code & 0xFF == sqlite3.SQLITE_BUSY:
        return DirectoryLocked(path.parent, "a program that has the file open")
    is_missing = code & 0xFF == sqlite3.SQLITE_CANTOPEN and not os.path.isfile(path)
    if code & 0xFF in _REFUSED and not is_missing:
        if _no_descriptor_is_free():  # SQLite only reports that it cannot open a file
            return OutOfDescriptors(name)
        return StorageFailed(name, getattr(error, "sqlite_errorname", "SQLite"), str(error))
    return DamagedFile(name, str(error))


def require_damage(
    error: sqlite3.Error, name: str, path: Path, *, unreadable_is_damage: bool
) -> None:
    """Raise the error's meaning unless the file is damaged.

    unreadable_is_damage: whether data that the disk cannot read also counts as damage.
    Raises DiskFull, OutOfDescriptors, StorageFailed, DirectoryLocked.
    """
    named = sql_error(error, name, path)
    is_unreadable = getattr(error, "sqlite_errorcode", None) in _UNREADABLE
    if not isinstance(named, DamagedFile) and not (is_unreadable and unreadable_is_damage):
        raise named from error


def _no_descriptor_is_free() -> bool:
    """Whether the process cannot open as many files as one connection needs."""
    opened: list[int] = []
    try:
        for _ in range(_FILES_OPENED):
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in _NO_DESCRIPTOR
    finally:
        for each in opened:
            os.close(each)
    return False
