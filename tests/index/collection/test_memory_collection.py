"""Collections in memory: what readers see while one writer changes them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gcws_search.index import POLICIES, Policies
from gcws_search.index.collection.items import EncodedBatch, ItemBatch, View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.arrays import Int64s
from gcws_search.index.contracts.batches import RawBatch, SparseVector
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    ExactParams,
    GcwsParams,
    SearchParams,
    Transform,
)
from gcws_search.index.contracts.saved_index import UNKNOWN, SavedIndex
from gcws_search.index.payload.filters import parse_filter
from tests.support.index.items import put_rows
from tests.support.index.policies import compacting_from

EVERYTHING = SearchParams(limit=100, recall=1)


def made(
    dim: int | None = 4, *, transform: Transform | None = None, policies: Policies = POLICIES
) -> MemoryCollection:
    config = CollectionConfig(dim=dim, transform=transform or Transform(), backend=ExactParams())
    return MemoryCollection(config, threads=1, policies=policies)


def vector(x: float) -> list[float]:
    return [x, 1.0, 0.0, -2.0]


class Filler:
    """Puts items as a catalog does: rising keys, updates by replacing rows."""

    def __init__(self, collection: MemoryCollection) -> None:
        self.collection = collection
        self.next_sequence = 1

    def put(self, values: dict[str, float], payload: bytes | None = None) -> None:
        ids = list(values)
        raw = self.collection.space.from_items([vector(x) for x in values.values()])
        keys = range(self.next_sequence, self.next_sequence + len(ids))
        self.next_sequence += len(ids)
        replaced = self.collection.rows_of(ids)
        payloads = [payload] * len(ids)
        put_rows(self.collection, ids, raw, keys=keys, payloads=payloads, replaced=replaced)

    def remove(self, *ids: str) -> None:
        self.collection.remove(self.collection.rows_of(ids))


def found(
    collection: MemoryCollection, x: float, *, view: object = None
) -> list[tuple[str, float]]:
    seen = collection.view if view is None else view
    assert isinstance(seen, View)
    queries = collection.space.prepare(collection.space.from_items([vector(x)]))
    result = collection.search(seen, queries, EVERYTHING)[0]
    return [*zip(result.ids, result.scores, strict=True)]


@pytest.fixture
def filled() -> Filler:
    filler = Filler(made())
    filler.put({"a": 1, "b": 2, "c": 3})
    return filler


def test_hits_are_ranked_by_score_then_id() -> None:
    filler = Filler(made())
    filler.put({"z": 1, "m": 2, "a": 1, "b": 2})
    assert found(filler.collection, 1) == [("a", 1.0), ("z", 1.0), ("b", 0.8), ("m", 0.8)]


def test_ties_at_the_limit_go_to_the_lower_id() -> None:
    filler = Filler(made())
    filler.put({f"i{n:02}": 1 for n in range(50, 0, -1)})
    queries = filler.collection.space.prepare(filler.collection.space.from_items([vector(1)]))
    for recall in (0.9, 1.0):
        result = filler.collection.search(
            filler.collection.view, queries, SearchParams(limit=3, recall=recall)
        )
        assert result[0].ids == ["i01", "i02", "i03"]


def test_a_view_does_not_see_what_comes_after_it(filled: Filler) -> None:
    collection = filled.collection
    before = collection.view
    expected = found(collection, 1)
    filled.put({"b": 1, "d": 1})
    filled.remove("a")
    assert found(collection, 1, view=before) == expected
    assert [item_id for item_id, _ in found(collection, 1)] == ["b", "d", "c"]
    assert (before.count, collection.view.count) == (3, 3)


def test_a_view_outlives_a_compaction(filled: Filler) -> None:
    collection = filled.collection
    filled.put({"b": 5}, b'{"n":1}')
    before, expected = collection.view, found(collection, 1)
    where = parse_filter({"must": [{"key": "n", "match": {"value": 1}}]})
    assert collection.mask(before, where).tolist() == [0, 0, 0, 1]
    collection.compact()
    assert len(before) == 4
    assert len(collection.view) == 3
    assert found(collection, 1, view=before) == expected == found(collection, 1)
    assert collection.mask(before, where).tolist() == [0, 0, 0, 1]
    assert collection.mask(collection.view, where).tolist() == [0, 0, 1]
    assert collection.view.sequences.tolist() == [1, 3, 4]


def test_rows_are_numbered_anew_once_most_of_them_are_dead() -> None:
    filler = Filler(made(policies=compacting_from(5)))
    filler.put({f"i{n}": n + 1 for n in range(10)})
    for n in range(7):
        filler.remove(f"i{n}")
        assert filler.collection.view.count == 9 - n
    view = filler.collection.view
    assert len(view) == 4  # after the sixth removal
    assert view.ids == ["i6", "i7", "i8", "i9"]
    assert filler.collection.rows_of(["i9", "i0", "i7"]) == [3, 1]
    filler.remove("i7", "i8", "i9")
    assert found(filler.collection, 1) == []
    filler.put({"new": 1})
    assert found(filler.collection, 1) == [("new", 1.0)]


def test_everything_deleted_and_compacted_leaves_a_collection_that_works() -> None:
    filler = Filler(made())
    filler.put({"a": 1, "b": 2})
    filler.remove("a", "b")
    filler.collection.compact()
    assert len(filler.collection.view) == 0
    assert found(filler.collection, 1) == []
    filler.put({"a": 1})
    assert found(filler.collection, 1) == [("a", 1.0)]


def test_pages_pass_over_dead_rows(filled: Filler) -> None:
    collection = filled.collection
    filled.put({f"i{n}": n + 1 for n in range(500)})
    filled.remove("b", *(f"i{n}" for n in range(10, 490)))
    view = collection.view
    rows = view.page(view.alive, after=0, limit=15)
    expected = ["a", "c", *(f"i{n}" for n in range(10)), "i490", "i491", "i492"]
    assert [view.ids[row] for row in rows] == expected
    after = int(view.sequences[rows[-1]])
    rest = view.page(view.alive, after=after, limit=1000)
    assert [view.ids[row] for row in rest] == [f"i{n}" for n in range(493, 500)]
    assert view.page(view.alive, after=10**6, limit=5).tolist() == []
    ends = np.zeros_like(view.alive)
    ends[[*rows[:1], *rest[-1:]]] = 1
    assert view.page(ends, after=0, limit=15).tolist() == [rows[0], rest[-1]]


def test_dense_vectors_are_given_back_as_sent(rng: np.random.Generator) -> None:
    collection = made(5)
    raw = collection.space.from_dense(rng.standard_normal((9, 5)).astype(np.float32))
    put_rows(collection, [str(i) for i in range(9)], raw, keys=range(9))
    back = collection.view.raw(collection.space, np.array([8, 0, 3]))
    assert back is not None
    assert back.dense.tobytes() == raw.dense[[8, 0, 3]].tobytes()


def test_sparse_vectors_are_given_back_as_sent() -> None:
    collection = made(None)
    sent = [SparseVector([7, 0, 2**31 - 1], [1.5, -2.25, -1e-30]), SparseVector([3], [4.0])]
    raw = collection.space.from_items(sent)
    put_rows(collection, ["a", "b"], raw, keys=[1, 2])
    back = collection.view.raw(collection.space, np.array([1, 0]))
    expected = raw[np.array([1, 0])]
    assert back is not None
    assert back.indptr.tolist() == expected.indptr.tolist()
    assert back.indices.tolist() == expected.indices.tolist()
    assert back.values.tobytes() == expected.values.tobytes()


def test_transformed_vectors_are_not_taken_for_the_ones_sent(filled: Filler) -> None:
    collection = made(transform=Transform(power=2.0))
    assert collection.view.raw(collection.space, np.empty(0, np.int64)) is None
    assert filled.collection.view.raw(filled.collection.space, np.array([0])) is not None


def items_to_load(collection: MemoryCollection) -> EncodedBatch:
    raw = collection.space.from_items([vector(x) for x in range(3)])
    [items] = collection.encode([ItemBatch(["a", "b", "c"], raw, [None] * 3)])
    return replace(items, sequences=[1, 2, 3])


def no_links(sequences: Int64s) -> SavedIndex:
    return SavedIndex(np.full((len(sequences), 1), UNKNOWN, np.int32), {})


def test_an_error_after_the_last_item_leaves_a_collection_empty() -> None:
    collection, order = made(), list[str]()

    def pieces() -> Iterator[EncodedBatch]:
        yield items_to_load(collection)
        order.append("last checks")
        raise ValueError("damage")

    def saved(sequences: Int64s) -> SavedIndex:
        order.append("links")
        return no_links(sequences)

    with pytest.raises(ValueError, match="damage"):
        collection.load(pieces(), 3, saved)
    assert not collection.count
    assert order == ["links", "last checks"]  # the index is built before the end is asked for


@pytest.mark.parametrize("count", [3, 5])  # as many as there are, or more
def test_items_are_loaded(count: int) -> None:
    collection = made()
    collection.load([items_to_load(collection)], count, no_links)
    assert found(collection, 1.0)[0] == ("b", 1.0)
    assert collection.count == 3


def test_memory_is_accounted_for(filled: Filler) -> None:
    sizes = [filled.collection.nbytes()]
    for n in range(3):
        filled.put({f"{n}-{i}": 1 for i in range(1000)}, b'{"text":"%s"}' % (b"x" * 100))
        sizes.append(filled.collection.nbytes())
    assert all(after - before > 1000 * (16 + 111) for before, after in pairwise(sizes))


def test_a_batch_whose_columns_differ_in_length_is_refused() -> None:
    raw = RawBatch("dense", dense=np.ones((2, 4), np.float32))
    with pytest.raises(InvalidParameter, match="1 ids, 2 vectors, 2 payloads"):
        ItemBatch(["a"], raw, [None, None])


def test_hash_tables_and_scan_agree_at_full_recall(rng: np.random.Generator) -> None:
    raw = rng.standard_normal((300, 8)).astype(np.float32)
    results = []
    for backend in (ExactParams(), GcwsParams(bands=4)):
        collection = MemoryCollection(CollectionConfig(dim=8, backend=backend), threads=1)
        batch = collection.space.from_dense(raw)
        ids = [f"i{n}" for n in range(300)]
        put_rows(collection, ids, batch, keys=range(300))
        collection.remove([0, 5, 299])
        queries = collection.space.prepare(batch[:20])
        found = collection.search(collection.view, queries, SearchParams(limit=7, recall=1))
        results.append([[*zip(result.ids, result.scores, strict=True)] for result in found])
    assert results[0] == results[1]
    assert "i0" not in [hit for result in results[0] for hit, _ in result]
