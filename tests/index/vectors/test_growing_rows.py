"""Rows: they grow, and what a reader holds never changes."""

from pathlib import Path

import numpy as np
import pytest

from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.vectors.growing_rows import GrowingRows
from tests.support.data.adapters import LARGE_DIM, expanded_row, prepared, space_of

DIMS = [5, LARGE_DIM, None]


@pytest.fixture(params=["memory", "mapped"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """Where the vectors are mapped, if they are."""
    return tmp_path if request.param == "mapped" else None


def batch_of(rng: np.random.Generator, dim: int | None, n: int) -> VectorBatch:
    rows = [
        {int(i): float(rng.standard_normal()) for i in rng.choice(5, rng.integers(1, 6), False)}
        for _ in range(n)
    ]
    return prepared(space_of(dim), rows)


def content(batch: VectorBatch) -> list[tuple[dict[int, float], float]]:
    return [(expanded_row(batch, i), float(batch.norms[i])) for i in range(len(batch))]


@pytest.mark.parametrize("dim", DIMS)
def test_rows_come_back_as_appended_whatever_the_sizes_of_the_batches(
    rng: np.random.Generator, dim: int | None, folder: Path | None
) -> None:
    rows = GrowingRows(space_of(dim).form, dim, folder)
    expected: list[tuple[dict[int, float], float]] = []
    for n in (0, 1, 3, 0, 200, 64, 1, 700):
        batch = batch_of(rng, dim, n)
        rows.append(batch)
        expected += content(batch)
        assert len(rows) == len(rows.view()) == len(expected)
    assert content(rows.view()) == expected


@pytest.mark.parametrize("dim", DIMS)
def test_a_view_stays_as_it_was_while_rows_are_appended(
    rng: np.random.Generator, dim: int | None, folder: Path | None
) -> None:
    rows = GrowingRows(space_of(dim).form, dim, folder)
    held: list[tuple[VectorBatch, list[tuple[dict[int, float], float]]]] = []
    for n in (2, 5, 50, 500, 3):
        rows.append(batch_of(rng, dim, n))
        held.append((rows.view(), content(rows.view())))
    for view, before in held:
        assert content(view) == before


@pytest.mark.parametrize("dim", DIMS)
def test_rows_do_not_change_with_the_batch_they_came_from(
    rng: np.random.Generator, dim: int | None, folder: Path | None
) -> None:
    rows = GrowingRows(space_of(dim).form, dim, folder)
    batch = batch_of(rng, dim, 4)
    rows.append(batch)
    before = content(rows.view())
    for array in (batch.dense, batch.values, batch.norms):
        array.fill(7)
    assert content(rows.view()) == before


@pytest.mark.parametrize("dim", DIMS)
def test_taking_rows_keeps_the_chosen_ones_in_order_and_leaves_the_old_ones(
    rng: np.random.Generator, dim: int | None, folder: Path | None
) -> None:
    rows = GrowingRows(space_of(dim).form, dim, folder)
    rows.append(batch_of(rng, dim, 100))
    all_rows = content(rows.view())
    chosen = np.sort(rng.choice(100, 37, replace=False)).astype(np.int64)
    taken = rows.take(rows.view(), chosen)
    assert content(taken.view()) == [all_rows[i] for i in chosen]
    taken.append(batch_of(rng, dim, 10))
    assert len(taken) == 47
    assert content(taken.view())[:37] == [all_rows[i] for i in chosen]
    assert content(rows.view()) == all_rows
    assert len(rows.take(rows.view(), np.array([], np.int64))) == 0


@pytest.mark.parametrize("dim", DIMS)
def test_memory_is_counted_and_at_most_doubled(rng: np.random.Generator, dim: int | None) -> None:
    rows = GrowingRows(space_of(dim).form, dim)
    for _ in range(30):
        rows.append(batch_of(rng, dim, 100))
    view = rows.view()
    used = sum(
        array.nbytes for array in (view.dense, view.indptr, view.slots, view.values, view.norms)
    )
    assert used <= rows.nbytes <= 2 * used + 4096


def test_millions_of_entries_stay_where_they_are() -> None:
    rows, count = GrowingRows("sparse", None), 18_000_000
    batch = VectorBatch(
        "sparse",
        indptr=np.array([0, count], np.int64),
        slots=np.arange(count, dtype=np.uint32),
        values=np.arange(count, 2 * count, dtype=np.float32),
        norms=np.ones(1, np.float32),
    )
    rows.append(batch)
    first = rows.view()
    rows.append(batch)
    for name in ("slots", "values"):
        own, before = getattr(rows.view(), name), getattr(first, name)
        assert own.ctypes.data == before.ctypes.data
        assert (own.reshape(2, count) == getattr(batch, name)).all()
