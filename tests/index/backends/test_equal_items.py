"""All items equal: the worst a sender can do to what keeps ties."""

import numpy as np
import pytest

from gcws_search.index import POLICIES, Policies
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams, SearchParams
from tests.support.index.items import put_rows


def equal_items(policies: Policies = POLICIES) -> MemoryCollection:
    """Return 60 equal items and 3 better ones, put in an order that is not that of their ids."""
    config = CollectionConfig(dim=3, backend=GcwsParams(bands=4))
    made = MemoryCollection(config, threads=1, policies=policies)
    rows = np.ones((63, 3), np.float32)
    rows[[5, 30, 62], 2] = 2
    ids = [str((7 * place) % 63) for place in range(63)]
    put_rows(made, ids, made.space.from_dense(rows), keys=range(63))
    return made


@pytest.mark.parametrize("limit", [1, 3, 10, 62, 100])
def test_many_queries_answer_as_each_alone_where_all_items_tie(
    limit: int,
) -> None:
    equal, parted = equal_items(), equal_items(Policies(max_ties=4 * 63))
    queries = equal.space.prepare(
        equal.space.from_dense(np.array([[1, 1, 2], [1, 1, 1], [1, 0, 0]] * 7, np.float32))
    )
    params = SearchParams(limit=limit, recall=1.0)
    alone = [equal.search(equal.view, queries[i : i + 1], params)[0] for i in range(21)]
    together = parted.search(parted.view, queries, params)
    assert [(one.ids, one.scores) for one in together] == [(one.ids, one.scores) for one in alone]
    kept = max((len(rows) for rows, _ in together.found.wider.values()), default=0)
    assert kept <= limit
