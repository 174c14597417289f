"""Making an inverted index of sparse rows: for every slot the rows that have it, and how much."""

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Int32s, Int64s, UInt32s
from gcws_search.index.kernels.compiling import kernel
from gcws_search.index.kernels.ordering.radix_sort import sort_keys
from gcws_search.index.kernels.sparse.query_terms import PostingSegment


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
    keys = np.empty(count, np.uint64)
    order = np.empty(count, np.int32)
    row_of = np.empty(count, np.int32)
    for row in range(indptr.shape[0] - 1):
        for i in range(indptr[row] - start, indptr[row + 1] - start):
            keys[i] = np.uint64(slots[start + i])
            order[i] = np.int32(i)
            row_of[i] = np.int32(row)
    sort_keys(keys, order, np.empty(count, np.uint64), np.empty(count, np.int32))
    distinct = 0
    for i in range(count):
        if i == 0 or keys[i] != keys[i - 1]:
            distinct += 1
        out_slots[i] = np.uint32(keys[i])
        out_rows[i] = row_of[order[i]]
        out_values[i] = values[start + order[i]]
    return distinct


@kernel
def slot_borders(entry_slots: UInt32s, out_slots: UInt32s, out_starts: Int64s) -> None:
    """List the distinct slots of sorted entries and where each one's entries start, and the end."""
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
    """Part sorted entries into columns and postings.

    Of ``out``, ``column_of`` is read, ``columns`` are all 0 before. ``greatest``, ``starts``,
    ``rows``, ``values`` and ``columns`` are written in place.
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
