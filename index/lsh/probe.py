"""Search by hash tables: hash the query, probe, score exactly; or scan where that is quicker.

The stop rule and its proof are in `kernels.lsh.probe`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int64s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import TABLES as BY_TABLES, BatchHits, LiveSample, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.contracts.policies import ProbePolicy
from gcws_search.index.cost_model import (
    Tally,
    hash_nanoseconds,
    max_scan_nanoseconds,
    row_nanoseconds,
    scan_nanoseconds,
)
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import scan
from gcws_search.index.hashing.banding import BandPlan
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.kernels.lsh.probe import (
    ANSWERED,
    CANDIDATES,
    COUNTERS,
    DEPTH,
    SCORED,
    TABLES,
    ProbeHits,
    ProbeRequests,
    Rule,
    probe,
)
from gcws_search.index.kernels.lsh.tables import TableSegments
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.similarities.gmm import tolerance
from gcws_search.index.threads import Workers


def _no_hits(m: int, limit: int) -> ProbeHits:
    """Return room for the hits of m queries."""
    return ProbeHits(
        np.empty((m, limit), np.float64),
        np.empty((m, limit), np.int64),
        np.zeros(m, np.int64),
        np.zeros((m, COUNTERS), np.int64),
        np.zeros(m, np.float64),
    )


@dataclass(frozen=True, slots=True)
class TableSearch:
    """Search over one state of the tables."""

    plan: BandPlan
    keys_of: Callable[[VectorBatch], UInt64s]  # returns the (m, L) keys of queries
    tables: Tables
    inverted: InvertedIndex  # for scans of sparse rows
    workers: Workers
    policy: ProbePolicy
    tally: Tally | None = None  # what lone queries like these have taken of late, if it counts

    def search(
        self, view: RowView, queries: VectorBatch, params: SearchParams, skip: Int64s
    ) -> BatchHits:
        """Return the hits of every query, at the recall asked for in the mean."""
        m = len(queries)
        if m == 0:
            return BatchHits.none()
        if params.recall >= 1 or view.permitted_count <= params.limit:
            return self._scan(view, queries, params, skip)
        if queries.form == "sparse" and view.sample is None:
            view = replace(view, sample=LiveSample.of(view.permitted))
        policy = self.policy
        tally = self.tally if m < policy.many else None
        # What a scan of sparse rows takes is costly to tell: only what is soon hashed is tried.
        is_known = tally is not None and queries.form == "dense"
        chosen, hash_cost, scan_cost = self._choose_queries(view, queries, is_known=is_known)
        if len(chosen) == 0 or not (tally is None or self._pays(tally, scan_cost)):
            return self._scan(view, queries, params, skip)
        share = policy.dense_probing if queries.form == "dense" else policy.sparse_probing
        limits = share * scan_cost
        parts: list[tuple[Int64s, BatchHits]] = []
        groups = self._groups(chosen, params)
        for group in groups:
            whole = len(group) == m
            some = queries if whole else queries[group]
            found, answered = self.answers(view, some, params, skip[group], limits[group])
            if tally is not None:
                taken = hash_cost[group] + limits[group] + scan_cost[group]
                probing = found.candidates * row_nanoseconds(view)
                taken[answered] = hash_cost[group[answered]] + probing[answered]
                tally.add(len(group), float(taken.mean()))
            if len(answered) == m:
                return found
            if len(answered):
                parts.append((group[answered], found.some(answered)))
            if group is not groups[-1] and self._have_not_paid(
                view, some, found, scan_cost[group[answered]]
            ):
                break
        if not parts:
            return self._scan(view, queries, params, skip)
        left = np.delete(np.arange(m), np.concatenate([places for places, _ in parts]))
        if len(left):
            parts.append((left, self._scan(view, queries[left], params, skip[left])))
        return BatchHits.combine(parts)

    def _groups(self, chosen: Int64s, params: SearchParams) -> tuple[Int64s, ...]:
        """Return queries as they are tried together: of many, a few before the others."""
        always = not self.plan.prefix and params.guarantee == "measured"
        if always or len(chosen) < self.policy.many:
            return (chosen,)
        first = min(self.policy.tried, len(chosen) // self.policy.tried_share)
        return chosen[:first], chosen[first:]

    def _pays(self, tally: Tally, scan_cost: Float64s) -> bool:
        """Return whether lone queries are tried: they have been quicker of late, or it is time."""
        quicker = tally.nanoseconds <= scan_cost.mean()
        return bool(quicker) or tally.try_again(self.policy.tries)

    def _have_not_paid(
        self, view: RowView, tried: VectorBatch, found: BatchHits, spared: Float64s
    ) -> bool:
        """Return whether queries that were tried took longer than the scans that they spared."""
        probing = int(found.candidates.sum()) * row_nanoseconds(view)
        return bool(hash_nanoseconds(tried, self.plan).sum() + probing > spared.sum())

    def _choose_queries(
        self, view: RowView, queries: VectorBatch, *, is_known: bool
    ) -> tuple[Int64s, Float64s, Float64s]:
        """Return the queries that are worth hashing, what that takes, and what scans would take.

        The latter two are for each of all; ``is_known`` is whether there is a tally.
        """
        policy, is_sparse = self.policy, queries.form == "sparse"
        fixed = policy.sparse_nanoseconds if is_sparse else policy.dense_nanoseconds
        cost = hash_nanoseconds(queries, self.plan) + fixed / len(queries)
        are_tried = is_known or len(queries) >= policy.many
        share = policy.hashing_of_tried if are_tried else policy.hashing
        share *= policy.scan_factor
        if is_sparse:
            max_cost = max_scan_nanoseconds(view, queries)
            if (cost[0] if len(cost) == 1 else cost.min()) > share * max_cost:  # min takes longer
                return np.empty(0, np.int64), cost, np.empty(0, np.float64)
        scans = scan_nanoseconds(view, queries, self.workers.threads)
        return np.flatnonzero(cost <= share * scans), cost, policy.scan_factor * scans

    def _scan(
        self, view: RowView, queries: VectorBatch, params: SearchParams, skip: Int64s
    ) -> BatchHits:
        return scan(view, queries, params, skip=skip, inverted=self.inverted, workers=self.workers)

    def _probe(
        self,
        view: RowView,
        queries: VectorBatch,
        limit: int,
        rule: Rule,
        skip: Int64s,
        cost_limits: Float64s,
    ) -> ProbeHits:
        """Probe the tables for each query."""
        m, rows = len(queries), rows_of(view.vectors)
        requests = ProbeRequests(self.keys_of(queries), skip, cost_limits)
        segments = TableSegments(self.tables.addresses, self.plan.bits)
        found = _no_hits(m, limit)
        row_cost = row_nanoseconds(view)

        def run(first: int, last: int) -> None:
            some, ours, out = queries, requests, found
            if last - first < m:
                part = slice(first, last)
                some = queries[part]
                ours = requests.part(part)
                out = found.part(part)
            probe(rows_of(some), ours, rows, view.permitted, segments, row_cost, rule, out)

        self.workers.split(m, run)
        return found

    def answers(
        self,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s,
        cost_limits: Float64s,
    ) -> tuple[BatchHits, Int64s]:
        """Return hits, and the numbers of the queries they answer; a scan must do the others.

        A query is given up after ``cost_limits`` nanoseconds.
        """
        plan = self.plan
        # Classical banding probes what it has, whatever it costs; only a proof asks for more.
        limits = cost_limits if plan.prefix else np.full(len(queries), np.inf)
        rule = Rule(
            depths=plan.depths,
            tables=plan.bands,
            step=plan.step,
            floor=plan.floor,
            allowed=1.0 - params.recall,
            min_score=float(params.min_score),
            slack=2 * tolerance(view.vectors, queries),
        )
        found = self._probe(view, queries, params.limit, rule, skip, limits)
        counters = found.counters.T
        hits = BatchHits.of(
            BY_TABLES,
            found.rows,
            found.scores,
            found.sizes,
            expected_recall=found.recall,
            bands=counters[TABLES],
            depth=counters[DEPTH],
            candidates=counters[CANDIDATES],
            scored=counters[SCORED],
        )
        if not plan.prefix and params.guarantee == "measured":
            return hits, np.arange(len(queries))
        return hits, np.flatnonzero(counters[ANSWERED])
