"""The pool of a walk against a sorted list of plain Python."""

import numpy as np
import pytest
from numba import njit

from gcws_search.index.contracts.arrays import Float32s, Int64s, UInt64s
from gcws_search.index.kernels.graph.candidate_pool import (
    EXPANDED,
    entry,
    insert_all,
    places_for,
    salt_of,
    salted,
)
from gcws_search.index.kernels.lanes.vector import keep, offset, pointer


@njit(nogil=True)
def _insert_all(pool: UInt64s, capacity: int, entries: UInt64s, together: int = 1) -> int:
    """Insert some entries at a time."""
    size = 0
    held, fresh = pointer(pool), entries.copy()
    for first in range(0, fresh.shape[0], together):
        count = min(together, fresh.shape[0] - first)
        size = insert_all(held, size, capacity, offset(pointer(fresh), first), count)
    keep(fresh)
    return size


@njit(nogil=True)
def _entries(scores: Float32s, rows: Int64s) -> UInt64s:
    return np.array([entry(scores[i], rows[i]) for i in range(rows.shape[0])], np.uint64)


@njit(nogil=True)
def _salted(entries, row):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return np.array([salted(e, salt_of(row)) for e in entries], np.uint64)


def _pool(capacity: int) -> UInt64s:
    return np.full(places_for(capacity), 1 << 62, np.uint64)


@pytest.mark.parametrize("capacity", [1, 2, 15, 16, 17, 31, 32, 33, 100])
@pytest.mark.parametrize("order", ["random", "rising", "falling"])
@pytest.mark.parametrize("together", [1, 2, 10, 150])
def test_a_pool_holds_the_best_entries_best_first(
    capacity: int, order: str, together: int, rng: np.random.Generator
) -> None:
    count = 150
    # Many scores are equal, and 0 and 1 are among them: rows then decide.
    scores = (rng.integers(0, 9, count) / 8).astype(np.float32)
    rows = rng.permutation(2**30 - 1 - np.arange(count)).astype(np.int64)
    rows[0], scores[0] = 0, 0.0
    entries = _entries(scores, rows)
    if order != "random":
        entries.sort()
        entries = entries[:: -1 if order == "falling" else 1].copy()
    pool = _pool(capacity)
    for given in (1, capacity // 2, capacity, count):
        size = _insert_all(pool, capacity, entries[:given], together)
        best = sorted(entries[:given].tolist(), reverse=True)[:capacity]
        assert size == len(best)
        assert pool[:size].tolist() == best


@njit(nogil=True)
def _insert_parts(pool: UInt64s, capacities: Int64s, sizes: Int64s, entries: UInt64s) -> int:
    """Insert parts of entries, each for a capacity of its own."""
    size = first = 0
    held, fresh = pointer(pool), entries.copy()
    for i in range(sizes.shape[0]):
        size = insert_all(held, size, capacities[i], offset(pointer(fresh), first), sizes[i])
        first += sizes[i]
    keep(fresh)
    return size


def test_parts_of_any_size_come_into_a_pool_that_grows(rng: np.random.Generator) -> None:
    for _ in range(200):
        sizes = rng.choice([1, 2, 3, 4, 9, 31, 32, 33, 70], 12)
        small, large = np.sort(rng.integers(1, 120, 2))
        capacities = np.where(np.arange(12) < 6, small, large)
        entries = _entries(rng.random(sizes.sum(), np.float32), np.arange(sizes.sum()))
        pool = _pool(int(large))
        size = _insert_parts(pool, capacities[:6], sizes[:6], entries)
        best = np.sort(entries[: sizes[:6].sum()])[::-1][:small]
        assert pool[:size].tolist() == best.tolist()
        pool[size:] = 0  # what was dropped is forgotten
        size = _insert_parts(pool, capacities, sizes, entries)
        assert size == min(large, len(best) + sizes[6:].sum())
        found = pool[:size].tolist()
        assert found == sorted(set(found), reverse=True)
        assert set(np.sort(entries)[::-1][:small].tolist()) <= set(found)


@pytest.mark.parametrize("row", [0, 1, 77, 2**30 - 1])
def test_a_salt_changes_the_row_alone_and_is_taken_back_by_itself(
    row: int, rng: np.random.Generator
) -> None:
    rows = np.concatenate([[0, 2**30 - 1], rng.integers(0, 2**30, 500)])
    entries = _entries(rng.random(len(rows), np.float32), rows)
    entries[::3] |= EXPANDED
    changed = _salted(entries, row)
    assert _salted(changed, row).tolist() == entries.tolist()
    assert ((changed ^ entries) & ~np.uint64((2**30 - 1) << 2)).max() == 0


def test_rows_that_score_the_same_are_not_in_the_same_order_for_all_rows() -> None:
    entries = _entries(np.ones(200, np.float32), np.arange(200))
    first = {int(np.argmax(_salted(entries, row))) for row in range(200)}
    assert len(first) > 20
