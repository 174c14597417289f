"""Comparison backends: built beside readers and writers, recorded in the collection's file.

A backend is in the file from the moment it is attached, so a process that ends at any moment
leaves it attached or leaves nothing. The next start rebuilds its index from the vectors.
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

    notes: of an index of other items, whose landmarks it takes.
    """

    name: str
    params: BackendParams
    notes: str | None = None
    progress: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)

    def report(self, first: float, last: float, share: float) -> None:
        """Take note of the share that is done of the part of the work between two shares."""
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
        self._notes: dict[str, str | None] = {}  # as they are in the file
        self._refusal: Callable[[], GcwsError] | None = None
        self._stopping = threading.Event()
        # One at a time, and behind those who search.
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="builder", initializer=give_way)

    @property
    def building(self) -> list[Building]:
        """The backends that are being built, in the order in which they were asked for."""
        with self._naming:
            return list(self._building.values())

    def load(self, progress: Callable[[int], None]) -> None:
        """Build the backends that the file names; call it once, when all rows are loaded.

        progress: called with the number of items taken in since the last call.
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
        """Build a backend from the stored vectors; return its name when it is ready.

        name: None takes the kind, with a number where that is taken.
        notes: of an index of other items (`notes_of_backend`), whose landmarks are taken.
        Raises InvalidParameter (the name is none, or there are fewer items than landmarks),
            BackendExists, BackendNotFound (it was dropped before it was ready), and as writes do.
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
        """Return a backend of no rows."""
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
        """Build a backend and publish it; raise where it was dropped meanwhile."""
        view = self._collection.stored_view
        empty, stop = self.make_empty(building.name, building.params), building.stop
        if building.notes is not None:
            empty = empty.restore(view.vectors[:0], notes_of(building.notes))
        is_optimized = empty.backend.is_overdue(empty.state, len(view), view.count)
        extending = 0.5 if is_optimized else 1.0  # its share of the work
        indexed = build_index(empty, view.vectors, partial(building.report, 0.0, extending), stop)
        if indexed is not None:
            report = partial(building.report, extending, 1.0)
            indexed = indexed.optimize(view.vectors, view.alive, stop, report)
        # While rows are taken in that were put meanwhile, more are put.
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
        """Remove a backend, or stop its build; its memory is free once no search uses it.

        Raises BackendNotFound, PrimaryBackend, and as writes do.
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
        """Run some work while no backend is built, and return its result.

        work: called with an event that is set once it is to end with a StoppedError.
        Raises what it raises, and as writes do once no changes are taken any more.
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
        """Record that the file has no notes of indexes any more."""
        self._notes = dict.fromkeys(self._notes)

    def save_notes(self) -> None:
        """Write the notes of indexes that have changed; the caller holds off changes."""
        for indexed in self._collection.stored_view.attached.values():
            notes = notes_of_backend(indexed)
            if notes != self._notes.get(indexed.name):
                self._store.note_backend(indexed.name, notes)
                self._notes[indexed.name] = notes

    def stop(self, refusal: Callable[[], GcwsError]) -> None:
        """Stop builds, and start no others.

        refusal: returns the error for those who wait, and for all calls from then on.
        """
        with self._naming:
            self._refusal = refusal
            self._stopping.set()
            for building in self._building.values():
                building.stop.set()
        self._builder.shutdown()


def notes_of_backend(indexed: BackendIndex) -> str | None:
    """Return what the file keeps of a backend's index: the landmarks of Nyström's features."""
    return text_of(indexed.notes) if indexed.notes else None


def require_landmarks(params: BackendParams, items: int) -> None:
    """Raise InvalidParameter where a backend wants more landmarks than there are items."""
    if isinstance(params, NystroemParams) and params.landmarks > items:
        raise InvalidParameter(
            expected=f"1 to {items}, the number of items" if items else "items to choose from",
            got=str(params.landmarks),
            loc=("params", "landmarks"),
        )
