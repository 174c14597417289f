"""Replicas behind HTTP that are late, gone or wrong, and a database that is: what requests see."""

from collections.abc import Iterator
from contextlib import closing
from itertools import cycle
from pathlib import Path

import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer, PreparedPut
from gcws_search.service.cluster.contract import bucket_of
from gcws_search.service.cluster.database import Database
from tests.support.service.client import Client, Json, assert_problem, metric
from tests.support.service.http_shards import Fault, HttpShard, http_shards, listed, router
from tests.support.service.postgres import Postgres
from tests.support.service.shards import BUCKETS, KEY, SECONDS
from tests.support.waiting import wait_until

URL = "/v1/collections/plants"
IDS = [f"i{number}" for number in range(24)]
QUERY = {"vector": [3, 1, 0, 2], "limit": 100, "recall": 1}
Shards = list[list[HttpShard]]


def fill(client: Client) -> None:
    assert client.put(URL, json={"dim": 4}).status_code == 201
    put(client, IDS)


def put(client: Client, ids: list[str]) -> None:
    items = [
        {"id": name, "vector": [1 + place % 7, -place % 5, 1, place % 3], "payload": {"n": place}}
        for place, name in enumerate(ids)
    ]
    answer = client.put(f"{URL}/items", json={"items": items})
    assert answer.status_code == 200, answer.text


def found(client: Client, **more: Json) -> set[str]:
    answer = client.post(f"{URL}/query", json={**QUERY, **more})
    assert answer.status_code == 200, answer.text
    return {hit["id"] for hit in answer.json()["hits"]}


@pytest.fixture
def shards(database_url: str, tmp_path: Path) -> Iterator[Shards]:
    with http_shards(database_url, tmp_path / "shards", 2, 2) as shards:
        yield shards


@pytest.fixture
def client(
    shards: Shards, database_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Client]:
    """Return a client of a router that waits for a shard as long as the parameter says."""
    del shards  # they are running
    seconds = getattr(request, "param", SECONDS)
    with router(database_url, tmp_path / "router", 2, 2, shard_seconds=seconds) as client:
        fill(client)
        yield client


FEW_SECONDS = 8.0
"""For what waits for a silent replica: others answer in a part of it on a busy machine, too."""
waiting_few_seconds = pytest.mark.parametrize(
    "client", [FEW_SECONDS], indirect=True, ids=[pytest.HIDDEN_PARAM]
)


def failures(client: Client, kind: str) -> float:
    return metric(client, f'gcws_router_failures_total{{kind="{kind}",shard="0"}}', 0)


KINDS = {"SILENT": "Late", "NONSENSE": "Malformed", "BROKEN": "OSError", "CUT": "OSError"}


@waiting_few_seconds
def test_a_sister_answers_for_a_replica_that_does_not(
    client: Client, shards: Shards, caplog: pytest.LogCaptureFixture
) -> None:
    for replica, (fault, kind) in zip(cycle(shards[0]), KINDS.items(), strict=False):
        before, asked = failures(client, kind), replica.app.asked
        caplog.clear()
        replica.app.fault = Fault[fault]
        wait_until_noted(client, kind, before)
        assert replica.app.asked > asked
        # The first of several failures is logged; a look at a silent replica may end sooner.
        said = f"shard 0, replica {replica.address}: "
        kinds = kind, "TimeoutError"
        assert any(said + each in caplog.text for each in kinds), caplog.text
        replica.app.fault = None
        wait_until_asked(client, replica)


def wait_until_noted(client: Client, kind: str, before: float) -> None:
    """Ask until a replica has failed, which no answer tells."""

    def is_noted() -> bool:
        assert found(client) == {*IDS}
        return failures(client, kind) > before

    wait_until(is_noted)


def wait_until_asked(client: Client, replica: HttpShard) -> None:
    """Ask until a replica is asked again, after it has rested."""

    def is_asked() -> bool:
        before = replica.app.asked
        found(client)
        return replica.app.asked > before

    wait_until(is_asked)


def test_an_explanation_says_which_shards_answered(client: Client) -> None:
    answer = client.post(f"{URL}/query", json={**QUERY, "explain": True}).json()
    assert answer["shards"] == {"total": 2, "answered": 2, "missing": []}
    assert min(answer["explain"][word] for word in ("candidates", "scored")) >= len(IDS)
    queries = {"queries": [{**QUERY, "explain": True}, QUERY]}
    one, other = client.post(f"{URL}/query/batch", json=queries).json()["results"]
    assert one["shards"]["answered"] == 2
    assert "shards" not in other


def test_a_sister_answers_for_one_that_is_gone(client: Client, shards: Shards) -> None:
    shards[0][0].stop()
    shards[1][1].stop()
    for _ in range(4):
        assert found(client) == {*IDS}
    put(client, ["new"])
    assert found(client) == {*IDS, "new"}
    assert metric(client, 'gcws_router_calls_total{shard="1"}') > 4


def test_a_replica_with_another_key_is_left_to_its_sister(
    database_url: str, tmp_path: Path
) -> None:
    """The key may stand in a file."""
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    with (
        http_shards(database_url, tmp_path / "shards", 1, 1) as [[_]],
        http_shards(database_url, tmp_path / "others", 1, 1, key="another", first=1) as [[other]],
        router(
            database_url, tmp_path / "router", 1, 2, cluster_key=None, cluster_key_file=file
        ) as client,
    ):
        fill(client)
        for _ in range(4):
            assert found(client) == {*IDS}
        assert other.app.asked
        assert failures(client, "OSError")


def shard_of(name: str) -> int:
    return bucket_of(name, BUCKETS) % 2


def test_no_answer_is_partial_unless_that_is_asked_for(client: Client, shards: Shards) -> None:
    for replica in shards[1]:
        replica.app.fault = Fault.BROKEN
    answer = client.post(f"{URL}/query", json=QUERY)
    assert_problem(answer, 503, "shard_unavailable", "shard 1 (of 2)")
    assert int(answer.headers["retry-after"]) >= 1
    partial = {**QUERY, "allow_partial": True}
    got = client.post(f"{URL}/query", json=partial).json()
    assert got["shards"] == {"total": 2, "answered": 1, "missing": [1]}
    assert {hit["id"] for hit in got["hits"]} == {name for name in IDS if shard_of(name) == 0}

    # Queries that differ in this alone may be sent to shards together.
    answers = client.at_once("POST", [(f"{URL}/query", body) for body in (QUERY, partial)] * 4)
    hits = [(each.status_code, len(each.json().get("hits", []))) for each in answers]
    assert hits == [(503, 0), (200, len(got["hits"]))] * 4
    # A query around an item asks for it where it is.
    here, there = (next(name for name in IDS if shard_of(name) == shard) for shard in (0, 1))
    around = {"limit": 3, "recall": 1, "allow_partial": True}
    answer = client.post(f"{URL}/query", json={"id": here, **around})
    assert answer.json()["shards"]["missing"] == [1]
    answer = client.post(f"{URL}/query", json={"id": there, **around})
    assert_problem(answer, 503, "shard_unavailable", "shard 1")
    for bodies, status in (([partial, partial], 200), ([partial, QUERY], 503)):
        batch = client.post(f"{URL}/query/batch", json={"queries": bodies})
        assert batch.status_code == status
    for path, body in (
        ("/count", {}),
        ("/items/delete", {"filter": {"must": [{"key": "n", "range": {"gte": 0}}]}}),
        ("/pairs", {"min_score": 0.5}),
        ("/profile", {}),
    ):
        assert_problem(client.post(URL + path, json=body), 503, "shard_unavailable")
    assert metric(client, 'gcws_router_unanswered_total{shard="1"}') > 4
    for replica in shards[0]:
        replica.app.fault = Fault.BROKEN
    assert_problem(client.post(f"{URL}/query", json=partial), 503, "shard_unavailable", "0, 1")
    for replica in [*shards[0], *shards[1]]:
        replica.app.fault = None
    assert found(client) == {*IDS}


@waiting_few_seconds
def test_a_shard_that_is_silent_costs_its_time_and_no_more(client: Client, shards: Shards) -> None:
    for replica in shards[1]:
        replica.app.fault = Fault.SILENT
    answer = client.post(f"{URL}/query", json={**QUERY, "allow_partial": True, "explain": True})
    assert answer.json()["shards"]["missing"] == [1]
    assert FEW_SECONDS <= answer.json()["explain"]["seconds"] < 60


def test_strict_queries_find_what_another_router_acknowledged(
    database_url: str, tmp_path: Path
) -> None:
    """The other one writes to the database, and no shard hears of that from it."""
    with (
        http_shards(database_url, tmp_path / "shards", 2, 1, poll_seconds=600.0),
        router(database_url, tmp_path / "one", 2, 1) as client,
        closing(Database.open(database_url, buckets=BUCKETS)) as database,
    ):
        fill(client)
        [row] = database.collections()
        space = ix.VectorSpace.of(ix.CollectionConfig.from_dict(row.config))
        vectors = space.to_blobs(space.from_items([[1.0, 2, 0, 0], [2.0, 1, 0, 0]]))
        write = PreparedPut(ids=["new", "newer"], vectors=vectors, payloads=[None, None])
        Committer(database, row.number, row.name).commit(write)
        assert found(client) == {*IDS}
        assert found(client, consistency="strict") == {*IDS, "new", "newer"}
        around = {"id": "new", "limit": 100, "recall": 1, "consistency": "strict"}
        hits = client.post(f"{URL}/query", json=around).json()["hits"]
        assert {hit["id"] for hit in hits} == {*IDS, "newer"}


@pytest.mark.parametrize("forgets", [False, True])
def test_searches_go_on_without_the_database(
    forgets: bool, server: Postgres, tmp_path: Path
) -> None:
    """It comes back by itself, also where it has lost the list of replicas."""
    with (
        server.database() as url,
        http_shards(url, tmp_path / "shards", 2, 1),
        router(url, tmp_path / "router", 2, 1) as client,
    ):
        fill(client)
        assert client.get("/readyz").json()["database"] == "reachable"
        if forgets:
            server.execute("TRUNCATE gcws.replicas", url.rpartition("/")[2])
        server.stop()
        check_without_database(client)
        server.start()
        wait_until(lambda: client.get("/readyz").json()["database"] == "reachable")
        assert listed(client, 2) == [1, 1]
        assert found(client) == {*IDS}
        put(client, ["new"])
        assert found(client) == {*IDS, "new"}


def check_without_database(client: Client) -> None:
    wait_until(lambda: client.get("/readyz").json()["database"] == "unreachable")
    assert client.get("/readyz").status_code == 200
    for _ in range(3):
        assert found(client) == {*IDS}
    assert client.post(f"{URL}/count", json={}).status_code == 200
    around = client.post(f"{URL}/query", json={"id": "i3", "recall": 1})
    assert around.status_code == 200
    items = [{"id": "lost", "vector": [1, 1, 1, 1]}]
    for answer in (
        client.put(f"{URL}/items", json={"items": items}),
        client.get(f"{URL}/items/i3"),
        client.get("/v1/collections/unknown"),
        client.get(f"{URL}/items"),
        client.delete(f"{URL}/items/i3"),
        client.post(f"{URL}/items/delete", json={"ids": ["i3"]}),
        client.post(f"{URL}/query", json={**QUERY, "consistency": "strict"}),
    ):
        problem = assert_problem(answer, 503, "store_unavailable")
        assert "port" not in problem["detail"]
        assert int(answer.headers["retry-after"]) >= 1, problem
