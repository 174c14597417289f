"""Containment: the share of a query that a row has, Σ min / Σ of the query, by a scan of every row.

It is not a function of the GMM alone, so neither tables nor a graph rank by it. Sparse rows are
scanned through their postings as if all had equal norms, so that the score of a scan rises with
Σ min. For dense rows, Σ min follows from the GMM J and the norms: J (‖q‖ + ‖x‖) / (1 + J).

As in `exact.scan`, float32 scores come first. All rows that rounding leaves in doubt are then
scored in float64.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s
from gcws_search.index.contracts.batches import VectorBatch, take_rows
from gcws_search.index.contracts.hits import SCAN, BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import SPARE_HITS, Ranked, Scanner, batch_hits, rank_rows
from gcws_search.index.kernels.ordering.hits import empty_heaps
from gcws_search.index.similarities import WORKED_ON, gmm_matrix, tolerance
from gcws_search.index.threads import Workers

_SCORES: Final = 1 << 22
"""Scores of queries and rows that are held at a time: 16 MB."""


def scan_contained(
    view: RowView,
    queries: VectorBatch,
    params: SearchParams,
    *,
    skip: Int64s,
    inverted: InvertedIndex,
    workers: Workers,
    unknown: float = 0.0,
) -> BatchHits:
    """Return the exact hits of every query by containment, with all ties at the limit.

    skip (m,): a row that a query must not return, or -1.
    unknown: magnitude of each query that no row can share.
    """
    answers: dict[int, Ranked] = {}
    rows = np.flatnonzero(view.permitted)
    is_dense = view.vectors.form == "dense"
    vectors = view.vectors[rows] if is_dense and len(rows) < len(view.vectors) else view.vectors
    step = max(1, _SCORES // max(1, len(rows)) if is_dense else len(queries))
    for start in range(0, len(queries), step):
        end = min(start + step, len(queries))
        gmm = _matrix(queries[start:end], vectors, workers) if is_dense else None

        def answer(first: int, last: int, start: int = start, gmm: Float32s | None = gmm) -> None:
            for place in range(first, last):
                number = start + place
                query, skipped = queries[number : number + 1], int(skip[number])
                total = float(query.norms[0]) + unknown
                if gmm is None:
                    near = _near_sparse(view, query, total, skipped, params, inverted)
                else:
                    near = rows[_near_dense(gmm[place], query, vectors, total, params)]
                near = near[near != skipped]
                mass = float(_shared(query, query, np.zeros(1, np.int64))[0])
                scores = _shared(query, view.vectors, near) / (mass + unknown)
                answers[number] = rank_rows(near, scores, params)

        workers.split(end - start, answer)
    count = view.permitted_count
    ranked = [answers[number] for number in range(len(queries))]
    return batch_hits(SCAN, ranked, candidates=count, scored=count, expected_recall=1.0)


def containment(a: VectorBatch, b: VectorBatch) -> float:
    """Return the share of ``a`` that ``b`` has, scored as in a search."""
    place = np.zeros(1, np.int64)
    return float(_shared(a, b, place)[0] / _shared(a, a, place)[0])


def contained_shares(vectors: VectorBatch, a: Int64s, b: Int64s) -> Float64s:
    """Return (p,) float64, the share of the smaller row of each pair that the other one has."""
    out = np.empty(len(a), np.float64)
    width = vectors.width if vectors.form == "dense" else vectors.longest
    step = max(1, WORKED_ON // max(1, width))
    for first in range(0, len(a), step):
        some = slice(first, first + step)
        if vectors.form == "dense":
            x, y = (vectors[rows[some]].dense.astype(np.float64) for rows in (a, b))
            low = np.where(x * y > 0, np.minimum(np.abs(x), np.abs(y)), 0.0).sum(axis=1)
            sums = [np.abs(each).sum(axis=1) for each in (x, y)]
        else:
            (own, x), (other, y) = (_entries(vectors, rows[some]) for rows in (a, b))
            _, mine, theirs = np.intersect1d(own, other, assume_unique=True, return_indices=True)
            least, count = np.minimum(x[mine], y[theirs]), len(a[some])
            low = np.bincount(own[mine] >> 32, least, count)
            sums = [np.bincount(each >> 32, v, count) for each, v in ((own, x), (other, y))]
        size = np.minimum(*sums)
        out[some] = np.divide(low, size, out=np.zeros(len(low)), where=size > 0)
    return out


def _entries(vectors: VectorBatch, rows: Int64s) -> tuple[Int64s, Float64s]:
    """Return the values of sparse rows, and the place of each: index of the row << 32 | slot."""
    indptr, taken = take_rows(vectors.indptr, rows)
    owners = np.repeat(np.arange(len(rows)), np.diff(indptr))
    return owners << 32 | vectors.slots[taken], vectors.values[taken].astype(np.float64)


def _matrix(queries: VectorBatch, vectors: VectorBatch, workers: Workers) -> Float32s:
    """Return the (m, n) float32 GMM; threads divide the rows."""
    out = np.empty((len(queries), len(vectors)), np.float32)

    def compare(first: int, last: int) -> None:
        out[:, first:last] = gmm_matrix(queries, vectors[first:last])

    workers.split(len(vectors), compare)
    return out


def _near_dense(
    gmm: Float32s, query: VectorBatch, vectors: VectorBatch, total: float, params: SearchParams
) -> Int64s:
    """Return rows that may be hits by their (n,) float32 GMM; one more than the limit is needed.

    The row that the query must not return may be among them.
    """
    slack = vectors.norms + query.norms.astype(np.float64)  # ‖q‖ + ‖x‖ first
    shared = gmm * slack
    shared /= 1.0 + gmm
    slack *= 2.0 * tolerance(vectors, query)
    least, wanted = params.min_score * total, params.limit + 1
    if len(shared) > wanted:
        last = len(shared) - wanted
        least = max(least, float(np.partition(shared - slack, last)[last]))
    shared += slack
    return np.flatnonzero(shared >= least)


def _near_sparse(
    view: RowView,
    query: VectorBatch,
    total: float,
    skip: int,
    params: SearchParams,
    inverted: InvertedIndex,
) -> Int64s:
    """Return the permitted rows that may be hits, by their postings."""
    vectors, norm = view.vectors, float(query.norms[0])
    equal = VectorBatch(
        "sparse",
        indptr=vectors.indptr,
        slots=vectors.slots,
        values=vectors.values,
        norms=np.full(len(vectors), total, np.float32),
    )
    # Then Σ min = s scores s / (‖q‖ + total - s).
    shared = min(params.min_score * total, norm)
    least = shared / (norm + total - shared)
    scanner = Scanner(replace(view, vectors=equal), inverted, least)
    places = max(1, min(view.permitted_count, params.limit + SPARE_HITS))
    heaps = empty_heaps(1, places)
    scanner.offer(query, np.array([skip]), 0, len(vectors), heaps)
    size = int(heaps.sizes[0])
    found, scores = heaps.rows[0, :size], heaps.scores[0, :size]
    if size <= params.limit:
        return found
    last = size - params.limit
    bound = float(np.partition(scores, last)[last]) - 2 * scanner.tolerance(query)
    if size == places < view.permitted_count and scores.min() >= bound:  # some may be missing
        return scanner.collect(query, skip, bound)
    return found


def _shared(query: VectorBatch, vectors: VectorBatch, rows: Int64s) -> Float64s:
    """Return Σ min of a query and some rows in float64, summed in the order of the query.

    So a row that contains the whole query gives the query's mass to the last bit.
    """
    out = np.empty(len(rows), np.float64)
    width = vectors.width if vectors.form == "dense" else query.longest
    step = max(1, WORKED_ON // max(1, width))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        if vectors.form == "dense":
            ours = query.dense[0].astype(np.float64)
            theirs = vectors[part].dense.astype(np.float64)
            theirs[theirs * np.sign(ours) < 0] = 0.0
        else:
            ours, some = query.values.astype(np.float64), vectors[part]
            places = np.minimum(np.searchsorted(query.slots, some.slots), max(0, width - 1))
            both = np.flatnonzero(query.slots[places] == some.slots) if width else places[:0]
            theirs = np.zeros((len(part), width))
            owners = np.repeat(np.arange(len(part)), np.diff(some.indptr))
            theirs[owners[both], places[both]] = some.values[both]
        out[start : start + step] = np.minimum(np.abs(theirs), np.abs(ours)).sum(axis=1)
    return out
