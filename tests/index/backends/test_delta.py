"""Rows that wait for their places in tables and lists are searched like all others."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from benchmarks.harness.engine import row_hits
from gcws_search.index import Policies
from gcws_search.index.contracts.hits import CANDIDATES, SCORED, TABLES, BatchHits
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    GcwsParams,
    Rerank,
    SearchParams,
)
from gcws_search.index.graph.lifecycle import GraphPolicy
from gcws_search.index.kernels.graph.beam_search import NONE
from tests.support.data.generated import clustered, sparse_of
from tests.support.index.policies import FREE_SEARCHES, graphs_from
from tests.support.index.recall import link, linked, recall
from tests.support.index.small_index import Rows, SmallIndex, answer, answers

OLD, NEW, DIM = 3000, 300, 24
WAITING = list(range(OLD, OLD + NEW))
Made = tuple[SmallIndex, Rows, Rows]


POLICIES = graphs_from(500)


def waiting(rows: Rows, policies: Policies = POLICIES) -> SmallIndex:
    """Return an index in which the last rows wait, put in one by one and together."""
    index = linked(rows[:OLD], policies=policies).add(rows[OLD:], sizes=[1, 1, 1, 50])
    assert index.state.delta.count == NEW
    assert len(index.state.tables) == OLD
    return index


FORMS = ["dense", "sparse"]


def made_of(form: str, rng: np.random.Generator, policies: Policies = POLICIES) -> Made:
    """Return an index whose last rows wait, its rows, and queries."""
    rows, queries = clustered(rng, OLD + NEW, 200, dim=DIM)
    if form == "dense":
        return waiting(rows, policies), rows, queries
    some, others = (sparse_of(np.maximum(each, 0)) for each in (rows, queries))
    return waiting(some, policies), some, others


@pytest.fixture(params=FORMS)
def made(request: pytest.FixtureRequest, rng: np.random.Generator) -> Made:
    """Return an index to change."""
    return made_of(request.param, rng)


@pytest.fixture(scope="module", params=FORMS)
def read(request: pytest.FixtureRequest) -> Made:
    """Return an index that nobody changes."""
    return made_of(request.param, np.random.default_rng(6))


def test_it_is_foreseen_whether_further_rows_wait(read: Made) -> None:
    _, rows, _ = read
    index = waiting(rows, replace(POLICIES, max_delta_rows=NEW + 5))
    view, backend = index.rows.view(), index.backend
    few = 5 * DIM
    assert backend.can_defer(index.state, view, 5, few)
    assert not backend.can_defer(index.state, view, 6, few)
    assert not backend.can_defer(index.state, view, 5, POLICIES.max_delta_numbers)
    unsettled = SmallIndex(index.config, policies=POLICIES).add(rows[:OLD])
    unsettled.finish_background_work()
    unsettled.searches.announce()
    assert not unsettled.backend.can_defer(unsettled.state, unsettled.rows.view(), 1, 1)


@pytest.mark.parametrize("searched", [False, True])
def test_sparse_rows_wait_for_postings_while_no_search_comes(
    rng: np.random.Generator, searched: bool
) -> None:
    rows, queries = clustered(rng, OLD + NEW, 40, dim=DIM)
    policies = replace(POLICIES, max_without_postings=NEW, max_delta_rows=8)
    some, others = (sparse_of(np.maximum(each, 0)) for each in (rows, queries))
    index = SmallIndex(CollectionConfig(dim=None), policies=policies).add(some[:OLD])
    assert (index.state.delta.count, index.state.inverted.covered) == (0, OLD)
    if searched:
        index.search(others[:1], SearchParams())
        index.searches.announce()
    index.add(some[OLD:])
    waiting = 0 if searched else NEW
    assert (index.state.delta.count, index.state.inverted.covered) == (waiting, OLD + NEW - waiting)
    assert index.backend.inverted(index.state, index.rows.view()).covered == OLD + NEW
    found = index.search(others, SearchParams(limit=5))  # many: they get postings
    for number, hits in enumerate(found):
        (alone,) = index.search(others[number : number + 1], SearchParams(limit=5))
        assert (alone.rows.tolist(), alone.scores.tolist()) == (
            hits.rows.tolist(), hits.scores.tolist()
        )  # fmt: skip
    pairs = index.backend.pairs(index.state, index.view(), min_score=0.5, recall=1.0)
    index.finish_background_work()
    assert index.state.inverted.covered == OLD + NEW
    settled = index.backend.pairs(index.state, index.view(), min_score=0.5, recall=1.0)
    for ours, theirs in zip(pairs, settled, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_rows_wait_once_there_are_lists(made: Made) -> None:
    index, rows, _ = made
    without = SmallIndex(index.config, policies=POLICIES)
    without.searches.announce()
    without.add(rows[:OLD]).add(rows[OLD : OLD + 1])
    assert without.state.delta.count == 0
    assert index.is_overdue
    index.finish_background_work()
    assert not index.is_overdue
    assert len(index.state.tables) == len(index.state.graph.links) == OLD + NEW
    assert (index.state.graph.links.array[OLD:, 0] != NONE).all()


@pytest.mark.parametrize("guarantee", ["measured", "proven"])
def test_the_recall_asked_for_holds_with_rows_that_wait(guarantee: str, read: Made) -> None:
    index, _, queries = read
    for limit in (1, 10):
        params = SearchParams(limit=limit, guarantee=guarantee)  # type: ignore[arg-type]
        found = index.search(queries, params)
        true = index.search(queries, SearchParams(limit=limit, recall=1.0))
        shares = [
            np.isin(best.rows[:limit], hits.rows).mean()
            for hits, best in zip(found, true, strict=True)
        ]
        assert np.mean(shares) >= 0.9 - 4 * np.std(shares) / len(shares) ** 0.5
        new = {row for best in true for row in best.rows.tolist() if row >= OLD}
        assert new
        assert new <= {row for hits in found for row in hits.rows.tolist()}


def test_each_row_that_waits_finds_itself_first_alone_and_in_a_batch(made: Made) -> None:
    """Both may be answered in another way, whichever is quickest for so many queries."""
    index, rows, _ = made
    together = index.search(rows[OLD:], SearchParams(limit=3))
    assert [hits.rows[0] for hits in together] == WAITING
    for row in (OLD, OLD + 77, OLD + NEW - 1):
        (alone,) = index.search(rows[row : row + 1], SearchParams(limit=3))
        assert alone.rows[0] == row
        assert alone.scores[0] == together[row - OLD].scores[0] == 1.0


def test_rows_that_wait_are_filtered_left_out_and_cut_by_score(read: Made) -> None:
    index, rows, _ = read
    exact = SearchParams(limit=5, recall=1.0)
    permitted = np.ones(OLD + NEW, np.uint8)
    permitted[OLD::2] = 0
    for params in (SearchParams(limit=5), SearchParams(limit=5, min_score=0.9)):
        for hits in index.search(rows[OLD:], params, permitted=permitted):
            assert permitted[hits.rows].all()
            assert (hits.scores >= params.min_score).all()
    skipping = index.search(rows[OLD:], SearchParams(limit=5), skip=WAITING)
    assert not any(row in hits.rows for row, hits in zip(WAITING, skipping, strict=True))
    nobody_else = np.zeros(OLD + NEW, np.uint8)
    nobody_else[OLD:] = 1
    found = index.search(rows[OLD:], SearchParams(limit=5), permitted=nobody_else)
    assert answers(found) == answers(index.search(rows[OLD:], exact, permitted=nobody_else))
    nobody_new = 1 - nobody_else
    for hits in index.search(rows[OLD:], SearchParams(limit=5), permitted=nobody_new):
        assert (hits.rows < OLD).all()


def test_a_filter_may_leave_fewer_rows_than_the_limit(read: Made) -> None:
    index, _, queries = read
    few = [0, 1, 2, OLD, OLD + 1]
    permitted = np.zeros(OLD + NEW, np.uint8)
    permitted[few] = 1
    for some in (queries[:1], queries[:5]):
        found = index.search(some, SearchParams(limit=100), permitted=permitted)
        exact = SearchParams(limit=100, recall=1.0)
        assert answers(found) == answers(index.search(some, exact, permitted=permitted))
        assert all(sorted(hits.rows.tolist()) == few for hits in found)


def test_ties_between_rows_that_wait_and_others_are_all_there(rng: np.random.Generator) -> None:
    rows, _ = clustered(rng, OLD, 0, dim=DIM)
    index = linked(rows).add(np.repeat(rows[:1], 40, axis=0), sizes=[1, 20])
    (hits,) = index.search(rows[:1], SearchParams(limit=10))
    assert set(hits.rows.tolist()) == {0, *range(OLD, OLD + 40)}
    assert (hits.scores == 1.0).all()


@pytest.mark.parametrize("rerank", ["none", "own"])
def test_candidates_know_rows_that_wait(rerank: Rerank, read: Made) -> None:
    index, rows, _ = read
    found = index.search(rows[OLD:], SearchParams(limit=5, rerank=rerank))
    assert all(row in hits.rows for row, hits in zip(WAITING, found, strict=True))
    if rerank == "none":
        in_tables = SmallIndex(index.config, policies=graphs_from(10**6)).add(rows)
        others = in_tables.search(rows[OLD:], SearchParams(limit=5, rerank="none"))
        assert answers(found) == answers(others)


def test_pairs_know_rows_that_wait(rng: np.random.Generator) -> None:
    rows, _ = clustered(rng, OLD, 0, dim=DIM)
    index = linked(rows).add(rows[:20], sizes=[1])
    first, second, scores = index.backend.pairs(
        index.state, index.view(), min_score=1.0, recall=0.99
    )
    assert set(zip(first.tolist(), second.tolist(), strict=True)) >= {
        (row, OLD + row) for row in range(20)
    }
    assert (scores == 1.0).all()


def test_a_compaction_keeps_rows_that_wait(made: Made, rng: np.random.Generator) -> None:
    index, rows, queries = made
    stays = rng.random(OLD + NEW) < 0.9
    index.compact(stays)
    assert index.state.delta.count == stays[OLD:].sum()
    assert len(index.state.tables) == stays[:OLD].sum()
    few = [row for row in WAITING if stays[row]][:20]
    for row in few:
        (hits,) = index.search(rows[row : row + 1], SearchParams(limit=1))
        assert hits.rows.tolist() == [stays[:row].sum()]
    index.finish_background_work()
    assert recall(index, queries, 10).reaches(0.9)


def test_a_compaction_leaves_rows_waiting_that_have_been_linked_behind(
    made: Made, rng: np.random.Generator
) -> None:
    index, _, queries = made
    index.backend.pairs(index.state, index.view(), min_score=0.9, recall=0.9)
    stays = rng.random(OLD + NEW) < 0.9
    index.compact(stays)
    known = int(stays[:OLD].sum())
    assert index.state.delta.count == stays[OLD:].sum()
    assert index.state.graph.links.array[:].max() < known
    index.finish_background_work()
    assert index.state.graph.links.array[:].max() >= known
    assert recall(index, queries, 10).reaches(0.9)


def test_a_compaction_without_lists_leaves_no_row_waiting(made: Made) -> None:
    index = made[0]
    index.compact(np.arange(OLD + NEW) >= OLD - 100)
    assert index.state.graph is None
    assert index.state.delta.count == 0
    assert len(index.state.tables) == NEW + 100


def test_only_so_many_rows_wait(read: Made) -> None:
    _, rows, _ = read
    numbers = linked(rows[:OLD]).prepare(rows[OLD : OLD + 7])
    size = numbers.dense.size if numbers.form == "dense" else len(numbers.values)
    for policies in (
        replace(POLICIES, max_delta_rows=7),
        replace(POLICIES, max_delta_numbers=size),
    ):
        index = linked(rows[:OLD], policies=policies)
        for row in range(OLD, OLD + 8):
            index.add(rows[row : row + 1])
            assert index.state.delta.count == (row + 1 - OLD) % 8
        assert len(index.state.tables) == OLD + 8


def test_rows_taken_in_behind_are_not_taken_in_again(made: Made) -> None:
    index, rows, queries = made
    behind = index.optimize()
    more = clustered(np.random.default_rng(5), 40, 0, dim=DIM)[0]
    further = more if isinstance(rows, np.ndarray) else sparse_of(np.maximum(more, 0))
    index.add(further, sizes=[1])
    index.adopt(behind)
    assert index.state.delta.count == 40
    assert len(index.state.tables) == OLD + NEW
    (hits,) = index.search(further[39:40], SearchParams(limit=1))
    assert hits.rows.tolist() == [OLD + NEW + 39]
    # A writer that put many at once has been quicker: what was made behind is of no use.
    before = index.state
    late = index.optimize()
    lists = before.graph.neighbours.cover(index.rows.view()).array[:]
    index.finish_background_work()
    assert index.backend.adopt(index.state, index.rows.view(), late) is not None
    assert np.array_equal(index.state.graph.links.array[:], lists)
    assert recall(index, queries, 10).reaches(0.9)


SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])


def ranked(scores: list[float], rows: Iterable[int], limit: int) -> list[tuple[float, int]]:
    """Return the best rows, those that tie with the last of them too, by falling score."""
    every = sorted(zip([-score for score in scores], rows, strict=True))
    most = (
        len(every) if len(every) <= limit else sum(each[0] <= every[limit - 1][0] for each in every)
    )
    return [(-score, row) for score, row in every[:most]]


@given(
    older=st.lists(st.lists(SCORES, max_size=6), min_size=1, max_size=3),
    newer=st.data(),
    limit=st.integers(1, 5),
)
def test_hits_beside_others_are_the_best_of_both(
    older: list[list[float]], newer: st.DataObject, limit: int
) -> None:
    others = newer.draw(
        st.lists(st.lists(SCORES, max_size=6), min_size=len(older), max_size=len(older))
    )
    left, right = best(older, limit, 0, 4), best(others, limit, 10, 1)
    both = left.merge(right, limit)
    assert len(both) == len(older)
    for number, (one, two) in enumerate(zip(older, others, strict=True)):
        rows = [*range(len(one)), *range(10, 10 + len(two))]
        wanted = ranked([*one, *two], rows, limit)
        found = row_hits(both)[number]
        assert answer(found) == ([row for _, row in wanted], [score for score, _ in wanted])
    assert (both.work[:, CANDIDATES] == 5).all()
    assert (both.work[:, SCORED] == 5).all()


def best(scores: list[list[float]], limit: int, first: int, seen: int) -> BatchHits:
    """Return the hits of queries by all scores of their rows, ties at the limit included."""
    lines, wider = [], {}
    for number, line in enumerate(scores):
        kept = ranked(line, range(first, first + len(line)), limit)
        if len(kept) > limit:
            wider[number] = np.array([row for _, row in kept]), np.array([s for s, _ in kept])
        lines.append(kept[:limit])
    shape = len(lines), max(map(len, lines))  # a scan of few rows has fewer places than the limit
    rows, values = np.zeros(shape, np.int64), np.zeros(shape)
    for number, kept in enumerate(lines):
        rows[number, : len(kept)] = [row for _, row in kept]
        values[number, : len(kept)] = [score for score, _ in kept]
    sizes, cost = np.array([len(kept) for kept in lines]), {"candidates": seen, "scored": seen}
    return BatchHits.of(TABLES, rows, values, sizes, expected_recall=0.9, wider=wider, **cost)


MERGING = Policies(max_delta_rows=0, max_merge_rows=300, graph=GraphPolicy(search=FREE_SEARCHES))
"""Writes merge at most 300 rows, and leave none in the delta."""


@pytest.mark.parametrize(("band_width", "first"), [(None, 3000), (None, 500), (2, 3000)])
def test_the_background_merges_the_tables_that_writes_leave(
    band_width: int | None, first: int, rng: np.random.Generator
) -> None:
    rows = rng.standard_normal((first + 1500, 8)).astype(np.float32)
    config = CollectionConfig(dim=8, backend=GcwsParams(band_width=band_width))
    index = SmallIndex(config, policies=MERGING).add(rows[:first])
    if band_width is None and first == 3000:
        link(index)
    has_graph = index.state.graph is not None
    index.add(rows[first:-500], sizes=[100] * 9)
    assert index.is_overdue
    made = index.optimize()
    assert not made.tables.merge_is_due
    index.add(rows[-500:], sizes=[100] * 4)  # meanwhile
    many = len(index.state.tables.segments)
    index.adopt(made)
    assert len(index.state.tables) == len(rows)
    assert len(index.state.tables.segments) < many
    assert (index.state.graph is not None) == has_graph
    for queries in (rows[:50], rows[-600:-550], rows[-50:]):
        found = index.search(queries, SearchParams(limit=1, recall=0.9))
        assert [hits.scores[0] for hits in found] == pytest.approx([1.0] * 50)
