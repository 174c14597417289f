"""Searches of local collections: which thread runs them, which are batched, what is counted."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from gcws_search import index as ix
from gcws_search.service.batcher import Batcher
from gcws_search.service.contract import QueryRequest, group_queries, number_errors
from gcws_search.service.limits import AnswerBytes
from gcws_search.service.metrics import Metrics
from gcws_search.service.pools import Pools
from gcws_search.service.responses import vector_json
from gcws_search.service.startup import Startup

T = TypeVar("T")

_HITS_AT_ONCE: Final = 1 << 20
"""Hits that a batch finds before they are counted; each takes 100 bytes."""
_VECTORS_AT_ONCE: Final = 64
_TYPICAL_NONZEROS: Final = 64


class LocalSearches:
    """Searches the collections of this process; see `contract.SearchesProtocol`."""

    def __init__(
        self, pools: Pools, startup: Startup, metrics: Metrics, max_answer_bytes: int
    ) -> None:
        self._pools = pools
        self._startup = startup
        self._metrics = metrics
        self._max_answer_bytes = max_answer_bytes
        self._batches = Batcher()

    def search(
        self,
        collection: ix.StoredCollection,
        asked: QueryRequest,
        show: Callable[[Sequence[ix.QueryResult]], T],
    ) -> Awaitable[T]:
        """Search for vectors: here where that should be short, else in a thread.

        Short searches for one vector that wait at the same time are one call of the index.
        """
        count = 1 if asked.vectors is None else asked.vectors.count
        # It may read files, or compile kernels as the first of its kind.
        may_block = (
            not isinstance(collection.config.backend, ix.GcwsParams | ix.ExactParams)
            or asked.backend is not None
            or asked.params.rerank != "gmm"
            or asked.may_block
        )
        if not self._startup.is_compiled:
            asked = asked.exactly()
        elif (
            asked.vectors is not None and count == 1 and not may_block and self._batches.count_one()
        ):
            together = partial(self._search_together, collection)
            return self._batches.search((collection, asked.group), (asked, show), together)
        work = partial(self._answer, collection, [asked], show)
        key, entries = (collection.name, asked.pace), partial(_entries, collection)
        return self._pools.search(key, entries, work, count=count, may_block=may_block)

    def _search_together(
        self,
        collection: ix.StoredCollection,
        waiting: Sequence[tuple[QueryRequest, Callable[[Sequence[ix.QueryResult]], T]]],
    ) -> Awaitable[list[T]]:
        """Answer queries of one group by one call."""

        def show_each(found: Sequence[ix.QueryResult]) -> list[T]:
            return [show([one]) for (_, show), one in zip(waiting, found, strict=True)]

        queries = [one for one, _ in waiting]
        work = partial(self._answer, collection, queries, show_each)
        key, entries = (collection.name, queries[0].pace), partial(_entries, collection)
        return self._pools.search(key, entries, work, count=len(queries))

    def search_batch(
        self,
        collection: ix.StoredCollection,
        asked: Sequence[QueryRequest],
        show: Callable[[Sequence[ix.QueryResult]], T],
    ) -> Awaitable[T]:
        """Search for many queries in a thread, as many at a time as memory should hold hits of.

        Raises AnswerTooLarge (as soon as the hits found so far are too many).
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
        size: AnswerBytes | None = None,
    ) -> T:
        """Search, count the cost, and show the answers.

        ``size`` is that of the one answer to all; None where each query has its own.

        Raises AnswerTooLarge.
        """
        # Read before the search: the audit of this very query may end before its answer is made.
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
    """Return the vectors of hits; Python's numbers are made of a few at a time."""
    found: list[Any] = []
    for first in range(0, len(hits.ids), _VECTORS_AT_ONCE):
        some = collection.vectors(hits, slice(first, first + _VECTORS_AT_ONCE))
        size.add_vectors(some)
        found += map(vector_json, some)
    return found


def _entries(collection: ix.StoredCollection) -> int:
    """Return about how many numbers a scan of the collection reads."""
    space = collection.space
    numbers = (space.dim or 0) if space.form == "dense" else _TYPICAL_NONZEROS
    return collection.memory.published.count * numbers


def _certain_hits(asked: QueryRequest, items: int) -> int:
    """Return how many hits queries have, where neither a score nor a filter leaves any out."""
    if asked.params.min_score or asked.where is not None or not asked.is_shown:
        return 0
    shown = min(asked.params.limit, items - asked.offset)
    return max(0, shown) * (1 if asked.vectors is None else asked.vectors.count)


def _parts(asked: Sequence[QueryRequest], items: int) -> Iterator[Sequence[QueryRequest]]:
    """Yield queries in runs whose hits fit into memory together."""
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

    Raises BackendNotFound, ItemNotFound, InvalidVector (the transform leaves nothing of a vector;
        its place begins with the row).
    """
    if query.vectors is not None:
        return collection.search(
            query.vectors, query.params, where=query.where, backend=query.backend
        )
    if query.with_unknown is not None:
        return collection.search_with_unknown(
            query.with_unknown, query.params, where=query.where, backend=query.backend
        )
    return collection.search_around(
        str(query.item_id), query.params, where=query.where, backend=query.backend
    )


def search_batch(
    collection: ix.StoredCollection, queries: Sequence[QueryRequest]
) -> tuple[list[ix.QueryResult], list[ix.Total]]:
    """Return the hits of each query, in order, and what all cost; of each vector of an only one.

    Queries that ask for the same are searched together.

    Raises BackendNotFound, ItemNotFound, InvalidVector (the transform leaves nothing of a vector;
        its place begins with the query's number).
    """
    if len(queries) == 1:
        alone = search(collection, queries[0])
        return [*alone], alone.totals()
    results: dict[int, ix.QueryResult] = {}
    costs: list[ix.Total] = []
    for numbers, together in group_queries(queries):
        with number_errors(numbers):
            some = search(collection, together)
        results.update(zip(numbers, some, strict=True))
        costs += some.totals()
    return [results[number] for number in range(len(queries))], costs


def measured_recall(collection: ix.StoredCollection, asked: QueryRequest) -> float | None:
    """Return what audited queries of this kind found; None where there are none."""
    if asked.backend not in (None, "gcws"):
        return None
    audited = collection.audit.of(asked.params)
    return None if audited is None else audited.found
