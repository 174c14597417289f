"""Queries unlike the items: what was measured with items says nothing of them."""

from dataclasses import replace

import numpy as np
import pytest

from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.graph.search_plan import STAGES, Stage
from tests.support.data.generated import Floats
from tests.support.index.recall import by_graph, linked, recall
from tests.support.index.small_index import SmallIndex

SPREAD = 0.3
Made = tuple[SmallIndex, dict[str, Floats]]


@pytest.fixture(scope="module")
def made() -> Made:
    """Return an index of 200 tight clusters, and queries unlike its rows.

    The hundredth hit is beyond the cluster, so that its score tells no stranger.
    """
    rng = np.random.default_rng(5)
    centres, others = rng.standard_normal((2, 200, 32))
    rows = centres[rng.integers(0, 200, 20_000)] + SPREAD * rng.standard_normal((20_000, 32))
    strangers = {
        "other centres": others,
        "between": (centres + centres[::-1]) / 2,
        "shifted": centres + 1.0,
    }
    sent = {
        kind: (middles + SPREAD * rng.standard_normal(middles.shape)).astype(np.float32)
        for kind, middles in strangers.items()
    }
    return linked(rows.astype(np.float32)), sent


@pytest.mark.parametrize("kind", ["other centres", "between", "shifted"])
@pytest.mark.parametrize("limit", [1, 10, 100])
@pytest.mark.parametrize("asked", [0.8, 0.9])
def test_queries_farther_from_all_items_than_any_item_find_as_much(
    kind: str, limit: int, asked: float, made: Made
) -> None:
    index, strangers = made
    assert recall(by_graph(index), strangers[kind], limit, asked).reaches(asked)


def test_queries_about_as_far_from_many_rows_find_more_than_others_would() -> None:
    """Between two rows of a cluster each, a query is not farther than some items are."""
    rng = np.random.default_rng(6)
    centres = rng.gamma(0.6, size=(150, 24))
    spreads = rng.uniform(0.1, 0.7, 150)
    which = rng.choice(150, 20_000, p=rng.dirichlet(np.full(150, 0.5)))
    noise = np.exp(spreads[which, None] * rng.standard_normal((20_000, 24)))
    rows = (centres[which] * noise).astype(np.float32)
    first, second = rng.integers(0, 20_000, (2, 500))
    index, between = by_graph(linked(rows)), (rows[first] + rows[second]) / 2
    graph = index.state.graph
    assert graph is not None
    found = recall(index, between, 10, 0.8).mean
    stages = tuple(stage for stage in STAGES if stage is not Stage.EXTENSION)
    ended = replace(graph, policy=replace(graph.policy, stages=stages))
    index.state = replace(index.state, graph=ended)
    assert recall(index, between, 10, 0.8).mean < found - 0.03


def test_a_search_that_has_met_the_wrong_cluster_first_goes_on() -> None:
    """In many dimensions other clusters score a tenth of a query's own, as for strangers."""
    rng = np.random.default_rng(7)
    centres = rng.standard_t(3, (50, 128))
    rows = centres[rng.integers(0, 50, 5300)] + rng.standard_t(3, (5300, 128)) / 3
    rows *= np.exp(0.3 * rng.standard_normal((5300, 1)))
    items, queries = np.split(rows.astype(np.float32), [5000])
    index = linked(items)
    hits = index.search(queries, SearchParams(limit=10, recall=0.9))
    methods = [each.explanation.method for each in hits]
    assert methods.count("graph") >= 0.99 * len(queries)
