"""Random binning: its collision law for every family, and search by random bins."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from gcws_search.index.backends import RandomBinningBackend
from gcws_search.index.comparison.random_binning import RandomBinning
from gcws_search.index.contracts.arrays import UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    Distribution,
    RandomBinningParams,
    Rerank,
    SearchParams,
)
from gcws_search.index.similarities import polya_kernel
from tests.support.data import generated
from tests.support.data.adapters import LARGE_DIM, batch_of
from tests.support.index.small_index import SmallIndex, answers
from tests.support.reference import kernels
from tests.support.statistics import assert_proportion

SAMPLES = 1 << 16
SEEDS = 4
DIM = 24
FAMILIES: list[tuple[Distribution, float | None]] = list(kernels.PITCHES)  # type: ignore[arg-type]
BIAS = 2e-5
"""Pitches come from cells of a quantile: of 1 + Poisson, a cell may lie across a jump."""


def batch_in(rows: generated.Floats, *, dense: bool) -> VectorBatch:
    return batch_of(rows if dense else generated.sparse_of(rows))


def binning_of(params: RandomBinningParams, batch: VectorBatch, samples: int = 64) -> RandomBinning:
    width = batch.dense.shape[1] if batch.form == "dense" else None
    return RandomBinning(params, samples=samples, dense_width=width)


def near_pair(rng: np.random.Generator) -> generated.Floats:
    """Two vectors of different norms, each with zeros where the other has none."""
    rows = rng.standard_normal((1, DIM)) + 0.1 * rng.standard_normal((2, DIM))
    rows[0, 3] = rows[1, 5] = 0.0
    rows[:, 7] = 0.0
    rows[1, 11] *= 1.3
    return np.asarray(rows, np.float32)


@pytest.mark.parametrize(("distribution", "shape"), FAMILIES)
@pytest.mark.parametrize("dense", [True, False])
def test_samples_collide_as_the_product_kernel_says(
    rng: np.random.Generator, dense: bool, distribution: Distribution, shape: float | None
) -> None:
    rows = near_pair(rng)
    batch = batch_in(rows, dense=dense)
    kernel = polya_kernel(distribution, shape, 6.0)
    hits = 0
    for seed in range(SEEDS):
        params = RandomBinningParams(distribution=distribution, shape=shape, scale=6.0, seed=seed)
        samples = SAMPLES // (1 if dense else 8)
        codes = binning_of(params, batch, samples).sketch(batch)
        hits += int(np.count_nonzero(codes[0] == codes[1]))
    law = float(kernel.scores(batch[:1], batch[1:])[0, 0])
    assert_proportion(hits, SEEDS * samples, law, slack=BIAS * DIM)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize(("distribution", "shape"), FAMILIES)
def test_a_vector_has_the_same_samples_dense_and_sparse_alone_and_in_a_batch(
    rng: np.random.Generator, distribution: Distribution, shape: float | None, scale: float
) -> None:
    rows = generated.clustered(rng, 20, 0, dim=DIM)[0]
    rows[rng.random(rows.shape) < 0.4] = 0.0
    rows[:, 0] = 1.0
    params = RandomBinningParams(distribution=distribution, shape=shape, scale=scale, seed=5)
    dense, sparse = (batch_in(rows, dense=each) for each in (True, False))
    by_table, by_stream = (binning_of(params, each) for each in (dense, sparse))
    one = by_table.sketch(dense)
    np.testing.assert_array_equal(by_stream.sketch(sparse), one)
    np.testing.assert_array_equal(by_stream.sketch(dense), one)  # where no table is kept
    for i in range(0, 20, 3):
        np.testing.assert_array_equal(by_table.sketch(dense[i : i + 1])[0], one[i])
        np.testing.assert_array_equal(by_stream.sketch(sparse[i : i + 1])[0], one[i])


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e6, 1e9, 1e37])
def test_numbers_next_to_each_other_differ_where_pitches_are_small(size: float) -> None:
    x = np.float32(size)
    rows = np.array([[x, 1.0], [np.nextafter(x, np.float32(np.inf)), 1.0], [-x, 1.0]], np.float32)
    batch = batch_of(rows)
    codes = binning_of(RandomBinningParams(scale=min(size / 1e9, 1e9)), batch, 4096).sketch(batch)
    # A pitch above 10^-7 of the number is 100 times the mean: e^-200.
    assert not np.any(codes[0] == codes[1])
    assert not np.any(codes[0] == codes[2])
    assert len(np.unique(codes[0])) > 4000


@pytest.mark.parametrize("distribution", ["gamma", "weibull"])
def test_pitches_near_0_tell_vectors_apart(
    rng: np.random.Generator, distribution: Distribution
) -> None:
    # A tenth of these pitches and more are below the least float32 number.
    params = RandomBinningParams(
        distribution=distribution, shape=0.05 if distribution == "weibull" else 0.02
    )
    rows = np.array([[1.0, 2.0], [1.0, 2.5]], np.float32)
    batch = batch_of(rows)
    codes = binning_of(params, batch, SAMPLES).sketch(batch)
    law = float(polya_kernel(distribution, params.shape).scores(batch[:1], batch[1:])[0, 0])
    assert_proportion(int(np.count_nonzero(codes[0] == codes[1])), SAMPLES, law, slack=BIAS)


def test_other_seeds_and_other_samples_are_independent(rng: np.random.Generator) -> None:
    rows = near_pair(rng)
    batch = batch_of(rows)
    collided = []
    for seed in range(2):
        codes = binning_of(RandomBinningParams(scale=6.0, seed=seed), batch, SAMPLES).sketch(batch)
        assert len(np.unique(codes[0])) > 0.99 * SAMPLES  # 32 bits, well spread
        collided.append(codes[0] == codes[1])
    p = float(np.mean(collided))
    both = int(np.count_nonzero(collided[0] & collided[1]))
    assert_proportion(both, SAMPLES, p * p, slack=4 * p * np.sqrt(p * (1 - p) / (2 * SAMPLES)))
    following = int(np.count_nonzero(collided[0][1:] & collided[0][:-1]))
    # The indicator of two samples in a row varies like p²(1 − p²) + 2p³(1 − p).
    spread = np.sqrt((p**2 * (1 - p**2) + 2 * p**3 * (1 - p)) / SAMPLES)
    slack = 4 * (spread + 2 * p * np.sqrt(p * (1 - p) / (2 * SAMPLES)))
    assert abs(following / (SAMPLES - 1) - p * p) < slack


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
    rows, queries = generated.clustered(rng, ROWS, QUERIES, dim=DIM)
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
    for dim in (LARGE_DIM, None):
        found = small(dim).add(rows, [100]).search(queries, params)
        for hits, (expected_rows, scores) in zip(found, expected, strict=True):
            assert hits.rows.tolist() == expected_rows
            assert hits.scores.tolist() == pytest.approx(scores, rel=1e-9)


@pytest.mark.parametrize("dim", [DIM, None])
def test_estimates_are_shares_of_collisions(rng: np.random.Generator, dim: int | None) -> None:
    rows, queries = generated.clustered(rng, ROWS, QUERIES, dim=DIM)
    index = small(dim).add(rows)
    sketch = backend_of(index).binning.sketch
    theirs, ours = sketch(index.prepare(queries)), sketch(index.rows.view())
    shares = np.mean(theirs[:, None] == ours, axis=2)
    for i, hits in enumerate(index.search(queries, replace(SEARCH, rerank="none"))):
        assert len(hits.rows) >= SEARCH.limit
        np.testing.assert_allclose(hits.scores, shares[i, hits.rows], rtol=1e-6)


@pytest.mark.parametrize("rerank", RERANKS)
def test_rows_that_are_skipped_are_not_found(rng: np.random.Generator, rerank: Rerank) -> None:
    rows, _ = generated.clustered(rng, ROWS, 0, dim=DIM)
    skip = list(range(QUERIES))
    params = replace(SEARCH, rerank=rerank)
    found = small(DIM).add(rows, [300]).search(rows[:QUERIES], params, skip=skip)
    assert all(row not in hits.rows for row, hits in zip(skip, found, strict=True))


def test_where_tables_know_too_few_others_are_taken(rng: np.random.Generator) -> None:
    rows, queries = generated.clustered(rng, ROWS, QUERIES, dim=DIM)
    index = small(DIM, replace(PARAMS, bands=1, scale=1e-3)).add(rows)
    for hits in index.search(queries, SearchParams(limit=50, candidates=80)):
        assert len(hits.rows) >= 50
        assert hits.explanation.candidates == 80


def test_statistics_count_what_is_held(rng: np.random.Generator) -> None:
    index = small(DIM)
    assert index.backend.stats(index.state)["bytes_per_item_and_table"] is None
    index.add(generated.clustered(rng, ROWS, 0, dim=DIM)[0])
    stats = index.backend.stats(index.state)
    assert stats["table_bytes"] == 12 * ROWS * 8
    assert index.backend.nbytes(index.state) == stats["table_bytes"] + stats["parameter_bytes"]
