"""Items in memory by row: what is added and given up leaves no trace."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gcws_search.index.collection.items import EncodedBatch
from gcws_search.index.collection.row_store import RowStore
from gcws_search.index.contracts.arrays import UInt8s
from gcws_search.index.vectors.growing_rows import GrowingRows
from tests.support.data.adapters import expanded_row, prepared, space_of

DIMS = [5, None]


def filled(dim: int | None, numbers: list[int]) -> RowStore:
    held = RowStore(GrowingRows(space_of(dim).form, dim), [], [], np.empty(0, np.int64))
    add(held, dim, numbers)
    return held


def add(held: RowStore, dim: int | None, numbers: list[int]) -> None:
    rows = [{n % 5: 1.0 + n, (n + 1) % 5: -2.0 - n} for n in numbers]
    ids = [f"item {n}" for n in numbers]
    payloads = [b'{"n": 1}' if n % 2 else None for n in numbers]
    vectors, codes = prepared(space_of(dim), rows), np.empty((len(ids), 0), np.uint64)
    held.append(EncodedBatch(ids, payloads, vectors, codes, [10 * n for n in numbers]))


def content(held: RowStore) -> list[object]:
    n, rows = len(held), held.rows.view()
    return [
        held.ids,
        held.payloads,
        held.sequences[:n].tolist(),
        held.alive[:n].tolist(),
        [(expanded_row(rows, row), float(rows.norms[row])) for row in range(n)],
    ]


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("given_up", [[7], [7, 8, 9], list(range(7, 300))])
def test_what_is_cut_off_leaves_no_trace(dim: int | None, given_up: list[int]) -> None:
    held, other = filled(dim, [1, 2, 3]), filled(dim, [1, 2, 3])
    add(held, dim, given_up)
    held.truncate(3)
    assert content(held) == content(other)
    assert held.text_bytes == other.text_bytes
    for numbers in ([4], [5, 6]):
        add(held, dim, numbers)
        add(other, dim, numbers)
        assert content(held) == content(other)


@given(st.data())
def test_every_mask_that_is_held_stays_as_it_was(data: st.DataObject) -> None:
    held, live = filled(5, [1, 2, 3]), [1, 1, 1]
    views: list[tuple[UInt8s, list[int]]] = []
    for step in range(data.draw(st.integers(1, 12))):
        views.append((held.alive[: len(held)], list(live)))
        kept = data.draw(st.sets(st.sampled_from(range(len(views)))))
        views = [views[i] for i in sorted(kept)]
        if data.draw(st.booleans()):
            new = data.draw(st.integers(1, 80))  # there is room for 64 at first
            add(held, 5, [100 * step + i for i in range(new)])
            live += [1] * new
            if data.draw(st.booleans()):
                held.truncate(len(live) - new)
                del live[-new:]
        killed = data.draw(st.lists(st.sampled_from(range(len(live))), max_size=4))
        held.mark_dead(killed)
        for row in killed:
            live[row] = 0
        assert held.alive[: len(held)].tolist() == live
        assert all(mask.tolist() == expected for mask, expected in views)


def test_two_masks_take_turns_while_nobody_holds_one() -> None:
    held, addresses = filled(5, list(range(60))), []
    for row in range(20):
        held.mark_dead([row])
        addresses.append(held.alive.ctypes.data)
    assert len({*addresses[1:]}) == 2


def test_rows_that_are_killed_stay_alive_for_those_who_read_them() -> None:
    held = filled(5, [1, 2, 3])
    before = held.alive[: len(held)]
    held.mark_dead([0, 2])
    assert before.tolist() == [1, 1, 1]
    assert held.alive[: len(held)].tolist() == [0, 1, 0]
