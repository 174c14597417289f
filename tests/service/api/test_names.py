"""Names of coordinates: given, taken by items, shown, asked for, known or not."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gcws_search
from gcws_search.client.remote import RemoteCollection, run
from gcws_search.index.collection.check import check_directory
from tests.support.service.bodies import TYPES, arrow, load, ndjson
from tests.support.service.client import (
    FOUR,
    URL,
    Client,
    Json,
    Serve,
    assert_problem,
    count,
    fill,
    gmm,
    hits,
    put,
)
from tests.support.service.live_server import listening

pytestmark = pytest.mark.served(cluster="one")

WORDS: list[dict[str, Json]] = [
    {"id": "a", "vector": {"names": ["acid", "ester"], "values": [2, 1]}},
    {"id": "b", "vector": {"names": ["ester", "ketone"], "values": [3, -1]}},
    {"id": "c", "vector": {"names": ["acid"]}},
]


def opened(serve: Serve, **config: Json) -> Client:
    """Return a client with an empty collection of an open slot space."""
    client = serve(load_chunk_rows=2)
    assert client.put(URL, json={"dim": None, **config}).status_code == 201
    return client


def named(client: Client, query: str = "") -> dict[str, int]:
    answer = client.get(f"{URL}/names{query}")
    assert answer.status_code == 200, answer.text
    return {one["name"]: one["index"] for one in answer.json()["names"]}


def similarity(u: dict[str, float], v: dict[str, float]) -> float:
    return gmm([u.get(name, 0) for name in {*u, *v}], [v.get(name, 0) for name in {*u, *v}])


def by_name(vector: Json) -> dict[str, float]:
    return dict(zip(vector["names"], vector.get("values") or [1] * 9, strict=False))


# Fixed dim


def test_a_collection_of_fixed_dim_is_given_its_names(client: Client) -> None:
    assert client.get(f"{URL}/names").json() == {"names": [], "count": 0}
    answer = client.put(f"{URL}/names", json={"names": FOUR})
    assert answer.json() == {
        "names": [{"index": i, "name": name} for i, name in enumerate(FOUR)],
        "count": 4,
    }
    assert client.get(f"{URL}/names").json() == answer.json()
    assert client.get(URL).json()["names"] == 4
    vector = {"names": ["bitterness", "body"], "values": [2.5, -2]}
    [hit] = hits(client, vector, limit=1)
    assert (hit["id"], hit["score"]) == ("c", 1)
    assert put(client, {"id": "named", "vector": vector}).json() == {"inserted": 1, "updated": 0}
    assert client.get(f"{URL}/items/named").json()["vector"] == [0, -2, 0, 2.5]
    columns = {"id": ["p", "q"], "names": pa.array([["body"], ["colour"]])}
    loaded = load(client, "arrow", arrow(columns), "?on_error=skip").json()
    assert (loaded["inserted"], [one["row"] for one in loaded["rejected"]]) == (1, [1])
    assert "'colour'" in loaded["rejected"][0]["detail"]
    assert client.get(f"{URL}/items/p").json()["vector"] == [0, 1, 0, 0]
    refused = put(client, {"id": "x", "vector": {"names": ["acidity", "colour"]}})
    assert_problem(refused, 422, "invalid_vector", "names[1]", "4 names", "'colour'")


def test_names_are_replaced_whole_and_outlive_the_process(serve: Serve) -> None:
    client = serve()
    fill(client)
    client.put(f"{URL}/names", json={"names": FOUR})
    long = ["é" * 255, "\U0010ffff" * 255, "a\nb\0c", "'"]
    assert client.put(f"{URL}/names", json={"names": long}).status_code == 200
    assert list(named(client)) == long
    assert named(client, "?prefix=é") == {long[0]: 0}
    assert named(client, "?prefix=%F4%8F%BF%BF") == {long[1]: 1}
    assert named(client, "?prefix=a%0A") == {long[2]: 2}
    client.put(f"{URL}/names", json={"names": ["body", "acidity"]})
    client = serve()
    assert named(client) == {"body": 0, "acidity": 1}
    assert hits(client, {"names": ["body"]}) == hits(client, [1, 0, 0, 0])
    client.put(f"{URL}/names", json={"names": []})
    assert named(client) == {}
    client.put("/v1/collections/open", json={"dim": None})
    answer = client.put("/v1/collections/open/names", json={"names": ["a"]})
    assert_problem(answer, 422, "invalid_parameter", "names", "fixed dim", "open slot space")


def test_of_names_sent_at_once_those_of_one_stay(client: Client) -> None:
    """Without ``replace`` nobody's names take the place of others', whoever asks first."""
    orders = [[*FOUR[shift:], *FOUR[:shift]] for shift in range(4)] * 2
    bodies = [(f"{URL}/names", {"names": names, "replace": False}) for names in orders]
    for _ in range(5):
        assert client.put(f"{URL}/names", json={"names": []}).json()["count"] == 0
        answers = [answer.json() for answer in client.at_once("PUT", bodies)]
        [*told] = named(client)
        assert told in orders
        assert all([each["name"] for each in answer["names"]] == told for answer in answers)
        assert {answer["count"] for answer in answers} == {4}
    assert client.put(f"{URL}/names", json={"names": FOUR[::-1]}).status_code == 200
    assert [*named(client)] == FOUR[::-1]


def test_of_first_frames_added_at_once_all_are_taken_by_one_order(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    rows = rng.normal(size=(6, 4)).astype(np.float32)
    tables = []
    for shift in range(4):
        order = np.roll(np.arange(4), shift)
        tables.append(pa.table({FOUR[column]: rows[:, column] for column in order}))
    with listening(tmp_path) as port:
        for turn in range(12):
            with gcws_search.connect(f"http://127.0.0.1:{port}") as server:
                items = server.collection(f"turn{turn}", dim=4)
                start = threading.Barrier(4)

                def add(number: int, items: Any, start: threading.Barrier) -> None:  # noqa: ANN401
                    start.wait()
                    items.add(tables[number], ids=[f"{number}-{row}" for row in range(6)])

                with ThreadPoolExecutor(4) as pool:
                    [*pool.map(add, range(4), [items] * 4, [start] * 4)]
                expected = dict(zip(FOUR, rows.T, strict=True))
                columns = [expected[name] for name in items.names().values()]
                for item in items:
                    row = int(item.id[2:])
                    own = [column[row] for column in columns]
                    assert np.array(item.vector, np.float32).tolist() == own, item.id


# Open slot spaces


def test_new_names_take_the_next_coordinates_with_their_items(serve: Serve) -> None:
    client = opened(serve)
    assert put(client, *WORDS).json() == {"inserted": 3, "updated": 0}
    assert named(client) == {"acid": 0, "ester": 1, "ketone": 2}
    found = client.get(f"{URL}/items/b").json()["vector"]
    assert found == {"indices": [1, 2], "values": [3, -1]}
    for item in WORDS:
        own = by_name(item["vector"])
        expected = {each["id"]: similarity(own, by_name(each["vector"])) for each in WORDS}
        scores = {hit["id"]: hit["score"] for hit in hits(client, item["vector"])}
        assert scores == pytest.approx(expected)


def test_names_of_a_query_alone_share_nothing_and_are_told(serve: Serve) -> None:
    client = opened(serve)
    put(client, *WORDS)
    query = {"names": ["nitrile", "acid", "oxime"], "values": [0.5, 1, -2]}
    body = {"vector": query, "explain": True, "min_score": 0.01}
    answer = client.post(f"{URL}/query", json=body).json()
    scores = {hit["id"]: hit["score"] for hit in answer["hits"]}
    vectors = {each["id"]: by_name(each["vector"]) for each in WORDS if each["id"] != "b"}
    assert scores == pytest.approx({i: similarity(by_name(query), v) for i, v in vectors.items()})
    assert answer["explain"]["unknown_names"] == ["nitrile", "oxime"]
    stream = arrow({"names": [query["names"]], "values": [query["values"]]})
    kind, params = {"Content-Type": TYPES["arrow"]}, {"min_score": "0.01", "explain": "true"}
    found = client.post(f"{URL}/query", content=stream, headers=kind, params=params).json()
    assert found["hits"] == answer["hits"]
    assert found["explain"]["unknown_names"] == ["nitrile", "oxime"]
    stream = arrow({"names": [["acid"], query["names"]], "values": [[1.0], query["values"]]})
    sent = client.post(f"{URL}/query/batch", content=stream, headers=kind, params=params).json()
    assert [one["explain"].get("unknown_names") for one in sent["results"]] == [
        None,
        ["nitrile", "oxime"],
    ]
    assert sent["results"][1]["hits"] == answer["hits"]
    known = client.post(f"{URL}/query", json={**body, "vector": {"names": ["acid"]}}).json()
    assert "unknown_names" not in known["explain"]
    batch = {"queries": [{**body, "vector": {"names": ["acid"]}}, body]}
    told = client.post(f"{URL}/query/batch", json=batch).json()["results"]
    assert [one["explain"].get("unknown_names") for one in told] == [None, ["nitrile", "oxime"]]
    assert told[1]["hits"] == answer["hits"]
    assert named(client) == {"acid": 0, "ester": 1, "ketone": 2}


@pytest.mark.parametrize("transform", [{"power": 0.5}, {"normalize": "l2"}, {"normalize": "l1"}])
def test_unknown_names_count_under_a_transform(serve: Serve, transform: Json) -> None:
    client = opened(serve, transform=transform)
    put(client, *WORDS)
    query = {"names": ["x", "acid", "y"], "values": [3, 2, 4]}
    known = {"names": ["acid", "more", "and more"], "values": [2, 3, 4]}
    client.put("/v1/collections/other", json={"dim": None, "transform": transform})
    items = [*WORDS, {"id": "known", "vector": known}]
    client.put("/v1/collections/other/items", json={"items": items})
    asked = {"vector": known, "recall": 1}
    other = client.post("/v1/collections/other/query", json=asked).json()["hits"]
    expected = {hit["id"]: hit["score"] for hit in other if hit["id"] != "known"}
    assert {hit["id"]: hit["score"] for hit in hits(client, query)} == pytest.approx(expected)


def test_names_take_no_coordinate_that_an_item_uses(serve: Serve) -> None:
    client = opened(serve)
    put(client, {"id": "raw", "vector": {"indices": [7, 3], "values": [1, 1]}})
    put(client, {"id": "named", "vector": {"names": ["p", "q"]}})
    assert named(client) == {"p": 8, "q": 9}
    put(client, {"id": "more", "vector": {"indices": [20, 8]}})
    put(client, {"id": "next", "vector": {"names": ["r", "p"]}})
    assert named(client) == {"p": 8, "q": 9, "r": 21}
    client = serve()
    put(client, {"id": "last", "vector": {"names": ["s"]}})
    assert named(client)["s"] == 22
    assert hits(client, {"names": ["p"]}, limit=2)[0]["id"] in ("more", "named", "next")


def test_the_end_of_the_coordinates_is_said(serve: Serve) -> None:
    client = opened(serve)
    put(client, {"id": "raw", "vector": {"indices": [2**31 - 2]}})
    for stored in ({}, {"p": 2**31 - 1}):
        assert named(client) == stored
        answer = put(client, {"id": "beyond", "vector": {"names": ["p", "q"]}})
        problem = assert_problem(answer, 422, "invalid_vector", "2^31 coordinates")
        assert problem["errors"][0]["loc"] == ["items", 0, "vector", "names", 1]
        assert put(client, {"id": "last", "vector": {"names": ["p"]}}).status_code == 200
    answer = client.post(f"{URL}/query", json={"vector": {"names": ["q"]}})
    assert_problem(answer, 422, "invalid_vector", "'q'")


def test_names_of_items_that_are_refused_are_not_stored(serve: Serve) -> None:
    client = opened(serve)
    bad = [{"names": ["new", "new"]}, {"names": ["new"], "values": [0]}, {"names": ["new", ""]}]
    for vector in bad:
        assert put(client, WORDS[0], {"id": "x", "vector": vector}).status_code == 422
        assert named(client) == {}
    answer = client.put(f"{URL}/items", json={"items": [WORDS[0], WORDS[0]], "mode": "insert"})
    assert_problem(answer, 409, "item_exists")
    assert named(client) == {}
    put(client, {"id": "x", "vector": {"names": ["other"]}})
    assert list(named(client)) == ["other"]


def test_names_outlive_the_process_and_are_in_snapshots(serve: Serve) -> None:
    client = opened(serve)
    put(client, *WORDS)
    client.delete(f"{URL}/items/c")  # others have its name
    half = client.post(f"{URL}/snapshots").json()["name"]
    put(client, {"id": "d", "vector": {"names": ["oxime", "acid"]}})
    client = serve()
    assert named(client) == {"acid": 0, "ester": 1, "ketone": 2, "oxime": 3}
    assert [hit["id"] for hit in hits(client, {"names": ["oxime"]}, limit=1)] == ["d"]
    restored = client.post(f"{URL}/snapshots/{half}/restore?replace=true")
    assert restored.status_code == 200, restored.text
    assert named(client) == {"acid": 0, "ester": 1, "ketone": 2}
    put(client, {"id": "e", "vector": {"names": ["amide", "ester"]}})
    assert named(client) == {"acid": 0, "ester": 1, "ketone": 2, "amide": 3}


def test_clients_that_bring_one_new_name_at_once_share_its_coordinate(serve: Serve) -> None:
    client = opened(serve)
    vectors = [{"names": [f"word {number % 40}", "all"]} for number in range(160)]
    items = ({"id": str(number), "vector": vector} for number, vector in enumerate(vectors))
    answers = client.at_once("PUT", [(f"{URL}/items", {"items": [item]}) for item in items])
    assert {answer.status_code for answer in answers} == {200}
    assert sorted(named(client, "?limit=100").values()) == [*range(41)]
    for vector in vectors[:40:13]:
        found = hits(client, vector, limit=9, min_score=0.9)
        assert {vectors[int(hit["id"])]["names"][0] for hit in found} == {vector["names"][0]}
        assert len(found) == 4


# Wherever a vector is taken


def test_every_format_loads_names(serve: Serve) -> None:
    client = opened(serve)
    assert load(client, "ndjson", ndjson(*WORDS)).json()["inserted"] == 3
    vectors = [item["vector"] for item in WORDS]
    columns = {
        "id": ["d", "e", "f"],
        "names": pa.array([vector["names"] for vector in vectors], pa.list_(pa.string_view())),
        "values": pa.array([[2, 1], [3, -1], [1]], pa.large_list(pa.float32())),
    }
    assert load(client, "arrow", arrow(columns)).json()["inserted"] == 3
    coded = pa.array([["acid", "amide"], ["acid"]], pa.list_(pa.string()))
    sets = {"id": ["g", "h"], "names": coded}
    assert load(client, "arrow", arrow(sets, 1)).json()["inserted"] == 2
    assert named(client) == {"acid": 0, "ester": 1, "ketone": 2, "amide": 3}
    for one, other in zip("abc", "def", strict=True):
        vector = client.get(f"{URL}/items/{one}").json()["vector"]
        assert client.get(f"{URL}/items/{other}").json()["vector"] == vector
    assert client.get(f"{URL}/items/g").json()["vector"]["indices"] == [0, 3]


def test_bad_rows_of_names_are_named(serve: Serve) -> None:
    client = opened(serve)
    names = [["a", "b"], ["c", "c"], ["d", ""], [None], ["x" * 256], ["e"], None, ["a", "f"], []]
    values = [[1, 2], [1, 2], [1, 2], [1], [1], [0], [1], [1], []]
    columns = {
        "id": [str(i) for i in range(9)],
        "names": pa.array(names, pa.list_(pa.string())),
        "values": pa.array(values, pa.list_(pa.float32())),
    }
    vectors = [{"names": name, "values": value} for name, value in zip(names, values, strict=True)]
    lines = ndjson(*({"id": str(i), "vector": vector} for i, vector in enumerate(vectors)))
    for kind, body in (("arrow", arrow(columns)), ("ndjson", lines)):
        answer = load(client, kind, body, "?on_error=skip").json()
        assert answer["inserted"] + answer["updated"] == 1, answer
        assert [one["row"] for one in answer["rejected"]] == [*range(1, 9)]
        assert all(one["code"] == "invalid_vector" for one in answer["rejected"])
    assert set(named(client)) == {"a", "b"}
    stop = load(client, "arrow", arrow({"id": ["q"], "names": pa.array([["c", "c"]])}))
    assert_problem(stop, 422, "invalid_vector", "row 0", "'c' twice", "vector.names[1]")


def test_samples_and_comparison_backends_take_names_that_no_item_had(serve: Serve) -> None:
    client = opened(serve)
    put(client, *WORDS)
    vectors = [{"names": ["acid"]}, {"names": ["new"]}]
    [acid, new] = client.post(f"{URL}/sketch", json={"vectors": vectors}).json()["slots"]
    assert {*acid} == {2 * named(client)["acid"]}
    assert len({*new}) == 1
    assert new[0] // 2 > max(named(client).values())
    attached = client.post(f"{URL}/backends", json={"kind": "random_binning"})
    assert attached.status_code == 201, attached.text
    put(client, {"id": "d", "vector": {"names": ["oxime", "nitrile"]}})
    query = {"names": ["oxime", "nitrile", "unknown"]}
    for backend in (None, "random_binning"):
        [hit] = hits(client, query, backend=backend, limit=1)
        assert (hit["id"], hit["score"]) == ("d", pytest.approx(2 / 3))


# Showing


def test_names_are_found_by_prefix_and_by_index(client: Client) -> None:
    client.delete(URL)
    client.put(URL, json={"dim": 100})
    names = [f"w{number:02}" for number in range(60)] + ["parrot", "park", "pa", "Par", "pb"]
    client.put(f"{URL}/names", json={"names": names})
    assert list(named(client)) == names[:20]
    assert list(named(client, "?limit=3")) == names[:3]
    assert list(named(client, "?prefix=par")) == ["park", "parrot"]
    assert list(named(client, "?prefix=pa&limit=2")) == ["pa", "park"]
    assert named(client, "?prefix=zz") == {}
    assert named(client, "?indices=3,60,3,99") == {"w03": 3, "parrot": 60}
    assert client.get(f"{URL}/names?prefix=par").json()["count"] == 65


@pytest.mark.one_process
def test_a_damaged_name_is_found_and_left_out(serve: Serve, data_dir: Path) -> None:
    client = opened(serve)
    put(client, *WORDS)
    client.stop()
    with sqlite3.connect(data_dir / "plants.sqlite") as connection:
        connection.execute("UPDATE names SET name = 'other' WHERE name = 'ester'")
    connection.close()
    [report] = check_directory(data_dir)
    assert len(report.findings) == 1
    assert "coordinate 1" in report.findings[0]
    assert_problem(serve().get(URL), 500, "damaged_file", "coordinate 1")
    serve().stop()
    [report] = check_directory(data_dir, repair=True)
    assert report.repaired
    client = serve()
    assert named(client) == {"acid": 0, "ketone": 2}
    assert count(client) == 3
    assert put(client, {"id": "d", "vector": {"names": ["new"]}}).status_code == 200
    assert named(client)["new"] == 3


# Names that no coordinate of a fixed dim has

WIDE = "/v1/collections/wide"
TRANSFORMS: list[dict[str, Json]] = [
    {}, {"power": 0.5}, {"normalize": "l1"}, {"normalize": "l2"}, {"center": [0.5, -1, 0, 2]},
    {"center": [0.5, -1, 0, 2], "normalize": "l2", "power": 2},
]  # fmt: skip
SPACES = [(4, each) for each in TRANSFORMS] + [(5000, each) for each in TRANSFORMS[:4]]
NAMED: list[tuple[list[str], list[float]]] = [
    (["body", "sweetness"], [1, 2]),
    (["colour", "body", "smell", "acidity", "taste"], [1.5, -2, 0.5, 3, -1]),
    (["colour"], [1]),
]
"""Vectors by name, of which a collection of `FOUR` knows some."""


@pytest.mark.parametrize("kind", ["gcws", "rff"])
@pytest.mark.parametrize(("dim", "transform"), SPACES, ids=str)
def test_unknown_names_count_as_coordinates_beyond_the_dim(
    serve: Serve, dim: int, transform: Json, kind: str
) -> None:
    """Samples, scores and recall are those of a space that has coordinates for all names."""
    client = serve()
    rows = np.random.default_rng(1).integers(-3, 4, (40, 4)) + 0.5
    items = [
        {"id": i, "vector": {"indices": [0, 1, 2, 3], "values": row}, "payload": {"i": i}}
        for i, row in enumerate(rows.tolist())
    ]
    for url, more in ((URL, 0), (WIDE, 3)):
        center = {"center": transform["center"] + [0] * more} if "center" in transform else {}
        config = {"dim": dim + more, "transform": transform | center, "backend": {"kind": kind}}
        assert client.put(url, json=config).status_code == 201
        client.put(f"{url}/items", json={"items": items})
        client.delete(f"{url}/items/7")
        client.post(f"{url}/backends", json={"kind": "exact"})
    client.put(f"{URL}/names", json={"names": FOUR})
    beyond = {"colour": dim, "smell": dim + 1, "taste": dim + 2}
    places = beyond | {name: place for place, name in enumerate(FOUR)}
    sent = [{"names": names, "values": values} for names, values in NAMED]
    same = [{"indices": [places[name] for name in names], "values": v} for names, v in NAMED]

    def both(path: str, body: Json, other: Json) -> list[Json]:
        answers = client.post(f"{URL}/{path}", json=body), client.post(f"{WIDE}/{path}", json=other)
        assert answers[0].status_code == 200, answers[0].text
        return [answer.json() for answer in answers]

    for encoding in ("full", "zero_bit", "b_bit") if kind == "gcws" else ():
        form = {"encoding": encoding}
        found, wide = both("sketch", {"vectors": sent, **form}, {"vectors": same, **form})
        assert found == wide
    asked: Json = {"recall": 1, "limit": 5}
    found, wide = both("compare", {"queries": sent, **asked}, {"queries": same, **asked})
    assert found["mean_similarity"] == pytest.approx(wide["mean_similarity"], abs=1e-6)
    assert len({*found["mean_similarity"]}) > 2
    assert found["backends"][0]["recall"] == 1
    assert found["backends"][1]["recall"] > 0.5
    where = {"must": {"key": "i", "range": {"gte": 4}}}
    for asked in ({"limit": 50}, {"limit": 3, "recall": 0.5}, {"limit": 5, "filter": where}):
        query = {"vector": same[1], **asked, "recall": 1}
        found, wide = both("query", {"vector": sent[1], **asked, "explain": True}, query)
        assert found["explain"]["unknown_names"] == [*beyond]
        assert found["explain"]["method"] == "scan"
        scores = [hit["score"] for hit in wide["hits"]]
        assert [hit["score"] for hit in found["hits"]] == pytest.approx(scores, abs=1e-6)
        assert found["hits"]
        assert all(hit["payload"]["i"] >= 4 for hit in found["hits"] if "filter" in asked)


def test_streams_of_queries_have_names_that_a_fixed_dim_has_not(client: Client) -> None:
    client.put(f"{URL}/names", json={"names": FOUR})
    names = [["body"], ["colour", "acidity", "smell"], ["colour"], ["sweetness", "body"]]
    values = [[2.0], [1.5, -2.0, 0.5], [1.0], [1.0, -1.0]]
    body = arrow({"names": pa.array(names), "values": pa.array(values)})
    found = client.post(f"{URL}/query/batch?explain=true", content=body).json()["results"]
    for each, one, numbers in zip(found, names, values, strict=True):
        assert each["hits"] == hits(client, {"names": one, "values": numbers})
    alone = arrow({"names": names[1:2], "values": values[1:2]})
    kind = {"Content-Type": TYPES["arrow"]}
    found.append(client.post(f"{URL}/query?explain=true", content=alone, headers=kind).json())
    told = [each["explain"].get("unknown_names") for each in found]
    assert told == [None, ["colour", "smell"], ["colour"], None, ["colour", "smell"]]
    wrong = arrow(
        {"names": pa.array([["body"], ["colour", "body"]]), "values": pa.array([[1.0], [0.0, 0.0]])}
    )
    answer = client.post(f"{URL}/query/batch", content=wrong)
    assert_problem(answer, 422, "invalid_vector", "query 1", "non-zero")


def test_a_query_of_unknown_names_alone_shares_nothing_and_is_scored_exactly(
    client: Client,
) -> None:
    client.put(f"{URL}/names", json={"names": FOUR})
    vector = {"names": ["colour", "smell"]}
    assert hits(client, vector, min_score=0.01) == []
    found = hits(client, vector, limit=3)
    assert [(hit["id"], hit["score"]) for hit in found] == [("7", 0), ("a", 0), ("b", 0)]
    batch = {"queries": [{"vector": vector, "limit": 1}, {"id": "a", "limit": 1}]}
    told = client.post(f"{URL}/query/batch", json=batch).json()["results"]
    assert [one["hits"][0]["id"] for one in told] == ["7", "c"]
    bad = client.post(f"{URL}/query", json={"vector": {**vector, "values": [1, 1e39]}})
    assert_problem(bad, 422, "invalid_vector", "finite")
    client.post(f"{URL}/backends", json={"kind": "rff"})
    body = {"vector": {"names": ["colour", "body"]}}
    answer = client.post(f"{URL}/query", json={**body, "backend": "rff"})
    assert_problem(answer, 422, "invalid_parameter", "backend", "unknown names", "'rff'")
    answer = client.post(f"{URL}/query", json={**body, "rerank": "none"})
    assert_problem(answer, 422, "invalid_parameter", "rerank", "unknown names")
    assert client.post(f"{URL}/query", json={**body, "backend": "gcws"}).status_code == 200


def test_no_names_without_replace_take_those_of_no_items_away(serve: Serve) -> None:
    client = serve()
    names = ["acid", "body", "sweet", "bitter"]
    assert client.put(URL, json={"dim": 4}).status_code == 201
    for is_there in (False, True):
        assert client.put(f"{URL}/names", json={"names": names}).status_code == 200
        assert client.put(f"{URL}/names", json={"names": [], "replace": False}).status_code == 200
        assert [*named(client)] == (names if is_there else [])
        put(client, {"id": "a", "vector": [1, 2, 3, 4]})
    assert client.put(f"{URL}/names", json={"names": []}).status_code == 200
    assert named(client) == {}


def test_a_first_frame_that_is_refused_leaves_others_their_names(tmp_path: Path) -> None:
    """One client names a collection and fails after another has counted on its names."""
    frame = pd.DataFrame({"acid": [1.0, 2.0], "body": [2.0, 1.0]})
    with listening(tmp_path) as port, gcws_search.connect(f"http://127.0.0.1:{port}") as server:
        first, second = server.collection("teas", dim=2), server.collection("teas")
        place = first.place
        assert isinstance(place, RemoteCollection)
        naming = run(place.take_names([*frame]))
        other = second.place
        assert isinstance(other, RemoteCollection)
        theirs = run(other.take_names([*frame][::-1]))
        run(place.settle_names([*frame], naming))
        assert first.names() == {}
        second.add(frame.to_numpy())
        run(other.settle_names([*frame], theirs))
        assert [*first.names().values()] == [*frame]
        run(place.settle_names([*frame], naming))
        assert [*first.names().values()] == [*frame]
