"""Merging runs of pairs: what numpy's set functions give."""

import numpy as np
import pytest

from gcws_search.index.kernels.ordering.keys import keep_new, merge


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
