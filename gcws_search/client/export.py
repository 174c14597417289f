"""Files that hold a whole collection: NDJSON, or Parquet with `id`, vector and `payload`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Protocol

from gcws_search.client.operations import Call, Operations, Plan, Progress
from gcws_search.client.results import Item
from gcws_search.formats.payloads import write_json
from gcws_search.index import InvalidParameter

_UNFINISHED: Final = ".part"
_NDJSON: Final = (".ndjson", ".jsonl")
_PARQUET: Final = ".parquet"


class _Writer(Protocol):
    def write(self, items: Sequence[Item]) -> None:
        """Write some items."""

    def close(self) -> None:
        """Finish the file."""


class _NdjsonWriter:
    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("wb")

    def write(self, items: Sequence[Item]) -> None:
        self._file.write(b"".join(_line(item) for item in items))

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


def _line(item: Item) -> bytes:
    document: dict[str, Any] = {"id": item.id, "vector": item.vector}
    if item.payload is not None:
        document["payload"] = item.payload
    return write_json(document) + b"\n"


class _ParquetWriter:
    def __init__(self, path: Path, is_dense: bool, dim: int | None) -> None:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        float32, text = pa.float32(), pa.string()
        vector = (
            [("vector", pa.list_(float32, dim))]
            if is_dense
            else [("indices", pa.list_(pa.int32())), ("values", pa.list_(float32))]
        )
        self._pa = pa
        self._is_dense = is_dense
        self._schema = pa.schema([("id", text), *vector, ("payload", text)])
        self._writer = pq.ParquetWriter(path, self._schema)

    def write(self, items: Sequence[Item]) -> None:
        if not items:
            return
        texts = [None if e.payload is None else write_json(e.payload).decode() for e in items]
        columns: dict[str, Any] = {"id": [each.id for each in items], "payload": texts}
        if self._is_dense:
            columns["vector"] = [each.vector for each in items]
        else:
            for word in ("indices", "values"):
                columns[word] = [_part(each, word) for each in items]
        self._writer.write_table(self._pa.table(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def _part(item: Item, word: str) -> list[Any]:
    return item.vector[word] if isinstance(item.vector, dict) else []


def require_format(path: str) -> None:
    """Raise InvalidParameter unless a file's name says what it is to be."""
    if not path.endswith((*_NDJSON, _PARQUET)):
        raise InvalidParameter(
            expected="a file called .ndjson, .jsonl or .parquet", got=repr(path), loc=("path",)
        )


def exported(operations: Operations, path: str, progress: Progress | None) -> Plan[int]:
    """Write all items of a collection to a file, which appears when it is whole.

    Returns
    -------
    int
        How many.

    Raises
    ------
    InvalidParameter
        The file's name says no format.
    OSError
    """
    require_format(path)
    target = Path(path)
    part = target.with_name(target.name + _UNFINISHED)
    config = operations.config

    def opened() -> _Writer:
        if path.endswith(_PARQUET):
            return _ParquetWriter(part, config.form == "dense", config.dim)
        return _NdjsonWriter(part)

    count, cursor = 0, None
    writer: _Writer = yield Call(opened)
    try:
        while True:
            items, cursor = yield from operations.page(cursor)
            yield Call(partial(writer.write, items))
            count += len(items)
            if progress is not None:
                progress(len(items))
            if cursor is None:
                break
        yield Call(writer.close)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return count
