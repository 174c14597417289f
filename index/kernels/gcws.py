"""GCWS samples of vectors given as (slot, log value) rows: from a table, or from the generator.

Letters of theory.md §2: L = log ũ, t = floor(L/r + β), a = log c − r(t + 1 − β), i* = argmin a.
Sixteen samples are drawn together, their running minima in registers. Equal a (float32) go to the
first slot of the row in rising order, in both bodies.

Source: [GMM] Algorithm 1; [ICWS] §3.
"""

import numpy as np
from numba import njit

from index.arrays import Float32s, Int64s, UInt32s
from index.kernels.randomness import arrival_of, hash_parameters, level_of, slot_words
from index.kernels.simd import LANES, lane_numbers, less, load, select, splat, store, to_ints

_INFINITY = np.float32(np.inf)
_ZERO = np.float32(0.0)
_PARAMETERS = 4
_STRIDE = _PARAMETERS * LANES


@njit(cache=True, nogil=True)
def dense_slots(rows: Float32s, indptr: Int64s, slots: UInt32s, values: Float32s) -> None:
    """List the non-zero slots of signed dense rows, and the magnitudes there.

    Parameters
    ----------
    rows : (n, dim) float32
    indptr : (n + 1,) int64, written in place
    slots : (n · dim + 1,) uint32, written in place
        2i for a positive coordinate i, 2i + 1 for a negative one ([GMM] eq. 4). One place more than
        can be filled: each is written before it is known whether it is kept.
    values : (n · dim + 1,) float32, written in place
    """
    filled = 0
    indptr[0] = 0
    for row in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            x = rows[row, i]
            # Written always, kept only when non-zero: no branch to mispredict.
            slots[filled] = np.uint32(2 * i + (x < _ZERO))
            values[filled] = abs(x)
            filled += x != _ZERO
        indptr[row + 1] = filled


@njit(cache=True, nogil=True)
def fill_table(seed: np.uint64, slots: int, blocks: int, table: Float32s) -> None:
    """Write the hash parameters of all slots and samples.

    Parameters
    ----------
    table : (blocks · slots · 4 · LANES,) float32, written in place
        [b, i, :, l] holds (r, 1/r, β, log c − r(1 − β)) of slot i and sample b·LANES + l.
    """
    for slot in range(slots):
        low, high = slot_words(seed, np.uint32(slot))
        for block in range(blocks):
            samples = lane_numbers() + splat(np.int32(block * LANES))
            r, inverse_r, beta, base = hash_parameters(low, high, samples)
            at = (block * slots + slot) * _STRIDE
            store(table, at, r)
            store(table, at + LANES, inverse_r)
            store(table, at + 2 * LANES, beta)
            store(table, at + 3 * LANES, base)


@njit(cache=True, nogil=True)
def sketch_from_table(
    indptr: Int64s,
    slots: UInt32s,
    logs: Float32s,
    table: Float32s,
    slot_count: int,
    first_block: int,
    out_slots: UInt32s,
    out_levels: UInt32s,
) -> None:
    """Draw samples of rows with stored parameters, block by block over all rows.

    Parameters
    ----------
    indptr, slots, logs : rows in compressed form, slots rising
    table : see `fill_table`
    slot_count : int
        Number of slots of the table.
    first_block : int
        First block of LANES samples wanted; out_slots.shape[1] / LANES blocks are drawn.
    out_slots : (n, m) uint32, written in place
        i*.
    out_levels : (n, m) uint32, written in place
        t*, the bits of an int32.
    """
    where = np.empty(LANES, np.int32)
    levels = np.empty(LANES, np.int32)
    for b in range(out_slots.shape[1] // LANES):
        block = (first_block + b) * slot_count
        for row in range(indptr.shape[0] - 1):
            least = splat(_INFINITY)
            best_level = splat(_ZERO)
            best_position = splat(np.int32(0))
            start = indptr[row]
            for position in range(start, indptr[row + 1]):
                at = (block + np.int64(slots[position])) * _STRIDE
                t = level_of(
                    splat(logs[position]), load(table, at + LANES), load(table, at + 2 * LANES)
                )
                a = arrival_of(t, load(table, at), load(table, at + 3 * LANES))
                wins = less(a, least)
                least = select(wins, a, least)
                best_level = select(wins, t, best_level)
                best_position = select(wins, splat(np.int32(position - start)), best_position)
            store(where, 0, best_position)
            store(levels, 0, to_ints(best_level))
            for lane in range(LANES):
                out_slots[row, b * LANES + lane] = slots[start + where[lane]]
                out_levels[row, b * LANES + lane] = np.uint32(levels[lane])


@njit(cache=True, nogil=True)
def sketch_from_stream(
    indptr: Int64s,
    slots: UInt32s,
    logs: Float32s,
    seed: np.uint64,
    first_block: int,
    out_slots: UInt32s,
    out_levels: UInt32s,
) -> None:
    """Draw samples of rows whose slots are too many for a table; the same samples to the bit.

    Parameters are those of `sketch_from_table`, with the seed in place of the table.
    """
    where = np.empty(LANES, np.int32)
    levels = np.empty(LANES, np.int32)
    for row in range(indptr.shape[0] - 1):
        start = indptr[row]
        for b in range(out_slots.shape[1] // LANES):
            samples = lane_numbers() + splat(np.int32((first_block + b) * LANES))
            least = splat(_INFINITY)
            best_level = splat(_ZERO)
            best_position = splat(np.int32(0))
            for position in range(start, indptr[row + 1]):
                low, high = slot_words(seed, slots[position])
                r, inverse_r, beta, base = hash_parameters(low, high, samples)
                t = level_of(splat(logs[position]), inverse_r, beta)
                a = arrival_of(t, r, base)
                wins = less(a, least)
                least = select(wins, a, least)
                best_level = select(wins, t, best_level)
                best_position = select(wins, splat(np.int32(position - start)), best_position)
            store(where, 0, best_position)
            store(levels, 0, to_ints(best_level))
            for lane in range(LANES):
                out_slots[row, b * LANES + lane] = slots[start + where[lane]]
                out_levels[row, b * LANES + lane] = np.uint32(levels[lane])
