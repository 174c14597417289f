"""Partners of rows: all rows that score at least ``min_score``, found by following links.

A search starts from a row's own neighbours and expands every partner that it meets, so it covers
clusters larger than a row's neighbours. It also expands a few rows that score less, best first,
because they may lead to partners too.
"""

from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Int32s, Int64s, UInt8s, UInt64s
from gcws_search.index.kernels.compiling import inlined, inner, kernel
from gcws_search.index.kernels.gmm.dense import dense_score_within, reach
from gcws_search.index.kernels.gmm.exact_rerank import compare, quick_gmm
from gcws_search.index.kernels.gmm.sparse import spread, spread_size
from gcws_search.index.kernels.graph.beam_search import line_of, links_at, neighbour_at
from gcws_search.index.kernels.lanes.vector import (
    NUMBERS_A_LINE,
    at,
    keep,
    offset,
    pointer,
    prefetch,
)

SCORED = 0
EXPANDED = 1
"""What searches have cost: rows scored, rows expanded."""
WORK = 2

_AHEAD = 128
"""Floats of a row that are prefetched."""
_NONE = np.float32(-1.0)


class PairRows(NamedTuple):
    """The n rows that are joined with each other: see `gmm.rows.Rows`, and (n,) uint8."""

    dense: Any
    codes: Any  # not used
    indptr: Any
    slots: Any
    values: Any
    norms: Any
    permitted: Any


class PairRule(NamedTuple):
    """Which pairs are wanted, and how long to search for a row's partners."""

    min_score: Any
    # Rows below ``min_score`` that a search expands. If negative, only the row itself is expanded.
    patience: Any


class Pairs(NamedTuple):
    """Pairs found: the smaller and the greater row of each; room for at least n."""

    a: Any
    b: Any
    work: Any  # (WORK,) int64: added to


class _Seen(NamedTuple):
    """Rows that one search has met."""

    words: Any  # ((n + 63) // 64,) uint64: one bit a row
    rows: Any  # (n,) int32: the rows whose bits are set
    fresh: Any  # (width,) int64: rows added by the last expansion
    waiting: Any  # (n,) int32: partners that are not expanded yet
    others: Any  # (patience,) int32: the best rows below ``min_score``, the best one last
    other_scores: Any


@inlined
def _fetch(rows: Any, row: Any) -> None:
    """Prefetch a row."""
    width = rows.dense.shape[1]
    if width > 0:
        address = offset(pointer(rows.dense), row * width)
        for line in range(0, min(width, _AHEAD), NUMBERS_A_LINE):
            prefetch(offset(address, line))
    else:
        for line in range(rows.indptr[row], rows.indptr[row + 1], NUMBERS_A_LINE):
            prefetch(offset(pointer(rows.slots), line))
            prefetch(offset(pointer(rows.values), line))


@inlined
def _expand(rows: Any, links: Any, here: Any, marked: Any, seen: Any) -> Any:
    """List and prefetch a row's unseen neighbours; return their number."""
    count = 0
    for j in range(links.width):
        row = neighbour_at(line_of(links, here), j, links.size)
        if row < 0:
            break
        if row >= links.count:
            continue
        bit = np.uint64(1) << np.uint64(row & 63)
        if seen.words[row >> 6] & bit != 0:
            continue
        seen.words[row >> 6] |= bit
        seen.rows[marked + count] = row
        seen.fresh[count] = row
        count += 1
        _fetch(rows, row)
    return count


@inlined
def _score(pair: Any, row: Any, bound: Any, farthest: Any) -> Any:
    """Return the score of two rows, or any smaller number if it is below a bound.

    ``farthest`` is the `reach` of the bound.
    """
    own, other = pair.query_norm, at(pair.norms, row)
    # GMM is at most the smaller norm divided by the greater.
    if min(own, other) < bound * max(own, other):
        return _NONE
    return quick_gmm(pair, row, farthest)


@inlined
def _insert(seen: Any, count: Any, capacity: Any, row: Any, score: Any) -> Any:
    """Insert a row among the best non-partners; return their number."""
    place = count
    if count == capacity:  # the worst one is dropped
        place = 0
        while place + 1 < count and seen.other_scores[place + 1] < score:
            seen.other_scores[place] = seen.other_scores[place + 1]
            seen.others[place] = seen.others[place + 1]
            place += 1
    else:
        while place > 0 and seen.other_scores[place - 1] > score:
            seen.other_scores[place] = seen.other_scores[place - 1]
            seen.others[place] = seen.others[place - 1]
            place -= 1
        count += 1
    seen.other_scores[place] = score
    seen.others[place] = row
    return count


@inner
def _find_partners(
    rows: Any, links: Any, a: Any, pair: Any, rule: Any, found: int, seen: Any, out: Any
) -> tuple[int, int, bool]:
    """List the partners of one row, which is compared as ``pair``, after ``found`` pairs.

    Returns pairs listed, the number of set bits, and whether the output was too small.
    """
    min_score = np.float32(rule.min_score)
    greatest_reach = reach(min_score)
    seen.words[a >> 6] |= np.uint64(1) << np.uint64(a & 63)
    seen.rows[0] = a
    marked = np.int64(1)  # a compile-time constant would compile inlined code twice
    partners = others_count = np.int64(0)
    left = max(rule.patience, 0)
    here = a
    while True:
        count = _expand(rows, links, here, marked, seen)
        marked += count
        out.work[SCORED] += count
        out.work[EXPANDED] += 1
        for i in range(count):
            row = seen.fresh[i]
            bound = min_score  # minimum score that is useful
            if others_count < left:
                bound = _NONE
            elif left > 0:
                bound = seen.other_scores[0]
            farthest = greatest_reach if bound >= min_score else reach(max(bound, np.float32(0.0)))
            score = _score(pair, row, bound, farthest)
            if score >= min_score:
                seen.waiting[partners] = row
                partners += 1
                if rows.permitted[row] != 0:
                    if found == out.a.shape[0]:
                        return found, marked, True
                    out.a[found] = np.int32(min(a, row))
                    out.b[found] = np.int32(max(a, row))
                    found += 1
            elif score > bound:
                others_count = _insert(seen, others_count, left, row, score)
        if partners > 0 and rule.patience >= 0:
            partners -= 1
            here = np.int64(seen.waiting[partners])
        elif left > 0 and others_count > 0:
            others_count -= 1
            left -= 1
            here = np.int64(seen.others[others_count])
        else:
            return found, marked, False


@kernel
def find_pairs(
    rows: PairRows, packed: UInt8s, chosen: Int64s, first: int, rule: PairRule, out: Pairs
) -> tuple[int, int]:
    """List the pairs of (m,) chosen rows with the partners that searches from them find.

    The work stops when the output is full, and can continue from number ``first`` of a chosen row.
    packed: the neighbours of each row, see `Graph.links`; those that ``rows`` lacks are
      ignored.
    Returns pairs written, and where to continue: m when all is done.
    """
    rows, rule, out = PairRows(*rows), PairRule(*rule), Pairs(*out)
    n = rows.norms.shape[0]
    links = links_at(packed, n)
    dense = rows.dense.shape[1] > 0
    longest = 0
    for i in range(rows.indptr.shape[0] - 1):
        longest = max(longest, rows.indptr[i + 1] - rows.indptr[i])
    table_slots = np.empty(spread_size(longest) if not dense else 0, np.uint32)
    table_values = np.empty(table_slots.shape[0], np.float32)
    patience = max(rule.patience, 0)
    seen = _Seen(
        np.zeros((n + 63) // 64, np.uint64),
        np.empty(n, np.int32),
        np.empty(links.width, np.int64),
        np.empty(n, np.int32),
        np.empty(patience, np.int32),
        np.empty(patience, np.float32),
    )
    found = 0
    number = first
    while number < chosen.shape[0]:
        a = chosen[number]
        if rows.permitted[a] == 0:
            number += 1
            continue
        size = 0 if dense else spread_size(rows.indptr[a + 1] - rows.indptr[a])
        own_slots, own_values = table_slots[:size], table_values[:size]
        if not dense:
            part = slice(rows.indptr[a], rows.indptr[a + 1])
            spread(rows.slots[part], rows.values[part], own_slots, own_values)
        pair, before = compare(rows, a, rows, own_slots, own_values), found
        found, marked, full = _find_partners(rows, links, a, pair, rule, found, seen, out)
        for i in range(marked):
            seen.words[np.int64(seen.rows[i]) >> 6] = np.uint64(0)
        if full:
            found = before
            break
        number += 1
    keep(table_slots)
    keep(table_values)
    return found, number


@kernel
def meet(
    rows: PairRows, chosen: Int64s, min_score: np.float32, out_numbers: Int32s, out_rows: Int32s
) -> int:
    """List the permitted dense rows that score enough with (m,) chosen ones.

    The chosen rows stay in cache while all others are read. Writes the number of a chosen row and
    the row found. Returns pairs written; -1 if there are too many.
    """
    rows = PairRows(*rows)
    width = rows.dense.shape[1]
    data = pointer(rows.dense)
    farthest = reach(min_score)
    found = 0
    for row in range(rows.norms.shape[0]):
        if rows.permitted[row] == 0:
            continue
        if found + chosen.shape[0] > out_rows.shape[0]:
            return -1
        norm, address = rows.norms[row], offset(data, row * width)
        for number in range(chosen.shape[0]):
            a = chosen[number]
            own = rows.norms[a]
            if a == row or min(own, norm) < min_score * max(own, norm):
                continue
            score = dense_score_within(offset(data, a * width), own, address, norm, width, farthest)
            if score >= min_score:
                out_numbers[found] = np.int32(number)
                out_rows[found] = np.int32(row)
                found += 1
    return found


@kernel
def shared_buckets(keys: UInt64s, shifts: UInt64s, out: Int64s) -> None:
    """Add to (d,) ``out`` how many pairs of places of a sorted table share a bucket, by depth.

    keys (n,): ascending. shifts (d,): keys that agree above this many low bits share a bucket.
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
