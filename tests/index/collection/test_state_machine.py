"""Items and comparison backends come and go, in any order, against a dict and brute force.

Coordinates are few binary fractions, so that sums are exact in float32 and in float64: scores must
equal the reference to the bit, and ties are many.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gcws_search.index import Policies
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch, QueryResult
from gcws_search.index.collection.writer import WriteResult
from gcws_search.index.contracts.batches import RawBatch, SparseVector
from gcws_search.index.contracts.errors import (
    BackendNotFound,
    InvalidParameter,
    ItemExists,
    ItemNotFound,
)
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    FourierParams,
    GcwsParams,
    NystroemParams,
    SearchParams,
    Transform,
)
from gcws_search.index.payload import parse_filter
from tests.model.shelf import DIM, Passes, Payload, Shelf, conditions, sparse
from tests.support.data.payloads import decode_payload, encode_payload
from tests.support.index.policies import compacting_from

Vector = tuple[float, ...]
Item = tuple[str, Vector, Payload]
Ranked = list[tuple[str, float]]

IDS_POSSIBLE = [f"{letter}{digit}" for letter in "abä" for digit in range(5)]
IDS = st.sampled_from(IDS_POSSIBLE)
LANDMARKS = 4
METHODS: dict[str, BackendParams] = {
    "exact": ExactParams(),
    "gcws": GcwsParams(bands=2),
    "nrff": FourierParams(kind="nrff", features=16),
    "gmm_nystroem": NystroemParams(kind="gmm_nystroem", landmarks=LANDMARKS),
}
VALUES = [0.0, 0.0, 0.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0]
VECTORS = st.tuples(*[st.sampled_from(VALUES)] * DIM).filter(any)
PAYLOADS = st.none() | st.fixed_dictionaries(
    {}, optional={"n": st.integers(0, 3), "tags": st.lists(st.sampled_from("xyz"), max_size=2)}
)
ITEMS = st.lists(st.tuples(IDS, VECTORS, PAYLOADS), min_size=1, max_size=6)
FILTERS = st.builds(conditions, st.integers(0, 3), st.sampled_from("xyz")).flatmap(st.sampled_from)


class CollectionMachine(RuleBasedStateMachine):
    """One collection beside a shelf of what it must hold."""

    config: ClassVar[CollectionConfig]
    policies: ClassVar[Policies]

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.shelf = Shelf(self.config.dim, self.config.transform.power)
        self.next_id = 0
        self.catalog = self.opened()
        self.stored = self.catalog.create("things", self.config)[0]

    def opened(self) -> Catalog:
        catalog = Catalog.open(
            Path(self._directory.name), durability="normal", threads=1, policies=self.policies
        )
        catalog.load()
        return catalog

    def teardown(self) -> None:
        self.catalog.close()
        self._directory.cleanup()

    # What the collection is told, and what it shows

    def raw(self, *vectors: Vector) -> RawBatch:
        return self.stored.space.from_items([self.sent(vector) for vector in vectors])

    def sent(self, vector: Vector) -> list[float] | SparseVector:
        """Send every other vector sparse, and unsorted, where both forms are taken."""
        if self.config.dim == DIM and vector.count(0.0) % 2:
            return list(vector)
        shown = sparse(vector)
        return SparseVector(shown["indices"][::-1], shown["values"][::-1])

    def ranking(self, query: Vector, limit: int, **more: Any) -> Ranked:  # noqa: ANN401
        return self.shelf.ranking(self.shelf.slots(query), limit=limit, **more)

    def check_hits(self, result: QueryResult, expected: Ranked) -> None:
        assert [*zip(result.ids, result.scores, strict=True)] == expected
        found = zip(result.ids, result.payloads or (), self.stored.vectors(result), strict=True)
        for item_id, held, vector in found:
            kept = self.shelf.items[item_id]
            assert decode_payload(held) == kept.payload
            assert vector == self.shelf.shown(kept.vector)

    # Writing

    @rule(items=ITEMS)
    def upsert(self, items: list[Item]) -> None:
        result = self.stored.put(self.batch(items))
        last = {item_id: place for place, (item_id, _, _) in enumerate(items)}
        updated = len(last.keys() & self.shelf.items.keys())
        assert result == WriteResult(len(last) - updated, updated)
        for place in sorted(last.values()):
            self.shelf.put(*items[place])

    @rule(items=ITEMS)
    def insert(self, items: list[Item]) -> None:
        ids = [item_id for item_id, _, _ in items]
        taken = [
            place
            for place, item_id in enumerate(ids)
            if item_id in self.shelf.items or item_id in ids[:place]
        ]
        if not taken:
            assert self.stored.put(self.batch(items), "insert") == WriteResult(len(items), 0)
            for item in items:
                self.shelf.put(*item)
            return
        with pytest.raises(ItemExists) as caught:
            self.stored.put(self.batch(items), "insert")
        assert caught.value.row in taken
        assert caught.value.item_id == ids[caught.value.row]

    @rule(items=ITEMS)
    def append(self, items: list[Item]) -> None:
        """Items without ids get numbers, and no number twice."""
        batch = replace(self.batch(items), ids=[None] * len(items))
        result = self.stored.put(batch)
        assert result.ids is not None
        first, last = map(int, result.ids)
        assert result == WriteResult(len(items), 0, (str(first), str(last)))
        assert self.next_id <= first == last + 1 - len(items)
        self.next_id = last + 1
        for number, (_, vector, payload) in enumerate(items, first):
            assert str(number) not in self.shelf.items
            self.shelf.put(str(number), vector, payload)

    def batch(self, items: list[Item]) -> ItemBatch:
        ids, vectors, payloads = zip(*items, strict=True)
        return ItemBatch(list(ids), self.raw(*vectors), [encode_payload(each) for each in payloads])

    @rule(ids=st.lists(IDS, max_size=8))
    def delete(self, ids: list[str]) -> None:
        assert self.stored.delete(ids) == self.shelf.remove(ids)

    @rule(where=FILTERS)
    def delete_where(self, where: tuple[dict[str, Any], Passes]) -> None:
        document, passes = where
        gone = [item_id for item_id, kept in self.shelf.items.items() if passes(kept.payload)]
        assert self.stored.delete_where(parse_filter(document)) == self.shelf.remove(gone)

    # Reading

    @rule(
        queries=st.lists(VECTORS, min_size=1, max_size=3),
        limit=st.integers(1, 20),
        where=st.none() | FILTERS,
        min_score=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    )
    def query(
        self,
        queries: list[Vector],
        limit: int,
        where: tuple[dict[str, Any], Passes] | None,
        min_score: float,
    ) -> None:
        document, passes = where or ({}, lambda _: True)
        results = self.stored.search(
            self.raw(*queries),
            SearchParams(limit=limit, recall=1, min_score=min_score),
            where=parse_filter(document) if where else None,
        )
        assert len(results) == len(queries)
        for query, result in zip(queries, results, strict=True):
            expected = self.ranking(query, limit, passes=passes, min_score=min_score)
            self.check_hits(result, expected)

    @rule(item_id=IDS, limit=st.integers(1, 5))
    def query_around(self, item_id: str, limit: int) -> None:
        params = SearchParams(limit=limit, recall=1)
        if item_id not in self.shelf.items:
            with pytest.raises(ItemNotFound):
                self.stored.search_around(item_id, params)
            return
        result = self.stored.search_around(item_id, params)[0]
        query = self.shelf.items[item_id].vector
        self.check_hits(result, self.ranking(query, limit, without=item_id))

    @rule(query=VECTORS, recall=st.sampled_from([0.5, 0.9, 0.99]))
    def query_for_some(self, query: Vector, recall: float) -> None:
        [result] = self.stored.search(self.raw(query), SearchParams(limit=5, recall=recall))
        everything = self.shelf.scores(self.shelf.slots(query))
        shown = [*zip(result.ids, result.scores, strict=True)]
        assert all(everything[item_id] == score for item_id, score in shown)
        ranked = [(-score, item_id) for item_id, score in shown]
        assert ranked == sorted(set(ranked))

    @rule(item_id=IDS)
    def get(self, item_id: str) -> None:
        if item_id not in self.shelf.items:
            with pytest.raises(ItemNotFound):
                self.stored.get(item_id)
            return
        item = self.stored.get(item_id)
        kept = self.shelf.items[item_id]
        assert (item.id, item.vector) == (item_id, self.shelf.shown(kept.vector))
        assert decode_payload(item.payload) == kept.payload

    @rule(where=st.none() | FILTERS)
    def count(self, where: tuple[dict[str, Any], Passes] | None) -> None:
        document, passes = where or ({}, lambda _: True)
        found = self.stored.count(parse_filter(document) if where else None)
        assert found == sum(passes(kept.payload) for kept in self.shelf.items.values())

    @rule(
        limit=st.integers(1, 7),
        with_vector=st.booleans(),
        where=st.none() | FILTERS,
        ids=st.none() | st.lists(IDS),
    )
    def page_through(
        self,
        limit: int,
        with_vector: bool,
        where: tuple[dict[str, Any], Passes] | None,
        ids: list[str] | None,
    ) -> None:
        document, passes = where or ({}, lambda _: True)
        asked = parse_filter(document) if where else None
        seen, cursor = [], None
        while True:
            page = self.stored.page(
                limit=limit, cursor=cursor, with_vector=with_vector, where=asked, ids=ids
            )
            assert len(page.items) == limit or page.next_cursor is None
            seen += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        assert [item.id for item in seen] == [
            item_id
            for item_id, kept in self.shelf.items.items()
            if passes(kept.payload) and (ids is None or item_id in ids)
        ]
        for item in seen:
            kept = self.shelf.items[item.id]
            assert decode_payload(item.payload) == kept.payload
            assert item.vector == (self.shelf.shown(kept.vector) if with_vector else None)

    @rule(min_score=st.sampled_from([0.1, 0.5, 1.0]), limit=st.none() | st.integers(1, 5))
    def pairs(self, min_score: float, limit: int | None) -> None:
        expected = self.shelf.pairs(min_score)[:limit]
        assert self.stored.pairs(min_score=min_score, recall=1, limit=limit) == expected

    # Comparison backends

    @rule(kind=st.sampled_from(["exact", "gcws", "nrff", "gmm_nystroem"]))
    def attach(self, kind: str) -> None:
        if kind == "gmm_nystroem" and len(self.shelf.items) < LANDMARKS:
            with pytest.raises(InvalidParameter):
                self.stored.attach(METHODS[kind])
            return
        self.shelf.attached.append(self.stored.attach(METHODS[kind]).name)

    @precondition(lambda self: self.shelf.attached)
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.shelf.attached))
        self.stored.detach(name)
        self.shelf.attached.remove(name)
        with pytest.raises(BackendNotFound):
            self.stored.search_around("a0", SearchParams(), backend=name)[0]

    @precondition(lambda self: self.shelf.attached)
    @rule(query=VECTORS, limit=st.integers(1, 5), min_score=st.sampled_from([0.0, 0.5]))
    def query_attached(self, query: Vector, limit: int, min_score: float) -> None:
        """With all items as candidates nothing is missed, whatever is estimated."""
        for name in self.shelf.attached:
            recall = 1.0 if name.startswith("gcws") else 0.9
            params = SearchParams(
                limit=limit, recall=recall, min_score=min_score, candidates=len(IDS_POSSIBLE)
            )
            [result] = self.stored.search(self.raw(query), params, backend=name)
            self.check_hits(result, self.ranking(query, limit, min_score=min_score))

    # Restarting

    @precondition(lambda self: self.shelf.items)
    @rule(queries=st.lists(VECTORS, min_size=1, max_size=3))
    def restart(self, queries: list[Vector]) -> None:
        before = self.answers(queries)
        self.catalog.close()
        self.catalog = self.opened()
        self.stored = self.catalog.get("things")
        assert self.stored.config == self.config
        assert self.answers(queries) == before
        shown = [backend.name for backend in self.stored.describe().backends]
        assert shown == [self.config.backend.kind, *self.shelf.attached]

    @initialize()
    def restart_empty(self) -> None:
        self.catalog.close()
        self.catalog = self.opened()
        self.stored = self.catalog.get("things")

    def answers(self, queries: list[Vector]) -> list[object]:
        results = self.stored.search(self.raw(*queries), SearchParams(limit=4))
        return [
            [*zip(result.ids, result.scores, result.payloads or (), strict=True)]
            for result in results
        ]

    @invariant()
    def count_is_exact(self) -> None:
        assert len(self.stored) == len(self.shelf.items)
        assert self.catalog.list()[0].items == len(self.shelf.items)


CONFIGS = {
    "dense tables": CollectionConfig(dim=DIM, backend=GcwsParams(bands=4)),
    "dense scan": CollectionConfig(dim=DIM, backend=ExactParams()),
    "dense squared": CollectionConfig(
        dim=DIM, transform=Transform(power=2.0), backend=GcwsParams(bands=4, band_width=2)
    ),
    "sparse tables": CollectionConfig(dim=None, backend=GcwsParams(bands=4, encoding="b_bit")),
    "sparse squared": CollectionConfig(
        dim=100_000, transform=Transform(power=2.0), backend=ExactParams()
    ),
}


@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_collection_is_always_what_a_dict_and_brute_force_say(
    name: str, in_background: bool
) -> None:
    policies = compacting_from(3, in_background=in_background)
    members = {"config": CONFIGS[name], "policies": policies}
    machine = type("Machine", (CollectionMachine,), members)
    run_state_machine_as_test(machine, settings=settings(max_examples=15, stateful_step_count=25))
