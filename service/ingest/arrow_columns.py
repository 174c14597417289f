"""Columns of Arrow record batches: which are permitted, and how each is read.

Arrow writes one thing in many ways: text as string, large string, view or dictionary, lists as
lists, large lists, views or lists of a fixed size. A batch becomes `plain` first: large strings,
and lists that are no views. Views and dictionaries may name one long value many times, so what a
batch would be without them is counted before that.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gcws_search import index as ix
from gcws_search.index import AnyArray, Int64s
from gcws_search.service.errors import BodyTooLarge

VECTORS: Final = ("vector", "indices", "names", "values")
_FORMS: Final = ("vector", "indices", "names")
"""One of them is there."""
ITEMS: Final = ("id", *VECTORS, "payload")
"""Columns of items; all others are fields of their payloads, where that is asked for."""

_LISTS: Final = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
_TEXTS: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES: Final = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_SCALARS: Final = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    *_TEXTS,
)
_WRITTEN: Final = (pa.types.is_date, pa.types.is_timestamp, pa.types.is_time)
_VIEW_BYTES: Final = 16


def _is_any(kind: Any, tests: Any) -> bool:  # noqa: ANN401
    return any(test(kind) for test in tests)


def _is_text(kind: Any) -> bool:  # noqa: ANN401
    return _is_any(_value_type(kind), (*_TEXTS, *_BYTES))


def _is_number(kind: Any) -> bool:  # noqa: ANN401
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _value_type(kind: Any) -> Any:  # noqa: ANN401
    """Return the type of a column's values, dictionary-encoded or not."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_json(kind: Any) -> bool:  # noqa: ANN401
    """Return whether values of a type within lists and structs are written as JSON."""
    if _is_any(kind, _LISTS):
        return _is_json(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_json(kind.field(number).type) for number in range(kind.num_fields))
    return _is_any(kind, _SCALARS)


def check_queries(schema: Any) -> None:  # noqa: ANN401
    """Raise InvalidParameter unless the columns are those of vectors alone."""
    names = schema.names
    if set(names) - {*VECTORS} or len(set(names)) != len(names):
        expected = "columns vector, or indices or names and maybe values, each once"
        _refuse(expected, ", ".join(names))
    _check_vectors(schema)


def check_items(schema: Any, *, takes_others: bool) -> None:  # noqa: ANN401
    """Raise InvalidParameter unless the columns are those of items.

    ``takes_others``: other columns become fields of the payload.
    """
    names = schema.names
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        _refuse("columns of different names", f"{twice!r} twice")
    others = [name for name in names if name not in ITEMS]
    if others and not takes_others:
        _refuse(
            "columns id, vector, indices or names, values, payload, or ?columns=payload, which "
            "makes others fields of the payload",
            ", ".join(map(repr, others)),
        )
    _check_vectors(schema)
    kinds = {name: _value_type(schema.field(name).type) for name in names}
    id_ = kinds.get("id", pa.string())
    if not (_is_any(id_, (*_TEXTS, *_BYTES)) or pa.types.is_integer(id_)):
        _refuse("ids as strings or integers", str(id_), "id")
    if "payload" in kinds and not _is_any(kinds["payload"], (pa.types.is_null, *_TEXTS, *_BYTES)):
        _refuse("payloads as JSON text", str(kinds["payload"]), "payload")
    for name in others:
        kind = kinds[name]
        if not (_is_json(kind) or _is_any(kind, _WRITTEN) or pa.types.is_decimal(kind)):
            _refuse(
                "text, numbers, bools, dates, times, and lists or structs of the first three",
                str(kind),
                name,
            )


def _check_vectors(schema: Any) -> None:  # noqa: ANN401
    names = schema.names
    if sum(name in names for name in _FORMS) != 1 or {"vector", "values"} <= set(names):
        expected = "a column vector, or columns indices or names, and values"
        _refuse(expected, ", ".join(names) or "none")
    kinds = {name: _value_type(schema.field(name).type) for name in VECTORS if name in names}
    for name, kind in kinds.items():
        is_list = _is_any(kind, _LISTS)
        if name == "names":
            if not (is_list and _is_any(_value_type(kind.value_type), _TEXTS)):
                _refuse("lists of strings", str(kind), name)
        elif not (is_list and _is_number(kind.value_type)):
            _refuse("lists of numbers", str(kind), name)
    if "indices" in kinds and not pa.types.is_integer(kinds["indices"].value_type):
        _refuse("lists of integers", str(kinds["indices"]), "indices")


def _refuse(expected: str, got: str, *loc: str) -> None:
    raise ix.InvalidParameter(expected=expected, got=got, loc=loc)


def plain(batch: Any, max_bytes: int) -> Any:  # noqa: ANN401
    """Return a record batch without views and dictionaries, its texts as large strings.

    BodyTooLarge: it would have more bytes than ``max_bytes``.
    """
    if sum(map(_whole_bytes, batch.columns)) > max_bytes:
        raise BodyTooLarge(max_bytes, "a record batch")
    columns = [_plain(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _plain(column: Any) -> Any:  # noqa: ANN401
    kind = column.type
    if pa.types.is_dictionary(kind):
        values = _plain(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    if _is_any(kind, (*_TEXTS, *_BYTES)):
        return column.cast(pa.large_string())
    is_view = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    if is_view or (_is_any(kind, _LISTS) and _is_text(kind.value_type)):
        borders = pa.array(ends(column), mask=np.append(_nulls(column), [False]))
        return pa.LargeListArray.from_arrays(borders, _plain(column.flatten()))
    return column


def _whole_bytes(column: Any) -> int:  # noqa: ANN401
    """Return about how many bytes a column has without views and dictionaries."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        sizes = _sizes(column.dictionary)
        codes = column.indices.drop_null().to_numpy(zero_copy_only=False)
        return int(sizes[codes].sum()) if len(codes) else 0
    if _is_any(kind, (pa.types.is_string_view, pa.types.is_binary_view)):
        return int(_sizes(column).sum())
    if _is_any(kind, _LISTS):
        items = pc.sum(pc.list_value_length(column)).as_py() or 0
        is_view = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
        # Only numbers have a size of their own that can be known before the view is followed.
        width = kind.value_type.bit_width // 8 if _is_number(kind.value_type) else _VIEW_BYTES
        return int(items * width if is_view else _whole_bytes(column.flatten()))
    if pa.types.is_struct(kind):
        return sum(map(_whole_bytes, column.flatten()))
    return int(column.nbytes)


def _sizes(column: Any) -> Int64s:  # noqa: ANN401
    """Return about how many bytes each value of a column has."""
    kind = column.type
    if _is_any(kind, (pa.types.is_string_view, pa.types.is_binary_view)):
        buffer = column.buffers()[1]
        if buffer is None or not len(column):
            return np.zeros(len(column), np.int64)
        # A view is four words, and the first of them is its length.
        views = np.frombuffer(buffer, np.int32).reshape(-1, 4)
        lengths = views[column.offset : column.offset + len(column), 0].astype(np.int64)
        return np.where(_nulls(column), 0, lengths)
    if _is_any(kind, (*_TEXTS, *_BYTES)):
        found = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        return np.asarray(found, np.int64)
    mean = -(-_whole_bytes(column) // max(1, len(column)))
    return np.full(len(column), mean, np.int64)


def _nulls(column: Any) -> AnyArray:  # noqa: ANN401
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


def ends(column: Any) -> Int64s:  # noqa: ANN401
    """Return where each list begins and ends among all values, (n + 1,)."""
    found = np.zeros(len(column) + 1, np.int64)
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    np.cumsum(lengths, out=found[1:])
    return found


def lists(column: Any) -> tuple[Int64s, Any]:  # noqa: ANN401
    """Return where each list begins and ends, (n + 1,), and all values."""
    return ends(column), column.flatten().to_numpy(zero_copy_only=False)


def words(column: Any) -> tuple[Int64s, list[str], Int64s]:  # noqa: ANN401
    """Return where each list of texts begins and ends, each text once, and the place of each."""
    coded = column.flatten().dictionary_encode()
    codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return ends(column), coded.dictionary.to_pylist(), codes


def with_nulls(column: Any) -> Any:  # noqa: ANN401
    """Return (n,) bool: rows with a missing list, or a missing number in one."""
    missing = _nulls(column)
    flat = column.flatten()
    if flat.null_count:
        row_of = np.repeat(np.arange(len(column)), np.diff(ends(column)))
        missing = missing.copy()
        missing[row_of[flat.is_null().to_numpy(zero_copy_only=False)]] = True
    return missing


def fields(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each row of some columns as the fields of a payload."""
    values = [_values(column) for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def _values(column: Any) -> list[Any]:  # noqa: ANN401
    """Return a column as JSON has it: times as ISO 8601 writes them, 0.1 of 32 bits as 0.1."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        text = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
        column = text
    elif _is_any(kind, _WRITTEN):
        column = column.cast(pa.string())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_float32(kind):
        column = column.cast(pa.string()).cast(pa.float64())
    found: list[Any] = column.to_pylist()
    return found
