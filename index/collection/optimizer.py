"""Compaction and index optimization, in a thread beside readers and writers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from gcws_search.index.collection.backend_index import MAX_CATCHING_UP, SMALL_BATCH, BackendIndex
from gcws_search.index.collection.items import View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.writer import Writer
from gcws_search.index.contracts.errors import BackendNotFound
from gcws_search.index.memory import give_memory_back
from gcws_search.index.threads import BackgroundTask, StoppedError

Publish = Callable[[Callable[[], bool]], bool | None]
"""Runs a function between two changes and returns its result; None once no changes are taken."""


def optimize(collection: MemoryCollection, publish: Publish, stop: threading.Event) -> bool | None:
    """Remove tombstones, or optimize one backend's index, whichever is due.

    This takes long; others wait only while the result is published. Return False if too much has
    changed meanwhile, or the disk has no space to compact; call it again then. Return None if
    ``publish`` or ``stop`` has ended the work.
    """
    if collection.compaction_is_overdue:
        try:
            return _compact(collection, publish, stop)
        except OSError as error:  # from mapped vectors
            collection.postpone_compaction(error)
            return False
    view = collection.stored_view
    indexed = collection.index_of(view, collection.overdue(view))
    optimized = indexed.optimize(view.vectors, view.alive, stop)
    if optimized is None:
        return None
    # More rows may arrive while earlier ones are added, so repeat.
    for _ in range(MAX_CATCHING_UP):
        now = collection.stored_view
        if len(now) - len(view) <= SMALL_BATCH or stop.is_set():
            break
        optimized = _with_changes(collection, optimized, view, now)
        if optimized is None:
            return False
        view = now
    result, basis = optimized, view

    def adopt() -> bool:
        current = _with_changes(collection, result, basis, collection.stored_view)
        if current is not None:
            collection.adopt(current)
        return current is not None

    return publish(adopt)


def _compact(collection: MemoryCollection, publish: Publish, stop: threading.Event) -> bool | None:
    """Remove tombstones; for arguments and result see `optimize`."""
    try:
        compaction = collection.build_compaction(stop)
    except StoppedError:
        return None
    for _ in range(MAX_CATCHING_UP):
        now = collection.stored_view
        if not compaction.can_follow(now):
            return False
        if compaction.apply_changes(now) <= SMALL_BATCH or stop.is_set():
            break
    return publish(partial(collection.adopt_compaction, compaction))


def _with_changes(
    collection: MemoryCollection, indexed: BackendIndex, view: View, now: View
) -> BackendIndex | None:
    """Return a backend optimized for an earlier view, updated to the rows of a later one.

    None if rows have been renumbered or the backend is gone.
    """
    if now.ids is not view.ids:
        return None
    try:
        known = collection.index_of(now, indexed.name)
    except BackendNotFound:
        return None
    if known.backend is not indexed.backend:
        return None
    state = indexed.backend.adopt(known.state, now.vectors, indexed.state)
    return None if state is None else indexed.with_state(state)


class Optimizer(BackgroundTask):
    """Compacts one collection and optimizes its indexes in the background.

    It waits until rows arrive slowly, but no longer than the work would take.

    paused: it starts nothing while this is set.
    """

    name = "optimizer"
    failure = "an index could not be optimized, or compacted"
    gives_way = True

    def __init__(
        self,
        collection: MemoryCollection,
        writer: Writer,
        on_publish: Callable[[], None],
        paused: threading.Event,
    ) -> None:
        super().__init__()
        self._collection = collection
        self._writer = writer
        self._on_publish = on_publish
        self._paused = paused
        self._seconds_a_row = collection.policies.seconds_a_row

    def is_due(self) -> bool:
        """Return whether compaction or optimization is overdue."""
        if self._paused.is_set():
            return False
        collection = self._collection
        # Not from the present view: a write would publish pending items, which is left to readers.
        view = collection.published
        return collection.compaction_is_overdue or collection.overdue(view) is not None

    def step(self) -> None:
        """Compact, or optimize one index, and publish the result."""
        self._wait_for_quiet()
        if self.stopping.is_set() or not self.is_due():  # much may have changed meanwhile
            return
        began, rows = time.monotonic(), len(self._collection.stored_view)
        compacts = self._collection.compaction_is_overdue
        published = optimize(self._collection, self._writer.run_between_changes, self.stopping)
        give_memory_back()
        if not compacts:  # which takes much less time
            taken = (time.monotonic() - began) / max(1, rows)
            least = self._collection.policies.seconds_a_row
            self._seconds_a_row = max(least, taken, self._seconds_a_row / 2)
        if published is None:
            self.stopping.set()  # nothing can be published any more
        elif published:
            self._on_publish()

    def _wait_for_quiet(self) -> None:
        """Return once rows arrive slowly, or the waiting time is over.

        A load may be endless: wait no longer than it takes to optimize its rows.
        """
        policies, began, rows = self._collection.policies, time.monotonic(), self._rows()
        quiet = policies.quiet_seconds
        while not self.skip_pause.wait(quiet) and not self.stopping.is_set():
            before, rows = rows, self._rows()
            if (rows - before) * self._seconds_a_row <= policies.max_growth_share * quiet:
                return
            longest = max(policies.max_pause_seconds, self._seconds_a_row * rows)
            if time.monotonic() - began > longest:
                return

    def _rows(self) -> int:
        """Return the number of rows, including those of the change in progress."""
        collection = self._collection
        rows = self._writer.run_between_changes(lambda: len(collection.stored_view))
        return len(collection.stored_view) if rows is None else rows
