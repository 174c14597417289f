"""What the papers' reproductions rest on: theory, machines, and that each runs in small."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.svm import SVC, LinearSVC

from benchmarks.papers.binning import fejer
from benchmarks.papers.correlation_theory import (
    asymptotic_variance,
    correlation_variance,
    gmm_limit,
    variance_factor,
)
from benchmarks.papers.kept import Kept
from benchmarks.papers.kernel_svm import voted
from benchmarks.papers.machines import Codes, fit, margins
from benchmarks.papers.sheet import Options
from benchmarks.papers.sweep import coarse_to_fine, exhaustive
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.similarities import correlation_from_gmm
from tests.support.reference import kernels
from tests.support.statistics import SIGMAS, variance_tolerance

QUICK = (
    "binning", "collisions", "correlation", "fourier", "hashed_svm", "kernel_svm", "search",
)  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_an_experiment_runs_on_made_data(name: str, tmp_path: Path) -> None:
    sheet = import_module(f"benchmarks.papers.{name}").run(Options(quick=True))
    sheet.write(tmp_path, threads=1)
    page, picture = (tmp_path / f"{name}.{suffix}" for suffix in ("md", "png"))
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) > 2 * len(sheet.tables)
    assert picture.read_bytes().startswith(b"\x89PNG")


REPEATS, LENGTH = 2000, 1000


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


Floats = NDArray[np.float64]


def objective(rows: Floats, signs: Floats, weights: Floats, cost: float) -> float:
    """Return ½‖w‖² + C Σ max(0, 1 − y w·x)²."""
    slack = np.maximum(0, 1 - signs * (rows @ weights))
    return float(weights @ weights / 2 + cost * np.sum(slack**2))


def one_hot(codes: NDArray[np.uint8], choices: int) -> Floats:
    """Return codes as rows of ones and zeros, of unit length."""
    ones = np.eye(choices)[codes].reshape(len(codes), -1)
    return ones / math.sqrt(codes.shape[1])


@pytest.mark.parametrize("cost", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("kind", ["dense", "codes"])
def test_weights_are_as_good_as_those_of_liblinear(
    kind: str, cost: float, rng: np.random.Generator
) -> None:
    labels = rng.integers(3, size=150)
    codes = ((rng.integers(4, size=(150, 12)) + labels[:, None]) % 5).astype(np.uint8)
    rows = one_hot(codes, 5)
    given = Codes(codes, 5) if kind == "codes" else rows.astype(np.float32)
    weights = fit(given, labels, 3, cost=cost).astype(np.float64)
    assert np.allclose(margins(given, weights.astype(np.float32)), rows @ weights, atol=1e-4)
    for c in range(3):
        signs = np.where(labels == c, 1.0, -1.0)
        judge = LinearSVC(C=cost, fit_intercept=False, tol=1e-8, max_iter=100_000, random_state=0)
        best = objective(rows, signs, judge.fit(rows, signs).coef_[0], cost)
        # Stopped at a projected gradient of 0.1, as LIBLINEAR does unless told otherwise.
        assert best * 0.999 <= objective(rows, signs, weights[:, c], cost) <= best * 1.02


def test_draws_of_fejers_density_have_the_triangle_as_their_characteristic_function(
    rng: np.random.Generator,
) -> None:
    count = 100_000
    draws = fejer(rng, count)
    for r in (0.25, 0.5, 0.9, 1.5):
        triangle, doubled = max(0.0, 1 - r), max(0.0, 1 - 2 * r)
        spread = math.sqrt((0.5 + doubled / 2 - triangle**2) / count)
        assert abs(np.cos(r * draws).mean() - triangle) <= 4 * spread


def test_both_sweeps_find_the_peak_of_a_hill() -> None:
    gammas, costs = [float(i) for i in range(1, 40)], [1.0, 10.0, 100.0]

    def hill(gamma: float, some: Sequence[float]) -> list[float]:
        return [90 - abs(gamma - 18) - abs(math.log10(cost) - 2) for cost in some]

    for best in (exhaustive(hill, gammas, costs), coarse_to_fine(hill, gammas, costs)):
        assert (best.gamma, best.cost) == (18.0, 100.0)


def test_codes_numbered_anew_are_equal_where_they_were(rng: np.random.Generator) -> None:
    train, test = (rng.integers(300, size=(n, 6)).astype(np.uint16) for n in (20, 40))
    few, more = Codes.of_both(train, test)
    assert max(few.values.max(), more.values.max()) < few.choices == more.choices <= 21
    for j in range(6):
        for old, new in ((train, few.values), (test, more.values)):
            # A code that no training row has must not become one that some have.
            same = old[:, None, j] == train[None, :, j]
            assert np.array_equal(new[:, None, j] == few.values[None, :, j], same)


def test_figures_are_measured_once_and_a_line_cut_off_is_measured_again(tmp_path: Path) -> None:
    file, asked = tmp_path / "deep" / "figures.jsonl", []

    def measure(value: float) -> list[float]:
        asked.append(value)
        return [value, value / 3]

    for _ in range(2):
        for key, value in ((("a", 1, 0.5), 1.0), (("a", 1, 2), 2.0), (("b", None), 3.0)):
            assert Kept(file).figures(key, partial(measure, value)) == [value, value / 3]
    assert asked == [1.0, 2.0, 3.0]
    file.write_text(file.read_text()[:-4])
    assert Kept(file).figures(("b", None), lambda: measure(4.0)) == [4.0, 4 / 3]
    assert Kept(file).figures(("b", None), lambda: measure(5.0)) == [4.0, 4 / 3]
    assert Kept(file).figures(("a", 1, 2), lambda: measure(5.0)) == [2.0, 2 / 3]


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_votes_of_kernel_machines_are_those_of_libsvm(
    classes: int, rng: np.random.Generator
) -> None:
    rows, labels = rng.standard_normal((250, 4)), 2 * rng.integers(classes, size=250) + 1
    kernel = np.exp(rows @ rows.T)
    machine = SVC(C=10, kernel="precomputed").fit(kernel, labels)
    values = np.exp(rng.standard_normal((400, 4)) @ rows.T)
    assert np.array_equal(voted(machine, values), machine.predict(values))
