"""Snapshots: complete copies of collections' files with their SHA-256, one folder per collection.

A snapshot is ``snapshots/COLLECTION/NAME.sqlite`` beside the collections, with a file of the same
name and ``.sha256`` for ``sha256sum -c``. It outlives its collection.

A name is reserved while its file is written; writing another one with it raises CollectionBusy. A
reader has the file open, so a snapshot may be removed meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from gcws_search.index.contracts.errors import (
    CollectionBusy,
    CollectionNotFound,
    DamagedSnapshot,
    SnapshotExists,
    SnapshotNotFound,
)
from gcws_search.index.storage.connection import storage_errors
from gcws_search.index.storage.data_directory import (
    RECEIVING,
    SUFFIX,
    Reservations,
    check_name,
    discard,
    sync_file,
)
from gcws_search.index.storage.schema import has_mark

SNAPSHOTS: Final = "snapshots"
"""Folder of all snapshots, in a data directory."""

_CHECKSUM_SUFFIX: Final = ".sha256"
_UNFINISHED: Final = ".creating-"
_COPIED_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a collection.

    sha256: of its file, as 64 hexadecimal digits.
    created: time in UTC (RFC 3339).
    """

    collection: str
    name: str
    bytes_: int
    sha256: str
    created: str
    path: Path


class Incoming:
    """A snapshot that is received in pieces; it exists once it is finished.

    Created by `Snapshots.incoming`; its name is reserved until `discard`.
    """

    def __init__(self, snapshots: Snapshots, collection: str, name: str, path: Path) -> None:
        self._snapshots = snapshots
        self.collection = collection
        self.name = name
        self._path = path
        self._sha = hashlib.sha256()
        self._file: BinaryIO = path.open("xb")
        self._is_discarded = False

    def write(self, data: bytes) -> None:
        """Write the next bytes; raises DiskFull."""
        self._sha.update(data)
        with storage_errors(self.collection):
            self._file.write(data)

    def finish(self, sha256: str | None) -> Snapshot:
        """Publish the received bytes as a snapshot, on disk on return; rows are not checked.

        sha256: of the file, if the sender has stated it.
        Raises DamagedSnapshot (the bytes do not match, or are not a collection's file),
            CollectionNotFound (the catalog was closed), DiskFull.
        """
        digest = self._sha.hexdigest()
        with storage_errors(self.collection):
            self._file.close()
            is_marked = has_mark(self._path)
        reason = None
        self._snapshots.require_open(self.collection)
        if sha256 is not None and sha256.lower() != digest:
            reason = f"expected the SHA-256 {sha256}, got {digest}"
        elif not is_marked:
            reason = "it is not a collection's file"
        if reason is not None:
            raise DamagedSnapshot(self.collection, self.name, reason)
        return self._snapshots.publish(self.collection, self.name, self._path, digest)

    def discard(self) -> None:
        """Remove the file unless it is finished, and release the name."""
        if self._is_discarded:
            return
        self._is_discarded = True
        try:
            with suppress(OSError):  # the bytes are not needed
                self._file.close()
            discard(self._path)
        finally:
            self._snapshots.release(self.collection, self.name)


def _list(folder: Path) -> list[str]:
    """Return the names in a folder, if it exists; `Path.glob` would hide read errors."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


class Snapshots:
    """All snapshots in one folder, owned by this process.

    folder: created with the first snapshot.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._naming = threading.Lock()  # held while a file is opened, or gets or loses its name
        self._names = Reservations()
        self._is_closed = False
        self._remove_remains()

    def _remove_remains(self) -> None:
        """Remove leftovers of a process that was killed between two steps."""
        for remains in self._folder.glob(f"*/{_UNFINISHED}*"):
            remains.unlink(missing_ok=True)
        for checksum in self._folder.glob(f"*/*{SUFFIX}{_CHECKSUM_SUFFIX}"):
            if not checksum.with_suffix("").exists():
                checksum.unlink(missing_ok=True)

    def close(self) -> None:
        """Refuse to publish anything from now on."""
        with self._naming:
            self._is_closed = True

    def require_open(self, collection: str) -> None:
        """Raise CollectionNotFound after `close`."""
        if self._is_closed:
            raise CollectionNotFound(collection)

    def list(self, collection: str) -> list[Snapshot]:
        """Return a collection's snapshots by name, even if the collection no longer exists.

        Raises InvalidParameter (the collection's name is invalid).
        """
        check_name(collection)
        with storage_errors(collection):
            names = sorted(
                name.removesuffix(SUFFIX)
                for name in _list(self._folder / collection)
                if name.endswith(SUFFIX) and not name.startswith(_UNFINISHED)
            )
        found = []
        for name in names:
            with suppress(SnapshotNotFound):  # removed meanwhile, or copied there by hand
                found.append(self.get(collection, name))
        return found

    def get(self, collection: str, name: str) -> Snapshot:
        """Return a snapshot; raises SnapshotNotFound, InvalidParameter (a name is invalid)."""
        with self._naming:
            return self._look(collection, name)

    def _look(self, collection: str, name: str) -> Snapshot:
        """Return a snapshot, like `get`; the caller holds ``_naming``."""
        check_name(collection)
        check_name(name, loc="snapshot")
        path = self._path(collection, name)
        with storage_errors(collection):
            try:
                told, state = _checksum_file(path).read_text(), path.stat()
            except (FileNotFoundError, NotADirectoryError):
                raise SnapshotNotFound(collection, name) from None
        return _description(collection, path, state, told[:64])

    def create(self, collection: str, name: str | None, write: Callable[[Path], None]) -> Snapshot:
        """Create a snapshot, on disk on return.

        name: None uses the current time.
        write: writes the file to a path that does not exist yet.
        Raises SnapshotExists, DiskFull, CollectionBusy (another snapshot with this name is being
            written), CollectionNotFound (the catalog was closed), InvalidParameter (invalid name).
        """
        name = self._reserve(collection, name)
        try:
            path = self._unfinished_path(collection)
            try:
                write(path)
                with storage_errors(collection):
                    return self.publish(collection, name, path, sha256_of(path))
            finally:
                discard(path)
        finally:
            self.release(collection, name)

    def incoming(self, collection: str, name: str) -> Incoming:
        """Begin to receive a snapshot from elsewhere.

        Raises SnapshotExists, DiskFull, CollectionBusy (another snapshot with this name is being
            written), InvalidParameter (a name is invalid).
        """
        self._reserve(collection, name)
        try:
            with storage_errors(collection):
                return Incoming(self, collection, name, self._unfinished_path(collection))
        except BaseException:
            self.release(collection, name)
            raise

    def _reserve(self, collection: str, name: str | None) -> str:
        """Reserve a name that no snapshot has, until `release`; return it."""
        check_name(collection)
        if name is not None:
            check_name(name, loc="snapshot")
        while True:
            chosen = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}" if name is None else name
            try:
                self._names.take(RECEIVING, collection, chosen)
                try:
                    self._require_new(collection, chosen)
                except BaseException:
                    self.release(collection, chosen)
                    raise
            except (SnapshotExists, CollectionBusy):
                if name is not None:
                    raise  # by the time: another one began in the same microsecond
            else:
                return chosen

    def release(self, collection: str, name: str) -> None:
        """Release a reserved name."""
        self._names.release(collection, name)

    def publish(self, collection: str, name: str, unfinished: Path, digest: str) -> Snapshot:
        """Publish a complete file as a snapshot; durable on return, its name stays reserved.

        Files are renamed under the lock, so a snapshot exists completely or not at all.
        """
        path = self._path(collection, name)
        checksum = _checksum_file(unfinished)
        try:
            with storage_errors(collection):
                sync_file(unfinished)
                checksum.write_text(f"{digest}  {path.name}\n")
                sync_file(checksum)
                with self._naming:
                    self.require_open(collection)
                    self._require_new(collection, name)
                    state = unfinished.stat()
                    try:
                        checksum.rename(_checksum_file(path))
                        unfinished.rename(path)
                        sync_file(path.parent)
                    except BaseException:
                        discard(path)
                        discard(_checksum_file(path))
                        raise
        finally:
            discard(checksum)
        return _description(collection, path, state, digest)

    def copy(self, collection: str, name: str, to: Path) -> None:
        """Copy a snapshot's file, and verify the copy by the checksum.

        Meanwhile the snapshot may be removed, and another one get its name.

        Raises SnapshotNotFound, DiskFull, DamagedSnapshot, InvalidParameter (a name is invalid).
        """
        snapshot, file = self.open(collection, name)
        with file, storage_errors(collection):
            with to.open("xb") as copy:
                shutil.copyfileobj(file, copy, _COPIED_AT_ONCE)
            sync_file(to)
            digest = sha256_of(to)
        if digest != snapshot.sha256:
            reason = f"expected the SHA-256 {snapshot.sha256}, got {digest}"
            raise DamagedSnapshot(collection, name, reason)

    def open(self, collection: str, name: str) -> tuple[Snapshot, BinaryIO]:
        """Return a snapshot and its open file, which stays readable if the snapshot is removed.

        Raises SnapshotNotFound, InvalidParameter (a name is invalid).
        """
        with self._naming:
            snapshot = self._look(collection, name)
            with storage_errors(collection):
                return snapshot, snapshot.path.open("rb")

    def remove(self, collection: str, name: str) -> None:
        """Remove a snapshot; durable on return. After an error it is unchanged.

        A snapshot that is still being written does not exist yet: it is not found, and stays.

        Raises SnapshotNotFound, DiskFull, OutOfDescriptors, StorageFailed, CollectionNotFound (the
            catalog was closed), InvalidParameter (a name is invalid).
        """
        with self._naming:
            self.require_open(collection)
            path = self._look(collection, name).path
            remains = path.with_name(f"{_UNFINISHED}{secrets.token_hex(8)}{SUFFIX}")
            with storage_errors(collection):
                try:
                    path.rename(remains)
                    _checksum_file(path).rename(_checksum_file(remains))
                    sync_file(path.parent)
                    remains.unlink()
                except BaseException:
                    for each in (path, _checksum_file(path)):
                        with suppress(OSError):
                            each.with_name(each.name.replace(path.name, remains.name)).rename(each)
                    raise
            discard(_checksum_file(remains))

    def _path(self, collection: str, name: str) -> Path:
        return self._folder / collection / f"{name}{SUFFIX}"

    def _unfinished_path(self, collection: str) -> Path:
        """Return a new path at which a snapshot is written before it is published."""
        folder = self._folder / collection
        with storage_errors(collection):
            folder.mkdir(parents=True, exist_ok=True)
            for above in (self._folder, self._folder.parent):
                sync_file(above)
        return folder / f"{_UNFINISHED}{secrets.token_hex(8)}{SUFFIX}"

    def _require_new(self, collection: str, name: str) -> None:
        with storage_errors(collection):
            exists = self._path(collection, name).exists()
        if exists:
            raise SnapshotExists(collection, name)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _description(collection: str, path: Path, state: os.stat_result, sha256: str) -> Snapshot:
    created = datetime.fromtimestamp(state.st_mtime, UTC).isoformat(timespec="seconds")
    return Snapshot(
        collection, path.name.removesuffix(SUFFIX), state.st_size, sha256, created, path
    )


def _checksum_file(path: Path) -> Path:
    return path.with_name(path.name + _CHECKSUM_SUFFIX)
