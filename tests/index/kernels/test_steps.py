"""Small steps of kernels beside NumPy and plain Python."""

import numpy as np
import numpy.typing as npt
import pytest
from numba import njit

from gcws_search.index.contracts.arrays import LANES, Int32s
from gcws_search.index.contracts.saved_index import NO_ROW, UNKNOWN
from gcws_search.index.kernels.graph.bridges import bridge
from gcws_search.index.kernels.lanes.vector import (
    SPARE,
    append_less,
    load,
    lower,
    pointer,
    product_of_halves,
    signed_shift,
    splat,
    store,
)
from gcws_search.index.kernels.ordering.keys import keep_new, merge, sort_keys
from tests.support.index.bridges import WALKED, bridged


@njit(nogil=True)
def _stepped(a: Int32s, b: Int32s, places: np.int32, shifted: Int32s, products: Int32s) -> None:
    for i in range(0, len(a), LANES):
        store(shifted, i, signed_shift(load(a, i), splat(places)))
        store(products, i, product_of_halves(load(a, i), load(b, i)))


def test_shifts_keep_the_sign_and_products_are_of_the_lower_halves(
    rng: np.random.Generator,
) -> None:
    a, b = rng.integers(-(2**31), 2**31, (2, 64 * LANES), dtype=np.int64).astype(np.int32)
    a[:4], b[:4] = (-1, 2**31 - 1, -(2**31), 0xFFFF), (-1, 0xFFFF, 1, 0xFFFF)
    shifted, products = np.empty_like(a), np.empty_like(a)
    _stepped(a, b, np.int32(23), shifted, products)
    np.testing.assert_array_equal(shifted, a >> 23)
    halves = (a.astype(np.int64) & 0xFFFF) * (b.astype(np.int64) & 0xFFFF)
    np.testing.assert_array_equal(products, halves >> 16)


@njit(nogil=True)
def _listed(values: npt.NDArray[np.float32], limit: np.float32, out: npt.NDArray[np.int32]) -> int:
    to_out = pointer(out)
    filled = 0
    for start in range(0, len(values), LANES):
        number = splat(np.int32(start))
        filled = append_less(to_out, filled, load(values, start), splat(limit), number)
    return filled


@njit(nogil=True)
def _lower(numbers: npt.NDArray[np.int64], place: int, value: np.int64) -> None:
    lower(pointer(numbers), place, value)


def test_lanes_below_a_limit_are_listed_in_order(rng: np.random.Generator) -> None:
    values = rng.random(LANES * 2000).astype(np.float32)
    for limit in (0.0, 0.05, 0.5, 0.95, 2.0):
        out = np.full(len(values) + SPARE + 1, -1, np.int32)
        filled = _listed(values, np.float32(limit), out)
        np.testing.assert_array_equal(out[:filled], np.flatnonzero(values < np.float32(limit)))
        assert np.all(out[filled + SPARE :] == -1)


def test_a_number_is_replaced_by_lesser_ones_alone() -> None:
    numbers = np.array([5, -(2**40), 7])
    for place, value in ((0, 4), (0, 6), (1, -(2**40) - 1), (1, 0), (2, 7)):
        _lower(numbers, place, np.int64(value))
    assert numbers.tolist() == [4, -(2**40) - 1, 7]


@pytest.mark.parametrize(
    ("fresh", "known"), [(0, 0), (0, 5), (7, 0), (200, 300), (500, 3), (2, 90)]
)
def test_new_numbers_are_kept_once(fresh: int, known: int, rng: np.random.Generator) -> None:
    numbers = np.sort(rng.integers(0, 100, fresh).astype(np.uint64))
    others = np.unique(rng.integers(0, 100, known).astype(np.uint64))
    expected = np.setdiff1d(numbers, others)
    count = keep_new(numbers, others)
    np.testing.assert_array_equal(numbers[:count], expected)


def test_the_greatest_and_the_least_numbers_are_numbers_like_others() -> None:
    ends = np.array([0, 0, 2**64 - 1, 2**64 - 1], np.uint64)
    assert keep_new(ends, np.empty(0, np.uint64)) == 2
    assert ends[:2].tolist() == [0, 2**64 - 1]
    assert keep_new(ends[:2], np.array([0], np.uint64)) == 1
    assert ends[0] == 2**64 - 1


@pytest.mark.parametrize(("m", "n"), [(0, 0), (0, 4), (4, 0), (30, 50), (50, 1)])
def test_runs_are_merged_with_their_scores(m: int, n: int, rng: np.random.Generator) -> None:
    numbers = rng.choice(1000, m + n, replace=False).astype(np.uint64)
    scores = numbers / 7
    a, b = np.sort(numbers[:m]), np.sort(numbers[m:])
    out, out_scores = np.empty(m + n, np.uint64), np.empty(m + n)
    merge(a, a / 7, b, b / 7, out, out_scores)
    np.testing.assert_array_equal(out, np.sort(numbers))
    np.testing.assert_array_equal(out_scores, np.sort(scores))


@pytest.mark.parametrize("count", [0, 1, 2, 7, 128, 129, 3000])
@pytest.mark.parametrize("distinct", [1, 5, 1 << 62])
def test_keys_rise_and_equal_ones_keep_their_order(
    rng: np.random.Generator, count: int, distinct: int
) -> None:
    keys = rng.integers(distinct, size=count).astype(np.uint64) << np.uint64(1)
    rows = np.arange(count, dtype=np.int32)
    order = np.argsort(keys, kind="stable")
    expected = keys[order], rows[order]
    sort_keys(keys, rows, np.empty_like(keys), np.empty_like(rows))
    np.testing.assert_array_equal(keys, expected[0])
    np.testing.assert_array_equal(rows, expected[1])


def lists(own_links: Int32s) -> list[list[int]]:
    return [[each for each in own if each >= 0] for own in own_links.tolist()]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.95])
@pytest.mark.parametrize("width", [1, 3, 8, 32])
def test_links_are_those_of_plain_python(
    rng: np.random.Generator, width: int, share: float
) -> None:
    n, gone = 300, int(300 * share)
    every = np.array([rng.permutation(n + gone)[:width] for _ in range(n + gone)], np.int32)
    every[np.arange(width) >= rng.integers(0, width + 1, n + gone)[:, None]] = NO_ROW
    links, deleted = every[:n].copy(), every[n:].copy()
    behind = {n + place: own for place, own in enumerate(lists(deleted))}
    expected = [bridged(row, own, behind, width) for row, own in enumerate(lists(links))]
    emptied = {row for row, own in enumerate(lists(links)) if own and not expected[row]}
    bridge(links, deleted, UNKNOWN)
    assert lists(links) == expected
    assert set(np.flatnonzero(links[:, 0] == UNKNOWN).tolist()) == emptied
    assert not ((links[:, :-1] < 0) & (links[:, 1:] >= 0)).any()
    assert (deleted == every[n:]).all()


def test_a_long_way_is_given_up() -> None:
    """Behind each deleted row is the next, and a row behind the last of those looked at."""
    for length, expected in ((WALKED, 1), (WALKED + 1, UNKNOWN)):
        deleted = np.arange(3, length + 3, dtype=np.int32)[:, None]
        deleted[-1] = 1
        links = np.array([[2], [NO_ROW]], np.int32)
        bridge(links, deleted, UNKNOWN)
        assert links.tolist() == [[expected], [NO_ROW]]


def test_a_deleted_row_is_looked_at_once() -> None:
    """From each step of a ladder two ways lead to the next: a million in all."""
    steps, n = 20, 2
    deleted = np.array([[n + 2 * step + 2, n + 2 * step + 3] for step in range(steps)], np.int32)
    deleted = np.repeat(deleted, 2, axis=0)
    deleted[-2:] = [1, NO_ROW]
    links = np.array([[n, NO_ROW], [NO_ROW, NO_ROW]], np.int32)
    bridge(links, deleted, UNKNOWN)
    assert links.tolist() == [[1, NO_ROW], [NO_ROW, NO_ROW]]


def test_unknown_lists_remain_unknown() -> None:
    links = np.array([[UNKNOWN, NO_ROW], [2, NO_ROW]], np.int32)
    bridge(links, np.array([[0, NO_ROW]], np.int32), NO_ROW)
    assert links.tolist() == [[UNKNOWN, NO_ROW], [0, NO_ROW]]
