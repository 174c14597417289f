"""Backends of real features: the best by estimate, scored as asked, of rows that come and go."""

import threading
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.harness.engine import row_hits
from gcws_search.index.backends import FeatureBackend
from gcws_search.index.comparison.features import FeatureState, map_rows
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    FourierParams,
    NystroemParams,
    RandomBinningParams,
    Rerank,
    SearchParams,
)
from gcws_search.index.contracts.saved_index import SavedIndex
from tests.support.data.generated import Floats, clustered
from tests.support.index.small_index import Mask, SmallIndex, all_scores, answers

DIM = 24
ALL = 700
QUERIES = 9
KINDS: tuple[BackendParams, ...] = (
    FourierParams(kind="rff", features=100, gamma=2.0),
    FourierParams(kind="nrff", features=96, gamma=2.0, seed=3),
    FourierParams(kind="folded_rff", features=64, gamma=1.0),
    NystroemParams(kind="gmm_nystroem", landmarks=50),
    NystroemParams(kind="rbf_nystroem", landmarks=50, gamma=2.0),
)
Doubles = npt.NDArray[np.float64]

every_kind = pytest.mark.parametrize("params", KINDS, ids=lambda params: params.kind)
nystroem = pytest.mark.parametrize("params", KINDS[3:], ids=lambda params: params.kind)
forms = pytest.mark.parametrize("dim", [DIM, None])
RERANKS: tuple[Rerank, ...] = ("gmm", "own", "none")


def data_of(rng: np.random.Generator) -> tuple[Floats, Floats]:
    rows, queries = clustered(rng, ALL, QUERIES, dim=DIM)
    rows[300] = rows[17]  # ties
    return rows, queries


def state_of(index: SmallIndex) -> FeatureState:
    assert isinstance(index.state, FeatureState)
    return index.state


def improve(index: SmallIndex, alive: Mask | None = None) -> None:
    """Draw landmarks, where the backend has any."""
    rows = index.rows.view()
    live = np.ones(len(rows), np.uint8) if alive is None else alive
    if index.backend.is_overdue(index.state, len(rows), int(live.sum())):
        better = index.backend.optimize(index.state, rows, live, threading.Event())
        index.state = index.backend.adopt(index.state, rows, better)


def made_index(
    rows: Floats, dim: int | None, params: BackendParams, *, threads: int = 1
) -> SmallIndex:
    index = SmallIndex(CollectionConfig(dim=dim, backend=params), threads=threads).add(rows)
    improve(index)
    return index


def estimates(index: SmallIndex, queries: Floats) -> Doubles:
    """Return the inner products of features by definition."""
    made = state_of(index).map
    assert made is not None
    left, right = (
        map_rows(made, batch).astype(np.float64)
        for batch in (index.prepare(queries), index.rows.view())
    )
    return np.asarray(left @ right.T)


def own_scores(index: SmallIndex, queries: Floats) -> Doubles:
    scores: Doubles = index.backend.kernel.scores(index.prepare(queries), index.rows.view())
    return scores


def best(scores: Doubles, limit: int, permitted: Mask | None = None) -> list[Doubles]:
    """Return the best permitted scores of each query, falling."""
    rows = slice(None) if permitted is None else permitted.astype(bool)
    return [np.sort(line[rows])[::-1][:limit] for line in scores]


@dataclass
class Made:
    """An index of one method, its rows and some queries."""

    params: BackendParams
    dim: int | None
    rows: Floats
    queries: Floats
    index: SmallIndex


@pytest.fixture(params=product(KINDS, (DIM, None)), ids=lambda each: f"{each[0].kind}-{each[1]}")
def made(request: pytest.FixtureRequest, rng: np.random.Generator) -> Made:
    params, dim = request.param
    rows, queries = data_of(rng)
    return Made(params, dim, rows, queries, made_index(rows, dim, params))


def test_hits_are_the_best_by_estimate(made: Made) -> None:
    truth = estimates(made.index, made.queries)
    found = made.index.search(made.queries, SearchParams(limit=20, rerank="none"))
    for i, (hits, expected) in enumerate(zip(found, best(truth, 20), strict=True)):
        assert len(set(hits.rows.tolist())) == len(hits.rows) >= 20
        np.testing.assert_allclose(hits.scores, truth[i, hits.rows], atol=2e-6)
        np.testing.assert_allclose(hits.scores[:20], expected, atol=2e-6)
        assert (np.diff(hits.scores) <= 0).all()
        assert hits.explanation.method == made.params.kind
        assert (hits.explanation.candidates, hits.explanation.scored) == (ALL, 0)


def test_candidates_are_scored_by_exact_gmm(made: Made) -> None:
    truth = estimates(made.index, made.queries)
    gmm = all_scores(made.queries, made.rows, DIM)
    found = made.index.search(made.queries, SearchParams(limit=5, candidates=40))
    for i, hits in enumerate(found):
        np.testing.assert_allclose(hits.scores, gmm[i, hits.rows], rtol=1e-12)
        pool = np.argsort(-truth[i])[:40]
        sure = truth[i, pool] > truth[i, pool[-1]] + 4e-6
        reachable = np.sort(gmm[i, pool[sure]])[::-1][:5]
        assert (hits.scores[: len(reachable)] >= reachable * (1 - 1e-12)).all()
        assert hits.explanation.scored == 40


@pytest.mark.parametrize("wanted", [{"candidates": ALL}, {"recall": 1.0}], ids=str)
def test_candidates_are_scored_by_the_kernel_that_is_estimated(
    made: Made, wanted: dict[str, Any]
) -> None:
    own = own_scores(made.index, made.queries)
    params = SearchParams(limit=5, rerank="own", **wanted)
    for i, hits in enumerate(made.index.search(made.queries, params)):
        # GMM as a kernel is of float32, hits are not.
        np.testing.assert_allclose(hits.scores[:5], best(own, 5)[i], atol=4e-6)
        np.testing.assert_allclose(hits.scores, own[i, hits.rows], atol=4e-6)


@pytest.mark.parametrize("rerank", RERANKS)
def test_answers_are_the_same_alone_in_a_batch_and_on_any_threads(
    made: Made, rerank: Rerank
) -> None:
    wanted = SearchParams(limit=6, rerank=rerank, candidates=15)
    expected = answers(made.index.search(made.queries, wanted))
    for threads in (2, 12):
        config = CollectionConfig(dim=made.dim, backend=made.params)
        other = SmallIndex(config, threads=threads).add(made.rows)
        other.state = made.index.state  # bases of eigenvectors are arbitrary
        assert answers(other.search(made.queries, wanted)) == expected
        ones = [made.queries[i : i + 1] for i in range(QUERIES)]
        assert [answers(other.search(one, wanted))[0] for one in ones] == expected


def test_answers_are_the_same_where_threads_divide_the_rows(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((5000, DIM), np.float32)
    rows[2400:2600] = rows[0]  # equal products on both sides of the border
    queries = np.concatenate([rows[:3], rng.standard_normal((7, DIM), np.float32)])
    wanted = SearchParams(limit=4, candidates=12)
    one, two = (made_index(rows, DIM, KINDS[0], threads=threads) for threads in (1, 2))
    assert answers(two.search(queries, wanted)) == answers(one.search(queries, wanted))
    skip = [0, 2500, *[-1] * 8]
    assert answers(two.search(queries, wanted, skip=skip)) == answers(
        one.search(queries, wanted, skip=skip)
    )


def test_rows_that_are_not_permitted_are_not_hits(made: Made, rng: np.random.Generator) -> None:
    truth = estimates(made.index, made.queries)
    for share in (0.5, 0.005, 0.0):
        permitted = (rng.random(ALL) < share).astype(np.uint8)
        wanted = SearchParams(limit=8, rerank="none")
        found = made.index.search(made.queries, wanted, permitted=permitted)
        for hits, expected in zip(found, best(truth, 8, permitted), strict=True):
            assert permitted[hits.rows].all()
            assert hits.explanation.candidates == permitted.sum()
            np.testing.assert_allclose(hits.scores[:8], expected, atol=2e-6)
    for rerank in RERANKS:
        wanted = SearchParams(limit=8, rerank=rerank)
        first = [int(hits.rows[0]) for hits in made.index.search(made.queries, wanted)]
        skipping = made.index.search(made.queries, wanted, skip=first)
        assert all(row not in hits.rows for row, hits in zip(first, skipping, strict=True))
        every = made.index.search(made.queries, replace(wanted, limit=ALL, recall=1.0), skip=first)
        assert [len(hits.rows) for hits in every] == [ALL - 1] * QUERIES
        assert all(row not in hits.rows for row, hits in zip(first, every, strict=True))


@every_kind
def test_equal_rows_tie_by_row_and_a_tie_at_the_limit_is_complete(params: BackendParams) -> None:
    rows = np.ones((80, DIM), np.float32)
    rows[40:, 0] = -5.0
    index = made_index(rows, DIM, params)
    for rerank in RERANKS:
        [hits] = index.search(rows[:1], SearchParams(limit=3, rerank=rerank))
        assert hits.rows.tolist() == list(range(40))


@forms
@every_kind
def test_no_rows_have_no_hits(
    rng: np.random.Generator, params: BackendParams, dim: int | None
) -> None:
    _, queries = data_of(rng)
    index = SmallIndex(CollectionConfig(dim=dim, backend=params), threads=2)
    for rerank in RERANKS:
        for some in (queries, queries[:1], queries[:0]):
            found = index.search(some, SearchParams(rerank=rerank))
            assert [len(hits.rows) for hits in found] == [0] * len(some)


@forms
@every_kind
def test_features_follow_rows_that_are_put_and_forgotten(
    rng: np.random.Generator, params: BackendParams, dim: int | None
) -> None:
    rows, queries = data_of(rng)
    wanted = SearchParams(limit=6, rerank="none")
    index = SmallIndex(CollectionConfig(dim=dim, backend=params)).add(rows[:200], [1, 100])
    improve(index)
    earlier, before = index.state, RowView(index.rows.view(), np.ones(200, np.uint8), 200)
    asked = index.prepare(queries)
    found = answers(row_hits(index.backend.search(earlier, before, asked, wanted)))
    index.add(rows[200:], [3, 0, 200])
    again = answers(row_hits(index.backend.search(earlier, before, asked, wanted)))
    assert again == found
    truth = estimates(index, queries)
    for hits, expected in zip(index.search(queries, wanted), best(truth, 6), strict=True):
        np.testing.assert_allclose(hits.scores[:6], expected, atol=2e-6)
    stays = rng.random(ALL) < 0.6
    left = index.search(queries, wanted, permitted=stays.astype(np.uint8))
    index.compact(stays)
    kept = np.flatnonzero(stays)
    for masked, after in zip(left, index.search(queries, wanted), strict=True):
        assert kept[after.rows].tolist() == masked.rows.tolist()
        assert after.scores.tolist() == masked.scores.tolist()
    index.add(rows[:5])
    assert len(state_of(index).features) >= len(kept) + 5
    mine = index.search(rows[:5], SearchParams(limit=1, recall=0.5))
    assert [hits.scores[0] for hits in mine] == [1.0] * 5


@forms
@nystroem
def test_landmarks_are_drawn_once_there_are_enough_live_rows(
    rng: np.random.Generator, params: NystroemParams, dim: int | None
) -> None:
    rows, queries = data_of(rng)
    index = SmallIndex(CollectionConfig(dim=dim, backend=params)).add(rows[:60])
    backend, state = index.backend, index.state
    assert not backend.is_overdue(state, 60, 49)
    assert backend.is_overdue(state, 60, 50)
    assert backend.saved(state) is None
    exact = made_index(rows[:60], dim, ExactParams())
    wanted = SearchParams(limit=5)
    assert answers(index.search(queries, wanted)) == answers(exact.search(queries, wanted))
    own = own_scores(index, queries)
    for rerank in ("own", "none"):  # there is nothing to estimate by
        for i, hits in enumerate(index.search(queries, SearchParams(limit=5, rerank=rerank))):
            assert hits.explanation.method == "scan"
            np.testing.assert_allclose(hits.scores[:5], best(own, 5)[i], atol=4e-6)
    alive = np.ones(60, np.uint8)
    alive[5:12] = 0
    improve(index, alive)
    improved = state_of(index)
    assert improved.map is not None
    assert improved.map.width <= 50
    assert improved.drawn_from == 53
    assert index.search(queries[:1], wanted)[0].explanation.method == params.kind
    assert not backend.is_overdue(improved, 211, 211)
    assert backend.is_overdue(improved, 212, 212)


@nystroem
def test_rows_put_while_landmarks_are_drawn_are_found(
    rng: np.random.Generator, params: NystroemParams
) -> None:
    rows, queries = data_of(rng)
    index = SmallIndex(CollectionConfig(dim=DIM, backend=params)).add(rows[:100])
    first, alive = index.rows.view(), np.ones(100, np.uint8)
    stopped = threading.Event()
    better = index.backend.optimize(index.state, first, alive, stopped)
    stopped.set()
    assert index.backend.optimize(index.state, first, alive, stopped) is None
    index.add(rows[100:])
    index.state = index.backend.adopt(index.state, index.rows.view(), better)
    assert state_of(index).rows == ALL
    truth = estimates(index, queries)
    found = index.search(queries, SearchParams(limit=6, rerank="none"))
    for hits, expected in zip(found, best(truth, 6), strict=True):
        np.testing.assert_allclose(hits.scores[:6], expected, atol=2e-6)


def test_what_is_kept_of_a_state_restores_it(made: Made) -> None:
    index, queries = made.index, made.queries
    backend, vectors = index.backend, index.rows.view()
    kept = backend.saved(index.state)
    assert (kept is None) == isinstance(made.params, FourierParams)
    none = SavedIndex(np.full((ALL, 1), -2, np.int32), {})
    wanted = SearchParams(limit=6, rerank="none")
    expected = answers(index.search(queries, wanted))
    codes = backend.encode(vectors)
    assert codes.shape == (ALL, backend.code_width) == (ALL, 0)
    index.state = backend.restore(vectors, codes, kept or none)
    assert answers(index.search(queries, wanted)) == expected
    if kept is not None:
        assert kept.links.shape == (ALL, 1)
        damaged: list[dict[str, object]] = [{}, {"map": {}}, kept.notes | {"drawn_from": "x"}]
        for notes in damaged:
            broken = backend.restore(vectors, codes, SavedIndex(none.links, notes))
            assert broken.map is None
            assert backend.is_overdue(broken, ALL, ALL)


@forms
@pytest.mark.parametrize(
    "params", [*KINDS, RandomBinningParams(scale=60.0, bands=8)], ids=lambda params: params.kind
)
def test_pairs_are_those_of_gmm(
    rng: np.random.Generator, params: BackendParams, dim: int | None
) -> None:
    rows, _ = data_of(rng)
    index, exact = made_index(rows, dim, params), made_index(rows, dim, ExactParams())
    alive = (rng.random(ALL) < 0.8).astype(np.uint8)
    view = RowView(index.rows.view(), alive, int(alive.sum()))
    found, expected = (
        each.backend.pairs(each.state, view, min_score=0.6, recall=0.9) for each in (index, exact)
    )
    assert len(expected[0])
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@every_kind
def test_memory_and_statistics_are_told(rng: np.random.Generator, params: BackendParams) -> None:
    rows, _ = data_of(rng)
    index = made_index(rows, DIM, params)
    backend, state = index.backend, state_of(index)
    assert isinstance(backend, FeatureBackend)
    assert state.map is not None
    stats = backend.stats(state)
    assert stats["features"] == state.map.width
    assert stats["bytes_per_item"] == state.features.shape[1] * 4
    held = stats["feature_bytes"] + stats["map_bytes"]
    assert backend.nbytes(state) == held >= ALL * stats["bytes_per_item"]
