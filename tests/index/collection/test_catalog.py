"""A directory of collections: made, dropped, restarted, shared, and refused to others."""

import os
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from pathlib import Path

import pytest

from gcws_search import index as ix
from tests.support.index.items import fill, opened_catalog
from tests.support.paths import REPOSITORY

EXACT = ix.CollectionConfig(dim=3, backend=ix.ExactParams())


def ids(stored: ix.StoredCollection) -> list[str]:
    return [item.id for item in stored.page(limit=100_000).items]


# Making, finding, dropping


def test_a_collection_is_made_once(catalog: ix.Catalog) -> None:
    first, created = catalog.create("things", EXACT)
    assert created
    assert catalog.create("things", EXACT) == (first, False)
    assert catalog.get("things") is first
    with pytest.raises(ix.CollectionExists):
        catalog.create("things", ix.CollectionConfig(dim=4, backend=ix.ExactParams()))
    with pytest.raises(ix.CollectionNotFound):
        catalog.get("other")


def test_collections_are_listed_by_name(catalog: ix.Catalog) -> None:
    catalog.create("b", ix.CollectionConfig(dim=None))
    fill(catalog.create("a", EXACT)[0], 5)
    lines = [(line.name, line.items, line.dim, line.backends) for line in catalog.list()]
    assert lines == [("a", 5, 3, ["exact"]), ("b", 0, None, ["gcws"])]
    assert all(line.bytes_on_disk > 0 and line.bytes_in_memory > 0 for line in catalog.list())


@pytest.mark.parametrize("name", ["a", "A9", "0", "a.b", "a..b", "a_b-c.sqlite", "x" * 128])
def test_permitted_names(catalog: ix.Catalog, tmp_path: Path, name: str) -> None:
    catalog.create(name, EXACT)
    assert (tmp_path / f"{name}.sqlite").exists()
    catalog.close()
    again = opened_catalog(tmp_path)
    assert [line.name for line in again.list()] == [name]
    again.close()


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".a", "-a", "_a", "a/b", "../a", "a\\b", "a b", "a\n", "ä", "x" * 129, "a\x00"],
)
def test_names_that_could_be_anything_else_are_refused(catalog: ix.Catalog, name: str) -> None:
    with pytest.raises(ix.InvalidParameter) as caught:
        catalog.create(name, EXACT)
    assert caught.value.loc == ("name",)


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_dropped_collection_leaves_no_file_and_its_name_is_free(
    catalog: ix.Catalog, tmp_path: Path, is_removed: bool
) -> None:
    fill(catalog.create("things", EXACT)[0], 10)
    if is_removed:
        (tmp_path / "things.sqlite").unlink()
    catalog.drop("things")
    assert catalog.list() == []
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    for call in (catalog.get, catalog.drop):
        with pytest.raises(ix.CollectionNotFound):
            call("things")
    stored, created = catalog.create("things", ix.CollectionConfig(dim=2))
    assert created
    assert len(stored) == 0


# Restarting


def test_loading_tells_how_far_it_is(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path)
    fill(catalog.create("a", EXACT)[0], 5)
    catalog.create("b", EXACT)
    fill(catalog.create("c", EXACT)[0], 7)
    catalog.create("dropped", EXACT)
    for name in ("a", "dropped"):
        catalog.snapshot(name, "s")
    catalog.drop("dropped")
    catalog.close()

    again = ix.Catalog.open(tmp_path, threads=1)
    with pytest.raises(ix.CollectionLoading):
        again.get("a")
    for call in (
        lambda: again.drop("a"),
        lambda: again.create("a", EXACT),
        lambda: again.restore("a", "s", replace=True),
        lambda: again.restore("dropped", "s"),
    ):
        with pytest.raises(ix.CollectionLoading):
            call()
    assert again.list() == []
    told: list[tuple[str, int, int]] = []
    again.load(lambda *progress: told.append(progress))
    assert told == [("a", 5, 12), ("c", 12, 12)]
    assert [line.items for line in again.list()] == [5, 0, 7]
    again.close()


def test_other_collections_can_be_made_and_used_while_some_load(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path)
    fill(catalog.create("a", EXACT)[0], 5)
    catalog.close()
    again = ix.Catalog.open(tmp_path, threads=1)

    def use(*_: object) -> None:
        fill(again.create("b", EXACT)[0], 3)
        again.drop("b")

    again.load(use)
    assert [line.name for line in again.list()] == ["a"]
    again.close()


def test_a_load_ends_early_when_the_catalog_is_closed(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path)
    for name in ("a", "b"):
        fill(catalog.create(name, EXACT)[0], 5)
    catalog.close()
    again = ix.Catalog.open(tmp_path, threads=1)
    loading, closed = threading.Event(), threading.Event()
    told: list[str] = []

    def progress(name: str, *_: int) -> None:
        told.append(name)
        loading.set()
        assert closed.wait(timeout=60)

    loader = threading.Thread(target=again.load, args=(progress,))
    loader.start()
    assert loading.wait(timeout=60)
    closer = threading.Thread(target=again.close)
    closer.start()
    while not again.closing:
        pass
    closed.set()
    closer.join()
    loader.join()
    assert told == ["a"]
    opened_catalog(tmp_path).close()  # the directory is free


# Two processes


OWN = """
    import sys
    from pathlib import Path
    from gcws_search.index.collection.catalog import Catalog
    catalog = Catalog.open(Path(sys.argv[1]))
    print("open", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_and_told_who_holds_the_directory(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWN), tmp_path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    ) as owner:  # fmt: skip
        assert owner.stdout is not None
        assert owner.stdout.readline() == "open\n"
        with pytest.raises(ix.DirectoryLocked) as caught:
            ix.Catalog.open(tmp_path)
        assert caught.value.holder == f"process {owner.pid} on {socket.gethostname()}"
        assert str(owner.pid) in str(caught.value)
        owner.kill()
    opened_catalog(tmp_path).close()  # a killed owner holds nothing


def test_one_process_cannot_open_a_directory_twice(catalog: ix.Catalog, tmp_path: Path) -> None:
    with pytest.raises(ix.DirectoryLocked, match=f"process {os.getpid()}"):
        ix.Catalog.open(tmp_path)
    catalog.create("things", EXACT)
    with pytest.raises(ix.DirectoryLocked):  # the first attempt has not let go of the lock
        ix.Catalog.open(tmp_path)


def test_a_file_with_two_names_is_refused_until_it_has_one(tmp_path: Path) -> None:
    """Two processes would write to one file: each has a log beside its name."""
    there, here = tmp_path / "there", tmp_path / "here"
    catalog = opened_catalog(there)
    fill(catalog.create("things", EXACT)[0], 5)
    catalog.close()
    here.mkdir()
    file, second = there / "things.sqlite", here / "second.sqlite"
    second.hardlink_to(file)
    for folder, name in ((there, "things"), (here, "second")):
        catalog = opened_catalog(folder)
        with pytest.raises(ix.IncompatibleFile, match="one of 2 names"):
            catalog.get(name)
        catalog.close()
        [report] = ix.check_directory(folder)
        assert ["one of 2 names" in each for each in report.findings] == [True]
    shutil.copy(second, here / "x")
    (here / "x").replace(second)
    for folder, name in ((there, "things"), (here, "second")):
        with closing(opened_catalog(folder)) as catalog:
            assert len(ids(catalog.get(name))) == 5


def test_a_link_to_the_file_of_another_folder_is_refused_and_stays(tmp_path: Path) -> None:
    """Two processes would write to one file: each has a folder of its own."""
    there, here = opened_catalog(tmp_path / "there"), tmp_path / "here"
    fill(there.create("things", EXACT)[0], 5)
    here.mkdir()
    (here / "link.sqlite").symlink_to(tmp_path / "there" / "things.sqlite")
    (here / "loop.sqlite").symlink_to("loop.sqlite")
    other = opened_catalog(here)
    for name in ("link", "loop"):
        with pytest.raises(ix.IncompatibleFile, match="a symbolic link to ") as refused:
            other.get(name)
    other.drop("link")
    other.close()
    [report] = ix.check_directory(here)
    assert report.findings == [str(refused.value)]  # no snapshot is needed
    assert (len(ids(there.get("things"))), [*here.glob("link*")]) == (5, [])
    there.close()
