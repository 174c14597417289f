"""Recall of merged answers on synthetic data; `benchmarks.service.cluster_recall` has real data."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.harness.datasets import DataSet, made
from benchmarks.service.cluster_recall import LIMITS, Cell, Cluster
from gcws_search.index.backends import POLICIES
from gcws_search.index.contracts.parameters import Guarantee, SearchParams
from gcws_search.index.graph.lifecycle import GraphPolicy
from tests.support.index.policies import DEAR_SCANS, FREE_SEARCHES
from tests.support.statistics import SIGMAS, standard_error

ROWS = 6000
QUERIES = 200
TARGETS = (0.8, 0.95)
HELD_OUT = 32
"""A graph is calibrated with one row in so many."""
UNSCANNED = replace(
    POLICIES, graph=GraphPolicy(min_rows=256, search=FREE_SEARCHES), probe=DEAR_SCANS
)


@pytest.fixture(scope="module", params=[1, 2, 4])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Return shards with all their tables."""
    data = DataSet("made", made(rows=ROWS + QUERIES, dim=16))
    found = Cluster(data, request.param, QUERIES, UNSCANNED)
    found.with_all_tables()
    return found


def answers(cluster: Cluster, guarantee: Guarantee) -> dict[tuple[float, int], Cell]:
    return {
        (asked, limit): cluster.ask(SearchParams(limit=limit, recall=asked, guarantee=guarantee))
        for asked in TARGETS
        for limit in LIMITS
    }


@pytest.mark.parametrize("guarantee", ["measured", "proven"])
def test_merged_answers_have_the_recall_that_was_asked_for(
    cluster: Cluster, guarantee: Guarantee
) -> None:
    """And no less than the shards have of their own; the tolerance is that of both means.

    A measured promise rests on the rows that calibration held out, on all shards together.
    """
    found = answers(cluster, guarantee)
    for (asked, _), cell in found.items():
        shares = cell.merged.tolist()
        error = standard_error(shares)
        if guarantee == "measured":
            error *= np.sqrt(1 + QUERIES / (ROWS / HELD_OUT))
        assert np.mean(shares) >= asked - SIGMAS * error
        gain = (cell.merged - cell.own).tolist()
        assert np.mean(gain) >= -SIGMAS * standard_error(gain)
    assert min(cell.own.mean() for cell in found.values()) < 1, "something was missed"
