"""Limits of one request (422), and of all requests and stored data together (503, 507).

A full queue (429) is raised in `pools`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import psutil
from starlette.types import Scope

from gcws_search import index as ix
from gcws_search.index import AnyArray
from gcws_search.service.errors import AnswerTooLarge, Refused
from gcws_search.service.server import LAST_DESCRIPTORS
from gcws_search.service.settings import Settings

ALWAYS: Final = frozenset({"/livez", "/readyz", "/healthz"})
"""Paths that answer however much there is to do."""
_HELD: Final = "gcws.held_bytes"
_NUMBER_BYTES = 12
"""About what a number of a vector takes as JSON."""
_HIT_BYTES = 38
"""What a hit takes besides its id and payload; the score has 17 digits."""
_MIN_HIT_BYTES = 23
"""An id of one character, and the score 0.0."""


def require_count(count: int, limits: Settings, *loc: str | int) -> None:
    """Raise InvalidVector if a vector has more numbers than permitted."""
    if count > limits.max_nonzeros:
        raise ix.InvalidVector(
            expected=f"at most {ix.quantity(limits.max_nonzeros, 'value')}",
            got=ix.quantity(count, "value"),
            loc=loc,
        )


def require_at_most(count: int, limit: int, name: str) -> None:
    """Raise InvalidParameter if a number, or the length of a list, exceeds its limit."""
    if count > limit:
        raise ix.InvalidParameter(expected=f"at most {limit}", got=str(count), loc=(name,))


def require_at_least(value: int, least: int, name: str) -> None:
    """Raise InvalidParameter if a number is too small."""
    if value < least:
        raise ix.InvalidParameter(expected=f"at least {least}", got=str(value), loc=(name,))


def require_short_id(text: str, limits: Settings, *loc: str | int) -> None:
    """Raise InvalidId if an id is longer than permitted."""
    if len(text) > limits.max_id_length:
        raise ix.InvalidId(
            expected=f"1 to {limits.max_id_length} characters",
            got=f"{len(text)} characters",
            loc=loc,
        )


def require_short_payload(text: bytes | None, limits: Settings, *loc: str | int) -> None:
    """Raise InvalidPayload if a payload is longer than permitted."""
    if text is not None and len(text) > limits.max_payload_bytes:
        raise ix.InvalidPayload(
            expected=f"at most {limits.max_payload_bytes} bytes of JSON",
            got=f"{len(text)} bytes",
            loc=loc,
        )


def id_in_url(text: str, name: str = "id") -> str:
    """Return an id from a URL; errors name this parameter."""
    if not 1 <= len(text) <= ix.MAX_ID_LENGTH:
        raise ix.InvalidId(
            expected=f"1 to {ix.MAX_ID_LENGTH} characters",
            got=f"{len(text)} characters",
            loc=(name,),
        )
    return text


class AnswerBytes:
    """Approximate length of an answer, counted during its creation; raises AnswerTooLarge."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0

    def add_hits(self, ids: Sequence[str], payloads: Sequence[bytes | None] | None) -> None:
        """Count hits or items."""
        size = sum(map(len, ids)) + _HIT_BYTES * len(ids)
        if payloads is not None:
            size += sum(map(len, filter(None, payloads)))
        self._bytes += size
        if self._bytes > self._limit_bytes:
            raise AnswerTooLarge(self._limit_bytes)

    def add_vectors(self, vectors: Sequence[Any]) -> None:
        """Count vectors in the form of the API."""
        numbers = 0
        for vector in vectors:
            is_sparse = isinstance(vector, dict)
            numbers += 2 * len(vector["values"]) if is_sparse else len(vector or ())
        self._add(_NUMBER_BYTES * numbers)

    def add_integers(self, numbers: AnyArray) -> None:
        """Count integers, each with the digits of the largest."""
        self._add(numbers.size * (len(str(numbers.max(initial=0))) + 1))

    def require(self, hits: int) -> None:
        """Raise AnswerTooLarge if this many more hits would exceed the limit."""
        if self._bytes + _MIN_HIT_BYTES * hits > self._limit_bytes:
            raise AnswerTooLarge(self._limit_bytes)

    def _add(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._limit_bytes:
            raise AnswerTooLarge(self._limit_bytes)


def require_short_answer(
    payload_bytes: int, vectors: int, dim: int | None, limit_bytes: int
) -> None:
    """Raise AnswerTooLarge if payloads and vectors exceed the limit of an answer."""
    if payload_bytes + vectors * min(dim or 64, 4096) * _NUMBER_BYTES > limit_bytes:
        raise AnswerTooLarge(limit_bytes)


class Admission:
    """Counts running requests; used on the event loop alone."""

    def __init__(self, settings: Settings) -> None:
        self._max_requests = settings.max_requests
        self._max_held = settings.max_held_bytes
        self.requests = 0
        self.held_bytes = 0

    def enter(self, scope: Scope) -> None:
        """Count a request that starts, even if it is refused.

        Refused: too many are running. OutOfDescriptors: the remaining ones are reserved for files.
        """
        self.requests += 1
        if scope["path"] in ALWAYS:
            return
        if LAST_DESCRIPTORS in scope:
            raise ix.OutOfDescriptors(None)
        if self.requests > self._max_requests:
            detail = f"{self._max_requests} requests are under way; try again"
            raise Refused("overloaded", detail)

    def hold(self, scope: Scope, size: int) -> None:
        """Count bytes of a request's body, held until it is answered, or raise Refused."""
        if self.held_bytes + size > self._max_held:
            detail = f"{self.held_bytes} bytes of bodies are being worked on; try again"
            raise Refused("overloaded", detail)
        self.held_bytes += size
        scope[_HELD] = scope.get(_HELD, 0) + size

    def gauges(self) -> dict[tuple[str, str], float]:
        """Return the counts of running requests as metrics."""
        return {
            ("gcws_requests_under_way", ""): self.requests,
            ("gcws_held_bytes", ""): self.held_bytes,
            ("gcws_resident_bytes", ""): resident_bytes(),
        }

    def leave(self, scope: Scope) -> None:
        """Count a request that has ended."""
        self.requests -= 1
        self.held_bytes -= scope.pop(_HELD, 0)


_LOG_ROOM_BYTES: Final = 1 << 24
"""Twice the size of a write-ahead log. SQLite empties a log only if all of it fits into the file; a
delete needs room in the log."""


class Room:
    """Whether more may be stored; any thread.

    ``elsewhere`` returns the refusal of other machines, None without one.
    """

    max_age_seconds = 0.25

    def __init__(
        self, settings: Settings, elsewhere: Callable[[], Refused | None] | None = None
    ) -> None:
        self._elsewhere = elsewhere
        self._folder = settings.data_dir
        self._disk_share = settings.max_disk_share
        self._memory_share = settings.max_memory_share
        self._memory = ix.memory_bytes()
        self._checked_at = float("-inf")
        self._refusal: Refused | None = None

    def require(self) -> None:
        """Raise Refused if memory or disk was used up at most ``max_age_seconds`` ago."""
        now = time.monotonic()
        if now - self._checked_at > self.max_age_seconds:
            self._checked_at = now
            self._refusal = self.look() or (self._elsewhere and self._elsewhere())
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)

    def gauges(self) -> dict[tuple[str, str], float]:
        """Return the sizes that the limits apply to, as metrics."""
        found = {("gcws_memory_limit_bytes", ""): float(self._memory)}
        with suppress(OSError):
            disk = shutil.disk_usage(self._folder)
            found["gcws_disk_used_ratio", ""] = (disk.total - disk.free) / disk.total
        return found

    def look(self, elsewhere: float = 0.0) -> Refused | None:
        """Return the present refusal: memory or disk is used up.

        ``elsewhere``: the share of the memory that other processes use within the same limit.
        """
        used = unmapped_bytes() + int(elsewhere * self._memory)
        if used > self._memory_share * self._memory:
            return Refused(
                "memory_full",
                f"expected at most {self._memory_share:g} of {self._memory} bytes of memory in "
                f"use, got {used}; this write stored nothing",
            )
        try:
            disk = shutil.disk_usage(self._folder)
        except OSError:  # the write itself will report the error
            return None
        share = self._disk_share
        if disk.total - disk.free > share * disk.total:
            return Refused(
                "disk_full",
                f"expected at most {share:g} of the disk's {disk.total} bytes in use, "
                f"got {disk.total - disk.free}; this write stored nothing; free some there",
            )
        if share < 1 and disk.free < _LOG_ROOM_BYTES:
            return Refused(
                "disk_full",
                f"expected {_LOG_ROOM_BYTES} free bytes of the disk, so that deletes have room, "
                f"got {disk.free}; this write stored nothing; free some there",
            )
        return None


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    return int(psutil.Process().memory_info().rss)


def unmapped_bytes() -> int:
    """Return the resident bytes that are no pages of files: the system cannot reclaim them."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))  # not every system reports shared memory
