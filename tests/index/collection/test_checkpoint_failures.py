"""What an index keeps, when it is damaged, missing, or cannot be written: no item is harmed."""

import logging
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.errors import DiskFull
from gcws_search.index.storage.graph_parts import PART_SEQUENCES
from tests.support.index.fake_backend import backend_of
from tests.support.index.items import held, holding, put
from tests.support.index.saved_graph import FILE, change_file, copied, opened, opened_as_it_is, some

pytestmark = pytest.mark.usefixtures("linking")


@pytest.mark.parametrize(
    ("damage", "missing"),
    [
        ("UPDATE links SET data = substr(data, 1, 100) WHERE part = 1", PART_SEQUENCES),
        ("UPDATE links SET data = x'' WHERE part = 2", 2),
        ("DELETE FROM links WHERE part = 0", PART_SEQUENCES - 1),
        ("DELETE FROM links", 2 * PART_SEQUENCES + 1),
    ],
)
def test_what_is_damaged_or_missing_is_made_anew(
    linked: StoredCollection,
    catalog: Catalog,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: str,
    missing: int,
) -> None:
    put(linked, some(2 * PART_SEQUENCES + 1))
    catalog.close()
    change_file(tmp_path, damage)
    caplog.set_level(logging.WARNING, "gcws_search.index.collection.checkpoints")
    with opened(tmp_path) as again:
        assert backend_of(again).linked == missing
        assert held(again) == holding(some(2 * PART_SEQUENCES + 1))
    assert len(caplog.messages) == ("UPDATE" in damage)
    caplog.clear()
    with opened(tmp_path) as again:
        assert backend_of(again).linked == 0
    assert caplog.messages == []


@pytest.mark.parametrize("text", ["", "{", "[1]", "7", "{}"])
def test_unreadable_notes_are_no_notes(
    linked: StoredCollection, catalog: Catalog, tmp_path: Path, text: str
) -> None:
    put(linked, some(5))
    catalog.close()
    change_file(tmp_path, "UPDATE meta SET value = ? WHERE name = 'notes'", text)
    with opened(tmp_path) as again:
        assert backend_of(again).linked == 0
        assert backend_of(again).notes == {"cost": 0.5}
    with opened(tmp_path) as again:
        assert str(again.store.meta("notes")).endswith(' {"cost":0.5}')


@pytest.mark.parametrize(("said", "changed"), [("0.75", "0.74"), ("[3]", "[2]"), ("}", "")])
def test_notes_of_which_a_character_has_changed_are_no_notes(
    linked: StoredCollection,
    catalog: Catalog,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    said: str,
    changed: str,
) -> None:
    put(linked, some(5))
    backend_of(linked).notes = {"a": 0.75, "b": [3]}
    catalog.close()
    sql = "UPDATE meta SET value = replace(value, ?, ?) WHERE name = 'notes'"
    change_file(tmp_path, sql, said, changed)
    caplog.set_level(logging.WARNING, "gcws_search.index.collection.checkpoints")
    with opened(tmp_path) as again:
        assert backend_of(again).notes == {"cost": 0.5}
    assert "notes are rebuilt" in caplog.text


def test_pages_of_lists_that_cannot_be_read_do_not_keep_items_away(
    linked: StoredCollection, catalog: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(linked, some(3 * PART_SEQUENCES))
    catalog.close()
    with sqlite3.connect(tmp_path / FILE) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'links'")
        page = root.fetchone()[0]
    connection.close()
    with (tmp_path / FILE).open("r+b") as file:
        file.seek((page - 1) * 8192)
        file.write(b"\xff" * 8192)
    caplog.set_level(logging.WARNING, "gcws_search.index.collection.checkpoints")
    with opened(tmp_path) as again:
        assert held(again) == holding(some(3 * PART_SEQUENCES))
        put(again, {"x": 1.0})
    assert len(caplog.messages) == 2  # at the start, and when it was closed


def test_a_full_disk_spoils_no_item(
    linked: StoredCollection,
    catalog: Catalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(linked, some(3 * PART_SEQUENCES))
    write = linked.store.write_links

    def full(part: int, data: bytes | None) -> None:
        if part == 2:
            raise DiskFull("things")
        write(part, data)

    caplog.set_level(logging.WARNING, "gcws_search.index.collection.checkpoints")
    monkeypatch.setattr(linked.store, "write_links", full)
    linked.checkpoints.step()
    assert len(caplog.messages) == 1
    put(linked, {"x": 1.0})
    monkeypatch.undo()
    with opened_as_it_is(copied(tmp_path, tmp_path / "copy")) as rows:
        assert rows == [0, 1]
    catalog.close()
    with opened_as_it_is(tmp_path) as rows:
        assert rows == [0, 1, 2, 3]


def test_numbers_of_numpy_are_numbers(
    linked: StoredCollection, catalog: Catalog, tmp_path: Path
) -> None:
    put(linked, some(5))
    backend_of(linked).notes = {"a": np.float64(0.5), "b": [np.int32(3)], "c": np.arange(2)}
    catalog.close()
    with opened(tmp_path) as again:
        assert backend_of(again).notes == {"a": 0.5, "b": [3], "c": [0, 1]}


def test_an_index_that_fails_to_say_what_to_keep_is_closed_all_the_same(
    linked: StoredCollection, catalog: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(linked, some(5))
    backend_of(linked).notes = {"a": object()}
    catalog.close()
    assert "could not be written" in caplog.text
    with opened(tmp_path) as again:
        assert held(again) == holding(some(5))


def test_nothing_is_kept_of_memory_that_may_differ_from_the_file(
    linked: StoredCollection, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(linked, some(5))

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(linked.memory, "put", fail)
        with pytest.raises(MemoryError):
            put(linked, {"b": 2})
    linked.checkpoints.step()
    catalog.close()
    with opened(tmp_path) as again:
        assert backend_of(again).linked == 6
