"""A thread that begins when there is something to do, and ends when there is not.

Its lock is taken before those of the writer, of memory and of SQLite, and held while nothing is
written. What a task waits for, between its steps or before one, is its own: see each of them.
"""

from __future__ import annotations

import logging
import threading
from typing import ClassVar

from gcws_search.index.background import give_way

_log = logging.getLogger(__name__)


class BackgroundTask:
    """One kind of work in the background of one collection.

    stopping: set once nothing more is to begin.
    skip_pause: set while somebody waits for the work: a pause ends.
    thread: the last that was begun.
    """

    name: ClassVar[str]
    failure: ClassVar[str] = "work in the background failed"
    gives_way: ClassVar[bool] = False
    """Whether its thread leaves the processors to searches."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self.stopping = threading.Event()
        self.skip_pause = threading.Event()
        self.thread: threading.Thread | None = None
        self.is_running = False

    def is_due(self) -> bool:
        """Return whether there is something to do."""
        raise NotImplementedError

    def step(self) -> None:
        """Do some of it, and wait as long as others should have their turn."""
        raise NotImplementedError

    def start(self) -> bool:
        """Begin where something is due; return whether a thread was begun just now; any thread."""
        with self._starting:
            # Looking is what a write waits for: while the thread runs it looks by itself.
            if self.is_running or self.stopping.is_set() or not self.is_due():
                return False
            self.is_running = True
            self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self.thread.start()
            return True

    def join(self) -> None:
        """Return when the thread has ended."""
        if self.thread is not None:
            self.thread.join()

    def finish(self) -> None:
        """Do at once what is due; return when it is done, or cannot be."""
        self.start()
        self.skip_pause.set()
        self.join()
        if not self.stopping.is_set():
            self.skip_pause.clear()

    def stop(self) -> None:
        """Leave the work soon, begin no more, and return when it has ended."""
        with self._starting:
            self.stopping.set()
        self.finish()

    def _run(self) -> None:
        if self.gives_way:
            give_way()
        try:
            self.step()
            while self._goes_on():
                self.step()
        except Exception:
            # Others go on without; the next change tries again.
            _log.exception(self.failure)
            with self._starting:
                self.is_running = False

    def _goes_on(self) -> bool:
        """Return whether there is more to do; who starts after a False begins a new thread."""
        with self._starting:
            self.is_running = not self.stopping.is_set() and self.is_due()
            return self.is_running
