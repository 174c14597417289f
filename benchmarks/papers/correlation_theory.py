"""GMM as an estimator of correlation: its limit, its variance, and the robust estimate of ρ.

Pairs (x, y) of elliptical data with correlation ρ and ratio of scales σ are x = T cos θ and
y = σT cos(θ − 2α), θ uniform, T a radius of its own law, 2α = arccos ρ. With m and M what one pair
adds to Σ min and Σ max, both over T,

    GMM → f_∞ = E[m]/E[M],       n·Var(GMM) → E[(m − f_∞ M)²]/E[M]² · E[T²]/E[T]²,

and each expectation over θ is an integral of cosines.

Source: [TGMM] Th. 1 and 2. The mixed moments for σ ≠ 1 are derived here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gcws_search.index.contracts.errors import InvalidParameter

__all__ = [
    "asymptotic_variance",
    "correlation_variance",
    "gmm_limit",
    "radial_ratio",
    "variance_factor",
]

_MIN_FREEDOM = 2.0


def gmm_limit(rho: float, *, sigma: float = 1.0) -> float:
    """Return f_∞(ρ, σ), which GMM approaches as vectors grow longer ([TGMM] Th. 1).

    Parameters
    ----------
    rho : float
        Correlation, in [-1, 1].
    sigma : float
        Ratio of the scales of the two vectors, above 0.

    Raises
    ------
    InvalidParameter
        A number is outside its range.
    """
    angles = _Angles.of(rho, sigma)
    return angles.min_mean / angles.max_mean


def variance_factor(rho: float, *, sigma: float = 1.0) -> tuple[float, float]:
    """Return (V, H): n·Var(GMM) → (V/H⁴)·E[T²]/E[T]² ([TGMM] Th. 2).

    Raises
    ------
    InvalidParameter
        See `gmm_limit`.
    """
    angles = _Angles.of(rho, sigma)
    return angles.variance(), angles.max_mean


def asymptotic_variance(
    rho: float, *, sigma: float = 1.0, degrees_of_freedom: float = math.inf
) -> float:
    """Return what n·Var(GMM) approaches for vectors of n coordinates drawn from a t-distribution.

    Parameters
    ----------
    rho, sigma : see `gmm_limit`
    degrees_of_freedom : float
        ν, above 2; infinite for the normal distribution.

    Raises
    ------
    InvalidParameter
        A number is outside its range.
    """
    factor, mean = variance_factor(rho, sigma=sigma)
    return factor / mean**4 * radial_ratio(degrees_of_freedom)


def correlation_variance(rho: float, *, degrees_of_freedom: float = math.inf) -> float:
    """Return what n·Var(ρ̂_g) approaches, σ = 1: the slope of ρ̂_g squared times that of GMM.

    Raises
    ------
    InvalidParameter
        See `asymptotic_variance`.
    """
    g = gmm_limit(rho)
    slope = 8.0 * (1.0 - g) / (1.0 + g) ** 3
    return slope**2 * asymptotic_variance(rho, degrees_of_freedom=degrees_of_freedom)


def radial_ratio(degrees_of_freedom: float = math.inf) -> float:
    """Return E[T²]/E[T]² of a t-distribution; 4/π of the normal one, ν infinite.

    Raises
    ------
    InvalidParameter
        ν is not above 2: E[T²] is infinite.
    """
    nu = degrees_of_freedom
    _require(nu > _MIN_FREEDOM, "degrees_of_freedom", "a number above 2", nu)
    if math.isinf(nu):
        return 4.0 / math.pi
    from scipy import special  # noqa: PLC0415  # no start waits for it

    mean = math.sqrt(nu) * float(special.poch(nu / 2.0, -0.5)) * math.sqrt(math.pi) / 2.0
    return 2.0 * nu / (nu - 2.0) / mean**2


@dataclass(frozen=True, slots=True)
class _Angles:
    """The sectors of θ: x and y change sign, and one overtakes the other where tan = tan τ.

    Attributes
    ----------
    sigma : float
    alpha, tau : float
        α = arcsin √((1 − ρ)/2); τ as in the theory.
    """

    sigma: float
    alpha: float
    tau: float

    @classmethod
    def of(cls, rho: float, sigma: float) -> _Angles:
        """Return the angles of a correlation and a ratio of scales."""
        _require(-1 <= rho <= 1, "rho", "a number in [-1, 1]", rho)
        _require(0 < sigma < math.inf, "sigma", "a number above 0", sigma)
        alpha = math.asin(math.sqrt((1.0 - rho) / 2.0))
        if sigma == 1.0:
            return cls(sigma, alpha, alpha)
        # atan(σ/sin 2α − cot 2α), also where sin 2α is 0.
        tau = math.atan2(sigma - math.cos(2.0 * alpha), math.sin(2.0 * alpha))
        return cls(sigma, alpha, tau)

    @property
    def min_mean(self) -> float:
        """E[m], over E[T]."""
        other = 2.0 * self.alpha - self.tau
        return (1.0 - math.sin(other) + self.sigma * (1.0 - math.sin(self.tau))) / math.pi

    @property
    def max_mean(self) -> float:
        """E[M], over E[T]: H of the theory."""
        other = 2.0 * self.alpha - self.tau
        return (1.0 + math.sin(other) + self.sigma * (1.0 + math.sin(self.tau))) / math.pi

    def variance(self) -> float:
        """Return V = E[(H·m − W·M)²], H = E[M] and W = E[m]."""
        sigma, double = self.sigma, 2.0 * self.alpha
        own = _cosine_square_from(double - self.tau) + sigma**2 * _cosine_square_from(self.tau)
        min_square = own / math.pi
        mixed = sigma * ((math.pi - double) * math.cos(double) + math.sin(double)) / (2 * math.pi)
        # m + M = |x| + |y|, so m² + M² = x² + y² + 2|xy| where the signs differ.
        opposite = mixed - sigma * math.cos(double) / 2.0
        max_square = (1.0 + sigma**2) / 2.0 + 2.0 * opposite - min_square
        high, low = self.max_mean, self.min_mean
        total = high**2 * min_square - 2.0 * high * low * mixed + low**2 * max_square
        return max(0.0, total)  # rounding, where both are multiples of one another


def _cosine_square_from(angle: float) -> float:
    """Return the integral of cos² from an angle to π/2."""
    return math.pi / 4.0 - angle / 2.0 - math.sin(2.0 * angle) / 4.0


def _require(holds: bool, name: str, expected: str, got: float) -> None:
    if not holds:
        raise InvalidParameter(expected=expected, got=repr(got), loc=(name,))
