"""Rows of whole numbers are held once, as bytes, and answer as the same rows held as floats."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.index.contracts.batches import MIN_COPIED_FLOATS
from gcws_search.index.vectors.growing_rows import GrowingRows
from tests.support.data.adapters import batch_of
from tests.support.data.generated import Floats
from tests.support.index.items import put_vectors
from tests.support.index.policies import graphs_from
from tests.support.index.saved_graph import Restart

DIM = 64
ROWS = MIN_COPIED_FLOATS // DIM + 100
POLICY = replace(graphs_from(500), min_dead=100)
ASKED = ix.SearchParams(limit=10, recall=1.0)
QUERIES = np.random.default_rng(1).uniform(0, 300, (8, DIM)).astype(np.float32)


@pytest.fixture
def policies() -> ix.Policies:
    return POLICY


@pytest.fixture
def rows(rng: np.random.Generator) -> Floats:
    """Rows of bytes in clusters of 20, some of them equal."""
    centres = rng.integers(-60, 180, (ROWS // 20 + 1, DIM))
    near = centres[np.arange(ROWS) // 20] + rng.integers(-20, 21, (ROWS, DIM))
    made: Floats = np.clip(near, 0, 255).astype(np.float32)
    made[-30:] = made[-60:-30]
    return made


def held_as_bytes(stored: ix.StoredCollection) -> bool:
    return stored.memory.view.vectors.holds_bytes


def answers(stored: ix.StoredCollection, params: ix.SearchParams) -> list[Any]:
    """Return the hits of 10 items, and of vectors that are no whole numbers."""
    around = [stored.search_around([f"i{210 * n}"], params)[0] for n in range(10)]
    queries = stored.space.from_dense(QUERIES)
    found = [*around, *stored.search(queries, params), *stored.search(queries[:1], params)]
    return [[*zip(each.ids, each.scores, strict=True)] for each in found]


def pairs_of(stored: ix.StoredCollection, **asked: Any) -> list[Any]:  # noqa: ANN401
    found = stored.pairs(min_score=0.9, **asked)
    return sorted(found)


def test_whole_numbers_answer_as_floats_do_through_a_whole_life(
    catalog: ix.Catalog, restart: Restart, rows: Floats
) -> None:
    """The collection beside it has one row that is none, so that it holds floats."""
    config = ix.CollectionConfig(dim=DIM)
    whole, floats = (catalog.create(name, config)[0] for name in ("things", "floats"))
    unlike = np.zeros((1, DIM), np.float32)
    unlike[0, 0] = 1e-3
    floats.put(ix.ItemBatch(["unlike"], floats.space.from_dense(unlike), [None]))
    for first in range(0, ROWS, 2000):
        for each in (whole, floats):
            put_vectors(each, rows[first : first + 2000], first)
    every = replace(ASKED, limit=ROWS)

    def check() -> None:
        for each in (whole, floats):
            each.finish_background_work()
        assert [held_as_bytes(whole), held_as_bytes(floats)] == [True, False]
        exact = answers(whole, ASKED)
        assert exact == answers(floats, ASKED)
        contained = replace(ASKED, ranking="containment")
        assert answers(whole, contained) == answers(floats, contained)
        score_of = [dict(each) for each in answers(floats, every)]
        for found, scores, best in zip(
            answers(whole, replace(ASKED, recall=0.9)), score_of, exact, strict=True
        ):
            assert all(scores[each] == score for each, score in found)
            assert found[0][1] == best[0][1]
        for asked in ({"recall": 1.0}, {"recall": 0.9, "limit": 50}):
            assert pairs_of(whole, **asked) == pairs_of(floats, **asked)

    check()
    assert whole.describe().bytes_in_memory < floats.describe().bytes_in_memory - 3 * ROWS * DIM
    for each in (whole, floats):
        put_vectors(each, rows[:50] // 2)
        each.delete([f"i{n}" for n in range(2500, 2700)])
        put_vectors(each, rows[2500:2700], 2500)
    check()
    assert whole.get("i3").vector == (rows[3] // 2).tolist()
    before = answers(whole, ASKED)
    with restart(policies=POLICY) as again:
        assert held_as_bytes(again)
        assert answers(again, ASKED) == before


def test_a_row_that_is_no_whole_number_makes_floats_of_all(rows: Floats) -> None:
    grown = GrowingRows("dense", DIM)
    for first in range(0, ROWS, 1000):
        grown.append(batch_of(rows[first : first + 1000]))
    before = grown.view()
    assert before.holds_bytes
    assert grown.nbytes < 2 * ROWS * DIM
    some = np.array([5, 2, ROWS - 1])
    np.testing.assert_array_equal(before[some].dense, rows[some])
    np.testing.assert_array_equal(before[7:30].dense, rows[7:30])
    np.testing.assert_array_equal(before.with_floats().dense, rows)
    taken = grown.take(before, np.arange(0, ROWS, 2))
    assert taken.view().holds_bytes
    np.testing.assert_array_equal(taken.view().dense, rows[::2])
    for unlike in (rows[:2] + 0.5, rows[:2] + 300, -rows[:2] - 1):
        other = grown.take(before, np.arange(ROWS))
        other.append(batch_of(rows[:3]))
        assert other.view().holds_bytes
        other.append(batch_of(unlike))
        assert not other.view().holds_bytes
        wanted = np.concatenate([rows, rows[:3], unlike])
        np.testing.assert_array_equal(other.view().dense, wanted)
        other.append(batch_of(rows[:3]))
        np.testing.assert_array_equal(other.view().dense[-3:], rows[:3])
    np.testing.assert_array_equal(before.dense, rows)
