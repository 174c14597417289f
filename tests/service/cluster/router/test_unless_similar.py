"""Items that are stored unless one like them is, in one commit with writes that change others."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gcws_search import index as ix
from tests.support.service.client import Client
from tests.support.waiting_writes import together

UNLESS = ix.UnlessSimilar(min_score=0.9, recall=1)


def items(item_id: str | None, *rows: list[float]) -> ix.ItemBatch:
    vectors = ix.RawBatch("dense", dense=np.array(rows, np.float32))
    return ix.ItemBatch([item_id] * len(rows), vectors, [None] * len(rows))


def test_writes_of_one_commit_see_what_those_before_them_leave(client: Client) -> None:
    assert client.put("/v1/collections/copies", json={"dim": 2}).status_code == 201
    collection = client.app.state.service.collection("copies")
    first = {"items": [{"id": "like", "vector": [1, 2]}, {"id": "7", "vector": [-9, 0.1]}]}
    assert client.put("/v1/collections/copies/items", json=first).status_code == 200
    before = collection.committer.commits
    calls: list[Callable[[], object]] = [
        lambda: collection.delete(["nothing"]),  # leads, and the others wait
        partial(collection.put, items("like", [5, -5]), "upsert"),
        partial(collection.put, items("a", [1, 2]), UNLESS),
        partial(collection.put, items(None, [1, 2]), UNLESS),
        partial(collection.put, items(None, [-9, 0.1], [3, 0], [3, 0.01], [0, 3]), UNLESS),
        lambda: collection.delete(["a", "7"]),
        partial(collection.put, items("b", [1, 2]), UNLESS),
        partial(collection.put, items("7", [-9, 0.1]), UNLESS),
        partial(collection.put, items("c", [5, -5]), UNLESS),
        partial(collection.put, items("b", [1, 2]), "insert"),
    ]
    results: list[Any] = client.run(asyncio.to_thread(together, collection.committer, *calls))
    assert collection.committer.commits == before + 1
    assert isinstance(results.pop(), ix.ItemExists)
    one = ix.WriteResult(1, 0)
    left_out = ix.SimilarItem(0, None, "7", 1.0), ix.SimilarItem(2, None, "8", 3 / 3.01)
    *similar, score = results[4].similar[1]
    assert (*similar, round(score, 6)) == (*left_out[1][:3], round(left_out[1].score, 6))
    assert results == [
        0,
        ix.WriteResult(0, 1),
        one,
        ix.WriteResult(0, 0, None, (ix.SimilarItem(0, None, "a", 1.0),)),
        ix.WriteResult(2, 0, ("8", "9"), (left_out[0], results[4].similar[1])),
        2,
        one,
        one,
        ix.WriteResult(0, 0, None, (ix.SimilarItem(0, "c", "like", 1.0),)),
    ]
    listed = client.get("/v1/collections/copies/items").json()["items"]
    assert {each["id"] for each in listed} == {"like", "8", "9", "b", "7"}
