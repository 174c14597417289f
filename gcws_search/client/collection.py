"""A collection for callers that wait, and one for callers that await."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import wraps
from operator import index
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, Literal, ParamSpec, Self, SupportsIndex, TypeVar, cast

from gcws_search.client.operations import (
    AsyncExchange,
    Exchange,
    Operations,
    Plan,
    Reply,
    Send,
    run,
    run_async,
)
from gcws_search.client.results import Item
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


def _waiting(
    operation: Callable[Concatenate[Any, P], Plan[R]],
) -> Callable[Concatenate[Collection, P], R]:
    """Return an operation as a method that returns when it is done."""

    @wraps(operation)
    def method(self: Collection, *given: P.args, **named: P.kwargs) -> R:
        plan: Plan[R] = getattr(self.operations, operation.__name__)(*given, **named)
        return run(plan, self.exchange)

    return cast("Callable[Concatenate[Collection, P], R]", method)


def _awaiting(
    operation: Callable[Concatenate[Any, P], Plan[R]],
) -> Callable[Concatenate[AsyncCollection, P], Awaitable[R]]:
    """Return an operation as a method to be awaited."""

    @wraps(operation)
    async def method(self: AsyncCollection, *given: P.args, **named: P.kwargs) -> R:
        plan: Plan[R] = getattr(self.operations, operation.__name__)(*given, **named)
        return await run_async(plan, self.exchange)

    return cast("Callable[Concatenate[AsyncCollection, P], Awaitable[R]]", method)


def _no_exchange(request: Send) -> Reply:
    raise AssertionError(f"{request.path}: an embedded collection sends nothing")


async def _no_async_exchange(request: Send) -> Reply:
    return _no_exchange(request)


class _Described:
    """What is known of a collection without asking for it."""

    operations: Operations

    @property
    def name(self) -> str:
        """Name of the collection."""
        return self.operations.name

    @property
    def config(self) -> CollectionConfig:
        """What the collection was created with."""
        return self.operations.config

    def __repr__(self) -> str:
        """Return name and dim in one line."""
        return f"{type(self).__name__}({self.name!r}, dim={self.config.dim})"


class Collection(_Described):
    """A collection: of a server (`connect`), of a file, or in memory (`Collection.open`).

    Parameters
    ----------
    operations : Operations
    exchange : callable
        Sends requests.
    close : callable
        Is called by `close`.
    """

    def __init__(
        self,
        operations: Operations,
        exchange: Exchange = _no_exchange,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.operations = operations
        self.exchange = exchange
        self._close = close

    @classmethod
    def open(
        cls,
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
        config = None if dim is UNSET else config_of(dim, transform, backend, storage)
        operations, close = _opened(path, config, durability, threads)
        return cls(operations, close=close)

    add = _waiting(Operations.add)
    query = _waiting(Operations.query)
    query_many = _waiting(Operations.query_many)
    get = _waiting(Operations.get)
    delete = _waiting(Operations.delete)
    pairs = _waiting(Operations.pairs)
    explain = _waiting(Operations.explain)
    map = _waiting(Operations.map)
    profile = _waiting(Operations.profile)
    compare = _waiting(Operations.compare)
    page = _waiting(Operations.page)
    export = _waiting(Operations.export)
    names = _waiting(Operations.names)
    set_names = _waiting(Operations.set_names)
    count = _waiting(Operations.count)
    describe = _waiting(Operations.describe)

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

    def close(self) -> None:
        """Close the file; a collection of a server has nothing to close."""
        self._close()

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


class AsyncCollection(_Described):
    """A collection whose operations are awaited; otherwise as `Collection`.

    Parameters
    ----------
    operations : Operations
    exchange : callable
        Sends requests.
    close : callable
        Is called by `close`, on another thread.
    """

    def __init__(
        self,
        operations: Operations,
        exchange: AsyncExchange = _no_async_exchange,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.operations = operations
        self.exchange = exchange
        self._close = close

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
        import asyncio  # noqa: PLC0415  # waiting callers need none

        config = None if dim is UNSET else config_of(dim, transform, backend, storage)
        operations, close = await asyncio.to_thread(_opened, path, config, durability, threads)
        return cls(operations, close=close)

    add = _awaiting(Operations.add)
    query = _awaiting(Operations.query)
    query_many = _awaiting(Operations.query_many)
    get = _awaiting(Operations.get)
    delete = _awaiting(Operations.delete)
    pairs = _awaiting(Operations.pairs)
    explain = _awaiting(Operations.explain)
    map = _awaiting(Operations.map)
    profile = _awaiting(Operations.profile)
    compare = _awaiting(Operations.compare)
    page = _awaiting(Operations.page)
    export = _awaiting(Operations.export)
    names = _awaiting(Operations.names)
    set_names = _awaiting(Operations.set_names)
    count = _awaiting(Operations.count)
    describe = _awaiting(Operations.describe)

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

        await asyncio.to_thread(self._close)

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


def _opened(
    path: str | Path,
    config: CollectionConfig | None,
    durability: Literal["full", "normal"],
    threads: int | None,
) -> tuple[Operations, Callable[[], None]]:
    from gcws_search.client.embedded.files import opened  # noqa: PLC0415

    operations = opened(path, config, durability=durability, threads=threads)
    return operations, operations.close
