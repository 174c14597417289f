"""Collections in memory: what readers see while one writer changes them."""

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gcws_search import index as ix
from gcws_search.index.collection.ids import Ids
from gcws_search.index.collection.items import EncodedBatch, View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.row_store import RowStore
from gcws_search.index.contracts.arrays import Int32s, UInt8s
from gcws_search.index.contracts.saved_index import UNKNOWN
from gcws_search.index.vectors.growing_rows import GrowingRows
from tests.support.data.adapters import expanded_row, prepared, space_of
from tests.support.data.payloads import encode_payload
from tests.support.index.items import Make, held, holding, ids_of, put, put_rows, vector
from tests.support.index.policies import FREE_HASHING
from tests.support.pausing import Work

ALL = ix.SearchParams(limit=100, recall=1)


def hits_of(
    stored: ix.StoredCollection, x: float, view: View | None = None
) -> list[tuple[str, float]]:
    memory = stored.memory
    queries = memory.space.prepare(memory.space.from_items([vector(x)]))
    result = memory.search(view or memory.view, queries, ALL)[0]
    return [*zip(result.ids, result.scores, strict=True)]


@pytest.fixture
def filled(make: Make) -> ix.StoredCollection:
    put(stored := make(), {"a": 1, "b": 2, "c": 3})
    return stored


def test_a_view_does_not_see_what_comes_after_it(filled: ix.StoredCollection) -> None:
    before, expected = filled.memory.view, hits_of(filled, 1)
    put(filled, {"b": 1, "d": 1})
    filled.delete(["a"])
    assert hits_of(filled, 1, before) == expected
    assert [item_id for item_id, _ in hits_of(filled, 1)] == ["b", "d", "c"]
    assert (before.count, filled.memory.view.count) == (3, 3)


def test_a_view_outlives_a_compaction(filled: ix.StoredCollection) -> None:
    memory = filled.memory
    put(filled, {"b": 5})
    before, expected = memory.view, hits_of(filled, 1)
    where = ix.parse_filter({"must": [{"key": "x", "match": {"value": 5}}]})
    assert memory.mask(before, where).tolist() == [0, 0, 0, 1]
    memory.compact()
    assert len(before) == 4
    assert len(memory.view) == 3
    assert hits_of(filled, 1, before) == expected == hits_of(filled, 1)
    assert memory.mask(before, where).tolist() == [0, 0, 0, 1]
    assert memory.mask(memory.view, where).tolist() == [0, 0, 1]
    assert memory.view.sequences.tolist() == [1, 3, 4]


def made() -> MemoryCollection:
    return MemoryCollection(ix.CollectionConfig(dim=4, backend=ix.ExactParams()), threads=1)


def items_to_load(collection: MemoryCollection) -> EncodedBatch:
    raw = collection.space.from_items([vector(x) for x in range(3)])
    [items] = collection.encode([ix.ItemBatch(["a", "b", "c"], raw, [None] * 3)])
    return replace(items, sequences=[1, 2, 3])


def no_links(sequences: ix.Int64s) -> Int32s:
    return np.full((len(sequences), 1), UNKNOWN, np.int32)


def test_an_error_after_the_last_item_leaves_a_collection_empty() -> None:
    collection, order = made(), list[str]()

    def pieces() -> Iterator[EncodedBatch]:
        yield items_to_load(collection)
        order.append("last checks")
        raise ValueError("damage")

    def links(sequences: ix.Int64s) -> Int32s:
        order.append("links")
        return no_links(sequences)

    with pytest.raises(ValueError, match="damage"):
        collection.load(pieces(), 3, {}, links)
    assert not collection.count
    assert order == ["links", "last checks"]  # the index is built before the end is asked for


@pytest.mark.parametrize("count", [3, 5])  # as many as there are, or more
def test_items_are_loaded(count: int) -> None:
    collection = made()
    collection.load([items_to_load(collection)], count, {}, no_links)
    assert collection.count == 3
    query = collection.space.prepare(collection.space.from_items([vector(1)]))
    assert collection.search(collection.view, query, ALL)[0].ids[0] == "b"


def test_memory_is_accounted_for(filled: ix.StoredCollection) -> None:
    sizes, payload = [filled.memory.nbytes()], b'{"text":"%s"}' % (b"x" * 100)
    for n in range(3):
        raw = filled.space.from_items([vector(1)] * 1000)
        filled.put(ix.ItemBatch([f"{n}-{i}" for i in range(1000)], raw, [payload] * 1000))
        sizes.append(filled.memory.nbytes())
    assert all(after - before > 1000 * (16 + 111) for before, after in pairwise(sizes))


def test_a_batch_whose_columns_differ_in_length_is_refused() -> None:
    raw = ix.RawBatch("dense", dense=np.ones((2, 4), np.float32))
    with pytest.raises(ix.InvalidParameter, match="1 id, 2 vectors, 2 payloads"):
        ix.ItemBatch(["a"], raw, [None, None])


@pytest.fixture
def settled(make: Make, monkeypatch: pytest.MonkeyPatch) -> ix.StoredCollection:
    """Return a collection of two items in memory, whose index nobody improves any more."""
    stored = make(backend=ix.GcwsParams(bands=2))
    put(stored, {"a": 1, "b": 2})
    stored.finish_background_work()
    monkeypatch.setattr(stored.memory.backend, "can_defer", lambda *_: True)
    monkeypatch.setattr(stored.optimizer, "start", lambda: None)
    return stored


@pytest.fixture
def waiting(settled: ix.StoredCollection) -> ix.StoredCollection:
    """Return a collection of two items in a view and three pending ones."""
    stored = settled
    put(stored, {"c": 3, "d": 4})
    put(stored, {"e": 5})
    assert stored.memory.pending_count == 3
    return stored


def found(stored: ix.StoredCollection, x: float) -> list[str]:
    return ids_of(stored.search(stored.space.from_items([vector(x)]), ALL)[0])


def test_the_room_of_the_delta_is_judged_with_all_pending_items(
    settled: ix.StoredCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = []

    def can_defer(_state: object, _vectors: object, count: int, numbers: int) -> bool:
        judged.append((count, numbers))
        return True

    monkeypatch.setattr(settled.memory.backend, "can_defer", can_defer)
    put(settled, {"c": 3})
    put(settled, {"d": 4, "e": 5})
    (_, each), _ = judged
    assert each > 0
    assert judged == [(1, each), (3, 3 * each)]


def test_each_way_to_read_finds_pending_items(waiting: ix.StoredCollection) -> None:
    memory = waiting.memory
    assert (len(waiting), memory.count, memory.pending_count) == (5, 5, 3)
    assert memory.locate(["e"])[1] == [4]
    put(waiting, {"f": 6})
    assert memory.rows_of(["f", "absent"]) == [5]
    put(waiting, {"g": 7})
    assert waiting.get("g").vector == vector(7)
    put(waiting, {"h": 8})
    assert waiting.describe().items == 8
    assert held(waiting) == holding(dict(zip("abcdefgh", range(1, 9), strict=True)))


def test_writes_know_of_pending_items(waiting: ix.StoredCollection) -> None:
    with pytest.raises(ix.ItemExists):
        put(waiting, {"d": 7}, "insert")
    put(waiting, {"f": 6})
    assert put(waiting, {"f": 7, "g": 8}) == ix.WriteResult(inserted=1, updated=1)
    put(waiting, {"h": 9})
    assert waiting.delete(["h", "a"]) == 2
    assert found(waiting, 8) == ["g", "f", "e", "d", "c", "b"]


def test_at_most_32_items_are_pending_and_keys_stay_in_order(settled: ix.StoredCollection) -> None:
    stored, most = settled, 0
    for n in range(100):
        put(stored, {f"i{n}": n + 1})
        most = max(most, stored.memory.pending_count)
    assert 1 < most <= 32
    keys = stored.memory.view.sequences
    assert keys.tolist() == sorted(keys.tolist())
    assert held(stored) == holding({"a": 1, "b": 2} | {f"i{n}": n + 1 for n in range(100)})


def test_a_reader_that_fails_to_append_leaves_items_to_the_next(
    waiting: ix.StoredCollection,
) -> None:
    with mock.patch.object(waiting.memory.backend, "extend", side_effect=MemoryError):
        for _ in range(2):
            with pytest.raises(MemoryError):
                found(waiting, 5)
    assert found(waiting, 5) == ["e", "d", "c", "b", "a"]
    assert waiting.describe().rows == 5


def test_concurrent_readers_append_items_once(waiting: ix.StoredCollection) -> None:
    memory: Any = waiting.memory
    version = memory.published.version
    begun, entering, extend = threading.Barrier(5), threading.Semaphore(0), memory.backend.extend
    calls: list[int] = []

    def counted(*arguments: Any) -> object:  # noqa: ANN401
        calls.append(1)
        if len(calls) == 1:  # the others come while items are taken in
            for _ in range(5):
                assert entering.acquire(timeout=60)
        return extend(*arguments)

    memory.backend.extend = counted
    seen: list[int] = []

    def read() -> None:
        begun.wait(60)
        entering.release()
        seen.append(len(memory.view))

    for reader in [Work(read) for _ in range(5)]:
        reader.join()
    assert (seen, calls) == ([5] * 5, [1])
    assert memory.view.version == version + 1


DIMS = [5, None]


def row_store(dim: int | None, numbers: list[int]) -> RowStore:
    space = space_of(dim)
    rows, none = GrowingRows(space.form, dim), np.empty(0, np.int64)
    held = RowStore(space, rows, Ids(), [], sequences=none, versions=none, expires=none)
    add(held, dim, numbers)
    return held


def add(held: RowStore, dim: int | None, numbers: list[int]) -> None:
    rows = [{n % 5: 1.0 + n, (n + 1) % 5: -2.0 - n} for n in numbers]
    ids = [f"item {n}" for n in numbers]
    payloads = [b'{"n": 1}' if n % 2 else None for n in numbers]
    vectors, codes = prepared(space_of(dim), rows), np.empty((len(ids), 0), np.uint64)
    held.append(EncodedBatch(ids, payloads, vectors, codes, [10 * n for n in numbers]))


def content(held: RowStore) -> list[object]:
    n, rows = len(held), held.rows.view()
    return [
        held.payloads,
        held.sequences[:n].tolist(),
        held.alive[:n].tolist(),
        [(expanded_row(rows, row), float(rows.norms[row])) for row in range(n)],
    ]


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("given_up", [[7], [7, 8, 9], list(range(7, 300))])
def test_what_is_cut_off_leaves_no_trace(dim: int | None, given_up: list[int]) -> None:
    held, other = row_store(dim, [1, 2, 3]), row_store(dim, [1, 2, 3])
    add(held, dim, given_up)
    held.truncate(3)
    assert content(held) == content(other)
    assert held.payload_bytes == other.payload_bytes
    for numbers in ([4], [5, 6]):
        add(held, dim, numbers)
        add(other, dim, numbers)
        assert content(held) == content(other)


@given(st.data())
def test_every_mask_that_is_held_stays_as_it_was(data: st.DataObject) -> None:
    held, live = row_store(5, [1, 2, 3]), [1, 1, 1]
    views: list[tuple[UInt8s, list[int]]] = []
    for step in range(data.draw(st.integers(1, 12))):
        views.append((held.alive[: len(held)], list(live)))
        kept = data.draw(st.sets(st.sampled_from(range(len(views)))))
        views = [views[i] for i in sorted(kept)]
        if data.draw(st.booleans()):
            new = data.draw(st.integers(1, 80))  # there is room for 64 at first
            add(held, 5, [100 * step + i for i in range(new)])
            live += [1] * new
            if data.draw(st.booleans()):
                held.truncate(len(live) - new)
                del live[-new:]
        killed = data.draw(st.lists(st.sampled_from(range(len(live))), max_size=4))
        held.mark_dead(killed)
        for row in killed:
            live[row] = 0
        assert held.alive[: len(held)].tolist() == live
        assert all(mask.tolist() == expected for mask, expected in views)


def test_two_masks_take_turns_while_nobody_holds_one() -> None:
    held, addresses = row_store(5, list(range(60))), []
    for row in range(20):
        held.mark_dead([row])
        addresses.append(held.alive.ctypes.data)
    assert len({*addresses[1:]}) == 2


WIDTH = 24
ITEMS = 12_000
Shown = list[tuple[str, float, bytes | None]]


def searched(rng: np.random.Generator) -> tuple[ix.QueryResults, list[ix.QueryResult]]:
    """Return results of one batch, and of its queries asked one by one.

    Queries near stored items are answered by tables; those far from all are by scans, some of
    which end in more ties than hits are wanted.
    """
    collection = MemoryCollection(
        ix.CollectionConfig(dim=WIDTH, backend=ix.GcwsParams(bands=16)),
        threads=1,
        policies=FREE_HASHING,
    )
    rows = np.repeat(rng.gamma(1.0, size=(ITEMS // 4, WIDTH)), 4, axis=0).astype(np.float32)
    rows[:40] = rows[0]
    ids = [str(i) for i in rng.permutation(ITEMS)]
    payloads = [encode_payload({"id": item_id}) for item_id in ids]
    raw = collection.space.from_dense(rows)
    put_rows(collection, ids, raw, keys=range(1, ITEMS + 1), payloads=payloads)
    tied = rows[:1] + 100 * np.eye(WIDTH, dtype=np.float32)[3:5]
    sent = np.concatenate([rows[100:110], tied, np.eye(WIDTH, dtype=np.float32)[:5], rows[200:210]])
    queries = collection.space.prepare(collection.space.from_dense(sent))
    params = ix.SearchParams(limit=3)
    alone = [
        collection.search(collection.view, queries[m : m + 1], params)[0] for m in range(len(sent))
    ]
    return collection.search(collection.view, queries, params), alone


def shown(result: ix.QueryResult) -> Shown:
    return [*zip(result.ids, result.scores, result.payloads or (), strict=True)]


def cost(result: ix.QueryResult) -> ix.Explanation:
    assert result.explanation is not None
    return result.explanation


def test_results_of_a_batch_are_those_of_each_query_however_they_are_taken(
    rng: np.random.Generator,
) -> None:
    results, alone = searched(rng)
    truth = [shown(result) for result in alone]
    n = len(alone)
    assert len(results) == n
    assert [shown(result) for result in results] == truth
    assert [shown(results[number]) for number in range(n)] == truth
    assert [shown(results[number - n]) for number in range(n)] == truth
    assert [result.explanation for result in results] == [one.explanation for one in alone]
    for number in (n, -n - 1):
        with pytest.raises(IndexError):
            results[number]


def test_totals_are_sums_over_the_queries_of_each_method(rng: np.random.Generator) -> None:
    results, alone = searched(rng)
    sums: Counter[tuple[str, str]] = Counter()
    for result in alone:
        found = cost(result)
        sums[found.method, "searches"] += 1
        sums[found.method, "candidates"] += found.candidates
        sums[found.method, "scored"] += found.scored
    assert {method for method, _ in sums} == {"tables", "scan"}
    expected = [
        (method, *(sums[method, name] for name in ("searches", "candidates", "scored")))
        for method in ("scan", "tables")
    ]
    assert [total[:-1] for total in results.totals()] == expected
    for method, *_, recall in results.totals():
        explained = map(cost, alone)
        each = [one.expected_recall for one in explained if one.method == method]
        assert recall == pytest.approx(sum(each), abs=1e-9)
