"""Writing to addresses, asking for what is at them, and floats as the bits they are kept as."""

# numba's extension interface is untyped, and its code generators take fixed arguments.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-any-return, no-untyped-call"
# mypy: disable-error-code="attr-defined"
# ruff: noqa: ANN001, ANN201, ANN202

from typing import Any, Final

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

intrinsic: Any = extending.intrinsic

NUMBERS_A_LINE: Final = 16
"""Numbers of 32 bits in a cache line of 64 bytes."""

_BYTE = ir.IntType(8)
_INT = ir.IntType(32)
_LONG = ir.IntType(64)


@intrinsic
def as_float_address(typingctx, address):
    """Return an address of bytes as one of float32s."""

    def codegen(context, builder, sig, args):
        return builder.bitcast(args[0], context.get_value_type(sig.return_type))

    return types.CPointer(types.float32)(address), codegen


@intrinsic
def as_double_address(typingctx, address):
    """Return an address of uint64s as one of float64s."""

    def codegen(context, builder, sig, args):
        return builder.bitcast(args[0], context.get_value_type(sig.return_type))

    return types.CPointer(types.float64)(address), codegen


@intrinsic
def put(typingctx, address, place, value):
    """Write a number to ``place`` behind an address."""
    if not isinstance(address, types.CPointer):
        return None

    def codegen(context, builder, sig, args):
        element = sig.args[0].dtype
        written = context.cast(builder, args[2], sig.args[2], element)
        context.pack_value(builder, element, written, builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.none(address, types.intp, value), codegen


def _prefetch(nearness, doc):
    @intrinsic
    def ask(typingctx, address):
        def codegen(context, builder, sig, args):
            place = builder.bitcast(args[0], _BYTE.as_pointer())
            read, near, data = (ir.Constant(_INT, number) for number in (0, nearness, 1))
            kind = ir.FunctionType(ir.VoidType(), [place.type, _INT, _INT, _INT])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            builder.call(function, [place, read, near, data])
            return context.get_dummy_value()

        return types.none(address), codegen

    ask.__doc__ = doc
    return ask


prefetch = _prefetch(
    3, "Ask for the cache line at an address, to be read soon; any address is allowed."
)
prefetch_stream = _prefetch(
    2, "Ask for a cache line of a long stream, far ahead: into the second cache."
)


@intrinsic
def float_bits(typingctx, value):
    """Return the bits of a float32 as a uint64; of floats not below 0 they rise as the floats."""

    def codegen(context, builder, sig, args):
        return builder.zext(builder.bitcast(args[0], _INT), _LONG)

    return types.uint64(types.float32), codegen


@intrinsic
def double_of_bits(typingctx, bits):
    """Return the float64 of 64 bits."""

    def codegen(context, builder, sig, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.uint64), codegen


@intrinsic
def float_of_bits(typingctx, bits):
    """Return the float32 of the lower 32 bits: the inverse of `float_bits`."""

    def codegen(context, builder, sig, args):
        return builder.bitcast(builder.trunc(args[0], _INT), ir.FloatType())

    return types.float32(types.uint64), codegen
