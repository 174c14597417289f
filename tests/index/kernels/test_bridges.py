"""Links that lead around deleted rows, beside plain Python."""

import numpy as np
import pytest

from gcws_search.index.contracts.arrays import Int32s
from gcws_search.index.contracts.saved_index import NO_ROW, UNKNOWN
from gcws_search.index.kernels.graph.bridges import bridge
from tests.support.index.bridges import WALKED, bridged


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
