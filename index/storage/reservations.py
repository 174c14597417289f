"""Mutual exclusion by name: operations that must not overlap on one collection or snapshot.

Operations of different names never wait for one another. A second operation on a reserved name
gets CollectionBusy, with two exceptions: snapshots of one collection run together, and a second
create waits for the first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from gcws_search.index.contracts.errors import CollectionBusy

Name = tuple[str, ...]
"""A collection's name, or a collection's and a snapshot's."""


class Operation(Enum):
    """What a name is reserved for; the value tells the refused caller."""

    CREATE = "it is being created"
    LOAD = "it is being loaded"
    DROP = "it is being dropped"
    RESTORE = "a snapshot is being restored to it"
    SNAPSHOT = "a snapshot of it is being made"
    RECEIVE = "a snapshot of this name is being written"


class Reservations:
    """The names that are reserved now, each for one operation.

    - Several may make snapshots of one collection at once.
    - Who creates a collection that is being created waits for that.
    - Every other pair excludes each other.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reserved: dict[Name, tuple[Operation, int]] = {}

    @contextmanager
    def reserve(self, operation: Operation, *name: str) -> Iterator[None]:
        """Reserve a name for the time of a block.

        Raises CollectionBusy (it is reserved, and the operations exclude each other).
        """
        self.take(operation, *name)
        try:
            yield
        finally:
            self.release(*name)

    def take(self, operation: Operation, *name: str) -> None:
        """Reserve a name until `release`.

        Raises CollectionBusy (it is reserved, and the operations exclude each other).
        """
        with self._changed:
            if operation is Operation.CREATE:
                self._changed.wait_for(lambda: self._under_way(name) is not Operation.CREATE)
            under_way, count = self._reserved.get(name, (operation, 0))
            if count and not (operation is under_way is Operation.SNAPSHOT):
                raise CollectionBusy(name[0], under_way.value)
            self._reserved[name] = operation, count + 1

    def _under_way(self, name: Name) -> Operation | None:
        operation, _ = self._reserved.get(name, (None, 0))
        return operation

    def release(self, *name: str) -> None:
        """Give a name free that `take` has reserved."""
        with self._changed:
            operation, count = self._reserved.pop(name)
            if count > 1:
                self._reserved[name] = operation, count - 1
            self._changed.notify_all()

    def wait_until_free(self) -> None:
        """Return once no name is reserved; the caller sees to it that this comes."""
        with self._changed:
            self._changed.wait_for(lambda: not self._reserved)
