"""The rows, positions, replicas and errors that database, shards and routers exchange."""

from __future__ import annotations

import logging
import os
import threading
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
from pydantic_core import from_json

from gcws_search import index as ix
from gcws_search.service.errors import AnswerTooLarge, StoreUnavailable
from gcws_search.service.messages import (
    Malformed,
    Message,
    decode_names,
    decode_texts,
    encode,
    encode_names,
    encode_texts,
)
from gcws_search.service.models import json_text

MESSAGES: Final = "/v1/messages"  # where a replica accepts messages
# Header with the shard asked, such as "0/2": the address may belong to another shard by now.
PLACE: Final = "gcws-shard"
DEAD_SECONDS: Final = 10.0  # a replica is not asked after this time without a sign of life
EPOCH_FILE: Final = "epoch.json"  # in a shard's folder

# Limits of a filter. Routers have smaller limits, and report these.
_MAX_DEPTH: Final = 64
_GENERATION_BITS: Final = 40  # bits of a served number below the generation
_MAX_CONDITIONS: Final = 1 << 20

_log = logging.getLogger(__name__)


# Errors that never reach clients


class ClusterMismatch(ValueError):  # prevents the start
    """The data found belongs to another cluster, or to another version."""

    def __init__(self, what: str, expected: str, got: str) -> None:
        super().__init__(f"{what}: expected {expected}, got {got}")


class FormerPrimary(StoreUnavailable):
    """A server that accepts writes is not, or not known to be, the current primary."""

    def __init__(self, reason: str, address: str = "") -> None:
        self.address = address  # which server, for logs: clients need not know it
        super().__init__(reason)


class HistoryLost(Exception):  # the replica is filled again
    """The database does not know the last commit that a replica applied."""

    def __init__(self, commit: int, *, is_forgotten: bool = False) -> None:
        # True: later commits were trimmed; False: the database never had that commit
        self.is_forgotten = is_forgotten
        super().__init__(f"the database does not know commit {commit} of this replica")


class Behind(Exception):  # another replica of the shard is asked
    """A replica has not reached the required moment."""

    def __init__(self, key: int, reached: int) -> None:
        self.key = key
        self.reached = reached
        super().__init__(f"expected to have reached {key}, got to {reached}")


_INPUT: Final = {name: name for name in ("expected", "got", "loc")}
_ERRORS: Final[dict[type[Exception], dict[str, str]]] = {
    ix.InvalidVector: _INPUT,
    ix.InvalidFilter: _INPUT,
    ix.InvalidParameter: _INPUT,
    ix.InvalidPayload: _INPUT,
    ix.ItemNotFound: {"name": "item_id"},
    ix.BackendNotFound: {"name": "name"},
    ix.CollectionNotFound: {"name": "name"},
    AnswerTooLarge: {"limit": "limit_bytes"},
    Behind: {"key": "key", "reached": "reached"},
}
"""Errors that messages carry: what an answer says, and the attribute it comes from."""
_BY_NAME: Final = {kind.__name__: kind for kind in _ERRORS}


def encode_error(error: Exception, **more: Any) -> bytes:  # noqa: ANN401
    """Return an answer that raises the same error in `raise_error`, with more fields."""
    fields = _ERRORS.get(type(error), {})
    facts = {name: getattr(error, attribute) for name, attribute in fields.items()}
    return encode(Message({"error": type(error).__name__, "detail": str(error), **more, **facts}))


def raise_error(message: Message) -> None:
    """Raise the error of an answer that is one; Malformed if `_ERRORS` does not list it."""
    head = message.head
    if (name := head.get("error")) is None:
        return
    kind = _BY_NAME.get(name)
    if kind is None:
        raise Malformed(f"{name}: {head['detail']}")
    if issubclass(kind, ix.InvalidInput):
        raise kind(expected=head["expected"], got=head["got"], loc=tuple(head["loc"]))
    raise kind(*(head[name] for name in _ERRORS[kind]))


def raise_fault(message: Message) -> None:
    """Raise the error of an answer unless the question caused it: then all replicas agree."""
    if (name := message.head.get("error")) is not None and _BY_NAME.get(name) in (None, Behind):
        raise_error(message)


# Rows of the database


class CollectionRow(NamedTuple):
    """A collection as the database has it."""

    number: int  # unique forever, even if the name is used again
    name: str
    config: dict[str, Any]  # JSON-able, of `CollectionConfig.to_dict`
    head: int  # key of the last change
    generation: int = 0  # rises with new weights; shards store each one separately
    weights: str | None = None  # of `Weights.to_text`, if learned

    @property
    def served(self) -> int:
        """The number by which shards know this generation of the collection."""
        return served_number(self.number, self.generation)


def served_number(number: int, generation: int) -> int:
    """Return the number by which shards know a generation of a collection."""
    return number + (generation << _GENERATION_BITS)


class Row(NamedTuple):
    """An item as the client sent it."""

    key: int  # rises with every change of the collection, in the order of commits
    id: str
    vector: bytes  # of `VectorSpace.to_blobs`; empty if not requested
    payload: bytes | None  # JSON text
    version: int = 1  # counted by the database; shards do not get it
    expires: int | None = None  # ms since 1970


def items_of(rows: Sequence[Row], space: ix.VectorSpace) -> ix.ItemBatch:
    """Return rows as the index stores them."""
    _, ids, vectors, payloads, _, expires = columns_of(rows)
    return ix.ItemBatch(ids, space.from_blobs(vectors), [*payloads], expires=expires)


def columns_of(rows: Sequence[Row]) -> tuple[Sequence[Any], ...]:
    """Return the columns of rows; the column of expiries is empty if no item expires."""
    *columns, expires = zip(*rows, strict=True) if rows else [()] * len(Row._fields)
    return *columns, () if expires.count(None) == len(expires) else expires


class Position(NamedTuple):
    """The progress of a replica in one collection."""

    key: int  # all changes up to this one are applied
    # key of the last commit in the database when the changes were read, 0 without one
    commit: int
    # random bytes of that commit: a database with another history does not have them
    stamp: bytes


class Moment(NamedTuple):
    """A position in the order of a collection's commits; each epoch has its own keys."""

    epoch: int  # number of the primary's epoch; 0 before the first read or write
    key: int  # of the last change


START: Final = Position(0, 0, b"")  # of an empty replica


class ChangeSet(NamedTuple):
    """The changes of one commit, for replicas that have all earlier ones."""

    before: Position
    after: Position
    deleted: list[str]  # ids of items that existed before the commit and not after it
    rows: list[Row]  # items put, by key

    @property
    def nbytes(self) -> int:
        """Bytes of its ids, vectors and payloads."""
        rows = self.rows
        ids = sum(map(len, self.deleted)) + sum(len(row.id) for row in rows)
        return ids + sum(len(row.vector) + len(row.payload or b"") for row in rows)

    def divide(self, shards: int, buckets: int) -> list[ChangeSet]:
        """Split a change into one part per shard, by the ids' buckets."""
        parts = [self._replace(deleted=[], rows=[]) for _ in range(shards)]
        for item_id in self.deleted:
            parts[bucket_of(item_id, buckets) % shards].deleted.append(item_id)
        for row in self.rows:
            parts[bucket_of(row.id, buckets) % shards].rows.append(row)
        return parts


class Replica(NamedTuple):
    """A replica of a shard as the database lists it."""

    cell: str  # name of the cell: the clusters that follow one database
    shard: int
    replica: int
    address: str  # of its HTTP server; empty once it must not be asked
    positions: dict[int, int]  # key that it has reached, by the number of the collection
    nbytes: int  # memory in use
    share: float  # used share of its machine's memory
    seen: float  # seconds since its last sign of life
    shards: int  # number of shards that it was started for
    refusal: str = ""  # why it cannot store more; empty if it can

    @property
    def is_filled(self) -> bool:
        """Whether all of its collections can be queried."""
        return all(key >= 0 for key in self.positions.values())

    @property
    def is_alive(self) -> bool:
        """Whether it may be asked."""
        return bool(self.address) and self.seen < DEAD_SECONDS


def bucket_of(item_id: str, buckets: int) -> int:
    """Return the bucket of an item, by its id alone."""
    return zlib.crc32(item_id.encode()) % buckets


def buckets_of(shard: int, shards: int, buckets: int) -> Sequence[int]:
    """Return the buckets that a shard has."""
    return range(shard, buckets, shards)


# Filters and changes in messages


def encode_filter(where: ix.Filter | None) -> str | None:
    """Return a filter as message heads encode it."""
    return None if where is None else json_text(where.to_dict()).decode()


@lru_cache(maxsize=4)
def decode_filter(text: str | None) -> ix.Filter | None:
    """Return the filter of a message; InvalidFilter if it is invalid."""
    if text is None:
        return None
    return ix.parse_filter(from_json(text), max_depth=_MAX_DEPTH, max_conditions=_MAX_CONDITIONS)


def encode_change(change: ChangeSet) -> Message:
    """Return a change as a part of messages; its rows take 7 blobs."""
    before, after = (
        (each.key, each.commit, each.stamp.hex()) for each in (change.before, change.after)
    )
    keys, ids, vectors, payloads, _, expires = columns_of(change.rows)
    life = {"expires": expires} if expires else {}
    return Message(
        {"before": before, "after": after, "deleted": change.deleted, **life},
        [
            np.array(keys, np.int64).tobytes(),
            *encode_names(ids),
            *encode_texts(vectors),
            *encode_texts(payloads),
        ],
    )


def decode_changes(
    said: Sequence[dict[str, Any]], blobs: Sequence[bytes | memoryview]
) -> list[ChangeSet]:
    """Return the changes of a message in the order of commits; Malformed if invalid."""
    found, parts = list[ChangeSet](), iter(blobs)
    try:
        for each in said:
            keys = np.frombuffer(next(parts), np.int64).tolist()
            ids = decode_names(next(parts), next(parts))
            vectors = decode_texts(next(parts), next(parts))
            payloads = decode_texts(next(parts), next(parts))
            versions, expires = [1] * len(keys), each.get("expires") or [None] * len(keys)
            columns = zip(keys, ids, vectors, payloads, versions, expires, strict=True)
            rows = [*map(Row._make, columns)]
            before, after = (
                Position(key, commit, bytes.fromhex(stamp))
                for key, commit, stamp in (each["before"], each["after"])
            )
            found.append(ChangeSet(before, after, each["deleted"], rows))
    except (KeyError, StopIteration, TypeError, ValueError) as error:
        raise Malformed(f"a change: {error!r}") from None
    return found


# Which primary is current: each process remembers it outside of the database, since a former
# primary that returns has all its data and accepts writes. The time of one primary is an epoch. The
# database has a row for each of its epochs. Routers and shards exchange the last epoch that they
# know, and refuse a server that does not descend from it.


class Epoch(NamedTuple):
    """The time of one primary."""

    cluster: str  # identity of the cluster
    number: int  # from 1 on
    timeline: int  # of PostgreSQL
    stamp: str  # random: tells apart epochs of the same number that two primaries began
    lsn: int = 0  # end of the primary's write-ahead log that was seen flushed to its disk

    @classmethod
    def read(cls, said: Any) -> Epoch:  # noqa: ANN401
        """Decode an epoch of a message or a file; ValueError if it is none."""
        try:
            cluster, number, timeline, stamp, lsn = said
            return cls(str(cluster), int(number), int(timeline), str(stamp), int(lsn))
        except (TypeError, ValueError):
            raise ValueError(f"expected an epoch, got {said!r:.100}") from None

    def __str__(self) -> str:
        return f"epoch {self.number} (timeline {self.timeline})"


class EpochMemory:
    """The last epoch that a process has heard of, optionally kept in a file; any thread."""

    def __init__(self, file: Path | None = None) -> None:
        self.last: Epoch | None = None
        # identities of clusters that another one has replaced
        self.former: frozenset[str] = frozenset()
        self._file = file
        self._changing = threading.Lock()
        self._watching: list[Callable[[], None]] = []
        if file is None or not file.exists():
            return
        try:
            said = orjson.loads(file.read_bytes())
            self.last, self.former = Epoch.read(said["last"]), frozenset(said["former"])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{file}: expected the last epoch of the database, got {error};"
                " with this file removed, the replica learns it from routers"
            ) from None

    @property
    def number(self) -> int:
        """The number of the last epoch; 0 if none is known."""
        return 0 if self.last is None else self.last.number

    @property
    def document(self) -> list[str | int] | None:
        """The last epoch as messages encode it."""
        return None if self.last is None else [*self.last]

    def watch(self, call: Callable[[], None]) -> None:
        """Register a function to call once a later epoch is known."""
        self._watching.append(call)

    def learn(self, epoch: Epoch) -> None:
        """Record an epoch that is known elsewhere.

        ClusterMismatch if it is of another cluster, or if two primaries began this number.
        """
        with self._changing:
            last = self.last
            if last is not None and epoch.cluster != last.cluster:
                raise ClusterMismatch("identity of the cluster", last.cluster, epoch.cluster)
            if last is not None and epoch.number == last.number and epoch.stamp != last.stamp:
                text = f"epoch {epoch.number} of two primaries"
                raise ClusterMismatch(text, last.stamp, epoch.stamp)
            self._take(epoch)

    def hear(self, said: object) -> None:
        """Record the last epoch known to the sender of a message; None from an older program.

        Malformed if it is no epoch, or belongs to another cluster or another promotion.
        """
        if said is None or said == self.document:
            return
        try:
            self.learn(Epoch.read(said))
        except ValueError as error:
            raise Malformed(str(error)) from None

    def enter(self, epoch: Epoch) -> None:
        """Record the epoch of the opened database, whose cluster may differ from the former one."""
        with self._changing:
            if self.last is not None and epoch.cluster != self.last.cluster:
                self.former |= {self.last.cluster}
                self.last = None
            self._take(epoch)

    def _take(self, epoch: Epoch) -> None:
        last = self.last
        if last is not None and (epoch.number, epoch.lsn) <= (last.number, last.lsn):
            return
        self.last = epoch
        if last is not None and epoch.number == last.number:
            return  # a new log position alone is not worth a write
        self._save(epoch)
        for call in self._watching:
            call()

    def _save(self, epoch: Epoch) -> None:
        if self._file is None:
            return
        said = {"last": [*epoch], "former": sorted(self.former)}
        unfinished = self._file.with_suffix(".unfinished")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                file.write(orjson.dumps(said))
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self._file)
        except OSError as error:  # this process still knows it
            _log.warning("the last epoch of the database is not kept: %s", error)
