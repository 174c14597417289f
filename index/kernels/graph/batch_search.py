"""Searching by tables and lists: enter, walk, and score the best exactly, for many queries."""

from typing import Any

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import (
    AnyArray,
    Float32s,
    Float64s,
    Int32s,
    Int64s,
    UInt8s,
    UInt32s,
    UInt64s,
)
from gcws_search.index.kernels.graph.beam_search import (
    FOUND,
    MARKED,
    MIN_DISTANCE,
    SIZE,
    EntryTables,
    begin,
    enter,
    expand,
    find_entry_points,
    mark,
    scratch_at,
    unmark,
)
from gcws_search.index.kernels.graph.candidate_pool import row_of, score_of
from gcws_search.index.kernels.graph.queries import queries_of, score_exactly
from gcws_search.index.kernels.graph.rerank_depth import FEW_MISSED, MAX_MISSED, hits_left_out
from gcws_search.index.kernels.lanes.pointers import NUMBERS_A_LINE, prefetch, put
from gcws_search.index.kernels.lanes.vector import at, offset, pointer
from gcws_search.index.kernels.ordering.rank import rank_nearly_sorted
from gcws_search.index.kernels.quantized.rows import (
    SPARSE,
    fetch_ahead,
    held_before,
    hold,
    release,
    rows_at,
)

CANDIDATES, SCORED_EXACTLY, BEAM = 3, 4, 5
"""Columns of what a query cost that are written here, numbered as in `hits.BatchHits`: rows scored
quickly, rows scored exactly, and the best rows that were kept."""

ANSWERED, UNANSWERED = range(2)
"""What became of a query: found as others are; or its last hit, whatever min_score is, scores less
than those of any like it, a second walk found too few permitted rows, rounding spoils it, or does
not tell its hits from rows left out."""
_FREE, _FIRST, _ONWARD, _SECOND, _ENDED = range(5)
"""What a space is used for: nothing; a query's first walk, that walk gone on with, or its second;
to keep what was found."""
PLACE = 10
"""The first hit is compared with the one at this place: a walk keeps so many at least."""
_SEEDS = 64
"""Rows of the first walk's pool, and of its hits, that the second one begins with, at most."""
_MAX_LOST = 0.5
"""Share of a query's norm that rounding may add or lose: it is not itself any more beyond."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SCALE = 2.0**-24
_AHEAD = 256
"""Floats of a row that are asked for ahead."""


@njit(cache=True, nogil=True)
def whole_lists(most: float, key: np.uint64) -> int:
    """Return how many lists a query reads: a number or the one above it, ``most`` in the mean."""
    below = np.int64(most)
    drawn = np.float64((key * _GOLDEN) >> np.uint64(40)) * _SCALE
    return below + 1 if drawn < most - below else below


@njit(cache=True, nogil=True)
def best_rows(space: Any, filtered: bool) -> Any:
    """Return the address of the best rows that are permitted, and how many there are."""
    if filtered:
        return space.hits, at(space.state, FOUND)
    return space.pool, at(space.state, SIZE)


@njit(cache=True, nogil=True)
def fetch_rows(rows: Float32s, best: Any, count: int) -> None:
    """Ask for the float32 rows of the first entries of a pool."""
    for i in range(count):
        address = offset(pointer(rows), row_of(at(best, i)) * rows.shape[1])
        for line in range(0, min(rows.shape[1], _AHEAD), NUMBERS_A_LINE):
            prefetch(offset(address, line))


@njit(cache=True, nogil=True)
def choose(best: Any, size: Any, skip: Any, most: Any, out: Any) -> Any:
    """Write the rows of the first entries of a pool but for one; return how many."""
    kept = 0
    for i in range(size):
        row = row_of(at(best, i))
        if kept < most and row != skip:
            put(out, kept, row)
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def _last_score(best: Any, size: Any, limit: Any) -> Any:
    """Return the quick score of a walk's last hit, 0 when it found nothing."""
    return score_of(at(best, min(size, limit) - 1)) if size > 0 else np.float32(0.0)


@njit(cache=True, nogil=True)
def is_flat(best: Any, size: Any, own: Any, flat: Any) -> Any:
    """Return whether the first hit is hardly nearer than the one at `PLACE`, by a factor.

    A query among rows like it is near to some of them, and from outside all are about as far.
    """
    if size < own + PLACE:
        return False
    first = np.float32(1.0) - score_of(at(best, own))
    last = np.float32(1.0) - score_of(at(best, own + PLACE - 1))
    return first > flat * max(last, MIN_DISTANCE)


@njit(cache=True, nogil=True)
def _begin_again(rows: Any, space: Any) -> None:
    """Make a space ready for a second walk, from the best rows of the one that ended in it."""
    size, found = at(space.state, SIZE), at(space.state, FOUND)
    begin(space)
    marked = 0
    for i in range(min(size, _SEEDS)):
        marked = mark(space.marks, row_of(at(space.pool, i)), marked)
    for i in range(min(found, _SEEDS)):
        marked = mark(space.marks, row_of(at(space.hits, i)), marked)
    put(space.state, MARKED, marked)
    fetch_ahead(rows, space.marks.seen, 0, marked)


@njit(cache=True, nogil=True)
def search_graph(
    row_addresses: Int64s,
    spaces: Int64s,
    segments: Int64s,
    beside: int,
    links: Int32s,
    count: int,
    copies: UInt8s,
    copy_norms: Float32s,
    unit: float,
    norms: Float32s,
    queries: Float32s,
    query_indptr: Int64s,
    query_slots: UInt32s,
    query_values: Float32s,
    keys: UInt64s,
    rows: Float32s,
    permitted: UInt8s,
    filtered: bool,
    permitted_count: int,
    skip: Int64s,
    hidden: UInt8s,
    efforts: Float64s,
    wanted: int,
    at_first: int,
    rescored: int,
    least: float,
    flat: float,
    rare: float,
    strange: float,
    nearest: float,
    out_scores: Float64s,
    out_rows: Int64s,
    out_sizes: Int64s,
    out_counters: AnyArray,
    out_outcomes: UInt8s,
) -> None:
    """Search for every query, and once more, farther, where little was found.

    Each space holds one query's walk, and takes the next query once what was found is scored. All
    take their steps in turn, so that memory has time to answer.

    Parameters
    ----------
    row_addresses : see `coarse.rows_at`
    spaces : (walks, 11) int64
        See `walk.scratch_at`.
    segments, beside : see `walk.EntryTables`
    links : (n, width) int32
    count : int
        Rows this search sees.
    copies, copy_norms : (m, stride) uint8 and (m,) float32
        Dense queries as the rows are kept, or (m, 0).
    unit : float
        What a unit of ``copy_norms`` stands for; 0 where nothing was rounded.
    norms : (m,) float32
        Of the queries.
    queries, query_indptr, query_slots, query_values : the queries, dense or compressed
    keys : (m, t) uint64
        In the first t tables.
    rows : (n, dim) float32
        Dense rows, exactly; (0, 0) when sparse: those are read through ``row_addresses``.
    permitted : (count,) uint8
    filtered : bool
        Whether only some rows are permitted.
    permitted_count : int
        How many.
    skip : (m,) int64
        A row that a query must not return, or -1.
    hidden : (count,) or (0,) uint8
        1 for rows that no list names, and that are treated as if they were not there at all.
    efforts : (3, 3) float64
        Of the first walk, of going on with it, and of the second: the best rows that are kept, at
        most; lists read (see `walk.expand`), where a fraction is the share of the queries that read
        one more, chosen by their keys; how far beyond the last of the hits wanted it goes
        (`walk.within_reach`).
    wanted : int
        Hits, the limit at least.
    at_first, rescored : int
        The best rows that are scored exactly at first, at least the limit; and in all, where
        rounding may hide hits among those left out.
    least : float
        min_score.
    flat : float
        After a walk without a reach a query whose first hit is farther away than the tenth, times
        this factor, walks on.
    rare : float
        A query whose last hit scores less, or that found too few, is walked for again; 0: none is.
    strange : float
        Below this score of the last hit, in the end, a query is `UNANSWERED`.
    nearest : float
        And below this score of the first.
    out_scores, out_rows : (m, limit) float64 and int64, written in place
        Hits by falling exact score, equal scores by rising row.
    out_sizes : (m,) int64, written in place
    out_counters : (m, c) int64, of which `CANDIDATES`, `SCORED_EXACTLY` and `BEAM` are written in
        place
        Candidates are those of both walks.
    out_outcomes : (m,) uint8, written in place
    """
    view = rows_at(row_addresses)
    queries_left = count_of_queries = keys.shape[0]
    tables = keys.shape[1]
    entries = EntryTables(segments, tables, beside)
    limit = out_scores.shape[1]
    width = links.shape[1]
    lists = pointer(links)
    allowed = pointer(permitted)
    floats = pointer(rows)
    asked = queries_of(
        view.kind, copies, copy_norms, queries, query_indptr, query_slots, query_values
    )
    walks = spaces.shape[0]
    chosen = np.empty(rescored, np.int64)
    exact = np.empty(rescored, np.float64)
    ranked = np.empty(rescored, np.float64)
    stages = np.full(walks, _FREE, np.int64)
    numbers = np.empty(walks, np.int64)
    before = np.empty(walks, np.int64)
    upcoming = 0  # the next query
    placed = 0  # queries whose places are known
    while queries_left > 0:
        for s in range(walks):
            space = scratch_at(spaces[s])
            if stages[s] == _FREE:
                if upcoming == count_of_queries:
                    continue
                if upcoming == placed:  # query m's places are kept in the space numbered m % walks
                    placed = min(upcoming + walks, count_of_queries)
                    find_entry_points(
                        entries, offset(pointer(keys), upcoming * tables), spaces, placed - upcoming
                    )
                m = upcoming
                upcoming += 1
                numbers[s], stages[s], before[s] = m, _FIRST, 0
                begin(space)
                hold(asked.kept, m, space.table)
                enter(view, space, scratch_at(spaces[m % walks]).places, entries, count, hidden)
                continue
            m = numbers[s]
            skipped = skip[m]
            own = np.int64(skipped >= 0)
            best, size = best_rows(space, filtered)
            query = held_before(asked.kept, m, space.table)
            if stages[s] != _ENDED:
                effort = stages[s] - _FIRST
                beam = np.int64(efforts[effort, 0])
                if expand(
                    view,
                    query,
                    lists,
                    width,
                    count,
                    space,
                    beam,
                    whole_lists(efforts[effort, 1], keys[m, 0]) + own,
                    min(beam, wanted + own),
                    np.float32(efforts[effort, 2]),
                    allowed,
                    filtered,
                    0,
                ):
                    continue
                best, size = best_rows(space, filtered)
                few = efforts[0, 2] == np.inf  # lists, instead of a reach
                if stages[s] == _FIRST and few and is_flat(best, size, own, np.float32(flat)):
                    stages[s] = _ONWARD
                    continue
                marked = at(space.state, MARKED)
                unmark(space.marks, marked)
                before[s] += marked
                enough = min(limit + own, permitted_count)
                little = size < enough or _last_score(best, size, limit) < rare
                if stages[s] != _SECOND and rare > 0 and little:
                    stages[s] = _SECOND
                    _begin_again(view, space)
                    continue
                stages[s] = _ENDED
                if view.kind != SPARSE:  # scored at the next turn
                    fetch_rows(rows, best, min(at_first, size))
                    continue
            release(asked.kept, m, query)
            kept = found = 0
            missed = 0.0
            for most in (at_first, rescored):
                known = kept
                kept = choose(best, size, skipped, most, pointer(chosen))
                score_exactly(
                    asked,
                    m,
                    view,
                    floats,
                    offset(pointer(chosen), known),
                    kept - known,
                    offset(pointer(exact), known),
                )
                found = rank_nearly_sorted(exact, chosen, kept, least, ranked)
                last = ranked[limit - 1] if found >= limit else least
                if unit > 0 and kept > 0:
                    missed = hits_left_out(best, size, skipped, pointer(exact), kept, last)
                if kept < most or missed <= FEW_MISSED * limit:
                    break
            found = min(found, limit)
            for i in range(found):
                out_scores[m, i] = ranked[i]
                out_rows[m, i] = chosen[i]
            out_sizes[m] = found
            out_counters[m, CANDIDATES] = before[s]
            out_counters[m, SCORED_EXACTLY] = kept
            out_counters[m, BEAM] = size
            lost = abs(np.float64(copy_norms[m]) * unit - norms[m]) if unit > 0 else 0.0
            spoilt = lost > _MAX_LOST * norms[m]
            missing = size < min(limit + own, permitted_count)
            hides_hits = missed > MAX_MISSED * limit
            odd = hides_hits or spoilt or missing or _last_score(best, size, limit) < strange
            odd = odd or _last_score(best, size, 1) < nearest
            out_outcomes[m] = UNANSWERED if odd else ANSWERED
            stages[s] = _FREE
            queries_left -= 1
