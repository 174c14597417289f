"""When an index that has grown is optimized, by how fast rows come in."""

import pytest

from gcws_search.index.collection.optimizer import Arrivals
from gcws_search.index.contracts.policies import OptimizerPolicy

POLICY = OptimizerPolicy(
    pause_seconds=0.2, max_pause_seconds=5.0, gap_factor=4.0, max_growth_share=0.4
)
SECONDS_A_ROW = 2e-5
START = Arrivals(1_000_000, 100, 50.0)


def pause(rows: int, versions: int, seconds: float) -> float:
    end = Arrivals(START.rows + rows, START.version + versions, START.time + seconds)
    return end.pause(START, SECONDS_A_ROW, POLICY)


@pytest.mark.parametrize("rows", [0, 1, 3_999])
def test_optimizing_begins_where_rows_come_in_slowly(rows: int) -> None:
    """At 20,000 rows a second they grow by 40 % in the time that it takes."""
    assert pause(rows, rows, 0.2) == 0.0


def test_it_begins_where_rows_have_become_fewer() -> None:
    assert pause(-500_000, 1, 0.2) == 0.0


@pytest.mark.parametrize(
    ("rows", "versions", "seconds", "expected"),
    [
        (8_000, 1, 0.2, 0.8),  # gaps of 0.2 s
        (65_536, 1, 0.5, 2.0),
        (65_536, 20, 0.5, 0.2),  # many writes: the least pause
        (200_000, 1, 3.0, 5.0),  # the greatest
    ],
)
def test_it_waits_for_the_end_of_a_bulk_load_by_the_gaps_between_its_rows(
    rows: int, versions: int, seconds: float, expected: float
) -> None:
    assert pause(rows, versions, seconds) == pytest.approx(expected)


def test_slow_optimizing_waits_for_slower_loads() -> None:
    end = Arrivals(START.rows + 1_000, START.version + 10, START.time + 1.0)
    assert end.pause(START, 3e-4, POLICY) == 0.0
    assert end.pause(START, 5e-4, POLICY) > 0.0
