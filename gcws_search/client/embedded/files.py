"""The file of a collection as this process opens it, and the folder it shares with others."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import ClassVar, Final, Literal
from weakref import WeakSet

from gcws_search.client.embedded.operations import EmbeddedOperations
from gcws_search.index.contracts.errors import (
    CollectionExists,
    CollectionNotFound,
    DirectoryLocked,
    InvalidParameter,
)
from gcws_search.index.contracts.parameters import CollectionConfig

MEMORY: Final = ":memory:"
_SUFFIX: Final = ".sqlite"


class OpenFolder:
    """The catalog of a folder, shared by all collections of it that this process has open.

    Parameters
    ----------
    path : Path
        Resolved.
    durability : {"full", "normal"}
    threads : int or None
    """

    _open: ClassVar[dict[Path, OpenFolder]] = {}
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(
        self, path: Path, durability: Literal["full", "normal"], threads: int | None
    ) -> None:
        from gcws_search.index import Catalog  # noqa: PLC0415  # loads the compiler

        self.path = path
        self.process = os.getpid()
        self.catalog = Catalog.open(path, durability=durability, threads=threads, only=())
        self._users: dict[str, WeakSet[EmbeddedOperations]] = {}

    @classmethod
    def operations(
        cls,
        path: Path,
        name: str,
        config: CollectionConfig | None,
        *,
        durability: Literal["full", "normal"],
        threads: int | None,
    ) -> EmbeddedOperations:
        """Return operations on a collection of a folder; it is made where it is not there.

        All operations of one name share the collection, so a cell of a notebook can run twice.

        Raises
        ------
        DirectoryLocked
            Another process has the folder, which it names.
        CollectionNotFound
            It is not there, and there is no configuration to create it with.
        CollectionExists
            It is there with another configuration.
        DamagedFile, IncompatibleFile, StorageFailed
        """
        with cls._lock:
            folder = cls._open.get(path) or cls(path, durability, threads)
            if folder.process != os.getpid():
                # SQLite takes locks that it knows of for this process's, which has none.
                raise DirectoryLocked.before_fork(path, folder.process)
            cls._open[path] = folder
            try:
                found = folder.catalog.read(name)
                if found is None and config is None:
                    raise CollectionNotFound(name)
                if found is None:
                    assert config is not None
                    found, _ = folder.catalog.create(name, config)
                elif config is not None and found.config != config:
                    if name not in folder._users:
                        folder.catalog.release(name)
                    raise CollectionExists(name, found.config.difference(config))
                operations = EmbeddedOperations(found, path, folder.leave)
                folder._users.setdefault(name, WeakSet()).add(operations)
                return operations
            finally:
                folder._close_if_unused()

    def leave(self, operations: EmbeddedOperations) -> None:
        """Close a collection after the last operations on it, and the folder after its last one."""
        with self._lock:
            users = self._users.get(operations.name)
            if users is None:
                return
            users.discard(operations)
            if not users:
                del self._users[operations.name]
                self.catalog.release(operations.name)
                self._close_if_unused()

    @classmethod
    def free_lock(cls) -> None:
        """Let a forked process open folders: whichever thread had the lock is not there."""
        cls._lock = threading.RLock()

    def _close_if_unused(self) -> None:
        if not self._users:
            self._open.pop(self.path, None)
            self.catalog.close()


os.register_at_fork(after_in_child=OpenFolder.free_lock)


def opened(
    path: str | Path,
    config: CollectionConfig | None,
    *,
    durability: Literal["full", "normal"] = "full",
    threads: int | None = None,
) -> EmbeddedOperations:
    """Return the operations of a file, or of ":memory:"; see `OpenFolder.operations` for errors.

    Raises
    ------
    InvalidParameter
        The path is none of a collection's file.
    """
    if str(path) == MEMORY:
        from gcws_search.index import StoredCollection  # noqa: PLC0415  # loads the compiler

        held = StoredCollection.in_memory("memory", config or _no_dim(), threads=threads)
        return EmbeddedOperations(held, Path(MEMORY), lambda _: held.close(dropped=True))
    file = Path(path)
    if file.suffix != _SUFFIX:
        raise InvalidParameter(
            expected=f"a path that ends in {_SUFFIX!r}, or {MEMORY!r}",
            got=repr(str(path)),
            loc=("path",),
        )
    if config is None and not file.exists():
        raise CollectionNotFound(file.stem)
    return OpenFolder.operations(
        file.parent.resolve(), file.stem, config, durability=durability, threads=threads
    )


def _no_dim() -> CollectionConfig:
    raise InvalidParameter(
        expected="dim, the number of coordinates, or None for an open space of sparse vectors",
        got="none",
        loc=("dim",),
    )
