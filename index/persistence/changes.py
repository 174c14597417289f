"""Changes: what each asks of the file, and how it is made in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Final, Literal, TypeAlias

import numpy as np

from gcws_search.index.collection.ids import check_ids
from gcws_search.index.collection.items import Encoded, ItemBatch
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.arrays import UInt64s
from gcws_search.index.contracts.batches import RawBatch, concatenate
from gcws_search.index.contracts.errors import ItemExists
from gcws_search.index.payload.encoding import compact
from gcws_search.index.payload.filters import Filter
from gcws_search.index.storage.records import Change, RowBatch

Mode = Literal["upsert", "insert"]

_NO_ROWS: Final = RowBatch((), (), (), ())


@dataclass(frozen=True, slots=True)
class WriteResult:
    """How many items a write put: new ones, and ones that were there before."""

    inserted: int
    updated: int


class SequenceNumbers:
    """Keys of items as they will be once the changes planned so far are made."""

    def __init__(self, collection: MemoryCollection, next_key: int) -> None:
        self.collection = collection
        self.next_key = next_key
        self._planned: dict[str, int | None] = {}

    def of(self, ids: Sequence[str]) -> list[int | None]:
        """Return the key of each id, None where there will be no such item."""
        keys = self.collection.keys_of(ids)
        if self._planned:
            keys = [self._planned.get(i, key) for i, key in zip(ids, keys, strict=True)]
        return keys

    def put(self, ids: Sequence[str]) -> None:
        """Take note that items are put."""
        keys = range(self.next_key, self.next_key + len(ids))
        self._planned.update(zip(ids, keys, strict=True))
        self.next_key += len(ids)

    def remove(self, ids: Iterable[str]) -> None:
        """Take note that items are removed."""
        self._planned.update(dict.fromkeys(ids))


@dataclass(slots=True)
class Put:
    """Items to be put, hashed and turned into bytes already."""

    ids: list[str]
    places: Sequence[int]
    payloads: list[bytes | None]
    encoded: Encoded
    stored: RowBatch
    mode: Mode
    updated: int = 0

    @property
    def alone(self) -> bool:
        """Whether the plan needs all earlier changes to be in memory already."""
        return False

    @classmethod
    def of(
        cls,
        items: ItemBatch,
        mode: Mode,
        collection: MemoryCollection,
        encoded: Encoded | None = None,
    ) -> Put:
        """Prepare items, their vectors encoded already or not; any thread, no lock.

        Raises
        ------
        InvalidId, InvalidVector
        ItemExists
            An id comes twice, and the mode is "insert".
        """
        check_ids(items.ids)
        if encoded is None:
            encoded = collection.encode(items.vectors)
        ids, payloads, vectors = items.ids, [*map(compact, items.payloads)], items.vectors
        places: Sequence[int] = range(len(ids))
        if len(ids) > 1 and len(set(ids)) < len(ids):
            places = _last_places(ids, mode)
            chosen = np.array(places, np.int64)
            ids, payloads = [ids[i] for i in places], [payloads[i] for i in places]
            vectors = vectors[chosen]
            encoded = encoded.chosen(chosen)
        blobs = collection.space.to_blobs(vectors)
        stored = RowBatch(ids, blobs, codes_to_blobs(encoded.codes), payloads)
        return cls(ids, places, payloads, encoded, stored, mode)

    @property
    def rows(self) -> int:
        """How many rows the change puts."""
        return len(self.ids)

    def plan(self, keys: SequenceNumbers) -> Change:
        """Return what the file must do; ItemExists when the mode forbids it."""
        old = keys.of(self.ids)
        gone = [key for key in old if key is not None]
        if gone and self.mode == "insert":
            at = next(i for i, key in enumerate(old) if key is not None)
            raise ItemExists(self.ids[at], self.places[at])
        self.updated = len(gone)
        keys.put(self.ids)
        return Change(gone, self.stored)

    @property
    def result(self) -> WriteResult:
        """What to tell the caller."""
        return WriteResult(len(self.ids) - self.updated, self.updated)


@dataclass(slots=True)
class Delete:
    """Items to be removed, by distinct ids or by a filter."""

    ids: Sequence[str]
    where: Filter | None = None
    deleted: int = 0

    @property
    def alone(self) -> bool:
        """Whether the plan needs all earlier changes to be in memory already."""
        return self.where is not None

    @property
    def rows(self) -> int:
        """How many rows the change puts."""
        return 0

    def plan(self, keys: SequenceNumbers) -> Change:
        """Return what the file must do."""
        if self.where is not None:
            collection = keys.collection
            view = collection.view
            mask, _ = collection.permitted(view, self.where)
            self.ids = [view.ids[row] for row in np.flatnonzero(mask).tolist()]
        gone = [key for key in keys.of(self.ids) if key is not None]
        self.deleted = len(gone)
        keys.remove(self.ids)
        return Change(gone, _NO_ROWS)

    def apply(self, collection: MemoryCollection) -> None:
        """Make the change in memory."""
        collection.remove(collection.rows_of(self.ids))


Write: TypeAlias = Put | Delete
"""A change that can be planned against what is known, and made in memory once stored."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Items of neighbouring puts that share no id: memory takes them in together.

    Attributes
    ----------
    first_key : int
        Key of the first item; the others follow one by one.
    puts : list of Put
    """

    first_key: int
    puts: list[Put]

    @property
    def rows(self) -> int:
        """How many items there are."""
        return sum(put.rows for put in self.puts)

    def apply(self, collection: MemoryCollection) -> None:
        """Make the changes in memory."""
        puts = self.puts
        ids, payloads, encoded = puts[0].ids, puts[0].payloads, puts[0].encoded
        if len(puts) > 1:
            ids = [*chain.from_iterable(put.ids for put in puts)]
            payloads = [*chain.from_iterable(put.payloads for put in puts)]
            encoded = Encoded.joined([put.encoded for put in puts])
        keys = range(self.first_key, self.first_key + len(ids))
        updated = puts[0].updated if len(puts) == 1 else any(put.updated for put in puts)
        replaced = collection.rows_of(ids) if updated else ()
        collection.put(ids, payloads, encoded, keys=keys, replaced=replaced)


def steps(writes: Sequence[Write], first_key: int) -> list[Arrivals | Delete]:
    """Return what is to be done in memory, one after the other, to make changes.

    Parameters
    ----------
    writes : sequence of Write
        Planned, one after the other.
    first_key : int
        Of the first item they put.
    """
    if len(writes) == 1:
        [write] = writes
        return [write if isinstance(write, Delete) else Arrivals(first_key, [write])]
    found: list[Arrivals | Delete] = []
    arriving: set[str] = set()
    for write in writes:
        if isinstance(write, Delete):
            found.append(write)
            continue
        last = found[-1] if found else None
        if isinstance(last, Arrivals) and arriving.isdisjoint(write.ids):
            last.puts.append(write)
        else:
            found.append(Arrivals(first_key, [write]))
            arriving.clear()
        arriving.update(write.ids)
        first_key += write.rows
    return found


def encoded_together(sent: Sequence[RawBatch], collection: MemoryCollection) -> list[Encoded]:
    """Encode the vectors of several puts in one call.

    Raises
    ------
    InvalidVector
        The transform leaves nothing of a vector of one of them.
    """
    if len(sent) == 1:
        return [collection.encode(sent[0])]
    encoded = collection.encode(concatenate(sent))
    ends = [*accumulate(map(len, sent), initial=0)]
    return [encoded.chosen(slice(*some)) for some in pairwise(ends)]


def codes_to_blobs(codes: UInt64s) -> list[bytes]:
    """Return each row of (n, w) words as little-endian bytes."""
    data = codes.astype("<u8", copy=False).tobytes()
    if len(codes) == 1:
        return [data]
    width = 8 * codes.shape[1]
    if width == 0:
        return [b""] * len(codes)
    return [data[start : start + width] for start in range(0, len(data), width)]


def codes_from_blobs(blobs: Sequence[bytes], width: int) -> UInt64s:
    """Inverse of `codes_to_blobs`; ValueError when the bytes are not ``width`` words a row."""
    if any(len(blob) != 8 * width for blob in blobs):
        raise ValueError(f"codes are not {width} words")
    words = np.frombuffer(bytearray().join(blobs), "<u8").astype(np.uint64, copy=False)
    return words.reshape(len(blobs), width)


def _last_places(ids: Sequence[str], mode: Mode) -> list[int]:
    """Return where each id comes last; for inserts, refuse an id that comes twice."""
    if mode == "insert":
        seen: set[str] = set()
        for place, item_id in enumerate(ids):
            if item_id in seen:
                raise ItemExists(item_id, place)
            seen.add(item_id)
    return sorted({item_id: place for place, item_id in enumerate(ids)}.values())
