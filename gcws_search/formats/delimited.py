"""CSV and similar delimited text, in a file or in all files of a folder."""

from __future__ import annotations

import io
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import count, islice, pairwise, starmap
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from gcws_search.formats.abundances import read_transposed
from gcws_search.formats.files import (
    UTF8,
    WORKBOOK,
    BadFile,
    Folder,
    InputFile,
    NoRows,
    find_repeated,
    list_some,
    naming_damage,
)
from gcws_search.formats.items import Items
from gcws_search.formats.payloads import Payloads, from_columns, payload_text
from gcws_search.formats.sources import MISSING, Choices, Source, Unreadable
from gcws_search.formats.tables import (
    TYPES,
    UNNAMED,
    CellCounts,
    Kind,
    Layout,
    choose,
    describe_shares,
    describe_table,
    numpy_of,
)
from gcws_search.formats.vectors import rows_of_texts
from gcws_search.index import InputVectors, InvalidPayload, quantity

_BLOCK_BYTES: Final = 1 << 22
"""As many are read at a time, and parsed as whole rows."""
_BLOCK_LINES: Final = 1 << 14
"""At most so many are parsed together: rows that cannot be read take 3 kB each."""
_MAX_ROW_BYTES: Final = 16 << 20
_DELIMITERS: Final = (b",", b";", b"|", b"\t", b" ")
_QUOTED: Final = re.compile(rb'(?<![^,;|\t \n\r])"[^"]*(?:""[^"]*)*"')
"""A quoted cell, with whatever is in it: delimiters, ends of lines, and quotes doubled."""
_LINES: Final = 5
"""Lines that tell how columns are divided."""
_CELL_LINES: Final = 1000
"""Lines of a cell that the end of the sample may cut."""
_SHOWN: Final = 3
"""First rows that are kept as they stand."""
_EVEN: Final = 0.1
"""Numbers of the first line are names if their steps differ by less: 0, 1, 2."""
_MARKED_LINES: Final = 100
"""Lines that tell whether numbers have a decimal comma."""
_FRACTION: Final = re.compile(rb"[+-]?\d*([.,])\d+(?:[eE][+-]?\d+)?")
_THOUSANDS: Final = re.compile(rb"[+-]?[1-9]\d{0,2}[.,]\d{3}")
"""What may be a fraction, or a whole number with its thousands marked."""
_DIVIDING_COMMA: Final = re.compile(rb"(?<!\d),|,(?!\d)")
_MONEY: Final = r"(?:\$|€|£|¥)?"
_AMOUNT: Final = "(?:\\d{1,3}(?:(?:[,.' ]|\xa0|\u2009|\u202f)\\d{3})+|\\d+)(?:[.,]\\d+)?"
_BYTES: Final = "latin-1"
"""An encoding in which each byte is a character."""
_MARKED: Final = (
    rf"^\s*\(?(?:[-+]|−)?\s*{_MONEY}\s*{_AMOUNT}\s*{_MONEY}%?\s*\)?\s*$|^\s*\[[-+.,eE\d\s]*\]\s*$"
)
"""A number, perhaps with marks of thousands, of money or percent, or a comma as its point; a list.
"""
_TAKE_OUT: Final = ", --payload takes the column out of the vector"
_ENCODING: Final = ", --encoding names another"

_TRUE: Final = ("true", "True", "TRUE")
_FALSE: Final = ("false", "False", "FALSE")
_SIGNED: Final = r"[+-]?(?:\d+{point}?\d*|{point}\d+)(?:[eE][+-]?\d+)?"
_LEADING_ZERO: Final = r"^\s*[+-]?0\d"
_IS_MISSING: Final = r"^\s*(?:{})?\s*$".format("|".join(map(re.escape, MISSING[1:])))
_IS_TRUTH: Final = r"^\s*(?:{})\s*$".format("|".join((*_TRUE, *_FALSE)))
_INTEGER: Final = re.compile(r"[+-]?\d+")
_MAX_DIGITS: Final = 300
"""Of a whole number; longer ones are beyond a float, and soon beyond what Python reads."""


def _number_parser(point: str = ".") -> Callable[[str], int | float | bool | None]:
    """Return a function that parses a number or a boolean; it returns None for other text."""
    pattern = re.compile(_SIGNED.format(point=re.escape(point)))

    def parse(text: str) -> int | float | bool | None:
        plain = text.strip()
        if plain in _TRUE or plain in _FALSE:
            return plain in _TRUE
        if not pattern.fullmatch(plain):
            return None
        is_whole = len(plain) <= _MAX_DIGITS and _INTEGER.fullmatch(plain)
        return int(plain) if is_whole else float(plain.replace(point, "."))

    return parse


def _flat(table: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the cells of all columns, and a function that sums booleans or numbers by column.

    Arrow's overhead per column is larger than the time for its cells.
    """
    shape = table.num_columns, table.num_rows
    cells = pa.concat_arrays(column.combine_chunks() for column in table.columns)

    def sums(values: Any) -> Any:
        if values.null_count:
            values = pc.fill_null(values, pa.scalar(False).cast(values.type))
        return numpy_of(values).reshape(shape).sum(axis=1)

    return cells, sums


def _tallies(table: Any, point: str = ".") -> dict[str, CellCounts]:
    """Count the kinds of cells in each column."""
    flat, sums = _flat(table)
    number = r"^\s*" + _SIGNED.format(point=re.escape(point)) + r"\s*$"
    patterns = _IS_MISSING, number, _LEADING_ZERO, _IS_TRUTH
    found = (sums(pc.match_substring_regex(flat, pattern)) for pattern in patterns)
    missing, numbers, zeros, truths = found
    missing += sums(flat.is_null())
    columns = table.num_rows - missing, missing, numbers, np.minimum(zeros, numbers), truths
    counts = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(table.column_names, starmap(CellCounts, counts), strict=True))


def _with_marks(table: _Table, names: Sequence[str]) -> dict[str, str]:
    """Return an example such as 1,234.5 or 12% for each number column that has such cells."""
    known = [name for name in names if name in table.tallies]
    if not known:
        return {}
    cells, sums = _flat(table.head.select(known))
    is_amount = pc.match_substring_regex(cells, _MARKED)
    number, found = _number_parser(table.point), dict[str, str]()
    for name, amounts in zip(known, sums(is_amount).tolist(), strict=True):
        each = table.tallies[name]
        if amounts > max(each.numbers, each.cells // 2):
            column = table.head[name].combine_chunks()
            marked = column.filter(pc.match_substring_regex(column, _MARKED)).to_pylist()
            others = (text for text in map(bytes.decode, marked) if number(text) is None)
            if (text := next(others, None)) is not None:
                found[name] = text
    return found


def _may_mark_thousands(table: _Table, layout: Layout) -> bool:
    """Whether every decimal point of the vector's numbers could be a thousands separator."""
    known = [name for name in layout.vector if name in table.tallies]
    cells, _ = _flat(table.head.select(known))
    with_points = cells.filter(pc.match_substring(cells, "."))
    pattern = rf"^\s*{_THOUSANDS.pattern.decode()}\s*$"
    return len(with_points) > 0 and pc.all(pc.match_substring_regex(with_points, pattern)).as_py()


def _fast_numbers(cells: Any, point: str) -> Any:
    """Return a column of bytes as float64, NaN for missing; None if Arrow cannot parse it.

    Arrow parses fewer forms of numbers than `_number_parser`.
    """
    try:
        if point == ".":
            return numpy_of(pc.cast(cells, pa.float64()))
    except pa.ArrowInvalid:
        pass
    try:
        texts = pc.utf8_trim_whitespace(pc.cast(cells, pa.string()))
        texts = pc.if_else(pc.is_in(texts, pa.array(MISSING)), None, texts)
        if point != ".":
            texts = pc.replace_substring(texts, ".", "?")  # which no number contains
            texts = pc.replace_substring(texts, point, ".")
        return numpy_of(pc.cast(texts, pa.float64()))
    except pa.ArrowInvalid:
        return None


def _numbers(column: Any, point: str) -> Any:
    cells = column.combine_chunks()
    found = _fast_numbers(cells, point)
    if found is not None:
        return found
    number = _number_parser(point)
    values = (number(cell.decode(errors="replace")) for cell in cells.to_pylist() if cell)
    return np.array([np.nan if value is None else value for value in values], np.float64)


@dataclass(slots=True)
class _Table:
    """A CSV file; names, tallies and cells are from its head, ``header`` has the names as read.

    ``lacks_name``: the first column has row names, and the header has no name for it. For the first
    file of a source: ``shares`` of Σ|x| by vector column, ``text`` the column whose texts become
    items, ``digits`` columns of text that look like numbers.
    """

    file: InputFile
    delimiter: str
    point: str
    has_names: bool
    lacks_name: bool
    header: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    tallies: dict[str, CellCounts] = field(default_factory=dict)
    head: Any = None
    layout: Layout | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    text: str | None = None
    digits: Sequence[str] = ()

    def rows(self, count: int = _SHOWN) -> list[dict[str, str]]:
        return [
            {name: cell.decode(errors="replace") for name, cell in row.items()}
            for row in self.head.slice(0, count).to_pylist()
        ]

    def parse(
        self,
        rows: bytes,
        odd: list[Unreadable],
        first: int | None = None,
        *,
        has_nulls: bool = False,
    ) -> Any:
        """Return whole rows as a table of bytes; rows of another length go to a list.

        ``first``: the number of the first row; None if they begin the file, possibly with column
        names. ``has_nulls``: whether empty cells are null.
        """
        is_named = self.has_names and first is None
        if is_named and self.lacks_name:
            rows = self.delimiter.encode() + rows.lstrip(b"\r\n")
        before = (first or 0) - (1 + is_named)
        is_text, names = _is_utf8(rows), self.header
        if not is_text:  # for such bytes Arrow raises instead of passing rows on
            rows = rows.decode(_BYTES).encode()
            names = [name.encode().decode(_BYTES) for name in names]

        def leave_out(row: Any) -> str:
            detail = (
                f"expected {quantity(row.expected_columns, 'column')}, got {row.actual_columns}"
            )
            text = row.text if is_text else row.text.encode(_BYTES).decode(errors="replace")
            odd.append(Unreadable(before + row.number, detail, text))
            return "skip"

        found = pa.csv.read_csv(
            io.BytesIO(rows),
            pa.csv.ReadOptions(
                use_threads=False,
                block_size=len(rows) + 1,
                column_names=None if is_named else names or None,
                autogenerate_column_names=not (is_named or names),
            ),
            pa.csv.ParseOptions(
                delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=leave_out
            ),
            pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.binary()),
                null_values=[""] if has_nulls else [],
                strings_can_be_null=has_nulls,
            ),
        )
        if not is_text:
            found = _of_bytes(found)
        return found.rename_columns(self.names) if self.names else found

    def batches(self, odd: list[Unreadable]) -> Iterator[Any]:
        """Yield the rows, their cells as bytes or null."""
        first: int | None = None
        with naming_damage(self.file.name, self.file.format, pa.ArrowException):
            for block in self._blocks():
                others = len(odd)
                found = self.parse(block, odd, first, has_nulls=True).combine_chunks()
                first = (first or 0) + found.num_rows + len(odd) - others
                yield from found.to_batches()

    def _blocks(self) -> Iterator[bytes]:
        """Yield the file in parts of whole rows."""
        delimiter = self.delimiter.encode()
        with closing(self.file.open()) as stream:
            block = b""
            while piece := stream.read(_BLOCK_BYTES):
                block += piece
                end = end_of_rows(block, delimiter)
                if not end and len(block) > _MAX_ROW_BYTES:
                    raise BadFile(
                        f"{self.file.name}: expected rows of at most {_MAX_ROW_BYTES} bytes, got "
                        f"more; {block[:40]!r} begins one, or a quote that does not end"
                    )
                yield from _parts(block[:end], delimiter)
                block = block[end:]
            if block.strip():
                end = end_of_rows(block + _line_end(block), delimiter)
                yield from _parts(block[:end], delimiter)
                if end <= len(block):
                    raise BadFile(
                        f"{self.file.name}: expected a quote that ends, got none up to the end of "
                        f"the file behind {block[end : end + 40]!r}"
                    )


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _of_bytes(table: Any) -> Any:
    """Return a table that was read as text of `_BYTES` with the original bytes."""

    def cells_of(column: Any) -> Any:
        cells = (cell and cell.decode().encode(_BYTES) for cell in column.to_pylist())
        return pa.array(cells, pa.binary()) if column.type == pa.binary() else column

    columns = [*map(cells_of, table.columns)]
    return pa.table(columns, [name.encode(_BYTES).decode() for name in table.column_names])


def _parts(block: bytes, delimiter: bytes) -> Iterator[bytes]:
    """Yield whole rows in parts with a bounded number of lines, or of one longer row."""
    lines = np.flatnonzero(np.frombuffer(block, np.uint8) == ord(_line_end(block))) + 1
    start = at = 0  # bytes and ends of lines that are passed
    while len(lines) - at > _BLOCK_LINES:
        end, taken = 0, _BLOCK_LINES
        while not end and at + taken <= len(lines):  # a row may have more
            end = end_of_rows(block[start : lines[at + taken - 1]], delimiter)
            taken *= 2
        if not end:
            break
        yield block[start : start + end]
        start += end
        at = int(np.searchsorted(lines, start, side="right"))
    if start < len(block):
        yield block[start:]


def end_of_rows(block: bytes, delimiter: bytes) -> int:
    """Return the end of the last whole row: no line ends within quotes."""
    if b'"' not in block:
        return block.rfind(_line_end(block)) + 1
    mark = re.escape(delimiter)
    cell = rb'(?:"[^"]*+(?:""[^"]*+)*+"[^%b\r\n]*+|[^"%b\r\n][^%b\r\n]*+|)' % (mark, mark, mark)
    # Before Python 3.11.5, a possessive group ends at a wrong place if its last try fails within.
    # Those here fail at their first byte. Rows do not, so they are matched 64 at a time.
    some = re.compile(rb"(?:%b(?:%b%b)*+(?:\r?\n|\r)){1,64}" % (cell, mark, cell))
    end = 0
    while rows := some.match(block, end):
        end = rows.end()
    return end


def _open_table(source: Source, file: InputFile, texts: Collection[int]) -> _Table:
    head = file.head + _line_end(file.head) if file.is_whole_head else _whole_rows(file.head)
    lines = _first_lines(_QUOTED.sub(b'""', head))
    if not lines:
        raise BadFile(f"{file.name}: expected lines, got none within {len(file.head)} bytes")
    delimiter = b"\t" if file.format in ("tsv", WORKBOOK) else _delimiter(lines)
    divides = {*delimiter, *b"\r\n"}
    lines = _first_lines(
        _QUOTED.sub(lambda cell: b'""' if divides & {*cell[0]} else cell[0][1:-1], head),
        _MARKED_LINES,
    )
    point = _decimal_mark(lines, delimiter)
    told = source.choices.header
    has_names = told if told is not None else not _is_row(lines, delimiter, point)
    lacks_name = has_names and _lacks_name([line.count(delimiter) for line in lines])
    lacks_name = lacks_name and re.search(rb"\d", lines[1].partition(delimiter)[2]) is not None
    if lacks_name and all(line.endswith(delimiter) for line in lines[1:]):
        raise BadFile(
            f"{file.name}: expected a name for each column in the first line, got one fewer, and "
            f"rows that end in {delimiter.decode()!r}: a name is missing for row names at its "
            "start, or for blanks at its end"
        )
    table = _Table(file, delimiter.decode(), point, has_names, lacks_name)
    odd: list[Unreadable] = []

    def sample() -> Any:
        odd.clear()
        return table.parse(head, odd)

    with naming_damage(file.name, file.format, pa.ArrowException):
        try:
            table.header = sample().schema.names
        except UnicodeDecodeError as error:
            raise BadFile(
                f"{file.name}: names of columns: expected text in {file.encoding or UTF8}, "
                f"got {error.object[:20]!r}; --encoding names another"
            ) from None
    table.names = names = [
        name.strip() or (f"column {place}" if place > 1 else UNNAMED)
        for place, name in enumerate(table.header, 1)
    ]
    if (twice := find_repeated(names)) is not None:
        raise BadFile(
            f"{file.name}: expected columns of different names, got {twice!r} twice; "
            "--no-header, where the first line is a row"
        )
    cells = sample()
    if len(odd) > cells.num_rows:
        raise BadFile(
            f"{file.name}: row {odd[0].row}: {odd[0].detail}, and so in most rows; the names of "
            f"columns must be the first line, which is {lines[0][:60].decode(errors='replace')!r}"
        )
    if odd and not source.choices.lenient:
        source.reject(*odd[0])
    if not cells.num_rows:
        words = "expected rows below the names of columns, got none"
        raise NoRows(f"{file.name}: {words}", names)
    table.head = cells
    table.tallies = _tallies(cells, point)
    numbers = [place for place, name in enumerate(names) if table.tallies[name].numbers]
    if any(place not in texts and names[place].lower() != "id" for place in numbers):
        table.digits = [names[place] for place in numbers if place in texts]
    table.tallies |= {name: table.tallies[name].as_text() for name in table.digits}
    return table


def _whole_rows(head: bytes) -> bytes:
    """Return the start of a file up to the end of a row: a line that ends outside of quotes."""
    line_end = _line_end(head)
    last = end = head.rfind(line_end)
    for _ in range(_CELL_LINES):
        if head.count(b'"', 0, end) % 2 == 0:
            return head[: end + 1]
        end = max(0, head.rfind(line_end, 0, end))
    return head[: last + 1]  # a quote is a literal character somewhere


def _first_lines(head: bytes, count: int = _LINES) -> list[bytes]:
    """Return the non-blank lines among the first ones."""
    lines = head.split(_line_end(head), count)[:count]
    return [line.rstrip(b"\r") for line in lines if line.strip()]


def _line_end(head: bytes) -> bytes:
    """Return the line end: a carriage return if there is no line feed."""
    return b"\n" if b"\n" in head else b"\r"


def _delimiter(lines: list[bytes]) -> bytes:
    """Return the delimiter of the first lines: a comma if the first has a non-decimal one.

    Otherwise the one that divides all lines equally, or, except a space, the first line alone.
    """
    counts = {each: [line.count(each) for line in lines] for each in _DELIMITERS}
    even = [each for each in _DELIMITERS if min(counts[each]) == max(counts[each]) > 0]
    if lines[0].startswith(b'"') and _lacks_name(counts[b" "]):
        even.append(b" ")
    divides = b"," in even and any(map(_DIVIDING_COMMA.search, lines))
    if counts[b","][0] and (b";" not in even or divides):
        return b","
    others = even or [each for each in _DELIMITERS[:-1] if counts[each][0]]
    return max(
        (each for each in others if each != b","), key=lambda each: counts[each][0], default=b","
    )


def _lacks_name(counts: list[int]) -> bool:
    """Whether the first line has one delimiter fewer than all others: row names without a name."""
    return counts[0] > 0 and {*counts[1:]} == {counts[0] + 1}


def _decimal_mark(lines: list[bytes], delimiter: bytes) -> str:
    """Return the decimal mark of most fractions; a comma if neither is certain, with ``;``."""
    if delimiter == b",":
        return "."
    certain, doubtful = Counter[bytes](), Counter[bytes]()
    for line in lines:
        for cell in line.split(delimiter):
            text = cell.strip()
            if fraction := _FRACTION.fullmatch(text):
                (doubtful if _THOUSANDS.fullmatch(text) else certain)[fraction[1]] += 1
    if certain[b","] == certain[b"."] and delimiter == b";":
        certain = doubtful
    return "," if certain[b","] > certain[b"."] else "."


def _is_row(lines: list[bytes], delimiter: bytes, point: str) -> bool:
    """Return whether the first line is a row, not the names of columns.

    Equally spaced numbers are names, such as those of pandas, or years; two numbers only if they
    are consecutive.
    """
    number = _number_parser(point)
    kinds = [[number(cell.decode(errors="replace")) for cell in line.split(delimiter)]
             for line in lines[:2]]  # fmt: skip
    first = [each for each in kinds[0] if each is not None]
    is_alike = [[each is None for each in line] for line in kinds]
    if not first[1:] or (len(lines) > 1 and is_alike[0] != is_alike[1]):
        return False
    steps = [after - before for before, after in pairwise(first)]
    if not steps[1:]:
        return steps[0] != 1
    return max(steps) - min(steps) > _EVEN * abs(max(steps, key=abs)) or not any(steps)


def _shares(source: Source, first: _Table, layout: Layout) -> tuple[dict[str, float], list[str]]:
    """Return the result of `describe_shares`, and the columns that only look like numbers."""
    shares, warnings = dict[str, float](), list[str]()
    if not layout.is_text:
        known = [name for name in layout.vector if name in first.tallies]
        columns = {name: _numbers(first.head[name], first.point) for name in known}
        shares, warnings = describe_shares(source, columns)
    marked = _with_marks(first, layout.payload)
    if digits := [repr(name) for name in first.digits if name in layout.payload]:
        words = "digits that are text there; --vector takes them as numbers"
        source.guess.append(("text", f"{list_some(digits)}: {words}"))
    if told := [f"{name!r} with {cell!r}" for name, cell in marked.items()]:
        source.guess.append(("text", f"{list_some(told)}: numbers with marks, and lists, are text"))
    return shares, warnings


def read_csv(source: Source, word: str | None = None, texts: Collection[int] = ()) -> None:
    """Read CSV; a folder has the columns of all its files. ``word``: the name of another format.

    ``texts``: places of columns that are text even if they look like numbers, unless all do.
    """
    if source.choices.transpose:
        read_transposed(source)
        return
    folder, empty, is_whole = source.file, list[str](), dict[str, bool]()
    if isinstance(folder, Folder):
        is_whole = folder.whole_keys()
        files, tables, empty = _open_folder(source, folder, texts)
        word = word or f"folder of {len(folder.files)} files, {folder.format}"
    else:
        files, tables = [(folder, {})], [_open_table(source, folder, texts)]
        word = word or folder.words(folder.format.upper())
    tallies: dict[str, CellCounts] = {}
    for table in tables:
        for name, each in table.tallies.items():
            tallies[name] = tallies[name] + each if name in tallies else each
    keys = [*dict.fromkeys(key for _, each in files for key in each if key not in tallies)]
    for key in keys:
        found = pa.table({key: pa.array([each.get(key) for _, each in files], pa.string())})
        counts = _tallies(found)[key]
        tallies[key] = counts if is_whole[key] else counts.as_text()
    choices, first = source.choices, tables[0]
    first.text = _text_column(first)
    if choices.of_texts and choices.text is None:
        choices = replace(choices, text=first.text)
    first.layout = layout = choose(_schema(tallies, choices), choices, keys)
    source.has_names = all(table.has_names for table in tables)
    describe_table(source, word, layout, len(layout.vector), tallies)
    number = _number_parser(first.point)
    numbers = [name for name in first.names if number(name) is not None]
    if first.has_names and choices.header is None and numbers[1:]:
        told = list_some(numbers)
        source.guess.append(("names", f"{told}: the first line; --no-header takes it as a row"))
    if empty:
        source.guess.append(("left out", f"{list_some(empty)}: no rows"))
    if any(table.point == "," for table in tables):
        source.guess.append(("numbers", "with a decimal comma, as in 0,5"))
    elif first.delimiter == ";" and not layout.is_text and _may_mark_thousands(first, layout):
        source.guess.append(("numbers", "with a decimal point: 1.000 is taken as 1"))
    first.shares, first.warnings = _shares(source, first, layout)
    source.table = first
    kinds = {name: tallies[name].kind for name in layout.vector}
    kinds |= {name: tallies[name].payload_kind for name in layout.payload}
    parse = partial(_items, source, layout, kinds)

    def read() -> Iterator[Items]:
        row = 0
        for table, (file, values) in zip(tables, files, strict=True):
            if file is not folder:
                source.starts.append((row, file.name))
            lacking = {name: values.get(name) for name in tallies if name not in table.tallies}
            row += yield from _rows(source, table, row, lacking, parse)
            if file is not folder:
                folder.read_bytes += file.size_bytes or 0

    source.read = read


_FileWithKeys = tuple[InputFile, dict[str, str | None]]
"""A file of a folder, and what the names of the folders in it say."""


def _open_folder(
    source: Source, folder: Folder, texts: Collection[int]
) -> tuple[list[_FileWithKeys], list[_Table], list[str]]:
    """Open the files of a folder; return them with their tables, and the names of empty files.

    Raises NoRows if all are empty, or if an empty one has other columns than the others.
    """
    files: list[_FileWithKeys] = []
    tables: list[_Table] = []
    empty: list[tuple[str, NoRows]] = []
    for path in folder.files:
        source.starts[:] = [(0, str(path))]
        try:
            file = InputFile(path, folder.encoding)
            file.format = folder.format
            table = _open_table(source, file, texts)
        except NoRows as error:
            empty.append((str(path), error))
            continue
        table.head = None if tables else table.head
        files.append((file, folder.keys(path)))
        tables.append(table)
    for _, each in empty:
        if not tables or (each.names and each.names not in [table.names for table in tables]):
            raise each
    return files, tables, [name for name, _ in empty]


def _text_column(table: _Table) -> str | None:
    """Return the column called text, or the one with the longest first texts that are no ids."""
    free = [name for name in table.names if name.lower() not in ("id", UNNAMED)]
    flat, sums = _flat(table.head)
    sizes = dict(zip(table.names, sums(pc.binary_length(flat)).tolist(), strict=True))
    called = (name for name in free if name.lower() == "text")
    return next(called, max(sizes, key=lambda name: sizes[name], default=None))


def _schema(tallies: Mapping[str, CellCounts], choices: Choices) -> Any:
    """Return the schema of text columns; columns chosen for the vector are numbers.

    A possible id column is text; a column without a name that has numbers counts rows.
    """
    fields = []
    for name, each in tallies.items():
        is_count = name == UNNAMED != choices.id and each.payload_kind == "number"
        kind = each.kind
        if name.lower() == "id" or (name == UNNAMED and not is_count):
            kind = "text"
        if name == choices.text:
            kind = "text"
        is_chosen = any(fnmatchcase(name, pattern) for pattern in choices.vector or ())
        if is_chosen and kind == "text":
            kind = "number"
        fields.append(pa.field(name, TYPES[kind]))
    return pa.schema(fields)


class _Batch:
    """Rows of text with their numbers; collects the errors of rows by place."""

    def __init__(self, cells: Any, table: _Table, numbers: Sequence[int]) -> None:
        self.cells = cells
        self.numbers = numbers
        self._encoding = table.file.encoding or UTF8
        self._point = table.point
        self._number = _number_parser(table.point)
        self.bad: dict[int, tuple[str, str]] = {}

    def reject(self, row: int, name: str, what: str, advice: str = "") -> None:
        """Record the first error of a row, with advice."""
        self.bad.setdefault(row, (f"column {name!r}: {what}", advice))

    def texts(self, name: str) -> list[str | None]:
        column = self.cells.column(name)
        try:
            texts: list[str | None] = pc.cast(column, pa.string()).to_pylist()
        except pa.ArrowInvalid:
            texts = []
            for row, cell in enumerate(column.to_pylist()):
                try:
                    texts.append(cell and cell.decode())
                except UnicodeDecodeError:
                    what = f"expected text in {self._encoding}, got bytes that are none"
                    self.reject(row, name, what, _ENCODING)
                    texts.append(None)
        return texts

    def coordinates(self, name: str, kind: Kind) -> Any:
        """Return a column of the vector as float64, NaN for missing numbers."""
        fast = None if kind == "truth" else _fast_numbers(self.cells.column(name), self._point)
        if fast is not None:
            return fast
        expected = "true or false" if kind == "truth" else "a number"
        values = self._values(name, kind, expected, _TAKE_OUT)
        return np.array([np.nan if value is None else value for value in values], np.float64)

    def field(self, name: str, kind: Kind) -> list[Any]:
        """Return a column of the payload; a missing value is None."""
        if kind == "text":
            return [text or None for text in self.texts(name)]
        return self._values(name, None, "a number, as in the first rows")

    def _values(self, name: str, kind: Kind | None, expected: str, advice: str = "") -> list[Any]:
        """Return numbers and booleans, of one kind alone unless that is None."""
        values: list[Any] = []
        for row, text in enumerate(self.texts(name)):
            value = None
            if text is not None and text.strip() not in MISSING:
                value = self._number(text)
                if kind is None:
                    is_other = value is not None and (
                        math.isinf(value) or re.match(_LEADING_ZERO, text) is not None
                    )
                else:
                    is_other = isinstance(value, bool) != (kind == "truth")
                if value is None or is_other:
                    self.reject(row, name, f"expected {expected}, got {text!r:.60}", advice)
                    value = None
            values.append(value)
        return values

    def payload(self, row: int, text: str | None) -> bytes | None:
        try:
            return payload_text(text, row)
        except InvalidPayload as error:
            self.reject(row, "payload", f"expected {error.expected}, got {error.got}")
            return None

    def show(self, number: int) -> dict[str, str]:
        """Return the row of this number as it is in the file, for people."""
        found, row = {}, bisect_left(self.numbers, number)
        for name in self.cells.schema.names:
            cell = self.cells.column(name)[row].as_py()
            found[name] = "" if cell is None else cell.decode(errors="replace")
        return found


def _rows(
    source: Source,
    table: _Table,
    first: int,
    lacking: Mapping[str, str | None],
    parse: Callable[[_Batch], Items],
) -> Generator[Items, None, int]:
    """Yield the rows of a file, and return their count.

    ``first``: the number of its first row. ``lacking``: cells of columns that the file lacks.
    """
    odd: list[Unreadable] = []
    numbers = _other_rows(odd)
    told = read = 0

    def reject_odd() -> int:
        for row, detail, text in odd[told:]:
            source.reject(first + row, detail, text)
        return len(odd)

    for cells in table.batches(odd):
        rows = [first + number for number in islice(numbers, cells.num_rows)]
        read += cells.num_rows
        told = reject_odd()
        yield parse(_Batch(_with_columns(cells, lacking), table, rows))
    return read + reject_odd()


def _items(source: Source, layout: Layout, kinds: Mapping[str, Kind], batch: _Batch) -> Items:
    numbers = batch.numbers
    rows = _texts(batch, layout.vector[0]) if layout.is_text else _matrix(batch, layout, kinds)
    ids: Any = None
    if layout.id is not None:
        ids = batch.texts(layout.id)
        for row, text in enumerate(ids):
            if not text:
                batch.reject(row, layout.id, "expected an id, got a blank")
    fields = {name: batch.field(name, kinds[name]) for name in layout.payload}
    payloads: Payloads | None = None
    if layout.payload_text:
        payloads = [batch.payload(row, text) for row, text in enumerate(fields["payload"])]
    elif fields:
        payloads = from_columns(fields, len(numbers))
    items = Items(ids, rows, payloads, numbers, batch.show)
    for row, (detail, advice) in sorted(batch.bad.items()):
        source.reject(numbers[row], detail, batch.show(numbers[row]), advice)
    if not batch.bad:
        return items
    return items.part([row for row in range(len(numbers)) if row not in batch.bad])


def _matrix(batch: _Batch, layout: Layout, kinds: Mapping[str, Kind]) -> InputVectors:
    matrix = np.empty((len(batch.numbers), len(layout.vector)), np.float32)
    with np.errstate(over="ignore"):
        for place, name in enumerate(layout.vector):
            matrix[:, place] = batch.coordinates(name, kinds[name])
    return InputVectors(matrix)


def _texts(batch: _Batch, name: str) -> InputVectors:
    texts = batch.texts(name)
    for row, text in enumerate(texts):
        if not text:
            batch.reject(row, name, "expected a text, got a blank")
    return rows_of_texts(text or "" for text in texts)


def _with_columns(cells: Any, lacking: Mapping[str, str | None]) -> Any:
    for name, text in lacking.items():
        values = [None if text is None else text.encode()] * cells.num_rows
        cells = cells.append_column(name, pa.array(values, pa.binary()))
    return cells


def _other_rows(odd: list[Unreadable]) -> Iterator[int]:
    """Yield the numbers of rows that are not in a list, which grows during reading."""
    left_out = 0
    for row in count():
        if left_out < len(odd) and odd[left_out].row == row:
            left_out += 1
        else:
            yield row
