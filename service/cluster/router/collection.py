"""One collection of a cluster as routes call it; see `CollectionProtocol`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from gcws_search import index as ix
from gcws_search.service.cluster.contract import ChangeSet, CollectionRow, Moment, Row, bucket_of
from gcws_search.service.cluster.database.committer import Committer, PreparedDelete, PreparedPut
from gcws_search.service.cluster.database.database import Database
from gcws_search.service.cluster.errors import FormerPrimary
from gcws_search.service.cluster.messages import (
    Message,
    filter_text,
    packed,
    packed_sparse,
    packed_vectors,
)
from gcws_search.service.cluster.router import descriptions, pairs, samples
from gcws_search.service.cluster.router.gathering import (
    PART_ROWS,
    GatheredHits,
    QueryGathering,
    found_in_parts,
)
from gcws_search.service.cluster.router.merging import (
    MergedHits,
    ShardHits,
    explanation,
    measured_recall,
    merged,
    totals,
)
from gcws_search.service.cluster.router.replicas import ShardSet
from gcws_search.service.contract import JsonVector, Point, RankedHits
from gcws_search.service.execution.query_request import QueryRequest
from gcws_search.service.guards.limits import AnswerBytes
from gcws_search.service.http.errors import ShardUnavailable, StoreUnavailable
from gcws_search.service.telemetry.metrics import Metrics

T = TypeVar("T")

_SMALL_WRITE: Final = 16
"""Writes of more concern all shards."""


@dataclass(frozen=True, slots=True)
class RouterContext:
    """What collections of a cluster need besides themselves.

    Attributes
    ----------
    threads
        Of samples that are looked at here.
    max_pairs
        More near-duplicate pairs are not listed at once.
    """

    database: Database
    shards: ShardSet
    metrics: Metrics
    max_answer_bytes: int
    threads: int | None
    max_pairs: int


class ClusterCollection:
    """A collection whose items are in a database and on shards."""

    def __init__(self, row: CollectionRow, context: RouterContext) -> None:
        self.number = row.number
        self.name = row.name
        self.config = ix.CollectionConfig.from_dict(row.config)
        self.context = context
        self.empty = samples.in_memory(row.name, self.config)
        """It has no items; sketches and explanations need none."""
        self.space = self.empty.space
        self.names = self.empty.names
        if self.names.is_open:
            self.names.allocate = self._allocate
        self.committer = Committer(context.database, row.number, row.name, self._publish)
        self.names_read = 0
        """Key of the last change whose names are known here."""
        self._gathering = QueryGathering()

    def _allocate(self, names: Sequence[str]) -> list[ix.NamedCoordinate]:
        found = self.context.database.reserve_names(self.number, names).items()
        return [ix.NamedCoordinate(coordinate, name) for name, coordinate in found]

    def load_names(self) -> None:
        """Read all names, unless nothing has changed since they were read."""
        head = max(1, self.context.database.head(self.number))
        if self.names_read >= head:
            return
        stored = self.context.database.names(self.number)
        named = [ix.NamedCoordinate(*each) for each in stored]
        if self.names.is_open:
            self.names.add(named)  # those of items under way stay
        else:
            self.names.load(named)
        self.names_read = head

    # Asking shards

    def head(self, method: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the head of a message about this collection, as it is after our last write."""
        return {
            "method": method,
            "collection": self.number,
            "at": self.committer.last.key,
            "since": self.committer.last.epoch,
            "epoch": self.context.shards.epoch,
            "seconds": self.context.shards.seconds,
            **more,
        }

    def ask(self, method: str, timeout: float | None = None, **more: Any) -> list[Message]:  # noqa: ANN401
        """Return each shard's answer; called in a thread."""
        shards = self.context.shards
        with self._named():
            return shards.wait(shards.ask_all(Message(self.head(method, **more)), timeout))

    def ask_some(self, method: str) -> tuple[list[Message], list[int]]:
        """Return the answers of the shards that answer, and the others; called in a thread."""
        shards = self.context.shards
        data = [packed(Message(self.head(method)))] * len(shards)
        try:
            with self._named():
                return shards.wait(shards.ask_some(data))
        except ShardUnavailable as error:
            return [], [*error.missing]

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Say what has become of a collection that shards do not know; called in a thread."""
        try:
            yield
        except ix.CollectionNotFound:
            raise self._not_found() from None

    def _not_found(self) -> Exception:
        """Return why shards do not know the collection: it was dropped, or replaced just now."""
        is_replaced = self.context.database.find(self.name) is not None
        return ix.CollectionLoading(self.name) if is_replaced else ix.CollectionNotFound(self.name)

    def _publish(self, change: ChangeSet) -> None:
        self.context.shards.publish(self.number, change, self.context.database.buckets)

    # Searching

    async def search(self, asked: QueryRequest, show: Callable[[Sequence[RankedHits]], T]) -> T:
        """Search for one query, or for several vectors that ask for the same."""
        parts = await self._found(asked)
        return show(self._ranked([(asked, *each) for each in self._counted(parts)]))

    def _counted(self, parts: Sequence[GatheredHits]) -> list[tuple[GatheredHits, MergedHits]]:
        """Return the hits of each query, in order, and count them."""
        for found in parts:
            self.context.metrics.searched(totals(found.shards) if len(found.hits) else ())
        return [(found, hits) for found in parts for hits in found.hits]

    async def search_batch(
        self, asked: Sequence[QueryRequest], show: Callable[[Sequence[RankedHits]], T]
    ) -> T:
        """Search for many queries; those that ask for the same are searched together."""
        groups: dict[Hashable, list[int]] = {}
        for number, one in enumerate(asked):
            is_alone = one.vectors is None
            groups.setdefault((number,) if is_alone else one.group, []).append(number)
        work = [self._found_together(asked, numbers) for numbers in groups.values()]
        groups_found = await asyncio.gather(*work)
        results: dict[int, list[tuple[QueryRequest, GatheredHits, MergedHits]]] = {}
        for numbers, parts in zip(groups.values(), groups_found, strict=True):
            each = iter(self._counted(parts))
            for number in numbers:
                vectors = asked[number].vectors
                count = 1 if vectors is None else len(vectors)
                results[number] = [(asked[number], *next(each)) for _ in range(count)]
        lines = [line for number in range(len(asked)) for line in results[number]]
        return await asyncio.to_thread(lambda: show(self._ranked(lines)))

    async def _found_together(
        self, asked: Sequence[QueryRequest], numbers: Sequence[int]
    ) -> list[GatheredHits]:
        one = asked[numbers[0]]
        if len(numbers) > 1:
            rows = [rows for number in numbers if (rows := asked[number].vectors) is not None]
            one = one._replace(vectors=ix.concatenate(rows))
        try:
            return await self._found(one)
        except ix.InvalidVector as error:
            if len(asked) > 1:
                row, *rest = error.loc
                error.loc = (numbers[int(row)] if len(numbers) > 1 else numbers[0], *rest)
            raise

    async def _found(self, asked: QueryRequest) -> list[GatheredHits]:
        """Return the hits of the vectors of a request in parts, or of its only query."""
        params, more = asked.params, dict[str, Any]()
        if asked.is_strict:
            database = self.context.database
            moment = await asyncio.to_thread(database.last_moment, self.number)
            more |= {"at": moment.key, "since": moment.epoch}
        vectors = asked.vectors
        if asked.item_id is not None:
            vectors = await self._vector_of(asked.item_id, more)
            more["skip"] = asked.item_id
        elif asked.with_unknown is not None:
            more["unknown"] = packed_sparse(asked.with_unknown)
        elif vectors is not None:
            shown = asked.with_payload, asked.with_vector
            group = asked.group, shown, more.get("since"), more.get("at")
            search = partial(self._search, asked, more=more)
            if len(vectors) > PART_ROWS:
                return await found_in_parts(vectors, params.limit, search)
            return [await self._gathering.search(group, vectors, params.limit, search)]
        start = time.perf_counter()
        shards, missing = await self._search(asked, vectors, more)
        seconds = time.perf_counter() - start
        return [GatheredHits(shards, merged(shards, params.limit), seconds, missing)]

    async def _search(
        self, asked: QueryRequest, vectors: ix.RawBatch | None, more: dict[str, Any]
    ) -> tuple[list[ShardHits], list[int]]:
        said, blobs = ({}, []) if vectors is None else packed_vectors(vectors)
        head = self.head(
            "search",
            params=asdict(asked.params),
            filter=asked.filter_text.decode() or None,
            backend=asked.backend,
            with_payload=asked.with_payload,
            with_vector=asked.with_vector,
            max_bytes=self.context.max_answer_bytes,
        )
        shards = self.context.shards
        message = packed(Message(head | said | more, blobs))
        try:
            answers, missing = await shards.ask_some([message] * len(shards))
        except ix.CollectionNotFound:
            raise await asyncio.to_thread(self._not_found) from None
        if missing and not asked.allow_partial:
            raise ShardUnavailable(missing, len(shards))
        return [ShardHits.of(answer) for answer in answers], missing

    async def _vector_of(self, item_id: str, more: dict[str, Any]) -> ix.RawBatch:
        """Return an item's vector, from the shard that has it."""
        found = await samples.fetched(self, item_id, more)
        if not len(found):
            raise ix.ItemNotFound(item_id)
        return found.vectors

    def _ranked(
        self, lines: Sequence[tuple[QueryRequest, GatheredHits, MergedHits]]
    ) -> list[RankedHits]:
        """Return what the answers show."""
        shown, size = [], AnswerBytes(self.context.max_answer_bytes)
        for asked, found, hits in lines:
            ids, scores = hits.ids, hits.scores
            payloads, places = None, list[tuple[int, int]]()
            if asked.with_payload or asked.with_vector:
                places = hits.places()
            if asked.with_payload:
                payloads = [found.shards[shard].payload(place) for shard, place in places]
            if asked.is_shown:
                size.add_hits(ids, payloads)
            shown.append((ids, scores, places, payloads))
        return [
            RankedHits(
                ids,
                scores,
                payloads,
                self._vectors(found.shards, places, size) if asked.with_vector else None,
                explanation(found.shards, hits) if asked.explain else None,
                measured_recall(found.shards, hits) if _is_audited(asked) else None,
                found.seconds,
                found.asked if asked.explain or asked.allow_partial else None,
            )
            for (asked, found, hits), (ids, scores, places, payloads) in zip(
                lines, shown, strict=True
            )
        ]

    def _vectors(
        self, shards: Sequence[ShardHits], places: Sequence[tuple[int, int]], size: AnswerBytes
    ) -> list[JsonVector | None]:
        found: list[JsonVector | None] = []
        for shard, place in places:
            raw, is_deleted = shards[shard].vectors, place in shards[shard].deleted
            found.append(None if raw is None or is_deleted else self.space.to_json(raw, place))
            size.add_vectors(found[-1:])
        return found

    # Writing

    def put(self, items: ix.ItemBatch, mode: ix.Mode) -> ix.WriteResult:
        """Put items, all or none."""
        write = self.prepare(items, mode)
        result = self.committer.commit(write)
        self._stored(write)
        self.wait_until_found()
        return result

    def prepare(
        self,
        items: ix.ItemBatch,
        mode: ix.Mode,
        *,
        keeps_payloads: bool = False,
        progress: Callable[[ix.WriteResult], ix.LoadRecord] | None = None,
    ) -> PreparedPut:
        """Return items as the database takes them.

        Raises
        ------
        InvalidId, InvalidVector
        ItemExists
            The mode is "insert" and an id comes twice.
        """
        return samples.prepared(
            self.space, self.names, items, mode, keeps_payloads=keeps_payloads, progress=progress
        )

    def commit(self, write: PreparedPut) -> ix.WriteResult:
        """Put items; return once shards have what came before, while they take these in."""
        before = self.committer.last
        result = self.committer.commit(write)
        self._stored(write)
        shards, last = self.context.shards, self.committer.last
        shards.begin(shards.follow(self.number, last))
        shards.wait(shards.follow(self.number, before))
        self._require_last_primary(last)
        return result

    def _stored(self, write: PreparedPut) -> None:
        self.names.stored((coordinate, "") for coordinate in write.names)

    def _concerned(self, ids: Sequence[str | None]) -> set[int] | None:
        """Return the shards that have items of a few ids; None for all, unless all are known."""
        known = [item_id for item_id in ids if item_id is not None]
        if len(ids) > _SMALL_WRITE or len(known) < len(ids):
            return None
        buckets, shards = self.context.database.buckets, len(self.context.shards)
        return {bucket_of(item_id, buckets) % shards for item_id in known}

    def wait_until_found(self) -> None:
        """Return when all replicas that are there have what was put, or after a second."""
        shards, last = self.context.shards, self.committer.last
        shards.wait(shards.follow(self.number, last))
        if last.epoch:  # something was stored
            self._require_last_primary(last)

    def _require_last_primary(self, stored: Moment) -> None:
        """Raise StoreUnavailable where a shard knows of a later primary than the one that stored."""
        try:
            self.context.database.connections.require(stored.epoch)
        except FormerPrimary as error:
            raise StoreUnavailable(f"{error}; the write may be stored") from None

    def submit(
        self,
        read: Callable[[], ix.ItemBatch],
        mode: ix.Mode,
        ended: Callable[[ix.WriteResult | BaseException], None],
        run: Callable[[Callable[[], None], Callable[[], None]], None],
    ) -> None:
        """Put items without a thread that waits for them."""
        loop, prepared = asyncio.get_running_loop(), list[PreparedPut]()

        def prepare() -> PreparedPut:
            prepared.append(self.prepare(read(), mode))
            return prepared[-1]

        async def follow(result: ix.WriteResult) -> None:
            outcome: ix.WriteResult | BaseException = result
            try:
                last, ids = self.committer.last, prepared[-1].ids
                await self.context.shards.follow(self.number, last, self._concerned(ids))
                self._require_last_primary(last)
            except StoreUnavailable as error:
                outcome = error
            finally:
                ended(outcome)

        def committed(outcome: ix.WriteResult | BaseException) -> None:
            if isinstance(outcome, BaseException):
                ended(outcome)
                return
            self._stored(prepared[-1])
            asyncio.run_coroutine_threadsafe(follow(outcome), loop)

        self.committer.submit(prepare, committed, run)

    def delete(self, ids: Sequence[str]) -> int:
        """Delete items, and return how many there were."""
        return self._delete(PreparedDelete(ids=[*dict.fromkeys(ids)]))

    def delete_where(self, where: ix.Filter) -> int:
        """Delete all items whose payloads pass a filter, and return how many did."""

        def choose(head: int) -> list[str]:
            since = self.context.database.connections.memory.number
            answers = self.ask("rows", filter=filter_text(where), at=head, since=since)
            return [item_id for answer in answers for item_id in samples.ids_of(answer)]

        return self._delete(PreparedDelete(choose=choose))

    def _delete(self, write: PreparedDelete) -> int:
        deleted = self.committer.commit(write)
        if deleted:
            self.wait_until_found()
        return deleted

    def set_names(self, names: Sequence[str]) -> None:
        """Give the first coordinates their names."""
        named = ix.checked_names(names, self.config.dim)
        self.context.database.replace_names(self.number, named)
        self.names.load(named)

    def replace_metadata(self, value: bytes | None) -> None:
        """Replace the metadata, JSON text of an object; None removes it."""
        ix.check_metadata(value)
        self.context.database.replace_metadata(self.number, value)

    def loads(self, since: int, key: str | None = None) -> list[ix.LoadRecord]:
        """Return how far loads under keys have come."""
        return self.context.database.loads(self.number, since, key)

    def save_load(self, record: ix.LoadRecord, forgotten: int) -> None:
        """Store how far a load has come."""
        self.context.database.save_load(self.number, record, forgotten)

    def attach(self, params: ix.BackendParams, name: str | None) -> ix.BackendDescription:
        """Attach a comparison backend on all shards."""
        return descriptions.attached(self, params, name)

    def detach(self, name: str) -> None:
        """Drop a comparison backend."""
        descriptions.detach(self, name)

    # Reading

    def _item(self, row: Row, *, with_vector: bool = True) -> ix.StoredItem:
        vector = None
        if with_vector:
            vector = self.space.to_json(self.space.from_blobs([row.vector]), 0)
        return ix.StoredItem(row.id, vector, row.payload)

    def get(self, item_id: str) -> ix.StoredItem:
        """Return an item."""
        row = self.context.database.fetch(self.number, [item_id]).get(item_id)
        if row is None:
            raise ix.ItemNotFound(item_id)
        return self._item(row)

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
        if limit < 1:
            raise ix.InvalidParameter(expected="at least 1", got=str(limit), loc=("limit",))
        database, after = self.context.database, ix.sequence_of(cursor)
        if ids is not None:
            rows = sorted(database.fetch(self.number, [*dict.fromkeys(ids)]).values())
            rows = [row for row in rows if row.key > after][: limit + 1]
        elif where is not None:
            answers = self.ask("rows", filter=filter_text(where), after=after, limit=limit + 1)
            keys = sorted(key for answer in answers for key in samples.keys_of(answer))
            rows = database.at(self.number, keys[: limit + 1])
        else:
            rows = database.page(self.number, after=after, limit=limit + 1, with_vector=with_vector)
        shown = rows[:limit]
        next_cursor = str(shown[-1].key) if len(rows) > limit else None
        return ix.Page([self._item(row, with_vector=with_vector) for row in shown], next_cursor)

    def count(self, where: ix.Filter | None) -> int:
        """Return the number of items, or of those whose payloads pass a filter."""
        text = None if where is None else filter_text(where)
        return sum(int(answer.head["count"]) for answer in self.ask("count", filter=text))

    def find_names(self, prefix: str = "", limit: int = 20) -> list[ix.NamedCoordinate]:
        """Return the first coordinates that have names."""
        found = self.context.database.find_names(self.number, prefix, limit)
        return [ix.NamedCoordinate(*each) for each in found]

    def describe(self) -> ix.Description:
        """Return all there is to know of the collection."""
        return descriptions.described(self)

    def summary(self) -> ix.Summary:
        """Return one line of the list of collections."""
        return descriptions.summed_up(self)

    def curve(self, limit: int) -> ix.CostCurve:
        """Return what recall costs for a limit, on all shards together."""
        return descriptions.curve(limit, self.ask("curve", limit=limit))

    def audited(self) -> ix.AuditedQueries:
        """Return recall asked against recall found."""
        return descriptions.audited(self.ask("audited"))

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
        """Search for the same by several backends, each shard among its own items."""
        return descriptions.compared(
            self, queries, params, sample=sample, seed=seed, backends=backends, stop=stop
        )

    def explain(self, a: Point, b: Point, *, limit: int) -> ix.Explained:
        """Return what each coordinate adds to a similarity."""
        first, second = (self._given(each) for each in (a, b))
        return self.empty.explain(first, second, limit=limit)

    def _given(self, point: Point) -> Any:  # noqa: ANN401  # whatever `explain` takes
        """Return a vector as it is, and an item's in the place of its id."""
        if not isinstance(point, str):
            return point
        row = self.context.database.fetch(self.number, [point]).get(point)
        if row is None:
            raise ix.ItemNotFound(point)
        return samples.given(self.space, row)

    def sketch(
        self, vectors: ix.RawBatch | ix.SparseVector, encoding: ix.Encoding
    ) -> ix.Signatures | ix.AnyArray:
        """Return the samples of vectors, or their b-bit codes."""
        return self.empty.sketch(vectors, encoding)

    def pairs(
        self, *, min_score: float, recall: float, limit: int | None, stop: threading.Event
    ) -> list[tuple[str, str, float]]:
        """Return near-duplicate pairs; soon, once ``stop`` is set."""
        return pairs.pairs(self, min_score=min_score, recall=recall, limit=limit, stop=stop)

    def map_items(
        self, params: ix.MapParams, where: ix.Filter | None, also: Sequence[Point]
    ) -> ix.ItemMap:
        """Return places in a plane for a sample of the items."""
        text = None if where is None else filter_text(where)
        with samples.drawn(self, params.sample, params.seed, text) as sample:
            placed = [self._placed(each, sample) for each in also]
            return ix.map_items(sample.memory, params, also=placed)

    def _placed(self, point: Point, sample: ix.StoredCollection) -> Any:  # noqa: ANN401
        """Return an item of a sample by its id, which leaves it out of its neighbours."""
        is_there = isinstance(point, str) and sample.memory.locate(point)[1] is not None
        return point if is_there else self._given(point)

    def profile(self, sample: int, seed: int) -> ix.Profile:
        """Return histograms of a sample of the items."""
        with samples.drawn(self, sample, seed, None) as found:
            profile = ix.profile(found.memory, sample=sample, seed=seed)
        return replace(profile, items=self.context.database.count(self.number))

    def close(self) -> None:
        """Let nothing be written through this object any more."""
        self.empty.close(dropped=True)


def _is_audited(asked: QueryRequest) -> bool:
    return asked.explain and asked.backend in (None, "gcws")
