"""A backend whose rows have lists of links, made in a way that a test can foretell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gcws_search.index.backend import Backend
from gcws_search.index.backends import ExactBackend
from gcws_search.index.collection.items import View
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.arrays import Int32s, Int64s, UInt64s, with_room
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import Pairs
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.contracts.saved_index import NO_ROW, UNKNOWN, SavedIndex
from gcws_search.index.threads import Workers

WIDTH = 3


@dataclass(slots=True)
class Linked:
    """Lists of n rows, changed in place."""

    links: Int32s
    count: int


class LinkedBackend(Backend[Linked]):
    """An exact scan beside lists: a new row names the rows before it, and the first names it.

    ``linked``: how many rows have been given a list. ``keeps``: whether there is anything to keep.
    """

    kind = "exact"
    code_width = 0

    def __init__(self, config: CollectionConfig) -> None:
        self._exact = ExactBackend(config, Workers(1))
        self.linked = 0
        self._tried = False
        self.notes: dict[str, Any] = {"cost": 0.5}
        self.keeps = True

    def encode(self, batch: VectorBatch) -> UInt64s:
        return self._exact.encode(batch)

    def empty(self) -> Linked:
        return Linked(np.empty((0, WIDTH), np.int32), 0)

    def extend(self, state: Linked, rows: VectorBatch, codes: UInt64s) -> Linked:
        n = len(rows)
        if not self._tried and n == 1:  # a collection tries its backend out by one vector
            self._tried = True
            return Linked(state.links, 0)
        links = with_room(state.links, state.count, n)
        for row in range(n - len(codes), n):
            self._link(links, row)
        return Linked(links, n)

    def _link(self, links: Int32s, row: int) -> None:
        self.linked += 1
        before = np.arange(row - 1, row - 1 - WIDTH, -1)
        links[row] = np.where(before >= 0, before, NO_ROW)
        if row and links[0, 0] != UNKNOWN:
            links[0] = [row, *links[0, :-1]]

    def renumber(self, state: Linked, rows: VectorBatch, new_rows: Int64s) -> Linked:
        kept = state.links[: state.count][new_rows >= 0]
        moved = np.where(kept >= 0, new_rows[kept], NO_ROW).astype(np.int32)
        order = np.argsort(moved < 0, axis=1, kind="stable")
        return Linked(np.take_along_axis(moved, order, axis=1), len(rows))

    def saved(self, state: Linked) -> SavedIndex | None:
        return SavedIndex(state.links[: state.count], self.notes) if self.keeps else None

    def restore(self, rows: VectorBatch, codes: UInt64s, saved: SavedIndex) -> Linked:
        self.notes = saved.notes or self.notes
        links = np.full((len(rows), WIDTH), NO_ROW, np.int32)
        width = min(WIDTH, saved.links.shape[1])
        links[:, :width] = saved.links[:, :width]
        for row in np.flatnonzero(links[:, 0] == UNKNOWN).tolist():
            self._link(links, row)
        return Linked(links, len(rows))

    def search(
        self,
        state: Linked,
        view: Any,  # noqa: ANN401
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s | None = None,
    ) -> Any:  # noqa: ANN401
        return self._exact.search(self._exact.empty(), view, queries, params, skip)

    def pairs(self, state: Linked, view: Any, **options: Any) -> Pairs:  # noqa: ANN401
        return self._exact.pairs(self._exact.empty(), view, **options)

    def nbytes(self, state: Linked) -> int:
        return state.links.nbytes

    def stats(self, state: Linked) -> dict[str, Any]:
        return {}


def make_linked(config: CollectionConfig, **_: object) -> LinkedBackend:
    """Take the place of `index.backends.make_backend`."""
    return LinkedBackend(config)


def backend_of(stored: StoredCollection) -> LinkedBackend:
    backend = stored.memory.backend
    assert isinstance(backend, LinkedBackend)
    return backend


def lists_of(stored: StoredCollection) -> dict[str, list[str]]:
    """Return the ids each live item's list names, those of deleted items left out."""
    view: View = stored.memory.view
    links = view.state.links[: len(view)].tolist()
    return {
        view.ids[row]: [view.ids[to] for to in links[row] if to >= 0 and view.alive[to]]
        for row in np.flatnonzero(view.alive).tolist()
    }
