"""Measuring recall by effort, with items of a collection as queries.

They are searched for before they are linked, when nothing leads to them yet, so that they are
queries like any other. The exact scan says what should have been found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Bools, Float64s, Int64s
from gcws_search.index.contracts.hits import BatchHits
from gcws_search.index.graph.recall_curve import FAR, BeamSetting, Calibration, RecallCurve
from gcws_search.index.kernels.graph.batch_search import PLACE
from gcws_search.index.kernels.graph.beam_search import MIN_DISTANCE

QUERIES: Final = 1024
_MEASURED: Final = ((10, (1, 10), QUERIES), (30, (30,), 160), (100, (100,), 160))
"""Limit searched with, limits judged, queries."""
_DEAR: Final = 1000
"""After an effort by which walks score more rows, every second query is enough: of 100,000
clustered rows, walks for 100 hits took a fifth of the time of linking and measuring."""
_FLAT: Final = 0.03
"""Walks of few lists go on for queries whose first hit is hardly nearer than the tenth: for this
share of queries like the items. From outside a crowd all of it is about as far; and of frames of
daily sports, searched for like items, the flattest tenth found 0.44 where the others found 0.87.
Source: [LID]: neighbours of what sees many dimensions are hard to find."""
_RARE: Final = 0.01
_RARE_FOUND: Final = 0.1
"""A query is rare whose hits score less than those of nearly all others: less than the last true
hit of all but this share of the queries measured, and less than the last hit that all but this
share of them find by the same effort."""
_MAX_FEW: Final = 0.1
"""No effort is of use by which more queries than this share find too few rows: what second walks
add for one limit says nothing about those between."""
_BEYOND: Final = 0.2
_FAR_BEYOND: Final = 0.4
_MANY: Final = 500
"""A score below the least true one, by this share of what lies between it and the median, is
strange, unless queries measured found as little: by the second where they are fewer than `_MANY`.
Of queries like the items, if distances fall off exponentially, one in 3,500 is beyond the least of
1024, and one in 900 beyond that of 160."""

_LADDER: Final = (
    0.05,
    0.07,
    0.08,
    0.09,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    1.0,
    1.01,
    1.02,
    1.03,
    1.04,
    1.06,
    1.08,
    1.1,
    1.13,
    1.17,
    1.22,
    1.3,
    1.4,
    1.6,
    2.0,
    3.0,
)
"""Efforts measured."""
_FIRST: Final = tuple(
    _LADDER.index(number)
    for number in (0.05, 0.3, 0.6, 0.9, 1.0, 1.02, 1.04, 1.08, 1.13, 1.22, 1.4, 2.0, 3.0)
)
"""Those measured first, by place."""
_RUNS: Final = ((0.0, 1.0), (1.06, 1.17), (1.17, 1.6), (1.6, inf))
"""Efforts from the first of these numbers on and below the second are measured by one walk
together: those of a number of lists; and reaches, no run of which crosses `FAR`, for its walks
enter through the same tables, nor is so long that much is walked beyond the recall wanted. Each
reach from 1 to 1.04 has a walk of its own: one that goes on farther keeps rows that rounding has
made seem farther away than the last hit, by which a reach of 1.01 for 100 hits would seem to find
.994 of rows in bytes for .989."""
_RATIO: Final = 2.0
_DEARER: Final = 1.4
_HARDLY: Final = 1.1
"""An effort between two is measured, too, where the miss falls by more than the first of these
factors; or where walks reach as far as `FAR`, by more than the last, and cost more by more than the
second. So recall by effort, taken to be straight in between, is nowhere off by more than a
twentieth of the miss."""
_ENOUGH: Final = 0.9965
"""Nothing is measured beyond this recall."""
_LEFT: Final = 0.9
"""Nor once one of the first efforts that reach as far as `FAR` leaves this share of the miss of the
one before: what is missing then is not to be had by reaching farther."""
_MAX_SHARE: Final = 0.25
"""Of the rows: a walk that scores more is not worth measuring."""
_ROUNDING: Final = 1e-9
"""Scores so near to each other tie."""
_DOUBT: Final = 0.5
"""Recall is taken to be less than its mean over the queries measured by so many standard errors."""

Sweep = Callable[[Int64s, int, Sequence[BeamSetting], float], list[BatchHits]]
"""Walks once for each of some queries, by number; limit, efforts, factor of `Calibration.flat`."""
Search = Callable[[Int64s, int, BeamSetting, float], BatchHits]
"""Walks twice for each of some queries, by number; limit, effort, the same factor."""
Scan = Callable[[Int64s, int], BatchHits]
"""The true hits of queries by number, and a limit."""


@dataclass(frozen=True, slots=True)
class _True:
    """The true hits for one limit.

    Attributes
    ----------
    wanted : int
        Hits.
    least : (m,) float64
        Score of each query's last true hit.
    rare, strange : float
        See `_RARE` and `_BEYOND`.
    """

    wanted: int
    least: Float64s
    rare: float
    strange: float

    @classmethod
    def of(cls, wanted: int, least: Float64s) -> _True:
        """Return what is known of the hits by the scores of the last ones."""
        lowest, median = float(least.min()), _quantile(least, 0.5)
        beyond = _BEYOND if len(least) >= _MANY else _FAR_BEYOND
        return cls(wanted, least, _quantile(least, _RARE), lowest - beyond * (median - lowest))

    def of_queries(self, chosen: Int64s | slice) -> _True:
        """Return the same of some queries."""
        return replace(self, least=self.least[chosen])


_Walked = tuple[Int64s, dict[int, _True], dict[int, BatchHits]]
"""Queries, their true hits by limit, and what was found by efforts, by their places."""


@dataclass(frozen=True, slots=True)
class _Point:
    """What one effort gave for one limit; as `RecallCurve` has it for all, recall as it was measured."""

    recall: float
    candidates: float
    rare: float
    strange: float


def calibrate(
    queries: int,
    rows: int,
    sweep: Sweep,
    search: Search,
    scan: Scan,
    *,
    scan_nanoseconds: float,
    most_candidates: float = inf,
) -> Calibration:
    """Measure recall by effort for the limits 1, 10, 30 and 100.

    Other limits lie between or beyond.

    Parameters
    ----------
    queries : int
        How many vectors there are to search for, at most `QUERIES`, like the items and none of them
        among the rows searched.
    rows : int
        How many rows are searched.
    sweep : Sweep
    search : Search
    scan : Scan
    scan_nanoseconds : float
        What scanning one row takes.
    most_candidates : float
        Walks that score more rows take longer than scans: nothing is measured beyond.
    """
    truth = _truth(queries, rows, scan)
    flat = _flat(truth)
    most = min(most_candidates, _MAX_SHARE * rows)
    curves = []
    for searched, limits, count in _MEASURED:
        chosen = np.arange(min(count, queries))
        parts = [found for first, found in truth if first < len(chosen)]
        true = {}
        for limit in limits:
            wanted = min(limit, rows)
            least = np.concatenate([_last_scores(found, wanted) for found in parts])
            true[limit] = _True.of(wanted, least)
        ladder = _Ladder(chosen, true, searched, sweep, search, flat)
        ladder.climb(most)
        curves += [ladder.curve(limit) for limit in limits]
    return Calibration(rows, tuple(curves), scan_nanoseconds, flat)


def _truth(queries: int, rows: int, scan: Scan) -> list[tuple[int, BatchHits]]:
    """Return the true hits of runs of queries, each for the greatest limit it is judged by.

    With each run comes the number of its first query.
    """
    runs = []
    ends = sorted({min(count, queries) for _, _, count in _MEASURED})
    for first, end in zip([0, *ends], ends, strict=False):
        greatest = max(searched for searched, _, count in _MEASURED if count >= end)
        runs.append((first, scan(np.arange(first, end), min(greatest, rows))))
    return runs


def _flat(truth: list[tuple[int, BatchHits]]) -> float:
    """Return the factor by which the first hit of nearly all queries is nearer than the tenth."""
    full = [found.scores[found.sizes >= PLACE] for _, found in truth]
    distances = 1.0 - np.concatenate([scores[:, [0, PLACE - 1]] for scores in full])
    if not len(distances):
        return 1.0
    factors = distances[:, 0] / np.maximum(distances[:, 1], MIN_DISTANCE)
    return _quantile(factors, 1.0 - _FLAT)


def _last_scores(found: BatchHits, place: int) -> Float64s:
    """Return the score of each query's hit at a place, counted from 1."""
    column = np.minimum(place, np.maximum(found.sizes, 1)) - 1
    last: Float64s = found.scores[np.arange(len(found)), column]
    return last


class _Ladder:
    """What efforts give by walks with one limit.

    Parameters
    ----------
    queries : (m,) int64
    true : dict of int to _True
        By the limits judged.
    searched : int
        The limit searched with.
    sweep : Sweep
    search : Search
    flat : float
        See `Calibration`.
    """

    def __init__(
        self,
        queries: Int64s,
        true: dict[int, _True],
        searched: int,
        sweep: Sweep,
        search: Search,
        flat: float,
    ) -> None:
        self._searched, self._sweep, self._search, self._flat = searched, sweep, search, flat
        self._all = queries, true
        second = slice(None, None, 2)
        fewer = {limit: each.of_queries(second) for limit, each in true.items()}
        self._fewer = queries[second], fewer
        self._walked: dict[int, _Walked] = {}
        self._points: dict[int, dict[int, _Point]] = {}

    def climb(self, most: float) -> None:
        """Measure efforts until recall is high enough, or walks score more than ``most`` rows."""
        last, gaps = -1, []
        for place in _FIRST:
            before, last = last, place
            if not self._measure(place, before):
                continue
            gaps.append((before, place))
            point = self._point(place)
            if point.recall >= _ENOUGH or point.candidates > most or self._settled(before, place):
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
            tuple(_LADDER[place] for place in places),
            tuple(recalls),
            tuple(point.candidates for point in points),
            tuple(point.rare for point in points),
            tuple(point.strange for point in points),
        )

    def _point(self, place: int) -> _Point:
        return self._points[place][self._searched]

    def _measure(self, place: int, before: int) -> bool:
        """Measure an effort beyond another; return whether it is of use."""
        queries, true, hits = self._walk(place, before)
        found = hits[place]
        few = found.sizes < true[self._searched].wanted
        if np.mean(few) > _MAX_FEW and place < len(_LADDER) - 1:
            return False
        rare, rests = {}, {}
        rare_anywhere = np.zeros(len(queries), np.bool_)
        for limit, each in true.items():
            few, lasts = found.sizes < each.wanted, _last_scores(found, each.wanted)
            rare[limit] = _rare(each, lasts[~few])
            rests[limit] = few | (lasts < rare[limit])
            rare_anywhere |= rests[limit]
        again = np.flatnonzero(rare_anywhere)
        wider = found[:0]
        if len(again):
            effort = BeamSetting.of(_LADDER[place], self._searched)
            wider = self._search(queries[again], self._searched, effort, self._flat)
        self._points[place] = {
            limit: _point(found, wider, again, rests[limit], each, rare[limit])
            for limit, each in true.items()
        }
        return True

    def _walk(self, place: int, before: int) -> _Walked:
        """Walk by an effort and those measured with it, if that has not been done yet."""
        places = _measured_with(place)
        first = places[0]
        if first not in self._walked:
            dear = before in self._points and self._point(before).candidates > _DEAR
            queries, true = self._fewer if dear else self._all
            efforts = [BeamSetting.of(_LADDER[each], self._searched) for each in places]
            hits = self._sweep(queries, self._searched, efforts, self._flat)
            self._walked[first] = queries, true, dict(zip(places, hits, strict=True))
        return self._walked[first]

    def _settled(self, before: int, place: int) -> bool:
        """Return whether an effort adds next to nothing to the one before; see `_LEFT`."""
        if before not in self._points or _LADDER[before] < FAR:
            return False
        return 1 - self._point(place).recall > _LEFT * (1 - self._point(before).recall)

    def _lie_apart(self, low: int, high: int) -> bool:
        """Return whether what lies between two efforts must be measured; see `_RATIO`."""
        if low not in self._points:  # the least effort that is of use is between
            return True
        for limit, nearer in self._points[low].items():
            farther = self._points[high][limit]
            fall = (1 - nearer.recall) / max(1 - farther.recall, 1 - _ENOUGH)
            dearer = _LADDER[low] >= FAR and farther.candidates > _DEARER * nearer.candidates
            if fall > (_HARDLY if dearer else _RATIO):
                return True
        return False


def _measured_with(place: int) -> Sequence[int]:
    """Return the places of the efforts that one walk measures together with one of them."""
    for least, end in _RUNS:
        if least <= _LADDER[place] < end:
            return [each for each, number in enumerate(_LADDER) if least <= number < end]
    return [place]


def _point(
    found: BatchHits, wider: BatchHits, again: Int64s, rest: Bools, true: _True, rare: float
) -> _Point:
    """Return what an effort gave for one limit.

    Parameters
    ----------
    found : BatchHits
        Of the m queries, once walked for.
    wider : BatchHits
        Of the queries ``again``, walked for twice.
    again : (a,) int64
    rest : (m,) bool
        Which queries are walked for again for this limit.
    true : _True
    rare : float
    """
    good, lasts = _good(found, true), _last_scores(found, true.wanted)
    work = found.candidates.copy()
    twice, chosen = rest[again], true.of_queries(again)
    good[rest] = _good(wider, chosen)[twice]
    work[rest] = wider.candidates[twice]
    lasts[rest] = _last_scores(wider, true.wanted)[twice]
    error = float(good.std()) / len(good) ** 0.5
    recall = float(good.mean()) - _DOUBT * error
    return _Point(recall, float(work.mean()), rare, min(true.strange, float(lasts.min())))


def _rare(true: _True, found: Float64s) -> float:
    """Return the score below which a last hit is rare, by true ones and by those found."""
    return min(true.rare, _quantile(found, _RARE_FOUND)) if len(found) else true.rare


def _quantile(values: Float64s, share: float) -> float:
    """Return a quantile as `numpy.quantile` does, which takes 0.2 ms, ten times as long."""
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    low, high = np.partition(values, (below, above))[[below, above]].tolist()
    return float(low + (place - below) * (high - low))


def _good(found: BatchHits, true: _True) -> Float64s:
    """Return (m,): the share of the hits wanted that score as well as the last true one."""
    inside = np.arange(found.scores.shape[1]) < found.sizes[:, None]
    good = ((found.scores >= true.least[:, None] - _ROUNDING) & inside).sum(1)
    share: Float64s = np.minimum(good, true.wanted) / true.wanted
    return share
