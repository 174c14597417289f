"""Replicas of shards behind HTTP in this process, which may do what they should not."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path

from pydantic import SecretStr
from starlette.types import ASGIApp, Receive, Scope, Send

from gcws_search.service.app import create_app
from gcws_search.service.cluster.contract import MESSAGES
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.host import ShardHost
from gcws_search.service.cluster.server import ShardService, create_shard_app
from gcws_search.service.settings import Settings
from tests.support.service.client import Client, Json, metric, running
from tests.support.service.live_server import serving
from tests.support.service.ports import HOST
from tests.support.service.shards import BUCKETS, KEY, QUICK, SECONDS
from tests.support.waiting import wait_until


class Fault(Enum):
    """What a replica does with messages in the place of an answer."""

    SILENT = "it never answers"
    NONSENSE = "it answers with a page"
    BROKEN = "it answers 500"
    CUT = "its answer ends in the middle"


class FaultyApp:
    """The application of a shard; ``fault`` is what is wrong with it, if anything is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.fault: Fault | None = None
        self.asked = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != MESSAGES:
            await self._app(scope, receive, send)
            return
        self.asked += 1
        match self.fault:
            case None:
                await self._app(scope, receive, send)
            case Fault.SILENT:
                while (await receive())["type"] != "http.disconnect":
                    pass
            case Fault.NONSENSE:
                await _answer(send, 200, b"<html>It works!</html>")
            case Fault.BROKEN:
                await _answer(send, 500, b"Internal Server Error")
            case Fault.CUT:
                await _answer(send, 200, b"\1\0\0\0", length=1000)


async def _answer(send: Send, status: int, body: bytes, length: int | None = None) -> None:
    size = str(len(body) if length is None else length).encode()
    head = [(b"content-length", size), (b"content-type", b"text/html")]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


class HttpShard:
    """One replica, which listens at a port of its own.

    ``key``: that it asks for.
    """

    def __init__(
        self,
        database: Database,
        folder: Path,
        shard: int,
        shards: int,
        replica: int,
        *,
        key: str = KEY,
        poll_seconds: float = QUICK.poll_seconds,
    ) -> None:
        self._bound = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._bound.getsockname()[1]}"
        options = replace(QUICK, address=self.address, replica=replica, poll_seconds=poll_seconds)
        self.host = ShardHost(
            database, folder / f"{shard}-{replica}", shard, shards, threads=1, options=options
        )
        self.service = ShardService(self.host, key, threads=1)
        self.app = FaultyApp(create_shard_app(self.service))
        self._running = ExitStack()

    def start(self) -> None:
        # Connections are kept longer than routers keep them, as in earnest.
        options = {"timeout_graceful_shutdown": 1, "timeout_keep_alive": 75}
        self._running.enter_context(serving(self.app, self._bound, **options))

    def stop(self) -> None:
        """End it: nobody listens at its port any more."""
        self._running.close()


@contextmanager
def http_shards(
    url: str, folder: Path, shards: int, replicas: int, *, first: int = 0, **more: Json
) -> Iterator[list[list[HttpShard]]]:
    """Lend running replicas of all shards, numbered from ``first``."""
    with ExitStack() as stack:
        database = Database.open(url, buckets=BUCKETS)
        stack.callback(database.close)
        found: list[list[HttpShard]] = []
        for shard in range(shards):
            found.append([])
            for number in range(first, first + replicas):
                one = HttpShard(database, folder, shard, shards, number, **more)
                one.start()
                stack.callback(one.stop)
                found[-1].append(one)
        yield found


@contextmanager
def router(
    url: str, folder: Path, shards: int, replicas: int | None, **more: Json
) -> Iterator[Client]:
    """Lend a client of a router that knows so many replicas of each shard; None: any number."""
    settings = Settings(
        data_dir=folder,
        database_url=SecretStr(url),
        cluster_key=more.pop("cluster_key", KEY),
        shards=shards,
        shard_seconds=more.pop("shard_seconds", SECONDS),
        buckets=BUCKETS,
        threads=1,
        durability="normal",
        **more,
    )
    with running(Client(create_app(settings))) as client:
        if replicas is not None:
            wait_until(lambda: listed(client, shards) == [replicas] * shards)
            wait_until(lambda: client.get("/readyz").json()["database"] == "reachable")
        yield client


def listed(client: Client, shards: int) -> list[int]:
    names = (f'gcws_router_replicas{{shard="{shard}"}}' for shard in range(shards))
    return [int(metric(client, name, 0)) for name in names]
