"""The shards as a router asks them: which replica, and what is done where it is late or gone."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import (
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np
from prometheus_client.core import CounterMetricFamily as Counter, GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gcws_search import index as ix
from gcws_search.service.cluster.contract import (
    ChangeSet,
    CollectionRow,
    Moment,
    ReplicaClient,
    bucket_of,
)
from gcws_search.service.cluster.database.committer import Committer
from gcws_search.service.cluster.database.database import Database
from gcws_search.service.cluster.epochs import EpochMemory
from gcws_search.service.cluster.errors import Behind
from gcws_search.service.cluster.messages import encode_change, encode_filter, raise_error
from gcws_search.service.cluster.operations import decode_items
from gcws_search.service.errors import ShardFull, ShardUnavailable, StoreUnavailable
from gcws_search.service.rpc.messages import Malformed, Message, decode, encode

T = TypeVar("T")
Changes: TypeAlias = Sequence[Message]

_LATE_SHARE: Final = 0.4
"""Of the time that a replica has, after which a sister is asked as well."""
_REST_SECONDS: Final = 1.0
"""How long a replica that failed is asked last."""
_FOLLOW_SECONDS: Final = 1.0
"""How long a write waits for replicas that are there."""
_LOOK_SECONDS: Final = 0.1
"""How often work of minutes looks whether it is still waited for."""
_MAX_CHANGE_BYTES: Final = 1 << 24
"""Of changes that wait to be sent to a replica."""
_MAX_DELETED: Final = 10_000
"""Ids that were deleted, of a change that is sent; replicas read those of larger ones."""
_FAULTS: Final = (OSError, TimeoutError, Behind, Malformed)

_log = logging.getLogger(__name__)


class ReplicaList(Protocol):
    """Where a router learns of replicas."""

    def start(self) -> None:
        """Begin to keep the list current."""

    @property
    def shards(self) -> Sequence[Sequence[ReplicaClient]]:
        """The replicas of each shard."""

    async def renew(self) -> None:
        """Refresh the list; return when that is done, or has failed."""

    async def close(self) -> None:
        """Close all connections."""


class ShardSet(Collector):
    """All shards and their replicas: fail-over, following, and metrics."""

    def __init__(
        self, replicas: ReplicaList, seconds: float, memory: EpochMemory | None = None
    ) -> None:
        self.seconds = seconds
        self._memory = memory or EpochMemory()
        self._heard = 0.0
        self.follow_seconds = _FOLLOW_SECONDS  # how long a write waits for replicas that are there
        self.rest_seconds = _REST_SECONDS  # how long a replica that failed is asked last
        # messages sent to replicas, and those that no replica answered in time, by shard
        self.calls: dict[int, int] = {}
        self.unanswered: dict[int, int] = {}
        # messages that a replica did not answer as it should, by shard and what was wrong
        self.failures: dict[tuple[int, str], int] = {}
        self._replicas = replicas
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns: dict[int, int] = {}
        self._failed: dict[str, float] = {}
        self._following: dict[tuple[int, str, int], _Following] = {}
        self._refusals: dict[str, str] = {}

    def _able(self) -> list[Sequence[ReplicaClient]]:
        """Return the replicas of each shard that are asked and followed.

        One that can store nothing is left out while a sister can; its sister has what it lacks.
        """
        found: list[Sequence[ReplicaClient]] = []
        for shard, replicas in enumerate(self._replicas.shards):
            able = [each for each in replicas if not each.refusal]
            for each in replicas:
                if each.refusal != self._refusals.get(each.address, ""):
                    self._note_refusal(shard, each, is_left_out=bool(able))
            found.append(able or replicas)
        return found

    def _note_refusal(self, shard: int, replica: ReplicaClient, *, is_left_out: bool) -> None:
        """Log that a replica can store nothing any more, or can again."""
        before = self._refusals.get(replica.address, "")
        if refusal := replica.refusal:
            self._refusals[replica.address] = refusal
        else:
            self._refusals.pop(replica.address, None)
        if not refusal:
            _log.warning("shard %d, replica %s: can store again", shard, replica.address)
        elif not before:
            told = "is left out" if is_left_out else "writes are refused"
            _log.warning("shard %d, replica %s %s: %s", shard, replica.address, told, refusal)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use this event loop for all messages."""
        self._loop = loop
        self._replicas.start()

    def close(self) -> None:
        """Stop asking replicas; called in a thread."""
        if self._loop is not None:
            self.wait(self._replicas.close())

    def wait(self, work: Coroutine[Any, Any, T], stop: threading.Event | None = None) -> T:
        """Run a coroutine on the event loop and return its result; called in a thread.

        Raises
        ------
        CancelledError
            Of `concurrent.futures`: ``stop`` was set before that.
        """
        future = self.begin(work)
        if stop is not None:
            while not futures.wait([future], _LOOK_SECONDS).done:
                if stop.is_set():
                    future.cancel()
        return future.result()

    def begin(self, work: Coroutine[Any, Any, T]) -> futures.Future[T]:
        """Start a coroutine on the event loop; called in any thread."""
        if self._loop is None:
            work.close()
            raise RuntimeError("the shards have not been started")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def __len__(self) -> int:
        """Return the number of shards."""
        return len(self._able())

    def full(self) -> ShardFull | None:
        """Return which shard's replicas can all store nothing more; None where each has another."""
        for shard, replicas in enumerate(self._able()):
            for replica in replicas:
                if replica.refusal:
                    return ShardFull(shard, replica.address, replica.refusal)
        return None

    async def ask_all(
        self, messages: Message | Sequence[Message], seconds: float | None = None
    ) -> list[Message]:
        """Return each shard's answer to a message, or to one of its own; else ShardUnavailable."""
        if isinstance(messages, Message):
            data = [encode(messages)] * len(self)
        else:
            data = [*map(encode, messages)]
        found, missing = await self.ask_some(data, seconds)
        if missing:
            raise ShardUnavailable(missing, len(data))
        return found

    async def ask_some(
        self, data: Sequence[bytes], seconds: float | None = None
    ) -> tuple[list[Message], list[int]]:
        """Return the answers of those shards that answer in time, and the numbers of the others.

        ``data`` has a message a shard. ShardUnavailable where none answers, or there is another
        number of shards by now.
        """
        listed = self._current(len(data))
        asked = (self._ask_shard(listed, shard, each, seconds) for shard, each in enumerate(data))
        answers: list[Message] = []
        missing: list[int] = []
        for shard, each in enumerate(await asyncio.gather(*asked, return_exceptions=True)):
            if isinstance(each, ShardUnavailable):
                missing.append(shard)
            elif isinstance(each, BaseException):
                raise each
            else:
                answers.append(each)
        if not answers:
            raise ShardUnavailable(missing, len(data))
        return answers, missing

    async def ask(
        self, shard: int, shards: int, data: bytes, seconds: float | None = None
    ) -> Message:
        """Return the answer of one of ``shards`` shards: that of the first replica to answer.

        Raises
        ------
        ShardUnavailable
            None answers, or there is another number of shards by now.
        Exception
            What is wrong with the question, as the shard says.
        """
        return await self._ask_shard(self._current(shards), shard, data, seconds)

    def _current(self, shards: int) -> Sequence[Sequence[ReplicaClient]]:
        """Return the replicas of each shard.

        One answer takes them once: another list may be of another number of shards.
        """
        listed = self._able()
        if len(listed) != shards:
            raise ShardUnavailable([*range(len(listed))], len(listed))
        return listed

    async def _ask_shard(
        self,
        listed: Sequence[Sequence[ReplicaClient]],
        shard: int,
        data: bytes,
        seconds: float | None,
    ) -> Message:
        seconds = self.seconds if seconds is None else seconds
        end = time.monotonic() + seconds
        waiting: set[asyncio.Task[Message]] = set()
        try:
            sisters = self._in_order(shard, listed[shard])
            known = {each.address for each in sisters}
            while sisters:
                replica = sisters.pop(0)
                task = asyncio.ensure_future(self._ask(shard, replica, data, end))
                waiting.add(task)
                late = time.monotonic() + _LATE_SHARE * seconds
                answer = await _first(waiting, min(end, late) if sisters else end)
                if answer is not None:
                    return answer
                if sisters and task in waiting:
                    self._note(shard, replica, "Late", f"no answer in {_LATE_SHARE * seconds:g} s")
                if not sisters:
                    sisters = await self._find_newly_listed(known, shard, len(listed), end)
        finally:
            for task in waiting:
                if not task.cancel() and not task.cancelled():
                    task.exception()  # which ended it just now: nobody else asks
        self.unanswered[shard] = self.unanswered.get(shard, 0) + 1
        raise ShardUnavailable([shard], len(listed))

    async def _find_newly_listed(
        self, known: set[str], shard: int, shards: int, end: float
    ) -> list[ReplicaClient]:
        """Return replicas that are not known yet, such as one that has just restarted."""
        left = end - time.monotonic()
        if left <= 0:
            return []
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._replicas.renew()
        listed = self._able()
        if len(listed) != shards:
            return []
        found = [each for each in listed[shard] if each.address not in known]
        known.update(each.address for each in found)
        return found

    async def tell(self, message: Message) -> list[Message]:
        """Return the answers of all replicas that answer in time; ShardUnavailable without any."""
        data, end, listed = encode(message), time.monotonic() + self.seconds, self._able()
        asked = [(shard, each) for shard, replicas in enumerate(listed) for each in replicas]
        work = (self._ask(shard, replica, data, end) for shard, replica in asked)
        answers, missing = list[Message](), {*range(len(listed))}
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        for (shard, _), outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, Message):
                answers.append(outcome)
                missing.discard(shard)
            elif not isinstance(outcome, _FAULTS):
                raise outcome
        if missing:
            raise ShardUnavailable(sorted(missing), len(listed))
        return answers

    def _in_order(self, shard: int, listed: Sequence[ReplicaClient]) -> list[ReplicaClient]:
        """Return a shard's replicas: by turns, those that failed just now last.

        One that has rested is tried by one message: until it has answered, others do not wait.
        """
        replicas = [*listed]
        if len(replicas) > 1:
            self._turns[shard] = self._turns.get(shard, 0) + 1
            first = self._turns[shard] % len(replicas)
            replicas = replicas[first:] + replicas[:first]
            now = time.monotonic()
            replicas.sort(key=lambda each: self._failed.get(each.address, 0.0) > now)
            if (address := replicas[0].address) in self._failed:
                self._failed[address] = now + self.rest_seconds
        return replicas

    async def _ask(self, shard: int, replica: ReplicaClient, data: bytes, end: float) -> Message:
        self.calls[shard] = self.calls.get(shard, 0) + 1
        try:
            seconds = max(0.001, end - time.monotonic())
            async with asyncio.timeout(seconds):
                answer = decode(await replica.ask(data, seconds))
            self._hear(answer)
            raise_error(answer)
        except _FAULTS as error:
            self._note(shard, replica, type(error).__name__, str(error))
            raise
        self._failed.pop(replica.address, None)
        return answer

    # Epochs

    @property
    def epoch(self) -> list[str | int] | None:
        """The last epoch that is known, as messages say it."""
        return self._memory.document

    def _hear(self, answer: Message) -> None:
        """Take note of the last epoch that a replica knows."""
        self._heard = time.monotonic()
        self._memory.hear(answer.head.get("epoch"))

    def confirm(self) -> None:
        """Have each shard say which epoch it knows, else StoreUnavailable; called in a thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise StoreUnavailable("its shards are asked whether it is the last primary")
        try:
            self.wait(self._ask_for_epochs(lambda: self._replicas.shards, self.seconds))
        except ShardUnavailable as error:
            missing = ", ".join(map(str, error.missing))
            raise StoreUnavailable(
                f"no replica of shard {missing} says that it is the last primary"
            ) from None

    def hear(self, silent_seconds: float) -> None:
        """Ask replicas which epoch they know, unless one has answered just now."""
        if time.monotonic() - self._heard > silent_seconds:
            with suppress(ShardUnavailable):
                self.wait(self._ask_for_epochs(self._live_replicas, self.follow_seconds))

    def _live_replicas(self) -> list[list[ReplicaClient]]:
        return [
            [each for each in replicas if each.address not in self._failed]
            for replicas in self._able()
        ]

    async def _ask_for_epochs(
        self, list_replicas: Callable[[], Sequence[Sequence[ReplicaClient]]], seconds: float
    ) -> None:
        await self._replicas.renew()
        listed = list_replicas()
        data = encode(Message({"method": "status", "epoch": self.epoch}))
        end = time.monotonic() + seconds
        asked = {
            asyncio.ensure_future(self._ask(shard, replica, data, end)): shard
            for shard, replicas in enumerate(listed)
            for replica in replicas
        }
        missing, waiting = {*range(len(listed))}, {*asked}
        soon = time.monotonic() + self.follow_seconds  # for all, then for one of each shard
        while waiting and (missing or time.monotonic() < soon):
            until = end if missing else soon
            done, waiting = await asyncio.wait(
                waiting,
                timeout=max(0.0, until - time.monotonic()),
                return_when=asyncio.FIRST_COMPLETED,
            )
            missing -= {asked[each] for each in done if each.exception() is None}
            if not done:
                break
        for each in waiting:
            each.cancel()
        if missing:
            raise ShardUnavailable(sorted(missing), len(listed))

    def _note(self, shard: int, replica: ReplicaClient, kind: str, said: str) -> None:
        """Log a failure, the first of several, and count it."""
        self.failures[shard, kind] = self.failures.get((shard, kind), 0) + 1
        if replica.address not in self._failed:
            _log.warning("shard %d, replica %s: %s %s", shard, replica.address, kind, said)
        self._failed[replica.address] = time.monotonic() + self.rest_seconds

    def describe(self) -> list[Metric]:
        """Announce no metrics in advance."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield what is counted."""
        shard_label = ["shard"]
        unanswered_text = "Messages that no replica of a shard answered in time."
        failures_text = "Messages that a replica did not answer as it should, by what was wrong."
        full_text = "Replicas that can store nothing more."
        replicas = Gauge("gcws_router_replicas", "Replicas that may be asked.", labels=shard_label)
        calls = Counter("gcws_router_calls", "Messages sent to replicas.", labels=shard_label)
        unanswered = Counter("gcws_router_unanswered", unanswered_text, labels=shard_label)
        failures = Counter("gcws_router_failures", failures_text, labels=["shard", "kind"])
        full = Gauge("gcws_router_full_replicas", full_text, labels=shard_label)
        for shard, every in enumerate(self._replicas.shards):
            full.add_metric([str(shard)], sum(bool(each.refusal) for each in every))
        for shard, listed in enumerate(self._able()):
            replicas.add_metric([str(shard)], len(listed))
            calls.add_metric([str(shard)], self.calls.get(shard, 0))
            unanswered.add_metric([str(shard)], self.unanswered.get(shard, 0))
        for (shard, kind), count in self.failures.copy().items():
            failures.add_metric([str(shard), kind], count)
        return replicas, full, calls, unanswered, failures

    # Following

    def publish(self, number: int, change: ChangeSet, buckets: int) -> None:
        """Piggy-back a change on the next message to each live replica.

        Called in any thread, in the order of commits, before `follow` with its key.
        """
        if self._loop is None or len(change.deleted) > _MAX_DELETED:
            return
        parts = [encode_change(each) for each in change.divide(len(self), buckets)]
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._send, number, parts)

    def _send(self, number: int, parts: Sequence[Message]) -> None:
        for shard, replica in self._followers(len(parts)):
            self._following_for(shard, replica, number).send(parts[shard])

    def _followers(self, shards: int) -> list[tuple[int, ReplicaClient]]:
        """Return the live replicas and their shards; none if the number of shards has changed."""
        listed = self._able()
        if len(listed) != shards:
            return []
        return [
            (shard, replica)
            for shard, replicas in enumerate(listed)
            for replica in replicas
            if replica.address not in self._failed
        ]

    async def follow(
        self, number: int, moment: Moment, concerned: Collection[int] | None = None
    ) -> None:
        """Return when every replica that is there has reached a moment, or after a second.

        One that failed is not waited for until it has answered a query. Shards not concerned (None:
        all are) are told of the moment, and not waited for.
        """
        following = [
            (shard, self._following_for(shard, replica, number).reach(moment))
            for shard, replica in self._followers(len(self))
        ]
        waiting = [each for shard, each in following if concerned is None or shard in concerned]
        if waiting:
            await asyncio.wait(waiting, timeout=self.follow_seconds)

    def _following_for(self, shard: int, replica: ReplicaClient, number: int) -> _Following:
        place = shard, replica.address, number
        following = self._following.get(place)
        if following is None:
            there = {each.address for replicas in self._able() for each in replicas}
            self._following = {
                place: each for place, each in self._following.items() if place[1] in there
            }
            following = self._following[place] = _Following(self, shard, replica, number)
        return following

    async def ask_to_follow(
        self, shard: int, replica: ReplicaClient, number: int, moment: Moment, changes: Changes
    ) -> Moment:
        """Ask a replica to reach a moment, with changes on the way; return the one it has."""
        head = {
            "method": "follow",
            "collection": number,
            "key": moment.key,
            "since": moment.epoch,
            "epoch": self.epoch,
            "seconds": self.follow_seconds,
            "changes": [change.head for change in changes],
        }
        blobs = [blob for change in changes for blob in change.blobs]
        end = time.monotonic() + 2 * self.follow_seconds
        answer = await self._ask(shard, replica, encode(Message(head, blobs)), end)
        return Moment(int(answer.head.get("since", moment.epoch)), int(answer.head["key"]))


async def _first(waiting: set[asyncio.Task[Message]], until: float) -> Message | None:
    """Return the first answer before a time; remove failed tasks from ``waiting``."""
    while waiting:
        left = until - time.monotonic()
        if left <= 0:
            return None
        done, _ = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            waiting.discard(task)
            error = task.exception()
            if error is None:
                return task.result()
            if not isinstance(error, _FAULTS):
                raise error
        if not done:
            return None
    return None


class _Following:
    """Writes that wait for one replica to follow one collection; it is asked for the last."""

    def __init__(self, shards: ShardSet, shard: int, replica: ReplicaClient, number: int) -> None:
        self._ask = partial(shards.ask_to_follow, shard, replica, number)
        self._changes: list[Message] = []
        self._bytes = 0
        self._reached = self._wanted = Moment(0, 0)
        self._waiting: list[tuple[Moment, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    def send(self, change: Message) -> None:
        """Attach a change to the next message; beyond a limit the replica reads the database."""
        self._bytes += sum(map(len, change.blobs))
        self._changes.append(change)
        if self._bytes > _MAX_CHANGE_BYTES:
            self._changes, self._bytes = [], 0

    def reach(self, moment: Moment) -> asyncio.Future[None]:
        """Return a future that ends when the replica has the moment, or has failed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if moment <= self._reached:
            future.set_result(None)
            return future
        self._waiting.append((moment, future))
        self._wanted = max(self._wanted, moment)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())
        return future

    async def _run(self) -> None:
        try:
            while self._waiting:
                wanted = self._wanted
                changes, self._changes, self._bytes = self._changes, [], 0
                self._reached = await self._ask(wanted, changes)
                reached = max(wanted, self._reached)
                waiting, self._waiting = self._waiting, []
                for moment, future in waiting:
                    if moment > reached:
                        self._waiting.append((moment, future))
                    elif not future.done():
                        future.set_result(None)
        except (*_FAULTS, Exception):  # it is not waited for: the next query sees what it has
            # Without the changes of that message the next ones are of no use.
            self._changes, self._bytes = [], 0
        finally:
            for _, future in self._waiting:
                if not future.done():
                    future.set_result(None)
            self._waiting = []


# Of one collection


class CollectionShards:
    """The shards of one collection; messages ask for its state after the last write here."""

    def __init__(
        self, row: CollectionRow, database: Database, every: ShardSet, threads: int | None
    ) -> None:
        self.number = row.number
        self.every = every  # the shards of all collections
        self.database = database
        self.empty = _in_memory(row)  # the collection without items, in memory
        # of the collection's writes; each change goes to the shards
        self.committer = Committer(database, row.number, row.name, self._publish)
        self._row = row
        self._threads = threads

    def _publish(self, change: ChangeSet) -> None:
        self.every.publish(self.number, change, self.database.buckets)

    def head(self, method: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the head of a message about this collection."""
        return {
            "method": method,
            "collection": self.number,
            "at": self.committer.last.key,
            "since": self.committer.last.epoch,
            "epoch": self.every.epoch,
            "seconds": self.every.seconds,
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
        with self._errors():
            return self.every.wait(self.every.ask_all(message, seconds), stop)

    def ask_some(self, method: str) -> tuple[list[Message], list[int]]:
        """Return the answers of the shards that answer, and the others; called in a thread."""
        data = [encode(Message(self.head(method)))] * len(self.every)
        try:
            with self._errors():
                return self.every.wait(self.every.ask_some(data))
        except ShardUnavailable as error:
            return [], [*error.missing]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate CollectionNotFound of shards; called in a thread."""
        try:
            yield
        except ix.CollectionNotFound:
            raise self.not_found() from None

    def not_found(self) -> Exception:
        """Return why shards do not know the collection: it was dropped, or replaced just now."""
        is_replaced = self.database.find(self._row.name) is not None
        error = ix.CollectionLoading if is_replaced else ix.CollectionNotFound
        return error(self._row.name)

    def refresh(self) -> list[Message]:
        """Make all replicas read the list of comparison backends; return their answers."""
        return self.every.wait(self.every.tell(Message(self.head("refresh"))))

    def follow(self, moment: Moment) -> None:
        """Wait until all live replicas have reached a moment, at most a second."""
        self.every.wait(self.every.follow(self.number, moment))

    async def fetch(self, item_id: str, more: dict[str, Any]) -> ix.ItemBatch:
        """Return an item, or an empty batch, from the shard that has it; the head says ``more``."""
        head = self.head("rows", ids=[item_id], with_vector=True) | more
        count = len(self.every)
        shard = bucket_of(item_id, self.database.buckets) % count
        return decode_items(await self.every.ask(shard, count, encode(Message(head))))[1]

    def vector_of(self, point: Any, sample: ix.StoredCollection | None = None) -> Any:  # noqa: ANN401
        """Return a vector as it is, and the vector of an item for its id.

        The id of an item of ``sample`` stays: it is left out of its own neighbours.
        """
        if not isinstance(point, str):
            return point
        if sample is not None and sample.memory.locate(point)[1] is not None:
            return point
        row = self.database.fetch(self.number, [point]).get(point)
        if row is None:
            raise ix.ItemNotFound(point)
        raw = self.empty.space.from_blobs([row.vector])
        if raw.form == "dense":
            return raw.dense[0]
        return ix.SparseVector(raw.indices.astype(np.int64), raw.values)

    @contextmanager
    def lend_sample(
        self, count: int, seed: int, where: ix.Filter | None
    ) -> Iterator[ix.StoredCollection]:
        """Lend a collection in memory that has some of the items."""
        items = self.sample(count, seed, where)
        sample = _in_memory(self._row, self._threads)
        try:
            sample.names.load(self.empty.names.listed())
            if len(items):
                sample.put(items)
            yield sample
        finally:
            sample.close(dropped=True)

    def sample(self, count: int, seed: int, where: ix.Filter | None) -> ix.ItemBatch:
        """Return ``count`` items that pass a filter, drawn at random, in the order of keys."""
        text = encode_filter(where)
        counts = [int(answer.head["count"]) for answer in self.ask("count", filter=text)]
        rng = np.random.default_rng(abs(seed))
        shares = rng.multivariate_hypergeometric(counts, min(max(count, 0), sum(counts)))
        head = self.head("rows", filter=text, seed=abs(seed), with_vector=True)
        questions = [Message(head | {"sample": int(share)}) for share in shares]
        answers = self.every.wait(self.every.ask_all(questions))
        keys, parts = zip(*map(decode_items, answers), strict=True)
        order = np.argsort(np.concatenate(keys))
        found = ix.ItemBatch.concatenate(parts)
        return ix.ItemBatch(
            [found.ids[place] for place in order.tolist()],
            found.vectors[order],
            [found.payloads[place] for place in order.tolist()],
        )


def _in_memory(row: CollectionRow, threads: int | None = None) -> ix.StoredCollection:
    """Return a collection of no items, in memory wherever the shards have their vectors."""
    config = replace(ix.CollectionConfig.from_dict(row.config), storage="memory")
    return ix.StoredCollection.in_memory(row.name, config, threads=threads)
