"""What database, shards and routers say of each other: rows, positions, replicas."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

MESSAGES: Final = "/v1/messages"
"""Where a replica takes messages."""
PLACE: Final = "gcws-shard"
"""Header that says which shard is asked: another may have the address by now."""

DEAD_SECONDS: Final = 10.0
"""A replica without a sign of life for this time is not asked."""


class CollectionRow(NamedTuple):
    """A collection as the database has it."""

    number: int  # never used again, whatever the name is used for
    name: str
    config: dict[str, Any]  # JSON-able, of `CollectionConfig.to_dict`
    algorithm_version: int  # of the hash
    head: int  # the key of the last change


class Row(NamedTuple):
    """An item as it was sent."""

    key: int  # rises with every change of the collection, in the order of commits
    id: str
    vector: bytes  # of `VectorSpace.to_blobs`; empty where it was not asked for
    payload: bytes | None  # JSON text


class BackendRow(NamedTuple):
    """A comparison backend as it was attached."""

    name: str
    kind: str
    params: str  # JSON
    # what it learned of the items, for all shards to use; see `SavedIndex.notes`
    notes: str | None = None


class Position(NamedTuple):
    """How far a replica has followed a collection."""

    key: int  # all changes up to this one are applied
    # key of the last commit that the database had when they were read, 0 where it had none
    commit: int
    # random bytes of that commit: a database that does not know them has another history
    stamp: bytes


class Moment(NamedTuple):
    """A moment in the order of a collection's commits; a later epoch has keys of its own."""

    epoch: int  # number of the primary's; 0 where none has been read or written yet
    key: int  # of the last change


START = Position(0, 0, b"")
"""Of a replica that has nothing."""


class ChangeSet(NamedTuple):
    """What one commit changed, for replicas that have all that was before it."""

    before: Position
    after: Position
    deleted: list[str]  # ids of items that were there before and are not after
    rows: list[Row]  # items put, by key

    def divide(self, shards: int, buckets: int) -> list[ChangeSet]:
        """Split a change into one part a shard, by the ids' buckets."""
        parts = [self._replace(deleted=[], rows=[]) for _ in range(shards)]
        for item_id in self.deleted:
            parts[bucket_of(item_id, buckets) % shards].deleted.append(item_id)
        for row in self.rows:
            parts[bucket_of(row.id, buckets) % shards].rows.append(row)
        return parts


class Replica(NamedTuple):
    """A replica of a shard as the database lists it."""

    cell: str  # name of the cluster, of those that follow one database
    shard: int
    replica: int
    address: str  # of its HTTP application; empty once it is not asked any more
    positions: dict[int, int]  # key that it has reached, by number of the collection
    nbytes: int  # memory that it takes
    share: float  # of its machine's memory that is in use
    seen: float  # seconds since its last sign of life
    shards: int  # how many shards there are for it
    refusal: str = ""  # why it can store nothing more; empty where it can

    @property
    def is_filled(self) -> bool:
        """Whether all of its collections can be asked."""
        return all(key >= 0 for key in self.positions.values())


class ReplicaClient(Protocol):
    """One replica of a shard, as routers ask it."""

    @property
    def address(self) -> str:
        """What names it in logs and answers."""

    @property
    def refusal(self) -> str:
        """Why it can store nothing more; empty where it can."""

    async def ask(self, message: bytes, seconds: float) -> bytes:
        """Return the answer to a message; OSError or TimeoutError where it gives none in time."""


def bucket_of(item_id: str, buckets: int) -> int:
    """Return the bucket of an item, by its id alone."""
    return zlib.crc32(item_id.encode()) % buckets


def buckets_of(shard: int, shards: int, buckets: int) -> Sequence[int]:
    """Return the buckets that a shard has."""
    return range(shard, buckets, shards)


def place_of(shard: int, shards: int) -> str:
    """Return the name of a shard, such as "0/2", for the header `PLACE`."""
    return f"{shard}/{shards}"
