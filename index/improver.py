"""The thread that improves a collection's index once it has grown, beside those that use it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from index.collection import Collection
from index.writes import Writer

_PAUSE_SECONDS: Final = 0.2
_QUIET_GROWTH: Final = 1.05
"""While more rows than that are put in a pause, as in a bulk load, improving would be in vain."""

_log = logging.getLogger(__name__)


class Improver:
    """Improves one collection in the background.

    Parameters
    ----------
    collection : Collection
    writer : Writer
        Makes the changes of the collection.
    improved : callable
        Is called after each improvement.
    """

    def __init__(
        self, collection: Collection, writer: Writer, improved: Callable[[], None]
    ) -> None:
        self._collection = collection
        self._writer = writer
        self._improved = improved
        self._starting = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start_if_due(self) -> None:
        """Begin when there is something to do; any thread."""
        if self._is_busy() or not self._collection.is_improvable:
            return
        with self._starting:
            if not self._is_busy() and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="improver", daemon=True)
                self._thread.start()

    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Return when what has begun is done."""
        if self._thread is not None:
            self._thread.join()

    def stop(self) -> None:
        """End soon, and begin nothing more."""
        with self._starting:
            self._stopping.set()
        self.wait()

    def _run(self) -> None:
        try:
            while self._collection.is_improvable and self._wait_for_quiet():
                if self._collection.improve(self._writer.between, self._stopping):
                    self._improved()
        except Exception:
            # Searches go on without; the next change tries again.
            _log.exception("an index could not be improved")

    def _wait_for_quiet(self) -> bool:
        """Return once rows come in slowly, False when it is time to stop."""
        while True:
            before = len(self._collection.view)
            if self._stopping.wait(_PAUSE_SECONDS):
                return False
            if len(self._collection.view) <= _QUIET_GROWTH * before:
                return True
