"""Expiring items: hidden from every read that starts after that time, and deleted soon after.

A read takes the lock and compares one number with the clock; if items are due, it uses a copy of
the mask of live rows. The writer deletes due items with the next change; without one, a thread
makes a change. A shard of a cluster deletes only what the cluster deletes.
"""

from __future__ import annotations

import heapq
import threading
import time
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import repeat
from typing import Final

import numpy as np

from gcws_search.index.collection.items import View
from gcws_search.index.contracts.arrays import NEVER, Int64s, UInt8s
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import MAX_TTL_SECONDS

_NOTHING_HIDDEN: Final[tuple[View | None, int, View | None]] = (None, 0, None)
_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


def expiry_ms(value: str | float | None, *loc: str | int, now: float | None = None) -> int | None:
    """Return an RFC 3339 time, or seconds from now, as ms since 1970; None for None.

    value: seconds may also be a decimal number as text, as in query parameters and CSV.
    now: seconds since 1970; None for the current time.
    Raises InvalidParameter.
    """
    if value is None:
        return None
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
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
    """Return ms since 1970 as an RFC 3339 time; None for never."""
    if expires is None:
        return None
    text = datetime.fromtimestamp(expires / 1000, UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


class Expirations:
    """The expiry times of a collection's items; any thread.

    clock: returns seconds since 1970; may differ between readers.
    are_deleted: whether the writer deletes expired items.
    are_any: whether any item may expire, or has expired and is not deleted yet.
    """

    def __init__(self, clock: Callable[[], float] = time.time, *, are_deleted: bool = True) -> None:
        self.clock = clock
        self.are_deleted = are_deleted
        self.are_any = False
        self._lock = threading.Lock()
        self._queue: list[tuple[int, int]] = []  # ms since 1970 and sequence number, a heap
        self._due: list[tuple[int, int]] = []  # sorted: expired by the clock of any reader
        self._hidden = _NOTHING_HIDDEN  # a view, the number of due items, and the view without them

    def add(self, sequences: Sequence[int], expires: Sequence[int | None]) -> None:
        """Record when items expire, in ms since 1970; None for never."""
        with self._lock:
            for sequence, at in zip(sequences, expires, strict=True):
                if at is not None:
                    heapq.heappush(self._queue, (at, sequence))
                    self.are_any = True

    def replace(self, view: View) -> None:
        """Record when the live items of a view expire, and forget all other items."""
        rows = np.flatnonzero(view.alive[: len(view.expires)])
        rows = rows[view.expires[rows] < NEVER]
        columns = view.expires[rows].tolist(), view.sequences[rows].tolist()
        with self._lock:
            self._queue, self._due = sorted(zip(*columns, strict=True)), []

    @property
    def seconds_left(self) -> float | None:
        """Seconds until an item must be deleted; 0 if one is due, None if none will be."""
        with self._lock:
            first = min(self._queue[:1] + self._due[:1], default=None)
            if first is None or not self.are_deleted:
                return None
            return max(0.0, first[0] / 1000 - self.clock())

    def hide(self, view: View) -> View:
        """Return a view without the expired items."""
        with self._lock:
            due = self._find_due()
            if not due:
                return view
            of, count, hidden = self._hidden
            if of is not view or count != due or hidden is None:
                rows = self._rows(view, due)
                hidden = view
                if len(rows):
                    alive = view.alive.copy()
                    alive[rows] = 0
                    hidden = replace(view, alive=alive, count=view.count - len(rows))
                self._hidden = view, due, hidden
            return hidden

    def ids_to_delete(self, view: View) -> list[str]:
        """Return the ids of the expired items of the present view; for the writer."""
        if not self.are_deleted:
            return []
        with self._lock:
            if not (due := self._find_due()):
                return []
            rows = self._rows(view, due).tolist()
            there = {*view.sequences[rows].tolist()}  # other items were replaced
            self._due[:due] = [each for each in self._due[:due] if each[1] in there]
            return view.ids.of(rows)

    def forget(self, sequences: Sequence[int]) -> None:
        """Forget expired items that have been deleted."""
        with self._lock:
            if self._due:
                gone = {*sequences}
                self._due = [each for each in self._due if each[1] not in gone]
            self._hidden = _NOTHING_HIDDEN
            self.are_any = bool(self._queue or self._due)

    def _find_due(self) -> int:
        """Return how many of the first items of `_due` have expired; the lock is held."""
        queue, now = self._queue, self.clock() * 1000
        if queue and queue[0][0] <= now:
            self._hidden = _NOTHING_HIDDEN
        while queue and queue[0][0] <= now:
            insort(self._due, heapq.heappop(queue))
        return bisect_right(self._due, (now, NEVER))

    def _rows(self, view: View, count: int) -> Int64s:
        """Return the live rows of a view among the first of `_due`; the caller holds the lock."""
        due = np.fromiter((sequence for _, sequence in self._due[:count]), np.int64, count)
        rows = np.searchsorted(view.sequences, due)
        known = rows < len(view)
        rows, due = rows[known], due[known]
        rows = rows[(view.sequences[rows] == due) & (view.alive[rows] == 1)]
        return np.sort(rows)


def with_ttl(
    expires: Sequence[int | None], count: int, ttl: float | None, now: float
) -> Sequence[int | None]:
    """Return when items expire: at their own time, or by the collection's ``ttl``."""
    if ttl is None:
        return expires
    due = round((now + ttl) * 1000)
    return [due if own is None else own for own in (expires or repeat(None, count))]


def lasting(expires: Sequence[int | None], count: int, now: float) -> UInt8s:
    """Return (count,) 1 for each item that has not expired; times are ms since 1970."""
    return np.array([at is None or at > 1000 * now for at in expires or (None,) * count], np.uint8)
