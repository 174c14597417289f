"""Tables beyond the first: made of all rows at once, the same as if made from the start."""

import threading
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams, SearchParams
from gcws_search.index.contracts.saved_index import UNKNOWN, SavedIndex
from gcws_search.index.hashing.banding import FIRST_TABLES
from gcws_search.index.lsh.band_keys import BandKeys
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.threads import Workers
from tests.support.data.generated import Csr, Floats, clustered, sparse_of
from tests.support.index.items import opened_catalog
from tests.support.index.small_index import Rows, SmallIndex, all_scores, answers
from tests.support.index.tables import backend_of, bands_made, improved

DIM = 12
BANDS = 20


def index_of(rows: Rows, params: GcwsParams | None = None) -> SmallIndex:
    dim = None if isinstance(rows, Csr) else rows.shape[1]
    params = params or GcwsParams(bands=BANDS)
    return SmallIndex(CollectionConfig(dim=dim, backend=params)).add(rows, [len(rows) // 2, 7])


def some_sparse(rng: np.random.Generator, count: int) -> Csr:
    dense = rng.standard_normal((count, DIM)) * (rng.random((count, DIM)) < 0.4)
    dense[:, 0] += 1.0
    return sparse_of(dense.astype(np.float32))


def keying_of(index: SmallIndex) -> BandKeys:
    backend = backend_of(index)
    return BandKeys(backend.plan, backend.hash, Workers(1))


def assert_same(tables: Tables, others: Tables) -> None:
    assert tables.bands == others.bands
    ours, theirs = (each.merged(Workers(1)) for each in (tables, others))
    assert ours is not None
    assert theirs is not None
    np.testing.assert_array_equal(ours.keys, theirs.keys)
    np.testing.assert_array_equal(ours.rows, theirs.rows)


def built_at_once(index: SmallIndex) -> Tables:
    rows = index.rows.view()
    return Tables.of(BANDS, ()).extend(keying_of(index).keys(rows, BANDS), 0, Workers(1))


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize(
    "params",
    [
        GcwsParams(bands=BANDS),
        GcwsParams(bands=BANDS, encoding="zero_bit", seed=3),
        GcwsParams(bands=BANDS, encoding="b_bit", bits=7),
    ],
    ids=["full", "zero_bit", "b_bit"],
)
def test_keys_in_some_tables_are_those_among_all(
    rng: np.random.Generator, params: GcwsParams, form: str
) -> None:
    dense = rng.standard_normal((40, DIM)).astype(np.float32)
    rows: Rows = dense if form == "dense" else some_sparse(rng, 40)
    index = index_of(rows, params)
    band_keys, batch = keying_of(index), index.prepare(rows)
    whole = band_keys.keys(batch, BANDS)
    np.testing.assert_array_equal(backend_of(index).encode(batch), whole[:, :FIRST_TABLES])
    for first in range(BANDS):
        part = band_keys.keys(batch, BANDS, first=first)
        np.testing.assert_array_equal(part, whole[:, first:])
        alone = band_keys.keys(batch[:1], BANDS, first=first)
        np.testing.assert_array_equal(alone, whole[:1, first:])


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_tables_made_later_are_those_made_from_the_start(
    rng: np.random.Generator, form: str
) -> None:
    dense = rng.standard_normal((3000, DIM)).astype(np.float32)
    rows: Rows = dense if form == "dense" else some_sparse(rng, 3000)
    index = index_of(rows)
    assert index.state.tables.bands == FIRST_TABLES
    index.state = backend_of(index).with_all_tables(index.state, index.rows.view())
    assert_same(index.state.tables, built_at_once(index))
    index.add(rows[:300])  # rows put later are in all of them, too
    assert_same(index.state.tables, built_at_once(index))
    index.compact(np.arange(3300) % 3 > 0)
    assert_same(index.state.tables, built_at_once(index))


def test_all_tables_are_made_once_a_proof_has_use_for_them(rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, 3000, 20)
    index = index_of(rows)
    state = improved(index)
    assert not backend_of(index).is_overdue(state, 3000, 3000)
    index.state = state
    index.search(queries, SearchParams(recall=0.9))
    assert not backend_of(index).is_overdue(state, 3000, 3000)
    index.search(queries, SearchParams(recall=0.9, guarantee="proven"))
    assert backend_of(index).is_overdue(state, 3000, 3000)
    index.state = improved(index)
    assert index.state.graph is state.graph
    assert_same(index.state.tables, built_at_once(index))
    assert not backend_of(index).is_overdue(index.state, 3000, 3000)


@pytest.mark.parametrize("count", [5, 2000], ids=["waiting", "linked"])
def test_rows_put_while_tables_are_made_are_in_them(rng: np.random.Generator, count: int) -> None:
    rows, _ = clustered(rng, 5000, 1)
    index = index_of(rows[:3000])
    index.state = improved(index)
    lists = index.state.graph.neighbours
    index.search(rows[:1], SearchParams(recall=0.9, guarantee="proven"))
    made = improved(index)
    index.add(rows[3000 : 3000 + count])
    waiting = index.state.delta.count
    assert waiting == (count if count == 5 else 0)
    adopted = backend_of(index).adopt(index.state, index.rows.view(), made)
    assert adopted is not None
    index.state = adopted
    assert index.state.delta.count == waiting
    assert index.state.graph.neighbours is lists
    index.finish_background_work()
    assert_same(index.state.tables, built_at_once(index))


def test_rows_along_few_dimensions_have_the_tables_their_lists_are_linked_through(
    rng: np.random.Generator,
) -> None:
    rows = (rng.standard_normal((2500, 3)) @ rng.standard_normal((3, 64))).astype(np.float32)
    index = index_of(rows)
    state = backend_of(index).linked(
        index.state, index.rows.view(), np.ones(2500, np.uint8), threading.Event()
    )
    assert state is not None
    assert state.graph is not None
    assert state.graph.neighbours.narrow
    assert state.tables.bands == 2 * FIRST_TABLES
    saved = backend_of(index).saved(state)
    assert saved is not None
    links = saved.links.copy()
    links[::50] = UNKNOWN  # these are linked anew
    rows_again = index.rows.view()
    again = backend_of(index).restore(
        rows_again, backend_of(index).encode(rows_again), SavedIndex(links, saved.notes)
    )
    assert again.graph is not None
    assert (again.graph.links.array[:, 0] >= 0).all()
    assert_same(again.tables, state.tables)


@pytest.mark.parametrize("guarantee", ["measured", "proven"])
def test_a_service_makes_them_beside_its_searches_and_answers_as_promised_before(
    tmp_path: Path, rng: np.random.Generator, guarantee: str
) -> None:
    rows, queries = clustered(rng, 4000, 100)
    wanted = guarantee == "proven"
    params = SearchParams(limit=10, recall=0.8, guarantee=guarantee)  # type: ignore[arg-type]
    scores = np.sort(all_scores(queries, rows, rows.shape[1]), axis=1)[:, ::-1][:, :10]
    catalog = opened_catalog(tmp_path)
    stored = catalog.create("things", CollectionConfig(dim=rows.shape[1]))[0]
    ids = [str(i) for i in range(4000)]
    stored.put(ItemBatch(ids, stored.space.from_dense(rows), [None] * 4000))
    stored.finish_background_work()
    first = bands_made(stored)
    assert first < 32
    for turn in range(2):
        assert bands_made(stored) == (32 if wanted and turn else first)
        assert recall(stored, queries, params, scores) >= 0.8 - 3 * 0.4 / 100**0.5
        stored.finish_background_work()
    assert bands_made(stored) == (32 if wanted else first)
    expected = answered(stored, queries, params)
    catalog.close()
    catalog = opened_catalog(tmp_path)
    stored = catalog.get("things")
    assert bands_made(stored) == first
    stored.search(stored.space.from_dense(queries[:1]), params)
    stored.finish_background_work()
    assert answered(stored, queries, params) == expected
    catalog.close()


def answered(
    stored: StoredCollection, queries: Floats, params: SearchParams
) -> list[list[tuple[str, float]]]:
    results = stored.search(stored.space.from_dense(queries), params)
    return [[*zip(result.ids, result.scores, strict=True)] for result in results]


def recall(
    stored: StoredCollection, queries: Floats, params: SearchParams, scores: npt.NDArray[np.float64]
) -> float:
    shares = [
        np.mean([score >= best[-1] - 1e-6 for _, score in hits])
        for hits, best in zip(answered(stored, queries, params), scores, strict=True)
    ]
    return float(np.mean(shares))


def test_estimates_by_fewer_tables_are_of_all_samples(rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, 600, 10)
    index = index_of(rows)
    params = SearchParams(limit=5, rerank="none", candidates=1000)
    few = answers(index.search(queries, params))
    index.state = backend_of(index).with_all_tables(index.state, index.rows.view())
    assert answers(index.search(queries, params)) == few
