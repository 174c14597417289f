"""Queries that wait at the same time, answered by one call.

A batch takes less time a query than one alone: the caches hold what its queries share, memory
answers several of them at once, and the interpreter or the network is entered once. Its answers
have at least the recall asked: a batch may be scanned where one query searches the graph.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import Context
from typing import Any, Final, NamedTuple, TypeVar

from gcws_search.service.errors import QueueFull, Stopping

Q = TypeVar("Q")
T = TypeVar("T")

# Returns an answer a query; raises what any of them raises.
SearchTogether = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]

# Vectors of one call, unless one query has more: the others wait as long as the call takes.
_MAX_ROWS: Final = 32
_OF_ALL: Final = QueueFull, Stopping  # refusals of a call, whatever its queries are


def is_of_one(error: Exception) -> bool:
    """Return whether an error of a call may be that of one query."""
    return not isinstance(error, _OF_ALL)


class _Waiting(NamedTuple):
    query: Any
    answer: asyncio.Future[Any]
    search: SearchTogether
    rows: int


class _Group:
    """Queries that one call may answer, and the number of calls under way."""

    __slots__ = ("calls", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[_Waiting] = deque()
        self.calls = 0

    def take(self) -> list[_Waiting]:
        """Take the queries of the next call off the queue."""
        taken = [self.waiting.popleft()]
        rows = taken[0].rows
        while self.waiting and rows + self.waiting[0].rows <= _MAX_ROWS:
            taken.append(self.waiting.popleft())
            rows += taken[-1].rows
        return taken


class Batcher:
    """Gathers the queries of one turn of the event loop, and answers those of a group by one call.

    Where a lone query is to be asked at once, since waiting for the next turn takes 20 µs, it is
    counted first (`count_one`): the first of a turn then waits only if queries came together in the
    turn before.
    """

    def __init__(
        self,
        # of one group at a time: what comes meanwhile is answered together. None: no bound
        max_calls: int | None = None,
        # whether an error of a call may be that of one query: each is then asked alone
        is_of_one: Callable[[Exception], bool] = is_of_one,
    ) -> None:
        self._max_calls = max_calls
        self._is_of_one = is_of_one
        self._groups: dict[Hashable, _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_scheduled = False
        self._queries_this_turn = 0
        self._queries_last_turn = 0  # the last in which any were counted

    def count_one(self) -> bool:
        """Count a query of this turn; return whether it should be batched, by `search`."""
        self._schedule()
        self._queries_this_turn += 1
        return max(self._queries_this_turn, self._queries_last_turn) > 1

    def search(
        self,
        group: Hashable,  # queries of one group may be answered by one call
        query: Q,
        search: Callable[[Sequence[Q]], Awaitable[Sequence[T]]],  # answers queries of the group
        rows: int = 1,  # vectors of the query
    ) -> asyncio.Future[T]:
        """Return the answer to a query."""
        answer = asyncio.get_running_loop().create_future()
        entry = self._groups.get(group)
        if entry is None:
            entry = self._groups[group] = _Group()
        entry.waiting.append(_Waiting(query, answer, search, rows))
        self._schedule()
        return answer

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._end_turn, context=Context())

    def _end_turn(self) -> None:
        self._is_scheduled = False
        if self._queries_this_turn:
            self._queries_last_turn, self._queries_this_turn = self._queries_this_turn, 0
        for group, entry in self._groups.items():
            while entry.waiting and (self._max_calls is None or entry.calls < self._max_calls):
                entry.calls += 1
                task = asyncio.create_task(self._call(group, entry, entry.take()))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _call(self, group: Hashable, entry: _Group, queries: Sequence[_Waiting]) -> None:
        try:
            await self._answer(queries)
        finally:
            entry.calls -= 1
            if entry.waiting:
                self._schedule()
            elif not entry.calls:
                del self._groups[group]

    async def _answer(self, queries: Sequence[_Waiting]) -> None:
        queries = [each for each in queries if not each.answer.done()]  # a client may have gone
        if not queries:
            return
        try:
            answers = await queries[0].search([each.query for each in queries])
            answered = [*zip(queries, answers, strict=True)]
        except BaseException as error:  # each query must hear of it: nobody else would end its wait
            is_one = isinstance(error, Exception) and self._is_of_one(error)
            if len(queries) > 1 and is_one:
                await asyncio.gather(*(self._answer([each]) for each in queries))
                return
            for each in queries:
                if not each.answer.done():
                    each.answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for each, answer in answered:
            if not each.answer.done():
                each.answer.set_result(answer)
