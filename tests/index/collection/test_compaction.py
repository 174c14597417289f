"""Compaction beside those who change a collection: nothing they do is lost, or comes back."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gcws_search import index as ix
from gcws_search.index.backends.gcws import GcwsState
from gcws_search.index.collection.optimizer import optimize
from gcws_search.index.contracts.batches import MIN_COPIED_FLOATS
from gcws_search.index.graph.lifecycle import GraphPolicy
from tests.support.data.generated import Floats
from tests.support.index.attached_backends import NRFF
from tests.support.index.items import held, opened_catalog, put_vectors, reopened
from tests.support.index.policies import DEAR_SCANS, FREE_SEARCHES, compacting_from, graphs_from
from tests.support.index.saved_graph import Restart, copied, opened
from tests.support.index.small_index import all_scores
from tests.support.reference import mathematics

DIM, COUNT = 16, 400
BACKGROUND = replace(
    compacting_from(8, in_background=True),
    graph=graphs_from(64).graph,
    max_delta_rows=40,
    probe=DEAR_SCANS,
)
"""No change waits for a compaction, and graphs are small."""
EXACT, DEFAULT_RECALL = ix.SearchParams(limit=5, recall=1), ix.SearchParams(limit=5)
"""Scans find all; by tables or a graph an item is found that is equal to the query."""
COPIED_DIM = 64
COPIED_ROWS = MIN_COPIED_FLOATS // COPIED_DIM + 200
EVEN = {"must": [{"key": "even", "match": {"value": True}}]}


class ModelledCollection:
    """A collection beside a dictionary of what it should hold."""

    def __init__(self, stored: ix.StoredCollection, rng: np.random.Generator) -> None:
        self.stored = stored
        self.memory = stored.memory
        self.rng = rng
        self.rows: dict[str, Floats] = {}
        self.payloads: dict[str, bytes] = {}

    def put(self, *numbers: int) -> None:
        rows = self.rng.standard_normal((len(numbers), DIM))
        rows[:, 0] = 3.0
        self.put_rows(numbers, rows)

    def put_rows(self, numbers: Sequence[int], rows: ix.AnyArray) -> None:
        ids, single = [f"i{n}" for n in numbers], rows.astype(np.float32)
        raw = self.stored.space.from_items([vector_of(self.stored, row) for row in single])
        payloads = [payload_of(each) for each in ids]
        self.stored.put(ix.ItemBatch(ids, raw, [*payloads]))
        self.rows |= dict(zip(ids, single, strict=True))
        self.payloads |= dict(zip(ids, payloads, strict=True))

    def delete(self, *numbers: int) -> None:
        self.stored.delete([f"i{n}" for n in numbers])
        for n in numbers:
            self.rows.pop(f"i{n}", None)

    def paint(self, *numbers: int) -> None:
        """Replace payloads by others, of which each comes once."""
        for n in numbers:
            payload = b'{"n":%d,"drawn":%d}' % (n, self.rng.integers(1 << 60))
            change = ix.PayloadChange(payload, merge=False)
            if self.stored.change_payloads(change, [f"i{n}"]):
                self.payloads[f"i{n}"] = payload

    def change_at_random(self, changes: int) -> None:
        """Put, replace, paint and delete some items, old and new ones."""
        for _ in range(changes):
            numbers = self.rng.choice(COUNT + 60, self.rng.integers(1, 9), replace=False).tolist()
            (self.put, self.paint, self.delete)[int(self.rng.integers(3))](*numbers)

    def expected(self) -> dict[str, tuple[object, bytes | None]]:
        """Return each item's vector and payload, as `held` does."""
        names, rows = list(self.rows), list(self.rows.values())
        raw = self.stored.space.from_items([vector_of(self.stored, row) for row in rows])
        vectors = [self.stored.space.to_json(raw, place) for place in range(len(rows))]
        payloads = map(self.payloads.__getitem__, names)
        return dict(zip(names, zip(vectors, payloads, strict=True), strict=True))

    def check(self) -> None:
        view = self.memory.view
        assert view.count == int(view.alive.sum()) == len(self.rows) == self.stored.count()
        assert held(self.stored) == self.expected()
        assert (np.diff(view.sequences) > 0).all()
        if isinstance(view.state, GcwsState):
            assert len(view.state.tables) + view.state.delta.count == len(view)
        for name, params in (
            (None, EXACT),
            *((name, DEFAULT_RECALL) for name in (None, *view.attached)),
        ):
            for item_id, row in self.rows.items():
                asked = self.stored.space.from_items([vector_of(self.stored, row)])
                [found] = self.stored.search(asked, params, backend=name)
                assert (found.ids[0], found.scores[0]) == (item_id, 1)
        for n in range(COUNT + 60):
            item_id = f"i{n}"
            [payload] = self.memory.payloads_of([item_id])
            assert payload == (self.payloads[item_id] if item_id in self.rows else None)
            assert len(self.memory.rows_of([item_id])) == (item_id in self.rows)

    def check_exact(self, queries: ix.AnyArray) -> None:
        """Check that exact searches find what brute force finds, with a filter and without."""
        single = queries.astype(np.float32)
        asked = self.stored.space.from_dense(single)
        for where in (None, ix.parse_filter(EVEN)):
            ids = [each for each in self.rows if where is None or b"true" in payload_of(each)]
            truth = all_scores(single, np.stack([self.rows[each] for each in ids]), COPIED_DIM)
            found = self.stored.search(asked, EXACT, where=where)
            for result, scores in zip(found, truth, strict=True):
                best = np.argsort(-scores)[: EXACT.limit]
                assert result.ids == [ids[i] for i in best]
                np.testing.assert_allclose(result.scores, scores[best], rtol=1e-12)

    def has_copies(self) -> bool:
        return self.memory.view.vectors.copies is not None


def payload_of(item_id: str) -> bytes:
    n = int(item_id[1:])
    return b'{"n":%d,"even":%s}' % (n, b"false" if n % 2 else b"true")


def vector_of(stored: ix.StoredCollection, row: Floats) -> Floats | ix.SparseVector:
    return row if stored.config.form == "dense" else ix.SparseVector(np.arange(DIM), row)


def publish_at_once(adopt: Callable[[], bool]) -> bool:
    """Publish at once, as where nobody else makes changes."""
    return adopt()


def make_overdue(modelled: ModelledCollection) -> None:
    """Fill a modelled, its graph built, until more rows are dead than alive."""
    modelled.put(*range(COUNT))
    while modelled.memory.overdue(modelled.memory.view):
        assert optimize(modelled.memory, publish_at_once, threading.Event())
    modelled.delete(*range(1, COUNT, 3))
    while not modelled.memory.compaction_is_overdue:
        modelled.put(*range(0, COUNT, 2))


@pytest.fixture(params=["exact", "gcws", "sparse", "attached", "mapped", "auto"])
def modelled(
    request: pytest.FixtureRequest, tmp_path: Path, rng: np.random.Generator
) -> Iterator[ModelledCollection]:
    config = ix.CollectionConfig(
        dim=None if request.param == "sparse" else DIM,
        backend=ix.ExactParams() if request.param == "exact" else ix.GcwsParams(bands=8),
        storage=request.param if request.param in ("mapped", "auto") else "memory",
    )
    catalog = opened_catalog(tmp_path, replace(BACKGROUND, max_unmapped_bytes=COUNT * DIM // 2))
    stored = catalog.create("things", config)[0]
    if request.param == "attached":
        stored.attach(NRFF)
    catalog.pause_optimizing()
    yield ModelledCollection(stored, rng)
    catalog.close()


@pytest.mark.parametrize("changes", [0, 1, 30])
def test_changes_that_are_made_meanwhile_are_taken_in(
    modelled: ModelledCollection, changes: int
) -> None:
    make_overdue(modelled)

    def after_changes(adopt: Callable[[], bool]) -> bool:
        modelled.change_at_random(changes)
        return adopt()

    assert optimize(modelled.memory, after_changes, threading.Event()) is True
    view = modelled.memory.view
    assert view.dead <= 8 * changes
    assert not modelled.memory.compaction_is_overdue
    modelled.check()
    modelled.change_at_random(20)  # nor is anything wrong with those that come after
    modelled.check()


def test_changes_are_applied_again_and_again(modelled: ModelledCollection) -> None:
    make_overdue(modelled)
    compaction = modelled.memory.build_compaction()
    for _ in range(5):
        modelled.change_at_random(10)
        now = modelled.memory.view
        assert compaction.can_follow(now)
        compaction.apply_changes(now)
        assert not compaction.apply_changes(now)
    assert modelled.memory.adopt_compaction(compaction)
    modelled.check()


def test_readers_of_before_see_what_they_saw(modelled: ModelledCollection) -> None:
    make_overdue(modelled)
    before, space = modelled.memory.view, modelled.stored.space

    def seen() -> list[object]:
        raw = before.raw(np.arange(len(before)))
        assert raw is not None
        vectors = [space.to_json(raw, row) for row in range(len(before))]
        return [before.alive.tolist(), before.sequences.tolist(), vectors]

    expected = seen()
    assert optimize(modelled.memory, publish_at_once, threading.Event())
    modelled.change_at_random(10)
    assert seen() == expected


def test_a_compaction_that_another_overtook_changes_nothing(modelled: ModelledCollection) -> None:
    make_overdue(modelled)

    def after_another(adopt: Callable[[], bool]) -> bool:
        modelled.memory.compact()
        return adopt()

    assert optimize(modelled.memory, after_another, threading.Event()) is False
    modelled.check()


def test_a_compaction_without_a_backend_attached_since_changes_nothing(
    modelled: ModelledCollection,
) -> None:
    make_overdue(modelled)
    memory = modelled.memory
    compaction = memory.build_compaction()
    memory.attach(replace(memory.index_of(memory.view), name="other"))
    assert not memory.adopt_compaction(compaction)
    memory.detach("other")
    assert memory.adopt_compaction(compaction)
    modelled.check()


def test_a_stopped_compaction_changes_nothing(modelled: ModelledCollection) -> None:
    make_overdue(modelled)
    stopped, before = threading.Event(), modelled.memory.view
    stopped.set()
    assert optimize(modelled.memory, publish_at_once, stopped) is None
    assert modelled.memory.view is before
    modelled.check()


def test_the_background_compacts_and_a_restart_finds_all_items(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    catalog = opened_catalog(tmp_path, BACKGROUND)
    modelled = ModelledCollection(catalog.create("things", ix.CollectionConfig(dim=DIM))[0], rng)
    modelled.put(*range(COUNT))
    for _ in range(12):
        modelled.change_at_random(20)
        modelled.put(*rng.choice(COUNT, 40, replace=False).tolist())
    modelled.stored.finish_background_work()
    view = modelled.memory.view
    assert view.dead <= max(view.count, 8)
    modelled.check()
    assert reopened(modelled.stored, tmp_path) == modelled.expected()
    catalog.close()


def test_a_write_compacts_few_live_rows_or_too_many_dead_ones() -> None:
    by_whom = ix.Policies(min_dead=10, max_foreground_rows=100, max_dead_ratio=3.0).compactor
    assert [by_whom(dead, 5) for dead in (10, 11)] == [None, "write"]
    assert [by_whom(dead, 100) for dead in (100, 101)] == [None, "write"]
    assert [by_whom(dead, 101) for dead in (101, 102, 303, 304)] == [
        None, "background", "background", "write",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "backend", [ix.ExactParams(), ix.GcwsParams(bands=4)], ids=["exact", "gcws"]
)
def test_every_change_is_seen_by_the_next_exact_search(
    catalog: ix.Catalog, restart: Restart, backend: ix.BackendParams, rng: np.random.Generator
) -> None:
    rows, queries = (
        rng.standard_normal((COPIED_ROWS + 1000, COPIED_DIM)),
        rng.standard_normal((6, COPIED_DIM)),
    )
    config = ix.CollectionConfig(dim=COPIED_DIM, backend=backend)
    modelled = ModelledCollection(catalog.create("things", config)[0], rng)
    modelled.put_rows(range(COPIED_ROWS), rows[:COPIED_ROWS])
    assert modelled.has_copies()
    modelled.check_exact(queries)
    for n in range(3):  # one at a time: nearest of all, and some that outgrow the bytes
        modelled.put_rows([COPIED_ROWS + n], queries[n : n + 1] * 0.99)
        modelled.put_rows([COPIED_ROWS + 10 + n], 1e4 * queries[n : n + 1])
    modelled.check_exact(queries)
    modelled.check_exact(1e4 * queries)
    modelled.put_rows(range(100, 400), 30 * rows[COPIED_ROWS : COPIED_ROWS + 300])  # replaced
    modelled.check_exact(queries)
    modelled.check_exact(30 * rows[COPIED_ROWS : COPIED_ROWS + 3] + queries[:3])
    modelled.delete(COPIED_ROWS, COPIED_ROWS + 11, *range(500, 700))
    modelled.check_exact(queries)
    with restart() as again:
        modelled.stored, modelled.memory = again, again.memory
        assert modelled.has_copies()
        modelled.check_exact(queries)
        modelled.stored.memory.compact()
        modelled.put_rows(range(2000, 2100), rows[-100:])
        modelled.check_exact(queries)
        modelled.check_exact(rows[-3:])


POLICIES = ix.Policies(graph=GraphPolicy(min_rows=400, search=FREE_SEARCHES))
ROWS = 8000
KINDS = 26
HOLES = 100
ASKED = 0.8


def some(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """Return rows of some kinds on a lattice, each near to others of its kind alone."""
    kinds = np.random.default_rng(0).normal(0, 2, (KINDS, DIM))
    rows = kinds[rng.integers(KINDS, size=count)] + rng.normal(0, 0.7, (count, DIM))
    return np.rint(rows).astype(np.float32) + np.float32(0.25)


@pytest.mark.parametrize("killed", [False, True])
def test_rows_behind_deleted_ones_are_found_after_a_restart(
    rng: np.random.Generator, tmp_path: Path, killed: bool
) -> None:
    """Where their links were dropped alone, queries beside them found a tenth less than before."""
    catalog = ix.Catalog.open(tmp_path / "first", threads=1, policies=POLICIES)
    things, _ = catalog.create("things", ix.CollectionConfig(dim=DIM))
    rows, queries = some(rng, ROWS), some(rng, HOLES)
    put_vectors(things, rows)
    things.finish_background_work()
    things.checkpoints.write_all()
    near = things.search(things.space.from_dense(queries), ix.SearchParams(limit=20, recall=1.0))
    things.delete(sorted({item_id for result in near for item_id in result.ids}))
    before = shares_found(things, queries)
    if killed:
        copied(tmp_path / "first", tmp_path / "later")
    catalog.close()
    with opened(tmp_path / ("later" if killed else "first"), POLICIES) as again:
        assert again.memory.view.state.graph is not None
        after = shares_found(again, queries)
    assert after.mean() >= before.mean() - 0.04
    assert after.mean() >= ASKED


def shares_found(stored: ix.StoredCollection, queries: NDArray[np.float32]) -> NDArray[np.float64]:
    batch, params = stored.space.from_dense(queries), ix.SearchParams(limit=10)
    found, true = (
        [result.scores for result in stored.search(batch, params_)]
        for params_ in (replace(params, recall=ASKED), replace(params, recall=1.0))
    )
    return np.array(
        [mathematics.recall_by_score(own, best) for own, best in zip(found, true, strict=True)]
    )
