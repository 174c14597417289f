"""New items that the next reader appends: every way to read finds them."""

import threading
from typing import Any

import numpy as np
import pytest

from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.collection.writer import WriteResult
from gcws_search.index.contracts.errors import ItemExists
from gcws_search.index.contracts.parameters import GcwsParams, SearchParams
from tests.support.index.items import Make, held, holding, ids_of, put, vector

ALL = SearchParams(limit=100, recall=1)


@pytest.fixture
def settled(make: Make, monkeypatch: pytest.MonkeyPatch) -> StoredCollection:
    """Return a collection of two items in memory, whose index nobody improves any more."""
    stored = make(backend=GcwsParams(bands=2))
    put(stored, {"a": 1, "b": 2})
    stored.finish_background_work()
    monkeypatch.setattr(stored.memory.backend, "can_defer", lambda *_: True)
    monkeypatch.setattr(stored.optimizer, "start", lambda: None)
    return stored


@pytest.fixture
def waiting(settled: StoredCollection) -> StoredCollection:
    """Return a collection of two items in a view and three pending ones."""
    stored = settled
    put(stored, {"c": 3, "d": 4})
    put(stored, {"e": 5})
    assert stored.memory.pending_count == 3
    return stored


def found(stored: StoredCollection, x: float) -> list[str]:
    return ids_of(stored.search(stored.space.from_items([vector(x)]), ALL)[0])


def test_a_search_finds_pending_items(waiting: StoredCollection) -> None:
    assert found(waiting, 5) == ["e", "d", "c", "b", "a"]


def test_pending_items_are_counted_without_being_appended(waiting: StoredCollection) -> None:
    assert waiting.memory.count == 5
    assert waiting.memory.pending_count == 3
    assert len(waiting) == 5


def test_the_room_of_the_delta_is_judged_with_all_pending_items(
    settled: StoredCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = []

    def can_defer(_state: object, _vectors: object, count: int, numbers: int) -> bool:
        judged.append((count, numbers))
        return True

    monkeypatch.setattr(settled.memory.backend, "can_defer", can_defer)
    put(settled, {"c": 3})
    put(settled, {"d": 4, "e": 5})
    (_, each), _ = judged
    assert each > 0
    assert judged == [(1, each), (3, 3 * each)]


def test_each_way_to_read_finds_pending_items(waiting: StoredCollection) -> None:
    memory = waiting.memory
    assert memory.locate("e")[1] == 4
    put(waiting, {"f": 6})
    assert memory.rows_of(["f", "absent"]) == [5]
    put(waiting, {"g": 7})
    assert waiting.get("g").vector == vector(7)
    put(waiting, {"h": 8})
    assert waiting.describe().items == 8
    assert held(waiting) == holding(dict(zip("abcdefgh", range(1, 9), strict=True)))


def test_writes_know_of_pending_items(waiting: StoredCollection) -> None:
    with pytest.raises(ItemExists):
        put(waiting, {"d": 7}, "insert")
    put(waiting, {"f": 6})
    assert put(waiting, {"f": 7, "g": 8}) == WriteResult(inserted=1, updated=1)
    put(waiting, {"h": 9})
    assert waiting.delete(["h", "a"]) == 2
    assert found(waiting, 8) == ["g", "f", "e", "d", "c", "b"]


def test_at_most_32_items_are_pending_and_keys_stay_in_order(settled: StoredCollection) -> None:
    stored, most = settled, 0
    for n in range(100):
        put(stored, {f"i{n}": n + 1})
        most = max(most, stored.memory.pending_count)
    assert 1 < most <= 32
    keys = stored.memory.view.sequences
    assert keys.tolist() == sorted(keys.tolist())
    assert held(stored) == holding({"a": 1, "b": 2} | {f"i{n}": n + 1 for n in range(100)})


def test_a_reader_that_fails_to_append_leaves_items_to_the_next(
    waiting: StoredCollection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(waiting.memory.backend, "extend", fail)
    for _ in range(2):
        with pytest.raises(MemoryError):
            found(waiting, 5)
    monkeypatch.undo()
    assert found(waiting, 5) == ["e", "d", "c", "b", "a"]
    assert waiting.describe().rows == 5


def test_concurrent_readers_append_items_once(waiting: StoredCollection) -> None:
    memory: Any = waiting.memory
    version = memory.published.version
    begun, entering, extend = threading.Barrier(5), threading.Semaphore(0), memory.backend.extend
    calls: list[int] = []

    def counted(*arguments: Any) -> object:  # noqa: ANN401
        calls.append(1)
        if len(calls) == 1:  # the others come while items are taken in
            for _ in range(5):
                assert entering.acquire(timeout=60)
        return extend(*arguments)

    memory.backend.extend = counted
    seen: list[int] = []

    def read() -> None:
        begun.wait(60)
        entering.release()
        seen.append(len(memory.view))

    threads = [threading.Thread(target=read) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (seen, calls) == ([5] * 5, [1])
    assert memory.view.version == version + 1


def test_vectors_that_were_pending_are_scored_as_others(
    settled: StoredCollection, rng: np.random.Generator
) -> None:
    stored, values = settled, {"a": 1.0, "b": 2.0}
    for n, x in enumerate(rng.uniform(0.1, 9, 50)):
        put(stored, {f"i{n}": float(x)})
        values[f"i{n}"] = float(x)
    hits = stored.search(stored.space.from_items([vector(2.5)]), ALL)[0]
    assert dict(zip(hits.ids, hits.scores, strict=True)) == {
        item_id: pytest.approx(_gmm(x, 2.5)) for item_id, x in values.items()
    }


def _gmm(x: float, y: float) -> float:
    return (min(x, y) + 3) / (max(x, y) + 3)
