"""Comparison backends: built while others read and write, recorded in the collection's file.

A backend is recorded in the file when it is attached. A process that ends at any moment leaves it
either attached or absent. The next start rebuilds its index from the vectors.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import orjson

from gcws_search.index.backends import make_backend
from gcws_search.index.collection.backend_index import (
    MAX_CATCHING_UP,
    SMALL_BATCH,
    BackendIndex,
    build_index,
    catch_up,
)
from gcws_search.index.collection.items import View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.recovery import params_of
from gcws_search.index.collection.writer import Writer
from gcws_search.index.contracts.errors import (
    BackendExists,
    BackendNotFound,
    DamagedFile,
    GcwsError,
    InvalidInput,
    InvalidParameter,
    PrimaryBackend,
)
from gcws_search.index.contracts.parameters import BackendParams, NystroemParams, backend_document
from gcws_search.index.contracts.saved_index import notes_of, text_of
from gcws_search.index.storage.data_directory import check_name
from gcws_search.index.storage.schema import BackendRecord
from gcws_search.index.storage.store import Store
from gcws_search.index.threads import StoppedError, give_way

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Building:
    """A backend that is being built.

    notes: saved landmarks of another index, which this one reuses.
    """

    name: str
    params: BackendParams
    notes: str | None = None
    progress: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)

    def report(self, first: float, last: float, share: float) -> None:
        """Record that ``share`` of the work between two progress values is done."""
        self.progress = first + share * (last - first)


class AttachedBackends:
    """The comparison backends of one collection."""

    def __init__(
        self, store: Store, collection: MemoryCollection, writer: Writer, threads: int | None
    ) -> None:
        self._store = store
        self._collection = collection
        self._writer = writer
        self._threads = threads
        self._naming = threading.Lock()
        self._building: dict[str, Building] = {}
        self._notes: dict[str, str | None] = {}  # as stored in the file
        self._refusal: Callable[[], GcwsError] | None = None
        self._stopping = threading.Event()
        # One build at a time, with lower priority than searches.
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="builder", initializer=give_way)

    @property
    def building(self) -> list[Building]:
        """The backends that are being built, in order of request."""
        with self._naming:
            return list(self._building.values())

    def load(self, progress: Callable[[int], None]) -> None:
        """Build the backends that the file lists. Call it once, after all rows are loaded.

        progress: called with the number of items added since the last call.
        Raises DamagedFile.
        """
        for record in self._store.backends():
            try:
                params = params_of(record, self._collection.backend.kind)
            except (ValueError, InvalidInput) as error:
                reason = f"backend {record.name!r} is unreadable ({error})"
                raise DamagedFile(self._store.name, reason) from error
            self._notes[record.name] = record.notes
            view = self._collection.stored_view
            notes, damage = dict[str, Any](), ""
            try:
                notes = {} if record.notes is None else notes_of(record.notes)
            except ValueError as error:
                damage = str(error)
            indexed = self.make_empty(record.name, params).restore(view.vectors, notes)
            if damage or (notes and not indexed.notes):
                _log.warning(
                    "backend %r of collection %r: its notes are of no use, so it is rebuilt (%s)",
                    record.name,
                    self._store.name,
                    damage or "no index has such notes",
                )
            self._collection.attach(indexed)
            progress(view.count)

    def attach(
        self, params: BackendParams, name: str | None = None, notes: str | None = None
    ) -> str:
        """Build a backend from the stored vectors; return its name once it is ready.

        name: None uses the kind, followed by a number if that name exists already.
        notes: from `notes_of_backend` of another index; its landmarks are reused.
        Raises InvalidParameter (the name is invalid, or there are fewer items than landmarks),
            BackendExists, BackendNotFound (it was dropped meanwhile), and the errors of writes.
        """
        if notes is None:
            require_landmarks(params, self._collection.stored_view.count)
        building, done = self._start(params, name, notes)
        try:
            done.result()
        finally:
            with self._naming:
                del self._building[building.name]
        return building.name

    def _start(
        self, params: BackendParams, name: str | None, notes: str | None
    ) -> tuple[Building, Future[None]]:
        if name is not None:
            check_name(name)
        with self._naming:
            if self._refusal is not None:
                raise self._refusal()
            attached = self._collection.stored_view.attached
            taken = {self._collection.backend.kind, *attached, *self._building}
            if name in taken:
                raise BackendExists(name)
            number = 1
            chosen = name or params.kind
            while chosen in taken:
                number += 1
                chosen = f"{params.kind}_{number}"
            building = self._building[chosen] = Building(chosen, params, notes)
            return building, self._builder.submit(self.make, building)

    def make_empty(self, name: str, params: BackendParams) -> BackendIndex:
        """Return a backend without rows."""
        config = replace(self._collection.config, backend=params)
        collection = self._collection
        backend = make_backend(
            config,
            threads=self._threads,
            policies=collection.policies,
            searches=collection.searches,
        )
        return BackendIndex(name, params, backend, backend.empty())

    def make(self, building: Building) -> None:
        """Build a backend and publish it; raise if it was dropped meanwhile."""
        view = self._collection.stored_view
        empty, stop = self.make_empty(building.name, building.params), building.stop
        if building.notes is not None:
            empty = empty.restore(view.vectors[:0], notes_of(building.notes))
        is_optimized = empty.backend.is_overdue(empty.state, len(view), view.count)
        extending = 0.5 if is_optimized else 1.0  # share of the progress
        indexed = build_index(empty, view.vectors, partial(building.report, 0.0, extending), stop)
        if indexed is not None:
            report = partial(building.report, extending, 1.0)
            indexed = indexed.optimize(view.vectors, view.alive, stop, report)
        # More rows may arrive while earlier ones are added, so repeat.
        for _ in range(MAX_CATCHING_UP):
            now = self._collection.stored_view
            if indexed is None or len(now) - len(view) <= SMALL_BATCH:
                break
            indexed = catch_up(indexed, view.sequences, now.vectors, now.sequences)
            view = now
        if indexed is None or stop.is_set():
            raise self._refusal_of(building)
        self._writer.run_as_change(partial(self._publish, building, indexed, view))

    def _publish(self, building: Building, indexed: BackendIndex, basis: View) -> None:
        if building.stop.is_set():
            raise self._refusal_of(building)
        now = self._collection.stored_view
        indexed = catch_up(indexed, basis.sequences, now.vectors, now.sequences)
        notes = notes_of_backend(indexed)
        params = orjson.dumps(backend_document(indexed.params)["params"]).decode()
        self._store.add_backend(BackendRecord(indexed.name, indexed.params.kind, params, notes))
        self._notes[indexed.name] = notes
        self._collection.attach(indexed)

    def _refusal_of(self, building: Building) -> Exception:
        if self._refusal is not None:
            return self._refusal()
        return BackendNotFound(building.name)

    def drop(self, name: str) -> None:
        """Remove a backend, or stop its build. Its memory is freed when the last search of it ends.

        Raises BackendNotFound, PrimaryBackend, and the errors of writes.
        """
        if name == self._collection.backend.kind:
            raise PrimaryBackend(name)
        with self._naming:
            building = self._building.get(name)
        if building is not None:
            building.stop.set()
        self._writer.run_as_change(partial(self._remove, name, building is not None))

    def _remove(self, name: str, was_coming: bool) -> None:
        if was_coming and name not in self._collection.stored_view.attached:
            return
        self._collection.index_of(self._collection.stored_view, name)
        self._store.remove_backend(name)
        self._notes.pop(name, None)
        self._collection.detach(name)

    def run_alone(self, work: Callable[[threading.Event], T]) -> T:
        """Run ``work`` while no backend is being built, and return its result.

        work: called with an event; once that is set, it must end with StoppedError.
        Raises what ``work`` raises, and the errors of writes once the collection refuses changes.
        """
        with self._naming:
            if self._refusal is not None:
                raise self._refusal()
            done = self._builder.submit(work, self._stopping)
        try:
            return done.result()
        except StoppedError:
            assert self._refusal is not None
            raise self._refusal() from None

    def forget_notes(self) -> None:
        """Record that the file no longer has notes of indexes."""
        self._notes = dict.fromkeys(self._notes)

    def save_notes(self) -> None:
        """Write the changed notes of indexes; the caller blocks changes meanwhile."""
        for indexed in self._collection.stored_view.attached.values():
            notes = notes_of_backend(indexed)
            if notes != self._notes.get(indexed.name):
                self._store.note_backend(indexed.name, notes)
                self._notes[indexed.name] = notes

    def stop(self, refusal: Callable[[], GcwsError]) -> None:
        """Stop all builds and refuse new ones.

        refusal: returns the error for callers that wait and for all later calls.
        """
        with self._naming:
            self._refusal = refusal
            self._stopping.set()
            for building in self._building.values():
                building.stop.set()
        self._builder.shutdown()


def notes_of_backend(indexed: BackendIndex) -> str | None:
    """Return what the file stores of a backend's index: the landmarks of Nyström features."""
    return text_of(indexed.notes) if indexed.notes else None


def require_landmarks(params: BackendParams, items: int) -> None:
    """Raise InvalidParameter if a backend needs more landmarks than there are items."""
    if isinstance(params, NystroemParams) and params.landmarks > items:
        raise InvalidParameter(
            expected=f"1 to {items}, the number of items" if items else "items to choose from",
            got=str(params.landmarks),
            loc=("params", "landmarks"),
        )
