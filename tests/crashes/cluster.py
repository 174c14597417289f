"""Rounds of one cluster: clients write and search, something is killed, all is compared.

Four writers have items of their own, and two readers search for items that nobody changes. They ask
two routers by turns. After each kill the database and all replicas must have what was acknowledged.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import httpx
import numpy as np
import orjson

from gcws_search import index as ix
from gcws_search.service.cluster.contract import MESSAGES, Row, bucket_of
from gcws_search.service.cluster.messages import Message, packed, raise_error, unpacked
from tests.crashes.checking import expect
from tests.support.service.ports import HOST
from tests.support.service.postgres import Postgres
from tests.support.service.ray_cluster import (
    BUCKETS,
    RayCluster,
    RouterProcess,
    kill_all,
    process_of,
)
from tests.support.service.shards import rows_of

KINDS: Final = ("replica", "router", "database", "head", "node", "all")
"""What is killed."""
SISTERS: Final = frozenset({"replica", "head", "node"})
"""Kills of these fail no request: another replica answers."""
_WRITERS: Final = 4
_READERS: Final = 2
_ITEMS: Final = 60
"""Of one writer, at most."""
_BATCH: Final = 12
_BASE: Final = 200
"""Items that nobody changes."""
_DIM: Final = 6
_NODES: Final = 3
_SECONDS: Final = 60.0
_OK: Final = 200
_URL: Final = "/v1/collections/things"

State = dict[str, int]
"""Version of each item of a writer."""


def vector_of(item_id: str, version: int) -> list[float]:
    """Return the vector of an item: another one for each version."""
    draw = np.random.default_rng([*item_id.encode(), version])
    return [float(each) for each in draw.integers(1, 9, _DIM)]


class Clients:
    """Clients that go on until they are stopped; what they were answered.

    Parameters
    ----------
    routers
    seed

    Attributes
    ----------
    killed
        What was killed last, to count failures by.
    """

    def __init__(self, routers: Sequence[RouterProcess], seed: int) -> None:
        self.killed = "nothing"
        self.failures: Counter[tuple[str, str]] = Counter()
        self.errors: list[BaseException] = []
        self.acknowledged = self.unknown = self.searches = 0
        self.possible: list[list[State]] = [[{}] for _ in range(_WRITERS)]
        self._routers = routers
        self._draws = [random.Random(f"{seed} {number}") for number in range(_WRITERS)]
        self._changing = threading.Lock()
        self._stopping = threading.Event()

    @property
    def told(self) -> str:
        """What they were answered, in words."""
        failed = ", ".join(f"{of}: {what} {n}" for (of, what), n in sorted(self.failures.items()))
        return (
            f"{self.acknowledged} writes acknowledged, {self.unknown} unknown, {self.searches}"
            f" searches with all hits, failed by what was killed: {failed or 'none'}"
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write and search until the block ends.

        Raises
        ------
        Lost
        """
        self._stopping.clear()
        work = [partial(self._write, number) for number in range(_WRITERS)]
        work += [partial(self._search, number) for number in range(_READERS)]
        threads = [threading.Thread(target=self._guarded, args=[each]) for each in work]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()
        for error in self.errors:
            raise error

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.errors.append(error)

    def ask(self, number: int, method: str, path: str, document: Any = None) -> tuple[int, Any]:  # noqa: ANN401
        """Return an answer's status and document; 0 where there is none."""
        router = self._routers[number % len(self._routers)]
        address = f"http://{HOST}:{router.port}{_URL}{path}"
        try:
            answer = httpx.request(method, address, json=document, timeout=_SECONDS)
        except httpx.TransportError as error:
            self._failed(type(error).__name__)
            return 0, {}
        if answer.status_code != _OK:
            self._failed(answer.json().get("code", str(answer.status_code)))
        return answer.status_code, answer.json()

    def _failed(self, what: str) -> None:
        with self._changing:
            self.failures[self.killed, what] += 1

    def _write(self, number: int) -> None:
        """Put and delete items, one request after the other; a request is all or nothing."""
        draw, version = self._draws[number], 0
        while not self._stopping.wait(0.02):
            [state] = self.possible[number]
            version += 1
            ids = [f"w{number}-{each}" for each in draw.sample(range(_ITEMS), _BATCH)]
            if draw.random() < 1 / 3:
                after = {each: known for each, known in state.items() if each not in ids}
                method, path = "POST", "/items/delete"
                document: dict[str, Any] = {"ids": ids}
            else:
                versions = {each: max(state.get(each, 0), version) + 1 for each in ids}
                after = {**state, **versions}
                items = [
                    {"id": each, "vector": vector_of(each, known), "payload": {"version": known}}
                    for each, known in versions.items()
                ]
                method, path, document = "PUT", "/items", {"items": items}
            self.possible[number] = [state, after]
            status, answer = self.ask(draw.randrange(99), method, path, document)
            if status == _OK:
                self.possible[number] = [after]
                self.acknowledged += 1
            elif status == 0 or "may be stored" in answer.get("detail", ""):
                self.unknown += 1
                return  # until it is known
            else:
                expect(status == 503, method, status, answer)
                self.possible[number] = [state]

    def _search(self, number: int) -> None:
        """Search for what nobody changes: an answer has all of it, or is none."""
        body = {"vector": [1] * _DIM, "limit": _BASE, "recall": 1}
        body["filter"] = {"must": {"key": "kind", "match": {"value": "base"}}}
        while not self._stopping.wait(0.01):
            number += 1
            status, answer = self.ask(number, "POST", "/query", body)
            if status == _OK:
                self.searches += 1
                found = {hit["id"] for hit in answer["hits"]}
                expect(found == {*map(str, range(_BASE))}, "a silent partial answer", len(found))
            else:
                expect(status in (0, 503), status, answer)


class ClusterTrial:
    """A cluster that things are killed of.

    Parameters
    ----------
    seed
    """

    def __init__(self, seed: int) -> None:
        self.kills: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._server = Postgres()
        self._server.create()
        self._server.start()
        self._server.execute("CREATE DATABASE crashes")
        self._cluster = RayCluster(self._server.url("crashes"))
        self._routers: list[RouterProcess] = []
        try:
            self._start(seed)
        except BaseException:
            self.stop()
            raise

    def _start(self, seed: int) -> None:
        cluster = self._cluster
        cluster.start_head()
        cluster.start_nodes(_NODES)
        cluster.up()
        self._routers += [RouterProcess(cluster, f"router-{number}") for number in range(2)]
        for router in self._routers:
            router.wait_until_ready()
        self.clients = Clients(self._routers, seed)
        address = f"http://{HOST}:{self._routers[0].port}{_URL}"
        expect(httpx.put(address, json={"dim": _DIM}).status_code == 201)
        items = [
            {"id": str(each), "vector": vector_of(str(each), 0), "payload": {"kind": "base"}}
            for each in range(_BASE)
        ]
        expect(httpx.put(f"{address}/items", json={"items": items}).status_code == _OK)
        time.sleep(2)  # the other router lists collections each second
        self.clients.failures.clear()

    def stop(self) -> None:
        """End all processes."""
        for router in self._routers:
            router.stop()
        self._cluster.stop()
        self._server.remove()

    def kill(self, kind: str) -> None:
        """Kill something while clients ask, have it come back, and compare all.

        Raises
        ------
        Lost
        """
        self._cluster.wait_until_whole()
        clients = self.clients
        with clients.running():
            clients.killed = kind
            time.sleep(self._random.uniform(0.2, 1.5))
            lost = getattr(self, f"_kill_{kind}")()
            self._cluster.wait_until_whole(but=lost)
            time.sleep(self._random.uniform(0.2, 1.0))
        self.kills[kind] += 1
        if kind in SISTERS:
            failed = {what: count for (of, what), count in clients.failures.items() if of == kind}
            expect(not failed, f"requests failed when a {kind} was killed", failed)
        self.check()

    def _pause(self) -> None:
        time.sleep(self._random.uniform(0.0, 2.0))

    def _kill_replica(self) -> list[str]:
        victim = self._random.choice(self._cluster.wait_until_whole())
        os.kill(process_of(victim), signal.SIGKILL)
        return [victim.address]

    def _kill_router(self) -> list[str]:
        router = self._random.choice(self._routers)
        router.restart()
        router.wait_until_ready()
        return []

    def _kill_database(self) -> list[str]:
        self._server.stop(signal.SIGQUIT)
        self._pause()
        self._server.start()
        return []

    def _kill_head(self) -> list[str]:
        cluster = self._cluster
        if cluster.head is not None:
            kill_all(cluster.head)
        self._pause()
        cluster.start_head()
        return []

    def _kill_node(self) -> list[str]:
        cluster, there = self._cluster, self._cluster.wait_until_whole()
        victim = cluster.node_of(process_of(self._random.choice(there)))
        lost = [each.address for each in there if cluster.node_of(process_of(each)) is victim]
        kill_all(victim)
        cluster.wait_until_whole(but=lost)
        cluster.start_nodes(1)
        return lost

    def _kill_all(self) -> list[str]:
        """Kill all but the disks: replicas, routers, head, database and nodes."""
        cluster, there = self._cluster, self._cluster.wait_until_whole()
        running = [each for each in cluster.nodes if each.poll() is None]
        self._server.stop(signal.SIGQUIT)
        for router in self._routers:
            router.stop()
        for node in [*running, *([cluster.head] if cluster.head else [])]:
            kill_all(node)
        self._server.start()
        cluster.start_head()
        cluster.start_nodes(len(running))
        for router in self._routers:
            router.restart()
        for router in self._routers:
            router.wait_until_ready()
        return [each.address for each in there]

    @contextmanager
    def changed(self, statement: str) -> Iterator[None]:
        """Change the items of the database behind everybody's back, until the block ends."""
        [collection] = self._cluster.database.collections()
        table = f"items_{collection.number}"
        before = f"CREATE TABLE before AS TABLE {table}"
        undo = f"DELETE FROM {table}; INSERT INTO {table} TABLE before; DROP TABLE before"
        change = statement.format(collection.number)
        with self._cluster.database.connections.use() as connection:
            for each in (before, change):
                connection.execute(each.encode())
            try:
                yield
            finally:
                for each in undo.split("; "):
                    connection.execute(each.encode())

    def check(self) -> None:
        """Compare what was acknowledged, what the database has, and what each replica has.

        Raises
        ------
        Lost
        """
        database = self._cluster.database
        [collection] = database.collections()
        rows = database.page(collection.number, after=0, limit=1 << 20, with_vector=True)
        config = ix.CollectionConfig.from_dict(collection.config)
        space = ix.StoredCollection.in_memory("things", config, threads=1).space
        versions = {row.id: orjson.loads(row.payload or b"{}") for row in rows}
        expect({*map(str, range(_BASE))} <= {*versions}, "items that nobody changed are missing")
        for number, possible in enumerate(self.clients.possible):
            found = {
                each: payload["version"]
                for each, payload in versions.items()
                if each.startswith(f"w{number}-")
            }
            expect(found in possible, "not as acknowledged", number, found, possible)
            self.clients.possible[number] = [found]
        for row in rows:
            version = versions[row.id].get("version", 0)
            expected = space.to_blobs(space.from_items([vector_of(row.id, version)]))
            expect([row.vector] == expected, "another vector", row.id)
        self._check_replicas(collection.number, collection.head, rows, space)

    def _check_replicas(
        self, number: int, head: int, rows: Sequence[Row], space: ix.VectorSpace
    ) -> None:
        asked = {"method": "rows", "collection": number, "at": head, "seconds": _SECONDS}
        data = packed(Message(asked | {"with_vector": True}))
        headers = {"Authorization": f"Bearer {self._cluster.variables['GCWS_CLUSTER_KEY']}"}
        there = self._cluster.wait_until_whole()
        for each in there:
            address = f"http://{each.address}{MESSAGES}"
            answer = httpx.post(address, content=data, headers=headers, timeout=2 * _SECONDS)
            message = unpacked(answer.content)
            raise_error(message)
            mine = [row for row in rows if bucket_of(row.id, BUCKETS) % each.shards == each.shard]
            expect(mine, "a shard without items")
            expect(rows_of(message, space) == mine, "a replica differs", each.shard, each.replica)
