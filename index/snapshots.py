"""Snapshots: whole copies of collections' files, each with its SHA-256, one folder a collection.

A snapshot is ``snapshots/COLLECTION/NAME.sqlite`` beside the collections, with a file of the same
name and ``.sha256`` that ``sha256sum -c`` reads. It outlives its collection.
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

from index.directory import SUFFIX, check_name, storage_errors, sync_directory, sync_file
from index.errors import DamagedSnapshot, SnapshotExists, SnapshotNotFound
from index.schema import has_mark

SNAPSHOTS: Final = "snapshots"
"""Folder of all snapshots, in a data directory."""

_CHECKSUM_SUFFIX: Final = ".sha256"
_UNFINISHED: Final = ".creating-"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a collection.

    Attributes
    ----------
    collection, name : str
    bytes_ : int
    sha256 : str
        Of its file, 64 hexadecimal digits.
    created : str
        When, in UTC (RFC 3339).
    path : Path
    """

    collection: str
    name: str
    bytes_: int
    sha256: str
    created: str
    path: Path


class Incoming:
    """A snapshot while it is written piece by piece; it exists once it is finished.

    Made by `Snapshots.incoming`.
    """

    def __init__(self, snapshots: Snapshots, collection: str, name: str, path: Path) -> None:
        self._snapshots = snapshots
        self.collection = collection
        self.name = name
        self._path = path
        self._sha = hashlib.sha256()
        self._file: BinaryIO = path.open("xb")

    def write(self, data: bytes) -> None:
        """Take the next bytes.

        Raises
        ------
        DiskFull
        """
        self._sha.update(data)
        with storage_errors(self.collection):
            self._file.write(data)

    def finish(self, sha256: str | None) -> Snapshot:
        """Make what was written a snapshot, on the disk on return; its rows are not looked at.

        Parameters
        ----------
        sha256 : str or None
            What its file should have, where the sender has said it.

        Raises
        ------
        DamagedSnapshot
            It is not what was sent, or no file of a collection.
        SnapshotExists, DiskFull
        """
        digest = self._sha.hexdigest()
        with storage_errors(self.collection):
            self._file.close()
            is_marked = has_mark(self._path)
        reason = None
        if sha256 is not None and sha256.lower() != digest:
            reason = f"expected the SHA-256 {sha256}, got {digest}"
        elif not is_marked:
            reason = "it is not a collection's file"
        if reason is not None:
            raise DamagedSnapshot(self.collection, self.name, reason)
        return self._snapshots.publish(self.collection, self.name, self._path, digest)

    def discard(self) -> None:
        """Leave nothing behind, unless it is finished."""
        with suppress(OSError):  # of bytes that nobody wants
            self._file.close()
        _discard(self._path)


class Snapshots:
    """All snapshots below one folder, owned by this process.

    Parameters
    ----------
    folder : Path
        Made when the first snapshot is.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._naming = threading.Lock()
        for remains in folder.glob(f"*/{_UNFINISHED}*"):
            remains.unlink(missing_ok=True)

    def list(self, collection: str) -> list[Snapshot]:
        """Return a collection's snapshots by name, be there such a collection or not.

        Raises
        ------
        InvalidParameter
            The name is none of a collection.
        """
        check_name(collection)
        with storage_errors(collection):
            names = sorted(
                path.name.removesuffix(SUFFIX)
                for path in (self._folder / collection).glob(f"*{SUFFIX}")
                if not path.name.startswith(_UNFINISHED)
            )
        found = (self._found(collection, name) for name in names)
        return [snapshot for snapshot in found if snapshot is not None]

    def get(self, collection: str, name: str) -> Snapshot:
        """Return a snapshot.

        Raises
        ------
        SnapshotNotFound
        InvalidParameter
            A name is none.
        """
        check_name(collection)
        check_name(name, loc="snapshot")
        found = self._found(collection, name)
        if found is None:
            raise SnapshotNotFound(collection, name)
        return found

    def _found(self, collection: str, name: str) -> Snapshot | None:
        path = self._path(collection, name)
        with storage_errors(collection):
            try:
                told, state = _checksum_file(path).read_text(), path.stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return _described(collection, path, state, told[:64])

    def create(self, collection: str, name: str | None, write: Callable[[Path], None]) -> Snapshot:
        """Return a new snapshot, on the disk.

        Parameters
        ----------
        collection : str
        name : str or None
            None takes the time.
        write : callable
            Writes the file to a path at which there is none.

        Raises
        ------
        SnapshotExists, DiskFull
        InvalidParameter
            The name is none.
        """
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}" if name is None else name
        path = self._unfinished(collection, name)
        try:
            write(path)
            with storage_errors(collection):
                return self.publish(collection, name, path, sha256_of(path))
        finally:
            _discard(path)

    def incoming(self, collection: str, name: str) -> Incoming:
        """Begin a snapshot that comes from elsewhere.

        Raises
        ------
        SnapshotExists, DiskFull
        InvalidParameter
            A name is none.
        """
        path = self._unfinished(collection, name)
        with storage_errors(collection):
            return Incoming(self, collection, name, path)

    def publish(self, collection: str, name: str, unfinished: Path, digest: str) -> Snapshot:
        """Make a complete file a snapshot; durable on return."""
        path = self._path(collection, name)
        with self._naming, storage_errors(collection):
            self._require_new(collection, name)
            try:
                sync_file(unfinished)
                _checksum_file(path).write_text(f"{digest}  {path.name}\n")
                sync_file(_checksum_file(path))
                state = unfinished.stat()
                unfinished.rename(path)
                sync_directory(path.parent)
            except BaseException:
                _discard(path)
                _discard(_checksum_file(path))
                raise
        return _described(collection, path, state, digest)

    def copy(self, snapshot: Snapshot, to: Path) -> None:
        """Copy a snapshot's file, and see that the copy is what was written.

        Raises
        ------
        SnapshotNotFound, DiskFull
        DamagedSnapshot
        """
        with storage_errors(snapshot.collection):
            try:
                shutil.copyfile(snapshot.path, to)
            except FileNotFoundError:
                if snapshot.path.exists():
                    raise
                raise SnapshotNotFound(snapshot.collection, snapshot.name) from None
            sync_file(to)
            digest = sha256_of(to)
        if digest != snapshot.sha256:
            reason = f"expected the SHA-256 {snapshot.sha256}, got {digest}"
            raise DamagedSnapshot(snapshot.collection, snapshot.name, reason)

    def opened(self, collection: str, name: str) -> tuple[Snapshot, BinaryIO]:
        """Return a snapshot and its file, open for reading, be it removed meanwhile or not.

        Raises
        ------
        SnapshotNotFound
        """
        snapshot = self.get(collection, name)
        with storage_errors(collection):
            try:
                return snapshot, snapshot.path.open("rb")
            except FileNotFoundError:  # removed since
                raise SnapshotNotFound(collection, name) from None

    def remove(self, collection: str, name: str) -> None:
        """Remove a snapshot; durable on return, and after an error it is there as it was.

        Raises
        ------
        SnapshotNotFound, DiskFull, OutOfDescriptors, StorageFailed
        """
        path = self.get(collection, name).path
        remains = path.with_name(f"{_UNFINISHED}{secrets.token_hex(8)}{SUFFIX}")
        with self._naming, storage_errors(collection):
            self.get(collection, name)  # unless somebody was faster
            try:
                path.rename(remains)
                _checksum_file(path).rename(_checksum_file(remains))
                sync_directory(path.parent)
                remains.unlink()
            except BaseException:
                for each in (path, _checksum_file(path)):
                    with suppress(OSError):
                        each.with_name(each.name.replace(path.name, remains.name)).rename(each)
                raise
            _discard(_checksum_file(remains))

    def _path(self, collection: str, name: str) -> Path:
        return self._folder / collection / f"{name}{SUFFIX}"

    def _unfinished(self, collection: str, name: str) -> Path:
        check_name(collection)
        check_name(name, loc="snapshot")
        self._require_new(collection, name)
        folder = self._folder / collection
        with storage_errors(collection):
            folder.mkdir(parents=True, exist_ok=True)
            for above in (self._folder, self._folder.parent):
                sync_directory(above)
        return folder / f"{_UNFINISHED}{secrets.token_hex(8)}{SUFFIX}"

    def _require_new(self, collection: str, name: str) -> None:
        with storage_errors(collection):
            exists = self._path(collection, name).exists()
        if exists:
            raise SnapshotExists(collection, name)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _described(collection: str, path: Path, state: os.stat_result, sha256: str) -> Snapshot:
    created = datetime.fromtimestamp(state.st_mtime, UTC).isoformat(timespec="seconds")
    return Snapshot(
        collection, path.name.removesuffix(SUFFIX), state.st_size, sha256, created, path
    )  # fmt: skip


def _discard(path: Path) -> None:
    """Remove what nobody looks for; what cannot be removed now is at the next start."""
    with suppress(OSError):
        path.unlink()


def _checksum_file(path: Path) -> Path:
    return path.with_name(path.name + _CHECKSUM_SUFFIX)
