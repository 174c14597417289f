"""Hits grouped by a key of payloads, against the whole ranking."""

import numpy as np
import pytest

from tests.support.reference.kernels import gmm_of_rows
from tests.support.service.client import Client, Json, Serve

pytestmark = pytest.mark.served(front="one", cluster="one")

URL = "/v1/collections/shops"
ROWS = 120
VALUES: list[Json] = ["a", 1, 1.0, True, False, "1", "", ["a"], ["a", "b"], None, {"x": 1}, [], 2.5]


def value_of(number: int) -> Json:
    """Return what a row has under its key: most rows are of one value."""
    return "a" if number % 3 else VALUES[number // 3 % len(VALUES)]


def group_of(value: Json) -> Json:
    """Return the group of a value, None for none; equal numbers are one, True is not 1."""
    if isinstance(value, list):
        value = value[0] if len(value) == 1 else None
    if isinstance(value, dict) or value is None:
        return None
    return (isinstance(value, bool), value)


@pytest.fixture
def rows(client: Client, rng: np.random.Generator) -> np.ndarray:
    made = rng.integers(1, 9, size=(ROWS, 3)).astype(float)
    made[::3] += 9  # rows of the many values are far from those of the one
    assert client.put(URL, json={"dim": 3}).status_code == 201
    items = [
        {"id": f"i{n}", "vector": row, "payload": {"n": n, "shop": {"name": value_of(n)}}}
        for n, row in enumerate(made.tolist())
    ]
    assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
    return made


def expected(
    rows: np.ndarray, query: list[float], limit: int, size: int, shown: range
) -> list[tuple[str, Json]]:
    """Return ids and groups: the best of each of the best groups."""
    scores = gmm_of_rows(np.tile(query, (ROWS, 1)), rows)
    order = sorted(shown, key=lambda n: (-round(float(scores[n]), 12), f"i{n}"))
    found: dict[Json, list[int]] = {}
    for number in order:
        group = group_of(value_of(number))
        if group is None or (group not in found and len(found) == limit):
            continue
        found.setdefault(group, []).append(number)
    kept = {n: group[1] for group, numbers in found.items() for n in numbers[:size]}
    return [(f"i{n}", kept[n]) for n in order if n in kept]


@pytest.mark.parametrize(("limit", "size"), [(1, 1), (2, 3), (5, 1), (5, 4), (100, 2)])
@pytest.mark.parametrize("with_filter", [False, True])
def test_hits_are_the_best_of_the_best_groups(
    client: Client, rows: np.ndarray, limit: int, size: int, with_filter: bool
) -> None:
    query = [3.0, 4.0, 5.0]
    asked: Json = {"vector": query, "limit": limit, "recall": 1, "group_by": "shop.name"}
    shown = range(ROWS)
    if with_filter:
        asked["filter"] = {"should": [{"key": "n", "range": {"gte": 30}}]}
        shown = range(30, ROWS)
    answer = client.post(f"{URL}/query", json=asked | {"group_size": size})
    assert answer.status_code == 200, answer.text
    hits = answer.json()["hits"]
    found = [(hit["id"], hit["group"]) for hit in hits]
    assert found == expected(rows, query, limit, size, shown)
    assert all(hit["payload"]["n"] == int(hit["id"][1:]) for hit in hits)
    kinds = [(isinstance(hit["group"], bool), hit["group"]) for hit in hits]
    assert len({*kinds}) <= limit
    plain = client.post(f"{URL}/query", json=asked | {"group_size": size, "with_payload": False})
    assert [{**hit, "payload": None} for hit in plain.json()["hits"]] == [
        {**hit, "payload": None} for hit in hits
    ]


def test_a_group_may_be_around_an_item_or_of_no_one(client: Client, rows: np.ndarray) -> None:
    asked: Json = {"id": "i1", "limit": 2, "recall": 1, "group_by": "shop.name", "group_size": 2}
    hits = client.post(f"{URL}/query", json=asked).json()["hits"]
    assert len(hits) == 4
    assert "i1" not in {hit["id"] for hit in hits}
    none = client.post(f"{URL}/query", json=asked | {"group_by": "shop.nam"})
    assert none.json()["hits"] == []


def test_a_group_behind_thousands_of_items_without_the_key_is_found(serve: Serve) -> None:
    client = serve()
    assert client.put(URL, json={"dim": 2}).status_code == 201
    vectors = [[1, 1 + n / 20_000] for n in range(10_500)]
    items: list[Json] = [{"id": f"i{n}", "vector": row} for n, row in enumerate(vectors)]
    items += [{"id": "far", "vector": [1, 9], "payload": {"shop": "a"}}]
    assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
    asked: Json = {"vector": [1, 1], "group_by": "shop", "limit": 3, "recall": 1}
    answer = client.post(f"{URL}/query", json=asked).json()
    assert [(hit["id"], hit["group"]) for hit in answer["hits"]] == [("far", "a")]
    answer = client.post(f"{URL}/query", json=asked | {"group_by": "shpo"}).json()
    assert answer["hits"] == []
    assert answer["hints"] == ["no item has the key 'shpo'; did you mean 'shop'?"]


def test_lists_of_several_values_take_no_place_in_a_group(client: Client) -> None:
    assert client.put(URL, json={"dim": 2}).status_code == 201
    shops: list[Json] = ["a", *[["a", "b"]] * 200, "a", "a"]
    items = [
        {"id": f"i{n}", "vector": [1, 1 + n / 100], "payload": {"shop": shop}}
        for n, shop in enumerate(shops)
    ]
    assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
    asked: Json = {"vector": [1, 1], "limit": 1, "recall": 1, "group_by": "shop", "group_size": 2}
    hits = client.post(f"{URL}/query", json=asked).json()["hits"]
    assert [hit["id"] for hit in hits] == ["i0", "i201"]


def test_long_integers_are_groups_of_their_own(client: Client) -> None:
    """Hashes of 64 bits are often equal once rounded; longer integers are shown so."""
    assert client.put(URL, json={"dim": 2}).status_code == 201
    shops = [2**64 - 1, 2**64 - 2, 10**30, 10**30 + 1]
    items = [
        {"id": f"i{n}", "vector": [1, 1 + n], "payload": {"shop": shops[n % 4]}} for n in range(8)
    ]
    assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
    asked: Json = {"vector": [1, 1], "limit": 4, "recall": 1, "group_by": "shop"}
    for size in (1, 2):
        answer = client.post(f"{URL}/query", json=asked | {"group_size": size})
        assert answer.status_code == 200, answer.text
        found = [(hit["id"], hit["group"]) for hit in answer.json()["hits"]]
        shown = [*shops[:2], 1e30, 1e30]
        assert found == [(f"i{n}", shown[n % 4]) for n in range(4 * size)]
