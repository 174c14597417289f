"""Drift: whether new rows are found as well as calibrated, judged by a sample of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.hits import BatchHits
from gcws_search.index.contracts.saved_index import list_of, number_of

LIMIT: Final = 10
RECALL: Final = 0.9
"""Limit and recall by which drift is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftPolicy:
    """How many new rows are measured, and how low their recall may be.

    Attributes
    ----------
    interval, long_interval : int
        One new row in ``interval`` is measured while a scan reads at most ``cheap_entries``
        numbers, which takes about 0.2 ms; else one in ``long_interval``, or more in large
        collections: one single insert in a hundred may take longer.
    rows_a_step : int
        The interval of a large collection is its rows divided by this.
    window : int
        Rows measured last that are judged by.
    min_count, shortfall : int, float
        Rows have drifted if the mean recall of at least ``min_count`` is lower by ``shortfall``
        than expected: 4 standard errors, as the recall of one row varies by 0.15.
    min_count_large, large_shortfall : int, float
        The same for fewer rows and a larger shortfall.
    """

    interval: int = 32
    long_interval: int = 128
    rows_a_step: int = 1000
    cheap_entries: int = 2_000_000
    window: int = 32
    min_count: int = 16
    shortfall: float = 0.15
    min_count_large: int = 8
    large_shortfall: float = 0.4


DRIFT_POLICY: Final = DriftPolicy()

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(40)
_PLACES: Final = 1 << 24
"""Multiples of the golden ratio, modulo 1, as whole numbers."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class DriftMonitor:
    """What rows put since calibration found.

    Attributes
    ----------
    shortfalls : tuple of float
        Of each of the rows measured last: the recall expected, less its own.
    """

    shortfalls: tuple[float, ...] = ()
    policy: DriftPolicy = DRIFT_POLICY

    @property
    def has_drifted(self) -> bool:
        """Whether the calibration does not hold for the rows put since."""
        count, policy = len(self.shortfalls), self.policy
        if count < policy.min_count_large:
            return False
        below = sum(self.shortfalls) / count  # each search asks, and numpy takes 10 µs for this
        return below > (policy.shortfall if count >= policy.min_count else policy.large_shortfall)

    @classmethod
    def from_list(cls, shortfalls: object, policy: DriftPolicy = DRIFT_POLICY) -> DriftMonitor:
        """Return a monitor of shortfalls as JSON holds them; ValueError when they are none."""
        values = list_of(shortfalls, max_count=policy.window)
        return cls(tuple(number_of(each, -1.0, 1.0) for each in values), policy)

    def with_more(self, shares: Float64s, expected: float) -> DriftMonitor:
        """Return the monitor after further rows; ``shares`` are their shares of true hits found."""
        shortfalls = (*self.shortfalls, *(expected - shares).tolist())
        return replace(self, shortfalls=shortfalls[-self.policy.window :])


def rows_to_measure(
    first: int, rows: int, entries: int, policy: DriftPolicy = DRIFT_POLICY
) -> Int64s:
    """Return which of the rows from ``first`` on are measured: some of every part, unevenly spaced.

    Parameters
    ----------
    first, rows : int
        Of ``rows`` rows the ones from ``first`` on are new.
    entries : int
        Numbers that a scan reads.
    """
    interval = policy.interval
    if entries > policy.cheap_entries:
        interval = max(policy.long_interval, rows // policy.rows_a_step)
    new = np.arange(first, rows)
    places = (new.astype(np.uint64) * _GOLDEN >> _SHIFT).astype(np.int64)
    chosen = np.flatnonzero(places < _PLACES // interval)
    if len(chosen) > policy.window:
        chosen = np.sort(chosen[np.argsort(places[chosen])[: policy.window]])
    return new[chosen]


def shares_found(found: BatchHits, true: BatchHits) -> Float64s:
    """Return (m,): the share of each query's true hits that it found, ties by score."""
    wanted = true.sizes
    lowest = true.scores[np.arange(len(wanted)), wanted - 1] - _ROUNDING
    inside = np.arange(found.scores.shape[1]) < found.sizes[:, None]
    good = ((found.scores >= lowest[:, None]) & inside).sum(1)
    shares: Float64s = np.minimum(good, wanted) / wanted
    return shares
