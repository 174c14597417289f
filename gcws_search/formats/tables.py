"""What all tables share: kinds of columns, what is said of them, and rows that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import pyarrow as pa

from gcws_search.formats.files import BadFile
from gcws_search.formats.frames import UNNAMED, Layout, guess
from gcws_search.formats.items import Items, Origin
from gcws_search.formats.sources import Choices, Source
from gcws_search.index import InvalidInput

Kind = Literal["number", "truth", "text"]
TYPES: Final[Mapping[Kind, Any]] = {
    "number": pa.float64(), "truth": pa.bool_(), "text": pa.string(),
}  # fmt: skip

_SHOWN: Final = 4
_CHOOSE: Final = "; --payload takes columns out of the vector"
_ENOUGH: Final = 3
"""A column of numbers with fewer cells has no cell that is no number."""
_SHARE: Final = 10
"""One cell in ten may be no number."""


@dataclass(frozen=True, slots=True)
class CellCounts:
    """How many cells of a column are numbers, truths or missing; ``cells`` are all but these."""

    cells: int = 0
    missing: int = 0
    numbers: int = 0
    leading_zeros: int = 0
    truths: int = 0

    def __add__(self, other: CellCounts) -> CellCounts:
        """Return the counts of the cells of both."""
        return CellCounts(
            self.cells + other.cells,
            self.missing + other.missing,
            self.numbers + other.numbers,
            self.leading_zeros + other.leading_zeros,
            self.truths + other.truths,
        )

    @classmethod
    def of_values(cls, values: Iterable[Any]) -> CellCounts:
        """Count the kinds of values in a column of JSON."""
        cells = missing = numbers = truths = 0
        for value in values:
            cells += value is not None
            missing += value is None
            truths += isinstance(value, bool)
            numbers += isinstance(value, int | float) and not isinstance(value, bool)
        return cls(cells, missing, numbers, 0, truths)

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


def choose(schema: Any, choices: Choices, keys: Sequence[str] = ()) -> Layout:
    """Return what the columns mean, as the caller says or else as `guess` does.

    Columns that names of folders hold are fields of the payload, unless the caller says otherwise.
    """
    told = choices.id in keys or choices.vector is not None or choices.payload is not None
    if told or not keys:
        return guess(schema, id_=choices.id, vector=choices.vector, payload=choices.payload)
    inner = pa.schema([field for field in schema if field.name not in keys])
    layout = guess(inner, id_=choices.id)
    return layout if layout.payload_text else replace(layout, payload=(*layout.payload, *keys))


def describe_table(
    source: Source,
    format_: str,
    layout: Layout,
    dim: int | None,
    tallies: Mapping[str, CellCounts] | None = None,
    *,
    is_matrix: bool = True,
) -> None:
    """Say what a table is taken for; ``is_matrix``: each coordinate is a column."""
    source.dim = dim
    source.columns = [*layout.vector] if is_matrix else None
    if layout.is_sparse:
        vector = "sparse: " + ", ".join(layout.vector)
    elif len(layout.vector) == 1:
        vector = f"{layout.vector[0]}, {source.choices.dim or dim} values"
    else:
        vector = f"{len(layout.vector)} columns, {layout.vector[0]} to {layout.vector[-1]}"
    payload = ", ".join(layout.payload[:_SHOWN]) + ", …" * (len(layout.payload) > _SHOWN)
    payload = payload or f"none{_CHOOSE if len(layout.vector) > 1 else ''}"
    ids = "unnamed" if layout.id == UNNAMED else layout.id
    source.describe(format_, ids, vector, payload)
    known = tallies or {}
    if UNNAMED in known and UNNAMED not in (layout.id, *layout.vector, *layout.payload):
        source.guess.append(("left out", "the column without a name counts rows; --id '' takes it"))
    gaps = [
        f"{known[name].missing} in {name!r}"
        for name in layout.vector
        if name in known and known[name].missing
    ]
    if gaps:
        more = ", …" * (len(gaps) > _SHOWN)
        source.guess.append(("missing", f"{', '.join(gaps[:_SHOWN])}{more} of the first rows"))
    mixed = [
        f"{name!r} with {each.cells - each.numbers} cells of text"
        for name, each in known.items()
        if name in layout.payload and each.kind == "text" and each.numbers > each.cells // 2
        and not each.leading_zeros
    ]  # fmt: skip
    if mixed:
        source.guess.append(("text", f"{', '.join(mixed[:_SHOWN])} among numbers"))


def text_words(word: str, encoding: str, how: str) -> str:
    """Name a text format, with its encoding unless that is plain UTF-8."""
    return f"{word} in {encoding} ({how})" if encoding else word


def readable_items(
    source: Source,
    layout: Layout,
    numbers: Sequence[int],
    parse: Callable[[list[int]], Items],
    show: Callable[[int], Any],
) -> Items:
    """Return the items of a batch that can be read, with where they come from.

    Parameters
    ----------
    numbers : sequence of int
        The rows of the file, one a place of the batch.
    parse : callable
        Makes items of places. An InvalidInput whose ``loc`` has a number rejects that one of them.
    show : callable
        Returns what stands at a place of the batch.

    Raises
    ------
    BadFile
        A row cannot be an item, and such rows are not left out.
    """
    places = [*range(len(numbers))]
    while True:
        try:
            items = parse(places)
        except InvalidInput as error:
            words = [part for part in error.loc if isinstance(part, str)]
            name = layout.id if words == ["ids"] else words[-1] if words else None
            where = "" if name is None else f"column {name!r}: "
            detail = f"{where}expected {error.expected}, got {error.got}"
            at = next((part for part in error.loc if isinstance(part, int)), None)
            if at is None:
                raise BadFile(f"{source.file.name}: {detail}") from None
            source.reject(numbers[places[at]], detail, show(places[at]))
            del places[at]
        else:
            origin = Origin([numbers[place] for place in places], places, show)
            return replace(items, origin=origin)
