"""Links in three or four bytes."""

import numpy as np
import pytest

from gcws_search.index.contracts.links import LinkArray

ROWS = 200


@pytest.mark.parametrize(("rows", "bytes_"), [(1 << 23, 3), ((1 << 23) + 1, 4), (1 << 30, 4)])
def test_links_are_the_numbers_written(rows: int, bytes_: int, rng: np.random.Generator) -> None:
    lines = rng.integers(-2, rows, (ROWS, 5)).astype(np.int32)
    lines[0] = -2, -1, 0, rows - 2, rows - 1
    links = LinkArray.of(lines, rows)
    assert links.shape == lines.shape
    assert links.nbytes == bytes_ * lines.size
    np.testing.assert_array_equal(links[:], lines)
    np.testing.assert_array_equal(links[5:9, 0], lines[5:9, 0])
    chosen = rng.permutation(ROWS)
    np.testing.assert_array_equal(links.take(chosen), lines[chosen])
    assert links.count_numbers() == np.count_nonzero(lines >= 0)
    links[3], links[4, 2], links[chosen[:2]] = -1, rows - 1, lines[:2]
    lines[3], lines[4, 2], lines[chosen[:2]] = -1, rows - 1, lines[:2].copy()
    np.testing.assert_array_equal(links[:], lines)


def test_links_get_longer_numbers_when_there_are_more_rows(rng: np.random.Generator) -> None:
    lines = rng.integers(-1, 1 << 23, (ROWS, 5)).astype(np.int32)
    short = LinkArray.of(lines, 1 << 23)
    assert short.has_room(1 << 23)
    assert not short.has_room((1 << 23) + 1)
    long = LinkArray.of(short, (1 << 23) + 1)
    assert long.has_room((1 << 23) + 1)
    np.testing.assert_array_equal(long[:], lines)
