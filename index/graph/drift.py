"""Whether rows put since the calibration are found as well as it says, by samples of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.hits import BatchHits
from gcws_search.index.contracts.saved_index import list_of, number_of

LIMIT: Final = 10
RECALL: Final = 0.9
"""What checks ask for."""
_INTERVAL: Final = 32
_DEAR_INTERVAL: Final = 128
_ROWS_A_STEP: Final = 1000
_CHEAP_ENTRIES: Final = 2_000_000
"""One new row in 32 is checked while a scan reads few numbers and takes some 0.2 ms; else one in
128, or more where there are so many rows: a single insert in a hundred may take longer, not more.
"""
_WINDOW: Final = 32
_MIN: Final = 16
_FAR_BELOW: Final = 0.15
"""Of the last checks, so many at least, the mean recall is this far below what was expected: that
is 4 standard errors of rows like those measured, of which one varies by 0.15."""
_FEW: Final = 8
_CLEARLY_BELOW: Final = 0.4
"""So few are enough where it is so far below."""
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(40)
_PLACES: Final = 1 << 24
"""Multiples of the golden ratio, modulo 1, as whole numbers."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class DriftMonitor:
    """What rows put since the calibration found.

    Attributes
    ----------
    shortfalls : tuple of float
        Of each of the last rows checked: the recall that was expected, less its own.
    """

    shortfalls: tuple[float, ...] = ()

    @property
    def fail(self) -> bool:
        """Whether the calibration does not hold for the rows put since."""
        count = len(self.shortfalls)
        if count < _FEW:
            return False
        below = sum(self.shortfalls) / count  # each search asks, and numpy takes 10 µs for this
        return below > (_FAR_BELOW if count >= _MIN else _CLEARLY_BELOW)

    @classmethod
    def from_list(cls, shortfalls: object) -> DriftMonitor:
        """Return checks of shortfalls as JSON holds them; ValueError when they are none."""
        values = list_of(shortfalls, most=_WINDOW)
        return cls(tuple(number_of(each, -1.0, 1.0) for each in values))

    def with_more(self, shares: Float64s, expected: float) -> DriftMonitor:
        """Return the checks with some more, of which each found a share of its true hits."""
        return DriftMonitor((*self.shortfalls, *(expected - shares).tolist())[-_WINDOW:])


def to_check(first: int, rows: int, entries: int) -> Int64s:
    """Return which of the rows from ``first`` on are checked: some of every part, at no even steps.

    Parameters
    ----------
    first, rows : int
        Of ``rows`` rows the ones from ``first`` on are new.
    entries : int
        Numbers that a scan reads.
    """
    cheap = entries <= _CHEAP_ENTRIES
    interval = _INTERVAL if cheap else max(_DEAR_INTERVAL, rows // _ROWS_A_STEP)
    new = np.arange(first, rows)
    places = (new.astype(np.uint64) * _GOLDEN >> _SHIFT).astype(np.int64)
    chosen = np.flatnonzero(places < _PLACES // interval)
    if len(chosen) > _WINDOW:
        chosen = np.sort(chosen[np.argsort(places[chosen])[:_WINDOW]])
    return new[chosen]


def shares_found(found: BatchHits, true: BatchHits) -> Float64s:
    """Return (m,): the share of each query's true hits that it found, ties by score."""
    wanted = true.sizes
    least = true.scores[np.arange(len(wanted)), wanted - 1] - _ROUNDING
    inside = np.arange(found.scores.shape[1]) < found.sizes[:, None]
    good = ((found.scores >= least[:, None]) & inside).sum(1)
    shares: Float64s = np.minimum(good, wanted) / wanted
    return shares
