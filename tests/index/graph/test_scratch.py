"""Memory for walks: lent, given back, and lent again."""

from dataclasses import replace

import pytest

from gcws_search.index.graph.scratch import ScratchPool, ScratchSizes

SIZES = ScratchSizes(rows=10_000, room=500, beam=20, longest=0, keys=8)


def test_one_row_more_takes_no_new_memory() -> None:
    spaces = ScratchPool()
    with spaces.lend(SIZES) as first:
        pass
    with spaces.lend(replace(SIZES, rows=SIZES.rows + 1)) as second:
        assert second is first


def test_two_walks_at_once_write_on_different_memory() -> None:
    spaces = ScratchPool()
    with spaces.lend(SIZES) as first, spaces.lend(SIZES) as second:
        assert not set(first.addresses[:, 0].tolist()) & set(second.addresses[:, 0].tolist())


@pytest.mark.parametrize("grown", ["rows", "room", "beam", "longest", "keys"])
def test_what_has_become_too_small_is_made_anew(grown: str) -> None:
    spaces = ScratchPool()
    with spaces.lend(SIZES) as first:
        before = first
    with spaces.lend(replace(SIZES, **{grown: 1_000_000})) as second:
        assert second is not before


def test_memory_of_a_walk_that_failed_is_not_lent_again() -> None:
    spaces = ScratchPool()
    with pytest.raises(RuntimeError), spaces.lend(SIZES) as first:
        raise RuntimeError
    with spaces.lend(SIZES) as second:
        assert second is not first


def test_a_search_sees_as_many_rows_whatever_memory_it_is_lent() -> None:
    """Else it would end elsewhere after a search that may see more."""
    spaces = ScratchPool()
    small = replace(SIZES, room=100)
    with spaces.lend(small) as alone:
        before = alone.addresses[:, 2].tolist()
    spaces = ScratchPool()
    with spaces.lend(SIZES) as first:
        pass
    with spaces.lend(small) as second:
        assert second is first
        assert second.addresses[:, 2].tolist() == before
    with spaces.lend(SIZES) as third:
        assert third is first
        assert set(third.addresses[:, 2].tolist()) == {SIZES.room}
