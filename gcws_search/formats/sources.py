"""A file as items, a batch at a time: what all readers return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from gcws_search.formats.bodies import ARROW, LoadBody, arrow, load_body
from gcws_search.formats.files import BadFile, Folder, InputFile, cut_short
from gcws_search.formats.items import Items
from gcws_search.formats.payloads import read_json
from gcws_search.index import GcwsError

SEGMENT_ROWS: Final = 8192
COLLECTION: Final = "collection"
"""Key of what the first line of an export says of its collection."""
LINE: Final = "line"
"""The only column of what stands in a file whose lines are objects."""
METADATA: Final = b"gcws_search"
"""Where Parquet says it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """The caller's choices for a file; None means guess.

    Attributes
    ----------
    id : str or None
        Column of ids.
    vector, payload : tuple of str, or None
        Columns, or patterns of their names.
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
    text : object
        As it stands there: a line, or values by column.
    """

    row: int
    detail: str
    text: Any


@dataclass(slots=True)
class Source:
    """A file as items; its first rows have been read.

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
    array : Items or None
        All items, where they lie in one array.
    export : dict or None
        What an export says of its collection: configuration and names.
    read : callable
        Returns the items from the start at each call.
    unreadable : list of Unreadable
        Rows that were left out so far.
    dropped : list of int
        Rows that were left out so far because they lack a number.
    starts : list of (int, str)
        The first row of each file of a folder, and its name, as far as it has been read.
    """

    file: InputFile | Folder
    guess: list[tuple[str, str]]
    dim: int | None
    rows: int | None = None
    columns: list[str] | None = None
    array: Items | None = None
    export: dict[str, Any] | None = None
    read: Callable[[], Iterator[Items]] = lambda: iter(())
    unreadable: list[Unreadable] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    starts: list[tuple[int, str]] = field(default_factory=list)

    def place(self, row: int) -> str:
        """Describe where a row is."""
        before = [start for start in self.starts if start[0] <= row]
        return f"{before[-1][1]}: row {row - before[-1][0]}" if before else f"row {row}"

    def batches(self) -> Iterator[Items]:
        """Yield the items; what is wrong with a batch names the file, and the row in it."""
        with naming(self.file):
            yield from self.read()

    def whole(self, progress: Callable[[int], None]) -> LoadBody:
        """Return all items as one body; ``progress`` gets the number of rows handed over."""
        if self.array is not None:
            return load_body(self.array, self.batches, progress)
        return LoadBody(ARROW, lambda: arrow(self.batches(), progress), self.rows)

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


@contextmanager
def naming(file: InputFile | Folder) -> Iterator[None]:
    """Name the file in errors."""
    try:
        yield
    except GcwsError as error:
        raise BadFile(f"{file.name}: {error}") from error
    except EOFError as error:
        raise cut_short(file.name, error) from None
