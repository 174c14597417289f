"""Bodies of a load: an Arrow stream, or a file of `.npy`, a piece at a time."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gcws_search.formats.items import BATCH_BYTES, Items
from gcws_search.index import InputVectors

ARROW: Final = "application/vnd.apache.arrow.stream"
NPY: Final = "application/x-npy"
NDJSON: Final = "application/x-ndjson"
JSON: Final = "application/json"
Piece = bytes | memoryview


@dataclass(frozen=True, slots=True)
class LoadBody:
    """The body of one load.

    Attributes
    ----------
    pieces : callable
        Returns the bytes from the start at each call.
    rows : int or None
        How many rows it holds, where that is known.
    original : callable or None
        Returns a row, by its number in the body, as it stands in the file.
    numbers : sequence of int, or None
        Which row of the file each is; None where they follow those of the body before.
    id_start : int or None
        What the first row is called, where the body has no ids.
    """

    content_type: str
    pieces: Callable[[], Iterable[Piece]]
    rows: int | None = None
    bytes_: int | None = None
    original: Callable[[int], Any] | None = None
    numbers: Sequence[int] | None = None
    id_start: int | None = None


def load_body(
    items: Items,
    batches: Callable[[], Iterable[Items]],
    progress: Callable[[int], None] | None,
) -> LoadBody:
    """Return items as one body: `.npy` where they are dense vectors alone, else Arrow.

    Parameters
    ----------
    items : Items
        All of them.
    batches : callable
        Yields them in parts.
    progress : callable or None
        Called with the number of rows handed over since the last call.
    """
    rows = items.rows
    is_plain = isinstance(items.ids, range | None) and items.payloads is None
    if is_plain and rows.dense is not None and rows.dense.shape[1]:
        start = None if items.ids is None else int(items.ids[0])
        size = npy_bytes(rows)
        return LoadBody(NPY, lambda: npy(rows, progress), len(rows), size, id_start=start)
    return LoadBody(ARROW, lambda: arrow(batches(), progress), len(rows))


def npy(rows: InputVectors, progress: Callable[[int], None] | None = None) -> Iterator[Piece]:
    """Yield what `numpy.save` writes of the vectors in float32 and C order."""
    yield _npy_header(rows)
    step = max(1, BATCH_BYTES // max(1, rows.row_bytes))
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


def npy_bytes(rows: InputVectors) -> int:
    """Return how many bytes `npy` yields."""
    return len(_npy_header(rows)) + len(rows) * rows.row_bytes


class _Sink(io.RawIOBase):
    """Holds what Arrow writes until `take`."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.pieces.append(bytes(data))
        return len(data)

    def take(self) -> list[bytes]:
        pieces, self.pieces = self.pieces, []
        return pieces


def arrow(
    batches: Iterable[Items], progress: Callable[[int], None] | None = None
) -> Iterator[bytes]:
    """Yield an Arrow stream of items in pieces; all batches are of one form."""
    import pyarrow as pa  # noqa: PLC0415  # an array is added without it

    sink = _Sink()
    writer = None
    for batch in batches:
        record = record_batch(batch)
        if writer is None:
            writer = pa.ipc.new_stream(sink, record.schema)
        writer.write_batch(record)
        yield from sink.take()
        if progress is not None:
            progress(len(batch))
    if writer is not None:
        writer.close()
        yield from sink.take()


def record_batch(items: Items) -> Any:
    """Return items as a record batch: ``id`` if there are, the vector's columns, ``payload``."""
    import pyarrow as pa  # noqa: PLC0415

    columns = _vector_columns(items.rows)
    if items.ids is not None:
        columns = {"id": pa.array(items.texts(), pa.string()), **columns}
    if items.payloads is not None:
        columns["payload"] = pa.array(items.payloads, pa.string())
    return pa.record_batch(columns)


def queries(rows: InputVectors) -> tuple[str, bytes]:
    """Return type and bytes of vectors without ids: `.npy` of dense, Arrow of sparse ones."""
    if rows.dense is not None:
        return NPY, b"".join(npy(rows))
    import pyarrow as pa  # noqa: PLC0415

    record = pa.record_batch(_vector_columns(rows))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, record.schema) as writer:
        writer.write_batch(record)
    return ARROW, bytes(sink.getvalue().to_pybytes())


def _vector_columns(rows: InputVectors) -> dict[str, Any]:
    import pyarrow as pa  # noqa: PLC0415

    if rows.dense is not None:
        matrix = rows.matrix()
        flat = pa.array(matrix.reshape(-1))
        return {"vector": pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])}
    ends = pa.array(rows.indptr.astype(np.int32))
    with np.errstate(over="ignore"):
        values = pa.array(rows.values.astype(np.float32))
    word, keys = "indices", pa.array(rows.indices.astype(np.int64))
    if rows.names is not None:
        word, keys = "names", pa.array(rows.names, pa.string()).take(keys)
    return {
        word: pa.ListArray.from_arrays(ends, keys),
        "values": pa.ListArray.from_arrays(ends, values),
    }
