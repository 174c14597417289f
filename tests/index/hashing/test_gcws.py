"""GCWS: the laws of the generator, and of collisions."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from gcws_search.index.contracts.batches import VectorBatch
from tests.support.data.adapters import (
    LARGE_DIM,
    HashParameters,
    Sketch,
    full_sketch,
    hash_parameters,
    prepared,
    space_of,
)
from tests.support.reference import mathematics
from tests.support.reference.gcws import fine_gammas, rate_bounds
from tests.support.statistics import SIGMAS, assert_proportion, variance_tolerance

Vector = dict[int, float]
MIN_P = 2 * float(stats.norm.sf(SIGMAS))
"""The p-value of 4 sigma, for tests that are no z-tests."""
DIM = 24
SAMPLES = 4096


def dense(values: npt.ArrayLike) -> Vector:
    return {i: x for i, x in enumerate(np.asarray(values, np.float32).tolist()) if x}


def pair_names() -> list[str]:
    return list(_pairs(np.random.default_rng(0)))


def _pairs(rng: np.random.Generator) -> dict[str, tuple[Vector, Vector]]:
    """Pairs of every kind: norms alike and far apart, signed and not, full and nearly empty."""
    u = rng.standard_normal(DIM)
    v = rng.standard_normal(DIM)
    positive = rng.gamma(1.0, size=DIM)
    heavy = rng.standard_t(1.5, size=DIM)
    counts = rng.poisson(1.0, DIM) + np.eye(DIM)[0]
    words = rng.choice(LARGE_DIM, 1500, replace=False).tolist()
    weights = rng.gamma(0.5, size=1500)
    return {
        "signed, unrelated": (dense(u), dense(v)),
        "signed, near": (dense(u), dense(u + 0.1 * v)),
        "signed, middling": (dense(u), dense(u + 0.7 * v)),
        "signed, opposite but for one": (dense(u), dense(-u + 3 * np.eye(DIM)[3])),
        "norms 1 : 2": (dense(u), dense(2 * u + 0.2 * v)),
        "norms 1 : 30": (dense(u), dense(30 * u + v)),
        "norms 100 : 1": (dense(100 * positive), dense(positive)),
        "positive": (dense(positive), dense(rng.gamma(1.0, size=DIM))),
        "heavy tails": (dense(heavy), dense(heavy + 0.3 * v)),
        "counts": (dense(counts), dense(rng.poisson(1.0, DIM) + np.eye(DIM)[0])),
        "subset": (dense(positive), dense(np.where(np.arange(DIM) < 8, positive, 0))),
        "single slot": ({3: 2.0}, {3: 0.75}),
        "one against many": ({3: 2.0}, dense(u)),
        "near-duplicates": (dense(u), dense(u * (1 + 0.003 * v))),
        "huge": (dense(1e30 * u), dense(1e30 * u + 2e29 * v)),
        "tiny": (dense(1e-30 * u), dense(1e-30 * u + 2e-31 * v)),
        "sparse": ({7: 1.0, 900: -2.0, 70_001: 0.5}, {7: 0.5, 900: -3.0, 5: 1.0}),
        "many slots": (
            dict(zip(words[:1000], weights[:1000].tolist(), strict=True)),
            dict(zip(words[500:], (2 * weights[500:]).tolist(), strict=True)),
        ),
        "sparse, far norms": ({7: 1.0, 90_000: 2.0}, {7: 20.0, 90_000: 2.0, 4: -5.0}),
    }


def dim_of(pair: tuple[Vector, Vector]) -> int:
    return DIM if max(max(u) for u in pair) < DIM else LARGE_DIM


def sketch_pair(pair: tuple[Vector, Vector], seed: int, samples: int = SAMPLES) -> Sketch:
    return full_sketch(prepared(space_of(dim_of(pair)), list(pair)), seed=seed, samples=samples)


def collisions(sketch: Sketch) -> npt.NDArray[np.bool_]:
    """Return for each sample whether rows 0 and 1 drew the same (i*, t*)."""
    same_slot = sketch.slots[0] == sketch.slots[1]
    return np.asarray(same_slot & (sketch.levels[0] == sketch.levels[1]))


# --- the generator -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parameters() -> HashParameters:
    return hash_parameters(seed=3, slots=100, samples=2048)


def uniforms(parameters: HashParameters) -> dict[str, npt.NDArray[np.float64]]:
    """Return r, c and β through their distribution functions: uniform if the law holds."""
    # That of gamma(2) is 1 - (1 + x) e^-x.
    r, c = (-np.expm1(-x) - x * np.exp(-x) for x in map(np.float64, (parameters.r, parameters.c)))
    return {"r": r, "c": c, "beta": parameters.beta.astype(np.float64)}


@pytest.mark.parametrize("name", ["r", "c", "beta"])
def test_r_and_c_are_gamma_2_and_beta_is_uniform(parameters: HashParameters, name: str) -> None:
    values = uniforms(parameters)[name]
    assert values.min() > 0
    assert name != "beta" or values.max() < 1
    assert stats.kstest(values.ravel(), "uniform").pvalue > MIN_P
    # Every slot over its samples, and samples over their slots.
    for axis in (values, values.T[:200]):
        p_values = [stats.kstest(line, "uniform").pvalue for line in axis]
        assert stats.kstest(p_values, "uniform").pvalue > MIN_P


@pytest.mark.parametrize("name", ["r", "c", "beta"])
def test_the_tails_of_the_parameters_are_populated(parameters: HashParameters, name: str) -> None:
    values = uniforms(parameters)[name].ravel()
    for share in (0.0005, 0.01):
        assert_proportion(int(np.sum(values < share)), values.size, share)
        assert_proportion(int(np.sum(values > 1 - share)), values.size, share)


def assert_uncorrelated(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> None:
    """Fail when two sets of uniforms are correlated, linearly or by cells of a 16 × 16 grid."""
    n = a.size
    correlation = float(np.corrcoef(a.ravel(), b.ravel())[0, 1])
    assert abs(correlation) < SIGMAS / math.sqrt(n)
    cells, _, _ = np.histogram2d(a.ravel(), b.ravel(), bins=16, range=[[0, 1], [0, 1]])
    surplus = float(np.sum((cells - n / 256) ** 2 / (n / 256)))
    assert MIN_P < stats.chi2(255).sf(surplus) < 1 - MIN_P


@pytest.mark.parametrize(("one", "other"), [("r", "c"), ("r", "beta"), ("c", "beta")])
def test_the_parameters_of_one_sample_are_independent(
    parameters: HashParameters, one: str, other: str
) -> None:
    assert_uncorrelated(uniforms(parameters)[one], uniforms(parameters)[other])


ALL = slice(None)
APART: dict[str, tuple[Any, Any]] = {
    **{f"samples, {n}": ((ALL, slice(n, None)), (ALL, slice(-n))) for n in (1, 2, 16, 17, 1024)},
    **{f"slots, {n}": (slice(n, None), slice(-n)) for n in (1, 2, 50)},
    "the two signs of a coordinate": (slice(0, None, 2), slice(1, None, 2)),
}


@pytest.mark.parametrize("name", ["r", "c", "beta"])
@pytest.mark.parametrize("apart", APART)
def test_samples_slots_and_signs_are_independent(
    parameters: HashParameters, name: str, apart: str
) -> None:
    values = uniforms(parameters)[name]
    one, other = APART[apart]
    assert_uncorrelated(values[one], values[other])


@pytest.mark.parametrize("name", ["r", "c", "beta"])
@pytest.mark.parametrize("other_seed", [2, 4, 3 + 2**32, 3 + 2**62])
def test_seeds_are_independent(parameters: HashParameters, name: str, other_seed: int) -> None:
    other = hash_parameters(seed=other_seed, slots=100, samples=2048)
    assert_uncorrelated(uniforms(parameters)[name], uniforms(other)[name])
    shifted = (uniforms(parameters)[name][1:], uniforms(other)[name][:-1])
    assert_uncorrelated(*shifted)


def test_r_is_made_of_uniforms_of_32_bits_and_never_0(rng: np.random.Generator) -> None:
    halves = rng.integers(0, 2**16, (3, 4096)) >> rng.integers(0, 17, (3, 4096))
    halves[:, :16], halves[:, 16:32] = 0, 2**16 - 1
    first, second, end = halves
    ignored = rng.integers(0, 2**16, 4096)  # of the third word only the lower half counts
    words, endings = first << 16 | second, ignored << 16 | end
    r = fine_gammas(
        words.astype(np.uint32).view(np.int32), endings.astype(np.uint32).view(np.int32)
    )
    u, v = ((half * 2.0**16 + end + 0.5) * 2.0**-32 for half in (first, second))
    # Halves are rounded to 24 bits, a logarithm to 10^-5, and r is kept from 0 by 2^-20.
    np.testing.assert_allclose(r, -np.log(u * v), rtol=2e-5, atol=2e-6)
    assert r.min() > 2.0**-21
    assert r.max() > 45


def test_the_bound_made_without_logarithms_is_below_and_near(parameters: HashParameters) -> None:
    bound = rate_bounds(seed=3, slots=100, samples=2048)
    share = bound / (parameters.c * np.exp(-parameters.r.astype(np.float64)))
    # log_quick is right to 10^-5: of r up to 24 that is 2.4·10^-4. What skips adds 2·10^-3.
    assert np.all(share < 1 + 1e-3)
    assert np.all(bound >= 0)
    # Where c is small, as it is of those that win.
    assert np.median(share[parameters.c < 0.5]) > 0.97


# --- the collision law -------------------------------------------------------------------------


@pytest.mark.parametrize("name", pair_names())
def test_a_sample_collides_with_probability_gmm(rng: np.random.Generator, name: str) -> None:
    pair = _pairs(rng)[name]
    seeds = range(32)
    hits = sum(int(collisions(sketch_pair(pair, seed)).sum()) for seed in seeds)
    # The reference takes float64 values, the hash their float32: a difference below 1e-6.
    assert_proportion(hits, len(seeds) * SAMPLES, mathematics.gmm(*pair), slack=1e-6)


def test_the_collision_law_holds_without_bias_over_all_pairs(rng: np.random.Generator) -> None:
    surplus, variance = 0.0, 0.0
    for number, pair in enumerate(_pairs(rng).values()):
        similarity = mathematics.gmm(*pair)
        for seed in range(16):
            hits = collisions(sketch_pair(pair, 1000 * number + seed + 17))
            surplus += float(hits.sum()) - hits.size * similarity
            variance += hits.size * similarity * (1 - similarity)
    assert abs(surplus) < SIGMAS * math.sqrt(variance)


@pytest.mark.parametrize(("count", "samples"), [(10_000, 65_536), (100_000, 8192)])
def test_the_collision_law_holds_where_one_slot_wins_among_very_many(
    rng: np.random.Generator, count: int, samples: int
) -> None:
    """Uniforms of 16 bits would be 5 and 6 sigma off here."""
    u = rng.uniform(0.5, 1.5, count).astype(np.float32)
    v = (0.1 * u * rng.uniform(0.8, 1.2, count)).astype(np.float32)
    batch = VectorBatch(
        "sparse",
        indptr=np.array([0, count, 2 * count]),
        slots=np.tile(np.sort(rng.choice(2**32 - 1, count, replace=False)), 2).astype(np.uint32),
        values=np.concatenate([u, v]),
        norms=np.array([u.sum(), v.sum()]),
    )
    hits, together = 0, 1024
    for seed in range(samples // together):
        hits += int(collisions(full_sketch(batch, seed=seed, samples=together)).sum())
    low, high = np.minimum(u, v, dtype=np.float64), np.maximum(u, v, dtype=np.float64)
    assert_proportion(hits, samples, float(low.sum() / high.sum()))


@pytest.mark.parametrize("name", ["signed, middling", "norms 1 : 30", "sparse"])
def test_the_estimate_over_seeds_is_unbiased_with_the_variance_of_theory(
    rng: np.random.Generator, name: str
) -> None:
    pair = _pairs(rng)[name]
    similarity = mathematics.gmm(*pair)
    samples, seeds = 64, 1500
    estimates = [
        float(collisions(sketch_pair(pair, 10_000 + seed, samples)).mean()) for seed in range(seeds)
    ]
    variance = similarity * (1 - similarity) / samples
    assert abs(np.mean(estimates) - similarity) < SIGMAS * math.sqrt(variance / seeds)
    # Kurtosis of a binomial mean is 3 to within 1/samples·variance: the normal bound serves.
    assert abs(np.var(estimates, ddof=1) - variance) < 1.1 * variance_tolerance(variance, seeds)


def test_identical_vectors_always_collide_and_disjoint_ones_never(rng: np.random.Generator) -> None:
    u = dense(rng.standard_normal(DIM))
    opposite = {i: -x for i, x in u.items()}
    assert collisions(sketch_pair((u, dict(u)), 1)).all()
    assert not collisions(sketch_pair((u, opposite), 1)).any()
    assert not collisions(sketch_pair(({1: 1.0}, {2: 1.0}), 1)).any()
