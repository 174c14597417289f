"""Search by hash tables: probe until the recall is proven, or gather candidates by depth.

A scan answers where it is quicker than probing. `kernels.lsh` has the stop rule and its proof.
Candidates by depth are ranked by exact scores, or by the share of their samples that collide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int64s, UInt16s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import BANDS, DEPTH, TABLES, BatchHits, LiveSample, RowView
from gcws_search.index.contracts.parameters import GcwsParams, SearchParams
from gcws_search.index.contracts.policies import ProbePolicy
from gcws_search.index.cost_model import (
    Tally,
    hash_nanoseconds,
    max_scan_nanoseconds,
    row_nanoseconds,
    scan_nanoseconds,
)
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import Ranked, batch_hits, rank_rows, scan
from gcws_search.index.hashing.banding import BandPlan
from gcws_search.index.hashing.gcws import Gcws
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.kernels.lsh import probe as columns
from gcws_search.index.kernels.lsh.gather import gather
from gcws_search.index.kernels.lsh.probe import ProbeHits, ProbeRequests, Rule, probe
from gcws_search.index.kernels.lsh.tables import TableSegments
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.similarities import tolerance
from gcws_search.index.threads import Workers


def search_tables(  # noqa: PLR0913 (what is searched, and for what)
    method: int,
    plan: BandPlan,
    tables: Tables,
    view: RowView,
    keys: UInt64s,
    rank: Callable[[int, Int64s], Ranked],
    *,
    params: SearchParams,
    skip: Int64s,
    workers: Workers,
) -> BatchHits:
    """Return the candidates of m queries by (m, L) keys, ranked by ``rank(query, rows)``."""
    m, n = len(keys), len(view.vectors)
    depths, candidates = np.zeros(m, np.int64), np.zeros(m, np.int64)
    answers: list[Ranked | None] = [None] * m
    segments = TableSegments(tables.addresses, plan.bits)

    def answer(first: int, last: int) -> None:
        visited, gathered = np.empty((n + 63) // 64, np.uint64), np.empty(n, np.int32)
        for i in range(first, last):
            certain, found, depths[i] = gather(
                keys[i], int(skip[i]), view.permitted, segments, plan.depths, params.pool,
                visited, gathered,
            )  # fmt: skip
            if depths[i] > 0:  # the lowest rows of the last bucket
                others: Int64s = np.sort(gathered[certain:found]).astype(np.int64)
            else:  # all tables are exhausted: use rows without a shared prefix
                unseen = view.permitted.astype(np.bool_)
                unseen[gathered[:found]] = False
                if skip[i] >= 0:
                    unseen[skip[i]] = False
                others = np.flatnonzero(unseen)
            chosen = np.concatenate([gathered[:certain], others[: params.pool - certain]])
            candidates[i] = len(chosen)
            answers[i] = rank(i, np.sort(chosen).astype(np.int64))

    workers.split(m, answer)
    hits = batch_hits(
        method,
        [each for each in answers if each is not None],
        candidates=candidates,
        scored=0 if params.rerank == "none" else candidates,
    )
    hits.work[:, BANDS] = tables.bands
    hits.work[:, DEPTH] = depths
    return hits


@dataclass(frozen=True, slots=True)
class TableSearch:
    """Search over one state of the tables."""

    plan: BandPlan
    keys_of: Callable[[VectorBatch], UInt64s]  # returns the (m, L) keys of queries
    tables: Tables
    inverted: InvertedIndex  # for scans of sparse rows
    workers: Workers
    policy: ProbePolicy
    tally: Tally | None = None  # recent times of single queries like these, if recorded

    def search(
        self, view: RowView, queries: VectorBatch, params: SearchParams, skip: Int64s
    ) -> BatchHits:
        """Return the hits of every query, at the requested mean recall."""
        m = len(queries)
        if m == 0:
            return BatchHits.none()
        if params.recall >= 1 or view.permitted_count <= params.limit:
            return self._scan(view, queries, params, skip)
        if queries.form == "sparse" and view.sample is None:
            view = replace(view, sample=LiveSample.of(view.permitted))
        policy = self.policy
        tally = self.tally if m < policy.many else None
        # Estimating a scan of sparse rows is costly, so only queries that hash quickly are tried.
        is_known = tally is not None and queries.form == "dense"
        chosen, hash_cost, scan_cost = self._choose_queries(view, queries, is_known=is_known)
        if len(chosen) == 0 or not (tally is None or self._pays(tally, scan_cost)):
            return self._scan(view, queries, params, skip)
        parts: list[tuple[Int64s, BatchHits]] = []
        groups = self._groups(chosen, params)
        for group in groups:
            whole = len(group) == m
            some = queries if whole else queries[group]
            found, answered = self.answers(view, some, params, skip[group], scan_cost[group])
            if tally is not None:
                taken = hash_cost[group] + 2.0 * scan_cost[group]
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
        """Return queries in the groups in which they are tried: of many, a few first."""
        always = not self.plan.prefix and params.guarantee == "measured"
        if always or len(chosen) < self.policy.many:
            return (chosen,)
        return chosen[: self.policy.tried], chosen[self.policy.tried :]

    def _pays(self, tally: Tally, scan_cost: Float64s) -> bool:
        """Return whether single queries are tried: recent ones were faster, or a new try is due."""
        quicker = tally.nanoseconds <= scan_cost.mean()
        return bool(quicker) or tally.try_again(self.policy.tries)

    def _have_not_paid(
        self, view: RowView, tried: VectorBatch, found: BatchHits, spared: Float64s
    ) -> bool:
        """Return whether the queries tried took longer than the scans that they replaced."""
        probing = int(found.candidates.sum()) * row_nanoseconds(view)
        return bool(hash_nanoseconds(tried, self.plan).sum() + probing > spared.sum())

    def _choose_queries(
        self, view: RowView, queries: VectorBatch, *, is_known: bool
    ) -> tuple[Int64s, Float64s, Float64s]:
        """Return the queries worth hashing, the cost of that, and the cost of scans.

        Both costs are per query, for all queries; ``is_known`` is whether there is a tally.
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

    def answers(
        self,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s,
        cost_limits: Float64s,
    ) -> tuple[BatchHits, Int64s]:
        """Return hits and the numbers of the queries answered; a scan must answer the others."""
        plan, m, limit = self.plan, len(queries), params.limit
        # Classical banding probes its tables at any cost; only a proof requests more tables.
        limits = cost_limits if plan.prefix else np.full(m, np.inf)
        rule = Rule(
            depths=plan.depths,
            tables=plan.bands,
            step=plan.step,
            floor=plan.floor,
            allowed=1.0 - params.recall,
            min_score=float(params.min_score),
            slack=2 * tolerance(view.vectors, queries),
        )
        requests = ProbeRequests(self.keys_of(queries), skip, limits)
        rows, row_cost = rows_of(view.vectors, as_held=True), row_nanoseconds(view)
        segments = TableSegments(self.tables.addresses, plan.bits)
        found = ProbeHits(
            np.empty((m, limit), np.float64),
            np.empty((m, limit), np.int64),
            np.zeros(m, np.int64),
            np.zeros((m, columns.COUNTERS), np.int64),
            np.zeros(m, np.float64),
        )

        def run(first: int, last: int) -> None:
            some, ours, out = queries, requests, found
            if last - first < m:
                part = slice(first, last)
                some = queries[part]
                ours = ProbeRequests._make(each[part] for each in requests)
                out = ProbeHits._make(each[part] for each in found)
            probe(rows_of(some), ours, rows, view.permitted, segments, row_cost, rule, out)

        self.workers.split(m, run)
        counters = found.counters.T
        hits = BatchHits.of(
            TABLES,
            found.rows,
            found.scores,
            found.sizes,
            expected_recall=found.recall,
            bands=counters[columns.TABLES],
            depth=counters[columns.DEPTH],
            candidates=counters[columns.CANDIDATES],
            scored=counters[columns.CANDIDATES],
        )
        if not plan.prefix and params.guarantee == "measured":
            return hits, np.arange(m)
        return hits, np.flatnonzero(counters[columns.ANSWERED])


def search_by_samples(  # noqa: PLR0913 (what is searched, and for what)
    plan: BandPlan,
    hash_: Gcws,
    gcws: GcwsParams,
    tables: Tables,
    view: RowView,
    queries: VectorBatch,
    *,
    keys: UInt64s,
    params: SearchParams,
    skip: Int64s,
    workers: Workers,
) -> BatchHits:
    """Return candidates of the tables, ranked by the share of their samples that collide.

    The samples are those of the tables, drawn again. Chance collisions of b-bit codes, a share of
    2^-b of unrelated samples, are subtracted ([BBIT]). ``keys`` are those of the queries.
    """
    chance = 2.0**-gcws.bits if gcws.encoding == "b_bit" else 0.0
    ours = _codes(plan, hash_, gcws, queries)

    def rank(query: int, rows: Int64s) -> Ranked:
        share = np.mean(_codes(plan, hash_, gcws, view.vectors[rows]) == ours[query], axis=1)
        return rank_rows(rows, np.maximum(0.0, (share - chance) / (1.0 - chance)), params)

    return search_tables(
        TABLES, plan, tables, view, keys, rank, params=params, skip=skip, workers=workers
    )


def _codes(plan: BandPlan, hash_: Gcws, gcws: GcwsParams, batch: VectorBatch) -> UInt16s | UInt64s:
    """Return (n, samples) the part of each sample that keys contain; equal if samples collide."""
    signatures = hash_.sketch(batch)
    if gcws.encoding == "b_bit":
        return signatures.codes(gcws.bits, plan.samples)
    slots = signatures.slots[:, : plan.samples].astype(np.uint64)
    if gcws.encoding == "zero_bit":
        return slots
    levels = signatures.levels[:, : plan.samples].view(np.uint32).astype(np.uint64)
    return slots << np.uint64(32) | levels
