"""Building a neighbour graph: each row searches for its neighbours, and links run both ways.

Rows are linked in rounds. All rows of a round search the graph as it was before the round, so any
number of threads builds the same graph. Then the back links are added: a row links to the rows that
chose it, and is pruned if it has too many links.

Source: pruning as in HNSW and Vamana ([VAMANA] α-pruning). A candidate c of row x is excluded if
α · d(c, y) < d(c, x) for a neighbour y chosen before; d = 1 − GMM.
"""

from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Int32s, Int64s, UInt8s, UInt64s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.graph.beam_search import (
    NONE,
    STATE,
    Beam,
    begin,
    expand,
    fetch_links,
    line_of,
    links_at,
    mark,
    neighbour_at,
    scratch_at,
    unmark,
)
from gcws_search.index.kernels.graph.candidate_pool import (
    entry,
    insert_all,
    row_of,
    salt_of,
    salted,
    score_of,
)
from gcws_search.index.kernels.graph.entry_points import (
    ROWS_A_SIDE,
    EntryTables,
    enter,
    find_entry_points,
)
from gcws_search.index.kernels.lanes.vector import at, keep, offset, pointer, put
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
MAX_EQUAL = 8
"""Neighbours that are equal to a row, as far as quick scores tell."""
_EXPANDED_A_PLACE = 2
"""Rows expanded at most by the search for a row's neighbours, for each place of the beam."""
_MAX_JOINING = 512
"""New neighbours that one row considers in one round at most, the first ones."""


class LinkRule(NamedTuple):
    """How neighbours are chosen: ``beam`` is the width of a row's search for them.

    A row chooses at most ``neighbours`` neighbours, or is pruned to as many; for ``diversity`` see
    `prune`.
    """

    beam: Any
    neighbours: Any
    diversity: Any


@inner
def prune(
    rows: Any,
    row: Any,
    scratch: Any,
    size: Any,
    max_count: Any,
    diversity: Any,
    out: Any,
    width: Any,
) -> Any:
    """Choose a row's neighbours from a pool, best first, write them, and return their number.

    A candidate stays if, for each neighbour chosen before, its distance 1 − GMM from that
    neighbour times ``diversity`` is at least its distance from the row. Of candidates equal to the
    row, `MAX_EQUAL` stay, because they lead to no others. The ``size`` candidates are in the pool,
    not salted; nothing is marked. `NONE` fills the rest of the ``width`` places.
    """
    pool = scratch.pool
    candidates = scratch.marks.seen
    left = 0
    equal = 0
    for i in range(size):
        candidate = row_of(at(pool, i))
        put(pool, left, at(pool, i))
        put(candidates, left, candidate)
        equal += np.int64(candidate != row and score_of(at(pool, i)) >= _ONE)
        left += np.int64(candidate != row and (equal <= MAX_EQUAL or score_of(at(pool, i)) < _ONE))
    # As many candidates as still wanted are compared at once; later ones only if too few of these
    # stay. Holding a sparse row is costly, so then all are compared at once.
    following = 0
    count = 0
    while count < max_count and following < left:
        some = left if rows.kind == SPARSE else max_count - count
        last = count
        for i in range(following, min(following + some, left)):
            put(pool, last, at(pool, i))
            put(candidates, last, at(candidates, i))
            last += 1
        following = min(following + some, left)
        for i in range(count):
            last = _keep_diverse(rows, np.int64(at(candidates, i)), scratch, count, last, diversity)
        while count < last and count < max_count:
            chosen = np.int64(at(candidates, count))
            put(out, count, chosen)
            count += 1
            if count < max_count:
                last = _keep_diverse(rows, chosen, scratch, count, last, diversity)
    for i in range(count, width):
        put(out, i, NONE)
    return count


@inner
def _keep_diverse(
    rows: Any, chosen: Any, scratch: Any, first: Any, last: Any, diversity: Any
) -> Any:
    """Keep the candidates first … last - 1 that a neighbour does not exclude; return their end."""
    pool = scratch.pool
    candidates = scratch.marks.seen
    if first == last:
        return last
    held = hold(rows, chosen, scratch.other_table)
    score_rows(rows, held, candidates, first, last, scratch.scores)
    release(rows, chosen, held)
    stay = first
    for i in range(first, last):
        candidate = at(pool, i)
        apart = (_ONE - at(scratch.scores, i - first)) * diversity
        put(pool, stay, candidate)
        put(candidates, stay, row_of(candidate))
        stay += np.int64(apart >= _ONE - score_of(candidate))
    return stay


@inner
def _search_neighbours(
    rows: Any,
    links: Any,
    entries: Any,
    states: Any,
    scratch: Any,
    chosen: Any,
    keys: Any,
    beam: Any,
) -> None:
    """Search for the neighbours of ``chosen`` rows, interleaved, each in a slot of working memory.

    The resulting pools stay in the slots, with salted entries.
    """
    count = chosen.shape[0]
    nothing_hidden = np.empty(0, np.uint8)
    for i in range(count):
        own, state = scratch_at(scratch[i]), states[i]
        begin(state)
        hold(rows, chosen[i], own.table)
        state.seen = mark(own.marks, chosen[i], 0)
        state.scored = 1
    find_entry_points(entries, keys, scratch, count)
    for i in range(count):
        own = scratch_at(scratch[i])
        enter(rows, states[i], own, own.places, entries, links.count, nothing_hidden)
    active = count
    while active > 0:
        active = 0
        for i in range(count):
            own, state = scratch_at(scratch[i]), states[i]
            if state.has_ended != 0:
                continue
            query = held_before(rows, chosen[i], own.table)
            if expand(rows, query, links, state, own, beam, salt_of(chosen[i])):
                active += 1
            else:
                state.has_ended = 1
                unmark(own.marks, state.seen)
                release(rows, chosen[i], query)


@kernel
def choose_neighbours(
    graph: Any,
    scratch: Int64s,
    chosen: Int64s,
    keys: UInt64s,
    alive: UInt8s,
    leaders: Int32s,
    rule: Any,
    out: Int32s,
) -> None:
    """Search for some rows' neighbours, by the tables and the existing links.

    Unlinked rows have no neighbours in the graph. Rows that may be chosen are ``alive``. ``keys``
    are the (c, t) keys of ``chosen``; ``out`` gets their (c, width) neighbours.
    """
    rows = rows_at(graph.rows)
    n, width = graph.links.shape[0], graph.links.shape[1]
    entries = EntryTables(graph.segments, keys.shape[1], ROWS_A_SIDE, leaders)
    links = links_at(graph.links, n)
    beam = Beam(rule.beam, _EXPANDED_A_PLACE * rule.beam, rule.beam, _ONE)
    slots = scratch.shape[0]
    states = np.zeros(slots, STATE)
    for start in range(0, chosen.shape[0], slots):
        end = min(start + slots, chosen.shape[0])
        some = chosen[start:end]
        own_keys = offset(pointer(keys), start * keys.shape[1])
        _search_neighbours(rows, links, entries, states, scratch, some, own_keys, beam)
        for i in range(start, end):
            own = scratch_at(scratch[i - start])
            salt = salt_of(chosen[i])
            size = 0
            for j in range(states[i - start].size):
                found = salted(at(own.pool, j), salt)
                if alive[row_of(found)] != 0:
                    put(own.pool, size, found)
                    size += 1
            found_links = offset(pointer(out), i * width)
            prune(rows, chosen[i], own, size, rule.neighbours, rule.diversity, found_links, width)
            _keep_joined(line_of(links, chosen[i]), links.size, found_links, width)


@inner
def _keep_joined(old: Any, size: Any, new: Any, width: Any) -> None:
    """Fill up a row's new neighbours with rows that were added to its old ones."""
    count = 0
    while count < width and at(new, count) >= 0:
        count += 1
    found = count
    for i in range(width):
        row = neighbour_at(old, i, size)
        if row < 0 or count == width:
            break
        known = False
        for j in range(found):
            known = known or at(new, j) == row
        if not known:
            put(new, count, row)
            count += 1


@kernel
def list_joins(chosen: Int64s, lists: Int32s, out_targets: UInt64s, out_sources: Int32s) -> int:
    """Write (target, source) for each neighbour chosen by each row; return the number of pairs."""
    count = 0
    for i in range(chosen.shape[0]):
        for j in range(lists.shape[1]):
            if lists[i, j] < 0:
                break
            out_targets[count] = np.uint64(lists[i, j])
            out_sources[count] = np.int32(chosen[i])
            count += 1
    return count


@kernel
def join_links(
    row_addresses: Int64s,
    scratch: Int64s,
    targets: UInt64s,
    sources: Int32s,
    first: int,
    last: int,
    rule: Any,
    out: UInt8s,
) -> None:
    """Add rows to the neighbours of the rows they chose, and prune rows with too many.

    ``targets`` ascend. This handles the targets whose first pair is in the range. A row with too
    many neighbours is pruned to the number of the rule; the remaining room is for later ones.
    ``out`` has the neighbours of all rows, see `Graph.links`.
    """
    rows = rows_at(row_addresses)
    own_scratch = scratch_at(scratch[0])
    pool = own_scratch.pool
    waiting = own_scratch.marks.seen
    links = links_at(out, out.shape[0])
    width = out.shape[1]
    line = np.empty(width, np.int32)
    own = pointer(line)
    capacity = min(own_scratch.room, width + _MAX_JOINING)
    place = first
    while 0 < place < last and targets[place] == targets[place - 1]:
        place += 1
    while place < last:
        target = np.int64(targets[place])
        end = place
        while end < targets.shape[0] and np.int64(targets[end]) == target:
            end += 1
        if end < last:
            fetch_links(links, np.int64(targets[end]))
        held, in_place = 0, line_of(links, target)
        while held < width:
            put(own, held, neighbour_at(in_place, held, links.size))
            if at(own, held) < 0:
                break
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
            query = hold(rows, target, own_scratch.table)
            score_rows(rows, query, waiting, 0, count, own_scratch.scores)
            release(rows, target, query)
            salt = salt_of(target)
            for j in range(count):
                new = entry(at(own_scratch.scores, j), np.int64(at(waiting, j)) ^ salt)
                put(own_scratch.fresh, j, new)
            size = insert_all(pool, 0, capacity, own_scratch.fresh, count)
            for j in range(size):
                put(pool, j, salted(at(pool, j), salt))
            prune(rows, target, own_scratch, size, rule.neighbours, rule.diversity, own, width)
            held, count = 0, width
        for j in range(held, count):
            for byte in range(links.size):
                put(in_place, j * links.size + byte, np.uint8(at(own, j) >> (8 * byte)))
        place = end
    keep(line)


@kernel
def find_starts(packed: UInt8s, order: Int64s, out_starts: Int32s, out_above: Int32s) -> int:
    """Walk along links from each row not reached before; return the number of walks.

    Writes where each walk began, and a row reached before to which a row of the walk links, or
    `NONE`: that of the first such row, its nearest.
    """
    links = links_at(packed, packed.shape[0])
    reached_by = np.zeros(links.count, np.int32)
    waiting = np.empty(links.count, np.int32)
    walks = 0
    for start in order:
        if reached_by[start] != 0:
            continue
        walks += 1
        reached_by[start] = walks
        waiting[0], size, above = start, 1, NONE
        while size > 0:
            size -= 1
            row = waiting[size]
            for j in range(links.width):
                neighbour = neighbour_at(line_of(links, row), j, links.size)
                if neighbour < 0:
                    break
                if reached_by[neighbour] == 0:
                    reached_by[neighbour] = walks
                    waiting[size] = neighbour
                    size += 1
                elif above == NONE and reached_by[neighbour] < walks:
                    above = neighbour
        out_starts[walks - 1], out_above[walks - 1] = start, above
    return walks
