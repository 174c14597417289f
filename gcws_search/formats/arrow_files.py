"""Parquet, and Arrow as a file or a stream."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from gcws_search.formats.files import BadFile, InputFile, cut_short, not_readable
from gcws_search.formats.frames import Layout, guess
from gcws_search.formats.items import Items
from gcws_search.formats.sources import METADATA, Choices, Source
from gcws_search.formats.tables import complete, table_rows, words_of

_BATCH_ROWS: Final = 2048


def read_arrow(file: InputFile, choices: Choices) -> Source:
    """Return a file of Arrow or Parquet as items.

    Raises
    ------
    BadFile, InvalidParameter, InvalidPayload
    """
    try:
        schema, batches, rows = _open(file)
    except (pa.ArrowException, OSError) as error:
        raise not_readable(file.name, file.format, error) from None
    layout = guess(schema, id_=choices.id, vector=choices.vector, payload=choices.payload)
    is_matrix = not layout.is_sparse and not _is_list(schema, layout)
    told = json.loads((schema.metadata or {}).get(METADATA, b"null"))
    dim = choices.dim or layout.dim(schema) or _list_length(schema, layout, batches)
    if told is not None:
        dim = choices.dim or told["dim"]
    word = file.format.title()
    format_ = word if rows is None else f"{word}, {rows} rows"
    shown = words_of(format_, layout, dim, choices.id_start)
    columns = [*layout.vector] if is_matrix else None
    source = Source(file, shown, dim, rows, columns, export=told)

    def items() -> Iterator[Items]:
        row = 0
        for batch in batches():
            yield table_rows(batch, layout, row, choices, source)
            row += batch.num_rows

    source.read = complete(items, layout, choices, source)
    return source


def _is_list(schema: Any, layout: Layout) -> bool:
    return bool(pa.types.is_nested(schema.field(layout.vector[0]).type))


def _list_length(schema: Any, layout: Layout, batches: Any) -> int | None:
    """Return the length of the first list, where vectors are lists of any length."""
    if layout.is_sparse or not _is_list(schema, layout):
        return None
    for batch in batches():
        if batch.num_rows:
            first = batch.column(layout.vector[0])[0].as_py()
            return None if first is None else len(first)
    return None


def _open(file: InputFile) -> tuple[Any, Any, int | None]:
    """Return a file's schema, a function that yields its batches, and its number of rows."""
    if file.format == "parquet":
        return _parquet(file)
    return _arrow_file(file) if file.format == "arrow" else _arrow_stream(file)


def _guard(file: InputFile, batches: Iterator[Any]) -> Any:
    """Yield batches; turn errors of Arrow into one sentence that names the file."""
    try:
        yield from batches
    except pa.ArrowException as error:
        raise not_readable(file.name, file.format, error) from None
    except (EOFError, OSError) as error:
        raise cut_short(file.name, error) from None


def _parquet(file: InputFile) -> tuple[Any, Any, int]:
    import pyarrow.parquet as pq  # noqa: PLC0415

    place = file.random_access()
    opened = pq.ParquetFile(place)

    def batches() -> Iterator[Any]:
        source = pq.ParquetFile(place) if isinstance(place, Path) else opened
        yield from source.iter_batches(batch_size=_BATCH_ROWS)

    _require_rows(file, opened.metadata.num_rows)
    return opened.schema_arrow, lambda: _guard(file, batches()), opened.metadata.num_rows


def _arrow_file(file: InputFile) -> tuple[Any, Any, int | None]:
    place = file.random_access()

    def open_reader() -> Any:
        return pa.ipc.open_file(pa.memory_map(str(place)) if isinstance(place, Path) else place)

    def batches() -> Iterator[Any]:
        reader = open_reader()
        for number in range(reader.num_record_batches):
            yield from _split(reader.get_batch(number))

    reader = open_reader()
    rows = sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))
    _require_rows(file, rows)
    return reader.schema, lambda: _guard(file, batches()), rows


def _arrow_stream(file: InputFile) -> tuple[Any, Any, None]:
    schema = pa.ipc.open_stream(io.BytesIO(file.head)).schema

    def batches() -> Iterator[Any]:
        with closing(file.open()) as stream:
            for batch in pa.ipc.open_stream(stream):
                yield from _split(batch)

    return schema, lambda: _guard(file, batches()), None


def _split(batch: Any) -> Iterator[Any]:
    """Yield a batch in parts of some thousand rows."""
    for first in range(0, batch.num_rows, _BATCH_ROWS):
        yield batch.slice(first, _BATCH_ROWS)


def _require_rows(file: InputFile, rows: int) -> None:
    if not rows:
        raise BadFile(f"{file.name}: expected rows, got none")
