"""A backend together with its index of the rows of a view."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from gcws_search.index.backend import Backend, ProgressReport, no_report
from gcws_search.index.contracts.arrays import Int64s, UInt8s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import BackendParams, GcwsParams, SearchParams
from gcws_search.index.contracts.saved_index import UNKNOWN, SavedIndex

SMALL_BATCH: Final = 32
MAX_CATCHING_UP: Final = 8
"""A new index takes in the rows that were put while it was built, at most `MAX_CATCHING_UP` times,
until `SMALL_BATCH` rows are left. Changes wait only for the last of these."""

_CHUNK_ROWS: Final = 8192
"""Rows that a build takes in between two checks whether to stop."""


@dataclass(frozen=True, slots=True)
class BackendIndex:
    """A backend and its index of some number of rows.

    build_seconds: time to build the index, in this process.
    """

    name: str
    params: BackendParams
    backend: Backend[Any]
    state: Any
    build_seconds: float = 0.0

    def extend(self, rows: VectorBatch, new: VectorBatch) -> BackendIndex:
        """Return the backend with ``new``, the last rows of ``rows``, added to its index."""
        if not len(new):
            return self
        start = time.perf_counter()
        codes = self.backend.encoder(self.state)(new)
        state = self.backend.extend(self.state, rows, codes)
        return self.with_state(state, time.perf_counter() - start)

    def renumber(self, rows: VectorBatch, new_rows: Int64s) -> BackendIndex:
        """Return the backend after a compaction; see `Backend.renumber`."""
        return self.with_state(self.backend.renumber(self.state, rows, new_rows))

    def restore(self, rows: VectorBatch, notes: dict[str, Any]) -> BackendIndex:
        """Return the backend with all ``rows`` indexed, using the ``notes`` of an earlier index."""
        start = time.perf_counter()
        nothing = SavedIndex(np.full((len(rows), 1), UNKNOWN, np.int32), notes)
        state = self.backend.restore(rows, self.backend.encode(rows), nothing)
        return self.with_state(state, time.perf_counter() - start)

    def optimize(
        self,
        rows: VectorBatch,
        alive: UInt8s,
        stop: threading.Event,
        report: ProgressReport = no_report,
    ) -> BackendIndex | None:
        """Return the backend with its index optimized if that is due; None once ``stop`` is set."""
        if not self.backend.is_overdue(self.state, len(rows), int(np.count_nonzero(alive))):
            return self
        start = time.perf_counter()
        state = self.backend.optimize(self.state, rows, alive, stop, report)
        return None if state is None else self.with_state(state, time.perf_counter() - start)

    def with_state(self, state: object, seconds: float = 0.0) -> BackendIndex:
        """Return the backend with another index; ``seconds`` is added to the build time."""
        return replace(self, state=state, build_seconds=self.build_seconds + seconds)

    @property
    def notes(self) -> dict[str, Any]:
        """The parts of the index that cannot be rebuilt from the vectors, to be saved."""
        if isinstance(self.params, GcwsParams):  # its notes describe a graph, which is rebuilt
            return {}
        saved = self.backend.saved(self.state)
        return {} if saved is None else saved.notes

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the index takes."""
        return self.backend.nbytes(self.state)


Attached = Mapping[str, BackendIndex]
"""Attached backends by name."""


def build_index(
    indexed: BackendIndex, rows: VectorBatch, report: ProgressReport, stop: threading.Event
) -> BackendIndex | None:
    """Return an empty backend with ``rows`` added to its index; None once ``stop`` is set."""
    n = len(rows)
    if n:
        _try_out(indexed, rows[:1])
    for first in range(0, n, _CHUNK_ROWS):
        if stop.is_set():
            return None
        last = min(n, first + _CHUNK_ROWS)
        indexed = indexed.extend(rows[:last], rows[first:last])
        report(last / n)
    return indexed


def _try_out(indexed: BackendIndex, one: VectorBatch) -> None:
    """Compile kernels before the build and the first search, so that their times exclude it."""
    state = indexed.extend(one, one).state
    view = RowView(one, np.ones(1, np.uint8), 1)
    for rerank in ("own", "none"):
        indexed.backend.search(state, view, one, SearchParams(limit=1, rerank=rerank))


def catch_up(
    indexed: BackendIndex, sequences: Int64s, rows: VectorBatch, now: Int64s
) -> BackendIndex:
    """Return a backend with its index updated from earlier rows to the present ones.

    sequences: (n,) int64, sequence numbers of the rows that the index was built for.
    rows: the present rows: first the remaining ones in their old order, then new ones.
    now: (m,) int64, sequence numbers of the present rows.
    """
    known = len(sequences)
    if not np.array_equal(now[:known], sequences):
        places = np.searchsorted(now, sequences)
        stayed = places < len(now)
        stayed[stayed] = now[places[stayed]] == sequences[stayed]
        indexed = indexed.renumber(rows[: stayed.sum()], np.where(stayed, places, -1))
        known = int(stayed.sum())
    return indexed.extend(rows, rows[known:])
