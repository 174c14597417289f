"""Near-duplicate pairs by neighbour lists: whole clusters, at the recall that was measured."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from gcws_search.index import POLICIES, Policies, joins
from gcws_search.index.backends.gcws import GcwsBackend
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.links import LinkArray
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams
from gcws_search.index.contracts.policies import PairPolicy
from gcws_search.index.joins import PairJoin, PairSink, join_pairs
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.kernels.graph.pair_walk import PairRows, meet, shared_buckets
from gcws_search.index.lsh.tables import Tables
from tests.support.data import generated
from tests.support.index.recall import link
from tests.support.index.small_index import Rows, SmallIndex, all_scores, true_pairs, view_of

ROWS = 3000
DIM = 24
MIN = 0.5


def clusters(rng: np.random.Generator, each: int) -> np.ndarray:
    """Return clusters of ``each`` rows, far from each other."""
    centres = rng.standard_normal((ROWS // each, DIM))
    rows = np.repeat(centres, each, axis=0) + 0.1 * rng.standard_normal((ROWS, DIM))
    return rng.permutation(rows).astype(np.float32)


def linked(
    rows: Rows, dim: int | None, policies: Policies = POLICIES
) -> tuple[GcwsBackend, Any, RowView]:
    """Return an index with neighbour lists."""
    config = CollectionConfig(dim=dim, backend=GcwsParams(bands=8))
    index = link(SmallIndex(config, threads=2, policies=policies).add(rows))
    return index.backend, index.state, index.view()


@cache
def linked_twenties() -> tuple[np.ndarray, GcwsBackend, Any, RowView]:
    """Return clusters of 20 rows, and an index of them with neighbour lists, made once."""
    rows = clusters(np.random.default_rng(9), 20)
    return rows, *linked(rows, DIM)


def join_of(backend: GcwsBackend, state: Any, view: RowView) -> PairJoin:  # noqa: ANN401
    links = state.graph.links.array
    workers = backend.workers
    return PairJoin(
        view, state.tables, backend.plan, lambda _: state.tables, links, state.inverted, workers
    )


def measured(join: PairJoin, links: LinkArray, least: float, recall: float) -> Any:  # noqa: ANN401
    sample = join.sample_partners(least)
    assert sample is not None
    return join.plan_searches(links, sample, recall)


@pytest.mark.parametrize("each", [3, 150])
def test_walks_close_over_clusters_larger_than_a_list(rng: np.random.Generator, each: int) -> None:
    rows = clusters(rng, each)
    backend, state, view = linked(rows, DIM)
    sink = PairSink(view, MIN, None)
    join = join_of(backend, state, view)
    join.join_links(state.graph.links.array, sink, 0)
    a, b, scores = sink.result()
    truth = true_pairs(all_scores(rows, rows, DIM), MIN)
    assert len(truth) >= ROWS * (each - 1) / 2 * 0.9
    found = set(zip(a.tolist(), b.tolist(), strict=True))
    assert len(found) == len(a)
    assert found <= truth.keys()
    assert len(found) >= 0.98 * len(truth)
    assert (scores >= MIN).all()


@pytest.mark.parametrize("kind", ["dense", "counts"])
def test_a_join_with_lists_finds_the_share_asked_for(
    kind: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joins, "graph_join_nanoseconds", lambda *_: 0.0)
    rows: Rows
    if kind == "dense":
        rows, dim = clusters(rng, 20), DIM
    else:
        rows, dim = generated.counts(rng, ROWS, 1)[0], 400
    backend, state, view = linked(
        rows, DIM if kind == "dense" else None, Policies(pairs=PairPolicy(min_gain=0.0))
    )
    truth = true_pairs(all_scores(rows, rows, dim), MIN)
    assert len(truth) > 300
    walked = []
    walk = PairJoin.join_links

    def note(self: PairJoin, links: LinkArray, sink: PairSink, patience: int) -> None:
        walked.append(patience)
        walk(self, links, sink, patience)

    monkeypatch.setattr(PairJoin, "join_links", note)
    for recall in (0.5, 0.8, 0.95):
        a, b, _ = backend.pairs(state, view, min_score=MIN, recall=recall)
        found = set(zip(a.tolist(), b.tolist(), strict=True))
        assert found <= truth.keys()
        assert walked
        # Pairs of one row depend on each other; 4 sigma of as many coins as rows with pairs.
        coins = len({row for pair in truth for row in pair})
        assert len(found) >= len(truth) * (recall - 4 * np.sqrt(recall * (1 - recall) / coins))


def test_lists_that_miss_too_much_are_not_used(rng: np.random.Generator) -> None:
    _, backend, state, view = linked_twenties()
    join = join_of(backend, state, view)
    links = state.graph.links.array
    good = measured(join, links, MIN, 0.9)
    assert good is not None
    _, expected, _ = good
    assert expected >= 0.9
    forgotten = np.where(rng.random(links.shape) < 0.97, -1, links[:]).astype(np.int32)
    forgotten = -np.sort(-forgotten, axis=1)
    assert measured(join, LinkArray.of(forgotten, ROWS), MIN, 0.9) is None


def test_what_is_measured_is_what_walks_find(rng: np.random.Generator) -> None:
    rows, backend, state, view = linked_twenties()
    join = join_of(backend, state, view)
    links = LinkArray.of(state.graph.links.array, ROWS)
    links[rng.random(ROWS) < 0.7] = -1  # a row without a list is found by others only
    truth = true_pairs(all_scores(rows, rows, DIM), MIN)
    walks = measured(join, links, MIN, 0.3)
    assert walks is not None
    patience, expected, _ = walks
    sink = PairSink(view, MIN, None)
    join.join_links(links, sink, patience)
    share = len(sink.result()[0]) / len(truth)
    assert expected < share  # one standard error is taken off
    # 256 rows in 150 clusters of 20: as many coins as clusters, 4 sigma, and the one taken off.
    assert share - expected <= 5 * 0.5 / np.sqrt(150)


def test_too_few_pairs_to_tell_are_no_evidence(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((ROWS, DIM)).astype(np.float32)
    rows[1] = rows[0]
    backend, state, view = linked(rows, DIM)
    assert measured(join_of(backend, state, view), state.graph.links.array, 0.95, 0.5) is None


def price_tables(monkeypatch: pytest.MonkeyPatch, nanoseconds: float) -> None:
    """Let a further table cost so much, and no other way than a join be taken."""
    monkeypatch.setattr(joins, "table_nanoseconds", lambda _, __, more: more * nanoseconds)
    monkeypatch.setattr(joins, "all_pairs_nanoseconds", lambda *_: np.inf)


def unlinked(rows: Rows, bands: int) -> SmallIndex:
    return SmallIndex(CollectionConfig(dim=DIM, backend=GcwsParams(bands=bands))).add(rows)


@pytest.mark.parametrize(
    ("recall", "price", "taken"),
    [(0.5, 0.0, 32), (0.5, 1e9, 8), (0.9, 0.0, 32), (0.9, 0.7e6, 16), (0.9, 1e9, 8)],
)
def test_so_many_tables_are_made_for_a_join_as_pay(
    recall: float,
    price: float,
    taken: int,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = rng.standard_normal((ROWS, DIM)).astype(np.float32)
    rows[ROWS // 2 :] = rows[: ROWS // 2] + 0.15 * rng.standard_normal((ROWS // 2, DIM))
    index = unlinked(rows, 32)
    backend, view = index.backend, index.view()
    truth = true_pairs(all_scores(rows, rows, DIM), MIN)
    assert len(truth) > 1000
    made = []
    join = join_pairs

    def note(view: RowView, tables: Tables, *rest: Any, **named: Any) -> bool:  # noqa: ANN401
        made.append(tables.bands)
        return join(view, tables, *rest, **named)

    monkeypatch.setattr(joins, "join_pairs", note)
    price_tables(monkeypatch, price)
    a, b, _ = backend.pairs(index.state, view, min_score=MIN, recall=recall)
    found = set(zip(a.tolist(), b.tolist(), strict=True))
    assert found <= truth.keys()
    assert len(found) >= len(truth) * (recall - 4 * np.sqrt(recall * (1 - recall) / len(truth)))
    assert made == [taken]
    # Tables that are not made are asked for only where there was use for more.
    assert backend.is_overdue(replace(index.state, scanned=ROWS), ROWS, ROWS) == (taken > 8)


@pytest.mark.parametrize("rows", [0, 40])
@pytest.mark.parametrize("dim", [DIM, None])
@pytest.mark.parametrize("recall", [0.9, 1.0])
def test_no_rows_have_no_pairs(
    rows: int, dim: int | None, recall: float, rng: np.random.Generator
) -> None:
    index = SmallIndex(CollectionConfig(dim=dim, backend=GcwsParams()))
    if rows:
        index.add(generated.counts(rng, rows, 1)[0] if dim is None else clusters(rng, 3)[:rows])
    view = index.view(np.zeros(rows, np.uint8))
    a, b, scores = index.backend.pairs(index.state, view, min_score=0.1, recall=recall)
    assert len(a) == len(b) == len(scores) == 0


def test_how_often_pairs_are_found_is_foreseen(rng: np.random.Generator) -> None:
    rows = clusters(rng, 10)
    index = unlinked(rows, 32)
    backend, view = index.backend, index.view()
    workers = backend.workers
    state = backend.with_all_tables(index.state, view.vectors)
    join = PairJoin(
        view, state.tables, backend.plan, lambda _: state.tables, None, state.inverted, workers
    )
    sample = join.sample_partners(MIN)
    assert sample is not None
    keys = backend.band_keys.keys(view.vectors, 32)
    a, b = np.array(sorted(true_pairs(all_scores(rows, rows, DIM), MIN))).T
    for depth in (1, 3, 6):
        shift = np.uint64(64 - depth * backend.plan.bits)
        often = np.count_nonzero(keys[a] >> shift == keys[b] >> shift)
        # Of 300 clusters the rows sampled see 170 or so, each a coin of deviation 0.5 at most.
        foreseen = join.repeats(sample, backend.plan, depth)
        assert foreseen == pytest.approx(often, rel=4 * 0.5 / np.sqrt(170))


def test_deleted_rows_are_in_no_pair_but_may_lead_to_others(rng: np.random.Generator) -> None:
    rows, backend, state, view = linked_twenties()
    alive = (rng.random(ROWS) < 0.5).astype(np.uint8)
    some = view_of(view.vectors, alive)
    sink = PairSink(some, MIN, None)
    join_of(backend, state, some).join_links(state.graph.links.array, sink, 0)
    a, b, _ = sink.result()
    assert alive[a].all()
    assert alive[b].all()
    truth = true_pairs(all_scores(rows, rows, DIM), MIN, alive)
    assert len(a) >= 0.95 * len(truth)


def test_partners_of_chosen_rows_are_all_found() -> None:
    rows, _, _, view = linked_twenties()
    chosen = np.array([5, 17, 2999])
    numbers, found = np.empty((2, 3000), np.int32)
    whole = PairRows(*rows_of(view.vectors), view.permitted)
    count = meet(whole, chosen, np.float32(MIN), numbers, found)
    scores = all_scores(rows[chosen], rows, DIM)
    scores[np.arange(3), chosen] = 0
    expected = {(i, row) for i, row in zip(*np.nonzero(scores >= MIN), strict=True)}
    assert set(zip(numbers[:count].tolist(), found[:count].tolist(), strict=True)) == expected
    room = np.empty((2, count), np.int32)  # too little, unless the last rows were not looked at
    assert meet(whole, chosen, np.float32(MIN), *room) == -1


def test_shared_buckets_are_counted(rng: np.random.Generator) -> None:
    keys = np.sort(rng.integers(0, 1 << 10, 500).astype(np.uint64) << np.uint64(54))
    shifts = np.array([54, 58, 62], np.uint64)
    out = np.zeros(3, np.int64)
    shared_buckets(keys, shifts, out)
    for shift, count in zip(shifts, out, strict=True):
        _, sizes = np.unique(keys >> shift, return_counts=True)
        assert count == (sizes * (sizes - 1) // 2).sum()
