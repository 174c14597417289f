"""Sparse items that share nothing with a query score 0: they follow the others, the first by id."""

from random import Random

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.index.collection.catalog import Catalog
from tests.support.data.payloads import encode_payload

SLOTS, MANY = 40, 8000
Model = dict[str, int]
"""The coordinate that an item has, by its id."""


def rows(stored: ix.StoredCollection, slots: list[int]) -> ix.RawBatch:
    """Return vectors of one coordinate each."""
    count = len(slots)
    return stored.space.from_sparse(np.arange(count + 1), np.array(slots), np.ones(count))


def put(stored: ix.StoredCollection, items: Model) -> None:
    vectors = rows(stored, [*items.values()])
    payloads = [encode_payload({"odd": slot % 2}) for slot in items.values()]
    stored.put(ix.ItemBatch([*items], vectors, payloads))


def expected(model: Model, slot: int, limit: int) -> list[tuple[str, float]]:
    scores = {each: float(own == slot) for each, own in model.items()}
    ranked = sorted(scores.items(), key=lambda hit: (-hit[1], hit[0]))
    return ranked[:limit]


def found(
    stored: ix.StoredCollection,
    slot: int,
    limit: int,
    where: ix.Filter | None = None,
    *,
    times: int = 1,
) -> list[tuple[str, float]]:
    queries = rows(stored, [slot] * times)
    first, *others = stored.search(queries, ix.SearchParams(limit=limit, recall=1), where=where)
    assert all((each.ids, each.scores) == (first.ids, first.scores) for each in others)
    return [*zip(first.ids, first.scores, strict=True)]


@pytest.fixture
def filled(catalog: Catalog) -> tuple[ix.StoredCollection, Model]:
    random = Random(3)
    model = {str(random.randrange(10**6)): random.randrange(SLOTS) for _ in range(MANY)}
    stored, _ = catalog.create("things", ix.CollectionConfig(dim=None))
    put(stored, model)
    return stored, model


@pytest.mark.parametrize("times", [1, 3])
def test_they_follow_by_id_whatever_was_put_changed_and_deleted(
    filled: tuple[ix.StoredCollection, Model], times: int
) -> None:
    stored, model = filled
    random = Random(times)
    odd = ix.parse_filter({"must": [{"key": "odd", "match": {"value": 1}}]})
    for _ in range(6):
        for slot, limit in ((3, 200), (SLOTS + 1, 7), (random.randrange(SLOTS), 1000)):
            assert found(stored, slot, limit, times=times) == expected(model, slot, limit)
            some = expected({each: own for each, own in model.items() if own % 2}, slot, limit)
            assert found(stored, slot, limit, odd, times=times) == some
        gone = sorted(model)[:1200]  # those that came first
        stored.delete(gone)
        model = {each: slot for each, slot in model.items() if each not in set(gone)}
        more = {random.choice([*model]): random.randrange(SLOTS) for _ in range(30)}
        more |= {str(random.randrange(10**4)): random.randrange(SLOTS) for _ in range(400)}
        put(stored, more)
        model |= more


def test_an_item_asked_for_by_its_id_is_not_among_them(
    filled: tuple[ix.StoredCollection, Model],
) -> None:
    stored, model = filled
    first = min(model)
    [hits] = stored.search_around([first], ix.SearchParams(limit=500, recall=1))
    others = {each: slot for each, slot in model.items() if each != first}
    assert [*zip(hits.ids, hits.scores, strict=True)] == expected(others, model[first], 500)


def test_a_reader_of_before_a_change_finds_the_rows_of_then(
    filled: tuple[ix.StoredCollection, Model],
) -> None:
    stored, model = filled
    memory, params = stored.memory, ix.SearchParams(limit=500, recall=1)
    before = memory.view
    query = stored.space.prepare(rows(stored, [SLOTS + 1]))
    put(stored, {each: 0 for each in sorted(model)[:20]})
    for view in (memory.view, before):
        [hits] = memory.search(view, query, params)
        assert [*zip(hits.ids, hits.scores, strict=True)] == expected(model, SLOTS + 1, 500)


def test_none_is_returned_where_a_score_is_asked_for(
    filled: tuple[ix.StoredCollection, Model],
) -> None:
    stored, model = filled
    queries = rows(stored, [3])
    [hits] = stored.search(queries, ix.SearchParams(limit=1000, recall=1, min_score=1e-9))
    assert {*hits.ids} == {each for each, slot in model.items() if slot == 3}
