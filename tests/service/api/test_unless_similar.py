"""Items that are stored unless one like them is: in order, and among all who write at once."""

import numpy as np
import pytest

from tests.support.reference.kernels import gmm_of_rows
from tests.support.service.bodies import ndjson, sparse
from tests.support.service.client import Client, Json, assert_problem

pytestmark = pytest.mark.served(cluster="all")

URL = "/v1/collections/copies"
MIN = 0.8
MODE = {"mode": "unless_similar", "min_score": MIN, "recall": 1}


def put(client: Client, items: list[Json], **more: Json) -> Json:
    answer = client.put(f"{URL}/items", json={"items": items, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("dim", [6, None], ids=["dense", "sparse"])
def test_an_item_is_stored_unless_one_before_it_is_alike(
    client: Client, rng: np.random.Generator, dim: int | None
) -> None:
    """A dict of what is stored, and a scan for each item, tell what is stored and what is told."""
    assert client.put(URL, json={"dim": dim}).status_code == 201
    base = rng.integers(-3, 4, size=(12, 6)).astype(float)
    base[:, 0] = rng.integers(1, 4, size=12)
    stored: dict[str, np.ndarray] = {}
    similar = 0
    for turn in range(30):
        count = int(rng.integers(1, 40)) if turn % 3 else 1
        rows = base[rng.integers(12, size=count)]
        rows[np.arange(count), rng.integers(6, size=count)] += rng.integers(0, 2, size=count)
        rows[:, 0] = np.maximum(rows[:, 0], 1)
        ids = [f"{turn}-{number}" for number in range(count)]
        vectors = rows.tolist() if dim else [*map(sparse, rows)]
        items = [{"id": each, "vector": vector} for each, vector in zip(ids, vectors, strict=True)]
        answer = put(client, items, **MODE)
        left_out = {each["row"]: each for each in answer["similar"]}
        similar += len(left_out)
        for number, (item_id, row) in enumerate(zip(ids, rows, strict=True)):
            scores = {
                each: float(gmm_of_rows(row[None], other[None])[0])
                for each, other in stored.items()
            }
            before = [scores[each] for each in scores if each not in ids]
            best = max(before, default=0.0)
            if best < MIN:
                best = max(scores.values(), default=0.0)
            assert (number in left_out) == (best >= MIN), (turn, number, best)
            if best < MIN:
                stored[item_id] = row
                continue
            told = left_out[number]
            assert told["id"] == item_id
            assert told["score"] == pytest.approx(best, abs=1e-12)
            assert scores[told["to"]] == pytest.approx(best, abs=1e-12)
        assert answer["inserted"] + len(left_out) == count
        gone = list(stored)[:: int(rng.integers(2, 9))] if turn % 5 == 4 else []
        for each in gone:
            del stored[each]
        assert client.post(f"{URL}/items/delete", json={"ids": gone}).json()["deleted"] == len(gone)
    assert similar > 50
    assert client.get(URL).json()["items"] == len(stored) > 0


def test_copies_sent_at_once_are_stored_once(client: Client) -> None:
    """Eight requests at once: one is told that its item is new, and the others are told of it."""
    assert client.put(URL, json={"dim": 4}).status_code == 201
    for number in range(20):
        items = [
            {"id": f"{sender}-{number}", "vector": [1, -2, 0.5, number]} for sender in range(8)
        ]
        bodies = [{"items": [each], "mode": "unless_similar", "min_score": 1} for each in items]
        answers = client.at_once("PUT", [(f"{URL}/items", body) for body in bodies])
        told = [answer.json() for answer in answers]
        winners = [sender for sender, each in enumerate(told) if each["inserted"]]
        assert len(winners) == 1, told
        others = {each["similar"][0]["to"] for each in told if not each["inserted"]}
        assert others == {f"{winners[0]}-{number}"}
    assert client.get(URL).json()["items"] == 20


def test_items_without_ids_are_numbered_after_those_that_are_left_out(client: Client) -> None:
    assert client.put(URL, json={"dim": 2}).status_code == 201
    rows = [[1, 2], [1, 2], [-5, 1], [1, 2.01], [9, 9]]
    answer = put(client, [{"vector": row} for row in rows], **MODE)
    assert (answer["inserted"], answer["ids"]) == (3, {"first": "0", "last": "2"})
    assert [(each["row"], each["id"], each["to"]) for each in answer["similar"]] == [
        (1, None, "0"),
        (3, None, "0"),
    ]
    again = put(client, [{"vector": row} for row in rows], **MODE)
    assert again["inserted"] == 0
    assert "ids" not in again
    assert [each["to"] for each in again["similar"]] == ["0", "0", "1", "0", "2"]
    more = [{"id": "100", "vector": [1, 2]}, {"id": "x", "vector": [0, -5]}]
    assert put(client, more, **MODE)["inserted"] == 1
    assert put(client, [{"vector": [77, 1]}], **MODE)["ids"] == {"first": "3", "last": "3"}


def test_what_is_replaced_or_deleted_keeps_nothing_out(client: Client) -> None:
    assert client.put(URL, json={"dim": 2}).status_code == 201
    assert put(client, [{"id": "a", "vector": [1, 2]}], **MODE)["inserted"] == 1
    put(client, [{"id": "a", "vector": [-7, 1]}])
    assert put(client, [{"id": "b", "vector": [1, 2]}], **MODE)["inserted"] == 1
    client.delete(f"{URL}/items/b")
    assert put(client, [{"id": "c", "vector": [1, 2]}], **MODE)["inserted"] == 1


@pytest.mark.parametrize("key", [None, "k"])
def test_a_load_stores_what_is_not_like_another(client: Client, key: str | None) -> None:
    """Rows are those of the body; a load that is sent again tells the same."""
    assert client.put(URL, json={"dim": 2}).status_code == 201
    put(client, [{"id": "old", "vector": [9, 1]}])
    rows: list[Json] = [[1, 2], [9, 1.1], "bad", [1, 2], [-5, 1], [-5, 1.01]]
    body = ndjson(*({"vector": row} for row in rows))
    more = {} if key is None else {"Idempotency-Key": key}
    headers = {"Content-Type": "application/x-ndjson", **more}
    url = f"{URL}/load?on_error=skip&mode=unless_similar&min_score=0.9"
    for _ in range(2 if key else 1):
        answer = client.post(url, content=body, headers=headers)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert (told["inserted"], told["rejected_count"], told["similar_count"]) == (2, 1, 3)
        assert told["ids"] == {"first": "0", "last": "1"}
        left_out = [(each["row"], each["id"], each["to"]) for each in told["similar"]]
        assert left_out == [(1, None, "old"), (3, None, "0"), (5, None, "1")]
    capped = client.post(
        f"{url}&max_rejected=1", content=body, headers=headers | {"Idempotency-Key": "z"}
    )
    assert [len(capped.json()["similar"]), capped.json()["similar_count"]] == [1, 5]
    wrong = client.post(f"{URL}/load?min_score=0.9", content=body, headers=headers)
    assert_problem(wrong, 422, "invalid_parameter")
