"""Candidates from prefix-ordered tables: rows that share the deepest prefixes come first.

Depth by depth, and at each depth table by table, new rows of the query's bucket are collected until
there are enough. A bucket is always completed, so the result does not depend on how rows are
divided into segments.

Source: [FOREST].
"""

import numpy as np

from gcws_search.index.contracts.arrays import Int32s, UInt8s, UInt64s
from gcws_search.index.kernels.compiling import kernel
from gcws_search.index.kernels.lanes.vector import at, offset, pointer_to_int32, pointer_to_uint64
from gcws_search.index.kernels.lsh.tables import TableSegments, find_places


@kernel
def gather(
    keys: UInt64s,
    skip: int,
    permitted: UInt8s,
    segments: TableSegments,
    depths: int,
    wanted: int,
    visited: UInt64s,
    out: Int32s,
) -> tuple[int, int, int]:
    """Gather permitted rows for one query by its (L,) keys, from ``depths`` up.

    visited (n / 64, rounded up): overwritten. out (n,): rows in order of collection.
    Returns the number of rows before the last bucket, the number with it, and the depth of that
    bucket: 0 if all tables are exhausted.
    """
    segments = TableSegments(*segments)
    addresses = segments.addresses
    tables = keys.shape[0]
    left = np.empty((addresses.shape[0], tables), np.int64)
    right = np.empty((addresses.shape[0], tables), np.int64)
    for s in range(addresses.shape[0]):
        find_places(pointer_to_uint64(addresses[s, 0]), addresses[s, 2], keys, left[s])
        for table in range(tables):
            right[s, table] = left[s, table]
    visited[:] = np.uint64(0)
    found = 0
    for depth in range(depths, 0, -1):
        shift = np.uint64(64 - depth * segments.bits)
        for table in range(tables):
            key = keys[table]
            certain = found
            for s in range(addresses.shape[0]):
                count = addresses[s, 2]
                table_keys = offset(pointer_to_uint64(addresses[s, 0]), table * count)
                table_rows = offset(pointer_to_int32(addresses[s, 1]), table * count)
                first = left[s, table]
                while first > 0 and ((at(table_keys, first - 1) ^ key) >> shift) == 0:
                    first -= 1
                last = right[s, table]
                while last < count and ((at(table_keys, last) ^ key) >> shift) == 0:
                    last += 1
                known_from, known_to = left[s, table], right[s, table]
                for place in range(first, last):
                    if known_from <= place < known_to:
                        continue
                    row = np.int64(at(table_rows, place))
                    bit = np.uint64(1) << np.uint64(row & 63)
                    if visited[row >> 6] & bit != 0:
                        continue
                    visited[row >> 6] |= bit
                    if permitted[row] != 0 and row != skip:
                        out[found] = np.int32(row)
                        found += 1
                left[s, table] = first
                right[s, table] = last
            if found >= wanted:
                return certain, found, depth
    return found, found, 0
