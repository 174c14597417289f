"""Whether rounding is said to hide hits where it does, and not where it does not."""

import numpy as np
import pytest
from numba import njit

from gcws_search.index.contracts.arrays import Float64s
from gcws_search.index.kernels.graph.candidate_pool import entry
from gcws_search.index.kernels.graph.rerank_depth import TOLERATED_MISS, hits_left_out
from gcws_search.index.kernels.lanes.vector import pointer

NOBODY = -1


@njit(nogil=True)
def _left_out(quick, exact, last, skip, bound=0.0):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    size, count = quick.shape[0], exact.shape[0]
    pool = np.array([entry(np.float32(quick[i]), i) for i in range(size)], np.uint64)
    return hits_left_out(pointer(pool), size, skip, pointer(exact), count, last, bound)


def doubted_and_missed(
    true: Float64s, noise: Float64s, limit: int, held: int, scored: int, most_missed: float = 0.25
) -> tuple[bool, int]:
    """Return what is said of a walk that keeps and scores the best by noisy scores, and the truth.

    That is how many of the best ``limit`` rows were not scored.
    """
    quick = (true + noise).astype(np.float32)
    order = np.argsort(-quick)[:held]
    exact = true[order[:scored]].astype(np.float64)
    last = np.sort(exact)[-limit]
    doubted = _left_out(quick[order], exact, last, NOBODY) > most_missed * limit
    best = np.argsort(-true)[:limit]
    return bool(doubted), int(limit - np.isin(best, order[:scored]).sum())


@pytest.mark.parametrize("limit", [1, 10, 60])
@pytest.mark.parametrize("held", [0, 40])
@pytest.mark.parametrize("noise", [0.0, 1e-4, 0.3, 1.0, 10.0])
def test_hits_are_doubted_where_many_are_missed(
    noise: float, held: int, limit: int, rng: np.random.Generator
) -> None:
    scored = limit + 10
    doubts, misses = [], []
    for _ in range(200):
        true = 0.9 - 1e-3 * rng.random(400)
        made = doubted_and_missed(
            true, 1e-3 * noise * rng.standard_normal(400), limit, scored + held, scored
        )
        doubts.append(made[0])
        misses.append(made[1] / limit)
    if noise <= 1e-4:
        assert not any(doubts)
        assert max(misses) == 0
    elif np.mean(misses) > 0.5:
        assert np.mean(doubts) > 0.8
    elif np.mean(misses) < 0.02:
        assert np.mean(doubts) < 0.05
    else:  # so many may be missed as are put up with
        kept = np.array(misses)[~np.array(doubts)]
        assert len(kept) == 0 or np.mean(kept) < 0.3


@pytest.mark.parametrize("limit", [6, 10, 100])
@pytest.mark.parametrize("noise", [0.003, 0.01, 0.03, 0.1])
def test_hardly_any_hits_are_missed_where_few_rows_are_said_to_be_enough(
    noise: float, limit: int, rng: np.random.Generator
) -> None:
    missed, more = 0, 0
    for _ in range(1000):
        true = 0.9 - 1e-3 * rng.random(400)
        doubted, lost = doubted_and_missed(
            true,
            1e-3 * noise * rng.standard_normal(400),
            limit,
            limit + 40,
            limit + 4,
            TOLERATED_MISS,
        )
        more += doubted
        missed += 0 if doubted else lost
    assert missed <= 0.005 * limit * 1000  # beside a miss of 0.01 at least
    if noise <= 0.003:  # a few rows lie farther apart than that
        assert more < 500


def test_the_row_passed_over_says_nothing(rng: np.random.Generator) -> None:
    quick = np.sort(0.9 + 1e-3 * rng.random(21))[::-1].astype(np.float32)
    exact = quick[1:].astype(np.float64)
    quick[0] = 0.5  # as noisy as can be, if it were compared with the first exact score
    last = float(np.sort(exact)[-10])
    assert _left_out(quick, exact, last, 0) <= TOLERATED_MISS * 10


def test_rows_far_away_do_not_speak_for_those_near(rng: np.random.Generator) -> None:
    # A walk that reached all of a cluster holds others beyond it: nothing was left out.
    true = np.concatenate([0.9 - 1e-4 * rng.random(15), 0.3 * rng.random(300)])
    noise = 1e-3 * rng.standard_normal(315)
    assert doubted_and_missed(true, noise, 10, 30, 20) == (False, 0)


def test_one_row_far_ahead_of_a_group_does_not_speak_for_it(rng: np.random.Generator) -> None:
    # All of the group are about as near; quick scores in steps tell nothing of their order.
    steps = 8.5e-6 * np.sqrt(np.arange(300) / 2).round()
    quick = (0.999 - np.append(0.0, 3.4e-5 + steps)).astype(np.float32)
    for _ in range(20):
        exact = np.append(0.999, 0.9987 - 3e-5 * rng.standard_normal(13))
        last = float(np.sort(exact)[-10])
        assert _left_out(quick, exact, last, NOBODY) > TOLERATED_MISS * 10


@pytest.mark.parametrize(("below", "doubted"), [(0.0, True), (1e-5, True), (1e-2, False)])
def test_all_of_a_group_may_be_held(below: float, doubted: bool, rng: np.random.Generator) -> None:
    """All rows score alike where quantization makes them copies; others are below a bound."""
    quick = np.full(100, 0.997, np.float32)
    exact = 0.997 + 5e-4 * rng.standard_normal(100)
    left_out = _left_out(quick, exact, float(np.sort(exact)[-10]), NOBODY, 0.997 - below)
    assert (left_out > TOLERATED_MISS * 10) == doubted
