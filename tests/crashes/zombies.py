"""Rounds in which a former primary comes back, over a cluster in this process.

As the kind ``zombie`` of `tests.crashes.cluster`, without Ray and by the second: all routers and
replicas end, and start again from their folders in random order.
"""

import random
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import httpx
from pydantic import SecretStr

from gcws_search.service.app import create_app
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.epochs import FILE, EpochMemory
from gcws_search.service.errors import StoreUnavailable
from gcws_search.service.settings import Settings
from tests.crashes.checking import expect
from tests.support.service.client import Client
from tests.support.service.http_shards import KEY, HttpShard
from tests.support.service.postgres import Postgres
from tests.support.service.postgres_pair import PostgresPair, kill_server
from tests.support.service.shards import BUCKETS

URL: Final = "/v1/collections/things"
SHARDS: Final = 2
ROUTERS: Final = 2
OK: Final = 200
_SECONDS: Final = 60.0
_IDS: Final = 12


class ZombieTrial:
    """A cluster whose primary is lost, and comes back.

    ``acknowledged``, ``refused``: Writes.
    """

    def __init__(self, seed: int) -> None:
        self.acknowledged = self.refused = 0
        self._random = random.Random(seed)
        self._pair = PostgresPair()
        self._possible: dict[str, set[int]] = {}
        self._version = 0
        self._folder = Path(tempfile.mkdtemp(prefix="gcws-zombies-"))
        self._running = ExitStack()
        self._clients: list[Client] = []
        self._pair.start("things")
        self._pair.add_standby()
        self._start_all()
        self._until(lambda: self._clients[0].put(URL, json={"dim": 2}).status_code in (OK, 201))

    def stop(self) -> None:
        """End all."""
        self._running.close()
        self._pair.remove()

    @property
    def told(self) -> str:
        """What clients were answered."""
        return f"{self.acknowledged} writes acknowledged, {self.refused} refused"

    def round(self) -> None:
        """Lose the primary, promote its standby, start the first again, restart all; compare."""
        draw, pair = self._random, self._pair
        self._write_several()
        kill_server(pair.primary, SIGKILL)
        pair.promote_standby()
        self._write_several()
        former, is_alone = pair.standby, draw.random() < 1 / 2
        self._start_former(former)
        if draw.random() < 1 / 2:
            self._write_several()
        if is_alone:
            kill_server(pair.primary, SIGKILL)
        self._running.close()
        self._clients.clear()
        self._start_all(is_alone=is_alone)
        self._write_several()
        self._compare()
        kill_server(former, SIGKILL)
        pair.add_standby()

    def _start_former(self, former: Postgres) -> None:
        former.start()
        if self._random.random() < 3 / 4:  # else its commits wait for the promoted one
            former.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            former.execute("SELECT pg_reload_conf()")

    def _start_all(self, *, is_alone: bool = False) -> None:
        """Start routers and replicas in random order; the current primary at some moment of it."""
        work: list[Callable[[], bool]] = [
            *(partial(self._start_shard, shard) for shard in range(SHARDS)),
            *(partial(self._start_router, router) for router in range(ROUTERS)),
        ]
        self._random.shuffle(work)
        if is_alone:
            work.insert(self._random.randrange(len(work) + 1), self._start_primary)
        end = time.monotonic() + _SECONDS
        while work:
            work = [each for each in work if not each()]
            if self._clients:
                self._read_and_write_once()
            expect(time.monotonic() < end, "not started")

    def _start_primary(self) -> bool:
        self._pair.primary.start()
        return True

    def _start_shard(self, shard: int) -> bool:
        """Start a replica, which ends where it finds no primary; return whether it runs."""
        folder = self._folder / "shards"
        memory = EpochMemory(folder / f"{shard}-0" / FILE)
        with suppress(StoreUnavailable):
            url = self._pair.url("things")
            database = Database.open(url, buckets=BUCKETS, memory=memory, key=KEY)
            self._running.callback(database.close)
            replica = HttpShard(database, folder, shard, SHARDS, 0)
            replica.start()
            self._running.callback(replica.stop)
            return True
        return False

    def _start_router(self, number: int) -> bool:
        settings = Settings(
            data_dir=self._folder / f"router-{number}",
            database_url=SecretStr(self._pair.url("things")),
            cluster_key=SecretStr(KEY),
            shards=SHARDS,
            buckets=BUCKETS,
            threads=1,
            shard_seconds=5,
        )
        client = Client(create_app(settings))
        client.start()
        self._running.callback(client.stop)
        client.wait_until_ready()
        self._clients.append(client)
        return True

    # Clients

    def _write_several(self) -> None:
        for _ in range(4):
            self._until(self._write)

    def _write(self) -> bool:
        """Write an item once; return whether that is acknowledged."""
        self._version += 1
        version, item_id = self._version, f"i{self._random.randrange(_IDS)}"
        item = {"id": item_id, "vector": [1, version], "payload": {"version": version}}
        client = self._random.choice(self._clients)
        answer = client.put(f"{URL}/items", json={"items": [item]})
        known = self._possible.setdefault(item_id, {0})
        if answer.status_code == OK:
            self.acknowledged += 1
            self._possible[item_id] = {version}
            return True
        expect(answer.status_code == 503, "a write is not possible", answer.text)
        self.refused += 1
        if "may be stored" in answer.text:
            known.add(version)
        return False

    def _read_and_write_once(self) -> None:
        """Read what was acknowledged and write, once, whatever is there now."""
        for client in self._clients:
            for item_id, versions in self._possible.items():
                if 0 not in versions:
                    self._check_read(client.get(f"{URL}/items/{item_id}"), item_id)
        self._write()

    def _check_read(self, answer: httpx.Response, item_id: str) -> None:
        if answer.status_code == 503:
            return
        expect(answer.status_code == OK, "an acknowledged item is not there", answer.text)
        found = answer.json()["payload"]["version"]
        expect(found in self._possible[item_id], "an old item is read", item_id, found)

    def _compare(self) -> None:
        """Compare all routers' items, and all hits, with what was acknowledged."""
        query = {"vector": [1, 1], "limit": 99, "recall": 1, "consistency": "strict"}
        for client in self._clients:
            answers: list[Any] = []

            def is_answered(client: Client = client, answers: list[Any] = answers) -> bool:
                answers[:] = [client.get(f"{URL}/items"), client.post(f"{URL}/query", json=query)]
                return all(each.status_code == OK for each in answers)

            self._until(is_answered)
            items, hits = answers[0].json()["items"], answers[1].json()["hits"]
            for found in (items, hits):
                versions = {each["id"]: each["payload"]["version"] for each in found}
                for item_id, possible in self._possible.items():
                    got = versions.get(item_id, 0)
                    expect(got in possible, "not as acknowledged", item_id, got, possible)
                    self._possible[item_id] = {got}

    def _until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + _SECONDS
        while not holds():
            expect(time.monotonic() < end, "not in time", self.told)
            time.sleep(0.05)
