"""Sorting keys with their rows."""

import numpy as np
import pytest

from gcws_search.index.kernels.ordering.keys import sort_keys


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
