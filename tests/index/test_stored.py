"""Collections in memory and on the disk at once: what is written is in both or in neither."""

import resource
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from index.catalog import Catalog
from index.collection import ItemBatch, QueryResult
from index.errors import (
    BackendNotFound,
    CollectionNotFound,
    DamagedFile,
    DiskFull,
    InvalidId,
    InvalidParameter,
    InvalidVector,
    ItemExists,
    ItemNotFound,
)
from index.filters import parse_filter
from index.hashing import Signatures
from index.params import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    GcwsParams,
    SearchParams,
    Transform,
)
from index.payloads import encode_payload
from index.stored import StoredCollection, StoredItem
from index.vectors import SparseVector
from index.writes import GROUP_ROWS, WriteResult

DIM = 4
SQUARED = Transform(power=2.0)


def vector(x: float) -> list[float]:
    return [x, 1.0, 0.0, -2.0]


def batch(stored: StoredCollection, ids: list[str], values: list[float]) -> ItemBatch:
    payloads = [encode_payload({"x": x}) for x in values]
    return ItemBatch(ids, stored.space.from_items([vector(x) for x in values]), payloads)


def put(stored: StoredCollection, values: Mapping[str, float], mode: Any = "upsert") -> WriteResult:  # noqa: ANN401
    return stored.put(batch(stored, list(values), list(values.values())), mode)


def held(stored: StoredCollection) -> dict[str, tuple[object, bytes | None]]:
    items = stored.page(limit=10_000, with_vector=True).items
    return {item.id: (item.vector, item.payload) for item in items}


def holding(values: Mapping[str, float]) -> dict[str, tuple[object, bytes | None]]:
    return {item_id: (vector(x), encode_payload({"x": x})) for item_id, x in values.items()}


def ids_of(result: QueryResult) -> list[str]:
    return [hit.id for hit in result.hits]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog.open(tmp_path, threads=1)
    opened.load()
    yield opened
    opened.close()


Make = Callable[..., StoredCollection]


@pytest.fixture
def make(catalog: Catalog) -> Make:
    def make(
        *, backend: BackendParams | None = None, transform: Transform | None = None
    ) -> StoredCollection:
        config = CollectionConfig(
            dim=DIM, backend=backend or ExactParams(), transform=transform or Transform()
        )
        return catalog.create("things", config)[0]

    return make


@pytest.fixture(params=[Transform(), SQUARED], ids=["as sent", "squared"])
def stored(request: pytest.FixtureRequest, make: Make) -> StoredCollection:
    return make(transform=request.param)


# Writing


def test_items_are_inserted_and_updated(stored: StoredCollection) -> None:
    assert put(stored, {"a": 1, "b": 2}) == WriteResult(inserted=2, updated=0)
    assert put(stored, {"b": 3, "c": 4}) == WriteResult(inserted=1, updated=1)
    assert held(stored) == holding({"a": 1, "b": 3, "c": 4})
    assert len(stored) == 3


def test_of_equal_ids_in_one_batch_the_last_is_put(stored: StoredCollection) -> None:
    put(stored, {"b": 9})
    result = stored.put(batch(stored, ["a", "b", "a", "c", "b"], [1, 2, 3, 4, 5]))
    assert result == WriteResult(inserted=2, updated=1)
    assert held(stored) == holding({"a": 3, "c": 4, "b": 5})
    assert list(held(stored)) == ["a", "c", "b"]


def test_an_insert_of_an_existing_item_changes_nothing(stored: StoredCollection) -> None:
    put(stored, {"b": 2})
    with pytest.raises(ItemExists) as caught:
        put(stored, {"a": 1, "b": 3, "c": 4}, "insert")
    assert (caught.value.item_id, caught.value.row) == ("b", 1)
    assert held(stored) == holding({"b": 2})
    assert put(stored, {"a": 1, "c": 4}, "insert") == WriteResult(inserted=2, updated=0)


def test_an_insert_of_one_id_twice_changes_nothing(stored: StoredCollection) -> None:
    with pytest.raises(ItemExists) as caught:
        stored.put(batch(stored, ["a", "b", "c", "b"], [1, 2, 3, 4]), "insert")
    assert (caught.value.item_id, caught.value.row) == ("b", 3)
    assert len(stored) == 0


def test_a_deleted_item_can_be_put_again(stored: StoredCollection) -> None:
    put(stored, {"a": 1, "b": 2})
    assert stored.delete(["a", "absent", "a"]) == 1
    assert stored.delete(["a"]) == 0
    assert put(stored, {"a": 3}, "insert") == WriteResult(inserted=1, updated=0)
    assert held(stored) == holding({"b": 2, "a": 3})


def test_items_are_deleted_by_filter(stored: StoredCollection) -> None:
    put(stored, {f"i{n}": n for n in range(1, 10)})
    where = parse_filter({"must": [{"key": "x", "range": {"gt": 3}}]})
    assert stored.delete_where(where) == 6
    assert stored.delete_where(where) == 0
    assert held(stored) == holding({"i1": 1, "i2": 2, "i3": 3})


def test_nothing_put_or_deleted_is_no_write(stored: StoredCollection) -> None:
    assert stored.put(batch(stored, [], [])) == WriteResult(inserted=0, updated=0)
    assert stored.delete([]) == 0
    assert len(stored) == 0


def test_bad_ids_and_vectors_are_refused_whole(make: Make) -> None:
    stored = make(transform=Transform(power=64.0))
    with pytest.raises(InvalidId) as bad_id:
        put(stored, {"a": 1, "": 2})
    assert bad_id.value.loc == (1, "id")
    vanishing = stored.space.from_items([vector(1), [1e-30, 0, 0, 0]])
    with pytest.raises(InvalidVector) as bad_vector:
        stored.put(ItemBatch(["a", "b"], vanishing, [None, None]))
    assert bad_vector.value.loc == (1,)
    assert len(stored) == 0


# Reading


def test_an_item_is_got_as_it_was_sent(stored: StoredCollection) -> None:
    put(stored, {"a": 1})
    assert stored.get("a") == StoredItem("a", vector(1), b'{"x":1}')
    put(stored, {"a": 0.1})
    x = float(np.float32(0.1))
    assert stored.get("a") == StoredItem("a", vector(x), b'{"x":0.1}')
    stored.delete(["a"])
    with pytest.raises(ItemNotFound):
        stored.get("a")


def test_pages_cover_all_items_in_order(stored: StoredCollection) -> None:
    put(stored, {f"i{n}": n + 1 for n in range(10)})
    stored.delete(["i3", "i4"])
    put(stored, {"i0": 1})
    for with_vector in (False, True):
        seen, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            page = stored.page(limit=4, cursor=cursor, with_vector=with_vector)
            assert all((item.vector is not None) == with_vector for item in page.items)
            seen += [item.id for item in page.items]
            cursor, pages = page.next_cursor, pages + 1
        assert seen == ["i1", "i2", "i5", "i6", "i7", "i8", "i9", "i0"]
        assert pages == 2


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "٣", "9" * 19, "9" * 5000, " 1"])
def test_a_cursor_no_page_returned_is_refused(stored: StoredCollection, cursor: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        stored.page(cursor=cursor)
    assert caught.value.loc == ("cursor",)


def test_a_page_of_no_items_is_refused(stored: StoredCollection) -> None:
    with pytest.raises(InvalidParameter):
        stored.page(limit=0)


def test_hits_bring_payloads_and_vectors_as_sent(stored: StoredCollection) -> None:
    put(stored, {"a": 1, "b": 2, "c": 3})
    query = stored.space.from_items([vector(1)])
    [result] = stored.search(query, SearchParams(limit=2, recall=1))
    assert ids_of(result) == ["a", "b"]
    assert [hit.payload for hit in result.hits] == [b'{"x":1}', b'{"x":2}']
    assert stored.vectors(result.hits) == [vector(1), vector(2)]


def test_vectors_of_hits_that_are_gone(make: Make) -> None:
    stored = make()
    put(stored, {"a": 1, "b": 2})
    [result] = stored.search(stored.space.from_items([vector(1)]), SearchParams(recall=1))
    stored.delete(["a"])
    put(stored, {"b": 5})
    assert stored.vectors(result.hits) == [vector(1), vector(2)]


def test_vectors_of_hits_that_are_gone_from_a_transformed_collection(make: Make) -> None:
    stored = make(transform=SQUARED)
    put(stored, {"a": 1, "b": 2})
    [result] = stored.search(stored.space.from_items([vector(1)]), SearchParams(recall=1))
    stored.delete(["a"])
    put(stored, {"b": 5})
    assert stored.vectors(result.hits) == [None, vector(5)]


def test_a_filter_limits_what_is_found(stored: StoredCollection) -> None:
    put(stored, {f"i{n}": n for n in range(1, 10)})
    where = parse_filter({"must": [{"key": "x", "range": {"gte": 4, "lt": 7}}]})
    query = stored.space.from_items([vector(1)])
    [result] = stored.search(query, SearchParams(recall=1), where=where)
    assert ids_of(result) == ["i4", "i5", "i6"]


def test_a_search_around_an_item_leaves_it_out(stored: StoredCollection) -> None:
    put(stored, {"a": 1, "b": 1, "c": 3})
    result = stored.search_around("a", SearchParams(recall=1))
    assert ids_of(result) == ["b", "c"]
    assert result.hits[0].score == 1.0
    with pytest.raises(ItemNotFound):
        stored.search_around("absent", SearchParams())


def test_search_methods_are_checked(stored: StoredCollection) -> None:
    put(stored, {"a": 1})
    query = stored.space.from_items([vector(1)])
    assert ids_of(stored.search(query, SearchParams(), backend="exact")[0]) == ["a"]
    with pytest.raises(BackendNotFound):
        stored.search(query, SearchParams(), backend="gcws")
    with pytest.raises(BackendNotFound):
        stored.search_around("a", SearchParams(), backend="nrff")
    with pytest.raises(InvalidParameter):
        stored.search(query, SearchParams(), rerank="some")


def test_pairs_are_ranked_and_cut_with_ties_by_id(stored: StoredCollection) -> None:
    put(stored, {"d": 1, "b": 1, "c": 1, "a": 2})
    pairs = stored.pairs(min_score=0.01, recall=1)
    assert [(a, b) for a, b, _ in pairs] == [
        ("b", "c"), ("b", "d"), ("c", "d"), ("a", "b"), ("a", "c"), ("a", "d")
    ]  # fmt: skip
    assert [score for _, _, score in pairs[:3]] == [1.0] * 3
    for limit in range(7):
        assert stored.pairs(min_score=0.01, recall=1, limit=limit) == pairs[:limit]


def test_sketches_come_from_collections_that_hash(make: Make, catalog: Catalog) -> None:
    exact = make()
    with pytest.raises(InvalidParameter):
        exact.sketch(exact.space.from_items([vector(1)]), "full")
    config = CollectionConfig(dim=DIM, backend=GcwsParams(bands=2, band_width=3))
    hashing = catalog.create("hashing", config)[0]
    signatures = hashing.sketch(hashing.space.from_items([vector(1), vector(2)]), "full")
    assert isinstance(signatures, Signatures)
    assert signatures.slots.shape == signatures.levels.shape == (2, 6)


def test_a_collection_describes_itself(make: Make) -> None:
    stored = make(backend=GcwsParams(bands=2))
    put(stored, {"a": 1, "b": 2})
    put(stored, {"a": 3})
    described = stored.describe()
    assert (described.name, described.items, described.rows) == ("things", 2, 3)
    assert described.config == stored.config
    assert described.bytes_on_disk > 8192
    assert described.bytes_in_memory > 0
    assert [(b.name, b.kind, b.primary) for b in described.backends] == [("gcws", "gcws", True)]
    assert described.versions.keys() == {"format", "algorithm", "sqlite"}


# Failing


def test_a_full_disk_changes_nothing_and_later_writes_succeed(
    stored: StoredCollection, tmp_path: Path
) -> None:
    put(stored, {"a": 1, "b": 2})
    log = tmp_path / "things.sqlite-wal"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 50_000, hard))
    try:
        with pytest.raises(DiskFull):
            put(stored, {f"i{n}": n + 1 for n in range(3000)} | {"a": 5})
        assert held(stored) == holding({"a": 1, "b": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert held(stored) == holding({"a": 1, "b": 2})
    assert put(stored, {"a": 3, "c": 4}) == WriteResult(inserted=1, updated=1)
    assert reopened(stored, tmp_path) == holding({"b": 2, "a": 3, "c": 4})


def reopened(stored: StoredCollection, directory: Path) -> dict[str, tuple[object, bytes | None]]:
    """Return what a copy of the files holds: what another process would find after a kill."""
    copy = directory / "copy"
    copy.mkdir()
    for suffix in ("", "-wal"):
        path = directory / f"{stored.name}.sqlite{suffix}"
        (copy / path.name).write_bytes(path.read_bytes())
    catalog = Catalog.open(copy, threads=1)
    try:
        catalog.load()
        return held(catalog.get(stored.name))
    finally:
        catalog.close()


def test_writes_are_refused_once_memory_may_differ_from_the_file(
    stored: StoredCollection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(stored, {"a": 1})

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(stored._memory, "put", fail)
    with pytest.raises(MemoryError):
        put(stored, {"b": 2})
    monkeypatch.undo()
    for write in (lambda: put(stored, {"c": 3}), lambda: stored.delete(["a"])):
        with pytest.raises(DamagedFile, match="opened anew"):
            write()
    assert ids_of(stored.search(stored.space.from_items([vector(1)]), SearchParams())[0]) == ["a"]
    assert reopened(stored, tmp_path) == holding({"a": 1, "b": 2})


def test_a_closed_collection_is_not_found(make: Make, catalog: Catalog) -> None:
    stored = make(transform=SQUARED)
    put(stored, {"a": 1})
    catalog.drop("things")
    for call in (
        lambda: put(stored, {"b": 1}),
        lambda: stored.delete(["a"]),
        lambda: stored.get("a"),
        lambda: stored.page(with_vector=True),
    ):
        with pytest.raises(CollectionNotFound):
            call()


# Many at once


class _Announced(deque[Any]):
    """A queue that says when something has been put into it."""

    def __init__(self) -> None:
        super().__init__()
        self.arrivals = threading.Semaphore(0)

    def append(self, item: Any) -> None:  # noqa: ANN401
        super().append(item)
        self.arrivals.release()


def while_a_commit_is_waited_for(
    stored: StoredCollection, *calls: Callable[[], object]
) -> tuple[list[object], int]:
    """Make calls that arrive in order during a commit; return what they gave, and the commits."""
    writer, store = stored._writer, stored._store
    writer._queue = queue = _Announced()
    commits = 0
    write = store.write

    def counted(changes: Any) -> None:  # noqa: ANN401
        nonlocal commits
        commits += 1
        write(changes)

    store.write = counted  # type: ignore[method-assign]
    results: list[object] = [None] * len(calls)

    def run(place: int) -> None:
        try:
            results[place] = calls[place]()
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    with writer._lock:
        for thread in threads:
            thread.start()
            assert queue.arrivals.acquire(timeout=60)
    for thread in threads:
        thread.join()
    return results, commits


def test_writes_that_wait_share_a_commit(stored: StoredCollection) -> None:
    put(stored, {"a": 1})
    results, commits = while_a_commit_is_waited_for(
        stored,
        lambda: put(stored, {"a": 2, "b": 2}),
        lambda: put(stored, {"b": 3}, "insert"),
        lambda: stored.delete(["b"]),
        lambda: put(stored, {"b": 4, "c": 4}, "insert"),
        lambda: stored.delete(["absent"]),
        lambda: put(stored, {"c": 5}),
    )
    assert isinstance(results.pop(1), ItemExists)
    assert results == [WriteResult(1, 1), 1, WriteResult(2, 0), 0, WriteResult(0, 1)]
    assert commits == 1
    assert held(stored) == holding({"a": 2, "b": 4, "c": 5})


def test_a_delete_by_filter_sees_all_that_came_before_it(stored: StoredCollection) -> None:
    where = parse_filter({"must": [{"key": "x", "range": {"gte": 2}}]})
    results, commits = while_a_commit_is_waited_for(
        stored,
        lambda: put(stored, {"a": 1, "b": 2}),
        lambda: stored.delete_where(where),
        lambda: put(stored, {"c": 3}),
    )
    assert results == [WriteResult(2, 0), 1, WriteResult(1, 0)]
    assert commits == 3
    assert held(stored) == holding({"a": 1, "c": 3})


def test_of_writes_too_large_together_those_that_fit_are_stored(stored: StoredCollection) -> None:
    put(stored, {"a": 1})
    pages = stored._store._writer.execute("PRAGMA page_count").fetchone()[0]
    stored._store._writer.execute(f"PRAGMA max_page_count = {pages + 8}")
    large = {f"i{n}": n + 1.0 for n in range(GROUP_ROWS - 2)}
    results, _ = while_a_commit_is_waited_for(
        stored,
        lambda: put(stored, {"b": 2}),
        lambda: put(stored, large),
        lambda: put(stored, {"b": 3}),
    )
    assert isinstance(results.pop(1), DiskFull)
    assert results == [WriteResult(1, 0), WriteResult(0, 1)]
    assert held(stored) == holding({"a": 1, "b": 3})


def test_many_threads_write_and_readers_never_see_half_a_request(
    make: Make, tmp_path: Path
) -> None:
    stored = make(backend=GcwsParams(bands=2))
    size, rounds, writers = 5, 30, 3
    finished = threading.Event()
    query = stored.space.from_items([vector(1)])
    params = SearchParams(limit=10_000, recall=1)
    halves: list[object] = []

    def read() -> None:
        while not finished.is_set():
            [result] = stored.search(query, params)
            groups: dict[str, set[bytes | None]] = {}
            counts: dict[str, int] = {}
            for hit in result.hits:
                group = hit.id.split(".")[0]
                groups.setdefault(group, set()).add(hit.payload)
                counts[group] = counts.get(group, 0) + 1
            if any(len(found) > 1 for found in groups.values()) or set(counts.values()) - {size}:
                halves.append((groups, counts))
            if len(stored.page(limit=10_000).items) % size:
                halves.append("page")

    def write(number: int) -> None:
        for turn in range(rounds):
            group = f"{number}-{turn % 4}"
            ids = [f"{group}.{place}" for place in range(size)]
            if turn % 5 == 4:
                stored.delete(ids)
            else:
                put(stored, dict.fromkeys(ids, float(turn + 1)))

    reader = threading.Thread(target=read)
    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in (reader, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    finished.set()
    reader.join()
    assert halves == []
    assert reopened(stored, tmp_path) == held(stored)


def test_sparse_vectors_survive(catalog: Catalog) -> None:
    config = CollectionConfig(dim=None, backend=GcwsParams(bands=2))
    stored = catalog.create("sparse", config)[0]
    raw = stored.space.from_items([SparseVector([5, 2**31 - 1], [0.5, -3]), SparseVector([0], [1])])
    stored.put(ItemBatch(["a", "b"], raw, [None, b"{}"]))
    assert stored.get("a").vector == {"indices": [5, 2**31 - 1], "values": [0.5, -3.0]}
    assert stored.get("b") == StoredItem("b", {"indices": [0], "values": [1.0]}, b"{}")
