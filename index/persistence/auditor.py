"""Searches; a thread answers some of the queries exactly as well, and saves the comparison."""

from __future__ import annotations

import logging
import threading
import time

from gcws_search.index.background import give_way
from gcws_search.index.collection.audit import RecallAudit
from gcws_search.index.collection.items import QueryResults, View
from gcws_search.index.contracts.arrays import Int64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.errors import StoreError
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.payload.filters import Filter
from gcws_search.index.persistence.writer import Writer
from gcws_search.index.storage.store import Store

_log = logging.getLogger(__name__)


class Auditor:
    """Searches for queries of one collection, and audits some of them in the background.

    Parameters
    ----------
    audit : RecallAudit
    store : Store
    writer : Writer
        Makes the changes of the store.
    """

    def __init__(self, audit: RecallAudit, store: Store, writer: Writer) -> None:
        self._audit = audit
        self._store = store
        self._writer = writer
        self._starting = threading.Lock()
        self._skip_pause = threading.Event()
        self._stopping = False
        self._saved = audit.to_json()
        self._last_saved = time.monotonic()
        self.thread: threading.Thread | None = None

    def load(self) -> None:
        """Read what the file has kept."""
        try:
            self._audit.restore(self._store.meta("audit"))
        except (KeyError, ValueError, TypeError) as error:
            _log.warning("collection %r: its audit is unreadable (%s)", self._store.name, error)
        self._saved = self._audit.to_json()

    def search(
        self,
        view: View,
        queries: VectorBatch,
        params: SearchParams,
        *,
        where: Filter | None = None,
        skip: Int64s | None = None,
        backend: str | None = None,
    ) -> QueryResults:
        """Return what `MemoryCollection.search` does, and audit some queries later; any thread."""
        memory = self._audit.collection
        found = memory.search(view, queries, params, where=where, skip=skip, backend=backend)
        is_primary = backend is None or backend == memory.backend.kind
        if is_primary and self._audit.offer(queries, params, found, where=where, skip=skip):
            self.start()
        return found

    def start(self) -> None:
        """Begin soon: a query waits; any thread."""
        with self._starting:
            if self.thread is None and not self._stopping:
                self.thread = threading.Thread(target=self._run, name="audit", daemon=True)
                self.thread.start()

    def finish(self) -> None:
        """Answer at once what waits; return when it is done."""
        self._skip_pause.set()
        with self._starting:
            thread = self.thread
        if thread is not None:
            thread.join()
        self._skip_pause.clear()

    def stop(self) -> None:
        """Leave what waits, and begin no more."""
        with self._starting:
            self._stopping = True
        self.finish()

    def save(self) -> None:
        """Write what has come since it was last written; no change is being made.

        Raises
        ------
        DiskFull, DirectoryLocked, OutOfDescriptors, StorageFailed
        """
        text = self._audit.to_json()
        if text != self._saved:
            self._store.write_meta("audit", text)
            self._saved = text
        self._last_saved = time.monotonic()

    def _run(self) -> None:
        give_way()
        while self._goes_on():
            start = time.perf_counter()
            try:
                self._audit.step()
            except Exception:
                _log.exception("collection %r: a query could not be audited", self._store.name)
            taken = time.perf_counter() - start
            self._save_if_due()
            self._skip_pause.wait(taken * (1.0 / self._audit.policy.busy - 1.0))

    def _goes_on(self) -> bool:
        """Return whether there is more to do; who asks to begin after a False is not too late."""
        with self._starting:
            if self._stopping or not self._audit.waiting:
                self.thread = None
                return False
            return True

    def _save_if_due(self) -> None:
        if time.monotonic() - self._last_saved < self._audit.policy.save_seconds:
            return
        try:
            self._writer.run_between_changes(self.save)
        except StoreError as error:
            _log.warning("collection %r: its audit is not kept (%s)", self._store.name, error)
            self._last_saved = time.monotonic()
