"""Exact search: scores every permitted row, with all ties at the limit; re-ranks candidates.

Rows are ranked by fast float32 scores first. All rows that rounding could have moved across the
limit are then scored in float64, so the answer is that of exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.hits import SCAN, BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.kernels.gmm.dense import scan_dense
from gcws_search.index.kernels.gmm.exact_rerank import ExactHits, HitLimits, rerank_exactly
from gcws_search.index.kernels.gmm.rows import HitFilter, rows_of
from gcws_search.index.kernels.gmm.sparse import scan_sparse
from gcws_search.index.kernels.gmm.tiled_scan import MANY, RUN, scan_tiles, tile_rows
from gcws_search.index.kernels.ordering.hits import Heaps, empty_heaps, empty_lists
from gcws_search.index.kernels.quantized.scan import scan_copies
from gcws_search.index.kernels.sparse.maxscore import scan_segment
from gcws_search.index.kernels.sparse.postings import scratch
from gcws_search.index.similarities import EPSILON, GMM, Kernel, exact_scores, tolerance
from gcws_search.index.threads import PIECES, Workers

SPARE_HITS: Final = 8
"""Places for rows that nearly tie. With 1, scans of letter took 1.4 to 1.9 times as long; with 4,
those for 100 hits 1.09 times."""
_FLOATS_A_THREAD: Final = 1 << 19  # work below which a second thread does not pay
_BYTES_A_FLOAT: Final = 4  # bytes scanned in the time of one float


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
    """Return the exact hits of every query, without sparse rows that score 0.

    skip (m,): a row that a query must not return, or -1.
    with_ties: whether to return all rows that tie with the last hit; these may be all rows.
    """
    vectors, m, n = view.vectors, queries.count, view.vectors.count
    many = m >= MANY * workers.threads and view.fills_tiles
    scanner = Scanner(view, inverted, params.min_score, many=many)
    places = max(1, min(view.permitted_count, params.limit + SPARE_HITS))
    slack = np.float32(2 * scanner.tolerance(queries))
    limits = HitLimits(view.permitted_count, params.limit, float(params.min_score), slack)
    out = ExactHits(
        np.empty((m, places), np.int64),
        np.empty((m, places), np.float64),
        np.empty(m, np.int64),
        np.empty(m, np.float32),
    )
    incomplete: list[int] = []  # number of queries whose heaps had no room
    if vectors.form == "dense" and n > 0 and m < workers.threads:  # threads divide the rows
        parts: list[Heaps] = []

        def scan_rows(first: int, last: int) -> None:
            heaps = empty_heaps(m, places)
            scanner.offer(queries, skip, first, last, heaps)
            parts.append(heaps)

        faster = 1 if view.copies is None else _BYTES_A_FLOAT
        size = faster * _FLOATS_A_THREAD // max(1, m * vectors.width)
        workers.split(n, scan_rows, min_size=size)
        held = _side_by_side(parts)
        incomplete.append(rerank_exactly(rows_of(queries), scanner.rows, held, limits, out))
    else:

        def scan_queries(first: int, last: int) -> None:
            some, ours, part = queries, out, slice(first, last)
            if last - first < m:
                some, ours = queries[part], ExactHits._make(each[part] for each in out)
            heaps = empty_heaps(last - first, places)
            scanner.offer(some, skip[part], 0, n, heaps)
            held = _side_by_side([heaps])
            incomplete.append(rerank_exactly(rows_of(some), scanner.rows, held, limits, ours))

        workers.split(m, scan_queries)
    wider: dict[int, tuple[Int64s, Float64s]] = {}
    left = np.flatnonzero(out.bounds < np.inf).tolist() if any(incomplete) else []

    def complete(first: int, last: int) -> None:
        """Answer queries whose heaps had no room; record those with more hits than places."""
        for i in left[first:last]:
            query = queries[i : i + 1]
            near = scanner.collect(query, int(skip[i]), float(out.bounds[i]))
            found, exact = rank_rows(near, exact_scores(vectors, query, near), params)
            out.sizes[i] = count = min(places, len(found))
            out.rows[i, :count], out.scores[i, :count] = found[:count], exact[:count]
            if with_ties and len(found) > places:
                wider[i] = found, exact

    if left:
        # Some queries have thousands of rows that nearly tie.
        workers.split(len(left), complete, pieces=PIECES)
    return BatchHits.of(
        SCAN,
        out.rows,
        out.scores,
        out.sizes,
        expected_recall=1.0,
        candidates=view.permitted_count,
        scored=view.permitted_count,
        wider=wider,
    )


def _side_by_side(heaps: list[Heaps]) -> Heaps:
    """Return several heaps of the same queries as one, with (m, heaps) sizes."""
    if len(heaps) == 1:
        return Heaps(heaps[0].scores, heaps[0].rows, heaps[0].sizes.reshape(-1, 1))
    return Heaps(
        np.concatenate([each.scores for each in heaps], axis=1),
        np.concatenate([each.rows for each in heaps], axis=1),
        np.stack([each.sizes for each in heaps], axis=1),
    )


def scan_work(
    view: RowView, queries: VectorBatch, limit: int, *, skip: Int64s, inverted: InvertedIndex
) -> Float64s:
    """Return (m,) the work of scanning sparse rows for each query, as a count of additions."""
    places = max(1, min(view.permitted_count, limit + SPARE_HITS))
    work = Scanner(view, inverted, 0.0).work(queries, skip, places)
    indptr = view.vectors.indptr
    return work + float(indptr[-1] - indptr[inverted.covered])


def rank_rows(rows: Int64s, scores: Float64s, params: SearchParams) -> tuple[Int64s, Float64s]:
    """Return rows by falling score, cut after the ties of the limit."""
    if len(rows) > params.limit:  # selecting is faster than sorting thousands
        last = len(rows) - params.limit
        is_best = scores >= np.partition(scores, last)[last]
        rows, scores = rows[is_best], scores[is_best]
    order = np.lexsort((rows, -scores))
    if params.min_score > 0:
        order = order[scores[order] >= params.min_score]
    return rows[order], scores[order]


class Scanner:
    """The float32 pass over the rows of a view; ``many`` queries at once may use tiles."""

    def __init__(
        self, view: RowView, inverted: InvertedIndex, min_score: float, *, many: bool = False
    ) -> None:
        self.vectors = view.vectors
        self._permitted = view.permitted
        self._inverted = inverted
        self._min_score = min_score
        dense = view.vectors.form == "dense"
        self._copies = view.copies
        self._in_tiles = many and dense and self._copies is None
        self.rows = rows_of(view.vectors, as_held=True)

    def tolerance(self, queries: VectorBatch) -> float:
        """Return the maximum error of a float32 score."""
        if not self._in_tiles:
            return tolerance(self.vectors, queries)
        # Σ min: RUN + width/RUN roundings, each of at most S = ‖u‖₁ + ‖v‖₁. It enters D twice, with
        # few more roundings at the end. An error of D changes (S - D)/(S + D) by 2/S times that.
        width = self.vectors.width
        return float((4 * (RUN + width / RUN) + 16) * EPSILON)

    def _threshold(self, queries: VectorBatch) -> float:
        # Below 0 if there is no minimum score: rounding can make a score of 0 negative.
        return float(np.float32(self._min_score - 2 * self.tolerance(queries)))

    def offer(
        self,
        queries: VectorBatch,
        skip: Int64s,
        first: int,
        last: int,
        out: Heaps,
        *,
        bound: float = -inf,
    ) -> None:
        """Offer the rows first … last - 1 that score ``bound`` to heaps or lists of queries."""
        asked, copies = rows_of(queries), self._copies
        # A stride of its own would compile the kernels a second time.
        skip = np.ascontiguousarray(skip)
        min_score = np.float32(max(bound, self._threshold(queries)))
        wanted = HitFilter(self._permitted, skip, min_score)
        if copies is not None:
            scan_copies(asked, self.rows, copies, wanted, first, last, out)
        elif self._in_tiles and out.scores.shape[1] > 0:
            width = self.vectors.width
            tile = np.empty((tile_rows(width), width), np.float32)
            scan_tiles(asked, self.rows, wanted, first, last, tile, out)
        elif self.vectors.form == "dense":
            scan_dense(asked, self.rows, wanted, first, last, out)
        else:
            self._offer_postings(queries, wanted, first, out)
            start = max(first, self._inverted.covered)
            if start < last:
                scan_sparse(asked, self.rows, wanted, start, out)

    def work(self, queries: VectorBatch, skip: Int64s, places: int) -> Float64s:
        """Return (m,) the work of scanning the postings for each query, as a count of additions."""
        wanted = HitFilter(
            self._permitted, np.ascontiguousarray(skip), np.float32(self._threshold(queries))
        )
        return self._offer_postings(queries, wanted, 0, empty_heaps(len(queries), places))

    def _offer_postings(
        self, queries: VectorBatch, wanted: HitFilter, first: int, out: Heaps
    ) -> Float64s:
        """Offer the sparse rows with postings, from segments that end after ``first``."""
        asked, work = rows_of(queries), np.zeros(len(queries), np.float64)
        segments = [each for each in self._inverted.segments if each.last > first]
        slack = np.float32(2 * self.tolerance(queries))
        longest = max((each.last - each.first for each in segments), default=0)
        room = scratch(longest, queries.longest, out.scores.shape[1])
        for postings in segments:
            scan_segment(asked, postings, self.rows, wanted, slack, room, out, work)
        return work

    def collect(self, query: VectorBatch, skip: int, bound: float, *, first: int = 0) -> Int64s:
        """Return permitted rows from ``first`` on with float32 scores ≥ ``bound``, ascending.

        Some rows before ``first`` may be included.
        """
        n = len(self.vectors)
        found = empty_lists(1, n)
        self.offer(query, np.array([skip]), first, n, found, bound=bound)
        return found.rows[0, : found.sizes[0]]


Ranked = tuple[Int64s, Float64s]
"""Rows and their scores, best first, equal scores by rising row; cut after the limit's ties."""


def refuse_proof(kind: str, params: SearchParams) -> None:
    """Raise InvalidParameter if a proven recall is requested: other laws give no proof."""
    if params.guarantee == "proven":
        raise InvalidParameter(
            expected=f"'measured': {kind} gives no proven recall",
            got="'proven'",
            loc=("guarantee",),
        )


def rerank(
    vectors: VectorBatch,
    query: VectorBatch,
    rows: Int64s,
    estimates: Float64s,
    params: SearchParams,
    kernel: Kernel,
) -> Ranked:
    """Return distinct candidates of one query, scored as ``params.rerank`` specifies."""
    if params.rerank == "none":
        return rank_rows(rows, estimates, params)
    if params.rerank == "gmm" or kernel is GMM:
        return rank_rows(rows, exact_scores(vectors, query, rows), params)
    return rank_rows(rows, kernel.scores(query, vectors[rows])[0], params)


def scan_by(
    kernel: Kernel,
    view: RowView,
    queries: VectorBatch,
    params: SearchParams,
    skip: Int64s,
    workers: Workers,
) -> BatchHits:
    """Return the exact hits of every query among all permitted rows, by GMM or a kernel."""
    if params.rerank == "gmm" or kernel is GMM:
        none = InvertedIndex()
        return scan(view, queries, params, skip=skip, inverted=none, workers=workers)
    permitted = np.flatnonzero(view.permitted)
    vectors = view.vectors if len(permitted) == len(view.vectors) else view.vectors[permitted]
    answers = []
    for i in range(len(queries)):
        scores = kernel.scores(queries[i : i + 1], vectors)[0]
        others = permitted != skip[i]
        answers.append(rank_rows(permitted[others], scores[others], params))
    count = len(permitted)
    return batch_hits(SCAN, answers, candidates=count, scored=count, expected_recall=1.0)


def batch_hits(
    method: int,
    answers: Sequence[Ranked],
    *,
    candidates: Int64s | int,
    scored: Int64s | int,
    expected_recall: float = 0.0,
) -> BatchHits:
    """Return the hits of several queries from their answers; see `BatchHits.of`."""
    sizes = np.array([len(rows) for rows, _ in answers], np.int64)
    shape = len(answers), int(sizes.max(initial=0))
    rows, scores = np.zeros(shape, np.int64), np.zeros(shape, np.float64)
    for i, (found, exact) in enumerate(answers):
        rows[i, : len(found)], scores[i, : len(found)] = found, exact
    return BatchHits.of(
        method,
        rows,
        scores,
        sizes,
        expected_recall=expected_recall,
        candidates=candidates,
        scored=scored,
    )
