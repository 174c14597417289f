"""A collection of a few items to which comparison backends are attached."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from gcws_search.index.collection.describe import BackendDescription
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.parameters import (
    FourierParams,
    NystroemParams,
    Rerank,
    SearchParams,
)
from tests.support.index.items import Make, batch, put
from tests.support.index.saved_graph import copied, opened

NRFF = FourierParams(kind="nrff", features=16)
LANDMARKS = NystroemParams(kind="gmm_nystroem", landmarks=4)
VALUES = {f"i{n}": float(n + 1) for n in range(12)}


def filled(make: Make) -> StoredCollection:
    made = make()
    put(made, VALUES)
    return made


def backends(stored: StoredCollection) -> dict[str, BackendDescription]:
    return {backend.name: backend for backend in stored.describe().backends}


def found(
    stored: StoredCollection, backend: str, rerank: Rerank = "gmm"
) -> list[tuple[str, float]]:
    query = batch(stored, ["query"], [5.0]).vectors
    params = SearchParams(limit=50, candidates=50, rerank=rerank)
    [result] = stored.search(query, params, backend=backend)
    return [*zip(result.ids, result.scores, strict=True)]


def assert_as_if_made_now(stored: StoredCollection) -> None:
    """Fail unless attached backends, with scores of their own, find what new ones find."""
    for name, indexed in stored.memory.view.attached.items():
        made = stored.attach(indexed.params, f"{name}_now").name
        expected = pytest.approx(dict(found(stored, made, "none")))
        assert dict(found(stored, name, "none")) == expected, name


def opened_copy(directory: Path) -> AbstractContextManager[StoredCollection]:
    """Open a copy of the files: what another process would find after a kill."""
    return opened(copied(directory, directory / "copy"))
