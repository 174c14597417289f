"""Bounds for statistical tests, each from the variance that theory gives: 4 sigma unless said."""

import math
import statistics

SIGMAS = 4.0


def assert_proportion(hits: int, n: int, p: float, *, slack: float = 0.0) -> None:
    """Fail unless ``hits`` of ``n`` is what Bernoulli(p) gives, up to a known bias ``slack``."""
    tolerance = SIGMAS * math.sqrt(max(p * (1.0 - p), 1e-12) / n) + slack
    share = hits / n
    assert abs(share - p) <= tolerance, f"{share:.5f} of {n}, law says {p:.5f} ± {tolerance:.5f}"


def variance_tolerance(variance: float, n: int) -> float:
    """Return the bound of the sample variance of n near-normal draws."""
    return SIGMAS * variance * math.sqrt(2.0 / (n - 1))


def standard_error(values: list[float]) -> float:
    """Return the standard error of a mean, from the values themselves."""
    return statistics.stdev(values) / math.sqrt(len(values))
