"""From a request to its endpoint and back: the parts of the service, keys, bodies, dispatch.

FastAPI describes all routes, and calls those that do not use JSON. The framework makes eight calls
between server and endpoint, a third of the time of a small request. `JsonRoute` validates a body
once, the stock route twice (59 µs and 136 µs per request with 16 numbers). `Application` calls a
`JsonRoute` directly.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from email.message import EmailMessage
from functools import lru_cache
from inspect import signature
from typing import Annotated, Any, Final, TypeVar, get_args
from urllib.parse import unquote_to_bytes

import orjson
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.params import Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError, create_model
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gcws_search import index as ix
from gcws_search.service import models, problems
from gcws_search.service.contract import RouterProtocol, SearchesProtocol
from gcws_search.service.errors import (
    BodyTooLarge,
    Refused,
    RequestTimeout,
    Stopping,
    require_place,
    unsupported,
)
from gcws_search.service.ingest.job import Loads
from gcws_search.service.keys import ApiKeys, Permission, is_local
from gcws_search.service.limits import Admission, Room
from gcws_search.service.metrics import Metrics
from gcws_search.service.models import Model
from gcws_search.service.pools import AwaitedWrites, Pools
from gcws_search.service.responses import JSON, JSON_OPTIONS, UNSAID
from gcws_search.service.server import CYCLE, HAS_BODY, request_id
from gcws_search.service.settings import NUMBERS, Settings
from gcws_search.service.startup import Startup

HEADERS: Final = "gcws.headers"
"""Where a request's scope has its headers by name, the first of each: a look-up, not a search."""
_REQUEST_ID: Final = b"x-request-id"
_PERMITTED: Final = re.compile(rb"[\x21-\x7e]{1,128}")
_PATH_SHOWN: Final = 500
_JSON: Final = JSON.encode()
_draw: Final = random.Random()  # seeded by the system; names need not be secret
_log = logging.getLogger(__name__)
_access = logging.getLogger("gcws_search.service.access")

Params = TypeVar("Params", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Guards:
    """Parts of every process that accepts requests."""

    settings: Settings
    workers: Pools
    metrics: Metrics
    keys: ApiKeys
    admission: Admission


@dataclass(frozen=True, slots=True)
class Service(Guards):
    """The parts of a running application; ``cluster`` is None on one machine."""

    startup: Startup
    collections: ix.Catalog
    searches: SearchesProtocol
    cluster: RouterProtocol | None
    awaited: AwaitedWrites
    room: Room
    loads: Loads

    @property
    def catalog(self) -> ix.Catalog:
        """The catalog; Refused until the kernels to store and scan items are compiled."""
        self.startup.require_basics()
        return self.collections

    def collection(self, name: str) -> ix.StoredCollection:
        """Return a collection.

        Raises Refused (during the start), CollectionNotFound, CollectionLoading, DamagedFile.
        """
        if self.startup.is_compiled:
            return self.collections.get(name)
        found = self.catalog.get(name)
        self.startup.require_basics(found.config.form)
        return found

    def create(self, name: str, config: ix.CollectionConfig) -> tuple[ix.StoredCollection, bool]:
        """Return the collection of this name, and whether it was created by this call; any thread.

        Raises Refused (during the start, or no room), InvalidParameter, CollectionExists,
        CollectionBusy, CollectionLoading, DamagedFile, DiskFull.
        """
        self.startup.require_basics(config.form)
        return self.collections.create(name, config, admit=self.require_place)

    def require_place(self, others: int) -> None:
        """Raise Refused if ``others`` leave no room for a new collection."""
        self.room.require()
        require_place(others, self.settings.max_collections)


def guards_of(request: Request) -> Guards:
    """Return the guards of the application that serves this request."""
    guards: Guards = request.scope["app"].state.service
    return guards


def service_of(request: Request) -> Service:
    """Return the parts of the application that serves this request."""
    service: Service = request.scope["app"].state.service
    return service


def collection_of(request: Request, name: str) -> ix.StoredCollection:
    """Return the collection of this name; raises the errors of `Service.collection`."""
    return service_of(request).collection(name)


ServiceOf = Annotated[Service, Depends(service_of)]
CollectionOf = Annotated[ix.StoredCollection, Depends(collection_of)]
"""The collection that the path names, once the body has been read."""


def header(request: Request, name: bytes) -> str | None:
    """Return a header by its lower-case name; None if it is missing."""
    value: bytes | None = request.scope[HEADERS].get(name)
    return None if value is None else value.decode("latin-1")


def _key_of(request: Request) -> str | None:
    scheme, _, token = (header(request, b"authorization") or "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return header(request, b"x-api-key") or None


def permission_of(request: Request) -> Permission:
    """Return the permission of a request's key; raises Refused."""
    return guards_of(request).keys.permission(_key_of(request))


async def may_read(request: Request) -> None:
    """Raise Refused unless the request may read."""
    guards: Guards = request.scope["app"].state.service
    if guards.keys.are_set:
        guards.keys.check(_key_of(request), writes=False)
        return
    headers = request.scope[HEADERS]
    host, origin = headers.get(b"host"), headers.get(b"origin")
    if host is not None and not guards.settings.allow_no_key:
        name = host.decode("latin-1")
        if not is_local(name):
            raise Refused(
                "host_refused",
                "expected a request to localhost, an IP address or a name without dots, as no key "
                f"is set, got one to {name[:80]!r} (a key or GCWS_ALLOW_NO_KEY=true permits it)",
            )
    # A page from elsewhere, in a browser on this machine, needs no key here, but has an origin.
    # Browsers report whether a page is of this service, also if a proxy changes the host.
    if origin is None or headers.get(b"sec-fetch-site") == b"same-origin":
        return
    if origin.partition(b"://")[2] != host:
        site = origin.decode("latin-1")[:80]
        expected = "expected a request of no page, or of this service's own"
        raise Refused("origin_refused", f"{expected}, got one of {site!r}")


async def may_write(request: Request) -> None:
    """Raise Refused unless the request may write."""
    guards: Guards = request.scope["app"].state.service
    if guards.keys.are_set:
        guards.keys.check(_key_of(request), writes=True)
    else:  # everybody who may connect may write
        await may_read(request)


def media_type(request: Request) -> str:
    """Return the body's content type without parameters, in lower case; "" if it is missing."""
    said: bytes = request.scope[HEADERS].get(b"content-type", b"")
    return said.decode("latin-1").partition(";")[0].strip().lower()


def charset(request: Request) -> str | None:
    """Return the charset of the body's content type; None without one."""
    said = EmailMessage()
    said["content-type"] = header(request, b"content-type") or ""
    return said.get_content_charset()


def require_media_type(request: Request, *permitted: str) -> None:
    """Raise Refused if the body has a content type that is not permitted."""
    got = media_type(request) or permitted[0]
    if got not in permitted:
        raise unsupported(repr(got), permitted)


def stated_media_type(request: Request, *permitted: str, hint: str = "") -> str | None:
    """Return the body's content type; None if it is missing or unspecific.

    ``hint``: what to do with a body of another type.
    """
    got = media_type(request)
    if got in UNSAID:
        return None
    if got not in permitted:
        raise unsupported(repr(got), permitted, hint)
    return got


def require_utf8(raw: bytes, where: str) -> None:
    """Raise InvalidParameter if the path or query of a URL is not UTF-8."""
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        got = repr(raw.decode("latin-1"))[:_PATH_SHOWN]
        raise ix.InvalidParameter(
            expected="UTF-8, percent-encoded", got=got, loc=(where,)
        ) from None


def require_plain(request: Request) -> None:
    """Raise Refused if the body is compressed."""
    encoding = (header(request, b"content-encoding") or "").strip().lower()
    if encoding not in ("", "identity"):
        raise unsupported(repr(encoding), ["a body without Content-Encoding"])


def refuse_announced(request: Request, limit_bytes: int, instead: str = "") -> None:
    """Raise BodyTooLarge if the announced length exceeds the limit."""
    announced = request.scope[HEADERS].get(b"content-length", b"")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise BodyTooLarge(limit_bytes, hint=instead)


def refuse_parameters(request: Request) -> None:
    """Raise InvalidParameter if the URL has parameters."""
    for name in request.query_params if request.scope["query_string"] else ():
        raise ix.InvalidParameter(
            expected="no parameters in the URL", got="one of this name", loc=(name[:80],)
        )


def read_params(request: Request, model: type[Params]) -> Params:
    """Return the parameters of the URL; InvalidParameter if one that is no list is repeated."""
    if not request.scope["query_string"]:
        defaults: Params = _default_params(model)
        return defaults
    given = request.query_params
    values: dict[str, str | list[str]] = {}
    for name in given:
        field = model.model_fields.get(name)
        is_list = field is not None and models.entry_annotation(field.annotation) is not None
        found = given.getlist(name)
        if not is_list and len(found) > 1:
            raise ix.InvalidParameter(
                expected="one value", got=f"{len(found)} values", loc=(name[:80],)
            )
        annotation = None if field is None else field.annotation
        for kind, (pattern, expected) in NUMBERS.items():
            if kind in (annotation, *get_args(annotation)) and not pattern.fullmatch(found[0]):
                raise ix.InvalidParameter(expected=expected, got=f"{found[0]!r:.80}", loc=(name,))
        values[name] = found if is_list else found[0]
        if any("\ufffd" in each for each in (name, *found)):  # replaces bytes that are no text
            require_utf8(request.scope["query_string"], name[:80])
    return _params_of(model, values)


def _params_of(model: type[Params], values: dict[str, str | list[str]]) -> Params:
    try:
        return model.model_validate(values, extra="forbid")
    except ValidationError as error:
        raise problems.invalid_request(error, model, code="invalid_parameter") from None


@lru_cache
def _default_params(model: type[Params]) -> Params:
    return _params_of(model, {})


async def read_model(request: Request, model: type[Model]) -> Model:
    """Return the request's JSON body as a model."""
    headers = request.scope[HEADERS]
    if headers.get(b"content-type") != _JSON or b"content-encoding" in headers:
        require_media_type(request, JSON)
        require_plain(request)
    guards: Guards = request.scope["app"].state.service
    body = await read_body(request, guards.settings.max_body_bytes, model.instead)
    if len(body) > models.LONG_BYTES:
        return await guards.workers.parsing.run(models.parse, model, body, guards.settings)
    return models.parse(model, body, guards.settings)


async def read_body(request: Request, limit_bytes: int, instead: str = "") -> bytes:
    """Return the whole body, counting the received bytes; ``instead`` is part of the error.

    BodyTooLarge is raised at once if the announced length exceeds the limit, else once more bytes
    have arrived.
    """
    guards: Guards = request.scope["app"].state.service
    chunks: list[bytes] = []
    received, more, seconds = 0, True, guards.settings.body_seconds
    refuse_announced(request, limit_bytes, instead)
    deadline = asyncio.get_running_loop().time() + seconds
    while more:
        try:
            # Starting a timer takes longer than this read, and most bodies arrive with their heads.
            async with nullcontext() if HAS_BODY in request.scope else asyncio.timeout_at(deadline):
                message = await request.receive()
        except TimeoutError:
            raise RequestTimeout(seconds) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        received += len(chunk)
        if received > limit_bytes:
            raise BodyTooLarge(limit_bytes, hint=instead)
        if chunk:
            guards.admission.hold(request.scope, len(chunk))
            chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def body_pieces(request: Request) -> AsyncIterator[bytes]:
    """Yield a body of any length as it arrives; RequestTimeout if the next piece is late."""
    seconds = guards_of(request).settings.body_seconds
    stream = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(seconds):
                piece = await anext(stream, None)
        except TimeoutError:
            raise RequestTimeout(seconds) from None
        if piece is None:
            return
        yield piece


def break_off(scope: Scope) -> None:
    """Close the connection of a request without completing its answer."""
    cycle: RequestResponseCycle | None = scope[CYCLE]() if CYCLE in scope else None
    if cycle is not None:
        cycle.disconnected = True  # nothing more is sent, and no error is logged
        if not cycle.transport.is_closing():
            cycle.transport.abort()


class JsonResponse(Response):
    """A value as a JSON answer with a precomputed head."""

    def __init__(self, value: object, status: int = 200) -> None:
        self.status_code = status
        self.body = orjson.dumps(value, option=JSON_OPTIONS)
        self.background = None
        self.raw_headers = [(b"content-length", b"%d" % len(self.body)), (b"content-type", _JSON)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send head and body as one packet: two would wake the client twice.

        For a connection that stays open this does at once what the server does with the two.
        """
        cycle: RequestResponseCycle | None = scope[CYCLE]() if CYCLE in scope else None
        is_usual = cycle is not None and cycle.keep_alive and not cycle.flow.write_paused
        # A different `send` belongs to middleware, or to a route that the framework calls.
        if cycle is None or not is_usual or send != cycle.send or cycle.scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        if cycle.disconnected:
            return
        head = [STATUS_LINE[self.status_code]]
        for name, value in (*cycle.default_headers, *self.raw_headers):
            head += name, b": ", value, b"\r\n"
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write(b"".join((*head, b"\r\n", self.body)))
        cycle.message_event.set()
        cycle.on_response()


class AnyTextConvertor(PathConvertor):
    """The rest of a path, at least one character; unlike ``path`` it accepts line breaks."""

    regex = "(?s:.+)"


register_url_convertor("any_text", AnyTextConvertor())


class JsonRoute(APIRoute):
    """Calls ``endpoint(**path parameters)``, and adds other parameters that it names.

    These are ``request``; ``service``, its parts; ``params``, read from the URL, or each `Query`
    separately; ``body``, read from the request; and the ``collection`` that the path names. Other
    URL parameters are refused, unless the endpoint reads the whole body and URL itself.
    The router's dependencies must be coroutine functions of the request alone; they run first.
    """

    answer: Callable[[Request], Awaitable[Response]]

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return the handler of this route."""
        endpoint: Callable[..., Awaitable[Response]] = self.endpoint
        named = endpoint.__annotations__
        [params] = get_args(named.get("params"))[:1] or [None]
        each = signature(endpoint).parameters.values()
        fields: Any = {
            one.name: (one.annotation, one.default)
            for one in each
            if params is None and isinstance([one, *get_args(one.annotation)][-1], Query)
        }
        queried = create_model(endpoint.__name__, **fields) if fields else None
        checks = [depends.dependency for depends in self.dependencies if depends.dependency]
        reads_all = self.methods == {"POST"} and "request" in named and "body" not in named

        async def handle(request: Request) -> Response:
            for check in checks:
                await check(request)
            service: Service = request.scope["app"].state.service
            arguments = {**request.path_params}
            if "\ufffd" in request.scope["path"]:  # as in `read_params`
                require_utf8(request.scope["raw_path"], "path")
            if "request" in named:
                arguments["request"] = request
            if "service" in named:
                arguments["service"] = service
            if params is not None:
                arguments["params"] = read_params(request, params)
            elif queried is not None:
                arguments |= vars(read_params(request, queried))
            elif not reads_all and request.scope["query_string"]:
                refuse_parameters(request)
            if "body" in named:
                arguments["body"] = await read_model(request, named["body"])
            if "collection" in named:
                arguments["collection"] = service.collection(arguments.pop("name"))
            return await endpoint(**arguments)

        self.answer = handle
        return handle


def json_router(
    prefix: str,
    tag: str,
    check: Callable[[Request], Awaitable[None]],
    declared: dict[int | str, dict[str, Any]],
) -> APIRouter:
    """Return a router of `JsonRoute`s that have a dependency, and declare some problems."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        dependencies=[Depends(check)],
        responses=declared,
        route_class=JsonRoute,
    )


class Application(FastAPI):
    """Calls a `JsonRoute` directly, and other routes through the framework.

    Adds ``X-Request-Id``, counts and times requests, and answers every exception.
    """

    def __init__(
        self,
        *,
        metrics: Metrics,
        admission: Admission,
        access_log: bool,
        **more: Any,  # noqa: ANN401  # the framework's
    ) -> None:
        super().__init__(**more)
        self._metrics = metrics
        self._admission = admission
        self._access_log = access_log
        problems.install(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the application's start and end."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        if scope["path"].endswith("/"):
            self._drop_slash(scope)
        is_head = scope["method"] == "HEAD" and not self._has_route(scope)
        if is_head:  # handled as GET; the server drops the body
            scope = {**scope, "method": "GET"}
        scope[HEADERS] = dict(reversed(scope["headers"]))  # the first of equal names counts
        given = scope[HEADERS].get(_REQUEST_ID, b"")
        # Reading system randomness each time would hand the interpreter to other threads.
        sent_id = given if _PERMITTED.fullmatch(given) else b"%032x" % _draw.getrandbits(128)
        request_id.set(sent_id.decode())
        status, start = 0, time.perf_counter()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (_REQUEST_ID, sent_id)]
            await send(message)

        try:
            try:
                self._admission.enter(scope)
                route = self.find_route(scope)
                if route is None:
                    await super().__call__(scope, receive, send_with_id)
                    return
                scope["app"], scope["route"] = self, route
                response = await route.answer(Request(scope, receive, send))
            except Exception as error:
                response = await problems.answer(Request(scope), error)
            if is_head and isinstance(response, StreamingResponse):
                response.body_iterator = _first_piece(response.body_iterator)
            if isinstance(response, JsonResponse):  # sent without the framework
                status = response.status_code
                response.raw_headers.append((_REQUEST_ID, sent_id))
                await response(scope, receive, send)
            else:
                await response(scope, receive, send_with_id)
        except (asyncio.CancelledError, Exception) as error:
            found = _unforeseen(scope, error, is_begun=bool(status))
            if not status:
                await problems.response(found)(scope, receive, send_with_id)
        finally:
            self._admission.leave(scope)
            seconds = time.perf_counter() - start
            self._metrics.observe(scope, status, seconds)
            if self._access_log:
                # Without the query string: a key put there by mistake is not logged.
                path = scope["path"][:_PATH_SHOWN]
                method = "HEAD" if is_head else scope["method"]
                _access.info("%s %r %d in %.6f s", method, path, status, seconds)

    def find_route(self, scope: Scope) -> JsonRoute | None:
        """Return the route that the framework would choose, if it is called directly.

        Added middleware concerns all routes: then none is called directly.
        """
        if self.user_middleware or scope.get("root_path"):
            return None
        path, method = scope["path"], scope["method"]
        for route in self.router.routes:
            if not isinstance(route, APIRoute) or method not in (route.methods or ()):
                continue
            found = route.path_regex.match(path)
            if found is not None:
                scope["path_params"] = found.groupdict()  # all are texts
                return route if isinstance(route, JsonRoute) else None
        return None

    def _drop_slash(self, scope: Scope) -> None:
        """Remove the slash at the end of a path, unless a route, such as that of an id, has it.

        A deletion keeps it: many clients normalize ``…/{name}/items/..`` to ``…/{name}/``, and
        would delete the collection instead of one item.
        """
        if scope["method"] != "DELETE" and not self._has_route(scope):
            scope["path"] = scope["path"][:-1] or "/"

    def _has_route(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] is Match.FULL for route in self.router.routes)


async def _first_piece(pieces: Any) -> AsyncIterator[Any]:  # noqa: ANN401  # of Starlette
    """Yield the first piece of a body, and close the source of the others."""
    yield await anext(pieces, b"")
    await pieces.aclose()


def _unforeseen(scope: Scope, error: BaseException, *, is_begun: bool) -> Exception:
    """Return the error of a request that no route expected; re-raise our own cancellation."""
    if isinstance(error, Exception):
        found = problems.own_error(error)
        # Without descriptors the files of the traceback cannot be read.
        trace = None if isinstance(found, ix.OutOfDescriptors) else error
        told = request_id.get(), scope["method"], scope["path"], error
        _log.error("request %s: %s %s failed (%r)", *told, exc_info=trace)
        return found
    if CYCLE not in scope:
        raise error
    # The server cancels requests that run when its time to stop is over, and logs it.
    if is_begun:
        break_off(scope)
    return Stopping()
