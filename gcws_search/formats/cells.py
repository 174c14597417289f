"""Cells of text: which columns are numbers, and which cells are missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

Kind = Literal["number", "truth", "text"]

MISSING: Final = ("", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL")
"""What stands among numbers for a missing one."""
TRUE: Final = ("true", "True", "TRUE")
FALSE: Final = ("false", "False", "FALSE")
_SIGNED: Final = r"[+-]?(?:\d+{point}?\d*|{point}\d+)(?:[eE][+-]?\d+)?"
_LEADING_ZERO: Final = r"^\s*[+-]?0\d"
_IS_MISSING: Final = r"^\s*(?:{})?\s*$".format("|".join(MISSING[1:]))
_IS_TRUTH: Final = r"^\s*(?:{})\s*$".format("|".join((*TRUE, *FALSE)))
_INTEGER: Final = re.compile(r"[+-]?\d+")
_ENOUGH: Final = 3
"""A column of numbers with fewer cells has no cell that is no number."""
_SHARE: Final = 10
"""One cell in ten may be no number."""


@dataclass(frozen=True, slots=True)
class CellCounts:
    """How many cells of a column are numbers, truths or missing.

    Attributes
    ----------
    cells : int
        All but missing ones.
    """

    cells: int = 0
    missing: int = 0
    numbers: int = 0
    leading_zeros: int = 0
    truths: int = 0

    def __add__(self, other: CellCounts) -> CellCounts:
        """Return the tally of the cells of both."""
        return CellCounts(
            self.cells + other.cells,
            self.missing + other.missing,
            self.numbers + other.numbers,
            self.leading_zeros + other.leading_zeros,
            self.truths + other.truths,
        )

    @property
    def kind(self) -> Kind:
        """The kind of the column; up to a tenth of a number column may be bad cells."""
        if self.leading_zeros or not self.cells:
            return "text"
        if self.truths == self.cells:
            return "truth"
        others = self.cells - self.numbers
        allowed = max(1, self.cells // _SHARE) if self.cells >= _ENOUGH else 0
        return "number" if others <= allowed else "text"

    @property
    def payload_kind(self) -> Kind:
        """The kind of the column in a payload: numbers only if every cell is one."""
        return "text" if self.kind == "number" and self.numbers < self.cells else self.kind


def tally(column: Any, point: str = ".") -> CellCounts:
    """Count the kinds of cells in a column of text or bytes."""
    number = r"^\s*" + _SIGNED.format(point=re.escape(point)) + r"\s*$"

    def matches(pattern: str) -> int:
        return int(pc.sum(pc.match_substring_regex(column, pattern)).as_py() or 0)

    missing, numbers = matches(_IS_MISSING), matches(number)
    cells = len(column) - column.null_count - missing
    zeros = matches(_LEADING_ZERO) if numbers else 0
    truths = matches(_IS_TRUTH) if numbers < cells else 0
    return CellCounts(cells, missing + column.null_count, numbers, min(zeros, numbers), truths)


def tally_of_values(values: Iterable[Any]) -> CellCounts:
    """Count the kinds of values in a column of JSON."""
    cells = missing = numbers = truths = 0
    for value in values:
        cells += value is not None
        missing += value is None
        truths += isinstance(value, bool)
        numbers += isinstance(value, int | float) and not isinstance(value, bool)
    return CellCounts(cells, missing, numbers, 0, truths)


def is_missing(text: str) -> bool:
    """Whether a cell among numbers stands for a missing one."""
    return text.strip() in MISSING


def number_parser(point: str = ".") -> Callable[[str], int | float | bool | None]:
    """Return a function that parses a number or a truth; it returns None for other text."""
    pattern = re.compile(_SIGNED.format(point=re.escape(point)))

    def parse(text: str) -> int | float | bool | None:
        plain = text.strip()
        if plain in TRUE or plain in FALSE:
            return plain in TRUE
        if not pattern.fullmatch(plain):
            return None
        return int(plain) if _INTEGER.fullmatch(plain) else float(plain.replace(point, "."))

    return parse


def type_of(kind: Kind) -> Any:
    """Return the Arrow type of a column of this kind."""
    return {"number": pa.float64(), "truth": pa.bool_(), "text": pa.string()}[kind]


def null_values() -> Sequence[str]:
    """Return the texts that Arrow reads as a missing number, with and without a blank around."""
    return [
        *MISSING,
        " ",
        *(f" {word}" for word in MISSING[1:]),
        *(f"{word} " for word in MISSING[1:]),
    ]
