"""Vectors for property tests: sparse, dense, signed, huge, tiny and denormal float32 values."""

import numpy as np
from hypothesis import strategies as st

SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
SMALLEST_SUBNORMAL = float(np.finfo(np.float32).smallest_subnormal)


def positive_values() -> st.SearchStrategy[float]:
    """Positive float32 values of every size."""
    ordinary = st.floats(min_value=0.015625, max_value=64.0, width=32)
    counts = st.integers(1, 9).map(float)
    huge = st.floats(min_value=2.0**96, max_value=2.0**115, width=32)
    tiny = st.floats(min_value=SMALLEST_NORMAL, max_value=2.0**-100, width=32)
    denormal = st.floats(
        min_value=SMALLEST_SUBNORMAL, max_value=SMALLEST_NORMAL, width=32, exclude_max=True
    )
    return st.one_of(ordinary, counts, huge, tiny, denormal)


def ordinary_values() -> st.SearchStrategy[float]:
    """Signed values of common size, never zero."""
    magnitude = st.one_of(
        st.floats(min_value=2.0**-10, max_value=1024.0, width=32), st.integers(1, 9).map(float)
    )
    return st.builds(lambda size, sign: size * sign, magnitude, st.sampled_from((-1.0, 1.0)))


def signed_values() -> st.SearchStrategy[float]:
    """Non-zero float32 values of every size and either sign."""
    return st.builds(
        lambda size, sign: size * sign, positive_values(), st.sampled_from((-1.0, 1.0))
    )


def sparse_vectors(
    dim: int, *, values: st.SearchStrategy[float] | None = None, max_size: int = 12
) -> st.SearchStrategy[dict[int, float]]:
    """Non-empty mappings from coordinate to non-zero value."""
    return st.dictionaries(
        st.integers(0, dim - 1),
        signed_values() if values is None else values,
        min_size=1,
        max_size=min(max_size, dim),
    )


def dense_rows(
    dim: int, *, values: st.SearchStrategy[float] | None = None
) -> st.SearchStrategy[list[float]]:
    """Dense rows with zeros of both signs among the values, never all zero."""
    entry = st.one_of(st.sampled_from((0.0, -0.0)), signed_values() if values is None else values)
    return st.lists(entry, min_size=dim, max_size=dim).filter(any)
