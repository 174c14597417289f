"""The shards as a router asks them: choice of replicas, and fail-over to other ones."""

from __future__ import annotations

import asyncio
import io
import logging
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent import futures
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import aiohttp
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gcws_search.service.cluster.contract import (
    DEAD_SECONDS,
    MESSAGES,
    PLACE,
    Behind,
    ChangeSet,
    EpochMemory,
    Moment,
    Replica,
    encode_change,
    raise_error,
    raise_fault,
)
from gcws_search.service.cluster.database import Database
from gcws_search.service.errors import Refused, ShardUnavailable, StoreUnavailable
from gcws_search.service.messages import Malformed, Message, decode, encode
from gcws_search.service.searches import Batcher

T = TypeVar("T")

TLS_NAME: Final = "gcws-shard"
"""What a shard's certificate is for: addresses may not be known before it runs."""
LIST_SECONDS: Final = 1.0  # interval at which the list of replicas is read
_RENEW_SECONDS: Final = 0.1  # maximum age of the list for a query that no replica has answered
_BAD_STATUS: Final = 400
_LARGE_BYTES: Final = 1 << 20  # larger messages are written in pieces

_LATE_SHARE: Final = 0.4  # share of a replica's time after which another replica is asked as well
_REST_SECONDS: Final = 1.0
_FOLLOW_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.1  # interval at which work of minutes checks whether it is still needed
_MAX_CHANGE_BYTES: Final = 1 << 24  # of changes queued for a replica
# Limit of deleted ids in a change that is sent; replicas read larger changes.
_MAX_DELETED: Final = 10_000
_FAULTS: Final = (OSError, TimeoutError, Behind, Malformed)

_log = logging.getLogger(__name__)


# The list of replicas


class HttpReplica:
    """One replica of a shard at an address such as "10.0.0.7:8001"."""

    def __init__(self, address: str, place: str, replicas: HttpReplicas) -> None:
        self.address = address
        self.refusal = ""  # why it cannot store more; empty if it can
        self.is_filled = False
        self.seen = 0.0  # time of its last sign of life
        self.rests_until: float | None = None  # after a failure; None once it answers
        self.is_told_full = False  # whether its refusal was logged
        self.followings = defaultdict[int, _Following](_Following)  # by number of the collection
        self._headers = {PLACE: place}
        self._replicas = replicas

    async def ask(self, message: bytes) -> bytes:
        """Return the answer to a message; OSError without an answer."""
        body = io.BytesIO(message) if len(message) > _LARGE_BYTES else message
        try:
            async with self._replicas.session.post(
                f"{self._replicas.scheme}://{self.address}{MESSAGES}",
                data=body,
                headers=self._headers,
                server_hostname=TLS_NAME,
            ) as answer:
                if answer.status >= _BAD_STATUS:
                    raise OSError(f"status {answer.status}: {(await answer.text())[:200]}")
                return await answer.read()
        except aiohttp.ClientError as error:
            raise OSError(str(error) or type(error).__name__) from None


class HttpReplicas:
    """The replicas of all shards, as the database lists them.

    All are of the same number of shards: the number in the database, else that of the settings.
    """

    def __init__(
        self,
        database: Database,
        cell: str,  # name of the cell
        shards: int,  # number of shards, if the database has none
        key: str,  # the key that replicas require
        *,
        authority: ssl.SSLContext | None = None,  # checks certificates of replicas; None: no TLS
        dead_seconds: float = DEAD_SECONDS,  # maximum time since a sign of life
    ) -> None:
        self._database = database
        self._cell = cell
        self._default = shards
        self._key = key
        self._authority = authority
        self.scheme = "http" if authority is None else "https"
        self._dead_seconds = dead_seconds
        self._session: aiohttp.ClientSession | None = None
        self.shards: Sequence[Sequence[HttpReplica]] = [[] for _ in range(shards)]
        self._known: dict[tuple[int, int, int], HttpReplica] = {}
        self._refreshing = threading.Lock()
        self._renewal: asyncio.Future[None] | None = None
        self._renewed = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="router-replicas", daemon=True)

    @property
    def session(self) -> aiohttp.ClientSession:
        """Connections to all replicas, on the event loop of the first caller."""
        if self._session is None:
            headers = {"Authorization": f"Bearer {self._key}"}
            connector = aiohttp.TCPConnector(limit=0, ssl=self._authority or True)
            endless = aiohttp.ClientTimeout()  # callers have their own timeouts
            self._session = aiohttp.ClientSession(
                connector=connector, headers=headers, timeout=endless
            )
        return self._session

    def start(self) -> None:
        """Read the list now and at intervals."""
        self.refresh()
        self._thread.start()

    async def renew(self) -> None:
        """Read the list now: once for all concurrent callers, and not again at once."""
        now = time.monotonic()
        if self._renewal is None or (self._renewal.done() and now - self._renewed > _RENEW_SECONDS):
            self._renewed = now
            self._renewal = asyncio.ensure_future(asyncio.to_thread(self._try_refresh))
        await asyncio.shield(self._renewal)

    def _try_refresh(self) -> None:
        with suppress(StoreUnavailable):  # the known replicas are asked
            self.refresh()

    def targets(self) -> list[dict[str, Any]]:
        """Return all replicas, also those being filled, in the format of Prometheus discovery."""
        return [
            {
                "targets": [known.address],
                "labels": {"__scheme__": self.scheme, "shard": str(shard), "replica": str(replica)},
            }
            for (_, shard, replica), known in sorted(self._known.copy().items())
        ]

    async def close(self) -> None:
        """Close all connections."""
        self._stopping.set()
        if self._session is not None:
            await self._session.close()

    def _poll(self) -> None:
        while not self._stopping.wait(LIST_SECONDS):
            self._try_refresh()

    def refresh(self) -> None:
        """Read the list; a replica is removed if it withdraws, or gives no sign of life.

        Signs of life need the database; while it is gone (StoreUnavailable) the list stays. A
        restarted database may have lost the list.
        """
        with self._refreshing:
            try:
                shards = self._database.shards(self._cell) or self._default
                rows = self._database.replicas(self._cell)
            except StoreUnavailable:
                for known in self._known.values():
                    known.seen = time.monotonic()
                raise
            now = time.monotonic()
            for row in rows:
                self._take(row, now)
            self._known = {
                place: known
                for place, known in self._known.items()
                if now - known.seen < self._dead_seconds
            }
            listed: list[Sequence[HttpReplica]] = []
            for shard in range(shards):
                there = [e for place, e in self._known.items() if place[:2] == (shards, shard)]
                # replicas that have all their collections, or all replicas if none has
                listed.append([each for each in there if each.is_filled] or there)
            self.shards = listed  # one assignment: others read it concurrently

    def _take(self, row: Replica, now: float) -> None:
        place = row.shards, row.shard, row.replica
        if not row.address:
            self._known.pop(place, None)
        if not row.address or row.seen >= self._dead_seconds:
            return
        known = self._known.get(place)
        if known is None or known.address != row.address:
            known = HttpReplica(row.address, f"{row.shard}/{row.shards}", self)
            self._known[place] = known
        known.refusal, known.is_filled, known.seen = row.refusal, row.is_filled, now - row.seen


# Asking replicas


class ShardSet(Collector):
    """All shards and their replicas: fail-over, following, and metrics."""

    def __init__(
        self, replicas: HttpReplicas, seconds: float, memory: EpochMemory | None = None
    ) -> None:
        self.seconds = seconds
        self._memory = memory or EpochMemory()
        self._heard = 0.0
        self.follow_seconds = _FOLLOW_SECONDS  # how long a write waits for live replicas
        self.rest_seconds = _REST_SECONDS  # how long a replica that failed is asked last
        # messages sent to replicas, and messages that no replica answered in time, by shard
        self._calls = Counter[int]()
        self._unanswered = Counter[int]()
        # messages that a replica did not answer correctly, by shard and kind of failure
        self.failures = Counter[tuple[int, str]]()
        self._replicas = replicas
        self.targets = replicas.targets
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns = Counter[int]()
        # One message per replica at a time: later writes wait for the next one.
        self._follow_messages = Batcher(max_calls=1)

    def _able(self) -> list[Sequence[HttpReplica]]:
        """Return the replicas of each shard to ask and follow.

        A replica that can store nothing is left out if another can, which then has more changes.
        """
        found: list[Sequence[HttpReplica]] = []
        for shard, replicas in enumerate(self._replicas.shards):
            able = [each for each in replicas if not each.refusal]
            for each in replicas:
                if bool(each.refusal) != each.is_told_full:
                    each.is_told_full = not each.is_told_full
                    told = " is left out:" if able else " writes are refused:"
                    told = f"{told} {each.refusal}" if each.refusal else ": can store again"
                    _log.warning("shard %d, replica %s%s", shard, each.address, told)
            found.append(able or replicas)
        return found

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

        CancelledError of `concurrent.futures` once ``stop`` is set.
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
        return len(self._able())

    def full(self) -> Refused | None:
        """Return the refusal of a shard whose replicas can all store no more; None without one."""
        for shard, replicas in enumerate(self._able()):
            for replica in replicas:
                if replica.refusal:
                    detail = f"shard {shard}, replica {replica.address}: {replica.refusal}"
                    return Refused("shard_full", detail)
        return None

    async def ask(
        self,
        messages: Message | Mapping[int, Message],
        seconds: float | None = None,
        count: int | None = None,
    ) -> list[Message]:
        """Return each shard's answer; else ShardUnavailable, as in `ask_some`."""
        answers, missing = await self.ask_some(messages, seconds, count)
        if missing:
            raise ShardUnavailable(missing, len(self))
        return answers

    async def ask_some(
        self,
        messages: Message | Mapping[int, Message],  # one for all shards, or one for each of some
        seconds: float | None = None,
        count: int | None = None,  # number of shards that the caller assumes; None: the present one
    ) -> tuple[list[Message], list[int]]:
        """Return the answers of the shards that answer in time, and the numbers of the others.

        The first replica of a shard to answer counts. ShardUnavailable if no shard answers, or the
        number of shards has changed; else the error if the question is invalid.
        """
        listed = self._able()
        if count not in (None, len(listed)):
            raise ShardUnavailable([*range(len(listed))], len(listed))
        if isinstance(messages, Message):
            data = dict.fromkeys(range(len(listed)), encode(messages))
        else:
            data = {shard: encode(each) for shard, each in messages.items()}
        asked = (self._ask_shard(listed, shard, each, seconds) for shard, each in data.items())
        found = await asyncio.gather(*asked)
        missing = [shard for shard, each in zip(data, found, strict=True) if each is None]
        if len(missing) == len(data):
            raise ShardUnavailable(missing, len(listed))
        answers = [each for each in found if each is not None]
        for each in answers:
            raise_error(each)
        return answers, missing

    async def _ask_shard(
        self,
        listed: Sequence[Sequence[HttpReplica]],
        shard: int,
        data: bytes,
        seconds: float | None,
    ) -> Message | None:
        """Return the answer of the first replica of a shard to answer; None without an answer."""
        seconds = self.seconds if seconds is None else seconds
        end = time.monotonic() + seconds
        waiting: set[asyncio.Task[Message | None]] = set()
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
                task.cancel()
        self._unanswered[shard] += 1
        return None

    async def _find_newly_listed(
        self, known: set[str], shard: int, shards: int, end: float
    ) -> list[HttpReplica]:
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

    async def tell(
        self,
        message: Message,
        listed: Sequence[Sequence[HttpReplica]] | None = None,  # None: all that can store something
        seconds: float | None = None,  # timeout for one replica of each shard
        all_seconds: float | None = None,  # timeout for the others
    ) -> list[Message]:
        """Return the answers of all replicas that answer in time; ShardUnavailable without any."""
        listed, data = listed or self._able(), encode(message)
        end = time.monotonic() + (self.seconds if seconds is None else seconds)
        asked = {
            asyncio.ensure_future(self._ask(shard, replica, data, end)): shard
            for shard, replicas in enumerate(listed)
            for replica in replicas
        }
        answers, missing, waiting = list[Message](), {*range(len(listed))}, {*asked}
        timeout, when = all_seconds, asyncio.ALL_COMPLETED
        try:
            while waiting and missing:
                done, waiting = await asyncio.wait(waiting, timeout=timeout, return_when=when)
                for each in done:
                    if (answer := each.result()) is not None:
                        raise_error(answer)
                        answers.append(answer)
                        missing.discard(asked[each])
                timeout, when = None, asyncio.FIRST_COMPLETED
        finally:
            for each in asked:
                each.cancel()
        if missing:
            raise ShardUnavailable(sorted(missing), len(listed))
        return answers

    def _in_order(self, shard: int, listed: Sequence[HttpReplica]) -> list[HttpReplica]:
        """Return a shard's replicas in turn, those that failed recently last.

        After its rest a replica gets one message; until it answers, others do not wait for it.
        """
        replicas = [*listed]
        if len(replicas) > 1:
            self._turns[shard] += 1
            first = self._turns[shard] % len(replicas)
            replicas = replicas[first:] + replicas[:first]
            now = time.monotonic()
            replicas.sort(key=lambda each: (each.rests_until or 0.0) > now)
            if replicas[0].rests_until is not None:
                replicas[0].rests_until = now + self.rest_seconds
        return replicas

    async def _ask(
        self, shard: int, replica: HttpReplica, data: bytes, end: float
    ) -> Message | None:
        """Return a replica's answer, which may be an error; None if it is missing or invalid."""
        self._calls[shard] += 1
        try:
            async with asyncio.timeout(max(0.001, end - time.monotonic())):
                answer = decode(await replica.ask(data))
            self._heard = time.monotonic()
            self._memory.hear(answer.head.get("epoch"))
            raise_fault(answer)
        except _FAULTS as error:
            self._note(shard, replica, type(error).__name__, str(error))
            return None
        replica.rests_until = None
        return answer

    def _note(self, shard: int, replica: HttpReplica, kind: str, said: str) -> None:
        """Log a failure, repeated ones once, and count it."""
        self.failures[shard, kind] += 1
        if replica.rests_until is None:
            _log.warning("shard %d, replica %s: %s %s", shard, replica.address, kind, said)
        replica.rests_until = time.monotonic() + self.rest_seconds

    # Epochs

    @property
    def epoch(self) -> list[str | int] | None:
        """The last known epoch as messages encode it."""
        return self._memory.document

    def confirm(self) -> None:
        """Ask each shard for its known epoch, else StoreUnavailable; called in a thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise StoreUnavailable(
                "waiting for the shards to confirm that it is the current primary"
            )
        try:
            self.wait(self._ask_for_epochs(lambda: self._replicas.shards, self.seconds))
        except ShardUnavailable as error:
            missing = ", ".join(map(str, error.missing))
            raise StoreUnavailable(
                f"no replica of shard {missing} says that it is the current primary"
            ) from None

    def hear(self, silent_seconds: float) -> None:
        """Ask replicas for their known epoch, unless one has answered recently."""
        if time.monotonic() - self._heard > silent_seconds:
            with suppress(ShardUnavailable):
                self.wait(self._ask_for_epochs(self._live, self.follow_seconds))

    async def _ask_for_epochs(
        self, list_replicas: Callable[[], Sequence[Sequence[HttpReplica]]], seconds: float
    ) -> None:
        await self._replicas.renew()
        message = Message({"method": "status", "epoch": self.epoch})
        await self.tell(message, list_replicas(), seconds, self.follow_seconds)

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        label = ["shard"]
        replicas = Gauge("gcws_router_replicas", "Replicas that may be asked.", labels=label)
        full = Gauge(
            "gcws_router_full_replicas", "Replicas that can store nothing more.", labels=label
        )
        calls = CounterMetricFamily("gcws_router_calls", "Messages sent to replicas.", labels=label)
        text = "Messages that no replica of a shard answered in time."
        unanswered = CounterMetricFamily("gcws_router_unanswered", text, labels=label)
        text = "Messages that a replica did not answer as it should, by what was wrong."
        failures = CounterMetricFamily("gcws_router_failures", text, labels=["shard", "kind"])
        for shard, every in enumerate(self._replicas.shards):
            full.add_metric([str(shard)], sum(bool(each.refusal) for each in every))
        for shard, listed in enumerate(self._able()):
            replicas.add_metric([str(shard)], len(listed))
            calls.add_metric([str(shard)], self._calls[shard])
            unanswered.add_metric([str(shard)], self._unanswered[shard])
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
        live = self._live()
        if len(live) == len(parts):  # else the number of shards has changed
            for part, replicas in zip(parts, live, strict=True):
                for replica in replicas:
                    replica.followings[number].add(part)

    def _live(self) -> list[list[HttpReplica]]:
        """Return the replicas of each shard that have not failed recently."""
        return [
            [each for each in replicas if each.rests_until is None] for replicas in self._able()
        ]

    async def follow(
        self, number: int, moment: Moment, concerned: Collection[int] | None = None
    ) -> None:
        """Return when every live replica has reached a moment, or after a second.

        ``concerned``: the shards to wait for; None: all. A replica that failed is skipped until it
        has answered a query.
        """
        waiting = [
            self._follow_messages.search(
                following, moment, partial(self._ask_to_follow, shard, replica, number), rows=0
            )
            for shard, replicas in enumerate(self._live())
            if concerned is None or shard in concerned
            for replica in replicas
            if (following := replica.followings[number]).reached < moment
        ]
        if waiting:
            await asyncio.wait(waiting, timeout=self.follow_seconds)

    async def _ask_to_follow(
        self, shard: int, replica: HttpReplica, number: int, moments: Sequence[Moment]
    ) -> Sequence[Moment]:
        """Ask a replica to reach the last of some moments; send changes along."""
        following = replica.followings[number]
        moment, changes = max(moments), following.take()
        if replica.rests_until is not None:  # it failed after these writes
            return moments
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
        if answer is None or "key" not in answer.head:  # not awaited: queries check its state
            following.take()  # later changes are unusable without those of the lost message
        else:
            said = answer.head
            following.reached = Moment(int(said.get("since", moment.epoch)), int(said["key"]))
        return moments


async def _first(waiting: set[asyncio.Task[Message | None]], until: float) -> Message | None:
    """Return the first answer before a time; remove finished tasks from ``waiting``."""
    while waiting and (left := until - time.monotonic()) > 0:
        done, _ = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        waiting -= done
        for task in done:
            if (answer := task.result()) is not None:
                return answer
    return None


class _Following:
    """The progress of a replica in a collection, and the changes for its next message."""

    def __init__(self) -> None:
        self.reached = Moment(0, 0)
        self._changes: list[Message] = []
        self._bytes = 0

    def add(self, change: Message) -> None:
        """Queue a change for the next message; above a limit the replica reads the database."""
        self._bytes += sum(map(len, change.blobs))
        self._changes.append(change)
        if self._bytes > _MAX_CHANGE_BYTES:
            self.take()

    def take(self) -> Sequence[Message]:
        """Return and clear the queued changes."""
        changes, self._changes, self._bytes = self._changes, [], 0
        return changes
