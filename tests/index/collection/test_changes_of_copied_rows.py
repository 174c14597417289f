"""Rows that are put, replaced and removed after their collection has copies of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.arrays import AnyArray
from gcws_search.index.contracts.batches import MIN_COPIED_FLOATS
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    GcwsParams,
    SearchParams,
)
from gcws_search.index.payload.filters import parse_filter
from tests.support.index.items import opened_catalog
from tests.support.index.small_index import all_scores

DIM = 64
COUNT = MIN_COPIED_FLOATS // DIM + 200
LIMIT = 5
EVEN = {"must": [{"key": "even", "match": {"value": True}}]}


class Shelf:
    """A collection, and what it should hold by number of item."""

    def __init__(self, stored: StoredCollection) -> None:
        self.stored = stored
        self.rows: dict[int, AnyArray] = {}

    def put(self, numbers: Sequence[int], rows: AnyArray) -> None:
        single = rows.astype(np.float32)
        payloads: list[bytes | None] = [
            b'{"even":true}' if n % 2 == 0 else b'{"even":false}' for n in numbers
        ]
        raw = self.stored.space.from_dense(single)
        self.stored.put(ItemBatch([f"i{n}" for n in numbers], raw, payloads))
        self.rows.update(zip(numbers, single, strict=True))

    def remove(self, numbers: Sequence[int]) -> None:
        self.stored.delete([f"i{n}" for n in numbers])
        for n in numbers:
            del self.rows[n]

    def check(self, queries: AnyArray) -> None:
        """Check that exact searches find what brute force finds, with a filter and without."""
        single = queries.astype(np.float32)
        for filtered in (False, True):
            numbers = [n for n in self.rows if not (filtered and n % 2)]
            truth = all_scores(single, np.stack([self.rows[n] for n in numbers]), DIM)
            params = SearchParams(limit=LIMIT, recall=1.0)
            where = parse_filter(EVEN) if filtered else None
            asked = self.stored.space.from_dense(single)
            for result, scores in zip(
                self.stored.search(asked, params, where=where), truth, strict=True
            ):
                best = np.argsort(-scores)[:LIMIT]
                assert result.ids == [f"i{numbers[i]}" for i in best]
                found = result.scores
                np.testing.assert_allclose(found, scores[best], rtol=1e-12)

    def has_copies(self) -> bool:
        return self.stored.memory.view.vectors.copies is not None


@pytest.mark.parametrize("backend", [ExactParams(), GcwsParams(bands=4)], ids=["exact", "gcws"])
def test_every_change_is_seen_by_the_next_exact_search(
    backend: BackendParams, tmp_path: Path, rng: np.random.Generator
) -> None:
    rows, queries = rng.standard_normal((COUNT + 1000, DIM)), rng.standard_normal((6, DIM))
    catalog = opened_catalog(tmp_path)
    config = CollectionConfig(dim=DIM, backend=backend)
    shelf = Shelf(catalog.create("things", config)[0])
    shelf.put(range(COUNT), rows[:COUNT])
    assert shelf.has_copies()
    shelf.check(queries)
    for n in range(3):  # one at a time: nearest of all, and some that outgrow the bytes
        shelf.put([COUNT + n], queries[n : n + 1] * 0.99)
        shelf.put([COUNT + 10 + n], 1e4 * queries[n : n + 1])
    shelf.check(queries)
    shelf.check(1e4 * queries)
    shelf.put(range(100, 400), 30 * rows[COUNT : COUNT + 300])  # replaced
    shelf.check(queries)
    shelf.check(30 * rows[COUNT : COUNT + 3] + queries[:3])
    shelf.remove([COUNT, COUNT + 11, *range(500, 700)])
    shelf.check(queries)
    catalog.close()
    catalog = opened_catalog(tmp_path)
    shelf.stored = catalog.get("things")
    assert shelf.has_copies()
    shelf.check(queries)
    shelf.stored.memory.compact()
    shelf.put(range(2000, 2100), rows[-100:])
    shelf.check(queries)
    shelf.check(rows[-3:])
    catalog.close()
