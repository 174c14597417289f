"""Learn weights from items, and encode the items of a collection with other weights.

All rows are encoded again while others read and write. Then the collection, its file and its
comparison backends switch to the new rows in one step, between two changes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from gcws_search.index.backend import Backend, no_report
from gcws_search.index.collection.backend_index import (
    MAX_CATCHING_UP,
    SMALL_BATCH,
    BackendIndex,
    build_index,
)
from gcws_search.index.collection.items import EncodedBatch, View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.optimizer import optimize
from gcws_search.index.collection.writer import codes_to_blobs
from gcws_search.index.contracts.arrays import Int32s, Int64s
from gcws_search.index.contracts.batches import RawBatch
from gcws_search.index.contracts.errors import InvalidParameter, InvalidVector
from gcws_search.index.contracts.parameters import (
    MAX_DENSE_DIM,
    BackendParams,
    CollectionConfig,
    WeightKind,
)
from gcws_search.index.contracts.saved_index import UNKNOWN
from gcws_search.index.storage.store import Store
from gcws_search.index.threads import StoppedError, end_if
from gcws_search.index.vectors.weights import MAX_SAMPLED_NUMBERS, Weights, fixed, learn

_ROWS_AT_ONCE: Final = 2048

MakeBackend = Callable[[str, BackendParams], BackendIndex]
"""Returns a comparison backend of no rows, of a name and parameters."""


def config_with(
    config: CollectionConfig, weights: tuple[float, ...] | WeightKind | None
) -> CollectionConfig:
    """Return a configuration with other weights; None for the present weights.

    Raises InvalidParameter (the transform has no weights, or does not allow these).
    """
    if weights is None:
        weights = config.transform.weights
    if weights is None:
        expected = "'idf', 'standard', 'robust', 'max' or a list, for the collection has no weights"
        raise InvalidParameter(expected=expected, got="none", loc=("weights",))
    return replace(config, transform=replace(config.transform, weights=weights))


def sample_size(config: CollectionConfig, items: int) -> int | None:
    """Return the number of items from which weights are learned; None for all."""
    dim = config.dim or 1
    if config.transform.weights != "robust" or items * dim <= MAX_SAMPLED_NUMBERS:
        return None
    return MAX_SAMPLED_NUMBERS // min(dim, MAX_DENSE_DIM)


def weights_of(
    config: CollectionConfig, before: Weights | None, batches: Iterator[RawBatch]
) -> Weights:
    """Return the weights that a configuration specifies, learned from vectors as sent.

    Raises InvalidParameter (there are no items).
    """
    asked = config.transform.weights
    version, now = 1 + (0 if before is None else before.version), int(time.time())
    if isinstance(asked, tuple):
        return fixed(asked, version, now)
    assert asked is not None
    weights = learn(asked, batches, config.dim, version=version, learned=now)
    if weights is None:
        raise InvalidParameter(expected="items to learn from", got="none", loc=("weights",))
    return weights


def batches_of(
    config: CollectionConfig, view: View, store: Store, stop: threading.Event
) -> Iterator[RawBatch]:
    """Yield the items from which weights are learned; StoppedError once ``stop`` is set."""
    rows = np.flatnonzero(view.alive)
    if (size := sample_size(config, len(rows))) is not None:
        rows = rows[np.linspace(0, len(rows) - 1, size).astype(np.int64)]
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        end_if(stop)
        _, raw = as_sent(view, store, rows[first : first + _ROWS_AT_ONCE])
        if len(raw):
            yield raw


def as_sent(view: View, store: Store, rows: Int64s) -> tuple[Int64s, RawBatch]:
    """Return the vectors of some rows as sent, and the rows that these are.

    If the transform keeps them out of memory, items deleted since are omitted.
    """
    raw = view.raw(rows)
    if raw is not None:
        return rows, raw
    records = store.at(view.sequences[rows].tolist())
    places = np.searchsorted(view.sequences[rows], [record.sequence for record in records])
    return rows[places], view.space.from_blobs([record.vector for record in records])


def codes_of(view: View, backend: Backend[Any]) -> Iterator[tuple[Int64s, list[bytes]]]:
    """Yield live rows of a view with their codes as bytes, in pieces."""
    alive = np.flatnonzero(view.alive)
    for first in range(0, len(alive), _ROWS_AT_ONCE):
        rows = alive[first : first + _ROWS_AT_ONCE]
        yield rows, codes_to_blobs(backend.encode(view.vectors[rows]))


class Reencoding:
    """The items of a collection, encoded with other weights.

    make_backend: creates the comparison backends.
    Raises InvalidParameter (a vector becomes empty or too large), StoppedError (``stop`` is set),
        OSError (the disk has no space for mapped vectors).
    """

    def __init__(
        self,
        memory: MemoryCollection,
        store: Store,
        config: CollectionConfig,
        weights: Weights,
        make_backend: MakeBackend,
        stop: threading.Event,
    ) -> None:
        self._memory = memory
        self._store = store
        self._make_backend = make_backend
        self._stop = stop
        self.fresh = memory.empty_under(config, weights)
        self._seen = view = memory.stored_view
        rows = np.flatnonzero(view.alive)
        self.fresh.load(self._pieces(view, rows), len(rows), {}, _unknown_links)
        self._follow_backends(view)
        if view.attached or memory.overdue(view) is None:  # else the old rows have no graph either
            self._optimize()

    def _pieces(self, view: View, rows: Int64s) -> Iterator[EncodedBatch]:
        """Yield some rows of the collection, encoded with the new weights."""
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            end_if(self._stop)
            found, raw = as_sent(view, self._store, rows[first : first + _ROWS_AT_ONCE])
            if not len(raw):
                continue
            try:
                vectors = self.fresh.space.prepare(raw)
            except InvalidVector as error:
                item_id = view.ids[int(found[int(error.loc[0])])]
                got = f"{error.got} of the item {item_id!r}"
                raise InvalidParameter(
                    expected=f"weights that leave {error.expected}", got=got, loc=("weights",)
                ) from None
            yield view.encoded(found, vectors, self.fresh.backend.encode(vectors))

    def _follow_backends(self, view: View) -> None:
        """Give the new items exactly the comparison backends of a view."""
        fresh = self.fresh
        for name in fresh.stored_view.attached.keys() - view.attached.keys():
            fresh.detach(name)
        for name, attached in view.attached.items():
            if name in fresh.stored_view.attached:
                continue
            empty = self._make_backend(name, attached.params)
            rows = fresh.stored_view.vectors
            indexed = build_index(empty, rows, no_report, self._stop)
            if indexed is None:
                raise StoppedError
            fresh.attach(indexed)

    def _optimize(self) -> None:
        """Build the graph and run other optimizations that are due."""
        for _ in range(MAX_CATCHING_UP):
            if self.fresh.overdue(self.fresh.stored_view) is None:
                return
            if optimize(self.fresh, lambda adopt: adopt(), self._stop) is None:
                raise StoppedError

    def catch_up(self) -> int:
        """Apply the changes made since; return the number of new rows."""
        now, fresh = self._memory.stored_view, self.fresh
        before, self._seen = self._seen, now
        self._follow_backends(now)
        mine, alive = fresh.stored_view, np.flatnonzero(now.alive)
        live = now.sequences[alive]
        own = np.flatnonzero(mine.alive)
        places = np.searchsorted(live, mine.sequences[own])
        stayed = places < len(live)
        stayed[stayed] = live[places[stayed]] == mine.sequences[own[stayed]]
        if not stayed.all():
            fresh.remove(own[~stayed].tolist())
        if now.changed != before.changed or now.ids is not before.ids:
            self._take_payloads(now, mine, alive[places[stayed]], own[stayed])
        last = int(before.sequences[-1]) if len(before) else 0
        new = alive[np.searchsorted(live, last, side="right") :]
        for piece in self._pieces(now, new):
            fresh.put([piece])
        return len(new)

    def catch_up_soon(self) -> None:
        """Apply changes repeatedly until few are left."""
        for _ in range(MAX_CATCHING_UP):
            if self.catch_up() <= SMALL_BATCH:
                return

    def _take_payloads(self, now: View, mine: View, theirs: Int64s, own: Int64s) -> None:
        """Apply payload changes made since to rows of the same items in both views."""
        behind = np.array(now.versions_of(theirs.tolist()), np.int64)
        behind -= mine.versions_of(own.tolist())
        for step in range(behind.max(initial=0)):  # each change makes a version
            rows = [(mine.ids[own[at]], theirs[at]) for at in np.flatnonzero(behind > step)]
            self.fresh.change_payloads({each: now.payloads[int(row)] for each, row in rows})


def _unknown_links(sequences: Int64s) -> Int32s:
    return np.full((len(sequences), 1), UNKNOWN, np.int32)
