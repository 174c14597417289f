"""Near-duplicate pairs from one table: all pairs in the same bucket, scored."""

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int64s, UInt8s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.gmm.dense import dense_score_within, reach
from gcws_search.index.kernels.gmm.exact_rerank import exact_gmm
from gcws_search.index.kernels.gmm.rows import Rows
from gcws_search.index.kernels.lanes.vector import offset, pointer
from gcws_search.index.kernels.lsh.tables import SortedTable
from gcws_search.index.kernels.ordering.keys import RowPairs


@inner
def _merge_score(rows: Rows, a: np.int64, b: np.int64) -> np.float32:
    """Return the float32 GMM of two compressed rows."""
    indptr, slots, values = rows.indptr, rows.slots, rows.values
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
    return shared / (rows.norms[a] + rows.norms[b] - shared)


@kernel
def join_table(
    table: SortedTable,
    rows: Rows,
    permitted: UInt8s,
    threshold: np.float32,
    first: int,
    partner: int,
    out: RowPairs,
) -> tuple[int, int, int]:
    """List pairs of rows that share a bucket and score at least ``threshold``.

    The work stops when the output is full, and can continue from place ``first`` of the table, with
    the partner at place ``partner`` (0: the next one).
    Returns pairs written, and where to continue; first is n when all is done.
    """
    table, rows, out = SortedTable(*table), Rows(*rows), RowPairs(*out)
    keys, key_rows, shift = table.keys, table.rows, table.shift
    norms = rows.norms
    width = rows.dense.shape[1]
    data = pointer(rows.dense)
    max_gap = reach(threshold) if width > 0 else np.float32(0.0)
    out_a, out_b = out.a, out.b
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
                # GMM is at most the smaller norm divided by the greater.
                near = min(norms[a], norms[b]) >= threshold * max(norms[a], norms[b])
                if near and permitted[b] != 0:
                    if width > 0:
                        score = dense_score_within(
                            offset(data, a * width),
                            norms[a],
                            offset(data, b * width),
                            norms[b],
                            width,
                            max_gap,
                        )
                    else:
                        score = _merge_score(rows, a, b)
                    if score >= threshold:
                        if found == out_a.shape[0]:
                            return found, place, other
                        out_a[found] = np.int32(min(a, b))
                        out_b[found] = np.int32(max(a, b))
                        found += 1
                other += 1
        place += 1
    return found, n, 0


@kernel
def join_block(
    rows: Rows,
    permitted: UInt8s,
    threshold: np.float32,
    first: int,
    last: int,
    left: int,
    right: int,
    out: RowPairs,
) -> tuple[int, int, int]:
    """List pairs of a dense row in [first, last) and a later one that score at least ``threshold``.

    The block's rows stay in cache while all later rows are read. The work stops when the output
    is full, and can continue from the pair ``left``, ``right``: first, first + 1 at the start.
    Returns pairs written, and where to continue; right is n when all is done.
    """
    rows, out = Rows(*rows), RowPairs(*out)
    norms = rows.norms
    width = rows.dense.shape[1]
    data = pointer(rows.dense)
    max_gap = reach(threshold)
    out_a, out_b = out.a, out.b
    found = 0
    a = left
    for b in range(right, norms.shape[0]):
        if permitted[b] != 0:
            address = offset(data, b * width)
            while a < min(last, b):
                # GMM is at most the smaller norm divided by the greater.
                near = min(norms[a], norms[b]) >= threshold * max(norms[a], norms[b])
                if near and permitted[a] != 0:
                    score = dense_score_within(
                        offset(data, a * width), norms[a], address, norms[b], width, max_gap
                    )
                    if score >= threshold:
                        if found == out_a.shape[0]:
                            return found, a, b
                        out_a[found] = np.int32(a)
                        out_b[found] = np.int32(b)
                        found += 1
                a += 1
        a = first
    return found, first, norms.shape[0]


@kernel
def exact_pairs(queries: Rows, a: Int64s, rows: Rows, b: Int64s, out: Float64s) -> None:
    """Write the (p,) float64 GMM of pairs; fastest if pairs of one query are consecutive."""
    queries, rows = Rows(*queries), Rows(*rows)
    start = 0
    for end in range(1, a.shape[0] + 1):
        if end < a.shape[0] and a[end] == a[start]:
            continue
        exact_gmm(queries, a[start], rows, b[start:end], out[start:end])
        start = end
