"""A vector to search for, and what GMM is."""

URL = "/v1/collections/plants"
VECTOR = [0.1, -2, 0, 3]


def gmm(u: list[float], v: list[float]) -> float:
    """Σ min / Σ max over the positive and the negative parts."""
    parts = [(max(s * x, 0), max(s * y, 0)) for x, y in zip(u, v, strict=True) for s in (1, -1)]
    return sum(map(min, parts)) / sum(map(max, parts))
