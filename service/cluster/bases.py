"""Bases: copies of a shard's files in a folder or an object store; new replicas start from them.

A base is a copy of a replica's file, so it contains the position that the replica had reached. A
row of the database makes a file the current base of its shard; files without a row are unused. One
process at a time writes the base of a shard. It holds a lock of a database connection, and makes
the file current on that connection. The former base is removed afterwards.
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
# A new base is due once this share of the items has changed since the last one …
_SHARE: Final = 0.5
# … or once the last one is so old that the database will soon forget later changes.
_OLD_SECONDS: Final = (BASE_DAYS - 1) * 86_400.0
_MORE_ROOM: Final = 1.1  # free disk space that a copy needs, per byte of the file

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
    """The file that new replicas of a shard start from, as the database lists it."""

    collection: int
    generation: int
    shards: int
    shard: int
    key: int  # the replica had reached at least this key
    file: str  # relative to the address of all bases
    nbytes: int
    sha256: str
    seconds: float  # age

    @property
    def served(self) -> int:
        """The number by which shards know this generation of the collection."""
        return served_number(self.collection, self.generation)


class Bases:
    """The bases of one shard; any thread.

    ``address``: the folder or object store of all bases. It is first opened when it is needed, so a
    shard can start while the store does not answer.
    """

    def __init__(self, address: str, database: Database, shard: int, shards: int) -> None:
        self._address = address
        self._database = database
        self._shard = shard
        self._shards = shards

    def current(self) -> dict[int, Base]:
        """Return the usable bases, by the number of the generation."""
        with self._database.connections.use() as connection:
            rows = connection.run(_CURRENT, self._shards, self._shard).fetchall()
        return {base.served: base for base in map(Base._make, rows)}

    def is_due(self, base: Base | None, key: int, items: int) -> bool:
        """Return whether a shard with this many items, at a key, needs a new base."""
        if base is None:
            return True
        behind = key - base.key  # counts the changes of all shards
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
        key: int,  # the key that the collection has reached
        collection: ix.StoredCollection,
        scratch: Path,  # folder for the temporary copy
        check: Callable[[], None],  # called between two pieces; raises to cancel
    ) -> bool:
        """Make a copy of a collection its base; return whether it became the base.

        False: another replica is writing one, or the collection was dropped. StoreFailed,
        StoreUnavailable, DiskFull: the former base stays.
        """
        folder = f"{self._database.identity}/c{row.served}/{self._shard}-of-{self._shards}"
        with self._database.connections.lock(folder) as connection:
            if connection is None:
                return False
            # The lock excludes other writers: these files are the current base and remains of
            # failed writers. A writer that lost the lock may still add files later.
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
        """Remove bases of dropped collections, and bases that are too old, of any shard."""
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
        for left in scratch.glob(f"{path.name}*"):  # a failed copy leaves its journal
            left.unlink()


def read_file(
    place: StoredPath, name: str, sha256: str, check: Callable[[], None]
) -> Iterator[bytes]:
    """Yield the bytes of a file; DamagedFile at the end if the checksum differs.

    ``check`` is called between two pieces and raises to cancel. StoreFailed: the store cannot read
    the file.
    """
    found = hashlib.sha256()
    with place.open() as file:
        yield from _pieces(file, found, check)
    if found.hexdigest() != sha256:
        raise ix.DamagedFile(name, f"expected the SHA-256 {sha256}, got {found.hexdigest()}")


def _pieces(file: Any, sha256: Any, check: Callable[[], None]) -> Iterator[bytes]:  # noqa: ANN401
    """Yield the bytes of an open file and update a hash; ``check`` raises to cancel."""
    while piece := file.read(_PIECE_BYTES):
        check()
        sha256.update(piece)
        yield piece
