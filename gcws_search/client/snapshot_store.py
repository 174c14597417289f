"""Snapshots in an object store, or in another folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from gcws_search.formats.stores import StoredPath, StoreFailed, stored_path
from gcws_search.index import SnapshotNotFound

_FILE: Final = ".sqlite"
_MANIFEST: Final = ".json"


class SnapshotStore:
    """The snapshots of one collection below an address.

    A snapshot is ``COLLECTION/NAME.sqlite`` and, written afterwards, ``COLLECTION/NAME.json`` with
    its name, bytes, SHA-256 and time. A snapshot exists only with the second file, so an
    interrupted upload is never listed.
    """

    def __init__(self, address: str, collection: str) -> None:
        self._collection = collection
        self._folder = stored_path(address) / collection

    def list(self) -> list[dict[str, Any]]:
        """Return all snapshots, by name."""
        files = self._folder.files()
        return [_read(each) for each in files if each.name.endswith(_MANIFEST)]

    def write(
        self, snapshot: dict[str, Any], pieces: Callable[[], Iterable[bytes]]
    ) -> dict[str, Any]:
        """Store a snapshot unless it exists; raises StoreFailed if another one has its name."""
        name = snapshot["name"]
        manifest = self._folder / f"{name}{_MANIFEST}"
        if manifest.exists():
            held = _read(manifest)
            if held["sha256"] != snapshot["sha256"]:
                words = f"expected no snapshot, or one of SHA-256 {snapshot['sha256']}"
                raise StoreFailed(0, f"{words}, got one of {held['sha256']}", str(manifest))
            return held
        file = self._folder / f"{name}{_FILE}"
        count = file.write(pieces())
        if count != snapshot["bytes"] or file.stat().st_size != count:
            words = f"expected {snapshot['bytes']} bytes, got {file.stat().st_size}"
            raise StoreFailed(0, words, str(file))
        manifest.write([json.dumps(snapshot, indent=2).encode() + b"\n"])
        return snapshot

    def read(self, name: str) -> tuple[dict[str, Any], StoredPath]:
        """Return a snapshot, and its file; raises SnapshotNotFound."""
        manifest = self._folder / f"{name}{_MANIFEST}"
        if not manifest.exists():
            error = SnapshotNotFound(self._collection, name)
            error.add_note(f"expected {manifest}, got no file of that name")
            raise error
        return _read(manifest), self._folder / f"{name}{_FILE}"

    def delete(self, name: str) -> None:
        """Remove a snapshot; raises SnapshotNotFound."""
        _, file = self.read(name)
        (self._folder / f"{name}{_MANIFEST}").remove()
        file.remove()


def _read(manifest: StoredPath) -> dict[str, Any]:
    with manifest.open() as file:
        text = file.read()
    try:
        found: dict[str, Any] = json.loads(text)
        return {word: found[word] for word in ("name", "bytes", "sha256", "created")}
    except (ValueError, TypeError, KeyError):
        words = "expected the description of a snapshot, got something else"
        raise StoreFailed(0, words, str(manifest)) from None
