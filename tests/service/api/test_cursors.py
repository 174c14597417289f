"""Pages of a ranking by cursor: no hit twice, none left out, whatever is written meanwhile."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

import numpy as np
import orjson
import pytest

from gcws_search import index as ix
from tests.support.index.policies import FEW_ROWS
from tests.support.reference.kernels import gmm_of_rows
from tests.support.service.client import Client, Json, Serve, assert_problem

pytestmark = pytest.mark.served(front="one", cluster="one")

URL = "/v1/collections/pages"
ROWS = 90


@pytest.fixture
def rows(client: Client, rng: np.random.Generator) -> np.ndarray:
    """Store rows many of which tie, in a collection of three numbers."""
    made = rng.integers(1, 5, size=(ROWS, 3)).astype(float)
    assert client.put(URL, json={"dim": 3}).status_code == 201
    items = [
        {"id": f"i{number}", "vector": row, "payload": {"n": number}}
        for number, row in enumerate(made.tolist())
    ]
    client.put(f"{URL}/items", json={"items": items})
    return made


def ranking(rows: dict[str, np.ndarray], query: np.ndarray) -> list[str]:
    scores = {each: float(gmm_of_rows(query[None], row[None])[0]) for each, row in rows.items()}
    return sorted(scores, key=lambda each: (-round(scores[each], 12), each))


def page(client: Client, cursor: Json, **asked: Json) -> Json:
    answer = client.post(f"{URL}/query", json=asked | {"cursor": cursor})
    assert answer.status_code == 200, answer.text
    return answer.json()


def with_hits_seen(cursor: str, seen: int) -> str:
    """Return a cursor that claims another number of hits on the pages before."""
    mark, _, *last = orjson.loads(urlsafe_b64decode(cursor))
    return urlsafe_b64encode(orjson.dumps([mark, seen, *last])).decode()


@pytest.mark.parametrize("limit", [7, 45, 90, 200])
def test_pages_are_the_whole_ranking(client: Client, rows: np.ndarray, limit: int) -> None:
    query = np.array([2.0, 3.5, 1])
    found: list[str] = []
    cursor: Json = True
    pages = 0
    asked = {"vector": query.tolist(), "limit": limit, "recall": 1, "score": "bray_curtis"}
    while cursor:
        answer = page(client, cursor, **asked)
        found += [hit["id"] for hit in answer["hits"]]
        assert all(hit["payload"] == {"n": int(hit["id"][1:])} for hit in answer["hits"])
        cursor, pages = answer.get("cursor"), pages + 1
    assert found == ranking({f"i{number}": row for number, row in enumerate(rows)}, query)
    assert pages == -(-ROWS // limit)


def test_no_hit_comes_twice_and_none_is_left_out_while_others_write(
    client: Client, rows: np.ndarray, rng: np.random.Generator
) -> None:
    query = np.array([2.0, 3.5, 1])
    stored = {f"i{number}": row for number, row in enumerate(rows)}
    throughout = {*stored}
    found: list[str] = []
    cursor: Json = True
    while cursor:
        answer = page(client, cursor, vector=query.tolist(), limit=8, recall=1)
        found += [hit["id"] for hit in answer["hits"]]
        cursor = answer.get("cursor")
        new = {f"n{len(found)}-{number}": query + rng.random(3) for number in range(5)}
        items = [{"id": each, "vector": row.tolist()} for each, row in new.items()]
        client.put(f"{URL}/items", json={"items": items})
        gone = str(rng.choice(sorted(throughout)))
        client.delete(f"{URL}/items/{gone}")
        throughout.discard(gone)
    assert len(found) == len({*found})
    order = ranking({each: stored[each] for each in throughout}, query)
    assert [each for each in found if each in throughout] == order


@pytest.mark.usefixtures("rows")
def test_a_cursor_belongs_to_its_query_and_collection(client: Client) -> None:
    asked: Json = {"vector": [2, 3.5, 1], "limit": 5}
    cursor = page(client, True, **asked)["cursor"]
    assert page(client, cursor, **asked | {"limit": 9})["hits"]
    assert "cursor" not in page(client, False, **asked)
    wrong: list[Json] = [
        {"vector": [2, 3.5, 2]},
        {"recall": 0.8},
        {"filter": {"must": {"key": "n", "range": {"lt": 5}}}},
        {"offset": 5},
        {"cursor": "bm9uc2Vuc2U="},
        {"cursor": "ü"},
        {"cursor": 7},
        *({"cursor": with_hits_seen(cursor, seen)} for seen in (-6, 0, 2**64 - 1)),
    ]
    for more in wrong:
        answer = client.post(f"{URL}/query", json={**asked, "cursor": cursor, **more})
        assert_problem(answer, 422, "invalid_parameter", "offset" if "offset" in more else "cursor")
    other = "/v1/collections/others"
    assert client.put(other, json={"dim": 3}).status_code == 201
    answer = client.post(f"{other}/query", json=asked | {"cursor": cursor})
    assert_problem(answer, 422, "invalid_parameter", "cursor")
    batch = {"queries": [{**asked, "cursor": True}]}
    assert_problem(client.post(f"{URL}/query/batch", json=batch), 422, "invalid_parameter")


@pytest.mark.parametrize("dim", [None, 4])
def test_pages_go_on_when_others_store_or_remove_a_name_of_the_query(
    client: Client, dim: int | None
) -> None:
    assert client.put(URL, json={"dim": dim}).status_code == 201
    if dim is not None:
        assert client.put(f"{URL}/names", json={"names": ["a", "b"]}).status_code == 200
    items = [
        {"id": f"i{n}", "vector": {"names": ["a", "b"], "values": [1, 1 + n]}} for n in range(9)
    ]
    assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
    asked: Json = {"vector": {"names": ["new", "a"], "values": [1, 2]}, "limit": 3, "recall": 1}
    first = page(client, True, **asked)
    if dim is not None:
        client.put(f"{URL}/names", json={"names": ["a", "b", "new"]})
    item = {"id": "new", "vector": {"names": ["new"]}}
    assert client.put(f"{URL}/items", json={"items": [item]}).status_code == 200
    second = page(client, first["cursor"], **asked)
    assert client.delete(f"{URL}/items/new").status_code == 204
    client.finish_background_work("pages")
    third = page(client, second["cursor"], **asked)
    hits = first["hits"] + second["hits"] + third["hits"]
    assert [hit["id"] for hit in hits] == [f"i{n}" for n in range(9)]
    other = {"vector": {"names": ["new", "a"], "values": [1, 3]}}
    answer = client.post(f"{URL}/query", json=asked | other | {"cursor": first["cursor"]})
    assert_problem(answer, 422, "invalid_parameter", "cursor")


def test_pages_have_all_of_thousands_of_equal_items_at_any_recall(serve: Serve) -> None:
    client = serve(policies=FEW_ROWS)
    assert client.put(URL, json={"dim": 3}).status_code == 201
    vectors = [[2, 1, 1]] * 3 + [[1, 1, 1]] * 5000
    items = [{"id": f"i{number}", "vector": vector} for number, vector in enumerate(vectors)]
    assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
    client.finish_background_work("pages")
    found: list[str] = []
    cursor: Json = True
    while cursor:
        answer = page(client, cursor, vector=[2, 1, 1], limit=900)
        found += [hit["id"] for hit in answer["hits"]]
        cursor = answer.get("cursor")
    assert found[:3] == ["i0", "i1", "i2"]
    assert found[3:] == sorted(f"i{number}" for number in range(3, 5003))


def test_a_page_that_begins_or_ends_within_equal_scores_has_all_of_them(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of them a search below a recall of 1 misses."""
    search = ix.StoredCollection.search
    missed = ix.parse_filter({"must": {"key": "missed", "exists": False}})

    def miss(self: ix.StoredCollection, *asked: Json, **more: Json) -> Json:
        if asked[1].recall < 1:
            more["where"] = missed
        return search(self, *asked, **more)

    monkeypatch.setattr(ix.StoredCollection, "search", miss)
    assert client.put(URL, json={"dim": 2}).status_code == 201
    vectors = [[1, 1]] * 15 + [[1, 2 + n] for n in range(20)]
    items: list[Json] = [{"id": f"i{n:02}", "vector": vector} for n, vector in enumerate(vectors)]
    items[5]["payload"] = items[12]["payload"] = {"missed": True}
    assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
    first = page(client, True, vector=[1, 1], limit=10)
    second = page(client, first["cursor"], vector=[1, 1], limit=10)
    found = [hit["id"] for hit in (*first["hits"], *second["hits"])]
    assert found == [f"i{n:02}" for n in range(20)]


def test_pages_say_where_they_end_before_the_ranking(serve: Serve) -> None:
    """A server that permits 20 hits shows them in pages, and does not pass for having no more."""
    client = serve(max_limit=20)
    assert client.put(URL, json={"dim": 1}).status_code == 201
    items = [{"id": f"i{number:02}", "vector": [number + 1]} for number in range(30)]
    client.put(f"{URL}/items", json={"items": items})
    asked: Json = {"vector": [1], "limit": 8, "recall": 1}
    cursor: Json = True
    found = list[str]()
    for expected in (8, 8, 4):
        answer = page(client, cursor, **asked)
        assert len(answer["hits"]) == expected
        found += [hit["id"] for hit in answer["hits"]]
        cursor = answer["cursor"]
    assert found == [f"i{number:02}" for number in range(20)]
    refused = client.post(f"{URL}/query", json=asked | {"cursor": cursor})
    assert_problem(refused, 422, "invalid_parameter", "first 20 hits")
