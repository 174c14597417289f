"""What a backend that is attached does before it is there, and before rows are added to it."""

import pytest

from gcws_search.index.backends import FeatureBackend, RandomBinningBackend
from gcws_search.index.collection.attached_backends import Building
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.parameters import (
    BackendParams,
    RandomBinningParams,
    Rerank,
    SearchParams,
)
from tests.support.index.attached_backends import (
    LANDMARKS,
    NRFF,
    filled,
)
from tests.support.index.items import Make

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
