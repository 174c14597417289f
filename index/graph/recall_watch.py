"""Checks of the calibrated recall: with rows added since, and with audited queries.

There is drift if a sample of new rows is found less well than calibrated. Calibration uses stored
items as queries; other queries may find less. Some of these are also answered exactly
(`collection.audit`). If they missed too much, searches aim at a smaller share of the misses that
callers allow.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from math import inf
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.hits import BatchHits
from gcws_search.index.contracts.saved_index import list_of, number_of

LIMIT: Final = 10
RECALL: Final = 0.9
"""Limit and recall by which drift is measured."""


_INTERVAL: Final = 32
_NUMBERS_A_ROW: Final = 1 << 17
"""One new row in `_INTERVAL` is measured, or fewer, so that scans read at most so many numbers for
each new row, in some 13 µs."""
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
    """For the last measured rows put since calibration: expected minus measured recall."""

    shortfalls: tuple[float, ...] = ()
    has_drifted: bool = field(init=False)  # whether calibration fails for rows put since

    def __post_init__(self) -> None:
        count = len(self.shortfalls)
        most = next((most for least, most in _SHORTFALLS if count >= least), inf)
        object.__setattr__(self, "has_drifted", sum(self.shortfalls) / max(1, count) > most)

    @classmethod
    def from_list(cls, shortfalls: object) -> DriftMonitor:
        """Return a monitor with shortfalls from JSON; ValueError if they are not valid."""
        values = list_of(shortfalls, max_count=_WINDOW)
        return cls(tuple(number_of(each, -1.0, 1.0) for each in values))

    def with_more(self, shares: Float64s, expected: float) -> DriftMonitor:
        """Return the monitor after further rows; ``shares`` are their shares of true hits found."""
        return DriftMonitor((*self.shortfalls, *(expected - shares).tolist())[-_WINDOW:])


def rows_to_measure(first: int, rows: int, entries: int) -> Int64s:
    """Return a sample of the rows from ``first`` on, from every part, unevenly spaced.

    ``entries`` is the count of numbers that a scan reads.
    """
    interval = max(_INTERVAL, entries // _NUMBERS_A_ROW)
    new = np.arange(first, rows)
    places = (new.astype(np.uint64) * _GOLDEN >> _SHIFT).astype(np.int64)
    chosen = np.flatnonzero(places < _PLACES // interval)
    if len(chosen) > _WINDOW:
        chosen = np.sort(chosen[np.argsort(places[chosen])[:_WINDOW]])
    return new[chosen]


def shares_found(found: BatchHits, lowest: Float64s, wanted: Int64s | int) -> Float64s:
    """Return (m,) the share of the wanted hits that score at least as well as the last true one."""
    inside = np.arange(found.scores.shape[1]) < found.sizes[:, None]
    good = ((found.scores >= lowest[:, None] - _TIE) & inside).sum(1)
    shares: Float64s = np.minimum(good, wanted) / wanted
    return shares


MIN_QUERIES: Final = 8
"""Queries audited before anything changes."""
_DEVIATIONS: Final = 3.0
"""Standard errors by which the recall found must differ."""
_FADING: Final = 4096
"""Sums over this many queries are halved: old ones fade."""
_MIN_SHARE: Final = 1 / 16
"""The smallest share that is aimed at. Where it is not enough the graph is not searched."""
_CLASSES: Final = (1, 3, 10, 30, 100)
"""Greatest limits of each class but the last; what queries find is judged by class."""


@dataclass(slots=True)
class _Sums:
    """Sums over the audited queries of a class since its share changed.

    ``beyond`` is the misses of each query above the allowed ones; ``floor`` is the variance of its
    recall if each hit were found independently.
    """

    queries: float = 0.0
    beyond: float = 0.0
    squares: float = 0.0
    missed: float = 0.0
    allowed: float = 0.0
    floor: float = 0.0

    def add(self, limit: int, asked: float, found: float) -> None:
        self.queries += 1
        self.beyond += asked - found
        self.squares += (asked - found) ** 2
        self.missed += 1.0 - found
        self.allowed += 1.0 - asked
        self.floor += asked * (1.0 - asked) / limit

    def fade(self) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) / 2)

    @property
    def error(self) -> float:
        """Standard error of the mean of ``beyond``."""
        variance = self.squares / self.queries - (self.beyond / self.queries) ** 2
        return float((max(variance, self.floor / self.queries) / self.queries) ** 0.5)


class MissAllowance:
    """By limit, the share of the allowed misses that searches aim at.

    It is halved if audited queries find less than requested, and doubled, up to 1, if they would
    still find enough. One thread calls `take`; any thread the rest.
    """

    def __init__(self) -> None:
        self.shares = (1.0,) * (len(_CLASSES) + 1)  # by class of limits
        self._audited = [_Sums() for _ in self.shares]
        self._last_class = 0

    def share(self, limit: int) -> float:
        """Return the share for a limit; 0 if the graph finds too little with any search."""
        return self.shares[bisect_left(_CLASSES, limit)]

    @property
    def by_limit(self) -> list[tuple[int | None, float]]:
        """The shares, each with the greatest limit that it applies to; None for any limit."""
        return [*zip((*_CLASSES, None), self.shares, strict=True)]

    @property
    def finds_too_little(self) -> bool:
        """Whether the queries of the limits audited last found less than requested."""
        return self._audited[self._last_class].beyond > 0

    def take(self, limit: int, asked: float, found: float) -> None:
        """Record the requested and the measured recall of a query."""
        place = bisect_left(_CLASSES, limit)
        audited, share = self._audited[place], self.shares[place]
        audited.add(limit, asked, found)
        self._last_class = place
        if audited.queries < MIN_QUERIES:
            return
        count, margin = audited.queries, _DEVIATIONS * audited.error
        if audited.beyond / count > margin:
            halved = share / 2
            self._change(place, halved if halved >= _MIN_SHARE else 0.0)
        elif share < 1 and 2 * (audited.missed / count + margin) < audited.allowed / count:
            self._change(place, max(2 * share, _MIN_SHARE))
        elif count >= _FADING:
            audited.fade()

    def _change(self, place: int, share: float) -> None:
        self.shares = (*self.shares[:place], share, *self.shares[place + 1 :])
        self._audited[place] = _Sums()

    def to_list(self) -> list[float]:
        """Return the shares for JSON."""
        return list(self.shares)

    def restore(self, shares: object) -> None:
        """Load shares from `to_list`; ValueError if they are not valid."""
        count = len(self.shares)
        values = [number_of(each, 0.0, 1.0) for each in list_of(shares, max_count=count)]
        if len(values) not in (0, count):
            raise ValueError(f"{len(values)} shares of {count} classes")
        if values:
            self.shares = (*values,)
