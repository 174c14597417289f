"""Graphs made beside those who read and write."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.index.backends.gcws import GcwsState
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.optimizer import optimize
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.graph.lifecycle import GraphLifecycle, GraphPolicy
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.kernels.graph.beam_search import NONE
from tests.support.data.generated import Floats, clustered
from tests.support.index.items import put_rows
from tests.support.index.policies import FREE_SEARCHES, graphs_from
from tests.support.reference import mathematics

DIM = 96
"""Wide enough for walks to be foreseen quicker than scans of a few thousand rows."""
WALK = ix.SearchParams(limit=10)
POLICIES = graphs_from(1000)


@contextmanager
def opened(directory: Path, policies: ix.Policies = POLICIES) -> Iterator[ix.StoredCollection]:
    """Open a catalog, and in it one collection, at first empty."""
    with closing(ix.Catalog.open(directory, threads=2, policies=policies)) as catalog:
        catalog.load()
        yield catalog.create("things", ix.CollectionConfig(dim=DIM))[0]
    assert not [thread for thread in threading.enumerate() if thread.name == "optimizer"]


def put(stored: ix.StoredCollection, rows: Floats, first: int = 0) -> None:
    ids = [str(i) for i in range(first, first + len(rows))]
    stored.put(
        ix.ItemBatch(ids, stored.space.from_dense(rows), [b'{"a": %d}' % (int(i) % 3) for i in ids])
    )


def found(
    stored: ix.StoredCollection, queries: Floats, params: ix.SearchParams = WALK
) -> list[list[tuple[str, float]]]:
    results = stored.search(stored.space.from_dense(queries), params)
    return [[*zip(result.ids, result.scores, strict=True)] for result in results]


def methods(stored: ix.StoredCollection, queries: Floats) -> set[str]:
    results = stored.search(stored.space.from_dense(queries), WALK)
    return {result.explanation.method for result in results if result.explanation}


def has_lists(stored: ix.StoredCollection) -> bool:
    return stored.describe().backends[0].stats["graph"] is not None


def mean_recall(stored: ix.StoredCollection, queries: Floats) -> tuple[float, float]:
    shares = [
        mathematics.recall_by_score([score for _, score in some], [score for _, score in best])
        for some, best in zip(
            found(stored, queries),
            found(stored, queries, ix.SearchParams(limit=10, recall=1.0)),
            strict=True,
        )
    ]
    return float(np.mean(shares)), float(np.std(shares)) / len(shares) ** 0.5


def test_lists_come_with_growth_answer_searches_and_outlive_a_restart(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    rows, queries = clustered(rng, 3000, 400, dim=DIM)
    with opened(tmp_path) as stored:
        put(stored, rows[:900])
        stored.finish_background_work()
        assert not has_lists(stored)
        put(stored, rows[900:], 900)
        stored.finish_background_work()
        assert has_lists(stored)
        assert "graph" in methods(stored, queries)
        mean, error = mean_recall(stored, queries)
        assert mean >= 0.9 - 4 * error
        before = found(stored, queries)
        notes = stored.describe().backends[0].stats["graph"]
        curve = stored.memory.curve()
    with opened(tmp_path) as stored:
        assert has_lists(stored)
        assert found(stored, queries) == before
        assert stored.describe().backends[0].stats["graph"]["calibration"] == notes["calibration"]
        assert stored.memory.curve() == curve


def test_rows_that_wait_when_a_process_ends_have_lists_after_its_restart(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _ = clustered(rng, 3060, 0, dim=DIM)
    with opened(tmp_path) as stored:
        put(stored, rows[:3000])
        stored.finish_background_work()
        with monkeypatch.context() as patched:
            patched.setattr(stored.optimizer, "start", lambda: None)
            for first in range(3000, 3060):
                put(stored, rows[first : first + 1], first)
        assert stored.describe().backends[0].stats["delta_rows"] == 60
        before = found(stored, rows[3000:], ix.SearchParams(limit=3, recall=1.0))
    with opened(tmp_path) as stored:
        for _ in range(2):
            assert found(stored, rows[3000:], ix.SearchParams(limit=3, recall=1.0)) == before
            stored.finish_background_work()
        state = stored.memory.view.state
        assert state.delta.count == 0
        assert (state.graph.links.array[:, 0] != NONE).all()


def test_rows_that_wait_are_soon_taken_in_behind(tmp_path: Path, rng: np.random.Generator) -> None:
    rows, _ = clustered(rng, 3060, 0, dim=DIM)
    with opened(tmp_path) as stored:
        put(stored, rows[:3000])
        stored.finish_background_work()
        lists = stored.memory.view.state.graph.neighbours
        for first in range(3000, 3060):
            put(stored, rows[first : first + 1], first)
            assert found(stored, rows[first : first + 1])[0][0] == (str(first), 1.0)
        stored.finish_background_work()
        state = stored.memory.view.state
        assert state.delta.count == 0
        assert state.graph.neighbours is lists
        assert (state.graph.links.array[:, 0] != NONE).all()


@pytest.mark.parametrize("where", [False, True])
def test_deleting_starts_an_improvement_that_ends(
    where: bool, tmp_path: Path, rng: np.random.Generator
) -> None:
    rows, queries = clustered(rng, 3300, 10, dim=DIM)
    with opened(tmp_path) as stored:
        put(stored, rows)
        stored.finish_background_work()
        before = stored.memory.view.state.graph
        if where:
            stored.delete(ix.parse_filter({"must": {"key": "a", "match": {"value": 1}}}))
        else:
            stored.delete([str(i) for i in range(1100)])
        stored.finish_background_work()
        assert stored.memory.view.state.graph is not before
        assert stored.memory.overdue(stored.memory.view) is None
        assert all(len(hits) == 10 for hits in found(stored, queries))


def test_lists_that_a_compaction_overtook_are_made_again(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    rows, _ = clustered(rng, 2000, 0, dim=DIM)
    with opened(tmp_path) as stored:
        memory = stored.memory
        raw = stored.space.from_dense(rows)
        put_rows(memory, [str(i) for i in range(2000)], raw, keys=range(2000))

        def after_compaction(adopt: Callable[[], bool]) -> bool | None:
            memory.remove([3, 5])
            memory.compact()
            return adopt()

        assert optimize(memory, after_compaction, threading.Event()) is False
        assert not has_lists(stored)
        assert optimize(memory, lambda adopt: adopt(), threading.Event()) is True
        assert len(memory.view.state.graph.links) == 1998


def test_an_improvement_that_fails_leaves_all_else_as_it_was(
    tmp_path: Path, rng: np.random.Generator, caplog: pytest.LogCaptureFixture
) -> None:
    rows, queries = clustered(rng, 2000, 10, dim=DIM)
    with opened(tmp_path) as stored:
        failing = mock.patch.object(stored.memory.backend, "optimize", side_effect=MemoryError)
        with failing, caplog.at_level(logging.ERROR):
            put(stored, rows)
            stored.finish_background_work()
            assert "could not be optimized" in caplog.text
        assert all(len(hits) == 10 for hits in found(stored, queries))
        put(stored, rows[:1], 5000)
        stored.finish_background_work()
        assert has_lists(stored)


def test_closing_ends_an_improvement(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()
    build = GraphLifecycle.build

    def slow(*args: Any, stop: threading.Event, **others: Any) -> Any:  # noqa: ANN401 (passed on)
        begun.set()
        assert stop.wait(60)
        return build(*args, stop=stop, **others)

    monkeypatch.setattr(GraphLifecycle, "build", slow)
    with opened(tmp_path) as stored:
        put(stored, clustered(rng, 1500, 0, dim=DIM)[0])
        assert begun.wait(60)
    monkeypatch.undo()
    with opened(tmp_path) as stored:
        stored.finish_background_work()
        assert has_lists(stored)


@pytest.mark.parametrize("waited", [False, True])
def test_closing_ends_a_pause_and_nothing_begins_unless_somebody_waits_for_it(
    tmp_path: Path, rng: np.random.Generator, waited: bool
) -> None:
    with opened(tmp_path, replace(POLICIES, quiet_seconds=1e6)) as stored:
        put(stored, clustered(rng, 1500, 0, dim=DIM)[0])
        if waited:
            stored.finish_background_work()
    assert has_lists(stored) == waited


def test_optimizing_begins_once_no_rows_come_in(tmp_path: Path, rng: np.random.Generator) -> None:
    with opened(tmp_path, replace(POLICIES, quiet_seconds=0.01, max_pause_seconds=1e6)) as stored:
        put(stored, clustered(rng, 1500, 0, dim=DIM)[0])
        thread = stored.optimizer.thread
        assert thread is not None
        thread.join(60)
        assert has_lists(stored)


def test_nothing_begins_while_rows_come_in_faster_than_they_are_linked(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    policies = replace(POLICIES, quiet_seconds=0.01, max_growth_share=-1.0, seconds_a_row=1e3)
    rows, _ = clustered(rng, 6000, 0, dim=DIM)
    with opened(tmp_path, policies) as stored:
        put(stored, rows[:1500])
        stored.finish_background_work()
        assert stored.memory.view.state.graph.built == 1500
        put(stored, rows[1500:], 1500)
        thread = stored.optimizer.thread
        assert thread is not None
        thread.join(1.0)
        assert thread.is_alive()
        assert stored.memory.overdue(stored.memory.view) is not None
        stored.finish_background_work()
        assert stored.memory.view.state.graph.built == 6000


def test_an_endless_load_is_waited_for_no_longer_than_optimizing_takes(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    policies = replace(
        POLICIES,
        quiet_seconds=0.01,
        max_growth_share=-1.0,
        max_pause_seconds=0.0,
        seconds_a_row=1e-9,
    )
    rows, _ = clustered(rng, 900, 0, dim=DIM)
    with opened(tmp_path, policies) as stored:
        put(stored, rows)
        place, end = 900, time.monotonic() + 300
        while stored.memory.view.state.graph is None:
            assert time.monotonic() < end
            put(stored, rows[place % 900][None], place)
            # Alone, puts may come more quickly than any graph of so few rows is built.
            stored.search(stored.space.from_dense(rows[:64]), ix.SearchParams(limit=1, recall=1.0))
            place += 1


def test_readers_always_get_all_their_hits_while_rows_come_and_go_and_lists_are_made_anew(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    # Which way is quicker depends on the moment at which a graph was built: search it if possible.
    graph = GraphPolicy(search=FREE_SEARCHES)
    policies = replace(POLICIES, min_dead=500, graph=graph)
    rows, queries = clustered(rng, 6000, 32, dim=DIM)
    deleted: set[str] = set()
    problems: list[str] = []
    ended = threading.Event()
    searches, ways = [0, 0], set[str]()

    with opened(tmp_path, policies) as stored:
        put(stored, rows[:1500])

        def read(reader: int) -> None:
            where = ix.parse_filter({"must_not": {"key": "a", "match": {"value": 2}}})
            raw = stored.space.from_dense(queries)
            try:
                while not ended.is_set():
                    gone = set(deleted)
                    for filtered in (None, where):
                        for result in stored.search(raw, WALK, where=filtered):
                            names = {*result.ids}
                            if result.explanation is not None:
                                ways.add(result.explanation.method)
                            if len(names) != 10 or names & gone:
                                problems.append(f"{len(names)} hits, {names & gone} are gone")
                    searches[reader] += 1
            except BaseException as error:
                problems.append(repr(error))
                raise

        readers = [threading.Thread(target=read, args=(reader,)) for reader in range(2)]
        for reader in readers:
            reader.start()
        graphs = []  # held, so that no two have one address
        for first in range(1500, 6000, 150):
            put(stored, rows[first : first + 150], first)
            old = [str(i) for i in range(first - 1500, first - 1400)]
            stored.delete(old)
            deleted.update(old)
            if first % 900 == 0:
                stored.finish_background_work()
            graphs.append(stored.memory.view.state.graph)
        ended.set()
        for reader in readers:
            reader.join()
        stored.finish_background_work()
        assert problems == []
        assert min(searches) > 0
        assert len({id(graph) for graph in graphs if graph is not None}) > 1
        assert "graph" in ways


@pytest.fixture
def collection(rng: np.random.Generator) -> MemoryCollection:
    made = MemoryCollection(ix.CollectionConfig(dim=24), threads=2, policies=graphs_from(400))
    put_in_memory(made, clustered(rng, 800, 1)[0])
    return made


def put_in_memory(collection: MemoryCollection, rows: Floats) -> None:
    keys = range(len(collection.view), len(collection.view) + len(rows))
    put_rows(collection, [*map(str, keys)], collection.space.from_dense(rows), keys=keys)


def test_rows_put_meanwhile_are_linked_before_changes_have_to_wait(
    collection: MemoryCollection, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, left = clustered(rng, 200, 1)[0], list[int]()
    backend: Any = collection.backend
    make, adopt = backend.optimize, backend.adopt

    def optimize_meanwhile(*given: Any) -> Any:  # noqa: ANN401 (passed on)
        made = make(*given)
        put_in_memory(collection, new)
        return made

    def note(state: object, rows: VectorBatch, improved: GcwsState) -> Any:  # noqa: ANN401
        assert improved.graph is not None
        left.append(len(rows) - len(improved.graph.links))
        return adopt(state, rows, improved)

    def publish(work: Callable[[], bool]) -> bool:
        left.clear()
        return work()

    monkeypatch.setattr(backend, "optimize", optimize_meanwhile)
    monkeypatch.setattr(backend, "adopt", note)
    assert optimize(collection, publish, threading.Event())
    assert left == [0]
    links = collection.view.state.graph.links.array
    assert np.count_nonzero(links[:, 0] >= 0) == len(collection.view) == 1000
    queries = collection.space.prepare(collection.space.from_dense(new))
    found = collection.search(collection.view, queries, ix.SearchParams(limit=1))
    assert np.mean([result.scores[0] > 1 - 1e-6 for result in found]) > 0.9


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
