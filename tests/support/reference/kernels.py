"""Slow truths of kernels and their pitches, from definitions; no code shared with `index`."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

Signed = dict[int, float]
Floats = npt.NDArray[np.float64]

_LAWS: dict[str, tuple[Callable[..., Any], list[float | None]]] = {
    "gamma": (stats.gamma, [0.5, 0.9999999, 1.0, 1.5, 2.0, 3.0, 60.0]),
    "exponential": (stats.expon, [None]),
    "chi_square": (stats.chi2, [1.0, 4.0]),
    "chi": (stats.chi, [0.7, 1.0, 3.0]),
    "half_normal": (stats.halfnorm, [None]),
    "rayleigh": (stats.rayleigh, [None]),
    "nakagami": (stats.nakagami, [0.5, 1.0, 2.5]),
    "weibull": (stats.weibull_min, [0.3, 0.7, 2.0, 3.0]),
    "shifted_poisson": (partial(stats.poisson, loc=1), [0.5, 1.0, 4.0]),
}
"""One unit a family, as the table of the theory has it; None: a family without a shape."""
PITCHES: dict[tuple[str, float | None], Any] = {
    (name, shape): law() if shape is None else law(shape)
    for name, (law, shapes) in _LAWS.items()
    for shape in shapes
}
"""Law of S by family and shape."""
_PANELS = 160
_NODES, _OF_NODES = np.polynomial.legendre.leggauss(20)
_HALF = 20 / _PANELS
_Z = (_HALF * (2 * np.arange(_PANELS)[:, None] + 1 + _NODES)).ravel()
_WEIGHTS = np.tile(_HALF * _OF_NODES, _PANELS)
"""Nodes and weights of an integral from 0 to 40, by Gauss and Legendre in panels."""


def polya(distribution: str, shape: float | None, r: float) -> float:
    """Return E[(1 − r/S)₊] = ∫_r^∞ P(S > s)·r/s² ds, by parts, so that no density is needed."""
    law = PITCHES[distribution, shape]
    if r == 0:
        return 1.0
    if distribution == "shifted_poisson":
        counts = np.arange(1, 200)
        return float(np.sum(law.pmf(counts) * np.maximum(0.0, 1.0 - r / counts)))
    return float(_WEIGHTS @ (law.sf(r * np.exp(_Z)) * np.exp(-_Z)))  # over z, where s is r·e^z


def dot(u: Signed, v: Signed) -> float:
    """Return the inner product."""
    return math.fsum(x * v.get(i, 0.0) for i, x in u.items())


def cosine(u: Signed, v: Signed) -> float:
    """Return ρ."""
    return dot(u, v) / math.sqrt(dot(u, u) * dot(v, v))


def differences(u: Signed, v: Signed) -> list[float]:
    """Return |u_d − v_d| of all coordinates that one of them has."""
    return [abs(u.get(i, 0.0) - v.get(i, 0.0)) for i in sorted(set(u) | set(v))]


def kernel(name: str, u: Signed, v: Signed, **params: float) -> float:
    """Return a kernel's value, by its definition."""
    if name == "rbf":
        return math.exp(-params["gamma"] * (1 - cosine(u, v)))
    if name == "folded_rbf":
        sides = (math.exp(-params["gamma"] * (1 - sign * cosine(u, v))) for sign in (1, -1))
        return sum(sides) / 2
    if name == "laplace":
        return math.exp(-math.fsum(differences(u, v)) / params["scale"])
    if name == "gaussian":
        squares = math.fsum(x * x for x in differences(u, v))
        return math.exp(-squares / (2 * params["scale"] ** 2))
    raise ValueError(name)


def product(distribution: str, shape: float | None, scale: float, u: Signed, v: Signed) -> float:
    """Return Π k over coordinates, pitches standardised to the mean ``scale``."""
    unit = float(PITCHES[distribution, shape].mean()) / scale
    return math.prod(polya(distribution, shape, r * unit) for r in differences(u, v))


def pairs(
    rng: np.random.Generator, shape: tuple[int, int], rho: float, sigma: float, freedom: float
) -> tuple[Floats, Floats]:
    """Return x and y, coordinates from a t-distribution with correlation ρ and scales 1 and σ."""
    x, z = rng.standard_normal((2, *shape))
    y = sigma * (rho * x + math.sqrt(1 - rho**2) * z)
    if math.isfinite(freedom):
        common = np.sqrt(rng.chisquare(freedom, shape) / freedom)
        return x / common, y / common
    return x, y


def gmm_of_rows(x: Floats, y: Floats) -> Floats:
    """Return the GMM of each row of x with the same row of y."""
    least = np.where(x * y > 0, np.minimum(abs(x), abs(y)), 0.0)
    most = np.where(x * y > 0, np.maximum(abs(x), abs(y)), abs(x) + abs(y))
    return np.asarray(least.sum(axis=1) / most.sum(axis=1))
