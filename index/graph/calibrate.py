"""Calibration: recall by beam setting, measured with items of the collection as queries.

The queries are held out: rows that are not linked into the graph yet, so they behave like new
queries. The ground truth is an exact scan of the linked rows.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from math import inf
from typing import Final, Protocol

import numpy as np

from gcws_search.index.contracts.arrays import Bools, Float64s, Int64s, UInt8s, UInt64s
from gcws_search.index.contracts.hits import BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.quantized_scan import BoundedRows
from gcws_search.index.exact.scan import scan
from gcws_search.index.graph.recall_curve import (
    WIDE_SLACK,
    BeamSetting,
    Calibration,
    RecallCurve,
)
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.kernels.graph.batch_search import CONTRAST_PLACE
from gcws_search.index.kernels.graph.beam_search import MIN_DISTANCE
from gcws_search.index.lsh.tables import Tables

_TIE: Final = 1e-9
"""Scores so near to each other tie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPolicy:
    """What is measured, and how the thresholds of the stages follow.

    Attributes
    ----------
    queries : int
        Items that are searched for at most.
    measured : tuple of (int, tuple of int, int)
        Limit searched with, limits judged, queries.
    settings : tuple of float
        Numbers of the beam settings that may be measured, rising; see `recall_curve`.
    first : tuple of float
        Those measured first; others follow between two of them.
    fewer_queries : int
        Every second query is enough after a setting by which searches score more rows: of 100,000
        clustered rows, searches for 100 hits took a fifth of the time of linking and measuring.
    ratio : float
        Settings between two are measured where the miss falls by more than this factor. So recall,
        taken to be linear in between, is off by a twentieth of the miss at most.
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
    doubt : float
        Recall is taken to be less than its mean by so many standard errors.
    low_contrast : float
        Searches without a slack are extended for this share of the queries: those whose first hit
        is about as far as the tenth. Of frames of daily sports the tenth of lowest contrast found
        0.44 where the others found 0.87. Source: [LID]: the neighbours of points in many
        dimensions are hard to find.
    low_score, low_score_found : float
        A score is low if it is less than the last true hit's of all but the first share of the
        queries, and than the last hit found of all but the second share.
    max_too_few : float
        A setting is of no use by which more queries than this share find too few rows.
    beyond, far_beyond, many : float, float, int
        A score is out of range if it is below the least true one by this share of the distance to
        the median. ``far_beyond`` holds for fewer than ``many`` queries. Of queries like the
        items, if distances fall off exponentially, one in 3,500 is beyond the least of 1024, and
        one in 900 beyond that of 160.
    """

    queries: int = 1024
    measured: tuple[tuple[int, tuple[int, ...], int], ...] = (
        (10, (1, 10), 1024),
        (30, (30,), 160),
        (100, (100,), 160),
    )
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
    wide_ratio: float = 1.1
    candidate_ratio: float = 1.4
    enough: float = 0.9965
    left: float = 0.9
    max_share: float = 0.25
    doubt: float = 0.5
    low_contrast: float = 0.03
    low_score: float = 0.01
    low_score_found: float = 0.1
    max_too_few: float = 0.1
    beyond: float = 0.2
    far_beyond: float = 0.4
    many: int = 500


class Sample(Protocol):
    """Queries like the items, none of them among the rows searched.

    Attributes
    ----------
    queries : int
        How many there are.
    rows : int
        How many rows are searched.
    """

    @property
    def queries(self) -> int: ...  # noqa: D102

    @property
    def rows(self) -> int: ...  # noqa: D102

    def true_hits(self, chosen: Int64s, limit: int) -> BatchHits:
        """Return the true hits of some queries, by number."""

    def search(
        self,
        chosen: Int64s,
        limit: int,
        setting: BeamSetting,
        *,
        low_contrast: float,
        low_score: float,
    ) -> BatchHits:
        """Return what searches with a beam setting find for some queries, by number.

        See `GraphSearch.plan_for`.
        """


class CalibrationStoppedError(Exception):
    """The way out of a calibration that nobody waits for."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Rows that are not linked yet, as a `Sample`.

    Attributes
    ----------
    graph : GraphSearch
        Of the other rows.
    tables : Tables
    view : RowView
        All rows that are alive.
    linked : RowView
        Those that are linked.
    chosen : (h,) int64
        The rows held out.
    hidden : (n,) uint8
        1 for these.
    keys : (h, t) uint64
        Their keys.
    inverted : InvertedIndex
    bounded : BoundedRows or None
        See `exact.scan.scan`.
    pieces : int
        Parts of the work for each thread.
    stop : threading.Event
        Once it is set, the next search raises `CalibrationStoppedError`.
    """

    graph: GraphSearch
    tables: Tables
    view: RowView
    linked: RowView
    chosen: Int64s
    hidden: UInt8s
    keys: UInt64s
    inverted: InvertedIndex
    bounded: BoundedRows | None
    pieces: int
    stop: threading.Event

    @classmethod
    def of(  # noqa: PLR0913 (what a search needs, and how)
        cls,
        graph: GraphSearch,
        tables: Tables,
        view: RowView,
        chosen: Int64s,
        keys: UInt64s,
        inverted: InvertedIndex,
        *,
        pieces: int,
        stop: threading.Event,
    ) -> HeldOut:
        """Return the rows of ``view`` that are held out, by number, with their keys."""
        others = view.permitted.copy()
        others[chosen] = 0
        hidden = np.zeros(len(view.vectors), np.uint8)
        hidden[chosen] = 1
        linked = RowView(view.vectors, others, view.permitted_count - len(chosen))
        bounded = BoundedRows.of(graph.links.quantized, graph.workers)
        return cls(
            graph, tables, view, linked, chosen, hidden, keys, inverted, bounded, pieces, stop
        )

    @property
    def queries(self) -> int:
        """How many queries there are."""
        return len(self.chosen)

    @property
    def rows(self) -> int:
        """How many rows are searched."""
        return self.linked.permitted_count

    def true_hits(self, chosen: Int64s, limit: int) -> BatchHits:
        """Return the true hits of some queries, by number."""
        return scan(
            self.linked,
            self.view.vectors[self.chosen[chosen]],
            SearchParams(limit=limit, recall=1.0),
            skip=np.full(len(chosen), -1, np.int64),
            inverted=self.inverted,
            workers=self.graph.workers,
            with_ties=False,
            rounded=self.bounded,
        )

    def search(
        self,
        chosen: Int64s,
        limit: int,
        setting: BeamSetting,
        *,
        low_contrast: float,
        low_score: float,
    ) -> BatchHits:
        """Return what searches with a beam setting find for some queries, by number."""
        if self.stop.is_set():
            raise CalibrationStoppedError
        plan = self.graph.plan_for(
            self.tables,
            self.view,
            limit,
            setting,
            low_contrast=low_contrast,
            low_score=low_score,
        )
        return self.graph.search(
            plan,
            self.tables,
            self.view,
            self.view.vectors[self.chosen[chosen]],
            SearchParams(limit=limit),
            np.full(len(chosen), -1, np.int64),
            keys=self.keys[chosen, : plan.tables],
            hidden=self.hidden,
            pieces=self.pieces,
        ).hits


@dataclass(frozen=True, slots=True)
class _Truth:
    """The true hits for one limit.

    Attributes
    ----------
    wanted : int
        Hits.
    least : (m,) float64
        Score of each query's last true hit.
    low_score, out_of_range : float
        See `CalibrationPolicy`.
    """

    wanted: int
    least: Float64s
    low_score: float
    out_of_range: float

    @classmethod
    def of(cls, wanted: int, least: Float64s, policy: CalibrationPolicy) -> _Truth:
        """Return what is known of the hits by the scores of the last ones."""
        lowest, median = float(least.min()), _quantile(least, 0.5)
        beyond = policy.beyond if len(least) >= policy.many else policy.far_beyond
        low_score = _quantile(least, policy.low_score)
        return cls(wanted, least, low_score, lowest - beyond * (median - lowest))

    def of_queries(self, chosen: Int64s | slice) -> _Truth:
        """Return the same of some queries."""
        return replace(self, least=self.least[chosen])


@dataclass(frozen=True, slots=True)
class _Point:
    """What one setting gave for one limit, recall as measured; `RecallCurve` has all of them."""

    recall: float
    candidates: float
    low_score: float
    out_of_range: float


def calibrate(
    sample: Sample,
    *,
    scan_nanoseconds: float,
    max_candidates: float = inf,
    policy: CalibrationPolicy,
) -> Calibration:
    """Measure recall by beam setting for a few limits; others lie between or beyond.

    Parameters
    ----------
    sample : Sample
    scan_nanoseconds : float
        What scanning one row takes.
    max_candidates : float
        Searches that score more rows take longer than scans: nothing is measured beyond.
    policy : CalibrationPolicy
    """
    runs = _true_hits(sample, policy)
    low_contrast = _low_contrast(runs, policy.low_contrast)
    most = min(max_candidates, policy.max_share * sample.rows)
    curves = []
    for searched, limits, count in policy.measured:
        chosen = np.arange(min(count, sample.queries))
        parts = [found for first, found in runs if first < len(chosen)]
        truth = {}
        for limit in limits:
            wanted = min(limit, sample.rows)
            least = np.concatenate([_last_scores(found, wanted) for found in parts])
            truth[limit] = _Truth.of(wanted, least, policy)
        ladder = _Ladder(sample, chosen, truth, searched, low_contrast, policy)
        ladder.climb(most)
        curves += [ladder.curve(limit) for limit in limits]
    return Calibration(sample.rows, tuple(curves), scan_nanoseconds, low_contrast)


def _true_hits(sample: Sample, policy: CalibrationPolicy) -> list[tuple[int, BatchHits]]:
    """Return the true hits of runs of queries, each for the greatest limit it is judged by.

    With each run comes the number of its first query.
    """
    runs = []
    ends = sorted({min(count, sample.queries) for _, _, count in policy.measured})
    for first, end in zip([0, *ends], ends, strict=False):
        greatest = max(searched for searched, _, count in policy.measured if count >= end)
        hits = sample.true_hits(np.arange(first, end), min(greatest, sample.rows))
        runs.append((first, hits))
    return runs


def _low_contrast(runs: list[tuple[int, BatchHits]], share: float) -> float:
    """Return the factor by which the first hit of all but a share is nearer than the tenth."""
    full = [found.scores[found.sizes >= CONTRAST_PLACE] for _, found in runs]
    distances = 1.0 - np.concatenate([scores[:, [0, CONTRAST_PLACE - 1]] for scores in full])
    if not len(distances):
        return 1.0
    factors = distances[:, 0] / np.maximum(distances[:, 1], MIN_DISTANCE)
    return _quantile(factors, 1.0 - share)


def _last_scores(found: BatchHits, place: int) -> Float64s:
    """Return the score of each query's hit at a place, counted from 1."""
    column = np.minimum(place, np.maximum(found.sizes, 1)) - 1
    last: Float64s = found.scores[np.arange(len(found)), column]
    return last


class _Ladder:
    """What beam settings give by searches with one limit.

    Parameters
    ----------
    sample : Sample
    queries : (m,) int64
    truth : dict of int to _Truth
        By the limits judged.
    searched : int
        The limit searched with.
    low_contrast : float
        See `Calibration`.
    policy : CalibrationPolicy
    """

    def __init__(
        self,
        sample: Sample,
        queries: Int64s,
        truth: dict[int, _Truth],
        searched: int,
        low_contrast: float,
        policy: CalibrationPolicy,
    ) -> None:
        self._sample, self._searched, self._policy = sample, searched, policy
        self._low_contrast = low_contrast
        self._all = queries, truth
        second = slice(None, None, 2)
        fewer = {limit: each.of_queries(second) for limit, each in truth.items()}
        self._fewer = queries[second], fewer
        self._points: dict[int, dict[int, _Point]] = {}

    def climb(self, most: float) -> None:
        """Measure settings until recall is enough, or searches score more than ``most`` rows."""
        policy, last, gaps = self._policy, -1, []
        for number in policy.first:
            before, last = last, policy.settings.index(number)
            if not self._measure(last, before):
                continue
            gaps.append((before, last))
            point = self._point(last)
            enough = point.recall >= policy.enough or point.candidates > most
            if enough or self._adds_little(before, last):
                break
        while gaps:
            low, high = gaps.pop()
            middle = (low + high) // 2
            if low < middle and self._lie_apart(low, high):
                below = [(low, middle)] if self._measure(middle, low) else []
                gaps += [*below, (middle, high)]

    def curve(self, limit: int) -> RecallCurve:
        """Return what was measured for a limit."""
        places = sorted(self._points)
        points = [self._points[place][limit] for place in places]
        recalls = np.maximum.accumulate([point.recall for point in points]).tolist()
        return RecallCurve(
            limit,
            tuple(self._policy.settings[place] for place in places),
            tuple(recalls),
            tuple(point.candidates for point in points),
            tuple(point.low_score for point in points),
            tuple(point.out_of_range for point in points),
        )

    def _point(self, place: int) -> _Point:
        return self._points[place][self._searched]

    def _measure(self, place: int, before: int) -> bool:
        """Measure a setting beyond another; return whether it is of use."""
        policy = self._policy
        dear = before in self._points and self._point(before).candidates > policy.fewer_queries
        queries, truth = self._fewer if dear else self._all
        setting = BeamSetting.of(policy.settings[place], self._searched)
        found = self._search(queries, setting, again=False)
        few = found.sizes < truth[self._searched].wanted
        if np.mean(few) > policy.max_too_few and place < len(policy.settings) - 1:
            return False
        low_scores, rests = {}, {}
        low_anywhere = np.zeros(len(queries), np.bool_)
        for limit, each in truth.items():
            few, lasts = found.sizes < each.wanted, _last_scores(found, each.wanted)
            low_scores[limit] = self._low_score(each, lasts[~few])
            rests[limit] = few | (lasts < low_scores[limit])
            low_anywhere |= rests[limit]
        again = np.flatnonzero(low_anywhere)
        second = found[:0]
        if len(again):
            second = self._search(queries[again], setting, again=True)
        self._points[place] = {
            limit: self._judged(found, second, again, rests[limit], each, low_scores[limit])
            for limit, each in truth.items()
        }
        return True

    def _search(self, queries: Int64s, setting: BeamSetting, *, again: bool) -> BatchHits:
        """Search for some queries, once or for all of them ``again``."""
        return self._sample.search(
            queries,
            self._searched,
            setting,
            low_contrast=self._low_contrast,
            low_score=inf if again else 0.0,
        )

    def _low_score(self, truth: _Truth, found: Float64s) -> float:
        """Return the score below which a last hit scores low, by true ones and those found."""
        if not len(found):
            return truth.low_score
        return min(truth.low_score, _quantile(found, self._policy.low_score_found))

    def _judged(
        self,
        found: BatchHits,
        second: BatchHits,
        again: Int64s,
        rest: Bools,
        truth: _Truth,
        low_score: float,
    ) -> _Point:
        """Return what a setting gave for one limit.

        Parameters
        ----------
        found : BatchHits
            Of the m queries, searched for once.
        second : BatchHits
            Of the queries ``again``, searched for twice.
        again : (a,) int64
        rest : (m,) bool
            Queries that are searched for again for this limit.
        truth : _Truth
        low_score : float
        """
        good, lasts = _shares_found(found, truth), _last_scores(found, truth.wanted)
        work = found.candidates.copy()
        twice, chosen = rest[again], truth.of_queries(again)
        good[rest] = _shares_found(second, chosen)[twice]
        work[rest] = second.candidates[twice]
        lasts[rest] = _last_scores(second, truth.wanted)[twice]
        error = float(good.std()) / len(good) ** 0.5
        recall = float(good.mean()) - self._policy.doubt * error
        out_of_range = min(truth.out_of_range, float(lasts.min()))
        return _Point(recall, float(work.mean()), low_score, out_of_range)

    def _adds_little(self, before: int, place: int) -> bool:
        """Return whether a setting adds next to nothing to the one before; see ``left``."""
        if before not in self._points or self._policy.settings[before] < WIDE_SLACK:
            return False
        missed = 1 - self._point(before).recall
        return 1 - self._point(place).recall > self._policy.left * missed

    def _lie_apart(self, low: int, high: int) -> bool:
        """Return whether what lies between two settings must be measured; see ``ratio``."""
        policy = self._policy
        if low not in self._points:  # the least setting that is of use is between
            return True
        for limit, nearer in self._points[low].items():
            farther = self._points[high][limit]
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


def _shares_found(found: BatchHits, truth: _Truth) -> Float64s:
    """Return (m,): the share of the hits wanted that score as well as the last true one."""
    inside = np.arange(found.scores.shape[1]) < found.sizes[:, None]
    good = ((found.scores >= truth.least[:, None] - _TIE) & inside).sum(1)
    share: Float64s = np.minimum(good, truth.wanted) / truth.wanted
    return share
