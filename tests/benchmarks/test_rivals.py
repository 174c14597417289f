"""What the comparison with other libraries is judged by."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.rivals.__main__ import Measured
from benchmarks.rivals.frontier import Point, Truth, rate_at
from benchmarks.rivals.methods import LIMIT, gmm_distance
from benchmarks.rivals.process import Built, timed, timed_builds
from tests.support.reference.mathematics import from_dense, gmm

POINTS = [(0.9, 1000.0), (0.98, 250.0), (0.94, 500.0)]


@pytest.mark.parametrize(("recall", "rate"), POINTS)
def test_the_speed_at_a_measured_recall_is_the_measured_one(recall: float, rate: float) -> None:
    assert rate_at(recall, POINTS) == pytest.approx(rate)


def test_the_speed_half_way_between_two_points_is_their_geometric_mean() -> None:
    assert rate_at(0.96, POINTS) == pytest.approx((500.0 * 250.0) ** 0.5)


def test_beyond_the_highest_recall_there_is_no_speed() -> None:
    assert rate_at(0.981, POINTS) is None
    assert rate_at(0.5, []) is None


def test_below_the_lowest_recall_the_speed_is_that_of_the_lowest() -> None:
    assert rate_at(0.5, POINTS) == pytest.approx(1000.0)


def test_a_setting_that_is_beaten_in_both_does_not_count() -> None:
    assert rate_at(0.96, [*POINTS, (0.95, 10.0)]) == rate_at(0.96, POINTS)


def test_who_cannot_use_two_threads_is_as_fast_as_on_one() -> None:
    built = Built(0.0, 1.0, 1.0, None, 0)
    one = Point(1, 0.1, 100, 1.0, [2.0], [2.0])
    two = Point(2, 0.1, 100, 1.0, [1.0], [1.0])
    assert Measured("", built, [one]).rates(by_cpu=False) == pytest.approx([50.0] * 4)
    assert Measured("", built, [one, two]).rates(by_cpu=False) == pytest.approx(
        [50.0, 50.0, 100.0, 100.0]
    )


def test_a_batch_is_asked_for_until_its_calls_take_long_and_their_median_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = iter((0.0, 1.0, 1.0, 6.0, 6.0, 8.0))
    clock = SimpleNamespace(perf_counter=lambda: next(moments), process_time=lambda: 0.0)
    monkeypatch.setattr("benchmarks.rivals.process.time", clock)
    rows = np.zeros((2, LIMIT), np.int64)
    answer = timed(lambda: rows, least_seconds=7.0)
    assert answer.rows is rows
    assert answer.seconds == 2.0
    assert next(moments, None) is None


def test_an_index_is_built_until_that_took_long_enough_and_the_median_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = iter([0.0, 5.0, 5.0, 6.0, 6.0, 8.0])
    clock = SimpleNamespace(perf_counter=lambda: next(moments), process_time=lambda: 0.0)
    monkeypatch.setattr("benchmarks.rivals.process.time", clock)
    made: list[Any] = []

    def build() -> Any:  # noqa: ANN401 (a method's stand-in)
        made.append(SimpleNamespace(table_seconds=float(len(made))))
        return made[-1]

    index, built = timed_builds(build, 9.0, least_seconds=7.0)
    assert index is made[-1]
    assert len(made) == 3
    assert (built.seconds, built.table_seconds, built.compile_seconds) == (2.0, 1.0, 9.0)
    assert next(moments, None) is None


def test_the_metric_given_to_a_rival_is_one_minus_gmm(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((2, 45)).astype(np.float32)
    distance = gmm_distance()
    pointers = [x.ctypes.data_as(ctypes.POINTER(ctypes.c_float)) for x in (a, b)]
    # 90 float32 additions at most, each within 2^-24 of sums that stay below the last.
    assert distance.ctypes(*pointers, 45) == pytest.approx(
        1 - gmm(from_dense(a), from_dense(b)), abs=90 * 2**-24
    )


def test_recall_counts_rows_by_their_exact_score(rng: np.random.Generator) -> None:
    stored = rng.random((200, 8), np.float32)
    truth = Truth.of(stored, stored[:3])
    true = np.array([hits.rows[:LIMIT] for hits in truth.hits])
    assert truth.recall(true) == 1.0
    worse = true.copy()
    worse[:, LIMIT // 2 :] = -1
    assert truth.recall(worse) == 0.5
    assert truth.recall(np.repeat(true[:, :1], LIMIT, axis=1)) == pytest.approx(1 / LIMIT)
