"""The inverted index of sparse rows: for each slot, who has it and how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from index.arrays import Float32s, Int32s, Int64s, UInt32s
from index.batches import VectorBatch
from index.kernels.postings import slot_borders, sort_entries

LEAST_ROWS: Final = 1024
"""Rows get postings by this many; those that come after are scanned as they are until then."""
MAX_ENTRIES: Final = 2**31 - 1
"""Entries of one segment at most: sorting numbers them in 32 bits."""
_GROWTH: Final = 4


@dataclass(frozen=True, slots=True)
class Postings:
    """The postings of a run of consecutive rows.

    Attributes
    ----------
    first, last : int
        The rows first … last - 1.
    slots : (distinct,) uint32
        Rising.
    starts : (distinct + 1,) int64
        Where each slot's entries start.
    rows : (nnz,) int32
        Row numbers less ``first``.
    values : (nnz,) float32
    """

    first: int
    last: int
    slots: UInt32s
    starts: Int64s
    rows: Int32s
    values: Float32s

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return self.slots.nbytes + self.starts.nbytes + self.rows.nbytes + self.values.nbytes


@dataclass(frozen=True, slots=True)
class InvertedIndex:
    """Postings of rows 0 … covered - 1, in segments; later rows have none yet."""

    segments: tuple[Postings, ...] = ()

    @property
    def covered(self) -> int:
        """How many rows have postings."""
        return self.segments[-1].last if self.segments else 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return sum(segment.nbytes for segment in self.segments)

    def cover(self, rows: VectorBatch) -> InvertedIndex:
        """Return an index of all whole runs of ``LEAST_ROWS`` rows.

        Parameters
        ----------
        rows : VectorBatch
            All rows of the collection, sparse; those covered already are the same as before.
        """
        first, last = self.covered, len(rows) // LEAST_ROWS * LEAST_ROWS
        if first == last:
            return self
        kept = list(self.segments)
        while (
            kept
            and _GROWTH * (last - first) >= kept[-1].last - kept[-1].first
            and rows.indptr[last] - rows.indptr[kept[-1].first] <= MAX_ENTRIES
        ):
            first = kept.pop().first
        while first < last:
            full = np.searchsorted(rows.indptr, rows.indptr[first] + MAX_ENTRIES, "right") - 1
            stop = min(last, max(first + 1, int(full)))
            kept.append(_post(rows, first, stop))
            first = stop
        return InvertedIndex(tuple(kept))


def _post(rows: VectorBatch, first: int, last: int) -> Postings:
    indptr = rows.indptr[first : last + 1]
    count = int(indptr[-1] - indptr[0])
    entry_slots = np.empty(count, np.uint32)
    entry_rows = np.empty(count, np.int32)
    entry_values = np.empty(count, np.float32)
    distinct = sort_entries(indptr, rows.slots, rows.values, entry_slots, entry_rows, entry_values)
    slots = np.empty(distinct, np.uint32)
    starts = np.empty(distinct + 1, np.int64)
    slot_borders(entry_slots, slots, starts)
    return Postings(first, last, slots, starts, entry_rows, entry_values)
