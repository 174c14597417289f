"""From the recall asked for to the beam setting of a search."""

import json
from math import inf

import numpy as np
import pytest

from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.graph.recall_curve import BeamSetting, Calibration, RecallCurve
from tests.support.data.generated import clustered
from tests.support.index.recall import linked
from tests.support.reference import mathematics

ONE = RecallCurve(
    10, (0.5, 1.0, 1.02), (0.8, 0.9, 1.0), (100.0, 200.0, 400.0), (0.2, 0.4, 0.5), (0.1, 0.1, 0.15)
)
FAR = RecallCurve(100, (1.0, 1.5), (0.8, 1.0), (1000.0, 2000.0), (0.1, 0.3), (0.05, 0.1))
BOTH = Calibration(5000, (ONE, FAR), 7.5)


def aimed(calibration: Calibration, limit: int, recall: float) -> BeamSetting:
    setting = calibration.setting(limit, recall)
    assert setting is not None
    return setting


def test_the_effort_between_two_measured_ones_is_in_proportion() -> None:
    assert ONE.setting(0.9) == 1.0
    assert ONE.setting(0.95) == pytest.approx(1.01)
    assert ONE.setting(0.85) == pytest.approx(0.75)
    assert ONE.setting(0.1) == 0.5
    assert ONE.at(1.01) == pytest.approx((0.95, 300, 0.45))


def test_no_effort_is_taken_between_those_that_enter_through_few_tables_and_through_all() -> None:
    curve = RecallCurve(10, (1.03, 1.04), (0.9, 1.0), (96.0, 109.0), (0.5, 0.5), (0.2, 0.4))
    found = [aimed(Calibration(5000, (curve,), 1.0), 10, recall) for recall in (0.5, 0.9, 0.99)]
    assert [setting.tables(16) for setting in found] == [8, 16, 16]
    assert [setting.slack for setting in found] == [1.03, 1.04, 1.04]


def test_of_the_efforts_that_are_enough_the_cheapest_is_taken() -> None:
    # By the least setting many find too few rows, and walk for a second time.
    curve = RecallCurve(
        100, (0.2, 0.4, 1.0), (0.8, 0.9, 1.0), (900.0, 300.0, 500.0), (0.1, 0.1, 0.1), (0.0,) * 3
    )
    assert curve.setting(0.5) == curve.setting(0.8) == 0.4
    assert curve.setting(0.85) == curve.setting(0.9) == 0.4
    assert curve.setting(0.95) == pytest.approx(0.7)


def test_an_effort_that_was_not_measured_is_not_made_up() -> None:
    curve = RecallCurve(10, (0.5, 1.0), (0.5, 0.9), (100.0, 200.0), (0.2, 0.3), (0.0, 0.0))
    assert curve.setting(0.91) is None
    calibration = Calibration(5000, (curve,), 1.0)
    assert calibration.setting(10, 0.91) is None
    assert calibration.setting(10, 0.5) is not None
    assert Calibration(5000, (curve, FAR), 1.0).setting(50, 0.95) is not None  # by the other curve
    far_off = Calibration(
        5000, (ONE, RecallCurve(100, (1.0,), (0.5,), (1.0,), (0.1,), (0.0,))), 1.0
    )
    assert far_off.setting(50, 0.9) is None
    assert far_off.setting(101, 0.9) is None
    near = far_off.setting(12, 0.9)  # as after a few deletions at a limit of 10
    assert near is not None
    assert near.slack > 1.0
    assert BOTH.setting(1001, 0.5) is None
    assert Calibration(5000, (), 1.0).setting(10, 0.5) is None


@pytest.mark.parametrize("limit", [2, 10, 50])
def test_where_no_effort_for_a_limit_is_enough_more_hits_are_walked_for(limit: int) -> None:
    short = RecallCurve(10, (0.5, 1.0), (0.5, 0.9), (100.0, 200.0), (0.2, 0.3), (0.0, 0.0))
    setting = aimed(Calibration(5000, (short, FAR), 1.0), limit, 0.95)
    as_if = aimed(Calibration(5000, (FAR,), 1.0), 100, 0.95)
    assert setting == as_if
    assert setting.places == 100


def test_limits_beside_one_that_is_not_reached_are_judged_by_both_curves() -> None:
    # Each row has one near it: the first hit is found at once, and the second hardly ever.
    first = RecallCurve(1, (0.5, 1.0), (0.99, 1.0), (50.0, 100.0), (0.5, 0.5), (0.4, 0.4))
    ten = RecallCurve(10, (0.5, 1.0), (0.1, 0.3), (50.0, 100.0), (0.3, 0.3), (0.2, 0.2))
    twins = Calibration(5000, (first, ten), 1.0)
    assert aimed(twins, 1, 0.9).number == 0.5
    for limit in range(2, 10):
        assert twins.setting(limit, 0.9) is None
    halfway = aimed(twins, 3, 0.5)
    assert 0.5 < halfway.recall < 0.8
    assert 0.3 < halfway.low_score < 0.5


def test_more_recall_takes_no_less_effort_and_promises_no_less_than_asked() -> None:
    for limit in (1, 3, 10, 30, 100, 300):
        settings = [aimed(BOTH, limit, recall) for recall in (0.5, 0.8, 0.85, 0.9, 0.95, 0.99)]
        numbers = [setting.number for setting in settings]
        assert numbers == sorted(numbers)
        assert numbers[0] < numbers[-1]
        assert all(setting.beam >= limit for setting in settings)
        asked = (0.5, 0.8, 0.85, 0.9, 0.95, 0.99)
        assert all(setting.recall >= share for setting, share in zip(settings, asked, strict=True))


def test_limits_between_measured_ones_take_the_greater_effort() -> None:
    settings = [aimed(BOTH, limit, 0.9) for limit in (1, 10, 20, 50, 100, 200, 1000)]
    numbers = [setting.number for setting in settings]
    assert numbers == sorted(numbers)
    assert numbers[0] == numbers[1] < numbers[2]
    assert len(set(numbers[2:])) == 1  # and beyond, the one measured last
    assert settings[6].candidates == pytest.approx(10 * settings[4].candidates)


def test_a_query_is_rare_below_a_score_between_those_measured() -> None:
    at_ten, between, at_hundred = (aimed(BOTH, limit, 0.75).low_score for limit in (10, 30, 100))
    assert (at_ten, at_hundred) == (0.2, 0.1)
    assert at_hundred < between < at_ten
    assert aimed(BOTH, 300, 0.75).low_score == 0  # so far down nothing was measured
    assert [BOTH.out_of_range(limit, 1.0) for limit in (1, 10, 11, 100, 101)] == [
        0.1,
        0.1,
        0.05,
        0.05,
        0,
    ]
    assert BOTH.out_of_range(10, 1.01) == pytest.approx(0.125)


def test_notes_that_say_nothing_of_flat_queries_have_none() -> None:
    known = Calibration(5000, (ONE,), 7.5, 0.875)
    kept = json.loads(json.dumps(known.to_dict()))
    assert Calibration.from_dict(kept) == known
    del kept["flat"]
    assert Calibration.from_dict(kept) == Calibration(5000, (ONE,), 7.5, 1.0)


@pytest.mark.parametrize("dim", [8, 24])
def test_new_queries_find_what_was_measured_and_few_are_walked_again(
    dim: int, rng: np.random.Generator
) -> None:
    rows, queries = clustered(rng, 20_000, 1500)
    index = linked(rows[:, :dim])
    sent = queries[:, :dim]
    true = index.search(sent, SearchParams(limit=10, recall=1.0))
    measured = 20_000 // 32
    for recall in (0.8, 0.85, 0.9, 0.95):
        setting = index.state.graph.calibration.setting(10, recall)
        found = index.search(sent, SearchParams(limit=10, recall=recall))
        shares = [
            mathematics.recall_by_score(hits.scores[:10].tolist(), best.scores[:10].tolist())
            for hits, best in zip(found, true, strict=True)
        ]
        chance = 4 * (1 / 1500 + 1 / measured) ** 0.5
        assert np.mean(shares) == pytest.approx(setting.recall, abs=chance * np.std(shares))
        if setting.slack < inf:
            continue  # nothing tells a walk from another one that reaches a little farther
        again = np.mean([hits.explanation.beam > setting.beam + 1 for hits in found])
        assert again <= 0.1 + chance * (0.1 * 0.9) ** 0.5
        assert again > 0


def test_an_effort_below_one_is_a_number_of_lists_and_a_reach_from_there_on() -> None:
    few, many = BeamSetting.of(0.15, 20), BeamSetting.of(1.5, 20)
    assert (few.beam, few.max_expanded, few.slack) == (40, 3, inf)
    assert few.number == pytest.approx(0.15)
    assert many.slack == many.number == 1.5
    assert many.max_expanded > many.beam > 20
    assert few.places == many.places == 20
    assert BeamSetting.of(0.5, 1).max_expanded == 5  # as for ten


def test_walks_that_reach_far_enter_through_all_tables_others_through_half() -> None:
    few_lists, near, far = (BeamSetting.of(number, 10) for number in (0.5, 1.039, 1.04))
    assert [each.tables(16) for each in (few_lists, near, far)] == [8, 8, 16]
    assert [each.tables(6) for each in (few_lists, near, far)] == [4, 4, 6]  # a few at least
    assert [each.tables(3) for each in (few_lists, near, far)] == [3, 3, 3]


def test_a_second_walk_reaches_farther_than_the_first() -> None:
    for number in (0.1, 0.9, 1.0, 1.02, 1.5, 3.0):
        first = BeamSetting.of(number, 20)
        second = first.second()
        assert second.slack >= 1.15 * max(1.0, number)
        assert second.places == first.places == 20
        assert second.beam >= first.beam
        assert second.max_expanded >= first.max_expanded


def test_an_effort_for_a_few_hits_is_one_for_ten() -> None:
    for number in (0.3, 1.1):
        assert BeamSetting.of(number, 1) == BeamSetting.of(number, 9) == BeamSetting.of(number, 10)
        assert BeamSetting.of(number, 11).beam > BeamSetting.of(number, 10).beam


def test_a_calibration_comes_back_from_its_json() -> None:
    text = json.dumps(BOTH.to_dict())
    assert Calibration.from_dict(json.loads(text)) == BOTH


def test_a_share_of_the_queries_expands_one_row_more(rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, 3000, 1000)
    index = linked(rows)
    graph, tables = index.state.graph, index.state.tables
    view = RowView(index.rows.view(), np.ones(3000, np.uint8), 3000)
    batch = index.prepare(queries)
    nothing = np.full(1000, -1, np.int64)
    seen = []
    for expanded in (2, 2.25, 3):
        plan = graph.plan_for(tables, view, 5, BeamSetting(10, expanded, 0.9, 0.0))
        hits = graph.search(plan, tables, view, batch, SearchParams(limit=5), nothing).hits
        seen.append(np.array([each.explanation.candidates for each in hits]))
    less, some, more = seen
    assert ((some == less) | (some == more)).all()
    share = np.mean(some[less < more] == more[less < more])
    assert share == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 900) ** 0.5)
