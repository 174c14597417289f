"""Sparse rows are hashed when a graph, a proof or a join wants it, and not when they are stored."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from gcws_search.index.backends import POLICIES, Policies
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams, SearchParams
from gcws_search.index.contracts.saved_index import UNKNOWN, SavedIndex
from gcws_search.index.hashing.banding import FIRST_TABLES
from tests.support.data.generated import Csr, clustered, sparse_of
from tests.support.index.recall import link
from tests.support.index.small_index import Mask, SmallIndex, all_scores, answers, true_pairs

DIM = 24
ROWS = 3000
MIN = 0.8
ALWAYS_LINK = replace(POLICIES, graph=replace(POLICIES.graph, scan_factor=0.0))


def some_rows(rng: np.random.Generator, count: int = ROWS) -> Csr:
    return sparse_of(np.maximum(clustered(rng, count, 0, dim=DIM)[0], 0))


def index_of(rows: Csr, policies: Policies = POLICIES) -> SmallIndex:
    config = CollectionConfig(dim=None, backend=GcwsParams())
    return SmallIndex(config, threads=2, policies=policies).add(rows)


def bands_of(index: SmallIndex) -> int:
    return int(index.backend.stats(index.state)["bands_made"])


def pairs_of(index: SmallIndex, permitted: Mask, recall: float) -> dict[tuple[int, int], float]:
    a, b, scores = index.backend.pairs(
        index.state, index.view(permitted), min_score=MIN, recall=recall
    )
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return dict(zip(pairs, scores.tolist(), strict=True))


def test_rows_that_are_scanned_have_no_tables_through_all_that_changes_them(
    rng: np.random.Generator,
) -> None:
    index = index_of(some_rows(rng))
    assert index.backend.code_width == bands_of(index) == 0
    index.state = index.optimize()
    index.add(some_rows(rng, 1500))
    index.finish_background_work()
    index.compact(np.arange(4500) % 3 > 0)
    index.adopt(index.optimize())
    assert bands_of(index) == 0
    assert index.backend.stats(index.state)["segments"] == [3000]


def test_tables_that_were_made_are_dropped_once_scans_are_enough(rng: np.random.Generator) -> None:
    index = index_of(some_rows(rng)).make_tables()
    assert bands_of(index) == FIRST_TABLES
    index.state = index.optimize()
    assert bands_of(index) == 0


@pytest.mark.parametrize("permit", [1.0, 0.6])
@pytest.mark.parametrize("recall", [0.5, 0.9, 1.0])
def test_pairs_of_unhashed_rows_are_exact_and_found_as_often_as_asked(
    rng: np.random.Generator, recall: float, permit: float
) -> None:
    rows = some_rows(rng)
    index = index_of(rows)
    permitted = (rng.random(ROWS) < permit).astype(np.uint8)
    scores = all_scores(rows, rows, DIM)
    truth = true_pairs(scores, MIN, permitted)
    found = pairs_of(index, permitted, recall)
    assert found == {pair: pytest.approx(truth[pair], abs=1e-6) for pair in found}
    assert len(found) >= (recall - 0.05 * (recall < 1)) * len(truth) > 100
    assert bands_of(index) == 0  # they were hashed for these pairs alone


def test_a_graph_is_linked_and_entered_by_tables_made_for_it(rng: np.random.Generator) -> None:
    index = index_of(some_rows(rng), ALWAYS_LINK)
    made = index.optimize()
    index.add(some_rows(rng, 500))  # while the graph was built
    index.adopt(made)
    index.finish_background_work()
    assert bands_of(index) == FIRST_TABLES
    assert len(index.state.tables) == ROWS + 500
    keys = index.backend.band_keys.keys(index.rows.view(), FIRST_TABLES)
    np.testing.assert_array_equal(index.state.tables.codes(FIRST_TABLES).T, keys)


@pytest.mark.parametrize("unlinked", [0, 40])
def test_a_graph_that_was_saved_waits_for_its_tables_and_answers_as_before(
    rng: np.random.Generator, unlinked: int
) -> None:
    rows, queries = some_rows(rng), some_rows(rng, 30)
    index = link(index_of(rows, ALWAYS_LINK))
    params = SearchParams(limit=5, recall=0.9)
    before = answers(index.search(queries, params))
    saved = index.backend.saved(index.state)
    assert saved is not None
    links = saved.links[:ROWS].copy()
    links[100 : 100 + unlinked] = UNKNOWN  # of parts that were lost
    batch = index.rows.view()
    nothing = np.empty((ROWS, 0), np.uint64)
    index.state = index.backend.restore(batch, nothing, SavedIndex(links, saved.notes))
    assert index.state.graph is not None
    assert index.state.graph_is_waiting == (unlinked == 0)
    exact = answers(index.search(queries, SearchParams(limit=5, recall=1.0)))
    while index.is_overdue:
        index.state = index.backend.optimize(
            index.state, batch, np.ones(ROWS, np.uint8), threading.Event()
        )
    assert bands_of(index) == FIRST_TABLES
    assert not index.state.graph_is_waiting
    after = answers(index.search(queries, params))
    if not unlinked:
        assert after == before
    found = [len({*a} & {*b}) for (a, _), (b, _) in zip(after, exact, strict=True)]
    assert sum(found) >= 0.85 * 5 * 30
