"""Which beam setting a search needs for a recall, as calibrated.

One number f is a beam setting, whatever the limit is. With f < 1 the search ends once the best
f · max(limit, `MIN_BEAM`) rows of the pool are expanded. With f ≥ 1 it is the slack: a row is
expanded while its distance is at most f times that of the limit-th best row so far.
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
_SLACK_PLACES: Final = 32
"""Rows that the beam holds for each hit wanted, where a slack ends the search."""
_EXPANDED_PLACES: Final = 2
"""Rows that the beam holds for each hit wanted, where a number of expansions ends the search."""
_EXTENSION_SLACK: Final = 1.02
"""Slack of an extended search."""
_SECOND_SLACK: Final = 1.15
_SECOND_FACTOR: Final = 1.15
"""Slack of a second search: the first of these at least, and the second times that of the first
search."""
_MIN_TABLES: Final = 4
WIDE_SLACK: Final = 1.04
"""Searches of less slack enter through half of the tables, `_MIN_TABLES` at least."""
_EXPANDED_A_PLACE: Final = 4
_MORE_EXPANDED: Final = 64
"""No search expands more rows than the first of these for each place of its beam, and the second.
"""
_MAX_EXTRAPOLATED: Final = 10
"""Limits up to this many times the greatest one measured take its setting."""
_SAFETY: Final = 5
"""The setting aims at a miss that is smaller by 1/_SAFETY than allowed: measured figures vary."""

_MAX_CURVES: Final = 16
_MAX_POINTS: Final = 64
_MAX_LIMIT: Final = 1000
_MIN_SETTING: Final = 1e-3
_MAX_SETTING: Final = 16.0
_MAX_ROWS: Final = 1 << 40
_MAX_NUMBER: Final = 1e18
_ROUNDING: Final = 1e-6
"""Beyond these no calibration is: memory for walks is reserved by them."""


@dataclass(frozen=True, slots=True)
class RecallCurve:
    """Recall by beam setting, for one limit.

    Attributes
    ----------
    limit : int
    settings : tuple of float
        Rising.
    recalls : tuple of float
        Never falling; half a standard error less than what was measured.
    candidates : tuple of float
        Rows scored quickly, on average.
    low_scores : tuple of float
        Queries whose last hit scores less, or that have too few, were searched for again.
    out_of_range : tuple of float
        Scores of the last hit that no query came near. See `Calibration.out_of_range`.
    """

    limit: int
    settings: tuple[float, ...]
    recalls: tuple[float, ...]
    candidates: tuple[float, ...]
    low_scores: tuple[float, ...]
    out_of_range: tuple[float, ...]

    def setting(self, recall: float) -> float | None:
        """Return the cheapest setting that gives a recall, None when none that was measured does.

        The lowest may not be the cheapest: more of its queries are searched for again.
        """
        place = bisect_left(self.recalls, recall)
        if place == len(self.recalls):
            return None
        least = float(self.settings[0])
        if place > 0:
            low, high = self.recalls[place - 1], self.recalls[place]
            nearer, farther = self.settings[place - 1], self.settings[place]
            least = nearer + (recall - low) / (high - low) * (farther - nearer)
            if nearer < WIDE_SLACK <= farther:
                least = farther  # those between enter through half of the tables
        costs = self.candidates[place:]
        cheapest = costs.index(min(costs))
        cheaper = costs[cheapest] < self.at(least)[1]
        return float(self.settings[place + cheapest]) if cheaper else least

    def at(self, setting: float) -> tuple[float, float, float]:
        """Return recall, candidates, and the low score at a setting."""
        columns = self.recalls, self.candidates, self.low_scores
        recall, candidates, low = (np.interp(setting, self.settings, each) for each in columns)
        return float(recall), float(candidates), float(low)


def max_expanded(beam: int) -> int:
    """Return how many rows a search may expand that a slack ends."""
    return _EXPANDED_A_PLACE * beam + _MORE_EXPANDED


@dataclass(frozen=True, slots=True)
class BeamSetting:
    """How wide a search is, and what to expect of it.

    Attributes
    ----------
    beam : int
        Rows that the beam holds at most.
    max_expanded : float
        Rows expanded at most, or how many of the best rows are; see `beam_search.Beam`. A fraction
        is the share of the queries that expand one more.
    recall : float
        Expected.
    candidates : float
        Expected number of rows scored quickly.
    low_score : float
        Queries whose last hit scores less are searched for again.
    slack : float
        How many times as far away as the last hit wanted a row may be that is expanded.
    """

    beam: int
    max_expanded: float
    recall: float
    candidates: float
    low_score: float = 0.0
    slack: float = inf

    def tables(self, most: int) -> int:
        """Return the number of entry tables: half of ``most`` for a short search."""
        short = self.max_expanded < self.beam or self.slack < WIDE_SLACK
        return min(most, max(_MIN_TABLES, most // 2)) if short else most

    def second(self) -> BeamSetting:
        """Return the setting of the second search."""
        slack = max(_SECOND_SLACK, _SECOND_FACTOR * self.number)
        return BeamSetting.of(slack, self.places, self.recall, _SLACK_PLACES * self.candidates)

    def extension(self) -> BeamSetting:
        """Return the setting with which a search without a slack is extended."""
        candidates = _SLACK_PLACES * self.candidates
        return BeamSetting.of(_EXTENSION_SLACK, self.places, self.recall, candidates)

    @property
    def number(self) -> float:
        """The setting as one number; see the module."""
        return self.slack if self.slack < inf else self.max_expanded / self.places

    @property
    def places(self) -> int:
        """The limit it is for, `MIN_BEAM` at least."""
        return max(1, self.beam // (_SLACK_PLACES if self.slack < inf else _EXPANDED_PLACES))

    @classmethod
    def of(
        cls,
        number: float,
        limit: int,
        recall: float = 0.0,
        candidates: float = 0.0,
        low_score: float = 0.0,
    ) -> BeamSetting:
        """Return the setting of a number; see the module."""
        places = max(limit, MIN_BEAM)
        if number < 1:
            beam = _EXPANDED_PLACES * places
            return cls(beam, number * places, recall, candidates, low_score)
        beam = _SLACK_PLACES * places
        return cls(beam, max_expanded(beam), recall, candidates, low_score, number)


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
    low_contrast : float
        The first hit of nearly all queries measured is nearer than the tenth, times this factor; 1
        where that is not known.
    """

    rows: int
    curves: tuple[RecallCurve, ...]
    scan_nanoseconds: float
    low_contrast: float = 1.0

    def setting(self, limit: int, recall: float) -> BeamSetting | None:
        """Return the setting for a recall in the mean over queries like the items.

        None where no setting measured reaches it.
        """
        aim = recall + (1.0 - recall) / _SAFETY
        known = [(curve, curve.setting(aim)) for curve in self.curves]
        if not known or limit > _MAX_EXTRAPOLATED * self.curves[-1].limit:
            return None
        after = next((i for i, (curve, _) in enumerate(known) if curve.limit >= limit), len(known))
        above, most = known[min(after, len(known) - 1)]
        below, least = known[after - 1] if after > 0 and above.limit != limit else (above, most)
        if most is None or least is None:
            return _by_another_limit(known, below, above, limit, aim)
        if below is above:
            return _scaled(above, most, limit)
        expected, candidates, low_score = above.at(most)
        share = log(limit / below.limit) / log(above.limit / below.limit)
        # Where the hits of one limit lie in a cluster and those of the other beyond it, either
        # may be harder to find.
        low_score = (1 - share) * below.at(least)[2] + share * low_score
        return BeamSetting.of(max(least, most), limit, expected, candidates, low_score)

    def out_of_range(self, limit: int, setting: float) -> float:
        """Return the score of the last hit below which a query is unlike the items.

        What was measured with items says nothing of such queries.
        """
        curve = next((curve for curve in self.curves if curve.limit >= limit), None)
        if curve is None:
            return 0.0
        return float(np.interp(setting, curve.settings, curve.out_of_range))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return {
            "rows": self.rows,
            "scan_nanoseconds": self.scan_nanoseconds,
            "flat": self.low_contrast,
            "curves": [
                {
                    "limit": curve.limit,
                    "efforts": list(curve.settings),
                    "recalls": list(curve.recalls),
                    "candidates": list(curve.candidates),
                    "rare": list(curve.low_scores),
                    "strange": list(curve.out_of_range),
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
        column("efforts", _MIN_SETTING, _MAX_SETTING),
        column("recalls", 0, 1),
        column("candidates", 0, _MAX_NUMBER),
        column("rare", -_MAX_NUMBER, _MAX_NUMBER),
        column("strange", -_MAX_NUMBER, _MAX_NUMBER),
    )
    columns = (curve.recalls, curve.candidates, curve.low_scores, curve.out_of_range)
    if not curve.settings or any(len(each) != len(curve.settings) for each in columns):
        raise ValueError("a curve of columns of unlike length, or of none")
    if not _rise(curve.settings):
        raise ValueError("settings do not rise")
    if list(curve.recalls) != sorted(curve.recalls):
        raise ValueError("recalls fall")
    return curve


def _rise(values: Sequence[float]) -> bool:
    return all(low < high for low, high in pairwise(values))


def _scaled(curve: RecallCurve, number: float, limit: int) -> BeamSetting:
    """Return the setting of one curve for another limit than its own, or for that."""
    expected, candidates, low_score = curve.at(number)
    if limit <= curve.limit:
        return BeamSetting.of(number, limit, expected, candidates, low_score)
    # Hits beyond the limits measured score less than any measured: no score is low.
    return BeamSetting.of(number, limit, expected, candidates * limit / curve.limit)


def _by_another_limit(
    known: Sequence[tuple[RecallCurve, float | None]],
    below: RecallCurve,
    above: RecallCurve,
    limit: int,
    aim: float,
) -> BeamSetting | None:
    """Return a setting where one of the curves beside a limit does not reach the recall.

    Where the lesser one does, limits near to it may, too. Otherwise the search is that for a
    greater limit, whose beam holds more rows.
    """
    if below.limit < limit < above.limit and below.setting(aim) is not None:
        between = _between(below, above, limit)
        number = between.setting(aim)
        if number is not None:
            return _scaled(between, number, limit)
    for curve, number in known:
        if number is not None and curve.limit > max(limit, MIN_BEAM):
            expected, candidates, low_score = curve.at(number)
            return BeamSetting.of(number, curve.limit, expected, candidates, low_score)
    return None


def _between(below: RecallCurve, above: RecallCurve, limit: int) -> RecallCurve:
    """Return what is to be expected for a limit between two that were measured.

    The farther a hit is down, the less the lesser one says of it.
    """
    share = log(limit / below.limit) / log(above.limit / below.limit)
    settings = sorted({*below.settings, *above.settings})

    def mixed(low: tuple[float, ...], high: tuple[float, ...]) -> tuple[float, ...]:
        lesser = np.interp(settings, below.settings, low)
        greater = np.interp(settings, above.settings, high)
        return tuple(((1 - share) * lesser + share * greater).tolist())

    return RecallCurve(
        limit,
        tuple(settings),
        mixed(below.recalls, above.recalls),
        mixed(below.candidates, above.candidates),
        mixed(below.low_scores, above.low_scores),
        mixed(below.out_of_range, above.out_of_range),
    )


NOT_CALIBRATED: Final = Calibration(0, (), 0.0)
"""Of a graph that is being built."""
