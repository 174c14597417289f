"""The inverted index of sparse rows: for each slot, the rows that have it and their values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.kernels.sparse.postings import (
    COLUMN_SHARE,
    PostingSegment,
    part_postings,
    slot_borders,
    sort_entries,
)
from gcws_search.index.threads import Workers

_GROWTH: Final = 4
"""A segment is merged with one that has at least 1/GROWTH of its rows. With 1, scans of rows that
come 300 at a time took 1.1 times as long, and postings half; with 16, postings twice as long."""


@dataclass(frozen=True, slots=True)
class InvertedIndex:
    """Postings of rows 0 … covered - 1, in segments; later rows have none yet."""

    segments: tuple[PostingSegment, ...] = ()
    # Rows get postings once this many have none. Until then they are scanned directly, in some
    # hundred nanoseconds each.
    min_rows: int = 256
    # Rows of a segment: their sums fit into the L2 cache, their numbers into 16 bits.
    max_rows: int = 1 << 15
    max_entries: int = 2**31 - 1  # entries of a segment: sorting numbers them in 32 bits

    @classmethod
    def of(cls, rows: VectorBatch, workers: Workers) -> InvertedIndex:
        """Return an index of rows; an empty one for dense rows."""
        return cls().cover(rows, workers)

    @property
    def covered(self) -> int:
        """Number of rows with postings."""
        return self.segments[-1].last if self.segments else 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use."""
        return sum(segment.nbytes for segment in self.segments)

    def cover(self, rows: VectorBatch, workers: Workers) -> InvertedIndex:
        """Return an index of all sparse rows, or the same one if few rows are new."""
        if rows.form == "dense":
            return self
        first, last = self.covered, len(rows)
        if last - first < self.min_rows:
            return self
        segments = list(self.segments)
        while (
            segments
            and segments[-1].last - segments[-1].first < self.max_rows
            and _GROWTH * (last - first) >= segments[-1].last - segments[-1].first
            and rows.indptr[last] - rows.indptr[segments[-1].first] <= self.max_entries
        ):
            first = segments.pop().first
        borders = []
        while first < last:
            full = np.searchsorted(rows.indptr, rows.indptr[first] + self.max_entries, "right") - 1
            stop = min(last, first + self.max_rows, max(first + 1, int(full)))
            borders.append((first, stop))
            first = stop
        posted: dict[int, PostingSegment] = {}

        def post(start: int, end: int) -> None:
            for number in range(start, end):
                posted[number] = _post(rows, *borders[number])

        workers.split(len(borders), post)
        new = (posted[number] for number in range(len(borders)))
        return replace(self, segments=(*segments, *new))


def _post(rows: VectorBatch, first: int, last: int) -> PostingSegment:
    indptr, n = rows.indptr[first : last + 1], last - first
    count = int(indptr[-1] - indptr[0])
    entry_slots = np.empty(count, np.uint32)
    entry_rows = np.empty(count, np.int32)
    entry_values = np.empty(count, np.float32)
    distinct = sort_entries(indptr, rows.slots, rows.values, entry_slots, entry_rows, entry_values)
    slots = np.empty(distinct, np.uint32)
    entry_starts = np.empty(distinct + 1, np.int64)
    slot_borders(entry_slots, slots, entry_starts)
    counts = np.diff(entry_starts)
    frequent = np.flatnonzero(counts * COLUMN_SHARE > n)
    column_of = np.full(distinct, -1, np.int32)
    column_of[frequent] = np.arange(len(frequent))
    posted = count - int(counts[frequent].sum())
    greatest, starts = np.empty(distinct, np.float32), np.empty(distinct + 1, np.int32)
    posted_rows, posted_values = np.empty(posted, np.uint16), np.empty(posted, np.float32)
    columns = np.zeros((len(frequent), n), np.float32)
    segment = PostingSegment(
        first,
        slots,
        starts,
        greatest,
        column_of,
        posted_rows,
        posted_values,
        columns,
        np.float32(rows.norms[first:last].min()),
    )
    part_postings(entry_starts, entry_rows, entry_values, segment)
    return segment
