"""Walking neighbour lists: from a few entries to ever better rows, best first.

A pool holds the best rows seen so far. The best row whose list has not been read is next; the walk
ends when there is none left in the pool, or when that row is out of reach: farther away than the
last hit wanted is by now, by a certain factor. Where only some rows are permitted, the others lead
the way but take no hit's place: the hits are kept apart.

Source: the greedy search of navigable graphs (HNSW, NSG), entered by hash tables; ended as in
"Distance Adaptive Beam Search for Provably Accurate Graph-Based Nearest Neighbor Search"
(Al-Jazzazi et al., 2025).
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import Int64s, UInt8s
from gcws_search.index.kernels.graph.candidate_pool import (
    entry,
    first_unexpanded,
    insert,
    place_of,
    row_of,
    score_of,
    set_read,
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
"""Rounded rows tell smaller distances apart badly."""

NONE = -1
"""Marks the end of a list that is not full."""

SIZE, HERE, MARKED, RATED, READ, FOUND, DONE = range(7)
"""State of a walk: entries of the pool, place of the best one whose list has not been read, rows
marked, how many of them have scores, lists read, permitted rows found, whether it has ended."""
STATES = 7


class Marks(NamedTuple):
    """Which rows a walk has seen.

    Attributes
    ----------
    words : address of uint64
        One bit a row; all 0 between walks.
    seen : address of int32
        The rows whose bits are set.
    """

    words: Any
    seen: Any


class BeamScratch(NamedTuple):
    """What a walk writes on, allocated once for many walks.

    Attributes
    ----------
    marks : Marks
    room : int
        Rows that can be marked, and entries of ``pool``.
    pool, hits, fresh : addresses of uint64
    scores : address of float32
    table, other_table : addresses of float32
        All 0 between uses; see `coarse.hold`.
    places : address of int64
        Of keys in tables.
    state : address of int64
        Where the walk is; see `STATES`.
    """

    marks: Any
    room: Any
    pool: Any
    hits: Any
    fresh: Any
    scores: Any
    table: Any
    other_table: Any
    places: Any
    state: Any


class EntryTables(NamedTuple):
    """The tables through which a walk enters.

    Attributes
    ----------
    segments : (s, 3) int64
        Addresses of the (L, count) keys and rows of each segment, and its count.
    tables : int
        How many tables are used.
    beside : int
        Rows looked at on each side of a key's place.
    """

    segments: Any
    tables: Any
    beside: Any


@njit(cache=True, nogil=True)
def scratch_at(addresses: Int64s) -> Any:
    """Return a space by its parts, from the words of its marks on: see `BeamScratch`."""
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
def enter(rows: Any, space: Any, places: Any, entries: Any, count: Any, hidden: UInt8s) -> None:
    """Mark the rows around a query's places, and ask for them.

    Parameters
    ----------
    rows : coarse.Rows
    space : BeamScratch
    places : address of int64
        Those that `find_entry_points` wrote for the query.
    entries : EntryTables
    count : int
        Rows from this number on are left out.
    hidden : (count,) or (0,) uint8
        1 for rows that are passed over as if they were not in the tables, if there are any.
    """
    marked = before = at(space.state, MARKED)
    segments = entries.segments
    for s in range(segments.shape[0]):
        length = segments[s, 2]
        # Small segments hold little, and the lists lead to their rows too.
        beside = entries.beside if 4 * length >= count else 1
        for table in range(entries.tables):
            table_rows = offset(pointer_to_int32(segments[s, 1]), table * length)
            place = at(places, s * entries.tables + table)
            first, last = max(0, place - beside), min(length, place + beside)
            if hidden.shape[0] > 0:
                first = _shown(table_rows, place - 1, -1, beside, length, hidden)
                last = _shown(table_rows, place, 1, beside, length, hidden) + 1
            for i in range(first, last):
                row = np.int64(at(table_rows, i))
                if row < count and (hidden.shape[0] == 0 or hidden[row] == 0):
                    marked = mark(space.marks, row, marked)
    fetch_ahead(rows, space.marks.seen, before, marked)
    put(space.state, MARKED, marked)


@njit(cache=True, nogil=True)
def _shown(table_rows: Any, place: Any, way: Any, wanted: Any, length: Any, hidden: UInt8s) -> Any:
    """Return the place of the last one of so many rows that are not hidden, from a place on."""
    last = place - way
    while wanted > 0 and 0 <= place < length:
        if hidden[at(table_rows, place)] == 0:
            wanted -= 1
            last = place
        place += way
    return last


@njit(cache=True, nogil=True)
def find_entry_points(entries: Any, keys: Any, spaces: Int64s, walks: int) -> None:
    """Write where the keys of some queries would be in the sorted tables of each segment.

    All tables of a segment are searched in step for all queries, so that their cache misses
    overlap; the rows beside the places are asked for.

    Parameters
    ----------
    entries : EntryTables
    keys : address of (walks, tables) uint64
    spaces : (walks or more, 11) int64
        See `scratch_at`: the places of each walk, (segments, tables), are written in place.
    walks : int
    """
    tables = entries.tables
    for s in range(entries.segments.shape[0]):
        held = pointer_to_uint64(entries.segments[s, 0])
        count = entries.segments[s, 2]
        for walk in range(walks):
            out = offset(scratch_at(spaces[walk]).places, s * tables)
            for table in range(tables):
                put(out, table, 0)
        length = count
        while length > 0:
            half = length // 2
            for walk in range(walks):
                out = offset(scratch_at(spaces[walk]).places, s * tables)
                own = offset(keys, walk * tables)
                for table in range(tables):
                    below = at(held, table * count + at(out, table) + half) < at(own, table)
                    put(out, table, at(out, table) + ((length - half) if below else 0))
            length = half
        table_rows = pointer_to_int32(entries.segments[s, 1])
        for walk in range(walks):
            out = offset(scratch_at(spaces[walk]).places, s * tables)
            for table in range(tables):
                prefetch(offset(table_rows, table * count + at(out, table)))


@njit(cache=True, nogil=True)
def begin(space: Any) -> None:
    """Make a space ready for a walk."""
    for i in range(STATES):
        put(space.state, i, 0)


@njit(cache=True, nogil=True)
def fetch_list(links: Any, row: Any, width: Any) -> None:
    """Ask for a row's list."""
    address = offset(links, row * width)
    for line in range(0, width, NUMBERS_A_LINE):
        prefetch(offset(address, line))


@njit(cache=True, nogil=True)
def _mark_list(rows: Any, own: Any, width: Any, count: Any, marks: Any, marked: Any) -> Any:
    """Mark the rows of a list, ask for those not seen before, and return how many are marked."""
    before = marked
    for j in range(width):
        row = np.int64(at(own, j))
        if row < 0:
            break
        if row < count:
            marked = mark(marks, row, marked)
    fetch_ahead(rows, marks.seen, before, marked)
    return marked


@njit(cache=True, nogil=True)
def within_reach(score: Any, reach: Any) -> Any:
    """Return the least score that is within reach of the last hit's.

    That is, d ≤ d(last hit) + (reach − 1) · max(d(last hit), `MIN_DISTANCE`), d = 1 − score.
    """
    distance = _ONE_FLOAT - score
    return score - (reach - _ONE_FLOAT) * max(distance, MIN_DISTANCE)


@njit(cache=True, nogil=True)
def _bound(kept: Any, count: Any, beam: Any, wanted: Any, reach: Any) -> Any:
    """Return an entry such that lesser ones are of no use any more."""
    bound = _NOTHING
    if count >= wanted:
        least = within_reach(score_of(at(kept, wanted - 1)), reach)
        bound = entry(max(least, _ZERO), 0)
    if count == beam:
        bound = max(bound, at(kept, beam - 1))
    return bound


@njit(cache=True, nogil=True)
def expand(
    rows: Any,
    query: Any,
    links: Any,
    width: Any,
    count: Any,
    space: Any,
    beam: Any,
    most: Any,
    wanted: Any,
    reach: Any,
    permitted: Any,
    filtered: Any,
    salt: Any,
) -> Any:
    """Score the rows asked for by the step before, then read the best list not read yet.

    Several walks take their steps in turn, so that memory has time to answer.

    Parameters
    ----------
    rows, query : coarse.Rows, coarse.Query
    links, width : address of int32 and entries a list
        Neighbours of each row, best first; `NONE` ends a list.
    count : int
        Rows from this number on are left out: they are newer than what this search sees.
    space : BeamScratch
    beam : int
        Capacity of the pool, or of the hits when rows are filtered.
    most : int
        Lists read at most. Without a reach, those of so many of the best rows are read: lists read
        on the way to these do not count.
    wanted : int
        Hits, at most ``beam``.
    reach : float32
        See `within_reach`.
    permitted : address of uint8
    filtered : bool
        Whether only some rows are permitted.
    salt : int
        See `pool.salt_of`: what is kept are entries that are `salted`. 0 where rows that score the
        same come by falling number.

    Returns
    -------
    bool
        Whether there is a further step to take.
    """
    pool = space.pool
    state = space.state
    size = at(state, SIZE)
    here = at(state, HERE)
    marked = at(state, MARKED)
    found = at(state, FOUND)
    ahead = at(pool, here) if here < size else _NOTHING
    # First all scores, then the branches that nothing can foresee: a wrong guess of the processor
    # then costs no score that was on its way.
    kept = found if filtered else size
    best_kept = space.hits if filtered else pool
    bound = _bound(best_kept, kept, beam, wanted, reach)
    rated = at(state, RATED)
    score_rows(rows, query, space.marks.seen, rated, marked, space.scores)
    fresh = 0
    for i in range(marked - rated):
        new = entry(at(space.scores, i), np.int64(at(space.marks.seen, rated + i)) ^ salt)
        put(space.fresh, fresh, new)
        fresh += np.int64(new >= bound)
    best = _NOTHING
    for i in range(fresh):
        new = at(space.fresh, i)
        best = max(best, new)
        if filtered:
            size = insert(pool, size, space.room, new)
            if at(permitted, row_of(new) ^ salt) != 0 and (
                found < beam or new > at(space.hits, beam - 1)
            ):
                found = insert(space.hits, found, beam, new)
        elif size < beam or new > at(pool, beam - 1):
            size = insert(pool, size, beam, new)
    put(state, RATED, marked)
    surprising = best > ahead
    here = place_of(pool, best) if surprising else first_unexpanded(pool, size, here)
    bound = _bound(best_kept, found if filtered else size, beam, wanted, reach)
    hopeful = here < size and at(pool, here) >= bound
    read = here if reach == np.inf else at(state, READ)
    if not hopeful or read >= most or marked + width > space.room:
        hopeful = False
    elif surprising:  # nothing has asked for its list yet
        fetch_list(links, row_of(best) ^ salt, width)
    else:
        set_read(pool, here)
        put(state, READ, at(state, READ) + 1)
        own = offset(links, (row_of(at(pool, here)) ^ salt) * width)
        put(state, MARKED, _mark_list(rows, own, width, count, space.marks, marked))
        following = first_unexpanded(pool, size, here + 1)
        if following < size:
            fetch_list(links, row_of(at(pool, following)) ^ salt, width)
    put(state, SIZE, size)
    put(state, HERE, here)
    put(state, FOUND, found)
    return hopeful
