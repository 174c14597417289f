"""Which tables an index has, and what is made of it behind its users."""

import threading

import numpy as np

from gcws_search.index.backends import GcwsBackend
from gcws_search.index.backends.gcws import GcwsState
from gcws_search.index.collection.stored_collection import StoredCollection
from tests.support.index.small_index import SmallIndex


def backend_of(index: SmallIndex) -> GcwsBackend:
    """Return the index's backend, which hashes."""
    assert isinstance(index.backend, GcwsBackend)
    return index.backend


def improved(index: SmallIndex) -> GcwsState:
    """Return the index once more, with the lists or the tables that are overdue."""
    rows = index.rows.view()
    alive = np.ones(len(rows), np.uint8)
    state = backend_of(index).optimize(index.state, rows, alive, threading.Event())
    assert state is not None
    return state


def bands_made(stored: StoredCollection) -> int:
    """Return how many tables a collection says that it has."""
    return int(stored.describe().backends[0].stats["bands_made"])
