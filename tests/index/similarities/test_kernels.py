"""Exact kernels: against their definitions, dense and sparse; what they refuse."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

from gcws_search.index.contracts.batches import SparseVector, VectorBatch
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import Distribution
from gcws_search.index.similarities import (
    KERNEL_NAMES,
    Kernel,
    cosines,
    folded_differences,
    folded_rbf,
    gaussian,
    kernel_named,
    laplace,
    polya,
    polya_along,
    polya_kernel,
    rbf,
    score,
)
from tests.support.data import generated
from tests.support.data.adapters import LARGE_DIM, batch_of, signed_rows
from tests.support.reference import kernels, mathematics

PARAMS: dict[str, dict[str, float]] = {
    "rbf": {"gamma": 3.0},
    "folded_rbf": {"gamma": 3.0},
    "laplace": {"scale": 30.0},
    "gaussian": {"scale": 5.0},
}
RELATIVE = 1e-9
"""The truth is a sum of float64 roundings, times γ; kernels of float32 vectors, in float64."""


def rows_of(rng: np.random.Generator, *, dense: bool) -> tuple[VectorBatch, VectorBatch]:
    rows, others = generated.clustered(rng, 30, 7, dim=37)
    if dense:
        return batch_of(rows), batch_of(others)
    one, other = (batch_of(generated.sparse_of(each), LARGE_DIM) for each in (rows, others))
    return one, other


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("name", list(PARAMS))
def test_blocks_agree_with_the_definition(rng: np.random.Generator, name: str, dense: bool) -> None:
    rows, others = rows_of(rng, dense=dense)
    values = kernel_named(name, PARAMS[name]).scores(others, rows)
    truth = [
        [kernels.kernel(name, u, v, **PARAMS[name]) for v in signed_rows(rows)]
        for u in signed_rows(others)
    ]
    np.testing.assert_allclose(values, truth, rtol=RELATIVE)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(
    ("distribution", "shape"),
    [("gamma", 0.5), ("gamma", 3.0), ("half_normal", None), ("shifted_poisson", 4.0)],
)
def test_products_over_coordinates_agree_with_the_definition(
    rng: np.random.Generator, dense: bool, distribution: Distribution, shape: float | None
) -> None:
    rows, others = rows_of(rng, dense=dense)
    values = polya_kernel(distribution, shape, scale=20.0).scores(others[:1], rows[:2])
    truth = [
        [kernels.product(distribution, shape, 20.0, u, v) for v in signed_rows(rows[:2])]
        for u in signed_rows(others[:1])
    ]
    np.testing.assert_allclose(values, truth, rtol=1e-6)


@pytest.mark.parametrize("dense", [True, False])
def test_rows_beyond_one_working_set_are_scored_too(rng: np.random.Generator, dense: bool) -> None:
    rows, others = rows_of(rng, dense=dense)
    for measure in (cosines, partial(folded_differences, each=np.sqrt, fold=np.add)):
        at_once, in_parts = measure(others, rows), measure(others, rows, worked_on=40)
        np.testing.assert_allclose(in_parts, at_once, rtol=1e-14, atol=1e-15)  # roundings of sums


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_a_vector_is_as_similar_as_can_be_to_itself(name: str) -> None:
    kernel: Kernel = kernel_named(name, {})
    assert kernel.name == name
    u, v = [0.25, 0.0, -3e4], SparseVector([2, 0], [-3e4, 0.25])
    most = (1 + math.exp(-2)) / 2 if name == "folded_rbf" else 1.0
    assert score(kernel, u, u) == pytest.approx(most, rel=1e-12)
    assert score(kernel, u, v) == pytest.approx(most, rel=1e-12)


def test_functions_are_the_kernels_of_their_names() -> None:
    u, v = [0.5, -1.0, 2.0], SparseVector([0, 1, 2], [0.2, 0.3, -1.0])
    signed = mathematics.from_dense(u), {0: 0.2, 1: 0.3, 2: -1.0}
    truth = kernels.kernel
    assert rbf(u, v, gamma=2.0) == pytest.approx(truth("rbf", *signed, gamma=2.0))
    both = truth("folded_rbf", *signed, gamma=0.5)
    assert folded_rbf(u, v, gamma=0.5) == pytest.approx(both)
    assert laplace(u, v, scale=4.0) == pytest.approx(truth("laplace", *signed, scale=4.0))
    near = truth("gaussian", *signed, scale=4.0)
    assert gaussian(u, v, scale=4.0) == pytest.approx(near)
    # Pitches from Gamma(2) of mean 2σ give the Laplace kernel of scale σ.
    assert polya(u, v, scale=8.0) == pytest.approx(laplace(u, v, scale=4.0))


def test_numbers_of_any_size_are_compared() -> None:
    big, other = [3e37, -3e37], [3e37, 3e37]
    assert rbf(big, other) == pytest.approx(math.exp(-1))
    assert rbf([1e-40, 0.0], [1e-40, 1e-40]) == pytest.approx(
        math.exp(math.sqrt(0.5) - 1),
        rel=1e-4,  # subnormal float32 numbers
    )
    for name in ("laplace", "gaussian", "polya"):
        assert score(kernel_named(name, {"scale": 1e-300}), big, other) == 0.0


@pytest.mark.parametrize(
    ("name", "params", "field", "says"),
    [
        ("rbf", {"gamma": 0}, "gamma", "above 0, at most 1e+06"),
        ("rbf", {"gamma": True}, "gamma", "above 0"),
        ("rbf", {"gamma": math.nan}, "gamma", "above 0"),
        ("folded_rbf", {"gamma": "1"}, "gamma", "above 0"),
        ("laplace", {"scale": -1}, "scale", "above 0, at most 1e+09"),
        ("gaussian", {"scale": math.inf}, "scale", "above 0"),
        ("polya", {"distribution": "cauchy"}, "distribution", "half_normal"),
        ("polya", {"distribution": 3}, "distribution", "half_normal"),
        ("polya", {"shape": 0}, "shape", "above 0, at most 1e+06"),
        ("polya", {"shape": "2"}, "shape", "a number"),
        ("polya", {"distribution": "nakagami", "shape": 0.4}, "shape", "0.5 to"),
        ("polya", {"distribution": "rayleigh", "shape": 1}, "shape", "no shape"),
    ],
)
def test_parameters_outside_their_range_are_refused_with_the_range(
    name: str, params: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(InvalidParameter) as failure:
        kernel_named(name, params)
    assert failure.value.loc == ("params", field)
    assert says in failure.value.expected


@pytest.mark.parametrize("number", [np.uint8(2), np.int64(2), np.float16(2)])
def test_parameters_may_be_numbers_of_numpy(number: float) -> None:
    u, v = [0.5, -1.0, 2.0], [0.2, 0.3, -1.0]
    assert rbf(u, v, gamma=number) == rbf(u, v, gamma=2.0)
    assert folded_rbf(u, v, gamma=number) == folded_rbf(u, v, gamma=2.0)
    for similarity in (laplace, gaussian, polya):
        assert similarity(u, v, scale=number) == similarity(u, v, scale=2.0)


@pytest.mark.parametrize(
    ("distribution", "shape"), [*kernels.PITCHES, ("gamma", 0.01), ("gamma", 1e5)]
)
def test_many_distances_have_the_values_that_few_have(
    rng: np.random.Generator, distribution: Distribution, shape: float | None
) -> None:
    along = polya_along(distribution, shape, scale=3.0)
    steps = np.exp(rng.uniform(-40, 20, 17 * 4096 - 4))
    distances = np.concatenate([[0.0, 1e-320, 1e300, 3.0], steps]).reshape(4, -1)
    few = np.stack([[along(part) for part in np.split(row, 17)] for row in distances])
    many = along(distances)
    np.testing.assert_allclose(many, few.reshape(many.shape), atol=3e-8)
    assert many[0, 0] == 1.0
