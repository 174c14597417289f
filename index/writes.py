"""Changes on their way in: each first to the file, then to memory, several to one commit.

Waiting for the disk costs more than most changes, so those that come while it is waited for are
committed together by whoever is next; each still succeeds or fails by itself, in order of arrival.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, Protocol, TypeVar

import numpy as np

from index.arrays import UInt64s
from index.collection import Collection
from index.errors import (
    CollectionNotFound,
    DamagedFile,
    DirectoryLocked,
    DiskFull,
    GcwsError,
    ItemExists,
)
from index.filters import Filter
from index.ids import check_ids
from index.items import Encoded, ItemBatch
from index.records import Change, Rows
from index.store import Store

Mode = Literal["upsert", "insert"]
T = TypeVar("T")

GROUP_ROWS: Final = 4096
"""A commit takes in further changes until it has this many rows."""

_NO_ROWS: Final = Rows((), (), (), ())


@dataclass(frozen=True, slots=True)
class WriteResult:
    """How many items a write put: new ones, and ones that were there before."""

    inserted: int
    updated: int


class Write(Protocol):
    """A change that can be planned against what is known, and made in memory once stored."""

    @property
    def alone(self) -> bool:
        """Whether its plan needs all earlier changes to be in memory already."""

    @property
    def rows(self) -> int:
        """How many rows it puts."""

    def plan(self, keys: Keys) -> Change:
        """Return what the file must do; ItemExists when the change cannot be made."""

    def apply(self, collection: Collection, first_key: int) -> None:
        """Make the change in memory."""


class Keys:
    """Keys of items as they will be once the changes planned so far are made."""

    def __init__(self, collection: Collection, next_key: int) -> None:
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
    stored: Rows
    mode: Mode
    updated: int = 0

    @property
    def alone(self) -> bool:
        """Whether the plan needs all earlier changes to be in memory already."""
        return False

    @classmethod
    def of(cls, items: ItemBatch, mode: Mode, collection: Collection) -> Put:
        """Prepare items; any thread, no lock.

        Raises
        ------
        InvalidId, InvalidVector
        ItemExists
            An id comes twice, and the mode is "insert".
        """
        check_ids(items.ids)
        encoded = collection.encode(items.vectors)
        ids, payloads, vectors = items.ids, items.payloads, items.vectors
        places: Sequence[int] = range(len(ids))
        if len(set(ids)) < len(ids):
            places = _last_places(ids, mode)
            chosen = np.array(places, np.int64)
            ids, payloads = [ids[i] for i in places], [payloads[i] for i in places]
            vectors = vectors[chosen]
            encoded = Encoded(encoded.vectors[chosen], encoded.codes[chosen], encoded.seconds)
        blobs = collection.space.to_blobs(vectors)
        stored = Rows(ids, blobs, codes_to_blobs(encoded.codes), payloads)
        return cls(ids, places, payloads, encoded, stored, mode)

    @property
    def rows(self) -> int:
        """How many rows the change puts."""
        return len(self.ids)

    def plan(self, keys: Keys) -> Change:
        """Return what the file must do; ItemExists when the mode forbids it."""
        old = keys.of(self.ids)
        gone = [key for key in old if key is not None]
        if gone and self.mode == "insert":
            at = next(i for i, key in enumerate(old) if key is not None)
            raise ItemExists(self.ids[at], self.places[at])
        self.updated = len(gone)
        keys.put(self.ids)
        return Change(gone, self.stored)

    def apply(self, collection: Collection, first_key: int) -> None:
        """Make the change in memory."""
        collection.put(
            self.ids, self.payloads, self.encoded,
            keys=range(first_key, first_key + len(self.ids)),
            replaced=collection.rows_of(self.ids) if self.updated else (),
        )  # fmt: skip

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

    def plan(self, keys: Keys) -> Change:
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

    def apply(self, collection: Collection, first_key: int) -> None:
        """Make the change in memory."""
        del first_key
        collection.remove(collection.rows_of(self.ids))


@dataclass(slots=True)
class _Waiting:
    write: Write
    done: bool = False
    error: BaseException | None = None

    def end(self, error: BaseException | None = None) -> None:
        """Say how the change ended."""
        self.error = error
        self.done = True


class Writer:
    """Takes changes from any thread, one commit at a time.

    Parameters
    ----------
    store : Store
    collection : Collection
        Holds what the store holds.
    """

    def __init__(self, store: Store, collection: Collection) -> None:
        self._store = store
        self._collection = collection
        self._lock = threading.Lock()
        self._queue: deque[_Waiting] = deque()
        self._refusal: Callable[[], GcwsError] | None = None
        self.commits = 0
        self.commit_seconds = 0.0

    def make(self, write: Write) -> None:
        """Make a change; on return it is in the file and seen by new readers.

        Raises
        ------
        ItemExists, DiskFull, DirectoryLocked
            Nothing was changed.
        DamagedFile
            The file failed; no more changes are taken until it is opened anew.
        CollectionNotFound
            The collection is closed.
        """
        waiting = _Waiting(write)
        self._queue.append(waiting)
        with self._lock:
            while not waiting.done:
                self._make(self._group())
        if waiting.error is not None:
            raise waiting.error

    def between(self, work: Callable[[], T]) -> T | None:
        """Return what some short work gives that is done while no change is being made.

        None, and it is not done, once no changes are taken any more.
        """
        with self._lock:
            return work() if self._refusal is None else None

    def alone(self, work: Callable[[], T]) -> T:
        """Return what some short work gives that is a change itself.

        Raises
        ------
        DamagedFile, CollectionNotFound
            No changes are taken any more.
        """
        with self._lock:
            if self._refusal is not None:
                raise self._refusal()
            return work()

    def close(self, last: Callable[[], None] | None = None) -> None:
        """Wait for the change being made, refuse others, do some last work, close the store.

        Parameters
        ----------
        last : callable or None
            Left out where a write was broken off, or this has been called before.
        """
        with self._lock:
            sound = self._refusal is None
            self._refusal = partial(CollectionNotFound, self._store.name)
            try:
                if sound and last is not None:
                    last()
            finally:
                self._store.close()

    def _group(self) -> list[_Waiting]:
        """Take changes that one commit can hold off the queue."""
        group = [self._queue.popleft()]
        rows = group[0].write.rows
        while self._queue and not group[0].write.alone and not self._queue[0].write.alone:
            rows += self._queue[0].write.rows
            if rows > GROUP_ROWS:
                break
            group.append(self._queue.popleft())
        return group

    def _make(self, group: list[_Waiting]) -> None:
        try:
            self._commit(group)
        except BaseException as error:
            # The file may hold what memory does not: memory must not be changed any further.
            reason = f"a write was broken off ({error!r}); it must be opened anew"
            self._refusal = partial(DamagedFile, self._store.name, reason)
            for waiting in group:
                if not waiting.done:
                    waiting.end(error)
            if not isinstance(error, Exception):
                raise

    def _commit(self, group: list[_Waiting]) -> None:
        if self._refusal is not None:
            for waiting in group:
                waiting.end(self._refusal())
            return
        first_key = self._store.next_key
        planned = self._planned(group, Keys(self._collection, first_key))
        changes = [change for _, change in planned if change.gone or change.rows.ids]
        if changes:
            start = time.perf_counter()
            try:
                self._store.write(changes)
            except DiskFull as error:
                self._without_space([waiting for waiting, _ in planned], error)
                return
            except DirectoryLocked as error:
                # Each has waited for the lock already: one by one they would do so again in turn.
                for waiting, _ in planned:
                    waiting.end(error)
                return
            self.commits += 1
            self.commit_seconds += time.perf_counter() - start
        for waiting, change in planned:
            if change.gone or change.rows.ids:
                waiting.write.apply(self._collection, first_key)
                first_key += len(change.rows.ids)
            waiting.end()

    def _planned(self, group: list[_Waiting], keys: Keys) -> list[tuple[_Waiting, Change]]:
        planned = []
        for waiting in group:
            try:
                planned.append((waiting, waiting.write.plan(keys)))
            except Exception as error:
                # Nothing has been done yet: the others go on.
                waiting.end(error)
        return planned

    def _without_space(self, group: list[_Waiting], error: GcwsError) -> None:
        """Try changes one by one that could not be stored together: a small one may fit."""
        if len(group) == 1:
            group[0].end(error)
            return
        for waiting in group:
            self._commit([waiting])


def codes_to_blobs(codes: UInt64s) -> list[bytes]:
    """Return each row of (n, w) words as little-endian bytes."""
    data = codes.astype("<u8", copy=False).tobytes()
    width = 8 * codes.shape[1]
    if width == 0:
        return [b""] * len(codes)
    return [data[start : start + width] for start in range(0, len(data), width)]


def codes_from_blobs(blobs: Sequence[bytes], width: int) -> UInt64s:
    """Inverse of `codes_to_blobs`; ValueError when the bytes are not ``width`` words a row."""
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
