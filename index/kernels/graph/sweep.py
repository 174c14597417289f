"""One walk for many efforts: what walks of less effort find is noted where they would have ended.

Walks that reach less far take the same steps, and then end: the bound below which a row is of no
use only rises while a walk goes on, so what the farther walk keeps beyond is never read before all
that the nearer one keeps has been. Of the rows scored exactly in the end, those beyond the lesser
reach may be more. Walks ended by a number of lists take the same steps, too. And ``rescored`` rows
are always scored exactly, where a search scores fewer unless rounding leaves hits in doubt: it is
expected to miss `doubt.FEW_MISSED` of the hits more, at most.
"""

from typing import Any

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import (
    Float32s,
    Float64s,
    Int32s,
    Int64s,
    UInt8s,
    UInt32s,
    UInt64s,
)
from gcws_search.index.kernels.graph.batch_search import (
    best_rows,
    choose,
    fetch_rows,
    is_flat,
    whole_lists,
)
from gcws_search.index.kernels.graph.beam_search import (
    HERE,
    MARKED,
    RATED,
    EntryTables,
    begin,
    enter,
    expand,
    find_entry_points,
    scratch_at,
    unmark,
    within_reach,
)
from gcws_search.index.kernels.graph.candidate_pool import score_of
from gcws_search.index.kernels.graph.queries import queries_of, score_exactly
from gcws_search.index.kernels.lanes.vector import at, offset, pointer
from gcws_search.index.kernels.ordering.rank import rank_nearly_sorted
from gcws_search.index.kernels.quantized.rows import SPARSE, held_before, hold, release, rows_at

_FREE = -1
"""Number in ``numbers`` of a space without a query."""


@njit(cache=True, nogil=True)
def _goes_on(space: Any, best: Any, size: Any, lists: Any, reach: Any, wanted: Any) -> Any:
    """Return whether a walk of this effort would have gone on with the last step."""
    here = at(space.state, HERE)
    if reach == np.inf:
        return here < lists
    if size < wanted:
        return True
    least = within_reach(score_of(at(best, wanted - 1)), reach)
    return score_of(at(space.pool, here)) >= least


@njit(cache=True, nogil=True)
def _unknown(
    chosen: Int64s,
    count: int,
    known: Int64s,
    known_count: int,
    out_exact: Float64s,
    out_missing: Int64s,
) -> int:
    """Move known scores to the places of their rows; return how many rows have none.

    Rows are only ever put between those that were the best before, and push out the last ones.

    Parameters
    ----------
    chosen : (r,) int64
        The best ``count`` rows, by quick score.
    known : (r,) int64
        The best ``known_count`` rows before.
    out_exact : (r,) float64, written in place
        Their scores; afterwards those of ``chosen``, where known.
    out_missing : (r,) int64, written in place
        Places in ``chosen`` of the others.
    """
    place = 0
    missing = 0
    for i in range(count):
        if place < known_count and chosen[i] == known[place]:
            place += 1
        else:
            out_missing[missing] = i
            missing += 1
    following = missing
    for i in range(count - 1, -1, -1):  # from the end, so that none is written over too early
        if following > 0 and out_missing[following - 1] == i:
            following -= 1
        else:
            place -= 1
            out_exact[i] = out_exact[place]
    return missing


@njit(cache=True, nogil=True)
def sweep(
    row_addresses: Int64s,
    spaces: Int64s,
    segments: Int64s,
    beside: int,
    links: Int32s,
    count: int,
    copies: UInt8s,
    copy_norms: Float32s,
    queries: Float32s,
    query_indptr: Int64s,
    query_slots: UInt32s,
    query_values: Float32s,
    keys: UInt64s,
    rows: Float32s,
    permitted: UInt8s,
    filtered: bool,
    hidden: UInt8s,
    efforts: Float64s,
    onward: Float64s,
    wanted: int,
    flat: float,
    rescored: int,
    out_scores: Float64s,
    out_rows: Int64s,
    out_sizes: Int64s,
    out_candidates: Int64s,
) -> None:
    """Search for every query by several efforts, as `graph.graph` does by each.

    No row is skipped, and no query walked for twice.

    Parameters
    ----------
    row_addresses, spaces, segments, beside, links, count, copies, copy_norms, queries,
    query_indptr, query_slots, query_values, keys, rows, permitted, filtered, hidden :
        see `graph.graph`
    efforts : (e, 3) float64
        Rising by the lists read, all without a reach, or by the reach; the rest is the same. See
        `graph.graph`.
    onward : (3,) float64
        The effort with which a walk without a reach goes on for a flat query.
    wanted, flat : see `graph.graph`
    rescored : int
        The best rows that are scored exactly, at least the limit.
    out_scores, out_rows : (m, e, limit) float64 and int64, written in place
    out_sizes, out_candidates : (m, e) int64, written in place
        Hits found, and rows scored quickly.
    """
    view = rows_at(row_addresses)
    m_all, tables = keys.shape
    entries = EntryTables(segments, tables, beside)
    steps = efforts.shape[0]
    limit = out_scores.shape[2]
    width = links.shape[1]
    asked = queries_of(
        view.kind, copies, copy_norms, queries, query_indptr, query_slots, query_values
    )
    walks = spaces.shape[0]
    numbers = np.full(walks, _FREE, np.int64)
    following = np.zeros(walks, np.int64)  # the least effort that has not ended
    ends = np.zeros(walks, np.int64)  # one beyond the last effort of this walk
    gone_on = np.zeros(walks, np.bool_)
    known = np.empty((walks, rescored), np.int64)
    known_counts = np.zeros(walks, np.int64)
    known_scores = np.empty((walks, rescored), np.float64)
    chosen = np.empty(rescored, np.int64)
    new_rows = np.empty(rescored, np.int64)
    new_scores = np.empty(rescored, np.float64)
    ranked = np.empty(rescored, np.float64)
    missing = np.empty(rescored, np.int64)
    # Flat queries walk again for each effort, and then on. Each is kept as query · steps + effort.
    again = np.empty(m_all * steps, np.int64)
    again_count = 0
    begun = 0
    ended = 0
    while ended < m_all + again_count:
        for s in range(walks):
            space = scratch_at(spaces[s])
            if numbers[s] == _FREE:
                if begun == m_all + again_count:
                    continue
                if begun < m_all:
                    m, following[s], ends[s] = begun, 0, steps
                else:
                    m, following[s] = again[begun - m_all] // steps, again[begun - m_all] % steps
                    ends[s] = following[s] + 1
                begun += 1
                numbers[s], gone_on[s], known_counts[s] = m, False, 0
                find_entry_points(entries, offset(pointer(keys), m * tables), spaces[s : s + 1], 1)
                begin(space)
                hold(asked.kept, m, space.table)
                enter(view, space, space.places, entries, count, hidden)
                continue
            m = numbers[s]
            effort = onward if gone_on[s] else efforts[ends[s] - 1]
            beam = np.int64(effort[0])
            hits = min(beam, wanted)
            query = held_before(asked.kept, m, space.table)
            going = expand(
                view,
                query,
                pointer(links),
                width,
                count,
                space,
                beam,
                whole_lists(effort[1], keys[m, 0]),
                hits,
                np.float32(effort[2]),
                pointer(permitted),
                filtered,
                0,
            )
            pool, size = best_rows(space, filtered)
            while following[s] < ends[s]:
                e = following[s]
                lists, reach = whole_lists(efforts[e, 1], keys[m, 0]), np.float32(efforts[e, 2])
                if going and (gone_on[s] or _goes_on(space, pool, size, lists, reach, hits)):
                    break
                few = reach == np.inf and not gone_on[s]
                if few and is_flat(pool, size, 0, np.float32(flat)):
                    if ends[s] == e + 1:
                        gone_on[s] = True
                        break
                    again[again_count] = m * steps + e
                    again_count += 1
                    following[s] += 1
                    continue
                best = choose(pool, size, -1, rescored, pointer(chosen))
                new = _unknown(chosen, best, known[s], known_counts[s], known_scores[s], missing)
                if view.kind != SPARSE:
                    fetch_rows(rows, pool, best if new > 0 else 0)
                for i in range(new):
                    new_rows[i] = chosen[missing[i]]
                score_exactly(
                    asked, m, view, pointer(rows), pointer(new_rows), new, pointer(new_scores)
                )
                for i in range(new):
                    known_scores[s, missing[i]] = new_scores[i]
                known[s, :best] = chosen[:best]
                known_counts[s] = best
                found = min(limit, rank_nearly_sorted(known_scores[s], chosen, best, 0.0, ranked))
                out_scores[m, e, :found] = ranked[:found]
                out_rows[m, e, :found] = chosen[:found]
                out_sizes[m, e] = found
                out_candidates[m, e] = at(space.state, RATED)
                following[s] += 1
            if following[s] == ends[s]:
                unmark(space.marks, at(space.state, MARKED))
                release(asked.kept, m, query)
                numbers[s] = _FREE
                ended += 1
