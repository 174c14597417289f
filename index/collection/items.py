"""Items as callers pass and receive them: batches and their ids, views, results of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from gcws_search.index.collection.backend_index import Attached
from gcws_search.index.collection.ids import Ids, ranks_of
from gcws_search.index.contracts.arrays import (
    MIN_CAPACITY,
    NEVER,
    AnyArray,
    Float64s,
    Int64s,
    UInt8s,
    UInt64s,
)
from gcws_search.index.contracts.batches import JsonVector, RawBatch, VectorBatch, concatenate
from gcws_search.index.contracts.errors import (
    InvalidId,
    InvalidParameter,
    ItemExists,
    ItemNotFound,
    quantity,
)
from gcws_search.index.contracts.hits import METHODS, BatchHits, Explanation, Pairs
from gcws_search.index.contracts.parameters import MAX_ID_LENGTH
from gcws_search.index.payload import ChangedPayloads, Columns, Filter
from gcws_search.index.vectors.space import VectorSpace

_MAX_ID_DIGITS: Final = 15
"""Of an id that counts as a number: every program reads numbers up to there exactly."""

T = TypeVar("T")

Total = tuple[str, int, int, int, float]
"""A method of search, how many queries it answered, candidates found, rows scored, and the sum of
the recall to be expected of each."""


@dataclass(frozen=True, slots=True)
class ItemBatch:
    """Items as sent by the caller.

    ids: None: the collection numbers the item when it is stored.
    payloads: compact JSON text of an object; None for no payload.
    if_versions: the version that each item must have now, 0 for no item; None permits any. Empty
        if all are None.
    expires: expiry of each item in ms since 1970; None: the collection's default. Empty if all
        are None.
    Raises InvalidParameter (the columns differ in length, or an item has ``if_versions`` but no
        id).
    """

    ids: Sequence[str | None]
    vectors: RawBatch
    payloads: list[bytes | None]
    if_versions: Sequence[int | None] = ()
    expires: Sequence[int | None] = ()

    def __post_init__(self) -> None:
        """Check that the columns have equal lengths."""
        if not len(self.ids) == self.vectors.count == len(self.payloads):
            lengths = len(self.ids), len(self.vectors), len(self.payloads)
            raise InvalidParameter(
                expected="as many ids as vectors and payloads",
                got=", ".join(map(quantity, lengths, ("id", "vector", "payload"))),
            )
        if self.if_versions:
            for row, (item_id, version) in enumerate(zip(self.ids, self.if_versions, strict=True)):
                if item_id is None and version is not None:
                    raise InvalidParameter(expected="an id", got="none", loc=(row, "if_version"))

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, places: Sequence[int]) -> ItemBatch:
        """Return the items at some places, in that order."""
        ids = [self.ids[place] for place in places]
        payloads = [self.payloads[place] for place in places]
        wanted = [self.if_versions[place] for place in places if self.if_versions]
        expires = [self.expires[place] for place in places if self.expires]
        return ItemBatch(ids, self.vectors[np.array(places, np.int64)], payloads, wanted, expires)

    @classmethod
    def concatenate(cls, parts: Sequence[ItemBatch]) -> ItemBatch:
        """Return the items of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            [*chain.from_iterable(part.ids for part in parts)],
            concatenate([part.vectors for part in parts]),
            [*chain.from_iterable(part.payloads for part in parts)],
            [*_filled([(part.if_versions, len(part)) for part in parts], None)],
            [*_filled([(part.expires, len(part)) for part in parts], None)],
        )


@dataclass(frozen=True, slots=True)
class View:
    """An immutable version of a collection, as readers see it.

    space: with the transform of the vectors; queries need the same transform.
    vectors: of all n rows, including dead ones.
    alive: (n,) uint8, 1 if the row's item has not been deleted or updated since.
    count: number of live rows.
    sequences: (n,) int64, sequence numbers, ascending.
    ids: by row; shared with newer views, so there may be more than n.
    payloads: by row; shared like ``ids``.
    versions: (n,) int64, of the items when their rows were put; (0,) if all are 1. See
        `versions_of`.
    expires: (n,) int64, in ms since 1970, `NEVER` for items that do not expire; (0,) if none does.
    changed: number of payload changes that it includes.
    state: the primary backend's index of the n rows.
    content: identifies rows and payloads, whatever the indexes: the first version that had them.
    attached: comparison backends with their indexes of the n rows, by name.
    """

    space: VectorSpace
    vectors: VectorBatch
    alive: UInt8s
    count: int
    sequences: Int64s
    ids: Ids
    payloads: list[bytes | None] | ChangedPayloads
    versions: Int64s
    expires: Int64s
    changed: int
    columns: Columns
    state: Any
    version: int
    content: int
    attached: Attached = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def dead(self) -> int:
        """Number of rows that are tombstones."""
        return len(self) - self.count

    @property
    def obsolete(self) -> int:
        """Number of tombstones and of replaced payloads, which a compaction removes."""
        return self.dead + self.changed

    def versions_of(self, rows: Sequence[int]) -> list[int]:
        """Return the versions of the items of some rows, payload changes included."""
        versions = [1] * len(rows)
        if len(self.versions):
            versions = self.versions[np.array(rows, np.int64)].tolist()
        if not self.changed:
            return versions
        count_of = self.columns.changes.count_of
        pairs = zip(versions, rows, strict=True)
        return [version + count_of(row, self.changed) for version, row in pairs]

    def expires_of(self, rows: Sequence[int]) -> Sequence[int | None]:
        """Return the expiry times of some rows, None for never; empty if no item expires."""
        if not len(self.expires):
            return ()
        found: list[int] = self.expires[np.array(rows, np.int64)].tolist()
        return [None if at == NEVER else at for at in found]

    def mask(self, where: Filter) -> UInt8s:
        """Return (n,) 1 if a row's payload passes a filter, tombstones included."""
        return self.columns.mask(where, len(self), self.changed)

    def page(self, permitted: UInt8s, *, after: int, limit: int) -> Int64s:
        """Return the first ``limit`` permitted rows with sequence numbers above ``after``.

        permitted: (n,) uint8, ``alive`` or a part of it.
        """
        start = int(np.searchsorted(self.sequences, after, side="right"))
        found: list[Int64s] = []
        wanted, step = limit, 2 * limit + MIN_CAPACITY
        while wanted and start < len(self):
            rows = start + np.flatnonzero(permitted[start : start + step])[:wanted]
            found.append(rows)
            wanted -= len(rows)
            start, step = start + step, 2 * step
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def encoded(self, rows: Int64s, vectors: VectorBatch, codes: UInt64s) -> EncodedBatch:
        """Return the items of some rows with their vectors and codes, to be put elsewhere."""
        chosen = rows.tolist()
        return EncodedBatch(
            self.ids.of(chosen),
            [self.payloads[row] for row in chosen],
            vectors,
            codes,
            self.sequences[rows].tolist(),
            self.versions_of(chosen),
            self.expires_of(chosen),
        )

    def rank(self, pairs: Pairs, limit: int | None = None) -> list[tuple[str, str, float]]:
        """Return the best pairs of rows; see `rank_pairs`."""
        a, b, scores = pairs
        rows, places = np.unique(np.concatenate([a, b]), return_inverse=True)
        return rank_pairs(self.ids.of(rows), places[: len(a)], places[len(a) :], scores, limit)

    def raw(self, rows: Int64s) -> RawBatch | None:
        """Return vectors as they were sent; None if the transform has changed them."""
        if not self.space.is_plain:
            return None
        vectors = self.vectors
        if vectors.form == "dense":
            dense = vectors[rows].dense[:, : self.space.dim]
            return RawBatch("dense", dense=np.ascontiguousarray(dense))
        chosen = vectors[rows]
        signs = np.where(chosen.slots & 1, np.float32(-1), np.float32(1))
        return RawBatch(
            "sparse",
            indptr=chosen.indptr,
            indices=(chosen.slots >> 1).astype(np.int32),
            values=chosen.values * signs,
        )


def pair_order(
    ids: Sequence[str], a: AnyArray, b: AnyArray, scores: Float64s, limit: int | None = None
) -> Int64s:
    """Return the places of pairs by falling score, ties by ids: of all, or of the best.

    ids: distinct. Each is compared once, not once a pair: items that tie have many pairs.
    a, b: (p,) integers, places in ``ids``.
    """
    ranks = ranks_of(ids)
    first, second = ranks[a], ranks[b]
    keys = np.maximum(first, second), np.minimum(first, second), -scores
    best: Int64s = np.lexsort(keys)[:limit]
    return best


def rank_pairs(
    ids: Sequence[str], a: AnyArray, b: AnyArray, scores: Float64s, limit: int | None = None
) -> list[tuple[str, str, float]]:
    """Return pairs by ids a < b, in the order of `pair_order`."""
    best = pair_order(ids, a, b, scores, limit)
    columns = (column[best].tolist() for column in (a, b, scores))
    names = ((ids[one], ids[other], score) for one, other, score in zip(*columns, strict=True))
    return [(min(one, other), max(one, other), score) for one, other, score in names]


@dataclass(slots=True)
class QueryResult:
    """The hits of one query, by falling score, equal scores by id, with everything that is shown.

    payloads: JSON text of each hit; None for a hit without payload.
    explanation: cost of the query; None in a cluster unless requested.
    rows: of ``view``, which is None if the search ran in another process.
    vectors: as sent, None for an item deleted since; None if not requested.
    shards: set in a cluster.
    """

    ids: list[str]
    scores: list[float]
    payloads: Sequence[bytes | None] | None = None
    explanation: Explanation | None = None
    rows: Sequence[int] = ()
    view: View | None = field(default=None, repr=False, compare=False)
    vectors: Sequence[JsonVector | None] | None = None
    shards: ShardsAsked | None = None


class ShardsAsked(NamedTuple):
    """Which shards of a cluster have answered."""

    total: int
    answered: int
    missing: Sequence[int]


@dataclass(slots=True, eq=False)
class QueryResults:
    """Results of several queries; each `QueryResult` is created when it is read.

    view: the view that was searched.
    limit: requested hits; there may be more that tie with the last one.
    """

    view: View
    found: BatchHits
    limit: int

    def __len__(self) -> int:
        return len(self.found.sizes)

    def __iter__(self) -> Iterator[QueryResult]:
        return self.rank()

    def rank(self, *, explain: bool = True) -> Iterator[QueryResult]:
        """Yield the hits of each query, ranked when they are read; ``explain``: with their cost."""
        found = self.found
        numbers = range(len(found.sizes))
        if found.wider:
            return map(self.__getitem__, numbers)
        lines = found.rows.tolist(), found.scores.tolist()
        return map(self._rank, numbers, found.sizes.tolist(), *lines, repeat(explain))

    def __getitem__(self, number: int) -> QueryResult:
        number = range(len(self))[number]  # also negative numbers; IndexError
        rows, scores = self.found.hits(number)
        return self._rank(number, len(rows), rows.tolist(), scores.tolist(), explain=True)

    def _rank(
        self, number: int, size: int, rows: list[int], scores: list[float], explain: bool
    ) -> QueryResult:
        """Return the first ``size`` rows as hits, equal scores by id, at most ``limit``."""
        view, limit = self.view, self.limit
        names = view.ids
        if size < len(rows):
            rows, scores = rows[:size], scores[:size]
        if len(rows) > limit:  # thousands may tie with the last hit
            above = sum(score > scores[-1] for score in scores[:limit])
            tied = names.first(rows[above:], limit - above)
            rows, scores = [*rows[:above], *tied], scores[:limit]
        ids = names.of(rows)
        if len(set(scores)) < len(scores):
            ranked = sorted(zip([-score for score in scores], ids, rows, strict=True))
            ids = [item_id for _, item_id, _ in ranked]
            rows = [row for _, _, row in ranked]
        payloads = [*map(view.payloads.__getitem__, rows)]
        cost = self.found.explanation(number) if explain else None
        return QueryResult(ids, scores, payloads, cost, rows, view)

    def totals(self) -> list[Total]:
        """Return the sums over queries, by the method that answered them."""
        found = self.found
        sums: dict[int, tuple[int, int, int, float]] = {}
        for work, recall in zip(found.work.tolist(), found.expected_recall.tolist(), strict=True):
            method, _, _, candidates, scored, _ = work
            queries, before, compared, expected = sums.get(method, (0, 0, 0, 0.0))
            sums[method] = queries + 1, before + candidates, compared + scored, expected + recall
        return [(METHODS[method], *sums[method]) for method in sorted(sums)]


@dataclass(slots=True)
class EncodedBatch:
    """Items that are validated, transformed and hashed, ready to append.

    ids: distinct; empty text for an item that is numbered when it is stored.
    codes: (n, code_width) uint64, the result of the backend's `encode`.
    sequences: sequence numbers, ascending; empty until they are assigned.
    versions: of the items; empty if all are 1, and until they are assigned.
    expires: of the items, in ms since 1970; empty if none expires, and until assigned.
    seconds: time spent on encoding.
    """

    ids: Sequence[str]
    payloads: Sequence[bytes | None]
    vectors: VectorBatch
    codes: UInt64s
    sequences: Sequence[int] = ()
    versions: Sequence[int] = ()
    expires: Sequence[int | None] = ()
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, places: Sequence[int]) -> EncodedBatch:
        """Return some of the items, with their share of the time."""
        if len(places) == len(self):
            return self
        if isinstance(places, range):
            rows: slice | Int64s = slice(places.start, places.stop)
        else:
            rows = np.array(places, np.int64)
        return EncodedBatch(
            [self.ids[place] for place in places],
            [self.payloads[place] for place in places],
            self.vectors[rows],
            self.codes[rows],
            expires=[self.expires[place] for place in places if self.expires],
            seconds=self.seconds * len(places) / len(self),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[EncodedBatch]) -> EncodedBatch:
        """Return the items of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            [*chain.from_iterable(part.ids for part in parts)],
            [*chain.from_iterable(part.payloads for part in parts)],
            concatenate([part.vectors for part in parts]),
            np.concatenate([part.codes for part in parts]),
            [*chain.from_iterable(part.sequences for part in parts)],
            [*_filled([(part.versions, len(part)) for part in parts], 1)],
            [*_filled([(part.expires, len(part)) for part in parts], None)],
            sum(part.seconds for part in parts),
        )


def _filled(columns: Sequence[tuple[Sequence[T], int]], value: T) -> Iterator[T]:
    """Yield the entries of columns with given lengths; an empty column yields ``value``.

    Yields nothing if all columns are empty.
    """
    if any(column for column, _ in columns):
        for column, length in columns:
            yield from column or repeat(value, length)


_MAX_SEQUENCE: Final = 2**63 - 1
_MAX_VERSION: Final = 2**62
_MAX_DIGITS: Final = 20
"""More than any sequence number has."""


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as sent; its vector in the form of the API, None if not requested."""

    id: str
    vector: JsonVector | None
    payload: bytes | None
    version: int = 1
    expires: int | None = None  # ms since 1970


@dataclass(frozen=True, slots=True)
class Page:
    """Some items in insertion order, and the cursor of the next page, if there is one.

    complete: for items found by a text: whether the time was enough to examine all.
    """

    items: list[StoredItem]
    next_cursor: str | None
    complete: bool = True


def cursor_of(sequence: int, stamp: str) -> str:
    """Return the cursor of the page that starts after a sequence number.

    stamp: of the collection; empty for a file of a version without stamps.
    """
    return f"{stamp}.{sequence}" if stamp else str(sequence)


def sequence_of(cursor: str | None, stamp: str) -> int:
    """Return the sequence number after which the cursor's page starts.

    stamp: see `cursor_of`.
    Raises InvalidParameter (the cursor is not valid, or that of another collection).
    """
    if cursor is None:
        return 0
    if isinstance(cursor, str):
        given, _, digits = cursor.rpartition(".")
        if given == stamp and digits.isascii() and digits.isdecimal():
            sequence = int(digits[:_MAX_DIGITS])
            if sequence <= _MAX_SEQUENCE:
                return sequence
    raise InvalidParameter(
        expected="a cursor that a page returned since the collection was created or restored",
        got=repr(cursor)[:42],
        loc=("cursor",),
    )


def check_ids(ids: Sequence[str | None]) -> None:
    """Check the ids of a batch; None stands for an item that is numbered when stored.

    ids: 1 to `MAX_ID_LENGTH` characters each.
    Raises InvalidId (at ``(row, "id")``: not a string, empty, too long, or with a lone
        surrogate).
    """
    try:
        "".join(ids).encode()  # type: ignore[arg-type]  # a TypeError where one is None
        lengths = [*map(len, ids)]  # type: ignore[arg-type]
        if not ids or (min(lengths) > 0 and max(lengths) <= MAX_ID_LENGTH):
            return
    except (TypeError, UnicodeEncodeError):
        pass
    for row, item_id in enumerate(ids):
        if item_id is not None:
            _check_id(item_id, row)


def _check_id(value: object, row: int) -> None:
    loc = (row, "id")
    if not isinstance(value, str):
        raise InvalidId(expected="a string", got=type(value).__name__, loc=loc)
    if not 1 <= len(value) <= MAX_ID_LENGTH:
        raise InvalidId(
            expected=f"1 to {MAX_ID_LENGTH} characters", got=f"{len(value)} characters", loc=loc
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidId(expected="Unicode text", got="a lone surrogate", loc=loc) from None


def check_life(versions: Sequence[int], expires: Sequence[int | None]) -> None:
    """Raise ValueError unless all versions and expiry times are valid."""
    if any(at is not None and not 0 <= at < NEVER for at in expires):
        raise ValueError("an expiry is not a valid time")
    if versions and not 1 <= min(versions) <= max(versions) < _MAX_VERSION:
        raise ValueError("a version is out of range")


def number_beyond(ids: Iterable[str | None]) -> int:
    """Return one more than the highest id that is a number; 0 if there is none.

    Ids of more than `_MAX_ID_DIGITS` digits are ignored: they are hashes, not counts.
    """
    digits = [each for each in ids if each and each.isdecimal() and len(each) <= _MAX_ID_DIGITS]
    return max(map(int, digits), default=-1) + 1


def number_items(
    ids: Sequence[str | None], first: int, taken: Callable[[Sequence[str]], Sequence[str]]
) -> tuple[list[str], range]:
    """Assign consecutive numbers to the items without an id.

    ids: at least one is None.
    first: the first number to use, if no item has one of the numbers.
    taken: returns those of the given ids that items have.
    """
    own = {each for each in ids if each is not None}
    numbers = range(first, first + len(ids) - sum(each is not None for each in ids))
    while found := own.intersection(names := [*map(str, numbers)]) | {*taken(names)}:
        first = max(map(int, found)) + 1
        numbers = range(first, first + len(numbers))
    fresh = iter(names)
    return [next(fresh) if each is None else each for each in ids], numbers


def taken_rows(
    ids: Sequence[str | None], error: ItemExists, get: Callable[[str], object]
) -> dict[int, str]:
    """Return, by row, the ids that cannot be inserted: the id in ``error`` and all others.

    ``get`` raises ItemNotFound for a free id. If an id comes twice, the first item takes it.
    """
    taken, seen = {error.row: error.item_id}, set()
    for row, item_id in enumerate(ids):
        if item_id is None:
            continue
        if item_id not in seen:
            seen.add(item_id)
            try:
                get(item_id)
            except ItemNotFound:
                continue
        taken[row] = item_id
    return taken
