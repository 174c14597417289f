"""Rounding dense rows to bytes or int16 of one step, and how far rounded rows are apart."""

from typing import Any

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import AnyArray, Float32s, Float64s, UInt8s
from gcws_search.index.kernels.quantized.rows import MAX_SHORT

_ZERO = np.float32(0.0)


@njit(cache=True, nogil=True)
def round_to_bytes(
    rows: Float32s, step: float, origin: int, out: UInt8s, out_norms: Float32s
) -> None:
    """Write rows as unsigned bytes, values out of range cut off.

    Parameters
    ----------
    rows : (n, width) float32
    step : float
        What one unit stands for.
    origin : int
        The byte of 0.
    out : (n, stride) uint8, written in place
    out_norms : (n,) float32, written in place
    """
    inverse = np.float32(1.0 / step)
    for row in range(rows.shape[0]):
        norm = np.int64(0)
        for i in range(rows.shape[1]):
            unit = np.rint(rows[row, i] * inverse) + np.float32(origin)
            byte = np.int32(min(max(unit, _ZERO), np.float32(255.0)))
            out[row, i] = np.uint8(byte)
            norm += abs(byte - origin)
        for i in range(rows.shape[1], out.shape[1]):
            out[row, i] = np.uint8(origin)
        out_norms[row] = np.float32(norm)


@njit(cache=True, nogil=True)
def round_to_shorts(rows: Float32s, step: float, out: AnyArray, out_norms: Float32s) -> None:
    """Write rows as int16 between ± MOST_SHORT, values out of range cut off.

    Parameters
    ----------
    rows : (n, width) float32
    step : float
    out : (n, stride / 2) int16, written in place
    out_norms : (n,) float32, written in place
    """
    inverse = np.float32(1.0 / step)
    most = np.float32(MAX_SHORT)
    for row in range(rows.shape[0]):
        norm = np.int64(0)
        for i in range(rows.shape[1]):
            unit = np.int32(min(max(np.rint(rows[row, i] * inverse), -most), most))
            out[row, i] = np.int16(unit)
            norm += abs(unit)
        for i in range(rows.shape[1], out.shape[1]):
            out[row, i] = np.int16(0)
        out_norms[row] = np.float32(norm)


@njit(cache=True, nogil=True, forceinline=True)
def _steps(value: Any, step: Any, low: Any, high: Any) -> Any:
    if step == _ZERO:
        return value
    return min(max(np.rint(value / step), low), high)


@njit(cache=True, nogil=True)
def distances_of_groups(
    groups: Float32s,
    centres: Float32s,
    step: float,
    low: np.float32,
    high: np.float32,
    out: Float64s,
) -> None:
    """Write how far centres are from rows near to them, all of them rounded.

    Parameters
    ----------
    groups : (g, near, width) float32
    centres : (g, width) float32
    step : float
        What one unit stands for; 0 where nothing is rounded.
    low, high : float32
        Units beyond are cut off.
    out : (g, near) float64, written in place
        1 − GMM.
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
