"""Collections in memory and on the disk at once: what is written is in both or in neither."""

import tracemalloc

import numpy as np
import pytest

from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch, StoredItem
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.collection.writer import WriteResult
from gcws_search.index.contracts.batches import SparseVector
from gcws_search.index.contracts.errors import (
    BackendNotFound,
    InvalidId,
    InvalidParameter,
    InvalidVector,
    ItemExists,
    ItemNotFound,
)
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    ExactParams,
    GcwsParams,
    SearchParams,
    Transform,
)
from gcws_search.index.hashing.gcws import Signatures
from gcws_search.index.payload.filters import parse_filter
from tests.support.index.items import DIM, SQUARED, Make, batch, held, holding, ids_of, put, vector

# Writing


def test_items_are_inserted_and_updated(stored: StoredCollection) -> None:
    assert put(stored, {"a": 1, "b": 2}) == WriteResult(inserted=2, updated=0)
    assert put(stored, {"b": 3, "c": 4}) == WriteResult(inserted=1, updated=1)
    assert held(stored) == holding({"a": 1, "b": 3, "c": 4})
    assert len(stored) == 3


def test_of_equal_ids_in_one_batch_the_last_is_put(stored: StoredCollection) -> None:
    put(stored, {"b": 9})
    result = stored.put(batch(stored, ["a", "b", "a", "c", "b"], [1, 2, 3, 4, 5]))
    assert result == WriteResult(inserted=2, updated=1)
    assert held(stored) == holding({"a": 3, "c": 4, "b": 5})
    assert list(held(stored)) == ["a", "c", "b"]


def test_an_insert_of_an_existing_item_changes_nothing(stored: StoredCollection) -> None:
    put(stored, {"b": 2})
    with pytest.raises(ItemExists) as caught:
        put(stored, {"a": 1, "b": 3, "c": 4}, "insert")
    assert (caught.value.item_id, caught.value.row) == ("b", 1)
    assert held(stored) == holding({"b": 2})
    assert put(stored, {"a": 1, "c": 4}, "insert") == WriteResult(inserted=2, updated=0)


def test_an_insert_of_one_id_twice_changes_nothing(stored: StoredCollection) -> None:
    with pytest.raises(ItemExists) as caught:
        stored.put(batch(stored, ["a", "b", "c", "b"], [1, 2, 3, 4]), "insert")
    assert (caught.value.item_id, caught.value.row) == ("b", 3)
    assert len(stored) == 0


def test_a_deleted_item_can_be_put_again(stored: StoredCollection) -> None:
    put(stored, {"a": 1, "b": 2})
    assert stored.delete(["a", "absent", "a"]) == 1
    assert stored.delete(["a"]) == 0
    assert put(stored, {"a": 3}, "insert") == WriteResult(inserted=1, updated=0)
    assert held(stored) == holding({"b": 2, "a": 3})


def test_items_are_deleted_by_filter(stored: StoredCollection) -> None:
    put(stored, {f"i{n}": n for n in range(1, 10)})
    where = parse_filter({"must": [{"key": "x", "range": {"gt": 3}}]})
    assert stored.delete_where(where) == 6
    assert stored.delete_where(where) == 0
    assert held(stored) == holding({"i1": 1, "i2": 2, "i3": 3})


def test_nothing_put_or_deleted_is_no_write(stored: StoredCollection) -> None:
    assert stored.put(batch(stored, [], [])) == WriteResult(inserted=0, updated=0)
    assert stored.delete([]) == 0
    assert len(stored) == 0


def test_bad_ids_and_vectors_are_refused_whole(make: Make) -> None:
    stored = make(transform=Transform(power=64.0))
    with pytest.raises(InvalidId) as bad_id:
        put(stored, {"a": 1, "": 2})
    assert bad_id.value.loc == (1, "id")
    vanishing = stored.space.from_items([vector(1), [1e-30, 0, 0, 0]])
    with pytest.raises(InvalidVector) as bad_vector:
        stored.put(ItemBatch(["a", "b"], vanishing, [None, None]))
    assert bad_vector.value.loc == (1,)
    assert len(stored) == 0


# Reading


def test_an_item_is_got_as_it_was_sent(stored: StoredCollection) -> None:
    put(stored, {"a": 1})
    assert stored.get("a") == StoredItem("a", vector(1), b'{"x":1}')
    put(stored, {"a": 0.1})
    x = float(np.float32(0.1))
    assert stored.get("a") == StoredItem("a", vector(x), b'{"x":0.1}')
    stored.delete(["a"])
    with pytest.raises(ItemNotFound):
        stored.get("a")


def test_pages_cover_all_items_in_order(stored: StoredCollection) -> None:
    put(stored, {f"i{n}": n + 1 for n in range(10)})
    stored.delete(["i3", "i4"])
    put(stored, {"i0": 1})
    for with_vector in (False, True):
        seen, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            page = stored.page(limit=4, cursor=cursor, with_vector=with_vector)
            assert all((item.vector is not None) == with_vector for item in page.items)
            seen += [item.id for item in page.items]
            cursor, pages = page.next_cursor, pages + 1
        assert seen == ["i1", "i2", "i5", "i6", "i7", "i8", "i9", "i0"]
        assert pages == 2


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "٣", "9" * 19, "9" * 5000, " 1"])
def test_a_cursor_no_page_returned_is_refused(stored: StoredCollection, cursor: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        stored.page(cursor=cursor)
    assert caught.value.loc == ("cursor",)


def test_a_page_of_no_items_is_refused(stored: StoredCollection) -> None:
    with pytest.raises(InvalidParameter):
        stored.page(limit=0)


def test_hits_bring_payloads_and_vectors_as_sent(stored: StoredCollection) -> None:
    put(stored, {"a": 1, "b": 2, "c": 3})
    query = stored.space.from_items([vector(1)])
    [result] = stored.search(query, SearchParams(limit=2, recall=1))
    assert ids_of(result) == ["a", "b"]
    assert result.payloads == [b'{"x":1}', b'{"x":2}']
    assert stored.vectors(result) == [vector(1), vector(2)]


def test_vectors_of_hits_that_are_gone(make: Make) -> None:
    stored = make()
    put(stored, {"a": 1, "b": 2})
    [result] = stored.search(stored.space.from_items([vector(1)]), SearchParams(recall=1))
    stored.delete(["a"])
    put(stored, {"b": 5})
    assert stored.vectors(result) == [vector(1), vector(2)]


def test_vectors_of_hits_that_are_gone_from_a_transformed_collection(make: Make) -> None:
    stored = make(transform=SQUARED)
    put(stored, {"a": 1, "b": 2})
    [result] = stored.search(stored.space.from_items([vector(1)]), SearchParams(recall=1))
    stored.delete(["a"])
    put(stored, {"b": 5})
    assert stored.vectors(result) == [None, vector(5)]


def test_a_filter_limits_what_is_found(stored: StoredCollection) -> None:
    put(stored, {f"i{n}": n for n in range(1, 10)})
    where = parse_filter({"must": [{"key": "x", "range": {"gte": 4, "lt": 7}}]})
    query = stored.space.from_items([vector(1)])
    [result] = stored.search(query, SearchParams(recall=1), where=where)
    assert ids_of(result) == ["i4", "i5", "i6"]


def test_a_search_around_an_item_leaves_it_out(stored: StoredCollection) -> None:
    put(stored, {"a": 1, "b": 1, "c": 3})
    result = stored.search_around("a", SearchParams(recall=1))[0]
    assert ids_of(result) == ["b", "c"]
    assert result.scores[0] == 1.0
    with pytest.raises(ItemNotFound):
        stored.search_around("absent", SearchParams())


def test_search_methods_are_checked(stored: StoredCollection) -> None:
    put(stored, {"a": 1})
    query = stored.space.from_items([vector(1)])
    assert ids_of(stored.search(query, SearchParams(), backend="exact")[0]) == ["a"]
    with pytest.raises(BackendNotFound):
        stored.search(query, SearchParams(), backend="gcws")
    with pytest.raises(BackendNotFound):
        stored.search_around("a", SearchParams(), backend="nrff")[0]


def test_pairs_are_ranked_and_cut_with_ties_by_id(stored: StoredCollection) -> None:
    put(stored, {"d": 1, "b": 1, "c": 1, "a": 2})
    pairs = stored.pairs(min_score=0.01, recall=1)
    assert [(a, b) for a, b, _ in pairs] == [
        ("b", "c"),
        ("b", "d"),
        ("c", "d"),
        ("a", "b"),
        ("a", "c"),
        ("a", "d"),
    ]
    assert [score for _, _, score in pairs[:3]] == [1.0] * 3
    for limit in range(7):
        assert stored.pairs(min_score=0.01, recall=1, limit=limit) == pairs[:limit]


def test_sketches_come_from_collections_that_hash(make: Make, catalog: Catalog) -> None:
    exact = make()
    with pytest.raises(InvalidParameter):
        exact.sketch(exact.space.from_items([vector(1)]), "full")
    config = CollectionConfig(dim=DIM, backend=GcwsParams(bands=2, band_width=3))
    hashing = catalog.create("hashing", config)[0]
    signatures = hashing.sketch(hashing.space.from_items([vector(1), vector(2)]), "full")
    assert isinstance(signatures, Signatures)
    assert signatures.slots.shape == signatures.levels.shape == (2, 6)


def test_a_collection_describes_itself(make: Make) -> None:
    stored = make(backend=GcwsParams(bands=2))
    put(stored, {"a": 1, "b": 2})
    put(stored, {"a": 3})
    described = stored.describe()
    assert (described.name, described.items, described.rows) == ("things", 2, 3)
    assert described.config == stored.config
    assert described.bytes_on_disk > 8192
    assert described.bytes_in_memory > 0
    assert [(b.name, b.kind, b.primary) for b in described.backends] == [("gcws", "gcws", True)]
    assert described.versions.keys() == {"format", "algorithm", "sqlite"}


def test_sparse_vectors_survive(catalog: Catalog) -> None:
    config = CollectionConfig(dim=None, backend=GcwsParams(bands=2))
    stored = catalog.create("sparse", config)[0]
    raw = stored.space.from_items([SparseVector([5, 2**31 - 1], [0.5, -3]), SparseVector([0], [1])])
    stored.put(ItemBatch(["a", "b"], raw, [None, b"{}"]))
    assert stored.get("a").vector == {"indices": [5, 2**31 - 1], "values": [0.5, -3.0]}
    assert stored.get("b") == StoredItem("b", {"indices": [0], "values": [1.0]}, b"{}")


def test_small_payloads_take_little_memory(make: Make) -> None:
    stored = make(backend=ExactParams())
    put(stored, {"first": 1})
    count = 2000
    tracemalloc.start()
    try:
        put(stored, {str(n): n + 1 for n in range(count)})
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 1024 * count  # a payload is of some 10 bytes
