"""Tables with named columns, in memory or in files: the roles of columns, and their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from operator import add, methodcaller
from types import NoneType
from typing import Any, Final, Literal
from uuid import UUID

import numpy as np
import pyarrow as pa

from gcws_search.formats.files import BadFile, find_repeated, list_some
from gcws_search.formats.items import Ids, Items, ids_of, with_expiries
from gcws_search.formats.payloads import (
    FLOAT_DIGITS,
    NAME_IT,
    from_columns,
    is_json,
    payloads_of,
    written_floats,
)
from gcws_search.formats.sources import Choices, Source
from gcws_search.formats.vectors import column_names, is_names, is_series, rows_of_texts
from gcws_search.index import (
    InputVectors,
    InvalidId,
    InvalidInput,
    InvalidParameter,
    InvalidPayload,
    InvalidVector,
    quantity,
    raise_first,
)

INDEX: Final = "index"
"""What stands for the index of a frame of pandas among the names of columns."""
_LEVEL: Final = "__index_level_"
"""What Arrow calls an index without a name begins with this."""
UNNAMED: Final = ""
"""What pandas and R call the index of a frame in CSV: it has the ids, and is no coordinate."""
_SPARSE: Final = (("indices", "values"), ("names", "values"))
_SHOWN: Final = 8
_UUID_BYTES: Final = 16
EXACT: Final = 2**53
"""Whole numbers up to it are exact as floats."""
_LISTS: Final = (
    pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType,
)  # fmt: skip
TEXTS: Final = (pa.string(), pa.large_string(), pa.string_view())
BYTES: Final = (pa.binary(), pa.large_binary(), pa.binary_view())
_NO_COLUMN: Final = (pa.ArrowException, OverflowError, UnicodeError)
"""Arrow makes no column of values of several types, of integers beyond 64 bits, of no Unicode."""
_IDS: Final = "text, whole numbers or UUIDs as ids"
_JSON: Final = "values that JSON holds"
_KEEP: Final = "; --payload, in Python payloads=, names the columns to keep"

_PLAIN: Final = {str, int, float, bool, NoneType, Decimal, date, datetime}
_NO_COLUMNS: Final[Mapping[str, list[Any]]] = {}

Kind = Literal["number", "truth", "text"]
TYPES: Final[Mapping[Kind, Any]] = {
    "number": pa.float64(), "truth": pa.bool_(), "text": pa.string(),
}  # fmt: skip

_SAID: Final = 4
_HALF: Final = 0.5
_EVEN: Final = 1.5
"""Times its even share that a column may have of two."""
_APART: Final = 100
_WHOLE: Final = 1 << 24
"""Whole numbers up to this one are kept as they are in a float32."""
_LEAST: Final = 0.001
_NARROW: Final = (
    "--scale standard divides each column by its deviation, --payload takes it out of the vector"
)
_CHOOSE: Final = "; --payload takes columns out of the vector"
_ENOUGH: Final = 3
"""A column of numbers with fewer cells has no cell that is no number."""
_SHARE: Final = 10
"""One cell in ten may be no number."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The roles of columns.

    ``vector``: one column of lists; or ``indices`` or ``names`` with ``values``; or one column per
    coordinate. ``payload_text``: the one payload column holds the JSON text of whole payloads.
    ``is_text``: ``vector`` is one column of texts instead of vectors. ``expires``: a column of
    times, as in exports. ``width``: numbers of each list; None: as many as the first has.
    """

    id: str | None
    vector: tuple[str, ...]
    payload: tuple[str, ...]
    payload_text: bool = False
    is_text: bool = False
    expires: str | None = None
    width: int | None = None

    @property
    def is_sparse(self) -> bool:
        """Whether vectors are given by their non-zero coordinates."""
        return self.vector in _SPARSE

    def is_matrix(self, schema: Any) -> bool:
        """Whether each coordinate is a column."""
        return not (self.is_sparse or self.is_text or is_list(schema.field(self.vector[0]).type))

    def dim(self, schema: Any) -> int | None:
        """Return the number of coordinates, if the columns determine it."""
        kind = schema.field(self.vector[0]).type
        if pa.types.is_fixed_size_list(kind) and not self.is_sparse:
            return int(kind.list_size)
        return len(self.vector) if self.is_matrix(schema) else None


def payload_keys(names: Sequence[str]) -> list[str]:
    """Return the payload keys of columns: an unnamed index is `index`, as in pandas."""
    levels = [name for name in names if name.startswith(_LEVEL)]
    is_index = len(levels) == 1 and INDEX not in names
    keys = {
        name: INDEX if is_index else f"level_{name.removeprefix(_LEVEL).rstrip('_')}"
        for name in levels
    }
    found = [keys.get(name, name) for name in names]
    _require_different_names(found)
    return found


Mixed = Mapping[str, list[Any]]
"""Columns of a frame of pandas that Arrow has no type for, such as of numbers and texts."""


def _table_and_mixed(frame: Any) -> tuple[Any, Mixed]:
    """Return a frame as an Arrow table with null for mixed columns, and these columns."""
    if not _is_of_pandas(frame):
        return _without_empty(_table_of(frame)), {}
    frame = _with_plain_columns(frame)
    if {*map(type, frame.index)} == {str, int}:
        frame = frame.set_axis(frame.index.map(str))
    columns = {name: frame[name] for name, kind in frame.dtypes.items() if kind.kind in "Oc"}
    mixed = {name: column for name, column in columns.items() if _has_others(column.tolist())}
    rest = frame.assign(**dict.fromkeys(mixed)) if mixed else frame
    try:
        table = _table_of(rest)
    except InvalidParameter:  # also for integers beyond 64 bits, and unpaired surrogates
        mixed |= {name: column for name, column in columns.items() if not _is_of_one_type(column)}
        table = _table_of(frame.assign(**dict.fromkeys(mixed)))
    return _without_empty(table), {name: _present_values(each) for name, each in mixed.items()}


def _is_of_pandas(frame: Any) -> bool:
    """Return whether this is a frame of pandas, whose columns are also its attributes."""
    return hasattr(frame, "iloc") and hasattr(frame, "columns")


def _with_plain_columns(frame: Any) -> Any:
    """Return a pandas frame with distinct texts as names and dense columns."""
    if any(not isinstance(name, str) for name in frame.columns):  # often numbers
        frame = frame.rename(columns=str)
    _require_different_names([*frame.columns])
    sparse = {
        name: kind.subtype for name, kind in frame.dtypes.items() if hasattr(kind, "fill_value")
    }
    return frame.astype(sparse) if sparse else frame


def _require_different_names(names: list[str]) -> None:
    if (twice := find_repeated(names)) is not None:
        raise InvalidParameter(expected="columns of different names", got=f"{twice!r} twice")


def _has_others(values: list[Any]) -> bool:
    """Whether a value is neither JSON nor bytes, which may be ids, or has its own keys."""
    return not {*map(type, values)} <= _PLAIN and any(
        _has_keys(each) or not (isinstance(each, bytes) or is_json(each)) for each in values
    )


def _has_keys(value: Any) -> bool:
    """Whether a value is or contains a dict; in Arrow all rows of a column would share its keys."""
    is_list = isinstance(value, list | tuple | np.ndarray)
    return isinstance(value, Mapping) or (is_list and any(map(_has_keys, value)))


def _is_of_one_type(column: Any) -> bool:
    try:
        pa.array(column, from_pandas=True)
    except _NO_COLUMN:
        return False
    return True


def _present_values(column: Any) -> list[Any]:
    """Return the values of a column, None for pandas' missing values."""
    is_absent = column.isna().tolist()
    return [None if absent else value for value, absent in zip(column, is_absent, strict=True)]


def _table_of(frame: Any) -> Any:
    """Return any frame, or a dataset, as an Arrow table; a column becomes ``vector``."""
    if isinstance(frame, pa.Table):
        return frame
    if is_series(frame):
        if len(getattr(frame, "shape", ())) > 1:  # such as of xarray
            got = f"a {type(frame).__name__}; .to_numpy() makes an array of it"
            raise InvalidVector(expected="a frame, or a column of lists", got=got)
        column = pa.chunked_array([frame] if isinstance(frame, pa.Array) else frame)
        if not is_list(column.type):
            raise InvalidVector(
                expected="a frame, or a column of lists", got=f"a column of {column.type}"
            )
        return pa.table({"vector": column})
    if hasattr(frame, "to_table") and not _is_of_pandas(frame):
        return frame.to_table()
    try:
        return pa.table(frame)
    except _NO_COLUMN as error:
        text = "; ".join(map(str, error.args))[:200]
        expected = "columns of one type each, which Arrow has"
        raise InvalidParameter(expected=expected, got=text) from None


def payload_columns(frame: Any) -> dict[str, Any]:
    """Return the columns of a frame of payloads; a series is one column, by its name.

    An unnamed index of a pandas frame is no column.
    """
    if is_series(frame):
        name = getattr(frame, "name", None)
        if isinstance(name, str) and name:
            return {name: frame}
        raise InvalidPayload(
            expected="a dict of columns, or a frame",
            got=f"a column without a name{NAME_IT}",
            loc=("payloads",),
        )
    table, mixed = _table_and_mixed(frame)
    names = [name for name in table.column_names if not name.startswith(_LEVEL)]
    return {name: mixed.get(name) or python_values(table[name]) for name in names}


def rows_of_frame(frame: Any, dim: int | None = None) -> InputVectors:
    """Return the vectors of a frame; lists have ``dim`` numbers, or as many as the first."""
    table, _ = _table_and_mixed(frame)
    return _rows(_columns(table), replace(guess(table.schema), width=dim))


def items_of_frame(
    frame: Any,
    ids: Any,
    payloads: Any,
    id_start: int | None = None,
    text: str | None = None,
    dim: int | None = None,
) -> Items:
    """Return the rows of a frame as items; see `guess` for the roles of its columns.

    ``text``: the name of the column of texts, if there is one. ``ids``: the name of the column of
    ids, "index" for the index of a pandas frame, or the ids; None takes a column or an index that
    `guess` finds. ``dim``: as in `rows_of_frame`.
    """
    table, mixed = _table_and_mixed(frame)
    if text is not None and text in mixed:
        try:
            rows_of_texts(mixed[text], text)
        except InvalidVector as error:
            raise error.at("rows") from None
    named = is_names(payloads)
    columns = ([payloads] if isinstance(payloads, str) else list(payloads)) if named else None
    id_ = ids if isinstance(ids, str) else None
    if id_ == INDEX and INDEX not in table.schema.names:
        ids = _index_of(table)
        id_ = ids if isinstance(ids, str) else None
    elif ids is None:
        _, ids = named_range(table.schema, table.num_rows) or (None, None)
    try:
        layout = guess(table.schema, id_=id_, text=text, payload=columns)
    except InvalidPayload as error:  # of a column; its first bad value gives more detail
        key, expected, kind = str(error.loc[-1]), error.expected, error.got
        place = payload_keys(table.column_names).index(key)
        raise_first(  # it is read further after this block, which has no `error` then
            InvalidPayload(expected=expected, got=f"{value}, {kind}", loc=(row, key))
            for row, value in enumerate(table.column(place))
            if value.is_valid
        )
        raise
    layout = replace(layout, width=dim)
    if ids is None and layout.id in _index_columns(table.schema):
        _require_different(table.column(layout.id))
    try:
        items = items_of_batch(table, layout, id_start, mixed)
    except InvalidVector as error:
        raise error if text is None else error.at("rows") from None
    if ids is not None and not isinstance(ids, str):
        items = replace(items, ids=ids_of(ids, len(items)))
    if payloads is not None and not named:
        items = replace(items, payloads=payloads_of(payloads, len(items)))
    return items


def guess(
    schema: Any,
    *,
    id_: str | None = None,
    vector: Sequence[str] | None = None,
    text: str | None = None,
    payload: Sequence[str] | None = None,
) -> Layout:
    """Return the roles of a table's columns; names may be patterns such as ``px*``.

    The ids are in a column called ``id``, unless it has another role. Otherwise they are in the
    index of a pandas frame, or in a column without a name, which CSV has for that index. Such an
    index only counts rows, and is left out, if it has no name, and whole numbers, in CSV any
    numbers. An empty ``id_`` is the column without a name, or no column if there is none. Beside
    JSON text in ``payload`` alone, times with a zone in ``expires`` are the expiries of items.
    Vectors are a column of lists of numbers, ``indices`` or ``names`` with ``values``, or else all
    columns of numbers; a ``text`` column replaces them. All others are fields of the payload.

    Raises
    ------
    InvalidParameter
        A column is missing, or does not fit its role; no column can be a vector.
    InvalidPayload
        JSON has no value for a value in a column of the payload.
    """
    names = [*schema.names]
    _require_different_names(names)
    told = {*(vector or ()), *(payload or ())}
    called = [name for name in names if name.lower() == "id" and name not in told]
    levels = {UNNAMED, *_index_columns(schema)}
    index = [name for name in names if name in levels]
    counts = [  # the rows of a frame; one level of several does not, and fractions do not
        name
        for name in index
        if (name == UNNAMED and _is_numbers(schema.field(name).type))
        or (
            name.startswith(_LEVEL)
            and len(index) == 1
            and pa.types.is_integer(schema.field(name).type)
        )
    ]
    if id_ is None:
        if not called and len(index) == 1 and not counts:
            kind = schema.field(index[0]).type
            called = index if _is_text(kind) or pa.types.is_integer(kind) else []
        id_ = next(iter(called), None)
    elif id_ == UNNAMED not in names:
        id_ = None
    elif id_ not in names:
        raise _missing(id_, schema, names)
    free = [name for name in names if name != id_ and name not in counts]
    fields = [] if payload is None else _matching(payload, schema, free)
    if text is not None:
        coordinates = _matching([text], schema, free)[:1]
        kind = schema.field(coordinates[0]).type
        if not _is_text(kind):
            raise InvalidParameter(expected=f"text in column {text!r}", got=str(kind))
    elif vector is None:
        others = {*fields, *called, *index}
        coordinates = _guess_vector(schema, [name for name in free if name not in others])
    else:
        coordinates = _matching(vector, schema, free)
        _require_numbers(schema, coordinates)
    expires = None
    if payload is None:
        chosen = {*coordinates}
        fields = [name for name in free if name not in chosen]
        if {*fields} == {"payload", "expires"}:
            has_zone = getattr(schema.field("expires").type, "tz", None) is not None
            fields, expires = (["payload"], "expires") if has_zone else (fields, None)
    for name in fields:
        kind = schema.field(name).type
        if not _is_json(kind):
            key = payload_keys(names)[names.index(name)]
            raise InvalidPayload(expected=_JSON, got=f"{kind}{_KEEP}", loc=("payload", key))
    is_json = fields == ["payload"] and _is_text(schema.field("payload").type)
    return Layout(id_, tuple(coordinates), tuple(fields), is_json, text is not None, expires)


def _index(schema: Any) -> list[Any]:
    """Return the levels of the index of a pandas frame: names of columns, or ranges."""
    return list((schema.pandas_metadata or {}).get("index_columns", []))


def _index_columns(schema: Any) -> list[str]:
    """Return the columns that were the index of a pandas frame; a plain count is no column."""
    named = {name for name in _index(schema) if isinstance(name, str)}
    return [name for name in schema.names if name in named or name.startswith(_LEVEL)]


def _index_of(table: Any) -> str | range:
    """Return the column that is the index of a pandas frame, or the index itself."""
    index = _index(table.schema)
    if len(index) != 1:
        got = "an index of several levels" if index else "a frame without an index"
        raise InvalidParameter(expected="a frame of pandas with one index", got=got, loc=("ids",))
    [found] = index
    return found if isinstance(found, str) else range(found["start"], found["stop"], found["step"])


def named_range(schema: Any, count: int | None) -> tuple[str, range] | None:
    """Return the index of a pandas frame without a column ``id`` if it is a named range."""
    has_id = any(name.lower() == "id" for name in schema.names)
    match _index(schema):
        case [{"name": str(name), "start": start, "stop": stop, "step": step}] if not has_id:
            ids = range(start, stop, step)
            return (name, ids) if len(ids) == count else None  # a part keeps the whole index
    return None


def _require_different(column: Any) -> None:
    """Raise InvalidId if an index that was only guessed as ids has duplicates."""
    values = column.to_pylist()
    places = {value: row for row, value in reversed([*enumerate(values)])}  # the first row of each
    raise_first(
        InvalidId(
            expected="an index of different ids",
            got=f"{value!r} twice; .reset_index() makes a column of it, and ids='index' lets "
            "the last row of an id count",
            loc=("ids", row),
        )
        for row, value in enumerate(values)
        if places[value] != row
    )


def _guess_vector(schema: Any, free: list[str]) -> list[str]:
    for pair in _SPARSE:
        if set(pair) <= set(free) and all(is_list(schema.field(name).type) for name in pair):
            return [*pair]
    lists = [name for name in free if _is_list_of_numbers(schema.field(name).type)]
    if "vector" in lists or len(lists) == 1:
        return ["vector" if "vector" in lists else lists[0]]
    if lists:
        raise InvalidParameter(
            expected="one column of lists of numbers, or one called 'vector'",
            got=", ".join(lists[:_SHOWN]),
        )
    numbers = [name for name in free if _is_numbers(schema.field(name).type)]
    if not numbers:
        kinds = ", ".join(f"{name} ({schema.field(name).type})" for name in free[:_SHOWN])
        has_text = any(_is_text(schema.field(name).type) for name in free)
        hint = "; --text, in Python texts=, names a column of texts" if has_text else ""
        if free and all(pa.types.is_struct(schema.field(name).type) for name in free):
            hint = "; to_json(…, orient='records', lines=True) of pandas writes an object for a row"
        expected = "columns of numbers for the vector"
        raise InvalidParameter(expected=expected, got=f"{kinds or 'none'}{hint}")
    return numbers


def _matching(patterns: Sequence[str], schema: Any, names: list[str]) -> list[str]:
    """Return the names that patterns match, in the order of the patterns, without duplicates."""
    found: dict[str, None] = {}
    for pattern in patterns:
        some = [name for name in names if name == pattern] or [
            name for name in names if fnmatchcase(name, pattern)
        ]
        if not some:
            raise _missing(pattern, schema, names)
        found.update(dict.fromkeys(some))
    return [*found]


def _missing(name: str, schema: Any, names: list[str]) -> InvalidParameter:
    got = list_some(names, _SHOWN) or "no columns"
    objects = [each for each in names if pa.types.is_struct(schema.field(each).type)]
    if objects:
        lift = f"jq -c '. + .{objects[0]} | del(.{objects[0]})'"
        got += f"; keys within {list_some(objects)} are no columns: {lift} lifts them"
    return InvalidParameter(expected=f"a column {name!r}", got=got)


def _require_numbers(schema: Any, names: list[str]) -> None:
    if tuple(names) in _SPARSE or (
        len(names) == 1 and _is_list_of_numbers(schema.field(names[0]).type)
    ):
        return
    for name in names:
        kind = schema.field(name).type
        if not _is_numbers(kind):
            raise InvalidParameter(
                expected=f"numbers in column {name!r}, which is part of the vector", got=str(kind)
            )


def _is_numbers(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_floating(kind)
        or types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
    )


def is_list(kind: Any) -> bool:
    """Whether values of a type are lists."""
    return isinstance(kind, _LISTS)


def _is_list_of_numbers(kind: Any) -> bool:
    return is_list(kind) and _is_numbers(kind.value_type)


def items_of_batch(
    batch: Any, layout: Layout, id_start: int | None = None, mixed: Mixed = _NO_COLUMNS
) -> Items:
    """Return the rows of a table or record batch as items; ``mixed``: further columns of it.

    Raises InvalidVector or InvalidId if a row has no vector, or no id.
    """
    columns = _columns(batch)
    count = batch.num_rows
    rows = _rows(columns, layout)
    ids: Ids | None
    if layout.id is None or layout.id in mixed:
        ids = ids_of(None if layout.id is None else mixed[layout.id], count, id_start)
    else:
        ids = _id_texts(columns[layout.id], *payload_keys([layout.id]))
    fields = {
        key: mixed.get(name) or _field_values(columns[name], name)
        for key, name in zip(payload_keys(layout.payload), layout.payload, strict=True)
    }
    payloads = from_columns(fields, count) if fields else None
    if layout.payload_text:
        payloads = payloads_of(fields["payload"], count)
    items = Items(ids, rows, payloads)
    if layout.expires is None:
        return items
    found = with_expiries(items, _python_values(columns[layout.expires], layout.expires))
    # A batch without expiring items has the column, too, like other batches of its table.
    return found if found.expires else replace(found, expires=[None] * count)


def _without_empty(table: Any) -> Any:
    """Return a table in which empty columns of types that payloads cannot contain are null."""
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if not _is_json(field.type) and column.null_count == len(column):
            table = table.set_column(place, field.name, pa.nulls(len(column)))
    return table


def _columns(batch: Any) -> dict[str, Any]:
    return {name: _plain(batch.column(name)) for name in batch.schema.names}


def _plain(column: Any) -> Any:
    """Return a column as one array without a dictionary."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_dictionary(array.type):
        if pa.types.is_string_view(
            array.type.value_type
        ):  # as polars writes, and Arrow cannot take
            array = pa.DictionaryArray.from_arrays(
                array.indices, array.dictionary.cast(pa.large_string())
            )
        array = array.dictionary_decode()
    return array


def _rows(columns: dict[str, Any], layout: Layout) -> InputVectors:
    if layout.is_text:
        [name] = layout.vector
        return rows_of_texts(_python_values(columns[name], name), name)
    if layout.is_sparse:
        keys, values = (columns[name] for name in layout.vector)
        names: list[str] | None = None
        if _is_text(keys.type.value_type):
            indptr, names, entries = _words(keys, layout.vector[0])
        else:
            indptr, entries = _coordinates(keys, layout.vector[0])
        ends, numbers = _lists(values, layout.vector[1])
        expected = f"as many {layout.vector[0]} as values"
        raise_first(
            InvalidVector(expected=expected, got="others", loc=(row,))
            for row in np.flatnonzero(np.diff(indptr) != np.diff(ends)).tolist()
        )
        return InputVectors.sparse(indptr, entries, numbers, names)
    first = columns[layout.vector[0]]
    if len(layout.vector) == 1 and is_list(first.type):
        indptr, numbers = _lists(first, layout.vector[0])
        lengths = np.diff(indptr)
        width = layout.width
        if width is None:
            width = int(lengths[0]) if len(lengths) else 0
        expected = quantity(width, "value") + (", as in row 0" if layout.width is None else "")
        raise_first(
            InvalidVector(
                expected=expected,
                got=quantity(int(lengths[row]), "value"),
                loc=(row, layout.vector[0]),
            )
            for row in np.flatnonzero(lengths != width).tolist()
        )
        return InputVectors(numbers.reshape(len(lengths), width))
    matrix = np.empty((len(first), len(layout.vector)), np.float32)
    with np.errstate(over="ignore"):
        for place, name in enumerate(layout.vector):
            matrix[:, place] = floats(columns[name])
    return InputVectors(matrix, columns=column_names(layout.vector))


def floats(column: Any) -> Any:
    """Return numbers as an array; NaN for missing ones, which a collection refuses by row."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    return numpy_of(column).astype(np.float64, copy=False)


def numpy_of(column: Any) -> Any:
    """Return numbers or booleans as an array; `to_numpy` would import pandas (0.2 s)."""
    kind = column.type
    if column.null_count or not _is_numbers(kind) or pa.types.is_decimal(kind):
        return column.to_numpy(zero_copy_only=False)
    if pa.types.is_boolean(kind):
        return np.from_dlpack(column.cast(pa.uint8())).view(np.bool_)
    return np.from_dlpack(column)


def _words(column: Any, name: str) -> tuple[Any, list[str], Any]:
    """Return the borders of lists of texts, the distinct texts, and the number of each text."""
    indptr, texts = _flat(column, name)
    nulls = np.flatnonzero(numpy_of(texts.is_null()))
    raise_first(
        InvalidVector(expected="text", got="a missing value", loc=(row, name))
        for row in _rows_at(indptr, nulls)
    )
    words = texts.cast(pa.large_string()).dictionary_encode(null_encoding="encode")
    return indptr, words.dictionary.to_pylist(), numpy_of(words.indices).astype(np.int64)


def _coordinates(column: Any, name: str) -> tuple[Any, Any]:
    """Return the borders of lists, and all their whole numbers; refuse others."""
    indptr, entries = _lists(column, name)
    if entries.dtype.kind == "f":
        odd = np.flatnonzero(~np.isfinite(entries) | (entries != np.rint(entries)))
        raise_first(
            InvalidVector(
                expected="a whole number",
                got="a missing value" if np.isnan(value) else str(value),
                loc=(row, name),
            )
            for row, value in _rows_at(indptr, odd, entries).items()
        )
    return indptr, entries


def _rows_at(indptr: Any, places: Any, entries: Any = None) -> dict[int, Any]:
    """Return the rows of some entries, and the first of these entries in each."""
    rows, first = np.unique(np.searchsorted(indptr, places, side="right") - 1, return_index=True)
    values = places[first] if entries is None else entries[places[first]]
    return dict(zip(rows.tolist(), values.tolist(), strict=True))


def _lists(column: Any, name: str) -> tuple[Any, Any]:
    """Return the borders of lists, (n + 1,), and all their numbers."""
    indptr, values = _flat(column, name)
    if not (_is_numbers(values.type) or pa.types.is_null(values.type)):
        expected = "lists of text" if name == "names" else "lists of numbers"
        raise InvalidVector(expected=expected, got=str(column.type), loc=(name,))
    if values.null_count or pa.types.is_decimal(values.type):
        values = values.cast(pa.float64(), safe=False)
    return indptr, numpy_of(values)


def _flat(column: Any, name: str) -> tuple[Any, Any]:
    """Return the borders of lists, (n + 1,), and their contents as one column."""
    nulls = np.flatnonzero(numpy_of(column.is_null()))
    expected = f"a list in column {name!r}"
    raise_first(InvalidVector(expected=expected, got="null", loc=(row,)) for row in nulls.tolist())
    indptr = np.zeros(len(column) + 1, np.int64)
    is_view = pa.types.is_list_view(column.type) or pa.types.is_large_list_view(column.type)
    lengths = column.sizes if is_view else column.value_lengths()
    np.cumsum(numpy_of(lengths), out=indptr[1:])
    return indptr, column.flatten()


# Columns as ids, and as fields of payloads


def _id_texts(column: Any, name: str) -> list[str]:
    """Return a column of ids as text; ``loc`` of an InvalidId has the row and the column.

    Text is unchanged and integers keep all digits. Floats must be whole, 16 bytes of a fixed size
    are a UUID, and other bytes become hexadecimal digits.
    """
    kind, types = column.type, pa.types
    write: Callable[[Any], str | None]
    if _is_text(kind) or types.is_integer(kind):
        write = str
    elif types.is_decimal(kind):
        write = "{:f}".format
    elif types.is_floating(kind):
        write = _whole
    elif _is_uuid(kind):
        write = str
    elif types.is_fixed_size_binary(kind) and kind.byte_width == _UUID_BYTES:
        write = lambda value: str(UUID(bytes=value))  # noqa: E731
    elif kind in BYTES or types.is_fixed_size_binary(kind):
        write = bytes.hex
    elif types.is_date(kind) or types.is_timestamp(kind) or types.is_null(kind):
        write = methodcaller("isoformat")
    else:
        raise InvalidId(expected=_IDS, got=str(kind), loc=(name,))
    values = _python_values(column, name)
    texts = [None if value is None else write(value) for value in values]
    raise_first(
        InvalidId(
            expected=_IDS,
            got="a missing value" if values[row] is None else f"{values[row]!r:.60}",
            loc=(row, name),
        )
        for row, text in enumerate(texts)
        if text is None
    )
    return [text for text in texts if text is not None]


def _whole(value: float) -> str | None:
    is_whole = math.isfinite(value) and value == int(value) and abs(value) <= EXACT
    return str(int(value)) if is_whole else None


def _is_json(kind: Any) -> bool:
    """Whether values of a type can be in a payload."""
    types = pa.types
    if types.is_nested(kind):
        if types.is_map(kind) or types.is_union(kind):
            return False
        inner = [kind.field(place) for place in range(kind.num_fields)]
        return all(_is_json(each.type) for each in inner)
    if types.is_dictionary(kind):
        return _is_json(kind.value_type)
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    is_time = types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind)
    is_other = types.is_null(kind) or types.is_boolean(kind) or _is_uuid(kind)
    return bool(_is_text(kind) or is_number or is_time or is_other)


def _field_values(column: Any, name: str) -> list[Any]:
    """Return a column as values of a payload, NaN as None; infinities are refused."""
    kind, types = column.type, pa.types
    values = _python_values(column, name)
    if types.is_floating(kind):
        values = [None if value is None or math.isnan(value) else value for value in values]
        raise_first(
            InvalidPayload(expected=_JSON, got=str(value), loc=(row, name))
            for row, value in enumerate(values)
            if value is not None and math.isinf(value)
        )
    if types.is_decimal(kind) and (kind.scale <= 0 or kind.precision <= FLOAT_DIGITS):
        number = int if kind.scale <= 0 else float
        return [None if value is None else number(value) for value in values]
    return values


def _python_values(column: Any, name: str) -> list[Any]:
    """Return a column as Python values; invalid UTF-8 and unsupported times are refused."""
    try:
        return python_values(column)
    except (ValueError, OverflowError):
        raise_first(
            _unreadable(column, row, name)
            for row in range(len(column))
            if not _is_readable(column[row])
        )
        raise


def python_values(column: Any) -> list[Any]:
    """Return a column as Python values, float32 as in `written_floats`."""
    kind = column.type
    if _is_short_float(kind):
        column = column.cast(pa.float32()).cast(pa.string()).cast(pa.float64())
    values: list[Any] = column.to_pylist()
    return [_written(value, kind) for value in values] if _has_short_floats(kind) else values


def _is_short_float(kind: Any) -> bool:
    return bool(pa.types.is_float16(kind) or pa.types.is_float32(kind))


def _has_short_floats(kind: Any) -> bool:
    """Whether lists or structs of a type contain float32."""
    if not (is_list(kind) or pa.types.is_struct(kind)):
        return False
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return any(_is_short_float(each) or _has_short_floats(each) for each in inner)


def _written(value: Any, kind: Any) -> Any:
    """Return a value inside lists and structs as in `python_values`."""
    if value is None or not (_is_short_float(kind) or _has_short_floats(kind)):
        return value
    if pa.types.is_struct(kind):
        return {field.name: _written(value[field.name], field.type) for field in kind}
    if is_list(kind):
        return [_written(each, kind.value_type) for each in value]
    return written_floats(value).item()


def _unreadable(column: Any, row: int, name: str) -> InvalidPayload:
    expected, got = "a time that Python holds", str(column.type)
    if _is_text(column.type):
        cell = column.slice(row, 1).cast(pa.large_binary())[0].as_py()
        expected, got = "text in UTF-8", f"{cell!r:.60}"
    return InvalidPayload(expected=expected, got=got, loc=(row, name))


def _is_readable(scalar: Any) -> bool:
    try:
        scalar.as_py()
    except (ValueError, OverflowError):
        return False
    return True


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return kind in TEXTS


def _is_uuid(kind: Any) -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"


# Tables of files


@dataclass(frozen=True, slots=True)
class CellCounts:
    """Counts of a column's numbers, booleans and missing cells; ``cells`` are all other cells."""

    cells: int = 0
    missing: int = 0
    numbers: int = 0
    leading_zeros: int = 0
    truths: int = 0

    def __add__(self, other: CellCounts) -> CellCounts:
        return CellCounts(*map(add, astuple(self), astuple(other)))

    def as_text(self) -> CellCounts:
        """Return the counts of the same cells as text."""
        return CellCounts(self.cells, self.missing)

    @classmethod
    def of_values(cls, values: Iterable[Any], count: int) -> CellCounts:
        """Count the kinds of values in a JSON column; some of the ``count`` rows may lack one."""
        cells = numbers = truths = 0
        for value in values:
            cells += value is not None
            truths += isinstance(value, bool)
            numbers += isinstance(value, int | float) and not isinstance(value, bool)
        return cls(cells, count - cells, numbers, 0, truths)

    @property
    def kind(self) -> Kind:
        """The kind of the column; up to a tenth of a number column may be bad cells."""
        if self.leading_zeros or not self.cells:
            return "text"
        if self.truths == self.cells:
            return "truth"
        return "number" if is_mostly(self.numbers, self.cells) else "text"

    @property
    def payload_kind(self) -> Kind:
        """The kind of the column in a payload: numbers only if every cell is one."""
        return "text" if self.kind == "number" and self.numbers < self.cells else self.kind


def is_mostly(good: int, count: int) -> bool:
    """Whether a column's values are of a kind: one of three or more, or a tenth, may differ."""
    allowed = max(1, count // _SHARE) if count >= _ENOUGH else 0
    return count - good <= allowed


def choose(schema: Any, choices: Choices, keys: Sequence[str] = ()) -> Layout:
    """Return the roles of columns by the caller's choices, otherwise by `guess`.

    Columns from folder names are fields of the payload, unless the caller chooses otherwise.
    """
    told = choices.id in keys or choices.vector is not None or choices.payload is not None
    words: dict[str, Any] = {"id_": choices.id, "text": choices.text}
    if told or not keys:
        return guess(schema, vector=choices.vector, payload=choices.payload, **words)
    inner = pa.schema([field for field in schema if field.name not in keys])
    layout = guess(inner, **words)
    return layout if layout.payload_text else replace(layout, payload=(*layout.payload, *keys))


def describe_table(
    source: Source,
    format_: str,
    layout: Layout,
    dim: int | None,
    tallies: Mapping[str, CellCounts] | None = None,
    *,
    is_matrix: bool = True,
) -> None:
    """Describe how a table is read; ``is_matrix``: each coordinate is a column."""
    source.dim = None if layout.is_text else dim
    source.is_text = layout.is_text
    source.columns = [*layout.vector] if is_matrix and not layout.is_text else None
    if layout.is_text:
        vector = f"{layout.vector[0]}, texts"
    elif layout.is_sparse:
        vector = "sparse: " + ", ".join(layout.vector)
    elif len(layout.vector) == 1:
        vector = f"{layout.vector[0]}, " + (quantity(dim, "value") if dim else "sparse")
    else:
        vector = f"{len(layout.vector)} columns, {layout.vector[0]} to {layout.vector[-1]}"
    payload = (
        list_some([key or "unnamed" for key in payload_keys(layout.payload)])
        or f"none{_CHOOSE if len(layout.vector) > 1 else ''}"
    )
    [ids] = [None] if layout.id is None else [key or "unnamed" for key in payload_keys([layout.id])]
    source.describe(format_, ids, vector, payload)
    known = tallies or {}
    if UNNAMED in known and UNNAMED not in (layout.id, *layout.vector, *layout.payload):
        source.guess.append(("left out", "the column without a name counts rows; --id '' takes it"))
    gaps = [
        f"{known[name].missing} in {name!r}"
        for name in layout.vector
        if name in known and known[name].missing
    ]
    if gaps:
        source.guess.append(("missing", f"{list_some(gaps)} of the first rows"))
    fields = {*layout.payload}
    mixed = [
        f"{name!r} with {quantity(each.cells - each.numbers, 'cell')} of text"
        for name, each in known.items()
        if name in fields and each.kind == "text" and 2 * each.numbers >= each.cells > 0
        and not each.leading_zeros
    ]  # fmt: skip
    if mixed:
        source.guess.append(("text", f"{list_some(mixed)} among numbers"))


def describe_shares(
    source: Source, columns: Mapping[str, Any]
) -> tuple[dict[str, float], list[str]]:
    """Return each vector column's share of Σ|x|, and warnings about very different units.

    ``columns``: numbers of the first rows. A column without a number has no share. A unit is the
    median of |x| in a column that is mostly not 0.
    """
    names = [*columns]
    sizes = np.full((len(names), max(map(len, columns.values()), default=0)), np.nan)
    for place, values in enumerate(columns.values()):
        sizes[place, : len(values)] = np.abs(values)
    is_number = np.isfinite(sizes)
    is_whole = ((sizes == np.rint(sizes)) | ~is_number).all(axis=1)
    is_long = ((sizes > _WHOLE) & is_number).any(axis=1)
    long = [names[place] for place in np.flatnonzero(is_long & is_whole)]
    sums = dict(zip(names, sizes.sum(axis=1, where=is_number).tolist(), strict=True))
    is_filled = is_number & (sizes > 0)
    filled = is_filled.sum(axis=1)
    sizes[~is_filled] = np.inf  # sorts last
    sizes.sort(axis=1)
    has_unit = np.flatnonzero(2 * filled > is_number.sum(axis=1))
    middle = sizes[has_unit, [(filled[has_unit] - 1) // 2, filled[has_unit] // 2]].mean(axis=0)
    units = {names[place]: unit for place, unit in zip(has_unit, middle.tolist(), strict=True)}
    total = sum(sums.values())
    shares = {name: size / total for name, size in sums.items()} if total else {}
    if len(shares) <= 1:
        return shares, []
    order = sorted(sums, key=lambda name: -sums[name])
    least = f"< {_LEAST:.1%}"
    parts = [(name, shares[name]) for name in order[:_SAID]]
    told = ", ".join(f"{name} {f'{x:.1%}' if x >= _LEAST else least}" for name, x in parts)
    more = f" and {len(order) - _SAID} more" if len(order) > _SAID else ""
    source.guess.append(("shares", f"of Σ|x| in the first rows: {told}{more}"))
    first = order[0]
    warnings = []
    if shares[first] > max(_HALF, _EVEN / len(sums)):
        warnings.append(f"scores are mostly those of {first!r}")
    low, high = (pick(units, key=lambda name: units[name], default=first) for pick in (min, max))
    if units and units[high] >= _APART * units[low]:
        warnings.append(
            f"units differ: {high!r} is about {_rounded(units[high])}, {low!r} about "
            f"{_rounded(units[low])}"
        )
    if warnings:
        source.guess.append(("warning", "; ".join([*warnings, _NARROW])))
    if long:
        kept = f"whole numbers above {_WHOLE:,}, of which seven digits are kept"
        warnings.append(f"{list_some([repr(name) for name in long])} with {kept}")
        source.guess.append(("digits", warnings[-1]))
    return shares, warnings


def _rounded(number: float) -> str:
    return f"{float(f'{number:.2g}'):,g}"


def readable_items(
    source: Source,
    layout: Layout,
    numbers: Sequence[int],
    parse: Callable[[list[int]], Items],
    show: Callable[[int], Any],
) -> Items:
    """Return the readable items of a batch with their places in the file.

    Parameters
    ----------
    numbers : sequence of int
        The row in the file for each place of the batch.
    parse : callable
        Makes items of places. An InvalidInput whose ``loc`` has a number rejects that place, and
        those of its ``others``.
    show : callable
        Returns the contents of a row of the file.

    Raises
    ------
    BadFile
        A row cannot be an item, and rows may not be left out.
    """
    places = [*range(len(numbers))]
    while True:
        try:
            items = parse(places)
        except InvalidInput as error:
            bad = set()
            for each in (error, *error.others):
                words = [part for part in each.loc if isinstance(part, str)]
                if not words and isinstance(each, InvalidVector) and len(layout.vector) == 1:
                    words = [*layout.vector]
                name = layout.id if words == ["ids"] else words[-1] if words else None
                where = "" if name is None else f"column {name!r}: "
                detail = f"{where}expected {each.expected}, got {each.got}"
                at = next((part for part in each.loc if isinstance(part, int)), None)
                if at is None:  # the error concerns every row
                    raise BadFile(f"{source.file.name}: {detail}") from None
                number = numbers[places[at]]
                source.reject(number, detail, show(number))
                bad.add(at)
            places = [place for at, place in enumerate(places) if at not in bad]
        else:
            return replace(items, numbers=[numbers[place] for place in places], show=show)
