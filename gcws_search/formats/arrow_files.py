"""Parquet, and Arrow as a file or a stream; a folder of either through `pyarrow.dataset`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mode
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gcws_search.formats.files import Folder, InputFile, NoRows, naming_damage
from gcws_search.formats.items import Items
from gcws_search.formats.sources import BATCH_ROWS, METADATA, Source
from gcws_search.formats.stores import StoredPath, naming_store
from gcws_search.formats.tables import (
    BYTES,
    TEXTS,
    Layout,
    choose,
    describe_shares,
    describe_table,
    floats,
    items_of_batch,
    named_range,
    readable_items,
)
from gcws_search.index import quantity

Batches = Callable[[int], Iterator[Any]]
"""Yields record batches from a row on at each call."""

_BYTES_OF: Final = dict(zip(TEXTS, BYTES, strict=True))


def read_arrow(source: Source) -> None:
    """Read Arrow or Parquet; the columns of a folder are those of all its files."""
    file = source.file
    keys: list[str] = []
    with naming_damage(file.name, file.format, pa.ArrowException):
        if isinstance(file, Folder):
            schema, keys, batches, source.rows = _open_folder(source, file)
            word = f"folder of {len(file.files)} files, {file.format}"
        else:
            schema, batches, source.rows = _OPEN[file.format](file)
            word = file.format.title()
            word = word if source.rows is None else f"{word}, {quantity(source.rows, 'row')}"
        source.export = json.loads((schema.metadata or {}).get(METADATA, b"null"))
        name, index = named_range(schema, source.rows) or ("", range(0))
    if source.rows == 0:
        raise NoRows(f"{file.name}: expected rows, got none", schema.names)
    source.table = schema
    choices = source.choices
    if choices.text is None and (source.export or {}).get("text") is not None:
        choices = replace(choices, text="text")
    if index and choices.id in (None, name) and choices.id_start is None:
        schema, choices = schema.append(pa.field(name, pa.int64())), replace(choices, id=name)
        batches = partial(_with_index, batches, name, index)
    layout = choose(schema, choices, keys)
    is_matrix = layout.is_matrix(schema)
    dim = layout.dim(schema)
    if dim is None and not layout.is_sparse and not layout.is_text:
        dim = _usual_length(layout, batches)
    if source.export is not None:
        dim = source.export["dim"]
    layout = replace(layout, width=None if is_matrix else dim)
    describe_table(source, word, layout, dim, is_matrix=is_matrix)
    if is_matrix and (file.path is not None or file.format != "arrow stream"):  # read once
        first = next((batch for batch in batches(0) if batch.num_rows), None)
        if first is not None:
            describe_shares(source, {name: floats(first.column(name)) for name in layout.vector})

    def read() -> Iterator[Items]:
        row, end = source.part
        for batch in batches(row):
            some = batch if end is None else batch.slice(0, end - row)
            yield _items(source, some, layout, row)
            row += some.num_rows
            if row == end:
                break

    source.read, source.divides = read, source.rows is not None


def _items(source: Source, batch: Any, layout: Layout, first: int) -> Items:
    """Return the readable rows of a batch; ``first``: the number of its first row."""

    def parse(places: list[int]) -> Items:
        if len(places) == batch.num_rows:
            return items_of_batch(batch, layout)
        runs = np.split(np.array(places, np.int64), np.flatnonzero(np.diff(places) != 1) + 1)
        parts = [batch.slice(int(run[0]), len(run)) for run in runs if len(run)]
        # Arrow cannot take rows of views.
        return items_of_batch(pa.concat_batches([batch.slice(0, 0), *parts]), layout)

    def show(row: int) -> dict[str, Any]:
        found = {}
        for name in batch.schema.names:
            scalar = batch.column(name)[row - first]
            try:
                found[name] = scalar.as_py()
            except UnicodeDecodeError:
                found[name] = scalar.as_buffer().to_pybytes().decode(errors="replace")
            except (ValueError, OverflowError):
                found[name] = str(scalar.type)
        return found

    return readable_items(source, layout, range(first, first + batch.num_rows), parse, show)


def _with_index(batches: Batches, name: str, index: range, first: int) -> Iterator[Any]:
    for batch in batches(first):
        rest = first + batch.num_rows
        yield batch.append_column(name, pa.array(index[first:rest], pa.int64()))
        first = rest


def _usual_length(layout: Layout, batches: Batches) -> int | None:
    """Return the most frequent length of the first lists."""
    for batch in batches(0):
        if batch.num_rows:
            lengths = pc.list_value_length(batch.column(layout.vector[0]))
            found: list[int | None] = lengths.drop_null().to_pylist()
            return mode(found or [None])
    return None


def _guard(
    name: str, format_: str, batches: Iterator[Any], store: StoredPath | None = None
) -> Iterator[Any]:
    """Yield batches; add the file to errors of Arrow, and the store to errors of the store."""
    stored = nullcontext() if store is None else naming_store(str(store))
    with naming_damage(name, format_, pa.ArrowException), stored:
        yield from batches


def _validated(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield batches after checking offsets of lists and texts, which damaged files violate.

    Text may be invalid UTF-8: such a row is refused later, with its number.
    """
    for batch in batches:
        for column in batch.columns:
            as_bytes = _BYTES_OF.get(column.type)
            (column if as_bytes is None else column.view(as_bytes)).validate(full=True)
        yield batch


def _open_parquet(file: InputFile) -> tuple[Any, Batches, int]:
    import pyarrow.parquet as pq  # noqa: PLC0415

    place = file.random_access()
    opened = pq.ParquetFile(place)

    def batches(first: int) -> Iterator[Any]:
        again = pq.ParquetFile(place) if isinstance(place, Path) else opened
        groups, before = again.metadata, 0
        wanted = [*range(groups.num_row_groups)]
        while wanted and before + groups.row_group(wanted[0]).num_rows <= first:
            before += groups.row_group(wanted.pop(0)).num_rows
        found = again.iter_batches(batch_size=BATCH_ROWS, row_groups=wanted)
        yield from _after(first - before, _guard(file.name, file.format, found))

    return opened.schema_arrow, batches, opened.metadata.num_rows


def _open_file(file: InputFile) -> tuple[Any, Batches, int]:
    place = file.random_access()
    reader = pa.ipc.open_file(pa.memory_map(str(place)) if isinstance(place, Path) else place)

    def parts() -> Iterator[Any]:
        return _validated(map(reader.get_batch, range(reader.num_record_batches)))

    rows = sum(reader.get_batch(n).num_rows for n in range(reader.num_record_batches))

    def batches(first: int) -> Iterator[Any]:
        return _guard(file.name, file.format, _split(_after(first, parts())))

    return reader.schema, batches, rows


def _open_stream(file: InputFile) -> tuple[Any, Batches, None]:
    def parts() -> Iterator[Any]:
        with closing(file.open()) as stream:
            yield from _validated(pa.ipc.open_stream(stream))

    schema = pa.ipc.open_stream(io.BytesIO(file.head)).schema
    return schema, lambda _: _guard(file.name, file.format, _split(parts())), None


_OPEN: Final[dict[str, Callable[[InputFile], tuple[Any, Batches, int | None]]]] = {
    "parquet": _open_parquet, "arrow": _open_file, "arrow stream": _open_stream,
}  # fmt: skip


def _after(count: int, batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        if count < batch.num_rows:
            yield batch.slice(count)
        count = max(0, count - batch.num_rows)


def _split(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield batches in parts of some thousand rows."""
    for batch in batches:
        for first in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(first, BATCH_ROWS)


def _open_folder(source: Source, folder: Folder) -> tuple[Any, list[str], Batches, int]:
    """Return the schema of a folder, its columns from folder names, and its rows."""
    import pyarrow.dataset as ds  # noqa: PLC0415

    files: Sequence[Path | StoredPath] = folder.files
    stored = folder.path if isinstance(folder.path, StoredPath) else None
    dataset = ds.dataset(
        [str(each) if isinstance(each, Path) else each.path for each in files],
        filesystem=None if stored is None else stored.system,
        format="ipc" if folder.format == "arrow" else folder.format,
    )
    columns: dict[str, list[Any]] = {}
    for fragment in dataset.get_fragments():
        for field in fragment.physical_schema:
            columns.setdefault(field.name, []).append(field)
    kinds = folder.whole_keys()
    keys = [key for key in kinds if key not in columns]
    columns |= {key: [pa.field(key, pa.int64() if kinds[key] else pa.string())] for key in keys}
    schema = pa.schema([*map(_unify, columns.values())])

    def with_keys(batch: Any, file: Path | StoredPath, own: Sequence[str]) -> Any:
        """Return a batch with columns from folder names that its file lacks."""
        for key, value in folder.keys(file).items():
            if key not in own:
                place, kind = schema.get_field_index(key), schema.field(key).type
                column = pa.array([value], pa.string()).cast(kind).take([0] * batch.num_rows)
                batch = batch.set_column(place, key, column)
        return batch

    def batches(first: int) -> Iterator[Any]:
        row = 0
        for fragment, file in zip(dataset.get_fragments(), files, strict=True):
            source.starts.append((row, str(file)))
            if first and row + (count := fragment.count_rows()) <= first:
                row += count
                continue
            parts = fragment.to_batches(
                schema=schema, batch_size=BATCH_ROWS, batch_readahead=4, fragment_readahead=1
            )
            own = fragment.physical_schema.names
            whole = (with_keys(part, file, own) for part in _validated(parts))
            store = file if isinstance(file, StoredPath) else None
            found = _guard(str(file), folder.format, whole, store)
            for batch in _after(max(0, first - row), found):
                yield batch
                row = max(row, first) + batch.num_rows
            folder.read_bytes += file.stat().st_size

    return schema, keys, batches, dataset.count_rows()


def _unify(fields: list[Any]) -> Any:
    """Merge a column of several files; numbers and text together become text."""
    schemas = [pa.schema([field]) for field in fields]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0)
    except pa.ArrowTypeError:
        if not any(pa.types.is_string(field.type) for field in fields):
            raise
        return pa.field(fields[0].name, pa.string())
