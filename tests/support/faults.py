"""File operations that fail: the n-th that a thread of some name asks of the system or SQLite."""

import errno
import io
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import pytest

from gcws_search.index.storage.connection import MEMORY, FileConnection

ERRNOS: Final = ("ENOENT", "EACCES", "ENOSPC", "EMFILE", "ENFILE", "EIO", "EROFS")
SQLITE_CODES: Final = (
    "SQLITE_IOERR_READ",
    "SQLITE_IOERR_FSYNC",
    "SQLITE_CANTOPEN",
    "SQLITE_READONLY",
    "SQLITE_FULL",
)
SYSTEM: Final = "system"
"""One errno after the other."""
SQLITE: Final = "SQLite"
"""One of its codes after the other."""
ALL_FAULTS: Final = "TEST_ALL_FAULTS"
"""Environment variable: where it is set, each call is made to fail by each errno."""
_CALLS: Final[tuple[tuple[Any, str], ...]] = (
    (os, "open"), (os, "fsync"), (os, "rename"), (os, "unlink"), (os, "mkdir"), (os, "stat"),
    (os, "scandir"), (os, "listdir"), (os, "link"), (os, "dup"), (os, "posix_fallocate"),
    (io, "open"), (shutil, "copyfile"),
)  # fmt: skip
"""What files are named and read by; `Path` calls these."""


class Faults:
    """Lets one call fail, counted among those of this thread.

    ``name``: an errno or `SYSTEM`, for calls of the system; one of `SQLITE_CODES` or `SQLITE`, for
    what is asked of that. ``thread``: the name of the threads whose calls fail; None for that of
    the caller. ``failed``: what was made to fail.
    """

    def __init__(self, name: str, thread: str | None = None) -> None:
        self._name = name
        self._thread = threading.current_thread().name if thread is None else thread
        self._left = 0
        self._is_of_sqlite = name == SQLITE or name in SQLITE_CODES
        self._code = SQLITE_CODES[0] if name == SQLITE else name
        self._errno = ERRNOS[0] if name == SYSTEM else name
        self.failed: str | None = None

    @contextmanager
    def failing(self, turn: int) -> Iterator[None]:
        """Let the call of this number in the block fail, the first of which is 1."""
        self._left, self.failed = turn, None
        if self._name == SQLITE:
            self._code = SQLITE_CODES[turn % len(SQLITE_CODES)]
        if self._name == SYSTEM:
            self._errno = ERRNOS[turn % len(ERRNOS)]
        try:
            yield
        finally:
            self._left = 0

    def of_system(self, what: str) -> None:
        if not self._is_of_sqlite and self._is_due(what):
            number = getattr(errno, self._errno)
            raise OSError(number, os.strerror(number))

    def of_sqlite(self, what: str) -> None:
        if self._is_of_sqlite and self._is_due(what):
            error = sqlite3.OperationalError("made to fail")
            error.sqlite_errorcode = getattr(sqlite3, self._code)
            error.sqlite_errorname = self._code
            raise error

    def _is_due(self, what: str) -> bool:
        if self._left == 0 or threading.current_thread().name != self._thread:
            return False
        self._left -= 1
        if self._left == 0:
            self.failed = what
            return True
        return False


class _File:
    """An open file whose writes may fail."""

    def __init__(self, file: IO[Any], faults: Faults) -> None:
        self._file = file
        self._faults = faults

    def write(self, data: bytes | str) -> int:
        self._faults.of_system("write")
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._file, name)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def install(faults: Faults, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls fail that are about files of a folder, or about open files."""

    def wrapped(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any, *more: Any, **options: Any) -> Any:  # noqa: ANN401
            if isinstance(first, int) or str(first).startswith(str(folder)):
                faults.of_system(f"{name} {first}")
                if original is io_open and "x" in (*more, "")[0]:
                    return _File(original(first, *more, **options), faults)
            return original(first, *more, **options)

        return call

    io_open = io.open
    for owner, name in _CALLS:
        monkeypatch.setattr(owner, name, wrapped(name, getattr(owner, name)))

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(connection: FileConnection, *given: Any) -> Any:  # noqa: ANN401
            if given[0] != "ROLLBACK":
                faults.of_sqlite(given[0])
            return original(connection, *given)

        return call

    for name in ("execute", "executemany", "executescript"):
        monkeypatch.setattr(FileConnection, name, watched(getattr(FileConnection, name)))
    opened = FileConnection.__init__

    def open_file(connection: FileConnection, path: Path, *given: Any, **named: Any) -> None:  # noqa: ANN401
        opened(connection, path, *given, **named)
        if path != MEMORY:
            try:
                faults.of_sqlite("connect")
            except BaseException:
                connection.close()
                raise

    monkeypatch.setattr(FileConnection, "__init__", open_file)
