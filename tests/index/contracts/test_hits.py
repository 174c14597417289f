"""Hits of a batch as arrays: indexed, cut and put together, they are the hits of each query."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.harness.engine import RowHits, row_hits
from gcws_search.index.contracts import hits as hits_module
from gcws_search.index.contracts.hits import (
    SAMPLE_ROWS,
    SCAN,
    TABLES,
    BatchHits,
    Explanation,
    LiveSample,
)
from gcws_search.index.kernels.graph import batch_search
from tests.support.index.small_index import answer, answers

Wide = tuple[list[int], list[float]]


def batch(method: int, sizes: list[int], *, width: int, first: int = 0) -> BatchHits:
    """Return hits whose rows and counters tell queries apart, numbered from ``first``."""
    m = len(sizes)
    numbers = np.arange(first, first + m)
    rows = 100 * numbers[:, None] + np.arange(width)
    scores = np.tile(1.0 / np.arange(1, width + 1), (m, 1))
    return BatchHits.of(
        method,
        rows,
        scores,
        np.array(sizes),
        expected_recall=1.0 / (1 + numbers),
        bands=32,
        depth=numbers,
        candidates=10 * numbers,
        scored=numbers + 1,
        beam=numbers + 2,
    )


def expected(method: str, number: int, size: int) -> tuple[Wide, Explanation]:
    rows = [100 * number + i for i in range(size)]
    explanation = Explanation(
        method,
        bands=32,
        depth=number,
        candidates=10 * number,
        scored=number + 1,
        beam=number + 2,
        expected_recall=1.0 / (1 + number),
    )
    return (rows, [1.0 / (1 + i) for i in range(size)]), explanation


def shown(hits: RowHits) -> tuple[Wide, Explanation]:
    return answer(hits), hits.explanation


def test_each_query_has_its_own_line() -> None:
    hits = batch(TABLES, [2, 0, 3], width=3)
    truth = [expected("tables", number, size) for number, size in enumerate([2, 0, 3])]
    assert len(hits) == 3
    assert [shown(one) for one in row_hits(hits)] == truth
    assert [shown(one) for one in row_hits(hits.some(np.array([2, 1])))] == truth[:0:-1]


def test_batches_are_put_together_in_the_order_of_their_places() -> None:
    probed = batch(TABLES, [2, 1], width=2)
    scanned = batch(SCAN, [4, 0, 3], width=4, first=2)
    whole = BatchHits.combine([(np.array([4, 1]), probed), (np.array([0, 2, 3]), scanned)])
    assert [shown(hits) for hits in row_hits(whole)] == [
        expected("scan", 2, 4),
        expected("tables", 1, 1),
        expected("scan", 3, 0),
        expected("scan", 4, 3),
        expected("tables", 0, 2),
    ]


def test_a_query_of_more_hits_than_a_line_holds_keeps_them_all_wherever_it_is_put() -> None:
    both = np.arange(7), np.full(7, 0.5)
    narrow = batch(SCAN, [2, 2, 2], width=2)
    hits = replace(narrow, wider={1: both})
    wide = both[0].tolist(), both[1].tolist()
    assert answer(row_hits(hits)[1]) == wide
    assert answers(row_hits(hits)[1:]) == [wide, answer(row_hits(narrow)[2])]
    assert answers(row_hits(hits.some(np.array([2, 1])))) == [answer(row_hits(narrow)[2]), wide]
    other = batch(TABLES, [1], width=1)
    whole = BatchHits.combine([(np.array([3, 0, 2]), hits), (np.array([1]), other)])
    first, _, last = map(answer, row_hits(narrow))
    assert answers(row_hits(whole)) == [wide, answer(row_hits(other)[0]), last, first]


def test_hits_of_another_search_take_the_place_of_some() -> None:
    many = np.arange(7), np.full(7, 0.5)
    held = batch(TABLES, [2, 1, 0, 2], width=2)
    hits = replace(held, wider={1: many, 2: many})
    others = shown(row_hits(hits)[0]), shown(row_hits(hits)[2])
    scanned = batch(SCAN, [4, 1], width=4, first=2)
    wanted = tuple(map(shown, row_hits(scanned)))
    whole = hits.overwrite(np.array([3, 1]), scanned)
    each = [*map(shown, row_hits(whole))]
    assert (each[0], each[2]) == others
    assert (each[3], each[1]) == wanted
    assert whole.expected_recall[[3, 1]].tolist() == scanned.expected_recall.tolist()
    longest = replace(scanned, wider={1: many})
    assert answer(row_hits(whole.overwrite(np.array([3, 0]), longest))[0]) == answer(
        row_hits(longest)[1]
    )


def test_no_queries_have_no_hits() -> None:
    assert len(BatchHits.none()) == 0


def test_a_number_stands_for_as_many_as_there_are_queries() -> None:
    hits = BatchHits.of(
        SCAN,
        np.zeros((2, 1), np.int64),
        np.zeros((2, 1)),
        np.ones(2, np.int64),
        expected_recall=1.0,
        candidates=np.array([5, 6]),
        scored=7,
    )
    assert [one.explanation for one in row_hits(hits)] == [
        Explanation("scan", 0, 0, candidates, 7, 0, 1.0) for candidates in (5, 6)
    ]


def test_walks_write_what_they_cost_in_the_columns_of_hits() -> None:
    columns = hits_module.CANDIDATES, hits_module.SCORED
    assert columns == (batch_search.CANDIDATES, batch_search.SCORED_EXACTLY)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("rows", [0, 1, SAMPLE_ROWS, 1000, 1025, 40_000, 400_000])
def test_a_sample_is_spread_evenly_over_the_live_rows(
    rows: int, share: float, rng: np.random.Generator
) -> None:
    alive = (rng.random(rows) < share).astype(np.uint8)
    live = np.flatnonzero(alive).tolist()
    count = min(SAMPLE_ROWS, len(live))
    sample = LiveSample.of(alive)
    assert sample.live == len(live)
    assert sample.rows.tolist() == [live[i * len(live) // count] for i in range(count)]
