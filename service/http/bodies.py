"""Reading bodies: counted, of a known content type, and checked by a compiled validator."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from gcws_search.index import InvalidParameter
from gcws_search.service import json_bodies
from gcws_search.service.errors import BodyTooLarge, RequestTimeout, UnsupportedMediaType
from gcws_search.service.execution.context import HEADERS, Guards, guards_of, header
from gcws_search.service.http.timeouts import HAS_WHOLE_BODY
from gcws_search.service.json_bodies import Model
from gcws_search.service.problems import invalid_request
from gcws_search.service.responses import JSON, UNSAID

_JSON = JSON.encode()
Params = TypeVar("Params", bound=BaseModel)


def media_type(request: Request) -> str:
    """Return the body's content type without its parameters, in lower case; "" when not said."""
    said: bytes = request.scope[HEADERS].get(b"content-type", b"")
    return said.decode("latin-1").partition(";")[0].strip().lower()


def require_media_type(request: Request, *permitted: str) -> None:
    """Raise UnsupportedMediaType where the body's content type is said, and not permitted."""
    got = media_type(request) or permitted[0]
    if got not in permitted:
        raise UnsupportedMediaType(repr(got), permitted)


def stated_media_type(request: Request, *permitted: str, hint: str = "") -> str | None:
    """Return the body's content type; None where it says nothing of the body.

    ``hint``: what to do with a body of another type.
    """
    got = media_type(request)
    if got in UNSAID:
        return None
    if got not in permitted:
        raise UnsupportedMediaType(repr(got), permitted, hint)
    return got


def require_plain(request: Request) -> None:
    """Raise UnsupportedMediaType when the body is compressed."""
    encoding = (header(request, b"content-encoding") or "").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMediaType(repr(encoding), ["a body without Content-Encoding"])


def refuse_announced(request: Request, limit_bytes: int, instead: str = "") -> None:
    """Raise BodyTooLarge when the announced length is above the limit."""
    announced = request.scope[HEADERS].get(b"content-length", b"")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise BodyTooLarge(limit_bytes, hint=instead)


def refuse_parameters(request: Request) -> None:
    """Raise InvalidParameter when the URL has parameters."""
    for name in request.query_params if request.scope["query_string"] else ():
        raise InvalidParameter(
            expected="no parameters in the URL", got="one of this name", loc=(name[:80],)
        )


def read_params(request: Request, model: type[Params]) -> Params:
    """Return the parameters in the URL; of one that is no list the last value counts."""
    given = request.query_params
    values: dict[str, str | list[str]] = {}
    for name in given:
        field = model.model_fields.get(name)
        is_list = field is not None and json_bodies.entry_annotation(field.annotation) is not None
        values[name] = given.getlist(name) if is_list else given[name]
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid_request(error, model, code="invalid_parameter") from None


async def read_model(request: Request, model: type[Model]) -> Model:
    """Return the request's JSON body as its model."""
    headers = request.scope[HEADERS]
    if headers.get(b"content-type") != _JSON or b"content-encoding" in headers:
        require_media_type(request, JSON)
        require_plain(request)
    guards: Guards = request.scope["app"].state.service
    body = await read(request, guards.settings.max_body_bytes, model.instead)
    if len(body) > json_bodies.LONG_BYTES:
        return await guards.workers.parsing.run(json_bodies.parse, model, body, guards.settings)
    return json_bodies.parse(model, body, guards.settings)


async def read(request: Request, limit_bytes: int, instead: str = "") -> bytes:
    """Return the whole body, counting what really arrives; ``instead`` is said of one too large.

    BodyTooLarge is raised at once when the announced length is above the limit, else when that many
    bytes have arrived.
    """
    guards: Guards = request.scope["app"].state.service
    chunks: list[bytes] = []
    received, more, deadline = 0, True, None
    seconds = guards.settings.body_seconds
    if HAS_WHOLE_BODY not in request.scope:  # else no clock, which takes 6 µs
        refuse_announced(request, limit_bytes, instead)
        deadline = asyncio.get_running_loop().time() + seconds
    while more:
        try:
            if deadline is None:
                message = await request.receive()
            else:
                async with asyncio.timeout_at(deadline):
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


async def pieces(request: Request) -> AsyncIterator[bytes]:
    """Yield a body of any length as it comes; RequestTimeout where the next piece does not."""
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
