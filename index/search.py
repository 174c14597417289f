"""Search by hash tables: hash the query, probe, score exactly; or scan where that is sooner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from index.arrays import Float64s, Int64s, UInt64s
from index.bands import BandPlan
from index.batches import VectorBatch
from index.hits import Explanation, RowHits, RowView
from index.inverted import InvertedIndex
from index.kernels.probe import ANSWERED, CANDIDATES, COUNTERS, DEPTH, SCORED, TABLES, Rule, probe
from index.parallel import Workers
from index.params import SearchParams
from index.scan import rescored, scan, tolerance
from index.tables import Tables

# What steps cost on current processors, in nanoseconds. They steer the choice between two right
# answers, so factors of two do not matter.
_SCAN_ROW: Final = 3.0
_SCAN_BYTE: Final = 1 / 12
_SCAN_ENTRY: Final = 1.5
_SCAN_SUM: Final = 1.0
_SCAN_LOOK: Final = 0.5
_PROBE_ROW: Final = 60.0
_PROBE_BYTE: Final = 1 / 8
_PROBE_TABLE: Final = 150.0
_HASH_SAMPLE: Final = {"dense": 0.35, "sparse": 2.8}
_BYTES_AN_ENTRY: Final = {"dense": 4, "sparse": 8}


@dataclass(frozen=True, slots=True)
class TableSearch:
    """Search over one state of the tables.

    Attributes
    ----------
    plan : BandPlan
    keys_of : callable
        Returns the (m, L) keys of queries under the plan.
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
        if params.recall < 1 and view.permitted_count > params.limit:
            scan_cost = _scan_nanoseconds(view, queries, self.inverted)
            chosen = np.flatnonzero(scan_cost > _hash_nanoseconds(view, queries, self.plan))
            if len(chosen):
                some = _some(queries, chosen)
                found = self._probe(view, some, params, skip[chosen], scan_cost[chosen])
                for m, hits in zip(chosen.tolist(), found, strict=True):
                    results[m] = hits
        left = np.array([m for m, hits in enumerate(results) if hits is None], np.int64)
        if len(left):
            scanned = scan(
                view, _some(queries, left), params,
                skip=skip[left], inverted=self.inverted, workers=self.workers,
            )  # fmt: skip
            for m, hits in zip(left.tolist(), scanned, strict=True):
                results[m] = hits
        return [hits for hits in results if hits is not None]

    def _probe(
        self,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s,
        scan_cost: Float64s,
    ) -> list[RowHits | None]:
        """Return each query's hits, None where a scan must answer."""
        m, vectors, plan = len(queries), view.vectors, self.plan
        keys = self.keys_of(queries)
        scores = np.empty((m, params.limit), np.float32)
        rows = np.empty((m, params.limit), np.int64)
        sizes = np.zeros(m, np.int64)
        counters = np.zeros((m, COUNTERS), np.int64)
        recall = np.zeros(m, np.float64)
        row_cost = _PROBE_ROW + _PROBE_BYTE * (_BYTES_AN_ENTRY[vectors.form] * _entries_a_row(view))
        # Classical banding probes what it has; only a proof must not be cut short by cost.
        limits = scan_cost if plan.prefix else np.full(m, np.inf)

        rule = Rule(
            depths=plan.depths, tables=plan.bands, step=plan.step, floor=plan.floor,
            allowed=1.0 - params.recall, least=float(params.min_score),
            slack=2 * tolerance(vectors, queries),
        )  # fmt: skip

        def run(first: int, last: int) -> None:
            part = queries[first:last]
            probe(
                part.dense, part.indptr, part.slots, part.values, part.norms, keys[first:last],
                skip[first:last], vectors.dense, vectors.indptr, vectors.slots, vectors.values,
                vectors.norms, view.permitted, self.tables.addresses, plan.bits, rule,
                limits[first:last], row_cost,
                scores[first:last], rows[first:last], sizes[first:last], counters[first:last],
                recall[first:last],
            )  # fmt: skip

        self.workers.split(m, run)
        settles = not plan.prefix and params.guarantee == "measured"
        results: list[RowHits | None] = []
        for i, count in enumerate(counters.tolist()):
            if not (count[ANSWERED] or settles):
                results.append(None)
                continue
            hits, exact = rescored(vectors, queries[i : i + 1], rows[i, : sizes[i]], params)
            explanation = Explanation(
                method="probe", bands=count[TABLES], depth=count[DEPTH],
                candidates=count[CANDIDATES], scored=count[SCORED], beam=0,
                expected_recall=float(recall[i]),
            )  # fmt: skip
            results.append(RowHits(hits, exact, explanation))
        return results


def _some(queries: VectorBatch, chosen: Int64s) -> VectorBatch:
    return queries if len(chosen) == len(queries) else queries[chosen]


def _entries_a_row(view: RowView) -> float:
    vectors = view.vectors
    if vectors.form == "dense":
        return float(vectors.dense.shape[1])
    return len(vectors.values) / max(1, len(vectors))


def _scan_nanoseconds(view: RowView, queries: VectorBatch, inverted: InvertedIndex) -> Float64s:
    """Return what scanning all rows would take for each query."""
    n = len(view.vectors)
    if view.vectors.form == "dense":
        row = _SCAN_ROW + _SCAN_BYTE * 4 * _entries_a_row(view)
        return np.full(len(queries), n * _SCAN_LOOK + view.permitted_count * row)
    tail = (n - inverted.covered) * 2 * _SCAN_ENTRY * _entries_a_row(view)
    cost: Float64s = _SCAN_ENTRY * inverted.entries(queries).astype(np.float64) + (
        n * _SCAN_SUM + tail
    )
    return cost


def _hash_nanoseconds(view: RowView, queries: VectorBatch, plan: BandPlan) -> Float64s:
    """Return what hashing each query and finding its places in the tables takes."""
    form = view.vectors.form
    if form == "dense":
        entries = np.full(len(queries), queries.dense.shape[1] / 2)
    else:
        entries = np.diff(queries.indptr).astype(np.float64)
    return entries * (plan.samples * _HASH_SAMPLE[form]) + plan.bands * _PROBE_TABLE
