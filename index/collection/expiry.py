"""Items that expire: hidden from every read that begins after that instant, deleted soon after.

A read takes the lock and compares one number with the clock; where something is due, it looks at a
copy of the mask of live rows. The writer deletes what is due with the next change, and a thread
makes one where none comes.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import repeat
from typing import Final

import numpy as np

from gcws_search.index.collection.items import View
from gcws_search.index.contracts.arrays import NEVER, Int64s
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import MAX_TTL_SECONDS

_NOTHING_HIDDEN: Final[tuple[View | None, View | None]] = (None, None)
_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


def expiry_ms(value: str | float | None, *loc: str | int, now: float | None = None) -> int | None:
    """Return a time of RFC 3339, or seconds from now, in ms since 1970; None for None.

    now: seconds since 1970, of the clock unless given.
    Raises InvalidParameter.
    """
    if value is None:
        return None
    if isinstance(value, str):
        try:
            time_ = datetime.fromisoformat(value)
        except ValueError:
            time_ = None
        if time_ is None or time_.tzinfo is None or "T" not in value.upper():
            raise InvalidParameter(
                expected="a time such as '2027-01-01T00:00:00Z', or seconds",
                got=repr(value[:64]),
                loc=(*loc, "expires"),
            )
        found = (time_ - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
        return max(0, min(round(found * 1000), _MAX_MS))
    if isinstance(value, bool) or not 0 < value <= MAX_TTL_SECONDS:
        expected = f"seconds above 0, at most {MAX_TTL_SECONDS}"
        raise InvalidParameter(expected=expected, got=repr(value), loc=(*loc, "expires"))
    return round(((time.time() if now is None else now) + value) * 1000)


def expiry_text(expires: int | None) -> str | None:
    """Return ms since 1970 as a time of RFC 3339, None for never."""
    if expires is None:
        return None
    text = datetime.fromtimestamp(expires / 1000, UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


class Expirations:
    """When the items of a collection expire; any thread.

    clock: returns seconds since 1970.
    are_any: whether any item may expire, or has and is not deleted yet.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.are_any = False
        self._lock = threading.Lock()
        self._queue: list[tuple[int, int]] = []  # ms since 1970 and sequence number, a heap
        self._due: set[int] = set()  # sequence numbers of rows not deleted yet
        self._hidden = _NOTHING_HIDDEN  # a view, and the same without what was due

    def add(self, sequences: Sequence[int], expires: Sequence[int | None]) -> None:
        """Note when items expire, ms since 1970; None for never."""
        with self._lock:
            for sequence, at in zip(sequences, expires, strict=True):
                if at is not None:
                    heapq.heappush(self._queue, (at, sequence))
                    self.are_any = True

    def replace(self, view: View) -> None:
        """Note when the live items of a view expire, and forget those of others."""
        rows = np.flatnonzero(view.alive[: len(view.expires)])
        rows = rows[view.expires[rows] < NEVER]
        columns = view.expires[rows].tolist(), view.sequences[rows].tolist()
        with self._lock:
            self._queue = sorted(zip(*columns, strict=True))

    @property
    def seconds_left(self) -> float | None:
        """How long until an item expires; 0 where one has, None where none will."""
        with self._lock:
            self._find_due()
            if self._due:
                return 0.0
            if not self._queue:
                return None
            return max(0.0, self._queue[0][0] / 1000 - self.clock())

    def hide(self, view: View) -> View:
        """Return a view without the items that have expired."""
        with self._lock:
            self._find_due()
            if not self._due:
                return view
            of, hidden = self._hidden
            if of is not view or hidden is None:
                rows = self._rows(view)
                hidden = view
                if len(rows):
                    alive = view.alive.copy()
                    alive[rows] = 0
                    hidden = replace(view, alive=alive, count=view.count - len(rows))
                self._hidden = view, hidden
            return hidden

    def due_ids(self, view: View) -> list[str]:
        """Return the ids of items that have expired; of the present view, by who writes."""
        with self._lock:
            self._find_due()
            if not self._due:
                return []
            rows = self._rows(view).tolist()
            self._due.intersection_update(view.sequences[rows].tolist())  # others were replaced
            return [view.ids[row] for row in rows]

    def forget(self, sequences: Sequence[int]) -> None:
        """Forget items that have expired: they are deleted."""
        with self._lock:
            self._due.difference_update(sequences)
            self._hidden = _NOTHING_HIDDEN
            self.are_any = bool(self._queue or self._due)

    def _find_due(self) -> None:
        """Note what has expired since; the lock is held."""
        queue, now = self._queue, self.clock() * 1000
        if queue and queue[0][0] <= now:
            self._hidden = _NOTHING_HIDDEN
        while queue and queue[0][0] <= now:
            self._due.add(heapq.heappop(queue)[1])

    def _rows(self, view: View) -> Int64s:
        """Return the live rows of a view that are due; the lock is held."""
        due = np.fromiter(self._due, np.int64, len(self._due))
        rows = np.searchsorted(view.sequences, due)
        known = rows < len(view)
        rows, due = rows[known], due[known]
        rows = rows[(view.sequences[rows] == due) & (view.alive[rows] == 1)]
        return np.sort(rows)


def with_ttl(
    expires: Sequence[int | None], count: int, ttl: float | None, now: float
) -> Sequence[int | None]:
    """Return when items expire: their own time, else that of the collection's ``ttl``."""
    if ttl is None:
        return expires
    due = round((now + ttl) * 1000)
    return [due if own is None else own for own in (expires or repeat(None, count))]
