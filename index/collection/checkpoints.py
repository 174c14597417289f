"""Checkpoints: the saved index is written from time to time, not with each change.

An insert changes the links of many rows, so links are written part by part, between changes. Each
part is valid by itself, so a process may end at any moment. The next start rebuilds missing and
damaged parts.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import numpy as np

from gcws_search.index.collection.items import View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.writer import Writer
from gcws_search.index.contracts.arrays import Int32s, Int64s
from gcws_search.index.contracts.errors import StoreError
from gcws_search.index.contracts.links import LinkArray
from gcws_search.index.contracts.saved_index import UNKNOWN, notes_of, text_of
from gcws_search.index.kernels.graph.bridges import bridge
from gcws_search.index.storage.graph_parts import (
    Part,
    join_parts,
    pack,
    parts_of,
    rows_of_part,
    unpack,
)
from gcws_search.index.storage.store import Store
from gcws_search.index.threads import BackgroundTask

_NO_CHECKSUM: Final = -1
"""Of a part that is to be written, or removed, whatever is in its place."""

_log = logging.getLogger(__name__)


class Checkpoints(BackgroundTask):
    """Reads and writes the saved index of one collection.

    After each part it pauses for as long as the part held the interpreter lock.
    """

    name = "checkpoint"

    def __init__(self, store: Store, collection: MemoryCollection, writer: Writer) -> None:
        super().__init__()
        self._store = store
        self._collection = collection
        self._writer = writer
        self._checksums: dict[int, int] = {}  # of each part as stored in the file
        self._notes: str | None = None
        self._had_notes = False  # whether the file had notes
        self._next_sequence = store.next_sequence  # rows from here on are not in the file
        self._complete = False  # whether the file has the links of all rows
        self._version: int | None = None  # of the view whose links are in the file
        # Held while a part is copied and written; acquired before the writer's lock.
        self._writing = threading.Lock()
        self._generation = 0  # of links: incremented each time all are forgotten

    def read_notes(self) -> dict[str, Any]:
        """Return the notes in the file, empty if there are none. Call it once, before all else."""
        try:
            self._notes = self._store.meta("notes")
            found = {} if self._notes is None else notes_of(self._notes)
            self._had_notes = bool(found)
            return found
        except (ValueError, StoreError) as error:
            self._warn("notes are rebuilt", error)
            return {}

    def read_links(self, sequences: Int64s) -> Int32s:
        """Return the links that the file has for rows. Call it once, at the start.

        sequences: (n,) int64, sequence numbers of the rows, ascending.
        """
        links, deleted = join_parts(sequences, self._read_parts())
        if len(deleted):
            bridge(links, deleted, UNKNOWN)
        unknown = int((links[:, 0] == UNKNOWN).sum())
        self._next_sequence = self._store.next_sequence - unknown
        self._complete = unknown == 0
        return links

    def _read_parts(self) -> Iterator[Part]:
        damaged = []
        try:
            for number, data in self._store.links():
                try:
                    part = unpack(number, data)
                except ValueError as error:
                    self._checksums[number] = _NO_CHECKSUM
                    damaged.append((number, error))
                else:
                    self._checksums[number] = zlib.crc32(data)
                    yield part
        except StoreError as error:
            self._warn("what cannot be read is rebuilt", error)
        if damaged:
            number, reason = damaged[0]
            more = f", and {len(damaged) - 1} further ones" if len(damaged) > 1 else ""
            self._warn(f"part {number} is rebuilt{more}", reason)

    def note_loaded(self) -> None:
        """Record that memory holds what was read, and start a checkpoint if one is due."""
        saved = self._collection.backend.saved(self._collection.stored_view.state)
        if self._had_notes and saved is None:
            _log.warning(
                "index of collection %r: the saved index is of no use, and is rebuilt",
                self._store.name,
            )
        if self._complete:
            self._version = self._collection.stored_view.version
        self.start_if_due()

    def start_if_due(self) -> None:
        """Start a checkpoint in another thread if many rows have been put; any thread."""
        collection, policies = self._collection, self._collection.policies
        put = self._store.next_sequence - self._next_sequence
        if (
            put > policies.checkpoint_rows
            and put > collection.count // policies.checkpoint_share
            and collection.backend.saved(collection.stored_view.state) is not None
        ):
            self.start()

    def is_due(self) -> bool:
        """Return whether a step should start; a step writes everything."""
        return not self.is_running

    def bring_up_to_date(self) -> None:
        """Return once everything up to now is written, or nothing more can be."""
        while not self.stopping.is_set():
            is_new = self.start()
            self.join()
            if is_new:
                return

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Context in which the file's links and notes are removed and none are written.

        If the block raises, the file is unchanged.
        """
        with self._writing:
            yield
            self._checksums, self._notes, self._version = {}, None, None
            self._next_sequence = 0
            self._generation += 1

    def write_all(self) -> None:
        """Write all that the file lacks; the caller blocks changes meanwhile."""
        self._write(lambda work: work())

    def step(self) -> None:
        """Write all that the file lacks, part by part, between changes."""
        resumed = time.perf_counter()

        def between_changes(work: Callable[[], Any]) -> Any:  # noqa: ANN401
            nonlocal resumed
            # Let others have the interpreter for as long as this held it.
            if self.stopping.wait(time.perf_counter() - resumed):
                return None
            resumed = time.perf_counter()
            return self._writer.run_between_changes(work)

        self._write(between_changes)

    def _write(self, do: Callable[[Callable[[], Any]], Any]) -> None:
        """Bring the file up to date, or stop when ``do`` returns None.

        ``do`` calls a function while no change is being made, and returns None if it cannot. Only
        the copying of links needs it. So changes do not wait while this thread waits for the
        interpreter, the disk or SQLite's lock.
        """
        self._next_sequence, generation = self._store.next_sequence, self._generation
        try:
            first, notes = self._collection.stored_view, self._notes
            if not do(self._write_notes):
                return
            if first.version == self._version and notes == self._notes:
                return
            for number in sorted({*parts_of(first.sequences), *self._checksums}):
                with self._writing:
                    copy = do(partial(self._copy_part, number))
                    if copy is None:
                        return
                    view, rows, links = copy
                    is_kept = links is not None
                    data = pack(rows, view.sequences, view.alive, links) if is_kept else None
                    self._write_part(number, data)
        except StoreError as error:
            self._warn("the next start rebuilds what could not be written", error)
        except Exception:
            # The next start can rebuild it, so an error does not keep the collection from closing.
            _log.exception("links of collection %r could not be written", self._store.name)
        else:
            if generation == self._generation:
                self._version = first.version  # later changes may affect any part

    def _copy_part(self, number: int) -> tuple[View, slice, Int32s | None]:
        """Return a part's rows in the present view, and its links (None: save nothing)."""
        view = self._collection.stored_view
        rows = rows_of_part(number, view.sequences)
        saved = self._collection.backend.saved(view.state)
        return view, rows, None if saved is None else _links_of(saved.links, rows)

    def _write_part(self, number: int, data: bytes | None) -> None:
        checksum = None if data is None else zlib.crc32(data)
        if checksum == self._checksums.get(number):
            return
        self._store.write_links(number, data)
        if checksum is None:
            del self._checksums[number]
        else:
            self._checksums[number] = checksum

    def _write_notes(self) -> bool:
        saved = self._collection.backend.saved(self._collection.stored_view.state)
        notes = None if saved is None else text_of(saved.notes)
        if notes != self._notes:
            self._store.write_meta("notes", notes)
            self._notes = notes
        return True

    def _warn(self, what: str, error: Exception) -> None:
        _log.warning("links of collection %r: %s (%s)", self._store.name, what, error)


def _links_of(links: Int32s | LinkArray, rows: slice) -> Int32s:
    """Return a copy of the links of some rows; the last rows may have no links yet."""
    copy = np.full((rows.stop - rows.start, links.shape[1]), UNKNOWN, np.int32)
    known = links[rows]
    copy[: len(known)] = known
    return copy
