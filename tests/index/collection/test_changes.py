"""Items whose numbers come with them, and records of loads beside deletes."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.storage.records import LoadRecord
from tests.support.index.items import DIM, batch, held, holding, ids_of, put, reopened, vector

Rows = list[tuple[str, int]]


def put_at(stored: StoredCollection, rows: Rows) -> None:
    """Put items under their own sequence numbers; the vector of each is made of its number."""
    items = batch(stored, [item_id for item_id, _ in rows], [number for _, number in rows])
    stored.commit(stored.prepare(items, sequences=[number for _, number in rows]))


def numbers(stored: StoredCollection) -> Rows:
    """Return what memory and file hold, which is the same, as ids and numbers."""
    view = stored.memory.view
    live = [row for row in range(len(view)) if view.alive[row]]
    found = [(view.ids[row], int(view.sequences[row])) for row in live]
    chunks = [*stored.store.chunks()]
    assert found == [
        pair for chunk in chunks for pair in zip(chunk.ids, chunk.sequences, strict=True)
    ]
    return found


def test_items_have_the_numbers_that_they_bring(stored: StoredCollection) -> None:
    put_at(stored, [("a", 5), ("b", 9), ("c", 10)])
    put_at(stored, [("d", 4000)])
    assert numbers(stored) == [("a", 5), ("b", 9), ("c", 10), ("d", 4000)]
    assert stored.page(limit=2, cursor="5").next_cursor == "10"


def test_an_update_takes_the_new_number(stored: StoredCollection, tmp_path: Path) -> None:
    put_at(stored, [("a", 5), ("b", 9)])
    put_at(stored, [("a", 20), ("c", 22)])
    assert numbers(stored) == [("b", 9), ("a", 20), ("c", 22)]
    assert reopened(stored, tmp_path) == held(stored) == holding({"b": 9, "a": 20, "c": 22})


def test_items_without_numbers_follow_those_that_brought_theirs(stored: StoredCollection) -> None:
    put_at(stored, [("a", 7)])
    put(stored, {"b": 1})
    put_at(stored, [("c", 9), ("d", 30)])
    put(stored, {"e": 1, "f": 2})
    assert numbers(stored) == [("a", 7), ("b", 8), ("c", 9), ("d", 30), ("e", 31), ("f", 32)]


def test_numbers_go_on_behind_a_deleted_item(stored: StoredCollection, tmp_path: Path) -> None:
    put_at(stored, [("a", 50)])
    stored.delete(["a"])
    with pytest.raises(InvalidParameter):
        put_at(stored, [("b", 50)])
    put_at(stored, [("b", 51)])
    assert reopened(stored, tmp_path) == holding({"b": 51})


def test_numbers_that_there_were_are_refused_and_nothing_is_changed(
    stored: StoredCollection,
) -> None:
    put_at(stored, [("a", 5), ("b", 9)])
    for first in (1, 9):
        with pytest.raises(InvalidParameter, match="from 10 on"):
            put_at(stored, [("c", first), ("d", 70)])
    assert numbers(stored) == [("a", 5), ("b", 9)]
    put_at(stored, [("c", 10)])


@pytest.mark.parametrize("wrong", [[3], [3, 3], [4, 3], [1, 2, 3]])
def test_numbers_that_are_not_one_an_item_or_do_not_rise_are_refused(
    stored: StoredCollection, wrong: list[int]
) -> None:
    with pytest.raises(InvalidParameter):
        stored.prepare(batch(stored, ["a", "b"], [1, 2]), sequences=wrong)


def test_of_an_id_that_comes_twice_the_last_number_stays(stored: StoredCollection) -> None:
    put_at(stored, [("a", 3), ("b", 4), ("a", 8)])
    assert numbers(stored) == [("b", 4), ("a", 8)]


def test_equal_scores_are_found_in_any_numbering(stored: StoredCollection) -> None:
    put_at(stored, [("b", 1), ("a", 100)])
    stored.put(batch(stored, ["b", "a"], [2, 2]))
    query = stored.space.from_items([vector(2)])
    assert ids_of(stored.search(query, SearchParams())[0]) == ["a", "b"]


def test_a_delete_stores_how_far_a_load_has_come(stored: StoredCollection) -> None:
    put(stored, {"a": 1, "b": 2})
    record = LoadRecord("k", 7, "{}")
    assert stored.delete(["a", "z"], record) == 1
    assert stored.loads(0) == [record]


def test_a_delete_of_nothing_stores_how_far_a_load_has_come(stored: StoredCollection) -> None:
    record = LoadRecord("k", 7, "{}")
    assert stored.delete(["z"], record) == 0
    assert stored.loads(0) == [record]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 5)), min_size=1, max_size=6),
        max_size=6,
    )
)
def test_any_rising_numbers_are_those_of_the_last_put(writes: list[list[tuple[str, int]]]) -> None:
    stored = StoredCollection.in_memory("things", CollectionConfig(dim=DIM))
    expected: dict[str, int] = {}
    last = 0
    try:
        for steps in writes:
            rows = []
            for item_id, step in steps:
                last += step
                rows.append((item_id, last))
                expected.pop(item_id, None)
                expected[item_id] = last
            put_at(stored, rows)
            assert numbers(stored) == [*expected.items()]
            assert all(a < b for (_, a), (_, b) in pairwise(numbers(stored)))
    finally:
        stored.close()
