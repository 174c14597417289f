"""Queries that are sent to the shards together are answered as if each had come alone."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.service.client import Json
from tests.support.service.cluster import ClusterClient
from tests.support.service.postgres import postgres

URL = "/v1/collections/plants"
TEXT = "x" * 200
"""Twelve hits are longer than an answer may be."""
TOGETHER = 40


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterClient]:
    with postgres().database() as url:
        client = ClusterClient(url, tmp_path_factory.mktemp("cluster"), max_answer_bytes=2000)
        client.start()
        client.wait_until_ready()
        client.put(URL, json={"dim": 4})
        items = [
            {"id": i, "vector": [1, i, 2, 1], "payload": {"text": TEXT}} for i in range(1, 201)
        ]
        client.put(f"{URL}/items", json={"items": items})
        yield client
        client.stop()


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

    async def ask(bodies: list[Json]) -> list[Json]:
        work = (client.http.post(f"{URL}/query", json=body) for body in bodies)
        return await asyncio.gather(*work)

    [alone] = client.run(ask([{**query, **more}]))
    assert alone.status_code == status
    among = client.run(ask([query, {**query, **more}] * TOGETHER))
    assert [each.status_code for each in among] == [200, status] * TOGETHER
    assert {each.content for each in among[1::2] if status == 200} <= {alone.content}


def test_each_query_is_counted_once_whatever_it_was_sent_with(client: ClusterClient) -> None:
    def count() -> float:
        lines = client.get("/metrics").text.splitlines()
        counts = [line for line in lines if line.startswith("gcws_searches_total{")]
        return sum(float(line.rpartition(" ")[2]) for line in counts)

    async def ask() -> None:
        body = {"vector": [1, 7, 2, 2], "limit": 5}
        work = (client.http.post(f"{URL}/query", json=body) for _ in range(TOGETHER))
        await asyncio.gather(*work)

    before = count()
    client.run(ask())
    assert count() - before == TOGETHER
