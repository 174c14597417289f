"""Best-first beam search of a neighbour graph.

A pool has the best rows seen so far. Each step expands the best unexpanded row of the pool: its
neighbours are scored and inserted. The search ends when every row of the pool is expanded. It also
ends when the next row is too far away: farther than the last wanted hit by a factor called slack.
Rows that are not permitted are expanded too, but only permitted ones are hits and end a search.
Their entries in the pool are marked, and the pool has additional room for them.

Source: the greedy search of navigable graphs (HNSW, NSG), entered by hash tables; ended as in
"Distance Adaptive Beam Search for Provably Accurate Graph-Based Nearest Neighbor Search"
(Al-Jazzazi et al., 2025).
"""

from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Int64s
from gcws_search.index.kernels.compiling import inlined, inner
from gcws_search.index.kernels.graph.candidate_pool import (
    EXPANDED,
    REJECTED,
    entry,
    first_unexpanded,
    insert_all,
    place_of,
    place_of_hit,
    row_of,
    score_of,
    set_expanded,
)
from gcws_search.index.kernels.lanes.vector import (
    at,
    int32_at,
    offset,
    pointer,
    pointer_to_float32,
    pointer_to_int32,
    pointer_to_int64,
    pointer_to_uint64,
    prefetch,
    put,
)
from gcws_search.index.kernels.quantized.l1_distance import REGISTER_BYTES
from gcws_search.index.kernels.quantized.rows import fetch_ahead, score_rows

_ONE = np.uint64(1)
_NOTHING = np.uint64(0)
_ZERO = np.float32(0.0)
_ONE_FLOAT = np.float32(1.0)
_REJECTED_SHIFT = np.uint64(1)
MIN_DISTANCE = np.float32(0.02)
"""A slack is a share of this distance at least."""
MIN_SEEN = 32
"""No count of expansions ends a search that has seen fewer rows. Most rows of a tight group have
few links, to the one in the middle: a search would end before it sees that it is in a group."""

NONE = -1
"""Fills the places behind a row's last neighbour."""

STATE = np.dtype(
    [
        ("size", np.int64),  # entries in the pool
        ("rejected", np.int64),  # inserted rows that are not permitted
        ("here", np.int64),  # place of the best unexpanded entry
        ("seen", np.int64),  # marked rows
        ("scored", np.int64),  # scored rows, the first ones of those marked
        ("expansions", np.int64),  # expanded rows
        ("bound", np.uint64),  # entries below this one are useless
        ("hits_end", np.int64),  # place of the last wanted hit among all rows; 0 if unknown
        ("last_place", np.int64),  # the same for the last hit to be expanded; see `Beam`
        ("has_ended", np.int64),  # whether there is no further step
        ("is_cut", np.int64),  # whether the search ended for lack of room
        ("stage", np.int64),  # of a query's search; see `batch_search`
        ("query", np.int64),  # number of its query
        ("own", np.int64),  # 1 if it skips a row, which takes one place among the best
        ("level", np.int64),  # number of its level; 0 for the first search
        ("capacity", np.int64),  # of the beam at that level; see `Beam`
        ("slack", np.float64),  # the same
        ("tied", np.int64),  # how many of its first hits tie
    ]
)
"""Where one search is. All zeros at its beginning."""


class Graph(NamedTuple):
    """A neighbour graph with its rows and its entry tables."""

    rows: Any  # (11,) int64: see `rows_at` and `vectors_at`; `QuantizedView` owns them
    # (s, 6) int64: addresses of the keys and rows of each segment, as if it had all tables from the
    # first on, (L, count), and count; its first table and the end of its tables; the number of rows
    # that it represents. `lsh.tables` owns them.
    segments: Any
    # (n, width, size) uint8 of a `LinkArray`: neighbours of each row, best first, then `NONE`.
    links: Any


class Links(NamedTuple):
    """The neighbours of all rows, by address: ``width`` places of ``size`` bytes per row.

    Neighbours from row ``count`` on are ignored: they are newer than this search.
    """

    first: Any
    width: Any
    size: Any
    count: Any


class Beam(NamedTuple):
    """The width of a search, and its end.

    Without a slack, the search ends once the best ``max_expanded`` permitted rows and all nearer
    rows are expanded, and `MIN_SEEN` rows are seen. Expansions of rows that were overtaken do not
    count. Neither do rows that tie with the last of them, while hits better than the last wanted
    one may still be found.
    """

    capacity: Any  # permitted rows that fit into the pool
    max_expanded: Any  # maximum number of expanded rows
    wanted: Any  # number of hits, at most ``capacity``
    slack: Any  # float32: see `farthest_score`; infinite for none


class Marks(NamedTuple):
    """Rows that a search has seen, by address: one bit per row, and a list of the marked rows.

    All bits are 0 between searches.
    """

    words: Any
    seen: Any


class BeamScratch(NamedTuple):
    """Working memory of a search, by address, allocated once for many searches."""

    marks: Any
    room: Any  # rows that can be marked, and entries of ``pool``
    pool: Any
    fresh: Any  # entries to insert
    scores: Any
    table: Any  # float32, all 0 between uses; see `quantized.rows.hold`
    other_table: Any
    places: Any  # of keys in tables, for all queries of the call
    own_places: Any  # the same for the query of this search


ADDRESSES = 10
"""Numbers from which `scratch_at` makes the memory of one search."""


@inner
def scratch_at(addresses: Int64s) -> Any:
    """Return working memory by the addresses of its arrays, in the order of `BeamScratch`."""
    return BeamScratch(
        Marks(pointer_to_uint64(addresses[0]), pointer_to_int32(addresses[1])),
        addresses[2],
        pointer_to_uint64(addresses[3]),
        pointer_to_uint64(addresses[4]),
        pointer_to_float32(addresses[5]),
        pointer_to_float32(addresses[6]),
        pointer_to_float32(addresses[7]),
        pointer_to_int64(addresses[8]),
        pointer_to_int64(addresses[9]),
    )


@inner
def mark(marks: Any, row: Any, count: Any) -> Any:
    """Mark a row and return the number of marked rows, unchanged if it was marked already.

    Half of the rows met are marked already, without a pattern, so this has no branch.
    """
    word = row >> 6
    place = np.uint64(row & 63)
    held = at(marks.words, word)
    put(marks.words, word, held | (_ONE << place))
    put(marks.seen, count, row)
    return count + 1 - np.int64((held >> place) & _ONE)


@inner
def unmark(marks: Any, count: Any) -> None:
    """Clear all marks."""
    for i in range(count):
        put(marks.words, np.int64(at(marks.seen, i)) >> 6, np.uint64(0))


@inner
def begin(state: Any) -> None:
    """Begin a search without seen rows."""
    state.seen = state.expansions = state.has_ended = state.is_cut = 0
    begin_again(state)


@inner
def begin_again(state: Any) -> None:
    """Let the next step score all seen rows again, for a larger beam."""
    state.size = state.rejected = state.here = state.scored = state.hits_end = 0
    state.bound = _NOTHING


@inner
def admit_dropped(rows: Any, query: Any, state: Any, scratch: Any, bound: Any) -> None:
    """Add rows that a full pool has dropped, down to a bound, to a larger beam.

    A dropped row is less than every row in the pool; none of these is rejected.
    """
    pool, size, last = scratch.pool, state.size, at(scratch.pool, state.size - 1) & ~EXPANDED
    score_rows(rows, query, scratch.marks.seen, 0, state.scored, scratch.scores)
    count = 0
    for i in range(state.scored):
        new = entry(at(scratch.scores, i), np.int64(at(scratch.marks.seen, i)))
        put(scratch.fresh, count, new)
        count += np.int64(bound <= new < last)
    state.size = insert_all(pool, size, state.capacity, scratch.fresh, count)


@inlined
def links_at(links: Any, count: Any) -> Links:
    """Return the links of `Graph.links` for a search that knows ``count`` rows."""
    return Links(pointer(links), links.shape[1], links.shape[2], count)


@inlined
def line_of(links: Any, row: Any) -> Any:
    """Return the address of a row's neighbours, for `neighbour_at`."""
    return offset(links.first, row * (links.width * links.size))


@inlined
def neighbour_at(line: Any, place: Any, size: Any) -> Any:
    """Return the neighbour at a place of ``size`` bytes; negative after the last one."""
    unused = 32 - 8 * size  # bits read beyond a number of three bytes
    return np.int64(np.int32(int32_at(line, place * size) << unused) >> unused)


@inner
def fetch_links(links: Any, row: Any) -> None:
    """Prefetch a row's neighbours."""
    address = line_of(links, row)
    for byte in range(0, links.width * links.size, REGISTER_BYTES):
        prefetch(offset(address, byte))


@inner
def _mark_neighbours(rows: Any, links: Any, row: Any, marks: Any, marked: Any) -> Any:
    """Mark a row's neighbours, prefetch the new ones, and return the number of marked rows."""
    own = line_of(links, row)
    before = marked
    for j in range(links.width):
        neighbour = neighbour_at(own, j, links.size)
        if neighbour < 0:
            break
        if neighbour < links.count:
            marked = mark(marks, neighbour, marked)
    fetch_ahead(rows, marks.seen, before, marked)
    return marked


@inner
def farthest_score(score: Any, slack: Any) -> Any:
    """Return the minimum score of a row to be expanded, given that of the last wanted hit.

    That is, d ≤ d(last hit) + (slack − 1) · max(d(last hit), `MIN_DISTANCE`), d = 1 − score.
    """
    distance = _ONE_FLOAT - score
    return score - (slack - _ONE_FLOAT) * max(distance, MIN_DISTANCE)


@inner
def lowest_within(pool: Any, size: Any, wanted: Any, slack: Any) -> Any:
    """Return the minimum entry of a row to be expanded, given the place of the last wanted hit."""
    if size < wanted:
        return _NOTHING
    lowest = farthest_score(score_of(at(pool, wanted - 1)), slack)
    return entry(max(lowest, _ZERO), 0)


@inner
def slack_within(distance: Any, score: Any) -> Any:
    """Return the slack that expands rows up to a distance beyond that of a hit."""
    return _ONE_FLOAT + distance / max(_ONE_FLOAT - score, MIN_DISTANCE)


@inner
def best_rows(state: Any, scratch: Any, is_partial: Any) -> Any:
    """Return the address of the best permitted rows, and their number.

    They are valid up to the next step.
    """
    if not is_partial or state.rejected == 0:
        return scratch.pool, state.size
    count = 0
    for i in range(state.size):
        held = at(scratch.pool, i)
        put(scratch.fresh, count, held)
        count += np.int64(held & REJECTED == 0)
    return scratch.fresh, count


@inlined
def expand(
    rows: Any, query: Any, links: Any, state: Any, scratch: Any, beam: Any, salt: Any
) -> Any:
    """Score the rows prefetched by the previous step, then expand the best unexpanded row.

    Return whether there is a further step. Several searches run interleaved, to hide memory
    latency. Entries of the pool are `salted` by ``salt``; if it is 0, tied rows are ordered by
    falling number.
    """
    # A constant False, so that the compiler drops the code for the mask. Any address will do.
    return _expand(rows, query, links, state, scratch, beam, rows.copies, False, salt)


@inner
def expand_filtered(
    rows: Any, query: Any, links: Any, state: Any, scratch: Any, beam: Any, permitted: Any
) -> Any:
    """Like `expand`; only rows with a non-zero uint8 in the mask at an address may be hits."""
    return _expand(rows, query, links, state, scratch, beam, permitted, True, 0)


@inlined
def _expand(
    rows: Any,
    query: Any,
    links: Any,
    state: Any,
    scratch: Any,
    beam: Any,
    permitted: Any,
    is_filtered: Any,
    salt: Any,
) -> Any:
    """Like `expand`, with or without a mask."""
    pool, fresh = scratch.pool, scratch.fresh
    size, here, seen, scored = state.size, state.here, state.seen, state.scored
    bound, ahead = state.bound, at(pool, here) if here < size else _NOTHING
    # All scores come before the unpredictable branches: a misprediction then does not discard
    # scores in progress.
    score_rows(rows, query, scratch.marks.seen, scored, seen, scratch.scores)
    count, capacity = 0, beam.capacity
    best = _NOTHING
    for i in range(seen - scored):
        row = np.int64(at(scratch.marks.seen, scored + i))
        new = entry(at(scratch.scores, i), row ^ salt)
        put(fresh, count, new)
        count += np.int64(new >= bound)
        best = max(best, new)
    if best < bound:  # it is not inserted, and has no place
        best = _NOTHING
    if is_filtered:
        rejected = state.rejected
        for i in range(count):
            new = at(fresh, i)
            is_rejected = np.int64(at(permitted, row_of(new)) == 0)
            put(fresh, i, new | (np.uint64(is_rejected) << _REJECTED_SHIFT))
            rejected += is_rejected
        state.rejected = rejected
        capacity = min(capacity + rejected, scratch.room)
    size = insert_all(pool, size, capacity, fresh, count)
    overtakes = best > ahead
    here = place_of(pool, best | REJECTED) if overtakes else first_unexpanded(pool, size, here)
    wanted, last = beam.wanted, beam.max_expanded
    if is_filtered and state.rejected > 0:
        wanted, last = _hit_places(pool, size, state, beam, best)
    bound = lowest_within(pool, size, wanted, beam.slack)
    if size >= capacity:
        bound = max(bound, at(pool, capacity - 1))
    going = here < size and at(pool, here) >= bound
    if going and beam.slack == np.inf:
        going = here < last or seen < MIN_SEEN or _ties(pool, size, here, last, wanted)
    elif going and state.expansions >= last:
        going = False
        state.is_cut = 1
    if going and seen + links.width > scratch.room:
        going = False
        state.is_cut = 1
    if going and overtakes:  # its neighbours are not prefetched yet
        fetch_links(links, row_of(best) ^ salt)
    elif going:
        set_expanded(pool, here)
        state.expansions += 1
        row = row_of(at(pool, here)) ^ salt
        state.seen = _mark_neighbours(rows, links, row, scratch.marks, seen)
        following = first_unexpanded(pool, size, here + 1)
        if following < size:
            fetch_links(links, row_of(at(pool, following)) ^ salt)
    state.size, state.here, state.scored, state.bound = size, here, seen, bound
    return going


@inner
def _hit_places(pool: Any, size: Any, state: Any, beam: Any, best: Any) -> Any:
    """Return the places, from 1 on, of the last wanted hit and of the last one to be expanded.

    They equal those of the previous step, unless a row was inserted before one of them.
    """
    is_counted = beam.slack == np.inf
    known = max(state.hits_end, state.last_place) if is_counted else state.hits_end
    if state.hits_end == 0 or known > size or best | REJECTED >= at(pool, known - 1):
        state.hits_end = place_of_hit(pool, size, beam.wanted)
        if is_counted:
            state.last_place = place_of_hit(pool, size, beam.max_expanded)
    return state.hits_end, state.last_place if is_counted else beam.max_expanded


@inner
def _ties(pool: Any, size: Any, here: Any, last: Any, wanted: Any) -> Any:
    """Return whether an entry ties with the last to be expanded, above the last wanted one.

    Copies of a row link to different rows: with only a few expanded, many would be missed.
    """
    score = score_of(at(pool, here))
    if last == 0 or score_of(at(pool, last - 1)) != score:
        return False
    return size < wanted or score_of(at(pool, wanted - 1)) < score
