"""Items that are stored unless one like them is, beside others of the same commit."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gcws_search import index as ix
from tests.support.index.saved_graph import copied, log_limited, opened
from tests.support.waiting_writes import together


def test_changes_of_the_same_commit_count_as_made(catalog: ix.Catalog) -> None:
    """What they replace keeps nothing out, what they store does."""
    stored = catalog.create("things", ix.CollectionConfig(dim=2))[0]
    unless = ix.UnlessSimilar(min_score=0.9, recall=1.0)
    outcomes: list[Any] = [None] * 6
    ended = threading.Semaphore(0)

    def items(item_id: str, row: list[float]) -> ix.ItemBatch:
        vectors = stored.space.from_dense(np.array([row], np.float32))
        return ix.ItemBatch([item_id], vectors, [None])

    def submit(place: int, item_id: str, row: list[float], mode: ix.Mode) -> None:
        def end(outcome: ix.WriteResult | BaseException) -> None:
            outcomes[place] = outcome
            ended.release()

        def run(lead: Callable[[], None], _: Callable[[], None]) -> None:
            threading.Thread(target=lead).start()

        stored.submit(lambda: (items(item_id, row), mode), end, run)

    stored.put(items("a", [1, 2]))
    commits = stored.writer.commits

    def all_at_once() -> None:  # the queue is taken when this has returned
        submit(0, "a", [-7, 1], "upsert")
        submit(1, "b", [1, 2], unless)
        submit(2, "c", [1, 2.01], unless)
        submit(3, "b", [50, 1], "upsert")
        submit(4, "d", [1, 2], unless)
        submit(5, "a", [-7, 1.01], unless)

    stored.writer.run_between_changes(all_at_once)
    for _ in outcomes:
        assert ended.acquire(timeout=60)
    assert stored.writer.commits == commits + 1
    assert [(each.inserted, each.updated) for each in outcomes] == [
        (0, 1), (1, 0), (0, 0), (0, 1), (1, 0), (0, 0),
    ]  # fmt: skip
    left_out = [each.similar for each in outcomes]
    assert [[(one.id, one.to) for one in some] for some in left_out] == [
        [], [], [("c", "b")], [], [], [("a", "a")],
    ]  # fmt: skip
    assert {item.id for item in stored.page(limit=9).items} == {"a", "b", "d"}


def test_what_the_disk_has_no_room_for_keeps_nothing_out_and_counts_as_no_version(
    catalog: ix.Catalog, tmp_path: Path
) -> None:
    """Writes of one commit that fails are made again, each by itself."""
    stored = catalog.create("things", ix.CollectionConfig(dim=2))[0]
    unless = ix.UnlessSimilar(min_score=0.9, recall=1.0)

    def put(items: dict[str, list[float]], mode: ix.Mode, size: int = 0) -> ix.WriteResult:
        vectors = stored.space.from_dense(np.array([*items.values()], np.float32))
        payload = b'{"text":"%b"}' % (b"x" * size)
        ids = [each or None for each in items]
        return stored.put(ix.ItemBatch(ids, vectors, [payload] * len(ids)), mode)

    put({"a": [-7, 1]}, "upsert")
    with log_limited(tmp_path, 200_000):
        big, *others = together(
            stored.writer,
            lambda: put({"a": [-7, 2], "b": [1, 2], "": [5, 5], "e": [0, 1]}, "upsert", 300_000),
            lambda: put({"a": [-7, 3]}, "upsert"),
            lambda: put({"e": [0, 2]}, "upsert"),
            lambda: put({"c": [1, 2]}, unless),
            lambda: put({"d": [1, 2], "": [3, 1]}, unless),
        )
    assert isinstance(big, ix.DiskFull)
    assert others == [
        ix.WriteResult(0, 1),
        ix.WriteResult(1, 0),
        ix.WriteResult(1, 0),
        ix.WriteResult(1, 0, ("0", "0"), [ix.SimilarItem(0, "d", "c", 1.0)]),
    ]
    items = stored.page(limit=9).items
    versions = {item.id: item.version for item in items}
    assert versions == {"a": 2, "e": 1, "c": 1, "0": 1}
    with opened(copied(tmp_path, tmp_path / "copy")) as again:
        assert again.page(limit=9).items == items
