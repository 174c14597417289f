"""What is found once deleted rows have left memory: about as much as while they were there."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gcws_search.index import Policies
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.graph.lifecycle import GraphPolicy
from tests.support.index.policies import FREE_SEARCHES
from tests.support.index.saved_graph import copied, opened
from tests.support.reference import mathematics

POLICIES = Policies(graph=GraphPolicy(min_rows=400, search=FREE_SEARCHES))
ROWS = 8000
DIM = 16
KINDS = 26
HOLES = 100
ASKED = 0.8


def some(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """Return rows of some kinds on a lattice, each near to others of its kind alone."""
    kinds = np.random.default_rng(0).normal(0, 2, (KINDS, DIM))
    rows = kinds[rng.integers(KINDS, size=count)] + rng.normal(0, 0.7, (count, DIM))
    return np.rint(rows).astype(np.float32) + np.float32(0.25)


@pytest.mark.parametrize("killed", [False, True])
def test_rows_behind_deleted_ones_are_found_after_a_restart(
    rng: np.random.Generator, tmp_path: Path, killed: bool
) -> None:
    """Where their links were dropped alone, queries beside them found a tenth less than before."""
    catalog = Catalog.open(tmp_path / "first", threads=1, policies=POLICIES)
    things, _ = catalog.create("things", CollectionConfig(dim=DIM))
    rows, queries = some(rng, ROWS), some(rng, HOLES)
    things.put(ItemBatch([*map(str, range(ROWS))], things.space.from_dense(rows), [None] * ROWS))
    things.finish_background_work()
    things.checkpoints.write_all()
    near = things.search(things.space.from_dense(queries), SearchParams(limit=20, recall=1.0))
    things.delete(sorted({item_id for result in near for item_id in result.ids}))
    before = shares_found(things, queries)
    if killed:
        copied(tmp_path / "first", tmp_path / "later")
    catalog.close()
    with opened(tmp_path / ("later" if killed else "first"), POLICIES) as again:
        assert again.memory.view.state.graph is not None
        after = shares_found(again, queries)
    assert after.mean() >= before.mean() - 0.04
    assert after.mean() >= ASKED


def shares_found(stored: StoredCollection, queries: NDArray[np.float32]) -> NDArray[np.float64]:
    batch, params = stored.space.from_dense(queries), SearchParams(limit=10)
    found, true = (
        [result.scores for result in stored.search(batch, params_)]
        for params_ in (replace(params, recall=ASKED), replace(params, recall=1.0))
    )
    return np.array(
        [mathematics.recall_by_score(own, best) for own, best in zip(found, true, strict=True)]
    )
