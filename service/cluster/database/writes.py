"""Puts and deletes: what they are, and what several of them come to in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gcws_search import index as ix
from gcws_search.service.cluster.contract import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPut:
    """Items to be put, as bytes.

    Attributes
    ----------
    ids : sequence of str or None
        None until the transaction gives the item a number.
    vectors : sequence of bytes
        Of `VectorSpace.to_blobs`.
    payloads : sequence of bytes or None
        JSON text.
    mode : {"upsert", "insert"}
        An id that comes twice is refused by inserts; of others the last counts.
    places : sequence of int
        Number of each item in its request.
    keeps_payloads : bool
        Whether an item without a payload keeps its present one.
    progress : callable or None
        Called with the result just before the commit; returns how far the load has come.
    coordinates : int
        In an open slot space: above all coordinates that the items use.
    names : sequence of int
        Coordinates with reserved names that the items use.
    numbers : range
        What items without ids were given.
    """

    ids: Sequence[str | None]
    vectors: Sequence[bytes]
    payloads: Sequence[bytes | None]
    mode: ix.Mode = "upsert"
    places: Sequence[int] = ()
    keeps_payloads: bool = False
    progress: Callable[[ix.WriteResult], ix.LoadRecord] | None = None
    coordinates: int = 0
    names: Sequence[int] = ()
    numbers: range = range(0)

    def place(self, row: int) -> int:
        """Return the number of an item in its request."""
        return self.places[row] if self.places else row


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDelete:
    """Items to be deleted, by ids or by what chooses them.

    Attributes
    ----------
    ids : sequence of str
    choose : callable or None
        Called with the key of the last change while no other is made; returns further ids.
    """

    ids: Sequence[str] = ()
    choose: Callable[[int], Sequence[str]] | None = None


PreparedWrite: TypeAlias = PreparedPut | PreparedDelete


@dataclass(slots=True)
class GroupPlan:
    """What writes come to, one after the other.

    Attributes
    ----------
    key : int
        The last that was given.
    free_id : int
        The number for the next item without an id.
    existing : dict of str to (bytes or None)
        Items that there are in the database before, with their payloads where they were read.
    rows : dict of str to Row
        Items to be stored.
    deleted : dict of str to int
        Ids and keys of items that are in the database before and not after.
    """

    key: int
    existing: dict[str, bytes | None]
    free_id: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    loads: dict[str, ix.LoadRecord] = field(default_factory=dict)
    coordinates: int = 0
    names: set[int] = field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not (self.rows or self.deleted or self.loads)

    @property
    def replaced(self) -> list[str]:
        """Ids of the items in the database that go."""
        return [
            item_id for item_id in self.existing if item_id in self.rows or item_id in self.deleted
        ]

    @property
    def growth(self) -> int:
        """How many items more there are after it."""
        return len(self.rows) - len(self.replaced)

    def add(self, write: PreparedWrite) -> ix.WriteResult | int:
        """Take a write, and return what it does; on an error nothing of it was taken.

        Raises
        ------
        ItemExists
        """
        return self._put(write) if isinstance(write, PreparedPut) else self._delete(write.ids)

    def _put(self, put: PreparedPut) -> ix.WriteResult:
        last = {each: row for row, each in enumerate(put.ids) if each is not None}
        if put.mode == "insert":
            self._refuse_existing(put)
        updated = sum(map(self._has, last))
        given = (str(put.numbers[0]), str(put.numbers[-1])) if put.numbers else None
        result = ix.WriteResult(len(last) - updated, updated, given)
        load = None if put.progress is None else put.progress(result)
        if load is not None:
            self.loads[load.key] = load
        for item_id, row in last.items():
            payload = put.payloads[row]
            if payload is None and put.keeps_payloads:
                payload = self._payload(item_id)
            self.key += 1
            self.deleted.pop(item_id, None)
            self.rows[item_id] = Row(self.key, item_id, put.vectors[row], payload)
        self.coordinates = max(self.coordinates, put.coordinates)
        self.names.update(put.names)
        return result

    def _refuse_existing(self, put: PreparedPut) -> None:
        seen: set[str] = set()
        for row, item_id in enumerate(put.ids):
            if item_id is None:
                continue
            if item_id in seen or self._has(item_id):
                raise ix.ItemExists(item_id, put.place(row))
            seen.add(item_id)

    def _delete(self, ids: Sequence[str]) -> int:
        deleted = [item_id for item_id in dict.fromkeys(ids) if self._has(item_id)]
        for item_id in deleted:
            self.rows.pop(item_id, None)
            self.key += 1
            if item_id in self.existing:
                self.deleted[item_id] = self.key
        return len(deleted)

    def _has(self, item_id: str) -> bool:
        return item_id in self.rows or (item_id in self.existing and item_id not in self.deleted)

    def _payload(self, item_id: str) -> bytes | None:
        if item_id in self.rows:
            return self.rows[item_id].payload
        return None if item_id in self.deleted else self.existing.get(item_id)
