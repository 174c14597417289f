"""Columns of Arrow as ids and as fields of payloads: what they may hold, and how it is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from gcws_search.index import InvalidId, InvalidPayload

_UUID_BYTES: Final = 16
_EXACT: Final = 2**53
"""Whole numbers up to it are exact as floats."""
_DIGITS: Final = 15
"""Decimal digits that a float keeps."""
_IDS: Final = "text, whole numbers or UUIDs as ids"
_JSON: Final = "values that JSON holds"


def id_texts(column: Any, name: str) -> list[str]:
    """Return a column of ids as text.

    Text stays as it is and integers keep all digits. Floats must be whole, 16 bytes of a fixed size
    are a UUID, and other bytes are written as hexadecimal digits.

    Raises
    ------
    InvalidId
        A value is missing, or can be no id; ``loc`` has its row and the column.
    """
    kind, types = column.type, pa.types
    write: Callable[[Any], str | None]
    if is_text(kind) or types.is_integer(kind):
        write = str
    elif types.is_decimal(kind):
        write = _decimal_id
    elif types.is_floating(kind):
        write = _whole
    elif _is_uuid(kind):
        write = str
    elif types.is_fixed_size_binary(kind) and kind.byte_width == _UUID_BYTES:
        write = _uuid
    elif is_bytes(kind):
        write = bytes.hex
    elif types.is_date(kind) or types.is_timestamp(kind) or types.is_null(kind):
        write = _iso
    else:
        raise InvalidId(expected=_IDS, got=str(kind), loc=(0, name))
    texts = []
    for row, value in enumerate(python_values(column, name)):
        text = None if value is None else write(value)
        if text is None:
            got = "a missing value" if value is None else f"{value!r:.60}"
            raise InvalidId(expected=_IDS, got=got, loc=(row, name))
        texts.append(text)
    return texts


def _decimal_id(value: Any) -> str:
    return format(value, "f")


def _whole(value: float) -> str | None:
    is_whole = math.isfinite(value) and value == int(value) and abs(value) <= _EXACT
    return str(int(value)) if is_whole else None


def _uuid(value: bytes) -> str:
    return str(UUID(bytes=value))


def _iso(value: Any) -> str:
    return str(value.isoformat())


def require_json(field: Any) -> None:
    """Refuse a column that cannot be a field of a payload.

    Raises
    ------
    InvalidPayload
    """
    if not _is_json(field.type):
        raise InvalidPayload(expected=_JSON, got=str(field.type), loc=("payload", field.name))


def _is_json(kind: Any) -> bool:
    types = pa.types
    if types.is_nested(kind):
        if types.is_map(kind) or types.is_union(kind):
            return False
        inner = [kind.field(place) for place in range(kind.num_fields)]
        return all(_is_json(each.type) for each in inner)
    if types.is_dictionary(kind):
        return _is_json(kind.value_type)
    return bool(
        is_text(kind)
        or types.is_null(kind)
        or types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_date(kind)
        or types.is_time(kind)
        or types.is_timestamp(kind)
        or _is_uuid(kind)
    )


def field_values(column: Any, name: str) -> list[Any]:
    """Return a column as values of a payload; NaN is None.

    Raises
    ------
    InvalidPayload
        A value is infinite or no text; ``loc`` has its row and the column.
    """
    kind, types = column.type, pa.types
    values = python_values(column, name)
    if types.is_floating(kind):
        for row, value in enumerate(values):
            if value is not None and not math.isfinite(value):
                if not math.isnan(value):
                    raise InvalidPayload(expected=_JSON, got=str(value), loc=(row, name))
                values[row] = None
    if types.is_decimal(kind) and (kind.scale <= 0 or kind.precision <= _DIGITS):
        number = int if kind.scale <= 0 else float
        return [None if value is None else number(value) for value in values]
    return values


def python_values(column: Any, name: str) -> list[Any]:
    """Return a column as Python's values.

    Raises
    ------
    InvalidPayload
        Text is not UTF-8, or Python has no such time; ``loc`` has its row and the column.
    """
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        row = next(row for row in range(len(column)) if not _is_readable(column[row]))
        expected, got = "a time that Python holds", str(column.type)
        if is_text(column.type):
            cell = column.slice(row, 1).cast(pa.large_binary())[0].as_py()
            expected, got = "text in UTF-8", f"{cell!r:.60}"
        raise InvalidPayload(expected=expected, got=got, loc=(row, name)) from None
    return values


def _is_readable(scalar: Any) -> bool:
    try:
        scalar.as_py()
    except (ValueError, OverflowError):
        return False
    return True


def is_text(kind: Any) -> bool:
    """Whether values of a type are text."""
    types = pa.types
    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: Any) -> bool:
    """Whether values of a type are bytes."""
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )


def _is_uuid(kind: Any) -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid"
