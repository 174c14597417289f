"""Items in memory: ids, vectors, payloads and their index, seen through immutable views.

One writer at a time changes a collection (the caller sees to it); readers take ``view`` once and
use nothing else, so they never wait and never see half a change. Rows are numbered in the order in
which they were put, the order of the keys they come with; an update gives its item a new row.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from index.arrays import LEAST_CAPACITY, Int64s, UInt8s, with_room
from index.backends import make_backend
from index.columns import Columns
from index.hits import LiveSample, Pairs, RowView
from index.items import Encoded, QueryResults, View
from index.params import CollectionConfig, SearchParams
from index.rows import GrowingRows
from index.saved import Saved
from index.vectors import RawBatch, VectorBatch, VectorSpace

if TYPE_CHECKING:
    from index.filters import Filter

COMPACTION_ROWS: Final = 4096
"""Dead rows are left alone up to this many, and while there are no more of them than live ones."""

_FEW_ROWS: Final = 32
_MOST_CATCHING_UP: Final = 8
"""An index that was improved takes in the rows put meanwhile until few are left, or so many times;
changes wait only while it takes in the last."""

_BYTES_PER_ID: Final = 49 + 8 + 104
"""A short string, its place in the list, its place in the dictionary of rows."""
_BYTES_PER_PAYLOAD: Final = 33


@dataclass(frozen=True, slots=True)
class Loaded:
    """Items as they are stored, with distinct ids and rising keys."""

    ids: Sequence[str]
    payloads: Sequence[bytes | None]
    encoded: Encoded
    keys: Sequence[int]


class Collection:
    """The items of one collection, in memory.

    Parameters
    ----------
    config : CollectionConfig
    threads : int or None
        Threads for kernels; None takes as many as the process may use.
    """

    def __init__(self, config: CollectionConfig, *, threads: int | None = None) -> None:
        self.config = config
        self.space = VectorSpace.of(config)
        self.backend = make_backend(config, threads=threads)
        # Held for the moment in which the ids and the view change, never for work.
        self._names = threading.Lock()
        self._row_of: dict[str, int] = {}
        self._text_bytes = 0
        self._sampled = -1, LiveSample.of(np.empty(0, np.uint8))
        self._reset(GrowingRows(config.form, config.dim), [], [])
        self.view = self._view(self.backend.empty(), 0, 0)

    def _reset(self, rows: GrowingRows, ids: list[str], payloads: list[bytes | None]) -> None:
        self._rows = rows
        self._ids = ids
        self._payloads = payloads
        self._columns = Columns(payloads)
        self._alive = np.ones(len(ids), np.uint8)
        self._keys = np.empty(len(ids), np.int64)

    def _view(self, state: object, count: int, version: int) -> View:
        n = len(self._rows)
        return View(
            vectors=self._rows.view(), alive=self._alive[:n], count=count, keys=self._keys[:n],
            ids=self._ids, payloads=self._payloads, columns=self._columns, state=state,
            version=version,
        )  # fmt: skip

    def encode(self, vectors: RawBatch) -> Encoded:
        """Transform and hash vectors; any thread.

        Raises
        ------
        InvalidVector
            The transform leaves nothing of a vector.
        """
        prepared = self.space.prepare(vectors)
        return Encoded(prepared, self.backend.encode(prepared))

    # Writing: one thread at a time.

    def load(self, pieces: Iterable[Loaded], count: int, saved: Callable[[Int64s], Saved]) -> None:
        """Take stored items into an empty collection; their index is made once, at the end.

        Parameters
        ----------
        pieces : iterable of Loaded
        count : int
            How many items there are in all; memory is reserved for so many.
        saved : callable
            Is told the (n,) keys, and returns what was kept of an earlier index of the rows.
        """
        self._rows.reserve(count)
        codes = np.empty((count, self.backend.code_width), np.uint64)
        for piece in pieces:
            before, n = len(self._rows), len(self._rows) + len(piece.ids)
            codes = with_room(codes, before, n)
            codes[before:n] = piece.encoded.codes
            self._append(piece.ids, piece.payloads, piece.encoded.vectors, piece.keys)
        n = len(self._rows)
        state = self.backend.restored(self._rows.view(), codes[:n], saved(self._keys[:n]))
        row_of = dict(zip(self._ids, range(n), strict=True))
        with self._names:
            self._row_of = row_of
            self.view = self._view(state, n, self.view.version + 1)

    def rows_of(self, ids: Iterable[str]) -> list[int]:
        """Return the rows of those ids that there are."""
        return [row for row in map(self._row_of.get, ids) if row is not None]

    def keys_of(self, ids: Iterable[str]) -> list[int | None]:
        """Return the key of each id, None where there is no such item."""
        keys = self.view.keys
        return [None if row is None else int(keys[row]) for row in map(self._row_of.get, ids)]

    def put(
        self,
        ids: Sequence[str],
        payloads: Sequence[bytes | None],
        encoded: Encoded,
        *,
        keys: range | Sequence[int],
        replaced: Sequence[int] = (),
    ) -> None:
        """Add items.

        Parameters
        ----------
        ids : sequence of str
            Distinct; the items that have one of them are at the rows ``replaced``.
        payloads : sequence of bytes or None
        encoded : Encoded
        keys : sequence of int
            Rising, and above all before.
        replaced : sequence of int
        """
        before, n = len(self._rows), len(self._rows) + len(ids)
        if replaced:
            self._alive = self._alive.copy()  # readers hold the old one
            self._alive[list(replaced)] = 0
        self._append(ids, payloads, encoded.vectors, keys)
        state = self.backend.extend(self.view.state, self._rows.view(), encoded.codes)
        view = self._view(state, self.view.count + len(ids) - len(replaced), self.view.version + 1)
        found = dict(zip(ids, range(before, n), strict=True))
        with self._names:
            self._row_of.update(found)
            self.view = view
        self._compact_if_due()

    def _append(
        self,
        ids: Sequence[str],
        payloads: Sequence[bytes | None],
        vectors: VectorBatch,
        keys: range | Sequence[int],
    ) -> None:
        before, n = len(self._rows), len(self._rows) + len(ids)
        self._rows.append(vectors)
        self._ids.extend(ids)
        self._payloads.extend(payloads)
        self._text_bytes += _text_bytes(ids, payloads)
        self._keys = with_room(self._keys, before, n)
        self._keys[before:n] = keys
        self._alive = with_room(self._alive, before, n)
        self._alive[before:n] = 1

    def remove(self, rows: Sequence[int]) -> None:
        """Remove the items of some live, distinct rows."""
        self._alive = self._alive.copy()  # readers hold the old one
        self._alive[list(rows)] = 0
        view = self._view(self.view.state, self.view.count - len(rows), self.view.version + 1)
        with self._names:
            for row in rows:
                del self._row_of[self._ids[row]]
            self.view = view
        self._compact_if_due()

    def _compact_if_due(self) -> None:
        dead = len(self.view) - self.view.count
        if dead > max(COMPACTION_ROWS, self.view.count):
            self.compact()

    def compact(self) -> None:
        """Forget dead rows; the others keep their order."""
        old = self.view
        kept = np.flatnonzero(old.alive)
        new_rows = np.full(len(old), -1, np.int64)
        new_rows[kept] = np.arange(len(kept))
        rows = kept.tolist()
        keys = old.keys[kept]
        self._reset(
            self._rows.take(kept), [old.ids[row] for row in rows],
            [old.payloads[row] for row in rows],
        )  # fmt: skip
        self._keys[:] = keys
        self._text_bytes = _text_bytes(self._ids, self._payloads)
        state = self.backend.renumber(old.state, self._rows.view(), new_rows)
        view = self._view(state, len(rows), old.version + 1)
        row_of = dict(zip(self._ids, range(len(rows)), strict=True))
        with self._names:
            self._row_of = row_of
            self.view = view

    # Improving: one thread at a time, beside those that read and write.

    @property
    def is_improvable(self) -> bool:
        """Whether `improve` is worth its time."""
        view = self.view
        return self.backend.is_overdue(view.state, len(view), view.count)

    def improve(
        self, publish: Callable[[Callable[[], bool]], bool | None], stop: threading.Event
    ) -> bool | None:
        """Make searches quicker; long work, but for the moment in which it is published.

        Parameters
        ----------
        publish : callable
            Calls what it is given while no change is being made, and returns what that returns;
            None when it can be called no more.
        stop : threading.Event
            Once it is set the work ends soon.

        Returns
        -------
        bool or None
            False when it has to be done again, for too much has changed meanwhile; None when
            ``publish`` or ``stop`` has said that it is of no use.
        """
        view = self.view
        improved = self.backend.improved(view.state, view.vectors, view.alive, stop)
        if improved is None:
            return None

        def adopt() -> bool:
            now = self.view
            state = self._adopted(view, improved, now)
            if state is None:
                return False
            self.view = replace(now, state=state, version=now.version + 1)
            return True

        # While rows are taken in that were put meanwhile, more are put.
        for _ in range(_MOST_CATCHING_UP):
            now = self.view
            if len(now) - len(view) <= _FEW_ROWS or stop.is_set():
                break
            improved = self._adopted(view, improved, now)
            if improved is None:
                return False
            view = now
        return publish(adopt)

    def _adopted(self, view: View, improved: object, now: View) -> object | None:
        """Return the state of a view as improved for an earlier one; None when that cannot be."""
        if now.ids is not view.ids:  # rows have been renumbered
            return None
        return self.backend.adopted(now.state, now.vectors, improved)

    # Reading: any thread.

    def locate(self, item_id: str) -> tuple[View, int | None]:
        """Return a view, and the row of an item in it."""
        with self._names:
            return self.view, self._row_of.get(item_id)

    def permitted(self, view: View, where: Filter | None) -> tuple[UInt8s, int]:
        """Return the (n,) mask of live rows that pass a filter, and its number of ones."""
        if where is None:
            return view.alive, view.count
        mask = where.mask(view.columns, len(view)) & view.alive
        return mask, int(np.count_nonzero(mask))

    def _live_sample(self, view: View) -> LiveSample | None:
        """Return the sample of a view's live rows; only costs of sparse rows ask for one."""
        if view.vectors.form == "dense":
            return None
        version, sample = self._sampled
        if version != view.version:
            sample = LiveSample.of(view.alive)
            self._sampled = view.version, sample
        return sample

    def search(
        self,
        view: View,
        queries: VectorBatch,
        params: SearchParams,
        *,
        where: Filter | None = None,
        skip: Int64s | None = None,
    ) -> QueryResults:
        """Return the hits of each query.

        Parameters
        ----------
        view : View
        queries : VectorBatch
        params : SearchParams
        where : Filter or None
        skip : (m,) int64 or None
            A row each query must not return, or -1.
        """
        mask, count = self.permitted(view, where)
        row_view = RowView(view.vectors, mask, count, self._live_sample(view))
        found = self.backend.search(view.state, row_view, queries, params, skip)
        return QueryResults(view, found, params.limit)

    def pairs(
        self,
        view: View,
        *,
        min_score: float,
        recall: float,
        limit: int | None = None,
        stop: threading.Event | None = None,
    ) -> Pairs:
        """Return pairs of live rows at least ``min_score`` alike: rows a < b, scores."""
        row_view = RowView(view.vectors, view.alive, view.count)
        return self.backend.pairs(
            view.state, row_view, min_score=min_score, recall=recall, limit=limit, stop=stop
        )

    def raw(self, view: View, rows: Int64s) -> RawBatch | None:
        """Return vectors as they were sent, None when the transform has changed them."""
        if not self.space.transform.is_identity:
            return None
        vectors = view.vectors
        if vectors.form == "dense":
            return RawBatch("dense", dense=vectors.dense[rows, : self.space.dim])
        chosen = vectors[rows]
        signs = np.where(chosen.slots & 1, np.float32(-1), np.float32(1))
        return RawBatch(
            "sparse", indptr=chosen.indptr, indices=(chosen.slots >> 1).astype(np.int32),
            values=chosen.values * signs,
        )  # fmt: skip

    def page(self, view: View, *, after: int, limit: int) -> Int64s:
        """Return the first ``limit`` live rows whose keys are above ``after``."""
        start = int(np.searchsorted(view.keys, after, side="right"))
        found: list[Int64s] = []
        wanted = limit
        while wanted and start < len(view):
            stop = min(len(view), start + 2 * wanted + LEAST_CAPACITY)
            live = start + np.flatnonzero(view.alive[start:stop])[:wanted]
            found.append(live)
            wanted -= len(live)
            start = stop
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def nbytes(self) -> int:
        """Return about how many bytes of memory the collection holds."""
        view = self.view
        return (
            self._rows.nbytes + self._alive.nbytes + self._keys.nbytes + self._text_bytes
            + view.columns.nbytes + self.backend.nbytes(view.state)
        )  # fmt: skip


def _text_bytes(ids: Sequence[str], payloads: Sequence[bytes | None]) -> int:
    texts = [payload for payload in payloads if payload is not None]
    return (
        sum(map(len, ids)) + _BYTES_PER_ID * len(ids)
        + sum(map(len, texts)) + _BYTES_PER_PAYLOAD * len(texts)
    )  # fmt: skip
