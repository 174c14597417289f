"""Servers: requests and retries; operations outside of one collection."""

from __future__ import annotations

import hashlib
import os
import random
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast

import orjson

from gcws_search.client.collection import (
    UNSET,
    AsyncCollection,
    Collection,
    call_in_place,
    call_on_thread,
    config_of,
)
from gcws_search.client.errors import NoServer, ServerError, error_of
from gcws_search.client.remote import JSON_HEADERS, RemoteCollection, path_of, run
from gcws_search.client.snapshot_store import SnapshotStore
from gcws_search.client.wire import (
    CONNECT_SECONDS,
    Answer,
    AsyncWire,
    Unreachable,
    Wire,
    is_plain,
    through_httpx,
)
from gcws_search.formats.files import whole_file
from gcws_search.index import InvalidParameter, SnapshotNotFound
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    Storage,
    TextParams,
    Transform,
)

if TYPE_CHECKING:
    import httpx

    from gcws_search.formats.stores import StoredPath

P = ParamSpec("P")
R = TypeVar("R")
_COLLECTIONS = "/v1/collections"
_READY: Final = "/readyz"
_TOLD_SECONDS: Final = 1.0
"""Waits shorter than this are not reported."""
_BUSY: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_STARTING: Final = "loading"
"""Code of the problem of a server, or of a collection, that has not started yet."""
_DOUBTFUL: Final = frozenset({"owner_unavailable", "stopping", "store_unavailable"})
"""Codes of problems after which the request may have been served all the same."""
_SQLITE: Final = "application/vnd.sqlite3"
_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How often a request is sent, and how long a client waits in between.

    Parameters
    ----------
    attempts : int
        Maximum number of times that a request is sent.
    first_seconds, max_seconds : float
        The wait doubles from the first to the largest, minus a random part of up to a half. If the
        server sends ``Retry-After``, the client waits that long, or gives up if it is above the
        largest.
    report : callable or None
        Called with a sentence once a request has waited for a second.
    """

    attempts: int = 8
    first_seconds: float = 0.1
    max_seconds: float = 10.0
    report: Callable[[str], None] | None = None

    @property
    def longest_seconds(self) -> float:
        """Approximate total wait of a request before its last attempt."""
        waits = (self.first_seconds * 2.0**attempt for attempt in range(self.attempts - 1))
        return 0.75 * sum(min(self.max_seconds, each) for each in waits)

    def wait_seconds(self, attempt: int) -> float:
        """Return the wait after an attempt; attempts count from 0."""
        longest = min(self.max_seconds, self.first_seconds * 2**attempt)
        return float(longest * random.uniform(0.5, 1))


class Requester(ABC):
    """Requests to a server as coroutines; sent again after 429, 503 or a lost connection.

    They suspend on an event loop, or block and never suspend.

    A forked process has copies of its parent's sockets. If both use one, each may read the answer
    of the other. So a client notes the process that opened it, and no other uses or closes it.
    """

    call = staticmethod(call_in_place)
    """Calls a function that computes for a while."""
    has_answered = False
    """Whether the server ever did: then it may be on its way back."""

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        timeout_seconds: float | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        self.url = url if "://" in url else f"http://{url}"
        self.policy = policy or RetryPolicy()
        self._headers = {"User-Agent": "gcws-search"}
        if api_key is not None:
            self._headers["X-API-Key"] = api_key
        self._timeout_seconds = timeout_seconds
        self._is_plain = is_plain(self.url)
        self._process, self._clients = 0, dict[tuple[Callable[..., Any], Any], Any]()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to copy it, in any process; a copy opens its own connections."""
        make = partial(type(self), timeout_seconds=self._timeout_seconds, policy=self.policy)
        return make, (self.url, self._headers.get("X-API-Key"))

    def _client(self, kind: Callable[[str, Mapping[str, str], float | None], R]) -> R:
        process = os.getpid()
        if self._process != process:
            self._process, self._clients = process, {}
        loop = self.loop()
        found: R | None = self._clients.get((kind, loop))
        if found is None:
            for each in [*self._clients]:
                if each[1] is not None and each[1].is_closed():
                    self._clients.pop(each, None)
            found = kind(self.url, self._headers, self._timeout_seconds)
            self._clients[kind, loop] = found
            if loop is None:  # an unclosed client leaves no socket
                weakref.finalize(self, _close, process, found)
        return found

    def loop(self) -> Any:
        """Return the event loop whose connections are used; None for blocking callers."""
        return None

    @abstractmethod
    async def exchange(
        self, method: str, path: str, *, content: Any = None, **options: Any
    ) -> Answer:
        """Send a request once, else Unreachable; a callable ``content`` returns its pieces."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Wait."""

    async def ask(
        self,
        method: str,
        path: str,
        content: bytes | Callable[[], Iterable[bytes | memoryview]] | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        repeatable: bool = True,
        collection: str | None = None,
    ) -> Answer:
        """Return the answer to a request; wait for a starting server while it makes progress.

        ``collection``: the name of the collection, for errors. A problem that the server answers is
        raised as the class of its code. A callable ``content`` is called again for each attempt.
        ``repeatable``: the request may be sent again even if it may have been served. A repeated
        DELETE that finds nothing was served before.
        """
        policy = self.policy
        was_served = False  # possibly, by an earlier attempt
        waited, is_told = 0.0, policy.report is None
        attempt, progress = -1, None
        while True:
            attempt += 1
            until = f"for about {policy.longest_seconds:.0f} s"
            try:
                reply = await self.exchange(
                    method, path, content=content, headers=headers, params=params
                )
            except UnicodeEncodeError:
                got = "half of a surrogate pair"
                raise InvalidParameter(expected="Unicode text", got=got) from None
            except Unreachable as error:
                is_last = attempt + 1 >= policy.attempts
                is_doubtful = error.is_sent and not repeatable
                if is_last or is_doubtful or not self.has_answered:
                    doubt = ", so it may have been done" if is_doubtful else ""
                    raise NoServer(self.url, f"{error}{doubt}") from error
                was_served |= error.is_sent
                wait = policy.wait_seconds(attempt)
                cause = f"{self.url} does not answer ({error})"
            else:
                self.has_answered = True
                is_gone = was_served and (method, reply.status_code) == ("DELETE", 404)
                if reply.status_code < HTTPStatus.BAD_REQUEST or is_gone:
                    return reply
                text = reply.headers.get("retry-after", "")
                after = float(text) if text.isdecimal() else 0.0
                # Only a conflict with another operation on the same name ends soon.
                is_conflict = reply.status_code == HTTPStatus.CONFLICT and after > 0
                problem = _problem_of(reply.content)
                is_doubtful = problem.get("code") in _DOUBTFUL
                was_served |= is_doubtful
                is_busy = reply.status_code in _BUSY or is_conflict
                is_busy &= repeatable or not is_doubtful
                if problem.get("code") == _STARTING:
                    before, progress = progress, await self._progress()
                    if progress is not None and progress != before:
                        attempt = 0
                    until = "as long as its start progresses"
                is_last = attempt + 1 >= policy.attempts
                if is_last or not is_busy or after > policy.max_seconds:
                    raise error_of(reply.status_code, problem, collection=collection)
                wait = after + policy.wait_seconds(attempt)
                cause = str(problem.get("detail") or f"the server answered {reply.status_code}")
            waited += wait
            if not is_told and waited >= _TOLD_SECONDS and policy.report is not None:
                is_told = True
                policy.report(f"{cause}; asking again {until}")
            await self.pause(wait)

    async def _progress(self) -> list[Any] | None:
        """Return the progress of a starting server; None if it reports none."""
        try:
            reply = await self.exchange("GET", _READY)
        except Unreachable:
            return None
        document = _problem_of(reply.content)
        return [document.get(word) for word in ("phase", "loaded", "total")] if document else None

    async def _get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads((await self.ask("GET", path)).content)
        return found

    async def _collection(self, name: str, config: CollectionConfig | None) -> RemoteCollection:
        path = path_of(name)
        if config is None:
            reply = await self.ask("GET", path, collection=name)
        else:
            body = orjson.dumps(config.to_dict())
            reply = await self.ask("PUT", path, body, JSON_HEADERS, collection=name)
        found = CollectionConfig.from_dict(orjson.loads(reply.content))
        return RemoteCollection(name, found, self)


class Server(Requester):
    """A server, for blocking callers; also called `connect`. Creating it sends nothing.

    Parameters
    ----------
    url : str
        Such as ``http://localhost:8000``; the default scheme is ``http``.
    timeout_seconds : float or None
        How long the server may stay silent; None: without limit.
    policy : RetryPolicy or None
        How often a request is sent if the server is busy or the connection breaks.
    """

    async def exchange(
        self, method: str, path: str, *, content: Any = None, **options: Any
    ) -> Answer:
        """Send a request, and return the answer; nothing suspends here."""
        pieces = content() if callable(content) else content
        try:
            if self._is_plain:
                return await self._client(Wire).request(method, path, content=pieces, **options)
            with through_httpx():
                client = self._client(_httpx_client)
                return _answer_of(client.request(method, path, content=pieces, **options))
        finally:
            if isinstance(pieces, Generator):  # closes what it reads now, not at garbage collection
                pieces.close()

    async def pause(self, seconds: float) -> None:
        """Block for some time."""
        time.sleep(seconds)  # noqa: ASYNC251  # nothing suspends here

    def collection(
        self,
        name: str,
        dim: int | None = UNSET,
        *,
        transform: Transform | dict[str, Any] | None = None,
        backend: BackendParams | dict[str, Any] | None = None,
        storage: Storage = "auto",
        text: TextParams | dict[str, Any] | None = None,
        ttl: float | None = None,
    ) -> Collection:
        """Return a collection; ``dim`` or ``text`` creates it if there is none.

        Its parameters are those of `Collection.open`.

        Raises
        ------
        CollectionNotFound
            It does not exist, and neither ``dim`` nor ``text`` is given.
        CollectionExists
            It exists with another configuration.
        NoServer, ServerBusy, AccessRefused, InvalidParameter
        """
        config = config_of(dim, transform, backend, storage, text, ttl=ttl)
        return Collection(run(self._collection(name, config)))

    def collections(self) -> list[dict[str, Any]]:
        """Return name, items, dim, backends and bytes of each collection."""
        found: list[dict[str, Any]] = run(self._get(_COLLECTIONS))["collections"]
        return found

    def drop(self, name: str) -> None:
        """Drop a collection and its file."""
        run(self.ask("DELETE", path_of(name), collection=name))

    def health(self) -> dict[str, Any]:
        """Return status and phase of the server."""
        return run(self._get("/healthz"))

    def snapshots(self, collection: str) -> ServerSnapshots:
        """Return the snapshots of a collection, which need not be there."""
        return ServerSnapshots(self, collection)

    @contextmanager
    def stream(self, path: str, collection: str) -> Iterator[httpx.Response]:
        """Yield an answer to read piece by piece; see `ask` for errors."""
        try:
            with through_httpx(), self._client(_httpx_client).stream("GET", path) as answer:
                if answer.is_error:
                    problem = _problem_of(answer.read())
                    raise error_of(answer.status_code, problem, collection=collection)
                yield answer
        except Unreachable as error:
            raise NoServer(self.url, str(error)) from error

    def close(self) -> None:
        """Close connections; they open again when something is asked."""
        clients, self._clients = self._clients, {}
        for each in clients.values():
            _close(self._process, each)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
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
        return self._ask("POST", repeatable=False)

    def list(self) -> list[dict[str, Any]]:
        """Return all snapshots, by name."""
        found: list[dict[str, Any]] = self._ask("GET")["snapshots"]
        return found

    def download(self, name: str, output: Path) -> None:
        """Write a snapshot to a file, which appears after its SHA-256 is verified."""
        with whole_file(output) as part, part.open("wb") as file:
            file.writelines(self._pieces(name))

    def _pieces(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a snapshot; raises ServerError at the end if their hash differs."""
        sha = hashlib.sha256()
        with self._server.stream(self._path(name), self._collection) as answer:
            for piece in answer.iter_bytes(_PIECE_BYTES):
                sha.update(piece)
                yield piece
            if answer.headers["etag"].strip('"') != sha.hexdigest():
                raise ServerError("what arrived is not what was sent; nothing is kept")

    def upload(self, name: str, file: Path) -> dict[str, Any]:
        """Send a file as a snapshot of this name; the server compares its SHA-256."""
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return self._send(name, file, digest)

    def _send(self, name: str, file: Path | StoredPath, sha256: str) -> dict[str, Any]:
        headers = {"Content-Type": _SQLITE, "Content-Length": str(file.stat().st_size)}
        params = {"sha256": sha256}
        content = partial(_file_pieces, file)
        return self._ask("PUT", name, content=content, headers=headers, params=params)

    def copy_to(self, name: str, address: str) -> dict[str, Any]:
        """Write a snapshot to an object store, or a folder; see `SnapshotStore`.

        A snapshot already in the store is not sent again. Raises StoreFailed.
        """
        found = [each for each in self.list() if each["name"] == name]
        if not found:
            raise SnapshotNotFound(self._collection, name)
        store = SnapshotStore(address, self._collection)
        return store.write(found[0], lambda: self._pieces(name))

    def copy_from(self, name: str, address: str) -> dict[str, Any]:
        """Send a snapshot of an object store, or a folder; the server compares its SHA-256.

        A snapshot already on the server is not sent again. Raises StoreFailed, SnapshotNotFound.
        """
        snapshot, file = SnapshotStore(address, self._collection).read(name)
        for each in self.list():
            if each["name"] == name and each["sha256"] == snapshot["sha256"]:
                return each
        return self._send(name, file, snapshot["sha256"])

    def restore(self, name: str, *, replace: bool = False) -> dict[str, Any]:
        """Restore the collection from a snapshot, and return its description."""
        params = {"replace": str(replace).lower()}
        return self._ask("POST", name, "restore", params=params, repeatable=False)

    def delete(self, name: str) -> None:
        """Remove a snapshot."""
        self._ask("DELETE", name)

    def _path(self, *names: str) -> str:
        return path_of(self._collection, "snapshots", *names)

    def _ask(self, method: str, *names: str, **options: Any) -> dict[str, Any]:
        path = self._path(*names)
        reply = run(self._server.ask(method, path, collection=self._collection, **options))
        found: dict[str, Any] = orjson.loads(reply.content) if reply.content else {}
        return found


def _file_pieces(path: Path | StoredPath) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _on_thread(
    operation: Callable[Concatenate[ServerSnapshots, P], R],
) -> Callable[Concatenate[AsyncServerSnapshots, P], Coroutine[Any, Any, R]]:
    @wraps(operation)
    async def method(self: AsyncServerSnapshots, *given: P.args, **named: P.kwargs) -> R:
        return await call_on_thread(partial(operation, self._inner, *given, **named))

    return cast("Callable[Concatenate[AsyncServerSnapshots, P], Coroutine[Any, Any, R]]", method)


class AsyncServerSnapshots:
    """The snapshots of one collection for coroutines; see `ServerSnapshots`. Uses a thread."""

    def __init__(self, inner: ServerSnapshots) -> None:
        self._inner = inner

    create = _on_thread(ServerSnapshots.create)
    list = _on_thread(ServerSnapshots.list)
    download = _on_thread(ServerSnapshots.download)
    copy_to = _on_thread(ServerSnapshots.copy_to)
    copy_from = _on_thread(ServerSnapshots.copy_from)
    upload = _on_thread(ServerSnapshots.upload)
    restore = _on_thread(ServerSnapshots.restore)
    delete = _on_thread(ServerSnapshots.delete)


class AsyncServer(Requester):
    """A server, for coroutines; also called `connect_async`. See `Server`."""

    call = staticmethod(call_on_thread)
    _blocking: Server | None = None
    """What asks for snapshots, on threads."""

    async def exchange(
        self, method: str, path: str, *, content: Any = None, **options: Any
    ) -> Answer:
        """Send a request, and return the answer."""
        if self._is_plain:
            plain = content() if callable(content) else content
            return await self._client(AsyncWire).request(method, path, content=plain, **options)
        pieces: Any = _pieces(content) if callable(content) else content
        with through_httpx():
            client = self._client(_async_httpx_client)
            return _answer_of(await client.request(method, path, content=pieces, **options))

    def loop(self) -> Any:
        """Return the running event loop: no other can use its connections."""
        import asyncio  # noqa: PLC0415

        return asyncio.get_running_loop()

    async def pause(self, seconds: float) -> None:
        """Wait on the event loop."""
        import asyncio  # noqa: PLC0415

        await asyncio.sleep(seconds)

    async def collection(
        self,
        name: str,
        dim: int | None = UNSET,
        *,
        transform: Transform | dict[str, Any] | None = None,
        backend: BackendParams | dict[str, Any] | None = None,
        storage: Storage = "auto",
        text: TextParams | dict[str, Any] | None = None,
        ttl: float | None = None,
    ) -> AsyncCollection:
        """Return a collection; see `Server.collection`."""
        config = config_of(dim, transform, backend, storage, text, ttl=ttl)
        return AsyncCollection(await self._collection(name, config))

    async def collections(self) -> list[dict[str, Any]]:
        """Return name, items, dim, backends and bytes of each collection."""
        found: list[dict[str, Any]] = (await self._get(_COLLECTIONS))["collections"]
        return found

    async def drop(self, name: str) -> None:
        """Drop a collection and its file."""
        await self.ask("DELETE", path_of(name), collection=name)

    async def health(self) -> dict[str, Any]:
        """Return status and phase of the server."""
        return await self._get("/healthz")

    def snapshots(self, collection: str) -> AsyncServerSnapshots:
        """Return the snapshots of a collection, which need not be there."""
        if self._blocking is None:
            key = self._headers.get("X-API-Key")
            timeout = self._timeout_seconds
            self._blocking = Server(self.url, key, timeout_seconds=timeout, policy=self.policy)
        return AsyncServerSnapshots(self._blocking.snapshots(collection))

    async def close(self) -> None:
        """Close connections of this event loop; they open again when something is asked."""
        if self._blocking is not None:
            self._blocking.close()
        loop = self.loop()
        for each in [each for each in self._clients if each[1] is loop]:
            client = self._clients.pop(each)
            if self._process == os.getpid():
                await client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _close(process: int, client: Any) -> None:
    """Close a client of this process; in a fork its locks might never be released."""
    if process == os.getpid():
        client.close()


def _open_httpx(kind: str, url: str, headers: Mapping[str, str], seconds: float | None) -> Any:
    import httpx  # noqa: PLC0415  # takes a third of the time to import this package

    return getattr(httpx, kind)(
        base_url=url,
        headers=headers,
        timeout=httpx.Timeout(seconds, connect=CONNECT_SECONDS),
        verify=not url.lower().startswith("http://"),  # reading all root certificates takes 30 ms
    )


_httpx_client = partial(_open_httpx, "Client")
_async_httpx_client = partial(_open_httpx, "AsyncClient")


def _answer_of(reply: httpx.Response) -> Answer:
    return Answer(reply.status_code, reply.headers, reply.content)


async def _pieces(
    content: Callable[[], Iterable[bytes | memoryview]],
) -> AsyncIterator[bytes | memoryview]:
    for piece in content():
        yield piece


def _problem_of(content: bytes) -> dict[str, Any]:
    """Return the JSON object of an answer; an empty one if there is none."""
    try:
        document = orjson.loads(content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


connect = Server
connect_async = AsyncServer
