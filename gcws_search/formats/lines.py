"""Lines of JSON: items in the form of the API, or objects whose keys are columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import count, islice
from statistics import mode
from types import NoneType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from gcws_search.formats.files import HEAD_BYTES, BadFile, InputFile, NoRows, list_some
from gcws_search.formats.items import DOCUMENT, NDJSON, SEGMENT_ROWS, TEXT_DOCUMENT, Items, LoadBody
from gcws_search.formats.payloads import read_json, write_json
from gcws_search.formats.sources import BATCH_ROWS, COLLECTION, Choices, Source
from gcws_search.formats.tables import (
    TYPES,
    CellCounts,
    Layout,
    choose,
    describe_shares,
    describe_table,
    is_mostly,
    readable_items,
)
from gcws_search.formats.vectors import rows_of, rows_of_texts
from gcws_search.index import InputVectors, quantity

_SEGMENT_BYTES: Final = 8 << 20
_MAX_LIST_BYTES: Final = 1 << 30
"""Of a text whose values are no lines: it is held in memory."""
_DECODER: Final = json.JSONDecoder()
_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_OWN: Final = {"payload", "version", "expires"}
"""Keys that items alone have."""


def read_lines(source: Source) -> None:
    """Read JSON, one value per line or a list: items in the form of the API, or flat objects."""
    file, choices = source.only_file, source.choices
    if not _begins_with_a_line(file.head):
        _put_on_lines(file)
    lines = (each for each in file.head.splitlines() if each.strip())
    first = _first_object(lines, source)
    if first.keys() == {COLLECTION} and isinstance(first[COLLECTION], dict):
        source.export = first[COLLECTION]
        first = _first_object(lines, source)
    chosen = (choices.id, choices.vector, choices.text, choices.payload)
    is_text = {"text"} <= first.keys() <= TEXT_DOCUMENT
    is_item = {"vector"} <= first.keys() <= DOCUMENT and not _is_counts(first["vector"])
    is_item |= is_text
    sample = _sample(file, 0 if source.export is None else 1)
    keys = {key for found in sample for key in found}
    if not keys & _OWN and not keys <= (TEXT_DOCUMENT if is_text else DOCUMENT):
        is_item = False  # later rows have fields that the first one lacks
        if is_text and chosen == (None, None, None, None):
            source.choices = replace(choices, text="text")
    if not is_item or chosen != (None, None, None, None):
        _read_objects(source, file, skip=0 if source.export is None else 1)
        return
    if is_text:
        source.is_text = True
        _describe_items(source, file, first, "texts")
        return
    vector = first["vector"]
    if isinstance(vector, list):
        source.dim, words = len(vector), quantity(len(vector), "value")
    else:
        named = isinstance(vector, dict) and "names" in vector
        words = "sparse, by name" if named else "sparse"
    if source.export is not None:
        source.dim = source.export.get("dim")
    _describe_items(source, file, first, words)


def _begins_with_a_line(head: bytes) -> bool:
    """Whether the first line of a text is an object, or the text is empty."""
    line = next((each for each in head.split(b"\n") if each.strip()), b"{}").strip()
    if line.startswith(b"["):
        return False
    try:
        read_json(line)
    except ValueError:
        return False
    return True


def _put_on_lines(file: InputFile) -> None:
    """Put each value of a list, or of a text with multi-line values, on a separate line.

    Other text is unchanged. Raises BadFile if it begins as a list and is invalid, or is too long
    for memory, and NoRows for an empty list.
    """
    is_list = file.head.lstrip().startswith(b"[")
    with file.open() as stream:
        text = stream.read(_MAX_LIST_BYTES + 1)
    if len(text) > _MAX_LIST_BYTES:
        if not is_list and file.path is not None:
            return
        raise BadFile(
            f"{file.name}: expected a JSON object on each line, or at most "
            f"{_MAX_LIST_BYTES >> 30} GiB; jq -c '.[]' puts each value of a list on a line"
        )
    try:
        values = _values(text.decode())
    except (ValueError, RecursionError) as error:
        if is_list:
            raise BadFile(f"{file.name}: expected a list of JSON objects, got {error}") from None
        if file.path is None:  # it can be read once only
            file.become(text)
        return
    if not values:
        raise NoRows(f"{file.name}: expected rows, got an empty list")
    if not is_list and len(values) == 1 and len(text) > HEAD_BYTES:
        raise BadFile(
            f"{file.name}: expected a JSON object for each row, got one of {len(text):,} bytes; "
            "to_json(…, orient='records', lines=True) of pandas writes an object for a row"
        )
    if all(each.startswith("[") for each in values):
        values = [f'{{"vector":{each}}}' for each in values]
    lines = (each.replace("\n", " ").replace("\r", " ") + "\n" for each in values)
    file.become("".join(lines).encode())


def _values(text: str) -> list[str]:
    """Return the texts of the values of a list, or of consecutive values.

    Raises ValueError, or RecursionError.
    """
    start, values = _blank(text, 0), list[str]()
    if is_list := text.startswith("[", start):
        start = _blank(text, start + 1)
        if text.startswith("]", start):
            return values
    while True:
        _, end = _DECODER.raw_decode(text, start)
        values.append(text[start:end])
        start = _blank(text, end)
        if is_list:
            if text.startswith(",", start):
                start = _blank(text, start + 1)
                continue
            if not text.startswith("]", start):
                raise json.JSONDecodeError("Expecting ',' or ']'", text, start)
            start = _blank(text, start + 1)
        if start == len(text):
            return values
        if is_list:
            raise json.JSONDecodeError("Extra data", text, start)


def _blank(text: str, start: int) -> int:
    """Return the end of the blanks that begin at a place."""
    found = _BLANKS.match(text, start)
    return start if found is None else found.end()


def _describe_items(source: Source, file: InputFile, first: dict[str, Any], words: str) -> None:
    """Describe lines of items, which are sent unchanged."""
    payload, id_start = first.get("payload"), source.choices.id_start
    fields = list_some([*payload], 6) if isinstance(payload, dict) else "none in the first"
    ids = "id" if "id" in first else None
    form = "JSON, items" if file.is_made else "NDJSON, an item a line"
    source.describe(file.words(form), ids, words, fields)
    source.lines = lambda: _bodies(source, file, None if ids else id_start)


def _first_object(lines: Iterator[bytes], source: Source) -> dict[str, Any]:
    """Return the next object; skip lines before it if bad rows are left out."""
    problem = ""
    for line in lines:
        try:
            return _object(line)
        except BadFile as error:
            problem = problem or f"row 0: {error}"
            if not source.choices.lenient:
                break
    raise BadFile(f"{source.file.name}: {problem or 'expected rows, got none'}")


def _bodies(source: Source, file: InputFile, id_start: int | None) -> Iterator[LoadBody]:
    """Yield unchanged lines of the file, some thousand per body; assign ids from a number on."""
    ids = None if id_start is None else count(id_start)
    with file.open() as raw:
        if source.export is not None:
            raw.readline()
        while lines := raw.readlines(_SEGMENT_BYTES):
            if not lines[-1].endswith(b"\n"):
                lines[-1] += b"\n"
            for first in range(0, len(lines), SEGMENT_ROWS):
                yield _body(lines[first : first + SEGMENT_ROWS], ids)


def _body(lines: list[bytes], ids: Iterator[int] | None) -> LoadBody:
    full = [line for line in lines if not line.isspace()]
    body = b"".join(lines if ids is None else map(_with_id, full, ids))
    return LoadBody(NDJSON, lambda: [body], len(full), original=lambda row: _readable(full[row]))


def _with_id(line: bytes, number: int) -> bytes:
    text = line.lstrip()
    return b'{"id":%d,' % number + text[1:] if text.startswith(b"{") else line


def _readable(line: bytes) -> Any:
    """Return a line as JSON, or as text if it is invalid."""
    try:
        return read_json(line)
    except ValueError:
        return line.decode(errors="replace").rstrip()


# Objects whose keys are columns


def _read_objects(source: Source, file: InputFile, skip: int) -> None:
    """Read lines of objects whose keys are columns; the first ``skip`` lines describe them."""
    choices, source.export = source.choices, None
    sample = _sample(file, skip)
    columns: dict[str, list[Any]] = {}  # present values only: objects may share few keys
    for found in sample:
        for name, value in found.items():
            columns.setdefault(name, []).append(value)
    tallies = {name: CellCounts.of_values(each, len(sample)) for name, each in columns.items()}
    fields = [pa.field(name, _type(values, name, choices)) for name, values in columns.items()]
    schema = pa.schema(fields)
    layout = choose(schema, choices)
    is_matrix = layout.is_matrix(schema)
    known = {name: each for name, each in tallies.items() if each.numbers + each.truths}
    word = file.words(f"{'JSON' if file.is_made else 'NDJSON'}, flat objects")
    dim = len(layout.vector) if is_matrix else _usual_length(columns, layout)
    layout = replace(layout, width=dim)
    describe_table(source, word, layout, dim, known, is_matrix=is_matrix)
    lists = {name: [*filter(_is_numbers, columns[name])] for name in layout.payload}
    mixed = [
        f"{name!r}, of which {len(some)} of {tallies[name].cells} are numbers"
        for name, some in lists.items()
        if any(some)
    ]
    if mixed:
        source.guess.append(("lists", list_some(mixed)))
    if is_matrix:
        numbers = {
            name: [_number(each, name) for each in columns[name] if isinstance(each, int | float)]
            for name in layout.vector
        }
        describe_shares(source, {name: np.array(numbers[name], np.float64) for name in numbers})
    source.read = lambda: _rows(source, file, layout, skip)


def _is_counts(vector: Any) -> bool:
    """Whether a vector is an object of names and numbers, for which the API has two lists."""
    entries = vector.values() if isinstance(vector, dict) else (None,)
    return all(isinstance(each, int | float) for each in entries)


def _sample(file: InputFile, skip: int) -> list[dict[str, Any]]:
    """Return the objects in the head of a file; skip invalid lines."""
    lines = (line for line in file.first_lines if line.strip())
    values = map(_readable, islice(lines, skip, None))
    return [value for value in values if isinstance(value, dict)]


def _type(values: Sequence[Any], name: str, choices: Choices) -> Any:
    """Return the Arrow type that describes a column of JSON."""
    found = [value for value in values if value is not None]
    is_chosen = any(fnmatchcase(name, pattern) for pattern in choices.vector or ())
    is_vector = is_chosen or name == "vector"
    filled = found if is_vector else [value for value in found if value != []]
    vectors = sum(_is_numbers(value) or (is_vector and isinstance(value, dict)) for value in filled)
    if vectors and (is_vector or is_mostly(vectors, len(filled))):
        return pa.list_(pa.float64())
    lists = sum(isinstance(value, list) for value in filled)
    if found and is_mostly(lists, len(filled)):
        return pa.list_(pa.string())
    kind = CellCounts.of_values(values, len(values)).kind
    is_plain = all(isinstance(value, str | int | float) for value in found)
    if kind == "text" and not is_plain:
        return pa.struct([])
    return TYPES["number" if is_chosen and kind == "text" else kind]


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, int | float) for each in value)


def _usual_length(columns: Mapping[str, Sequence[Any]], layout: Layout) -> int | None:
    """Return the most frequent length of the first lists, if vectors are lists."""
    if layout.is_sparse or layout.is_text:
        return None
    return mode([len(each) for each in columns[layout.vector[0]] if _is_numbers(each)] or [None])


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = read_json(line)
    except ValueError as error:
        raise BadFile(f"expected a JSON object, got {error}") from None
    if not isinstance(found, dict):
        raise BadFile(f"expected a JSON object, got {line[:40]!r}")
    return found


def _rows(source: Source, file: InputFile, layout: Layout, skip: int) -> Iterator[Items]:
    """Yield the objects as items with their row numbers."""
    with file.open() as stream:
        lines = islice((line for line in stream if line.strip()), skip, None)
        row = 0
        while batch := [*islice(lines, BATCH_ROWS)]:
            yield _items(source, layout, batch, row)
            row += len(batch)


def _items(source: Source, layout: Layout, lines: Sequence[bytes], first: int) -> Items:
    """Return the rows from ``first`` on; each coordinate is a key if the source has columns."""
    is_matrix = source.columns is not None
    fields = {name: place for place, name in enumerate(layout.payload)}
    found: list[tuple[str, Any, bytes | None]] = []
    numbers: list[int] = []
    for row, line in enumerate(lines, first):
        try:
            each = _object(line)
            vector = _vector(each, layout, is_matrix=is_matrix)
            found.append((_id(each, layout.id, line), vector, _payload(each, fields)))
        except BadFile as error:
            source.reject(row, str(error), line.decode(errors="replace").rstrip())
            continue
        numbers.append(row)

    read = rows_of_texts if layout.is_text else rows_of

    def parse(places: list[int]) -> Items:
        vectors = [found[place][1] for place in places]
        return Items(
            None if layout.id is None else [found[place][0] for place in places],
            _matrix(vectors, len(layout.vector)) if is_matrix else read(vectors),
            [found[place][2] for place in places] if layout.payload else None,
        )

    return readable_items(source, layout, numbers, parse, lambda row: _readable(lines[row - first]))


def _matrix(vectors: list[Any], dim: int) -> InputVectors:
    return InputVectors(np.array(vectors, np.float64).reshape(len(vectors), dim))


def _id(found: Mapping[str, Any], name: str | None, line: bytes) -> str:
    if name is None:
        return ""
    value = found.get(name)
    if isinstance(value, float):  # unchanged: 12e3 stays 12e3
        value = json.loads(line, parse_float=str)[name]
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        got = "a missing value" if value is None or value == "" else f"{value!r:.60}"
        raise BadFile(f"column {name!r}: expected an id, got {got}")
    return str(value)


def _vector(found: Mapping[str, Any], layout: Layout, *, is_matrix: bool) -> Any:
    if layout.is_text:
        return _value(found, layout.vector[0], str, "text")
    if layout.is_sparse:
        lists = {name: _value(found, name, list, "list") for name in layout.vector}
        coordinates, values = lists.values()
        if len(coordinates) != len(values):
            got = f"{len(coordinates)} and {len(values)}"
            raise BadFile(f"expected as many {layout.vector[0]} as values, got {got}")
        return lists
    if is_matrix:
        return [_number(found.get(name), name) for name in layout.vector]
    vector = _value(found, layout.vector[0], list | dict, "list")
    if isinstance(vector, list) and layout.width not in (None, len(vector)):
        got = quantity(len(vector), "value")
        raise BadFile(
            f"column {layout.vector[0]!r}: expected {quantity(layout.width, 'value')}, got {got}"
        )
    return vector


def _payload(found: Mapping[str, Any], names: Mapping[str, int]) -> bytes | None:
    """Return the fields of some names, in order; objects may lack many of them."""
    if [*names] == ["payload"] and isinstance(found.get("payload"), dict | NoneType):
        payload = found.get("payload")
        return None if payload is None else write_json(payload)
    known = sorted(filter(names.__contains__, found), key=names.__getitem__)
    fields = {name: found[name] for name in known if found[name] is not None}
    return write_json(fields) if fields else None


def _value(found: Mapping[str, Any], name: str, kind: Any, word: str) -> Any:
    value = found.get(name)
    if not isinstance(value, kind):
        raise BadFile(f"column {name!r}: expected a {word}, got {value!r:.60}")
    return value


def _number(value: Any, name: str) -> float:
    if value is None:
        return float("nan")
    if not isinstance(value, int | float):
        raise BadFile(f"column {name!r}: expected a number, got {value!r:.60}")
    try:
        return float(value)
    except OverflowError:
        return float("inf")
