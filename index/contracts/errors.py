"""Every error of the index, one class per cause."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

Loc = tuple[str | int, ...]


class GcwsError(Exception):
    """The base class of every error that this package raises deliberately."""

    def __reduce__(self) -> tuple[object, ...]:
        """Return how another process can rebuild the error, because constructors differ."""
        facts = {name: fact for name, fact in self.__dict__.items() if name != "others"}
        return _copy, (type(self), self.args, facts)


def _copy(cls: type[GcwsError], words: tuple[object, ...], facts: dict[str, object]) -> GcwsError:
    error = cls.__new__(cls, *words)
    error.__dict__.update(facts)
    return error


def error_words(error: BaseException) -> str:
    """Return the cause as one sentence for people, without error numbers of the system."""
    words = str(error)
    if isinstance(error, OSError) and error.strerror:
        words = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return "; ".join([words, *getattr(error, "__notes__", ())])


class InvalidInput(GcwsError):
    """Something a caller sent is not what was expected.

    loc: where in the caller's input, outermost first: ``("items", 17, "vector", 3)``.
    others: errors of further rows by the same check, which continues as they are read, once.
    """

    others: "Iterable[InvalidInput]" = ()

    def __init__(self, *, expected: str, got: str, loc: Loc = ()) -> None:
        self.expected = expected
        self.got = got
        self.loc = loc
        super().__init__(self.detail)

    @property
    def detail(self) -> str:
        """One sentence: the place, what was expected, what came."""
        where = "".join(
            f".{part}" if isinstance(part, str) and part.isidentifier() else f"[{part!r}]"
            for part in self.loc
        )
        prefix = f"{where.lstrip('.')}: " if where else ""
        return f"{prefix}expected {self.expected}, got {self.got}"

    def at(self, *outer: str | int, skip: int = 0) -> Self:
        """Return the error with ``outer`` before its location, without ``skip`` parts of it.

        Those of other rows are moved, too.
        """
        found = type(self)(expected=self.expected, got=self.got, loc=(*outer, *self.loc[skip:]))
        if self.others:
            found.others = (each.at(*outer, skip=skip) for each in self.others)
        return found

    def move_row(self, row_of: Callable[[int], int], *outer: str | int) -> None:
        """Renumber the row at the start of the location, and put ``outer`` before it."""
        row, *rest = self.loc or (0,)
        self.loc = (*outer, row_of(int(row)), *rest)


def raise_first(errors: Iterable[InvalidInput]) -> None:
    """Raise the first of the errors of rows, if there is one; it refers to the others."""
    left = iter(errors)
    for first in left:
        first.others = left
        raise first from None


def quantity(count: int, noun: str) -> str:
    """Return a count with its noun: 1 item, 2,000 items."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


@contextmanager
def place_errors(*outer: str | int) -> Iterator[None]:
    """Put ``outer`` before the location of errors raised in the block."""
    try:
        yield
    except InvalidInput as error:
        raise error.at(*outer) from None


class InvalidVector(InvalidInput):
    """A vector has the wrong length, an invalid number or index, or is all zero."""


class InvalidId(InvalidInput):
    """An id is empty, too long, or neither a string nor an integer."""


class InvalidPayload(InvalidInput):
    """A payload is not a JSON object."""


class InvalidFilter(InvalidInput):
    """A filter is malformed."""


class InvalidParameter(InvalidInput):
    """A parameter is unknown or outside its permitted range."""


def require_one(**given: object) -> str:
    """Return the name of the only argument that is not None; else InvalidParameter."""
    words = [word for word, value in given.items() if value is not None]
    if len(words) == 1:
        return words[0]
    *first, last = map(repr, given)
    raise InvalidParameter(
        expected=f"one of {', '.join(first)} and {last}",
        got=f"both {' and '.join(map(repr, words))}" if words else "neither",
    )


def too_many_pairs(max_pairs: int, min_score: float) -> InvalidParameter:
    """Return the error for too many near-duplicate pairs."""
    return InvalidParameter(
        expected=f"a limit, or a min_score that at most {max_pairs} pairs reach",
        got=f"more than that at {min_score}",
        loc=("min_score",),
    )


class NotFound(GcwsError):
    """Something named does not exist."""


class CollectionNotFound(NotFound):
    """No collection has this name; ``advice`` says what to do."""

    def __init__(self, name: str, advice: str = "") -> None:
        self.name = name
        super().__init__(f"no collection is named {name!r}" + (f"; {advice}" if advice else ""))


class ItemNotFound(NotFound):
    """No item of the collection has this id."""

    def __init__(self, item_id: str) -> None:
        self.item_id = item_id
        super().__init__(f"no item has the id {item_id!r}")


class BackendNotFound(NotFound):
    """No backend of the collection has this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no backend is named {name!r}")


class SnapshotNotFound(NotFound):
    """No snapshot of the collection has this name."""

    def __init__(self, collection: str, name: str) -> None:
        self.collection = collection
        self.name = name
        super().__init__(f"no snapshot of collection {collection!r} is named {name!r}")


class Conflict(GcwsError):
    """Something that must be new exists already, or another operation is using it."""


class CollectionExists(Conflict):
    """A collection of this name exists, with another configuration or other items."""

    def __init__(self, name: str, how: str = "with another configuration") -> None:
        self.name = name
        super().__init__(f"collection {name!r} exists {how}")


class CollectionBusy(Conflict):
    """Another operation on this name, given as reason, is running; nothing was changed."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"collection {name!r} is busy: {reason}; try again")


class BackendExists(Conflict):
    """A backend of this name exists."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"a backend named {name!r} exists already")


class PrimaryBackend(Conflict):
    """The backend a collection was created with cannot be dropped."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"backend {name!r} is the one the collection was created with; it stays")


class SnapshotExists(Conflict):
    """A snapshot of this name exists."""

    def __init__(self, collection: str, name: str) -> None:
        self.collection = collection
        self.name = name
        super().__init__(f"a snapshot of collection {collection!r} named {name!r} exists already")


class ItemExists(Conflict):
    """An item with this id exists, and the caller requested only inserts.

    row: position of the offending item in the caller's batch.
    """

    def __init__(self, item_id: str, row: int) -> None:
        self.item_id = item_id
        self.row = row
        super().__init__(f"item {row}: the id {item_id!r} exists already and mode is 'insert'")


class VersionConflict(Conflict):
    """An item does not have the version that a write requires; nothing was stored.

    expected, got: versions; 0 means no such item.
    row: position of the offending item in the caller's batch.
    """

    def __init__(self, item_id: str, expected: int, got: int, row: int = 0) -> None:
        self.item_id = item_id
        self.expected = expected
        self.got = got
        self.row = row
        there = f"version {got}" if got else "0, for there is no such item"
        super().__init__(f"item {row}: expected version {expected} of {item_id!r}, got {there}")


class CollectionLoading(GcwsError):
    """The collection is still being read from its file."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"collection {name!r} is still loading")


class StoreError(GcwsError):
    """The files on disk cannot be used."""


class DirectoryLocked(StoreError):
    """Another process owns the data directory, or the collection in memory."""

    def __init__(self, directory: Path, holder: str) -> None:
        self.directory = directory
        self.holder = holder
        super().__init__(f"the data directory {directory} is in use by {holder}")

    @classmethod
    def before_fork(cls, directory: Path, process: int) -> "DirectoryLocked":
        """Return the error for a fork of the process that owns the directory."""
        return cls(directory, f"process {process}, which opened it before this one was forked")


class DamagedFile(StoreError):
    """A collection's file cannot be read."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"the file of collection {name!r} is damaged: {reason}")


class DamagedSnapshot(StoreError):
    """A snapshot differs from what was written or sent, or is none; nothing was changed."""

    def __init__(self, collection: str, name: str, reason: str) -> None:
        self.collection = collection
        self.name = name
        self.reason = reason
        super().__init__(f"snapshot {name!r} of collection {collection!r} is damaged: {reason}")


class IncompatibleFile(StoreError):
    """A collection's file has a format or hash version unknown to this program, or is a link."""

    def __init__(self, name: str, expected: str, got: str) -> None:
        self.name = name
        self.expected = expected
        self.got = got
        super().__init__(f"the file of collection {name!r}: expected {expected}, got {got}")


class DiskFull(StoreError):
    """The disk has no space for the write; nothing of it was stored."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        super().__init__(
            f"no space left on the disk{_for(name)}; this write stored nothing; free some there"
        )


class OutOfDescriptors(StoreError):
    """The process or machine has reached its limit of open files; nothing was stored."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        super().__init__(f"no free file descriptor{_for(name)}; try again")


class StorageFailed(StoreError):
    """The operating system refused to read or write a file; the operation was not done.

    name: of the collection, if the file belongs to one.
    cause: the name of the error: ``EIO``, ``EROFS``, ``SQLITE_IOERR_READ``.
    reason: the cause in words.
    """

    def __init__(self, name: str | None, cause: str, reason: str) -> None:
        self.name = name
        self.cause = cause
        self.reason = reason
        super().__init__(f"the storage failed{_for(name)}: {cause} ({reason})")


def _for(name: str | None) -> str:
    return "" if name is None else f" for collection {name!r}"
