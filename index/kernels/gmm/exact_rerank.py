"""From the best rows by float32 score to hits: scored in float64, ranked, cut after their ties.

Rounding may have pushed rows across the limit. Where the heap cannot hold all of those, the bound
from which rows must be collected is given instead of a complete answer.
"""

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s, UInt32s
from gcws_search.index.kernels.gmm.dense import exact_dense
from gcws_search.index.kernels.gmm.sparse import exact_sparse
from gcws_search.index.kernels.ordering.heap import push
from gcws_search.index.kernels.ordering.rank import rank


@njit(cache=True, nogil=True)
def rerank_exactly(
    queries: Float32s,
    query_indptr: Int64s,
    query_slots: UInt32s,
    query_values: Float32s,
    rows: Float32s,
    indptr: Int64s,
    slots: UInt32s,
    values: Float32s,
    heap_scores: Float32s,
    heap_rows: Int64s,
    heap_sizes: Int64s,
    permitted: int,
    limit: int,
    least: float,
    slack: np.float32,
    out_rows: Int64s,
    out_scores: Float64s,
    out_sizes: Int64s,
    out_bounds: Float32s,
) -> int:
    """Rank the rows kept for each query.

    Parameters
    ----------
    queries : (m, width) float32; (0, 0) when sparse
    query_indptr, query_slots, query_values : compressed rows, when sparse
    rows, indptr, slots, values : the same of all n rows
    heap_scores : (m, p k) float32
        Of p heaps of k places side by side, which parts of the rows were offered to.
    heap_rows : (m, p k) int64
    heap_sizes : (m, p) int64
    permitted : int
        How many rows could have been kept.
    limit : int
        How many hits are wanted; rows that tie with the last one are hits too.
    least : float
        Lower scores are no hits.
    slack : float32
        How far apart float32 scores in the wrong order can be.
    out_rows : (m, k) int64, written in place
    out_scores : (m, k) float64, written in place
    out_sizes : (m,) int64, written in place
    out_bounds : (m,) float32, written in place
        Infinite, but where rows were dropped that may belong to the hits: these are among the
        rows with at least this float32 score.

    Returns
    -------
    int
        How many bounds are finite.
    """
    k = out_rows.shape[1]
    best = np.empty(k, np.float32)
    exact = np.empty(k, np.float64)
    lowest = np.empty(k, np.float32)
    finite = 0
    for m in range(out_rows.shape[0]):
        hits = out_rows[m]
        size = 0
        for part in range(heap_sizes.shape[1]):
            for i in range(part * k, part * k + heap_sizes[m, part]):
                size = push(best, hits, size, heap_scores[m, i], heap_rows[m, i])
        out_bounds[m] = np.inf
        if limit < size and size == k and k < permitted:
            wanted = size - limit + 1  # so many lowest scores, rising, end with the limit-th best
            filled = 0
            for i in range(size):
                score = best[i]
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
            bound = lowest[wanted - 1] - slack
            if best[0] >= bound:
                out_bounds[m] = bound
                finite += 1
                out_sizes[m] = 0
                continue
        if rows.shape[1] > 0:
            exact_dense(queries[m], rows, hits[:size], exact)
        else:
            entries = slice(query_indptr[m], query_indptr[m + 1])
            exact_sparse(
                query_slots[entries],
                query_values[entries],
                indptr,
                slots,
                values,
                hits[:size],
                exact,
            )
        size = rank(exact, hits, size, least, out_scores[m])
        while size > limit and out_scores[m, size - 1] < out_scores[m, limit - 1]:
            size -= 1
        out_sizes[m] = size
    return finite
