"""Whether an open collection still uses the files that it opened, and whether these are complete.

SQLite writes to the files that it has opened, even if their names refer to other files now. What it
commits to a removed, replaced or truncated file is lost at the next start. So names are checked
before and after each commit.

The shared memory beside the log states what the log should contain; its format is
https://sqlite.org/walformat.html.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from os.path import samestat
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

LOG: Final = "-wal"
INDEX: Final = "-shm"
NOTE: Final = "-changed"
"""Of a file that says why a collection's file may not hold all that was acknowledged."""

_HEADER: Final = struct.Struct("=IIIBBHIIQ8sQ")
"""Version, unused, changes, two flags, page size, frames, pages, checksum of frames, salts, and its
own checksum; twice. Then the number of frames that are in the file already."""
_BACKFILLED: Final = struct.Struct("=I28xI")
"""Frames moved to the file, and frames that are being moved."""
_BACKFILLED_AT: Final = 2 * _HEADER.size
_INDEX_BYTES: Final = _BACKFILLED_AT + _BACKFILLED.size
_LOG_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_SALTS: Final = slice(16, 24)
_OVERWRITTEN: Final = "written by another program"

_statx: Final = getattr(ctypes.CDLL(None), "statx", None)
"""Linux's `stat` of what is asked for alone; see ``man statx`` for the numbers below."""
_RELATIVE: Final = -100
_NUMBER: Final = 0x100
_STATX: Final = struct.Struct("=32xQ96xII112x")
"""The number of a file, and the two of its device."""
_Answer: Final = ctypes.c_char * _STATX.size


NamedFile: TypeAlias = tuple[str, os.stat_result]
"""A name, and the file that should keep it."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of a collection's files by another program.

    is_sound: whether the opened files are still complete, whatever their names.
    is_in_place: whether the collection's file still has its name.
    """

    name: str
    what: str
    is_sound: bool = True
    is_in_place: bool = True

    @property
    def text(self) -> str:
        """One clause for an error message."""
        return f"{os.path.basename(self.name)} was {self.what} while it was open"


class _LogState(NamedTuple):
    """The state of the log according to the shared memory."""

    frames: int
    salts: bytes
    backfilled: int
    is_moving: bool
    log_bytes: int
    """Minimum size of the log."""
    file_bytes: int
    """Minimum size of the file; other pages are in frames that were not moved yet."""


class OpenedFiles:
    """The files of one open collection.

    It opens the log and the shared memory itself. Close it after SQLite has closed them, because
    closing a file releases all locks of the process on it.

    owned: the file whose lock proves ownership of the folder.
    Raises OSError.
    """

    def __init__(self, path: Path, owned: NamedFile | None = None) -> None:
        self._name = str(path)
        self._owned = owned
        self._looking = threading.Lock()
        self._is_closed = False
        self._file = os.stat(self._name)
        self._size = self._written = 0
        self._last: _LogState | None = None
        self._log_name, self._index_name = self._name + LOG, self._name + INDEX
        self._log = self._index = -1
        try:
            self._index = os.open(self._index_name, os.O_RDONLY)
        except FileNotFoundError:
            if os.path.exists(self._log_name):
                raise
            self._is_logged = False  # a file system without shared memory has no log
            return
        self._is_logged = True
        try:
            self._log = os.open(self._log_name, os.O_RDONLY)
            opened = os.fstat(self._log)
            self._log_number = opened.st_ino, opened.st_dev
            self._log_path = os.fsencode(self._log_name)
            self._index_file = os.fstat(self._index)
            self._index_bytes = self._index_file.st_size
            self._find()  # changes from here on are noticed
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop watching the files."""
        with self._looking:
            for each in (self._log, self._index):
                if each >= 0:
                    os.close(each)
            self._log = self._index = -1
            self._is_closed = True

    @property
    def is_in_own_folder(self) -> bool:
        """Whether the collection's file is still in the folder that this process owns."""
        return self._owned is None or _name_change(*self._owned) is None

    @property
    def is_misnamed(self) -> bool:
        """Whether the file's name refers to another file."""
        try:
            return not samestat(os.stat(self._name), self._file)
        except OSError:
            return False

    @property
    def are_named(self) -> bool:
        """Whether the file and its log have their names; faster than `find_change`."""
        try:
            if not samestat(os.stat(self._name), self._file):
                return False
            return not self._is_logged or _number_of(self._log_path) == self._log_number
        except OSError:
            return False

    def mend_index(self) -> None:
        """Extend a truncated index to its length; SQLite then rebuilds it from the log.

        Raises OSError.
        """
        is_cut = self._is_logged and os.lseek(self._index, 0, os.SEEK_END) < self._index_bytes
        if is_cut and _name_change(self._index_name, self._index_file) is None:
            os.truncate(self._index_name, self._index_bytes)

    def set_foreign_log_aside(self) -> None:
        """Rename a log that SQLite has not opened, because the next start would read it.

        Raises OSError.
        """
        if self._is_logged and self._log_change() is not None:
            number = 1
            while os.path.exists(aside := f"{self._log_name}.damaged-{number}"):
                number += 1
            with suppress(FileNotFoundError):
                os.rename(self._log_name, aside)

    def find_change(self) -> FileChange | None:
        """Return the change of the files, None if there is none; any thread.

        Raises OSError (the files cannot be examined).
        """
        with self._looking:
            if self._is_closed or self._find() is None:
                return None
            # SQLite may have moved or truncated the log between two reads.
            state = self._state()
            found = self._find()
            while found is not None and state != (state := self._state()):
                found = self._find()
            return found

    def _find(self) -> FileChange | None:
        state = self._state()
        if self._is_logged and state is None:
            return FileChange(self._index_name, "cut")
        try:
            now = os.stat(self._name)
        except (FileNotFoundError, NotADirectoryError):
            return FileChange(self._name, "removed", is_in_place=False)
        if not samestat(now, self._file):
            return FileChange(self._name, "replaced", is_in_place=False)
        found = self._change_of_file(now, state)
        if found is None and state is not None:
            found = self._change_of_log(state)
        if found is None and self._owned is not None:
            found = _name_change(*self._owned)
        return found

    def _change_of_file(self, now: os.stat_result, state: _LogState | None) -> FileChange | None:
        """Return a change if a program other than SQLite wrote to the file."""
        last = self._last
        is_unmoved = (
            state is not None
            and last is not None
            and not state.is_moving
            and (state.salts, state.backfilled) == (last.salts, last.backfilled)
        )
        floor = 0 if state is None else state.file_bytes
        if is_unmoved:
            floor = max(floor, self._size)
        if now.st_size < floor:
            return FileChange(self._name, "cut", is_sound=False)
        if is_unmoved and now.st_mtime_ns != self._written:
            return FileChange(self._name, _OVERWRITTEN, is_sound=False)
        self._last, self._size, self._written = state, now.st_size, now.st_mtime_ns
        return None

    def _change_of_log(self, state: _LogState) -> FileChange | None:
        """Return a change if the log or its index was replaced or truncated."""
        if state.frames:
            if os.lseek(self._log, 0, os.SEEK_END) < state.log_bytes:
                return FileChange(self._log_name, "cut", is_sound=False)
            if os.pread(self._log, _LOG_HEADER_BYTES, 0)[_SALTS] != state.salts:
                return FileChange(self._log_name, _OVERWRITTEN, is_sound=False)
        moved = self._log_change()
        if moved is not None:
            return moved
        size = os.lseek(self._index, 0, os.SEEK_END)
        if size < self._index_bytes:
            return FileChange(self._index_name, "cut")
        self._index_bytes = size
        return _name_change(self._index_name, self._index_file)

    def _log_change(self) -> FileChange | None:
        """Return the change of the log's name, or None."""
        try:
            is_named = _number_of(self._log_path) == self._log_number
        except (FileNotFoundError, NotADirectoryError):
            return FileChange(self._log_name, "removed")
        return None if is_named else FileChange(self._log_name, "replaced")

    def _state(self) -> _LogState | None:
        """Return the expected state of the log; None without a log or a complete index."""
        if self._index < 0:
            return None
        for _ in range(100):  # written without a lock: two copies are compared
            data = os.pread(self._index, _INDEX_BYTES, 0)
            if len(data) < _INDEX_BYTES:
                return None
            if data[: _HEADER.size] == data[_HEADER.size : _BACKFILLED_AT]:
                break
        _, _, _, _, _, size, frames, pages, _, salts, _ = _HEADER.unpack_from(data)
        done, started = _BACKFILLED.unpack_from(data, _BACKFILLED_AT)
        page = 1 << 16 if size == 1 else size
        log_bytes = _LOG_HEADER_BYTES + frames * (_FRAME_HEADER_BYTES + page) if frames else 0
        file_bytes = page * (pages - (frames - done))
        return _LogState(frames, salts, done, started != done, log_bytes, file_bytes)


def _number_of(path: bytes) -> tuple[int, int]:
    """Return the inode number of a file and its device; raises OSError.

    Times are not read: Linux then records finer ones at the next write, and a commit took 40 µs
    longer.
    """
    answer = _Answer()
    if _statx is not None and _statx(_RELATIVE, path, 0, _NUMBER, answer) == 0:
        number, *device = _STATX.unpack_from(answer)
        return number, os.makedev(*device)
    found = os.stat(path)
    return found.st_ino, found.st_dev


def _name_change(name: str, file: os.stat_result) -> FileChange | None:
    """Return the change of a file's name, or None."""
    try:
        now = os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return FileChange(name, "removed")
    return None if samestat(now, file) else FileChange(name, "replaced")


def write_note(path: Path, text: str) -> None:
    """Write a note for the next start that a collection's file may be incomplete."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with note_of(path).open("w") as file:
        file.write(f"{text} at {now}\n")
        file.flush()
        os.fsync(file.fileno())


def second_name(path: Path) -> str:
    """Return how many names a file has, and how it gets its own; empty if it has one.

    Two processes would write to one file, each with a log beside its name. Raises OSError.
    """
    count = path.stat().st_nlink if path.is_file() else 1
    how = f"cp {path} x && mv x {path} makes it a file of its own"
    return f"one of {count} names (hard links); {how}" if count > 1 else ""


def read_note(path: Path) -> str | None:
    """Return why a collection's file may be incomplete, and what to do; None if it is complete.

    Raises OSError.
    """
    try:
        text = note_of(path).read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return (
        f"{text}, so what was stored may be missing; restore a snapshot, or remove "
        f"{note_of(path).name} (or run check --repair) to go on with what is there"
    )


def note_of(path: Path) -> Path:
    """Return the path of such a note."""
    return path.with_name(path.name + NOTE)
