"""No answer is much longer than the settings permit, whatever it is made of."""

from typing import Final

import numpy as np
import pytest

from tests.support.service.bodies import npy
from tests.support.service.client import Client, Json, Serve, assert_problem

URL: Final = "/v1/collections/plants"
ITEMS: Final = 150
LIMIT: Final = 4000


_HITS: Final = {"with_payload": False}
_PACKED: Final = {"Content-Type": "application/x-npy"}
ONE: Final[dict[str, Json]] = {
    "query": {},
    "query with vectors": {"with_vector": True},
}
BATCHES: Final[dict[str, Json]] = {
    "batch": {},
    "batch of scores": {"min_score": 1e-9},
    "batch with vectors": {"with_vector": True},
}
MATRICES: Final = {"matrix": "", "matrix of scores": "&min_score=0.000001"}
PAGES: Final = {"page": "", "page with vectors": "&with_vector=true"}


def ask(client: Client, kind: str, count: int) -> Json:
    """Ask for an answer that grows with ``count``."""
    vectors = [[1, 2, 3, 4]] * count
    if kind in ONE:
        body = {"id": "item 0", "limit": count, **_HITS, **ONE[kind]}
        return client.post(f"{URL}/query", json=body)
    if kind in BATCHES:
        more = {"limit": count, **_HITS, **BATCHES[kind]}
        queries = [{"vector": vector, **more} for vector in vectors]
        return client.post(f"{URL}/query/batch", json={"queries": queries})
    if kind in MATRICES:
        url = f"{URL}/query/batch?limit={count}&with_payload=false{MATRICES[kind]}"
        return client.post(url, content=npy(np.array(vectors, np.float32)), headers=_PACKED)
    if kind in PAGES:
        return client.get(f"{URL}/items?limit={count}{PAGES[kind]}")
    return client.post(f"{URL}/sketch", json={"vectors": vectors})


def test_an_answer_is_refused_where_it_would_be_longer_than_permitted(serve: Serve) -> None:
    client = serve(max_answer_bytes=LIMIT)
    client.put(URL, json={"dim": 4, "backend": {"kind": "gcws", "params": {"bands": 16}}})
    items = [
        {"id": f"item {row}", "vector": [1, 2, 3, 0.123 + row], "payload": {"row": "x" * 20}}
        for row in range(ITEMS)
    ]
    client.put(f"{URL}/items", json={"items": items})
    for kind in (*ONE, *BATCHES, *MATRICES, *PAGES, "sketch"):
        sizes = []
        for count in (1, 2, 3, 5, 8, 12, 20, 30, 45, 60, 90, ITEMS):
            answer = ask(client, kind, count)
            if answer.status_code == 422:
                assert_problem(answer, 422, "answer_too_large", str(LIMIT))
                break
            assert answer.status_code == 200
            sizes.append(len(answer.content))
        else:
            pytest.fail(f"{sizes} are all answered: {kind}")
        assert LIMIT / 4 < max(sizes) < 1.1 * LIMIT, kind


def test_a_batch_of_more_hits_than_are_found_at_once_has_the_same_answers(
    serve: Serve, rng: np.random.Generator
) -> None:
    client = serve()
    client.put(URL, json={"dim": 4})
    vectors = rng.normal(size=(500, 4)).astype(np.float32)
    packed = {"Content-Type": "application/x-npy"}
    client.post(f"{URL}/load", content=npy(vectors), headers=packed)
    queries = rng.normal(size=(2200, 4)).astype(np.float32)

    def results(rows: Json) -> Json:
        url = f"{URL}/query/batch?limit=500&recall=1&with_payload=false"
        answer = client.post(url, content=npy(queries[rows]), headers=packed)
        return answer.json()["results"]

    assert len(queries) * len(vectors) > 1 << 20
    found, some = results(slice(None)), [0, 1, 2096, 2097, 2098, 2199]
    assert len(found) == len(queries)
    assert [found[row] for row in some] == results(some)


def test_hits_before_a_page_are_no_part_of_its_answer(serve: Serve) -> None:
    client = serve(max_answer_bytes=LIMIT)
    client.put(URL, json={"dim": 4})
    items = [{"id": f"item {row}", "vector": [1, 2, 3, row]} for row in range(ITEMS)]
    client.put(f"{URL}/items", json={"items": items})
    body = {"vector": [1, 1, 1, 1], "limit": 9, "offset": ITEMS - 9, "with_vector": True}
    for path, asked in (("query", body), ("query/batch", {"queries": [body, body]})):
        answer = client.post(f"{URL}/{path}", json=asked)
        assert answer.status_code == 200, answer.text
