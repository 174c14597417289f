"""What all server processes share: logs, a protocol with timeouts, tuning, first answers.

It imports little, so that a server listens early.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import resource
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import uuid4

import orjson
import uvicorn
from httptools import HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from gcws_search import index as ix
from gcws_search.service.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import Receive, Scope, Send

CYCLE: Final = "gcws.cycle"
"""Where a request's scope has a weak reference to the server's state of this request."""
HAS_BODY: Final = "gcws.has_body"
"""In a request's scope once all of its body has come."""
LAST_DESCRIPTORS: Final = "gcws.last_descriptors"
"""In a request's scope where its connection has one of the last file descriptors."""
_RESERVED: Final = 32
"""This many descriptors are for files and never for requests, ..."""
_SHARE_RESERVED: Final = 8
"""... or 1/_SHARE_RESERVED of all, when that is less."""
_KEEP_ALIVE_SECONDS: Final = 75
_MAX_ADDRESS_BYTES: Final = 65_535
"""The parser's own limit."""
STOP_SECONDS: Final = 10.0
"""A process whose requests have had their time may take this long to close its files."""
_LAST_SECONDS: Final = 1.0
"""A process that has closed its files waits this long for threads that still compute."""
_SWITCH_SECONDS: Final = 0.0001
"""How long a thread that computes in Python, as a load does, keeps the interpreter from others.
Python's default is 5 ms. Queries beside a load took 2.6 ms at p99 with 0.5 ms, and 1.9 ms so."""
_ALIVE: Final = ("/livez", "/healthz")
_JSON: Final = b"application/json"
_BODY: Final = orjson.dumps({"status": "ok", "phase": "starting"})
_PROBLEM: Final = b"application/problem+json"
_FAILED: Final = orjson.dumps(
    {
        "type": "urn:gcws:problem:not_ready",
        "title": "Service Unavailable",
        "status": 503,
        "detail": "the service could not start, and ends; its log says why",
        "code": "not_ready",
        "errors": [],
    }
)

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that is being served; "" outside of any."""
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_log = logging.getLogger(__name__)


class JsonLines(logging.Formatter):
    """Each line has ``time``, ``level``, ``logger``, ``message``, ``request_id``, ``error``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if found := request_id.get():
            line["request_id"] = found
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode(errors="replace")


def configure_logs(level: str, form: Literal["text", "json"]) -> None:
    """Write the log to the standard error stream."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _is_one_of_the_last(transport: asyncio.Transport) -> bool:
    """Whether a connection has a descriptor reserved for files; the lowest are used first."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    taken: int = transport.get_extra_info("socket").fileno()
    reserved = min(_RESERVED, limit // _SHARE_RESERVED)
    return limit != resource.RLIM_INFINITY and taken >= limit - reserved


class TimedProtocol(HttpToolsProtocol):
    """One connection; closed if a head is too long or slow, or if the client reads no answer.

    `server_options` creates its class with the settings.
    """

    settings: Settings

    def __init__(self, *arguments: Any, **more: Any) -> None:  # noqa: ANN401  # uvicorn's
        super().__init__(*arguments, **more)
        self.url, self.headers = b"", []
        self._head_bytes = 0
        self._reading_head = True
        self._waiting_for: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._has_heard = False
        self._is_one_of_the_last = False
        self._data = b""  # what is parsed now
        self._refusal = b""  # the last answer; whatever follows is discarded

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, unless there are too many."""
        super().connection_made(transport)
        self._is_one_of_the_last = _is_one_of_the_last(transport)
        if len(self.connections) > self.settings.max_connections:
            transport.abort()
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop(self._waiting_for)
        self._stop(self._sending)
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open for the answers to complete requests, up to `shutdown_seconds`.

        A client that has gone is not distinguishable from one that only stopped sending.
        """
        if self.cycle is None or self.cycle.response_complete or not self._reading_head:
            return False
        self.cycle.keep_alive = False
        self._stop(self._waiting_for)
        self._waiting_for = self.loop.call_later(self.settings.shutdown_seconds, self._give_up)
        return True

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a head, and start its timer unless they complete it."""
        if self._refusal:
            return
        self._has_heard = True
        self._head_bytes += len(data)
        self._data = data
        super().data_received(data)
        self._data = b""
        if not self._head_bytes or self._refusal:
            return
        if self._head_bytes > self.settings.max_header_bytes:
            self._refuse("", is_long=True)
        elif self._reading_head and self._waiting_for is None:
            self._expect_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; drop trailers, which follow a body."""
        if self._reading_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Restart the count of bytes that are not body: chunk extensions and trailers."""
        self._head_bytes = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Answer unreadable input with a problem that says why, and close the connection."""
        error = sys.exc_info()[1]
        cause = error and (error.__context__ or error)  # the parser's, or of one of its callbacks
        self._refuse(str(cause or msg), is_long=self._is_head_long())

    def on_headers_complete(self) -> None:
        """Stop the timer of the head."""
        if self._is_head_long():
            raise ValueError  # for `send_400_response`
        if self._offers_upgrade():
            return
        super().on_headers_complete()
        self._reading_head, self._head_bytes = False, 0
        self._stop(self._waiting_for)
        self._waiting_for = None
        cycle: RequestResponseCycle = self.cycle
        # Not the cycle itself: it refers to the scope, a reference cycle for the garbage collector.
        cycle.scope[CYCLE] = weakref.ref(cycle)  # type: ignore[typeddict-unknown-key]
        if self._is_one_of_the_last:
            cycle.scope[LAST_DESCRIPTORS] = True  # type: ignore[typeddict-unknown-key]
            cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """Prepare for the next head."""
        if self._offers_upgrade():
            return
        self._reading_head = True
        self._head_bytes = 0
        self.cycle.scope[HAS_BODY] = True  # type: ignore[typeddict-unknown-key]
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Let a client that still sends an unwanted body finish within a limited time."""
        is_last = not self.pipeline
        super().on_response_complete()
        if self._refusal and is_last:
            self.loop.call_soon(self._send_refusal)  # a `JsonResponse` is written a moment later
        elif not self._reading_head and not self.transport.is_closing():
            self._waiting_for = self.loop.call_later(self.settings.body_seconds, self._give_up)

    def pause_writing(self) -> None:
        """Start the timer of an answer that the client does not read."""
        super().pause_writing()
        self._expect_taking()

    def resume_writing(self) -> None:
        """Stop that timer."""
        self._stop(self._sending)
        super().resume_writing()

    def _offers_upgrade(self) -> bool:
        """Whether a head offers another protocol, as those of curl and Java offer HTTP/2."""
        names = (name for name, _ in self.headers)
        return self.parser.should_upgrade() and b"upgrade" in names

    def _unsupported_upgrade_warning(self) -> None:
        """Read a head again without its offer: the parser takes what follows for no body."""
        error = sys.exc_info()[1]
        behind = self._data[error.args[0] :] if isinstance(error, HttpParserUpgrade) else b""
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/1.1"]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        self._data = b"\r\n".join([*lines, b"", behind])
        super().data_received(self._data)

    def _is_head_long(self) -> bool:
        """Whether what the parser has read of a head is too long; bytes behind it are body."""
        most = self.settings.max_header_bytes
        if not self._reading_head or self._head_bytes <= min(most, _MAX_ADDRESS_BYTES):
            return False
        head = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        return head > most or len(self.url) > _MAX_ADDRESS_BYTES

    def _refuse(self, reason: str, *, is_long: bool) -> None:
        """Refuse input that is not a request, after the requests before it, and read no more."""
        # A server listens before it imports these.
        from gcws_search.service import errors, problems  # noqa: PLC0415

        most = self.settings.max_header_bytes
        code: errors.Refusal = "malformed_request"
        detail = f"expected a request of HTTP/1.1, got one that cannot be read: {reason}"
        if is_long and len(self.url) > min(most, _MAX_ADDRESS_BYTES) // 2:
            most, code = min(most, _MAX_ADDRESS_BYTES), "uri_too_long"
            detail = f"expected an address that fits into {most} bytes, got a longer one"
        elif is_long:
            code = "headers_too_large"
            detail = f"expected an address and headers of at most {most} bytes, got more"
        answer = problems.response(errors.Refused(code, detail))
        own = (b"connection", b"close"), (b"x-request-id", uuid4().hex.encode())
        lines = [name + b": " + value for name, value in (*answer.raw_headers, *own)]
        status = STATUS_LINE[answer.status_code]
        is_next = self.cycle is None or self.cycle.response_complete
        if not self._reading_head:  # the input is in the body of the last request
            if self.cycle.response_started:
                self.transport.close()
                return
            if self.pipeline:
                self.pipeline.popleft()
            else:
                self.cycle.disconnected = is_next = True
                self.cycle.message_event.set()
        self._refusal = status + b"\r\n".join([*lines, b"", bytes(answer.body)])
        if is_next:
            self._send_refusal()

    def _send_refusal(self) -> None:
        """Send the last answer; discard what still arrives: a reset could overtake the answer."""
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self.transport.write(self._refusal)
        self.transport.write_eof()
        self._stop(self._waiting_for)
        self._expect_head()

    def _expect_head(self) -> None:
        self._waiting_for = self.loop.call_later(self.settings.header_seconds, self._give_up)

    def _expect_taking(self) -> None:
        self._has_heard = False
        self._sending = self.loop.call_later(self.settings.send_seconds, self._look_at_taking)

    def _look_at_taking(self) -> None:
        """Close unless the client still sends its body: many read no answer before its end."""
        is_sending = not self._reading_head and (self._has_heard or self.flow.read_paused)
        if is_sending:
            self._expect_taking()
        else:
            self._give_up()

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()

    @staticmethod
    def _stop(clock: asyncio.TimerHandle | None) -> None:
        if clock is not None:
            clock.cancel()


class HttpServer(uvicorn.Server):
    """A server whose process ends in time after SIGTERM or SIGINT.

    Threads that still compute are cut off. Nothing is lost: acknowledged writes are on the disk.
    """

    _is_told = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; end the process if that takes too long."""
        if not self._is_told:
            self._is_told = True
            _end_process_after((self.config.timeout_graceful_shutdown or 0) + STOP_SECONDS)
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and print the address, unless other processes do so."""
        await super().startup(sockets)
        for each in self._told_sockets(sockets):
            _log.info("listening on %s; Ctrl-C stops it", place_of(each.getsockname()))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; then wait only briefly for threads that compute."""
        if self._told_sockets(sockets):
            _log.info("stopping; requests under way are answered first")
        await super().shutdown(sockets)
        if self._is_told:
            _end_process_after(_LAST_SECONDS)

    def _told_sockets(self, given: list[socket.socket] | None) -> Sequence[Any]:
        """Return the sockets that only this process announces, and that users can reach."""
        return () if given or self.config.uds else self.servers[0].sockets


def place_of(address: tuple[Any, ...]) -> str:
    """Return the address of a socket in the usual notation."""
    return f"{address[0]}, port {address[1]}"


def _end_process_after(seconds: float) -> None:
    def end() -> None:
        _log.warning("the process ends beside work that would not stop; no file is harmed")
        logging.shutdown()
        os._exit(0)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def tune_process() -> None:
    """Configure the interpreter, its libraries and the process for serving."""
    allow_descriptors()
    sys.setswitchinterval(_SWITCH_SECONDS)
    # Modules stay, and traversing them in each full collection stops all answers for 60 ms. They
    # are not collected first: of 400,000 objects only a thousand are garbage.
    gc.freeze()
    # A batch of queries makes 20,000 objects: collecting after every 700 took a third of its time.
    gc.set_threshold(50_000, 20, 20)
    ix.limit_blas.__enter__()  # permanently: nothing else in the process multiplies matrices


def server_options(settings: Settings) -> dict[str, Any]:
    """Return uvicorn's options except the address."""
    return {
        # `HttpServer` logs start and stop.
        "log_level": "warning" if settings.log_level == "info" else settings.log_level,
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_keep_alive": _KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": settings.shutdown_seconds,
        "http": type("TimedProtocol", (TimedProtocol,), {"settings": settings}),
        "ws": "none",
        "proxy_headers": False,  # nothing here uses the client's address
    }


def allow_descriptors() -> None:
    """Raise the limit of open files and connections to the system's maximum."""
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):  # some systems report a limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def require_address(settings: Settings) -> None:
    """Raise OSError if the server cannot listen, before the data directory is locked."""
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in found:
            try:
                trial = socket.socket(family)
            except OSError:  # a family that the system lacks: the server skips it
                continue
            with trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(address)
            return
    except OSError as error:
        told = f"cannot listen on {settings.host}, port {settings.port}: {error.strerror or error}"
        is_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
        advice = "--port chooses another one" if is_port else "--host chooses another address"
        raise OSError(f"{told}; {advice}") from None


class StartingApplication:
    """ASGI: opens an application in a thread, and then passes all requests to it.

    ``error``: why the application could not be opened.
    """

    def __init__(self, open_application: Callable[[], FastAPI]) -> None:
        self._open_application = open_application
        self._application: FastAPI | None = None
        self._server: uvicorn.Server | None = None
        self._tried = asyncio.Event()
        self.error: Exception | None = None

    def stop_on_failure(self, server: uvicorn.Server) -> None:
        """Set the server to stop if the application cannot be opened."""
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if self._application is not None:
            await self._application(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["path"] in _ALIVE and scope["method"] in {"GET", "HEAD"}:
            await _answer(send, 200, _JSON, _BODY)
        else:
            await self._tried.wait()
            if self._application is None:
                await _answer(send, 503, _PROBLEM, _FAILED)
            else:
                await self._application(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Open the application once the server listens; close it when the server stops."""
        await receive()
        async with AsyncExitStack() as living:
            opening = asyncio.create_task(self._open(living))
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await opening
        await send({"type": "lifespan.shutdown.complete"})

    async def _open(self, living: AsyncExitStack) -> None:
        try:
            opened = await asyncio.to_thread(self._open_application)
            await living.enter_async_context(opened.router.lifespan_context(opened))
            self._application = opened
        except Exception as error:  # the caller of the server reports it
            self.error = error
            if self._server is not None:
                self._server.should_exit = True
        finally:
            self._tried.set()


async def _answer(send: Send, status: int, content_type: bytes, body: bytes) -> None:
    headers = [
        (b"content-type", content_type),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", uuid4().hex.encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
