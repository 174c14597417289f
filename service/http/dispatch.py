"""From a request to its endpoint: FastAPI describes all routes, and calls those that are no JSON.

Between a server and an endpoint the framework has eight calls of its own, which took a third of
the time of a small request. `JsonRoute` validates a body once where the stock route does so twice
(59 µs a request where that takes 136 µs, with 16 numbers); `Application` calls such routes at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, get_args

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send

from gcws_search.index import OutOfDescriptors
from gcws_search.service import problems
from gcws_search.service.errors import Stopping
from gcws_search.service.execution.context import HEADERS
from gcws_search.service.guards.admission import Admission
from gcws_search.service.http import bodies
from gcws_search.service.http.timeouts import BREAK_OFF
from gcws_search.service.responses import JsonResponse
from gcws_search.service.telemetry import logs
from gcws_search.service.telemetry.metrics import Metrics

_REQUEST_ID: Final = b"x-request-id"
_PERMITTED: Final = re.compile(rb"[\x21-\x7e]{1,128}")
_PATH_SHOWN: Final = 500
_draw: Final = random.Random()  # seeded by the system; names need not be secret
_log = logging.getLogger(__name__)
_access = logging.getLogger("gcws_search.service.access")


class AnyTextConvertor(PathConvertor):
    """The rest of a path, at least a character, whatever it holds: ``path`` drops a line break."""

    regex = "(?s:.+)"


register_url_convertor("any_text", AnyTextConvertor())


class JsonRoute(APIRoute):
    """Calls ``endpoint(request, **path parameters)``, and hands it the models that it names.

    ``body`` is read from the request, ``params`` from the URL. Other parameters in the URL are
    refused, unless the route describes a body of its own: then the endpoint reads all.
    The router's dependencies must be coroutine functions of the request alone; they run first.
    """

    answer: Callable[[Request], Awaitable[Response]]

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return the handler of this route."""
        endpoint: Callable[..., Awaitable[Response]] = self.endpoint
        model = endpoint.__annotations__.get("body")
        [params] = get_args(endpoint.__annotations__.get("params"))[:1] or [None]
        checks = [depends.dependency for depends in self.dependencies if depends.dependency]
        reads_all = self.openapi_extra is not None

        async def handle(request: Request) -> Response:
            for check in checks:
                await check(request)
            arguments = request.path_params
            if params is not None:
                arguments = {**arguments, "params": bodies.read_params(request, params)}
            elif not reads_all and request.scope["query_string"]:
                bodies.refuse_parameters(request)
            if model is not None:
                body = await bodies.read_model(request, model)
                return await endpoint(request=request, body=body, **arguments)
            return await endpoint(request=request, **arguments)

        self.answer = handle
        return handle


def json_router(
    prefix: str,
    tag: str,
    check: Callable[[Request], Awaitable[None]],
    declared: dict[int | str, dict[str, Any]],
) -> APIRouter:
    """Return a router of `JsonRoute`s that have a check, and declare some problems."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        dependencies=[Depends(check)],
        responses=declared,
        route_class=JsonRoute,
    )


class Application(FastAPI):
    """Calls a `JsonRoute` at once, and all else through the framework.

    It adds ``X-Request-Id``, counts and times, and lets no exception through.
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
        headers = scope[HEADERS] = dict(reversed(scope["headers"]))  # the first of a name counts
        given = headers.get(_REQUEST_ID, b"")
        # Asking the system for each would let other threads have the interpreter first.
        request_id = given if _PERMITTED.fullmatch(given) else b"%032x" % _draw.getrandbits(128)
        logs.request_id.set(request_id.decode())
        status, start = 0, time.perf_counter()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (_REQUEST_ID, request_id)]
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
            if isinstance(response, JsonResponse):  # needs nobody between
                status = response.status_code
                response.raw_headers.append((_REQUEST_ID, request_id))
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
                # Without the query string: a key that was put there by mistake is not kept.
                path = scope["path"][:_PATH_SHOWN]
                _access.info("%s %r %d in %.6f s", scope["method"], path, status, seconds)

    def find_route(self, scope: Scope) -> JsonRoute | None:
        """Return the route that the framework would choose, where it is called at once.

        Middleware that somebody adds is for all routes: then none is.
        """
        if self.user_middleware or scope.get("root_path"):
            return None
        path, method = scope["path"], scope["method"]
        for route in self.router.routes:
            if not isinstance(route, APIRoute) or method not in (route.methods or ()):
                continue
            found = route.path_regex.match(path)
            if found is not None:
                scope["path_params"] = found.groupdict()  # all of them are texts
                return route if isinstance(route, JsonRoute) else None
        return None

    def _drop_slash(self, scope: Scope) -> None:
        """Take the slash off the end of a path, unless a route, such as that of an id, has it.

        A deletion keeps it: many clients make ``…/{name}/`` of ``…/{name}/items/..``, which was to
        delete one item, and not its collection.
        """
        if scope["method"] != "DELETE" and not any(
            route.matches(scope)[0] is Match.FULL for route in self.router.routes
        ):
            scope["path"] = scope["path"][:-1] or "/"


def _unforeseen(scope: Scope, error: BaseException, *, is_begun: bool) -> Exception:
    """Return what ended a request that no route foresaw; raise a cancellation of our own."""
    if isinstance(error, Exception):
        found = problems.listed(error)
        # Without descriptors even the traceback's files cannot be read.
        trace = None if isinstance(found, OutOfDescriptors) else error
        told = logs.request_id.get(), scope["method"], scope["path"], error
        _log.error("request %s: %s %s failed (%r)", *told, exc_info=trace)
        return found
    if BREAK_OFF not in scope:
        raise error
    # The server cancels what has not ended when its time to stop is over, and says so.
    if is_begun:
        scope[BREAK_OFF]()
    return Stopping()
