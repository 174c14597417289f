"""How many threads products of matrices may have."""

from threadpoolctl import threadpool_info


def blas_threads() -> set[int]:
    """Return the number of NumPy's library; tests load others, of which the product has none."""
    return {each["num_threads"] for each in threadpool_info() if "numpy" in each["filepath"]}
