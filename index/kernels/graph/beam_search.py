"""Best-first beam search of a neighbour graph.

A pool holds the best rows seen so far. Each step expands the best row of the pool that has not been
expanded: its neighbours are scored and inserted. The search ends when every row of the pool is
expanded. It also stops when the next row is too far away: farther than the last hit wanted, by a
factor called slack. Rows that are not permitted are expanded, but they are no hits, and only hits
end a search. A second pool tells them apart. Under a filter it holds the hits. Where nearly all
rows are permitted, as after deletions, it holds the others; the first pool then has that much more
room.

Source: the greedy search of navigable graphs (HNSW, NSG), entered by hash tables; ended as in
"Distance Adaptive Beam Search for Provably Accurate Graph-Based Nearest Neighbor Search"
(Al-Jazzazi et al., 2025).
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import LANES, Int64s
from gcws_search.index.kernels.graph.candidate_pool import (
    EXPANDED,
    entry,
    first_unexpanded,
    insert_all,
    place_of,
    row_of,
    score_of,
    set_expanded,
)
from gcws_search.index.kernels.lanes.pointers import NUMBERS_A_LINE, prefetch, put
from gcws_search.index.kernels.lanes.vector import (
    at,
    offset,
    pointer_to_float32,
    pointer_to_int32,
    pointer_to_int64,
    pointer_to_uint64,
)
from gcws_search.index.kernels.quantized.rows import fetch_ahead, score_rows

_ONE = np.uint64(1)
_NOTHING = np.uint64(0)
_ZERO = np.float32(0.0)
_ONE_FLOAT = np.float32(1.0)
MIN_DISTANCE = np.float32(0.02)
"""A slack is a share of this distance at least."""

NONE = -1
"""Fills the places behind a row's last neighbour."""

SIZE, HERE, MARKED, RATED, EXPANSIONS, SECOND_SIZE, SECOND_OVERFLOW, DONE, UNFINISHED = range(9)
"""State of a search: entries of the pool, place of the best one that is not expanded, rows marked,
rows scored, rows expanded, entries of the second pool, whether it has dropped rows that the first
one may hold, whether the search has ended, and whether that was for want of room."""
STATES = 9

MIN_SECOND_POOL = 64
"""Rows that are not permitted for which the second pool has room, at least."""

ONE_POOL, REJECTED_POOL, HIT_POOL = range(3)
"""What the second pool holds: nothing, where all rows are permitted; others; or hits."""


class Graph(NamedTuple):
    """A neighbour graph with its rows and the tables through which it is entered.

    Attributes
    ----------
    rows : (7,) int64
        Addresses of the quantized rows; see `quantized.rows.rows_at`. `QuantizedView` owns them.
    segments : (s, 3) int64
        Addresses of the (L, count) keys and rows of each segment of the tables, and its count.
        `Tables` owns them.
    links : (n, width) int32
        Neighbours of each row, best first; `NONE` behind the last.
    vectors : (n, dim) float32
        Dense rows, not quantized; (0, 0) when sparse.
    """

    rows: Any
    segments: Any
    links: Any
    vectors: Any


class Links(NamedTuple):
    """The neighbours of all rows, by address.

    Attributes
    ----------
    first : address of int32
    width : int
        Places for the neighbours of one row.
    count : int
        Neighbours from this row number on are passed over: they are newer than this search.
    """

    first: Any
    width: Any
    count: Any


class RowMask(NamedTuple):
    """Which rows may be hits.

    Attributes
    ----------
    mask : address of uint8
    pools : int
        `ONE_POOL`, `REJECTED_POOL` or `HIT_POOL`.
    """

    mask: Any
    pools: Any


class Beam(NamedTuple):
    """How wide a search is, and where it ends.

    Attributes
    ----------
    capacity : int
        Rows of the pool, or of the hits under a filter.
    max_expanded : int
        Rows expanded at most. Without a slack, the search ends once this many of the best rows
        are expanded; under a filter, this many of the permitted ones and all that are nearer.
        Expansions of rows that were overtaken do not count. Neither do rows that score as much
        as the last of them, while better hits than the last one wanted may be found.
    wanted : int
        Hits, at most ``capacity``.
    slack : float32
        See `farthest_score`; infinite for none.
    """

    capacity: Any
    max_expanded: Any
    wanted: Any
    slack: Any


class Marks(NamedTuple):
    """Which rows a search has seen.

    Attributes
    ----------
    words : address of uint64
        One bit a row; all 0 between searches.
    seen : address of int32
        The rows whose bits are set.
    """

    words: Any
    seen: Any


class BeamScratch(NamedTuple):
    """What a search writes on, allocated once for many searches.

    Attributes
    ----------
    marks : Marks
    room : int
        Rows that can be marked, and entries of ``pool``.
    pool, second_pool : addresses of uint64
    fresh : address of uint64
        Entries to be inserted; of twice as many places as there are rows that can be marked.
    scores : address of float32
    table, other_table : addresses of float32
        All 0 between uses; see `quantized.rows.hold`.
    places : address of int64
        Of keys in tables, for any query of the call.
    own_places : address of int64
        The same for the query of this search.
    state : address of int64
        Where the search is; see `STATES`.
    """

    marks: Any
    room: Any
    pool: Any
    second_pool: Any
    fresh: Any
    scores: Any
    table: Any
    other_table: Any
    places: Any
    own_places: Any
    state: Any


@njit(cache=True, nogil=True)
def scratch_at(addresses: Int64s) -> Any:
    """Return scratch memory by the addresses of its arrays, in the order of `BeamScratch`."""
    return BeamScratch(
        Marks(pointer_to_uint64(addresses[0]), pointer_to_int32(addresses[1])),
        addresses[2],
        pointer_to_uint64(addresses[3]),
        pointer_to_uint64(addresses[4]),
        pointer_to_uint64(addresses[5]),
        pointer_to_float32(addresses[6]),
        pointer_to_float32(addresses[7]),
        pointer_to_float32(addresses[8]),
        pointer_to_int64(addresses[9]),
        pointer_to_int64(addresses[10]),
        pointer_to_int64(addresses[11]),
    )


@njit(cache=True, nogil=True)
def mark(marks: Any, row: Any, count: Any) -> Any:
    """Mark a row and return how many are marked, the same as before when it was marked already.

    Half of the rows met are marked already, by no pattern, so there is no branch to mispredict.
    """
    word = row >> 6
    place = np.uint64(row & 63)
    held = at(marks.words, word)
    put(marks.words, word, held | (_ONE << place))
    put(marks.seen, count, row)
    return count + 1 - np.int64((held >> place) & _ONE)


@njit(cache=True, nogil=True)
def unmark(marks: Any, count: Any) -> None:
    """Forget all marks."""
    for i in range(count):
        put(marks.words, np.int64(at(marks.seen, i)) >> 6, np.uint64(0))


@njit(cache=True, nogil=True)
def begin(scratch: Any) -> None:
    """Make scratch memory ready for a search."""
    for i in range(STATES):
        put(scratch.state, i, 0)


@njit(cache=True, nogil=True)
def begin_again(scratch: Any) -> None:
    """Let the next step score all rows seen so far again, for a beam with room for more."""
    for i in (SIZE, HERE, RATED, SECOND_SIZE, SECOND_OVERFLOW):
        put(scratch.state, i, 0)


@njit(cache=True, nogil=True)
def fetch_links(links: Any, row: Any) -> None:
    """Prefetch a row's neighbours."""
    address = offset(links.first, row * links.width)
    for line in range(0, links.width, NUMBERS_A_LINE):
        prefetch(offset(address, line))


@njit(cache=True, nogil=True)
def _mark_neighbours(rows: Any, links: Any, row: Any, marks: Any, marked: Any) -> Any:
    """Mark a row's neighbours, prefetch those not seen before, and return how many are marked."""
    own = offset(links.first, row * links.width)
    before = marked
    for j in range(links.width):
        neighbour = np.int64(at(own, j))
        if neighbour < 0:
            break
        if neighbour < links.count:
            marked = mark(marks, neighbour, marked)
    fetch_ahead(rows, marks.seen, before, marked)
    return marked


@njit(cache=True, nogil=True)
def farthest_score(score: Any, slack: Any) -> Any:
    """Return the least score of a row that is expanded, by the score of the last hit wanted.

    That is, d ≤ d(last hit) + (slack − 1) · max(d(last hit), `MIN_DISTANCE`), d = 1 − score.
    """
    distance = _ONE_FLOAT - score
    return score - (slack - _ONE_FLOAT) * max(distance, MIN_DISTANCE)


@njit(cache=True, nogil=True)
def _bound(held: Any, count: Any, beam: Any) -> Any:
    """Return an entry such that lesser ones are of no use."""
    bound = _NOTHING
    if count >= beam.wanted:
        lowest = farthest_score(score_of(at(held, beam.wanted - 1)), beam.slack)
        bound = entry(max(lowest, _ZERO), 0)
    if count >= beam.capacity:
        bound = max(bound, at(held, beam.capacity - 1))
    return bound


@njit(cache=True, nogil=True)
def _place_among_all(place: Any, pool: Any, size: Any, rejected: Any, count: Any) -> Any:
    """Return the place of a hit among all rows of a pool, by that among hits, counted from 1.

    Parameters
    ----------
    place : int
    pool, rejected : addresses of uint64
        The first pool, and the second, of rows that are not permitted.
    size, count : int
        Their entries.
    """
    passed = 0
    while (
        passed < count
        and place + passed <= size
        and at(rejected, passed) | EXPANDED >= at(pool, place + passed - 1)
    ):
        passed += 1
    return place + passed


@njit(cache=True, nogil=True)
def _beam_among_all(beam: Any, pool: Any, size: Any, rejected: Any, count: Any) -> Any:
    """Return a beam that counts hits as one that counts all rows of a pool.

    Parameters as of `_place_among_all`.
    """
    if count == 0:
        return beam
    return Beam(
        _place_among_all(beam.capacity, pool, size, rejected, count),
        _place_among_all(beam.max_expanded, pool, size, rejected, count),
        _place_among_all(beam.wanted, pool, size, rejected, count),
        beam.slack,
    )


@njit(cache=True, nogil=True)
def best_rows(scratch: Any, permitted: Any) -> Any:
    """Return the address of the best permitted rows, and how many there are.

    They are valid up to the next step.
    """
    size, second_size = at(scratch.state, SIZE), at(scratch.state, SECOND_SIZE)
    if permitted.pools == HIT_POOL:
        return scratch.second_pool, second_size
    if permitted.pools == ONE_POOL or second_size == 0:
        return scratch.pool, size
    count = 0
    for i in range(size):
        held = at(scratch.pool, i)
        put(scratch.fresh, count, held)
        count += np.int64(at(permitted.mask, row_of(held)) != 0)
    return scratch.fresh, count


@njit(cache=True, nogil=True)
def _is_tied(hits: Any, count: Any, beam: Any, following: Any) -> Any:
    """Return whether an entry scores as much as the last row expanded, and as no last hit wanted.

    Of copies of a row each leads to others: with a few of them expanded, many would be missing.
    """
    last = beam.max_expanded
    if last == 0 or count < last or score_of(at(hits, last - 1)) != score_of(following):
        return False
    return count < beam.wanted or score_of(at(hits, beam.wanted - 1)) < score_of(following)


@njit(cache=True, nogil=True)
def admit_again(rows: Any, query: Any, scratch: Any, beam: Any) -> None:
    """Add the rows that the pool has dropped since it was full, for a beam with room for more.

    All others are in it: a row once dropped is less than every row that is kept.

    Parameters
    ----------
    rows, query : RowAddresses, QueryAddresses
    scratch : BeamScratch
    beam : Beam
        The one with more room.
    """
    pool = scratch.pool
    size, marked = at(scratch.state, SIZE), at(scratch.state, MARKED)
    last = at(pool, size - 1) & ~EXPANDED
    for i in range(size, (size + LANES - 1) // LANES * LANES):
        put(pool, i, _NOTHING)  # rows dropped lately
    bound = _bound(pool, size, beam)
    score_rows(rows, query, scratch.marks.seen, 0, marked, scratch.scores)
    count = 0
    for i in range(marked):
        new = entry(at(scratch.scores, i), np.int64(at(scratch.marks.seen, i)))
        put(scratch.fresh, count, new)
        count += np.int64(bound <= new) & np.int64(new < last)
    size = insert_all(pool, size, beam.capacity, scratch.fresh, count)
    put(scratch.state, SIZE, size)


@njit(cache=True, nogil=True, forceinline=True)
def expand(rows: Any, query: Any, links: Any, scratch: Any, beam: Any, salt: Any) -> Any:
    """Score the rows prefetched by the step before, then expand the best row not yet expanded.

    Several searches take their steps in turn, so that memory has time to answer.

    Parameters
    ----------
    rows, query : RowAddresses, QueryAddresses
    links : Links
    scratch : BeamScratch
    beam : Beam
    salt : int
        See `candidate_pool.salt_of`: entries of the pool are `salted`. 0 where rows that tie come
        by falling number.

    Returns
    -------
    bool
        Whether there is a further step to take.
    """
    # The mode is a constant here, so the compiler drops all code that reads the mask. Any address
    # will do for it.
    return _expand(rows, query, links, scratch, beam, RowMask(rows.copies, ONE_POOL), salt)


@njit(cache=True, nogil=True)
def expand_masked(
    rows: Any, query: Any, links: Any, scratch: Any, beam: Any, permitted: Any
) -> Any:
    """Do what `expand` does where only the rows of a `RowMask` may be hits, not salted."""
    return _expand(rows, query, links, scratch, beam, permitted, 0)


@njit(cache=True, nogil=True, forceinline=True)
def _expand(
    rows: Any, query: Any, links: Any, scratch: Any, beam: Any, permitted: Any, salt: Any
) -> Any:
    """Do what `expand` does, whichever rows are permitted."""
    pool, second_pool = scratch.pool, scratch.second_pool
    state = scratch.state
    size = at(state, SIZE)
    here = at(state, HERE)
    marked = at(state, MARKED)
    second_size = at(state, SECOND_SIZE)
    ahead = at(pool, here) if here < size else _NOTHING
    # All scores come before the branches that no processor predicts: a wrong guess then costs no
    # score that was on its way.
    holds_hits, holds_rejected = permitted.pools == HIT_POOL, permitted.pools == REJECTED_POOL
    hits = second_pool if holds_hits else pool
    own_beam, second_capacity = beam, beam.capacity
    if holds_rejected:
        second_capacity = max(second_capacity, MIN_SECOND_POOL)
        beam = _beam_among_all(own_beam, pool, size, second_pool, second_size)
    bound = _bound(hits, second_size if holds_hits else size, beam)
    rated = at(state, RATED)
    score_rows(rows, query, scratch.marks.seen, rated, marked, scratch.scores)
    fresh = 0
    best = _NOTHING
    for i in range(marked - rated):
        new = entry(at(scratch.scores, i), np.int64(at(scratch.marks.seen, rated + i)) ^ salt)
        put(scratch.fresh, fresh, new)
        fresh += np.int64(new >= bound)
        best = max(best, new)
    if best < bound:  # it is not inserted, and has no place
        best = _NOTHING
    capacity = beam.capacity
    if permitted.pools != ONE_POOL:
        second_fresh, count = offset(scratch.fresh, fresh), 0
        for i in range(fresh):
            new = at(scratch.fresh, i)
            put(second_fresh, count, new)
            is_permitted = at(permitted.mask, row_of(new) ^ salt) != 0
            count += np.int64(is_permitted == holds_hits)
        second_size = insert_all(second_pool, second_size, second_capacity, second_fresh, count)
        capacity = scratch.room
        if holds_rejected:
            capacity = min(own_beam.capacity + second_size, capacity)
    size = insert_all(pool, size, capacity, scratch.fresh, fresh)
    if holds_rejected:
        beam = _beam_among_all(own_beam, pool, size, second_pool, second_size)
    put(state, RATED, marked)
    overtakes = best > ahead
    here = place_of(pool, best) if overtakes else first_unexpanded(pool, size, here)
    bound = _bound(hits, second_size if holds_hits else size, beam)
    going = here < size and at(pool, here) >= bound
    if going and beam.slack == np.inf:
        last = beam.max_expanded
        if not holds_hits:
            going = here < last
        elif second_size >= last:
            going = last > 0 and at(hits, last - 1) <= at(pool, here)
        if not going:
            going = _is_tied(hits, second_size if holds_hits else size, beam, at(pool, here))
    elif going and at(state, EXPANSIONS) >= beam.max_expanded:
        going = False
        put(state, UNFINISHED, 1)
    is_full = holds_rejected and second_size == second_capacity
    if is_full and at(second_pool, second_size - 1) >= at(pool, size - 1):
        going = False  # rows that it dropped may be in the first pool
        put(state, SECOND_OVERFLOW, 1)
    if going and marked + links.width > scratch.room:
        going = False
        put(state, UNFINISHED, 1)
    if going and overtakes:  # nothing has prefetched its neighbours yet
        fetch_links(links, row_of(best) ^ salt)
    elif going:
        set_expanded(pool, here)
        put(state, EXPANSIONS, at(state, EXPANSIONS) + 1)
        row = row_of(at(pool, here)) ^ salt
        put(state, MARKED, _mark_neighbours(rows, links, row, scratch.marks, marked))
        following = first_unexpanded(pool, size, here + 1)
        if following < size:
            fetch_links(links, row_of(at(pool, following)) ^ salt)
    put(state, SIZE, size)
    put(state, HERE, here)
    put(state, SECOND_SIZE, second_size)
    return going
