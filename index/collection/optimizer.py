"""Compactions and optimized indexes, made in a thread beside readers and writers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gcws_search.index.backends import Policies
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

    It takes long, and others wait only while it is published. Return False where too much has
    changed meanwhile, or the disk has no space to compact: call it again. Return None once
    ``publish`` or ``stop`` has ended the work.
    """
    if collection.compaction_is_overdue:
        try:
            return _compact(collection, publish, stop)
        except OSError as error:  # of mapped vectors
            collection.postpone_compaction(error)
            return False
    view = collection.stored_view
    indexed = collection.index_of(view, collection.overdue(view))
    optimized = indexed.optimize(view.vectors, view.alive, stop)
    if optimized is None:
        return None
    # While rows are taken in that were put meanwhile, more are put.
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
    """Remove tombstones; arguments and result as of `optimize`."""
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
    """Return a backend optimized for an earlier view with the rows of a later one.

    None when that cannot be: rows have been renumbered, or the backend is gone.
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


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows and version of a collection at one moment.

    time: seconds, of the monotonic clock.
    """

    rows: int
    version: int
    time: float

    def pause(self, since: Arrivals, seconds_a_row: float, policies: Policies) -> float:
        """Return how many seconds to wait before looking again, 0 to begin now.

        Rows of a bulk load may come many at a time, with gaps in which none come.

        seconds_a_row: what optimizing takes for each row.
        """
        rows, seconds = self.rows - since.rows, self.time - since.time
        if rows * seconds_a_row <= policies.max_growth_share * seconds:
            return 0.0
        gap = seconds / (self.version - since.version)
        return min(
            max(policies.pause_seconds, policies.gap_factor * gap), policies.max_pause_seconds
        )


class Optimizer(BackgroundTask):
    """Compacts one collection and optimizes its indexes.

    It waits until rows come in slowly, but no longer than the work would take.

    paused: it begins nothing while this is set.
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
        self._seen: Arrivals | None = None  # when it last looked, or began
        self._seconds_a_row = collection.policies.seconds_a_row

    def is_due(self) -> bool:
        """Return whether tombstones or an index are overdue."""
        if self._paused.is_set():
            return False
        collection = self._collection
        # Not of the present view: a write would append what is left to the next reader.
        view = collection.published
        return collection.compaction_is_overdue or collection.overdue(view) is not None

    def step(self) -> None:
        """Compact, or optimize one index, and publish it."""
        self._wait_for_quiet()
        if self.stopping.is_set() or not self.is_due():  # much may have changed meanwhile
            return
        self._seen = began = self._now()
        compacts = self._collection.compaction_is_overdue
        published = optimize(self._collection, self._writer.run_between_changes, self.stopping)
        give_memory_back()
        if not compacts:  # which takes much less
            seconds = time.monotonic() - began.time
            taken = max(seconds / max(1, began.rows), self._seconds_a_row / 2)
            self._seconds_a_row = max(self._collection.policies.seconds_a_row, taken)
        if published is None:
            self.stopping.set()  # nothing can be published any more
        elif published:
            self._on_publish()

    def _wait_for_quiet(self) -> None:
        """Return once rows come in slowly, or there is no time to wait for that.

        It waits no longer than optimizing takes: a load that goes on may be endless.
        """
        policies, began = self._collection.policies, self._now()
        since, pause = self._seen or began, policies.pause_seconds
        while pause and not self.skip_pause.wait(pause) and not self.stopping.is_set():
            self._seen = now = self._look()
            pause = now.pause(since, self._seconds_a_row, policies)
            if now.time - began.time > self._seconds_a_row * now.rows:
                return
            since = now

    def _look(self) -> Arrivals:
        """Return what there is, the change that is being made included."""
        return self._writer.run_between_changes(self._now) or self._now()

    def _now(self) -> Arrivals:
        view = self._collection.stored_view
        return Arrivals(len(view), view.version, time.monotonic())
