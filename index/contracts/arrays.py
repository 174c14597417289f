"""Names for the array types that cross module borders (users give the shapes); arrays that grow."""

import math
import mmap
from contextlib import suppress
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

MIN_CAPACITY: Final = 64
"""Entries for which a growing array has room at first."""

_HUGE: Final = 1 << 21
"""Bytes of a huge page."""
_LINE: Final = 64
"""Bytes of a cache line."""
_SET_ASIDE_FROM: Final = 64 << 20
"""Bytes of an array from which address space is set aside: copying fewer takes some 10 ms."""
_SET_ASIDE: Final = 256
"""How many times the bytes of the array are set aside; less where the system refuses."""
_SHARE: Final = 8
"""The room in address space grows by the eighth part of itself, or by what is wanted."""


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
    return _seen(_in_huge_pages(bytes_), kind, whole)


def _in_huge_pages(bytes_: int) -> mmap.mmap:
    """Return address space for some bytes behind the beginning of a huge page."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, -(-bytes_ // _HUGE) * _HUGE + _HUGE, flags=private)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _seen(memory: mmap.mmap, kind: np.dtype[Any], shape: tuple[int, ...]) -> AnyArray:
    """Return an array that begins with the first huge page."""
    start = -np.frombuffer(memory, np.uint8).ctypes.data % _HUGE
    return np.frombuffer(memory, kind, math.prod(shape), start).reshape(shape)


def with_room(array: AnyArray, used: int, wanted: int) -> AnyArray:
    """Return ``array``, or a copy of its first ``used`` entries with room for ``wanted`` or more.

    Views of the old array stay valid. The room at least doubles, so that growing entry by entry
    copies each a constant number of times.
    """
    if wanted <= len(array):
        return array
    capacity = max(wanted, 2 * len(array), MIN_CAPACITY)
    grown = large((capacity, *array.shape[1:]), array.dtype)
    grown[:used] = array[:used]
    return grown


class SetAside:
    """Address space set aside for one growing array: it grows without copies.

    The system gives memory only to what is written. Copying five million rows of 512 bytes took
    2 to 6 s, and one write waited for all of it.
    """

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._address = 0

    def with_room(self, array: AnyArray, used: int, wanted: int) -> AnyArray:
        """Return ``array``, or one of the same ``used`` entries with room for ``wanted`` or more.

        Views of the old array stay valid. Small arrays are copied, and so is the first large one.

        Parameters
        ----------
        array : (room, …) array
            What this returned last, or another.
        used, wanted : int
        """
        if wanted <= len(array):
            return array
        row = math.prod(array.shape[1:]) * array.dtype.itemsize
        if wanted * row < _SET_ASIDE_FROM or not hasattr(mmap, "MADV_HUGEPAGE"):
            return with_room(array, used, wanted)
        shape = max(wanted, len(array) + len(array) // _SHARE), *array.shape[1:]
        bytes_ = shape[0] * row
        memory = self._memory
        is_its_own = array.ctypes.data == self._address
        if memory is not None and is_its_own and bytes_ <= len(memory) - _HUGE:
            return _seen(memory, array.dtype, shape)
        self._memory = memory = _address_space(bytes_)
        grown = _seen(memory, array.dtype, shape)
        self._address = grown.ctypes.data
        grown[:used] = array[:used]
        return grown


def _address_space(bytes_: int) -> mmap.mmap:
    """Return many times as much as is wanted, or as much of it as the system gives."""
    for factor in (_SET_ASIDE, _SET_ASIDE // 4, _SET_ASIDE // 16, 4, 2):
        with suppress(OSError):
            return _in_huge_pages(factor * bytes_)
    return _in_huge_pages(bytes_)
