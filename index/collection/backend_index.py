"""A backend together with its index of a view's rows."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from gcws_search.index.backend import Backend, ProgressReport, no_report
from gcws_search.index.contracts.arrays import Float64s, Int64s, UInt8s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import BatchHits, RowView
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
    """A backend and its index of a number of rows.

    build_seconds: time to build the index, in this process.
    """

    name: str
    params: BackendParams
    backend: Backend[Any]
    state: Any
    build_seconds: float = 0.0

    def extend(self, rows: VectorBatch, new: VectorBatch) -> BackendIndex:
        """Return the backend with ``new``, the last of ``rows``, in its index."""
        if not len(new):
            return self
        start = time.perf_counter()
        codes = self.backend.encoder(self.state)(new)
        state = self.backend.extend(self.state, rows, codes)
        return self.with_state(state, time.perf_counter() - start)

    def search_in_parts(
        self,
        ids: Sequence[str],
        rows: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s | None,
        *,
        max_ties: int,
    ) -> BatchHits:
        """Return the hits of each query, some queries at a time.

        ids: of the n rows; of ties at the limit the first by their ids are hits.
        skip: (m,) int64 or None, a row each query must not return, or -1.
        max_ties: of the queries asked at a time: all rows may tie with a query's last hit.
        """
        step = max(1, max_ties // max(1, len(rows.vectors)))
        if len(queries) <= step:
            return self.backend.search(self.state, rows, queries, params, skip)
        parts = []
        for first in range(0, len(queries), step):
            places = np.arange(first, min(first + step, len(queries)))
            found = self.backend.search(
                self.state,
                rows,
                queries[places[0] : places[-1] + 1],
                params,
                None if skip is None else skip[places],
            )
            parts.append((places, _without_surplus(found, ids, params.limit)))
        return BatchHits.combine(parts)

    def renumber(self, rows: VectorBatch, new_rows: Int64s) -> BackendIndex:
        """Return the backend after a compaction; see `Backend.renumber`."""
        return self.with_state(self.backend.renumber(self.state, rows, new_rows))

    def restore(self, rows: VectorBatch, notes: dict[str, Any]) -> BackendIndex:
        """Return the backend with all ``rows`` in its index, by the ``notes`` of an earlier one."""
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
        """Return the backend with a quicker index, where that is due; None once ``stop`` is set."""
        if not self.backend.is_overdue(self.state, len(rows), int(np.count_nonzero(alive))):
            return self
        start = time.perf_counter()
        state = self.backend.optimize(self.state, rows, alive, stop, report)
        return None if state is None else self.with_state(state, time.perf_counter() - start)

    def with_state(self, state: object, seconds: float = 0.0) -> BackendIndex:
        """Return the backend with another index, and the time to build it added."""
        return replace(self, state=state, build_seconds=self.build_seconds + seconds)

    @property
    def notes(self) -> dict[str, Any]:
        """The saved parts of the index that its vectors do not give."""
        if isinstance(self.params, GcwsParams):  # its notes are about a graph, which is rebuilt
            return {}
        saved = self.backend.saved(self.state)
        return {} if saved is None else saved.notes

    @property
    def nbytes(self) -> int:
        """Bytes of memory the index holds."""
        return self.backend.nbytes(self.state)


Attached = Mapping[str, BackendIndex]
"""Attached backends by name."""


def _without_surplus(found: BatchHits, ids: Sequence[str], limit: int) -> BatchHits:
    """Return hits without ties beyond the limit: the first by their ids stay."""

    def cut(rows: Int64s, scores: Float64s) -> tuple[Int64s, Float64s]:
        surer = int(np.count_nonzero(scores > scores[-1]))
        first = heapq.nsmallest(limit - surer, rows[surer:].tolist(), key=ids.__getitem__)
        return np.array([*rows[:surer], *sorted(first)], np.int64), scores[:limit].copy()

    return replace(found, wider={i: cut(*both) for i, both in found.wider.items()})


def build_index(
    indexed: BackendIndex, rows: VectorBatch, report: ProgressReport, stop: threading.Event
) -> BackendIndex | None:
    """Return a backend of no rows with ``rows`` in its index; None once ``stop`` is set."""
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
    """Compile kernels before the build and the first search are timed."""
    state = indexed.extend(one, one).state
    view = RowView(one, np.ones(1, np.uint8), 1)
    for rerank in ("own", "none"):
        indexed.backend.search(state, view, one, SearchParams(limit=1, rerank=rerank))


def catch_up(
    indexed: BackendIndex, sequences: Int64s, rows: VectorBatch, now: Int64s
) -> BackendIndex:
    """Return a backend with its index brought from some rows to the present ones.

    sequences: (n,) int64, sequence numbers of the rows it was built for.
    rows: the present rows: those that stayed, in their old order, then new ones.
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
