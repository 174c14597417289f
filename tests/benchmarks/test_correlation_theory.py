"""GMM as an estimator of correlation: the theory's figures, and simulations."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.papers.correlation_theory import (
    asymptotic_variance,
    correlation_variance,
    gmm_limit,
    radial_ratio,
    variance_factor,
)
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.similarities import correlation_from_gmm
from tests.support.reference import kernels
from tests.support.statistics import SIGMAS, variance_tolerance

REPEATS, LENGTH = 2000, 1000


@pytest.mark.parametrize(
    ("rho", "sigma", "stated"), [(0.5, 1.0, 0.3333), (0.8, 2.0, 0.3820), (-0.3, 1.5, 0.1020)]
)
def test_the_limit_has_the_values_that_theory_states(
    rho: float, sigma: float, stated: float
) -> None:
    assert round(gmm_limit(rho, sigma=sigma), 4) == stated


@pytest.mark.parametrize(("nu", "stated"), [(5.0, 0.1546), (math.inf, 0.1313)])
def test_the_variance_has_the_values_that_theory_states(nu: float, stated: float) -> None:
    assert round(asymptotic_variance(0.5, degrees_of_freedom=nu), 4) == stated


@pytest.mark.parametrize("rho", [-1.0, -0.7, 0.0, 0.5, 0.95, 1.0])
def test_of_equal_scales_limit_and_variance_are_the_closed_forms(rho: float) -> None:
    a = math.asin(math.sqrt((1 - rho) / 2))
    limit = (1 - math.sin(a)) / (1 + math.sin(a))
    inner = (
        3 * math.pi
        - 8 * math.cos(a)
        + 2 * math.sin(2 * a)
        + math.pi * math.cos(2 * a)
        - 8 * a * math.sin(a)
        - 4 * a * math.cos(2 * a)
    )
    assert gmm_limit(rho) == pytest.approx(limit, abs=1e-14)
    factor, mean = variance_factor(rho)
    assert factor == pytest.approx(4 / math.pi**3 * math.sin(a) ** 2 * inner, abs=1e-14)
    assert mean == pytest.approx(2 * (1 + math.sin(a)) / math.pi, abs=1e-14)


@pytest.mark.parametrize("sigma", [0.3, 1.5, 4.0])
def test_swapping_the_vectors_changes_nothing(sigma: float) -> None:
    for rho in (-1.0, -0.4, 0.6, 1.0):
        swapped = gmm_limit(rho, sigma=1 / sigma)
        assert gmm_limit(rho, sigma=sigma) == pytest.approx(swapped, abs=1e-14)
        variance = asymptotic_variance(rho, sigma=1 / sigma)
        assert asymptotic_variance(rho, sigma=sigma) == pytest.approx(variance, abs=1e-13)


@pytest.mark.parametrize(
    ("rho", "sigma", "nu"),
    [(0.5, 1.0, 8.0), (0.8, 2.0, math.inf), (-0.3, 1.5, math.inf), (0.4, 0.3, 12.0)],
)
def test_gmm_of_long_vectors_has_the_limit_and_the_variance(
    rng: np.random.Generator, rho: float, sigma: float, nu: float
) -> None:
    x, y = kernels.pairs(rng, (REPEATS, LENGTH), rho, sigma, nu)
    drawn = kernels.gmm_of_rows(x, y)
    variance = asymptotic_variance(rho, sigma=sigma, degrees_of_freedom=nu)
    # A ratio's bias, and what n·Var is off at finite n, are both of the order of 1/n.
    error = SIGMAS * math.sqrt(variance / LENGTH / REPEATS) + 2 / LENGTH
    assert drawn.mean() == pytest.approx(gmm_limit(rho, sigma=sigma), abs=error)
    tolerance = variance_tolerance(variance, REPEATS) + 0.02 * variance
    assert LENGTH * drawn.var(ddof=1) == pytest.approx(variance, abs=tolerance)


def test_the_estimate_of_the_correlation_is_the_inverse_of_the_limit() -> None:
    for rho in (-1.0, -0.99, -0.2, 0.0, 0.5, 0.999, 1.0):
        assert correlation_from_gmm(gmm_limit(rho)) == pytest.approx(rho, abs=1e-12)


def test_the_estimate_has_its_variance(rng: np.random.Generator) -> None:
    x, y = kernels.pairs(rng, (REPEATS, LENGTH), 0.6, 1.0, 7.0)
    drawn = [correlation_from_gmm(g) for g in kernels.gmm_of_rows(x, y)]
    variance = correlation_variance(0.6, degrees_of_freedom=7.0)
    tolerance = variance_tolerance(variance, REPEATS) + 0.02 * variance
    assert LENGTH * np.var(drawn, ddof=1) == pytest.approx(variance, abs=tolerance)


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6, 0.9])
def test_the_estimate_beats_the_cosine_below_8_degrees_of_freedom(rho: float) -> None:
    def of_cosine(nu: float) -> float:
        # (1 − ρ²)²·E[T⁴]/(2·E[T²]²), which is 1 for the normal distribution's T.
        return (1 - rho**2) ** 2 * (nu - 2) / (nu - 4)

    for nu in (4.5, 6.0, 7.99):
        assert correlation_variance(rho, degrees_of_freedom=nu) < of_cosine(nu)
    assert correlation_variance(rho) > (1 - rho**2) ** 2


def test_the_radial_ratio_is_that_of_its_moments() -> None:
    assert radial_ratio() == pytest.approx(4 / math.pi)
    assert radial_ratio(1e9) == pytest.approx(4 / math.pi, rel=1e-8)
    for nu in (2.5, 5.0, 30.0):
        mean = math.sqrt(nu) * math.gamma(nu / 2 - 0.5) * math.gamma(0.5) / 2 / math.gamma(nu / 2)
        assert radial_ratio(nu) == pytest.approx(2 * nu / (nu - 2) / mean**2, rel=1e-12)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (gmm_limit, {"rho": 1.1}),
        (gmm_limit, {"rho": 0.5, "sigma": 0.0}),
        (gmm_limit, {"rho": math.nan}),
        (correlation_from_gmm, {"score": -0.1}),
        (asymptotic_variance, {"rho": 0.5, "degrees_of_freedom": 2.0}),
    ],
)
def test_numbers_outside_their_range_are_refused(
    function: Callable[..., float], arguments: dict[str, float]
) -> None:
    with pytest.raises(InvalidParameter, match="expected a number"):
        function(**arguments)
