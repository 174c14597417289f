"""Entry points of a search: the rows next to a query's keys in a few hash tables.

A table is sorted by key, so the rows next to the place of a query's key share a prefix with it.
These are the first candidates of a beam search (`beam_search`).
"""

from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Int64s, UInt8s
from gcws_search.index.kernels.compiling import inlined, inner
from gcws_search.index.kernels.graph.beam_search import mark, scratch_at
from gcws_search.index.kernels.lanes.vector import (
    at,
    offset,
    pointer_to_int32,
    pointer_to_uint64,
    prefetch,
    put,
)
from gcws_search.index.kernels.quantized.rows import fetch_ahead

ROWS_A_SIDE = 2
"""Entry points on each side of a key's place in a sorted table."""
_SAMPLES, _SAMPLE_BITS = 16, 4
"""Of a key. Rows of similarity 0.97 share all in three tables of five, and twelve in seven of ten.
"""


class EntryTables(NamedTuple):
    """The first ``tables`` of (s, 6) `Graph.segments`, through which a search enters.

    There are ``rows_a_side`` entry points on each side of a key's place in a large segment's table.
    If (n,) or (0,) int32 ``leaders`` is not empty, a search enters at a row's leader.
    """

    segments: Any
    tables: Any
    rows_a_side: Any
    leaders: Any


@inlined
def _tables_of(entries: Any, s: Any) -> Any:
    """Return the first table of a segment, and the end of its tables to enter."""
    return entries.segments[s, 3], min(entries.segments[s, 4], entries.tables)


@inner
def enter(
    rows: Any, state: Any, scratch: Any, places: Any, entries: Any, count: Any, hidden: UInt8s
) -> None:
    """Mark and prefetch the rows around a query's places in the tables.

    The places are those written by `find_entry_points`. Rows from ``count`` on are ignored, and
    ``hidden`` rows; ``hidden`` may be empty.
    """
    marked = before = state.seen
    segments = entries.segments
    for s in range(segments.shape[0]):
        length = segments[s, 2]
        # Small segments have few rows, and links lead to them too.
        a_side = entries.rows_a_side
        if 4 * segments[s, 5] < count:
            a_side = max(1, a_side // 2)
        first_table, end = _tables_of(entries, s)
        for table in range(first_table, end):
            table_rows = offset(pointer_to_int32(segments[s, 1]), table * length)
            place = at(places, s * entries.tables + table)
            first, last = max(0, place - a_side), min(length, place + a_side)
            if hidden.shape[0] > 0:
                first = _last_shown(table_rows, place - 1, -1, a_side, length, hidden)
                last = _last_shown(table_rows, place, 1, a_side, length, hidden) + 1
            for i in range(first, last):
                row = np.int64(at(table_rows, i))
                if row < entries.leaders.shape[0]:
                    row = np.int64(entries.leaders[row])
                if row < count and (hidden.shape[0] == 0 or hidden[row] == 0):
                    marked = mark(scratch.marks, row, marked)
    fetch_ahead(rows, scratch.marks.seen, before, marked)
    state.seen = marked


@inner
def enter_buckets(
    rows: Any, state: Any, scratch: Any, entries: Any, keys: Any, count: Any, hidden: UInt8s
) -> None:
    """Mark and prefetch the rows of a query's buckets.

    The bucket of a table has the rows that share three quarters of the longest prefix that any row
    shares with the query: the rows of a tight group differ in the last samples. A bucket that takes
    more than half of the remaining room belongs to a dense region. Arguments as for `enter`; the
    rows next to the query's places are marked already.
    """
    marked = before = state.seen
    segments = entries.segments
    for s in range(segments.shape[0]):
        length = segments[s, 2]
        first_table, end = _tables_of(entries, s)
        for table in range(first_table, end):
            table_keys = offset(pointer_to_uint64(segments[s, 0]), table * length)
            table_rows = offset(pointer_to_int32(segments[s, 1]), table * length)
            place, own = at(scratch.own_places, s * entries.tables + table), at(keys, table)
            differing = ~np.uint64(0)
            if place > 0:
                differing = at(table_keys, place - 1) ^ own
            if place < length:
                differing = min(differing, at(table_keys, place) ^ own)
            shared = _SAMPLES
            while differing != 0:
                differing >>= np.uint64(_SAMPLE_BITS)
                shared -= 1
            if shared == 0:
                continue
            shift = np.uint64(_SAMPLE_BITS * (_SAMPLES - (3 * shared + 3) // 4))
            most = (scratch.room - marked) // 2
            first = last = place
            while first > 0 and (at(table_keys, first - 1) ^ own) >> shift == 0:
                first -= 1
                if place - first > most:
                    break
            while last < length and (at(table_keys, last) ^ own) >> shift == 0:
                last += 1
                if last - first > most:
                    break
            if last - first > most:
                continue
            for i in range(first, last):
                row = np.int64(at(table_rows, i))
                if row < count and (hidden.shape[0] == 0 or hidden[row] == 0):
                    marked = mark(scratch.marks, row, marked)
    fetch_ahead(rows, scratch.marks.seen, before, marked)
    state.seen = marked


@inner
def _last_shown(
    table_rows: Any, place: Any, way: Any, wanted: Any, length: Any, hidden: UInt8s
) -> Any:
    """Return the place of the ``wanted``-th row that is not hidden, starting at a place."""
    last = place - way
    while wanted > 0 and 0 <= place < length:
        if hidden[at(table_rows, place)] == 0:
            wanted -= 1
            last = place
        place += way
    return last


@inner
def find_entry_points(entries: Any, keys: Any, scratch: Int64s, searches: int) -> None:
    """Write the places of the (searches, tables) keys of queries in the tables of each segment.

    The (segments, tables) places of each search are written into its working memory. One binary
    search runs in lockstep for all queries and tables of a segment, so that cache misses overlap.
    The rows next to the places are prefetched.
    """
    tables = entries.tables
    for s in range(entries.segments.shape[0]):
        held = pointer_to_uint64(entries.segments[s, 0])
        count = entries.segments[s, 2]
        first, end = _tables_of(entries, s)
        if first >= end:
            continue
        for search in range(searches):
            out = offset(scratch_at(scratch[search]).places, s * tables)
            for table in range(first, end):
                put(out, table, 0)
        length = count
        while length > 0:
            half = length // 2
            for search in range(searches):
                out = offset(scratch_at(scratch[search]).places, s * tables)
                own = offset(keys, search * tables)
                for table in range(first, end):
                    below = at(held, table * count + at(out, table) + half) < at(own, table)
                    put(out, table, at(out, table) + ((length - half) if below else 0))
            length = half
        table_rows = pointer_to_int32(entries.segments[s, 1])
        for search in range(searches):
            out = offset(scratch_at(scratch[search]).places, s * tables)
            for table in range(first, end):
                prefetch(offset(table_rows, table * count + at(out, table)))
