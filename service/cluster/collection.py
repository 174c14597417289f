"""One collection of a cluster, with the interface of `index.StoredCollection`."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections import defaultdict
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Iterator,
    Sequence,
    Set,
)
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import orjson

from gcws_search import index as ix
from gcws_search.service.cluster import duplicates, operations
from gcws_search.service.cluster.committer import (
    Committer,
    GroupPlan,
    PreparedChoice,
    PreparedPut,
    PreparedWrite,
)
from gcws_search.service.cluster.contract import (
    CollectionRow,
    FormerPrimary,
    Moment,
    Row,
    bucket_of,
    encode_filter,
    items_of,
)
from gcws_search.service.cluster.names import free_names
from gcws_search.service.contract import QueryRequest, group_queries, number_errors
from gcws_search.service.errors import AnswerTooLarge, Refused, ShardUnavailable, StoreUnavailable
from gcws_search.service.limits import AnswerBytes
from gcws_search.service.messages import Message, encode_sparse
from gcws_search.service.searches import Batcher

if TYPE_CHECKING:
    from gcws_search.service.cluster.catalog import ClusterCatalog

T = TypeVar("T")

_BUILD_SECONDS: Final = 0.1  # how often shards are asked whether a backend is ready
# Messages in flight for one group of queries; later queries are sent together.
_MAX_CALLS: Final = 2
PART_ROWS: Final = 256  # queries of one request that are sent in one message
_LEARNING: Final = "learning"
_LEARNED_AT_ONCE: Final = 2048  # items per batch when weights are learned
_SMALL_WRITE: Final = 16  # a larger write is assumed to concern all shards


class ClusterCollection:
    """A collection whose items are in a database and on shards.

    Each message asks shards for the state after the last write.
    """

    def __init__(
        self,
        row: CollectionRow,
        router: ClusterCatalog,
        former: ClusterCollection | None = None,  # an earlier generation
    ) -> None:
        self.row = row
        self.number = row.number
        self.name = row.name
        self.config = ix.CollectionConfig.from_dict(row.config)
        self.router = router
        self.database = router.database
        self.shards = router.shards
        self.empty = self._in_memory()  # a collection in memory without items
        self.space = self.empty.space
        self.names = self.empty.names
        if self.names.is_open:
            reserve = self.database.reserve_names
            self.names.allocate = lambda names, former: [
                ix.NamedCoordinate(coordinate, name)
                for name, coordinate in reserve(self.number, names, former).items()
            ]
        self._arrangements: dict[Hashable, ix.Arrangement] = {}  # by parameters
        self.names_read = -1  # key of the last change whose names were read
        self._first_name = 0  # first coordinate at which other routers may add names
        self._naming = threading.Lock()
        # Moment of the last write. A client that waited for its write must find it.
        if former is None:
            self.committer = Committer(self.database, row.number, row.name)
        else:
            self.committer = former.committer
            self.names.load(former.names.listed())
        buckets = self.database.buckets
        self.committer.publish = lambda change: self.shards.publish(row.served, change, buckets)
        # An error may concern one query alone, or the total size of all answers.
        self._batcher = Batcher(
            _MAX_CALLS, lambda error: isinstance(error, ix.InvalidVector | AnswerTooLarge)
        )

    @property
    def clock(self) -> Callable[[], float]:
        return self.database.clock

    # Asking shards

    def _in_memory(self, threads: int | None = None) -> ix.StoredCollection:
        """Return an empty collection in memory, with the same transforms as on the shards."""
        config = replace(self.config, storage="memory", ttl=None)
        found = ix.StoredCollection.in_memory(self.name, config, threads=threads)
        if (weights := self.learned_weights()) is not None:
            found.use_weights(weights)
        return found

    def learned_weights(self) -> ix.Weights | None:
        """Return the learned weights of this generation; None if it has those of its creation."""
        return None if self.row.weights is None else ix.Weights.from_text(self.row.weights)

    def head(self, method: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the head of a message about this collection."""
        return {
            "method": method,
            "collection": self.row.served,
            **_as_of(self.committer.last),
            "now": self.database.now_ms,  # items that expire before it are hidden
            "epoch": self.shards.epoch,
            "seconds": self.shards.seconds,
            **more,
        }

    def ask(
        self,
        method: str,
        seconds: float | None = None,
        stop: threading.Event | None = None,
        blobs: Sequence[bytes | memoryview] = (),
        **more: Any,  # noqa: ANN401
    ) -> list[Message]:
        """Return each shard's answer; called in a thread."""
        message = Message(self.head(method, **more), blobs)
        return self.wait(self.shards.ask(message, seconds), stop)

    def wait(self, asked: Coroutine[Any, Any, T], stop: threading.Event | None = None) -> T:
        """Run a coroutine that asks shards about this collection; called in a thread."""
        try:
            return self.shards.wait(asked, stop)
        except ix.CollectionNotFound:
            raise self.database.not_found(self.name) from None

    def refresh_backends(self) -> list[Message]:
        """Make all replicas reload the list of comparison backends; return their answers."""
        return self.wait(self.shards.tell(Message(self.head("refresh"))))

    def vector_of(self, point: Any, sample: ix.StoredCollection | None = None) -> Any:  # noqa: ANN401
        """Return a vector as it is; of an id the vector or text of the item.

        An id of an item in ``sample`` stays an id: an item is no neighbour of itself.
        """
        if not isinstance(point, str):
            return point
        if sample is not None and sample.memory.locate([point])[1] != [None]:
            return point
        row = self._row(point)
        if self.config.text is not None:
            return ix.Text(ix.item_text(row.payload))
        raw = self.space.from_blobs([row.vector])
        if raw.form == "dense":
            return raw.dense[0]
        return ix.SparseVector(raw.indices.astype(np.int64), raw.values)

    @contextmanager
    def lend_sample(
        self, count: int, seed: int, where: ix.Filter | None
    ) -> Iterator[ix.StoredCollection]:
        """Lend a collection in memory with some of the items."""
        items = self.sample(count, seed, where)
        sample = self._in_memory(self.router.settings.threads)
        try:
            sample.names.load(self.empty.names.listed())
            sample.memory.arrangements = self._arrangements
            sample.memory.content = _digest(items.vectors)
            if len(items):
                sample.put(items)
            yield sample
        finally:
            sample.close(dropped=True)

    def sample(self, count: int, seed: int, where: ix.Filter | None) -> ix.ItemBatch:
        """Return ``count`` random items that pass a filter, in the order of keys."""
        text = encode_filter(where)
        counts = [int(answer.head["count"]) for answer in self.ask("count", filter=text)]
        rng = np.random.default_rng(abs(seed))
        shares = rng.multivariate_hypergeometric(counts, min(max(count, 0), sum(counts)))
        head = self.head("rows", filter=text, seed=abs(seed), with_vector=True)
        questions = {shard: Message(head | {"sample": int(n)}) for shard, n in enumerate(shares)}
        answers = self.wait(self.shards.ask(questions, count=len(counts)))
        keys, parts = zip(*map(operations.decode_items, answers), strict=True)
        order = np.argsort(np.concatenate(keys))
        return ix.ItemBatch.concatenate(parts).take(order.tolist())

    # Searching

    async def search(self, asked: QueryRequest, show: Callable[[Sequence[ix.QueryResult]], T]) -> T:
        lines = [(asked, hits) for hits in await self._find(asked)]
        if asked.where is not None and not all(hits.ids for _, hits in lines):  # hints take time
            return await asyncio.to_thread(lambda: show(self._limit(lines)))
        return show(self._limit(lines))

    async def search_batch(
        self, asked: Sequence[QueryRequest], show: Callable[[Sequence[ix.QueryResult]], T]
    ) -> T:
        """Search for many queries; queries with equal options are searched together."""
        if len(asked) == 1:  # it may have several vectors
            lines = [(asked[0], hits) for hits in await self._find(asked[0])]
        else:
            groups = group_queries(asked)
            work = [self._find_numbered(numbers, one) for numbers, one in groups]
            found = dict[int, ix.QueryResult]()
            for some in await asyncio.gather(*work, return_exceptions=True):
                if isinstance(some, BaseException):  # of the first wrong query, like one node
                    raise some
                found.update(some)
            lines = [(one, found[number]) for number, one in enumerate(asked)]
        return await asyncio.to_thread(lambda: show(self._limit(lines)))

    async def _find_numbered(
        self, numbers: Sequence[int], asked: QueryRequest
    ) -> Iterable[tuple[int, ix.QueryResult]]:
        with number_errors(numbers):
            return zip(numbers, await self._find(asked), strict=True)

    async def _find(self, asked: QueryRequest) -> list[ix.QueryResult]:
        """Search for a request's vectors, its item, or a query with unknown names."""
        more = dict[str, Any]()
        if asked.is_strict:
            more |= _as_of(await asyncio.to_thread(self.database.last_moment, self.number))
        ids, vectors = asked.item_ids, asked.vectors
        if ids:
            around = partial(self._find_around, asked, more)
            return await self._find_in_parts(len(ids), lambda part: around(ids[part]))
        if asked.with_unknown is not None:
            more["unknown"] = encode_sparse(asked.with_unknown)
        elif vectors is not None:
            return await self._find_vectors(asked, vectors, more)
        return await self._ask(asked, None, more)

    async def _find_around(
        self, asked: QueryRequest, more: dict[str, Any], ids: Sequence[str]
    ) -> list[ix.QueryResult]:
        """Read the vectors of items from their shards, and search for them in all."""
        head, count = self.head("rows", with_vector=True) | more, len(self.shards)
        of_shards = defaultdict[int, list[str]](list)
        for item_id in ids:
            of_shards[bucket_of(item_id, self.database.buckets) % count].append(item_id)
        questions = {shard: Message(head | {"ids": some}) for shard, some in of_shards.items()}
        answers = await self.shards.ask(questions, count=count)
        items = ix.ItemBatch.concatenate([operations.decode_items(each)[1] for each in answers])
        places = {item_id: place for place, item_id in enumerate(items.ids)}
        for item_id in ids:
            if item_id not in places:
                raise ix.ItemNotFound(item_id)
        vectors = items.vectors[np.array([places[item_id] for item_id in ids])]
        # A shard of 0.1.0 takes one id alone.
        return await self._ask(asked, vectors, more | {"skip": ids if len(ids) > 1 else ids[0]})

    async def _find_vectors(
        self, asked: QueryRequest, vectors: ix.RawBatch, more: dict[str, Any]
    ) -> list[ix.QueryResult]:
        """Search for vectors, together with concurrent requests with equal options."""
        if len(vectors) > PART_ROWS:
            ask = partial(self._ask, asked, more=more)
            return await self._find_in_parts(len(vectors), lambda part: ask(vectors[part]))
        group = asked.group, more.get("since"), more.get("at")

        async def find(waiting: Sequence[ix.RawBatch]) -> list[list[ix.QueryResult]]:
            found = iter(await self._ask(asked, ix.concatenate(waiting), more))
            return [[*islice(found, len(each))] for each in waiting]

        return await self._batcher.search(group, vectors, find, rows=len(vectors))

    async def _find_in_parts(
        self, count: int, find: Callable[[slice], Awaitable[list[ix.QueryResult]]]
    ) -> list[ix.QueryResult]:
        """Return the hits of many queries: merging overlaps with the search of the next ones."""
        if count <= PART_ROWS:
            return await find(slice(count))
        room = asyncio.Semaphore(_MAX_CALLS)

        async def find_from(first: int) -> list[ix.QueryResult]:
            async with room:
                with number_errors(range(first, first + PART_ROWS)):
                    return await find(slice(first, first + PART_ROWS))

        tasks = [asyncio.ensure_future(find_from(first)) for first in range(0, count, PART_ROWS)]
        try:
            return [*chain(*await asyncio.gather(*tasks))]
        finally:
            for task in tasks:
                task.cancel()

    async def _ask(
        self, asked: QueryRequest, vectors: ix.RawBatch | None, more: dict[str, Any]
    ) -> list[ix.QueryResult]:
        """Ask all shards in one message, and merge their hits."""
        start = time.perf_counter()
        message = operations.search_message(
            self.head("search"),
            vectors,
            asked.params,
            filter=asked.filter_text.decode() or None,
            backend=asked.backend,
            with_payload=asked.with_payload,
            with_vector=asked.with_vector,
            max_bytes=self.router.settings.max_answer_bytes,
            **more,
        )
        shards = self.shards
        try:
            answers, missing = await shards.ask_some(message)
        except ix.CollectionNotFound:
            raise await asyncio.to_thread(self.database.not_found, self.name) from None
        if missing and not asked.allow_partial:
            raise ShardUnavailable(missing, len(shards))
        seconds = (time.perf_counter() - start) / (1 if vectors is None else max(1, len(vectors)))
        found = [operations.ShardHits.decode(answer) for answer in answers]
        self.router.metrics.count_searches(operations.search_costs(found))
        return operations.merge_hits(found, asked, seconds, missing)

    def _limit(self, lines: Sequence[tuple[QueryRequest, ix.QueryResult]]) -> list[ix.QueryResult]:
        """Return the results as they are shown; AnswerTooLarge beyond the limit of bytes."""
        size = AnswerBytes(self.router.settings.max_answer_bytes)
        for asked, hits in lines:
            if asked.is_shown:
                size.add_hits(hits.ids, hits.payloads)
            if hits.vectors is not None:
                hits.vectors = [*self._show_vectors(hits.vectors, size)]
        return [hits for _, hits in lines]

    def _show_vectors(self, vectors: Iterable[Any], size: AnswerBytes) -> Iterator[Any]:
        for each in vectors:
            shown = None if each is None else self.space.to_json(*each)
            size.add_vectors([shown])
            yield shown

    # Writing

    def put(self, items: ix.ItemBatch, mode: ix.Mode) -> ix.WriteResult:
        result = self._store(self.prepare(items, mode))
        self.wait_until_found()
        return result

    def prepare(
        self,
        items: ix.ItemBatch,
        mode: ix.Mode,
        *,
        keeps_payloads: bool = False,
        progress: Callable[[ix.WriteResult], ix.LoadRecord] | None = None,
        versions: Sequence[int] = (),
    ) -> PreparedPut:
        """Return items encoded for the database; else InvalidId, InvalidVector or ItemExists.

        ``versions`` are those of copied items, whose ids are distinct.
        """
        freed, given = self.names.freed, items
        ix.check_ids(items.ids)
        places = ix.last_places(items.ids, mode)
        ix.require_distinct(items, places)
        if len(places) < len(items):
            items = items.take(places)
        if self.names.is_open:
            items = replace(items, vectors=self.names.renew(items.vectors))
        rows = self.space.prepare(items.vectors)
        coordinates, names, leave_out = 0, list[int](), None
        if self.names.is_open and len(rows.slots):
            coordinates = (int(rows.slots.max()) >> 1) + 1
        if isinstance(mode, ix.UnlessSimilar):
            leave_out = partial(self._ask_for_similar, items.vectors, rows, mode, names)
        elif coordinates:
            names += [each.coordinate for each in self.names.use(rows, set())]
        more: dict[str, Any] = {"keeps_payloads": keeps_payloads, "progress": progress}
        more["versions"] = versions
        return PreparedPut(
            ids=items.ids,
            vectors=self.space.to_blobs(items.vectors),
            payloads=items.payloads,
            places=places,
            mode=mode,
            coordinates=coordinates,
            names=names,
            if_versions=items.if_versions,
            expires=ix.with_ttl(items.expires, len(items), self.config.ttl, self.clock()),
            check=partial(
                self._check_under, items.vectors, freed, partial(self.prepare, given, mode, **more)
            ),
            leave_out=leave_out,
            **more,
        )

    def _check_under(
        self,
        vectors: ix.RawBatch,
        known_freed: int,
        prepare_again: Callable[[], PreparedPut],
        put: PreparedPut,
        generation: int,
        freed: int,
    ) -> PreparedPut:
        """Return a put with current coordinates of its names, if some names were freed since.

        InvalidVector if newly learned weights make a vector zero. CollectionLoading if the put is
        compared with other items: scores under other weights or coordinates differ.
        """
        if generation != self.row.generation:
            self.router.renew(self).space.prepare(vectors)
            if put.leave_out is not None:
                raise ix.CollectionLoading(self.name)
        if freed == known_freed:
            return put
        self.load_names()
        again = prepare_again()
        if put.leave_out is None:
            return again
        if again.vectors != put.vectors:
            raise ix.CollectionLoading(self.name)
        return put

    def _ask_for_similar(
        self,
        vectors: ix.RawBatch,
        rows: ix.VectorBatch,  # the same vectors after the transform
        unless: ix.UnlessSimilar,
        out_names: list[int],  # coordinates of reserved names of items that are left out
        head: int,
    ) -> Callable[[PreparedPut, GroupPlan], PreparedPut]:
        """Ask shards for similar items at a change; return a function that leaves these out."""
        moment = _as_of(Moment(self.database.connections.memory.number, head))

        def ask(some: ix.RawBatch, limit: int) -> Future[list[ix.QueryResult]]:
            params = ix.SearchParams(limit=limit, recall=unless.recall, min_score=unless.min_score)
            asked = QueryRequest(some, (), params, None, b"", None, False, False, False)
            return self.shards.begin(self._find_vectors(asked, some, moment))

        asked = ask(vectors, 1)

        def leave_out(put: PreparedPut, plan: GroupPlan) -> PreparedPut:
            plan.check_versions(put.ids, put.if_versions)
            found, changed = asked.result(), {*plan.ids_to_remove}
            again = [row for row, hits in enumerate(found) if not changed.isdisjoint(hits.ids)]
            if again:
                more = ask(vectors[np.array(again)], 1 + len(changed)).result()
                for row, hits in zip(again, more, strict=True):
                    found[row] = hits
            near: list[ix.Near | None] = []
            for hits in found:
                pairs = zip(hits.ids, hits.scores, strict=True)
                near.append(
                    next((ix.Near(*pair) for pair in pairs if pair[0] not in changed), None)
                )
            planned = None
            if plan.rows:
                blobs = [row.vector for row in plan.rows.values()]
                own = self.space.prepare(self.space.from_blobs(blobs))
                planned = [*plan.rows], own, np.ones(len(plan.rows), np.uint8)
            lasts = ix.lasting(put.expires, len(put.ids), self.clock())
            near = ix.find_similar(self.empty.memory, rows, unless, near, planned, lasts)
            kept, left_out = ix.split_similar(near, put.places, put.ids)
            out_names[:] = []
            if self.names.is_open and kept:
                used = self.names.use(rows[np.array(kept)], set())
                out_names[:] = [each.coordinate for each in used]
            return replace(
                put,
                ids=[put.ids[row] for row in kept],
                vectors=[put.vectors[row] for row in kept],
                payloads=[put.payloads[row] for row in kept],
                places=[put.places[row] for row in kept],
                expires=[put.expires[row] for row in kept if put.expires],
                if_versions=(),
                left_out=left_out,
            )

        return leave_out

    def commit(self, write: PreparedPut) -> ix.WriteResult:
        """Put items; wait for shards to apply the write before it, so that loads overlap."""
        before = self.committer.last
        result = self._store(write)
        shards, last = self.shards, self.committer.last
        shards.begin(shards.follow(self.row.served, last))
        shards.wait(shards.follow(self.row.served, before))
        self._require_current_primary(last)
        return result

    def _store(self, write: PreparedPut) -> ix.WriteResult:
        result: ix.WriteResult = self.committer.commit(write)
        self._note_stored(write)
        return result

    def wait_until_found(self) -> None:
        """Return when all live replicas have the last write, or after a second."""
        last = self.committer.last
        self.shards.wait(self.shards.follow(self.row.served, last))
        self._require_current_primary(last)

    def _require_current_primary(self, stored: Moment) -> None:
        """Raise StoreUnavailable if a shard knows a later primary than that of this write."""
        try:
            if stored.epoch:  # the write changed something
                self.database.connections.require(stored.epoch)
        except FormerPrimary as error:
            raise StoreUnavailable(f"{error}; the write may be stored") from None

    def submit(
        self,
        read: Callable[[], tuple[ix.ItemBatch, ix.Mode]],
        ended: Callable[[ix.WriteResult | BaseException], None],
        run: ix.Run,
    ) -> None:
        self._submit(lambda: self.prepare(*read()), ended, run)

    def submit_payload(
        self,
        change: ix.PayloadChange,
        item_id: str,
        if_version: int | None,
        ended: Callable[[int | BaseException], None],
        run: ix.Run,
    ) -> None:
        change = self._keeping_text(change)
        write = PreparedChoice(change=change, ids=[item_id], if_version=if_version)
        self._submit(lambda: write, ended, run)

    def _submit(
        self, prepare: Callable[[], PreparedWrite], ended: Callable[[Any], None], run: ix.Run
    ) -> None:
        """Submit a write without blocking a thread; it is done when its shards have it."""
        loop, prepared = asyncio.get_running_loop(), list[PreparedWrite]()
        reading = ExitStack()  # until the commit, which may need names that are freed meanwhile

        def read() -> PreparedWrite:
            reading.enter_context(self.names.reading())
            prepared.append(prepare())
            return prepared[-1]

        async def follow(outcome: ix.WriteResult | int | BaseException) -> None:
            try:
                last, ids = self.committer.last, prepared[-1].ids
                known = [item_id for item_id in ids if item_id is not None]
                concerned = None  # all shards
                if len(known) == len(ids) <= _SMALL_WRITE:
                    buckets, shards = self.database.buckets, len(self.shards)
                    concerned = {bucket_of(item_id, buckets) % shards for item_id in known}
                await self.shards.follow(self.row.served, last, concerned)
                self._require_current_primary(last)
            except StoreUnavailable as error:
                outcome = error
            finally:
                ended(outcome)
            await self.shards.follow(self.row.served, last)  # the next searches require this moment

        def after_commit(outcome: ix.WriteResult | int | BaseException) -> None:
            reading.close()
            if isinstance(outcome, BaseException):
                ended(outcome)
                return
            self._note_stored(prepared[-1])
            asyncio.run_coroutine_threadsafe(follow(outcome), loop)

        self.committer.submit(read, after_commit, run)

    def _note_stored(self, write: PreparedWrite) -> None:
        if isinstance(write, PreparedPut):
            self.names.mark_stored((coordinate, "") for coordinate in write.names)

    def delete(self, where: ix.Filter | Sequence[str], *, if_version: int | None = None) -> int:
        return self._write(None, where, if_version)

    def change_payloads(
        self,
        change: ix.PayloadChange,
        where: ix.Filter | Sequence[str],
        *,
        if_version: int | None = None,
    ) -> int:
        return self._write(self._keeping_text(change), where, if_version)

    def _keeping_text(self, change: ix.PayloadChange) -> ix.PayloadChange:
        return change if self.config.text is None else replace(change, keeps_text=True)

    def _write(
        self,
        change: ix.PayloadChange | None,
        where: ix.Filter | Sequence[str],
        if_version: int | None,
    ) -> int:
        """Change or delete items; return how many there were."""
        write = PreparedChoice(change=change, if_version=if_version)
        if isinstance(where, ix.Filter):
            write = replace(write, choose=partial(self._ids_where, where))
        else:
            write = replace(write, ids=[*dict.fromkeys(where)])
        count: int = self.committer.commit(write)
        if count:
            self.wait_until_found()
        return count

    def _ids_where(self, where: ix.Filter, head: int) -> list[str]:
        """Return the ids of items that pass a filter after a change, in the order of keys."""
        moment = Moment(self.database.connections.memory.number, head)
        answers = self.ask("rows", filter=encode_filter(where), **_as_of(moment))
        listed = sorted(chain.from_iterable(map(operations.decode_listed, answers)))
        return [item_id for _, item_id in listed]

    def load_names(self) -> None:
        """Read the names that other routers may have added since the last read."""
        head = self.database.last_moment(self.number).key
        if self.names_read >= head:
            return
        known = self._first_name if self.names.is_open else 0
        named, freed, first = self.database.names_from(self.number, known)
        with self._naming:
            if self.names_read >= head:  # another thread has read a later state
                return
            if self.names.is_open:
                self.names.follow(named, freed)
            else:
                self.names.load(named)
            self.names_read, self._first_name = head, first

    def free_names(self, stop: threading.Event) -> int:
        """Free names of coordinates that no item uses; return how many."""
        if not self.names.is_open:
            return 0
        return free_names(
            self.database, self.number, lambda blobs: self.space.from_blobs(blobs).indices, stop
        )

    def set_names(self, names: Sequence[str], *, replace: bool = True) -> None:
        named = ix.check_names(names, self.config.dim)
        self.database.replace_names(self.number, named, replace=replace)
        self.load_names()

    def replace_metadata(self, value: bytes | None) -> None:
        ix.check_metadata(value)
        self.database.replace_metadata(self.number, value)

    def loads(self, since: int, key: str | None = None) -> list[ix.LoadRecord]:
        return self.database.loads(self.number, since, key)

    def save_load(self, record: ix.LoadRecord, forgotten: int) -> None:
        self.database.save_load(self.number, record, forgotten)

    def fit(self, weights: tuple[float, ...] | ix.WeightKind | None) -> ix.WeightsDescription:
        """Learn weights from the items, or use given ones; return when all shards use them.

        Shards prepare all items under the new weights beside the present ones. Then queries ask for
        the new generation, so all shards answer a query with the same weights. InvalidParameter, as
        on a node; Refused if a shard lacks room for both; ShardUnavailable if one is not ready in
        time.
        """
        config, database = ix.config_with(self.config, weights), self.database
        found = ix.weights_of(config, self.space.weights, self._batches(config))
        text, space = found.to_text(), ix.VectorSpace.of(config, found)
        checked = self._check_items(space, 0)
        fresh = ClusterCollection(
            database.add_generation(self.row, config.to_dict(), text), self.router
        )
        try:
            end = time.monotonic() + operations.LONG_SECONDS
            while not fresh.is_prepared():
                if (refused := self.shards.full()) is not None:
                    raise refused
                if time.monotonic() > end:
                    raise ShardUnavailable([*range(len(self.shards))], len(self.shards))
                checked = self._check_items(space, checked)
                time.sleep(_BUILD_SECONDS)
            database.use_generation(fresh.row, partial(_check_rows, space), checked)
        finally:
            fresh.close()
        self.router.renew(self)
        return ix.WeightsDescription.of(found)

    def _check_items(self, space: ix.VectorSpace, after: int) -> int:
        """Check the items with keys above one; return the last key."""
        page = partial(self.database.page, self.number, limit=_LEARNED_AT_ONCE, with_vector=True)
        while rows := page(after=after):
            _check_rows(space, rows)
            after = rows[-1].key
        return after

    def _batches(self, config: ix.CollectionConfig) -> Iterator[ix.RawBatch]:
        """Yield all vectors, or a sample if weights are learned from one."""
        count = self.database.count(self.number)
        chosen = None if (size := ix.sample_size(config, count)) is None else size / count
        first = 0
        with closing(self.database.read_all(self.number, _LEARNED_AT_ONCE)) as reading:
            for rows in reading:
                places = range(first, first + len(rows))
                first += len(rows)
                blobs = [
                    row.vector
                    for place, row in zip(places, rows, strict=True)
                    if chosen is None or int((place + 1) * chosen) > int(place * chosen)
                ]
                if blobs:
                    yield self.space.from_blobs(blobs)

    def is_prepared(self) -> bool:
        """Return whether all shards have the items of a generation, and their backends."""
        moment = self.database.last_moment(self.number)
        self.database.await_generation(self.row)
        wanted = {each.name for each in self.database.backends(self.number)}
        asked = self.head("describe", **_as_of(moment))
        try:
            answers = self.shards.wait(self.shards.tell(Message(asked)))
        except (ShardUnavailable, ix.CollectionNotFound):  # an older program has no generations
            return False
        parts = [answer.head["backends"] for answer in answers]
        return all(wanted < {e["name"] for e in part if e["status"] == "ready"} for part in parts)

    def attach(self, params: ix.BackendParams, name: str | None) -> ix.BackendDescription:
        """Attach a comparison backend on all shards; return when it is ready on each.

        BackendNotFound if it is dropped before that. Refused if a shard cannot attach it: then it
        is dropped from all. Also InvalidParameter and BackendExists.
        """
        ready = {each.name for each in self.describe().backends}
        if name is None:
            others = (f"{params.kind}_{number}" for number in count(2))
            name = next(each for each in chain([params.kind], others) if each not in ready)
        ix.check_name(name)
        if name in ready:
            raise ix.BackendExists(name)
        items = self.count(None)
        ix.require_landmarks(params, items)
        text = orjson.dumps(ix.backend_document(params)["params"]).decode()
        row = ix.BackendRecord(name, params.kind, text, self._learn(params, items))
        self.database.add_backend(self.number, row)
        try:
            return self.wait_for_backend(name)
        except Refused:
            with suppress(ix.BackendNotFound):
                self.detach(name)
            raise

    def wait_for_backend(self, name: str) -> ix.BackendDescription:
        """Return a backend once all shards have it.

        BackendNotFound if it is dropped before that, Refused if a shard cannot attach it.
        """
        while True:
            heads = [answer.head for answer in self.refresh_backends()]
            for head in heads:
                if (reason := head.get("failed", {}).get(name)) is not None:
                    detail = f"shard {head['shard']}: backend {name!r} cannot be attached: {reason}"
                    raise Refused("shard_full", detail)
            if all(name in head["ready"] for head in heads):
                found = {each.name: each for each in self.describe().backends}
                if name in found and found[name].status == "ready":
                    return found[name]
            if name not in {each.name for each in self.database.backends(self.number)}:
                raise ix.BackendNotFound(name)
            time.sleep(_BUILD_SECONDS)

    def _learn(self, params: ix.BackendParams, items: int) -> str | None:
        """Fit a learned backend (Nyström) on a sample; return the notes that all shards use."""
        if not isinstance(params, ix.NystroemParams):
            return None
        with self.lend_sample(params.landmarks, params.seed, None) as sample:
            sample.attach(params, _LEARNING)
            notes = ix.notes_of_backend(sample.memory.index_of(sample.memory.view, _LEARNING))
        return None if notes is None else ix.text_of(ix.notes_of(notes) | {"drawn_from": items})

    def detach(self, name: str) -> None:
        """Drop a comparison backend from all shards; else PrimaryBackend or BackendNotFound."""
        if name == self.config.backend.kind:
            raise ix.PrimaryBackend(name)
        self.database.remove_backend(self.number, name)
        self.refresh_backends()

    # Reading

    def _row(self, item_id: str) -> Row:
        row = self.database.fetch(self.number, [item_id]).get(item_id)
        if row is None:
            raise ix.ItemNotFound(item_id)
        return row

    def _item(self, row: Row, *, with_vector: bool = True) -> ix.StoredItem:
        vector = None
        if with_vector:
            vector = self.space.to_json(self.space.from_blobs([row.vector]), 0)
        return ix.StoredItem(row.id, vector, row.payload, row.version, row.expires)

    def get(self, item_id: str) -> ix.StoredItem:
        return self._item(self._row(item_id))

    def page(
        self,
        *,
        limit: int,
        cursor: str | None,
        with_vector: bool,
        where: ix.Filter | None,
        ids: Sequence[str] | None,
    ) -> ix.Page:
        database, after = self.database, ix.sequence_of(cursor, str(self.number))
        if ids is not None:
            rows = sorted(database.fetch(self.number, [*dict.fromkeys(ids)]).values())
            rows = [row for row in rows if row.key > after][: limit + 1]
            keys = [row.key for row in rows]
        elif where is not None:
            # A page shows a later moment than the one before; items put again move to the end.
            now = _as_of(database.last_moment(self.number)) if after else {}
            told = encode_filter(where)
            answers = self.ask("rows", filter=told, after=after, limit=limit + 1, **now)
            keys = sorted(key for answer in answers for key in operations.decode_keys(answer))
            # Without items deleted since.
            rows = database.rows_by_key(self.number, keys[:limit])
        else:
            rows = database.page(self.number, after=after, limit=limit + 1, with_vector=with_vector)
            keys = [row.key for row in rows]
        has_more = len(keys) > limit or len(rows) < len(keys)
        next_cursor = ix.cursor_of(keys[:limit][-1], str(self.number)) if has_more else None
        items = [self._item(row, with_vector=with_vector) for row in rows[:limit]]
        return ix.Page(items, next_cursor)

    def hints(self, where: ix.Filter) -> list[str]:
        """Return the keys and values of a filter that no item has, if all shards answer."""
        try:
            answers = self.ask("hints", filter=encode_filter(where))
        except ShardUnavailable:  # hits of the other shards are still returned
            return []
        return operations.merge_hints(where, answers)

    def find(self, text: str, limit: int) -> ix.Page:
        answers = self.ask("find", text=text, limit=limit)
        named = dict(islice(operations.merge_found(answers).items(), limit))
        rows = {row.key: row for row in self.database.rows_by_key(self.number, [*named])}
        if changed := {named[key]: key for key in named if key not in rows}:
            now = self.database.fetch(self.number, [*changed])
            with closing(self._in_memory()) as some:
                some.names.load(self.empty.names.listed())
                some.put(items_of([*now.values()], self.space))
                found = some.find(text, limit).items
                rows |= {changed[item.id]: now[item.id] for item in found}
        items = [self._item(rows[key], with_vector=False) for key in named if key in rows]
        return ix.Page(items, None, all(answer.head["complete"] for answer in answers))

    def count(self, where: ix.Filter | None) -> int:
        answers = self.ask("count", filter=encode_filter(where))
        return operations.total([answer.head for answer in answers], "count")

    def find_names(self, prefix: str = "", limit: int = 20) -> list[ix.NamedCoordinate]:
        return self.database.find_names(self.number, prefix, limit)

    def describe(self) -> ix.Description:
        """Return the description of the collection: sums over its shards."""
        parts = [answer.head for answer in self.ask("describe")]
        sizes = "items", "rows", "bytes_in_memory", "bytes_mapped", "bytes_on_disk"
        backends = operations.merge_backends([part["backends"] for part in parts])
        return ix.Description(
            **{name: operations.total(parts, name) for name in sizes},
            name=self.name,
            config=self.config,
            names=len(self.names),
            weights=ix.describe_weights(self.config.transform, self.space.weights),
            metadata=self.database.metadata(self.number),
            backends=[*backends, *self._missing_backends({each.name for each in backends})],
            commits=self.committer.commits,
            commit_seconds=self.committer.commit_seconds,
            versions=parts[0]["versions"],
        )

    def _missing_backends(self, known: Set[str]) -> Iterator[ix.BackendDescription]:
        """Yield listed backends that no shard is attaching yet, as during a load."""
        for row in self.database.backends(self.number):
            if row.name not in known:
                yield ix.BackendDescription(
                    row.name,
                    row.kind,
                    orjson.loads(row.params),
                    primary=False,
                    status="building",
                    progress=0.0,
                    bytes_in_memory=0,
                    build_seconds=0.0,
                    stats={},
                )

    def summary(self) -> ix.Summary:
        """Return one line of the list of collections; sizes count the shards that answer."""
        try:
            answers, missing = self.wait(self.shards.ask_some(Message(self.head("summary"))))
        except ShardUnavailable as error:
            answers, missing = [], [*error.missing]
        parts = [answer.head for answer in answers]
        items = self.database.count(self.number) if missing else operations.total(parts, "items")
        return ix.Summary(
            name=self.name,
            items=items,
            dim=self.config.dim,
            backends=parts[0]["backends"] if parts else [self.config.backend.kind],
            bytes_on_disk=operations.total(parts, "bytes_on_disk"),
            bytes_in_memory=operations.total(parts, "bytes_in_memory"),
            commits=self.committer.commits,
            commit_seconds=self.committer.commit_seconds,
            commit_counts=tuple(self.committer.commit_counts),
            audited=operations.merge_audited_recall([part["audited"] for part in parts]),
        )

    def curve(self, limit: int = 10) -> ix.CostCurve:
        return operations.merge_curves([each.head for each in self.ask("curve", limit=limit)])

    def audited(self) -> ix.AuditedQueries:
        return operations.merge_audits([each.head for each in self.ask("audited")])

    def explain(self, a: Any, b: Any, *, limit: int = ix.SHARES) -> ix.Explained:  # noqa: ANN401
        return self.empty.explain(self.vector_of(a), self.vector_of(b), limit=limit)

    def sketch(
        self, vectors: ix.RawBatch | ix.SparseVector, encoding: ix.Encoding
    ) -> ix.Signatures | ix.AnyArray:
        return self.empty.sketch(vectors, encoding)

    def map_items(
        self,
        params: ix.MapParams,
        where: ix.Filter | None = None,
        also: Sequence[Any] = (),
        stop: threading.Event | None = None,
    ) -> ix.ItemMap:
        with self.lend_sample(params.sample, params.seed, where) as items:
            points = [self.vector_of(each, items) for each in also]
            return items.map_items(params, where, points, stop)

    def profile(self, sample: int = ix.PROFILE_SAMPLE, seed: int = 0) -> dict[str, Any]:
        with self.lend_sample(sample, seed, None) as items:
            found = items.profile(sample, seed)
        return found | {"items": self.count(None)}

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
        """Search for the same queries with several backends, each shard among its own items.

        CancelledError of `concurrent.futures` once ``stop`` is set.
        """
        skip: list[str] = []
        if queries is None:
            drawn = self.sample(sample, seed, None)
            ix.require_two(len(drawn.ids))
            queries, skip = [drawn.vectors], [each for each in drawn.ids if each is not None]
        head, blobs = operations.comparison_message(queries, params, backends, skip)
        answers = self.ask("compare", operations.LONG_SECONDS, stop, blobs, **head)
        return operations.merge_comparisons(answers, params.limit)

    pairs = duplicates.find_pairs
    groups = duplicates.find_groups

    def join(
        self, params: ix.JoinParams, where: ix.Filter | None, stop: threading.Event
    ) -> Callable[[ix.RawBatch], Iterator[ix.JoinedRows]]:
        return partial(duplicates.join_shards, self, params, where, stop)

    def cursor_behind(self, item_id: str) -> str:
        return ix.cursor_of(self._row(item_id).key, str(self.number))

    def close(self) -> None:
        """Release the names and the empty collection; the shards keep their items."""
        self.empty.close(dropped=True)


def _as_of(moment: Moment) -> dict[str, Any]:
    """Return the fields of a message head that require a moment."""
    return {"at": moment.key, "since": moment.epoch}


def _digest(vectors: ix.RawBatch) -> bytes:
    whole = hashlib.blake2b()
    for array in (vectors.dense, vectors.indptr, vectors.indices, vectors.values):
        whole.update(array.tobytes())
    return whole.digest()


def _check_rows(space: ix.VectorSpace, rows: Sequence[Row]) -> None:
    """Raise InvalidParameter if weights make an item zero, or too large."""
    if not rows:
        return
    try:
        space.prepare(space.from_blobs([row.vector for row in rows]))
    except ix.InvalidVector as error:
        got = f"{error.got} of the item {rows[int(error.loc[0])].id!r}"
        expected = f"weights that leave {error.expected}"
        raise ix.InvalidParameter(expected=expected, got=got, loc=("weights",)) from None
