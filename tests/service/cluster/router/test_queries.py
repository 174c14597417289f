"""Queries sent to the shards together, batches sent in parts, and names of items under way."""

import asyncio
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.collection import PART_ROWS
from tests.support.service.bodies import NPY, npy
from tests.support.service.client import Client, Json, Serve, assert_problem, running
from tests.support.service.cluster import ClusterClient, ThreadReplica, before_each_message
from tests.support.service.postgres import postgres

URL = "/v1/collections/plants"
TEXT = "x" * 200
"""Twelve hits are longer than an answer may be."""
TOGETHER = 40
CENTER = [0.5, 0.5, 0.5]
ITEMS = 60


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterClient]:
    folder, rows = tmp_path_factory.mktemp("cluster"), range(1, 201)
    with (
        postgres().database() as url,
        running(ClusterClient(url, folder, max_answer_bytes=2000)) as client,
    ):
        client.put(URL, json={"dim": 4})
        items = [{"id": i, "vector": [1, i, 2, 1], "payload": {"text": TEXT}} for i in rows]
        client.put(f"{URL}/items", json={"items": items})
        yield client


def ask(client: Client, bodies: list[Json]) -> list[httpx.Response]:
    return client.at_once("POST", [(f"{URL}/query", body) for body in bodies])


def test_a_batch_is_refused_for_its_first_wrong_query_whichever_shard_answers_first(
    client: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, held = asyncio.Event(), list[Json]()

    async def answer_the_first_last(_: ThreadReplica, head: Json) -> None:
        if head.get("ids") == ["none 0"] and not held:
            held.append(head)
            await asked.wait()
            await asyncio.gather(*(asyncio.to_thread(int) for _ in range(100)))
        asked.set() if head.get("ids") == ["none 9"] else None

    before_each_message(monkeypatch, answer_the_first_last)
    queries = [{"id": f"none {number}", "limit": number + 1} for number in range(10)]
    answer = client.post(f"{URL}/query/batch", json={"queries": queries})
    assert_problem(answer, 404, "item_not_found", "none 0")
    assert held


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({}, 200),
        ({"vector": [0, 0, 0, 0]}, 422),
        ({"vector": [1, 2, 3]}, 422),
        ({"limit": 12}, 422),
        ({"offset": 190}, 200),
        ({"with_payload": False, "limit": 30}, 200),
    ],
)
def test_a_query_is_answered_whatever_comes_with_it(
    more: Json, status: int, client: ClusterClient
) -> None:
    query = {"vector": [1, 7, 2, 2], "limit": 5, "recall": 1}

    [alone] = ask(client, [{**query, **more}])
    assert alone.status_code == status
    among = ask(client, [query, {**query, **more}] * TOGETHER)
    assert [each.status_code for each in among] == [200, status] * TOGETHER
    assert {each.content for each in among[1::2] if status == 200} <= {alone.content}


def test_each_shard_is_asked_for_what_the_query_asks(
    client: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, sent = {"recall": 0.55, "guarantee": "proven", "min_score": 0.2}, list[Json]()

    async def note(_: ThreadReplica, head: Json) -> None:
        if head["method"] == "search":
            sent.append({name: head["params"][name] for name in asked})

    before_each_message(monkeypatch, note)
    [answer] = ask(client, [{"vector": [1, 7, 2, 2], "limit": 5, **asked}])
    assert answer.status_code == 200, answer.text
    assert sent == [asked] * len(client.shards.replicas)


def test_each_query_is_counted_once_whatever_it_was_sent_with(client: ClusterClient) -> None:
    def count() -> float:
        lines = client.get("/metrics").text.splitlines()
        counts = [line for line in lines if line.startswith("gcws_searches_total{")]
        return sum(float(line.rpartition(" ")[2]) for line in counts)

    before = count()
    ask(client, [{"vector": [1, 7, 2, 2], "limit": 5}] * TOGETHER)
    assert count() - before == TOGETHER


# In parts: more queries than one message has


@pytest.fixture
def centered(serve: Serve, rng: np.random.Generator) -> Client:
    client = serve()
    client.put(URL, json={"dim": 3, "transform": {"center": CENTER}})
    vectors = rng.integers(-9, 9, (ITEMS, 3)).tolist()
    items = [{"id": str(row), "vector": vector} for row, vector in enumerate(vectors)]
    assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
    return client


def test_each_query_of_many_parts_is_answered_as_if_alone(
    centered: Client, rng: np.random.Generator
) -> None:
    vectors = rng.integers(-9, 9, (2 * PART_ROWS + 3, 3))
    url = f"{URL}/query/batch?limit=7&recall=1"
    content = npy(vectors.astype(np.float32))
    answer = centered.post(url, content=content, headers=NPY).json()["results"]
    assert len(answer) == len(vectors)
    for row in (0, 1, PART_ROWS - 1, PART_ROWS, 2 * PART_ROWS, len(vectors) - 1):
        query = {"vector": vectors[row].tolist(), "limit": 7, "recall": 1}
        assert answer[row] == centered.post(f"{URL}/query", json=query).json()
    assert len({str(each) for each in answer}) > PART_ROWS


def test_the_row_of_a_vector_that_the_transform_leaves_nothing_of_is_named(
    centered: Client,
) -> None:
    vectors = np.ones((2 * PART_ROWS, 3))
    vectors[PART_ROWS + 5] = CENTER
    answer = centered.post(f"{URL}/query/batch", content=npy(vectors), headers=NPY)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["loc"][:2] == ["queries", PART_ROWS + 5]


# Names


def test_names_of_items_under_way_outlast_a_look_at_the_database(serve: Serve) -> None:
    client = serve()
    assert client.put(URL, json={"dim": None}).status_code == 201
    collection = client.app.state.service.collection("plants")
    reserved = collection.names.reserve(["acid", "ester"])
    vector = collection.space.from_items([ix.SparseVector(np.array(reserved), np.ones(2))])
    collection.load_names()
    assert collection.names.reserve(["acid", "ester"]) == reserved
    write = collection.prepare(ix.ItemBatch(["a"], vector, [None]), "upsert")
    assert write.names == reserved


def test_collections_are_listed_by_questions_at_the_same_time(
    client: ClusterClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard that is silent delays all of them together."""
    names = [f"listed{number}" for number in range(3)]
    for name in names:
        client.put(f"/v1/collections/{name}", json={"dim": 2})
    waiting, met = asyncio.Barrier(len(names) * len(client.shards.replicas)), list[int]()

    async def meet(_replica: ThreadReplica, head: Json) -> None:
        if head["method"] == "summary" and head["collection"] in numbers:
            met.append(await waiting.wait())

    find = client.app.state.service.collection
    numbers = {find(name).number for name in names}
    before_each_message(monkeypatch, meet)
    listed = client.get("/v1/collections").json()["collections"]
    assert [each["name"] for each in listed] == [*names, "plants"]
    assert len(met) == waiting.parties
