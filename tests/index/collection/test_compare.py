"""What a comparison says, beside the same counted by hand."""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gcws_search.index.backends.exact import ExactBackend
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    ExactParams,
    FourierParams,
    Rerank,
    SearchParams,
)
from tests.support.data.generated import Floats, clustered
from tests.support.index.items import opened_catalog
from tests.support.reference import kernels, mathematics

DIM, ITEMS, LIMIT = 8, 150, 4
ROUGH = FourierParams(kind="rff", features=6)
"""So few features that much is missed."""

Vector = dict[int, float]
Truth = Callable[[Vector, Vector], float]


def rbf(u: Vector, v: Vector) -> float:
    return kernels.kernel("rbf", u, v, gamma=ROUGH.gamma)


def vectors_of(rows: Floats) -> list[Vector]:
    return [{d: float(x) for d, x in enumerate(row)} for row in rows]


def counted(
    stored: StoredCollection, rows: Floats, queries: Floats, rerank: Rerank, truth: Truth
) -> float:
    """Return the mean share of the best items by ``truth`` among the hits."""
    params = SearchParams(limit=LIMIT, candidates=LIMIT, rerank=rerank)
    found = stored.search(stored.space.from_dense(queries), params, backend="rff")
    items = vectors_of(rows)
    shares = []
    for query, result in zip(vectors_of(queries), found, strict=True):
        ranked = sorted(range(len(items)), key=lambda i: -truth(query, items[i]))
        shares.append(len({str(i) for i in ranked[:LIMIT]} & set(result.ids)) / LIMIT)
    return float(np.mean(shares))


def test_recalls_are_those_counted_by_hand(tmp_path: Path, rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, ITEMS, 25, dim=DIM)
    catalog = opened_catalog(tmp_path)
    stored, _ = catalog.create("things", CollectionConfig(dim=DIM, backend=ExactParams()))
    ids = [str(i) for i in range(ITEMS)]
    stored.put(ItemBatch(ids, stored.space.from_dense(rows), [None] * ITEMS))
    stored.attach(ROUGH)
    params = SearchParams(limit=LIMIT, candidates=LIMIT)
    found = stored.compare([stored.space.from_dense(queries)], params)
    exact, rough = found.backends
    assert (exact.recall, exact.recall_own) == (1.0, 1.0)
    by_gmm = counted(stored, rows, queries, "gmm", mathematics.gmm)
    by_own = counted(stored, rows, queries, "own", rbf)
    assert 0 < by_gmm < by_own < 1
    assert rough.recall == pytest.approx(by_gmm)
    assert rough.recall_own == pytest.approx(by_own)
    nearest = [
        np.mean(sorted(mathematics.gmm(query, row) for row in vectors_of(rows))[-LIMIT:])
        for query in vectors_of(queries)
    ]
    assert found.similarities == pytest.approx(nearest, rel=1e-5)
    catalog.close()


def test_items_of_equal_score_are_as_good_as_each_other(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path)
    stored, _ = catalog.create("things", CollectionConfig(dim=2, backend=ExactParams()))
    rows = np.ones((30, 2), np.float32)
    stored.put(ItemBatch([str(i) for i in range(30)], stored.space.from_dense(rows), [None] * 30))
    stored.attach(ROUGH)
    found = stored.compare(None, SearchParams(limit=3, candidates=3), sample=30)
    assert [backend.recall for backend in found.backends] == [1.0, 1.0]
    assert [backend.recall_own for backend in found.backends] == [1.0, 1.0]
    assert found.similarities == pytest.approx(np.ones(30))
    catalog.close()


def test_items_may_be_left_out_of_the_hits_of_queries(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    rows, _ = clustered(rng, ITEMS, 25, dim=DIM)
    catalog = opened_catalog(tmp_path)
    stored, _ = catalog.create("things", CollectionConfig(dim=DIM, backend=ExactParams()))
    vectors, ids = stored.space.from_dense(rows), [str(i) for i in range(ITEMS)]
    stored.put(ItemBatch(ids, vectors, [None] * ITEMS))
    some, params = vectors[np.arange(10)], SearchParams(limit=LIMIT)
    whole = stored.compare([some], params)
    left_out = stored.compare([some], params, skip=[*ids[:9], "none"])
    assert (whole.best.max(axis=1) == 1).all()
    assert [*(left_out.best.max(axis=1) < 1)] == [True] * 9 + [False]
    assert [each.recall for each in left_out.backends] == [1.0]


def test_a_comparison_ends_at_the_next_query_once_nobody_waits(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    rows, queries = clustered(rng, ITEMS, 25, dim=DIM)
    catalog = opened_catalog(tmp_path)
    stored, _ = catalog.create("things", CollectionConfig(dim=DIM, backend=ExactParams()))
    ids = [str(i) for i in range(ITEMS)]
    stored.put(ItemBatch(ids, stored.space.from_dense(rows), [None] * ITEMS))
    stop, searches = threading.Event(), list[int]()
    search = ExactBackend.search

    def counted_search(*words: Any) -> Any:  # noqa: ANN401
        searches.append(1)
        if len(searches) == 3:
            stop.set()
        return search(*words)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ExactBackend, "search", counted_search)
        with pytest.raises(CancelledError):
            stored.compare([stored.space.from_dense(queries)], SearchParams(), stop=stop)
    assert len(searches) == 3
    catalog.close()
