"""The HTTP server of a replica: messages of routers as bodies, health and metrics."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily as Counter, GaugeMetricFamily as Gauge
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gcws_search import index as ix
from gcws_search.service.cluster.contract import (
    EPOCH_FILE,
    MESSAGES,
    PLACE,
    EpochMemory,
    encode_error,
)
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.follower import HostOptions
from gcws_search.service.cluster.host import ShardHost
from gcws_search.service.cluster.operations import LONG, OPERATIONS
from gcws_search.service.errors import Refused
from gcws_search.service.keys import ApiKeys, cluster_access, shard_certificate
from gcws_search.service.limits import Room, resident_bytes
from gcws_search.service.messages import Malformed, Message, decode
from gcws_search.service.server import HttpServer, server_options
from gcws_search.service.settings import Settings

MAX_BODY_BYTES: Final = 1 << 28
_SHORT_BYTES: Final = 1 << 16  # a larger message contains many queries
_WAITING: Final = frozenset({"follow", "refresh", "status"})  # messages without computation
_WAITING_THREADS: Final = 64  # messages that may wait for a change in parallel
_LONG_THREADS: Final = 1  # messages that may run for minutes in parallel
_ANY: Final = {"0.0.0.0", "::", ""}  # addresses to listen on that clients cannot use
# Routers read the list of replicas each second; after a longer silence none asks this one.
_QUIET_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.1

_log = logging.getLogger(__name__)


class ShardServer:
    """A replica's HTTP server with its host and database."""

    def __init__(
        self,
        settings: Settings,  # address, folder, database and cell
        shard: int,
        replica: int,
        *,
        # whether the replicas of its host share one memory limit
        shares_memory: bool = False,
    ) -> None:
        (url, key), name = cluster_access(settings), f"shard {shard} replica {replica}"
        keys, tls = ApiKeys(settings), shard_certificate(settings)
        if settings.offload and settings.base is None:
            raise ValueError("GCWS_OFFLOAD: expected GCWS_BASE, where vectors are moved, got none")
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        with ExitStack() as opened:
            self._listening = opened.enter_context(
                socket.create_server((settings.host, settings.port), family=family)
            )
            self._listening.set_inheritable(True)
            self.address = address_of(settings, self._listening)
            memory = EpochMemory(settings.data_dir / EPOCH_FILE)
            database = Database.open(
                url,
                buckets=settings.buckets,
                application=name,
                memory=memory,
                key=key,
                base=settings.base,
            )
            opened.callback(database.close)
            if not shares_memory:  # Ray may place the first of another number
                database.require_shards(settings.cell, settings.shards)
            self.host = ShardHost(
                database,
                settings.data_dir,
                shard,
                settings.shards,
                threads=settings.threads,
                policies=replace(ix.POLICIES, audit_share=settings.audit_share),
                options=HostOptions(
                    address=self.address,
                    replica=replica,
                    cell=settings.cell,
                    shares_memory=shares_memory,
                    compiles=True,
                    full=Room(settings).look,
                    base=settings.base or "",
                    offload=settings.offload,
                ),
            )
            self._opened = opened.pop_all()
        self.service = ShardService(self.host, key, settings.threads, keys)
        app = create_shard_app(self.service)
        self._server = HttpServer(uvicorn.Config(app, **server_options(settings), **tls))
        _log.info("%s, of %d shards, at %s", name, settings.shards, self.address)

    def run(self) -> None:
        """Serve until stopped."""
        with self._opened:
            self._server.run(sockets=[self._listening])

    def stop(self) -> None:
        """Make `run` return; any thread."""
        self._server.should_exit = True

    def leave(self, seconds: float) -> None:
        """Make routers ask other replicas; stop once none asks this one, or after some seconds."""
        end = time.monotonic() + seconds
        withdrawn = self.host.withdraw(seconds) and time.monotonic()
        while withdrawn and (now := time.monotonic()) < end:
            if now - withdrawn >= _QUIET_SECONDS <= self.service.quiet_seconds:
                break
            time.sleep(_POLL_SECONDS)
        self.stop()


def address_of(settings: Settings, listening: socket.socket) -> str:
    """Return the address for routers: the published host, or the one it listens on."""
    host = settings.published_host or settings.host
    if host in _ANY:
        host = socket.gethostname()
    if ":" in host:
        host = f"[{host}]"
    return f"{host}:{listening.getsockname()[1]}"


class ShardService(Collector):
    """Answers routers that have the key of the cluster; ValueError without a key.

    ``keys``: keys of other clients that may read metrics.
    """

    def __init__(
        self, host: ShardHost, key: str, threads: int | None = None, keys: ApiKeys | None = None
    ) -> None:
        if not key:
            raise ValueError("a shard does not start without a key of its cluster")
        self.host = host
        # Batches and short messages each have threads of their own: no query waits for a batch.
        count = threads or len(os.sched_getaffinity(0))
        self.searches = ThreadPoolExecutor(count, thread_name_prefix="shard-search")
        self.batches = ThreadPoolExecutor(count, thread_name_prefix="shard-batch")
        self.waiting = ThreadPoolExecutor(_WAITING_THREADS, thread_name_prefix="shard-waiting")
        self.long = ThreadPoolExecutor(
            _LONG_THREADS, thread_name_prefix="shard-long", initializer=ix.give_way
        )
        self._messages = defaultdict[str, int](int)
        self._seconds = defaultdict[str, float](float)
        self._under_way = 0
        self._asked = time.monotonic()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._digest = _digest(f"Bearer {key}")
        self._keys = keys

    def close(self) -> None:
        """Finish waiting messages, and join the threads."""
        for each in (self.searches, self.batches, self.waiting, self.long):
            each.shutdown()

    async def message(self, request: Request) -> Response:
        """Answer a message; errors are part of the answer."""
        if (refused := self._refuse(request)) is not None:
            return refused
        self._under_way += 1
        try:
            return await self._message(request)
        finally:
            self._under_way -= 1
            self._asked = time.monotonic()

    @property
    def quiet_seconds(self) -> float:
        """Seconds since the last message; any thread."""
        return 0.0 if self._under_way else time.monotonic() - self._asked

    def _refuse(self, request: Request) -> Response | None:
        """Return a refusal if a request has another key, or is for another shard."""
        if not self._is_of_cluster(request):
            return PlainTextResponse("expected the key of the cluster", 401)
        if PLACE in request.headers:
            place = f"{self.host.place.shard}/{self.host.place.shards}"
            if request.headers[PLACE] != place:
                return PlainTextResponse(f"this is shard {place}", 421)
        return None

    def _is_of_cluster(self, request: Request) -> bool:
        """Whether a request has the key of the cluster."""
        given = request.headers.get("authorization", "")
        return hmac.compare_digest(_digest(given), self._digest)

    def _may_read(self, request: Request) -> bool:
        """Whether a request has a key that permits reading, or the key of the cluster."""
        if not self._is_of_cluster(request) and self._keys is not None and self._keys.are_set:
            _, _, key = request.headers.get("authorization", "").partition("Bearer ")
            with suppress(Refused):
                return bool(self._keys.permission(key))
        return self._is_of_cluster(request)

    async def _message(self, request: Request) -> Response:
        body = bytearray()
        try:
            async for piece in request.stream():
                body += piece
                if len(body) > MAX_BODY_BYTES:
                    return PlainTextResponse(f"expected at most {MAX_BODY_BYTES} bytes", 413)
        except ClientDisconnect:
            return Response(status_code=400)
        start = time.perf_counter()
        try:
            asked = decode(bytes(body))
            self.host.hear(asked)
        except Malformed as error:
            return _respond(encode_error(error))
        method = asked.head.get("method")
        work = partial(self.host.answer_message, asked)
        try:
            if method in _WAITING:
                return _respond(await asyncio.wrap_future(self.waiting.submit(work)))
            if method in LONG:
                return _respond(await self._answer_long(asked, request))
            await self._reach(asked)
            pool = self.searches if len(body) <= _SHORT_BYTES else self.batches
            return _respond(await asyncio.wrap_future(pool.submit(work)))
        finally:
            is_known = method in _WAITING or method in OPERATIONS or method in LONG
            name = str(method) if is_known else "other"
            self._messages[name] += 1
            self._seconds[name] += time.perf_counter() - start

    async def _reach(self, asked: Message) -> None:
        """Wait for the changes that a message requires, as long as the message says."""
        if not self.host.has_reached(asked):
            await asyncio.wrap_future(self.waiting.submit(self.host.wait_for, asked))
            asked.head["seconds"] = 0.0  # it has waited

    async def _answer_long(self, asked: Message, request: Request) -> bytes:
        """Answer a message that may take minutes; stop soon after the client disconnects."""
        stop = threading.Event()

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass  # the body has been read
            stop.set()

        def compute() -> bytes:
            return b"" if stop.is_set() else self.host.answer_message(asked, stop)  # one at a time

        watching = asyncio.ensure_future(watch())
        try:
            await self._reach(asked)
            return await asyncio.wrap_future(self.long.submit(compute))
        finally:
            watching.cancel()

    async def live(self, _: Request) -> Response:
        """Report that the process runs."""
        return JSONResponse({"status": "live"})

    async def ready(self, _: Request) -> Response:
        """Report whether all collections can be queried."""
        host = self.host
        document = {
            "status": "ready" if host.is_ready else "starting",
            "database": "reachable" if host.is_reachable else "unreachable",
        }
        if refusal := host.refusal:
            document["refusal"] = refusal
        return JSONResponse(document, 200 if host.is_ready else 503)

    async def show_metrics(self, request: Request) -> Response:
        """Return the metrics in the format of Prometheus."""
        if not self._may_read(request):
            return PlainTextResponse("expected a key that may read, or that of the cluster", 401)
        text = await asyncio.to_thread(generate_latest, self._registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics; any thread."""
        host, followers = self.host, self.host.followers
        heads = {each.number: each.head for each in followers}
        # The head is that of the last poll; messages may have brought later changes.
        behind = {n: max(0, heads.get(n, key) - key) for n, key in host.positions.items()}
        late = {each.number: each.seconds_behind for each in followers}
        took = "How long they took, together."
        lacks = "How long it has lacked changes; 0 where it has all that the database had."
        age = "How old the base is that lacks changes; 0 where none does."
        fewer = "Changes that are not here yet."
        moved = "Bytes of segments, of vectors that are not in the database."
        labelled: tuple[tuple[Any, str, str, str, Mapping[Any, float]], ...] = (
            (Counter, "gcws_shard_messages", "Messages answered.", "method", self._messages),
            (Counter, "gcws_shard_message_seconds", took, "method", self._seconds),
            (Gauge, "gcws_shard_seconds_behind", lacks, "collection", late),
            (Gauge, "gcws_shard_changes_behind", fewer, "collection", behind),
            (Gauge, "gcws_shard_base_age_seconds", age, "collection", host.base_ages),
            (Gauge, "gcws_shard_segment_bytes", moved, "collection", host.segment_bytes),
        )
        for kind, name, text, label, values in labelled:
            metric = kind(name, text, labels=[label])
            for each, value in dict(values).items():
                metric.add_metric([str(each)], value)
            yield metric
        failures, fills = sum(each.failures for each in followers), sum(e.fills for e in followers)
        reads = sum(each.base_reads for each in followers)
        lost = host.base_failures + sum(each.base_failures for each in followers)
        begun = "Files that began with a base."
        useless = "Bases of no use, or not written; vectors that were not moved to segments."
        refill = "Files that were of no use, and were filled again."
        reachable = "1 while the database answers."
        full = "1 while the shard can store nothing more."
        for kind, name, text, value in (
            (Counter, "gcws_shard_follow_failures", "Times that it could not follow.", failures),
            (Counter, "gcws_shard_fills", refill, fills),
            (Counter, "gcws_shard_base_reads", begun, reads),
            (Counter, "gcws_shard_base_failures", useless, lost),
            (Gauge, "gcws_shard_database_reachable", reachable, host.is_reachable),
            (Gauge, "gcws_shard_full", full, bool(host.refusal)),
            (Gauge, "gcws_shard_bytes", "Memory of the items.", host.nbytes),
            (Gauge, "gcws_shard_resident_bytes", "Memory of the process.", resident_bytes()),
        ):
            yield kind(name, text, value=float(value))


def create_shard_app(service: ShardService) -> Starlette:
    """Return the application of a shard, which starts its host and closes it."""
    host = service.host

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        host.start()
        try:
            yield
        finally:
            await asyncio.to_thread(host.close)
            await asyncio.to_thread(service.close)

    return Starlette(
        routes=[
            Route(MESSAGES, service.message, methods=["POST"]),
            Route("/livez", service.live),
            Route("/readyz", service.ready),
            Route("/metrics", service.show_metrics),
        ],
        lifespan=lifespan,
    )


def _respond(body: bytes) -> Response:
    return Response(body, media_type="application/octet-stream")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
