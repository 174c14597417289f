"""Group commit of one collection: writes become one transaction of the database."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, overload

from gcws_search import index as ix
from gcws_search.service.cluster.contract import ChangeSet, Moment
from gcws_search.service.cluster.database.collections import CollectionTables
from gcws_search.service.cluster.database.transactions import GroupTransactions
from gcws_search.service.cluster.database.writes import (
    PreparedDelete,
    PreparedPut,
    PreparedWrite,
)

_Result: TypeAlias = ix.WriteResult | int
_Queued: TypeAlias = ix.QueuedWrite[PreparedWrite, PreparedPut, _Result]


def _keep(_: ChangeSet) -> None:
    """Tell nobody."""


class Committer(ix.GroupCommit[PreparedWrite, PreparedPut, _Result]):
    """Takes writes of one collection from any thread, one transaction at a time.

    Parameters
    ----------
    database : CollectionTables
    number : int
    name : str
        Of the collection, for errors.
    publish : callable
        Called with each change that is stored, in the order of commits, before its writes end.

    Attributes
    ----------
    last : Moment
        Of the last change that was acknowledged.
    commits : int
    commit_seconds : float
        How long these have taken.
    commit_counts : list of int
        How many took up to each of `COMMIT_BOUNDS`, and longer than all.
    """

    def __init__(
        self,
        database: CollectionTables,
        number: int,
        name: str,
        publish: Callable[[ChangeSet], None] = _keep,
    ) -> None:
        self._policy = ix.POLICIES.group_commit
        super().__init__(self._policy.max_groups)
        self.name = name
        self._publish = publish
        self._transactions = GroupTransactions(database, number, name)
        self.last = Moment(0, 0)
        self.commits = 0
        self.commit_seconds = 0.0
        self.commit_counts = [0] * (len(ix.COMMIT_BOUNDS) + 1)

    @property
    def last_key(self) -> int:
        """Of the last change that was acknowledged."""
        return self.last.key

    @overload
    def commit(self, write: PreparedPut) -> ix.WriteResult: ...

    @overload
    def commit(self, write: PreparedDelete) -> int: ...

    def commit(self, write: PreparedWrite) -> ix.WriteResult | int:
        """Make a write; on return it is in the database.

        Returns
        -------
        WriteResult or int
            Of a put, or how many items a delete removed.

        Raises
        ------
        ItemExists, DiskFull, CollectionNotFound
            Nothing was stored.
        StoreUnavailable
            Nothing was stored, unless it says that this is not known.
        """
        return self.wait_for(write)

    def submit(
        self, read: Callable[[], PreparedPut], ended: Callable[[Any], None], run: ix.Run
    ) -> None:
        """Queue items to be put.

        Parameters
        ----------
        read : callable
            Returns the items; called by the leader of the group, before the collection is locked.
        ended : callable
            Called with the result, what ``read`` or `commit` raise, or CancelledError once ``run``
            has no more threads.
        run : callable
            Lends a thread to lead by.
        """
        self.queue_read(read, ended, run)

    def next_group(self) -> list[_Queued]:
        """Take writes that one transaction can hold off the queue."""
        group = [self.queue.popleft()]
        rows = _rows(group[0])
        while self.queue and not _chooses(group[0]) and not _chooses(self.queue[0]):
            rows += _rows(self.queue[0])
            if rows > self._policy.max_rows:
                break
            group.append(self.queue.popleft())
        return group

    def commit_group(self, group: Sequence[_Queued]) -> None:
        """Read what was submitted, commit, and end each write."""
        try:
            for waiting in group:
                _read(waiting)
            self._commit([waiting for waiting in group if not waiting.done])
        except BaseException as error:
            for waiting in group:
                if not waiting.done:
                    waiting.end(error)
            if not isinstance(error, Exception):
                raise

    def _commit(self, group: Sequence[_Queued]) -> None:
        writes = [waiting.write for waiting in group if waiting.write is not None]
        if not writes:
            return
        start = time.perf_counter()
        try:
            committed = self._transactions.commit(writes)
        except ix.DiskFull:
            if len(group) == 1:
                raise
            for waiting in group:  # a small one may fit
                self.commit_group([waiting])
            return
        seconds = time.perf_counter() - start
        self.commits += 1
        self.commit_seconds += seconds
        self.commit_counts[bisect_left(ix.COMMIT_BOUNDS, seconds)] += 1
        self.last = max(self.last, Moment(committed.epoch, committed.key))
        if committed.change is not None:
            self._publish(committed.change)
        for waiting, outcome in zip(group, committed.outcomes, strict=True):
            waiting.end(outcome)


def _read(waiting: _Queued) -> None:
    """Read what was submitted; where that fails, it ends."""
    if waiting.write is None:
        try:
            waiting.write = waiting.read()
        except Exception as error:
            waiting.end(error)


def _rows(waiting: _Queued) -> int:
    """Return the number of rows of a write; what was submitted counts for one."""
    return 1 if waiting.write is None else len(waiting.write.ids)


def _chooses(waiting: _Queued) -> bool:
    """Return whether a write needs all earlier ones to be committed."""
    return isinstance(waiting.write, PreparedDelete) and waiting.write.choose is not None
