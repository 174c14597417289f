"""Items with their original vectors: from memory, or from the file under a transform."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import numpy as np

from gcws_search.index.collection.items import ScoredItem, View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.arrays import Int64s
from gcws_search.index.contracts.errors import InvalidParameter, ItemNotFound
from gcws_search.index.payload.filters import Filter
from gcws_search.index.storage.store import Store
from gcws_search.index.vectors.space import VectorSpace

JsonVector = list[float] | dict[str, list[Any]]
"""A vector as the API shows it."""

_MAX_SEQUENCE: Final = 2**63 - 1
_MAX_DIGITS: Final = 20
"""More than any sequence number has."""


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as sent.

    Attributes
    ----------
    id : str
    vector : list or dict or None
        As the API shows it; None where it was not asked for.
    payload : bytes or None
        JSON text.
    """

    id: str
    vector: JsonVector | None
    payload: bytes | None


@dataclass(frozen=True, slots=True)
class Page:
    """Some items in the order in which they were put, and where the next page starts.

    Attributes
    ----------
    items : list of StoredItem
    next_cursor : str or None
        None on the last page.
    """

    items: list[StoredItem]
    next_cursor: str | None


class ItemReader:
    """Reads the items of one collection.

    Parameters
    ----------
    store : Store
    memory : MemoryCollection
    """

    def __init__(self, store: Store, memory: MemoryCollection) -> None:
        self._store = store
        self._memory = memory
        self.space: VectorSpace = memory.space

    def get(self, item_id: str) -> StoredItem:
        """Return an item.

        Raises
        ------
        ItemNotFound
        """
        view, row = self._memory.locate(item_id)
        if row is None:
            raise ItemNotFound(item_id)
        raw = view.raw(self.space, np.array([row]))
        if raw is not None:
            return StoredItem(item_id, self.space.to_json(raw, 0), view.payloads[row])
        record = self._store.fetch([item_id]).get(item_id)
        if record is None:  # deleted since
            raise ItemNotFound(item_id)
        return StoredItem(item_id, self._from_blob(record.vector), record.payload)

    def _from_blob(self, blob: bytes) -> JsonVector:
        return self.space.to_json(self.space.from_blobs([blob]), 0)

    def count(self, where: Filter | None = None) -> int:
        """Return the number of items, or of those whose payloads pass a filter."""
        return self._memory.permitted(self._memory.view, where)[1]

    def page(
        self,
        *,
        limit: int = 100,
        cursor: str | None = None,
        with_vector: bool = False,
        where: Filter | None = None,
        ids: Sequence[str] | None = None,
    ) -> Page:
        """Return items in the order in which they were put; an update puts an item at the end.

        Parameters
        ----------
        limit : int
        cursor : str or None
            ``next_cursor`` of the page before; None for the first page.
        with_vector : bool
        where : Filter or None
            Only items whose payloads pass.
        ids : sequence of str or None
            Only those of these items that there are.

        Raises
        ------
        InvalidParameter
            No such cursor was handed out, or the limit is below 1.
        """
        if limit < 1:
            raise InvalidParameter(expected="at least 1", got=str(limit), loc=("limit",))
        after = sequence_of(cursor)
        view, rows = self._memory.view, None
        if ids is not None:
            view, rows = self._memory.locate_all(ids)
        permitted, _ = self._memory.permitted(view, where)
        if rows is not None:
            chosen = np.zeros_like(permitted)
            chosen[rows] = permitted[rows]
            permitted = chosen
        found = view.page(permitted, after=after, limit=limit + 1)
        shown = found[:limit]
        next_cursor = str(view.sequences[shown[-1]]) if len(found) > limit else None
        return Page(self._items(view, shown, with_vector=with_vector), next_cursor)

    def _items(self, view: View, rows: Int64s, *, with_vector: bool) -> list[StoredItem]:
        """Return the items of some rows.

        Where a transform keeps vectors out of memory, items that have been updated or deleted
        since are left out.
        """
        ids = [view.ids[row] for row in rows.tolist()]
        payloads = [view.payloads[row] for row in rows.tolist()]
        if not with_vector:
            return [StoredItem(*both) for both in zip(ids, repeat(None), payloads, strict=False)]
        raw = view.raw(self.space, rows)
        if raw is not None:
            vectors = (self.space.to_json(raw, place) for place in range(len(rows)))
            return [StoredItem(*each) for each in zip(ids, vectors, payloads, strict=True)]
        records = self._store.at(view.sequences[rows].tolist())
        return [StoredItem(each.id, self._from_blob(each.vector), each.payload) for each in records]

    def vectors(self, hits: Sequence[ScoredItem]) -> list[JsonVector | None]:
        """Return the vectors of hits as sent.

        Where a transform keeps them out of memory, an item updated since the search shows its new
        vector, and one deleted since shows None.
        """
        if self.space.transform.is_identity:
            return [self._from_memory(hit) for hit in hits]
        records = self._store.fetch([hit.id for hit in hits])
        blobs = [records[hit.id].vector if hit.id in records else None for hit in hits]
        return [None if blob is None else self._from_blob(blob) for blob in blobs]

    def _from_memory(self, hit: ScoredItem) -> JsonVector | None:
        raw = hit.view.raw(self.space, np.array([hit.row]))
        return None if raw is None else self.space.to_json(raw, 0)


def sequence_of(cursor: str | None) -> int:
    """Return the sequence number after which the page of a cursor starts.

    Raises
    ------
    InvalidParameter
        No such cursor was handed out.
    """
    if cursor is None:
        return 0
    if cursor.isascii() and cursor.isdecimal() and int(cursor[:_MAX_DIGITS]) <= _MAX_SEQUENCE:
        return int(cursor[:_MAX_DIGITS])
    raise InvalidParameter(
        expected="a cursor that a page returned", got=repr(cursor[:40]), loc=("cursor",)
    )
