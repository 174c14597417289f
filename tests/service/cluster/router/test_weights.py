"""Weights over a cluster: given alone."""

from tests.support.service.client import Client, assert_problem

URL = "/v1/collections/wines"


def test_a_cluster_learns_no_weights(client: Client) -> None:
    answer = client.put(URL, json={"dim": 2, "transform": {"weights": [1, 2]}})
    assert answer.status_code == 201
    client.put(f"{URL}/items", json={"items": [{"id": 1, "vector": [1, 2]}]})
    before = client.get(URL).json()["weights"]
    assert before["kind"] == "list"
    refused = client.post(f"{URL}/transform/fit", json={"weights": "max"})
    assert_problem(refused, 422, "invalid_parameter", "cluster")
    assert client.get(URL).json()["weights"] == before
    other = client.put("/v1/collections/other", json={"dim": 3, "transform": {"weights": "idf"}})
    assert_problem(other, 422, "invalid_parameter", "transform.weights", "cluster")
    assert client.get("/v1/collections/other").status_code == 404
