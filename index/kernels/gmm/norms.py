"""L1 norms and transforms of rows, in float64 and in a fixed order of summation."""

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s
from gcws_search.index.kernels.compiling import kernel


@kernel
def dense_norms(rows: Float32s, out: Float64s) -> None:
    """Write the (n,) L1 norms of rows; not finite where a row has a NaN or an infinity."""
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
