"""Files that are damaged, in the way, or of another version: told of, repaired, others kept."""

import fcntl
import os
import shutil
import sqlite3
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from gcws_search import index as ix
from gcws_search.index.backends import GcwsBackend
from gcws_search.index.collection.writer import codes_to_blobs
from gcws_search.index.storage.connection import FileConnection
from gcws_search.index.storage.schema import FORMAT_VERSION, MIGRATIONS, codes_checksum
from gcws_search.index.storage.store import Store
from tests.support.index.attached_backends import backends
from tests.support.index.items import DIM, batch, fill, held, holding, opened_catalog, put, vector
from tests.support.index.saved_graph import change_file, opened, read_file
from tests.support.paths import OLD_FORMATS

EXACT = ix.CollectionConfig(dim=3, backend=ix.ExactParams())


DAMAGES = {
    "vector": "UPDATE items SET vector = x'00' WHERE key = 7",
    "zeros": "UPDATE items SET vector = zeroblob(length(vector)) WHERE key = 7",
    "number": "UPDATE items SET vector = (SELECT vector FROM items WHERE key = 8) WHERE key = 7",
    "codes": "UPDATE items SET codes = x'00' WHERE key = 7",
    "code": "UPDATE items SET codes = zeroblob(length(codes)) WHERE key = 7",
    "payload": "UPDATE items SET payload = '{\"n\":7}' WHERE key = 7",
    "id": "UPDATE items SET id = 'j6' WHERE key = 7",
    "config": "UPDATE meta SET value = '{\"dim\": 0}' WHERE name = 'config'",
    "seed": "UPDATE meta SET value = replace(value, '\"seed\":0', '\"seed\":1') "
    "WHERE name = 'config'",
}


def damage(path: Path, how: str) -> None:
    match how:
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("these are no items\n" * 1000)
        case "cut":
            os.truncate(path, path.stat().st_size // 2)
        case "head":
            with path.open("r+b") as file:
                file.write(b"\xff" * 200)
        case "row":
            lose_a_row(path)
        case _:
            change_file(path.parent, DAMAGES[how], file=path.name)


def lose_a_row(path: Path, page: int = 8192) -> None:
    """Let a leaf of a table say that it holds one row less than it does."""
    content = path.read_bytes()
    at = next(
        start
        for start in range(page, len(content), page)
        if content[start] == 0x0D and int.from_bytes(content[start + 3 : start + 5], "big") > 20
    )
    rows = int.from_bytes(content[at + 3 : at + 5], "big")
    with path.open("r+b") as file:
        file.seek(at + 3)
        file.write((rows - 1).to_bytes(2, "big"))


@pytest.mark.parametrize("how", ["empty", "text", "cut", "head", "row", *DAMAGES])
def test_a_damaged_file_is_named_and_the_others_load(
    catalog: ix.Catalog, tmp_path: Path, how: str
) -> None:
    config = ix.CollectionConfig(dim=3, backend=ix.GcwsParams(bands=2))
    for name in ("a", "b", "c"):
        fill(catalog.create(name, config)[0], 3000)
    catalog.close()
    damage(tmp_path / "b.sqlite", how)

    again = opened_catalog(tmp_path)
    assert [line.name for line in again.list()] == ["a", "c"]
    assert list(again.failures) == ["b"]
    for call in (lambda: again.get("b"), lambda: again.create("b", EXACT)):
        with pytest.raises(ix.DamagedFile) as caught:
            call()
        assert caught.value.name == "b"
        assert "'b'" in str(caught.value)
    again.drop("b")
    assert again.failures == {}
    assert again.create("b", EXACT)[1]
    again.close()


@pytest.mark.parametrize("how", ["vector", "number", "payload"])
def test_a_row_damaged_while_its_collection_is_open_is_told_of_when_it_is_read(
    how: str, catalog: ix.Catalog, tmp_path: Path
) -> None:
    # Vectors as they were sent are in the file alone where a transform changes them.
    config = ix.CollectionConfig(dim=3, backend=ix.ExactParams(), transform=ix.Transform(power=2.0))
    stored = catalog.create("things", config)[0]
    fill(stored, 10)
    item_id = stored.page(limit=10).items[6].id
    damage(tmp_path / "things.sqlite", how)
    for read in (lambda: stored.get(item_id), lambda: stored.page(limit=10, with_vector=True)):
        with pytest.raises(ix.DamagedFile, match="row 7"):
            read()


def test_what_goes_wrong_with_one_collection_keeps_no_other_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = opened_catalog(tmp_path)
    for name in ("a", "b", "c"):
        fill(catalog.create(name, EXACT)[0], 5)
    catalog.close()
    read = ix.StoredCollection.read

    def fail(stored: ix.StoredCollection, progress: Any) -> None:  # noqa: ANN401
        if stored.name == "b":
            raise MemoryError
        read(stored, progress)

    with monkeypatch.context() as patched:
        patched.setattr(ix.StoredCollection, "read", fail)
        again = opened_catalog(tmp_path)
    assert [line.name for line in again.list()] == ["a", "c"]
    with pytest.raises(ix.DamagedFile, match="MemoryError"):
        again.get("b")
    again.close()
    later = opened_catalog(tmp_path)
    assert len(later.get("b")) == 5
    later.close()


def test_a_folder_in_the_place_of_a_file_is_told_of_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").mkdir()
    (tmp_path / "a.sqlite" / "notes.txt").touch()
    for _ in range(2):
        catalog = opened_catalog(tmp_path)
        for call in (catalog.get, catalog.drop):
            with pytest.raises(ix.DamagedFile):
                call("a")
        assert list(catalog.failures) == ["a"]
        assert (tmp_path / "a.sqlite" / "notes.txt").exists()
        catalog.close()


# Files of an earlier format


def of_format(version: int, tmp_path: Path) -> Path:
    """Copy the file of a format, with hashes of version 1: gcws, 12 items put, 2 deleted.

    1 is from before there were links, 2 from before comparison backends, 3 has one attached.
    """
    file = tmp_path / "things.sqlite"
    shutil.copy(OLD_FORMATS / f"format_{version}.sqlite", file)
    return file


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_file_of_an_earlier_format_is_brought_up_to_date(tmp_path: Path, version: int) -> None:
    of_format(version, tmp_path)
    values: dict[str, float] = {f"i{n}": n + 1 for n in range(12) if n not in (3, 4)}
    values["i0"] = 20
    for turn in range(3):
        with opened(tmp_path) as stored:
            assert stored.config == ix.CollectionConfig(dim=DIM, backend=ix.GcwsParams(bands=2))
            assert stored.describe().versions["format"] == str(FORMAT_VERSION)
            assert held(stored) == holding(values)
            query = stored.space.from_items([vector(20.0)])
            [result] = stored.search(query, ix.SearchParams(limit=1, recall=0.9))
            assert [*zip(result.ids, result.scores, strict=True)] == [("i0", 1.0)]
            put(stored, {f"new{turn}": 50.0})
            values[f"new{turn}"] = 50.0
            stored.attach(ix.ExactParams())
    with opened(tmp_path) as again:
        described = again.describe().backends
        names = ["gcws", *(["nrff"] if version >= 3 else []), "exact", "exact_2", "exact_3"]
        assert [backend.name for backend in described] == names


WIDE = ix.CollectionConfig(dim=DIM, backend=ix.GcwsParams(bands=32))
HELD = {**{f"i{n}": n + 1.0 for n in range(12) if n not in (3, 4)}, "i0": 20.0}


@pytest.mark.parametrize(
    ("name", "damage", "findings"),
    [
        ("format_4_all_tables", None, 0),
        ("format_4_all_tables", "UPDATE items SET codes = zeroblob(256) WHERE id = 'i5'", 1),
        ("format_5", None, 0),
    ],
)
def test_codes_are_cut_to_the_first_tables_and_damage_to_them_is_still_found(
    tmp_path: Path, name: str, damage: str | None, findings: int
) -> None:
    file = tmp_path / "things.sqlite"
    shutil.copy(OLD_FORMATS / f"{name}.sqlite", file)
    if damage is not None:
        change_file(tmp_path, damage)
    [report] = ix.check_directory(tmp_path)
    assert (len(report.findings), report.items) == (findings, len(HELD))
    [report] = ix.check_directory(tmp_path, repair=True)
    with opened(tmp_path) as stored:
        assert stored.config == WIDE
        assert held(stored) == holding(HELD)
        backend = stored.memory.backend
        assert isinstance(backend, GcwsBackend)
        [chunk] = stored.store.chunks()
        vectors = stored.space.prepare(stored.space.from_blobs(chunk.vectors))
        assert list(chunk.codes) == codes_to_blobs(backend.encode(vectors))
        assert {len(codes) for codes in chunk.codes} == {64}


def test_codes_that_were_damaged_before_they_were_cut_are_not_taken_for_sound(
    tmp_path: Path,
) -> None:
    file = tmp_path / "things.sqlite"
    shutil.copy(OLD_FORMATS / "format_4_all_tables.sqlite", file)
    change_file(tmp_path, "UPDATE items SET codes = zeroblob(256) WHERE id = 'i5'")
    opened_catalog(tmp_path).close()
    rows = read_file(tmp_path, "SELECT id, codes, codes_checksum FROM items")
    assert [row for row, codes, kept in rows if codes_checksum(codes) != kept] == ["i5"]


@pytest.mark.parametrize(
    "backend",
    [ix.GcwsParams(bands=12, band_width=2), ix.RandomBinningParams(bands=12)],
    ids=["classical", "bins"],
)
def test_keys_hashed_whole_are_all_kept_by_the_change_to_format_5(
    tmp_path: Path, backend: ix.BackendParams
) -> None:
    catalog = opened_catalog(tmp_path)
    config = ix.CollectionConfig(dim=DIM, backend=backend)
    put(catalog.create("things", config)[0], HELD)
    catalog.close()
    before = read_file(tmp_path, "SELECT codes, codes_checksum FROM items")
    with closing(sqlite3.connect(tmp_path / "things.sqlite")) as connection, connection:
        connection.execute("UPDATE meta SET value = '4' WHERE name = 'format_version'")
        for migration in MIGRATIONS[4:]:
            connection.execute("DELETE FROM _sqlite_migrations WHERE name = ?", (migration,))
        for table in ("loads", "names"):
            connection.execute(f"DROP TABLE {table}")
        for column in ("version", "expires"):
            connection.execute(f"ALTER TABLE items DROP COLUMN {column}")
    with opened(tmp_path) as again:
        assert held(again) == holding(HELD)
        assert again.describe().versions["format"] == str(FORMAT_VERSION)
    assert read_file(tmp_path, "SELECT codes, codes_checksum FROM items") == before
    version = "SELECT value FROM meta WHERE name = 'format_version'"
    assert read_file(tmp_path, version) == [(str(FORMAT_VERSION),)]
    assert {len(codes) for codes, _ in before} == {96}


def test_a_migration_broken_off_is_made_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    format_1 = of_format(1, tmp_path)
    execute = FileConnection.execute

    def killed(connection: FileConnection, sql: str, *parameters: Any) -> sqlite3.Cursor:  # noqa: ANN401
        if sql.lstrip().startswith("INSERT") and "_sqlite_migrations" in sql:
            raise KeyboardInterrupt
        return execute(connection, sql, *parameters)

    with monkeypatch.context() as patched:
        patched.setattr(FileConnection, "execute", killed)
        with pytest.raises(KeyboardInterrupt):
            Store(format_1, "things")
    with opened(tmp_path) as again:
        assert len(again) == 10


def test_sparse_rows_of_format_7_lose_their_keys_and_nothing_else(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path)
    stored, _ = catalog.create("things", ix.CollectionConfig(dim=None))
    rows = stored.space.from_items([ix.SparseVector([1, 7], [x, -2.0]) for x in HELD.values()])
    stored.put(ix.ItemBatch([*HELD], rows, [None] * len(HELD)))
    before = held(stored)
    catalog.close()
    keys = bytes(64)
    change_file(tmp_path, "UPDATE items SET codes = ?, codes_checksum = ?", keys, zlib.crc32(keys))
    change_file(tmp_path, "UPDATE meta SET value = '7' WHERE name = 'format_version'")
    change_file(tmp_path, "DELETE FROM _sqlite_migrations WHERE name = ?", MIGRATIONS[7])
    with opened(tmp_path) as again:
        assert held(again) == before
        assert again.describe().versions["format"] == str(FORMAT_VERSION)
    codes = read_file(tmp_path, "SELECT DISTINCT codes, codes_checksum FROM items")
    assert codes == [(b"", codes_checksum(b""))]


def test_a_file_of_a_later_format_is_not_migrated(tmp_path: Path) -> None:
    format_1 = of_format(1, tmp_path)
    change_file(tmp_path, "UPDATE meta SET value = '9' WHERE name = 'format_version'")
    with pytest.raises(ix.IncompatibleFile, match="format 9"), opened(tmp_path):
        pass
    with Database(format_1) as database:
        assert not database.table("links").exists()


VALUES: dict[str, float] = {f"i{n}": n + 1 for n in range(300)}
PAGE = 8192


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the closed file of a collection of `VALUES`."""
    catalog = opened_catalog(tmp_path)
    config = ix.CollectionConfig(dim=DIM, backend=ix.GcwsParams(bands=2))
    put(stored := catalog.create("things", config)[0], VALUES)
    stored.attach(ix.FourierParams(kind="nrff", features=8))
    catalog.close()
    return tmp_path / "things.sqlite"


def checked(path: Path, *, repair: bool = False) -> ix.Report:
    [report] = ix.check_directory(path.parent, repair=repair)
    return report


def held_again(path: Path) -> dict[str, tuple[object, bytes | None]]:
    """Return what a collection holds that also finds each of its items."""
    with opened(path.parent) as stored:
        for item_id in held(stored):
            raw = stored.space.from_items([vector(VALUES[item_id])])
            [result] = stored.search(raw, ix.SearchParams(limit=1, recall=0.99))
            assert [*zip(result.ids, result.scores, strict=True)] == [(item_id, 1.0)]
        found = held(stored)
    return found


def without(*ids: str) -> dict[str, tuple[object, bytes | None]]:
    return holding({each: x for each, x in VALUES.items() if each not in ids})


def test_a_sound_file_is_left_as_it_is(path: Path) -> None:
    before = path.read_bytes()
    for repair in (False, True):
        report = checked(path, repair=repair)
        assert report == ix.Report("things", items=300)
        assert report.is_sound
    assert path.read_bytes() == before
    assert {each.name for each in path.parent.iterdir()} == {"things.sqlite", "lock"}


def test_a_repair_keeps_what_is_sound_beside_the_items(path: Path) -> None:
    record = ix.LoadRecord("a key", 1_000, '{"rows":3}')
    with opened(path.parent) as before:
        before.save_load(record, 0)
        before.replace_metadata(b'{"of":"all"}')
        before.store.write_meta("audit", '{"audited":[["2026-W01",0.9,10,5,4.5,4.25]]}')
        items = batch(before, ["", ""], [7.0, 8.0])
        before.put(replace(items, ids=[None, None]))
        before.delete(["1"])
    assert checked(path).is_sound
    change_file(path.parent, "UPDATE items SET payload = '{}' WHERE id = 'i77'")
    assert checked(path, repair=True).repaired
    with opened(path.parent) as again:
        assert (again.loads(0), again.loads(1_001)) == ([record], [])
        assert again.metadata == b'{"of":"all"}'
        assert [(each.queries, each.found) for each in again.audited().results] == [(5, 0.9)]
        assert [*backends(again)] == ["gcws", "nrff"]
        assert again.put(replace(items, ids=[None, None])).ids == ("2", "3")


@pytest.mark.parametrize(
    ("codes", "keys"),
    [
        ("codes = zeroblob(length(codes))", [7, 9]),
        (
            "(codes, codes_checksum) = "
            "(SELECT codes, codes_checksum FROM items WHERE key = 100)", [7],
        ),
    ],
    ids=["damaged", "of another item, with the right checksum"],
)  # fmt: skip
def test_codes_that_are_not_their_vectors_are_made_anew(
    path: Path, codes: str, keys: list[int]
) -> None:
    where = ", ".join(map(str, keys))
    change_file(path.parent, f"UPDATE items SET {codes} WHERE key IN ({where})")
    report = checked(path)
    assert [line.split()[1] for line in report.findings] == [f"{key}," for key in keys]
    assert all("codes" in line for line in report.findings)
    assert (report.items, report.lost, report.repaired) == (300, 0, False)
    assert checked(path).findings == report.findings  # nothing was changed
    assert checked(path, repair=True).repaired
    assert checked(path).is_sound
    assert held_again(path) == without()


def test_items_that_are_not_what_was_written_are_dropped_by_name(path: Path) -> None:
    change_file(path.parent, "UPDATE items SET vector = zeroblob(length(vector)) WHERE id = 'i4'")
    change_file(path.parent, "UPDATE items SET payload = '{}' WHERE id = 'i77'")
    report = checked(path, repair=True)
    assert (report.items, report.lost, report.repaired) == (298, 2, True)
    assert "'i4'" in report.findings[0]
    assert "'i77'" in report.findings[1]
    assert checked(path).is_sound
    assert held_again(path) == without("i4", "i77")
    aside = path.with_name("things.sqlite.damaged-1")
    assert aside.exists()
    assert [each.name for each in ix.check_directory(path.parent)] == ["things"]


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
    ("sql", "word", "refused"),
    [
        ("UPDATE backends SET params = replace(params, '8', '9')", "nrff", True),
        ("UPDATE backends SET kind = 'folded_rff'", "nrff", True),
        ("UPDATE meta SET value = 'x' WHERE name = 'notes'", "notes", False),
        ("INSERT INTO links (part, data) VALUES (999, x'00')", "part 999", False),
        ("INSERT INTO loads VALUES ('a key', 1, '{}', 0)", "load 'a key'", False),
        ("INSERT INTO meta (name, value) VALUES ('next_id', '7')", "the number of the next", True),
        ("INSERT INTO meta (name, value) VALUES ('audit', '[')", "the results of the audit", False),
    ],
)
def test_what_is_kept_beside_the_items_is_checked(
    path: Path, sql: str, word: str, refused: bool
) -> None:
    notes = ix.text_of({})
    change_file(
        path.parent, f"INSERT OR REPLACE INTO meta (name, value) VALUES ('notes', '{notes}')"
    )
    change_file(path.parent, sql)
    [finding] = checked(path).findings
    assert word in finding
    if refused:
        with pytest.raises(ix.DamagedFile), opened(path.parent):
            pass
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


def test_a_directory_in_use_is_not_checked(catalog: ix.Catalog, tmp_path: Path) -> None:
    with pytest.raises(ix.DirectoryLocked):
        [*ix.check_directory(tmp_path)]


@pytest.mark.parametrize("locked", [".", "lock"])
def test_a_directory_is_in_use_by_either_of_its_locks(tmp_path: Path, locked: str) -> None:
    """The file may be removed, some file systems lock no folders, and 0.1.0 locks the file."""
    (tmp_path / "lock").touch()
    other = os.open(tmp_path / locked, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ix.DirectoryLocked):
            opened_catalog(tmp_path)
    finally:
        os.close(other)
    opened_catalog(tmp_path).close()
