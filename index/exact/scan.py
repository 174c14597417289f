"""The exact answer: every permitted row scored, ties at the limit complete.

Rows are ranked by fast float32 scores first. All rows that the rounding of those scores could have
pushed across the limit are then scored in float64, so the answer is that of exact arithmetic.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import SCAN, BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.kernels.gmm.dense import collect_dense, scan_dense
from gcws_search.index.kernels.gmm.exact_rerank import ExactHits, HitLimits, rerank_exactly
from gcws_search.index.kernels.gmm.rows import HitFilter, Rows, rows_of
from gcws_search.index.kernels.gmm.sparse import (
    collect_shared,
    offer_sparse,
    shared_rows,
    spread,
    spread_size,
)
from gcws_search.index.kernels.gmm.tiled_scan import MANY, RUN, scan_tiles, tile_rows
from gcws_search.index.kernels.ordering.heap import Heaps, empty_heaps
from gcws_search.index.kernels.quantized.scan import collect_copies, scan_copies
from gcws_search.index.kernels.sparse.maxscore import collect_segment, scan_segment
from gcws_search.index.kernels.sparse.query_terms import TermScratch, scratch
from gcws_search.index.similarities.gmm import EPSILON, exact_scores, tolerance
from gcws_search.index.threads import Workers

_SPARE_HITS: Final = 8
_FLOATS_A_THREAD: Final = 1 << 19  # work below which a second thread does not pay
_BYTES_A_FLOAT: Final = 4  # bytes that are scanned in the time that a float takes
_PIECES: Final = 4  # parts for each thread: some queries have thousands of rows that nearly tie


def scan(
    view: RowView,
    queries: VectorBatch,
    params: SearchParams,
    *,
    skip: Int64s,
    inverted: InvertedIndex,
    workers: Workers,
    with_ties: bool = True,
) -> BatchHits:
    """Return the exact hits of every query.

    Parameters
    ----------
    params : SearchParams
        ``limit`` and ``min_score`` count here.
    skip : (m,) int64
        A row that a query must not return, or -1.
    inverted : InvertedIndex
        Of sparse rows; empty for dense ones.
    with_ties : bool
        Whether all rows that tie with a query's last hit are wanted: they may be all there are.
    """
    many = len(queries) >= MANY * workers.threads and view.fills_tiles
    scanner = Scanner(view, inverted, params.min_score, many=many)
    return _Scan(scanner, view, params, queries, skip).hits(workers, with_ties=with_ties)


class _Scan:
    """One scan: its heaps are ranked in parts, then what they had no room for is collected.

    Parameters
    ----------
    view, params, queries, skip : see `scan`
    """

    def __init__(
        self,
        scanner: Scanner,
        view: RowView,
        params: SearchParams,
        queries: VectorBatch,
        skip: Int64s,
    ) -> None:
        self._scanner = scanner
        self._view = view
        self._params = params
        self._queries = queries
        self._skip = skip
        m = len(queries)
        self._places = max(1, min(view.permitted_count, params.limit + _SPARE_HITS))
        self._limits = HitLimits(
            view.permitted_count,
            params.limit,
            float(params.min_score),
            np.float32(2 * scanner.tolerance(queries)),
        )
        self._out = ExactHits(
            np.empty((m, self._places), np.int64),
            np.empty((m, self._places), np.float64),
            np.empty(m, np.int64),
            np.empty(m, np.float32),
        )
        self._incomplete: list[int] = []

    def hits(self, workers: Workers, *, with_ties: bool) -> BatchHits:
        """Return the hits of every query."""
        queries, m, n = self._queries, len(self._queries), len(self._view.vectors)
        if self._view.vectors.form == "dense" and n > 0 and m < workers.threads:
            self._scan_rows(workers)
        else:

            def scan_queries(first: int, last: int) -> None:
                some = queries if last - first == m else queries[first:last]
                heaps = empty_heaps(last - first, self._places)
                self._scanner.offer(some, self._skip[first:last], 0, n, heaps)
                self._rank(some, slice(first, last), [heaps])

            workers.split(m, scan_queries)
        wider = self._complete(workers, with_ties) if any(self._incomplete) else {}
        return BatchHits.of(
            SCAN,
            self._out.rows,
            self._out.scores,
            self._out.sizes,
            expected_recall=1.0,
            candidates=self._view.permitted_count,
            scored=self._view.permitted_count,
            wider=wider,
        )

    def _scan_rows(self, workers: Workers) -> None:
        """Scan dense rows in parts for few queries."""
        m, vectors = len(self._queries), self._view.vectors
        parts: list[Heaps] = []

        def scan_rows(first: int, last: int) -> None:
            heaps = empty_heaps(m, self._places)
            self._scanner.offer(self._queries, self._skip, first, last, heaps)
            parts.append(heaps)

        faster = 1 if self._view.copies is None else _BYTES_A_FLOAT
        size = faster * _FLOATS_A_THREAD // max(1, m * vectors.dense.shape[1])
        workers.split(len(vectors), scan_rows, min_size=size)
        self._rank(self._queries, slice(0, m), parts)

    def _rank(self, some: VectorBatch, part: slice, heaps: list[Heaps]) -> None:
        """Rank what heaps of the same queries hold."""
        if len(heaps) == 1:
            ranked = Heaps(heaps[0].scores, heaps[0].rows, heaps[0].sizes.reshape(-1, 1))
        else:
            ranked = Heaps(
                np.concatenate([each.scores for each in heaps], axis=1),
                np.concatenate([each.rows for each in heaps], axis=1),
                np.stack([each.sizes for each in heaps], axis=1),
            )
        out = self._out
        if part.stop - part.start < len(self._queries):
            out = out.part(part)
        self._incomplete.append(
            rerank_exactly(rows_of(some), self._scanner.rows, ranked, self._limits, out)
        )

    def _complete(self, workers: Workers, with_ties: bool) -> dict[int, tuple[Int64s, Float64s]]:
        """Answer the queries whose heaps had no room; return those with more hits than places."""
        out, vectors, wider = self._out, self._view.vectors, {}
        incomplete = np.flatnonzero(out.bounds < np.inf).tolist()

        def answer(first: int, last: int) -> None:
            for i in incomplete[first:last]:
                query = self._queries[i : i + 1]
                near = self._scanner.collect(query, int(self._skip[i]), float(out.bounds[i]))
                found, exact = rescore(vectors, query, near, self._params)
                out.sizes[i] = size = min(self._places, len(found))
                out.rows[i, :size], out.scores[i, :size] = found[:size], exact[:size]
                if with_ties and len(found) > self._places:
                    wider[i] = found, exact

        workers.split(len(incomplete), answer, pieces=_PIECES)
        return wider


def scan_work(
    view: RowView, queries: VectorBatch, limit: int, *, skip: Int64s, inverted: InvertedIndex
) -> Float64s:
    """Return (m,): what scanning sparse rows takes for each query, in postings added: a count.

    Parameters
    ----------
    view, queries, skip, inverted : see `scan`
    limit : int
        How many hits are wanted.
    """
    places = max(1, min(view.permitted_count, limit + _SPARE_HITS))
    heaps = empty_heaps(len(queries), places)
    work = Scanner(view, inverted, 0.0).offer_postings(queries, skip, heaps)
    indptr = view.vectors.indptr
    return work + float(indptr[-1] - indptr[inverted.covered])


def rescore(
    vectors: VectorBatch, query: VectorBatch, rows: Int64s, params: SearchParams
) -> tuple[Int64s, Float64s]:
    """Return rows with their float64 scores, best first, cut after the limit's ties."""
    return rank_rows(rows, exact_scores(vectors, query, rows), params)


def rank_rows(rows: Int64s, scores: Float64s, params: SearchParams) -> tuple[Int64s, Float64s]:
    """Return rows by falling score, cut after the limit's ties."""
    if len(rows) > params.limit:  # to sort thousands takes longer than to find the last one wanted
        last = len(rows) - params.limit
        is_best = scores >= np.partition(scores, last)[last]
        rows, scores = rows[is_best], scores[is_best]
    order = np.lexsort((rows, -scores))
    if params.min_score > 0:
        order = order[scores[order] >= params.min_score]
    return rows[order], scores[order]


class Scanner:
    """The float32 pass over the rows of one view, dense or sparse.

    Parameters
    ----------
    many : bool
        Whether `offer` is called with many queries at a time.
    """

    def __init__(
        self,
        view: RowView,
        inverted: InvertedIndex,
        min_score: float,
        *,
        many: bool = False,
    ) -> None:
        self.vectors = view.vectors
        self._permitted = view.permitted
        self._inverted = inverted
        self._min_score = min_score
        dense = view.vectors.form == "dense"
        self._copies = view.copies
        self._in_tiles = many and dense and self._copies is None
        self.rows = rows_of(view.vectors)

    def tolerance(self, queries: VectorBatch) -> float:
        """Return how far a float32 score can be from the exact one."""
        if not self._in_tiles:
            return tolerance(self.vectors, queries)
        # Σ min: RUN + width/RUN roundings, each of at most S = ‖u‖₁ + ‖v‖₁. It is taken twice in
        # D, which few more roundings end; and an error of D moves (S - D)/(S + D) by 2/S times it.
        width = self.vectors.dense.shape[1]
        return float((4 * (RUN + width / RUN) + 16) * EPSILON)

    def _threshold(self, queries: VectorBatch) -> np.float32:
        # Below 0 where no least score is set: rounding can make a score of 0 negative.
        return np.float32(self._min_score - 2 * self.tolerance(queries))

    def _wanted(self, skip: Int64s, min_score: np.float32) -> HitFilter:
        # A stride of its own would have the kernels compiled twice.
        return HitFilter(self._permitted, np.ascontiguousarray(skip), min_score)

    def offer(
        self, queries: VectorBatch, skip: Int64s, first: int, last: int, heaps: Heaps
    ) -> None:
        """Offer the rows first … last - 1 to the heaps of the queries."""
        wanted = self._wanted(skip, self._threshold(queries))
        copies = self._copies
        if copies is not None:
            scan_copies(rows_of(queries), self.rows, copies, wanted, first, last, heaps)
        elif self._in_tiles:
            width = self.vectors.dense.shape[1]
            tile = np.empty((tile_rows(width), width), np.float32)
            scan_tiles(rows_of(queries), self.rows, wanted, first, last, tile, heaps)
        elif self.vectors.form == "dense":
            scan_dense(rows_of(queries), self.rows, wanted, first, last, heaps)
        else:
            self.offer_postings(queries, skip, heaps)
            if self._inverted.covered < last:
                asked = rows_of(queries)
                for m in range(len(queries)):
                    shared = self._tail(queries[m : m + 1])
                    covered = self._inverted.covered
                    offer_sparse(shared, asked, m, self.rows, wanted, covered, heaps)

    def offer_postings(self, queries: VectorBatch, skip: Int64s, heaps: Heaps) -> Float64s:
        """Offer the sparse rows that have postings; return (m,) what it took, in postings."""
        work = np.zeros(len(queries), np.float64)
        start = queries.indptr[0]
        entries = slice(start, queries.indptr[-1])
        asked = Rows(
            queries.dense,
            queries.indptr - start,
            queries.slots[entries],
            queries.values[entries],
            queries.norms,
        )
        wanted = self._wanted(skip, self._threshold(queries))
        slack = np.float32(2 * self.tolerance(queries))
        room = self._scratch(queries, heaps.scores.shape[1])
        for postings in self._inverted.segments:
            scan_segment(asked, postings.segment, self.rows, wanted, slack, room, heaps, work)
        return work

    def _scratch(self, queries: VectorBatch, places: int) -> TermScratch:
        """Return room for the scan of any segment for one query of these."""
        longest = max((each.last - each.first for each in self._inverted.segments), default=0)
        return scratch(longest, queries.longest, places)

    def _tail(self, query: VectorBatch) -> Float32s:
        """Return Σ min of one query and the rows that have no postings yet."""
        rows, covered = self.rows, self._inverted.covered
        size = spread_size(len(query.slots))
        slots, values = np.empty(size, np.uint32), np.empty(size, np.float32)
        spread(query.slots, query.values, slots, values)
        shared = np.empty(len(self.vectors) - covered, np.float32)
        shared_rows(slots, values, rows.indptr, rows.slots, rows.values, covered, shared)
        return shared

    def collect(self, query: VectorBatch, skip: int, bound: float, *, after: int = -1) -> Int64s:
        """Return all permitted rows whose float32 score is at least ``bound``.

        Parameters
        ----------
        query : VectorBatch
            One vector.
        skip : int
            A row to leave out, or -1.
        after : int
            Of sparse rows, only those after this one.
        """
        asked, found = rows_of(query), np.empty(len(self.vectors), np.int64)
        min_score = np.float32(max(bound, float(self._threshold(query))))
        wanted = self._wanted(np.array([skip]), min_score)
        copies = self._copies
        if copies is not None:
            return found[: collect_copies(asked, self.rows, copies, wanted, found)]
        if self.vectors.form == "dense":
            return found[: collect_dense(asked, self.rows, wanted, found)]
        count = 0
        slack, room = np.float32(2 * self.tolerance(query)), self._scratch(query, 1)
        for postings in self._inverted.segments:
            if postings.last > after + 1:
                left = found[count:]
                count += collect_segment(
                    asked, postings.segment, self.rows, wanted, slack, after, room, left
                )
        covered = self._inverted.covered
        if covered < len(self.vectors):
            first = max(after + 1, covered)
            shared = self._tail(query)[first - covered :]
            left = found[count:]
            count += collect_shared(shared, asked, self.rows, wanted, first, left)
        return found[:count]
