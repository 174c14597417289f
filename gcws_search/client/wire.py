"""HTTP/1.1 for plain ``http://``: sockets, and answers parsed by llhttp.

A request takes 0.05 ms of processor time, and 0.7 ms with httpx. Requests with TLS, a proxy, or a
user in the address use httpx.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from httptools import HttpParserError, HttpResponseParser

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter, Task

CONNECT_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 5.0
"""After so long a server, or a proxy before it, may be closing a connection."""
_MAX_IDLE: Final = 20
_READ_BYTES: Final = 1 << 18
_JOINED_BYTES: Final = 1 << 16
"""Up to this size a body is sent in one piece with its head."""
_CLOSED: Final = "the connection was closed without an answer"
_CHUNKED: Final = "Transfer-Encoding: chunked\r\n"


class Unreachable(Exception):
    """No answer came: there is no connection, or it broke.

    is_sent: whether the request may have been served.
    """

    def __init__(self, text: str, *, is_sent: bool = True) -> None:
        super().__init__(text)
        self.is_sent = is_sent


class Answer(NamedTuple):
    """An answer of a server; names of headers are in lower case."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


def is_plain(url: str) -> bool:
    """Whether sockets are used for a server instead of httpx."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    host = parts.hostname
    if parts.scheme != "http" or not host or not host.isascii() or "@" in parts.netloc:
        return False
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415  # as slow as httpx

    return not {"http", "all"} & getproxies().keys() or bool(proxy_bypass(host))


@contextmanager
def through_httpx() -> Iterator[None]:
    """Raise Unreachable for errors of httpx without an answer."""
    import httpx  # noqa: PLC0415  # takes a third of the time to import this package

    try:
        yield
    except (httpx.TransportError, httpx.InvalidURL) as error:
        unsent = httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL
        is_sent = not isinstance(error, (*unsent, httpx.UnsupportedProtocol))
        raise Unreachable(str(error) or type(error).__name__, is_sent=is_sent) from error


class _Reader:
    """Parses the answers of one connection as bytes arrive."""

    def __init__(self) -> None:
        self.is_open = False  # whether it can take another request
        self.used = time.monotonic()
        self._parser = HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._answer: Answer | None = None

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= HTTPStatus.OK:  # an informational answer precedes the final one
            self._answer = Answer(status, self._headers, b"".join(self._parts))
            self.is_open = self._parser.should_keep_alive()
        self._headers, self._parts = {}, []

    def feed(self, data: bytes) -> Answer | None:
        """Return an answer once its last bytes have arrived."""
        if not data:
            raise Unreachable(_CLOSED)
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            raise Unreachable(f"an answer that is not valid HTTP ({error})") from error
        answer, self._answer = self._answer, None
        if answer is not None:
            self.used = time.monotonic()
        return answer


def _pieces(
    head: bytes, content: bytes | Iterable[bytes | memoryview] | None
) -> Iterator[bytes | memoryview]:
    """Yield the pieces of a request; a body of unknown length in chunks."""
    if content is None:
        yield head
    elif isinstance(content, bytes):
        if len(content) <= _JOINED_BYTES:
            yield head + content
        else:
            yield from (head, content)
    elif _CHUNKED.encode() not in head:
        yield head
        yield from (piece for piece in content if len(piece))
    else:
        yield head
        end = b""  # ends the previous chunk
        for piece in content:
            if size := memoryview(piece).nbytes:
                start = b"%b%x\r\n" % (end, size)
                if size <= _JOINED_BYTES:
                    yield b"".join((start, piece))
                else:
                    yield from (start, piece)
                end = b"\r\n"
        yield end + b"0\r\n\r\n"


@contextmanager
def _socket_errors(*, is_sent: bool = True) -> Iterator[None]:
    """Raise Unreachable for errors of a socket."""
    try:
        yield
    except UnicodeError as error:
        raise Unreachable("an invalid host name", is_sent=is_sent) from error
    except OSError as error:
        raise Unreachable(str(error) or "timed out", is_sent=is_sent) from error


class _Line(_Reader):
    """A socket for blocking callers: nothing suspends here."""

    def __init__(self, address: tuple[str, int], seconds: float | None) -> None:
        super().__init__()
        self._socket = socket.create_connection(address, CONNECT_SECONDS)
        self._socket.settimeout(seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    @classmethod
    async def open(cls, address: tuple[str, int], seconds: float | None) -> _Line:
        return cls(address, seconds)

    def is_usable(self) -> bool:
        """Whether it was used recently and has no new bytes: a closed connection would have."""
        return time.monotonic() - self.used < _IDLE_SECONDS and not self._poll.poll(0)

    async def send(self, data: bytes | memoryview) -> None:
        with _socket_errors():
            self._socket.sendall(data)

    async def receive(self) -> Answer:
        with _socket_errors():
            while (answer := self.feed(self._socket.recv(_READ_BYTES))) is None:
                pass
            return answer

    def close(self) -> None:
        self._socket.close()


class _AsyncLine(_Reader):
    """A connection for coroutines: streams of asyncio."""

    def __init__(
        self, reader: StreamReader, writer: StreamWriter, seconds: float | None = None
    ) -> None:
        super().__init__()
        self._reader, self._writer, self._seconds = reader, writer, seconds
        self._is_sending = False
        self._early: Task[Answer] | None = None

    @classmethod
    async def open(cls, address: tuple[str, int], seconds: float | None) -> _AsyncLine:
        from asyncio import open_connection, timeout  # noqa: PLC0415  # is there: it is awaited

        async with timeout(CONNECT_SECONDS):
            return cls(*await open_connection(*address), seconds)

    def is_usable(self) -> bool:
        """Whether it was used recently, and is not closed."""
        has_ended = self._reader.at_eof() or self._writer.is_closing()
        return not has_ended and time.monotonic() - self.used < _IDLE_SECONDS

    async def send(self, data: bytes | memoryview) -> None:
        from asyncio import create_task, sleep  # noqa: PLC0415

        if self._is_sending:  # an answer may arrive between two pieces
            self._early = self._early or create_task(self._receive(None))
            await sleep(0)
            if self._early.done():
                raise Unreachable(_CLOSED)
        self._is_sending = True
        with _socket_errors():
            await self._writer.drain()
            self._writer.write(data)

    async def receive(self) -> Answer:
        from asyncio import wait  # noqa: PLC0415

        early, self._early, self._is_sending = self._early, None, False
        if early is not None:
            early.cancel()  # received parts of an answer stay
            await wait([early])
            if not early.cancelled():
                return early.result()
        return await self._receive(self._seconds)

    async def _receive(self, seconds: float | None) -> Answer:
        from asyncio import timeout  # noqa: PLC0415

        with _socket_errors():
            while True:
                async with timeout(seconds):
                    data = await self._reader.read(_READ_BYTES)
                if (answer := self.feed(data)) is not None:
                    return answer

    def close(self) -> None:
        if self._early is not None:
            self._early.cancel()
        self._writer.transport.abort()


class AsyncWire:
    """Connections to one server, for coroutines on one event loop."""

    _kind: ClassVar[type[_Line | _AsyncLine]] = _AsyncLine

    def __init__(self, url: str, headers: Mapping[str, str], seconds: float | None) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname or "", parts.port or 80
        self._path = parts.path.rstrip("/")
        self._headers = {"Host": parts.netloc, **headers}
        self._seconds = seconds
        self._idle: list[_Line | _AsyncLine] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        content: bytes | Iterable[bytes | memoryview] | None = None,
        **more: Mapping[str, str] | None,
    ) -> Answer:
        """Return the answer to a request with ``headers`` and ``params``; else Unreachable."""
        head = self._head(method, path, content, **more)
        line = await self._line()
        try:
            unsent = None
            for piece in _pieces(head, content):
                try:
                    await line.send(piece)
                except Unreachable as error:  # it may have answered before it closed
                    unsent = error
                    break
            try:
                answer = await line.receive()
            except Unreachable:
                if unsent is not None:
                    raise unsent from None
                raise
        except BaseException:
            line.close()
            raise
        if line.is_open and unsent is None and len(self._idle) < _MAX_IDLE:
            self._idle.append(line)
        else:
            line.close()
        return answer

    def _head(
        self,
        method: str,
        path: str,
        content: object,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> bytes:
        query = f"?{urlencode(params, doseq=True, quote_via=quote)}" if params else ""
        all_headers = {**self._headers, **(headers or {})}
        if isinstance(content, bytes):
            all_headers["Content-Length"] = str(len(content))
        elif content is None and method != "GET":
            all_headers["Content-Length"] = "0"
        elif content is not None and "Content-Length" not in all_headers:
            all_headers["Transfer-Encoding"] = "chunked"
        lines = [f"{method} {self._path}{path}{query} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in all_headers.items()]
        text = "\r\n".join(lines)
        if text.count("\n") >= len(lines) or text.count("\r") >= len(lines):
            raise Unreachable("a header holds a line break")
        return f"{text}\r\n\r\n".encode()

    async def _line(self) -> _Line | _AsyncLine:
        while self._idle:
            with suppress(IndexError):  # another thread may take it
                line = self._idle.pop()
                if line.is_usable():
                    return line
                line.close()
        with _socket_errors(is_sent=False):
            return await self._kind.open(self._address, self._seconds)

    def _close_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()

    async def aclose(self) -> None:
        """Close idle connections."""
        self._close_idle()


class Wire(AsyncWire):
    """Connections for blocking callers on any thread: its coroutines never suspend."""

    _kind = _Line

    def close(self) -> None:
        """Close idle connections."""
        self._close_idle()
