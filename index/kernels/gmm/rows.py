"""Vectors in the form of kernels, the rows that may be hits, L1 norms and transforms.

Sums are in float64 and in a fixed order.
"""

from typing import NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s, UInt8s, UInt32s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.kernels.compiling import kernel


class Rows(NamedTuple):
    """Rows or queries, dense or sparse; the parts of the other form are empty."""

    # (n, width); (0, width) if `codes` has the rows, (0, 0) when sparse.
    dense: Float32s
    codes: UInt8s  # (n, stride): dense rows of whole numbers, 0 to 255; (0, 0) elsewhere
    indptr: Int64s  # (n + 1,): compressed rows: the start of each row's entries
    slots: UInt32s  # (nnz,): ascending within a row
    values: Float32s  # (nnz,): magnitudes, positive
    norms: Float32s  # (n,): L1 norms


class HitFilter(NamedTuple):
    """Which rows may be hits of m queries."""

    permitted: UInt8s  # (n,): 0 for rows that no query may return
    skip: Int64s  # (m,): a row that the query must not return, or -1
    min_score: np.float32  # minimum score


def rows_of(batch: VectorBatch, *, as_held: bool = False) -> Rows:
    """Return the arrays of a batch: floats, or ``as_held`` for kernels that also read `codes`."""
    if batch.holds_bytes and not as_held:
        batch = batch.with_floats()
    return Rows(batch.floats, batch.codes, batch.indptr, batch.slots, batch.values, batch.norms)


@kernel
def dense_norms(rows: Float32s, out: Float64s) -> None:
    """Write the (n,) L1 norms of rows; not finite if a row has a NaN or an infinity."""
    for row in range(rows.shape[0]):
        a = b = c = d = 0.0
        whole = rows.shape[1] // 4 * 4
        for i in range(0, whole, 4):
            a += abs(np.float64(rows[row, i]))
            b += abs(np.float64(rows[row, i + 1]))
            c += abs(np.float64(rows[row, i + 2]))
            d += abs(np.float64(rows[row, i + 3]))
        for i in range(whole, rows.shape[1]):
            a += abs(np.float64(rows[row, i]))
        out[row] = (a + b) + (c + d)


@kernel
def sparse_norms(indptr: Int64s, values: Float32s, out: Float64s) -> None:
    """Write the L1 norm of each of n compressed rows, (n,)."""
    for row in range(indptr.shape[0] - 1):
        total = 0.0
        for i in range(indptr[row], indptr[row + 1]):
            total += abs(np.float64(values[i]))
        out[row] = total


@kernel
def transform_rows(
    indptr: Int64s, values: Float64s, power: float, norm_order: int, out: Float32s
) -> None:
    """Raise entries to a power, keeping their sign, then divide each row by its norm.

    indptr (n + 1,): row borders in the centred ``values``; evenly spaced for dense rows.
    power: p of pGMM ([TUNE]): x becomes sign(x)·|x|^p.
    norm_order: 0 none, 1 L1, 2 L2.
    """
    for row in range(indptr.shape[0] - 1):
        total = 0.0
        for i in range(indptr[row], indptr[row + 1]):
            magnitude = abs(values[i])
            if power != 1.0:
                magnitude = magnitude**power
            total += magnitude * magnitude if norm_order == 2 else magnitude
        scale = 1.0
        if norm_order == 1:
            scale = total
        elif norm_order == 2:
            scale = np.sqrt(total)
        if scale == 0.0:
            scale = 1.0
        for i in range(indptr[row], indptr[row + 1]):
            magnitude = abs(values[i])
            if power != 1.0:
                magnitude = magnitude**power
            magnitude /= scale
            out[i] = np.float32(-magnitude if values[i] < 0 else magnitude)
