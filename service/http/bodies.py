"""Reading bodies: counted, of a known content type, and checked by a compiled validator."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from fastapi import Request
from starlette.requests import ClientDisconnect

from gcws_search.service import media_types
from gcws_search.service.errors import (
    BodyTooLarge,
    RequestTimeout,
    UnsupportedMediaType,
)
from gcws_search.service.execution.context import Guards, guards_of, header
from gcws_search.service.guards.admission import Admission
from gcws_search.service.http.timeouts import HAS_WHOLE_BODY
from gcws_search.service.media_types import UNSAID

_JSON_HEADER: Final = b"content-type", media_types.JSON.encode()


def media_type(request: Request) -> str:
    """Return the body's content type without its parameters, in lower case; "" when not said."""
    return (header(request, b"content-type") or "").partition(";")[0].strip().lower()


def is_plain_json(request: Request) -> bool:
    """Return whether a body is said to be JSON, in the usual words, and no coding is named."""
    is_json = False
    for field in request.scope["headers"]:
        if field == _JSON_HEADER:
            is_json = True
        elif field[0] == b"content-encoding":
            return False
    return is_json


def require_media_type(request: Request, *permitted: str) -> str:
    """Return the body's content type; one that is not said is taken to be the first permitted."""
    got = media_type(request) or permitted[0]
    if got not in permitted:
        raise UnsupportedMediaType(repr(got), permitted)
    return got


def stated_media_type(request: Request, *permitted: str, hint: str = "") -> str | None:
    """Return the body's content type; None where it says nothing of the body.

    Parameters
    ----------
    hint : str
        What to do with a body of another type.
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
    announced = header(request, b"content-length") or ""
    if announced.isdigit() and int(announced) > limit_bytes:
        raise BodyTooLarge(limit_bytes, hint=instead)


async def read(request: Request, limit_bytes: int, instead: str = "") -> bytes:
    """Return the whole body, counting what really arrives; ``instead`` is said of one too large.

    Raises
    ------
    BodyTooLarge
        At once when the announced length is above the limit, else when that many have arrived.
    RequestTimeout, Overloaded
    ClientDisconnect
    """
    guards: Guards = request.scope["app"].state.service
    if HAS_WHOLE_BODY in request.scope:  # no clock, which takes 6 µs
        return await _read_all(request, guards.admission, limit_bytes, instead)
    refuse_announced(request, limit_bytes, instead)
    seconds = guards.settings.body_seconds
    try:
        async with asyncio.timeout(seconds):
            return await _read_all(request, guards.admission, limit_bytes, instead)
    except TimeoutError:
        raise RequestTimeout(seconds) from None


async def _read_all(
    request: Request, admission: Admission, limit_bytes: int, instead: str
) -> bytes:
    """Return the whole body, without a clock; errors as of `read`."""
    chunks: list[bytes] = []
    received, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        received += len(chunk)
        if received > limit_bytes:
            raise BodyTooLarge(limit_bytes, hint=instead)
        if chunk:
            admission.hold(request.scope, len(chunk))
            chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def pieces(request: Request) -> AsyncIterator[bytes]:
    """Yield a body of any length as it comes.

    Raises
    ------
    RequestTimeout
        The next piece does not come.
    """
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
