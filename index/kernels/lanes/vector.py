"""Sixteen numbers at a time, explicitly: LLVM vector values as types of compiled code.

The automatic vectoriser gives up on small loops over several arrays (it must prove that they do not
overlap, and numba's index wrap-around hides that they do not). Inside a compiled function the
values made here are plain LLVM vectors <16 x float> and <16 x i32>: one AVX-512 register, two AVX2
registers, or four NEON ones. The operators + - * / and & | ^ >> work lane by lane; integer lanes
wrap and >> shifts zeros in. Nothing is reordered, and steps are fused only where `fma` says so,
so results are the same everywhere.

Also: addresses of arrays, and access to their content.
"""

# numba's extension interface is untyped, and its code generators take fixed arguments.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-any-return, no-untyped-call"
# mypy: disable-error-code="attr-defined"
# ruff: noqa: ANN001, ANN002, ANN201, ANN202

import operator
from functools import wraps
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

HALF: Final = LANES // 2
_BYTE = ir.IntType(8)
_INT = ir.IntType(32)
_LONG = ir.IntType(64)
_BYTES = ir.VectorType(_BYTE, HALF)
_WORDS = ir.VectorType(_INT, HALF)


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
    """Define ``symbol`` for two values of type ``lanes``."""

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
    """Return the result of a function of LLVM."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def instruction(sign):
    """Make an intrinsic from a function that generates its code from a builder and LLVM values.

    ``sign`` is its signature, or a function from argument types to it, or to None.
    """

    def make(write):
        def codegen(context, builder, sig, args):
            value = write(builder, *args)
            return context.get_dummy_value() if value is None else value

        @wraps(write)  # numba reads the number of arguments from it
        def typed(typingctx, *kinds):
            signed = sign(*kinds) if callable(sign) else sign
            return None if signed is None else (signed, codegen)

        return intrinsic(typed)

    return make


def _conversion(source, target, name, doc):
    @intrinsic
    def convert(typingctx, a):
        def codegen(context, builder, sig, args):
            return getattr(builder, name)(args[0], context.get_value_type(target))

        return target(source), codegen

    convert.__doc__ = doc
    return convert


def _order(*lanes):
    return ir.Constant(ir.VectorType(_INT, len(lanes)), list(lanes))


_LANES_OF: Any = {types.float32: FLOATS, types.float64: DOUBLES, types.int32: INTS}


@instruction(lambda value: _LANES_OF[value](value) if value in _LANES_OF else None)
def splat(builder, value):
    """Return sixteen times one float32, float64 or int32."""
    vector = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    first = builder.insert_element(vector, value, ir.Constant(_INT, 0))
    return builder.shuffle_vector(first, vector, _order(*[0] * LANES))


@instruction(INTS())
def lane_numbers(builder):
    """Return 0, 1, … 15."""
    return ir.Constant(_LLVM["int32"], list(range(LANES)))


@intrinsic
def pointer(typingctx, array):
    """Return the address of a contiguous array's first entry, for `load` and `at`.

    Arrays passed to a compiled function are reference-counted (an atomic step) each time they are
    passed on; in inner loops that costs more than the arithmetic. Addresses are not counted, so the
    array must outlive them: take them from the arguments of the outermost kernel, or call `keep`
    after the last use of an array made there.
    """
    if not (isinstance(array, types.Array) and array.layout == "C"):
        return None

    def codegen(context, builder, sig, args):
        return context.make_array(sig.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), codegen


@instruction(lambda array: types.none(array) if isinstance(array, types.Array) else None)
def keep(builder, array):
    """Do nothing: this counts as a use, so that the array is not freed before; addresses do not."""


def _without_owner(context, builder, kind, value):
    """Return a value without the owners of the arrays in it."""
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
    """Return an array, or a tuple with arrays, whose references are not counted.

    The arrays must outlive it, as with `pointer`.
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


@instruction(lambda a, _: a(a, types.intp) if isinstance(a, types.CPointer) else None)
def offset(builder, address, count):
    """Return the address ``count`` entries further on."""
    return builder.gep(address, [count])


@intrinsic
def at(typingctx, address, place):
    """Return the number at ``place`` behind an address."""
    if not isinstance(address, types.CPointer):
        return None

    def codegen(context, builder, sig, args):
        return context.unpack_value(builder, sig.return_type, builder.gep(args[0], [args[1]]))

    return address.dtype(address, types.intp), codegen


@instruction(types.int32(types.CPointer(types.uint8), types.intp))
def int32_at(builder, address, place):
    """Return the int32 of the four bytes from ``place`` on behind an address of bytes."""
    word = builder.bitcast(builder.gep(address, [place]), _INT.as_pointer())
    return builder.load(word, align=1)


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
    """Return entries start … start + 15 of a contiguous array, or from an address."""
    lanes = _lanes_of(container)
    if lanes is None:
        return None

    def codegen(context, builder, sig, args):
        return builder.load(_lanes_pointer(context, builder, sig, args, lanes), align=4)

    return lanes(container, types.intp), codegen


@intrinsic
def load_floats(typingctx, address, start):
    """Return entries start … start + 15 behind an address of float32, or of bytes, as float32."""
    if getattr(address, "dtype", None) not in (types.float32, types.uint8):
        return None

    def codegen(context, builder, sig, args):
        place = builder.gep(args[0], [args[1]])
        vector = ir.VectorType(place.type.pointee, LANES)
        is_bytes = address.dtype == types.uint8
        values = builder.load(
            builder.bitcast(place, vector.as_pointer()), align=1 if is_bytes else 4
        )
        return builder.uitofp(values, _LLVM["float32"]) if is_bytes else values

    return FLOATS(address, types.intp), codegen


@instruction(FLOATS(types.CPointer(types.float32), INTS))
def gather_floats(builder, address, places):
    """Return the sixteen float32 at the given places behind an address.

    One load per lane: the processors' gather instructions are no faster, and some are slower.
    """
    lanes = ir.Constant(_LLVM["float32"], ir.Undefined)
    for lane in range(LANES):
        number = ir.Constant(_INT, lane)
        place = builder.zext(builder.extract_element(places, number), _LONG)
        lanes = builder.insert_element(lanes, builder.load(builder.gep(address, [place])), number)
    return lanes


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


@instruction(lambda a, b: BOOLS(a, a) if a == b and a in (FLOATS, DOUBLES, INTS) else None)
def less(builder, a, b):
    """Return a < b, lane by lane, for numbers of one kind."""
    compare = builder.icmp_signed if a.type.element == _INT else builder.fcmp_ordered
    return compare("<", a, b)


@instruction(lambda _, a, b: a(BOOLS, a, b) if a == b and isinstance(a, Lanes) else None)
def select(builder, condition, yes, no):
    """Return ``yes`` where the condition holds and ``no`` elsewhere."""
    return builder.select(condition, yes, no)


@instruction(types.boolean(BOOLS))
def holds_everywhere(builder, condition):
    """Return whether a condition holds in all lanes."""
    bits = builder.bitcast(condition, ir.IntType(LANES))
    return builder.icmp_unsigned("==", bits, ir.Constant(ir.IntType(LANES), -1))


@instruction(lambda _, a: a(_ELEMENTS[a], a) if a in _ELEMENTS else None)
def after(builder, first, a):
    """Return ``first``, followed by all lanes except the last one."""
    front = builder.insert_element(ir.Constant(a.type, ir.Undefined), first, ir.Constant(_INT, 0))
    return builder.shuffle_vector(a, front, _order(LANES, *range(LANES - 1)))


@instruction(lambda a: _ELEMENTS[a](a) if a in _ELEMENTS else None)
def last(builder, a):
    """Return the last lane."""
    return builder.extract_element(a, ir.Constant(_INT, LANES - 1))


@instruction(lambda a, b: a(a, b) if a == b and isinstance(a, Lanes) else None)
def last_and(builder, a, b):
    """Return the last lane of ``a``, followed by all lanes of ``b`` except the last one."""
    return builder.shuffle_vector(a, b, _order(*range(LANES - 1, 2 * LANES - 1)))


@instruction(FLOATS(FLOATS, FLOATS, FLOATS))
def fma(builder, a, b, c):
    """Return a·b + c rounded once, as IEEE 754 defines it: the same on every processor."""
    return call_llvm(builder, f"llvm.fma.v{LANES}f32", a.type, a, b, c)


@instruction(FLOATS(FLOATS))
def floor(builder, a):
    """Return the greatest whole number not above each lane."""
    return call_llvm(builder, f"llvm.floor.v{LANES}f32", a.type, a)


@instruction(FLOATS(FLOATS))
def root(builder, a):
    """Return each lane's square root, rounded as IEEE 754 defines it."""
    return call_llvm(builder, f"llvm.sqrt.v{LANES}f32", a.type, a)


@instruction(lambda a: a(a) if a in _ELEMENTS else None)
def absolute(builder, a):
    """Return the magnitude of each lane."""
    bits = 32 if a.type == _LLVM["float32"] else 64
    return call_llvm(builder, f"llvm.fabs.v{LANES}f{bits}", a.type, a)


@instruction(lambda a: _ELEMENTS[a](a) if a in _ELEMENTS else None)
def total(builder, a):
    """Return the sum of the lanes, halves added to halves, as one number."""
    width = LANES
    while width > 1:
        half = width // 2
        low = builder.shuffle_vector(a, a, _order(*range(half)))
        high = builder.shuffle_vector(a, a, _order(*range(half, width)))
        a, width = builder.fadd(low, high), half
    return builder.extract_element(a, ir.Constant(_INT, 0))


to_ints = _conversion(FLOATS, INTS, "fptosi", "Return whole lanes as int32.")
to_floats = _conversion(INTS, FLOATS, "sitofp", "Return int32 lanes as float32.")
to_doubles = _conversion(FLOATS, DOUBLES, "fpext", "Return float32 lanes as float64.")
as_ints = _conversion(FLOATS, INTS, "bitcast", "Return the bits of float lanes.")
as_floats = _conversion(INTS, FLOATS, "bitcast", "Return bits as float lanes.")


@instruction(INTS(INTS, INTS))
def signed_shift(builder, a, places):
    """Return int32 lanes shifted right by ``places``, filled with copies of their sign."""
    return builder.ashr(a, places)


@instruction(INTS(INTS, INTS))
def product_of_halves(builder, a, b):
    """Return the upper 16 bits of the products of int32 lanes' lower 16."""
    halves, wide = (ir.VectorType(ir.IntType(bits), 2 * LANES) for bits in (16, 32))
    a, b = (builder.zext(builder.bitcast(lanes, halves), wide) for lanes in (a, b))
    upper = builder.lshr(builder.mul(a, b), ir.Constant(wide, [16] * (2 * LANES)))
    lanes = builder.bitcast(builder.trunc(upper, halves), _LLVM["int32"])
    return builder.and_(lanes, ir.Constant(_LLVM["int32"], [0xFFFF] * LANES))


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


def _prefetch(builder, address, nearness):
    place = builder.bitcast(address, _BYTE.as_pointer())
    read, near, data = (ir.Constant(_INT, number) for number in (0, nearness, 1))
    call_llvm(builder, "llvm.prefetch.p0i8", ir.VoidType(), place, read, near, data)


@instruction(types.none)
def prefetch(builder, address):
    """Prefetch the cache line at an address; any address is allowed."""
    _prefetch(builder, address, 3)


@instruction(types.none)
def prefetch_stream(builder, address):
    """Prefetch a cache line of a long stream, far ahead, into the L2 cache."""
    _prefetch(builder, address, 2)


@instruction(types.uint64(types.float32))
def float_bits(builder, value):
    """Return the bits of a float32 as a uint64; those of non-negative floats sort as these."""
    return builder.zext(builder.bitcast(value, _INT), _LONG)


@instruction(types.float32(types.uint64))
def float_of_bits(builder, bits):
    """Return the float32 of the lower 32 bits: the inverse of `float_bits`."""
    return builder.bitcast(builder.trunc(bits, _INT), ir.FloatType())


def _lanes_in(bits: int) -> int:
    """Return the numbers of the set lanes among eight, ascending, a byte each, then zeros."""
    lanes = [lane for lane in range(HALF) if bits >> lane & 1]
    return sum(lane << 8 * i for i, lane in enumerate(lanes))


_SETS = 1 << HALF
_ORDERS = ir.Constant(ir.ArrayType(_LONG, _SETS), [_lanes_in(bits) for bits in range(_SETS)])


_FLOATS_AT = types.CPointer(types.float32)


@instruction(
    types.int64(
        types.CPointer(types.int32), types.int64, _FLOATS_AT, _FLOATS_AT, types.float32, types.int32
    )
)
def append_less(builder, numbers, place, a, b, scale, first):
    """Write first + l for every l < HALF where a[l] < b[l]·scale; return the end.

    ``numbers``, ``a``, and ``b`` are addresses. Up to SPARE places after the end are
    overwritten.
    """
    orders = cgutils.global_constant(builder.module, "lane_orders", _ORDERS)
    floats = ir.VectorType(ir.FloatType(), HALF)
    a, b = (builder.load(builder.bitcast(each, floats.as_pointer()), align=4) for each in (a, b))
    order = _order(*[0] * HALF)
    scales, firsts = (
        builder.shuffle_vector(
            builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_INT, 0)),
            ir.Constant(kind, ir.Undefined),
            order,
        )
        for kind, value in ((floats, scale), (_WORDS, first))
    )
    mask = builder.bitcast(builder.fcmp_ordered("<", a, builder.fmul(b, scales)), ir.IntType(8))
    bits = builder.zext(mask, _LONG)
    chosen = builder.load(builder.gep(orders, [ir.Constant(_LONG, 0), bits]))
    chosen = builder.zext(builder.bitcast(chosen, _BYTES), _WORDS)
    to = builder.bitcast(builder.gep(numbers, [place]), _WORDS.as_pointer())
    builder.store(builder.add(chosen, firsts), to, align=4)
    return builder.add(place, call_llvm(builder, "llvm.ctpop.i64", _LONG, bits))


@instruction(
    lambda a, _, value: (
        types.none(a, types.int64, value)
        if isinstance(a, types.CPointer) and value == a.dtype
        else None
    )
)
def lower(builder, address, place, value):
    """Write an integer to ``place`` behind an address if it is less than the present one."""
    target = builder.gep(address, [place])
    present = builder.load(target)
    smaller = builder.icmp_signed("<", value, present)
    builder.store(builder.select(smaller, value, present), target)
