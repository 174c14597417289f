"""A collection for blocking callers, and one for coroutines: each operation once."""

from __future__ import annotations

import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from numbers import Integral, Real
from operator import index
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Literal,
    ParamSpec,
    Self,
    SupportsIndex,
    TypeVar,
    cast,
)

import numpy as np

from gcws_search.client.embedded import EmbeddedCollection, open_file
from gcws_search.client.export import export_items
from gcws_search.client.remote import RemoteCollection, present, run
from gcws_search.client.results import (
    Added,
    Compared,
    Count,
    FoundGroups,
    FoundItems,
    Hits,
    Item,
    Joined,
    ManyHits,
    Pair,
    SeenItems,
)
from gcws_search.formats.items import (
    Expires,
    Items,
    items_of,
    items_of_texts,
    texts_of,
    with_expiries,
    with_versions,
)
from gcws_search.formats.payloads import filter_of, new_payload, read_json, write_json
from gcws_search.formats.vectors import is_frame, is_names, rows_of, rows_of_texts, usable
from gcws_search.index.contracts.analysis import (
    MAX_JOIN_LIMIT,
    SHARES,
    Explained,
    GroupMode,
    ItemMap,
)
from gcws_search.index.contracts.errors import (
    InvalidInput,
    InvalidParameter,
    ItemNotFound,
    place_errors,
    require_one,
)
from gcws_search.index.contracts.parameters import (
    MAX_SEED,
    BackendParams,
    CollectionConfig,
    GcwsParams,
    PutMode,
    Storage,
    TextParams,
    Transform,
    WeightKind,
    backend_params,
    put_mode,
    require_word,
)
from gcws_search.index.contracts.scores import ScoreKind, check_score

if TYPE_CHECKING:
    from gcws_search import index as ix

P = ParamSpec("P")
R = TypeVar("R")
Place = EmbeddedCollection | RemoteCollection
"""What carries operations out: both have the same, those of a server as coroutines."""
OnError = Literal["stop", "skip"]
Guarantee = Literal["measured", "proven"]
Durability = Literal["full", "normal"]
Progress = Callable[[int], None]
"""Called with the number of rows added since the last call."""

_WHOLE: Final = (Integral, "a whole number, at least", int)
_NUMBER: Final = (Real, "a number", float)
_WORD: Final = (str, "a string", str)
_TRUTH: Final = (bool, "True or False", bool)
_WORDS: Final = ("group_by", "backend", "keep", "key", "cursor", "prefix", "text", "name")
_KINDS: Final[dict[str, tuple[Any, str, Callable[[Any], Any]]]] = {
    **dict.fromkeys(
        ("limit", "offset", "group_size", "sample", "landmarks", "seed", "threads", "if_version"),
        _WHOLE,
    ),
    **dict.fromkeys(("recall", "min_score"), _NUMBER),
    **dict.fromkeys(_WORDS, _WORD),
    **dict.fromkeys(("explain", "neighbours", "distance", "with_payload", "merge"), _TRUTH),
}
"""What options are, in words, and how each becomes a plain value."""
_FINITE: Final = -sys.float_info.max, sys.float_info.max
_BOUNDS: Final[dict[str, tuple[Any, Any]]] = {
    **{name: (1, MAX_JOIN_LIMIT) for name, kind in _KINDS.items() if kind is _WHOLE},
    **{name: _FINITE for name, kind in _KINDS.items() if kind is _NUMBER},
    **{"offset": (0, MAX_JOIN_LIMIT), "seed": (0, MAX_SEED), "if_version": (1, 2**63 - 1)},
}

UNSET: Final[Any] = object()
"""Stands for a ``dim`` that is not given; None is an open space."""


def config_of(
    dim: int | None,
    transform: Transform | dict[str, Any] | None = None,
    backend: BackendParams | dict[str, Any] | None = None,
    storage: Storage = "auto",
    text: TextParams | dict[str, Any] | None = None,
    *,
    ttl: float | None = None,
) -> CollectionConfig | None:
    """Return a configuration to create a collection, if ``dim`` or ``text`` is given.

    Its parts are objects, or as the API has them.

    Raises
    ------
    InvalidParameter
    """
    if dim is UNSET and text is None:
        return None
    if isinstance(transform, dict):
        parts = dict(transform)
        for name in ("center", "weights"):
            values = parts.get(name)
            if values is not None and (name == "center" or not isinstance(values, str)):
                parts[name] = _numbers(values, "transform", name)
        _require_known(parts, Transform.__dataclass_fields__, "transform")
        transform = Transform(**parts)
    elif transform is not None and not isinstance(transform, Transform):
        expected = 'a Transform, or a dict such as {"normalize": "l2"}'
        raise InvalidParameter(expected=expected, got=repr(transform), loc=("transform",))
    if isinstance(backend, dict):
        _require_known(backend, ("kind", "params"), "backend")
        if "kind" not in backend:
            raise InvalidParameter(expected="a kind", got="none", loc=("backend",))
        backend = backend_params(backend["kind"], backend.get("params", {}))
    elif backend is not None and not isinstance(backend, BackendParams):
        expected = 'parameters of a backend, or a dict such as {"kind": "exact"}'
        raise InvalidParameter(expected=expected, got=repr(backend), loc=("backend",))
    if text is not None:
        if not isinstance(text, TextParams | dict):
            expected = 'a TextParams, or a dict such as {"tokens": "words"}'
            raise InvalidParameter(expected=expected, got=repr(text), loc=("text",))
        with place_errors("text"):
            text = TextParams.from_dict(text) if isinstance(text, dict) else text
            text.require_tokens()
    given = CollectionConfig(
        dim=None if dim is None or dim is UNSET else _whole(dim),
        transform=transform or Transform(),
        backend=backend or GcwsParams(),
        storage=storage,
        text=text,
        ttl=ttl,
    )
    try:  # read like a file: what cannot be stored is not created
        return CollectionConfig.from_dict(read_json(write_json(given.to_dict())))
    except TypeError as error:
        raise InvalidParameter(expected="values that JSON holds", got=str(error)) from None


def _whole(dim: SupportsIndex) -> int:
    if not isinstance(dim, bool):
        with suppress(TypeError):
            return index(dim)
    expected = "a whole number, or None for an open space"
    raise InvalidParameter(expected=expected, got=repr(dim), loc=("dim",))


def _numbers(values: Iterable[float], *loc: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, values))
    except (TypeError, ValueError):
        got = f"{values!r:.60}"
        raise InvalidParameter(expected="a list of numbers", got=got, loc=loc) from None


def _require_known(given: Iterable[str], known: Iterable[str], name: str) -> None:
    for word in given:
        if word not in known:
            raise InvalidParameter(expected=", ".join(known), got=repr(word), loc=(name,))


def _require_same_place(own: Place, other: Place) -> None:
    """Raise InvalidParameter unless both are of this process, or of one server."""
    if isinstance(own, RemoteCollection) and isinstance(other, RemoteCollection):
        is_same, got = own.server.url == other.server.url, f"one of {other.server.url}"
    else:
        is_same = isinstance(own, EmbeddedCollection) and isinstance(other, EmbeddedCollection)
        got = f"{other.name!r}, which is elsewhere"
    if not is_same:
        expected = "a collection of the same server, or of this process as this one is"
        raise InvalidParameter(expected=expected, got=got, loc=("data",))


class Collection:
    """A collection: of a server (`connect`), of a file, or in memory (`Collection.open`).

    Each operation has its signature and documentation here; `embedded` and `remote` execute it.
    `AsyncCollection` awaits the same.

    Attributes
    ----------
    config : CollectionConfig
        Its configuration; weights as last requested from `fit`.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.name = place.name

    @property
    def config(self) -> CollectionConfig:
        """What it was created with; see above."""
        return self.place.config

    @staticmethod
    def open(
        path: str | Path,
        *,
        dim: int | None = UNSET,
        transform: Transform | dict[str, Any] | None = None,
        backend: BackendParams | dict[str, Any] | None = None,
        storage: Storage = "auto",
        text: TextParams | dict[str, Any] | None = None,
        ttl: float | None = None,
        durability: Durability = "full",
        threads: int | None = None,
    ) -> Collection:
        """Open a collection's file without a server; ``dim`` or ``text`` creates it if needed.

        Parameters
        ----------
        path : str or Path
            Ends in ``.sqlite``; the file that a server would keep for a collection of that name.
            ":memory:" is an empty collection that is gone when it is closed.
        dim : int or None
            Number of coordinates; None for an open space of sparse vectors. Optional if the file
            exists.
        transform, backend : objects, or dicts as in the API
        storage : {"auto", "memory", "mapped"}
            Where vectors are kept; see `CollectionConfig`.
        text : TextParams or dict, or None
            Make it a collection of texts: ``{"tokens": "words"}``; see `TextParams`. It has no
            ``dim``.
        ttl : float or None
            Seconds after its write at which an item without its own time expires.
        durability : {"full", "normal"}
            Whether a write survives a power cut, or only the end of the process.
        threads : int or None
            None: as many as the process may use. Collections of one folder share the threads and
            durability with which the first of them was opened.

        Raises
        ------
        DirectoryLocked
            A server or another process owns the folder; the error names it.
        CollectionNotFound, CollectionExists, InvalidParameter, DamagedFile
        """
        config = config_of(dim, transform, backend, storage, text, ttl=ttl)
        require_word("durability", durability, Durability)
        most = _checked(**present(threads=threads)).get("threads")
        return Collection(open_file(path, config, durability=durability, threads=most))

    @property
    def index(self) -> ix.StoredCollection:
        """The collection of the index, for operations that only it has.

        Raises
        ------
        InvalidParameter
            The collection is a server's.
        DirectoryLocked
            This process is a fork of the one that opened it.
        CollectionNotFound
            It is closed.
        """
        if isinstance(self.place, EmbeddedCollection):
            return self.place.index
        raise InvalidParameter(expected="a collection of this process", got="a server's")

    def _do(self, operation: Callable[[Place], R | Coroutine[Any, Any, R]]) -> R:
        """Run an operation in this process or on the server."""
        asked: Any = operation(self.place)
        found: R = run(asked) if isinstance(self.place, RemoteCollection) else asked
        return found

    def add(
        self,
        data: Any = None,
        *,
        texts: Any = None,
        ids: Any = None,
        payloads: Any = None,
        mode: PutMode = "upsert",
        on_error: OnError = "stop",
        id_start: int | None = None,
        keep_payloads: bool = False,
        min_score: float | None = None,
        recall: float | None = None,
        if_version: int | Iterable[int | None] | None = None,
        expires: Expires | Iterable[Expires | None] | None = None,
        progress: Progress | None = None,
    ) -> Added:
        """Store items batch by batch; items stored before an error stay.

        Parameters
        ----------
        data : array, sparse matrix, frame, sequence of vectors, or iterable of items
            An (n, dim) array of any type and order; anything of scipy's sparse; a frame of pandas,
            polars or Arrow; lists of numbers; dicts of names or coordinates and their values.
        texts : sequence of str, or str
            Instead of ``data``, in a collection of texts; or the name of the text column of a
            frame, by default "text".
        ids : sequence, str or None
            A string names the column of a frame; "index" is the index of pandas. None uses the
            frame's column ``id``, or its index if that is text, or has a name and whole numbers.
            Rows without ids get the next free numbers, from 0 on: see ``ids`` of the result.
        payloads : dict of columns, sequence of dicts, names of columns, or None
            ``{"label": y}`` gives row i the payload ``{"label": y[i]}``.
        mode : {"upsert", "insert", "unless_similar"}
            "upsert" replaces existing items; "insert" refuses them; "unless_similar" skips every
            item that scores ``min_score`` or more with a stored one, or with an earlier one of
            ``data``: see ``similar`` of the result.
        on_error : {"stop", "skip"}
            "skip" skips rows that cannot be stored, and lists them in the result.
        id_start : int or None
            Number rows without ids from here on instead, and replace items with these numbers.
        keep_payloads : bool
            Whether an existing item keeps its payload if its new version has none; needs ids.
        min_score, recall : float, optional
            With "unless_similar": the score from which an item is skipped, and the expected share
            of such items that is found among those stored before, by default 0.9; 1 finds all.
        if_version : int, sequence of int or None, or None
            The version that each item must have in the collection, 0 if it must not exist: one for
            all, or one per item, None for any. Then all items are stored, or none; they are one
            request, with "upsert" or "insert", and without the options of a load.
        expires : datetime, str, float, a sequence of these and None, or None
            When the items expire: a time with its zone, or seconds after the write; one for all, or
            one per item. None: as the items say, or by the ``ttl`` of the collection.
        progress : callable or None
            Called with the number of rows added since the last call.

        Raises
        ------
        InvalidVector, InvalidId, InvalidPayload
        ItemExists
            The mode is "insert".
        VersionConflict
            An item does not have the version ``if_version``.
        """
        names = payloads if is_frame(data) and is_names(payloads) else None
        text = texts if isinstance(texts, str) and is_frame(data) else None
        if text is None:
            require_one(data=data, texts=texts)
            text = None if self.config.text is None else "text"

        def read_rows(data: Any, texts: Any, ids: Any, payloads: Any, expires: Any) -> Items:
            if data is not None:
                more = id_start, text, self.config.dim
                items = items_of(data, ids, payloads if names is None else names, *more)
            else:
                items = items_of_texts(texts, ids, payloads, id_start)
            if keep_payloads and len(items) and items.ids is None:
                expected = "ids, or id_start, which say whose payloads are kept"
                got, at = "rows without ids", ("keep_payloads",)
                raise InvalidParameter(expected=expected, got=got, loc=at)
            return items if expires is None else with_expiries(items, expires)

        def read() -> tuple[Items, Mapping[int, InvalidInput]]:
            columns = data, texts, ids, payloads if names is None else None, expires
            items, numbers, bad = usable(read_rows, *columns, skips=on_error == "skip")
            if numbers is not None and isinstance(items.ids, range):  # from id_start on
                items = replace(items, ids=[str(items.ids.start + row) for row in numbers])
            items = items if if_version is None else with_versions(items, if_version)
            return replace(items, numbers=numbers), bad

        how = put_mode(mode, min_score, recall)
        require_word("on_error", on_error, OnError)
        if if_version is not None:
            _require_plain(mode, on_error, keep_payloads, progress)
            return self._do(lambda place: place.put(lambda: read()[0], how))
        return self._do(
            lambda place: place.add(read, how, on_error, progress, keep_payloads=keep_payloads)
        )

    def query(
        self,
        vector: Any = None,
        *,
        id: str | int | None = None,  # the API's word
        text: str | None = None,
        limit: int = 10,
        offset: int = 0,
        group_by: str | None = None,
        group_size: int = 1,
        recall: float = 0.9,
        min_score: float = 0.0,
        where: Mapping[str, Any] | None = None,
        guarantee: Guarantee = "measured",
        backend: str | None = None,
        explain: bool = False,
        score: ScoreKind = "gmm",
        distance: bool = False,
    ) -> Hits:
        """Return the most similar items.

        Parameters
        ----------
        vector : (dim,) array, sequence of numbers, dict, or sparse row
        id : str, int or None
            Search around this stored item instead, which is left out.
        text : str or None
            Search for this text instead, in a collection of texts.
        offset : int
            Number of hits of the ranking to skip. Pages of one ``limit`` neither overlap nor leave
            gaps.
        group_by : str or None
            Payload key: of the items that share a value there, only the best ``group_size`` are
            hits, and ``limit`` counts such groups. Items without a value, or with several, are left
            out.
        recall : float
            Expected share of the true hits, in (0, 1]; 1 is an exact scan.
        where : dict or None
            Condition on payloads: a filter of the API, or values by key: ``{"label": 3}``,
            ``{"label": [3, 5]}``, ``{"price": {"gte": 5, "lt": 9}}``.
        guarantee : {"measured", "proven"}
        explain : bool
            Whether the hits have an ``explanation`` of the query's cost.
        score : {"gmm", "bray_curtis", "containment"}
            Kind of score, also of ``min_score``: the GMM J; 2 J / (1 + J), in the same order; or Σ
            min / Σ of the query, which scans all items.
        distance : bool
            Whether hits have 1 - score in its place; ``min_score`` stays a score.

        Raises
        ------
        InvalidVector, InvalidParameter, InvalidFilter, ItemNotFound, BackendNotFound
        """
        asked = _checked(
            **{"limit": limit, "offset": offset, "group_size": group_size, "recall": recall},
            **{"min_score": min_score, "explain": explain, "distance": distance},
            **present(group_by=group_by, backend=backend),
        )
        distance = asked.pop("distance")
        asked |= {"guarantee": guarantee} | present(
            score=_said(score), id=id, text=text, filter=filter_of(where)
        )
        return self._do(lambda place: place.query(vector, asked, distance=distance))

    def query_many(
        self,
        vectors: Any = None,
        *,
        texts: Any = None,
        limit: int = 10,
        recall: float = 0.9,
        min_score: float = 0.0,
        where: Mapping[str, Any] | None = None,
        guarantee: Guarantee = "measured",
        backend: str | None = None,
        on_error: OnError = "stop",
        with_payload: bool = False,
        score: ScoreKind = "gmm",
        distance: bool = False,
    ) -> ManyHits:
        """Return the most similar items of each vector or text, as arrays; see `query` and `add`.

        With ``on_error="skip"`` an invalid vector has no hits, and is listed in ``rejected`` of the
        result. With ``with_payload=True`` the result has ``payloads``.
        """
        require_one(vectors=vectors, texts=texts)
        require_word("on_error", on_error, OnError)
        what: tuple[Callable[..., ix.InputVectors], Any] = (rows_of_texts, texts)
        if texts is None:
            what = partial(rows_of, dim=self.config.dim), vectors
        read = partial(usable, *what, skips=on_error == "skip")
        asked = _checked(
            limit=limit, recall=recall, min_score=min_score, **present(backend=backend)
        )
        asked |= {"guarantee": guarantee} | present(score=_said(score), filter=filter_of(where))
        shown = _checked(with_payload=with_payload, distance=distance)
        return self._do(lambda place: place.query_many(read, asked, on_error, **shown))

    def get(self, id: str | int) -> Item:
        """Return an item.

        Raises
        ------
        ItemNotFound
        """
        return self._do(lambda place: place.get(str(id)))

    def get_many(self, ids: str | int | Iterable[str], *, with_vector: bool = True) -> list[Item]:
        """Return the items with these ids, in their order; unknown ids are ignored."""
        texts = texts_of(ids)
        return self._do(lambda place: place.get_many(texts, with_vector))

    def delete(
        self,
        ids: str | int | Iterable[str] | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        if_version: int | None = None,
    ) -> Count:
        """Delete items by their ids, or all that match a filter; return how many were deleted.

        A server is sent 100,000 ids at a time.

        Parameters
        ----------
        if_version : int or None
            Delete the one item of ``ids`` only if it has this version.

        Raises
        ------
        VersionConflict, InvalidFilter, InvalidParameter
        """
        texts = None if ids is None else texts_of(ids)
        version, condition = _version_of(texts, if_version), filter_of(where)
        return self._do(lambda place: place.delete(texts, condition, version))

    def set_payload(
        self,
        ids: str | int | Iterable[str] | None = None,
        *,
        payload: Mapping[str, Any] | None,
        merge: bool = True,
        where: Mapping[str, Any] | None = None,
        if_version: int | None = None,
    ) -> Count:
        """Change payloads of items, by their ids or by a filter, without sending vectors.

        Items keep their places in pages. Return the number of items changed. A server is sent
        100,000 ids at a time.

        Parameters
        ----------
        payload : dict or None
            None, with ``merge=False``, removes payloads.
        merge : bool
            Whether its top-level keys replace those of a payload, and other keys stay. A value that
            is None is stored as null.
        if_version : int or None
            Change the one item of ``ids`` only if it has this version.

        Raises
        ------
        InvalidPayload, InvalidParameter, InvalidFilter, VersionConflict
        """
        texts = None if ids is None else texts_of(ids)
        new = new_payload(payload)
        version = _version_of(texts, if_version)
        asked, condition = _checked(merge=merge), filter_of(where)
        return self._do(
            lambda place: place.set_payload(texts, condition, new, asked["merge"], version)
        )

    def pairs(
        self,
        *,
        min_score: float,
        limit: int | None = None,
        recall: float = 0.9,
        score: ScoreKind = "gmm",
    ) -> list[Pair]:
        """Return the pairs with at least ``min_score``, most similar first; see `query`."""
        asked = _checked(min_score=min_score, recall=recall, **present(limit=limit))
        asked |= present(score=_said(score))
        return self._do(lambda place: place.pairs(asked))

    def groups(
        self,
        *,
        min_score: float,
        recall: float = 0.9,
        mode: GroupMode = "components",
        keep: str = "first",
        where: Mapping[str, Any] | None = None,
        score: ScoreKind = "gmm",
    ) -> FoundGroups:
        """Return groups of near-duplicates, largest first, as a list of `Group`.

        Parameters
        ----------
        min_score : float
            Minimum exact score of a pair that joins two items.
        recall : float
            Expected share of these pairs that is found; equal items always are, and 1 finds all.
        mode : {"components", "leaders"}
            Everything that a chain of pairs connects; or groups whose members are all paired with
            the representative.
        keep : str
            The representative of a group: the item stored "first"; the "longest", whose numbers
            have the greatest sum; or the one with the greatest value under this payload key.
        where : dict, optional
            A filter, as in `query`.
        score : {"gmm", "bray_curtis", "containment"}
            Kind of the scores, and of ``min_score``; containment is that of the smaller of two.

        Raises
        ------
        InvalidParameter, InvalidFilter
        """
        asked = _checked(min_score=min_score, recall=recall, keep=keep) | {"mode": mode}
        asked |= present(filter=filter_of(where), score=_said(score))
        return self._do(lambda place: place.groups(asked))

    def join(
        self,
        data: Any = None,
        *,
        texts: Any = None,
        ids: Any = None,
        min_score: float | None = None,
        limit: int | None = None,
        recall: float = 0.9,
        where: Mapping[str, Any] | None = None,
        after: int | str | None = None,
        score: ScoreKind = "gmm",
        distance: bool = False,
    ) -> Joined:
        """Return for each vector all items above ``min_score``, or the best ``limit``.

        Parameters
        ----------
        data : as in `add`, or another collection of the same server, or of this process
        texts : sequence of str
            Instead of ``data``, in a collection of texts.
        ids : sequence, str or None
            Ids of the vectors, as in `add`.
        min_score : float, optional
            Minimum score of a hit; optional with a limit.
        limit : int, optional
            Maximum number of hits per vector.
        recall : float
            Expected share of these hits that is found; 1 finds all.
        where : dict, optional
            Condition on the payloads of hits, as in `query`. A server takes at most 60,000 bytes
            of it for vectors.
        after : int or str, optional
            Only vectors after this row of ``data``, counted from 0, or items of the other
            collection stored after this id.
        score : {"gmm", "bray_curtis", "containment"}
            Kind of the scores, and of ``min_score``; see `query`.
        distance : bool
            Whether hits have 1 - score in its place; ``min_score`` stays a score.

        Raises
        ------
        InvalidVector, InvalidParameter, InvalidFilter
        ItemNotFound
            The other collection has no item ``after``.
        """
        asked = _checked(recall=recall, **present(min_score=min_score, limit=limit))
        distance = _checked(distance=distance)["distance"]
        asked |= present(after=_row_or_id(after), score=_said(score))
        require_one(data=data, texts=texts)
        asked |= present(filter=filter_of(where))
        other = getattr(data, "place", None)
        if isinstance(other, Place):
            _require_same_place(self.place, other)
            return self._do(lambda place: place.join_collection(other, asked, distance=distance))
        row = asked.get("after", 0)
        if isinstance(row, str) or row < 0:
            expected = "the number of a row, at least 0"
            raise InvalidParameter(expected=expected, got=repr(after), loc=("after",))
        read = partial(items_of, data, ids)
        if texts is not None:
            read = partial(items_of_texts, texts, ids)
        return self._do(lambda place: place.join(read, asked, distance=distance))

    def explain(self, a: Any, b: Any, *, limit: int = SHARES) -> Explained:
        """Return how much each coordinate contributes to the similarity of two items, or vectors.

        Parameters
        ----------
        a, b : str, int, vector or {"text": str}
            A string or an integer is the id of an item. Coordinates of texts have their tokens as
            names.
        limit : int
            Maximum number of coordinates listed, 1 to 4096; all others are summed.

        Raises
        ------
        ItemNotFound, InvalidVector, InvalidParameter
        """
        asked = _checked(limit=limit)
        return self._do(lambda place: place.explain(a, b, **asked))

    def map(
        self,
        *,
        sample: int = 5000,
        landmarks: int = 256,
        seed: int = 0,
        where: Mapping[str, Any] | None = None,
        also: Iterable[Any] = (),
        key: str | None = None,
        neighbours: bool = True,
        places: Literal["axes", "islands", "cached"] = "axes",
    ) -> ItemMap:
        """Place a sample of items, and others, in a plane, with their neighbours.

        Parameters
        ----------
        sample, landmarks : int
            Maximum number of items, up to 20,000, and those of them from which the axes are
            learned.
        seed : int
            Seed of the choice of both.
        where : dict or None
            Condition on payloads of the sample, as in `query`.
        also : iterable of str, int, vector or {"text": str}
            Ids, and vectors or texts, to place as well, with neighbours.
        key : str or None
            Payload key whose values are returned.
        neighbours : bool
            Whether to find the sample's neighbours: most of the time of a large map.
        places : {"axes", "islands", "cached"}
            Places on two axes; or rearranged by the neighbours, which shows islands; or islands if
            the same sample of the same items was arranged before, else axes.

        Raises
        ------
        ItemNotFound, InvalidVector, InvalidParameter, InvalidFilter
        """
        given = {"sample": sample, "landmarks": landmarks, "seed": seed, "neighbours": neighbours}
        asked = _checked(**given, **present(key=key)) | {"places": places}
        asked |= present(filter=filter_of(where))
        others = _listed(also, lambda _: True, "a list of ids and vectors", "also")
        return self._do(lambda place: place.map(asked, others))

    def profile(self, *, sample: int = 1000, seed: int = 0) -> dict[str, Any]:
        """Return histograms of similarities and non-zeros, S-curves and bucket sizes.

        Parameters
        ----------
        sample : int
            Maximum number of items in the sample, up to 10,000.
        seed : int
            Seed of their choice.

        Returns
        -------
        dict
            As the API shows it.

        Raises
        ------
        InvalidParameter
        """
        asked = _checked(sample=sample, seed=seed)
        return self._do(lambda place: place.profile(asked))

    def compare(
        self,
        queries: Any = None,
        *,
        sample: int = 100,
        limit: int = 10,
        recall: float = 0.9,
        backends: list[str] | None = None,
        seed: int = 0,
    ) -> Compared:
        """Return the recall and cost of each backend.

        Parameters
        ----------
        queries : vectors, list of {"text": str}, or None
            None: ``sample`` stored items.
        backends : list of str or None
            Names; None for all.
        seed : int
            Of the choice of the sample.
        """
        given = {"limit": limit, "recall": recall, "seed": seed}
        asked = _checked(**given, **({"sample": sample} if queries is None else {}))
        if backends is not None:
            expected = "a list of names, at least one"
            asked["backends"] = _listed(backends, _is_text, expected, "backends", least=1)
        return self._do(lambda place: place.compare(asked, queries))

    def page(
        self, cursor: str | None = None, *, limit: int = 1000, with_vector: bool = True
    ) -> tuple[list[Item], str | None]:
        """Return a page of items in stored order, and the cursor of the next page."""
        asked = _checked(limit=limit, **present(cursor=cursor))
        where = asked.get("cursor"), asked["limit"], with_vector
        return self._do(lambda place: place.page(*where))

    def find(self, text: str, *, limit: int = 20) -> FoundItems:
        """Return the items with a text in their ids or payloads, without vectors.

        First those whose ids begin with it, then those whose ids or payloads contain it, ignoring
        case; both in stored order. A payload is searched as JSON text.

        Raises
        ------
        InvalidParameter
            The text is empty, or the limit is below 1.
        """
        asked = _checked(text=text, limit=limit)
        return self._do(lambda place: place.find(**asked))

    def names(
        self, prefix: str = "", *, limit: int = 20, indices: Iterable[int] | None = None
    ) -> dict[int, str]:
        """Return names of coordinates by coordinate.

        Parameters
        ----------
        prefix : str
            Only names with this prefix.
        limit : int
            Maximum number of names, in the order of coordinates.
        indices : iterable of int, or None
            The names of these coordinates instead; coordinates without names are left out.
        """
        asked = _checked(prefix=prefix, limit=limit)
        places = None
        if indices is not None:
            expected = "a list of coordinates, whole numbers from 0 on"
            places = [*map(int, _listed(indices, _is_place, expected, "indices"))]
        return self._do(lambda place: place.names(**asked, indices=places))

    def set_names(self, names: Iterable[str], *, replace: bool = True) -> int:
        """Set the names of the first coordinates of a fixed ``dim``; return how many have one.

        In an open space, names come with the added items.

        Parameters
        ----------
        names : iterable of str
            At most ``dim``, in order; an empty list removes all names.
        replace : bool
            False keeps existing names, also those just set by another client.
        """
        given = _listed(names, _is_text, "a list of strings", "names")
        return self._do(lambda place: place.set_names(given, replace=replace))

    def fit(self, weights: Iterable[float] | WeightKind | None = None) -> dict[str, Any]:
        """Learn weights of coordinates from the items, or set them.

        Return when all items are encoded with them. Reads and writes continue meanwhile, with the
        old weights. Vectors are returned as they were sent.

        Parameters
        ----------
        weights : {"idf", "standard", "robust", "max"}, iterable of float or None
            The kind to learn, or a number above 0 for each coordinate; None learns the last
            requested kind again.

        Returns
        -------
        dict
            ``kind``, ``version``, ``learned``, ``items`` and ``coordinates``, as the API shows it.

        Raises
        ------
        InvalidParameter
            There are no items; the weights are invalid; they make an item all zeros.
        """
        asked: tuple[float, ...] | WeightKind | None = None
        if weights is not None:
            asked = weights if isinstance(weights, str) else _numbers(weights, "weights")
        return self._do(lambda place: place.fit(asked))

    def count(self, *, where: Mapping[str, Any] | None = None) -> Count:
        """Return the number of items, or of those that match a filter as in `query`.

        If none matches, ``hints`` of the number say which keys and values no item has.
        """
        condition = filter_of(where)
        return self._do(lambda place: place.count(condition))

    def describe(self) -> dict[str, Any]:
        """Return a full description of the collection, as the API shows it."""
        return self._do(lambda place: place.describe())

    def set_metadata(self, metadata: Mapping[str, Any] | None) -> None:
        """Replace the metadata of the collection, which `describe` shows; None removes it.

        Parameters
        ----------
        metadata : dict or None
            Any JSON object; its ``view`` says how the page displays items. A ``fingerprint``
            recorded there by `gcws-search load` stays, unless another is given.
        """
        return self._do(lambda place: place.set_metadata(metadata))

    def curve(self, *, limit: int = 10) -> dict[str, Any]:
        """Return the calibrated cost of each recall for a limit: candidates and time of a query."""
        asked = _checked(limit=limit)
        return self._do(lambda place: place.curve(asked))

    def audits(self) -> dict[str, Any]:
        """Return requested recall beside recall found, of queries audited by a server.

        A collection of this process makes no audits.
        """
        return self._do(lambda place: place.audits())

    def loads(self) -> list[dict[str, Any]]:
        """Return the running and the last loads, latest first, as the API shows them.

        A collection of this process has none, since `add` is not a load there.
        """
        return self._do(lambda place: place.loads())

    def attach(
        self, kind: str, *, name: str | None = None, params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Attach a comparison backend built from the stored vectors, and return its description.

        Parameters
        ----------
        kind : str
            Such as "nrff" or "random_binning".
        name : str or None
            Name for queries; None: its kind, with a number if that is taken.
        params : dict or None
            Parameters of its kind, as the API has them.

        Raises
        ------
        InvalidParameter, BackendExists
        """
        checked = backend_params(kind, {} if params is None else params)
        called = _checked(**present(name=name)).get("name")
        return self._do(lambda place: place.attach(checked, called))

    def detach(self, name: str) -> None:
        """Drop a comparison backend.

        Raises
        ------
        BackendNotFound, InvalidParameter
        """
        asked = _checked(name=name)
        return self._do(lambda place: place.detach(**asked))

    def export(self, path: str | Path, *, progress: Progress | None = None) -> int:
        """Write all items to a file that `gcws-search load` can read; return their number.

        Parameters
        ----------
        path : str or Path
            Ends in ``.ndjson`` or ``.parquet``; the file appears when it is complete.

        Raises
        ------
        InvalidParameter
            The file's name has another ending.
        OSError
        """
        return run(AsyncCollection(self.place, call_in_place).export(path, progress=progress))

    def __repr__(self) -> str:
        return f"Collection({self.name!r}, dim={self.config.dim})"

    def __len__(self) -> int:
        """Return the number of items."""
        return self.count()

    def __contains__(self, id: object) -> bool:
        """Return whether an item has this id."""
        try:
            self.get(str(id))
        except ItemNotFound:
            return False
        return True

    def __bool__(self) -> bool:
        """Return True, also while there are no items."""
        return True

    def __iter__(self) -> Iterator[Item]:
        """Yield every item once, in the order in which they were put, whatever is put meanwhile."""
        cursor: str | None = None
        seen = SeenItems()
        while True:
            items, cursor = self.page(cursor)
            yield from seen.unseen(items)
            if cursor is None:
                return

    def close(self) -> None:
        """Close the file; a collection of a server has nothing to close."""
        if isinstance(self.place, EmbeddedCollection):
            self.place.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _checked(**given: Any) -> dict[str, Any]:
    """Return options other than None as plain values, equal for a file and for a server.

    Raises InvalidParameter for a wrong type or value.
    """
    found: dict[str, Any] = {}
    for name, each in given.items():
        kind, expected, plain = _KINDS[name]
        bounds = _BOUNDS.get(name)
        value = each.item() if isinstance(each, np.generic) else each
        is_kind = type(value) is plain or (isinstance(value, kind) and not isinstance(value, bool))
        is_blank = is_kind and plain is str and not value and name != "prefix"
        if is_kind and not is_blank and (bounds is None or bounds[0] <= value <= bounds[1]):
            found[name] = plain(value)
            continue
        if bounds is not None and plain is int:
            least, most = bounds
            expected = f"at most {most}" if is_kind and value > most else f"{expected} {least}"
        if is_blank:
            expected = "at least 1 character"
        raise InvalidParameter(expected=expected, got=f"{value!r:.60}", loc=(name,))
    return found


def _listed(
    values: Any, is_one: Callable[[Any], bool], expected: str, name: str, *, least: int = 0
) -> list[Any]:
    """Return the entries of a list; InvalidParameter for another type of list or entry."""
    found = [*values] if isinstance(values, Iterable) and not isinstance(values, str) else None
    if found is None or len(found) < least or not all(map(is_one, found)):
        raise InvalidParameter(expected=expected, got=f"{values!r:.60}", loc=(name,))
    return found


def _is_text(each: Any) -> bool:
    return isinstance(each, str)


def _is_place(each: Any) -> bool:
    return isinstance(each, Integral) and int(each) >= 0


def _row_or_id(after: object) -> int | str | None:
    if after is None or isinstance(after, str):
        return after
    if not isinstance(after, Integral) or isinstance(after, bool):
        expected = "the number of a row, or an id"
        raise InvalidParameter(expected=expected, got=f"{after!r:.60}", loc=("after",))
    return int(after)


def _said(score: ScoreKind) -> ScoreKind | None:
    """Return a kind of scores as the API expects it: None for the default."""
    kind = check_score(score)
    return None if kind == "gmm" else kind


def _version_of(ids: list[str] | None, if_version: int | None) -> int | None:
    """Return the version that the one item of ``ids`` must have, None for any.

    Raises InvalidParameter for a version without the id of one item.
    """
    asked = _checked(**present(if_version=if_version)).get("if_version")
    if asked is not None and (ids is None or len(ids) != 1):
        got = "no id" if ids is None else f"{len(ids)} ids"
        raise InvalidParameter(expected="one id", got=got, loc=("if_version",))
    return asked


def _require_plain(
    mode: PutMode, on_error: OnError, keep_payloads: bool, progress: Progress | None
) -> None:
    """Raise InvalidParameter if items with given versions come with options of a load."""
    given = mode == "unless_similar", on_error != "stop", keep_payloads, progress is not None
    words = "mode='unless_similar'", "on_error", "keep_payloads", "progress"
    for word, is_given in zip(words, given, strict=True):
        if is_given:
            raise InvalidParameter(
                expected=f"no {word} with it: all items are stored, or none",
                got="both",
                loc=("if_version",),
            )


async def call_in_place(function: Callable[[], R]) -> R:
    """Call a function."""
    return function()


async def call_on_thread(function: Callable[[], R]) -> R:
    """Call a function on a thread."""
    import asyncio  # noqa: PLC0415  # callers that wait need none

    return await asyncio.to_thread(function)


def _awaiting(
    operation: Callable[Concatenate[Collection, P], R],
) -> Callable[Concatenate[AsyncCollection, P], Coroutine[Any, Any, R]]:
    """Return an operation as a coroutine: the same body, with the `_do` of AsyncCollection."""

    @wraps(operation)
    async def method(self: AsyncCollection, *given: P.args, **named: P.kwargs) -> R:
        return await cast("Any", operation)(self, *given, **named)  # type: ignore[no-any-return]

    return cast("Callable[Concatenate[AsyncCollection, P], Coroutine[Any, Any, R]]", method)


def _opening(open_: Callable[P, Collection]) -> Callable[P, Coroutine[Any, Any, AsyncCollection]]:

    @wraps(open_)
    async def function(*given: P.args, **named: P.kwargs) -> AsyncCollection:
        return AsyncCollection((await call_on_thread(partial(open_, *given, **named))).place)

    return function


class AsyncCollection:
    """A collection with the operations of `Collection` as coroutines.

    Requests to a server are sent on the event loop; operations of this process run on a thread.

    Parameters
    ----------
    call : callable
        Calls functions that would block the event loop.
    """

    def __init__(
        self, place: Place, call: Callable[[Callable[[], Any]], Awaitable[Any]] = call_on_thread
    ) -> None:
        self.place = place
        self.name = place.name
        self._call = call

    @property
    def config(self) -> CollectionConfig:
        """Its configuration; see `Collection`."""
        return self.place.config

    async def _do(self, operation: Callable[[Place], R | Coroutine[Any, Any, R]]) -> R:
        asked: Any
        if isinstance(self.place, RemoteCollection):
            asked = operation(self.place)
        else:
            asked = self._call(partial(operation, self.place))
        found: R = await asked
        return found

    open = staticmethod(_opening(Collection.open))
    add = _awaiting(Collection.add)
    query = _awaiting(Collection.query)
    query_many = _awaiting(Collection.query_many)
    get = _awaiting(Collection.get)
    get_many = _awaiting(Collection.get_many)
    delete = _awaiting(Collection.delete)
    set_payload = _awaiting(Collection.set_payload)
    pairs = _awaiting(Collection.pairs)
    groups = _awaiting(Collection.groups)
    join = _awaiting(Collection.join)
    explain = _awaiting(Collection.explain)
    map = _awaiting(Collection.map)
    profile = _awaiting(Collection.profile)
    compare = _awaiting(Collection.compare)
    page = _awaiting(Collection.page)
    find = _awaiting(Collection.find)
    names = _awaiting(Collection.names)
    set_names = _awaiting(Collection.set_names)
    fit = _awaiting(Collection.fit)
    count = _awaiting(Collection.count)
    describe = _awaiting(Collection.describe)
    set_metadata = _awaiting(Collection.set_metadata)
    curve = _awaiting(Collection.curve)
    audits = _awaiting(Collection.audits)
    attach = _awaiting(Collection.attach)
    detach = _awaiting(Collection.detach)
    loads = _awaiting(Collection.loads)

    async def export(self, path: str | Path, *, progress: Progress | None = None) -> int:
        """Write all items to a file; see `Collection.export`."""
        return await export_items(self, str(path), progress, self._call)

    def __repr__(self) -> str:
        return f"AsyncCollection({self.name!r}, dim={self.config.dim})"

    async def __aiter__(self) -> AsyncIterator[Item]:
        cursor: str | None = None
        seen = SeenItems()
        while True:
            items, cursor = await self.page(cursor)
            for item in seen.unseen(items):
                yield item
            if cursor is None:
                return

    async def close(self) -> None:
        """Close the file; a collection of a server has nothing to close."""
        if isinstance(self.place, EmbeddedCollection):
            await self._call(self.place.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
