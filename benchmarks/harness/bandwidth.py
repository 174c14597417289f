"""Memory bandwidth of this machine: a sum over an array far larger than its caches."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.harness.timing import in_threads

BYTES: Final = 512 * 2**20


@njit(nogil=True, fastmath=True)
def _sum(values: NDArray[np.float32]) -> np.float32:
    """Return the sum in the fastest order: one stream, vectorized by the compiler."""
    total = np.float32(0.0)
    for i in range(values.shape[0]):
        total += values[i]
    return np.float32(total)


def reading(threads: int) -> Callable[[], object]:
    """Return a function that reads ``BYTES`` of memory, divided over threads."""
    values: NDArray[Any] = np.ones(BYTES // 4, np.float32)
    shares = np.array_split(values, threads)
    return in_threads(lambda i: _sum(shares[i]), threads)
