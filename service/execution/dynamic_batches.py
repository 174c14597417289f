"""Queries that wait at the same time, searched by one call.

A batch takes less time a query than one alone: the caches hold what its queries share, memory
answers several of them at once, and the interpreter is entered once. Its answers are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

Q = TypeVar("Q")
T = TypeVar("T")

SearchTogether = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
"""Returns an answer a query; raises what any of them raises."""

_MAX_TOGETHER: Final = 32
"""Queries of one call: others wait no longer than these take."""


class _Waiting(NamedTuple):
    query: Any
    answer: asyncio.Future[Any]
    search: SearchTogether


class DynamicBatches:
    """Gathers queries until the loop has read what there is; nothing waits for more to come.

    A query that no other comes with is best searched at once: waiting for the loop's next turn
    takes 20 µs. So the first query of a turn waits only if queries came together in the turn
    before.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._came = 0  # in this turn of the loop
        self._came_before = 0  # in the last turn in which any came

    def gathers(self) -> bool:
        """Count a query that comes; return whether it should wait for others, by `search`."""
        if self._came == 0:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._came += 1
        return max(self._came, self._came_before) > 1

    def search(
        self, group: Hashable, query: Q, search: Callable[[Sequence[Q]], Awaitable[Sequence[T]]]
    ) -> Awaitable[T]:
        """Return the answer to a query that was counted, which others are searched with.

        Parameters
        ----------
        group : hashable
            Queries of one group may be searched by one call.
        query : object
        search : callable
            Answers queries of the group. If it raises, each query is asked alone.
        """
        answer = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, []).append(_Waiting(query, answer, search))
        return answer

    def _end_turn(self) -> None:
        self._came_before, self._came = self._came, 0
        waiting, self._waiting = self._waiting, {}
        for queries in waiting.values():
            for first in range(0, len(queries), _MAX_TOGETHER):
                task = asyncio.create_task(_answer(queries[first : first + _MAX_TOGETHER]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)


async def _answer(queries: Sequence[_Waiting]) -> None:
    try:
        answers = await queries[0].search([each.query for each in queries])
    except BaseException as error:  # each query must hear of it: nobody else would end its wait
        if len(queries) > 1 and isinstance(error, Exception):
            for each in queries:
                await _answer([each])
            return
        for each in queries:
            if not each.answer.done():
                each.answer.set_exception(error)
        if not isinstance(error, Exception):
            raise
        return
    for each, answer in zip(queries, answers, strict=True):
        if not each.answer.done():  # its client may have gone
            each.answer.set_result(answer)
