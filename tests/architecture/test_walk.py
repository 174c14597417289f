"""How far a request walks through the product: modules entered, calls, moves between modules."""

import inspect
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

import numpy as np
import pytest

from gcws_search.index.contracts.arrays import Float32s
from gcws_search.index.graph.search_plan import TRIED
from tests.support.paths import PRODUCT, REPOSITORY
from tests.support.service.client import Client, Json, started

ROWS, DIM = 20_000, 16
"""A collection whose queries search the graph."""
TURNS = 8
"""The least count is taken: another thread may go on working after an answer."""
FOLDERS = tuple(f"{REPOSITORY / folder}/" for folder in PRODUCT)


class Walk(NamedTuple):
    """What a request enters: files of the product, its Python calls, calls from file to file."""

    modules: int
    calls: int
    moves: int


BACKGROUND = {"audit", "checkpoint", "optimizer", "reclaimer"}
"""Threads that work for no request."""
CEILINGS = {
    "query": Walk(21, 76, 42),
    "put": Walk(26, 146, 56),
    "query beside new items": Walk(28, 115, 60),
}
"""They only go down. A quiet machine counts 21, 74, 41; 26, 145, 55; and 28, 114, 59. A busy one
now and then looks at a thread or a queue once more in all turns."""
SECONDS = 60
"""In which a request ends that has been answered."""


class Recorder:
    """Counts calls of the product's functions in all threads."""

    def __init__(self) -> None:
        self.is_recording = False
        self.calls: list[tuple[str, str, str]] = []
        """From which file, to which file, and the function."""
        self._resumable: set[FrameType] = set()
        self._running: Counter[int] = Counter()
        """Functions of the product that each thread is in."""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code, thread = frame.f_code, threading.current_thread()
        if event not in {"call", "return"} or thread.name in BACKGROUND:
            return
        if not code.co_filename.startswith(FOLDERS):
            return
        self._running[threading.get_ident()] += 1 if event == "call" else -1
        if event != "call" or not self.is_recording or frame in self._resumable:
            return
        if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
            self._resumable.add(frame)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(FOLDERS):
            caller = caller.f_back
        source = code.co_filename if caller is None else caller.f_code.co_filename
        self.calls.append((source, code.co_filename, code.co_qualname))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Count calls until it is left."""
        self.calls.clear()
        self._resumable.clear()
        self.is_recording = True
        try:
            yield
            deadline = time.monotonic() + SECONDS
            while any(count > 0 for count in [*self._running.values()]):  # after the answer
                assert time.monotonic() < deadline
                time.sleep(0.001)
        finally:
            self.is_recording = False

    def walk(self) -> Walk:
        modules = {target for _, target, _ in self.calls}
        return Walk(len(modules), len(self.calls), sum(a != b for a, b, _ in self.calls))

    def table(self) -> str:
        """Return the calls of the last walk by module, and its functions in order."""
        counts = Counter(target for _, target, _ in self.calls)
        lines = [f"{count:4} {module}" for module, count in counts.most_common()]
        functions = (f"{module}:{name}" for _, module, name in self.calls)
        return "\n".join([*lines, "", *functions]).replace(f"{REPOSITORY}/", "")


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@contextmanager
def profiling(recorder: Recorder) -> Iterator[None]:
    """Let a recorder be the profile function of this thread and of all new ones."""
    before = sys.getprofile()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    yield
    sys.setprofile(before)
    threading.setprofile(None)


def rows_along_a_plane(rng: np.random.Generator, count: int) -> Float32s:
    """Return rows of four dimensions within `DIM`: others would be out of distribution."""
    plane = np.random.default_rng(3).normal(size=(4, DIM))
    return (rng.normal(size=(count, 4)) @ plane).astype(np.float32)


@pytest.fixture(scope="module")
def client(recorder: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a collection that has its graph."""
    found = started(folder := tmp_path_factory.mktemp("walk"))
    found.wait_until_ready()
    found.put("/v1/collections/walk", json={"dim": DIM})
    rows = rows_along_a_plane(np.random.default_rng(7), ROWS)
    for first in range(0, ROWS, 1000):
        put(found, [*map(str, range(first, first + 1000))], rows[first : first + 1000])
    found.finish_background_work("walk")
    found.stop()
    with profiling(recorder):
        found = started(folder)
        found.wait_until_ready()
        yield found
        found.stop()


def put(client: Client, ids: list[str], rows: Float32s) -> None:
    items = [{"id": name, "vector": row.tolist()} for name, row in zip(ids, rows, strict=True)]
    answer = client.put("/v1/collections/walk/items", json={"items": items})
    assert answer.status_code == 200, answer.text


def query(client: Client, row: Float32s, **more: Json) -> Json:
    """Search for a row, and return the answer."""
    answer = client.post("/v1/collections/walk/query", json={"vector": row.tolist(), **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_requests_walk_no_further_than_their_ceilings(
    recorder: Recorder, client: Client, rng: np.random.Generator
) -> None:
    """A request that goes straight is cheap, and can be followed by a reader."""
    rows = rows_along_a_plane(rng, 4 * TURNS)
    for _ in range(TRIED):  # what the first ones take is watched
        query(client, rows[0])
    explained = query(client, rows[0], explain=True)["explain"]
    assert explained["method"] == "graph", explained
    walks: dict[str, list[Walk]] = {name: [] for name in CEILINGS}
    tables = {}

    def take(name: str) -> None:
        walks[name].append(recorder.walk())
        tables[name] = recorder.table()

    for row in rows[:TURNS]:
        with recorder.recording():
            query(client, row)
        take("query")
    for turn in range(TURNS):
        with recorder.recording():
            put(client, [f"{turn}-{number}" for number in range(3)], rows[TURNS + 3 * turn :][:3])
        take("put")
        query(client, rows[turn])  # takes the items that were put last into the delta
        with recorder.recording():
            query(client, rows[turn])
        take("query beside new items")
    for name, ceiling in CEILINGS.items():
        least = Walk(*np.min(walks[name], axis=0).tolist())
        assert np.all(np.array(least) <= np.array(ceiling)), f"{name}: {least}\n{tables[name]}"
