"""Folders of tables as one table, through `pyarrow.dataset`: a batch at a time, file after file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds

from gcws_search.formats.files import BadFile, format_of_name
from gcws_search.formats.frames import Layout, guess, items_of_batch
from gcws_search.formats.items import Items, Origin
from gcws_search.formats.sources import Choices, Described, Unreadable
from gcws_search.formats.tables import (
    lenient_items,
    lenient_numbers,
    number_types,
    parse_options,
    readable_rows,
    told_of,
    with_numbers,
    words_of,
)

_BATCH_ROWS: Final = 2048
_SOURCE: Final = re.compile(r"input source '([^']*)'")
"""The file, in what Arrow says of one."""
_READ: Final = {"csv": "csv", "tsv": "csv", "parquet": "parquet", "arrow": "ipc"}


class Folder:
    """A folder whose files are tables of one format; the names of folders in it may hold values.

    Parameters
    ----------
    path : str

    Attributes
    ----------
    name : str
        For people.
    size_bytes, modified_ns : int
        Of all files; of the one that changed last.
    read_bytes : int
        Of the files that have been read.
    format : str
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.name = path
        self.files = visible_files(self.path)
        if not self.files:
            raise BadFile(f"{path}: expected files in this folder, got none")
        found = [each.stat() for each in self.files]
        self.size_bytes = sum(each.st_size for each in found)
        self.modified_ns = max(each.st_mtime_ns for each in found)
        self.read_bytes = 0
        self.format = format_of_name(self.files[0]) or ""

    def close(self) -> None:
        """Nothing is open."""


def visible_files(folder: Path) -> list[Path]:
    """Return the files of a folder and those within, but for hidden ones, by name."""
    found = sorted(each for each in folder.rglob("*") if each.is_file())
    return [
        each
        for each in found
        if not any(part.startswith((".", "_")) for part in each.relative_to(folder).parts)
    ]


def is_table(folder: Path) -> bool:
    """Whether all files of a folder are tables of one format, by their names."""
    formats = {format_of_name(each) for each in visible_files(folder)}
    return len(formats) == 1 and formats <= _READ.keys()


def folder_items(
    folder: Folder, choices: Choices
) -> tuple[Described, Callable[[], Iterator[Items]]]:
    """Return what a folder is taken for, and what reads its items.

    Columns are those of all files. ``key=value`` in the name of a folder is a column, which
    becomes part of the payload unless it is chosen for something else.

    Raises
    ------
    BadFile, InvalidParameter
    """
    unreadable: list[Unreadable] = []  # of the file that is read
    left_out = unreadable if choices.lenient else None
    try:
        schema, partition = _schema(_dataset(folder, {}, left_out))
    except (pa.ArrowException, OSError) as error:
        found = _SOURCE.search(str(error))
        raise told_of(found[1] if found else folder.name, folder.format, error) from None
    if folder.format in ("csv", "tsv") and choices.vector is not None:
        schema = with_numbers(schema, choices.vector)
    layout = _layout(schema, partition, choices)
    types = {} if folder.format not in ("csv", "tsv") else _types(schema, layout, choices)
    dataset = _dataset(folder, types, left_out)
    for name, kind in types.items():
        schema = schema.set(schema.get_field_index(name), pa.field(name, kind))
    rows = None
    if folder.format not in ("csv", "tsv"):
        rows = dataset.count_rows()
    dim = choices.dim or layout.dim(schema)
    guessed = f"folder of {len(folder.files)} files, {folder.format}"
    shown = words_of(guessed, layout, dim, choices.id_start)
    columns = None if layout.is_sparse or len(layout.vector) == 1 else [*layout.vector]
    starts: list[tuple[int, str]] = []
    described = Described(folder, shown, dim, rows, columns, starts=starts)

    def items() -> Iterator[Items]:
        row = 0
        starts.clear()
        described.unreadable.clear()
        folder.read_bytes = 0
        for fragment in dataset.get_fragments():
            first = row
            starts.append((first, fragment.path))
            unreadable.clear()
            readable = readable_rows(unreadable)
            for batch in _batches(folder, fragment, schema):
                if choices.lenient:
                    read = lenient_numbers(batch, layout) if types else batch
                    numbers = [first + number for number in islice(readable, batch.num_rows)]
                    yield lenient_items(read, layout, choices, Origin(numbers, batch))
                else:
                    yield items_of_batch(batch, layout, choices.id_start, row)
                row += batch.num_rows
            row += len(unreadable)
            found = [each._replace(row=first + each.row) for each in unreadable]
            described.unreadable.extend(found)
            folder.read_bytes += Path(fragment.path).stat().st_size

    return described, items


def _dataset(folder: Folder, types: dict[str, Any], left_out: list[Unreadable] | None) -> Any:
    """Return the files; rows of other lengths go to the list where there is one."""
    read: Any = _READ[folder.format]
    if read == "csv":
        delimiter = "\t" if folder.format == "tsv" else ","
        read = ds.CsvFileFormat(
            parse_options=parse_options(delimiter, left_out),
            read_options=pa.csv.ReadOptions(use_threads=False),  # so that rows have numbers
            convert_options=pa.csv.ConvertOptions(column_types=types, strings_can_be_null=True),
        )
    return ds.dataset(str(folder.path), format=read, partitioning="hive")


def _schema(dataset: Any) -> tuple[Any, list[str]]:
    """Return the columns of all files, and which of them the names of folders hold."""
    inner = pa.schema([])
    for fragment in dataset.get_fragments():
        inner = _joined(inner, fragment.physical_schema)
    more = [field for field in dataset.schema if field.name not in inner.names]
    schema = pa.schema([*inner, *more])
    return schema, [field.name for field in more]


def _joined(columns: Any, more: Any) -> Any:
    """Return the columns of both; what one of them says are numbers and the other is not is text.

    Raises
    ------
    pyarrow.ArrowException
        Columns of one name are of types that have nothing in common.
    """
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


def _types(schema: Any, layout: Layout, choices: Choices) -> dict[str, Any]:
    """Return the types of the columns of CSV: ids are text, vectors numbers or to be tried."""
    types = number_types(schema, layout, lenient=choices.lenient)
    if layout.id is not None and not pa.types.is_integer(schema.field(layout.id).type):
        types[layout.id] = pa.string()
    return types


def _batches(folder: Folder, fragment: Any, schema: Any) -> Iterator[Any]:
    try:
        yield from fragment.to_batches(
            schema=schema, batch_size=_BATCH_ROWS, batch_readahead=4, fragment_readahead=1
        )
    except (pa.ArrowException, OSError) as error:
        raise told_of(fragment.path, folder.format, error, _names(fragment.path)) from None


def _names(path: str) -> list[str] | None:
    """Return the names of the columns of a file of CSV."""
    try:
        with pa.csv.open_csv(path) as reader:
            return [*reader.schema.names]
    except (pa.ArrowException, OSError):
        return None
