"""The owner's side of a front's connection: queries that have come together, whole requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import orjson
from starlette.types import ASGIApp, Message

from gcws_search import index as ix
from gcws_search.service.api import pages, requests, results
from gcws_search.service.execution.context import Service
from gcws_search.service.fronts import messages
from gcws_search.service.responses import json_bytes
from gcws_search.service.rpc.batcher import Batcher
from gcws_search.service.rpc.connection import FrameKind, FrameProtocol
from gcws_search.service.telemetry.metrics import RouteCounts


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
        asked = requests.query_of(body, self.service.limits)._replace(vectors=rows)

        def show(found: Sequence[ix.QueryResult]) -> list[bytes]:
            return [json_bytes(results.answer(asked, each)) for each in found]

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
