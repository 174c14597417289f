"""The connection of a front with the owner, which many questions go over at once: both ends."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Final

import orjson
from starlette.types import ASGIApp, Message

from gcws_search import index as ix
from gcws_search.service.api import pages, requests
from gcws_search.service.batcher import Batcher
from gcws_search.service.errors import OwnerUnavailable
from gcws_search.service.fronts import messages
from gcws_search.service.http import Service
from gcws_search.service.metrics import RouteCounts
from gcws_search.service.responses import json_bytes, query_json

# Bytes that follow, kind, ticket: an answer has that of its question.
_HEAD: Final = struct.Struct("<IBI")
_RETRY_SECONDS: Final = 0.05
_TICKETS: Final = 1 << 32


class FrameKind(IntEnum):
    """What a message is."""

    QUERY = 1
    REQUEST = 2
    COUNTS = 3
    ANSWER = 4


class FrameProtocol(asyncio.Protocol):
    """One end of a connection of frames; for one event loop."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._outgoing: list[bytes | memoryview] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the connection."""
        del exc
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Pass on complete frames."""
        if self._rest:
            data = self._rest + data
        at, end, head = 0, len(data), _HEAD.size
        while end - at >= head:
            length, kind, ticket = _HEAD.unpack_from(data, at)
            if end - at - head < length:
                break
            at += head
            self.frame_received(kind, ticket, data[at : at + length])
            at += length
        self._rest = data[at:]

    def frame_received(self, kind: int, ticket: int, body: bytes) -> None:
        """Take a message."""
        raise NotImplementedError

    def send_frame(self, kind: FrameKind, ticket: int, *parts: bytes | memoryview) -> None:
        """Send a message at the end of this turn of the loop; a connection lost takes none."""
        if self._transport is None:
            return
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append(_HEAD.pack(sum(map(len, parts)), kind, ticket))
        self._outgoing += parts

    def _flush(self) -> None:
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection after what has been sent."""
        if self._transport is not None:
            self._transport.close()


# The front's end


class _Connection(FrameProtocol):
    """An open connection and the requests that wait on it."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting: dict[int, asyncio.Future[bytes]] = {}

    def frame_received(self, kind: int, ticket: int, body: bytes) -> None:
        """Hand an answer to who waits for it."""
        del kind
        future = self.waiting.pop(ticket, None)
        if future is not None and not future.done():
            future.set_result(body)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all who wait."""
        super().connection_lost(exc)
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(OwnerUnavailable())
        self.waiting.clear()
        if not self.ended.done():
            self.ended.set_result(None)


class Link:
    """A front's connection to the owner, at the path of its socket; for one event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.connection: _Connection | None = None  # None while the owner is not there
        self._ticket = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect in the background, and again after each loss."""
        self._task = asyncio.create_task(self._connect())

    async def stop(self) -> None:
        """Close the connection."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                _, found = await loop.create_unix_connection(_Connection, str(self._path))
            except OSError:  # the owner starts
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            self.connection = found
            try:
                await found.ended
            finally:
                self.connection = None
                found.close()

    async def ask(self, kind: FrameKind, *parts: bytes | memoryview) -> bytes:
        """Return the owner's answer to a message; OwnerUnavailable where it gives none."""
        connection = self.connection
        if connection is None:
            raise OwnerUnavailable
        self._ticket = ticket = (self._ticket + 1) % _TICKETS
        future = asyncio.get_running_loop().create_future()
        connection.waiting[ticket] = future
        connection.send_frame(kind, ticket, *parts)
        answer: bytes = await future
        return answer

    def tell(self, kind: FrameKind, body: bytes) -> bool:
        """Send a message that has no answer; return whether there is a connection."""
        if self.connection is None:
            return False
        self.connection.send_frame(kind, 0, body)
        return True


# The owner's end


class Owner:
    """The collections' process as fronts see it."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service
        self.channels: set[Channel] = set()  # those that are open
        # of the queries of all fronts. Whatever is wrong with a batch, each is asked alone then
        self.batcher = Batcher(is_of_one=lambda _: True)

    async def search(self, key: bytes, vectors: Sequence[Sequence[memoryview]]) -> list[bytes]:
        """Return the answers to queries of one key."""
        name, body = messages.decode_key(key)
        collection = self.service.collection(name)
        rows = messages.decode_vectors(vectors, collection.space)
        asked = requests.query_of(body, self.service.settings)._replace(vectors=rows)

        def show(found: Sequence[ix.QueryResult]) -> list[bytes]:
            return [json_bytes(query_json(asked, each)) for each in found]

        if asked.offset:
            return await pages.search(self.service, collection, asked, show)
        return await self.service.searches.search(collection, asked, show)


class Channel(FrameProtocol):
    """One connection of a front."""

    def __init__(self, owner: Owner) -> None:
        super().__init__()
        self._owner = owner
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection."""
        super().connection_made(transport)
        self._owner.channels.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the front's connection and its reported counts."""
        super().connection_lost(exc)
        self._owner.channels.discard(self)
        self._owner.service.metrics.forget_front(self)

    def frame_received(self, kind: int, ticket: int, body: bytes) -> None:
        """Take a message of the front."""
        if kind == FrameKind.QUERY:
            group, key, vector = messages.decode_query(body)
            found = self._owner.batcher.search(group, vector, partial(self._owner.search, key))
            found.add_done_callback(partial(self._send_answer, ticket))
        elif kind == FrameKind.REQUEST:
            task = asyncio.create_task(self._serve(ticket, body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif kind == FrameKind.COUNTS:
            metrics, document = self._owner.service.metrics, orjson.loads(body)
            metrics.add([RouteCounts(*each) for each in document["routes"]])
            metrics.report_front(self, document["requests"], document["held_bytes"])

    def _send_answer(self, ticket: int, found: asyncio.Future[bytes]) -> None:
        """Answer a query; empty on failure, so that the front sends the whole request."""
        is_answered = not found.cancelled() and found.exception() is None
        self.send_frame(FrameKind.ANSWER, ticket, found.result() if is_answered else b"")

    async def _serve(self, ticket: int, frame: bytes) -> None:
        """Answer a whole request, as if it had come by HTTP."""
        scope, body = messages.decode_request(frame)
        events: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        head: list[Message] = []
        pieces: list[bytes] = []

        async def receive() -> Message:
            return events.pop() if events else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                head.append(message)
            else:
                pieces.append(message.get("body", b""))

        await self._owner.app(scope, receive, send)
        [start] = head
        answer = messages.encode_answer(start["status"], start["headers"], pieces)
        self.send_frame(FrameKind.ANSWER, ticket, *answer)
