"""The beam setting that a search needs for a recall, as calibrated.

A beam setting is one number f, whatever the limit. If f < 1, the search ends once the best
f · max(limit, `MIN_BEAM`) rows of the pool are expanded, at least one. If f ≥ 1, it is the slack:
a row is expanded if its distance is at most f times that of the limit-th best row so far.

Queries belong to three tiers, judged by the hits of the first search. Most are *typical*. A query
is *hard* if its hits are farther away than those of nearly all items, or its first hit is about as
far as its tenth. It is *foreign* if this holds to a higher degree. Each tier has its own recall
curve, so the recall of a tier does not depend on the share of easy queries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, pairwise, repeat
from math import inf, log
from typing import Any, Final, NamedTuple

from gcws_search.index.contracts.saved_index import count_of, fields_of, list_of, number_of

MIN_BEAM: Final = 10
SLACK_PLACES: Final = 32
"""Rows that the beam holds for each hit wanted, where a slack ends the search."""
_EXPANDED_PLACES: Final = 2
"""Rows that the beam holds for each hit wanted, where a number of expansions ends the search."""
_MIN_TABLES: Final = 4
WIDE_SLACK: Final = 1.04
"""Searches of less slack enter through half of the tables, `_MIN_TABLES` at least: through all of
them, Fashion-MNIST and letter scored 6 % more rows."""
UNLIMITED: Final = float(1 << 31)
"""Rows that a search expands at most that a slack ends."""
_MAX_EXTRAPOLATED: Final = 4 / 3
"""Limits up to this many times the greatest one measured take its setting. Where rows have been
deleted, that many more are looked for, until the graph is rebuilt. Without, searches under filters
scored 1.1 to 1.3 times as many rows."""
_MISS_RATIO: Final = 1.25
"""Where no slack measured is enough, the least one is taken that misses at most this many times as
much as the greatest: beyond, much is scored for little."""
_HARD_MISSES: Final = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Shares of others' miss that hard queries may aim at, tried in this order. They take the last one
by which a search costs at most `_HARD_COST` times the least cost of those before: the hits of
queries unlike the items are harder to find."""
_HARD_COST: Final = 1.15
"""Without it, vectors of words were searched 0.65 times as fast at 0.95."""
_HARD_RECALL: Final = 0.99
"""Beyond this recall they aim at what others aim at: 0.996 took Fashion-MNIST a third longer."""
_SAFETY: Final = 5
"""The setting aims at a miss that is smaller by 1/_SAFETY than allowed: measured figures vary.
Without, up to 0.05 less was found."""

_MAX_CACHED: Final = 1024
"""Settings that a calibration remembers, for all threads: each write makes new plans."""

_FRONT: Final = tuple(1.0 - 0.5 * 0.85**step for step in range(36))
"""Recalls for which their cost is reported; the last one leaves 1.7 hits of 1,000 out."""

_MAX_CURVES: Final = 16
_MAX_POINTS: Final = 64
_MAX_LIMIT: Final = 1000
_MIN_SETTING: Final = 1e-3
_MAX_SETTING: Final = 16.0
_MAX_ROWS: Final = 1 << 40
_MAX_NUMBER: Final = 1e18
_ROUNDING: Final = 1e-6
"""Beyond these no calibration is: memory for searches is reserved by them."""


@dataclass(frozen=True, slots=True)
class BeamSetting:
    """The width of a search, with its expected recall and number of rows scored quickly."""

    beam: int  # maximum number of rows in the beam
    # Maximum number of expanded rows, or which of the best rows are; see `beam_search.Beam`. The
    # fraction is the share of the queries that expand one more.
    max_expanded: float
    recall: float
    candidates: float
    slack: float = inf  # a row is expanded up to this multiple of the last hit's distance

    def tables(self, max_tables: int) -> int:
        """Return the number of entry tables: half of ``max_tables`` for a short search."""
        short = self.max_expanded < self.beam or self.slack < WIDE_SLACK
        return min(max_tables, max(_MIN_TABLES, max_tables // 2)) if short else max_tables

    @property
    def number(self) -> float:
        """The setting as one number; see the module docstring."""
        return self.slack if self.slack < inf else self.max_expanded / self.places

    @property
    def places(self) -> int:
        """The limit that it is for, at least `MIN_BEAM`."""
        return max(1, self.beam // (SLACK_PLACES if self.slack < inf else _EXPANDED_PLACES))

    @classmethod
    def of(
        cls, number: float, limit: int, recall: float = 0.0, candidates: float = 0.0
    ) -> BeamSetting:
        """Return the setting for a number; see the module docstring."""
        places = max(limit, MIN_BEAM)
        if number < 1:
            expanded = max(1.0, number * places)  # entry points alone may be far from the hits
            return cls(_EXPANDED_PLACES * places, expanded, recall, candidates)
        return cls(SLACK_PLACES * places, UNLIMITED, recall, candidates, number)


@dataclass(frozen=True, slots=True)
class Extension:
    """Which queries are searched farther than others, and how far.

    Queries whose judged hit scores less than ``score``, and queries whose first hit is farther away
    than the tenth times ``contrast``. They may also enter through more rows.
    """

    score: float
    contrast: float
    slack: float
    enters_wider: bool = False

    def maximum(self, other: Extension) -> Extension:
        """Return this extension with the greater slack and number of entry points of the two."""
        wider = self.enters_wider or other.enters_wider
        return replace(self, slack=max(self.slack, other.slack), enters_wider=wider)


NO_EXTENSION: Final = Extension(0.0, inf, 1.0)


@dataclass(frozen=True, slots=True)
class SearchSetting:
    """The parameters of a search for one limit and recall."""

    first: BeamSetting  # of typical queries; its expected values are means over all queries
    hard: Extension = NO_EXTENSION
    foreign: Extension = NO_EXTENSION
    out_of_range: float = 0.0  # score of the judged hit below which recall is unknown; 0 for none
    judged: int = 1  # the limit whose scores are used: the limit itself, or the greatest measured
    spread: float = 0.0  # see `Calibration`


@dataclass(frozen=True, slots=True)
class RecallCurve:
    """Recall by beam setting for the queries of one tier, with the mean of rows scored quickly.

    Settings ascend. Recalls never fall; they are the measured ones minus an error margin.
    """

    settings: tuple[float, ...]
    recalls: tuple[float, ...]
    candidates: tuple[float, ...]

    def setting(self, recall: float) -> float | None:
        """Return the cheapest setting that reaches a recall, None if no measured one does.

        The lowest setting may not be the cheapest: more of its queries are hard.
        """
        place = bisect_left(self.recalls, recall)
        if place == len(self.recalls):
            return None
        minimum = float(self.settings[0])
        if place > 0:
            low, high = self.recalls[place - 1], self.recalls[place]
            nearer, farther = self.settings[place - 1], self.settings[place]
            minimum = nearer + (recall - low) / (high - low) * (farther - nearer)
            if nearer < WIDE_SLACK <= farther:
                minimum = farther  # those between use half of the tables
        costs = self.candidates[place:]
        cheapest = costs.index(min(costs))
        cheaper = costs[cheapest] < self.at(minimum)[1]
        return float(self.settings[place + cheapest]) if cheaper else minimum

    def at(self, setting: float) -> tuple[float, float]:
        """Return recall and candidates at a setting."""
        return _value_at(setting, self.settings, self.recalls), _value_at(
            setting, self.settings, self.candidates
        )

    def slack(self, recall: float) -> float:
        """Return the setting for a recall, or the greatest measured one if none is enough."""
        setting = self.setting(recall)
        if setting is not None:
            return setting
        enough = 1.0 - _MISS_RATIO * (1.0 - self.recalls[-1])
        return float(self.settings[bisect_left(self.recalls, enough)])


class Slack(NamedTuple):
    """How far an extension goes.

    It may enter through more rows: foreign queries do, and hard ones if they are not found
    otherwise.
    """

    enters_wider: bool
    slack: float


Numbers = tuple[float, Slack, Slack]
"""The numbers of a search: of its first part, see the module, and of both extensions."""


@dataclass(frozen=True, slots=True)
class LimitCurves:
    """The measurements for one limit."""

    limit: int
    typical: RecallCurve
    hard: RecallCurve  # the settings of this and the next curve are slacks of extensions
    foreign: RecallCurve
    extended: tuple[float, ...]  # share of hard items, by the settings of ``typical``
    hard_items: tuple[float, ...]  # recall of hard items alone, by the settings of ``hard``
    # Thresholds for the score of a query's last hit: below the first the query is hard, below the
    # second foreign, below the third out of range.
    scores: tuple[float, float, float]

    def setting(self, recall: float, foreign_recall: float) -> Numbers | None:
        """Return the numbers of a search for a recall, with another recall for foreign queries.

        None if no first search is enough. The aim for hard queries follows from cost; see
        `_HARD_MISSES`.
        """
        foreign = Slack(enters_wider=True, slack=self.foreign.slack(foreign_recall))
        found: Numbers | None = None
        max_cost = inf
        for miss in _HARD_MISSES:
            hard = self._hard(recall, miss)
            curve = self._of_items(hard, recall)
            number = curve.setting(recall)
            if number is None or (cost := curve.at(number)[1]) > max_cost:
                break
            found, max_cost = (number, hard, foreign), min(max_cost, _HARD_COST * cost)
        return found

    def _hard(self, recall: float, miss: float) -> Slack:
        """Return the extension for hard queries at a share of the misses; see `_HARD_MISSES`.

        They enter through more rows if that reaches the aim, or if no slack reaches ``recall``.
        """
        aim = max(recall, min(1.0 - miss * (1.0 - recall), _HARD_RECALL))
        hard, foreign = self.hard, self.foreign
        is_needed = hard.setting(recall) is None or foreign.setting(aim) is not None
        is_better = hard.setting(aim) is None and foreign.recalls[-1] > hard.recalls[-1]
        enters_wider = is_better and is_needed
        curve = foreign if enters_wider else hard
        return Slack(enters_wider, max(curve.slack(recall), curve.slack(aim)))

    def first(self, numbers: Numbers) -> BeamSetting:
        """Return the beam setting of a search, with expected values over all queries."""
        number, hard, _ = numbers
        return BeamSetting.of(number, self.limit, *self._of_items(hard, 1.0).at(number))

    def _of_items(self, hard: Slack, ceiling: float) -> RecallCurve:
        """Return the curve of all items; hard ones are extended, and count at most ``ceiling``.

        So typical queries alone reach the requested recall.
        """
        found = _value_at(hard.slack, self.hard.settings, self.hard_items)
        _, scored = self.hard.at(hard.slack)
        if hard.enters_wider:  # which finds at least as much
            others, scored = self.foreign.at(hard.slack)
            found = max(found, others)
        typical, found = self.typical, min(found, ceiling)
        recalls = map(_mean_by_weight, self.extended, typical.recalls, repeat(found))
        costs = map(_mean_by_weight, self.extended, typical.candidates, repeat(scored))
        return RecallCurve(typical.settings, tuple(accumulate(recalls, max)), tuple(costs))


_Column = tuple[tuple[float, ...], tuple[float, ...]]
"""Settings, and what was measured at them."""


_SettingCache = dict[tuple[int, float, float], tuple[SearchSetting | None]]
"""By limit, recall of all queries and of foreign ones. None is an answer, too: hence the tuples."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The curves of a collection with ``rows`` items, by ascending limit."""

    rows: int
    curves: tuple[LimitCurves, ...]
    scan_nanoseconds: float  # per row, as a mean over the measured queries
    # A query is hard, or foreign, if its first hit is farther than the tenth times these factors.
    contrasts: tuple[float, float] = (inf, inf)
    # Usual distance of an item's tenth hit minus that of the second: the median, or less if ties
    # are not informative.
    spread: float = 0.0
    _cache: _SettingCache = field(default_factory=dict, init=False, repr=False, compare=False)

    def setting(
        self, limit: int, recall: float, foreign_recall: float | None = None
    ) -> SearchSetting | None:
        """Return the setting for a mean recall over queries like the items.

        None if no measured setting reaches it. Foreign queries may have another recall.
        """
        asked = limit, recall, foreign_recall or recall
        known = self._cache.get(asked)
        if known is None:
            if len(self._cache) >= _MAX_CACHED:  # any recall may be requested
                self._cache.clear()
            aims = tuple(each + (1.0 - each) / _SAFETY for each in asked[1:])
            known = self._cache[asked] = (self._new_setting(limit, *aims),)
        return known[0]

    def _new_setting(self, limit: int, *aims: float) -> SearchSetting | None:
        if limit > self.max_limit:
            return None
        adjacent = self._adjacent(limit)
        near = adjacent[0] if len(adjacent) == 1 else _between(adjacent[0], adjacent[1], limit)
        settings = [each.setting(*aims) for each in adjacent]
        found = [each for each in settings if each is not None]
        if not found or settings[0] is None:
            return self._by_a_greater(near, limit, *aims)
        if len(found) < len(settings):  # limits near the lower one may reach the recall, too
            only = near.setting(*aims)
            if only is None:
                return self._by_a_greater(near, limit, *aims)
            found = [only]
        # If the hits of one limit lie in a cluster and those of the other beyond it, either limit
        # may be the harder one.
        first, hard, foreign = zip(*found, strict=True)
        numbers = max(first), max(hard), max(foreign)
        return self._setting_of_limit(near, near, limit, numbers)

    @property
    def max_limit(self) -> int:
        """The greatest limit with settings."""
        return int(_MAX_EXTRAPOLATED * self.curves[-1].limit) if self.curves else 0

    def front(self, limit: int) -> list[BeamSetting]:
        """Return the settings of first searches for a limit, by ascending recall and cost.

        They cover recalls from 0.5 to the greatest. A setting is left out if a cheaper one finds as
        much.
        """
        settings = (self.setting(limit, recall) for recall in _FRONT)
        measured = (each.first for each in settings if each is not None)
        found: list[BeamSetting] = []
        for each in sorted(measured, key=lambda each: (each.candidates, -each.recall)):
            if not found or found[-1].recall < each.recall:
                found.append(each)
        return found

    def greatest_recall(self, limit: int) -> float:
        """Return the greatest expected recall of a search for a limit; 0 for none."""
        settings = (self.setting(limit, recall) for recall in reversed(_FRONT))
        return next((each.first.recall for each in settings if each is not None), 0.0)

    def _setting_of_limit(
        self, near: LimitCurves, measured: LimitCurves, limit: int, numbers: Numbers
    ) -> SearchSetting:
        """Return a setting measured for a limit, with the thresholds of the nearest curves."""
        first = measured.first(numbers)
        if first.places < limit:  # beyond the measured limits
            candidates = first.candidates * limit / near.limit
            first = BeamSetting.of(first.number, limit, first.recall, candidates)
        hard, foreign = (
            Extension(score, contrast, each.slack, each.enters_wider)
            for score, contrast, each in zip(
                near.scores[:2], self.contrasts, numbers[1:], strict=True
            )
        )
        judged = min(limit, near.limit)
        return SearchSetting(first, hard, foreign, near.scores[2], judged, self.spread)

    def _by_a_greater(self, near: LimitCurves, limit: int, *aims: float) -> SearchSetting | None:
        """Return the setting of a greater limit, whose beam is larger; None if there is none."""
        for curves in self.curves:
            found = curves.setting(*aims) if curves.limit > max(limit, MIN_BEAM) else None
            if found is not None:
                return self._setting_of_limit(near, curves, limit, found)
        return None

    def _adjacent(self, limit: int) -> list[LimitCurves]:
        """Return the curves of a limit, or those of the nearest measured limits below and above."""
        above = next((each for each in self.curves if each.limit >= limit), None)
        below = next((each for each in reversed(self.curves) if each.limit <= limit), None)
        if above is below:
            return [each for each in (above,) if each is not None]
        return [each for each in (below, above) if each is not None]

    def to_dict(self) -> dict[str, Any]:
        """Return the calibration for JSON."""
        return {
            "rows": self.rows,
            "scan_nanoseconds": self.scan_nanoseconds,
            "contrasts": [None if each == inf else each for each in self.contrasts],
            "spread": self.spread,
            "curves": [asdict(each, dict_factory=_json_fields) for each in self.curves],
        }

    @classmethod
    def from_dict(cls, document: object) -> Calibration:
        """Inverse of `to_dict`. Raises ValueError or KeyError (the curves are not valid)."""
        fields = fields_of(document)
        curves = tuple(
            _curves_of(each) for each in list_of(fields["curves"], max_count=_MAX_CURVES)
        )
        if not curves or not _rise([each.limit for each in curves]):
            raise ValueError("limits of curves are not increasing")
        contrasts = list_of(fields["contrasts"], max_count=2)
        hard, foreign = (
            inf if each is None else number_of(each, 0, 1 + _ROUNDING) for each in contrasts
        )
        return cls(
            count_of(fields["rows"], 1, _MAX_ROWS),
            curves,
            number_of(fields["scan_nanoseconds"], 0, _MAX_NUMBER),
            (hard, foreign),
            number_of(fields["spread"], 0, 1 + _ROUNDING),
        )


def _json_fields(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields}


def _numbers(values: object, low: float, high: float) -> tuple[float, ...]:
    return tuple(number_of(value, low, high) for value in list_of(values, max_count=_MAX_POINTS))


def _curves_of(document: object) -> LimitCurves:
    """Return a limit's curves from JSON; ValueError or KeyError if they are not valid."""
    fields = fields_of(document)
    typical, hard, foreign = (_curve_of(fields[tier]) for tier in ("typical", "hard", "foreign"))
    extended = _numbers(fields["extended"], 0, 1)
    if len(extended) != len(typical.settings):
        raise ValueError("not as many shares as settings")
    hard_items = _numbers(fields["hard_items"], 0, 1)
    if len(hard_items) != len(hard.settings):
        raise ValueError("not as many recalls as slacks")
    hard_score, foreign_score, lowest = _numbers(fields["scores"], -_MAX_NUMBER, _MAX_NUMBER)
    scores, limit = (hard_score, foreign_score, lowest), count_of(fields["limit"], 1, _MAX_LIMIT)
    return LimitCurves(limit, typical, hard, foreign, extended, hard_items, scores)


def _curve_of(document: object) -> RecallCurve:
    """Return a curve from JSON; ValueError or KeyError if it is not valid."""
    fields = fields_of(document)
    curve = RecallCurve(
        _numbers(fields["settings"], _MIN_SETTING, _MAX_SETTING),
        _numbers(fields["recalls"], 0, 1),
        _numbers(fields["candidates"], 0, _MAX_NUMBER),
    )
    columns = (curve.recalls, curve.candidates)
    if not curve.settings or any(len(each) != len(curve.settings) for each in columns):
        raise ValueError("a curve with columns of different lengths, or without points")
    if not _rise(curve.settings):
        raise ValueError("settings are not increasing")
    if list(curve.recalls) != sorted(curve.recalls):
        raise ValueError("recalls fall")
    return curve


def _value_at(setting: float, settings: Sequence[float], values: Sequence[float]) -> float:
    """Return interpolated values, like `numpy.interp`, in a tenth of its time for short lists."""
    above = bisect_left(settings, setting)
    if above in (0, len(settings)):
        return values[min(above, len(settings) - 1)]
    low, high = settings[above - 1 : above + 1]
    return _mean_by_weight((setting - low) / (high - low), values[above - 1], values[above])


def _mean_by_weight(share: float, low: float, high: float) -> float:
    return (1 - share) * low + share * high


def _rise(values: Sequence[float]) -> bool:
    return all(low < high for low, high in pairwise(values))


def _between(below: LimitCurves, above: LimitCurves, limit: int) -> LimitCurves:
    """Return the curves for a limit between two measured ones.

    The more the limit exceeds the lower one, the less weight that has.
    """
    share = log(limit / below.limit) / log(above.limit / below.limit)

    def at(settings: Sequence[float], known: Callable[[LimitCurves], _Column]) -> tuple[float, ...]:
        low, high = known(below), known(above)
        return tuple(
            _mean_by_weight(share, _value_at(each, *low), _value_at(each, *high))
            for each in settings
        )

    def curve(tier: Callable[[LimitCurves], RecallCurve]) -> RecallCurve:
        settings = tuple(sorted({*tier(below).settings, *tier(above).settings}))
        recalls = at(settings, lambda each: (tier(each).settings, tier(each).recalls))
        candidates = at(settings, lambda each: (tier(each).settings, tier(each).candidates))
        return RecallCurve(settings, recalls, candidates)

    typical, hard = curve(lambda each: each.typical), curve(lambda each: each.hard)
    a, b, c = (
        _mean_by_weight(share, *each) for each in zip(below.scores, above.scores, strict=True)
    )
    return LimitCurves(
        limit,
        typical,
        hard,
        curve(lambda each: each.foreign),
        at(typical.settings, lambda each: (each.typical.settings, each.extended)),
        at(hard.settings, lambda each: (each.hard.settings, each.hard_items)),
        (a, b, c),
    )


NOT_CALIBRATED: Final = Calibration(0, (), 0.0)
"""Of a graph that is being built."""
