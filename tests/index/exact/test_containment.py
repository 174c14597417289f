"""Containment by a scan is that of the definition, ties at the limit complete."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams, SearchParams
from gcws_search.index.exact.containment import scan_contained
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import SPARE_HITS
from gcws_search.index.threads import Workers
from tests.support.data.adapters import LARGE_DIM, dense_of
from tests.support.data.strategies import sparse_vectors
from tests.support.index.small_index import Answer, SmallIndex

DIM = 10
DIMS = [DIM, LARGE_DIM, None]
Vector = dict[int, float]


def containment(query: Vector, row: Vector) -> float:
    """Return Σ min / Σ |q|, coordinate by coordinate; unlike signs share nothing."""
    shared = sum(
        min(abs(x), abs(row.get(i, 0.0))) for i, x in query.items() if x * row.get(i, 0.0) > 0
    )
    return shared / sum(map(abs, query.values()))


def scanned(
    vectors: list[Vector],
    query: Vector,
    dim: int | None,
    params: SearchParams,
    permitted: list[int],
    *,
    skip: int = -1,
    min_rows: int = 1,
) -> Answer:
    """Return rows and scores, with postings from ``min_rows`` rows on."""
    index = SmallIndex(CollectionConfig(dim=dim, backend=GcwsParams(bands=2)))
    index.add(dense_of(vectors, DIM))
    view, inverted = index.view(np.array(permitted, np.uint8)), InvertedIndex(min_rows=min_rows)
    if view.vectors.form == "sparse":
        inverted = inverted.cover(view.vectors, Workers(1))
    asked = index.prepare(dense_of([query], DIM))
    found = scan_contained(
        view, asked, params, skip=np.array([skip]), inverted=inverted, workers=Workers(1)
    )
    rows, scores = found.hits(0)
    return rows.tolist(), scores.tolist()


counts = sparse_vectors(DIM, values=st.sampled_from([-2.0, -1.0, 1.0, 2.0, 500.0]), max_size=5)


@pytest.mark.parametrize("min_rows", [1, 1000])
@pytest.mark.parametrize("dim", DIMS)
@given(
    vectors=st.lists(counts, min_size=1, max_size=30),
    query=counts,
    wanted=st.tuples(st.integers(1, 33), st.sampled_from([0.0, 0.2, 1 / 3, 0.5, 1.0])),
    random=st.randoms(use_true_random=False),
)
def test_hits_are_those_of_the_definition_on_data_full_of_ties(
    dim: int | None,
    min_rows: int,
    vectors: list[Vector],
    query: Vector,
    wanted: tuple[int, float],
    random: Random,
) -> None:
    limit, least = wanted
    permitted = [int(random.random() < 0.7) for _ in vectors]
    skip = random.randrange(-1, len(vectors))
    params = SearchParams(limit=limit, min_score=least, ranking="containment")
    every = [
        (-containment(query, row), number)
        for number, row in enumerate(vectors)
        if permitted[number] and number != skip
    ]
    every = [hit for hit in every if dim == DIM or hit[0] < 0]  # sparse rows that share something
    ranked = [hit for hit in sorted(every) if -hit[0] >= least]
    truth = [hit for hit in ranked if len(ranked) <= limit or hit[0] <= ranked[limit - 1][0]]
    rows, scores = scanned(vectors, query, dim, params, permitted, skip=skip, min_rows=min_rows)
    assert (rows, scores) == ([row for _, row in truth], [-score for score, _ in truth])


@pytest.mark.parametrize("dim", DIMS)
@given(
    vectors=st.lists(sparse_vectors(DIM), min_size=1, max_size=12),
    query=sparse_vectors(DIM),
    limit=st.integers(1, 12),
)
def test_scores_of_values_of_every_size_are_exact_and_none_that_is_better_is_left_out(
    dim: int | None, vectors: list[Vector], query: Vector, limit: int
) -> None:
    params = SearchParams(limit=limit, ranking="containment")
    rows, scores = scanned(vectors, query, dim, params, [1] * len(vectors))
    every = [containment(query, row) for row in vectors]
    assert scores == pytest.approx([every[row] for row in rows], rel=1e-12, abs=0)
    best = [score for score in sorted(every, reverse=True)[:limit] if dim == DIM or score > 0]
    assert scores[:limit] == pytest.approx(best, rel=1e-12, abs=0)


@pytest.mark.parametrize("dim", DIMS)
def test_ties_at_the_limit_are_complete_where_they_are_many(dim: int | None) -> None:
    query = {0: 1.0, 1: 1.0}
    vectors = [{2: 1.0}, query] + [{0: 1.0, 3: 1.0}] * (4 * SPARE_HITS)
    params = SearchParams(limit=2, ranking="containment")
    rows, scores = scanned(vectors, query, dim, params, [1] * len(vectors))
    assert rows == [*range(1, len(vectors))]
    assert scores == [1.0] + [0.5] * (4 * SPARE_HITS)


@pytest.mark.parametrize("dim", DIMS)
def test_the_best_of_many_rows_that_float32_cannot_tell_apart_is_found(
    dim: int | None, rng: np.random.Generator
) -> None:
    """Their scores differ by less than sums of float32 are off."""
    params = SearchParams(limit=1, ranking="containment")
    for _ in range(5):
        values = rng.uniform(1, 2, DIM).astype(np.float32)
        some = values - np.float32(2**-23) * rng.integers(0, 3, (20 * SPARE_HITS, DIM))
        vectors = [dict(enumerate(row)) for row in some.astype(np.float32).tolist()]
        query = dict(enumerate(values.tolist()))
        _, scores = scanned(vectors, query, dim, params, [1] * len(vectors))
        assert scores[0] == max(containment(query, row) for row in vectors)


@pytest.mark.parametrize("dim", DIMS)
@given(query=sparse_vectors(DIM), more=sparse_vectors(DIM))
def test_whatever_else_a_row_has_it_contains_all_of_its_part(
    dim: int | None, query: Vector, more: Vector
) -> None:
    params = SearchParams(limit=3, min_score=1.0, ranking="containment")
    assert scanned([more | query], query, dim, params, [1]) == ([0], [1.0])
