"""Queries that ask for the same at the same time, sent to the shards as one message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gcws_search import index as ix
from gcws_search.service.cluster.router.merging import MergedHits, ShardHits, merged
from gcws_search.service.contract import ShardsAsked
from gcws_search.service.errors import AnswerTooLarge

_MAX_TOGETHER: Final = 32
"""Queries of one message: others wait no longer than these take."""
_OF_ONE: Final = ix.InvalidVector, AnswerTooLarge
"""What may be wrong with one query, or with the sum of them, and not with the others."""
_MAX_CALLS: Final = 2
"""Messages of one group under way: what comes meanwhile is sent together."""
PART_ROWS: Final = 256
"""Queries of one request that are sent together."""


class GatheredHits(NamedTuple):
    """The hits of some queries, and the answers that they are places in.

    Attributes
    ----------
    hits
        One a query.
    seconds
        How long the shards took, a query.
    missing
        Shards that did not answer.
    """

    shards: Sequence[ShardHits]
    hits: Sequence[MergedHits]
    seconds: float
    missing: Sequence[int] = ()

    @property
    def asked(self) -> ShardsAsked:
        """Which shards have answered."""
        answered = len(self.shards)
        return ShardsAsked(answered + len(self.missing), answered, self.missing)

    def of(self, first: int, count: int) -> GatheredHits:
        """Return the hits of some of the queries."""
        return self._replace(hits=self.hits[first : first + count])


Search = Callable[[ix.RawBatch], Coroutine[Any, Any, tuple[Sequence[ShardHits], Sequence[int]]]]
"""Asks the shards for vectors together; returns what they found, and which gave no answer."""


@dataclass(slots=True)
class _Group:
    """Queries of one group that wait, and how many messages of it are under way."""

    waiting: list[tuple[ix.RawBatch, asyncio.Future[GatheredHits]]] = field(default_factory=list)
    calls: int = 0


class QueryGathering:
    """Queries of one collection on their way to its shards; used on the event loop alone."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def search(
        self, group: Hashable, vectors: ix.RawBatch, limit: int, search: Search
    ) -> GatheredHits:
        """Return the hits of some vectors, searched together with others of their group.

        Parameters
        ----------
        group
            Whatever asks for the same has the same.

        Raises
        ------
        InvalidVector
            The transform leaves nothing of a vector; its place begins with the row.
        """
        entry = self._groups.setdefault(group, _Group())
        future: asyncio.Future[GatheredHits] = asyncio.get_running_loop().create_future()
        entry.waiting.append((vectors, future))
        if entry.calls < _MAX_CALLS:
            self._start(group, entry, limit, search)
        return await future

    def _start(self, group: Hashable, entry: _Group, limit: int, search: Search) -> None:
        entry.calls += 1
        task = asyncio.ensure_future(self._run(group, entry, limit, search))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, group: Hashable, entry: _Group, limit: int, search: Search) -> None:
        await asyncio.sleep(0)  # what has come in this turn of the loop goes together
        try:
            while entry.waiting:
                together = _taken(entry.waiting)
                await _answer(together, limit, search)
        finally:
            entry.calls -= 1
            if not entry.calls and not entry.waiting:
                self._groups.pop(group, None)


async def found_in_parts(vectors: ix.RawBatch, limit: int, search: Search) -> list[GatheredHits]:
    """Return the hits of many vectors: shards search for some while hits of others are merged.

    Raises
    ------
    InvalidVector
        The transform leaves nothing of a vector; its place begins with the row.
    """
    room = asyncio.Semaphore(_MAX_CALLS)

    async def found(first: int) -> GatheredHits:
        part = vectors[first : first + PART_ROWS]
        async with room:
            start = time.perf_counter()
            try:
                shards, missing = await search(part)
            except ix.InvalidVector as error:
                row, *rest = error.loc
                error.loc = (first + int(row), *rest)
                raise
            seconds = (time.perf_counter() - start) / len(part)
        return GatheredHits(shards, merged(shards, limit), seconds, missing)

    tasks = [asyncio.ensure_future(found(first)) for first in range(0, len(vectors), PART_ROWS)]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _taken(
    waiting: list[tuple[ix.RawBatch, asyncio.Future[GatheredHits]]],
) -> list[tuple[ix.RawBatch, asyncio.Future[GatheredHits]]]:
    """Take the first queries off the list."""
    count = rows = 0
    while count < len(waiting) and (not count or rows + len(waiting[count][0]) <= _MAX_TOGETHER):
        rows += len(waiting[count][0])
        count += 1
    taken = waiting[:count]
    del waiting[:count]
    return taken


async def _answer(
    together: Sequence[tuple[ix.RawBatch, asyncio.Future[GatheredHits]]], limit: int, search: Search
) -> None:
    """Search for queries together; where that fails, one by one, so that each gets its own."""
    start = time.perf_counter()
    try:
        shards, missing = await search(ix.concatenate([vectors for vectors, _ in together]))
        found = merged(shards, limit)
    except Exception as error:
        if len(together) == 1 or not isinstance(error, _OF_ONE):
            for _, future in together:
                if not future.done():
                    future.set_exception(error)
            return
        for one in together:
            await _answer([one], limit, search)
        return
    seconds = (time.perf_counter() - start) / max(1, len(found))
    whole = GatheredHits(shards, found, seconds, missing)
    first = 0
    for vectors, future in together:
        if not future.done():  # who asked may have gone
            future.set_result(whole.of(first, len(vectors)))
        first += len(vectors)
