"""What all tables share: words for people, missing numbers, and rows that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final

import numpy as np
import pyarrow as pa

from gcws_search.formats.cells import CellCounts
from gcws_search.formats.files import BadFile
from gcws_search.formats.frames import UNNAMED, Layout, items_of_batch
from gcws_search.formats.items import Items, Origin, number_words, numbers_of
from gcws_search.formats.sources import Choices, Source, Unreadable
from gcws_search.index import InputVectors, InvalidInput

Batches = Callable[[], Iterator[Items]]

_SHOWN: Final = 4
_CHOOSE: Final = "; --payload takes columns out of the vector"
_WHAT_TO_DO: Final = "--missing drop, zero or mean says what such rows become"
_MISSING: Final = "expected a number, got a missing value"


def words_of(
    format_: str,
    layout: Layout,
    dim: int | None,
    id_start: int | None,
    tallies: Mapping[str, CellCounts] | None = None,
) -> list[tuple[str, str]]:
    """Describe how a table is understood."""
    payload = ", ".join(layout.payload[:_SHOWN]) + ", …" * (len(layout.payload) > _SHOWN)
    words = [
        ("format", format_),
        ("ids", number_words(id_start) if layout.id is None else layout.id or "unnamed"),
        ("vector", _vector_words(layout, dim)),
        ("payload", payload or f"none{_CHOOSE if len(layout.vector) > 1 else ''}"),
    ]
    known = tallies or {}
    if UNNAMED in known and UNNAMED not in (layout.id, *layout.vector, *layout.payload):
        words.append(("left out", "the column without a name counts rows; --id '' takes it"))
    gaps = [(name, known[name].missing) for name in layout.vector if name in known]
    if gaps := [(name, number) for name, number in gaps if number]:
        shown = ", ".join(f"{number} in {name!r}" for name, number in gaps[:_SHOWN])
        words.append(("missing", f"{shown}{', …' * (len(gaps) > _SHOWN)} of the first rows"))
    mixed = [
        (name, each.cells - each.numbers)
        for name, each in known.items()
        if name in layout.payload and each.kind == "text" and each.numbers > each.cells // 2
        and not each.leading_zeros
    ]  # fmt: skip
    if mixed:
        shown = ", ".join(
            f"{name!r} with {number} cells of text" for name, number in mixed[:_SHOWN]
        )
        words.append(("text", f"{shown} among numbers"))
    return words


def text_words(word: str, encoding: str, how: str) -> str:
    """Name a text format, with its encoding unless that is plain UTF-8."""
    return f"{word} in {encoding} ({how})" if encoding else word


def _vector_words(layout: Layout, dim: int | None) -> str:
    if layout.is_sparse:
        return "sparse: " + ", ".join(layout.vector)
    if len(layout.vector) == 1:
        return f"{layout.vector[0]}, {dim} values"
    return f"{len(layout.vector)} columns, {layout.vector[0]} to {layout.vector[-1]}"


def readable_rows(unreadable: list[Unreadable]) -> Iterator[int]:
    """Yield the numbers of rows that are not in a list, which grows as the rows are read."""
    left_out = 0
    for row in count():
        if left_out < len(unreadable) and unreadable[left_out].row == row:
            left_out += 1
        else:
            yield row


def table_rows(batch: Any, layout: Layout, first: int, choices: Choices, source: Source) -> Items:
    """Return the rows of a batch of Arrow as items, which know where they come from.

    Raises
    ------
    BadFile
        A row cannot be an item, and such rows are not left out.
    """
    numbers = [*range(first, first + batch.num_rows)]
    while True:
        try:
            items = items_of_batch(batch, layout)
            break
        except InvalidInput as error:
            row, detail = _place(error, layout)
            if row is None or not choices.lenient:
                where = "" if row is None else f"{source.place(numbers[row])}: "
                raise BadFile(f"{source.file.name}: {where}{detail}") from None
            source.unreadable.append(Unreadable(numbers[row], detail, _values(batch, row)))
            rest = [other for other in range(len(numbers)) if other != row]
            batch = batch.take(pa.array(rest, pa.int64()))
            del numbers[row]
    return replace(items, origin=Origin(numbers, batch))


def _values(batch: Any, row: int) -> dict[str, Any]:
    """Return a row as it stands in the file, for messages."""
    found = {}
    for name in batch.schema.names:
        scalar = batch.column(name)[row]
        try:
            found[name] = scalar.as_py()
        except UnicodeDecodeError:
            found[name] = scalar.as_buffer().to_pybytes().decode(errors="replace")
        except (ValueError, OverflowError):
            found[name] = str(scalar.type)
    return found


def _place(error: InvalidInput, layout: Layout) -> tuple[int | None, str]:
    """Return the row of an error in a batch, and its message."""
    row = next((part for part in error.loc if isinstance(part, int)), None)
    names = [part for part in error.loc if isinstance(part, str)]
    name = layout.id if names == ["ids"] else names[-1] if names else None
    where = "" if name is None else f"column {name!r}: "
    return row, f"{where}expected {error.expected}, got {error.got}"


def complete(batches: Batches, layout: Layout, choices: Choices, source: Source) -> Batches:
    """Wrap a reader: fill or drop missing numbers, and number rows without ids.

    Parameters
    ----------
    batches : callable
        Yields items that know their rows, NaN where a number is missing.
    source : Source
        Rows that are left out are added to it.
    """
    known: list[Any] = []

    def means() -> Any:
        if not known:
            known.append(_means(batches, layout.vector, source))
        return known[0]

    def items() -> Iterator[Items]:
        source.unreadable.clear()
        source.dropped.clear()
        given = 0
        iterator = batches()
        for batch in iterator:
            found = batch
            if source.columns is not None:
                found = _fill(batch, iterator, means, choices, source)
            if layout.id is None:
                ids: Any = numbers_of(choices.id_start, given, len(found))
                if choices.lenient and choices.id_start is not None:
                    ids = [str(choices.id_start + number) for number in _origin(found).numbers]
                found = replace(found, ids=ids)
            given += len(found)
            if not choices.lenient:
                found = replace(found, origin=None)
            if len(found):
                yield found

    return items


def _origin(items: Items) -> Origin:
    assert items.origin is not None
    return items.origin


def _matrix(items: Items) -> Any:
    assert items.rows.dense is not None
    return items.rows.dense


def _fill(
    items: Items,
    rest: Iterator[Items],
    means: Callable[[], Any],
    choices: Choices,
    source: Source,
) -> Items:
    """Fill or drop rows with missing numbers, by the caller's choice."""
    matrix = _matrix(items)
    holes = np.isnan(matrix)
    if not holes.any():
        return items
    if choices.missing == "zero":
        return replace(items, rows=InputVectors(np.where(holes, np.float32(0), matrix)))
    if choices.missing == "mean":
        return replace(items, rows=InputVectors(np.where(holes, means(), matrix)))
    origin = _origin(items)
    short = [int(row) for row in np.flatnonzero(holes.any(axis=1))]
    if choices.missing == "drop":
        source.dropped.extend(origin.numbers[row] for row in short)
    elif choices.lenient:
        for row in short:
            name = (source.columns or [])[int(holes[row].argmax())]
            detail = f"column {name!r}: {_MISSING}; {_WHAT_TO_DO}"
            source.unreadable.append(
                Unreadable(origin.numbers[row], detail, _values(origin.rows, row))
            )
    else:
        raise _gaps(items, rest, source)
    return items.take(np.flatnonzero(~holes.any(axis=1)).tolist())


def _gaps(items: Items, rest: Iterator[Items], source: Source) -> BadFile:
    """Return the error for missing numbers: the first place, and the counts."""
    columns = source.columns or []
    holes, origin = np.isnan(_matrix(items)), _origin(items)
    row = int(holes.any(axis=1).argmax())
    name, place = columns[int(holes[row].argmax())], source.place(origin.numbers[row])
    counts, rows = holes.sum(axis=0), origin.numbers[-1] + 1
    for other in _readable_items(rest):
        counts += np.isnan(_matrix(other)).sum(axis=0)
        rows = _origin(other).numbers[-1] + 1
    told = [
        f"{number} of {rows} rows have none in {column!r}"
        for number, column in zip(counts.tolist(), columns, strict=True)
        if number
    ]
    more = ", …" * (len(told) > _SHOWN)
    return BadFile(
        f"{source.file.name}: {place}: column {name!r}: {_MISSING}; "
        f"{', '.join(told[:_SHOWN])}{more}; {_WHAT_TO_DO}"
    )


def _readable_items(rest: Iterator[Items]) -> Iterator[Items]:
    """Yield the other batches until one cannot be read."""
    try:
        yield from (batch for batch in rest if len(batch))
    except BadFile:
        return


def _means(batches: Batches, columns: Sequence[str], source: Source) -> Any:
    """Return the mean of the numbers of each column, (dim,)."""
    name = source.file.name
    if source.file.path is None:
        raise BadFile(f"{name}: expected a file for --missing mean, which is read twice")
    sums, counts = np.zeros(len(columns)), np.zeros(len(columns), np.int64)
    left_out = [*source.unreadable]
    for batch in batches():
        matrix = np.asarray(_matrix(batch), np.float64)
        is_number = np.isfinite(matrix)
        sums += np.where(is_number, matrix, 0).sum(axis=0)
        counts += is_number.sum(axis=0)
    source.unreadable[:] = left_out
    if not counts.all():
        empty = columns[int(np.flatnonzero(counts == 0)[0])]
        raise BadFile(f"{name}: column {empty!r}: expected a number for --missing mean, got none")
    return (sums / counts).astype(np.float32)
