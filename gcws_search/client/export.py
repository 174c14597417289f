"""Files that hold a whole collection: NDJSON, or Parquet with `id`, vector and `payload`.

What `load` would not guess of the collection stands in the first line of NDJSON, and in the
metadata of Parquet.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Protocol

from gcws_search.client.operations import Call, Operations, Plan, Progress
from gcws_search.client.results import Item
from gcws_search.formats.payloads import write_json
from gcws_search.formats.sources import COLLECTION, METADATA
from gcws_search.index import InvalidParameter
from gcws_search.index.contracts.parameters import CollectionConfig

_UNFINISHED: Final = ".part"
_NDJSON: Final = (".ndjson", ".jsonl")
_PARQUET: Final = ".parquet"
_NAMES: Final = 4000
"""Names that are asked for at a time."""


class _Writer(Protocol):
    def write(self, items: Sequence[Item]) -> None:
        """Write some items."""

    def close(self) -> None:
        """Finish the file."""


class _Named:
    """Turns the vectors of an open space into vectors by name, where all coordinates have one.

    Coordinates are numbered by arrival, so that another collection may number them otherwise.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._known: dict[int, str | None] = {}

    def items(self, items: Sequence[Item]) -> Plan[list[Item]]:
        """Return the items, by name where that can be."""
        used = {
            i for each in items if isinstance(each.vector, dict) for i in each.vector["indices"]
        }
        unknown = used - self._known.keys()
        if unknown:
            found = yield from self._operations.names(indices=unknown)
            self._known |= {index: found.get(index) for index in unknown}
        return [self._item(each) for each in items]

    def _item(self, item: Item) -> Item:
        assert isinstance(item.vector, dict)
        names = [self._known[index] for index in item.vector["indices"]]
        if None in names:
            return item
        return Item(item.id, {"names": names, "values": item.vector["values"]}, item.payload)


def _description(operations: Operations) -> Plan[dict[str, Any] | None]:
    """Return configuration and names of a collection, None where `load` guesses them."""
    config = operations.config
    names: list[str] = []
    if config.dim is not None:  # those of a fixed dim are of its first coordinates
        more = True
        while more and len(names) < config.dim:
            wanted = range(len(names), min(config.dim, len(names) + _NAMES))
            found = yield from operations.names(indices=wanted)
            names += [found[index] for index in wanted if index in found]
            more = len(found) == len(wanted)
    is_guessed = config.form == "dense" or config.dim is None
    if is_guessed and not names and config == CollectionConfig(dim=config.dim):
        return None
    return config.to_dict() | ({"names": names} if names else {})


class _NdjsonWriter:
    def __init__(self, path: Path, description: dict[str, Any] | None) -> None:
        self._file: IO[bytes] = path.open("wb")
        if description is not None:
            self._file.write(write_json({COLLECTION: description}) + b"\n")

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
    def __init__(
        self,
        path: Path,
        config: CollectionConfig,
        is_named: bool,
        description: dict[str, Any] | None,
    ) -> None:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        float32, text = pa.float32(), pa.string()
        self._word = "names" if is_named else "indices"
        coordinates = pa.list_(text if is_named else pa.int32())
        vector = (
            [("vector", pa.list_(float32, config.dim))]
            if config.form == "dense"
            else [(self._word, coordinates), ("values", pa.list_(float32))]
        )
        self._pa = pa
        self._is_dense = config.form == "dense"
        told = None if description is None else {METADATA: write_json(description)}
        self._schema = pa.schema([("id", text), *vector, ("payload", text)], told)
        self._writer = pq.ParquetWriter(path, self._schema)

    def write(self, items: Sequence[Item]) -> None:
        if not items:
            return
        texts = [None if e.payload is None else write_json(e.payload).decode() for e in items]
        columns: dict[str, Any] = {"id": [each.id for each in items], "payload": texts}
        if self._is_dense:
            columns["vector"] = [each.vector for each in items]
        else:
            for word in (self._word, "values"):
                columns[word] = [_part(each, word) for each in items]
        self._writer.write_table(self._pa.table(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def _part(item: Item, word: str) -> list[Any]:
    found = item.vector.get(word) if isinstance(item.vector, dict) else None
    if found is None:
        raise InvalidParameter(
            expected="items whose coordinates all have names, or none has, for Parquet; "
            "export .ndjson instead",
            got=f"item {item.id!r}, which has not {word}",
            loc=("path",),
        )
    return found


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

    is_named = False
    if config.dim is None:
        is_named = bool((yield from operations.names(limit=1)))
    named = _Named(operations) if is_named else None
    description = yield from _description(operations)

    def opened() -> _Writer:
        if path.endswith(_PARQUET):
            return _ParquetWriter(part, config, is_named, description)
        return _NdjsonWriter(part, description)

    count, cursor = 0, None
    writer: _Writer = yield Call(opened)
    try:
        while True:
            items, cursor = yield from operations.page(cursor)
            if named is not None:
                items = yield from named.items(items)
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
