"""Hash tables as sorted arrays: build, merge, and find a key's place.

A table has its keys in ascending order, with the row of each. The first sample of a band is in a
key's highest bits, so all rows that share the first d samples with a query are consecutive.

Source: [FOREST] (prefix-ordered hash tables).
"""

from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Int32s, Int64s, UInt64s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.lanes.vector import at
from gcws_search.index.kernels.ordering.keys import merge, sort_keys


class SortedTable(NamedTuple):
    """One table of n rows."""

    keys: UInt64s  # (n,): ascending
    rows: Int32s  # (n,)
    shift: np.uint64  # keys that agree above this many low bits share a bucket


class TableSegments(NamedTuple):
    """Tables of all rows, in segments."""

    # (s, 6): addresses of the (L, count) keys and rows of each segment, its count, and fields that
    # only the graph reads.
    addresses: Int64s
    bits: int  # bits of a key per unit of depth


@kernel
def build_tables(
    codes: UInt64s,
    first_row: int,
    first_table: int,
    last_table: int,
    out_keys: UInt64s,
    out_rows: Int32s,
) -> None:
    """Sort the (n, L) keys of rows first_row … into (L, n) tables first_table … last_table - 1."""
    n = codes.shape[0]
    spare_keys = np.empty(n, np.uint64)
    spare_rows = np.empty(n, np.int32)
    for table in range(first_table, last_table):
        keys = out_keys[table]
        rows = out_rows[table]
        for i in range(n):
            keys[i] = codes[i, table]
            rows[i] = np.int32(first_row + i)
        sort_keys(keys, rows, spare_keys, spare_rows)


@kernel
def merge_tables(
    keys_a: UInt64s,
    rows_a: Int32s,
    keys_b: UInt64s,
    rows_b: Int32s,
    first_table: int,
    last_table: int,
    out_keys: UInt64s,
    out_rows: Int32s,
) -> None:
    """Merge two sets of sorted (L, n) tables; of equal keys those of ``a`` come first."""
    for t in range(first_table, last_table):
        merge(keys_a[t], rows_a[t], keys_b[t], rows_b[t], out_keys[t], out_rows[t])


@kernel
def renumber_tables(
    keys: UInt64s, rows: Int32s, new_rows: Int64s, out_keys: UInt64s, out_rows: Int32s
) -> None:
    """Copy tables with the new numbers of rows, leaving out rows whose new number is -1."""
    for table in range(keys.shape[0]):
        place = 0
        for i in range(keys.shape[1]):
            row = new_rows[rows[table, i]]
            if row >= 0:
                out_keys[table, place] = keys[table, i]
                out_rows[table, place] = np.int32(row)
                place += 1


@kernel
def gather_keys(
    keys: UInt64s, rows: Int32s, places: Int32s, first_table: int, last_table: int, out: UInt64s
) -> None:
    """Write the keys of the rows whose place among (n,) ``places`` is not -1, into (k, L) keys."""
    for table in range(first_table, last_table):
        for i in range(keys.shape[1]):
            place = places[rows[table, i]]
            if place >= 0:
                out[place, table] = keys[table, i]


@inner
def find_places(keys: Any, count: int, sought: UInt64s, out: Int64s) -> None:
    """Write the insertion place of each sought key in its table (before equal keys).

    All tables are searched in lockstep, so that cache misses overlap. ``keys`` is the address of
    (L, count) keys; ``sought`` and ``out`` are (L,).
    """
    tables = sought.shape[0]
    for table in range(tables):
        out[table] = 0
    length = count
    while length > 0:
        half = length // 2
        for table in range(tables):
            below = at(keys, table * count + out[table] + half) < sought[table]
            out[table] += (length - half) if below else 0
        length = half
