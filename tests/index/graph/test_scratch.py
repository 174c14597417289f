"""Memory for walks: lent, given back, and lent again."""

from dataclasses import replace

import numpy as np
import pytest

from gcws_search.index.graph.scratch import ScratchPool, ScratchSizes

SIZES = ScratchSizes(rows=10_000, room=500, beam=20, longest=0, keys=8)


def test_one_row_more_takes_no_new_memory() -> None:
    spaces = ScratchPool()
    with spaces.taken(SIZES) as first:
        pass
    with spaces.taken(replace(SIZES, rows=SIZES.rows + 1)) as second:
        assert np.array_equal(second, first)


def test_two_walks_at_once_write_on_different_memory() -> None:
    spaces = ScratchPool()
    with spaces.taken(SIZES) as first, spaces.taken(SIZES) as second:
        assert not set(first[:, 0].tolist()) & set(second[:, 0].tolist())


@pytest.mark.parametrize("grown", ["rows", "room", "beam", "longest", "keys"])
def test_what_has_become_too_small_is_made_anew(grown: str) -> None:
    spaces = ScratchPool()
    with spaces.taken(SIZES) as first:
        before = first.copy()
    with spaces.taken(replace(SIZES, **{grown: 1_000_000})) as second:
        assert not np.array_equal(second[0], before[0])


def test_memory_of_a_walk_that_failed_is_not_lent_again() -> None:
    spaces = ScratchPool()
    with pytest.raises(RuntimeError), spaces.taken(SIZES) as first:
        raise RuntimeError
    with spaces.taken(SIZES) as second:
        assert second is not first
