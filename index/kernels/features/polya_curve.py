"""A function of a distance, read off cubic pieces: some nanoseconds where the function takes 500.

Pieces are 2^b equal parts of each octave, so the number's own bits name its piece.
"""

from typing import Final

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import Float64s

MIN_OCTAVE: Final = -120
OCTAVES: Final = 160
FINE_OCTAVE: Final = -1
FINE_OCTAVES: Final = 2
"""Those beside 1, which may have finer pieces."""

_EXPONENT_BIAS = 1023
_MANTISSA_BITS = 52


@njit(cache=True, nogil=True)
def read_curve(
    distances: Float64s, bits: int, pieces: Float64s, fine_bits: int, fine: Float64s, out: Float64s
) -> None:
    """Write the curve's values.

    Parameters
    ----------
    distances : (n,) float64
        Not negative.
    bits : int
        b.
    pieces : (1 + OCTAVES · 2^b + 1, 5) float64
        Start of a piece, and its coefficients by rising power of the way from there. The first one
        begins at 0; the last one goes on for ever.
    fine_bits : int
        b of the fine pieces.
    fine : (FINE_OCTAVES · 2^b, 5) or (0, 5) float64
        What is read instead in the octaves beside 1, if there are any.
    out : (n,) float64, written in place
    """
    words = distances.view(np.int64)
    shift, fine_shift = _MANTISSA_BITS - bits, _MANTISSA_BITS - fine_bits
    before = ((MIN_OCTAVE + _EXPONENT_BIAS) << bits) - 1
    fine_before = (FINE_OCTAVE + _EXPONENT_BIAS) << fine_bits
    last = pieces.shape[0] - 1
    for i in range(distances.shape[0]):
        piece = (words[i] >> fine_shift) - fine_before
        held = fine
        if piece < 0 or piece >= fine.shape[0]:
            piece = min(max((words[i] >> shift) - before, 0), last)
            held = pieces
        t = distances[i] - held[piece, 0]
        value = held[piece, 3] + t * held[piece, 4]
        out[i] = held[piece, 1] + t * (held[piece, 2] + t * value)
