"""A query that comes alone is answered to the bit as among others, whatever has happened."""

import numpy as np
import pytest

from gcws_search.index.contracts.hits import GRAPH, METHODS
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from tests.support.data.generated import clustered, counts
from tests.support.index.recall import by_graph, link
from tests.support.index.small_index import Mask, Rows, SmallIndex, answers

ROWS, WAITING, QUERIES, WORDS = 4000, 60, 40, 2000
WALKED = METHODS[GRAPH]


def one(rows: Rows, number: int) -> Rows:
    return rows[number : number + 1]


def passing(which: str, n: int, rng: np.random.Generator) -> Mask:
    """Return the rows that may be found."""
    share = {"all": 1.0, "filtered": 0.4, "some deleted": 0.95}[which]
    return (rng.random(n) < share).astype(np.uint8)


@pytest.fixture(scope="module", params=["dense", "sparse"])
def made(request: pytest.FixtureRequest) -> tuple[SmallIndex, Rows]:
    """Return an index whose last rows wait for their lists, and queries like its rows."""
    rng = np.random.default_rng(3)
    rows: Rows
    queries: Rows
    if request.param == "dense":
        rows, queries = clustered(rng, ROWS + WAITING, QUERIES, dim=40)
    else:
        rows, queries = counts(rng, ROWS + WAITING, QUERIES, words=WORDS)
    dim = 40 if request.param == "dense" else None
    index = link(SmallIndex(CollectionConfig(dim=dim), threads=2).add(rows[:ROWS]))
    index.add(rows[ROWS:])
    assert index.state.delta.count == WAITING
    return index, queries


@pytest.mark.parametrize("which", ["all", "filtered", "some deleted"])
@pytest.mark.parametrize("limit", [1, 10, 30])
@pytest.mark.parametrize("skipping", [False, True])
def test_a_query_alone_is_answered_as_in_a_batch(
    made: tuple[SmallIndex, Rows], which: str, limit: int, skipping: bool, rng: np.random.Generator
) -> None:
    index, queries = by_graph(made[0]), made[1]
    permitted = passing(which, ROWS + WAITING, rng)
    skip = rng.integers(0, ROWS + WAITING, QUERIES).tolist() if skipping else None
    asked = SearchParams(limit=limit, recall=0.9)
    together = index.search(queries, asked, permitted=permitted, skip=skip)
    alone = [
        index.search(one(queries, i), asked, permitted=permitted, skip=skip and skip[i : i + 1])[0]
        for i in range(QUERIES)
    ]
    assert answers(alone) == answers(together)
    methods = [hits.explanation.method for hits in together]
    assert [hits.explanation.method for hits in alone] == methods
    assert WALKED in methods
