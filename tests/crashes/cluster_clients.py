"""Clients of a cluster: they write and search while parts of it are killed.

Writers have items of their own, and readers search for items that nobody changes. They ask the
routers by turns. One more writer goes on whatever it is answered, so that it is seen when writes
resume.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import httpx
import numpy as np

from tests.crashes.checking import expect
from tests.support.service.programs import Program
from tests.support.waiting import wait_until

NAME: Final = "things"
URL: Final = f"/v1/collections/{NAME}"
BASE: Final = 200
"""Items that nobody changes."""
DIM: Final = 6
SECONDS: Final = 60.0
"""Bounds every wait."""
OK: Final = 200
PROBE: Final = "probe"
"""Id of the one item that is written again and again."""
_WRITERS: Final = 4
_READERS: Final = 2
_ITEMS: Final = 60
"""Of one writer, at most."""
_BATCH: Final = 20
"""Items of one request, at most."""

State = dict[str, int]
"""Version of each item of a writer."""


def vector_of(item_id: str, version: int) -> list[float]:
    """Return the vector of an item: another one for each version."""
    draw = np.random.default_rng([*item_id.encode(), version])
    return [float(each) for each in draw.integers(1, 9, DIM)]


def item_of(item_id: str, version: int, **payload: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return an item as it is sent."""
    payload["version"] = version
    return {"id": item_id, "vector": vector_of(item_id, version), "payload": payload}


class AnsweredWrite(NamedTuple):
    """A write that was answered.

    ``began``, ``ended``: by the monotonic clock.
    """

    began: float
    ended: float
    status: int


class Clients:
    """Clients that go on until they are stopped; what they were answered.

    ``killed``: what was killed last, to count failures by. ``possible``: what may be there of each
    writer.
    """

    def __init__(self, routers: Sequence[Program], seed: int) -> None:
        self.killed = "nothing"
        self.failures: Counter[tuple[str, str, str]] = Counter()
        self.errors: list[BaseException] = []
        self.acknowledged = self.unknown = self.searches = 0
        self.possible: list[list[State]] = [[{}] for _ in range(_WRITERS)]
        self.writes: list[AnsweredWrite] = []
        self._probed = self._probe_attempted = 0
        self._routers = routers
        self._draws = [random.Random(f"{seed} {number}") for number in range(_WRITERS)]
        self._changing = threading.Lock()
        self._stopping = threading.Event()
        # A new connection a request: one that is kept might be of a router that was killed since.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.Client(timeout=SECONDS, limits=limits)

    @property
    def told(self) -> str:
        """What they were answered, in words."""
        counted = sorted(self.failures.items())
        failed = [f"{of}: {number} {asked} {what}" for (of, asked, what), number in counted]
        return (
            f"{self.acknowledged} writes acknowledged, {self.unknown} unknown, {self.searches}"
            f" searches with all hits, failed by what was killed: {', '.join(failed) or 'none'}"
        )

    def failed(self, killed: str, asked: str) -> dict[str, int]:
        """Return what failed when something was killed: writes or searches."""
        failures = self.failures.items()
        return {what: n for (of, kind, what), n in failures if (of, kind) == (killed, asked)}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write and search until the block ends."""
        self._stopping.clear()
        self.writes.clear()
        work = [self._probe, *(partial(self._write, number) for number in range(_WRITERS))]
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
            self._raise_errors()

    def close(self) -> None:
        """Close what is open to routers."""
        self._http.close()

    def _raise_errors(self) -> None:
        for error in self.errors:
            raise error

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.errors.append(error)

    # What was answered

    def answered_since(self, moment: float, *, successfully: bool) -> list[AnsweredWrite]:
        """Return the writes that began after a moment and were acknowledged, or were not."""
        with self._changing:
            since = [each for each in self.writes if each.began > moment]
            return [each for each in since if (each.status == OK) is successfully]

    def wait_for_write(self, moment: float, *, successfully: bool = True) -> float:
        """Return when the first such write was answered; by the monotonic clock."""
        found: list[AnsweredWrite] = []

        def is_answered() -> bool:
            self._raise_errors()
            found[:] = self.answered_since(moment, successfully=successfully)
            return bool(found)

        wait_until(is_answered, lambda: f"no write is acknowledged: {self.told}")
        return min(each.ended for each in found)

    def wait_for_searches(self, more: int) -> None:
        """Return when some more searches have found all."""
        wanted = self.searches + more

        def are_answered() -> bool:
            self._raise_errors()
            return self.searches >= wanted

        wait_until(are_answered, lambda: f"no search is answered: {self.told}")

    def are_as_acknowledged(self, versions: State) -> None:
        """Compare what is there with what was acknowledged; take what is there from now on."""
        expect({*map(str, range(BASE))} <= {*versions}, "items that nobody changed are missing")
        for number, possible in enumerate(self.possible):
            mine = f"w{number}-"
            found = {each: known for each, known in versions.items() if each.startswith(mine)}
            expect(found in possible, "not as acknowledged", number, found, possible)
            self.possible[number] = [found]
        known = versions.get(PROBE, 0)
        expected = self._probed, self._probe_attempted
        expect(expected[0] <= known <= expected[1], "not as acknowledged", PROBE, known, expected)

    # Asking

    def ask(
        self, number: int, kind: str, method: str, path: str, document: dict[str, Any]
    ) -> tuple[int, Any]:
        """Return an answer's status and document; 0 where there is none."""
        router = self._routers[number % len(self._routers)]
        address = f"{router.url}{URL}{path}"
        began = time.monotonic()
        try:
            answer = self._http.request(method, address, json=document)
        except httpx.TransportError as error:
            expect(not isinstance(error, httpx.ReadTimeout), "no answer", method, path)
            self._failed(kind, type(error).__name__)
            return 0, {}
        status, found = answer.status_code, answer.json()
        if status != OK:
            self._failed(kind, found.get("code", str(status)))
        # A delete of nothing is no transaction: no standby is waited for.
        if kind == "write" and found.get("deleted") != 0:
            with self._changing:
                self.writes.append(AnsweredWrite(began, time.monotonic(), status))
                self.acknowledged += status == OK
        return status, found

    def _failed(self, kind: str, what: str) -> None:
        with self._changing:
            self.failures[self.killed, kind, what] += 1

    def _write(self, number: int) -> None:
        """Put and delete items, one request after the other; a request is all or nothing."""
        draw, version = self._draws[number], 0
        while not self._stopping.wait(0.05):
            [state] = self.possible[number]
            version += 1
            places = draw.sample(range(_ITEMS), draw.randint(1, _BATCH))
            ids = [f"w{number}-{each}" for each in places]
            if draw.random() < 1 / 3:
                after = {each: known for each, known in state.items() if each not in ids}
                method, path = "POST", "/items/delete"
                document: dict[str, Any] = {"ids": ids}
            else:
                versions = {each: max(state.get(each, 0), version) + 1 for each in ids}
                after = {**state, **versions}
                items = [item_of(each, known) for each, known in versions.items()]
                method, path, document = "PUT", "/items", {"items": items}
            self.possible[number] = [state, after]
            status, answer = self.ask(draw.randrange(99), "write", method, path, document)
            if status == OK:
                self.possible[number] = [after]
            elif status == 0 or "may be stored" in answer.get("detail", ""):
                self.unknown += 1
                return  # until it is known
            else:
                expect(status == 503, method, status, answer)
                self.possible[number] = [state]

    def _probe(self) -> None:
        """Write one item again and again, whatever is answered.

        Its versions rise in the order of commits, so an unknown one may be the last.
        """
        while not self._stopping.wait(0.05):
            self._probe_attempted += 1
            version = self._probe_attempted
            document = {"items": [item_of(PROBE, version)]}
            status, answer = self.ask(version, "write", "PUT", "/items", document)
            expect(status in (0, OK, 503), status, answer)
            if status == OK:
                self._probed = version

    def read_probe(self, number: int) -> None:
        """Read the probe through a router: it is as it was acknowledged, or later."""
        known, address = self._probed, f"{self._routers[number].url}{URL}/items/{PROBE}"

        def answer() -> httpx.Response | None:
            got = self._http.get(address)
            expect(got.status_code in (OK, 503), "an acknowledged item is not there", got.text)
            return got if got.status_code == OK else None

        found = wait_until(answer, lambda: "the probe is not read")
        assert found is not None
        version = found.json()["payload"]["version"]
        expect(version >= known, "an old item is read", version, known)

    def _search(self, number: int) -> None:
        while not self._stopping.wait(0.05):
            number += 1
            self.search(number)

    def search(self, number: int) -> int:
        """Search for what nobody changes, and return the status: an answer has all of it."""
        body = {"vector": [1] * DIM, "limit": BASE, "recall": 1}
        body["filter"] = {"must": {"key": "kind", "match": {"value": "base"}}}
        status, answer = self.ask(number, "search", "POST", "/query", body)
        expect(status in (0, OK, 503), status, answer)
        if status == OK:
            self.searches += 1
            found = {hit["id"] for hit in answer["hits"]}
            expect(found == {*map(str, range(BASE))}, "a silent partial answer", len(found))
        return status
