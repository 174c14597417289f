"""Items in memory by row: growing arrays, which rows are live, and compaction."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from gcws_search.index.backend import Backend
from gcws_search.index.collection.backend_index import Attached
from gcws_search.index.collection.ids import Ids
from gcws_search.index.collection.items import EncodedBatch, View
from gcws_search.index.contracts.arrays import NEVER, Int64s, UInt8s, with_room
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.payload import ChangedPayloads, Columns
from gcws_search.index.threads import end_if
from gcws_search.index.vectors.growing_rows import GrowingRows
from gcws_search.index.vectors.space import VectorSpace

_NONE_ATTACHED: Final[Attached] = MappingProxyType({})
_BYTES_PER_PAYLOAD: Final = 33
_FIRST_IDS: Final = 4096
"""Rows that `FirstIds` remembers: more than most searches return, for a filter may hide some."""
_IDS_AT_ONCE: Final = 4096
"""Ids that a compaction takes between two looks at whether to stop."""


@dataclass(frozen=True, slots=True)
class _Lowest:
    """The first live rows of an n-row view, ordered by id; all live rows if ``is_all``.

    version: of the view; earlier views have rows that were replaced since.
    """

    ids: Ids
    version: int
    n: int
    rows: Int64s
    is_all: bool

    @classmethod
    def of(cls, view: View, rows: list[int], *, is_all: bool = True) -> _Lowest:
        lowest = view.ids.first(rows, _FIRST_IDS)
        is_all = is_all and len(rows) <= _FIRST_IDS
        return cls(view.ids, view.version, len(view), np.array(lowest, np.int64), is_all)


class FirstIds:
    """The first rows by id, cached between searches; any thread."""

    def __init__(self) -> None:
        self._known = _Lowest(Ids(), 0, 0, np.empty(0, np.int64), is_all=True)

    def rows(self, view: View, permitted: UInt8s, count: int) -> list[int]:
        """Return up to ``count`` of the permitted rows, the first by id."""
        ids, n, known = view.ids, len(view), self._known
        is_later = known.ids is ids and known.version <= view.version
        if not is_later or not (known.is_all or len(known.rows)):
            known = _Lowest.of(view, np.flatnonzero(view.alive).tolist())
        elif known.n < n:
            last = None if known.is_all else ids[known.rows[-1]]
            new: Sequence[int] = range(known.n, n)
            if last is not None:
                new = [row for row, each in zip(new, ids.of(new), strict=True) if each < last]
            alive = known.rows[view.alive[known.rows] != 0].tolist()
            known = _Lowest.of(view, [*alive, *new], is_all=known.is_all)
        found = known.rows[permitted[known.rows] != 0]
        if len(found) < count and not known.is_all:
            rows = np.flatnonzero(permitted).tolist()
            if permitted is view.alive:
                known = _Lowest.of(view, rows)
            found = np.array(ids.first(rows, count))
        self._known = known
        return list(found[:count].tolist())


class RowStore:
    """The items under one numbering of rows; one writer appends, views show the first n rows.

    space: with the transform of the rows.
    ids: of the rows, and of rows about to be appended; owned by this object, like all other
        arguments.
    sequences: (n,) int64; versions, expires: (n,) or (0,) int64; see `View`.
    rows, ids, payloads, sequences, versions, expires: the last three may be longer than the number
        of rows.
    alive: (n,) uint8, 1 for each live row; may be longer.
    """

    def __init__(
        self,
        space: VectorSpace,
        rows: GrowingRows,
        ids: Ids,
        payloads: list[bytes | None],
        *,
        sequences: Int64s,
        versions: Int64s,
        expires: Int64s,
    ) -> None:
        self.space = space
        self.rows = rows
        self.ids = ids
        self.payloads = payloads
        self.sequences = sequences
        self.versions = versions
        self.expires = expires
        self.alive: UInt8s = np.ones(len(rows), np.uint8)
        self._spare: _SpareMask | None = None
        self.columns = Columns(payloads)
        self.payload_bytes = _payload_bytes(payloads)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Approximate bytes of memory, without columns and mapped files."""
        masks = self.alive.nbytes if self._spare is None else 2 * self.alive.nbytes
        numbers = self.sequences.nbytes + self.versions.nbytes + self.expires.nbytes
        return self.rows.nbytes + self.ids.nbytes + masks + numbers + self.payload_bytes

    def append(self, items: EncodedBatch) -> None:
        """Append items as live rows; their sequence numbers are above all existing ones.

        Their ids are added to ``ids`` separately, earlier if the items wait for a view.
        """
        before = len(self.rows)
        n = before + len(items.ids)
        self.rows.append(items.vectors)
        self.payloads.extend(items.payloads)
        self.payload_bytes += _payload_bytes(items.payloads)
        self.sequences = with_room(self.sequences, before, n)
        self.alive = with_room(self.alive, before, n)
        self.sequences[before:n] = items.sequences
        self.alive[before:n] = 1
        self.versions = _extended(self.versions, before, n, items.versions, 1)
        expires = [NEVER if at is None else at for at in items.expires]
        self.expires = _extended(self.expires, before, n, expires, NEVER)

    def view(
        self,
        state: object,
        count: int,
        version: int,
        attached: Attached = _NONE_ATTACHED,
        rows: VectorBatch | None = None,
    ) -> View:
        """Return a view of the present rows.

        rows: the result of ``rows.view``, if the caller has it.
        """
        vectors = self.rows.view() if rows is None else rows
        n = vectors.count
        changes = self.columns.changes
        return View(
            space=self.space,
            vectors=vectors,
            alive=self.alive[:n],
            count=count,
            sequences=self.sequences[:n],
            ids=self.ids,
            payloads=ChangedPayloads(self.payloads, changes, len(changes))
            if len(changes)
            else self.payloads,
            versions=self.versions[:n],
            expires=self.expires[:n],
            changed=len(changes),
            columns=self.columns,
            state=state,
            version=version,
            content=version,
            attached=attached,
        )

    def take(self, view: View, places: Int64s, stop: threading.Event | None = None) -> RowStore:
        """Return the items of some rows of a view; any thread.

        places: (m,) int64, live rows, ascending.
        stop: see `GrowingRows.take`, also for errors.
        """
        rows, chosen = self.rows.take(view.vectors, places, stop), places.tolist()
        ids, payloads = Ids(), [view.payloads[row] for row in chosen]
        ids.reserve(len(chosen))
        for first in range(0, len(chosen), _IDS_AT_ONCE):
            end_if(stop)
            ids.append(view.ids.of(chosen[first : first + _IDS_AT_ONCE]))
        versions = np.array(view.versions_of(chosen), np.int64)
        if (versions == 1).all():
            versions = versions[:0]
        expires = view.expires[places] if len(view.expires) else view.expires
        return RowStore(
            self.space,
            rows,
            ids,
            payloads,
            sequences=view.sequences[places],
            versions=versions,
            expires=expires,
        )

    def truncate(self, count: int) -> None:
        """Remove the rows after the first ``count``, but no ids; no reader has seen these rows."""
        self.rows.truncate(count)
        self._spare = None
        self.payload_bytes -= _payload_bytes(self.payloads[count:])
        del self.payloads[count:]

    def change_payloads(self, rows: Sequence[int], payloads: Sequence[bytes | None]) -> None:
        """Replace the payloads of some rows, for new views."""
        self.columns.changes.add(rows, payloads)
        self.payload_bytes += _payload_bytes(payloads)

    def mark_dead(self, rows: Sequence[int]) -> None:
        """Turn some rows into tombstones, for new views.

        Readers hold the present mask, so another array is changed: the previous mask if no view
        holds it any more, else a copy. Copying the mask of ten million rows takes ten times as
        long as a commit.
        """
        present, spare, dead = self.alive, self._spare, list(rows)
        taken = None if spare is None else spare.reuse(present, len(self.rows))
        self._spare = _SpareMask(present, len(self.rows), dead)
        self.alive = present.copy() if taken is None else taken
        self.alive[dead] = 0


class _SpareMask:
    """The previous mask of live rows, kept for reuse.

    mask: (room,) uint8.
    count: number of rows at that time.
    dead: those of these rows that have died since.
    """

    def __init__(self, mask: UInt8s, count: int, dead: list[int]) -> None:
        self._mask = mask
        self._count = count
        self._dead = dead

    def reuse(self, present: UInt8s, count: int) -> UInt8s | None:
        """Return the updated mask; None if a view still holds it or it is too small.

        present: (room,) uint8, the present mask, of ``count`` rows.
        """
        # Views hold counted references only to an array with its own memory.
        owns = self._mask.base is None
        if not owns or len(self._mask) != len(present):
            return None
        if self.references() > _UNHELD:
            return None
        self._mask[self._dead] = 0
        self._mask[self._count : count] = present[self._count : count]
        return self._mask

    def references(self) -> int:
        """Return the number of references to the mask, as CPython counts them."""
        return sys.getrefcount(self._mask)


_UNHELD: Final = _SpareMask(np.ones(1, np.uint8), 1, []).references()
"""References to a mask that no view holds."""


class Compaction:
    """The live rows of a view with new numbers, and with ids and indexes.

    Building it takes long, beside readers and the writer. `apply_changes` then adds what they have
    changed meanwhile.

    Raises StoppedError (``stop`` is set), OSError (the disk is full).
    """

    def __init__(
        self,
        store: RowStore,
        view: View,
        backend: Backend[Any],
        stop: threading.Event | None = None,
    ) -> None:
        self._seen = view
        self._backend = backend
        self._places = np.flatnonzero(view.alive)  # the old row number of each row
        self.store = store.take(view, self._places, stop)
        rows, new_rows = self.store.rows.view(), np.full(len(view), -1, np.int64)
        new_rows[self._places] = np.arange(len(self._places))
        self._state = backend.renumber(view.state, rows, new_rows)
        self._attached = {}
        for name, indexed in view.attached.items():
            end_if(stop)
            self._attached[name] = indexed.renumber(rows, new_rows)

    def can_follow(self, now: View) -> bool:
        """Return whether a later view has the same row numbers and the same backends."""
        backends = {name: indexed.backend for name, indexed in now.attached.items()}
        own = {name: indexed.backend for name, indexed in self._attached.items()}
        return now.ids is self._seen.ids and backends == own

    def apply_changes(self, now: View) -> int:
        """Add the changes up to a view that `can_follow` accepts; return the number of new rows.

        Raises OSError (the disk is full; the compaction is then unusable).
        """
        store, alive = self.store, now.alive[self._places]
        dead = np.flatnonzero(store.alive[: len(store)] > alive)
        store.ids.remove(store.ids.of(dead.tolist()))
        store.alive = alive
        self._apply_payloads(now)
        known = len(self._seen)
        new = known + np.flatnonzero(now.alive[known:])
        self._seen = now
        if not len(new):
            return 0
        vectors = now.vectors[new]
        items = now.encoded(new, vectors, self._backend.encode(vectors))
        store.append(items)
        store.ids.append(items.ids)
        self._places = np.append(self._places, new)
        rows = store.rows.view()
        self._state = self._backend.extend(self._state, rows, items.codes)
        for name, indexed in self._attached.items():
            self._attached[name] = indexed.extend(rows, vectors)
        return len(new)

    def _apply_payloads(self, now: View) -> None:
        """Apply payload changes made since the last view to rows that it had."""
        changes, changed = now.columns.changes, slice(self._seen.changed, now.changed)
        rows, payloads = changes.rows[changed], changes.payloads[changed]
        known = np.flatnonzero(rows < len(self._seen))  # the others come with their payloads
        places = np.searchsorted(self._places, rows[known])
        self.store.change_payloads(places.tolist(), [payloads[each] for each in known.tolist()])

    def view(self, version: int) -> View:
        """Return a view of the compacted rows."""
        count = int(np.count_nonzero(self.store.alive[: len(self.store)]))
        return self.store.view(self._state, count, version, self._attached)


def _extended(column: Int64s, before: int, n: int, values: Sequence[int], usual: int) -> Int64s:
    """Return a column with further rows appended; (0,) while all values are ``usual``.

    before, n: number of rows without and with the new ones.
    values: of the new rows; empty if all are ``usual``.
    """
    if not (len(column) or values):
        return column
    held = with_room(column if len(column) else np.full(before, usual, np.int64), before, n)
    held[before:n] = values or usual
    return held


def _payload_bytes(payloads: Iterable[bytes | None]) -> int:
    """Return the approximate bytes of memory that payloads use."""
    present = [payload for payload in payloads if payload is not None]
    return sum(map(len, present)) + _BYTES_PER_PAYLOAD * len(present)
