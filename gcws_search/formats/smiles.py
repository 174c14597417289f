"""SMILES: lines of a molecule or a reaction, its name, and optional columns; RDKit counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from gcws_search.formats.files import BadFile, InputFile
from gcws_search.formats.records import Entry, head_lines, numbered_lines, read_records, show_line
from gcws_search.formats.sources import Source
from gcws_search.index import GcwsError, InvalidVector, quantity

_ARROWS: Final = 2
"""Signs > of a reaction: between reactants, agents and products."""
_WORDS_OF_A_LINE: Final = 2
"""A SMILES and a name."""
_SMILES: Final = "smiles"
_NAME: Final = "name"


@dataclass(frozen=True, slots=True)
class _Columns:
    """Names of the columns, the place of the ids, if any, what separates cells, the first row."""

    names: list[str]
    id_place: int | None
    has_header: bool
    separator: str | None
    first: list[str]

    def cells(self, line: bytes) -> list[str]:
        cells = _cells(line.decode(), self.separator)
        if len(cells) > len(self.names) or (self.separator == " " and len(cells) < len(self.names)):
            raise BadFile(f"expected {quantity(len(self.names), 'column')}, got {len(cells)}")
        return cells

    def entry(self, cells: list[str], counts: dict[str, int]) -> Entry:
        """Return a parsed line; ``counts`` are those of its SMILES."""
        fields = {name: cell for name, cell in zip(self.names, cells, strict=False) if cell}
        id_ = None if self.id_place is None else fields.pop(self.names[self.id_place], None)
        return Entry([*counts], [*counts.values()], id_, fields)


def read_smiles(source: Source) -> None:
    """Read SMILES. The first line may have names of columns, the first of which ends in SMILES.

    Raises BadFile if RDKit is not installed.
    """
    file = source.only_file
    try:
        from gcws_search.rdkit import counts  # noqa: PLC0415  # of the extra `rdkit`
    except ImportError:
        raise BadFile(
            f"{file.name}: expected RDKit, which reads SMILES; install gcws-search[rdkit]"
        ) from None
    columns = _find_columns(source, file)
    fingerprint = _choose_fingerprint(source, columns.first[0], counts)

    def parse(line: bytes) -> Entry:
        cells = columns.cells(line)
        try:
            return columns.entry(cells, counts(cells[0], fingerprint))
        except InvalidVector as error:
            raise BadFile(f"expected {error.expected}, got {error.got}") from None

    def lines() -> Iterator[tuple[str, bytes]]:
        return islice(numbered_lines(file, b""), int(columns.has_header), None)

    advice = "" if source.choices.fingerprint else "; --fingerprint names another"
    read_records(
        source,
        lines,
        parse,
        format_=file.words("SMILES, named columns" if columns.has_header else "SMILES"),
        ids=_id_words(columns),
        vector=f"sparse, by name: counts of {fingerprint}{advice}",
        fields=columns.entry(columns.first, {}).payload or (),
        show=show_line,
    )


def _find_columns(source: Source, file: InputFile) -> _Columns:
    """Return the columns: determined by the first two lines, or by the head if blanks part them."""
    lines = [line.decode(errors="replace") for line in head_lines(file, b"")]
    if not lines:
        raise BadFile(f"{file.name}: expected lines of SMILES, got none")
    separator = "\t" if "\t" in lines[0] else None
    first = _cells(lines[0], separator)
    has_header = first[0].lower().endswith(_SMILES)
    if has_header and separator is None and _has_blanks_between_columns(lines):
        separator, first = " ", _cells(lines[0], " ")
    names = first if has_header else [_SMILES, _NAME, *(f"f{n}" for n in range(2, len(first)))]
    names[0] = _SMILES
    if has_header:
        if len(lines) == 1:
            raise BadFile(f"{file.name}: expected lines of SMILES below the names, got none")
        first = _cells(lines[1], separator)
    chosen = source.choices.id
    if chosen and chosen not in names[1:]:
        known = ", ".join(names[1:]) or "none beside the SMILES"
        raise BadFile(f"{file.name}: expected a column {chosen!r}, got {known}")
    place = names.index(chosen) if chosen else 1
    has_ids = chosen != "" and len(first) > place and bool(first[place])
    return _Columns(names, place if has_ids else None, has_header, separator, first)


def _choose_fingerprint(
    source: Source, smiles: str, counts: Callable[[str, str], dict[str, int]]
) -> str:
    """Return the fingerprint of SMILES: the caller's choice, or by the first of them."""
    is_reaction = smiles.replace("->", "").replace("<-", "").count(">") == _ARROWS
    fingerprint = source.choices.fingerprint or ("reaction" if is_reaction else "morgan:2")
    source.settled["fingerprint"] = fingerprint
    try:
        counts(smiles, fingerprint)
    except InvalidVector:
        pass  # the error is raised with its line during reading
    except GcwsError as error:
        raise BadFile(f"{source.file.name}: {error}") from None
    return fingerprint


def _id_words(columns: _Columns) -> str | None:
    """Return the column of the ids, for people; with the first one if that is several words."""
    if columns.id_place is None:
        return None
    name, first = columns.names[columns.id_place], columns.first[columns.id_place]
    return f"{name}, such as {first!r:.60}" if " " in first else name


def _has_blanks_between_columns(lines: list[str]) -> bool:
    """Return whether lines have as many cells as the first names, as RDKit's SmilesWriter has."""
    counts = {len(_cells(line, " ")) for line in lines}
    return len(counts) == 1 and counts.pop() > _WORDS_OF_A_LINE


def _cells(text: str, separator: str | None) -> list[str]:
    """Return the cells of a line; without a separator the name is all after the first blank."""
    cells = text.split(None, 1) if separator is None else text.strip("\r\n").split(separator)
    return [cell.strip() for cell in cells]
