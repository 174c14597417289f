"""A cluster in this process: an application over a database, and shards as threads."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gcws_search.index import POLICIES, Policies
from gcws_search.service.app import create_app
from gcws_search.service.cluster.catalog import open_router
from gcws_search.service.cluster.committer import Committer
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.follower import HostOptions
from gcws_search.service.cluster.host import ShardHost
from gcws_search.service.cluster.shards import HttpReplica, HttpReplicas
from gcws_search.service.messages import decode
from gcws_search.service.settings import Settings
from tests.support.service.client import Client, Json
from tests.support.service.shards import KEY, SECONDS, answer

BUCKETS = 8


class ThreadReplica(HttpReplica):
    """A replica of a shard in this process; ``broken``: it fails as one behind a network does."""

    def __init__(self, host: ShardHost, address: str, replicas: HttpReplicas) -> None:
        self.host = host
        super().__init__(address, "", replicas)
        self.broken: Exception | None = None
        self.asked = 0
        self._threads = ThreadPoolExecutor(4)

    @property
    def refusal(self) -> str:
        return self.host.refusal

    @refusal.setter
    def refusal(self, said: str) -> None: ...

    async def ask(self, message: bytes) -> bytes:
        self.asked += 1
        if self.broken is not None:
            raise self.broken
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, answer, self.host, message)

    def close(self) -> None:
        self._threads.shutdown()


def before_each_message(
    monkeypatch: pytest.MonkeyPatch, hook: Callable[[ThreadReplica, Json], Awaitable[None]]
) -> None:
    """Have a replica and the head of a message seen before it is answered."""
    ask = ThreadReplica.ask

    async def watched(replica: ThreadReplica, message: bytes) -> bytes:
        await hook(replica, decode(message).head)
        return await ask(replica, message)

    monkeypatch.setattr(ThreadReplica, "ask", watched)


class Shards(HttpReplicas):
    """Hosts of all shards over folders, as threads."""

    def __init__(
        self,
        url: str,
        folder: Path,
        shards: int,
        replicas: int = 1,
        *,
        policies: Policies = POLICIES,
        options: HostOptions = HostOptions(),  # noqa: B008  # it is frozen
    ) -> None:
        self.database = Database.open(url, buckets=BUCKETS, base=options.base or None)
        super().__init__(self.database, "main", shards, "")
        self.replicas: list[list[ThreadReplica]] = []
        self.shards = self.replicas
        for shard in range(shards):
            self.replicas.append([])
            for name in (f"shard-{shard}-{replica}" for replica in range(replicas)):
                own: Json = {"threads": 1, "policies": policies, "options": options}
                host = ShardHost(self.database, folder / name, shard, shards, **own)
                host.start()
                self.replicas[-1].append(ThreadReplica(host, name, self))

    def start(self) -> None: ...

    async def renew(self) -> None: ...

    async def close(self) -> None: ...

    def stop(self) -> None:
        for replica in [each for replicas in self.replicas for each in replicas]:
            replica.close()
            replica.host.close()
        self.database.close()


class ClusterClient(Client):
    """Sends requests to a router of a cluster whose shards are threads."""

    store = Committer

    def __init__(
        self,
        url: str,
        data_dir: Path,
        *,
        shards: int = 2,
        replicas: int = 1,
        policies: Policies = POLICIES,
        options: HostOptions = HostOptions(),  # noqa: B008  # it is frozen
        **settings: Json,
    ) -> None:
        defaults: dict[str, Json] = {"threads": 1, "durability": "normal", "buckets": BUCKETS}
        defaults |= {"database_url": url, "shards": shards, "shard_seconds": SECONDS}
        defaults |= {"cluster_key": KEY}
        defaults |= {"audit_share": 0.0}  # as of `client.application`
        self.settings = Settings(data_dir=data_dir / "router", **(defaults | settings))
        audited = replace(policies, audit_share=self.settings.audit_share)
        options = replace(options, base=self.settings.base or "")
        more: Json = {"policies": audited, "options": options}
        self.shards = Shards(url, data_dir, shards, replicas, **more)
        opening = partial(open_router, replicas=self.shards, policies=policies)
        super().__init__(create_app(self.settings, open_router=opening))

    def finish_background_work(self, name: str) -> None:
        number = self.app.state.service.collection(name).number
        for replica in [each for replicas in self.shards.replicas for each in replicas]:
            replica.host.collection(number, 0, SECONDS).finish_background_work()

    def stop(self) -> None:
        is_first = not self._stopped
        super().stop()
        if is_first:
            self.shards.stop()
