"""What effort a walk needs for the recall asked for, as measured on the collection's own items.

Some items are searched for before they are linked, when nothing leads to them yet, so that they are
queries like any other. The exact scan says what should have been found.

An effort is one number whatever the limit is. Below 1 it is how many lists are read, as a share of
the limit (of `LEAST_BEAM` at least); from 1 on it is how far a walk reaches: it goes on with rows
up to so many times as far away as the last hit wanted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Any, Final

import numpy as np

from index.arrays import Float64s
from index.batches import VectorBatch
from index.hits import CANDIDATES, BatchHits

QUERIES: Final = 1024
_MEASURED: Final = ((10, (1, 10), QUERIES), (30, (30,), 160), (100, (100,), 160))
"""Limit searched with, limits judged, queries."""
LEAST_BEAM: Final = 10
_PLACES: Final = 32
"""A walk that is ended by its reach keeps at most so many rows for each hit wanted."""
_FEW_PLACES: Final = 2
"""A walk that is ended by a number of lists keeps so many: more are scored exactly in the end."""
_RARE_REACH: Final = 1.15
_FARTHER: Final = 1.15
"""A walk for a rare query reaches so far at least, and so much farther than the one before."""
_FEW_TABLES: Final = 4
_FAR: Final = 1.04
"""Walks that reach less far enter through half of the tables, `_FEW_TABLES` at least."""
_NEARBY: Final = 3
"""So many times a limit that was measured is near enough to judge by it alone."""
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
_LISTS_A_PLACE: Final = 4
_MORE_LISTS: Final = 64
"""No walk reads more lists than so many for each place of its beam, and so many more."""
_MOST_BEYOND: Final = 10
"""Limits up to this many times the greatest one measured take its effort."""

_LADDER: Final = (
    0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.01, 1.02, 1.03, 1.04, 1.06, 1.08, 1.1, 1.13,
    1.17, 1.22, 1.3, 1.4, 1.6, 2.0, 3.0,
)  # fmt: skip
"""Efforts measured."""
_ENOUGH: Final = 0.9965
"""Nothing is measured beyond this recall."""
_MOST_SHARE: Final = 0.25
"""Of the rows: a walk that scores more is not worth measuring."""
_ROUNDING: Final = 1e-9
"""Scores so near to each other tie."""
_DOUBT: Final = 0.5
"""Recall is taken to be less than its mean over the queries measured by so many standard errors."""
_CAUTION: Final = 5
"""The effort aimed at leaves a miss smaller by 1/_CAUTION of what is allowed: measured figures
vary."""


@dataclass(frozen=True, slots=True)
class Curve:
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
            share = (recall - low) / (high - low)
            least = self.efforts[place - 1]
            least += share * (self.efforts[place] - self.efforts[place - 1])
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
class Effort:
    """What a walk shall do.

    Attributes
    ----------
    beam : int
        The best rows that are kept, at most.
    lists : float
        Lists read at most; a fraction is the share of the queries that read one more.
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
        short = self.lists < self.beam or self.reach < _FAR
        return min(most, max(_FEW_TABLES, most // 2)) if short else most

    def wider(self) -> Effort:
        """Return the effort of the second walk, for a query that is unlike most."""
        reach = max(_RARE_REACH, _FARTHER * self.number)
        return Effort.of(reach, self.places, self.recall, _PLACES * self.candidates)

    @property
    def number(self) -> float:
        """The effort as one number; see the module."""
        return self.reach if self.reach < inf else self.lists / self.places

    @property
    def places(self) -> int:
        """The limit it is for, `LEAST_BEAM` at least."""
        return max(1, self.beam // (_PLACES if self.reach < inf else _FEW_PLACES))

    @classmethod
    def of(
        cls, effort: float, limit: int, recall: float = 0.0, candidates: float = 0.0,
        rare: float = 0.0,
    ) -> Effort:  # fmt: skip
        """Return the effort of a number; see the module."""
        places = max(limit, LEAST_BEAM)
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
    curves : tuple of Curve
        By rising limit.
    scan_nanoseconds : float
        What scanning one row takes for the queries measured, on average.
    """

    rows: int
    curves: tuple[Curve, ...]
    scan_nanoseconds: float

    def effort(self, limit: int, recall: float) -> Effort | None:
        """Return the effort for a recall in the mean over queries like the items.

        None where no effort measured reaches it.
        """
        aim = recall + (1.0 - recall) / _CAUTION
        known = [(curve, curve.effort(aim)) for curve in self.curves]
        if not known or limit > _MOST_BEYOND * self.curves[-1].limit:
            return None
        after = next((i for i, (curve, _) in enumerate(known) if curve.limit >= limit), len(known))
        above, most = known[min(after, len(known) - 1)]
        below, least = known[after - 1] if after > 0 and above.limit != limit else (above, most)
        if most is None or least is None:
            return _by_another_limit(known, below, limit)
        if below is above:
            return _scaled(above, most, limit)
        expected, candidates, rare = above.at(most)
        share = log(limit / below.limit) / log(above.limit / below.limit)
        # Where the hits of one limit lie in a cluster and those of the other beyond it, either
        # may be harder to find.
        rare = (1 - share) * below.at(least)[2] + share * rare
        return Effort.of(max(least, most), limit, expected, candidates, rare)

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
            "curves": [
                {
                    "limit": curve.limit, "efforts": list(curve.efforts),
                    "recalls": list(curve.recalls), "candidates": list(curve.candidates),
                    "rare": list(curve.rare), "strange": list(curve.strange),
                }
                for curve in self.curves
            ],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Calibration:
        """Inverse of `to_dict`."""
        curves = tuple(
            Curve(
                int(each["limit"]), tuple(each["efforts"]), tuple(each["recalls"]),
                tuple(each["candidates"]), tuple(each["rare"]), tuple(each["strange"]),
            )
            for each in document["curves"]
        )  # fmt: skip
        return cls(int(document["rows"]), curves, float(document["scan_nanoseconds"]))


def _scaled(curve: Curve, number: float, limit: int) -> Effort:
    """Return the effort of one curve for another limit than its own, or for that."""
    expected, candidates, rare = curve.at(number)
    if limit <= curve.limit:
        return Effort.of(number, limit, expected, candidates, rare)
    # Hits that far down score less than any measured: no query is rare.
    return Effort.of(number, limit, expected, candidates * limit / curve.limit)


def _by_another_limit(
    known: Sequence[tuple[Curve, float | None]], below: Curve, limit: int
) -> Effort | None:
    """Return an effort where none that was measured for the limit itself reaches the recall.

    A lesser limit speaks for those near to it. A greater one is walked for as if so many hits were
    wanted: such walks keep more rows.
    """
    for curve, number in known:
        if number is None:
            continue
        if curve is below and limit <= _NEARBY * curve.limit:
            return _scaled(curve, number, limit)
        if curve.limit > max(limit, LEAST_BEAM):
            expected, candidates, rare = curve.at(number)
            return Effort.of(number, curve.limit, expected, candidates, rare)
    return None


Search = Callable[[VectorBatch, int, Effort, float], BatchHits]
"""Of queries, a limit, an effort, and the score of the last hit below which a query is walked for
again; at 0 none is."""
Scan = Callable[[VectorBatch, int], BatchHits]
"""The true hits of queries, and a limit."""


def calibrate(
    queries: VectorBatch, rows: int, search: Search, scan: Scan, *, scan_nanoseconds: float
) -> Calibration:
    """Measure recall by effort for the limits 1, 10, 30 and 100.

    Other limits lie between or beyond.

    Parameters
    ----------
    queries : VectorBatch
        At most `QUERIES` vectors like the items, none of them among the rows searched.
    rows : int
        How many rows are searched.
    search : Search
    scan : Scan
    scan_nanoseconds : float
        What scanning one row takes.
    """
    curves = []
    greatest = {count: searched for searched, _, count in _MEASURED}  # one scan for all limits
    found = {count: scan(queries[:count], min(most, rows)) for count, most in greatest.items()}
    for searched, limits, count in _MEASURED:
        least = {limit: _last_scores(found[count], min(limit, rows)) for limit in limits}
        curves += _curves(queries[:count], rows, least, searched, search)
    return Calibration(rows, tuple(curves), scan_nanoseconds)


def _last_scores(found: BatchHits, place: int) -> Float64s:
    """Return the score of each query's hit at a place, counted from 1."""
    column = np.minimum(place, np.maximum(found.sizes, 1)) - 1
    last: Float64s = found.scores[np.arange(len(found)), column]
    return last


def _curves(
    queries: VectorBatch, rows: int, least: dict[int, Float64s], searched: int, search: Search
) -> list[Curve]:
    """Return recall by effort for some limits, until that of the greatest is high enough.

    Parameters
    ----------
    queries : VectorBatch
    rows : int
    least : dict
        For each limit the (m,) scores of the last true hits.
    searched : int
        The limit searched with.
    search : Search
    """
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
            work = found.work[:, CANDIDATES].copy()
            rest, twice = rests[limit], rests[limit][again]
            good[rest] = _good(wider, scores[again], min(limit, rows))[twice]
            work[rest] = wider.work[twice, CANDIDATES]
            lasts[limit][rest] = _last_scores(wider, min(limit, rows))[twice]
            strange[limit].append(min(_strange(scores), float(lasts[limit].min())))
            error = float(good.std()) / len(good) ** 0.5
            recall = float(good.mean()) - _DOUBT * error
            recalls[limit].append(max([recall, *recalls[limit][-1:]]))
            candidates[limit].append(float(work.mean()))
        efforts.append(number)
        enough = recalls[searched][-1] >= _ENOUGH
        if enough or candidates[searched][-1] > _MOST_SHARE * rows:
            break
    return [
        Curve(
            limit, tuple(efforts), tuple(recalls[limit]), tuple(candidates[limit]),
            tuple(rare[limit]), tuple(strange[limit]),
        )
        for limit in least
    ]  # fmt: skip


def _rare(scores: Float64s, found: Float64s) -> float:
    """Return the score below which a last hit is rare, by true ones and by those found."""
    usual = float(np.quantile(scores, _RARE))
    return min(usual, float(np.quantile(found, _RARE_FOUND))) if len(found) else usual


def _good(found: BatchHits, least: Float64s, wanted: int) -> Float64s:
    """Return (m,): the share of the hits wanted that score as well as the last true one."""
    inside = np.arange(found.scores.shape[1]) < found.sizes[:, None]
    good = ((found.scores >= least[:, None] - _ROUNDING) & inside).sum(1)
    share: Float64s = np.minimum(good, wanted) / wanted
    return share


def _strange(scores: Float64s) -> float:
    """Return a score beyond the last true ones of all queries."""
    least, usual = np.quantile(scores, [0.0, 0.5]).tolist()
    return float(least - _BEYOND * (usual - least))
