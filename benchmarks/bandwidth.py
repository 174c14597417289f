"""How fast this machine reads memory: a sum over an array far larger than its caches."""

from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.timing import in_threads, median_seconds

BYTES: Final = 512 * 2**20


@njit(nogil=True, fastmath=True)
def _sum(values: NDArray[np.float32]) -> np.float32:
    """Return the sum, in whatever order is fastest: one stream, the compiler's own vectors."""
    total = np.float32(0.0)
    for i in range(values.shape[0]):
        total += values[i]
    return np.float32(total)


def read_bytes_per_second(threads: int, *, bytes_: int = BYTES) -> float:
    """Return the read bandwidth of ``threads`` threads, each summing its share of one array."""
    values: NDArray[Any] = np.ones(bytes_ // 4, np.float32)
    shares = np.array_split(values, threads)
    return bytes_ / median_seconds(in_threads(lambda i: _sum(shares[i]), threads), repeats=9)
