"""Groups of rows in files: no false member, as many true ones as the bands promise, restarts."""

import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gcws_search.index.contracts.arrays import Int32s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import CollectionConfig
from gcws_search.index.corpus import (
    Grouping,
    RowFiles,
    StoredRows,
    TaskPool,
    Wide,
    append_rows,
    groups_of,
    measure_recall,
    row_types,
    scores_to_first,
)
from gcws_search.index.hashing.gcws import Gcws
from gcws_search.index.lsh.band_keys import BandKeys
from gcws_search.index.lsh.pair_bands import band_plan, bands_for, choose_bands, recall_of
from gcws_search.index.threads import Workers
from tests.support.index.small_index import SmallIndex
from tests.support.reference.kernels import gmm_of_rows

ROWS = 900
DIM = 20
LEAST = 0.8


class StoppedAtError(Exception):
    """The search was stopped."""


def made(rng: np.random.Generator, form: str) -> tuple[VectorBatch, np.ndarray]:
    """Return signed rows, every other one near an earlier one, and their scores."""
    rows = rng.standard_normal((ROWS, DIM)).astype(np.float32)
    rows[rng.random(rows.shape) < 0.3] = 0
    for row in range(1, ROWS, 2):
        noise = 1 + rng.random() * 0.3 * rng.standard_normal(DIM)
        rows[row] = rows[rng.integers(row)] * noise
    rows[5] = rows[8] = rows[2]
    dim = DIM if form == "dense" else None
    batch = SmallIndex(CollectionConfig(dim=dim)).prepare(rows)
    exact: Any = rows.astype(np.float64)
    scores = np.array([gmm_of_rows(np.broadcast_to(row, rows.shape), exact) for row in exact])
    return batch, scores


def first_of_group(scores: np.ndarray, least: float) -> np.ndarray:
    """Return of each row the first one of its component."""
    _, labels = connected_components(coo_array(scores >= least), directed=False)
    return np.asarray(np.unique(labels, return_index=True)[1][labels])


@pytest.fixture
def pool() -> Iterator[TaskPool]:
    with ThreadPoolExecutor(2) as executor:
        yield TaskPool(executor.submit, 2)


def stored(batch: VectorBatch, folder: Path) -> StoredRows:
    """Return rows in files of a folder."""
    with closing(RowFiles(folder, row_types(is_dense=batch.form == "dense"), {})) as files:
        append_rows(files, batch)
        files.commit()
        return files.rows()


def grouping(batch: VectorBatch, folder: Path, bands: int, width: int) -> Grouping:
    return Grouping(stored(batch, folder), folder, bands, width)


def connect(
    some: Grouping, pool: TaskPool, least: float = LEAST, memory_bytes: int = 1 << 30
) -> tuple[Int32s, Wide]:
    some.hash(pool, ignore)
    return some.connect(pool, least, memory_bytes, ignore)


def ignore(_: float) -> None:
    """Look at no progress."""


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_groups_are_those_of_all_pairs(
    rng: np.random.Generator, tmp_path: Path, pool: TaskPool, form: str
) -> None:
    batch, scores = made(rng, form)
    roots, wide = connect(grouping(batch, tmp_path, 100, 4), pool)  # 0.59^100 of the least are left
    assert np.array_equal(roots, first_of_group(scores, LEAST))
    assert wide.buckets == 0
    groups = groups_of(roots, batch.norms, "first")
    assert np.array_equal(np.sort(groups.rows), np.flatnonzero(np.bincount(roots)[roots] > 1))
    near = np.concatenate([*scores_to_first(stored(batch, tmp_path / "rows"), groups, pool)])
    firsts = roots[groups.rows]
    assert np.allclose(near, scores[groups.rows, firsts], rtol=0, atol=1e-12)
    assert np.all(np.diff(firsts) >= 0)
    assert [int(groups.rows[start]) for start in groups.starts[:-1]] == sorted({*firsts.tolist()})
    longest = groups_of(roots, batch.norms, "longest")
    for start, end in zip(longest.starts[:-1], longest.starts[1:], strict=True):
        members = longest.rows[start:end]
        assert batch.norms[members[0]] == batch.norms[members].max()
        assert {*members.tolist()} == {*np.flatnonzero(roots == roots[members[0]]).tolist()}


def test_few_bands_find_what_they_promise_and_nothing_false(
    rng: np.random.Generator, tmp_path: Path, pool: TaskPool
) -> None:
    batch, scores = made(rng, "sparse")
    truth = first_of_group(scores, LEAST)
    roots, _ = connect(grouping(batch, tmp_path, 2, 4), pool)
    assert np.array_equal(truth[roots], truth)  # each group is within one of all pairs
    a, b = np.nonzero(np.triu(scores >= LEAST, 1))
    promised = np.array([recall_of(2, 4, score) for score in scores[a, b]])
    found = np.mean(roots[a] == roots[b])
    assert found >= promised.mean() - 5 * np.sqrt(0.25 / (len(a) / 8))  # chains find more
    assert found < 1


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_each_band_joins_the_pairs_of_equal_keys_in_it(
    rng: np.random.Generator, tmp_path: Path, pool: TaskPool, form: str
) -> None:
    batch, scores = made(rng, form)
    bands, width = 3, 4
    roots, wide = connect(grouping(batch, tmp_path, bands, width), pool)
    plan = band_plan(bands, width)
    dense_width = batch.width if form == "dense" else None
    hash_ = Gcws(seed=0, samples=plan.samples, dense_width=dense_width)
    keys = BandKeys(plan, hash_, Workers(1)).keys(batch, bands)
    is_equal = keys[:, None] == keys[None]  # by band
    found = [first_of_group(scores * is_equal.any(axis=2), LEAST)]
    for band in range(bands):
        without = np.delete(is_equal, band, axis=2).any(axis=2)
        found.append(first_of_group(scores * without, LEAST))
    assert wide.buckets == 0
    assert np.array_equal(roots, found[0])
    assert not any(np.array_equal(found[0], each) for each in found[1:])


def test_parts_of_bands_give_the_same_groups(
    rng: np.random.Generator, tmp_path: Path, pool: TaskPool
) -> None:
    batch, _ = made(rng, "sparse")
    whole, _ = connect(grouping(batch, tmp_path / "a", 6, 3), pool)
    parts, _ = connect(grouping(batch, tmp_path / "b", 6, 3), pool, memory_bytes=5000)
    assert np.array_equal(whole, parts)
    assert len({*whole.tolist()}) < ROWS


def test_what_is_done_at_once_does_not_decide_what_is_found(
    rng: np.random.Generator, tmp_path: Path, pool: TaskPool
) -> None:
    rows = (1 + 0.05 * rng.standard_normal((700, DIM))).astype(np.float32)
    batch = SmallIndex(CollectionConfig(dim=DIM)).prepare(rows)
    found = [
        connect(
            grouping(batch, tmp_path / str(size), 3, 1), TaskPool(pool.submit, size), least=0.95
        )
        for size in (1, 2, 8)
    ]
    assert found[0][1].buckets > 0  # rows that are compared with leaders alone
    for roots, wide in found:
        assert np.array_equal(roots, found[0][0])
        assert wide == found[0][1]


def test_an_interrupted_search_goes_on(
    rng: np.random.Generator, tmp_path: Path, pool: TaskPool
) -> None:
    batch, _ = made(rng, "dense")
    wanted, _ = connect(grouping(batch, tmp_path / "a", 8, 3), pool)
    shares: list[float] = []

    def stop(share: float) -> None:
        shares.append(share)
        if len(shares) == 5:  # two parts a band
            raise StoppedAtError

    begun = grouping(batch, tmp_path / "b", 8, 3)
    begun.hash(pool, ignore)
    with pytest.raises(StoppedAtError):
        begun.connect(pool, LEAST, 1 << 30, stop)
    again: list[float] = []
    roots, _ = begun.connect(pool, LEAST, 1 << 30, again.append)
    assert np.array_equal(roots, wanted)
    assert min(again) == max(shares)  # of the part of a band that was stopped


def test_rows_of_one_key_are_compared_with_some_alone(
    rng: np.random.Generator, tmp_path: Path, pool: TaskPool
) -> None:
    rows = (1 + 0.05 * rng.standard_normal((700, DIM))).astype(np.float32)
    rows[650:] = rows[:50]
    batch = SmallIndex(CollectionConfig(dim=DIM)).prepare(rows)
    roots, wide = connect(grouping(batch, tmp_path, 3, 1), pool, least=0.999)
    assert wide.buckets > 0
    assert 256 < wide.rows <= 700
    assert wide.row is not None
    assert np.array_equal(roots[650:], np.arange(50))
    assert np.array_equal(roots[:650], np.arange(650))


def test_a_million_equal_rows_are_one_group(tmp_path: Path, pool: TaskPool) -> None:
    """Work that grows with the square of the rows of a key would take minutes."""
    batch = SmallIndex(CollectionConfig(dim=1)).prepare(np.ones((1 << 20, 1), np.float32))
    roots, wide = connect(grouping(batch, tmp_path, 1, 1), pool)
    assert not roots.any()
    assert wide == Wide(1, 1 << 20, 0)


@pytest.mark.parametrize("recall", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("score", [0.3, 0.8, 0.99, 1.0])
def test_as_many_bands_as_a_recall_needs(score: float, recall: float) -> None:
    for width in (1, 4, 9):
        bands = bands_for(width, score, recall)
        assert recall_of(bands, width, score) >= recall - 1e-9
        if bands > 1:
            assert recall_of(bands - 1, width, score) < recall


def test_longer_keys_where_rows_are_alike_by_chance(rng: np.random.Generator) -> None:
    apart = np.eye(500, dtype=np.float32)
    alike = (1 + rng.random((500, 500))).astype(np.float32)
    widths = []
    for rows in (apart, alike):
        batch = SmallIndex(CollectionConfig(dim=500)).prepare(rows)
        bands, width = choose_bands(batch, 0.95, 0.9)
        assert recall_of(bands, width, 0.95) >= 0.9
        widths.append(width)
    assert widths[0] < widths[1]


def test_measured_recall_is_that_of_the_sample(
    rng: np.random.Generator, tmp_path: Path, pool: TaskPool
) -> None:
    batch, scores = made(rng, "sparse")
    rows = stored(batch, tmp_path)
    truth = first_of_group(scores, LEAST).astype(np.int32)
    whole = measure_recall(rows, truth, LEAST, pool, ignore)
    assert whole.found == whole.pairs > 50
    assert whole.low < whole.high == 1
    apart = measure_recall(rows, np.arange(ROWS, dtype=np.int32), LEAST, pool, ignore)
    assert (apart.found, apart.pairs) == (0, whole.pairs)
    half = truth.copy()
    half[ROWS // 2 :] = np.arange(ROWS // 2, ROWS)
    some = measure_recall(rows, half, LEAST, pool, ignore)
    assert some.low < some.found / some.pairs < some.high
    assert 0 < some.found < some.pairs == whole.pairs


def test_recall_among_equal_rows_is_measured_in_little_memory(
    tmp_path: Path, pool: TaskPool
) -> None:
    count = 100_000
    batch = SmallIndex(CollectionConfig(dim=1)).prepare(np.ones((count, 1), np.float32))
    roots, held = (np.arange(count) % 2).astype(np.int32), stored(batch, tmp_path)
    tracemalloc.start()
    found = measure_recall(held, roots, LEAST, pool, ignore)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.pairs == 256 * (count - 1)
    assert found.found == 256 * (count // 2 - 1)
    assert peak < 100 << 20  # each pair as two integers takes 400 MB


def test_recall_is_measured_by_all_rows_that_may_score_enough(
    rng: np.random.Generator, tmp_path: Path, pool: TaskPool
) -> None:
    whole = np.sort(rng.integers(0, 2**32, (400, 10), dtype=np.uint32), axis=1)
    rows = [each for row in whole for each in (row, row[:8])]  # 8 of 10 are a score of LEAST
    sizes = np.array([*map(len, rows)])
    slots = np.concatenate(rows)
    batch = VectorBatch(
        "sparse",
        indptr=np.append(0, np.cumsum(sizes)),
        slots=slots,
        values=np.ones(len(slots), np.float32),
        norms=sizes.astype(np.float32),
    )
    pairs = np.arange(len(rows), dtype=np.int32) // 2
    found = measure_recall(stored(batch, tmp_path), pairs, LEAST, pool, ignore)
    assert found.found == found.pairs == 256  # sampled rows, each of which has one partner


def test_rows_come_back_and_what_is_not_committed_is_gone(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    for form in ("dense", "sparse"):
        batch, _ = made(rng, form)
        types = row_types(is_dense=form == "dense")
        with closing(RowFiles(tmp_path / form, types, {})) as files:
            append_rows(files, batch[:500])
            append_rows(files, batch[500:700])
            files.commit()
            counts = dict(files.counts)
            append_rows(files, batch[100:400])
        with closing(RowFiles(tmp_path / form, types, counts)) as files:
            assert files.counts == counts
            append_rows(files, batch[700:])
            files.commit()
            found = files.rows().open()
            for name in ("dense", "indptr", "slots", "values", "norms"):
                assert np.array_equal(getattr(found, name), getattr(batch, name)), name
