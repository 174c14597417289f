"""Samples cut to bits, and the samples of one band packed into a key of 64 bits.

A prefix-ordered key holds the first sample in its highest bits, ``bits`` bits a sample; a whole key
is one 64-bit hash of all samples of the band. Which part of a sample (i*, t*) counts is the
encoding: FULL both, ZERO_BIT i* alone, B_BIT b bits of i*.

Bits are those of a hash of the sample and its number. The lowest bits of i* itself would carry
less: on data without negative values every i* is even, and where few slots win most samples they
are not spread evenly ([BBIT] permutes the slots first, for the same reason).
"""

import numpy as np

from gcws_search.index.contracts.arrays import UInt16s, UInt32s, UInt64s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.hashing.randomness import mix64

FULL = 0
ZERO_BIT = 1
B_BIT = 2

_GOLDEN_64 = np.uint64(0x9E3779B97F4A7C15)
_LEVEL_STEP = np.uint64(0xD6E8FEB86659FD93)


@inner
def _encoded(slot: np.uint32, level: np.uint32, encoding: int) -> np.uint64:
    """Return what the encoding keeps of one sample before it is cut."""
    if encoding == FULL:
        return (np.uint64(slot) << np.uint64(32)) | np.uint64(level)
    return np.uint64(slot)


@inner
def _cut(encoded: np.uint64, sample: int, drop: np.uint64) -> np.uint64:
    """Return the highest 64 - ``drop`` bits of the hash of what is encoded of a numbered sample."""
    return mix64(encoded * _LEVEL_STEP + np.uint64(sample) * _GOLDEN_64) >> drop


@kernel
def cut_samples(slots: UInt32s, bits: int, out: UInt16s) -> None:
    """Cut samples to b-bit codes.

    Of samples of different i* two codes are equal with probability 2^-b, whatever the data.

    slots (n, k): i* of samples 0 … k - 1. bits: b, 1-16.
    """
    drop = np.uint64(64 - bits)
    for row in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[row, j] = np.uint16(_cut(np.uint64(slots[row, j]), j, drop))


@kernel
def pack_prefix_keys(
    slots: UInt32s,
    levels: UInt32s,
    start: int,
    band: int,
    band_width: int,
    bits: int,
    encoding: int,
    out: UInt64s,
) -> None:
    """Pack bands so that rows sharing their first d samples share the key's first d·bits bits.

    slots, levels (n, samples): samples from number ``start`` on.
    out (n, bands): keys of bands ``band``, ``band`` + 1, …, of ``bits`` bits a sample.
    """
    spare = np.uint64(64 - band_width * bits)
    drop = np.uint64(64 - bits)
    for row in range(slots.shape[0]):
        for place in range(out.shape[1]):
            key = np.uint64(0)
            for i in range(band_width):
                j = (band + place) * band_width + i
                encoded = _encoded(slots[row, j - start], levels[row, j - start], encoding)
                key = (key << np.uint64(bits)) | _cut(encoded, j, drop)
            out[row, place] = key << spare


@kernel
def pack_whole_keys(
    slots: UInt32s,
    levels: UInt32s,
    start: int,
    band: int,
    band_width: int,
    b: int,
    encoding: int,
    out: UInt64s,
) -> None:
    """Hash all samples of each band into one key: classical banding; see `pack_prefix_keys`.

    b: bits that B_BIT keeps of a sample.
    """
    drop = np.uint64(64 - b)
    for row in range(slots.shape[0]):
        for place in range(out.shape[1]):
            key = np.uint64(0)
            for i in range(band_width):
                j = (band + place) * band_width + i
                encoded = _encoded(slots[row, j - start], levels[row, j - start], encoding)
                if encoding == B_BIT:
                    encoded = _cut(encoded, j, drop)
                key = mix64((key ^ encoded * _LEVEL_STEP) + _GOLDEN_64)
            out[row, place] = key
