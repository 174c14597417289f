"""Files as items: arrays, tables, lines and svmlight, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import numpy as np

from gcws_search.formats.bodies import ARROW, NDJSON, LoadBody, arrow, load_body
from gcws_search.formats.files import BadFile, InputFile, cut_short
from gcws_search.formats.items import Items, number_words, numbers_of
from gcws_search.formats.payloads import from_columns, read_json
from gcws_search.formats.vectors import DenseRows, Rows, SparseRows
from gcws_search.index import GcwsError

if TYPE_CHECKING:
    from gcws_search.formats.folders import Folder

_SEGMENT_BYTES: Final = 8 << 20
SEGMENT_ROWS: Final = 8192
COLLECTION: Final = "collection"
"""Key of what the first line of an export says of its collection."""
LINE: Final = "line"
"""The only column of what stands in a file whose lines are objects."""
METADATA: Final = b"gcws_search"
"""Where Parquet says it."""
_ITEM: Final = {"id", "vector", "payload"}
_TWO_DIMENSIONS: Final = 2
_SHOWN: Final = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What a caller says of a file; what is None is guessed.

    Attributes
    ----------
    id : str or None
        Column of ids.
    vector, payload : tuple of str, or None
        Columns, or patterns of their names.
    dim : int or None
    header : bool or None
        Whether the first line of CSV has the names of columns.
    id_start : int or None
        Number of the first row where there are no ids; None: the collection numbers the rows.
    lenient : bool
        Whether rows that cannot be read are left out.
    missing : {"error", "drop", "zero", "mean"}
        What a missing number in a column of the vector is or becomes: its row is left out, or the
        number is 0 or the mean of its column.
    """

    id: str | None = None
    vector: tuple[str, ...] | None = None
    payload: tuple[str, ...] | None = None
    dim: int | None = None
    header: bool | None = None
    id_start: int | None = None
    lenient: bool = False
    missing: Literal["error", "drop", "zero", "mean"] = "error"


class Unreadable(NamedTuple):
    """A row of a file that cannot be read, and is left out.

    Attributes
    ----------
    row : int
    detail : str
    text : object
        As it stands there: a line, or values by column.
    """

    row: int
    detail: str
    text: Any


class Source(Protocol):
    """A file as items.

    Attributes
    ----------
    guess : list of (str, str)
        What the file is taken for, for people.
    dim : int or None
        Number of coordinates; None where vectors are sparse and the file does not tell.
    rows : int or None
        Where that is known before it is read.
    columns : list of str, or None
        Names of the coordinates, where these are columns.
    unreadable : list of Unreadable
        Rows that were left out so far.
    dropped : list of int
        Rows that were left out so far because they lack a number.
    described : dict or None
        What an export says of its collection: configuration and names.
    """

    guess: list[tuple[str, str]]
    dim: int | None
    rows: int | None
    columns: list[str] | None
    unreadable: list[Unreadable]
    dropped: list[int]
    described: dict[str, Any] | None

    def place(self, row: int) -> str:
        """Return where a row is, for people."""

    def whole(self, told: Callable[[int], None]) -> LoadBody:
        """Return all items as one body; ``told`` is called with the rows that are handed over."""

    def segments(self) -> Iterator[LoadBody]:
        """Yield the items as bodies of some thousand rows."""


def source_of(file: InputFile | Folder, choices: Choices) -> Source:
    """Return a file as items; its first rows have been read.

    Raises
    ------
    BadFile, GcwsError
    """
    if not isinstance(file, InputFile):
        from gcws_search.formats.folders import folder_items  # noqa: PLC0415

        with _named(file):
            return ItemSource(*folder_items(file, choices))
    if file.format == "feather 1":
        raise BadFile(f"{file.name}: expected Feather version 2 (Arrow), got version 1")
    with _named(file):
        if file.format == "ndjson":
            return _lines(file, choices)
        if file.format in ("npy", "npz"):
            return _arrays(file, choices)
        if file.format == "svmlight":
            from gcws_search.formats.svmlight import svmlight_items  # noqa: PLC0415

            return ItemSource(*svmlight_items(file, choices))
        if file.format in ("csv", "tsv"):
            from gcws_search.formats.delimited import csv_items  # noqa: PLC0415  # loads pyarrow

            return ItemSource(*csv_items(file, choices))
        from gcws_search.formats.arrow_files import arrow_items  # noqa: PLC0415  # loads pyarrow

        return ItemSource(*arrow_items(file, choices))


@contextmanager
def _named(file: InputFile | Folder) -> Iterator[None]:
    """Let errors name the file."""
    try:
        yield
    except GcwsError as error:
        raise BadFile(f"{file.name}: {error}") from error
    except EOFError as error:
        raise cut_short(file.name, error) from None


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of a file before it is read.

    Attributes
    ----------
    file : InputFile
    guess : list of (str, str)
    dim, rows : int or None
    columns : list of str, or None
    array : Items or None
        All items, where they lie in one array.
    unreadable : list of Unreadable
        Rows that were left out so far.
    described : dict or None
        What an export says of its collection.
    starts : list of (int, str)
        The first row of each file of a folder, and its name, as far as it has been read.
    dropped : list of int
        Rows that were left out so far because they lack a number.
    """

    file: InputFile | Folder
    guess: list[tuple[str, str]]
    dim: int | None
    rows: int | None = None
    columns: list[str] | None = None
    array: Items | None = None
    unreadable: list[Unreadable] = field(default_factory=list)
    described: dict[str, Any] | None = None
    starts: list[tuple[int, str]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)

    def place(self, row: int) -> str:
        """Return where a row is, for people."""
        before = [start for start in self.starts if start[0] <= row]
        return f"{before[-1][1]}: row {row - before[-1][0]}" if before else f"row {row}"


class ItemSource:
    """Items that come in batches.

    Parameters
    ----------
    described : Described
    batches : callable
        Returns them from the start at each call.
    """

    def __init__(self, described: Described, batches: Callable[[], Iterator[Items]]) -> None:
        self._file = described.file
        self.place = described.place
        self._array = described.array
        self._batches = batches
        self.guess = described.guess
        self.dim = described.dim
        self.rows = described.rows
        self.columns = described.columns
        self.unreadable = described.unreadable
        self.dropped = described.dropped
        self.described = described.described

    def batches(self) -> Iterator[Items]:
        """Yield the items; what is wrong with a batch names the file, and the row in it."""
        first = 0
        iterator = iter(self._batches())
        while True:
            with _named(self._file):
                batch = next(iterator, None)
            if batch is None:
                return
            yield batch
            first += len(batch)

    def whole(self, told: Callable[[int], None]) -> LoadBody:
        """Return all items as one body."""
        if self._array is not None:
            return load_body(self._array, self.batches, told)
        return LoadBody(ARROW, lambda: arrow(self.batches(), told), self.rows)

    def segments(self) -> Iterator[LoadBody]:
        """Yield the items as bodies of some thousand rows."""
        for batch in self.batches():
            for part in batch.batches(max_rows=SEGMENT_ROWS):
                yield _segment(part)


def _segment(part: Items) -> LoadBody:
    def original(row: int) -> Any:
        one = part.part(row, row + 1)
        if one.origin is not None:
            row_of_file = one.origin.rows.to_pylist()[0]
            is_line = row_of_file.keys() == {LINE}
            return read_json(row_of_file[LINE]) if is_line else row_of_file
        payload = one.payloads[0] if one.payloads else None
        texts = one.texts()
        found: dict[str, Any] = {} if texts is None else {"id": texts[0]}
        found["vector"] = next(iter(one.rows.json()))
        return found if payload is None else {**found, "payload": read_json(payload)}

    numbers = None if part.origin is None else part.origin.numbers
    return LoadBody(ARROW, lambda: arrow([part]), len(part), original=original, numbers=numbers)


# Arrays


def _arrays(file: InputFile, choices: Choices) -> ItemSource:
    rows, labels, more = _npy(file) if file.format == "npy" else _npz(file)
    if not len(rows):
        raise BadFile(f"{file.name}: expected rows, got none")
    count = len(rows)
    payloads = None if labels is None else from_columns({"label": labels}, count)
    items = Items(numbers_of(choices.id_start, 0, count), rows, payloads)
    dense = isinstance(rows, DenseRows)
    dim = rows.array.shape[1] if isinstance(rows, DenseRows) else more
    guess = [
        ("format", f".{file.format}, {count} rows"),
        ("ids", number_words(choices.id_start)),
        ("vector", f"{dim} values" if dense else f"sparse, {dim} coordinates"),
        ("payload", "none" if labels is None else "label"),
    ]
    described = Described(file, guess, choices.dim or dim, count, array=items)
    return ItemSource(described, items.batches)


def _npy(file: InputFile) -> tuple[DenseRows, None, None]:
    place = file.random_access()
    try:
        if isinstance(place, Path):
            array = np.load(place, mmap_mode="r", allow_pickle=False)
        else:
            array = np.load(place, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise BadFile(f"{file.name}: expected a whole .npy array, got one with {error}") from None
    return DenseRows(_matrix(array, file.name)), None, None


def _matrix(array: Any, name: str) -> Any:
    if array.ndim != _TWO_DIMENSIONS or array.dtype.kind not in "fiub":
        raise BadFile(
            f"{name}: expected an array (n, dim) of numbers, got {array.shape} of {array.dtype}"
        )
    return array


def _npz(file: InputFile) -> tuple[Rows, list[Any] | None, int | None]:
    import zipfile  # noqa: PLC0415
    import zlib  # noqa: PLC0415

    wanted = "'X' (and 'y'), or 'data', 'indices', 'indptr', 'shape'"
    try:
        with np.load(file.random_access(), allow_pickle=False) as archive:
            found = set(archive.files)
            labels = archive["y"] if "y" in found else None
            if "X" in found:
                rows: Rows = DenseRows(_matrix(archive["X"], file.name))
                width = None
            elif found >= {"data", "indices", "indptr", "shape"}:
                form = archive["format"].item() if "format" in found else b"csr"
                if form not in (b"csr", "csr"):
                    raise BadFile(f"{file.name}: expected compressed rows (csr), got {form!r}")
                indptr = archive["indptr"].astype(np.int64)
                rows = SparseRows(indptr, archive["indices"], archive["data"])
                width = int(archive["shape"][1])
            else:
                raise BadFile(
                    f"{file.name}: expected arrays {wanted}, got {', '.join(sorted(found))}"
                )
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise BadFile(f"{file.name}: expected a whole .npz archive, got one with {error}") from None
    if labels is None or not labels.size:
        return rows, None, width
    if labels.shape != (len(rows),):
        raise BadFile(f"{file.name}: expected {len(rows)} labels in 'y', got {labels.shape}")
    return rows, labels.tolist(), width


# Lines


def _lines(file: InputFile, choices: Choices) -> Source:
    lines = (each for each in file.head.splitlines() if each.strip())
    first = _object(next(lines, b""), file.name, 0)
    told = first.get(COLLECTION) if first.keys() == {COLLECTION} else None
    if isinstance(told, dict):
        first = _object(next(lines, b""), file.name, 0)
    chosen = (choices.id, choices.vector, choices.payload)
    if not {"vector"} <= first.keys() <= _ITEM or chosen != (None, None, None):
        from gcws_search.formats.objects import object_items  # noqa: PLC0415

        return ItemSource(*object_items(file, choices))
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
    return LineSource(Described(file, guess, dim, described=told), start)


def _object(line: bytes, name: str, row: int) -> dict[str, Any]:
    try:
        found = read_json(line)
    except ValueError as error:
        raise BadFile(f"{name}: row {row}: expected a JSON object, got {error}") from None
    if not isinstance(found, dict):
        raise BadFile(f"{name}: row {row}: expected a JSON object, got {line[:40]!r}")
    return found


class LineSource:
    """Items as lines of JSON, which the server reads as they are.

    Parameters
    ----------
    described : Described
    id_start : int or None
        Id of the first item, where they have none and the collection is not to number them.
    """

    def __init__(self, described: Described, id_start: int | None = None) -> None:
        self._id_start = id_start
        assert isinstance(described.file, InputFile)  # no folder has lines
        self._file = described.file
        self.guess = described.guess
        self.dim = described.dim
        self.rows: int | None = None
        self.columns: list[str] | None = None
        self.unreadable: list[Unreadable] = []
        self.dropped: list[int] = []
        self.described = described.described

    def place(self, row: int) -> str:
        """Return where a row is, for people."""
        return f"row {row}"

    def _ids(self) -> Iterator[int] | None:
        return None if self._id_start is None else count(self._id_start)

    def _groups(self) -> Iterator[list[bytes]]:
        """Yield lines, some thousand at a time."""
        with closing(self._file.open()) as raw, _named(self._file):
            try:
                if self.described is not None:
                    raw.readline()
                while lines := raw.readlines(_SEGMENT_BYTES):
                    if not lines[-1].endswith(b"\n"):
                        lines[-1] += b"\n"
                    for first in range(0, len(lines), SEGMENT_ROWS):
                        yield lines[first : first + SEGMENT_ROWS]
            except OSError as error:
                raise cut_short(self._file.name, error) from None

    def whole(self, told: Callable[[int], None]) -> LoadBody:
        """Return all items as one body."""

        def pieces() -> Iterator[bytes]:
            ids = self._ids()
            for lines in self._groups():
                yield b"".join(_numbered(lines, ids))
                told(len(lines))

        return LoadBody(NDJSON, pieces)

    def segments(self) -> Iterator[LoadBody]:
        """Yield the items as bodies of some thousand rows."""
        ids = self._ids()
        for lines in self._groups():
            body = b"".join(_numbered(lines, ids))
            full = [line for line in lines if line.strip()]
            yield LoadBody(
                NDJSON,
                lambda body=body: iter([body]),  # type: ignore[misc]
                len(full),
                original=lambda row, full=full: _readable(full[row]),  # type: ignore[misc]
            )


def _numbered(lines: list[bytes], ids: Iterator[int] | None) -> list[bytes]:
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
    """Return a line as JSON, or as text where it is none."""
    try:
        return read_json(line)
    except ValueError:
        return line.decode(errors="replace").rstrip("\n")


def renumbered(choices: Choices, rows: int) -> Choices:
    """Return the choices for a file that follows one of ``rows`` rows."""
    if choices.id_start is None:
        return choices
    return replace(choices, id_start=choices.id_start + rows)
