"""Items in memory: ids, vectors, payloads and their index, read through immutable views.

The caller serializes writes. A reader takes ``view`` once and uses nothing else, so it never waits
for the disk and never sees half a change. Rows are in the order of sequence numbers. An update
gives an item a new sequence number and a new row. A deleted row stays as a tombstone until the
next compaction.

Up to `Policies.max_pending` committed items may be pending: they have ids and rows, but are in no
view yet. The next reader appends them all to the delta (`backends.gcws`) and publishes one view,
because appending at each insert would cost 20 µs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from gcws_search.index.backend import Backend
from gcws_search.index.backends import POLICIES, Policies, make_backend
from gcws_search.index.collection.backend_index import BackendIndex
from gcws_search.index.collection.expiry import Expirations
from gcws_search.index.collection.find import FoundRows, find_rows
from gcws_search.index.collection.hints import KnownWords, known_words
from gcws_search.index.collection.ids import Ids
from gcws_search.index.collection.items import (
    EncodedBatch,
    ItemBatch,
    QueryResults,
    View,
    number_beyond,
)
from gcws_search.index.collection.row_store import Compaction, FirstIds, RowStore
from gcws_search.index.contracts.analysis import Arrangement, CostCurve
from gcws_search.index.contracts.arrays import Float64s, Int32s, Int64s, UInt8s, with_room
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.errors import BackendNotFound, InvalidParameter
from gcws_search.index.contracts.hits import METHOD, SCAN, BatchHits, LiveSample, Pairs, RowView
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    GcwsParams,
    SearchParams,
    require,
)
from gcws_search.index.contracts.saved_index import SavedIndex
from gcws_search.index.contracts.scores import Ranking
from gcws_search.index.exact.containment import scan_contained
from gcws_search.index.joins import contained_pairs
from gcws_search.index.memory import memory_bytes
from gcws_search.index.payload import Filter
from gcws_search.index.threads import Searches
from gcws_search.index.vectors.growing_rows import GrowingRows
from gcws_search.index.vectors.names import CoordinateNames
from gcws_search.index.vectors.space import VectorSpace
from gcws_search.index.vectors.weights import Weights

_log = logging.getLogger(__name__)
_ARRANGEMENTS: Final = 4
"""Of maps that are cached; one of 20,000 places has 0.5 MB."""
_MEMORY_PARTS: Final = 3
"""Vectors of more than 1/_MEMORY_PARTS of the memory are mapped, too."""


class MemoryCollection:
    """The items of one collection, in memory.

    searches: shared by all collections of the process; None for one of this collection alone.
    folder: for mapped vectors, unless the configuration keeps vectors in memory.
    expirations: returns the object that hides expired items.
    paused: while it is set, rows are not copied to bytes and the index is not optimized.
    Raises InvalidParameter (vectors are to be mapped, but there is no folder).
    """

    def __init__(
        self,
        config: CollectionConfig,
        *,
        threads: int | None = None,
        policies: Policies = POLICIES,
        searches: Searches | None = None,
        folder: Path | None = None,
        expirations: Callable[[], Expirations] = Expirations,
        paused: threading.Event | None = None,
    ) -> None:
        if config.storage == "mapped" and folder is None:
            raise InvalidParameter(
                expected="'memory' of a collection without a file", got="'mapped'", loc=("storage",)
            )
        self.searches = searches or Searches()
        self.paused = paused or threading.Event()
        self.config = config
        self.policies = policies
        self.space = VectorSpace.of(config)
        self._folder = None if config.storage == "memory" else folder
        self.names = CoordinateNames(config.dim)
        self.expirations = expirations()
        self.backend = make_backend(
            config, threads=threads, policies=policies, searches=self.searches
        )
        # Held while ids and view change, and while pending items are appended.
        self._lock = threading.Lock()
        self.next_id = 0  # above all ids that are numbers, and all numbers ever assigned
        self._build_seconds = 0.0  # of the primary index
        self._postponed_at = -1  # version of the view whose compaction failed
        self._is_compiled = isinstance(config.backend, GcwsParams)  # compiled by `index.warmup`
        self._sampled = -1, LiveSample.of(np.empty(0, np.uint8))
        self._first_ids = FirstIds()
        self.arrangements: dict[Hashable, Arrangement] = {}  # of recent maps
        self.content: Hashable = None  # identifies the items, to share arrangements
        self.use_weights(None)
        # New items that are in no view yet. Their ids already have rows.
        self._pending: list[EncodedBatch] = []
        self.pending_count = self._pending_numbers = 0

    def use_weights(self, weights: Weights | None) -> None:
        """Set the weights that the file has; the collection must be empty."""
        self.space = VectorSpace.of(self.config, weights)
        is_mapped = self.config.storage == "mapped"
        mapped_from = min(self.policies.max_unmapped_bytes, memory_bytes() // _MEMORY_PARTS)
        rows = GrowingRows(
            self.config.form,
            self.config.dim,
            self._folder,
            self.paused,
            mapped_from=0 if is_mapped else mapped_from,
        )
        none = np.empty(0, np.int64)
        self.row_store = RowStore(
            self.space, rows, Ids(), [], sequences=none, versions=none, expires=none
        )
        self.published = self.row_store.view(self.backend.empty(), 0, 0)

    def empty_under(self, config: CollectionConfig, weights: Weights) -> MemoryCollection:
        """Return an empty collection for `take_over`: like this one, with other weights."""
        found = MemoryCollection(
            config,
            policies=self.policies,
            searches=self.searches,
            folder=self._folder,
            paused=self.paused,
        )
        found.names, found.backend = self.names, self.backend
        found.use_weights(weights)
        return found

    def take_over(self, fresh: MemoryCollection) -> None:
        """Take over rows and weights of a collection from `empty_under` that has the same items.

        The caller blocks changes meanwhile. Readers see the old view or the new one.
        """
        view, version = fresh.stored_view, self.stored_view.version
        with self._lock:
            self.config, self.space = fresh.config, fresh.space
            self.row_store = fresh.row_store
            self._build_seconds = fresh._build_seconds
            version = max(version, view.version) + 1
            self.published = replace(view, version=version, content=version)

    @property
    def view(self) -> View:
        """A view of all items that have not expired, for readers; any thread."""
        if not self.expirations.are_any:
            return self.stored_view
        while (shown := self._hide(self.stored_view)) is None:
            pass
        return shown

    def _hide(self, view: View) -> View | None:
        """Return a view without expired items; None if a later view is published.

        The writer may have deleted items of the later one, and forgotten that they expired.
        """
        shown = self.expirations.hide(view) if self.expirations.are_any else view
        return shown if view is self.published else None

    @property
    def stored_view(self) -> View:
        """A view of all items in the file, to change items or an index; any thread."""
        if self._pending:
            with self._lock:
                self._append_pending()
        return self.published

    @property
    def mapped_bytes(self) -> int:
        """Bytes of mapped files; see `GrowingRows`."""
        return self.row_store.rows.mapped_bytes

    @property
    def count(self) -> int:
        """The number of items."""
        with self._lock:
            if not self.expirations.are_any:
                return self.published.count + self.pending_count
        return self.view.count

    def encode(self, parts: Sequence[ItemBatch]) -> list[EncodedBatch]:
        """Transform and hash the vectors of several batches in one call; any thread.

        Raises InvalidVector (the transform leaves nothing of a vector).
        """
        items = parts[0] if len(parts) == 1 else ItemBatch.concatenate(parts)
        prepared = self.space.prepare(items.vectors)
        if not self._is_compiled:
            self._compile(prepared)
        start = time.perf_counter()
        codes = self.backend.encode(prepared)
        seconds = time.perf_counter() - start
        ids = [each or "" for each in items.ids]
        # orjson's result keeps its buffer of at least 4 KiB alive (orjson 3.13).
        payloads = [None if each is None else bytes(memoryview(each)) for each in items.payloads]
        encoded = EncodedBatch(ids, payloads, prepared, codes, seconds=seconds)
        if len(parts) == 1:
            return [encoded]
        borders = accumulate(map(len, parts), initial=0)
        return [encoded.take(range(*some)) for some in pairwise(borders)]

    def _compile(self, vectors: VectorBatch) -> None:
        """Compile the backend's kernels with one vector, so that build times exclude it."""
        if len(vectors):
            backend, one = self.backend, vectors[:1]
            backend.extend(backend.empty(), one, backend.encode(one))
            self._is_compiled = True

    # Writing: one thread at a time.

    def load(
        self,
        pieces: Iterable[EncodedBatch],
        count: int,
        notes: dict[str, Any],
        links: Callable[[Int64s], Int32s],
    ) -> None:
        """Load stored items into an empty collection; the index is built once, at the end.

        pieces: ``count`` items in total. It is exhausted only after the index is built, so a thread
            that reads ahead can check more meanwhile.
        notes, links: of an earlier index, see `SavedIndex`; ``links`` takes the (n,) sequence
            numbers.
        Raises what ``pieces`` raises. Then no view shows an item, and the collection is unusable.
        """
        row_store = self.row_store
        pieces = iter(pieces)
        first = next(pieces, None)
        self._reserve(count, 0 if first is None else first.vectors.numbers / len(first))
        step = self.backend.byte_step(notes)
        if step is not None:
            row_store.rows.copy_with(*step)
        codes = np.empty((count, self.backend.code_width), np.uint64)
        remaining = pieces if first is None else chain((first,), pieces)
        while len(row_store) < count and (piece := next(remaining, None)) is not None:
            before, n = len(row_store), len(row_store) + len(piece)
            codes = with_room(codes, before, n)
            codes[before:n] = piece.codes
            row_store.append(piece)
            row_store.ids.append(piece.ids)
            if piece.expires:
                self.expirations.add(piece.sequences, piece.expires)
            self.next_id = max(self.next_id, number_beyond(piece.ids))
        n = len(row_store)
        if not self._is_compiled:
            self._compile(row_store.rows.view())
        saved, start = SavedIndex(links(row_store.sequences[:n]), notes), time.perf_counter()
        state = self.backend.restore(row_store.rows.view(), codes[:n], saved)
        self._build_seconds = time.perf_counter() - start
        deque(remaining, maxlen=0)  # final checks, which may raise
        if self.space.dim is None:
            self.names.use(row_store.rows.view(), set())
        with self._lock:
            self.published = row_store.view(state, n, self.published.version + 1)

    def _reserve(self, count: int, numbers: float) -> None:
        """Make room for ``count`` rows with about ``numbers`` numbers each.

        If the disk is full, vectors with storage "auto" stay in memory. Raises OSError (storage is
        "mapped", and the disk is full).
        """
        rows = self.row_store.rows
        self.row_store.ids.reserve(count)
        entries = int(count * numbers) if self.config.form == "sparse" else 0
        try:
            rows.reserve(count, entries)
        except OSError as error:
            if self.config.storage == "mapped":
                raise
            _log.warning("vectors stay in memory: no room on the disk (%s)", error)
            rows.stay_in_memory()
            rows.reserve(count, entries)

    def resume_copies(self) -> None:
        """Copy rows added while copying was paused; the caller blocks changes."""
        with self._lock:
            rows = self.row_store.rows
            rows.resume_copies()
            self.published = replace(self.published, vectors=rows.view())

    def make_room(self, parts: Iterable[VectorBatch]) -> None:
        """Reserve disk space for mapped vectors that are about to be put.

        Raises OSError (the disk is full; nothing has changed).
        """
        count = numbers = 0
        for part in parts:
            count, numbers = count + len(part), numbers + part.numbers
        with self._lock:
            rows = self.row_store.rows
            count += len(rows) + self.pending_count
            rows.reserve(count, rows.entries + self._pending_numbers + numbers)

    def rows_of(self, ids: Iterable[str]) -> list[int]:
        """Return the rows of the ids that exist."""
        return [row for row in self.row_store.ids.rows(ids) if row is not None]

    def sequences_of(self, ids: Sequence[str]) -> list[int | None]:
        """Return the sequence number of each id, None if there is no such item."""
        rows = self.row_store.ids.rows(ids)
        if rows.count(None) == len(rows):  # as for most inserts
            return rows
        sequences = self.stored_view.sequences
        return [None if row is None else int(sequences[row]) for row in rows]

    def payloads_of(self, ids: Sequence[str]) -> list[bytes | None]:
        """Return the payload of each id, None if there is no such item."""
        view = self.stored_view
        rows = self.row_store.ids.rows(ids)
        return [None if row is None else view.payloads[row] for row in rows]

    def versions_of(self, ids: Sequence[str]) -> list[int]:
        """Return the version of each item, 0 if there is no such item."""
        view = self.stored_view
        rows = self.row_store.ids.rows(ids)
        versions = iter(view.versions_of([row for row in rows if row is not None]))
        return [0 if row is None else next(versions) for row in rows]

    def put(self, parts: Sequence[EncodedBatch], replaced: Sequence[int] = ()) -> None:
        """Add items.

        parts: with distinct ids; their sequence numbers ascend, above all existing ones.
        replaced: rows of the existing items with these ids.
        """
        for part in parts:
            if part.expires:
                self.expirations.add(part.sequences, part.expires)
        if not replaced and self._append_with_the_next_view(parts):
            return
        view = self.stored_view
        items = EncodedBatch.concatenate(parts)
        if replaced:
            self.row_store.mark_dead(replaced)
        grown = self._extend(view, items, len(replaced))
        with self._lock:
            self.row_store.ids.append(items.ids)
            self.published = grown
        self._compact_if_due()

    def _append_with_the_next_view(self, parts: Sequence[EncodedBatch]) -> bool:
        """Queue new items for the next reader to append; return False if they cannot wait."""
        with self._lock:
            published = self.published
            count, numbers = self.pending_count, self._pending_numbers
            for part in parts:
                count, numbers = count + len(part.ids), numbers + part.vectors.numbers
            if (
                published.attached
                or count > self.policies.max_pending
                or not self.backend.can_defer(published.state, published.vectors, count, numbers)
            ):
                return False
            for part in parts:
                self.row_store.ids.append(part.ids)
            self._pending += parts
            self.pending_count, self._pending_numbers = count, numbers
            return True

    def _append_pending(self) -> None:
        """Append pending items; the caller holds the lock."""
        if not self._pending:  # another thread has appended them
            return
        published = self.published
        try:
            self.published = self._extend(published, EncodedBatch.concatenate(self._pending))
        except BaseException:
            self.row_store.truncate(len(published))  # the items remain pending
            raise
        self._pending, self.pending_count, self._pending_numbers = [], 0, 0

    def _extend(self, view: View, items: EncodedBatch, replaced: int = 0) -> View:
        """Return the view with further rows; ``replaced`` of them are updates."""
        row_store = self.row_store
        row_store.append(items)
        rows, start = row_store.rows.view(), time.perf_counter()
        state = self.backend.extend(view.state, rows, items.codes)
        self._build_seconds += items.seconds + time.perf_counter() - start
        attached = view.attached and {
            name: indexed.extend(rows, items.vectors) for name, indexed in view.attached.items()
        }
        count = view.count + len(items.ids) - replaced
        return row_store.view(state, count, view.version + 1, attached, rows)

    def remove(self, rows: Sequence[int]) -> None:
        """Remove the items of some distinct live rows."""
        row_store, old = self.row_store, self.stored_view
        row_store.mark_dead(rows)
        view = row_store.view(old.state, old.count - len(rows), old.version + 1, old.attached)
        with self._lock:
            row_store.ids.remove(row_store.ids.of(rows))
            self.published = view
        self._compact_if_due()

    def change_payloads(self, payloads: Mapping[str, bytes | None]) -> None:
        """Replace the payloads of some existing items; their rows stay."""
        row_store, old = self.row_store, self.stored_view
        row_store.change_payloads(self.rows_of(payloads), [*payloads.values()])
        view = row_store.view(old.state, old.count, old.version + 1, old.attached)
        with self._lock:
            self.published = view
        self._compact_if_due()

    def _compact_if_due(self) -> None:
        view = self.stored_view
        if self.policies.compactor(view.obsolete, view.count) == "write":
            try:
                self.compact()
            except OSError as error:  # from mapped vectors
                self.postpone_compaction(error)

    def postpone_compaction(self, error: OSError) -> None:
        """Skip compaction until the next change because the disk is full.

        Vectors that should be mapped then stay in memory until the next start, so that tombstones
        can still be removed.
        """
        rows = self.row_store.rows
        if rows.is_mapped:
            _log.warning("tombstones stay: no room on the disk (%s)", error)
        else:
            _log.warning("vectors stay in memory: no room on the disk (%s)", error)
            rows.stay_in_memory()
        self._postponed_at = self.stored_view.version

    @property
    def compaction_is_overdue(self) -> bool:
        """Whether tombstones should be removed, or vectors mapped, in the background."""
        view = self.published
        if view.version == self._postponed_at:
            return False
        if self.row_store.rows.is_outgrown:
            return True
        return (
            bool(view.obsolete)
            and self.policies.compactor(view.obsolete, view.count) == "background"
        )

    def compact(self) -> None:
        """Remove tombstones; live rows keep their order and are renumbered.

        Raises OSError (the disk is full; nothing has changed).
        """
        self.adopt_compaction(self.build_compaction())

    def build_compaction(self, stop: threading.Event | None = None) -> Compaction:
        """Return the live rows with new numbers, for `adopt_compaction`; raises as `Compaction`.

        Any thread may call it.
        """
        return Compaction(self.row_store, self.stored_view, self.backend, stop)

    def adopt_compaction(self, compaction: Compaction) -> bool:
        """Publish a compaction, with the changes made since; the caller blocks changes.

        Return False if rows were renumbered, or a backend was attached or detached, meanwhile.

        Raises OSError (the disk is full; nothing has changed).
        """
        view = self.stored_view
        if not compaction.can_follow(view):
            return False
        compaction.apply_changes(view)
        compacted = compaction.view(view.version + 1)
        with self._lock:
            self.row_store = compaction.store
            self.published = compacted
        if self.expirations.are_any:
            self.expirations.replace(compacted)
        return True

    # Attaching: the caller blocks all changes meanwhile.

    def attach(self, indexed: BackendIndex) -> None:
        """Add a backend with an index of the present rows, or replace its index."""
        view = self.stored_view
        attached = {**view.attached, indexed.name: indexed}
        self.published = replace(view, attached=attached, version=view.version + 1)

    def detach(self, name: str) -> None:
        """Remove an attached backend; raises BackendNotFound."""
        view = self.stored_view
        if name not in view.attached:
            raise BackendNotFound(name)
        attached = {key: indexed for key, indexed in view.attached.items() if key != name}
        self.published = replace(view, attached=attached, version=view.version + 1)

    # Optimizing (`collection.optimizer`): one thread, while others read and write.

    def overdue(self, view: View) -> str | None:
        """Return the name of a backend whose index should be optimized, or None."""
        for indexed in (self.index_of(view), *view.attached.values()):
            if indexed.backend.is_overdue(indexed.state, len(view), view.count):
                return indexed.name
        return None

    def adopt(self, indexed: BackendIndex) -> None:
        """Replace the index of a backend in the present view; the caller blocks changes."""
        view = self.stored_view
        if indexed.backend is self.backend:
            self._build_seconds = indexed.build_seconds
            self.published = replace(view, state=indexed.state, version=view.version + 1)
        else:
            self.attach(indexed)

    # Reading: any thread.

    def index_of(self, view: View, name: str | None = None) -> BackendIndex:
        """Return a backend of a view; the primary one if ``name`` is None.

        Raises BackendNotFound.
        """
        backend = self.backend
        if name is None or name == backend.kind:
            params = self.config.backend
            return BackendIndex(backend.kind, params, backend, view.state, self._build_seconds)
        try:
            return view.attached[name]
        except KeyError:
            raise BackendNotFound(name) from None

    def locate(self, ids: Iterable[str]) -> tuple[View, list[int | None]]:
        """Return a view, and the row of each item in it; None for an unknown id."""
        shown, ids = None, [*ids]
        while shown is None:
            with self._lock:
                self._append_pending()
                view, rows = self.published, self.row_store.ids.rows(ids)
            shown = self._hide(view)
        if shown is not view:
            rows = [row if row is not None and shown.alive[row] else None for row in rows]
        return shown, rows

    def mask(self, view: View, where: Filter | None) -> UInt8s:
        """Return the (n,) mask of live rows that pass a filter."""
        return view.alive if where is None else view.mask(where) & view.alive

    def ids_where(self, where: Filter) -> list[str]:
        """Return the ids of all items that pass a filter."""
        view = self.view
        return view.ids.of(np.flatnonzero(self.mask(view, where)))

    def permit(self, where: Filter | None, ids: Iterable[str] | None) -> tuple[View, UInt8s]:
        """Return a view and its `mask`; ``ids`` restricts it to these items."""
        if ids is None:
            view = self.view
            return view, self.mask(view, where)
        view, rows = self.locate(ids)
        chosen = np.zeros(len(view), np.uint8)
        chosen[[row for row in rows if row is not None]] = 1
        return view, self.mask(view, where) & chosen

    def find(self, text: str, limit: int) -> tuple[View, FoundRows]:
        """Return a view, and its rows that a text finds; see `find_rows`.

        Raises InvalidParameter (the text is empty, or the limit is below 1).
        """
        if not text:
            raise InvalidParameter(expected="a text", got="an empty one", loc=("text",))
        require(limit >= 1, name="limit", expected="at least 1", got=limit)
        view = self.view
        return view, find_rows(view, text, limit, self.policies.find_seconds)

    def known_words(self, where: Filter) -> Iterable[KnownWords] | None:
        """Return what the items have of a filter's conditions; None if an item passes it."""
        view = self.view
        if not view.count:
            return ()
        return None if self.mask(view, where).any() else known_words(view, where)

    def _sees(self, view: View, permitted: UInt8s, count: int) -> RowView:
        """Return the input of a search; a sample of live rows is needed only for sparse rows."""
        vectors = view.vectors
        if vectors.form == "dense":
            return RowView(vectors, permitted, count)
        version, sample = self._sampled
        if version != view.version:
            sample = LiveSample.of(view.alive)
            self._sampled = view.version, sample
        return RowView(vectors, permitted, count, sample)

    def cached_arrangement(self, view: View, name: Hashable) -> Arrangement | None:
        """Return the cached arrangement of a view's map, or None; any thread."""
        return self.arrangements.get((self.content or view.content, name))

    def cache_arrangement(self, view: View, name: Hashable, arrangement: Arrangement) -> None:
        """Cache the arrangement of a map; only the last few are kept."""
        for key in [*self.arrangements][: 1 - _ARRANGEMENTS]:
            self.arrangements.pop(key, None)
        self.arrangements[self.content or view.content, name] = arrangement

    def curve(self, limit: int = 10) -> CostCurve:
        """Return the primary backend's cost by recall, for a limit.

        Raises InvalidParameter (the limit is below 1).
        """
        require(limit >= 1, name="limit", expected="at least 1", got=limit)
        view = self.view
        rows = self._sees(view, view.alive, view.count)
        return self.backend.curve(view.state, rows, limit)

    def search(
        self,
        view: View,
        queries: VectorBatch,
        params: SearchParams,
        *,
        where: Filter | None = None,
        skip: Int64s | None = None,
        backend: str | None = None,
    ) -> QueryResults:
        """Return the hits of each query among the rows that a filter permits.

        skip: (m,) int64 or None, a row that each query must not return, or -1.
        backend: None for the primary one.
        Raises BackendNotFound.
        """
        self.searches.announce()
        permitted = view.alive if where is None else self.mask(view, where)
        found = self.search_rows(view, permitted, queries, params, skip=skip, backend=backend)
        return QueryResults(view, found, params.limit)

    def pairs(self, view: View, rows: RowView, ranking: Ranking, **asked: Any) -> Pairs:  # noqa: ANN401
        """Return pairs of some live rows by a ranking; for ``asked`` see `Backend.pairs`."""
        rows = rows.with_floats()
        if ranking == "gmm":
            return self.backend.pairs(view.state, rows, **asked)
        del asked["recall"]  # scans find all pairs
        inverted = self.backend.inverted(view.state, view.vectors)
        asked = {"max_pairs": self.policies.pairs.max_pairs} | asked
        return contained_pairs(rows, inverted=inverted, workers=self.backend.workers, **asked)

    def search_rows(
        self,
        view: View,
        permitted: UInt8s,
        queries: VectorBatch,
        params: SearchParams,
        *,
        skip: Int64s | None,
        backend: str | None = None,
    ) -> BatchHits:
        """Return the hits of each query among some live rows; see `search`.

        permitted: (n,) uint8, 1 for each row that may be a hit.
        """
        searched, state = self.backend, view.state
        if backend is not None:
            indexed = self.index_of(view, backend)
            searched, state = indexed.backend, indexed.state
        count = view.count if permitted is view.alive else int(np.count_nonzero(permitted))
        rows = self._sees(view, permitted, count)
        search = searched.search
        if params.ranking == "containment":
            search = partial(_scan_contained, searched)
        m, step = len(queries.norms), max(1, self.policies.max_ties // max(1, len(view.sequences)))
        if m <= step:
            found = search(state, rows, queries, params, skip)
            if found.wider:
                found = _without_surplus(found, view.ids, params.limit)
            if view.vectors.form == "dense":
                return found
            return self.with_zeros(found, view, permitted, count, params, skip)
        parts = []
        for first in range(0, m, step):
            places = np.arange(first, min(first + step, m))
            some = queries[first : first + step]
            own_skip = None if skip is None else skip[places]
            found = search(state, rows, some, params, own_skip)
            parts.append((places, _without_surplus(found, view.ids, params.limit)))
        found = BatchHits.combine(parts)
        return self.with_zeros(found, view, permitted, count, params, skip)

    def with_zeros(
        self,
        found: BatchHits,
        view: View,
        permitted: UInt8s,
        count: int,
        params: SearchParams,
        skip: Int64s | None = None,
    ) -> BatchHits:
        """Return hits with the first sparse rows by id that score 0, which scans omit.

        count: number of permitted rows.
        skip: (m,) int64 or None, a row that each query must not return, or -1.
        """
        if view.vectors.form == "dense" or params.min_score > 0 or params.rerank == "none":
            return found
        wanted = min(params.limit, count)
        if (found.sizes >= wanted).all():
            return found
        lacking = wanted - found.rows.shape[1]
        if lacking > 0:
            room = (0, 0), (0, lacking)
            found = replace(found, rows=np.pad(found.rows, room), scores=np.pad(found.scores, room))
        first = self._first_ids.rows(view, permitted, 2 * wanted + 1)
        for i in np.flatnonzero((found.sizes < wanted) & (found.work[:, METHOD] == SCAN)).tolist():
            size = int(found.sizes[i])
            known = {*found.rows[i, :size].tolist(), -1 if skip is None else int(skip[i])}
            zeros = [row for row in first if row not in known][: wanted - size]
            end = found.sizes[i] = size + len(zeros)
            found.rows[i, size:end], found.scores[i, size:end] = sorted(zeros), 0.0
        return found

    def nbytes(self) -> int:
        """Return the approximate bytes of memory that the collection uses."""
        view = self.view
        return (
            self.row_store.nbytes
            + self.names.nbytes
            + view.columns.nbytes
            + self.backend.nbytes(view.state)
            + sum(indexed.nbytes for indexed in view.attached.values())
        )


def _scan_contained(
    backend: Backend[Any],
    state: Any,  # noqa: ANN401 (the backend's own)
    view: RowView,
    queries: VectorBatch,
    params: SearchParams,
    skip: Int64s | None,
) -> BatchHits:
    """Return the hits of each query by containment, by a scan whatever the backend."""
    return scan_contained(
        view,
        queries,
        params,
        skip=np.full(len(queries), -1) if skip is None else skip,
        inverted=backend.inverted(state, view.vectors),
        workers=backend.workers,
    )


def _without_surplus(found: BatchHits, ids: Ids, limit: int) -> BatchHits:
    """Return hits without ties beyond the limit; ties are kept in order of ids."""
    known = dict[tuple[int, bytes], list[int]]()  # many queries tie with the same rows

    def cut(rows: Int64s, scores: Float64s) -> tuple[Int64s, Float64s]:
        surer = int(np.count_nonzero(scores > scores[-1]))
        tied, lacking = rows[surer:], limit - surer
        key = lacking, blake2b(tied.tobytes()).digest()
        if key not in known:
            known[key] = sorted(ids.first(tied.tolist(), lacking))
        return np.array([*rows[:surer], *known[key]], np.int64), scores[:limit].copy()

    return replace(found, wider={i: cut(*both) for i, both in found.wider.items()})
