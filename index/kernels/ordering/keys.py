"""Sort 64-bit keys with their rows; merge pairs of rows as such numbers."""

from typing import NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Int32s, UInt64s
from gcws_search.index.kernels.compiling import inner, kernel

_DIGIT_BITS = 11
_BUCKETS = 1 << _DIGIT_BITS
_PASSES = 6  # 6 × 11 bits cover 64
_MAX_INSERTED = 128
"""Counting digits costs as much as inserting this many keys."""


@inner
def sort_by_gaps(keys: UInt64s, rows: Int32s, count: int) -> None:
    """Sort the first ``count`` keys with their rows, ascending, equal keys by row (Shellsort)."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            key = keys[i]
            row = rows[i]
            place = i
            while place >= gap and (
                keys[place - gap] > key or (keys[place - gap] == key and rows[place - gap] > row)
            ):
                keys[place] = keys[place - gap]
                rows[place] = rows[place - gap]
                place -= gap
            keys[place] = key
            rows[place] = row
        gap //= 3


@inner
def insert_keys(keys: UInt64s, rows: Int32s) -> None:
    """Sort a few keys with their rows in place, ascending; stable."""
    for i in range(1, keys.shape[0]):
        key = keys[i]
        row = rows[i]
        place = i
        while place > 0 and keys[place - 1] > key:
            keys[place] = keys[place - 1]
            rows[place] = rows[place - 1]
            place -= 1
        keys[place] = key
        rows[place] = row


@kernel
def sort_keys(keys: UInt64s, rows: Int32s, spare_keys: UInt64s, spare_rows: Int32s) -> None:
    """Sort keys with their rows in place, ascending; stable."""
    n = keys.shape[0]
    if n <= _MAX_INSERTED:
        insert_keys(keys, rows)
        return
    counts = np.zeros((_PASSES, _BUCKETS), np.int64)
    mask = np.uint64(_BUCKETS - 1)
    for i in range(n):
        key = keys[i]
        for p in range(_PASSES):
            counts[p, np.intp((key >> np.uint64(p * _DIGIT_BITS)) & mask)] += 1
    source_keys, source_rows = keys, rows
    target_keys, target_rows = spare_keys, spare_rows
    for p in range(_PASSES):
        shift = np.uint64(p * _DIGIT_BITS)
        # If a digit is equal in all keys, no pass is needed.
        if n > 0 and counts[p, np.intp((source_keys[0] >> shift) & mask)] == n:
            continue
        before = np.int64(0)
        for bucket in range(_BUCKETS):
            count = counts[p, bucket]
            counts[p, bucket] = before
            before += count
        for i in range(n):
            key = source_keys[i]
            bucket = np.intp((key >> shift) & mask)
            target = counts[p, bucket]
            counts[p, bucket] = target + 1
            target_keys[target] = key
            target_rows[target] = source_rows[i]
        source_keys, target_keys = target_keys, source_keys
        source_rows, target_rows = target_rows, source_rows
    if source_keys is not keys:
        for i in range(n):
            keys[i] = source_keys[i]
            rows[i] = source_rows[i]


class RowPairs(NamedTuple):
    """Memory for pairs of rows."""

    a: Int32s  # (capacity,): the smaller row of each pair
    b: Int32s  # (capacity,): the greater one


@kernel
def keep_new(fresh: UInt64s, known: UInt64s) -> int:
    """Move the distinct numbers that are not known to the front of ``fresh``; return their number.

    Both ascend; ``fresh`` may have repetitions, and is overwritten.
    """
    count = place = 0
    for i in range(fresh.shape[0]):
        number = fresh[i]
        if count > 0 and fresh[count - 1] == number:
            continue
        while place < known.shape[0] and known[place] < number:
            place += 1
        if place == known.shape[0] or known[place] != number:
            fresh[count] = number
            count += 1
    return count


@kernel
def merge(
    a: UInt64s, a_values: AnyArray, b: UInt64s, b_values: AnyArray, out: UInt64s, values: AnyArray
) -> None:
    """Merge two ascending runs with their values into ``out`` and ``values``; ``a`` first."""
    i = j = 0
    for place in range(out.shape[0]):
        if j == b.shape[0] or (i < a.shape[0] and a[i] <= b[j]):
            out[place], values[place] = a[i], a_values[i]
            i += 1
        else:
            out[place], values[place] = b[j], b_values[j]
            j += 1
