"""The collections of this process as routes call them."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from gcws_search import index as ix
from gcws_search.service.contract import AuditedQueries, Point, RankedHits
from gcws_search.service.execution.dynamic_batches import DynamicBatches
from gcws_search.service.execution.pools import Pools
from gcws_search.service.execution.startup import Startup
from gcws_search.service.guards.limits import AnswerBytes
from gcws_search.service.telemetry.metrics import Metrics
from gcws_search.service.translate.requests import QueryRequest
from gcws_search.service.translate.results import vector_json

T = TypeVar("T")

_HITS_AT_ONCE: Final = 1 << 20
"""Hits that a batch finds before they are counted; each takes 100 bytes."""
_VECTORS_AT_ONCE: Final = 64
_TYPICAL_NONZEROS: Final = 64
_WARMED_UP: Final = ("gcws", "exact")
"""Kinds of backends whose kernels are compiled at the start."""


@dataclass(frozen=True, slots=True)
class SearchContext:
    """What searches need besides their collection.

    Attributes
    ----------
    pools : Pools
    startup : Startup
    metrics : Metrics
    max_answer_bytes : int
    batches : DynamicBatches
    """

    pools: Pools
    startup: Startup
    metrics: Metrics
    max_answer_bytes: int
    batches: DynamicBatches = field(default_factory=DynamicBatches)


class LocalCatalog:
    """The catalog of this process.

    Parameters
    ----------
    catalog : Catalog
    context : SearchContext
    """

    is_store_reachable = None

    def __init__(self, catalog: ix.Catalog, context: SearchContext) -> None:
        self.catalog = catalog
        self.snapshots = catalog.snapshots
        self.list = catalog.list
        self.drop = catalog.drop
        self.snapshot = catalog.snapshot
        self.close = catalog.close
        self._context = context

    def get(self, name: str) -> LocalCollection:
        """Return a collection."""
        return LocalCollection(self.catalog.get(name), self._context)

    def create(
        self, name: str, config: ix.CollectionConfig, *, admit: Callable[[int], None]
    ) -> tuple[LocalCollection, bool]:
        """Return the collection of this name, and whether it was made just now."""
        found, is_new = self.catalog.create(name, config, admit=admit)
        return LocalCollection(found, self._context), is_new

    def restore(
        self, name: str, snapshot: str, *, replace: bool, admit: Callable[[int], None]
    ) -> LocalCollection:
        """Make a collection of a snapshot."""
        found = self.catalog.restore(name, snapshot, replace=replace, admit=admit)
        return LocalCollection(found, self._context)


class LocalCollection:
    """A collection of this process, for as long as one request; see `CollectionProtocol`.

    Parameters
    ----------
    stored : StoredCollection
    context : SearchContext
    """

    __slots__ = ("_context", "config", "name", "names", "space", "stored")

    def __init__(self, stored: ix.StoredCollection, context: SearchContext) -> None:
        self.stored = stored
        self.name = stored.name
        self.config = stored.config
        self.space = stored.space
        self.names = stored.names
        self._context = context

    @property
    def identity(self) -> ix.StoredCollection:
        """The collection in memory."""
        return self.stored

    def wait_until_found(self) -> None:
        """Return: what was committed is found."""

    def load_names(self) -> None:
        """Return: all names are known."""

    # Searching

    def search(
        self, asked: QueryRequest, show: Callable[[Sequence[RankedHits]], T]
    ) -> Awaitable[T]:
        """Search for vectors: here where that should be short, else in a thread.

        Short searches for one vector that wait at the same time are one call of the index.
        """
        if not self._context.startup.is_compiled:
            return self._run_search([asked.exactly()], show)
        batches = self._context.batches
        is_one = asked.vectors is not None and len(asked.vectors) == 1
        if not is_one or self._may_block(asked) or not batches.count_one():
            return self._run_search([asked], show)

        def search_together(
            waiting: Sequence[tuple[QueryRequest, Callable[[Sequence[RankedHits]], T]]],
        ) -> Awaitable[list[T]]:
            def show_each(found: Sequence[RankedHits]) -> list[T]:
                return [shown([one]) for (_, shown), one in zip(waiting, found, strict=True)]

            return self._run_search([one for one, _ in waiting], show_each)

        group = self.stored, asked.group
        return batches.search(group, (asked, show), search_together)

    def _run_search(
        self, queries: Sequence[QueryRequest], show: Callable[[Sequence[RankedHits]], T]
    ) -> Awaitable[T]:
        """Search for queries of one group, here or in a thread; each has an answer of its own."""
        asked = queries[0]
        count = max(len(queries), 1 if asked.vectors is None else len(asked.vectors))
        return self._context.pools.search(
            (self.name, asked.pace),
            self._entries(),
            partial(self._search_and_show, queries, show),
            count=count,
            may_block=self._may_block(asked),
        )

    def search_batch(
        self, asked: Sequence[QueryRequest], show: Callable[[Sequence[RankedHits]], T]
    ) -> Awaitable[T]:
        """Search for many queries in a thread, as many at a time as memory should hold hits of.

        Raises
        ------
        AnswerTooLarge
            As soon as the hits found so far are too many.
        """

        def work() -> T:
            queries = asked
            if not self._context.startup.is_compiled:
                queries = [one.exactly() for one in asked]
            size = AnswerBytes(self._context.max_answer_bytes)
            size.require(sum(_certain_hits(one, len(self.stored)) for one in queries))
            ranked: list[RankedHits] = []
            for part in _parts(queries, len(self.stored)):
                try:
                    ranked += self._search(part, size)
                except ix.InvalidVector as error:
                    if error.loc:
                        error.loc = (len(ranked) + int(error.loc[0]), *error.loc[1:])
                    raise
            return show(ranked)

        return self._context.pools.batches.run(work)

    def _search_and_show(
        self, queries: Sequence[QueryRequest], show: Callable[[Sequence[RankedHits]], T]
    ) -> T:
        """Search for queries with an answer each, and return what ``show`` makes of the hits."""
        return show(self._search(queries))

    def _search(
        self, queries: Sequence[QueryRequest], size: AnswerBytes | None = None
    ) -> list[RankedHits]:
        """Search, count the cost, and return what the answers show.

        Parameters
        ----------
        queries : sequence of QueryRequest
        size : AnswerBytes or None
            Of the one answer to all; None where each query has its own.

        Raises
        ------
        AnswerTooLarge
        """
        start = time.perf_counter()
        found, costs = search_batch(self.stored, queries)
        seconds = (time.perf_counter() - start) / max(1, len(found))
        each = queries if len(queries) == len(found) else [queries[0]] * len(found)
        limit = self._context.max_answer_bytes
        ranked = [
            self._ranked(asked, result, seconds, size or AnswerBytes(limit))
            for asked, result in zip(each, found, strict=True)
        ]
        self._context.metrics.searched(costs)
        return ranked

    def _ranked(
        self, asked: QueryRequest, result: ix.QueryResult, seconds: float, size: AnswerBytes
    ) -> RankedHits:
        """Return what an answer shows; ``seconds`` is the mean of one query.

        Raises
        ------
        AnswerTooLarge
        """
        payloads = result.payloads if asked.with_payload else None
        if asked.is_shown:
            size.add_hits(result.ids, payloads)
        return RankedHits(
            result.ids,
            result.scores,
            payloads,
            self._vectors(result.hits, size) if asked.with_vector else None,
            result.explanation if asked.explain else None,
            measured_recall(self.stored, asked) if asked.explain else None,
            seconds,
        )

    def _vectors(self, hits: Sequence[ix.ScoredItem], size: AnswerBytes) -> list[Any]:
        """Return the vectors of hits; Python's numbers are made of a few at a time."""
        found: list[Any] = []
        for first in range(0, len(hits), _VECTORS_AT_ONCE):
            some = self.stored.vectors(hits[first : first + _VECTORS_AT_ONCE])
            size.add_vectors(some)
            found += map(vector_json, some)
        return found

    def _entries(self) -> int:
        """Return about how many numbers a scan of the collection reads."""
        config = self.config
        is_dense = config.form == "dense" and config.dim is not None
        return len(self.stored) * (config.dim or 0 if is_dense else _TYPICAL_NONZEROS)

    def _may_block(self, asked: QueryRequest) -> bool:
        """Return whether a search may read files, or compile kernels as the first of its kind."""
        is_compared = self.config.backend.kind not in _WARMED_UP
        may_compile = is_compared or asked.backend is not None or asked.params.rerank != "gmm"
        return may_compile or asked.may_block

    # Writing

    def put(self, items: ix.ItemBatch, mode: ix.Mode) -> ix.WriteResult:
        """Put items, all or none."""
        return self.stored.put(items, mode)

    def prepare(
        self,
        items: ix.ItemBatch,
        mode: ix.Mode,
        *,
        keeps_payloads: bool,
        progress: Callable[[ix.WriteResult], ix.LoadRecord] | None,
    ) -> Callable[[], ix.WriteResult]:
        """Check and hash items; return what puts them, to be called once."""
        stored = self.stored
        write = stored.prepare(items, mode, keeps_payloads=keeps_payloads, progress=progress)
        return partial(stored.commit, write)

    def submit(
        self,
        read: Callable[[], ix.ItemBatch],
        mode: ix.Mode,
        ended: Callable[[ix.WriteResult | BaseException], None],
        run: Callable[[Callable[[], None], Callable[[], None]], None],
    ) -> None:
        """Put items without a thread that waits for them."""
        self.stored.submit(read, mode, ended, run)

    def delete(self, ids: Sequence[str]) -> int:
        """Delete items, and return how many there were."""
        return self.stored.delete(ids)

    def delete_where(self, where: ix.Filter) -> int:
        """Delete all items whose payloads pass a filter, and return how many did."""
        return self.stored.delete_where(where)

    def set_names(self, names: Sequence[str]) -> None:
        """Give the first coordinates their names."""
        self.stored.set_names(names)

    def replace_metadata(self, value: bytes | None) -> None:
        """Replace the metadata, JSON text of an object; None removes it."""
        self.stored.metadata.replace(value)

    def loads(self, since: int, key: str | None = None) -> list[ix.LoadRecord]:
        """Return how far loads under keys have come."""
        return self.stored.loads(since, key)

    def save_load(self, record: ix.LoadRecord, forgotten: int) -> None:
        """Store how far a load has come."""
        self.stored.save_load(record, forgotten)

    def attach(self, params: ix.BackendParams, name: str | None) -> ix.BackendDescription:
        """Attach a comparison backend."""
        return self.stored.attach(params, name)

    def detach(self, name: str) -> None:
        """Drop a comparison backend."""
        self.stored.detach(name)

    # Reading

    def get(self, item_id: str) -> ix.StoredItem:
        """Return an item."""
        return self.stored.get(item_id)

    def page(
        self,
        *,
        limit: int,
        cursor: str | None,
        with_vector: bool,
        where: ix.Filter | None,
        ids: Sequence[str] | None,
    ) -> ix.Page:
        """Return items in the order in which they were put."""
        return self.stored.page(
            limit=limit, cursor=cursor, with_vector=with_vector, where=where, ids=ids
        )

    def count(self, where: ix.Filter | None) -> int:
        """Return the number of items, or of those whose payloads pass a filter."""
        return self.stored.items.count(where)

    def find_names(self, prefix: str = "", limit: int = 20) -> list[ix.NamedCoordinate]:
        """Return the first coordinates that have names."""
        return self.stored.find_names(prefix, limit)

    def describe(self) -> ix.Description:
        """Return all there is to know of the collection."""
        return self.stored.describe()

    def curve(self, limit: int) -> ix.CostCurve:
        """Return what recall costs for a limit."""
        return self.stored.memory.curve(limit)

    def audited(self) -> AuditedQueries:
        """Return recall asked against recall found."""
        audit = self.stored.audit
        return AuditedQueries([*map(asdict, audit.results())], audit.allowance, audit.waiting)

    def compare(
        self,
        queries: Sequence[ix.RawBatch | ix.SparseVector] | None,
        params: ix.SearchParams,
        *,
        sample: int,
        seed: int,
        backends: Sequence[str] | None,
        stop: threading.Event,
    ) -> ix.Comparison:
        """Search for the same by several backends."""
        return self.stored.compare(
            queries, params, sample=sample, seed=seed, backends=backends, stop=stop
        )

    def explain(self, a: Point, b: Point, *, limit: int) -> ix.Explained:
        """Return what each coordinate adds to a similarity."""
        return self.stored.explain(a, b, limit=limit)

    def sketch(
        self, vectors: ix.RawBatch | ix.SparseVector, encoding: ix.Encoding
    ) -> ix.Signatures | ix.AnyArray:
        """Return the samples of vectors, or their b-bit codes."""
        return self.stored.sketch(vectors, encoding)

    def pairs(
        self, *, min_score: float, recall: float, limit: int | None, stop: threading.Event
    ) -> list[tuple[str, str, float]]:
        """Return near-duplicate pairs; soon, once ``stop`` is set."""
        return self.stored.pairs(min_score=min_score, recall=recall, limit=limit, stop=stop)

    def map_items(
        self, params: ix.MapParams, where: ix.Filter | None, also: Sequence[Point]
    ) -> ix.ItemMap:
        """Return places in a plane for a sample of the items."""
        return ix.map_items(self.stored.memory, params, where=where, also=also)

    def profile(self, sample: int, seed: int) -> ix.Profile:
        """Return histograms of a sample of the items."""
        return ix.profile(self.stored.memory, sample=sample, seed=seed)


def _certain_hits(asked: QueryRequest, items: int) -> int:
    """Return how many hits queries have, where neither a score nor a filter leaves any out."""
    if asked.params.min_score or asked.where is not None or not asked.is_shown:
        return 0
    shown = min(asked.params.limit, items - asked.offset)
    return max(0, shown) * (1 if asked.vectors is None else len(asked.vectors))


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


def search(collection: ix.StoredCollection, query: QueryRequest) -> Sequence[ix.QueryResult]:
    """Return one result a query.

    Raises
    ------
    BackendNotFound, ItemNotFound
    InvalidVector
        The transform leaves nothing of a vector; its place begins with the row.
    """
    if query.vectors is not None:
        return collection.search(
            query.vectors, query.params, where=query.where, backend=query.backend
        )
    if query.with_unknown is not None:
        found = collection.search_with_unknown(
            query.with_unknown, query.params, where=query.where, backend=query.backend
        )
        return [found]
    around = collection.search_around(
        str(query.item_id), query.params, where=query.where, backend=query.backend
    )
    return [around]


def search_batch(
    collection: ix.StoredCollection, queries: Sequence[QueryRequest]
) -> tuple[Sequence[ix.QueryResult], list[ix.Total]]:
    """Return one result a query, in order, and what they cost; one a vector of an only query.

    Queries that ask for the same are searched together.

    Raises
    ------
    BackendNotFound, ItemNotFound
    InvalidVector
        The transform leaves nothing of a vector; its place begins with the query's number.
    """
    if len(queries) == 1:
        alone = search(collection, queries[0])
        found = [*alone]
        return found, found[0].totals() if len(found) == 1 else totals(alone)
    results: dict[int, ix.QueryResult] = {}
    costs: list[ix.Total] = []
    groups: dict[Hashable, list[int]] = {}
    for number, query in enumerate(queries):
        if query.vectors is None:
            try:
                [results[number]] = search(collection, query)
            except ix.InvalidVector as error:
                error.loc = (number, *error.loc[1:])
                raise
            costs += results[number].totals()
        else:
            groups.setdefault(query.group, []).append(number)
    for numbers in groups.values():
        rows = [rows for number in numbers if (rows := queries[number].vectors) is not None]
        together = queries[numbers[0]]._replace(vectors=ix.concatenate(rows))
        try:
            some = search(collection, together)
        except ix.InvalidVector as error:
            row, *rest = error.loc
            error.loc = (numbers[int(row)], *rest)
            raise
        results.update(zip(numbers, some, strict=True))
        costs += totals(some)
    return [results[number] for number in range(len(queries))], costs


def measured_recall(collection: ix.StoredCollection, asked: QueryRequest) -> float | None:
    """Return what audited queries of this kind found; None where there are none."""
    if asked.backend not in (None, "gcws"):
        return None
    audited = collection.audit.of(asked.params)
    return None if audited is None else audited.found


def totals(found: Sequence[ix.QueryResult]) -> list[ix.Total]:
    """Return what searches cost, by method."""
    if isinstance(found, ix.QueryResults):
        return found.totals()
    return [total for result in found for total in result.totals()]
