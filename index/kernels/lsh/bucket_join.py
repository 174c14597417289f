"""Near-duplicate pairs from one table: all pairs in the same bucket, scored."""

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
from gcws_search.index.kernels.gmm.dense import dense_score_within, exact_dense, reach
from gcws_search.index.kernels.gmm.sparse import exact_sparse
from gcws_search.index.kernels.lanes.vector import offset, pointer


@njit(cache=True, nogil=True)
def _merge_score(
    indptr: Int64s, slots: UInt32s, values: Float32s, norms: Float32s, a: int, b: int
) -> np.float32:
    """Return the float32 GMM of two compressed rows."""
    shared = np.float32(0.0)
    i = indptr[a]
    j = indptr[b]
    while i < indptr[a + 1] and j < indptr[b + 1]:
        if slots[i] == slots[j]:
            shared += min(values[i], values[j])
            i += 1
            j += 1
        elif slots[i] < slots[j]:
            i += 1
        else:
            j += 1
    return shared / (norms[a] + norms[b] - shared)


@njit(cache=True, nogil=True)
def join_table(
    keys: UInt64s,
    key_rows: Int32s,
    shift: np.uint64,
    rows: Float32s,
    indptr: Int64s,
    slots: UInt32s,
    values: Float32s,
    norms: Float32s,
    permitted: UInt8s,
    least: np.float32,
    first: int,
    partner: int,
    out_a: Int32s,
    out_b: Int32s,
) -> tuple[int, int, int]:
    """List pairs of rows that share a bucket and score at least ``least``.

    The work can stop when the output is full and go on later from where it was.

    Parameters
    ----------
    keys, key_rows : (n,) uint64 and int32
        One sorted table.
    shift : uint64
        Keys that agree above this many low bits share a bucket.
    rows : (r, width) float32, or (0, 0) when the rows are sparse
    indptr, slots, values : sparse rows, compressed
    norms : (r,) float32
    permitted : (r,) uint8
    least : float32
    first, partner : int
        Place in the table to go on from, and the place of its next partner (0: the next place).
    out_a, out_b : (capacity,) int32, written in place
        The lesser and the greater row of each pair.

    Returns
    -------
    count, first, partner : int
        Pairs written, and where to go on; first is n when all is done.
    """
    width = rows.shape[1]
    data = pointer(rows)
    farthest = reach(least) if width > 0 else np.float32(0.0)
    found = 0
    n = keys.shape[0]
    place = first
    while place < n:
        a = np.int64(key_rows[place])
        other = partner if partner > 0 else place + 1
        partner = 0
        if permitted[a] != 0:
            while other < n and ((keys[place] ^ keys[other]) >> shift) == 0:
                b = np.int64(key_rows[other])
                # GMM is at most the lesser norm over the greater.
                near = min(norms[a], norms[b]) >= least * max(norms[a], norms[b])
                if near and permitted[b] != 0:
                    if width > 0:
                        score = dense_score_within(
                            offset(data, a * width),
                            norms[a],
                            offset(data, b * width),
                            norms[b],
                            width,
                            farthest,
                        )
                    else:
                        score = _merge_score(indptr, slots, values, norms, a, b)
                    if score >= least:
                        if found == out_a.shape[0]:
                            return found, place, other
                        out_a[found] = np.int32(min(a, b))
                        out_b[found] = np.int32(max(a, b))
                        found += 1
                other += 1
        place += 1
    return found, n, 0


@njit(cache=True, nogil=True)
def join_block(
    rows: Float32s,
    norms: Float32s,
    permitted: UInt8s,
    least: np.float32,
    first: int,
    last: int,
    left: int,
    right: int,
    out_a: Int32s,
    out_b: Int32s,
) -> tuple[int, int, int]:
    """List pairs of a dense row in [first, last) and a later row that score at least ``least``.

    The block's rows stay in cache while all later rows pass by. The work can stop when the output
    is full and go on later from where it was.

    Parameters
    ----------
    rows : (n, width) float32
    norms : (n,) float32
    permitted : (n,) uint8
    least : float32
    first, last : int
    left, right : int
        The pair to go on from; first and first + 1 at the start.
    out_a, out_b : (capacity,) int32, written in place

    Returns
    -------
    count, left, right : int
        Pairs written, and where to go on; right is n when all is done.
    """
    width = rows.shape[1]
    data = pointer(rows)
    farthest = reach(least)
    found = 0
    a = left
    for b in range(right, rows.shape[0]):
        if permitted[b] != 0:
            address = offset(data, b * width)
            while a < min(last, b):
                # GMM is at most the lesser norm over the greater.
                near = min(norms[a], norms[b]) >= least * max(norms[a], norms[b])
                if near and permitted[a] != 0:
                    score = dense_score_within(
                        offset(data, a * width), norms[a], address, norms[b], width, farthest
                    )
                    if score >= least:
                        if found == out_a.shape[0]:
                            return found, a, b
                        out_a[found] = np.int32(a)
                        out_b[found] = np.int32(b)
                        found += 1
                a += 1
        a = first
    return found, first, rows.shape[0]


@njit(cache=True, nogil=True)
def exact_pairs(
    rows: Float32s,
    indptr: Int64s,
    slots: UInt32s,
    values: Float32s,
    a: Int64s,
    b: Int64s,
    out: Float64s,
) -> None:
    """Write the float64 GMM of pairs of rows.

    Parameters
    ----------
    rows : (n, width) float32, or (0, 0) when the rows are sparse
    indptr, slots, values : sparse rows, compressed
    a, b : (p,) int64
        Rows; those with the same a are best beside each other.
    out : (p,) float64, written in place
    """
    start = 0
    for end in range(1, a.shape[0] + 1):
        if end < a.shape[0] and a[end] == a[start]:
            continue
        row = a[start]
        if rows.shape[1] > 0:
            exact_dense(rows[row], rows, b[start:end], out[start:end])
        else:
            part = slice(indptr[row], indptr[row + 1])
            exact_sparse(
                slots[part], values[part], indptr, slots, values, b[start:end], out[start:end]
            )
        start = end
