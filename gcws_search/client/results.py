"""Results of a collection; each prints in one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from gcws_search.client.errors import CLASSES
from gcws_search.index.contracts.analysis import BackendComparison, Group, SimilarItem
from gcws_search.index.contracts.errors import InvalidInput, ItemExists, quantity
from gcws_search.index.contracts.scores import ScoreKind, shown_score

if TYPE_CHECKING:
    import pandas as pd

_SHOWN: Final = 5
_PARTS: Final[Mapping[Any, str]] = {
    "ids": "id", "payloads": "payload", "texts": "text", "expires": "expires",
}  # fmt: skip
"""What columns of rows are called in a row."""


class Hit(NamedTuple):
    """An item that was found.

    Attributes
    ----------
    score : float
        Exact GMM similarity, in [0, 1].
    """

    id: str
    score: float
    payload: dict[str, Any] | None = None

    @property
    def text(self) -> None:
        """None: the collection has no texts."""
        return None

    def __repr__(self) -> str:
        tail = "" if self.payload is None else f", {self.payload}"
        return f"Hit({self.id!r}, {self.score:.4g}{tail})"


class TextHit(NamedTuple):
    """A text that was found; its other attributes are those of `Hit`."""

    id: str
    score: float
    payload: dict[str, Any] | None
    text: str

    def __repr__(self) -> str:
        tail = "" if self.payload is None else f", {self.payload}"
        return f"TextHit({self.id!r}, {self.score:.4g}{tail}, {self.text!r:.60})"


AnyHit = Hit | TextHit


def hit_of(
    id: str, score: float, payload: dict[str, Any] | None = None, text: str | None = None
) -> AnyHit:
    """Return a hit of a collection of vectors, or of texts."""
    return Hit(id, score, payload) if text is None else TextHit(id, score, payload, text)


class Count(int):
    """A number of items.

    Attributes
    ----------
    hints : list of str
        If no item matches the filter: which of its keys and values no item has.
    """

    hints: Sequence[str]

    def __new__(cls, number: int, hints: Sequence[str] = ()) -> Self:
        """Return the number with its hints."""
        found = super().__new__(cls, number)
        found.hints = hints
        return found


class Hits(list[AnyHit]):
    """The hits of one query, by falling score, equal scores by id.

    Attributes
    ----------
    explanation : dict or None
        Cost of the query: method, candidates, scored, expected_recall and more.
    hints : list of str
        If no item matches the filter: which of its keys and values no item has.
    """

    def __init__(
        self,
        hits: Iterable[AnyHit],
        explanation: Mapping[str, Any] | None = None,
        hints: Sequence[str] = (),
    ) -> None:
        super().__init__(hits)
        self.explanation = explanation
        self.hints = hints

    @property
    def ids(self) -> list[str]:
        """The ids of the hits."""
        return [hit.id for hit in self]

    @property
    def scores(self) -> list[float]:
        """The scores of the hits."""
        return [hit.score for hit in self]

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame, one row per hit: ``id``, ``score``, ``text``, one column per payload key.

        Only hits of texts have a ``text``. A payload key whose column is taken, such as ``id``,
        becomes ``payload.id``.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        payloads = [hit.payload or {} for hit in self]
        keys = dict.fromkeys(key for payload in payloads for key in payload)
        columns: dict[str, list[Any]] = {"id": self.ids, "score": self.scores}
        if any(hit.text is not None for hit in self):
            columns["text"] = [hit.text for hit in self]
        for key in keys:
            name = key
            while name in columns:
                name = f"payload.{name}"
            columns[name] = [payload.get(key) for payload in payloads]
        return _pandas().DataFrame(columns)

    def rescore(self, kind: ScoreKind, *, distance: bool) -> Hits:
        """Return the hits with another kind of scores, or with distances, instead of GMMs."""
        if kind == "gmm" and not distance:
            return self
        hits = [hit._replace(score=shown_score(kind, hit.score, distance=distance)) for hit in self]
        return Hits(hits, self.explanation, self.hints)

    def __repr__(self) -> str:
        shown = ", ".join(f"{hit.id} {hit.score:.3f}" for hit in self[:_SHOWN])
        more = ", …" if len(self) > _SHOWN else ""
        return f"Hits({len(self)}: {shown}{more})"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ManyHits:
    """The hits of m queries as a pair of arrays, ``ids`` and ``scores``.

    They have k columns, the maximum number of hits of a query, and at least one.

    Attributes
    ----------
    ids : (m, k) object
        Strings; None if a query has fewer hits.
    scores : (m, k) float64
        NaN if a query has fewer hits.
    rejected : list of Rejected
        Skipped queries, with ``on_error="skip"``.
    payloads : (m, k) object, or None
        With ``with_payload=True``: dicts; None if an item has none, or a query has fewer hits.
    texts : (m, k) object, or None
        With ``with_payload=True``, in a collection of texts: strings; None as in ``payloads``.
    hints : list of str
        If no item matches the filter: which of its keys and values no item has.
    """

    ids: NDArray[np.object_]
    scores: NDArray[np.float64]
    rejected: Sequence[Rejected] = ()
    payloads: NDArray[np.object_] | None = None
    texts: NDArray[np.object_] | None = None
    hints: Sequence[str] = ()

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return iter((self.ids, self.scores))

    def __repr__(self) -> str:
        left_out = f", {len(self.rejected)} rejected" if self.rejected else ""
        return "ManyHits({} queries × {} hits".format(*self.ids.shape) + f"{left_out})"

    def rescore(self, kind: ScoreKind, *, distance: bool) -> ManyHits:
        """Return the hits with another kind of scores, or with distances, instead of GMMs."""
        return replace(self, scores=shown_score(kind, self.scores, distance=distance))

    def spread(self, rejected: Sequence[Rejected]) -> ManyHits:
        """Return the hits with empty rows for queries that were left out."""
        if not rejected:
            return self
        bad = {each.row for each in rejected}
        good = [row for row in range(len(self.ids) + len(bad)) if row not in bad]

        def spread(rows: NDArray[Any] | None, nothing: float | None = None) -> Any:
            if rows is None:
                return None
            found = np.full((len(good) + len(bad), rows.shape[1]), nothing, rows.dtype)
            found[good] = rows
            return found

        ids, scores = spread(self.ids), spread(self.scores, np.nan)
        return ManyHits(
            ids, scores, rejected, spread(self.payloads), spread(self.texts), self.hints
        )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Joined:
    """The hits of many vectors, one entry per hit: by vector, falling score, then id.

    Attributes
    ----------
    rows : (p,) int64, or None
        Number of the vector; None for another collection's items.
    ids : list of str, or None
        Id of the vector, if it has one.
    to : list of str
        Id of the item that was found.
    scores : (p,) float64
    hints : list of str
        If no item matches the filter: which of its keys and values no item has.
    """

    rows: NDArray[np.int64] | None
    ids: list[str] | None
    to: list[str]
    scores: NDArray[np.float64]
    hints: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.to)

    def rescore(self, kind: ScoreKind, *, distance: bool) -> Joined:
        """Return the hits with another kind of scores, or with distances, not ranked scores."""
        return replace(self, scores=shown_score(kind, self.scores, distance=distance))

    def named(self, ids: Sequence[str] | None) -> Joined:
        """Return the same with the ids of vectors, by number."""
        if ids is None or self.rows is None:
            return self
        return replace(self, ids=[ids[row] for row in self.rows.tolist()])

    def columns(self) -> dict[str, Any]:
        """Return the existing columns of ``row``, ``id``, ``to`` and ``score``."""
        every = {"row": self.rows, "id": self.ids, "to": self.to, "score": self.scores}
        return {name: column for name, column in every.items() if column is not None}

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with one row per hit: ``row``, ``id`` if there are ids, ``to``, ``score``.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        return _pandas().DataFrame(self.columns())

    def __repr__(self) -> str:
        return f"Joined({quantity(len(self), 'hit')})"


def joined_of(parts: Sequence[Joined]) -> Joined:
    """Return the hits of several parts of the same vectors, in order."""
    if not parts:
        return Joined(np.empty(0, np.int64), None, [], np.empty(0, np.float64))
    rows = [part.rows for part in parts if part.rows is not None]
    ids = [part.ids for part in parts if part.ids is not None]
    return Joined(
        np.concatenate(rows) if rows else None,
        [each for part in ids for each in part] if ids else None,
        [each for part in parts for each in part.to],
        np.concatenate([part.scores for part in parts]),
    )


def _pandas() -> Any:
    try:
        import pandas as pd  # noqa: PLC0415
    except ImportError as error:
        message = "to_pandas needs pandas, which is not installed: pip install pandas"
        raise ImportError(message) from error
    return pd


def hits_of(
    found: Sequence[tuple[list[str], list[float]]],
    limit: int,
    payloads: Sequence[Sequence[dict[str, Any] | None]] | None = None,
    texts: Sequence[Sequence[str | None]] | None = None,
) -> ManyHits:
    """Return the data of each query's hits as arrays; without queries, ``limit`` columns."""
    width = max(1, max((len(ids) for ids, _ in found), default=limit))
    names = np.full((len(found), width), None, object)
    scores = np.full(names.shape, np.nan)
    for row, (ids, numbers) in enumerate(found):
        names[row, : len(ids)] = ids
        scores[row, : len(ids)] = numbers

    def table(lists: Sequence[Sequence[Any]] | None) -> NDArray[np.object_] | None:
        if lists is None:
            return None
        objects = np.full(names.shape, None, object)
        for row, each in enumerate(lists):
            for column, entry in enumerate(each):  # a slice assignment would unpack lists
                objects[row, column] = entry
        return objects

    return ManyHits(names, scores, payloads=table(payloads), texts=table(texts))


@dataclass(frozen=True, slots=True, repr=False)
class Item:
    """A stored item.

    Attributes
    ----------
    vector : list of float, or dict
        As it was sent, in float32: dense up to ``dim`` 4096, else indices and values.
    text : str or None
        Its text, in a collection of texts.
    version : int
        1 when it is inserted, and one more with each write. Comparing items ignores it.
    expires : str or None
        When it expires, as in "2027-01-01T00:00:00.000Z"; None for never.
    """

    id: str
    vector: list[float] | dict[str, list[Any]] | None
    payload: dict[str, Any] | None = None
    text: str | None = None
    version: int = field(default=1, compare=False)
    expires: str | None = None

    def __repr__(self) -> str:
        """Return the item in one line, with text and expiry if it has them."""
        text = "" if self.text is None else f", text={self.text!r}"
        text += "" if self.expires is None else f", expires={self.expires!r}"
        return (
            f"Item(id={self.id!r}, vector={self.vector!r}, payload={self.payload!r}"
            f"{text}, version={self.version})"
        )


def with_fingerprint(metadata: dict[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return metadata with the fingerprint of the former metadata, if any."""
    known = (before or {}).get("fingerprint")
    return metadata if known is None else {"fingerprint": known} | metadata


def items_in_order(ids: Iterable[str], items: Iterable[Item]) -> list[Item]:
    """Return items in the order of ids; ids without items are left out."""
    found = {item.id: item for item in items}
    return [found[each] for each in ids if each in found]


class SeenItems:
    """Items that pages have shown: an item that is put again comes again, at the end.

    Ids are stored as 64-bit hashes, 8 bytes each, in sorted runs that grow by doubling.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.int64]] = []

    def unseen(self, items: Sequence[Item]) -> list[Item]:
        """Return the items of another page that no page has shown."""
        hashes = np.fromiter((hash(each.id) for each in items), np.int64, len(items))
        seen = np.zeros(len(items), bool)
        for run in self._runs:
            seen |= run[np.minimum(np.searchsorted(run, hashes), len(run) - 1)] == hashes
        run = hashes[~seen]
        while self._runs and len(self._runs[-1]) <= len(run):
            run = np.concatenate([run, self._runs.pop()])
        if len(run):
            self._runs.append(np.sort(run))
        return [each for each, is_seen in zip(items, seen.tolist(), strict=True) if not is_seen]


class FoundItems(list[Item]):
    """Items found by a text, without vectors; those whose ids begin with it come first.

    Attributes
    ----------
    complete : bool
        False if the search ran out of time.
    """

    def __init__(self, items: Iterable[Item], complete: bool) -> None:
        super().__init__(items)
        self.complete = complete

    def __repr__(self) -> str:
        shown = ", ".join(item.id for item in self[:_SHOWN])
        more = ", …" if len(self) > _SHOWN else ""
        return f"FoundItems({len(self)}: {shown}{more}, complete={self.complete})"


class Rejected(NamedTuple):
    """A row that was not stored.

    Attributes
    ----------
    row : int
        From 0.
    code, detail : str
        The cause, by its stable name and in a sentence.
    """

    row: int
    code: str
    detail: str


def rejected_of(error: InvalidInput | ItemExists, row: int, word: str = "row") -> Rejected:
    """Return a row that was left out, and the cause in the server's terms.

    The location of the error begins with a row, or with a list of these.
    """
    code = next((code for code, cls in CLASSES.items() if cls is type(error)), "invalid_input")
    if isinstance(error, ItemExists):
        return Rejected(row, code, str(ItemExists(error.item_id, row)))
    at = next((at for at, part in enumerate(error.loc) if isinstance(part, int)), 0)
    words = [_PARTS[part] for part in error.loc[:at] if part in _PARTS]
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.loc[at + 1 :])
    where = "".join([*words, *parts]).lstrip(".")
    inner = f" (in {where})" if where else ""
    return Rejected(row, code, f"{word} {row}: expected {error.expected}, got {error.got}{inner}")


class GivenIds(NamedTuple):
    """The first and the last id given to rows without ids; the others lie between."""

    first: str
    last: str


@dataclass(frozen=True, slots=True, repr=False)
class Added:
    """The result of an `add`.

    Attributes
    ----------
    inserted, updated : int
        New items, and items that replaced one of the same id.
    rejected : list of Rejected
        Skipped rows; a server lists the first thousand.
    rejected_count : int
        All of them.
    ids : GivenIds or None
        Ids given to rows without ids.
    loaded_before : dict or None
        Rows loaded before with the same key, if any; they are counted here, too.
    similar : list of SimilarItem
        With the mode "unless_similar": skipped rows, the items they are similar to, and the scores;
        a server lists the first thousand.
    similar_count : int
        All of them.
    repeated_count : int
        Rows not stored because a later row of their batch had the same id.
    """

    inserted: int
    updated: int
    rejected: list[Rejected] = field(default_factory=list)
    rejected_count: int = 0
    ids: GivenIds | None = None
    loaded_before: Mapping[str, Any] | None = None
    similar: list[SimilarItem] = field(default_factory=list)
    similar_count: int = 0
    repeated_count: int = 0

    def __repr__(self) -> str:
        counts = f"inserted={self.inserted}, updated={self.updated}"
        given = "" if self.ids is None else f", ids={self.ids}"
        if self.similar_count:
            given += f", similar_count={self.similar_count}"
        if self.repeated_count:
            given += f", repeated_count={self.repeated_count}"
        return f"Added({counts}, rejected_count={self.rejected_count}{given})"

    def with_unreadable(self, unreadable: Mapping[int, InvalidInput]) -> Added:
        """Return the same with additional rows that could not be read."""
        more = [rejected_of(error, row) for row, error in unreadable.items()]
        rejected = sorted([*self.rejected, *more])
        count = self.rejected_count + len(more)
        return replace(self, rejected=rejected, rejected_count=count)

    def __add__(self, other: Added) -> Added:
        return Added(
            self.inserted + other.inserted,
            self.updated + other.updated,
            self.rejected + other.rejected,
            self.rejected_count + other.rejected_count,
            GivenIds(self.ids.first, other.ids.last)
            if self.ids and other.ids
            else self.ids or other.ids,
            similar=self.similar + other.similar,
            similar_count=self.similar_count + other.similar_count,
            repeated_count=self.repeated_count + other.repeated_count,
        )


class FoundGroups(list[Group]):
    """Groups of near-duplicates, largest first.

    Attributes
    ----------
    hints : list of str
        If no item has the key of ``keep``, or there are no groups: that, and which keys and values
        of the filter no item has.
    """

    def __init__(self, groups: Iterable[Group], hints: Sequence[str] = ()) -> None:
        super().__init__(groups)
        self.hints = hints


class Pair(NamedTuple):
    """Two items and their exact score; ``a`` comes before ``b``."""

    a: str
    b: str
    score: float


@dataclass(frozen=True, slots=True, repr=False)
class Compared:
    """Backends side by side.

    Attributes
    ----------
    mean_similarity : list of float
        For each query, of its exact neighbours.
    """

    backends: list[BackendComparison]
    mean_similarity: list[float]

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{each.name} recall {each.recall:.3f} in {each.latency_p50_seconds * 1e3:.3g} ms"
            for each in self.backends
        )
        return f"Compared({shown})"
