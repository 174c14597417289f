"""Bounds for statistical tests, each from the variance that theory gives: 4 sigma unless said."""

import math

SIGMAS = 4.0


def proportion_tolerance(p: float, n: int, *, sigmas: float = SIGMAS) -> float:
    """Return ``sigmas`` standard deviations of the mean of n Bernoulli(p) indicators."""
    return sigmas * math.sqrt(max(p * (1.0 - p), 1e-12) / n)


def assert_proportion(hits: int, n: int, p: float, *, slack: float = 0.0) -> None:
    """Fail unless ``hits`` of ``n`` is what Bernoulli(p) gives, up to a known bias ``slack``."""
    tolerance = proportion_tolerance(p, n) + slack
    share = hits / n
    assert abs(share - p) <= tolerance, f"{share:.5f} of {n}, law says {p:.5f} ± {tolerance:.5f}"


def variance_tolerance(variance: float, n: int, *, sigmas: float = SIGMAS) -> float:
    """Return ``sigmas`` standard deviations of the sample variance of n near-normal draws."""
    return sigmas * variance * math.sqrt(2.0 / (n - 1))


def standard_error(values: list[float]) -> float:
    """Return the standard error of a mean, from the values themselves."""
    mean = math.fsum(values) / len(values)
    spread = math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1)
    return math.sqrt(spread / len(values))
