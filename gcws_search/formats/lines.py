"""Lines of JSON: items as the API takes them, or objects whose keys are columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count
from types import NoneType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from gcws_search.formats.bodies import NDJSON, LoadBody
from gcws_search.formats.cells import tally_of_values, type_of
from gcws_search.formats.files import BadFile, InputFile, cut_short
from gcws_search.formats.frames import Layout, guess
from gcws_search.formats.items import Items, Origin, number_words
from gcws_search.formats.payloads import Payloads, read_json, write_json
from gcws_search.formats.sources import (
    COLLECTION,
    LINE,
    SEGMENT_ROWS,
    Choices,
    Source,
    Unreadable,
    naming,
)
from gcws_search.formats.tables import complete, text_words, words_of
from gcws_search.formats.vectors import parse_rows
from gcws_search.index import InputVectors, InvalidInput

_BATCH_ROWS: Final = 2048
_ITEM: Final = {"id", "vector", "payload"}
_SHOWN: Final = 6
_SEGMENT_BYTES: Final = 8 << 20
_SKIP: Final = "; --on-error skip leaves such rows out"
_ITEM_PAYLOAD: Final = ("payload",)


def read_lines(file: InputFile, choices: Choices) -> Source:
    """Return lines of JSON as items: items as the API takes them, or flat objects."""
    lines = (each for each in file.head.splitlines() if each.strip())
    first = _object(next(lines, b""), file.name, 0)
    told = first.get(COLLECTION) if first.keys() == {COLLECTION} else None
    if isinstance(told, dict):
        first = _object(next(lines, b""), file.name, 0)
    chosen = (choices.id, choices.vector, choices.payload)
    if not {"vector"} <= first.keys() <= _ITEM or chosen != (None, None, None):
        return _read_objects(file, choices)
    vector = first["vector"]
    dense = isinstance(vector, list)
    payload = first.get("payload")
    fields = ", ".join([*payload][:_SHOWN]) if isinstance(payload, dict) else "none in the first"
    if dense:
        words = f"{len(vector)} values"
    else:
        named = isinstance(vector, dict) and "names" in vector
        words = "sparse, by name" if named else "sparse"
    start = None if "id" in first else choices.id_start
    guess = [
        ("format", "NDJSON, an item a line"),
        ("ids", "id" if "id" in first else number_words(start)),
        ("vector", words),
        ("payload", fields),
    ]
    dim = choices.dim or (len(vector) if dense else None)
    if isinstance(told, dict):
        dim = choices.dim or told.get("dim")
    return LineSource(
        file, guess, dim, export=told if isinstance(told, dict) else None, id_start=start
    )


def _object(line: bytes, name: str, row: int) -> dict[str, Any]:
    try:
        found = read_json(line)
    except ValueError as error:
        raise BadFile(f"{name}: row {row}: expected a JSON object, got {error}") from None
    if not isinstance(found, dict):
        raise BadFile(f"{name}: row {row}: expected a JSON object, got {line[:40]!r}")
    return found


@dataclass(slots=True)
class LineSource(Source):
    """Items as lines of JSON, which the server reads as they are.

    Attributes
    ----------
    id_start : int or None
        Id of the first item, where they have none and the collection is not to number them.
    """

    id_start: int | None = None

    def _ids(self) -> Iterator[int] | None:
        return None if self.id_start is None else count(self.id_start)

    def _groups(self) -> Iterator[list[bytes]]:
        """Yield lines, some thousand at a time."""
        assert isinstance(self.file, InputFile)  # no folder has lines
        with closing(self.file.open()) as raw, naming(self.file):
            try:
                if self.export is not None:
                    raw.readline()
                while lines := raw.readlines(_SEGMENT_BYTES):
                    if not lines[-1].endswith(b"\n"):
                        lines[-1] += b"\n"
                    for first in range(0, len(lines), SEGMENT_ROWS):
                        yield lines[first : first + SEGMENT_ROWS]
            except OSError as error:
                raise cut_short(self.file.name, error) from None

    def whole(self, progress: Callable[[int], None]) -> LoadBody:
        """Return all items as one body."""

        def pieces() -> Iterator[bytes]:
            ids = self._ids()
            for lines in self._groups():
                yield b"".join(_with_ids(lines, ids))
                progress(len(lines))

        return LoadBody(NDJSON, pieces)

    def segments(self) -> Iterator[LoadBody]:
        """Yield the items as bodies of some thousand rows."""
        ids = self._ids()
        for lines in self._groups():
            body = b"".join(_with_ids(lines, ids))
            full = [line for line in lines if line.strip()]
            yield LoadBody(
                NDJSON,
                lambda body=body: iter([body]),  # type: ignore[misc]
                len(full),
                original=lambda row, full=full: _readable(full[row]),  # type: ignore[misc]
            )


def _with_ids(lines: list[bytes], ids: Iterator[int] | None) -> list[bytes]:
    """Return lines whose objects have the next ids, one a line; as they are where ids are None."""
    if ids is None:
        return lines
    found = []
    for line in lines:
        text = line.lstrip()
        number = next(ids) if text else 0
        found.append(b'{"id":%d,' % number + text[1:] if text.startswith(b"{") else line)
    return found


def _readable(line: bytes) -> Any:
    """Return a line as JSON, or as text if it is none."""
    try:
        return read_json(line)
    except ValueError:
        return line.decode(errors="replace").rstrip("\n")


# Objects whose keys are columns


def _read_objects(file: InputFile, choices: Choices) -> Source:
    """Return lines of objects whose keys are columns as items."""
    head = file.head if file.is_whole_head else file.head[: file.head.rfind(b"\n") + 1]
    sample = _sample(head)
    names = [*dict.fromkeys(name for found in sample for name in found)]
    columns = {name: [found.get(name) for found in sample] for name in names}
    tallies = {name: tally_of_values(values) for name, values in columns.items()}
    fields = [pa.field(name, _type(values, name, choices)) for name, values in columns.items()]
    layout = guess(
        pa.schema(fields), id_=choices.id, vector=choices.vector, payload=choices.payload
    )
    is_matrix = layout.vector[0] in names and not any(
        isinstance(value, list | dict) for value in columns[layout.vector[0]]
    )
    dim = choices.dim or (len(layout.vector) if is_matrix else _length(columns, layout))
    known = {name: each for name, each in tallies.items() if each.numbers + each.truths}
    word = text_words("NDJSON, flat objects", file.encoding, file.encoding_words)
    shown = words_of(word, layout, dim, choices.id_start, known)
    source = Source(file, shown, dim, None, [*layout.vector] if is_matrix else None)
    rows = _Rows(file, layout, choices, source, is_matrix=is_matrix)
    source.read = complete(rows.items, layout, choices, source)
    return source


def _sample(head: bytes) -> list[dict[str, Any]]:
    """Return the objects in the first part of a file; lines that are none are passed over."""
    found = []
    for line in head.splitlines():
        try:
            value = read_json(line) if line.strip() else None
        except ValueError:
            continue
        if isinstance(value, dict) and value.keys() != {COLLECTION}:
            found.append(value)
    return found


def _type(values: Sequence[Any], name: str, choices: Choices) -> Any:
    """Return the Arrow type by which a column of JSON is known."""
    found = [value for value in values if value is not None]
    lists = sum(isinstance(value, list) for value in found)
    if found and (lists == len(found) or (name == "vector" and isinstance(found[0], dict))):
        entries = [entry for value in found if isinstance(value, list) for entry in value]
        is_text = bool(entries) and all(isinstance(entry, str) for entry in entries)
        is_numbers = all(isinstance(entry, int | float) for entry in entries)
        return pa.list_(pa.string() if is_text or not is_numbers else pa.float64())
    kind = tally_of_values(values).kind
    is_chosen = any(fnmatchcase(name, pattern) for pattern in choices.vector or ())
    is_plain = all(isinstance(value, str | int | float) for value in found)
    if kind == "text" and not is_plain:
        return pa.struct([])
    return pa.float64() if is_chosen and kind == "text" else type_of(kind)


def _length(columns: Mapping[str, Sequence[Any]], layout: Layout) -> int | None:
    """Return the length of the first list, where vectors are lists."""
    if layout.is_sparse:
        return None
    first = next((value for value in columns[layout.vector[0]] if value is not None), None)
    return len(first) if isinstance(first, list) else None


class _Rows:
    """Lines of objects as items.

    Parameters
    ----------
    source : Source
        Rows that are left out are added to it.
    is_matrix : bool
        Whether each coordinate is a key.
    """

    def __init__(
        self,
        file: InputFile,
        layout: Layout,
        choices: Choices,
        source: Source,
        *,
        is_matrix: bool,
    ) -> None:
        self._file = file
        self._layout = layout
        self._is_lenient = choices.lenient
        self._source = source
        self._is_matrix = is_matrix

    def items(self) -> Iterator[Items]:
        """Yield the items, which know their rows."""
        group: list[tuple[int, bytes]] = []
        with closing(self._file.open()) as stream:
            try:
                row = 0
                for line in stream:
                    if row == 0 and _is_description(line):
                        continue
                    if line.strip():
                        group.append((row, line))
                        row += 1
                    if len(group) == _BATCH_ROWS:
                        yield self._items(group)
                        group = []
            except (OSError, EOFError) as error:
                raise cut_short(self._file.name, error) from None
        if group:
            yield self._items(group)

    def _items(self, lines: Sequence[tuple[int, bytes]]) -> Items:
        ids: list[str] = []
        vectors: list[Any] = []
        payloads: Payloads = []
        numbers: list[int] = []
        texts: list[str] = []
        for row, line in lines:
            try:
                found = _flat_object(line)
                item = self._id(found, line), self._vector(found), self._payload(found)
            except _Wrong as error:
                if not self._is_lenient:
                    raise BadFile(f"{self._file.name}: row {row}: {error}{_SKIP}") from None
                text = line.decode(errors="replace").rstrip()
                self._source.unreadable.append(Unreadable(row, str(error), text))
                continue
            ids.append(item[0])
            vectors.append(item[1])
            payloads.append(item[2])
            numbers.append(row)
            texts.append(line.decode(errors="replace").rstrip())
        while True:
            try:
                rows = self._matrix(vectors)
                break
            except InvalidInput as error:
                place = next((part for part in error.loc if isinstance(part, int)), None)
                detail = f"expected {error.expected}, got {error.got}"
                if place is None or not self._is_lenient:
                    where = "" if place is None else f"row {numbers[place]}: "
                    raise BadFile(f"{self._file.name}: {where}{detail}{_SKIP}") from None
                left_out = Unreadable(numbers[place], detail, texts[place])
                self._source.unreadable.append(left_out)
                del ids[place], vectors[place], payloads[place], numbers[place], texts[place]
        origin = Origin(numbers, pa.record_batch({LINE: pa.array(texts, pa.string())}))
        return Items(
            None if self._layout.id is None else ids,
            rows,
            payloads if self._layout.payload else None,
            origin,
        )

    def _matrix(self, vectors: list[Any]) -> InputVectors:
        if not self._is_matrix:
            return parse_rows(vectors)
        shape = len(vectors), len(self._layout.vector)
        with np.errstate(over="ignore"):
            return InputVectors(np.array(vectors, np.float64).reshape(shape).astype(np.float32))

    def _id(self, found: Mapping[str, Any], line: bytes) -> str:
        name = self._layout.id
        if name is None:
            return ""
        value = found.get(name)
        if isinstance(value, float):  # as written: 12e3 stays so
            value = json.loads(line, parse_float=str)[name]
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            got = "a missing value" if value is None or value == "" else f"{value!r:.60}"
            raise _Wrong(f"column {name!r}: expected an id, got {got}")
        return str(value)

    def _vector(self, found: Mapping[str, Any]) -> Any:
        layout = self._layout
        if layout.is_sparse:
            return {name: self._list(found, name) for name in layout.vector}
        if not self._is_matrix:
            name = layout.vector[0]
            value = found.get(name)
            return value if isinstance(value, dict) else self._list(found, name)
        return [_number(found.get(name), name) for name in layout.vector]

    @staticmethod
    def _list(found: Mapping[str, Any], name: str) -> list[Any]:
        value = found.get(name)
        if not isinstance(value, list):
            raise _Wrong(f"column {name!r}: expected a list, got {value!r:.60}")
        return value

    def _payload(self, found: Mapping[str, Any]) -> bytes | None:
        names = self._layout.payload
        if names == _ITEM_PAYLOAD and isinstance(found.get("payload"), dict | NoneType):
            payload = found.get("payload")
            return None if payload is None else write_json(payload)
        fields = {name: found[name] for name in names if found.get(name) is not None}
        return write_json(fields) if fields else None


def _is_description(line: bytes) -> bool:
    """Whether a line is an export's description of its collection."""
    if b'"collection"' not in line[:20]:
        return False
    try:
        found = read_json(line)
    except ValueError:
        return False
    return isinstance(found, dict) and found.keys() == {COLLECTION}


class _Wrong(Exception):
    """What is wrong with a line."""


def _flat_object(line: bytes) -> dict[str, Any]:
    try:
        found = read_json(line)
    except ValueError as error:
        raise _Wrong(f"expected a JSON object, got {error}") from None
    if not isinstance(found, dict):
        raise _Wrong(f"expected a JSON object, got {line[:40]!r}")
    return found


def _number(value: Any, name: str) -> float:
    if value is None:
        return float("nan")
    if not isinstance(value, int | float):
        raise _Wrong(f"column {name!r}: expected a number, got {value!r:.60}")
    try:
        return float(value)
    except OverflowError:
        return float("inf")
