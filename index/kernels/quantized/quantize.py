"""Quantization: dense rows to bytes or int16 with one step, and distances of quantized rows.

A scan of copies needs the difference between each copy and its row. Suppose that values are
clipped to the range of bytes, and then rounded. Clipping moves no two values farther apart, and the
clipped parts add up: with c(x) the clipped vector x and x = c(x) + o(x),

    ‖x − y‖₁ = ‖c(x) − c(y)‖₁ + ‖o(x) − o(y)‖₁    for all x and y

coordinate by coordinate. So a copy has an error, ‖c(x) − step · copy‖₁, and an excess, ‖o(x)‖₁.
"""

from typing import Any

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Float32s, Float64s
from gcws_search.index.contracts.batches import RowCopies
from gcws_search.index.kernels.compiling import inlined, inner, kernel
from gcws_search.index.kernels.quantized.l1_distance import REGISTER_BYTES

_ZERO = np.float32(0.0)
_MAX_BYTE = 255
_MORE = 1.0 + 1e-5
"""Errors are taken to be greater by this factor: they are rounded to float32, as what they are
compared with."""


@inner(fastmath={"reassoc"})  # sums of float64, in any order
def _write_copies(rows: Float32s, first: int, out: RowCopies) -> None:
    """Like `copy_rows`."""
    codes, norms, errors, excesses = out.codes, out.norms, out.errors, out.excesses
    step, origin = out.step, out.origin
    inverse = np.float32(1.0 / step)
    low, high = -origin * step, (_MAX_BYTE - origin) * step
    for row in range(rows.shape[0]):
        place = first + row
        norm = np.int64(0)
        error = excess = 0.0
        for i in range(rows.shape[1]):
            unit = np.rint(rows[row, i] * inverse) + np.float32(origin)
            code = np.int32(min(max(unit, _ZERO), np.float32(_MAX_BYTE)))
            codes[place, i] = np.uint8(code)
            norm += abs(code - origin)
            value = np.float64(rows[row, i])
            inside = min(max(value, low), high)
            excess += abs(value - inside)
            error += abs(inside - step * (code - origin))
        for i in range(rows.shape[1], codes.shape[1]):
            codes[place, i] = np.uint8(origin)
        norms[place] = np.float32(norm)
        errors[place] = np.float32(error * _MORE)
        excesses[place] = np.float32(excess)


@kernel
def copy_rows(rows: Float32s, first: int, out: RowCopies) -> None:
    """Write the copies of rows, from index ``first`` on."""
    _write_copies(rows, first, RowCopies(*out))


@inner
def copy_like(rows: Float32s, like: RowCopies) -> RowCopies:
    """Return copies of rows with the stride, step and origin of others."""
    count, stride = rows.shape[0], like.codes.shape[1]
    block = np.empty(count * stride + REGISTER_BYTES, np.uint8)
    start = -block.ctypes.data % REGISTER_BYTES
    out = RowCopies(
        block[start : start + count * stride].reshape((count, stride)),
        np.empty(count, np.float32),
        np.empty(count, np.float32),
        np.empty(count, np.float32),
        like.step,
        like.origin,
    )
    _write_copies(rows, 0, out)
    return out


@kernel
def round_rows(
    rows: Float32s,
    step: float,
    origin: int,
    low: float,
    high: float,
    out: AnyArray,
    out_norms: Float32s,
) -> None:
    """Write rows as (n, stride) bytes or int16 from ``low`` to ``high``, ``origin`` for 0."""
    inverse = np.float32(1.0 / step)
    zero, least, most = np.float32(origin), np.float32(low), np.float32(high)
    for row in range(rows.shape[0]):
        norm = np.int64(0)
        for i in range(rows.shape[1]):
            unit = np.int32(min(max(np.rint(rows[row, i] * inverse) + zero, least), most))
            out[row, i] = unit
            norm += abs(unit - origin)
        for i in range(rows.shape[1], out.shape[1]):
            out[row, i] = origin
        out_norms[row] = np.float32(norm)


@inlined
def _steps(value: Any, step: Any, low: Any, high: Any) -> Any:
    if step == _ZERO:
        return value
    return min(max(np.rint(value / step), low), high)


@kernel
def distances_of_groups(
    groups: Float32s,
    centres: Float32s,
    step: float,
    low: np.float32,
    high: np.float32,
    out: Float64s,
) -> None:
    """Write 1 − GMM of (g, width) centres with (g, near, width) near rows, all rounded.

    step: value of one unit; 0 for no rounding. Units beyond low and high are clipped.
    """
    unit = np.float32(step)
    for g in range(groups.shape[0]):
        for row in range(groups.shape[1]):
            apart = both = 0.0
            for i in range(groups.shape[2]):
                a = _steps(centres[g, i], unit, low, high)
                b = _steps(groups[g, row, i], unit, low, high)
                apart += abs(a - b)
                both += abs(a) + abs(b)
            out[g, row] = 1.0 - (both - apart) / max(both + apart, 1e-300)
