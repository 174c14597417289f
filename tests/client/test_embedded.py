"""Collections of this process: files, folders, and who has them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gcws_search
from gcws_search import Collection
from gcws_search.formats.stores import place_of
from gcws_search.index import StoredCollection
from gcws_search.service.settings import Settings
from tests.support.processes import run_python, running_python


def test_a_file_is_there_again_with_its_items(tmp_path: Path) -> None:
    path, transform = str(tmp_path / "coffees.sqlite"), {"power": 2.0}
    with Collection.open(path, dim=2, transform=transform) as items:
        items.add([[1, 2], [3, 4]])
    with pytest.raises(gcws_search.CollectionExists, match="exists with dim 2, not 3"):
        Collection.open(path, dim=3)
    configs: list[dict[str, Any]] = [{}, {"dim": 2, "transform": transform}]
    for config in configs:
        with Collection.open(path, **config) as items:
            assert (items.name, items.config.transform.power) == ("coffees", 2.0)
            assert [each.vector for each in items] == [[1, 2], [3, 4]]
            assert ("0" in items, "2" in items) == (True, False)


def test_files_of_one_folder_are_open_together(tmp_path: Path) -> None:
    with Collection.open(tmp_path / "a.sqlite", dim=1) as a:
        with Collection.open(tmp_path / "b.sqlite", dim=1) as b:
            a.add([[1]])
            b.add([[2], [3]])
        assert len(a) == 1
        with Collection.open(tmp_path / "b.sqlite") as b:
            assert len(b) == 2
    assert sorted(path.name for path in tmp_path.glob("*.sqlite*")) == ["a.sqlite", "b.sqlite"]


def test_a_file_that_is_opened_again_is_the_same_collection(tmp_path: Path) -> None:
    """As by a cell of a notebook that runs twice: nobody closed what it opened before."""
    path, lock = tmp_path / "a.sqlite", tmp_path / "lock"
    items = Collection.open(path, dim=1)
    items.add([[1]])
    other = Collection.open(str(path), dim=1)
    assert len(other) == 1
    other.add([[2]])
    assert len(items) == 2
    with pytest.raises(gcws_search.CollectionExists):
        Collection.open(path, dim=2)
    assert len(items) == 2
    other.close()
    other.close()
    assert len(items) == 2
    with pytest.raises(gcws_search.CollectionNotFound):
        other.count()
    for _ in range(3):
        items = Collection.open(path, dim=1)  # and what it was is not closed
        items.add([[3]])
    items.close()
    assert not is_locked(lock)
    with Collection.open(path) as items:
        assert len(items) == 5
        assert is_locked(lock)
    assert not is_locked(lock)


def is_locked(lock: Path) -> bool:
    """Return whether the folder is open: its lock names the process that has it."""
    return bool(lock.read_bytes())


def test_a_file_holds_no_parameters_that_it_is_not_opened_with(tmp_path: Path) -> None:
    for wrong in (2.0, 1.5, np.float64(2)):
        with pytest.raises(gcws_search.InvalidParameter, match="seed: expected a whole number"):
            gcws_search.GcwsParams(seed=wrong)  # type: ignore[arg-type]
    given: list[dict[str, Any]] = [
        {"dim": None, "text": gcws_search.TextParams(lowercase="no")},  # type: ignore[arg-type]
        {"dim": None, "text": gcws_search.TextParams(stop_words=("\ud800",))},
        {"dim": 4, "transform": gcws_search.Transform(center=(0.0, 1.0))},
    ]
    for each in given:
        with pytest.raises(gcws_search.InvalidParameter):
            Collection.open(tmp_path / "wrong.sqlite", **each)
    assert not [*tmp_path.iterdir()]
    params = gcws_search.GcwsParams(seed=np.uint8(3), bits=np.int64(8))  # type: ignore[arg-type]
    place, ttl = tmp_path / "a.sqlite", np.float32(60)
    with Collection.open(place, dim=2, backend=params, ttl=ttl) as items:  # type: ignore[arg-type]
        items.add([[1, 2]])
    with Collection.open(place) as items:
        assert items.config.backend == gcws_search.GcwsParams(seed=3, bits=8)
        assert (items.config.ttl, len(items)) == (60, 1)


def test_a_link_to_a_file_opens_that_file(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link.sqlite"
    link.symlink_to(tmp_path / "a.sqlite")
    with Collection.open(link, dim=1) as items, Collection.open(tmp_path / "a.sqlite") as same:
        items.add([[1]])
        assert (items.name, len(same)) == ("a", 1)
    assert link.is_symlink()
    loop = tmp_path / "loop.sqlite"
    loop.symlink_to(loop)
    with pytest.raises(gcws_search.CollectionNotFound):
        Collection.open(loop)


def test_the_folder_of_another_process_is_refused_with_its_name(tmp_path: Path) -> None:
    text = (
        "import sys; from gcws_search import Collection\n"
        "items = Collection.open(sys.argv[1], dim=1)\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    with running_python(text, str(tmp_path / "a.sqlite"), says="open") as other:
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


@pytest.mark.parametrize("place", ["a.sqlite", ":memory:"])
def test_what_was_closed_is_closed(tmp_path: Path, place: str) -> None:
    items = Collection.open(place if place == ":memory:" else tmp_path / place, dim=1)
    items.add([[1]])
    items.close()
    items.close()
    asked: list[Callable[[], object]] = [
        lambda: items.add([[1]]), lambda: items.query([1]), lambda: items.query_many([[1]]),
        lambda: items.get("0"), lambda: items.explain("0", "0"), items.describe, items.count,
    ]  # fmt: skip
    for ask in asked:
        with pytest.raises(gcws_search.CollectionNotFound) as raised:
            ask()
        assert (str(tmp_path / place) in str(raised.value)) == (place != ":memory:")


def test_a_file_that_is_not_there_is_answered_with_what_to_do(tmp_path: Path) -> None:
    with Collection.open(tmp_path / "coffees.sqlite", dim=1):
        for name, meant in (("cofees", "'coffees'"), ("tea", "")):
            with pytest.raises(gcws_search.CollectionNotFound) as raised:
                Collection.open(tmp_path / f"{name}.sqlite")
            assert str(tmp_path / f"{name}.sqlite") in str(raised.value)
            assert meant in str(raised.value)
            assert ("coffees" in str(raised.value)) == bool(meant)


_IN_MEMORY = """
import resource, signal
import numpy as np
from gcws_search import Collection
from gcws_search.formats.stores import place_of
from gcws_search.index import StoredCollection
from gcws_search.service.settings import Settings

def work():
    X = np.random.default_rng(1).normal(size=(2500, 8))
    with Collection.open(":memory:", dim=8) as items:
        items.add(X, payloads={"label": [*range(2500)]})
        items.set_names([*"abc"])
        items.add(X[:1500] + 1, id_start=0, payloads=[{"text": "x" * 9000}] * 1500)
        items.delete([str(each) for each in range(500)])
        items.index.finish_background_work()
        items.query_many(X[:100])
        items.query(X[0], where={"label": 2000})
        items.pairs(min_score=0.99)
        assert [len(items), items.names()] == [2000, {0: "a", 1: "b", 2: "c"}]
        assert sum(1 for _ in items) == 2000
        assert items.describe()["bytes_on_disk"] == 0

work()  # compiles what is not compiled yet
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
work()
print("no byte was written")
"""


@pytest.mark.slow
def test_memory_needs_no_disk() -> None:
    found = run_python("-B", "-c", _IN_MEMORY)
    assert (found.stdout, found.stderr) == ("no byte was written\n", "")


def test_a_memory_can_be_copied_to_a_file(tmp_path: Path) -> None:
    with Collection.open(":memory:", dim=2) as items:
        items.add([[1, 2], [3, 4]], payloads={"label": [1, 2]})
        items.index.copy_to(tmp_path / "copy.sqlite")
        expected = [*items]
        with Collection.open(":memory:", dim=2) as other:  # memories are apart
            assert len(other) == 0
    with Collection.open(tmp_path / "copy.sqlite") as copy:
        assert [*copy] == expected


def test_known_rows_of_a_batch_are_found_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is hashed a few times, however many of its rows are left out."""
    prepare, calls = StoredCollection.prepare, []

    def counted(*given: Any, **named: Any) -> Any:  # noqa: ANN401
        calls.append(given)
        return prepare(*given, **named)

    monkeypatch.setattr(StoredCollection, "prepare", counted)
    with Collection.open(":memory:", dim=1) as items:
        items.add([[1]] * 90, id_start=0)
        calls.clear()
        ids = [*map(str, range(95)), "93", "94"]
        added = items.add([[1]] * 97, ids=ids, mode="insert", on_error="skip")
        assert added.inserted == len(items) - 90 == 5
        assert [each.row for each in added.rejected] == [*range(90), 95, 96]
        assert len(calls) < 5


def test_a_file_has_each_item_once_though_all_are_put_again_meanwhile(tmp_path: Path) -> None:
    ids = [f"i{n}" for n in range(2500)]
    with Collection.open(tmp_path / "a.sqlite", dim=1) as items:
        items.add(np.ones((2500, 1)), ids=ids)

        def put_again(_: int) -> None:
            items.add(np.ones((2500, 1)), ids=ids)

        assert items.export(tmp_path / "a.ndjson", progress=put_again) == 2500
    lines = (tmp_path / "a.ndjson").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ids


def test_a_tilde_is_the_home_of_whoever_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    Collection.open("~/a.sqlite", dim=2).close()
    assert (tmp_path / "a.sqlite").exists()
    assert place_of("~/rows.csv") == tmp_path / "rows.csv"
    assert Settings(data_dir="~/data").data_dir == tmp_path / "data"  # type: ignore[arg-type]
    assert place_of("~nobody.csv") == Path("~nobody.csv")
