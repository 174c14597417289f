"""Collections of texts, against scores of sets and counts of their tokens."""

import json
import re
from collections import Counter
from math import log

import httpx
import pyarrow as pa
import pytest

from tests.support.service.bodies import ARROW, arrow
from tests.support.service.client import Client, Json, Serve, assert_problem

pytestmark = pytest.mark.served(front="one", cluster="one")

URL = "/v1/collections/texts"
ITEMS = f"{URL}/items"
TEXTS = {
    "a": "A library for numbers, and a tool for large tables of numbers",
    "b": "A library for numbers and a tool for tables",
    "c": "Ein Werkzeug für große Tabellen",
    "d": "Werkzeug ÜBER große Tabellen; Tabellen",
}
CONFIG: Json = {"text": {"tokens": "words", "weights": "counts"}}


def tokens(text: str) -> Counter[str]:
    """Return how often a text has each word."""
    return Counter(re.findall(r"\w+", text.lower()))


def score(a: str, b: str) -> float:
    """Return the weighted Jaccard similarity of the words of two texts."""
    one, other = tokens(a), tokens(b)
    return (one & other).total() / (one | other).total()


def put_all(client: Client) -> None:
    assert client.put(URL, json=CONFIG).status_code == 201
    items: list[Json] = [{"id": key, "text": text} for key, text in TEXTS.items()]
    items[0]["payload"] = {"n": 1}
    answer = client.put(ITEMS, json={"items": items})
    assert answer.json() == {"inserted": 4, "updated": 0}, answer.text


@pytest.fixture
def texts(client: Client) -> Client:
    put_all(client)
    return client


def hits(client: Client, body: Json) -> list[Json]:
    answer = client.post(f"{URL}/query", json={"recall": 1, "min_score": 0.01, **body})
    assert answer.status_code == 200, answer.text
    found: list[Json] = answer.json()["hits"]
    return found


def check_scores(client: Client, text: str, found: list[Json], skip: str = "") -> None:
    expected = {key: score(text, each) for key, each in TEXTS.items() if key != skip}
    expected = {key: value for key, value in expected.items() if value}
    assert {hit["id"]: hit["score"] for hit in found} == pytest.approx(expected)


def test_a_text_finds_texts_by_their_words(texts: Client) -> None:
    query = "große TABELLEN, Tabellen a library"
    found = hits(texts, {"text": query})
    check_scores(texts, query, found)
    for hit in found:
        assert hit["text"] == TEXTS[hit["id"]]
        assert hit["payload"] == ({"n": 1} if hit["id"] == "a" else None)
    check_scores(texts, TEXTS["d"], hits(texts, {"id": "d"}), skip="d")
    bare = hits(texts, {"text": query, "with_payload": False})
    assert {*bare[0]} == {"id", "score"}
    batch: Json = {"queries": [{"text": text, "recall": 1, "min_score": 0.01} for text in TEXTS]}
    batch["queries"] = [{**one, "text": TEXTS[one["text"]]} for one in batch["queries"]]
    for text, answer in zip(
        TEXTS.values(), texts.post(f"{URL}/query/batch", json=batch).json()["results"], strict=True
    ):
        check_scores(texts, text, answer["hits"])
    page = hits(texts, {"text": query, "offset": 1, "limit": 1})
    assert page[0]["text"] == TEXTS[page[0]["id"]]
    long = "große " * 20_000
    assert hits(texts, {"text": long, "min_score": 0})[0]["id"] in "cd"


def test_an_item_shows_its_text_beside_its_payload(texts: Client) -> None:
    shown = texts.get(f"{ITEMS}/a").json()
    assert (shown["text"], shown["payload"]) == (TEXTS["a"], {"n": 1})
    assert sorted(shown["vector"]["values"]) == sorted(tokens(TEXTS["a"]).values())
    page = texts.get(ITEMS).json()["items"]
    assert {each["id"]: (each["text"], each["payload"]) for each in page} == {
        key: (text, {"n": 1} if key == "a" else None) for key, text in TEXTS.items()
    }
    found = texts.get(ITEMS, params={"q": "werkzeug ü"}).json()["items"]
    assert [(each["id"], each["text"]) for each in found] == [("d", TEXTS["d"])]
    where = {"must": [{"key": "text", "match": {"value": TEXTS["b"]}}]}
    assert texts.post(f"{URL}/count", json={"filter": where}).json() == {"count": 1}
    described = texts.get(URL).json()
    assert described["dim"] is None
    assert described["text"] == {
        "tokens": "words",
        "ngrams": [1, 1],
        "weights": "counts",
        "lowercase": True,
        "stop_words": [],
    }
    assert texts.put(URL, json=CONFIG).status_code == 200
    other = {"text": {**CONFIG["text"], "ngrams": [1, 2]}}
    assert_problem(texts.put(URL, json=other), 409, "collection_exists", "ngrams")
    assert_problem(texts.put(URL, json={"dim": None}), 409, "collection_exists", "text")


def test_explain_names_coordinates_by_their_tokens(texts: Client) -> None:
    query = "a tool and große Sachen"
    for a, b in (
        ({"id": "a"}, {"id": "b"}),
        ({"id": "b"}, {"text": query}),
        ({"text": query}, {"id": "d"}),
    ):
        answer = texts.post(f"{URL}/explain", json={"a": a, "b": b})
        assert answer.status_code == 200, answer.text
        one, other = (tokens(each.get("text") or TEXTS[each["id"]]) for each in (a, b))
        coordinates = answer.json()["coordinates"]
        assert {each["name"]: (each["a"], each["b"]) for each in coordinates} == {
            word: (one[word], other[word]) for word in one | other
        }


@pytest.mark.one_process
def test_a_copy_in_other_letters_is_not_stored_where_texts_are_lowercased(texts: Client) -> None:
    body = {"items": [{"id": "copy", "text": TEXTS["b"].upper()}], "mode": "unless_similar"}
    told = texts.put(ITEMS, json={**body, "min_score": 0.98, "recall": 1}).json()
    assert [(each["id"], each["to"], each["score"]) for each in told["similar"]] == [
        ("copy", "b", 1.0)
    ]


def test_a_load_takes_texts_line_by_line(texts: Client) -> None:
    lines: list[Json] = [
        {"id": "e", "text": "new text", "payload": {"n": 5}},
        {"id": "f", "text": " … "},
        {"id": "g", "vector": {"indices": [1]}},
        {"id": "h", "text": "x", "payload": {"text": "y"}},
        {"id": "a", "text": "other text"},
        {"text": "without an id"},
    ]
    body = "\n".join(map(json.dumps, lines)).encode()
    answer = texts.post(f"{URL}/load?on_error=skip", content=body)
    told = answer.json()
    assert (told["inserted"], told["updated"], told["rejected_count"]) == (2, 1, 3), told
    places = [(each["row"], each["code"]) for each in told["rejected"]]
    assert places == [(1, "invalid_vector"), (2, "invalid_vector"), (3, "invalid_payload")]
    assert "row 1: " in told["rejected"][0]["detail"]
    shown = texts.get(f"{ITEMS}/a").json()
    assert (shown["text"], shown["payload"]) == ("other text", None)
    assert [hit["id"] for hit in hits(texts, {"text": "text new", "min_score": 1})] == ["e"]
    keep = texts.post(f"{URL}/load?payloads=keep", content=body)
    assert_problem(keep, 422, "invalid_parameter", "payloads")


def test_changes_of_payloads_keep_texts(texts: Client) -> None:
    for change, payload in (
        ({"payload": {"m": 2}}, {"n": 1, "m": 2}),
        ({"payload": {"k": 3}, "merge": False}, {"k": 3}),
        ({"payload": None, "merge": False}, None),
        ({"payload": {"n": '…"}{'}}, {"n": '…"}{'}),
    ):
        answer = texts.request("PATCH", f"{ITEMS}/a", json=change)
        assert answer.json() == {"updated": 1}, answer.text
        shown = texts.get(f"{ITEMS}/a").json()
        assert (shown["text"], shown["payload"]) == (TEXTS["a"], payload)
    for merge in (True, False):
        bad = {"payload": {"text": "x"}, "merge": merge, "ids": ["b"]}
        assert_problem(texts.request("PATCH", ITEMS, json=bad), 422, "invalid_payload", "text")
    assert texts.get(f"{ITEMS}/b").json()["text"] == TEXTS["b"]


def test_texts_stand_in_lists_of_vectors(texts: Client) -> None:
    asked: Json = {"queries": [{"text": "Tabellen a library"}, {"text": TEXTS["c"]}], "limit": 1}
    best = [max(score(each["text"], text) for text in TEXTS.values()) for each in asked["queries"]]
    answer = texts.post(f"{URL}/compare", json=asked)
    assert answer.json()["mean_similarity"] == pytest.approx(best), answer.text
    also = [{"text": TEXTS["d"]}, "d"]
    shown = texts.post(f"{URL}/map", json={"also": also}).json()
    neighbours, scores = (shown["also"][word] for word in ("neighbours", "scores"))
    found = {shown["ids"][row]: each for row, each in zip(neighbours[0], scores[0], strict=True)}
    assert found == pytest.approx({key: score(TEXTS["d"], each) for key, each in TEXTS.items()})
    assert "d" not in {shown["ids"][row] for row in neighbours[1]}
    sketches = [{"text": TEXTS["a"]}, {"text": "d"}, {"text": TEXTS["a"].swapcase()}]
    slots = texts.post(f"{URL}/sketch", json={"vectors": sketches}).json()["slots"]
    assert slots[0] == slots[2] != slots[1]
    padded = [{"text": each["text"] + " " * 2**19} for each in sketches]
    assert texts.post(f"{URL}/sketch", json={"vectors": padded}).json()["slots"] == slots
    assert texts.put("/v1/collections/plain", json={"dim": 2}).status_code == 201
    for path, word, number in (
        ("map", "also", 1),
        ("sketch", "vectors", 0),
        ("compare", "queries", 0),
    ):
        for url, bad in (
            ("/v1/collections/plain", {"text": "a"}),
            (URL, {"text": 5}),
            (URL, {"text": "…"}),
            (URL, {"text": "a", "values": [1]}),
        ):
            body = {word: [bad] if number == 0 else [[1, 2] if url != URL else {"text": "a"}, bad]}
            answer = texts.post(f"{url}/{path}", json=body)
            assert_problem(answer, 422, "invalid_vector", str(number))


def test_vectors_of_texts_and_texts_of_vectors_are_refused(texts: Client) -> None:
    before = texts.get(ITEMS).text
    sparse = {"indices": [1, 2], "values": [1, 1]}
    vectors: list[Json] = [[1.0, 2.0], sparse, {"names": ["a"]}, {"base64": "zczMPQ=="}]
    for vector in vectors:
        for path, body, place in (
            ("/items", {"items": [{"id": "x", "text": "fine"}, {"id": "y", "vector": vector}]}, 1),
            ("/query", {"vector": vector}, None),
            ("/query/batch", {"queries": [{"text": "a"}, {"vector": vector}]}, 1),
            ("/explain", {"a": {"id": "a"}, "b": {"vector": vector}}, None),
            ("/map", {"also": [vector]}, 0),
            ("/sketch", {"vectors": [vector]}, 0),
            ("/compare", {"queries": [vector]}, 0),
        ):
            method = "PUT" if path == "/items" else "POST"
            answer = texts.request(method, f"{URL}{path}", json=body)
            words = ["`text`"] if place is None else ["`text`", f" {place}" if place else ""]
            assert_problem(answer, 422, "invalid_vector", *words)
    wrong: list[tuple[Json, str]] = [
        ({"id": "x", "text": "a", "vector": sparse}, "both"),
        ({"id": "x"}, "neither"),
        ({"id": "x", "text": ""}, "word"),
        ({"id": "x", "text": 5}, "string"),
        ({"id": "x", "text": None}, "string"),
        ({"id": "x", "text": "a", "payload": {"text": "b"}}, "text"),
    ]
    for item, word in wrong:
        answer = texts.put(ITEMS, json={"items": [{"id": "z", "text": "z"}, item]})
        assert answer.status_code == 422, answer.text
        assert word in answer.json()["detail"], answer.text
        assert "1" in answer.json()["detail"]
    long = "a" * 2**21
    bodies: list[Json] = [{"text": "a", "id": "b"}, {"text": "…"}, {"text": 5}, {"text": long}]
    for body in bodies:
        assert texts.post(f"{URL}/query", json=body).status_code == 422
    half = b'{"text": "half of a pair: \\ud800"}'
    for method, url, sent, kind in (
        ("POST", f"{URL}/query", half, "json"),
        ("PUT", ITEMS, b'{"items": [' + half + b"]}", "json"),
        ("POST", f"{URL}/load", half, "x-ndjson"),
    ):
        headers = {"Content-Type": f"application/{kind}"}
        assert texts.request(method, url, content=sent, headers=headers).status_code == 400
    assert texts.get(ITEMS).text == before
    assert texts.put("/v1/collections/vectors", json={"dim": 2}).status_code == 201
    plain = "/v1/collections/vectors"
    answer = texts.put(f"{plain}/items", json={"items": [{"id": "x", "text": "a"}]})
    assert_problem(answer, 422, "invalid_vector", "a text")
    assert_problem(texts.post(f"{plain}/query", json={"text": "a"}), 422, "invalid_vector")


def test_idf_weighs_words_by_the_items_that_have_them(client: Client) -> None:
    assert client.put(URL, json={"text": {"weights": "idf"}}).status_code == 201
    items = [{"id": key, "text": text} for key, text in TEXTS.items()]
    assert client.put(ITEMS, json={"items": items}).status_code == 200
    assert client.post(f"{URL}/transform/fit", json={}).status_code == 200
    bodies = {"a": {"text": "tables numbers numbers"}, "b": {"id": "a"}}
    shares = client.post(f"{URL}/explain", json=bodies).json()["coordinates"]
    weights = {"tables": log(5 / 3) + 1, "numbers": 2 * (log(5 / 3) + 1)}
    found = {each["name"]: each["a"] for each in shares if each["a"]}
    assert found == pytest.approx(weights, rel=1e-6)
    other = {"weights": "max"}
    assert_problem(client.post(f"{URL}/transform/fit", json=other), 422, "invalid_parameter")


@pytest.mark.one_process
def test_texts_are_there_after_a_restart(serve: Serve) -> None:
    client = serve()
    put_all(client)
    before = client.get(ITEMS).text, client.get(URL).json()["text"]
    client.stop()
    again = serve()
    assert (again.get(ITEMS).text, again.get(URL).json()["text"]) == before
    check_scores(again, TEXTS["c"], hits(again, {"text": TEXTS["c"]}))


def load(client: Client, body: bytes, query: str = "") -> httpx.Response:
    return client.post(f"{URL}/load{query}", content=body, headers=ARROW)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_texts_come_as_arrow(client: Client, kind: Json) -> None:
    assert client.put(URL, json=CONFIG).status_code == 201
    columns = {
        "id": [*TEXTS],
        "text": pa.array([*TEXTS.values()], pa.string()).cast(kind),
        "payload": ['{"n": 1}', None, None, None],
    }
    answer = load(client, arrow(columns)).json()
    assert answer.get("inserted") == 4, answer
    shown = client.get(f"{ITEMS}/a").json()
    assert (shown["text"], shown["payload"]) == (TEXTS["a"], {"n": 1})
    for text in TEXTS.values():
        check_scores(client, text, hits(client, {"text": text}))
    asked = arrow({"text": pa.array([*TEXTS.values()], pa.string()).cast(kind)})
    answer = client.post(f"{URL}/query/batch?limit=1&recall=1", content=asked, headers=ARROW)
    assert answer.status_code == 200, answer.text
    assert [each["hits"][0]["id"] for each in answer.json()["results"]] == [*TEXTS]
    joined = client.post(f"{URL}/join?min_score=1&recall=1", content=asked, headers=ARROW)
    rows = [json.loads(line) for line in joined.text.splitlines()][:-1]
    assert [each["to"] for each in rows] == [*TEXTS]


def test_bad_texts_of_arrow_are_named(client: Client) -> None:
    assert client.put(URL, json=CONFIG).status_code == 201
    columns = {"id": [*"abcd"], "text": ["one", None, "two", ""]}
    answer = load(client, arrow(columns), "?on_error=skip").json()
    assert answer.get("rejected"), answer
    assert (answer["inserted"], [each["row"] for each in answer["rejected"]]) == (2, [1, 3])
    for wrong in (
        {"id": ["e"], "text": [3]},
        {"id": ["e"], "text": ["x"], "vector": [[1.0]]},
        {"id": ["e"], "text": ["x"], "values": [[1.0]]},
        {"id": ["e"], "vector": pa.array([[1.0]])},
    ):
        assert load(client, arrow(wrong)).status_code == 422
    plain = "/v1/collections/plain"
    assert client.put(plain, json={"dim": 2}).status_code == 201
    answer = client.post(f"{plain}/load", content=arrow(columns), headers=ARROW)
    assert answer.status_code == 422
    assert "text" in answer.json()["detail"]
