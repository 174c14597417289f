"""Groups of near-duplicates, against those of a matrix of all scores."""

import json
from itertools import product

import numpy as np
import pytest

from tests.support.reference.kernels import gmm_of_rows
from tests.support.service.bodies import sparse
from tests.support.service.client import Client, Json

pytestmark = pytest.mark.served(cluster="one")

URL = "/v1/collections/copies"
MIN = 0.8
ROWS = 70
WORDS = ["", "b", "a", "c"]


def made_rows(rng: np.random.Generator) -> np.ndarray:
    """Return signed rows: single ones, near-copies in chains, and equal ones."""
    base = rng.integers(-4, 5, size=(20, 8)).astype(float)
    base[:, 0] = rng.integers(1, 5, size=20)
    near = base[rng.integers(20, size=40)]
    near[np.arange(40), rng.integers(8, size=40)] += 1
    return np.concatenate([base, near, base[:5], near[:5]])


def payload(number: int) -> Json:
    """Return numbers, texts, or nothing under one key."""
    kind = number % 4
    if kind == 3:
        return {"colour": number % 2}
    return {"length": number % 7 if kind else WORDS[number % 3], "colour": number % 2}


def preference(rows: np.ndarray, keep: str, number: int) -> tuple[object, ...]:
    """Return what sorts items by how willingly they are kept, equal ones as they were put."""
    if keep == "longest":
        return -abs(rows[number]).sum(), number
    value = payload(number).get("length") if keep == "length" else None
    if isinstance(value, str):
        return 1, *(-ord(letter) for letter in value + "\0"), number
    return (2, number) if value is None else (0, -value, number)


def expected_groups(rows: np.ndarray, shown: list[int], mode: str, keep: str) -> Json:
    """Return members of each group by representative, as a matrix of scores tells."""
    near = {
        a: [b for b in shown if gmm_of_rows(rows[a : a + 1], rows[b : b + 1])[0] >= MIN]
        for a in shown
    }
    owners: dict[int, int] = {}
    for first in sorted(shown, key=lambda number: preference(rows, keep, number)):
        waiting = [] if first in owners else [first]
        owners.setdefault(first, first)
        while waiting:
            new = [each for each in near[waiting.pop()] if each not in owners]
            owners |= dict.fromkeys(new, first)
            waiting += new if mode == "components" else []
    groups: dict[int, set[int]] = {}
    for member, owner in owners.items():
        groups.setdefault(owner, set()).add(member)
    return {owner: members for owner, members in groups.items() if len(members) > 1}


def grouped(client: Client, **asked: Json) -> tuple[list[Json], Json]:
    """Return the groups of an answer, and its last line."""
    answer = client.post(f"{URL}/groups", json={"min_score": MIN, "recall": 1, **asked})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    *groups, last = map(json.loads, answer.text.splitlines())
    return groups, last


@pytest.mark.parametrize("dim", [8, None], ids=["dense", "sparse"])
def test_groups_are_those_of_a_matrix_of_scores(
    client: Client, rng: np.random.Generator, dim: int | None
) -> None:
    rows = made_rows(rng)
    assert client.put(URL, json={"dim": dim}).status_code == 201
    vectors: list[Json] = rows.tolist() if dim else [*map(sparse, rows)]
    for number, vector in enumerate(vectors):  # one by one: the shards give keys in this order
        item = {"id": f"i{number}", "vector": vector, "payload": payload(number)}
        client.put(f"{URL}/items", json={"items": [item]})
    client.delete(f"{URL}/items/i0")
    for mode, keep, colour in product(
        ["components", "leaders"], ["first", "longest", "length"], [None, 1]
    ):
        shown = [each for each in range(1, ROWS) if colour is None or each % 2 == colour]
        condition = {"must": {"key": "colour", "match": {"value": colour}}}
        more = {} if colour is None else {"filter": condition}
        groups, last = grouped(client, mode=mode, keep=keep, **more)
        expected = expected_groups(rows, shown, mode, keep)
        found = {}
        for group in groups:
            members = {int(each["id"][1:]): each["score"] for each in group["members"]}
            owner = int(group["representative"][1:])
            found[owner] = {*members}
            assert group["size"] == len(members)
            assert group["members"][0] == {"id": group["representative"], "score": 1}
            order = [(-each["score"], each["id"]) for each in group["members"][1:]]
            assert order == sorted(order)
            for member, score in members.items():
                exact = gmm_of_rows(rows[[owner]], rows[[member]])[0]
                assert score == pytest.approx(exact, abs=1e-12)
            all_scores = [
                gmm_of_rows(rows[[a]], rows[[b]])[0]
                for a in (members if mode == "components" else [owner])
                for b in members
            ]
            weakest = min(score for score in all_scores if score >= MIN)
            assert group["weakest"] == pytest.approx(weakest, abs=1e-12)
        assert found == expected, (mode, keep, colour)
        sizes = [group["size"] for group in groups]
        assert sizes == sorted(sizes, reverse=True)
        assert (last["groups"], last["items"]) == (len(groups), sum(sizes))


def test_copies_of_a_row_are_one_group_however_many(client: Client) -> None:
    """No hash has to find what is equal."""
    assert client.put(URL, json={"dim": 2}).status_code == 201
    items = [{"id": f"i{number}", "vector": [1, -2]} for number in range(1000)]
    client.put(f"{URL}/items", json={"items": [*items, {"id": "z", "vector": [5, 1]}]})
    [group], _ = grouped(client, recall=0.5)
    assert group["size"] == 1000
    assert {each["score"] for each in group["members"]} == {1}


def test_a_collection_without_near_copies_has_no_groups(client: Client) -> None:
    assert client.put(URL, json={"dim": 2}).status_code == 201
    for rows in ([], [[1, 2]], [[-3, 1]]):
        client.put(f"{URL}/items", json={"items": [{"vector": row} for row in rows]})
        groups, last = grouped(client)
        assert not groups
        assert (last["groups"], last["items"]) == (0, 0)


@pytest.mark.served
def test_a_key_that_no_item_has_is_hinted_at(client: Client) -> None:
    assert client.put(URL, json={"dim": 2}).status_code == 201
    items = [{"vector": [1, 2], "payload": {"length": n}} for n in range(2)]
    client.put(f"{URL}/items", json={"items": items})
    groups, last = grouped(client, keep="lenght")
    assert len(groups) == 1
    assert "'length'" in last["hints"][0]
    for keep in ("length", "first", "longest"):
        assert "hints" not in grouped(client, keep=keep)[1]
