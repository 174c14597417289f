"""Rows that may be near enough to a query, by sums of groups of coordinates, one byte each.

Divide the slots of the non-negative form into a few groups, with the sum G of each. Two vectors
share at most what their groups share: Σ min(ũ, ṽ) ≤ Σ min(G(ũ), G(ṽ)). A score of t needs
Σ min ≥ t / (1 + t) · (‖ũ‖₁ + ‖ṽ‖₁), so rows whose groups share less are excluded, and no row that
is near enough. Sums are rounded to bytes; the amount by which bytes are too small is added up for
each vector, and subtracted from the requirement.

Rows are in blocks of 64, group by group, so that the bytes of one register accumulate sixty-four
sums of minima. They saturate at 255, which is never less than the requirement. Rows are sorted by
norm, so the rows of a block have similar requirements.
"""

# numba's extension interface is untyped, and its code generators take fixed arguments.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-any-return, no-untyped-call"
# ruff: noqa: ANN001, ANN202

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import models, register_model

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s, UInt8s
from gcws_search.index.kernels.compiling import inlined, inner, kernel
from gcws_search.index.kernels.gmm.dense import dense_score_within, reach
from gcws_search.index.kernels.gmm.rows import Rows
from gcws_search.index.kernels.gmm.sparse import TABLE_BITS, add_to_table, shared_in_table
from gcws_search.index.kernels.lanes.vector import (
    at,
    call_llvm,
    instruction,
    keep,
    offset,
    pointer,
    prefetch,
)
from gcws_search.index.kernels.ordering.keys import RowPairs

BLOCK = 64
"""Rows side by side."""
_PLACE_BITS = 16
PLACES = 1 << _PLACE_BITS
"""Slots are known by the place that they hash to."""
TOGETHER = 4
"""Queries that share a load."""
_TILE_BYTES = 1 << 14
"""Blocks that stay in cache while all queries pass over them."""
_MULTIPLIER = np.uint32(0x9E3779B1)
"""2^32 divided by the golden ratio: Fibonacci hashing."""
_SHIFT = np.uint32(32 - _PLACE_BITS)
ROUNDING = 1e-5
"""More than float32 sums and norms may be off, as a share of these."""
_AHEAD = 8
"""Rows this far ahead are prefetched."""
_MAX = np.float32(255.0)
_ZERO = np.float32(0.0)

_BYTE = ir.IntType(8)
_LONG = ir.IntType(64)
_VECTOR = ir.VectorType(_BYTE, BLOCK)


class FoldedRows(NamedTuple):
    """Blocks of rows, in units of one step."""

    codes: UInt8s  # (b, groups, BLOCK)
    least: Float32s  # (b,): smallest norm, in steps
    greatest: Float32s  # (b,): greatest norm, in steps
    errors: Float32s  # (b,): maximum by which a row's bytes are too small, in steps
    size: int  # number of rows, without the padding of the last block


class FoldedQueries(NamedTuple):
    """Queries by ascending norm, in the steps of the rows."""

    codes: UInt8s  # (m, groups); m is a multiple of `TOGETHER`
    norms: Float32s  # (m,), in steps
    errors: Float32s  # (m,)


class _Bytes(types.Type):
    """The type of sixty-four bytes."""

    def __init__(self) -> None:
        super().__init__(name="Bytes")


_BYTES = _Bytes()


@register_model(_Bytes)
class _BytesModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type) -> None:
        super().__init__(dmm, fe_type, _VECTOR)


@instruction(_BYTES())
def _no_bytes(builder):
    return ir.Constant(_VECTOR, [0] * BLOCK)


@instruction(_BYTES(types.CPointer(types.uint8), types.intp))
def _load_bytes(builder, address, start):
    place = builder.gep(address, [start])
    return builder.load(builder.bitcast(place, _VECTOR.as_pointer()), align=1)


def _splat(builder, byte):
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), byte, _LONG(0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)
    return builder.shuffle_vector(one, one, order)


@instruction(_BYTES(_BYTES, _BYTES, types.uint8))
def _add_least(builder, sums, rows, byte):
    """Return the sums plus the smaller of each row's byte and another byte, up to 255."""
    low = call_llvm(builder, "llvm.umin.v64i8", _VECTOR, rows, _splat(builder, byte))
    return call_llvm(builder, "llvm.uadd.sat.v64i8", _VECTOR, sums, low)


@instruction(types.uint64(_BYTES, types.uint8))
def _at_least(builder, sums, byte):
    """Return one bit per lane, the lowest for the first: 1 if the lane is at least a byte."""
    return builder.bitcast(builder.icmp_unsigned(">=", sums, _splat(builder, byte)), _LONG)


@instruction(types.int64(types.uint64))
def _lowest(builder, bits):
    """Return the number of the lowest 1 bit of a non-zero number."""
    return call_llvm(builder, "llvm.cttz.i64", _LONG, bits, ir.Constant(ir.IntType(1), 1))


@inner
def _place(slot: np.uint32) -> np.uint32:
    return np.uint32(slot * _MULTIPLIER) >> _SHIFT


@kernel
def add_masses(rows: Rows, chosen: Int64s, out: Float64s) -> None:
    """Add the mass of chosen rows at each of `PLACES` places, to which slots hash, to ``out``."""
    rows = Rows(*rows)
    width = rows.dense.shape[1]
    for row in chosen:
        for i in range(width):
            value = rows.dense[row, i]
            slot = np.uint32(2 * i) if value > 0 else np.uint32(2 * i + 1)
            out[_place(slot)] += abs(value)
        if width == 0:
            for entry in range(rows.indptr[row], rows.indptr[row + 1]):
                out[_place(rows.slots[entry])] += rows.values[entry]


@kernel
def fold_rows(rows: Rows, chosen: Int64s, group_of: UInt8s, out: Float32s) -> None:
    """Write the sums of the groups of (m,) chosen rows to ``out``, (m, groups).

    group_of (PLACES,): the group of each place.
    """
    rows = Rows(*rows)
    width = rows.dense.shape[1]
    sums = np.empty(out.shape[1], np.float64)
    for number in range(chosen.shape[0]):
        row = chosen[number]
        sums[:] = 0.0
        for i in range(width):
            value = rows.dense[row, i]
            slot = np.uint32(2 * i) if value > 0 else np.uint32(2 * i + 1)
            sums[group_of[_place(slot)]] += abs(value)
        if width == 0:
            for entry in range(rows.indptr[row], rows.indptr[row + 1]):
                sums[group_of[_place(rows.slots[entry])]] += rows.values[entry]
        for group in range(sums.shape[0]):
            out[number, group] = sums[group]


@kernel
def round_sums(sums: Float32s, step: float, codes: UInt8s, errors: Float32s) -> None:
    """Write (m, groups) sums as bytes, in steps, and (m,) the total by which these are too small.

    Sums above 255 steps count as 255.
    """
    for row in range(sums.shape[0]):
        error = 0.0
        for group in range(sums.shape[1]):
            steps = min(sums[row, group] / step, 255.0)
            code = np.floor(steps + 0.5)
            codes[row, group] = np.uint8(code)
            error += max(steps - code, 0.0)
        errors[row] = error


@inlined
def _needed(share: Any, own: Any, least: Any, error: Any) -> Any:
    return np.uint8(min(max(own + share * least - error, _ZERO), _MAX))


@inner
def _append(bits: np.uint64, query: int, first: int, rows: FoldedRows, found: int, out: RowPairs):
    while bits != np.uint64(0):
        place = first + _lowest(bits)
        if place < rows.size:
            out.a[found] = query
            out.b[found] = place
            found += 1
        bits &= bits - np.uint64(1)
    return found


@kernel
def scan_folded(
    queries: FoldedQueries,
    rows: FoldedRows,
    threshold: float,
    share: float,
    first: int,
    last: int,
    block: int,
    query: int,
    out: RowPairs,
) -> tuple[int, int, int]:
    """List pairs of queries and rows that may score at least ``threshold``, by their places.

    share: t / (1 + t), minus the effect of rounding.
    first, last: range of queries; multiples of `TOGETHER`. The work stops when ``out`` may not
    hold the pairs of the next ones, and can continue from ``block`` and ``query``: 0 and first at
    the start. Returns pairs written, and where to continue; block is b when all is done.
    """
    queries, rows, out = FoldedQueries(*queries), FoldedRows(*rows), RowPairs(*out)
    blocks, groups = rows.codes.shape[0], rows.codes.shape[1]
    tile = max(1, _TILE_BYTES // (groups * BLOCK))
    held, asked = pointer(rows.codes), pointer(queries.codes)
    weight = np.float32(share)
    found = 0
    while block < blocks:
        end = min(block + tile, blocks)
        while query < last:
            if found + TOGETHER * tile * BLOCK > out.a.shape[0]:
                return found, block, query
            a = offset(asked, query * groups)
            b, c, d = offset(a, groups), offset(a, 2 * groups), offset(a, 3 * groups)
            own_a = weight * queries.norms[query] - queries.errors[query]
            own_b = weight * queries.norms[query + 1] - queries.errors[query + 1]
            own_c = weight * queries.norms[query + 2] - queries.errors[query + 2]
            own_d = weight * queries.norms[query + 3] - queries.errors[query + 3]
            # GMM is at most the smaller norm divided by the greater.
            low = threshold * queries.norms[query]
            high = queries.norms[query + 3] / threshold
            for place in range(block, end):
                least, error = rows.least[place], rows.errors[place]
                if rows.greatest[place] < low or least > high:
                    continue
                codes = offset(held, place * (groups * BLOCK))
                sum_a, sum_b, sum_c, sum_d = _no_bytes(), _no_bytes(), _no_bytes(), _no_bytes()
                for group in range(groups):
                    some = _load_bytes(codes, group * BLOCK)
                    sum_a = _add_least(sum_a, some, at(a, group))
                    sum_b = _add_least(sum_b, some, at(b, group))
                    sum_c = _add_least(sum_c, some, at(c, group))
                    sum_d = _add_least(sum_d, some, at(d, group))
                near_a = _at_least(sum_a, _needed(weight, own_a, least, error))
                near_b = _at_least(sum_b, _needed(weight, own_b, least, error))
                near_c = _at_least(sum_c, _needed(weight, own_c, least, error))
                near_d = _at_least(sum_d, _needed(weight, own_d, least, error))
                if (near_a | near_b | near_c | near_d) != np.uint64(0):
                    start = place * BLOCK
                    found = _append(near_a, query, start, rows, found, out)
                    found = _append(near_b, query + 1, start, rows, found, out)
                    found = _append(near_c, query + 2, start, rows, found, out)
                    found = _append(near_d, query + 3, start, rows, found, out)
            query += TOGETHER
        query = first
        block = end
    keep(rows.codes)
    keep(queries.codes)
    return found, blocks, first


@kernel
def keep_near(queries: Rows, rows: Rows, a: Int64s, b: Int64s, threshold: float) -> int:
    """Move pairs that may score at least ``threshold`` to the front; return their number.

    a, b (p,): of ``queries``, equal ones consecutive, and of ``rows``. A sparse query is spread
    over a table in which slots may share a place, so its scores are never too small.
    """
    queries, rows = Rows(*queries), Rows(*rows)
    width = rows.dense.shape[1]
    indptr, slots, values = rows.indptr, rows.slots, rows.values
    farthest, share = reach(np.float32(threshold)), threshold / (1.0 + threshold) - ROUNDING
    table = np.zeros(1 << TABLE_BITS if width == 0 else 0, np.float32)
    held, asked = pointer(rows.dense), pointer(queries.dense)
    found = 0
    for i in range(a.shape[0]):
        m, row = a[i], b[i]
        norm, other = np.float64(queries.norms[m]), np.float64(rows.norms[row])
        ahead = b[min(i + _AHEAD, a.shape[0] - 1)]
        if width > 0:
            prefetch(offset(held, ahead * width))
            near = (
                dense_score_within(
                    offset(asked, m * width),
                    queries.norms[m],
                    offset(held, row * width),
                    rows.norms[row],
                    width,
                    farthest,
                )
                >= threshold
            )
        else:
            prefetch(offset(pointer(slots), indptr[ahead]))
            prefetch(offset(pointer(values), indptr[ahead]))
            if i == 0 or a[i - 1] != m:
                table[:] = _ZERO
                add_to_table(queries, m, table)
            needed = share * (norm + other)
            most = other * (1.0 + ROUNDING) - needed
            near = shared_in_table(rows, row, table, most) >= needed
        if near:
            a[found] = m
            b[found] = row
            found += 1
    keep(rows.dense)
    keep(queries.dense)
    return found
