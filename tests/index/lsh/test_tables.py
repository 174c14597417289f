"""Tables: every row under its key, whatever the order and the sizes in which rows came."""

import threading
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st

from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.batches import RawBatch
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams, SearchParams
from gcws_search.index.contracts.saved_index import UNKNOWN, SavedIndex
from gcws_search.index.hashing.banding import FIRST_TABLES
from gcws_search.index.lsh.band_keys import BandKeys
from gcws_search.index.lsh.tables import MAX_SEGMENTS, Tables, TableSegment
from gcws_search.index.threads import StoppedError, Workers
from tests.support.data.generated import Csr, Floats, clustered, sparse_of
from tests.support.index.items import opened_catalog
from tests.support.index.small_index import Rows, SmallIndex, answers

Keys = npt.NDArray[np.uint64]
BANDS = 4
ONE_THREAD = Workers(1)


def keys_of(rng: np.random.Generator, n: int, *, bits: int = 64) -> Keys:
    """Return random keys; few ``bits`` make many of them equal."""
    low = rng.integers(0, 2**bits, (n, BANDS), dtype=np.uint64)
    return low << np.uint64(64 - bits) if bits < 64 else low


def grown(keys: Keys, sizes: list[int], workers: Workers = ONE_THREAD) -> Tables:
    """Return tables extended batch by batch."""
    tables = Tables.of(BANDS, ())
    first = 0
    for size in sizes:
        batch = keys[first : first + size]
        tables = tables.extend(batch, first, workers)
        first += len(batch)
    return tables


def contents(tables: Tables) -> list[list[tuple[int, int]]]:
    """Return for each table its (key, row) pairs in the order of keys, then rows."""
    return [
        sorted(
            (int(key), int(row))
            for segment in tables.segments
            for key, row in zip(segment.keys[band], segment.rows[band], strict=True)
        )
        for band in range(BANDS)
    ]


def truth(keys: Keys, rows: npt.NDArray[np.int64] | None = None) -> list[list[tuple[int, int]]]:
    numbers = np.arange(len(keys)) if rows is None else rows
    return [
        sorted((int(key), int(row)) for key, row in zip(keys[:, band], numbers, strict=True))
        for band in range(BANDS)
    ]


def assert_sorted(segments: tuple[TableSegment, ...]) -> None:
    """Fail unless keys rise, and rows rise under equal keys."""
    for segment in segments:
        for keys, rows in zip(segment.keys, segment.rows, strict=True):
            assert np.all(keys[1:] >= keys[:-1])
            equal = keys[1:] == keys[:-1]
            assert np.all(rows[1:][equal] > rows[:-1][equal])


@given(
    st.lists(st.integers(0, 900), max_size=7), st.sampled_from([2, 64]), st.integers(0, 2**32 - 1)
)
def test_any_sizes_of_batches_give_the_same_tables(sizes: list[int], bits: int, seed: int) -> None:
    keys = keys_of(np.random.default_rng(seed), sum(sizes), bits=bits)
    tables = grown(keys, sizes)
    assert contents(tables) == truth(keys)
    assert_sorted(tables.segments)
    merged = tables.merged(ONE_THREAD)
    if merged is None:
        assert not sum(sizes)
        return
    whole = grown(keys, [sum(sizes)]).merged(ONE_THREAD)
    assert whole is not None
    np.testing.assert_array_equal(merged.keys, whole.keys)
    np.testing.assert_array_equal(merged.rows, whole.rows)


def test_tables_held_by_a_reader_do_not_change(rng: np.random.Generator) -> None:
    keys = keys_of(rng, 3000)
    held = []
    tables = Tables.of(BANDS, ())
    first = 0
    for size in (10, 500, 20, 1000, 5, 1465):
        tables = tables.extend(keys[first : first + size], first, ONE_THREAD)
        first += size
        held.append((tables, contents(tables)))
    tables.renumber(np.arange(len(keys), dtype=np.int64)[::1] - 1)
    for old, before in held:
        assert contents(old) == before


def test_many_small_batches_do_not_leave_many_segments(rng: np.random.Generator) -> None:
    keys = keys_of(rng, 6000)
    tables = grown(keys, [3] * 2000)
    # Full segments grow by a constant factor, so there are few of them.
    assert len(tables.segments) <= 2 * np.log2(6000)
    assert contents(tables) == truth(keys)


def batches(keys: Keys, size: int, max_merge_rows: int | None) -> list[Tables]:
    """Return the tables after each batch."""
    made = [Tables.of(BANDS, ())]
    for first in range(0, len(keys), size):
        batch = keys[first : first + size]
        made.append(made[-1].extend(batch, first, ONE_THREAD, max_merge_rows))
    return made[1:]


def test_a_write_merges_no_more_rows_than_it_may_and_the_background_the_rest(
    rng: np.random.Generator,
) -> None:
    keys = keys_of(rng, 12_000)
    for before, after in pairwise(batches(keys, 600, 2000)):
        known = {id(segment) for segment in before.segments}
        new = [segment for segment in after.segments if id(segment) not in known]
        assert len(new) == 1
        assert len(new[0]) <= 2000
    assert after.merge_is_due
    merged = after.with_due_merges(ONE_THREAD, threading.Event())
    assert not merged.merge_is_due
    assert contents(after) == contents(merged) == truth(keys)
    assert_sorted(merged.segments)
    assert not batches(keys, 600, None)[-1].merge_is_due


def test_merging_in_the_background_can_be_stopped(rng: np.random.Generator) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        batches(keys_of(rng, 6000), 600, 1000)[-1].with_due_merges(ONE_THREAD, stop)


@pytest.mark.parametrize("sizes", [[600] * 100, [600, 20] * 100])
def test_there_are_never_many_segments(sizes: list[int], rng: np.random.Generator) -> None:
    keys, tables, first, most = keys_of(rng, sum(sizes)), Tables.of(BANDS, ()), 0, 0
    for size in sizes:
        tables = tables.extend(keys[first : first + size], first, ONE_THREAD, 600)
        first += size
        most = max(most, len(tables.segments))
    assert MAX_SEGMENTS <= most <= MAX_SEGMENTS + 4
    assert contents(tables) == truth(keys)


@pytest.mark.parametrize("known", [600, 1800, 2000, 2100, 5400, 6000])
def test_tables_take_over_the_rows_that_came_since(known: int, rng: np.random.Generator) -> None:
    keys = keys_of(rng, 6000)
    later = batches(keys, 600, 2000)[-1]
    first = grown(keys[:known], [known])
    both = first.with_rows_after(later)
    assert both.segments[0] is first.segments[0]
    assert contents(both) == truth(keys)
    assert_sorted(both.segments)


def test_keys_of_some_rows_and_of_some_tables_are_those_that_they_were_given(
    rng: np.random.Generator,
) -> None:
    codes = rng.integers(0, 2**63, (1200, 4)).astype(np.uint64)
    tables, workers = Tables.of(4, ()), Workers(2)
    for start, end in ((0, 1100), (1100, 1190), (1190, 1200)):
        tables = tables.extend(codes[start:end], start, workers)
    assert len(tables.segments) > 1
    order = rng.permutation(1200)
    for rows in (order, order[:50], np.arange(1190, 1200), order[:0]):
        np.testing.assert_array_equal(tables.keys_of(rows, 3, workers), codes[rows, :3])
    for kept in (0, 1, 3, 4, 5):
        some = tables.some(kept)
        assert (some.bands, len(some)) == (min(kept, 4), 1200)
        np.testing.assert_array_equal(some.codes(some.bands), codes[:, :kept].T)


def test_memory_is_12_bytes_a_row_and_table(rng: np.random.Generator) -> None:
    tables = grown(keys_of(rng, 5000), [1000] * 5)
    assert 12 * BANDS * 5000 <= tables.nbytes <= 12 * BANDS * 5000 * 1.05


@pytest.mark.parametrize("sizes", [[2000], [700, 650, 600, 50], [3] * 500])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.999, 1.0])
def test_renumbered_tables_hold_the_rows_that_stay_under_their_new_numbers(
    rng: np.random.Generator, sizes: list[int], share: float
) -> None:
    keys = keys_of(rng, sum(sizes), bits=9)
    stays = rng.random(len(keys)) < share
    new_rows = np.where(stays, np.cumsum(stays) - 1, -1).astype(np.int64)
    tables = grown(keys, sizes).renumber(new_rows)
    assert len(tables) == stays.sum()
    assert contents(tables) == truth(keys[stays])
    assert_sorted(tables.segments)
    more = keys_of(rng, 100, bits=9)
    tables = tables.extend(more, int(stays.sum()), ONE_THREAD)
    assert contents(tables) == truth(np.concatenate([keys[stays], more]))
    assert_sorted(tables.segments)


def test_threads_do_not_change_tables(rng: np.random.Generator) -> None:
    keys = keys_of(rng, 30_000)
    sizes = [20_000, 9_000, 1_000]
    one = grown(keys, sizes)
    for threads in (2, 3):
        many = grown(keys, sizes, Workers(threads))
        assert len(one.segments) == len(many.segments)
        for a, b in zip(one.segments, many.segments, strict=True):
            np.testing.assert_array_equal(a.keys, b.keys)
            np.testing.assert_array_equal(a.rows, b.rows)


def test_no_rows_at_all() -> None:
    tables = Tables.of(BANDS, ())
    assert len(tables) == tables.nbytes == 0
    assert tables.merged(ONE_THREAD) is None
    assert len(tables.renumber(np.zeros(0, np.int64))) == 0
    assert len(tables.extend(np.empty((0, BANDS), np.uint64), 0, ONE_THREAD)) == 0


DIM = 12
WANTED = 20


def index_of(rows: Rows, params: GcwsParams | None = None) -> SmallIndex:
    dim = None if isinstance(rows, Csr) else rows.shape[1]
    params = params or GcwsParams(bands=WANTED)
    return SmallIndex(CollectionConfig(dim=dim, backend=params)).add(rows, [len(rows) // 2, 7])


def some_sparse(rng: np.random.Generator, count: int) -> Csr:
    dense = rng.standard_normal((count, DIM)) * (rng.random((count, DIM)) < 0.4)
    dense[:, 0] += 1.0
    return sparse_of(dense.astype(np.float32))


def bands_made(stored: StoredCollection) -> int:
    """Return how many tables a collection says that it has."""
    return int(stored.describe().backends[0].stats["bands_made"])


def keying_of(index: SmallIndex) -> BandKeys:
    backend = index.backend
    return BandKeys(backend.plan, backend.hash, Workers(1))


def assert_same(tables: Tables, others: Tables) -> None:
    assert tables.bands == others.bands
    ours, theirs = (each.merged(Workers(1)) for each in (tables, others))
    assert ours is not None
    assert theirs is not None
    np.testing.assert_array_equal(ours.keys, theirs.keys)
    np.testing.assert_array_equal(ours.rows, theirs.rows)


def built_at_once(index: SmallIndex, bands: int = WANTED) -> Tables:
    rows = index.rows.view()
    return Tables.of(bands, ()).extend(keying_of(index).keys(rows, bands), 0, Workers(1))


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize(
    "params",
    [
        GcwsParams(bands=WANTED),
        GcwsParams(bands=WANTED, encoding="zero_bit", seed=3),
        GcwsParams(bands=WANTED, encoding="b_bit", bits=7),
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
    whole = band_keys.keys(batch, WANTED)
    stored = FIRST_TABLES if form == "dense" else 0
    np.testing.assert_array_equal(index.backend.encode(batch), whole[:, :stored])
    for first in range(WANTED):
        part = band_keys.keys(batch, WANTED, first=first)
        np.testing.assert_array_equal(part, whole[:, first:])
        alone = band_keys.keys(batch[:1], WANTED, first=first)
        np.testing.assert_array_equal(alone, whole[:1, first:])


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_tables_made_later_are_those_made_from_the_start(
    rng: np.random.Generator, form: str
) -> None:
    dense = rng.standard_normal((3000, DIM)).astype(np.float32)
    rows: Rows = dense if form == "dense" else some_sparse(rng, 3000)
    index = index_of(rows)
    assert index.state.tables.bands == (FIRST_TABLES if form == "dense" else 0)
    index.finish_background_work()
    index.state = index.backend.with_all_tables(index.state, index.rows.view())
    assert_same(index.state.tables, built_at_once(index))
    index.add(rows[:300])  # rows put later are in all of them, too
    assert_same(index.state.tables, built_at_once(index))
    index.compact(np.arange(3300) % 3 > 0)
    assert_same(index.state.tables, built_at_once(index))


def test_all_tables_are_made_once_a_proof_has_use_for_them(rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, 3000, 20)
    index = index_of(rows)
    index.state = state = index.optimize()
    assert not index.is_overdue
    index.search(queries, SearchParams(recall=0.9))
    assert not index.backend.is_overdue(state, 3000, 3000)
    index.search(queries, SearchParams(recall=0.9, guarantee="proven"))
    assert index.backend.is_overdue(state, 3000, 3000)
    index.state = index.optimize()
    assert index.state.graph is state.graph
    assert_same(index.state.tables, built_at_once(index))
    assert not index.is_overdue


@pytest.mark.parametrize("count", [5, 2000], ids=["waiting", "linked"])
def test_rows_put_while_tables_are_made_are_in_them(rng: np.random.Generator, count: int) -> None:
    rows, _ = clustered(rng, 5000, 1)
    index = index_of(rows[:3000])
    index.state = index.optimize()
    lists = index.state.graph.neighbours
    index.search(rows[:1], SearchParams(recall=0.9, guarantee="proven"))
    made = index.optimize()
    index.add(rows[3000 : 3000 + count])
    waiting = index.state.delta.count
    assert waiting == (count if count == 5 else 0)
    index.adopt(made)
    assert index.state.delta.count == waiting
    assert index.state.graph.neighbours is lists
    index.finish_background_work()
    assert_same(index.state.tables, built_at_once(index))


@pytest.mark.parametrize("bands", [WANTED, FIRST_TABLES + 1])
def test_tables_that_only_link_rows_are_not_held(rng: np.random.Generator, bands: int) -> None:
    rows = (rng.standard_normal((2500, 3)) @ rng.standard_normal((3, 64))).astype(np.float32)
    index = index_of(rows, GcwsParams(bands=bands))
    backend, view = index.backend, index.rows.view()
    state = backend.linked(index.state, view, np.ones(2500, np.uint8), threading.Event())
    assert state is not None
    assert state.graph is not None
    assert state.graph.neighbours.narrow
    assert state.graph.neighbours.tables == 2 * FIRST_TABLES
    assert_same(state.tables, built_at_once(index, FIRST_TABLES))
    assert not backend.is_overdue(state, 2500, 2500)
    saved = backend.saved(state)
    assert saved is not None
    links = saved.links[:].copy()
    links[::50] = UNKNOWN  # these are linked anew
    again = backend.restore(view, backend.encode(view), SavedIndex(links, saved.notes))
    assert again.graph is not None
    assert (again.graph.links.array[:, 0] >= 0).all()
    assert_same(again.tables, state.tables)


def filled(catalog: Catalog, rows: Floats, bands: int = 32) -> StoredCollection:
    config = CollectionConfig(dim=rows.shape[1], backend=GcwsParams(bands=bands))
    stored = catalog.create("things", config)[0]
    ids = [str(i) for i in range(len(rows))]
    stored.put(ItemBatch(ids, stored.space.from_dense(rows), [None] * len(rows)))
    stored.finish_background_work()
    return stored


def test_a_restart_has_the_first_tables_alone_and_makes_the_others_again(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    rows, queries = clustered(rng, 4000, 100)
    params = SearchParams(limit=10, recall=0.8, guarantee="proven")
    with closing(opened_catalog(tmp_path)) as catalog:
        stored = filled(catalog, rows)
        first = bands_made(stored)
        answered(stored, queries, params)
        stored.finish_background_work()
        assert first < bands_made(stored) == 32
        expected = answered(stored, queries, params)
    with closing(opened_catalog(tmp_path)) as catalog:
        stored = catalog.get("things")
        assert bands_made(stored) == first
        answered(stored, queries[:1], params)
        stored.finish_background_work()
        assert answered(stored, queries, params) == expected


def answered(
    stored: StoredCollection, queries: Floats, params: SearchParams
) -> list[list[tuple[str, float]]]:
    results = stored.search(stored.space.from_dense(queries), params)
    return [[*zip(result.ids, result.scores, strict=True)] for result in results]


def test_estimates_by_fewer_tables_are_of_all_samples(rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, 600, 10)
    index = index_of(rows)
    params = SearchParams(limit=5, rerank="none", candidates=1000)
    few = answers(index.search(queries, params))
    index.state = index.backend.with_all_tables(index.state, index.rows.view())
    assert answers(index.search(queries, params)) == few


PROVEN = SearchParams(limit=3, recall=0.5, guarantee="proven")
ESTIMATES = SearchParams(limit=3, rerank="none")


USES: dict[str, tuple[Callable[[StoredCollection, RawBatch], object], int]] = {
    "proven": (lambda stored, some: stored.search(some, PROVEN), WANTED),
    "estimates": (lambda stored, some: stored.search(some, ESTIMATES), WANTED),
    "proven around an item": (lambda stored, _: stored.search_around(["5"], PROVEN), WANTED),
    "estimates around an item": (lambda stored, _: stored.search_around(["5"], ESTIMATES), WANTED),
    "proofs compared": (lambda stored, some: stored.compare([some], PROVEN), WANTED),
    "pairs of few rows": (lambda stored, _: stored.pairs(min_score=0.9, recall=0.9), FIRST_TABLES),
    "all pairs": (lambda stored, _: stored.pairs(min_score=0.9, recall=1.0), FIRST_TABLES),
    "measured": (lambda stored, some: stored.search(some, SearchParams(limit=3)), FIRST_TABLES),
    "exact": (lambda stored, some: stored.search(some, SearchParams(recall=1.0)), FIRST_TABLES),
}


@pytest.mark.parametrize("what", USES)
def test_a_collection_without_lists_has_all_tables_once_there_was_use_for_them(
    tmp_path: Path, rng: np.random.Generator, what: str
) -> None:
    rows, _ = clustered(rng, 300, 1)
    use, bands = USES[what]
    with closing(opened_catalog(tmp_path)) as catalog:
        stored = filled(catalog, rows, WANTED)
        assert bands_made(stored) == FIRST_TABLES
        use(stored, stored.space.from_dense(rows[:2]))
        if stored.optimizer.thread is not None:  # what was begun, not what a `settle` would begin
            stored.optimizer.thread.join(60)
        assert bands_made(stored) == bands


def test_rows_that_waited_when_tables_were_begun_wait_no_more_and_later_ones_do(
    rng: np.random.Generator,
) -> None:
    rows, _ = clustered(rng, 3008, 1)
    index = index_of(rows[:3000])
    index.state = index.optimize()
    index.add(rows[3000:3005])
    assert index.optimize().tables.bands == index.state.tables.bands < WANTED
    index.search(rows[:1], PROVEN)
    made = index.optimize()
    assert (made.delta.count, len(made.tables), made.tables.bands) == (0, 3005, WANTED)
    index.add(rows[3005:])
    assert index.state.delta.count == 8
    index.adopt(made)
    assert index.state.delta.count == 3
    index.finish_background_work()
    assert_same(index.state.tables, built_at_once(index))
