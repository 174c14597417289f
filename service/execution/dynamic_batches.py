"""Queries that wait at the same time, searched by one call.

A batch takes less time a query than one alone: the caches hold what its queries share, memory
answers several of them at once, and the interpreter is entered once. Its answers have at least the
recall asked: a batch may be scanned where one query searches the graph.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import Context
from typing import Any, Final, NamedTuple, TypeVar

from gcws_search.service.errors import QueueFull, Stopping

Q = TypeVar("Q")
T = TypeVar("T")

SearchTogether = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
"""Returns an answer a query; raises what any of them raises."""

_MAX_BATCH: Final = 32
"""Queries of one call at most: the others wait as long as the call takes."""
_OF_ALL: Final = QueueFull, Stopping
"""Refusals of a call, whatever its queries are."""


class _Waiting(NamedTuple):
    query: Any
    answer: asyncio.Future[Any]
    search: SearchTogether


class DynamicBatches:
    """Gathers the queries of one turn of the event loop, and searches for them by one call.

    A lone query is searched at once: waiting for the next turn takes 20 µs. So the first query of
    a turn waits only if queries came together in the turn before.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._queries_this_turn = 0
        self._queries_last_turn = 0  # the last in which any came

    def count_one(self) -> bool:
        """Count a query of this turn; return whether it should be batched, by `search`."""
        if self._queries_this_turn == 0:
            asyncio.get_running_loop().call_soon(self._end_turn, context=Context())
        self._queries_this_turn += 1
        return max(self._queries_this_turn, self._queries_last_turn) > 1

    def search(
        self, group: Hashable, query: Q, search: Callable[[Sequence[Q]], Awaitable[Sequence[T]]]
    ) -> Awaitable[T]:
        """Return the answer to a query that `count_one` counted.

        Parameters
        ----------
        group : hashable
            Queries of one group may be searched by one call.
        search : callable
            Answers queries of the group. If it raises, each query is asked alone.
        """
        answer = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, []).append(_Waiting(query, answer, search))
        return answer

    def _end_turn(self) -> None:
        self._queries_last_turn, self._queries_this_turn = self._queries_this_turn, 0
        waiting, self._waiting = self._waiting, {}
        for queries in waiting.values():
            for first in range(0, len(queries), _MAX_BATCH):
                task = asyncio.create_task(_answer(queries[first : first + _MAX_BATCH]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)


async def _answer(queries: Sequence[_Waiting]) -> None:
    queries = [each for each in queries if not each.answer.done()]  # a client may have gone
    if not queries:
        return
    try:
        answers = await queries[0].search([each.query for each in queries])
        answered = [*zip(queries, answers, strict=True)]
    except BaseException as error:  # each query must hear of it: nobody else would end its wait
        is_of_one = isinstance(error, Exception) and not isinstance(error, _OF_ALL)
        if len(queries) > 1 and is_of_one:
            await asyncio.gather(*(_answer([each]) for each in queries))
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
