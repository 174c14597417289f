"""A backend with its rows, as a collection would hold them, and the truth beside it."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness.engine import RowHits, row_hits
from gcws_search.index.backends import POLICIES, Policies, make_backend
from gcws_search.index.contracts.arrays import UInt8s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import BatchHits, RowView
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.graph.recall_curve import SearchSetting
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.graph.search_plan import SearchPlan
from gcws_search.index.threads import Searches, Workers
from gcws_search.index.vectors.growing_rows import GrowingRows
from gcws_search.index.vectors.space import VectorSpace
from tests.support.data.adapters import raw_of
from tests.support.data.generated import Csr, Floats

Mask = npt.NDArray[np.uint8]
Rows = Floats | Csr
Answer = tuple[list[int], list[float]]


def view_of(rows: VectorBatch, permitted: Mask | None = None) -> RowView:
    """Return what a search sees of rows, all of them unless told otherwise."""
    mask = np.ones(len(rows), np.uint8) if permitted is None else permitted
    return RowView(rows, mask, int(mask.sum()))


class SmallIndex:
    """A backend, its state and its rows."""

    def __init__(
        self, config: CollectionConfig, *, threads: int = 1, policies: Policies = POLICIES
    ) -> None:
        self.config = config
        self.policies = policies
        self.space = VectorSpace.of(config)
        self.searches = Searches()
        self.backend: Any = make_backend(
            config, threads=threads, policies=policies, searches=self.searches
        )
        self.rows = GrowingRows(config.form, config.dim)
        self.state = self.backend.empty()

    def prepare(self, rows: Rows) -> VectorBatch:
        """Return rows as the collection transforms them."""
        return self.space.prepare(raw_of(self.space, rows))

    def add(
        self, rows: Rows, sizes: Sequence[int] | None = None, *, settled: bool = False
    ) -> "SmallIndex":
        """Add rows, in batches of the given sizes, the last one taking what is left.

        Settled, no row waits for its place in tables and lists.
        """
        first = 0
        for size in [*(sizes or ()), len(rows)]:
            batch = self.prepare(rows[first : first + size])
            first += len(batch)
            codes = self.backend.encode(batch)
            self.rows.append(batch)
            self.state = self.backend.extend(self.state, self.rows.view(), codes)
            if settled:
                self.finish_background_work()
        return self

    def finish_background_work(self) -> None:
        """Let rows that wait have their places in tables and lists."""
        self.state = self.backend.complete(self.state, self.rows.view(), Workers(1))

    def make_tables(self) -> "SmallIndex":
        """Make the first tables, which sparse rows have for a graph alone."""
        self.finish_background_work()
        rows, first = self.rows.view(), self.backend.plan.first
        tables = self.backend.band_keys.widen(self.state.tables, rows, first, Workers(1))
        self.state = replace(self.state, tables=tables)
        return self

    def optimize(self, stop: threading.Event | None = None) -> Any:  # noqa: ANN401 (a state)
        """Return what is made in the background, all rows alive; None where that was stopped."""
        view = self.view()
        stop = stop or threading.Event()
        return self.backend.optimize(self.state, view.vectors, view.permitted, stop)

    def adopt(self, made: Any) -> None:  # noqa: ANN401 (a state)
        """Take what was made in the background."""
        self.state = self.backend.adopt(self.state, self.rows.view(), made)
        assert self.state is not None

    @property
    def is_overdue(self) -> bool:
        """Whether something is to be made in the background, all rows alive."""
        return bool(self.backend.is_overdue(self.state, len(self.rows), len(self.rows)))

    def compact(self, stays: npt.NDArray[np.bool_]) -> None:
        """Drop the rows that do not stay."""
        new_rows = np.where(stays, np.cumsum(stays) - 1, -1).astype(np.int64)
        self.rows = self.rows.take(self.rows.view(), np.flatnonzero(stays))
        self.state = self.backend.renumber(self.state, self.rows.view(), new_rows)

    def view(self, permitted: Mask | None = None) -> RowView:
        """Return what a search sees."""
        return view_of(self.rows.view(), permitted)

    def graph_hits(
        self,
        queries: Rows,
        limit: int,
        setting: SearchSetting,
        graph: GraphSearch | None = None,
        max_candidates: float = inf,
    ) -> tuple[BatchHits, UInt8s, SearchPlan]:
        """Return what the graph alone finds, by a setting, what became of it, and its plan."""
        graph, tables, view = graph or self.state.graph, self.state.tables, self.view()
        plan = graph.plan_for(tables, view, limit, setting, max_candidates=max_candidates)
        nobody = np.full(len(queries), -1, np.int64)
        params = SearchParams(limit=limit)
        found = graph.search(plan, tables, view, self.prepare(queries), params, nobody)
        return *found, plan

    def search(
        self,
        queries: Rows,
        params: SearchParams,
        *,
        permitted: Mask | None = None,
        skip: Sequence[int] | None = None,
    ) -> list[RowHits]:
        """Return the hits of every query."""
        asked, skipped = self.prepare(queries), None if skip is None else np.array(skip, np.int64)
        return row_hits(
            self.backend.search(self.state, self.view(permitted), asked, params, skipped)
        )


def answer(hits: RowHits) -> Answer:
    """Return rows and scores as plain lists."""
    return hits.rows.tolist(), hits.scores.tolist()


def answers(results: Sequence[RowHits]) -> list[Answer]:
    """Return rows and scores of several queries as plain lists."""
    return [answer(hits) for hits in results]


def expanded_matrix(rows: Rows, dim: int) -> npt.NDArray[np.float64]:
    """Return the (n, 2 dim) non-negative form, positive parts first."""
    dense = np.zeros((len(rows), dim))
    if isinstance(rows, Csr):
        dense[np.repeat(np.arange(len(rows)), np.diff(rows.indptr)), rows.indices] = rows.values
    else:
        dense[:] = rows
    return np.concatenate([np.maximum(dense, 0), np.maximum(-dense, 0)], axis=1)


def all_scores(queries: Rows, rows: Rows, dim: int) -> npt.NDArray[np.float64]:
    """Return the (m, n) exact GMM by the definition; `reference.mathematics` has the slow loop.

    A minimum is 0 outside a query's own slots, and Σ max = Σ u + Σ v − Σ min.
    """
    left, right = expanded_matrix(queries, dim), expanded_matrix(rows, dim)
    slots, sums = np.ascontiguousarray(right.T), right.sum(axis=1)
    scores = np.empty((len(left), len(right)))
    for query, out in zip(left, scores, strict=True):
        own = np.flatnonzero(query)
        shared = np.minimum(query[own, None], slots[own]).sum(axis=0)
        out[:] = shared / (query.sum() + sums - shared)
    return scores


def true_pairs(
    scores: npt.NDArray[np.float64], least: float, alive: Mask | None = None
) -> dict[tuple[int, int], float]:
    """Return the pairs of live rows that reach a score, and their scores."""
    a, b = np.nonzero(np.triu(scores >= least, 1))
    return {
        (i, j): float(scores[i, j])
        for i, j in zip(a.tolist(), b.tolist(), strict=True)
        if alive is None or (alive[i] and alive[j])
    }
