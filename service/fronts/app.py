"""The application of a front: hot routes as messages, all others forwarded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.routing import Route
from starlette.types import Scope

from gcws_search.service import json_bodies, media_types
from gcws_search.service.api.bodies import BatchBody, PutItemsBody, QueryBody
from gcws_search.service.execution.context import Guards, header, may_read, may_write
from gcws_search.service.execution.pools import Pools
from gcws_search.service.fronts import messages
from gcws_search.service.fronts.channel import FrameKind, Link
from gcws_search.service.fronts.forward import COUNTED, Forwarded, answer_headers, request_headers
from gcws_search.service.fronts.messages import MAX_BODY_BYTES
from gcws_search.service.guards.admission import Admission
from gcws_search.service.guards.keys import ApiKeys
from gcws_search.service.guards.limits import Limits
from gcws_search.service.http import bodies
from gcws_search.service.http.dispatch import Application, JsonRoute
from gcws_search.service.responses import raw_json_response
from gcws_search.service.settings import Settings
from gcws_search.service.telemetry.metrics import Metrics

# Names of the owner's sockets, for messages and for HTTP.
CHANNEL: Final = "messages"
HTTP: Final = "http"
_REPORT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class FrontService(Guards):
    """The parts of a front while it runs."""

    link: Link
    http: Path  # of the socket at which the owner speaks HTTP


class _FrontMetrics(Metrics):
    """Metrics of requests that the owner does not count."""

    def observe(self, scope: Scope, status: int, seconds: float) -> None:
        """Count one request by its route's pattern."""
        if COUNTED not in scope:
            super().observe(scope, status, seconds)


class FrontRoute(JsonRoute):
    """Calls the endpoint for a short request, and streams any other to the owner.

    Parameters in the URL, and bodies of other content types, are the owner's to read.
    """

    max_bytes: int | None = MAX_BODY_BYTES  # of a short body; None: as the settings say of any

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return the handler of this route."""
        endpoint: Callable[..., Awaitable[Response]] = self.endpoint
        checks = [depends.dependency for depends in self.dependencies if depends.dependency]

        async def handle(request: Request) -> Response:
            service = front_of(request)
            if not _is_short(request, self.max_bytes or service.settings.max_body_bytes):
                return Forwarded(service.http)
            for check in checks:
                await check(request)
            return await endpoint(request)

        self.answer = handle
        return handle


def front_of(request: Request) -> FrontService:
    """Return the parts of the front that serves this request."""
    service: FrontService = request.scope["app"].state.service
    return service


class _BatchRoute(FrontRoute):
    """Reads a body of any length that is permitted."""

    max_bytes = None


def _is_short(request: Request, max_bytes: int) -> bool:
    """Whether a request has no body, or a short one of JSON, and nothing in its URL."""
    scope = request.scope
    if scope["query_string"] or header(request, b"transfer-encoding") is not None:
        return False
    size = header(request, b"content-length")
    if size is None:
        return scope["method"] in {"GET", "DELETE"}
    is_plain = header(request, b"content-encoding") is None
    is_json = bodies.media_type(request) == media_types.JSON
    return size.isdigit() and int(size) <= max_bytes and is_plain and is_json


_PREFIX: Final = "/v1/collections/{name}"
reading = APIRouter(prefix=_PREFIX, dependencies=[Depends(may_read)], route_class=FrontRoute)
batches = APIRouter(prefix=_PREFIX, dependencies=[Depends(may_read)], route_class=_BatchRoute)
writing = APIRouter(prefix=_PREFIX, dependencies=[Depends(may_write)], route_class=FrontRoute)


@reading.post("/query")
async def query(request: Request) -> Response:
    """Search: together with the queries of others."""
    name = request.path_params["name"]
    service = front_of(request)
    text = await bodies.read(request, service.settings.max_body_bytes)
    body = json_bodies.parse(QueryBody, text, service.limits)
    asked = messages.encode_query(name, body, service.limits)
    if asked is not None:
        answer = await service.link.ask(FrameKind.QUERY, *asked)
        if answer:
            return raw_json_response(answer)
    return await _whole(request, text)


@batches.post("/query/batch")
async def query_batch(request: Request) -> Response:
    """Answer many queries at once; those that ask for the same are forwarded as a matrix."""
    service = front_of(request)
    text = await bodies.read(request, service.settings.max_body_bytes)

    def read() -> tuple[bytes, bytes] | None:
        found = json_bodies.parse(BatchBody, text, service.limits).queries
        return messages.encode_matrix(found, service.limits) if found else None

    short = not json_bodies.is_long(text)
    matrix = read() if short else await service.workers.parsing.run(read)
    if matrix is None or len(matrix[1]) > service.settings.max_body_bytes:
        return Forwarded(service.http, text)
    parameters, body = matrix
    own = {b"content-type": media_types.NPY.encode(), b"content-length": str(len(body)).encode()}
    others = [pair for pair in request.scope["headers"] if pair[0] not in own]
    headers = [*others, *own.items()]
    return Forwarded(service.http, body, headers=headers, query_string=parameters)


@writing.put("/items")
async def put_items(request: Request) -> Response:
    """Store items; the body is checked here, and read again by the owner."""
    service = front_of(request)
    text = await bodies.read(request, service.settings.max_body_bytes, PutItemsBody.instead)
    json_bodies.parse(PutItemsBody, text, service.limits)
    return await _whole(request, text)


@reading.get("/items/{item_id:any_text}")
@writing.delete("/items/{item_id:any_text}")
async def forward(request: Request) -> Response:
    """Show or delete one item."""
    return await _whole(request)


async def _whole(request: Request, body: bytes = b"") -> Response:
    """Return the owner's answer to a request, sent in one message."""
    asked = messages.encode_request(request.scope, request_headers(request.scope), body)
    frame = await front_of(request).link.ask(FrameKind.REQUEST, *asked)
    status, headers, content = messages.decode_answer(frame)
    request.scope[COUNTED] = True
    response = Response(content, status)
    response.raw_headers = answer_headers(headers)
    return response


def create_front(settings: Settings, folder: Path) -> FastAPI:
    """Return the application of a front; ``folder`` has the owner's sockets."""
    metrics, keys, admission = _FrontMetrics(), ApiKeys(settings), Admission(settings)
    link, http = Link(folder / CHANNEL), folder / HTTP

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        workers = Pools.of(settings)
        app.state.service = FrontService(
            settings, Limits.of(settings), workers, metrics, keys, admission, link, http
        )
        link.start()
        reporting = asyncio.create_task(_report(link, metrics, admission))
        try:
            yield
        finally:
            reporting.cancel()
            _tell(link, metrics, admission)
            await link.stop()
            await asyncio.to_thread(workers.close)

    hot = [*reading.routes, *batches.routes, *writing.routes]
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
    """Report to the owner what this front has counted since the last report."""
    counts = metrics.take()
    document = {
        "routes": [[*each] for each in counts],
        "requests": admission.requests,
        "held_bytes": admission.held_bytes,
    }
    if not link.tell(FrameKind.COUNTS, orjson.dumps(document)):
        metrics.add(counts)
