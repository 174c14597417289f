"""All collections of a cluster as routes call them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from gcws_search import index as ix
from gcws_search.service.cluster.collection import ClusterCollection
from gcws_search.service.cluster.committer import PreparedChoice
from gcws_search.service.cluster.contract import CollectionRow, Moment, items_of
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.names import collections_with_unused_names
from gcws_search.service.cluster.shards import HttpReplicas, ShardSet
from gcws_search.service.errors import StoreUnavailable
from gcws_search.service.keys import cluster_access, shard_authority
from gcws_search.service.messages import Message
from gcws_search.service.metrics import Metrics
from gcws_search.service.settings import Settings

_POLL_SECONDS: Final = 1.0  # how often the database is asked for changes by other routers
# How often shards are asked for the current primary until all have confirmed it.
_CONFIRM_SECONDS: Final = 0.1
_CHUNK_ROWS: Final = 4096
_SUMMED_AT_ONCE: Final = 16  # collections whose statistics are requested in parallel
# Prefix of hidden names of collections that are being filled; requests cannot use it.
_UNFINISHED: Final = ".unfinished"

_log = logging.getLogger(__name__)


class ClusterCatalog:
    """The collections of a cluster, called like `index.Catalog`; snapshots are in ``local``."""

    def __init__(
        self,
        local: ix.Catalog,
        database: Database,
        shards: ShardSet,
        metrics: Metrics,
        settings: Settings,
        pair_policy: ix.PairPolicy,
    ) -> None:
        self.local = local
        self.database = database
        self.shards = shards
        self.metrics = metrics
        self.settings = settings
        self.pair_policy = pair_policy
        self._one_snapshot = threading.Lock()
        self.snapshots, self.full, self.targets = local.snapshots, shards.full, shards.targets
        self._by_name: dict[str, ClusterCollection] = {}
        self._changing = threading.Lock()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for work, name in ((self._poll, "router-poll"), (self._free_names, "router-names"))
        ]
        self.is_store_reachable = True

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start polling shards and the database on this event loop.

        The database is not read until a shard confirms that it is the current primary.
        """
        self.shards.start(loop)
        self.database.connections.confirm = self.shards.confirm
        self._try_refresh()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        for each in self._by_name.values():
            each.close()
        self.shards.close()
        self.local.close()
        self.database.close()

    def _poll(self) -> None:
        connections = self.database.connections
        while not self._stopping.wait(
            _POLL_SECONDS if connections.is_confirmed else _CONFIRM_SECONDS
        ):
            self._try_refresh()

    def _try_refresh(self) -> None:
        try:
            self._refresh()
            self.shards.hear(_POLL_SECONDS)
        except StoreUnavailable as error:
            if not self.database.connections.is_confirmed:  # the primary may have changed
                self.database.connections.forget()
            if self.is_store_reachable:
                _log.warning("%s; searches go on", error)
            self.is_store_reachable = False
        except Exception:
            _log.exception("the list of collections could not be read")
        else:
            self.is_store_reachable = True

    def _refresh(self) -> None:
        """Read the list of collections, and the names that other routers have added.

        An entry that another thread changed since the query stays: the query may be older.
        """
        before = self._by_name
        rows = [row for row in self.database.collections() if not row.name.startswith(_UNFINISHED)]
        with self._changing:
            now = self._by_name
            changed = {n for n in before | now if now.get(n) is not before.get(n)}
            found = {row.name: self._collection_of(row) for row in rows if row.name not in changed}
            found |= {name: now[name] for name in changed & now.keys()}
            dropped = {*now.values()} - {*found.values()}
            self._by_name = found
        heads = {row.number: row.head for row in rows}
        for each in dropped:
            if each.number not in heads:  # requests continue with a former generation
                each.close()
        listed = {each.number: each for each in found.values() if each.number in heads}
        for number, each in listed.items():
            if each.names_read < heads[number]:
                with self._going_on(f"names of collection {number} could not be read"):
                    each.load_names()
        self._delete_expired(listed)

    @contextmanager
    def _going_on(self, failure: str) -> Iterator[None]:
        """Log an error of one collection and continue with the others."""
        try:
            yield
        except (ix.CollectionNotFound, ix.CollectionLoading):  # dropped or replaced since the query
            pass
        except ix.DamagedFile as error:
            _log.error("%s: %s", failure, error)

    def _delete_expired(self, collections: Mapping[int, ClusterCollection]) -> None:
        """Delete expired items, for at most one poll interval."""
        end = time.monotonic() + _POLL_SECONDS
        while due := collections.keys() & self.database.collections_due():
            for number in due:
                with self._going_on(f"what has expired of collection {number} stays"):
                    collections[number].committer.commit(PreparedChoice())  # deletes what expired
            if time.monotonic() > end or self._stopping.is_set():
                return

    def _free_names(self) -> None:
        """Free names that no item uses, at intervals."""
        while not self._stopping.wait(_POLL_SECONDS):
            if not self.is_store_reachable:
                continue
            try:
                due = {*collections_with_unused_names(self.database)}
                for each in [e for e in self._by_name.values() if e.number in due]:
                    failure = f"names of collection {each.number} could not be freed"
                    with suppress(StoreUnavailable), self._going_on(failure):
                        each.free_names(self._stopping)
            except StoreUnavailable:  # the next poll tries again
                continue
            except Exception:
                _log.exception("names without items could not be freed")

    def _collection_of(self, row: CollectionRow) -> ClusterCollection:
        known = self._by_name.get(row.name)
        if known is None or known.number != row.number:
            return ClusterCollection(row, self)
        # The list of another router may be older than this one.
        if known.row.generation >= row.generation:
            return known
        return ClusterCollection(row, self, known)

    search = staticmethod(ClusterCollection.search)
    search_batch = staticmethod(ClusterCollection.search_batch)

    def find(self, name: str) -> ClusterCollection | None:
        """Return a collection, or None; ask the database if the name is not known here.

        StoreUnavailable at once if the last query of the database failed: this runs on the event
        loop.
        """
        found = self._by_name.get(name)
        if found is None and not self.is_store_reachable:
            raise StoreUnavailable("it did not answer last")
        if found is None:
            try:
                found = self._read(name)
            except ix.CollectionNotFound:
                return None
            found.load_names()
        return found

    def get(self, name: str) -> ClusterCollection:
        found = self.find(name)
        if found is None:
            raise ix.CollectionNotFound(name)
        return found

    def list(self) -> list[ix.Summary]:
        def summary(collection: ClusterCollection) -> ix.Summary | None:
            try:
                return collection.summary()
            except StoreUnavailable as error:  # not all shards answer either
                _log.warning("collection %r could not be summed up (%s)", collection.name, error)
            except Exception:  # an error of one collection must not hide the others
                _log.exception("collection %r could not be summed up", collection.name)
            return None

        collections = [each for _, each in sorted(self._by_name.items())]
        with ThreadPoolExecutor(_SUMMED_AT_ONCE) as threads:  # wait for silent shards in parallel
            return [each for each in threads.map(summary, collections) if each is not None]

    def create(
        self, name: str, config: ix.CollectionConfig, *, admit: Callable[[int], None]
    ) -> tuple[ClusterCollection, bool]:
        ix.check_name(name)
        shards = self.shards
        if (before := self.find(name)) is None:  # create nothing that is unusable
            shards.wait(shards.ask(Message({"method": "status", "epoch": shards.epoch})))
        row, is_new = self.database.create(name, config.to_dict(), admit)
        found = self._add(row, before)
        if not is_new and found.config != config:
            raise ix.CollectionExists(name, found.config.difference(config))
        shards.wait(shards.follow(row.served, Moment(0, 0)))
        return found, is_new

    def _read(self, name: str) -> ClusterCollection:
        """Return a collection as the database has it; else CollectionNotFound."""
        before = self._by_name.get(name)
        row = self.database.find(name)
        if row is None:
            raise ix.CollectionNotFound(name)
        return self._add(row, before)

    def _add(self, row: CollectionRow, before: ClusterCollection | None) -> ClusterCollection:
        """Add a collection that was read while ``before`` had its name; return it.

        If another thread changed the entry since, the collection is read again.
        """
        with self._changing:
            if self._by_name.get(row.name) is before:
                found = self._collection_of(row)
                self._by_name = self._by_name | {row.name: found}
                return found
        return self._read(row.name)

    def renew(self, collection: ClusterCollection) -> ClusterCollection:
        """Return a collection with the current weights, which later queries of shards use."""
        found = self._read(collection.name)
        if found.number != collection.number:
            raise ix.CollectionLoading(collection.name)
        return found

    def drop(self, name: str) -> None:
        found = self.get(name)
        if not self.database.drop(found.number):
            raise self.database.not_found(name)
        self._forget(found)

    def _forget(self, collection: ClusterCollection) -> None:
        """Close a dropped collection, whatever generation of it is listed now."""
        with self._changing:
            gone = {each for each in self._by_name.values() if each.number == collection.number}
            self._by_name = {n: each for n, each in self._by_name.items() if each not in gone}
        for each in gone | {collection}:
            each.close()

    # Snapshots: one-node snapshots, made through a collection in the local folder

    def snapshot(self, name: str) -> ix.Snapshot:
        """Write all items of a collection to a snapshot.

        CollectionBusy if another snapshot is being made or restored here.
        """
        collection = self.get(name)
        with self._alone(name):
            self._copy_to_node(collection)
            return self.local.snapshot(name)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Reserve the local collection of this name, and drop it at the end."""
        if not self._one_snapshot.acquire(blocking=False):
            raise ix.CollectionBusy(name, "a snapshot is being made or restored")
        with ExitStack() as stack:
            stack.callback(self._one_snapshot.release)
            self._discard(name)
            stack.callback(self._discard, name)
            yield

    def _discard(self, name: str) -> None:
        with suppress(ix.CollectionNotFound):
            self.local.drop(name)

    def _copy_to_node(self, collection: ClusterCollection) -> None:
        """Copy a collection of the cluster to the local folder."""
        number = collection.number
        copy, _ = self.local.create(collection.name, collection.config)
        if (weights := collection.learned_weights()) is not None:
            copy.use_weights(weights)
        with self.database.one_moment(number) as database:
            named = database.names(number)
            copy.store.replace_names(named)
            copy.names.load(named)
            copy.replace_metadata(database.metadata(number))
            copy.replace_next_id(database.free_id(number))
            for load in database.loads(number, 0):
                copy.save_load(load, 0)
            for backend in database.backends(number):
                copy.store.add_backend(backend)
            for rows in database.read_all(number, _CHUNK_ROWS):
                items = items_of(rows, copy.space)
                copy.commit(copy.prepare(items, versions=[row.version for row in rows]))

    def restore(
        self, name: str, snapshot: str, *, replace: bool, admit: Callable[[int], None]
    ) -> ClusterCollection:
        self.local.snapshots.get(name, snapshot)
        is_new = self.database.find(name) is None
        if not (is_new or replace):
            raise ix.CollectionExists(name, "already (replace is false)")
        key = f"{self.database.identity}/restore/{name}"
        with self._alone(name), self.database.connections.lock(key) as alone:
            if alone is None:
                raise ix.CollectionBusy(name, "a snapshot is being restored by another router")
            read = self.local.restore(name, snapshot, admit=admit)
            return self._fill(name, read, admit if is_new else None, replace=replace)

    def _fill(
        self,
        name: str,
        read: ix.StoredCollection,
        admit: Callable[[int], None] | None,  # None if one is replaced
        *,
        replace: bool,
    ) -> ClusterCollection:
        """Copy a local collection to the cluster under a hidden name; rename it when complete.

        The caller holds the lock of the name.
        """
        database = self.database
        hidden = f"{_UNFINISHED}.{name}"
        if (rest := database.find(hidden)) is not None:  # left by a router that stopped
            database.drop(rest.number)
        row, _ = database.create(hidden, read.config.to_dict(), admit, read.memory.next_id)
        weights = read.space.weights
        if weights is not None and weights.version:
            row = database.add_generation(row, read.config.to_dict(), weights.to_text())
            database.use_generation(row, lambda _: None, 0)
        filled = ClusterCollection(row, self)
        try:
            _copy_to_cluster(read, filled)
            before = database.find(name) if replace else None  # created during the copy
            database.rename(row.number, name, None if before is None else before.number)
        except BaseException:
            rest = database.find(hidden)
            if rest is not None and rest.number == row.number:  # else it has its final name
                database.drop(row.number)
            raise
        finally:
            filled.close()
        with self._changing:
            former = self._by_name.get(name)
        if former is not None and former.number != row.number:
            self._forget(former)
        found = self.get(name)
        found.load_names()
        moment = database.last_moment(row.number)
        self.shards.wait(self.shards.follow(row.served, moment))
        for backend in database.backends(row.number):
            found.wait_for_backend(backend.name)
        return found


def _copy_to_cluster(read: ix.StoredCollection, filled: ClusterCollection) -> None:
    """Copy a local collection's names, metadata, loads, backends and items to the cluster."""
    database, number = filled.database, filled.number
    named = read.names.listed()
    if named:
        database.replace_names(number, named)
        filled.load_names()
    if read.metadata is not None:
        database.replace_metadata(number, read.metadata)
    for load in read.loads(0):
        database.save_load(number, load, 0)
    for backend in read.store.backends():
        database.add_backend(number, backend)
    for rows in read.store.chunks():
        vectors = read.space.from_blobs(rows.vectors)
        items = ix.ItemBatch([*rows.ids], vectors, [*rows.payloads], expires=rows.expires)
        filled.committer.commit(filled.prepare(items, "insert", versions=rows.versions))


# Opening


def open_router(
    settings: Settings,
    local: ix.Catalog,  # local snapshots
    metrics: Metrics,
    replicas: HttpReplicas | None = None,  # None: the replicas that the database lists
    policies: ix.Policies = ix.POLICIES,
) -> ClusterCatalog:
    """Join a cluster as a router.

    ClusterMismatch if the database belongs to another cluster, or has fewer buckets than there are
    shards; ValueError without a database or a key.
    """
    database, key = _open_database(settings)
    try:
        if replicas is None:
            replicas = HttpReplicas(
                database, settings.cell, settings.shards, key, authority=shard_authority(settings)
            )
        shards = ShardSet(replicas, settings.shard_seconds, database.connections.memory)
        metrics.register(shards)
        return ClusterCatalog(local, database, shards, metrics, settings, policies.pairs)
    except BaseException:
        database.close()
        raise


def require_cluster(settings: Settings) -> None:
    """Raise the errors of `open_router` before the server starts."""
    _open_database(settings)[0].close()


def _open_database(settings: Settings) -> tuple[Database, str]:
    """Return the database of a cluster, and the key of the cluster."""
    url, key = cluster_access(settings)
    shard_authority(settings)
    database = Database.open(url, buckets=settings.buckets, key=key, base=settings.base)
    try:
        database.require_shards(settings.cell, settings.shards)
    except BaseException:
        database.close()
        raise
    return database, key
