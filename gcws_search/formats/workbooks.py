"""A sheet of a spreadsheet workbook as text of a table."""

from __future__ import annotations

import csv
import io
from datetime import date, time
from typing import Any

from gcws_search.formats.delimited import read_csv
from gcws_search.formats.files import BadFile, naming_damage
from gcws_search.formats.sources import Source
from gcws_search.formats.tables import EXACT
from gcws_search.index import InvalidInput


def read_workbook(source: Source) -> None:
    """Read the sheet that the caller chooses, or the first, converted to CSV.

    Raises BadFile if python-calamine, which reads it, is not installed.
    """
    file = source.only_file
    try:
        import python_calamine as calamine  # noqa: PLC0415  # of the extra `xlsx`
    except ImportError:
        raise BadFile(
            f"{file.name}: expected python-calamine, which reads workbooks; "
            "install gcws-search[xlsx], or save the sheet as CSV"
        ) from None
    with file.open() as stream:
        content = io.BytesIO(stream.read())
    with naming_damage(file.name, "a workbook", calamine.CalamineError):
        book = calamine.load_workbook(content)
        names = book.sheet_names
        sheet = source.choices.sheet
        if sheet is not None and sheet not in names:
            told = ", ".join(map(repr, names))
            raise BadFile(f"{file.name}: expected a sheet {sheet!r}, got {told}")
        chosen = names[0] if sheet is None else sheet
        rows = book.get_sheet_by_name(chosen).to_python()
    text = io.StringIO()
    filled = [row for row in rows if any(each != "" for each in row)]
    cells = (map(_cell, row) for row in filled)
    csv.writer(text, delimiter="\t", lineterminator="\n").writerows(cells)
    others = [repr(name) for name in names if name != chosen]
    more = f"; others are {', '.join(others)}, which --sheet names" if others else ""
    try:
        if not text.tell():
            raise BadFile(f"{file.name}: expected rows, got none")
        file.become(text.getvalue().encode())
        read_csv(source, f"workbook, sheet {chosen!r}{more}", _texts(filled))
        _require_exact_ids(source, filled)
    except (BadFile, InvalidInput) as error:
        told = str(error).removeprefix(f"{file.name}: ")
        raise BadFile(f"{file.name}: sheet {chosen!r}: {told}{more}") from error


def _texts(rows: list[list[Any]]) -> set[int]:
    """Return the places of columns whose cells below the first row are text, including digits."""
    columns = enumerate(zip(*rows[1:], strict=True))
    return {place for place, cells in columns if {*map(type, cells)} <= {str} and any(cells)}


def _require_exact_ids(source: Source, rows: list[list[Any]]) -> None:
    """Raise BadFile if a number that lost digits would be an id."""
    table = source.table
    if table.layout.id is None:
        return
    place = table.names.index(table.layout.id)
    for number, row in enumerate(rows[1 if table.has_names else 0 :]):
        value = row[place]
        if isinstance(value, float) and abs(value) > EXACT:
            raise BadFile(
                f"row {number}: column {table.layout.id!r}: expected an id as text, or a number of "
                f"at most 15 digits, which a workbook keeps, got {value!r}"
            )


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        is_exact = value.is_integer() and abs(value) <= EXACT
        return str(int(value)) if is_exact else repr(value)
    return value.isoformat() if isinstance(value, date | time) else str(value)
