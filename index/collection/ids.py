"""Ids by row and the row of each id, in arrays: Python objects would take six times the memory."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from itertools import accumulate, chain
from typing import Final, overload

import numpy as np

from gcws_search.index.contracts.arrays import Int32s, Int64s, UInt8s, with_room
from gcws_search.index.kernels.hashing.ids import (
    EMPTY,
    LENGTH_BITS,
    REMOVED,
    append_ids,
    fill_table,
    find_ids,
    write_ids,
)

_MAX_LOAD: Final = 0.7
"""Of the slots of a table; above it, searches of a slot become long."""
_FEW: Final = 32
"""Ids that are made of their bytes one by one: so few take longer together. Without, ten numbers
took 1.6 times as long; with 128, a hundred ids 2 to 4 times."""
_AT_ONCE: Final = 4096
"""Ids that are made together: their code points have four bytes each."""
_LENGTHS: Final = (1 << LENGTH_BITS) - 1
_MAX_NUMBER: Final = (1 << 63) - 1
_MAX_DIGITS: Final = len(str(_MAX_NUMBER))


class Ids(Sequence[str]):
    """Ids by row, and the row of each id in use. One writer adds; any thread reads ids by row.

    Rows are looked up by the writer, or while it does not write. A removed id stays readable by
    row, because earlier views still show it.
    """

    def __init__(self, ids: Sequence[str] = ()) -> None:
        self._count = 0
        self._used = 0  # bytes of text
        self._places: Int64s = np.empty(0, np.int64)
        self._text: UInt8s = np.empty(0, np.uint8)
        self._table = _empty_table(0)
        # So nobody can choose ids that collide in one slot.
        self._seed = secrets.randbits(62)
        self.append(ids)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use, without reserved pages that have never been touched."""
        return self._places.nbytes + self._used + self._table.nbytes

    @overload
    def __getitem__(self, row: int, /) -> str: ...

    @overload
    def __getitem__(self, rows: slice, /) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return self.of(range(self._count)[row])
        return self.of((range(self._count)[row],))[0]

    def of(self, rows: Sequence[int] | Int64s) -> list[str]:
        """Return the ids of some rows, including dead ones."""
        if len(rows) > _FEW:
            return self._many(rows)
        places = map(self._numbers.__getitem__, rows)
        if not self._used:
            return [*map(repr, places)]
        found, text = [], self._bytes
        for place in places:
            if place < 0:
                first = ~place >> LENGTH_BITS
                found.append(str(text[first : first + (~place & _LENGTHS)], "utf-8"))
            else:
                found.append(repr(place))
        return found

    def _many(self, rows: Sequence[int] | Int64s) -> list[str]:
        """Return ids decoded by NumPy from code points, in a sixth of the time."""
        found: list[str] = []
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            places = self._places[np.asarray(some, np.int64)]
            longest = int((~places[places < 0] & _LENGTHS).max(initial=0))
            width = max(longest, len(str(places.max())))
            points = np.zeros((len(some), width), np.uint32)
            if write_ids(places, self._text, points):
                found += points.view(f"U{width}").ravel().tolist()
            else:
                found += chain(*(self.of(some[i : i + _FEW]) for i in range(0, len(some), _FEW)))
        return found

    def first(self, rows: Sequence[int] | Int64s, count: int) -> list[int]:
        """Return ``count`` of some rows, those with the first ids, in order of their ids."""
        some = (rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE))
        pairs = chain.from_iterable(zip(self.of(each), each, strict=True) for each in some)
        return [row for _, row in nsmallest(count, pairs)]

    def ranks(self) -> Int64s:
        """Return the place of each row in the order of ids."""
        return ranks_of(self[:])

    def beginning_with(self, text: str, start: int, stop: int) -> Int64s:
        """Return the rows from ``start`` to ``stop`` - 1 whose ids begin with a text."""
        places = self._places[start:stop]
        rows = np.flatnonzero(places < 0)
        firsts, lengths = ~places[rows] >> LENGTH_BITS, ~places[rows] & _LENGTHS
        for i, byte in enumerate(text.encode(errors="surrogatepass")):
            is_same = np.flatnonzero(lengths > i)
            is_same = is_same[self._text[firsts[is_same] + i] == byte]
            rows, firsts, lengths = rows[is_same], firsts[is_same], lengths[is_same]
        begins = np.zeros(len(places), bool)
        begins[rows] = True
        if not text:
            begins[:] = True
        elif text.isascii() and text.isdecimal() and (text[0] != "0" or text == "0"):
            for zeros in range(1 if text == "0" else _MAX_DIGITS + 1 - len(text)):
                low = int(text) * 10**zeros  # and numbers with as many further digits
                high = min(low + 10**zeros - 1, _MAX_NUMBER)
                if low <= _MAX_NUMBER:
                    begins |= (places >= low) & (places <= high)
        return start + np.flatnonzero(begins)

    def rows(self, ids: Iterable[str]) -> list[int | None]:
        """Return the row of each id, None if there is no such item."""
        found: list[int] = self._table[self._slots(ids)].tolist()
        if max(found, default=EMPTY) < 0:  # as for most inserts
            return [None] * len(found)
        return [None if row < 0 else row for row in found]

    def reserve(self, count: int) -> None:
        """Make room for ``count`` rows in total."""
        self._places = with_room(self._places, self._count, count)
        if count > _MAX_LOAD * len(self._table):
            table = _empty_table(count)
            rows = self._table[self._table >= 0]
            fill_table(rows, self._places, self._text, self._seed, table)
            self._table = table

    def append(self, ids: Sequence[str]) -> None:
        """Append rows with these ids; an id that exists already now refers to its new row."""
        data, ends = _encode(ids)
        count, room = self._count + len(ends), self._used + len(data)
        if count > min(len(self._places), _MAX_LOAD * len(self._table)):
            self.reserve(count)
        if room > len(self._text):
            self._text = with_room(self._text, self._used, room)
        arrays = self._places, self._text, self._table
        self._used = append_ids(data, ends, self._seed, self._count, self._used, *arrays)
        self._numbers, self._bytes = self._places.data, self._text.data
        self._count = count

    def remove(self, ids: Iterable[str]) -> None:
        """Remove ids; unknown ones are ignored."""
        slots = self._slots(ids)
        self._table[slots[self._table[slots] >= 0]] = REMOVED

    def _slots(self, ids: Iterable[str]) -> Int64s:
        data, ends = _encode([*ids])
        slots = np.empty(len(ends), np.int64)
        find_ids(data, ends, self._places, self._text, self._table, self._seed, slots)
        return slots


def ranks_of(ids: Sequence[str]) -> Int64s:
    """Return the place of each id in their order."""
    ranks = np.empty(len(ids), np.int64)
    ranks[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
    return ranks


def _empty_table(count: int) -> Int32s:
    """Return a table for ``count`` rows."""
    slots = 1
    while count > _MAX_LOAD * slots:
        slots *= 2
    return np.full(slots, EMPTY, np.int32)


def _encode(ids: Sequence[str]) -> tuple[UInt8s, Int64s]:
    """Return the concatenated bytes of texts, and the end of each."""
    text = "".join(ids)
    if text.isascii():
        data, lengths = text.encode(), map(len, ids)
    else:  # no stored id has a lone surrogate, but a requested one may
        parts = [each.encode(errors="surrogatepass") for each in ids]
        data, lengths = b"".join(parts), map(len, parts)
    ends = np.fromiter(accumulate(lengths), np.int64, len(ids))
    return np.frombuffer(data, np.uint8), ends
