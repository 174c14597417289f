"""Loads under way, and the last ones that have ended, of each collection."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal
from weakref import WeakKeyDictionary

from gcws_search import index as ix
from gcws_search.service.contract import CollectionProtocol
from gcws_search.service.ingest.job import Account

MAX_ENDED: Final = 20
"""Loads of a collection that are remembered."""

State = Literal["running", "done", "failed"]


@dataclass(slots=True, eq=False)
class LoadEntry:
    """One load of this process.

    total_bytes: bytes of the whole body; None where they are not known.
    rows_before: rows that were stored or rejected under the key before.
    started: seconds since 1970.
    """

    key: str | None
    account: Account
    total_bytes: int | None = None
    rows_before: int = 0
    started: float = field(default_factory=time.time)
    state: State = "running"
    error: str | None = None
    _clock: float = field(default_factory=time.perf_counter)
    _seconds: float | None = None

    def go_on(self, account: Account) -> None:
        """Continue from the account of an earlier load under this key."""
        self.account, self.rows_before = account, account.state.mark.rows

    def end(self, error: str | None = None) -> None:
        """Note that the load has ended."""
        self._seconds = time.perf_counter() - self._clock
        self.state, self.error = ("done", None) if error is None else ("failed", error)

    @property
    def rate(self) -> float:
        """Rows a second, those that came before this process left out."""
        seconds = self._seconds or time.perf_counter() - self._clock
        return (self.account.state.mark.rows - self.rows_before) / max(seconds, 1e-9)


class Loads:
    """The loads of all collections; used on the event loop alone."""

    def __init__(self) -> None:
        self._ended: WeakKeyDictionary[object, deque[LoadEntry]] = WeakKeyDictionary()
        self._running: list[tuple[object, LoadEntry]] = []

    def require_free(self, collection: CollectionProtocol, key: str) -> None:
        """Raise CollectionBusy while a load of this key runs."""
        if any(entry.key == key for entry in self._of(collection)):
            raise ix.CollectionBusy(collection.name, f"a load under the key {key!r} is under way")

    @contextmanager
    def running(self, collection: CollectionProtocol, entry: LoadEntry) -> Iterator[None]:
        """Count a load among those under way while it runs, and then among those that have ended.

        Raises CollectionBusy (another load of its key runs).
        """
        if entry.key is not None:
            self.require_free(collection, entry.key)
        running = collection, entry
        self._running.append(running)
        error: str | None = None
        try:
            yield
        except BaseException as found:
            error = str(found) or "the request ended early"
            raise
        finally:
            entry.end(error)
            self._running.remove(running)
            self._ended.setdefault(collection, deque(maxlen=MAX_ENDED)).append(entry)

    def of(self, collection: CollectionProtocol) -> list[LoadEntry]:
        """Return the loads of a collection, the last first, those under way before the others."""
        ended = self._ended.get(collection, ())
        return [*reversed([*self._of(collection)]), *reversed(ended)]

    def _of(self, collection: CollectionProtocol) -> Iterator[LoadEntry]:
        return (entry for owner, entry in self._running if owner is collection)
