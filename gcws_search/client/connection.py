"""Servers: how requests are sent, and what can be asked besides one collection."""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import orjson

from gcws_search.client.collection import UNSET, AsyncCollection, Collection, config_of
from gcws_search.client.operations import Piece, Plan, Reply, Send, run, run_async
from gcws_search.client.remote import RemoteOperations, path_of
from gcws_search.client.retries import DroppedConnection, RetryPolicy, answered
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    Storage,
    Transform,
)

if TYPE_CHECKING:
    import httpx

_CONNECT_SECONDS = 10.0


def connect(
    url: str,
    api_key: str | None = None,
    *,
    timeout_seconds: float | None = None,
    policy: RetryPolicy | None = None,
) -> Server:
    """Return a server; nothing is sent yet.

    Parameters
    ----------
    url : str
        Such as ``http://localhost:8000``; without a scheme it is of ``http``.
    api_key : str or None
    timeout_seconds : float or None
        How long the server may stay silent; None waits as long as it takes.
    policy : RetryPolicy or None
        How often a request is sent where the server has no room or the connection breaks.
    """
    return Server(url, api_key, timeout_seconds, policy or RetryPolicy())


def connect_async(
    url: str,
    api_key: str | None = None,
    *,
    timeout_seconds: float | None = None,
    policy: RetryPolicy | None = None,
) -> AsyncServer:
    """Return a server whose operations are awaited; see `connect`."""
    return AsyncServer(url, api_key, timeout_seconds, policy or RetryPolicy())


class _Requests:
    """Plans of what can be asked of a server, for both faces."""

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy

    def collection(
        self,
        name: str,
        config: CollectionConfig | None,
    ) -> Plan[RemoteOperations]:
        request = Send("GET", path_of(name))
        if config is not None:
            body = orjson.dumps(config.to_dict())
            request = Send("PUT", path_of(name), body, {"Content-Type": "application/json"})
        reply = yield from answered(request, self.policy, name)
        found = CollectionConfig.from_dict(orjson.loads(reply.content))
        return RemoteOperations(name, found, self.policy)

    def asked(self, method: str, path: str, name: str | None = None) -> Plan[Any]:
        reply = yield from answered(Send(method, path), self.policy, name)
        return orjson.loads(reply.content) if reply.content else None


def _options(url: str, api_key: str | None, timeout_seconds: float | None) -> dict[str, Any]:
    import httpx  # noqa: PLC0415  # takes a third of the time to import this package

    headers = {"User-Agent": "gcws-search"} | ({} if api_key is None else {"X-API-Key": api_key})
    timeout = httpx.Timeout(timeout_seconds, connect=_CONNECT_SECONDS)
    return {"base_url": url, "headers": headers, "timeout": timeout}


class _Address:
    """Where a server is, and how it is asked.

    A forked process has copies of its parent's sockets. If both use one, each may read the answer
    of the other. So a client notes the process that opened it, and no other uses or closes it.
    """

    def __init__(
        self, url: str, api_key: str | None, timeout_seconds: float | None, policy: RetryPolicy
    ) -> None:
        self.url = url if "://" in url else f"http://{url}"
        self._options = api_key, timeout_seconds
        self._requests = _Requests(policy)
        self._has_answered = False

    def __repr__(self) -> str:
        """Return the address in one line."""
        return f"{type(self).__name__}({self.url!r})"


class Server(_Address):
    """A server, asked by callers that wait; made by `connect`."""

    _opened: tuple[int, httpx.Client] | None = None

    def _client(self) -> httpx.Client:
        """Return the client of this process."""
        import httpx  # noqa: PLC0415

        process = os.getpid()
        if self._opened is not None and self._opened[0] == process:
            return self._opened[1]
        client = httpx.Client(**_options(self.url, *self._options))
        self._opened = process, client
        weakref.finalize(self, _close, process, client)  # who forgets to close leaves no socket
        return client

    def exchange(self, request: Send) -> Reply:
        """Send a request, and return the answer.

        Raises
        ------
        DroppedConnection
        """
        import httpx  # noqa: PLC0415

        client = self._client()
        content = request.content() if callable(request.content) else request.content
        try:
            answer = client.request(
                request.method,
                request.path,
                content=content,  # type: ignore[arg-type]  # pieces may be memoryviews
                headers=request.headers,
                params=request.params or None,
            )
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise _dropped(self.url, error, self._has_answered) from error
        finally:
            if isinstance(content, Generator):  # what it reads is closed now, not some time
                content.close()
        self._has_answered = True
        return Reply(answer.status_code, answer.headers, answer.content)

    def _run(self, plan: Plan[Any]) -> Any:
        return run(plan, self.exchange)

    def collection(
        self,
        name: str,
        dim: int | None = UNSET,
        *,
        transform: Transform | dict[str, Any] | None = None,
        backend: BackendParams | dict[str, Any] | None = None,
        storage: Storage = "memory",
    ) -> Collection:
        """Return a collection; it is created where ``dim`` is given and there is none.

        Parameters
        ----------
        name : str
        dim : int or None
            Number of coordinates; None for an open space of sparse vectors.
        transform, backend : objects, or dicts as in the API
        storage : {"memory", "mapped"}
            Where vectors lie; see `CollectionConfig`.

        Raises
        ------
        CollectionNotFound
            There is none, and ``dim`` is not given.
        CollectionExists
            It exists with another configuration.
        NoServer, ServerBusy, AccessRefused, InvalidParameter
        """
        config = None if dim is UNSET else config_of(dim, transform, backend, storage)
        plan = self._requests.collection(name, config)
        return Collection(self._run(plan), self.exchange)

    def collections(self) -> list[dict[str, Any]]:
        """Return name, items, dim, backends and bytes of each collection."""
        found: list[dict[str, Any]] = self._run(self._requests.asked("GET", path_of("")[:-1]))[
            "collections"
        ]
        return found

    def drop(self, name: str) -> None:
        """Drop a collection and its file."""
        self._run(self._requests.asked("DELETE", path_of(name), name))

    def health(self) -> dict[str, Any]:
        """Return status and phase of the server."""
        found: dict[str, Any] = self._run(self._requests.asked("GET", "/healthz"))
        return found

    def close(self) -> None:
        """Close connections; they open again when something is asked."""
        opened, self._opened = self._opened, None
        if opened is not None:
            _close(*opened)

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close connections."""
        self.close()


class AsyncServer(_Address):
    """A server, asked by callers that await; made by `connect_async`."""

    _opened: tuple[int, httpx.AsyncClient] | None = None

    def _client(self) -> httpx.AsyncClient:
        """Return the client of this process."""
        import httpx  # noqa: PLC0415

        process = os.getpid()
        if self._opened is None or self._opened[0] != process:
            self._opened = process, httpx.AsyncClient(**_options(self.url, *self._options))
        return self._opened[1]

    async def exchange(self, request: Send) -> Reply:
        """Send a request, and return the answer.

        Raises
        ------
        DroppedConnection
        """
        import httpx  # noqa: PLC0415

        client = self._client()
        content = _pieces(request.content) if callable(request.content) else request.content
        try:
            answer = await client.request(
                request.method,
                request.path,
                content=content,  # type: ignore[arg-type]
                headers=request.headers,
                params=request.params or None,
            )
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise _dropped(self.url, error, self._has_answered) from error
        self._has_answered = True
        return Reply(answer.status_code, answer.headers, answer.content)

    async def _run(self, plan: Plan[Any]) -> Any:
        return await run_async(plan, self.exchange)

    async def collection(
        self,
        name: str,
        dim: int | None = UNSET,
        *,
        transform: Transform | dict[str, Any] | None = None,
        backend: BackendParams | dict[str, Any] | None = None,
        storage: Storage = "memory",
    ) -> AsyncCollection:
        """Return a collection; see `Server.collection`."""
        config = None if dim is UNSET else config_of(dim, transform, backend, storage)
        plan = self._requests.collection(name, config)
        return AsyncCollection(await self._run(plan), self.exchange)

    async def collections(self) -> list[dict[str, Any]]:
        """Return name, items, dim, backends and bytes of each collection."""
        found = await self._run(self._requests.asked("GET", path_of("")[:-1]))
        collections: list[dict[str, Any]] = found["collections"]
        return collections

    async def drop(self, name: str) -> None:
        """Drop a collection and its file."""
        await self._run(self._requests.asked("DELETE", path_of(name), name))

    async def health(self) -> dict[str, Any]:
        """Return status and phase of the server."""
        found: dict[str, Any] = await self._run(self._requests.asked("GET", "/healthz"))
        return found

    async def close(self) -> None:
        """Close connections; they open again when something is asked."""
        opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            await opened[1].aclose()

    async def __aenter__(self) -> Self:
        """Return the server."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close connections."""
        await self.close()


def _close(process: int, client: httpx.Client) -> None:
    """Close a client, unless it is another process's, whose locks may be taken for good."""
    if process == os.getpid():
        client.close()


async def _pieces(content: Callable[[], Iterable[Piece]]) -> AsyncIterator[Piece]:
    for piece in content():
        yield piece


def _dropped(url: str, error: Exception, has_answered: bool) -> DroppedConnection:
    cause = str(error) or type(error).__name__
    return DroppedConnection(url, cause, has_answered=has_answered)
