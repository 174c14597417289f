"""How much queries may miss, by what audited ones found."""

import numpy as np
import pytest

from gcws_search.index.graph.miss_allowance import MIN_QUERIES, MissAllowance

LIMITS = (1, 3, 10, 30, 100, 101)


def audited(found: list[float], *, asked: float, limit: int = 10) -> MissAllowance:
    allowance = MissAllowance()
    for each in found:
        allowance.take(limit, asked, each)
    return allowance


def test_all_of_the_miss_is_allowed_at_first() -> None:
    allowance = MissAllowance()
    assert [allowance.share(limit) for limit in (1, 10, 10_000)] == [1.0] * 3
    assert allowance.by_limit == [(1, 1.0), (3, 1.0), (10, 1.0), (30, 1.0), (100, 1.0), (None, 1.0)]


def test_less_is_allowed_where_queries_find_too_little_until_the_graph_is_left() -> None:
    allowance = MissAllowance()
    shares: list[float] = []
    for _ in range(200):
        allowance.take(10, 0.9, 0.5)
        if not shares or allowance.share(10) != shares[-1]:
            shares.append(allowance.share(10))
    assert shares == [1.0, 0.5, 0.25, 0.125, 0.0625, 0.0]


@pytest.mark.parametrize("limit", LIMITS)
def test_limits_of_other_classes_are_left_alone(limit: int) -> None:
    allowance = audited([0.2] * 9, asked=0.9, limit=limit)
    assert [each for each in LIMITS if allowance.share(each) < 1] == [limit]


def test_few_queries_change_nothing() -> None:
    assert audited([0.0] * (MIN_QUERIES - 1), asked=0.8).share(10) == 1.0
    assert audited([0.0] * MIN_QUERIES, asked=0.8).share(10) == 0.5


@pytest.mark.parametrize("asked", [0.8, 0.9, 0.99])
@pytest.mark.parametrize("limit", [1, 10])
def test_queries_that_find_what_was_promised_change_nothing(
    asked: float, limit: int, rng: np.random.Generator
) -> None:
    """A calibration aims at four fifths of the miss that is allowed."""
    aimed = asked + (1 - asked) / 5
    changed = 0
    for _ in range(100):
        found = rng.binomial(limit, aimed, 1000) / limit
        changed += audited(found.tolist(), asked=asked, limit=limit).share(limit) < 1
    assert changed <= 5


@pytest.mark.parametrize(("asked", "finds"), [(0.8, 0.6), (0.9, 0.75), (0.99, 0.9)])
def test_a_shortfall_is_seen_after_some_hundred_queries(
    asked: float, finds: float, rng: np.random.Generator
) -> None:
    for _ in range(20):
        found = rng.binomial(1, finds, 1000).astype(float)
        assert audited(found.tolist(), asked=asked, limit=1).share(1) < 1


def test_the_share_rises_again_once_queries_would_find_enough() -> None:
    allowance = audited([0.3] * 16, asked=0.8)
    assert allowance.share(10) == 0.25
    for _ in range(1000):
        allowance.take(10, 0.8, 1.0)
    assert allowance.share(10) == 1.0


def test_the_share_stays_where_twice_the_miss_would_be_too_much(rng: np.random.Generator) -> None:
    allowance = audited([0.3] * 8, asked=0.8)
    for found in (rng.binomial(10, 0.88, 5000) / 10).tolist():
        allowance.take(10, 0.8, found)
    assert allowance.share(10) == 0.5


def test_shares_are_saved() -> None:
    allowance, again = audited([0.3] * 8, asked=0.8), MissAllowance()
    again.restore(allowance.to_list())
    assert again.by_limit == allowance.by_limit
    again.restore([])  # of a file that has none
    assert again.by_limit == allowance.by_limit


@pytest.mark.parametrize("saved", [None, "x", [0.5], [2.0] * 6, [float("nan")] * 6, [1.0] * 7])
def test_false_shares_are_refused(saved: object) -> None:
    with pytest.raises(ValueError, match=r"number|list|share"):
        MissAllowance().restore(saved)


def test_queries_find_too_little_while_their_mean_is_less_than_was_asked() -> None:
    allowance = MissAllowance()
    judged = [allowance.finds_too_little]
    for found in (1.0, 0.9, 0.35, 1.0, 1.0, 1.0, 1.0, 1.0):
        allowance.take(10, 0.9, found)
        judged.append(allowance.finds_too_little)
    assert judged == [False, False, False, True, True, True, True, True, False]


def test_only_the_limits_audited_last_are_judged() -> None:
    allowance = audited([0.2], asked=0.9, limit=1)
    assert allowance.finds_too_little
    allowance.take(100, 0.9, 1.0)
    assert not allowance.finds_too_little
    allowance.take(1, 0.9, 0.9)
    assert allowance.finds_too_little


def test_judging_begins_anew_where_the_share_changes() -> None:
    assert not audited([0.0] * MIN_QUERIES, asked=0.8).finds_too_little
