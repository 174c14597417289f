"""Searching by tables and lists: enter, walk, and score the best exactly, for many queries."""

import numpy as np
from numba import njit

from index.arrays import AnyArray, Float32s, Float64s, Int32s, Int64s, UInt8s, UInt32s, UInt64s
from index.kernels.coarse import (
    SPARSE,
    Query,
    clear,
    place_shift,
    rows_at,
    spread_over,
)
from index.kernels.gmm_dense import exact_dense
from index.kernels.gmm_sparse import exact_sparse
from index.kernels.probe import rank
from index.kernels.simd import at, offset, pointer
from index.kernels.walk import (
    Entries,
    enter,
    find_entries,
    mark,
    row_of,
    space_at,
    unmark,
    walk,
    walk_permitted,
)

CANDIDATES = 0
SCORED = 1
LISTS = 2
FOUND = 3
"""Columns of the counters: rows scored quickly, rows scored exactly, lists read, hits found."""
COUNTERS = 4


@njit(cache=True, nogil=True)
def hop(
    row_addresses: Int64s,
    space_addresses: Int64s,
    segments: Int64s,
    beside: int,
    links: Int32s,
    count: int,
    codes: UInt8s,
    code_norms: Float32s,
    queries: Float32s,
    query_indptr: Int64s,
    query_slots: UInt32s,
    query_values: Float32s,
    keys: UInt64s,
    rows: Float32s,
    indptr: Int64s,
    slots: UInt32s,
    values: Float32s,
    permitted: UInt8s,
    everything: bool,
    skip: Int64s,
    absent: bool,
    beam: int,
    most: int,
    rescored: int,
    least: float,
    out_scores: Float64s,
    out_rows: Int64s,
    out_sizes: Int64s,
    out_counters: AnyArray,
) -> None:
    """Search for every query.

    Parameters
    ----------
    row_addresses, space_addresses : see `coarse.rows_at`, `walk.space_at`
    segments, beside : see `walk.Entries`
    links : (n, width) int32
    count : int
        Rows this search sees.
    codes, code_norms : (m, stride) uint8 and (m,) float32
        Dense queries as the rows are kept, or (m, 0).
    queries, query_indptr, query_slots, query_values : the queries, dense or compressed
    keys : (m, t) uint64
        In the first t tables.
    rows, indptr, slots, values : the rows, dense or compressed
    permitted : (count,) uint8
    everything : bool
        Whether all rows are permitted.
    skip : (m,) int64
        A row that a query must not return, or -1.
    absent : bool
        Whether the skipped rows are to be treated as if they were not there at all.
    beam, most : int
        Width of the beam, and lists read at most.
    rescored : int
        The best rows of the beam that are scored exactly, at least the limit.
    least : float
        min_score.
    out_scores, out_rows : (m, limit) float64 and int64, written in place
        Hits by falling exact score, equal scores by rising row.
    out_sizes : (m,) int64, written in place
    out_counters : (m, COUNTERS) int64, written in place
    """
    view = rows_at(row_addresses)
    space = space_at(space_addresses)
    entries = Entries(segments, keys.shape[1], beside)
    marks, pool = space.marks, space.pool
    tables = keys.shape[1]
    limit = out_scores.shape[1]
    width = links.shape[1]
    chosen = np.empty(rescored, np.int64)
    exact = np.empty(rescored, np.float64)
    ranked = np.empty(rescored, np.float64)
    sparse = view.kind == SPARSE
    shift = np.uint32(0)
    for m in range(keys.shape[0]):
        first = np.int64(0)
        last = np.int64(0)
        if sparse:
            first = query_indptr[m]
            last = query_indptr[m + 1]
            shift = place_shift(last - first)
            spread_over(
                space.table, shift, pointer(query_slots), pointer(query_values), first, last
            )
        code = offset(pointer(codes), m * codes.shape[1])
        query = Query(code, code_norms[m], space.table, shift)
        marked = 0
        if absent and skip[m] >= 0:
            marked = mark(marks, skip[m], marked)
        find_entries(entries, offset(pointer(keys), m * tables), space.places)
        if everything:
            size, marked = enter(
                view, query, entries, space.places, count, pool, beam, marks, marked
            )
            size, marked, read = walk(
                view, query, pointer(links), width, count, pool, size, beam, most, marks, marked,
                space.room,
            )  # fmt: skip
            best = pool
        else:
            size, marked = enter(
                view, query, entries, space.places, count, pool, space.room, marks, marked
            )
            size, marked, read = walk_permitted(
                view, query, pointer(links), width, count, pool, size, space.room,
                pointer(permitted), space.hits, beam, most, marks, marked,
            )  # fmt: skip
            best = space.hits
        unmark(marks, marked)
        kept = 0
        for i in range(size):
            row = row_of(at(best, i))
            if kept < rescored and row != skip[m]:
                chosen[kept] = row
                kept += 1
        if sparse:
            clear(space.table, shift, pointer(query_slots), first, last)
            exact_sparse(
                query_slots[first:last], query_values[first:last], indptr, slots, values,
                chosen[:kept], exact,
            )  # fmt: skip
        else:
            exact_dense(queries[m], rows, chosen[:kept], exact)
        found = rank(exact, chosen, kept, least, ranked)
        found = min(found, limit)
        for i in range(found):
            out_scores[m, i] = ranked[i]
            out_rows[m, i] = chosen[i]
        out_sizes[m] = found
        out_counters[m, CANDIDATES] = marked
        out_counters[m, SCORED] = kept
        out_counters[m, LISTS] = read
        out_counters[m, FOUND] = size
