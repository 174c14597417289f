"""A data directory: one owner, one file per collection, created and removed atomically.

`Reservations` exclude operations on one collection or snapshot that must not overlap.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import socket
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os.path import samestat
from pathlib import Path
from typing import Final

from gcws_search.index.contracts.errors import (
    CollectionBusy,
    DirectoryLocked,
    InvalidParameter,
    StorageFailed,
)
from gcws_search.index.storage.connection import storage_errors
from gcws_search.index.storage.opened_files import INDEX, LOG, NOTE, NamedFile, note_of

SUFFIX: Final = ".sqlite"
LOCK_FILE: Final = "lock"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_COMPANIONS: Final = (LOG, INDEX, "-journal", NOTE)
# No collection's name starts with a dot, so these are never a collection's file.
_UNFINISHED: Final = ".creating-"
_DROPPED: Final = ".dropping-"
_DAMAGED: Final = ".damaged-"
_SOMEBODY: Final = "another process"


def check_name(name: str, *, loc: str = "name") -> None:
    """Raise InvalidParameter unless ``name`` is valid for a collection or a snapshot."""
    if not _NAME.fullmatch(name):
        raise InvalidParameter(
            expected="1 to 128 of letters, digits, '_', '.', '-', the first a letter or digit",
            got=repr(name[:200]),
            loc=(loc,),
        )


class DataDirectory:
    """A directory that this process owns while the object is open.

    path: created if it does not exist.
    Raises DirectoryLocked (another process owns it).
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path.resolve()
        self._lock = -1
        self._folder = _lock_folder(self.path)
        self.process = os.getpid()
        _owned.add(self)
        try:
            self._lock = _take_lock(self.path)
            self.owned: NamedFile = str(self.path / LOCK_FILE), os.fstat(self._lock)
            self._remove_remains()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unlock the directory."""
        if self._lock >= 0:
            os.ftruncate(self._lock, 0)
        self.leave()

    def leave(self) -> None:
        """Close this process's descriptor of the lock, which its parent process still holds."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def require_owned(self, name: str) -> None:
        """Raise StorageFailed if the directory's path no longer refers to the opened directory."""
        path, file = self.owned
        with storage_errors(name):
            now = os.stat(path)
        if not samestat(now, file):
            reason = f"another {LOCK_FILE!r} is in the data folder; restart the server"
            raise StorageFailed(name, "ESTALE", reason)

    def names(self) -> list[str]:
        """Return the sorted names of all collections with a file, or that lost it while open."""
        files = [name.removesuffix(NOTE) for name in os.listdir(self.path)]
        stems = {file.removesuffix(SUFFIX) for file in files if file.endswith(SUFFIX)}
        return sorted(name for name in stems if _NAME.fullmatch(name))

    def has(self, name: str) -> bool:
        """Whether a collection has a file, or lost it while open."""
        file = self.file(name)
        return file.exists() or note_of(file).exists()

    def file(self, name: str) -> Path:
        """Return the path of a collection's file."""
        return self.path / f"{name}{SUFFIX}"

    def unfinished_path(self, name: str) -> Path:
        """Return a new path at which a collection's file is written before it is published."""
        return self.path / _hidden(_UNFINISHED, name)

    def publish(self, unfinished: Path, name: str) -> None:
        """Give a finished file the collection's name; durable on return.

        The caller ensures that no one else publishes or removes this name meanwhile. The log of a
        replaced file is lost if the process ends meanwhile, so the caller ensures that it is empty.
        After an error the old file is in place.
        """
        self.require_owned(name)
        with storage_errors(name):
            # The new file must not meet the old file's log, which keeps its name until then.
            with self._out_of_the_way(name, slice(1, None)):
                unfinished.rename(self.file(name))
            sync_file(self.path)

    @contextmanager
    def _out_of_the_way(self, name: str, which: slice) -> Iterator[Path]:
        """Rename a file and its companions, or some, for a block; discard them on success."""
        dropped = self.path / _hidden(_DROPPED, name)
        pairs = [*zip(_with_companions(self.file(name)), _with_companions(dropped), strict=True)]
        moved: list[tuple[Path, Path]] = []
        try:
            for path, aside in pairs[which]:
                try:
                    path.rename(aside)
                    moved.append((path, aside))
                except FileNotFoundError:
                    if path.exists():
                        raise
                if aside == dropped:  # a power cut never leaves a file without its log
                    sync_file(self.path)
            yield dropped
        except BaseException:
            for path, aside in reversed(moved):
                with suppress(OSError):
                    aside.rename(path)
            raise
        discard(dropped)

    def remove(self, name: str) -> None:
        """Remove a collection's closed file and its log; after an error they are in place.

        The caller ensures that no one else publishes or removes this name meanwhile.

        Raises DiskFull, OutOfDescriptors, StorageFailed.
        """
        self.require_owned(name)
        # A log that outlives its file would be replayed into the next file of that name.
        with storage_errors(name), self._out_of_the_way(name, slice(None)) as dropped:
            dropped.unlink(missing_ok=True)

    def set_aside(self, name: str) -> Path:
        """Give a collection's closed file and its log a second name; return that.

        After an error there is no second name.

        Raises DiskFull, OutOfDescriptors, StorageFailed.
        """
        number = 1
        with storage_errors(name):
            while (aside := self.path / f"{name}{SUFFIX}{_DAMAGED}{number}").exists():
                number += 1
            try:
                own, others = _with_companions(self.file(name)), _with_companions(aside)
                file, *companions = zip(own, others, strict=True)
                os.link(*file)
                for each, other in companions:
                    with suppress(FileNotFoundError):
                        os.link(each, other)
                sync_file(self.path)
            except BaseException:
                discard(aside)
                raise
        return aside

    def _remove_remains(self) -> None:
        """Remove leftovers of a process that was killed between two steps."""
        for path in list(self.path.iterdir()):
            base = _without_companion(path)
            if base.name.startswith((_UNFINISHED, _DROPPED)) or (
                base != path
                and base.name.endswith(SUFFIX)
                and not (base.exists() or note_of(base).exists())
            ):
                path.unlink(missing_ok=True)


def sync_file(path: Path) -> None:
    """Wait until a file's content, or the entries of a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def bytes_of(path: Path) -> int:
    """Return the bytes on disk of a collection's file and its log."""
    total = 0
    for each in _with_companions(path):
        try:
            total += each.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _hidden(prefix: str, name: str) -> str:
    """Return an unused name for a file that the next start removes."""
    return f"{prefix}{name}-{secrets.token_hex(8)}{SUFFIX}"


def _with_companions(path: Path) -> list[Path]:
    return [path, *(path.with_name(path.name + suffix) for suffix in _COMPANIONS)]


def _without_companion(path: Path) -> Path:
    for suffix in _COMPANIONS:
        if path.name.endswith(suffix):
            return path.with_name(path.name.removesuffix(suffix))
    return path


def discard(path: Path) -> None:
    """Remove an unused file; if that fails, the next start removes it."""
    for each in _with_companions(path):
        with suppress(OSError):
            each.unlink()


_owned: Final[weakref.WeakSet[DataDirectory]] = weakref.WeakSet()


def _leave_all() -> None:
    for each in _owned:
        each.leave()


# A process forked from a killed one would hold its lock for as long as it lives.
os.register_at_fork(after_in_child=_leave_all)


def _lock_folder(path: Path) -> int:
    """Lock a folder itself, because `LOCK_FILE` may be removed; raises DirectoryLocked."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise DirectoryLocked(path, _holder(path)) from None
    except OSError:
        pass  # some file systems cannot lock folders
    return handle


def _take_lock(directory: Path) -> int:
    # flock, because a lockf lock is lost when any descriptor of the file is closed.
    handle = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(OSError):  # a full disk cannot store the message for others
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except BaseException as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise DirectoryLocked(directory, _holder(directory)) from None
        raise
    return handle


def _holder(directory: Path) -> str:
    """Return who holds the directory's lock, if known."""
    with suppress(OSError):
        return (directory / LOCK_FILE).read_text(errors="replace")[:1024].strip() or _SOMEBODY
    return _SOMEBODY


CREATING: Final = "it is being created"
LOADING: Final = "it is being loaded"
DROPPING: Final = "it is being dropped"
RESTORING: Final = "a snapshot is being restored to it"
COPYING: Final = "a snapshot of it is being made"
RECEIVING: Final = "a snapshot of this name is being written"
"""What a name is reserved for, as a caller is told who is refused."""


class Reservations:
    """The currently reserved names: of a collection, or of a collection and a snapshot.

    Operations on different names never wait for each other. On one name:

    - Several may copy a collection at once.
    - Creating a collection that is being created waits for that.
    - All other operations exclude each other: the second raises CollectionBusy.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reserved: dict[tuple[str, ...], list[str]] = {}  # running operations, all of one kind

    @contextmanager
    def reserve(self, operation: str, *name: str) -> Iterator[None]:
        """Reserve a name during a block; raises CollectionBusy."""
        self.take(operation, *name)
        try:
            yield
        finally:
            self.release(*name)

    def take(self, operation: str, *name: str) -> None:
        """Reserve a name until `release`; raises CollectionBusy."""
        with self._changed:
            if operation == CREATING:
                self._changed.wait_for(lambda: CREATING not in self._reserved.get(name, ()))
            under_way = self._reserved.setdefault(name, [])
            if under_way and not operation == under_way[0] == COPYING:
                raise CollectionBusy(name[0], under_way[0])
            under_way.append(operation)

    def release(self, *name: str) -> None:
        """Release a name that `take` has reserved."""
        with self._changed:
            under_way = self._reserved[name]
            under_way.pop()
            if not under_way:
                del self._reserved[name]
            self._changed.notify_all()

    def wait_until_free(self) -> None:
        """Return once no name is reserved; the caller ensures that this happens."""
        with self._changed:
            self._changed.wait_for(lambda: not self._reserved)
