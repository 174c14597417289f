"""Joins by folded rows against brute force: none is lost, none is too many, scores are exact."""

import numpy as np
import pytest

from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import CollectionConfig
from gcws_search.index.exact.folded import FoldedJoin
from gcws_search.index.threads import Workers
from tests.support.index.small_index import SmallIndex, all_scores, view_of

DIM = 40


def made(rng: np.random.Generator, count: int, base: np.ndarray) -> np.ndarray:
    """Return signed rows like some of the base, of norms that are far apart."""
    rows = base[rng.integers(0, len(base), count)] * rng.gamma(40, 1 / 40, (count, base.shape[1]))
    rows *= np.where(rng.random((count, 1)) < 0.2, np.exp(3 * rng.standard_normal((count, 1))), 1)
    return np.asarray(rows, np.float32)


def base_of(rng: np.random.Generator, dim: int = DIM) -> np.ndarray:
    """Return signed rows, some with one coordinate that is most of the norm."""
    base = rng.poisson(1.0, (60, dim)) * rng.choice([-1, 1], (60, dim)) * rng.random((60, dim))
    base[:, 0] = np.where(rng.random(60) < 0.3, 1000.0, 1.0)
    return np.asarray(base)


def prepared(rows: np.ndarray, dim: int | None) -> VectorBatch:
    return SmallIndex(CollectionConfig(dim=dim)).prepare(rows)


def joined(
    rows: np.ndarray,
    queries: np.ndarray,
    least: float,
    *,
    dim: int | None,
    permitted: np.ndarray | None = None,
    threads: int = 2,
) -> dict[tuple[int, int], float]:
    asked = prepared(queries, dim)
    view = view_of(prepared(rows, dim), None if permitted is None else permitted.astype(np.uint8))
    places, found, scores = FoldedJoin(view, asked[:7], least, Workers(threads))(asked)
    hits = dict(
        zip(zip(places.tolist(), found.tolist(), strict=True), scores.tolist(), strict=True)
    )
    assert len(hits) == len(places)
    return hits


def assert_is_brute_force(
    hits: dict[tuple[int, int], float], scores: np.ndarray, least: float
) -> None:
    assert hits == {key: pytest.approx(float(scores[key]), abs=1e-12) for key in hits}
    surely = {(i, j) for i, j in np.argwhere(scores >= least + 1e-12).tolist()}
    perhaps = {(i, j) for i, j in np.argwhere(scores >= least - 1e-12).tolist()}
    assert surely <= hits.keys() <= perhaps


@pytest.mark.parametrize("least", [0.02, 0.3, 0.5, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("dim", [DIM, None])
def test_all_rows_that_score_enough_are_found(
    rng: np.random.Generator, dim: int | None, least: float
) -> None:
    base = base_of(rng)
    rows, queries = made(rng, 700, base), made(rng, 121, base)
    rows[:50] = queries[:50]
    scores = all_scores(queries, rows, DIM)
    hits = joined(rows, queries, least, dim=dim)
    assert_is_brute_force(hits, scores, least)
    assert len(hits) >= 50


@pytest.mark.parametrize("dim", [1, 5, 130, 300])
def test_rows_of_any_width_are_folded(rng: np.random.Generator, dim: int) -> None:
    base = base_of(rng, dim)
    rows, queries = made(rng, 200, base), made(rng, 30, base)
    hits = joined(rows, queries, 0.6, dim=dim)
    assert_is_brute_force(hits, all_scores(queries, rows, dim), 0.6)
    assert hits


def test_only_permitted_rows_are_found(rng: np.random.Generator) -> None:
    base = base_of(rng)
    rows, queries = made(rng, 300, base), made(rng, 40, base)
    permitted = rng.random(300) < 0.4
    scores = np.where(permitted, all_scores(queries, rows, DIM), 0.0)
    for dim in (DIM, None):
        hits = joined(rows, queries, 0.5, dim=dim, permitted=permitted)
        assert_is_brute_force(hits, scores, 0.5)
        assert hits


def test_more_pairs_than_are_scored_at_a_time_are_all_found(rng: np.random.Generator) -> None:
    rows = (1 + rng.random((3000, 4)) / 100).astype(np.float32)
    queries = np.ones((150, 4), np.float32)
    assert len(joined(rows, queries, 0.9, dim=4, threads=1)) == 3000 * 150


def test_how_many_threads_there_are_changes_nothing(rng: np.random.Generator) -> None:
    base = base_of(rng)
    rows, queries = made(rng, 500, base), made(rng, 90, base)
    one, three = (joined(rows, queries, 0.5, dim=None, threads=threads) for threads in (1, 3))
    assert one == three


@pytest.mark.parametrize("unit", [1e-45, 1e-43, 1e-41])
def test_rows_whose_steps_are_too_small_for_float32_are_found(
    rng: np.random.Generator, unit: float
) -> None:
    rows = (rng.poisson(1.0, (300, DIM)) * unit).astype(np.float32)
    rows = rows[rows.any(axis=1)]
    hits = joined(rows, rows, 1.0, dim=None)
    assert {(row, row) for row in range(len(rows))} <= hits.keys()
