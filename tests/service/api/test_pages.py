"""Pages of a ranking share no hit and leave none out, however searches of each depth differ."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.service.api import query
from gcws_search.service.contract import QueryRequest

ITEMS = 3000


class LossySearch:
    """A collection whose searches miss hits, each depth others; ids fall by score."""

    config = SimpleNamespace(dim=4)

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.found: dict[int, set[str]] = {}

    async def search_batch(
        self, asked: Sequence[QueryRequest], show: Callable[[Sequence[ix.QueryResult]], Any]
    ) -> Any:  # noqa: ANN401
        [one] = asked
        limit, recall = one.params.limit, one.params.recall
        rng = np.random.default_rng([self.seed, limit])
        ranks = np.flatnonzero(rng.random(ITEMS) < recall)[:limit]
        ids = [f"{rank:05}" for rank in ranks]
        self.found[limit] = {*ids}
        scores = (1 - ranks / ITEMS).tolist()
        return show([ix.QueryResult(ids, scores)])


async def run(work: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
    return work(*arguments)


SERVICE: Any = SimpleNamespace(
    searches=SimpleNamespace(
        search_batch=lambda collection, asked, show: collection.search_batch(asked, show)
    ),
    workers=SimpleNamespace(batches=SimpleNamespace(run=run)),
    settings=SimpleNamespace(max_limit=100_000, max_answer_bytes=1 << 20),
)


def page(collection: Any, offset: int, limit: int, recall: float) -> ix.QueryResult:  # noqa: ANN401
    asked = QueryRequest(
        vectors=None,
        item_id="a",
        params=ix.SearchParams(limit=limit, recall=recall),
        where=None,
        filter_text=b"",
        backend=None,
        with_payload=False,
        with_vector=False,
        explain=False,
        offset=offset,
    )
    [found] = asyncio.run(query.search_page(SERVICE, collection, asked, list))
    return found


@pytest.mark.parametrize("limit", [1, 7, 10, 100, 130])
@pytest.mark.parametrize("recall", [0.5, 0.9])
def test_no_hit_is_on_two_pages_or_on_none(limit: int, recall: float) -> None:
    collection = LossySearch(seed=limit)
    offsets = range(0, 100 if limit == 1 else 1100, limit)
    found = [page(collection, offset, limit, recall) for offset in offsets]
    shown = [item_id for one in found for item_id in one.ids]
    assert len(shown) == len({*shown}) == len(offsets) * limit
    for one in found:
        assert [*one.scores] == sorted(one.scores, reverse=True)
    for depth, ids in collection.found.items():
        if depth <= len(shown):
            assert ids <= {*shown}


def test_a_deep_page_misses_about_as_many_hits_as_the_first() -> None:
    """Of 100 hits at 0.9, one is missed, so that the tenth page is shifted by one at most."""
    for offset in (10, 90, 500, 9990):
        asked = ix.SearchParams(limit=10, recall=0.9)
        deepest = query.page_searches(asked, offset, 100_000)[-1]
        assert deepest.limit >= offset + 10
        assert deepest.limit * (1 - deepest.recall) == pytest.approx(1)


def test_where_nothing_is_missed_a_page_takes_one_search() -> None:
    exact = ix.SearchParams(limit=10, recall=1)
    assert query.page_searches(exact, 20, 1000) == [ix.SearchParams(limit=30, recall=1)]
    fixed = ix.SearchParams(limit=10, candidates=200, rerank="none")
    assert [each.limit for each in query.page_searches(fixed, 20, 1000)] == [30]


def test_no_search_goes_deeper_than_the_settings_permit() -> None:
    asked = ix.SearchParams(limit=10)
    assert [each.limit for each in query.page_searches(asked, 20, 40)] == [10, 40]
    assert [each.limit for each in query.page_searches(asked, 0, 40)] == [10]
