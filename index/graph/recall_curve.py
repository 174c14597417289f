"""What effort a walk needs for the recall asked for, as measured on the collection's own items.

An effort is one number whatever the limit is. Below 1 it is of how many of the best rows the lists
are read, as a share of the limit (of `MIN_BEAM` at least); from 1 on it is how far a walk
reaches: it goes on with rows up to so many times as far away as the last hit wanted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, log
from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.saved_index import count_of, fields_of, list_of, number_of

MIN_BEAM: Final = 10
_PLACES: Final = 32
"""A walk that is ended by its reach keeps at most so many rows for each hit wanted."""
_FEW_PLACES: Final = 2
"""A walk that is ended by a number of lists keeps so many: more are scored exactly in the end."""
_ONWARD_REACH: Final = 1.02
"""A walk of few lists reaches so far, once it goes on."""
_RARE_REACH: Final = 1.15
_FARTHER: Final = 1.15
"""A walk for a rare query reaches so far at least, and so much farther than the one before."""
_FEW_TABLES: Final = 4
FAR: Final = 1.04
"""Walks that reach less far enter through half of the tables, `_FEW_TABLES` at least."""
_LISTS_A_PLACE: Final = 4
_MORE_LISTS: Final = 64
"""No walk reads more lists than so many for each place of its beam, and so many more."""
_MAX_BEYOND: Final = 10
"""Limits up to this many times the greatest one measured take its effort."""
_CAUTION: Final = 5
"""The effort aimed at leaves a miss smaller by 1/_CAUTION of what is allowed: measured figures
vary."""

_MAX_CURVES: Final = 16
_MAX_POINTS: Final = 64
_MAX_LIMIT: Final = 1000
_MIN_EFFORT: Final = 1e-3
_MAX_EFFORT: Final = 16.0
_MAX_ROWS: Final = 1 << 40
_MAX_NUMBER: Final = 1e18
_ROUNDING: Final = 1e-6
"""Beyond these no calibration is: memory for walks is reserved by them."""


@dataclass(frozen=True, slots=True)
class RecallCurve:
    """Recall by effort, for one limit.

    Attributes
    ----------
    limit : int
    efforts : tuple of float
        Rising.
    recalls : tuple of float
        Never falling; half a standard error less than what was measured.
    candidates : tuple of float
        Rows scored quickly, on average.
    rare : tuple of float
        Queries whose last hit scores below, or that have too few, were walked for again.
    strange : tuple of float
        Scores of the last hit that no query was anywhere near. See `Calibration.strange`.
    """

    limit: int
    efforts: tuple[float, ...]
    recalls: tuple[float, ...]
    candidates: tuple[float, ...]
    rare: tuple[float, ...]
    strange: tuple[float, ...]

    def effort(self, recall: float) -> float | None:
        """Return the cheapest effort that gives a recall, None when none that was measured does.

        The least may not be it: what finds little is walked for again.
        """
        place = bisect_left(self.recalls, recall)
        if place == len(self.recalls):
            return None
        least = float(self.efforts[0])
        if place > 0:
            low, high = self.recalls[place - 1], self.recalls[place]
            nearer, farther = self.efforts[place - 1], self.efforts[place]
            least = nearer + (recall - low) / (high - low) * (farther - nearer)
            if nearer < FAR <= farther:
                least = farther  # what lies between enters through as few tables as the nearer one
        costs = self.candidates[place:]
        cheapest = costs.index(min(costs))
        cheaper = costs[cheapest] < self.at(least)[1]
        return float(self.efforts[place + cheapest]) if cheaper else least

    def at(self, effort: float) -> tuple[float, float, float]:
        """Return recall, candidates, and the score of rare queries at an effort."""
        columns = self.recalls, self.candidates, self.rare
        recall, candidates, rare = (np.interp(effort, self.efforts, each) for each in columns)
        return float(recall), float(candidates), float(rare)


def most_lists(beam: int) -> int:
    """Return how many lists a walk may read that ends by itself."""
    return _LISTS_A_PLACE * beam + _MORE_LISTS


@dataclass(frozen=True, slots=True)
class BeamSetting:
    """What a walk shall do.

    Attributes
    ----------
    beam : int
        The best rows that are kept, at most.
    lists : float
        Lists read at most, or of how many of the best rows they are; see `kernels.walk.step`. A
        fraction is the share of the queries that read one more.
    recall : float
        Expected.
    candidates : float
        Expected number of rows scored quickly.
    rare : float
        Below this score of the last hit a query found less than nearly all others.
    reach : float
        How many times as far away as the last hit wanted a row may be; see `kernels.walk`.
    """

    beam: int
    lists: float
    recall: float
    candidates: float
    rare: float = 0.0
    reach: float = inf

    def tables(self, most: int) -> int:
        """Return through how many tables the walk enters: half of ``most`` when it is short."""
        short = self.lists < self.beam or self.reach < FAR
        return min(most, max(_FEW_TABLES, most // 2)) if short else most

    def wider(self) -> BeamSetting:
        """Return the effort of the second walk, for a query that is unlike most."""
        reach = max(_RARE_REACH, _FARTHER * self.number)
        return BeamSetting.of(reach, self.places, self.recall, _PLACES * self.candidates)

    def onward(self) -> BeamSetting:
        """Return the effort with which a walk of few lists goes on."""
        return BeamSetting.of(_ONWARD_REACH, self.places, self.recall, _PLACES * self.candidates)

    @property
    def number(self) -> float:
        """The effort as one number; see the module."""
        return self.reach if self.reach < inf else self.lists / self.places

    @property
    def places(self) -> int:
        """The limit it is for, `MIN_BEAM` at least."""
        return max(1, self.beam // (_PLACES if self.reach < inf else _FEW_PLACES))

    @classmethod
    def of(
        cls,
        effort: float,
        limit: int,
        recall: float = 0.0,
        candidates: float = 0.0,
        rare: float = 0.0,
    ) -> BeamSetting:
        """Return the effort of a number; see the module."""
        places = max(limit, MIN_BEAM)
        if effort < 1:
            return cls(_FEW_PLACES * places, effort * places, recall, candidates, rare)
        beam = _PLACES * places
        return cls(beam, most_lists(beam), recall, candidates, rare, effort)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Curves of a collection.

    Attributes
    ----------
    rows : int
        How many items there were.
    curves : tuple of RecallCurve
        By rising limit.
    scan_nanoseconds : float
        What scanning one row takes for the queries measured, on average.
    flat : float
        Nearly all of these queries are nearer to the nearest row than to the tenth, times this
        factor; 1 where that is not known.
    """

    rows: int
    curves: tuple[RecallCurve, ...]
    scan_nanoseconds: float
    flat: float = 1.0

    def effort(self, limit: int, recall: float) -> BeamSetting | None:
        """Return the effort for a recall in the mean over queries like the items.

        None where no effort measured reaches it.
        """
        aim = recall + (1.0 - recall) / _CAUTION
        known = [(curve, curve.effort(aim)) for curve in self.curves]
        if not known or limit > _MAX_BEYOND * self.curves[-1].limit:
            return None
        after = next((i for i, (curve, _) in enumerate(known) if curve.limit >= limit), len(known))
        above, most = known[min(after, len(known) - 1)]
        below, least = known[after - 1] if after > 0 and above.limit != limit else (above, most)
        if most is None or least is None:
            return _by_another_limit(known, below, above, limit, aim)
        if below is above:
            return _scaled(above, most, limit)
        expected, candidates, rare = above.at(most)
        share = log(limit / below.limit) / log(above.limit / below.limit)
        # Where the hits of one limit lie in a cluster and those of the other beyond it, either
        # may be harder to find.
        rare = (1 - share) * below.at(least)[2] + share * rare
        return BeamSetting.of(max(least, most), limit, expected, candidates, rare)

    def strange(self, limit: int, effort: float) -> float:
        """Return below which score of the last hit a query is unlike the items, in the end.

        Figures measured by items say nothing of queries unlike them.
        """
        curve = next((curve for curve in self.curves if curve.limit >= limit), None)
        return 0.0 if curve is None else float(np.interp(effort, curve.efforts, curve.strange))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return {
            "rows": self.rows,
            "scan_nanoseconds": self.scan_nanoseconds,
            "flat": self.flat,
            "curves": [
                {
                    "limit": curve.limit,
                    "efforts": list(curve.efforts),
                    "recalls": list(curve.recalls),
                    "candidates": list(curve.candidates),
                    "rare": list(curve.rare),
                    "strange": list(curve.strange),
                }
                for curve in self.curves
            ],
        }

    @classmethod
    def from_dict(cls, document: object) -> Calibration:
        """Inverse of `to_dict`.

        Raises
        ------
        ValueError, KeyError
            No measurement gives such curves.
        """
        fields = fields_of(document)
        curves = tuple(_curve_of(each) for each in list_of(fields["curves"], most=_MAX_CURVES))
        if not curves or not _rise([curve.limit for curve in curves]):
            raise ValueError("limits of curves do not rise")
        return cls(
            count_of(fields["rows"], 1, _MAX_ROWS),
            curves,
            number_of(fields["scan_nanoseconds"], 0, _MAX_NUMBER),
            number_of(fields.get("flat", 1.0), -_ROUNDING, 1 + _ROUNDING),
        )


def _curve_of(document: object) -> RecallCurve:
    """Return a curve of its JSON form; ValueError or KeyError when it is none."""
    fields = fields_of(document)

    def column(name: str, least: float, most: float) -> tuple[float, ...]:
        values = list_of(fields[name], most=_MAX_POINTS)
        return tuple(number_of(value, least, most) for value in values)

    curve = RecallCurve(
        count_of(fields["limit"], 1, _MAX_LIMIT),
        column("efforts", _MIN_EFFORT, _MAX_EFFORT),
        column("recalls", 0, 1),
        column("candidates", 0, _MAX_NUMBER),
        column("rare", -_MAX_NUMBER, _MAX_NUMBER),
        column("strange", -_MAX_NUMBER, _MAX_NUMBER),
    )
    columns = (curve.recalls, curve.candidates, curve.rare, curve.strange)
    if not curve.efforts or any(len(each) != len(curve.efforts) for each in columns):
        raise ValueError("a curve of columns of unlike length, or of none")
    if not _rise(curve.efforts):
        raise ValueError("efforts do not rise")
    if list(curve.recalls) != sorted(curve.recalls):
        raise ValueError("recalls fall")
    return curve


def _rise(values: Sequence[float]) -> bool:
    return all(low < high for low, high in pairwise(values))


def _scaled(curve: RecallCurve, number: float, limit: int) -> BeamSetting:
    """Return the effort of one curve for another limit than its own, or for that."""
    expected, candidates, rare = curve.at(number)
    if limit <= curve.limit:
        return BeamSetting.of(number, limit, expected, candidates, rare)
    # Hits that far down score less than any measured: no query is rare.
    return BeamSetting.of(number, limit, expected, candidates * limit / curve.limit)


def _by_another_limit(
    known: Sequence[tuple[RecallCurve, float | None]],
    below: RecallCurve,
    above: RecallCurve,
    limit: int,
    aim: float,
) -> BeamSetting | None:
    """Return an effort where one of the curves beside a limit does not reach the recall.

    Where the lesser one does, limits near to it may, too. A greater limit is walked for as if so
    many hits were wanted: such walks keep more rows.
    """
    if below.limit < limit < above.limit and below.effort(aim) is not None:
        between = _between(below, above, limit)
        number = between.effort(aim)
        if number is not None:
            return _scaled(between, number, limit)
    for curve, number in known:
        if number is not None and curve.limit > max(limit, MIN_BEAM):
            expected, candidates, rare = curve.at(number)
            return BeamSetting.of(number, curve.limit, expected, candidates, rare)
    return None


def _between(below: RecallCurve, above: RecallCurve, limit: int) -> RecallCurve:
    """Return what is to be expected for a limit between two that were measured.

    The farther a hit is down, the less the lesser one says of it.
    """
    share = log(limit / below.limit) / log(above.limit / below.limit)
    efforts = sorted({*below.efforts, *above.efforts})

    def mixed(low: tuple[float, ...], high: tuple[float, ...]) -> tuple[float, ...]:
        lesser = np.interp(efforts, below.efforts, low)
        greater = np.interp(efforts, above.efforts, high)
        return tuple(((1 - share) * lesser + share * greater).tolist())

    return RecallCurve(
        limit,
        tuple(efforts),
        mixed(below.recalls, above.recalls),
        mixed(below.candidates, above.candidates),
        mixed(below.rare, above.rare),
        mixed(below.strange, above.strange),
    )
