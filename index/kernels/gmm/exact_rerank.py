"""Scores of a query and rows of either form; exact re-ranking of the best rows.

The best rows by float32 score are scored in float64, ranked, and cut after ties. Rounding may have
moved rows across the limit. If the heap cannot hold all of these, the result is a bound from which
rows must be collected, instead of a complete answer.
"""

from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s, UInt32s
from gcws_search.index.kernels.compiling import inlined, inner, kernel
from gcws_search.index.kernels.gmm.dense import dense_score_within, exact_dense
from gcws_search.index.kernels.gmm.rows import Rows
from gcws_search.index.kernels.gmm.sparse import SparseAddresses, exact_sparse, shared_mass
from gcws_search.index.kernels.lanes.vector import at, offset, pointer
from gcws_search.index.kernels.ordering.hits import Heaps, push, rank


class HitLimits(NamedTuple):
    """Which rows are hits, and which of them a heap may have dropped."""

    permitted: int  # number of rows that could be in the heap
    limit: int  # number of requested hits; rows that tie with the last one are hits too
    min_score: float  # rows with lower scores are not hits
    slack: np.float32  # maximum difference of float32 scores in the wrong order


class ExactHits(NamedTuple):
    """Memory for the hits of m queries."""

    rows: Int64s  # (m, k)
    scores: Float64s  # (m, k): falling; equal scores by ascending row
    sizes: Int64s  # (m,)
    # (m,): infinite unless rows were dropped that may be hits: these have at least this float32
    # score.
    bounds: Float32s


class QuickPair(NamedTuple):
    """A query and the rows that it is compared with, by address."""

    query: Any  # dense
    query_norm: Any
    width: Any  # 0 when sparse
    rows: Any  # dense
    codes: Any  # dense rows of whole numbers
    stride: Any  # of the codes; 0 if there are none
    norms: Any
    indptr: Any
    slots: Any
    values: Any
    table_slots: Any  # of a sparse query, spread over ``size`` places
    table_values: Any
    size: Any


@inlined
def compare(
    queries: Any, m: Any, rows: Any, table_slots: UInt32s, table_values: Float32s
) -> QuickPair:
    """Return how to compare query m with rows; a sparse query is already spread over the table.

    Dense queries are float32.
    """
    width = rows.dense.shape[1]
    return QuickPair(
        offset(pointer(queries.dense), m * width),
        queries.norms[m],
        width,
        pointer(rows.dense),
        pointer(rows.codes),
        rows.codes.shape[1],
        pointer(rows.norms),
        pointer(rows.indptr),
        pointer(rows.slots),
        pointer(rows.values),
        pointer(table_slots),
        pointer(table_values),
        table_slots.shape[0],
    )


@inlined
def quick_gmm(pair: QuickPair, row: Any, farthest: Any) -> Any:
    """Return the float32 GMM of a query and a row, or -1 where a dense row is too far."""
    norm = at(pair.norms, row)
    if pair.stride > 0:
        code = offset(pair.codes, row * pair.stride)
        return dense_score_within(pair.query, pair.query_norm, code, norm, pair.width, farthest)
    if pair.width > 0:
        address = offset(pair.rows, row * pair.width)
        return dense_score_within(pair.query, pair.query_norm, address, norm, pair.width, farthest)
    shared = shared_mass(
        pair.table_slots,
        pair.table_values,
        pair.size,
        pair.slots,
        pair.values,
        at(pair.indptr, row),
        at(pair.indptr, row + 1),
    )
    return shared / (pair.query_norm + norm - shared)


@inner
def exact_gmm(queries: Rows, m: int, rows: Rows, chosen: Int64s, out: Float64s) -> None:
    """Write the float64 GMM of query m and (h,) chosen rows to ``out``, (h or more,)."""
    width, count = rows.dense.shape[1], chosen.shape[0]
    if width > 0:
        query, stride = offset(pointer(queries.dense), m * width), rows.codes.shape[1]
        places, scores = pointer(chosen), pointer(out)
        if stride > 0:
            exact_dense(query, width, pointer(rows.codes), stride, places, count, scores)
        else:
            exact_dense(query, width, pointer(rows.dense), width, places, count, scores)
        return
    first, last = queries.indptr[m], queries.indptr[m + 1]
    slots, values = offset(pointer(queries.slots), first), offset(pointer(queries.values), first)
    held = SparseAddresses(pointer(rows.indptr), pointer(rows.slots), pointer(rows.values))
    exact_sparse(slots, values, last - first, held, pointer(chosen), count, pointer(out))


@kernel
def exact_rows(queries: Rows, m: int, rows: Rows, chosen: Int64s, out: Float64s) -> None:
    """Like `exact_gmm`."""
    exact_gmm(Rows(*queries), m, Rows(*rows), chosen, out)


@inner
def _nth_best(scores: Float32s, size: int, limit: int, lowest: Float32s) -> np.float32:
    """Return the limit-th best of ``size`` scores."""
    wanted = size - limit + 1  # the greatest of this many lowest scores is the limit-th best
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
    """Rank the rows in each query's heaps; return the number of finite bounds.

    Parts of the rows were offered to p heaps of k places: their scores and rows are (m, p k), sizes
    (m, p).
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
        if limit < size:
            bound = _nth_best(best, size, limit, lowest) - limits.slack
            if best[0] >= bound and size == k and k < limits.permitted:
                bounds[m] = bound
                finite += 1
                sizes[m] = 0
                continue
            near = 0
            for i in range(size):  # the others are spare rows
                hits[near] = hits[i]
                near += np.int64(best[i] >= bound)
            size = near
        exact_gmm(queries, m, rows, hits[:size], exact)
        scores = out.scores[m]
        size = rank(exact, hits, size, limits.min_score, False, scores)
        while size > limit and scores[size - 1] < scores[limit - 1]:
            size -= 1
        sizes[m] = size
    return finite
