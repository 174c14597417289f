"""Collections of this process: files, folders, and who has them."""

import subprocess
import sys
from pathlib import Path

import pytest

import gcws_search
from gcws_search import Collection
from tests.support.paths import REPOSITORY


def test_a_file_is_there_again_with_its_items(tmp_path: Path) -> None:
    path = str(tmp_path / "coffees.sqlite")
    with Collection.open(path, dim=2, transform={"power": 2.0}) as items:
        items.add([[1, 2], [3, 4]])
    with Collection.open(path) as items:
        assert (items.name, items.config.transform.power) == ("coffees", 2.0)
        assert [each.vector for each in items] == [[1, 2], [3, 4]]
    with Collection.open(path, dim=2, transform={"power": 2.0}) as items:
        assert len(items) == 2
    with pytest.raises(gcws_search.CollectionExists):
        Collection.open(path, dim=3)
    with Collection.open(path) as items:
        assert len(items) == 2


def test_files_of_one_folder_are_open_together(tmp_path: Path) -> None:
    with Collection.open(tmp_path / "a.sqlite", dim=1) as a:
        with Collection.open(tmp_path / "b.sqlite", dim=1) as b:
            a.add([[1]])
            b.add([[2], [3]])
            with pytest.raises(gcws_search.CollectionBusy, match="open already"):
                Collection.open(tmp_path / "a.sqlite")
        assert len(a) == 1
        with Collection.open(tmp_path / "b.sqlite") as b:
            assert len(b) == 2
    assert sorted(path.name for path in tmp_path.glob("*.sqlite*")) == ["a.sqlite", "b.sqlite"]


def test_the_folder_of_another_process_is_refused_with_its_name(tmp_path: Path) -> None:
    program = (
        "import sys; from gcws_search import Collection\n"
        f"items = Collection.open({str(tmp_path / 'a.sqlite')!r}, dim=1)\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(gcws_search.DirectoryLocked, match=f"process {other.pid}"):
            Collection.open(tmp_path / "a.sqlite")
        other.communicate("")
    Collection.open(tmp_path / "a.sqlite").close()


def test_paths_that_are_no_collections_are_refused(tmp_path: Path) -> None:
    with pytest.raises(gcws_search.InvalidParameter, match=r"\.sqlite"):
        Collection.open(tmp_path / "coffees.db", dim=4)
    with pytest.raises(gcws_search.InvalidParameter, match="dim"):
        Collection.open(":memory:")
    with pytest.raises(gcws_search.CollectionNotFound):
        Collection.open(tmp_path / "none" / "coffees.sqlite")
    assert not [*tmp_path.iterdir()]
    (tmp_path / "text.sqlite").write_text("no database" * 1000)
    for _ in range(2):  # the folder is free again
        with pytest.raises(gcws_search.DamagedFile):
            Collection.open(tmp_path / "text.sqlite")


def test_what_was_closed_is_closed(tmp_path: Path) -> None:
    items = Collection.open(tmp_path / "a.sqlite", dim=1)
    items.close()
    items.close()
    with pytest.raises(gcws_search.CollectionNotFound):
        items.add([[1]])


def test_memory_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Collection.open(":memory:", dim=1) as first, Collection.open(":memory:", dim=1) as second:
        first.add([[1]])
        assert (len(first), len(second)) == (1, 0)
    assert not [*tmp_path.iterdir()]
