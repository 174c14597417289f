"""The stages of a query on the neighbour graph, for a batch: enter, search, extend, re-rank."""

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Int64s
from gcws_search.index.kernels.compiling import inlined, inner, kernel
from gcws_search.index.kernels.graph.beam_search import (
    STATE,
    Beam,
    Graph,
    admit_dropped,
    begin,
    begin_again,
    best_rows,
    expand,
    expand_filtered,
    links_at,
    lowest_within,
    scratch_at,
    slack_within,
    unmark,
)
from gcws_search.index.kernels.graph.candidate_pool import row_of, score_of
from gcws_search.index.kernels.graph.entry_points import (
    ROWS_A_SIDE,
    EntryTables,
    enter,
    enter_buckets,
    find_entry_points,
)
from gcws_search.index.kernels.graph.queries import (
    Queries,
    quantize_queries,
    query_keys,
    query_rows,
    score_exactly,
)
from gcws_search.index.kernels.graph.rerank_depth import TOLERATED_MISS, hits_left_out
from gcws_search.index.kernels.graph.tiers import (
    CONTRAST_PLACE,
    count_tied,
    has_low_contrast,
    score_at,
)
from gcws_search.index.kernels.hashing.gcws_table import Hashing
from gcws_search.index.kernels.lanes.vector import (
    NUMBERS_A_LINE,
    at,
    keep,
    offset,
    pointer,
    prefetch,
    put,
    uncounted,
)
from gcws_search.index.kernels.ordering.hits import rank
from gcws_search.index.kernels.quantized.rows import (
    SPARSE,
    QueryAddresses,
    held_before,
    hold,
    release,
    rows_at,
    vectors_at,
)

CANDIDATES, SCORED_EXACTLY, BEAM = 3, 4, 5
"""Columns of a query's cost that are written here, numbered as in `hits.BatchHits`: rows scored
quickly, rows scored exactly, and rows that the beam held in the end."""


class Outcome(IntEnum):
    """The result of a query: hits, or the reason why the tables must answer it."""

    ANSWERED = 0
    TOO_SMALL = 1
    """Fewer permitted rows were found than requested."""
    OUT_OF_RANGE = 2
    """The hits score less than those of nearly all calibration queries."""
    QUANTIZED_AWAY = 3
    """Quantization changes the query's norm too much."""
    HITS_HIDDEN = 4
    """Quantization does not separate the hits from rows that were not re-ranked."""
    UNFINISHED = 5
    """The search saw the maximum number of rows, and more were left to expand."""


_FREE, _SEARCHING, _ENDED = range(3)
"""What a slot is used for: nothing, a search, or one that has ended and is to be re-ranked."""
_LEVEL_NUMBERS = 6
"""Numbers of a `Level`."""
_MIN_CUT = np.float32(0.02)
"""Quantization changes the norm of a row within its range by no more than this share."""
_MAX_LOST = 0.5
"""Share of a query's norm that quantization may add or lose."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SCALE = 2.0**-24
_SHORT = 128
"""Rows that are quickest put in order by insertion."""


class Visible(NamedTuple):
    """The rows that one search sees; rows from ``count`` on are newer than it.

    ``permitted`` (count,) uint8 has ``permitted_count`` ones. ``hidden``, as long or empty, is 1
    for rows without links to them, which are treated as if absent.
    """

    count: Any
    permitted: Any
    permitted_count: Any
    hidden: Any


class Level(NamedTuple):
    """The extent of a search: the first one, and each of its extensions.

    A query reaches a level if its judged hit scores less than ``score``, or if its first hit is
    farther away than the tenth times ``contrast``.
    """

    capacity: Any  # for these and the slack see `beam_search.Beam`
    max_expanded: Any  # the fraction is the share of queries, by key, that expand one more
    slack: Any
    rows_a_side: Any  # entry points on each side of a key
    score: Any
    contrast: Any


class Plan(NamedTuple):
    """How queries are searched for."""

    tables: Any  # number of entry tables
    work: Any  # (6,) int64: of each query, as far as known in advance; see `hits.BatchHits`
    recall: Any  # expected
    levels: Any  # (l, 6) float64: the first search and its extensions; see `Level`
    wanted: Any  # hits that end a search, at least the limit
    judged: Any  # place of the judged hit, from 1 on
    # A query also gets the first extension if this many rows that are not permitted are nearer than
    # the judged hit; 0 for none.
    crowded: Any
    # So does, once, a query whose first hits differ by less in distance; see `tiers.count_tied`.
    # Its search continues with its whole buckets, and expands all rows that tie with its last hit.
    tied: Any
    nearest: Any  # quantized rows hardly resolve distances smaller than this
    out_of_range: Any  # the outcome is `OUT_OF_RANGE` if the judged hit scores less
    # (4,) int64, best rows scored exactly: at first, at least the limit; until no hit is in doubt,
    # in a first search, and in an extended one; and the maximum.
    reranked: Any
    step: Any  # of quantized rows; 0 if nothing is quantized
    origin: Any  # the byte of the value 0
    max_missed: Any  # accepted missed hits per requested hit
    max_hidden: Any  # the same if the first hits tie


class Found(NamedTuple):
    """The output of a search for m queries, in place: the arrays of `hits.BatchHits`."""

    scores: Any
    rows: Any
    sizes: Any
    work: Any
    recalls: Any
    outcomes: Any  # (m,) uint8 of `Outcome`


@inner
def whole_number(mean: float, key: np.uint64) -> int:
    """Return the integer below or above a number, with that number as mean over keys."""
    below = np.int64(mean)
    drawn = np.float64((key * _GOLDEN) >> np.uint64(40)) * _SCALE
    return below + 1 if drawn < mean - below else below


@inner
def _fetch_vectors(vectors: Any, best: Any, count: int) -> None:
    """Prefetch the rows of the first entries of a pool; not bytes, which have been read."""
    for i in range(count if vectors.stride == 0 else 0):
        address = offset(vectors.floats, row_of(at(best, i)) * vectors.width)
        for line in range(0, vectors.width, NUMBERS_A_LINE):
            prefetch(offset(address, line))


@inner
def _choose(best: Any, size: Any, skip: Any, max_rows: Any, out: Any) -> Any:
    """Write the rows of the first entries of a pool, except ``skip``; return their number."""
    count = 0
    for i in range(size):
        if count == max_rows:
            break
        row = row_of(at(best, i))
        put(out, count, row)
        count += np.int64(row != skip)
    return count


@inlined
def _level(levels: Any, level: Any) -> Any:
    """Return a level, given the address of all levels."""
    row = offset(levels, _LEVEL_NUMBERS * level)
    return Level(at(row, 0), at(row, 1), at(row, 2), at(row, 3), at(row, 4), at(row, 5))


@inlined
def _come_to(state: Any, levels: Any, number: Any) -> None:
    """Set the extent of a search to that of a level."""
    level = _level(levels, number)
    state.level, state.capacity, state.slack = number, np.int64(level.capacity), level.slack


@inlined
def _step(
    rows: Any,
    query: Any,
    links: Any,
    state: Any,
    scratch: Any,
    levels: Any,
    wanted: Any,
    key: Any,
    permitted: Any,
    is_filtered: Any,
) -> Any:
    """Expand a row of a search; return whether there is a further step."""
    own, capacity = state.own, state.capacity
    max_expanded = whole_number(_level(levels, state.level).max_expanded, key) + own
    beam = Beam(capacity, max_expanded, min(capacity, wanted + own), np.float32(state.slack))
    if is_filtered:
        return expand_filtered(rows, query, links, state, scratch, beam, permitted)
    return expand(rows, query, links, state, scratch, beam, 0)


@inlined
def _next_level(best: Any, state: Any, scratch: Any, plan: Any) -> Any:
    """Return the level that a query reaches by its hits; 0 if it goes no farther."""
    entries, size = best
    own, judged = state.own, plan.judged + state.own
    score = score_at(entries, size, judged) if size >= judged else np.float32(0.0)
    is_first = state.level == 0 and size > 0
    if is_first and 0 < plan.crowded < state.size:
        last = at(entries, min(judged, size) - 1)
        if at(scratch.pool, plan.crowded) > last:
            return 1
    for level in range(state.level + 1, plan.levels.shape[0]):
        lowest, factor = plan.levels[level, 4], plan.levels[level, 5]
        if score < lowest or has_low_contrast(
            entries, size, own, np.float32(factor), np.float32(plan.nearest)
        ):
            return level
    return 0


@inner
def _extend(
    rows: Any,
    vectors: Any,
    query: Any,
    state: Any,
    scratch: Any,
    best: Any,
    plan: Any,
    entries: Any,
    visible: Any,
    keys: Any,
) -> Any:
    """Extend the search of a hard query, judged by its best rows; return whether it continues.

    If an extension needs more room than there is, the search is cut.
    """
    if state.is_cut != 0 or plan.levels.shape[0] == 1:
        return False
    is_filtered, is_first = visible.permitted_count < visible.count, state.level == 0
    hits, size = best
    level, tied = _next_level(best, state, scratch, plan), 0
    if state.tied == 0:
        tied = count_tied(hits, size, state.own, np.float32(plan.tied), vectors)
    if tied > 0:
        level, state.tied = max(state.level, 1), tied
    if level == 0:
        return False
    _come_to(state, pointer(plan.levels), level)
    if state.tied > 0:
        state.capacity = scratch.room
    if state.tied == CONTRAST_PLACE:  # rows in the middle of a group lead to all others
        last = score_at(hits, size, plan.wanted + state.own)
        state.slack = max(state.slack, slack_within(np.float32(plan.tied), last))
    bound = lowest_within(hits, size, plan.wanted + state.own, np.float32(state.slack))
    state.bound, state.hits_end = bound, 0
    if tied > 0:
        begin_again(state)
        state.bound = bound
        if tied == CONTRAST_PLACE:
            enter_buckets(rows, state, scratch, entries, keys, visible.count, visible.hidden)
    elif is_first and plan.reranked[2] > plan.reranked[1]:
        first = _level(pointer(plan.levels), 0)
        if is_filtered or first.slack < np.inf:
            begin_again(state)  # the beam had no room for as many
        elif state.size == np.int64(first.capacity):
            admit_dropped(rows, query, state, scratch, bound)
    a_side = np.int64(plan.levels[level, 3])
    if a_side > ROWS_A_SIDE:
        keys_a_query = entries.tables * entries.segments.shape[0]
        if state.seen + 2 * a_side * keys_a_query > scratch.room:
            state.is_cut = 1
            return False
        wider = EntryTables(entries.segments, entries.tables, a_side, entries.leaders)
        enter(rows, state, scratch, scratch.own_places, wider, visible.count, visible.hidden)
    return True


@inlined
def _search_farther(state: Any, levels: Any, room: Any) -> None:
    """Continue a search whose hits may be among rows that its beam had no room for."""
    slack = state.slack
    begin_again(state)
    state.stage = _SEARCHING
    _come_to(state, levels, state.level + 1)
    if state.tied > 0:  # it has seen a whole group
        state.capacity, state.slack = room, max(slack, state.slack)


@inlined
def _uncut(query: Any, units: Any, queries: Any, m: Any) -> Any:
    """Return a query with the part of its norm for which a copy has no room."""
    cut = queries.norms[m] * units - query.norm
    if cut < _MIN_CUT * query.norm:
        cut = np.float32(0.0)
    return QueryAddresses(query.copy, query.norm, query.table, query.shift, cut)


@inlined
def _rerank(
    rows: Any, vectors: Any, held: Any, queries: Any, state: Any, best: Any, plan: Any, buffers: Any
) -> Any:
    """Score the best rows exactly, and more of them if quick scores leave hits in doubt.

    ``best`` has the address of the best rows, their number, and the limit. Rows, exact scores and
    ranked scores are written into ``buffers``. Returns the number of rows scored exactly, how many
    of them reach min_score, and the expected hits among the excluded rows, per requested hit.
    """
    entries, size, limit = best
    chosen, exact, ranked = buffers
    m, min_score = state.query, queries.min_score
    skipped, is_extended = queries.skip[m], state.level > 0
    scored = found = 0
    missed = 0.0
    depth, enough, most = plan.reranked[0], plan.reranked[1], plan.reranked[3]
    if is_extended:
        enough = plan.reranked[2]
    while True:
        known = scored
        scored = _choose(entries, size, skipped, depth, pointer(chosen))
        new, out = offset(pointer(chosen), known), offset(pointer(exact), known)
        score_exactly(held, m, rows, vectors, new, scored - known, out)
        found = rank(exact, chosen, scored, min_score, scored <= _SHORT, ranked)
        last = ranked[limit - 1] if found >= limit else min_score
        if (plan.step > 0 or is_extended) and scored > 0:
            bound = score_of(state.bound)
            missed = hits_left_out(entries, size, skipped, pointer(exact), scored, last, bound)
            missed /= limit
        tolerated = TOLERATED_MISS if depth < enough else _accepted(plan, state)
        if scored < depth or depth >= most or missed <= tolerated:
            return scored, found, missed
        depth = min(2 * depth, most)


@inlined
def _accepted(plan: Any, state: Any) -> Any:
    """Return the accepted number of missed hits, per requested hit."""
    return plan.max_hidden if state.tied > 0 else plan.max_missed


@inlined
def _outcome(best: Any, state: Any, visible: Any, missed: Any, norms: Any, plan: Any) -> Any:
    """Return the outcome of a query; see `Outcome`. ``norms``: its own, and that of its copy."""
    entries, size, limit = best
    if state.is_cut != 0:
        return Outcome.UNFINISHED
    if size < min(limit + state.own, visible.permitted_count):
        return Outcome.TOO_SMALL
    if score_at(entries, size, plan.judged + state.own) < plan.out_of_range:
        return Outcome.OUT_OF_RANGE
    if plan.step > 0:
        norm = np.float64(norms[0])
        lost = abs(np.float64(norms[1]) * plan.step - norm)
        if lost > _MAX_LOST * norm:
            return Outcome.QUANTIZED_AWAY
    if missed > _accepted(plan, state):
        return Outcome.HITS_HIDDEN
    return Outcome.ANSWERED


@kernel
def search_graph(
    graph: Graph,
    visible: Visible,
    queries: Queries,
    hashing: Hashing,
    plan: Plan,
    scratch: Int64s,
    out: Found,
) -> None:
    """Search for every query; searches for hard queries are extended.

    `Scratch` owns the (slots, ADDRESSES) of each slot's arrays.
    """
    _search(
        Graph(*uncounted(graph)),
        Visible(*uncounted(visible)),
        Queries(*uncounted(queries)),
        Hashing(*uncounted(hashing)),
        Plan(*uncounted(plan)),
        scratch,
        Found(*uncounted(out)),
    )


@inner
def _search(
    graph: Any, visible: Any, queries: Any, hashing: Any, plan: Any, scratch: Int64s, out: Any
) -> None:
    """Run the searches for all queries: hash, quantize, enter, search, extend, re-rank.

    Each slot of working memory has the search for one query. It takes the next query once the hits
    have been re-ranked. The steps of all slots are interleaved, to hide memory latency.
    """
    rows = rows_at(graph.rows)
    m_all, tables = len(queries.norms), plan.tables
    slots, limit = scratch.shape[0], out.scores.shape[1]
    is_filtered = visible.permitted_count < visible.count
    links = links_at(graph.links, visible.count)
    entries = EntryTables(graph.segments, tables, ROWS_A_SIDE, np.empty(0, np.int32))
    drawn = query_keys(queries, hashing, tables)
    block, start, copy_norms = quantize_queries(rows, queries, plan.step, plan.origin)
    copies = offset(pointer(block), start)
    held = query_rows(rows, queries, copies, pointer(copy_norms))
    vectors = vectors_at(graph.rows)
    wanted, most = plan.wanted, plan.reranked[3]
    chosen, exact, ranked = np.empty(most, np.int64), np.empty(most), np.empty(most)
    buffers = uncounted((chosen, exact, ranked))
    units = np.float32(1.0 / plan.step if plan.step > 0 else 0.0)
    # An array taken from a tuple is reference-counted each time; an address is not.
    levels, keys, permitted = (pointer(plan.levels), pointer(drawn), pointer(visible.permitted))
    states = np.zeros(slots, STATE)
    upcoming = placed = 0  # the next query; number of queries with known entry points
    left = m_all
    while left > 0:
        for s in range(slots):
            own, state = scratch_at(scratch[s]), states[s]
            if state.stage == _FREE:
                if upcoming == m_all:
                    continue
                if upcoming == placed:  # slot m % slots has the entry points of query m
                    placed = min(upcoming + slots, m_all)
                    first_keys = offset(keys, upcoming * tables)
                    find_entry_points(entries, first_keys, scratch, placed - upcoming)
                begin(state)
                state.stage, state.query, state.tied = _SEARCHING, upcoming, 0
                _come_to(state, levels, 0)
                state.own = np.int64(queries.skip[upcoming] >= 0)
                hold(held.quantized, upcoming, own.table)
                places = scratch_at(scratch[upcoming % slots]).places
                for i in range(tables * graph.segments.shape[0]):
                    put(own.own_places, i, at(places, i))
                enter(rows, state, own, own.own_places, entries, visible.count, visible.hidden)
                upcoming += 1
                continue
            m = state.query
            query = _uncut(held_before(held.quantized, m, own.table), units, queries, m)
            if state.stage == _SEARCHING:
                own_keys = offset(keys, m * tables)
                key = at(own_keys, 0)
                if _step(
                    rows, query, links, state, own, levels, wanted, key, permitted, is_filtered
                ):
                    continue
                best = best_rows(state, own, is_filtered)
                if _extend(
                    rows, vectors, query, state, own, best, plan, entries, visible, own_keys
                ):
                    continue
                state.stage = _ENDED
                if rows.kind != SPARSE:  # scored in the next step
                    _fetch_vectors(vectors, best[0], min(plan.reranked[0], best[1]))
                    continue
            best = best_rows(state, own, is_filtered)
            hits = best[0], best[1], limit
            scored, found, missed = _rerank(
                rows, vectors, held, queries, state, hits, plan, buffers
            )
            accepted = plan.max_missed if state.level == 0 else _accepted(plan, state)
            if missed > accepted and state.is_cut == 0 and state.level + 1 < plan.levels.shape[0]:
                _search_farther(state, levels, own.room)
                continue
            release(held.quantized, m, query)
            unmark(own.marks, state.seen)
            found = min(found, limit)
            for i in range(found):
                out.scores[m, i] = ranked[i]
                out.rows[m, i] = chosen[i]
            out.sizes[m], out.recalls[m] = found, plan.recall
            for column in range(plan.work.shape[0]):
                out.work[m, column] = plan.work[column]
            out.work[m, CANDIDATES] = state.seen
            out.work[m, SCORED_EXACTLY] = scored
            out.work[m, BEAM] = best[1]
            norms = queries.norms[m], copy_norms[m]
            out.outcomes[m] = _outcome(hits, state, visible, missed, norms, plan)
            state.stage = _FREE
            left -= 1
    keep(drawn)
    keep(block)
    keep(copy_norms)
    keep(states)
    keep(chosen)
    keep(exact)
    keep(ranked)
