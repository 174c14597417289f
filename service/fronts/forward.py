"""Whole HTTP requests, forwarded to the owner as streams in both directions."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

import httptools
from fastapi import Response
from starlette.types import Message, Receive, Scope, Send

from gcws_search.service import problems
from gcws_search.service.errors import OwnerUnavailable
from gcws_search.service.guards.admission import ALWAYS
from gcws_search.service.http.timeouts import BREAK_OFF
from gcws_search.service.responses import json_response
from gcws_search.service.telemetry import logs

COUNTED: Final = "gcws.counted"
"""In the scope of a request that the owner has answered, and counted."""
_PIECE_BYTES: Final = 1 << 16
_HOPS: Final = frozenset(
    {
        b"connection", b"keep-alive", b"transfer-encoding", b"te", b"trailer", b"upgrade",
        b"expect", b"x-request-id",
    }
)  # fmt: skip
"""Headers of requests that are of one connection, or that the front writes itself."""
_OWN: Final = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"date", b"x-request-id"}
)
"""The same of answers."""


def request_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request as the owner is to see them."""
    found = [(name, value) for name, value in scope["headers"] if name not in _HOPS]
    return [*found, (b"x-request-id", logs.request_id.get().encode())]


def answer_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of the owner's answer as the client is to see them."""
    return [(name, value) for name, value in headers if name.lower() not in _OWN]


class _Answer:
    """Parsed pieces of an answer, not yet sent; httptools calls its methods."""

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
    """The owner's answer to a request, which is forwarded as a stream; also an ASGI application.

    ``path`` is of the socket at which the owner speaks HTTP; ``body`` takes the place of one that
    has been read; ``changes`` are of the request's scope.
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
        """Answer; OwnerUnavailable where nothing has been answered."""
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
    """Return what a front says where there is no owner: it is alive, and not ready."""
    if path not in ALWAYS:
        return problems.response(error)
    if path == "/readyz":
        document = {"phase": "starting", "loaded": 0, "total": 0}
        return json_response(document, 503, headers={"Retry-After": "1"})
    return json_response({"status": "ok", "phase": "starting"})


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
    """Write the body as it comes, at the owner's pace, until the client disconnects.

    The connection ends with this, so that the owner knows too.
    """
    more = True
    try:
        while (message := await receive())["type"] != "http.disconnect":
            piece = message.get("body", b"")
            if not more or writer.is_closing():  # the owner has answered already
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
    """Stream the owner's answer to the client."""
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    has_started = False
    while not answer.is_complete:
        try:
            data = await reader.read(_PIECE_BYTES)
        except OSError:
            data = b""
        if not data:
            if feeder.done():  # the client has gone
                feeder.result()
                return
            if not has_started:
                raise OwnerUnavailable
            if BREAK_OFF in scope:
                scope[BREAK_OFF]()
            return
        parser.feed_data(data)
        if answer.has_head and not has_started:
            has_started = scope[COUNTED] = True
            headers = answer_headers(answer.headers)
            status = parser.get_status_code()
            await send({"type": "http.response.start", "status": status, "headers": headers})
        if scope["method"] == "HEAD" and has_started:
            break
        pieces, answer.pieces = answer.pieces, []
        if pieces and not answer.is_complete:
            await send(_body(pieces, more=True))
        elif answer.is_complete:
            await send(_body(pieces, more=False))
            return
    await send(_body([], more=False))


def _body(pieces: list[bytes], *, more: bool) -> Message:
    return {"type": "http.response.body", "body": b"".join(pieces), "more_body": more}
