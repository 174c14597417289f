"""The collections of a data directory, and which operations on one name exclude each other.

A name is reserved before anything is written for it (`Reservations`). So creating, dropping,
restoring and snapshotting one collection never overlap. Each operation writes its own file.
Queries, writes and operations on other names continue meanwhile.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from gcws_search.index.backends import POLICIES, Policies
from gcws_search.index.collection.check import findings_of
from gcws_search.index.collection.describe import Summary
from gcws_search.index.collection.expiry import Expirations
from gcws_search.index.collection.reclaim import move_log
from gcws_search.index.collection.recovery import config_of
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.errors import (
    CollectionBusy,
    CollectionExists,
    CollectionLoading,
    CollectionNotFound,
    DamagedFile,
    DamagedSnapshot,
    DirectoryLocked,
    DiskFull,
    IncompatibleFile,
    OutOfDescriptors,
    StorageFailed,
    StoreError,
)
from gcws_search.index.contracts.parameters import CollectionConfig
from gcws_search.index.hashing.gcws import ALGORITHM_VERSION
from gcws_search.index.memory import give_memory_back
from gcws_search.index.storage.connection import Durability, storage_errors
from gcws_search.index.storage.data_directory import (
    COPYING,
    CREATING,
    DROPPING,
    LOADING,
    RESTORING,
    DataDirectory,
    Reservations,
    check_name,
    discard,
    sync_file,
)
from gcws_search.index.storage.schema import Identity, new_stamp
from gcws_search.index.storage.snapshots import SNAPSHOTS, Snapshot, Snapshots
from gcws_search.index.storage.store import Store
from gcws_search.index.threads import Searches, StoppedError

Progress = Callable[[str, int, int], None]
_Loaded = StoredCollection | StoreError
Admit = Callable[[int], None]
"""Called with the number of other collections; raises to refuse one more."""

_PASSING: Final = (DiskFull, OutOfDescriptors, StorageFailed)
"""Why a file cannot be opened now, and perhaps can be soon."""

_log = logging.getLogger(__name__)


class _Closing(StoppedError):
    """Ends a load because the catalog is closing."""


class Catalog:
    """The collections of one directory, owned by this process while open.

    Create it by `open`; then `load` reads the collections.
    """

    def __init__(
        self,
        directory: DataDirectory,
        durability: Durability,
        threads: int | None,
        names: Iterable[str],
        policies: Policies,
        expirations: Callable[[], Expirations],
    ) -> None:
        self._directory = directory
        self._durability: Durability = durability
        self._threads = threads
        self._policies = policies
        self._expirations = expirations
        self._searches = Searches()
        self._paused = threading.Event()
        # Look-ups take no lock; only the holder of a reserved name changes its entry.
        self._names = Reservations()
        self._admitting = threading.Lock()
        self._being_created: set[str] = set()
        self._loading = threading.Lock()
        self.closing = False
        self._started = False
        self._retrying = threading.Lock()
        self.snapshots = Snapshots(directory.path / SNAPSHOTS)
        self._collections: dict[str, _Loaded | None] = dict.fromkeys(names)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        durability: Durability = "full",
        threads: int | None = None,
        only: Iterable[str] | None = None,
        policies: Policies = POLICIES,
        expirations: Callable[[], Expirations] = Expirations,
    ) -> Catalog:
        """Lock a directory for this process; it is created if it does not exist.

        durability: "full": a write is on disk when it returns; otherwise it survives only a
            crash of the process.
        threads: for kernels; None means all that the process may use.
        only: names of the collections that `load` reads; None for all. `read` reads the others.
        expirations: see `MemoryCollection`.
        Raises DirectoryLocked (another process, named in the error, has locked it).
        """
        owned = DataDirectory(directory)
        try:
            names = owned.names() if only is None else only
            return cls(owned, durability, threads, names, policies, expirations)
        except BaseException:
            owned.close()
            raise

    def pause_optimizing(self) -> None:
        """Pause index optimization; running jobs finish."""
        self._paused.set()

    def resume_optimizing(self) -> None:
        """Resume index optimization, and start it where it is due."""
        self._paused.clear()
        for collection in self._open_collections():
            collection.writer.run_between_changes(collection.memory.resume_copies)
            collection.optimizer.start()

    def load(self, progress: Progress | None = None) -> None:
        """Read all collections. Errors of single files are kept in `failures`; the others load.

        A second call reads only the files that the operating system had refused to open.

        progress: called with a collection's name, the items loaded so far, and the items of all
            files; an item counts again for each comparison backend it is added to. If this raises
            StoppedError, the load ends.
        """
        with self._loading:
            if self._started:
                self._load_refused()
                return
            stores = self._open_files()
            total = sum(count for _, count in stores.values())
            done = 0

            def report(name: str, count: int) -> None:
                nonlocal done
                done += count
                if progress is not None:
                    progress(name, done, total)
                if self.closing:
                    raise _Closing

            try:
                while stores and not self.closing:
                    name, (store, _) = stores.popitem()
                    self._collections[name] = self._load_store(store, report)
            except _Closing:
                pass
            finally:
                for store, _ in stores.values():
                    store.close()
                self._started = True
                give_memory_back()

    def _load_refused(self) -> None:
        """Load the collections whose files the operating system had refused to open."""
        for name, found in self._collections.copy().items():
            if isinstance(found, _PASSING) and not self.closing:
                with (
                    suppress(CollectionBusy, CollectionNotFound, StoreError),
                    self._names.reserve(LOADING, name),
                ):
                    if self._collections.get(name) is found:
                        self._collections[name] = None
                        self._reload(name)

    def _open_files(self) -> dict[str, tuple[Store, int]]:
        """Open the files that are not loaded; return stores and row counts, last name first."""
        stores: dict[str, tuple[Store, int]] = {}
        found = self._collections.copy()
        for name in sorted((name for name in found if found[name] is None), reverse=True):
            try:
                store = self._open_store(name)
            except StoreError as error:
                self._collections[name] = error
                continue
            except Exception as error:  # e.g. SQLite quoting text of a damaged file
                _log.exception("collection %r could not be opened", name)
                self._collections[name] = DamagedFile(name, f"it cannot be opened ({error!r})")
                continue
            try:
                stores[name] = store, len(store) * (1 + len(store.backends()))
            except StoreError as error:
                store.close()
                self._collections[name] = error
        return stores

    def _open_store(self, name: str, path: Path | None = None) -> Store:
        path = self._directory.file(name) if path is None else path
        return Store(path, name, durability=self._durability, owned=self._directory.owned)

    def _load_store(
        self, store: Store, report: Callable[[str, int], None], *, begins: bool = True
    ) -> _Loaded:
        try:
            collection = self._holding(store, config_of(store.identity, store.name))
            collection.read(lambda count: report(store.name, count))
            if begins:
                collection.begin()
        except BaseException as error:
            store.close()
            if isinstance(error, StoreError):
                return error
            if isinstance(error, StoppedError) or not isinstance(error, Exception):
                raise
            # No error of one collection may keep the others from loading.
            _log.exception("collection %r could not be loaded", store.name)
            return DamagedFile(store.name, f"it could not be loaded ({error!r})")
        return collection

    def _holding(self, store: Store, config: CollectionConfig) -> StoredCollection:
        return StoredCollection(
            store,
            config,
            threads=self._threads,
            policies=self._policies,
            searches=self._searches,
            paused=self._paused,
            expirations=self._expirations,
        )

    def __len__(self) -> int:
        """Return the number of collections, including those that cannot be used."""
        return len(self._collections)

    def __contains__(self, name: str) -> bool:
        """Whether the collection exists, even if it is damaged."""
        return name in self._collections

    @property
    def free_bytes(self) -> int:
        """Free bytes on the disk that has the files."""
        return shutil.disk_usage(self._directory.path).free

    @property
    def failures(self) -> dict[str, StoreError]:
        """The error of each collection whose file cannot be used, by name."""
        found = self._collections.copy().items()
        return {name: why for name, why in found if isinstance(why, StoreError)}

    def list(self) -> list[Summary]:
        """Return the usable collections by name; one that raises an error is omitted."""
        summaries = []
        for collection in self._open_collections():
            try:
                summaries.append(collection.summary())
            except Exception:  # an error of one must not hide the others
                _log.exception("collection %r could not be summed up", collection.name)
        return summaries

    def _open_collections(self) -> Iterator[StoredCollection]:
        found = sorted(self._collections.copy().items())
        return (each for _, each in found if isinstance(each, StoredCollection))

    def create(
        self, name: str, config: CollectionConfig, *, admit: Admit | None = None
    ) -> tuple[StoredCollection, bool]:
        """Return the collection with this name, and whether this call created it.

        If several calls create one name at once, one creates it and the others wait. While a
        snapshot of the collection is made, or one is restored over it, the collection is returned.

        admit: called for a new collection; may raise to refuse it.
        Raises InvalidParameter (invalid name), CollectionExists (with another configuration),
            CollectionBusy (it is being dropped, or restored where none existed);
            CollectionLoading, DamagedFile, IncompatibleFile (it exists but cannot be used);
            DiskFull, OutOfDescriptors, StorageFailed (no collection was created).
        """
        check_name(name)
        # Also while other collections load.
        if name in self._collections:
            return self._same(name, config), False
        with self._names.reserve(CREATING, name):
            self._require_open(name)
            if name in self._collections:
                return self._same(name, config), False
            with self._creating(name, admit):
                collection = self._create(name, config)
                self._collections[name] = collection
                return collection, True

    def _require_open(self, name: str) -> None:
        if self._directory.process != os.getpid():
            raise DirectoryLocked.before_fork(self._directory.path, self._directory.process)
        if self.closing:
            raise CollectionNotFound(name)

    @contextmanager
    def _creating(self, name: str, admit: Admit | None) -> Iterator[None]:
        """Count a new name as a collection while its file is written."""
        with self._admitting:
            if admit is not None and name not in self._collections:
                admit(len({*self._collections.copy(), *self._being_created}))
            self._being_created.add(name)
        try:
            yield
        finally:
            with self._admitting:
                self._being_created.remove(name)

    def _same(self, name: str, config: CollectionConfig) -> StoredCollection:
        try:
            found = self.get(name)
        except CollectionNotFound:  # it was dropped a moment ago
            raise CollectionBusy(name, DROPPING) from None
        if found.config != config:
            raise CollectionExists(name, found.config.difference(config))
        return found

    def _create(self, name: str, config: CollectionConfig) -> StoredCollection:
        unfinished = self._directory.unfinished_path(name)
        is_written = False
        try:
            with storage_errors(name):
                identity = Identity(config.to_dict(), ALGORITHM_VERSION)
                Store.create(unfinished, name, identity)
                is_written = True
                self._directory.publish(unfinished, name)
                store = self._open_store(name)
            try:
                return self._holding(store, config)
            except BaseException:
                store.close()
                raise
        except BaseException:
            if is_written and not unfinished.exists():  # the file has its final name already
                with suppress(StoreError):
                    self._directory.remove(name)
            discard(unfinished)
            raise

    def get(self, name: str) -> StoredCollection:
        """Return a collection.

        Raises CollectionNotFound, CollectionLoading, DamagedFile, IncompatibleFile; DiskFull,
            OutOfDescriptors, StorageFailed (its file could not be opened; a thread is trying
            again).
        """
        try:
            found = self._collections[name]
        except KeyError:
            raise CollectionNotFound(name) from None
        if found is None:
            raise CollectionLoading(name)
        if isinstance(found, StoreError):
            if isinstance(found, _PASSING):
                self._retry_in_background()
            raise found.with_traceback(None)
        return found

    def read(self, name: str) -> StoredCollection | None:
        """Return a collection, reading its file now if necessary; None if there is no file.

        Raises InvalidParameter (invalid name), CollectionBusy, CollectionLoading; DamagedFile,
            IncompatibleFile, DiskFull, OutOfDescriptors, StorageFailed (the next call tries again).
        """
        check_name(name)
        with self._names.reserve(LOADING, name):
            if name in self._collections:
                return self.get(name)
            if not self._directory.has(name):
                return None
            try:
                return self._reload(name)
            except StoreError:
                self._collections.pop(name, None)
                raise

    def release(self, name: str) -> None:
        """Close a collection that is no longer used here; its file stays."""
        found = self._collections.pop(name, None)
        if isinstance(found, StoredCollection):
            found.close()

    def _retry_in_background(self) -> None:
        if self._started and self._retrying.acquire(blocking=False):
            threading.Thread(target=self._retry, name="loader", daemon=True).start()

    def _retry(self) -> None:
        try:
            self.load()
        finally:
            self._retrying.release()

    def drop(self, name: str) -> None:
        """Remove a collection and its file, even if it is damaged.

        Look-ups fail as soon as this starts. Pending writes and backend builds end with
        CollectionNotFound.

        Raises CollectionNotFound, CollectionLoading, CollectionBusy (it is being created or
            dropped, or a snapshot of it is being made or restored), DamagedFile (the entry at the
            path of its file cannot be removed); DiskFull, OutOfDescriptors, StorageFailed (the
            collection is unchanged).
        """
        with self._names.reserve(DROPPING, name):
            self._require_open(name)
            if name not in self._collections:
                raise CollectionNotFound(name)
            found = self._collections[name]
            if found is None:
                raise CollectionLoading(name)
            with storage_errors(name):
                is_folder = self._directory.file(name).is_dir()
            if is_folder:
                raise DamagedFile(name, "a folder has its file name")
            del self._collections[name]
            try:
                if isinstance(found, StoredCollection):
                    found.close(dropped=True)
                self._directory.remove(name)
            except BaseException:
                if self._directory.file(name).exists():
                    self._return_to(name, found)
                raise

    def snapshot(self, name: str, snapshot: str | None = None) -> Snapshot:
        """Make a snapshot of a collection as of one moment.

        Other calls may read, write, attach backends or make another snapshot meanwhile.

        snapshot: its name; None uses the current time.
        Raises SnapshotExists, DiskFull, InvalidParameter (the name is invalid), CollectionBusy (the
            collection is being created, dropped or restored, or another snapshot with this name is
            being written), CollectionNotFound, CollectionLoading, DamagedFile, IncompatibleFile.
        """
        with self._names.reserve(COPYING, name):
            self._require_open(name)
            self._directory.require_owned(name)
            return self.snapshots.create(name, snapshot, self.get(name).copy_to)

    def restore(
        self, name: str, snapshot: str, *, replace: bool = False, admit: Admit | None = None
    ) -> StoredCollection:
        """Create a collection from a snapshot, and return it once it is loaded.

        Until then an existing collection is read and written. Then its pending writes, backend
        builds and reads of its file end with CollectionLoading; its searches continue.

        replace: whether to replace an existing collection of this name, even a damaged one.
        admit: called for a new collection; may raise to refuse it.
        Raises SnapshotNotFound, CollectionExists (it exists, and ``replace`` is False),
            CollectionBusy (it is being created, dropped or restored, or a snapshot of it is being
            made), CollectionLoading (the catalog still loads); DamagedSnapshot, DirectoryLocked
            (nothing was changed); DiskFull, OutOfDescriptors, StorageFailed (it is either
            unchanged or completely restored).
        """
        self.snapshots.get(name, snapshot)
        with self._names.reserve(RESTORING, name):
            self._require_open(name)
            before = self._collections.get(name)
            if name in self._collections and before is None:
                raise CollectionLoading(name)
            if before is not None and not replace:
                raise CollectionExists(name, "already (replace is false)")
            if not self._started:
                raise CollectionLoading(name)
            with self._creating(name, admit):
                return self._restore(name, snapshot, before)

    def _restore(self, name: str, snapshot: str, before: _Loaded | None) -> StoredCollection:
        """Replace a collection's file by that of a snapshot, once that is checked and read."""

        def write(path: Path) -> None:
            self.snapshots.copy(name, snapshot, path)
            findings = findings_of(path, name)
            if findings:
                raise DamagedSnapshot(name, snapshot, "; ".join(findings[:3]))

        try:
            return self._install(name, before, write)
        except (DamagedFile, IncompatibleFile) as error:
            raise DamagedSnapshot(name, snapshot, str(error)) from error

    def receive(self, name: str, pieces: Iterable[bytes]) -> StoredCollection:
        """Create a collection from the bytes of a file, and return it once it is loaded.

        pieces: the bytes of the file; if this iterable raises, nothing is created.
        Raises CollectionExists, CollectionBusy (it is being created or dropped), CollectionLoading
            (the catalog is still loading), DamagedFile, IncompatibleFile, InvalidParameter (invalid
            name); DiskFull, OutOfDescriptors, StorageFailed (no collection was created).
        """
        check_name(name)

        def write(path: Path) -> None:
            with storage_errors(name):
                file = path.open("xb")
            with file:
                for piece in pieces:
                    with storage_errors(name):
                        file.write(piece)
            with storage_errors(name):
                sync_file(path)

        with self._names.reserve(CREATING, name):
            self._require_open(name)
            if not self._started:
                raise CollectionLoading(name)
            if name in self._collections:
                raise CollectionExists(name, "already (replace is false)")
            with self._creating(name, None):
                return self._install(name, None, write)

    def _install(
        self, name: str, before: _Loaded | None, write: Callable[[Path], None]
    ) -> StoredCollection:
        """Replace a collection's file by a new one, once that is written and read."""
        unfinished = self._directory.unfinished_path(name)
        try:
            write(unfinished)
            self._require_open(name)
            installed = self._read_file(unfinished, name)
            try:
                self._replace(name, before, installed, unfinished)
            except BaseException:
                installed.close(dropped=True)
                raise
            return installed
        finally:
            discard(unfinished)

    def _read_file(self, path: Path, name: str) -> StoredCollection:
        """Return the collection in a copy of a snapshot, which has no final name yet."""
        store = self._open_store(name, path)
        try:
            store.write_meta("stamp", new_stamp())  # its items are not those of before
        except BaseException:
            store.close()
            raise
        try:
            found = self._load_store(store, self._unless_closing, begins=False)
        except _Closing:
            raise CollectionNotFound(name) from None
        if isinstance(found, StoreError):
            raise found
        return found

    def _replace(
        self, name: str, before: _Loaded | None, restored: StoredCollection, unfinished: Path
    ) -> None:
        """Publish a loaded collection under a name; until then readers see the old one."""
        is_published = False

        def publish() -> None:
            nonlocal is_published
            self._directory.publish(unfinished, name)
            is_published = True

        try:
            if isinstance(before, StoredCollection):
                before.close(replaced=True)
                with suppress(DamagedFile):  # it is replaced in any case
                    move_log(self._directory.file(name), name, self._policies.busy_seconds)
            restored.store.move(self._directory.file(name), publish)
        except BaseException:
            if is_published and before is not None:
                with suppress(StoreError, CollectionNotFound):  # `get` reports it
                    self._reload(name)
            else:
                self._return_to(name, before)
            raise
        self._collections[name] = restored
        restored.begin()

    def _return_to(self, name: str, before: _Loaded | None) -> None:
        """Restore the entry of a name after a failed drop or restore."""
        if before is None:
            self._collections.pop(name, None)
            with suppress(StoreError):
                self._directory.remove(name)
        elif isinstance(before, StoreError):
            self._collections[name] = before
        else:
            with suppress(StoreError, CollectionNotFound):  # `get` reports it
                self._reload(name)

    def _reload(self, name: str) -> StoredCollection:
        """Load the file that has this name now."""
        try:
            store = self._open_store(name)
            self._collections[name] = self._load_store(store, self._unless_closing)
        except StoreError as error:
            self._collections[name] = error
        except _Closing:
            raise CollectionNotFound(name) from None
        except BaseException as error:
            self._collections[name] = DamagedFile(name, f"it could not be loaded ({error!r})")
            raise
        return self.get(name)

    def _unless_closing(self, _name: str, _count: int) -> None:
        if self.closing:
            raise _Closing

    def close(self) -> None:
        """Finish running operations, close all files and unlock the directory.

        Loads and restores end early. Later calls raise CollectionNotFound. In a fork of the
        process that opened the catalog, nothing is running and nothing is closed.
        """
        self.closing = True
        if self._directory.process != os.getpid():
            return
        with self._loading:
            self._names.wait_until_free()
            self.snapshots.close()
            for collection in self._open_collections():
                collection.close()
            self._collections.clear()
            self._directory.close()
