"""Servers: how requests are sent, and what can be asked besides one collection."""

from __future__ import annotations

import hashlib
import os
import time
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import orjson

from gcws_search.client.collection import UNSET, AsyncCollection, Collection, config_of
from gcws_search.client.errors import NoServer, ServerError, error_of
from gcws_search.client.remote import RemoteCollection, path_of
from gcws_search.client.retries import (
    DroppedConnection,
    Reply,
    Requester,
    RetryPolicy,
    Send,
    problem_of,
    run,
)
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    Storage,
    Transform,
)

if TYPE_CHECKING:
    import httpx

R = TypeVar("R")
_COLLECTIONS = "/v1/collections"
_CONNECT_SECONDS = 10.0
_SQLITE: Final = "application/vnd.sqlite3"
_PIECE_BYTES: Final = 1 << 20
_UNFINISHED: Final = ".part"


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


class _Server(Requester):
    """Requests to a server that are about no one collection, as coroutines.

    A forked process has copies of its parent's sockets. If both use one, each may read the answer
    of the other. So a client notes the process that opened it, and no other uses or closes it.
    """

    def __init__(
        self, url: str, api_key: str | None, timeout_seconds: float | None, policy: RetryPolicy
    ) -> None:
        self.url = url if "://" in url else f"http://{url}"
        self.policy = policy
        self._headers = {"User-Agent": "gcws-search"}
        if api_key is not None:
            self._headers["X-API-Key"] = api_key
        self._timeout_seconds = timeout_seconds
        self._has_answered = False

    def __repr__(self) -> str:
        """Return the address in one line."""
        return f"{type(self).__name__}({self.url!r})"

    def _options(self) -> dict[str, Any]:
        import httpx  # noqa: PLC0415  # takes a third of the time to import this package

        timeout = httpx.Timeout(self._timeout_seconds, connect=_CONNECT_SECONDS)
        return {
            "base_url": self.url,
            "headers": self._headers,
            "timeout": timeout,
            # To read all root certificates takes 30 ms.
            "verify": not self.url.lower().startswith("http://"),
        }

    def _connection_error(self, error: Exception) -> DroppedConnection:
        cause = str(error) or type(error).__name__
        return DroppedConnection(self.url, cause, has_answered=self._has_answered)

    async def _get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads((await self.ask(Send("GET", path))).content)
        return found

    async def _drop(self, name: str) -> None:
        await self.ask(Send("DELETE", path_of(name)), name)

    async def _collection(self, name: str, config: CollectionConfig | None) -> RemoteCollection:
        request = Send("GET", path_of(name))
        if config is not None:
            body = orjson.dumps(config.to_dict())
            request = Send("PUT", path_of(name), body, {"Content-Type": "application/json"})
        reply = await self.ask(request, name)
        found = CollectionConfig.from_dict(orjson.loads(reply.content))
        return RemoteCollection(name, found, self)


class Server(_Server):
    """A server, asked by callers that wait; made by `connect`."""

    _opened: tuple[int, httpx.Client] | None = None

    def _client(self) -> httpx.Client:
        """Return the client of this process."""
        import httpx  # noqa: PLC0415

        process = os.getpid()
        if self._opened is not None and self._opened[0] == process:
            return self._opened[1]
        client = httpx.Client(**self._options())
        self._opened = process, client
        weakref.finalize(self, _close, process, client)  # who forgets to close leaves no socket
        return client

    async def exchange(self, request: Send) -> Reply:
        """Send a request, and return the answer; nothing suspends here."""
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
            raise self._connection_error(error) from error
        finally:
            if isinstance(content, Generator):  # what it reads is closed now, not some time
                content.close()
        self._has_answered = True
        return Reply(answer.status_code, answer.headers, answer.content)

    async def pause(self, seconds: float) -> None:
        """Block for some time."""
        time.sleep(seconds)  # noqa: ASYNC251  # nothing suspends here

    async def call(self, function: Callable[[], R]) -> R:
        """Call a function."""
        return function()

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
        return Collection(run(self._collection(name, config)))

    def collections(self) -> list[dict[str, Any]]:
        """Return name, items, dim, backends and bytes of each collection."""
        found: list[dict[str, Any]] = run(self._get(_COLLECTIONS))["collections"]
        return found

    def drop(self, name: str) -> None:
        """Drop a collection and its file."""
        run(self._drop(name))

    def health(self) -> dict[str, Any]:
        """Return status and phase of the server."""
        return run(self._get("/healthz"))

    def snapshots(self, collection: str) -> ServerSnapshots:
        """Return the snapshots of a collection, which need not be there."""
        return ServerSnapshots(self, collection)

    @contextmanager
    def stream(self, path: str, collection: str) -> Iterator[httpx.Response]:
        """Yield an answer that is read piece by piece; see `ask` for errors."""
        import httpx  # noqa: PLC0415

        try:
            with self._client().stream("GET", path) as answer:
                if answer.is_error:
                    problem = problem_of(answer.read())
                    raise error_of(answer.status_code, problem, collection=collection)
                yield answer
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise NoServer(self.url, str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Close connections; they open again when something is asked."""
        opened, self._opened = self._opened, None
        if opened is not None:
            _close(*opened)

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close connections."""
        self.close()


class ServerSnapshots:
    """The snapshots of one collection.

    A snapshot is a dict of ``name``, ``bytes``, ``sha256`` and ``created``. Errors are those of a
    collection of the server.
    """

    def __init__(self, server: Server, collection: str) -> None:
        self._server = server
        self._collection = collection

    def create(self) -> dict[str, Any]:
        """Make a snapshot."""
        return self._ask(Send("POST", self._path(), repeatable=False))

    def list(self) -> list[dict[str, Any]]:
        """Return all snapshots, by name."""
        found: list[dict[str, Any]] = self._ask(Send("GET", self._path()))["snapshots"]
        return found

    def download(self, name: str, output: Path) -> None:
        """Write a snapshot to a file, which appears when its SHA-256 is right."""
        part = output.with_name(output.name + _UNFINISHED)
        sha = hashlib.sha256()
        with self._server.stream(self._path(name), self._collection) as answer:
            try:
                with part.open("wb") as file:
                    for piece in answer.iter_bytes(_PIECE_BYTES):
                        sha.update(piece)
                        file.write(piece)
                if answer.headers["etag"].strip('"') != sha.hexdigest():
                    raise ServerError("what arrived is not what was sent; nothing is kept")
                part.replace(output)
            finally:
                part.unlink(missing_ok=True)

    def upload(self, name: str, file: Path) -> dict[str, Any]:
        """Send a file as a snapshot of this name; the server compares its SHA-256."""
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        headers = {"Content-Type": _SQLITE, "Content-Length": str(file.stat().st_size)}
        params = {"sha256": digest}
        return self._ask(Send("PUT", self._path(name), lambda: _file_pieces(file), headers, params))

    def restore(self, name: str, *, replace: bool = False) -> dict[str, Any]:
        """Make the collection from a snapshot, and return its description."""
        params = {"replace": str(replace).lower()}
        path = self._path(name, "restore")
        return self._ask(Send("POST", path, params=params, repeatable=False))

    def delete(self, name: str) -> None:
        """Remove a snapshot."""
        self._ask(Send("DELETE", self._path(name)))

    def _path(self, *names: str) -> str:
        return path_of(self._collection, "snapshots", *names)

    def _ask(self, request: Send) -> dict[str, Any]:
        reply = run(self._server.ask(request, self._collection))
        found: dict[str, Any] = orjson.loads(reply.content) if reply.content else {}
        return found


def _file_pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


class AsyncServer(_Server):
    """A server, asked by callers that await; made by `connect_async`."""

    _opened: tuple[int, httpx.AsyncClient] | None = None

    def _client(self) -> httpx.AsyncClient:
        """Return the client of this process."""
        import httpx  # noqa: PLC0415

        process = os.getpid()
        if self._opened is None or self._opened[0] != process:
            self._opened = process, httpx.AsyncClient(**self._options())
        return self._opened[1]

    async def exchange(self, request: Send) -> Reply:
        """Send a request, and return the answer."""
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
            raise self._connection_error(error) from error
        self._has_answered = True
        return Reply(answer.status_code, answer.headers, answer.content)

    async def pause(self, seconds: float) -> None:
        """Wait on the event loop."""
        import asyncio  # noqa: PLC0415

        await asyncio.sleep(seconds)

    async def call(self, function: Callable[[], R]) -> R:
        """Call a function on a thread."""
        import asyncio  # noqa: PLC0415

        return await asyncio.to_thread(function)

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
        return AsyncCollection(await self._collection(name, config))

    async def collections(self) -> list[dict[str, Any]]:
        """Return name, items, dim, backends and bytes of each collection."""
        found: list[dict[str, Any]] = (await self._get(_COLLECTIONS))["collections"]
        return found

    async def drop(self, name: str) -> None:
        """Drop a collection and its file."""
        await self._drop(name)

    async def health(self) -> dict[str, Any]:
        """Return status and phase of the server."""
        return await self._get("/healthz")

    async def close(self) -> None:
        """Close connections; they open again when something is asked."""
        opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            await opened[1].aclose()

    async def __aenter__(self) -> Self:
        """Return the server."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close connections."""
        await self.close()


def _close(process: int, client: httpx.Client) -> None:
    """Close a client of this process; the locks of another process's may never be released."""
    if process == os.getpid():
        client.close()


async def _pieces(
    content: Callable[[], Iterable[bytes | memoryview]],
) -> AsyncIterator[bytes | memoryview]:
    for piece in content():
        yield piece
