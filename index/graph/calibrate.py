"""Calibration: recall by beam setting, measured with items of the collection as queries.

The items are held out: rows that are not linked into the graph yet, so they behave like new
queries. Sums of two of them stand for queries unlike the items. The ground truth is an exact scan
of the linked rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Bools, Float64s, Int64s
from gcws_search.index.contracts.hits import BatchHits
from gcws_search.index.graph.held_out import FOREIGN, HARD, TIED, TYPICAL, Sample
from gcws_search.index.graph.recall_curve import (
    WIDE_SLACK,
    BeamSetting,
    Calibration,
    LimitCurves,
    RecallCurve,
)
from gcws_search.index.kernels.graph.tiers import CONTRAST_PLACE, TIED_PLACE

_TIE: Final = 1e-9
"""Scores so near to each other tie."""
_LIMIT: Final = 100
"""Up to this limit all is measured, however few rows there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPolicy:
    """What is measured, and how the thresholds of the stages follow.

    Attributes
    ----------
    queries : int
        Items that are searched for at most.
    measured : tuple of (int, tuple of int, int)
        Limit searched with, limits judged, queries.
    rows_a_limit : int
        A limit above 100 is measured where each of its hits has at least this many rows.
    settings : tuple of float
        Numbers of the beam settings that may be measured, rising; see `recall_curve`.
    first : tuple of float
        Those measured first; others follow between two of them.
    fewer_queries : int
        After a setting by which searches score more rows, every second query is asked. After four
        times as many rows, every fourth is. Of 100,000 clustered rows, searches for 300 hits took a
        sixth of the time of linking and measuring.
    ratio : float
        Settings between two are measured where the miss falls by more than this factor. So recall,
        taken to be linear in between, is off by a twentieth of the miss at most.
    min_recall : float
        Between two settings none is measured if the better one finds less than this.
    wide_ratio, candidate_ratio : float
        The same between wide searches: the miss falls by more than the first factor, and the rows
        scored grow by more than the second.
    enough : float
        Nothing is measured beyond this recall.
    left : float
        Nor once the first wide setting leaves this share of the miss of the one before: a wider
        beam does not find what is missing then.
    max_share : float
        A search that scores more of the rows than this share is not measured.
    doubt, extended_doubt : float
        Recall is taken to be its mean less this many standard errors. Hard and foreign queries
        have a number of their own, for there are fewer of them.
    score_shares : (float, float)
        Shares of the items that are hard, and foreign, by the score of their last hit.
    contrast_shares : (float, float)
        The same by contrast: the distance of the first hit against that of the tenth. Of frames of
        daily sports the tenth of greatest contrast found 0.44 where the others found 0.87. More are
        hard by contrast than by score: it tells apart queries that lie between clusters.
        Source: [LID]: the neighbours of points in many dimensions are hard to find.
    contrasts : (float, float)
        Queries of higher contrasts are hard, and foreign, whatever share they are. Where many rows
        differ little from each other, items among them are easier than other queries.
    sums : float, int
        Sums of two items are searched for too: this share of the queries, at least this number.
        They count even where scans answer such queries: others are as hard, as those whose nearest
        rows a filter leaves out.
    typical_sums : float
        Where this share of the sums seem typical, typical ones among them count as items do: the
        lesser recall is that of the setting. Of sums of two texts most are as far from the texts
        as these are from each other.
    slacks : tuple of float
        Of extensions that may be measured, rising.
    min_tier : int
        A tier is judged by at least this many queries, or by all.
    short : float
        Where items whose hits tie are found by this setting as well as others, ties tell nothing.
    max_short : float
        A setting is of no use by which more queries than this share find too few rows.
    beyond, small_sample_beyond, small_sample : float, float, int
        A score is out of range if it is below the least true one by this share of the distance to
        the median. ``small_sample_beyond`` holds for fewer than ``small_sample`` queries. If
        distances fall off exponentially, one query in 3,500 like the items is beyond the least of
        1024, and one in 900 beyond that of 160.
    """

    queries: int = 1024
    measured: tuple[tuple[int, tuple[int, ...], int], ...] = (
        (10, (1, 10), 1024),
        (30, (30,), 160),
        (100, (100,), 160),
        (300, (300,), 80),
    )
    rows_a_limit: int = 100
    settings: tuple[float, ...] = (
        *(0.05, 0.07, 0.08, 0.09, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        *(1.0, 1.01, 1.02, 1.03, 1.04, 1.06, 1.08, 1.1, 1.13, 1.17, 1.22),
        *(1.3, 1.4, 1.6, 2.0, 3.0),
    )
    first: tuple[float, ...] = (
        *(0.05, 0.3, 0.6, 0.9, 1.0, 1.02, 1.04, 1.08, 1.13, 1.22, 1.4, 2.0, 3.0),
    )
    fewer_queries: int = 1000
    ratio: float = 2.0
    min_recall: float = 0.75
    wide_ratio: float = 1.1
    candidate_ratio: float = 1.4
    enough: float = 0.9965
    left: float = 0.9
    max_share: float = 0.25
    doubt: float = 0.5
    extended_doubt: float = 1.0
    score_shares: tuple[float, float] = (0.04, 0.02)
    contrast_shares: tuple[float, float] = (0.15, 0.03)
    contrasts: tuple[float, float] = (0.97, 0.985)
    sums: tuple[float, int] = (0.0625, 48)
    typical_sums: float = 0.5
    slacks: tuple[float, ...] = (1.01, 1.03, 1.07, 1.13, 1.2, 1.3, 1.4, 1.6)
    min_tier: int = 12
    short: float = 0.3
    max_short: float = 0.1
    beyond: float = 0.2
    small_sample_beyond: float = 0.4
    small_sample: int = 500


class _Contrasts(NamedTuple):
    """Above which contrasts queries are hard, and foreign, and which distances tell them apart.

    Attributes
    ----------
    nearest : float
        The least distance told apart.
    spread : float
        See `Calibration`.
    tied : float
        The first hits of a query tie if their distances differ by less.
    """

    hard: float
    foreign: float
    nearest: float
    spread: float
    tied: float


@dataclass(frozen=True, slots=True)
class _Truth:
    """The true hits of m queries for one limit.

    Attributes
    ----------
    wanted : int
        Hits.
    lowest : (m,) float64
        Score of each query's last true hit.
    tiers : (m,) int
        See `_tiers`.
    scores : (float, float, float)
        See `LimitCurves`.
    """

    wanted: int
    lowest: Float64s
    tiers: Int64s
    scores: tuple[float, float, float]


class _Point(NamedTuple):
    """What a setting gave for one limit, by the queries that seemed to be of its tier.

    Attributes
    ----------
    recall, items : float
        The least of items and sums, and that of items; less a doubt.
    candidates : float
        Of these queries; of typical ones those of all items.
    others : float
        Share of the items that seemed to be of another tier.
    """

    recall: float
    items: float
    candidates: float
    others: float


def calibrate(
    sample: Sample,
    *,
    scan_nanoseconds: float,
    max_candidates: Callable[[int], float] = lambda limit: inf,
    policy: CalibrationPolicy,
) -> Calibration:
    """Measure recall by beam setting for a few limits; others lie between or beyond.

    Parameters
    ----------
    scan_nanoseconds : float
        What scanning one row takes.
    max_candidates : callable
        Takes a limit. Searches that score more rows take longer than scans: none is measured.
    """
    share, min_sums = policy.sums
    greatest = max(_LIMIT, sample.rows // policy.rows_a_limit)
    measured = [each for each in policy.measured if each[0] <= greatest]
    counts = [min(count, sample.items) for _, _, count in measured]
    sums = [min(max(int(share * count), min_sums), sample.sums) for count in counts]
    limits_of = [searched for searched, _, _ in measured]
    items = _true_hits(sample, limits_of, counts, 0)
    between = _true_hits(sample, limits_of, sums, sample.items)
    contrasts = _contrasts(items, sample, policy)
    if contrasts.tied > 0 and _finds_ties(sample, items, contrasts.tied, policy):
        contrasts = contrasts._replace(spread=0.0, tied=0.0)
    curves = []
    for (searched, limits, _), of_items, of_sums in zip(measured, counts, sums, strict=True):
        parts = [found for first, found in items if first < of_items]
        others = [found for first, found in between if first < of_sums]
        truth = {
            limit: _truth(parts, others, min(limit, sample.rows), contrasts, policy)
            for limit in limits
        }
        numbers = np.concatenate([np.arange(of_items), sample.items + np.arange(of_sums)]).astype(
            np.int64
        )
        measured_at = _Measurements(sample, (numbers, of_items), truth, searched, contrasts, policy)
        max_scored = min(max_candidates(searched), policy.max_share * sample.rows)
        for tier in (TYPICAL, HARD, FOREIGN):
            measured_at.measure(tier, max_scored)
        curves += [measured_at.curves(limit) for limit in limits]
    return Calibration(
        sample.rows, tuple(curves), scan_nanoseconds, contrasts[:2], contrasts.spread
    )


def _true_hits(
    sample: Sample, limits: Sequence[int], counts: Sequence[int], first_number: int
) -> list[tuple[int, BatchHits]]:
    """Return the true hits of runs of queries, each for the greatest limit it is judged by.

    With each run comes the number of its first query, counted from ``first_number``.
    """
    runs = []
    ends = sorted({count for count in counts if count > 0})
    for first, end in zip([0, *ends], ends, strict=False):
        greatest = max(limit for limit, count in zip(limits, counts, strict=True) if count >= end)
        numbers = first_number + np.arange(first, end)
        runs.append((first, sample.true_hits(numbers, min(greatest, sample.rows))))
    return runs


def _spreads(found: BatchHits) -> Float64s:
    """Return (m,): how much farther the tenth hit is than the second; -1 for fewer hits."""
    if found.scores.shape[1] < CONTRAST_PLACE:
        return np.full(len(found), -1.0)
    between: Float64s = found.scores[:, TIED_PLACE - 1] - found.scores[:, CONTRAST_PLACE - 1]
    return np.where(found.sizes >= CONTRAST_PLACE, between, -1.0)


def _finds_ties(
    sample: Sample, runs: list[tuple[int, BatchHits]], tied: float, policy: CalibrationPolicy
) -> bool:
    """Return whether items whose hits tie are found about as well as others by a short search."""
    spreads = np.concatenate([_spreads(found) for _, found in runs])
    lasts = np.concatenate([_last_scores(found, CONTRAST_PLACE) for _, found in runs])
    are_tied = (spreads > 0) & (spreads < tied)
    if min(np.count_nonzero(are_tied), np.count_nonzero(~are_tied)) < policy.min_tier:
        return False
    setting = BeamSetting.of(policy.short, CONTRAST_PLACE)
    found = sample.search(np.arange(len(spreads)), CONTRAST_PLACE, setting)
    inside = np.arange(found.scores.shape[1]) < found.sizes[:, None]
    good = ((found.scores >= lasts[:, None] - _TIE) & inside).mean(axis=1)
    others = good[~are_tied]
    error = float(others.std() / np.count_nonzero(are_tied) ** 0.5)
    return float(good[are_tied].mean()) >= float(others.mean()) - 2 * error


def _contrast(found: BatchHits, nearest: float) -> Float64s:
    """Return (m,): how far the first hit is, in distances of the tenth; -1 for fewer hits.

    0 for copies, which are all as far.
    """
    factors = np.full(len(found), -1.0)
    full = found.sizes >= CONTRAST_PLACE
    if full.any():
        first, last = 1.0 - found.scores[full][:, [0, CONTRAST_PLACE - 1]].T
        factors[full] = np.where(first < last, first / np.maximum(last, nearest), 0.0)
    return factors


def _contrasts(
    runs: list[tuple[int, BatchHits]], sample: Sample, policy: CalibrationPolicy
) -> _Contrasts:
    """Return the factors above which a query is hard, and foreign; `inf` where none is known."""
    nearest = sample.nearest
    factors = np.concatenate([_contrast(found, nearest) for _, found in runs])
    factors = factors[factors >= 0]
    if not len(factors):
        return _Contrasts(inf, inf, nearest, 0.0, 0.0)
    spreads = np.concatenate([_spreads(found) for _, found in runs])
    spread = _quantile(spreads[spreads >= 0], 0.5)
    hard, foreign = (
        min(ceiling, _quantile(factors, 1.0 - share))
        for share, ceiling in zip(policy.contrast_shares, policy.contrasts, strict=True)
    )
    return _Contrasts(hard, foreign, nearest, spread, sample.tied * spread)


def _tiers(found: BatchHits, wanted: int, scores: Sequence[float], contrasts: _Contrasts) -> Int64s:
    """Return the tier of each query by its hits: `TYPICAL`, `HARD`, `FOREIGN` or `TIED`."""
    last, contrast = _last_scores(found, wanted), _contrast(found, contrasts.nearest)
    tiers = np.zeros(len(found), np.int64)
    for score, factor in zip(scores[:2], contrasts[:2], strict=True):
        tiers += (last < score) | (contrast > factor)
    spreads = _spreads(found)
    tiers[(spreads > 0) & (spreads < contrasts.tied) & (last >= scores[0])] = TIED
    return tiers


def _truth(
    items: list[BatchHits],
    sums: list[BatchHits],
    wanted: int,
    contrasts: _Contrasts,
    policy: CalibrationPolicy,
) -> _Truth:
    """Return what is known of queries by their true hits for one limit."""
    lasts = np.concatenate([_last_scores(found, wanted) for found in items])
    lowest, median = float(lasts.min()), _quantile(lasts, 0.5)
    beyond = policy.beyond if len(lasts) >= policy.small_sample else policy.small_sample_beyond
    hard, foreign = (_quantile(lasts, share) for share in policy.score_shares)
    scores = (hard, foreign, lowest - beyond * (median - lowest))
    every = [*items, *sums]
    return _Truth(
        wanted,
        np.concatenate([_last_scores(found, wanted) for found in every]),
        np.concatenate([_tiers(found, wanted, scores, contrasts) for found in every]),
        scores,
    )


def _last_scores(found: BatchHits, place: int) -> Float64s:
    """Return the score of each query's hit at a place, counted from 1; too few hits score 0."""
    column = np.minimum(place, np.maximum(found.sizes, 1)) - 1
    last: Float64s = found.scores[np.arange(len(found)), column]
    return np.where(found.sizes < place, 0.0, last)


class _Measurements:
    """What beam settings give by searches with one limit.

    Parameters
    ----------
    queries : (m,) int64, int
        Numbers of items, then of sums; how many of them are items.
    truth : dict of int to _Truth
        Of these queries, by the limits judged.
    searched : int
        The limit searched with.
    """

    def __init__(
        self,
        sample: Sample,
        queries: tuple[Int64s, int],
        truth: dict[int, _Truth],
        searched: int,
        contrasts: _Contrasts,
        policy: CalibrationPolicy,
    ) -> None:
        self._sample, self._searched, self._policy = sample, searched, policy
        (self._queries, self._items), self._truth = queries, truth
        self._contrasts = contrasts
        is_sum = np.arange(len(self._queries)) >= self._items
        self._sums_count = any(
            self._are_enough(is_sum & (each.tiers == 0), is_sum) for each in truth.values()
        )
        self._points: dict[int, dict[int, dict[int, _Point]]] = {}

    def measure(self, tier: int, max_candidates: float) -> None:
        """Measure ever wider searches of a tier, until recall is enough or they are dear.

        Of typical queries some settings come first, and others between two of them follow.
        """
        policy, numbers = self._policy, self._numbers(tier)
        points = self._points.setdefault(tier, {})
        asked, before, gaps = self._asked(tier), -1, []
        for number in policy.first if tier == TYPICAL else numbers:
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
        return self._policy.settings if tier == TYPICAL else self._policy.slacks

    def _asked(self, tier: int, before: int = -1) -> Int64s:
        """Return the places of the queries by which a tier is measured, all if they are few.

        Of typical queries fewer are asked after a setting that scores many rows.
        """
        if tier == TYPICAL:
            measured = self._points[tier].get(before)
            scored = measured[self._searched].candidates if measured else 0.0
            many = [times for times in (1, 4) if scored > times * self._policy.fewer_queries]
            asked = np.arange(0, self._items, 2 ** len(many))
            sums = np.arange(self._items, len(self._queries))
            return np.concatenate([asked, sums]) if self._sums_count else asked
        of_limits = [np.isin(truth.tiers, (HARD, FOREIGN)) for truth in self._truth.values()]
        if min(np.count_nonzero(each) for each in of_limits) < self._policy.min_tier:
            return np.arange(len(self._queries))
        return np.flatnonzero(np.logical_or.reduce(of_limits))

    def _measure(self, tier: int, place: int, asked: Int64s) -> Int64s:
        """Measure a setting, if it is of use; return the queries to be asked by the next one."""
        numbers, chosen, truths = self._numbers(tier), self._queries[asked], self._truth
        if tier == TYPICAL:
            setting = BeamSetting.of(numbers[place], self._searched)
            found = self._sample.search(chosen, self._searched, setting)
            short = np.mean(found.sizes < truths[self._searched].wanted)
            if short > self._policy.max_short and place < len(numbers) - 1:
                return asked
        else:
            least = self._policy.settings[min(self._points[TYPICAL])]
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
        # Who is of another tier after the first extension stays so.
        return asked[np.logical_or.reduce([*insides.values()])] if place == 0 else asked

    def _inside(self, found: BatchHits, asked: Int64s, truth: _Truth, tier: int) -> Bools:
        """Return (a,): which queries seem to be of a tier; those of both tiers if they are few.

        A search knows the tier of a query by what it has found: a query that misses its nearest
        rows may seem less foreign than it is.
        """
        tiers, minimum = truth.tiers[asked], self._policy.min_tier
        seeming = _tiers(found, truth.wanted, truth.scores[:2], self._contrasts)
        inside: Bools = (seeming == tier) | ((tier == FOREIGN) & (tiers == tier))
        if tier == TYPICAL:
            return inside
        if np.count_nonzero(inside) < minimum:
            inside = np.isin(tiers, (HARD, FOREIGN))
        return inside if np.count_nonzero(inside) >= minimum else np.ones_like(inside)

    def _point(
        self, found: BatchHits, asked: Int64s, truth: _Truth, tier: int, inside: Bools
    ) -> _Point:
        """Return what a setting gave; items and sums are judged apart, where there are enough."""
        policy, is_item = self._policy, asked < self._items
        good = _shares_found(found, truth, asked)
        items, sums = inside & is_item, inside & ~is_item
        others = 1.0 - float(items.sum() / max(1, is_item.sum()))
        if tier == TYPICAL:
            items = items if items.any() else is_item
            scored, doubt = found.candidates[is_item], policy.doubt
            judged = [items, *([sums] if self._are_enough(sums, ~is_item) else [])]
        else:
            scored, doubt = found.candidates[inside], policy.extended_doubt
            kinds = [each for each in (items, sums) if np.count_nonzero(each) >= policy.min_tier]
            judged = kinds or [inside]
        return _Point(
            min(_less_doubt(good[each], doubt) for each in judged),
            _less_doubt(good[items if items.any() else inside], doubt),
            float(scored.mean()),
            others,
        )

    def _is_last(self, tier: int, before: int, place: int, max_candidates: float) -> bool:
        """Return whether no wider search is worth measuring; see ``enough`` and ``left``."""
        policy, points = self._policy, self._points[tier]
        lowest = min(point.recall for point in points[place].values())
        dear = points[place][self._searched].candidates > max_candidates
        if lowest >= policy.enough or dear:
            return True
        if before not in points or self._numbers(tier)[before] < policy.slacks[1]:
            return False
        missed = 1 - min(point.recall for point in points[before].values())
        return 1 - lowest > policy.left * missed

    def curves(self, limit: int) -> LimitCurves:
        """Return what was measured for a limit."""
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
        """Return whether enough sums are typical to count; see ``typical_sums``."""
        count = np.count_nonzero(typical)
        minimum = self._policy.typical_sums * np.count_nonzero(sums)
        return bool(count >= max(self._policy.min_tier, minimum))

    def _lie_apart(self, low: int, high: int) -> bool:
        """Return whether what lies between two settings must be measured; see ``ratio``."""
        policy, points = self._policy, self._points[TYPICAL]
        if max(point.recall for point in points[high].values()) < policy.min_recall:
            return False
        if low not in points:  # the least setting that is of use is between
            return True
        for limit, nearer in points[low].items():
            farther = points[high][limit]
            fall = (1 - nearer.recall) / max(1 - farther.recall, 1 - policy.enough)
            is_wide = policy.settings[low] >= WIDE_SLACK
            grows = farther.candidates > policy.candidate_ratio * nearer.candidates
            if fall > (policy.wide_ratio if is_wide and grows else policy.ratio):
                return True
        return False


def _quantile(values: Float64s, share: float) -> float:
    """Return a quantile as `numpy.quantile` does, which takes 0.2 ms, ten times as long."""
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    low, high = np.partition(values, (below, above))[[below, above]].tolist()
    return float(low + (place - below) * (high - low))


def _less_doubt(good: Float64s, errors: float) -> float:
    """Return a mean less ``errors`` standard errors."""
    error = float(good.std()) / len(good) ** 0.5
    return float(max(0.0, float(good.mean()) - errors * error))


def _never_falling(recalls: Sequence[float]) -> tuple[float, ...]:
    return tuple(np.maximum.accumulate(recalls).tolist())


def _shares_found(found: BatchHits, truth: _Truth, asked: Int64s) -> Float64s:
    """Return (a,): the share of the hits wanted that score as well as the last true one.

    Parameters
    ----------
    asked : (a,) int64
        Places of the queries among those of ``truth``.
    """
    inside = np.arange(found.scores.shape[1]) < found.sizes[:, None]
    good = ((found.scores >= truth.lowest[asked][:, None] - _TIE) & inside).sum(1)
    share: Float64s = np.minimum(good, truth.wanted) / truth.wanted
    return share
