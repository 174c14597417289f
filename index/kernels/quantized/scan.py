"""Scanning dense rows for many queries at once, by their rounded copies first.

Rounding moves a row by some distance, its error e. By the triangle inequality a query and a row are
at least as far apart as their copies, less both errors: D ≥ step · D(copies) − e(query) − e(row).
Only the rows that this leaves within reach of the hits so far are read as they are, so the hits are
those of `gmm.dense.scan_dense`. Bytes take a fifth of the time that floats do.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import LANES, Float32s, UInt8s
from gcws_search.index.kernels.gmm.dense import dense_score_within, reach
from gcws_search.index.kernels.gmm.rows import HitFilter, Rows
from gcws_search.index.kernels.lanes.border import from_python
from gcws_search.index.kernels.lanes.pointers import put
from gcws_search.index.kernels.lanes.vector import (
    at,
    holds_everywhere,
    keep,
    less,
    load,
    offset,
    pointer,
    splat,
)
from gcws_search.index.kernels.ordering.heap import Heaps, push, threshold
from gcws_search.index.kernels.quantized.l1_distance import (
    REGISTER_BYTES,
    add_byte_differences,
    no_sums,
    total_of_sums,
)

_TILE_BYTES = 1 << 14
"""Bytes of the copies that stay in cache while all queries pass over them."""
_NEVER = np.float32(-np.inf)
_MORE = 1.0 + 1e-5
"""Errors are taken to be so much greater: they are rounded to float32, as what they are compared
with."""


@njit(cache=True, nogil=True)
def rounding_errors(
    rows: Float32s, copies: UInt8s, step: float, origin: int, first: int, last: int, out: Float32s
) -> None:
    """Write how far rows first … last - 1 are from their copies.

    Parameters
    ----------
    rows : (n, width) float32
    copies : (n, stride) uint8
    step : float
        What one unit of a copy stands for.
    origin : int
        The byte of 0.
    first, last : int
    out : (n,) float32, written in place
        ‖row − step · (copy − origin)‖₁.
    """
    for row in range(first, last):
        error = 0.0
        for i in range(rows.shape[1]):
            error += abs(np.float64(rows[row, i]) - step * (np.int64(copies[row, i]) - origin))
        out[row] = np.float32(error * _MORE)


@njit(cache=True, nogil=True, forceinline=True)
def _four(code: Any, a: Any, b: Any, c: Any, d: Any, stride: Any, out: Any) -> None:
    """Write the distances of four copies from a query's, which is loaded once for all of them."""
    to_a, to_b, to_c, to_d = no_sums(), no_sums(), no_sums(), no_sums()
    for i in range(0, stride, REGISTER_BYTES):
        to_a = add_byte_differences(to_a, code, a, i)
        to_b = add_byte_differences(to_b, code, b, i)
        to_c = add_byte_differences(to_c, code, c, i)
        to_d = add_byte_differences(to_d, code, d, i)
    put(out, 0, np.float32(total_of_sums(to_a)))
    put(out, 1, np.float32(total_of_sums(to_b)))
    put(out, 2, np.float32(total_of_sums(to_c)))
    put(out, 3, np.float32(total_of_sums(to_d)))


@njit(cache=True, nogil=True, forceinline=True)
def _distances_by(code: Any, copies: Any, stride: Any, last: Any, out: Any) -> None:
    for row in range(0, LANES, 4):
        _four(
            code,
            offset(copies, min(row, last) * stride),
            offset(copies, min(row + 1, last) * stride),
            offset(copies, min(row + 2, last) * stride),
            offset(copies, min(row + 3, last) * stride),
            stride,
            offset(out, row),
        )


@njit(cache=True, nogil=True)
def _distances(code: Any, copies: Any, stride: Any, last: Any, out: Any) -> None:
    """Write the distances of `LANES` copies from a query's; those after the last are its again."""
    if stride == REGISTER_BYTES:
        _distances_by(code, copies, REGISTER_BYTES, last, out)
    elif stride == 2 * REGISTER_BYTES:
        _distances_by(code, copies, 2 * REGISTER_BYTES, last, out)
    else:
        _distances_by(code, copies, stride, last, out)


class BoundedCopies(NamedTuple):
    """Vectors rounded to bytes, with how far each is from its copy.

    Attributes
    ----------
    codes : (n, stride) uint8
    errors : (n,) float32
        See `rounding_errors`.
    step : float
        What one unit of a copy stands for.
    """

    codes: UInt8s
    errors: Float32s
    step: float


@from_python
@njit(cache=True, nogil=True)
def scan_rounded(
    queries: Rows,
    query_copies: BoundedCopies,
    rows: Rows,
    copies: BoundedCopies,
    wanted: HitFilter,
    first: int,
    last: int,
    out: Heaps,
) -> None:
    """Offer every permitted row in [first, last) to each query's heap.

    Parameters
    ----------
    queries : Rows
        Dense.
    query_copies : BoundedCopies
    rows : Rows
        Dense.
    copies : BoundedCopies
        The rows, rounded as the queries are.
    wanted : HitFilter
    first, last : int
    out : Heaps, written in place
    """
    queries, query_copies, rows = Rows(*queries), BoundedCopies(*query_copies), Rows(*rows)
    copies, wanted, out = BoundedCopies(*copies), HitFilter(*wanted), Heaps(*out)
    norms, query_norms, errors = rows.norms, queries.norms, copies.errors
    permitted, skip, least = wanted.permitted, wanted.skip, wanted.min_score
    data, sought = pointer(rows.dense), pointer(queries.dense)
    all_codes, query_codes = pointer(copies.codes), pointer(query_copies.codes)
    width = rows.dense.shape[1]
    stride = copies.codes.shape[1]
    unit = np.float32(copies.step)
    tile = max(1, _TILE_BYTES // (stride * LANES)) * LANES
    distances = np.empty(LANES, np.float32)
    apart = pointer(distances)
    # Rows that are not permitted are farther away than any that is.
    tile_norms = np.empty(tile, np.float32)
    tile_errors = np.empty(tile, np.float32)
    for tile_first in range(first, last, tile):
        tile_last = min(tile_first + tile, last)
        for place in range(tile):
            row = tile_first + place
            held = row < tile_last and permitted[row] != 0
            tile_norms[place] = norms[row] if held else _NEVER
            tile_errors[place] = errors[row] if held else np.float32(0.0)
        for m in range(query_norms.shape[0]):
            query = offset(sought, m * width)
            code = offset(query_codes, m * stride)
            query_norm = query_norms[m]
            query_error = query_copies.errors[m]
            skipped = skip[m]
            scores = out.scores[m]
            hits = out.rows[m]
            size = out.sizes[m]
            bound = threshold(scores, size, least)
            farthest = reach(bound)
            for block in range(tile_first, tile_last, LANES):
                some = min(LANES, tile_last - block)
                codes = offset(all_codes, block * stride)
                _distances(code, codes, stride, some - 1, apart)
                allowed = splat(query_norm) + load(tile_norms, block - tile_first)
                allowed = allowed * splat(farthest) + splat(query_error)
                allowed = allowed + load(tile_errors, block - tile_first)
                if holds_everywhere(less(allowed, load(apart, 0) * splat(unit))):
                    continue
                for row in range(block, block + some):
                    both = query_norm + norms[row]
                    limit = both * farthest + query_error + errors[row]
                    if permitted[row] == 0 or at(apart, row - block) * unit > limit:
                        continue
                    score = dense_score_within(
                        query,
                        query_norm,
                        offset(data, row * width),
                        norms[row],
                        width,
                        farthest,
                    )
                    if score >= bound and row != skipped:
                        size = push(scores, hits, size, score, row)
                        bound = threshold(scores, size, least)
                        farthest = reach(bound)
            out.sizes[m] = size
    keep(distances)
