"""Making neighbour lists: each row looks for its own, and joins those of its neighbours.

Rows are linked in rounds. The rows of a round all search the lists as they were before it, so any
number of threads give the same lists; then those they chose take them in, target by target.

Source: pruning as in HNSW and Vamana ([VAMANA] α-pruning): a candidate is left out when it is
much nearer to a neighbour already chosen than to the row itself.
"""

from typing import Any

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import Int32s, Int64s, UInt8s, UInt64s
from gcws_search.index.kernels.graph.beam_search import (
    DONE,
    MARKED,
    NONE,
    RATED,
    SIZE,
    EntryTables,
    begin,
    enter,
    expand,
    fetch_list,
    find_entry_points,
    mark,
    scratch_at,
    unmark,
)
from gcws_search.index.kernels.graph.candidate_pool import (
    entry,
    insert,
    row_of,
    salt_of,
    salted,
    score_of,
)
from gcws_search.index.kernels.lanes.pointers import put
from gcws_search.index.kernels.lanes.vector import at, offset, pointer
from gcws_search.index.kernels.quantized.rows import (
    SPARSE,
    fetch_ahead,
    held_before,
    hold,
    release,
    rows_at,
    score_rows,
)

_ONE = np.float32(1.0)
_LISTS_A_PLACE = 2
"""Lists read at most by a row that looks for its own, for each place of its beam."""
_MAX_JOINING = 512
"""New neighbours that one row considers in one round at most, the first ones."""


@njit(cache=True, nogil=True)
def prune(
    rows: Any, row: Any, space: Any, size: Any, most: Any, diversity: Any, out: Any, width: Any
) -> Any:
    """Choose a row's neighbours from a pool, best first, and write them as its list.

    A candidate stays when, for each neighbour chosen before, its distance 1 − GMM from that
    neighbour times ``diversity`` is at least its distance from the row.

    Parameters
    ----------
    rows : coarse.Rows
    row : int
    space : Space
        With the candidates in its pool, not salted any more, by falling score; nothing is marked.
    size : int
        Entries of the pool.
    most : int
        How many neighbours at most.
    diversity : float32
        At least 1.
    out, width : address of int32, and its room
        The list, written in place; `NONE` fills the rest.

    Returns
    -------
    int
        How many there are.
    """
    pool = space.pool
    candidates = space.marks.seen
    left = 0
    for i in range(size):
        candidate = row_of(at(pool, i))
        put(pool, left, at(pool, i))
        put(candidates, left, candidate)
        left += np.int64(candidate != row)
    # So many candidates are looked at together as are wanted yet: those behind them are compared
    # with none unless too few of them stay. A sparse row is dear to hold, so all are.
    following = 0
    count = 0
    while count < most and following < left:
        some = left if rows.kind == SPARSE else most - count
        last = count
        for i in range(following, min(following + some, left)):
            put(pool, last, at(pool, i))
            put(candidates, last, at(candidates, i))
            last += 1
        following = min(following + some, left)
        for i in range(count):
            last = _left_by(rows, np.int64(at(candidates, i)), space, count, last, diversity)
        while count < last and count < most:
            chosen = np.int64(at(candidates, count))
            put(out, count, chosen)
            count += 1
            if count < most:
                last = _left_by(rows, chosen, space, count, last, diversity)
    for i in range(count, width):
        put(out, i, NONE)
    return count


@njit(cache=True, nogil=True)
def _left_by(rows: Any, chosen: Any, space: Any, first: Any, last: Any, diversity: Any) -> Any:
    """Keep the candidates first … last - 1 that a neighbour chosen leaves; return their end."""
    pool = space.pool
    candidates = space.marks.seen
    if first == last:
        return last
    held = hold(rows, chosen, space.other_table)
    score_rows(rows, held, candidates, first, last, space.scores)
    release(rows, chosen, held)
    stay = first
    for i in range(first, last):
        candidate = at(pool, i)
        apart = (_ONE - at(space.scores, i - first)) * diversity
        put(pool, stay, candidate)
        put(candidates, stay, row_of(candidate))
        stay += np.int64(apart >= _ONE - score_of(candidate))
    return stay


@njit(cache=True, nogil=True)
def choose_neighbours(
    row_addresses: Int64s,
    spaces: Int64s,
    chosen: Int64s,
    keys: UInt64s,
    segments: Int64s,
    beside: int,
    links: Int32s,
    alive: UInt8s,
    beam: int,
    most: int,
    diversity: np.float32,
    out: Int32s,
) -> None:
    """Search for some rows' neighbours, by the tables and the lists there are.

    Parameters
    ----------
    row_addresses, spaces : see `coarse.rows_at`, `walk.scratch_at`
    chosen : (c,) int64
        The rows.
    keys : (c, t) uint64
        Their keys in the first t tables.
    segments, beside : see `walk.EntryTables`
    links : (n, width) int32
        All lists; those of unlinked rows are empty.
    alive : (n,) uint8
        Rows that may be chosen.
    beam : int
        Width of the beam of the search.
    most : int
        Neighbours a row chooses at most.
    diversity : float32
        See `prune`.
    out : (c, width) int32, written in place
        Their lists.
    """
    rows = rows_at(row_addresses)
    n, width = links.shape
    entries = EntryTables(segments, keys.shape[1], beside)
    nothing_hidden = np.empty(0, np.uint8)
    walks = spaces.shape[0]
    for start in range(0, chosen.shape[0], walks):
        end = min(start + walks, chosen.shape[0])
        for i in range(start, end):
            space = scratch_at(spaces[i - start])
            begin(space)
            hold(rows, chosen[i], space.table)
            put(space.state, MARKED, mark(space.marks, chosen[i], 0))
            put(space.state, RATED, 1)
        first_keys = offset(pointer(keys), start * keys.shape[1])
        find_entry_points(entries, first_keys, spaces, end - start)
        for i in range(start, end):
            space = scratch_at(spaces[i - start])
            enter(rows, space, space.places, entries, n, nothing_hidden)
        active = end - start
        while active > 0:
            active = 0
            for i in range(start, end):
                space = scratch_at(spaces[i - start])
                if at(space.state, DONE) != 0:
                    continue
                query = held_before(rows, chosen[i], space.table)
                if expand(
                    rows,
                    query,
                    pointer(links),
                    width,
                    n,
                    space,
                    beam,
                    _LISTS_A_PLACE * beam,
                    beam,
                    _ONE,
                    pointer(alive),
                    False,
                    salt_of(chosen[i]),
                ):
                    active += 1
                else:
                    put(space.state, DONE, 1)
                    unmark(space.marks, at(space.state, MARKED))
                    release(rows, chosen[i], query)
        for i in range(start, end):
            space = scratch_at(spaces[i - start])
            salt = salt_of(chosen[i])
            kept = 0
            for j in range(at(space.state, SIZE)):
                found = salted(at(space.pool, j), salt)
                if at(pointer(alive), row_of(found)) != 0:
                    put(space.pool, kept, found)
                    kept += 1
            own = offset(pointer(out), i * width)
            prune(rows, chosen[i], space, kept, most, diversity, own, width)
            _keep(offset(pointer(links), chosen[i] * width), offset(pointer(out), i * width), width)


@njit(cache=True, nogil=True)
def _keep(old: Any, new: Any, width: Any) -> None:
    """Fill up a row's new list with those that joined its old one."""
    count = 0
    while count < width and at(new, count) >= 0:
        count += 1
    found = count
    for i in range(width):
        row = at(old, i)
        if row < 0 or count == width:
            break
        known = False
        for j in range(found):
            known = known or at(new, j) == row
        if not known:
            put(new, count, row)
            count += 1


@njit(cache=True, nogil=True)
def list_joins(chosen: Int64s, lists: Int32s, out_targets: UInt64s, out_sources: Int32s) -> int:
    """Write (target, source) for each neighbour that each row has chosen; return how many.

    Parameters
    ----------
    chosen : (c,) int64
    lists : (c, width) int32
    out_targets, out_sources : (c · width,), written in place
    """
    count = 0
    for i in range(chosen.shape[0]):
        for j in range(lists.shape[1]):
            if lists[i, j] < 0:
                break
            out_targets[count] = np.uint64(lists[i, j])
            out_sources[count] = np.int32(chosen[i])
            count += 1
    return count


@njit(cache=True, nogil=True)
def join_lists(
    row_addresses: Int64s,
    spaces: Int64s,
    targets: UInt64s,
    sources: Int32s,
    first: int,
    last: int,
    most: int,
    diversity: np.float32,
    out: Int32s,
) -> None:
    """Take rows into the lists of those they chose, pruning lists that overflow.

    Parameters
    ----------
    row_addresses, spaces : see `coarse.rows_at`, `walk.scratch_at`
    targets : (p,) uint64
        Rising.
    sources : (p,) int32
    first, last : int
        The targets whose first pair is in this range are dealt with here.
    most : int
        To how many neighbours a list that overflows is pruned; the room left is for those to come.
    diversity : float32
        See `prune`.
    out : (n, width) int32, written in place
        All lists.
    """
    rows = rows_at(row_addresses)
    space = scratch_at(spaces[0])
    pool = space.pool
    waiting = space.marks.seen
    width = out.shape[1]
    capacity = min(space.room, width + _MAX_JOINING)
    place = first
    while 0 < place < last and targets[place] == targets[place - 1]:
        place += 1
    while place < last:
        target = np.int64(targets[place])
        end = place
        while end < targets.shape[0] and np.int64(targets[end]) == target:
            end += 1
        if end < last:
            fetch_list(pointer(out), np.int64(targets[end]), width)
        own = offset(pointer(out), target * width)
        held = 0
        while held < width and at(own, held) >= 0:
            held += 1
        count = held
        left_over = 0
        for p in range(place, min(end, place + _MAX_JOINING)):
            source = np.int64(sources[p])
            known = False
            for j in range(count):
                known = known or np.int64(at(own, j)) == source
            if known:
                continue
            if count < width:
                put(own, count, source)
                count += 1
            else:
                put(waiting, left_over, source)
                left_over += 1
        if left_over > 0:
            for j in range(count):
                put(waiting, left_over + j, at(own, j))
            count += left_over
            fetch_ahead(rows, waiting, 0, count)
            query = hold(rows, target, space.table)
            score_rows(rows, query, waiting, 0, count, space.scores)
            release(rows, target, query)
            size = 0
            salt = salt_of(target)
            for j in range(count):
                new = entry(at(space.scores, j), np.int64(at(waiting, j)) ^ salt)
                size = insert(pool, size, capacity, new)
            for j in range(size):
                put(pool, j, salted(at(pool, j), salt))
            prune(rows, target, space, size, most, diversity, own, width)
        place = end
