"""The best rows by inner product: a scan at memory speed for one query, from cache for several.

Rows are padded with zeros to whole registers. A product is summed in one order, whichever others it
is computed beside, so equal rows score alike and a batch answers as its queries do alone.
"""

from typing import Any

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import LANES, Float32s, Int64s, UInt8s
from gcws_search.index.kernels.lanes.border import from_python
from gcws_search.index.kernels.lanes.vector import fused, load, offset, pointer, splat, total
from gcws_search.index.kernels.ordering.heap import Heap, Heaps, push, threshold

_ZERO = np.float32(0.0)
_MIN = np.float32(-np.inf)
_THREE = 3
_TILE_FLOATS = 1 << 14
"""Floats of the rows that stay in cache while several queries pass over them (64 KB)."""


@njit(cache=True, nogil=True)
def _product(query, row, width):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (addresses)
    """Return the product of a query and a row."""
    a = splat(_ZERO)
    for i in range(0, width, LANES):
        a = fused(load(query, i), load(row, i), a)
    return total(a)


@njit(cache=True, nogil=True)
def _six_products(query, row0, row1, row2, width):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (addresses)
    """Return the products of a query with three rows, then those of the query after it."""
    a0, a1, a2 = splat(_ZERO), splat(_ZERO), splat(_ZERO)
    b0, b1, b2 = splat(_ZERO), splat(_ZERO), splat(_ZERO)
    after = offset(query, width)
    for i in range(0, width, LANES):
        p, q = load(query, i), load(after, i)
        r = load(row0, i)
        a0, b0 = fused(p, r, a0), fused(q, r, b0)
        r = load(row1, i)
        a1, b1 = fused(p, r, a1), fused(q, r, b1)
        r = load(row2, i)
        a2, b2 = fused(p, r, a2), fused(q, r, b2)
    return total(a0), total(a1), total(a2), total(b0), total(b1), total(b2)


@from_python
@njit(cache=True, nogil=True)
def scan_products(
    queries: Float32s,
    rows: Float32s,
    permitted: UInt8s,
    skip: Int64s,
    first: int,
    last: int,
    out: Heaps,
) -> None:
    """Offer every permitted row in [first, last) to each query's heap.

    Parameters
    ----------
    queries : (m, width) float32
    rows : (n or more, width) float32
    permitted : (n,) uint8
    skip : (m,) int64
        A row that the query must not return, or -1.
    first, last : int
    out : Heaps, written in place
    """
    out = Heaps(*out)
    width = rows.shape[1]
    data, asked = pointer(rows), pointer(queries)
    pairs = queries.shape[0] // 2
    tile = max(_THREE, _TILE_FLOATS // width) if pairs else last - first
    chosen = np.empty(max(tile, 0) + _THREE, np.int64)
    products = np.empty((2, max(tile, 0) + _THREE), np.float32)
    for tile_first in range(first, last, max(tile, 1)):
        tile_last = min(tile_first + tile, last)
        if pairs:
            count = 0
            for row in range(tile_first, tile_last):
                chosen[count] = row
                count += permitted[row] != 0
            for place in range(count, count + _THREE):  # some row, whose products are not read
                chosen[place] = first
            for pair in range(pairs):
                query = offset(asked, 2 * pair * width)
                _tile(query, data, width, chosen, count, products)
                for m in range(2 * pair, 2 * pair + 2):
                    heap = Heap(out.scores[m], out.rows[m])
                    out.sizes[m] = _offer_tile(
                        chosen, products[m % 2], count, skip[m], heap, out.sizes[m]
                    )
        if queries.shape[0] % 2:
            m = queries.shape[0] - 1
            query = offset(asked, m * width)
            _offer_rows(query, rows, permitted, skip, tile_first, tile_last, m, out)


@njit(cache=True, nogil=True)
def _tile(query, data, width, chosen, count, products):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (addresses)
    """Write the products of two queries with the chosen rows."""
    for i in range(0, count, _THREE):
        row0 = offset(data, chosen[i] * width)
        row1 = offset(data, chosen[i + 1] * width)
        row2 = offset(data, chosen[i + 2] * width)
        a0, a1, a2, b0, b1, b2 = _six_products(query, row0, row1, row2, width)
        products[0, i], products[0, i + 1], products[0, i + 2] = a0, a1, a2
        products[1, i], products[1, i + 1], products[1, i + 2] = b0, b1, b2


@njit(cache=True, nogil=True)
def _offer_tile(
    chosen: Int64s, products: Float32s, count: int, skipped: int, out: Heap, size: int
) -> int:
    """Offer the first ``count`` rows to one heap, and return its size."""
    scores, rows = out.scores, out.rows
    bound = threshold(scores, size, _MIN)
    for i in range(count):
        if products[i] >= bound and chosen[i] != skipped:
            size = push(scores, rows, size, products[i], chosen[i])
            bound = threshold(scores, size, _MIN)
    return size


@njit(cache=True, nogil=True)
def _offer_rows(
    query: Any,
    rows: Float32s,
    permitted: UInt8s,
    skip: Int64s,
    first: int,
    last: int,
    m: int,
    out: Heaps,
) -> None:
    """Offer the permitted rows of [first, last) to the heap of query m, given by its address."""
    width = rows.shape[1]
    data = pointer(rows)
    skipped = skip[m]
    scores, hits = out.scores[m], out.rows[m]
    size = out.sizes[m]
    bound = threshold(scores, size, _MIN)
    for row in range(first, last):
        if permitted[row] == 0:
            continue
        score = _product(query, offset(data, row * width), width)
        if score >= bound and row != skipped:
            size = push(scores, hits, size, score, row)
            bound = threshold(scores, size, _MIN)
    out.sizes[m] = size
