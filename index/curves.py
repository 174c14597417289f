"""Kernels along one coordinate as cubic pieces, for many distances at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from index.arrays import Float64s
from index.kernels.curve import LEAST_OCTAVE, OCTAVES, read_curve
from index.params import Distribution
from index.polya import pitches

_BITS: Final = (6, 9)
"""Tried in turn: 64 pieces an octave are enough for all but narrow distributions."""
_TOLERANCE: Final = 1e-8
_INSIDE: Final = (0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True)
class Curve:
    """Cubic pieces of k(r·E[S]), as `kernels.curve` reads them.

    Attributes
    ----------
    bits : int
    pieces : (p, 5) float64
    """

    bits: int
    pieces: Float64s

    def along(self, distances: Float64s) -> Float64s:
        """Return k, entry by entry, for distances in units of the mean pitch."""
        out = np.empty(distances.shape, np.float64)
        flat = np.ascontiguousarray(distances, np.float64).reshape(-1)
        read_curve(flat, self.bits, self.pieces, out.reshape(-1))
        return out


@lru_cache(maxsize=16)
def curve_of(distribution: Distribution, shape: float | None) -> Curve | None:
    """Return pieces that are nowhere 10^-8 off; None where there are none (jumps in the slope)."""
    law = pitches(distribution, shape)
    for bits in _BITS:
        octaves = 2.0 ** np.arange(LEAST_OCTAVE, LEAST_OCTAVE + OCTAVES)[:, None]
        inner = octaves * (1.0 + np.arange(2**bits) / 2**bits)
        ends = np.append(inner, octaves[-1] * 2.0)
        values, slopes = law.kernel(ends * law.mean), -law.slope(ends * law.mean) * law.mean
        starts, widths = ends[:-1], np.diff(ends)
        rise = np.diff(values) / widths
        left, right = slopes[:-1], slopes[1:]
        square = (3.0 * rise - 2.0 * left - right) / widths
        cube = (left + right - 2.0 * rise) / widths**2
        pieces = np.concatenate([
            [[0.0, 1.0, (values[0] - 1.0) / ends[0], 0.0, 0.0]],
            np.stack([starts, values[:-1], left, square, cube], axis=1),
            np.zeros((1, 5)),
        ])  # fmt: skip
        curve = Curve(bits, pieces)
        tried = [starts + inside * widths for inside in _INSIDE]
        places = np.concatenate([ends[0] * np.array(_INSIDE), *tried, ends[-1:]])
        if np.max(np.abs(curve.along(places) - law.kernel(places * law.mean))) < _TOLERANCE:
            return curve
    return None
