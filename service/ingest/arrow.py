"""Arrow streams: columns ``id``, ``vector`` or ``indices`` + ``values``, and ``payload``."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pydantic_core import from_json

from gcws_search import index as ix
from gcws_search.index import Int64s
from gcws_search.service.guards.limits import Limits, require_count, require_short_id
from gcws_search.service.http.errors import BodyTooLarge, MalformedBody
from gcws_search.service.ingest.rows import (
    DenseRows,
    ItemRows,
    MixedRows,
    Reject,
    SparseRows,
    Vectors,
)
from gcws_search.service.ingest.source import ByteReader
from gcws_search.service.translate import requests

_COLUMNS: Final = {"id", "vector", "indices", "values", "payload"}


def _is_numbers(kind: Any) -> bool:  # noqa: ANN401
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_list(kind: Any) -> bool:  # noqa: ANN401
    return bool(
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )


def _is_text(kind: Any) -> bool:  # noqa: ANN401
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _plain(kind: Any) -> Any:  # noqa: ANN401
    """Return the type of a column's values, dictionary-encoded or not."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def check_schema(schema: Any) -> None:  # noqa: ANN401
    """Raise InvalidParameter unless the columns are those of items."""
    names = schema.names
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown or len(set(names)) != len(names):
        _refuse("columns id, vector or indices and values, payload, each once", ", ".join(names))
    if "id" not in names or ("vector" in names) == ("indices" in names and "values" in names):
        _refuse("columns id and either vector or indices and values", ", ".join(names) or "none")
    kinds = {name: _plain(schema.field(name).type) for name in names}
    if not (_is_text(kinds["id"]) or pa.types.is_integer(kinds["id"])):
        _refuse("ids as strings or integers", str(kinds["id"]), "id")
    for name in ("vector", "indices", "values"):
        if name in kinds and not (_is_list(kinds[name]) and _is_numbers(kinds[name].value_type)):
            _refuse("lists of numbers", str(kinds[name]), name)
    if "indices" in kinds and not pa.types.is_integer(kinds["indices"].value_type):
        _refuse("lists of integers", str(kinds["indices"]), "indices")
    if "payload" in kinds and not (
        _is_text(kinds["payload"]) or pa.types.is_null(kinds["payload"])
    ):
        _refuse("payloads as JSON text", str(kinds["payload"]), "payload")


def _refuse(expected: str, got: str, *loc: str) -> None:
    raise ix.InvalidParameter(expected=expected, got=got, loc=loc)


def _decoded(column: Any) -> Any:  # noqa: ANN401
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """The chunks of an Arrow stream; its own batches are cut and joined to chunks."""

    reader: ByteReader
    limits: Limits
    chunk_rows: int
    chunk_bytes: int

    def __iter__(self) -> Iterator[ItemRows]:
        """Yield chunks of rows.

        Raises
        ------
        MalformedBody, InvalidParameter, BodyTooLarge
        """
        first = 0
        for batch in self._joined():
            yield from_batch(batch, first, self.limits)
            first += len(batch)

    def _batches(self) -> Iterator[Any]:
        try:
            with self._opened() as stream:
                check_schema(stream.schema)
                for batch in stream:
                    batch.validate(full=True)
                    yield batch
                if self.reader.read(1):
                    raise MalformedBody("expected the body to end after the Arrow stream, got more")
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise _malformed(error) from None

    def _opened(self) -> Any:  # noqa: ANN401
        try:
            return pa.ipc.open_stream(self.reader)
        except BodyTooLarge as error:  # other bytes, taken for a length
            raise _malformed(error) from None

    def _joined(self) -> Iterator[Any]:
        """Yield batches of the size of a chunk."""
        gathered: list[Any] = []
        rows, size = 0, 0
        for batch in self._batches():
            row_bytes = max(1, batch.nbytes // max(1, len(batch)))
            start = 0
            while start < len(batch):
                room = min(self.chunk_rows - rows, (self.chunk_bytes - size) // row_bytes)
                part = batch.slice(start, max(1, room))
                gathered.append(part)
                start += len(part)
                rows += len(part)
                size += len(part) * row_bytes
                if rows >= self.chunk_rows or size + row_bytes > self.chunk_bytes:
                    yield pa.concat_batches(gathered)
                    gathered, rows, size = [], 0, 0
        if gathered:
            yield pa.concat_batches(gathered)


def _malformed(error: Exception) -> MalformedBody:
    return MalformedBody(f"expected an Arrow stream: {str(error)[:200]}")


def from_batch(batch: Any, first: int, limits: Limits) -> ItemRows:  # noqa: ANN401
    """Return a record batch as a chunk whose first row has the number ``first``."""
    rejects: list[Reject] = []
    ids: list[str] = []
    payloads: list[bytes | None] = []
    good: list[int] = []
    columns = {name: _decoded(batch.column(name)) for name in batch.schema.names}
    texts = columns["payload"].to_pylist() if "payload" in columns else [None] * len(batch)
    nulls, counts = _null_vectors(columns), _counts(columns)
    for row, (sent, text) in enumerate(zip(columns["id"].to_pylist(), texts, strict=True)):
        try:
            if nulls[row]:
                raise ix.InvalidVector(expected="a vector", got="null", loc=("vector",))
            require_count(counts[row], limits, "vector")
            ids.append(_id(sent, limits))
            payloads.append(_payload(text, limits))
        except ix.InvalidInput as error:
            del ids[len(good) :]
            rejects.append(Reject.of(first + row, error))
        else:
            good.append(row)
    rows = np.array(good, np.int64)
    if rejects:
        columns = {name: column.take(pa.array(rows)) for name, column in columns.items()}
    return ItemRows(first + rows, ids, payloads, _vectors(columns), rejects)


def _null_vectors(columns: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return (n,) bool: rows with a missing list, or a missing number in one."""
    names = ("vector",) if "vector" in columns else ("indices", "values")
    return np.logical_or.reduce([_with_nulls(columns[name]) for name in names])


def _counts(columns: dict[str, Any]) -> list[int]:
    """Return how many numbers each row has; None where it has no list."""
    column = columns["vector"] if "vector" in columns else columns["values"]
    counts: list[int] = column.value_lengths().to_pylist()
    return counts


def _with_nulls(column: Any) -> Any:  # noqa: ANN401
    missing = column.is_null().to_numpy(zero_copy_only=False)
    flat = column.flatten()
    if flat.null_count:
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        row_of = np.repeat(np.arange(len(column)), lengths)
        missing = missing.copy()
        missing[row_of[flat.is_null().to_numpy(zero_copy_only=False)]] = True
    return missing


def _id(sent: str | int | None, limits: Limits) -> str:
    if sent is None:
        raise ix.InvalidId(expected="a string or an integer", got="null", loc=("id",))
    text = requests.item_id(str(sent))
    require_short_id(text, limits, "id")
    return text


def _payload(text: str | None, limits: Limits) -> bytes | None:
    if text is None:
        return None
    try:
        value = from_json(text)  # as JSON bodies are read: integers of any size, a bounded depth
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ix.InvalidPayload(
            expected="the text of a JSON object", got=repr(text)[:80], loc=("payload",)
        )
    return requests.payload(value, limits, "payload")


def _vectors(columns: dict[str, Any]) -> Vectors:
    if "vector" in columns:
        ends, values = _lists(columns["vector"])
        lengths = np.diff(ends)
        width = int(lengths[0]) if len(lengths) else 0
        if (lengths == width).all():
            return DenseRows(values.reshape(len(lengths), width))
        return MixedRows([values[start:stop] for start, stop in pairwise(ends.tolist())])
    index_ends, indices = _lists(columns["indices"])
    value_ends, values = _lists(columns["values"])
    if (index_ends == value_ends).all():
        return SparseRows(index_ends, indices, values)
    borders = zip(pairwise(index_ends.tolist()), pairwise(value_ends.tolist()), strict=True)
    return MixedRows([ix.SparseVector(indices[a:b], values[c:d]) for (a, b), (c, d) in borders])


def _lists(column: Any) -> tuple[Int64s, Any]:  # noqa: ANN401
    """Return where each list begins and ends, (n + 1,), and all values."""
    ends = np.zeros(len(column) + 1, np.int64)
    np.cumsum(column.value_lengths().to_numpy(zero_copy_only=False), out=ends[1:])
    return ends, column.flatten().to_numpy(zero_copy_only=False)
