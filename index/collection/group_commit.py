"""Group commit: writes that arrive while a commit is waited for are committed together by the next.

Waiting for a disk or a network costs more than most writes. Each write of a group succeeds or fails
by itself, in order of arrival.

A write waits in the queue with a thread of its own (`GroupCommit.commit`), or without one
(`GroupCommit.submit`), as the requests of an event loop do. The leader reads the latter.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

Write = TypeVar("Write")
Input = TypeVar("Input")
Result = TypeVar("Result")

Run: TypeAlias = Callable[[Callable[[], None], Callable[[], None]], None]
"""Calls the first function in a thread; calls the second instead once it has no more threads."""


class QueuedWrite(Generic[Write, Input, Result]):
    """A write in the queue.

    Attributes
    ----------
    write : Write or None
        None until it has been prepared from what `read` returns.
    done : bool
        Whether it has ended.
    """

    __slots__ = ("done", "write")

    def __init__(self, write: Write | None = None) -> None:
        self.write = write
        self.done = False

    def read(self) -> Input:
        """Return what was submitted."""
        raise NotImplementedError

    def lead(self) -> None:
        """Let a thread of this write lead."""
        raise NotImplementedError

    def end(self, outcome: Result | BaseException) -> None:
        """Say how the write ended; once."""
        raise NotImplementedError


class _BlockingWrite(QueuedWrite[Write, Input, Result]):
    """A write whose thread waits for it."""

    __slots__ = ("_outcome", "_turn")

    _outcome: Result | BaseException

    def __init__(self, write: Write) -> None:
        super().__init__(write)
        self._turn = threading.Lock()
        self._turn.acquire()

    def result(self) -> Result:
        """Return what it ended with, or raise it."""
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    def wait(self) -> None:
        """Return when the write has been made, or is to be made by this thread."""
        self._turn.acquire()

    def lead(self) -> None:
        """Let the thread that waits lead."""
        self._turn.release()

    def end(self, outcome: Result | BaseException) -> None:
        """Let the thread that waits go on."""
        self._outcome = outcome
        self.done = True
        self._turn.release()


class _SubmittedWrite(QueuedWrite[Write, Input, Result]):
    """A write without a thread, which the leader reads."""

    __slots__ = ("_ended", "_lead", "_read")

    def __init__(
        self,
        read: Callable[[], Input],
        ended: Callable[[Any], None],
        lead: Callable[[], None],
    ) -> None:
        super().__init__()
        self._read = read
        self._ended = ended
        self._lead = lead

    def read(self) -> Input:
        """Return what was submitted; called once."""
        return self._read()

    def lead(self) -> None:
        """Ask for a thread that leads."""
        self._lead()

    def end(self, outcome: Result | BaseException) -> None:
        """Tell the result, or the error."""
        self.done = True
        self._ended(outcome)


class GroupCommit(Generic[Write, Input, Result]):
    """Takes writes from any thread, and commits one group at a time.

    Parameters
    ----------
    max_groups : int
        A thread lent to a submitted write leads at most as many groups.

    Attributes
    ----------
    lock : Lock
        Held while a group is committed.
    """

    def __init__(self, max_groups: int) -> None:
        self.lock = threading.Lock()
        self.queue: deque[QueuedWrite[Write, Input, Result]] = deque()
        self._max_groups = max_groups
        self._arriving = threading.Lock()
        self._has_leader = False  # whether somebody commits, or is about to

    def commit_group(self, group: Sequence[QueuedWrite[Write, Input, Result]]) -> None:
        """Commit writes and end each of them; one thread at a time, which has the lock."""
        raise NotImplementedError

    def announce(self, group: Sequence[QueuedWrite[Write, Input, Result]]) -> None:
        """Tell others of writes that have ended; the lock is free again."""

    def next_group(self) -> list[QueuedWrite[Write, Input, Result]]:
        """Take the writes that one commit can hold off the queue; there is one."""
        raise NotImplementedError

    def wait_for(self, write: Write) -> Result:
        """Return the result of a write, or raise its error."""
        waiting = _BlockingWrite[Write, Input, Result](write)
        leads = self._enqueue(waiting)
        try:
            self._wait_or_lead(waiting, leads=leads)
        except BaseException:
            if not waiting.done:  # others wait for it: it is made without its caller
                run = partial(self._wait_or_lead, waiting, leads=False)
                threading.Thread(target=run, name="writer", daemon=True).start()
            raise
        return waiting.result()

    def queue_read(self, read: Callable[[], Input], ended: Callable[[Any], None], run: Run) -> None:
        """Queue a write that the leader of its group reads.

        Parameters
        ----------
        ended : callable
            Called with the result or the error, or with CancelledError once ``run`` has no more
            threads; by any thread.
        run : callable
            Lends a thread to lead by.
        """
        lead = partial(run, partial(self._lead, self._max_groups), self._drop_submitted)
        waiting = _SubmittedWrite[Write, Input, Result](read, ended, lead)
        if self._enqueue(waiting):
            waiting.lead()

    def _enqueue(self, waiting: QueuedWrite[Write, Input, Result]) -> bool:
        """Return whether nobody leads yet: the caller has to."""
        with self._arriving:
            self.queue.append(waiting)
            leads = not self._has_leader
            self._has_leader = True
        return leads

    def _wait_or_lead(self, waiting: _BlockingWrite[Write, Input, Result], *, leads: bool) -> None:
        """Return when a write has been made, by this thread if its turn comes before that."""
        if not leads:
            waiting.wait()
        if not waiting.done:
            self._lead()

    def _lead(self, groups: int = 1) -> None:
        """Commit the writes that wait, in at most ``groups`` groups; then pass the lead on."""
        try:
            for _ in range(groups):
                if not self.queue:
                    break
                with self.lock:
                    group = self.next_group()
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
            dropped = [each for each in self.queue if isinstance(each, _SubmittedWrite)]
            for waiting in dropped:
                self.queue.remove(waiting)
        for waiting in dropped:
            waiting.end(CancelledError())
        self._pass_leadership()
