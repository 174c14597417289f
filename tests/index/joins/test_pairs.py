"""Near-duplicate pairs against every pair compared."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

from gcws_search.index import POLICIES, Policies
from gcws_search.index.backends import make_backend
from gcws_search.index.contracts.batches import RawBatch, SparseVector
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    GcwsParams,
)
from gcws_search.index.contracts.policies import PairPolicy
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.joins import PairSink, compare_pairs
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.growing_rows import GrowingRows
from gcws_search.index.vectors.space import VectorSpace

MIN = 0.6

Found = tuple[np.ndarray, np.ndarray, np.ndarray]
Finder = Callable[..., Found]


def _finder(
    space: VectorSpace, config: CollectionConfig, raw: RawBatch, policies: Policies = POLICIES
) -> Finder:
    batch = space.prepare(raw)
    rows = GrowingRows(config.form, config.dim)
    rows.append(batch)
    backend = make_backend(config, threads=2, policies=policies)
    state = backend.extend(backend.empty(), rows.view(), backend.encode(batch))
    view = RowView(rows.view(), np.ones(len(batch), np.uint8), len(batch))

    def find(
        min_score: float,
        recall: float,
        limit: int | None = None,
        stop: threading.Event | None = None,
    ) -> Found:
        return backend.pairs(
            state, view, min_score=min_score, recall=recall, limit=limit, stop=stop
        )

    return find


def _dense(
    rng: np.random.Generator, backend: BackendParams, policies: Policies = POLICIES
) -> tuple[Finder, np.ndarray]:
    centers = rng.standard_normal((30, 12))
    rows = centers[rng.integers(0, 30, 400)] + 0.02 * rng.standard_normal((400, 12))
    rows[50:60] = rows[50]
    rows = rows.astype(np.float32)
    config = CollectionConfig(dim=12, backend=backend)
    space = VectorSpace.of(config)
    return _finder(space, config, space.from_dense(rows), policies), rows.astype(np.float64)


def _sparse(rng: np.random.Generator, backend: BackendParams) -> tuple[Finder, np.ndarray]:
    rows = rng.poisson(0.3, (1300, 20)).astype(np.float64)
    rows[:, 0] += 1
    config = CollectionConfig(dim=None, backend=backend)
    space = VectorSpace.of(config)
    raw = space.from_items([SparseVector(np.flatnonzero(row), row[row > 0]) for row in rows])
    return _finder(space, config, raw), rows


def _truth(rows: np.ndarray, least: float) -> dict[tuple[int, int], float]:
    truth = {}
    for a in range(len(rows)):
        low = np.where(
            np.sign(rows[a]) == np.sign(rows), np.minimum(np.abs(rows[a]), np.abs(rows)), 0.0
        ).sum(axis=1)
        scores = low / (np.abs(rows[a]).sum() + np.abs(rows).sum(axis=1) - low)
        for b in np.flatnonzero(scores >= least).tolist():
            if b > a:
                truth[a, b] = float(scores[b])
    return truth


@pytest.mark.parametrize("make", [_dense, _sparse])
@pytest.mark.parametrize("backend", [ExactParams(), GcwsParams(bands=8)])
def test_an_exact_join_finds_every_pair_once(
    make: Callable[..., tuple[Finder, np.ndarray]],
    backend: BackendParams,
    rng: np.random.Generator,
) -> None:
    find, rows = make(rng, backend)
    a, b, scores = find(MIN, 1.0)
    truth = _truth(rows, MIN)
    assert len(truth) > 100
    found = list(zip(a.tolist(), b.tolist(), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == set(truth)
    assert [truth[pair] for pair in found] == pytest.approx(scores.tolist(), rel=1e-12)


@pytest.mark.parametrize("make", [_dense, _sparse])
def test_a_join_of_tables_finds_the_share_asked_for(
    make: Callable[..., tuple[Finder, np.ndarray]], rng: np.random.Generator
) -> None:
    find, rows = make(rng, GcwsParams(bands=16, seed=5))
    truth = _truth(rows, MIN)
    a, b, scores = find(MIN, 0.9)
    found = set(zip(a.tolist(), b.tolist(), strict=True))
    assert found <= set(truth)
    # Pairs above the bound are found with more than 0.9; 4 sigma of as many coins.
    assert len(found) >= len(truth) * 0.9 - 4 * np.sqrt(len(truth) * 0.09)
    assert (scores >= MIN).all()


@pytest.mark.parametrize("make", [_dense, _sparse])
@pytest.mark.parametrize("recall", [0.9, 1.0])
def test_a_limit_keeps_the_most_similar_pairs_and_those_that_tie_with_the_last(
    make: Callable[..., tuple[Finder, np.ndarray]], recall: float, rng: np.random.Generator
) -> None:
    find, _ = make(rng, GcwsParams(bands=16, seed=5))
    _, _, scores = find(MIN, recall)
    ranked = np.sort(scores)[::-1]
    for limit in (1, 7, 50):
        _, _, few = find(MIN, recall, limit)
        assert sorted(few, reverse=True) == ranked[ranked >= ranked[limit - 1]].tolist()


def test_more_pairs_than_can_be_listed_are_refused_without_a_limit(
    rng: np.random.Generator,
) -> None:
    few = Policies(pairs=PairPolicy(max_pairs=20))
    find, _ = _dense(rng, GcwsParams(bands=8), few)
    with pytest.raises(InvalidParameter, match="a limit"):
        find(0.5, 0.9)
    assert len(find(0.5, 0.9, 3)[0]) == pytest.approx(3, abs=20)


def test_a_refused_list_of_pairs_stops_all_threads() -> None:
    space = VectorSpace.of(CollectionConfig(dim=4))
    view = RowView(space.prepare(space.from_dense(np.ones((3, 4)))), np.ones(3, np.uint8), 3)
    sink = PairSink(view, 0.9, None, policy=PairPolicy(max_pairs=1))
    sink.add(np.array([0, 0], np.int32), np.array([1, 2], np.int32))
    with pytest.raises(InvalidParameter):
        sink.result()
    assert sink.done


@pytest.mark.parametrize("recall", [0.9, 1.0])
def test_a_thousand_equal_items_are_joined_up_to_the_limit(recall: float) -> None:
    config = CollectionConfig(dim=4, backend=GcwsParams(bands=4))
    space = VectorSpace.of(config)
    find = _finder(space, config, space.from_dense(np.ones((1000, 4))))
    a, b, scores = find(0.9, recall, 10)
    assert len(a) >= 10
    assert (a < b).all()
    assert (scores == 1.0).all()


class _Counted(Workers):
    """Workers that tell how many parts their work had."""

    parts = 0

    def split(
        self, count: int, work: Callable[[int, int], None], *, min_size: int = 1, pieces: int = 1
    ) -> None:
        self.parts = count
        super().split(count, work, min_size=min_size, pieces=pieces)


@pytest.mark.parametrize("dim", [4096, None])
def test_every_thread_has_rows_to_compare_with_the_others(dim: int | None) -> None:
    space = VectorSpace.of(CollectionConfig(dim=dim))
    batch = space.prepare(space.from_items([SparseVector([i % 9], [1.0]) for i in range(600)]))
    view = RowView(batch, np.ones(600, np.uint8), 600)
    workers = _Counted(4)
    compare_pairs(view, InvertedIndex(), PairSink(view, 0.9, None), workers=workers)
    assert workers.parts == 4


@pytest.mark.parametrize("make", [_dense, _sparse])
@pytest.mark.parametrize("recall", [0.9, 1.0])
def test_a_join_that_nobody_waits_for_ends(
    make: Callable[..., tuple[Finder, np.ndarray]], recall: float, rng: np.random.Generator
) -> None:
    find, _ = make(rng, GcwsParams(bands=16, seed=5))
    stop = threading.Event()
    stop.set()
    assert len(find(MIN, recall, None, stop)[0]) == 0
    assert len(find(MIN, recall)[0]) > 0


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("dim", [4, None])
@pytest.mark.parametrize("recall", [0.9, 1.0])
@pytest.mark.parametrize("backend", [ExactParams(), GcwsParams(bands=4)])
def test_fewer_than_two_items_make_no_pair(
    backend: BackendParams, recall: float, dim: int | None, count: int
) -> None:
    config = CollectionConfig(dim=dim, backend=backend)
    space = VectorSpace.of(config)
    find = _finder(space, config, space.from_items([SparseVector([1], [2.0])] * count))
    for limit in (None, 3):
        assert [len(part) for part in find(0.5, recall, limit)] == [0, 0, 0]
