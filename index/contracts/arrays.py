"""Names for array types that modules share (users state the shapes); growing arrays."""

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


NEVER: Final = 2**63 - 1
"""When an item expires that never does, where others have a time."""
MIN_CAPACITY: Final = 64
"""Entries for which a growing array has room at first."""

_HUGE: Final = 1 << 21
"""Bytes of a huge page."""
_LINE: Final = 64
"""Bytes of a cache line."""
_SPACE_FROM: Final = 64 << 20
"""Bytes from which an array has address space of its own. Smaller ones are copied as they grow."""
_SPACE_FACTOR: Final = 256
"""Address space is this many times the bytes that the array has at first."""
_SHARE: Final = 8
"""In address space an array grows by at least this part (1/8) of itself."""
_NO_RESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000)
"""Gives more addresses than there is memory. Python 3.11 has no name for it."""


def large(shape: int | tuple[int, ...], dtype: DTypeLike) -> AnyArray:
    """Return an uninitialized array, in huge pages except for its tail.

    Random access costs a page look-up per row, besides its cache lines: rows of 128 bytes took 31
    ns in small pages, and 6 ns, prefetched, in huge ones. The tail is in small pages, because a
    huge page takes all of its memory at the first touch. Smaller arrays are aligned to cache lines,
    so that no row of 64 bytes spans two.
    """
    kind = np.dtype(dtype)
    whole = (shape,) if isinstance(shape, int) else shape
    count = math.prod(whole)
    bytes_ = count * kind.itemsize
    if bytes_ < _HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        block = np.empty(bytes_ + _LINE, np.uint8)
        start = -block.ctypes.data % _LINE
        return block[start : start + bytes_].view(kind).reshape(whole)
    return _array_in(_address_space(bytes_, bytes_ // _HUGE), kind, whole)


def _address_space(bytes_: int, huge_pages: int, flags: int = 0) -> mmap.mmap:
    """Return address space for ``bytes_``, the first of them in ``huge_pages`` huge pages.

    Raises OSError (the system refuses).
    """
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags
    memory = mmap.mmap(-1, -(-bytes_ // _HUGE) * _HUGE + _HUGE, flags=private)
    memory.madvise(mmap.MADV_HUGEPAGE, _begin(memory)[1], huge_pages * _HUGE)
    return memory


def _array_in(memory: mmap.mmap, kind: np.dtype[Any], shape: tuple[int, ...]) -> AnyArray:
    """Return an array that begins at the first huge page of ``memory``."""
    return np.frombuffer(memory, kind, math.prod(shape), _begin(memory)[1]).reshape(shape)


def _begin(memory: mmap.mmap) -> tuple[int, int]:
    """Return where the first huge page begins: its address, and its offset in bytes."""
    first: int = np.frombuffer(memory, np.uint8).ctypes.data
    return first + -first % _HUGE, -first % _HUGE


def growable(shape: tuple[int, ...], dtype: DTypeLike) -> AnyArray:
    """Return an array like `large` that grows in place once an `AddressSpace` adopts it.

    Small arrays, and all if the system refuses address space, are copied when they grow.
    """
    kind = np.dtype(dtype)
    bytes_ = math.prod(shape) * kind.itemsize
    memory = _space_for(bytes_)
    return large(shape, kind) if memory is None else _array_in(memory, kind, shape)


def _space_for(bytes_: int) -> mmap.mmap | None:
    """Return address space for a growing array; None for a small one, or if refused."""
    if bytes_ < _SPACE_FROM or not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    try:
        space = _SPACE_FACTOR * bytes_
        return _address_space(space, space // _HUGE, _NO_RESERVE)
    except OSError:
        return None


def with_room(array: AnyArray, used: int, wanted: int) -> AnyArray:
    """Return ``array``, or a copy of its first ``used`` entries with room for at least ``wanted``.

    Views of the old array stay valid. The room at least doubles, so growing entry by entry copies
    each entry a constant number of times.
    """
    if wanted <= len(array):
        return array
    capacity = max(wanted, 2 * len(array), MIN_CAPACITY)
    grown = large((capacity, *array.shape[1:]), array.dtype)
    grown[:used] = array[:used]
    return grown


class AddressSpace:
    """Addresses for one growing array, mostly without memory yet, so that it grows without copies.

    The system provides memory when it is written. Copying five million rows of 512 bytes took 2 to
    6 s, and one write waited for all of it.
    """

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._last: AnyArray | None = None

    def adopt(self, array: AnyArray) -> None:
        """Let an array from `growable`, or its first rows, grow in place.

        No one else may use the rows behind it. Any other array is copied when it grows.
        """
        owner: object = array
        while isinstance(owner, np.ndarray):
            owner = owner.base
        memory = owner.obj if isinstance(owner, memoryview) else None
        if not isinstance(memory, mmap.mmap) or not array.flags.c_contiguous:
            return
        if array.ctypes.data == _begin(memory)[0]:
            self._memory, self._last = memory, array

    def write(self, array: AnyArray, first: int, values: AnyArray) -> None:
        """Write entries from ``first`` on into ``array``, which has room for them."""
        array[first : first + len(values)] = values

    def with_room(self, array: AnyArray, used: int, wanted: int) -> AnyArray:
        """Return ``array``, or one with its first ``used`` entries and room for ``wanted`` in all.

        The array returned or adopted last grows in place: old and new share memory, so entries from
        ``used`` on may change in the old one. Small arrays and foreign ones are copied, and all
        arrays if the system refuses address space.

        array: (room, …) array.
        used, wanted: number of valid entries, and of entries that need room.
        """
        if wanted <= len(array):
            return array
        memory = self._memory if array is self._last else None
        self._memory = self._last = None
        row = math.prod(array.shape[1:]) * array.dtype.itemsize
        shape = max(wanted, len(array) + len(array) // _SHARE), *array.shape[1:]
        bytes_ = shape[0] * row
        if memory is None or wanted * row < _SPACE_FROM or bytes_ > len(memory) - _HUGE:
            memory = _space_for(bytes_) if wanted * row >= _SPACE_FROM else None
            if memory is None:
                return with_room(array, used, wanted)
            grown = _array_in(memory, array.dtype, shape)
            grown[:used] = array[:used]
        else:
            grown = _array_in(memory, array.dtype, shape)
        self._memory, self._last = memory, grown
        return grown
