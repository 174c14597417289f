"""The exact answer: every permitted row scored, ties at the limit complete.

Rows are ranked by fast float32 scores first. All rows that the rounding of those scores could have
pushed across the limit are then scored in float64, so the answer is that of exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from index.arrays import Float32s, Float64s, Int64s
from index.batches import VectorBatch
from index.gmm import EPSILON, exact_scores, tolerance
from index.hits import SCAN, BatchHits, RowView
from index.inverted import InvertedIndex
from index.kernels.gmm_dense import collect_dense, scan_dense
from index.kernels.gmm_sparse import (
    collect_shared,
    offer_sparse,
    shared_rows,
    spread,
    spread_size,
)
from index.kernels.pruned import collect_segment, scan_segment
from index.kernels.rounded import scan_rounded
from index.kernels.settle import settle
from index.kernels.terms import Rows, Scratch, scratch
from index.kernels.tiles import MANY, RUN, scan_tiles, tile_rows
from index.parallel import Workers
from index.params import SearchParams
from index.rounded import RoundedRows

_SPARE_HITS: Final = 8
_FLOATS_A_THREAD: Final = 1 << 19  # work below which a second thread does not pay


def scan(  # noqa: PLR0913 (what it reads, and how)
    view: RowView,
    queries: VectorBatch,
    params: SearchParams,
    *,
    skip: Int64s,
    inverted: InvertedIndex,
    workers: Workers,
    with_ties: bool = True,
    rounded: RoundedRows | None = None,
) -> BatchHits:
    """Return the exact hits of every query.

    Parameters
    ----------
    view : RowView
    queries : VectorBatch
    params : SearchParams
        ``limit`` and ``min_score`` count here.
    skip : (m,) int64
        A row that a query must not return, or -1.
    inverted : InvertedIndex
        Of sparse rows; empty for dense ones.
    workers : Workers
    with_ties : bool
        Whether all rows that tie with a query's last hit are wanted: they may be all there are.
    rounded : RoundedRows or None
        Copies of all dense rows, which many queries look at first.
    """
    vectors, m = view.vectors, len(queries)
    in_tiles = vectors.form == "dense" and m >= MANY * workers.threads
    if not in_tiles:
        rounded = None
    scanner = Scanner(
        view, inverted, params.min_score, in_tiles=in_tiles and rounded is None, rounded=rounded
    )
    kept = max(1, min(view.permitted_count, params.limit + _SPARE_HITS))
    slack = np.float32(2 * scanner.tolerance(queries))
    rows, scores = np.empty((m, kept), np.int64), np.empty((m, kept), np.float64)
    sizes, bounds = np.empty(m, np.int64), np.empty(m, np.float32)
    incomplete: list[int] = []

    def finish(some: VectorBatch, part: slice, heaps: list[_Heaps]) -> None:
        ranked = heaps[0] if len(heaps) == 1 else _Heaps.beside(heaps)
        incomplete.append(
            settle(
                some.dense, some.indptr, some.slots, some.values, vectors.dense, vectors.indptr,
                vectors.slots, vectors.values, ranked.scores, ranked.rows,
                ranked.sizes.reshape(-1, len(heaps)), view.permitted_count, params.limit,
                float(params.min_score), slack, rows[part], scores[part], sizes[part],
                bounds[part],
            )
        )  # fmt: skip

    if vectors.form == "dense" and len(vectors) > 0 and m < workers.threads:
        heaps: list[_Heaps] = []

        def scan_rows(first: int, last: int) -> None:
            ours = _Heaps.empty(m, kept)
            scanner.offer(queries, skip, first, last, ours)
            heaps.append(ours)

        least = _FLOATS_A_THREAD // max(1, m * vectors.dense.shape[1])
        workers.split(len(vectors), scan_rows, least=least)
        finish(queries, slice(0, m), heaps)
    else:

        def scan_queries(first: int, last: int) -> None:
            some = queries if last - first == m else queries[first:last]
            ours = _Heaps.empty(last - first, kept)
            scanner.offer(some, skip[first:last], 0, len(vectors), ours)
            finish(some, slice(first, last), [ours])

        workers.split(m, scan_queries)

    wider = {}
    if any(incomplete):
        for i in np.flatnonzero(bounds < np.inf).tolist():
            query = queries[i : i + 1]
            near = scanner.collect(query, int(skip[i]), float(bounds[i]))
            found, exact = rescored(vectors, query, near, params)
            sizes[i] = size = min(kept, len(found))
            rows[i, :size], scores[i, :size] = found[:size], exact[:size]
            if with_ties and len(found) > kept:
                wider[i] = found, exact
    return BatchHits.found(
        SCAN, rows, scores, sizes, expected_recall=1.0, candidates=view.permitted_count,
        scored=view.permitted_count, wider=wider,
    )  # fmt: skip


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
    kept = max(1, min(view.permitted_count, limit + _SPARE_HITS))
    heaps = _Heaps.empty(len(queries), kept)
    Scanner(view, inverted, 0.0).offer(queries, skip, 0, inverted.covered, heaps)
    indptr = view.vectors.indptr
    return heaps.work + float(indptr[-1] - indptr[inverted.covered])


def rescored(
    vectors: VectorBatch, query: VectorBatch, rows: Int64s, params: SearchParams
) -> tuple[Int64s, Float64s]:
    """Return rows with their float64 scores, best first, cut after the limit's ties."""
    scores = exact_scores(vectors, query, rows)
    order = np.lexsort((rows, -scores))
    if params.min_score > 0:
        order = order[scores[order] >= params.min_score]
    if len(order) > params.limit:
        order = order[scores[order] >= scores[order[params.limit - 1]]]
    return rows[order], scores[order]


@dataclass(frozen=True, slots=True)
class _Heaps:
    """The best rows so far of m queries, as `kernels.heap` keeps them.

    Attributes
    ----------
    scores, rows : (m, k) float32 and int64
    sizes : (m,) int64
    work : (m,) float64
        Postings that it took, of sparse rows.
    """

    scores: Float32s
    rows: Int64s
    sizes: Int64s
    work: Float64s

    @classmethod
    def empty(cls, m: int, kept: int) -> _Heaps:
        """Return room for ``kept`` rows of each query."""
        return cls(
            np.empty((m, kept), np.float32), np.empty((m, kept), np.int64), np.zeros(m, np.int64),
            np.zeros(m, np.float64),
        )  # fmt: skip

    @classmethod
    def beside(cls, parts: Sequence[_Heaps]) -> _Heaps:
        """Return heaps of the same queries side by side; one size a query and part."""
        return cls(
            np.concatenate([part.scores for part in parts], axis=1),
            np.concatenate([part.rows for part in parts], axis=1),
            np.stack([part.sizes for part in parts], axis=1),
            np.sum([part.work for part in parts], axis=0),
        )


class Scanner:
    """The float32 pass over the rows of one view, dense or sparse.

    Parameters
    ----------
    view : RowView
    inverted : InvertedIndex
    min_score : float
    in_tiles : bool
        Whether `offer` is called with many queries at a time, of dense rows.
    rounded : RoundedRows or None
        Copies of all dense rows, where they are to be looked at first.
    """

    def __init__(
        self, view: RowView, inverted: InvertedIndex, min_score: float, *,
        in_tiles: bool = False, rounded: RoundedRows | None = None,
    ) -> None:  # fmt: skip
        self.vectors = view.vectors
        self._permitted = view.permitted
        self._inverted = inverted
        self._min_score = min_score
        self._in_tiles = in_tiles
        self._rounded = rounded
        vectors = view.vectors
        self._rows = Rows(vectors.indptr, vectors.slots, vectors.values, vectors.norms)

    def tolerance(self, queries: VectorBatch) -> float:
        """Return how far a float32 score can be from the exact one."""
        if not self._in_tiles:
            return tolerance(self.vectors, queries)
        # Σ min: RUN + width/RUN roundings, each of at most S = ‖u‖₁ + ‖v‖₁. It is taken twice in
        # D, which few more roundings end; and an error of D moves (S - D)/(S + D) by 2/S times it.
        width = self.vectors.dense.shape[1]
        return float((4 * (RUN + width / RUN) + 16) * EPSILON)

    def _least(self, queries: VectorBatch) -> np.float32:
        # Below 0 where no least score is set: rounding can make a score of 0 negative.
        return np.float32(self._min_score - 2 * self.tolerance(queries))

    def offer(
        self, queries: VectorBatch, skip: Int64s, first: int, last: int, heaps: _Heaps
    ) -> None:
        """Offer the rows first … last - 1 to the heaps of the queries."""
        vectors, least = self.vectors, self._least(queries)
        if self._rounded is not None:
            rows, sought = self._rounded, self._rounded.of_queries(queries)
            scan_rounded(
                queries.dense, queries.norms, sought.copies, sought.errors, vectors.dense,
                vectors.norms, rows.copies, rows.errors, rows.rounding.step, self._permitted, skip,
                least, first, last, heaps.scores, heaps.rows, heaps.sizes,
            )  # fmt: skip
            return
        if self._in_tiles:
            width = vectors.dense.shape[1]
            scan_tiles(
                queries.dense, queries.norms, vectors.dense, vectors.norms, self._permitted,
                skip, least, first, last, np.empty((tile_rows(width), width), np.float32),
                heaps.scores, heaps.rows, heaps.sizes,
            )  # fmt: skip
            return
        if vectors.form == "dense":
            scan_dense(
                queries.dense, queries.norms, vectors.dense, vectors.norms, self._permitted,
                skip, least, first, last, heaps.scores, heaps.rows, heaps.sizes,
            )  # fmt: skip
            return
        start = queries.indptr[0]
        entries = slice(start, queries.indptr[-1])
        slack = np.float32(2 * self.tolerance(queries))
        room = self._scratch(queries, heaps.scores.shape[1])
        for postings in self._inverted.segments:
            scan_segment(
                queries.indptr - start, queries.slots[entries], queries.values[entries],
                queries.norms, postings.segment, self._rows, self._permitted, skip, least, slack,
                room, heaps.scores, heaps.rows, heaps.sizes, heaps.work,
            )  # fmt: skip
        if self._inverted.covered < last:
            for m in range(len(queries)):
                shared = self._tail(queries[m : m + 1])
                heaps.sizes[m] = offer_sparse(
                    shared, queries.norms[m], vectors.norms, self._permitted, skip[m], least,
                    self._inverted.covered, heaps.scores[m], heaps.rows[m], heaps.sizes[m],
                )  # fmt: skip

    def _scratch(self, queries: VectorBatch, kept: int) -> Scratch:
        """Return room for the scan of any segment for one query of these."""
        most = max((each.last - each.first for each in self._inverted.segments), default=0)
        return scratch(most, queries.longest, kept)

    def _tail(self, query: VectorBatch) -> Float32s:
        """Return Σ min of one query and the rows that have no postings yet."""
        vectors = self.vectors
        size = spread_size(len(query.slots))
        slots, values = np.empty(size, np.uint32), np.empty(size, np.float32)
        spread(query.slots, query.values, slots, values)
        shared = np.empty(len(vectors) - self._inverted.covered, np.float32)
        shared_rows(
            slots, values, vectors.indptr, vectors.slots, vectors.values,
            self._inverted.covered, shared,
        )  # fmt: skip
        return shared

    def collect(self, query: VectorBatch, skip: int, bound: float, *, after: int = -1) -> Int64s:
        """Return all permitted rows whose float32 score is at least ``bound``.

        Parameters
        ----------
        query : VectorBatch
            One vector.
        skip : int
            A row to leave out, or -1.
        bound : float
        after : int
            Of sparse rows, only those after this one.
        """
        vectors = self.vectors
        rows = np.empty(len(vectors), np.int64)
        least = np.float32(max(bound, float(self._least(query))))
        if vectors.form == "dense":
            found = collect_dense(
                query.dense[0], query.norms[0], vectors.dense, vectors.norms, self._permitted,
                skip, least, rows,
            )  # fmt: skip
            return rows[:found]
        found = 0
        slack, room = np.float32(2 * self.tolerance(query)), self._scratch(query, 1)
        for postings in self._inverted.segments:
            if postings.last <= after + 1:
                continue
            found = collect_segment(
                query.slots, query.values, query.norms[0], postings.segment, self._rows,
                self._permitted, skip, least, slack, after, room, rows, found,
            )  # fmt: skip
        if self._inverted.covered < len(vectors):
            later = max(after + 1, self._inverted.covered)
            found = collect_shared(
                self._tail(query)[later - self._inverted.covered :], query.norms[0],
                vectors.norms, self._permitted, skip, least, later, rows, found,
            )  # fmt: skip
        return rows[:found]
