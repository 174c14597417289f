"""The application of a front: frequent routes as messages, all others forwarded as streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httptools
import orjson
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from gcws_search.service import models, problems
from gcws_search.service.api.query import BatchBody, QueryBody
from gcws_search.service.errors import OwnerUnavailable
from gcws_search.service.fronts.channel import (
    MAX_BODY_BYTES,
    FrameKind,
    Link,
    decode_answer,
    encode_matrix,
    encode_query,
    encode_request,
)
from gcws_search.service.http import (
    Application,
    Guards,
    JsonResponse,
    JsonRoute,
    break_off,
    header,
    may_read,
    may_write,
    media_type,
    read_body,
)
from gcws_search.service.ingest import formats
from gcws_search.service.keys import ApiKeys
from gcws_search.service.limits import ALWAYS, Admission
from gcws_search.service.metrics import COUNTED, Metrics
from gcws_search.service.pools import Pools
from gcws_search.service.responses import JSON, NPY, json_bytes
from gcws_search.service.server import request_id
from gcws_search.service.settings import Settings

# Names of the owner's sockets, for messages and for HTTP.
CHANNEL: Final = "messages"
HTTP: Final = "http"
_REPORT_SECONDS: Final = 1.0
_PIECE_BYTES: Final = 1 << 16
# Headers of one connection, or written by the front itself: of answers, and of requests.
_OWN: Final = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"date", b"x-request-id"}
)
_HOPS: Final = _OWN - {b"date"} | {b"te", b"trailer", b"upgrade", b"expect"}


@dataclass(frozen=True, slots=True)
class FrontService(Guards):
    """The parts of a running front."""

    link: Link
    http: Path  # the owner's socket for HTTP


class FrontRoute(JsonRoute):
    """Calls the endpoint for a short request, and streams any other to the owner.

    The owner reads parameters in the URL, and bodies of other content types.
    """

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return the handler of this route."""
        endpoint: Callable[..., Awaitable[Response]] = self.endpoint
        checks = [depends.dependency for depends in self.dependencies if depends.dependency]
        is_batch = self.path.endswith("/batch")  # its body may have any permitted length

        async def handle(request: Request) -> Response:
            service = front_of(request)
            max_bytes = service.settings.max_body_bytes if is_batch else MAX_BODY_BYTES
            if not _is_short(request, max_bytes):
                return Forwarded(service.http)
            for check in checks:
                await check(request)
            return await endpoint(request)

        self.answer = handle
        return handle


def front_of(request: Request) -> FrontService:
    """Return the front that serves this request."""
    service: FrontService = request.scope["app"].state.service
    return service


def _is_short(request: Request, max_bytes: int) -> bool:
    """Whether a request has no body, or a short JSON body, and no parameters in its URL."""
    scope = request.scope
    if scope["query_string"] or header(request, b"transfer-encoding") is not None:
        return False
    size = header(request, b"content-length")
    if size is None:
        return scope["method"] in {"GET", "DELETE"}
    is_plain = header(request, b"content-encoding") is None
    is_json = media_type(request) == JSON
    return size.isdigit() and int(size) <= max_bytes and is_plain and is_json


_PREFIX: Final = "/v1/collections/{name}"
reading = APIRouter(prefix=_PREFIX, dependencies=[Depends(may_read)], route_class=FrontRoute)
writing = APIRouter(prefix=_PREFIX, dependencies=[Depends(may_write)], route_class=FrontRoute)


@reading.post("/query")
async def query(request: Request) -> Response:
    """Search; concurrent queries are batched."""
    name = request.path_params["name"]
    service = front_of(request)
    text = await read_body(request, service.settings.max_body_bytes)
    body = models.parse(QueryBody, text, service.settings)
    asked = encode_query(name, body, service.settings)
    if asked is not None:
        answer = await service.link.ask(FrameKind.QUERY, *asked)
        if answer:
            return JsonResponse(orjson.Fragment(answer))
    return await _whole(request, text)


@reading.post("/query/batch")
async def query_batch(request: Request) -> Response:
    """Answer many queries; those with equal options are forwarded as a matrix."""
    service = front_of(request)
    text = await read_body(request, service.settings.max_body_bytes)
    formats.require_not_foreign(text, JSON)

    def read() -> tuple[bytes, bytes] | None:
        found = models.parse(BatchBody, text, service.settings).queries
        return encode_matrix(found, service.settings) if found else None

    short = len(text) <= models.LONG_BYTES
    matrix = read() if short else await service.workers.parsing.run(read)
    if matrix is None or len(matrix[1]) > service.settings.max_body_bytes:
        return Forwarded(service.http, text)
    parameters, body = matrix
    own = {b"content-type": NPY.encode(), b"content-length": str(len(body)).encode()}
    others = [pair for pair in request.scope["headers"] if pair[0] not in own]
    headers = [*others, *own.items()]
    return Forwarded(service.http, body, headers=headers, query_string=parameters)


@writing.put("/items")
@reading.get("/items/{item_id:any_text}")
@writing.patch("/items/{item_id:any_text}")
@writing.delete("/items/{item_id:any_text}")
async def forward(request: Request) -> Response:
    """Put items, or show, change or delete one."""
    return await _whole(request, await read_body(request, MAX_BODY_BYTES))


async def _whole(request: Request, body: bytes) -> Response:
    asked = encode_request(request.scope, request_headers(request.scope), body)
    frame = await front_of(request).link.ask(FrameKind.REQUEST, *asked)
    status, headers, content = decode_answer(frame)
    request.scope[COUNTED] = True
    response = Response(content, status)
    response.raw_headers = answer_headers(headers)
    return response


def create_front(settings: Settings, folder: Path) -> FastAPI:
    """Return the application of a front; ``folder`` has the owner's sockets."""
    metrics, keys, admission = Metrics(), ApiKeys(settings), Admission(settings)
    link, http = Link(folder / CHANNEL), folder / HTTP

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        workers = Pools(settings)
        app.state.service = FrontService(settings, workers, metrics, keys, admission, link, http)
        link.start()
        reporting = asyncio.create_task(_report(link, metrics, admission))
        try:
            yield
        finally:
            reporting.cancel()
            _tell(link, metrics, admission)
            await link.stop()
            await asyncio.to_thread(workers.close)

    hot = [*reading.routes, *writing.routes]
    app = Application(
        metrics=metrics,
        admission=admission,
        access_log=settings.access_log,
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url=None,
    )
    app.router.routes[:] = [*hot, Route("/{path:path}", Forwarded(http))]
    return app


async def _report(link: Link, metrics: Metrics, admission: Admission) -> None:
    while True:
        await asyncio.sleep(_REPORT_SECONDS)
        _tell(link, metrics, admission)


def _tell(link: Link, metrics: Metrics, admission: Admission) -> None:
    """Report this front's counts since the last report to the owner."""
    counts = metrics.take()
    document = {
        "routes": counts,
        "requests": admission.requests,
        "held_bytes": admission.held_bytes,
    }
    if link.is_connected:
        link.send_frame(FrameKind.COUNTS, 0, orjson.dumps(document))
    else:
        metrics.add(counts)


# Whole requests, forwarded to the owner as streams in both directions


def request_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request that the owner gets."""
    found = [(name, value) for name, value in scope["headers"] if name not in _HOPS]
    return [*found, (b"x-request-id", request_id.get().encode())]


def answer_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of the owner's answer that the client gets."""
    return [(name, value) for name, value in headers if name.lower() not in _OWN]


class _Answer:
    """Parsed pieces of an answer that are not sent yet; httptools calls its methods."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.has_head = self.is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.has_head = True

    def on_body(self, body: bytes) -> None:
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = True


class Forwarded(Response):
    """The owner's answer to a request that is forwarded as a stream; also an ASGI application.

    ``path``: the owner's socket for HTTP. ``body``: replaces a body that has been read.
    ``changes``: changes to the request's scope.
    """

    def __init__(self, path: Path, body: bytes | None = None, **changes: object) -> None:
        super().__init__()
        self._path = path
        self._read_body = body
        self._changes = changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        events: list[Message] = []
        if self._read_body is not None:
            events.append({"type": "http.request", "body": self._read_body, "more_body": False})

        async def receive_changed() -> Message:
            return events.pop() if events else await receive()

        changed = {**scope, **self._changes}
        try:
            await self._forward(changed, receive_changed, send)
        except OwnerUnavailable as error:
            await _unavailable(scope["path"], error)(scope, receive, send)
        if COUNTED in changed:
            scope[COUNTED] = True

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the answer; OwnerUnavailable if nothing has been sent yet."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._path))
        except OSError:
            raise OwnerUnavailable from None
        is_chunked = _write_head(scope, writer)
        feeder = asyncio.create_task(_feed(receive, writer, is_chunked=is_chunked))
        try:
            await _answer(scope, reader, send, feeder)
        finally:
            writer.transport.abort()
            feeder.cancel()
            await asyncio.gather(feeder, return_exceptions=True)
            with suppress(OSError):
                await writer.wait_closed()


def _unavailable(path: str, error: OwnerUnavailable) -> Response:
    """Return a front's answer without an owner: it is alive, and not ready."""
    if path not in ALWAYS:
        return problems.response(error)
    if path == "/readyz":
        document = {"phase": "starting", "loaded": 0, "total": 0}
        return Response(json_bytes(document), 503, {"Retry-After": "1"}, media_type=JSON)
    return JsonResponse({"status": "ok", "phase": "starting"})


def _write_head(scope: Scope, writer: asyncio.StreamWriter) -> bool:
    """Write a request's head; return whether its body is chunked."""
    target = scope["raw_path"] or b"/"
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    is_chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
    lines = [scope["method"].encode() + b" " + target + b" HTTP/1.1"]
    lines += [name + b": " + value for name, value in request_headers(scope)]
    if is_chunked:
        lines.append(b"transfer-encoding: chunked")
    writer.write(b"\r\n".join([*lines, b"", b""]))
    return is_chunked


async def _feed(receive: Receive, writer: asyncio.StreamWriter, *, is_chunked: bool) -> None:
    """Write the body as it arrives, at the owner's pace, until the client disconnects.

    Then the connection is closed, so that the owner notices.
    """
    more = True
    try:
        while (message := await receive())["type"] != "http.disconnect":
            piece = message.get("body", b"")
            if not more or writer.is_closing():  # the owner has already answered
                continue
            more = message.get("more_body", False)
            if is_chunked:
                end = b"" if more else b"0\r\n\r\n"
                piece = (b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b"") + end
            writer.write(piece)
            with suppress(OSError):
                await writer.drain()
    finally:
        writer.transport.abort()


async def _answer(
    scope: Scope, reader: asyncio.StreamReader, send: Send, feeder: asyncio.Task[None]
) -> None:
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    has_started = False
    while not answer.is_complete:
        try:
            data = await reader.read(_PIECE_BYTES)
        except OSError:
            data = b""
        if not data:
            if feeder.done():  # the client has disconnected
                feeder.result()
                return
            if not has_started:
                raise OwnerUnavailable
            break_off(scope)
            return
        parser.feed_data(data)
        if answer.has_head and not has_started:
            has_started = scope[COUNTED] = True
            headers = answer_headers(answer.headers)
            status = parser.get_status_code()
            await send({"type": "http.response.start", "status": status, "headers": headers})
        answer.is_complete |= scope["method"] == "HEAD" and has_started
        if answer.pieces or answer.is_complete:
            body, answer.pieces = b"".join(answer.pieces), []
            more = not answer.is_complete
            await send({"type": "http.response.body", "body": body, "more_body": more})
