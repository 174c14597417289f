"""Scanning dense rows for many queries at once.

Rows are turned into tiles, coordinate by coordinate sixteen rows side by side, so that sixteen
scores come about in the lanes of one register and nothing has to be summed across it. Four queries
share each load, and a tile stays in cache while all queries pass over it. The distance is taken
from minima, ‖u − v‖₁ = Σu + Σv − 2 Σ min(u, v): two steps a coordinate.
"""

from typing import Any

import numpy as np
from numba import njit

from index.arrays import LANES, Float32s, Int64s, UInt8s
from index.kernels.addresses import put
from index.kernels.gmm_dense import reach
from index.kernels.heap import push
from index.kernels.simd import (
    at,
    holds_everywhere,
    less,
    load,
    offset,
    pointer,
    select,
    splat,
    store,
)

MANY = 32
"""Queries of a thread from which turning the rows pays."""
_TOGETHER = 4
"""Queries that share a load."""
RUN = 16
"""Coordinates summed before they are added to the rest, so that rounding does not pile up."""
_TILE_FLOATS = 1 << 12
"""Floats of a tile (16 KB)."""
_ZERO = np.float32(0.0)
_NEVER = np.float32(-np.inf)
"""Norm of rows that are not wanted: whatever is within reach of it, no distance is."""


def tile_rows(width: int) -> int:
    """Return how many rows of so many floats make a tile."""
    return max(1, _TILE_FLOATS // (width * LANES)) * LANES


@njit(cache=True, nogil=True)
def _turn(
    rows: Any, width: int, norms: Any, permitted: Any, first: int, last: int, out: Any,
    out_norms: Any, out_sums: Any,
) -> int:  # fmt: skip
    """Write rows first … last - 1 as a tile; return how many blocks of `LANES` rows it has."""
    blocks = (last - first + LANES - 1) // LANES
    for place in range(blocks * LANES):
        row = first + place
        block = offset(out, place // LANES * (width * LANES) + place % LANES)
        if row >= last or at(permitted, row) == 0:
            put(out_norms, place, _NEVER)
            put(out_sums, place, _ZERO)
            for i in range(width):
                put(block, i * LANES, _ZERO)
            continue
        sum_ = 0.0
        own = offset(rows, row * width)
        for i in range(width):
            value = at(own, i)
            sum_ += np.float64(value)
            put(block, i * LANES, value)
        put(out_norms, place, at(norms, row))
        put(out_sums, place, np.float32(sum_))
    return blocks


@njit(cache=True, nogil=True, forceinline=True)
def _lesser(a: Any, b: Any) -> Any:
    return select(less(a, b), a, b)


@njit(cache=True, nogil=True, forceinline=True)
def _shared(a: Any, b: Any, c: Any, d: Any, block: Any, width: Any) -> Any:
    """Return Σ min of four queries and the sixteen rows of a block."""
    zero = splat(_ZERO)
    all_a, all_b, all_c, all_d = zero, zero, zero, zero
    for start in range(0, width, RUN):
        some_a, some_b, some_c, some_d = zero, zero, zero, zero
        for i in range(start, start + RUN):
            rows = load(block, i * LANES)
            some_a = some_a + _lesser(splat(at(a, i)), rows)
            some_b = some_b + _lesser(splat(at(b, i)), rows)
            some_c = some_c + _lesser(splat(at(c, i)), rows)
            some_d = some_d + _lesser(splat(at(d, i)), rows)
        all_a = all_a + some_a
        all_b = all_b + some_b
        all_c = all_c + some_c
        all_d = all_d + some_d
    return all_a, all_b, all_c, all_d


@njit(cache=True, nogil=True, forceinline=True)
def _apart(shared: Any, sum_: Any, sums: Any) -> Any:
    """Return the distances of a query and sixteen rows."""
    distances = (splat(sum_) + sums) - (shared + shared)
    zero = splat(_ZERO)
    return select(less(distances, zero), zero, distances)


@njit(cache=True, nogil=True)
def _offer(
    distances: Any, query_norm: Any, norms: Any, first: Any, skipped: Any, bound: Any, least: Any,
    scores: Float32s, kept: Int64s, size: int,
) -> Any:  # fmt: skip
    """Offer sixteen rows to a heap; return its new size, and the least score still wanted."""
    for lane in range(LANES):
        norm = at(norms, lane)
        row = first + lane
        if norm == _NEVER or row == skipped:
            continue
        both = query_norm + norm
        score = (both - at(distances, lane)) / (both + at(distances, lane))
        if score >= bound:
            size = push(scores, kept, size, score, row)
            if size == scores.shape[0]:
                bound = max(scores[0], least)
    return size, bound


@njit(cache=True, nogil=True)
def scan_tiles(
    queries: Float32s,
    query_norms: Float32s,
    rows: Float32s,
    norms: Float32s,
    permitted: UInt8s,
    skip: Int64s,
    least: np.float32,
    first: int,
    last: int,
    tile: Float32s,
    out_scores: Float32s,
    out_rows: Int64s,
    out_sizes: Int64s,
) -> None:
    """Offer every permitted row in [first, last) to each query's heap.

    Parameters
    ----------
    queries : (m, width) float32
    query_norms : (m,) float32
    rows : (n, width) float32
    norms : (n,) float32
    permitted : (n,) uint8
    skip : (m,) int64
        A row that the query must not return, or -1.
    least : float32
        Lower scores are not wanted.
    first, last : int
    tile : (tile_rows(width), width) float32
        Written on.
    out_scores : (m, k) float32, written in place
    out_rows : (m, k) int64, written in place
    out_sizes : (m,) int64, written in place
    """
    count, width = queries.shape
    bounds = np.empty(count, np.float32)
    reaches = np.empty(count, np.float32)
    sums = np.empty(count, np.float32)
    for m in range(count):
        full = out_sizes[m] == out_scores.shape[1]
        bounds[m] = max(out_scores[m, 0], least) if full else least
        reaches[m] = reach(bounds[m])
        sum_ = 0.0
        for i in range(width):
            sum_ += np.float64(queries[m, i])
        sums[m] = np.float32(sum_)
    tile_norms = np.empty(tile.shape[0], np.float32)
    tile_sums = np.empty(tile.shape[0], np.float32)
    found = np.empty(_TOGETHER * LANES, np.float32)
    sought = pointer(queries)
    for tile_first in range(first, last, tile.shape[0]):
        tile_last = min(tile_first + tile.shape[0], last)
        blocks = _turn(
            pointer(rows), width, pointer(norms), pointer(permitted), tile_first, tile_last,
            pointer(tile), pointer(tile_norms), pointer(tile_sums),
        )  # fmt: skip
        for start in range(0, count, _TOGETHER):
            end = min(start + _TOGETHER, count)
            a = offset(sought, start * width)
            b = offset(sought, min(start + 1, count - 1) * width)
            c = offset(sought, min(start + 2, count - 1) * width)
            d = offset(sought, min(start + 3, count - 1) * width)
            for block in range(blocks):
                shared = _shared(
                    a, b, c, d, offset(pointer(tile), block * (width * LANES)), width
                )  # fmt: skip
                store(found, 0, shared[0])
                store(found, LANES, shared[1])
                store(found, 2 * LANES, shared[2])
                store(found, 3 * LANES, shared[3])
                block_norms = load(tile_norms, block * LANES)
                block_sums = load(tile_sums, block * LANES)
                for m in range(start, end):
                    place = (m - start) * LANES
                    distances = _apart(load(found, place), sums[m], block_sums)
                    farthest = (splat(query_norms[m]) + block_norms) * splat(reaches[m])
                    if holds_everywhere(less(farthest, distances)):
                        continue
                    store(found, place, distances)
                    out_sizes[m], bounds[m] = _offer(
                        offset(pointer(found), place), query_norms[m],
                        offset(pointer(tile_norms), block * LANES), tile_first + block * LANES,
                        skip[m], bounds[m], least, out_scores[m], out_rows[m], out_sizes[m],
                    )  # fmt: skip
                    reaches[m] = reach(bounds[m])
