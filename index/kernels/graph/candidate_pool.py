"""The best rows seen so far, best first, each as one number.

An entry holds the bits of its score, its row, whether the row is not permitted, and whether it has
been expanded. As whole numbers entries fall from place to place, and as float64s of the same bits
they fall too, for which processors have minima and maxima of whole registers: an entry is put into
its place without a branch that depends on where that is.
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
    """Return the places of an array for a pool, those of its last block too."""
    return (capacity // _BLOCK + 1) * _BLOCK


@inner
def entry(score: Any, row: Any) -> Any:
    """Return a permitted row as an entry of a pool; not yet expanded."""
    return (float_bits(score) << _SCORE_SHIFT) | (np.uint64(row) << _ROW_SHIFT)


@inner
def row_of(entry: Any) -> Any:
    """Return the row of an entry; of one that is `salted`, a number that the salt makes the row."""
    return np.int64((entry >> _ROW_SHIFT) & _ROW_MASK)


@inner
def score_of(entry: Any) -> Any:
    """Return the score of an entry."""
    return float_of_bits(entry >> _SCORE_SHIFT)


@inner
def salt_of(row: Any) -> Any:
    """Return bits by which rows that are equally near to a row come in another order than to most.

    Hundreds of copies would all choose the same few of themselves else, which lead to no others.
    """
    return np.int64(mix64(np.uint64(row)) & _ROW_MASK)


@inner
def salted(entry: Any, salt: Any) -> Any:
    """Return an entry whose row differs by a salt from the true one, or the true one of such."""
    return entry ^ (np.uint64(salt) << _ROW_SHIFT)


@inlined
def _insertion(held: Any, before: Any, value: Any) -> Any:
    """Return the lanes that hold falling numbers once one more has found its place.

    Where it is more than what is held, it comes here, or what was before if that is less.
    """
    more = select(less(held, value), value, held)
    # The minimum last: as a maximum with what is held this would be stored under a mask.
    return select(less(before, more), before, more)


@inlined
def insert_all(pool: Any, size: Any, capacity: Any, fresh: Any, count: Any) -> Any:
    """Insert entries and return the pool's size; a full pool drops its last entries.

    An entry takes 2 to 4 ns in a pool of at most 64. The pool falls, and is made as `places_for`
    says; places behind the last entry may hold anything. The ``count`` fresh entries come in any
    order, none of them in the pool, and are overwritten.
    """
    for first in range(0, count, _BLOCK):
        some, end = 0, min(first + _BLOCK, count)
        if first > 0 and size == capacity:  # the pool has filled up since
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
    """Do what `insert_all` does for a few entries.

    `_BLOCK` places at a time are in registers, and what has no room there goes on to the next ones.
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
    """Return how many entries are above a value."""
    place = 0
    while at(pool, place) > value:
        place += 1
    return place


@inner
def place_of_hit(pool: Any, size: Any, number: Any) -> Any:
    """Return the place of a permitted entry, counted from 1 like its number among these.

    ``size`` + 1 where there are fewer.
    """
    if number > size:
        return size + 1
    first, place, missing = 0, 0, number
    while missing > 0 and place < size:  # of the entries added last, so many are no hits
        first, place = place, min(place + missing, size)
        missing -= place - first
        for i in range(first, place):
            missing += np.int64((at(pool, i) & REJECTED) >> _REJECTED_SHIFT)
    return place + np.int64(missing > 0)


@inner
def first_unexpanded(pool: Any, size: Any, place: Any) -> Any:
    """Return the first place from one on that has not been expanded, or the size."""
    while place < size and at(pool, place) & EXPANDED != 0:
        place += 1
    return place


@inner
def set_expanded(pool: Any, place: Any) -> None:
    """Mark an entry as expanded."""
    put(pool, place, at(pool, place) | EXPANDED)
