"""An inverted index over sparse rows, and the exact scan that accumulates minima over it.

For every slot it lists the rows that have it and their magnitudes; a query adds min(q, v) to each
listed row, so rows that share no slot with it are never touched.
"""

import numpy as np
from numba import njit

from index.arrays import Float32s, Int32s, Int64s, UInt8s, UInt32s
from index.kernels.gmm_sparse import offer_sparse
from index.kernels.radix import sort_keys


@njit(cache=True, nogil=True)
def sort_entries(
    indptr: Int64s,
    slots: UInt32s,
    values: Float32s,
    out_slots: UInt32s,
    out_rows: Int32s,
    out_values: Float32s,
) -> int:
    """List the entries of compressed rows by slot, then row; return the number of distinct slots.

    Parameters
    ----------
    indptr, slots, values : compressed rows; indptr[0] may be above 0
    out_slots : (nnz,) uint32, written in place
    out_rows : (nnz,) int32, written in place
        Row numbers relative to the first row given.
    out_values : (nnz,) float32, written in place
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


@njit(cache=True, nogil=True)
def slot_borders(entry_slots: UInt32s, out_slots: UInt32s, out_starts: Int64s) -> None:
    """List the distinct slots of sorted entries and where each one's entries start.

    Parameters
    ----------
    entry_slots : (nnz,) uint32, rising
    out_slots : (distinct,) uint32, written in place
    out_starts : (distinct + 1,) int64, written in place
    """
    place = 0
    for i in range(entry_slots.shape[0]):
        if i == 0 or entry_slots[i] != entry_slots[i - 1]:
            out_slots[place] = entry_slots[i]
            out_starts[place] = i
            place += 1
    out_starts[place] = entry_slots.shape[0]


@njit(cache=True, nogil=True)
def _find_slot(slots: UInt32s, slot: np.uint32) -> int:
    """Return the place of a slot in a rising list, or -1."""
    low = 0
    high = slots.shape[0]
    while low < high:
        middle = (low + high) // 2
        if slots[middle] < slot:
            low = middle + 1
        else:
            high = middle
    return low if low < slots.shape[0] and slots[low] == slot else -1


@njit(cache=True, nogil=True)
def shared_postings(
    query_slots: UInt32s,
    query_values: Float32s,
    slots: UInt32s,
    starts: Int64s,
    entry_rows: Int32s,
    entry_values: Float32s,
    out: Float32s,
) -> None:
    """Write Σ min of one query and every row of a segment.

    Parameters
    ----------
    query_slots, query_values : (nnz,)
    slots, starts, entry_rows, entry_values : the segment's postings
    out : (rows of the segment,) float32, written in place
    """
    out[:] = np.float32(0.0)
    for i in range(query_slots.shape[0]):
        place = _find_slot(slots, query_slots[i])
        if place < 0:
            continue
        value = query_values[i]
        for entry in range(starts[place], starts[place + 1]):
            out[entry_rows[entry]] += min(value, entry_values[entry])


@njit(cache=True, nogil=True)
def scan_postings(
    query_indptr: Int64s,
    query_slots: UInt32s,
    query_values: Float32s,
    query_norms: Float32s,
    slots: UInt32s,
    starts: Int64s,
    entry_rows: Int32s,
    entry_values: Float32s,
    norms: Float32s,
    permitted: UInt8s,
    skip: Int64s,
    least: np.float32,
    first: int,
    shared: Float32s,
    out_scores: Float32s,
    out_rows: Int64s,
    out_sizes: Int64s,
) -> None:
    """Offer every permitted row of a segment to each query's heap.

    Parameters
    ----------
    query_indptr, query_slots, query_values : compressed queries
    query_norms : (m,) float32
    slots, starts, entry_rows, entry_values : the segment's postings
    norms : (n,) float32
        Of all rows.
    permitted : (n,) uint8
    skip : (m,) int64
    least : float32
    first : int
        Row number of the segment's first row.
    shared : (rows of the segment,) float32, scratch
    out_scores, out_rows : (m, k), written in place
    out_sizes : (m,) int64, written in place
    """
    for m in range(query_indptr.shape[0] - 1):
        entries = slice(query_indptr[m], query_indptr[m + 1])
        shared_postings(
            query_slots[entries], query_values[entries],
            slots, starts, entry_rows, entry_values, shared,
        )  # fmt: skip
        out_sizes[m] = offer_sparse(
            shared, query_norms[m], norms, permitted, skip[m], least, first,
            out_scores[m], out_rows[m], out_sizes[m],
        )  # fmt: skip
