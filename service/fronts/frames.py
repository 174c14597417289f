"""Messages between fronts and owner: a head and bytes, many in one write."""

from __future__ import annotations

import asyncio
import struct
from enum import IntEnum
from typing import Final

_HEAD: Final = struct.Struct("<IBI")
"""Bytes that follow, kind, ticket: an answer has that of its question."""

MAX_BODY_BYTES: Final = 1 << 18
"""Of a request's body in a message; longer ones are forwarded as a stream."""


class FrameKind(IntEnum):
    """What a message is."""

    QUERY = 1
    REQUEST = 2
    COUNTS = 3
    ANSWER = 4


class FrameProtocol(asyncio.Protocol):
    """One end of a connection that messages go over; used on its event loop alone."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._outgoing: list[bytes] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave it."""
        del exc
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Hand on every message that is whole."""
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

    def send_frame(self, kind: FrameKind, ticket: int, *parts: bytes) -> None:
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
