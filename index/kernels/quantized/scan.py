"""Scan dense rows by their byte copies, reading only the rows that may be hits.

A copy differs from its row by its error and its excess (`quantize`). With the error e(x) and the
excess o(x), the triangle inequality bounds the distance of a query and a row from below:

    ‖x − y‖₁ ≥ step · ‖copy(x) − copy(y)‖₁ − e(x) − e(y) + |o(x) − o(y)|

So no possible hit is excluded, and the hits are those of `gmm.dense.scan_dense`. If bytes exclude
few rows for a query, it reads floats for the next tiles, and then tries again.

Copies are read in tiles, which stay in cache while all queries use them. Only the copies of
permitted rows are read. Excesses are rounded to float32. That changes a score by at most 2^-23,
for which `tolerance` of `similarities.gmm` has room.
"""

from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import LANES, Float32s, Int64s, UInt8s
from gcws_search.index.contracts.batches import RowCopies
from gcws_search.index.kernels.compiling import inlined, inner, kernel
from gcws_search.index.kernels.gmm.dense import dense_score_within, reach
from gcws_search.index.kernels.gmm.rows import HitFilter, Rows
from gcws_search.index.kernels.lanes.vector import (
    NUMBERS_A_LINE,
    absolute,
    at,
    holds_everywhere,
    keep,
    less,
    load,
    offset,
    pointer,
    prefetch,
    prefetch_stream,
    put,
    splat,
    store,
)
from gcws_search.index.kernels.ordering.hits import Heaps, push, threshold
from gcws_search.index.kernels.quantized.l1_distance import (
    REGISTER_BYTES,
    add_byte_differences,
    no_sums,
    totals_of_sums,
)
from gcws_search.index.kernels.quantized.quantize import copy_like

_TILE_BYTES = 1 << 14
"""Bytes of the copies that stay in cache while all queries pass over them."""
_EIGHT = LANES // 2
_NEVER = np.float32(-np.inf)
"""Norm of what fills a tile up: whatever is within reach of it, no distance is."""
_ZERO = np.float32(0.0)
_BYTES_AHEAD = 1 << 11
"""So far ahead a query that is alone asks for copies: 20 GB/s of long rows become 28."""


class CopyTile(NamedTuple):
    """Copies of permitted rows of a part of the collection, by address."""

    codes: Any  # of the copies, starting at the first row of the tile
    offsets: Any  # of int64: start of each copy; padding of a block may be any row
    places: Any  # of int64: rows, counted from the first one of the tile
    norms: Any
    errors: Any
    excesses: Any
    count: int  # number of rows, without padding
    dense: Any  # the first row of the tile
    width: int  # 0 if the codes are the rows


class TileRoom(NamedTuple):
    """Memory for tiles of ``size`` rows, by address."""

    size: int
    offsets: Any  # this and the next one for tiles with all rows permitted
    places: Any
    some_offsets: Any  # this and the next one for other tiles
    some_places: Any
    near: Any  # rows of a tile that may be hits
    norms: Any  # this and the next two for tiles with some rows permitted
    errors: Any
    excesses: Any
    lanes: Any  # two registers of float32


class CopiedQuery(NamedTuple):
    """A vector that is compared with copies, by the address of its own copy."""

    code: Any
    norm: Any  # of the vector itself
    error: Any
    excess: Any


@inner
def tile_room(words: Int64s, floats: Float32s, stride: int) -> TileRoom:
    """Return memory for tiles of t rows.

    words (5, t), floats (3 t + 2 LANES,): overwritten; must outlive the result.
    """
    size = words.shape[1]
    for place in range(size):
        words[0, place] = place * stride
        words[1, place] = place
    first, single = pointer(words), pointer(floats)
    return TileRoom(
        size,
        first,
        offset(first, size),
        offset(first, 2 * size),
        offset(first, 3 * size),
        offset(first, 4 * size),
        single,
        offset(single, size),
        offset(single, 2 * size),
        offset(single, 3 * size),
    )


@inner
def copy_tile(
    rows: Rows, copies: RowCopies, permitted: UInt8s, first: int, last: int, room: TileRoom
) -> CopyTile:
    """Return the permitted rows among first … last - 1."""
    stride = copies.codes.shape[1]
    codes = offset(pointer(copies.codes), first * stride)
    width = rows.dense.shape[1] if rows.codes.shape[1] == 0 else 0
    dense, norms = offset(pointer(rows.dense), first * width), offset(pointer(rows.norms), first)
    errors = offset(pointer(copies.errors), first)
    excesses = offset(pointer(copies.excesses), first)
    allowed = 0
    for row in range(first, last):
        allowed += permitted[row] != 0
    if allowed == last - first and allowed % LANES == 0:
        return CopyTile(
            codes, room.offsets, room.places, norms, errors, excesses, allowed, dense, width
        )
    count = 0
    for place in range(last - first if allowed > 0 else 0):  # a branch would be unpredictable
        put(room.some_places, count, place)
        count += permitted[first + place] != 0
    for i in range(count):
        place = at(room.some_places, i)
        put(room.some_offsets, i, place * stride)
        put(room.norms, i, at(norms, place))
        put(room.errors, i, at(errors, place))
        put(room.excesses, i, at(excesses, place))
    for filler in range(count, (count + LANES - 1) // LANES * LANES):
        put(room.some_offsets, filler, 0)
        put(room.norms, filler, _NEVER)
        put(room.errors, filler, _ZERO)
        put(room.excesses, filler, _ZERO)
    return CopyTile(
        codes,
        room.some_offsets,
        room.some_places,
        room.norms,
        room.errors,
        room.excesses,
        count,
        dense,
        width,
    )


@inlined
def _eight(query: Any, codes: Any, offsets: Any, stride: Any) -> Any:
    """Return the sums of eight copies, read in parallel: fastest if they are in cache."""
    a, b, c, d = no_sums(), no_sums(), no_sums(), no_sums()
    e, f, g, h = no_sums(), no_sums(), no_sums(), no_sums()
    row_a, row_b = offset(codes, at(offsets, 0)), offset(codes, at(offsets, 1))
    row_c, row_d = offset(codes, at(offsets, 2)), offset(codes, at(offsets, 3))
    row_e, row_f = offset(codes, at(offsets, 4)), offset(codes, at(offsets, 5))
    row_g, row_h = offset(codes, at(offsets, 6)), offset(codes, at(offsets, 7))
    for i in range(0, stride, REGISTER_BYTES):
        a = add_byte_differences(a, query, row_a, i)
        b = add_byte_differences(b, query, row_b, i)
        c = add_byte_differences(c, query, row_c, i)
        d = add_byte_differences(d, query, row_d, i)
        e = add_byte_differences(e, query, row_e, i)
        f = add_byte_differences(f, query, row_f, i)
        g = add_byte_differences(g, query, row_g, i)
        h = add_byte_differences(h, query, row_h, i)
    return a, b, c, d, e, f, g, h


@inlined
def _one(query: Any, row: Any, stride: Any) -> Any:
    sums = no_sums()
    for i in range(0, stride, REGISTER_BYTES):
        prefetch_stream(offset(row, i + _BYTES_AHEAD))
        sums = add_byte_differences(sums, query, row, i)
    return sums


@inlined
def _eight_in_turn(query: Any, codes: Any, offsets: Any, stride: Any) -> Any:
    """Return the sums of eight copies, read one after the other: fastest from memory."""
    return (
        _one(query, offset(codes, at(offsets, 0)), stride),
        _one(query, offset(codes, at(offsets, 1)), stride),
        _one(query, offset(codes, at(offsets, 2)), stride),
        _one(query, offset(codes, at(offsets, 3)), stride),
        _one(query, offset(codes, at(offsets, 4)), stride),
        _one(query, offset(codes, at(offsets, 5)), stride),
        _one(query, offset(codes, at(offsets, 6)), stride),
        _one(query, offset(codes, at(offsets, 7)), stride),
    )


@inlined
def _distances(query: Any, codes: Any, offsets: Any, stride: Any, alone: Any) -> Any:
    """Return the distances of `LANES` copies from a query's, in steps."""
    more = offset(offsets, _EIGHT)
    if alone:
        x = _eight_in_turn(query, codes, offsets, stride)
        y = _eight_in_turn(query, codes, more, stride)
    else:
        x = _eight(query, codes, offsets, stride)
        y = _eight(query, codes, more, stride)
    return totals_of_sums(
        x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7],
        y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7],
    )  # fmt: skip


@inlined
def _list_within_reach(
    query: Any, tile: Any, unit: Any, stride: Any, farthest: Any, alone: Any, room: Any
) -> Any:
    """Like `within_reach`; ``alone`` is a compile-time constant."""
    lanes = room.lanes
    excess = splat(query.excess)
    found = 0
    for block in range(0, tile.count, LANES):
        steps = _distances(query.code, tile.codes, offset(tile.offsets, block), stride, alone)
        apart = steps * splat(unit) + absolute(load(tile.excesses, block) - excess)
        both = load(tile.norms, block) + splat(query.norm)
        errors = load(tile.errors, block) + splat(query.error)
        allowed = both * splat(farthest) + errors
        if holds_everywhere(less(allowed, apart)):
            continue
        store(lanes, 0, apart)
        store(lanes, LANES, allowed)
        for lane in range(min(LANES, tile.count - block)):
            if not at(lanes, LANES + lane) < at(lanes, lane):
                place = at(tile.places, block + lane)
                row = offset(tile.dense, place * tile.width)
                for i in range(0, tile.width, NUMBERS_A_LINE):
                    prefetch(offset(row, i))
                put(room.near, found, place)
                found += 1
    return found


@inner
def within_reach(
    query: CopiedQuery,
    tile: CopyTile,
    unit: Any,
    stride: Any,
    farthest: Any,
    alone: Any,
    room: TileRoom,
) -> int:
    """Write the rows of a tile possibly within reach of a query to ``near``; return their number.

    unit: the step of the copies. farthest: `reach` of the minimum score.
    """
    if alone:
        return _list_within_reach(query, tile, unit, stride, farthest, True, room)
    return _list_within_reach(query, tile, unit, stride, farthest, False, room)


_MAX_PAUSE = 16
"""Tiles that a query reads as floats at most before it tries bytes again."""


@inner
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
    """Offer rows to the heap of query m; return the new minimum score."""
    scores, hits, size = out.scores[m], out.rows[m], out.sizes[m]
    width, norm = rows.dense.shape[1], queries.norms[m]
    query, data = offset(pointer(queries.dense), m * width), pointer(rows.dense)
    codes, stride = pointer(rows.codes), rows.codes.shape[1]
    bound = threshold(scores, size, wanted.min_score)
    farthest = reach(bound)
    for i in range(count):
        row = first + at(near, i)
        if stride > 0:
            code = offset(codes, row * stride)
            score = dense_score_within(query, norm, code, rows.norms[row], width, farthest)
        else:
            number = offset(data, row * width)
            score = dense_score_within(query, norm, number, rows.norms[row], width, farthest)
        if score >= bound and row != wanted.skip[m]:
            size = push(scores, hits, size, score, row)
            if size == scores.shape[0]:
                bound = threshold(scores, size, wanted.min_score)
                farthest = reach(bound)
    out.sizes[m] = size
    return bound


@kernel
def scan_copies(
    queries: Rows,
    rows: Rows,
    copies: RowCopies,
    wanted: HitFilter,
    first: int,
    last: int,
    out: Heaps,
) -> int:
    """Offer every permitted dense row in [first, last) to each query's heap.

    Returns the number of rows read as floats, summed over the queries.
    """
    queries, rows, copies = Rows(*queries), Rows(*rows), RowCopies(*copies)
    wanted, out = HitFilter(*wanted), Heaps(*out)
    query_copies = copy_like(queries.dense, copies)
    count, stride = queries.norms.shape[0], copies.codes.shape[1]
    codes, unit = pointer(query_copies.codes), np.float32(copies.step)
    size = max(1, _TILE_BYTES // (stride * LANES)) * LANES
    words, floats = np.empty((5, size), np.int64), np.empty(3 * size + 2 * LANES, np.float32)
    room = tile_room(words, floats, stride)
    bounds, reaches = np.empty(count, np.float32), np.empty(count, np.float32)
    for m in range(count):
        bounds[m] = threshold(out.scores[m], out.sizes[m], wanted.min_score)
        reaches[m] = reach(bounds[m])
    pauses = np.zeros((2, count), np.int64)  # tiles to read as floats; number for the next time
    read = 0
    # Tiles double up to full size: the first hits are not near, and exclude few rows.
    tile_first, tile_last = first, min(first + LANES, last)
    while tile_first < last:
        tile = copy_tile(rows, copies, wanted.permitted, tile_first, tile_last, room)
        for m in range(count if tile.count > 0 else 0):
            if pauses[0, m] > 0 or bounds[m] <= _ZERO:
                pauses[0, m] -= pauses[0, m] > 0
                found, near = tile.count, tile.places
            else:
                asked = CopiedQuery(
                    offset(codes, m * stride),
                    queries.norms[m],
                    query_copies.errors[m],
                    query_copies.excesses[m],
                )
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
