"""What the comparison with other libraries is judged by, and searches."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from benchmarks.harness.engine import Engine
from benchmarks.harness.words import positive_information, sentences, word_vectors
from benchmarks.rivals.__main__ import Measured
from benchmarks.rivals.frontier import Point, Truth, rate_at
from benchmarks.rivals.methods import LIMIT, gmm_distance
from benchmarks.rivals.process import Built, timed, timed_builds
from gcws_search.index.backends import GcwsBackend
from gcws_search.index.contracts.parameters import GcwsParams, SearchParams
from tests.support.reference.mathematics import from_dense, gmm

POINTS = [(0.9, 1000.0), (0.98, 250.0), (0.94, 500.0)]


@pytest.mark.parametrize(
    ("recall", "rate"), [*POINTS, (0.96, (500.0 * 250.0) ** 0.5), (0.981, None), (0.5, 1000.0)]
)
def test_the_speed_between_two_points_is_their_geometric_mean(
    recall: float, rate: float | None
) -> None:
    for points in (POINTS, [*POINTS, (0.95, 10.0)]):  # one that is beaten in both does not count
        assert rate_at(recall, points) == (rate and pytest.approx(rate))
    assert rate_at(recall, []) is None


def test_who_cannot_use_two_threads_is_as_fast_as_on_one() -> None:
    built = Built(0.0, 1.0, 1.0, None, 0)
    one = Point(1, 0.1, 100, 1.0, [2.0], [2.0])
    two = Point(2, 0.1, 100, 1.0, [1.0], [1.0])
    for points, rates in (([one], [50.0] * 4), ([one, two], [50.0, 50.0, 100.0, 100.0])):
        assert Measured("", built, points).rates(by_cpu=False) == pytest.approx(rates)


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


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_an_index_is_searched_on_as_many_threads_as_are_asked_for(
    threads: int, rng: np.random.Generator
) -> None:
    rows = rng.normal(size=(3000, 8)).astype(np.float32)
    engine = Engine.build(rows, GcwsParams(), threads=2, compiled=True)
    other = engine.with_threads(threads)
    assert engine.state.graph.workers.threads == 2
    assert other.state.graph.workers.threads == other.backend.workers.threads == threads
    assert isinstance(other.backend, GcwsBackend)
    assert other.state.graph.band_keys is other.backend.band_keys
    queries, params = engine.prepare(rows[:9]), SearchParams(limit=3, recall=0.9)
    found, again = (each.search(queries, params) for each in (engine, other))
    np.testing.assert_array_equal(found.rows, again.rows)


def test_information_is_the_logarithm_of_how_much_more_often_a_word_comes_than_by_chance() -> None:
    counts = sparse.csr_matrix(np.array([[2.0, 0.0, 1.0], [1.0, 4.0, 0.0]]))
    found = positive_information(counts).toarray()
    # Of 8 words 3 are in the first document, 3 are the first word: 2 of them are both.
    assert found[0, 0] == pytest.approx(np.log(2 * 8 / (3 * 3)))
    assert found[0, 2] == pytest.approx(np.log(1 * 8 / (3 * 1)))
    assert found[1, 1] == pytest.approx(np.log(4 * 8 / (5 * 4)))
    assert counts.nnz == 4  # these are not touched
    assert found[1, 0] == found[0, 1] == found[1, 2] == 0  # less often than by chance, or never


def test_word_vectors_have_the_products_of_the_information_and_are_always_the_same(
    rng: np.random.Generator,
) -> None:
    pytest.importorskip("sklearn")
    counts = sparse.csr_matrix(rng.poisson(0.7, (12, 40)).astype(np.float32))
    vectors = word_vectors(counts, 12)
    u, s, _ = np.linalg.svd(positive_information(counts).toarray().T, full_matrices=False)
    expected = (u * s) @ u.T  # of rank 12 nothing is cut off
    assert vectors.shape == (40, 12)
    assert vectors @ vectors.T == pytest.approx(expected, abs=1e-4)
    assert np.array_equal(vectors, word_vectors(counts, 12))


def test_a_sentence_is_the_mean_of_words_of_one_document_drawn_as_often_as_it_has_them() -> None:
    counts = sparse.csr_matrix(np.array([[3.0, 1.0, 0.0, 0.0], [0, 0, 0, 0], [0.0, 0.0, 2.0, 2.0]]))
    found = sentences(np.eye(4, dtype=np.float32), counts, rows=4000)
    assert found.sum(axis=1) == pytest.approx(1.0)
    of_first = found[:, :2].sum(axis=1) > 0.5
    assert not found[of_first, 2:].any()
    assert not found[~of_first, :2].any()
    # 2,000 sentences of 12.5 words: the mean's standard error is below .005.
    assert of_first.mean() == pytest.approx(0.5, abs=0.04)
    assert found[of_first, 0].mean() == pytest.approx(0.75, abs=0.015)
    assert found[~of_first, 2].mean() == pytest.approx(0.5, abs=0.015)
    assert np.array_equal(found, sentences(np.eye(4, dtype=np.float32), counts, rows=4000))
