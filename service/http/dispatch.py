"""From a request to its endpoint: FastAPI for all but queries and small writes.

Between a server and an endpoint the framework has eight calls of its own, which took a third of
the time of a small request. `JsonRoute` validates a body once where the stock route does so twice
(59 µs a request where that takes 136 µs, with 16 numbers); `Application` calls such routes at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import cached_property, partial
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from gcws_search.index import InvalidParameter
from gcws_search.service import json_bodies, media_types
from gcws_search.service.execution.context import Guards
from gcws_search.service.guards.admission import Admission
from gcws_search.service.http import bodies
from gcws_search.service.http.envelope import Envelope
from gcws_search.service.json_bodies import Model
from gcws_search.service.telemetry.metrics import Metrics

Endpoint = Callable[..., Awaitable[Response]]


class AnyTextConvertor(PathConvertor):
    """The rest of a path, at least a character, whatever it holds: ``path`` drops a line break."""

    regex = "(?s:.+)"


register_url_convertor("any_text", AnyTextConvertor())


class JsonRoute(APIRoute):
    """Calls ``endpoint(request, body, **path parameters)``; ``body`` is a checked model.

    The router's dependencies must be coroutine functions of the request alone; they run before the
    body is read. An endpoint without a ``body`` parameter reads the request itself. Parameters in
    the URL are refused.
    """

    @cached_property
    def answer(self) -> Callable[[Request], Awaitable[Response]]:
        """What answers a request."""
        return self.get_route_handler()

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return the handler of this route."""
        endpoint: Endpoint = self.endpoint
        model = endpoint.__annotations__.get("body")
        checks = [depends.dependency for depends in self.dependencies if depends.dependency]

        async def handle(request: Request) -> Response:
            for check in checks:
                await check(request)
            if request.scope["query_string"]:
                refuse_parameters(request)
            if model is None:
                return await endpoint(request=request, **request.path_params)
            body = await read_model(request, model)
            return await endpoint(request=request, body=body, **request.path_params)

        return handle


def refuse_parameters(request: Request) -> None:
    """Raise InvalidParameter when the URL has parameters."""
    for name in request.query_params:
        raise InvalidParameter(
            expected="no parameters in the URL", got="one of this name", loc=(name[:80],)
        )


async def read_model(request: Request, model: type[Model]) -> Model:
    """Return the request's JSON body as its model."""
    if not bodies.is_plain_json(request):
        bodies.require_media_type(request, media_types.JSON)
        bodies.require_plain(request)
    guards: Guards = request.scope["app"].state.service
    body = await bodies.read(request, guards.settings.max_body_bytes, model.instead)
    if len(body) > json_bodies.LONG_BYTES:
        return await guards.workers.parsing.run(json_bodies.parse, model, body, guards.limits)
    return json_bodies.parse(model, body, guards.limits)


class Application(FastAPI):
    """An application some of whose routes are called at once, all else through the framework.

    Parameters
    ----------
    direct : collection of JsonRoute
        Those that are called at once.
    more : object
        As FastAPI takes it.
    """

    def __init__(
        self,
        *,
        metrics: Metrics,
        admission: Admission,
        access_log: bool,
        direct: Collection[BaseRoute] = (),
        **more: Any,  # noqa: ANN401  # the framework's
    ) -> None:
        super().__init__(**more)
        envelope = partial(Envelope, metrics=metrics, admission=admission, access_log=access_log)
        self.add_middleware(envelope)
        self._enveloped = envelope(self._answer)
        self._direct = frozenset(map(id, direct))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the application's start and end."""
        if scope["type"] == "http" and scope["path"].endswith("/"):
            self._drop_slash(scope)
        route = self._direct_route(scope)
        # What is added to the application is for all routes, these too.
        if route is None or len(self.user_middleware) > 1:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        scope["route"] = route
        await self._enveloped(scope, receive, send)

    def _drop_slash(self, scope: Scope) -> None:
        """Take the slash off the end of a path, unless a route, such as that of an id, has it.

        A deletion keeps it: many clients make ``…/{name}/`` of ``…/{name}/items/..``, which was to
        delete one item, and not its collection.
        """
        if scope["method"] != "DELETE" and not any(
            route.matches(scope)[0] is Match.FULL for route in self.router.routes
        ):
            scope["path"] = scope["path"][:-1] or "/"

    def _direct_route(self, scope: Scope) -> JsonRoute | None:
        """Return the route the framework would choose, where that is called at once."""
        if scope["type"] != "http" or scope.get("root_path"):
            return None
        path, method = scope["path"], scope["method"]
        for route in self.router.routes:
            if not isinstance(route, APIRoute) or method not in (route.methods or ()):
                continue
            found = route.path_regex.match(path)
            if found is None:
                continue
            if id(route) not in self._direct or not isinstance(route, JsonRoute):
                return None
            path_params = found.groupdict()
            for name, convertor in route.param_convertors.items():
                path_params[name] = convertor.convert(path_params[name])
            scope["path_params"] = path_params
            return route
        return None

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        route: JsonRoute = scope["route"]
        try:
            response: Response = await route.answer(request)
        except Exception as error:
            response = await self._problem(request, error)
        await response(scope, receive, send)

    async def _problem(self, request: Request, error: Exception) -> Response:
        """Return the application's answer to an error; raise an error that it has none to."""
        for kind in type(error).__mro__:
            handler: Any = self.exception_handlers.get(kind)
            if handler is not None:
                found: Response = await handler(request, error)
                return found
        raise error
