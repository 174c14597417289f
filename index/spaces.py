"""Memory that walks write on, taken and given back, so that a search allocates nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from index.arrays import AnyArray, Int64s
from index.kernels.coarse import places


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the walks of one search need.

    Attributes
    ----------
    rows : int
    room : int
        Rows that one walk can see.
    beam : int
    longest : int
        Slots of the longest sparse vector, 0 for dense ones.
    keys : int
        Places in tables.
    """

    rows: int
    room: int
    beam: int
    longest: int
    keys: int

    def covers(self, other: Sizes) -> bool:
        """Return whether what is made for this is large enough for ``other``."""
        return (
            self.rows >= other.rows
            and self.room >= other.room
            and self.beam >= other.beam
            and self.longest >= other.longest
            and self.keys >= other.keys
        )


class _Space:
    """Arrays of one walk at a time, and their addresses for the kernels."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        table = places(sizes.longest) if sizes.longest else 1
        self._arrays: tuple[AnyArray, ...] = (
            np.zeros(sizes.rows // 64 + 1, np.uint64),
            np.empty(sizes.room + 1, np.int32),
            np.empty(sizes.room + 1, np.uint64),
            np.empty(sizes.beam + 1, np.uint64),
            np.zeros(table, np.float32),
            np.zeros(table, np.float32),
            np.empty(sizes.keys, np.int64),
        )
        words, seen, pool, hits, one, other, found = (array.ctypes.data for array in self._arrays)
        self.addresses: Int64s = np.array(
            [words, seen, sizes.room, pool, hits, one, other, found], np.int64
        )


class Spaces:
    """Spaces that are not in use; any thread takes one and gives it back."""

    def __init__(self) -> None:
        self._free: deque[_Space] = deque(maxlen=16)

    @contextmanager
    def taken(self, sizes: Sizes) -> Iterator[Int64s]:
        """Lend a space, by the addresses that `kernels.walk.space_at` takes."""
        try:
            space = self._free.pop()
        except IndexError:
            space = _Space(sizes)
        if not space.sizes.covers(sizes):
            space = _Space(sizes)
        yield space.addresses
        self._free.append(space)  # not after an error, for its marks may still be set
