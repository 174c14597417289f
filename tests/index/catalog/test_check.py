"""Files checked and repaired: what is wrong is named, what is sound is kept."""

import sqlite3
from pathlib import Path

import pytest

from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.check import Report, check_directory
from gcws_search.index.contracts.errors import DirectoryLocked
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    FourierParams,
    GcwsParams,
    SearchParams,
)
from gcws_search.index.contracts.saved_index import text_of
from gcws_search.index.storage.records import LoadRecord
from tests.support.index.items import DIM, held, holding, opened_catalog, put, vector

VALUES: dict[str, float] = {f"i{n}": n + 1 for n in range(300)}
PAGE = 8192


def _execute(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(sql)
    connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the closed file of a collection of `VALUES`."""
    catalog = opened_catalog(tmp_path)
    stored = catalog.create("things", CollectionConfig(dim=DIM, backend=GcwsParams(bands=2)))[0]
    put(stored, VALUES)
    stored.attach(FourierParams(kind="nrff", features=8))
    catalog.close()
    return tmp_path / "things.sqlite"


def checked(path: Path, *, repair: bool = False) -> Report:
    [report] = check_directory(path.parent, repair=repair, threads=1)
    return report


def held_again(path: Path) -> dict[str, tuple[object, bytes | None]]:
    """Return what a collection holds that also finds each of its items."""
    catalog = opened_catalog(path.parent)
    stored = catalog.get("things")
    for item_id in held(stored):
        raw = stored.space.from_items([vector(VALUES[item_id])])
        [result] = stored.search(raw, SearchParams(limit=1, recall=0.99))
        assert [*zip(result.ids, result.scores, strict=True)] == [(item_id, 1.0)]
    found = held(stored)
    catalog.close()
    return found


def without(*ids: str) -> dict[str, tuple[object, bytes | None]]:
    return holding({each: x for each, x in VALUES.items() if each not in ids})


def test_a_sound_file_is_left_as_it_is(path: Path) -> None:
    before = path.read_bytes()
    for repair in (False, True):
        report = checked(path, repair=repair)
        assert report == Report("things", items=300)
        assert report.is_sound
    assert path.read_bytes() == before
    assert {each.name for each in path.parent.iterdir()} == {"things.sqlite", "lock"}


def test_keys_of_loads_are_kept_by_a_repair(path: Path) -> None:
    record = LoadRecord("a key", 1_000, '{"rows":3}')
    catalog = opened_catalog(path.parent)
    catalog.get("things").save_load(record, 0)
    catalog.close()
    assert checked(path).is_sound
    _execute(path, "UPDATE items SET payload = '{}' WHERE id = 'i77'")
    assert checked(path, repair=True).repaired
    catalog = opened_catalog(path.parent)
    assert catalog.get("things").loads(0) == [record]
    assert catalog.get("things").loads(1_001) == []
    catalog.close()


def test_codes_that_are_not_their_vectors_are_made_anew(path: Path) -> None:
    _execute(path, "UPDATE items SET codes = zeroblob(length(codes)) WHERE key IN (7, 9)")
    report = checked(path)
    assert [line.split()[1] for line in report.findings] == ["7,", "9,"]
    assert all("codes" in line for line in report.findings)
    assert (report.items, report.lost, report.repaired) == (300, 0, False)
    assert checked(path).findings == report.findings  # nothing was changed
    assert checked(path, repair=True).repaired
    assert checked(path).is_sound
    assert held_again(path) == without()


def test_codes_of_other_hashes_are_found_though_their_checksums_are_right(path: Path) -> None:
    _execute(
        path,
        "UPDATE items SET (codes, codes_checksum) = "
        "(SELECT codes, codes_checksum FROM items WHERE key = 100) WHERE key = 7",
    )
    assert not checked(path).is_sound
    checked(path, repair=True)
    assert held_again(path) == without()


def test_items_that_are_not_what_was_written_are_dropped_by_name(path: Path) -> None:
    _execute(path, "UPDATE items SET vector = zeroblob(length(vector)) WHERE id = 'i4'")
    _execute(path, "UPDATE items SET payload = '{}' WHERE id = 'i77'")
    report = checked(path, repair=True)
    assert (report.items, report.lost, report.repaired) == (298, 2, True)
    assert "'i4'" in report.findings[0]
    assert "'i77'" in report.findings[1]
    assert checked(path).is_sound
    assert held_again(path) == without("i4", "i77")
    aside = path.with_name("things.sqlite.damaged-1")
    assert aside.exists()
    assert [each.name for each in check_directory(path.parent)] == ["things"]


def test_a_page_that_cannot_be_read_loses_its_rows_alone(path: Path) -> None:
    content = bytearray(path.read_bytes())
    at = next(
        start
        for start in range(PAGE, len(content), PAGE)
        if content[start] == 0x0D and b'{"x":100}' in content[start : start + PAGE]
    )
    content[at : at + PAGE] = b"\xff" * PAGE
    path.write_bytes(content)
    report = checked(path, repair=True)
    assert report.repaired
    assert 0 < report.lost < 200
    assert report.items == 300 - report.lost
    found = held_again(path)
    lost = [each for each in VALUES if each not in found]
    told = [line for line in report.findings if "cannot be read" in line]
    assert told
    assert [line.split("'")[1] for line in told] == lost[: len(told)]
    assert len(told) == len(lost) or len(report.findings) == 100
    assert len(found) == report.items
    assert found.items() <= without("i99").items()
    assert checked(path).is_sound


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("UPDATE backends SET params = replace(params, '8', '9')", "nrff"),
        ("UPDATE meta SET value = 'x' WHERE name = 'notes'", "notes"),
        ("INSERT INTO links (part, data) VALUES (999, x'00')", "part 999"),
        ("INSERT INTO loads VALUES ('a key', 1, '{}', 0)", "load 'a key'"),
        ("INSERT INTO meta (name, value) VALUES ('metadata', '0 {}')", "the metadata"),
        ("INSERT INTO meta (name, value) VALUES ('audit', '[')", "the results of the audit"),
    ],
)
def test_what_is_kept_beside_the_items_is_checked(path: Path, sql: str, word: str) -> None:
    notes = text_of({})
    _execute(path, f"INSERT OR REPLACE INTO meta (name, value) VALUES ('notes', '{notes}')")
    _execute(path, sql)
    [finding] = checked(path).findings
    assert word in finding
    assert checked(path, repair=True).lost == 0
    assert checked(path).is_sound
    assert held_again(path) == without()


def test_ids_by_which_rows_are_not_found_are_listed_anew(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for at in range(len(content)):
        # Index leaves hold ids and keys alone; in the table a vector follows.
        if content.startswith(b"i250", at) and not content.startswith(b"\x00\x00", at + 4):
            content[at : at + 4] = b"i2x0"
    path.write_bytes(content)
    report = checked(path, repair=True)
    assert (report.items, report.lost, report.repaired) == (300, 0, True)
    assert checked(path).is_sound
    assert held_again(path) == without()


def test_a_file_beyond_repair_is_told_of_and_left_alone(path: Path) -> None:
    path.write_bytes(b"x" * 10_000)
    for repair in (False, True):
        report = checked(path, repair=repair)
        assert not report.repaired
        assert "restore a snapshot" in report.findings[0]
    assert path.read_bytes() == b"x" * 10_000


def test_a_directory_in_use_is_not_checked(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(DirectoryLocked):
        [*check_directory(tmp_path)]
