"""What works in the background survives every failure of the storage, and so does every item.

Each piece of work is done anew for every call that its thread asks of SQLite, and each time another
of these calls fails. Meanwhile others change the collection and search it.
"""

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from gcws_search.index import POLICIES, Policies
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.parameters import CollectionConfig, ExactParams, SearchParams
from gcws_search.index.contracts.policies import ReclaimPolicy
from gcws_search.index.contracts.saved_index import text_of
from gcws_search.index.storage.graph_parts import PART_SEQUENCES
from tests.support.faults import SQLITE_CODES, Faults, install
from tests.support.index.attached_backends import LANDMARKS
from tests.support.index.fake_backend import backend_of
from tests.support.index.items import (
    DIM,
    batch,
    held,
    holding,
    ids_of,
    opened_catalog,
    put,
)
from tests.support.index.saved_graph import copied, opened, some

MAX_CALLS: Final = 60
_FREE_PAGES: Final = slice(36, 40)
"""Where the header of a file counts its free pages."""

pytestmark = pytest.mark.parametrize("code", SQLITE_CODES)


def turns(
    faults: Faults,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    policies: Policies = POLICIES,
) -> Iterator[tuple[int, Catalog, StoredCollection]]:
    """Yield the number of a call and a new collection, until no call has this number."""
    install(faults, folder, monkeypatch)
    for turn in range(1, MAX_CALLS):
        with closing(opened_catalog(folder / str(turn), policies)) as catalog:
            yield (
                turn,
                catalog,
                catalog.create("things", CollectionConfig(dim=DIM, backend=ExactParams()))[0],
            )
        if faults.failed is None:
            assert turn > 1
            return
    raise AssertionError("it asks without an end")


def use(stored: StoredCollection) -> None:
    """Change a collection, and search it."""
    put(stored, {"used": 0.5, "gone": 0.25})
    assert stored.delete(["gone"]) == 1
    [result] = stored.search(batch(stored, ["query"], [0.5]).vectors, SearchParams(limit=1))
    assert ids_of(result) == ["used"]


@pytest.mark.usefixtures("linking")
def test_links_that_could_not_be_written_are_by_the_next_try(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(code, "checkpoint")
    values = some(2 * PART_SEQUENCES + 1)
    for turn, _, stored in turns(faults, tmp_path, monkeypatch):
        put(stored, values)
        with faults.failing(turn):
            stored.checkpoints.bring_up_to_date()
            use(stored)
        stored.checkpoints.bring_up_to_date()
        with opened(copied(tmp_path / str(turn), tmp_path / f"{turn} after a kill")) as again:
            assert backend_of(again).linked == 0
            assert held(again) == held(stored) == holding(values | {"used": 0.5})


def test_what_could_not_be_reclaimed_is_without_a_further_delete(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reclaim = ReclaimPolicy(min_pages=0, share=1 << 20, rest_seconds=0.01)
    faults = Faults(code, "reclaimer")
    values = some(600)
    for turn, _, stored in turns(faults, tmp_path, monkeypatch, Policies(reclaim=reclaim)):
        put(stored, values)
        stored.finish_background_work()
        path = tmp_path / str(turn) / "things.sqlite"
        with faults.failing(turn):
            stored.delete([*values][1:])
            use(stored)
            thread = stored.reclaimer.thread
            if thread is not None:
                thread.join()
        assert not stored.reclaimer.is_running
        assert path.read_bytes()[_FREE_PAGES] == bytes(4)
        assert path.with_name(f"{path.name}-wal").stat().st_size == 0
        assert held(stored) == holding({"i0": 1.0, "used": 0.5})


def test_what_could_not_be_noted_of_an_index_is_when_it_is_closed(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = Faults(code, "optimizer")
    for turn, catalog, stored in turns(faults, tmp_path, monkeypatch):
        put(stored, some(10))
        stored.attach(LANDMARKS)
        drawn = notes(stored)
        with faults.failing(turn), caplog.at_level(logging.CRITICAL):
            put(stored, some(100))
            stored.optimizer.finish()
            use(stored)
        assert (learned := notes(stored)) != drawn
        catalog.close()
        with opened(tmp_path / str(turn)) as again:
            assert notes(again) == learned
            assert held(again) == holding(some(100) | {"used": 0.5})
            put(again, some(1000))
            again.optimizer.finish()
            assert notes(again) != learned


def notes(stored: StoredCollection) -> str:
    """Return what is known of the attached backend."""
    return text_of(stored.memory.view.attached[LANDMARKS.kind].notes)
