"""Items that are stored unless one like them is, beside others of the same commit."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from gcws_search import index as ix


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
