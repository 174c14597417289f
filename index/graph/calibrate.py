"""Calibration: recall by beam setting, measured with items of the collection as queries.

The items are held out: their rows are not linked into the graph yet, so they behave like new
queries. Sums of two items stand for queries unlike the items. The ground truth is an exact scan of
the linked rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Bools, Float64s, Int64s
from gcws_search.index.contracts.hits import BatchHits
from gcws_search.index.graph.held_out import FOREIGN, HARD, TIED, TYPICAL, HeldOut
from gcws_search.index.graph.recall_curve import (
    WIDE_SLACK,
    BeamSetting,
    Calibration,
    LimitCurves,
    RecallCurve,
)
from gcws_search.index.graph.recall_watch import shares_found
from gcws_search.index.kernels.graph.tiers import CONTRAST_PLACE, TIED_PLACE

_LIMIT: Final = 100
"""Up to this limit all is measured, however few rows there are."""


QUERIES: Final = 1024
"""Items that are searched for at most."""
SUMS: Final = (0.0625, 48)
"""Sums of two items are searched for too: this share of the queries, at least this number. They
count even where scans answer such queries: others are as hard, as those whose nearest rows a filter
leaves out."""
SLACKS: Final = (1.01, 1.03, 1.07, 1.13, 1.2, 1.3, 1.4, 1.6)
"""Of extensions that may be measured."""

_MEASURED: Final = ((10, (1, 10), 1024), (30, (30,), 160), (100, (100,), 160), (300, (300,), 80))
"""Limit searched with, limits judged, queries."""
_ROWS_A_LIMIT: Final = 100
"""A limit above 100 is measured where each of its hits has at least this many rows."""
_SETTINGS: Final = (
    *(0.05, 0.07, 0.08, 0.09, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1.0, 1.01, 1.02, 1.03, 1.04, 1.06, 1.08, 1.1, 1.13, 1.17, 1.22),
    *(1.3, 1.4, 1.6, 2.0, 3.0),
)
"""Numbers of the beam settings that may be measured; see `recall_curve`."""
_FIRST: Final = (0.05, 0.3, 0.6, 0.9, 1.0, 1.02, 1.04, 1.08, 1.13, 1.22, 1.4, 2.0, 3.0)
"""Those measured first; others follow between two of them."""
_RATIO: Final = 2.0
"""Settings between two are measured where the miss falls by more than this factor. So recall, taken
to be linear in between, is off by a twentieth of the miss at most."""
_WIDE_RATIO, _CANDIDATE_RATIO = 1.1, 1.4
"""Between wide searches, they are where the miss falls by more than the first factor, and the rows
scored grow by more than the second."""
_MIN_RECALL: Final = 0.75
"""None is measured between two settings if the better one finds less."""
_ENOUGH: Final = 0.9965
"""Nothing is measured beyond this recall."""
_LEFT: Final = 0.9
"""Nor once the first wide setting leaves this share of the miss of the one before: a wider beam
does not find what is missing then. Without, those of daily sports scored 1.16 times as many rows,
and calibration took up to 1.3 times as long."""
_MAX_SHARE: Final = 0.25
"""A search that scores more of the rows than this share is not measured."""
_FEWER_QUERIES: Final = 1000
"""After a setting by which searches score more rows, every second query is asked. After four times
as many rows, every fourth is. Of 100,000 clustered rows, searches for 300 hits took a sixth of the
time of linking and measuring."""
_DOUBT, _EXTENDED_DOUBT = 0.5, 1.0
"""Recall is taken to be its mean less so many standard errors. The second number is that of hard
and foreign queries: there are fewer of them. With 0.5 for all, up to 0.05 less was found than
asked; with 1.0 for all, searches scored up to 1.04 times as many rows."""
_SCORE_SHARES: Final = (0.04, 0.02)
"""Shares of the items that are hard, and foreign, by the score of their last hit."""
_CONTRAST_SHARES: Final = (0.15, 0.03)
"""The same by contrast: the distance of the first hit against that of the tenth. Of frames of daily
sports the tenth of greatest contrast found 0.44 where the others found 0.87. More are hard by
contrast than by score: it tells apart queries that lie between clusters.
Source: [LID]: the neighbours of points in many dimensions are hard to find."""
_TYPICAL_SUMS: Final = 0.5
"""Where this share of the sums seem typical, typical ones among them count as items do: the lesser
recall is that of the setting. Of sums of two texts most are as far from the texts as these are from
each other."""
_MIN_TIER: Final = 12
"""A tier is judged by at least this many queries, or by all."""
_SHORT: Final = 0.3
"""Where items whose hits tie are found by this setting as well as others, ties tell nothing. Daily
sports would score 2.6 times as many rows."""
_TIGHT: Final = 0.25
"""Distances then tie that differ by this share as much, and so on: those in a tight group do."""
_MAX_SHORT: Final = 0.1
"""A setting is of no use by which more queries than this share find too few rows. Without, sums of
clustered rows found 0.96 for 0.99."""
_BEYOND, _SMALL_SAMPLE_BEYOND, _SMALL_SAMPLE = 0.2, 0.4, 500
"""A score is out of range if it is below the least true one by the first share of the distance to
the median, or by the second for fewer queries than the third. If distances fall off exponentially,
one query in 3,500 like the items is beyond the least of 1024, and one in 900 beyond that of 160.
Where none is, noise found 0.5 for 0.9; with the second share for all, queries of 36,000 clustered
rows found up to 0.02 less, and scored half as many rows."""


class _Contrasts(NamedTuple):
    """Contrasts above which queries are hard or foreign, and the smallest difference that counts.

    Queries are ``tied`` if the distances of their first hits differ by less. For ``spread`` see
    `Calibration`.
    """

    hard: float
    foreign: float
    nearest: float
    spread: float
    tied: float


@dataclass(frozen=True, slots=True)
class _Truth:
    """The true hits of m queries for one limit: the score of the last of the ``wanted`` hits.

    ``tiers``: see `_tiers`; ``scores``: see `LimitCurves`.
    """

    wanted: int
    lowest: Float64s
    tiers: Int64s
    scores: tuple[float, float, float]


class _Point(NamedTuple):
    """Result of a setting for one limit, over the queries that seemed to be in its tier.

    ``recall`` is the lower one of items and sums, ``items`` that of items, both minus an error
    margin. The candidates of typical queries are those of all items. ``others`` is the share of the
    items that seemed to be in another tier.
    """

    recall: float
    items: float
    candidates: float
    others: float


def calibrate(
    sample: HeldOut, *, scan_nanoseconds: float, max_candidates: Callable[[int], float]
) -> Calibration:
    """Measure recall by beam setting for a few limits; other limits are interpolated.

    ``scan_nanoseconds`` is the time to scan one row. For a limit, searches that score more rows
    than ``max_candidates`` are slower than scans, so they are not measured.
    """
    share, min_sums = SUMS
    greatest = max(_LIMIT, sample.rows // _ROWS_A_LIMIT)
    measured = [each for each in _MEASURED if each[0] <= greatest]
    counts = [min(count, sample.items) for _, _, count in measured]
    sums = [min(max(int(share * count), min_sums), sample.sums) for count in counts]
    limits_of = [searched for searched, _, _ in measured]
    items = _true_hits(sample, limits_of, counts, 0)
    between = _true_hits(sample, limits_of, sums, sample.items)
    contrasts = _contrasts(items, sample)
    while contrasts.tied > 0 and _finds_ties(sample, items, contrasts.tied):
        contrasts = contrasts._replace(
            spread=_TIGHT * contrasts.spread, tied=_TIGHT * contrasts.tied
        )
    curves = []
    for (searched, limits, _), of_items, of_sums in zip(measured, counts, sums, strict=True):
        parts = [found for first, found in items if first < of_items]
        others = [found for first, found in between if first < of_sums]
        truth = {
            limit: _truth(parts, others, min(limit, sample.rows), contrasts) for limit in limits
        }
        numbers = np.concatenate([np.arange(of_items), sample.items + np.arange(of_sums)]).astype(
            np.int64
        )
        measured_at = _Measurements(sample, (numbers, of_items), truth, searched, contrasts)
        max_scored = min(max_candidates(searched), _MAX_SHARE * sample.rows)
        for tier in (TYPICAL, HARD, FOREIGN):
            measured_at.measure(tier, max_scored)
        curves += [measured_at.curves(limit) for limit in limits]
    return Calibration(
        sample.rows, tuple(curves), scan_nanoseconds, contrasts[:2], contrasts.spread
    )


def _true_hits(
    sample: HeldOut, limits: Sequence[int], counts: Sequence[int], first_number: int
) -> list[tuple[int, BatchHits]]:
    """Yield the true hits of runs of queries, each for the greatest limit that it is judged by.

    Each run comes with the number of its first query, counted from ``first_number``.
    """
    runs = []
    ends = sorted({count for count in counts if count > 0})
    for first, end in zip([0, *ends], ends, strict=False):
        greatest = max(limit for limit, count in zip(limits, counts, strict=True) if count >= end)
        numbers = first_number + np.arange(first, end)
        runs.append((first, sample.true_hits(numbers, min(greatest, sample.rows))))
    return runs


def _spreads(found: BatchHits) -> Float64s:
    """Return (m,) the distance of the tenth hit minus that of the second; -1 for fewer hits."""
    if found.scores.shape[1] < CONTRAST_PLACE:
        return np.full(len(found), -1.0)
    between: Float64s = found.scores[:, TIED_PLACE - 1] - found.scores[:, CONTRAST_PLACE - 1]
    return np.where(found.sizes >= CONTRAST_PLACE, between, -1.0)


def _finds_ties(sample: HeldOut, runs: list[tuple[int, BatchHits]], tied: float) -> bool:
    """Return whether a short search finds items with tied hits about as well as others."""
    spreads = np.concatenate([_spreads(found) for _, found in runs])
    lasts = np.concatenate([_last_scores(found, CONTRAST_PLACE) for _, found in runs])
    are_tied = (spreads > 0) & (spreads < tied)
    if min(np.count_nonzero(are_tied), np.count_nonzero(~are_tied)) < _MIN_TIER:
        return False
    setting = BeamSetting.of(_SHORT, CONTRAST_PLACE)
    found = sample.search(np.arange(len(spreads)), CONTRAST_PLACE, setting)
    good = shares_found(found, lasts, CONTRAST_PLACE)
    others = good[~are_tied]
    error = float(others.std() / np.count_nonzero(are_tied) ** 0.5)
    return float(good[are_tied].mean()) >= float(others.mean()) - 2 * error


def _contrast(found: BatchHits, nearest: float) -> Float64s:
    """Return (m,) the first hit's distance divided by the tenth's; -1 for fewer hits.

    0 for copies, whose hits are all equally far.
    """
    factors = np.full(len(found), -1.0)
    full = found.sizes >= CONTRAST_PLACE
    if full.any():
        first, last = 1.0 - found.scores[full][:, [0, CONTRAST_PLACE - 1]].T
        factors[full] = np.where(first < last, first / np.maximum(last, nearest), 0.0)
    return factors


def _contrasts(runs: list[tuple[int, BatchHits]], sample: HeldOut) -> _Contrasts:
    """Return the contrasts above which a query is hard, and foreign; `inf` if unknown."""
    nearest = sample.nearest
    factors = np.concatenate([_contrast(found, nearest) for _, found in runs])
    factors = factors[factors >= 0]
    if not len(factors):
        return _Contrasts(inf, inf, nearest, 0.0, 0.0)
    spreads = np.concatenate([_spreads(found) for _, found in runs])
    spread = _quantile(spreads[spreads >= 0], 0.5)
    hard, foreign = (_quantile(factors, 1.0 - share) for share in _CONTRAST_SHARES)
    return _Contrasts(hard, foreign, nearest, spread, sample.tied * spread)


def _tiers(found: BatchHits, wanted: int, scores: Sequence[float], contrasts: _Contrasts) -> Int64s:
    """Return the tier of each query, from its hits: `TYPICAL`, `HARD`, `FOREIGN` or `TIED`."""
    last, contrast = _last_scores(found, wanted), _contrast(found, contrasts.nearest)
    tiers = np.zeros(len(found), np.int64)
    for score, factor in zip(scores[:2], contrasts[:2], strict=True):
        tiers += (last < score) | (contrast > factor)
    spreads = _spreads(found)
    tiers[(spreads > 0) & (spreads < contrasts.tied) & (last >= scores[0])] = TIED
    return tiers


def _truth(
    items: list[BatchHits], sums: list[BatchHits], wanted: int, contrasts: _Contrasts
) -> _Truth:
    """Return the truth about queries for one limit, from their true hits."""
    lasts = np.concatenate([_last_scores(found, wanted) for found in items])
    lowest, median = float(lasts.min()), _quantile(lasts, 0.5)
    beyond = _BEYOND if len(lasts) >= _SMALL_SAMPLE else _SMALL_SAMPLE_BEYOND
    hard, foreign = (_quantile(lasts, share) for share in _SCORE_SHARES)
    scores = (hard, foreign, lowest - beyond * (median - lowest))
    every = [*items, *sums]
    return _Truth(
        wanted,
        np.concatenate([_last_scores(found, wanted) for found in every]),
        np.concatenate([_tiers(found, wanted, scores, contrasts) for found in every]),
        scores,
    )


def _last_scores(found: BatchHits, place: int) -> Float64s:
    """Return the score of each query's hit at a place, counted from 1; 0 if it has fewer hits."""
    column = np.minimum(place, np.maximum(found.sizes, 1)) - 1
    last: Float64s = found.scores[np.arange(len(found)), column]
    return np.where(found.sizes < place, 0.0, last)


class _Measurements:
    """Results of beam settings, by searches with one limit.

    ``queries`` are the (m,) numbers of items, then of sums, and the count of items. ``truth`` is
    by judged limit; ``searched`` is the limit of the searches.
    """

    def __init__(
        self,
        sample: HeldOut,
        queries: tuple[Int64s, int],
        truth: dict[int, _Truth],
        searched: int,
        contrasts: _Contrasts,
    ) -> None:
        self._sample, self._searched = sample, searched
        (self._queries, self._items), self._truth = queries, truth
        self._contrasts = contrasts
        is_sum = np.arange(len(self._queries)) >= self._items
        self._sums_count = any(
            self._are_enough(is_sum & (each.tiers == 0), is_sum) for each in truth.values()
        )
        self._points: dict[int, dict[int, dict[int, _Point]]] = {}

    def measure(self, tier: int, max_candidates: float) -> None:
        """Measure wider and wider searches of a tier, until recall is enough or cost too high.

        For typical queries, some settings are measured first, and then others between them.
        """
        numbers = self._numbers(tier)
        points = self._points.setdefault(tier, {})
        asked, before, gaps = self._asked(tier), -1, []
        for number in _FIRST if tier == TYPICAL else numbers:
            place = numbers.index(number)
            asked = self._measure(tier, place, asked)
            if place in points:
                gaps.append((before, place))
                if self._is_last(tier, before, place, max_candidates):
                    break
            before = place
        while tier == TYPICAL and gaps:
            low, high = gaps.pop()
            middle = (low + high) // 2
            if low < middle and self._lie_apart(low, high):
                self._measure(tier, middle, self._asked(tier, low))
                gaps += [(low, middle)] if middle in points else []
                gaps.append((middle, high))

    def _numbers(self, tier: int) -> tuple[float, ...]:
        """Return the settings of first searches, or the slacks of extensions."""
        return _SETTINGS if tier == TYPICAL else SLACKS

    def _asked(self, tier: int, before: int = -1) -> Int64s:
        """Return the places of the queries that measure a tier; all if there are few.

        After a setting that scores many rows, fewer typical queries are used.
        """
        if tier == TYPICAL:
            measured = self._points[tier].get(before)
            scored = measured[self._searched].candidates if measured else 0.0
            many = [times for times in (1, 4) if scored > times * _FEWER_QUERIES]
            asked = np.arange(0, self._items, 2 ** len(many))
            sums = np.arange(self._items, len(self._queries))
            return np.concatenate([asked, sums]) if self._sums_count else asked
        of_limits = [np.isin(truth.tiers, (HARD, FOREIGN)) for truth in self._truth.values()]
        if min(np.count_nonzero(each) for each in of_limits) < _MIN_TIER:
            return np.arange(len(self._queries))
        return np.flatnonzero(np.logical_or.reduce(of_limits))

    def _measure(self, tier: int, place: int, asked: Int64s) -> Int64s:
        """Measure a setting if it is useful; return the queries for the next one."""
        numbers, chosen, truths = self._numbers(tier), self._queries[asked], self._truth
        if tier == TYPICAL:
            setting = BeamSetting.of(numbers[place], self._searched)
            found = self._sample.search(chosen, self._searched, setting)
            short = np.mean(found.sizes < truths[self._searched].wanted)
            if short > _MAX_SHORT and place < len(numbers) - 1:
                return asked
        else:
            least = _SETTINGS[min(self._points[TYPICAL])]
            setting = BeamSetting.of(least, self._searched)
            extension = tier, numbers[place]
            found = self._sample.search(chosen, self._searched, setting, extension)
        insides = {limit: self._inside(found, asked, each, tier) for limit, each in truths.items()}
        self._points[tier][place] = {
            limit: self._point(found, asked, each, tier, insides[limit])
            for limit, each in truths.items()
        }
        if tier == TYPICAL:
            return self._asked(tier, place)
        # A query in another tier after the first extension stays there.
        return asked[np.logical_or.reduce([*insides.values()])] if place == 0 else asked

    def _inside(self, found: BatchHits, asked: Int64s, truth: _Truth, tier: int) -> Bools:
        """Return (a,) which queries seem to be in a tier; those of both tiers if they are few.

        A search judges the tier by its own hits: if it misses the nearest rows, the query may seem
        less foreign than it is.
        """
        tiers = truth.tiers[asked]
        seeming = _tiers(found, truth.wanted, truth.scores[:2], self._contrasts)
        inside: Bools = (seeming == tier) | ((tier == FOREIGN) & (tiers == tier))
        if tier == TYPICAL:
            return inside
        if np.count_nonzero(inside) < _MIN_TIER:
            inside = np.isin(tiers, (HARD, FOREIGN))
        return inside if np.count_nonzero(inside) >= _MIN_TIER else np.ones_like(inside)

    def _point(
        self, found: BatchHits, asked: Int64s, truth: _Truth, tier: int, inside: Bools
    ) -> _Point:
        """Return the result of a setting; items and sums are judged separately if enough."""
        is_item = asked < self._items
        good = shares_found(found, truth.lowest[asked], truth.wanted)
        items, sums = inside & is_item, inside & ~is_item
        others = 1.0 - float(items.sum() / max(1, is_item.sum()))
        if tier == TYPICAL:
            items = items if items.any() else is_item
            scored, doubt = found.candidates[is_item], _DOUBT
            judged = [items, *([sums] if self._are_enough(sums, ~is_item) else [])]
        else:
            scored, doubt = found.candidates[inside], _EXTENDED_DOUBT
            kinds = [each for each in (items, sums) if np.count_nonzero(each) >= _MIN_TIER]
            judged = kinds or [inside]
        return _Point(
            min(_less_doubt(good[each], doubt) for each in judged),
            _less_doubt(good[items if items.any() else inside], doubt),
            float(scored.mean()),
            others,
        )

    def _is_last(self, tier: int, before: int, place: int, max_candidates: float) -> bool:
        """Return whether wider searches need not be measured; see `_ENOUGH` and `_LEFT`."""
        points = self._points[tier]
        lowest = min(point.recall for point in points[place].values())
        dear = points[place][self._searched].candidates > max_candidates
        if lowest >= _ENOUGH or dear:
            return True
        if before not in points or self._numbers(tier)[before] < SLACKS[1]:
            return False
        missed = 1 - min(point.recall for point in points[before].values())
        return 1 - lowest > _LEFT * missed

    def curves(self, limit: int) -> LimitCurves:
        """Return the measurements for a limit."""
        of_tiers = []
        for tier in (TYPICAL, HARD, FOREIGN):
            numbers = self._numbers(tier)
            measured = [(numbers[i], at[limit]) for i, at in sorted(self._points[tier].items())]
            curve = RecallCurve(
                tuple(number for number, _ in measured),
                _never_falling([point.recall for _, point in measured]),
                tuple(point.candidates for _, point in measured),
            )
            of_tiers.append((curve, [point for _, point in measured]))
        (typical, first), (hard, extended), (foreign, _) = of_tiers
        return LimitCurves(
            limit,
            typical,
            hard,
            foreign,
            tuple(point.others for point in first),
            _never_falling([point.items for point in extended]),
            self._truth[limit].scores,
        )

    def _are_enough(self, typical: Bools, sums: Bools) -> bool:
        """Return whether enough sums are typical to count; see `_TYPICAL_SUMS`."""
        count = np.count_nonzero(typical)
        minimum = _TYPICAL_SUMS * np.count_nonzero(sums)
        return bool(count >= max(_MIN_TIER, minimum))

    def _lie_apart(self, low: int, high: int) -> bool:
        """Return whether a setting between two others must be measured; see `_RATIO`."""
        points = self._points[TYPICAL]
        if max(point.recall for point in points[high].values()) < _MIN_RECALL:
            return False
        if low not in points:  # the lowest useful setting is between them
            return True
        for limit, nearer in points[low].items():
            farther = points[high][limit]
            fall = (1 - nearer.recall) / max(1 - farther.recall, 1 - _ENOUGH)
            is_wide = _SETTINGS[low] >= WIDE_SLACK
            grows = farther.candidates > _CANDIDATE_RATIO * nearer.candidates
            if fall > (_WIDE_RATIO if is_wide and grows else _RATIO):
                return True
        return False


def _quantile(values: Float64s, share: float) -> float:
    """Return a quantile like `numpy.quantile`, whose 0.2 ms are ten times as long."""
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    low, high = np.partition(values, (below, above))[[below, above]].tolist()
    return float(low + (place - below) * (high - low))


def _less_doubt(good: Float64s, errors: float) -> float:
    """Return a mean minus ``errors`` standard errors."""
    error = float(good.std()) / len(good) ** 0.5
    return float(max(0.0, float(good.mean()) - errors * error))


def _never_falling(recalls: Sequence[float]) -> tuple[float, ...]:
    return tuple(np.maximum.accumulate(recalls).tolist())
