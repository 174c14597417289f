"""Answers of one shard; those of all together are compared with a node's in test_equality.py."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.contract import Behind
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.host import ShardHost
from gcws_search.service.errors import AnswerTooLarge
from gcws_search.service.messages import Malformed, Message, decode_texts, encode_vectors
from tests.support.service.shards import DIM, SECONDS, Start, Written, ask, follow

COUNT = 60
CENTERED = ix.CollectionConfig(dim=DIM, transform=ix.Transform(center=(1.0, *[0.0] * (DIM - 1))))


@pytest.fixture
def host(written: Written, start: Start) -> Iterator[ShardHost]:
    ids = [f"i{number}" for number in range(COUNT)]
    written.put_some(ids)
    written.put_some(ids[::7])
    written.delete(["i3", "i4"])
    with start(1) as [host]:
        follow([host], written)
        yield host


@pytest.fixture
def raw(written: Written, rng: np.random.Generator) -> ix.RawBatch:
    """Return queries."""
    return written.node.space.from_dense(rng.integers(-3, 4, (5, DIM)).astype(np.float32) + 0.5)


def searched(host: ShardHost, written: Written, raw: ix.RawBatch, **more: Any) -> Message:  # noqa: ANN401
    said, blobs = encode_vectors(raw)
    head: dict[str, Any] = {"at": written.head, "params": asdict(ix.SearchParams()), "filter": None}
    return ask(host, "search", written.number, blobs, **head | said | more)


def test_an_attached_backend_is_searched(
    host: ShardHost, written: Written, raw: ix.RawBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is being attached it is waited for, and is not unknown."""
    number, node = written.number, written.node
    attach, may_attach = ix.StoredCollection.attach, threading.Event()

    def delayed(*given: Any) -> Any:  # noqa: ANN401
        may_attach.wait()
        return attach(*given)

    node.attach(ix.ExactParams(), "exact")
    monkeypatch.setattr(ix.StoredCollection, "attach", delayed)
    with pytest.raises(ix.BackendNotFound):
        searched(host, written, raw, backend="exact")
    written.database.add_backend(number, ix.BackendRecord("exact", "exact", "{}", None))
    try:
        with pytest.raises(Behind):
            searched(host, written, raw, backend="exact", seconds=0.1)
        with pytest.raises(ix.BackendNotFound):
            searched(host, written, raw, backend="other")
    finally:
        may_attach.set()
    answer = searched(host, written, raw, backend="exact")
    found = [*node.search(raw, ix.SearchParams(), backend="exact")]
    scores = [score for each in found for score in each.scores]
    assert np.frombuffer(answer.blobs[1], np.float64).tolist() == scores
    ids = [item_id.encode() for each in found for item_id in each.ids]
    assert decode_texts(*answer.blobs[2:4]) == ids
    written.database.remove_backend(number, "exact")
    ask(host, "refresh", number)
    with pytest.raises(ix.BackendNotFound):
        searched(host, written, raw, backend="exact")


def test_a_backend_that_is_attached_while_the_list_of_them_is_read_stays(
    host: ShardHost, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, read = written.number, Database.backends
    ask(host, "follow", number, key=written.head)
    begun, ended = threading.Event(), threading.Event()

    def backends(database: Database, number: int) -> list[ix.BackendRecord]:
        found = read(database, number)
        if threading.current_thread() is first:
            begun.set()
            ended.wait(SECONDS)
        return found

    def attach() -> None:
        while "exact" not in ask(host, "refresh", number).head["ready"]:
            pass

    first = threading.Thread(target=ask, args=(host, "refresh", number))
    second = threading.Thread(target=attach)
    monkeypatch.setattr(Database, "backends", backends)
    first.start()
    begun.wait(SECONDS)
    written.database.add_backend(number, ix.BackendRecord("exact", "exact", "{}", None))
    second.start()
    second.join(0.3)  # or it waits for the first
    ended.set()
    for each in (first, second):
        each.join()
    assert [each["name"] for each in ask(host, "describe", number).head["backends"]][1:] == [
        "exact"
    ]


def test_what_a_transform_leaves_nothing_of_is_refused_at_its_row(
    database: Database, start: Start
) -> None:
    raw = ix.RawBatch("dense", dense=np.array([[2.0] * DIM, [1.0, *[0.0] * 5]], np.float32))
    with closing(Written(database, CENTERED)) as written, start(1) as [host]:
        follow([host], written)
        with pytest.raises(ix.InvalidVector) as caught:
            searched(host, written, raw)
    assert caught.value.loc[0] == 1


def test_too_long_an_answer_is_refused(host: ShardHost, written: Written, raw: ix.RawBatch) -> None:
    with pytest.raises(AnswerTooLarge):
        searched(host, written, raw, with_payload=True, max_bytes=100)
    searched(host, written, raw, with_payload=True, max_bytes=100_000)


# All else


def test_items_are_counted_and_listed(host: ShardHost, written: Written) -> None:
    number, rows = written.number, written.rows()
    document = '{"must": [{"key": "id", "match": {"any": ["i5", "i7", "gone"]}}]}'
    assert ask(host, "count", number).head == {"count": len(rows)}
    assert ask(host, "count", number, filter=document).head == {"count": 2}
    beyond_64_bits = '{"must": [{"key": "length", "match": {"value": 36893488147419103232}}]}'
    assert ask(host, "count", number, filter=beyond_64_bits).head == {"count": 0}
    with pytest.raises(ix.InvalidFilter):
        ask(host, "count", number, filter='{"must": 3}')

    def listed(**more: Any) -> list[tuple[int, bytes | None]]:  # noqa: ANN401
        answer = ask(host, "rows", number, **more)
        keys = np.frombuffer(answer.blobs[0], np.int64).tolist()
        return [*zip(keys, decode_texts(*answer.blobs[1:3]), strict=True)]

    every = [(row.key, row.id.encode()) for row in rows]
    assert listed() == every
    assert listed(after=every[9][0], limit=3) == every[10:13]
    assert {item_id for _, item_id in listed(filter=document)} == {b"i5", b"i7"}
    wanted = {b"i5", rows[0].id.encode()}
    of_these = [each for each in every if each[1] in wanted]
    assert listed(ids=["i5", "gone", rows[0].id]) == of_these
    some = listed(sample=10, seed=3)
    assert len(some) == len({*some}) == 10
    assert set(some) < set(every)
    assert listed(sample=10, seed=3) == some != listed(sample=10, seed=4)
    assert listed(sample=10 * COUNT, seed=3) == every


def test_descriptions_are_those_of_a_node(host: ShardHost, written: Written) -> None:
    number, node = written.number, written.node
    described, own = ask(host, "describe", number).head, node.describe()
    assert described["items"] == own.items
    assert described["versions"] == own.versions
    assert [each["name"] for each in described["backends"]] == [each.name for each in own.backends]
    assert ask(host, "summary", number).head["items"] == own.items
    curve = ask(host, "curve", number, limit=10).head
    assert (curve["limit"], curve["points"]) == (10, [])
    assert curve["reason"] == node.memory.curve(10).reason
    audited = ask(host, "audited", number).head
    assert audited["results"] == []
    assert set(audited) == {"results", "allowance", "waiting"}


def test_backends_are_compared(host: ShardHost, written: Written, raw: ix.RawBatch) -> None:
    said, blobs = encode_vectors(raw)
    params = asdict(ix.SearchParams())
    head: dict[str, Any] = {"queries": [said], "params": params, "skip": [], "backends": None}
    answer = ask(host, "compare", written.number, blobs, **head)
    own = written.node.compare([raw], ix.SearchParams())
    best = np.frombuffer(answer.blobs[0]).reshape(answer.head["shape"])
    assert np.array_equal(best, own.best)
    [mine], [theirs] = answer.head["backends"], own.backends
    assert (mine["name"], mine["recall"]) == (theirs.name, theirs.recall)


def test_a_shard_says_what_it_has_and_what_it_does_not(host: ShardHost, written: Written) -> None:
    said = ask(host, "status", 0).head
    assert said["identity"] == written.database.identity
    assert (said["shard"], said["shards"]) == (0, 1)
    assert said["collections"] == {str(written.number): written.head}
    assert said["bytes"] > 0
    for method in ("count", "count", "follow"):
        with pytest.raises(ix.CollectionNotFound):
            ask(host, method, 999, key=0)
    nothing: Any
    for nothing in ("nothing", "", None):
        with pytest.raises(Malformed):
            ask(host, nothing, written.number)
