"""Spectra as vectors: each peak in a bin of each of two grids, shifted by half a bin.

With a bin w, a peak of mass-to-charge ratio m and intensity I lies v = 2 m / w halves of a bin from
0. Coordinate n stands for the bin whose middle is n w / 2: even ones are of one grid, odd ones of
the other. The peak gives I (1 - f) to coordinate n = floor(v) and I f to n + 1, where f = v - n.

A bin of one grid ends in the middle of one of the other, so no peak is near the edge of both. Two
peaks at a distance d below w / 2 share at least 1 - 2 d / w of their intensity, wherever they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from gcws_search.index.contracts.errors import InvalidVector

__all__ = ["bins"]

_MAX_INDEX: Final = 2**31 - 2


def bins(
    mz: Sequence[float], intensities: Sequence[float], width: float = 0.01
) -> dict[int, float]:
    """Return the peaks of a spectrum as a vector: coordinate n stands for n · width / 2.

    Parameters
    ----------
    mz : sequence of float, (n,)
        Mass-to-charge ratios.
    intensities : sequence of float, (n,)
        Of each peak; at least 0.
    width : float
        Of a bin, in the unit of ``mz``.

    Raises
    ------
    InvalidVector
        A number is negative or none, or the width makes too many bins.
    """
    places, heights = np.asarray(mz, np.float64), np.asarray(intensities, np.float64)
    for name, numbers in (("m/z", places), ("intensities", heights)):
        if not np.isfinite(numbers).all() or (numbers < 0).any():
            bad = numbers[~(numbers >= 0) | ~np.isfinite(numbers)][0]
            raise InvalidVector(expected=f"{name} of at least 0", got=str(bad))
    if places.shape != heights.shape:
        raise InvalidVector(
            expected="as many intensities as m/z", got=f"{heights.size} and {places.size}"
        )
    with np.errstate(over="ignore"):
        halves = 2 * places / width
    if halves.size and halves.max() >= _MAX_INDEX:
        raise InvalidVector(
            expected=f"m/z below {_MAX_INDEX * width / 2:g} with bins of {width:g}",
            got=str(places.max()),
        )
    first = np.floor(halves).astype(np.int64)
    shares = halves - first
    coordinates, at = np.unique(np.concatenate([first, first + 1]), return_inverse=True)
    weights = np.bincount(at, np.concatenate([heights * (1 - shares), heights * shares]))
    kept = weights > 0
    return dict(zip(coordinates[kept].tolist(), weights[kept].tolist(), strict=True))
