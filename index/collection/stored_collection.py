"""A durable collection: each write is both in memory and in its file, or in neither."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import repeat, starmap
from pathlib import Path
from typing import Any, Literal, TypeVar
from weakref import WeakMethod

import numpy as np

from gcws_search.index.backends import POLICIES, GcwsBackend, Policies
from gcws_search.index.collection.attached_backends import AttachedBackends
from gcws_search.index.collection.audit import AuditedQueries, Auditor, RecallAudit
from gcws_search.index.collection.checkpoints import Checkpoints
from gcws_search.index.collection.compare import SAMPLE, ComparedQueries, Comparison, compare
from gcws_search.index.collection.describe import (
    BackendDescription,
    Description,
    Summary,
    WeightsDescription,
    describe_backend,
    describe_weights,
    versions,
)
from gcws_search.index.collection.expirer import Expirer
from gcws_search.index.collection.expiry import Expirations
from gcws_search.index.collection.explain import Explainable, explain
from gcws_search.index.collection.fit import (
    Reencoding,
    batches_of,
    codes_of,
    config_with,
    weights_of,
)
from gcws_search.index.collection.groups import (
    find_copies,
    find_many_copies,
    first_equal_pairs,
    group_rows,
    without_copies,
)
from gcws_search.index.collection.hints import hints_of
from gcws_search.index.collection.item_map import map_items
from gcws_search.index.collection.items import (
    ItemBatch,
    Page,
    QueryResult,
    QueryResults,
    StoredItem,
    View,
    cursor_of,
    sequence_of,
)
from gcws_search.index.collection.join import CollectionJoin
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.name_scan import scan_with_unknown, widen
from gcws_search.index.collection.optimizer import Optimizer
from gcws_search.index.collection.profile import PROFILE_SAMPLE, profile
from gcws_search.index.collection.reclaim import Reclaimer
from gcws_search.index.collection.recovery import load_rows
from gcws_search.index.collection.writer import ChosenItems, Put, Run, Write, Writer, WriteResult
from gcws_search.index.contracts.analysis import (
    SHARES,
    CostCurve,
    Explained,
    Group,
    GroupParams,
    ItemMap,
    JoinParams,
    MapParams,
)
from gcws_search.index.contracts.arrays import Int64s, UInt16s
from gcws_search.index.contracts.batches import JsonVector, RawBatch, SparseVector, VectorBatch
from gcws_search.index.contracts.errors import (
    CollectionLoading,
    CollectionNotFound,
    DamagedFile,
    InvalidParameter,
    ItemNotFound,
    StoreError,
)
from gcws_search.index.contracts.hits import Pairs, RowView
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    Encoding,
    Mode,
    SearchParams,
    WeightKind,
    require,
)
from gcws_search.index.contracts.saved_index import next_id_of, with_checksum
from gcws_search.index.contracts.scores import Ranking
from gcws_search.index.hashing.gcws import ALGORITHM_VERSION, Signatures
from gcws_search.index.payload import Filter, PayloadChange, check_metadata, metadata_of
from gcws_search.index.storage.connection import MEMORY, storage_errors
from gcws_search.index.storage.schema import Identity, LoadRecord, Record
from gcws_search.index.storage.store import Store
from gcws_search.index.threads import Searches, read_ahead
from gcws_search.index.vectors.names import NamedCoordinate, check_names
from gcws_search.index.vectors.space import VectorSpace
from gcws_search.index.vectors.weights import Weights

T = TypeVar("T")

_log = logging.getLogger(__name__)


def _unless_gone(method: Callable[..., None]) -> Callable[..., None]:
    """Wrap a method so that it is called only while its object exists, by a weak reference.

    Without reference cycles, a collection frees its arrays with its last user. The garbage
    collector would be slow to do so: it counts objects, not their bytes.
    """
    found = WeakMethod(method)

    def call(*given: Any) -> None:  # noqa: ANN401  # the method's
        known = found()
        if known is not None:
            known(*given)

    return call


class StoredCollection:
    """A collection of items that survive the process.

    Every write may also raise DiskFull, DirectoryLocked, DamagedFile or CollectionNotFound. It has
    then changed nothing, unless the file is damaged. A start raises DamagedFile, DiskFull.

    searches: shared by all collections of the catalog.
    paused, expirations: see `MemoryCollection`.
    """

    def __init__(
        self,
        store: Store,
        config: CollectionConfig,
        *,
        threads: int | None = None,
        policies: Policies = POLICIES,
        searches: Searches | None = None,
        paused: threading.Event | None = None,
        expirations: Callable[[], Expirations] = Expirations,
    ) -> None:
        self.name = store.name
        self.store = store
        folder = None if store.path == MEMORY else store.path.parent
        self.memory = MemoryCollection(
            config,
            threads=threads,
            policies=policies,
            searches=searches,
            folder=folder,
            expirations=expirations,
            paused=paused,
        )
        self.writer = Writer(store, self.memory, _unless_gone(self._after_commit))
        self.checkpoints = Checkpoints(store, self.memory, self.writer)
        self.attached_backends = AttachedBackends(store, self.memory, self.writer, threads)
        on_publish = _unless_gone(self._on_publish)
        self.optimizer = Optimizer(self.memory, self.writer, on_publish, self.memory.paused)
        self.audit = RecallAudit(self.memory, policies)
        self.auditor = Auditor(self.audit, store, self.writer)
        self.reclaimer = Reclaimer(store, self.memory, self.writer, policies)
        self.expirer = Expirer(self.memory.expirations, self.writer)
        self.searches = self.memory.searches
        self.names = self.memory.names
        self.metadata: bytes | None = None
        self._stamp = store.meta("stamp") or ""

    @classmethod
    def in_memory(
        cls, name: str, config: CollectionConfig, *, threads: int | None = None
    ) -> StoredCollection:
        """Return an empty collection that vanishes when it is closed; it needs no disk."""
        identity = Identity(config.to_dict(), ALGORITHM_VERSION)
        store = Store(MEMORY, name, durability="normal", identity=identity)
        found = cls(store, config, threads=threads)
        # These write for the next start, and reclaim space in a file.
        found.checkpoints.stop()
        found.reclaimer.stop()
        return found

    def __len__(self) -> int:
        return self.memory.count

    @property
    def config(self) -> CollectionConfig:
        """The configuration at creation, with the weights requested last."""
        return self.memory.config

    @property
    def clock(self) -> Callable[[], float]:
        """Returns seconds since 1970, to decide which items have expired."""
        return self.memory.expirations.clock

    @property
    def space(self) -> VectorSpace:
        """Checks and transforms vectors."""
        return self.memory.space

    # Writing

    def read(self, progress: Callable[[int], None]) -> None:
        """Read all rows of the file, without starting background work. Call it once, first.

        progress: called with the number of items read, or added to a comparison backend, since
            the last call.
        """
        try:
            self.names.load(starmap(NamedCoordinate, self.store.names()))
        except (ValueError, TypeError) as error:
            raise DamagedFile(self.name, f"its names are unreadable ({error})") from error
        self.metadata = self._load_meta("metadata", metadata_of, "its metadata is")
        weights = self._load_meta("weights", Weights.from_text, "its weights are")
        if weights is not None:
            self.memory.use_weights(weights)
        reason = "the number of its next item is"
        next_id = self._load_meta("next_id", next_id_of, reason) or 0
        chunk_bytes = self.memory.policies.chunk_bytes
        rows = load_rows(self.store, self.space, self.memory.backend, chunk_bytes, progress)
        with storage_errors(self.name), closing(read_ahead(rows)) as pieces:
            notes, links = self.checkpoints.read_notes(), self.checkpoints.read_links
            self.memory.load(pieces, len(self.store), notes, links)
        self.memory.next_id = max(self.memory.next_id, next_id)
        self.attached_backends.load(progress)
        self.auditor.load()

    def begin(self) -> None:
        """Start background work that is due, once all rows are read."""
        self.checkpoints.note_loaded()
        self.optimizer.start()
        self.reclaimer.request()  # a process that was killed left its log
        self.expirer.start()

    def _load_meta(
        self, key: Literal["metadata", "next_id", "weights"], read: Callable[[str], T], what: str
    ) -> T | None:
        """Return the metadata of the file under a key; None if there is none."""
        text = self.store.meta(key)
        try:
            return None if text is None else read(text)
        except ValueError as error:
            raise DamagedFile(self.name, f"{what} damaged ({error})") from error

    def _on_publish(self) -> None:
        self._save_notes()
        self.checkpoints.start_if_due()

    def _save_notes(self) -> None:
        """Write the notes of attached backends and audits; log an error if that fails."""
        try:
            self.writer.run_between_changes(self.attached_backends.save_notes)
            self.writer.run_between_changes(self.auditor.save)
        except StoreError as error:
            _log.warning("notes of collection %r could not be written (%s)", self.name, error)

    def put(self, items: ItemBatch, mode: Mode = "upsert") -> WriteResult:
        """Put items, all or none; on return they are on disk and visible to new searches.

        items: if an id comes twice, "upsert" takes the last. Items without an id get numbers above
            all numeric ids that items have or were given before.
        Raises InvalidId, InvalidVector, ItemExists (the mode is "insert" and the item exists, or an
            id comes twice), VersionConflict, InvalidParameter (an id comes twice, and items have
            ``if_versions``).
        """
        return self.commit(self.prepare(items, mode))

    def prepare(
        self,
        items: ItemBatch,
        mode: Mode = "upsert",
        *,
        keeps_payloads: bool = False,
        progress: Callable[[WriteResult], LoadRecord] | None = None,
        sequences: Sequence[int] = (),
        versions: Sequence[int] = (),
    ) -> Put:
        """Hash items and encode them as bytes: the part of `put` that needs no lock.

        items, mode: see `put`.
        keeps_payloads: whether an item without a payload keeps its present one.
        progress: called with the result just before the commit. It returns the progress of the load
            that these items belong to, which the same commit stores.
        sequences: sequence numbers given by the caller: ascending, above all existing ones.
        versions: of copied items; their ids come once.
        Raises InvalidId, InvalidVector, InvalidParameter (the count of sequence numbers is wrong,
            or they do not ascend; an id comes twice, and items have ``if_versions``), ItemExists
            (the mode is "insert" and an id comes twice).
        """
        put = Put.of(items, mode, self.memory, sequences=sequences, versions=versions)
        put.keeps_payloads, put.progress = keeps_payloads, progress
        return put

    def commit(self, write: Put) -> WriteResult:
        """Put prepared items, like `put`; once.

        Raises ItemExists, VersionConflict, InvalidParameter.
        """
        self.writer.commit(write)
        return write.result

    def submit(
        self,
        read: Callable[[], tuple[ItemBatch, Mode]],
        ended: Callable[[WriteResult | BaseException], None],
        run: Run,
    ) -> None:
        """Put items without a thread that waits for them.

        read: returns the items and the mode; called by the leader of the group.
        ended: called in any thread with the result, or with what `put` or ``read`` raises; with
            CancelledError if ``run``, which lends a thread to the leader, has none.
        """
        self.writer.submit(read, ended, run)

    def submit_payload(
        self,
        change: PayloadChange,
        item_id: str,
        if_version: int | None,
        ended: Callable[[int | BaseException], None],
        run: Run,
    ) -> None:
        """Change the payload of an item without a waiting thread; see `submit`."""
        change = self._keeping_text(change)
        write = ChosenItems(ids=[item_id], change=change, if_version=if_version)
        self.writer.submit(lambda: write, ended, run)

    def _after_commit(self, writes: Sequence[Write]) -> None:
        puts, removed = False, 0
        for write in writes:
            puts, removed = puts or bool(write.rows.ids), removed + len(write.removed)
        if puts:
            self.checkpoints.start_if_due()
        self.optimizer.start()
        if self.memory.expirations.are_any:
            self.expirer.start()
        if removed:
            self.reclaimer.request(removed)

    def set_names(self, names: Sequence[str], *, replace: bool = True) -> None:
        """Name the first coordinates, replacing all earlier names.

        replace: False leaves existing names; without ``names`` it removes the names of an empty
            collection.
        Raises InvalidParameter (the slot space is open, there are more names than coordinates, or a
            name is invalid or repeated).
        """
        named = check_names(names, self.config.dim)

        def change() -> None:
            may_change = not len(self) if not named else not len(self.names)
            if replace or may_change:
                self.store.replace_names(named)
                self.names.load(named)

        self.writer.run_as_change(change)

    def load_names(self) -> None:
        """Do nothing: all stored names are known. In a cluster others may have stored new ones."""

    def wait_until_found(self) -> None:
        """Do nothing: commits are visible at once. In a cluster, shards apply them later."""

    def find_names(self, prefix: str = "", limit: int = 20) -> list[NamedCoordinate]:
        """Return the first coordinates with names; with a prefix, ordered by name."""
        return [*starmap(NamedCoordinate, self.store.find_names(prefix, limit))]

    def replace_metadata(self, value: bytes | None) -> None:
        """Replace the metadata, or remove it (None); it is on disk on return.

        Raises InvalidParameter (it is longer than `MAX_METADATA_BYTES`, or not an object).
        """
        check_metadata(value)

        def change() -> None:
            self.store.write_meta("metadata", None if value is None else with_checksum(value))
            self.metadata = value

        self.writer.run_as_change(change)

    def replace_next_id(self, number: int) -> None:
        """Set the number for the next item without an id; it is on disk on return."""

        def change() -> None:
            self.store.write_meta("next_id", with_checksum(b"%d" % number))
            self.memory.next_id = number

        self.writer.run_as_change(change)

    def fit(self, weights: tuple[float, ...] | WeightKind | None = None) -> WeightsDescription:
        """Learn weights from the items, or set given ones; return when all rows use them.

        Meanwhile others read and write with the old weights. Then the collection and its file
        switch in one step.

        weights: how to learn them, or one number per coordinate; None repeats what was requested
            last.
        Raises InvalidParameter (at ``("weights", …)``: there are no weights, or no items; a vector
            becomes empty or too large).
        """
        found = self.attached_backends.run_alone(partial(self._fit, weights))
        self.optimizer.start()
        self.checkpoints.start_if_due()
        return WeightsDescription.of(found)

    def use_weights(self, weights: Weights) -> None:
        """Set weights that were learned elsewhere; the collection must be empty."""

        def change() -> None:
            self.store.replace_weights(self.config.to_dict(), weights.to_text())
            self.memory.use_weights(weights)

        self.writer.run_as_change(change)

    def _fit(self, asked: tuple[float, ...] | WeightKind | None, stop: threading.Event) -> Weights:
        config = config_with(self.config, asked)
        view = self.memory.view
        weights = weights_of(config, view.space.weights, batches_of(config, view, self.store, stop))
        with storage_errors(self.name):  # from mapped vectors
            fresh = Reencoding(
                self.memory, self.store, config, weights, self.attached_backends.make_empty, stop
            )
            fresh.catch_up_soon()

        def change() -> None:
            fresh.catch_up()
            self.store.replace_weights(config.to_dict(), weights.to_text())
            self.attached_backends.forget_notes()
            self.memory.take_over(fresh.fresh)

        with self.checkpoints.forgetting():
            self.writer.run_as_change(change)
        try:
            self._replace_codes(stop)
        except StoreError as error:
            _log.warning("collection %r: its next start hashes it anew (%s)", self.name, error)
        return weights

    def _replace_codes(self, stop: threading.Event) -> None:
        """Write the codes of all rows to the file, in pieces between changes, unless stopped.

        Rows put meanwhile already have the right codes.
        """
        between, view = self.writer.run_between_changes, self.memory.stored_view
        for rows, codes in codes_of(view, self.memory.backend):
            sequences = view.sequences[rows].tolist()
            if stop.is_set() or not between(partial(self.store.replace_codes, sequences, codes)):
                return
        between(partial(self.store.confirm_codes, ALGORITHM_VERSION))

    def loads(self, since: int, key: str | None = None) -> list[LoadRecord]:
        """Return the progress of loads with keys; see `Store.loads`."""
        return self.store.loads(since, key)

    def save_load(self, record: LoadRecord, forgotten: int) -> None:
        """Store the progress of a load, without items; see `Store.save_load`."""
        self.writer.run_as_change(partial(self.store.save_load, record, forgotten))

    def delete(
        self,
        where: Filter | Sequence[str],
        load: LoadRecord | None = None,
        *,
        if_version: int | None = None,
    ) -> int:
        """Delete items, and return how many existed; the commit stores ``load``.

        where: a filter, or ids.
        if_version: the version that each item of these ids must have; else VersionConflict.
        """
        return self._write(ChosenItems(if_version=if_version, load=load), where)

    def change_payloads(
        self, change: PayloadChange, where: Filter | Sequence[str], *, if_version: int | None = None
    ) -> int:
        """Change the payloads of items, all or none; return how many items existed.

        The items keep their rows, and nothing is hashed. where, if_version: see `delete`.

        Raises InvalidPayload (one would be longer than allowed, or have another text),
            VersionConflict.
        """
        write = ChosenItems(change=self._keeping_text(change), if_version=if_version)
        return self._write(write, where)

    def _keeping_text(self, change: PayloadChange) -> PayloadChange:
        return change if self.config.text is None else replace(change, keeps_text=True)

    def _write(self, write: ChosenItems, where: Filter | Sequence[str]) -> int:
        if isinstance(where, Filter):
            self.memory.view.mask(where)  # builds the filter's columns while others may still write
            write.where = where
        else:
            write.ids = [*dict.fromkeys(where)]
        self.writer.commit(write)
        return write.result

    def finish_background_work(self) -> None:
        """Optimize the index, delete expired items, reclaim space, answer audited queries.

        Returns when all of it is done.
        """
        self.expirer.finish()
        self.expirer.start()  # for items that will expire
        _ = self.memory.view  # publishes pending items
        self.optimizer.finish()
        self.reclaimer.finish()
        self.auditor.finish()

    def copy_to(self, path: Path) -> None:
        """Write a copy of the file as of one moment; others may write meanwhile."""
        self.checkpoints.bring_up_to_date()
        self.store.copy_to(path)

    def close(self, *, dropped: bool = False, replaced: bool = False) -> None:
        """Finish the current write, refuse further ones, and close the file.

        Later calls raise CollectionNotFound.

        dropped: the file is about to be removed, so nothing more is written.
        replaced: the file is about to be replaced, so nothing more is written. Later calls raise
            CollectionLoading.
        """
        refusal = partial(CollectionLoading if replaced else CollectionNotFound, self.name)
        self.attached_backends.stop(refusal)
        self.expirer.stop()
        self.auditor.stop()
        self.optimizer.stop()
        self.reclaimer.stop()
        self.checkpoints.stop()
        if not (dropped or replaced):
            self._save_notes()  # an earlier storage failure may have prevented it
        self.writer.close(refusal, None if dropped or replaced else self.checkpoints.write_all)

    # Comparison backends

    def attach(
        self, params: BackendParams, name: str | None = None, notes: str | None = None
    ) -> BackendDescription:
        """Attach a comparison backend, built beside other work; see `AttachedBackends.attach`."""
        attached = self.attached_backends.attach(params, name, notes)
        self.optimizer.start()
        return describe_backend(self.memory.index_of(self.memory.view, attached))

    def detach(self, name: str) -> None:
        """Drop a comparison backend; see `AttachedBackends.drop`."""
        self.attached_backends.drop(name)

    # Reading

    def get(self, item_id: str) -> StoredItem:
        """Return an item; raises ItemNotFound."""
        view, [row] = self.memory.locate([item_id])
        if row is None:
            raise ItemNotFound(item_id)
        raw = view.raw(np.array([row]))
        if raw is not None:
            vector, [version] = self.space.to_json(raw, 0), view.versions_of([row])
            [expires] = view.expires_of([row]) or (None,)
            return StoredItem(item_id, vector, view.payloads[row], version, expires)
        record = self.store.fetch([item_id]).get(item_id)
        if record is None:  # deleted meanwhile
            raise ItemNotFound(item_id)
        return self._stored_item(record)

    def _stored_item(self, record: Record) -> StoredItem:
        vector = self._from_blob(record.vector)
        return StoredItem(record.id, vector, record.payload, record.version, record.expires)

    def _from_blob(self, blob: bytes) -> JsonVector:
        return self.space.to_json(self.space.from_blobs([blob]), 0)

    def count(self, where: Filter | None = None) -> int:
        """Return the number of items, or of those whose payloads pass a filter."""
        view = self.memory.view
        return view.count if where is None else int(self.memory.mask(view, where).sum())

    def page(
        self,
        *,
        limit: int = 100,
        cursor: str | None = None,
        with_vector: bool = False,
        where: Filter | None = None,
        ids: Sequence[str] | None = None,
    ) -> Page:
        """Return items in insertion order; an update moves an item to the end.

        Raises InvalidParameter (the cursor is not valid, or the limit is below 1).
        """
        require(limit >= 1, name="limit", expected="at least 1", got=limit)
        after = sequence_of(cursor, self._stamp)
        view, permitted = self.memory.permit(where, ids)
        found = view.page(permitted, after=after, limit=limit + 1)
        shown = found[:limit]
        next_cursor = None
        if len(found) > limit:
            next_cursor = cursor_of(view.sequences[shown[-1]], self._stamp)
        return Page(self._items(view, shown, with_vector=with_vector), next_cursor)

    def hints(self, where: Filter) -> list[str]:
        """Return which filter keys and values no item has, if no item passes the filter."""
        known = self.memory.known_words(where)
        return [] if known is None else hints_of(where, [known])

    def find(self, text: str, limit: int = 20) -> Page:
        """Return items that a text finds, without vectors; raises as `MemoryCollection.find`.

        First items whose ids begin with it, then those whose ids or payloads contain it in any
        case; both in insertion order.
        """
        view, found = self.memory.find(text, limit)
        rows = np.concatenate([found.prefixed, found.others])
        return Page(self._items(view, rows, with_vector=False), None, found.complete)

    def _items(self, view: View, rows: Int64s, *, with_vector: bool) -> list[StoredItem]:
        """Return the items of some rows.

        If a transform keeps vectors out of memory, items updated or deleted meanwhile are
        left out.
        """
        raw = view.raw(rows) if with_vector else None
        if with_vector and raw is None:
            records = self.store.at(view.sequences[rows].tolist())
            return [*map(self._stored_item, records)]
        vectors: Iterable[JsonVector | None] = repeat(None, len(rows))
        if raw is not None:
            vectors = (self.space.to_json(raw, place) for place in range(len(rows)))
        chosen = rows.tolist()
        ids, payloads = view.ids.of(chosen), [view.payloads[row] for row in chosen]
        expires = view.expires_of(chosen) or repeat(None, len(chosen))
        columns = ids, vectors, payloads, view.versions_of(chosen), expires
        return [StoredItem(*each) for each in zip(*columns, strict=True)]

    def vectors(self, hits: QueryResult, part: slice = slice(None)) -> list[JsonVector | None]:
        """Return the vectors of a search's hits, or of some of them, as sent.

        If a transform keeps them out of memory, an item updated since the search has its new
        vector, and one deleted since has None.
        """
        if hits.view is not None:
            raw = hits.view.raw(np.array(hits.rows[part], np.int64))
            if raw is not None:
                return [self.space.to_json(raw, place) for place in range(len(raw))]
        ids = hits.ids[part]
        records = self.store.fetch(ids)
        blobs = [records[item_id].vector if item_id in records else None for item_id in ids]
        return [None if blob is None else self._from_blob(blob) for blob in blobs]

    def search(
        self,
        queries: RawBatch | SparseVector,
        params: SearchParams,
        *,
        where: Filter | None = None,
        backend: str | None = None,
    ) -> QueryResults:
        """Return the hits of each query; never waits for a writer.

        queries: a query with names that no coordinate of a fixed space has is a SparseVector, with
            coordinates from `CoordinateNames.find`; see `scan_with_unknown`.
        Raises BackendNotFound, InvalidVector (the transform leaves nothing of a query).
        """
        if isinstance(queries, SparseVector):
            return scan_with_unknown(self.memory, queries, params, where=where, backend=backend)
        view = self.memory.view
        if backend is not None:  # check the name before the vectors
            self.memory.index_of(view, backend)
        return self._search(view, view.space.prepare(queries), params, where, None, backend)

    def _search(
        self,
        view: View,
        queries: VectorBatch,
        params: SearchParams,
        where: Filter | None,
        skip: Int64s | None,
        backend: str | None,
    ) -> QueryResults:
        """Search, select queries for audits, and start the optimizer if it needs more tables."""
        found = self.memory.search(view, queries, params, where=where, skip=skip, backend=backend)
        is_primary = backend is None or backend == self.config.backend.kind
        if is_primary and self.audit.offer(queries, params, found, where=where, skip=skip):
            self.auditor.start()
        if params.guarantee == "proven" or params.rerank == "none":
            self.optimizer.start()
        return found

    def search_around(
        self,
        ids: Sequence[str],
        params: SearchParams,
        *,
        where: Filter | None = None,
        backend: str | None = None,
        vectors: RawBatch | None = None,
    ) -> QueryResults:
        """Return the hits of the vectors of stored items, each without the item itself.

        If ``vectors`` are given, the items need not be in this collection.

        Raises ItemNotFound, BackendNotFound, InvalidVector.
        """
        view, rows = self.memory.locate(ids)
        self.memory.index_of(view, backend)
        skip = np.array([-1 if row is None else row for row in rows], np.int64)
        if vectors is not None:
            queries = view.space.prepare(vectors)
        elif None in rows:
            raise ItemNotFound(ids[rows.index(None)])
        else:
            queries = view.vectors[skip]
        return self._search(view, queries, params, where, skip, backend)

    def compare(
        self,
        queries: Sequence[RawBatch | SparseVector] | None,
        params: SearchParams,
        *,
        sample: int = SAMPLE,
        seed: int = 0,
        backends: Sequence[str] | None = None,
        skip: Sequence[str] = (),
        stop: threading.Event | None = None,
    ) -> Comparison:
        """Run the same queries on several backends; return what each finds, and its cost.

        queries: at least one vector; for unknown names see `search`: the primary backend scans for
            such a query, others use only its known coordinates. None takes stored items, each left
            out of its own hits.
        sample, seed: number of stored items, and the seed of their choice.
        backends: names; None for all that are ready.
        skip: empty, or for each query an id that it must not find.
        Raises BackendNotFound, CancelledError (of `concurrent.futures`: ``stop`` was set),
            InvalidParameter (there are too few items to sample), InvalidVector (the transform
            leaves nothing of a query).
        """
        view, rows = self.memory.locate(skip)
        if queries is None:
            chosen = ComparedQueries.sample(view, sample, seed)
        else:
            left_out = np.array([-1 if row is None else row for row in rows], np.int64)
            chosen = ComparedQueries.of(view.space, queries, left_out)
        found = compare(self.memory, view, chosen, params, backends, stop)
        self.optimizer.start()  # tables that the search requested may be missing
        return found

    def explain(self, a: Explainable, b: Explainable, *, limit: int = SHARES) -> Explained:
        """Return the contribution of each coordinate to a similarity; see `explain.explain`."""
        return explain(self.memory, a, b, limit)

    def sketch(self, vectors: RawBatch | SparseVector, encoding: Encoding) -> Signatures | UInt16s:
        """Return the samples of vectors, or their b-bit codes.

        vectors: a vector with names that no coordinate of a fixed space has is a SparseVector, see
            `search`.
        Raises InvalidParameter (the collection does not hash, or the encoding is unknown).
        """
        backend = self.memory.backend
        if not isinstance(backend, GcwsBackend):
            raise InvalidParameter(
                expected="a collection whose backend is 'gcws'",
                got=repr(backend.kind),
                loc=("backend",),
            )
        if isinstance(vectors, SparseVector):
            return backend.sketch(widen(self.space, vectors), encoding, is_wider=True)
        return backend.sketch(self.space.prepare(vectors), encoding)

    def pairs(
        self,
        *,
        min_score: float,
        recall: float = 0.9,
        limit: int | None = None,
        where: Filter | None = None,
        ranking: Ranking = "gmm",
        stop: threading.Event | None = None,
    ) -> list[tuple[str, str, float]]:
        """Return pairs of items with similarity ``min_score`` or more: ids a < b, by falling score.

        where: a filter that both items pass.
        ranking: the kind of score; by containment, that of the smaller item.

        Once ``stop`` is set the work ends soon, with the pairs found so far.
        """
        view, found = self.pair_rows(
            min_score=min_score, recall=recall, limit=limit, where=where, ranking=ranking, stop=stop
        )
        return view.rank(found, limit)

    def pair_rows(
        self,
        *,
        min_score: float,
        recall: float,
        limit: int | None,
        where: Filter | None,
        ranking: Ranking,
        stop: threading.Event | None,
    ) -> tuple[View, Pairs]:
        """Return pairs as rows of a view; with a limit also some that tie with the last.

        Where pairs of equal rows fill the limit many times over, only the first of equal rows is
        compared with others, for pairs of score 1.
        """
        view = self.memory.view
        permitted = self.memory.mask(view, where)
        max_pairs = self.memory.policies.pairs.max_pairs
        copies = [] if limit is None else find_many_copies(view, permitted, limit, max_pairs)
        if copies:
            permitted, min_score = without_copies(permitted, copies), 1.0
        count = int(np.count_nonzero(permitted))
        rows = RowView(view.vectors, permitted, count, ranks=view.ids.ranks)
        found = self.memory.pairs(
            view, rows, ranking, min_score=min_score, recall=recall, limit=limit, stop=stop
        )
        self.optimizer.start()  # tables that were used are kept
        if limit is not None and copies:
            found = first_equal_pairs(view, copies, found, limit)
        return view, found

    def join(
        self,
        params: JoinParams,
        where: Filter | None = None,
        stop: threading.Event | None = None,
        *,
        without: Int64s | None = None,
    ) -> CollectionJoin:
        """Return a function that yields the hits of vectors among the items there are now.

        where: a filter on the items.
        stop: ends the join soon, with CancelledError of `concurrent.futures`.
        without: sequence numbers of rows to exclude from the hits.
        """
        return CollectionJoin(self.memory, params, where, stop, without=without)

    def cursor_behind(self, item_id: str) -> str:
        """Return the cursor of the page that starts after an item; raises ItemNotFound."""
        view, [row] = self.memory.locate([item_id])
        if row is None:
            raise ItemNotFound(item_id)
        return cursor_of(view.sequences[row], self._stamp)

    def groups(
        self,
        params: GroupParams,
        where: Filter | None = None,
        stop: threading.Event | None = None,
        *,
        ranking: Ranking = "gmm",
    ) -> list[Group]:
        """Return groups of items that pass a filter, the largest first.

        stop, ranking: see `pairs`.
        Raises InvalidParameter (more than `PairPolicy.max_edges` pairs are found).
        """
        view, copies, pairs = self.edges(params, where, stop, ranking=ranking)
        return group_rows(view, copies, pairs, params, ranking)

    def edges(
        self,
        params: GroupParams,
        where: Filter | None = None,
        stop: threading.Event | None = None,
        *,
        ranking: Ranking = "gmm",
    ) -> tuple[View, list[Int64s], Pairs]:
        """Return the links that form groups: groups of equal rows, and pairs of other rows.

        Of equal rows only the first has pairs: a thousand equal rows would have half a million.

        stop, ranking: see `pairs`.
        Raises InvalidParameter (more than `PairPolicy.max_edges` pairs are found).
        """
        memory, view = self.memory, self.memory.view
        permitted = memory.mask(view, where)
        copies = find_copies(view, permitted)
        single = without_copies(permitted, copies)
        rows = RowView(view.vectors, single, int(np.count_nonzero(single)))
        found = memory.pairs(
            view,
            rows,
            ranking,
            min_score=params.min_score,
            recall=params.recall,
            stop=stop,
            max_pairs=memory.policies.pairs.max_edges,
        )
        self.optimizer.start()  # tables that were used are kept
        return view, copies, found

    def map_items(
        self,
        params: MapParams,
        where: Filter | None = None,
        also: Sequence[Explainable] = (),
        stop: threading.Event | None = None,
    ) -> ItemMap:
        """Return positions in a plane for a sample of the items; see `item_map.map_items`."""
        return map_items(self.memory, params, where=where, also=also, stop=stop)

    def profile(self, sample: int = PROFILE_SAMPLE, seed: int = 0) -> dict[str, Any]:
        """Return histograms of a sample of the items; see `collection.profile.profile`."""
        return profile(self.memory, sample=sample, seed=seed)

    def curve(self, limit: int = 10) -> CostCurve:
        """Return the cost by recall, for a limit; see `MemoryCollection.curve`."""
        return self.memory.curve(limit)

    def audited(self) -> AuditedQueries:
        """Return requested recall compared with measured recall."""
        return AuditedQueries(self.audit.results(), self.audit.allowance, self.audit.waiting)

    def summary(self) -> Summary:
        """Return the entry in the list of collections; index statistics are not computed."""
        view = self.memory.view
        building = (each.name for each in self.attached_backends.building)
        return Summary(
            name=self.name,
            items=view.count,
            dim=self.config.dim,
            backends=[*dict.fromkeys((self.memory.backend.kind, *view.attached, *building))],
            bytes_on_disk=self.store.bytes_on_disk,
            bytes_in_memory=self.memory.nbytes(),
            commits=self.writer.commits,
            commit_seconds=self.writer.commit_seconds,
            commit_counts=tuple(self.writer.commit_counts),
            audited=self.audit.this_week(),
        )

    def describe(self) -> Description:
        """Return the complete description of the collection."""
        view = self.memory.view
        building = self.attached_backends.building
        return Description(
            name=self.name,
            config=self.config,
            items=view.count,
            rows=len(view),
            names=len(self.names),
            weights=describe_weights(view.space.transform, view.space.weights),
            metadata=self.metadata,
            bytes_in_memory=self.memory.nbytes(),
            bytes_mapped=self.memory.mapped_bytes,
            bytes_on_disk=self.store.bytes_on_disk,
            commits=self.writer.commits,
            commit_seconds=self.writer.commit_seconds,
            backends=[
                describe_backend(self.memory.index_of(view), primary=True),
                *map(describe_backend, view.attached.values()),
                *(describe_backend(each) for each in building if each.name not in view.attached),
            ],
            versions=versions(),
        )
