"""Items that expire: found by nothing from that instant on, and deleted in the background."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gcws_search import index as ix
from gcws_search.index.collection.expiry import lasting
from tests.support.index.items import DIM, Clock, batch, opened_catalog, put, vector
from tests.support.pausing import paused_at
from tests.support.waiting_writes import together

DAY = 86_400.0
MARK = ix.PayloadChange(b'{"seen":true}', merge=True)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def catalog(tmp_path: Path, clock: Clock) -> Iterator[ix.Catalog]:
    with closing(opened_catalog(tmp_path, clock=clock)) as catalog:
        yield catalog


def made(catalog: ix.Catalog, **more: Any) -> ix.StoredCollection:  # noqa: ANN401
    config = ix.CollectionConfig(dim=DIM, backend=ix.GcwsParams(bands=2), **more)
    return catalog.create("things", config)[0]


@pytest.fixture
def stored(catalog: ix.Catalog) -> ix.StoredCollection:
    return made(catalog)


def put_until(
    stored: ix.StoredCollection, values: dict[str, float], expires: list[float | None]
) -> ix.WriteResult:
    """Put items that expire at times in seconds."""
    items = batch(stored, [*values], [*values.values()])
    times = [None if at is None else round(at * 1000) for at in expires]
    return stored.put(replace(items, expires=times))


def shown(stored: ix.StoredCollection) -> dict[str, tuple[float | None, int]]:
    """Return when each item expires, and its version, after every way of reading agrees."""
    items = stored.page(limit=10_000).items
    ids = {item.id for item in items}
    assert stored.count() == len(stored) == stored.describe().items == len(items)
    for item in items:
        assert stored.get(item.id) == replace(item, vector=stored.get(item.id).vector)
    query = stored.space.from_items([vector(1.0)])
    for recall in (0.9, 1.0):
        [hits] = stored.search(query, ix.SearchParams(limit=10_000, recall=recall))
        assert {*hits.ids} == ids if recall == 1.0 else {*hits.ids} <= ids
    return {
        item.id: (None if item.expires is None else item.expires / 1000, item.version)
        for item in items
    }


def test_an_expired_item_is_found_by_nothing_while_the_file_still_has_it(
    stored: ix.StoredCollection, clock: Clock
) -> None:
    put(stored, {"a": 1.0, "b": 1.1})
    put_until(stored, {"x": 1.05}, [clock.now + 10])
    query, params = stored.space.from_items([vector(1.05)]), ix.SearchParams(limit=5, recall=1)
    where = ix.parse_filter({"must": [{"key": "x", "range": {"gt": 1.04, "lt": 1.06}}]})
    assert stored.count(where) == 1
    clock.now += 9.999
    [hits] = stored.search(query, params)
    assert {*hits.ids} == {"a", "b", "x"}
    clock.now += 0.001
    [hits] = stored.search(query, params)
    assert {*hits.ids} == {"a", "b"}
    assert len(stored.store) == 3
    assert stored.count(where) == 0
    assert {pair[:2] for pair in stored.pairs(min_score=0.1, recall=1)} == {("a", "b")}
    assert {item.id for item in stored.find("x").items} == {"a", "b"}  # by their payloads
    assert not stored.page(ids=["x"]).items
    for read in (stored.get, stored.cursor_behind):
        with pytest.raises(ix.ItemNotFound):
            read("x")
    with pytest.raises(ix.ItemNotFound):
        stored.search_around(["x"], params)
    assert len(stored.store) == 3
    assert stored.delete(["x"]) == 0
    assert len(stored.store) == 2


def test_a_write_meets_no_item_that_has_expired(stored: ix.StoredCollection, clock: Clock) -> None:
    put_until(stored, {"a": 1.0, "b": 2.0}, [clock.now + 1, clock.now + 1])
    clock.now += 1
    assert stored.put(batch(stored, ["a"], [3.0]), "insert") == ix.WriteResult(1, 0)
    assert shown(stored) == {"a": (None, 1)}
    assert len(stored.store) == 1
    wanted = replace(batch(stored, ["b"], [4.0]), if_versions=[0])
    assert stored.put(wanted).inserted == 1
    unless = ix.UnlessSimilar(min_score=0.99, recall=1.0)
    put_until(stored, {"c": 9.0}, [clock.now + 1])
    assert stored.put(batch(stored, ["d"], [9.0]), unless).inserted == 0
    clock.now += 1
    assert stored.put(batch(stored, ["d"], [9.0]), unless).inserted == 1
    clock.now += 1
    past: list[Any] = together(
        stored.writer,
        partial(put_until, stored, {"e": -3.0}, [clock.now - 1]),
        partial(stored.put, batch(stored, ["f"], [-3.0]), unless),
    )
    assert past[-1].inserted == 1
    assert {"d", "f"} <= {*shown(stored)}


READERS: list[Callable[[ix.StoredCollection], int]] = [
    ix.StoredCollection.count,
    ix.StoredCollection.__len__,
    lambda stored: len(stored.page().items),
    lambda stored: len(stored.page(ids=["a", "x"]).items),
]


@pytest.mark.parametrize("read", READERS)
def test_a_reader_sees_no_expired_item_that_is_deleted_meanwhile(
    stored: ix.StoredCollection, clock: Clock, read: Callable[[ix.StoredCollection], int]
) -> None:
    put(stored, {"a": 1.0})
    put_until(stored, {"x": 2.0}, [clock.now + 1])
    clock.now += 1
    with paused_at(stored.memory.expirations, "hide", lambda: read(stored)) as reading:
        assert stored.delete([]) == 0  # the writer deletes what has expired
    assert reading.error is None
    assert reading.result == 1


def test_an_item_keeps_no_payload_of_one_that_has_expired(
    stored: ix.StoredCollection, clock: Clock
) -> None:
    put_until(stored, {"a": 1.0, "b": 2.0}, [clock.now + 1, None])
    clock.now += 1
    bare = replace(batch(stored, ["a", "b"], [3.0, 4.0]), payloads=[None, None])
    assert stored.commit(stored.prepare(bare, "upsert", keeps_payloads=True)).inserted == 1
    held = {item.id: item.payload for item in stored.page().items}
    assert held == {"a": None, "b": b'{"x":2.0}'}


def test_a_collections_ttl_is_that_of_items_without_a_time(
    catalog: ix.Catalog, tmp_path: Path, clock: Clock
) -> None:
    stored = made(catalog, ttl=60.0)
    put(stored, {"a": 1.0})
    put_until(stored, {"b": 2.0, "c": 3.0}, [clock.now + 2 * DAY, None])
    first = clock.now + 60
    assert shown(stored) == {"a": (first, 1), "b": (clock.now + 2 * DAY, 1), "c": (first, 1)}
    clock.now += 30
    put(stored, {"a": 1.0})
    stored.change_payloads(MARK, ["c"])
    assert shown(stored)["a"] == (first + 30, 2)
    assert shown(stored)["c"] == (first, 2)
    catalog.close()
    with closing(opened_catalog(tmp_path, clock=clock)) as again:
        stored = again.get("things")
        assert stored.config.ttl == 60.0
        clock.now += 30
        assert {*shown(stored)} == {"a", "b"}
        stored.finish_background_work()
        assert len(stored.store) == 2


def test_items_expire_under_weights_that_were_learned_meanwhile(
    stored: ix.StoredCollection, catalog: ix.Catalog, tmp_path: Path, clock: Clock
) -> None:
    put_until(stored, {"a": 1.0, "b": 2.0, "c": 3.0}, [None, clock.now + 5, clock.now + 9])
    stored.attach(ix.FourierParams(kind="rff", features=8))
    clock.now += 5
    stored.fit("max")
    assert {*shown(stored)} == {"a", "c"}
    clock.now += 4
    assert {*shown(stored)} == {"a"}
    stored.finish_background_work()
    assert len(stored.store) == 1
    catalog.close()
    assert all(report.is_sound for report in ix.check_directory(tmp_path))


def test_a_compaction_leaves_items_that_have_expired_to_the_writer(
    stored: ix.StoredCollection, clock: Clock
) -> None:
    put_until(stored, {"a": 1.0, "b": 2.0, "c": 3.0}, [None, clock.now + 5, clock.now + 9])
    put(stored, {"d": 4.0})
    stored.delete(["d"])
    clock.now += 5
    assert {*shown(stored)} == {"a", "c"}
    stored.memory.compact()
    assert {*shown(stored)} == {"a", "c"}
    clock.now += 5
    assert {*shown(stored)} == {"a"}
    stored.finish_background_work()
    assert len(stored.store) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2027-01-01T00:00:00Z", 1_798_761_600_000),
        ("2027-01-01T01:00:00.25+01:00", 1_798_761_600_250),
        (1.5, 1_800_000_001_500),
        ("1.5", 1_800_000_001_500),
        (None, None),
    ],
)
def test_times_are_read_as_ms(clock: Clock, value: str | float | None, expected: int) -> None:
    assert ix.expiry_ms(value, now=clock.now) == expected


@pytest.mark.parametrize(
    "value",
    ["2027-01-01", "2027-01-01T00:00:00", "soon", "", 0, -1.0, float("nan"), float("inf"), True],
)
def test_what_is_no_time_is_refused(value: Any) -> None:  # noqa: ANN401
    with pytest.raises(ix.InvalidParameter):
        ix.expiry_ms(value)


def test_what_is_put_at_the_instant_of_its_end_does_not_last() -> None:
    assert lasting([999, 1000, 1001, None], 4, now=1.0).tolist() == [0, 0, 1, 1]


def test_what_is_put_beside_a_compaction_keeps_its_time_and_version(
    stored: ix.StoredCollection, clock: Clock
) -> None:
    put(stored, {"a": 1.0, "b": 2.0, "c": 3.0})
    put(stored, {"a": 1.0})
    stored.change_payloads(MARK, ["a", "b"])
    compaction = stored.memory.build_compaction()
    put_until(stored, {"c": 3.0, "d": 4.0}, [clock.now + 5, None])
    stored.change_payloads(MARK, ["a", "c"])
    expected = {"b": (None, 2), "a": (None, 4), "c": (clock.now + 5, 3), "d": (None, 1)}
    assert shown(stored) == expected
    assert stored.memory.adopt_compaction(compaction)
    assert shown(stored) == expected
    clock.now += 5
    assert {*shown(stored)} == {"a", "b", "d"}
