"""CSV and similar text with a delimiter."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count, islice, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv

from gcws_search.formats.cells import (
    FALSE,
    TRUE,
    CellCounts,
    is_missing,
    null_values,
    number_parser,
    tally,
    type_of,
)
from gcws_search.formats.encodings import UTF8
from gcws_search.formats.files import BadFile, InputFile, cut_short, not_readable
from gcws_search.formats.frames import UNNAMED, Layout, guess
from gcws_search.formats.items import Items, Origin
from gcws_search.formats.payloads import Payloads, from_columns, payload_text
from gcws_search.formats.sources import Choices, Source, Unreadable
from gcws_search.formats.tables import complete, readable_rows, text_words, words_of
from gcws_search.index import InputVectors, InvalidPayload

_BLOCK_BYTES: Final = 4 << 20
_FIRST_LINE: Final = 2
"""The line of row 0, the head being line 1."""
_DELIMITERS: Final = (b",", b";", b"|", b"\t", b" ")
_LINES: Final = 5
"""Lines that tell how columns are divided."""
_CELL_LINES: Final = 1000
"""Lines of a cell that the end of the sample may cut."""
_EVEN: Final = 0.1
"""Numbers of the first line are names if their steps differ by less: 0, 1, 2."""
_COMMA: Final = re.compile(rb"(^|;)-?\d+,\d+(;|$)")
_SKIP: Final = "; --on-error skip leaves such rows out"
_TAKE_OUT: Final = ", --payload takes the column out of the vector"
_CELL: Final = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): "
    r"(invalid UTF8 data|invalid value '(.*)')",
    re.DOTALL,
)
_LINE: Final = re.compile(
    r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Table:
    """A CSV file with its head parsed.

    Attributes
    ----------
    names : list of str
        Of the columns.
    tallies : dict of str to CellCounts
        What the cells of each column are, in the beginning of the file.
    first_line : int
        The line of row 0.
    has_names : bool
        Whether the first line has the names of the columns.
    """

    file: InputFile
    names: list[str]
    tallies: dict[str, CellCounts]
    delimiter: str
    point: str
    first_line: int
    has_names: bool

    def batches(
        self, numbers: Mapping[str, Any], unreadable: list[Unreadable] | None
    ) -> Iterator[Any]:
        """Yield the rows: columns of numbers by their types, all else as text.

        With a list of unreadable rows all cells are bytes, and rows of other lengths go there.
        """
        if unreadable is None:
            types = {name: pa.string() for name in self.names}
            types |= {name: kind for name, kind in numbers.items() if name in types}
        else:
            types = {name: pa.binary() for name in self.names}
        convert = pa.csv.ConvertOptions(
            column_types=types,
            null_values=null_values(),
            true_values=TRUE,
            false_values=FALSE,
            decimal_point=self.point,
        )
        read = pa.csv.ReadOptions(
            use_threads=False, block_size=_BLOCK_BYTES, autogenerate_column_names=not self.has_names
        )
        try:
            with closing(self.file.open()) as stream:
                yield from pa.csv.open_csv(
                    stream,
                    read_options=read,
                    parse_options=_parse_options(self.delimiter, unreadable, self.first_line),
                    convert_options=convert,
                )
        except pa.ArrowException as error:
            raise _csv_error(self.file, error, self.names, self.first_line) from None
        except (EOFError, OSError) as error:
            raise cut_short(self.file.name, error) from None


def open_table(file: InputFile, choices: Choices) -> Table:
    """Parse the head of a CSV file.

    Raises
    ------
    BadFile
    """
    head = file.head if file.is_whole_head else _whole_rows(file.head)
    lines = [line.rstrip(b"\r") for line in head.split(b"\n", _LINES)[:_LINES] if line.strip()]
    if not lines:
        raise BadFile(f"{file.name}: expected lines, got none within {len(file.head)} bytes")
    delimiter = b"\t" if file.format == "tsv" else _delimiter(lines)
    point = "," if delimiter == b";" and any(map(_COMMA.search, lines)) else "."
    has_names = choices.header if choices.header is not None else not _is_row(lines, delimiter)
    first_line = _FIRST_LINE if has_names else 1
    read = pa.csv.ReadOptions(
        use_threads=False, block_size=_BLOCK_BYTES, autogenerate_column_names=not has_names
    )
    parse = _parse_options(delimiter.decode(), [] if choices.lenient else None, first_line)

    def sample(types: Mapping[str, Any] | None = None) -> Any:
        convert = pa.csv.ConvertOptions(column_types=types, null_values=[])
        return pa.csv.read_csv(
            io.BytesIO(head), read_options=read, parse_options=parse, convert_options=convert
        )

    try:
        names = sample().schema.names
    except pa.ArrowException as error:
        raise _csv_error(file, error, None, first_line) from None
    except UnicodeDecodeError as error:
        raise BadFile(
            f"{file.name}: names of columns: expected text in {file.encoding or UTF8}, "
            f"got {error.object[:20]!r}; --encoding names another"
        ) from None
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadFile(
            f"{file.name}: expected columns of different names, got {twice!r} twice; "
            "--no-header, where the first line is a row"
        )
    cells = sample({name: pa.binary() for name in names})
    if not cells.num_rows:
        raise BadFile(f"{file.name}: expected rows below the names of columns, got none")
    tallies = {name: tally(cells[name].combine_chunks(), point) for name in names}
    return Table(file, names, tallies, delimiter.decode(), point, first_line, has_names)


def schema_of(tallies: Mapping[str, CellCounts], choices: Choices) -> Any:
    """Return the schema of text columns; those chosen for the vector are numbers.

    A column that may have the ids is text; one without a name that has numbers counts rows.
    """
    fields = []
    for name, each in tallies.items():
        is_count = name == UNNAMED != choices.id and each.kind == "number"
        kind = each.kind
        if name.lower() == "id" or (name == UNNAMED and not is_count):
            kind = "text"
        is_chosen = any(fnmatchcase(name, pattern) for pattern in choices.vector or ())
        if is_chosen and kind == "text":
            kind = "number"
        fields.append(pa.field(name, type_of(kind)))
    return pa.schema(fields)


def _csv_error(
    file: InputFile, error: Exception, names: Sequence[str] | None, first_line: int
) -> BadFile:
    text = str(error)
    if found := _CELL.search(text):
        column = int(found[1])
        place = names[column] if names and column < len(names) else f"number {column}"
        where = f"{file.name}: {_row(found[2], first_line)}column {place!r}: "
        if found[5] is None:
            return BadFile(
                f"{where}expected text in {file.encoding or UTF8}, got bytes that are none; "
                f"--encoding names another, --on-error skip leaves such rows out"
            )
        kind = "a number" if found[3] == "double" else "true or false"
        return BadFile(f"{where}expected {kind}, got {found[5]!r:.60}{_SKIP}{_TAKE_OUT}")
    if found := _LINE.search(text):
        where = f"{file.name}: {_row(found[1], first_line)}"
        return BadFile(f"{where}expected {found[2]} columns, got {found[3]}{_SKIP}")
    return not_readable(file.name, file.format, error)


def _row(line: str | None, first_line: int) -> str:
    """Return the number of a row, counted from 0, by its line."""
    return "" if line is None else f"row {int(line) - first_line}: "


def _whole_rows(head: bytes) -> bytes:
    """Return the beginning of a file up to the end of a row: a line that ends in no quoted cell."""
    last = end = head.rfind(b"\n")
    for _ in range(_CELL_LINES):
        if head.count(b'"', 0, end) % 2 == 0:
            return head[: end + 1]
        end = max(0, head.rfind(b"\n", 0, end))
    return head[: last + 1]  # a quote stands for itself somewhere


def _delimiter(lines: list[bytes]) -> bytes:
    """Return the delimiter of the first lines: a comma if they have one."""
    counts = {each: [line.count(each) for line in lines] for each in _DELIMITERS}
    even = [each for each in _DELIMITERS if min(counts[each]) == max(counts[each]) > 0]
    if counts[b","][0] or not even:
        return b","
    return max(even, key=lambda each: counts[each][0])


def _is_row(lines: list[bytes], delimiter: bytes) -> bool:
    """Return whether the first line is a row, not the names of columns.

    Numbers with even steps between them are names, as pandas writes them, or years have.
    """
    number = number_parser()
    kinds = [[number(cell.decode(errors="replace")) for cell in line.split(delimiter)]
             for line in lines[:2]]  # fmt: skip
    first = [each for each in kinds[0] if each is not None]
    is_alike = [[each is None for each in line] for line in kinds]
    if len(first) < _FIRST_LINE or (len(lines) > 1 and is_alike[0] != is_alike[1]):
        return False
    steps = [after - before for before, after in pairwise(first)]
    return max(steps) - min(steps) > _EVEN * abs(max(steps, key=abs)) or not any(steps)


def _parse_options(
    delimiter: str, unreadable: list[Unreadable] | None, first_line: int = _FIRST_LINE
) -> Any:
    """Return Arrow's options; rows of another length go to ``unreadable`` if it is a list."""
    if unreadable is None:
        return pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)

    def leave_out(row: Any) -> str:
        detail = f"expected {row.expected_columns} columns, got {row.actual_columns}"
        unreadable.append(Unreadable(row.number - first_line, detail, row.text))
        return "skip"

    return pa.csv.ParseOptions(
        delimiter=delimiter, newlines_in_values=True, invalid_row_handler=leave_out
    )


def read_csv(file: InputFile, choices: Choices) -> Source:
    """Return a file of CSV as items.

    Raises
    ------
    BadFile, InvalidParameter
    """
    table = open_table(file, choices)
    schema = schema_of(table.tallies, choices)
    layout = guess(schema, id_=choices.id, vector=choices.vector, payload=choices.payload)
    dim = choices.dim or len(layout.vector)
    format_ = text_words(file.format.upper(), file.encoding, file.encoding_words)
    shown = words_of(format_, layout, dim, choices.id_start, table.tallies)
    source = Source(file, shown, dim, None, [*layout.vector])
    rows = CellRows(layout, schema, table.tallies, choices, source)

    def items() -> Iterator[Items]:
        for batch, _ in rows.of(table, 0):
            yield batch

    source.read = complete(items, layout, choices, source)
    return source


Wrong = Callable[[int, str, str], None]
"""Called with the row of a batch, its column, and what is wrong there."""


class CellRows:
    """Rows of text as items.

    Parameters
    ----------
    schema : pyarrow.Schema
        What the columns are; see `schema_of`.
    source : Source
        Rows that are left out are added to it.
    """

    def __init__(
        self,
        layout: Layout,
        schema: Any,
        tallies: Mapping[str, CellCounts],
        choices: Choices,
        source: Source,
    ) -> None:
        self._layout = layout
        self._types = {name: schema.field(name).type for name in layout.vector}
        self._is_text = {name: tallies[name].payload_kind == "text" for name in layout.payload}
        self._is_lenient = choices.lenient
        self._source = source

    def of(
        self, table: Table, first: int, constants: Mapping[str, str | None] | None = None
    ) -> Iterator[tuple[Items, int]]:
        """Yield the rows of a file as items that know their rows, and how many rows there were.

        Parameters
        ----------
        first : int
            The number of its first row.
        constants : dict of str to str or None, or None
            Cells of columns that the file lacks.
        """
        unreadable: list[Unreadable] | None = [] if self._is_lenient else None
        numbers: Iterator[int] = count() if unreadable is None else readable_rows(unreadable)
        told, read = 0, first
        for batch in table.batches(self._types, unreadable):
            rows = [first + number for number in islice(numbers, batch.num_rows)]
            read += batch.num_rows
            if unreadable:
                more = [each._replace(row=first + each.row) for each in unreadable[told:]]
                self._source.unreadable.extend(more)
                told = len(unreadable)
            items = self._items(self._whole(batch, constants or {}), rows, table)
            yield items, read + told

    def _whole(self, batch: Any, constants: Mapping[str, str | None]) -> Any:
        """Return a batch with the columns that its file lacks."""
        for name, text in constants.items():
            cells: list[Any] = [text] * batch.num_rows
            kind = self._types.get(name, pa.string())
            if self._is_lenient:
                kind, cells = pa.binary(), [text and text.encode()] * batch.num_rows
            elif name in self._types and text is not None:
                cells = [number_parser()(text)] * batch.num_rows
            batch = batch.append_column(name, pa.array(cells, kind))
        return batch

    def _items(self, batch: Any, numbers: list[int], table: Table) -> Items:
        bad: dict[int, str] = {}

        def wrong(row: int, name: str, what: str) -> None:
            detail = f"column {name!r}: {what}"
            if not self._is_lenient:
                place = self._source.place(numbers[row])
                raise BadFile(f"{self._source.file.name}: {place}: {detail}{_SKIP}")
            bad.setdefault(row, detail)

        number = number_parser(table.point)
        read = self._decode(batch, number, wrong, table.file) if self._is_lenient else batch
        layout = self._layout
        matrix = np.empty((len(numbers), len(layout.vector)), np.float32)
        with np.errstate(over="ignore"):
            for place, name in enumerate(layout.vector):
                column = read.column(name).to_numpy(zero_copy_only=False)
                matrix[:, place] = column.astype(np.float64, copy=False)
        ids: Any = None
        if layout.id is not None:
            ids = read.column(layout.id).to_pylist()
            for row, text in enumerate(ids):
                if not text:
                    wrong(row, layout.id, "expected an id, got a blank")
        fields = {name: self._field(read, name, number, wrong) for name in layout.payload}
        payloads: Payloads | None
        if layout.payload_text:
            payloads = [_payload(text, row, wrong) for row, text in enumerate(fields["payload"])]
        else:
            payloads = from_columns(fields, len(numbers)) if fields else None
        shown = _readable(batch) if self._is_lenient else batch
        items = Items(ids, InputVectors(matrix), payloads, Origin(numbers, shown))
        if not bad:
            return items
        self._source.unreadable.extend(
            Unreadable(numbers[row], detail, shown.slice(row, 1).to_pylist()[0])
            for row, detail in sorted(bad.items())
        )
        return items.take([row for row in range(len(numbers)) if row not in bad])

    def _field(self, batch: Any, name: str, number: Any, wrong: Wrong) -> list[Any]:
        texts = batch.column(name).to_pylist()
        if self._is_text[name]:
            return [text or None for text in texts]
        values: list[Any] = []
        for row, text in enumerate(texts):
            value = None
            if text is not None and not is_missing(text) and (value := number(text)) is None:
                wrong(row, name, f"expected a number, as in the first rows, got {text!r:.60}")
            values.append(value)
        return values

    def _decode(self, batch: Any, number: Any, wrong: Wrong, file: InputFile) -> Any:
        """Return a batch of bytes as text, and as numbers for the vector."""
        columns = {}
        for name in batch.schema.names:
            texts: list[Any] = []
            for row, cell in enumerate(batch.column(name).to_pylist()):
                text = None
                try:
                    text = None if cell is None else cell.decode()
                except UnicodeDecodeError:
                    encoding = file.encoding or UTF8
                    wrong(row, name, f"expected text in {encoding}, got bytes that are none")
                texts.append(text)
            if name not in self._types:
                columns[name] = pa.array(texts, pa.string())
                continue
            values: list[float | None] = []
            for row, text in enumerate(texts):
                value = None
                if text is not None and not is_missing(text) and (value := number(text)) is None:
                    wrong(row, name, f"expected a number, got {text!r:.60}")
                values.append(None if value is None else float(value))
            columns[name] = pa.array(values, pa.float64())
        return pa.record_batch(columns)


def _payload(text: str | None, row: int, wrong: Wrong) -> bytes | None:
    try:
        return payload_text(text, row)
    except InvalidPayload as error:
        wrong(row, "payload", f"expected {error.expected}, got {error.got}")
        return None


def _readable(batch: Any) -> Any:
    """Return a batch of bytes as text, for people."""
    columns = {}
    for name in batch.schema.names:
        cells = batch.column(name).to_pylist()
        texts = [None if cell is None else cell.decode(errors="replace") for cell in cells]
        columns[name] = pa.array(texts, pa.string())
    return pa.record_batch(columns)
