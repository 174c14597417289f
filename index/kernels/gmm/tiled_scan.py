"""Scan dense rows for many queries at once.

Rows are transposed into tiles, coordinate by coordinate with sixteen rows side by side. So the
lanes of one register accumulate sixteen scores, and no sum across it is needed. Four queries share
each load, and a tile stays in cache while all queries use it. The distance is computed from minima,
‖u − v‖₁ = Σu + Σv − 2 Σ min(u, v): two steps per coordinate.
"""

from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import LANES, Float32s, UInt8s
from gcws_search.index.kernels.compiling import inlined, inner, kernel
from gcws_search.index.kernels.gmm.dense import reach
from gcws_search.index.kernels.gmm.rows import HitFilter, Rows
from gcws_search.index.kernels.lanes.vector import (
    at,
    holds_everywhere,
    less,
    load,
    offset,
    pointer,
    put,
    select,
    splat,
    store,
)
from gcws_search.index.kernels.ordering.hits import Heaps, push, threshold

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


class _Tile(NamedTuple):
    """Transposed rows: coordinate by coordinate, sixteen rows side by side."""

    values: Float32s  # (t, width)
    norms: Float32s  # (t,): L1 norms, `_NEVER` for rows that are not permitted
    sums: Float32s  # (t,): of the coordinates


def tile_rows(width: int) -> int:
    """Return the number of rows of ``width`` floats in a tile."""
    return max(1, _TILE_FLOATS // (width * LANES)) * LANES


@inner
def _turn(rows: Rows, permitted: UInt8s, first: int, last: int, out: _Tile) -> int:
    """Write rows first … last - 1 as a tile; return its number of blocks of `LANES` rows."""
    width = rows.dense.shape[1]
    data, norms, wanted = pointer(rows.dense), pointer(rows.norms), pointer(permitted)
    out_values, out_norms, out_sums = pointer(out.values), pointer(out.norms), pointer(out.sums)
    blocks = (last - first + LANES - 1) // LANES
    for place in range(blocks * LANES):
        row = first + place
        block = offset(out_values, place // LANES * (width * LANES) + place % LANES)
        if row >= last or at(wanted, row) == 0:
            put(out_norms, place, _NEVER)
            put(out_sums, place, _ZERO)
            for i in range(width):
                put(block, i * LANES, _ZERO)
            continue
        sum_ = 0.0
        own = offset(data, row * width)
        for i in range(width):
            value = at(own, i)
            sum_ += np.float64(value)
            put(block, i * LANES, value)
        put(out_norms, place, at(norms, row))
        put(out_sums, place, np.float32(sum_))
    return blocks


@inlined
def _lesser(a: Any, b: Any) -> Any:
    return select(less(a, b), a, b)


@inlined
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


@inlined
def _apart(shared: Any, sum_: Any, sums: Any) -> Any:
    """Return the distances of a query to sixteen rows."""
    distances = (splat(sum_) + sums) - (shared + shared)
    zero = splat(_ZERO)
    return select(less(distances, zero), zero, distances)


@inner
def _offer(
    distances: Any,
    norms: Any,
    first: int,
    m: int,
    query_norm: np.float32,
    bound: np.float32,
    wanted: HitFilter,
    out: Heaps,
) -> np.float32:
    """Offer sixteen rows to a query's heap; return the new minimum score."""
    scores, hits = out.scores[m], out.rows[m]
    size = out.sizes[m]
    skipped, min_score = wanted.skip[m], wanted.min_score
    for lane in range(LANES):
        norm = at(norms, lane)
        row = first + lane
        if norm == _NEVER or row == skipped:
            continue
        both = query_norm + norm
        score = (both - at(distances, lane)) / (both + at(distances, lane))
        if score >= bound:
            size = push(scores, hits, size, score, row)
            bound = threshold(scores, size, min_score)
    out.sizes[m] = size
    return bound


@kernel
def scan_tiles(
    queries: Rows, rows: Rows, wanted: HitFilter, first: int, last: int, tile: Float32s, out: Heaps
) -> None:
    """Offer every permitted dense row in [first, last) to each query's heap.

    tile (tile_rows(width), width): overwritten.
    """
    queries, rows, wanted, out = Rows(*queries), Rows(*rows), HitFilter(*wanted), Heaps(*out)
    count, width = queries.dense.shape
    bounds = np.empty(count, np.float32)
    reaches = np.empty(count, np.float32)
    sums = np.empty(count, np.float32)
    for m in range(count):
        bounds[m] = threshold(out.scores[m], out.sizes[m], wanted.min_score)
        reaches[m] = reach(bounds[m])
        sum_ = 0.0
        for i in range(width):
            sum_ += np.float64(queries.dense[m, i])
        sums[m] = np.float32(sum_)
    tile_norms = np.empty(tile.shape[0], np.float32)
    tile_sums = np.empty(tile.shape[0], np.float32)
    found = np.empty(_TOGETHER * LANES, np.float32)
    turned = _Tile(tile, tile_norms, tile_sums)
    query_norms = queries.norms
    sought = pointer(queries.dense)
    for tile_first in range(first, last, tile.shape[0]):
        tile_last = min(tile_first + tile.shape[0], last)
        blocks = _turn(rows, wanted.permitted, tile_first, tile_last, turned)
        for start in range(0, count, _TOGETHER):
            end = min(start + _TOGETHER, count)
            a = offset(sought, start * width)
            b = offset(sought, min(start + 1, count - 1) * width)
            c = offset(sought, min(start + 2, count - 1) * width)
            d = offset(sought, min(start + 3, count - 1) * width)
            for block in range(blocks):
                shared = _shared(a, b, c, d, offset(pointer(tile), block * (width * LANES)), width)
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
                    bounds[m] = _offer(
                        offset(pointer(found), place),
                        offset(pointer(tile_norms), block * LANES),
                        tile_first + block * LANES,
                        m,
                        query_norms[m],
                        bounds[m],
                        wanted,
                        out,
                    )
                    reaches[m] = reach(bounds[m])
