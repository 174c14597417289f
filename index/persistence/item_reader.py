"""Items with their original vectors: from memory, or from the file under a transform."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gcws_search.index.collection.items import Hit
from gcws_search.index.collection.memory_collection import MemoryCollection
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
        self, *, limit: int = 100, cursor: str | None = None, with_vector: bool = False
    ) -> Page:
        """Return items in the order in which they were put; an update puts an item at the end.

        Parameters
        ----------
        limit : int
        cursor : str or None
            ``next_cursor`` of the page before; None for the first page.
        with_vector : bool

        Raises
        ------
        InvalidParameter
            No such cursor was handed out, or the limit is below 1.
        """
        if limit < 1:
            raise InvalidParameter(expected="at least 1", got=str(limit), loc=("limit",))
        after = sequence_of(cursor)
        if with_vector and not self.space.transform.is_identity:
            return self._page_from_store(after, limit)
        view = self._memory.view
        rows = view.page(after=after, limit=limit + 1)
        shown = rows[:limit]
        vectors: list[JsonVector | None] = [None] * len(shown)
        raw = view.raw(self.space, shown) if with_vector else None
        if raw is not None:
            vectors = [self.space.to_json(raw, place) for place in range(len(shown))]
        items = [
            StoredItem(view.ids[row], vector, view.payloads[row])
            for row, vector in zip(shown.tolist(), vectors, strict=True)
        ]
        more = len(rows) > limit
        return Page(items, str(view.sequences[shown[-1]]) if more else None)

    def _page_from_store(self, after: int, limit: int) -> Page:
        records = self._store.page(after=after, limit=limit + 1)
        shown = records[:limit]
        items = [StoredItem(each.id, self._from_blob(each.vector), each.payload) for each in shown]
        return Page(items, str(shown[-1].sequence) if len(records) > limit else None)

    def vectors(self, hits: Sequence[Hit]) -> list[JsonVector | None]:
        """Return the vectors of hits as sent.

        Where a transform keeps them out of memory, an item updated since the search shows its new
        vector, and one deleted since shows None.
        """
        if self.space.transform.is_identity:
            return [self._from_memory(hit) for hit in hits]
        records = self._store.fetch([hit.id for hit in hits])
        blobs = [records[hit.id].vector if hit.id in records else None for hit in hits]
        return [None if blob is None else self._from_blob(blob) for blob in blobs]

    def _from_memory(self, hit: Hit) -> JsonVector | None:
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
