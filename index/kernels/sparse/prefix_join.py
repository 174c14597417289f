"""The exact join of sparse rows with themselves, by slots that the rows of a pair must share.

Put the slots in one order for all rows, those of few rows first. A pair of rows x and y with
|y| ≤ |x| and GMM of at least t has Σ min ≥ t/(1 + t)·(|x| + |y|). That is at least t·|x|, as
|y| ≥ t·|x|, and at least 2t/(1 + t)·|y|. So the first shared slot is not among the last slots of
x that sum to less than t·|x|, nor among those of y that sum to less than 2t/(1 + t)·|y|. It is in
the remaining first slots of each, its prefix. Prefixes exclude the slots that most rows have, which
are most of the work. All that the rows share comes from that slot on: if either has too little
there, the pair need not be scored. (This is prefix filtering; these prefixes are not those of
signatures.)

Prefixes here are longer by the weight of a mean entry, and Σ min of two prefixes is summed while
lists are read. Beyond the prefix that ends first, a pair shares at most the rest of that row. So
most pairs with a single shared slot are excluded before their rows are read, which would be a cache
miss each; the sums stay in the cache.

A slot is represented by the place of its hash, and places define the order. If several slots share
a place, more pairs are examined, and Σ min is overestimated, never underestimated.

Source: [PREFIX] for weighted sets, [PPJOIN] for the rest after the first shared slot, [ADAPT] for
longer prefixes that must share more; here for weighted rows, where the smaller weight counts.
"""

from typing import NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Int32s, Int64s, UInt32s, UInt64s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.gmm.rows import Rows
from gcws_search.index.kernels.gmm.sparse import TABLE_BITS, add_to_table, shared_in_table
from gcws_search.index.kernels.lanes.vector import offset, pointer, prefetch
from gcws_search.index.kernels.ordering.keys import RowPairs

_ENTRY_BITS = 20
MAX_ENTRIES = 1 << _ENTRY_BITS
"""Longer rows have no prefix."""
MAX_PLACE_BITS = 20
"""Of the number of a place: lists begin at 2^20 places at most (8 MB)."""
_MULTIPLIER = np.uint32(0x9E3779B1)
"""2^32 divided by the golden ratio: Fibonacci hashing."""
_MAX_COUNT = (1 << 24) - 1
"""What fits above place and entry in a key: commoner places tie."""
_ENTRY = np.uint64(MAX_ENTRIES - 1)
_PLACE = np.uint64((1 << MAX_PLACE_BITS) - 1)
_PLACE_SHIFT = np.uint64(_ENTRY_BITS)
_COUNT_SHIFT = np.uint64(_ENTRY_BITS + MAX_PLACE_BITS)
_AHEAD = 8
"""Entries of the partner this far ahead are prefetched."""
_MAX_WORK = 1 << 26
"""Entries read before the caller is asked whether to go on: some 0.1 s."""
_ZERO = np.float32(0.0)
_ROUNDING = 1e-5
"""Relative: more than float32 norms and least scores may be off, so that no pair is lost."""


class PrefixLists(NamedTuple):
    """Rows listed under the places of their prefixes.

    Arrays of e entries have room for those of all rows; nothing is written after the last start.
    """

    rows: Int64s  # (m,): rows to join, by ascending norm; lists have positions in this array
    shift: np.uint32  # 32 minus the bits of a place
    counts: Int32s  # (places,): entries at each place
    begins: Int64s  # (m + 1,): start of each row's prefix
    places: Int32s  # (e,): prefix by prefix, places of few rows first
    # (e, 2): sum of the row from that entry on, and the entry's own weight.
    rests: Float32s
    ends: Float32s  # (m, 2): each row's norm, and its sum after its listed entries
    starts: Int64s  # (places + 1,): start of each place's list
    listed: Int32s  # (e,): positions in ``rows``, list by list, ascending in each
    # (e, 2): sum of the listed row from this place on, minus its part of the required
    # Σ min (the difference must cover the other row's part); and the row's weight at this place.
    over: Float32s


@inner
def _place(slot: np.uint32, shift: np.uint32) -> np.uint32:
    return np.uint32(slot * _MULTIPLIER) >> shift


@kernel
def count_places(
    indptr: Int64s, slots: UInt32s, rows: Int64s, shift: np.uint32, counts: Int32s
) -> None:
    """Add the entries of chosen rows to ``counts`` by place, of 32 - ``shift`` bits."""
    for row in rows:
        for entry in range(indptr[row], indptr[row + 1]):
            counts[_place(slots[entry], shift)] += 1


@inner
def _longest(indptr: Int64s, rows: Int64s) -> int:
    longest = 0
    for row in rows:
        longest = max(longest, indptr[row + 1] - indptr[row])
    return longest


@inner
def _sift(keys: UInt64s, size: int, at: int) -> None:
    """Sift a key down in a heap, smallest key first, that is in order below it."""
    key = keys[at]
    below = 2 * at + 1
    while below < size:
        if below + 1 < size and keys[below + 1] < keys[below]:
            below += 1
        if keys[below] >= key:
            break
        keys[at] = keys[below]
        at, below = below, 2 * below + 1
    keys[at] = key


@inner
def _spare(norm: float, indptr: Int64s, row: int) -> float:
    """Return the weight of a row's mean entry, by which its prefix is extended."""
    return norm / max(1, indptr[row + 1] - indptr[row])


@inner
def _write_prefix(
    slots: UInt32s, values: Float32s, threshold: float, keys: UInt64s, out: PrefixLists, start: int
) -> int:
    """Write the entries from which on a row sums to at least ``threshold``; return their number."""
    shift, counts, places, rests = out.shift, out.counts, out.places, out.rests
    size, rest = slots.shape[0], 0.0
    for entry in range(size):
        place = _place(slots[entry], shift)
        count = np.uint64(min(counts[place], _MAX_COUNT))
        keys[entry] = count << _COUNT_SHIFT | np.uint64(place) << _PLACE_SHIFT | np.uint64(entry)
        rest += values[entry]
    for at in range(size // 2 - 1, -1, -1):
        _sift(keys, size, at)
    written = 0
    while size > 0 and rest >= threshold:
        key = keys[0]
        weight = values[np.int64(key & _ENTRY)]
        places[start + written] = np.int32((key >> _PLACE_SHIFT) & _PLACE)
        rests[start + written, 0], rests[start + written, 1] = rest, weight
        rest -= weight
        written += 1
        size -= 1
        keys[0] = keys[size]
        _sift(keys, size, 0)
    return written


@kernel
def list_prefixes(vectors: Rows, threshold: float, out: PrefixLists) -> float:
    """List under each place the rows with it in their prefix; return how many postings are read.

    threshold: the minimum score of a pair, above 0.
    Of ``out``, ``rows``, ``shift`` and ``counts`` are read; the other arrays are written in place.
    Returns the maximum number of postings that all rows read together.
    """
    vectors, out = Rows(*vectors), PrefixLists(*out)
    indptr, slots, values, norms = vectors.indptr, vectors.slots, vectors.values, vectors.norms
    rows, begins, places, rests = out.rows, out.begins, out.places, out.rests
    starts, listed, over, ends = out.starts, out.listed, out.over, out.ends
    keys = np.empty(_longest(indptr, rows), np.uint64)
    share = threshold / (1.0 + threshold) * (1.0 - _ROUNDING)
    own = 2.0 * threshold / (1.0 + threshold) * (1.0 - _ROUNDING)
    wider = threshold * (1.0 - _ROUNDING)
    seen = np.zeros(starts.shape[0], np.int64)
    total = 0
    reads = 0.0
    begins[0] = 0
    for number in range(rows.shape[0]):
        row = rows[number]
        entries = slice(indptr[row], indptr[row + 1])
        norm = np.float64(norms[row])
        spare = _spare(norm, indptr, row)
        least = wider * norm - spare
        size = _write_prefix(slots[entries], values[entries], least, keys, out, total)
        for i in range(total, total + size):
            reads += seen[places[i]]
        ends[number, 0], ends[number, 1] = norm, norm
        for i in range(total, total + size):
            if rests[i, 0] >= own * norm - spare:
                seen[places[i]] += 1
                ends[number, 1] = rests[i, 0] - rests[i, 1]
        total += size
        begins[number + 1] = total
    starts[0] = 0
    for place in range(starts.shape[0] - 1):
        starts[place + 1] = starts[place] + seen[place]
        seen[place] = starts[place]
    for number in range(rows.shape[0]):
        norm = np.float64(norms[rows[number]])
        spare = _spare(norm, indptr, rows[number])
        for i in range(begins[number], begins[number + 1]):
            if rests[i, 0] >= own * norm - spare:
                at = seen[places[i]]
                listed[at] = number
                over[at, 0] = rests[i, 0] - (share - _ROUNDING) * norm
                over[at, 1] = rests[i, 1]
                seen[places[i]] += 1
    return reads


@inner
def _first_of_norm(listed: Int32s, low: int, high: int, ends: Float32s, threshold: float) -> int:
    """Return the first position in a list, from low on, whose row has at least this norm."""
    while low < high:
        middle = (low + high) // 2
        if ends[listed[middle], 0] < threshold:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def join_prefixes(
    vectors: Rows, lists: PrefixLists, threshold: float, first: int, step: int, out: RowPairs
) -> tuple[int, int]:
    """List the pairs of some rows with rows before them that may score at least ``threshold``.

    Rows are those at positions first, first + step and so on; ``threshold`` is at least that of
    the lists. The work stops when the output, which has room for m pairs, may not hold those of the
    next row, or after some time, and can continue from there.
    Returns pairs written, and where to continue: m or more when all is done.
    """
    vectors, lists, out = Rows(*vectors), PrefixLists(*lists), RowPairs(*out)
    indptr, slots, values, norms = vectors.indptr, vectors.slots, vectors.values, vectors.norms
    rows, begins, places, rests = lists.rows, lists.begins, lists.places, lists.rests
    starts, listed, over, ends = lists.starts, lists.listed, lists.over, lists.ends
    out_a, out_b = out.a, out.b
    in_prefix = np.zeros(rows.shape[0], np.float32)
    partners = np.empty(rows.shape[0], np.int64)
    table = np.zeros(1 << TABLE_BITS, np.float32)
    share = threshold / (1.0 + threshold) * (1.0 - _ROUNDING)
    found = work = 0
    number = first
    while number < rows.shape[0] and found + number <= out_a.shape[0] and work < _MAX_WORK:
        row = rows[number]
        norm = np.float64(norms[row])
        min_norm = threshold * (1.0 - _ROUNDING) * norm
        needed = np.float32((share - _ROUNDING) * norm)
        least = min_norm - _spare(norm, indptr, row)
        end = norm
        some = 0
        for i in range(begins[number], begins[number + 1]):
            prefetch(offset(pointer(starts), places[i]))
        for i in range(begins[number], begins[number + 1]):
            prefetch(offset(pointer(listed), starts[places[i]]))
            prefetch(offset(pointer(over), 2 * starts[places[i]]))
        for i in range(begins[number], begins[number + 1]):
            rest, weight = rests[i, 0], rests[i, 1]
            if rest < least:
                break  # the threshold exceeds that of the lists
            end = np.float64(rest - weight)
            place = places[i]
            # Lists ascend, and so do norms: wanted rows are consecutive, before this row.
            stop = starts[place + 1]
            low = _first_of_norm(listed, starts[place], stop, ends, min_norm)
            greatest_norm = rest / share - norm
            work += stop - low
            for at in range(low, stop):
                other = listed[at]
                if other >= number:
                    break
                known = in_prefix[other]
                if known == _ZERO:
                    # What they share begins here, and must not be too small.
                    if over[at, 0] < needed:
                        continue
                    if greatest_norm < norm and ends[other, 0] > greatest_norm:
                        continue
                    partners[some] = other
                    some += 1
                in_prefix[other] = known + min(weight, over[at, 1])
        kept = 0
        for i in range(some):
            other = partners[i]
            most = in_prefix[other] + max(end, np.float64(ends[other, 1]))
            in_prefix[other] = _ZERO
            if most >= (share - _ROUNDING) * (norm + ends[other, 0]):
                partners[kept] = rows[other]
                kept += 1
        if kept > 0:
            add_to_table(vectors, row, table)
        for i in range(kept):
            ahead = partners[min(i + _AHEAD, kept - 1)]
            prefetch(offset(pointer(slots), indptr[ahead]))
            prefetch(offset(pointer(values), indptr[ahead]))
            partner = partners[i]
            work += indptr[partner + 1] - indptr[partner]
            min_shared = share * (norm + norms[partner])
            most_missed = norms[partner] * (1.0 + _ROUNDING) - min_shared
            shared = shared_in_table(vectors, partner, table, most_missed)
            if shared >= min_shared:
                out_a[found] = min(row, partner)
                out_b[found] = max(row, partner)
                found += 1
        if kept > 0:
            table[:] = _ZERO
        number += step
    return found, number
