"""Samples cut to bits, and the samples of one band packed into a 64-bit key.

A prefix-ordered key has the first sample in its highest bits, with ``bits`` bits per sample. A
whole key is one 64-bit hash of all samples of the band. The encoding says which part of a sample
(i*, t*) is used: FULL both, ZERO_BIT only i*, B_BIT b bits of i*.

Bits are taken from a hash of the sample and its number. The lowest bits of i* itself would carry
less: without negative values every i* is even, and if few slots win most samples, they are not
uniform ([BBIT] permutes the slots first, for the same reason).
"""

from typing import NamedTuple

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
def _encode(slot: np.uint32, level: np.uint32, encoding: int) -> np.uint64:
    """Return the part of one sample that the encoding uses, before it is cut."""
    if encoding == FULL:
        return (np.uint64(slot) << np.uint64(32)) | np.uint64(level)
    return np.uint64(slot)


@inner
def _cut(encoded: np.uint64, sample: int, drop: np.uint64) -> np.uint64:
    """Return the highest 64 - ``drop`` bits of the hash of an encoded sample and its number."""
    return mix64(encoded * _LEVEL_STEP + np.uint64(sample) * _GOLDEN_64) >> drop


@kernel
def cut_samples(slots: UInt32s, bits: int, out: UInt16s) -> None:
    """Cut samples to b-bit codes.

    For different i*, two codes are equal with probability 2^-b, whatever the data.

    slots (n, k): i* of samples 0 … k - 1. bits: b, 1-16.
    """
    drop = np.uint64(64 - bits)
    for row in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[row, j] = np.uint16(_cut(np.uint64(slots[row, j]), j, drop))


class BandLayout(NamedTuple):
    """How samples become keys."""

    width: int  # samples per band
    bits: int  # bits per sample; for a whole key, used by B_BIT only
    encoding: int
    prefix: bool  # whether keys are prefix-ordered instead of hashed whole


@inner
def pack_bands(
    slots: UInt32s, levels: UInt32s, start: int, band: int, layout: BandLayout, out: UInt64s
) -> None:
    """Like `pack_keys`."""
    width, bits, encoding = layout.width, layout.bits, layout.encoding
    drop = np.uint64(64 - bits)
    for row in range(slots.shape[0]):
        for place in range(out.shape[1]):
            key, first = np.uint64(0), (band + place) * width
            if layout.prefix:
                for j in range(first, first + width):
                    encoded = _encode(slots[row, j - start], levels[row, j - start], encoding)
                    key = (key << np.uint64(bits)) | _cut(encoded, j, drop)
                out[row, place] = key << np.uint64(64 - width * bits)
                continue
            for j in range(first, first + width):
                encoded = _encode(slots[row, j - start], levels[row, j - start], encoding)
                if encoding == B_BIT:
                    encoded = _cut(encoded, j, drop)
                key = mix64((key ^ encoded * _LEVEL_STEP) + _GOLDEN_64)
            out[row, place] = key


@kernel
def pack_keys(
    slots: UInt32s, levels: UInt32s, start: int, band: int, layout: BandLayout, out: UInt64s
) -> None:
    """Write the keys of bands ``band``, ``band`` + 1, …, (n, bands).

    slots, levels (n, samples): samples from number ``start`` on.
    """
    pack_bands(slots, levels, start, band, BandLayout(*layout), out)
