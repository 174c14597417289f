"""Walks by several efforts at once find what they find one by one."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from gcws_search.index.backends import GcwsBackend
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.graph.recall_curve import BeamSetting
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.graph.sweeps import swept
from gcws_search.index.threads import Workers
from tests.support.data.generated import Csr, Floats, clustered, counts
from tests.support.index.graphs import ROWS, Graph
from tests.support.index.recall import linked
from tests.support.index.small_index import SmallIndex

Rows = Floats | Csr
LISTS = (0.05, 0.2, 0.3, 0.7, 0.9)
NEAR = (1.01, 1.02, 1.03)
FAR = (1.1, 1.17, 1.3)


@pytest.fixture(scope="module")
def indexes() -> dict[str, tuple[SmallIndex, Rows]]:
    """Return indexes with lists, and queries."""
    rng = np.random.default_rng(3)
    dense, sparse = clustered(rng, 4000, 100, dim=32), counts(rng, 4000, 100, words=500)
    return {"dense": (linked(dense[0]), dense[1]), "sparse": (linked(sparse[0]), sparse[1])}


@pytest.mark.parametrize("share", [0.01, 0.05])
@pytest.mark.parametrize("numbers", [LISTS, (1.0,), NEAR, FAR])
@pytest.mark.parametrize("limit", [10, 30])
def test_one_walk_finds_and_sees_what_walks_of_each_effort_do(
    limit: int, numbers: Sequence[float], share: float, rng: np.random.Generator
) -> None:
    graph = Graph(rng, linked=share)
    hidden = (rng.random(ROWS) < 0.1).astype(np.uint8)
    efforts = [BeamSetting.of(number, limit) for number in numbers]
    found = graph.swept(efforts, limit, hidden=hidden)
    assert found == [graph.search(effort, limit, hidden=hidden) for effort in efforts]
    plain = [
        BeamSetting(each.beam, round(each.lists), 0.0, 0.0, reach=each.reach) for each in efforts
    ]
    for effort, hits in zip(plain, graph.swept(plain, limit), strict=True):
        for query in range(len(graph.queries)):
            assert hits[query] == graph.expected(query, effort, limit)


@pytest.mark.parametrize("limit", [10, 30])
def test_it_walks_on_for_those_of_each_effort_that_are_flat(
    limit: int, rng: np.random.Generator
) -> None:
    graph = Graph(rng, linked=0.02)
    efforts = [BeamSetting.of(number, limit) for number in LISTS]
    lasting = [graph.search(effort, limit) for effort in efforts]
    factors = [
        (1 - graph.score(query, rows[0])) / (1 - graph.score(query, rows[9]))
        for query, (rows, _) in enumerate(lasting[2])
        if len(rows) >= 10
    ]
    flat = float(np.median(factors))
    found = graph.swept(efforts, limit, flat=flat)
    assert found == [graph.search(effort, limit, flat=flat) for effort in efforts]
    changed = [
        sum(one != other for one, other in zip(*each, strict=True))
        for each in zip(found, lasting, strict=True)
    ]
    assert len(set(changed)) > 1
    assert max(changed) > 1
    reaching = [BeamSetting.of(number, limit) for number in FAR]
    assert graph.swept(reaching, limit, flat=flat) == graph.swept(reaching, limit)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("numbers", [LISTS, (1.0,), NEAR, FAR])
@pytest.mark.parametrize("limit", [1, 10, 40])
@pytest.mark.parametrize("dead", [0, 400])
def test_one_walk_finds_what_several_do_over_rounded_and_sparse_rows_with_two_threads(
    dead: int,
    limit: int,
    numbers: Sequence[float],
    form: str,
    indexes: dict[str, tuple[SmallIndex, Rows]],
) -> None:  # fmt: skip
    index, queries = indexes[form]
    graph, backend, rows = index.state.graph, index.backend, index.rows.view()
    assert graph is not None
    assert isinstance(backend, GcwsBackend)
    search = GraphSearch(
        graph.neighbours, graph.lists, index.state.tables, backend._keying.keys, Workers(2)
    )
    alive = np.ones(len(rows), np.uint8)
    alive[:dead] = 0
    view, batch = RowView(rows, alive, len(rows) - dead), index.prepare(queries)
    none, none_hidden = np.full(len(batch), -1), np.zeros(len(rows), np.uint8)
    efforts = [BeamSetting.of(number, limit) for number in numbers]
    found = swept(search, view, batch, limit, efforts, flat=0.9, hidden=none_hidden, pieces=2)
    for effort, hits in zip(efforts, found, strict=True):
        walk = replace(search.walk(view, limit, effort), flat=0.9)
        alone = search.search(view, batch, SearchParams(limit=limit), none, walk).hits
        assert hits.candidates.tolist() == alone.candidates.tolist()
        assert hits.sizes.tolist() == alone.sizes.tolist()
        inside = np.arange(limit) < hits.sizes[:, None]
        more = hits.scores[inside] - alone.scores[inside]
        assert more.min() >= 0
        # Walks that reach farther may hold a better row beyond the lesser reach; and of the best
        # rows, a search may score fewer exactly.
        assert (hits.rows == alone.rows)[inside].mean() > 0.99
