"""Applications on a fresh data directory: in one process, behind a front, or over a cluster."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.service.client import Client, Json, Serve, application, fill
from tests.support.service.cluster import BUCKETS, ClusterClient
from tests.support.service.fronts import FrontClient
from tests.support.service.postgres import postgres
from tests.support.service.shards import BUCKETS as SHARD_BUCKETS

ALL_CASES = "TEST_ALL_CASES"
"""Set to 1: a test that is served in several ways has all of its cases in each of them."""
WAY_MARKS = {"front": pytest.mark.slow, "cluster": pytest.mark.cluster}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Serve a module's tests in each way that its mark `served` names, and in one process."""
    mark = metafunc.definition.get_closest_marker("served")
    if mark is None or "way" not in metafunc.fixturenames:
        return
    ways = dict(mark.kwargs)
    if metafunc.definition.get_closest_marker("one_process"):
        ways.pop("cluster", None)
    others = [pytest.param(way, marks=WAY_MARKS[way]) for way in ways]
    metafunc.parametrize("way", [pytest.param("process", id=pytest.HIDDEN_PARAM), *others])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all cases but the first where the mark `served` asks for one."""
    if ALL_CASES in os.environ:
        return
    cases: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if (mark := item.get_closest_marker("served")) and (
            spec := getattr(item, "callspec", None)
        ):
            way = spec.params.get("way")
            if mark.kwargs.get(way) == "one":
                cases.setdefault((way, item.nodeid.partition("[")[0]), []).append(item)
    left_out = {case for several in cases.values() for case in several[1:]}
    if left_out:
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def way() -> str:
    """Return how applications are served; modules and folders say otherwise."""
    return "process"


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of a new database: a cluster already where a fixture opens it as one."""
    opened = {"serve": BUCKETS, "database": SHARD_BUCKETS}
    buckets = next((opened[name] for name in opened if name in request.fixturenames), None)
    with postgres().database(buckets) as url:
        yield url


@pytest.fixture
def serve(way: str, data_dir: Path, request: pytest.FixtureRequest) -> Iterator[Serve]:
    """Start applications, on the data directory unless told otherwise, one after the other."""
    running: list[Client] = []
    makers: dict[str, Callable[..., Client]] = {
        "process": lambda folder, **settings: Client(application(folder, **settings)[0]),
        "front": FrontClient,
        "cluster": lambda *more, **settings: ClusterClient(url, *more, **settings),
    }
    url: str = request.getfixturevalue("database_url") if way == "cluster" else ""

    def start(**settings: Json) -> Client:
        while running:
            running.pop().stop()
        running.append(makers[way](settings.pop("data_dir", data_dir), **settings))
        running[-1].start()
        running[-1].wait_until_ready()
        return running[-1]

    yield start
    while running:
        running.pop().stop()


@pytest.fixture
def client(serve: Serve) -> Client:
    """Return a client of an application with a few items in the collection "plants" (dim 4)."""
    client = serve()
    fill(client)
    return client


@pytest.fixture
def empty(serve: Serve) -> Client:
    """Return a client with an empty collection, loaded in chunks of 4 rows."""
    client = serve(load_chunk_rows=4)
    client.put("/v1/collections/plants", json={"dim": 4})
    return client
