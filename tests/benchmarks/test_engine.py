"""The index that benchmarks search."""

import numpy as np
import pytest

from benchmarks.harness.engine import Engine
from gcws_search.index.backends import GcwsBackend
from gcws_search.index.contracts.parameters import ExactParams, GcwsParams, SearchParams


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_an_index_is_searched_on_as_many_threads_as_are_asked_for(
    threads: int, rng: np.random.Generator
) -> None:
    rows = rng.normal(size=(3000, 8)).astype(np.float32)
    engine = Engine.build(rows, GcwsParams(), threads=2, compiled=True)
    other = engine.with_threads(threads)
    assert engine.state.graph.workers.threads == 2
    assert other.state.graph.workers.threads == other.backend.workers.threads == threads
    assert isinstance(other.backend, GcwsBackend)
    assert other.state.graph.band_keys is other.backend.band_keys
    queries, params = engine.prepare(rows[:9]), SearchParams(limit=3, recall=0.9)
    found, again = (each.search(queries, params) for each in (engine, other))
    np.testing.assert_array_equal(found.rows, again.rows)


def test_an_index_without_a_graph_too(rng: np.random.Generator) -> None:
    rows = rng.normal(size=(50, 8)).astype(np.float32)
    engine = Engine.build(rows, ExactParams(), threads=1, compiled=True).with_threads(2)
    assert engine.backend.workers.threads == 2
