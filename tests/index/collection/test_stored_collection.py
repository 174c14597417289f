"""Collections in memory and on the disk at once: what is written is in both or in neither."""

import signal
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from itertools import islice, pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from gcws_search import index as ix
from tests.support.data.generated import clustered
from tests.support.index.items import (
    DIM,
    SQUARED,
    Make,
    held,
    holding,
    ids_of,
    opened_catalog,
    put,
    put_vectors,
    reopened,
    vector,
)
from tests.support.index.saved_graph import log_limited, opened
from tests.support.waiting_writes import together

# Reading


@pytest.mark.parametrize(("seconds", "complete"), [(60.0, True), (0.0, False)])
def test_a_search_for_a_text_says_whether_its_time_was_enough(
    tmp_path: Path, seconds: float, complete: bool
) -> None:
    with closing(opened_catalog(tmp_path, ix.Policies(find_seconds=seconds))) as catalog:
        stored, _ = catalog.create("things", ix.CollectionConfig(dim=DIM, backend=ix.ExactParams()))
        put(stored, {"a\nb": 1} | {f"i{row}": 1 + row for row in range(1000)})
        assert [each.id for each in stored.find("b").items] == ["a\nb"]  # it is in it
        last = stored.find("999")  # ids that begin with it are looked for in far more rows
        assert last.complete == complete
        assert [each.id for each in last.items] == ["i998", "i999"][: 2 * complete]  # payloads too
        first = stored.find("i1", 3)
        assert first.complete  # there are enough
        assert [each.id for each in first.items] == ["i1", "i10", "i11"]


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "٣", "9" * 19, "9" * 5000, " 1"])
def test_a_cursor_no_page_returned_and_a_page_of_no_items_are_refused(
    stored: ix.StoredCollection, cursor: str
) -> None:
    for asked in ({"cursor": cursor}, {"limit": 0}):
        with pytest.raises(ix.InvalidParameter) as caught:
            stored.page(**asked)
        assert caught.value.loc == (*asked,)


def test_a_page_of_ids_has_those_that_pass_the_filter(stored: ix.StoredCollection) -> None:
    put(stored, {"a": 1, "b": 2, "c": 3})
    where = ix.parse_filter({"must": [{"key": "x", "range": {"gte": 2}}]})
    assert [item.id for item in stored.page(where=where, ids=["c", "a", "absent"]).items] == ["c"]


@pytest.mark.parametrize(("transform", "gone"), [(ix.Transform(), [1, 2]), (SQUARED, [None, 5])])
def test_vectors_of_hits_that_are_gone(
    make: Make, transform: ix.Transform, gone: list[float | None]
) -> None:
    """Where a transform changes vectors, they are as they were sent in the file alone."""
    stored = make(transform=transform)
    put(stored, {"a": 1, "b": 2})
    [result] = stored.search(stored.space.from_items([vector(1)]), ix.SearchParams(recall=1))
    stored.delete(["a"])
    put(stored, {"b": 5})
    assert stored.vectors(result) == [None if x is None else vector(x) for x in gone]


def test_search_methods_are_checked(stored: ix.StoredCollection) -> None:
    put(stored, {"a": 1})
    query = stored.space.from_items([vector(1)])
    assert ids_of(stored.search(query, ix.SearchParams(), backend="exact")[0]) == ["a"]
    with pytest.raises(ix.BackendNotFound):
        stored.search(query, ix.SearchParams(), backend="gcws")
    with pytest.raises(ix.BackendNotFound):
        stored.search_around(["a"], ix.SearchParams(), backend="nrff")[0]


def test_small_payloads_take_little_memory(make: Make) -> None:
    stored = make(backend=ix.ExactParams())
    put(stored, {"first": 1})
    count = 2000
    tracemalloc.start()
    try:
        put(stored, {str(n): n + 1 for n in range(count)})
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 1024 * count  # a payload is of some 10 bytes


# Failing


def test_writes_are_refused_once_memory_may_differ_from_the_file(
    stored: ix.StoredCollection, tmp_path: Path
) -> None:
    put(stored, {"a": 1})
    failing = mock.patch.object(stored.memory, "put", side_effect=MemoryError)
    with failing, pytest.raises(MemoryError):
        put(stored, {"b": 2})
    for write in (lambda: put(stored, {"c": 3}), lambda: stored.delete(["a"])):
        with pytest.raises(ix.DamagedFile, match="opened again"):
            write()
    assert ids_of(stored.search(stored.space.from_items([vector(1)]), ix.SearchParams())[0]) == [
        "a"
    ]
    assert reopened(stored, tmp_path) == holding({"a": 1, "b": 2})


def test_a_closed_collection_is_not_found(make: Make, catalog: ix.Catalog) -> None:
    stored = make(transform=SQUARED)
    put(stored, {"a": 1})
    catalog.drop("things")
    for call in (
        lambda: put(stored, {"b": 1}),
        lambda: stored.delete(["a"]),
        lambda: stored.get("a"),
        lambda: stored.page(with_vector=True),
    ):
        with pytest.raises(ix.CollectionNotFound):
            call()


# Many at once


def while_a_commit_is_waited_for(
    stored: ix.StoredCollection, *calls: Callable[[], object]
) -> tuple[list[object], int]:
    """Make calls that arrive in order during a commit; return what they gave, and the commits."""
    with mock.patch.object(stored.store, "write", wraps=stored.store.write) as commit:
        return together(stored.writer, *calls), commit.call_count


def test_writes_that_wait_for_another_programs_lock_wait_once(
    stored: ix.StoredCollection, tmp_path: Path
) -> None:
    put(stored, {"a": 1})
    stored.store.connection.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(tmp_path / "things.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    results, commits = while_a_commit_is_waited_for(
        stored, lambda: put(stored, {"b": 2}), lambda: put(stored, {"c": 3})
    )
    other.close()
    assert [type(result) for result in results] == [ix.DirectoryLocked, ix.DirectoryLocked]
    assert commits == 1
    assert put(stored, {"d": 4}) == ix.WriteResult(1, 0)
    assert held(stored) == holding({"a": 1, "d": 4})


@pytest.mark.parametrize(("room", "more"), [(0, 1), (20_000, 1), (50_000, 3000)])
def test_a_write_without_space_leaves_nothing_and_later_ones_succeed(
    stored: ix.StoredCollection, tmp_path: Path, room: int, more: int
) -> None:
    put(stored, {"a": 1, "b": 2})
    with log_limited(tmp_path, room):
        with pytest.raises(ix.DiskFull):
            put(stored, {"a": 7.0} | {f"c{n}": n + 7.0 for n in range(more)})
        assert held(stored) == holding({"a": 1, "b": 2})
    query = stored.space.from_items([vector(7)])
    assert held(stored) == holding({"a": 1, "b": 2})
    assert ids_of(stored.search(query, ix.SearchParams(limit=9, recall=1))[0]) == ["b", "a"]
    described = stored.describe()
    assert (described.items, described.rows) == (2, 2)
    assert put(stored, {"a": 3, "c": 4}) == ix.WriteResult(inserted=1, updated=1)
    assert stored.delete(["b"]) == 1
    assert ids_of(stored.search(query, ix.SearchParams(limit=9, recall=1))[0]) == ["c", "a"]
    assert reopened(stored, tmp_path) == held(stored) == holding({"a": 3, "c": 4})


def test_puts_that_wait_are_shown_together(stored: ix.StoredCollection) -> None:
    put(stored, {"a": 1})
    version = stored.memory.view.version
    results, _ = while_a_commit_is_waited_for(
        stored,
        lambda: put(stored, {"a": 2, "b": 2}),
        lambda: put(stored, {"c": 3}, "insert"),
        lambda: put(stored, {"d": 4, "e": 5}),
    )
    assert results == [ix.WriteResult(1, 1), ix.WriteResult(1, 0), ix.WriteResult(2, 0)]
    assert stored.memory.view.version == version + 1
    assert held(stored) == holding({"a": 2, "b": 2, "c": 3, "d": 4, "e": 5})
    assert stored.get("d").vector == vector(4)


class _Interrupting:
    """A lock at which the first to come is interrupted."""

    def __init__(self, lock: Any) -> None:  # noqa: ANN401
        self._lock = lock
        self._interrupts = iter([KeyboardInterrupt])

    def __enter__(self) -> None:
        for interrupt in self._interrupts:
            raise interrupt
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_an_interrupted_write_lets_the_others_go_on(stored: ix.StoredCollection) -> None:
    stored.writer.lock = _Interrupting(stored.writer.lock)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        put(stored, {"a": 1})
    assert put(stored, {"b": 2}) == ix.WriteResult(1, 0)
    assert held(stored) == holding({"a": 1, "b": 2})


def test_ctrl_c_breaks_no_write_off(
    stored: ix.StoredCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, interrupts = stored.store.write, iter([signal.SIGINT] * 3)

    def interrupted(*given: Any) -> None:  # noqa: ANN401
        for interrupt in islice(interrupts, 1):
            signal.raise_signal(interrupt)
        write(*given)

    monkeypatch.setattr(stored.store, "write", interrupted)
    changes: list[Callable[[], object]] = [
        lambda: put(stored, {"a": 1, "b": 2}),
        lambda: stored.delete(["b"]),
        lambda: stored.change_payloads(ix.PayloadChange(b'{"n":1}', merge=True), ["a"]),
    ]
    for change in changes:
        with pytest.raises(KeyboardInterrupt):
            change()
    put(stored, {"c": 3})
    assert [item.id for item in stored.page().items] == ["a", "c"]
    assert stored.get("a").payload == b'{"x":1,"n":1}'


def test_a_restart_holds_one_copy_of_rows_for_scans_and_graph(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    rows, _ = clustered(rng, 7000, 0, dim=64)
    catalog = opened_catalog(tmp_path)
    stored, _ = catalog.create("things", ix.CollectionConfig(dim=64))
    for first, last in pairwise((0, 4200, 7000)):
        put_vectors(stored, rows[first:last], first)
    stored.finish_background_work()
    catalog.close()
    with opened(tmp_path) as again:
        view = again.memory.view
        links = view.state.graph.links
        assert view.vectors.copies is not None
        assert np.shares_memory(links.quantized.copies, view.vectors.copies.codes)
        assert view.state.graph.neighbours.nbytes == links.array.nbytes
