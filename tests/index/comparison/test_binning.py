"""Random binning: its collision law for every family, and one vector one sketch."""

import numpy as np
import pytest

from gcws_search.index.comparison.random_binning import RandomBinning
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import Distribution, RandomBinningParams
from gcws_search.index.similarities import polya_kernel
from tests.support.data import generated
from tests.support.data.adapters import from_csr, space_of
from tests.support.reference import kernels
from tests.support.statistics import assert_proportion

SAMPLES = 1 << 16
SEEDS = 4
DIM = 24
FAMILIES: list[tuple[Distribution, float | None]] = list(kernels.PITCHES)  # type: ignore[arg-type]
BIAS = 2e-5
"""Pitches come from cells of a quantile: of 1 + Poisson, a cell may lie across a jump."""
Rows = generated.Floats


def dense_batch(rows: Rows) -> VectorBatch:
    space = space_of(rows.shape[1])
    return space.prepare(space.from_dense(rows))


def sparse_batch(rows: Rows) -> VectorBatch:
    space = space_of(None)
    return space.prepare(from_csr(space, generated.sparse_of(rows.astype(np.float32))))


def of_dense(params: RandomBinningParams, batch: VectorBatch, samples: int = 64) -> RandomBinning:
    return RandomBinning(params, samples=samples, dense_width=batch.dense.shape[1])


def of_sparse(params: RandomBinningParams, samples: int = 64) -> RandomBinning:
    return RandomBinning(params, samples=samples, dense_width=None)


def near_pair(rng: np.random.Generator) -> Rows:
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
    batch = dense_batch(rows) if dense else sparse_batch(rows)
    kernel = polya_kernel(distribution, shape, 6.0)
    hits = 0
    for seed in range(SEEDS):
        params = RandomBinningParams(distribution=distribution, shape=shape, scale=6.0, seed=seed)
        samples = SAMPLES // (1 if dense else 8)
        binning = of_dense(params, batch, samples) if dense else of_sparse(params, samples)
        codes = binning.sketch(batch)
        hits += int(np.count_nonzero(codes[0] == codes[1]))
    law = float(kernel.scores(batch[:1], batch[1:])[0, 0])
    assert_proportion(hits, SEEDS * samples, law, slack=BIAS * DIM)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize(("distribution", "shape"), FAMILIES)
def test_a_vector_has_the_same_samples_dense_and_sparse(
    rng: np.random.Generator, distribution: Distribution, shape: float | None, scale: float
) -> None:
    rows = generated.clustered(rng, 20, 0, dim=DIM)[0]
    rows[rng.random(rows.shape) < 0.4] = 0.0
    rows[:, 0] = 1.0
    params = RandomBinningParams(distribution=distribution, shape=shape, scale=scale, seed=5)
    dense, sparse = dense_batch(rows), sparse_batch(rows)
    one = of_dense(params, dense).sketch(dense)
    np.testing.assert_array_equal(of_sparse(params).sketch(sparse), one)
    np.testing.assert_array_equal(of_sparse(params).sketch(dense), one)  # where no table is kept


def test_a_vector_has_the_same_samples_alone_and_in_a_batch(
    rng: np.random.Generator,
) -> None:
    rows = generated.clustered(rng, 9, 0, dim=DIM)[0]
    for batch in (dense_batch(rows), sparse_batch(rows)):
        dense = batch.form == "dense"
        params = RandomBinningParams(seed=3)
        binning = of_dense(params, batch) if dense else of_sparse(params)
        whole = binning.sketch(batch)
        for i in range(len(batch)):
            np.testing.assert_array_equal(binning.sketch(batch[i : i + 1])[0], whole[i])


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("scale", [1e-7, 1.0, 30.0])
@pytest.mark.parametrize("count", [1, 16, 300])
def test_shares_of_common_samples_are_those_of_the_samples(
    rng: np.random.Generator, count: int, scale: float, dense: bool
) -> None:
    rows = generated.clustered(rng, count + 1, 0, dim=DIM)[0]
    rows[:, 0], rows[:, 1] = 1.0, rng.choice([-1e8, 0.0, 2.0, 1e8], count + 1)
    rows[-1] = rows[0]
    batch = dense_batch(rows) if dense else sparse_batch(rows)
    params = RandomBinningParams(distribution="exponential", scale=scale)
    binning = of_dense(params, batch) if dense else of_sparse(params)
    samples = binning.sketch(batch)
    shares = binning.overlaps(batch[:1], batch[1:])
    np.testing.assert_array_equal(shares, np.mean(samples[1:] == samples[0], axis=1))
    assert shares[-1] == 1.0


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e6, 1e9, 1e37])
def test_numbers_next_to_each_other_differ_where_pitches_are_small(size: float) -> None:
    x = np.float32(size)
    rows = np.array([[x, 1.0], [np.nextafter(x, np.float32(np.inf)), 1.0], [-x, 1.0]], np.float32)
    batch = dense_batch(rows)
    codes = of_dense(RandomBinningParams(scale=min(size / 1e9, 1e9)), batch, 4096).sketch(batch)
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
    batch = dense_batch(rows)
    codes = of_dense(params, batch, SAMPLES).sketch(batch)
    law = float(polya_kernel(distribution, params.shape).scores(batch[:1], batch[1:])[0, 0])
    assert_proportion(int(np.count_nonzero(codes[0] == codes[1])), SAMPLES, law, slack=BIAS)


def test_other_seeds_and_other_samples_are_independent(rng: np.random.Generator) -> None:
    rows = near_pair(rng)
    batch = dense_batch(rows)
    collided = []
    for seed in range(2):
        codes = of_dense(RandomBinningParams(scale=6.0, seed=seed), batch, SAMPLES).sketch(batch)
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


def test_unrelated_vectors_hardly_ever_collide(rng: np.random.Generator) -> None:
    batch = dense_batch(100.0 * rng.standard_normal((40, DIM)).astype(np.float32))
    codes = of_dense(RandomBinningParams(), batch, 4096).sketch(batch)
    pairs = sum(int(np.count_nonzero(codes[i] == codes[:i])) for i in range(len(codes)))
    assert pairs <= 2  # of 3.2 million, each with a chance of 2^-32
