"""Pitches and the kernels they give: against the theory's figures, integrals and laws."""

import numpy as np
import pytest

from gcws_search.index.contracts.parameters import Distribution
from gcws_search.index.polya import curve_of, pitches
from gcws_search.index.similarities import polya_along
from tests.support.reference import kernels

FAMILIES: list[tuple[Distribution, float | None]] = list(kernels.PITCHES)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "shape"), FAMILIES)
def test_kernels_are_the_integral_over_pitches(name: Distribution, shape: float | None) -> None:
    law = pitches(name, shape)
    distances = np.array([0.0, 1e-4, 0.03, 0.4, 0.999, 1.0, 1.7, 3.0, 8.0])
    truth = [kernels.polya(name, shape, r) for r in distances]
    np.testing.assert_allclose(law.kernel(distances), truth, atol=1e-9)


@pytest.mark.parametrize(("name", "shape"), FAMILIES)
def test_the_mean_and_the_quantiles_are_the_distributions(
    name: Distribution, shape: float | None
) -> None:
    law, truth = pitches(name, shape), kernels.PITCHES[name, shape]
    assert law.mean == pytest.approx(float(truth.mean()), rel=1e-12)
    shares = np.array([1e-9, 1e-4, 0.1, 0.37, 0.5])
    np.testing.assert_allclose(law.quantile(shares), truth.ppf(shares), rtol=1e-6)
    np.testing.assert_allclose(law.upper_quantile(shares), truth.isf(shares), rtol=1e-8)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gamma", 0.01),
        ("gamma", 1 - 1e-12),
        ("gamma", 1 + 1e-12),
        ("gamma", 1e6),
        ("chi", 0.01),
        ("chi_square", 0.01),
        ("nakagami", 1e6),
        ("weibull", 0.05),
        ("weibull", 0.5),
        ("weibull", 1e6),
        ("shifted_poisson", 1e-6),
        ("shifted_poisson", 1e6),
    ],
)
def test_kernels_of_extreme_shapes_fall_from_1_to_0_and_are_convex(
    name: Distribution, shape: float
) -> None:
    along = polya_along(name, shape)
    distances = np.concatenate([[0.0], np.geomspace(1e-9, 1e3, 400)])
    values = along(distances)
    assert values[0] == 1.0
    slopes = np.diff(values) / np.diff(distances)
    assert np.all(np.diff(values) <= 1e-12)
    assert np.all(np.diff(slopes[distances[1:] > 1e-3]) >= -1e-9)
    assert values[-1] < 0.1


@pytest.mark.parametrize(("name", "shape"), FAMILIES)
def test_the_area_under_a_standardised_kernel_is_its_scale(
    name: Distribution, shape: float | None
) -> None:
    along = polya_along(name, shape, scale=2.5)
    # r = e^z, by the midpoint rule: exact beyond what is asked for smooth, vanishing integrands.
    z = np.arange(-30.0, 14.0, 1e-3) + 5e-4
    area = 2.0 * np.sum(along(np.exp(z)) * np.exp(z)) * 1e-3
    assert area == pytest.approx(2.5, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gamma", 2.0),
        ("gamma", 0.2),
        ("gamma", 300.0),
        ("gamma", 1e5),
        ("chi", 0.1),
        ("nakagami", 1e6),
        ("weibull", 0.05),
        ("weibull", 300.0),
        ("shifted_poisson", 0.01),
        ("shifted_poisson", 3.0),
        ("shifted_poisson", 1e4),
    ],
)
def test_many_values_are_read_off_pieces_nowhere_far_from_the_kernel(
    rng: np.random.Generator, name: Distribution, shape: float
) -> None:
    law, curve = pitches(name, shape), curve_of(name, shape)
    assert curve is not None
    distances = np.concatenate(
        [
            3.0 * rng.random(400),
            10.0 ** rng.uniform(-12.0, 3.0, 200),
            np.abs(1.0 + rng.normal(0.0, 1e-3, 400)),
            np.arange(5.0) / law.mean,
            [1e-300, 2.0**-120, 1e-40, 1e30, 1e300],
        ]
    )
    truth = law.kernel(np.minimum(distances, 1e250) * law.mean)
    np.testing.assert_allclose(curve.along(distances), truth, rtol=0.0, atol=1e-8)
