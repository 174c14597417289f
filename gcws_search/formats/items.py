"""Items for a collection: ids, vectors and payloads, and request bodies made of them."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from numbers import Real
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

import numpy as np
import orjson

from gcws_search.formats.payloads import Payloads, has_counts, payloads_of
from gcws_search.formats.vectors import (
    is_column,
    is_frame,
    is_id,
    is_most,
    is_present,
    require_many,
    rows_of,
    rows_of_texts,
)
from gcws_search.index import (
    InputVectors,
    InvalidId,
    InvalidParameter,
    InvalidVector,
    quantity,
    raise_first,
)

ARROW: Final = "application/vnd.apache.arrow.stream"
_ARROW_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""What says that no more record batches follow."""
NPY: Final = "application/x-npy"
NDJSON: Final = "application/x-ndjson"
SEGMENT_ROWS: Final = 8192
_BATCH_BYTES: Final = 8 << 20
"""Bytes of vectors that are turned into a body at a time."""
MAX_ID_START: Final = 2**63 - 1
DOCUMENT: Final = {"id", "vector", "payload", "version", "expires"}
"""What an item of JSON has; its version is not looked at."""
TEXT_DOCUMENT: Final = {"id", "text", "payload", "version", "expires"}
"""What an item of a collection of texts has."""

Ids = Sequence[str] | range
Piece = bytes | memoryview
Expires = datetime | str | float
"""A time with its zone, or seconds after the write."""


@dataclass(frozen=True, slots=True)
class Items:
    """Items of one form: n ids, n vectors, and n JSON texts of payloads.

    A range of ids counts rows; its numbers mean their decimal strings. Without ids the collection
    assigns the next free numbers. ``if_versions``: versions that items must have in the collection,
    None for any. ``expires``: times as in the API; None: the collection decides. Items of a file
    have ``numbers``, their rows there, and ``show``, which returns the text of one of these rows
    for people.
    """

    ids: Ids | None
    rows: InputVectors
    payloads: Payloads | None = None
    numbers: Sequence[int] | None = None
    show: Callable[[int], Any] | None = None
    if_versions: Sequence[int | None] | None = None
    expires: Sequence[str | float | None] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, rows: slice | list[int]) -> Items:
        """Return some of the items."""

        def part_of(column: Any) -> Any:
            if column is None or isinstance(rows, slice):
                return column and column[rows]
            return [column[row] for row in rows]

        return replace(
            self,
            ids=part_of(self.ids),
            rows=self.rows.part(rows if isinstance(rows, slice) else np.array(rows, np.int64)),
            payloads=part_of(self.payloads),
            if_versions=part_of(self.if_versions),
            expires=part_of(self.expires),
            numbers=part_of(self.numbers),
        )

    def batches(self, size_bytes: int = _BATCH_BYTES) -> Iterator[Items]:
        """Yield the items in parts of about ``size_bytes`` bytes of vectors and payloads."""
        each = self.rows.row_bytes
        if self.payloads:
            sample = self.payloads[:: max(1, len(self) // 256)]
            each += sum(len(text or b"") for text in sample) // len(sample)
        step = max(1, min(SEGMENT_ROWS, size_bytes // max(1, each)))
        for first in range(0, len(self), step):
            yield self.part(slice(first, first + step))

    def texts(self) -> list[str] | None:
        """Return the ids as strings."""
        return None if self.ids is None else [*map(str, self.ids)]


# Data of programs


def items_of(
    data: Any,
    ids: Any = None,
    payloads: Any = None,
    id_start: int | None = None,
    text: str | None = None,
    dim: int | None = None,
) -> Items:
    """Return the data of a `Collection.add` as items; ``text``: a frame's column of texts.

    An item of an iterable is an object with ``id``, ``vector`` and ``payload``, such as a
    collection yields, or a dict of these, as in the API. It may have a ``text`` instead of a
    vector. The index of a pandas column is treated like that of a frame.
    """
    _require_same_order(data, ids=ids, payloads=payloads)
    if is_column(data):
        return replace(_of_index(data, ids, payloads, id_start), rows=rows_of(data, dim))
    if is_frame(data):
        from gcws_search.formats.tables import items_of_frame  # noqa: PLC0415  # loads pyarrow

        return items_of_frame(data, ids, payloads, id_start, text, dim)
    if isinstance(ids, str):
        raise InvalidParameter(
            expected="the ids, or the name of a column where the data are a frame",
            got=repr(ids),
            loc=("ids",),
        )
    is_array = hasattr(data, "__array__") or isinstance(data, memoryview)
    if not is_array and not hasattr(data, "tocsr"):
        require_many(data)
        data = list(data)
        if is_most(data, is_document, "an item with a vector or a text, as others are"):
            unset = dict.fromkeys(("id", "vector", "text", "payload", "expires"))
            data = [SimpleNamespace(**unset | each) for each in data]
        if data and all(hasattr(each, "vector") and hasattr(each, "id") for each in data):
            if ids is None and any(each.id is not None for each in data):
                ids = [each.id for each in data]
            payloads = [each.payload for each in data] if payloads is None else payloads
            expires = [getattr(each, "expires", None) for each in data]
            texts = [getattr(each, "text", None) for each in data]
            if None not in texts:
                items = items_of_texts(texts, ids, payloads, id_start)
            else:
                rows = rows_of([each.vector for each in data], dim)
                items = _items(rows, ids, payloads, id_start)
            return with_expiries(items, expires)
    return _items(rows_of(data, dim), ids, payloads, id_start)


def items_of_texts(
    texts: Any, ids: Any = None, payloads: Any = None, id_start: int | None = None
) -> Items:
    """Return texts as items; the index of a pandas column is treated like that of a frame."""
    _require_same_order(texts, ids=ids, payloads=payloads)
    try:
        rows = rows_of_texts(texts)
    except InvalidVector as error:
        raise error.at("texts") from None
    if is_column(texts):
        return replace(_of_index(texts, ids, payloads, id_start), rows=rows)
    return _items(rows, ids, payloads, id_start)


def _of_index(column: Any, ids: Any, payloads: Any, id_start: int | None) -> Items:
    """Return the ids or payloads in the index of a pandas column, as for a frame."""
    from gcws_search.formats.tables import items_of_frame  # noqa: PLC0415  # loads pyarrow

    return items_of_frame(column.to_frame("value").assign(value=1.0), ids, payloads, id_start)


def _require_same_order(data: Any, **others: Any) -> None:
    """Raise InvalidParameter if other pandas data have the labels of ``data`` in another order.

    Rows are matched by position.
    """
    for name, each in others.items():
        if not hasattr(data, "iloc") or not hasattr(each, "iloc") or data.index.equals(each.index):
            continue
        if Counter(data.index) == Counter(each.index):
            expected = "rows in the order of the items"
            got = "their index in another order; .loc[] with that of the items arranges them"
            raise InvalidParameter(expected=expected, got=got, loc=(name,))


def _items(rows: InputVectors, ids: Any, payloads: Any, id_start: int | None) -> Items:
    some = None if payloads is None else payloads_of(payloads, len(rows))
    return Items(ids_of(ids, len(rows), id_start), rows, some)


def is_document(each: Any) -> bool:
    """Whether this is an item as in JSON, and not a vector with a name ``vector`` or ``text``."""
    if not isinstance(each, Mapping):
        return False
    if set(each) <= TEXT_DOCUMENT:
        return isinstance(each.get("text"), str)
    return set(each) <= DOCUMENT and isinstance(each.get("vector"), Mapping | Sequence | np.ndarray)


def with_versions(items: Items, if_version: Any) -> Items:
    """Return items with the versions that they must have: one for all of them, or one each.

    Raises InvalidParameter.
    """
    if items.ids is None:
        raise InvalidParameter(
            expected="ids, whose versions are compared", got="none", loc=("if_version",)
        )
    given = if_version.tolist() if hasattr(if_version, "tolist") else if_version
    every = given if isinstance(given, Iterable) else [given] * len(items)
    wanted = [each.item() if isinstance(each, np.generic) else each for each in every]
    if len(wanted) != len(items):
        expected = f"a version, or {len(items)} of them"
        raise InvalidParameter(expected=expected, got=str(len(wanted)), loc=("if_version",))
    for row, each in enumerate(wanted):
        if each is not None and (type(each) is not int or each < 0):
            raise InvalidParameter(
                expected="a version, 0 for no item, or None for any",
                got=repr(each)[:60],
                loc=("if_version", row),
            )
    return replace(items, if_versions=wanted)


def with_expiries(items: Items, expires: Any) -> Items:
    """Return items that expire: one time for all of them, or one each.

    For None an item keeps its own time, if any. Raises InvalidParameter.
    """
    if isinstance(expires, np.ndarray | np.generic) and has_counts(expires.dtype):
        expires = expires.astype(f"{expires.dtype.kind}8[us]")
    given = expires.tolist() if hasattr(expires, "tolist") else expires
    is_many = isinstance(given, Iterable) and not isinstance(given, str)
    wanted = [*given] if is_many else [given] * len(items)
    if len(wanted) != len(items):
        expected = f"a time, or {len(items)} of them"
        raise InvalidParameter(expected=expected, got=str(len(wanted)), loc=("expires",))
    wanted = [each if is_present(each) and not _is_nan(each) else None for each in wanted]
    raise_first(_odd_times(wanted if is_many else wanted[:1], is_many=is_many))
    wanted = [each.isoformat() if isinstance(each, datetime) else each for each in wanted]
    own = items.expires or [None] * len(items)
    found = [other if each is None else each for each, other in zip(wanted, own, strict=True)]
    return items if found.count(None) == len(found) else replace(items, expires=found)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _odd_times(times: Iterable[Any], *, is_many: bool) -> Iterator[InvalidParameter]:
    for row, each in enumerate(times):
        loc = ("expires", row) if is_many else ("expires",)
        if isinstance(each, datetime):
            if each.tzinfo is None:
                expected = "a time with its zone, as of datetime.now(UTC)"
                yield InvalidParameter(expected=expected, got=repr(each), loc=loc)
        elif each is not None and (
            not isinstance(each, str | Real) or isinstance(each, np.timedelta64)
        ):
            yield InvalidParameter(expected="a time, or seconds", got=f"{each!r:.60}", loc=loc)


def ids_of(given: Any, count: int, id_start: int | None = None) -> Ids | None:
    """Return the ids of ``count`` items; None lets the collection number them."""
    if id_start is not None:
        is_whole = isinstance(id_start, int | np.integer) and not isinstance(id_start, bool)
        if not is_whole or not 0 <= id_start <= MAX_ID_START:
            expected, got = f"a whole number from 0 to {MAX_ID_START}", f"{id_start!r:.60}"
            raise InvalidParameter(expected=expected, got=got, loc=("id_start",))
    if given is None:
        return None if id_start is None else range(id_start, id_start + count)
    if isinstance(given, set | frozenset) or not isinstance(given, Iterable):
        got = "a set" if isinstance(given, set | frozenset) else f"{given!r:.60}"
        raise InvalidId(expected="ids in the order of the items", got=got, loc=("ids",))
    values = given.tolist() if hasattr(given, "tolist") else list(given)
    if isinstance(given, np.ndarray) and has_counts(given.dtype):
        raise InvalidId(expected="strings or integers", got=str(given.dtype), loc=("ids",))
    if len(values) != count:
        raise InvalidId(expected=quantity(count, "id"), got=str(len(values)), loc=("ids",))
    return _texts_of_ids(values)


def is_unicode(text: str) -> bool:
    """Whether a text has no unpaired surrogate, which is invalid Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def texts_of(ids: Any) -> list[str]:
    """Return one id, or several, as strings; raise InvalidId."""
    if is_id(ids) or not isinstance(ids, Iterable):
        return _texts_of_ids([ids])
    return _texts_of_ids(ids.tolist() if hasattr(ids, "tolist") else [*ids])


def _texts_of_ids(values: list[Any]) -> list[str]:
    if not {*map(type, values)} <= {str, int}:
        raise_first(
            InvalidId(expected="a string or an integer", got=f"{value!r:.60}", loc=("ids", row))
            for row, value in enumerate(values)
            if not is_id(value) and not isinstance(value, UUID)
        )
    texts = [*map(str, values)]
    if not is_unicode("".join(texts)):
        raise_first(
            InvalidId(expected="Unicode text", got="half of a surrogate pair", loc=("ids", row))
            for row, text in enumerate(texts)
            if not is_unicode(text)
        )
    return texts


# Bodies of a load


@dataclass(frozen=True, slots=True)
class LoadBody:
    """The body of one load.

    ``pieces`` returns the bytes from the start at each call. ``original`` returns a row of the body
    as it is in the file. ``numbers``: the rows of the file; None: they follow those of the previous
    body. ``id_start``: the id of the first row, if the body has no ids.
    """

    content_type: str
    pieces: Callable[[], Iterable[Piece]]
    rows: int | None = None
    bytes_: int | None = None
    original: Callable[[int], Any] | None = None
    numbers: Sequence[int] | None = None
    id_start: int | None = None


def load_body(items: Items, progress: Callable[[int], None] | None) -> LoadBody:
    """Return items as one body: `.npy` of dense vectors alone, NDJSON of texts, else Arrow.

    ``progress`` gets the number of rows read by the caller.
    """
    rows = items.rows
    is_plain = isinstance(items.ids, range | None) and items.payloads is items.expires is None
    if is_plain and rows.dense is not None and rows.dense.shape[1]:
        start = None if items.ids is None else int(items.ids[0])
        size = len(_npy_header(rows)) + len(rows) * rows.row_bytes
        return LoadBody(NPY, lambda: npy(rows, progress), len(rows), size, id_start=start)
    if rows.texts is not None:
        return LoadBody(NDJSON, lambda: text_lines(items.batches(), progress), len(rows))
    return LoadBody(ARROW, lambda: arrow(items.batches(), progress), len(rows))


def documents(items: Items, points: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield items in the form of the API, with given points as vectors or texts."""
    word, none = "vector" if items.rows.texts is None else "text", [None] * len(items)
    columns = items.payloads or none, items.if_versions or none, items.expires or none
    for item_id, point, payload, version, expires in zip(
        items.texts() or none, points, *columns, strict=True
    ):
        told = {
            "id": item_id,
            word: point,
            "payload": None if payload is None else orjson.Fragment(payload),
            "if_version": version,
            "expires": expires,
        }
        yield {name: value for name, value in told.items() if value is not None}


def text_lines(
    batches: Iterable[Items], progress: Callable[[int], None] | None = None
) -> Iterator[bytes]:
    """Yield items of texts as lines of JSON."""
    for batch in batches:
        found = documents(batch, batch.rows.texts or ())
        yield b"".join(orjson.dumps(item) + b"\n" for item in found)
        if progress is not None:
            progress(len(batch))


def npy(rows: InputVectors, progress: Callable[[int], None] | None = None) -> Iterator[Piece]:
    """Yield the bytes that `numpy.save` writes for the vectors in float32 and C order."""
    yield _npy_header(rows)
    step = max(1, _BATCH_BYTES // max(1, rows.row_bytes))
    for first in range(0, len(rows), step):
        part = rows.part(slice(first, first + step))
        yield part.matrix().reshape(-1).view(np.uint8).data
        if progress is not None:
            progress(len(part))


def _npy_header(rows: InputVectors) -> bytes:
    assert rows.dense is not None
    head, shape = io.BytesIO(), (len(rows), rows.dense.shape[1])
    described = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, described)
    return head.getvalue()


def arrow(
    batches: Iterable[Items], progress: Callable[[int], None] | None = None
) -> Iterator[Piece]:
    """Yield an Arrow stream of items in pieces; all batches have one schema."""
    import pyarrow as pa  # noqa: PLC0415  # an array is added without it

    schema = None
    for batch in batches:
        columns = _vector_columns(batch.rows)
        if batch.ids is not None:
            columns = {"id": _arrow_texts(batch.texts() or []), **columns}
        if batch.payloads is not None:
            columns["payload"] = _arrow_texts(batch.payloads)
        if batch.expires is not None:
            times = [None if each is None else str(each) for each in batch.expires]
            columns["expires"] = _arrow_texts(times)
        arrays = [*columns.values()]
        if schema is None:
            schema = pa.record_batch(arrays, [*columns]).schema
            yield memoryview(schema.serialize())
        yield memoryview(pa.record_batch(arrays, schema=schema).serialize())
        if progress is not None:
            progress(len(batch))
    if schema is not None:
        yield _ARROW_END


def _arrow_texts(texts: Sequence[str | bytes | None]) -> Any:
    """Return texts as an Arrow column without `pyarrow.array`, which imports pandas (0.2 s)."""
    import pyarrow as pa  # noqa: PLC0415

    raw = [text.encode() if isinstance(text, str) else text or b"" for text in texts]
    ends = np.cumsum([0, *map(len, raw)], dtype=np.int64)
    is_there = np.array([text is not None for text in texts], np.bool_)
    present = np.packbits(is_there, bitorder="little")
    buffers = [*map(pa.py_buffer, (present, ends, b"".join(raw)))]
    return pa.Array.from_buffers(pa.large_string(), len(raw), buffers).cast(pa.string())


def _arrow_numbers(numbers: Any) -> Any:
    """Return numbers as an Arrow column, like `_arrow_texts`."""
    import pyarrow as pa  # noqa: PLC0415

    buffers = [None, pa.py_buffer(np.ascontiguousarray(numbers))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), buffers)


def queries(rows: InputVectors) -> tuple[str, bytes]:
    """Return type and bytes of vectors without ids: `.npy` of dense, Arrow of sparse ones."""
    if rows.dense is not None:
        return NPY, b"".join(npy(rows))
    return ARROW, b"".join(arrow([Items(None, rows)]))


def _vector_columns(rows: InputVectors) -> dict[str, Any]:
    import pyarrow as pa  # noqa: PLC0415

    if rows.dense is not None:
        matrix = rows.matrix()
        if not matrix.shape[1]:  # the server refuses them
            return {"vector": pa.array([[]] * len(matrix), pa.list_(pa.float32()))}
        flat = _arrow_numbers(matrix.reshape(-1))
        return {"vector": pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])}
    ends = _arrow_numbers(rows.indptr.astype(np.int32))
    with np.errstate(over="ignore"):
        values = _arrow_numbers(rows.values.astype(np.float32))
    word, keys = "indices", _arrow_numbers(rows.indices.astype(np.int64))
    if rows.names is not None:
        word, keys = "names", _arrow_texts(rows.names).take(keys)
    return {
        word: pa.ListArray.from_arrays(ends, keys),
        "values": pa.ListArray.from_arrays(ends, values),
    }
