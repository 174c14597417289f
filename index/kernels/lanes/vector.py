"""Sixteen numbers at a time, on purpose: LLVM vector values as types of compiled code.

The automatic vectoriser gives up on small loops over several arrays (it must prove that they do not
overlap, and numba's index wrap-around hides that they do not). Inside a compiled function the
values made here are plain LLVM vectors <16 x float> and <16 x i32>: one AVX-512 register, two AVX2
registers, or four NEON ones. The operators + - * / and & | ^ >> work lane by lane; integer lanes
wrap and >> shifts zeros in. Nothing is reordered, and steps are fused only where `fma` says so,
so results are the same everywhere.

Beside them: addresses of arrays, and what is at them.
"""

# numba's extension interface is untyped, and its code generators take fixed arguments.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-any-return, no-untyped-call"
# mypy: disable-error-code="attr-defined"
# ruff: noqa: ANN001, ANN002, ANN201, ANN202

import operator
from typing import Any, Final

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

from gcws_search.index.contracts.arrays import LANES

intrinsic: Any = extending.intrinsic

NUMBERS_A_LINE: Final = 16
"""Numbers of 32 bits in a cache line of 64 bytes."""
SPARE: Final = LANES
"""Places behind the end of the list that `append_less` may overwrite."""

_HALF = LANES // 2
_BYTE = ir.IntType(8)
_INT = ir.IntType(32)
_LONG = ir.IntType(64)
_BYTES = ir.VectorType(_BYTE, _HALF)
_WORDS = ir.VectorType(_INT, _HALF)


class Lanes(types.Type):
    """The type of sixteen values of one kind: "float32", "float64", "int32" or "bool"."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(name=f"Lanes({kind})")


FLOATS = Lanes("float32")
DOUBLES = Lanes("float64")
INTS = Lanes("int32")
BOOLS = Lanes("bool")
_LLVM = {
    "float32": ir.VectorType(ir.FloatType(), LANES),
    "float64": ir.VectorType(ir.DoubleType(), LANES),
    "int32": ir.VectorType(_INT, LANES),
    "bool": ir.VectorType(ir.IntType(1), LANES),
}
_ELEMENTS: Any = {FLOATS: types.float32, DOUBLES: types.float64}


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, dmm, fe_type) -> None:
        super().__init__(dmm, fe_type, _LLVM[fe_type.kind])


def _operator(symbol, lanes, instruction) -> None:
    """Give ``symbol`` a meaning for two values of type ``lanes``."""

    @infer_global(symbol)
    class _Signature(ConcreteTemplate):
        cases = (signature(lanes, lanes, lanes),)

    @lower_builtin(symbol, lanes, lanes)
    def _lower(context, builder, sig, args):
        return getattr(builder, instruction)(*args)


for _symbol, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _operator(_symbol, FLOATS, _instruction)
    _operator(_symbol, DOUBLES, _instruction)
for _symbol, _instruction in (
    (operator.add, "add"),
    (operator.sub, "sub"),
    (operator.mul, "mul"),
    (operator.and_, "and_"),
    (operator.or_, "or_"),
    (operator.xor, "xor"),
    (operator.rshift, "lshr"),
):
    _operator(_symbol, INTS, _instruction)


def call_llvm(builder, name, result, *args):
    """Return what a function of LLVM returns."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def _conversion(source, target, instruction, doc):
    @intrinsic
    def convert(typingctx, a):
        def codegen(context, builder, sig, args):
            return getattr(builder, instruction)(args[0], context.get_value_type(target))

        return target(source), codegen

    convert.__doc__ = doc
    return convert


def _constant_splat(builder, value, kind):
    vector = ir.Constant(_LLVM[kind], ir.Undefined)
    first = builder.insert_element(vector, value, ir.Constant(_INT, 0))
    order = ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES)
    return builder.shuffle_vector(first, vector, order)


@intrinsic
def splat(typingctx, value):
    """Return sixteen times one float32, float64 or int32."""
    lanes = {types.float32: FLOATS, types.float64: DOUBLES, types.int32: INTS}.get(value)
    if lanes is None:
        return None

    def codegen(context, builder, sig, args):
        return _constant_splat(builder, args[0], lanes.kind)

    return lanes(value), codegen


@intrinsic
def lane_numbers(typingctx):
    """Return 0, 1, … 15."""

    def codegen(context, builder, sig, args):
        return ir.Constant(_LLVM["int32"], list(range(LANES)))

    return INTS(), codegen


@intrinsic
def pointer(typingctx, array):
    """Return the address of a contiguous array's first entry, for `load` and `at`.

    Arrays handed to a compiled function are counted (an atomic step each) whenever they are handed
    on; in the innermost loops that costs more than the arithmetic. Addresses are not counted, so
    the array must outlive them: take them from the arguments of the outermost kernel, or end the
    use of an array made here by `keep`.
    """
    if not (isinstance(array, types.Array) and array.layout == "C"):
        return None

    def codegen(context, builder, sig, args):
        return context.make_array(sig.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), codegen


@intrinsic
def keep(typingctx, array):
    """Do nothing: an array is freed after its last use; its addresses are none, and this is one."""
    if not isinstance(array, types.Array):
        return None

    def codegen(context, builder, sig, args):
        return context.get_dummy_value()

    return types.none(array), codegen


def _without_owner(context, builder, kind, value):
    """Return a value with the owner of each array in it left out."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        each: Any
        for place, each in enumerate(kind):  # type: ignore[arg-type]
            inner = _without_owner(context, builder, each, builder.extract_value(value, place))
            value = builder.insert_value(value, inner, place)
    return value


@intrinsic
def uncounted(typingctx, value):
    """Return an array, or a tuple with arrays in it, whose references are not counted.

    The arrays must outlive it, as they must outlive a `pointer`.
    """

    def codegen(context, builder, sig, args):
        return _without_owner(context, builder, sig.args[0], args[0])

    return value(value), codegen


def _address_from_integer(element):
    return _conversion(
        types.int64,
        types.CPointer(element),
        "inttoptr",
        f"Return an int64 as address of {element}s.",
    )


pointer_to_uint64 = _address_from_integer(types.uint64)
pointer_to_int32 = _address_from_integer(types.int32)
pointer_to_int64 = _address_from_integer(types.int64)
pointer_to_uint32 = _address_from_integer(types.uint32)
pointer_to_uint8 = _address_from_integer(types.uint8)
pointer_to_float32 = _address_from_integer(types.float32)
as_float_address = _conversion(
    types.CPointer(types.uint8),
    types.CPointer(types.float32),
    "bitcast",
    "Return an address of bytes as one of float32s.",
)
as_double_address = _conversion(
    types.CPointer(types.uint64),
    types.CPointer(types.float64),
    "bitcast",
    "Return an address of uint64s as one of float64s.",
)
double_of_bits = _conversion(
    types.uint64, types.float64, "bitcast", "Return the float64 of 64 bits."
)


@intrinsic
def offset(typingctx, address, count):
    """Return the address ``count`` entries further on."""
    if not isinstance(address, types.CPointer):
        return None

    def codegen(context, builder, sig, args):
        return builder.gep(args[0], [args[1]])

    return address(address, types.intp), codegen


@intrinsic
def at(typingctx, address, place):
    """Return the number at ``place`` behind an address."""
    if not isinstance(address, types.CPointer):
        return None

    def codegen(context, builder, sig, args):
        return context.unpack_value(builder, sig.return_type, builder.gep(args[0], [args[1]]))

    return address.dtype(address, types.intp), codegen


def _lanes_of(container):
    if isinstance(container, types.Array) and (container.ndim != 1 or container.layout != "C"):
        return None
    kinds: Any = {
        types.float32: FLOATS,
        types.float64: DOUBLES,
        types.int32: INTS,
        types.uint32: INTS,
    }
    return kinds.get(getattr(container, "dtype", None))


def _lanes_pointer(context, builder, sig, args, lanes):
    data = args[0]
    if isinstance(sig.args[0], types.Array):
        data = context.make_array(sig.args[0])(context, builder, data).data
    return builder.bitcast(builder.gep(data, [args[1]]), _LLVM[lanes.kind].as_pointer())


@intrinsic
def load(typingctx, container, start):
    """Return entries start … start + 15 of a contiguous array, or of what an address points to."""
    lanes = _lanes_of(container)
    if lanes is None:
        return None

    def codegen(context, builder, sig, args):
        return builder.load(_lanes_pointer(context, builder, sig, args, lanes), align=4)

    return lanes(container, types.intp), codegen


@intrinsic
def gather_floats(typingctx, address, places):
    """Return the sixteen float32 at the given places behind an address.

    One load a lane: the processors' own gathering instructions are no faster, and some are slower.
    """
    if address != types.CPointer(types.float32) or places != INTS:
        return None

    def codegen(context, builder, sig, args):
        lanes = ir.Constant(_LLVM["float32"], ir.Undefined)
        for lane in range(LANES):
            number = ir.Constant(_INT, lane)
            place = builder.zext(builder.extract_element(args[1], number), _LONG)
            lanes = builder.insert_element(
                lanes, builder.load(builder.gep(args[0], [place])), number
            )
        return lanes

    return FLOATS(address, places), codegen


@intrinsic
def store(typingctx, container, start, value):
    """Write sixteen values to entries start … start + 15."""
    lanes = _lanes_of(container)
    if lanes is None or value != lanes:
        return None

    def codegen(context, builder, sig, args):
        builder.store(args[2], _lanes_pointer(context, builder, sig, args, lanes), align=4)
        return context.get_dummy_value()

    return types.none(container, types.intp, value), codegen


@intrinsic
def less(typingctx, a, b):
    """Return a < b, lane by lane, for numbers of one kind."""
    if a != b or a not in (FLOATS, DOUBLES, INTS):
        return None

    def codegen(context, builder, sig, args):
        compare = builder.icmp_signed if a is INTS else builder.fcmp_ordered
        return compare("<", *args)

    return BOOLS(a, a), codegen


@intrinsic
def select(typingctx, condition, yes, no):
    """Return ``yes`` where the condition holds and ``no`` elsewhere."""
    if yes != no or not isinstance(yes, Lanes):
        return None

    def codegen(context, builder, sig, args):
        return builder.select(*args)

    return yes(BOOLS, yes, no), codegen


@intrinsic
def holds_everywhere(typingctx, condition):
    """Return whether a condition holds in all lanes."""

    def codegen(context, builder, sig, args):
        bits = builder.bitcast(args[0], ir.IntType(LANES))
        return builder.icmp_unsigned("==", bits, ir.Constant(ir.IntType(LANES), -1))

    return types.boolean(BOOLS), codegen


@intrinsic
def after(typingctx, first, a):
    """Return ``first`` and then all lanes but the last one."""
    element = _ELEMENTS.get(a)
    if element is None:
        return None

    def codegen(context, builder, sig, args):
        front = _constant_splat(builder, args[0], a.kind)
        order = [LANES, *range(LANES - 1)]
        index = ir.Constant(ir.VectorType(_INT, LANES), order)
        return builder.shuffle_vector(args[1], front, index)

    return a(element, a), codegen


@intrinsic
def last(typingctx, a):
    """Return the last lane."""
    element = _ELEMENTS.get(a)
    if element is None:
        return None

    def codegen(context, builder, sig, args):
        return builder.extract_element(args[0], ir.Constant(_INT, LANES - 1))

    return element(a), codegen


@intrinsic
def last_and(typingctx, a, b):
    """Return the last lane of ``a`` and then all lanes of ``b`` but the last one."""
    if a != b or not isinstance(a, Lanes):
        return None

    def codegen(context, builder, sig, args):
        order = [LANES - 1, *range(LANES, 2 * LANES - 1)]
        index = ir.Constant(ir.VectorType(_INT, LANES), order)
        return builder.shuffle_vector(*args, index)

    return a(a, a), codegen


@intrinsic
def fma(typingctx, a, b, c):
    """Return a·b + c rounded once, as IEEE 754 defines it: the same on every processor."""

    def codegen(context, builder, sig, args):
        return call_llvm(builder, f"llvm.fma.v{LANES}f32", _LLVM["float32"], *args)

    return FLOATS(FLOATS, FLOATS, FLOATS), codegen


def _of_each_lane(name, doc):
    @intrinsic
    def of_each(typingctx, a):
        def codegen(context, builder, sig, args):
            return call_llvm(builder, f"llvm.{name}.v{LANES}f32", _LLVM["float32"], *args)

        return FLOATS(FLOATS), codegen

    of_each.__doc__ = doc
    return of_each


floor = _of_each_lane("floor", "Return the greatest whole number not above each lane.")
root = _of_each_lane("sqrt", "Return each lane's square root, rounded as IEEE 754 defines it.")


@intrinsic
def absolute(typingctx, a):
    """Return the magnitude of each lane."""
    suffix = {FLOATS: "f32", DOUBLES: "f64"}.get(a)
    if suffix is None:
        return None

    def codegen(context, builder, sig, args):
        return call_llvm(builder, f"llvm.fabs.v{LANES}{suffix}", _LLVM[a.kind], *args)

    return a(a), codegen


@intrinsic
def total(typingctx, a):
    """Return the sum of the lanes, halves added to halves, as one number."""
    element = _ELEMENTS.get(a)
    if element is None:
        return None

    def codegen(context, builder, sig, args):
        vector = args[0]
        width = LANES
        while width > 1:
            half = width // 2
            index = ir.VectorType(_INT, half)
            low = builder.shuffle_vector(vector, vector, ir.Constant(index, list(range(half))))
            high = builder.shuffle_vector(
                vector, vector, ir.Constant(index, list(range(half, width)))
            )
            vector = builder.fadd(low, high)
            width = half
        return builder.extract_element(vector, ir.Constant(_INT, 0))

    return element(a), codegen


to_ints = _conversion(FLOATS, INTS, "fptosi", "Return whole lanes as int32.")
to_floats = _conversion(INTS, FLOATS, "sitofp", "Return int32 lanes as float32.")
to_doubles = _conversion(FLOATS, DOUBLES, "fpext", "Return float32 lanes as float64.")
as_ints = _conversion(FLOATS, INTS, "bitcast", "Return the bits of float lanes.")
as_floats = _conversion(INTS, FLOATS, "bitcast", "Return bits as float lanes.")


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
        lanes = builder.bitcast(builder.trunc(upper, halves), _LLVM["int32"])
        return builder.and_(lanes, ir.Constant(_LLVM["int32"], [0xFFFF] * LANES))

    return INTS(INTS, INTS), codegen


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
            call_llvm(builder, "llvm.prefetch.p0i8", ir.VoidType(), place, read, near, data)
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
def float_of_bits(typingctx, bits):
    """Return the float32 of the lower 32 bits: the inverse of `float_bits`."""

    def codegen(context, builder, sig, args):
        return builder.bitcast(builder.trunc(args[0], _INT), ir.FloatType())

    return types.float32(types.uint64), codegen


def _order(bits: int) -> int:
    """Return the numbers of the lanes in a set of eight, rising, a byte each, then zeros."""
    lanes = [lane for lane in range(_HALF) if bits >> lane & 1]
    return sum(lane << 8 * i for i, lane in enumerate(lanes))


_ORDERS = ir.Constant(ir.ArrayType(_LONG, 1 << _HALF), [_order(bits) for bits in range(1 << _HALF)])


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
            bits = builder.zext(mask, _LONG)
            chosen = builder.load(builder.gep(orders, [ir.Constant(_LONG, 0), bits]))
            chosen = builder.zext(builder.bitcast(chosen, _BYTES), _WORDS)
            vector = builder.shuffle_vector(first, first, order)
            vector = builder.add(vector, ir.Constant(_WORDS, [start] * _HALF))
            to = builder.bitcast(builder.gep(target, [place]), _WORDS.as_pointer())
            builder.store(builder.add(chosen, vector), to, align=4)
            place = builder.add(place, call_llvm(builder, "llvm.ctpop.i64", _LONG, bits))
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
