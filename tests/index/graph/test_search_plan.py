"""What a search is lent and may cost: it ends, scans take over, and answers stay right."""

from dataclasses import replace

import numpy as np
import pytest
from numba import njit

from gcws_search.index.contracts.hits import GRAPH, METHODS, SCAN
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.cost_model import Tally
from gcws_search.index.graph.neighbour_graph import WIDTH
from gcws_search.index.graph.recall_curve import BeamSetting, Extension, SearchSetting
from gcws_search.index.graph.recall_watch import MIN_QUERIES, DriftMonitor, MissAllowance
from gcws_search.index.graph.scratch import ScratchPool, ScratchSizes
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.graph.search_plan import TRIED, Outcome, SearchPlan, Skipped
from gcws_search.index.kernels.lanes.vector import pointer
from gcws_search.index.kernels.quantized.rows import (
    BYTES,
    QueryAddresses,
    held_before,
    rows_at,
    score_rows,
)
from gcws_search.index.vectors.quantization import QuantizedRows, Quantizer
from tests.support.data.generated import Floats, clustered
from tests.support.index.recall import linked
from tests.support.index.small_index import Mask, SmallIndex, all_scores

DIM = 32
ROWS = 20_000
Made = tuple[SmallIndex, Floats, Floats]


@pytest.fixture(scope="module")
def made() -> Made:
    rows, queries = clustered(np.random.default_rng(8), ROWS, 400, dim=DIM)
    return linked(rows), rows, queries


def alone(index: SmallIndex, queries: Floats, params: SearchParams, mask: Mask) -> list[str]:
    """Return what answers each query, sent by itself."""
    return [
        index.search(queries[i : i + 1], params, permitted=mask)[0].explanation.method
        for i in range(len(queries))
    ]


def without_near(rows: Floats, query: Floats) -> Mask:
    """Return a filter that leaves out the half of the rows that is nearest to a query."""
    near = np.abs(rows - query).sum(axis=1)
    mask: Mask = (near > np.median(near)).astype(np.uint8)
    return mask


def test_under_a_filter_that_leaves_out_all_that_is_near_scans_take_over(made: Made) -> None:
    index, rows, queries = made
    mask = without_near(rows, queries[0])
    asked = np.repeat(queries[:1], 60, axis=0)
    params = SearchParams(limit=3, recall=0.9)
    methods = alone(index, asked, params, mask)
    assert set(methods[-20:]) == {METHODS[SCAN]}


def test_under_a_filter_that_has_nothing_to_do_with_the_query_the_graph_is_searched_on(
    made: Made,
) -> None:
    index, _, queries = made
    mask = (np.random.default_rng(3).random(ROWS) < 0.5).astype(np.uint8)
    methods = alone(index, queries[:60], SearchParams(limit=3, recall=0.9), mask)
    assert methods.count(METHODS[GRAPH]) > 50
    assert METHODS[GRAPH] in methods[-5:]


def test_the_first_queries_of_a_large_call_tell_how_the_others_are_answered(made: Made) -> None:
    index, rows, queries = made
    mask = without_near(rows, queries[1])
    mask[0] = 1 - mask[0]  # counts of rows that no other test has
    asked = np.repeat(queries[1:2], 400, axis=0)
    params = SearchParams(limit=4, recall=0.9)
    found = index.search(asked, params, permitted=mask)
    methods = [hits.explanation.method for hits in found]
    assert set(methods[2 * TRIED :]) == {METHODS[SCAN]}
    true = index.search(asked[:1], SearchParams(limit=4, recall=1.0), permitted=mask)[0]
    for hits in (found[0], found[-1]):
        assert len(hits.rows[:4]) == 4
        assert mask[hits.rows].all()
    assert found[-1].scores[:4].tolist() == pytest.approx(true.scores[:4].tolist())


def test_the_plan_of_a_large_call_is_tried_once(made: Made) -> None:
    """Not again and again by parts that make plans of their own."""
    index, _, queries = made
    mask = (np.random.default_rng(4).random(ROWS) < 0.55).astype(np.uint8)
    params = SearchParams(limit=5, recall=0.85)
    index.search(queries, params, permitted=mask)
    plan = index.state.graph.plan(index.state.tables, index.view(mask), params, len(queries))
    assert isinstance(plan, SearchPlan)
    assert plan.tally.seen == len(queries)
    assert index.search(queries[:0], params, permitted=mask) == []


def test_a_tally_forgets_what_searches_took_before() -> None:
    tally = Tally(100.0)
    tally.add(1, 1000.0)
    assert tally.nanoseconds == pytest.approx(200.0)  # what was expected counts for eight
    tally.add(9999, 50.0)
    assert tally.nanoseconds == pytest.approx(50.0, rel=0.01)
    tally.add(1, 50.0 + 650.0)
    assert tally.nanoseconds == pytest.approx(60.0, rel=0.01)  # one of 65
    assert tally.seen == 10_001
    assert [tally.try_again(3) for _ in range(7)] == [False, False, True] * 2 + [False]


def test_a_plan_that_has_been_too_slow_is_tried_again_now_and_then(made: Made) -> None:
    index, _, _ = made
    graph = index.state.graph
    some = index.view((np.random.default_rng(6).random(ROWS) < 0.6).astype(np.uint8))
    params = SearchParams(limit=3, recall=0.8)
    plan = graph.plan(index.state.tables, some, params, 1)
    assert isinstance(plan, SearchPlan)
    plan.tally.add(1000, 10 * plan.scan_nanoseconds)
    asked = [graph.plan(index.state.tables, some, params, 1) for _ in range(2 * 64)]
    assert asked.count(Skipped.SCAN_IS_QUICKER) == 2 * 63
    plan.tally.add(1000, 0.1 * plan.scan_nanoseconds)
    assert graph.plan(index.state.tables, some, params, 1) is plan


def test_searches_that_see_too_many_rows_are_answered_exactly_by_scans(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, rows, queries = made
    graph = index.state.graph
    params = SearchParams(limit=10, recall=0.99)
    view = index.view()
    plan = graph.plan(index.state.tables, view, params, 1)
    assert isinstance(plan, SearchPlan)
    plan = replace(plan, sizes=replace(plan.sizes, room=2 * WIDTH + plan.sizes.beam // 32))
    monkeypatch.setattr(GraphSearch, "plan", lambda *_: plan)
    batch = index.prepare(queries[:100])
    none = np.full(100, -1, np.int64)
    _, outcomes = graph.search(plan, index.state.tables, view, batch, params, none)
    unfinished = np.flatnonzero(outcomes == Outcome.UNFINISHED)
    assert len(unfinished) > 0
    true = -np.sort(-all_scores(queries[unfinished], rows, DIM), axis=1)[:, :10]
    for query, scores in zip(unfinished, true, strict=True):
        (hits,) = index.search(queries[query : query + 1], params)
        assert hits.explanation.method == METHODS[SCAN]
        assert hits.scores[:10] == pytest.approx(scores, abs=1e-6)


@njit(nogil=True)
def _quick_scores(rows, queries, norms, table, numbers, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    own, asked = rows_at(rows), rows_at(queries)
    for m in range(out.shape[0]):
        query = held_before(asked, m, pointer(table))
        cut = np.float32(norms[m] - query.norm)
        whole = QueryAddresses(query.copy, query.norm, query.table, query.shift, cut)
        score_rows(own, whole, pointer(numbers), 0, len(numbers), pointer(out[m]))


@pytest.mark.parametrize("factor", [1, 3, 8])
def test_quick_scores_are_exact_where_it_is_known_what_was_cut(
    factor: int, rng: np.random.Generator
) -> None:
    """Of rows of whole numbers; greater values of a query add to the union alone."""
    index, quantizer = SmallIndex(CollectionConfig(dim=16)), Quantizer(BYTES, 1.0, 0)
    rows = rng.integers(0, 256, (60, 16)).astype(np.float32)
    rows[0, 0] = 255
    queries = (factor * rng.integers(0, 256, (40, 16))).astype(np.float32)
    views = []
    for each in (rows, queries):
        batch = index.prepare(each)
        views.append(QuantizedRows(quantizer, 16).cover(batch))
    own, asked = views
    sums = queries.sum(axis=1).astype(np.float32)
    assert (asked.norms < sums).any() == (factor > 1)
    quick = np.empty((40, 60), np.float32)
    numbers = np.arange(60, dtype=np.int32)
    _quick_scores(own.addresses, asked.addresses, sums, np.zeros(1, np.float32), numbers, quick)
    assert quick == pytest.approx(all_scores(queries, rows, 16), abs=1e-6)


def test_no_search_sees_more_rows_than_it_has_room_for(made: Made) -> None:
    """More entry points come only where they have room: their rows are written down unchecked."""
    index, _, queries = made
    graph, unfinished = index.state.graph, 0
    for beam in (40, 200, 800):
        beams = ((np.inf, beam),)
        policy = replace(graph.policy, max_room=1, extended_beams=beams, max_rows_a_side=64)
        tight = replace(graph, policy=policy)
        for slack in (1.1, 1.5, 3.0):
            hard = Extension(np.inf, 0.0, slack)
            setting = SearchSetting(
                BeamSetting.of(0.1, 3), hard, replace(hard, slack=1.3), judged=3
            )
            found, outcomes, plan = index.graph_hits(queries, 3, setting, tight, 1.0)
            assert found.candidates.max() <= plan.sizes.room
            unfinished += int(np.count_nonzero(outcomes == Outcome.UNFINISHED))
    assert unfinished > 0


SIZES = ScratchSizes(rows=10_000, room=500, beam=20, longest=0, keys=8)


def test_memory_is_lent_to_nobody_else_while_a_walk_writes_on_it_or_after_it_failed() -> None:
    spaces = ScratchPool()
    with spaces.lend(SIZES) as first, spaces.lend(SIZES) as second:
        assert not set(first.addresses[:, 0].tolist()) & set(second.addresses[:, 0].tolist())
    spaces = ScratchPool()
    with pytest.raises(RuntimeError), spaces.lend(SIZES) as first:
        raise RuntimeError
    with spaces.lend(SIZES) as second:
        assert second is not first


@pytest.mark.parametrize("grown", ["", "rows", "room", "beam", "longest", "keys"])
def test_memory_is_made_anew_where_it_has_become_too_small(grown: str) -> None:
    spaces = ScratchPool()
    more = {grown: 1_000_000} if grown else {"rows": SIZES.rows + 1}
    with spaces.lend(SIZES) as first:
        pass
    with spaces.lend(replace(SIZES, **more)) as second:
        assert (second is first) == (not grown)


def test_a_search_sees_as_many_rows_whatever_memory_it_is_lent() -> None:
    """Else it would end elsewhere after a search that may see more."""
    spaces = ScratchPool()
    lent = []
    for sizes in (SIZES, replace(SIZES, room=100), SIZES):
        with spaces.lend(sizes) as space:
            lent.append(space)
            assert set(space.addresses[:, 2].tolist()) == {sizes.room}
    assert lent[0] is lent[1] is lent[2]


LIMITS = (1, 3, 10, 30, 100, 101)


def audited(
    found: list[float], *, asked: float, limit: int = 10, before: MissAllowance | None = None
) -> MissAllowance:
    allowance = before or MissAllowance()
    for each in found:
        allowance.take(limit, asked, each)
    return allowance


def test_a_plan_that_is_remembered_holds_until_less_is_allowed_or_rows_drift(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, params = made[0], SearchParams(limit=10, recall=0.9)
    graph: GraphSearch = replace(index.state.graph, allowance=MissAllowance())

    def plan() -> SearchPlan | Skipped:
        return graph.plan(index.state.tables, index.view(), params, 1)

    first = plan()
    assert isinstance(first, SearchPlan)
    assert plan() is first
    audited([0.5] * MIN_QUERIES, asked=0.9, before=graph.allowance)
    deeper = plan()
    assert isinstance(deeper, SearchPlan)
    assert deeper.kernel.recall > first.kernel.recall
    monkeypatch.setattr(graph.neighbours, "drift", DriftMonitor((1.0,) * 16))
    assert plan() is Skipped.DRIFTED
    monkeypatch.undo()
    audited([0.0] * 100, asked=0.9, before=graph.allowance)
    assert plan() is Skipped.AUDITED


def test_less_is_allowed_where_queries_find_too_little_until_the_graph_is_left() -> None:
    allowance = MissAllowance()
    shares = [audited([0.5], asked=0.9, before=allowance).share(10) for _ in range(200)]
    assert [*dict.fromkeys(shares)] == [1.0, 0.5, 0.25, 0.125, 0.0625, 0.0]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("limit", LIMITS)
def test_limits_of_other_classes_are_left_alone(limit: int) -> None:
    allowance = audited([0.2] * 9, asked=0.9, limit=limit)
    assert [each for each in LIMITS if allowance.share(each) < 1] == [limit]


@pytest.mark.parametrize("asked", [0.8, 0.9, 0.99])
@pytest.mark.parametrize("limit", [1, 10])
def test_queries_that_find_what_was_promised_change_nothing(
    asked: float, limit: int, rng: np.random.Generator
) -> None:
    """A calibration aims at four fifths of the miss that is allowed."""
    aimed = asked + (1 - asked) / 5
    changed = 0
    for _ in range(100):
        found = rng.binomial(limit, aimed, 1000) / limit
        changed += audited(found.tolist(), asked=asked, limit=limit).share(limit) < 1
    assert changed <= 5


@pytest.mark.parametrize(("asked", "finds"), [(0.8, 0.6), (0.9, 0.75), (0.99, 0.9)])
def test_a_shortfall_is_seen_after_some_hundred_queries(
    asked: float, finds: float, rng: np.random.Generator
) -> None:
    for _ in range(20):
        found = rng.binomial(1, finds, 1000).astype(float)
        assert audited(found.tolist(), asked=asked, limit=1).share(1) < 1


def test_the_share_rises_again_only_where_twice_the_miss_would_not_be_too_much(
    rng: np.random.Generator,
) -> None:
    allowance = audited([0.3] * 16, asked=0.8)
    assert allowance.share(10) == 0.25
    assert audited([1.0] * 1000, asked=0.8, before=allowance).share(10) == 1.0
    found = (rng.binomial(10, 0.88, 5000) / 10).tolist()
    assert audited(found, asked=0.8, before=audited([0.3] * 8, asked=0.8)).share(10) == 0.5


def test_shares_are_saved() -> None:
    allowance, again = audited([0.3] * 8, asked=0.8), MissAllowance()
    again.restore(allowance.to_list())
    assert again.by_limit == allowance.by_limit
    again.restore([])  # of a file that has none
    assert again.by_limit == allowance.by_limit


@pytest.mark.parametrize("saved", [None, "x", [0.5], [2.0] * 6, [float("nan")] * 6, [1.0] * 7])
def test_false_shares_are_refused(saved: object) -> None:
    with pytest.raises(ValueError, match=r"number|list|share"):
        MissAllowance().restore(saved)


def test_queries_find_too_little_while_their_mean_is_less_than_was_asked() -> None:
    allowance, judged = MissAllowance(), []
    for found in (1.0, 0.9, 0.35, 1.0, 1.0, 1.0, 1.0, 1.0):
        judged.append(allowance.finds_too_little)
        allowance.take(10, 0.9, found)
    assert judged == [False] * 3 + [True] * 5
    assert not allowance.finds_too_little


def test_the_limits_audited_last_are_judged_anew_where_the_share_changes() -> None:
    allowance, judged = MissAllowance(), []
    for limit, found in ((1, 0.2), (100, 1.0), (1, 0.9)):
        judged.append(audited([found], asked=0.9, limit=limit, before=allowance).finds_too_little)
    assert judged == [True, False, True]
    assert not audited([0.0] * MIN_QUERIES, asked=0.8).finds_too_little
