"""Payload values by key, as arrays, so that a filter never parses payloads a query at a time."""

from __future__ import annotations

import json
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson

from gcws_search.index.contracts.arrays import AnyArray, Float64s, Int64s, UInt8s, with_room
from gcws_search.index.payload.encoding import LONG_NUMBER

MAX_COLUMNS: Final = 64
"""Keys whose values are kept; the one used least recently is forgotten first."""
MAX_MASKS: Final = 4
"""Row masks remembered, so that a filter asked again and again is evaluated once."""

MAX_TEXT: Final = 255
"""Characters of a text that is shown beside a place on a map."""

_CHUNK: Final = 4096
_INT_BITS: Final = 63


def tag(value: bool | float | str) -> Hashable:
    """Return what stands for a scalar among others: equal numbers are one, True is not 1."""
    return ("bool", value) if isinstance(value, bool) else value


def untag(value: Hashable) -> Hashable:
    """Inverse of `tag`."""
    return value[1] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Column:
    """The scalars found under one key in the payloads of rows 0 … n-1.

    rows: (m,) int64, row of each scalar found, rising; a row whose value is a list appears once an
        element.
    codes: (m,) int64, which of the distinct scalars each is.
    numbers: (distinct,) float64, the distinct scalars that are numbers, rounded to float64,
        infinite where they are beyond it; NaN for strings and booleans.
    values: the distinct scalars, tagged; at least as many as there are ``numbers``.
    code_of: inverse of ``values``; may hold codes that are newer than this column.
    inexact: codes of integers that float64 does not hold.
    """

    rows: Int64s
    codes: Int64s
    numbers: Float64s
    values: list[Any]
    code_of: dict[Hashable, int]
    inexact: list[int]

    def rows_where(self, wanted: AnyArray, n: int) -> UInt8s:
        """Return the (n,) mask of the rows with a scalar that ``wanted`` (distinct,) bool names."""
        mask = np.zeros(n, np.uint8)
        mask[self.rows[wanted[self.codes]]] = 1
        return mask


class _GrowingColumn:
    def __init__(self, key: str, payloads: Sequence[bytes | None]) -> None:
        self._path = key.split(".")
        self._payloads = payloads
        self._lock = threading.Lock()
        self._covered = 0
        self._rows = np.empty(0, np.int64)
        self._codes = np.empty(0, np.int64)
        self._used = 0
        self._numbers = np.empty(0, np.float64)
        self._values: list[Any] = []
        self._code_of: dict[Hashable, int] = {}
        self._inexact: list[int] = []

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + self._codes.nbytes + self._numbers.nbytes

    def upto(self, n: int) -> Column:
        """Return the column of the first n rows."""
        with self._lock:
            while self._covered < n:
                self._extend(min(n, self._covered + _CHUNK))
            used = int(np.searchsorted(self._rows[: self._used], n))
            return Column(
                self._rows[:used],
                self._codes[:used],
                self._numbers[: len(self._values)],
                self._values,
                self._code_of,
                list(self._inexact),
            )

    def _extend(self, stop: int) -> None:
        chunk = self._payloads[self._covered : stop]
        text = b"[" + b",".join(text or b"null" for text in chunk) + b"]"
        # orjson rounds integers beyond 64 bits, and refuses those beyond float64.
        documents = json.loads(text) if LONG_NUMBER.search(text) else orjson.loads(text)
        rows: list[int] = []
        codes: list[int] = []
        for row, document in enumerate(documents, self._covered):
            for scalar in _scalars(document, self._path):
                rows.append(row)
                codes.append(self._code(scalar))
        used = self._used + len(rows)
        self._rows = with_room(self._rows, self._used, used)
        self._codes = with_room(self._codes, self._used, used)
        self._rows[self._used : used] = rows
        self._codes[self._used : used] = codes
        self._used = used
        self._covered = stop

    def _code(self, scalar: bool | float | str) -> int:
        tagged = tag(scalar)
        known = self._code_of.get(tagged)
        if known is not None:
            return known
        code = len(self._values)
        self._numbers = with_room(self._numbers, code, code + 1)
        if isinstance(scalar, str | bool):
            self._numbers[code] = np.nan
        else:
            self._numbers[code] = rounded = _round(scalar)
            if isinstance(scalar, int) and rounded != scalar:
                self._inexact.append(code)
        self._values.append(tagged)
        self._code_of[tagged] = code
        return code


def _round(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _scalars(document: Any, path: list[str]) -> Iterator[bool | float | str]:  # noqa: ANN401 (JSON)
    """Yield the scalars at a path; a list stands for each of its elements."""
    if isinstance(document, list):
        for element in document:
            if not isinstance(element, list):
                yield from _scalars(element, path)
    elif not path:
        if isinstance(document, bool | int | float | str):
            yield document
    elif isinstance(document, dict) and path[0] in document:
        yield from _scalars(document[path[0]], path[1:])


def first_scalar(payload: bytes | None, key: str) -> bool | float | str | None:
    """Return the first scalar under a key of a payload, None where there is none.

    Of a text at most `MAX_TEXT` characters, of an integer beyond 64 bits the nearest float64.
    """
    if payload is None:
        return None
    document = (json if LONG_NUMBER.search(payload) else orjson).loads(payload)
    found = next(_scalars(document, key.split(".")), None)
    if isinstance(found, str):
        return found[:MAX_TEXT]
    if isinstance(found, int) and found.bit_length() > _INT_BITS:
        return _round(found)
    return found


class Columns:
    """The columns of one numbering of rows, built when a filter first names a key.

    payloads: JSON text by row; may grow at its end while in use.
    """

    def __init__(self, payloads: Sequence[bytes | None]) -> None:
        self._payloads = payloads
        self._lock = threading.Lock()
        self.growing: OrderedDict[str, _GrowingColumn] = OrderedDict()
        self.masks: OrderedDict[tuple[Hashable, int], UInt8s] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Bytes of memory the arrays hold."""
        with self._lock:
            masks = sum(mask.nbytes for mask in self.masks.values())
            return masks + sum(column.nbytes for column in self.growing.values())

    def column(self, key: str, n: int) -> Column:
        """Return the column of a key (nested keys joined by dots) for the first n rows."""
        with self._lock:
            growing = self.growing.get(key)
            if growing is None:
                growing = self.growing[key] = _GrowingColumn(key, self._payloads)
                if len(self.growing) > MAX_COLUMNS:
                    self.growing.popitem(last=False)
            self.growing.move_to_end(key)
        return growing.upto(n)

    def remember(self, name: Hashable, n: int, make: Callable[[], UInt8s]) -> UInt8s:
        """Return the (n,) mask ``make`` returns, or returned before for the same name and n.

        Payloads of a row never change, so neither does its mask. The caller must not write to it.
        """
        with self._lock:
            mask = self.masks.get((name, n))
        if mask is None:
            mask = make()
            with self._lock:
                self.masks[name, n] = mask
                while len(self.masks) > MAX_MASKS:
                    self.masks.popitem(last=False)
        return mask
