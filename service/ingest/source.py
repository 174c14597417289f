"""Passes a body from the event loop to the thread of a load: bytes, then chunks of rows."""

from __future__ import annotations

import asyncio
import gzip
import io
import threading
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from gcws_search import index as ix
from gcws_search.index import Int64s
from gcws_search.service.errors import BodyTooLarge, InvalidRequest, MalformedBody
from gcws_search.service.problems import message_at

Source = Callable[[], bytes]
"""Returns the next bytes of a body, never none of them before the end; b"" at the end."""

_GZIP_MAGIC: Final = b"\x1f\x8b"
_READ_BYTES: Final = 1 << 17
_INFLATED_BYTES: Final = 1 << 20


class BodyAborted(Exception):  # no client is left to get an answer
    """The sender disconnected before the end of the body."""


class BodyPipe:
    """A bounded pipe from a coroutine to one thread; a full pipe slows the sender down."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._cause: Exception | None = None
        self._changed = threading.Condition()
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()

    async def put(self, chunk: bytes) -> None:
        """Append bytes, then wait for room; bytes after the end are dropped."""
        if not chunk:
            return
        with self._changed:
            if self._ended:
                return
            self._chunks.append(chunk)
            self._size += len(chunk)
            full = self._size > self._capacity
            if full:
                self._room.clear()
            self._changed.notify()
        if full:
            await self._room.wait()

    def end(self) -> None:
        """Mark the body as complete."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def abort(self, cause: Exception | None = None) -> None:
        """Mark the body as abandoned, by its sender or its reader; `take` raises the cause."""
        with self._changed:
            self._cause, self._ended = self._cause or cause or BodyAborted(), True
            self._changed.notify()
        self._room.set()

    def take(self) -> bytes:
        """Return the next bytes, waiting for them; b"" at the end; raises the cause of `abort`."""
        with self._changed:
            while not self._chunks and not self._ended:
                self._changed.wait()
            if self._cause is not None:
                raise self._cause
            if not self._chunks:
                return b""
            chunk = self._chunks.popleft()
            was_full = self._size > self._capacity
            self._size -= len(chunk)
            if was_full and self._size <= self._capacity:
                self._loop.call_soon_threadsafe(self._room.set)
            return chunk


def bound_bytes(source: Source, limit_bytes: int | None) -> Source:
    """Return a source that raises BodyTooLarge after ``limit_bytes`` bytes."""
    if limit_bytes is None:
        return source
    left = limit_bytes

    def take() -> bytes:
        nonlocal left
        chunk = source()
        left -= len(chunk)
        if left < 0:
            raise BodyTooLarge(limit_bytes)
        return chunk

    return take


def inflate(source: Source, encoding: str) -> Source:
    """Return the source, decompressed if its encoding or its first bytes indicate gzip."""
    first, again = peek(source, len(_GZIP_MAGIC))
    if encoding != "gzip" and not first.startswith(_GZIP_MAGIC):
        return again
    raw = io.BufferedReader(ByteReader(again, max_read_bytes=_READ_BYTES), _READ_BYTES)
    file = gzip.GzipFile(fileobj=raw)

    def take() -> bytes:
        try:
            if first:
                return file.read1(_INFLATED_BYTES)
        except EOFError:
            pass
        except (gzip.BadGzipFile, zlib.error) as error:
            raise MalformedBody(f"expected gzip data, got other bytes ({error})") from None
        raise MalformedBody("expected the end of the gzip data, the body ended before it")

    return take


def inflate_head(head: bytes, size: int) -> bytes:
    """Return up to ``size`` bytes of a file from its head, whose size is ``size`` if it is cut."""
    take = inflate(io.BytesIO(head).read, "")
    found = b""
    try:
        while len(found) < size and (piece := take()):
            found += piece
    except MalformedBody:
        if len(head) < size or not found:
            raise
    return found[:size]


def peek(source: Source, size: int) -> tuple[bytes, Source]:
    """Return the first bytes of a body, at least ``size`` unless it ends, and a source of all."""
    first = source()
    while len(first) < size:
        more = source()
        if not more:
            break
        first += more
    pending = [first] if first else []

    def take() -> bytes:
        return pending.pop() if pending else source()

    return first, take


class ByteReader(io.RawIOBase):
    """A source as a file: reads of exact sizes."""

    def __init__(self, source: Source, *, max_read_bytes: int) -> None:
        self._source = source
        self._left = memoryview(b"")
        self._received = 0
        self._max_read = max_read_bytes

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  # what takes bytes
        """Fill ``buffer`` (written in place); return the number of bytes."""
        out = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(out):
            if not self._left:
                self._left = memoryview(self._source())
                self._received += len(self._left)
                if not self._left:
                    break
            taken = min(len(out) - filled, len(self._left))
            out[filled : filled + taken] = self._left[:taken]
            self._left = self._left[taken:]
            filled += taken
        return filled

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes, fewer only at the end; BodyTooLarge above the limit."""
        if not 0 <= size <= self._max_read:
            raise BodyTooLarge(self._max_read, "a piece of the body")
        out = bytearray(size)
        del out[self.readinto(out) :]
        return out  # type: ignore[return-value]  # no copy is made of a batch

    @property
    def taken(self) -> int:
        """The number of bytes read."""
        return self._received - len(self._left)

    def readable(self) -> bool:
        """Return True."""
        return True


class Reject(Exception):  # of one row; ends a load that stops at the first
    """A row that cannot be stored, with its number in the whole load.

    ``error``: the error of the row, or of its field ``inner``.
    """

    def __init__(self, number: int, error: Exception, *inner: str) -> None:
        self.number = number
        match error:
            case ix.InvalidInput():
                self.error: Exception = error.at("rows", number, *inner)
            case ix.ItemExists():
                self.error = ix.ItemExists(error.item_id, number)
            case InvalidRequest():
                found = [(("rows", number, *loc), message) for loc, message in error.errors]
                self.error = InvalidRequest(error.code, found, message_at(*found[0]))
            case _:
                self.error = MalformedBody(f"row {number}: {error}")
        super().__init__(str(self.error))


@dataclass(frozen=True, slots=True)
class ItemRows:
    """A chunk of a load: n readable rows with their numbers in the whole load.

    The collection numbers an item whose id is None. ``rejects``: unreadable rows of this range.
    ``dropped``: rows left out on request. ``size``: bytes of the body up to the chunk's end.
    ``expires``: as in `ItemBatch`.
    """

    numbers: Int64s
    ids: list[str | None]
    payloads: list[bytes | None]
    vectors: ix.InputVectors
    rejects: list[Reject] = field(default_factory=list)
    size: int = 0
    expires: Sequence[int | None] = ()
    dropped: Sequence[int] = ()

    def __len__(self) -> int:
        """Return the number of readable rows."""
        return len(self.ids)

    @property
    def end(self) -> int:
        """The number of the row after this chunk."""
        others = (*self.dropped[-1:], *(reject.number for reject in self.rejects))
        return 1 + max((*others, int(self.numbers[-1]) if len(self) else -1))

    def after(self, number: int) -> ItemRows:
        """Return the part of this chunk from a row on."""
        first = int(np.searchsorted(self.numbers, number))
        rejects = [reject for reject in self.rejects if reject.number >= number]
        dropped = [row for row in self.dropped if row >= number]
        if not first and len(rejects) == len(self.rejects) and len(dropped) == len(self.dropped):
            return self
        chosen = self.part(np.arange(first, len(self)))
        return replace(chosen, rejects=rejects, dropped=dropped, size=self.size)

    def part(self, rows: Int64s) -> ItemRows:
        """Return some of the readable rows, without rejects and dropped ones."""
        return ItemRows(
            self.numbers[rows],
            [self.ids[row] for row in rows],
            [self.payloads[row] for row in rows],
            self.vectors.part(rows),
            expires=[self.expires[row] for row in rows] if self.expires else (),
        )
