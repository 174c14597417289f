"""Requests by names of coordinates."""

import httpx

from tests.support.service.client import Client, Json
from tests.support.service.queries import URL

FOUR = ["acidity", "body", "sweetness", "bitterness"]


def put(client: Client, *items: Json) -> httpx.Response:
    return client.put(f"{URL}/items", json={"items": [*items]})


def hits(client: Client, vector: Json, **more: Json) -> Json:
    answer = client.post(f"{URL}/query", json={"vector": vector, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()["hits"]
