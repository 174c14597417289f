"""The exact scan: equal to brute force, ties at the limit complete, filters and bounds included."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gcws_search.index.contracts.errors import InvalidVector
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    GcwsParams,
    SearchParams,
)
from gcws_search.index.kernels.gmm.tiled_scan import MANY
from tests.support.data.adapters import LARGE_DIM, dense_of, signed_rows
from tests.support.data.generated import Floats, made
from tests.support.data.strategies import sparse_vectors
from tests.support.index.small_index import Mask, SmallIndex, all_scores, answer, answers
from tests.support.reference import mathematics

DIM = 10
RELATIVE = 1e-12
"""Roundings of some thousand float64 sums."""
DIMS = [DIM, LARGE_DIM, None]
BACKENDS: list[BackendParams] = [ExactParams(), GcwsParams(bands=2)]
Vector = dict[int, float]
TIMES = [1, MANY]
"""How often a query is asked at once: many are answered together."""


def index_of(vectors: list[Vector], dim: int | None, backend: BackendParams) -> SmallIndex:
    return SmallIndex(CollectionConfig(dim=dim, backend=backend)).add(dense_of(vectors, DIM))


def shown(hits: list[tuple[int, float]], dim: int | None) -> list[tuple[int, float]]:
    """Return the hits that a scan shows: of sparse rows those that score more than 0."""
    return [hit for hit in hits if dim == DIM or hit[1] > 0]


def assert_is_brute_force(
    found: tuple[list[int], list[float]],
    truth: list[tuple[int, float]],
    every: dict[int, float],
    limit: int,
) -> None:
    """Fail unless the hits are the truth and all rows that tie with its last one.

    Scores that differ in the last digits of float64 may stand in either order, or tie.
    """
    rows, scores = found
    assert len(rows) == len(set(rows))
    assert mathematics.is_falling(scores)
    assert [every[row] for row in rows] == pytest.approx(scores, rel=RELATIVE, abs=0)
    assert scores[:limit] == pytest.approx([score for _, score in truth], rel=RELATIVE, abs=0)
    if len(truth) == limit:
        bound = truth[-1][1]
        surely = {row for row, score in every.items() if score > bound * (1 + RELATIVE)}
        perhaps = {row for row, score in every.items() if score >= bound * (1 - RELATIVE)}
        assert surely <= set(rows) <= perhaps


few_counts = sparse_vectors(DIM, values=st.sampled_from([-2.0, -1.0, 1.0, 2.0]), max_size=4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dim", DIMS)
@given(
    vectors=st.lists(few_counts, min_size=1, max_size=30),
    query=few_counts,
    wanted=st.tuples(
        st.integers(1, 33),
        st.sampled_from([0.0, 0.2, 1 / 3, 0.5, 0.7, 1.0]),
        st.sampled_from(TIMES),
    ),
    random=st.randoms(use_true_random=False),
)
def test_a_scan_is_brute_force_on_data_full_of_ties(
    backend: BackendParams,
    dim: int | None,
    vectors: list[Vector],
    query: Vector,
    wanted: tuple[int, float, int],
    random: Random,
) -> None:
    limit, min_score, times = wanted
    n = len(vectors)
    permitted = np.array([random.random() < 0.6 for _ in vectors], np.uint8)
    index = index_of(vectors, dim, backend)
    params = SearchParams(limit=limit, recall=1.0, min_score=min_score)
    hits, *others = index.search(dense_of([query] * times, DIM), params, permitted=permitted)
    assert answers(others) == [answer(hits)] * (times - 1)
    mask = permitted.tolist()
    truth = mathematics.brute_force(
        query, vectors, limit=limit, min_score=min_score, permitted=mask
    )
    whole = mathematics.brute_force(query, vectors, limit=n, min_score=min_score, permitted=mask)
    every = dict(whole)
    whole, truth = shown(whole, dim), shown(truth, dim)
    rows, scores = answer(hits)
    assert scores[:limit] == [score for _, score in truth]
    complete = [hit for hit in whole if len(whole) <= limit or hit[1] >= truth[-1][1]]
    assert (rows, scores) == ([row for row, _ in complete], [score for _, score in complete])
    assert every.keys() >= set(rows)


@pytest.mark.parametrize("dim", DIMS)
@given(
    vectors=st.lists(sparse_vectors(DIM), min_size=1, max_size=12),
    query=sparse_vectors(DIM),
    times=st.sampled_from(TIMES),
)
def test_a_scan_is_brute_force_on_values_of_every_size(
    dim: int | None, vectors: list[Vector], query: Vector, times: int
) -> None:
    index = index_of(vectors, dim, ExactParams())
    for limit in (1, 3, 20):
        params = SearchParams(limit=limit, recall=1.0)
        hits, *others = index.search(dense_of([query] * times, DIM), params)
        assert answers(others) == [answer(hits)] * (times - 1)
        truth = shown(mathematics.brute_force(query, vectors, limit=limit), dim)
        every = dict(mathematics.brute_force(query, vectors, limit=len(vectors)))
        assert_is_brute_force(answer(hits), truth, every, limit)


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("dim", [DIM, LARGE_DIM])
def test_the_largest_vectors_taken_are_scored_right(dim: int, times: int) -> None:
    size = 1e37
    while True:  # the largest norm that is taken, to 1 %
        try:
            index_of([{0: size}], dim, ExactParams())
        except InvalidVector:
            size /= 1.01
            break
        size *= 1.01
    # Rows the query shares little with stand behind many that it shares nothing with.
    strangers = [{1: size}] * 30
    for near in ({0: size / 5, 4: 4 * size / 5}, {0: size / 2, 3: -size / 2}, {0: size / 90}):
        vectors = [*strangers, near]
        index = index_of(vectors, dim, ExactParams())
        query = {0: float(np.float32(size))}
        params = SearchParams(limit=1, recall=1.0)
        hits, *_ = index.search(dense_of([query] * times, DIM), params)
        truth = mathematics.brute_force(query, signed_rows(index.rows.view()), limit=1)
        assert_is_brute_force(answer(hits), truth, dict(truth), 1)
        assert hits.rows.tolist() == [30]


KINDS = ["dense", "near-duplicates", "counts"]


def config_of(kind: str, backend: BackendParams) -> CollectionConfig:
    return CollectionConfig(dim=None if kind == "counts" else 24, backend=backend)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("sizes", "threads", "count"),
    [([], 1, 8), ([2900], 1, 8), ([1000, 30, 1100, 200, 5], 2, 2 * MANY + 3)],
)
def test_a_scan_of_thousands_of_rows_is_brute_force(
    rng: np.random.Generator, kind: str, sizes: list[int], threads: int, count: int
) -> None:
    rows, queries, dim = made(kind, rng, 3000, count)
    index = SmallIndex(config_of(kind, ExactParams()), threads=threads).add(rows, sizes)
    permitted = (rng.random(3000) < 0.7).astype(np.uint8)
    truth = all_scores(queries, rows, dim)
    for limit, min_score in ((1, 0.0), (10, 0.0), (100, 0.3), (3000, 0.5)):
        params = SearchParams(limit=limit, recall=1.0, min_score=min_score)
        results = index.search(queries, params, permitted=permitted)
        assert answers(results[:8]) == answers(
            [index.search(queries[m : m + 1], params, permitted=permitted)[0] for m in range(8)]
        )
        for m, hits in enumerate(results):
            allowed = np.flatnonzero(permitted & (truth[m] >= min_score))
            every = {int(row): float(truth[m, row]) for row in allowed}
            best = sorted(every.items(), key=lambda hit: (-hit[1], hit[0]))[:limit]
            assert_is_brute_force(answer(hits), best, every, limit)
            assert hits.explanation.method == "scan"
            assert hits.explanation.expected_recall == 1.0
            assert hits.explanation.scored == permitted.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_the_fast_truth_of_these_tests_is_the_slow_one(rng: np.random.Generator, kind: str) -> None:
    rows, queries, dim = made(kind, rng, 40, 3)
    index = SmallIndex(config_of(kind, ExactParams())).add(rows)
    ours = all_scores(queries, rows, dim)
    slow = [
        [mathematics.gmm(query, row) for row in signed_rows(index.prepare(rows))]
        for query in signed_rows(index.prepare(queries))
    ]
    np.testing.assert_allclose(ours, slow, rtol=1e-13)


@pytest.mark.parametrize("dim", DIMS)
def test_a_score_equal_to_the_least_one_wanted_is_wanted(dim: int | None) -> None:
    # GMM 7/10, 3/10, 1/3, 0.9: fractions float32 rounds down as well as up.
    for low, high in ((7, 10), (3, 10), (1, 3), (9, 10), (2, 3), (1, 10)):
        index = index_of([{0: float(low)}, {0: float(high)}, {1: 1.0}], dim, ExactParams())
        params = SearchParams(limit=3, recall=1.0, min_score=low / high)
        [hits] = index.search(dense_of([{0: float(high)}], DIM), params)
        assert answer(hits) == ([1, 0], [1.0, low / high])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dim", [DIM, None])
def test_a_row_to_skip_is_left_out_and_no_other(
    rng: np.random.Generator, dim: int | None, backend: BackendParams
) -> None:
    vectors = [
        {int(i): float(rng.standard_normal()) for i in rng.choice(DIM, 5, False)} for _ in range(20)
    ]
    index = index_of([*vectors, *vectors], dim, backend)
    params = SearchParams(limit=5, recall=1.0)
    results = index.search(dense_of(vectors, DIM), params, skip=[*range(19), -1])
    for row, hits in enumerate(results):
        rows, scores = answer(hits)
        if row < 19:
            assert row not in rows
            assert (rows[0], scores[0]) == (row + 20, 1.0)
        else:
            assert (rows[:2], scores[:2]) == ([19, 39], [1.0, 1.0])


@pytest.mark.parametrize("dim", [DIM, None])
def test_no_permitted_row_gives_no_hits(dim: int | None) -> None:
    for backend in BACKENDS:
        index = index_of([{0: 1.0}, {1: 1.0}], dim, backend)
        nothing: Mask = np.zeros(2, np.uint8)
        for recall in (0.5, 1.0):
            params = SearchParams(limit=3, recall=recall)
            [hits] = index.search(dense_of([{0: 1.0}], DIM), params, permitted=nothing)
            assert answer(hits) == ([], [])
        for threads in (1, 2):
            empty = SmallIndex(CollectionConfig(dim=dim, backend=backend), threads=threads)
            [hits] = empty.search(dense_of([{0: 1.0}], DIM), SearchParams(limit=3))
            assert answer(hits) == ([], [])
            assert empty.search(dense_of([], DIM), SearchParams(limit=3)) == []


@pytest.mark.parametrize("dim", [24, None])
def test_rows_that_float32_scores_cannot_tell_apart_are_ranked_exactly(
    rng: np.random.Generator, dim: int | None
) -> None:
    """Rows a few units in the last place apart: scores differ by 1e-9, float32 by 6e-8."""
    n = 400
    rows: Floats = np.repeat(rng.gamma(2.0, size=(1, 24)).astype(np.float32), n, axis=0)
    for row in rows:
        for i in rng.choice(24, 6, replace=False):
            row[i] = np.nextafter(row[i], np.float32(rng.choice([0.0, 99.0])))
    query = rng.gamma(2.0, size=(1, 24)).astype(np.float32)
    truth = all_scores(query, rows, 24)[0]
    index = SmallIndex(CollectionConfig(dim=dim, backend=ExactParams())).add(rows)
    [hits] = index.search(query, SearchParams(limit=5, recall=1.0))
    best = np.sort(truth)[::-1][:5]
    assert hits.scores[:5] == pytest.approx(best, rel=RELATIVE)
    assert truth[hits.rows[:5]] == pytest.approx(best, rel=RELATIVE)
