"""A directory of collections, and one collection in it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from gcws_search.index import POLICIES, Policies
from gcws_search.index.collection import memory_collection as collection_module
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    Transform,
)
from tests.support.index.fake_backend import make_linked
from tests.support.index.items import DIM, SQUARED, Make
from tests.support.index.saved_graph import Restart, change_file, opened


@pytest.fixture
def policies() -> Policies:
    """Those of the catalog; a module or a test may have others."""
    return POLICIES


@pytest.fixture
def catalog(tmp_path: Path, policies: Policies) -> Iterator[Catalog]:
    opened = Catalog.open(tmp_path, threads=1, policies=policies)
    opened.load()
    yield opened
    opened.close()


@pytest.fixture
def restart(catalog: Catalog, tmp_path: Path) -> Restart:
    def restart(
        sql: str = "", *parameters: object, policies: Policies = POLICIES
    ) -> AbstractContextManager[StoredCollection]:
        catalog.close()
        if sql:
            change_file(tmp_path, sql, *parameters)
        return opened(tmp_path, policies)

    return restart


@pytest.fixture
def make(catalog: Catalog) -> Make:
    def make(
        *, backend: BackendParams | None = None, transform: Transform | None = None
    ) -> StoredCollection:
        config = CollectionConfig(
            dim=DIM, backend=backend or ExactParams(), transform=transform or Transform()
        )
        return catalog.create("things", config)[0]

    return make


@pytest.fixture(params=[Transform(), SQUARED], ids=["as sent", "squared"])
def stored(request: pytest.FixtureRequest, make: Make) -> StoredCollection:
    return make(transform=request.param)


@pytest.fixture
def linking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give collections an index that keeps links."""
    monkeypatch.setattr(collection_module, "make_backend", make_linked)


@pytest.fixture
def linked(linking: None, make: Make) -> StoredCollection:
    return make()
