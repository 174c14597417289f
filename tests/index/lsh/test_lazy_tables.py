"""What there is use for all tables for: each use has them made, and nothing else does."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams, SearchParams
from gcws_search.index.hashing.banding import FIRST_TABLES
from tests.support.data.generated import Floats, clustered
from tests.support.index.items import opened_catalog
from tests.support.index.small_index import SmallIndex
from tests.support.index.tables import backend_of, bands_made, improved

BANDS = 20
PROVEN = SearchParams(limit=3, recall=0.5, guarantee="proven")
ESTIMATES = SearchParams(limit=3, rerank="none")
Use = Callable[[StoredCollection, Floats], object]


def search(params: SearchParams) -> Use:
    return lambda stored, rows: stored.search(stored.space.from_dense(rows[:2]), params)


def search_around(params: SearchParams) -> Use:
    return lambda stored, _: stored.search_around("5", params)


def compare(params: SearchParams) -> Use:
    return lambda stored, rows: stored.compare([stored.space.from_dense(rows[:2])], params)


def pairs(recall: float) -> Use:
    return lambda stored, _: stored.pairs(min_score=0.9, recall=recall)


@pytest.mark.parametrize(
    ("use", "bands"),
    [
        pytest.param(search(PROVEN), BANDS, id="proven"),
        pytest.param(search(ESTIMATES), BANDS, id="estimates"),
        pytest.param(search_around(PROVEN), BANDS, id="proven around an item"),
        pytest.param(search_around(ESTIMATES), BANDS, id="estimates around an item"),
        pytest.param(compare(PROVEN), BANDS, id="proofs compared"),
        pytest.param(pairs(0.9), FIRST_TABLES, id="pairs of few rows"),
        pytest.param(pairs(1.0), FIRST_TABLES, id="all pairs"),
        pytest.param(search(SearchParams(limit=3)), FIRST_TABLES, id="measured"),
        pytest.param(search(SearchParams(limit=3, recall=1.0)), FIRST_TABLES, id="exact"),
    ],
)
def test_a_collection_without_lists_has_all_tables_once_there_was_use_for_them(
    tmp_path: Path, rng: np.random.Generator, use: Use, bands: int
) -> None:
    rows, _ = clustered(rng, 300, 1)
    catalog = opened_catalog(tmp_path)
    config = CollectionConfig(dim=rows.shape[1], backend=GcwsParams(bands=BANDS))
    stored = catalog.create("things", config)[0]
    ids = [str(i) for i in range(300)]
    stored.put(ItemBatch(ids, stored.space.from_dense(rows), [None] * 300))
    stored.finish_background_work()
    assert bands_made(stored) == FIRST_TABLES
    use(stored, rows)
    if stored.optimizer.thread is not None:  # what was begun, not what a `settle` would begin
        stored.optimizer.thread.join(60)
    assert bands_made(stored) == bands
    catalog.close()


def index_of(rows: Floats, bands: int = BANDS) -> SmallIndex:
    params = GcwsParams(bands=bands)
    return SmallIndex(CollectionConfig(dim=rows.shape[1], backend=params)).add(rows)


def assert_tables_are_those_of_keys(index: SmallIndex, bands: int = BANDS) -> None:
    """See to it that every row is under its key in every table."""
    tables, rows = index.state.tables, index.rows.view()
    assert tables.bands == bands
    assert len(tables) == len(rows)
    keys = backend_of(index).band_keys.keys(rows, bands)
    for table in range(bands):
        found = np.concatenate([segment.rows[table] for segment in tables.segments])
        assert sorted(found.tolist()) == list(range(len(rows)))
        known = np.concatenate([segment.keys[table] for segment in tables.segments])
        np.testing.assert_array_equal(known, keys[found, table])


def test_tables_of_several_segments_have_all_their_rows_under_their_keys(
    rng: np.random.Generator,
) -> None:
    rows, _ = clustered(rng, 1200, 1)
    index = index_of(rows[:1000]).add(rows[1000:])
    assert [len(segment) for segment in index.state.tables.segments] == [1000, 200]
    index.state = backend_of(index).with_all_tables(index.state, index.rows.view())
    assert [len(segment) for segment in index.state.tables.segments] == [1000, 200]
    assert_tables_are_those_of_keys(index)


def test_rows_that_waited_when_tables_were_begun_wait_no_more_and_later_ones_do(
    rng: np.random.Generator,
) -> None:
    rows, _ = clustered(rng, 3008, 1)
    index = index_of(rows[:3000])
    index.state = improved(index)
    index.add(rows[3000:3005])
    assert improved(index).tables.bands == index.state.tables.bands < BANDS
    index.search(rows[:1], PROVEN)
    made = improved(index)
    assert (made.delta.count, len(made.tables), made.tables.bands) == (0, 3005, BANDS)
    index.add(rows[3005:])
    assert index.state.delta.count == 8
    adopted = backend_of(index).adopt(index.state, index.rows.view(), made)
    assert adopted is not None
    assert adopted.delta.count == 3
    index.state = adopted
    index.finish_background_work()
    assert_tables_are_those_of_keys(index)


def test_lists_kept_of_rows_along_few_dimensions_want_no_more_tables_than_there_can_be(
    rng: np.random.Generator,
) -> None:
    bands = FIRST_TABLES + 1
    rows = (rng.standard_normal((2500, 3)) @ rng.standard_normal((3, 64))).astype(np.float32)
    index = index_of(rows, bands)
    view = index.rows.view()
    state = backend_of(index).linked(index.state, view, np.ones(2500, np.uint8), threading.Event())
    assert state is not None
    assert state.graph is not None
    assert state.graph.neighbours.narrow
    backend = backend_of(index)
    saved = backend.saved(state)
    assert saved is not None
    index.state = backend.restore(view, backend.encode(view), saved)
    assert index.state.graph is not None
    assert_tables_are_those_of_keys(index, bands)


def test_estimates_are_of_rows_that_wait_for_their_tables_too(rng: np.random.Generator) -> None:
    rows, _ = clustered(rng, 3005, 1)
    index = index_of(rows[:3000])
    index.state = improved(index)
    index.add(rows[3000:])
    assert index.state.delta.count == 5
    params = SearchParams(limit=1, rerank="none", candidates=1000)
    results = index.search(rows[3000:], params)
    assert [result.rows.tolist() for result in results] == [[row] for row in range(3000, 3005)]
    assert [result.scores.tolist() for result in results] == [[1.0]] * 5
