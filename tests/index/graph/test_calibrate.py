"""Recall by setting, as it is measured."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np
import pytest

from gcws_search.index.contracts.arrays import Int64s
from gcws_search.index.contracts.hits import GRAPH, BatchHits
from gcws_search.index.graph.calibrate import CalibrationPolicy, calibrate
from gcws_search.index.graph.recall_curve import BeamSetting, Calibration

ROWS = 9000


def found(limit: int, sizes: Int64s, candidates: int = 1) -> BatchHits:
    m = len(sizes)
    rows = np.tile(np.arange(limit), (m, 1))
    scores = np.tile(1.0 - np.arange(limit) / 200, (m, 1))
    return BatchHits.found(GRAPH, rows, scores, sizes, expected_recall=1.0, candidates=candidates)


Search = Callable[[Int64s, int, BeamSetting, float], BatchHits]
"""Queries, limit, beam setting and the factor of low contrast."""


@dataclass
class Fake:
    """A sample of queries that are searched for by plain functions."""

    queries: int
    rows: int
    once: Search
    again: Search
    scan: Callable[[Int64s, int], BatchHits]

    def true_hits(self, chosen: Int64s, limit: int) -> BatchHits:
        return self.scan(chosen, limit)

    def search(
        self,
        chosen: Int64s,
        limit: int,
        setting: BeamSetting,
        *,
        low_contrast: float,
        low_score: float,
    ) -> BatchHits:
        search = self.again if low_score > 0 else self.once
        return search(chosen, limit, setting, low_contrast)


def calibrated(
    queries: int,
    once: Search,
    again: Search,
    scan: Callable[[Int64s, int], BatchHits],
    *,
    rows: int = ROWS,
    max_candidates: float = inf,
) -> Calibration:
    """Return what some queries measure, searched for once and again."""
    sample = Fake(queries, rows, once, again, scan)
    return calibrate(
        sample, scan_nanoseconds=1.0, max_candidates=max_candidates, policy=CalibrationPolicy()
    )


def measured(calibration: Calibration, limit: int = 100) -> set[float]:
    """Return the settings measured for a limit."""
    (curve,) = (curve for curve in calibration.curves if curve.limit == limit)
    return set(curve.settings)


def true(queries: Int64s, limit: int) -> BatchHits:
    return found(limit, np.full(len(queries), limit))


@pytest.mark.parametrize(("few", "least"), [(0.5, 0.5), (0.05, 0.05)])
def test_an_effort_by_which_many_find_too_few_is_of_no_use(few: float, least: float) -> None:
    walked_twice = []

    def search(queries: Int64s, limit: int, setting: BeamSetting, flat: float) -> BatchHits:
        sizes = np.full(len(queries), limit)
        if setting.number < 0.5:
            sizes[: round(few * len(queries))] = limit - 1
        return found(limit, sizes)

    def again(queries: Int64s, limit: int, setting: BeamSetting, flat: float) -> BatchHits:
        walked_twice.append(len(queries) / few)
        return true(queries, limit)

    made = calibrated(200, search, again, true)
    assert {curve.settings[0] for curve in made.curves} == {least}
    assert all(curve.recalls[0] == 1.0 for curve in made.curves)
    assert set(walked_twice) == (set() if few > 0.1 else {200.0, 160.0})


@pytest.mark.parametrize("queries", [100, 160, 161, CalibrationPolicy().queries])
def test_every_query_is_scanned_for_once_as_far_as_it_is_judged(queries: int) -> None:
    limits = np.zeros(queries, np.int64)

    def scan(chosen: Int64s, limit: int) -> BatchHits:
        assert not limits[chosen].any()
        limits[chosen] = limit
        return true(chosen, limit)

    def search(chosen: Int64s, limit: int, setting: BeamSetting, flat: float) -> BatchHits:
        del setting, flat
        return true(chosen, limit)

    made = calibrated(queries, search, search, scan)
    assert limits.tolist() == [100] * min(queries, 160) + [10] * (queries - 160)
    assert [curve.limit for curve in made.curves] == [1, 10, 30, 100]
    assert all(curve.recalls == (1.0,) for curve in made.curves)


@pytest.mark.parametrize("settled", [1.06, 1.2])
def test_nothing_more_is_measured_once_reaching_farther_finds_no_more(settled: float) -> None:
    """Not before walks reach far: a pause of the rise below says nothing."""

    def search(queries: Int64s, limit: int, setting: BeamSetting, flat: float) -> BatchHits:
        share = 0.0 if setting.number < 1 else min(setting.number, settled) / (settled + 0.1)
        all_ = found(limit, np.full(len(queries), limit))
        all_.scores[:, round(share * limit) :] = 0.0  # hits of no use, so that none are missing
        return all_

    made = calibrated(200, search, search, true)
    curve = next(curve for curve in made.curves if curve.limit == 100)
    measured = [setting for setting in curve.settings if setting > settled]
    assert curve.settings[0] == 0.05
    assert curve.recalls[-1] == max(curve.recalls) < 0.95
    assert 1 <= len(measured) <= 3


@pytest.mark.parametrize(("nearer", "known"), [(0.5, True), (0.0, True), (0.0, False)])
def test_a_query_is_flat_whose_first_hit_is_hardly_nearer_than_the_tenth(
    nearer: float, known: bool
) -> None:
    """Of a thousand, thirty are about as far from the first as from the tenth."""
    sizes = 100 if known else 9
    factors = np.full(CalibrationPolicy().queries, nearer)
    factors[-40:] = 0.9
    given = set()

    def scan(chosen: Int64s, limit: int) -> BatchHits:
        hits = found(limit, np.full(len(chosen), min(limit, sizes)))
        hits.scores[:] = 0.8
        hits.scores[:, 0] = 1.0 - 0.2 * factors[chosen]
        return hits

    def search(chosen: Int64s, limit: int, setting: BeamSetting, flat: float) -> BatchHits:
        given.add(flat)
        return scan(chosen, limit)

    made = calibrated(CalibrationPolicy().queries, search, search, scan)
    assert given == {made.low_contrast}
    assert made.low_contrast == pytest.approx(0.9 if known else 1.0)


@pytest.mark.parametrize("queries", [160, 400, 800])
def test_the_more_queries_are_measured_the_nearer_to_them_a_strange_one_may_be(
    queries: int,
) -> None:
    """The least of few says less of how little others score."""
    lasts = np.linspace(0.5, 0.9, queries)

    def scan(chosen: Int64s, limit: int) -> BatchHits:
        hits = found(limit, np.full(len(chosen), limit))
        hits.scores[:] = lasts[chosen, None]
        return hits

    def search(chosen: Int64s, limit: int, setting: BeamSetting, flat: float) -> BatchHits:
        return scan(chosen, limit)

    made = calibrated(queries, search, search, scan)
    strange = {curve.limit: curve.out_of_range[0] for curve in made.curves}
    assert strange[1] == strange[10] == pytest.approx(0.46 if queries == 800 else 0.42)
    assert strange[100] < 0.5


@pytest.mark.parametrize(("candidates", "asked"), [(1000, {160}), (1001, {160, 80})])
def test_every_second_query_is_enough_once_walks_score_many_rows(
    candidates: int, asked: set[int]
) -> None:
    queries_asked = {}

    def search(queries: Int64s, limit: int, setting: BeamSetting, flat: float) -> BatchHits:
        if limit == 100:
            queries_asked[setting.number] = len(queries)
        scores = np.where(np.arange(limit) < setting.number * limit / 1.1, 1.0, 0.0)
        sizes = np.full(len(queries), limit)
        work = np.full(len(queries), candidates)
        rows = np.zeros((len(queries), limit), np.int64)
        rated = np.tile(scores, (len(queries), 1))
        return BatchHits.found(GRAPH, rows, rated, sizes, expected_recall=1.0, candidates=work)

    calibrated(200, search, search, true, rows=100_000)
    assert queries_asked[min(queries_asked)] == 160
    assert set(queries_asked.values()) == asked


def graded(recall: Callable[[float], float], candidates: Callable[[float], int]) -> Search:
    """Return a search of this recall and cost by setting."""

    def search(queries: Int64s, limit: int, setting: BeamSetting, flat: float) -> BatchHits:
        hits = found(limit, np.full(len(queries), limit), candidates(setting.number))
        hits.scores[:, round(recall(setting.number) * limit) :] = 0.0
        return hits

    return search


def test_efforts_between_two_are_measured_where_much_of_the_miss_is_lost_there() -> None:
    search = graded(lambda setting: 0.8 if setting < 0.5 else 0.99, lambda setting: 100)
    made = measured(calibrated(200, search, search, true))
    assert made >= {0.4, 0.5}
    assert not {0.2, 0.7, 0.8, 1.01, 1.03} & made


def test_efforts_between_two_far_ones_are_measured_where_walks_become_dear() -> None:
    def recall(setting: float) -> float:
        return min(0.8 + max(0.0, setting - 1.0), 0.99)

    def settings(search: Search) -> set[float]:
        return measured(calibrated(200, search, search, true))

    cheap = graded(recall, lambda setting: 100)
    dear = graded(recall, lambda setting: 100 if setting < 1.05 else 200)
    assert settings(dear) - settings(cheap) == {1.06}


def test_nothing_is_measured_beyond_walks_that_take_longer_than_scans() -> None:
    search = graded(
        lambda setting: min(0.3 + 4 * max(0.0, setting - 1), 1.0),
        lambda setting: int(100 * setting),
    )
    made = calibrated(200, search, search, true, max_candidates=110)
    assert max(measured(made)) == 1.13
