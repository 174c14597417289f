"""The best rows seen so far, best first, each as one number.

An entry has the bits of its score, its row, whether the row is not permitted, and whether it has
been expanded. Entries are sorted in falling order, as integers and equally as float64 with the same
bits. Processors have minima and maxima of whole registers for float64, so an entry is inserted
without a branch that depends on its place.
"""

from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.arrays import LANES
from gcws_search.index.kernels.compiling import inlined, inner
from gcws_search.index.kernels.hashing.randomness import mix64
from gcws_search.index.kernels.lanes.vector import (
    after,
    as_double_address,
    at,
    double_of_bits,
    float_bits,
    float_of_bits,
    lane_numbers,
    last,
    last_and,
    less,
    load,
    offset,
    put,
    select,
    splat,
    store,
)

EXPANDED, REJECTED = np.uint64(1), np.uint64(2)
"""The bits of an entry that has been expanded, and of a row that may be no hit."""
MAX_ROWS: Final = 1 << 30
"""Rows that entries can tell apart."""
_ABOVE_ALL: Final = np.uint64(0x7FF0000000000000)
"""More than any entry: the bits of an infinite float64."""

_BLOCK: Final = 2 * LANES
"""Entries that are held in registers."""

_REJECTED_SHIFT, _ROW_SHIFT, _SCORE_SHIFT = np.uint64(1), np.uint64(2), np.uint64(32)
_ROW_MASK = np.uint64(MAX_ROWS - 1)
_NOTHING = np.float64(0.0)


def places_for(capacity: int) -> int:
    """Return the length of the array of a pool, including that of its last block."""
    return (capacity // _BLOCK + 1) * _BLOCK


@inner
def entry(score: Any, row: Any) -> Any:
    """Return a permitted row as an entry of a pool; not yet expanded."""
    return (float_bits(score) << _SCORE_SHIFT) | (np.uint64(row) << _ROW_SHIFT)


@inner
def row_of(entry: Any) -> Any:
    """Return the row of an entry; for a `salted` one, the number that the salt makes of it."""
    return np.int64((entry >> _ROW_SHIFT) & _ROW_MASK)


@inner
def score_of(entry: Any) -> Any:
    """Return the score of an entry."""
    return float_of_bits(entry >> _SCORE_SHIFT)


@inner
def salt_of(row: Any) -> Any:
    """Return bits that change the order of equally near rows for each row.

    Otherwise hundreds of copies would all choose the same few copies, which link to no others.
    """
    return np.int64(mix64(np.uint64(row)) & _ROW_MASK)


@inner
def salted(entry: Any, salt: Any) -> Any:
    """Return an entry with its row changed by a salt; applied twice, the original entry."""
    return entry ^ (np.uint64(salt) << _ROW_SHIFT)


@inlined
def _insertion(held: Any, before: Any, value: Any) -> Any:
    """Return lanes of falling numbers after the insertion of one number.

    A lane gets the number if that is greater, or the previous lane's if that is smaller.
    """
    more = select(less(held, value), value, held)
    # The minimum comes last: a maximum with ``held`` last would compile to a masked store.
    return select(less(before, more), before, more)


@inlined
def insert_all(pool: Any, size: Any, capacity: Any, fresh: Any, count: Any) -> Any:
    """Insert entries and return the pool's size; a full pool drops its last entries.

    An entry takes 2 to 4 ns in a pool of at most 64. The pool falls, and has the length of
    `places_for`; places after the last entry may have any content. The ``count`` fresh entries are
    in any order, not in the pool, and are overwritten.
    """
    for first in range(0, count, _BLOCK):
        some, end = 0, min(first + _BLOCK, count)
        if first > 0 and size == capacity:  # the pool has been filled since
            for i in range(first, end):
                new = at(fresh, i)
                put(fresh, first + some, new)
                some += np.int64(new > at(pool, capacity - 1))
        else:
            some = end - first
        if some > 0:
            size = _insert_some(pool, size, capacity, offset(fresh, first), some)
    return size


@inlined
def _insert_some(pool: Any, size: Any, capacity: Any, fresh: Any, count: Any) -> Any:
    """Like `insert_all`, for a few entries.

    `_BLOCK` places at a time are in registers; what does not fit moves on to the next ones.
    """
    entries, doubles = as_double_address(pool), as_double_address(fresh)
    above, nothing = double_of_bits(_ABOVE_ALL), splat(_NOTHING)
    best = np.uint64(0)
    for i in range(count):
        best = max(best, at(fresh, i))
    start = 0
    while start + _BLOCK <= size and at(pool, start + _BLOCK - 1) > best:
        start += _BLOCK
    sizes, new_size = splat(np.int32(size)), min(size + count, capacity)
    for block in range(start, new_size, _BLOCK):
        places = lane_numbers() + splat(np.int32(block))
        next_places = places + splat(np.int32(LANES))
        first = select(less(places, sizes), load(entries, block), nothing)
        second = select(less(next_places, sizes), load(entries, block + LANES), nothing)
        for i in range(count):
            new = at(doubles, i)
            value = splat(new)
            put(doubles, i, min(new, last(second)))
            second = _insertion(second, last_and(first, second), value)
            first = _insertion(first, after(above, first), value)
        store(entries, block, first)
        store(entries, block + LANES, second)
    return new_size


@inner
def place_of(pool: Any, value: Any) -> Any:
    """Return the number of entries above a value."""
    place = 0
    while at(pool, place) > value:
        place += 1
    return place


@inner
def place_of_hit(pool: Any, size: Any, number: Any) -> Any:
    """Return the place, from 1 on, of the permitted entry with a number, from 1 on.

    ``size`` + 1 if there are fewer.
    """
    if number > size:
        return size + 1
    first, place, missing = 0, 0, number
    while missing > 0 and place < size:  # this many of the entries added last are not hits
        first, place = place, min(place + missing, size)
        missing -= place - first
        for i in range(first, place):
            missing += np.int64((at(pool, i) & REJECTED) >> _REJECTED_SHIFT)
    return place + np.int64(missing > 0)


@inner
def first_unexpanded(pool: Any, size: Any, place: Any) -> Any:
    """Return the first unexpanded place from ``place`` on, or the size."""
    while place < size and at(pool, place) & EXPANDED != 0:
        place += 1
    return place


@inner
def set_expanded(pool: Any, place: Any) -> None:
    """Mark an entry as expanded."""
    put(pool, place, at(pool, place) | EXPANDED)
