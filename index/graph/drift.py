"""Drift: whether new rows are found as well as calibrated, judged by a sample of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.hits import BatchHits
from gcws_search.index.contracts.saved_index import list_of, number_of

LIMIT: Final = 10
RECALL: Final = 0.9
"""Limit and recall by which drift is measured."""


_INTERVAL: Final = 32
_CHEAP_ENTRIES: Final = 2_000_000
"""One new row in `_INTERVAL` is measured while a scan reads at most this many numbers, in 0.2
ms."""
_LONG_INTERVAL: Final = 128
_ROWS_A_STEP: Final = 1000
"""Else one in `_LONG_INTERVAL`, or in this share of the rows if that is more: one single insert in
a hundred may take longer."""
_WINDOW: Final = 32
"""Rows measured last that are judged by."""
_SHORTFALLS: Final = ((16, 0.15), (8, 0.4))
"""Rows have drifted if the mean recall of at least so many is lower by this than expected. The
first is 4 standard errors, as the recall of one row varies by 0.15."""

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(40)
_PLACES: Final = 1 << 24
"""Multiples of the golden ratio, modulo 1, as whole numbers."""
_TIE: Final = 1e-9
"""Scores so near to each other tie."""


@dataclass(frozen=True, slots=True)
class DriftMonitor:
    """Of rows put since calibration, those measured last: the recall expected, less their own."""

    shortfalls: tuple[float, ...] = ()

    @property
    def has_drifted(self) -> bool:
        """Whether the calibration does not hold for the rows put since."""
        count = len(self.shortfalls)
        for min_count, shortfall in _SHORTFALLS:
            if count >= min_count:  # each search asks, and numpy takes 10 µs for a mean
                return sum(self.shortfalls) / count > shortfall
        return False

    @classmethod
    def from_list(cls, shortfalls: object) -> DriftMonitor:
        """Return a monitor of shortfalls as JSON holds them; ValueError when they are none."""
        values = list_of(shortfalls, max_count=_WINDOW)
        return cls(tuple(number_of(each, -1.0, 1.0) for each in values))

    def with_more(self, shares: Float64s, expected: float) -> DriftMonitor:
        """Return the monitor after further rows; ``shares`` are their shares of true hits found."""
        return DriftMonitor((*self.shortfalls, *(expected - shares).tolist())[-_WINDOW:])


def rows_to_measure(first: int, rows: int, entries: int) -> Int64s:
    """Return which of the rows from ``first`` on are measured: some of every part, unevenly spaced.

    A scan reads ``entries`` numbers.
    """
    interval = _INTERVAL
    if entries > _CHEAP_ENTRIES:
        interval = max(_LONG_INTERVAL, rows // _ROWS_A_STEP)
    new = np.arange(first, rows)
    places = (new.astype(np.uint64) * _GOLDEN >> _SHIFT).astype(np.int64)
    chosen = np.flatnonzero(places < _PLACES // interval)
    if len(chosen) > _WINDOW:
        chosen = np.sort(chosen[np.argsort(places[chosen])[:_WINDOW]])
    return new[chosen]


def shares_found(found: BatchHits, lowest: Float64s, wanted: Int64s | int) -> Float64s:
    """Return (m,): the share of the hits wanted that score as well as the last true one."""
    inside = np.arange(found.scores.shape[1]) < found.sizes[:, None]
    good = ((found.scores >= lowest[:, None] - _TIE) & inside).sum(1)
    shares: Float64s = np.minimum(good, wanted) / wanted
    return shares
