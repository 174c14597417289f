"""All collections of a data directory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gcws_search.index.catalog.check import findings_of
from gcws_search.index.catalog.collection import Collection
from gcws_search.index.catalog.describe import Summary
from gcws_search.index.contracts.errors import (
    CollectionExists,
    CollectionLoading,
    CollectionNotFound,
    DamagedFile,
    DamagedSnapshot,
    StoreError,
)
from gcws_search.index.contracts.parameters import CollectionConfig
from gcws_search.index.hashing.gcws import ALGORITHM_VERSION
from gcws_search.index.persistence.reclaim import move_log
from gcws_search.index.persistence.recovery import config_of
from gcws_search.index.storage.connection import Durability
from gcws_search.index.storage.data_directory import (
    DataDirectory,
    check_name,
    no_space_is_disk_full,
)
from gcws_search.index.storage.schema import Identity
from gcws_search.index.storage.snapshots import SNAPSHOTS, Snapshot, Snapshots
from gcws_search.index.storage.store import Store

Progress = Callable[[str, int, int], None]

_log = logging.getLogger(__name__)


class _Closing(Exception):
    """The way out of a load that is no longer wanted."""


class Catalog:
    """The collections of one directory, owned by this process while open.

    Made by `open`; `load` then reads what is there.
    """

    def __init__(
        self, directory: DataDirectory, durability: Durability, threads: int | None
    ) -> None:
        self._directory = directory
        self._durability: Durability = durability
        self._threads = threads
        # Finding a collection takes no lock.
        self._changing = threading.Lock()
        self._loading = threading.Lock()
        self._closing = False
        self._started = False
        self.snapshots = Snapshots(directory.path / SNAPSHOTS)
        self._found: dict[str, Collection | StoreError | None] = dict.fromkeys(directory.names())

    @classmethod
    def open(
        cls, directory: Path, *, durability: Durability = "full", threads: int | None = None
    ) -> Catalog:
        """Take possession of a directory, made when it does not exist.

        Parameters
        ----------
        directory : Path
        durability : {"full", "normal"}
            Whether a write is on the disk when it returns, or only safe from a crash of the
            process.
        threads : int or None
            Threads for kernels; None takes as many as the process may use.

        Raises
        ------
        DirectoryLocked
            Another process, which it names, has it.
        """
        return cls(DataDirectory(directory), durability, threads)

    def load(self, progress: Progress | None = None) -> None:
        """Read all collections; one whose file fails is kept in `failures`, the others load.

        Parameters
        ----------
        progress : callable
            Is told a collection's name, the items loaded so far, and the items of all files; an
            item counts once more for each comparison backend it is taken into.
        """
        with self._loading:
            stores = self._opened()
            total = sum(count for _, count in stores.values())
            done = 0

            def report(name: str, count: int) -> None:
                nonlocal done
                done += count
                if progress is not None:
                    progress(name, done, total)
                if self._closing:
                    raise _Closing

            try:
                while stores and not self._closing:
                    name, (store, _) = stores.popitem()
                    self._found[name] = self._loaded(store, report)
            except _Closing:
                pass
            finally:
                for store, _ in stores.values():
                    store.close()
                self._started = True

    def _opened(self) -> dict[str, tuple[Store, int]]:
        """Open the files not yet loaded: stores and their numbers of rows, the last name first."""
        stores: dict[str, tuple[Store, int]] = {}
        for name, found in sorted(self._found.copy().items(), reverse=True):
            if found is not None:
                continue
            try:
                store = Store(self._directory.file(name), name, durability=self._durability)
            except StoreError as error:
                self._found[name] = error
                continue
            except UnicodeDecodeError as error:  # what SQLite quotes of a damaged file
                self._found[name] = DamagedFile(name, f"it cannot be opened ({error})")
                continue
            try:
                stores[name] = store, len(store) * (1 + len(store.backends()))
            except StoreError as error:
                store.close()
                self._found[name] = error
        return stores

    def _loaded(self, store: Store, report: Callable[[str, int], None]) -> Collection | StoreError:
        try:
            collection = Collection(
                store, config_of(store.identity, store.name), threads=self._threads
            )
            collection.load(lambda count: report(store.name, count))
        except BaseException as error:
            store.close()
            if isinstance(error, StoreError):
                return error
            if isinstance(error, _Closing) or not isinstance(error, Exception):
                raise
            # Whatever else is wrong with one collection, the others are to be had.
            _log.exception("collection %r could not be loaded", store.name)
            return DamagedFile(store.name, f"it could not be loaded ({error!r})")
        return collection

    def __len__(self) -> int:
        """Return the number of collections, those that cannot be used included."""
        return len(self._found)

    def __contains__(self, name: str) -> bool:
        """Whether there is such a collection, be it damaged."""
        return name in self._found

    @property
    def failures(self) -> dict[str, StoreError]:
        """Why some files cannot be used, by collection."""
        return {
            name: found
            for name, found in self._found.copy().items()
            if isinstance(found, StoreError)
        }

    def list(self) -> list[Summary]:
        """Return the collections that can be used, by name."""
        found = sorted(self._found.copy().items())
        return [_summary(entry) for _, entry in found if isinstance(entry, Collection)]

    def create(self, name: str, config: CollectionConfig) -> tuple[Collection, bool]:
        """Return the collection of this name, and whether it was made just now.

        Raises
        ------
        InvalidParameter
            The name is none.
        CollectionExists
            With another configuration.
        CollectionLoading, DamagedFile, IncompatibleFile
            It exists, and cannot be used.
        DiskFull
        """
        check_name(name)
        if name in self._found:  # also while others load
            return self._same(name, config), False
        with self._changing:
            if name in self._found:
                return self._same(name, config), False
            if self._closing:
                raise CollectionNotFound(name)
            collection = self._create(name, config)
            self._found[name] = collection
            return collection, True

    def _same(self, name: str, config: CollectionConfig) -> Collection:
        found = self.get(name)
        if found.config != config:
            raise CollectionExists(name)
        return found

    def _create(self, name: str, config: CollectionConfig) -> Collection:
        try:
            with no_space_is_disk_full(name):
                identity = Identity(config.to_dict(), ALGORITHM_VERSION)
                Store.create(self._directory.unfinished(name), name, identity)
                self._directory.publish(name)
        except BaseException:
            self._directory.discard(name)
            raise
        store = Store(self._directory.file(name), name, durability=self._durability)
        return Collection(store, config, threads=self._threads)

    def get(self, name: str) -> Collection:
        """Return a collection.

        Raises
        ------
        CollectionNotFound, CollectionLoading, DamagedFile, IncompatibleFile
        """
        try:
            found = self._found[name]
        except KeyError:
            raise CollectionNotFound(name) from None
        if found is None:
            raise CollectionLoading(name)
        if isinstance(found, StoreError):
            raise found.with_traceback(None)
        return found

    def drop(self, name: str) -> None:
        """Remove a collection and its file, be it damaged.

        Raises
        ------
        CollectionNotFound, CollectionLoading
        DamagedFile
            What is in the place of its file cannot be removed.
        """
        with self._changing:
            if name not in self._found:
                raise CollectionNotFound(name)
            found = self._found[name]
            if found is None:
                raise CollectionLoading(name)
            if self._directory.file(name).is_dir():
                raise DamagedFile(name, "a folder is in its place")
            if isinstance(found, Collection):
                found.close(dropped=True)
            try:
                self._directory.remove(name)
            except OSError as error:
                raise DamagedFile(name, f"it cannot be removed ({error})") from error
            del self._found[name]

    def snapshot(self, name: str, snapshot: str | None = None) -> Snapshot:
        """Make a snapshot of a collection as it is at one moment; others may write meanwhile.

        Parameters
        ----------
        name : str
        snapshot : str or None
            Its name; None takes the time.

        Raises
        ------
        SnapshotExists, DiskFull
        CollectionNotFound, CollectionLoading, DamagedFile, IncompatibleFile
        InvalidParameter
            The name is none.
        """
        return self.snapshots.create(name, snapshot, self.get(name).copy_to)

    def restore(self, name: str, snapshot: str, *, replace: bool = False) -> Collection:
        """Make a collection of a snapshot, and return it when it is loaded.

        Parameters
        ----------
        name, snapshot : str
        replace : bool
            Whether it takes the place of the collection of this name, be that damaged.

        Raises
        ------
        SnapshotNotFound
        CollectionExists
            There is one, and it is not to be replaced.
        CollectionLoading
            The catalog still loads, or it is being restored already.
        DamagedSnapshot, DiskFull, DirectoryLocked
            Nothing was changed.
        """
        found = self.snapshots.get(name, snapshot)
        before = self._found_before(name, replace=replace)
        if not self._started:
            raise CollectionLoading(name)
        with self._loading:
            if self._closing:
                raise CollectionNotFound(name)
            try:
                self.snapshots.copy(found, copy := self._directory.unfinished(name))
                if findings := _wrong_with(copy, name):
                    raise DamagedSnapshot(name, snapshot, findings)
                with self._changing:
                    if self._found_before(name, replace=replace) is not before:
                        raise CollectionLoading(name)  # it has been restored, dropped, made
                    self._found[name] = None
                    try:
                        if isinstance(before, Collection):
                            before.close(dropped=True)
                            with suppress(DamagedFile):  # it is replaced as it is
                                move_log(self._directory.file(name), name)
                        self._directory.publish(name)
                    except BaseException:
                        self._return_to(name, before)
                        raise
            finally:
                self._directory.discard(name)
            return self._reloaded(name)

    def _return_to(self, name: str, before: Collection | StoreError | None) -> None:
        if before is None:
            del self._found[name]
        else:
            self._reloaded(name)

    def _found_before(self, name: str, *, replace: bool) -> Collection | StoreError | None:
        found = self._found.get(name)
        if name in self._found:
            if found is None:
                raise CollectionLoading(name)
            if not replace:
                raise CollectionExists(name, "already, and is not to be replaced")
        return found

    def _reloaded(self, name: str) -> Collection:
        """Load a file that has just been put in its place."""
        try:
            store = Store(self._directory.file(name), name, durability=self._durability)
            self._found[name] = self._loaded(store, self._unless_closing)
        except StoreError as error:
            self._found[name] = error
        except _Closing:
            raise CollectionNotFound(name) from None
        return self.get(name)

    def _unless_closing(self, _name: str, _count: int) -> None:
        if self._closing:
            raise _Closing

    def close(self) -> None:
        """Finish writes being made, close all files and give the directory up."""
        self._closing = True
        with self._loading, self._changing:
            for found in self._found.values():
                if isinstance(found, Collection):
                    found.close()
            self._found.clear()
            self._directory.close()


def _wrong_with(path: Path, name: str) -> str:
    """Return what is wrong with a file that is to become a collection, nothing if nothing is."""
    try:
        return "; ".join(findings_of(path, name)[:3])
    except StoreError as error:
        return str(error)


def _summary(collection: Collection) -> Summary:
    described = collection.describe()
    return Summary(
        name=described.name,
        items=described.items,
        dim=described.config.dim,
        backends=[backend.name for backend in described.backends],
        bytes_on_disk=described.bytes_on_disk,
        bytes_in_memory=described.bytes_in_memory,
        commits=described.commits,
        commit_seconds=described.commit_seconds,
    )
