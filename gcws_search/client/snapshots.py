"""ServerSnapshots of a collection of a server; the collection itself may be gone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from gcws_search.client.errors import ServerError
from gcws_search.client.remote import path_of
from gcws_search.client.retries import Send, run

if TYPE_CHECKING:
    from gcws_search.client.connection import Server

_SQLITE: Final = "application/vnd.sqlite3"
_PIECE_BYTES: Final = 1 << 20
_UNFINISHED: Final = ".part"


class ServerSnapshots:
    """The snapshots of one collection.

    A snapshot is a dict of ``name``, ``bytes``, ``sha256`` and ``created``. Errors are those of a
    collection of the server.
    """

    def __init__(self, server: Server, collection: str) -> None:
        self._server = server
        self._collection = collection

    def create(self) -> dict[str, Any]:
        """Make a snapshot."""
        return self._ask(Send("POST", self._path(), repeatable=False))

    def list(self) -> list[dict[str, Any]]:
        """Return all snapshots, by name."""
        found: list[dict[str, Any]] = self._ask(Send("GET", self._path()))["snapshots"]
        return found

    def download(self, name: str, output: Path) -> None:
        """Write a snapshot to a file, which appears when its SHA-256 is right."""
        part = output.with_name(output.name + _UNFINISHED)
        sha = hashlib.sha256()
        with self._server.stream(self._path(name), self._collection) as answer:
            try:
                with part.open("wb") as file:
                    for piece in answer.iter_bytes(_PIECE_BYTES):
                        sha.update(piece)
                        file.write(piece)
                if answer.headers["etag"].strip('"') != sha.hexdigest():
                    raise ServerError("what arrived is not what was sent; nothing is kept")
                part.replace(output)
            finally:
                part.unlink(missing_ok=True)

    def upload(self, name: str, file: Path) -> dict[str, Any]:
        """Send a file as a snapshot of this name; the server compares its SHA-256."""
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        headers = {"Content-Type": _SQLITE, "Content-Length": str(file.stat().st_size)}
        params = {"sha256": digest}
        return self._ask(Send("PUT", self._path(name), lambda: _pieces(file), headers, params))

    def restore(self, name: str, *, replace: bool = False) -> dict[str, Any]:
        """Make the collection from a snapshot, and return its description."""
        params = {"replace": str(replace).lower()}
        path = self._path(name, "restore")
        return self._ask(Send("POST", path, params=params, repeatable=False))

    def delete(self, name: str) -> None:
        """Remove a snapshot."""
        self._ask(Send("DELETE", self._path(name)))

    def _path(self, *names: str) -> str:
        return path_of(self._collection, "snapshots", *names)

    def _ask(self, request: Send) -> dict[str, Any]:
        reply = run(self._server.ask(request, self._collection))
        found: dict[str, Any] = orjson.loads(reply.content) if reply.content else {}
        return found


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
