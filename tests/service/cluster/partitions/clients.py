"""Clients of two routers: writers of the same items, and readers; all that they were answered.

They ask a `MachineCluster`, or a `ClusterTrial` of `tests.crashes`.
"""

import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, Final

import httpx
import orjson

from gcws_search import index as ix
from gcws_search.service.cluster.contract import Row
from gcws_search.service.cluster.database import Database
from tests.service.cluster.partitions.history import NONE, History, Noted, Read, Write
from tests.support.service.machines import SECONDS
from tests.support.service.programs import Program
from tests.support.waiting import wait_until

URL: Final = "/v1/collections/things"
IDS: Final = [f"shared{each}" for each in range(24)]
"""That the writers of all routers put and delete."""
BASE: Final = {f"base{each}" for each in range(60)}
"""That nobody changes."""
DIM: Final = 6
_TEXT: Final = 1500
"""Bytes of an item that nobody changes: an answer with all of them is long."""
_PAUSE: Final = 0.25
"""Seconds between two requests of a client: waits are long, and more load shows no more."""
_SOME: Final = 5
_BATCH: Final = 20
"""Items of one request, at most."""
_REFUSALS: Final = (503, 507)
_VERSIONS: Final = count(1)
_NOTE: Final = """
CREATE TABLE gcws.noted (key bigint, id bytea, payload bytea);
CREATE FUNCTION gcws.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO gcws.noted VALUES (NEW.key, NEW.id, NEW.payload);
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER INSERT ON gcws.items_{number}
    FOR EACH ROW EXECUTE FUNCTION gcws.note();
"""
_FORGET: Final = """
DELETE FROM gcws.noted WHERE key NOT IN (SELECT key FROM gcws.items_{number})
"""
"""What has been checked, but for the items that there are."""
NOTED: Final = """
SELECT id, key, payload FROM gcws.noted
UNION ALL SELECT id, key, NULL FROM gcws.gone WHERE collection = {number}
"""


def vector_of(version: int) -> list[float]:
    return [1.0 + (version * prime) % 7 for prime in (3, 5, 7, 11, 13, 17)]


def item(item_id: str, version: int, kind: str) -> dict[str, Any]:
    text = "x" * _TEXT if kind == "base" else ""
    payload = {"kind": kind, "version": version, "text": text}
    return {"id": item_id, "vector": vector_of(version), "payload": payload}


def query(kind: str, **more: object) -> dict[str, Any]:
    only = {"must": {"key": "kind", "match": {"value": kind}}}
    return {"vector": [1] * DIM, "limit": 100, "recall": 1, "filter": only, **more}


def noted_of(rows: Iterable[Sequence[Any]]) -> list[Noted]:
    """Return what was noted of the shared items, from the rows of `NOTED`."""
    found = [
        Noted(bytes(item_id).decode(), key, orjson.loads(payload)["version"] if payload else NONE)
        for item_id, key, payload in rows
    ]
    return [each for each in found if each.id in IDS]


class Things:
    """The collection of a cluster, whose database notes what is put; filled at the start."""

    def __init__(self, cluster: Any) -> None:  # noqa: ANN401  # see the module
        self.cluster = cluster
        with cluster.client.entered():
            url = f"{cluster.routers[0].url}{URL}"
            assert httpx.put(url, json={"dim": DIM}, timeout=SECONDS).status_code == 201
            [row] = cluster.database.collections()
            self.number = row.number
            self._space = ix.VectorSpace.of(ix.CollectionConfig.from_dict(row.config))
            self._execute(_NOTE)
            items = [item(each, NONE, "base") for each in sorted(BASE)]
            answer = httpx.put(f"{url}/items", json={"items": items}, timeout=SECONDS)
            assert answer.status_code == 200
            answers = [200] * len(cluster.routers)  # each lists collections every second
            body = query("base")
            wait_until(
                lambda: [asked(each, body).status_code for each in cluster.routers] == answers
            )
            self.wait_until_followed()  # a router promises only what was put by itself

    def _execute(self, statement: str) -> list[Any]:
        text = statement.replace("{number}", str(self.number)).encode()
        with self.cluster.database.connections.use() as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

    def wait_until_followed(self) -> None:
        """Return once all replicas have what the database has now."""
        head = self.cluster.database.last_moment(self.number).key
        whole = self.cluster.wait_until_whole
        wait_until(lambda: all(each.positions[self.number] >= head for each in whole()))

    def noted(self) -> list[Noted]:
        """Return what the database has noted of the shared items."""
        return noted_of(self._execute(NOTED))

    def rows(self) -> list[Row]:
        database: Database = self.cluster.database
        return database.page(self.number, after=0, limit=1 << 20, with_vector=True)

    def check(self, history: History) -> None:
        """Compare what clients were answered, what was noted, what is stored, and all replicas."""
        self.cluster.wait_until_whole()
        noted = self.noted()
        history.check(noted)
        last = {each.id: each for each in sorted(noted, key=lambda each: each.key)}
        rows = self.rows()
        stored = {row.id: row.key for row in rows if row.id in IDS}
        there = {each.id: each.key for each in last.values() if each.version != NONE}
        assert stored == there, "not as it was noted"
        assert {row.id for row in rows} - {*IDS} == BASE, "not the items that nobody changes"
        for row in rows:
            vector = vector_of(orjson.loads(row.payload or b"{}")["version"])
            assert [row.vector] == self._space.to_blobs(self._space.from_items([vector]))
        self.cluster.check_replicas(self.number)
        self._execute(_FORGET)


def asked(router: Program, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{router.url}{URL}/query", json=body, timeout=SECONDS)


class Load:
    """A writer and two readers a router, who go on until the block ends.

    ``cut_off``: routers that clients cannot reach now: their requests may fail without an answer.
    """

    def __init__(self, things: Things, seed: int = 7) -> None:
        self.history = History()
        self.cut_off: set[int] = set()
        self._things = things
        self._seed = seed
        self._stopping = threading.Event()
        self._may_write = threading.Event()
        self._may_write.set()
        self._writing = [threading.Lock() for _ in things.cluster.routers]
        self._errors: list[BaseException] = []

    @contextmanager
    def running(self, may_fail: Collection[tuple[int, str]] = ()) -> Iterator[History]:
        """Write and read until the block ends; then compare all.

        ``may_fail``: routers, and what they may answer beside success; as it is at the end.
        """
        routers = self._things.cluster.routers
        kinds = (self._write, partial(self._read_shared, consistency="strict"), self._read)
        threads = [
            threading.Thread(target=self._repeat, args=[work, router])
            for router in range(len(routers))
            for work in kinds
        ]
        things = self._things
        self.history.since = things.cluster.database.last_moment(things.number).key
        for thread in threads:
            thread.start()
        try:
            self.go_on()
            yield self.history
            self.go_on()
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()
        for error in self._errors:
            raise error
        assert self.history.failures <= {*may_fail}, self.history.refusals
        self._things.check(self.history)

    def _repeat(self, work: Callable[[int, httpx.Client], None], router: int) -> None:
        address = self._things.cluster.routers[router].url
        try:
            with (
                self._things.cluster.client.entered(),
                httpx.Client(base_url=address, timeout=SECONDS) as http,
            ):
                while not self._stopping.wait(_PAUSE):
                    work(router, http)
        except BaseException as error:
            self._errors.append(error)
            self._stopping.set()

    def go_on(self, *kinds: str, routers: tuple[int, ...] = (0, 1), times: int = _SOME) -> None:
        """Return once some more requests of these kinds have succeeded at these routers."""
        wanted = {
            (router, kind): self.history.succeeded(router, kind) + times
            for router in routers
            for kind in kinds or ("put", "strict", "session", "base")
        }
        succeeded = self.history.succeeded
        self._wait_until(lambda: all(succeeded(*each) >= n for each, n in wanted.items()), wanted)

    def _wait_until(self, holds: Callable[[], object], wanted: object) -> None:
        wait_until(
            lambda: self._errors or holds(),
            lambda: f"{wanted} {self.history.answers}\n{self._things.cluster.said()}",
        )

    def acknowledged_since(self, moment: float) -> list[float]:
        """Return when puts were acknowledged that began after a moment."""
        puts = [each for each in self.history.writes if each.version != NONE]
        return [each.ended for each in puts if each.begun > moment and each.is_acknowledged]

    def wait_for_write(self, moment: float) -> float:
        """Return when the first write that began after a moment was acknowledged."""
        self._wait_until(lambda: self.acknowledged_since(moment), "a write")
        return min(self.acknowledged_since(moment), default=moment)

    @contextmanager
    def without_writes(self) -> Iterator[None]:
        """Have nothing written until the block ends; what was acknowledged is on all replicas."""
        self._may_write.clear()
        try:
            for lock in self._writing:
                with lock:
                    pass  # what was under way has ended
            self._things.wait_until_followed()
            yield
        finally:
            self._may_write.set()

    def fail(self, kind: str, router: int) -> None:
        """Return once a request of this kind is refused by a router."""
        what = f"{kind} 503"
        before = self.history.answers[router, what]
        self._wait_until(lambda: self.history.answers[router, what] > before, what)

    def _ask(
        self, http: httpx.Client, router: int, kind: str, method: str, path: str, body: object
    ) -> httpx.Response | None:
        """Return an answer; None where a router that is cut off gives none."""
        start = time.monotonic()
        try:
            answer = http.request(method, f"{URL}{path}", json=body)
        except httpx.TransportError as error:
            self.history.count(router, f"{kind} {type(error).__name__}", time.monotonic() - start)
            if router not in self.cut_off:
                raise
            return None
        self.history.count(router, f"{kind} {answer.status_code}", time.monotonic() - start)
        if answer.status_code != 200:
            assert answer.status_code in _REFUSALS, answer.text
            self.history.refusals.append(f"{time.monotonic():.1f} {kind} {answer.text}")
        return answer

    def _process(self, router: int) -> int:
        """Return the process of a router: one that is started again has promised nothing yet."""
        return int(self._things.cluster.routers[router].process.pid)

    def _write(self, router: int, http: httpx.Client) -> None:
        with self._writing[router]:
            if self._may_write.is_set():
                self._put_or_delete(router, http)

    def _put_or_delete(self, router: int, http: httpx.Client) -> None:
        draw = random.Random(f"{self._seed} {router} {next(_VERSIONS)}")
        ids = draw.sample(IDS, draw.randint(1, _BATCH))
        version = NONE if draw.random() < 0.2 else next(_VERSIONS)
        write = Write(self._process(router), ids, version)
        self.history.writes.append(write)
        if version == NONE:
            answer = self._ask(http, router, "delete", "POST", "/items/delete", {"ids": ids})
        else:
            items = [item(each, version, "shared") for each in ids]
            answer = self._ask(http, router, "put", "PUT", "/items", {"items": items})
        if answer is None or "may be stored" in answer.text:
            return
        write.is_refused = answer.status_code != 200
        write.ended = time.monotonic()

    def _read(self, router: int, http: httpx.Client) -> None:
        self._read_shared(router, http, "session")
        answer = self._ask(http, router, "base", "POST", "/query", query("base"))
        if answer is not None and answer.status_code == 200:
            found = {hit["id"] for hit in answer.json()["hits"]}
            assert found == BASE, f"a silent partial answer: {len(found)} hits"

    def _read_shared(self, router: int, http: httpx.Client, consistency: str) -> None:
        process = self._process(router)
        begun, body = time.monotonic(), query("shared", consistency=consistency)
        answer = self._ask(http, router, consistency, "POST", "/query", body)
        if answer is not None and answer.status_code == 200:
            hits = answer.json()["hits"]
            versions = {hit["id"]: hit["payload"]["version"] for hit in hits}
            is_strict = consistency == "strict"
            self.history.reads.append(Read(process, versions, begun, time.monotonic(), is_strict))
