"""An inverted index of sparse rows, and the terms of a query in a segment of it.

A segment stores the magnitudes of a slot as postings, or as a column with a number for every row if
many rows have the slot. The slots of a query are its terms: they are added to sums, or looked up.
"""

from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import (
    Float32s,
    Float64s,
    Int32s,
    Int64s,
    UInt8s,
    UInt16s,
    UInt32s,
)
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.gmm.rows import Rows
from gcws_search.index.kernels.gmm.sparse import shared_mass, spread, spread_size
from gcws_search.index.kernels.lanes.vector import (
    NUMBERS_A_LINE,
    at,
    offset,
    pointer,
    prefetch,
    put,
)
from gcws_search.index.kernels.ordering.keys import sort_by_gaps

COLUMN_SHARE = 4
"""A slot that more than one row in this many has gets a column: up to 2.7 times the bytes of
postings, and quicker to look up."""
COLUMN_WORK = 8
"""Adding a column takes as long as adding postings of one row in this many."""
ALL = -1
"""Stands for the number of rows touched where any row may be."""
_PASSES = 3
"""Over entries that are sorted by slot: digits of at most 11 bits."""
_BLOCK = 2048
"""Rows whose sums stay in the first cache while columns are added."""
_LOOK = 10.0
_LOOK_UP = 1.5
_WALK = 40.0
_WALKED = 1.5
_OFFERED = 3.0
"""What looking at one row takes, in postings: beside, and for each column; beside, and for each
entry of it; where all has been added."""
_ZERO = np.float32(0.0)


class PostingSegment(NamedTuple):
    """Rows first … first + n - 1, by slot."""

    first: int
    slots: UInt32s  # (d,): ascending
    starts: Int32s  # (d + 1,): start of each slot's postings
    greatest: Float32s  # (d,): the greatest magnitude of each slot
    column_of: Int32s  # (d,): number of its column, -1 if it has postings
    rows: UInt16s  # (p,): row numbers minus ``first``, by slot, ascending
    values: Float32s  # (p,)
    columns: Float32s  # (c, n): magnitudes, 0 for rows without the slot
    min_norm: np.float32  # of the rows

    @property
    def last(self) -> int:
        """The end of the rows."""
        return self.first + self.columns.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use."""
        return sum(part.nbytes for part in self if isinstance(part, np.ndarray))


class TermScratch(NamedTuple):
    """Working memory for the scan of one query."""

    sums: Float32s  # (n,): Σ min of the terms added so far; -∞ for a fully scored row
    listed: Int32s  # (n + 1,): rows that may be hits
    touched: Int32s  # (n + 1,): rows with one of the added terms
    best_scores: Float32s  # (k,)
    best_rows: Int64s  # (k,)
    table_slots: UInt32s  # (size,): the remaining terms, spread
    table_values: Float32s
    # From here on by term, those first that add most for their work.
    columns: Int64s  # (t,): its column, or -1
    places: Int64s  # (t,): of its slot in the segment
    slots: UInt32s  # (t,): the query's
    values: Float32s
    rest: Float64s  # (t + 1,): maximum that this term and later ones can add
    work: Float64s  # (t + 1,): postings read for them
    posted: Int64s  # (t + 1,): how many of them have postings


def scratch(rows: int, longest: int, hits: int) -> TermScratch:
    """Return memory for scanning ``rows`` rows with queries of at most ``longest`` slots."""
    size = spread_size(longest)
    return TermScratch(
        np.empty(rows, np.float32),
        np.empty(rows + 1, np.int32),
        np.empty(rows + 1, np.int32),
        np.empty(hits, np.float32),
        np.empty(hits, np.int64),
        np.empty(size, np.uint32),
        np.empty(size, np.float32),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.uint32),
        np.empty(longest, np.float32),
        np.empty(longest + 1, np.float64),
        np.empty(longest + 1, np.float64),
        np.empty(longest + 1, np.int64),
    )


class TermQuery(NamedTuple):
    """One query."""

    slots: UInt32s  # (t,)
    values: Float32s
    norm: np.float32
    skip: int  # a row that it must not return, or -1
    permitted: UInt8s  # (all rows,)
    min_score: np.float32  # minimum score
    # Maximum difference of float32 scores in the wrong order: rows that score less than the worst
    # hit by more than this may be excluded.
    slack: np.float32


class Left(NamedTuple):
    """The remaining terms, by addresses; see `TermScratch` and `PostingSegment`."""

    first: Any  # numbers of the terms
    last: Any
    rest: Any  # maximum that they can add
    walked: Any  # whether some of them have postings: then rows are walked
    columns: Any
    values: Any
    magnitudes: Any
    n: Any
    table_slots: Any
    table_values: Any
    size: Any
    row_slots: Any
    row_values: Any


@inner
def _find_slot(slots: UInt32s, slot: np.uint32, low: int) -> int:
    """Return the place of the last slot up to ``slot``, from ``low`` on; ``low`` if none."""
    left = slots.shape[0] - low
    while left > 1:
        half = left // 2
        low = low + half if slots[low + half] <= slot else low
        left -= half
    return low


@inner
def find_terms(query: TermQuery, segment: PostingSegment, out: TermScratch) -> int:
    """List a query's terms in a segment, the best for their work first; return their number."""
    room = query.slots.shape[0] if segment.slots.shape[0] > 0 else 0
    places = np.empty(room, np.int64)
    numbers = np.empty(room, np.int64)
    bounds = np.empty(room, np.float64)
    works = np.empty(room, np.float64)
    count = 0
    low = 0
    for i in range(room):
        low = _find_slot(segment.slots, query.slots[i], low)
        if segment.slots[low] != query.slots[i]:
            continue
        places[count] = low
        numbers[count] = i
        bounds[count] = min(query.values[i], segment.greatest[low])
        works[count] = segment.starts[low + 1] - segment.starts[low]
        if segment.column_of[low] >= 0:
            works[count] = segment.columns.shape[1] / COLUMN_WORK
        count += 1
    ratios = np.empty(count, np.float64)  # bits of non-negative floats sort like the floats
    order = np.empty(count, np.int32)
    for i in range(count):
        ratios[i] = works[i] / bounds[i]
        order[i] = np.int32(i)
    sort_by_gaps(ratios.view(np.uint64), order, count)
    out.rest[count] = out.work[count] = 0.0
    out.posted[count] = 0
    for j in range(count - 1, -1, -1):
        i = order[j]
        column = np.int64(segment.column_of[places[i]])
        out.columns[j] = column
        out.places[j] = places[i]
        out.slots[j] = query.slots[numbers[i]]
        out.values[j] = query.values[numbers[i]]
        out.rest[j] = out.rest[j + 1] + bounds[i]
        out.work[j] = out.work[j + 1] + works[i]
        out.posted[j] = out.posted[j + 1] + np.int64(column < 0)
    return count


@inner
def _add_postings(rows: Any, values: Any, count: Any, value: Any, sums: Any) -> None:
    """Add min(value, ·) of a slot's postings to the rows' sums."""
    for i in range(count):
        row = np.intp(at(rows, i))
        put(sums, row, at(sums, row) + min(value, at(values, i)))


@inner
def _list_touched(rows: Any, count: Any, sums: Any, touched: Any, known: Any) -> Any:
    """List the rows of a slot's postings without a sum yet; return the number of listed rows."""
    for i in range(count):
        row = np.intp(at(rows, i))
        put(touched, known, row)
        known += np.int64(at(sums, row) == _ZERO)
    return known


@inner
def _add_column(column: Any, value: Any, sums: Any, first: Any, last: Any) -> None:
    """Add min(value, ·) of a column to the sums of the rows first … last - 1."""
    for i in range(first, last):
        put(sums, i, at(sums, i) + min(value, at(column, i)))


@inner
def add_terms(first: int, last: int, segment: PostingSegment, out: TermScratch, known: int) -> int:
    """Add the terms first … last - 1 to the sums of all rows; return the number of touched rows.

    ``known`` of them were touched before. `ALL` if rows are not listed, or a column was added.
    """
    n = segment.columns.shape[1]
    sums, touched = pointer(out.sums), pointer(out.touched)
    rows, values = pointer(segment.rows), pointer(segment.values)
    for j in range(first, last):
        if out.columns[j] < 0:
            start = np.int64(segment.starts[out.places[j]])
            count = segment.starts[out.places[j] + 1] - start
            of_rows = offset(rows, start)
            if known != ALL:
                known = _list_touched(of_rows, count, sums, touched, known)
            _add_postings(of_rows, offset(values, start), count, out.values[j], sums)
        else:
            known = ALL
    columns = pointer(segment.columns)
    for block in range(0, n, _BLOCK):
        end = min(n, block + _BLOCK)
        for j in range(first, last):
            if out.columns[j] >= 0:
                _add_column(offset(columns, out.columns[j] * n), out.values[j], sums, block, end)
    return known


@inner
def spread_left(
    first: int, last: int, segment: PostingSegment, rows: Rows, out: TermScratch
) -> Left:
    """Return the terms first … last - 1, spread if rows must be walked."""
    walked = out.posted[first] > 0
    size = spread_size(last - first)
    if walked:
        spread(
            out.slots[first:last],
            out.values[first:last],
            out.table_slots[:size],
            out.table_values[:size],
        )
    return Left(
        first,
        last,
        out.rest[first],
        walked,
        pointer(out.columns),
        pointer(out.values),
        pointer(segment.columns),
        segment.columns.shape[1],
        pointer(out.table_slots),
        pointer(out.table_values),
        size,
        pointer(rows.slots),
        pointer(rows.values),
    )


@inner
def rest_of_row(left: Left, row: Any, start: Any, stop: Any) -> Any:
    """Return what the remaining terms add to a row with the entries start … stop - 1."""
    if left.walked:
        return shared_mass(
            left.table_slots,
            left.table_values,
            left.size,
            left.row_slots,
            left.row_values,
            start,
            stop,
        )
    sum_ = _ZERO
    for j in range(left.first, left.last):
        held = at(left.magnitudes, at(left.columns, j) * left.n + row)
        sum_ += min(at(left.values, j), held)
    return sum_


@inner
def fetch(left: Left, row: Any, start: Any, stop: Any) -> None:
    """Prefetch what `rest_of_row` will read."""
    if left.walked:
        for i in range(start, stop, NUMBERS_A_LINE):
            prefetch(offset(left.row_slots, i))
            prefetch(offset(left.row_values, i))
    else:
        for j in range(left.first, left.last):
            prefetch(offset(left.magnitudes, at(left.columns, j) * left.n + row))


@inner
def look_work(left: Left, segment: PostingSegment, rows: Rows) -> float:
    """Return the work of scoring one row, in postings."""
    if left.first == left.last:
        return _OFFERED
    if not left.walked:
        return _LOOK + _LOOK_UP * (left.last - left.first)
    entries = rows.indptr[segment.first + left.n] - rows.indptr[segment.first]
    return _WALK + _WALKED * entries / left.n


@kernel
def sort_entries(
    indptr: Int64s,
    slots: UInt32s,
    values: Float32s,
    out_slots: UInt32s,
    out_rows: Int32s,
    out_values: Float32s,
) -> int:
    """List the entries of compressed rows by slot, then row; return the number of distinct slots.

    ``indptr[0]`` may be above 0; ``out_rows`` are relative to the first row given.
    """
    start = indptr[0]
    count = indptr[-1] - start
    greatest = np.uint32(0)
    for i in range(count):
        greatest = max(greatest, slots[start + i])
    bits = 1  # of a digit
    while np.int64(greatest) >> (_PASSES * bits) > 0:
        bits += 1
    ends = np.zeros((_PASSES, 1 << bits), np.int64)
    mask = np.uint32((1 << bits) - 1)
    for i in range(count):
        for digit in range(_PASSES):
            ends[digit, (slots[start + i] >> np.uint32(digit * bits)) & mask] += 1
    for digit in range(_PASSES):
        end = 0
        for bucket in range(ends.shape[1]):
            size = ends[digit, bucket]
            ends[digit, bucket] = end
            end += size
    out = _Entries(out_slots, out_rows, out_values)
    spare = _Entries(
        np.empty(count, np.uint32), np.empty(count, np.int32), np.empty(count, np.float32)
    )
    for row in range(indptr.shape[0] - 1):
        for i in range(indptr[row], indptr[row + 1]):
            _put(out, ends[0], slots[i] & mask, slots[i], row, values[i])
    _scatter(out, np.uint32(bits), mask, ends[1], spare)
    _scatter(spare, np.uint32(2 * bits), mask, ends[2], out)
    distinct = 0
    for i in range(count):
        distinct += i == 0 or out_slots[i] != out_slots[i - 1]
    return distinct


class _Entries(NamedTuple):
    """Entries of rows, in any order."""

    slots: UInt32s
    rows: Int32s
    values: Float32s


@inner
def _put(
    out: _Entries, places: Int64s, bucket: int, slot: np.uint32, row: int, value: np.float32
) -> None:
    """Put an entry at the next place of its bucket."""
    place = places[bucket]
    places[bucket] = place + 1
    out.slots[place], out.rows[place], out.values[place] = slot, row, value


@inner
def _scatter(
    entries: _Entries, shift: np.uint32, mask: np.uint32, places: Int64s, out: _Entries
) -> None:
    """Put entries in the order of a digit of their slots; equal digits keep their order."""
    for i in range(entries.slots.shape[0]):
        slot = entries.slots[i]
        _put(out, places, (slot >> shift) & mask, slot, entries.rows[i], entries.values[i])


@kernel
def slot_borders(entry_slots: UInt32s, out_slots: UInt32s, out_starts: Int64s) -> None:
    """List the distinct slots of sorted entries, the start of each one's entries, and the end."""
    place = 0
    for i in range(entry_slots.shape[0]):
        if i == 0 or entry_slots[i] != entry_slots[i - 1]:
            out_slots[place] = entry_slots[i]
            out_starts[place] = i
            place += 1
    out_starts[place] = entry_slots.shape[0]


@kernel
def part_postings(
    entry_starts: Int64s, entry_rows: Int32s, entry_values: Float32s, out: PostingSegment
) -> None:
    """Divide sorted entries into columns and postings.

    ``column_of`` of ``out`` is read; ``columns`` must be all 0. ``greatest``, ``starts``, ``rows``,
    ``values`` and ``columns`` are written in place.
    """
    out = PostingSegment(*out)
    place = 0
    for slot in range(out.column_of.shape[0]):
        greatest = np.float32(0.0)
        column = out.column_of[slot]
        out.starts[slot] = place
        for i in range(entry_starts[slot], entry_starts[slot + 1]):
            greatest = max(greatest, entry_values[i])
            if column >= 0:
                out.columns[column, entry_rows[i]] = entry_values[i]
            else:
                out.rows[place] = np.uint16(entry_rows[i])
                out.values[place] = entry_values[i]
                place += 1
        out.greatest[slot] = greatest
    out.starts[out.column_of.shape[0]] = place
