"""Payloads of items: compact JSON objects, columns of their keys, filters over these.

A column has the values of one key as arrays, so a filter does not parse payloads at each query. A
filter is parsed once, and evaluated to a mask over rows; its form is a subset of Qdrant's.
"""

from __future__ import annotations

import json
import math
import operator
import re
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, cast

import numpy as np
import orjson

from gcws_search.index.contracts.arrays import AnyArray, Float64s, Int64s, UInt8s, with_room
from gcws_search.index.contracts.errors import InvalidFilter, InvalidParameter, InvalidPayload, Loc
from gcws_search.index.contracts.saved_index import without_checksum

_TO_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER: Final = b"0" * 19
_LONG_FRACTION: Final = b"." + b"0" * 18
MAX_METADATA_BYTES: Final = 1 << 16
"""Of the JSON text that callers keep with a collection."""


def has_long_number(text: bytes) -> bool:
    """Return whether JSON text may have an integer beyond 64 bits, which orjson rounds or refuses.

    A regular expression takes ten times as long, and `json` again as much for long fractions.
    """
    zeros = text.translate(_TO_ZEROS)
    return _LONG_NUMBER in zeros and _LONG_NUMBER in zeros.replace(_LONG_FRACTION, b".")


def is_payload(payload: bytes) -> bool:
    """Return whether bytes are the JSON text of one object, alone and within a list."""
    text = b"[" + payload + b"]"
    try:
        documents = orjson.loads(text)
    except ValueError:
        if not has_long_number(payload):
            return False
        try:
            documents = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return False
    return len(documents) == 1 and isinstance(documents[0], dict)


def read_payload(payload: bytes) -> Any:  # noqa: ANN401 (JSON)
    """Parse the JSON text of a payload, or of a list of payloads."""
    return (json if has_long_number(payload) else orjson).loads(payload)


def merge_payloads(old: bytes | None, new: bytes) -> bytes:
    """Return a payload whose top-level keys are replaced by those of another."""
    if old is None or old == b"{}":
        return new
    merged = read_payload(old) | read_payload(new)
    try:
        return bytes(memoryview(orjson.dumps(merged)))
    except TypeError:  # integers beyond 64 bits
        return json.dumps(merged, ensure_ascii=False, separators=(",", ":")).encode()


TEXT_KEY: Final = "text"
"""Where the payload of an item of texts holds its text: before all other keys."""
_TEXT: Final = re.compile(rb'\{"text":("(?:[^"\\]++|\\.)*+")')


def with_text(payload: bytes | None, text: str) -> bytes:
    """Return the payload with which an item of texts is stored; see `split_text`.

    Raises InvalidPayload, at ``("payload", "text")``, if the payload has a "text" itself.
    """
    _refuse_text(payload)
    return _join_text(orjson.dumps(text), payload)


def _refuse_text(payload: bytes | None) -> None:
    if payload is not None and TEXT_KEY in read_payload(payload):
        raise InvalidPayload(
            expected="a payload without the key 'text', which is the item's own",
            got="one with it",
            loc=("payload", TEXT_KEY),
        )


def _join_text(text: bytes, payload: bytes | None) -> bytes:
    rest = b"}" if payload in (None, b"{}") else b"," + (payload or b"")[1:]
    return b'{"text":' + text + rest


def split_text(payload: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Return the JSON of an item's text, and its payload without the text, None if empty.

    A payload that was not made by `with_text` has no text.
    """
    found = None if payload is None else _TEXT.match(payload)
    if payload is None or found is None:
        return None, payload
    rest = payload[found.end() :]
    return found[1], None if rest == b"}" else b"{" + rest[1:]


def item_text(payload: bytes | None) -> str:
    """Return an item's text; "" if its payload has none."""
    found, _ = split_text(payload)
    return "" if found is None else str(orjson.loads(found))


@dataclass(frozen=True, slots=True)
class PayloadChange:
    """A change of payloads that leaves vectors alone.

    payload: JSON text of an object; None removes payloads.
    merge: replace only the top-level keys that ``payload`` has; other keys stay.
    max_bytes: maximum length of a payload after the change.
    keeps_text: whether payloads hold texts, which must not change.
    Raises InvalidParameter (there is nothing to merge), InvalidPayload (texts must not change, and
        ``payload`` has one).
    """

    payload: bytes | None
    merge: bool = True
    max_bytes: int | None = None
    keeps_text: bool = False

    def __post_init__(self) -> None:
        """Check that there is something to merge."""
        if self.keeps_text:
            _refuse_text(self.payload)
        if self.merge and self.payload is None:
            raise InvalidParameter(
                expected="an object to merge; 'merge': false removes payloads",
                got="null",
                loc=("payload",),
            )

    def of(self, old: bytes | None, item_id: str) -> bytes | None:
        """Return an item's payload after the change; InvalidPayload if it is too long."""
        new = self.payload
        text, before = split_text(old) if self.keeps_text else (None, old)
        if self.merge and new is not None:
            new = merge_payloads(before, new)
        if text is not None:
            new = _join_text(text, new)
        if new is not None and self.max_bytes is not None and len(new) > self.max_bytes:
            raise InvalidPayload(
                expected=f"at most {self.max_bytes} bytes of JSON",
                got=f"{len(new)} bytes for item {item_id!r}",
                loc=("payload",),
            )
        return new


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def metadata_of(text: str) -> bytes:
    """Return the metadata from a file's text; ValueError if the text is not valid."""
    document = without_checksum(text)
    if len(document) > MAX_METADATA_BYTES or not is_payload(document):
        raise ValueError(f"expected a JSON object of at most {MAX_METADATA_BYTES} bytes")
    return document


def check_metadata(value: bytes | None) -> None:
    """Raise InvalidParameter if metadata exceed `MAX_METADATA_BYTES` or are not an object."""
    if value is not None and len(value) > MAX_METADATA_BYTES:
        raise InvalidParameter(
            expected=f"at most {MAX_METADATA_BYTES} bytes of JSON",
            got=f"{len(value)} bytes",
            loc=("metadata",),
        )
    if value is not None and not is_payload(value):
        raise InvalidParameter(expected="a JSON object", got="none", loc=("metadata",))


MAX_COLUMNS: Final = 64
"""Keys whose values are kept, or all of the last filter; the one used least recently goes first."""
MAX_MASKS: Final = 4
"""Row masks remembered, so that a filter asked again and again is evaluated once."""

MAX_TEXT: Final = 255
"""Characters of a text that is shown beside a place on a map."""

_CHUNK: Final = 4096
_INT_BITS: Final = 63


_UNTAGGED: Final = {int, float, str}


def tag(value: bool | float | str) -> Hashable:
    """Return a scalar as a comparable key: equal numbers are equal, but True is not 1."""
    return ("bool", value) if isinstance(value, bool) else value


def untag(value: Hashable) -> Hashable:
    """Inverse of `tag`."""
    return value[1] if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Column:
    """The scalars under one key in the payloads of rows 0 … n-1.

    rows: (m,) int64, the row of each scalar, ascending; a row with a list appears once per
        element.
    codes: (m,) int64, the number of each scalar among the distinct ones.
    numbers: (distinct,) float64, the distinct scalars rounded to float64, infinite beyond its
        range; NaN for strings and booleans.
    values: the distinct scalars, tagged; at least as many as there are ``numbers``.
    code_of: inverse of ``values``; may have codes newer than this column.
    texts: returns the distinct texts in order, with the code of each; some may also be newer than
        this column.
    """

    rows: Int64s
    codes: Int64s
    numbers: Float64s
    values: list[Any]
    code_of: dict[Hashable, int]
    texts: Callable[[], tuple[list[str], Int64s]]

    def rows_where(self, wanted: AnyArray, n: int) -> UInt8s:
        """Return the (n,) mask of the rows with a scalar marked in ``wanted`` (distinct,) bool."""
        mask = np.zeros(n, np.uint8)
        mask[self.rows[wanted[self.codes]]] = 1
        return mask


class _GrowingColumn:
    def __init__(self, key: str, find: _Find) -> None:
        self.key, self._find = key, find
        self.lock = threading.Lock()
        self.covered = 0
        self._rows = np.empty(0, np.int64)
        self._codes = np.empty(0, np.int64)
        self._used = 0
        self._numbers = np.empty(0, np.float64)
        self._values: list[Any] = []
        self._code_of: dict[Hashable, int] = {}
        self._texts: tuple[list[str], Int64s] = [], self._codes
        self._sorted = 0

    @property
    def nbytes(self) -> int:
        arrays = self._rows, self._codes, self._numbers, self._texts[1]
        return sum(array.nbytes for array in arrays)

    def upto(self, n: int) -> Column:
        """Return the column restricted to the first n rows."""
        with self.lock:
            used = int(np.searchsorted(self._rows[: self._used], n))
            return Column(
                self._rows[:used],
                self._codes[:used],
                self._numbers[: len(self._values)],
                self._values,
                self._code_of,
                self._sorted_texts,
            )

    def _sorted_texts(self) -> tuple[list[str], Int64s]:
        with self.lock:
            if self._sorted < len(self._values):
                more = (each for each in self._values[self._sorted :] if isinstance(each, str))
                texts = sorted([*self._texts[0], *more])
                self._texts = texts, np.array([self._code_of[each] for each in texts], np.int64)
                self._sorted = len(self._values)
            return self._texts

    def add(self, documents: Iterable[tuple[int, Any]], stop: int) -> None:
        """Add payloads by row: all payloads of rows before ``stop`` that may have the key."""
        rows: list[int] = []
        codes: list[int] = []
        key, find, values, code_of = self.key, self._find, self._values, self._code_of
        before, is_scalar = len(values), find is _scalars
        for row, document in documents:
            value = document.get(key) if is_scalar and document is not None else None
            # Most payloads have one text or number under the key.
            found = (value,) if type(value) in _UNTAGGED else map(tag, find(document, key))
            for tagged in found:
                code = code_of.get(tagged)
                if code is None:
                    code = code_of[tagged] = len(values)
                    values.append(tagged)
                rows.append(row)
                codes.append(code)
        if rows:
            self._numbers = with_room(self._numbers, before, len(values))
            self._numbers[before : len(values)] = [*map(_number, values[before:])]
            used = self._used + len(rows)
            self._rows = with_room(self._rows, self._used, used)
            self._codes = with_room(self._codes, self._used, used)
            self._rows[self._used : used] = rows
            self._codes[self._used : used] = codes
            self._used = used
        self.covered = stop


def _extend(columns: list[_GrowingColumn], payloads: Sequence[bytes | None], stop: int) -> None:
    """Parse the payloads up to a row once for all columns, which all cover the same rows."""
    start = columns[0].covered
    text = b"[" + b",".join(text or b"null" for text in payloads[start:stop]) + b"]"
    documents = read_payload(text)
    if len(columns) == 1:
        return columns[0].add(enumerate(documents, start), stop)
    top: _Level = {}
    for place, column in enumerate(columns):
        level, key, dot = top, column.key, "."
        while dot:
            level.setdefault(key, ([], {}))[0].append(place)
            head, dot, key = key.partition(".")
            level = level.setdefault(head, ([], {}))[1] if dot else level
    having: list[dict[int, Any]] = [{} for _ in columns]
    for row, document in enumerate(documents, start):
        for place in _places(document, top):
            having[place][row] = document
    for column, found in zip(columns, having, strict=True):
        column.add(found.items(), stop)
    return None


_Level = dict[str, tuple[list[int], "_Level"]]
"""By names in an object: places of the keys that end there, and what is within."""


def _places(document: Any, level: _Level) -> Iterator[int]:  # noqa: ANN401 (JSON)
    """Yield the places of keys that an object may have."""
    if isinstance(document, list):
        for element in document:
            if not isinstance(element, list):
                yield from _places(element, level)
    elif isinstance(document, dict):
        for name in level.keys() & document.keys():
            places, within = level[name]
            yield from places
            if within:
                yield from _places(document[name], within)


def _number(scalar: Hashable) -> float:
    """Return a tagged scalar in the form of `Column.numbers`."""
    return round_number(scalar) if isinstance(scalar, int | float) else math.nan


def round_number(number: float) -> float:
    """Return a number as a float64, infinite beyond its range."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _step(document: dict[str, Any], key: str) -> tuple[Any, str | None] | None:
    """Return the value under a key, or under its part before a dot, and the rest of the key."""
    if key in document:
        return document[key], None
    head, dot, rest = key.partition(".")
    return (document[head], rest) if dot and head in document else None


def _scalars(document: Any, key: str | None) -> Iterator[bool | float | str]:  # noqa: ANN401 (JSON)
    """Yield the scalars under a key; a list yields each of its elements."""
    if isinstance(document, list):
        for element in document:
            if not isinstance(element, list):
                yield from _scalars(element, key)
    elif key is None:
        if isinstance(document, bool | int | float | str):
            yield document
    elif isinstance(document, dict) and (step := _step(document, key)):
        yield from _scalars(*step)


def _presence(document: Any, key: str | None) -> Iterator[str]:  # noqa: ANN401 (JSON)
    """Yield "exists" if there is a value under a key, and "is_null" if it is null."""
    if key is None:
        yield "exists"
        if document is None or (isinstance(document, list) and None in document):
            yield "is_null"
    elif isinstance(document, list):
        for element in document:
            if not isinstance(element, list):
                yield from _presence(element, key)
    elif isinstance(document, dict) and (step := _step(document, key)):
        yield from _presence(*step)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_DATE: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)


def _moment(text: str) -> int | None:
    """Return the microseconds since 1970 of an ISO date; None for other texts.

    As in Qdrant, time and zone may be missing: midnight, UTC.
    """
    if not _DATE.fullmatch(text):
        return None
    try:
        found = datetime.fromisoformat(text)
        moment = found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # no such day; before year 1 or after 9999 in UTC
        return None
    return (moment - _EPOCH) // _MICROSECOND


def _moments(document: Any, key: str) -> Iterator[int]:  # noqa: ANN401 (JSON)
    """Yield the dates under a key, converted by `_moment`."""
    for scalar in _scalars(document, key):
        if isinstance(scalar, str) and (moment := _moment(scalar)) is not None:
            yield moment


_Find = Callable[[Any, str], Iterator[bool | float | str]]
_Source = tuple[str, _Find]
"""A key (nested keys joined by dots), and what yields what a payload has under it."""


def only_scalar(payload: bytes | None, key: str) -> bool | float | str | None:
    """Return the scalar under a key; None if there is none, or a list of several."""
    scalars = () if payload is None else _scalars(read_payload(payload), key)
    found = [*islice(scalars, 2)]
    return found[0] if len(found) == 1 else None


def first_scalar(payload: bytes | None, key: str) -> bool | float | str | None:
    """Return the first scalar under a key of a payload; None if there is none.

    A text is cut to `MAX_TEXT` characters; an integer beyond 64 bits becomes a float64.
    """
    if payload is None:
        return None
    found = next(_scalars(read_payload(payload), key), None)
    if isinstance(found, str):
        return found[:MAX_TEXT]
    if isinstance(found, int) and found.bit_length() > _INT_BITS:
        return round_number(found)
    return found


class PayloadChanges:
    """Payloads that replaced others under one numbering of rows, in order; one writer adds.

    rows: the row of each change; rows may repeat.
    payloads: JSON text of each.
    """

    def __init__(self) -> None:
        self.rows = np.empty(0, np.int64)
        self.payloads: list[bytes | None] = []
        self._columns: Columns | None = None
        self._numbers_of: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self.payloads)

    def add(self, rows: Sequence[int], payloads: Sequence[bytes | None]) -> None:
        """Add changes; only views made from now on show them."""
        first = len(self.payloads)
        self.rows = with_room(self.rows, first, first + len(rows))
        self.rows[first : first + len(rows)] = rows
        self.payloads.extend(payloads)
        for number, row in enumerate(rows, first):
            self._numbers_of.setdefault(row, []).append(number)

    def last_of(self, row: int, count: int) -> int:
        """Return the index of a row's last change among the first ``count``; -1 for none."""
        numbers = self._numbers_of.get(row, ())
        place = bisect_left(numbers, count)
        return numbers[place - 1] if place else -1

    def count_of(self, row: int, count: int) -> int:
        """Return how many of the first ``count`` changes belong to a row."""
        return bisect_left(self._numbers_of.get(row, ()), count)

    def over(self, mask: UInt8s, where: Filter, count: int) -> UInt8s:
        """Return a copy of a filter's mask, updated by the first ``count`` changes."""
        changed = mask.copy()
        changed[self.rows[:count]] = self.columns.mask(where, count)  # a row's last change wins
        return changed

    @property
    def columns(self) -> Columns:
        """The columns of their payloads."""
        self._columns = columns = self._columns or Columns(self.payloads)
        return columns


class ChangedPayloads:
    """Payloads by row, as one view shows them.

    payloads: the original payloads of the rows.
    count: number of changes that the view shows.
    """

    def __init__(self, payloads: list[bytes | None], changes: PayloadChanges, count: int) -> None:
        self._payloads = payloads
        self._changes = changes
        self._count = count

    def __getitem__(self, row: int) -> bytes | None:
        number = self._changes.last_of(row, self._count)
        return self._payloads[row] if number < 0 else self._changes.payloads[number]


class Columns:
    """The columns for one numbering of rows; each is built when a filter first uses its key.

    payloads: JSON text by row; may grow at its end meanwhile.
    changes: replaced payloads; columns have the original ones.
    """

    def __init__(self, payloads: Sequence[bytes | None]) -> None:
        self._payloads = payloads
        self.changes = PayloadChanges()
        self._lock = threading.Lock()
        self.growing: OrderedDict[_Source, _GrowingColumn] = OrderedDict()
        self.masks: OrderedDict[tuple[Filter, int, int], UInt8s] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the arrays."""
        with self._lock:
            masks = sum(mask.nbytes for mask in self.masks.values())
            return masks + sum(column.nbytes for column in self.growing.values())

    def column(self, source: _Source, n: int) -> Column:
        """Return the column of a key for the first n rows."""
        [growing] = self._cover([source], n)
        return growing.upto(n)

    def _cover(self, sources: Iterable[_Source], n: int) -> list[_GrowingColumn]:
        """Return columns that cover the first n rows; payloads are parsed once for all columns."""
        names = [*dict.fromkeys(sources)]
        with self._lock:
            missing = [name for name in names if name not in self.growing]
            self.growing.update((name, _GrowingColumn(*name)) for name in missing)
            for name in names:
                self.growing.move_to_end(name)
            while missing and len(self.growing) > max(MAX_COLUMNS, len(names)):
                self.growing.popitem(last=False)
            columns = [self.growing[name] for name in names]
        with ExitStack() as locks:
            for column in sorted(columns, key=id):  # one order for all threads
                locks.enter_context(column.lock)
            while behind := [column for column in columns if column.covered < n]:
                start = min(column.covered for column in behind)
                others = (column.covered for column in behind if column.covered > start)
                stop = min(n, start + _CHUNK, *others)
                same = [column for column in behind if column.covered == start]
                _extend(same, self._payloads, stop)
        return columns

    def live_values(
        self, keys: Sequence[str], alive: UInt8s, changed: int
    ) -> dict[str, dict[Hashable, None]]:
        """Return the tagged scalars that live rows have under each key.

        alive: (n,) 1 for these rows; changed: number of changes to apply.
        """
        parts = [(self, alive)]
        if changed:
            rows = self.changes.rows[:changed]
            _, from_end = np.unique(rows[::-1], return_index=True)
            last = changed - 1 - from_end
            shown = np.zeros(changed, np.uint8)
            shown[last] = alive[rows[last]]
            alive = alive.copy()
            alive[rows] = 0
            parts = [(self, alive), (self.changes.columns, shown)]
        found: dict[str, dict[Hashable, None]] = {key: {} for key in keys}
        for columns, shown in parts:
            growing = columns._cover([(key, _scalars) for key in found], len(shown))
            for key, column in zip(found, growing, strict=True):
                values = column.upto(len(shown))
                codes = np.unique(values.codes[shown[values.rows] == 1])
                found[key] |= dict.fromkeys(map(values.values.__getitem__, codes.tolist()))
        return found

    def mask(self, where: Filter, n: int, changed: int = 0) -> UInt8s:
        """Return (n,) 1 if a filter holds for a row's payload; read-only.

        changed: number of changes to apply. It identifies the payloads, so masks are cached by it.
        """
        name = where, n, changed
        with self._lock:
            mask = self.masks.get(name)
        if mask is None:
            if changed:
                mask = self.changes.over(self.mask(where, n), where, changed)
            else:
                self._cover(where.sources(), n)
                mask = where.mask(self, n)
            with self._lock:
                self.masks[name] = mask
                while len(self.masks) > MAX_MASKS:
                    self.masks.popitem(last=False)
        return mask


MAX_DEPTH: Final = 8
"""Filters within filters."""
MAX_CONDITIONS: Final = 256
"""Conditions of one filter, those of the filters within it included."""
MAX_KEY_LENGTH: Final = 1024
"""Characters."""
MAX_KEY_PARTS: Final = 32
"""Objects within objects that one key can reach into."""

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_CONDITIONS: Final = ("match", "range", "exists", "is_null")
_CLAUSES: Final = ("must", "should", "must_not")
_SHOWN_CHARACTERS: Final = 40
"""Of what was sent, in an error."""


@dataclass(frozen=True, slots=True)
class Match:
    """The key has one of these scalars, or a list with one of them.

    key: nested keys are joined by dots.
    values: tagged by `tag`: True is not 1, and 1 is 1.0.
    """

    key: str
    values: tuple[Hashable, ...]

    @property
    def source(self) -> _Source:
        """The column that it reads."""
        return self.key, _scalars

    def mask(self, columns: Columns, n: int) -> UInt8s:
        """Return (n,) 1 where the condition holds."""
        column = columns.column(self.source, n)
        wanted = np.zeros(len(column.numbers), np.bool_)
        for value in self.values:
            code = column.code_of.get(value)
            if code is not None and code < len(wanted):
                wanted[code] = True
        return column.rows_where(wanted, n)

    def to_dict(self) -> dict[str, Any]:
        """Return the document that it was parsed from."""
        return {"key": self.key, "match": {"any": [*map(untag, self.values)]}}


@dataclass(frozen=True, slots=True)
class Prefix:
    """The key has a text with this prefix, or a list with such a text."""

    key: str
    prefix: str

    @property
    def source(self) -> _Source:
        """The column that it reads."""
        return self.key, _scalars

    def mask(self, columns: Columns, n: int) -> UInt8s:
        """Return (n,) 1 where the condition holds."""
        column = columns.column(self.source, n)
        (texts, codes), size = column.texts(), len(self.prefix)
        first = bisect_left(texts, self.prefix)
        stop = bisect_right(texts, self.prefix, first, key=lambda text: text[:size])
        found, wanted = codes[first:stop], np.zeros(len(column.numbers), np.bool_)
        wanted[found[found < len(wanted)]] = True
        return column.rows_where(wanted, n)

    def to_dict(self) -> dict[str, Any]:
        """Return the document that it was parsed from."""
        return {"key": self.key, "match": {"prefix": self.prefix}}


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether the key exists, or exists and is null; a list that contains null counts as null.

    word: "exists" or "is_null".
    """

    key: str
    word: str
    wanted: bool

    @property
    def source(self) -> _Source:
        """The column that it reads."""
        return self.key, _presence

    def mask(self, columns: Columns, n: int) -> UInt8s:
        """Return (n,) 1 where the condition holds."""
        column = columns.column(self.source, n)
        words = column.values[: len(column.numbers)]
        holds = np.array([each == self.word for each in words], np.bool_)
        return column.rows_where(holds, n) ^ np.uint8(not self.wanted)

    def to_dict(self) -> dict[str, Any]:
        """Return the document that it was parsed from."""
        return {"key": self.key, self.word: self.wanted}


@dataclass(frozen=True, slots=True)
class Range:
    """The key has a number, or a list with a number, within all these bounds.

    bounds: "gt", "gte", "lt" or "lte", each with its bound.
    is_of_dates: compare dates; bounds are then microseconds since 1970.
    """

    key: str
    bounds: tuple[tuple[str, float], ...]
    is_of_dates: bool = False

    @property
    def source(self) -> _Source:
        """The column that it reads."""
        return self.key, _moments if self.is_of_dates else _scalars

    def mask(self, columns: Columns, n: int) -> UInt8s:
        """Return (n,) 1 where the condition holds."""
        column = columns.column(self.source, n)
        wanted = ~np.isnan(column.numbers)
        for word, bound in self.bounds:
            wanted &= _compare(_COMPARISONS[word], column, bound)
        return column.rows_where(wanted, n)

    def to_dict(self) -> dict[str, Any]:
        """Return the document that it was parsed from."""
        bounds: dict[str, Any] = dict(self.bounds)
        if self.is_of_dates:
            bounds = {
                word: (_EPOCH + bound * _MICROSECOND).isoformat() for word, bound in bounds.items()
            }
        return {"key": self.key, "range": bounds}


def _compare(holds: Callable[[Any, Any], Any], column: Column, bound: float) -> AnyArray:
    """Return (distinct,) bool, exact even for integers that float64 cannot represent."""
    rounded = float(bound)
    wanted = cast("AnyArray", holds(column.numbers, rounded))
    for code in np.flatnonzero(column.numbers == rounded).tolist():  # the others compare as rounded
        wanted[code] = holds(column.values[code], bound)
    return wanted


@dataclass(frozen=True, slots=True)
class Filter:
    """All of ``must`` hold, none of ``must_not``, and one of ``should`` if there are any."""

    must: tuple[Condition, ...] = ()
    should: tuple[Condition, ...] = ()
    must_not: tuple[Condition, ...] = ()

    def sources(self) -> Iterator[_Source]:
        """Yield the columns that its conditions read."""
        for each in (*self.must, *self.should, *self.must_not):
            yield from each.sources() if isinstance(each, Filter) else (each.source,)

    def mask(self, columns: Columns, n: int) -> UInt8s:
        """Return (n,) 1 if the filter holds for a row's payload; see `Columns.mask`."""
        mask = np.zeros(n, np.uint8) if self.should else np.ones(n, np.uint8)
        for condition in self.should:
            mask |= condition.mask(columns, n)
        for condition in self.must:
            mask &= condition.mask(columns, n)
        for condition in self.must_not:
            mask &= condition.mask(columns, n) ^ 1
        return mask

    @property
    def has_conditions(self) -> bool:
        """Whether it has a condition: without any, every payload passes."""
        parts = (*self.must, *self.should, *self.must_not)
        return any(not isinstance(each, Filter) or each.has_conditions for each in parts)

    def require_conditions(self) -> None:
        """Raise InvalidFilter unless it has a condition, as a safeguard for deletes."""
        if not self.has_conditions:
            raise InvalidFilter(
                expected="at least one condition", got="an empty filter", loc=("filter",)
            )

    def to_dict(self) -> dict[str, Any]:
        """Return a document from which `parse_filter` makes the same filter."""
        clauses = zip(_CLAUSES, (self.must, self.should, self.must_not), strict=True)
        return {name: [each.to_dict() for each in clause] for name, clause in clauses if clause}


Condition = Match | Prefix | Presence | Range | Filter


def parse_filter(
    document: object,
    *,
    max_depth: int = MAX_DEPTH,
    max_conditions: int = MAX_CONDITIONS,
    max_values: float = math.inf,
) -> Filter:
    """Return the filter that a JSON document describes.

    document: any of ``must``, ``should``, ``must_not``, each a condition or a list of conditions. A
        condition is ``{"key", "match": {"value"} | {"any": [...]} | {"prefix"}}``,
        ``{"key", "range": {"gt", "gte", "lt", "lte"}}`` of numbers or of ISO dates, in UTC
        without a zone, ``{"key", "exists": bool}``, ``{"key", "is_null": bool}``, or a filter.
    max_depth, max_conditions, max_values: limits of nested filters, of all conditions, and of all
        their values.
    Raises InvalidFilter (with the place in the document).
    """
    return _Parser(max_depth, max_conditions, max_values).filter(document, (), 1)


class _Parser:
    def __init__(self, max_depth: int, max_conditions: int, max_values: float) -> None:
        self._max_depth = max_depth
        self._max_conditions = max_conditions
        self._max_values = max_values
        self._values = 0
        self._conditions = 0

    def filter(self, document: object, loc: Loc, depth: int) -> Filter:
        if depth > self._max_depth:
            raise InvalidFilter(
                expected=f"filters at most {self._max_depth} deep", got="a deeper one", loc=loc
            )
        clauses = _fields(document, _CLAUSES, loc)
        return Filter(
            **{name: self._clause(clauses[name], (*loc, name), depth) for name in clauses}
        )

    def _clause(self, document: object, loc: Loc, depth: int) -> tuple[Condition, ...]:
        if document is None:
            return ()
        if isinstance(document, dict):
            return (self._condition(document, loc, depth),)
        if not isinstance(document, list):
            raise InvalidFilter(expected="a list of conditions", got=_word(document), loc=loc)
        return tuple(
            self._condition(item, (*loc, place), depth) for place, item in enumerate(document)
        )

    def _condition(self, document: object, loc: Loc, depth: int) -> Condition:
        self._conditions += 1
        if self._conditions > self._max_conditions:
            raise InvalidFilter(expected=f"at most {self._max_conditions} conditions", got="more")
        if not isinstance(document, dict):
            raise InvalidFilter(expected="a condition or a filter", got=_word(document), loc=loc)
        if "key" not in document:
            if document and not any(clause in document for clause in _CLAUSES):
                raise InvalidFilter(
                    expected="a condition with a 'key', or a filter", got="neither", loc=loc
                )
            return self.filter(document, loc, depth + 1)
        fields = _fields(document, ("key", *_CONDITIONS), loc)
        key = fields["key"]
        if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY_LENGTH:
            raise InvalidFilter(
                expected=f"1 to {MAX_KEY_LENGTH} characters", got=_word(key), loc=(*loc, "key")
            )
        if key.count(".") >= MAX_KEY_PARTS:
            raise InvalidFilter(
                expected=f"at most {MAX_KEY_PARTS} parts", got=_word(key), loc=(*loc, "key")
            )
        given = [word for word in _CONDITIONS if fields.get(word) is not None]
        if len(given) != 1:
            expected = f"one of {', '.join(map(repr, _CONDITIONS))}"
            got = " and ".join(map(repr, given)) or "none"
            raise InvalidFilter(expected=expected, got=got, loc=loc)
        [word] = given
        value, place = fields[word], (*loc, word)
        if word == "match":
            return self._match(key, value, place)
        if word == "range":
            return _range(key, value, place)
        if not isinstance(value, bool):
            raise InvalidFilter(expected="true or false", got=_word(value), loc=place)
        return Presence(key, word, value)

    def _match(self, key: str, document: object, loc: Loc) -> Match | Prefix:
        fields = _fields(document, ("value", "any", "prefix"), loc)
        if len(fields) != 1:
            got = " and ".join(map(repr, fields)) or "none"
            raise InvalidFilter(expected="one of 'value', 'any', 'prefix'", got=got, loc=loc)
        if "value" in fields:
            return Match(key, (_scalar(fields["value"], (*loc, "value")),))
        if "prefix" in fields:
            if not isinstance(fields["prefix"], str):
                got = _word(fields["prefix"])
                raise InvalidFilter(expected="a string", got=got, loc=(*loc, "prefix"))
            return Prefix(key, fields["prefix"])
        values = fields["any"]
        if not isinstance(values, list):
            raise InvalidFilter(expected="a list", got=_word(values), loc=(*loc, "any"))
        self._values += len(values)
        if self._values > self._max_values:
            raise InvalidFilter(expected=f"at most {self._max_values} values", got="more")
        scalars = [_scalar(value, (*loc, "any", place)) for place, value in enumerate(values)]
        return Match(key, tuple(scalars))


def _fields(document: object, known: tuple[str, ...], loc: Loc) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InvalidFilter(expected="a JSON object", got=_word(document), loc=loc)
    for name in document:
        if name not in known:
            raise InvalidFilter(
                expected=f"only {', '.join(map(repr, known))}", got=repr(name), loc=loc
            )
    return document


def _scalar(value: object, loc: Loc) -> Hashable:
    if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return tag(value)
    raise InvalidFilter(expected="a string, a number, true or false", got=_word(value), loc=loc)


def _range(key: str, document: object, loc: Loc) -> Range:
    fields = _fields(document, tuple(_COMPARISONS), loc)
    given = {word: bound for word, bound in fields.items() if bound is not None}
    if not given:
        raise InvalidFilter(expected="at least one of gt, gte, lt, lte", got="none", loc=loc)
    bounds = tuple((word, _bound(value, (*loc, word))) for word, value in given.items())
    dates = [word for word, value in given.items() if isinstance(value, str)]
    if 0 < len(dates) < len(bounds):
        raise InvalidFilter(
            expected="bounds that are all numbers, or all dates", got=_word(document), loc=loc
        )
    return Range(key, bounds, is_of_dates=bool(dates))


def _bound(value: object, loc: Loc) -> float:
    """Return a number unchanged, and a date converted by `_moment`."""
    if isinstance(value, str) and (moment := _moment(value)) is not None:
        return moment
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            if math.isfinite(value):
                return value
        except OverflowError:
            pass
    raise InvalidFilter(
        expected="a finite number, or an ISO date such as '2024-01-31' or '2024-01-31T12:00:00Z'",
        got=_word(value),
        loc=loc,
    )


def _word(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."
