"""Kernels that Fourier features estimate, and the variance of one feature, by the formulas.

Nothing here imports the package under test. ρ is the cosine of two vectors; k features have 1/k of
the variance of one. [GMM] Theorems 1-4 and its first version's folded RBF.
"""

import math


def rbf(rho: float, gamma: float) -> float:
    """Return e^{-γ(1 - ρ)}."""
    return math.exp(-gamma * (1 - rho))


def folded_rbf(rho: float, gamma: float) -> float:
    """Return ½e^{-γ(1 - ρ)} + ½e^{-γ(1 + ρ)} = E[cos(√γx) cos(√γy)]."""
    return 0.5 * rbf(rho, gamma) + 0.5 * rbf(-rho, gamma)


def rff_variance(rho: float, gamma: float) -> float:
    """Return V_ρ."""
    return 0.5 + 0.5 * (1 - math.exp(-2 * gamma * (1 - rho))) ** 2


def nrff_variance(rho: float, gamma: float) -> float:
    """Return V_n, the limit for many features."""
    square = math.exp(-2 * gamma * (1 - rho))
    return rff_variance(rho, gamma) - 0.25 * square * (3 - square**2)


def folded_variance(rho: float, gamma: float) -> float:
    """Return Var[cos(√γx) cos(√γy)], by cos² a = ½(1 + cos 2a)."""
    doubled = 0.5 * rbf(rho, 4 * gamma) + 0.5 * rbf(-rho, 4 * gamma)
    squares = 0.25 * (1 + 2 * math.exp(-2 * gamma) + doubled)
    return squares - folded_rbf(rho, gamma) ** 2


def cosine_of_gmm(g: float) -> float:
    """Return ρ of vectors of elliptical data whose GMM is g: 1 - 2((1 - g)/(1 + g))²."""
    return 1 - 2 * ((1 - g) / (1 + g)) ** 2


def gmm_of_cosine(rho: float) -> float:
    """Inverse of `cosine_of_gmm`."""
    distance = math.sqrt((1 - rho) / 2)
    return (1 - distance) / (1 + distance)


def gcws_variance(rho: float, gamma: float) -> float:
    """Return V_g: k times the variance of e^{-2γ((1 - X)/(1 + X))²}, X the mean of k collisions."""
    g = gmm_of_cosine(rho)
    return rbf(rho, gamma) ** 2 * g * (1 - g) ** 3 / (1 + g) ** 6 * 64 * gamma**2
