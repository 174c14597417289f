"""From the recall asked for to the setting of a search."""

import json
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.graph.recall_curve import (
    BeamSetting,
    Calibration,
    Extension,
    LimitCurves,
    RecallCurve,
    SearchSetting,
)
from tests.support.data.generated import clustered
from tests.support.index.recall import linked
from tests.support.reference import mathematics

EXTENDED = RecallCurve((1.0, 1.1, 1.2), (0.9, 0.95, 1.0), (500.0, 600.0, 900.0))
SCORES = (0.4, 0.3, 0.1)


def curves(
    limit: int,
    typical: RecallCurve,
    *,
    hard: RecallCurve = EXTENDED,
    foreign: RecallCurve = EXTENDED,
    share: float = 0.0,
    hard_items: float = 1.0,
    scores: tuple[float, float, float] = SCORES,
) -> LimitCurves:
    """Return curves where this share of the items is hard, and so much is found for them."""
    return LimitCurves(
        limit,
        typical,
        hard,
        foreign,
        (share,) * len(typical.settings),
        (hard_items,) * len(hard.settings),
        scores,
    )


def calibration(*known: LimitCurves) -> Calibration:
    return Calibration(5000, known, 7.5, (0.95, 0.98))


ONE = curves(10, RecallCurve((0.5, 1.0, 1.02), (0.8, 0.9, 1.0), (100.0, 200.0, 400.0)), share=0.1)
FAR = curves(
    100, RecallCurve((1.0, 1.5), (0.8, 1.0), (1000.0, 2000.0)), share=0.2, scores=(0.2, 0.1, 0.0)
)
BOTH = calibration(ONE, FAR)
SHORT = curves(10, RecallCurve((0.5, 1.0), (0.5, 0.9), (100.0, 200.0)))


def aimed(known: Calibration, limit: int, recall: float) -> SearchSetting:
    setting = known.setting(limit, recall)
    assert setting is not None
    return setting


def test_the_effort_between_two_measured_ones_is_in_proportion() -> None:
    curve = ONE.typical
    assert curve.setting(0.9) == 1.0
    assert curve.setting(0.95) == pytest.approx(1.01)
    assert curve.setting(0.85) == pytest.approx(0.75)
    assert curve.setting(0.1) == 0.5
    assert curve.setting(1.01) is None
    assert curve.at(1.01) == pytest.approx((0.95, 300))


@pytest.mark.parametrize("curve", [ONE.typical, FAR.hard, RecallCurve((0.5,), (0.4,), (7.0,))])
def test_what_is_found_at_any_setting_lies_on_straight_lines(
    curve: RecallCurve, rng: np.random.Generator
) -> None:
    for setting in [*curve.settings, *rng.uniform(0, 2, 200).tolist()]:
        columns = curve.recalls, curve.candidates
        found = (np.interp(setting, curve.settings, each) for each in columns)
        # Some roundings of float64, of 2^-53 each.
        assert curve.at(setting) == pytest.approx(tuple(found), rel=1e-12)


def test_a_setting_is_the_same_however_many_were_asked_for_before() -> None:
    recalls = np.linspace(0.5, 0.99, 12).tolist()
    asked = [(limit, recall) for limit in range(1, 101) for recall in recalls]
    for number, each in enumerate([*asked, *asked[:20]]):  # more than are remembered
        known = [BOTH.setting(*each) for _ in range(2)]
        if number % 10 == 0:
            fresh = calibration(ONE, FAR)
            assert known == [fresh.setting(*each) for _ in range(2)]


def test_no_effort_is_taken_between_those_that_enter_through_few_tables_and_through_all() -> None:
    known = calibration(curves(10, RecallCurve((1.03, 1.04), (0.9, 1.0), (96.0, 109.0))))
    found = [aimed(known, 10, recall).first for recall in (0.5, 0.9, 0.99)]
    assert [setting.tables(16) for setting in found] == [8, 16, 16]
    assert [setting.slack for setting in found] == [1.03, 1.04, 1.04]


def test_of_the_efforts_that_are_enough_the_cheapest_is_taken() -> None:
    curve = RecallCurve((0.2, 0.4, 1.0), (0.8, 0.9, 1.0), (900.0, 300.0, 500.0))
    assert curve.setting(0.5) == curve.setting(0.8) == 0.4
    assert curve.setting(0.85) == curve.setting(0.9) == 0.4
    assert curve.setting(0.95) == pytest.approx(0.7)


def test_what_extensions_cost_counts_for_the_settings_by_which_more_queries_are_extended() -> None:
    typical = RecallCurve((0.2, 0.4, 1.0), (0.8, 0.9, 1.0), (100.0, 200.0, 500.0))
    few = curves(10, typical, share=0.1)
    many = replace(few, extended=(0.9, 0.1, 0.1))
    assert aimed(calibration(few), 10, 0.5).first.number == pytest.approx(0.2)
    assert aimed(calibration(many), 10, 0.5).first.number == pytest.approx(0.4)


def test_where_no_slack_is_enough_the_least_is_taken_that_finds_nearly_as_much() -> None:
    """A miss of at most 1.25 times that of the greatest slack is nearly as little."""
    curve = RecallCurve((1.0, 1.1, 1.2, 1.3), (0.5, 0.81, 0.82, 0.85), (1.0, 2.0, 3.0, 4.0))
    assert curve.slack(0.86) == curve.slack(0.99) == 1.2
    assert curve.slack(0.85) == 1.3  # it is enough
    assert curve.slack(0.815) == pytest.approx(1.15)
    steep = RecallCurve((1.0, 1.1), (0.5, 0.9), (1.0, 2.0))
    flat = RecallCurve((1.0, 1.1), (0.89, 0.9), (1.0, 2.0))
    assert (steep.slack(0.95), flat.slack(0.95)) == (1.1, 1.0)


def test_each_tier_has_the_slack_that_its_own_curve_says() -> None:
    """Hard queries take the slack for half of the miss, for that costs little."""
    little = RecallCurve((1.0, 1.1, 1.3), (0.2, 0.5, 0.7), (500.0, 600.0, 900.0))
    known = calibration(curves(10, ONE.typical, hard=EXTENDED, foreign=little))
    setting = aimed(known, 10, 0.75)  # the aim is 0.8
    assert setting.hard == Extension(0.4, 0.95, 1.0)
    assert setting.foreign == Extension(0.3, 0.98, 1.3, enters_wider=True)
    better = aimed(known, 10, 0.9375)  # the aim is 0.95
    assert better.hard.slack == pytest.approx(1.15)
    assert better.foreign.slack == 1.3
    assert setting.out_of_range == 0.1


@pytest.mark.parametrize("recall", [0.8, 0.9])
def test_easy_queries_do_not_make_up_for_others_but_are_searched_more_where_these_find_less(
    recall: float,
) -> None:
    typical = RecallCurve((0.2, 1.0), (0.8, 1.0), (100.0, 500.0))
    alone, beside, poor = (
        aimed(calibration(curves(10, typical, share=share, hard_items=found)), 10, recall).first
        for share, found in ((0.0, 1.0), (0.1, 1.0), (0.1, 0.7))
    )
    assert beside.number == pytest.approx(alone.number)  # no less for the hard ones that find all
    assert beside.recall == pytest.approx(0.9 * alone.recall + 0.1)
    assert poor.number > alone.number
    assert poor.recall == pytest.approx(alone.recall)


def test_an_effort_that_was_not_measured_is_not_made_up() -> None:
    alone = calibration(SHORT)
    assert SHORT.setting(0.91, 0.91) is None
    assert alone.setting(10, 0.9) is None
    assert alone.setting(10, 0.5) is not None
    assert calibration(SHORT, FAR).setting(50, 0.95) is not None  # by the other curve
    far_off = calibration(ONE, curves(100, RecallCurve((1.0,), (0.5,), (1.0,))))
    assert far_off.setting(50, 0.9) is None
    assert far_off.setting(100, 0.9) is None
    near = far_off.setting(12, 0.9)  # as after a few deletions at a limit of 10
    assert near is not None
    assert near.first.slack > 1.0
    assert calibration().setting(10, 0.5) is None


def test_a_tier_that_no_slack_finds_goes_on_as_foreign_queries_do() -> None:
    lost = RecallCurve((1.0, 1.1), (0.3, 0.31), (500.0, 600.0))
    found = RecallCurve((1.0, 1.1, 1.2), (0.6, 0.85, 1.0), (500.0, 600.0, 900.0))
    known = calibration(curves(10, ONE.typical, hard=lost, foreign=found))
    setting = aimed(known, 10, 0.8125)  # the aim is 0.85
    assert setting.hard.slack == pytest.approx(1.15)
    assert setting.hard.enters_wider
    worse = calibration(curves(10, ONE.typical, hard=found, foreign=lost))
    assert not aimed(worse, 10, 0.8125).hard.enters_wider
    neither = calibration(curves(10, ONE.typical, hard=found, foreign=found))
    assert not aimed(neither, 10, 0.8125).hard.enters_wider


def test_entering_through_more_rows_finds_no_less_of_the_items() -> None:
    """Sums of two items may be found badly however they are searched for."""
    lost = RecallCurve((1.0, 1.1), (0.3, 0.31), (500.0, 600.0))
    sums = RecallCurve((1.0, 1.1), (0.3, 0.6), (500.0, 600.0))
    known = curves(10, ONE.typical, hard=lost, foreign=sums, share=0.2, hard_items=0.98)
    numbers, typical = known.setting(0.97, 0.97), 0.97  # hard ones count no more than was asked
    assert numbers is not None  # the items of both tiers find 0.996 at most
    assert numbers[1].enters_wider
    assert known.first(numbers).recall == pytest.approx(0.8 * typical + 0.2 * 0.98)


@pytest.mark.parametrize("greatest", [0.7, 0.961])
def test_hard_queries_search_no_less_than_for_the_recall_itself(greatest: float) -> None:
    """The curve of hard queries ends between the recall and what is aimed at for them."""
    flat = RecallCurve((1.01, 1.03, 1.07), (0.955, 0.958, 0.96), (100.0, 200.0, 300.0))
    foreign = RecallCurve((1.01, 1.2), (0.5, greatest), (500.0, 900.0))
    known = curves(10, ONE.typical, hard=flat, foreign=foreign)
    for recall in (0.5, 0.92, 0.93, 0.957, 0.959):
        numbers = known.setting(recall, 0.5)
        assert numbers is not None
        _, hard, _ = numbers
        assert hard.slack >= flat.slack(recall)
        assert not hard.enters_wider  # foreign queries are not found better


def test_beyond_a_recall_hard_queries_aim_at_no_more_than_others() -> None:
    rising = RecallCurve((1.0, 1.1, 1.2), (0.9, 0.99, 1.0), (500.0, 600.0, 900.0))
    known = calibration(curves(10, ONE.typical, hard=rising))
    assert aimed(known, 10, 0.98).hard.slack == pytest.approx(1.1)  # not 1.12 for 0.992
    assert aimed(known, 10, 0.99).hard.slack == pytest.approx(1.12)  # the aim is 0.992


def test_hard_queries_aim_higher_only_while_that_costs_little() -> None:
    def slack(dearest: float) -> float:
        """Return that for an aim of 0.9 where the share of hard queries is a tenth."""
        hard = RecallCurve((1.1, 1.2, 1.3), (0.9, 0.95, 1.0), (500.0, dearest, 2 * dearest))
        known = curves(
            10, RecallCurve((0.5, 1.0), (0.9, 1.0), (500.0, 900.0)), hard=hard, share=0.1
        )
        return aimed(calibration(known), 10, 0.875).hard.slack

    assert slack(600.0) == pytest.approx(1.2)  # half of the miss: 510 candidates instead of 500
    assert slack(5000.0) == pytest.approx(1.1)  # a tenth less of the miss: 590
    assert slack(2000.0) == pytest.approx(1.14)  # 560; 590 for 1.06, and at most 575


def test_foreign_queries_have_an_aim_of_their_own() -> None:
    setting = calibration(curves(10, ONE.typical)).setting(10, 0.75, 0.9375)  # the aim is 0.95
    assert setting is not None
    assert setting.hard.slack == 1.0
    assert setting.foreign.slack == pytest.approx(1.1)


@pytest.mark.parametrize("limit", [134, 200, 1000])
def test_nothing_is_said_of_limits_beyond_those_measured(limit: int) -> None:
    assert BOTH.setting(100, 0.5) is not None
    assert BOTH.setting(limit, 0.5) is None


@pytest.mark.parametrize("limit", [2, 10, 50])
def test_where_no_effort_for_a_limit_is_enough_more_hits_are_searched_for(limit: int) -> None:
    setting = aimed(calibration(SHORT, FAR), limit, 0.95)
    assert setting.first == aimed(calibration(FAR), 100, 0.95).first
    assert setting.first.places == 100
    assert setting.judged == limit  # by what is known of hits so far down
    assert setting.hard.score == 0.4 if limit <= 10 else 0.2 < setting.hard.score < 0.4


def test_limits_beside_one_that_is_not_reached_are_judged_by_both_curves() -> None:
    # Each row has one near it: the first hit is found at once, and the second hardly ever.
    twins = calibration(
        curves(1, RecallCurve((0.5, 1.0), (0.99, 1.0), (50.0, 100.0)), scores=(0.5, 0.4, 0.2)),
        curves(10, RecallCurve((0.5, 1.0), (0.1, 0.3), (50.0, 100.0)), scores=(0.3, 0.2, 0.1)),
    )
    assert aimed(twins, 1, 0.9).first.number == 0.5
    for limit in range(2, 10):
        assert twins.setting(limit, 0.9) is None
    halfway = aimed(twins, 3, 0.5)
    assert 0.5 < halfway.first.recall < 0.8
    assert 0.3 < halfway.hard.score < 0.5


def test_more_recall_takes_no_less_effort_and_promises_no_less_than_asked() -> None:
    asked = (0.5, 0.8, 0.85, 0.9, 0.95, 0.99)
    for limit in (1, 3, 10, 30, 100):
        settings = [aimed(BOTH, limit, recall) for recall in asked]
        efforts = [(each.first.number, each.hard.slack, each.foreign.slack) for each in settings]
        for numbers in zip(*efforts, strict=True):
            assert list(numbers) == sorted(numbers)
            assert numbers[0] < numbers[-1]
        assert all(setting.first.beam >= limit for setting in settings)
        shares = [setting.first.recall for setting in settings]
        assert all(share >= least for share, least in zip(shares, asked, strict=True))


def test_limits_between_measured_ones_take_the_greater_effort() -> None:
    numbers = [aimed(BOTH, limit, 0.9).first.number for limit in (1, 10, 20, 50, 100)]
    assert numbers == sorted(numbers)
    assert numbers[0] == numbers[1] < numbers[2]
    assert len(set(numbers[2:])) == 1


def test_a_query_is_hard_or_foreign_below_a_score_between_those_measured() -> None:
    at_one, at_ten, between, at_hundred = (aimed(BOTH, limit, 0.75) for limit in (1, 10, 30, 100))
    assert at_one.hard == at_ten.hard
    for low, middle, high in (
        (each.hard.score, each.foreign.score, each.out_of_range)
        for each in (at_hundred, between, at_ten)
    ):
        assert low > middle > high
    assert at_hundred.hard.score < between.hard.score < at_ten.hard.score
    assert at_hundred.foreign.score < between.foreign.score < at_ten.foreign.score
    assert at_hundred.out_of_range < between.out_of_range < at_ten.out_of_range
    assert [each.judged for each in (at_one, at_ten, between, at_hundred)] == [1, 10, 30, 100]


# Kept and taken back


@pytest.mark.parametrize("contrasts", [(0.95, 0.98), (0.9, inf), (inf, inf), (0.0, 1.0)])
def test_a_calibration_comes_back_from_its_json(contrasts: tuple[float, float]) -> None:
    known = replace(BOTH, contrasts=contrasts)
    text = json.dumps(known.to_dict(), allow_nan=False)
    assert Calibration.from_dict(json.loads(text)) == known


def _replaced(name: str, change: Callable[[Any], Any], tier: str = "") -> dict[str, Any]:
    """Return the form of a calibration with a value of its first curve changed."""
    document: dict[str, Any] = json.loads(json.dumps(BOTH.to_dict()))
    first = document["curves"][0]
    place = first[tier] if tier else first if name in first else document
    place[name] = change(place[name])
    return document


FALSE: dict[str, dict[str, Any]] = {
    "no rows": _replaced("rows", lambda _: 0),
    "half a row": _replaced("rows", lambda _: 0.5),
    "true rows": _replaced("rows", lambda _: True),
    "no curves": _replaced("curves", lambda _: []),
    "curves that are none": _replaced("curves", lambda _: [5]),
    "curves by name": _replaced("curves", lambda _: {}),
    "no hard queries": _replaced("hard", lambda _: None),
    "limits that fall": _replaced("curves", lambda values: values[::-1]),
    "a limit twice": _replaced("curves", lambda values: [values[0], values[0]]),
    "no limit": _replaced("limit", lambda _: 0),
    "a limit beyond all": _replaced("limit", lambda _: 1 << 40),
    "a spread beyond 1": _replaced("spread", lambda _: 1.5),
    "one contrast": _replaced("contrasts", lambda _: [0.9]),
    "three contrasts": _replaced("contrasts", lambda _: [0.9, 0.9, 0.9]),
    "a contrast beyond 1": _replaced("contrasts", lambda _: [0.9, 1.5]),
    "a contrast of words": _replaced("contrasts", lambda _: ["a", None]),
    "a contrast that is no number": _replaced("contrasts", lambda _: [float("nan"), None]),
    "two scores": _replaced("scores", lambda values: values[:2]),
    "scores that are none": _replaced("scores", lambda _: [None] * 3),
    "scores of words": _replaced("scores", lambda _: ["0.5", "0.4", "0.3"]),
    "an infinite score": _replaced("scores", lambda values: [*values[:2], inf]),
    "a share too many": _replaced("extended", lambda values: [*values, 0.1]),
    "a share beyond 1": _replaced("extended", lambda values: [1.1 for _ in values]),
    "a recall of items too few": _replaced("hard_items", lambda values: values[1:]),
    "a recall of items below 0": _replaced("hard_items", lambda values: [-0.1 for _ in values]),
    "a scan of words": _replaced("scan_nanoseconds", lambda _: "1"),
    "a scan of nothing": _replaced("scan_nanoseconds", lambda _: None),
} | {
    f"{tier}: {what}": _replaced(name, change, tier)
    for tier in ("typical", "hard", "foreign")
    for what, name, change in (
        ("no settings", "settings", lambda _: []),
        ("settings that fall", "settings", lambda values: values[::-1]),
        ("a setting beyond all", "settings", lambda values: [*values[:-1], 1e300]),
        ("a setting of nothing", "settings", lambda values: [0.0, *values[1:]]),
        ("more settings", "settings", lambda values: [*values, values[-1] + 1]),
        ("recalls that fall", "recalls", lambda values: values[::-1]),
        ("recalls beyond 1", "recalls", lambda values: [*values[:-1], 1.1]),
        ("fewer recalls", "recalls", lambda values: values[1:]),
        ("candidates below 0", "candidates", lambda values: [-1.0 for _ in values]),
        ("candidates of nothing", "candidates", lambda values: [None for _ in values]),
    )
}


@pytest.mark.parametrize("what", FALSE)
def test_a_form_that_no_measurement_gives_is_refused(what: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (the value is at fault, in one way or another)
        Calibration.from_dict(FALSE[what])


@pytest.mark.parametrize("gone", [*BOTH.to_dict(), *BOTH.to_dict()["curves"][0]])
def test_a_form_that_lacks_a_field_is_refused(gone: str) -> None:
    document = BOTH.to_dict()
    del (document if gone in document else document["curves"][0])[gone]
    with pytest.raises(KeyError):
        Calibration.from_dict(document)


# Searches


@pytest.mark.parametrize("dim", [8, 24])
def test_new_queries_find_what_was_measured_and_as_few_are_extended(
    dim: int, rng: np.random.Generator
) -> None:
    rows, queries = clustered(rng, 20_000, 1500)
    index = linked(rows[:, :dim])
    sent = queries[:, :dim]
    true = index.search(sent, SearchParams(limit=10, recall=1.0))
    measured = len(rows) // 32
    known = index.state.graph.calibration
    (at_ten,) = (each for each in known.curves if each.limit == 10)
    for recall in (0.8, 0.85, 0.9, 0.95):
        first = known.setting(10, recall).first
        found = index.search(sent, SearchParams(limit=10, recall=recall))
        shares = [
            mathematics.recall_by_score(hits.scores[:10].tolist(), best.scores[:10].tolist())
            for hits, best in zip(found, true, strict=True)
        ]
        chance = 4 * (1 / 1500 + 1 / measured) ** 0.5
        assert np.mean(shares) == pytest.approx(first.recall, abs=chance * np.std(shares))
        if first.slack < inf:
            continue  # nothing tells a search from one that is extended
        again = np.mean([hits.explanation.beam > first.beam + 1 for hits in found])
        expected = float(np.interp(first.number, at_ten.typical.settings, at_ten.extended))
        assert 0.05 < expected < 0.3
        assert again == pytest.approx(expected, abs=chance * (expected * (1 - expected)) ** 0.5)


def test_an_effort_below_one_is_a_number_of_lists_and_a_reach_from_there_on() -> None:
    few, many = BeamSetting.of(0.15, 20), BeamSetting.of(1.5, 20)
    assert (few.beam, few.max_expanded, few.slack) == (40, 3, inf)
    assert few.number == pytest.approx(0.15)
    assert many.slack == many.number == 1.5
    assert many.max_expanded > many.beam > 20
    assert few.places == many.places == 20
    assert BeamSetting.of(0.5, 1).max_expanded == 5  # as for ten
    assert BeamSetting.of(0.05, 1).max_expanded == 1  # at least


@pytest.mark.parametrize(("tables", "half"), [(16, 8), (6, 4), (3, 3)])
def test_walks_that_reach_far_enter_through_all_tables_others_through_half(
    tables: int, half: int
) -> None:
    """A few at least."""
    settings = [BeamSetting.of(number, 10) for number in (0.5, 1.039, 1.04)]
    assert [each.tables(tables) for each in settings] == [half, half, tables]


def test_an_effort_for_a_few_hits_is_one_for_ten() -> None:
    for number in (0.3, 1.1):
        assert BeamSetting.of(number, 1) == BeamSetting.of(number, 9) == BeamSetting.of(number, 10)
        assert BeamSetting.of(number, 11).beam > BeamSetting.of(number, 10).beam


def test_a_share_of_the_queries_expands_one_row_more(rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, 3000, 1000)
    index = linked(rows)
    less, some, more = (
        index.graph_hits(queries, 5, SearchSetting(BeamSetting(10, expanded, 0.9, 0.0)))[
            0
        ].candidates
        for expanded in (2, 2.25, 3)
    )
    assert ((some == less) | (some == more)).all()
    share = np.mean(some[less < more] == more[less < more])
    assert share == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 900) ** 0.5)
