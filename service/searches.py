"""Searches: batches of queries; for local collections also threads and counters.

A batch takes less time per query than single searches: its queries share the caches, memory serves
several at once, and the interpreter or the network is entered once. Its answers have at least the
recall asked: a batch may be scanned when a single query searches the graph.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextvars import Context
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from gcws_search import index as ix
from gcws_search.service.contract import QueryRequest, group_queries, number_errors
from gcws_search.service.errors import QueueFull, Stopping
from gcws_search.service.limits import AnswerBytes
from gcws_search.service.metrics import Metrics
from gcws_search.service.pools import Pools
from gcws_search.service.responses import vector_json
from gcws_search.service.settings import Settings
from gcws_search.service.startup import Startup

Q = TypeVar("Q")
T = TypeVar("T")

_ENTRIES_PER_SECOND: Final = 1e9
"""First guess of a scan's speed (float32 entries), until a search has been timed."""
_MAX_KEYS: Final = 4096
_HITS_AT_ONCE: Final = 1 << 20
"""Hits that a batch finds before they are counted; each takes 100 bytes."""
_VECTORS_AT_ONCE: Final = 64
_TYPICAL_NONZEROS: Final = 64
_SLOW_LIMIT: Final = 1000
# Returns one answer per query; raises the error of any of them.
SearchTogether = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]

# Vectors per call, unless one query has more: other queries wait as long as the call takes.
_MAX_ROWS: Final = 32
_OF_ALL: Final = QueueFull, Stopping  # refusals of a call that do not depend on its queries


def is_of_one(error: Exception) -> bool:
    """Return whether one query may have caused the error of a call."""
    return not isinstance(error, _OF_ALL)


class _Waiting(NamedTuple):
    query: Any
    answer: asyncio.Future[Any]
    search: SearchTogether
    rows: int


class _Group:
    """Queries that one call may answer, and the number of running calls."""

    __slots__ = ("calls", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[_Waiting] = deque()
        self.calls = 0

    def take(self) -> list[_Waiting]:
        taken = [self.waiting.popleft()]
        rows = taken[0].rows
        while self.waiting and rows + self.waiting[0].rows <= _MAX_ROWS:
            taken.append(self.waiting.popleft())
            rows += taken[-1].rows
        return taken


class Batcher:
    """Collects the queries of one turn of the event loop; one call answers those of a group.

    Waiting for the next turn takes 20 µs. To avoid that for single queries, a query may be counted
    first (`count_one`): the first of a turn then waits only if the turn before had several queries.
    """

    def __init__(
        self,
        # running calls of one group: later queries are answered together. None: unlimited
        max_calls: int | None = None,
        # whether one query may have caused the error of a call: then each is asked alone
        is_of_one: Callable[[Exception], bool] = is_of_one,
    ) -> None:
        self._max_calls = max_calls
        self._is_of_one = is_of_one
        self._groups: dict[Hashable, _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_scheduled = False
        self._queries_this_turn = 0
        self._queries_last_turn = 0  # of the last turn with any

    def count_one(self) -> bool:
        """Count a query of this turn; return whether to batch it with `search`."""
        self._queries_this_turn += 1
        if not self._is_scheduled:
            self._schedule()
        return max(self._queries_this_turn, self._queries_last_turn) > 1

    def search(
        self,
        group: Hashable,  # one call may answer queries of one group
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
        if not self._is_scheduled:
            self._schedule()
        return answer

    def _schedule(self) -> None:
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
                if not self._is_scheduled:
                    self._schedule()
            elif not entry.calls:
                del self._groups[group]

    async def _answer(self, queries: Sequence[_Waiting]) -> None:
        queries = [each for each in queries if not each.answer.done()]  # not of lost clients
        if not queries:
            return
        try:
            answers = await queries[0].search([each.query for each in queries])
            answered = [*zip(queries, answers, strict=True)]
        except BaseException as error:  # every waiting query must get the error
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


class LocalSearches:
    """Searches the collections of this process; see `contract.SearchesProtocol`."""

    def __init__(
        self, pools: Pools, startup: Startup, metrics: Metrics, settings: Settings
    ) -> None:
        self._pools = pools
        self._startup = startup
        self._metrics = metrics
        self._max_answer_bytes = settings.max_answer_bytes
        self._inline_seconds = settings.inline_seconds
        self._batches = Batcher()
        self._paces: dict[object, float] = {}  # recent seconds of a search, by its kind

    def search(
        self,
        collection: ix.StoredCollection,
        asked: QueryRequest,
        show: Callable[[Sequence[ix.QueryResult]], T],
    ) -> Awaitable[T]:
        """Search for vectors: on the event loop if that should be short, else in a thread.

        Short searches for one vector that wait at the same time become one call of the index.
        """
        count = 1 if asked.vectors is None else asked.vectors.count
        # It may read files or payloads, or be the first of its kind and compile kernels.
        may_block = (
            not isinstance(collection.config.backend, ix.GcwsParams | ix.ExactParams)
            or asked.backend is not None
            or asked.params.rerank != "gmm"
            or asked.params.ranking != "gmm"
            or asked.with_vector
            or asked.where is not None
            or asked.with_unknown is not None
        )
        if not self._startup.is_compiled:
            asked = asked.exactly()
        elif (
            asked.vectors is not None and count == 1 and not may_block and self._batches.count_one()
        ):
            together = partial(self._search_together, collection)
            return self._batches.search((collection, asked.group), (asked, show), together)
        work = partial(self._answer, collection, [asked], show)
        key, entries = (collection.name, _pace(asked)), partial(_entries, collection)
        return self.run(key, entries, work, count=count, may_block=may_block)

    async def run(
        self,
        key: object,
        entries: Callable[[], int],
        function: Callable[[], T],
        *,
        count: int = 1,
        may_block: bool = False,
    ) -> T:
        """Call a search: on the event loop if it should be short, else in a thread.

        key: searches of one key take about the same time.
        entries: returns how many stored entries a scan would read.
        count: number of searches, at least 1.
        may_block: it may take far longer than others of its key: never on the event loop.
        """
        expected = self._paces.get(key)
        if expected is None:
            expected = entries() / _ENTRIES_PER_SECOND
        if not may_block and count * expected <= self._inline_seconds:
            answer, seconds = _time(function)
        else:
            answer, seconds = await self._pools.searches.run(_time, function)
        # One slow case has little weight; a lasting change is effective soon.
        if key not in self._paces and len(self._paces) >= _MAX_KEYS:
            self._paces.clear()
        before = self._paces.get(key, seconds / count)
        self._paces[key] = before + (seconds / count - before) / 4
        return answer

    def _search_together(
        self,
        collection: ix.StoredCollection,
        waiting: Sequence[tuple[QueryRequest, Callable[[Sequence[ix.QueryResult]], T]]],
    ) -> Awaitable[list[T]]:
        """Answer queries of one group by one call."""
        asked, _ = waiting[0]
        if len(waiting) > 1:
            rows = [one.vectors for one, _ in waiting if one.vectors is not None]
            asked = asked._replace(vectors=ix.concatenate(rows))

        def show_each(found: Sequence[ix.QueryResult]) -> list[T]:
            return [show([one]) for (_, show), one in zip(waiting, found, strict=True)]

        work = partial(self._answer, collection, [asked], show_each)
        key, entries = (collection.name, _pace(asked)), partial(_entries, collection)
        return self.run(key, entries, work, count=len(waiting))

    def search_batch(
        self,
        collection: ix.StoredCollection,
        asked: Sequence[QueryRequest],
        show: Callable[[Sequence[ix.QueryResult]], T],
    ) -> Awaitable[T]:
        """Search for many queries in a thread, in parts whose hits fit into memory.

        Raises AnswerTooLarge (as soon as the hits found so far exceed the limit).
        """

        def work() -> T:
            queries = asked
            if not self._startup.is_compiled:
                queries = [one.exactly() for one in asked]
            size = AnswerBytes(self._max_answer_bytes)
            size.require(sum(_certain_hits(one, len(collection)) for one in queries))
            ranked: list[ix.QueryResult] = []
            for part in _parts(queries, len(collection)):
                try:
                    ranked += self._answer(collection, part, list, size)
                except ix.InvalidVector as error:
                    if error.loc:
                        error.move_row(len(ranked).__add__)
                    raise
            return show(ranked)

        return self._pools.batches.run(work)

    def _answer(
        self,
        collection: ix.StoredCollection,
        queries: Sequence[QueryRequest],
        show: Callable[[Sequence[ix.QueryResult]], T],
        size: AnswerBytes | None = None,  # of one answer to all; None: one for each
    ) -> T:
        """Search, count the cost, and create the answers; else AnswerTooLarge."""
        # Read before the search: the audit of this query may end before its answer is created.
        recalls: list[float | None] = [None] * len(queries)
        for number, one in enumerate(queries):
            if one.explain:
                recalls[number] = measured_recall(collection, one)
        start = time.perf_counter()
        found, costs = search_batch(collection, queries)
        seconds = (time.perf_counter() - start) / max(1, len(found))  # the mean of one query
        if len(queries) != len(found):
            queries, recalls = [queries[0]] * len(found), recalls * len(found)
        for asked, hits, recall in zip(queries, found, recalls, strict=True):
            answer = size or AnswerBytes(self._max_answer_bytes)
            if asked.is_shown:
                answer.add_hits(hits.ids, hits.payloads if asked.with_payload else None)
            if asked.with_vector:
                hits.vectors = _vectors(collection, hits, answer)
            if asked.explain and hits.explanation is not None:
                hits.explanation = hits.explanation._replace(
                    seconds=seconds, measured_recall=recall
                )
        self._metrics.count_searches(costs)
        return show(found)


def _vectors(collection: ix.StoredCollection, hits: ix.QueryResult, size: AnswerBytes) -> list[Any]:
    """Return the vectors of hits; a few at a time become Python numbers."""
    found: list[Any] = []
    for first in range(0, len(hits.ids), _VECTORS_AT_ONCE):
        some = collection.vectors(hits, slice(first, first + _VECTORS_AT_ONCE))
        size.add_vectors(some)
        found += map(vector_json, some)
    return found


def _time(function: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a function, and its processor time in this thread.

    Waiting for the interpreter or a processor is not counted: beside a load, short searches would
    seem long, move to a thread, and wait more.
    """
    start = time.thread_time()
    return function(), time.thread_time() - start


def _pace(asked: QueryRequest) -> Hashable:
    """Return the key of queries that take about the same time."""
    params = asked.params
    return (
        params.recall,
        params.guarantee,
        asked.where is None,
        params.limit > _SLOW_LIMIT,
        asked.backend,
        params.rerank,
        params.ranking,
        params.candidates,
    )


def _entries(collection: ix.StoredCollection) -> int:
    """Return the approximate count of numbers that a scan of the collection reads."""
    space = collection.space
    numbers = (space.dim or 0) if space.form == "dense" else _TYPICAL_NONZEROS
    return collection.memory.published.count * numbers


def _certain_hits(asked: QueryRequest, items: int) -> int:
    """Return the number of hits of queries that neither a score nor a filter can reduce."""
    if asked.params.min_score or asked.where is not None or not asked.is_shown:
        return 0
    shown = min(asked.params.limit, items - asked.offset)
    return max(0, shown) * (1 if asked.vectors is None else asked.vectors.count)


def _parts(asked: Sequence[QueryRequest], items: int) -> Iterator[Sequence[QueryRequest]]:
    """Yield queries in parts whose hits together fit into memory."""
    if len(asked) == 1 and asked[0].vectors is not None:
        vectors, step = asked[0].vectors, _HITS_AT_ONCE // max(1, min(asked[0].params.limit, items))
        for first in range(0, len(vectors), max(1, step)):
            yield [asked[0]._replace(vectors=vectors[first : first + max(1, step)])]
        return
    part, hits = list[QueryRequest](), 0
    for one in asked:
        part.append(one)
        hits += min(one.params.limit, items)
        if hits >= _HITS_AT_ONCE:
            yield part
            part, hits = [], 0
    if part:
        yield part


def search(collection: ix.StoredCollection, query: QueryRequest) -> ix.QueryResults:
    """Return the hits of each query.

    Raises BackendNotFound, ItemNotFound, InvalidVector (the transform makes a vector zero; its
    place begins with the row).
    """
    vectors = query.with_unknown if query.vectors is None else query.vectors
    if vectors is not None:
        return collection.search(vectors, query.params, where=query.where, backend=query.backend)
    return collection.search_around(
        query.item_ids, query.params, where=query.where, backend=query.backend
    )


def search_batch(
    collection: ix.StoredCollection, queries: Sequence[QueryRequest]
) -> tuple[list[ix.QueryResult], list[ix.Total]]:
    """Return the hits of each query in order, and the total cost; for one query, of each vector.

    Queries with equal options are searched together. Raises BackendNotFound, ItemNotFound,
    InvalidVector (the transform makes a vector zero; its place begins with the query's number).
    """
    if len(queries) == 1:
        alone = search(collection, queries[0])
        return [*alone.rank(explain=queries[0].explain)], alone.totals()
    results: dict[int, ix.QueryResult] = {}
    costs: list[ix.Total] = []
    for numbers, together in group_queries(queries):
        with number_errors(numbers):
            some = search(collection, together)
        results.update(zip(numbers, some.rank(explain=together.explain), strict=True))
        costs += some.totals()
    return [results[number] for number in range(len(queries))], costs


def measured_recall(collection: ix.StoredCollection, asked: QueryRequest) -> float | None:
    """Return the measured recall of audited queries of this kind; None without any."""
    if asked.backend not in (None, "gcws") or asked.params.ranking != "gmm":
        return None
    audited = collection.audit.of(asked.params)
    return None if audited is None else audited.found
