"""What an index keeps: written between changes, found again, made anew where it is missing."""

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from gcws_search.index import Policies
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.storage.graph_parts import PART_SEQUENCES
from gcws_search.index.storage.store import Store
from tests.support.index.fake_backend import WIDTH, backend_of, lists_of
from tests.support.index.items import held, holding, put
from tests.support.index.policies import compacting_from
from tests.support.index.saved_graph import FILE, Restart, copied, opened, parts_in, read_file, some
from tests.support.pausing import Work

pytestmark = pytest.mark.usefixtures("linking")

LOGGER = "gcws_search.index.collection.checkpoints"
SOON = Policies(checkpoint_rows=100)


def wait_for_checkpoint(stored: StoredCollection) -> None:
    thread = stored.checkpoints.thread
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()


def written_parts(stored: StoredCollection) -> list[int]:
    """Write what is due and return the numbers of the parts that were."""
    writing = mock.patch.object(stored.store, "write_links", wraps=stored.store.write_links)
    with writing as write:
        stored.checkpoints.write_all()
    return [call.args[0] for call in write.call_args_list]


# Closing and opening


def test_a_restart_finds_all_lists_and_notes(linked: StoredCollection, restart: Restart) -> None:
    put(linked, some(2 * PART_SEQUENCES))
    linked.delete([f"i{n}" for n in range(100, 1500)])
    put(linked, some(50, first=120))
    numbers = {"cost": np.float64(0.25), "depths": [np.int32(1), 2], "c": np.arange(2)}
    backend_of(linked).notes = numbers
    before = lists_of(linked)
    with restart() as again:
        # Three rows named only rows that are gone.
        emptied = [name for name, names in before.items() if not names]
        assert backend_of(again).linked == len(emptied)
        assert backend_of(again).notes == {"cost": 0.25, "depths": [1, 2], "c": [0, 1]}
        found = lists_of(again)
        assert found.keys() == before.keys()
        assert all(found[name] == before[name] for name in before.keys() - {"i0", *emptied})


@pytest.mark.parametrize("policies", [compacting_from(10)])
def test_lists_follow_their_rows_through_a_compaction(
    linked: StoredCollection, restart: Restart
) -> None:
    put(linked, some(90))
    linked.delete([f"i{n}" for n in range(90) if n % 3])
    before = lists_of(linked)
    assert len(linked.memory.view) == 30
    with restart() as again:
        assert backend_of(again).linked == 0
        assert lists_of(again) == before


def test_an_index_that_keeps_nothing_leaves_nothing(
    linked: StoredCollection, catalog: Catalog, tmp_path: Path
) -> None:
    put(linked, some(10))
    linked.checkpoints.write_all()
    backend_of(linked).keeps = False
    put(linked, some(1, first=10))
    catalog.close()
    with closing(Store(tmp_path / FILE, "things")) as store:
        assert [*store.links()] == []
        assert store.meta("notes") is None


def test_only_parts_that_changed_are_written_again(
    linked: StoredCollection, restart: Restart
) -> None:
    put(linked, some(3 * PART_SEQUENCES))
    assert written_parts(linked) == [0, 1, 2, 3]
    assert written_parts(linked) == []
    put(linked, {"x": 1.0})  # the first row names it
    assert written_parts(linked) == [0, 3]
    with restart() as again:
        assert written_parts(again) == []


def test_new_notes_tell_of_lists_changed_without_a_write(linked: StoredCollection) -> None:
    put(linked, some(3 * PART_SEQUENCES))
    linked.checkpoints.write_all()
    backend, view = backend_of(linked), linked.memory.view
    view.state.links[PART_SEQUENCES] = view.state.links[0]
    backend.notes = {"cost": 0.125}
    assert written_parts(linked) == [1]


def test_parts_whose_items_are_gone_are_removed_after_the_next_start(
    linked: StoredCollection, catalog: Catalog, tmp_path: Path
) -> None:
    """Their lists tell that start what was behind them."""
    put(linked, some(3 * PART_SEQUENCES))
    linked.delete([f"i{n}" for n in range(PART_SEQUENCES - 1, 2 * PART_SEQUENCES - 1)])
    catalog.close()
    assert parts_in(tmp_path) == [0, 1, 2, 3]
    with opened(tmp_path) as again:
        put(again, {"new": 1.0})
    assert parts_in(tmp_path) == [0, 2, 3]


def test_items_deleted_before_anything_was_written_are_bridged(
    linked: StoredCollection, restart: Restart
) -> None:
    put(linked, some(20))
    linked.delete([f"i{n}" for n in range(10, 15)])
    with restart() as again:
        found = lists_of(again)
        assert found["i15"] == ["i9", "i8", "i7"]
        assert found["i16"] == ["i15", "i9", "i8"]
        assert backend_of(again).linked == 0


def test_a_dropped_collection_is_not_written_first(
    linked: StoredCollection, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(linked, some(10))
    monkeypatch.setattr(linked.checkpoints, "write_all", lambda: pytest.fail("written"))
    catalog.drop("things")


# In between


@pytest.mark.parametrize("policies", [SOON])
def test_lists_are_written_once_many_rows_have_been_put(
    linked: StoredCollection, tmp_path: Path
) -> None:
    put(linked, some(100))
    assert linked.checkpoints.thread is None
    put(linked, some(1, first=100))
    wait_for_checkpoint(linked)
    put(linked, some(20, first=101))
    with opened(copied(tmp_path, tmp_path / "copy")) as again:
        assert backend_of(again).linked == 20
        lists = lists_of(linked)
        del lists["i0"]  # has been changed by each row since
        found = lists_of(again)
        assert {name: found[name] for name in lists} == lists
        assert held(again) == holding(some(121))


@pytest.mark.parametrize("policies", [SOON])
def test_a_share_of_a_large_collection_is_waited_for(linked: StoredCollection) -> None:
    put(linked, some(1000))
    wait_for_checkpoint(linked)
    first = linked.checkpoints.thread
    put(linked, some(300, first=1000))
    assert linked.checkpoints.thread is first
    put(linked, some(50, first=1300))
    assert linked.checkpoints.thread is not first
    wait_for_checkpoint(linked)


def test_lists_made_at_a_start_are_written_soon(linked: StoredCollection, tmp_path: Path) -> None:
    put(linked, some(150))
    with opened(copied(tmp_path, tmp_path / "copy"), SOON) as again:
        assert backend_of(again).linked == 150
        wait_for_checkpoint(again)
        with opened(copied(tmp_path / "copy", tmp_path / "later")) as later:
            assert backend_of(later).linked == 0


class _Between(threading.Event):
    """An event that does some work whenever it is waited for."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self._work = work

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        self._work()
        return self.is_set()


def checkpoint_with(stored: StoredCollection, between: Callable[[], None]) -> None:
    """Write what is due as in the background, with some work before each step."""
    stored.checkpoints.stopping = _Between(between)
    stored.checkpoints.step()
    stored.checkpoints.stopping = threading.Event()


def test_items_are_put_between_two_parts(linked: StoredCollection, restart: Restart) -> None:
    put(linked, some(4 * PART_SEQUENCES))
    turns = count(1)

    def change() -> None:
        turn = next(turns)
        linked.delete([f"i{turn * 700 + n}" for n in range(5)])
        put(linked, {f"x{turn}": 1.0, f"i{turn}": 2.0})

    checkpoint_with(linked, change)
    turn = next(turns) - 1
    assert turn == 6  # the notes, and a part each
    before = lists_of(linked)
    with restart() as again:
        found = lists_of(again)
        assert found.keys() == before.keys()
        same = [name for name in before if found[name][: len(before[name])] == before[name]]
        assert len(same) >= len(before) - backend_of(again).linked - 1
        assert backend_of(again).linked <= 3 * turn


def test_what_is_put_during_the_last_part_is_written_at_the_end(
    linked: StoredCollection, restart: Restart
) -> None:
    put(linked, some(2 * PART_SEQUENCES - 1))
    turns = count(1)

    def change() -> None:
        if next(turns) == 3:  # the notes, the first part, the last one
            put(linked, some(PART_SEQUENCES, first=2 * PART_SEQUENCES))

    checkpoint_with(linked, change)
    assert next(turns) == 4
    before = lists_of(linked)
    with restart() as again:
        assert backend_of(again).linked == 0
        assert lists_of(again) == before


def test_a_compaction_between_two_parts_mixes_nothing_up(
    linked: StoredCollection, catalog: Catalog, tmp_path: Path
) -> None:
    put(linked, some(4 * PART_SEQUENCES))
    copies: list[Path] = []

    def change() -> None:
        if len(copies) == 2:
            linked.delete([f"i{n}" for n in range(1, 4 * PART_SEQUENCES) if n % 64 > 8])
            linked.memory.compact()
        copies.append(copied(tmp_path, tmp_path / f"copy{len(copies)}"))

    checkpoint_with(linked, change)
    assert len(linked.memory.view) == linked.memory.view.count
    expected = lists_of(linked)
    for copy in copies[2:]:
        with opened(copy) as again:
            right = {name: names for name, names in expected.items() if len(names) == WIDTH}
            right.pop("i0", None)
            kept = {name: names for name, names in lists_of(again).items() if name in right}
            assert kept == right


def test_a_kill_between_two_parts_leaves_older_and_newer_ones(
    linked: StoredCollection, tmp_path: Path
) -> None:
    put(linked, some(3 * PART_SEQUENCES))
    linked.checkpoints.write_all()
    for n in range(3):
        linked.delete([f"i{n * PART_SEQUENCES + 500}"])
        put(linked, some(5, first=4 * PART_SEQUENCES + 5 * n))
    before = lists_of(linked)
    copies: list[Path] = []
    checkpoint_with(
        linked, lambda: copies.append(copied(tmp_path, tmp_path / f"copy{len(copies)}"))
    )
    copies.append(copied(tmp_path, tmp_path / "last"))
    assert len(copies) == 6
    made = []
    for copy in copies:
        with opened(copy) as again:
            made.append(backend_of(again).linked)
            found = lists_of(again)
            assert found.keys() == before.keys()
            for name in before.keys() - {"i0"}:
                assert found[name][: len(before[name])] == before[name]
            assert held(again) == held(linked)
    assert made == [15, 15, 15, 15, 15, 0]


def test_stopping_does_not_wait_for_all_parts(linked: StoredCollection) -> None:
    put(linked, some(3 * PART_SEQUENCES))
    steps: list[int] = []

    def stop() -> None:
        steps.append(1)
        linked.checkpoints.stopping.set()

    checkpoint_with(linked, stop)
    assert steps == [1]
    assert written_parts(linked) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "policies", [Policies(checkpoint_rows=50, checkpoint_share=1000, min_dead=200)]
)
def test_lists_are_written_while_many_threads_write(
    linked: StoredCollection, catalog: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    put(linked, some(2 * PART_SEQUENCES))

    def write(thread: int) -> None:
        for turn in range(60):
            put(linked, {f"{thread}.{turn % 7}.{n}": n + 1 for n in range(20)})
            if turn % 6 == 5:
                linked.delete([f"i{thread * 600 + turn * 10 + n}" for n in range(60)])

    for writer in [Work(partial(write, thread)) for thread in range(3)]:
        writer.join()
    # Rows that came while a compaction ran have no lists until it ends.
    linked.finish_background_work()
    items, lists = held(linked), lists_of(linked)
    catalog.close()
    assert caplog.messages == []
    with opened(tmp_path) as again:
        assert held(again) == items
        found = lists_of(again)
        # Rows that come while a compaction runs are linked again in memory: the file has more.
        lost = [name for name in lists if name != "i0" and not {*lists[name]} <= {*found[name]}]
        # A row lost its list if all it named were put anew or deleted: the first of a batch of 20
        # at most, and the first after each run of 60.
        assert len(lost) <= backend_of(again).linked <= 3 * 7 + 3 * 10


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
    restart: Restart,
    caplog: pytest.LogCaptureFixture,
    damage: str,
    missing: int,
) -> None:
    put(linked, some(2 * PART_SEQUENCES + 1))
    caplog.set_level(logging.WARNING, LOGGER)
    with restart(damage) as again:
        assert backend_of(again).linked == missing
        assert held(again) == holding(some(2 * PART_SEQUENCES + 1))
    assert len(caplog.messages) == ("UPDATE" in damage)
    caplog.clear()
    with restart() as again:
        assert backend_of(again).linked == 0
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("value", "arguments"),
    [("?", [text]) for text in ("", "{", "[1]", "7", "{}")]
    + [
        ("replace(value, ?, ?)", change) for change in (["0.75", "0.74"], ["[3]", "[2]"], ["}", ""])
    ],
)
def test_notes_that_are_unreadable_or_changed_by_a_character_are_no_notes(
    linked: StoredCollection,
    restart: Restart,
    caplog: pytest.LogCaptureFixture,
    value: str,
    arguments: list[str],
) -> None:
    put(linked, some(5))
    backend_of(linked).notes = {"a": 0.75, "b": [3]}
    caplog.set_level(logging.WARNING, LOGGER)
    with restart(f"UPDATE meta SET value = {value} WHERE name = 'notes'", *arguments) as again:
        assert backend_of(again).linked == 0
        assert backend_of(again).notes == {"cost": 0.5}
    assert "notes are rebuilt" in caplog.text
    with restart() as again:
        assert str(again.store.meta("notes")).endswith(' {"cost":0.5}')


def test_pages_of_lists_that_cannot_be_read_do_not_keep_items_away(
    linked: StoredCollection, catalog: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(linked, some(3 * PART_SEQUENCES))
    catalog.close()
    [[page]] = read_file(tmp_path, "SELECT rootpage FROM sqlite_schema WHERE name = 'links'")
    with (tmp_path / FILE).open("r+b") as file:
        file.seek((page - 1) * 8192)
        file.write(b"\xff" * 8192)
    caplog.set_level(logging.WARNING, LOGGER)
    with opened(tmp_path) as again:
        assert held(again) == holding(some(3 * PART_SEQUENCES))
        put(again, {"x": 1.0})
    assert len(caplog.messages) == 2  # at the start, and when it was closed


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
    linked: StoredCollection, restart: Restart
) -> None:
    put(linked, some(5))
    failing = mock.patch.object(linked.memory, "put", side_effect=MemoryError)
    with failing, pytest.raises(MemoryError):
        put(linked, {"b": 2})
    linked.checkpoints.step()
    with restart() as again:
        assert backend_of(again).linked == 6
