"""Tables whose rows are features and whose columns are samples: columns become items."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from operator import attrgetter
from typing import Final

from gcws_search.formats.files import UTF8, BadFile, InputFile, find_repeated, list_some
from gcws_search.formats.records import Entry, read_number, read_records
from gcws_search.formats.sources import MISSING, Source
from gcws_search.index import quantity

_HEAD_ROWS: Final = 20


def read_transposed(source: Source) -> None:
    """Read a table of features by samples; the whole table, without zeros, is held in memory.

    Lines above the column names that begin with # are comments; the line of names may have a #.
    """
    file, choices = source.file, source.choices
    if not isinstance(file, InputFile):
        raise BadFile(f"{file.name}: expected a file for --transpose, got a folder")
    if choices.missing not in ("error", "zero"):
        raise BadFile(
            f"{file.name}: expected --missing error or zero for --transpose, got {choices.missing}"
        )
    if choices.id:
        raise BadFile(f"{file.name}: expected no --id for --transpose, or '', got {choices.id!r}")
    columns, places, line = _header(file, choices.vector)
    names = [columns[place] for place in places]
    others = [name for name in columns[1:] if name not in names]
    source.rows = len(names)
    read_records(
        source,
        lambda: _samples(source, file, columns, places, line),
        lambda entry: entry,
        format_=file.words(f"{file.format.upper()}, features by samples"),
        ids=None
        if choices.id == ""
        else f"names of {quantity(len(names), 'column')}, {names[0]} to {names[-1]}",
        vector="sparse, by name: cells below each other, by "
        + (repr(columns[0]) if columns[0] else "the first column"),
        show=attrgetter("id"),
    )
    if others:
        told = list_some([*map(repr, others)])
        source.guess.append(("left out", f"{told}; --vector names columns"))


def _rows(file: InputFile, lines: Iterable[bytes]) -> Iterator[list[str]]:
    try:
        mark = "\t" if file.format == "tsv" else ","
        yield from csv.reader(map(bytes.decode, lines), delimiter=mark)
    except csv.Error as error:
        raise BadFile(f"{file.name}: expected lines of cells, got {error}") from None
    except UnicodeDecodeError as error:
        raise BadFile(
            f"{file.name}: expected text in {file.encoding or UTF8}, "
            f"got {error.object[:20]!r}; --encoding names another"
        ) from None


def _header(file: InputFile, chosen: tuple[str, ...] | None) -> tuple[list[str], list[int], int]:
    """Return column names, places of the chosen samples, and the number of the first row."""
    lines = file.first_lines
    is_row = (bool(line.strip()) and not line.startswith(b"#") for line in lines)
    first = next((n for n, each in enumerate(is_row) if each), len(lines))
    if first and len(next(_rows(file, lines[first - 1 : first]), [])) > 1:
        first -= 1
    read = islice(_rows(file, lines[first:]), 1 + _HEAD_ROWS)
    rows = [row for row in read if row]
    if len(rows) < 2:  # noqa: PLR2004  # names, and a row
        raise BadFile(f"{file.name}: expected rows of features below the names, got none")
    names = [name.strip() for name in rows[0]]
    names[0] = names[0].lstrip("# ")
    if len(rows[1]) == len(names) + 1:  # R writes row names so
        if all(not row[-1].strip() for row in rows[1:]):
            raise BadFile(
                f"{file.name}: expected a name for each column in the first line, got one fewer, "
                "and rows that end in a blank cell"
            )
        names.insert(0, "")
    whole = [row for row in rows[1:] if len(row) == len(names)]
    samples = [
        place
        for place in range(1, len(names))
        if (
            any(_amount(row[place]) is not None for row in whole)
            if chosen is None
            else any(fnmatchcase(names[place], pattern) for pattern in chosen)
        )
    ]
    if not samples:
        raise BadFile(f"{file.name}: expected columns of numbers, one a sample, got none")
    if (twice := find_repeated(names)) is not None:
        raise BadFile(f"{file.name}: expected columns of different names, got {twice!r} twice")
    return names, samples, first + 2


def _amount(cell: str) -> float | None:
    try:
        value = read_number(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _samples(
    source: Source, file: InputFile, columns: list[str], samples: list[int], first: int
) -> Iterator[tuple[str, Entry]]:
    """Yield the columns of samples; each row of the file, from ``first`` on, is a feature."""
    features: list[str] = []
    seen: set[str] = set()
    places = [array("q") for _ in samples]
    amounts = [array("d") for _ in samples]
    for number, row in enumerate(_rows(file, islice(file.lines(), first - 1, None)), first):
        if not row:
            continue
        where = f"{file.name}: line {number}"
        if len(row) != len(columns):
            raise BadFile(f"{where}: expected {len(columns)} columns, got {len(row)}")
        if row[0] in seen:
            raise BadFile(f"{where}: expected features with different names, got {row[0]!r} again")
        seen.add(row[0])
        for column, place in enumerate(samples):
            cell = row[place]
            value = _amount(cell)
            if value is None:
                if cell.strip() not in MISSING or source.choices.missing == "error":
                    name = columns[place]
                    advice = "; --missing zero" if cell.strip() in MISSING else ""
                    raise BadFile(
                        f"{where}: column {name!r}: expected a number, got {cell!r}{advice}"
                    )
            elif value:
                places[column].append(len(features))
                amounts[column].append(value)
        features.append(row[0])
    for column, place in enumerate(samples):
        names, id_ = [features[at] for at in places[column]], columns[place]
        yield f"column {id_!r}", Entry(names, amounts[column].tolist(), id_)
