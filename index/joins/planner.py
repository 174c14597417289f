"""The join that finds near-duplicate pairs: by tables, by the neighbour graph, or every pair.

What the buckets of tables hold is counted, what the graph finds is measured on some of the rows,
and what the exact join takes is foreseen. The quickest way that keeps the recall is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int32s, Int64s
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.policies import PAIR_POLICY, PairPolicy
from gcws_search.index.cost_model import (
    all_pairs_nanoseconds,
    bucket_nanoseconds,
    graph_join_nanoseconds,
    table_nanoseconds,
)
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import Scanner
from gcws_search.index.hashing.banding import BandPlan, depth_for, match_probabilities
from gcws_search.index.joins.exact_join import ExactJoin
from gcws_search.index.joins.pair_sink import PairSink, join_pairs
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.kernels.graph.pair_walk import (
    EXPANDED,
    SCORED,
    WORK,
    PairRows,
    PairRule,
    Pairs as PairArrays,
    find_pairs,
    meet,
    shared_buckets,
)
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.similarities.gmm import exact_scores, tolerance
from gcws_search.index.threads import Workers

_OWN_LIST: Final = -1


@dataclass(frozen=True, slots=True)
class GraphJoin:
    """What searches of the graph are expected to do."""

    patience: int  # see `kernels.graph.pair_walk.PairRule`
    recall: float  # share of the pairs found, less one standard error
    nanoseconds: float  # for all rows


@dataclass(frozen=True, slots=True)
class PairSample:
    """Some rows with all their partners."""

    threshold: float  # what partners score at least
    rows: Int64s  # (r,)
    numbers: Int64s  # (p,): for each pair which of ``rows`` it is
    partners: Int64s  # (p,): the other row
    scores: Float64s  # (p,)


@dataclass(frozen=True, slots=True)
class PairJoin:
    """The join of one state with itself."""

    view: RowView
    tables: Tables  # those made so far
    plan: BandPlan  # of all there can be
    widen: Callable[[int], Tables]  # returns the same rows in at least that many tables
    links: Int32s | None  # (n, R): of the neighbour graph, where there is one
    inverted: InvertedIndex
    workers: Workers
    policy: PairPolicy = PAIR_POLICY

    def offer(self, sink: PairSink, recall: float) -> None:
        """Offer pairs so that the share of them asked for is found in the mean."""
        if self.view.permitted_count < 2:  # noqa: PLR2004 (a pair)
            return
        if sink.limit is not None and self.links is not None:
            self.join_links(self.links, sink, _OWN_LIST)  # what scores less need not be looked for
            sink.score_pending()
        if recall >= 1 or not self._offer_some(sink, recall):
            self._exact(sink.threshold).offer(sink, self.workers)

    def _exact(self, threshold: float, quickest: float = inf) -> ExactJoin:
        return ExactJoin.of(self.view, self.inverted, threshold, quickest=quickest)

    def _offer_some(self, sink: PairSink, recall: float) -> bool:
        """Offer the share asked for in the quickest way; False where tables cannot promise it."""
        bands, bucket_cost = self._plan_buckets(sink.threshold, recall, None)
        exact = self._exact(sink.threshold, bucket_cost)
        quickest = min(bucket_cost, exact.nanoseconds)
        policy = self.policy
        trial = policy.min_gain * all_pairs_nanoseconds(self.view, policy.sampled)
        if self.links is not None and sink.threshold > 0 and quickest > trial:
            sample = self.sample_partners(sink.threshold)
            searches = None if sample is None else self.plan_searches(self.links, sample, recall)
            bands, bucket_cost = self._plan_buckets(sink.threshold, recall, sample)
            if exact.prefixes is None:  # tables seemed to be quicker
                exact = self._exact(sink.threshold, bucket_cost)
            quickest = min(bucket_cost, exact.nanoseconds)
            if searches is not None and searches.nanoseconds < quickest:
                self.join_links(self.links, sink, searches.patience)
                return True
        if bucket_cost > exact.nanoseconds:
            exact.offer(sink, self.workers)
            return True
        return join_pairs(
            self.view,
            self.widen(bands),
            self.plan.of_first(bands),
            sink,
            recall=recall,
            workers=self.workers,
        )

    def _plan_buckets(
        self, threshold: float, recall: float, sample: PairSample | None
    ) -> tuple[int, float]:
        """Return how many tables to join, those there are or twice as many, …, and nanoseconds.

        The more tables, the deeper and smaller are the buckets that are enough; those of further
        tables are taken to be as full as those of the first. Every pair is found in several
        tables: how often, a sample tells.
        """
        existing, shifts, choices, repeats = self.tables.bands, [], [], []
        bands = existing
        while True:
            plan = self.plan.of_first(bands)
            depth = depth_for(plan, threshold, recall)
            if depth is not None:
                choices.append(bands)
                shifts.append(64 - depth * plan.bits)
                repeats.append(0.0 if sample is None else self.repeats(sample, plan, depth))
            if bands == self.plan.bands:
                break
            bands = min(2 * bands, self.plan.bands)
        pairs = np.zeros(len(choices), np.int64)
        segment = self.tables.merged(self.workers)
        if segment is not None:
            for keys in segment.keys:
                shared_buckets(keys, np.array(shifts, np.uint64), pairs)
        costs = [
            table_nanoseconds(self.view, self.plan, bands - existing)
            + bucket_nanoseconds(self.view, shared * bands / existing, found)
            for bands, shared, found in zip(choices, pairs.tolist(), repeats, strict=True)
        ]
        if not costs:
            return existing, inf
        best = int(np.argmin(costs))
        return choices[best], costs[best]

    def repeats(self, sample: PairSample, plan: BandPlan, depth: int) -> float:
        """Return how often pairs are found in all tables together, at a depth."""
        matches = match_probabilities(plan, sample.scores, depth)
        every = self.view.permitted_count / len(sample.rows) / 2  # each pair has two rows
        return float(matches.sum()) * plan.bands * every

    def join_links(self, links: Int32s, sink: PairSink, patience: int) -> None:
        """Offer each row with the rows it is linked to, and those they are linked to."""
        chosen = np.flatnonzero(self.view.permitted)

        def join_part(first: int, last: int) -> None:
            for start in range(first, last, self.policy.call_rows):
                part = chosen[start : min(start + self.policy.call_rows, last)]
                self._partners(links, part, patience, sink)

        self.workers.split(len(chosen), join_part)

    def _rows(self) -> PairRows:
        """Return the rows as kernels take them."""
        return PairRows(*rows_of(self.view.vectors), self.view.permitted)

    def _partners(
        self, links: Int32s, chosen: Int64s, patience: int, sink: PairSink | _Offered
    ) -> Int64s:
        """Offer the pairs that searches from chosen rows find; return what they cost."""
        vectors = self.view.vectors
        capacity = max(self.policy.capacity, len(vectors))
        a, b = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
        work = np.zeros(WORK, np.int64)
        threshold = np.float32(sink.threshold - tolerance(vectors, vectors))
        rows, rule, out = self._rows(), PairRule(threshold, patience), PairArrays(a, b, work)
        done = 0
        while done < len(chosen) and not sink.done:
            count, done = find_pairs(rows, links, chosen, done, rule, out)
            sink.add(a[:count].copy(), b[:count].copy())
        return work

    def plan_searches(self, links: Int32s, sample: PairSample, recall: float) -> GraphJoin | None:
        """Choose walk settings that reach the requested recall on a sample.

        None when none do, or when there are too few pairs to tell.
        """
        threshold, rows, numbers = sample.threshold, sample.rows, sample.numbers
        weights = np.bincount(numbers, minlength=len(rows)).astype(np.float64)
        judged = _some_of_each(numbers, self.policy.max_partners)
        a, b, numbers = rows[numbers[judged]], sample.partners[judged], numbers[judged]
        wanted = np.minimum(a, b) << 32 | np.maximum(a, b)
        starts = np.unique(np.concatenate([a, b]))
        for patience in self.policy.patience:
            offered = _Offered(threshold)
            self._partners(links, starts, patience, offered)
            found = np.isin(wanted, offered.keys()).astype(np.float64)
            expected = _cautious_recall(
                np.bincount(numbers, found, len(rows)).astype(np.float64),
                np.bincount(numbers, minlength=len(rows)),
                weights,
            )
            if expected >= recall:
                work = self._partners(links, rows, patience, _Offered(threshold))
                scale = self.view.permitted_count / len(rows)
                cost = graph_join_nanoseconds(
                    self.view, work[SCORED] * scale, work[EXPANDED] * scale
                )
                return GraphJoin(patience, expected, cost)
        return None

    def sample_partners(self, threshold: float) -> PairSample | None:
        """Return some rows with all their partners, None where these are too many."""
        view, vectors = self.view, self.view.vectors
        rows = np.flatnonzero(view.permitted)
        policy = self.policy
        if len(rows) > policy.sampled:
            rows = np.sort(np.random.default_rng(0).choice(rows, policy.sampled, replace=False))
        bound = threshold - tolerance(vectors, vectors)
        found: list[tuple[Int64s, Int64s, Float64s]] = []
        if vectors.form == "dense":
            numbers = np.empty(policy.max_sampled, np.int32)
            partners = np.empty(policy.max_sampled, np.int32)
            count, last = meet(
                self._rows(), rows, np.float32(bound), 0, len(vectors), numbers, partners
            )
            if last < len(vectors):
                return None
            order = np.argsort(numbers[:count], kind="stable")
            borders = np.searchsorted(numbers[:count][order], np.arange(len(rows) + 1))
            near = [
                partners[order[start:stop]].astype(np.int64)
                for start, stop in pairwise(borders.tolist())
            ]
        else:
            scanner = Scanner(view, self.inverted, 0.0)
            near, total = [], 0
            for row in rows.tolist():
                near.append(scanner.collect(vectors[row : row + 1], row, bound))
                total += len(near[-1])
                if total > policy.max_sampled:
                    return None
        for number, some in enumerate(near):
            row = int(rows[number])
            exact = exact_scores(vectors, vectors[row : row + 1], some)
            good = exact >= threshold
            found.append((np.full(np.count_nonzero(good), number), some[good], exact[good]))
        if not found:
            return None
        every: list[Any] = [np.concatenate(column) for column in zip(*found, strict=True)]
        return PairSample(threshold, rows, *every)


class _Offered:
    """A sink that keeps the pairs as they are."""

    done = False

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self._pairs: list[Int64s] = [np.empty(0, np.int64)]

    def add(self, a: Int32s, b: Int32s) -> None:
        """Keep pairs of rows."""
        self._pairs.append(a.astype(np.int64) << 32 | b)

    def keys(self) -> Int64s:
        """Return all pairs, the lesser row in the high half."""
        return np.concatenate(self._pairs)


def _some_of_each(numbers: Int64s, limit: int) -> Int64s:
    """Return places of entries: at most ``limit`` of each number, drawn at random."""
    order = np.random.default_rng(0).permutation(len(numbers))
    order = order[np.argsort(numbers[order], kind="stable")]
    ordered = numbers[order]
    place = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    chosen: Int64s = order[place < limit]
    return chosen


def _cautious_recall(found: Float64s, judged: Int64s, weights: Float64s) -> float:
    """Return the share of all pairs found, less one standard error; 0 where nothing is known.

    A further row with one pair missed keeps a small sample from looking perfect.
    """
    some = weights > 0
    if not some.any():
        return 0.0
    typical = float(judged[some].mean())
    shares = np.append(found[some] / judged[some], 1.0 - 1.0 / typical)
    weighted = np.append(weights[some], float(weights[some].mean()))
    total = float(weighted.sum())
    mean = float(shares @ weighted) / total
    spread = float(np.sqrt(np.sum((weighted * (shares - mean)) ** 2))) / total
    return mean - spread
