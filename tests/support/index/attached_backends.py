"""A collection of a few items to which comparison backends are attached."""

from contextlib import AbstractContextManager
from pathlib import Path

from gcws_search.index.collection.describe import BackendDescription
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.parameters import FourierParams, NystroemParams, SearchParams
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


def found(stored: StoredCollection, backend: str, x: float = 5.0) -> list[tuple[str, float]]:
    query = batch(stored, ["query"], [x]).vectors
    params = SearchParams(limit=50, candidates=50)
    [result] = stored.search(query, params, backend=backend)
    return [*zip(result.ids, result.scores, strict=True)]


def assert_all_agree(stored: StoredCollection) -> None:
    """Fail unless every backend, with all items as candidates, finds what a scan finds."""
    for name in backends(stored):
        assert found(stored, name) == found(stored, "exact"), name


def opened_copy(directory: Path) -> AbstractContextManager[StoredCollection]:
    """Open a copy of the files: what another process would find after a kill."""
    return opened(copied(directory, directory / "copy"))
