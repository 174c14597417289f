"""Folders of tables as one table, file after file; Parquet and Arrow through `pyarrow.dataset`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds

from gcws_search.formats.cells import CellCounts, tally
from gcws_search.formats.delimited import CellRows, Table, open_table, schema_of
from gcws_search.formats.files import Folder, InputFile, not_readable
from gcws_search.formats.frames import Layout, guess
from gcws_search.formats.items import Items
from gcws_search.formats.sources import Choices, Source
from gcws_search.formats.tables import complete, table_rows, words_of

_BATCH_ROWS: Final = 2048
_SOURCE: Final = re.compile(r"input source '([^']*)'")
"""The file, in what Arrow says of one."""
_READ: Final = {"csv": "csv", "tsv": "csv", "parquet": "parquet", "arrow": "ipc"}
_NOTHING: Final = "__HIVE_DEFAULT_PARTITION__"
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")


def read_folder(folder: Folder, choices: Choices) -> Source:
    """Return a folder as items.

    Columns are those of all files. ``key=value`` in the name of a folder is a column, which
    becomes part of the payload unless it is chosen for something else.

    Raises
    ------
    BadFile, InvalidParameter
    """
    if folder.format in ("csv", "tsv"):
        return _text_items(folder, choices)
    try:
        dataset = ds.dataset(
            str(folder.path), format=_READ[folder.format], partitioning=_partitioning(folder)
        )
        schema, partition = _schema(dataset)
        rows = dataset.count_rows()
    except (pa.ArrowException, OSError) as error:
        found = _SOURCE.search(str(error))
        raise not_readable(found[1] if found else folder.name, folder.format, error) from None
    layout = _layout(schema, partition, choices)
    dim = choices.dim or layout.dim(schema)
    source = _source(folder, layout, dim, choices, rows=rows)
    if dim is None or pa.types.is_nested(schema.field(layout.vector[0]).type):
        source.columns = None

    def items() -> Iterator[Items]:
        row = 0
        for fragment in dataset.get_fragments():
            source.starts.append((row, fragment.path))
            for batch in _batches(folder, fragment, schema):
                yield table_rows(batch, layout, row, choices, source)
                row += batch.num_rows
            folder.read_bytes += Path(fragment.path).stat().st_size

    source.read = complete(_from_the_start(items, source), layout, choices, source)
    return source


def _text_items(folder: Folder, choices: Choices) -> Source:
    """Return a folder of CSV as items."""
    tables = [_table(path, folder, choices) for path in folder.files]
    constants = [_keys(path, folder) for path in folder.files]
    tallies: dict[str, CellCounts] = {}
    for table in tables:
        for name, each in table.tallies.items():
            tallies[name] = tallies.get(name, CellCounts()) + each
    partition = [*dict.fromkeys(key for each in constants for key in each if key not in tallies)]
    for key in partition:
        tallies[key] = tally(pa.array([each.get(key) for each in constants], pa.string()))
    schema = schema_of(tallies, choices)
    layout = _layout(schema, partition, choices)
    source = _source(folder, layout, choices.dim or len(layout.vector), choices, tallies)
    rows = CellRows(layout, schema, tallies, choices, source)

    def items() -> Iterator[Items]:
        row = 0
        for table, keys in zip(tables, constants, strict=True):
            lacking = {name: keys.get(name) for name in tallies if name not in table.tallies}
            source.starts.append((row, table.file.name))
            for batch, after in rows.of(table, row, lacking):
                row = after
                yield batch
            folder.read_bytes += table.file.size_bytes or 0

    source.read = complete(_from_the_start(items, source), layout, choices, source)
    return source


def _table(path: Path, folder: Folder, choices: Choices) -> Table:
    with closing(InputFile(str(path), folder.encoding)) as file:
        file.format = folder.format
        return open_table(file, choices)


def _from_the_start(
    items: Callable[[], Iterator[Items]], source: Source
) -> Callable[[], Iterator[Items]]:
    """Wrap a reader so that each call starts from the first item."""

    def again() -> Iterator[Items]:
        source.starts.clear()
        source.file.read_bytes = 0
        yield from items()

    return again


def _source(
    folder: Folder,
    layout: Layout,
    dim: int | None,
    choices: Choices,
    tallies: dict[str, CellCounts] | None = None,
    rows: int | None = None,
) -> Source:
    guessed = f"folder of {len(folder.files)} files, {folder.format}"
    shown = words_of(guessed, layout, dim, choices.id_start, tallies)
    return Source(folder, shown, dim, rows, [*layout.vector])


def _keys(path: Path, folder: Folder) -> dict[str, str | None]:
    """Return what the names of the folders of a file say: ``key=value``."""
    parts = [part.partition("=") for part in path.relative_to(folder.path).parts[:-1]]
    return {
        unquote(key): None if value == _NOTHING else unquote(value)
        for key, equals, value in parts
        if equals
    }


def _partitioning(folder: Folder) -> Any:
    """Return the partitioning by folder names; a key is an integer if all its values are."""
    values: dict[str, list[str | None]] = {}
    for path in folder.files:
        for key, value in _keys(path, folder).items():
            values.setdefault(key, []).append(value)
    fields = []
    for key, found in values.items():
        is_integer = all(value is None or _INTEGER.fullmatch(value) for value in found)
        fields.append(pa.field(key, pa.int64() if is_integer else pa.string()))
    return ds.partitioning(pa.schema(fields), flavor="hive")


def _schema(dataset: Any) -> tuple[Any, list[str]]:
    """Return the columns of all files, and which of them the names of folders hold."""
    inner = pa.schema([])
    for fragment in dataset.get_fragments():
        inner = _unify(inner, fragment.physical_schema)
    more = [field for field in dataset.schema if field.name not in inner.names]
    schema = pa.schema([*inner, *more])
    return schema, [field.name for field in more]


def _unify(columns: Any, more: Any) -> Any:
    """Merge two schemas; a column of numbers in one and text in the other is text."""
    for field in more:
        known = columns.get_field_index(field.name)
        if known < 0:
            columns = columns.append(field)
            continue
        both = [pa.schema([columns.field(known)]), pa.schema([field])]
        try:
            joined = pa.unify_schemas(both, promote_options="permissive").field(0)
        except pa.ArrowTypeError:
            if not any(pa.types.is_string(each.field(0).type) for each in both):
                raise
            joined = pa.field(field.name, pa.string())
        columns = columns.set(known, joined)
    return columns


def _layout(schema: Any, partition: list[str], choices: Choices) -> Layout:
    if choices.id in partition or choices.vector is not None or choices.payload is not None:
        return guess(schema, id_=choices.id, vector=choices.vector, payload=choices.payload)
    inner = pa.schema([field for field in schema if field.name not in partition])
    layout = guess(inner, id_=choices.id)
    return layout if layout.payload_text else replace(layout, payload=(*layout.payload, *partition))


def _batches(folder: Folder, fragment: Any, schema: Any) -> Iterator[Any]:
    try:
        yield from fragment.to_batches(
            schema=schema, batch_size=_BATCH_ROWS, batch_readahead=4, fragment_readahead=1
        )
    except (pa.ArrowException, OSError) as error:
        raise not_readable(fragment.path, folder.format, error) from None
