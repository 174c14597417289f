"""An array in a file that the system maps into memory: more of it than there is memory.

The file has no name, and is gone with the last view of it. Pages that nobody reads go to the disk
when memory is short, and come back when they are read. Growing copies nothing: a larger mapping
shows the same pages.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import weakref
from pathlib import Path
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray

_STEP: Final = 64 << 20
"""Bytes by which a file grows at least, once it has as many itself."""
_SHARE: Final = 8
"""It grows by the eighth part of itself where that is more."""


class MappedArray:
    """The file of one growing array, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def with_room(self, array: AnyArray, used: int, wanted: int) -> AnyArray:
        """Return ``array``, or another view of the file with room for ``wanted`` entries or more.

        Views of before stay valid, and show the same entries. ``array`` is what this returned last,
        or one of no entries; ``used`` is there for `contracts.arrays.with_room`, which copies.
        Raises OSError where the disk has no space; nothing has changed.
        """
        if wanted <= len(array):
            return array
        descriptor = self._open()
        row = math.prod(array.shape[1:]) * array.dtype.itemsize
        grown = array.nbytes + max(min(array.nbytes, _STEP), array.nbytes // _SHARE)
        bytes_ = -(-max(wanted * row, grown) // mmap.PAGESIZE) * mmap.PAGESIZE
        # A page without its place on the disk would end the process where there is none left.
        os.posix_fallocate(descriptor, 0, bytes_)
        memory = mmap.mmap(descriptor, bytes_)
        count = bytes_ // row
        items = count * row // array.dtype.itemsize
        return np.frombuffer(memory, array.dtype, items).reshape(count, *array.shape[1:])

    def _open(self) -> int:
        """Return the descriptor of the file, made at the first call."""
        if self._descriptor is None:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                self._descriptor = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._descriptor)
        return self._descriptor
