"""The exact join by common slots against every pair compared."""

import threading
from math import inf

import numpy as np
import pytest

from gcws_search.index.contracts.hits import Pairs, RowView
from gcws_search.index.contracts.parameters import CollectionConfig
from gcws_search.index.contracts.policies import PAIR_POLICY, PairPolicy
from gcws_search.index.exact.folded import FoldedJoin
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.joins import ExactJoin, PairSink, PrefixJoin
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.kernels.ordering.keys import RowPairs
from gcws_search.index.kernels.sparse.prefix_join import join_prefixes
from gcws_search.index.threads import Workers
from tests.support.index.small_index import (
    Mask,
    SmallIndex,
    all_scores,
    true_pairs as pairs_of_scores,
    view_of,
)

ROWS = 300
SLOTS = 200
Scores = dict[tuple[int, int], float]


def made(
    rng: np.random.Generator, *, spread: float, step: int = 1, count: int = ROWS
) -> np.ndarray:
    """Return (rows, slots) signed rows, half of them copies that are hardly changed."""
    likely = 1.0 / np.arange(1, SLOTS + 1)
    rows, half = np.zeros((count, SLOTS * step)), count // 2
    for row in rows[:half]:
        chosen = rng.choice(SLOTS, rng.integers(1, 30), replace=False, p=likely / likely.sum())
        signs = rng.choice([-1.0, 1.0], len(chosen))
        row[chosen * step] = signs * np.exp(spread * rng.standard_normal(len(chosen)))
    rows[half:] = rows[:half] * rng.choice([0.5, 0.9, 1.0, 1.1], (half, 1))
    rows[half:] *= np.where(rng.random(rows[half:].shape) < 0.02, 0.7, 1.0)
    return rows.astype(np.float32)


def seen(rows: np.ndarray, permitted: np.ndarray | None = None) -> RowView:
    alive = None if permitted is None else permitted.astype(np.uint8)
    return view_of(SmallIndex(CollectionConfig(dim=None)).prepare(rows), alive)


def true_pairs(rows: np.ndarray, least: float, alive: Mask | None = None) -> Scores:
    """Return the score of every pair that reaches the least, in float64."""
    filled = rows[:, rows.any(axis=0)]  # most columns may be empty
    return pairs_of_scores(all_scores(filled, filled, filled.shape[1]), least, alive)


def as_dict(pairs: Pairs) -> Scores:
    a, b, scores = pairs
    found = dict(zip(zip(a.tolist(), b.tolist(), strict=True), scores.tolist(), strict=True))
    assert len(found) == len(a)
    return found


def joined(
    view: RowView,
    least: float,
    *,
    limit: int | None = None,
    threads: int = 2,
    policy: PairPolicy = PAIR_POLICY,
) -> Pairs:
    join = PrefixJoin.of(view, least, policy)
    assert join is not None
    sink = PairSink(view, least, limit, policy=policy)
    join.offer(sink, Workers(threads))
    return sink.result()


@pytest.mark.parametrize("least", [0.05, 0.3, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("spread", [0.0, 1.0, 6.0])
def test_every_pair_is_found_once(rng: np.random.Generator, least: float, spread: float) -> None:
    rows = made(rng, spread=spread)
    truth = true_pairs(rows, least)
    assert len(truth) > 20
    found = as_dict(joined(seen(rows), least))
    # Pairs as near to the least score as float64 sums differ may be on either side.
    for pair in found.keys() ^ truth.keys():
        assert (found | truth)[pair] == pytest.approx(least, abs=1e-12)
    assert found == pytest.approx({pair: truth.get(pair, least) for pair in found}, rel=1e-12)


@pytest.mark.parametrize("least", [0.3, 0.8])
def test_slots_that_share_a_place_hide_no_pair(rng: np.random.Generator, least: float) -> None:
    crowded = PairPolicy(min_place_bits=3, max_place_bits=3)
    rows = made(rng, spread=1.0, step=97)
    assert (
        as_dict(joined(seen(rows), least, policy=crowded)).keys() == true_pairs(rows, least).keys()
    )


def test_rows_that_are_not_permitted_are_in_no_pair(rng: np.random.Generator) -> None:
    rows, permitted = made(rng, spread=1.0), rng.random(ROWS) < 0.6
    truth = true_pairs(rows, 0.5, permitted.astype(np.uint8))
    assert len(truth) > 20
    assert as_dict(joined(seen(rows, permitted), 0.5)).keys() == truth.keys()


@pytest.mark.parametrize("limit", [1, 10, 100])
def test_a_limit_keeps_the_most_similar_pairs(rng: np.random.Generator, limit: int) -> None:
    rows = made(rng, spread=1.0)
    ranked = sorted(true_pairs(rows, 0.2).values(), reverse=True)
    found = sorted(as_dict(joined(seen(rows), 0.2, limit=limit)).values(), reverse=True)
    assert found[:limit] == pytest.approx(ranked[:limit], rel=1e-12)


def test_pairs_beyond_what_one_list_holds_are_found_too(rng: np.random.Generator) -> None:
    rows = np.repeat(made(rng, spread=1.0)[:6], 50, axis=0)
    short = PairPolicy(capacity=1)
    assert len(joined(seen(rows), 0.99, threads=1, policy=short)[0]) >= 6 * 50 * 49 // 2


def test_prefixes_begin_with_the_slots_of_fewest_rows_and_are_as_long_as_needed(
    rng: np.random.Generator,
) -> None:
    least = 0.6
    join = PrefixJoin.of(seen(made(rng, spread=1.0)), least)
    assert join is not None
    vectors, lists = join.view.vectors, join.lists
    slack = 1e-4  # more than rounding takes off
    for number, row in enumerate(lists.rows.tolist()):
        entries = slice(vectors.indptr[row], vectors.indptr[row + 1])
        prefix = slice(lists.begins[number], lists.begins[number + 1])
        places, (rests, weights) = lists.places[prefix], lists.rests[prefix].T
        order = [(lists.counts[place], place) for place in places.tolist()]
        assert order == sorted(order)
        np.testing.assert_allclose(rests[:-1] - weights[:-1], rests[1:], atol=1e-4 * rests[0])
        assert rests[0] == pytest.approx(vectors.values[entries].sum(), rel=1e-6)
        needed = least * vectors.norms[row] - rests[0] / (entries.stop - entries.start)
        assert rests[-1] >= needed - slack * rests[0]
        if len(order) < entries.stop - entries.start:  # without the next one it is enough
            assert rests[-1] - weights[-1] <= needed + slack * rests[0]


def test_a_join_of_much_work_comes_back_before_its_end() -> None:
    join = PrefixJoin.of(seen(np.ones((1000, 300), np.float32)), 0.5)
    assert join is not None
    vectors, number, calls, total = rows_of(join.view.vectors), 0, 0, 0
    out = RowPairs(*np.empty((2, 1_000_000), np.int32))
    while number < len(join.lists.rows):
        count, number = join_prefixes(vectors, join.lists, 0.5, number, 1, out)
        total, calls = total + count, calls + 1
    assert total == 1000 * 999 // 2
    assert calls > 1


def test_rows_are_joined_in_the_quickest_way(rng: np.random.Generator) -> None:
    def way(view: RowView, least: float, quickest: float = inf) -> type:
        return type(ExactJoin.of(view, InvertedIndex(), least, Workers(1), quickest=quickest).way)

    apart = np.zeros((8000, 4000), np.float32)
    apart[np.arange(8000)[:, None], rng.integers(0, 4000, (8000, 5))] = 1
    sparse = seen(apart)
    assert way(sparse, 0.9) is PrefixJoin
    assert way(sparse, 0.0) is type(None)
    assert way(sparse, 0.9, quickest=1.0) is type(None)
    crowded = rng.gamma(0.5, 1.0, (4000, 40)).astype(np.float32)
    assert way(seen(crowded), 0.7) is FoldedJoin
    assert way(seen(crowded), 0.01) is type(None)
    dense = SmallIndex(CollectionConfig(dim=4)).prepare(rng.random((4000, 4), np.float32))
    assert way(view_of(dense), 0.9) is type(None)


@pytest.mark.parametrize("least", [0.4, 0.7])
def test_all_ways_find_the_same_pairs(rng: np.random.Generator, least: float) -> None:
    view = seen(made(rng, spread=1.0))
    none = InvertedIndex()
    folded = FoldedJoin(view, view.vectors, least, Workers(2))
    found = []
    for way in (None, folded):
        sink = PairSink(view, least, None)
        ExactJoin(view, none, way, 0.0).offer(sink, Workers(2))
        found.append(as_dict(sink.result()))
    assert found == 2 * [as_dict(joined(view, least))]


def test_folded_rows_of_all_runs_are_joined(rng: np.random.Generator) -> None:
    rows = np.zeros((8200, 40), np.float32)
    rows[np.arange(8200)[:, None], rng.integers(0, 40, (8200, 6))] = rng.random((8200, 6)) + 0.5
    rows[[8190, 8191, 8192]] = rows[[8197, 8198, 8199]]
    view, sink = seen(rows), PairSink(seen(rows), 0.999, None)
    folded = FoldedJoin(view, view.vectors, 0.999, Workers(1))
    ExactJoin(view, InvertedIndex(), folded, 0.0).offer(sink, Workers(1))
    found = as_dict(sink.result())
    assert {(8190, 8197), (8191, 8198), (8192, 8199)} <= {*found}
    assert found == as_dict(joined(view, 0.999))


def test_a_join_that_nobody_waits_for_ends(rng: np.random.Generator) -> None:
    view, stop = seen(made(rng, spread=1.0)), threading.Event()
    join = PrefixJoin.of(view, 0.5)
    assert join is not None
    stop.set()
    sink = PairSink(view, 0.5, None, stop)
    join.offer(sink, Workers(2))
    assert len(sink.result()[0]) == 0
