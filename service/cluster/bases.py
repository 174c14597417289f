"""Bases: copies of a shard's files in a folder or an object store, which new replicas begin with.

A base is the file of a replica at one moment, so it says itself how far it has followed. A row of
the database makes it the current one of its shard: a file without a row is nobody's base. One
process writes that of a shard at a time, under a lock of the database that ends with its
connection, and it is on that connection that its file becomes current. What it replaces is removed
after that.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from gcws_search import index as ix
from gcws_search.formats.stores import StoredPath, StoreFailed, stored_path
from gcws_search.service.cluster.contract import CollectionRow, served_number
from gcws_search.service.cluster.database import BASE_DAYS, Database

_PIECE_BYTES: Final = 8 << 20
# A base is replaced once as many changes came after it as this share of the items …
_SHARE: Final = 0.5
# … or when it is so old, with a change after it: soon the database forgets what came after it.
_OLD_SECONDS: Final = (BASE_DAYS - 1) * 86_400.0
_MORE_ROOM: Final = 1.1  # of a file's bytes, for its copy

_COLUMNS: Final = """
    b.collection, b.generation, b.shards, b.shard, b.key, file, bytes, sha256,
    extract(epoch FROM now() - made)::double precision
"""
_CURRENT: Final = f"""
SELECT {_COLUMNS} FROM bases AS b JOIN heads AS h ON h.collection = b.collection
WHERE shards = %b AND shard = %b AND b.key >= trimmed
"""
_OF_NO_USE: Final = f"""
SELECT {_COLUMNS} FROM bases AS b LEFT JOIN heads AS h ON h.collection = b.collection
WHERE head IS NULL OR h.generation > b.generation OR trimmed > b.key
"""
_USE: Final = """
INSERT INTO bases (collection, generation, shards, shard, key, file, bytes, sha256)
SELECT collection, %b, %b, %b, %b, %b, %b, %b FROM heads
WHERE collection = %b AND trimmed <= %b
ON CONFLICT (collection, generation, shards, shard) DO UPDATE
SET key = excluded.key, file = excluded.file, bytes = excluded.bytes, sha256 = excluded.sha256,
    made = now()
RETURNING true
"""
_FORGET: Final = """
DELETE FROM bases WHERE collection = %b AND generation = %b AND shards = %b AND shard = %b
    AND file = %b
"""


class Base(NamedTuple):
    """The file that the replicas of a shard begin with, as the database lists it."""

    collection: int
    generation: int
    shards: int
    shard: int
    key: int  # that it has reached at least
    file: str  # below the address of all bases
    nbytes: int
    sha256: str
    seconds: float  # since it was written

    @property
    def served(self) -> int:
        """The number under which shards have the items of its generation."""
        return served_number(self.collection, self.generation)


class Bases:
    """The bases of one shard; any thread.

    ``address``: of the folder or the object store of all bases. It is not looked at before it is
    needed: a store that does not answer keeps no shard from its start.
    """

    def __init__(self, address: str, database: Database, shard: int, shards: int) -> None:
        self._address = address
        self._database = database
        self._shard = shard
        self._shards = shards

    def current(self) -> dict[int, Base]:
        """Return the bases that are of use, by the number that shards are asked for."""
        with self._database.connections.use() as connection:
            rows = connection.run(_CURRENT, self._shards, self._shard).fetchall()
        return {base.served: base for base in map(Base._make, rows)}

    def is_due(self, base: Base | None, key: int, items: int) -> bool:
        """Return whether a shard of so many items, at a key, is to have a new base."""
        if base is None:
            return True
        behind = key - base.key  # of all shards
        return behind > _SHARE * items * self._shards or (
            behind > 0 and base.seconds > _OLD_SECONDS
        )

    # Reading

    def read(self, base: Base, check: Callable[[], None]) -> Iterator[bytes]:
        """Yield the bytes of a base, as `read_file` does."""
        return read_file(self._place(base.file), base.file, base.sha256, check)

    @cached_property
    def _root(self) -> StoredPath:
        return stored_path(self._address)

    def _place(self, file: str) -> StoredPath:
        return self._root / file

    # Writing

    def write(
        self,
        row: CollectionRow,
        key: int,  # that the collection has reached
        collection: ix.StoredCollection,
        scratch: Path,  # a folder for its copy
        check: Callable[[], None],  # may end it between two pieces
    ) -> bool:
        """Make a copy of a collection its base; return whether that is so.

        It is not where another replica is writing one, or the collection was dropped. StoreFailed,
        StoreUnavailable, DiskFull: the base that there was stays.
        """
        folder = f"{self._database.identity}/c{row.served}/{self._shard}-of-{self._shards}"
        with self._database.connections.lock(folder) as connection:
            if connection is None:
                return False
            # Nobody else writes here: these are the base of now, and what was left by writers that
            # ended. Files that come later may be of one that has the lock after this one lost it.
            former = self._place(folder).files()
            file = f"{folder}/{key}-{secrets.token_hex(8)}.sqlite"
            told = file, *_upload(collection, scratch, self._place(file), check)
            place = row.generation, self._shards, self._shard
            if not connection.column(_USE, *place, key, *told, row.number, key):
                self._place(file).remove()
                return False
            for each in former:
                with suppress(StoreFailed):  # the next writer removes it
                    each.remove()
        return True

    def remove_useless(self) -> None:
        """Remove the bases, of any shard, of dropped collections and those too old to be of use."""
        with self._database.connections.use() as connection:
            for base in map(Base._make, connection.run(_OF_NO_USE).fetchall()):
                self._place(base.file).remove()
                connection.run(_FORGET, *base[:4], base.file)


def _upload(
    collection: ix.StoredCollection, scratch: Path, to: StoredPath, check: Callable[[], None]
) -> tuple[int, str]:
    """Store a copy of a collection's file; return its bytes and its SHA-256."""
    scratch.mkdir(exist_ok=True)
    if shutil.disk_usage(scratch).free < _MORE_ROOM * collection.store.path.stat().st_size:
        raise ix.DiskFull(collection.name)
    sha256 = hashlib.sha256()
    path = scratch / to.name
    try:
        collection.copy_to(path)
        with path.open("rb") as file:
            return to.write(_pieces(file, sha256, check)), sha256.hexdigest()
    finally:
        for left in scratch.glob(f"{path.name}*"):  # a copy that failed leaves its journal
            left.unlink()


def read_file(
    place: StoredPath, name: str, sha256: str, check: Callable[[], None]
) -> Iterator[bytes]:
    """Yield the bytes of a file; DamagedFile at their end where they are not what was written.

    ``check`` may end it between two pieces. StoreFailed: the store does not give it.
    """
    found = hashlib.sha256()
    with place.open() as file:
        yield from _pieces(file, found, check)
    if found.hexdigest() != sha256:
        raise ix.DamagedFile(name, f"expected the SHA-256 {sha256}, got {found.hexdigest()}")


def _pieces(file: Any, sha256: Any, check: Callable[[], None]) -> Iterator[bytes]:  # noqa: ANN401
    """Yield the bytes of an open file, which a hash takes too; ``check`` may end it."""
    while piece := file.read(_PIECE_BYTES):
        check()
        sha256.update(piece)
        yield piece
