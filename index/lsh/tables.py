"""Hash tables over rows: immutable segments of sorted keys, merged as they grow.

Tables know only rows and keys. Tombstones stay in them until a compaction renumbers the rows;
searches skip these.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Bools, Int32s, Int64s, UInt32s, UInt64s, large
from gcws_search.index.kernels.lsh.tables import (
    build_tables,
    gather_keys,
    merge_tables,
    renumber_tables,
)
from gcws_search.index.threads import Workers, end_if

TAIL_ROWS: Final = 512
"""New rows are merged into the last segment until it has this many."""
GROWTH: Final = 4
"""Full segments are merged when a later one has at least 1/GROWTH of the rows of the one before."""
MAX_SEGMENTS: Final = 32
"""Beyond this number a write merges the last segments that are due, whatever their size. A few
small ones may come on top."""

SAMPLE: Final = 4
"""One row in this many is in the tables of a sample."""
_SPREAD: Final = np.uint32(0x9E3779B1)
"""2^32 divided by the golden ratio: it spreads the sample over rows in any order."""
_SPREAD_END: Final = np.uint32((1 << 32) // SAMPLE)

_TABLES_AT_ONCE: Final = 8
"""New tables for which keys of all rows are drawn at a time."""
_ROWS_A_THREAD: Final = 20_000  # keys × tables below which a second thread does not pay


@dataclass(frozen=True, slots=True)
class TableSegment:
    """The tables of a run of consecutive rows."""

    keys: UInt64s  # (L, n), ascending in each table
    rows: Int32s  # (L, n)
    place: tuple[int, int, int] = field(init=False)  # addresses of both, and number of rows

    def __post_init__(self) -> None:
        """Look up the addresses."""
        place = self.keys.ctypes.data, self.rows.ctypes.data, self.keys.shape[1]
        object.__setattr__(self, "place", place)

    def __len__(self) -> int:
        return self.place[2]

    def record(self, first: int, sample: int) -> tuple[int, ...]:
        """Return the segment's entry in `kernels.graph.beam_search.Graph`."""
        keys, rows, n = self.place
        skipped = first * n
        end = first + len(self.keys)
        return keys - 8 * skipped, rows - 4 * skipped, n, first, end, sample * n

    @property
    def nbytes(self) -> int:
        """Bytes of memory: 12 a row and table."""
        return self.keys.nbytes + self.rows.nbytes


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one index from ``first`` on, as a tuple of segments in row order.

    bands: number of tables.
    sample: one row in ``sample`` rows is in the tables.
    addresses: (s, 6) int64, the `record` of each segment, valid while this object lives.
    """

    bands: int
    segments: tuple[TableSegment, ...]
    first: int
    sample: int
    addresses: Int64s

    @classmethod
    def of(
        cls, bands: int, segments: tuple[TableSegment, ...], first: int = 0, sample: int = 1
    ) -> Tables:
        """Return tables made of the given segments."""
        records = [segment.record(first, sample) for segment in segments]
        addresses = np.array(records, np.int64).reshape(len(records), 6)
        return cls(bands, segments, first, sample, addresses)

    def with_segments(self, segments: Iterable[TableSegment]) -> Tables:
        """Return tables like these with other segments."""
        return Tables.of(self.bands, tuple(segments), self.first, self.sample)

    def __len__(self) -> int:
        return sum(map(len, self.segments))

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use."""
        return sum(segment.nbytes for segment in self.segments)

    @property
    def merge_is_due(self) -> bool:
        """Whether there are segments that `with_due_merges` would merge."""
        return any(_should_merge(len(a), len(b)) for a, b in pairwise(self.segments))

    def extend(
        self,
        codes: UInt64s,
        first_row: int,
        workers: Workers,
        max_merge_rows: int | None = None,
        numbers: Int32s | None = None,
    ) -> Tables:
        """Return tables with rows first_row … first_row + n - 1 added, by their (n, L) keys.

        Up to `MAX_SEGMENTS` segments, no merge creates a segment of more than ``max_merge_rows``
        rows, if given: merging millions of rows takes seconds. ``numbers`` are (n,) ascending row
        numbers from ``first_row`` on, if some are left out.
        """
        if len(codes) == 0:
            return self
        if not self.bands:
            return Tables.unhashed(len(self) + len(codes))
        keys = large(codes.shape[::-1], np.uint64)
        rows = large(codes.shape[::-1], np.int32)
        _fill(codes, first_row if numbers is None else 0, workers, keys, rows)
        if numbers is not None:
            for table in rows:
                table[:] = numbers[table]
        segments = [*self.segments, TableSegment(keys, rows)]
        if len(segments) > MAX_SEGMENTS:
            max_merge_rows = None
        _merge_last(segments, workers, max_merge_rows)
        return self.with_segments(segments)

    def with_due_merges(self, workers: Workers, stop: threading.Event) -> Tables:
        """Return the same rows in fewer segments, as if `extend` had had no limit."""
        segments: list[TableSegment] = []
        for segment in self.segments:
            end_if(stop)
            segments.append(segment)
            _merge_last(segments, workers)
        return self.with_segments(segments)

    @classmethod
    def unhashed(cls, rows: int) -> Tables:
        """Return zero tables for a number of rows; keys are computed when tables are needed."""
        keys, numbers = np.empty((0, rows), np.uint64), np.empty((0, rows), np.int32)
        return cls.of(0, (TableSegment(keys, numbers),) if rows else ())

    def with_rows_after(self, others: Tables) -> Tables:
        """Return these tables with the further rows of ``others``, which have as many tables."""
        if not self.bands:
            return Tables.unhashed(max(len(self), len(others)))
        known, end, segments = len(self), 0, list(self.segments)
        for segment in others.segments:
            start, end = end, end + len(segment)
            if start >= known:
                segments.append(segment)
            elif end > known:
                newer = segment.rows >= known  # the same number in each table, and in order
                keys = segment.keys[newer].reshape(self.bands, -1)
                segments.append(TableSegment(keys, segment.rows[newer].reshape(self.bands, -1)))
        return self.with_segments(segments)

    def widen(
        self,
        bands: int,
        keys_of: Callable[[slice, int, int], UInt64s],
        workers: Workers,
        *,
        stop: threading.Event | None = None,
    ) -> Tables:
        """Return the same rows in more tables, ``bands`` in total.

        ``keys_of(rows, first, last)`` returns the (n, last - first) keys of rows in new tables.
        Raises StoppedError once ``stop`` is set.
        """
        segments, end = [], 0
        for segment in self.segments:
            start, end = end, end + len(segment)
            keys = large((bands, len(segment)), np.uint64)
            rows = large((bands, len(segment)), np.int32)
            known = len(segment.keys)
            keys[:known], rows[:known] = segment.keys, segment.rows
            for first in range(known, bands, _TABLES_AT_ONCE):
                part = slice(first, min(first + _TABLES_AT_ONCE, bands))
                codes = keys_of(slice(start, end), part.start, part.stop)
                _fill(codes, start, workers, keys[part], rows[part], stop=stop)
            segments.append(TableSegment(keys, rows))
        return Tables.of(bands, tuple(segments))

    def renumber(self, new_rows: Int64s) -> Tables:
        """Return tables in which row i becomes new_rows[i], or is removed if that is -1."""
        if not self.bands:
            return Tables.unhashed(int(np.count_nonzero(new_rows[: len(self)] >= 0)))
        renumbered = []
        for segment in self.segments:
            count = int(np.count_nonzero(new_rows[segment.rows[0]] >= 0))
            if count == 0:
                continue
            keys = large((self.bands, count), np.uint64)
            rows = large((self.bands, count), np.int32)
            renumber_tables(segment.keys, segment.rows, new_rows, keys, rows)
            renumbered.append(TableSegment(keys, rows))
        return self.with_segments(renumbered)

    def some(self, bands: int) -> Tables:
        """Return only the first ``bands`` tables."""
        if bands >= self.bands:
            return self
        if not bands:
            return Tables.unhashed(len(self))
        segments = []
        for segment in self.segments:
            keys = large((bands, len(segment)), np.uint64)
            rows = large((bands, len(segment)), np.int32)
            keys[:], rows[:] = segment.keys[:bands], segment.rows[:bands]
            segments.append(TableSegment(keys, rows))
        return Tables.of(bands, tuple(segments))

    def codes(self, bands: int) -> UInt64s:
        """Return the (bands, n) keys of all rows in the first tables."""
        found = np.empty((bands, len(self)), np.uint64)
        for segment in self.segments:
            for band in range(bands):
                found[band, segment.rows[band]] = segment.keys[band]
        return found

    def keys_of(self, chosen: Int64s, bands: int, workers: Workers) -> UInt64s:
        """Return the (k, bands) keys of k distinct rows in the first tables."""
        places = np.full(len(self), -1, np.int32)
        places[chosen] = np.arange(len(chosen))
        found, end = np.empty((len(chosen), bands), np.uint64), 0
        for segment in self.segments:
            start, end = end, end + len(segment)
            if places[start:end].max(initial=-1) < 0:
                continue

            def gather(first: int, last: int, segment: TableSegment = segment) -> None:
                gather_keys(segment.keys, segment.rows, places, first, last, found)

            workers.split(bands, gather, min_size=max(1, _ROWS_A_THREAD // len(segment)))
        return found

    def merged(self, workers: Workers) -> TableSegment | None:
        """Return all rows in one segment; None if there are none."""
        segments = list(self.segments)
        while len(segments) > 1:
            last = segments.pop()
            segments[-1] = _merge(segments[-1], last, workers)
        return segments[0] if segments else None


NO_TABLES: Final = Tables.of(0, ())


def is_sampled(rows: Int32s | Int64s) -> Bools:
    """Return (n,) whether each row is in the tables of a sample."""
    spread: UInt32s = rows.astype(np.uint32) * _SPREAD
    return spread < _SPREAD_END


def _merge_last(
    segments: list[TableSegment], workers: Workers, max_merge_rows: int | None = None
) -> None:
    """Merge the last segments of a list in place while they are due and small enough."""
    while len(segments) > 1:
        before, last = segments[-2:]
        is_small = max_merge_rows is None or len(before) + len(last) <= max_merge_rows
        if not is_small or not _should_merge(len(before), len(last)):
            return
        segments[-2:] = [_merge(before, last, workers)]


def _should_merge(before: int, last: int) -> bool:
    return before + last <= TAIL_ROWS or GROWTH * last >= before


def _fill(
    codes: UInt64s,
    first_row: int,
    workers: Workers,
    out_keys: UInt64s,
    out_rows: Int32s,
    *,
    stop: threading.Event | None = None,
) -> None:
    """Write the tables of rows with (n, bands) ``codes`` into (bands, n) keys and rows."""
    n, bands = codes.shape

    def build(first: int, last: int) -> None:
        step = last - first if stop is None else 1
        for band in range(first, last, step):
            end_if(stop)
            build_tables(codes, first_row, band, band + step, out_keys, out_rows)

    workers.split(bands, build, min_size=max(1, _ROWS_A_THREAD // n))


def _merge(a: TableSegment, b: TableSegment, workers: Workers) -> TableSegment:
    n, bands = len(a) + len(b), len(a.keys)
    keys = large((bands, n), np.uint64)
    rows = large((bands, n), np.int32)

    def merge(first: int, last: int) -> None:
        merge_tables(a.keys, a.rows, b.keys, b.rows, first, last, keys, rows)

    workers.split(bands, merge, min_size=max(1, _ROWS_A_THREAD // n))
    return TableSegment(keys, rows)
