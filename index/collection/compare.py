"""Compare the backends of a collection: what each finds, and what that costs.

Recall is counted by score: a hit counts if its exact similarity is at least that of the last
true one, so ties cannot lower it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gcws_search.index.collection.backend_index import BackendIndex
from gcws_search.index.collection.items import View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.name_scan import scan_with_mass, split, widen, with_mass
from gcws_search.index.contracts.analysis import BackendComparison
from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.batches import RawBatch, SparseVector, VectorBatch, concatenate
from gcws_search.index.contracts.errors import InvalidParameter, InvalidVector
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.similarities import GMM, Kernel
from gcws_search.index.vectors.space import VectorSpace

SAMPLE: Final = 100
"""Stored items that are queries where none are given."""

_RELATIVE: Final = 1e-6
"""Kernels are exact to float32's rounding: a score may be below that of its equal by this."""
_KERNEL_ENTRIES: Final = 1 << 22
"""About how many kernel values are in memory at a time."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The backends, measured with the same queries.

    best: (m, k) float64, GMM of each query with its exact neighbours, unordered; -inf for none.
    """

    backends: list[BackendComparison]
    best: Float64s

    @property
    def similarities(self) -> Float64s:
        """The (m,) mean GMM of each query with its exact neighbours; 0 if there are none."""
        found = np.isfinite(self.best)
        sums = np.where(found, self.best, 0.0).sum(axis=1)
        return np.asarray(sums / np.maximum(1, found.sum(axis=1)))


@dataclass(frozen=True, slots=True)
class ComparedQueries:
    """The queries of a comparison.

    skip: (m,) int64, the stored row of each query, which it must not find; -1 for none.
    mass: (m,) float64, total magnitude of each query's unknown names, shared by no item.
    """

    vectors: VectorBatch
    skip: Int64s
    mass: Float64s

    @classmethod
    def of(
        cls, space: VectorSpace, queries: Sequence[RawBatch | SparseVector], skip: Int64s
    ) -> ComparedQueries:
        """Return vectors as queries; see `StoredCollection.compare`.

        skip: (m,) int64, or empty.
        Raises InvalidVector (at ``(query, …)``).
        """
        known: list[VectorBatch] = []
        mass: list[float] = []
        for part in queries:
            try:
                if isinstance(part, SparseVector):
                    vectors, unknown = split(space, widen(space, part))
                else:
                    vectors, unknown = space.prepare(part), 0.0
            except InvalidVector as error:
                error.move_row(len(mass).__add__)
                raise
            known.append(vectors)
            mass += [unknown] * len(vectors)
        skipped = skip if len(skip) else np.full(len(mass), -1, np.int64)
        return cls(concatenate(known), skipped, np.array(mass))

    @classmethod
    def sample(cls, view: View, count: int, seed: int) -> ComparedQueries:
        """Return stored items sampled without replacement; all items if there are no more.

        Raises InvalidParameter (there are fewer than two items).
        """
        live = np.flatnonzero(view.alive)
        require_two(len(live))
        rows = np.random.default_rng(seed).choice(live, min(count, len(live)), replace=False)
        return cls(view.vectors[rows], rows.astype(np.int64), np.zeros(len(rows)))

    def __len__(self) -> int:
        return len(self.skip)


def require_two(items: int) -> None:
    """Raise InvalidParameter unless there are two items: one to search for, one to find."""
    if items < 2:  # noqa: PLR2004
        expected, got = "a collection of at least 2 items", f"one of {items}"
        raise InvalidParameter(expected=expected, got=got, loc=("sample",))


def compare(
    collection: MemoryCollection,
    view: View,
    queries: ComparedQueries,
    params: SearchParams,
    names: Sequence[str] | None = None,
    stop: threading.Event | None = None,
) -> Comparison:
    """Run the same queries on several backends.

    params: its re-ranking is ignored.
    names: of the backends; None for all backends of the view.
    Raises BackendNotFound, CancelledError (of `concurrent.futures`: ``stop`` was set).
    """
    primary = collection.index_of(view)
    if names is None:
        names = [primary.name, *view.attached]
    asked = [collection.index_of(view, name) for name in dict.fromkeys(names)]
    trial = _Trial(view, queries, params, primary.name, stop)
    backends = [trial.of(indexed) for indexed in asked]
    return Comparison(backends, trial.best)


class _Trial:
    def __init__(
        self,
        view: View,
        queries: ComparedQueries,
        params: SearchParams,
        primary: str,
        stop: threading.Event | None,
    ) -> None:
        self._stop = stop
        self._view = view
        self._primary = primary
        self._queries = queries
        self._params = params
        self._rows = RowView(view.vectors, view.alive, view.count)
        self.best = self._truth(GMM)

    def _require_wanted(self) -> None:
        if self._stop is not None and self._stop.is_set():
            raise CancelledError

    def of(self, indexed: BackendIndex) -> BackendComparison:
        kernel = indexed.backend.kernel
        found, seconds, candidates = self._search_one(indexed, replace(self._params, rerank="gmm"))
        recall = self._recall(GMM, self.best, found)
        own = recall
        if kernel is not GMM:
            found, _, _ = self._search_one(indexed, replace(self._params, rerank="own"))
            own = self._recall(kernel, self._truth(kernel), found)
        return BackendComparison(
            name=indexed.name,
            kind=indexed.params.kind,
            kernel=kernel.name,
            recall=recall,
            recall_own=own,
            latency_p50_seconds=float(np.quantile(seconds, 0.5)),
            latency_p95_seconds=float(np.quantile(seconds, 0.95)),
            candidates=candidates,
            bytes_per_item=indexed.nbytes / max(1, self._view.count),
            build_seconds=indexed.build_seconds,
        )

    def _search_one(
        self, indexed: BackendIndex, params: SearchParams
    ) -> tuple[list[Int64s], list[float], float]:
        """Return the rows that each query finds, the seconds of each, and the mean candidates."""
        rows: list[Int64s] = []
        seconds: list[float] = []
        candidates = 0
        # The first query runs twice, so that compilation at a first search is not timed.
        for number in (0, *range(len(self._queries))):
            self._require_wanted()
            query = self._queries.vectors[number : number + 1]
            skip = self._queries.skip[number : number + 1]
            mass = float(self._queries.mass[number])
            start = time.perf_counter()
            is_primary = indexed.name == self._primary and params.rerank == "gmm"
            if mass and (is_primary or not query.norms[0]):
                scanned = scan_with_mass(self._view, self._view.alive, query, mass, params)
                ranked = scanned[0].rows
                seconds.append(time.perf_counter() - start)
                rows.append(np.array(ranked, np.int64))
                found = int(scanned.found.candidates[0])
            else:
                hits = indexed.backend.search(indexed.state, self._rows, query, params, skip)
                seconds.append(time.perf_counter() - start)
                rows.append(hits.hits(0)[0][: params.limit])
                found = int(hits.candidates[0])
            candidates += found if len(rows) > 1 else 0
        return rows[1:], seconds[1:], candidates / len(self._queries)

    def _truth(self, kernel: Kernel) -> Float64s:
        """Return (m, k), the scores of the true hits of each query, unordered; -inf for none."""
        best = np.full((len(self._queries), min(self._params.limit, self._view.count)), -np.inf)
        dead = self._view.alive == 0
        vectors = self._view.vectors
        step = max(1, _KERNEL_ENTRIES // max(1, len(vectors)))
        # For a query without coordinates in the space, only GMM gives a ranking.
        asked = np.flatnonzero((self._queries.vectors.norms > 0) | (kernel is GMM))
        for first in range(0, len(asked), step):
            self._require_wanted()
            part = asked[first : first + step]
            scores = kernel.scores(self._queries.vectors[part], vectors)
            for number, known in zip(part.tolist(), scores, strict=True):
                line = self._with_unknown(kernel, known, number, vectors)
                line[dead] = -np.inf
                if self._queries.skip[number] >= 0:
                    line[self._queries.skip[number]] = -np.inf
                count = min(self._params.limit, int(np.isfinite(line).sum()))
                if count:
                    best[number, :count] = np.partition(line, len(line) - count)[-count:]
        return best

    def _with_unknown(
        self, kernel: Kernel, known: Float64s, number: int, rows: VectorBatch
    ) -> Float64s:
        """Return the scores of rows, with the mass of a query's unknown names added to its GMM."""
        mass = float(self._queries.mass[number])
        if not mass or kernel is not GMM:
            return known
        return with_mass(known, self._queries.vectors[number : number + 1], rows, mass)

    def _recall(self, kernel: Kernel, best: Float64s, found: Sequence[Int64s]) -> float:
        """Return the mean share of the true hits that were found; 1 if there are none."""
        shares = np.ones(len(found))
        for number, rows in enumerate(found):
            true = best[number, np.isfinite(best[number])]
            if len(true):
                query = self._queries.vectors[number : number + 1]
                vectors = self._view.vectors[rows]
                known = kernel.scores(query, vectors)[0]
                scores = self._with_unknown(kernel, known, number, vectors)
                threshold = true.min() - _RELATIVE * abs(true.min())
                shares[number] = np.count_nonzero(scores >= threshold) / len(true)
        return float(shares.mean())
