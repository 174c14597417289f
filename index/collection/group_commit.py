"""Group commit: writes that arrive while a commit is waited for are committed together by the next.

Waiting for a disk or a network costs more than most writes. Each write of a group succeeds or fails
by itself, in order of arrival.

A write waits in the queue with a thread of its own (`GroupCommit.commit`), or without one
(`GroupCommit.submit`), as the requests of an event loop do. The leader reads the latter.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

Write = TypeVar("Write")
Input = TypeVar("Input")
Result = TypeVar("Result")

MAX_ROWS: Final = 4096
"""Of a commit of several writes."""
COMMIT_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Seconds by which commits are counted; those that take longer are counted last."""

Run: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], None]
"""Calls the first function in a thread; calls the second instead once it has no more threads."""


class QueuedWrite(Generic[Write, Input, Result]):
    """A write in the queue.

    write: None until it has been prepared from what ``read`` returns.
    read: returns what was submitted; None of a write whose thread waits for it.
    """

    __slots__ = ("_ended", "done", "lead", "read", "write")

    def __init__(
        self,
        write: Write | None,
        read: Callable[[], Input] | None,
        lead: Callable[[], None],
        ended: Callable[[Any], None],
    ) -> None:
        self.write = write
        self.read = read
        self.lead = lead
        self.done = False
        self._ended = ended

    def end(self, outcome: Result | BaseException) -> None:
        """Say how the write ended; once."""
        self.done = True
        self._ended(outcome)


class GroupCommit(Generic[Write, Input, Result]):
    """Takes writes from any thread, and commits one group at a time.

    max_groups: commits after which a thread lent to a submitted write is given back.
    """

    def __init__(self, max_groups: int) -> None:
        self._max_groups = max_groups
        self.lock = threading.Lock()  # held while a group is committed
        self.queue: deque[QueuedWrite[Write, Input, Result]] = deque()
        self._arriving = threading.Lock()
        self._has_leader = False  # whether somebody commits, or is about to
        self.commits = 0
        self.commit_seconds = 0.0
        self.commit_counts = [0] * (len(COMMIT_BOUNDS) + 1)

    def commit_group(self, group: Sequence[QueuedWrite[Write, Input, Result]]) -> None:
        """Commit writes and end each of them; one thread at a time, which has the lock."""
        raise NotImplementedError

    def announce(self, group: Sequence[QueuedWrite[Write, Input, Result]]) -> None:
        """Tell others of writes that have ended; the lock is free again."""

    def row_count(self, write: Write) -> int:
        """Return the number of rows that a write puts."""
        raise NotImplementedError

    def is_barrier(self, write: Write) -> bool:
        """Return whether the plan of a write needs all earlier ones committed."""
        raise NotImplementedError

    def count_commit(self, seconds: float) -> None:
        """Count a commit that took so long."""
        self.commits += 1
        self.commit_seconds += seconds
        self.commit_counts[bisect_left(COMMIT_BOUNDS, seconds)] += 1

    def _next_group(self) -> list[QueuedWrite[Write, Input, Result]]:
        """Take the writes that one commit can hold off the queue; one that is not read is a row."""
        group = [self.queue.popleft()]
        rows = 0
        while self.queue:
            last, following = group[-1].write, self.queue[0].write
            if any(each is not None and self.is_barrier(each) for each in (last, following)):
                break
            rows += 1 if last is None else self.row_count(last)
            if rows + (1 if following is None else self.row_count(following)) > MAX_ROWS:
                break
            group.append(self.queue.popleft())
        return group

    def commit(self, write: Write) -> Result:
        """Make a write, and return its result or raise its error."""
        turn, outcomes = threading.Lock(), list[Result | BaseException]()
        turn.acquire()  # released once the write has ended, or this thread is to lead

        def end(outcome: Result | BaseException) -> None:
            outcomes.append(outcome)
            turn.release()

        waiting = QueuedWrite[Write, Input, Result](write, None, turn.release, end)

        def wait_or_lead(*, leads: bool) -> None:
            if not leads:
                turn.acquire()
            if not waiting.done:
                self._lead()

        leads = self._enqueue(waiting)
        try:
            wait_or_lead(leads=leads)
        except BaseException:
            if not waiting.done:  # others wait for it: it is made without its caller
                run = partial(wait_or_lead, leads=False)
                threading.Thread(target=run, name="writer", daemon=True).start()
            raise
        [outcome] = outcomes
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def submit(self, read: Callable[[], Input], ended: Callable[[Any], None], run: Run) -> None:
        """Queue a write that the leader of its group reads; ``run`` lends a thread to lead by.

        ended: called with the result or the error, or with CancelledError once ``run`` has no more
            threads; by any thread.
        """
        lead = partial(run, partial(self._lead, self._max_groups), self._drop_submitted)
        if self._enqueue(QueuedWrite[Write, Input, Result](None, read, lead, ended)):
            lead()

    def _enqueue(self, waiting: QueuedWrite[Write, Input, Result]) -> bool:
        """Return whether nobody leads yet: the caller has to."""
        with self._arriving:
            self.queue.append(waiting)
            leads = not self._has_leader
            self._has_leader = True
        return leads

    def _lead(self, groups: int = 1) -> None:
        """Commit the writes that wait, in at most ``groups`` groups; then pass the lead on."""
        try:
            for _ in range(groups):
                if not self.queue:
                    break
                with self.lock:
                    group = self._next_group()
                    self.commit_group(group)
                self.announce(group)
        finally:
            self._pass_leadership()

    def _pass_leadership(self) -> None:
        with self._arriving:
            following = self.queue[0] if self.queue else None
            self._has_leader = following is not None
        if following is not None:
            following.lead()

    def _drop_submitted(self) -> None:
        """End what was submitted, for there is no thread for it; let the next caller lead."""
        with self._arriving:
            dropped = [each for each in self.queue if each.read is not None]
            for waiting in dropped:
                self.queue.remove(waiting)
        for waiting in dropped:
            waiting.end(CancelledError())
        self._pass_leadership()
