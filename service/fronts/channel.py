"""The owner's side of a front's connection: queries that have come together, whole requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

import orjson
from starlette.types import ASGIApp, Message

from gcws_search.service.api import pages, requests, results
from gcws_search.service.contract import RankedHits
from gcws_search.service.execution.context import Service
from gcws_search.service.fronts import packing
from gcws_search.service.fronts.frames import FrameKind, FrameProtocol
from gcws_search.service.responses import json_bytes
from gcws_search.service.telemetry.metrics import RouteCounts

_MAX_TOGETHER: Final = 32
"""Queries of one call of the index: others wait no longer than these take."""

_log = logging.getLogger(__name__)


class _Query(NamedTuple):
    channel: Channel
    ticket: int
    vector: bytes


class Gathering:
    """Queries of all fronts, searched together when the loop has read what there is.

    Attributes
    ----------
    channels
        Those that are open.
    """

    def __init__(self, service: Service) -> None:
        self.channels: set[Channel] = set()
        self._service = service
        self._waiting: dict[tuple[bytes, int], list[_Query]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, channel: Channel, ticket: int, frame: bytes) -> None:
        """Take a query."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._search_all)
        group, vector = packing.split_query(frame)
        self._waiting.setdefault(group, []).append(_Query(channel, ticket, vector))

    def _search_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (key, _), queries in waiting.items():
            for first in range(0, len(queries), _MAX_TOGETHER):
                together = queries[first : first + _MAX_TOGETHER]
                task = asyncio.create_task(self._answer(key, together))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _answer(self, key: bytes, queries: Sequence[_Query]) -> None:
        try:
            answers = await self._search(key, [query.vector for query in queries])
        except Exception:  # the request that each came in is asked, and says what is wrong
            if len(queries) > 1:
                for query in queries:
                    await self._answer(key, [query])
                return
            answers = [b""]
        for query, answer in zip(queries, answers, strict=True):
            query.channel.send_frame(FrameKind.ANSWER, query.ticket, answer)

    async def _search(self, key: bytes, vectors: Sequence[bytes]) -> list[bytes]:
        name, options = packing.unpacked_key(key)
        collection = self._service.collection(name)
        rows = packing.raw_batch(key, vectors, collection.space)
        body = packing.options_of(options)
        asked = requests.query_of(body, self._service.limits)._replace(vectors=rows)

        def show(found: Sequence[RankedHits]) -> list[bytes]:
            return [json_bytes(results.answer(asked, each)) for each in found]

        if asked.offset:
            return await pages.search(self._service, collection, asked, show)
        return await self._service.searches.search(collection, asked, show)


class Channel(FrameProtocol):
    """One connection of a front."""

    def __init__(self, app: ASGIApp, service: Service, gathering: Gathering) -> None:
        super().__init__()
        self._app = app
        self._metrics = service.metrics
        self._gathering = gathering
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection."""
        super().connection_made(transport)
        self._gathering.channels.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what the front has under way."""
        super().connection_lost(exc)
        self._gathering.channels.discard(self)
        self._metrics.forget_front(self)

    def frame_received(self, kind: int, ticket: int, body: bytes) -> None:
        """Take a message of the front."""
        if kind == FrameKind.QUERY:
            self._gathering.add(self, ticket, body)
        elif kind == FrameKind.REQUEST:
            task = asyncio.create_task(self._serve(ticket, body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif kind == FrameKind.COUNTS:
            document = orjson.loads(body)
            counts = [RouteCounts(*each) for each in document["routes"]]
            self._metrics.add(counts)
            self._metrics.report_front(self, document["requests"], document["held_bytes"])

    async def _serve(self, ticket: int, frame: bytes) -> None:
        """Answer a whole request, as if it had come by HTTP."""
        scope, body = packing.unpacked_request(frame)
        events: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        head, pieces = b"", list[bytes]()

        async def receive() -> Message:
            return events.pop() if events else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal head
            if message["type"] == "http.response.start":
                head = packing.packed_answer(message["status"], message["headers"])
            else:
                pieces.append(message.get("body", b""))

        await self._app(scope, receive, send)
        self.send_frame(FrameKind.ANSWER, ticket, head, *pieces)
