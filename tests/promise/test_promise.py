"""Recall asked is recall found, whatever is asked of small made scenes.

The graph answers alone: strange queries are not left to scans here, which so few rows would be.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from benchmarks.harness.engine import Engine
from gcws_search.index.backends import GcwsBackend, Policies
from gcws_search.index.contracts.parameters import GcwsParams
from gcws_search.index.graph.lifecycle import GraphPolicy
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.graph.search_plan import STAGES, Stage
from tests.promise.grid import measure
from tests.promise.scenes import (
    Scene,
    beside_a_tight_group,
    by_cluster,
    by_position,
    in_a_cube,
    in_a_tight_group,
    jittered_copies,
    one_row_many_times,
)

STORED, QUERIES = 6000, 300
ERRORS = 2
"""A mean may stay below what is asked by so many of its standard errors."""

Make = Callable[[int, int], Scene]

CASES: list[tuple[Make, str, int, float]] = [
    (by_cluster, "all but the query's class", 1, 0.9),
    (by_cluster, "all but the query's class", 1, 0.95),
    (by_cluster, "all but the query's class", 10, 0.9),
    (by_cluster, "the query's class deleted", 1, 0.95),
    (by_cluster, "the query's class deleted", 10, 0.9),
    (by_cluster, "60 % of another class", 1, 0.9),
    (by_position, "sum of two rows", 10, 0.8),
    (by_position, "sum of two rows", 10, 0.95),
    (by_position, "sum of two rows", 100, 0.95),
    (one_row_many_times, "all rows", 1, 0.99),
    (jittered_copies, "all rows", 1, 0.9),
    (jittered_copies, "all rows", 10, 0.9),
    (in_a_tight_group, "all rows", 1, 0.8),
    (in_a_tight_group, "all rows", 10, 0.9),
    (in_a_tight_group, "all rows", 10, 0.99),
    (in_a_tight_group, "all rows", 100, 0.9),
    (beside_a_tight_group, "all rows", 1, 0.99),
    (in_a_cube, "rows times 1.95", 10, 0.95),
    (in_a_cube, "rows times 1.95", 100, 0.95),
]


@cache
def built(make: Make) -> tuple[Scene, Engine]:
    """Return a scene and an index of it that has a graph and leaves no strange query to scans."""
    scene = make(QUERIES, STORED)
    # Of so few rows a scan takes less time than most searches that a calibration measures.
    policies = Policies(graph=GraphPolicy(growth=10.0))
    engine = Engine.build(scene.stored, GcwsParams(), threads=1, compiled=True, policies=policies)
    assert isinstance(engine.backend, GcwsBackend)
    rows, alive = engine.view.vectors, engine.view.permitted
    state = engine.backend.linked(engine.state, rows, alive, threading.Event())
    assert state is not None
    assert state.graph is not None
    stages = tuple(stage for stage in STAGES if stage is not Stage.RANGE_CHECK)
    graph = replace(state.graph, policy=replace(state.graph.policy, stages=stages))
    return scene, replace(engine, state=replace(state, graph=graph))


@pytest.mark.parametrize(("make", "question", "limit", "asked"), CASES)
def test_recall_asked_is_recall_found(
    make: Make, question: str, limit: int, asked: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GraphSearch, "scan_nanoseconds", lambda *_: np.inf)  # else it scans so few
    scene, engine = built(make)
    (cell,) = measure(scene, limits=[limit], targets=[asked], names=[question], engine=engine)
    assert cell.recall >= asked - ERRORS * cell.error
    assert "graph" in cell.methods
