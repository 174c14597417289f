"""What an index keeps beside its items, written now and then and not with each change.

An insert touches the lists of many rows, so lists are written part by part, in between changes. A
part is right by itself, so a process may end at any moment; what is missing at the next start, or
is damaged, is made anew.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import orjson

from index.arrays import Int64s
from index.backends.protocol import UNKNOWN, Saved
from index.collection import Collection
from index.errors import StoreError
from index.links import Part, joined, packed, parts_of, unpacked
from index.store import Store
from index.writes import Writer

LEAST_ROWS: Final = 4096
"""So many rows may be put before their lists are written, ..."""
SHARE: Final = 4
"""... or 1/SHARE of all rows, when that is more."""

Step = Callable[[], None]
"""A piece of work that is done while no change is being made."""

_log = logging.getLogger(__name__)


class Checkpoints:
    """Reads and writes what one collection's index keeps.

    Parameters
    ----------
    store : Store
    collection : Collection
    writer : Writer
        Makes the changes of both.
    """

    def __init__(self, store: Store, collection: Collection, writer: Writer) -> None:
        self._store = store
        self._collection = collection
        self._writer = writer
        self._checksums: dict[int, int] = {}  # of each part as it is in the file
        self._notes: str | None = None
        self._next_key = store.next_key  # rows from here on have not been written
        self._complete = False  # whether the file had the lists of all rows
        self._version: int | None = None  # of the view whose lists the file has
        self._starting = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def read(self, keys: Int64s) -> Saved:
        """Return what the file has for rows of these keys; to be called once, before all else.

        Parameters
        ----------
        keys : (n,) int64
            Rising.
        """
        links = joined(keys, self._read_parts())
        unknown = int((links[:, 0] == UNKNOWN).sum())
        self._next_key = self._store.next_key - unknown
        self._complete = unknown == 0
        return Saved(links, self._read_notes())

    def _read_parts(self) -> list[Part]:
        parts = []
        try:
            for number, data in self._store.links():
                self._checksums[number] = zlib.crc32(data)
                try:
                    parts.append(unpacked(data))
                except ValueError as error:
                    self._warn(f"part {number} is made anew", error)
        except StoreError as error:
            self._warn("what cannot be read is made anew", error)
        return parts

    def _read_notes(self) -> dict[str, Any]:
        try:
            self._notes = self._store.notes()
            notes = {} if self._notes is None else orjson.loads(self._notes)
        except (ValueError, StoreError) as error:
            self._warn("notes are made anew", error)
            return {}
        return notes if isinstance(notes, dict) else {}

    def loaded(self) -> None:
        """Take note that the collection holds what was read."""
        if self._complete:
            self._version = self._collection.view.version
        self.start_if_due()

    def start_if_due(self) -> None:
        """Write in another thread once many rows have been put; any thread."""
        view = self._collection.view
        if self._store.next_key - self._next_key <= max(LEAST_ROWS, view.count // SHARE):
            return
        if self._collection.backend.saved(view.state) is None:
            return
        with self._starting:
            busy = self._thread is not None and self._thread.is_alive()
            if not busy and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Wait for the part being written, and start no more."""
        with self._starting:
            self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def finish(self) -> None:
        """Write all that the file does not have; the caller sees to it that nothing changes."""

        def at_once(step: Step) -> bool:
            step()
            return True

        self._write(at_once)

    def _run(self) -> None:
        def between_changes(step: Step) -> bool:
            start = time.perf_counter()
            done = self._writer.between(step)
            # As long as changes have been kept waiting they now have for themselves.
            stopping = self._stopping.wait(time.perf_counter() - start)
            return done and not stopping

        self._write(between_changes)

    def _write(self, do: Callable[[Step], bool]) -> None:
        """Bring the file up to date by steps, until ``do`` says that no more are wanted."""
        self._next_key = self._store.next_key
        view = self._collection.view
        steps: list[Step] = [self._write_notes]
        if view.version != self._version:
            numbers = {*parts_of(view.keys, view.alive), *self._checksums}
            steps += [partial(self._write_part, number) for number in sorted(numbers)]
        try:
            if all(do(step) for step in steps):
                self._version = view.version
        except StoreError as error:
            self._warn("what could not be written is made anew at the next start", error)

    def _write_part(self, number: int) -> None:
        view = self._collection.view
        saved = self._collection.backend.saved(view.state)
        data = None if saved is None else packed(number, view.keys, view.alive, saved.links)
        checksum = None if data is None else zlib.crc32(data)
        if checksum == self._checksums.get(number):
            return
        self._store.write_links(number, data)
        if checksum is None:
            del self._checksums[number]
        else:
            self._checksums[number] = checksum

    def _write_notes(self) -> None:
        saved = self._collection.backend.saved(self._collection.view.state)
        notes = None if saved is None else orjson.dumps(saved.notes).decode()
        if notes != self._notes:
            self._store.write_notes(notes)
            self._notes = notes

    def _warn(self, what: str, error: Exception) -> None:
        _log.warning("links of collection %r: %s (%s)", self._store.name, what, error)
