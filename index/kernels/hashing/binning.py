"""Random binning: the bins that a vector falls into, hashed to 32 bits per sample.

For sample j and coordinate d, with pitch S and β ~ U(0, 1), the bin of x is ⌊x/S + β⌋; the bin of 0
is 0 for every pitch. The sample is Σ_d A_d·bin_d mod 2^32 with odd random A_d, mixed once. Two
vectors with different bins share it by accident with probability of about 2^-31, and coordinates
with value 0 need not be visited.

Beyond 2^24 pitches from 0, two float32 numbers share a bin only if they are equal, so the number
itself is hashed instead of the bin.

A pitch is chosen by 32 random bits: one selects the lower or the upper half of the distribution;
the others, made odd, are a share in (0, ½) from that end. Shares are divided into `CELLS` equal
cells per octave, so both ends are resolved as finely as the middle.

Source: [RFF] §4; [POLYA].
"""

# Lanes and addresses have no Python type.
# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN202

from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import LANES, Float32s, Int64s, UInt32s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.hashing.randomness import bin_words, scramble, slot_words
from gcws_search.index.kernels.lanes.vector import (
    absolute,
    as_floats,
    as_ints,
    floor,
    fma,
    gather_floats,
    lane_numbers,
    less,
    load,
    pointer,
    select,
    splat,
    store,
    to_floats,
    to_ints,
)

CELL_BITS: Final = 9
CELLS: Final = 1 << CELL_BITS
OCTAVES: Final = 31
SIDE: Final = OCTAVES * CELLS + 1
"""Cells of one half; the last takes what rounds up to ½."""

_PARAMETERS = 3
STRIDE: Final = _PARAMETERS * LANES
"""Floats of one coordinate's parameters of sixteen samples."""
_ONE = np.int32(1)
_SIGN = np.int32(31)
_MAGNITUDE = np.int32(0x7FFFFFFF)
_BITS_OF_ONE = np.int32(0x3F800000)
_TO_CELL = np.int32(23 - CELL_BITS)
_SIDE = np.int32(SIDE)
_MAX_BIN = np.float32(2.0**24)
_NO_BITS = np.int32(0)


@inner
def _bins(low, high, samples, inverses):
    """Return (1/S, β, A) of sixteen samples; ``inverses`` is an address, see `fill_bins`."""
    word, beta, odd = bin_words(low, high, samples)
    share = to_floats((word & splat(_MAGNITUDE)) | splat(_ONE))
    cell = (as_ints(share) - splat(_BITS_OF_ONE)) >> splat(_TO_CELL)
    side = (splat(_NO_BITS) - (word >> splat(_SIGN))) & splat(_SIDE)
    return gather_floats(inverses, cell + side), beta, odd


@inner
def _bins_of(x, mixed, inverse, beta):
    """Return the bin of x, or ``mixed``, its scrambled bits, if it is far from 0."""
    place = fma(x, inverse, beta)
    near = less(absolute(place), splat(_MAX_BIN))
    return select(near, to_ints(floor(place)), mixed)


@kernel
def fill_bins(
    seed: np.uint64, inverses: Float32s, coordinates: int, blocks: int, table: Float32s
) -> None:
    """Write the parameters of all coordinates and samples.

    inverses (2 · SIDE,): 1/S of each cell, the lower half of the distribution first, ends first.
    table (blocks · coordinates · 3 · LANES,), written in place: [b, d, :, l] holds
      (1/S, β, bits of A) of coordinate d and sample b·LANES + l.
    """
    at_inverses = pointer(inverses)
    for d in range(coordinates):
        low, high = slot_words(seed, np.uint32(d))
        for block in range(blocks):
            samples = lane_numbers() + splat(np.int32(block * LANES))
            inverse, beta, odd = _bins(splat(low), splat(high), samples, at_inverses)
            place = (block * coordinates + d) * STRIDE
            store(table, place, inverse)
            store(table, place + LANES, beta)
            store(table, place + 2 * LANES, as_floats(odd))


@inner
def _scramble_bits(values: Float32s) -> Float32s:
    """Return the scrambled bits of the values, in whole registers."""
    count = values.shape[0]
    out = np.zeros(count + LANES, np.float32)
    for i in range(count):
        out[i] = values[i]
    for first in range(0, count, LANES):
        store(out, first, as_floats(scramble(as_ints(load(out, first)))))
    return out


@kernel
def bins_from_table(
    indptr: Int64s,
    coordinates: UInt32s,
    values: Float32s,
    table: Float32s,
    coordinate_count: int,
    out: UInt32s,
) -> None:
    """Compute samples with stored parameters, block by block over all rows.

    Rows are compressed, with signed values. ``table`` is from `fill_bins`.
    out (n, m): samples 0 … m - 1; m is a multiple of LANES.
    """
    n, m = out.shape
    mixed = _scramble_bits(values).view(np.int32)
    to_out = pointer(out)
    at_table = pointer(table)
    for block in range(m // LANES):
        for row in range(n):
            total = splat(_NO_BITS)
            for position in range(indptr[row], indptr[row + 1]):
                place = (block * coordinate_count + np.int64(coordinates[position])) * STRIDE
                inverse, beta = load(at_table, place), load(at_table, place + LANES)
                odd = as_ints(load(at_table, place + 2 * LANES))
                x, strange = splat(values[position]), splat(mixed[position])
                total = total + _bins_of(x, strange, inverse, beta) * odd
            store(to_out, row * m + block * LANES, scramble(total))


@kernel
def bins_from_stream(
    indptr: Int64s,
    coordinates: UInt32s,
    values: Float32s,
    seed: np.uint64,
    inverses: Float32s,
    out: UInt32s,
) -> None:
    """Like `bins_from_table`, with parameters from the generator."""
    n, m = out.shape
    mixed = _scramble_bits(values).view(np.int32)
    to_out = pointer(out)
    at_inverses = pointer(inverses)
    for row in range(n):
        for block in range(0, m, LANES):
            store(to_out, row * m + block, splat(_NO_BITS))
        for position in range(indptr[row], indptr[row + 1]):
            low, high = slot_words(seed, coordinates[position])
            x, strange = splat(values[position]), splat(mixed[position])
            for block in range(0, m, LANES):
                samples = lane_numbers() + splat(np.int32(block))
                inverse, beta, odd = _bins(splat(low), splat(high), samples, at_inverses)
                total = load(to_out, row * m + block)
                total = total + _bins_of(x, strange, inverse, beta) * odd
                store(to_out, row * m + block, total)
        for block in range(0, m, LANES):
            store(to_out, row * m + block, scramble(load(to_out, row * m + block)))
