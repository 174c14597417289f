"""Search by random bins: which candidates tables give, and how they are scored."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from gcws_search.index.backends import RandomBinningBackend
from gcws_search.index.contracts.arrays import UInt64s
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    RandomBinningParams,
    Rerank,
    SearchParams,
)
from tests.support.data import generated
from tests.support.data.adapters import LARGE_DIM
from tests.support.index.small_index import Rows, SmallIndex, all_scores, answers
from tests.support.statistics import SIGMAS

DIM = 24
ROWS, QUERIES = 600, 12
PARAMS = RandomBinningParams(scale=60.0, bands=8, seed=1)
SEARCH = SearchParams(limit=5, candidates=40)
RERANKS: tuple[Rerank, ...] = ("gmm", "own", "none")
Table = npt.NDArray[np.float64]


def small(dim: int | None, params: RandomBinningParams = PARAMS, *, threads: int = 1) -> SmallIndex:
    return SmallIndex(CollectionConfig(dim=dim, backend=params), threads=threads)


def backend_of(index: SmallIndex) -> RandomBinningBackend:
    assert isinstance(index.backend, RandomBinningBackend)
    return index.backend


def data(rng: np.random.Generator, dim: int | None) -> tuple[Rows, Rows]:
    rows, queries = generated.clustered(rng, ROWS, QUERIES, dim=DIM)
    if dim == DIM:
        return rows, queries
    return generated.sparse_of(rows), generated.sparse_of(queries)


def gathered_first(query: UInt64s, keys: UInt64s, wanted: int) -> set[int]:
    """Return the rows wanted by a slow reading of the rule: deepest prefix, table, row."""
    order = []
    for row, its in enumerate(keys):
        depths = []
        for a, b in zip(query.tolist(), its.tolist(), strict=True):
            same = 64 - (a ^ b).bit_length()
            depths.append(same // 4)
        deepest = max(depths)
        table = depths.index(deepest) if deepest else 0
        order.append((-deepest, table, row))
    return {row for _, _, row in sorted(order)[:wanted]}


@pytest.mark.parametrize("wanted", [5, 40, 300, 599])
def test_candidates_share_the_deepest_prefixes(rng: np.random.Generator, wanted: int) -> None:
    rows, queries = data(rng, DIM)
    index = small(DIM).add(rows)
    keys = index.backend.encode(index.rows.view())
    sought = index.backend.encode(index.prepare(queries))
    params = SearchParams(limit=wanted, candidates=wanted, rerank="none")
    for query, hits in zip(sought, index.search(queries, params), strict=True):
        assert set(hits.rows.tolist()) == gathered_first(query, keys, wanted)
        assert hits.explanation.candidates == wanted
        assert hits.explanation.method == "random_binning"
        assert hits.explanation.bands == 8
        assert hits.explanation.expected_recall == 0.0  # nothing is promised


@pytest.mark.parametrize("rerank", RERANKS)
def test_hits_do_not_depend_on_how_rows_were_sent_and_when(
    rng: np.random.Generator, rerank: Rerank
) -> None:
    params = replace(SEARCH, rerank=rerank)
    rows, queries = generated.clustered(rng, ROWS, QUERIES, dim=DIM)
    expected = answers(small(DIM).add(rows).search(queries, params))
    in_parts = small(DIM, threads=2).add(rows, [1, 250, 3, 300])
    assert answers(in_parts.search(queries, params)) == expected
    one_by_one = [in_parts.search(queries[i : i + 1], params)[0] for i in range(QUERIES)]
    assert answers(one_by_one) == expected
    sparse_rows, sparse_queries = (generated.sparse_of(each) for each in (rows, queries))
    for dim in (LARGE_DIM, None):
        found = small(dim).add(sparse_rows, [100]).search(sparse_queries, params)
        for hits, (expected_rows, scores) in zip(found, expected, strict=True):
            assert hits.rows.tolist() == expected_rows
            assert hits.scores.tolist() == pytest.approx(scores, rel=1e-9)


@pytest.mark.parametrize("dim", [DIM, None])
def test_hits_are_scored_by_gmm_by_the_own_kernel_or_by_collisions(
    rng: np.random.Generator, dim: int | None
) -> None:
    rows, queries = data(rng, dim)
    index = small(dim).add(rows)
    backend = backend_of(index)
    asked, held = index.prepare(queries), index.rows.view()
    theirs, ours = (backend.binning.sketch(batch) for batch in (asked, held))
    shares = np.mean(theirs[:, None] == ours, axis=2)
    truths: dict[Rerank, Table] = {
        "gmm": all_scores(queries, rows, DIM),
        "own": backend.kernel.scores(asked, held),
        "none": shares,
    }
    for rerank, truth in truths.items():
        for i, hits in enumerate(index.search(queries, replace(SEARCH, rerank=rerank))):
            assert len(hits.rows) >= SEARCH.limit
            np.testing.assert_allclose(hits.scores, truth[i, hits.rows], rtol=1e-6)
            assert np.all(np.diff(hits.scores) <= 0)


@pytest.mark.parametrize("dim", [DIM, None])
def test_asked_for_all_it_scans(rng: np.random.Generator, dim: int | None) -> None:
    rows, queries = data(rng, dim)
    index = small(dim).add(rows)
    own = backend_of(index).kernel.scores(index.prepare(queries), index.rows.view())
    for rerank, truth in (("gmm", all_scores(queries, rows, DIM)), ("own", own)):
        params = SearchParams(limit=5, recall=1.0, rerank=rerank)  # type: ignore[arg-type]
        for i, hits in enumerate(index.search(queries, params)):
            np.testing.assert_allclose(hits.scores, np.sort(truth[i])[::-1][:5], rtol=1e-6)
            assert hits.explanation.expected_recall == 1.0


def test_samples_collide_in_the_share_of_the_own_kernel(rng: np.random.Generator) -> None:
    rows, queries = generated.clustered(rng, 40, 1, dim=DIM)
    shares = []
    for seed in range(20):
        index = small(DIM, replace(PARAMS, seed=seed)).add(rows)
        params = SearchParams(limit=40, candidates=40, rerank="none")
        hits = index.search(queries, params)[0]
        shares.append(hits.scores[np.argsort(hits.rows)])
    kernel = backend_of(index).kernel
    law = kernel.scores(index.prepare(queries), index.rows.view())[0]
    drawn = np.array(shares)
    samples = 20 * index.backend.stats(index.state)["samples"]
    tolerance = SIGMAS * np.sqrt(law * (1 - law) / samples) + 1e-4
    np.testing.assert_array_less(np.abs(drawn.mean(axis=0) - law), tolerance)


def test_most_neighbours_by_the_own_kernel_are_among_the_candidates(
    rng: np.random.Generator,
) -> None:
    rows, queries = generated.clustered(rng, 4000, 40, dim=DIM)
    index = small(DIM, replace(PARAMS, bands=32)).add(rows)
    truth = backend_of(index).kernel.scores(index.prepare(queries), index.rows.view())
    least = np.sort(truth, axis=1)[:, -10]
    params = SearchParams(limit=10, candidates=400, rerank="own")
    found = index.search(queries, params)
    share = np.mean([np.mean(hits.scores[:10] >= least[i]) for i, hits in enumerate(found)])
    assert share > 0.9


@pytest.mark.parametrize("rerank", RERANKS)
def test_rows_that_are_not_permitted_skipped_or_gone_are_not_found(
    rng: np.random.Generator, rerank: Rerank
) -> None:
    params = replace(SEARCH, rerank=rerank)
    rows, _ = generated.clustered(rng, ROWS, 0, dim=DIM)
    queries, skip = rows[:QUERIES], list(range(QUERIES))
    index = small(DIM).add(rows, [300])
    stays = rng.random(ROWS) < 0.5
    stays[:QUERIES] = True
    masked = index.search(queries, params, permitted=stays.astype(np.uint8), skip=skip)
    for i, hits in enumerate(masked):
        assert np.all(stays[hits.rows])
        assert i not in hits.rows
        assert len(hits.rows) >= SEARCH.limit
    index.compact(stays)
    compacted = index.search(queries, params, skip=skip)
    kept = np.flatnonzero(stays)
    assert [kept[hits.rows].tolist() for hits in compacted] == [
        hits.rows.tolist() for hits in masked
    ]


def test_where_tables_know_too_few_others_are_taken(rng: np.random.Generator) -> None:
    rows, queries = generated.clustered(rng, ROWS, QUERIES, dim=DIM)
    index = small(DIM, replace(PARAMS, bands=1, scale=1e-3)).add(rows)
    for hits in index.search(queries, SearchParams(limit=50, candidates=80)):
        assert len(hits.rows) >= 50
        assert hits.explanation.candidates == 80


def test_tables_made_anew_of_the_codes_answer_alike(rng: np.random.Generator) -> None:
    rows, queries = generated.clustered(rng, ROWS, QUERIES, dim=DIM)
    index = small(DIM).add(rows, [10, 200])
    before = answers(index.search(queries, SEARCH))
    held = index.rows.view()
    codes = index.backend.encode(held)
    assert codes.shape == (ROWS, index.backend.code_width)
    assert index.backend.saved(index.state) is None
    index.state = index.backend.extend(index.backend.empty(), held, codes)
    assert answers(index.search(queries, SEARCH)) == before


def test_pairs_are_those_of_a_scan(rng: np.random.Generator) -> None:
    rows, _ = generated.clustered(rng, 120, 0, dim=DIM)
    index = small(DIM).add(rows)
    held = index.rows.view()
    view = RowView(held, np.ones(120, np.uint8), 120)
    a, b, scores = index.backend.pairs(index.state, view, min_score=0.5, recall=0.9)
    truth = np.triu(all_scores(rows, rows, DIM), 1)
    assert set(zip(a.tolist(), b.tolist(), strict=True)) == set(
        zip(*(each.tolist() for each in np.nonzero(truth >= 0.5)), strict=True)
    )
    np.testing.assert_allclose(scores, truth[a, b], rtol=1e-9)


def test_a_proof_is_refused(rng: np.random.Generator) -> None:
    rows, queries = generated.clustered(rng, 30, 1, dim=DIM)
    index = small(DIM).add(rows)
    with pytest.raises(InvalidParameter, match="guarantee: expected 'measured'"):
        index.search(queries, SearchParams(guarantee="proven"))


def test_statistics_count_what_is_held(rng: np.random.Generator) -> None:
    index = small(DIM)
    assert index.backend.stats(index.state)["bytes_per_item_and_table"] is None
    index.add(generated.clustered(rng, ROWS, 0, dim=DIM)[0])
    stats = index.backend.stats(index.state)
    assert stats["table_bytes"] == 12 * ROWS * 8
    assert index.backend.nbytes(index.state) == stats["table_bytes"] + stats["parameter_bytes"]
