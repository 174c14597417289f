"""Near-duplicate pairs: the best so far, and a join of the tables with themselves."""

from __future__ import annotations

import threading
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int32s, Int64s, UInt64s
from gcws_search.index.contracts.errors import too_many_pairs
from gcws_search.index.contracts.hits import Pairs, RowView
from gcws_search.index.contracts.policies import PAIR_POLICY, PairPolicy
from gcws_search.index.hashing.banding import BandPlan, depth_for
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.kernels.lsh.bucket_join import exact_pairs, join_table
from gcws_search.index.kernels.lsh.tables import SortedTable
from gcws_search.index.kernels.ordering.keys import RowPairs, keep_new, merge
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.similarities.gmm import tolerance
from gcws_search.index.threads import Workers

_LOW: Final = np.uint64(0xFFFFFFFF)


class PairSink:
    """The best pairs so far, from several threads, each pair once: ``limit`` of them, or all.

    Once ``stop`` is set, nobody waits for the pairs any more.
    """

    def __init__(
        self,
        view: RowView,
        min_score: float,
        limit: int | None,
        stop: threading.Event | None = None,
        *,
        policy: PairPolicy = PAIR_POLICY,
    ) -> None:
        self.policy = policy
        self._vectors = view.vectors
        self._min_score = min_score
        self.limit = limit
        self._lock = threading.Lock()
        self._pending: list[UInt64s] = []
        self._pending_count = 0
        self._pairs = np.empty(0, np.uint64)
        self._scores = np.empty(0, np.float64)
        self.threshold = min_score
        self._complete = False
        self._stop = stop

    @property
    def done(self) -> bool:
        """Whether no further pair is of any use."""
        return self._complete or (self._stop is not None and self._stop.is_set())

    def add(self, a: Int32s | Int64s, b: Int32s | Int64s) -> None:
        """Offer pairs of rows that may score high enough."""
        if len(a) == 0:
            return
        packed = a.astype(np.uint64) << np.uint64(32) | b.astype(np.uint64)
        with self._lock:
            self._pending.append(packed)
            self._pending_count += len(packed)
            if self._pending_count >= self.policy.max_unscored:
                self._score_pending()

    def score_pending(self) -> None:
        """Score what has been offered so far: with a limit, `threshold` may rise."""
        with self._lock:
            self._score_pending()

    def _score_pending(self) -> None:
        """Score what is pending, and keep the best."""
        fresh = np.sort(np.concatenate([np.empty(0, np.uint64), *self._pending]))
        fresh = fresh[: keep_new(fresh, self._pairs)]
        self._pending, self._pending_count = [], 0
        if len(fresh) == 0:
            return
        fresh_scores = self._exact(fresh)
        good = fresh_scores >= self.threshold
        fresh, fresh_scores = fresh[good], fresh_scores[good]
        count = len(self._pairs) + len(fresh)
        pairs, scores = np.empty(count, np.uint64), np.empty(count, np.float64)
        merge(self._pairs, self._scores, fresh, fresh_scores, pairs, scores)
        max_pairs = self.policy.max_pairs
        if self.limit is not None and len(pairs) > self.limit:
            best = np.lexsort((pairs, -scores))
            self.threshold = float(scores[best[self.limit - 1]])
            # Pairs that share the last score stay, for the caller ranks them by id; up to a point.
            best = best[: self.limit + max_pairs]
            best = np.sort(best[scores[best] >= self.threshold])
            self._complete = self.threshold >= 1.0 and len(best) == self.limit + max_pairs
            pairs, scores = pairs[best], scores[best]
        elif len(pairs) > max_pairs:
            self._complete = True  # the other threads need not go on
            raise too_many_pairs(max_pairs, self._min_score)
        self._pairs, self._scores = pairs, scores

    def _exact(self, packed: UInt64s) -> Float64s:
        """Return the float64 scores of pairs that rise."""
        a, b = _unpack(packed)
        scores = np.empty(len(a), np.float64)
        exact_pairs(rows_of(self._vectors), a, b, scores)
        return scores

    def result(self) -> Pairs:
        """Return the pairs by rising rows."""
        self.score_pending()
        a, b = _unpack(self._pairs)
        return a, b, self._scores


def _unpack(packed: UInt64s) -> tuple[Int64s, Int64s]:
    return (packed >> np.uint64(32)).astype(np.int64), (packed & _LOW).astype(np.int64)


def join_pairs(
    view: RowView,
    tables: Tables,
    plan: BandPlan,
    sink: PairSink,
    *,
    recall: float,
    workers: Workers,
) -> bool:
    """Offer the pairs that share a bucket deep enough for the recall asked for.

    Returns False, and nothing is offered, when no depth of these tables gives that recall.
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
            # The better the pairs found so far, the deeper the buckets that are worth a look.
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
