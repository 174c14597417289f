"""Partners of rows: all rows that score at least so high, found by walking neighbour lists.

A walk starts from a row's own list and follows the lists of every partner it meets, so a cluster
larger than a list is closed over; beside them it follows the lists of a few rows that score less,
best first, which may lead to partners too.
"""

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import Float32s, Int32s, Int64s, UInt8s, UInt32s, UInt64s
from gcws_search.index.kernels.gmm.dense import dense_score_within, reach
from gcws_search.index.kernels.gmm.sparse import shared_mass, spread, spread_size
from gcws_search.index.kernels.lanes.pointers import NUMBERS_A_LINE, prefetch
from gcws_search.index.kernels.lanes.vector import at, offset, pointer

SCORED = 0
READ = 1
"""What walks have cost: rows scored, lists read."""
WORK = 2

_AHEAD = 128
"""Floats of a row that are asked for ahead."""
_NONE = np.float32(-1.0)


@njit(cache=True, nogil=True)
def walk_partners(
    rows: Float32s,
    indptr: Int64s,
    slots: UInt32s,
    values: Float32s,
    norms: Float32s,
    permitted: UInt8s,
    links: Int32s,
    chosen: Int64s,
    first: int,
    least: np.float32,
    patience: int,
    out_a: Int32s,
    out_b: Int32s,
    out_work: Int64s,
) -> tuple[int, int]:
    """List the pairs of chosen rows with the partners their walks find.

    The work can stop when the output is full and go on later from where it was.

    Parameters
    ----------
    rows : (n, width) float32, or (0, 0) when the rows are sparse
    indptr, slots, values : sparse rows, compressed
    norms : (n,) float32
    permitted : (n,) uint8
    links : (n, R) int32
        Neighbours of each row, a negative number after the last; rows from n on are unknown here.
    chosen : (m,) int64
    first : int
        Number of the chosen row to go on from.
    least : float32
    patience : int
        Lists of rows that score less than ``least`` that a walk reads; a negative number reads a
        row's own list and no other.
    out_a, out_b : (capacity,) int32, written in place
        The lesser and the greater row of each pair; the capacity is at least n.
    out_work : (WORK,) int64, added to in place

    Returns
    -------
    count, first : int
        Pairs written, and where to go on; first is m when all is done.
    """
    n = norms.shape[0]
    width = rows.shape[1]
    dense = width > 0
    data = pointer(rows)
    row_slots = pointer(slots)
    row_values = pointer(values)
    longest = 0
    for i in range(indptr.shape[0] - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    table_slots = np.empty(spread_size(longest) if not dense else 0, np.uint32)
    table_values = np.empty(table_slots.shape[0], np.float32)
    table = pointer(table_slots)
    held = pointer(table_values)
    words = np.zeros((n + 63) // 64, np.uint64)
    seen = np.empty(n, np.int32)
    waiting = np.empty(n, np.int32)  # partners whose lists have not been read
    most = max(patience, 0)
    other_rows = np.empty(most, np.int32)  # the best rows that are none, the best one last
    other_scores = np.empty(most, np.float32)
    fresh = np.empty(links.shape[1], np.int64)
    least_reach = reach(least)
    found = 0
    for number in range(first, chosen.shape[0]):
        a = chosen[number]
        if permitted[a] == 0:
            continue
        query = offset(data, a * width)
        size = 64
        if not dense:
            size = spread_size(indptr[a + 1] - indptr[a])
            part = slice(indptr[a], indptr[a + 1])
            spread(slots[part], values[part], table_slots[:size], table_values[:size])
        before = found
        full = False
        words[a >> 6] |= np.uint64(1) << np.uint64(a & 63)
        seen[0] = a
        marked = 1
        partners = 0
        others = 0
        left = most
        here = a
        while True:
            count = 0
            for j in range(links.shape[1]):
                row = np.int64(links[here, j])
                if row < 0:
                    break
                if row >= n:
                    continue
                bit = np.uint64(1) << np.uint64(row & 63)
                if words[row >> 6] & bit != 0:
                    continue
                words[row >> 6] |= bit
                seen[marked] = row
                marked += 1
                fresh[count] = row
                count += 1
                if dense:
                    address = offset(data, row * width)
                    for line in range(0, min(width, _AHEAD), NUMBERS_A_LINE):
                        prefetch(offset(address, line))
                else:
                    for line in range(indptr[row], indptr[row + 1], NUMBERS_A_LINE):
                        prefetch(offset(row_slots, line))
                        prefetch(offset(row_values, line))
            out_work[SCORED] += count
            out_work[READ] += 1
            for i in range(count):
                row = fresh[i]
                # What a row must score to be of any use.
                bound = least
                if others < left:
                    bound = _NONE
                elif left > 0:
                    bound = other_scores[0]
                # GMM is at most the lesser norm over the greater.
                if min(norms[a], norms[row]) < bound * max(norms[a], norms[row]):
                    continue
                if dense:
                    farthest = least_reach if bound >= least else reach(max(bound, np.float32(0.0)))
                    score = dense_score_within(
                        query, norms[a], offset(data, row * width), norms[row], width, farthest
                    )
                else:
                    shared = shared_mass(
                        table, held, size, row_slots, row_values, indptr[row], indptr[row + 1]
                    )
                    score = shared / (norms[a] + norms[row] - shared)
                if score >= least:
                    waiting[partners] = row
                    partners += 1
                    if permitted[row] != 0:
                        if found == out_a.shape[0]:
                            full = True
                            break
                        out_a[found] = np.int32(min(a, row))
                        out_b[found] = np.int32(max(a, row))
                        found += 1
                elif score > bound:
                    place = others
                    if others == left:  # the worst one makes room
                        place = 0
                        while place + 1 < others and other_scores[place + 1] < score:
                            other_scores[place] = other_scores[place + 1]
                            other_rows[place] = other_rows[place + 1]
                            place += 1
                    else:
                        while place > 0 and other_scores[place - 1] > score:
                            other_scores[place] = other_scores[place - 1]
                            other_rows[place] = other_rows[place - 1]
                            place -= 1
                        others += 1
                    other_scores[place] = score
                    other_rows[place] = row
            if full:
                break
            if partners > 0 and patience >= 0:
                partners -= 1
                here = np.int64(waiting[partners])
            elif left > 0 and others > 0:
                others -= 1
                left -= 1
                here = np.int64(other_rows[others])
            else:
                break
        for i in range(marked):
            words[np.int64(seen[i]) >> 6] = np.uint64(0)
        if full:
            return before, number
    return found, chosen.shape[0]


@njit(cache=True, nogil=True)
def meet(
    rows: Float32s,
    norms: Float32s,
    permitted: UInt8s,
    chosen: Int64s,
    least: np.float32,
    first: int,
    last: int,
    out_numbers: Int32s,
    out_rows: Int32s,
) -> tuple[int, int]:
    """List the permitted dense rows in [first, last) that score high enough with chosen ones.

    The chosen rows stay in cache while all others pass by. The work can stop when the output is
    full and go on later from where it was.

    Parameters
    ----------
    chosen : (m,) int64
    out_numbers, out_rows : (capacity,) int32, written in place
        The number of a chosen row, and a row that scores with it; the capacity is at least m.

    Returns
    -------
    count, first : int
        Pairs written, and the row to go on from.
    """
    width = rows.shape[1]
    data = pointer(rows)
    farthest = reach(least)
    found = 0
    for row in range(first, last):
        if permitted[row] == 0:
            continue
        if found + chosen.shape[0] > out_rows.shape[0]:
            return found, row
        address = offset(data, row * width)
        for number in range(chosen.shape[0]):
            a = chosen[number]
            if a == row or min(norms[a], norms[row]) < least * max(norms[a], norms[row]):
                continue
            score = dense_score_within(
                offset(data, a * width), norms[a], address, norms[row], width, farthest
            )
            if score >= least:
                out_numbers[found] = np.int32(number)
                out_rows[found] = np.int32(row)
                found += 1
    return found, last


@njit(cache=True, nogil=True)
def shared_buckets(keys: UInt64s, shifts: UInt64s, out: Int64s) -> None:
    """Add up how many pairs of places of a sorted table share a bucket, for several depths.

    Parameters
    ----------
    keys : (n,) uint64
        Rising.
    shifts : (d,) uint64
        Keys that agree above this many low bits share a bucket.
    out : (d,) int64, added to in place
    """
    data = pointer(keys)
    for d in range(shifts.shape[0]):
        shift = shifts[d]
        start = 0
        pairs = 0
        for place in range(1, keys.shape[0] + 1):
            if place == keys.shape[0] or ((at(data, place) ^ at(data, start)) >> shift) != 0:
                pairs += (place - start) * (place - start - 1) // 2
                start = place
        out[d] += pairs
