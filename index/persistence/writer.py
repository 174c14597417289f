"""Group commit of one collection: changes go to the file, then to memory.

The leader hashes all vectors of a group in one call.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias, TypeVar

from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.errors import (
    DamagedFile,
    DirectoryLocked,
    DiskFull,
    GcwsError,
    OutOfDescriptors,
    StorageFailed,
)
from gcws_search.index.group_commit import GroupCommit, QueuedWrite, Run
from gcws_search.index.persistence.changes import (
    Delete,
    Mode,
    Put,
    SequenceNumbers,
    Write,
    WriteResult,
    apply,
    prepared_together,
)
from gcws_search.index.storage.data_directory import storage_errors
from gcws_search.index.storage.store import Store

T = TypeVar("T")

COMMIT_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Seconds by which commits are counted; those that take longer are counted last."""

Ended: TypeAlias = Callable[[WriteResult | BaseException], None]
"""Called with the result of a submitted put, or its error; by any thread."""

_Input: TypeAlias = tuple[ItemBatch, Mode]
_QueuedChange: TypeAlias = QueuedWrite[Write, _Input, WriteResult | None]


class Writer(GroupCommit[Write, _Input, WriteResult | None]):
    """Takes changes from any thread, one commit at a time.

    Parameters
    ----------
    store : Store
    collection : MemoryCollection
        Holds what the store holds.
    changed : callable
        Called with the changes of each group once they have ended.
    """

    def __init__(
        self,
        store: Store,
        collection: MemoryCollection,
        changed: Callable[[Sequence[Write]], None] = lambda _: None,
    ) -> None:
        super().__init__(collection.policies.group_commit.max_groups)
        self._store = store
        self._collection = collection
        self._changed = changed
        self._refusal: Callable[[], GcwsError] | None = None
        self.commits = 0
        self.commit_seconds = 0.0
        self.commit_counts = [0] * (len(COMMIT_BOUNDS) + 1)

    def commit(self, write: Write) -> None:
        """Make a change; on return it is in the file and seen by new readers.

        Raises
        ------
        ItemExists, DiskFull, DirectoryLocked, OutOfDescriptors, StorageFailed
            Nothing was changed.
        DamagedFile
            The file failed; no more changes are taken until it is opened again.
        CollectionNotFound, CollectionLoading
            The collection is closed, or replaced.
        """
        self.wait_for(write)

    def submit(self, read: Callable[[], ItemBatch], mode: Mode, ended: Ended, run: Run) -> None:
        """Queue items to be put.

        Parameters
        ----------
        read : callable
            Returns the items; called by the leader of the group.
        mode : {"upsert", "insert"}
        ended : callable
            Called with the result, what ``read`` or `commit` raise, what `Put.of` raises, or
            CancelledError once ``run`` has no more threads.
        run : callable
            Lends a thread to lead by.
        """
        self.queue_read(lambda: (read(), mode), ended, run)

    def announce(self, group: Sequence[_QueuedChange]) -> None:
        """Tell of the changes of a group."""
        self._changed([each.write for each in group if each.write is not None])

    def run_between_changes(self, work: Callable[[], T]) -> T | None:
        """Run some short work between two changes, and return its result.

        None, and it is not run, once no changes are taken any more.
        """
        with self.lock:
            return work() if self._refusal is None else None

    def run_as_change(self, work: Callable[[], T]) -> T:
        """Run some short work that is a change itself, and return its result.

        Raises
        ------
        DamagedFile, CollectionNotFound, CollectionLoading
            No changes are taken any more.
        """
        with self.lock:
            if self._refusal is not None:
                raise self._refusal()
            return work()

    def close(
        self, refusal: Callable[[], GcwsError], last: Callable[[], None] | None = None
    ) -> None:
        """Wait for the change being made, refuse others, do some last work, close the store.

        Parameters
        ----------
        refusal : callable
            Returns what changes and reads raise from now on.
        last : callable or None
            Left out where a write was broken off, or this has been called before.
        """
        with self.lock:
            sound = self._refusal is None
            self._refusal = refusal
            try:
                if sound and last is not None:
                    last()
            finally:
                self._store.close(refusal)

    def next_group(self) -> list[_QueuedChange]:
        """Take changes that one commit can hold off the queue."""
        group = [self.queue.popleft()]
        if not self.queue:
            return group
        rows, max_rows = _rows(group[0]), self._collection.policies.group_commit.max_rows
        while self.queue and not _is_barrier(group[0]) and not _is_barrier(self.queue[0]):
            rows += _rows(self.queue[0])
            if rows > max_rows:
                break
            group.append(self.queue.popleft())
        return group

    def commit_group(self, group: Sequence[_QueuedChange]) -> None:
        """Make changes; after an error of the file no more are taken."""
        try:
            self._commit(group)
        except BaseException as error:
            # The file may hold what memory does not: memory must not be changed any further.
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
        planned = self._planned(group)
        writes = [write for _, write in planned if not write.is_empty]
        if writes:
            try:
                self._store_and_publish(writes)
            except DiskFull as error:
                self._commit_one_by_one([waiting for waiting, _ in planned], error)
                return
            except (DirectoryLocked, OutOfDescriptors, StorageFailed) as error:
                # Each has waited already: one by one they would do so again in turn.
                for waiting, _ in planned:
                    waiting.end(error)
                return
        for waiting, write in planned:
            waiting.end(write.result if isinstance(write, Put) else None)

    def _planned(self, group: Sequence[_QueuedChange]) -> list[tuple[_QueuedChange, Write]]:
        """Prepare and plan changes; those that cannot be made end, and the others go on."""
        self._prepare([each for each in group if each.write is None])
        numbers = SequenceNumbers(self._collection, self._store.next_sequence)
        planned = []
        for waiting in group:
            if waiting.write is None:
                continue
            try:
                waiting.write.plan(numbers)
            except Exception as error:
                waiting.end(error)
            else:
                planned.append((waiting, waiting.write))
        return planned

    def _prepare(self, submitted: Sequence[_QueuedChange]) -> None:
        """Read and hash what was submitted."""
        found = []
        for waiting in submitted:
            try:
                found.append((waiting, waiting.read()))
            except Exception as error:
                waiting.end(error)
        puts = prepared_together([parts for _, parts in found], self._collection)
        for (waiting, _), put in zip(found, puts, strict=True):
            if isinstance(put, Put):
                waiting.write = put
            else:
                waiting.end(put)

    def _store_and_publish(self, writes: Sequence[Write]) -> None:
        """Make changes in the file, then in memory."""
        with storage_errors(self._store.name):
            self._collection.make_room(
                write.items.vectors for write in writes if isinstance(write, Put)
            )
        start = time.perf_counter()
        self._store.write(writes, self._collection.searches.turn)
        seconds = time.perf_counter() - start
        self.commits += 1
        self.commit_seconds += seconds
        self.commit_counts[bisect_left(COMMIT_BOUNDS, seconds)] += 1
        apply(writes, self._collection)

    def _commit_one_by_one(self, group: Sequence[_QueuedChange], error: GcwsError) -> None:
        """Try changes one by one that could not be stored together: a small one may fit."""
        if len(group) == 1:
            group[0].end(error)
            return
        for waiting in group:
            self._commit([waiting])


def _rows(waiting: _QueuedChange) -> int:
    """Return the number of rows a change puts; what was submitted counts for one."""
    return 1 if waiting.write is None else len(waiting.write.rows)


def _is_barrier(waiting: _QueuedChange) -> bool:
    """Return whether the plan of a change needs all earlier ones to be in memory already."""
    match waiting.write:
        case Delete(where=where):
            return where is not None
        case Put(keeps_payloads=keeps):
            return keeps
    return False
