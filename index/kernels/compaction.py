"""Listing the lanes that pass a test, without a branch.

One or two lanes in sixteen pass, at random: a branch on each would be foretold wrongly about as
often. So all places are written always, and the end of the list moves on by as many as passed; a
table of 256 rows says where the lanes of eight go.
"""

# numba's extension interface is untyped, and its code generators take fixed arguments.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-any-return, no-untyped-call"
# ruff: noqa: ANN001, ANN201, ANN202

from typing import Final

from llvmlite import ir
from numba import types
from numba.core import cgutils

from index.arrays import LANES
from index.kernels.simd import FLOATS, INTS, intrinsic

SPARE: Final = LANES
"""Places behind the end of the list that `append_less` may overwrite."""

_HALF = LANES // 2
_BYTES = ir.VectorType(ir.IntType(8), _HALF)
_WORDS = ir.VectorType(ir.IntType(32), _HALF)


def _order(bits: int) -> int:
    """Return the numbers of the lanes in a set of eight, rising, a byte each, then zeros."""
    lanes = [lane for lane in range(_HALF) if bits >> lane & 1]
    return sum(lane << 8 * i for i, lane in enumerate(lanes))


_ORDERS = ir.Constant(
    ir.ArrayType(ir.IntType(64), 1 << _HALF), [_order(bits) for bits in range(1 << _HALF)]
)


@intrinsic
def append_less(typingctx, numbers, place, a, b, first):
    """Write first + l for every lane l where a < b; return the place behind the last.

    ``first`` is int32 lanes, all the same. ``numbers`` is an address of int32. Up to SPARE places
    behind the one returned are overwritten.
    """
    if numbers != types.CPointer(types.int32) or (a, b) != (FLOATS, FLOATS):
        return None

    def codegen(context, builder, sig, args):
        target, place, a, b, first = args
        orders = cgutils.global_constant(builder.module, "lane_orders", _ORDERS)
        for start in (0, _HALF):
            order = ir.Constant(_WORDS, list(range(start, start + _HALF)))
            halves = [builder.shuffle_vector(lanes, lanes, order) for lanes in (a, b)]
            mask = builder.bitcast(builder.fcmp_ordered("<", *halves), ir.IntType(8))
            bits = builder.zext(mask, ir.IntType(64))
            chosen = builder.load(builder.gep(orders, [ir.Constant(ir.IntType(64), 0), bits]))
            chosen = builder.zext(builder.bitcast(chosen, _BYTES), _WORDS)
            vector = builder.shuffle_vector(first, first, order)
            vector = builder.add(vector, ir.Constant(_WORDS, [start] * _HALF))
            to = builder.bitcast(builder.gep(target, [place]), _WORDS.as_pointer())
            builder.store(builder.add(chosen, vector), to, align=4)
            count = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.IntType(64), [ir.IntType(64)]), "llvm.ctpop.i64"
            )
            place = builder.add(place, builder.call(count, [bits]))
        return place

    return types.int64(numbers, types.int64, FLOATS, FLOATS, INTS), codegen


@intrinsic
def lower(typingctx, address, place, value):
    """Put an integer at ``place`` behind an address if it is less than what is there."""
    if not isinstance(address, types.CPointer) or value != address.dtype:
        return None

    def codegen(context, builder, sig, args):
        target = builder.gep(args[0], [args[1]])
        present = builder.load(target)
        smaller = builder.icmp_signed("<", args[2], present)
        builder.store(builder.select(smaller, args[2], present), target)
        return context.get_dummy_value()

    return types.none(address, types.int64, value), codegen
