"""Items that are stored unless one like them is, beside others of the same commit."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.index.collection.stored_collection import StoredCollection
from tests.support.index.saved_graph import copied, log_limited, opened
from tests.support.reference.kernels import gmm_of_rows
from tests.support.waiting_writes import together


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


@pytest.mark.parametrize("dim", [8, None], ids=["dense", "sparse"])
def test_thousands_of_near_copies_in_one_write_take_little_memory(
    rng: np.random.Generator, dim: int | None
) -> None:
    """Each is left out for the nearest one stored before it, as a comparison of all tells."""
    count, least = 900, 0.9
    kinds = rng.uniform(0.5, 2, (3, 8))
    rows = kinds[rng.choice(3, count, p=[0.9, 0.05, 0.05])] * rng.uniform(0.9, 1.1, (count, 8))
    rows[700:720] = rows[40:60]
    rows = rows.astype(np.float32)
    stored = StoredCollection.in_memory("things", ix.CollectionConfig(dim=dim))
    vectors = rows if dim else [ix.SparseVector(np.arange(8), row) for row in rows]
    batch = ix.ItemBatch([None] * count, stored.space.from_items([*vectors]), [None] * count)
    stored.put(ix.ItemBatch(["a"], batch.vectors[:1], [None]))
    stored.delete(["a"])  # kernels are compiled
    tracemalloc.start()
    result = stored.put(batch, ix.UnlessSimilar(min_score=least))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60 << 20
    kept = list[int]()
    for number, row in enumerate(rows.astype(np.float64)):
        scores = gmm_of_rows(np.tile(row, (len(kept), 1)), rows[kept].astype(np.float64))
        best = max(scores, default=0.0)
        if best < least:
            kept.append(number)
            continue
        told = result.similar[number - len(kept)]
        assert told.row == number
        assert told.score == pytest.approx(best, abs=1e-9)
        assert scores[int(told.to)] == pytest.approx(best, abs=1e-9)
    assert result.inserted == len(kept) > 3
    stored.close()
