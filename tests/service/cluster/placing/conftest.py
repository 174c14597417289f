"""A Ray cluster of a head and three nodes on this machine, a router, and load on it."""

import importlib.util
import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.crashes.cluster import ClusterTrial
from tests.support.service.ports import HOST
from tests.support.service.ray_cluster import RayCluster, RouterProcess

DIM = 8
ITEMS = 300
URL = "/v1/collections/placed"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs Ray where it is not, and where other tests run at the same time."""
    reason = None
    if importlib.util.find_spec("ray") is None:
        reason = "ray is not installed: pip install 'gcws-search[cluster]'"
    elif "PYTEST_XDIST_WORKER" in os.environ:
        reason = "a Ray cluster takes the machine: pytest -n 0 tests/service/cluster/placing"
    for item in items:
        if reason is not None and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="package")
def trial() -> Iterator[ClusterTrial]:
    """Return the cluster of all tests of this folder, with clients that only kills have ask."""
    trial = ClusterTrial(7)
    try:
        yield trial
    finally:
        trial.stop()


@pytest.fixture(scope="package")
def cluster(trial: ClusterTrial) -> RayCluster:
    return trial.cluster


class Router:
    """A router of the cluster, and a collection of some items."""

    def __init__(self, cluster: RayCluster) -> None:
        self.process = RouterProcess(cluster)
        self.process.wait_until_ready()
        self.http = httpx.Client(base_url=f"http://{HOST}:{self.process.port}", timeout=30)
        self._numbers = itertools.count()
        self.ids: set[str] = set()

    def put(self, count: int, rng: np.random.Generator) -> int:
        """Put some new items, and return the status of the answer."""
        ids = [f"i{next(self._numbers)}" for _ in range(count)]
        vectors = rng.integers(1, 9, (count, DIM)).tolist()
        items = [{"id": i, "vector": v} for i, v in zip(ids, vectors, strict=True)]
        answer = self.http.put(f"{URL}/items", json={"items": items})
        if answer.status_code == 200:
            self.ids |= {*ids}
        return answer.status_code

    def found(self) -> set[str] | str:
        """Return the ids that an exact query for all items finds, or what is answered instead."""
        body = {"vector": [1] * DIM, "limit": len(self.ids) + 100, "recall": 1}
        answer = self.http.post(f"{URL}/query", json=body)
        if answer.status_code != 200:
            return answer.text
        return {hit["id"] for hit in answer.json()["hits"]}

    def stop(self) -> None:
        self.process.stop()
        self.http.close()


@pytest.fixture(scope="package")
def router(cluster: RayCluster) -> Iterator[Router]:
    """Return a router whose collection is filled."""
    router = Router(cluster)
    try:
        assert router.http.put(URL, json={"dim": DIM}).status_code == 201
        assert router.put(ITEMS, np.random.default_rng(7)) == 200
        yield router
    finally:
        router.stop()


class Load:
    """Queries and small writes without a break; what they were answered.

    ``queries``, ``writes``: how often each was asked. ``failures``: what was answered that should
    not have been.
    """

    def __init__(self, router: Router) -> None:
        self.router = router
        self.queries = self.writes = 0
        self.failures: list[Any] = []
        self._rng = np.random.default_rng(8)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stopping.wait(0.05):
            try:
                if self.queries % 10 == 0:
                    self.writes += 1
                    if (status := self.router.put(1, self._rng)) != 200:
                        self.failures.append(f"a write was answered {status}")
                self.queries += 1
                if (found := self.router.found()) != self.router.ids:
                    self.failures.append(found)
            except httpx.HTTPError as error:
                self.failures.append(error)

    @contextmanager
    def running(self) -> Iterator["Load"]:
        """Ask until the block ends, and for a while after it."""
        self._thread.start()
        try:
            yield self
            self.wait()
        finally:
            self._stopping.set()
            self._thread.join()
        assert self.queries > 10
        assert self.failures == []

    def wait(self) -> None:
        """Return when some more queries have been answered."""
        wanted, end = self.queries + 20, time.monotonic() + 60
        while self.queries < wanted and time.monotonic() < end:
            time.sleep(0.01)


@pytest.fixture
def load(router: Router) -> Load:
    return Load(router)
