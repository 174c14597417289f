"""Lists of rows, and through how many tables walks enter them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gcws_search.index.backends.gcws import GcwsState
from gcws_search.index.contracts.links import LinkArray
from gcws_search.index.contracts.parameters import CollectionConfig
from gcws_search.index.graph.lifecycle import GraphPolicy
from gcws_search.index.graph.neighbour_graph import WIDTH, NeighbourGraph
from gcws_search.index.threads import Workers
from tests.support.data.generated import Floats, clustered, counts
from tests.support.index.small_index import SmallIndex


def empty_graph(index: SmallIndex) -> NeighbourGraph:
    """Return the graph of an index before any row is linked."""
    view = index.view()
    graph: NeighbourGraph = index.backend.graphs.empty(view.vectors, view.permitted, Workers(1))
    return graph


@pytest.mark.parametrize(
    ("rows", "bands", "tables"),
    [
        (0, 32, 8),
        (150_000, 32, 8),
        (150_001, 32, 16),
        (1_000_000, 32, 16),
        (2_000_000, 32, 32),
        (10**9, 32, 32),
        (10**6, 12, 12),
        (10**6, 4, 4),
        (1000, 4, 4),
    ],
)
def test_the_more_rows_the_more_tables_as_far_as_there_are(
    rows: int, bands: int, tables: int
) -> None:
    assert GraphPolicy().entry_tables(rows, bands) == tables


@pytest.mark.parametrize(("dimensions", "times"), [(3, 2), (24, 1)])
def test_rows_along_few_dimensions_are_linked_through_more_tables_as_far_as_there_are(
    dimensions: int, times: int, rng: np.random.Generator
) -> None:
    data = rng.normal(size=(3000, dimensions)) @ rng.normal(size=(dimensions, 24))
    index = SmallIndex(CollectionConfig(dim=24)).add(data.astype(np.float32))
    rows = index.rows.view()
    neighbours = empty_graph(index)
    assert neighbours.narrow == (times > 1)
    assert neighbours.tables == times * neighbours.cover(rows).entry_tables == times * 8


def test_sparse_rows_are_linked_through_more_tables(rng: np.random.Generator) -> None:
    data, _ = counts(rng, 500, 0)
    index = SmallIndex(CollectionConfig(dim=None)).add(data)
    neighbours = empty_graph(index)
    assert not neighbours.narrow
    assert neighbours.tables == 2 * neighbours.cover(index.rows.view()).entry_tables == 16


def test_a_row_keeps_those_that_chose_it_before_it_was_linked(rng: np.random.Generator) -> None:
    data, _ = clustered(rng, 3000, 0)
    index = SmallIndex(CollectionConfig(dim=data.shape[1])).add(data)
    rows, tables, alive = index.rows.view(), index.state.tables, np.ones(3000, np.uint8)
    neighbours = empty_graph(index)
    links = neighbours.cover(rows)
    keys, segments = tables.codes(tables.bands).T, tables.addresses
    first, rest = np.split(rng.permutation(3000), [2000])
    neighbours.link(
        first, keys[first], tables.addresses, links, alive, linked=0, workers=Workers(1)
    )
    joined = 0
    for row in rest[:200]:
        before = [other for other in links.array[row].tolist() if other >= 0]
        one = np.array([row])
        neighbours.link(one, keys[one], segments, links, alive, linked=2000, workers=Workers(1))
        after = [other for other in links.array[row].tolist() if other >= 0]
        assert len(set(after)) == len(after)
        assert set(before) <= set(after) or len(after) == WIDTH
        assert row not in after
        joined += len(before)
    assert joined


def test_links_of_three_and_of_four_bytes_are_made_alike(rng: np.random.Generator) -> None:
    data, _ = clustered(rng, 3000, 0)
    index = SmallIndex(CollectionConfig(dim=data.shape[1])).add(data)
    tables, alive, order = index.state.tables, np.ones(3000, np.uint8), rng.permutation(3000)
    neighbours, keys = empty_graph(index), tables.keys_of(order, tables.bands, Workers(1))
    short = neighbours.cover(index.rows.view())
    long = replace(short, array=LinkArray.of(short.array, 1 << 24))
    for links in (short, long):
        neighbours.link(order, keys, tables.addresses, links, alive, linked=0, workers=Workers(1))
        neighbours.reach_all(order, links)
    np.testing.assert_array_equal(long.array[:], short.array[:])
    assert (short.array[:, 0] >= 0).all()


def test_saved_links_may_name_rows_far_beyond_those_that_are_there(
    rng: np.random.Generator,
) -> None:
    index = SmallIndex(CollectionConfig(dim=24)).add(clustered(rng, 300, 0)[0])
    lines, rows = np.full((300, WIDTH), 1 << 23, np.int32), index.rows.view()
    graph = NeighbourGraph(empty_graph(index).quantizer, rows, 4, links=lines)
    np.testing.assert_array_equal(graph.cover(rows).array[:], lines)


def test_a_row_enters_by_its_own_keys(rng: np.random.Generator) -> None:
    """Where no row has links, a search sees the rows beside its keys alone."""
    data, _ = clustered(rng, 1500, 0)
    index = SmallIndex(CollectionConfig(dim=data.shape[1])).add(np.concatenate([data, data]))
    rows, tables, alive = index.rows.view(), index.state.tables, np.ones(3000, np.uint8)
    for row in rng.choice(np.arange(1500, 3000), 20, replace=False):
        neighbours = empty_graph(index)
        links = neighbours.cover(rows)
        chosen = np.array([row])
        neighbours.link(
            chosen,
            tables.keys_of(chosen, tables.bands, Workers(1)),
            tables.addresses,
            links,
            alive,
            linked=0,
            workers=Workers(1),
        )
        assert row - 1500 in links.array[row]


def without_links(index: SmallIndex) -> list[int]:
    """Return the rows to which no row links."""
    assert isinstance(index.state, GcwsState)
    assert index.state.graph is not None
    links = index.state.graph.links.array[:]
    return np.flatnonzero(np.bincount(links[links >= 0], minlength=len(links)) == 0).tolist()


def with_many_copies(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return clustered rows, ten of them 200 times more, and these ten."""
    centres = rng.normal(size=(100, 48))
    rows = centres[rng.integers(100, size=4000)] * (1 + 0.1 * rng.normal(size=(4000, 48)))
    ten = rows[:10]
    rows = rng.permutation(np.concatenate([rows, np.repeat(ten, 200, axis=0)]))
    return rows.astype(np.float32), ten.astype(np.float32)


def in_many_dimensions(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return rows that are all about as far from each other, and one of them."""
    rows = np.abs(rng.normal(size=(4000, 300))).astype(np.float32)
    return rows, rows[:1]


@pytest.mark.parametrize("make", [with_many_copies, in_many_dimensions])
def test_some_row_links_to_every_row(
    make: Callable[[np.random.Generator], tuple[Floats, Floats]], rng: np.random.Generator
) -> None:
    """Pruning alone left one row in seventy of pictures without, and copies held out at first.

    No new row takes the only link to another.
    """
    rows, copied = make(rng)
    index = SmallIndex(CollectionConfig(dim=rows.shape[1])).add(rows)
    index.state = index.optimize()
    assert without_links(index) == []
    later = np.repeat(copied, 100 // len(copied), axis=0)
    for row in range(100):
        index.add(later[row : row + 1], settled=True)
        assert len(rows) + row not in without_links(index)
    index.add(np.repeat(copied, 300 // len(copied), axis=0), settled=True)
    assert [row for row in without_links(index) if row >= len(rows)] == []  # taken by a later one
