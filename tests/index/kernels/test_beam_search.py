"""Walks over neighbour lists, and pruning, against plain Python."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
import pytest
from numba import njit

from benchmarks.harness.engine import row_hits
from gcws_search.index.contracts.arrays import UInt8s
from gcws_search.index.contracts.hits import BatchHits
from gcws_search.index.contracts.links import LinkArray
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams, SearchParams
from gcws_search.index.graph.neighbour_graph import WIDTH, NeighbourGraph
from gcws_search.index.graph.recall_curve import (
    NO_EXTENSION,
    NOT_CALIBRATED,
    BeamSetting,
    Extension,
    SearchSetting,
)
from gcws_search.index.graph.scratch import ScratchPool, ScratchSizes
from gcws_search.index.graph.search import TIED_SHARE, GraphSearch
from gcws_search.index.graph.search_plan import Outcome, SearchPolicy
from gcws_search.index.kernels.graph.beam_search import NONE, scratch_at
from gcws_search.index.kernels.graph.build import prune
from gcws_search.index.kernels.graph.entry_points import ROWS_A_SIDE
from gcws_search.index.kernels.lanes.vector import pointer, put
from gcws_search.index.kernels.quantized.rows import BYTES, FLOATS, rows_at
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.quantization import QuantizedRows, Quantizer
from tests.support.index.small_index import SmallIndex, view_of
from tests.support.reference import mathematics

ROWS, QUERIES = 300, 12
UNITS = Quantizer(BYTES, 1.0, 128)
TABLES = 3
UNLIMITED = 1 << 31
ROOM = 512 + 2 * ROWS_A_SIDE * TABLES + WIDTH
"""Rows that an extended search may see at least."""
_NOTHING_HIDDEN = np.empty(0, np.uint8)


class Graph:
    """Rows of whole numbers, which bytes hold exactly, linked to random rows."""

    def __init__(
        self,
        rng: np.random.Generator,
        *,
        linked: float = 0.05,
        quantizer: Quantizer = UNITS,
        shared: int = 0,
    ) -> None:
        self.data = rng.integers(-9, 10, (ROWS, 20)).astype(np.float32)
        self.queries = rng.integers(-9, 10, (QUERIES, 20)).astype(np.float32)
        self.data[:, 0] += shared
        self.queries[:, 0] += shared
        self.index = SmallIndex(CollectionConfig(dim=20, backend=GcwsParams(bands=4)))
        self.index.add(self.data)
        self.rows = self.index.rows.view()
        self.neighbours = NeighbourGraph(quantizer, self.rows, TABLES)
        self.links = self.neighbours.cover(self.rows)
        self.chosen: list[list[int]] = []
        for row in range(ROWS):
            count = min(WIDTH, rng.binomial(ROWS, linked))
            self.chosen.append(rng.choice(ROWS, count, replace=False).tolist())
            self.links.array[row, :count] = self.chosen[row]
            assert (self.links.array[row, count:] == NONE).all()

    def search(
        self,
        setting: BeamSetting,
        limit: int,
        **others: Any,  # noqa: ANN401 (those of `hits`)
    ) -> list[tuple[list[int], int]]:
        """Return for each query the rows found, best first, and how many have been seen."""
        found, _ = self.hits(setting, limit, **others)
        return [(each.rows.tolist(), each.explanation.candidates) for each in row_hits(found)]

    def hits(  # noqa: PLR0913 (what is searched, for what, and how)
        self,
        setting: BeamSetting,
        limit: int,
        *,
        permitted: set[int] | None = None,
        queries: slice = slice(None),
        hidden: UInt8s = _NOTHING_HIDDEN,
        hard: Extension = NO_EXTENSION,
        foreign: Extension = NO_EXTENSION,
        spread: float = 0.0,
        policy: SearchPolicy | None = None,
        most: float = inf,
    ) -> tuple[BatchHits, UInt8s]:
        """Return what the kernel finds, and what became of each query."""
        search, tables = self.searched(policy or SearchPolicy()), self.index.state.tables
        mask = np.ones(ROWS, np.uint8)
        if permitted is not None:
            mask[[row for row in range(ROWS) if row not in permitted]] = 0
        batch = self.index.prepare(self.queries[queries])
        view = view_of(self.rows, mask)
        whole = SearchSetting(setting, hard, foreign, judged=limit, spread=spread)
        plan = search.plan_for(tables, view, limit, whole, max_candidates=most)
        nothing = np.full(len(batch), -1, np.int64)
        return search.search(
            plan, tables, view, batch, SearchParams(limit=limit), nothing, hidden=hidden
        )

    def searched(self, policy: SearchPolicy) -> GraphSearch:
        """Return what searches the graph."""
        known = NOT_CALIBRATED, ROWS, self.index.backend.band_keys, Workers(1), policy
        return GraphSearch(self.neighbours, self.links, *known)

    @cached_property
    def scores(self) -> list[list[float]]:
        """Of each query with each row, as float32, whose ties are those of the kernel."""
        apart = np.abs(self.queries[:, None] - self.data).sum(2)
        both = np.abs(self.queries).sum(1)[:, None] + np.abs(self.data).sum(1)
        scores: list[list[float]] = ((both - apart) / (both + apart)).tolist()
        return scores

    def score(self, query: int, row: int) -> float:
        return self.scores[query][row]

    def entries(
        self, query: int, most: int, hidden: UInt8s | None = None, beside: int = ROWS_A_SIDE
    ) -> set[int]:
        """Return the rows around the query's places in the first tables, hidden ones left out."""
        keys = self.index.backend.encode(self.index.prepare(self.queries[query : query + 1]))[0]
        (segment,) = self.index.state.tables.segments
        found: set[int] = set()
        for table in range(min(most, TABLES)):
            place = int((segment.keys[table] < keys[table]).sum())
            before, after = segment.rows[table][:place], segment.rows[table][place:]
            if hidden is not None:
                before, after = before[hidden[before] == 0], after[hidden[after] == 0]
            found.update([*before[::-1][:beside].tolist(), *after[:beside].tolist()])
        return found

    def bucket_rows(self, query: int, most: int, seen: set[int], room: float) -> set[int]:
        """Return the rows that share three quarters of the longest prefix that any row shares.

        Those of a table that take more than half of the room left are passed over.
        """
        keys = self.index.backend.encode(self.index.prepare(self.queries[query : query + 1]))[0]
        (segment,) = self.index.state.tables.segments
        found: set[int] = set()
        for table in range(min(most, TABLES)):
            own = f"{int(keys[table]):016x}"  # a digit is a sample
            others = [f"{int(key):016x}" for key in segment.keys[table]]
            lengths = range(len(own) + 1)
            longest = max(
                length for length in lengths if any(key.startswith(own[:length]) for key in others)
            )
            prefix = own[: -(-3 * longest // 4)]
            if prefix:
                rows = zip(segment.rows[table].tolist(), others, strict=True)
                bucket = {row for row, key in rows if key.startswith(prefix)}
                if len(bucket) <= (room - len(seen | found)) / 2:
                    found |= bucket
        return found

    def walked(
        self, query: int, setting: BeamSetting, limit: int, permitted: set[int] | None = None
    ) -> mathematics.Walked:
        scores = self.scores[query]
        return mathematics.best_first(
            self.entries(query, setting.tables(self.links.entry_tables)),
            self.chosen,
            scores.__getitem__,
            beam=setting.beam + 1,
            most=int(setting.max_expanded),
            reach=(limit, setting.slack),
            permitted=permitted,
        )

    def walked_on(  # noqa: PLR0913 (where it begins, how it goes on)
        self,
        query: int,
        first: mathematics.Walked,
        setting: BeamSetting,
        extension: Extension,
        limit: int,
        *,
        beside: int = ROWS_A_SIDE,
        permitted: set[int] | None = None,
        again: bool = True,
        tied: float = 0.0,
        room: float = inf,
    ) -> mathematics.Walked:
        """Return the walk that goes on where the first one ended, with more rows beside its keys.

        ``setting`` is that of the first walk. With ``again``, rows that it had no room for are
        looked at again, as those are whose bytes say too little; where nothing else kept them out,
        those within reach of its hits. Where hits were ``tied``, it enters through its buckets, see
        `bucket_rows`, has ``room`` for all rows, and reads the lists of those that tie with the
        last hit of the first walk.
        """
        scores = self.scores[query]
        tables = setting.tables(self.links.entry_tables)
        entries = self.entries(query, tables, beside=beside)
        beam = max(setting.beam + 1, SearchPolicy().extension_beam(limit, extension))
        slack = extension.slack
        if tied:
            entries |= self.bucket_rows(query, tables, entries | first.seen, room)
            wanted = min(setting.beam, max(setting.places, limit))
            away = 1.0 - scores[first.beam[min(wanted, len(first.beam)) - 1]]
            beam, slack = ROWS, max(slack, 1.0 + tied / max(away, 0.02))
        after = None if again else first
        if again and not tied and permitted is None and setting.slack == inf:
            after = replace(first, seen=first.known)
        return mathematics.best_first(
            entries | first.seen if again else entries, self.chosen, scores.__getitem__,
            beam=beam, most=UNLIMITED, reach=(limit, slack), permitted=permitted, after=after,
        )  # fmt: skip

    def best(self, query: int, walked: mathematics.Walked, limit: int) -> tuple[list[int], int]:
        """Return what `search` returns of a walk."""
        best = sorted(walked.beam, key=lambda row: (-self.score(query, row), row))
        return best[:limit], len(walked.seen)

    def expected(
        self, query: int, setting: BeamSetting, limit: int, permitted: set[int] | None = None
    ) -> tuple[list[int], int]:
        """Return what `search` should."""
        return self.best(query, self.walked(query, setting, limit, permitted), limit)


@njit(nogil=True)
def _prune(addresses, spaces, row, entries, choice, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    space = scratch_at(spaces[0])
    for i in range(entries.shape[0]):
        put(space.pool, i, entries[i])
    most, diversity = choice
    return prune(
        rows_at(addresses), row, space, entries.shape[0], most, diversity, pointer(out),
        out.shape[0],
    )  # fmt: skip


SETTINGS = [BeamSetting(beam, lists, 0.9, 0.0) for beam, lists in ((3, 1000), (12, 1000), (12, 4))]
SETTINGS += [BeamSetting(100, 1000, 0.9, 0.0, slack=slack) for slack in (1.0, 1.004, 1.02, 1.1)]


@pytest.mark.parametrize(("linked", "share"), [(0.01, 1.0), (0.05, 0.99), (0.05, 0.8), (0.05, 0.1)])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_walk_finds_and_sees_what_a_plain_one_does(
    setting: BeamSetting, linked: float, share: float, rng: np.random.Generator
) -> None:
    graph, limit = Graph(rng, linked=linked), min(10, setting.beam - 2)
    permitted = None
    if share < 1:
        permitted = set(np.flatnonzero(rng.random(ROWS) < share).tolist())
    expected = [graph.expected(query, setting, limit, permitted) for query in range(QUERIES)]
    assert permitted is None or {row for rows, _ in expected for row in rows} <= permitted
    assert graph.search(setting, limit, permitted=permitted) == expected


@pytest.mark.parametrize("setting", SETTINGS)
def test_many_deleted_rows_beside_a_query_lose_no_hit(
    setting: BeamSetting, rng: np.random.Generator
) -> None:
    graph, limit = Graph(rng), min(10, setting.beam - 2)
    for query in range(len(graph.queries)):
        nearest = np.argsort([-graph.score(query, row) for row in range(ROWS)])
        permitted = set(nearest[72:].tolist())
        asked = slice(query, query + 1)
        [(found, seen)] = graph.search(setting, limit, permitted=permitted, queries=asked)
        expected, needed = graph.expected(query, setting, limit, permitted)
        assert set(found) <= permitted
        assert seen >= needed
        scores = [[graph.score(query, row) for row in rows] for rows in (found, expected)]
        assert len(found) == len(expected)
        assert all(own >= other for own, other in zip(*scores, strict=True))


def test_a_search_under_a_filter_sees_no_more_than_it_has_room_for(
    rng: np.random.Generator,
) -> None:
    graph, everywhere = Graph(rng), BeamSetting(1, 1000, 0.9, 0.0)
    permitted = set(np.flatnonzero(rng.random(ROWS) < 0.6).tolist())
    policy = SearchPolicy(extended_beams=((inf, 1),), extended_places=1)
    free, outcomes = graph.hits(everywhere, 1, permitted=permitted, policy=policy)
    assert (outcomes == Outcome.ANSWERED).all()
    seen = int(free.candidates.max())
    _, outcomes = graph.hits(everywhere, 1, permitted=permitted, policy=policy, most=seen)
    assert (outcomes == Outcome.ANSWERED).all()
    bounded, outcomes = graph.hits(everywhere, 1, permitted=permitted, policy=policy, most=1)
    assert (outcomes == Outcome.UNFINISHED).all()
    assert (bounded.candidates < free.candidates).all()


FIRST = [(BeamSetting.of(0.3, 10), 10), (BeamSetting.of(0.05, 60), 60), (BeamSetting.of(1, 10), 10)]
"""First searches with the limit they are for: by their number of lists, or by a slack."""


def last_scores(graph: Graph, found: Sequence[mathematics.Walked], limit: int) -> list[float]:
    """Return the score of each query's last hit, 0 where there are too few."""
    return [
        graph.score(query, walked.beam[limit - 1]) if len(walked.beam) >= limit else 0.0
        for query, walked in enumerate(found)
    ]


@pytest.mark.parametrize("slack", [1.0, 1.1013])
@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize(("setting", "limit"), FIRST)
def test_a_search_whose_last_hit_scores_little_goes_on_where_it_ended(
    setting: BeamSetting, limit: int, share: float, slack: float, rng: np.random.Generator
) -> None:
    graph = Graph(rng, linked=0.02)
    some = set(np.flatnonzero(rng.random(ROWS) < share).tolist())
    permitted = None if share == 1 else some
    queries = range(len(graph.queries))
    first = [graph.walked(query, setting, limit, permitted) for query in queries]
    lasts = last_scores(graph, first, limit)
    hard = Extension(float(np.median(lasts)) + 1e-6, inf, slack)
    found = graph.search(setting, limit, permitted=permitted, hard=hard)
    for query, last in enumerate(lasts):
        walked = first[query]
        if last < hard.score:
            walked = graph.walked_on(query, walked, setting, hard, limit, permitted=permitted)
        assert found[query] == graph.best(query, walked, limit)
    if slack > 1:
        assert found != graph.search(setting, limit, permitted=permitted)


@pytest.mark.parametrize("slack", [1.0513, 1.2013])
@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize(("setting", "limit"), FIRST)
def test_a_search_that_finds_little_still_goes_on_from_more_entry_points(
    setting: BeamSetting, limit: int, share: float, slack: float, rng: np.random.Generator
) -> None:
    graph = Graph(rng, linked=0.01)
    some = set(np.flatnonzero(rng.random(ROWS) < share).tolist())
    permitted = None if share == 1 else some
    queries = range(len(graph.queries))
    hard = Extension(1.0, inf, 1.0)  # all are
    beside = SearchPolicy().rows_a_side(slack)
    assert beside > ROWS_A_SIDE
    walked = [
        graph.walked_on(
            query, graph.walked(query, setting, limit, permitted), setting, hard, limit,
            permitted=permitted,
        )
        for query in queries
    ]  # fmt: skip
    lasts = last_scores(graph, walked, limit)
    foreign = Extension(float(np.median(lasts)) + 1e-6, inf, slack, enters_wider=True)
    found = graph.search(setting, limit, permitted=permitted, hard=hard, foreign=foreign)
    for query, last in enumerate(lasts):
        expected = walked[query]
        if last < foreign.score:
            expected = graph.walked_on(
                query, expected, setting, foreign, limit,
                beside=beside, permitted=permitted, again=False,
            )  # fmt: skip
        assert found[query] == graph.best(query, expected, limit)
    assert found != graph.search(setting, limit, permitted=permitted, hard=hard)


@pytest.mark.parametrize("kind", ["hard", "foreign"])
@pytest.mark.parametrize(("setting", "limit"), FIRST)
def test_a_search_whose_first_hit_is_about_as_far_as_its_tenth_goes_on(
    setting: BeamSetting, limit: int, kind: str, rng: np.random.Generator
) -> None:
    graph = Graph(rng, linked=0.02)
    once = graph.search(setting, limit)
    factors = np.array([
        (1 - graph.score(query, rows[0])) / (1 - graph.score(query, rows[9]))
        for query, (rows, _) in enumerate(once)
    ])  # fmt: skip
    extension = Extension(  # between two of them
        0.0, float(np.median(factors)), 1.1013, enters_wider=kind == "foreign"
    )
    found = graph.search(setting, limit, **{kind: extension})
    beside = ROWS_A_SIDE if kind == "hard" else SearchPolicy().rows_a_side(1.1013)
    for query, factor in enumerate(factors):
        if factor <= extension.contrast:
            assert found[query] == once[query]
            continue
        first = graph.walked(query, setting, limit)
        onward = graph.walked_on(query, first, setting, extension, limit, beside=beside)
        assert found[query] == graph.best(query, onward, limit)
    assert found != once


@pytest.mark.parametrize(
    ("setting", "limit", "fit"), [(*FIRST[0], True), (*FIRST[2], True), (*FIRST[0], False)]
)
def test_a_search_whose_first_hits_tie_goes_on_through_its_buckets_that_fit(
    setting: BeamSetting, limit: int, fit: bool, rng: np.random.Generator
) -> None:
    """Where most of every row is the same, all rows are in one bucket, of half the room and more.

    They are passed over, and the search is not cut.
    """
    floats = Quantizer(FLOATS, 1.0, 0)
    graph = Graph(rng, linked=0.05, quantizer=floats, shared=0 if fit else 30_000)
    never = Extension(0.0, inf, 1.0001)
    first = [graph.walked(query, setting, limit) for query in range(len(graph.queries))]
    between = np.array([
        graph.score(query, walked.beam[1]) - graph.score(query, walked.beam[9])
        for query, walked in enumerate(first)
    ])  # fmt: skip
    tied = float(np.median(between))
    room = inf if fit else ROOM
    most = inf if fit else 1.0
    found = graph.search(setting, limit, hard=never, spread=tied / TIED_SHARE, most=most)
    for query, walked in enumerate(first):
        onward = walked
        if between[query] < tied:
            onward = graph.walked_on(query, walked, setting, never, limit, tied=tied, room=room)
        assert found[query] == graph.best(query, onward, limit)
    assert found != graph.search(setting, limit, hard=never)


@pytest.mark.parametrize("crowded", [True, False])
def test_under_a_filter_a_search_goes_on_where_many_nearer_rows_are_not_permitted(
    crowded: bool, rng: np.random.Generator
) -> None:
    """No score and no contrast tells of them: the hits that are permitted look like any others."""
    graph = Graph(rng, linked=0.2)
    limit, setting = 3, BeamSetting.of(0.5, 3)
    policy = SearchPolicy(crowding=3.0)
    never = Extension(0.0, inf, 1.1013)
    ranks = [
        sorted(range(ROWS), key=lambda row: -graph.score(query, row))
        for query in range(len(graph.queries))
    ]
    for query, rows in enumerate(ranks):
        left_out = set(rows[:60] if crowded else rng.choice(rows, 60, replace=False).tolist())
        permitted = set(range(ROWS)) - left_out
        only = slice(query, query + 1)
        [once] = graph.search(setting, limit, permitted=permitted, queries=only, policy=policy)
        [found] = graph.search(
            setting, limit, permitted=permitted, queries=only, policy=policy, hard=never
        )
        walked = graph.walked(query, setting, limit, permitted)
        onward = graph.walked_on(query, walked, setting, never, limit, permitted=permitted)
        last = graph.score(query, walked.beam[limit - 1])
        nearer = sum(graph.score(query, row) > last for row in walked.known)
        most = policy.crowded(limit, len(permitted) / ROWS)
        assert once == graph.best(query, walked, limit)
        assert (nearer > most) == crowded
        assert found == graph.best(query, onward if crowded else walked, limit)


@pytest.mark.parametrize("share", [0.05, 0.6, 0.98])
def test_in_the_place_of_hidden_rows_a_walk_enters_by_those_behind_them(
    share: float, rng: np.random.Generator
) -> None:
    graph = Graph(rng, linked=0.0)
    hidden = (rng.random(ROWS) < share).astype(np.uint8)
    setting = SETTINGS[1]
    found = graph.search(setting, 10, hidden=hidden)
    for query in range(len(graph.queries)):
        entered = graph.entries(query, setting.tables(graph.links.entry_tables), hidden)
        best = sorted(entered, key=lambda row: (-graph.score(query, row), row))
        assert found[query] == (best[:10], len(entered))


@pytest.mark.parametrize("extended", [False, True])
def test_a_search_that_fills_its_room_is_unfinished_and_leaves_no_marks(
    extended: bool, rng: np.random.Generator
) -> None:
    graph = Graph(rng)
    everywhere = BeamSetting(1, 1000, 0.9, 0.0)
    few = {7, 150}
    hard = Extension(1.0, inf, 16.0) if extended else NO_EXTENSION
    setting = BeamSetting(1, 1, 0.9, 0.0) if extended else everywhere
    untouched = graph.search(SETTINGS[1], 10)
    graph.neighbours = NeighbourGraph(UNITS, graph.rows, TABLES)  # with no memory yet
    graph.neighbours.cover(graph.rows)
    tight = SearchPolicy(extended_beams=((inf, 1),), extended_places=1)
    filled, outcomes = graph.hits(setting, 2, permitted=few, policy=tight, hard=hard, most=1.0)
    seen = [len(graph.walked(query, everywhere, ROWS, few).seen) for query in range(QUERIES)]
    assert (filled.candidates < seen).all()
    assert (outcomes == Outcome.UNFINISHED).all()
    again, _ = graph.hits(setting, 2, permitted=few, policy=tight, hard=hard, most=1.0)
    assert (again.candidates == filled.candidates).all()
    _, outcomes = graph.hits(setting, 2, permitted=few, hard=hard)
    assert (outcomes != Outcome.UNFINISHED).all()
    assert graph.search(SETTINGS[1], 10) == untouched
    assert graph.search(SETTINGS[1], 10) == untouched


def test_links_of_three_and_of_four_bytes_lead_to_the_same(rng: np.random.Generator) -> None:
    graph = Graph(rng)
    before = graph.search(SETTINGS[1], 5)
    graph.links = replace(graph.links, array=LinkArray.of(graph.links.array, 1 << 24))
    assert graph.search(SETTINGS[1], 5) == before


def test_rows_newer_than_a_search_are_passed_over(rng: np.random.Generator) -> None:
    graph = Graph(rng)
    before = graph.search(SETTINGS[1], 5)
    links = graph.links.array
    for row in range(ROWS):
        links[row, len(graph.chosen[row]) % WIDTH :] = ROWS + row
    assert graph.search(SETTINGS[1], 5) == before


def _distance(data: Sequence[dict[int, float]], a: int, b: int) -> float:
    return 1.0 - mathematics.gmm(data[a], data[b])


@pytest.mark.parametrize("most", [1, 5, WIDTH])
@pytest.mark.parametrize("diversity", [1.0, 1.2, 2.0])
def test_pruning_keeps_what_no_neighbour_chosen_before_is_much_nearer_to(
    diversity: float, most: int, rng: np.random.Generator
) -> None:
    centres = 2 * rng.standard_normal((12, 20))
    data = centres[rng.integers(0, 12, ROWS)] + rng.standard_normal((ROWS, 20))
    batch = SmallIndex(CollectionConfig(dim=20)).prepare(data.astype(np.float32))
    view = QuantizedRows(Quantizer(FLOATS), batch.dense.shape[1]).cover(batch)
    vectors = [mathematics.from_dense(row) for row in data.astype(np.float32)]
    counts = set()
    spaces = ScratchPool()
    for row in range(0, ROWS, 20):
        scores = np.array([mathematics.gmm(vectors[row], other) for other in vectors], np.float32)
        order = np.lexsort((-np.arange(ROWS), -scores))[:100]
        pool = (scores[order].view(np.uint32).astype(np.uint64) << np.uint64(32)) | (
            order.astype(np.uint64) << np.uint64(2)
        )
        out = np.full(WIDTH, 5, np.int32)
        with spaces.lend(ScratchSizes(ROWS, ROWS, ROWS, 0, 1)) as space:
            count = _prune(
                view.addresses, space.addresses, row, pool, (most, np.float32(diversity)), out
            )
        kept = mathematics.pruned(
            row, order.tolist(), lambda a, b: _distance(vectors, a, b),
            most=most, diversity=diversity,
        )  # fmt: skip
        assert out[:count].tolist() == kept
        assert (out[count:] == NONE).all()
        counts.add(count)
    assert max(counts) <= most
    assert most < WIDTH or diversity > 1.5 or len(counts) > 1  # it is not for nothing
