"""Ids and numbers of items: given, brought along, and never twice."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from gcws_search import index as ix
from tests.support.data.payloads import encode_payload
from tests.support.index.items import DIM, batch, held, holding, ids_of, put, reopened, vector
from tests.support.index.saved_graph import log_limited


def test_ids_of_every_permitted_kind_pass() -> None:
    ix.check_ids([])
    ix.check_ids([None, "a", None])  # these are given one
    ix.check_ids(
        ["a", "x" * ix.MAX_ID_LENGTH, "日本", "a\x00b", " ", "\U0001f600" * ix.MAX_ID_LENGTH]
    )


@pytest.mark.parametrize(
    ("bad", "got"),
    [
        ("", "0 characters"),
        ("x" * 256, "256 characters"),
        ("\ud800", "a lone surrogate"),
        (7, "int"),
    ],
)
def test_a_bad_id_is_named_by_its_row(bad: str, got: str) -> None:
    with pytest.raises(ix.InvalidId) as caught:
        ix.check_ids(["fine", bad, "fine"])
    assert caught.value.loc == (1, "id")
    assert got in caught.value.got


CONFIG = ix.CollectionConfig(dim=DIM, backend=ix.GcwsParams(bands=2))


def items(stored: ix.StoredCollection, ids: list[str | None]) -> ix.ItemBatch:
    raw = stored.space.from_items([vector(x + 1) for x in range(len(ids))])
    return ix.ItemBatch(ids, raw, [encode_payload({"x": x}) for x in range(len(ids))])


def append(stored: ix.StoredCollection, count: int, mode: Any = "upsert") -> ix.WriteResult:  # noqa: ANN401
    return stored.put(items(stored, [None] * count), mode)


@pytest.mark.parametrize("mode", ["upsert", "insert"])
def test_items_without_ids_are_numbered_from_zero_on(
    stored: ix.StoredCollection, mode: str
) -> None:
    assert append(stored, 3, mode) == ix.WriteResult(3, 0, ("0", "2"))
    assert append(stored, 1, mode) == ix.WriteResult(1, 0, ("3", "3"))
    assert append(stored, 2, mode) == ix.WriteResult(2, 0, ("4", "5"))
    assert [*held(stored)] == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("taken", "first"),
    [
        (["5"], 6),
        (["a", "b"], 0),
        (["9", "2"], 10),
        (["007"], 8),
        (["-3", "1.5", "2e3", " 4"], 0),  # no numbers that are ever given
        ([str(2**63), "f" * 16, "1" * 16], 0),  # hashes
        (["999999999999999"], 10**15),
    ],
)
def test_the_next_number_is_above_all_that_users_gave(
    stored: ix.StoredCollection, taken: list[str], first: int
) -> None:
    put(stored, {item_id: 1 for item_id in taken})
    assert append(stored, 2).ids == (str(first), str(first + 1))
    assert len(stored) == len(taken) + 2


def test_numbers_that_are_taken_beyond_those_that_are_counted_are_passed_over(
    stored: ix.StoredCollection,
) -> None:
    put(stored, {str(number): 1 for number in (10**15 - 2, 10**15 + 1, 10**15 + 3)})
    assert append(stored, 2).ids == (str(10**15 - 1), str(10**15))
    assert append(stored, 2).ids == (str(10**15 + 4), str(10**15 + 5))
    assert len(stored) == 7


def test_items_with_and_without_ids_come_together(stored: ix.StoredCollection) -> None:
    put(stored, {"a": 1})
    batch = items(stored, [None, "7", None, "a", None, "7"])
    assert stored.put(batch) == ix.WriteResult(4, 1, ("8", "10"))
    assert {item_id: payload for item_id, (_, payload) in held(stored).items()} == {
        "8": b'{"x":0}', "9": b'{"x":2}', "a": b'{"x":3}', "10": b'{"x":4}', "7": b'{"x":5}',
    }  # fmt: skip
    with pytest.raises(ix.InvalidId, match="255 characters") as caught:
        stored.put(items(stored, [None, ""]))
    assert caught.value.loc == (1, "id")


def test_a_write_that_fails_uses_no_number(stored: ix.StoredCollection, tmp_path: Path) -> None:
    put(stored, {"a": 1, "3": 1})
    with pytest.raises(ix.ItemExists) as caught:
        stored.put(items(stored, [None, "9", "a"]), "insert")
    assert caught.value.row == 2
    with log_limited(tmp_path, 50_000), pytest.raises(ix.DiskFull):
        append(stored, 3000)
    assert append(stored, 2).ids == ("4", "5")


def test_many_append_at_once_beside_ids_of_users(stored: ix.StoredCollection) -> None:
    """Whoever is first: no item takes the place of another."""
    start, results = threading.Barrier(4), list[ix.WriteResult]()

    def append_some() -> None:
        start.wait()
        results.extend(append(stored, size) for size in [1, 3, 1, 7] * 5)

    def put_some() -> None:
        start.wait()
        for number in range(0, 400, 20):
            put(stored, {str(number): 1}, "upsert")

    with ThreadPoolExecutor(4) as pool:
        works = [append_some, append_some, append_some, put_some]
        for work in [pool.submit(work) for work in works]:
            work.result()
    ranges = [range(int(ids[0]), int(ids[1]) + 1) for ids in (each.ids for each in results) if ids]
    given = [number for each in ranges for number in each]
    assert len(given) == len({*given}) == 3 * 60
    assert sum(each.updated for each in results) == 0
    assert {*map(str, given)} <= {*held(stored)}


Rows = list[tuple[str, int]]


def put_at(stored: ix.StoredCollection, rows: Rows) -> None:
    """Put items under their own sequence numbers; the vector of each is made of its number."""
    items = batch(stored, [item_id for item_id, _ in rows], [number for _, number in rows])
    stored.commit(stored.prepare(items, sequences=[number for _, number in rows]))


def numbers(stored: ix.StoredCollection) -> Rows:
    """Return what memory and file hold, which is the same, as ids and numbers."""
    view = stored.memory.view
    live = [row for row in range(len(view)) if view.alive[row]]
    found = [(view.ids[row], int(view.sequences[row])) for row in live]
    chunks = [*stored.store.chunks()]
    assert found == [
        pair for chunk in chunks for pair in zip(chunk.ids, chunk.sequences, strict=True)
    ]
    return found


def test_items_without_numbers_follow_those_that_brought_theirs(
    stored: ix.StoredCollection,
) -> None:
    put_at(stored, [("a", 7)])
    put(stored, {"b": 1})
    put_at(stored, [("c", 9), ("d", 30)])
    put(stored, {"e": 1, "f": 2})
    assert numbers(stored) == [("a", 7), ("b", 8), ("c", 9), ("d", 30), ("e", 31), ("f", 32)]


def test_numbers_go_on_behind_a_deleted_item(stored: ix.StoredCollection, tmp_path: Path) -> None:
    put_at(stored, [("a", 50)])
    stored.delete(["a"])
    with pytest.raises(ix.InvalidParameter):
        put_at(stored, [("b", 50)])
    put_at(stored, [("b", 51)])
    assert reopened(stored, tmp_path) == holding({"b": 51})


def test_numbers_that_there_were_are_refused_and_nothing_is_changed(
    stored: ix.StoredCollection,
) -> None:
    put_at(stored, [("a", 5), ("b", 9)])
    for first in (1, 9):
        with pytest.raises(ix.InvalidParameter, match="from 10 on"):
            put_at(stored, [("c", first), ("d", 70)])
    assert numbers(stored) == [("a", 5), ("b", 9)]
    put_at(stored, [("c", 10)])


@pytest.mark.parametrize("wrong", [[3], [3, 3], [4, 3], [1, 2, 3]])
def test_numbers_that_are_not_one_an_item_or_do_not_rise_are_refused(
    stored: ix.StoredCollection, wrong: list[int]
) -> None:
    with pytest.raises(ix.InvalidParameter):
        stored.prepare(batch(stored, ["a", "b"], [1, 2]), sequences=wrong)


def test_equal_scores_are_found_in_any_numbering(stored: ix.StoredCollection) -> None:
    put_at(stored, [("b", 1), ("a", 100)])
    stored.put(batch(stored, ["b", "a"], [2, 2]))
    query = stored.space.from_items([vector(2)])
    assert ids_of(stored.search(query, ix.SearchParams())[0]) == ["a", "b"]


@pytest.mark.parametrize(("doomed", "deleted"), [(["a", "z"], 1), (["z"], 0)])
def test_a_delete_stores_how_far_a_load_has_come(
    stored: ix.StoredCollection, doomed: list[str], deleted: int
) -> None:
    put(stored, {"a": 1, "b": 2})
    record = ix.LoadRecord("k", 7, "{}")
    assert stored.delete(doomed, record) == deleted
    assert stored.loads(0) == [record]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 5)), min_size=1, max_size=6),
        max_size=6,
    )
)
def test_any_rising_numbers_are_those_of_the_last_put(writes: list[list[tuple[str, int]]]) -> None:
    stored = ix.StoredCollection.in_memory("things", ix.CollectionConfig(dim=DIM))
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
