"""Arrow streams: ``id`` or none, ``vector`` or ``indices`` + ``values``, and ``payload``."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic_core import from_json

from gcws_search import index as ix
from gcws_search.service.errors import BodyTooLarge, MalformedBody
from gcws_search.service.ingest import arrow_columns
from gcws_search.service.ingest.rows import ItemRows, Reject
from gcws_search.service.ingest.source import ByteReader
from gcws_search.service.limits import (
    id_in_url,
    require_count,
    require_few_queries,
    require_short_id,
    require_short_payload,
)
from gcws_search.service.models import json_text
from gcws_search.service.settings import Settings


def read_arrow(
    reader: ByteReader, settings: Settings, *, takes_others: bool = False
) -> Iterator[ItemRows]:
    """Yield the chunks of an Arrow stream; its own batches are cut and joined to chunks.

    ``takes_others``: columns that items do not have become fields of their payloads.
    """
    check = partial(arrow_columns.check_items, takes_others=takes_others)
    first = 0
    for batch in _rebatch(batches(reader, check, settings.max_arrow_batch_bytes), settings):
        yield replace(from_batch(batch, first, settings), size=reader.taken)
        first += len(batch)


def _rebatch(parts: Iterable[Any], settings: Settings) -> Iterator[Any]:
    """Yield record batches of the size of a chunk."""
    gathered: list[Any] = []
    rows, size = 0, 0
    for batch in parts:
        row_bytes = max(1, batch.nbytes // max(1, len(batch)))
        start = 0
        while start < len(batch):
            room = min(
                settings.load_chunk_rows - rows, (settings.load_chunk_bytes - size) // row_bytes
            )
            part = batch.slice(start, max(1, room))
            gathered.append(part)
            start += len(part)
            rows += len(part)
            size += len(part) * row_bytes
            if rows >= settings.load_chunk_rows or size + row_bytes > settings.load_chunk_bytes:
                yield pa.concat_batches(gathered)
                gathered, rows, size = [], 0, 0
    if gathered:
        yield pa.concat_batches(gathered)


def from_batch(batch: Any, first: int, settings: Settings) -> ItemRows:  # noqa: ANN401
    """Return a plain record batch as a chunk whose first row has the number ``first``."""
    rejects: list[Reject] = []
    ids: list[str | None] = []
    payloads: list[bytes | None] = []
    good: list[int] = []
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    vectors = {name: columns[name] for name in arrow_columns.VECTORS if name in columns}
    others = {name: columns[name] for name in columns if name not in arrow_columns.ITEMS}
    none = [None] * len(batch)
    texts = columns["payload"].to_pylist() if "payload" in columns else none
    more = arrow_columns.fields(others) if others else none
    unusable = _unusable(vectors, settings)
    has_ids = "id" in columns
    given = columns["id"].to_pylist() if has_ids else none
    rows = enumerate(zip(given, texts, more, strict=True))
    for row, (raw, text, fields) in rows:
        try:
            if row in unusable:
                raise unusable[row]
            ids.append(_id(raw, settings) if has_ids else None)
            payloads.append(_payload(text, fields, settings))
        except ix.InvalidInput as error:
            del ids[len(good) :]
            rejects.append(Reject.of(first + row, error))
        else:
            good.append(row)
    chosen = np.array(good, np.int64)
    if rejects:
        vectors = {name: column.take(pa.array(chosen)) for name, column in vectors.items()}
    return ItemRows(first + chosen, ids, payloads, _vectors(vectors), rejects)


def _unusable(columns: dict[str, Any], settings: Settings) -> dict[int, ix.InvalidVector]:
    """Return the error of each row whose vector has a null or is too long."""
    found: dict[int, ix.InvalidVector] = {}
    nulls = np.logical_or.reduce([*map(arrow_columns.with_nulls, columns.values())])
    for row in np.flatnonzero(nulls).tolist():
        found[row] = ix.InvalidVector(expected="a vector", got="null", loc=("vector",))
    for column in columns.values():
        lengths = np.diff(arrow_columns.ends(column))
        for row in np.flatnonzero(lengths > settings.max_nonzeros).tolist():
            try:
                require_count(int(lengths[row]), settings, "vector")
            except ix.InvalidVector as error:
                found.setdefault(row, error)
    return found


def _id(raw: str | int | None, settings: Settings) -> str:
    if raw is None:
        raise ix.InvalidId(expected="a string or an integer", got="null", loc=("id",))
    text = id_in_url(str(raw))
    require_short_id(text, settings, "id")
    return text


def _payload(text: str | None, fields: dict[str, Any] | None, settings: Settings) -> bytes | None:
    """Return a row's payload: the object of its text, and its other columns."""
    value: Any = None
    if text is not None:
        try:
            value = from_json(text)  # as JSON bodies are read: integers of any size, bounded depth
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ix.InvalidPayload(
                expected="the text of a JSON object", got=repr(text)[:80], loc=("payload",)
            )
    if fields is None:
        return _short_payload(value, settings)
    for name in fields if value else ():
        if name in value:
            raise ix.InvalidPayload(
                expected="fields other than the columns", got=repr(name)[:80], loc=("payload",)
            )
    return _short_payload({**(value or {}), **fields}, settings)


def _short_payload(value: dict[str, Any] | None, settings: Settings) -> bytes | None:
    try:
        text = None if value is None else json_text(value)
    except ValueError:
        raise ix.InvalidPayload(
            expected="finite numbers", got="NaN or an infinity", loc=("payload",)
        ) from None
    require_short_payload(text, settings, "payload")
    return text


def _vectors(columns: dict[str, Any]) -> ix.InputVectors:
    if "vector" in columns:
        ends, values = arrow_columns.lists(columns["vector"])
        lengths = np.diff(ends)
        width = int(lengths[0]) if len(lengths) else 0
        if (lengths == width).all():
            return ix.InputVectors(values.reshape(len(lengths), width))
        return ix.InputVectors(mixed=[values[a:b] for a, b in pairwise(ends.tolist())])
    names: list[str] | None = None
    if "names" in columns:
        ends, names, indices = arrow_columns.words(columns["names"])
    else:
        ends, indices = arrow_columns.lists(columns["indices"])
    value_ends, values = ends, np.ones(len(indices), np.float32)  # sets
    if "values" in columns:
        value_ends, values = arrow_columns.lists(columns["values"])
    if (ends == value_ends).all():
        return ix.InputVectors.sparse(ends, indices, values, names)
    borders = zip(pairwise(ends.tolist()), pairwise(value_ends.tolist()), strict=True)
    return ix.InputVectors(
        mixed=[
            ix.SparseVector(indices[a:b], values[c:d])
            if names is None
            else ix.NamedVector([names[code] for code in indices[a:b]], values[c:d])
            for (a, b), (c, d) in borders
        ]
    )


def read_queries(reader: ByteReader, settings: Settings, max_bytes: int) -> ix.InputVectors:
    """Return the vectors of a whole stream of at most ``max_bytes``; errors begin with a number."""
    found: list[Any] = []
    size = count = 0
    for batch in batches(reader, arrow_columns.check_queries, max_bytes):
        size, count = size + batch.nbytes, count + len(batch)
        require_few_queries(count, settings)
        if size > max_bytes:
            raise BodyTooLarge(max_bytes, "all record batches")
        found.append(batch)
    if not any(map(len, found)):
        return ix.InputVectors(mixed=[])
    whole = pa.concat_batches(found)
    columns = dict(zip(whole.schema.names, whole.columns, strict=True))
    unusable = _unusable(columns, settings)
    for row in sorted(unusable)[:1]:
        raise ix.InvalidVector(expected=unusable[row].expected, got=unusable[row].got, loc=(row,))
    return _vectors(columns)


def batches(reader: ByteReader, check: Callable[[Any], None], max_bytes: int) -> Iterator[Any]:
    """Yield the record batches of a stream, plain, of at most ``max_bytes`` each.

    ``check`` is called with the schema.
    """
    try:
        with _open_stream(reader) as stream:
            check(stream.schema)
            for batch in stream:
                batch.validate(full=True)
                yield arrow_columns.plain(batch, max_bytes)
            if reader.read(1):
                raise MalformedBody("expected the body to end after the Arrow stream, got more")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _not_arrow(error) from None


def _open_stream(reader: ByteReader) -> Any:  # noqa: ANN401
    try:
        return pa.ipc.open_stream(reader)
    except BodyTooLarge as error:  # other bytes, taken for a length
        raise _not_arrow(error) from None


def _not_arrow(error: Exception) -> MalformedBody:
    return MalformedBody(f"expected an Arrow stream: {str(error)[:200]}")
