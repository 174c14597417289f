"""Joins find what brute force finds by each of their ways, in bounded memory."""

import threading
from concurrent.futures import CancelledError
from typing import Final

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.index.kernels.sparse.prefix_join import MAX_ENTRIES
from tests.support.data.adapters import raw_of
from tests.support.index.items import in_memory
from tests.support.index.small_index import all_scores

DIM = 60
EXACT: Final = ix.ExactParams()
Hits = dict[tuple[int, str], float]


def made(rng: np.random.Generator, count: int, base: np.ndarray) -> np.ndarray:
    rows = base[rng.integers(0, len(base), count)].copy()
    changed = rng.random(rows.shape) < 0.06
    rows[changed] += rng.poisson(1.0, changed.sum())
    return rows.astype(np.float32)


def collection_of(
    rows: np.ndarray, *, dim: int | None, backend: ix.BackendParams = EXACT
) -> ix.StoredCollection:
    return in_memory(ix.CollectionConfig(dim=dim, backend=backend), rows)


def joined(
    collection: ix.StoredCollection, queries: np.ndarray, params: ix.JoinParams
) -> tuple[Hits, list[ix.JoinedRows]]:
    raw = raw_of(collection.space, queries)
    parts = [*collection.join(params)(raw)]
    hits = {
        (row, to): score
        for part in parts
        for row, to, score in zip(part.rows.tolist(), part.to, part.scores.tolist(), strict=True)
    }
    assert len(hits) == sum(len(part.to) for part in parts)
    return hits, parts


@pytest.mark.parametrize("least", [0.3, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("dim", [DIM, None])
def test_joins_of_many_runs_are_brute_force(
    rng: np.random.Generator, dim: int | None, least: float
) -> None:
    base = rng.poisson(0.6, (100, DIM)) * rng.choice([-1, 1], (100, DIM))
    base[:, 0] = 2
    rows, queries = made(rng, 900, base), made(rng, 1500, base)
    queries[::7] *= rng.choice([0.5, 3.0], (len(queries[::7]), 1))  # either may be the greater
    collection = collection_of(rows, dim=dim)
    params = ix.JoinParams(min_score=least, recall=1.0)
    hits, parts = joined(collection, queries, params)
    scores = all_scores(queries, rows, DIM)
    found = np.argwhere(scores >= least).tolist()
    expected = {(query, str(row)): float(scores[query, row]) for query, row in found}
    assert hits.keys() == expected.keys()
    assert hits == pytest.approx(expected, abs=1e-12)
    assert len(parts) > 2  # enough to have tried each way
    assert [part.end for part in parts] == sorted({part.end for part in parts})


@pytest.mark.parametrize("dim", [DIM, None])
def test_of_many_items_of_one_score_those_of_the_first_ids_are_hits(dim: int | None) -> None:
    collection = collection_of(np.ones((200, DIM), np.float32), dim=dim)
    queries = np.ones((3, DIM), np.float32)
    hits, _ = joined(collection, queries, ix.JoinParams(limit=2, recall=1.0))
    assert hits == {(query, name): 1.0 for query in range(3) for name in "01"}


def joined_lately(collection: ix.StoredCollection, query: ix.SparseVector, least: float) -> Hits:
    """Return the hits of a vector among so many that folding the items is worth it."""
    before = [ix.SparseVector([number], [1.0]) for number in range(200)]
    raw = collection.space.from_items([*before, query, *before])
    params = ix.JoinParams(min_score=least, recall=1.0)
    return {
        (row, to): score
        for part in collection.join(params)(raw)
        for row, to, score in zip(part.rows.tolist(), part.to, part.scores.tolist(), strict=True)
        if row == len(before)
    }


def test_a_vector_too_long_for_lists_is_joined_as_well() -> None:
    collection = collection_of(np.eye(DIM, dtype=np.float32), dim=None)
    count = MAX_ENTRIES + 1
    indices, values = np.arange(1000, 1000 + count), np.full(count, 2.0**-30)
    item = ix.SparseVector([int(indices[-1])], [1.0])
    collection.put(ix.ItemBatch(["last"], collection.space.from_items([item]), [None]))
    values[-1] = 1
    hits = joined_lately(collection, ix.SparseVector(indices, values), 0.5)
    assert hits == {(200, "last"): pytest.approx(1 / (1 + (count - 1) * 2.0**-30))}


def test_long_vectors_that_are_equal_are_found_where_float32_sums_are_off() -> None:
    collection = collection_of(np.eye(DIM, dtype=np.float32), dim=None)
    long = ix.SparseVector(np.arange(50_000), np.full(50_000, 0.1))
    collection.put(ix.ItemBatch(["same"], collection.space.from_items([long]), [None]))
    assert joined_lately(collection, long, 1.0) == {(200, "same"): 1.0}


def test_a_join_at_some_recall_finds_that_share(rng: np.random.Generator) -> None:
    base = rng.gamma(0.5, size=(400, DIM))
    rows, queries = made(rng, 3000, base), made(rng, 800, base)
    for dim in (DIM, None):
        collection = collection_of(rows, dim=dim, backend=ix.GcwsParams())
        all_hits, _ = joined(collection, queries, ix.JoinParams(min_score=0.7, recall=1.0))
        hits, _ = joined(collection, queries, ix.JoinParams(min_score=0.7, recall=0.9))
        assert hits.items() <= all_hits.items()
        assert len(hits) >= 0.9 * len(all_hits) > 800
        collection.close(dropped=True)


def test_however_many_hits_there_are_a_run_has_few_of_them(rng: np.random.Generator) -> None:
    rows = 1 + rng.random((1000, 4)).astype(np.float32) / 100
    collection = collection_of(rows, dim=4)
    raw = raw_of(collection.space, np.ones((1800, 4), np.float32))
    hits = collection.join(ix.JoinParams(min_score=0.5, recall=1.0))
    sizes = [len(part.to) for part in hits(raw)]
    assert sum(sizes) == len(raw) * len(rows)
    assert max(sizes) < 600_000


def test_a_stopped_join_ends(rng: np.random.Generator) -> None:
    collection = collection_of(rng.random((300, 4)).astype(np.float32), dim=4)
    raw, stop = collection.space.from_dense(rng.random((500, 4))), threading.Event()
    parts = collection.join(ix.JoinParams(limit=1), stop=stop)(raw)
    next(parts)
    stop.set()
    with pytest.raises(CancelledError):
        next(parts)
