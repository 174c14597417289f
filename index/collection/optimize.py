"""Compact a collection or optimize an index beside readers and writers, then publish it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from gcws_search.index.backends.protocol import self_optimizing
from gcws_search.index.collection.backend_index import MAX_CATCHING_UP, SMALL_BATCH, BackendIndex
from gcws_search.index.collection.items import View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.errors import BackendNotFound
from gcws_search.index.threads import StoppedError

Publish = Callable[[Callable[[], bool]], bool | None]
"""Runs a function between two changes and returns its result; None once no changes are taken."""


def optimize(collection: MemoryCollection, publish: Publish, stop: threading.Event) -> bool | None:
    """Remove tombstones, or optimize one backend's index, whichever is due.

    It takes long, and others wait only while it is published.

    Parameters
    ----------
    collection : MemoryCollection
    publish : callable
    stop : threading.Event
        Once it is set the work ends soon.

    Returns
    -------
    bool or None
        False where too much has changed meanwhile, or the disk has no space to compact: call it
        again. None once ``publish`` or ``stop`` has ended the work.
    """
    if collection.compaction_is_overdue:
        try:
            return _compact(collection, publish, stop)
        except OSError as error:  # of mapped vectors
            collection.postpone_compaction(error)
            return False
    view = collection.view
    indexed = collection.indexed(view, collection.overdue(view))
    optimized = indexed.optimize(view.vectors, view.alive, stop)
    if optimized is None:
        return None
    # While rows are taken in that were put meanwhile, more are put.
    for _ in range(MAX_CATCHING_UP):
        now = collection.view
        if len(now) - len(view) <= SMALL_BATCH or stop.is_set():
            break
        optimized = _with_changes(collection, optimized, view, now)
        if optimized is None:
            return False
        view = now
    result, basis = optimized, view

    def adopt() -> bool:
        current = _with_changes(collection, result, basis, collection.view)
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
        now = collection.view
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
        known = collection.indexed(now, indexed.name)
    except BackendNotFound:
        return None
    if known.backend is not indexed.backend:
        return None
    optimizing = self_optimizing(indexed.backend)
    if optimizing is None:
        return indexed
    state = optimizing.adopt(known.state, now.vectors, indexed.state)
    return None if state is None else indexed.with_state(state)
