"""GMM of dense rows.

With S = ‖u‖₁ + ‖v‖₁ and D = ‖u − v‖₁, GMM = (S − D)/(S + D) directly on signed vectors, without
splitting them into parts. Fast scores are float32; exact ones are float64 sums of float32 values.
Rows are padded with zeros to whole registers (`round_up`).

Source: [GMM] eq. 4-6; min + max = sum and max − min = |difference| give the short form.
"""

from typing import Any

import numpy as np

from gcws_search.index.contracts.arrays import LANES, Float32s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.gmm.rows import HitFilter, Rows
from gcws_search.index.kernels.lanes.vector import (
    NUMBERS_A_LINE,
    absolute,
    at,
    less,
    load,
    load_floats,
    offset,
    pointer,
    prefetch,
    put,
    select,
    splat,
    to_doubles,
    total,
)
from gcws_search.index.kernels.ordering.hits import Heaps, push, threshold

_ZERO = np.float32(0.0)
_BLOCK = 128
"""Floats between two looks at whether a row is too far already."""
_ROUNDING = 1.0 + 1e-4
_TILE_FLOATS = 1 << 14
"""Floats of the rows that stay in cache while several queries pass over them (64 KB)."""
_ROWS_AHEAD = 3
"""Exact scores prefetch the row this much further on: rows prefetched earlier may have left the
caches, which threads of one core share."""


@inner
def dense_score(query: Any, query_norm: Any, row: Any, norm: Any, width: Any) -> Any:
    """Return the float32 GMM of two dense rows.

    ``query`` and ``row`` are addresses of ``width`` float32, a multiple of 16.
    """
    even = splat(_ZERO)
    odd = splat(_ZERO)
    pairs = width // (2 * LANES)
    for pair in range(pairs):
        i = pair * 2 * LANES
        even = even + absolute(load(query, i) - load(row, i))
        i += LANES
        odd = odd + absolute(load(query, i) - load(row, i))
    if pairs * 2 * LANES < width:
        i = pairs * 2 * LANES
        even = even + absolute(load(query, i) - load(row, i))
    distance = total(even + odd)
    both = query_norm + norm
    return (both - distance) / (both + distance)


@inner
def reach(min_score: np.float32) -> np.float32:
    """Return the greatest D/S at which a row can still score ``min_score``, including rounding.

    GMM >= s is equivalent to D <= S (1 - s)/(1 + s).
    """
    return np.float32((1.0 - min_score) / (1.0 + min_score) * _ROUNDING)


@inner
def dense_score_within(
    query: Any, query_norm: Any, row: Any, norm: Any, width: Any, farthest: Any
) -> Any:
    """Return `dense_score`, or -1 as soon as the row is known to be too far.

    D only grows with each coordinate. So the rest of a row is not read once the partial sum exceeds
    what ``farthest``, the `reach` of the minimum score, allows. ``row`` may be the address of
    bytes, for a row of whole numbers.
    """
    both = query_norm + norm
    limit = both * farthest
    even = splat(_ZERO)
    odd = splat(_ZERO)
    whole = width // _BLOCK * _BLOCK
    for block in range(0, whole, _BLOCK):
        for i in range(block, block + _BLOCK, 2 * LANES):
            even = even + absolute(load(query, i) - load_floats(row, i))
            odd = odd + absolute(load(query, i + LANES) - load_floats(row, i + LANES))
        if total(even + odd) > limit:
            return np.float32(-1.0)
    pairs = (width - whole) // (2 * LANES)
    for pair in range(pairs):
        i = whole + pair * 2 * LANES
        even = even + absolute(load(query, i) - load_floats(row, i))
        odd = odd + absolute(load(query, i + LANES) - load_floats(row, i + LANES))
    if whole + pairs * 2 * LANES < width:
        i = whole + pairs * 2 * LANES
        even = even + absolute(load(query, i) - load_floats(row, i))
    distance = total(even + odd)
    return (both - distance) / (both + distance)


@kernel
def scan_dense(
    queries: Rows, rows: Rows, wanted: HitFilter, first: int, last: int, out: Heaps
) -> None:
    """Offer every permitted dense row in [first, last) to each query's heap."""
    queries, rows, wanted, out = Rows(*queries), Rows(*rows), HitFilter(*wanted), Heaps(*out)
    width = rows.dense.shape[1]
    data = pointer(rows.dense)
    sought = pointer(queries.dense)
    norms, query_norms = rows.norms, queries.norms
    permitted, skip, min_score = wanted.permitted, wanted.skip, wanted.min_score
    tile = max(1, _TILE_FLOATS // width)
    # A single query streams rows from memory, where reading less of each saves nothing; several
    # find the rows in cache, where arithmetic counts.
    count = query_norms.shape[0]
    alone = count == 1
    for tile_first in range(first, last, tile):
        tile_last = min(tile_first + tile, last)
        for m in range(count):
            query = offset(sought, m * width)
            query_norm = query_norms[m]
            skipped = skip[m]
            scores = out.scores[m]
            hits = out.rows[m]
            size = out.sizes[m]
            bound = threshold(scores, size, min_score)
            farthest = reach(bound)
            for row in range(tile_first, tile_last):
                if permitted[row] == 0:
                    continue
                address = offset(data, row * width)
                norm = norms[row]
                if alone:
                    score = dense_score(query, query_norm, address, norm, width)
                else:
                    score = dense_score_within(query, query_norm, address, norm, width, farthest)
                if score >= bound and row != skipped:
                    size = push(scores, hits, size, score, row)
                    if size == scores.shape[0]:
                        bound = threshold(scores, size, min_score)
                        farthest = reach(bound)
            out.sizes[m] = size


@inner
def exact_dense(
    query: Any, width: Any, rows: Any, stride: Any, chosen: Any, count: Any, out: Any
) -> None:
    """Write the GMM of a query and ``count`` rows, Σ min / Σ max in float64, all by address.

    Small scores have the same relative accuracy as great ones, unlike (S − D)/(S + D).
    A row is ``width`` float32, or bytes, every ``stride`` entries.
    """
    zero = splat(0.0)
    for h in range(count):
        row = offset(rows, at(chosen, h) * stride)
        further = offset(rows, at(chosen, min(h + _ROWS_AHEAD, count - 1)) * stride)
        for i in range(0, width, NUMBERS_A_LINE):
            prefetch(offset(further, i))
        low = zero
        high = zero
        for i in range(0, width, LANES):
            u = to_doubles(load(query, i))
            v = to_doubles(load_floats(row, i))
            p = absolute(u)
            q = absolute(v)
            shared = select(less(p, q), p, q)
            shared = select(less(u * v, zero), zero, shared)
            low = low + shared
            high = high + ((p + q) - shared)
        put(out, h, total(low) / total(high))


@kernel
def matrix_dense(
    a: Float32s, a_norms: Float32s, b: Float32s, b_norms: Float32s, out: Float32s
) -> None:
    """Write the (n, m) float32 GMM of the rows of ``a`` with those of ``b``, tile by tile."""
    width = a.shape[1]
    left = pointer(a)
    right = pointer(b)
    tile = max(1, _TILE_FLOATS // width)
    for tile_first in range(0, b.shape[0], tile):
        for i in range(a.shape[0]):
            query = offset(left, i * width)
            for j in range(tile_first, min(tile_first + tile, b.shape[0])):
                row = offset(right, j * width)
                out[i, j] = dense_score(query, a_norms[i], row, b_norms[j], width)
