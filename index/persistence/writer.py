"""Changes on their way in: each first to the file, then to memory, several to one commit.

Waiting for the disk costs more than most changes, so those that come while it is waited for are
committed together by whoever is next; each still succeeds or fails by itself, in order of arrival.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.errors import (
    CollectionNotFound,
    DamagedFile,
    DirectoryLocked,
    DiskFull,
    GcwsError,
)
from gcws_search.index.persistence.changes import SequenceNumbers, Write, apply
from gcws_search.index.storage.records import Change
from gcws_search.index.storage.store import Store

T = TypeVar("T")

GROUP_ROWS: Final = 4096
"""A commit takes in further changes until it has this many rows."""


class _Waiting:
    __slots__ = ("done", "error", "turn", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.done = False
        self.error: BaseException | None = None
        self.turn = threading.Lock()
        self.turn.acquire()  # whoever waits for its turn waits

    def end(self, error: BaseException | None = None) -> None:
        """Say how the change ended."""
        self.error = error
        self.done = True
        self.turn.release()


class Writer:
    """Takes changes from any thread, one commit at a time.

    Parameters
    ----------
    store : Store
    collection : MemoryCollection
        Holds what the store holds.
    """

    def __init__(self, store: Store, collection: MemoryCollection) -> None:
        self._store = store
        self._collection = collection
        self._lock = threading.Lock()  # held by whoever makes changes
        self._arriving = threading.Lock()
        self._queue: deque[_Waiting] = deque()
        self._led = False  # whether somebody makes changes, or is about to
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
        [error] = self.make_all([write])
        if error is not None:
            raise error

    def make_all(self, writes: Sequence[Write]) -> list[BaseException | None]:
        """Make changes that have come together; return how each ended: what `make` would raise.

        Each is made or not by itself, in their order.
        """
        arrived = [_Waiting(write) for write in writes]
        with self._arriving:
            for waiting in arrived:
                self._queue.append(waiting)
            leads = not self._led
            self._led = True
        try:
            for waiting in arrived:
                self._see_through(waiting, leads=leads)
                leads = False
        except BaseException:
            for waiting in arrived:
                if not waiting.done:  # the others wait for it: it is made without its caller
                    run = partial(self._see_through, waiting, leads=False)
                    threading.Thread(target=run, name="writer", daemon=True).start()
            raise
        return [waiting.error for waiting in arrived]

    def _see_through(self, waiting: _Waiting, *, leads: bool) -> None:
        """Return when a change has been made, by this thread if its turn comes before that."""
        if not leads:
            waiting.turn.acquire()
        if not waiting.done:
            self._lead()

    def _lead(self) -> None:
        """Make the change that has waited longest, others with it, and let the next one lead."""
        try:
            with self._lock:
                self._make(self._group())
        finally:
            with self._arriving:
                following = self._queue[0] if self._queue else None
                self._led = following is not None
            if following is not None:
                following.turn.release()

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
        if not self._queue:
            return group
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
        planned = self._planned(group, SequenceNumbers(self._collection, self._store.next_key))
        made = [each for each in planned if each[1].gone or each[1].rows.ids]
        if made:
            try:
                self._store_and_show(made)
            except DiskFull as error:
                self._without_space([waiting for waiting, _ in planned], error)
                return
            except DirectoryLocked as error:
                # Each has waited for the lock already: one by one they would do so again in turn.
                for waiting, _ in planned:
                    waiting.end(error)
                return
        for waiting, _ in planned:
            waiting.end()

    def _store_and_show(self, planned: Sequence[tuple[_Waiting, Change]]) -> None:
        """Make changes in the file, then in memory."""
        start = time.perf_counter()
        self._store.write([change for _, change in planned])
        self.commits += 1
        self.commit_seconds += time.perf_counter() - start
        apply([waiting.write for waiting, _ in planned], self._collection)

    def _planned(
        self, group: list[_Waiting], keys: SequenceNumbers
    ) -> list[tuple[_Waiting, Change]]:
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
