"""Comparison backends are on all replicas of a shard once they are attached."""

from pathlib import Path

from tests.support.service.client import Client, fill
from tests.support.service.cluster import ClusterClient

URL = "/v1/collections/plants"
QUERY = {"vector": [1, 0, 2, 3], "recall": 1, "backend": "own"}


def statuses(client: Client) -> set[int]:
    """Return the statuses of queries to either replica."""
    return {client.post(f"{URL}/query", json=QUERY).status_code for _ in range(6)}


def shown(client: Client) -> set[tuple[str, ...]]:
    """Return the names that descriptions by either replica have."""
    found = (client.get(URL).json()["backends"] for _ in range(6))
    return {tuple(backend["name"] for backend in backends) for backends in found}


def test_a_backend_is_attached_to_all_replicas_and_dropped_from_all(
    database_url: str, tmp_path: Path
) -> None:
    client = ClusterClient(database_url, tmp_path, replicas=2)
    client.start()
    client.wait_until_ready()
    fill(client)
    attached = client.post(f"{URL}/backends", json={"kind": "exact", "name": "own"})
    assert attached.status_code == 201, attached.text
    assert statuses(client) == {200}
    assert shown(client) == {("gcws", "own")}
    assert client.delete(f"{URL}/backends/own").status_code == 204
    assert statuses(client) == {404}
    assert shown(client) == {("gcws",)}
    client.stop()
