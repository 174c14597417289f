"""Sums of absolute differences, 64 bytes at a time.

A row is an address of bytes that contain unsigned bytes, int16 or float32. On x86, the processor's
instructions for such sums are used (psadbw, pmaddwd); elsewhere LLVM compiles plain vector code.
The sums are integers, so all ways agree.
"""

# numba's extension interface is untyped, and its code generators take fixed arguments.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-any-return, no-untyped-call"
# mypy: disable-error-code="attr-defined"
# ruff: noqa: ANN001, ANN201, ANN202

from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import models, register_model

from gcws_search.index.contracts.arrays import LANES
from gcws_search.index.kernels.cache import features_here
from gcws_search.index.kernels.lanes.vector import FLOATS, INTS, call_llvm, instruction

REGISTER_BYTES = 64
"""Rows are padded to a multiple of this."""

_BYTE = ir.IntType(8)
_SHORT = ir.IntType(16)
_INT = ir.IntType(32)
_LONG = ir.IntType(64)
_BYTES = ir.VectorType(_BYTE, 64)
_SHORTS = ir.VectorType(_SHORT, 32)
_SUMS = ir.VectorType(_LONG, 8)
_INTS = ir.VectorType(_INT, 16)
_PAIRWISE = (
    ((0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15)),
    ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)),
    ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)),
)
"""Lanes of two registers that are added, step by step, until each lane is the sum of one of eight
registers."""


_FEATURES = features_here()
if config.CPU_FEATURES is not None:  # a target is named
    _named = config.CPU_FEATURES.split(",")
    _FEATURES = frozenset(name[1:] for name in _named if name.startswith("+"))


class Sums(types.Type):
    """The type of eight running sums of byte differences."""

    def __init__(self) -> None:
        super().__init__(name="Sums")


SUMS = Sums()


@register_model(Sums)
class _SumsModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type) -> None:
        super().__init__(dmm, fe_type, _SUMS)


def _part(builder, vector, first, count):
    order = ir.Constant(ir.VectorType(_INT, count), list(range(first, first + count)))
    return builder.shuffle_vector(vector, vector, order)


def _by_halves(builder, name, kind, x, y):
    """Apply a function of LLVM to the lower and to the upper halves of two values."""
    size, count = x.type.count // 2, 2 * kind.count
    halves = [
        call_llvm(
            builder, name, kind, _part(builder, x, first, size), _part(builder, y, first, size)
        )
        for first in (0, size)
    ]
    order = ir.Constant(ir.VectorType(_INT, count), list(range(count)))
    return builder.shuffle_vector(*halves, order)


def _load(builder, address, start, kind):
    place = builder.gep(address, [start])
    return builder.load(builder.bitcast(place, kind.as_pointer()), align=1)


def _byte_sums(builder, x, y):
    if "avx512bw" in _FEATURES:
        return call_llvm(builder, "llvm.x86.avx512.psad.bw.512", _SUMS, x, y)
    if "avx2" in _FEATURES:
        return _by_halves(builder, "llvm.x86.avx2.psad.bw", ir.VectorType(_LONG, 4), x, y)
    above = builder.icmp_unsigned(">", x, y)
    difference = builder.select(above, builder.sub(x, y), builder.sub(y, x))
    sums = ir.Constant(_SUMS, [0] * 8)
    for first in range(0, 64, 8):
        sums = builder.add(sums, builder.zext(_part(builder, difference, first, 8), _SUMS))
    return sums


@instruction(SUMS())
def no_sums(builder):
    """Return eight zero sums."""
    return ir.Constant(_SUMS, [0] * 8)


@instruction(lambda _, a, b, start: SUMS(SUMS, a, b, types.intp))
def add_byte_differences(builder, sums, a, b, start):
    """Return the sums plus |a − b| of 64 unsigned bytes from ``start`` on."""
    x, y = _load(builder, a, start, _BYTES), _load(builder, b, start, _BYTES)
    return builder.add(sums, _byte_sums(builder, x, y))


@instruction(types.int64(SUMS))
def total_of_sums(builder, sums):
    """Return the total of all sums, as an int64."""
    return call_llvm(builder, "llvm.vector.reduce.add.v8i64", _LONG, sums)


def _eight_totals(builder, registers):
    """Return a register whose lane i is the sum of the lanes of register i."""
    for low, high in _PAIRWISE:
        orders = [ir.Constant(ir.VectorType(_INT, 8), list(order)) for order in (low, high)]
        registers = [
            builder.add(
                *(builder.shuffle_vector(registers[i], registers[i + 1], each) for each in orders)
            )
            for i in range(0, len(registers), 2)
        ]
    return registers[0]


@instruction(FLOATS(*([SUMS] * LANES)))
def totals_of_sums(builder, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p):  # noqa: E741 (a register a row)
    """Return float32 lanes with the total of the sums of each of sixteen rows.

    Sixteen rows cost about forty steps; `total_of_sums` takes as many for five.
    """
    low = _eight_totals(builder, (a, b, c, d, e, f, g, h))
    high = _eight_totals(builder, (i, j, k, l, m, n, o, p))
    even = ir.Constant(ir.VectorType(_INT, LANES), list(range(0, 32, 2)))
    words = (builder.bitcast(each, _INTS) for each in (low, high))
    return builder.sitofp(
        builder.shuffle_vector(*words, even), ir.VectorType(ir.FloatType(), LANES)
    )


def _short_sums(builder, difference):
    ones = ir.Constant(_SHORTS, [1] * 32)
    if "avx512bw" in _FEATURES:
        return call_llvm(builder, "llvm.x86.avx512.pmaddw.d.512", _INTS, difference, ones)
    if "avx2" in _FEATURES:
        eight = ir.VectorType(_INT, 8)
        return _by_halves(builder, "llvm.x86.avx2.pmadd.wd", eight, difference, ones)
    halves = [builder.sext(_part(builder, difference, first, 16), _INTS) for first in (0, 16)]
    return builder.add(*halves)


@instruction(lambda _, a, b, start: INTS(INTS, a, b, types.intp))
def add_short_differences(builder, sums, a, b, start):
    """Return int32 lanes plus |a − b| of 32 int16 from byte ``start`` on.

    The differences must fit into an int16.
    """
    x, y = _load(builder, a, start, _SHORTS), _load(builder, b, start, _SHORTS)
    no = ir.Constant(ir.IntType(1), 0)
    difference = call_llvm(builder, "llvm.abs.v32i16", _SHORTS, builder.sub(x, y), no)
    return builder.add(sums, _short_sums(builder, difference))


@instruction(types.int32(INTS))
def total_of_ints(builder, ints):
    """Return the sum of int32 lanes."""
    return call_llvm(builder, "llvm.vector.reduce.add.v16i32", _INT, ints)
