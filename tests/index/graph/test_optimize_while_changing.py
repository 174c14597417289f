"""An index that is improved while its collection changes."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gcws_search.index.backend import ProgressReport, no_report
from gcws_search.index.backends.gcws import GcwsState
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.optimizer import optimize
from gcws_search.index.contracts.arrays import UInt8s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.graph.neighbour_graph import keys_by_row
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.threads import Workers
from tests.support.data.generated import clustered
from tests.support.index.items import put_rows
from tests.support.index.policies import graphs_from

MIN = 400
DIM = 24


def put(collection: MemoryCollection, vectors: np.ndarray[Any, Any]) -> None:
    before = len(collection.view)
    ids = [str(before + i) for i in range(len(vectors))]
    keys = range(before, before + len(ids))
    put_rows(collection, ids, collection.space.from_dense(vectors), keys=keys)


def linked_rows(collection: MemoryCollection) -> int:
    links = collection.view.state.graph.links.array
    return int(np.count_nonzero(links[:, 0] >= 0))


class Meanwhile:
    """Makes a change after lists have been made and before they are published."""

    def __init__(self, collection: MemoryCollection, change: Callable[[], None]) -> None:
        backend: Any = collection.backend
        self._improved, self._adopted = backend.optimize, backend.adopt
        self._change = change
        self._publishing = False
        self.left: list[int] = []
        backend.optimize, backend.adopt = self.improved, self.adopted

    def improved(
        self,
        state: object,
        rows: VectorBatch,
        alive: UInt8s,
        stop: threading.Event,
        report: ProgressReport = no_report,
    ) -> GcwsState:
        made = self._improved(state, rows, alive, stop, report)
        assert isinstance(made, GcwsState)
        self._change()
        return made

    def adopted(self, state: object, rows: VectorBatch, improved: GcwsState) -> object | None:
        if self._publishing:
            assert improved.graph is not None
            self.left.append(len(rows) - len(improved.graph.links))
        adopted: object | None = self._adopted(state, rows, improved)
        return adopted

    def publish(self, work: Callable[[], bool]) -> bool:
        self._publishing = True
        return work()


@pytest.fixture
def collection(rng: np.random.Generator) -> MemoryCollection:
    made = MemoryCollection(CollectionConfig(dim=DIM), threads=2, policies=graphs_from(MIN))
    put(made, clustered(rng, 2 * MIN, 1)[0])
    return made


def test_rows_put_meanwhile_are_linked_before_changes_have_to_wait(
    collection: MemoryCollection, rng: np.random.Generator
) -> None:
    new = clustered(rng, MIN // 2, 1)[0]
    meanwhile = Meanwhile(collection, lambda: put(collection, new))
    assert optimize(collection, meanwhile.publish, threading.Event())
    assert meanwhile.left == [0]
    assert linked_rows(collection) == len(collection.view)
    queries = collection.space.prepare(collection.space.from_dense(new))
    found = collection.search(collection.view, queries, SearchParams(limit=1))
    assert np.mean([result.scores[0] > 1 - 1e-6 for result in found]) > 0.9


def test_lists_are_made_again_when_rows_were_renumbered_meanwhile(
    collection: MemoryCollection,
) -> None:
    meanwhile = Meanwhile(collection, collection.compact)
    assert optimize(collection, meanwhile.publish, threading.Event()) is False
    assert collection.view.state.graph is None


def test_lists_are_made_again_when_too_many_rows_were_put_meanwhile(
    collection: MemoryCollection, rng: np.random.Generator
) -> None:
    new = clustered(rng, 2 * MIN, 1)[0]
    meanwhile = Meanwhile(collection, lambda: put(collection, new))
    assert optimize(collection, meanwhile.publish, threading.Event()) is False
    assert collection.overdue(collection.view) == "gcws"


@pytest.mark.parametrize("first", [0, 1, 600, 1100, 1199, 1200])
def test_keys_of_later_rows_are_those_at_the_end_of_all(first: int) -> None:
    codes = np.random.default_rng(first).integers(0, 2**63, (1200, 4)).astype(np.uint64)
    tables, workers = Tables.of(4, ()), Workers(1)
    for start, end in ((0, 1100), (1100, 1190), (1190, 1200)):
        tables = tables.extend(codes[start:end], start, workers)
    assert len(tables.segments) > 1
    assert np.array_equal(keys_by_row(tables, 3, first), codes[first:, :3])


def test_what_is_to_stop_while_it_is_measured_measures_no_further(
    collection: MemoryCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, searches = threading.Event(), 0
    search = GraphSearch.search

    def once(*given: Any, **named: Any) -> Any:  # noqa: ANN401 (passed on)
        nonlocal searches
        searches += 1
        stop.set()
        return search(*given, **named)

    monkeypatch.setattr(GraphSearch, "search", once)
    assert optimize(collection, lambda work: work(), stop) is None
    assert searches == 1
    assert collection.view.state.graph is None
