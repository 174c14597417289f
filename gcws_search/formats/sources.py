"""A file as items in batches: the result of all readers, and operations on all rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import orjson

from gcws_search.formats.files import CHOICES, FORMATS, BadFile, Folder, InputFile, list_some
from gcws_search.formats.items import (
    ARROW,
    NDJSON,
    Items,
    LoadBody,
    arrow,
    documents,
    is_document,
    items_of,
    load_body,
    text_lines,
)
from gcws_search.formats.payloads import read_json
from gcws_search.formats.vectors import column_names, in_order, split_column
from gcws_search.index import GcwsError, InputVectors, InvalidInput, quantity

BATCH_ROWS: Final = 2048
COLLECTION: Final = "collection"
"""Key of what the first line of an export says of its collection."""
METADATA: Final = b"gcws_search"
"""Where Parquet says it."""
MISSING: Final = (
    "", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None", r"\N",
)  # fmt: skip
"""What stands among numbers of text for a missing one; the last in tables of MySQL, PostgreSQL."""
_SHOWN_BYTES: Final = 60
_SKIP: Final = "; --on-error skip leaves such rows out"
_WHAT_TO_DO: Final = "--missing drop, zero or mean says what such rows become"
_MISSING: Final = "expected a number, got a missing value"


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """The caller's choices for a file; None means guess.

    ``id``, ``vector``, ``text`` and ``payload`` are columns, or patterns of their names; with a
    ``text`` there is no vector. ``id_start``: number of the first row without ids; None: the
    collection numbers the rows. ``lenient``: unreadable rows are left out. ``missing``: how a
    missing number in a column of the vector is treated. ``zero_based``: coordinates of svmlight
    count from 0. ``transpose``: rows of a table are features, and its columns items.
    ``fingerprint``: the fingerprint of SMILES; see `gcws_search.rdkit.counts`. ``ksize`` and
    ``moltype`` choose sketches of signatures. ``bin``: width of bins for peaks. ``sheet``: the
    sheet of a workbook. ``of_texts``: rows of CSV have a text, in a column called so or otherwise
    the longest one, unless ``text`` names it.
    """

    id: str | None = None
    vector: tuple[str, ...] | None = None
    text: str | None = None
    payload: tuple[str, ...] | None = None
    dim: int | None = None
    header: bool | None = None
    id_start: int | None = None
    lenient: bool = False
    missing: Literal["error", "drop", "zero", "mean"] = "error"
    zero_based: bool | None = None
    transpose: bool | None = None
    fingerprint: str | None = None
    ksize: int | None = None
    moltype: str | None = None
    sheet: str | None = None
    bin: float | None = None
    of_texts: bool = False


class Unreadable(NamedTuple):
    """A row of a file that was left out, and its contents: a line, or values by column."""

    row: int
    detail: str
    text: Any


@dataclass(slots=True)
class Source:
    """A file as items. `source_of` creates it, and a reader sets its attributes.

    A reader sets ``read``, which yields items from the start at each call, with NaN for missing
    numbers; or ``lines``, which yields bodies that are sent unchanged to the server; or ``array``,
    all items in memory. ``dim``: None if vectors are sparse and the file does not have it.
    ``is_text``: items are texts. ``columns``: the coordinates if these are columns; ``has_names``:
    whether the file names them. ``export``: an export's description of its collection. ``table``:
    has the ``names`` of columns; for CSV it is the table of the first rows. ``starts``: the first
    row of each file of a folder. ``settled``: guessed choices that apply to further files of the
    format. ``has_ids``: rows have ids; for lines, the first one. ``divides``: reading can start at
    any row. ``part``: the rows to read; see `only`.
    """

    file: InputFile | Folder
    choices: Choices
    guess: list[tuple[str, str]] = field(default_factory=list)
    dim: int | None = None
    is_text: bool = False
    rows: int | None = None
    columns: list[str] | None = None
    has_names: bool = True
    table: Any = None
    array: Items | None = None
    export: dict[str, Any] | None = None
    read: Callable[[], Iterator[Items]] | None = None
    lines: Callable[[], Iterator[LoadBody]] | None = None
    unreadable: list[Unreadable] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    starts: list[tuple[int, str]] = field(default_factory=list)
    settled: dict[str, Any] = field(default_factory=dict)
    has_ids: bool = False
    divides: bool = False
    part: tuple[int, int | None] = (0, None)
    _order: Any = None
    _whole: Items | None = None
    _is_open: bool = False

    @property
    def only_file(self) -> InputFile:
        """The file, for formats whose folders are no tables."""
        assert isinstance(self.file, InputFile)
        return self.file

    @property
    def names(self) -> list[str] | None:
        """The names of the vector's columns, if they have any."""
        return column_names(self.columns) if self.columns and self.has_names else None

    def arrange(self, names: Mapping[int, str], dim: int | None) -> None:
        """Order the vector's columns by a collection's coordinates, by name.

        Raises BadFile for a column without a coordinate or the reverse; see `in_order`.
        """
        columns = self.names
        if columns is None or self._order is not None:
            return
        if dim is None:
            self._is_open = True
            return
        places = InputVectors(np.arange(len(columns))[None], columns=columns)
        with naming(self.file):
            found = in_order(places, names, dim).dense
        assert found is not None
        self._order = found[0]
        self.columns = [columns[place] for place in self._order]

    def describe(self, format_: str, ids: str | None, vector: str, payload: str) -> None:
        """Describe for people how the file is read; ``ids`` None: it has none."""
        start, self.has_ids = self.choices.id_start, ids is not None
        if ids is None:
            ids = "none; each row gets a new number" if start is None else f"numbers from {start}"
        self.guess = [("format", format_), ("ids", ids), ("vector", vector), ("payload", payload)]

    def only(self, first: int, end: int | None) -> None:
        """From now on read only the rows from one on, up to another; None: to the end.

        If the source divides, other rows are not read; otherwise ``first`` must be 0.
        """
        self.part = first, end
        if self.array is not None:
            self._whole = self._whole or self.array
            self.array = self._whole.part(slice(first, end))

    def error_words(self, error: Any, row: int) -> str:
        """Return the error text for a row: its place, its column, expected, got."""
        inner = error.loc[2:]
        where = f"{self.place(row)}: "
        if self.columns and inner and isinstance(inner[-1], int):
            where, inner = f"{where}column {self.columns[inner[-1]]!r}: ", ()
        return where + InvalidInput(expected=error.expected, got=error.got, loc=inner).detail

    @contextmanager
    def naming_rows(self, first: int = 0) -> Iterator[None]:
        """Add the file and the row to errors about rows from ``first`` on."""
        try:
            yield
        except InvalidInput as error:
            match error.loc:
                case ("rows" | "queries", int(at), *_):
                    row = self.number_of(first + at)
                    raise BadFile(f"{self.file.name}: {self.error_words(error, row)}") from None
            raise

    def with_column(self, words: str) -> str:
        """Return a message with the name of its column."""
        text, name = split_column(words, self.columns)
        return words if name is None else f"column {name!r}: {text}"

    def place(self, row: int) -> str:
        """Return a text for the place of a row."""
        at = bisect_right(self.starts, row, key=itemgetter(0))
        if not at:
            return f"row {row}"
        first, name = self.starts[at - 1]
        return f"{name}: row {row - first}"

    def reject(self, row: int, detail: str, text: Any, advice: str = "") -> None:
        """Leave a row out, or raise BadFile unless rows may be left out."""
        if not self.choices.lenient:
            raise BadFile(f"{self.file.name}: {self.place(row)}: {detail}{_SKIP}{advice}")
        self.unreadable.append(Unreadable(row, detail, text))

    def batches(self, *, with_empty: bool = False) -> Iterator[Items]:
        """Yield the items; errors of a batch name the file, and the row in it.

        ``with_empty``: also yield batches without readable rows.
        """
        if self.array is not None:
            yield from self.array.batches()
            return
        self.unreadable.clear()
        self.dropped.clear()
        given, start = 0, self.choices.id_start
        with naming(self.file):
            batches = self.read_again()
            means = cache(lambda: _means(self))
            for batch in batches:
                items = batch if self.columns is None else _fill(self, batch, batches, means)
                if items.ids is None and start is not None:
                    numbers = items.numbers or range(given, given + len(items))
                    items = replace(items, ids=[str(start + number) for number in numbers])
                given += len(items)
                if self._is_open:
                    named = InputVectors(_matrix(items), columns=self.columns)
                    items = replace(items, rows=in_order(named, {}, None))
                if not self.choices.lenient:
                    items = replace(items, numbers=None, show=None)
                if len(items) or with_empty:
                    yield items

    def items(self) -> Iterator[Items]:
        """Yield the items; JSON lines are parsed here, not by a server."""
        if self.lines is None:
            yield from self.batches()
            return
        self.unreadable.clear()
        row = -1
        with naming(self.file):
            for body in self.lines():
                found, numbers = [], []
                for line in filter(bytes.strip, b"".join(body.pieces()).splitlines()):
                    row += 1
                    try:
                        each = read_json(line)
                    except ValueError:
                        each = None
                    if is_document(each):
                        found.append(each)
                        numbers.append(row)
                    else:
                        got = repr(line[:_SHOWN_BYTES].decode(errors="replace"))
                        self.reject(row, f"expected an item as the API has it, got {got}", line)
                if found:
                    items = items_of(found)
                    yield replace(items, numbers=numbers) if self.choices.lenient else items

    def read_again(self) -> Iterator[Items]:
        """Yield the reader's items from the beginning of the file."""
        assert self.read is not None
        self.starts.clear()
        self.file.read_bytes = 0
        order = self._order  # of the coordinates
        if order is None:
            return self.read()
        return (
            replace(items, rows=InputVectors(_matrix(items)[:, order])) for items in self.read()
        )

    def whole(self, progress: Callable[[int], None]) -> LoadBody:
        """Return all items as one body, or those before a batch with rows that are left out.

        ``progress`` gets the number of rows read by the caller. ``unreadable`` contains these rows.
        """
        if self.array is not None:
            return load_body(self.array, progress)
        if self.is_text and self.lines is None:
            return LoadBody(NDJSON, lambda: text_lines(self._readable(), progress), self.rows)
        if self.lines is None:
            return LoadBody(ARROW, lambda: arrow(self._readable(), progress), self.rows)

        def pieces() -> Iterator[Any]:
            for body in self.segments():
                yield from body.pieces()
                progress(body.rows or 0)
                del body  # freed before the next is read

        return LoadBody(NDJSON, pieces)

    def _readable(self) -> Iterator[Items]:
        """Yield the items before the batch with the first unreadable row, if any.

        So the bytes do not depend on whether such rows are left out. Batches without items are
        included, since they have a schema.
        """
        for items in self.batches(with_empty=True):
            yield items.part(slice(0, 0)) if self.unreadable else items
            if self.unreadable:
                return

    def segments(self, first: int = 0) -> Iterator[LoadBody]:
        """Yield the items after the ``first`` ones as bodies of some thousand rows."""
        if self.lines is not None:
            with naming(self.file):
                for body in self.lines():
                    count = body.rows or 0
                    if first < count:
                        yield _without(body, first) if first else body
                    first = max(0, first - count)
            return
        for batch in self.batches():
            for part in batch.batches():
                if first < len(part):
                    yield _segment(part.part(slice(first, None)) if first else part)
                first = max(0, first - len(part))

    def number_of(self, row: int) -> int:
        """Return the file's row for a row of the whole body."""
        for dropped in self.dropped:
            row += dropped <= row
        return row


def require_form(source: Source, name: str, *, is_text: bool, dim: int | None) -> None:
    """Raise BadFile if a file's rows differ in form from those of a named file."""
    got, expected = (source.is_text, source.dim), (is_text, dim)
    if got != expected:
        words = f"expected {_form(*expected)} as in {name}, got {_form(*got)}"
        raise BadFile(f"{source.file.name}: {words}")


def _form(is_text: bool, dim: int | None) -> str:
    if is_text:
        return "texts"
    return "sparse vectors" if dim is None else f"vectors of {quantity(dim, 'value')}"


def source_of(file: InputFile | Folder, choices: Choices) -> Source:
    """Return a file as items after reading its first rows."""
    source = Source(file, choices)
    for name, options in CHOICES.items():
        if getattr(choices, name) not in (None, "") and name not in FORMATS[file.format].choices:
            takers = " or ".join(each.name for each in FORMATS.values() if name in each.choices)
            raise BadFile(f"{file.name}: expected {takers} for {options}, got {file.format}")
    with naming(file):
        module, _, name = FORMATS[file.format].reader.partition(".")
        getattr(import_module(f"gcws_search.formats.{module}"), name)(source)
        if choices.text is not None and not source.is_text:
            raise BadFile(f"{file.name}: expected columns, one of which is {choices.text!r}")
        has_columns = source.columns is not None or source.is_text or choices.transpose
        if choices.missing != "error" and not has_columns:
            words = f"a column for each coordinate for --missing {choices.missing}"
            raise BadFile(f"{file.name}: expected {words}, got {dict(source.guess)['vector']}")
    source.dim = choices.dim or source.dim
    return source


@contextmanager
def naming(file: InputFile | Folder) -> Iterator[None]:
    """Add the file's name to errors."""
    try:
        yield
    except GcwsError as error:
        raise BadFile(f"{file.name}: {error}") from error


def _without(body: LoadBody, first: int) -> LoadBody:
    """Return a body without its first lines."""
    lines = [line for line in b"".join(body.pieces()).split(b"\n") if line.strip()][first:]
    rest, original = b"\n".join(lines), body.original or (lambda _: None)
    return replace(
        body, pieces=lambda: [rest], rows=len(lines), original=lambda row: original(first + row)
    )


def _segment(part: Items) -> LoadBody:
    def original(row: int) -> Any:
        if part.numbers is not None and part.show is not None:
            return part.show(part.numbers[row])
        one = part.part(slice(row, row + 1))
        return read_json(orjson.dumps(next(documents(one, one.rows.texts or one.rows.json()))))

    numbers = part.numbers
    kind, write = (ARROW, arrow) if part.rows.texts is None else (NDJSON, text_lines)
    return LoadBody(kind, lambda: write([part]), len(part), original=original, numbers=numbers)


# Missing numbers


def _matrix(items: Items) -> Any:
    assert items.rows.dense is not None
    return items.rows.dense


def _means(source: Source) -> Any:
    """Return the mean of the numbers of each column, (dim,)."""
    columns, name = source.columns or [], source.file.name
    if source.file.path is None:
        raise BadFile(f"{name}: expected a file for --missing mean, which is read twice")
    sums, counts = np.zeros(len(columns)), np.zeros(len(columns), np.int64)
    before = [*source.unreadable], [*source.starts]
    for batch in source.read_again():
        matrix = np.asarray(_matrix(batch), np.float64)
        is_number = np.isfinite(matrix)
        sums += np.where(is_number, matrix, 0).sum(axis=0)
        counts += is_number.sum(axis=0)
    source.unreadable[:], source.starts[:] = before
    if not counts.all():
        empty = columns[int(np.flatnonzero(counts == 0)[0])]
        raise BadFile(f"{name}: column {empty!r}: expected a number for --missing mean, got none")
    return (sums / counts).astype(np.float32)


def _fill(source: Source, items: Items, rest: Iterator[Items], means: Callable[[], Any]) -> Items:
    """Fill or drop rows with missing numbers, by the caller's choice."""
    matrix, missing = _matrix(items), source.choices.missing
    holes = np.isnan(matrix)
    if not holes.any():
        return items
    if missing in ("zero", "mean"):
        filling = np.float32(0) if missing == "zero" else means()
        return replace(items, rows=InputVectors(np.where(holes, filling, matrix)))
    is_whole = ~holes.any(axis=1)
    assert items.numbers is not None
    assert items.show is not None
    for row in np.flatnonzero(~is_whole).tolist():
        number = items.numbers[row]
        if missing == "drop":
            source.dropped.append(number)
            continue
        if not source.choices.lenient:
            raise _gaps(source, items, rest)
        name = (source.columns or [])[int(holes[row].argmax())]
        detail = f"column {name!r}: {_MISSING}; {_WHAT_TO_DO}"
        source.reject(number, detail, items.show(number))
    return items.part(np.flatnonzero(is_whole).tolist())


def _gaps(source: Source, items: Items, rest: Iterator[Items]) -> BadFile:
    """Return the error for missing numbers: the first place, and the counts."""
    columns, holes = source.columns or [], np.isnan(_matrix(items))
    numbers = items.numbers or ()
    row = int(holes.any(axis=1).argmax())
    name, place = columns[int(holes[row].argmax())], source.place(numbers[row])
    counts, rows = holes.sum(axis=0), numbers[-1] + 1
    with suppress(BadFile):  # counted up to the first unreadable row
        for other in rest:
            if other.numbers:
                counts += np.isnan(_matrix(other)).sum(axis=0)
                rows = other.numbers[-1] + 1
    told = [
        f"{number} of {rows} rows have none in {column!r}"
        for number, column in zip(counts.tolist(), columns, strict=True)
        if number
    ]
    return BadFile(
        f"{source.file.name}: {place}: column {name!r}: {_MISSING}; "
        f"{list_some(told)}; {_WHAT_TO_DO}"
    )
