"""CSV bodies: their columns, and their rows as items, by the rules of the command ``load``."""

from __future__ import annotations

import io
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

import numpy as np

from gcws_search import index as ix
from gcws_search.formats.files import UTF8, BadFile, InputFile, is_encoding
from gcws_search.formats.items import Items
from gcws_search.formats.sources import Choices, Source, source_of
from gcws_search.service.errors import InvalidRequest, MalformedBody
from gcws_search.service.ingest.source import ByteReader, ItemRows, Reject
from gcws_search.service.limits import require_count, require_short_id, require_short_payload
from gcws_search.service.models import require_short_vector
from gcws_search.service.responses import TSV
from gcws_search.service.settings import Settings

_number = attrgetter("number")
_BODY: Final = "the body"
_NO_END: Final = 1 << 63
_ALL_MISSING, _TAKEN_MISSING = "drop, zero or mean says", "drop or zero says"
_OPTION: Final = re.compile(r"--(no-)?([a-z][a-z_-]*)")
"""An option of the command, which has the name of a parameter."""


@dataclass(slots=True)
class CsvColumns:
    """The columns of a load into a collection: their declared roles, and the names of coordinates.

    The first rows of a collection of fixed dim name its coordinates; later columns are ordered by
    these names.
    """

    collection: ix.StoredCollection
    choices: Choices
    encoding: str | None
    _stored: list[str] | None = None
    _is_own: bool = False

    def arrange(self, source: Source) -> None:
        """Order columns by the collection's coordinates; a new collection takes their names."""
        collection, columns = self.collection, source.names
        dim = collection.config.dim
        if source.is_text or columns is None:
            return
        if dim is None:
            source.arrange({}, dim)
            return
        collection.load_names()
        is_first = len(columns) == dim and not collection.count(None)
        if is_first and not len(collection.names):
            collection.set_names(columns, replace=False)
            self._is_own = [each.name for each in collection.names.of(range(dim))] == columns
        source.arrange(dict(collection.names.of(range(dim))), dim)
        self._stored = source.names if is_first else None

    def settle(self) -> None:
        """Remove the names if no row was stored; else check that all are there."""
        if self._is_own:
            self.collection.set_names([], replace=False)
        if self._stored is not None and self.collection.count(None):
            self.collection.set_names(self._stored, replace=False)


def read_csv(
    reader: ByteReader, kind: str, settings: Settings, columns: CsvColumns
) -> Iterator[ItemRows]:
    """Yield the chunks of a body of CSV, or of tab-separated columns."""
    with _words_of_parameters():
        file = _file(reader, kind, columns.encoding)
        source = source_of(file, replace(columns.choices, lenient=True))
        try:
            columns.arrange(source)
            for items in source.batches(with_empty=True):
                told = [(row, _with_parameters(detail)) for row, detail, _ in source.unreadable]
                rejects = [
                    Reject(row, InvalidRequest("invalid_input", [((), words)], words))
                    for row, words in told
                ]
                dropped = [*source.dropped]
                source.unreadable.clear()
                source.dropped.clear()
                yield from _chunks(items, rejects, dropped, reader.taken, settings)
        finally:
            source.read = None  # breaks a reference cycle with the source: memory is free at once
            file.close()


def _chunks(
    items: Items, rejects: list[Reject], dropped: list[int], size: int, settings: Settings
) -> Iterator[ItemRows]:
    """Yield items in chunks, each with the unreadable rows in its range."""
    rejects.sort(key=_number)
    numbers = np.array(items.numbers, np.int64)
    row_bytes = max(1, items.rows.row_bytes) if items.rows.texts is None else 1
    step = max(1, min(settings.load_chunk_rows, settings.load_chunk_bytes // row_bytes))
    for first in range(0, max(1, len(items)), step):
        rows = slice(first, first + step)
        end = int(numbers[rows.stop]) if rows.stop < len(items) else _NO_END
        others = bisect_left(rejects, end, key=_number)
        gone = bisect_left(dropped, end)
        part = items.part(rows)
        yield _checked(part, numbers[rows], rejects[:others], dropped[:gone], size, settings)
        del rejects[:others], dropped[:gone]


def _checked(
    items: Items,
    numbers: ix.Int64s,
    rejects: list[Reject],
    dropped: Sequence[int],
    size: int,
    settings: Settings,
) -> ItemRows:
    """Return items as a chunk; reject those that are too long."""
    texts = items.rows.texts
    ids: list[str | None] = [None] * len(items) if items.ids is None else [*map(str, items.ids)]
    payloads = items.payloads or [None] * len(items)
    if texts is not None:
        payloads = [ix.with_text(each, text) for each, text in zip(payloads, texts, strict=True)]
    good: list[int] = []
    for row, (item_id, payload) in enumerate(zip(ids, payloads, strict=True)):
        try:
            if item_id is not None:
                require_short_id(item_id, settings, "id")
            require_short_payload(payload, settings, "payload")
            if texts is not None:
                require_short_vector(ix.Text(texts[row]), settings, "text")
        except ix.InvalidInput as error:
            rejects.append(Reject(int(numbers[row]), error))
        else:
            good.append(row)
    if texts is None and items.rows.dense is not None:
        require_count(items.rows.dense.shape[1], settings, "vector")
    vectors = items.rows if texts is None else ix.InputVectors(mixed=[*map(ix.Text, texts)])
    rows = ItemRows(numbers, ids, payloads, vectors)
    if len(good) < len(items):
        rows = rows.part(np.array(good, np.int64))
    return replace(rows, rejects=rejects, dropped=dropped, size=size)


def describe_csv(
    head: bytes, kind: str, encoding: str | None, choices: Choices, *, may_be_texts: bool
) -> dict[str, Any]:
    """Return the interpretation of CSV by its first part.

    ``may_be_texts``: without a column of numbers, its rows are texts.
    """
    with _words_of_parameters():
        file = _file(io.BytesIO(head), kind, encoding)
        try:
            source = _source(file, choices)
        except ix.InvalidInput:
            if not may_be_texts or choices.vector is not None:
                raise
            source = _source(file, replace(choices, of_texts=True))
    source.read = None  # as above
    table = source.table
    layout, tallies = table.layout, table.tallies
    roles = {
        **dict.fromkeys(layout.payload, "payload"),
        **dict.fromkeys(layout.vector, "text" if layout.is_text else "vector"),
        layout.id: "id",
    }
    columns = [
        {
            "name": name,
            "kind": each.kind,
            "role": roles.get(name),
            "missing": each.missing,
            "share": table.shares.get(name),
        }
        for name, each in tallies.items()
    ]
    warnings = [*table.warnings]
    warnings += [_with_parameters(text) for word, text in source.guess if word == "text"]
    return {
        "encoding": file.encoding or UTF8,
        "delimiter": table.delimiter,
        "decimal": table.point,
        "header": table.has_names,
        "holds": "texts" if layout.is_text else "vectors",
        "dim": source.dim,
        "text": table.text,
        "columns": columns,
        "scale": "standard" if table.warnings else None,
        "warnings": warnings,
        "rows": table.rows(),
    }


def require_encoding(name: str, *loc: str) -> None:
    """Raise InvalidParameter if there is no encoding of this name."""
    if not is_encoding(name):
        expected = "the name of an encoding such as cp1252"
        raise ix.InvalidParameter(expected=expected, got=repr(name)[:80], loc=loc)


def _file(stream: Any, kind: str, encoding: str | None) -> InputFile:  # noqa: ANN401
    if encoding is not None:
        require_encoding(encoding, "encoding")
    return InputFile(_BODY, encoding, stream=stream, format_="tsv" if kind == TSV else "csv")


def _source(file: InputFile, choices: Choices) -> Source:
    try:
        return source_of(file, replace(choices, lenient=True))
    except BadFile as error:
        if isinstance(error.__cause__, ix.InvalidInput):
            raise error.__cause__ from None
        raise


@contextmanager
def _words_of_parameters() -> Iterator[None]:
    """Convert errors of a body from the terms of the command to those of the API."""
    try:
        yield
    except BadFile as error:
        if isinstance(error.__cause__, ix.InvalidInput):
            raise error.__cause__ from None
        error.__traceback__ = None  # from Python 3.12 on it refers to itself through this generator
        raise MalformedBody(_with_parameters(str(error))) from None


def _with_parameters(text: str) -> str:
    text = text.replace(_ALL_MISSING, _TAKEN_MISSING)
    return _OPTION.sub(lambda found: f"{found[2]}{'=false' if found[1] else ''}", text)
