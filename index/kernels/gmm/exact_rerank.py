"""Exact re-rank: the best rows by float32 score are scored in float64, ranked, cut after ties.

Rounding may have pushed rows across the limit. Where the heap cannot hold all of those, the bound
from which rows must be collected is given instead of a complete answer.
"""

from typing import NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.gmm.dense import exact_dense
from gcws_search.index.kernels.gmm.rows import Rows
from gcws_search.index.kernels.gmm.sparse import exact_sparse
from gcws_search.index.kernels.ordering.hits import Heaps, push, rank


class HitLimits(NamedTuple):
    """Which rows are hits, and which of them a heap may have dropped."""

    permitted: int  # how many rows could have been held
    limit: int  # how many hits are wanted; rows that tie with the last one are hits too
    min_score: float  # lower scores are no hits
    slack: np.float32  # how far apart float32 scores in the wrong order can be


class ExactHits(NamedTuple):
    """Room for the hits of m queries."""

    rows: Int64s  # (m, k)
    scores: Float64s  # (m, k): falling; equal scores by rising row
    sizes: Int64s  # (m,)
    # (m,): infinite, but where rows were dropped that may belong to the hits: these are among the
    # rows with at least this float32 score.
    bounds: Float32s


@inner
def exact_gmm(queries: Rows, m: int, rows: Rows, chosen: Int64s, out: Float64s) -> None:
    """Write the float64 GMM of query m and (h,) chosen rows to ``out``, (h or more,)."""
    if rows.dense.shape[1] > 0:
        exact_dense(queries.dense[m], rows.dense, chosen, out)
    else:
        part = slice(queries.indptr[m], queries.indptr[m + 1])
        exact_sparse(
            queries.slots[part],
            queries.values[part],
            rows.indptr,
            rows.slots,
            rows.values,
            chosen,
            out,
        )


@inner
def _nth_best(scores: Float32s, size: int, limit: int, lowest: Float32s) -> np.float32:
    """Return the limit-th best of ``size`` scores."""
    wanted = size - limit + 1  # the last of this many lowest scores, rising, is the limit-th best
    filled = 0
    for i in range(size):
        score = scores[i]
        if filled < wanted:
            place = filled
            filled += 1
        elif score < lowest[wanted - 1]:
            place = wanted - 1
        else:
            continue
        while place > 0 and lowest[place - 1] > score:
            lowest[place] = lowest[place - 1]
            place -= 1
        lowest[place] = score
    return lowest[wanted - 1]


@kernel
def rerank_exactly(
    queries: Rows, rows: Rows, heaps: Heaps, limits: HitLimits, out: ExactHits
) -> int:
    """Rank the rows held for each query; return how many bounds are finite.

    Parts of the rows were offered to p heaps of k places side by side: their scores and rows are
    (m, p k), sizes (m, p).
    """
    queries, rows, heaps = Rows(*queries), Rows(*rows), Heaps(*heaps)
    limits, out = HitLimits(*limits), ExactHits(*out)
    held_scores, held_rows, held_sizes = heaps.scores, heaps.rows, heaps.sizes
    bounds, sizes = out.bounds, out.sizes
    k = out.rows.shape[1]
    limit = limits.limit
    best = np.empty(k, np.float32)
    exact = np.empty(k, np.float64)
    lowest = np.empty(k, np.float32)
    finite = 0
    for m in range(out.rows.shape[0]):
        hits = out.rows[m]
        size = 0
        for part in range(held_sizes.shape[1]):
            for i in range(part * k, part * k + held_sizes[m, part]):
                size = push(best, hits, size, held_scores[m, i], held_rows[m, i])
        bounds[m] = np.inf
        if limit < size and size == k and k < limits.permitted:
            bound = _nth_best(best, size, limit, lowest) - limits.slack
            if best[0] >= bound:
                bounds[m] = bound
                finite += 1
                sizes[m] = 0
                continue
        exact_gmm(queries, m, rows, hits[:size], exact)
        scores = out.scores[m]
        size = rank(exact, hits, size, limits.min_score, scores)
        while size > limit and scores[size - 1] < scores[limit - 1]:
            size -= 1
        sizes[m] = size
    return finite
