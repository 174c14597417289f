"""Records of a file become items in batches: lines, spectra, signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np

from gcws_search.formats.files import UTF8, BadFile, InputFile, find_repeated, list_some
from gcws_search.formats.items import Items
from gcws_search.formats.payloads import write_json
from gcws_search.formats.sources import BATCH_ROWS, Source
from gcws_search.formats.vectors import rows_of_entries

_BATCH_NUMBERS: Final = 1 << 18
"""Numbers of a batch: a signature has thousands."""
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Entry:
    """A parsed record: coordinates or names, their values, and other fields."""

    keys: Sequence[Any]
    values: Sequence[float]
    id: str | None = None
    payload: Mapping[str, Any] | None = None


def read_records(  # noqa: PLR0913  # what a format says of its records
    source: Source,
    records: Callable[[], Iterable[tuple[str, R]]],
    parse: Callable[[R], Entry],
    *,
    format_: str,
    ids: str | None,
    vector: str,
    fields: Iterable[str] = (),
    by_name: bool = True,
    show: Callable[[R], Any],
) -> None:
    """Set a source to read records as items, and describe how the file is read.

    Reading raises BadFile for an invalid record, unless such rows may be left out.

    Parameters
    ----------
    records : callable
        Yields from the start at each call the place of a record, ``line 7``, and the record.
    parse : callable
        Raises BadFile with the expected form for an invalid record.
    ids : str or None
        For people: the kind of ids, which are distinct; None: the collection numbers the records.
    fields : iterable of str
        Fields of payloads; only those that the caller chooses are kept.
    by_name : bool
        Coordinates are names.
    show : callable
        Returns the contents of a record, for people.
    """
    has_ids = ids is not None

    def read() -> Iterator[Items]:
        seen: set[int] = set()
        found: list[tuple[int, Entry, Any]] = []
        count = 0
        for row, (place, record) in enumerate(records()):
            try:
                entry = parse(record)
                _require_vector(entry)
                if has_ids:
                    _require_own_id(entry.id, seen)
            except UnicodeDecodeError as error:
                encoding = source.file.encoding or UTF8
                detail = f"expected text in {encoding}, got {error.object[:20]!r}"
                source.reject(row, f"{place}: {detail}", show(record), "; --encoding names another")
                continue
            except BadFile as error:
                source.reject(row, f"{place}: {error}", show(record))
                continue
            if entry.payload is not None:
                kept = {key: each for key, each in entry.payload.items() if is_kept(source, key)}
                entry = replace(entry, payload=kept or None)
            found.append((row, entry, show(record) if source.choices.lenient else None))
            count += len(entry.keys)
            if len(found) == BATCH_ROWS or count >= _BATCH_NUMBERS:
                yield _items(found, has_ids=has_ids, by_name=by_name)
                found, count = [], 0
        if found:
            yield _items(found, has_ids=has_ids, by_name=by_name)

    kept = [name for name in fields if is_kept(source, name)]
    source.describe(format_, ids, vector, list_some(kept, 6) or "none")
    source.read = read


def head_lines(file: InputFile, comment: bytes = b"#") -> Iterator[bytes]:
    """Yield the complete lines in the head of a file that are neither blank nor comments."""
    return (line for line in file.first_lines if not _is_skipped(line, comment))


def numbered_lines(file: InputFile, comment: bytes = b"#") -> Iterator[tuple[str, bytes]]:
    """Yield the lines that are neither blank nor comments, and their places: ``line 7``."""
    for number, line in enumerate(file.lines(), 1):
        if not _is_skipped(line, comment):
            yield f"line {number}", line


def read_number(text: str) -> float:
    """Return a number; raise ValueError for other text, including 1_000, which Python parses."""
    if "_" in text:
        raise ValueError(f"could not convert string to float: {text!r:.60}")
    return float(text)


def show_line(line: bytes) -> str:
    """Return a line for people."""
    return line.decode(errors="replace").rstrip()


def is_kept(source: Source, name: str) -> bool:
    """Whether a field is kept: all are unless the caller names some."""
    patterns = source.choices.payload
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_skipped(line: bytes, comment: bytes) -> bool:
    return line.isspace() or bool(comment and line.startswith(comment))


def _require_vector(entry: Entry) -> None:
    """Raise BadFile for invalid numbers, a repeated coordinate, or a missing vector."""
    values = np.array(entry.values, np.float64)
    if not np.isfinite(values).all():
        raise BadFile(f"expected numbers, got {values[~np.isfinite(values)][0]}")
    if len({*entry.keys}) < len(entry.keys):
        twice = find_repeated(entry.keys)
        raise BadFile(f"expected distinct coordinates, got {twice!r} twice")
    if not values.any():
        raise BadFile("expected at least one number other than 0, got none")


def _require_own_id(id_: str | None, seen: set[int]) -> None:
    """Raise BadFile for a missing or repeated id; ``seen`` has the hashes of earlier ones."""
    if not id_:
        raise BadFile(
            "expected an id, because the first one has one, got none; --id '' takes no ids"
        )
    if hash(id_) in seen:
        raise BadFile(f"expected a unique id, got {id_!r:.60} again; --id '' takes no ids")
    seen.add(hash(id_))


def _items(found: list[tuple[int, Entry, Any]], *, has_ids: bool, by_name: bool) -> Items:
    rows, entries, texts = zip(*found, strict=True)
    keys = [*chain.from_iterable(entry.keys for entry in entries)]
    values = np.array([*chain.from_iterable(entry.values for entry in entries)], np.float64)
    lengths = [len(entry.keys) for entry in entries]
    vectors = rows_of_entries(lengths, keys, values, by_name=by_name)
    payloads = [None if entry.payload is None else write_json(entry.payload) for entry in entries]
    shown = dict(zip(rows, texts, strict=True))
    return Items(
        [entry.id for entry in entries] if has_ids else None,
        vectors,
        payloads,
        rows,
        shown.__getitem__,
    )
