"""Files with columns: CSV, Parquet, Arrow and lines of flat JSON."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from fnmatch import fnmatchcase
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from gcws_search.formats.files import BadFile, InputFile, cut_short
from gcws_search.formats.frames import Layout, guess, items_of_batch
from gcws_search.formats.items import Items, Origin, number_words
from gcws_search.formats.sources import METADATA, Choices, Described, Unreadable

Batches = Callable[[], Iterator[Any]]

_BATCH_ROWS: Final = 2048
_BLOCK_BYTES: Final = 4 << 20
_SHOWN: Final = 4
_FIRST_LINE: Final = 2
"""The line of row 0, the head being line 1."""
_TRUTH: Final = {"true": 1.0, "false": 0.0}
_DELIMITERS: Final = (b",", b";", b"|", b"\t", b" ")
_LINES: Final = 5
"""Lines that tell how columns are divided."""
_EVEN: Final = 0.1
"""Steps between numbers in the first line that differ by less are those of names: 0, 1, 2."""
_COMMA: Final = re.compile(rb"(^|;)-?\d+,\d+(;|$)")
_CHOOSE: Final = "; --payload takes columns out of the vector"
_SKIP: Final = "; --on-error skip leaves such rows out"
_CELL: Final = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): invalid value '(.*)'",
    re.DOTALL,
)
_LINE: Final = re.compile(
    r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", re.DOTALL
)


def table_items(
    file: InputFile, choices: Choices
) -> tuple[Described, Callable[[], Iterator[Items]]]:
    """Return what a file with columns is taken for, and what reads its items.

    Raises
    ------
    BadFile, InvalidParameter
    """
    schema, batches, rows = _opened(file, choices)
    if file.format in ("csv", "tsv") and choices.vector is not None:
        schema = with_numbers(schema, choices.vector)
    layout = guess(schema, id_=choices.id, vector=choices.vector, payload=choices.payload)
    columns = None if layout.is_sparse or len(layout.vector) == 1 else [*layout.vector]
    told = json.loads((schema.metadata or {}).get(METADATA, b"null"))
    dim = choices.dim or layout.dim(schema) or _list_length(schema, layout, batches)
    if told is not None:
        dim = choices.dim or told["dim"]
    shown = words_of(_format_words(file.format, rows), layout, dim, choices.id_start)
    described = Described(file, shown, dim, rows, columns, described=told)

    def items() -> Iterator[Items]:
        if file.format not in ("csv", "tsv"):
            yield from _counted(batches(), layout, choices.id_start)
        elif choices.lenient:
            yield from _lenient(batches(layout, described.unreadable), layout, choices, described)
        else:
            yield from _counted(batches(layout), layout, choices.id_start)

    return described, items


def words_of(
    format_: str, layout: Layout, dim: int | None, id_start: int | None
) -> list[tuple[str, str]]:
    """Return what a table is taken for, for people."""
    payload = ", ".join(layout.payload[:_SHOWN]) + ", …" * (len(layout.payload) > _SHOWN)
    return [
        ("format", format_),
        ("ids", number_words(id_start) if layout.id is None else layout.id or "unnamed"),
        ("vector", _vector_words(layout, dim)),
        ("payload", payload or f"none{_CHOOSE if len(layout.vector) > 1 else ''}"),
    ]


def _counted(batches: Iterator[Any], layout: Layout, id_start: int | None) -> Iterator[Items]:
    """Yield batches as items; where they have no ids, rows are counted from ``id_start``."""
    first = 0
    for batch in batches:
        yield items_of_batch(batch, layout, id_start, first)
        first += batch.num_rows


def _lenient(
    batches: Iterator[Any], layout: Layout, choices: Choices, described: Described
) -> Iterator[Items]:
    """Yield batches of text as items that know their rows; what is no number becomes missing."""
    readable = readable_rows(described.unreadable)
    for batch in batches:
        numbers = [*islice(readable, batch.num_rows)]
        yield lenient_items(lenient_numbers(batch, layout), layout, choices, Origin(numbers, batch))


def readable_rows(unreadable: list[Unreadable]) -> Iterator[int]:
    """Yield the numbers of rows that are not in a list, which grows as the rows are read."""
    left_out = 0
    for row in count():
        if left_out < len(unreadable) and unreadable[left_out].row == row:
            left_out += 1
        else:
            yield row


def lenient_items(batch: Any, layout: Layout, choices: Choices, origin: Origin) -> Items:
    """Return a batch as items that know their rows; these are their ids where it has none."""
    items = items_of_batch(batch, layout)
    ids = items.ids
    if layout.id is None and choices.id_start is not None:
        ids = [str(choices.id_start + number) for number in origin.numbers]
    return Items(ids, items.rows, items.payloads, origin)


def with_numbers(schema: Any, patterns: tuple[str, ...]) -> Any:
    """Return a schema of text where the columns of the vector are numbers: rows will tell."""
    for place, field in enumerate(schema):
        is_chosen = any(fnmatchcase(field.name, pattern) for pattern in patterns)
        if is_chosen and not pa.types.is_boolean(field.type):
            schema = schema.set(place, field.with_type(pa.float64()))
    return schema


def _format_words(name: str, rows: int | None) -> str:
    word = {"csv": "CSV", "tsv": "TSV", "ndjson": "NDJSON, flat objects"}.get(name, name.title())
    return word if rows is None else f"{word}, {rows} rows"


def _vector_words(layout: Layout, dim: int | None) -> str:
    if layout.is_sparse:
        return "sparse: " + ", ".join(layout.vector)
    if len(layout.vector) == 1:
        return f"{layout.vector[0]}, {dim} values"
    return f"{len(layout.vector)} columns, {layout.vector[0]} to {layout.vector[-1]}"


def _list_length(schema: Any, layout: Layout, batches: Any) -> int | None:
    """Return the length of the first list, where vectors are lists of any length."""
    if layout.is_sparse or not pa.types.is_nested(schema.field(layout.vector[0]).type):
        return None
    for batch in batches():
        if batch.num_rows:
            first = batch.column(layout.vector[0])[0].as_py()
            return None if first is None else len(first)
    return None


def _opened(file: InputFile, choices: Choices) -> tuple[Any, Any, int | None]:
    """Return a file's schema, what reads its batches, and how many rows it has."""
    try:
        if file.format in ("csv", "tsv"):
            return _csv(file, choices)
        if file.format == "parquet":
            return _parquet(file)
        if file.format == "arrow":
            return _arrow_file(file)
        if file.format == "arrow stream":
            return _arrow_stream(file)
        return _json(file)
    except (pa.ArrowException, OSError) as error:
        raise _not_readable(file.name, file.format, error) from None


def _not_readable(name: str, format_: str, error: Exception) -> BadFile:
    text = str(error).split("\n", 1)[0][:200]
    return BadFile(f"{name}: expected {format_}, got what cannot be read: {text}")


def _guarded(
    file: InputFile,
    batches: Iterator[Any],
    names: list[str] | None = None,
    first_line: int = _FIRST_LINE,
) -> Any:
    """Yield batches; what Arrow says of a file becomes one sentence that names it."""
    try:
        yield from batches
    except pa.ArrowException as error:
        raise told_of(file.name, file.format, error, names, first_line) from None
    except (EOFError, OSError) as error:
        raise cut_short(file.name, error) from None


def told_of(
    name: str,
    format_: str,
    error: Exception,
    names: list[str] | None = None,
    first_line: int = _FIRST_LINE,
) -> BadFile:
    """Return what to say of a file that Arrow cannot read, with the names of its columns."""
    text = str(error)
    if found := _CELL.search(text):
        column = int(found[1])
        place = names[column] if names and column < len(names) else f"number {column}"
        kind = "a number" if found[3] in ("double", "float", "int64") else found[3]
        return BadFile(
            f"{name}: {_row(found[2], first_line)}column {place!r}: expected {kind}, "
            f"got {found[4]!r}{_SKIP}"
        )
    if found := _LINE.search(text):
        where = _row(found[1], first_line)
        return BadFile(f"{name}: {where}expected {found[2]} columns, got {found[3]}{_SKIP}")
    return _not_readable(name, format_, error)


def _row(line: str | None, first_line: int) -> str:
    """Return the number of a row, counted from 0, by its line."""
    return "" if line is None else f"row {int(line) - first_line}: "


def _csv(file: InputFile, choices: Choices) -> tuple[Any, Any, None]:
    """Columns are of the types that the beginning shows; all numbers of vectors are floats."""
    head = file.head if file.is_whole_head else file.head[: file.head.rfind(b"\n") + 1]
    lines = [line.rstrip(b"\r") for line in head.split(b"\n", _LINES)[:_LINES] if line.strip()]
    if not lines:
        raise BadFile(f"{file.name}: expected lines, got none within {len(file.head)} bytes")
    delimiter = b"\t" if file.format == "tsv" else _delimiter(lines)
    point = "," if delimiter == b";" and any(map(_COMMA.search, lines)) else "."
    has_names = choices.header if choices.header is not None else not _is_row(lines, delimiter)
    first_line = _FIRST_LINE if has_names else 1
    parse = parse_options(delimiter, [] if choices.lenient else None, first_line)
    read = pa.csv.ReadOptions(
        use_threads=False, block_size=_BLOCK_BYTES, autogenerate_column_names=not has_names
    )
    plain = pa.csv.ConvertOptions(decimal_point=point)
    try:
        sample = pa.csv.read_csv(
            io.BytesIO(head), read_options=read, parse_options=parse, convert_options=plain
        )
    except pa.ArrowException as error:
        raise told_of(file.name, file.format, error, None, first_line) from None
    names = sample.schema.names
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadFile(
            f"{file.name}: expected columns of different names, got {twice!r} twice; "
            "--no-header, where the first line is a row"
        )
    if not sample.num_rows:
        raise BadFile(f"{file.name}: expected rows below the names of columns, got none")

    def batches(
        layout: Layout | None = None, unreadable: list[Unreadable] | None = None
    ) -> Iterator[Any]:
        types = {field.name: _wide(field.type) for field in sample.schema}
        if layout is not None:
            types |= number_types(sample.schema, layout, lenient=choices.lenient)
            if layout.id is not None and not pa.types.is_integer(types[layout.id]):
                types[layout.id] = pa.string()
        convert = pa.csv.ConvertOptions(
            column_types=types, strings_can_be_null=True, decimal_point=point
        )
        with closing(file.open()) as stream:
            yield from pa.csv.open_csv(
                stream,
                read_options=read,
                parse_options=parse_options(delimiter, unreadable, first_line),
                convert_options=convert,
            )

    def guarded(*given: Any) -> Any:
        return _guarded(file, batches(*given), names, first_line)

    return sample.schema, guarded, None


def _delimiter(lines: list[bytes]) -> bytes:
    """Return what divides the columns of the first lines of a file: a comma, if there is one."""
    counts = {each: [line.count(each) for line in lines] for each in _DELIMITERS}
    even = [each for each in _DELIMITERS if min(counts[each]) == max(counts[each]) > 0]
    if counts[b","][0] or not even:
        return b","
    return max(even, key=lambda each: counts[each][0])


def _is_row(lines: list[bytes], delimiter: bytes) -> bool:
    """Return whether the first line is a row as the second is, and has no names of columns.

    Numbers with even steps between them are names, as pandas writes them, or years have.
    """
    kinds = [[_number(cell.decode(errors="replace")) for cell in line.split(delimiter)]
             for line in lines[:2]]  # fmt: skip
    first = [number for number in kinds[0] if number is not None]
    is_alike = [[each is None for each in line] for line in kinds]
    if len(first) < _FIRST_LINE or (len(lines) > 1 and is_alike[0] != is_alike[1]):
        return False
    steps = [after - before for before, after in pairwise(first)]
    return max(steps) - min(steps) > _EVEN * abs(max(steps, key=abs)) or not any(steps)


def parse_options(
    delimiter: str | bytes, unreadable: list[Unreadable] | None, first_line: int = _FIRST_LINE
) -> Any:
    """Return how CSV is read; rows of other lengths go to a list where there is one."""
    if isinstance(delimiter, bytes):
        delimiter = delimiter.decode()
    if unreadable is None:
        return pa.csv.ParseOptions(delimiter=delimiter)

    def leave_out(row: Any) -> str:
        detail = f"expected {row.expected_columns} columns, got {row.actual_columns}"
        unreadable.append(Unreadable(row.number - first_line, detail, row.text))
        return "skip"

    return pa.csv.ParseOptions(delimiter=delimiter, invalid_row_handler=leave_out)


def number_types(schema: Any, layout: Layout, *, lenient: bool) -> dict[str, Any]:
    """Return the types by which the columns of the vector are read of CSV."""
    read = {}
    for name in layout.vector:
        is_truth = pa.types.is_boolean(schema.field(name).type)
        read[name] = pa.string() if lenient else pa.bool_() if is_truth else pa.float64()
    return read


def _wide(kind: Any) -> Any:
    """Return a type that holds what may come after the beginning of a file."""
    return pa.string() if pa.types.is_null(kind) else kind


def lenient_numbers(batch: Any, layout: Layout) -> Any:
    """Return a batch whose vector's text is numbers; what is none becomes missing."""
    columns = {}
    for name in batch.schema.names:
        column = batch.column(name)
        if name in layout.vector:
            column = pa.array([_number(text) for text in column.to_pylist()], pa.float64())
        columns[name] = column
    return pa.record_batch(columns)


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return _TRUTH.get(text.lower()) if text is not None else None


def _parquet(file: InputFile) -> tuple[Any, Any, int]:
    import pyarrow.parquet as pq  # noqa: PLC0415

    place = file.random_access()
    opened = pq.ParquetFile(place)

    def batches() -> Iterator[Any]:
        source = pq.ParquetFile(place) if isinstance(place, Path) else opened
        yield from source.iter_batches(batch_size=_BATCH_ROWS)

    _require_rows(file, opened.metadata.num_rows)
    return opened.schema_arrow, lambda: _guarded(file, batches()), opened.metadata.num_rows


def _arrow_file(file: InputFile) -> tuple[Any, Any, int | None]:
    place = file.random_access()

    def opened() -> Any:
        return pa.ipc.open_file(pa.memory_map(str(place)) if isinstance(place, Path) else place)

    def batches() -> Iterator[Any]:
        reader = opened()
        for number in range(reader.num_record_batches):
            yield from _cut(reader.get_batch(number))

    reader = opened()
    rows = sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))
    _require_rows(file, rows)
    return reader.schema, lambda: _guarded(file, batches()), rows


def _arrow_stream(file: InputFile) -> tuple[Any, Any, None]:
    schema = pa.ipc.open_stream(io.BytesIO(file.head)).schema

    def batches() -> Iterator[Any]:
        with closing(file.open()) as stream:
            for batch in pa.ipc.open_stream(stream):
                yield from _cut(batch)

    return schema, lambda: _guarded(file, batches()), None


def _json(file: InputFile) -> tuple[Any, Any, None]:
    head = file.head if file.is_whole_head else file.head[: file.head.rfind(b"\n") + 1]
    read = pa.json.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
    schema = pa.json.read_json(io.BytesIO(head), read_options=read).schema

    def batches() -> Iterator[Any]:
        with closing(file.open()) as stream:
            yield from pa.json.open_json(stream, read_options=read)

    return schema, lambda: _guarded(file, batches()), None


def _cut(batch: Any) -> Iterator[Any]:
    """Yield a batch in parts of some thousand rows."""
    for first in range(0, batch.num_rows, _BATCH_ROWS):
        yield batch.slice(first, _BATCH_ROWS)


def _require_rows(file: InputFile, rows: int) -> None:
    if not rows:
        raise BadFile(f"{file.name}: expected rows, got none")
