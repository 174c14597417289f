"""In how many samples of random binning rows share all their bins with one vector.

Bins rise with the values that fall into them: where the least and the greatest value of a
coordinate share a bin of a sample, all do, and so it is with most. Only the rest is looked at row
by row. The bins are those of `kernels.binning`; that they differ is seen without hashing them.
"""

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import LANES, Float32s, Int64s
from gcws_search.index.kernels.hashing.binning import STRIDE, bins
from gcws_search.index.kernels.hashing.randomness import scrambled
from gcws_search.index.kernels.lanes.vector import (
    absolute,
    as_floats,
    as_ints,
    at,
    lane_numbers,
    less,
    load,
    pointer,
    select,
    splat,
    store,
    to_floats,
    total,
)

_ONE_AS_BITS = np.int32(0x3F800000)
_EXPONENT = np.int32(1 << 23)


@njit(cache=True, nogil=True)
def _bins_of(x, inverse, beta):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (lanes)
    return bins(x, scrambled(as_ints(x)), inverse, beta)


@njit(cache=True, nogil=True)
def _mask(a):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (lanes)
    """Return a number whose bit l says whether lane l is not 0."""
    zero = splat(np.float32(0))
    powers = as_floats(splat(_ONE_AS_BITS) + lane_numbers() * splat(_EXPONENT))
    return np.int64(total(select(less(zero, absolute(to_floats(a))), powers, zero)))


@njit(cache=True, nogil=True)
def count_collisions(
    values: Float32s,
    lows: Float32s,
    highs: Float32s,
    sought: Float32s,
    table: Float32s,
    blocks: int,
    out: Int64s,
) -> None:
    """Count samples that are the same of each row and of what is sought.

    Parameters
    ----------
    values : (coordinates, m) float32
        Of m rows, a multiple of LANES; those of one coordinate side by side.
    lows, highs : (coordinates,) float32
        Least and greatest value of each coordinate, ``sought`` included.
    sought : (coordinates,) float32
    table : see `binning.fill_bins`
    blocks : int
        Sixteens of samples.
    out : (m,) int64, written in place
    """
    coordinates, m = values.shape
    differs = np.empty(LANES * m, np.int32)  # [l, row]: not 0 once a bin of lane l is another
    to_differs, at_values, at_table = pointer(differs), pointer(values), pointer(table)
    out[:] = 0
    for block in range(blocks):
        differs[:] = 0
        for d in range(coordinates):
            if lows[d] == highs[d]:
                continue
            place = (block * coordinates + d) * STRIDE
            inverse, beta = load(at_table, place), load(at_table, place + LANES)
            lowest = _bins_of(splat(lows[d]), inverse, beta)
            mask = _mask(lowest ^ _bins_of(splat(highs[d]), inverse, beta))
            lane = 0
            while mask >> lane:
                if mask >> lane & 1:
                    inverse = splat(at(at_table, place + lane))
                    beta = splat(at(at_table, place + LANES + lane))
                    wanted = _bins_of(splat(sought[d]), inverse, beta)
                    for first in range(0, m, LANES):
                        found = _bins_of(load(at_values, d * m + first), inverse, beta)
                        known = load(to_differs, lane * m + first)
                        store(to_differs, lane * m + first, known | (found ^ wanted))
                lane += 1
        for lane in range(LANES):
            for row in range(m):
                out[row] += differs[lane * m + row] == 0
