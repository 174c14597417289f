"""Snapshots of a cluster's collections are those of one node: the way there and back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from gcws_search import index as ix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gcws_search.service.cluster.router.catalog import ClusterCatalog
    from gcws_search.service.cluster.router.collection import ClusterCollection

_CHUNK_ROWS: Final = 4096


class NodeFiles:
    """Collections of this machine's own folder, for as long as a snapshot is made or read.

    Parameters
    ----------
    local
        Of the folder that has the snapshots.
    """

    def __init__(self, local: ix.Catalog) -> None:
        self.local = local
        self._one = threading.Lock()

    def snapshot(self, collection: ClusterCollection) -> ix.Snapshot:
        """Write all that the database has of a collection to a snapshot.

        Raises
        ------
        CollectionBusy
            Another snapshot is being made or restored here.
        StoreUnavailable, DiskFull
        """
        with self._alone(collection.name), self._filled(collection):
            return self.local.snapshot(collection.name)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        if not self._one.acquire(blocking=False):
            raise ix.CollectionBusy(name, "a snapshot is being made or restored")
        try:
            yield
        finally:
            self._one.release()

    @contextmanager
    def _filled(self, collection: ClusterCollection) -> Iterator[None]:
        """Have a collection of this folder that holds the same items."""
        name, database = collection.name, collection.context.database
        self._discard(name)
        copy, _ = self.local.create(name, collection.config)
        try:
            _copy_names(copy, database.names(collection.number))
            copy.replace_metadata(database.metadata(collection.number))
            for load in database.loads(collection.number, 0):
                copy.save_load(load, 0)
            for backend in database.backends(collection.number):
                copy.store.add_backend(ix.BackendRecord(*backend))
            with closing(database.read_all(collection.number, _CHUNK_ROWS)) as reading:
                for rows in reading:
                    vectors = copy.space.from_blobs([row.vector for row in rows])
                    ids, payloads = [row.id for row in rows], [row.payload for row in rows]
                    copy.put(ix.ItemBatch(ids, vectors, payloads), "insert")
            yield
        finally:
            self._discard(name)

    def _discard(self, name: str) -> None:
        with suppress(ix.CollectionNotFound):
            self.local.drop(name)

    def restore(
        self,
        catalog: ClusterCatalog,
        name: str,
        snapshot: str,
        *,
        replace: bool,
        admit: Callable[[int], None],
    ) -> ClusterCollection:
        """Fill a collection of the cluster from a snapshot; it appears when it is whole.

        Raises
        ------
        SnapshotNotFound, CollectionExists, CollectionBusy, DamagedSnapshot
        StoreUnavailable, DiskFull
        """
        self.local.snapshots.get(name, snapshot)
        before = catalog.find(name)
        if before is not None and not replace:
            raise ix.CollectionExists(name, "already, and is not to be replaced")
        with self._alone(name):
            self._discard(name)
            read = self.local.restore(name, snapshot, admit=admit)
            try:
                return catalog.fill(name, read, before, admit)
            finally:
                self._discard(name)


def _copy_names(copy: ix.StoredCollection, names: Sequence[tuple[int, str]]) -> None:
    """Give a collection without items the names of coordinates."""
    named = [ix.NamedCoordinate(*each) for each in names]
    copy.store.replace_names(named)
    copy.names.load(named)
