"""Payloads as JSON text, from dicts, columns and frames, and back; conditions on them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any, Final
from uuid import UUID

import numpy as np
import orjson

from gcws_search.formats.vectors import is_present
from gcws_search.index import (
    InvalidFilter,
    InvalidParameter,
    InvalidPayload,
    has_long_number,
    parse_filter,
    place_errors,
    quantity,
    raise_first,
)

Payloads = list[bytes | None]
"""Of each item the JSON text of an object, or None."""

_CLAUSES: Final = {"must", "should", "must_not"}
_HALVES: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""Text that has one may hold half of a surrogate pair, which is not valid Unicode."""
_PLAINER: Final = {
    "number is infinity when parsed as double": "a number beyond float64",
    "UTF-8 byte order mark (BOM) is not supported": "a mark of the byte order",
    "no low surrogate in string": "half of a surrogate pair, which is not valid Unicode",
}
"""What parsers say of what is no JSON, in plain words."""
_BOUNDS: Final = {"gt", "gte", "lt", "lte"}
_JSON: Final = "values that JSON holds"
NAME_IT: Final = "; {'label': values} gives each item one of them"
_MAX_DIGITS: Final = 4300
"""Of a whole number, as Python reads it."""
FLOAT_DIGITS: Final = 15
"""Decimal digits that a float keeps."""
_SHORT_FLOATS: Final = (np.float16, np.float32)
_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def read_json(text: bytes | str) -> Any:
    """Parse JSON text with integers of any size; raise ValueError if it is invalid."""
    raw = text.encode() if isinstance(text, str) else text
    try:
        if not has_long_number(raw):
            return orjson.loads(raw)
        found = json.loads(
            raw.decode(), parse_int=_whole, parse_float=_finite, parse_constant=_finite
        )
        if _HALVES.search(raw):
            _long_json(found).encode()
        return found
    except RecursionError:
        raise ValueError("a document that is too deep") from None
    except json.JSONDecodeError as error:
        words = _PLAINER.get(error.msg, error.msg).removesuffix(" at")
        raise ValueError(f"{words} at line {error.lineno} column {error.colno}") from None
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair, which is not valid Unicode") from None


def _whole(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.60}, which is not a JSON number")
    return value


_long_json: Final = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))


def write_json(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return compact JSON text; NaN becomes null, times are in ISO 8601.

    ``default`` returns the replacement of a value that JSON lacks; None: TypeError.
    """
    plain = default or _plain
    try:
        return orjson.dumps(value, default=plain, option=_OPTIONS)
    except TypeError as error:
        if isinstance(error.__cause__, TypeError):
            raise error.__cause__ from None
    try:  # integers beyond 64 bits, or values that JSON lacks
        text = _long_json(value, default=plain)
        if "NaN" in text or "Infinity" in text:
            text = _long_json(json.loads(text, parse_constant=lambda _: None))
        return text.encode()
    except UnicodeEncodeError:
        raise TypeError("half of a surrogate pair") from None
    except (RecursionError, ValueError):
        raise TypeError("a document that is too deep, or holds itself") from None


def _plain(value: Any) -> Any:
    """Return a value of another library as a JSON value."""
    if not is_present(value):
        return None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return _plain_decimal(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, np.longdouble):
        value = np.float64(value)
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufUMO":
        return _times(value) if has_counts(value.dtype) else value.tolist()
    raise TypeError(f"{type(value).__name__} {value!r:.60}")


def _plain_decimal(value: Decimal) -> int | float | str | None:
    """Return a decimal number as a JSON value; as text if a float would lose digits."""
    if value.is_nan():
        return None
    if value.is_infinite():
        raise TypeError(f"Decimal {value}")
    if value == value.to_integral_value():
        return int(value)
    is_exact = len(value.as_tuple().digits) <= FLOAT_DIGITS
    return float(value) if is_exact else f"{value:f}"


def payload_text(value: Any, row: int) -> bytes | None:
    """Return one payload as JSON text; a string is JSON text of an object."""
    if value is None:
        return None
    if isinstance(value, str | bytes):
        try:
            found = read_json(value)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise InvalidPayload(
                expected="the JSON text of an object",
                got=f"{value!r:.60}{NAME_IT}",
                loc=("payloads", row),
            )
        return write_json(found)
    if not isinstance(value, Mapping):
        raise InvalidPayload(
            expected="a dict or None", got=f"{value!r:.60}{NAME_IT}", loc=("payloads", row)
        )
    return _object_text(value, ("payloads", row))


def metadata_text(value: Any) -> bytes | None:
    """Return the metadata of a collection as JSON text; raise InvalidParameter."""
    try:
        return new_payload(value, "metadata")
    except InvalidPayload as error:
        raise InvalidParameter(expected=error.expected, got=error.got, loc=error.loc) from None


def new_payload(value: Any, name: str = "payload") -> bytes | None:
    """Return the new payload, or the part to merge, as JSON text."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidPayload(expected="a dict or None", got=f"{value!r:.60}", loc=(name,))
    return _object_text(value, (name,))


def _value_text(value: Any) -> bytes:
    """Return a value of a payload as JSON text; an infinity raises TypeError."""
    text = write_json(value)
    if b"null" in text and _has_infinity(value):
        raise TypeError("an infinity")
    return text


def _has_infinity(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_infinity, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_infinity, value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind == "f" and bool(np.isinf(value).any())
    return isinstance(value, float | np.floating) and bool(np.isinf(value))


def _object_text(value: Mapping[str, Any], loc: tuple[str | int, ...]) -> bytes:
    try:
        return _value_text(dict(value))
    except TypeError as error:
        key = next((str(key) for key, each in value.items() if not is_json(each)), None)
        at = loc if key is None else (*loc, key)
        raise InvalidPayload(expected=_JSON, got=str(error), loc=at) from None


def is_json(value: Any) -> bool:
    """Whether a payload can contain a value."""
    try:
        _value_text(value)
    except TypeError:
        return False
    return True


def payloads_of(given: Any, count: int) -> Payloads:
    """Return the payloads of ``count`` items, from columns or objects; see `Collection.add`."""
    if hasattr(given, "__arrow_c_stream__"):
        from gcws_search.formats.tables import payload_columns  # noqa: PLC0415  # loads pyarrow

        given = payload_columns(given)
    if isinstance(given, Mapping):
        columns = {str(name): column_values(column) for name, column in given.items()}
        for name, column in columns.items():
            if not is_json(name):
                raise InvalidPayload(
                    expected="names of columns that JSON holds", got=repr(name), loc=("payloads",)
                )
            _require_count(column, count, name)
        return from_columns(columns, count)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidPayload(
            expected="a payload for each item", got=f"{given!r:.60}{NAME_IT}", loc=("payloads",)
        )
    rows = list(given)
    _require_count(rows, count, "payloads")
    texts: Payloads = []

    def bad() -> Iterator[InvalidPayload]:
        for row, value in enumerate(rows):
            try:
                texts.append(payload_text(value, row))
            except InvalidPayload as error:
                yield error

    raise_first(bad())
    return texts


def from_columns(columns: Mapping[str, Sequence[Any]], count: int) -> Payloads:
    """Return payloads of columns; None values are left out, and an empty object becomes None."""
    if not columns:
        return [None] * count
    heads = [write_json(str(name)) + b":" for name in columns]
    texts = [_texts(values, str(name)) for name, values in columns.items()]
    if not any(None in column for column in texts):
        fields = b",".join(head.replace(b"%", b"%%") + b"%b" for head in heads)
        template = b"{" + fields + b"}"
        return [template % row for row in zip(*texts, strict=True)]
    payloads: Payloads = []
    for row in zip(*texts, strict=True):
        present = [head + text for head, text in zip(heads, row, strict=True) if text is not None]
        payloads.append(b"{" + b",".join(present) + b"}" if present else None)
    return payloads


def _texts(values: Sequence[Any], name: str) -> list[bytes | None]:
    """Return each value as JSON text; None for a missing one."""
    if {*map(type, values)} <= {int, float, bool}:
        numbers = write_json(list(values))
        if b"null" not in numbers:
            return [*numbers[1:-1].split(b",")]  # no number's text has a comma
    texts: list[bytes | None] = []

    def bad() -> Iterator[InvalidPayload]:
        for row, value in enumerate(values):
            try:
                texts.append(None if value is None else _value_text(value))
            except TypeError as error:
                yield InvalidPayload(expected=_JSON, got=str(error), loc=(row, name))

    raise_first(bad())
    return texts


def column_values(column: Any) -> list[Any]:
    """Return a column of payloads as a list; numpy times with nanoseconds become text."""
    if isinstance(column, str | Set | Mapping):
        got = "a string" if isinstance(column, str) else f"{column!r:.60}"
        raise InvalidPayload(expected="a value for each item", got=got, loc=("payloads",))
    if isinstance(column, list | tuple):
        return [*column]
    if getattr(getattr(column, "dtype", None), "numpy_dtype", None) == np.float32:
        column = column.astype(np.float32)  # of pandas; may have missing numbers
    array = np.asarray(column)
    listed = getattr(column, "to_pylist", None) or getattr(column, "to_list", None)
    if array.dtype in _SHORT_FLOATS:
        numbers = written_floats(array).tolist()
        return numbers if listed is None else [*map(_plain_or_none, numbers)]
    if listed is not None and _loses(array, column):  # of Arrow, polars or pandas
        return [_plain_or_none(each) for each in listed()]
    if not has_counts(array.dtype):
        return array.tolist()  # type: ignore[no-any-return]
    return [*array] if array.dtype.kind == "m" else _times(array)


def written_floats(numbers: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return float32 numbers as the floats of their shortest texts: 0.1, not 0.10000000149."""
    return np.asarray(numbers, np.float32).astype(str).astype(np.float64)


def _loses(array: Any, column: Any) -> bool:
    """Whether an array of a column has floats for integers with gaps, or lost time zones."""
    match array.dtype.kind:
        case "f":
            return bool(np.isnan(array).any())
        case "M":
            kind = getattr(column, "type", None) or column.dtype
            return any(getattr(kind, word, None) for word in ("tz", "time_zone"))
        case kind:
            return bool(kind == "O")


def _plain_or_none(value: Any) -> Any:
    """Return a value of a column, None for pandas' missing values; nanoseconds as text."""
    if not is_present(value) or (isinstance(value, float) and math.isnan(value)):
        return None
    return value.isoformat() if getattr(value, "nanosecond", 0) else value


def _times(value: Any) -> Any:
    """Return times finer than Python's as text, missing ones as None; arrays as lists."""
    if np.ndim(value):
        return [*map(_times, value)]
    return None if np.isnat(value) else str(value).rstrip("0").rstrip(".")


def has_counts(kind: np.dtype[Any]) -> bool:
    """Whether ``tolist`` returns integers for a type's times, which are finer than Python's."""
    return kind.kind in "mM" and np.datetime_data(kind)[0] in ("ns", "ps", "fs", "as")


def _require_count(values: Any, count: int, name: str) -> None:
    if not isinstance(values, list) or len(values) != count:
        got = str(len(values)) if isinstance(values, list) else f"{values!r:.60}"
        raise InvalidPayload(
            expected=f"a payload for each of {quantity(count, 'item')}", got=got, loc=(name,)
        )


_PRESENCE: Final = ("exists", "is_null")
_OPERATORS: Final = {
    **{">": "gt", ">=": "gte", "<": "lt", "<=": "lte"},
    **{f"${word}": word for word in sorted(_BOUNDS)},
}


def filter_of(where: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a filter of the API from a filter, or from values by key.

    ``{"label": 3}`` is equality, ``{"label": [3, 5]}`` one of several, ``{"price": {"gte": 5, "lt":
    9}}`` a range, also of dates (ISO text, ``datetime``, ``date``, ``datetime64``; UTC without a
    zone), ``{"label": {"prefix": "ab"}}`` a prefix of a text, ``{"label": None}`` null, ``{"label":
    {"exists": False}}`` a missing key.

    Raises InvalidFilter, at ``filter`` as in the API.
    """
    if where is None:
        return None
    with place_errors("filter"):
        given = _document_of(where)
        try:
            document: dict[str, Any] = read_json(write_json(given))
        except TypeError as error:
            raise InvalidFilter(expected=_JSON, got=str(error)) from None
        parse_filter(document)
    return document


def _document_of(where: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(where, Mapping):
        raise InvalidFilter(
            expected="a filter, or values by key such as {'label': 3}", got=f"{where!r:.60}"
        )
    if not where or set(where) <= _CLAUSES:
        return dict(where)
    if set(where) in ({"key", word} for word in ("match", "range", *_PRESENCE)):
        raise InvalidFilter(
            expected="a condition in 'must', as in {'must': [{'key': 'label', 'match': …}]}, "
            "or values by key such as {'label': 3}",
            got=f"{where!r:.60}",
        )
    return {"must": [_condition(key, value) for key, value in where.items()]}


def _bound(value: Any) -> Any:
    """Return a value of a condition as a JSON value."""
    if isinstance(value, np.datetime64):
        return str(value)
    if getattr(value, "dtype", None) in _SHORT_FLOATS:
        return float(written_floats(value))
    plain = value.item() if hasattr(value, "item") else value
    return plain.isoformat() if isinstance(plain, date) else plain


def _condition(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, list | tuple | set | frozenset) or np.ndim(value):
        values = column_values(value) if hasattr(value, "dtype") else value
        return {"key": key, "match": {"any": [*map(_bound, values)]}}
    if isinstance(value, Mapping) and value and set(value) <= _BOUNDS:
        return {"key": key, "range": {word: _bound(bound) for word, bound in value.items()}}
    if value is None:
        return {"key": key, "is_null": True}
    if isinstance(value, Mapping):
        word = next(iter(value), "")
        if len(value) == 1 and word in _PRESENCE:
            return {"key": key, **value}
        if len(value) == 1 and word == "prefix":
            return {"key": key, "match": dict(value)}
        known = ", ".join(map(repr, [*sorted(_BOUNDS), "prefix", *_PRESENCE]))
        meant = [f"; {each!r} is {_OPERATORS[each]!r}" for each in value if each in _OPERATORS]
        raise InvalidFilter(expected=known + "".join(meant), got=f"{value!r:.60}", loc=(key,))
    plain = _bound(value)
    test: dict[str, Any] = {"match": {"value": plain}}
    if isinstance(value, date | np.datetime64):
        test = {"range": {"gte": plain, "lte": plain}}
    return {"key": key, **test}
