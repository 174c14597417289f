"""Band keys: the samples of one band packed into 64 bits.

A prefix-ordered key holds the first sample in its highest bits, ``bits`` bits a sample; a whole key
is one 64-bit hash of all samples of the band. Which part of a sample (i*, t*) counts is the
encoding: FULL both, ZERO_BIT i* alone, B_BIT the lowest b bits of i*.
"""

import numpy as np
from numba import njit

from index.arrays import UInt32s, UInt64s
from index.kernels.randomness import mix64

FULL = 0
ZERO_BIT = 1
B_BIT = 2

_GOLDEN_64 = np.uint64(0x9E3779B97F4A7C15)
_LEVEL_STEP = np.uint64(0xD6E8FEB86659FD93)


@njit(cache=True, nogil=True)
def _sample_bits(slot: np.uint32, level: np.uint32, encoding: int, b: int) -> np.uint64:
    """Return what the encoding keeps of one sample."""
    if encoding == B_BIT:
        return np.uint64(slot) & np.uint64((1 << b) - 1)
    if encoding == ZERO_BIT:
        return np.uint64(slot)
    return (np.uint64(slot) << np.uint64(32)) | np.uint64(level)


@njit(cache=True, nogil=True)
def pack_prefix_keys(
    slots: UInt32s, levels: UInt32s, band_width: int, bits: int, encoding: int, out: UInt64s
) -> None:
    """Pack bands so that rows sharing their first d samples share the key's first d·bits bits.

    Parameters
    ----------
    slots, levels : (n, samples) uint32
    band_width : int
        Samples of a band.
    bits : int
        Bits kept of a sample: of its hash, or for B_BIT the lowest bits of i* themselves.
    out : (n, bands) uint64, written in place
    """
    spare = np.uint64(64 - band_width * bits)
    drop = np.uint64(64 - bits)
    for row in range(slots.shape[0]):
        for band in range(out.shape[1]):
            key = np.uint64(0)
            for i in range(band_width):
                j = band * band_width + i
                kept = _sample_bits(slots[row, j], levels[row, j], encoding, bits)
                if encoding != B_BIT:
                    kept = mix64(kept * _LEVEL_STEP + np.uint64(j) * _GOLDEN_64) >> drop
                key = (key << np.uint64(bits)) | kept
            out[row, band] = key << spare


@njit(cache=True, nogil=True)
def pack_whole_keys(
    slots: UInt32s, levels: UInt32s, band_width: int, b: int, encoding: int, out: UInt64s
) -> None:
    """Hash all samples of each band into one key: classical banding.

    Parameters
    ----------
    slots, levels : (n, samples) uint32
    band_width : int
    b : int
        Bits of i* that B_BIT keeps.
    out : (n, bands) uint64, written in place
    """
    for row in range(slots.shape[0]):
        for band in range(out.shape[1]):
            key = np.uint64(0)
            for i in range(band_width):
                j = band * band_width + i
                kept = _sample_bits(slots[row, j], levels[row, j], encoding, b)
                key = mix64((key ^ kept * _LEVEL_STEP) + _GOLDEN_64)
            out[row, band] = key
