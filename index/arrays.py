"""Names for the array types that cross module borders (users give the shapes); arrays that grow."""

import math
import mmap
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

Float32s: TypeAlias = NDArray[np.float32]
Float64s: TypeAlias = NDArray[np.float64]
Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
UInt8s: TypeAlias = NDArray[np.uint8]
UInt16s: TypeAlias = NDArray[np.uint16]
UInt32s: TypeAlias = NDArray[np.uint32]
UInt64s: TypeAlias = NDArray[np.uint64]
AnyArray: TypeAlias = NDArray[Any]

LANES: Final = 16
"""float32 numbers that one vector instruction takes: 512 bits."""

LEAST_CAPACITY: Final = 64
"""Entries for which a growing array has room at first."""

_HUGE: Final = 1 << 21
"""Bytes of a huge page."""
_LINE: Final = 64
"""Bytes of a cache line."""


def large(shape: int | tuple[int, ...], dtype: DTypeLike) -> AnyArray:
    """Return an array of undefined content, in huge pages where it fills half of one or more.

    Rows read here and there cost a look-up of their page each, besides their cache lines: rows of
    128 bytes took 31 ns in small pages and 6 ns, prefetched, in huge ones. Smaller arrays begin
    with a cache line, lest each row of 64 bytes lies in two.
    """
    kind = np.dtype(dtype)
    whole = (shape,) if isinstance(shape, int) else shape
    count = math.prod(whole)
    bytes_ = count * kind.itemsize
    if 2 * bytes_ < _HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        block = np.empty(bytes_ + _LINE, np.uint8)
        start = -block.ctypes.data % _LINE
        return block[start : start + bytes_].view(kind).reshape(whole)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, -(-bytes_ // _HUGE) * _HUGE + _HUGE, flags=private)
    memory.madvise(mmap.MADV_HUGEPAGE)
    start = -np.frombuffer(memory, np.uint8).ctypes.data % _HUGE
    return np.frombuffer(memory, kind, count, start).reshape(whole)


def with_room(array: AnyArray, used: int, wanted: int) -> AnyArray:
    """Return ``array``, or a copy of its first ``used`` entries with room for ``wanted`` or more.

    Views of the old array stay valid. The room at least doubles, so that growing entry by entry
    copies each a constant number of times.
    """
    if wanted <= len(array):
        return array
    capacity = max(wanted, 2 * len(array), LEAST_CAPACITY)
    grown = large((capacity, *array.shape[1:]), array.dtype)
    grown[:used] = array[:used]
    return grown
