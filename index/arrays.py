"""Names for the array types that cross module borders (users give the shapes); arrays that grow."""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Float32s: TypeAlias = NDArray[np.float32]
Float64s: TypeAlias = NDArray[np.float64]
Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
UInt8s: TypeAlias = NDArray[np.uint8]
UInt16s: TypeAlias = NDArray[np.uint16]
UInt32s: TypeAlias = NDArray[np.uint32]
UInt64s: TypeAlias = NDArray[np.uint64]
AnyArray: TypeAlias = NDArray[Any]

LEAST_CAPACITY: Final = 64
"""Entries for which a growing array has room at first."""


def with_room(array: AnyArray, used: int, wanted: int) -> AnyArray:
    """Return ``array``, or a copy of its first ``used`` entries with room for ``wanted`` or more.

    Views of the old array stay valid. The room at least doubles, so that growing entry by entry
    copies each a constant number of times.
    """
    if wanted <= len(array):
        return array
    capacity = max(wanted, 2 * len(array), LEAST_CAPACITY)
    grown = np.empty((capacity, *array.shape[1:]), array.dtype)
    grown[:used] = array[:used]
    return grown
