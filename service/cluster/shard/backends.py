"""The comparison backends of a shard's collection: those that the database lists."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress

import orjson

from gcws_search import index as ix
from gcws_search.service.cluster.contract import BackendRow

_log = logging.getLogger(__name__)


class BackendsFollower:
    """Attaches and drops the backends of one collection, each attached in the background."""

    def __init__(self, collection: ix.StoredCollection) -> None:
        self._collection = collection
        self._lock = threading.Lock()
        self._listed: set[str] = set()
        self._failed: dict[str, BackendRow] = {}
        self._thread: threading.Thread | None = None

    @property
    def ready(self) -> list[str]:
        """Names of those that can be searched."""
        return [*self._collection.memory.view.attached]

    def expects(self, name: str, seconds: float) -> bool:
        """Return whether a backend is listed, after a wait for those that are being attached."""
        thread = self._thread
        if name not in self._listed or name in self._failed:
            return False
        if thread is not None:
            thread.join(seconds)
        return True

    def follow(self, listed: Sequence[BackendRow]) -> None:
        """Drop what is not listed, and begin to attach what is missing."""
        collection, wanted = self._collection, {row.name: row for row in listed}
        with self._lock:
            self._listed = {*wanted}
            self._failed = {
                name: row for name, row in self._failed.items() if wanted.get(name) == row
            }
            ready = collection.memory.view.attached
            building = {each.name: each.params for each in collection.attached_backends.building}
            there = {name: indexed.params for name, indexed in ready.items()} | building
            for name, params in there.items():
                if name not in wanted or _params(wanted[name]) != params:
                    with suppress(ix.BackendNotFound):
                        collection.detach(name)
            is_busy = self._thread is not None and self._thread.is_alive()
            missing = [
                row
                for name, row in wanted.items()
                if name not in there and name not in self._failed
            ]
            if missing and not is_busy:
                self._thread = threading.Thread(
                    target=self._attach, args=(missing,), name="shard-backends", daemon=True
                )
                self._thread.start()

    def _attach(self, rows: Sequence[BackendRow]) -> None:
        for row in rows:
            try:
                self._collection.attach(_params(row), row.name, row.notes)
            except (ix.CollectionNotFound, ix.CollectionLoading):
                return
            except (ix.BackendExists, ix.BackendNotFound):
                continue
            except Exception as error:
                self._failed[row.name] = row
                _log.warning(
                    "collection %r: backend %r cannot be attached (%s)",
                    self._collection.name,
                    row.name,
                    error,
                )


def _params(row: BackendRow) -> ix.BackendParams:
    return ix.backend_params(row.kind, orjson.loads(row.params))
