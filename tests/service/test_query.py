"""Queries, batches, pairs, sketches, similarities."""

import io
import json

import numpy as np
import pytest

from tests.served import ITEMS, Client, Json, Serve, assert_problem, count, fill

URL = "/v1/collections/plants"
VECTOR = [0.1, -2, 0, 3]


def npy(array: Json, version: tuple[int, int] | None = None) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def gmm(u: list[float], v: list[float]) -> float:
    """Σ min / Σ max over the positive and the negative parts."""
    parts = [(max(s * x, 0), max(s * y, 0)) for x, y in zip(u, v, strict=True) for s in (1, -1)]
    return sum(map(min, parts)) / sum(map(max, parts))


def test_hits_come_by_falling_exact_score(client: Client) -> None:
    answer = client.post(f"{URL}/query", json={"vector": VECTOR, "recall": 1}).json()
    dense: list[list[float]] = [[0.1, -2, 0, 3], [0, -2, 0, 2.5], [1, 0, 0, 1], [-1, -1, -1, -1]]
    expected = {i: gmm(VECTOR, v) for i, v in zip("acb7", dense, strict=True)}
    assert [hit["id"] for hit in answer["hits"]] == sorted(expected, key=lambda i: -expected[i])
    for hit in answer["hits"]:
        assert hit["score"] == pytest.approx(expected[hit["id"]], rel=1e-6)
        assert set(hit) == {"id", "score", "payload"}
    assert answer["hits"][0]["payload"] == {"label": 3}
    assert set(answer) == {"hits"}


def test_a_vector_sent_dense_or_sparse_is_the_same(client: Client) -> None:
    sparse = {"indices": [3, 0, 1], "values": [3, 0.1, -2]}
    answers = [client.post(f"{URL}/query", json={"vector": v}).json() for v in (VECTOR, sparse)]
    assert answers[0] == answers[1]


def test_a_stored_item_is_left_out_of_its_own_hits(client: Client) -> None:
    hits = client.post(f"{URL}/query", json={"id": "a", "recall": 1}).json()["hits"]
    assert hits[0]["id"] == "c"
    assert "a" not in [hit["id"] for hit in hits]
    assert_problem(client.post(f"{URL}/query", json={"id": "no"}), 404, "item_not_found", "'no'")


def test_vectors_and_payloads_are_shown_as_asked(client: Client) -> None:
    body = {"vector": VECTOR, "limit": 1, "with_payload": False, "with_vector": True}
    hits = client.post(f"{URL}/query", json=body).json()["hits"]
    assert hits[0].keys() == {"id", "score", "vector"}
    assert hits[0]["vector"] == VECTOR


def test_vectors_are_shown_as_sent_under_a_transform_too(serve: Serve) -> None:
    client = serve()
    fill(client, transform={"power": 0.5, "normalize": "l2"})
    body = {"vector": VECTOR, "limit": 1, "with_vector": True}
    assert client.post(f"{URL}/query", json=body).json()["hits"][0]["vector"] == VECTOR


def test_limit_and_min_score_cut_the_hits(client: Client) -> None:
    body = {"vector": VECTOR, "recall": 1}
    assert len(client.post(f"{URL}/query", json=body | {"limit": 2}).json()["hits"]) == 2
    hits = client.post(f"{URL}/query", json=body | {"min_score": 0.99}).json()["hits"]
    assert [hit["id"] for hit in hits] == ["a"]


def test_a_filter_holds_for_every_hit(client: Client) -> None:
    where = {"must": [{"key": "label", "match": {"value": 3}}]}
    hits = client.post(f"{URL}/query", json={"vector": VECTOR, "filter": where}).json()["hits"]
    assert {hit["id"] for hit in hits} == {"a", "7"}


@pytest.mark.parametrize("guarantee", ["measured", "proven"])
def test_explain_says_what_a_query_cost(client: Client, guarantee: str) -> None:
    body = {"vector": VECTOR, "explain": True, "guarantee": guarantee}
    explained = client.post(f"{URL}/query", json=body).json()["explain"]
    assert set(explained) == {
        "method", "bands", "depth", "candidates", "scored", "beam", "expected_recall", "seconds"
    }  # fmt: skip
    assert explained["seconds"] > 0
    assert explained["expected_recall"] >= 0.9


def test_every_way_of_running_a_search_gives_the_same_answer(serve: Serve) -> None:
    answers = []
    for inline_seconds in (0, 1000):
        client = serve(inline_seconds=inline_seconds)
        fill(client)
        answers.append(client.post(f"{URL}/query", json={"vector": VECTOR}).json())
    assert answers[0] == answers[1]


BAD_QUERIES: list[tuple[Json, str, list[str]]] = [
    ({}, "invalid_parameter", ["neither"]),
    ({"vector": VECTOR, "id": "a"}, "invalid_parameter", ["both"]),
    ({"vector": [1, 2, 3]}, "invalid_vector", ["vector", "4 values", "got 3"]),
    ({"vector": []}, "invalid_vector", ["vector"]),
    ({"vector": [0, 0, 0, 0]}, "invalid_vector", ["vector", "zero"]),
    ({"vector": [1, 2, 3, 1e39]}, "invalid_vector", ["vector[3]", "finite"]),
    ({"vector": [1, 2, 3, "4"]}, "invalid_vector", ["vector[3]", "'4'"]),
    ({"vector": [1, False, 3, 4]}, "invalid_vector", ["vector[1]", "false"]),
    ({"vector": [[1, 2, 3, 4]]}, "invalid_vector", ["vector[0]", "a list of 4"]),
    ({"vector": {"indices": [1, 1], "values": [1, 1]}}, "invalid_vector", ["vector", "twice"]),
    ({"vector": {"indices": [9], "values": [1]}}, "invalid_vector", ["vector.indices[0]", "9"]),
    ({"vector": {"indices": [-1], "values": [1]}}, "invalid_vector", ["vector.indices[0]", "-1"]),
    ({"vector": {"indices": [1], "values": [0]}}, "invalid_vector", ["vector", "zero"]),
    ({"vector": {"indices": [1]}}, "invalid_vector", ["vector.values"]),
    ({"vector": 3}, "invalid_vector", ["vector", "a list of numbers or", "3"]),
    ({"id": 1.5}, "invalid_id", ["id", "1.5"]),
    ({"id": ""}, "invalid_id", ["id"]),
    ({"vector": VECTOR, "limit": 0}, "invalid_parameter", ["limit"]),
    ({"vector": VECTOR, "limit": 10**9}, "invalid_parameter", ["limit", "at most"]),
    ({"vector": VECTOR, "limit": 2.5}, "invalid_parameter", ["limit", "2.5"]),
    ({"vector": VECTOR, "limit": True}, "invalid_parameter", ["limit", "true"]),
    ({"vector": VECTOR, "recall": 0}, "invalid_parameter", ["recall"]),
    ({"vector": VECTOR, "recall": 1.1}, "invalid_parameter", ["recall", "1.1"]),
    ({"vector": VECTOR, "recall": "high"}, "invalid_parameter", ["recall", "'high'"]),
    ({"vector": VECTOR, "min_score": -0.1}, "invalid_parameter", ["min_score"]),
    ({"vector": VECTOR, "guarantee": "sworn"}, "invalid_parameter", ["guarantee", "'proven'"]),
    ({"vector": VECTOR, "rerank": "l2"}, "invalid_parameter", ["rerank", "'gmm'"]),
    ({"vector": VECTOR, "explain": 1}, "invalid_parameter", ["explain", "true or false"]),
    ({"vector": VECTOR, "ef": 3}, "invalid_parameter", ["ef"]),
    ({"vector": VECTOR, "filter": {"must": 3}}, "invalid_filter", ["filter.must"]),
    ({"vector": VECTOR, "filter": [1]}, "invalid_filter", ["filter", "a list of 1"]),
    ([VECTOR], "invalid_parameter", ["an object"]),
]


@pytest.mark.parametrize(("body", "code", "words"), BAD_QUERIES, ids=str)
def test_a_bad_query_is_refused(client: Client, body: Json, code: str, words: list[str]) -> None:
    assert_problem(client.post(f"{URL}/query", json=body), 422, code, *words)


@pytest.mark.parametrize(("body", "code", "words"), BAD_QUERIES[:-1], ids=str)
def test_a_bad_query_of_a_batch_is_named(
    client: Client, body: Json, code: str, words: list[str]
) -> None:
    batch = {"queries": [{"vector": VECTOR}, body]}
    answer = client.post(f"{URL}/query/batch", json=batch)
    problem = assert_problem(answer, 422, code, "query 1", *(w.split(".")[0] for w in words))
    assert problem["errors"][0]["loc"][:2] == ["queries", 1]


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400", "nan"])
def test_a_query_with_numbers_json_cannot_say_is_refused(client: Client, number: str) -> None:
    answer = client.post(f"{URL}/query", content=f'{{"vector": [1, 2, 3, {number}]}}')
    if number == "nan":
        assert_problem(answer, 400, "malformed_body")
    else:
        assert_problem(answer, 422, "invalid_vector", "vector[3]", "finite")
    for field, code in (("recall", "invalid_parameter"), ("filter", "invalid_filter")):
        value = '{"must": [{"key": "a", "match": {"value": NaN}}]}' if field == "filter" else "NaN"
        answer = client.post(f"{URL}/query", content=f'{{"id": "a", "{field}": {value}}}')
        assert_problem(answer, 422, code, field)


@pytest.mark.parametrize("body", [b"", b'{"vector": [1, 2', b"[", b"NaN,", b'{"vector": [1,,2]}'])
def test_a_query_that_is_no_json_is_malformed(client: Client, body: bytes) -> None:
    for path in ("query", "query/batch", "pairs", "sketch"):
        assert_problem(client.post(f"{URL}/{path}", content=body), 400, "malformed_body")
    assert_problem(client.post("/v1/similarity", content=body), 400, "malformed_body")


@pytest.mark.parametrize("path", ["query", "query/batch"])
def test_an_unknown_backend_is_404(client: Client, path: str) -> None:
    query = {"vector": VECTOR, "backend": "nrff"}
    body = query if path == "query" else {"queries": [query]}
    assert_problem(client.post(f"{URL}/{path}", json=body), 404, "backend_not_found", "nrff")


def test_the_primary_backend_may_be_named(client: Client) -> None:
    answers = [
        client.post(f"{URL}/query", json={"vector": VECTOR, "backend": name}).json()
        for name in ("gcws", None)
    ]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("path", ["query", "query/batch", "pairs", "sketch"])
def test_searches_of_an_unknown_collection_are_404(client: Client, path: str) -> None:
    bodies: Json = {
        "query": {"vector": VECTOR}, "query/batch": {"queries": []}, "pairs": {"min_score": 0.5},
        "sketch": {"vectors": []},
    }  # fmt: skip
    answer = client.post(f"/v1/collections/nowhere/{path}", json=bodies[path])
    assert_problem(answer, 404, "collection_not_found", "nowhere")


def test_an_empty_collection_has_no_hits(serve: Serve) -> None:
    client = serve()
    client.put(URL, json={"dim": 4})
    assert client.post(f"{URL}/query", json={"vector": VECTOR}).json() == {"hits": []}
    assert client.post(f"{URL}/pairs", json={"min_score": 0.1}).content == b""


def test_what_only_the_transform_shows_is_named(serve: Serve) -> None:
    client = serve()
    fill(client, transform={"center": [9, 9, 9, 9]})
    nines = [9, 9, 9, 9]
    assert_problem(
        client.post(f"{URL}/query", json={"vector": nines}), 422, "invalid_vector",
        "vector: expected", "after the transform",
    )  # fmt: skip
    batch = {"queries": [{"id": "a"}, {"vector": VECTOR}, {"vector": nines}]}
    answer = client.post(f"{URL}/query/batch", json=batch)
    assert_problem(answer, 422, "invalid_vector", "query 2", "after the transform")
    answer = client.post(
        f"{URL}/query/batch", content=npy(np.full((1, 4), 9.0)),
        headers={"Content-Type": "application/x-npy"},
    )  # fmt: skip
    assert_problem(answer, 422, "invalid_vector", "query 0", "after the transform")


# ---- batches


def test_a_batch_answers_each_query_as_if_alone(client: Client) -> None:
    queries: list[dict[str, Json]] = [
        {"vector": VECTOR},
        {"id": "b", "limit": 2},
        {"vector": {"indices": [3], "values": [1]}, "limit": 1, "with_payload": False},
        {"vector": [1, 1, 1, 1], "filter": {"must": [{"key": "label", "match": {"value": 1}}]}},
        {"vector": [1, 0, 0, 1]},
    ]
    results = client.post(f"{URL}/query/batch", json={"queries": queries}).json()["results"]
    alone = [client.post(f"{URL}/query", json=query).json() for query in queries]
    assert results == alone
    assert client.post(f"{URL}/query/batch", json={"queries": []}).json() == {"results": []}


NPY = {"Content-Type": "application/x-npy"}


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<f2", "<i8", "|i1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_of_queries_answers_as_json_does(client: Client, dtype: str, order: Json) -> None:
    rows = [[1, -2, 0, 3], [1, 0, 0, 1], [-1, -1, -1, -1]]
    body = npy(np.array(rows, dtype=dtype, order=order))
    matrix = client.post(f"{URL}/query/batch?limit=2&recall=1", content=body, headers=NPY).json()
    queries = [{"vector": row, "limit": 2, "recall": 1} for row in rows]
    assert matrix == client.post(f"{URL}/query/batch", json={"queries": queries}).json()


def test_a_matrix_of_no_queries_has_no_answers(client: Client) -> None:
    answer = client.post(f"{URL}/query/batch", content=npy(np.ones((0, 4))), headers=NPY)
    assert answer.json() == {"results": []}


@pytest.mark.parametrize(
    ("url", "array", "status", "code", "words"),
    [
        ("", np.ones((2, 3)), 422, "invalid_vector", ["query 0", "4 values", "got 3"]),
        ("", np.zeros((2, 4)), 422, "invalid_vector", ["query 0", "zero"]),
        (
            "",
            np.array([[1, 1, 1, 1], [1, np.nan, 1, 1]]),
            422,
            "invalid_vector",
            ["query 1", "[1]"],
        ),
        ("", np.full((1, 4), 1e39), 422, "invalid_vector", ["query 0", "finite"]),
        ("", np.ones(4), 422, "invalid_vector", ["two dimensions"]),
        ("", np.ones((1, 4), bool), 422, "invalid_vector", ["floats or integers"]),
        ("", np.ones((1, 4), complex), 422, "invalid_vector", ["floats or integers"]),
        ("?limit=0", np.ones((1, 4)), 422, "invalid_parameter", ["limit"]),
        ("?recall=nan", np.ones((1, 4)), 422, "invalid_parameter", ["recall"]),
        ("?ef=1", np.ones((1, 4)), 422, "invalid_parameter", ["ef"]),
        ("?backend=nrff", np.ones((1, 4)), 404, "backend_not_found", ["nrff"]),
    ],
    ids=str,
)
def test_a_bad_matrix_is_refused(
    client: Client, url: str, array: Json, status: int, code: str, words: list[str]
) -> None:
    answer = client.post(f"{URL}/query/batch{url}", content=npy(array), headers=NPY)
    assert_problem(answer, status, code, *words)


def test_a_truncated_matrix_is_malformed(client: Client) -> None:
    body = npy(np.ones((3, 4)))
    for length in (0, 5, 9, 50, len(body) - 1):
        answer = client.post(f"{URL}/query/batch", content=body[:length], headers=NPY)
        assert_problem(answer, 400, "malformed_body")
    answer = client.post(f"{URL}/query/batch", content=body + b"x", headers=NPY)
    assert_problem(answer, 400, "malformed_body")


def test_url_parameters_are_for_matrices_alone(client: Client) -> None:
    answer = client.post(f"{URL}/query/batch?limit=3", json={"queries": []})
    assert_problem(answer, 422, "invalid_parameter", "limit")


def test_batches_are_bounded(serve: Serve) -> None:
    client = serve(max_queries_per_request=2, max_body_bytes=400)
    fill(client)
    batch = {"queries": [{"id": "a"}] * 3}
    answer = client.post(f"{URL}/query/batch", json=batch)
    assert_problem(answer, 422, "invalid_parameter", "at most 2")
    answer = client.post(f"{URL}/query/batch", content=npy(np.ones((3, 4))), headers=NPY)
    assert_problem(answer, 422, "invalid_parameter", "at most 2")
    answer = client.post(f"{URL}/query/batch", content=npy(np.ones((30, 4))), headers=NPY)
    assert_problem(answer, 413, "body_too_large")
    answer = client.post(f"{URL}/query/batch", content=b"", headers={"Content-Type": "text/csv"})
    assert_problem(answer, 415, "unsupported_media_type", "text/csv")


# ---- pairs, sketches, similarities


def test_pairs_come_one_a_line_most_similar_first(client: Client) -> None:
    answer = client.post(f"{URL}/pairs", json={"min_score": 0.1, "recall": 1})
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert (lines[0]["a"], lines[0]["b"]) == ("a", "c")
    assert lines[0]["score"] == pytest.approx(gmm([0.1, -2, 0, 3], [0, -2, 0, 2.5]))
    assert all(line["a"] < line["b"] for line in lines)
    scores = [line["score"] for line in lines]
    assert scores == sorted(scores, reverse=True)
    limited = client.post(f"{URL}/pairs", json={"min_score": 0.1, "recall": 1, "limit": 1})
    assert limited.text.splitlines() == answer.text.splitlines()[:1]


@pytest.mark.parametrize(
    ("body", "word"),
    [({}, "min_score"), ({"min_score": 0}, "min_score"), ({"min_score": 1.5}, "min_score"),
     ({"min_score": 0.5, "limit": 0}, "limit"), ({"min_score": 0.5, "recall": 0}, "recall"),
     ({"min_score": 0.5, "k": 1}, "k"), ({"min_score": "0.5"}, "min_score")],
)  # fmt: skip
def test_bad_pairs_are_refused(client: Client, body: Json, word: str) -> None:
    assert_problem(client.post(f"{URL}/pairs", json=body), 422, "invalid_parameter", word)


def test_a_sketch_shows_the_samples_of_each_vector(client: Client) -> None:
    vectors = [VECTOR, {"indices": [0, 1, 3], "values": [0.1, -2, 3]}, [1, 0, 0, 1]]
    full = client.post(f"{URL}/sketch", json={"vectors": vectors}).json()
    assert full.keys() == {"slots", "levels"}
    assert full["slots"][0] == full["slots"][1]
    assert full["levels"][0] == full["levels"][1]
    assert set(full["slots"][2]) <= {0, 6}
    zero = client.post(f"{URL}/sketch", json={"vectors": vectors, "encoding": "zero_bit"}).json()
    assert zero["slots"] == zero["codes"] == full["slots"]
    coded = client.post(f"{URL}/sketch", json={"vectors": vectors, "encoding": "b_bit"}).json()
    assert coded == {"codes": [[slot % 256 for slot in row] for row in full["slots"]]}


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({}, "invalid_vector", ["vectors"]),
        ({"vectors": [VECTOR], "encoding": "2_bit"}, "invalid_parameter", ["encoding"]),
        ({"vectors": [VECTOR, [1, 2]]}, "invalid_vector", ["vector 1", "4 values"]),
        ({"vectors": [VECTOR, [0, 0, 0, 0]]}, "invalid_vector", ["vector 1", "zero"]),
        ({"vectors": [VECTOR], "seed": 1}, "invalid_parameter", ["seed"]),
    ],
    ids=str,
)
def test_a_bad_sketch_is_refused(client: Client, body: Json, code: str, words: list[str]) -> None:
    assert_problem(client.post(f"{URL}/sketch", json=body), 422, code, *words)


def test_a_collection_without_hashes_has_no_sketches(serve: Serve) -> None:
    client = serve()
    fill(client, backend={"kind": "exact"})
    answer = client.post(f"{URL}/sketch", json={"vectors": [VECTOR]})
    assert_problem(answer, 422, "invalid_parameter", "gcws")
    assert client.post(f"{URL}/query", json={"vector": VECTOR}).json()["hits"][0]["id"] == "a"


def test_the_similarity_of_two_vectors(client: Client) -> None:
    sparse = {"indices": [1, 3], "values": [-2, 2.5]}
    answer = client.post("/v1/similarity", json={"a": VECTOR, "b": sparse}).json()
    assert answer["score"] == pytest.approx(gmm(VECTOR, [0, -2, 0, 2.5]), rel=1e-6)
    both = {"a": sparse, "b": {"indices": [2_000_000_000], "values": [1]}}
    assert client.post("/v1/similarity", json=both).json() == {"score": 0.0}


def test_the_rbf_kernel_is_of_the_cosine(client: Client) -> None:
    body: dict[str, Json] = {"a": [1, 0], "b": [3, 4], "kernel": "rbf", "params": {"gamma": 2}}
    score = client.post("/v1/similarity", json=body).json()["score"]
    assert score == pytest.approx(np.exp(-2 * (1 - 0.6)), rel=1e-6)
    sparse = {**body, "b": {"indices": [0, 1], "values": [3, 4]}}
    assert client.post("/v1/similarity", json=sparse).json()["score"] == pytest.approx(score)


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"a": [1, 2]}, "invalid_vector", ["b", "expected a value"]),
        ({"a": [1, 2], "b": [1]}, "invalid_vector", ["b", "2 values"]),
        ({"a": [0, 0], "b": [1, 1]}, "invalid_vector", ["a", "zero"]),
        ({"a": [1, 2], "b": {"indices": [2], "values": [1]}}, "invalid_vector", ["b.indices[0]"]),
        ({"a": [1, 2], "b": [1, 1], "kernel": "l2"}, "invalid_parameter", ["kernel", "'gmm'"]),
        ({"a": [1], "b": [1], "params": {"gamma": 1}}, "invalid_parameter", ["params", "gamma"]),
        (
            {"a": [1], "b": [1], "kernel": "rbf", "params": {"gamma": -1}},
            "invalid_parameter", ["params.gamma", "-1"],
        ),
        (
            {"a": [1], "b": [1], "kernel": "rbf", "params": {"gamma": True}},
            "invalid_parameter", ["params.gamma"],
        ),
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_similarity_is_refused(
    client: Client, body: Json, code: str, words: list[str]
) -> None:
    assert_problem(client.post("/v1/similarity", json=body), 422, code, *words)


def test_nothing_is_stored_by_asking(client: Client) -> None:
    assert count(client) == len(ITEMS)
