"""Steps on the bits of integer lanes that the operators do not name."""

# numba's extension interface is untyped, and its code generators take fixed arguments.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-any-return, no-untyped-call"
# ruff: noqa: ANN001, ANN201, ANN202

from llvmlite import ir

from index.arrays import LANES
from index.kernels.simd import INTS, intrinsic

_LLVM_INTS = ir.VectorType(ir.IntType(32), LANES)


@intrinsic
def signed_shift(typingctx, a, places):
    """Return int32 lanes shifted right by ``places``, filled with copies of their sign."""

    def codegen(context, builder, sig, args):
        return builder.ashr(*args)

    return INTS(INTS, INTS), codegen


@intrinsic
def product_of_halves(typingctx, a, b):
    """Return the upper 16 bits of the products of int32 lanes' lower 16."""

    def codegen(context, builder, sig, args):
        halves, wide = (ir.VectorType(ir.IntType(bits), 2 * LANES) for bits in (16, 32))
        a, b = (builder.zext(builder.bitcast(lanes, halves), wide) for lanes in args)
        upper = builder.lshr(builder.mul(a, b), ir.Constant(wide, [16] * (2 * LANES)))
        lanes = builder.bitcast(builder.trunc(upper, halves), _LLVM_INTS)
        return builder.and_(lanes, ir.Constant(_LLVM_INTS, [0xFFFF] * LANES))

    return INTS(INTS, INTS), codegen
