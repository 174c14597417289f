"""Near-duplicate pairs: by tables, by the neighbour graph, or every pair.

`PairJoin` chooses the quickest way that reaches the recall. It counts the pairs in buckets of
tables, measures the recall of the graph on a sample of the rows, and estimates the time of the
exact join. The exact join compares all rows with all, or finds pairs of sparse rows by prefix
filtering: a pair must share a prefix slot. Source: [PREFIX], [PPJOIN]; see
`kernels.sparse.prefix_join`. Pairs by containment are found by scans.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int32s, Int64s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.errors import too_many_pairs
from gcws_search.index.contracts.hits import Pairs, RowView
from gcws_search.index.contracts.links import LinkArray
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.contracts.policies import PAIR_POLICY, PairPolicy
from gcws_search.index.contracts.scores import Ranking
from gcws_search.index.cost_model import (
    all_pairs_nanoseconds,
    bucket_nanoseconds,
    graph_join_nanoseconds,
    prefix_nanoseconds,
    table_nanoseconds,
)
from gcws_search.index.exact.containment import contained_shares, scan_contained
from gcws_search.index.exact.folded import FoldedJoin, least_folded
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import Scanner
from gcws_search.index.hashing.banding import BandPlan, depth_for, match_probabilities
from gcws_search.index.hashing.gcws import Gcws
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
from gcws_search.index.kernels.lsh.bucket_join import exact_pairs, join_block, join_table
from gcws_search.index.kernels.lsh.tables import SortedTable
from gcws_search.index.kernels.ordering.hits import empty_lists
from gcws_search.index.kernels.ordering.keys import RowPairs, keep_new, merge
from gcws_search.index.kernels.sparse.prefix_join import (
    MAX_ENTRIES,
    PrefixLists,
    count_places,
    join_prefixes,
    list_prefixes,
)
from gcws_search.index.lsh.band_keys import BandKeys
from gcws_search.index.lsh.pair_bands import band_costs, band_plan
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.similarities import tolerance
from gcws_search.index.threads import Workers

_FOLDED_ROWS: Final = 1 << 13
"""Rows whose pairs are looked for together among folded ones: as many as vectors of a join."""
_CAUTION: Final = 2.0
"""Bands are taken where all pairs take so many times longer: a sample knows few that are alike."""
_SCANNED_ROWS: Final = 64
"""Rows whose pairs by containment are looked for together: each may pair with every other."""
_LOW: Final = np.uint64(0xFFFFFFFF)


class PairSink:
    """The best pairs so far, from several threads, each pair once: ``limit`` of them, or all.

    Once ``stop`` is set, the pairs are no longer needed. For ``max_pairs`` see `Backend.pairs`.
    """

    def __init__(
        self,
        view: RowView,
        min_score: float,
        limit: int | None,
        stop: threading.Event | None = None,
        *,
        max_pairs: int | None = None,
        policy: PairPolicy = PAIR_POLICY,
        ranking: Ranking = "gmm",
    ) -> None:
        self.policy = policy
        self._ranking: Ranking = ranking
        self._max_pairs = policy.max_pairs if max_pairs is None else max_pairs
        self._vectors, self._ranks = view.vectors, view.ranks
        self._places: Int64s | None = None
        self._min_score = min_score
        self.limit = limit
        self._lock = threading.RLock()  # reentrant, because `add` scores pairs while holding it
        self._pending: list[UInt64s] = []
        self._pending_count = 0
        self._pairs = np.empty(0, np.uint64)
        self._scores = np.empty(0, np.float64)
        self.threshold = min_score
        self._complete = False
        self._stop = stop

    @property
    def done(self) -> bool:
        """Whether further pairs are useless."""
        return self._complete or (self._stop is not None and self._stop.is_set())

    def add(self, a: Int32s | Int64s, b: Int32s | Int64s) -> None:
        """Offer pairs of rows whose score may be high enough."""
        if len(a) == 0:
            return
        packed = a.astype(np.uint64) << np.uint64(32) | b.astype(np.uint64)
        with self._lock:
            self._pending.append(packed)
            self._pending_count += len(packed)
            if self._pending_count >= self.policy.max_unscored:
                self.score_pending()

    def score_pending(self) -> None:
        """Score the pairs offered so far and keep the best; `threshold` may rise."""
        with self._lock:
            fresh = np.sort(np.concatenate([np.empty(0, np.uint64), *self._pending]))
            fresh = fresh[: keep_new(fresh, self._pairs)]
            self._pending, self._pending_count = [], 0
            if len(fresh) == 0:
                return
            fresh_scores = pair_scores(self._vectors, *_unpack(fresh), self._ranking)
            good = fresh_scores >= self.threshold
            fresh, fresh_scores = fresh[good], fresh_scores[good]
            count = len(self._pairs) + len(fresh)
            pairs, scores = np.empty(count, np.uint64), np.empty(count, np.float64)
            merge(self._pairs, self._scores, fresh, fresh_scores, pairs, scores)
            max_pairs = self._max_pairs
            if self.limit is not None and len(pairs) > self.limit:
                best = np.lexsort((pairs, -scores))
                self.threshold = float(scores[best[self.limit - 1]])
                # Ties at the last score stay, up to a bound: the caller ranks them by id.
                best = best[: np.count_nonzero(scores >= self.threshold)]
                if len(best) > self.limit + max_pairs:
                    if self._ranks is None:
                        best = best[: self.limit + max_pairs]
                        self._complete = self.threshold >= 1.0
                    else:
                        best = self._first_by_ids(pairs, scores)[: self.limit]
                best = np.sort(best)
                pairs, scores = pairs[best], scores[best]
            elif len(pairs) > max_pairs:
                self._complete = True  # the other threads can stop
                raise too_many_pairs(max_pairs, self._min_score)
            self._pairs, self._scores = pairs, scores

    def _first_by_ids(self, pairs: UInt64s, scores: Float64s) -> Int64s:
        assert self._ranks is not None
        if self._places is None:
            self._places = self._ranks()
        a, b = (self._places[rows] for rows in _unpack(pairs))
        order: Int64s = np.lexsort((np.maximum(a, b), np.minimum(a, b), -scores))
        return order

    def result(self) -> Pairs:
        """Return the pairs by ascending rows."""
        self.score_pending()
        a, b = _unpack(self._pairs)
        return a, b, self._scores


def _unpack(packed: UInt64s) -> tuple[Int64s, Int64s]:
    return (packed >> np.uint64(32)).astype(np.int64), (packed & _LOW).astype(np.int64)


def pair_scores(vectors: VectorBatch, a: Int64s, b: Int64s, ranking: Ranking) -> Float64s:
    """Return the exact score of each pair of rows; for containment see `contained_shares`."""
    if ranking == "containment":
        return contained_shares(vectors, a, b)
    if vectors.holds_bytes:  # only the needed rows become floats
        used, places = np.unique(np.concatenate([a, b]), return_inverse=True)
        vectors, a, b = vectors[used], places[: len(a)], places[len(a) :]
    scores, rows = np.empty(len(a), np.float64), rows_of(vectors)
    exact_pairs(rows, a, rows, b, scores)
    return scores


def join_pairs(
    view: RowView,
    tables: Tables,
    plan: BandPlan,
    sink: PairSink,
    *,
    recall: float,
    workers: Workers,
) -> bool:
    """Offer the pairs that share a bucket at the depth for the requested recall.

    Returns False, without offering any pair, if no depth of these tables reaches the recall.
    """
    if depth_for(plan, sink.threshold, recall) is None:
        return False
    segment = tables.merged(workers)
    if segment is None:
        return True
    vectors = view.vectors
    slack = tolerance(vectors, vectors)
    rows = rows_of(vectors)

    def join(first: int, last: int) -> None:
        capacity = sink.policy.capacity
        out = RowPairs(np.empty(capacity, np.int32), np.empty(capacity, np.int32))
        for table in range(first, last):
            # The better the pairs found so far, the deeper the buckets that are examined.
            depth = depth_for(plan, sink.threshold, recall) or 1
            shift = np.uint64(64 - depth * plan.bits)
            sorted_table = SortedTable(segment.keys[table], segment.rows[table], shift)
            place, partner = 0, 0
            while place < len(segment) and not sink.done:
                threshold = np.float32(sink.threshold - slack)
                count, place, partner = join_table(
                    sorted_table, rows, view.permitted, threshold, place, partner, out
                )
                sink.add(out.a[:count], out.b[:count])

    workers.split(plan.bands, join)
    return True


_MAX_LISTED: Final = 1 << 27
"""Entries that are listed at most: 24 bytes each."""
_PARTS: Final = 16
"""For each thread: rows that come late are compared with more before them."""
_BLOCK_FLOATS: Final = 1 << 15  # dense rows kept in cache while all later rows are read (128 KB)
_BLOCK_ROWS: Final = 64  # sparse rows, looked up one by one
_PLACES: Final = 1 << 21
"""Pairs that one scan has room for."""


@dataclass(frozen=True, slots=True)
class PrefixJoin:
    """Rows listed under their prefix slots; similar pairs share one of these slots."""

    view: RowView
    threshold: float  # the minimum score, minus the error of float32
    lists: PrefixLists  # of the permitted rows
    nanoseconds: float  # expected time, once the lists exist

    @classmethod
    def of(
        cls, view: RowView, threshold: float, policy: PairPolicy = PAIR_POLICY
    ) -> PrefixJoin | None:
        """Return a join of the permitted, sparse rows of a view.

        None if any score is wanted, or if a row or all rows together are too long for the lists.
        """
        vectors = view.vectors
        threshold -= tolerance(vectors, vectors)
        if threshold <= 0 or vectors.longest > MAX_ENTRIES:
            return None
        rows = np.flatnonzero(view.permitted)
        rows = rows[np.argsort(vectors.norms[rows], kind="stable")]
        indptr, slots = vectors.indptr, vectors.slots
        entries = int(np.sum(indptr[rows + 1] - indptr[rows]))
        if entries > _MAX_LISTED:
            return None
        bits = min(policy.max_place_bits, max(policy.min_place_bits, entries.bit_length()))
        shift, counts = np.uint32(32 - bits), np.zeros(1 << bits, np.int32)
        count_places(indptr, slots, rows, shift, counts)
        begins, starts = (np.empty(each + 1, np.int64) for each in (len(rows), len(counts)))
        places, listed = np.empty((2, entries), np.int32)
        rests, over = np.empty((2, entries, 2), np.float32)
        ends = np.empty((len(rows), 2), np.float32)
        lists = PrefixLists(rows, shift, counts, begins, places, rests, ends, starts, listed, over)
        cost = prefix_nanoseconds(view, list_prefixes(rows_of(vectors), threshold, lists))
        return cls(view, threshold, lists, cost)

    def offer(self, sink: PairSink, workers: Workers) -> None:
        """Offer all pairs that score at least what the sink requires, and at least `threshold`."""
        vectors, m = self.view.vectors, len(self.lists.rows)
        step = min(m, workers.threads * _PARTS)
        slack = tolerance(vectors, vectors)
        rows = rows_of(vectors)

        def run(start: int, end: int) -> None:
            capacity = max(sink.policy.capacity, m)
            out = RowPairs(np.empty(capacity, np.int32), np.empty(capacity, np.int32))
            for part in range(start, end):
                number = part
                while number < m and not sink.done:
                    threshold = max(self.threshold, sink.threshold - slack)
                    count, number = join_prefixes(rows, self.lists, threshold, number, step, out)
                    sink.add(out.a[:count], out.b[:count])

        workers.split(step, run)


@dataclass(frozen=True, slots=True)
class ExactJoin:
    """The quickest way to find every pair."""

    view: RowView
    inverted: InvertedIndex
    way: PrefixJoin | FoldedJoin | None  # None: compare all rows with all
    nanoseconds: float  # expected

    @classmethod
    def of(
        cls,
        view: RowView,
        inverted: InvertedIndex,
        threshold: float,
        workers: Workers,
        *,
        quickest: float = inf,
    ) -> ExactJoin:
        """Return the quickest way for pairs that score at least ``threshold``.

        Rows are neither listed by slots nor folded if this alone takes longer than the quickest
        other way, of ``quickest`` nanoseconds.
        """
        count = view.permitted_count
        if count < 2:  # noqa: PLR2004 (a pair)
            return cls(view, inverted, None, 0.0)
        best = cls(view, inverted, None, all_pairs_nanoseconds(view, count) / 2)
        if view.vectors.form == "dense" or threshold <= 0:
            return best
        if prefix_nanoseconds(view) < min(best.nanoseconds, quickest):
            prefixes = PrefixJoin.of(view, threshold)
            if prefixes is not None and prefixes.nanoseconds < best.nanoseconds:
                best = cls(view, inverted, prefixes, prefixes.nanoseconds)
        if count * least_folded(view) < min(best.nanoseconds, quickest):
            folded = FoldedJoin(view, view.vectors, threshold, workers)
            if count * folded.nanoseconds < best.nanoseconds:
                best = cls(view, inverted, folded, count * folded.nanoseconds)
        return best

    def offer(self, sink: PairSink, workers: Workers) -> None:
        """Offer every pair that scores at least what the sink requires."""
        if isinstance(self.way, PrefixJoin):
            self.way.offer(sink, workers)
        elif self.way is None:
            inverted = self.inverted.cover(self.view.vectors, workers)
            compare_pairs(self.view, inverted, sink, workers=workers)
        else:
            rows = np.flatnonzero(self.view.permitted)
            for first in range(0, len(rows), _FOLDED_ROWS):
                if sink.done:
                    return
                some = rows[first : first + _FOLDED_ROWS]
                places, partners, _ = self.way(self.view.vectors[some])
                later = partners > some[places]
                sink.add(some[places[later]], partners[later])


def all_pairs(
    view: RowView,
    *,
    min_score: float,
    limit: int | None,
    stop: threading.Event | None,
    workers: Workers,
    inverted: InvertedIndex | None = None,
    max_pairs: int | None = None,
) -> Pairs:
    """Return the pairs of permitted rows with GMM at least ``min_score``, by an exact join."""
    sink = PairSink(view, min_score, limit, stop, max_pairs=max_pairs)
    inverted = inverted or InvertedIndex.of(view.vectors, workers)
    ExactJoin.of(view, inverted, min_score, workers).offer(sink, workers)
    return sink.result()


def contained_pairs(
    view: RowView,
    *,
    min_score: float,
    workers: Workers,
    inverted: InvertedIndex,
    limit: int | None = None,
    stop: threading.Event | None = None,
    max_pairs: int | None = None,
) -> Pairs:
    """Return the pairs of permitted rows by containment of either row, by scans."""
    sink = PairSink(view, min_score, limit, stop, max_pairs=max_pairs, ranking="containment")
    rows = np.flatnonzero(view.permitted)
    for first in range(0, len(rows), _SCANNED_ROWS):
        if sink.done:
            break
        own = rows[first : first + _SCANNED_ROWS]
        params = SearchParams(limit=len(rows), min_score=sink.threshold, ranking="containment")
        hits = scan_contained(
            view, view.vectors[own], params, skip=own, inverted=inverted, workers=workers
        )
        places, others, _ = hits.flat()
        sink.add(np.minimum(own[places], others), np.maximum(own[places], others))
    return sink.result()


def compare_pairs(
    view: RowView, inverted: InvertedIndex, sink: PairSink, *, workers: Workers
) -> None:
    """Offer all pairs by comparing each row with every later one."""
    n = len(view.vectors)
    compare = _compare_dense if view.vectors.form == "dense" else _compare_sparse
    width = view.vectors.width
    size = max(1, _BLOCK_FLOATS // width) if width else _BLOCK_ROWS
    blocks = -(-n // size)
    parts = min(workers.threads, blocks)

    def run(first: int, last: int) -> None:
        # Early blocks have more rows after them, so threads take blocks in turn.
        for part in range(first, last):
            for block in range(part, blocks, parts):
                if not sink.done:
                    compare(view, inverted, sink, block * size, min(n, (block + 1) * size))

    workers.split(parts, run)


def _compare_dense(
    view: RowView, inverted: InvertedIndex, sink: PairSink, first: int, last: int
) -> None:
    """Offer the pairs of rows first … last - 1 with all later rows."""
    if view.copies is None:
        _compare_floats(view, sink, first, last)
        return
    vectors, n = view.vectors, len(view.vectors)
    rows = first + np.flatnonzero(view.permitted[first:last])
    if len(rows) == 0:
        return
    scanner, queries = Scanner(view, inverted, 0.0), vectors[rows]
    slack = tolerance(vectors, vectors)
    step = max(1, _PLACES // len(rows))
    for start in range(first, n, step):
        if sink.done:
            return
        end = min(n, start + step)
        near = empty_lists(len(rows), end - start)
        scanner.offer(queries, rows, start, end, near, bound=sink.threshold - slack)
        some = np.flatnonzero(near.sizes)
        if len(some) > 0:
            sizes = near.sizes[some]
            a = np.repeat(rows[some], sizes)
            lists = zip(some.tolist(), sizes.tolist(), strict=True)
            b = np.concatenate([near.rows[place, :size] for place, size in lists])
            later = b > a
            sink.add(a[later], b[later])


def _compare_floats(view: RowView, sink: PairSink, first: int, last: int) -> None:
    """Like `_compare_dense`, without byte copies."""
    vectors = view.vectors
    slack = tolerance(vectors, vectors)
    rows = rows_of(vectors)
    capacity = sink.policy.capacity
    out = RowPairs(np.empty(capacity, np.int32), np.empty(capacity, np.int32))
    left, right = first, first + 1
    while right < len(vectors) and not sink.done:
        threshold = np.float32(sink.threshold - slack)
        done = join_block(rows, view.permitted, threshold, first, last, left, right, out)
        count, left, right = done
        sink.add(out.a[:count], out.b[:count])


def _compare_sparse(
    view: RowView, inverted: InvertedIndex, sink: PairSink, first: int, last: int
) -> None:
    """Offer the pairs of rows first … last - 1 with all later rows."""
    vectors, permitted = view.vectors, view.permitted.copy()
    permitted[:first] = 0
    scanner = Scanner(RowView(vectors, permitted, view.permitted_count), inverted, 0.0)
    for row in range(first, last):
        if not permitted[row] or sink.done:
            continue
        permitted[row] = 0  # only rows after it are its partners
        query = vectors[row : row + 1]
        bound = sink.threshold - tolerance(vectors, query)
        partners = scanner.collect(query, row, bound, first=row + 1)
        sink.add(np.full(len(partners), row), partners)


_OWN_LIST: Final = -1
_NO_ROWS: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class PairSample:
    """Some rows with all their partners."""

    threshold: float  # minimum score of partners
    rows: Int64s  # (r,)
    numbers: Int64s  # (p,) for each pair, the index of its row in ``rows``
    partners: Int64s  # (p,) the other row
    scores: Float64s  # (p,)


@dataclass(frozen=True, slots=True)
class PairJoin:
    """The join of an index state with itself."""

    view: RowView
    tables: Tables  # the tables made so far
    plan: BandPlan  # of all possible tables
    widen: Callable[[int], Tables]  # returns the same rows in at least that many tables
    links: LinkArray | None  # of the neighbour graph, if there is one
    inverted: InvertedIndex
    workers: Workers
    policy: PairPolicy = PAIR_POLICY
    seed: int = 0  # of the hash

    def offer(self, sink: PairSink, recall: float) -> None:
        """Offer pairs so that the requested share of them is found, in the mean."""
        if self.view.permitted_count < 2:  # noqa: PLR2004 (a pair)
            return
        if sink.limit is not None and self.links is not None:
            self.join_links(self.links, sink, _OWN_LIST)  # lower scores need no search
            sink.score_pending()
        if recall >= 1 or not self._offer_some(sink, recall):
            self._exact(sink.threshold).offer(sink, self.workers)

    def _exact(self, threshold: float, quickest: float = inf) -> ExactJoin:
        return ExactJoin.of(self.view, self.inverted, threshold, self.workers, quickest=quickest)

    def _offer_some(self, sink: PairSink, recall: float) -> bool:
        """Offer the requested share in the quickest way; False if tables cannot reach it."""
        if not self.tables.bands:
            return self._hash_and_offer(sink, recall)
        bands, bucket_cost = self._plan_buckets(sink.threshold, recall, None)
        exact = self._exact(sink.threshold, bucket_cost)
        quickest = min(bucket_cost, exact.nanoseconds)
        policy = self.policy
        trial = policy.min_gain * all_pairs_nanoseconds(self.view, policy.sampled)
        if self.links is not None and sink.threshold > 0 and quickest > trial:
            sample = self.sample_partners(sink.threshold)
            searches = None if sample is None else self.plan_searches(self.links, sample, recall)
            bands, bucket_cost = self._plan_buckets(sink.threshold, recall, sample)
            if exact.way is None:  # tables seemed to be quicker
                exact = self._exact(sink.threshold, bucket_cost)
            quickest = min(bucket_cost, exact.nanoseconds)
            if searches is not None:
                patience, _, nanoseconds = searches
                if nanoseconds < quickest:
                    self.join_links(self.links, sink, patience)
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

    def _hash_and_offer(self, sink: PairSink, recall: float) -> bool:
        """Like `_offer_some` for unhashed rows: hash them only for these pairs."""
        rows = np.flatnonzero(self.view.permitted)
        most = 2 * len(rows) >= len(self.view.vectors)  # hashing all is cheaper than copying them
        vectors = self.view.vectors if most else self.view.vectors[rows]
        costs = band_costs(vectors, sink.threshold, recall) if sink.threshold > 0 else {}
        if not costs:
            return False
        shape = min(costs, key=costs.__getitem__)
        enough = _CAUTION * costs[shape]
        exact = self._exact(sink.threshold, enough)
        if exact.nanoseconds <= enough:
            exact.offer(sink, self.workers)
            return True
        plan = band_plan(*shape)
        hash_ = Gcws(seed=self.seed, samples=plan.samples, dense_width=None)
        keys = BandKeys(plan, hash_, self.workers).keys(vectors, plan.bands)
        keys, numbers = keys[rows] if most else keys, rows.astype(np.int32)
        tables = Tables.of(plan.bands, ()).extend(keys, 0, self.workers, numbers=numbers)
        return join_pairs(self.view, tables, plan, sink, recall=recall, workers=self.workers)

    def _plan_buckets(
        self, threshold: float, recall: float, sample: PairSample | None
    ) -> tuple[int, float]:
        """Return how many tables to join (those there are, or twice as many, …), and nanoseconds.

        With more tables, deeper and smaller buckets are enough; further tables are assumed to be as
        full as the first ones. A pair is found in several tables; a sample tells how often.
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

    def join_links(self, links: LinkArray, sink: PairSink, patience: int) -> None:
        """Offer each row with the rows that it links to, and with the rows that these link to."""
        chosen = np.flatnonzero(self.view.permitted)

        def join_part(first: int, last: int) -> None:
            for start in range(first, last, self.policy.call_rows):
                part = chosen[start : min(start + self.policy.call_rows, last)]
                if sink.done:
                    return
                for a, b in self._partners(links, part, patience, sink.threshold):
                    sink.add(a, b)
                    if sink.done:
                        return

        self.workers.split(len(chosen), join_part)

    def _rows(self) -> PairRows:
        """Return the rows in the form that kernels take."""
        return PairRows(*rows_of(self.view.vectors), self.view.permitted)

    def _partners(
        self,
        links: LinkArray,
        chosen: Int64s,
        patience: int,
        threshold: float,
        work: Int64s | None = None,
    ) -> Iterator[tuple[Int32s, Int32s]]:
        """Yield the pairs found by searches from chosen rows; their cost is added to ``work``.

        Each yield overwrites the arrays of the previous one.
        """
        vectors = self.view.vectors
        capacity = max(self.policy.capacity, len(vectors))
        a, b = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
        rule = PairRule(np.float32(threshold - tolerance(vectors, vectors)), patience)
        out = PairArrays(a, b, np.zeros(WORK, np.int64) if work is None else work)
        rows, done = self._rows(), 0
        while done < len(chosen):
            count, done = find_pairs(rows, links.packed, chosen, done, rule, out)
            yield a[:count], b[:count]

    def plan_searches(
        self, links: LinkArray, sample: PairSample, recall: float
    ) -> tuple[int, float, float] | None:
        """Choose walk settings that reach the requested recall on a sample.

        Returns the patience of `kernels.graph.pair_walk.PairRule`, the share of the pairs found
        minus one standard error, and nanoseconds for all rows. None if no settings reach the
        recall, or there are too few pairs to judge.
        """
        threshold, rows, numbers = sample.threshold, sample.rows, sample.numbers
        weights = np.bincount(numbers, minlength=len(rows)).astype(np.float64)
        judged = _some_of_each(numbers, self.policy.max_partners)
        a, b, numbers = rows[numbers[judged]], sample.partners[judged], numbers[judged]
        wanted = np.minimum(a, b) << 32 | np.maximum(a, b)
        starts = np.unique(np.concatenate([a, b]))
        for patience in self.policy.patience:
            walked = self._partners(links, starts, patience, threshold)
            keys = [np.empty(0, np.int64), *(a.astype(np.int64) << 32 | b for a, b in walked)]
            found = np.isin(wanted, np.concatenate(keys)).astype(np.float64)
            expected = _cautious_recall(
                np.bincount(numbers, found, len(rows)).astype(np.float64),
                np.bincount(numbers, minlength=len(rows)),
                weights,
            )
            if expected >= recall:
                work = np.zeros(WORK, np.int64)
                for _ in self._partners(links, rows, patience, threshold, work):
                    pass
                scale = self.view.permitted_count / len(rows)
                cost = graph_join_nanoseconds(
                    self.view, work[SCORED] * scale, work[EXPANDED] * scale
                )
                return patience, expected, cost
        return None

    def sample_partners(self, threshold: float) -> PairSample | None:
        """Return some rows with all their partners; None if these are too many."""
        view, vectors = self.view, self.view.vectors
        rows = np.flatnonzero(view.permitted)
        policy = self.policy
        if len(rows) > policy.sampled:
            rows = np.sort(np.random.default_rng(0).choice(rows, policy.sampled, replace=False))
        bound = threshold - tolerance(vectors, vectors)
        if vectors.form == "dense":
            room = np.empty((2, policy.max_sampled), np.int32)
            count = meet(self._rows(), rows, np.float32(bound), *room)
            if count < 0:
                return None
            order = np.argsort(room[0, :count], kind="stable")
            numbers, partners = (each[order].astype(np.int64) for each in room)
        else:
            scanner, near, total = Scanner(view, self.inverted, 0.0), [_NO_ROWS], 0
            for row in rows.tolist():
                near.append(scanner.collect(vectors[row : row + 1], row, bound))
                total += len(near[-1])
                if total > policy.max_sampled:
                    return None
            numbers = np.repeat(np.arange(-1, len(rows)), [len(each) for each in near])
            partners = np.concatenate(near)
        scores = np.empty(len(numbers), np.float64)
        exact_pairs(rows_of(vectors), rows[numbers], rows_of(vectors), partners, scores)
        good = scores >= threshold
        return PairSample(threshold, rows, numbers[good], partners[good], scores[good])


def _some_of_each(numbers: Int64s, limit: int) -> Int64s:
    """Return places of entries: at most ``limit`` of each number, chosen at random."""
    order = np.random.default_rng(0).permutation(len(numbers))
    order = order[np.argsort(numbers[order], kind="stable")]
    ordered = numbers[order]
    place = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    chosen: Int64s = order[place < limit]
    return chosen


def _cautious_recall(found: Float64s, judged: Int64s, weights: Float64s) -> float:
    """Return the share of all pairs found, minus one standard error; 0 if nothing is known.

    One more row with a missed pair is assumed, so that a small sample does not look perfect.
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
