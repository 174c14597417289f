"""Items on their way into a collection: ids, vectors and payloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gcws_search.formats.payloads import Payloads
from gcws_search.formats.vectors import is_id
from gcws_search.index import InputVectors, InvalidId, InvalidParameter

BATCH_BYTES: Final = 8 << 20
"""Bytes of vectors that are turned into a body at a time."""
_MAX_BATCH_ROWS: Final = 8192

Ids = Sequence[str] | range


@dataclass(frozen=True, slots=True)
class Origin:
    """Where in a file items come from.

    Attributes
    ----------
    numbers : sequence of n int
        Rows of the file.
    rows : pyarrow.RecordBatch
        What stands there.
    """

    numbers: Sequence[int]
    rows: Any

    def part(self, first: int, last: int) -> Origin:
        """Return where the items ``first`` to ``last`` come from, without the last."""
        return Origin(self.numbers[first:last], self.rows.slice(first, last - first))


@dataclass(frozen=True, slots=True)
class Items:
    """Items of one form.

    Attributes
    ----------
    ids : sequence of n str, range of n int, or None
        A range counts rows; its numbers stand for their decimal strings. None: the collection gives
        each item the next number not taken.
    rows : InputVectors
        n vectors.
    payloads : list of n bytes or None, or None
        JSON texts of objects; None where no item has one.
    origin : Origin or None
        Where that is to be known.
    """

    ids: Ids | None
    rows: InputVectors
    payloads: Payloads | None = None
    origin: Origin | None = None

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.rows)

    def part(self, first: int, last: int) -> Items:
        """Return the items of rows ``first`` to ``last``, without the last."""
        payloads = None if self.payloads is None else self.payloads[first:last]
        origin = None if self.origin is None else self.origin.part(first, last)
        ids = None if self.ids is None else self.ids[first:last]
        return Items(ids, self.rows.part(slice(first, last)), payloads, origin)

    def take(self, rows: Sequence[int]) -> Items:
        """Return the items of some rows, with where they come from."""
        payloads = None if self.payloads is None else [self.payloads[row] for row in rows]
        ids = None if self.ids is None else [str(self.ids[row]) for row in rows]
        chosen, origin = np.array(rows, np.int64), None
        if self.origin is not None:
            numbers = [self.origin.numbers[row] for row in rows]
            origin = Origin(numbers, self.origin.rows.take(chosen))
        return Items(ids, self.rows.part(chosen), payloads, origin)

    def batches(
        self, size_bytes: int = BATCH_BYTES, max_rows: int = _MAX_BATCH_ROWS
    ) -> Iterator[Items]:
        """Yield the items in parts of about ``size_bytes`` bytes of vectors and payloads."""
        each = self.rows.row_bytes
        if self.payloads:
            sample = self.payloads[:: max(1, len(self) // 256)]
            each += sum(len(text or b"") for text in sample) // len(sample)
        step = max(1, min(max_rows, size_bytes // max(1, each)))
        for first in range(0, len(self), step):
            yield self.part(first, min(first + step, len(self)))

    def texts(self) -> list[str] | None:
        """Return the ids as strings."""
        return None if self.ids is None else [*map(str, self.ids)]


def numbers_of(id_start: int | None, first: int, count: int) -> range | None:
    """Return the ids of ``count`` rows that have none, from row ``first`` on."""
    return None if id_start is None else range(id_start + first, id_start + first + count)


def require_ids(items: Items) -> None:
    """Raise InvalidParameter if payloads are to be kept for items without ids."""
    if items.ids is None:
        raise InvalidParameter(
            expected="ids, or id_start, which say whose payloads are kept",
            got="rows without ids",
            loc=("keep_payloads",),
        )


def number_words(id_start: int | None) -> str:
    """Describe the ids of rows that have none."""
    return "none; each row gets a new number" if id_start is None else f"numbers from {id_start}"


def ids_of(given: Any, count: int, id_start: int | None = None) -> Ids | None:
    """Return the ids of ``count`` items; None lets the collection number them.

    Raises
    ------
    InvalidId
        There are more or fewer, or one is no string or whole number.
    """
    if given is None:
        return numbers_of(id_start, 0, count)
    values = given.tolist() if hasattr(given, "tolist") else list(given)
    if len(values) != count:
        raise InvalidId(expected=f"{count} ids", got=str(len(values)), loc=("ids",))
    for row, value in enumerate(values):
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise InvalidId(
                expected="a string or an integer", got=repr(value)[:60], loc=("ids", row)
            )
    return [*map(str, values)]


def texts_of(ids: Any) -> list[str]:
    """Return one id, or several, as strings."""
    return [str(ids)] if is_id(ids) else [*map(str, ids)]
