"""Answers of shards: those that a node gives of the same items, to the bit."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.contract import Behind
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.host import ShardHost
from gcws_search.service.errors import AnswerTooLarge
from gcws_search.service.messages import (
    Malformed,
    Message,
    blobs_of,
    decode_texts,
    decode_vectors,
    encode_vectors,
)
from tests.support.service.shards import CONFIG, DIM, Start, Written, ask, follow

COUNT = 60
SPARSE = ix.CollectionConfig(dim=None)
CENTERED = ix.CollectionConfig(dim=DIM, transform=ix.Transform(center=(1.0, *[0.0] * (DIM - 1))))
CONFIGS = {"dense": CONFIG, "sparse": SPARSE, "centered": CENTERED}


@pytest.fixture(params=CONFIGS)
def written(
    request: pytest.FixtureRequest, database: Database, rng: np.random.Generator
) -> Iterator[Written]:
    written = Written(database, CONFIGS[request.param])
    dense = written.some_vectors([f"i{number}" for number in range(COUNT)])
    items: dict[str, Any] = {name: row for name, row in dense.items() if any(row)}
    if written.config.form == "sparse":
        items = {name: sparse(row) for name, row in items.items()}
    written.put(items)
    written.put(dict([*items.items()][::7]))
    written.delete(["i3", "i4"])
    yield written
    written.close()


def sparse(row: Sequence[float]) -> ix.SparseVector:
    """Return the coordinates of a row that are not 0."""
    indices = [place for place, value in enumerate(row) if value]
    return ix.SparseVector(indices, [row[place] for place in indices])


one_kind = pytest.mark.parametrize("written", ["dense"], indirect=True)


@pytest.fixture
def host(written: Written, start: Start) -> Iterator[ShardHost]:
    with start(1) as [host]:
        follow([host], written)
        yield host


@pytest.fixture
def raw(written: Written, rng: np.random.Generator) -> ix.RawBatch:
    """Return queries."""
    rows: list[Any] = [row.tolist() for row in rng.integers(-3, 4, (5, DIM)) + 0.5]
    if written.config.form == "sparse":
        rows = [sparse(row) for row in rows]
    return written.node.space.from_items(rows)


def hits_of(answer: Message) -> list[list[tuple[bytes | None, float]]]:
    """Return ids and scores of each query."""
    sizes = np.frombuffer(answer.blobs[0], np.int64).tolist()
    scores = iter(np.frombuffer(answer.blobs[1], np.float64).tolist())
    ids = iter(decode_texts(*answer.blobs[2:4]))
    return [[(next(ids), next(scores)) for _ in range(size)] for size in sizes]


def searched(host: ShardHost, written: Written, raw: ix.RawBatch | None, **more: Any) -> Message:  # noqa: ANN401
    said, blobs = ({}, []) if raw is None else encode_vectors(raw)
    params = asdict(more.pop("params", ix.SearchParams()))
    head: dict[str, Any] = {"at": written.head, "params": params, "filter": None}
    return ask(host, "search", written.number, blobs, **head | said | more)


def expected(results: Sequence[ix.QueryResult]) -> list[list[tuple[bytes | None, float]]]:
    return [
        [(item_id.encode(), score) for item_id, score in zip(each.ids, each.scores, strict=True)]
        for each in results
    ]


def test_hits_are_those_of_a_node(host: ShardHost, written: Written, raw: ix.RawBatch) -> None:
    for limit, recall in product([1, 7, COUNT], [0.9, 1.0]):
        params = ix.SearchParams(limit=limit, recall=recall)
        answer = searched(host, written, raw, params=params)
        found = written.node.search(raw, params)
        assert hits_of(answer) == expected(found)
        work, recalls, measured = answer.blobs[4:]
        assert np.frombuffer(work, np.int64).reshape(-1, 6).tolist() == found.found.work.tolist()
        assert np.frombuffer(recalls, np.float64).tolist() == found.found.expected_recall.tolist()
        assert len(np.frombuffer(measured, np.float64)) == len(raw)


def test_filters_payloads_and_vectors_are_those_of_a_node(
    host: ShardHost, written: Written, raw: ix.RawBatch
) -> None:
    document = '{"must": [{"key": "length", "match": {"value": 3}}]}'
    answer = searched(host, written, raw, filter=document, with_payload=True, with_vector=True)
    where = ix.parse_filter({"must": [{"key": "length", "match": {"value": 3}}]})
    found = [*written.node.search(raw, ix.SearchParams(), where=where)]
    assert hits_of(answer) == expected(found)
    payloads = decode_texts(*answer.blobs[4:6])
    assert payloads == [payload for each in found for payload in each.payloads or ()]
    said = answer.head["vectors"]
    vectors = decode_vectors(said, answer.blobs[6 : 6 + blobs_of(said)])
    space = written.node.space
    shown = [space.to_json(vectors, place) for place in range(len(payloads))]
    assert shown == [each for one in found for each in written.node.vectors(one)]
    assert said["missing"] == []
    assert len(answer.blobs) == 6 + blobs_of(said) + 3


def test_a_search_around_an_item_leaves_it_out_where_it_is(
    host: ShardHost, written: Written
) -> None:
    for name in ("i0", "i9"):
        row = written.database.fetch(written.number, [name])[name]
        raw = written.node.space.from_blobs([row.vector])
        answer = searched(host, written, raw, skip=name)
        assert hits_of(answer) == expected(written.node.search_around(name, ix.SearchParams()))
        answer = searched(host, written, raw, skip="elsewhere")
        assert hits_of(answer) == expected(written.node.search(raw, ix.SearchParams()))


@pytest.mark.parametrize("written", ["dense", "centered"], indirect=True)
def test_names_that_no_coordinate_has_are_searched_with(host: ShardHost, written: Written) -> None:
    query = ix.SparseVector([0, 2, DIM, DIM + 1], [1.5, -2.0, 1.0, 0.5])
    said = {"indices": [*query.indices], "values": [*query.values]}
    answer = searched(host, written, None, unknown=said)
    found = written.node.search_with_unknown(query, ix.SearchParams())[0]
    assert hits_of(answer) == expected([found])


@one_kind
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
    found = node.search(raw, ix.SearchParams(), backend="exact")
    assert hits_of(searched(host, written, raw, backend="exact")) == expected(found)
    written.database.remove_backend(number, "exact")
    ask(host, "refresh", number)
    with pytest.raises(ix.BackendNotFound):
        searched(host, written, raw, backend="exact")


@pytest.mark.parametrize("written", ["centered"], indirect=True)
def test_what_a_transform_leaves_nothing_of_is_refused_at_its_row(
    host: ShardHost, written: Written
) -> None:
    raw = ix.RawBatch("dense", dense=np.array([[2.0] * DIM, [1.0, *[0.0] * 5]], np.float32))
    with pytest.raises(ix.InvalidVector) as caught:
        searched(host, written, raw)
    assert caught.value.loc[0] == 1


@one_kind
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


@one_kind
def test_a_number_beyond_64_bits_is_filtered_by(host: ShardHost, written: Written) -> None:
    big = '{"must": [{"key": "length", "match": {"value": 36893488147419103232}}]}'
    assert ask(host, "count", written.number, filter=big).head == {"count": 0}
    with pytest.raises(ix.InvalidFilter):
        ask(host, "count", written.number, filter='{"must": 3}')


def test_pairs_are_those_of_a_node(host: ShardHost, written: Written) -> None:
    asked: dict[str, Any] = {"min_score": 0.5, "recall": 1.0, "limit": None}
    answer = ask(host, "pairs", written.number, **asked)
    first, second = decode_texts(*answer.blobs[:2]), decode_texts(*answer.blobs[2:4])
    scores = np.frombuffer(answer.blobs[4], np.float64).tolist()
    found = [
        ((a or b"").decode(), (b or b"").decode(), score)
        for a, b, score in zip(first, second, scores, strict=True)
    ]
    assert found == written.node.pairs(**asked)
    assert found


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


@one_kind
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


@one_kind
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
