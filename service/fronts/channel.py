"""The connection of a front to the owner, shared by many messages: both ends."""

from __future__ import annotations

import asyncio
import io
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

import numpy as np
import orjson
from starlette.types import ASGIApp, Message

from gcws_search import index as ix
from gcws_search.service.api.query import QueryBody, hinter, query_json, query_of, search_page
from gcws_search.service.errors import OwnerUnavailable
from gcws_search.service.http import Service
from gcws_search.service.messages import decode_parts, encode_parts
from gcws_search.service.models import SparseBody, weights_of
from gcws_search.service.responses import json_bytes
from gcws_search.service.searches import Batcher
from gcws_search.service.settings import Settings

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
Parts: TypeAlias = Sequence[bytes | memoryview]

MAX_BODY_BYTES: Final = 1 << 18
"""Of a request's body in a message; longer ones are forwarded as a stream."""
_MAX_LIMIT: Final = 1000  # hits of a query in a message; longer answers are forwarded as a stream
_MAX_INDEX: Final = 2**31 - 1
_MAX_OPTIONS: Final = 1 << 16
# Number of bytes that follow, kind, ticket: an answer has the ticket of its question.
_HEAD: Final = struct.Struct("<IBI")
_RETRY_SECONDS: Final = 0.05
_TICKETS: Final = 1 << 32


class FrameKind(IntEnum):
    """The kind of a message."""

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

    @property
    def is_connected(self) -> bool:
        """Whether it is connected."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Store the transport."""
        self._transport = transport
        self._rest = b""
        self._outgoing.clear()

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
        """Handle a message."""
        raise NotImplementedError

    def send_frame(self, kind: FrameKind, ticket: int, *parts: bytes | memoryview) -> None:
        """Send a message at the end of this turn of the loop; a lost connection drops it."""
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
        """Close the connection after pending messages are sent."""
        if self._transport is not None:
            self._transport.close()


# The front's end


class Link(FrameProtocol):
    """A front's connection to the owner, at the path of its socket; for one event loop."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._ticket = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._lost = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect in the background; reconnect after each loss."""
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
                await loop.create_unix_connection(lambda: self, str(self._path))
            except OSError:  # the owner is starting
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            try:
                await self._lost.wait()
            finally:
                self.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Store the transport."""
        super().connection_made(transport)
        self._lost.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all waiting questions."""
        super().connection_lost(exc)
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(OwnerUnavailable())
        self._lost.set()

    def frame_received(self, kind: int, ticket: int, body: bytes) -> None:
        """Pass an answer to the waiting question."""
        del kind
        future = self._waiting.pop(ticket, None)
        if future is not None and not future.done():
            future.set_result(body)

    async def ask(self, kind: FrameKind, *parts: bytes | memoryview) -> bytes:
        """Return the owner's answer to a message; else OwnerUnavailable."""
        if not self.is_connected:
            raise OwnerUnavailable
        self._ticket = ticket = (self._ticket + 1) % _TICKETS
        future = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        self.send_frame(kind, ticket, *parts)
        answer: bytes = await future
        return answer


# The owner's end


class Owner:
    """The process of the collections, as fronts use it."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service
        self.channels: set[Channel] = set()  # open channels
        # of the queries of all fronts. After any error of a batch, each query is asked alone
        self.batcher = Batcher(is_of_one=lambda _: True)

    async def search(self, key: bytes, vectors: Sequence[Sequence[memoryview]]) -> list[bytes]:
        """Return the answers to queries of one group."""
        name, _, options = key.partition(b"\0")
        collection = self.service.collection(name.decode())
        rows = decode_vectors(vectors, collection.space)
        asked = query_of(_body(options), self.service.settings)._replace(vectors=rows)

        def show(found: Sequence[ix.QueryResult]) -> list[bytes]:
            hint = hinter(collection)
            return [json_bytes(query_json(asked, each, hint)) for each in found]

        if asked.offset:
            return await search_page(self.service, collection, asked, show)
        return await self.service.searches.search(collection, asked, show)


class Channel(FrameProtocol):
    """One connection of a front."""

    def __init__(self, owner: Owner) -> None:
        super().__init__()
        self._owner = owner
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Store the transport."""
        super().connection_made(transport)
        self._owner.channels.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the front's connection and its reported counts."""
        super().connection_lost(exc)
        self._owner.channels.discard(self)
        self._owner.service.metrics.forget_front(self)

    def frame_received(self, kind: int, ticket: int, body: bytes) -> None:
        """Handle a message of the front."""
        if kind == FrameKind.QUERY:
            key, vector = decode_parts(body)
            group = key, len(vector[0]) if len(vector) == 1 else -1
            found = self._owner.batcher.search(group, vector, partial(self._owner.search, key))
            found.add_done_callback(partial(self._send_answer, ticket))
        elif kind == FrameKind.REQUEST:
            task = asyncio.create_task(self._serve(ticket, body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif kind == FrameKind.COUNTS:
            metrics, document = self._owner.service.metrics, orjson.loads(body)
            metrics.add(document["routes"])
            metrics.report_front(self, document["requests"], document["held_bytes"])

    def _send_answer(self, ticket: int, found: asyncio.Future[bytes]) -> None:
        """Send the answer to a query; if it is empty (failure), the front forwards the request."""
        is_answered = not found.cancelled() and found.exception() is None
        self.send_frame(FrameKind.ANSWER, ticket, found.result() if is_answered else b"")

    async def _serve(self, ticket: int, frame: bytes) -> None:
        """Answer a whole request like one over HTTP."""
        scope, body = decode_request(frame)
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
        answer = orjson.dumps([start["status"], _texts(start["headers"])])
        self.send_frame(FrameKind.ANSWER, ticket, *encode_parts(answer, pieces))


# Queries and requests as messages, and the owner's answers


def encode_query(name: str, body: QueryBody, limits: Settings) -> Parts | None:
    """Return a query as a message; None if the request must be forwarded unchanged.

    That is a query by id or by names, of groups or pages, with a long answer, or with numbers that
    are refused. A dense vector is a blob of float32 numbers; a sparse one is two blobs, int32
    indices and float32 values.
    """
    raw = body.vector
    if body.with_vector or body.limit > _MAX_LIMIT or _asks_otherwise(body):
        return None
    indices: list[bytes] = []
    with np.errstate(over="ignore"):
        if isinstance(raw, np.ndarray):
            values = raw.astype(np.float32)
        elif isinstance(raw, SparseBody) and _is_usual(raw):
            values = np.array(weights_of(raw), np.float32)
            indices = [np.array(raw.indices, np.int32).tobytes()]
        else:
            return None
    if len(values) > limits.max_nonzeros or not np.isfinite(values).all():
        return None
    options = _options(body)
    if len(name) > ix.MAX_NAME_LENGTH or len(options) > _MAX_OPTIONS:
        return None
    return encode_parts(name.encode() + b"\0" + options, [*indices, values.tobytes()])


def _asks_otherwise(body: QueryBody) -> bool:
    """Whether a query has an id or a text, or asks for groups or for a page of its ranking."""
    others = body.id, body.text, body.group_by, body.group_size
    return others != (None, None, None, None) or body.cursor not in (None, False)


def _is_usual(raw: SparseBody) -> bool:
    """Whether indices fit in 32 bits, and each has a value."""
    indices = np.asarray(raw.indices)
    inside = not len(indices) or 0 <= indices.min() <= indices.max() <= _MAX_INDEX
    return inside and len(raw.indices) == len(weights_of(raw))


def encode_matrix(queries: Sequence[QueryBody], limits: Settings) -> tuple[bytes, bytes] | None:
    """Return queries as parameters of a URL and a matrix as a body.

    None unless all have dense vectors and equal options.
    """
    first, rows = queries[0], []
    if first.filter is not None or _asks_otherwise(first):
        return None
    with np.errstate(over="ignore"):
        for query in queries:
            raw, changed = query.vector, query.model_copy(update={"vector": first.vector})
            if not isinstance(raw, np.ndarray) or changed != first:
                return None
            rows.append(raw.astype(np.float32))
    if len({len(row) for row in rows}) > 1 or len(rows[0]) > limits.max_nonzeros:
        return None
    matrix = np.stack(rows)
    if not np.isfinite(matrix).all():
        return None
    file = io.BytesIO()
    np.save(file, matrix)
    given = {name: first.__dict__[name] for name in _USUAL if first.__dict__[name] is not None}
    texts = {name: orjson.dumps(value).decode() for name, value in given.items()}
    words = {name: value for name, value in given.items() if isinstance(value, str)}
    return urlencode(texts | words).encode(), file.getvalue()


def _options(body: QueryBody) -> bytes:
    if body.filter is not None:
        return body.model_dump_json(exclude={"vector", "text", "id"}).encode()
    fields = body.__dict__
    return _usual_options(*(fields[name] for name in _USUAL))


_OTHERS: Final = {"vector", "text", "id", "filter", "cursor", "group_by", "group_size"}
_USUAL: Final = tuple(name for name in QueryBody.model_fields if name not in _OTHERS)


@lru_cache(maxsize=256)
def _usual_options(*values: object) -> bytes:
    return orjson.dumps(dict(zip(_USUAL, values, strict=True)))


@lru_cache(maxsize=256)
def _body(options: bytes) -> QueryBody:
    return QueryBody.model_validate_json(options)


def decode_vectors(vectors: Sequence[Sequence[memoryview]], space: ix.VectorSpace) -> ix.RawBatch:
    """Return the vectors of queries that are searched together; else InvalidVector."""
    space.refuse_vectors(0)
    if len(vectors[0]) == 1:
        flat = np.frombuffer(bytearray().join(row for [row] in vectors), np.float32)
        return space.from_dense(flat.reshape(len(vectors), -1))
    return space.from_items(
        [
            ix.SparseVector(
                np.frombuffer(indices, np.int32).tolist(),
                np.frombuffer(values, np.float32).tolist(),
            )
            for indices, values in vectors
        ]
    )


def encode_request(scope: Any, headers: Headers, body: bytes) -> Parts:  # noqa: ANN401  # of ASGI
    """Return a request as a message."""
    raw = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    head = orjson.dumps([scope["method"], scope["path"], *raw, _texts(headers)])
    return encode_parts(head, [body])


def decode_request(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the scope of a request, and its body."""
    head, [body] = decode_parts(data)
    method, path, raw_path, query, headers = orjson.loads(head)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": raw_path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "root_path": "",
        "headers": _bytes(headers),
        "client": None,
        "server": None,
        "state": {},
    }
    return scope, bytes(body)


def decode_answer(data: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return the status, headers and body of an answer."""
    head, pieces = decode_parts(data)
    status, headers = orjson.loads(head)
    return status, _bytes(headers), b"".join(pieces)


def _texts(headers: Headers) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _bytes(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), text.encode("latin-1")) for name, text in headers]
