"""When neighbour lists are made, kept up, made anew and taken back from a file."""

import json
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gcws_search.index.backends import Policies
from gcws_search.index.contracts.links import LinkArray
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams, SearchParams
from gcws_search.index.contracts.saved_index import NO_ROW, UNKNOWN, SavedIndex
from gcws_search.index.graph.lifecycle import GraphPolicy
from gcws_search.index.graph.neighbour_graph import WIDTH
from gcws_search.index.graph.recall_watch import rows_to_measure
from gcws_search.index.graph.scratch import ScratchSizes
from gcws_search.index.hashing.banding import FIRST_TABLES
from gcws_search.index.kernels.graph.beam_search import NONE
from gcws_search.index.lsh.tables import Tables, is_sampled
from tests.support.data.generated import Floats, clustered, sparse_of
from tests.support.index.bridges import bridged
from tests.support.index.policies import FREE_SEARCHES, graphs_from
from tests.support.index.recall import link, linked, recall
from tests.support.index.small_index import SmallIndex, answers

MIN = 400


POLICIES = graphs_from(MIN)


def indexed(config: CollectionConfig, threads: int = 1) -> SmallIndex:
    """Return an empty index that has a graph from few rows on."""
    return SmallIndex(config, threads=threads, policies=POLICIES)


def lists_of(index: SmallIndex) -> list[list[int]]:
    """Return each row's list, checking its form."""
    links = index.state.graph.links.array[:]
    assert len(links) == len(index.rows)
    found = []
    for row, own in enumerate(links.tolist()):
        count = sum(entry != NONE for entry in own)
        assert all(0 <= entry < len(links) and entry != row for entry in own[:count])
        assert len(set(own[:count])) == count
        found.append(own[:count])
    return found


def overdue(index: SmallIndex, dead: int = 0) -> bool:
    """Return whether lists are to be made, or made anew."""
    rows = len(index.rows)
    return bool(index.backend.graph_is_overdue(index.state, rows, rows - dead))


def test_lists_are_made_of_enough_live_rows_and_anew_once_these_have_grown_by_half(
    rng: np.random.Generator,
) -> None:
    rows, _ = clustered(rng, 2 * MIN, 0)
    index = indexed(CollectionConfig(dim=24)).add(rows[: MIN - 1])
    assert not overdue(index)
    index.add(rows[MIN - 1 : MIN])
    assert overdue(index)
    assert not overdue(index, dead=1)
    link(index)
    assert all(lists_of(index))
    index.add(rows[MIN : MIN * 3 // 2])
    assert not overdue(index)
    index.add(rows[MIN * 3 // 2 : MIN * 3 // 2 + 1])
    assert overdue(index)
    whole_keys = CollectionConfig(dim=24, backend=GcwsParams(bands=4, band_width=2))
    assert not overdue(indexed(whole_keys).add(rows))  # these have no lists


def test_lists_are_made_anew_once_when_a_quarter_of_their_rows_is_dead(
    rng: np.random.Generator,
) -> None:
    rows, _ = clustered(rng, 4 * MIN, 0)
    index = linked(rows, policies=POLICIES)
    assert not overdue(index, dead=MIN * 9 // 10)
    assert overdue(index, dead=MIN * 11 // 10)
    alive = np.ones(4 * MIN, np.uint8)
    alive[rng.permutation(4 * MIN)[: MIN * 11 // 10]] = 0
    lists = lists_of(link(index, alive))
    assert not overdue(index, dead=MIN * 11 // 10)
    assert overdue(index, dead=MIN * 9 // 4)
    assert {bool(own) for own, lives in zip(lists, alive, strict=True) if lives} == {True}
    assert all(alive[own].all() for own in lists)  # dead rows are in no new list


def test_a_graph_that_was_built_holds_no_memory_to_build_in(rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, 4 * MIN, 5)
    index = linked(rows, policies=POLICIES)
    scratch, sizes = index.state.graph.neighbours.scratch, ScratchSizes(1, 1, 1, 0, 1)
    assert scratch.take(sizes).sizes == sizes.with_room()  # made for these sizes, not left
    index.search(queries, SearchParams(limit=10, recall=0.9))
    assert scratch.take(sizes).sizes != sizes.with_room()


def test_rows_that_are_put_get_lists_and_join_others(rng: np.random.Generator) -> None:
    rows, _ = clustered(rng, 600, 0)
    index = linked(rows[:500], policies=POLICIES)
    index.add(rows[500:], sizes=[1, 50], settled=True)
    lists = lists_of(index)
    assert all(lists[500:])
    assert {entry for own in lists for entry in own} >= set(range(500, 600))


def test_lists_are_given_up_or_not_taken_when_more_rows_are_put_than_they_have(
    rng: np.random.Generator,
) -> None:
    rows, _ = clustered(rng, 2 * MIN + 1, 0)
    index = linked(rows[:MIN], policies=replace(POLICIES, max_delta_rows=MIN))
    made = index.optimize()
    index.add(rows[MIN:])
    assert index.state.graph is None
    assert overdue(index)
    assert index.backend.adopt(index.state, index.rows.view(), made) is None


def test_any_number_of_threads_makes_the_same_lists(rng: np.random.Generator) -> None:
    rows, _ = clustered(rng, 2000, 0)
    made = []
    for threads in (1, 2, 3):
        index = link(indexed(CollectionConfig(dim=24), threads=threads).add(rows[:1500]))
        made.append(lists_of(index.add(rows[1500:], settled=True)))
    assert made[0] == made[1] == made[2]


def test_rows_whose_keys_are_looked_up_in_two_parts_get_the_same_lists(
    rng: np.random.Generator,
) -> None:
    rows = sparse_of(np.maximum(clustered(rng, 1200, 0)[0], 0))  # linked through 16 tables
    made = []
    for room in (640 * 16 * 8, 1 << 30):  # 640 rows are linked in whole rounds
        policies = Policies(graph=GraphPolicy(min_rows=MIN, max_key_bytes=room))
        index = linked(rows, policies=policies)
        made.append(lists_of(index))
        assert index.state.tables.bands < index.state.graph.neighbours.tables
    assert made[0] == made[1]


@pytest.mark.parametrize("sparse", [False, True])
def test_a_compaction_keeps_lists_under_new_row_numbers(
    sparse: bool, rng: np.random.Generator
) -> None:
    made = clustered(rng, 3000, 500)
    rows, queries = (sparse_of(np.maximum(some, 0)) for some in made) if sparse else made
    index = linked(rows, policies=POLICIES)
    before = lists_of(index)
    stays = rng.random(3000) < 0.8
    new = np.where(stays, np.cumsum(stays) - 1, -1)
    index.compact(stays)
    gone = {row: before[row] for row in np.flatnonzero(~stays).tolist()}
    expected = [bridged(row, before[row], gone, WIDTH) for row in np.flatnonzero(stays).tolist()]
    assert lists_of(index) == [[int(new[entry]) for entry in own] for own in expected]
    assert recall(index, queries, 10).reaches(0.9)


def test_sparse_rows_have_no_lists_while_scans_are_as_quick(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = sparse_of(np.maximum(clustered(rng, 1700, 0)[0], 0))
    index = indexed(CollectionConfig(dim=None)).add(rows[:1000])
    assert overdue(index)

    index.adopt(index.optimize())
    assert index.state.graph is None
    assert not overdue(index)
    assert index.add(rows[1000:1300]).state.delta.count == 300
    index.compact(np.arange(1300) % 10 > 0)
    assert index.state.delta.count == 270
    assert not overdue(index)
    index.add(rows[1300:], settled=True)
    assert overdue(index)  # 1,570 rows, and 1,000 were judged
    graphs = index.backend.graphs
    graphs.policy = replace(graphs.policy, scan_factor=0.0)
    index.adopt(index.optimize())
    assert index.state.graph is not None


def test_a_compaction_gives_up_lists_of_which_little_is_left(rng: np.random.Generator) -> None:
    rows, _ = clustered(rng, 3 * MIN, 0)
    for share, kept in ((0.6, False), (0.9, True), (0.2, False)):
        index = linked(rows, policies=POLICIES)
        index.compact(rng.permutation(3 * MIN) < share * 3 * MIN)
        assert (index.state.graph is not None) == kept


def test_lists_take_in_the_rows_that_came_while_they_were_made(rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, 4000, 500)
    index = indexed(CollectionConfig(dim=24)).add(rows[:3000])
    made = index.optimize()
    assert made is not None
    index.add(rows[3000:], sizes=[400])
    index.adopt(made)
    assert len(index.state.tables) == 4000
    assert index.state.tables.bands == made.tables.bands
    assert all(lists_of(index)[3000:])
    assert recall(index, queries, 10).reaches(0.9)


class StopAfter(threading.Event):
    """Is set once it has been asked a number of times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def test_work_that_is_stopped_gives_nothing_rather_than_half_of_the_lists(
    rng: np.random.Generator,
) -> None:
    rows, _ = clustered(rng, 800, 0)
    index = indexed(CollectionConfig(dim=24)).add(rows)
    outcomes = []
    for times in range(0, 120, 7):
        made = index.optimize(StopAfter(times))
        outcomes.append(made is not None)
        if made is not None:
            index.state = made
            assert all(lists_of(index))
    assert outcomes[0] is False
    assert outcomes[-1] is True


# Kept and taken back


def kept(index: SmallIndex, **changed: Any) -> SavedIndex:  # noqa: ANN401
    """Return what a file would give back."""
    saved = index.backend.saved(index.state)
    assert saved is not None
    notes = {**json.loads(json.dumps(saved.notes)), **changed}
    return SavedIndex(saved.links[:].copy(), notes)


def restored(index: SmallIndex, saved: SavedIndex, policies: Policies = POLICIES) -> SmallIndex:
    """Return the index that is made at a restart."""
    again = SmallIndex(index.config, policies=policies)
    again.rows = index.rows
    rows = index.rows.view()
    again.state = again.backend.restore(rows, again.backend.encode(rows), saved)
    return again


def test_failed_checks_are_taken_back_too(rng: np.random.Generator) -> None:
    rows, _ = clustered(rng, 6000, 0, dim=32)
    index = linked(rows, policies=POLICIES)
    crowd = rng.standard_normal(32) + 0.5 * rng.standard_normal((1300, 32))
    index.add(crowd.astype(np.float32), settled=True)
    again = restored(index, kept(index))
    assert again.state.graph.neighbours.drift == index.state.graph.neighbours.drift
    assert again.state.graph.neighbours.drift.has_drifted


def test_lists_are_taken_back_as_they_were(rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, 3000, 100)
    index = linked(rows, policies=POLICIES)
    again = restored(index, kept(index))
    assert lists_of(again) == lists_of(index)
    assert again.state.graph.calibration == index.state.graph.calibration
    assert again.state.graph.neighbours.quantizer == index.state.graph.neighbours.quantizer
    assert not overdue(again)
    for limit in (1, 10):
        assert recall(again, queries, limit) == recall(index, queries, limit)


@pytest.mark.parametrize(("dimensions", "narrow"), [(2, True), (24, False)])
def test_how_rows_are_linked_is_taken_back(
    dimensions: int, narrow: bool, rng: np.random.Generator
) -> None:
    rows = rng.normal(size=(600, dimensions)) @ rng.normal(size=(dimensions, 24))
    index = linked(rows.astype(np.float32), policies=POLICIES)
    assert index.state.graph.neighbours.narrow == narrow
    assert restored(index, kept(index)).state.graph.neighbours.narrow == narrow
    gone = np.where(np.arange(600) < 20, -1, np.arange(600) - 20)
    left = index.state.graph.neighbours.renumber(gone, index.rows.view()[20:])
    assert left.narrow == narrow


def test_rows_whose_lists_are_unknown_are_linked(rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, 3000, 500)
    index = linked(rows, policies=POLICIES)
    saved = kept(index)
    lost = rng.random(3000) < 0.3
    saved.links[lost] = NO_ROW
    saved.links[lost, 0] = UNKNOWN
    again = restored(index, saved)
    assert all(lists_of(again))
    assert recall(again, queries, 10).reaches(0.9)


def test_after_a_restart_lists_are_made_anew_when_the_live_rows_have_grown_by_half(
    rng: np.random.Generator,
) -> None:
    rows, more = clustered(rng, 1600, 500)
    index = indexed(CollectionConfig(dim=rows.shape[1])).add(rows)
    saved = kept(link(index, (np.arange(1600) >= 800).astype(np.uint8)))
    links = saved.links[800:]
    live = indexed(index.config).add(rows[800:])
    again = restored(live, replace(saved, links=np.where(links >= 0, links - 800, links)))
    assert not overdue(again)
    assert overdue(again.add(more))


MANY_TABLES = Policies(
    graph=GraphPolicy(min_rows=MIN, rows_of_tables=1000, rows_to_double=2, search=FREE_SEARCHES)
)
"""Small collections are searched through all tables: the first, which a file has, and a sample."""
FEW_WHOLE = replace(MANY_TABLES, graph=replace(MANY_TABLES.graph, min_sampled_rows=0))
"""Of these tables, half of the first have a sample, too."""
both = pytest.mark.parametrize("policies", [MANY_TABLES, FEW_WHOLE], ids=["many", "few"])


def restarted(rows: Floats, policies: Policies) -> SmallIndex:
    """Return an index of linked rows, as it is after a restart."""
    index = linked(rows, policies=policies)
    return restored(index, kept(index), policies)


def methods(index: SmallIndex, queries: Floats) -> set[str]:
    """Return by what the queries are answered."""
    hits = index.search(queries, SearchParams(limit=10, recall=0.9))
    return {each.explanation.method for each in hits}


@both
def test_a_graph_waits_for_tables_that_a_file_does_not_have(
    policies: Policies, rng: np.random.Generator
) -> None:
    rows, queries = clustered(rng, 3000, 50)
    index = linked(rows, policies=policies)
    first, further = index.state.tables, index.state.graph.further
    assert (further.first, further.first + further.bands) == (first.bands, index.backend.plan.bands)
    assert methods(index, queries) == {"graph"}
    again = restored(index, kept(index), policies)
    assert again.state.graph_is_waiting
    assert "graph" not in methods(again, queries)
    assert recall(again, queries, 10).mean >= 0.9
    assert again.is_overdue
    stopped = threading.Event()
    stopped.set()
    assert again.optimize(stopped) is None
    again.adopt(again.optimize())
    assert not again.is_overdue
    params = SearchParams(limit=10, recall=0.9)
    assert answers(again.search(queries, params)) == answers(index.search(queries, params))
    assert methods(again, queries) == {"graph"}


@both
def test_further_tables_have_a_sample_of_the_rows_however_they_came_to_be(
    policies: Policies, rng: np.random.Generator
) -> None:
    """Built with the graph, made after a start, grown row by row, and left by a compaction."""
    rows, more = clustered(rng, 3000, 900)
    index, again = linked(rows, policies=policies), restarted(rows, policies)
    again.adopt(again.optimize())
    for each in (index, again):
        assert each.state.tables.bands == each.state.graph.whole == each.state.graph.further.first
        assert_sampled(each)
        each.add(more, sizes=[1, 500, 30, 2], settled=True)
        assert_sampled(each)
        each.compact(np.arange(3900) % 5 > 0)
        rows_left = each.state.graph.further.segments[0].rows
        assert 0.2 < sum(map(len, each.state.graph.further.segments)) / len(each.rows) < 0.3
        assert rows_left.max() < len(each.rows)
        assert_keys(each)
        assert recall(each, rows[1:50], 10).reaches(0.9)


def assert_sampled(index: SmallIndex) -> None:
    """The rows in the further tables are those that a sample has."""
    segments = index.state.graph.further.segments
    for table in range(index.state.graph.further.bands):
        found = np.sort(np.concatenate([each.rows[table] for each in segments]))
        np.testing.assert_array_equal(found, np.flatnonzero(is_sampled(np.arange(len(index.rows)))))
    assert_keys(index)


def assert_keys(index: SmallIndex) -> None:
    """Each row is in each further table by its key there, and keys rise."""
    further, batch = index.state.graph.further, index.rows.view()
    keys = index.backend.band_keys.keys(batch, index.backend.plan.bands, first=further.first)
    for segment in further.segments:
        for table in range(further.bands):
            held = segment.keys[table]
            np.testing.assert_array_equal(held, keys[segment.rows[table], table])
            assert (held[1:] >= held[:-1]).all()


def test_a_graph_saved_before_tables_had_samples_is_entered_as_it_was_calibrated(
    rng: np.random.Generator,
) -> None:
    rows, queries = clustered(rng, 3000, 50)
    index = linked(rows, policies=POLICIES)
    saved = kept(index)
    del saved.notes["whole"]
    policies = replace(POLICIES, graph=replace(POLICIES.graph, min_sampled_rows=0))
    again = restored(index, saved, policies)
    assert again.state.tables.bands == index.backend.plan.first
    params = SearchParams(limit=10, recall=0.9)
    assert answers(again.search(queries, params)) == answers(index.search(queries, params))
    assert methods(again, queries) == {"graph"}


def test_tables_that_a_graph_has_let_go_are_made_for_pairs_and_joins_and_stay(
    rng: np.random.Generator,
) -> None:
    rows, _ = clustered(rng, 3000, 0)
    policies = replace(POLICIES, graph=replace(POLICIES.graph, min_sampled_rows=0))
    index, first = linked(rows, policies=policies), FIRST_TABLES
    assert index.state.tables.bands < first
    index.add(rows[:20])
    join = index.backend.band_join(
        index.state, index.view(), index.prepare(rows[:50]), min_score=0.9, recall=0.9
    )
    places, found, _ = join(index.prepare(rows[:50]))
    assert {(row, row) for row in range(50)} <= {*zip(places.tolist(), found.tolist(), strict=True)}
    assert {(row, 3000 + row) for row in range(20)} <= {
        *zip(places.tolist(), found.tolist(), strict=True)
    }
    assert index.is_overdue
    index.adopt(index.optimize())
    assert index.state.tables.bands == first
    assert not index.is_overdue
    index.state = index.backend.linked(
        index.state, index.rows.view(), index.view().permitted, threading.Event()
    )
    assert index.state.tables.bands == first


@both
def test_rows_are_found_that_came_in_while_a_graph_with_samples_was_built(
    policies: Policies, rng: np.random.Generator
) -> None:
    rows, queries = clustered(rng, 4000, 300)
    index = SmallIndex(CollectionConfig(dim=rows.shape[1]), policies=policies).add(rows[:3000])
    made = index.optimize()
    index.add(rows[3000:], sizes=[400])
    index.adopt(made)
    assert len(index.state.tables) == len(index.state.graph.links) == 4000
    assert index.state.tables.bands == index.state.graph.whole
    assert recall(index, queries, 10).reaches(0.9)


def test_a_search_enters_the_further_tables_by_its_keys_there(rng: np.random.Generator) -> None:
    """Without links, and with no row in the first tables, a query finds the row equal to it."""
    rows, _ = clustered(rng, 3000, 0)
    index = linked(rows, policies=MANY_TABLES)
    graph, view = index.state.graph, index.view()
    links = replace(graph.links, array=LinkArray.of(np.full((3000, WIDTH), NONE, np.int32), 3000))
    graph, none = replace(graph, links=links), Tables.of(index.state.tables.bands, ())
    setting = graph.calibration.setting(10, 0.9)
    plan = graph.plan_for(none, view, 10, setting)
    assert plan.kernel.tables > none.bands
    asked = np.flatnonzero(is_sampled(np.arange(3000)))[::7]
    nobody = np.full(len(asked), -1)
    queries, params = index.prepare(rows[asked]), SearchParams(limit=10)
    found, _ = graph.search(plan, none, view, queries, params, nobody)
    np.testing.assert_array_equal(found.scores[:, 0], 1.0)


def test_a_sample_is_a_quarter_of_any_run_of_rows() -> None:
    for first in (0, 1_000_003, 2**31 - 100_000):
        for step in (1, 2, 4, 10, 1000):
            rows = first + step * np.arange(min(20_000, (2**31 - first) // step))  # 100 or more
            assert is_sampled(rows).mean() == pytest.approx(0.25, abs=0.03)


def test_a_graph_that_waits_is_entered_through_all_tables_that_a_proof_wanted(
    rng: np.random.Generator,
) -> None:
    rows, queries = clustered(rng, 3000, 50)
    again = restarted(rows, MANY_TABLES)
    again.search(queries[:1], SearchParams(limit=10, recall=0.9, guarantee="proven"))
    again.adopt(again.optimize())
    assert again.state.tables.bands == again.backend.plan.bands
    assert not again.is_overdue
    assert methods(again, queries) == {"graph"}
    again.add(rows[:300] * np.float32(0.9), settled=True)
    assert methods(again, queries) == {"graph"}
    assert recall(again, queries, 10).reaches(0.9)


def test_the_tables_of_an_overdue_graph_come_before_another_graph(rng: np.random.Generator) -> None:
    rows, more = clustered(rng, 3000, 1600)
    index = linked(rows, policies=MANY_TABLES)
    index.add(more, settled=True)
    again = restored(index, kept(index), MANY_TABLES)
    assert again.state.graph_is_waiting
    assert overdue(again)
    graph = again.state.graph.neighbours
    made = again.optimize()
    assert made.graph.neighbours is graph
    assert not made.graph_is_waiting
    again.state = made
    assert methods(again, rows[:20]) == {"graph"}
    anew = again.optimize()
    assert anew.graph.neighbours is not graph


def test_rows_put_before_the_tables_are_there_are_linked_through_all_of_them(
    rng: np.random.Generator,
) -> None:
    rows, more = clustered(rng, 3000, 200)
    index, again = linked(rows, policies=MANY_TABLES), restarted(rows, MANY_TABLES)
    made = again.optimize()
    for each in (index, again):
        each.add(more, settled=True)
    assert lists_of(again) == lists_of(index)
    assert again.state.tables.bands == index.state.tables.bands
    # What was made meanwhile has fewer rows, and nothing that there is not.
    adopted = again.backend.adopt(again.state, again.rows.view(), made)
    assert len(adopted.tables) == len(rows) + len(more)
    assert adopted.graph.neighbours is again.state.graph.neighbours


def test_no_write_makes_the_tables_that_a_graph_waits_for(rng: np.random.Generator) -> None:
    rows, more = clustered(rng, 3000, 500)
    policies = replace(MANY_TABLES, max_delta_rows=20)
    again = restarted(rows, policies)
    again.add(more, sizes=[1, 19, 1, 400, 79])
    assert again.state.delta.count == len(more)  # many times those for which there is room
    assert again.state.graph_is_waiting
    assert all(hits.scores[0] == 1 for hits in again.search(more, SearchParams(limit=1, recall=1)))
    assert "graph" not in methods(again, more[:50])
    again.finish_background_work()
    assert not again.state.delta.count
    assert not again.state.graph_is_waiting
    assert "graph" in methods(again, more[:50])
    assert recall(again, more, 10).reaches(0.9)
    again.add(rows[:21] * np.float32(0.9))  # now a write links what the delta has no room for
    assert not again.state.delta.count


def test_no_start_makes_the_tables_that_a_graph_waits_for(rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, 3000, 200)
    index = linked(rows, policies=MANY_TABLES)
    saved = kept(index)
    saved.links[2400:, 0] = UNKNOWN  # a process ended before they were saved
    again = restored(index, saved, MANY_TABLES)
    assert again.state.graph_is_waiting
    assert again.state.delta.count == 600
    assert len(again.state.graph.links) == 2400
    assert recall(again, queries, 10).mean >= 0.9
    again.finish_background_work()
    assert not again.state.delta.count
    assert len(again.state.graph.links) == 3000
    assert methods(again, queries) == {"graph"}
    assert recall(again, queries, 10).reaches(0.9)


def test_links_that_name_rows_after_the_linked_ones_are_no_harm(rng: np.random.Generator) -> None:
    # Some in the middle have lost theirs, too, and are linked beside rows that name the last ones.
    rows, queries = clustered(rng, 3000, 200)
    index = linked(rows, policies=MANY_TABLES)
    saved = kept(index)
    saved.links[2000:, 0] = UNKNOWN
    saved.links[500:700, 0] = UNKNOWN
    again = restored(index, saved, MANY_TABLES)
    links = again.state.graph.links.array[:]
    assert links.max() < len(links)
    again.finish_background_work()
    assert len(lists_of(again)) == 3000
    assert recall(again, queries, 10).reaches(0.9)


def test_more_rows_than_a_waiting_graph_has_let_it_be_rebuilt(rng: np.random.Generator) -> None:
    rows, queries = clustered(rng, 7000, 200)
    policies = replace(MANY_TABLES, max_delta_rows=20)
    again = restarted(rows[:3000], policies)
    again.add(rows[3000:], sizes=[2000])
    assert again.state.delta.count == 4000
    rounds = 0
    while again.is_overdue:
        rounds += 1
        assert rounds <= 4
        made = again.optimize()
        adopted = again.backend.adopt(again.state, again.rows.view(), made)
        again.state = again.state if adopted is None else adopted
    assert len(again.state.graph.links) == 7000
    assert recall(again, queries, 10).reaches(0.9)


def test_rows_put_while_those_tables_are_made_are_linked_before_they_are_adopted(
    rng: np.random.Generator,
) -> None:
    rows, more = clustered(rng, 3000, 500)
    policies = replace(MANY_TABLES, max_delta_rows=20)
    again = restarted(rows, policies)
    made = again.optimize()
    again.add(more[:480])
    made = again.backend.adopt(again.state, again.rows.view(), made)
    assert not made.delta.count
    again.add(more[480:])
    again.adopt(made)
    assert again.state.delta.count == 20  # for these there is room
    assert len(again.state.graph.links) == 3480
    assert recall(again, more, 10).reaches(0.9)


def test_narrow_lists_are_taken_back_and_none_where_most_are_unknown_or_few_rows_are_left(
    rng: np.random.Generator,
) -> None:
    index = linked(clustered(rng, 600, 0)[0], policies=POLICIES)
    saved = kept(index)
    again = restored(index, SavedIndex(saved.links[:, :3], saved.notes))
    assert lists_of(again) == [own[:3] for own in lists_of(index)]
    nothing = np.full((600, 1), UNKNOWN, np.int32)
    assert restored(index, replace(saved, links=nothing)).state.graph is None
    assert restored(index, SavedIndex(nothing, {})).state.graph is None
    few = indexed(index.config).add(clustered(rng, MIN - 1, 0)[0])
    assert restored(few, replace(saved, links=saved.links[: MIN - 1])).state.graph is None


def test_the_longer_scans_take_the_fewer_new_rows_are_checked() -> None:
    one_by_one = [r for row in range(64_000) for r in rows_to_measure(row, row + 1, 1000).tolist()]
    assert len(one_by_one) == pytest.approx(64_000 / 32, rel=0.05)
    assert len(rows_to_measure(0, 2000, 1 << 24)) == pytest.approx(2000 / 128, abs=4)
    assert len(rows_to_measure(990_000, 1_000_000, 1 << 27)) == pytest.approx(10, abs=4)
    assert rows_to_measure(500, 900, 1000).tolist() == [r for r in one_by_one if 500 <= r < 900]


def test_the_rows_checked_are_of_all_parts_of_those_put() -> None:
    chosen = rows_to_measure(0, 100_000, 1000)
    assert len(chosen) == 32
    for parts in (2, 3, 4):
        assert np.bincount(chosen % parts, minlength=parts).min() >= 16 // parts
        assert np.bincount(chosen * parts // 100_000, minlength=parts).min() >= 16 // parts
    assert chosen.tolist() == sorted(chosen.tolist())
