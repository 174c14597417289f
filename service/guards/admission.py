"""Load shedding: requests under way, bytes of bodies, memory and disk.

503 and 507 are decided here. The 429 of a full queue is raised in `execution.pools`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
from starlette.types import Scope

from gcws_search.index import OutOfDescriptors
from gcws_search.service.errors import DiskShareReached, MemoryFull, Overloaded, ShardFull
from gcws_search.service.settings import Settings

ALWAYS: Final = frozenset({"/livez", "/readyz", "/healthz"})
"""Paths that answer however much there is to do."""
LAST_DESCRIPTORS: Final = "gcws.last_descriptors"
"""In a request's scope where its connection has one of the last file descriptors."""
_HELD: Final = "gcws.held_bytes"
_CGROUPS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


class Admission:
    """Counts what is under way; used on the event loop alone."""

    def __init__(self, settings: Settings) -> None:
        self._max_requests = settings.max_requests
        self._max_held = settings.max_held_bytes
        self.requests = 0
        self.held_bytes = 0

    def enter(self, scope: Scope) -> None:
        """Count a request that begins, also one that is refused.

        Overloaded: too many are under way. OutOfDescriptors: those that are left are for files.
        """
        self.requests += 1
        if scope["path"] in ALWAYS:
            return
        if LAST_DESCRIPTORS in scope:
            raise OutOfDescriptors(None)
        if self.requests > self._max_requests:
            raise Overloaded(f"{self._max_requests} requests are under way")

    def hold(self, scope: Scope, size: int) -> None:
        """Count bytes of a request's body, kept until it is answered, or raise Overloaded."""
        if self.held_bytes + size > self._max_held:
            raise Overloaded(f"{self.held_bytes} bytes of bodies are being worked on")
        self.held_bytes += size
        scope[_HELD] = scope.get(_HELD, 0) + size

    def gauges(self) -> dict[tuple[str, str], float]:
        """Return what is under way, as metrics name it."""
        return {
            ("gcws_requests_under_way", ""): self.requests,
            ("gcws_held_bytes", ""): self.held_bytes,
            ("gcws_resident_bytes", ""): resident_bytes(),
        }

    def leave(self, scope: Scope) -> None:
        """Count a request that has ended."""
        self.requests -= 1
        self.held_bytes -= scope.pop(_HELD, 0)


class Room:
    """Whether more may be stored; any thread.

    ``elsewhere`` returns what has been used up on other machines, None where nothing has.
    """

    def __init__(
        self,
        settings: Settings,
        elsewhere: Callable[[], ShardFull | None] | None = None,
        *,
        max_age_seconds: float = 0.25,
    ) -> None:
        self.max_age_seconds = max_age_seconds
        self._elsewhere = elsewhere
        self._folder = settings.data_dir
        self._disk_share = settings.max_disk_share
        self._memory_share = settings.max_memory_share
        self._memory = memory_bytes()
        self._checked_at = float("-inf")
        self._refusal: MemoryFull | DiskShareReached | ShardFull | None = None

    def require(self) -> None:
        """Raise what has been used up, memory or disk, as of at most ``max_age_seconds`` ago."""
        now = time.monotonic()
        if now - self._checked_at > self.max_age_seconds:
            self._checked_at = now
            self._refusal = self.look() or (self._elsewhere and self._elsewhere())
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)

    def gauges(self) -> dict[tuple[str, str], float]:
        """Return the sizes that are held against the limits, as metrics name them."""
        found = {("gcws_memory_limit_bytes", ""): float(self._memory)}
        with suppress(OSError):
            disk = shutil.disk_usage(self._folder)
            found["gcws_disk_used_ratio", ""] = (disk.total - disk.free) / disk.total
        return found

    def look(self, elsewhere: float = 0.0) -> MemoryFull | DiskShareReached | None:
        """Return what has been used up at this moment.

        ``elsewhere``: the share of the memory that other processes have within the same limit.
        """
        used = unmapped_bytes() + int(elsewhere * self._memory)
        if used > self._memory_share * self._memory:
            return MemoryFull(used, self._memory, self._memory_share)
        try:
            disk = shutil.disk_usage(self._folder)
        except OSError:  # the write itself will say what is wrong
            return None
        if disk.total - disk.free > self._disk_share * disk.total:
            return DiskShareReached(disk.free, disk.total, self._disk_share)
        return None


def memory_bytes() -> int:
    """Return how much memory this process may have."""
    limits = [_number(path) for path in _CGROUPS]
    limits.append(psutil.virtual_memory().total)
    return min(limit for limit in limits if limit is not None)


def resident_bytes() -> int:
    """Return how much memory this process has."""
    return int(psutil.Process().memory_info().rss)


def unmapped_bytes() -> int:
    """Return how much of it the system cannot take back: what is no page of a file."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))  # not every system tells the latter


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such group, or "max"
        return None
