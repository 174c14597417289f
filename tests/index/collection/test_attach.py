"""What a backend that is attached does before it is there, and before rows are added to it."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from gcws_search.index.backends import FeatureBackend, RandomBinningBackend, make_backend
from gcws_search.index.catalog.collection import StoredCollection
from gcws_search.index.collection import memory_collection
from gcws_search.index.collection.attached_backends import Building
from gcws_search.index.collection.backend_index import BackendIndex
from gcws_search.index.comparison.fourier import FourierMap
from gcws_search.index.comparison.nystroem import NystroemMap
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    FourierParams,
    NystroemParams,
    RandomBinningParams,
    Rerank,
    SearchParams,
)
from gcws_search.index.vectors.space import VectorSpace
from tests.support.index.attached_backends import (
    LANDMARKS,
    NRFF,
    VALUES,
    assert_all_agree,
    filled,
    found,
)
from tests.support.index.items import Make, put

BOXES = RandomBinningParams(scale=4.0, bands=4)


@pytest.fixture
def stored(make: Make) -> StoredCollection:
    return filled(make)


def test_progress_is_that_of_features_by_landmarks_too(
    stored: StoredCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    report = Building.report

    def heard(building: Building, first: float, last: float, share: float) -> None:
        report(building, first, last, share)
        seen.append(building.progress)

    monkeypatch.setattr(FeatureBackend, "chunk_rows", 4)
    monkeypatch.setattr(Building, "report", heard)
    stored.attach(LANDMARKS)  # of 12 items: no features at first, then those of 4 at a time
    assert seen == pytest.approx([0.5, 0.5 + 1 / 6, 0.5 + 2 / 6, 1.0])
    seen.clear()
    stored.attach(NRFF)
    assert seen == [1.0]


@pytest.mark.parametrize(
    ("params", "owner"),
    [(BOXES, RandomBinningBackend), (NRFF, FeatureBackend)],
    ids=["bins", "nrff"],
)
def test_a_backend_is_tried_out_before_anybody_can_ask_it(
    stored: StoredCollection,
    monkeypatch: pytest.MonkeyPatch,
    params: BackendParams,
    owner: type[RandomBinningBackend | FeatureBackend],
) -> None:
    search = owner.search
    asked: list[Rerank] = []

    def watched(self: object, *given: object) -> object:
        asked.extend(each.rerank for each in given if isinstance(each, SearchParams))
        assert "boxes" not in stored.memory.view.attached
        return search(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(owner, "search", watched)
    stored.attach(params, "boxes")
    assert asked == ["own", "none"]  # what has not been compiled is compiled now


@pytest.mark.parametrize(
    ("params", "owner", "name"),
    [
        (BOXES, RandomBinningBackend, "encode"),
        (NRFF, FourierMap, "fill"),
        (LANDMARKS, NystroemMap, "fill"),
    ],
    ids=["bins", "Fourier features", "features by landmarks"],
)
def test_codes_for_attached_backends_are_made_before_it_is_a_writers_turn(
    stored: StoredCollection,
    monkeypatch: pytest.MonkeyPatch,
    params: BackendParams,
    owner: type,
    name: str,
) -> None:
    stored.attach(params, "boxes")
    put_in_memory = memory_collection.MemoryCollection.put

    def watched(self: memory_collection.MemoryCollection, *given: object, **named: object) -> None:
        with monkeypatch.context() as patched:
            patched.delattr(owner, name)
            put_in_memory(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(memory_collection.MemoryCollection, "put", watched)
    put(stored, {"new": 5.0, "other": 6.0})
    put(stored, {"new": 7.0})
    assert len(found(stored, "boxes")) == len(VALUES) + 2
    monkeypatch.undo()
    assert_all_agree(stored)


@pytest.mark.parametrize("params", [BOXES, NRFF, LANDMARKS], ids=lambda params: params.kind)
def test_codes_made_for_a_backend_of_the_same_name_are_left_aside(
    rng: np.random.Generator, params: RandomBinningParams | FourierParams | NystroemParams
) -> None:
    config = CollectionConfig(dim=6)
    space = VectorSpace.of(config)
    rows = space.prepare(space.from_dense(rng.standard_normal((40, 6)).astype(np.float32)))

    def indexed(seed: int) -> BackendIndex:
        ours = replace(params, seed=seed)
        backend = make_backend(replace(config, backend=ours), threads=1)
        first = BackendIndex("boxes", ours, backend, backend.empty()).extend(rows[:30], rows[:30])
        improved = first.optimize(rows[:30], np.ones(30, np.uint8), threading.Event())
        assert improved is not None
        return improved

    ours, theirs = indexed(1), indexed(2)
    asked, limit = rows[35:36], SearchParams(limit=5, candidates=5, rerank="none")
    view = RowView(rows, np.ones(40, np.uint8), 40)
    right, *found = (
        ours.backend.search(ours.extend(rows, rows[30:], codes).state, view, asked, limit).hits(0)
        for codes in (None, ours.encode(rows[30:]), theirs.encode(rows[30:]))
    )
    for rows_and_scores in found:
        np.testing.assert_array_equal(rows_and_scores, right)
