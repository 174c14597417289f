"""Kernels along one coordinate, tabulated in pieces for many distances at a time.

Pieces are 2^b equal parts of each octave, so the bits of a number name its piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.parameters import Distribution
from gcws_search.index.similarities.polya import Pitches, ShiftedPoisson, pitches

_MIN_OCTAVE: Final = -120
_OCTAVES: Final = 160
_FINE_OCTAVE: Final = -1
_FINE_OCTAVES: Final = 2
"""Those beside 1, which may have finer pieces."""
_EXPONENT_BIAS: Final = 1023
_MANTISSA_BITS: Final = 52
_BITS: Final = ((6, None), (9, None), (6, 14))
"""Tried in turn: 64 pieces an octave are enough for all but narrow distributions, and those are
narrow about their mean; the second number is of the octaves beside it."""
_TOLERANCE: Final = 1e-8
_INSIDE: Final = (0.25, 0.5, 0.75)
_MIN: Final = 2.0**_MIN_OCTAVE


@dataclass(frozen=True, slots=True)
class Cubics:
    """Cubic pieces; below the least octave the law itself."""

    law: Pitches
    bits: int  # b
    # (5, 1 + octaves · 2^b + 1): start of each piece, and its coefficients by rising power of the
    # way from there. The first piece begins at 0; the last one has no end.
    pieces: Float64s
    fine_bits: int  # b of the fine pieces
    fine: Float64s  # (5, fine octaves · 2^b) or (5, 0): read instead in the octaves beside 1

    def along(self, distances: Float64s) -> Float64s:
        """Return k(r·E[S]), entry by entry, for distances in units of the mean pitch."""
        flat = np.ascontiguousarray(distances, np.float64).reshape(-1)
        words = flat.view(np.int64)
        before = ((_MIN_OCTAVE + _EXPONENT_BIAS) << self.bits) - 1
        places = (words >> (_MANTISSA_BITS - self.bits)) - before
        values = _cubic(self.pieces, np.clip(places, 0, self.pieces.shape[1] - 1), flat)
        if self.fine.size:
            before = (_FINE_OCTAVE + _EXPONENT_BIAS) << self.fine_bits
            places = (words >> (_MANTISSA_BITS - self.fine_bits)) - before
            here = np.flatnonzero((places >= 0) & (places < self.fine.shape[1]))
            values[here] = _cubic(self.fine, places[here], flat[here])
        near = np.flatnonzero((flat > 0) & (flat < _MIN))
        values[near] = self.law.kernel(flat[near] * self.law.mean)
        return values.reshape(distances.shape)


def _cubic(pieces: Float64s, places: Int64s, distances: Float64s) -> Float64s:
    """Return the values of the pieces at ``places``."""
    start, constant, linear, square, cube = (row.take(places) for row in pieces)
    t = distances - start
    return np.asarray(constant + t * (linear + t * (square + t * cube)))


@dataclass(frozen=True, slots=True)
class Lines:
    """Straight pieces between whole numbers: k of a pitch that is a whole number."""

    mean: float  # E[S]
    ends: Float64s  # (p,): k at 0, 1, …; the last is 0

    def along(self, distances: Float64s) -> Float64s:
        """Return k(r·E[S]), entry by entry, for distances in units of the mean pitch."""
        last = len(self.ends) - 1
        raw = np.minimum(distances, last / self.mean) * self.mean
        piece = np.minimum(raw.astype(np.int64), last - 1)
        left = self.ends[piece]
        return np.asarray(left + (raw - piece) * (self.ends[piece + 1] - left), np.float64)


PolyaCurve = Cubics | Lines


@lru_cache(maxsize=16)
def curve_of(distribution: Distribution, shape: float | None) -> PolyaCurve | None:
    """Return a curve within 10^-8 of the kernel everywhere; None if none of the sizes is."""
    law = pitches(distribution, shape)
    if isinstance(law, ShiftedPoisson):
        return Lines(law.mean, np.append(law.kernel(np.arange(law.support + 1.0)), 0.0))
    for bits, fine_bits in _BITS:
        pieces = _pieces(law, bits, _MIN_OCTAVE, _OCTAVES)
        places = _test_points(pieces[:, 0])
        first, last = np.zeros((1, 5)), np.zeros((1, 5))
        first[0, 1] = 1.0  # nothing but 0 itself is read here
        fine = np.empty((0, 5))
        if fine_bits is not None:
            fine = _pieces(law, fine_bits, _FINE_OCTAVE, _FINE_OCTAVES)
            places = np.append(places, _test_points(fine[:, 0]))
        whole = np.concatenate([first, pieces, last])
        curve = Cubics(law, bits, whole.T.copy(), fine_bits or 0, fine.T.copy())
        if np.max(np.abs(curve.along(places) - law.kernel(places * law.mean))) < _TOLERANCE:
            return curve
    return None


def _pieces(law: Pitches, bits: int, octave: int, octaves: int) -> Float64s:
    """Return the (octaves · 2^bits, 5) pieces from 2^octave on, each right at its ends."""
    starts = 2.0 ** np.arange(octave, octave + octaves)[:, None]
    inner = starts * (1.0 + np.arange(2**bits) / 2**bits)
    ends = np.append(inner, starts[-1] * 2.0)
    values, slopes = law.kernel(ends * law.mean), -law.slope(ends * law.mean) * law.mean
    widths = np.diff(ends)
    rise = np.diff(values) / widths
    left, right = slopes[:-1], slopes[1:]
    square = (3.0 * rise - 2.0 * left - right) / widths
    cube = (left + right - 2.0 * rise) / widths**2
    return np.stack([ends[:-1], values[:-1], left, square, cube], axis=1)


def _test_points(starts: Float64s) -> Float64s:
    """Return places inside each piece but the last, and its start."""
    widths = np.diff(starts)
    inside = [starts[:-1] + share * widths for share in (0.0, *_INSIDE)]
    return np.concatenate([*inside, starts[-1:]])
