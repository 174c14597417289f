"""Feature maps estimate their kernels as theory says, however a vector is sent."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from gcws_search.index.comparison.features import FourierMap, map_rows
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import FourierKind, FourierParams
from gcws_search.index.kernels.hashing.fourier import fill_normals, fill_phases
from gcws_search.index.threads import Workers
from tests.support.data.adapters import LARGE_DIM, batch_of, dense_of, prepared, space_of
from tests.support.data.generated import Floats, mappings
from tests.support.reference import fourier as theory
from tests.support.statistics import SIGMAS

KINDS: tuple[FourierKind, ...] = ("rff", "nrff", "folded_rff")
Doubles = npt.NDArray[np.float64]


def made_map(kind: FourierKind, dim: int | None, *, threads: int = 1, **more: float) -> FourierMap:
    dense = dim is not None and dim <= 4096
    width = -(-dim // 16) * 16 if dim is not None and dense else None
    params = FourierParams(kind=kind, **{"features": 64, **more})  # type: ignore[arg-type]
    return FourierMap(params, width, Workers(threads))


def features_of(own_map: FourierMap, batch: VectorBatch) -> Floats:
    return map_rows(own_map, batch)[:, : own_map.width]


def plain_features(
    batch: VectorBatch, kind: FourierKind, *, features: int, gamma: float, seed: int = 0
) -> Doubles:
    """Return features by the formulas in float64, from the drawn projection and phases."""
    width, padded = batch.dense.shape[1], -(-features // 16) * 16
    matrix = np.empty((width, padded), np.float32)
    fill_normals(np.uint64(seed), 0, matrix)
    phases = np.empty(padded, np.float32)
    fill_phases(np.uint64(seed), phases)
    rows = batch.dense.astype(np.float64)
    rows /= np.sqrt((rows**2).sum(axis=1, keepdims=True))
    angles = math.sqrt(gamma) * rows @ matrix[:, :features].astype(np.float64)
    if kind == "folded_rff":
        made: Doubles = np.cos(angles) / math.sqrt(features)
        return made
    made = np.cos(angles + 2 * np.pi * phases[:features]) * math.sqrt(2 / features)
    if kind == "nrff":
        made /= np.sqrt((made**2).sum(axis=1, keepdims=True))
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("features", [1, 16, 100, 272])
@pytest.mark.parametrize("gamma", [0.1, 1.0, 300.0])
def test_features_are_those_of_the_formulas(
    rng: np.random.Generator, kind: FourierKind, features: int, gamma: float
) -> None:
    dim = 37
    batch = batch_of(rng.standard_normal((61, dim)))
    made = features_of(made_map(kind, dim, features=features, gamma=gamma, seed=5), batch)
    assert made.shape == (61, features)
    assert made.dtype == np.float32
    expected = plain_features(batch, kind, features=features, gamma=gamma, seed=5)
    # Angles of up to 6√γ, and their sums, are rounded to float32.
    error = 4e-6 * max(1.0, math.sqrt(gamma))
    if kind == "nrff" and features == 1:  # ±1, whose sign is sure where the cosine is not near 0
        np.testing.assert_allclose(np.abs(made), 1.0, rtol=1e-6)
    else:
        np.testing.assert_allclose(made, expected, atol=error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("features", [40, 64])
def test_a_vector_has_the_same_features_dense_and_sparse_alone_and_in_a_batch(
    rng: np.random.Generator, kind: FourierKind, features: int
) -> None:
    dim = 50
    vectors = mappings(rng, 103, dim)
    batch = batch_of(dense_of(vectors, dim))
    expected = features_of(made_map(kind, dim, features=features), batch)
    for threads in (1, 2, 3):
        for other in (dim, LARGE_DIM, None):
            maker = made_map(kind, other, threads=threads, features=features)
            same = prepared(space_of(other), vectors)
            made = features_of(maker, same)
            np.testing.assert_allclose(made, expected, atol=2e-6)
            np.testing.assert_array_equal(features_of(maker, same[7:8]), made[7:8])
            np.testing.assert_array_equal(features_of(maker, same[60:]), made[60:])
            assert features_of(maker, same[:0]).shape == (0, features)


@pytest.mark.parametrize("dim", [24, None])
def test_features_do_not_depend_on_the_length_of_a_vector(
    rng: np.random.Generator, dim: int | None
) -> None:
    vectors = mappings(rng, 9, 24)
    maker = made_map("nrff", dim)
    expected = features_of(maker, prepared(space_of(dim), vectors))
    for factor in (2.0**-100, 2.0**90):
        scaled = [{i: x * factor for i, x in row.items()} for row in vectors]
        made = features_of(maker, prepared(space_of(dim), scaled))
        np.testing.assert_array_equal(made, expected)


# --- the numbers drawn -------------------------------------------------------------------------


def drawn(seed: int, coordinates: int, features: int) -> Doubles:
    matrix = np.empty((coordinates, features), np.float32)
    fill_normals(np.uint64(seed), 0, matrix)
    return matrix.astype(np.float64)


def test_projections_are_normal_and_independent() -> None:
    n, k = 256, 1024
    r = drawn(3, n, k)
    count = n * k
    # E of x, x², x³, x⁴ is 0, 1, 0, 3; Var is 1, 2, 15, 96.
    for power, (mean, variance) in enumerate([(0, 1), (1, 2), (0, 15), (3, 96)], 1):
        assert abs(np.mean(r**power) - mean) <= SIGMAS * math.sqrt(variance / count)
    for a, b in (
        (r[:-1], r[1:]),
        (r[:, :-1], r[:, 1:]),
        (r[:, :-16], r[:, 16:]),  # the two of a pair, among others
        (r[:, :16], drawn(4, n, 16)),
    ):
        assert abs(np.mean(a * b)) <= SIGMAS / math.sqrt(a.size)
        squares = (a**2 - 1) * (b**2 - 1) / 2
        assert abs(np.mean(squares)) <= SIGMAS / math.sqrt(a.size)


def test_phases_are_uniform_turns() -> None:
    phases = np.empty(1 << 14, np.float32)
    fill_phases(np.uint64(1), phases)
    assert 0 < phases.min() < phases.max() < 1
    assert abs(phases.mean() - 0.5) <= SIGMAS * math.sqrt(1 / 12 / len(phases))
    assert abs((phases**2).mean() - 1 / 3) <= SIGMAS * math.sqrt(4 / 45 / len(phases))


# --- laws --------------------------------------------------------------------------------------

FEATURES = 256
SEEDS = 3000


def estimates(kind: FourierKind, rho: float, gamma: float) -> Doubles:
    """Return the estimate of the kernel of two vectors of cosine ``rho`` for many seeds."""
    batch = batch_of(np.array([[1.0, 0.0], [rho, math.sqrt(1 - rho**2)]]))
    made = [
        features_of(made_map(kind, 2, features=FEATURES, gamma=gamma, seed=seed), batch)
        for seed in range(SEEDS)
    ]
    return np.array([float(a.astype(np.float64) @ b) for a, b in made])


def assert_law(found: Doubles, mean: float, variance: float, *, bias: float, excess: float) -> None:
    """Fail unless the estimates have this mean and variance, up to known terms of higher order."""
    n = len(found)
    assert abs(found.mean() - mean) <= SIGMAS * math.sqrt(variance / n) + bias
    # Means of many features are near normal, but not quite: the fourth moment is their own.
    fourth = np.mean((found - found.mean()) ** 4)
    error = SIGMAS * math.sqrt(max(fourth - variance**2, variance**2) / n)
    assert abs(found.var(ddof=1) - variance) <= error + excess * variance


PAIRS = [(0.9, 2.0), (0.0, 5.0), (-0.4, 0.5)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rho", "gamma"), PAIRS)
def test_features_estimate_their_kernels_with_the_variance_of_theory(
    kind: FourierKind, rho: float, gamma: float
) -> None:
    kernel, variance_of = {
        "rff": (theory.rbf, theory.rff_variance),
        "nrff": (theory.rbf, theory.nrff_variance),
        "folded_rff": (theory.folded_rbf, theory.folded_variance),
    }[kind]
    assert theory.nrff_variance(rho, gamma) < theory.rff_variance(rho, gamma)
    # nrff is a ratio of means: bias and the excess of its variance are of the order of 1/k.
    bias, excess = (1 / FEATURES, 8 / FEATURES) if kind == "nrff" else (0.0, 0.0)
    variance = variance_of(rho, gamma) / FEATURES
    found = estimates(kind, rho, gamma)
    assert_law(found, kernel(rho, gamma), variance, bias=bias, excess=excess)
