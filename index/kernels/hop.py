"""Searching by tables and lists: enter, walk, and score the best exactly, for many queries."""

from typing import Any

import numpy as np
from numba import njit

from index.arrays import AnyArray, Float32s, Float64s, Int32s, Int64s, UInt8s, UInt32s, UInt64s
from index.kernels.addresses import prefetch, put
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
from index.kernels.pool import row_of, score_of
from index.kernels.probe import rank
from index.kernels.simd import at, offset, pointer
from index.kernels.walk import (
    DONE,
    FOUND,
    MARKED,
    SIZE,
    Entries,
    begin,
    enter,
    find_entries,
    space_at,
    step,
    unmark,
)

CANDIDATES, SCORED_EXACTLY, BEAM = 3, 4, 5
"""Columns of what a query cost that are written here, numbered as in `hits.BatchHits`: rows scored
quickly, rows scored exactly, and the best rows that were kept."""

ANSWERED, RARE, UNANSWERED = range(3)
"""What became of a query: found as others are; its last hit, whatever min_score is, scores less
than usual; the walk found too few permitted rows, or rounding spoils the query."""
_MOST_LOST = 0.5
"""Share of a query's norm that rounding may add or lose: it is not itself any more beyond."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SCALE = 2.0**-24
_LINE_FLOATS = 16
_AHEAD = 256
"""Floats of a row that are asked for ahead."""


@njit(cache=True, nogil=True)
def _whole(most: float, key: np.uint64) -> int:
    """Return a number or the one above it, in such shares that the mean is ``most``."""
    below = np.int64(most)
    drawn = np.float64((key * _GOLDEN) >> np.uint64(40)) * _SCALE
    return below + 1 if drawn < most - below else below


@njit(cache=True, nogil=True)
def _best(space: Any, filtered: bool) -> Any:
    """Return the address of the best rows that are permitted, and how many there are."""
    if filtered:
        return space.hits, at(space.state, FOUND)
    return space.pool, at(space.state, SIZE)


@njit(cache=True, nogil=True)
def _fetch_rows(rows: Float32s, best: Any, count: int) -> None:
    """Ask for the float32 rows of the first entries of a pool."""
    for i in range(count):
        address = offset(pointer(rows), row_of(at(best, i)) * rows.shape[1])
        for line in range(0, min(rows.shape[1], _AHEAD), _LINE_FLOATS):
            prefetch(offset(address, line))


@njit(cache=True, nogil=True)
def _choose(best: Any, size: int, skip: int, out: Int64s) -> int:
    """Write the rows of the first entries of a pool but for one; return how many."""
    kept = 0
    for i in range(size):
        row = row_of(at(best, i))
        if kept < out.shape[0] and row != skip:
            out[kept] = row
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def hop(
    row_addresses: Int64s,
    spaces: Int64s,
    segments: Int64s,
    beside: int,
    links: Int32s,
    count: int,
    codes: UInt8s,
    code_norms: Float32s,
    unit: float,
    norms: Float32s,
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
    filtered: bool,
    permitted_count: int,
    skip: Int64s,
    hidden: UInt8s,
    beam: int,
    most: float,
    wanted: int,
    reach: float,
    rescored: int,
    least: float,
    usual: float,
    out_scores: Float64s,
    out_rows: Int64s,
    out_sizes: Int64s,
    out_counters: AnyArray,
    out_outcomes: UInt8s,
) -> None:
    """Search for every query.

    Parameters
    ----------
    row_addresses : see `coarse.rows_at`
    spaces : (walks, 11) int64
        See `walk.space_at`; so many queries are searched for in turn.
    segments, beside : see `walk.Entries`
    links : (n, width) int32
    count : int
        Rows this search sees.
    codes, code_norms : (m, stride) uint8 and (m,) float32
        Dense queries as the rows are kept, or (m, 0).
    unit : float
        What a unit of ``code_norms`` stands for; 0 where nothing was rounded.
    norms : (m,) float32
        Of the queries.
    queries, query_indptr, query_slots, query_values : the queries, dense or compressed
    keys : (m, t) uint64
        In the first t tables.
    rows, indptr, slots, values : the rows, dense or compressed
    permitted : (count,) uint8
    filtered : bool
        Whether only some rows are permitted.
    permitted_count : int
        How many.
    skip : (m,) int64
        A row that a query must not return, or -1.
    hidden : (count,) or (0,) uint8
        1 for rows that no list names, and that are treated as if they were not there at all.
    beam : int
        The best rows that are kept, at most.
    most : float
        Lists read at most; a fraction is the share of the queries that read one more, chosen by
        their keys.
    wanted : int
        Hits, the limit at least.
    reach : float
        How far beyond the last of them a walk goes: see `walk.within_reach`.
    rescored : int
        The best rows of the beam that are scored exactly, at least the limit.
    least : float
        min_score.
    usual : float
        Below this score of the last hit a query is `RARE`.
    out_scores, out_rows : (m, limit) float64 and int64, written in place
        Hits by falling exact score, equal scores by rising row.
    out_sizes : (m,) int64, written in place
    out_counters : (m, c) int64, of which `CANDIDATES`, `SCORED_EXACTLY` and `BEAM` are written in
        place
    out_outcomes : (m,) uint8, written in place
    """
    view = rows_at(row_addresses)
    entries = Entries(segments, keys.shape[1], beside)
    tables = keys.shape[1]
    limit = out_scores.shape[1]
    width = links.shape[1]
    lists = pointer(links)
    allowed = pointer(permitted)
    chosen = np.empty(rescored, np.int64)
    exact = np.empty(rescored, np.float64)
    ranked = np.empty(rescored, np.float64)
    sparse = view.kind == SPARSE
    walks = spaces.shape[0]
    for start in range(0, keys.shape[0], walks):
        end = min(start + walks, keys.shape[0])
        for m in range(start, end):
            space = space_at(spaces[m - start])
            begin(space)
            if sparse:
                spread_over(
                    space.table, place_shift(query_indptr[m + 1] - query_indptr[m]),
                    pointer(query_slots), pointer(query_values), query_indptr[m],
                    query_indptr[m + 1],
                )  # fmt: skip
        find_entries(entries, offset(pointer(keys), start * tables), spaces, end - start)
        for m in range(start, end):
            enter(view, space_at(spaces[m - start]), entries, count, hidden)
        active = end - start
        while active > 0:
            active = 0
            for m in range(start, end):
                space = space_at(spaces[m - start])
                if at(space.state, DONE) != 0:
                    continue
                shift = np.uint32(0)
                if sparse:
                    shift = place_shift(query_indptr[m + 1] - query_indptr[m])
                code = offset(pointer(codes), m * codes.shape[1])
                query = Query(code, code_norms[m], space.table, shift)
                if step(
                    view, query, lists, width, count, space, beam, _whole(most, keys[m, 0]),
                    min(beam, wanted + np.int64(skip[m] >= 0)), np.float32(reach), allowed,
                    filtered,
                ):  # fmt: skip
                    active += 1
                else:
                    put(space.state, DONE, 1)
                    unmark(space.marks, at(space.state, MARKED))
                    if not sparse:  # scored after all walks have ended
                        best, size = _best(space, filtered)
                        _fetch_rows(rows, best, min(rescored, size))
        for m in range(start, end):
            space = space_at(spaces[m - start])
            best, size = _best(space, filtered)
            kept = _choose(best, size, skip[m], chosen)
            if sparse:
                part = slice(query_indptr[m], query_indptr[m + 1])
                clear(
                    space.table, place_shift(part.stop - part.start), pointer(query_slots),
                    part.start, part.stop,
                )  # fmt: skip
                exact_sparse(
                    query_slots[part], query_values[part], indptr, slots, values, chosen[:kept],
                    exact,
                )  # fmt: skip
            else:
                exact_dense(queries[m], rows, chosen[:kept], exact)
            found = min(rank(exact, chosen, kept, least, ranked), limit)
            for i in range(found):
                out_scores[m, i] = ranked[i]
                out_rows[m, i] = chosen[i]
            out_sizes[m] = found
            out_counters[m, CANDIDATES] = at(space.state, MARKED)
            out_counters[m, SCORED_EXACTLY] = kept
            out_counters[m, BEAM] = size
            least_size = min(limit + (1 if skip[m] >= 0 else 0), permitted_count)
            lost = abs(np.float64(code_norms[m]) * unit - norms[m]) if unit > 0 else 0.0
            if size < least_size or lost > _MOST_LOST * norms[m]:
                out_outcomes[m] = UNANSWERED
            elif size == 0 or score_of(at(best, min(size, limit) - 1)) < usual:
                out_outcomes[m] = RARE
            else:
                out_outcomes[m] = ANSWERED
