"""Collections: create, list, describe, drop."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.support.service.bodies import npy
from tests.support.service.client import URL, Client, Json, Serve, assert_problem, count, fill

pytestmark = pytest.mark.served(front="one", cluster="one")


def test_a_collection_shows_its_whole_configuration(serve: Serve) -> None:
    client = serve()
    assert_problem(client.put(URL), 422, "invalid_parameter", "dim", "expected a value, got none")
    created = client.put(URL, json={"dim": 4, "transform": {"power": 0.5}})
    more = {"transform": {"power": 0.5}, "backend": {"kind": "gcws", "params": {"bands": 32}}}
    again = client.put(URL, json={"dim": 4, **more})
    assert (created.status_code, again.status_code) == (201, 200)
    assert_problem(client.put(URL, json={"dim": 5}), 409, "collection_exists", "plants")
    empty = client.post(f"{URL}/query")
    assert_problem(empty, 400, "malformed_body", "a JSON object, got an empty body")
    for answer in (created.json(), client.get(URL).json()):
        assert answer["name"] == "plants"
        assert answer["items"] == 0
        assert answer["dim"] == 4
        assert answer["transform"] == {"center": None, "power": 0.5, "normalize": "none"}
        assert answer["backend"] == {
            "kind": "gcws",
            "params": {"bands": 32, "band_width": None, "encoding": "full", "bits": 8, "seed": 0},
        }
        assert answer["backends"][0]["stats"]["bands"] == 32
        assert answer["bytes_on_disk"] > 0
        assert answer["bytes_in_memory"] > 0
        assert answer["versions"]


def test_vectors_may_lie_in_a_mapped_file(client: Client) -> None:
    url = "/v1/collections/rocks"
    assert client.put(url, json={"dim": 3, "storage": "mapped"}).status_code == 201
    items = [{"id": n, "vector": [n + 1, 2, -1]} for n in range(4)]
    assert client.put(f"{url}/items", json={"items": items}).json()["inserted"] == 4
    shown = client.get(url).json()
    assert (shown["storage"], shown["items"]) == ("mapped", 4)
    assert shown["bytes_mapped"] >= 4 * 3 * 4
    hits = client.post(f"{url}/query", json={"vector": [4, 2, -1], "limit": 1}).json()["hits"]
    assert [(hit["id"], hit["score"]) for hit in hits] == [("3", 1.0)]
    assert client.put(url, json={"dim": 3, "storage": "mapped"}).status_code == 200
    for other in ({}, {"storage": "memory"}):
        refused = client.put(url, json={"dim": 3, **other})
        asked = other.get("storage", "auto")
        assert_problem(refused, 409, "collection_exists", f"with storage mapped, not {asked}")
    assert client.get(URL).json()["storage"] == "auto"


def test_the_list_names_every_collection(client: Client) -> None:
    client.put("/v1/collections/open", json={"dim": None, "backend": {"kind": "exact"}})
    found = client.get("/v1/collections").json()["collections"]
    by_name = {one["name"]: one for one in found}
    assert set(by_name) == {"plants", "open"}
    assert by_name["plants"]["items"] == 4
    assert by_name["plants"]["dim"] == 4
    assert by_name["plants"]["bytes"] > 0
    assert by_name["open"]["dim"] is None
    assert by_name["open"]["backends"] == ["exact"]


@pytest.mark.one_process
def test_a_dropped_collection_and_its_file_are_gone(client: Client, data_dir: Path) -> None:
    assert [path for path in data_dir.iterdir() if "plants" in path.name]
    assert client.delete(URL).status_code == 204
    assert not [path for path in data_dir.iterdir() if "plants" in path.name]
    for method in ("GET", "DELETE"):
        assert_problem(client.request(method, URL), 404, "collection_not_found", "plants")
    assert client.put(URL, json={"dim": 9}).status_code == 201


METADATA: list[Json] = [
    {},
    {"a": [1, {"b": None}], "ü": "\u2028<script>", "big": 2**70, "x": 1e300, "view": None},
    {"view": {}},
    {"view": {"title": "name", "text": "a.b", "smiles": "s", "url": "u", "color": "label"}},
    {
        "view": {"image": {"width": 2, "height": 2, "channels": 1, "range": [-1, 1.5]}},
        "model_dump": 1,
    },
    {"view": {"image": {"width": 1, "height": 1, "channels": 4}}},
]


def test_metadata_are_kept_as_they_were_sent(serve: Serve) -> None:
    client = serve()
    for number, metadata in enumerate(METADATA):
        url = f"{URL}-{number}"
        fill(client, f"plants-{number}")
        assert client.get(url).json()["metadata"] is None
        answer = client.request("PATCH", url, json={"metadata": metadata})
        assert answer.status_code == 200, answer.text
        assert answer.json()["metadata"] == client.get(url).json()["metadata"] == metadata
        fill(client, f"plants-{number}")  # a PUT of the same configuration again
    pictures = {"view": {"image": {"width": 30, "height": 20, "channels": 3}}}
    client.put(f"{URL}-open", json={"dim": None})  # a picture of an open space has any size
    assert client.request("PATCH", f"{URL}-open", json={"metadata": pictures}).status_code == 200
    client = serve()
    for number, metadata in enumerate(METADATA):
        url = f"{URL}-{number}"
        assert client.get(url).json()["metadata"] == metadata
        assert count(client, f"plants-{number}") == 4
        again = client.request("PATCH", url, json={"metadata": {"other": 1}})
        assert again.json()["metadata"] == {"other": 1}
        assert client.request("PATCH", url, json={"metadata": None}).json()["metadata"] is None
    assert serve().get(f"{URL}-0").json()["metadata"] is None


def test_metadata_come_back_with_a_snapshot(client: Client) -> None:
    client.request("PATCH", URL, json={"metadata": {"of": "then"}})
    snapshot = client.post(f"{URL}/snapshots").json()["name"]
    client.request("PATCH", URL, json={"metadata": {"of": "now"}})
    restored = client.post(f"{URL}/snapshots/{snapshot}/restore?replace=true")
    assert restored.status_code in (200, 201), restored.text
    assert client.get(URL).json()["metadata"] == {"of": "then"}


def test_without_a_graph_the_curve_has_no_points_but_a_reason(client: Client) -> None:
    none = {"limit": 10, "points": [], "rows": 0, "holds": False, "scanned_from": None}
    reason = "a graph is built from 2048 items on"
    assert client.get(f"{URL}/curve").json() == none | {"reason": reason}


@pytest.mark.one_process
def test_the_curve_is_what_the_graph_was_calibrated_to(
    serve: Serve, rng: np.random.Generator
) -> None:
    client = serve()
    client.put(URL, json={"dim": 24})
    rows = rng.standard_normal((3000, 24)) + 4 * rng.standard_normal((60, 24)).repeat(50, axis=0)
    client.post(f"{URL}/load", content=npy(rows), headers={"Content-Type": "application/x-npy"})
    client.finish_background_work("plants")
    curve = client.get(f"{URL}/curve?limit=5").json()
    assert (curve["limit"], curve["holds"], curve["reason"]) == (5, True, None)
    assert 2800 < curve["rows"] < 3000  # without those that were the queries
    assert len(curve["points"]) > 1
    for low, high in pairwise(curve["points"]):
        assert all(low[name] < high[name] for name in ("recall", "candidates", "microseconds"))
    [backend] = client.get(URL).json()["backends"]
    calibration = backend["stats"]["graph"]["calibration"]
    assert calibration["rows"] == curve["rows"]
    assert calibration["limits"] == [1, 10, 30, 100]
    for limit, recall in zip(calibration["limits"], calibration["greatest_recalls"], strict=True):
        points = client.get(f"{URL}/curve?limit={limit}").json()["points"]
        assert points[-1]["recall"] == recall


def test_a_bad_name_is_refused(serve: Serve) -> None:
    client = serve()
    for name in ("a b", "..", "x" * 300, "caf%C3%A9", "%00", "-x", ".x"):
        response = client.put(f"/v1/collections/{name}", json={"dim": 4})
        assert response.status_code in (404, 405, 422)  # ".." leads to the path above
        assert response.headers["content-type"] == "application/problem+json"
