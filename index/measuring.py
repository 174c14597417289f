"""Measuring recall by effort, with items of a collection as queries.

They are searched for before they are linked, when nothing leads to them yet, so that they are
queries like any other. The exact scan says what should have been found.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

import numpy as np

from index.arrays import Float64s, Int64s
from index.calibration import FAR, Calibration, Curve, Effort
from index.hits import BatchHits

QUERIES: Final = 1024
_MEASURED: Final = ((10, (1, 10), QUERIES), (30, (30,), 160), (100, (100,), 160))
"""Limit searched with, limits judged, queries."""
_DEAR: Final = 1000
"""After an effort by which walks score more rows, every second query is enough: of 100,000
clustered rows, walks for 100 hits took a fifth of the time of linking and measuring."""
_RARE: Final = 0.01
_RARE_FOUND: Final = 0.1
"""A query is rare whose hits score less than those of nearly all others: less than the last true
hit of all but this share of the queries measured, and less than the last hit that all but this
share of them find by the same effort."""
_MOST_FEW: Final = 0.1
"""No effort is of use by which more queries than this share find too few rows: what second walks
add for one limit says nothing about those between."""
_BEYOND: Final = 0.4
"""A score below the least true one, by this share of what lies between it and the median, is
strange, unless queries measured found as little."""

_LADDER: Final = (
    0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.01, 1.02, 1.03, 1.04, 1.06, 1.08, 1.1, 1.13,
    1.17, 1.22, 1.3, 1.4, 1.6, 2.0, 3.0,
)  # fmt: skip
"""Efforts measured."""
_ENOUGH: Final = 0.9965
"""Nothing is measured beyond this recall."""
_SETTLED: Final = 2
_LEFT: Final = 0.9
"""Nor once so many more efforts, of those that reach as far as `FAR`, have left this share of the
miss: what is missing then is not to be had by reaching farther."""
_MOST_SHARE: Final = 0.25
"""Of the rows: a walk that scores more is not worth measuring."""
_ROUNDING: Final = 1e-9
"""Scores so near to each other tie."""
_DOUBT: Final = 0.5
"""Recall is taken to be less than its mean over the queries measured by so many standard errors."""

Search = Callable[[Int64s, int, Effort, float], BatchHits]
"""Of queries by number, a limit, an effort, and the score of the last hit below which a query is
walked for again; at 0 none is."""
Scan = Callable[[Int64s, int], BatchHits]
"""The true hits of queries by number, and a limit."""


def calibrate(
    queries: int, rows: int, search: Search, scan: Scan, *, scan_nanoseconds: float
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
    search : Search
    scan : Scan
    scan_nanoseconds : float
        What scanning one row takes.
    """
    truth = _truth(queries, rows, scan)
    curves = []
    for searched, limits, most in _MEASURED:
        count = min(most, queries)
        parts = [found for first, found in truth if first < count]
        least = {
            limit: np.concatenate([_last_scores(found, min(limit, rows)) for found in parts])
            for limit in limits
        }
        curves += _curves(np.arange(count), rows, least, searched, search)
    return Calibration(rows, tuple(curves), scan_nanoseconds)


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


def _last_scores(found: BatchHits, place: int) -> Float64s:
    """Return the score of each query's hit at a place, counted from 1."""
    column = np.minimum(place, np.maximum(found.sizes, 1)) - 1
    last: Float64s = found.scores[np.arange(len(found)), column]
    return last


def _curves(
    queries: Int64s, rows: int, least: dict[int, Float64s], searched: int, search: Search
) -> list[Curve]:
    """Return recall by effort for some limits, until that of the greatest is high enough.

    Parameters
    ----------
    queries : (m,) int64
    rows : int
    least : dict
        For each limit the (m,) scores of the last true hits.
    searched : int
        The limit searched with.
    search : Search
    """
    most = len(queries)
    efforts: list[float] = []
    recalls: dict[int, list[float]] = {limit: [] for limit in least}
    rare: dict[int, list[float]] = {limit: [] for limit in least}
    strange: dict[int, list[float]] = {limit: [] for limit in least}
    candidates: dict[int, list[float]] = {limit: [] for limit in least}
    for number in _LADDER:
        effort = Effort.of(number, searched)
        found = search(queries, searched, effort, 0.0)
        if np.mean(found.sizes < min(searched, rows)) > _MOST_FEW and number < _LADDER[-1]:
            continue
        rare_anywhere = np.zeros(len(queries), np.bool_)
        rests, lasts = {}, {}
        for limit, scores in least.items():
            wanted = min(limit, rows)
            few = found.sizes < wanted
            lasts[limit] = _last_scores(found, wanted)
            rare[limit].append(_rare(scores, lasts[limit][~few]))
            rests[limit] = few | (lasts[limit] < rare[limit][-1])
            rare_anywhere |= rests[limit]
        again = np.flatnonzero(rare_anywhere)
        wider = search(queries[again], searched, effort, inf) if len(again) else found[:0]
        for limit, scores in least.items():
            good = _good(found, scores, min(limit, rows))
            work = found.candidates.copy()
            rest, twice = rests[limit], rests[limit][again]
            good[rest] = _good(wider, scores[again], min(limit, rows))[twice]
            work[rest] = wider.candidates[twice]
            lasts[limit][rest] = _last_scores(wider, min(limit, rows))[twice]
            strange[limit].append(min(_strange(scores), float(lasts[limit].min())))
            error = float(good.std()) / len(good) ** 0.5
            recall = float(good.mean()) - _DOUBT * error
            recalls[limit].append(max([recall, *recalls[limit][-1:]]))
            candidates[limit].append(float(work.mean()))
        efforts.append(number)
        enough = recalls[searched][-1] >= _ENOUGH or _has_settled(efforts, recalls[searched])
        if enough or candidates[searched][-1] > _MOST_SHARE * rows:
            break
        if candidates[searched][-1] > _DEAR and len(queries) == most:
            queries = queries[::2]
            least = {limit: scores[::2] for limit, scores in least.items()}
    return [
        Curve(
            limit, tuple(efforts), tuple(recalls[limit]), tuple(candidates[limit]),
            tuple(rare[limit]), tuple(strange[limit]),
        )
        for limit in least
    ]  # fmt: skip


def _has_settled(efforts: list[float], recalls: list[float]) -> bool:
    """Return whether the last `_SETTLED` efforts have added next to nothing; see `_LEFT`."""
    if len(efforts) <= _SETTLED or efforts[-1 - _SETTLED] < FAR:
        return False
    return 1 - recalls[-1] > _LEFT * (1 - recalls[-1 - _SETTLED])


def _rare(scores: Float64s, found: Float64s) -> float:
    """Return the score below which a last hit is rare, by true ones and by those found."""
    by_true = float(np.quantile(scores, _RARE))
    return min(by_true, float(np.quantile(found, _RARE_FOUND))) if len(found) else by_true


def _good(found: BatchHits, least: Float64s, wanted: int) -> Float64s:
    """Return (m,): the share of the hits wanted that score as well as the last true one."""
    inside = np.arange(found.scores.shape[1]) < found.sizes[:, None]
    good = ((found.scores >= least[:, None] - _ROUNDING) & inside).sum(1)
    share: Float64s = np.minimum(good, wanted) / wanted
    return share


def _strange(scores: Float64s) -> float:
    """Return a score beyond the last true ones of all queries."""
    least, median = np.quantile(scores, [0.0, 0.5]).tolist()
    return float(least - _BEYOND * (median - least))
