"""Backends of real features: the best by estimate, scored as asked."""

import numpy as np
import pytest

from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    SearchParams,
)
from tests.support.index.features import (
    ALL,
    DIM,
    QUERIES,
    best,
    data_of,
    estimates,
    every_kind,
    forms,
    made_index,
    own_scores,
)
from tests.support.index.small_index import SmallIndex, all_scores, answers


@forms
@every_kind
def test_hits_are_the_best_by_estimate(
    rng: np.random.Generator, params: BackendParams, dim: int | None
) -> None:
    rows, queries = data_of(rng, dim)
    index = made_index(rows, dim, params)
    truth = estimates(index, queries)
    found = index.search(queries, SearchParams(limit=20, rerank="none"))
    for i, (hits, expected) in enumerate(zip(found, best(truth, 20), strict=True)):
        assert len(set(hits.rows.tolist())) == len(hits.rows) >= 20
        np.testing.assert_allclose(hits.scores, truth[i, hits.rows], atol=2e-6)
        np.testing.assert_allclose(hits.scores[:20], expected, atol=2e-6)
        assert (np.diff(hits.scores) <= 0).all()
        assert hits.explanation.method == params.kind
        assert (hits.explanation.candidates, hits.explanation.scored) == (ALL, 0)


@forms
@every_kind
def test_candidates_are_scored_by_exact_gmm(
    rng: np.random.Generator, params: BackendParams, dim: int | None
) -> None:
    rows, queries = data_of(rng, dim)
    index = made_index(rows, dim, params)
    truth, gmm = estimates(index, queries), all_scores(queries, rows, DIM)
    found = index.search(queries, SearchParams(limit=5, candidates=40))
    for i, hits in enumerate(found):
        np.testing.assert_allclose(hits.scores, gmm[i, hits.rows], rtol=1e-12)
        pool = np.argsort(-truth[i])[:40]
        sure = truth[i, pool] > truth[i, pool[-1]] + 4e-6
        reachable = np.sort(gmm[i, pool[sure]])[::-1][:5]
        assert (hits.scores[: len(reachable)] >= reachable * (1 - 1e-12)).all()
        assert hits.explanation.scored == 40
    everything = index.search(queries, SearchParams(limit=5, candidates=ALL))
    for hits, expected in zip(everything, best(gmm, 5), strict=True):
        np.testing.assert_allclose(hits.scores[:5], expected, rtol=1e-12)


@forms
@every_kind
def test_candidates_are_scored_by_the_kernel_that_is_estimated(
    rng: np.random.Generator, params: BackendParams, dim: int | None
) -> None:
    rows, queries = data_of(rng, dim)
    index = made_index(rows, dim, params)
    own = own_scores(index, queries)
    for wanted in (
        SearchParams(limit=5, rerank="own", candidates=ALL),
        SearchParams(limit=5, rerank="own", recall=1.0),
    ):
        for i, hits in enumerate(index.search(queries, wanted)):
            # GMM as a kernel is of float32, hits are not.
            np.testing.assert_allclose(hits.scores[:5], best(own, 5)[i], atol=4e-6)
            np.testing.assert_allclose(hits.scores, own[i, hits.rows], atol=4e-6)


@forms
@every_kind
def test_a_recall_of_1_is_an_exact_scan(
    rng: np.random.Generator, params: BackendParams, dim: int | None
) -> None:
    rows, queries = data_of(rng, dim)
    index = made_index(rows, dim, params)
    exact = made_index(rows, dim, ExactParams())
    wanted = SearchParams(limit=7, recall=1.0, min_score=0.1)
    found = index.search(queries, wanted)
    assert answers(found) == answers(exact.search(queries, wanted))
    assert {hits.explanation.method for hits in found} == {"scan"}
    assert {hits.explanation.expected_recall for hits in found} == {1.0}


@forms
@every_kind
@pytest.mark.parametrize("rerank", ["gmm", "own", "none"])
def test_answers_are_the_same_alone_in_a_batch_and_on_any_threads(
    rng: np.random.Generator, params: BackendParams, dim: int | None, rerank: str
) -> None:
    rows, queries = data_of(rng, dim)
    wanted = SearchParams(limit=6, rerank=rerank, candidates=15)  # type: ignore[arg-type]
    index = made_index(rows, dim, params)
    expected = answers(index.search(queries, wanted))
    state = index.state
    for threads in (1, 2, 12):
        other = made_index(rows, dim, params, threads=threads)
        other.state = state  # bases of eigenvectors are arbitrary
        assert answers(other.search(queries, wanted)) == expected
        singles = [answers(other.search(queries[i : i + 1], wanted))[0] for i in range(QUERIES)]
        assert singles == expected


@forms
@every_kind
def test_rows_that_are_not_permitted_are_not_hits(
    rng: np.random.Generator, params: BackendParams, dim: int | None
) -> None:
    rows, queries = data_of(rng, dim)
    index = made_index(rows, dim, params)
    truth = estimates(index, queries)
    wanted = SearchParams(limit=8, rerank="none")
    for share in (0.5, 0.005, 0.0):
        permitted = (rng.random(ALL) < share).astype(np.uint8)
        found = index.search(queries, wanted, permitted=permitted)
        for hits, expected in zip(found, best(truth, 8, permitted), strict=True):
            assert permitted[hits.rows].all()
            assert hits.explanation.candidates == permitted.sum()
            np.testing.assert_allclose(hits.scores[:8], expected, atol=2e-6)
    for rerank in ("gmm", "own", "none"):
        wanted = SearchParams(limit=8, rerank=rerank)
        first = [int(hits.rows[0]) for hits in index.search(queries, wanted)]
        for hits, skipped in zip(index.search(queries, wanted, skip=first), first, strict=True):
            assert skipped not in hits.rows


@every_kind
def test_hits_reach_the_least_score(rng: np.random.Generator, params: BackendParams) -> None:
    rows, queries = data_of(rng, DIM)
    index = made_index(rows, DIM, params)
    for rerank in ("gmm", "own", "none"):
        every = SearchParams(limit=50, rerank=rerank)
        some = SearchParams(limit=50, rerank=rerank, min_score=0.3)
        for all_hits, hits in zip(
            index.search(queries, every), index.search(queries, some), strict=True
        ):
            kept = all_hits.scores >= 0.3
            assert hits.rows.tolist() == all_hits.rows[kept].tolist()


@every_kind
def test_equal_rows_tie_by_row_and_a_tie_at_the_limit_is_complete(params: BackendParams) -> None:
    rows = np.ones((80, DIM), np.float32)
    rows[40:, 0] = -5.0
    index = made_index(rows, DIM, params)
    for rerank in ("gmm", "own", "none"):
        wanted = SearchParams(limit=3, rerank=rerank)
        hits = index.search(rows[:1], wanted)[0]
        assert hits.rows.tolist() == list(range(40))


@every_kind
def test_a_proof_is_refused(rng: np.random.Generator, params: BackendParams) -> None:
    rows, queries = data_of(rng, DIM)
    index = made_index(rows, DIM, params)
    with pytest.raises(InvalidParameter) as raised:
        index.search(queries, SearchParams(guarantee="proven"))
    assert raised.value.loc == ("guarantee",)


@forms
@every_kind
def test_no_rows_have_no_hits(
    rng: np.random.Generator, params: BackendParams, dim: int | None
) -> None:
    _, queries = data_of(rng, dim)
    index = SmallIndex(CollectionConfig(dim=dim, backend=params), threads=2)
    for rerank in ("gmm", "own", "none"):
        wanted = SearchParams(rerank=rerank)
        for some in (queries, queries[:1], queries[:0]):
            found = index.search(some, wanted)
            assert [len(hits.rows) for hits in found] == [0] * len(some)
