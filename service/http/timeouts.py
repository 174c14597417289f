"""uvicorn's HTTP protocol with timeouts: the connection of a slow client is closed.

The head of an answer is sent together with its body.
"""

from __future__ import annotations

import asyncio
import resource
import weakref
from contextvars import Context
from functools import partial
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gcws_search.service.guards.admission import LAST_DESCRIPTORS
from gcws_search.service.settings import Settings

BREAK_OFF: Final = "gcws.break_off"
"""Where a request's scope has what closes its connection with the answer as short as it is."""
HAS_WHOLE_BODY: Final = "gcws.has_whole_body"
"""A request's scope has this once its body has come."""
_RESERVED: Final = 32
"""This many descriptors are for files and never for requests, ..."""
_SHARE_RESERVED: Final = 8
"""... or 1/_SHARE_RESERVED of all, when that is less."""


_MAX_JOINED_BYTES: Final = 1 << 16
"""A longer piece goes out by itself: it would be copied."""


class JoinedWrites(asyncio.Transport):
    """Writes in pairs: the first waits for the next, or for the next iteration of the event loop.

    uvicorn writes a head and a body apart, and each write is a call of the system and a packet.
    One for both took 7 µs less of the 115 µs of a query beside 15 others.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._context = Context()
        self._waiting = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send this with what waits; where nothing waits, let it wait for the next write."""
        if self._waiting:
            head, self._waiting = self._waiting, b""
            if len(data) > _MAX_JOINED_BYTES:
                self._transport.write(head)
                self._transport.write(data)
            else:  # from Python 3.12 on `writelines` fails on an empty piece or a lost connection
                self._transport.write(b"".join((head, data)))
        elif data:
            self._waiting = bytes(data)
            self._loop.call_soon(self._flush, context=self._context)

    def close(self) -> None:
        """Send what waits, then close."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._waiting = b""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401  # asyncio's
        """Return what the transport knows."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Receive nothing more."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Receive again."""
        self._transport.resume_reading()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, b""
        if waiting and not self._transport.is_closing():
            self._transport.write(waiting)


def _is_one_of_the_last(transport: asyncio.Transport) -> bool:
    """Whether a connection has one of the descriptors that are for files; the lowest go first."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    taken: int = transport.get_extra_info("socket").fileno()
    reserved = min(_RESERVED, limit // _SHARE_RESERVED)
    return limit != resource.RLIM_INFINITY and taken >= limit - reserved


class TimedProtocol(HttpToolsProtocol):
    """One connection, closed when a head is too long or too slow, or an answer is not taken.

    Its class is made by `with_timeouts`, which gives it the settings.
    """

    settings: Settings

    def __init__(self, *arguments: Any, **more: Any) -> None:  # noqa: ANN401  # uvicorn's
        super().__init__(*arguments, **more)
        self._head_bytes = 0
        self._reading_head = True
        self._waiting_for: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._is_one_of_the_last = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless there are too many."""
        super().connection_made(JoinedWrites(transport, self.loop))
        self._is_one_of_the_last = _is_one_of_the_last(transport)
        if len(self.connections) > self.settings.max_connections:
            transport.abort()
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._stop(self._waiting_for)
        self._stop(self._sending)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a head, and start its clock with the first of them."""
        if self._reading_head:
            self._head_bytes += len(data)
            if self._waiting_for is None:
                self._expect_head()
        super().data_received(data)
        # What came with the end of a head is body; only what has no end is too long.
        if self._reading_head and self._head_bytes > self.settings.max_header_bytes:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        """Stop the clock of the head."""
        self._reading_head = False
        self._stop(self._waiting_for)
        self._waiting_for = None
        super().on_headers_complete()
        cycle: RequestResponseCycle = self.cycle
        # Not the cycle itself: it has the scope, and would be left to the garbage collector.
        break_off = partial(self._break_off, weakref.ref(cycle))
        cycle.scope[BREAK_OFF] = break_off  # type: ignore[typeddict-unknown-key]
        if self._is_one_of_the_last:
            cycle.scope[LAST_DESCRIPTORS] = True  # type: ignore[typeddict-unknown-key]
            cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """Note that the whole body has come, and be ready for the next head."""
        self._reading_head = True
        self._head_bytes = 0
        super().on_message_complete()
        self.cycle.scope[HAS_WHOLE_BODY] = True  # type: ignore[typeddict-unknown-key]

    def on_response_complete(self) -> None:
        """Give a client that still sends a body nobody wants a last while to end it."""
        super().on_response_complete()
        if not self._reading_head and not self.transport.is_closing():
            self._waiting_for = self.loop.call_later(self.settings.body_seconds, self._give_up)

    def pause_writing(self) -> None:
        """Start the clock of an answer that is not taken."""
        super().pause_writing()
        self._sending = self.loop.call_later(self.settings.send_seconds, self._give_up)

    def resume_writing(self) -> None:
        """Stop it."""
        self._stop(self._sending)
        super().resume_writing()

    def _expect_head(self) -> None:
        self._waiting_for = self.loop.call_later(self.settings.header_seconds, self._give_up)

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()

    def _break_off(self, cycle_reference: weakref.ref[RequestResponseCycle]) -> None:
        """Close the connection in the middle of an answer."""
        cycle = cycle_reference()
        if cycle is not None:
            cycle.disconnected = True  # nothing more is to be sent, and nothing is wrong
        self._give_up()

    @staticmethod
    def _stop(clock: asyncio.TimerHandle | None) -> None:
        if clock is not None:
            clock.cancel()


def with_timeouts(settings: Settings) -> type[TimedProtocol]:
    """Return the protocol with these settings."""
    return type("TimedProtocol", (TimedProtocol,), {"settings": settings})
