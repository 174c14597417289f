"""Search of a neighbour graph for many queries: enter, search, re-rank exactly."""

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import Float32s, Int64s
from gcws_search.index.kernels.graph.beam_search import (
    FOUND,
    MARKED,
    MIN_DISTANCE,
    SIZE,
    Beam,
    EntryTables,
    Graph,
    Links,
    RowMask,
    begin,
    enter,
    expand,
    find_entry_points,
    mark,
    scratch_at,
    unmark,
)
from gcws_search.index.kernels.graph.candidate_pool import row_of, score_of
from gcws_search.index.kernels.graph.queries import Queries, query_rows, score_exactly
from gcws_search.index.kernels.graph.rerank_depth import MAX_MISSED, TOLERATED_MISS, hits_left_out
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
"""Columns of a query's cost that are written here, numbered as in `hits.BatchHits`: rows scored
quickly, rows scored exactly, and rows that the beam held in the end."""


class Outcome(IntEnum):
    """What became of a query: hits, or the reason why the tables must answer it."""

    ANSWERED = 0
    TOO_SMALL = 1
    """Fewer permitted rows were found than wanted."""
    OUT_OF_RANGE = 2
    """The first or the last hit scores less than calibration saw of any query."""
    QUANTIZED_AWAY = 3
    """Quantization changes the query's norm too much."""
    HITS_HIDDEN = 4
    """Quantization does not tell the hits from rows that were not re-ranked."""


_FREE, _SEARCH, _EXTENSION, _RETRY, _ENDED = range(5)
"""What a slot is used for: nothing; a query's first search, its extension, or its second search;
an ended search that waits to be re-ranked."""
CONTRAST_PLACE = 10
"""The first hit's distance is compared with that of the hit at this place; a beam holds more."""
_SEEDS = 64
"""Rows of the first search's pool, and of its hits, with which the second begins, at most."""
_MAX_LOST = 0.5
"""Share of a query's norm that quantization may add or lose."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SCALE = 2.0**-24
_AHEAD = 256
"""Floats of a row that are prefetched."""


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
    beams : (3, 3) float64
        Of the first search, its extension and the second search: capacity of the beam, rows
        expanded at most, slack. See `beam_search.Beam`. A fraction of the second is the share of
        the queries that expand one more, chosen by their keys.
    wanted : int
        Hits by which a search ends, at least the limit.
    reranked_first, reranked_last : int
        Best rows scored exactly at first, at least the limit; and in all, where quantization may
        hide hits among those left out.
    step : float
        Unit of ``Queries.copy_norms``; 0 where nothing is quantized.
    low_contrast : float
        A search without a slack is extended if the first hit is farther away than the tenth, times
        this factor.
    low_score : float
        A query is searched for again if its last hit scores less, or it has too few; 0 for none.
    out_of_range_last, out_of_range_first : float
        The outcome is `OUT_OF_RANGE` if the last, or the first, hit scores less.
    """

    work: Any
    recall: Any
    beams: Any
    wanted: Any
    reranked_first: Any
    reranked_last: Any
    step: Any
    low_contrast: Any
    low_score: Any
    out_of_range_last: Any
    out_of_range_first: Any


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


class _Reranked(NamedTuple):
    """Rows that are scored exactly, room for ``Plan.reranked_last``: (r,) int64, float64 twice."""

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
def _best_rows(scratch: Any, filtered: bool) -> Any:
    """Return the address of the best permitted rows, and how many there are."""
    if filtered:
        return scratch.hits, at(scratch.state, FOUND)
    return scratch.pool, at(scratch.state, SIZE)


@njit(cache=True, nogil=True)
def _fetch_vectors(vectors: Float32s, best: Any, count: int) -> None:
    """Prefetch the float32 rows of the first entries of a pool."""
    for i in range(count):
        address = offset(pointer(vectors), row_of(at(best, i)) * vectors.shape[1])
        for line in range(0, min(vectors.shape[1], _AHEAD), NUMBERS_A_LINE):
            prefetch(offset(address, line))


@njit(cache=True, nogil=True)
def _choose(best: Any, size: Any, skip: Any, most: Any, out: Any) -> Any:
    """Write the rows of the first entries of a pool but for one; return how many."""
    count = 0
    for i in range(size):
        row = row_of(at(best, i))
        if count < most and row != skip:
            put(out, count, row)
            count += 1
    return count


@njit(cache=True, nogil=True)
def _score_at(best: Any, size: Any, place: Any) -> Any:
    """Return the quick score of the hit at a place, counted from 1, or of the last; 0 for none."""
    return score_of(at(best, min(size, place) - 1)) if size > 0 else np.float32(0.0)


@njit(cache=True, nogil=True)
def _has_low_contrast(best: Any, size: Any, own: Any, factor: Any) -> Any:
    """Return whether the first hit is about as far away as the one at `CONTRAST_PLACE`.

    A query among rows like it is near to some of them. From outside, all rows are about as far.
    """
    if size < own + CONTRAST_PLACE:
        return False
    first = np.float32(1.0) - score_of(at(best, own))
    last = np.float32(1.0) - score_of(at(best, own + CONTRAST_PLACE - 1))
    return first > factor * max(last, MIN_DISTANCE)


@njit(cache=True, nogil=True)
def _begin_again(rows: Any, scratch: Any) -> None:
    """Make scratch memory ready for a second search, from the best rows of the one before."""
    size, found = at(scratch.state, SIZE), at(scratch.state, FOUND)
    begin(scratch)
    marked = 0
    for i in range(min(size, _SEEDS)):
        marked = mark(scratch.marks, row_of(at(scratch.pool, i)), marked)
    for i in range(min(found, _SEEDS)):
        marked = mark(scratch.marks, row_of(at(scratch.hits, i)), marked)
    put(scratch.state, MARKED, marked)
    fetch_ahead(rows, scratch.marks.seen, 0, marked)


@njit(cache=True, nogil=True, forceinline=True)
def _stage_after(
    rows: Any, scratch: Any, filtered: Any, own: Any, enough: Any, stage: Any, plan: Any, limit: Any
) -> Any:
    """Return the stage of a query whose search has come to its end.

    Parameters
    ----------
    rows, scratch : RowAddresses, BeamScratch
    filtered : bool
    own : int
        1 if a row is skipped, which takes one place among the best.
    enough : int
        Rows that are found unless too few are permitted.
    stage : int
        `_SEARCH`, `_EXTENSION` or `_RETRY`.
    plan : Plan
    limit : int

    Returns
    -------
    int
        `_EXTENSION` or `_RETRY` for a search that goes on, else `_ENDED`.
    """
    best, size = _best_rows(scratch, filtered)
    if (
        stage == _SEARCH
        and plan.beams[0, 2] == np.inf
        and _has_low_contrast(best, size, own, np.float32(plan.low_contrast))
    ):
        return _EXTENSION
    unmark(scratch.marks, at(scratch.state, MARKED))
    if (
        stage != _RETRY
        and plan.low_score > 0
        and (size < enough or _score_at(best, size, limit) < plan.low_score)
    ):
        _begin_again(rows, scratch)
        return _RETRY
    return _ENDED


@njit(cache=True, nogil=True, forceinline=True)
def _rerank(
    rows: Any, vectors: Any, held: Any, queries: Any, m: Any, best: Any, plan: Any, buffers: Any
) -> Any:
    """Score the best rows exactly, more of them where quantization leaves hits in doubt.

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
    plan : Plan
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
    chosen, exact, ranked = buffers.rows, buffers.scores, buffers.ranked
    skipped, least = queries.skip[m], queries.min_score
    scored = found = 0
    missed = 0.0
    for most in (plan.reranked_first, plan.reranked_last):
        known = scored
        scored = _choose(entries, size, skipped, most, pointer(chosen))
        score_exactly(
            held,
            m,
            rows,
            pointer(vectors),
            offset(pointer(chosen), known),
            scored - known,
            offset(pointer(exact), known),
        )
        found = rank_nearly_sorted(exact, chosen, scored, least, ranked)
        last = ranked[limit - 1] if found >= limit else least
        if plan.step > 0 and scored > 0:
            missed = hits_left_out(entries, size, skipped, pointer(exact), scored, last)
        if scored < most or missed <= TOLERATED_MISS * limit:
            break
    return scored, found, missed


@njit(cache=True, nogil=True, forceinline=True)
def _outcome(best: Any, enough: Any, missed: Any, queries: Any, m: Any, plan: Any) -> Any:
    """Return what became of a query; see `Outcome`.

    Parameters
    ----------
    best : (address of uint64, int, int)
        The best rows, how many there are, and the limit.
    enough : int
        Rows that are found unless too few are permitted.
    missed : float
        Hits to be expected among the rows left out.
    queries, m : Queries, int
    plan : Plan
    """
    entries, size, limit = best
    if size < enough:
        return Outcome.TOO_SMALL
    if (
        _score_at(entries, size, limit) < plan.out_of_range_last
        or _score_at(entries, size, 1) < plan.out_of_range_first
    ):
        return Outcome.OUT_OF_RANGE
    if plan.step > 0:
        norm = np.float64(queries.norms[m])
        if abs(np.float64(queries.copy_norms[m]) * plan.step - norm) > _MAX_LOST * norm:
            return Outcome.QUANTIZED_AWAY
    if missed > MAX_MISSED * limit:
        return Outcome.HITS_HIDDEN
    return Outcome.ANSWERED


def search_graph(
    graph: Graph, visible: Visible, queries: Queries, plan: Plan, scratch: Int64s, out: Found
) -> None:
    """Search for every query, and once more with a wider beam where little was found.

    numba takes 1 µs to tell the type of a named tuple, and 0.1 µs for a plain one, so that plain
    ones cross the border.

    Parameters
    ----------
    graph : Graph
    visible : Visible
    queries : Queries
    plan : Plan
    scratch : (slots, 11) int64
        Addresses of each slot's arrays; see `beam_search.scratch_at`. `Scratch` owns them.
    out : Found, written in place
    """
    _search_graph(tuple(graph), tuple(visible), tuple(queries), tuple(plan), scratch, tuple(out))


@njit(cache=True, nogil=True)
def _search_graph(
    graph: Any, visible: Any, queries: Any, plan: Any, scratch: Int64s, out: Any
) -> None:
    """Do what `search_graph` does, given plain tuples."""
    _search(Graph(*graph), Visible(*visible), Queries(*queries), Plan(*plan), scratch, Found(*out))


@njit(cache=True, nogil=True)
def _search(graph: Any, visible: Any, queries: Any, plan: Any, scratch: Int64s, out: Any) -> None:
    """Run the searches for all queries; see `search_graph`.

    Each slot of scratch memory holds the search for one query. It takes the next query once its
    hits have been re-ranked. All slots take their steps in turn, so that memory has time to answer.
    """
    rows = rows_at(graph.rows)
    m_all, tables = queries.keys.shape
    slots, limit = scratch.shape[0], out.scores.shape[1]
    filtered = visible.permitted_count < visible.count
    permitted = RowMask(pointer(visible.permitted), filtered)
    links = Links(pointer(graph.links), graph.links.shape[1], visible.count)
    entries = EntryTables(graph.segments, tables)
    held = query_rows(rows.kind, queries)
    # A local array costs no count of references in the loop, one taken from a tuple does.
    keys, skip, beams, hidden = queries.keys, queries.skip, plan.beams, visible.hidden
    scores, hit_rows, sizes, work = out.scores, out.rows, out.sizes, out.work
    recalls, outcomes, vectors = out.recalls, out.outcomes, graph.vectors
    stages = np.full(slots, _FREE, np.int64)
    numbers = np.empty(slots, np.int64)
    marked = np.zeros(slots, np.int64)  # by searches that have ended
    chosen = np.empty(plan.reranked_last, np.int64)
    exact = np.empty(plan.reranked_last, np.float64)
    ranked = np.empty(plan.reranked_last, np.float64)
    buffers = _Reranked(chosen, exact, ranked)
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
                numbers[s], stages[s], marked[s] = m, _SEARCH, 0
                begin(own_scratch)
                hold(held.quantized, m, own_scratch.table)
                places = scratch_at(scratch[m % slots]).places
                enter(rows, own_scratch, places, entries, visible.count, hidden)
                continue
            m = numbers[s]
            own = np.int64(skip[m] >= 0)
            enough = min(limit + own, visible.permitted_count)
            query = held_before(held.quantized, m, own_scratch.table)
            if stage != _ENDED:
                which = stage - _SEARCH
                capacity = np.int64(beams[which, 0])
                beam = Beam(
                    capacity,
                    whole_number(beams[which, 1], keys[m, 0]) + own,
                    min(capacity, plan.wanted + own),
                    np.float32(beams[which, 2]),
                )
                if expand(rows, query, links, own_scratch, beam, permitted, 0):
                    continue
                seen = at(own_scratch.state, MARKED)
                after = _stage_after(rows, own_scratch, filtered, own, enough, stage, plan, limit)
                stages[s] = after
                if after != _EXTENSION:
                    marked[s] += seen
                if after != _ENDED:
                    continue
                if rows.kind != SPARSE:  # scored at the next turn
                    best, size = _best_rows(own_scratch, filtered)
                    _fetch_vectors(vectors, best, min(plan.reranked_first, size))
                    continue
            release(held.quantized, m, query)
            best, size = _best_rows(own_scratch, filtered)
            hits = best, size, limit
            scored, found, missed = _rerank(rows, vectors, held, queries, m, hits, plan, buffers)
            found = min(found, limit)
            for i in range(found):
                scores[m, i] = ranked[i]
                hit_rows[m, i] = chosen[i]
            sizes[m], recalls[m] = found, plan.recall
            for column in range(known_work.shape[0]):
                work[m, column] = known_work[column]
            work[m, CANDIDATES] = marked[s]
            work[m, SCORED_EXACTLY] = scored
            work[m, BEAM] = size
            outcomes[m] = _outcome(hits, enough, missed, queries, m, plan)
            stages[s] = _FREE
            left -= 1
