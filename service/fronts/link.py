"""The front's connection to the owner: asks, awaits answers, connects again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

from gcws_search.service.errors import OwnerUnavailable
from gcws_search.service.fronts.frames import FrameKind, FrameProtocol

_RETRY_SECONDS: Final = 0.05
_TICKETS: Final = 1 << 32


class _Connection(FrameProtocol):
    """A connection, and who waits for an answer."""

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
    """What a front asks the owner through; used on its event loop alone.

    Parameters
    ----------
    path
        Of the owner's socket.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: _Connection | None = None
        self._ticket = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the owner is there."""
        return self._connection is not None

    def start(self) -> None:
        """Connect, again and again, in the background."""
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
            self._connection = found
            try:
                await found.ended
            finally:
                self._connection = None
                found.close()

    async def ask(self, kind: FrameKind, *parts: bytes) -> bytes:
        """Return the owner's answer to a message.

        Raises
        ------
        OwnerUnavailable
        """
        connection = self._connection
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
        if self._connection is None:
            return False
        self._connection.send_frame(kind, 0, body)
        return True
