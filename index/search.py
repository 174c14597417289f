"""Search by hash tables: hash the query, probe, score exactly; or scan where that is sooner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from index.arrays import Float64s, Int64s, UInt64s
from index.bands import BandPlan
from index.batches import VectorBatch
from index.costs import hash_nanoseconds, row_nanoseconds, scan_nanoseconds
from index.hits import Explanation, LiveSample, RowHits, RowView
from index.inverted import InvertedIndex
from index.kernels.probe import ANSWERED, CANDIDATES, COUNTERS, DEPTH, SCORED, TABLES, Rule, probe
from index.parallel import Workers
from index.params import SearchParams
from index.scan import scan, tolerance
from index.tables import Tables

_HASHING: Final = 0.2
"""Share of a scan's cost that hashing the query may take."""
_PROBING: Final = {"dense": 0.5, "sparse": 0.12}
"""Share of a scan's cost that probing may look like taking: it is harder to foresee, above all
where a scan touches only the rows that share a slot."""
_BESIDE: Final = 20_000.0
"""Nanoseconds that a search by tables takes beside hashing and probing."""


@dataclass(slots=True)
class _Found:
    """What probing found for m queries.

    Attributes
    ----------
    scores, rows : (m, limit) float64 and int64
        By falling score, equal scores by rising row.
    sizes : (m,) int64
    counters : (m, COUNTERS) int64
    recall : (m,) float64
    """

    scores: Float64s
    rows: Int64s
    sizes: Int64s
    counters: Int64s
    recall: Float64s

    @classmethod
    def none(cls, m: int, limit: int) -> _Found:
        """Return room for the hits of m queries."""
        return cls(
            np.empty((m, limit), np.float64), np.empty((m, limit), np.int64),
            np.zeros(m, np.int64), np.zeros((m, COUNTERS), np.int64), np.zeros(m, np.float64),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableSearch:
    """Search over one state of the tables.

    Attributes
    ----------
    plan : BandPlan
    keys_of : callable
        Returns the (m, L) keys of queries.
    tables : Tables
    inverted : InvertedIndex
        For scans of sparse rows.
    workers : Workers
    """

    plan: BandPlan
    keys_of: Callable[[VectorBatch], UInt64s]
    tables: Tables
    inverted: InvertedIndex
    workers: Workers

    def search(
        self, view: RowView, queries: VectorBatch, params: SearchParams, skip: Int64s
    ) -> list[RowHits]:
        """Return the hits of every query, at the recall asked for in the mean.

        Parameters
        ----------
        view : RowView
        queries : VectorBatch
        params : SearchParams
        skip : (m,) int64
            A row that a query must not return, or -1.
        """
        results: list[RowHits | None] = [None] * len(queries)
        if not results:
            return []
        if view.sample is None and queries.form == "sparse":
            view = replace(view, sample=LiveSample.of(view.permitted))
        if params.recall < 1 and view.permitted_count > params.limit:
            scan_cost = scan_nanoseconds(view, queries)
            worth = hash_nanoseconds(queries, self.plan) <= _HASHING * scan_cost
            limits = _PROBING[queries.form] * (scan_cost - _BESIDE)
            if worth.all():
                results = self._answers(view, queries, params, skip, limits)
            elif worth.any():
                chosen = np.flatnonzero(worth)
                found = self._answers(view, queries[chosen], params, skip[chosen], limits[chosen])
                for m, hits in zip(chosen.tolist(), found, strict=True):
                    results[m] = hits
        found_all = [hits for hits in results if hits is not None]
        if len(found_all) < len(results):
            left = np.array([m for m, hits in enumerate(results) if hits is None], np.int64)
            scanned = scan(
                view, _some(queries, left), params,
                skip=skip[left], inverted=self.inverted, workers=self.workers,
            )  # fmt: skip
            for m, hits in zip(left.tolist(), scanned, strict=True):
                results[m] = hits
            found_all = [hits for hits in results if hits is not None]
        return found_all

    def _probe(
        self,
        view: RowView,
        queries: VectorBatch,
        limit: int,
        rule: Rule,
        skip: Int64s,
        cost_limits: Float64s,
    ) -> _Found:
        """Probe the tables for each query."""
        m, vectors = len(queries), view.vectors
        keys = self.keys_of(queries)
        found = _Found.none(m, limit)
        row_cost = row_nanoseconds(view)

        def run(first: int, last: int) -> None:
            part = slice(first, last)
            some = queries if last - first == m else queries[part]
            probe(
                some.dense, some.indptr, some.slots, some.values, some.norms, keys[part],
                skip[part], vectors.dense, vectors.indptr, vectors.slots, vectors.values,
                vectors.norms, view.permitted, self.tables.addresses, self.plan.bits, rule,
                cost_limits[part], row_cost, found.scores[part], found.rows[part],
                found.sizes[part], found.counters[part], found.recall[part],
            )  # fmt: skip

        self.workers.split(m, run)
        return found

    def _answers(
        self,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s,
        cost_limits: Float64s,
    ) -> list[RowHits | None]:
        """Return each query's hits, None where a scan must answer."""
        plan = self.plan
        # Classical banding probes what it has, whatever it costs; only a proof asks for more.
        limits = cost_limits if plan.prefix else np.full(len(queries), np.inf)
        rule = Rule(
            depths=plan.depths, tables=plan.bands, step=plan.step, floor=plan.floor,
            allowed=1.0 - params.recall, least=float(params.min_score),
            slack=2 * tolerance(view.vectors, queries),
        )  # fmt: skip
        found = self._probe(view, queries, params.limit, rule, skip, limits)
        settles = not plan.prefix and params.guarantee == "measured"
        results: list[RowHits | None] = []
        for i, count in enumerate(found.counters.tolist()):
            if not (count[ANSWERED] or settles):
                results.append(None)
                continue
            size = found.sizes[i]
            explanation = Explanation(
                method="probe", bands=count[TABLES], depth=count[DEPTH],
                candidates=count[CANDIDATES], scored=count[SCORED], beam=0,
                expected_recall=float(found.recall[i]),
            )  # fmt: skip
            results.append(RowHits(found.rows[i, :size], found.scores[i, :size], explanation))
        return results


def _some(queries: VectorBatch, chosen: Int64s) -> VectorBatch:
    return queries if len(chosen) == len(queries) else queries[chosen]
