"""Profiles beside counts by hand: similarities, non-zeros, S-curves, buckets."""

import itertools
from collections import Counter

import numpy as np
import pytest

from gcws_search.index import (
    CollectionConfig,
    ExactParams,
    FourierParams,
    GcwsParams,
    ItemBatch,
    SparseVector,
    StoredCollection,
    Transform,
    profile,
)
from gcws_search.index.collection.profile import Histogram
from gcws_search.index.contracts.arrays import Float64s
from tests.support.data.generated import Floats
from tests.support.index.small_index import all_scores
from tests.support.statistics import SIGMAS

DIM = 12


def signed(rng: np.random.Generator, n: int) -> Floats:
    rows = rng.standard_normal((n, DIM)).astype(np.float32)
    rows[rng.random((n, DIM)) < 0.4] = 0
    rows[:, 0] += 1
    return rows


def filled(rows: Floats, config: CollectionConfig) -> StoredCollection:
    collection = StoredCollection.in_memory("things", config)
    sparse = [SparseVector(np.flatnonzero(row), row[row != 0]) for row in rows]
    ids = [*map(str, range(len(rows)))]
    raw = collection.space.from_items(sparse)
    collection.put(ItemBatch(ids, raw, [None] * len(rows)))
    return collection


def counted(values: Float64s, edges: Float64s) -> list[int]:
    """Return how many values lie from each edge on, below the next; the last edge counts below."""
    return [
        sum(bool(low <= value < high or value == high == edges[-1]) for value in values)
        for low, high in itertools.pairwise(edges.tolist())
    ]


def assert_counts(found: Histogram, values: Float64s) -> None:
    """Check a histogram; a value may be in the next bin, for scores are right to rounding."""
    for shift in (-1e-9, 0.0, 1e-9):
        if found.counts.tolist() == counted(np.clip(values + shift, 0, 1), found.edges):
            return
    assert found.counts.tolist() == counted(values, found.edges)


@pytest.mark.parametrize("dim", [DIM, 5000, None])
def test_neighbours_and_nonzeros_are_those_of_all_items(
    rng: np.random.Generator, dim: int | None
) -> None:
    rows = signed(rng, 90)
    found = profile(filled(rows, CollectionConfig(dim=dim, backend=ExactParams())).memory)
    scores = all_scores(rows, rows, DIM)
    np.fill_diagonal(scores, -1)
    best = -np.sort(-scores, axis=1)
    assert (found.items, found.sample) == (90, 90)
    assert_counts(found.first, best[:, 0])
    assert_counts(found.tenth, best[:, 9])
    counts = np.count_nonzero(rows, axis=1)
    assert found.nonzeros.counts.tolist() == np.bincount(counts)[counts.min() :].tolist()
    assert found.nonzeros.edges.tolist() == [*range(counts.min(), counts.max() + 2)]
    assert found.negative == (rows < 0).sum() / counts.sum()
    assert found.depths == []


def test_random_pairs_are_of_two_items_and_like_all_pairs(rng: np.random.Generator) -> None:
    rows = signed(rng, 60)
    collection = filled(rows, CollectionConfig(dim=DIM))
    runs = np.array([profile(collection.memory, seed=seed).pairs.counts for seed in range(200)])
    scores = all_scores(rows, rows, DIM)
    expected, _ = np.histogram(scores[~np.eye(60, dtype=bool)], 50, (0.0, 1.0))
    totals = runs.sum(axis=1)
    assert (totals > 0.95 * 600).all()
    assert (totals < 600).any()  # an item that met itself is left out
    shares = runs / totals[:, None]
    # Items share partners, so the error is that of the runs, which are independent.
    error = shares.std(axis=0, ddof=1) / np.sqrt(len(runs))
    wrong = np.abs(shares.mean(axis=0) - expected / expected.sum())
    assert (wrong <= SIGMAS * error + 1e-12).all()
    assert runs[:, -1].sum() == 0


def test_wide_counts_have_few_bins() -> None:
    rows = np.tril(np.ones((100, 100), np.float32))
    collection = StoredCollection.in_memory("things", CollectionConfig(dim=100))
    ids = [*map(str, range(100))]
    collection.put(ItemBatch(ids, collection.space.from_dense(rows), [None] * 100))
    found = profile(collection.memory).nonzeros
    assert found.edges.tolist() == [*range(1, 102, 4)]
    assert found.counts.tolist() == [4] * 25


@pytest.mark.parametrize(
    ("params", "samples", "floor"),
    [
        (GcwsParams(), [*range(1, 17)], 1 / 16),
        (GcwsParams(encoding="b_bit", bits=8), [*range(1, 9)], 1 / 256),
        (GcwsParams(bands=10, band_width=3), [3], 0.0),
    ],
    ids=["prefix", "b_bit", "classical"],
)
def test_curves_and_buckets_of_each_depth(
    rng: np.random.Generator, params: GcwsParams, samples: list[int], floor: float
) -> None:
    centres = signed(rng, 6)
    rows = centres[rng.integers(6, size=120)] * (1 + 1e-3 * rng.random((120, 1)))
    collection = filled(rows.astype(np.float32), CollectionConfig(dim=DIM, backend=params))
    doomed = [*map(str, range(0, 120, 5))]
    collection.delete(doomed)
    found = profile(collection.memory)
    assert [each.samples for each in found.depths] == samples
    keys = collection.memory.backend.encode(collection.memory.view.vectors)[:, 0].tolist()
    bits = 64 if params.band_width else 64 // len(samples)
    for depth, each in enumerate(found.depths, 1):
        s = found.similarities
        one = (s + (1 - s) * floor) ** each.samples
        np.testing.assert_allclose(each.probabilities, 1 - (1 - one) ** params.bands, atol=1e-12)
        live = [row for row in range(120) if row % 5]
        prefix = {row: int(keys[row]) >> (64 - depth * bits) for row in live}
        sizes = Counter(prefix.values())
        assert each.buckets == len(sizes)
        assert each.mean_size == pytest.approx(sum(n * n for n in sizes.values()) / len(live))
        assert [bucket.size for bucket in each.largest] == [n for _, n in sizes.most_common(10)]
        assert all(sizes[prefix[int(bucket.id)]] == bucket.size for bucket in each.largest)


def test_buckets_span_segments(rng: np.random.Generator) -> None:
    collection = StoredCollection.in_memory("things", CollectionConfig(dim=DIM))
    one = signed(rng, 1)
    for first in (0, 600, 640):
        rows = np.repeat(one, 600 if first == 0 else 40, axis=0)
        ids = [str(first + row) for row in range(len(rows))]
        raw = collection.space.from_dense(rows)
        collection.put(ItemBatch(ids, raw, [None] * len(rows)))
    assert len(collection.memory.view.state.tables.segments) > 1
    for each in profile(collection.memory).depths:
        assert (each.buckets, each.mean_size, each.largest[0].size) == (1, 680, 680)


def test_a_profile_is_of_the_rows_as_they_are_scored(rng: np.random.Generator) -> None:
    rows = np.abs(signed(rng, 40)) + np.float32(0.1)
    center = Transform(center=(0.5,) * DIM)
    found = profile(filled(rows, CollectionConfig(dim=DIM, transform=center)).memory)
    assert found.negative == pytest.approx((rows < 0.5).sum() / rows.size)


def test_the_same_seed_looks_at_the_same_items(rng: np.random.Generator) -> None:
    collection = filled(signed(rng, 200), CollectionConfig(dim=DIM))
    first = profile(collection.memory, sample=50, seed=3).to_dict()
    assert profile(collection.memory, sample=50, seed=3).to_dict() == first
    assert profile(collection.memory, sample=50, seed=4).to_dict() != first


@pytest.mark.parametrize("backend", [GcwsParams(), FourierParams(kind="rff", features=16)])
@pytest.mark.parametrize("items", [0, 1])
def test_few_items_have_a_profile(
    rng: np.random.Generator, backend: GcwsParams | FourierParams, items: int
) -> None:
    found = profile(filled(signed(rng, items), CollectionConfig(dim=DIM, backend=backend)).memory)
    assert found.items == found.sample == items
    assert [histogram.counts.sum() for histogram in (found.pairs, found.first, found.tenth)] == [
        0, 0, 0,
    ]  # fmt: skip
    assert found.nonzeros.counts.sum() == items
    assert all(each.buckets == items for each in found.depths)
