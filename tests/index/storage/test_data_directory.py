"""The folder of collections: which files are one, and what earlier ones left behind."""

from pathlib import Path

from gcws_search.index.storage.data_directory import DataDirectory


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


def test_a_published_file_meets_no_log_of_an_earlier_one(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    (tmp_path / "a.sqlite-wal").write_bytes(b"old")
    unfinished = directory.unfinished_path("a")
    unfinished.write_bytes(b"new")
    directory.publish(unfinished, "a")
    assert {path.name for path in tmp_path.iterdir()} == {"a.sqlite", "lock"}
    directory.close()
