"""Arrow streams: ``id`` or none, ``vector``, ``indices`` + ``values`` or ``text``, ``payload``.

Arrow has many types for the same data: text as string, large string, view or dictionary; lists as
lists, large lists, views or lists of a fixed size. A batch is first converted to plain types: large
strings, and lists other than views. Views and dictionaries may refer to one long value many times,
so the converted size of a batch is computed before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import from_json

from gcws_search import index as ix
from gcws_search.formats.files import find_repeated
from gcws_search.formats.tables import BYTES, TEXTS, is_list, numpy_of, python_values
from gcws_search.index import AnyArray, Int64s
from gcws_search.service.errors import BodyTooLarge, MalformedBody
from gcws_search.service.ingest.source import ByteReader, ItemRows, Reject
from gcws_search.service.limits import (
    id_in_url,
    require_at_most,
    require_count,
    require_short_id,
    require_short_payload,
)
from gcws_search.service.models import json_text, require_short_vector
from gcws_search.service.settings import Settings

_VECTORS: Final = ("vector", "indices", "names", "values")
_FORMS: Final = ("vector", "indices", "names")
"""One of them is there, or else a column of texts."""
_ITEMS: Final = ("id", *_VECTORS, "payload")
"""Columns of items; all others are fields of their payloads, where that is asked for.

Where it is not, `expires` is one too."""

_WORDS: Final = (*TEXTS, *BYTES)
_VIEWS: Final = (pa.string_view(), pa.binary_view())
_LIST_VIEWS: Final = (pa.ListViewType, pa.LargeListViewType)
_VIEW_BYTES: Final = 16


def read_arrow(
    reader: ByteReader,
    settings: Settings,
    *,
    takes_others: bool = False,
    clock: Callable[[], float] = time.time,
) -> Iterator[ItemRows]:
    """Yield the chunks of an Arrow stream; its own batches are split and joined.

    ``takes_others``: other columns become fields of the payloads. ``clock``: items expire by it.
    """
    check = partial(_check_items, takes_others=takes_others)
    first = 0
    for batch in _rebatch(batches(reader, check, settings.max_arrow_batch_bytes), settings):
        rows = from_batch(batch, first, settings, takes_others=takes_others, now=clock())
        yield replace(rows, size=reader.taken)
        first += len(batch)


def _rebatch(parts: Iterable[Any], settings: Settings) -> Iterator[Any]:
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


def from_batch(
    batch: Any,  # noqa: ANN401
    first: int,
    settings: Settings,
    *,
    takes_others: bool,
    now: float,
) -> ItemRows:
    """Return a plain record batch as a chunk whose first row has the number ``first``."""
    rejects: list[Reject] = []
    ids: list[str | None] = []
    payloads: list[bytes | None] = []
    good: list[int] = []
    expires: list[int | None] = []
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    words = columns.pop("text").to_pylist() if _is_of_texts(columns) else None
    times = None if takes_others else columns.pop("expires", None)
    vectors = {name: columns[name] for name in _VECTORS if name in columns}
    others = {name: columns[name] for name in columns if name not in _ITEMS}
    none = [None] * len(batch)
    texts = columns["payload"].to_pylist() if "payload" in columns else none
    more: list[dict[str, Any] | None] = [*none]
    if others:
        values = zip(*map(_values, others.values()), strict=True)
        more = [dict(zip(others, row, strict=True)) for row in values]
    unusable = _unusable(vectors, settings) if words is None else _bad_texts(words, settings)
    has_ids = "id" in columns
    given = columns["id"].to_pylist() if has_ids else none
    until = none if times is None else times.to_pylist()
    rows = enumerate(zip(given, texts, more, until, strict=True))
    for row, (raw, text, fields, at) in rows:
        try:
            if row in unusable:
                raise unusable.pop(row)  # not bound to a variable: its frames include this one
            ids.append(_id(raw, settings) if has_ids else None)
            expires.append(ix.expiry_ms(at, now=now))
            payload = _payload(text, fields, settings)
            payloads.append(payload if words is None else ix.with_text(payload, words[row]))
        except ix.InvalidInput as error:
            del ids[len(good) :], expires[len(good) :]
            rejects.append(Reject(first + row, error))
        else:
            good.append(row)
    chosen = np.array(good, np.int64)
    if rejects:
        vectors = {name: column.take(pa.array(chosen)) for name, column in vectors.items()}
    if expires.count(None) == len(expires):
        expires = []
    if words is None:
        found = _vectors(vectors)
    else:
        found = ix.InputVectors(mixed=[ix.Text(words[row]) for row in good])
    return ItemRows(first + chosen, ids, payloads, found, rejects, expires=expires)


def _is_of_texts(names: Collection[str]) -> bool:
    """Whether the column ``text`` replaces vectors; otherwise it is another column."""
    return "text" in names and not any(name in names for name in _FORMS)


def _bad_texts(texts: Sequence[str | None], settings: Settings) -> dict[int, ix.InvalidVector]:
    """Return the error of each row whose text is null or too long."""
    found: dict[int, ix.InvalidVector] = {}
    for row, text in enumerate(texts):
        try:
            if text is None:
                raise ix.InvalidVector(expected="a text", got="null", loc=("text",))
            require_short_vector(ix.Text(text), settings, "text")
        except ix.InvalidVector as error:
            found[row] = error
    return found


def _unusable(columns: dict[str, Any], settings: Settings) -> dict[int, ix.InvalidVector]:
    """Return the error of each row whose vector has a null or is too long."""
    found: dict[int, ix.InvalidVector] = {}
    nulls = np.logical_or.reduce([*map(_with_nulls, columns.values())])
    for row in np.flatnonzero(nulls).tolist():
        found[row] = ix.InvalidVector(expected="a vector", got="null", loc=("vector",))
    for column in columns.values():
        lengths = np.diff(_ends(column))
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
    """Return a row's payload: the object in its text, and its other columns."""
    value: Any = None
    if text is not None:
        try:
            value = from_json(text)  # parsed like JSON bodies: integers of any size, bounded depth
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
        ends, values = _lists(columns["vector"])
        lengths = np.diff(ends)
        width = int(lengths[0]) if len(lengths) else 0
        if (lengths == width).all():
            return ix.InputVectors(values.reshape(len(lengths), width))
        return ix.InputVectors(mixed=[values[a:b] for a, b in pairwise(ends.tolist())])
    names: list[str] | None = None
    if "names" in columns:
        ends, names, indices = _words(columns["names"])
    else:
        ends, indices = _lists(columns["indices"])
    value_ends, values = ends, np.ones(len(indices), np.float32)  # sets
    if "values" in columns:
        value_ends, values = _lists(columns["values"])
    if (ends == value_ends).all():
        return ix.InputVectors.sparse(ends, indices, values, names)
    borders = zip(pairwise(ends.tolist()), pairwise(value_ends.tolist()), strict=True)
    return ix.InputVectors(
        mixed=[
            ix.SparseVector(indices[a:b], values[c:d])
            if names is None
            else ix.named_vector([names[code] for code in indices[a:b]], values[c:d])
            for (a, b), (c, d) in borders
        ]
    )


def read_queries(reader: ByteReader, settings: Settings, max_bytes: int) -> ix.InputVectors:
    """Return the vectors of a stream of at most ``max_bytes``; error places begin with a number."""
    found: list[Any] = []
    size = count = 0
    for batch in batches(reader, _check_queries, max_bytes):
        size, count = size + batch.nbytes, count + len(batch)
        require_at_most(count, settings.max_queries_per_request, "queries")
        if size > max_bytes:
            raise BodyTooLarge(max_bytes, "all record batches")
        found.append(batch)
    if not any(map(len, found)):
        return ix.InputVectors(mixed=[])
    whole = pa.concat_batches(found)
    columns = dict(zip(whole.schema.names, whole.columns, strict=True))
    texts = columns["text"].to_pylist() if _is_of_texts(columns) else None
    unusable = _unusable(columns, settings) if texts is None else _bad_texts(texts, settings)
    for row in sorted(unusable)[:1]:
        raise ix.InvalidVector(expected=unusable[row].expected, got=unusable[row].got, loc=(row,))
    if texts is not None:
        return ix.InputVectors(mixed=[*map(ix.Text, texts)])
    return _vectors(columns)


def batches(reader: ByteReader, check: Callable[[Any], None], max_bytes: int) -> Iterator[Any]:
    """Yield the record batches of a stream in plain types, of at most ``max_bytes`` each.

    ``check`` is called with the schema.
    """
    try:
        try:
            stream = pa.ipc.open_stream(reader)
        except BodyTooLarge as error:  # other bytes, read as a length
            raise _not_arrow(error) from None
        with stream:
            check(stream.schema)
            for batch in stream:
                batch.validate(full=True)
                if sum(map(_whole_bytes, batch.columns)) > max_bytes:
                    raise BodyTooLarge(max_bytes, "a record batch")
                columns = [_plain(column) for column in batch.columns]
                yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
            if reader.read(1):
                raise MalformedBody("expected the body to end after the Arrow stream, got more")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _not_arrow(error) from None


def _not_arrow(error: Exception) -> MalformedBody:
    return MalformedBody(f"expected an Arrow stream: {str(error)[:200]}")


def _is_number(kind: Any) -> bool:  # noqa: ANN401
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_written(kind: Any) -> bool:  # noqa: ANN401
    types = pa.types
    return bool(types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind))


def _value_type(kind: Any) -> Any:  # noqa: ANN401
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_json(kind: Any) -> bool:  # noqa: ANN401
    if is_list(kind):
        return _is_json(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_json(kind.field(number).type) for number in range(kind.num_fields))
    is_plain = pa.types.is_null(kind) or pa.types.is_boolean(kind) or kind in TEXTS
    return is_plain or _is_number(kind)


def _check_queries(schema: Any) -> None:  # noqa: ANN401
    names = schema.names
    if set(names) - {*_VECTORS, "text"} or len(set(names)) != len(names):
        expected = "columns vector, or text, or indices or names and maybe values, each once"
        _refuse(expected, ", ".join(names))
    _check_vectors(schema)


def _check_items(schema: Any, *, takes_others: bool) -> None:  # noqa: ANN401
    """Raise InvalidParameter unless the columns are those of items.

    ``takes_others``: other columns become fields of the payload.
    """
    names = schema.names
    if (twice := find_repeated(names)) is not None:
        _refuse("columns of different names", f"{twice!r} twice")
    others = [name for name in names if name not in _ITEMS]
    if _is_of_texts(names):
        others.remove("text")
    if "expires" in others and not takes_others:
        others.remove("expires")
        if (kind := _value_type(schema.field("expires").type)) not in TEXTS:
            _refuse("times as text", str(kind), "expires")
    if others and not takes_others:
        _refuse(
            "columns id, vector, indices or names, values, text, payload, expires, or "
            "?columns=payload, "
            "which makes others fields of the payload",
            ", ".join(map(repr, others)),
        )
    _check_vectors(schema)
    kinds = {name: _value_type(schema.field(name).type) for name in names}
    id_ = kinds.get("id", pa.string())
    if not (id_ in _WORDS or pa.types.is_integer(id_)):
        _refuse("ids as strings or integers", str(id_), "id")
    if "payload" in kinds and kinds["payload"] not in (pa.null(), *_WORDS):
        _refuse("payloads as JSON text", str(kinds["payload"]), "payload")
    for name in others:
        kind = kinds[name]
        if not (_is_json(kind) or _is_written(kind) or pa.types.is_decimal(kind)):
            _refuse(
                "text, numbers, bools, dates, times, and lists or structs of the first three",
                str(kind),
                name,
            )


def _check_vectors(schema: Any) -> None:  # noqa: ANN401
    names = schema.names
    if _is_of_texts(names):
        kind = _value_type(schema.field("text").type)
        if "values" in names or kind not in TEXTS:
            _refuse("a column of strings, and no values", str(kind), "text")
        return
    if sum(name in names for name in _FORMS) != 1 or {"vector", "values"} <= set(names):
        expected = "a column vector, a column text, or columns indices or names, and values"
        _refuse(expected, ", ".join(names) or "none")
    kinds = {name: _value_type(schema.field(name).type) for name in _VECTORS if name in names}
    for name, kind in kinds.items():
        if name == "names":
            if not (is_list(kind) and _value_type(kind.value_type) in TEXTS):
                _refuse("lists of strings", str(kind), name)
        elif not (is_list(kind) and _is_number(kind.value_type)):
            _refuse("lists of numbers", str(kind), name)
    if "indices" in kinds and not pa.types.is_integer(kinds["indices"].value_type):
        _refuse("lists of integers", str(kinds["indices"]), "indices")


def _refuse(expected: str, got: str, *loc: str) -> None:
    raise ix.InvalidParameter(expected=expected, got=got, loc=loc)


def _plain(column: Any) -> Any:  # noqa: ANN401
    """Return a column without views and dictionaries; its texts are large strings."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        values = _plain(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    if kind in _WORDS:
        return column.cast(pa.large_string())
    is_of_words = is_list(kind) and _value_type(kind.value_type) in _WORDS
    if isinstance(kind, _LIST_VIEWS) or is_of_words:
        borders = pa.array(_ends(column), mask=np.append(_nulls(column), [False]))
        return pa.LargeListArray.from_arrays(borders, _plain(column.flatten()))
    return column


def _whole_bytes(column: Any) -> int:  # noqa: ANN401
    """Return the approximate bytes of a column without views and dictionaries."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        sizes = _sizes(column.dictionary)
        codes = numpy_of(column.indices.drop_null())
        return int(sizes[codes].sum()) if len(codes) else 0
    if kind in _VIEWS:
        return int(_sizes(column).sum())
    if is_list(kind):
        items = pc.sum(pc.list_value_length(column)).as_py() or 0
        # Only the size of numbers is known before views are resolved.
        width = kind.value_type.bit_width // 8 if _is_number(kind.value_type) else _VIEW_BYTES
        return int(
            items * width if isinstance(kind, _LIST_VIEWS) else _whole_bytes(column.flatten())
        )
    if pa.types.is_struct(kind):
        return sum(map(_whole_bytes, column.flatten()))
    return int(column.nbytes)


def _sizes(column: Any) -> Int64s:  # noqa: ANN401
    """Return the approximate bytes of each value of a column."""
    kind = column.type
    if kind in _VIEWS:
        buffer = column.buffers()[1]
        if buffer is None or not len(column):
            return np.zeros(len(column), np.int64)
        # A view is four words; the first one is its length.
        views = np.frombuffer(buffer, np.int32).reshape(-1, 4)
        lengths = views[column.offset : column.offset + len(column), 0].astype(np.int64)
        return np.where(_nulls(column), 0, lengths)
    if kind in _WORDS:
        return _lengths(pc.binary_length(column))
    mean = -(-_whole_bytes(column) // max(1, len(column)))
    return np.full(len(column), mean, np.int64)


def _nulls(column: Any) -> AnyArray:  # noqa: ANN401
    return np.asarray(numpy_of(column.is_null()))


def _ends(column: Any) -> Int64s:  # noqa: ANN401
    """Return the borders of lists among all values, (n + 1,)."""
    found = np.zeros(len(column) + 1, np.int64)
    np.cumsum(_lengths(pc.list_value_length(column)), out=found[1:])
    return found


def _lengths(column: Any) -> Int64s:  # noqa: ANN401
    """Return a column of lengths; 0 for null."""
    found = column.fill_null(0) if column.null_count else column
    return np.asarray(numpy_of(found), np.int64)


def _lists(column: Any) -> tuple[Int64s, Any]:  # noqa: ANN401
    """Return the borders of lists, (n + 1,), and all values."""
    return _ends(column), numpy_of(column.flatten())


def _words(column: Any) -> tuple[Int64s, list[str], Int64s]:  # noqa: ANN401
    """Return the borders of lists of texts, the distinct texts, and the number of each text."""
    coded = column.flatten().dictionary_encode()
    codes = numpy_of(coded.indices).astype(np.int64)
    return _ends(column), coded.dictionary.to_pylist(), codes


def _with_nulls(column: Any) -> Any:  # noqa: ANN401
    """Return (n,) bool: rows with a missing list, or a missing number in one."""
    missing = _nulls(column)
    flat = column.flatten()
    if flat.null_count:
        row_of = np.repeat(np.arange(len(column)), np.diff(_ends(column)))
        missing = missing.copy()
        missing[row_of[numpy_of(flat.is_null())]] = True
    return missing


def _values(column: Any) -> list[Any]:  # noqa: ANN401
    """Return a column as JSON values: times in ISO 8601, float32 0.1 as 0.1."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
    elif _is_written(kind):
        column = column.cast(pa.string())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    return python_values(column)
