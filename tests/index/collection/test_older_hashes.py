"""Files whose codes are of an earlier hash: encoded anew when they are loaded, all or none."""

import shutil
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.index.backends import GcwsBackend
from gcws_search.index.collection.writer import codes_to_blobs
from tests.support.index.items import held, holding, opened_catalog, put_vectors, vector
from tests.support.index.policies import graphs_from
from tests.support.index.saved_graph import change_file, opened, read_file
from tests.support.paths import OLD_FORMATS

VALUES: dict[str, float] = {**{f"i{n}": n + 1 for n in range(12) if n not in (3, 4)}, "i0": 20}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of hashes of version 1, of `VALUES`; its codes are the lowest 4 bits of i*."""
    file = tmp_path / "things.sqlite"
    shutil.copy(OLD_FORMATS / "hashes_1.sqlite", file)
    return file


def version_of(path: Path) -> str:
    [[version]] = read_file(path.parent, "SELECT value FROM meta WHERE name = 'algorithm_version'")
    return str(version)


def codes_of(path: Path) -> dict[str, tuple[bytes, int]]:
    rows = read_file(path.parent, "SELECT id, codes, codes_checksum FROM items")
    return {item_id: (codes, checksum) for item_id, codes, checksum in rows}


def right_codes(
    stored: ix.StoredCollection, values: dict[str, float]
) -> dict[str, tuple[bytes, int]]:
    raw = stored.space.from_items([vector(x) for x in values.values()])
    blobs = codes_to_blobs(stored.memory.backend.encode(stored.space.prepare(raw)))
    return {each: (blob, zlib.crc32(blob)) for each, blob in zip(values, blobs, strict=True)}


def test_the_codes_of_a_file_of_earlier_hashes_become_those_of_the_present_one(
    tmp_path: Path, path: Path
) -> None:
    assert version_of(path) == "1"
    before = codes_of(path)
    with opened(tmp_path) as stored:
        expected = right_codes(stored, VALUES)
        assert held(stored) == holding(VALUES)
    assert version_of(path) == str(ix.ALGORITHM_VERSION)
    assert codes_of(path) == expected
    assert all(before[each] != codes for each, codes in expected.items())
    kept = path.read_bytes()
    opened_catalog(tmp_path).close()
    assert path.read_bytes() == kept


def test_encoding_anew_that_is_broken_off_changes_nothing_and_is_made_at_the_next_start(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = codes_of(path)
    encode, turns = GcwsBackend.encode, iter(range(3))

    def fail_later(*given: Any) -> Any:  # noqa: ANN401 (passed on)
        if next(turns, None) is None:
            raise MemoryError
        return encode(*given)

    with monkeypatch.context() as patched:
        patched.setattr(GcwsBackend, "encode", fail_later)
        with closing(opened_catalog(tmp_path, ix.Policies(chunk_bytes=1))) as failed:
            assert list(failed.failures) == ["things"]
    assert version_of(path) == "1"
    assert codes_of(path) == before
    with opened(tmp_path) as again:
        assert held(again) == holding(VALUES)
    assert version_of(path) == str(ix.ALGORITHM_VERSION)


def test_a_check_takes_codes_of_earlier_hashes_for_sound(tmp_path: Path, path: Path) -> None:
    before = codes_of(path)
    for repair in (False, True):
        [report] = ix.check_directory(tmp_path, repair=repair)
        assert (report.is_sound, report.items, report.repaired) == (True, len(VALUES), False)
    assert version_of(path) == "1"
    assert codes_of(path) == before


def test_a_repair_encodes_anew_and_finds_codes_that_are_not_what_was_written(
    tmp_path: Path, path: Path
) -> None:
    change_file(tmp_path, "UPDATE items SET codes = zeroblob(length(codes)) WHERE id = 'i5'")
    [report] = ix.check_directory(tmp_path, repair=True)
    assert ["'i5'" in line for line in report.findings] == [True]
    assert report.repaired
    assert version_of(path) == str(ix.ALGORITHM_VERSION)
    with opened(tmp_path) as again:
        assert codes_of(path) == right_codes(again, VALUES)


def test_a_snapshot_of_earlier_hashes_is_restored(tmp_path: Path, path: Path) -> None:
    (tmp_path / "other").mkdir()
    catalog = opened_catalog(tmp_path / "other")
    incoming = catalog.snapshots.incoming("things", "old")
    incoming.write(path.read_bytes())
    incoming.finish(None)
    incoming.discard()
    restored = catalog.restore("things", "old")
    assert held(restored) == holding(VALUES)
    assert codes_of(tmp_path / "other" / "things.sqlite") == right_codes(restored, VALUES)
    catalog.close()


def test_neighbour_lists_outlive_the_hashes_of_their_rows(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    catalog = opened_catalog(tmp_path, graphs_from(64))
    config = ix.CollectionConfig(dim=8, backend=ix.GcwsParams(bands=8))
    stored = catalog.create("things", config)[0]
    rows = rng.standard_normal((600, 8)).astype(np.float32)
    put_vectors(stored, rows)
    stored.finish_background_work()
    lists = _lists(stored)
    catalog.close()
    path = tmp_path / "things.sqlite"
    right = codes_of(path)
    # No earlier hash is left to write codes by: let those of others stand for them.
    change_file(
        tmp_path,
        "UPDATE items SET (codes, codes_checksum) = (SELECT codes, codes_checksum FROM items AS "
        "other WHERE other.key = 601 - items.key)",
    )
    change_file(tmp_path, "UPDATE meta SET value = '1' WHERE name = 'algorithm_version'")
    assert codes_of(path) != right
    with opened(tmp_path, graphs_from(64)) as again:
        assert codes_of(path) == right
        np.testing.assert_array_equal(_lists(again), lists)


def _lists(stored: ix.StoredCollection) -> Any:  # noqa: ANN401
    saved = stored.memory.backend.saved(stored.memory.view.state)
    assert saved is not None
    return saved.links[:].copy()


@pytest.mark.parametrize("version", [-1, ix.ALGORITHM_VERSION + 1])
def test_hashes_of_no_known_version_are_refused_and_left_alone(
    tmp_path: Path, path: Path, version: int
) -> None:
    change_file(tmp_path, f"UPDATE meta SET value = '{version}' WHERE name = 'algorithm_version'")
    before = codes_of(path)
    with pytest.raises(ix.IncompatibleFile, match=f"hashes of version {version}"), opened(tmp_path):
        pass
    assert codes_of(path) == before
    assert version_of(path) == str(version)
