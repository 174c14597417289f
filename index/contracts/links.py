"""Links of a neighbour graph in memory, with no more bytes than row numbers need."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from gcws_search.index.contracts.arrays import Int32s, Int64s, UInt8s, growable, large

_SHORT, _LONG = 3, 4
"""Bytes of a row number."""
_SHORT_ROWS: Final = 1 << 23
"""So many rows have numbers of `_SHORT` bytes: with a sign, for negative ones name no row."""
_ROWS_A_STEP: Final = 1 << 16


class LinkArray:
    """An array of (n, R) int32 whose numbers are stored in three bytes, or in four.

    An index selects rows, or rows and places; the result is a copy.

    packed: (n, R, 3 or 4) uint8, low bytes first. One byte behind the end is readable, because
        kernels read four bytes at a time.
    """

    def __init__(self, packed: UInt8s) -> None:
        self.packed = packed

    @classmethod
    def of(cls, lines: Int32s | LinkArray, rows: int) -> LinkArray:
        """Return the same links, with enough bytes per number for ``rows`` rows."""
        size = _SHORT if rows <= _SHORT_ROWS else _LONG
        links = cls(growable((*lines.shape, size), np.uint8))
        for first in range(0, len(lines), _ROWS_A_STEP):
            part = slice(first, first + _ROWS_A_STEP)
            links[part] = lines[part]
        return links

    def has_room(self, rows: int) -> bool:
        """Return whether numbers have enough bytes for ``rows`` rows."""
        return rows <= _SHORT_ROWS or self.packed.shape[2] == _LONG

    def __len__(self) -> int:
        return len(self.packed)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and of places per row."""
        return self.packed.shape[0], self.packed.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use."""
        return self.packed.nbytes

    def __getitem__(self, chosen: Any) -> Int32s:  # noqa: ANN401 (as of an array)
        some = self.packed[chosen]
        numbers: Int32s = some[..., -1].view(np.int8).astype(np.int32)  # includes the sign
        for byte in range(some.shape[-1] - 2, -1, -1):
            numbers = numbers << 8 | some[..., byte]
        return numbers

    def __setitem__(self, chosen: Any, numbers: ArrayLike) -> None:  # noqa: ANN401 (as of an array)
        whole = np.ascontiguousarray(numbers, np.int32)[..., None].view(np.uint8)
        # In one piece: scattered writes take four times as long.
        self.packed[chosen] = np.stack([whole[..., i] for i in range(self.packed.shape[2])], -1)

    def take(self, rows: Int64s) -> Int32s:
        """Return the numbers of many rows."""
        taken = large((len(rows), self.shape[1]), np.int32)
        for first in range(0, len(rows), _ROWS_A_STEP):
            part = slice(first, first + _ROWS_A_STEP)
            taken[part] = self[rows[part]]
        return taken

    def count_numbers(self) -> int:
        """Return how many entries name a row."""
        return int(np.count_nonzero(self.packed[..., -1].view(np.int8) >= 0))  # it has the sign
