"""What is refused, in which words: vectors wherever they are sent, and bodies of every route."""

import json
from collections.abc import Callable
from typing import Final

import pytest

from tests.support.service.bodies import ndjson, packed
from tests.support.service.client import FOUR, URL, VECTOR, Client, Json, assert_problem
from tests.support.service.routes import GUARDED, SENT

pytestmark = pytest.mark.served(front="all", cluster="one")

GOOD: Final[Json] = {"id": "g", "vector": [1, 2, 3, 4]}


def state(client: Client) -> Json:
    """Return what no refused request may change."""
    shown = client.get(URL).json()
    names = [each["name"] for each in client.get("/v1/collections").json()["collections"]]
    return names, client.get(f"{URL}/items?with_vector=true").json(), shown["metadata"], [
        each["name"] for each in shown["backends"]
    ], client.get(f"{URL}/names").json()  # fmt: skip


def ask(client: Client, method: str, url: str, body: Json) -> Json:
    """Send JSON as Python writes it, NaN and infinities included."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "x-ndjson" if url.partition("?")[0].endswith(("/load", "/join")) else "json"
    headers = {"Content-Type": f"application/{kind}"}
    return client.request(method, url, content=content, headers=headers)


# Vectors


VECTORS: Final[list[tuple[Json, ...]]] = [
    ([1, 2, 3], "4 values", "got 3"),
    ([0, 0, 0, 0], "zero"),
    ([1, 2, float("nan"), 4], "[2]", "finite"),
    ([1, 2, "3", 4], "[2]", "'3'"),
    ([1, True, 3, 4], "[1]", "true"),
    ([1, None, 3, 4], "[1]", "null"),
    ([[1, 2, 3, 4]], "[0]", "a list of 4"),
    ({"indices": [1, 1], "values": [1, 2]}, "indices", "twice"),
    ({"indices": [-1], "values": [1]}, "indices[0]", "-1"),
    ({"indices": [2**70], "values": [1]}, "indices"),
    ({"indices": [1.5], "values": [1]}, "indices[0]", "1.5"),
    ({"indices": [1, 2], "values": [1]}, "2 indices", "1 value"),
    ({"indices": [1], "values": [0]}, "zero"),
    ({"indices": []}, "zero"),
    ({"values": [1]}, "indices"),
    (
        {"indices": [1], "values": [1], "dim": 4},
        "unknown field 'dim'; expected one of indices, values",
    ),
    ({"names": ["body", "body"]}, "names[1]", "'body' twice"),
    ({"names": ["body"], "values": [1, 2]}, "as many names as values", "1 name, 2 values"),
    ({"names": ["body"], "values": [float("nan")]}, "finite"),
    ({"names": ["body", 7]}, "names[1]", "a string", "7"),
    ({"names": "body"}, "names", "a list"),
    ({"names": ["body"], "values": ["1"]}, "values[0]", "a number"),
    ({"names": ["body"], "indices": [1]}, "indices"),
    ({"names": ["x" * 256]}, "names[0]", "1 to 255", "256"),
    ({"names": [""]}, "names[0]", "1 to 255"),
    (packed([1, 2, 3]), "expected 4 values, got 3"),
    (packed([1, 2, 3, float("nan")]), "finite"),
    (packed([0, 0, 0, 0]), "zero"),
    ({"base64": "AAA="}, "4 bytes for each number, got 2 bytes"),
    ({"base64": "?"}, "expected base64 of float32 numbers"),
    ({"base64": 5}, "expected base64 of float32 numbers, got 5"),
    ({"base64": "AAAA", "names": ["a"]}, "unknown field"),
]
"""What no collection of dim 4 takes for a vector, and what is said of it."""
PLACES: Final[dict[str, tuple[str, Callable[[Json], Json], list[Json]]]] = {
    "query": ("POST /query", lambda vector: {"vector": vector}, ["vector"]),
    "batch": (
        "POST /query/batch", lambda vector: {"queries": [{"id": "a"}, {"vector": vector}]},
        ["queries", 1, "vector"],
    ),
    "item": (
        "PUT /items", lambda vector: {"items": [{"id": "x", "vector": vector}]},
        ["items", 0, "vector"],
    ),
    "items": (
        "PUT /items", lambda vector: {"items": [GOOD, {"id": "x", "vector": vector}]},
        ["items", 1, "vector"],
    ),
    **{
        path: (
            f"POST /{path}", lambda vector: ndjson(GOOD, {"id": "x", "vector": vector}),
            ["rows", 1, "vector"],
        )
        for path in ("load", "join?limit=1")
    },
    "explain": (
        "POST /explain", lambda vector: {"a": {"id": "a"}, "b": {"vector": vector}},
        ["b", "vector"],
    ),
    "map": ("POST /map", lambda vector: {"also": ["a", vector]}, ["also", 1]),
    "sketch": ("POST /sketch", lambda vector: {"vectors": [VECTOR, vector]}, ["vectors", 1]),
    "compare": ("POST /compare", lambda vector: {"queries": [VECTOR, vector]}, ["queries", 1]),
}  # fmt: skip
"""Where vectors are sent: method and path, the body, and the place of the vector in it."""


@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_vector_is_refused_at_its_place_wherever_it_is_sent(
    client: Client, place: str
) -> None:
    (method, path), body, loc = PLACES[place][0].split(), *PLACES[place][1:]
    for number, (vector, *words) in enumerate([({"names": ["body"]}, "has no names"), *VECTORS]):
        if number == 1:
            assert client.put(f"{URL}/names", json={"names": FOUR}).status_code == 200
            before = state(client)
        answer = ask(client, method, f"{URL}{path}", body(vector))
        problem = assert_problem(answer, 422, "invalid_vector", *words)
        assert problem["errors"][0]["loc"][: len(loc)] == loc, vector
    assert state(client) == before


# Bodies and parameters

LIKE: Final[Json] = {"vector": VECTOR}
CHANGE: Final[Json] = {"payload": {"x": 1}}
BEYOND, LAST_VERSION = (2**63, 10**26), str(2**63 - 1)
"""Versions that no item can have, and the last one that it can."""
TWO: Final[Json] = {"a": {"id": "a"}, "b": {"id": "a"}}
SIMILAR: Final[Json] = {"a": [1], "b": [1]}
UNKNOWN: Final[Json] = {"names": ["colour"], "values": [0]}
PICTURE: Final[Json] = {"width": 2, "height": 2}
CODES: Final = {
    "parameter": "invalid_parameter", "filter": "invalid_filter", "vector": "invalid_vector",
    "id": "invalid_id", "payload": "invalid_payload", "404": "item_not_found",
    "backend": "backend_not_found",
}  # fmt: skip


def item(**more: Json) -> Json:
    return {"items": [GOOD, {**GOOD, "id": "x", **more}]}


REFUSED: Final[dict[str, list[tuple[Json, ...]]]] = {
    "PUT /items": [
        ({"items": [GOOD, {"id": "x"}]}, "vector", "item 1", "vector"),
        (item(vector=None), "vector", "item 1", "null"),
        (item(vector="1,2"), "vector", "item 1", "a list of numbers, or"),
        (item(id=""), "id", "item 1", "0 characters"),
        (item(id="x" * 256), "id", "item 1", "256"),
        (item(id=1.0), "id", "item 1", "1.0"),
        (item(id=True), "id", "item 1", "true"),
        (item(payload=[1]), "payload", "item 1", "payload", "an object"),
        (item(payload={"a": [float("nan")]}), "payload", "item 1", "payload"),
        (item(tags=[]), "parameter", "item 1", "tags"),
        (item(if_version=-1), "parameter", "item 1", "if_version"),
        (item(if_version="2"), "parameter", "item 1", "if_version"),
        (item(if_version=1.5), "parameter", "item 1", "if_version"),
        *((item(if_version=each), "parameter", "if_version", LAST_VERSION) for each in BEYOND),
        ({"items": [GOOD, LIKE | {"if_version": 0}]}, "parameter", "item 1", "if_version"),
        ({"items": [GOOD, GOOD | {"if_version": 0}]}, "parameter", "item 0", "id"),
        *(
            ({"items": [GOOD], **more}, "parameter", word)
            for more, word in (
                ({"mode": "unless_similar"}, "min_score"),
                ({"min_score": 0.5}, "min_score"),
                ({"mode": "insert", "recall": 0.5}, "recall"),
                ({"mode": "unless_similar", "min_score": 0}, "min_score"),
                ({"mode": "unless_similar", "min_score": 0.5, "recall": 1.5}, "recall"),
                ({"mode": "unless_equal"}, "mode"),
            )
        ),
        ({"items": [GOOD, "x"]}, "parameter", "item 1", "an object"),
    ],
    "POST /items/delete": [
        ({}, "parameter", "neither"),
        ({"ids": ["a"], "filter": {}}, "parameter", "both"),
        ({"ids": "a"}, "id", "ids"),
        ({"ids": ["a", ""]}, "id", "ids[1]"),
        ({"ids": [1.5]}, "id", "ids[0]"),
        ({"filter": {}}, "filter", "at least one condition"),
        ({"filter": {"must": [{"should": []}]}}, "filter", "at least one condition"),
        ({"filter": {"must": [{"key": "label"}]}}, "filter", "filter"),
    ],
    "PATCH /items": [
        (CHANGE, "parameter", "neither"),
        (CHANGE | {"ids": ["a"], "filter": {}}, "parameter", "both"),
        (CHANGE | {"filter": {}}, "filter", "condition"),
        (CHANGE | {"filter": {"must": []}}, "filter", "condition"),
        (CHANGE | {"ids": ["a"], "if_version": 1}, "parameter", "if_version"),
    ],
    "PATCH /items/a": [
        ({}, "payload", "payload"),
        ({"payload": None}, "parameter", "merge"),
        ({"payload": [1]}, "payload", "payload"),
        (CHANGE | {"merge": "yes"}, "parameter", "merge"),
        (CHANGE | {"ids": ["a"]}, "id", "ids"),
        (CHANGE | {"if_version": 0}, "parameter", "if_version"),
        (CHANGE | {"if_version": True}, "parameter", "if_version"),
        *((CHANGE | {"if_version": n}, "parameter", "if_version", LAST_VERSION) for n in BEYOND),
    ],
    "PATCH /items/nobody": [(CHANGE, "404", "nobody")],
    "GET /items": [
        ("ids=a&filter={}", "parameter", "both"),
        ("filter={", "filter", "filter: expected a filter as JSON"),
        ('filter={"must": [{"key": "a"}]}', "filter", "filter.must[0]"),
        ("ids=", "id", "ids"),
        ("ids=a,,b", "id", "ids"),
        ("ids=" + "x" * 256, "id", "ids"),
        ("ids=" + ",".join("a" * 10_001), "parameter", "ids: expected at most 10000"),
        ("limit=0", "parameter", "limit"),
        ("limit=x", "parameter", "limit"),
        ("limit=2.0", "parameter", "limit: expected an integer, got '2.0'"),
        ("limit=99999999", "parameter", "limit"),
        ("limt=3", "parameter", "'limt'; expected one of limit, cursor, with_vector, filter, ids"),
        ("q=", "parameter", "q"),
        ("q=a&cursor=1", "parameter", "one of 'q' and 'cursor'", "both"),
        ("q=a&filter={}", "parameter", "one of 'q' and 'filter'", "both"),
        ("q=a&ids=a", "parameter", "one of 'q' and 'ids'", "both"),
        ("q=a&limit=99999999", "parameter", "limit"),
        ("cursor=%21%21", "parameter", "cursor"),
        ("with_vector=maybe", "parameter", "with_vector"),
    ],
    "GET /items/a": [("limit=1", "parameter", "limit: expected no")],
    **{
        f"DELETE /items/a?{query}": [(None, "parameter", query.partition("=")[0])]
        for query in ("mode=soft", "if_version=0", "if_version=x", "version=1",
                      "if_version=1.0", "if_version=%201", "if_version=%2B1",
                      *(f"if_version={each}" for each in BEYOND))
    },
    "PUT /items?mode=insert": [({"items": [GOOD]}, "parameter", "mode")],
    "POST /query": [
        ({}, "parameter", "neither"),
        ({"vector": VECTOR, "id": "a"}, "parameter", "both"),
        ({"vector": 3}, "vector", "vector", "a list of numbers, or", "3"),
        ({"vector": UNKNOWN}, "vector", "non-zero"),
        ({"id": 1.5}, "id", "id", "1.5"),
        ({"id": "no"}, "404", "'no'"),
        (LIKE | {"limit": 0}, "parameter", "limit", "at least 1"),
        (LIKE | {"limit": 10**9}, "parameter", "limit", "at most"),
        (LIKE | {"limit": True}, "parameter", "limit", "true"),
        (LIKE | {"offset": -1}, "parameter", "offset", "at least 0"),
        (LIKE | {"offset": 99_991}, "parameter", "at most 100000 together with 'limit'", "100001"),
        (LIKE | {"recall": 0}, "parameter", "recall"),
        (LIKE | {"recall": 1.1}, "parameter", "recall", "1.1"),
        (LIKE | {"recall": float("nan")}, "parameter", "recall"),
        (LIKE | {"min_score": -0.1}, "parameter", "min_score"),
        (LIKE | {"guarantee": "sworn"}, "parameter", "guarantee", "'proven'"),
        (LIKE | {"rerank": "l2"}, "parameter", "rerank", "'gmm'"),
        (LIKE | {"explain": 1}, "parameter", "explain", "true or false"),
        (
            LIKE | {"limt": 3}, "parameter",
            "unknown field 'limt'; expected one of limit, offset, recall, min_score, score, "
            "guarantee, with_payload, with_vector, backend, rerank, candidates, explain",
        ),
        (LIKE | {"filter": [1]}, "filter", "filter", "a list of 1"),
        (LIKE | {"filter": {"key": "a", "match": {"value": float("nan")}}}, "filter", "filter"),
        (LIKE | {"backend": "nrff"}, "backend", "nrff"),
        ([VECTOR], "parameter", "an object"),
        *(
            (LIKE | {"group_by": "shop.name"} | more, "parameter", word)
            for more, word in (
                ({"group_by": ""}, "group_by"),
                ({"group_by": None, "group_size": 0}, "group_size"),
                ({"group_by": 3}, "group_by"),
                ({"group_size": 0}, "group_size"),
                ({"group_size": 10**6}, "group_size"),
                ({"offset": 3}, "offset"),
                ({"cursor": True}, "cursor"),
            )
        ),
    ],
    "POST /query/batch": [
        ({"queries": [LIKE | {"group_by": "shop.name"}]}, "parameter", "groups"),
        ({"queries": [LIKE, {"ids": "a"}]}, "id", "query 1: unknown field 'ids'; "),
        ({"queries": [LIKE], "on_error": "ignore"}, "parameter", "on_error"),
    ],
    "POST /query/batch?limit=3": [({"queries": []}, "parameter", "limit")],
    "POST /pairs": [
        ({}, "parameter", "min_score"),
        ({"min_score": 0}, "parameter", "min_score"),
        ({"min_score": 1.5}, "parameter", "min_score"),
        ({"min_score": 0.5, "limit": 0}, "parameter", "limit"),
        ({"min_score": 0.5, "recall": 0}, "parameter", "recall"),
    ],
    "POST /groups": [
        ({}, "parameter", "min_score"),
        ({"min_score": 0}, "parameter", "min_score"),
        ({"min_score": 1.5}, "parameter", "min_score"),
        ({"min_score": 0.5, "recall": 0}, "parameter", "recall"),
        ({"min_score": 0.5, "mode": "stars"}, "parameter", "mode"),
        ({"min_score": 0.5, "keep": ""}, "parameter", "keep"),
        ({"min_score": 0.5, "keep": None}, "parameter", "keep"),
        ({"min_score": 0.5, "limit": 3}, "parameter", "limit"),
        ({"min_score": 0.5, "filter": {"most": []}}, "filter", "most"),
    ],
    "POST /count": [
        ({"filter": {"must": 3}}, "filter", "filter.must"),
    ],
    "POST /explain": [
        ({"a": {"id": "a"}}, "vector", "b"),
        (TWO | {"b": {}}, "parameter", "b", "neither"),
        (TWO | {"a": {"id": "a", "vector": VECTOR}}, "parameter", "a", "both"),
        (TWO | {"b": {"id": "nobody"}}, "404", "nobody"),
        (TWO | {"limit": 0}, "parameter", "limit"),
        (TWO | {"limit": 4097}, "parameter", "limit", "4096"),
    ],
    "POST /map": [
        ({"sample": 0}, "parameter", "sample", "1 to 20000"),
        ({"landmarks": 1}, "parameter", "landmarks", "2 to 1024"),
        ({"seed": -1}, "parameter", "seed"),
        ({"key": ""}, "parameter", "key"),
        ({"filter": {"most": []}}, "filter", "filter"),
        ({"also": ["a"] * 1001}, "parameter", "also", "at most 1000"),
        ({"also": ["a", "nobody"]}, "404", "nobody"),
        ({"also": [True]}, "id", "also[0]"),
        ({"also": [""]}, "id", "also[0]"),
        ({"also": "a"}, "parameter", "also"),
    ],
    "POST /profile": [
        ({"sample": 0}, "parameter", "sample", "1 to 10000"),
        ({"seed": -1}, "parameter", "seed"),
    ],
    "POST /sketch": [
        ({}, "vector", "vectors"),
        ({"vectors": [VECTOR], "encoding": "2_bit"}, "parameter", "encoding"),
        ({"vectors": [VECTOR, UNKNOWN]}, "vector", "vector 1", "non-zero"),
    ],
    "POST /compare": [
        ({"sample": 0}, "parameter", "sample", "at least 1"),
        ({"sample": 10**9}, "parameter", "sample", "at most"),
        ({"queries": []}, "parameter", "queries", "at least one"),
        ({"queries": [VECTOR, UNKNOWN]}, "vector", "query 1", "non-zero"),
        ({"queries": [VECTOR], "sample": 2}, "parameter", "'queries' and 'sample'"),
        ({"sample": 2, "recall": 0}, "parameter", "recall"),
        ({"sample": 2, "limit": 0}, "parameter", "limit"),
        ({"sample": 2, "seed": -1}, "parameter", "seed"),
        ({"backends": []}, "parameter", "backends", "at least one name"),
        ({"backends": ["rff"]}, "backend", "rff"),
    ],
    "POST /v1/similarity": [
        ({"a": [1, 2]}, "vector", "b", "expected a value"),
        ({"a": {"x": 1, "y": "2"}, "b": [1, 2]}, "vector", "a: expected", "'names'", "'x', 'y'"),
        ({"a": [1, 2], "b": [1]}, "vector", "b", "2 values"),
        ({"a": [0, 0], "b": [1, 1]}, "vector", "a", "zero"),
        ({"a": [1, 2], "b": {"indices": [2], "values": [1]}}, "vector", "b.indices[0]"),
        ({"a": {"names": ["x"]}, "b": [1]}, "vector", "names in both"),
        ({"a": {"names": ["x"]}, "b": {"names": ["x", "x"]}}, "vector", "b.names[1]", "'x' twice"),
        (SIMILAR | {"kernel": "l2"}, "parameter", "kernel", "'gmm'"),
        (SIMILAR | {"params": {"gamma": 1}}, "parameter", "params", "gamma"),
        *(
            (SIMILAR | {"kernel": kernel, "params": params}, "parameter", *words)
            for kernel, params, *words in (
                ("rbf", {"gamma": -1}, "params.gamma", "-1"),
                ("folded_rbf", {"gamma": 1e7}, "params.gamma", "above 0, at most 1e+06"),
                ("laplace", {"scale": 0}, "params.scale", "above 0, at most 1e+09"),
                ("gaussian", {"gamma": 1}, "params", "scale", "gamma"),
                ("polya", {"distribution": "cauchy"}, "params.distribution", "half_normal"),
                ("polya", {"distribution": "nakagami", "shape": 0.4}, "shape", "0.5 to 1e+06"),
                ("polya", {"shape": [2]}, "params.shape", "a number above 0"),
            )
        ),
    ],
    "PUT /names": [
        ({"names": ["a", "b", "c", "d", "e"]}, "parameter", "at most 4", "5"),
        ({"names": ["a", "b", "a"]}, "parameter", "names[2]", "'a' twice"),
        ({"names": ["a", ""]}, "parameter", "names[1]", "1 to 255", "0"),
        ({"names": ["x" * 256]}, "parameter", "names[0]", "1 to 255", "256"),
        ({"names": ["a", 3]}, "parameter", "names[1]", "a string", "3"),
        ({"names": "a"}, "parameter", "names", "a list"),
    ],
    "GET /names": [
        *(
            (query, "parameter", query.partition("=")[0])
            for query in ("limit=0", "limit=x", "limit=10001", "indices=", "indices=a", "name=a",
                          "indices=-1", "indices=1,,2", "indices=1&prefix=a", "indices=99999999999")
        ),
    ],
    "GET /curve": [
        ("limit=5&limit=7", "parameter", "limit: expected one value, got 2 values"),
        *((query, "parameter", query.partition("=")[0])
          for query in ("limit=0", "limit=x", "limit=100001", "recall=1")),
    ],
    "POST /backends": [
        ({"kind": "hnsw"}, "parameter", "kind", "'nrff'"),
        ({}, "parameter", "kind"),
        ({"kind": "nrff", "name": ""}, "parameter", "name"),
        ({"kind": "nrff", "name": "a/b"}, "parameter", "name"),
        ({"kind": "nrff", "params": 3}, "parameter", "params", "an object"),
        ({"kind": "gmm_nystroem"}, "parameter", "params.landmarks", "1 to 4", "256"),
    ],
    "POST /transform/fit": [
        ({"weights": "tfidf"}, "parameter", "weights: expected 'idf', 'standard'", "'tfidf'"),
        ({"weights": [1, 2, 3]}, "parameter", "weights: expected 4 values", "3 values"),
        ({"weights": [1, 0, 1, 1]}, "parameter", "weights[1]: expected a number above 0", "0.0"),
        ({"weights": [1, 1, -2, 1]}, "parameter", "weights[2]", "-2.0"),
        ({"weights": [1, 1, 1, "x"]}, "parameter", "weights[3]: expected a number", "'x'"),
        ({"weights": 3}, "parameter", "weights: expected a list"),
        ({"weight": "idf"}, "parameter", "unknown field 'weight'; expected one of weights"),
        ({}, "parameter", "weights: expected 'idf'", "the collection has no weights"),
    ],
    "PUT /v1/collections/other": [
        *(
            ({"dim": dim, "transform": transform}, "parameter", f"transform.{place}", *words)
            for dim, transform, place, *words in (
                (2, {"weights": [1, 0]}, "weights[1]", "a number above 0"),
                (2, {"weights": [1]}, "weights", "2 values", "1 value"),
                (2, {"weights": "x"}, "weights: expected 'idf'", "'x'"),
                (None, {"weights": [1, 2]}, "weights", "dim is at most 4096"),
                (None, {"weights": "robust"}, "weights", "dim is at most 4096"),
                (2, {"weights": "max", "center": [1, 2]}, "center", "learned ('max')"),
            )
        ),
        ({}, "parameter", "dim", "expected a value"),
        ({"dim": 0}, "parameter", "dim", "got 0"),
        ({"dim": 2**31}, "parameter", "dim"),
        ({"dim": True}, "parameter", "dim", "an integer", "true"),
        ({"dim": 4, "storage": "disk"}, "parameter", "storage", "disk"),
        ({"dim": 4, "transform": {"power": 0}}, "parameter", "transform.power"),
        ({"dim": 4, "transform": {"normalize": "max"}}, "parameter", "transform.normalize", "'l1'"),
        ({"dim": 4, "transform": {"center": [1, 2]}}, "parameter", "transform.center", "4 values"),
        ({"dim": None, "transform": {"center": [1, 2]}}, "parameter", "transform.center"),
        ({"dim": 4, "backend": {"kind": "hnsw"}}, "parameter", "backend", "'gcws' or 'exact'"),
        ({"dim": 4, "backend": "gcws"}, "parameter", "backend"),
        (
            {"dim": 4, "backend": {"param": {}}}, "parameter",
            "backend: unknown field 'param'; expected one of kind, params",
        ),
        ([], "parameter", "an object"),
        *(
            (body, "parameter", word)
            for body, word in (
                ({"dim": 4, "text": {}}, "dim"),
                ({"text": {"tokens": "letters"}}, "text.tokens"),
                ({"text": {"ngrams": [2, 1]}}, "text.ngrams"),
                ({"text": {"ngrams": [0, 1]}}, "text.ngrams"),
                ({"text": {"ngrams": [1, 17]}}, "text.ngrams"),
                ({"text": {"ngrams": [1]}}, "text.ngrams"),
                ({"text": {"weights": "tf"}}, "text.weights"),
                ({"text": {"stop_words": [1]}}, "text.stop_words"),
                ({"text": {"tokens": "characters", "stop_words": ["a"]}}, "text.stop_words"),
                ({"text": {"words": 1}}, "words"),
                ({"text": "words"}, "text"),
            )
        ),
        ({"text": {"stop_words": [*map(str, range(10_001))]}}, "parameter", "stop_words", "10001"),
    ],
    "PATCH ": [
        ({}, "parameter", "metadata"),
        *(
            ({"metadata": metadata}, "parameter", *words)
            for metadata, *words in (
                ([1], "metadata: expected an object", "a list of 1"),
                ({"text": "x" * (1 << 16)}, "metadata: expected at most 65536 bytes"),
                ({"view": []}, "metadata.view: expected an object"),
            )
        ),
        *(
            ({"metadata": {"view": view}}, "parameter", *words)
            for view, *words in (
                ({"headline": "x"}, "'headline'", "title, text, smiles, url, color, image"),
                ({"title": 3}, "metadata.view.title: expected a string", "3"),
                ({"color": ""}, "metadata.view.color"),
                ({"image": {"width": 4}}, "metadata.view.image.height", "got none"),
                ({"image": PICTURE | {"width": 0}}, "image.width: expected at least 1"),
                ({"image": PICTURE | {"width": 2.5}}, "image.width: expected an integer"),
                (
                    {"image": PICTURE | {"width": 3}}, "3 × 2 × 1",
                    "metadata.view.image: expected width × height × channels to be dim, 4",
                ),
                ({"image": PICTURE | {"channels": 2}}, "channels: expected 1, 3"),
                (
                    {"image": PICTURE | {"range": [1, 1]}},
                    "image.range: expected two numbers, the smaller first, got [1.0, 1.0]",
                ),
                ({"image": PICTURE | {"range": [1]}}, "image.range"),
            )
        ),
    ],
}  # fmt: skip
"""By method and path, below the collection's: a body or query, the kind of fault, and words."""
BACKENDS: Final[list[tuple[Json, ...]]] = [
    ("nrff", {"gamma": 0}, "gamma", "above 0"),
    ("rbf_nystroem", {"gamma": 1e7}, "gamma", "at most 1e+06"),
    ("folded_rff", {"features": 0}, "features", "1 to 16384"),
    ("nrff", {"features": 2.5}, "features", "an integer"),
    ("nrff", {"feature": 2}, "unknown field 'feature'; expected one of features, gamma, seed"),
    ("random_binning", {"distribution": "cauchy"}, "distribution", "'weibull'", "'cauchy'"),
    ("random_binning", {"distribution": "nakagami", "shape": 0.4}, "shape", "0.5 to 1e+06"),
    ("random_binning", {"distribution": "rayleigh", "shape": 1}, "shape", "null"),
    ("random_binning", {"scale": 0}, "scale", "above 0"),
    ("random_binning", {"bands": 257}, "bands", "1 to 256"),
    ("gmm_nystroem", {"landmarks": 0}, "landmarks", "1 to 4096"),
    ("gmm_nystroem", {"gamma": 1.0}, "'gamma'", "landmarks, seed"),
    ("gcws", {"bits": 17}, "bits", "1 to 16"),
    ("exact", {"seed": 1}, "unknown field 'seed'; expected none"),
    ("rff", {"seed": -1}, "seed", "0 to 2^63 - 1"),
]
for _kind, _params, *_words in BACKENDS:
    _backend = {"kind": _kind, "params": _params}
    REFUSED["POST /backends"].append((_backend, "parameter", "params", *_words))
    REFUSED["PUT /v1/collections/other"].append(
        ({"dim": 4, "backend": _backend}, "parameter", "backend.params", *_words)
    )


@pytest.mark.parametrize("route", REFUSED)
def test_what_is_refused_is_told_by_its_place_and_changes_nothing(
    client: Client, route: str
) -> None:
    method, _, path = route.partition(" ")
    url = path if path.startswith("/v1") else f"{URL}{path}"
    client.put(f"{URL}/names", json={"names": FOUR})
    client.request("PATCH", URL, json={"metadata": {"good": 1}})
    before = state(client)
    for sent, kind, *words in REFUSED[route]:
        asked = f"{url}?{sent}" if method == "GET" else url
        answer = ask(client, method, asked, b"" if method in ("GET", "DELETE") else sent)
        status = 404 if kind in ("404", "backend") else 422
        assert_problem(answer, status, CODES[kind], *words)
    assert state(client) == before


@pytest.mark.parametrize("number", ["1e400", "-1e39", "9" * 400, "nan"])
def test_numbers_that_are_none_are_refused(client: Client, number: str) -> None:
    """As text, for no library writes them so."""
    put = client.put(f"{URL}/items", content=f'{{"items": [{{"vector": [1, 2, {number}, 4]}}]}}')
    asked = client.post(f"{URL}/query", content=f'{{"vector": [1, 2, {number}, 4]}}')
    for answer, place in ((put, "item 0"), (asked, "vector")):
        if number == "nan":
            assert_problem(answer, 400, "malformed_body")
        else:
            assert_problem(answer, 422, "invalid_vector", place, "[2]", "finite")


def test_a_byte_order_mark_of_utf_8_is_skipped_and_other_encodings_are_named(
    client: Client,
) -> None:
    """As RFC 8259 allows; programs of Windows write both."""
    blanks = " " * 300_000  # a long body is read in pieces
    sent = {
        "PUT /items": '{"items": [{"id": "marked", "vector": [1, 2, 3, 4]}]}',
        "PUT /items?": f'{{"items": [{{"id": "marked", "vector": [1, 2, 3, 4]}}]{blanks}}}',
        "POST /query": '{"vector": [1, 2, 3, 4]}',
        "POST /query/batch": '{"queries": [{"vector": [1, 2, 3, 4]}]}',
        "POST /load": '{"id": "marked", "vector": [1, 2, 3, 4]}\n',
        "POST /join?limit=1": '{"vector": [1, 2, 3, 4]}\n',
    }
    for route, text in sent.items():
        method, path = route.split()
        for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-32-be"):
            answer = ask(client, method, f"{URL}{path}", text.encode(encoding))
            if encoding == "utf-8-sig":
                assert answer.status_code == 200, (route, answer.text)
            else:
                assert_problem(answer, 400, "malformed_body", "UTF-8", encoding.upper())


MALFORMED: Final = (
    b"", b"{", b"[", b'{"items": [', b"items", b'{"items": []} x', b"\xff\xfe", b"NaN,",
    b'{"items": [1,]}', b'{"vector": [1, 2', b'{"vector": [1,,2]}',
    b'{"items": [{"id": "\\ud800", "vector": [1]}]}', b'{"a":' * 5000 + b"1" + b"}" * 5000,
)  # fmt: skip


def test_a_body_that_is_no_json_is_malformed_on_every_route(client: Client) -> None:
    for route in REFUSED:
        method, _, path = route.partition(" ")
        if method in ("GET", "DELETE") or "?" in path:
            continue
        url = path if path.startswith("/v1") else f"{URL}{path}"
        for body in MALFORMED:
            if body or not path.endswith(("/map", "/profile", "/other", "/compare", "/fit")):
                assert_problem(ask(client, method, url, body), 400, "malformed_body")
    whole = json.dumps({"items": [GOOD]}).encode()
    for length in range(len(whole)):
        assert client.put(f"{URL}/items", content=whole[:length]).status_code == 400


def test_a_collection_that_is_none_is_not_found_on_any_route(client: Client) -> None:
    for method, path in GUARDED:
        creates = (method, path) == ("PUT", "/v1/collections/{name}")
        if "{name}" in path and "snapshots" not in path and not creates:
            url = path.replace("{name}", "nowhere").replace("{item_id:any_text}", "a")
            body = {"metadata": {}} if method == "PATCH" else SENT.get(path)
            if "items" in path and method == "PATCH":
                body = {"payload": {}, **({"ids": ["a"]} if path.endswith("items") else {})}
            answer = client.request(method, url.replace("{backend}", "b"), json=body)
            assert_problem(answer, 404, "collection_not_found", "nowhere")
