"""Items and comparison backends come and go, in any order, against a dict and brute force.

Coordinates are few binary fractions, so that sums are exact in float32 and in float64: scores must
equal the reference to the bit, and ties are many.
"""

import tempfile
from collections.abc import Callable
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
from tests.support.data.payloads import decode_payload, encode_payload
from tests.support.index.policies import compacting_from
from tests.support.reference.mathematics import gmm, transform

DIM = 5
Entries = dict[int, float]
Payload = dict[str, Any] | None
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
VECTORS = st.dictionaries(
    st.integers(0, DIM - 1), st.sampled_from([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0]), min_size=1
)
PAYLOADS = st.none() | st.fixed_dictionaries(
    {}, optional={"n": st.integers(0, 3), "tags": st.lists(st.sampled_from("xyz"), max_size=2)}
)
ITEMS = st.lists(st.tuples(IDS, VECTORS, PAYLOADS), min_size=1, max_size=6)
NUMBERS = st.integers(0, 3)

Test = Callable[[Payload], bool]


def at_least(n: int) -> tuple[dict[str, Any], Test]:
    return (
        {"must": [{"key": "n", "range": {"gte": n}}]},
        lambda payload: payload is not None and payload.get("n", -1) >= n,
    )


def tagged_or(tag: str, n: int) -> tuple[dict[str, Any], Test]:
    tagged, number = {"key": "tags", "match": {"value": tag}}, {"key": "n", "match": {"value": n}}
    return (
        {"should": [tagged, number]},
        lambda payload: (
            payload is not None and (tag in payload.get("tags", []) or payload.get("n") == n)
        ),
    )


def lacking(tag: str) -> tuple[dict[str, Any], Test]:
    return (
        {"must_not": [{"key": "tags", "match": {"any": [tag, 7]}}]},
        lambda payload: payload is None or tag not in payload.get("tags", []),
    )


FILTERS = st.one_of(
    st.builds(at_least, NUMBERS),
    st.builds(tagged_or, st.sampled_from("xyz"), NUMBERS),
    st.builds(lacking, st.sampled_from("xyz")),
)


class CollectionMachine(RuleBasedStateMachine):
    """One collection beside a dict of what it must hold, in the order of putting."""

    config: ClassVar[CollectionConfig]
    policies: ClassVar[Policies]

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.model: dict[str, tuple[Entries, Payload]] = {}
        self.attached: list[str] = []
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

    def raw(self, *vectors: Entries) -> RawBatch:
        return self.stored.space.from_items([self.sent(vector) for vector in vectors])

    def sent(self, vector: Entries) -> list[float] | SparseVector:
        """Send every other vector sparse where both forms are taken."""
        if self.config.dim != DIM or len(vector) % 2:
            indices = sorted(vector, reverse=True)
            return SparseVector(indices, [vector[i] for i in indices])
        return [vector.get(i, 0.0) for i in range(DIM)]

    def shown(self, vector: Entries) -> object:
        if self.stored.space.form == "dense":
            return [vector.get(i, 0.0) for i in range(DIM)]
        return {"indices": sorted(vector), "values": [vector[i] for i in sorted(vector)]}

    def transformed(self, vector: Entries) -> dict[int, float]:
        return transform(vector, power=self.config.transform.power)

    def ranking(
        self,
        query: Entries,
        *,
        limit: int,
        passes: Test = lambda _: True,
        min_score: float = 0.0,
        without: str | None = None,
    ) -> Ranked:
        scored = [
            (-gmm(self.transformed(query), self.transformed(vector)), item_id)
            for item_id, (vector, payload) in self.model.items()
            if passes(payload) and item_id != without
        ]
        kept = sorted(entry for entry in scored if -entry[0] >= min_score)
        return [(item_id, -score) for score, item_id in kept[:limit]]

    def check_hits(self, result: QueryResult, expected: Ranked) -> None:
        assert [*zip(result.ids, result.scores, strict=True)] == expected
        found = zip(result.ids, result.payloads or (), self.stored.vectors(result), strict=True)
        for item_id, held, vector in found:
            entries, payload = self.model[item_id]
            assert decode_payload(held) == payload
            assert vector == self.shown(entries)

    # Writing

    @rule(items=ITEMS)
    def upsert(self, items: list[tuple[str, Entries, Payload]]) -> None:
        result = self.stored.put(self.batch(items))
        last = {item_id: place for place, (item_id, _, _) in enumerate(items)}
        updated = len(last.keys() & self.model.keys())
        assert result == WriteResult(len(last) - updated, updated)
        for place in sorted(last.values()):
            item_id, vector, payload = items[place]
            self.model.pop(item_id, None)
            self.model[item_id] = vector, payload

    @rule(items=ITEMS)
    def insert(self, items: list[tuple[str, Entries, Payload]]) -> None:
        ids = [item_id for item_id, _, _ in items]
        taken = [
            place
            for place, item_id in enumerate(ids)
            if item_id in self.model or item_id in ids[:place]
        ]
        if not taken:
            assert self.stored.put(self.batch(items), "insert") == WriteResult(len(items), 0)
            self.model.update({item_id: (vector, payload) for item_id, vector, payload in items})
            return
        with pytest.raises(ItemExists) as caught:
            self.stored.put(self.batch(items), "insert")
        assert caught.value.row in taken
        assert caught.value.item_id == ids[caught.value.row]

    @rule(items=ITEMS)
    def append(self, items: list[tuple[str, Entries, Payload]]) -> None:
        """Items without ids get numbers, and no number twice."""
        batch = replace(self.batch(items), ids=[None] * len(items))
        result = self.stored.put(batch)
        assert result.ids is not None
        first, last = map(int, result.ids)
        assert result == WriteResult(len(items), 0, (str(first), str(last)))
        assert self.next_id <= first == last + 1 - len(items)
        self.next_id = last + 1
        for number, (_, vector, payload) in enumerate(items, first):
            assert str(number) not in self.model
            self.model[str(number)] = vector, payload

    def batch(self, items: list[tuple[str, Entries, Payload]]) -> ItemBatch:
        ids, vectors, payloads = zip(*items, strict=True)
        return ItemBatch(list(ids), self.raw(*vectors), [encode_payload(each) for each in payloads])

    @rule(ids=st.lists(IDS, max_size=8))
    def delete(self, ids: list[str]) -> None:
        assert self.stored.delete(ids) == len(self.model.keys() & set(ids))
        for item_id in ids:
            self.model.pop(item_id, None)

    @rule(where=FILTERS)
    def delete_where(self, where: tuple[dict[str, Any], Test]) -> None:
        document, passes = where
        gone = [item_id for item_id, (_, payload) in self.model.items() if passes(payload)]
        assert self.stored.delete_where(parse_filter(document)) == len(gone)
        for item_id in gone:
            del self.model[item_id]

    # Reading

    @rule(
        queries=st.lists(VECTORS, min_size=1, max_size=3),
        limit=st.integers(1, 20),
        where=st.none() | FILTERS,
        min_score=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    )
    def query(
        self,
        queries: list[Entries],
        limit: int,
        where: tuple[dict[str, Any], Test] | None,
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
            expected = self.ranking(query, limit=limit, passes=passes, min_score=min_score)
            self.check_hits(result, expected)

    @rule(item_id=IDS, limit=st.integers(1, 5))
    def query_around(self, item_id: str, limit: int) -> None:
        params = SearchParams(limit=limit, recall=1)
        if item_id not in self.model:
            with pytest.raises(ItemNotFound):
                self.stored.search_around(item_id, params)
            return
        result = self.stored.search_around(item_id, params)[0]
        query, _ = self.model[item_id]
        self.check_hits(result, self.ranking(query, limit=limit, without=item_id))

    @rule(query=VECTORS, recall=st.sampled_from([0.5, 0.9, 0.99]))
    def query_for_some(self, query: Entries, recall: float) -> None:
        [result] = self.stored.search(self.raw(query), SearchParams(limit=5, recall=recall))
        everything = dict(self.ranking(query, limit=len(self.model)))
        shown = [*zip(result.ids, result.scores, strict=True)]
        assert all(everything[item_id] == score for item_id, score in shown)
        ranked = [(-score, item_id) for item_id, score in shown]
        assert ranked == sorted(set(ranked))

    @rule(item_id=IDS)
    def get(self, item_id: str) -> None:
        if item_id not in self.model:
            with pytest.raises(ItemNotFound):
                self.stored.get(item_id)
            return
        item = self.stored.get(item_id)
        vector, payload = self.model[item_id]
        assert (item.id, item.vector) == (item_id, self.shown(vector))
        assert decode_payload(item.payload) == payload

    @rule(where=st.none() | FILTERS)
    def count(self, where: tuple[dict[str, Any], Test] | None) -> None:
        document, passes = where or ({}, lambda _: True)
        found = self.stored.count(parse_filter(document) if where else None)
        assert found == sum(passes(payload) for _, payload in self.model.values())

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
        where: tuple[dict[str, Any], Test] | None,
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
            for item_id, (_, payload) in self.model.items()
            if passes(payload) and (ids is None or item_id in ids)
        ]
        for item in seen:
            vector, payload = self.model[item.id]
            assert decode_payload(item.payload) == payload
            assert item.vector == (self.shown(vector) if with_vector else None)

    @rule(min_score=st.sampled_from([0.1, 0.5, 1.0]), limit=st.none() | st.integers(1, 5))
    def pairs(self, min_score: float, limit: int | None) -> None:
        ids = sorted(self.model)
        scored = [
            (-gmm(self.transformed(self.model[a][0]), self.transformed(self.model[b][0])), a, b)
            for place, a in enumerate(ids)
            for b in ids[place + 1 :]
        ]
        expected = [(a, b, -s) for s, a, b in sorted(scored) if -s >= min_score][:limit]
        assert self.stored.pairs(min_score=min_score, recall=1, limit=limit) == expected

    # Comparison backends

    @rule(kind=st.sampled_from(["exact", "gcws", "nrff", "gmm_nystroem"]))
    def attach(self, kind: str) -> None:
        if kind == "gmm_nystroem" and len(self.model) < LANDMARKS:
            with pytest.raises(InvalidParameter):
                self.stored.attach(METHODS[kind])
            return
        self.attached.append(self.stored.attach(METHODS[kind]).name)

    @precondition(lambda self: self.attached)
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.attached))
        self.stored.detach(name)
        self.attached.remove(name)
        with pytest.raises(BackendNotFound):
            self.stored.search_around("a0", SearchParams(), backend=name)[0]

    @precondition(lambda self: self.attached)
    @rule(query=VECTORS, limit=st.integers(1, 5), min_score=st.sampled_from([0.0, 0.5]))
    def query_attached(self, query: Entries, limit: int, min_score: float) -> None:
        """With all items as candidates nothing is missed, whatever is estimated."""
        for name in self.attached:
            recall = 1.0 if name.startswith("gcws") else 0.9
            params = SearchParams(
                limit=limit, recall=recall, min_score=min_score, candidates=len(IDS_POSSIBLE)
            )
            [result] = self.stored.search(self.raw(query), params, backend=name)
            self.check_hits(result, self.ranking(query, limit=limit, min_score=min_score))

    # Restarting

    @precondition(lambda self: self.model)
    @rule(queries=st.lists(VECTORS, min_size=1, max_size=3))
    def restart(self, queries: list[Entries]) -> None:
        before = self.answers(queries)
        self.catalog.close()
        self.catalog = self.opened()
        self.stored = self.catalog.get("things")
        assert self.stored.config == self.config
        assert self.answers(queries) == before
        shown = [backend.name for backend in self.stored.describe().backends]
        assert shown == [self.config.backend.kind, *self.attached]

    @initialize()
    def restart_empty(self) -> None:
        self.catalog.close()
        self.catalog = self.opened()
        self.stored = self.catalog.get("things")

    def answers(self, queries: list[Entries]) -> list[object]:
        results = self.stored.search(self.raw(*queries), SearchParams(limit=4))
        return [
            [*zip(result.ids, result.scores, result.payloads or (), strict=True)]
            for result in results
        ]

    @invariant()
    def count_is_exact(self) -> None:
        assert len(self.stored) == len(self.model)
        assert self.catalog.list()[0].items == len(self.model)


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
