"""Compaction beside those who change a collection: nothing they do is lost, or comes back."""

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gcws_search.index.backends.gcws import GcwsState
from gcws_search.index.catalog.collection import StoredCollection
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.optimize import optimize
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
from tests.support.index.policies import DEAR_SCANS, graphs_from

DIM, COUNT = 16, 400
BACKGROUND = replace(
    graphs_from(64),
    compaction=CompactionPolicy(min_dead=8, max_waited=0, max_dead_share=math.inf),
    delta=DeltaPolicy(max_rows=40),
    probe=DEAR_SCANS,
)
"""No change waits for a compaction, and graphs are small."""
EXACT, APART = SearchParams(limit=5, recall=1), SearchParams(limit=5)
"""Scans find all; by tables or a graph an item is found that is equal to the query."""


class Shelf:
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
        raw = self.stored.space.from_items([form_of(self.stored, row) for row in rows])
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

    def check(self) -> None:
        """Compare all that a reader may ask for."""
        view = self.memory.view
        assert view.count == int(view.alive.sum()) == len(self.rows) == self.stored.items.count()
        assert held(self.stored).keys() == self.rows.keys()
        assert (np.diff(view.sequences) > 0).all()
        if isinstance(view.state, GcwsState):
            assert len(view.state.tables) + view.state.delta.count == len(view)
        for name, params in ((None, EXACT), *((name, APART) for name in (None, *view.attached))):
            for item_id, row in self.rows.items():
                asked = self.stored.space.from_items([form_of(self.stored, row)])
                [found] = self.stored.search(asked, params, backend=name)
                assert (found.hits[0].id, found.hits[0].score) == (item_id, 1)
        for n in range(COUNT + 60):
            item_id = f"i{n}"
            [payload] = self.memory.payloads_of([item_id])
            assert payload == (b'{"n":%d}' % n if item_id in self.rows else None)
            assert len(self.memory.rows_of([item_id])) == (item_id in self.rows)


def form_of(stored: StoredCollection, row: Floats) -> Floats | SparseVector:
    return row if stored.config.form == "dense" else SparseVector(np.arange(DIM), row)


def adopted(adopt: Callable[[], bool]) -> bool:
    """Publish at once, as where nobody else makes changes."""
    return adopt()


def make_overdue(shelf: Shelf) -> None:
    """Fill a shelf, its graph built, until more rows are dead than alive."""
    shelf.put(*range(COUNT))
    while shelf.memory.overdue(shelf.memory.view):
        assert optimize(shelf.memory, adopted, threading.Event())
    shelf.delete(*range(1, COUNT, 3))
    while not shelf.memory.compaction_is_overdue:
        shelf.put(*range(0, COUNT, 2))


@pytest.fixture(params=["exact", "gcws", "sparse", "attached", "mapped"])
def shelf(
    request: pytest.FixtureRequest, tmp_path: Path, rng: np.random.Generator
) -> Iterator[Shelf]:
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
    yield Shelf(stored, rng)
    catalog.close()


@pytest.mark.parametrize("changes", [0, 1, 30])
def test_changes_that_are_made_meanwhile_are_taken_in(shelf: Shelf, changes: int) -> None:
    make_overdue(shelf)

    def after_changes(adopt: Callable[[], bool]) -> bool:
        shelf.change_at_random(changes)
        return adopt()

    assert optimize(shelf.memory, after_changes, threading.Event()) is True
    view = shelf.memory.view
    assert len(view) - view.count <= 8 * changes
    assert not shelf.memory.compaction_is_overdue
    shelf.check()
    shelf.change_at_random(20)  # nor is anything wrong with those that come after
    shelf.check()


def test_it_catches_up_again_and_again(shelf: Shelf) -> None:
    make_overdue(shelf)
    compaction = shelf.memory.begin_compaction()
    for _ in range(5):
        shelf.change_at_random(10)
        now = shelf.memory.view
        assert compaction.can_follow(now)
        compaction.catch_up(now)
        assert not compaction.catch_up(now)
    assert shelf.memory.take_over(compaction)
    shelf.check()


def test_readers_of_before_see_what_they_saw(shelf: Shelf) -> None:
    make_overdue(shelf)
    before = shelf.memory.view
    alive, sequences = before.alive.copy(), before.sequences.copy()
    dense = before.vectors[np.arange(len(before))].norms.copy()
    assert optimize(shelf.memory, adopted, threading.Event())
    shelf.change_at_random(10)
    np.testing.assert_array_equal(before.alive, alive)
    np.testing.assert_array_equal(before.sequences, sequences)
    np.testing.assert_array_equal(before.vectors.norms, dense)


def test_one_that_was_overtaken_changes_nothing(shelf: Shelf) -> None:
    make_overdue(shelf)
    compaction = shelf.memory.begin_compaction()
    shelf.memory.compact()
    assert not shelf.memory.take_over(compaction)
    shelf.check()
    make_overdue(shelf)
    compaction = shelf.memory.begin_compaction()
    shelf.memory.attach(replace(shelf.memory.indexed(shelf.memory.view), name="other"))
    assert not shelf.memory.take_over(compaction)
    shelf.memory.detach("other")
    assert shelf.memory.take_over(compaction)
    shelf.check()


def test_one_that_is_stopped_changes_nothing(shelf: Shelf) -> None:
    make_overdue(shelf)
    stopped, before = threading.Event(), shelf.memory.view
    stopped.set()
    assert optimize(shelf.memory, adopted, stopped) is None
    assert shelf.memory.view is before
    shelf.check()


def test_the_background_does_it_and_a_restart_finds_all(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    catalog = opened_catalog(tmp_path, BACKGROUND)
    shelf = Shelf(catalog.create("things", CollectionConfig(dim=DIM))[0], rng)
    shelf.put(*range(COUNT))
    for _ in range(12):
        shelf.change_at_random(20)
        shelf.put(*rng.choice(COUNT, 40, replace=False).tolist())
    shelf.stored.finish_background_work()
    view = shelf.memory.view
    assert len(view) - view.count <= max(view.count, 8)
    shelf.check()
    assert reopened(shelf.stored, tmp_path).keys() == shelf.rows.keys()
    catalog.close()


def test_a_change_waits_for_it_only_where_it_is_short_or_too_late() -> None:
    policy = CompactionPolicy(min_dead=10, max_waited=100, max_dead_share=3.0)
    kinds = {(False, False): "none", (True, False): "change", (False, True): "background"}

    def by_whom(dead: int, live: int) -> str:
        return kinds[policy.is_due(dead, live), policy.is_due_in_background(dead, live)]

    assert [by_whom(dead, 5) for dead in (10, 11)] == ["none", "change"]
    assert [by_whom(dead, 100) for dead in (100, 101)] == ["none", "change"]
    assert [by_whom(dead, 101) for dead in (101, 102, 303, 304)] == [
        "none", "background", "background", "change",
    ]  # fmt: skip
