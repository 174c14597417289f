"""GCWS samples of dense vectors, with parameters from a table.

L = log ũ, t = floor(L/r + β), a = log c − r(t + 1 − β), i* = argmin a. Sixteen samples are computed
together, with their running minima in registers. Wide rows are processed in parts, and the minima
are stored in between. Of equal a (float32), the first slot of the row in ascending order wins.
`gcws_stream` computes the same samples, to the bit, without a table.

Source: [GMM] Algorithm 1; [ICWS] §3.
"""

from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import LANES, Float32s, Int64s, UInt32s, UInt64s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.hashing.band_keys import BandLayout, pack_bands
from gcws_search.index.kernels.hashing.randomness import (
    arrival_of,
    hash_parameters,
    level_of,
    slot_words,
)
from gcws_search.index.kernels.lanes.functions import log_positive
from gcws_search.index.kernels.lanes.vector import (
    lane_numbers,
    less,
    load,
    offset,
    pointer,
    prefetch,
    select,
    splat,
    store,
    to_ints,
)

_INFINITY = np.float32(np.inf)
_ZERO = np.float32(0.0)
_PARAMETERS = 4
_STRIDE = _PARAMETERS * LANES
_SLOTS_AHEAD = 16
"""A lone row prefetches parameters this many slots ahead: 43 µs, not 68, when no cache has them."""
_SLOTS_TOGETHER = 96
"""Slots whose parameters of sixteen samples, 24 KiB, stay in the first cache for all rows."""
_ROWS_TOGETHER = 256
"""Rows sketched at a time: their samples stay in cache until they are packed."""


@kernel
def dense_slots(rows: Float32s, indptr: Int64s, slots: UInt32s, values: Float32s) -> None:
    """List the non-zero slots of signed dense rows, with their magnitudes.

    indptr (n + 1,), slots, values (n · dim + 1,): written in place. Slot 2i is a positive
      coordinate i, 2i + 1 a negative one ([GMM] eq. 4). There is one extra place, because an
      entry is written before it is known whether it is kept.
    """
    filled = 0
    indptr[0] = 0
    for row in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            x = rows[row, i]
            # Always written, kept only if non-zero: no branch to mispredict.
            slots[filled] = np.uint32(2 * i + (x < _ZERO))
            values[filled] = abs(x)
            filled += x != _ZERO
        indptr[row + 1] = filled


@inner
def part_borders(indptr: Int64s, slots: UInt32s, borders: Int64s) -> None:
    """Write the starts of the parts of n rows, (parts + 1, n); the last has all other slots."""
    parts = borders.shape[0] - 1
    for row in range(borders.shape[1]):
        position, end = indptr[row], indptr[row + 1]
        borders[0, row] = position
        for part in range(1, parts):
            while position < end and np.int64(slots[position]) < part * _SLOTS_TOGETHER:
                position += 1
            borders[part, row] = position
        borders[parts, row] = end


@kernel
def fill_table(seed: np.uint64, slots: int, blocks: int, table: Float32s) -> None:
    """Write the hash parameters of all slots and samples.

    table (blocks · slots · 4 · LANES,), written in place: [b, i, :, l] holds
      (r, 1/r, β, log c − r(1 − β)) of slot i and sample b·LANES + l.
    """
    for slot in range(slots):
        low, high = slot_words(seed, np.uint32(slot))
        for block in range(blocks):
            samples = lane_numbers() + splat(np.int32(block * LANES))
            r, inverse_r, beta, base = hash_parameters(splat(low), splat(high), samples)
            at = (block * slots + slot) * _STRIDE
            store(table, at, r)
            store(table, at + LANES, inverse_r)
            store(table, at + 2 * LANES, beta)
            store(table, at + 3 * LANES, base)


@kernel
def sketch_from_table(
    rows: Float32s,
    table: Float32s,
    slot_count: int,
    first_block: int,
    out_slots: UInt32s,
    out_levels: UInt32s,
) -> None:
    """Compute samples of signed dense rows with stored parameters, block by block over all rows.

    No row is all zeros. ``table`` is from `fill_table`, for ``slot_count`` slots.
    out_slots, out_levels: see `gcws_stream.sketch_from_stream`.
    """
    n, m = out_slots.shape
    indptr = np.empty(n + 1, np.int64)
    slots = np.empty(rows.size + 1, np.uint32)
    logs = np.empty(rows.size + LANES, np.float32)
    dense_slots(rows, indptr, slots, logs)
    for start in range(0, indptr[n], LANES):
        store(logs, start, log_positive(load(logs, start)))
    parts = max(1, -(-slot_count // _SLOTS_TOGETHER)) if n > 1 else 1
    borders = np.empty((parts + 1, n), np.int64)
    part_borders(indptr, slots, borders)
    best_values = np.empty(n * LANES, np.float32)
    best_levels = np.empty(n * LANES, np.float32)
    best_slots = np.empty(n * LANES, np.int32)
    to_slots, to_levels = pointer(out_slots), pointer(out_levels)
    parameters = pointer(table)
    for b in range(m // LANES):
        block = (first_block + b) * slot_count
        for part in range(parts):
            for row in range(n):
                minimum = splat(_INFINITY)
                best_level = splat(_ZERO)
                best_slot = splat(np.int32(0))
                if part > 0:
                    minimum = load(best_values, row * LANES)
                    best_level = load(best_levels, row * LANES)
                    best_slot = load(best_slots, row * LANES)
                for position in range(borders[part, row], borders[part + 1, row]):
                    slot = slots[position]
                    at = (block + np.int64(slot)) * _STRIDE
                    if n == 1:
                        ahead = position + _SLOTS_AHEAD
                        further = block
                        if ahead >= indptr[n]:  # in the next block
                            further += slot_count
                            ahead = min(ahead - indptr[n], indptr[n] - 1)
                        line = (further + np.int64(slots[ahead])) * _STRIDE
                        for parameter in range(_PARAMETERS):
                            prefetch(offset(parameters, line + parameter * LANES))
                    t = level_of(
                        splat(logs[position]), load(table, at + LANES), load(table, at + 2 * LANES)
                    )
                    a = arrival_of(t, load(table, at), load(table, at + 3 * LANES))
                    wins = less(a, minimum)
                    minimum = select(wins, a, minimum)
                    best_level = select(wins, t, best_level)
                    best_slot = select(wins, splat(np.int32(slot)), best_slot)
                if part == parts - 1:
                    store(to_slots, row * m + b * LANES, best_slot)
                    store(to_levels, row * m + b * LANES, to_ints(best_level))
                else:
                    store(best_values, row * LANES, minimum)
                    store(best_levels, row * LANES, best_level)
                    store(best_slots, row * LANES, best_slot)


class Hashing(NamedTuple):
    """How to compute keys of dense rows from a table; see `fill_table`, `BandLayout`."""

    table: Any
    slots: Any  # number of slots in the table
    width: Any
    bits: Any
    encoding: Any
    prefix: Any


@inner
def draw_keys(rows: Any, hashing: Any, out: Any) -> None:
    """Write the (n, bands) keys of signed dense rows in the first tables."""
    for first in range(0, rows.shape[0], _ROWS_TOGETHER):
        last = min(first + _ROWS_TOGETHER, rows.shape[0])
        _draw_keys(rows[first:last], hashing, 0, out[first:last])


@inner
def _draw_keys(rows: Any, hashing: Any, band: Any, out: Any) -> None:
    first = band * hashing.width // LANES
    samples = -(-(band + out.shape[1]) * hashing.width // LANES) * LANES - first * LANES
    slots = np.empty((rows.shape[0], samples), np.uint32)
    levels = np.empty((rows.shape[0], samples), np.uint32)
    sketch_from_table(rows, hashing.table, hashing.slots, first, slots, levels)
    layout = BandLayout(hashing.width, hashing.bits, hashing.encoding, hashing.prefix)
    pack_bands(slots, levels, first * LANES, band, layout, out)


@kernel
def keys_from_table(rows: Float32s, hashing: Hashing, band: int, out: UInt64s) -> None:
    """Write the (n, bands) keys of signed dense rows from ``band`` on; see `sketch_from_table`."""
    _draw_keys(rows, Hashing(*hashing), band, out)
