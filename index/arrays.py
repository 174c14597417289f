"""Names for the array types that cross module borders; users give the shapes."""

from typing import Any, TypeAlias

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
