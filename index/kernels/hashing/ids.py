"""Ids in arrays, and an open-addressing table that finds the row of an id.

An id is stored in 64 bits. A whole number below 10^18 in Python's notation is stored as itself. Any
other id is in a text; ~(first << `LENGTH_BITS` | length) is its place, a negative number.
A table has 2^k slots, some of them empty, and uses linear probing.
"""

from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Int32s, Int64s, UInt8s, UInt32s
from gcws_search.index.kernels.compiling import inner, kernel

EMPTY: Final = -1
"""A slot that has had no row."""
REMOVED: Final = -2
"""A slot whose row has no longer an id: others may lie behind it."""
LENGTH_BITS: Final = 10
"""255 characters have at most 1,020 bytes."""

_DIGITS: Final = 18
_ZERO: Final = 48
_ASCII: Final = 127
_LENGTHS: Final = (1 << LENGTH_BITS) - 1
_PRIME: Final = np.uint64(0x100000001B3)
_FIRST: Final = np.uint64(0xFF51AFD7ED558CCD)
_SECOND: Final = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT: Final = np.uint64(33)


@inner
def _number(data: UInt8s, start: int, stop: int) -> int:
    """Return the whole number that an id is; -1 for any other text."""
    if stop == start or stop - start > _DIGITS or (data[start] == _ZERO and stop > start + 1):
        return -1
    number = 0
    for i in range(start, stop):
        digit = np.int64(data[i]) - _ZERO
        if digit < 0 or digit > 9:
            return -1
        number = 10 * number + digit
    return number


@inner
def _hash(number: int, data: UInt8s, start: int, stop: int, seed: int) -> int:
    """Return a hash of a number, or of some bytes if it is -1: FNV-1a, mixed as in MurmurHash3."""
    h = np.uint64(seed)
    if number >= 0:
        h ^= np.uint64(number)
    else:
        for i in range(start, stop):
            h = (h ^ np.uint64(data[i])) * _PRIME
    h = (h ^ (h >> _SHIFT)) * _FIRST
    h = (h ^ (h >> _SHIFT)) * _SECOND
    return np.int64((h ^ (h >> _SHIFT)) >> np.uint64(1))


@inner
def _is_at(place: int, text: UInt8s, number: int, data: UInt8s, start: int, stop: int) -> bool:
    """Return whether a stored id equals the given one."""
    if number >= 0 or place >= 0:
        return number == place
    first, length = ~place >> LENGTH_BITS, ~place & _LENGTHS
    if length != stop - start:
        return False
    same = 0
    while same < length and text[first + same] == data[start + same]:
        same += 1
    return same == length


@inner
def _find(
    number: int,
    data: UInt8s,
    start: int,
    stop: int,
    places: Int64s,
    text: UInt8s,
    table: Int32s,
    seed: int,
) -> int:
    """Return the slot of an id, or the empty slot where the search for it ends."""
    last = np.int64(table.shape[0]) - 1
    slot = _hash(number, data, start, stop, seed) & last
    while table[slot] != EMPTY:
        row = np.int64(table[slot])
        if row >= 0 and _is_at(places[row], text, number, data, start, stop):
            break
        slot = (slot + 1) & last
    return slot


@kernel
def find_ids(
    data: UInt8s, ends: Int64s, places: Int64s, text: UInt8s, table: Int32s, seed: int, out: Int64s
) -> None:
    """Write the (m,) slots of ids; the slots of unknown ids are empty.

    data: UTF-8 bytes of all ids; id i ends at ``ends[i]``, and the next one begins there.
    places: (n,) ids of rows; text: the bytes that they refer to.
    """
    start = 0
    for i in range(out.shape[0]):
        number = _number(data, start, ends[i])
        out[i] = _find(number, data, start, ends[i], places, text, table, seed)
        start = ends[i]


@kernel
def append_ids(
    data: UInt8s,
    ends: Int64s,
    seed: int,
    first: int,
    used: int,
    out_places: Int64s,
    out_text: UInt8s,
    out_table: Int32s,
) -> int:
    """Give ids the rows from ``first`` on, replacing earlier rows; return the bytes of text.

    data, ends: see `find_ids`.
    used: bytes of text so far; there is room for all ids, and the table has empty slots.
    """
    start = 0
    for i in range(ends.shape[0]):
        stop, row = ends[i], first + i
        number = _number(data, start, stop)
        slot = _find(number, data, start, stop, out_places, out_text, out_table, seed)
        known = out_table[slot]
        if number >= 0:
            out_places[row] = number
        elif known >= 0:
            out_places[row] = out_places[known]
        else:
            out_places[row] = ~(used << LENGTH_BITS | (stop - start))
            for j in range(start, stop):
                out_text[used] = data[j]
                used += 1
        out_table[slot] = row
        start = stop
    return used


@kernel
def write_ids(places: Int64s, text: UInt8s, out: UInt32s) -> bool:
    """Write (m, w) code points of ids into zeros; w is the length of the longest id.

    Return False if an id is not ASCII, or ends in a zero character.
    """
    for i in range(out.shape[0]):
        place = places[i]
        if place >= 0:
            number, length, bound = np.uint64(place), 1, 10
            while place >= bound:
                length, bound = length + 1, 10 * bound
            for j in range(length - 1, -1, -1):
                out[i, j] = np.uint64(_ZERO) + number % np.uint64(10)
                number //= np.uint64(10)
            continue
        first, length = ~place >> LENGTH_BITS, ~place & _LENGTHS
        for j in range(length):
            if text[first + j] > _ASCII:
                return False
            out[i, j] = text[first + j]
        if text[first + length - 1] == 0:
            return False
    return True


@kernel
def fill_table(rows: Int32s, places: Int64s, text: UInt8s, seed: int, out_table: Int32s) -> None:
    """Insert rows of distinct ids into an empty table."""
    last = np.int64(out_table.shape[0]) - 1
    for row in rows:
        place = places[row]
        start = ~place >> LENGTH_BITS
        slot = _hash(max(place, -1), text, start, start + (~place & _LENGTHS), seed) & last
        while out_table[slot] != EMPTY:
            slot = (slot + 1) & last
        out_table[slot] = row
