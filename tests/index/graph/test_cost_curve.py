"""What recall costs, as the points of a curve say, beside what searches find and cost."""

from copy import copy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.analysis import CostCurve
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    GcwsParams,
    SearchParams,
)
from gcws_search.index.graph.recall_curve import Calibration, LimitCurves, RecallCurve
from tests.support.data.generated import clustered
from tests.support.index.recall import by_graph, linked
from tests.support.index.small_index import SmallIndex

ROWS = 12_000


def curve_of(index: SmallIndex, limit: int) -> CostCurve:
    found: CostCurve = index.backend.curve(index.state, index.view(), limit)
    return found


def made() -> SmallIndex:
    return linked(clustered(np.random.default_rng(9), ROWS, 0, dim=24)[0])


@pytest.fixture(scope="module")
def built() -> SmallIndex:
    return made()


@pytest.fixture
def index(built: SmallIndex) -> SmallIndex:
    """Return the index with a state of its own; its rows are everybody's."""
    return copy(built)


def test_points_rise(index: SmallIndex) -> None:
    for limit in (1, 3, 10, 100, 130):
        curve = curve_of(index, limit)
        assert (curve.limit, curve.holds, curve.reason) == (limit, True, None)
        assert curve.rows == index.state.graph.calibration.rows
        assert len(curve.points) > 3
        for low, high in pairwise(curve.points):
            assert all(less < more for less, more in zip(low, high, strict=True))
        assert all(0 < point.recall <= 1 for point in curve.points)


def test_points_are_the_searches_that_no_cheaper_one_matches(index: SmallIndex) -> None:
    known = index.state.graph.calibration
    for limit in (1, 3, 10, 100, 130):
        points = {(each.recall, each.candidates) for each in curve_of(index, limit).points}
        for miss in 0.5 * 0.85 ** np.arange(30):
            setting = known.setting(limit, 1 - miss)
            if setting is not None:
                found, cost = setting.first.recall, setting.first.candidates
                points.discard((found, cost))
                assert any(
                    each.recall >= found and each.candidates <= cost
                    for each in curve_of(index, limit).points
                )
        assert all(recall > 1 - 0.5 * 0.85**29 for recall, _ in points)  # no search finds others


def test_queries_cost_and_find_what_the_curve_says(
    index: SmallIndex, rng: np.random.Generator
) -> None:
    points = curve_of(index, 10).points
    greatest = index.state.graph.calibration.greatest_recall(10)
    assert points[-1].recall == greatest
    queries = np.asarray(index.rows.view().dense[rng.choice(ROWS, 1000, replace=False), :24])
    costs = []
    for asked in (0.6, 0.9, 0.98):
        found = by_graph(index).search(queries, SearchParams(limit=10, recall=asked))
        explained = [hits.explanation for hits in found if hits.explanation.method == "graph"]
        assert len(explained) > 900
        [expected] = {each.expected_recall for each in explained}
        known = index.state.graph.calibration.setting(10, asked).first
        assert asked <= expected == known.recall <= greatest
        costs.append(np.mean([each.candidates for each in explained]))
        assert costs[-1] <= 1.3 * known.candidates
    assert costs == sorted(costs)


def test_queries_that_are_scanned_are_told_of(index: SmallIndex) -> None:
    graph = index.state.graph
    query = np.asarray(index.rows.view().dense[:1, :24])
    assert curve_of(index, 10).scanned_from is None
    found = []
    for nanoseconds in (0.0, 150.0, 250.0, 350.0, 1e9):
        policy = replace(graph.policy, row_nanoseconds=nanoseconds)
        index.state = replace(index.state, graph=replace(graph, policy=policy))
        found.append(curve_of(index, 100).scanned_from or 1.0)
        for recall in (0.5, 0.6, 0.8, 0.9, 0.95, 0.99):
            [hits] = index.search(query, SearchParams(limit=100, recall=recall))
            assert (hits.explanation.method != "graph") == (recall >= found[-1])
    assert found == sorted(found, reverse=True)
    assert len({*found}) > 3
    assert found[-1] == 0.5


def test_a_point_that_a_cheaper_one_matches_is_left_out() -> None:
    extension = RecallCurve((1.0,), (1.0,), (500.0,))
    typical = RecallCurve((0.3, 0.5, 1.0), (0.9, 0.9, 0.99), (90.0, 60.0, 95.0))
    tiers = (typical, extension, extension)
    known = Calibration(5000, (LimitCurves(10, *tiers, (0.0,) * 3, (1.0,), (0.4, 0.3, 0.1)),), 7.5)
    front = known.front(10)
    assert (front[0].number, front[0].recall, front[0].candidates) == (0.5, 0.9, 60.0)
    assert front[-1].recall == known.greatest_recall(10) <= 0.99
    assert front[-1].candidates <= 95.0
    beyond = [each.candidates for each in known.front(13)]
    assert beyond == pytest.approx([1.3 * each.candidates for each in front])
    assert known.max_limit == 13
    assert known.front(14) == []
    assert known.greatest_recall(14) == 0.0


def test_a_curve_does_not_hold_once_new_rows_or_audited_queries_are_found_less_well(
    rng: np.random.Generator,
) -> None:
    index = made()
    graph = index.state.graph
    for _ in range(8):
        graph.allowance.take(10, 0.9, 0.3)
    assert [curve_of(index, limit).holds for limit in (1, 10, 100)] == [True, False, True]
    index.state = replace(index.state, graph=replace(graph, allowance=type(graph.allowance)()))
    assert curve_of(index, 10).holds
    crowd = 4 * rng.standard_normal(24) + rng.standard_normal((1400, 24))
    index.add(crowd.astype(np.float32), settled=True)
    assert index.state.graph.neighbours.drift.has_drifted
    drifted = curve_of(index, 10)
    assert not drifted.holds
    assert drifted.points


@pytest.mark.parametrize(
    ("params", "count", "reason"),
    [
        (ExactParams(), 3000, "backend 'exact'"),
        (GcwsParams(band_width=4), 3000, "band_width"),
        (GcwsParams(), 100, "from 2048 items on"),
        (GcwsParams(), 3000, "being built"),
    ],
    ids=str,
)
def test_without_a_graph_there_is_a_reason(
    params: BackendParams, count: int, reason: str, rng: np.random.Generator
) -> None:
    rows, _ = clustered(rng, count, 0, dim=8)
    curve = curve_of(SmallIndex(CollectionConfig(dim=8, backend=params)).add(rows), 10)
    assert (curve.limit, curve.points, curve.rows, curve.holds) == (10, (), 0, False)
    assert reason in str(curve.reason)


def test_limits_beyond_the_calibrated_ones_and_scans_have_a_reason(index: SmallIndex) -> None:
    greatest = index.state.graph.calibration.max_limit
    assert curve_of(index, greatest).points
    beyond = curve_of(index, greatest + 1)
    assert not beyond.points
    assert f"up to {greatest}" in str(beyond.reason)
    index.state = replace(index.state, graph=None, scanned=ROWS)
    assert "scans are about as quick" in str(curve_of(index, 10).reason)
    assert index.backend.stats(index.state)["rows_better_scanned"] == ROWS


def test_a_collection_refuses_limits_that_are_none() -> None:
    collection = MemoryCollection(CollectionConfig(dim=2), threads=1)
    assert collection.curve().reason == "a graph is built from 2048 items on"
    with pytest.raises(InvalidParameter):
        collection.curve(0)
