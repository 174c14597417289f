"""The stages of a query on the neighbour graph, for a batch: enter, search, extend, re-rank."""

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import Float32s, Int64s
from gcws_search.index.kernels.graph.beam_search import (
    HIT_POOL,
    MARKED,
    ONE_POOL,
    REJECTED_POOL,
    SECOND_OVERFLOW,
    SIZE,
    UNFINISHED,
    Beam,
    Graph,
    Links,
    RowMask,
    admit_again,
    begin,
    begin_again,
    best_rows,
    expand,
    expand_masked,
    scratch_at,
    unmark,
)
from gcws_search.index.kernels.graph.candidate_pool import row_of
from gcws_search.index.kernels.graph.entry_points import (
    ROWS_A_SIDE,
    EntryTables,
    enter,
    enter_buckets,
    find_entry_points,
)
from gcws_search.index.kernels.graph.queries import Queries, query_rows, score_exactly
from gcws_search.index.kernels.graph.rerank_depth import TOLERATED_MISS, hits_left_out
from gcws_search.index.kernels.graph.tiers import are_tied, has_low_contrast, score_at
from gcws_search.index.kernels.lanes.pointers import NUMBERS_A_LINE, prefetch, put
from gcws_search.index.kernels.lanes.vector import at, keep, offset, pointer, uncounted
from gcws_search.index.kernels.ordering.rank import rank, rank_nearly_sorted
from gcws_search.index.kernels.quantized.rows import (
    SPARSE,
    QueryAddresses,
    held_before,
    hold,
    release,
    rows_at,
)

CANDIDATES, SCORED_EXACTLY, BEAM = 3, 4, 5
"""Columns of a query's cost that are written here, numbered as in `hits.BatchHits`: rows scored
quickly, rows scored exactly, and rows that the beam held in the end."""


class Outcome(IntEnum):
    """What became of a query: hits, or the reason why the tables must answer it."""

    ANSWERED = 0
    TOO_SMALL = 1
    """Fewer permitted rows were found than wanted."""
    OUT_OF_RANGE = 2
    """The hits score less than calibration saw of nearly any query."""
    QUANTIZED_AWAY = 3
    """Quantization changes the query's norm too much."""
    HITS_HIDDEN = 4
    """Quantization does not tell the hits from rows that were not re-ranked."""
    UNFINISHED = 5
    """The search saw as many rows as may be seen, and there were more to expand."""


_FREE, _SEARCH, _HARD, _FOREIGN, _ENDED = range(5)
"""What a slot is used for: nothing; a query's first search, its extension as a hard query, or as a
foreign one; an ended search that waits to be re-ranked."""
_MIN_CUT = np.float32(0.02)
"""Quantization changes the norm of a row within its range by no more than this share."""
_MAX_LOST = 0.5
"""Share of a query's norm that quantization may add or lose."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SCALE = 2.0**-24
_AHEAD = 256
"""Floats of a row that are prefetched."""
_SHORT = 128
"""Rows that are quickest put in order by insertion."""


class Visible(NamedTuple):
    """The rows that one search sees.

    Attributes
    ----------
    count : int
        Rows from this number on are newer than the search.
    permitted : (count,) uint8
    permitted_count : int
        How many of them are 1.
    hidden : (count,) or (0,) uint8
        1 for rows that no link names, and that are treated as if they were not there.
    """

    count: Any
    permitted: Any
    permitted_count: Any
    hidden: Any


class Plan(NamedTuple):
    """How queries are searched for.

    Attributes
    ----------
    work : (6,) int64
        What each query costs as far as it is known before; see `hits.BatchHits`.
    recall : float
        Expected.
    beams : (3, 4) float64
        Of the first search, and of the extensions of hard and of foreign queries: capacity of the
        beam, rows expanded at most, slack, see `beam_search.Beam`; entry points on each side of a
        key. A fraction of the second is the share of the queries that expand one more, chosen by
        their keys.
    borders : (2, 2) float64
        A query is hard, or foreign, if the hit judged scores less than the first of these. It also
        is if the first hit is farther away than the tenth, times the second.
    nearest : float
        Quantized rows tell smaller distances than this apart badly.
    judged : int
        The place of the hit judged, counted from 1.
    crowded : int
        A query is hard, too, if this many rows that no filter permits are nearer than the hit
        judged.
    tied : float
        A query is hard, too, if its first hits differ by less in distance; see `tiers.are_tied`.
        Its extended search enters through its whole buckets.
    wanted : int
        Hits by which a search ends, at least the limit.
    reranked_first, reranked_last : int
        Best rows scored exactly at first, at least the limit; and then, where quantization may
        hide hits among those left out.
    reranked_extended : int
        Best rows scored exactly of an extended search, at least ``reranked_last``: bytes tell rows
        near to a query unlike them apart less well.
    reranked_max : int
        Best rows scored exactly in all, where that many are about as near as the hits.
    step : float
        Unit of ``Queries.copy_norms``; 0 where nothing is quantized.
    out_of_range : float
        The outcome is `OUT_OF_RANGE` if the hit judged scores less.
    max_missed : float
        Missed hits that are accepted, for each that is wanted.
    max_hidden : float
        The same where the first hits tie.
    nearly_all : float
        From this share of permitted rows on, the second pool holds the others, not the hits.
    room_under_filter : int
        Rows that a search may see whose second pool holds the hits; see `beam_search.HIT_POOL`.
    """

    work: Any
    recall: Any
    beams: Any
    borders: Any
    nearest: Any
    judged: Any
    crowded: Any
    tied: Any
    wanted: Any
    reranked_first: Any
    reranked_last: Any
    reranked_extended: Any
    reranked_max: Any
    step: Any
    out_of_range: Any
    max_missed: Any
    max_hidden: Any
    nearly_all: Any
    room_under_filter: Any


class Found(NamedTuple):
    """What a search writes for m queries, in place.

    Attributes
    ----------
    scores, rows : (m, limit) float64 and int64
        Hits by falling exact score, equal scores by rising row.
    sizes : (m,) int64
        How many there are.
    work : (m, 6) int64
        What each query cost; see `hits.BatchHits`.
    recalls : (m,) float64
        Expected.
    outcomes : (m,) uint8
        See `Outcome`.
    """

    scores: Any
    rows: Any
    sizes: Any
    work: Any
    recalls: Any
    outcomes: Any


@njit(cache=True, nogil=True)
def _pools_for(visible: Any, nearly_all: float) -> int:
    """Return `ONE_POOL`, `REJECTED_POOL` or `HIT_POOL`."""
    if visible.permitted_count == visible.count:
        return ONE_POOL
    return REJECTED_POOL if visible.permitted_count >= nearly_all * visible.count else HIT_POOL


class _Reranked(NamedTuple):
    """Rows that are scored exactly, room for ``Plan.reranked_max``: (r,) int64, float64 twice."""

    rows: Any
    scores: Any
    ranked: Any


@njit(cache=True, nogil=True)
def whole_number(mean: float, key: np.uint64) -> int:
    """Return the integer below or above a number, so that the mean over keys is that number."""
    below = np.int64(mean)
    drawn = np.float64((key * _GOLDEN) >> np.uint64(40)) * _SCALE
    return below + 1 if drawn < mean - below else below


@njit(cache=True, nogil=True)
def _fetch_vectors(vectors: Float32s, best: Any, count: int) -> None:
    """Prefetch the float32 rows of the first entries of a pool."""
    for i in range(count):
        address = offset(pointer(vectors), row_of(at(best, i)) * vectors.shape[1])
        for line in range(0, min(vectors.shape[1], _AHEAD), NUMBERS_A_LINE):
            prefetch(offset(address, line))


@njit(cache=True, nogil=True)
def _choose(best: Any, size: Any, skip: Any, max_rows: Any, out: Any) -> Any:
    """Write the rows of the first entries of a pool but for one; return how many."""
    count = 0
    for i in range(size):
        row = row_of(at(best, i))
        if count < max_rows and row != skip:
            put(out, count, row)
            count += 1
    return count


@njit(cache=True, nogil=True, forceinline=True)
def _beam(plan: Any, stage: Any, key: Any, own: Any) -> Any:
    """Return the beam of a stage; ``own`` is 1 if a row is skipped."""
    which = stage - _SEARCH
    capacity = np.int64(plan.beams[which, 0])
    return Beam(
        capacity,
        whole_number(plan.beams[which, 1], key) + own,
        min(capacity, plan.wanted + own),
        np.float32(plan.beams[which, 2]),
    )


@njit(cache=True, nogil=True, forceinline=True)
def _step(
    rows: Any, query: Any, links: Any, scratch: Any, beam: Any, permitted: Any, room: Any
) -> Any:
    """Do what `expand` does; one whose second pool holds the hits has ``room`` for so much."""
    if permitted.pools == ONE_POOL:
        return expand(rows, query, links, scratch, beam, 0)
    is_going = expand_masked(rows, query, links, scratch, beam, permitted)
    is_full = at(scratch.state, MARKED) + links.width > room
    if is_going and permitted.pools == HIT_POOL and is_full:
        put(scratch.state, UNFINISHED, 1)
        return False
    return is_going


@njit(cache=True, nogil=True, forceinline=True)
def _stage_after(best: Any, own: Any, stage: Any, plan: Any, scratch: Any, is_tied: Any) -> Any:
    """Return the stage of a query whose search has come to its end.

    Parameters
    ----------
    best : (address of uint64, int)
        The best permitted rows, and how many there are.
    own : int
        1 if a row is skipped, which takes one place among the best.
    stage : int
        `_SEARCH`, `_HARD` or `_FOREIGN`.
    plan : Plan
    scratch : BeamScratch
    is_tied : bool
        Whether the first hits were seen to be tied just now.

    Returns
    -------
    int
        `_HARD` or `_FOREIGN` for a search that goes on, else `_ENDED`.
    """
    entries, size = best
    judged = plan.judged + own
    score = score_at(entries, size, judged) if size >= judged else np.float32(0.0)
    crowded = size > 0 and stage == _SEARCH and 0 < plan.crowded < at(scratch.state, SIZE)
    if crowded and at(scratch.pool, plan.crowded) > at(entries, min(judged, size) - 1):
        return _HARD
    if is_tied:
        return max(stage, _HARD)
    for after in range(stage + 1, _ENDED):
        lowest, factor = plan.borders[after - _HARD, 0], plan.borders[after - _HARD, 1]
        if score < lowest or has_low_contrast(
            entries, size, own, np.float32(factor), np.float32(plan.nearest)
        ):
            return after
    return _ENDED


@njit(cache=True, nogil=True, forceinline=True)
def _uncut(query: Any, units: Any, queries: Any, m: Any) -> Any:
    """Return a query that knows how much of its norm a copy has no room for."""
    cut = queries.norms[m] * units - query.norm
    if cut < _MIN_CUT * query.norm:
        cut = np.float32(0.0)
    return QueryAddresses(query.copy, query.norm, query.table, query.shift, cut)


@njit(cache=True, nogil=True)
def _enter_wider(
    rows: Any, scratch: Any, entries: Any, rows_a_side: Any, count: Any, hidden: Any
) -> None:
    """Add the rows that are farther from a query's places in the tables."""
    wider = EntryTables(entries.segments, entries.tables, rows_a_side, entries.leaders)
    enter(rows, scratch, scratch.own_places, wider, count, hidden)


@njit(cache=True, nogil=True, forceinline=True)
def _rerank(
    rows: Any,
    vectors: Any,
    held: Any,
    queries: Any,
    m: Any,
    best: Any,
    depths: Any,
    buffers: Any,
) -> Any:
    """Score the best rows exactly, more of them where quick scores leave hits in doubt.

    Parameters
    ----------
    rows : RowAddresses
    vectors : (n, dim) float32
    held : QueryRows
    queries : Queries
    m : int
        Number of the query.
    best : (address of uint64, int, int)
        The best rows, how many there are, and the limit.
    depths : (Plan, bool, float)
        With the numbers of rows scored, whether the search was extended, and how many hits may be
        missed in the end, for each that is wanted.
    buffers : _Reranked
        Written in place.

    Returns
    -------
    scored, found : int
        Rows scored exactly, and how many of them reach min_score.
    missed : float
        Hits to be expected among the rows left out; see `rerank_depth`.
    """
    entries, size, limit = best
    plan, is_extended, max_missed = depths
    chosen, exact, ranked = buffers.rows, buffers.scores, buffers.ranked
    skipped, min_score = queries.skip[m], queries.min_score
    scored = found = 0
    missed = 0.0
    depth = plan.reranked_first
    enough = plan.reranked_extended if is_extended else plan.reranked_last
    tolerated = np.float64(TOLERATED_MISS)
    while True:
        known = scored
        scored = _choose(entries, size, skipped, depth, pointer(chosen))
        score_exactly(
            held,
            m,
            rows,
            pointer(vectors),
            offset(pointer(chosen), known),
            scored - known,
            offset(pointer(exact), known),
        )
        if scored <= _SHORT:
            found = rank_nearly_sorted(exact, chosen, scored, min_score, ranked)
        else:
            found = rank(exact, chosen, scored, min_score, ranked)
        last = ranked[limit - 1] if found >= limit else min_score
        if (plan.step > 0 or is_extended) and scored > 0:
            missed = hits_left_out(entries, size, skipped, pointer(exact), scored, last)
        if depth >= enough:
            tolerated = max_missed
        if scored < depth or depth >= plan.reranked_max or missed <= tolerated * limit:
            return scored, found, missed
        depth = min(max(2 * depth, plan.reranked_last), plan.reranked_max)


@njit(cache=True, nogil=True, forceinline=True)
def _outcome(
    best: Any, own: Any, visible: Any, missed: Any, queries: Any, m: Any, plan: Any, most: Any
) -> Any:
    """Return what became of a query; see `Outcome`.

    Parameters
    ----------
    best : (address of uint64, int, int)
        The best rows, how many there are, and the limit.
    own : int
        1 if a row is skipped, which takes one place among the best.
    visible : Visible
    missed : float
        Hits to be expected among the rows left out.
    queries, m : Queries, int
    plan : Plan
    most : float
        Missed hits that are accepted, for each that is wanted.
    """
    entries, size, limit = best
    if size < min(limit + own, visible.permitted_count):
        return Outcome.TOO_SMALL
    if score_at(entries, size, plan.judged + own) < plan.out_of_range:
        return Outcome.OUT_OF_RANGE
    if plan.step > 0:
        norm = np.float64(queries.norms[m])
        if abs(np.float64(queries.copy_norms[m]) * plan.step - norm) > _MAX_LOST * norm:
            return Outcome.QUANTIZED_AWAY
    if missed > most * limit:
        return Outcome.HITS_HIDDEN
    return Outcome.ANSWERED


def search_graph(
    graph: Graph, visible: Visible, queries: Queries, plan: Plan, scratch: Int64s, out: Found
) -> None:
    """Search for every query; searches of hard and foreign queries are extended.

    numba takes 1 µs to tell the type of a named tuple, and 0.1 µs for a plain one, so that plain
    ones cross the border.

    Parameters
    ----------
    graph : Graph
    visible : Visible
    queries : Queries
    plan : Plan
    scratch : (slots, 12) int64
        Addresses of each slot's arrays; see `beam_search.scratch_at`. `Scratch` owns them.
    out : Found, written in place
    """
    _search_graph(tuple(graph), tuple(visible), tuple(queries), tuple(plan), scratch, tuple(out))


@njit(cache=True, nogil=True)
def _search_graph(
    graph: Any, visible: Any, queries: Any, plan: Any, scratch: Int64s, out: Any
) -> None:
    """Do what `search_graph` does, given plain tuples."""
    _search(
        Graph(*uncounted(graph)),
        Visible(*uncounted(visible)),
        Queries(*uncounted(queries)),
        Plan(*uncounted(plan)),
        scratch,
        Found(*uncounted(out)),
    )


@njit(cache=True, nogil=True)
def _search(graph: Any, visible: Any, queries: Any, plan: Any, scratch: Int64s, out: Any) -> None:
    """Run the searches for all queries; see `search_graph`.

    Each slot of scratch memory holds the search for one query. It takes the next query once its
    hits have been re-ranked. All slots take their steps in turn, so that memory has time to answer.
    """
    rows = rows_at(graph.rows)
    m_all, tables = queries.keys.shape
    slots, limit = scratch.shape[0], out.scores.shape[1]
    first_pools = _pools_for(visible, plan.nearly_all)
    links = Links(pointer(graph.links), graph.links.shape[1], visible.count)
    entries = EntryTables(graph.segments, tables, ROWS_A_SIDE, np.empty(0, np.int32))
    keys_a_query = tables * graph.segments.shape[0]
    held = query_rows(rows.kind, queries)
    # A local array costs no count of references in the loop, one taken from a tuple does.
    keys, skip, beams, hidden = queries.keys, queries.skip, plan.beams, visible.hidden
    mask = visible.permitted
    scores, hit_rows, sizes, work = out.scores, out.rows, out.sizes, out.work
    recalls, outcomes, vectors = out.recalls, out.outcomes, graph.vectors
    stages = np.full(slots, _FREE, np.int64)
    numbers = np.empty(slots, np.int64)
    chosen = np.empty(plan.reranked_max, np.int64)
    exact = np.empty(plan.reranked_max, np.float64)
    ranked = np.empty(plan.reranked_max, np.float64)
    is_extended = np.zeros(slots, np.bool_)
    are_in_groups = np.zeros(slots, np.bool_)
    tied = np.float32(plan.tied)
    pools = np.full(slots, first_pools, np.int64)
    buffers = uncounted(_Reranked(chosen, exact, ranked))
    units = np.float32(1.0 / plan.step if plan.step > 0 else 0.0)
    known_work = plan.work
    upcoming = 0  # the next query
    placed = 0  # queries whose entry points are known
    left = m_all
    while left > 0:
        for s in range(slots):
            own_scratch = scratch_at(scratch[s])
            stage = stages[s]
            if stage == _FREE:
                if upcoming == m_all:
                    continue
                if upcoming == placed:  # slot m % slots holds the entry points of query m
                    placed = min(upcoming + slots, m_all)
                    first_keys = offset(pointer(keys), upcoming * tables)
                    find_entry_points(entries, first_keys, scratch, placed - upcoming)
                m = upcoming
                upcoming += 1
                numbers[s], stages[s], is_extended[s], pools[s] = m, _SEARCH, False, first_pools
                are_in_groups[s] = False
                begin(own_scratch)
                hold(held.quantized, m, own_scratch.table)
                places = scratch_at(scratch[m % slots]).places
                for i in range(keys_a_query):
                    put(own_scratch.own_places, i, at(places, i))
                enter(rows, own_scratch, own_scratch.own_places, entries, visible.count, hidden)
                continue
            m = numbers[s]
            own = np.int64(skip[m] >= 0)
            permitted = RowMask(pointer(mask), pools[s])
            query = _uncut(held_before(held.quantized, m, own_scratch.table), units, queries, m)
            if stage != _ENDED:
                beam = _beam(plan, stage, keys[m, 0], own)
                room = plan.room_under_filter
                if _step(rows, query, links, own_scratch, beam, permitted, room):
                    continue
                if at(own_scratch.state, SECOND_OVERFLOW) != 0:
                    pools[s] = HIT_POOL
                    begin_again(own_scratch)
                    continue
                best, size = best_rows(own_scratch, permitted)
                is_tied = not are_in_groups[s] and are_tied(best, size, own, tied, vectors)
                after = _stage_after((best, size), own, stage, plan, own_scratch, is_tied)
                if at(own_scratch.state, UNFINISHED) != 0:
                    after = _ENDED
                if is_tied and after != _ENDED:
                    are_in_groups[s] = True
                    begin_again(own_scratch)
                    query_keys = offset(pointer(keys), m * tables)
                    if not enter_buckets(
                        rows, own_scratch, entries, query_keys, visible.count, hidden
                    ):
                        put(own_scratch.state, UNFINISHED, 1)
                        after = _ENDED
                a_side = np.int64(ROWS_A_SIDE if after == _ENDED else beams[after - _SEARCH, 3])
                needed = at(own_scratch.state, MARKED) + 2 * a_side * keys_a_query
                # Where more entry points have no room, the query is left to the tables.
                if a_side > ROWS_A_SIDE and needed > own_scratch.room:
                    put(own_scratch.state, UNFINISHED, 1)
                    after = _ENDED
                stages[s] = after
                if after != _ENDED:
                    looks_again = plan.reranked_extended > plan.reranked_last
                    if looks_again and not is_extended[s] and not is_tied:
                        # The beam had no room for as many.
                        if permitted.pools != ONE_POOL or beam.slack != np.inf:
                            begin_again(own_scratch)
                        elif at(own_scratch.state, SIZE) == beam.capacity:
                            wider = _beam(plan, after, keys[m, 0], own)
                            admit_again(rows, query, own_scratch, wider)
                    is_extended[s] = True
                    if a_side > ROWS_A_SIDE:
                        _enter_wider(rows, own_scratch, entries, a_side, visible.count, hidden)
                    continue
                if rows.kind != SPARSE:  # scored at the next turn
                    best, size = best_rows(own_scratch, permitted)
                    _fetch_vectors(vectors, best, min(plan.reranked_first, size))
                    continue
            best, size = best_rows(own_scratch, permitted)
            hits = best, size, limit
            max_missed = plan.max_hidden if are_in_groups[s] else plan.max_missed
            depths = plan, is_extended[s], max_missed
            scored, found, missed = _rerank(rows, vectors, held, queries, m, hits, depths, buffers)
            ended = is_extended[s] or at(own_scratch.state, UNFINISHED) != 0
            if not ended and missed > plan.max_missed * limit and plan.borders[0, 0] > 0:
                begin_again(own_scratch)  # hits may be among rows that the beam had no room for
                stages[s], is_extended[s] = _HARD, True
                continue
            release(held.quantized, m, query)
            unmark(own_scratch.marks, at(own_scratch.state, MARKED))
            found = min(found, limit)
            for i in range(found):
                scores[m, i] = ranked[i]
                hit_rows[m, i] = chosen[i]
            sizes[m], recalls[m] = found, plan.recall
            for column in range(known_work.shape[0]):
                work[m, column] = known_work[column]
            work[m, CANDIDATES] = at(own_scratch.state, MARKED)
            work[m, SCORED_EXACTLY] = scored
            work[m, BEAM] = size
            outcomes[m] = _outcome(hits, own, visible, missed, queries, m, plan, max_missed)
            if at(own_scratch.state, UNFINISHED) != 0:
                outcomes[m] = Outcome.UNFINISHED
            stages[s] = _FREE
            left -= 1
    keep(chosen)
    keep(exact)
    keep(ranked)
