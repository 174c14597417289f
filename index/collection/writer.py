"""Puts, deletes, payload changes: planned, committed to the file in groups, then applied in memory.

Waiting for a disk or a network costs more than most writes. So writes that arrive during a commit
are committed together by the next one (`GroupCommit`). Each write of a group succeeds or fails by
itself, in order of arrival. The leader of a group hashes all its vectors in one call.

A write waits in the queue with its own thread (`GroupCommit.commit`), or without one
(`GroupCommit.submit`), like the requests of an event loop. The leader reads the latter.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np

from gcws_search.index.collection.expiry import lasting, with_ttl
from gcws_search.index.collection.items import (
    EncodedBatch,
    ItemBatch,
    check_ids,
    number_beyond,
    number_items,
)
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.similar import (
    LeftOut,
    find_similar,
    nearest_stored,
    planned_rows,
    similar_items,
    split_similar,
)
from gcws_search.index.contracts.analysis import SimilarItem
from gcws_search.index.contracts.arrays import UInt64s
from gcws_search.index.contracts.errors import (
    DamagedFile,
    DirectoryLocked,
    DiskFull,
    GcwsError,
    InvalidParameter,
    ItemExists,
    OutOfDescriptors,
    StorageFailed,
    VersionConflict,
)
from gcws_search.index.contracts.parameters import Mode, UnlessSimilar
from gcws_search.index.payload import Filter, PayloadChange
from gcws_search.index.storage.connection import storage_errors
from gcws_search.index.storage.schema import Change, LoadRecord, RowBatch
from gcws_search.index.storage.store import Store
from gcws_search.index.threads import run_uninterrupted
from gcws_search.index.vectors.space import VectorSpace


@dataclass(frozen=True, slots=True)
class WriteResult:
    """How many items a write put: new ones, and existing ones.

    ``ids`` are the first and the last number given to items without ids; None if all had ids.
    ``similar`` are items that were not stored.
    """

    inserted: int
    updated: int
    ids: tuple[str, str] | None = None
    similar: Sequence[SimilarItem] = ()


class SequenceNumbers:
    """Sequence numbers of items as they will be after the changes planned so far."""

    def __init__(self, collection: MemoryCollection, next_sequence: int) -> None:
        self.collection = collection
        self.next_sequence = next_sequence
        self.next_id = collection.next_id
        self.planned: dict[str, int | None] = {}  # by id; None for an item that is removed
        self.payloads: dict[str, bytes | None] = {}  # by id, of items that are changed in any way
        self.versions: dict[str, int] = {}  # by id, of items that are replaced or changed
        self.named: set[int] = set()  # coordinates whose names the changes store
        self.puts: list[Put] = []  # planned so far

    def of(self, ids: Sequence[str]) -> list[int | None]:
        """Return the sequence number that each id will have, None if there will be no such item."""
        sequences = self.collection.sequences_of(ids)
        if self.planned:
            known = zip(ids, sequences, strict=True)
            sequences = [self.planned.get(item_id, old) for item_id, old in known]
        return sequences

    def payloads_of(self, ids: Sequence[str]) -> list[bytes | None]:
        """Return the payload that each item will have, None if there will be no such item."""
        stored, planned = self.collection.payloads_of(ids), self.payloads
        return [planned.get(each, old) for each, old in zip(ids, stored, strict=True)]

    def versions_of(self, ids: Sequence[str]) -> list[int]:
        """Return the version that each item will have, 0 if there will be no such item."""
        versions = self.collection.versions_of(ids)
        for place, item_id in enumerate(ids if self.planned or self.versions else ()):
            if item_id in self.planned:
                there = self.planned[item_id] is not None
                versions[place] = self.versions.get(item_id, 1) if there else 0
            else:
                versions[place] = self.versions.get(item_id, versions[place])
        return versions

    def check_versions(self, ids: Sequence[str], expected: Sequence[int | None]) -> None:
        """Raise VersionConflict unless each item will have the expected version (None: any)."""
        columns = zip(ids, expected, self.versions_of(ids), strict=True)
        for row, (item_id, wanted, got) in enumerate(columns):
            if wanted is not None and wanted != got:
                raise VersionConflict(item_id, wanted, got, row)

    def put(self, ids: Sequence[str], own: Sequence[int] = ()) -> Sequence[int]:
        """Return the sequence numbers of new rows: ``own`` if given, else the next ones.

        Raises InvalidParameter (one of ``own`` is not above all existing ones).
        """
        first = self.next_sequence
        if own and own[0] < first:
            raise InvalidParameter(
                expected=f"sequence numbers from {first} on", got=str(own[0]), loc=("sequences",)
            )
        sequences = own or range(first, first + len(ids))
        self.planned.update(zip(ids, sequences, strict=True))
        if sequences:
            self.next_sequence = sequences[-1] + 1
        return sequences


@dataclass(slots=True, kw_only=True)
class Put(Change):
    """Items to be put: hashed for memory, and as bytes for the file.

    places: position of each item in its request.
    keeps_payloads: whether an item without a payload keeps its present one.
    progress: called with the result; returns the progress of the load of these items.
    given: the ids of the request, if some items have none; else empty.
    numbers: the ids given to the others.
    beyond: one more than the highest numeric id of the request.
    if_versions: see `ItemBatch`.
    similar: items that the plan omitted.
    space: with the transform of the items.
    start: items, rows, places, ``given`` and ``beyond`` before the first plan. They are needed to
        plan again if the disk has no room for a whole group.
    """

    items: EncodedBatch
    space: VectorSpace
    places: Sequence[int]
    mode: Mode
    keeps_payloads: bool = False
    progress: Callable[[WriteResult], LoadRecord] | None = None
    given: Sequence[str | None] = ()
    numbers: range = range(0)
    beyond: int = 0
    if_versions: Sequence[int | None] = ()
    similar: Sequence[SimilarItem] = ()
    start: tuple[Any, ...] = ()

    @classmethod
    def of(
        cls,
        items: ItemBatch,
        mode: Mode,
        collection: MemoryCollection,
        encoded: EncodedBatch | None = None,
        sequences: Sequence[int] = (),
        versions: Sequence[int] = (),
    ) -> Put:
        """Prepare items, whose vectors may be encoded already; any thread, no lock.

        sequences: of the items, ascending; empty if the file numbers them.
        versions: of copied items, whose ids come once; otherwise versions are counted up.
        Raises InvalidId, InvalidVector, InvalidParameter (the count of sequence numbers is wrong,
            or they do not ascend; an id comes twice, and items have ``if_versions``), ItemExists
            (an id comes twice, and the mode is "insert").
        """
        count, unnamed = len(items.ids), items.ids.count(None)
        space = collection.space  # read now: the transform may change before they are encoded
        check_ids(items.ids)
        if sequences:
            _check_sequences(sequences, count)
        if encoded is None:
            [encoded] = collection.encode([items])
        places: Sequence[int] = range(count)
        vectors = items.vectors
        given = items.ids
        if len(set(given)) + max(0, unnamed - 1) < count:
            places = last_places(items.ids, mode)
            require_distinct(items, places)
            vectors, encoded = vectors[np.array(places, np.int64)], encoded.take(places)
            sequences = sequences and [sequences[place] for place in places]
            given = [given[place] for place in places]
        expires = items.expires
        if expires and len(places) < count:
            expires = [expires[place] for place in places]
        ttl, clock = collection.config.ttl, collection.expirations.clock
        if ttl is not None:
            expires = with_ttl(expires, len(places), ttl, clock())
        with collection.searches.turn():  # a load's rows take some ms
            blobs, codes = collection.space.to_blobs(vectors), codes_to_blobs(encoded.codes)
            encoded.versions, encoded.expires = versions, expires
            life = sequences, versions, expires
            rows = RowBatch(encoded.ids, blobs, codes, encoded.payloads, *life)
        return cls(
            rows=rows,
            items=encoded,
            space=space,
            places=places,
            mode=mode,
            given=given if unnamed else (),
            beyond=number_beyond(given),
            if_versions=items.if_versions,
        )

    def plan(self, numbers: SequenceNumbers) -> None:
        """Assign ids, versions and sequence numbers, and find the rows to be removed.

        Raises ItemExists (by the mode), VersionConflict, InvalidVector (weights learned since make
            a vector empty).
        """
        if self.space is not numbers.collection.space:
            self._encode_again(numbers.collection)
        if self.start:
            self.items, self.rows, self.places, self.given, self.beyond = self.start
            self.items.versions, self.similar = self.rows.versions, ()
        self.start = self.items, self.rows, self.places, self.given, self.beyond
        if self.if_versions:
            numbers.check_versions(self.items.ids, self.if_versions)
        left_out: Sequence[LeftOut] = ()
        if isinstance(self.mode, UnlessSimilar):
            left_out = self._leave_out_similar(self.mode, numbers)
        next_id = max(numbers.next_id, self.beyond)
        if self.given:
            next_id = self._number_items(next_id, numbers)
        ids = self.items.ids
        old = numbers.of(ids)
        removed = [sequence for sequence in old if sequence is not None]
        if removed and self.mode == "insert":
            at = next(i for i, sequence in enumerate(old) if sequence is not None)
            raise ItemExists(ids[at], self.places[at])
        if removed and self.keeps_payloads:
            self._keep_payloads(numbers)
        self.removed = removed
        if removed and not self.rows.versions:
            self._count_versions(numbers)
        self.items.sequences = numbers.put(ids, self.rows.sequences)
        numbers.payloads.update(zip(ids, self.items.payloads, strict=True))
        numbers.next_id = next_id
        numbers.puts.append(self)
        if left_out:
            self.similar = similar_items(left_out, ids)
        if numbers.collection.space.dim is None:
            self.names = numbers.collection.names.use(self.items.vectors, numbers.named)
        if self.progress is not None:
            self.load = self.progress(self.result)

    def _encode_again(self, collection: MemoryCollection) -> None:
        """Encode the items with the present transform."""
        self.space = collection.space
        vectors = self.space.prepare(self.space.from_blobs(self.rows.vectors))
        codes = collection.backend.encode(vectors)
        self.items = replace(self.items, vectors=vectors, codes=codes)
        self.rows = replace(self.rows, codes=codes_to_blobs(codes))

    def _leave_out_similar(self, unless: UnlessSimilar, numbers: SequenceNumbers) -> list[LeftOut]:
        """Remove items that are similar to others; return their places, ids, and similar items."""
        collection, vectors = numbers.collection, self.items.vectors
        stored = nearest_stored(collection, vectors, unless, numbers.planned)
        planned = planned_rows([put.items for put in numbers.puts], numbers.planned)
        lasts = lasting(self.items.expires, len(self.items), collection.expirations.clock())
        near = find_similar(collection, vectors, unless, stored, planned, lasts)
        kept, left_out = split_similar(near, self.places, self.given or self.items.ids)
        if left_out:
            self.items, self.rows = self.items.take(kept), self.rows.take(kept)
            self.places = [self.places[row] for row in kept]
            if self.given:
                self.given = [self.given[row] for row in kept]
            self.beyond = number_beyond(self.given or self.items.ids)
        return left_out

    def _number_items(self, first: int, numbers: SequenceNumbers) -> int:
        """Assign the next numbers to items without ids; return the number that follows."""

        def existing(ids: Sequence[str]) -> list[str]:
            found = zip(ids, numbers.of(ids), strict=True)
            return [item_id for item_id, sequence in found if sequence is not None]

        ids, self.numbers = number_items(self.given, first, existing)
        self.items.ids, self.rows = ids, replace(self.rows, ids=ids)
        self.next_id = self.numbers.stop
        return self.numbers.stop

    def _keep_payloads(self, numbers: SequenceNumbers) -> None:
        own, stored = self.items.payloads, numbers.payloads_of(self.items.ids)
        payloads = [old if new is None else new for new, old in zip(own, stored, strict=True)]
        self.items = replace(self.items, payloads=payloads)
        self.rows = replace(self.rows, payloads=payloads)

    def _count_versions(self, numbers: SequenceNumbers) -> None:
        """Give each item the version after its present one."""
        ids = self.items.ids
        versions = [version + 1 for version in numbers.versions_of(ids)]
        self.items.versions, self.rows = versions, self.rows.with_versions(versions)
        numbers.versions.update(zip(ids, versions, strict=True))

    def expired_ids(self, now: float) -> list[str]:
        """Return the ids of the items whose time is past already."""
        lives = zip(self.items.ids, self.items.expires, strict=bool(self.items.expires))
        return [item_id for item_id, at in lives if at is not None and at <= 1000 * now]

    @property
    def result(self) -> WriteResult:
        """What the caller is told."""
        ids = (str(self.numbers[0]), str(self.numbers[-1])) if self.numbers else None
        return WriteResult(
            len(self.items.ids) - len(self.removed), len(self.removed), ids, self.similar
        )


@dataclass(slots=True, kw_only=True)
class ChosenItems(Change):
    """Items that get other payloads or are removed, chosen by distinct ids or by a filter.

    A filter is evaluated after all earlier changes are in memory.

    change: None removes them.
    if_version: the version that each item of ``ids`` must have.
    changed: the new payloads of existing items, by id.
    """

    ids: Sequence[str] = ()
    where: Filter | None = None
    change: PayloadChange | None = None
    if_version: int | None = None
    changed: dict[str, bytes | None] = field(default_factory=dict)

    def plan(self, numbers: SequenceNumbers) -> None:
        """Find the items and their new payloads; VersionConflict, InvalidPayload (too long)."""
        if self.if_version is not None:
            numbers.check_versions(self.ids, [self.if_version] * len(self.ids))
        if self.where is not None:
            self.ids = numbers.collection.ids_where(self.where)
        pairs = zip(self.ids, numbers.of(self.ids), strict=True)
        found = {each: sequence for each, sequence in pairs if sequence is not None}
        if self.change is None:
            self.removed = [*found.values()]
            gone = dict.fromkeys(self.ids)
            numbers.planned.update(gone)
            numbers.payloads.update(gone)
            for item_id in self.ids if numbers.versions else ():
                numbers.versions.pop(item_id, None)
            return
        old = zip(found, numbers.payloads_of([*found]), strict=True)
        self.changed = {each: self.change.of(payload, each) for each, payload in old}
        versions = numbers.versions_of([*found])
        numbers.versions.update((each, old + 1) for each, old in zip(found, versions, strict=True))
        numbers.payloads.update(self.changed)
        self.payloads = [*zip(found.values(), self.changed.values(), strict=True)]

    @property
    def result(self) -> int:
        """The number of items that existed."""
        return len(self.removed) + len(self.changed)


Write: TypeAlias = Put | ChosenItems
"""A change that can be planned against what is known, and made in memory once stored."""


def apply(writes: Iterable[Write], collection: MemoryCollection) -> None:
    """Apply planned changes in memory, in order.

    Consecutive puts without common ids are published together.
    """
    parts: list[EncodedBatch] = []
    ids: set[str] = set()
    replaces = False
    for write in writes:
        if parts and (not isinstance(write, Put) or not ids.isdisjoint(write.items.ids)):
            collection.put(parts, collection.rows_of(ids) if replaces else ())
            parts, ids, replaces = [], set(), False
        if isinstance(write, ChosenItems):
            if write.change is None:
                collection.remove(collection.rows_of(write.ids))
            else:
                collection.change_payloads(write.changed)
            continue
        if write.names:
            collection.names.mark_stored(write.names)
        collection.next_id = max(collection.next_id, write.beyond, write.next_id or 0)
        parts.append(write.items)
        ids.update(write.items.ids)
        replaces = replaces or bool(write.removed)
    if parts:
        collection.put(parts, collection.rows_of(ids) if replaces else ())


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
    """Inverse of `codes_to_blobs`; ValueError unless each row has ``width`` words."""
    if {*map(len, blobs)} - {8 * width}:
        raise ValueError(f"codes are not {width} words")
    words = np.frombuffer(bytearray().join(blobs), "<u8").astype(np.uint64, copy=False)
    return words.reshape(len(blobs), width)


def _check_sequences(sequences: Sequence[int], count: int) -> None:
    expected, got = f"{count} sequence numbers", str(len(sequences))
    if len(sequences) == count:
        falls = [pair for pair in pairwise(sequences) if pair[0] >= pair[1]]
        if not falls:
            return
        expected, got = "rising sequence numbers", "{1} behind {0}".format(*falls[0])
    raise InvalidParameter(expected=expected, got=got, loc=("sequences",))


def require_distinct(items: ItemBatch, places: Sequence[int]) -> None:
    """Raise InvalidParameter if items have ``if_versions`` and an id comes twice.

    places: the result of `last_places`.
    """
    if items.if_versions and len(places) < len(items):
        row = next(row for row, place in enumerate((*places, -1)) if row != place)
        raise InvalidParameter(
            expected="distinct ids if an item has 'if_version'",
            got=f"{items.ids[row]!r} twice",
            loc=(row, "id"),
        )


def last_places(ids: Sequence[str | None], mode: Mode) -> list[int]:
    """Return the last place of each id; items without an id are all distinct.

    Raises ItemExists (an id comes twice, and the mode is "insert").
    """
    if mode == "insert":
        seen: set[str] = set()
        for place, item_id in enumerate(ids):
            if item_id in seen:
                raise ItemExists(item_id, place)
            if item_id is not None:
                seen.add(item_id)
    last = {place if each is None else each: place for place, each in enumerate(ids)}
    return sorted(last.values())


Queued = TypeVar("Queued")
Input = TypeVar("Input")
Result = TypeVar("Result")

MAX_ROWS: Final = 4096
"""Of a commit of several writes."""
COMMIT_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Seconds by which commits are counted; those that take longer are counted last."""

Run: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], None]
"""Calls the first function in a thread; calls the second instead once it has no more threads."""


def _tell_nobody(_: object) -> None:
    """Ignore the outcome of a write that was reported already."""


@dataclass(slots=True, eq=False)
class QueuedWrite(Generic[Queued, Input, Result]):
    """A write in the queue.

    write: None until it is prepared from what ``read`` returns.
    read: returns the submitted input; None for a write whose thread waits for it.
    """

    write: Queued | None
    read: Callable[[], Input] | None
    lead: Callable[[], None]
    ended: Callable[[Any], None]
    done: bool = False

    def end(self, outcome: Result | BaseException) -> None:
        """Report how the write ended; once."""
        self.done = True
        ended, self.ended = self.ended, _tell_nobody  # tracebacks of errors refer to this object
        ended(outcome)


class GroupCommit(Generic[Queued, Input, Result]):
    """Takes writes from any thread, and commits one group at a time.

    max_groups: number of commits after which a borrowed thread is returned.
    """

    def __init__(self, max_groups: int) -> None:
        self._max_groups = max_groups
        self.lock = threading.Lock()  # held while a group is committed
        self.queue: deque[QueuedWrite[Queued, Input, Result]] = deque()
        self._arriving = threading.Lock()
        self._has_leader = False  # whether a thread commits, or is about to
        self.commits = 0
        self.commit_seconds = 0.0
        self.commit_counts = [0] * (len(COMMIT_BOUNDS) + 1)

    def commit_group(self, group: Sequence[QueuedWrite[Queued, Input, Result]]) -> None:
        """Commit writes and end each of them; the calling thread holds the lock."""
        raise NotImplementedError

    def announce(self, group: Sequence[QueuedWrite[Queued, Input, Result]]) -> None:
        """Notify others of writes that have ended; the lock is free again."""

    def row_count(self, write: Queued) -> int:
        """Return the number of rows that a write puts."""
        raise NotImplementedError

    def is_barrier(self, write: Queued) -> bool:
        """Return whether the plan of a write needs all earlier ones committed."""
        raise NotImplementedError

    def count_commit(self, seconds: float) -> None:
        """Record the duration of a commit."""
        self.commits += 1
        self.commit_seconds += seconds
        self.commit_counts[bisect_left(COMMIT_BOUNDS, seconds)] += 1

    def _next_group(self) -> list[QueuedWrite[Queued, Input, Result]]:
        """Take the writes of the next commit off the queue; an unread write counts as one row."""
        group = [self.queue.popleft()]
        rows = 0
        while self.queue:
            last, following = group[-1].write, self.queue[0].write
            if any(each is not None and self.is_barrier(each) for each in (last, following)):
                break
            rows += 1 if last is None else self.row_count(last)
            if rows + (1 if following is None else self.row_count(following)) > MAX_ROWS:
                break
            group.append(self.queue.popleft())
        return group

    def commit(self, write: Queued) -> Result:
        """Make a write; return its result or raise its error. Ctrl-C does not interrupt it."""
        return run_uninterrupted(partial(self._commit_here, write))

    def _commit_here(self, write: Queued) -> Result:
        outcomes: list[Result | BaseException] = []
        turn = threading.Lock()
        turn.acquire()  # released when the write has ended, or when this thread must lead

        def end(outcome: Result | BaseException) -> None:
            outcomes.append(outcome)
            turn.release()

        waiting: QueuedWrite[Queued, Input, Result] = QueuedWrite(write, None, turn.release, end)

        def wait_or_lead(*, leads: bool) -> None:
            while not waiting.done:  # it may be queued again
                if not leads:
                    turn.acquire()
                leads = False
                if not waiting.done:
                    self._lead()

        leads = self._enqueue(waiting)
        try:
            wait_or_lead(leads=leads)
        except BaseException:
            if not waiting.done:  # others wait for it, so it is made without its caller
                run = partial(wait_or_lead, leads=False)
                threading.Thread(target=run, name="writer", daemon=True).start()
            raise
        outcome = outcomes.pop()
        try:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome
        finally:
            del outcome

    def submit(self, read: Callable[[], Input], ended: Callable[[Any], None], run: Run) -> None:
        """Queue a write that the leader of its group reads; ``run`` lends a thread to the leader.

        ended: called in any thread with the result or the error, or with CancelledError if ``run``
            has no more threads.
        """
        lead = partial(run, partial(self._lead, self._max_groups), self._drop_submitted)
        if self._enqueue(QueuedWrite(None, read, lead, ended)):
            lead()

    def queue_again(self, waiting: QueuedWrite[Queued, Input, Result]) -> None:
        """Queue a write of an earlier group again that has not ended."""
        if self._enqueue(waiting):
            waiting.lead()

    def _enqueue(self, waiting: QueuedWrite[Queued, Input, Result]) -> bool:
        """Queue a write; return whether the caller must lead because no thread does."""
        with self._arriving:
            self.queue.append(waiting)
            leads = not self._has_leader
            self._has_leader = True
        return leads

    def _lead(self, groups: int = 1) -> None:
        """Commit waiting writes, in at most ``groups`` groups; then pass the lead on."""
        try:
            for _ in range(groups):
                if not self.queue:
                    break
                with self.lock:
                    group = self._next_group()
                    self.commit_group(group)
                self.announce(group)
        finally:
            self._pass_leadership()

    def _pass_leadership(self) -> None:
        with self._arriving:
            following = self.queue[0] if self.queue else None
            self._has_leader = following is not None
        if following is not None:
            following.lead()

    def _drop_submitted(self) -> None:
        """End submitted writes because no thread is available; the next caller leads."""
        with self._arriving:
            dropped = [each for each in self.queue if each.read is not None]
            for waiting in dropped:
                self.queue.remove(waiting)
        for waiting in dropped:
            waiting.end(CancelledError())
        self._pass_leadership()


T = TypeVar("T")

_Input: TypeAlias = tuple[ItemBatch, Mode] | ChosenItems
_QueuedChange: TypeAlias = QueuedWrite[Write, _Input, WriteResult | int]


class Writer(GroupCommit[Write, _Input, WriteResult | int]):
    """Takes changes from any thread, one commit at a time.

    changed: called with the changes of each group after they have ended.
    """

    def __init__(
        self,
        store: Store,
        collection: MemoryCollection,
        changed: Callable[[Sequence[Write]], None] = lambda _: None,
    ) -> None:
        super().__init__(collection.policies.max_groups)
        self._store = store
        self._collection = collection
        self._changed = changed
        self._refusal: Callable[[], GcwsError] | None = None

    def announce(self, group: Sequence[_QueuedChange]) -> None:
        """Notify ``changed`` of the changes of a group."""
        self._changed([each.write for each in group if each.write is not None])

    def run_between_changes(self, work: Callable[[], T]) -> T | None:
        """Run a short function between two changes, and return its result.

        Returns None, without running it, once changes are refused.
        """
        with self.lock:
            return work() if self._refusal is None else None

    def run_as_change(self, work: Callable[[], T]) -> T:
        """Run a short function that is itself a change, and return its result.

        Ctrl-C does not interrupt it.
        Raises DamagedFile, CollectionNotFound, CollectionLoading (changes are refused).
        """

        def run() -> T:
            with self.lock:
                if self._refusal is not None:
                    raise self._refusal()
                return work()

        return run_uninterrupted(run)

    def close(
        self, refusal: Callable[[], GcwsError], last: Callable[[], None] | None = None
    ) -> None:
        """Wait for the current change, refuse others, run ``last``, close the store.

        refusal: returns the error that changes and reads raise from now on.
        last: skipped if a write was interrupted, or on a second call.
        """
        with self.lock:
            sound = self._refusal is None
            self._refusal = refusal
            try:
                if sound and last is not None:
                    last()
            finally:
                self._store.close(refusal)

    def row_count(self, write: Write) -> int:
        """Return the number of rows that a change puts, or whose payloads it changes."""
        if isinstance(write, Put):
            return len(write.rows.ids)
        return 0 if write.change is None else len(write.ids)

    def is_barrier(self, write: Write) -> bool:
        """Return whether the plan of a change needs all earlier changes in memory."""
        return isinstance(write, ChosenItems) and write.where is not None

    def commit_group(self, group: Sequence[_QueuedChange]) -> None:
        """Make changes; after an error of the file, all further ones are refused."""
        try:
            self._commit(group)
        except BaseException as error:
            # The file may have changes that memory lacks, so memory must not change any further.
            reason = f"a write was broken off ({error!r}); it must be opened again"
            if isinstance(error, DamagedFile):
                reason = error.reason
            self._refusal = partial(DamagedFile, self._store.name, reason)
            for waiting in group:
                if not waiting.done:
                    waiting.end(error)
            if not isinstance(error, Exception):
                raise

    def _commit(self, group: Sequence[_QueuedChange]) -> None:
        if self._refusal is not None:
            for waiting in group:
                waiting.end(self._refusal())
            return
        writes, planned = self._plan(group)
        if writes := [write for write in writes if not write.is_empty]:
            try:
                self._store_and_publish(writes)
            except DiskFull as error:
                if len(planned) == 1:
                    planned[0][0].end(error)
                    return
                for waiting, _ in planned:  # a small one may fit
                    self._commit([waiting])
                return
            except (DirectoryLocked, OutOfDescriptors, StorageFailed) as error:
                # Each has waited already, so they are not queued again one by one.
                for waiting, _ in planned:
                    waiting.end(error)
                return
        for waiting, write in planned:
            waiting.end(write.result)

    def _plan(
        self, group: Sequence[_QueuedChange]
    ) -> tuple[list[Write], list[tuple[_QueuedChange, Write]]]:
        """Prepare and plan changes; those that fail are ended, and the others continue.

        Expired items are deleted before the next change is planned, so that none sees them.
        Returns all planned changes, these deletions included, and those of the group.
        """
        self._prepare(group)
        numbers = SequenceNumbers(self._collection, self._store.next_sequence)
        writes: list[Write] = []
        planned = []
        expirations = self._collection.expirations

        def delete(ids: Sequence[str]) -> None:
            if ids:
                writes.append(ChosenItems(ids=ids))
                writes[-1].plan(numbers)

        if expirations.are_any:
            delete(expirations.ids_to_delete(self._collection.stored_view))
        for waiting in group:
            if waiting.write is None:
                continue
            try:
                waiting.write.plan(numbers)
            except Exception as error:
                waiting.end(error)
            else:
                planned.append((waiting, waiting.write))
                write = waiting.write
                writes.append(write)
                if isinstance(write, Put) and write.items.expires and expirations.are_deleted:
                    delete(write.expired_ids(expirations.clock()))
        return writes, planned

    def _prepare(self, group: Sequence[_QueuedChange]) -> None:
        """Read submitted input, hash it in one call, and encode it as rows."""
        found, parts = [], []
        for waiting in group:
            if waiting.read is not None and waiting.write is None:
                try:
                    read = waiting.read()
                except Exception as error:
                    waiting.end(error)
                    continue
                if isinstance(read, ChosenItems):
                    waiting.write = read
                else:
                    parts.append(read)
                    found.append(waiting)
        encoded: Sequence[EncodedBatch | None] = [None] * len(parts)
        if len(parts) > 1:
            with suppress(Exception):  # each write reports its own error later
                encoded = self._collection.encode([items for items, _ in parts])
        for waiting, (items, mode), each in zip(found, parts, encoded, strict=True):
            try:
                waiting.write = Put.of(items, mode, self._collection, each)
            except Exception as error:
                waiting.end(error)

    def _store_and_publish(self, writes: Sequence[Write]) -> None:
        """Make changes in the file, then in memory."""
        if self._collection.row_store.rows.is_mapped:
            with storage_errors(self._store.name):
                self._collection.make_room(
                    write.items.vectors for write in writes if isinstance(write, Put)
                )
        start = time.perf_counter()
        self._store.write(writes, self._collection.searches.turn)
        self.count_commit(time.perf_counter() - start)
        apply(writes, self._collection)
        if self._collection.expirations.are_any:
            for write in writes:
                self._collection.expirations.forget(write.removed)
