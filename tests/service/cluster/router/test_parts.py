"""A batch of more queries than one message has: in parts, answered as one."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gcws_search.service.cluster.collection import PART_ROWS
from tests.support.service.cluster import ClusterClient
from tests.support.service.postgres import postgres

URL = "/v1/collections/c"
CENTER = [0.5, 0.5, 0.5]
ITEMS = 60


@pytest.fixture
def client(tmp_path: Path, rng: np.random.Generator) -> Iterator[ClusterClient]:
    with postgres().database() as url:
        client = ClusterClient(url, tmp_path)
        client.start()
        client.wait_until_ready()
        client.put(URL, json={"dim": 3, "transform": {"center": CENTER}})
        vectors = rng.integers(-9, 9, (ITEMS, 3)).tolist()
        items = [{"id": str(row), "vector": vector} for row, vector in enumerate(vectors)]
        assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
        yield client
        client.stop()


def npy(vectors: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, vectors.astype(np.float32))
    return file.getvalue()


def test_each_query_of_many_parts_is_answered_as_if_alone(
    client: ClusterClient, rng: np.random.Generator
) -> None:
    vectors = rng.integers(-9, 9, (2 * PART_ROWS + 3, 3))
    headers = {"Content-Type": "application/x-npy"}
    url = f"{URL}/query/batch?limit=7&recall=1"
    answer = client.post(url, content=npy(vectors), headers=headers).json()["results"]
    assert len(answer) == len(vectors)
    for row in (0, 1, PART_ROWS - 1, PART_ROWS, 2 * PART_ROWS, len(vectors) - 1):
        query = {"vector": vectors[row].tolist(), "limit": 7, "recall": 1}
        assert answer[row] == client.post(f"{URL}/query", json=query).json()
    assert len({str(each) for each in answer}) > PART_ROWS


def test_the_row_of_a_vector_that_the_transform_leaves_nothing_of_is_named(
    client: ClusterClient,
) -> None:
    vectors = np.ones((2 * PART_ROWS, 3))
    vectors[PART_ROWS + 5] = CENTER
    answer = client.post(
        f"{URL}/query/batch", content=npy(vectors), headers={"Content-Type": "application/x-npy"}
    )
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["loc"][:2] == ["queries", PART_ROWS + 5]
