"""Variances and kernel values that [GMM] derives, as functions of γ and the cosine ρ."""

import math

import numpy as np

from benchmarks.papers.correlation_theory import gmm_limit
from gcws_search.index.contracts.arrays import Float64s


def rbf(gamma: float, rho: float) -> float:
    """Return the RBF kernel e^{−γ(1−ρ)}."""
    return math.exp(-gamma * (1 - rho))


def fourier_variance(value: Float64s | float) -> Float64s | float:
    """Return V_ρ: k times the variance of RFF's estimate of a kernel of this value.

    V_ρ = ½ + ½(1 − E²)² with E = e^{−γ(1−ρ)} ([GMM] Theorem 2).
    """
    return 0.5 + 0.5 * (1 - value**2) ** 2


def normalised_variance(value: Float64s | float) -> Float64s | float:
    """Return V_n, the limit of k times the variance of NRFF's estimate.

    V_n = V_ρ − ¼E²(3 − E⁴) with E = e^{−γ(1−ρ)} ([GMM] Theorem 3).
    """
    return fourier_variance(value) - 0.25 * value**2 * (3 - value**4)


def rbf_of_gmm(gamma: float, g: Float64s) -> Float64s:
    """Return e^{−2γ((1−g)/(1+g))²}: RBF as GMM tells it ([GMM] Theorem 4)."""
    return np.exp(-2 * gamma * ((1 - g) / (1 + g)) ** 2)


def gcws_variance(gamma: float, rho: float) -> float:
    """Return V_g: k times the variance of `rbf_of_gmm` of k collisions ([GMM] Theorem 4)."""
    g = gmm_limit(rho)
    return rbf(gamma, rho) ** 2 * 64 * gamma**2 * g * (1 - g) ** 3 / (1 + g) ** 6
