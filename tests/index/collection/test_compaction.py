"""Compaction beside those who change a collection: nothing they do is lost, or comes back."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gcws_search.index.backends.gcws import GcwsState
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.optimizer import optimize
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.batches import SparseVector
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    ExactParams,
    GcwsParams,
    SearchParams,
)
from gcws_search.index.contracts.policies import CompactionPolicy, DeltaPolicy
from tests.support.data.generated import Floats
from tests.support.index.attached_backends import NRFF
from tests.support.index.items import held, opened_catalog, reopened
from tests.support.index.policies import DEAR_SCANS, compacting_from, graphs_from

DIM, COUNT = 16, 400
BACKGROUND = replace(
    graphs_from(64),
    compaction=compacting_from(8, in_background=True).compaction,
    delta=DeltaPolicy(max_rows=40),
    probe=DEAR_SCANS,
)
"""No change waits for a compaction, and graphs are small."""
EXACT, DEFAULT_RECALL = SearchParams(limit=5, recall=1), SearchParams(limit=5)
"""Scans find all; by tables or a graph an item is found that is equal to the query."""


class ModelledCollection:
    """A collection beside a dictionary of what it should hold."""

    def __init__(self, stored: StoredCollection, rng: np.random.Generator) -> None:
        self.stored = stored
        self.memory = stored.memory
        self.rng = rng
        self.rows: dict[str, Floats] = {}

    def put(self, *numbers: int) -> None:
        rows = self.rng.standard_normal((len(numbers), DIM)).astype(np.float32)
        rows[:, 0] = 3.0
        ids = [f"i{n}" for n in numbers]
        raw = self.stored.space.from_items([vector_of(self.stored, row) for row in rows])
        self.stored.put(ItemBatch(ids, raw, [b'{"n":%d}' % n for n in numbers]))
        self.rows |= dict(zip(ids, rows, strict=True))

    def delete(self, *numbers: int) -> None:
        self.stored.delete([f"i{n}" for n in numbers])
        for n in numbers:
            self.rows.pop(f"i{n}", None)

    def change_at_random(self, changes: int) -> None:
        """Put, replace and delete some items, old and new ones."""
        for _ in range(changes):
            numbers = self.rng.choice(COUNT + 60, self.rng.integers(1, 9), replace=False).tolist()
            (self.put, self.delete)[int(self.rng.integers(2))](*numbers)

    def expected(self) -> dict[str, tuple[object, bytes | None]]:
        """Return each item's vector and payload, as `held` does."""
        names, rows = list(self.rows), list(self.rows.values())
        raw = self.stored.space.from_items([vector_of(self.stored, row) for row in rows])
        vectors = [self.stored.space.to_json(raw, place) for place in range(len(rows))]
        payloads = [b'{"n":%d}' % int(name[1:]) for name in names]
        return dict(zip(names, zip(vectors, payloads, strict=True), strict=True))

    def check(self) -> None:
        """Compare all that a reader may ask for."""
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
            assert payload == (b'{"n":%d}' % n if item_id in self.rows else None)
            assert len(self.memory.rows_of([item_id])) == (item_id in self.rows)


def vector_of(stored: StoredCollection, row: Floats) -> Floats | SparseVector:
    return row if stored.config.form == "dense" else SparseVector(np.arange(DIM), row)


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


@pytest.fixture(params=["exact", "gcws", "sparse", "attached", "mapped"])
def modelled(
    request: pytest.FixtureRequest, tmp_path: Path, rng: np.random.Generator
) -> Iterator[ModelledCollection]:
    config = CollectionConfig(
        dim=None if request.param == "sparse" else DIM,
        backend=ExactParams() if request.param == "exact" else GcwsParams(bands=8),
        storage="mapped" if request.param == "mapped" else "memory",
    )
    catalog = opened_catalog(tmp_path, BACKGROUND)
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
        raw = before.raw(space, np.arange(len(before)))
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
    modelled = ModelledCollection(catalog.create("things", CollectionConfig(dim=DIM))[0], rng)
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
    policy = CompactionPolicy(min_dead=10, max_foreground_rows=100, max_dead_ratio=3.0)
    kinds = {(False, False): "none", (True, False): "change", (False, True): "background"}

    def by_whom(dead: int, live: int) -> str:
        return kinds[policy.is_due(dead, live), policy.is_due_in_background(dead, live)]

    assert [by_whom(dead, 5) for dead in (10, 11)] == ["none", "change"]
    assert [by_whom(dead, 100) for dead in (100, 101)] == ["none", "change"]
    assert [by_whom(dead, 101) for dead in (101, 102, 303, 304)] == [
        "none", "background", "background", "change",
    ]  # fmt: skip
