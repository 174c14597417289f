"""A collection frees its arrays with its last user, and waits for no collector."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from gcws_search import index as ix
from tests.support.index.attached_backends import NRFF, found
from tests.support.index.items import DIM, batch, put


@pytest.fixture(autouse=True)
def _uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def search(things: ix.StoredCollection) -> None:
    assert found(things, "gcws")


def join(things: ix.StoredCollection) -> None:
    assert [*things.join(ix.JoinParams(min_score=0.1))(batch(things, ["query"], [5.0]).vectors)]


def attach(things: ix.StoredCollection) -> None:
    assert found(things, things.attach(NRFF).name)


@pytest.mark.parametrize("use", [search, join, attach])
def test_a_dropped_collection_is_free(
    catalog: ix.Catalog, use: Callable[[ix.StoredCollection], None]
) -> None:
    things, _ = catalog.create("things", ix.CollectionConfig(dim=DIM))
    put(things, {f"i{n}": float(n) for n in range(1, 50)})
    use(things)
    gone = threading.Event()
    weakref.finalize(things.memory, gone.set)
    catalog.drop("things")
    del things
    assert gone.wait(60)  # a thread in the background may be the last user
