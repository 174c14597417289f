"""Files of collections, and their folder: what is written is read back, or refused."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

import pytest
from sqlite_utils import Database

from gcws_search import index as ix
from gcws_search.index.storage.data_directory import DataDirectory, bytes_of
from gcws_search.index.storage.opened_files import note_of, read_note, write_note
from gcws_search.index.storage.schema import (
    FORMAT_VERSION,
    MIGRATIONS,
    Change,
    Identity,
    Record,
    RowBatch,
)
from gcws_search.index.storage.store import CHUNK_BYTES, Store
from tests.support.index.saved_graph import change_file

RUNS_BY_ITSELF = "not a table of a collection"
IDENTITY = Identity({"dim": 2, "transform": {"center": [0.1, 1e-30]}}, 1)


def rows(ids: list[str], *, size: int = 8, payload: bytes | None = None) -> RowBatch:
    vectors = [bytes([i % 256]) * size for i in range(len(ids))]
    return RowBatch(ids, vectors, [b"codes"] * len(ids), [payload] * len(ids))


def put(store: Store, ids: list[str], *, gone: list[int] | None = None) -> None:
    store.write([Change(gone or [], rows(ids))])


def keys_and_ids(store: Store) -> list[tuple[int, str]]:
    return [
        pair for chunk in store.chunks() for pair in zip(chunk.sequences, chunk.ids, strict=True)
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "things.sqlite"
    Store.create(file, "things", IDENTITY)
    return file


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    opened = Store(path, "things")
    yield opened
    opened.close()


def test_a_new_file_is_empty_and_knows_what_it_is(store: Store) -> None:
    assert len(store) == 0
    assert store.identity == IDENTITY
    assert list(store.chunks()) == []
    assert store.next_sequence == 1


def test_the_file_is_in_the_mode_that_keeps_what_was_acknowledged(store: Store) -> None:
    for pragma, expected in (
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("page_size", 8192),
        ("secure_delete", 1),
        ("auto_vacuum", 2),
    ):
        assert store.connection.execute(f"PRAGMA {pragma}").fetchone()[0] == expected
    with closing(Store(store.path, "things", durability="normal")) as normal:
        assert normal.connection.execute("PRAGMA synchronous").fetchone()[0] == 1


def test_what_was_written_is_read_back_in_order(path: Path, store: Store) -> None:
    ids = [f"i{n}" for n in range(600)]  # two large statements, some middle ones, some single ones
    store.write([Change([], rows(ids, payload='{"ä":1}'.encode()))])
    put(store, ["a\x00b", "日本"])
    expected = [*enumerate([*ids, "a\x00b", "日本"], 1)]
    assert keys_and_ids(store) == expected
    store.close()
    again = Store(path, "things")
    assert keys_and_ids(again) == expected
    assert len(again) == 602
    chunk = next(iter(again.chunks()))
    assert chunk.vectors[3] == b"\x03" * 8
    assert chunk.codes[3] == b"codes"
    assert chunk.payloads[3] == '{"ä":1}'.encode()
    assert chunk.payloads[601] is None
    again.close()


def test_many_changes_are_one_after_the_other(store: Store) -> None:
    put(store, ["a", "b", "c"])
    store.write(
        [
            Change([2], rows(["b", "d"])),  # b anew as 4, d as 5
            Change([4, 1], rows(["b"])),  # b anew as 6
            Change([5], rows([])),
        ]
    )
    assert keys_and_ids(store) == [(3, "c"), (6, "b")]
    assert store.next_sequence == 7


def test_a_turn_is_taken_neither_for_the_lock_nor_for_the_commit(path: Path) -> None:
    """Who waits for another process inside would keep all other loads waiting."""
    store, inside = Store(path, "things"), list[bool]()

    @contextmanager
    def turn() -> Iterator[None]:
        inside.append(store.connection.in_transaction)
        yield
        inside.append(store.connection.in_transaction)

    store.write([Change([], rows(["a", "b"]))], turn)
    assert inside == [True, True]
    assert [item_id for _, item_id in keys_and_ids(store)] == ["a", "b"]
    store.close()


def test_a_failed_write_leaves_nothing_behind(store: Store) -> None:
    put(store, ["a"])
    with pytest.raises(ix.DamagedFile, match="UNIQUE"):
        store.write([Change([], rows(["b"])), Change([], rows(["c", "a"]))])
    assert keys_and_ids(store) == [(1, "a")]
    put(store, ["d"])
    assert keys_and_ids(store) == [(1, "a"), (2, "d")]


def test_damage_among_the_rows_is_found_when_they_are_read(path: Path) -> None:
    with closing(Store(path, "things")) as store:
        put(store, [f"i{n}" for n in range(5000)])
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 8192 * 8192)
        file.write(b"\xff" * 8192)
    uncounted = mock.patch.object(Store, "__len__", return_value=5000)
    with closing(Store(path, "things")) as store, uncounted, pytest.raises(ix.DamagedFile):
        list(store.chunks())


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt(), sqlite3.OperationalError()])
def test_a_transaction_that_is_left_by_an_error_takes_everything_back(
    store: Store, error: BaseException
) -> None:
    @contextmanager
    def broken_off() -> Iterator[None]:
        yield
        raise error

    put(store, ["a"])
    expected = ix.DamagedFile if isinstance(error, sqlite3.Error) else type(error)
    with pytest.raises(expected):
        store.write([Change([], rows(["b", "c"]))], broken_off)
    assert not store.connection.in_transaction
    assert keys_and_ids(store) == [(1, "a")]
    put(store, ["d"])
    assert keys_and_ids(store) == [(1, "a"), (2, "d")]


def test_rows_are_fetched_by_id(store: Store) -> None:
    ids = [f"i{n}" for n in range(300)]
    put(store, ids)
    assert store.fetch(["i7", "absent", "i7"]) == {"i7": Record(8, "i7", b"\x07" * 8, None)}
    assert store.fetch([*ids, "absent"]).keys() == set(ids)
    assert store.fetch([]) == {}


def test_rows_are_read_by_their_sequence_numbers(store: Store) -> None:
    put(store, ["a", "b", "c", "d"])
    store.write([Change([2], rows([]))])
    assert [record.id for record in store.at([4, 2, 1])] == ["a", "d"]
    assert store.at([]) == []


def test_parts_of_links_are_read_until_the_store_is_closed(store: Store) -> None:
    for part in range(100):
        store.write_links(part, b"a")
    parts = store.links()
    assert next(parts) == (0, b"a")
    store.close()
    with pytest.raises(ix.CollectionNotFound):
        list(parts)


def test_parts_of_links_and_notes_are_replaced_and_removed(path: Path, store: Store) -> None:
    assert [*store.links()] == []
    assert store.meta("notes") is None
    for part, data in ((3, b"c"), (1, b"a"), (2**40, b"\x00"), (1, b"b")):
        store.write_links(part, data)
    for notes in ("{}", '{"ä":1}'):
        store.write_meta("notes", notes)
    put(store, ["x"])
    store.close()
    again = Store(path, "things")
    assert [*again.links()] == [(1, b"b"), (3, b"c"), (2**40, b"\x00")]
    assert again.meta("notes") == '{"ä":1}'
    again.write_links(3, None)
    again.write_links(4, None)
    again.write_meta("notes", None)
    assert [*again.links()] == [(1, b"b"), (2**40, b"\x00")]
    assert again.meta("notes") is None
    assert again.identity == IDENTITY
    assert keys_and_ids(again) == [(1, "x")]
    again.close()


def test_links_are_not_waited_for_and_items_and_metadata_are(store: Store) -> None:
    store.write_meta("metadata", "{}")
    assert store.background_connection is None
    store.write_links(1, b"a")
    assert store.background_connection is not None
    for connection, expected in ((store.background_connection, 1), (store.connection, 2)):
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == expected


def test_large_rows_are_read_a_few_at_a_time(store: Store) -> None:
    size = CHUNK_BYTES // 3
    for i in range(7):
        store.write([Change([], rows([f"i{i}"], size=size))])
    lengths = [len(chunk.ids) for chunk in store.chunks()]
    assert sum(lengths) == 7
    assert max(lengths) <= 3


def test_the_log_counts_as_disk_space_and_does_not_stay_large(path: Path, store: Store) -> None:
    log = path.with_name(path.name + "-wal")
    store.write([Change([], rows([f"i{n}" for n in range(3000)], size=40_000))])
    assert log.stat().st_size > 100_000_000
    put(store, ["a"])
    put(store, ["b"])
    assert log.stat().st_size <= 1 << 26
    assert store.bytes_on_disk == bytes_of(path)
    assert store.bytes_on_disk >= path.stat().st_size + log.stat().st_size


def test_a_closed_store_has_nothing_to_read(store: Store) -> None:
    store.close()
    store.close()
    for read in (lambda: store.fetch(["a"]), lambda: store.at([1])):
        with pytest.raises(ix.CollectionNotFound):
            read()


def test_another_programs_database_is_damaged_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "things.sqlite"
    with Database(path) as database:
        database.table("animals").insert({"name": "cat"})
    before = path.read_bytes()
    with pytest.raises(ix.DamagedFile, match="not a collection's file"):
        Store(path, "things")
    assert path.read_bytes() == before


def test_a_file_that_is_gone_is_damaged_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(ix.DamagedFile):
        Store(tmp_path / "things.sqlite", "things")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("new", [b"i250\x7f", b"i25000", b"i2500150\x00\x98"])
def test_ids_by_which_rows_are_not_found_are_damage(path: Path, new: bytes) -> None:
    store = Store(path, "things")
    put(store, [f"i2500{n:03}" for n in range(300)])
    store.close()
    content = bytearray(path.read_bytes())
    # Index leaves hold ids and keys alone; in the table a vector follows.
    old = b"i2500150"
    places = [at for at in range(len(content)) if content.startswith(old, at)]
    for at in places:
        if not content.startswith(b"\x96" * 8, at + len(old)):
            content[at : at + len(new)] = new
    path.write_bytes(content)
    store = Store(path, "things")
    with pytest.raises(ix.DamagedFile, match="ids"):
        list(store.chunks())
    store.close()


def test_rows_to_be_removed_that_are_not_there_are_damage(store: Store) -> None:
    put(store, ["a"])
    with pytest.raises(ix.DamagedFile, match="of 2 rows"):
        put(store, ["b"], gone=[1, 7])
    assert keys_and_ids(store) == [(1, "a")]


@pytest.mark.parametrize(
    ("sql", "error", "said"),
    [
        ("DELETE FROM meta WHERE name = 'config'", ix.DamagedFile, None),
        ("UPDATE meta SET value = '{' WHERE name = 'config'", ix.DamagedFile, None),
        ("UPDATE meta SET value = 'x' WHERE name = 'algorithm_version'", ix.DamagedFile, None),
        ("DROP TABLE meta", ix.DamagedFile, None),
        (
            f"UPDATE meta SET value = '{FORMAT_VERSION + 1}' WHERE name = 'format_version'",
            ix.IncompatibleFile, None,
        ),
        (
            f"UPDATE _sqlite_migrations SET name = '0006_later' WHERE name = '{MIGRATIONS[-1]}'",
            ix.IncompatibleFile, None,
        ),
        ("CREATE VIRTUAL TABLE f USING fts5(x)", ix.DamagedFile, RUNS_BY_ITSELF),
    ],
)  # fmt: skip
def test_a_file_that_is_no_collection_of_this_version_is_refused(
    path: Path, sql: str, error: type[Exception], said: str | None
) -> None:
    change_file(path.parent, sql)
    with pytest.raises(error, match=said):
        Store(path, "things")


# The directory


def test_half_made_and_half_dropped_files_are_cleared_away(tmp_path: Path) -> None:
    kept = {"a.sqlite", "a.sqlite-wal", "notes.txt"}
    remains = {
        ".creating-b.sqlite", ".creating-b.sqlite-wal", ".dropping-c.sqlite", "c.sqlite-wal",
        "c.sqlite-shm", "d.sqlite-journal", ".creating-e-01.sqlite", ".dropping-e-01.sqlite-wal",
    }  # fmt: skip
    for name in kept | remains:
        (tmp_path / name).touch()
    directory = DataDirectory(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == kept | {"lock"}
    assert directory.names() == ["a"]
    directory.close()


def test_names_of_files_that_are_no_collections_are_not_listed(tmp_path: Path) -> None:
    for name in ("b.sqlite", "a.sqlite", "-x.sqlite", "a b.sqlite", "c.sqlite.bak", ".d.sqlite"):
        (tmp_path / name).touch()
    directory = DataDirectory(tmp_path)
    assert directory.names() == ["a", "b"]
    directory.close()


def test_a_file_that_is_gone_is_not_set_aside(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    (tmp_path / "a.sqlite-wal").touch()
    with pytest.raises(ix.StorageFailed):
        directory.set_aside("a")
    assert {path.name for path in tmp_path.iterdir()} == {"a.sqlite-wal", "lock"}
    directory.close()


def test_a_published_file_meets_no_log_of_an_earlier_one(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    (tmp_path / "a.sqlite-wal").write_bytes(b"old")
    unfinished = directory.unfinished_path("a")
    unfinished.write_bytes(b"new")
    directory.publish(unfinished, "a")
    assert {path.name for path in tmp_path.iterdir()} == {"a.sqlite", "lock"}
    directory.close()


def test_a_note_for_the_next_start_is_on_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = set[int](), os.fsync

    def note(file: int) -> None:
        synced.add(os.fstat(file).st_ino)
        sync(file)

    monkeypatch.setattr(os, "fsync", note)
    write_note(path, "its file was removed")
    assert note_of(path).stat().st_ino in synced
    assert "its file was removed" in (read_note(path) or "")
