"""A collection for callers that wait, and one for callers that await."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from functools import wraps
from operator import index
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, Literal, ParamSpec, Self, SupportsIndex, TypeVar, cast

from gcws_search.client.export import export_items
from gcws_search.client.results import Added, Compared, Hits, Item, ManyHits, Pair
from gcws_search.client.retries import run
from gcws_search.index.contracts.analysis import SHARES, Explained, ItemMap
from gcws_search.index.contracts.errors import InvalidParameter, ItemNotFound
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    GcwsParams,
    Storage,
    Transform,
)

P = ParamSpec("P")
R = TypeVar("R")
Mode = Literal["upsert", "insert"]
OnError = Literal["stop", "skip"]
Guarantee = Literal["measured", "proven"]
Progress = Callable[[int], None]
"""Called with the number of rows handed over since the last call."""

UNSET: Final[Any] = object()
"""Stands for a ``dim`` that is not given; None is an open space."""


def config_of(
    dim: int | None,
    transform: Transform | dict[str, Any] | None = None,
    backend: BackendParams | dict[str, Any] | None = None,
    storage: Storage = "memory",
) -> CollectionConfig:
    """Return a configuration, its parts given as objects or as the API has them.

    Raises
    ------
    InvalidParameter
    """
    from gcws_search.index import backend_params  # noqa: PLC0415

    if isinstance(transform, dict):
        center = transform.get("center")
        parts = transform | ({} if center is None else {"center": tuple(map(float, center))})
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
    return CollectionConfig(
        dim=None if dim is None else _whole(dim),
        transform=transform or Transform(),
        backend=backend or GcwsParams(),
        storage=storage,
    )


def _whole(dim: SupportsIndex) -> int:
    try:
        return index(dim)
    except TypeError:
        expected = "a whole number, or None for an open space"
        raise InvalidParameter(expected=expected, got=repr(dim), loc=("dim",)) from None


def _require_known(given: Iterable[str], known: Iterable[str], name: str) -> None:
    for word in given:
        if word not in known:
            raise InvalidParameter(expected=", ".join(known), got=repr(word), loc=(name,))


class Collection(ABC):
    """A collection: of a server (`connect`), of a file, or in memory (`Collection.open`).

    `client.remote` has those of a server, and `client.embedded` those of this process.

    Attributes
    ----------
    config : CollectionConfig
        What it was created with.
    """

    name: str
    config: CollectionConfig

    @staticmethod
    def open(
        path: str | Path,
        *,
        dim: int | None = UNSET,
        transform: Transform | dict[str, Any] | None = None,
        backend: BackendParams | dict[str, Any] | None = None,
        storage: Storage = "memory",
        durability: Literal["full", "normal"] = "full",
        threads: int | None = None,
    ) -> Collection:
        """Open a collection's file without a server; it is created where ``dim`` is given.

        Parameters
        ----------
        path : str or Path
            Ends in ``.sqlite``; the file that a server would have of a collection of that name.
            ":memory:" is an empty collection that is gone when it is closed.
        dim : int or None
            Number of coordinates; None for an open space of sparse vectors. May be left out where
            the file exists.
        transform, backend : objects, or dicts as in the API
        storage : {"memory", "mapped"}
            Where vectors lie; see `CollectionConfig`.
        durability : {"full", "normal"}
            Whether a write survives a power cut, or the end of the process only.
        threads : int or None
            None takes as many as the process may use. Collections of one folder share the threads
            and durability that the first of them was opened with.

        Raises
        ------
        DirectoryLocked
            A server or another process has the folder; the error names it.
        CollectionNotFound, CollectionExists, InvalidParameter, DamagedFile
        """
        from gcws_search.client.embedded import open_file  # noqa: PLC0415

        config = None if dim is UNSET else config_of(dim, transform, backend, storage)
        return open_file(path, config, durability=durability, threads=threads)

    @abstractmethod
    def add(
        self,
        data: Any,
        *,
        ids: Any = None,
        payloads: Any = None,
        mode: Mode = "upsert",
        on_error: OnError = "stop",
        id_start: int | None = None,
        keep_payloads: bool = False,
        progress: Progress | None = None,
    ) -> Added:
        """Store items, a batch at a time; what was stored before an error stays.

        Parameters
        ----------
        data : array, sparse matrix, frame, sequence of vectors, or iterable of items
            An (n, dim) array of any type and order; anything of scipy's sparse; a frame of pandas,
            polars or Arrow; lists of numbers; dicts of names or coordinates and their values.
        ids : sequence, str or None
            A string names the column of a frame; "index" is the index of a frame of pandas. None
            takes the frame's column ``id``, or its index where that has a name or holds text. Rows
            without ids are given the next numbers not taken, from 0 on: see ``ids`` of the result.
        payloads : dict of columns, sequence of dicts, names of columns, or None
            ``{"label": y}`` gives row i the payload ``{"label": y[i]}``.
        mode : {"upsert", "insert"}
            "upsert" replaces items that exist; "insert" refuses them.
        on_error : {"stop", "skip"}
            "skip" leaves out rows that cannot be stored, and names them in the result.
        id_start : int or None
            Number rows without ids from here on instead: items of these numbers are replaced.
        keep_payloads : bool
            Whether an item that exists keeps its payload where it comes without one; takes ids.
        progress : callable or None
            Called with the number of rows handed over since the last call.

        Raises
        ------
        InvalidVector, InvalidId, InvalidPayload
        ItemExists
            The mode is "insert".
        """

    @abstractmethod
    def query(
        self,
        vector: Any = None,
        *,
        id: str | int | None = None,  # the API's word
        limit: int = 10,
        recall: float = 0.9,
        min_score: float = 0.0,
        where: Mapping[str, Any] | None = None,
        guarantee: Guarantee = "measured",
        backend: str | None = None,
        explain: bool = False,
    ) -> Hits:
        """Return the most similar items.

        Parameters
        ----------
        vector : (dim,) array, sequence of numbers, dict, or sparse row
        id : str, int or None
            Search around this stored item instead, which is left out.
        recall : float
            Expected share of the true hits, in (0, 1]; 1 is an exact scan.
        where : dict or None
            Condition on payloads: a filter of the API, or values by key: ``{"label": 3}``,
            ``{"label": [3, 5]}``, ``{"price": {"gte": 5, "lt": 9}}``.
        guarantee : {"measured", "proven"}
        explain : bool
            Whether the hits have an ``explanation`` of what the query cost.

        Raises
        ------
        InvalidVector, InvalidParameter, InvalidFilter, ItemNotFound, BackendNotFound
        """

    @abstractmethod
    def query_many(
        self,
        vectors: Any,
        *,
        limit: int = 10,
        recall: float = 0.9,
        min_score: float = 0.0,
        where: Mapping[str, Any] | None = None,
        guarantee: Guarantee = "measured",
        backend: str | None = None,
        on_error: OnError = "stop",
    ) -> ManyHits:
        """Return the most similar items of each vector, as arrays; see `query` and `add`.

        With ``on_error="skip"`` a vector that cannot be searched for has no hits, and is named in
        ``rejected`` of the result.
        """

    @abstractmethod
    def get(self, id: str | int) -> Item:
        """Return an item.

        Raises
        ------
        ItemNotFound
        """

    @abstractmethod
    def delete(
        self,
        ids: str | int | Iterable[str] | None = None,
        *,
        where: Mapping[str, Any] | None = None,
    ) -> int:
        """Delete items by their ids, or all that pass a filter; return how many there were."""

    @abstractmethod
    def pairs(
        self, *, min_score: float, limit: int | None = None, recall: float = 0.9
    ) -> list[Pair]:
        """Return the pairs of items at least so similar, the most similar first."""

    @abstractmethod
    def explain(self, a: Any, b: Any, *, limit: int = SHARES) -> Explained:
        """Return what each coordinate adds to the similarity of two items, or vectors.

        Parameters
        ----------
        a, b : str, int or vector
            A string, or an integer, is the id of an item.
        limit : int
            How many coordinates are listed, 1 to 4096; all others are summed.

        Raises
        ------
        ItemNotFound, InvalidVector, InvalidParameter
        """

    @abstractmethod
    def map(
        self,
        *,
        sample: int = 5000,
        landmarks: int = 256,
        seed: int = 0,
        where: Mapping[str, Any] | None = None,
        also: Iterable[Any] = (),
        key: str | None = None,
    ) -> ItemMap:
        """Return places in a plane for a sample of items and others, with their neighbours.

        Parameters
        ----------
        sample, landmarks : int
            Items at most, up to 20,000, and those of them that the axes are learned from.
        seed : int
            Of the choice of both.
        where : dict or None
            Condition on payloads of the sample, as of `query`.
        also : iterable of str, int or vector
            Ids and vectors that are given places and neighbours too.
        key : str or None
            Payload key whose values are returned.

        Raises
        ------
        ItemNotFound, InvalidVector, InvalidParameter, InvalidFilter
        """

    @abstractmethod
    def profile(self, *, sample: int = 1000, seed: int = 0) -> dict[str, Any]:
        """Return histograms of similarities and non-zeros, S-curves and bucket sizes.

        Parameters
        ----------
        sample : int
            Items at most that are looked at, up to 10,000.
        seed : int
            Of their choice.

        Returns
        -------
        dict
            As the API shows it.

        Raises
        ------
        InvalidParameter
        """

    @abstractmethod
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
        """Return what each backend finds of the exact neighbours, and what it costs.

        Parameters
        ----------
        queries : vectors or None
            None takes ``sample`` stored items.
        backends : list of str or None
            Names; None for all.
        seed : int
            Of the choice of the sample.
        """

    @abstractmethod
    def page(
        self, cursor: str | None = None, *, limit: int = 1000, with_vector: bool = True
    ) -> tuple[list[Item], str | None]:
        """Return some items in the order in which they were put, and where the next page starts."""

    @abstractmethod
    def names(
        self, prefix: str = "", *, limit: int = 20, indices: Iterable[int] | None = None
    ) -> dict[int, str]:
        """Return names of coordinates by coordinate.

        Parameters
        ----------
        prefix : str
            Only names that begin so.
        indices : iterable of int, or None
            The names of these coordinates instead; one without a name is left out.
        """

    @abstractmethod
    def set_names(self, names: Iterable[str]) -> int:
        """Give the first coordinates of a fixed ``dim`` their names; return how many.

        In an open space, names come with the items that are added.
        """

    @abstractmethod
    def count(self) -> int:
        """Return the number of items."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return all there is to know of the collection, as the API shows it."""

    def export(self, path: str | Path, *, progress: Progress | None = None) -> int:
        """Write all items to a file that `gcws-search load` reads; return how many.

        Parameters
        ----------
        path : str or Path
            Ends in ``.ndjson`` or ``.parquet``; the file appears when it is whole.

        Raises
        ------
        InvalidParameter
            The file's name says no format.
        OSError
        """
        return run(export_items(_Blocking(self), str(path), progress, _call))

    def __repr__(self) -> str:
        """Return name and dim in one line."""
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
        """Yield every item, in the order in which they were put."""
        cursor: str | None = None
        while True:
            items, cursor = self.page(cursor)
            yield from items
            if cursor is None:
                return

    def close(self) -> None:  # noqa: B027  # a server's has nothing to close
        """Close the file; a collection of a server has nothing to close."""

    def __enter__(self) -> Self:
        """Return the collection."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the collection."""
        self.close()


async def _call(function: Callable[[], R]) -> R:
    return function()


class _Blocking:
    """The operations that `export_items` awaits, done where they are awaited."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self.config = collection.config

    async def names(self, **chosen: Any) -> dict[int, str]:
        return self._collection.names(**chosen)

    async def page(self, cursor: str | None) -> tuple[list[Item], str | None]:
        return self._collection.page(cursor)


def _awaiting(
    operation: Callable[Concatenate[Collection, P], R],
) -> Callable[Concatenate[AsyncCollection, P], Coroutine[Any, Any, R]]:
    """Return an operation as a method to be awaited: on the event loop, or on a thread."""

    @wraps(operation)
    async def method(self: AsyncCollection, *given: P.args, **named: P.kwargs) -> R:
        import asyncio  # noqa: PLC0415  # waiting callers need none

        work = getattr(self.waiting, operation.__name__)
        coroutine = getattr(work, "__wrapped__", None)  # a server's; see `retries.waiting`
        if coroutine is None:
            return await asyncio.to_thread(work, *given, **named)
        return await coroutine(self.waiting, *given, **named)  # type: ignore[no-any-return]

    return cast("Callable[Concatenate[AsyncCollection, P], Coroutine[Any, Any, R]]", method)


class AsyncCollection:
    """A collection whose operations are awaited; otherwise as `Collection`.

    Those of a server are sent on the event loop; those of this process happen on a thread.

    Parameters
    ----------
    waiting : Collection
        Has the operations; of a server, one that `connect_async` returns.
    """

    def __init__(self, waiting: Collection) -> None:
        self.waiting = waiting
        self.name = waiting.name
        self.config = waiting.config

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        dim: int | None = UNSET,
        transform: Transform | dict[str, Any] | None = None,
        backend: BackendParams | dict[str, Any] | None = None,
        storage: Storage = "memory",
        durability: Literal["full", "normal"] = "full",
        threads: int | None = None,
    ) -> AsyncCollection:
        """Open a collection's file without a server; see `Collection.open`."""
        import asyncio  # noqa: PLC0415

        opened = await asyncio.to_thread(
            Collection.open, path, dim=dim, transform=transform, backend=backend, storage=storage,
            durability=durability, threads=threads,
        )  # fmt: skip
        return cls(opened)

    add = _awaiting(Collection.add)
    query = _awaiting(Collection.query)
    query_many = _awaiting(Collection.query_many)
    get = _awaiting(Collection.get)
    delete = _awaiting(Collection.delete)
    pairs = _awaiting(Collection.pairs)
    explain = _awaiting(Collection.explain)
    map = _awaiting(Collection.map)
    profile = _awaiting(Collection.profile)
    compare = _awaiting(Collection.compare)
    page = _awaiting(Collection.page)
    names = _awaiting(Collection.names)
    set_names = _awaiting(Collection.set_names)
    count = _awaiting(Collection.count)
    describe = _awaiting(Collection.describe)

    async def export(self, path: str | Path, *, progress: Progress | None = None) -> int:
        """Write all items to a file; see `Collection.export`."""
        import asyncio  # noqa: PLC0415

        return await export_items(self, str(path), progress, asyncio.to_thread)

    def __repr__(self) -> str:
        """Return name and dim in one line."""
        return f"AsyncCollection({self.name!r}, dim={self.config.dim})"

    async def __aiter__(self) -> AsyncIterator[Item]:
        """Yield every item, in the order in which they were put."""
        cursor: str | None = None
        while True:
            items, cursor = await self.page(cursor)
            for item in items:
                yield item
            if cursor is None:
                return

    async def close(self) -> None:
        """Close the file; a collection of a server has nothing to close."""
        import asyncio  # noqa: PLC0415

        await asyncio.to_thread(self.waiting.close)

    async def __aenter__(self) -> Self:
        """Return the collection."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the collection."""
        await self.close()
