"""The thread that compacts a collection and optimizes its index, beside those that use it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from gcws_search.index.background import give_way
from gcws_search.index.collection.items import View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.optimize import optimize
from gcws_search.index.contracts.policies import OptimizerPolicy
from gcws_search.index.persistence.writer import Writer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows and version of a collection at one moment.

    Attributes
    ----------
    rows : int
    version : int
        Of the view: it rises with each view.
    time : float
        Seconds, of the monotonic clock.
    """

    rows: int
    version: int
    time: float

    @classmethod
    def now(cls, view: View) -> Arrivals:
        """Return those of the latest view."""
        return cls(len(view), view.version, time.monotonic())

    def seconds_for_each_row(self) -> float:
        """Return the seconds since that moment, divided by the rows there were."""
        return (time.monotonic() - self.time) / max(1, self.rows)

    def pause(self, since: Arrivals, seconds_a_row: float, policy: OptimizerPolicy) -> float:
        """Return how many seconds to wait before looking again, 0 to begin now.

        Rows of a bulk load may come many at a time, with gaps in which none come.

        Parameters
        ----------
        since : Arrivals
            An earlier moment.
        seconds_a_row : float
            What optimizing takes for each row.
        policy : OptimizerPolicy
        """
        rows, seconds = self.rows - since.rows, self.time - since.time
        if rows * seconds_a_row <= policy.max_growth_share * seconds:
            return 0.0
        gap = seconds / (self.version - since.version)
        return min(max(policy.pause_seconds, policy.gap_factor * gap), policy.max_pause_seconds)


class OptimizerThread:
    """Optimizes one collection in the background.

    Parameters
    ----------
    collection : MemoryCollection
    writer : Writer
        Makes the changes of the collection.
    on_publish : callable
        Is called after a compaction or an optimized index was published.
    paused : threading.Event
        It begins nothing while this is set.
    """

    def __init__(
        self,
        collection: MemoryCollection,
        writer: Writer,
        on_publish: Callable[[], None],
        paused: threading.Event,
    ) -> None:
        self._collection = collection
        self._writer = writer
        self._published = on_publish
        self._paused = paused
        self._starting = threading.Lock()
        self._stopping = threading.Event()
        self._skip_pause = threading.Event()  # set to end a pause
        self._busy = False
        self._seen: Arrivals | None = None  # when it last looked, or began
        self._seconds_a_row = collection.policies.optimizer.seconds_a_row
        self.thread: threading.Thread | None = None

    @property
    def _is_due(self) -> bool:
        if self._paused.is_set():
            return False
        collection = self._collection
        return collection.compaction_is_overdue or collection.overdue(collection.view) is not None

    def start_if_due(self) -> None:
        """Begin when there is something to do; any thread."""
        with self._starting:
            # Looking is what an insert waits for: while the thread runs it looks by itself.
            if not self._busy and not self._stopping.is_set() and self._is_due:
                self._busy = True
                self.thread = threading.Thread(target=self._run, name="optimizer", daemon=True)
                self.thread.start()

    def finish(self) -> None:
        """Do at once what there is to do, and return when it is done."""
        self.start_if_due()
        self._skip_pause.set()
        self._wait()
        if not self._stopping.is_set():
            self._skip_pause.clear()

    def stop(self) -> None:
        """End soon, and begin nothing more."""
        with self._starting:
            self._stopping.set()
        self._skip_pause.set()
        self._wait()

    def _wait(self) -> None:
        if self.thread is not None:
            self.thread.join()

    def _run(self) -> None:
        give_way()
        policy = self._collection.policies.optimizer
        try:
            while self._goes_on():
                self._wait_for_quiet()
                if not self._goes_on():  # much may have changed meanwhile
                    break
                self._seen = began = self._now()
                compacts = self._collection.compaction_is_overdue
                published = optimize(
                    self._collection, self._writer.run_between_changes, self._stopping
                )
                if not compacts:  # which takes much less
                    taken = max(began.seconds_for_each_row(), self._seconds_a_row / 2)
                    self._seconds_a_row = max(policy.seconds_a_row, taken)
                if published is None:
                    self._stopping.set()  # nothing can be published any more
                elif published:
                    self._published()
        except Exception:
            # Searches go on without; the next change tries again.
            _log.exception("an index could not be optimized, or compacted")
            with self._starting:
                self._busy = False

    def _goes_on(self) -> bool:
        """Return whether there is more to do; who asks to begin after a False is not too late."""
        with self._starting:
            self._busy = self._is_due and not self._stopping.is_set()
            return self._busy

    def _wait_for_quiet(self) -> None:
        """Return once rows come in slowly, or there is no time to wait for that.

        It waits no longer than optimizing takes: a load that goes on may be endless.
        """
        policy, began = self._collection.policies.optimizer, self._now()
        since, pause = self._seen or began, policy.pause_seconds
        while pause and not self._skip_pause.wait(pause) and not self._stopping.is_set():
            self._seen = now = self._look()
            pause = now.pause(since, self._seconds_a_row, policy)
            if now.time - began.time > self._seconds_a_row * now.rows:
                return
            since = now

    def _look(self) -> Arrivals:
        """Return what there is, the change that is being made included."""
        return self._writer.run_between_changes(self._now) or self._now()

    def _now(self) -> Arrivals:
        return Arrivals.now(self._collection.view)
