"""Coordinates of tokens: MurmurHash3 of their bytes, as in scikit-learn's HashingVectorizer.

A coordinate is |h| mod 2^31 - 1, with the hash h as a signed 32-bit number ([MURMUR3], seed 0).
"""

import numpy as np

from gcws_search.index.contracts.arrays import Int64s, UInt8s
from gcws_search.index.kernels.compiling import inner, kernel

_FIRST = np.uint32(0xCC9E2D51)
_SECOND = np.uint32(0x1B873593)
_STEP = np.uint32(0xE6546B64)
_MODULUS = np.int64(2**31 - 1)


@inner
def _mix(block: np.uint32) -> np.uint32:
    """Return a four-byte block, mixed as the hash requires."""
    k = np.uint32(block * _FIRST)
    k = np.uint32(np.uint32(k << np.uint32(15)) | np.uint32(k >> np.uint32(17)))
    return np.uint32(k * _SECOND)


@inner
def _hash_bytes(data: UInt8s, start: int, stop: int) -> np.uint32:
    """Return the MurmurHash3 of some bytes, x86, 32 bits, seed 0."""
    h = np.uint32(0)
    end = start + (stop - start) // 4 * 4
    for i in range(start, end, 4):
        block = np.uint32(data[i]) | np.uint32(np.uint32(data[i + 1]) << np.uint32(8))
        block |= np.uint32(np.uint32(data[i + 2]) << np.uint32(16))
        block |= np.uint32(np.uint32(data[i + 3]) << np.uint32(24))
        h = np.uint32(h ^ _mix(np.uint32(block)))
        h = np.uint32(np.uint32(h << np.uint32(13)) | np.uint32(h >> np.uint32(19)))
        h = np.uint32(np.uint32(h * np.uint32(5)) + _STEP)
    tail = np.uint32(0)
    for i in range(stop - 1, end - 1, -1):
        tail = np.uint32(np.uint32(tail << np.uint32(8)) | np.uint32(data[i]))
    h = np.uint32(h ^ _mix(tail))
    h = np.uint32(h ^ np.uint32(stop - start))
    h = np.uint32(np.uint32(h ^ np.uint32(h >> np.uint32(16))) * np.uint32(0x85EBCA6B))
    h = np.uint32(np.uint32(h ^ np.uint32(h >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.uint32(h ^ np.uint32(h >> np.uint32(16)))


@kernel
def hash_tokens(data: UInt8s, starts: Int64s, stops: Int64s, out: Int64s) -> None:
    """Write the (n,) coordinates of tokens, from 0 to 2^31 - 2.

    data: UTF-8 bytes; token i has the bytes from ``starts[i]`` to ``stops[i]`` - 1.
    """
    for token in range(out.shape[0]):
        h = np.int64(_hash_bytes(data, starts[token], stops[token]))
        if h >= np.int64(2**31):
            h = np.int64(2**32) - h
        out[token] = h % _MODULUS
