"""Recall by setting, as it is measured."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, cast

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from gcws_search.index.contracts.arrays import Bools, Float64s, Int64s
from gcws_search.index.contracts.hits import GRAPH, BatchHits
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.graph.calibrate import QUERIES, SLACKS, calibrate
from gcws_search.index.graph.held_out import sums_of_two
from gcws_search.index.graph.recall_curve import BeamSetting, Calibration, LimitCurves
from gcws_search.index.kernels.graph.batch_search import CANDIDATES
from tests.support.data.generated import sparse_of
from tests.support.index.recall import linked
from tests.support.index.small_index import SmallIndex

ROWS = 9000
HARD, FOREIGN = 1, 2
"""Tiers whose searches are extended."""


def found(limit: int, sizes: Int64s, candidates: int | Int64s = 1) -> BatchHits:
    m = len(sizes)
    rows = np.tile(np.arange(limit), (m, 1))
    scores = np.tile(1.0 - np.arange(limit) / 200, (m, 1))
    return BatchHits.of(GRAPH, rows, scores, sizes, expected_recall=1.0, candidates=candidates)


Scan = Callable[[Int64s, int], BatchHits]
Search = Callable[[Int64s, int, BeamSetting], BatchHits]
"""Queries, limit and beam setting."""
Extended = Callable[[Int64s, int, int, float], BatchHits]
"""Queries, limit, tier and slack."""


@dataclass
class Fake:
    """A sample of queries that are searched for by plain functions."""

    items: int
    sums: int
    rows: int
    once: Search
    extended: Extended
    scan: Scan
    nearest: float = 1e-5
    tied: float = 0.0

    def true_hits(self, chosen: Int64s, limit: int) -> BatchHits:
        return self.scan(chosen, limit)

    def search(
        self,
        chosen: Int64s,
        limit: int,
        setting: BeamSetting,
        extension: tuple[int, float] | None = None,
    ) -> BatchHits:
        if extension is None:
            return self.once(chosen, limit, setting)
        return self.extended(chosen, limit, *extension)


def calibrated(  # noqa: PLR0913 (what is found, of what)
    queries: int,
    scan: Scan,
    once: Search | None = None,
    extended: Extended | None = None,
    *,
    sums: int = 0,
    rows: int = ROWS,
    max_candidates: float = inf,
    tied: float = 0.0,
) -> Calibration:
    """Return what some queries measure; searches find all unless told otherwise."""

    def finds_all(chosen: Int64s, limit: int, *_: object) -> BatchHits:
        return scan(chosen, limit)

    sample = Fake(queries, sums, rows, once or finds_all, extended or finds_all, scan, tied=tied)
    return calibrate(
        cast(Any, sample), scan_nanoseconds=1.0, max_candidates=lambda _: max_candidates
    )


def measured(calibration: Calibration, limit: int = 100) -> set[float]:
    """Return the settings measured for a limit."""
    return set(of_limit(calibration, limit).typical.settings)


def of_limit(calibration: Calibration, limit: int) -> LimitCurves:
    (curves,) = (each for each in calibration.curves if each.limit == limit)
    return curves


def true(queries: Int64s, limit: int) -> BatchHits:
    return found(limit, np.full(len(queries), limit))


@pytest.mark.parametrize(("few", "least"), [(0.5, 0.5), (0.05, 0.05)])
def test_an_effort_by_which_many_find_too_few_is_of_no_use(few: float, least: float) -> None:
    def search(queries: Int64s, limit: int, setting: BeamSetting) -> BatchHits:
        sizes = np.full(len(queries), limit)
        if setting.number < 0.5:
            sizes[: round(few * len(queries))] = limit - 1
        return found(limit, sizes)

    made = calibrated(200, true, search)
    assert {curve.typical.settings[0] for curve in made.curves} == {least}
    for curve in made.curves:
        # Who finds too few is extended, so that typical queries found all.
        assert curve.typical.recalls[0] == 1.0
        judged = curve.limit in (10, 30, 100)
        assert curve.extended[0] == pytest.approx(few if judged and few < 0.1 else 0.0)


@pytest.mark.parametrize("sums", [0, 48, 128])
@pytest.mark.parametrize("queries", [100, 160, 161, QUERIES])
def test_every_query_is_scanned_for_once_as_far_as_it_is_judged(queries: int, sums: int) -> None:
    limits = np.zeros(queries + sums, np.int64)

    def scan(chosen: Int64s, limit: int) -> BatchHits:
        assert not limits[chosen].any()
        limits[chosen] = limit
        return true(chosen, limit)

    def finds_all(chosen: Int64s, limit: int, *_: object) -> BatchHits:
        return true(chosen, limit)

    made = calibrated(queries, scan, finds_all, finds_all, sums=sums)
    assert limits[:queries].tolist() == [100] * min(queries, 160) + [10] * (queries - 160)
    far = min(sums, 48)
    near = min(sums, max(48, queries // 16)) - far
    assert limits[queries:].tolist() == [100] * far + [10] * near + [0] * (sums - far - near)
    assert [curve.limit for curve in made.curves] == [1, 10, 30, 100]
    assert all(curve.typical.recalls == (1.0,) for curve in made.curves)


@pytest.mark.parametrize("settled", [1.06, 1.2])
def test_nothing_more_is_measured_once_reaching_farther_finds_no_more(settled: float) -> None:
    """Not before walks reach far: a pause of the rise below says nothing."""

    def search(queries: Int64s, limit: int, setting: BeamSetting) -> BatchHits:
        share = 0.0 if setting.number < 1 else min(setting.number, settled) / (settled + 0.1)
        all_ = found(limit, np.full(len(queries), limit))
        all_.scores[:, round(share * limit) :] = 0.0  # hits of no use, so that none are missing
        return all_

    made = calibrated(200, true, search)
    curve = of_limit(made, 100).typical
    measured = [setting for setting in curve.settings if setting > settled]
    assert curve.settings[0] == 0.05
    assert curve.recalls[-1] == max(curve.recalls) < 0.95
    assert 1 <= len(measured) <= 3


def of_contrast(firsts: Float64s) -> Scan:
    """Return true hits of which the first scores so much, and all others 0.8."""

    def scan(chosen: Int64s, limit: int) -> BatchHits:
        hits = true(chosen, limit)
        hits.scores[:] = 0.8
        hits.scores[:, 0] = firsts[chosen]
        return hits

    return scan


@pytest.mark.parametrize("rest", [0.01, 0.5])
@pytest.mark.parametrize("flat", [0.9, 0.96, 0.99])
def test_a_query_is_extended_whose_first_hit_is_hardly_nearer_than_the_tenth(
    flat: float, rest: float
) -> None:
    """Queries are hard, and foreign, by their contrast."""
    queries = QUERIES
    factors = np.full(queries, rest)
    factors[: queries // 6] = flat - 0.1
    factors[: queries // 32] = flat

    scan = of_contrast(1.0 - 0.2 * factors)
    made = calibrated(queries, scan)
    assert made.contrasts == pytest.approx((flat - 0.1, flat))
    hard, foreign = made.contrasts
    assert foreign >= hard


def test_nothing_is_known_of_contrast_where_there_are_fewer_than_ten_rows() -> None:
    def scan(chosen: Int64s, limit: int) -> BatchHits:
        return found(limit, np.full(len(chosen), min(limit, 9)))

    made = calibrated(200, scan, rows=9)
    assert made.contrasts == (inf, inf)


@pytest.mark.parametrize("queries", [160, 400, 800])
def test_the_more_queries_are_measured_the_nearer_to_them_a_strange_one_may_be(
    queries: int,
) -> None:
    """The least of few says less of how little others score."""
    lasts = np.linspace(0.5, 0.9, queries)

    def scan(chosen: Int64s, limit: int) -> BatchHits:
        hits = true(chosen, limit)
        hits.scores[:] = lasts[chosen, None]
        return hits

    made = calibrated(queries, scan)
    strange = {curve.limit: curve.scores[2] for curve in made.curves}
    assert strange[1] == strange[10] == pytest.approx(0.46 if queries == 800 else 0.42)
    assert strange[100] < 0.5


@pytest.mark.parametrize(("candidates", "asked"), [(1000, {160}), (1001, {160, 80})])
def test_every_second_query_is_enough_once_walks_score_many_rows(
    candidates: int, asked: set[int]
) -> None:
    queries_asked = {}

    def search(queries: Int64s, limit: int, setting: BeamSetting) -> BatchHits:
        if limit == 100:
            queries_asked[setting.number] = len(queries)
        hits = found(limit, np.full(len(queries), limit), np.full(len(queries), candidates))
        hits.scores[:] = np.arange(limit) < setting.number * limit / 1.1
        return hits

    calibrated(200, true, search, rows=100_000)
    assert queries_asked[min(queries_asked)] == 160
    assert set(queries_asked.values()) == asked


def graded(recall: Callable[[float], float], candidates: Callable[[float], int]) -> Search:
    """Return a search of this recall and cost by setting."""

    def search(queries: Int64s, limit: int, setting: BeamSetting) -> BatchHits:
        hits = found(limit, np.full(len(queries), limit), candidates(setting.number))
        hits.scores[:, round(recall(setting.number) * limit) :] = 0.0
        return hits

    return search


def test_efforts_between_two_are_measured_where_much_of_the_miss_is_lost_there() -> None:
    search = graded(lambda setting: 0.8 if setting < 0.5 else 0.99, lambda setting: 100)
    made = measured(calibrated(200, true, search))
    assert made >= {0.4, 0.5}
    assert not {0.2, 0.7, 0.8, 1.01, 1.03} & made


def test_efforts_between_two_far_ones_are_measured_where_walks_become_dear() -> None:
    def recall(setting: float) -> float:
        return min(0.8 + max(0.0, setting - 1.0), 0.99)

    def settings(search: Search) -> set[float]:
        return measured(calibrated(200, true, search))

    cheap = graded(recall, lambda setting: 100)
    dear = graded(recall, lambda setting: 100 if setting < 1.05 else 200)
    assert settings(dear) - settings(cheap) == {1.06}


def test_nothing_is_measured_beyond_walks_that_take_longer_than_scans() -> None:
    search = graded(
        lambda setting: min(0.3 + 4 * max(0.0, setting - 1), 1.0),
        lambda setting: int(100 * setting),
    )
    made = calibrated(200, true, search, max_candidates=110)
    assert max(measured(made)) == 1.13


# Tiers


def graded_queries(queries: int) -> tuple[Float64s, Scan]:
    """Return the last scores of queries, ever lower, and their true hits, of ever less contrast."""
    lasts = np.linspace(0.9, 0.5, queries)
    contrasts = np.linspace(0.3, 0.5, queries)

    def scan(chosen: Int64s, limit: int) -> BatchHits:
        hits = found(limit, np.full(len(chosen), limit))
        hits.scores[:] = lasts[chosen, None]
        hits.scores[:, 0] = 1.0 - contrasts[chosen] * (1.0 - lasts[chosen])
        return hits

    return lasts, scan


def test_shares_of_the_items_are_hard_and_foreign_by_score_and_by_contrast() -> None:
    lasts, scan = graded_queries(1001)
    made = calibrated(1001, scan)
    hard, foreign, lowest = of_limit(made, 10).scores
    assert hard == pytest.approx(np.quantile(lasts, 0.04))
    assert foreign == pytest.approx(np.quantile(lasts, 0.02))
    assert lowest < lasts.min() < foreign
    assert of_limit(made, 10).extended == pytest.approx([0.15], abs=0.002)


def test_each_tier_has_the_recall_of_its_own_queries() -> None:
    """Typical ones find all at once; hard and foreign ones as much as their slack says."""
    lasts, scan = graded_queries(1000)
    hard, foreign = np.quantile(lasts, 0.15), np.quantile(lasts, 0.03)  # by contrast
    shares = {HARD: {1.01: 0.5, 1.03: 0.8}, FOREIGN: {1.01: 0.1, 1.03: 0.3, 1.07: 0.6, 1.13: 0.9}}
    asked: dict[tuple[int, float], set[int]] = {}

    def numbers(chosen: Bools) -> set[int]:
        return set(np.flatnonzero(chosen).tolist())

    def once(chosen: Int64s, limit: int, setting: BeamSetting) -> BatchHits:
        del setting
        hits = scan(chosen, limit)
        hits.scores[lasts[chosen] < hard, limit // 2 :] -= 1e-7  # half of the hits are missed
        return hits

    def extended(chosen: Int64s, limit: int, tier: int, slack: float) -> BatchHits:
        if limit == 10:
            asked[tier, slack] = set(chosen.tolist())
        hits = scan(chosen, limit)
        own = lasts[chosen] < (hard if tier == HARD else foreign)
        good = round(shares[tier].get(slack, 1.0) * limit)
        hits.scores[own, good:] -= 1e-7
        return hits

    made = of_limit(calibrated(1000, scan, once, extended), 10)
    assert made.typical.recalls[0] == 1.0
    assert made.hard.settings[:3] == (1.01, 1.03, 1.07)
    assert made.hard.recalls[:2] == pytest.approx((0.5, 0.8), abs=0.03)
    assert made.foreign.settings[:5] == (1.01, 1.03, 1.07, 1.13, 1.2)
    assert made.foreign.recalls == pytest.approx((0.1, 0.3, 0.6, 0.9, 1.0), abs=0.03)
    # Who is typical for every limit is not searched for once more, and who seems to be of
    # another tier only once.
    assert asked[HARD, 1.01] == asked[FOREIGN, 1.01] == numbers(lasts < hard)
    assert asked[HARD, 1.03] == numbers((foreign <= lasts) & (lasts < hard))
    assert asked[FOREIGN, 1.03] == asked[FOREIGN, 1.2] == numbers(lasts < foreign)


def test_sums_count_for_their_tier_alone_and_not_for_the_items() -> None:
    """Sums are foreign and find little; items that are hard or foreign find all."""
    queries, sums = 1000, 100
    _, of_items = graded_queries(queries)

    def scan(chosen: Int64s, limit: int) -> BatchHits:
        hits = of_items(np.minimum(chosen, queries - 1), limit)
        hits.scores[chosen >= queries] = 0.4
        return hits

    def once(chosen: Int64s, limit: int, setting: BeamSetting) -> BatchHits:
        assert (chosen < queries).all()  # they tell nothing of typical queries
        return scan(chosen, limit)

    def extended(chosen: Int64s, limit: int, tier: int, slack: float) -> BatchHits:
        hits = scan(chosen, limit)
        good = round({1.01: 0.2, 1.03: 0.4, 1.07: 0.7}.get(slack, 0.9) * limit)
        hits.scores[np.ix_(chosen >= queries, np.arange(good, limit))] -= 1e-3
        return hits

    without = of_limit(calibrated(queries, scan, once, extended), 10)
    made = of_limit(calibrated(queries, scan, once, extended, sums=sums), 10)
    assert made.scores == without.scores
    assert without.foreign.recalls[0] == 1.0
    assert made.foreign.recalls[:4] == pytest.approx((0.2, 0.4, 0.7, 0.9), abs=0.03)
    assert made.typical == without.typical
    assert set(made.hard_items) == {1.0}


@pytest.mark.parametrize(("typical", "recall"), [(80, 0.5), (30, 1.0)])
def test_where_the_sums_seem_typical_the_setting_is_judged_by_them_too(
    typical: int, recall: float
) -> None:
    """Typical sums find half of their hits, items all; the other sums are foreign."""
    queries, sums = 1000, 100
    _, of_items = graded_queries(queries)

    def scan(chosen: Int64s, limit: int) -> BatchHits:
        hits = of_items(np.where(chosen < queries, chosen, 0), limit)
        hits.scores[chosen >= queries + typical] = 0.4
        return hits

    def once(chosen: Int64s, limit: int, setting: BeamSetting) -> BatchHits:
        hits = scan(chosen, limit)
        half = np.ix_(chosen >= queries, np.arange(limit // 2, limit))
        hits.scores[half] -= 1e-6
        return hits

    made = of_limit(calibrated(queries, scan, once, sums=sums), 10)
    without = of_limit(calibrated(queries, scan, once), 10)
    assert made.typical.recalls[-1] == pytest.approx(recall, abs=0.02)
    assert made.extended[0] == without.extended[0] == pytest.approx(0.15)


def test_no_greater_slack_is_measured_once_one_finds_no_more_or_is_dear() -> None:
    _, scan = graded_queries(1000)

    def slacks(recall: Callable[[float], float], cost: Callable[[float], int]) -> int:
        def extended(chosen: Int64s, limit: int, tier: int, slack: float) -> BatchHits:
            hits = scan(chosen, limit)
            hits.scores[:, round(recall(slack) * limit) :] -= 1e-3
            hits.work[:, CANDIDATES] = cost(slack)
            return hits

        made = calibrated(1000, scan, extended=extended, max_candidates=1000)
        return len(of_limit(made, 100).foreign.settings)

    rising = dict(zip(SLACKS, (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.93, 0.95), strict=True))
    dear = dict(zip(SLACKS, (10, 10, 10, 1001, *(4 * [2000])), strict=True))
    assert slacks(rising.__getitem__, lambda _: 10) == len(SLACKS)
    assert slacks(lambda _: 0.5, lambda _: 10) == 3
    assert slacks(lambda _: 1.0, lambda _: 10) == 1
    assert slacks(rising.__getitem__, dear.__getitem__) == 4


# Sums of two


def test_sums_of_dense_rows_are_their_sums(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((50, 7)).astype(np.float32)
    rows[1] = -rows[0]
    batch = SmallIndex(CollectionConfig(dim=7)).prepare(rows)
    first, second = rng.integers(0, 50, (2, 80))
    first[0], second[0] = 0, 1  # nothing is left
    made = sums_of_two(batch, first, second)
    expected = rows[first] + rows[second]
    assert made.dense[:, :7] == pytest.approx(expected)
    assert not made.dense[:, 7:].any()
    assert made.norms == pytest.approx(np.abs(expected).sum(1), rel=1e-6)
    assert made.norms[0] == 0
    assert len(sums_of_two(batch, first[:0], second[:0])) == 0


def test_sums_of_sparse_rows_are_their_sums(rng: np.random.Generator) -> None:
    whole = rng.integers(-2, 3, (60, 12)) * (rng.random((60, 12)) < 0.5)
    whole[:, 11] = 1  # no row is zero
    whole[1] = -whole[0]
    batch = SmallIndex(CollectionConfig(dim=None)).prepare(sparse_of(whole.astype(np.float32)))
    first, second = rng.integers(0, 60, (2, 90))
    first[0], second[0] = 0, 1
    first[-1], second[-1] = 1, 0
    made = sums_of_two(batch, first, second)
    expected = (csr_matrix(whole)[first] + csr_matrix(whole)[second]).toarray()
    assert made.indptr.tolist() == [0, *np.cumsum((expected != 0).sum(1))]
    assert np.count_nonzero(expected) < np.count_nonzero(np.abs(whole[first]) + whole[second] ** 2)
    again = SmallIndex(CollectionConfig(dim=None)).prepare(sparse_of(expected[1:-1].astype("f4")))
    assert made[1 : len(first) - 1].slots.tolist() == again.slots.tolist()
    assert made[1 : len(first) - 1].values.tolist() == again.values.tolist()
    assert made.norms.tolist() == np.abs(expected).sum(1).tolist()
    assert len(sums_of_two(batch, first[:0], second[:0])) == 0


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_whose_sums_are_nothing_are_calibrated(sparse: bool, rng: np.random.Generator) -> None:
    rows = np.repeat(rng.standard_normal((1, 16)).astype(np.float32), 3000, axis=0)
    rows[rng.random(3000) < 0.5] *= -1
    index = linked(sparse_of(rows) if sparse else rows)
    made = index.state.graph.calibration
    assert Calibration.from_dict(made.to_dict()) == made
    (hits,) = index.search(sparse_of(rows[:1]) if sparse else rows[:1], SearchParams(limit=5))
    assert hits.scores[:5].tolist() == [1.0] * 5


@pytest.mark.parametrize(
    ("missed", "times", "share"), [(0, 10, 0.25), (0, 100, 0.25**3), (5, 10, 1.0), (5, 100, 1.0)]
)
def test_where_a_short_search_finds_what_ties_closer_hits_tie(
    missed: int, times: int, share: float
) -> None:
    """Every fifth query has hits that differ by a tenth, or hundredth, as much as others' do."""

    def scan(chosen: Int64s, limit: int) -> BatchHits:
        hits = true(chosen, limit)
        hits.scores[chosen % 5 == 0] = 1.0 - np.arange(limit) / (200 * times)
        return hits

    def once(chosen: Int64s, limit: int, setting: BeamSetting) -> BatchHits:
        hits = scan(chosen, limit)
        hits.scores[np.ix_(chosen % 5 == 0, np.arange(limit - missed, limit))] -= 0.1
        return hits

    usual = (10 - 2) / 200
    assert calibrated(200, scan, once, tied=0.25).spread == pytest.approx(share * usual)
