"""A shard behind HTTP: messages of routers as bodies, health and metrics."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import threading
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gcws_search.service.cluster.contract import MESSAGES, PLACE, place_of
from gcws_search.service.cluster.messages import encode_error
from gcws_search.service.cluster.shard.host import ShardHost
from gcws_search.service.cluster.shard.pool import MessagePool
from gcws_search.service.guards.admission import resident_bytes
from gcws_search.service.rpc.messages import Malformed, Message, decode

MAX_BODY_BYTES: Final = 1 << 28
_BYTES_PER_SECOND: Final = 1e6
"""Of a message, to judge how long its answer takes."""
_WAITING: Final = frozenset({"follow", "refresh", "status"})
"""Messages that compute nothing."""
_LONG: Final = frozenset({"pairs", "compare"})
"""Messages that may compute for minutes."""
_KNOWN: Final = frozenset({"search", "count", "rows", "describe", "summary", "curve", "audited"})


class ShardMetrics(Collector):
    """What a shard counts; used on its event loop, read from any thread."""

    def __init__(self, host: ShardHost) -> None:
        self._host = host
        self._messages: dict[str, int] = {}
        self._seconds: dict[str, float] = {}

    def observe(self, method: object, seconds: float) -> None:
        """Count a message."""
        is_known = method in _KNOWN | _WAITING | _LONG
        name = str(method) if is_known else "other"
        self._messages[name] = self._messages.get(name, 0) + 1
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics."""
        messages = CounterMetricFamily(
            "gcws_shard_messages", "Messages answered.", labels=["method"]
        )
        seconds = CounterMetricFamily(
            "gcws_shard_message_seconds", "How long they took, together.", labels=["method"]
        )
        for name, number in self._messages.copy().items():
            messages.add_metric([name], number)
            seconds.add_metric([name], self._seconds[name])
        yield from (messages, seconds)
        behind = GaugeMetricFamily(
            "gcws_shard_changes_behind",
            "Changes that are not here yet.",
            labels=["collection"],
        )
        followers = self._host.followers
        for each in followers:
            behind.add_metric([str(each.number)], each.head - each.reached)
        yield behind
        for name, told, value in (
            ("gcws_shard_follow_failures", "Times that it could not follow.", "failures"),
            ("gcws_shard_fills", "Files that were of no use, and were filled again.", "fills"),
        ):
            yield CounterMetricFamily(
                name, told, value=sum(getattr(each, value) for each in followers)
            )
        reachable = GaugeMetricFamily(
            "gcws_shard_database_reachable", "1 while the database answers."
        )
        reachable.add_metric([], float(self._host.is_reachable))
        yield reachable
        yield GaugeMetricFamily(
            "gcws_shard_full",
            "1 while the shard can store nothing more.",
            value=float(bool(self._host.refusal)),
        )
        yield GaugeMetricFamily("gcws_shard_bytes", "Memory of the items.", value=self._host.nbytes)
        yield GaugeMetricFamily(
            "gcws_shard_resident_bytes", "Memory of the process.", value=resident_bytes()
        )


class ShardService:
    """Answers the requests of one shard.

    Parameters
    ----------
    key
        That routers have.
    threads
        That search at once; None takes one a core.

    Raises
    ------
    ValueError
        There is no key.
    """

    def __init__(self, host: ShardHost, key: str, threads: int | None = None) -> None:
        if not key:
            raise ValueError("a shard does not start without a key of its cluster")
        self.host = host
        self.pool = MessagePool(threads)
        self.metrics = ShardMetrics(host)
        self._under_way = 0
        self._asked = time.monotonic()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self.metrics)
        self._digest = _digest(f"Bearer {key}")

    async def message(self, request: Request) -> Response:
        """Answer a message; errors are in the answer."""
        refused = self._refused(request)
        if refused is not None:
            return refused
        self._under_way += 1
        try:
            return await self._message(request)
        finally:
            self._under_way -= 1
            self._asked = time.monotonic()

    @property
    def quiet_seconds(self) -> float:
        """How long there has been no message; any thread."""
        return 0.0 if self._under_way else time.monotonic() - self._asked

    def _refused(self, request: Request) -> Response | None:
        """Return what a request is answered that is not for this shard."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(_digest(given), self._digest):
            return PlainTextResponse("expected the key of the cluster", 401)
        if PLACE in request.headers:
            place = place_of(self.host.place.shard, self.host.place.shards)
            if request.headers[PLACE] != place:
                return PlainTextResponse(f"this is shard {place}", 421)
        return None

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
            return _answer(encode_error(error))
        method = asked.head.get("method")
        try:
            if method in _LONG:
                return _answer(await self._computed(asked, request))
            return _answer(await self._answered(asked, method, len(body)))
        finally:
            self.metrics.observe(method, time.perf_counter() - start)

    async def _answered(self, asked: Message, method: object, size: int) -> bytes:
        work = partial(self.host.answered, asked)
        if method in _WAITING:
            return bytes(await self.pool.wait(work))
        await self._reach(asked)
        return await self.pool.run(work, size / _BYTES_PER_SECOND)

    async def _reach(self, asked: Message) -> None:
        """Wait for the changes that a message asks for, as long as it says."""
        if not self.host.has_reached(asked):
            await self.pool.wait(partial(self.host.wait_for, asked))
            asked.head["seconds"] = 0.0  # it has waited

    async def _computed(self, asked: Message, request: Request) -> bytes:
        """Answer a message that may take minutes; the work ends soon once nobody waits for it."""
        stop = threading.Event()
        watching = asyncio.ensure_future(_until_left(request, stop))

        def compute() -> bytes:
            return b"" if stop.is_set() else self.host.answered(asked, stop)  # one at a time

        try:
            await self._reach(asked)
            return await self.pool.run_long(compute)
        finally:
            watching.cancel()

    async def live(self, _: Request) -> Response:
        """Say that the process runs."""
        return JSONResponse({"status": "live"})

    async def ready(self, _: Request) -> Response:
        """Say whether all collections can be asked."""
        host = self.host
        document = {
            "status": "ready" if host.is_ready else "starting",
            "database": "reachable" if host.is_reachable else "unreachable",
        }
        if refusal := host.refusal:
            document["refusal"] = refusal
        return JSONResponse(document, 200 if host.is_ready else 503)

    async def show_metrics(self, _: Request) -> Response:
        """Return what is counted, as Prometheus reads it."""
        text = await asyncio.to_thread(generate_latest, self._registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


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
            await asyncio.to_thread(service.pool.close)

    return Starlette(
        routes=[
            Route(MESSAGES, service.message, methods=["POST"]),
            Route("/livez", service.live),
            Route("/readyz", service.ready),
            Route("/metrics", service.show_metrics),
        ],
        lifespan=lifespan,
    )


async def _until_left(request: Request, stop: threading.Event) -> None:
    """Set an event once who asked has closed the connection; the body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    stop.set()


def _answer(body: bytes) -> Response:
    return Response(body, media_type="application/octet-stream")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
