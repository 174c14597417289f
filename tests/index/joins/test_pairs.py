"""Near-duplicate pairs against every pair compared."""

import threading
import zlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gcws_search.index import Policies
from gcws_search.index.contracts.batches import SparseVector
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.hits import Pairs
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    GcwsParams,
)
from gcws_search.index.contracts.policies import PairPolicy
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.hashing.banding import depth_for
from gcws_search.index.joins import PairSink, compare_pairs, join_pairs
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.space import VectorSpace
from tests.support.data import generated
from tests.support.index.small_index import Mask, Rows, SmallIndex, all_scores, true_pairs, view_of
from tests.support.statistics import SIGMAS


def pairs_of(index: SmallIndex, alive: Mask | None = None, **asked: Any) -> Pairs:  # noqa: ANN401
    found: Pairs = index.backend.pairs(index.state, index.view(alive), **asked)
    return found


def found_pairs(
    index: SmallIndex, alive: npt.NDArray[np.uint8], min_score: float, recall: float
) -> dict[tuple[int, int], float]:
    a, b, scores = pairs_of(index, alive, min_score=min_score, recall=recall)
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    assert all(i < j for i, j in pairs)
    return dict(zip(pairs, scores.tolist(), strict=True))


ALL = 1200


kinds = pytest.mark.parametrize("kind", ["dense", "counts"])


@cache
def duplicated(kind: str) -> tuple[Rows, int | None, npt.NDArray[np.float64]]:
    """Return rows with many near pairs, the dimension, and all scores; made once."""
    rng = np.random.default_rng(zlib.crc32(kind.encode()))
    if kind == "dense":
        rows, _ = generated.near_duplicates(rng, ALL, 1)
        rows[50:60] = rows[50]
        return rows, 24, all_scores(rows, rows, 24)
    counts, _ = generated.counts(rng, ALL, 1, words=150)
    return counts, None, all_scores(counts, counts, 150)


@kinds
@pytest.mark.parametrize("backend", [ExactParams(), GcwsParams(bands=8)])
def test_a_recall_of_1_finds_every_pair(
    rng: np.random.Generator, kind: str, backend: BackendParams
) -> None:
    rows, dim, scores = duplicated(kind)
    index = SmallIndex(CollectionConfig(dim=dim, backend=backend)).add(rows, [1100, 3])
    alive = (rng.random(ALL) < 0.8).astype(np.uint8)
    for min_score in (0.35, 0.5):
        truth = true_pairs(scores, min_score, alive)
        assert truth
        found = found_pairs(index, alive, min_score, 1.0)
        assert found == pytest.approx(truth, rel=1e-12)


@kinds
@pytest.mark.parametrize(("min_score", "recall"), [(0.4, 0.5), (0.5, 0.9), (0.6, 0.8)])
def test_joined_pairs_are_real_and_as_many_as_asked_for(
    rng: np.random.Generator, kind: str, min_score: float, recall: float
) -> None:
    rows, dim, scores = duplicated(kind)
    alive = (rng.random(ALL) < 0.8).astype(np.uint8)
    truth = true_pairs(scores, min_score, alive)
    shares = []
    for seed in range(8):
        params = GcwsParams(bands=16, seed=seed)
        index = SmallIndex(CollectionConfig(dim=dim, backend=params)).add(rows, [1100, 3])
        found = found_pairs(index, alive, min_score, recall)
        assert found.keys() <= truth.keys()
        assert all(score == pytest.approx(truth[pair]) for pair, score in found.items())
        shares.append(len(found) / len(truth))
    spread = float(np.std(shares, ddof=1)) / np.sqrt(len(shares))
    assert np.mean(shares) >= recall - SIGMAS * spread


def test_more_pairs_than_are_listed_at_a_time_are_all_found() -> None:
    n = 800  # 319,600 pairs in every table
    rows = np.ones((n, 3), np.float32)
    for dim in (3, None):
        config = CollectionConfig(dim=dim, backend=GcwsParams(bands=2))
        index = SmallIndex(config).add(rows)
        alive = np.ones(n, np.uint8)
        a, b, scores = pairs_of(index, alive, min_score=0.9, recall=0.9)
        assert len(a) == n * (n - 1) // 2
        assert np.all(a < b)
        assert np.all(scores == 1.0)


def test_a_pair_at_the_least_score_is_found() -> None:
    for low, high in ((7, 10), (3, 10), (9, 10)):
        rows = np.zeros((2, 10), np.float32)
        rows[0, :high] = 1
        rows[1, :low] = 1
        for backend in (ExactParams(), GcwsParams(bands=256)):
            index = SmallIndex(CollectionConfig(dim=10, backend=backend)).add(rows)
            alive = np.ones(2, np.uint8)
            for recall in (0.99, 1.0):
                found = found_pairs(index, alive, low / high, recall)
                assert found == {(0, 1): low / high}


def banded(kind: str) -> SmallIndex:
    rows, dim, _ = duplicated(kind)
    config = CollectionConfig(dim=dim, backend=GcwsParams(bands=16, seed=5))
    return SmallIndex(config, threads=2).add(rows)


@pytest.mark.parametrize(("min_score", "recall"), [(0.5, 0.5), (0.6, 0.3), (0.7, 0.8)])
def test_a_join_by_tables_finds_the_pairs_that_share_a_bucket_as_deep_as_it_may_be(
    rng: np.random.Generator, min_score: float, recall: float
) -> None:
    rows, _ = generated.clustered(rng, ALL, 0)
    index = SmallIndex(CollectionConfig(dim=24, backend=GcwsParams(bands=8)), threads=2).add(rows)
    tables, view, workers = index.state.tables, index.view(), index.backend.workers
    plan, sink = index.backend.plan.of_first(tables.bands), PairSink(view, min_score, None)
    assert join_pairs(view, tables, plan, sink, recall=recall, workers=workers)
    depth = depth_for(plan, min_score, recall)
    buckets = tables.codes(tables.bands) >> np.uint64(64 - depth * plan.bits)
    truth = true_pairs(all_scores(rows, rows, 24), min_score)
    a, b, _ = sink.result()
    assert {*zip(a.tolist(), b.tolist(), strict=True)} == {
        (i, j) for i, j in truth if (buckets[:, i] == buckets[:, j]).any()
    }
    assert 0 < len(a) < len(truth)


@kinds
@pytest.mark.parametrize("recall", [0.9, 1.0])
def test_a_limit_keeps_the_most_similar_pairs_and_those_that_tie_with_the_last(
    kind: str, recall: float
) -> None:
    index = banded(kind)
    _, _, scores = pairs_of(index, min_score=0.5, recall=recall)
    ranked = np.sort(scores)[::-1]
    for limit in (1, 7, 50):
        _, _, few = pairs_of(index, min_score=0.5, recall=recall, limit=limit)
        assert sorted(few, reverse=True) == ranked[ranked >= ranked[limit - 1]].tolist()


def test_more_pairs_than_can_be_listed_are_refused_without_a_limit() -> None:
    config = CollectionConfig(dim=24, backend=GcwsParams(bands=8))
    policies = Policies(pairs=PairPolicy(max_pairs=20))
    index = SmallIndex(config, policies=policies).add(duplicated("dense")[0])
    with pytest.raises(InvalidParameter, match="a limit"):
        pairs_of(index, min_score=0.5, recall=0.9)
    assert len(pairs_of(index, min_score=0.5, recall=0.9, limit=3)[0]) == pytest.approx(3, abs=20)


def test_a_refused_list_of_pairs_stops_all_threads() -> None:
    space = VectorSpace.of(CollectionConfig(dim=4))
    view = view_of(space.prepare(space.from_dense(np.ones((3, 4)))))
    sink = PairSink(view, 0.9, None, policy=PairPolicy(max_pairs=1))
    sink.add(np.array([0, 0], np.int32), np.array([1, 2], np.int32))
    with pytest.raises(InvalidParameter):
        sink.result()
    assert sink.done


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
    view = view_of(batch)
    workers = _Counted(4)
    compare_pairs(view, InvertedIndex(), PairSink(view, 0.9, None), workers=workers)
    assert workers.parts == 4


@pytest.mark.parametrize("recall", [0.9, 1.0])
def test_a_thousand_equal_items_are_joined_up_to_the_limit(recall: float) -> None:
    config = CollectionConfig(dim=4, backend=GcwsParams(bands=4))
    index = SmallIndex(config).add(np.ones((1000, 4), np.float32))
    a, b, scores = pairs_of(index, min_score=0.9, recall=recall, limit=10)
    assert len(a) >= 10
    assert (a < b).all()
    assert (scores == 1.0).all()


@kinds
@pytest.mark.parametrize("recall", [0.9, 1.0])
def test_a_join_that_nobody_waits_for_ends(kind: str, recall: float) -> None:
    stop = threading.Event()
    stop.set()
    find = partial(pairs_of, banded(kind), min_score=0.6, recall=recall)
    assert len(find(stop=stop)[0]) == 0
    assert len(find()[0]) > 0


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("dim", [4, None])
@pytest.mark.parametrize("recall", [0.9, 1.0])
@pytest.mark.parametrize("backend", [ExactParams(), GcwsParams(bands=4)])
def test_fewer_than_two_items_make_no_pair(
    backend: BackendParams, recall: float, dim: int | None, count: int
) -> None:
    index = SmallIndex(CollectionConfig(dim=dim, backend=backend))
    index.add(np.ones((count, 4), np.float32))
    for limit in (None, 3):
        found = pairs_of(index, min_score=0.5, recall=recall, limit=limit)
        assert [len(part) for part in found] == [0, 0, 0]
