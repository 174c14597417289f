"""What was deleted is in no file any more, and its space comes back."""

import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.index.collection import reclaim
from gcws_search.index.storage.connection import connect
from tests.support.index.items import held, opened_catalog
from tests.support.index.saved_graph import change_file, copied, opened

CONFIG = ix.CollectionConfig(dim=3, backend=ix.ExactParams())


def secret(name: str) -> bytes:
    return b"hunter2-%s-" % name.encode()


def fill(stored: ix.StoredCollection, names: list[str], *, size: int) -> None:
    """Put items whose payloads say their secrets, over several pages where they are large."""
    payloads: list[bytes | None] = [
        b'{"of":"%s","secret":"%s"}' % (name.encode(), secret(name) * (size // 12 + 1))
        for name in names
    ]
    raw = stored.space.from_dense(np.ones((len(names), 3), np.float32))
    stored.put(ix.ItemBatch(names, raw, payloads))


def everything(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.iterdir() if path.is_file())


@pytest.fixture
def stored(catalog: ix.Catalog) -> ix.StoredCollection:
    return catalog.create("things", CONFIG)[0]


@pytest.mark.parametrize("size", [20, 500, 50_000])
def test_what_was_deleted_or_updated_is_in_no_file(
    stored: ix.StoredCollection, tmp_path: Path, size: int
) -> None:
    names = [f"n{n}" for n in range(40)]
    gone = {"n1", "n2", "n3", "n20", "n21"}
    fill(stored, names, size=size)
    assert all(secret(name) in everything(tmp_path) for name in names)
    stored.delete(["n1", "n20"])
    stored.delete(ix.parse_filter({"must": {"key": "of", "match": {"any": ["n2", "n21"]}}}))
    raw = stored.space.from_dense(np.ones((1, 3), np.float32))
    stored.put(ix.ItemBatch(["n3"], raw, [b'{"of":"nobody"}']))
    stored.finish_background_work()
    content = everything(tmp_path)
    assert {name for name in names if secret(name) not in content} == gone


def test_what_somebody_still_reads_is_overwritten_afterwards(
    stored: ix.StoredCollection, tmp_path: Path
) -> None:
    fill(stored, ["a", "b"], size=100)
    reader = sqlite3.connect(tmp_path / "things.sqlite", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM items").fetchone()
    stored.delete(["a"])
    settling = threading.Thread(target=stored.finish_background_work)
    settling.start()
    assert secret("a") in everything(tmp_path)
    fill(stored, ["c"], size=100)  # nobody waits for the reader
    reader.close()
    settling.join()
    content = everything(tmp_path)
    assert [secret(name) in content for name in "abc"] == [False, True, True]


def test_what_a_killed_process_deleted_is_overwritten_at_the_next_start(
    stored: ix.StoredCollection, tmp_path: Path
) -> None:
    fill(stored, ["a", "b"], size=100)
    stored.finish_background_work()
    stored.delete(["a"])
    copy = copied(tmp_path, tmp_path / "copy")
    with opened(copy) as restarted:
        assert set(held(restarted)) == {"b"}
        restarted.finish_background_work()
        assert secret("a") not in everything(copy)


def test_space_comes_back_once_much_is_free(stored: ix.StoredCollection, tmp_path: Path) -> None:
    path = tmp_path / "things.sqlite"
    names = [f"n{n}" for n in range(1000)]
    fill(stored, names, size=8000)
    stored.delete(names[:100])
    stored.finish_background_work()
    full = path.stat().st_size
    assert full > 1000 * 8000  # a tenth is free, and kept for what comes
    stored.delete(names[100:950])
    stored.finish_background_work()
    assert path.stat().st_size < full / 10
    fill(stored, ["new"], size=8000)
    assert set(held(stored)) == {*names[950:], "new"}


def loosened(directory: Path) -> Path:
    """Return a file of an earlier kind, which gives nothing back, of 50 items and much space."""
    catalog = opened_catalog(directory)
    fill(catalog.create("things", CONFIG)[0], ["kept"], size=10)
    catalog.close()
    path = directory / "things.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA auto_vacuum = NONE")
    connection.execute("VACUUM")
    connection.close()
    with opened(directory) as stored:
        names = [f"n{n}" for n in range(500)]
        fill(stored, names, size=8000)
        stored.delete(names[50:])
        stored.finish_background_work()
    return path


def test_a_file_of_an_earlier_kind_is_vacuumed_and_gives_space_back_from_then_on(
    tmp_path: Path,
) -> None:
    path = loosened(tmp_path)
    before = path.stat().st_size
    assert before > 500 * 8000
    [done] = ix.vacuum_directory(tmp_path)
    assert (done.name, done.before, done.error) == ("things", before, None)
    assert done.after == path.stat().st_size < before / 5
    assert {each.name for each in tmp_path.iterdir()} == {"things.sqlite", "lock"}
    with opened(tmp_path) as stored:
        assert len(stored) == 51
        with pytest.raises(ix.DirectoryLocked):
            [*ix.vacuum_directory(tmp_path)]
        names = [f"m{n}" for n in range(500)]
        fill(stored, names, size=8000)
        stored.delete(names)
        stored.finish_background_work()
        assert path.stat().st_size < before / 5


@pytest.mark.parametrize("policies", [ix.Policies(reclaim_rest_seconds=0.01)])
def test_what_fails_for_any_other_reason_is_tried_again(
    stored: ix.StoredCollection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [MemoryError(), OSError()]

    def fail(path: Path, *settings: str) -> sqlite3.Connection:
        if failures:
            raise failures.pop()
        return connect(path, *settings)

    fill(stored, ["a", "b"], size=100)
    stored.finish_background_work()
    monkeypatch.setattr(reclaim, "connect", fail)
    stored.delete(["a"])
    thread = stored.reclaimer.thread
    if thread is not None:
        thread.join()
    assert not failures
    assert secret("a") not in everything(tmp_path)


def test_a_damaged_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = loosened(tmp_path)
    change_file(tmp_path, "UPDATE items SET payload = '{}' WHERE id = 'kept'")
    before = path.read_bytes()
    [done] = ix.vacuum_directory(tmp_path)
    assert done.error is not None
    assert "damaged" in done.error
    assert done.after == done.before == len(before)
    assert path.read_bytes() == before
