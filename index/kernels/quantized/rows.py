"""Approximate GMM scores for the neighbour graph: of quantized dense rows and of sparse rows.

A dense row is stored as unsigned bytes, as int16, or as float32 (see `vectors.quantization`). All
rows of a collection share a step, the value of one unit, and an origin, the integer for 0. So the
formula of `kernels.gmm.dense`, applied to the integers, gives the GMM of the quantized
vectors.

The slots of a sparse query are hashed into a table with many more places than slots. Slots are not
compared, so two may collide, which can only raise a score. Final scores of hits are always
exact.
"""

from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import LANES, Int64s
from gcws_search.index.kernels.compiling import inlined, inner, kernel
from gcws_search.index.kernels.lanes.vector import (
    NUMBERS_A_LINE,
    absolute,
    as_float_address,
    at,
    load,
    offset,
    pointer_to_float32,
    pointer_to_int64,
    pointer_to_uint8,
    pointer_to_uint32,
    prefetch,
    put,
    splat,
    total,
)
from gcws_search.index.kernels.quantized.l1_distance import (
    REGISTER_BYTES,
    add_byte_differences,
    add_short_differences,
    no_sums,
    total_of_ints,
    total_of_sums,
)

MAX_SHORT = 16383.0
"""Whole numbers kept as int16 are between ± this, so that a difference of two is one too."""

BYTES = 0
SHORTS = 1
FLOATS = 2
SPARSE = 3
"""Kinds of rows."""

_ZERO = np.float32(0.0)
_MIN_SUM = np.float32(1e-30)
"""Stands for the sum of two rows that are rounded to nothing; they score 0."""
_MULTIPLIER = np.uint32(0x9E3779B1)
"""2^32 divided by the golden ratio: Fibonacci hashing."""
_PLACES_A_SLOT = 512
_MIN_BITS = 10
_MAX_BITS = 20
"""A table has about `_PLACES_A_SLOT` places a slot: of that many slots of another vector one meets
one by chance. A table has at least 4 KB and at most 4 MB."""
_PREFETCHED_LINES = 16
"""Lines of a row asked for ahead; of longer rows the processor foresees the rest."""
_ROWS_AHEAD = 4
_LINES_AHEAD = 2
"""While a row is scored, the first `_LINES_AHEAD` lines of the row `_ROWS_AHEAD` further on are
prefetched once more: earlier ones may have left the caches, which threads of one core share."""


class RowAddresses(NamedTuple):
    """Rows in memory, by address; see `gmm.rows.Rows`."""

    kind: Any
    copies: Any  # of uint8: dense rows, ``stride`` bytes each
    stride: Any
    norms: Any  # of the rows in this form
    indptr: Any
    slots: Any
    values: Any


class QueryAddresses(NamedTuple):
    """A vector to be compared with many rows."""

    copy: Any  # address of uint8: a dense vector in the form of the rows
    norm: Any
    table: Any  # address of float32: magnitudes of a sparse vector by place; 0 for no slot
    shift: Any  # of a slot's hash, to get its place
    # Part of the norm that is missing because the vector's greatest values exceed the range of a
    # copy. No row has greater values, so these add only to the union.
    cut: Any


class VectorAddresses(NamedTuple):
    """Dense rows that are not quantized, by address."""

    floats: Any
    codes: Any  # the same as bytes, if all are whole numbers
    stride: Any  # of the bytes; 0 if there are none
    width: Any  # 0 when sparse


@inner
def vectors_at(addresses: Int64s) -> Any:
    """Return `VectorAddresses` from the part after that of `rows_at`: (floats, codes, …)."""
    return VectorAddresses(
        pointer_to_float32(addresses[7]),
        pointer_to_uint8(addresses[8]),
        addresses[9],
        addresses[10],
    )


@inner
def rows_at(addresses: Int64s) -> Any:
    """Return `RowAddresses` from (kind, copies, stride, norms, indptr, slots, values, …)."""
    return RowAddresses(
        addresses[0],
        pointer_to_uint8(addresses[1]),
        addresses[2],
        pointer_to_float32(addresses[3]),
        pointer_to_int64(addresses[4]),
        pointer_to_uint32(addresses[5]),
        pointer_to_float32(addresses[6]),
    )


@inlined
def _distance(kind: Any, a: Any, b: Any, stride: Any) -> Any:
    """Return ‖a − b‖₁ of two dense rows, in units."""
    if kind == BYTES:
        sums = no_sums()
        for i in range(0, stride, REGISTER_BYTES):
            sums = add_byte_differences(sums, a, b, i)
        return np.float32(total_of_sums(sums))
    if kind == SHORTS:
        ints = splat(np.int32(0))
        for i in range(0, stride, REGISTER_BYTES):
            ints = add_short_differences(ints, a, b, i)
        return np.float32(total_of_ints(ints))
    left, right, lanes = as_float_address(a), as_float_address(b), splat(_ZERO)
    for i in range(0, stride // 4, LANES):
        lanes = lanes + absolute(load(left, i) - load(right, i))
    return total(lanes)


@inner
def place_shift(count: int) -> np.uint32:
    """Return the shift that spreads ``count`` slots thinly over a table."""
    bits = _MIN_BITS
    while bits < _MAX_BITS and (1 << bits) < _PLACES_A_SLOT * count:
        bits += 1
    return np.uint32(32 - bits)


@kernel
def places(longest: int) -> int:
    """Return the size of a table for queries of at most ``longest`` slots."""
    return 1 << (32 - np.int64(place_shift(longest)))


@inner
def spread_over(table: Any, shift: Any, slots: Any, values: Any, first: int, last: int) -> None:
    """Write a vector's magnitudes to its places; of two in one place the greater remains."""
    for i in range(first, last):
        place = np.intp(np.uint32(at(slots, i) * _MULTIPLIER) >> shift)
        put(table, place, max(at(table, place), at(values, i)))


@inner
def clear(table: Any, shift: Any, slots: Any, first: int, last: int) -> None:
    """Clear a table."""
    for i in range(first, last):
        put(table, np.intp(np.uint32(at(slots, i) * _MULTIPLIER) >> shift), _ZERO)


@inner
def _shared(table: Any, shift: Any, slots: Any, values: Any, first: int, last: int) -> Any:
    """Return Σ min of a spread vector and entries first … last - 1, in four running sums."""
    a = _ZERO
    b = _ZERO
    c = _ZERO
    d = _ZERO
    i = first
    while i + 4 <= last:
        p = np.intp(np.uint32(at(slots, i) * _MULTIPLIER) >> shift)
        q = np.intp(np.uint32(at(slots, i + 1) * _MULTIPLIER) >> shift)
        r = np.intp(np.uint32(at(slots, i + 2) * _MULTIPLIER) >> shift)
        s = np.intp(np.uint32(at(slots, i + 3) * _MULTIPLIER) >> shift)
        a += min(at(table, p), at(values, i))
        b += min(at(table, q), at(values, i + 1))
        c += min(at(table, r), at(values, i + 2))
        d += min(at(table, s), at(values, i + 3))
        i += 4
    while i < last:
        p = np.intp(np.uint32(at(slots, i) * _MULTIPLIER) >> shift)
        a += min(at(table, p), at(values, i))
        i += 1
    return (a + b) + (c + d)


@inner
def held_before(rows: Any, row: Any, table: Any) -> Any:
    """Return the result of `hold` for a row that is still held."""
    shift = np.uint32(0)
    if rows.kind == SPARSE:
        shift = place_shift(at(rows.indptr, row + 1) - at(rows.indptr, row))
    copy = rows.copies if rows.kind == SPARSE else offset(rows.copies, row * rows.stride)
    return QueryAddresses(copy, at(rows.norms, row), table, shift, _ZERO)


@inner
def hold(rows: Any, row: Any, table: Any) -> Any:
    """Return a row as a query; call `release` before the table is used again."""
    if rows.kind == SPARSE:
        first = at(rows.indptr, row)
        last = at(rows.indptr, row + 1)
        spread_over(table, place_shift(last - first), rows.slots, rows.values, first, last)
    return held_before(rows, row, table)


@inner
def release(rows: Any, row: Any, query: Any) -> None:
    """Clear the table that `hold` has filled."""
    if rows.kind == SPARSE:
        clear(query.table, query.shift, rows.slots, at(rows.indptr, row), at(rows.indptr, row + 1))


@inlined
def _of_distance(both: Any, apart: Any, cut: Any) -> Any:
    """Return the score of two rows from the sum of their norms, distance, and cut part."""
    return max((both - apart) / max(both + apart + (cut + cut), _MIN_SUM), _ZERO)


@inner
def _sparse_score(rows: Any, query: Any, row: Any) -> Any:
    first, last = at(rows.indptr, row), at(rows.indptr, row + 1)
    shared = _shared(query.table, query.shift, rows.slots, rows.values, first, last)
    return min(shared / (query.norm + at(rows.norms, row) - shared), np.float32(1.0))


@inlined
def _fetch_again(rows: Any, stride: Any, some: Any, i: Any, last: Any) -> None:
    """Prefetch the start of the row that is scored a little after the one at ``i``."""
    row = np.int64(at(some, min(i + _ROWS_AHEAD, last - 1)))
    prefetch(offset(rows.norms, row))
    for byte in range(0, min(stride, _LINES_AHEAD * REGISTER_BYTES), REGISTER_BYTES):
        prefetch(offset(rows.copies, row * stride + byte))


@inlined
def _score_dense(
    kind: Any, rows: Any, query: Any, stride: Any, some: Any, first: Any, last: Any, out: Any
) -> None:
    """Like `score_rows`, for dense rows; kind and stride may be compile-time constants."""
    for i in range(first, last):
        row = np.int64(at(some, i))
        _fetch_again(rows, stride, some, i, last)
        apart = _distance(kind, query.copy, offset(rows.copies, row * stride), stride)
        put(out, i - first, _of_distance(query.norm + at(rows.norms, row), apart, query.cut))


@inner
def score_rows(rows: Any, query: Any, some: Any, first: Any, last: Any, out: Any) -> None:
    """Write the quick scores of a query and rows some[first] … some[last - 1], from out[0] on."""
    stride = rows.stride
    if rows.kind == BYTES and stride == REGISTER_BYTES:
        # Unrolls the inner loop: without, searches of 64 bytes a row took 1.03 to 1.06 as long.
        _score_dense(BYTES, rows, query, REGISTER_BYTES, some, first, last, out)
    elif rows.kind == BYTES and stride == 2 * REGISTER_BYTES:
        _score_dense(BYTES, rows, query, 2 * REGISTER_BYTES, some, first, last, out)
    elif rows.kind == BYTES:
        _score_dense(BYTES, rows, query, stride, some, first, last, out)
    elif rows.kind == SHORTS and stride == 2 * REGISTER_BYTES:
        _score_dense(SHORTS, rows, query, 2 * REGISTER_BYTES, some, first, last, out)
    elif rows.kind == SHORTS:
        _score_dense(SHORTS, rows, query, stride, some, first, last, out)
    elif rows.kind == FLOATS:
        _score_dense(FLOATS, rows, query, stride, some, first, last, out)
    else:
        for i in range(first, last):
            put(out, i - first, _sparse_score(rows, query, np.int64(at(some, i))))


@inner
def fetch_ahead(rows: Any, some: Any, first: Any, last: Any) -> None:
    """Prefetch the first cache lines of some rows, from ``first`` to ``last - 1``."""
    if rows.kind == SPARSE:
        for i in range(first, last):
            row = np.int64(at(some, i))
            start = at(rows.indptr, row)
            count = at(rows.indptr, row + 1) - start
            for line in range(
                min((count + NUMBERS_A_LINE - 1) // NUMBERS_A_LINE, _PREFETCHED_LINES)
            ):
                prefetch(offset(rows.slots, start + line * NUMBERS_A_LINE))
                prefetch(offset(rows.values, start + line * NUMBERS_A_LINE))
        return
    fetched = min(rows.stride, _PREFETCHED_LINES * REGISTER_BYTES)
    for i in range(first, last):
        row = np.int64(at(some, i))
        address = offset(rows.copies, row * rows.stride)
        prefetch(offset(rows.norms, row))
        prefetch(address)
        for byte in range(REGISTER_BYTES, fetched, REGISTER_BYTES):
            prefetch(offset(address, byte))
