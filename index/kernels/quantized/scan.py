"""Scanning dense rows by their copies in bytes, and reading only the rows that may be hits.

The hits are those of `gmm.dense.scan_dense`, for no row is left out that may be one (`reach`).
A query to which bytes say little reads floats for the next tiles, and then tries again.
"""

from typing import Any

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import LANES, Int64s
from gcws_search.index.contracts.batches import RowCopies
from gcws_search.index.kernels.gmm.dense import dense_score_within, reach
from gcws_search.index.kernels.gmm.rows import HitFilter, Rows
from gcws_search.index.kernels.lanes.border import from_python
from gcws_search.index.kernels.lanes.vector import at, keep, offset, pointer
from gcws_search.index.kernels.ordering.heap import Heaps, push, threshold
from gcws_search.index.kernels.ordering.merge import RowPairs
from gcws_search.index.kernels.quantized.quantize import copied_like
from gcws_search.index.kernels.quantized.reach import (
    copied_query,
    copy_tile,
    rows_of_a_tile,
    tile_room,
    within_reach,
)

_ZERO = np.float32(0.0)
_MAX_PAUSE = 16
"""Tiles that a query reads as floats at most before it tries bytes again."""


@njit(cache=True, nogil=True)
def _offer(
    queries: Rows,
    m: int,
    rows: Rows,
    first: int,
    near: Any,
    count: int,
    wanted: HitFilter,
    out: Heaps,
) -> np.float32:
    """Offer rows to the heap of query m; return the least score still wanted.

    Parameters
    ----------
    queries : Rows
    m : int
    rows : Rows
    first : int
    near : address of int64
        ``count`` rows, counted from ``first``.
    count : int
    wanted : HitFilter
    out : Heaps, written in place
    """
    scores, hits, size = out.scores[m], out.rows[m], out.sizes[m]
    width, norm = rows.dense.shape[1], queries.norms[m]
    query, data = offset(pointer(queries.dense), m * width), pointer(rows.dense)
    bound = threshold(scores, size, wanted.min_score)
    farthest = reach(bound)
    for i in range(count):
        row = first + at(near, i)
        score = dense_score_within(
            query, norm, offset(data, row * width), rows.norms[row], width, farthest
        )
        if score >= bound and row != wanted.skip[m]:
            size = push(scores, hits, size, score, row)
            bound = threshold(scores, size, wanted.min_score)
            farthest = reach(bound)
    out.sizes[m] = size
    return bound


@from_python
@njit(cache=True, nogil=True)
def scan_copies(
    queries: Rows,
    rows: Rows,
    copies: RowCopies,
    wanted: HitFilter,
    first: int,
    last: int,
    out: Heaps,
) -> int:
    """Offer every permitted row in [first, last) to each query's heap.

    Parameters
    ----------
    queries : Rows
        Dense.
    rows : Rows
        Dense.
    copies : RowCopies
        Of the rows.
    wanted : HitFilter
    first, last : int
    out : Heaps, written in place

    Returns
    -------
    int
        Rows read as floats, counted for each query that did.
    """
    queries, rows, copies = Rows(*queries), Rows(*rows), RowCopies(*copies)
    wanted, out = HitFilter(*wanted), Heaps(*out)
    query_copies = copied_like(queries.dense, copies)
    count, stride = queries.norms.shape[0], copies.codes.shape[1]
    codes, unit = pointer(query_copies.codes), np.float32(copies.step)
    size = rows_of_a_tile(stride)
    words, floats = np.empty((5, size), np.int64), np.empty(3 * size + 2 * LANES, np.float32)
    room = tile_room(words, floats, stride)
    bounds, reaches = np.empty(count, np.float32), np.empty(count, np.float32)
    for m in range(count):
        bounds[m] = threshold(out.scores[m], out.sizes[m], wanted.min_score)
        reaches[m] = reach(bounds[m])
    pauses = np.zeros((2, count), np.int64)  # tiles to read as floats; how many the next time
    read = 0
    # Tiles double until they are full: the first hits are not near, and leave out few rows.
    tile_first, tile_last = first, min(first + LANES, last)
    while tile_first < last:
        tile = copy_tile(rows, copies, wanted.permitted, tile_first, tile_last, room)
        for m in range(count if tile.count > 0 else 0):
            if pauses[0, m] > 0 or bounds[m] <= _ZERO:
                pauses[0, m] -= pauses[0, m] > 0
                found, near = tile.count, tile.places
            else:
                asked = copied_query(queries.norms, query_copies, m, offset(codes, m * stride))
                found = within_reach(asked, tile, unit, stride, reaches[m], count == 1, room)
                near = room.near
                if found == 0:
                    continue
                pause = min(_MAX_PAUSE, 2 * pauses[1, m] + 1) if 2 * found > tile.count else 0
                pauses[0, m] = pauses[1, m] = pause
            read += found
            bounds[m] = _offer(queries, m, rows, tile_first, near, found, wanted, out)
            reaches[m] = reach(bounds[m])
        tile_first, tile_last = tile_last, min(tile_last + min(size, tile_last - first), last)
    keep(query_copies.codes)
    keep(words)
    keep(floats)
    return read


@from_python
@njit(cache=True, nogil=True)
def collect_copies(
    query: Rows,
    rows: Rows,
    copies: RowCopies,
    wanted: HitFilter,
    out: Int64s,
) -> int:
    """List all permitted rows that score at least ``min_score``; return how many there are.

    Parameters
    ----------
    query : Rows
        One dense vector.
    rows, copies : Rows, RowCopies
    wanted : HitFilter
    out : (n,) int64, written in place
    """
    query, rows, copies, wanted = Rows(*query), Rows(*rows), RowCopies(*copies), HitFilter(*wanted)
    query_copy = copied_like(query.dense, copies)
    width, stride = rows.dense.shape[1], copies.codes.shape[1]
    data, sought = pointer(rows.dense), pointer(query.dense)
    unit, min_score = np.float32(copies.step), wanted.min_score
    farthest = reach(min_score)
    asked = copied_query(query.norms, query_copy, 0, pointer(query_copy.codes))
    size, n, found = rows_of_a_tile(stride), rows.norms.shape[0], 0
    words, floats = np.empty((5, size), np.int64), np.empty(3 * size + 2 * LANES, np.float32)
    room = tile_room(words, floats, stride)
    for first in range(0, n, size):
        tile = copy_tile(rows, copies, wanted.permitted, first, min(first + size, n), room)
        for i in range(within_reach(asked, tile, unit, stride, farthest, True, room)):
            row = first + at(room.near, i)
            score = dense_score_within(
                sought, asked.norm, offset(data, row * width), rows.norms[row], width, farthest
            )
            if score >= min_score and row != wanted.skip[0]:
                out[found] = row
                found += 1
    keep(query_copy.codes)
    keep(words)
    keep(floats)
    return found


@njit(cache=True, nogil=True)
def _pair(
    rows: Rows,
    a: int,
    first: int,
    near: Any,
    count: int,
    min_score: np.float32,
    found: int,
    out: RowPairs,
) -> int:
    """Write the pairs of row a and rows after it that score enough; return how many there are.

    Parameters
    ----------
    rows : Rows
    a, first : int
    near : address of int64
        ``count`` rows, counted from ``first``.
    count : int
    min_score : float32
    found : int
        Pairs written before.
    out : RowPairs, written in place
    """
    width, norm, farthest = rows.dense.shape[1], rows.norms[a], reach(min_score)
    data = pointer(rows.dense)
    for i in range(count):
        b = first + at(near, i)
        if b > a:
            score = dense_score_within(
                offset(data, a * width),
                norm,
                offset(data, b * width),
                rows.norms[b],
                width,
                farthest,
            )
            if score >= min_score:
                out.a[found] = np.int32(a)
                out.b[found] = np.int32(b)
                found += 1
    return found


@from_python
@njit(cache=True, nogil=True)
def join_copies(
    rows: Rows,
    copies: RowCopies,
    wanted: HitFilter,
    first: int,
    last: int,
    left: int,
    right: int,
    out: RowPairs,
) -> tuple[int, int, int]:
    """List pairs of a row in [first, last) and a row after it that score ``min_score`` or more.

    The work can stop when the output has no room for a tile, and go on from where it was.

    Parameters
    ----------
    rows, copies : Rows, RowCopies
    wanted : HitFilter
        Its ``skip`` is not looked at.
    first, last : int
    left, right : int
        The row and the tile to go on from; ``first`` and ``first`` at the start.
    out : RowPairs, written in place
        With more places than a tile has rows.

    Returns
    -------
    count, left, right : int
        Pairs written, and where to go on; right is n when all is done.
    """
    rows, copies, wanted, out = Rows(*rows), RowCopies(*copies), HitFilter(*wanted), RowPairs(*out)
    stride, n, codes = copies.codes.shape[1], rows.norms.shape[0], pointer(copies.codes)
    unit, min_score = np.float32(copies.step), wanted.min_score
    farthest = reach(min_score)
    size, found, a = rows_of_a_tile(stride), 0, left
    words, floats = np.empty((5, size), np.int64), np.empty(3 * size + 2 * LANES, np.float32)
    room = tile_room(words, floats, stride)
    pause = next_pause = 0  # tiles to read as floats
    start = right
    while start < n:
        tile = copy_tile(rows, copies, wanted.permitted, start, min(start + size, n), room)
        read = compared = 0
        while a < last and tile.count > 0:
            if found + tile.count > out.a.shape[0]:
                break
            if wanted.permitted[a] != 0:
                count, near = tile.count, tile.places
                compared += count
                if pause == 0:
                    asked = copied_query(rows.norms, copies, a, offset(codes, a * stride))
                    count = within_reach(asked, tile, unit, stride, farthest, False, room)
                    near = room.near
                read += count
                found = _pair(rows, a, start, near, count, min_score, found, out)
            a += 1
        if a < last and tile.count > 0:
            break
        if pause > 0:
            pause -= 1
        else:
            next_pause = min(_MAX_PAUSE, 2 * next_pause + 1) if 2 * read > compared else 0
            pause = next_pause
        a, start = first, start + size
    keep(words)
    keep(floats)
    return found, a, min(start, n)
