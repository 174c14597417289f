"""Comparison backends: attach, query, compare, drop."""

import pytest

from tests.support.service.client import URL, VECTOR, Client, Json, Serve, assert_problem, fill

pytestmark = pytest.mark.served(front="one", cluster="one")

PARAMS: list[tuple[str, Json]] = [
    ("gcws", {"bands": 32, "band_width": None, "encoding": "full", "bits": 8, "seed": 0}),
    ("exact", {}),
    ("rff", {"features": 512, "gamma": 1.0, "seed": 0}),
    ("nrff", {"features": 512, "gamma": 1.0, "seed": 0}),
    ("folded_rff", {"features": 512, "gamma": 1.0, "seed": 0}),
    ("random_binning",
     {"distribution": "gamma", "shape": 2.0, "scale": 1.0, "bands": 32, "seed": 0}),
    ("gmm_nystroem", {"landmarks": 256, "seed": 0}),
    ("rbf_nystroem", {"landmarks": 256, "gamma": 1.0, "seed": 0}),
]  # fmt: skip
"""Every kind, and its parameters where none are sent."""


def test_a_collection_of_any_kind_is_created(client: Client) -> None:
    for kind, params in PARAMS:
        client.delete(URL)
        fill(client, backend={"kind": kind})
        again = client.put(URL, json={"dim": 4, "backend": {"kind": kind, "params": params}})
        assert again.status_code == 200
        assert again.json()["backend"] == {"kind": kind, "params": params}
        hits = client.post(f"{URL}/query", json={"vector": VECTOR, "limit": 1}).json()["hits"]
        assert [(hit["id"], hit["score"]) for hit in hits] == [("a", 1.0)]
        [shown] = client.get(URL).json()["backends"]
        assert (shown["name"], shown["kind"], shown["primary"]) == (kind, kind, True)


def test_any_kind_is_attached_asked_and_dropped(client: Client) -> None:
    for kind, params in PARAMS:
        few = {"landmarks": 3} if "landmarks" in params else {}
        answer = client.post(f"{URL}/backends", json={"kind": kind, "name": "mine", "params": few})
        assert answer.status_code == 201, answer.text
        assert answer.json()["params"] == params | few
        shown = {backend["name"]: backend for backend in client.get(URL).json()["backends"]}
        assert list(shown) == ["gcws", "mine"]
        assert shown["mine"] == answer.json()
        assert (shown["mine"]["status"], shown["mine"]["progress"]) == ("ready", 1.0)
        for rerank in ("gmm", "own", "none"):
            body = {"vector": VECTOR, "backend": "mine", "rerank": rerank, "candidates": 4}
            found = client.post(f"{URL}/query", json=body)
            assert found.status_code == 200, found.text
            assert "a" in [hit["id"] for hit in found.json()["hits"]]
        [listed] = client.get("/v1/collections").json()["collections"]
        assert listed["backends"] == ["gcws", "mine"]
        assert client.delete(f"{URL}/backends/mine").status_code == 204
        assert_problem(client.delete(f"{URL}/backends/mine"), 404, "backend_not_found", "mine")
        gone = client.post(f"{URL}/query", json={"vector": VECTOR, "backend": "mine"})
        assert_problem(gone, 404, "backend_not_found", "mine")


def test_names_conflict_and_the_first_one_stays(client: Client) -> None:
    for name in ("rff", "rff_2"):
        assert client.post(f"{URL}/backends", json={"kind": "rff"}).json()["name"] == name
    taken = client.post(f"{URL}/backends", json={"kind": "exact", "name": "rff_2"})
    assert_problem(taken, 409, "backend_exists", "rff_2")
    assert_problem(client.delete(f"{URL}/backends/gcws"), 409, "primary_backend", "gcws")
    proof = {"vector": VECTOR, "backend": "rff", "guarantee": "proven"}
    refused = client.post(f"{URL}/query", json=proof)
    assert_problem(refused, 422, "invalid_parameter", "guarantee", "'measured'")


def test_attached_backends_are_there_after_a_restart(serve: Serve) -> None:
    client = serve()
    fill(client)
    client.post(f"{URL}/backends", json={"kind": "rff", "params": {"features": 8, "seed": 3}})
    body = {"vector": VECTOR, "backend": "rff", "rerank": "none"}
    before = client.post(f"{URL}/query", json=body).json()["hits"]
    again = serve().post(f"{URL}/query", json=body).json()["hits"]
    assert [hit["id"] for hit in again] == [hit["id"] for hit in before]
    assert [hit["score"] for hit in again] == pytest.approx([hit["score"] for hit in before])


def test_a_comparison_has_a_line_a_backend(client: Client) -> None:
    client.post(f"{URL}/backends", json={"kind": "nrff", "params": {"features": 64}})
    client.post(f"{URL}/backends", json={"kind": "exact"})
    answer = client.post(f"{URL}/compare", json={"sample": 3, "limit": 2})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["queries"], found["limit"], found["recall"]) == (3, 2, 0.9)
    assert len(found["mean_similarity"]) == 3
    assert [backend["name"] for backend in found["backends"]] == ["gcws", "nrff", "exact"]
    assert [backend["kernel"] for backend in found["backends"]] == ["gmm", "rbf", "gmm"]
    for backend in found["backends"]:
        assert backend["recall"] == 1.0  # so few items are all scored
        assert backend["recall_own"] == 1.0
        assert backend["candidates"] == 4
        assert backend["latency_p95_seconds"] >= backend["latency_p50_seconds"] > 0
        assert backend["build_seconds"] > 0
    assert found["backends"][1]["bytes_per_item"] >= 4 * 64
    some = client.post(f"{URL}/compare", json={"queries": [VECTOR], "backends": ["exact"]}).json()
    assert [backend["name"] for backend in some["backends"]] == ["exact"]
    scores = client.post(f"{URL}/query", json={"vector": VECTOR, "recall": 1}).json()["hits"]
    mean = sum(hit["score"] for hit in scores) / len(scores)
    assert some["mean_similarity"] == [pytest.approx(mean)]


def test_a_comparison_is_of_a_sample_that_its_seed_draws(serve: Serve) -> None:
    client = serve()
    client.put(URL, json={"dim": 4})
    assert_problem(client.post(f"{URL}/compare", json={}), 422, "invalid_parameter", "2 items")
    fill(client)
    assert client.post(f"{URL}/compare", json={}).json()["queries"] == 4
    asked = ({"sample": 2, "limit": 1, "seed": seed} for seed in (1, 1, 2, 3, 4))
    answers = (client.post(f"{URL}/compare", json=body).json() for body in asked)
    first, again, *others = (answer["mean_similarity"] for answer in answers)
    assert first == again
    assert any(first != each for each in others)
