"""Items that are stored unless one like them is, beside others of the same commit."""

from pathlib import Path

import numpy as np

from gcws_search import index as ix
from tests.support.index.saved_graph import copied, log_limited, opened
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
