"""Collections whose vectors lie in mapped files answer as those in memory do."""

import errno
import logging
import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.optimizer import optimize
from gcws_search.index.vectors.growing_rows import GrowingRows, MappedArray
from tests.support.data.adapters import raw_of
from tests.support.data.generated import clustered
from tests.support.index.items import opened_catalog, put_vectors
from tests.support.index.policies import compacting_from, graphs_from
from tests.support.index.saved_graph import Restart

DIM = 24
POLICY = replace(graphs_from(500), min_dead=100, max_unmapped_bytes=50_000)
ASKED = ix.SearchParams(limit=5, recall=1.0)


@pytest.fixture
def policies() -> ix.Policies:
    return POLICY


FULL = mock.patch.object(
    os, "posix_fallocate", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
)
"""While it is entered, no file gets more room."""


def config(storage: ix.Storage = "mapped", dim: int | None = DIM) -> ix.CollectionConfig:
    return ix.CollectionConfig(dim=dim, storage=storage)


def answers(stored: ix.StoredCollection, recall: float = 1.0) -> list[list[tuple[str, float]]]:
    asked = replace(ASKED, recall=recall)
    ids = sorted(item.id for item in stored.page(limit=10_000).items)[:40]
    found = (stored.search_around([each], asked)[0] for each in ids)
    return [[*zip(each.ids, each.scores, strict=True)] for each in found]


@pytest.mark.parametrize("dim", [DIM, None])
def test_a_mapped_collection_answers_as_one_in_memory_through_its_whole_life(
    catalog: ix.Catalog, tmp_path: Path, rng: np.random.Generator, dim: int | None
) -> None:
    rows, _ = clustered(rng, 1500, 20, dim=DIM)
    held, mapped, grown = all_ = [
        catalog.create(name, config(name, dim))[0] for name in ("memory", "mapped", "auto")
    ]

    def all_alike() -> None:
        for each in all_:
            each.finish_background_work()
        for recall in (0.9, 1.0):
            assert answers(held, recall) == answers(mapped, recall) == answers(grown, recall)

    for first in range(0, 1500, 250):
        for each in all_:
            put_vectors(each, rows[first : first + 250], first)
        if not first:
            assert [each.describe().bytes_mapped > 0 for each in all_] == [False, True, False]
    all_alike()
    assert [each.describe().bytes_mapped > 0 for each in all_] == [False, True, True]
    for each in all_:
        put_vectors(each, rows[:100] * 2 + 0.5)
        each.delete([f"i{n}" for n in range(300, 1200)])
    assert [each.describe().rows for each in all_] == [each.describe().items for each in all_]
    all_alike()
    assert mapped.describe().bytes_mapped > 0
    assert mapped.describe().bytes_in_memory < held.describe().bytes_in_memory
    assert held.describe().bytes_mapped == 0
    before = answers(mapped)
    catalog.close()
    again = opened_catalog(tmp_path, POLICY)
    assert [again.get(name).config.storage for name in ("mapped", "auto")] == ["mapped", "auto"]
    assert answers(again.get("mapped")) == answers(again.get("auto")) == before
    assert [again.get(name).describe().bytes_mapped > 0 for name in ("memory", "auto")] == [
        False,
        True,
    ]
    assert {path.name for path in tmp_path.iterdir()} >= {"mapped.sqlite"}
    again.close()


def test_a_storage_that_cannot_be_is_refused() -> None:
    for wrong in ("disk", 3, None):
        with pytest.raises(ix.InvalidParameter):
            ix.CollectionConfig.from_dict(config().to_dict() | {"storage": wrong})
    with pytest.raises(ix.InvalidParameter, match="without a file"):
        ix.StoredCollection.in_memory("things", config())


def test_a_write_without_room_for_its_vectors_stores_nothing(
    restart: Restart, catalog: ix.Catalog, rng: np.random.Generator
) -> None:
    rows, _ = clustered(rng, 6000, 20, dim=DIM)
    stored = catalog.create("things", config())[0]
    put_vectors(stored, rows[:100])
    with FULL:
        put_vectors(stored, rows[100:110], 100)  # there is room for these
        with pytest.raises(ix.DiskFull):
            put_vectors(stored, rows[110:], 110)
        assert len(stored) == 110
        with pytest.raises(ix.DiskFull):
            put_vectors(stored, rows[110:], 0)
    assert len(stored) == 110
    before = answers(stored)
    with restart(policies=POLICY) as stored:
        assert answers(stored) == before
        put_vectors(stored, rows[110:], 110)
        assert len(stored) == 6000


def test_tombstones_stay_until_there_is_room_to_compact(
    catalog: ix.Catalog, rng: np.random.Generator
) -> None:
    rows, _ = clustered(rng, 400, 20, dim=DIM)
    stored = catalog.create("things", config())[0]
    put_vectors(stored, rows)
    with FULL:
        assert stored.delete([f"i{n}" for n in range(300)]) == 300
        assert (stored.describe().rows, stored.describe().items) == (400, 100)
        found = answers(stored)
    assert stored.delete(["i300"]) == 1
    assert (stored.describe().rows, stored.describe().items) == (99, 99)
    assert {name for hits in found for name, _ in hits} <= {f"i{n}" for n in range(300, 400)}


def test_tombstones_stay_while_the_background_has_no_room_to_compact(
    tmp_path: Path, rng: np.random.Generator, caplog: pytest.LogCaptureFixture
) -> None:
    rows, _ = clustered(rng, 400, 20, dim=DIM)
    policies = replace(compacting_from(100, in_background=True), graph=graphs_from(64).graph)
    catalog = opened_catalog(tmp_path, policies)
    stored = catalog.create("things", config())[0]
    put_vectors(stored, rows)
    stored.finish_background_work()
    before = stored.memory.view.state.graph
    with FULL, caplog.at_level(logging.WARNING):
        assert stored.delete([f"i{n}" for n in range(300)]) == 300
        stored.finish_background_work()
        assert (stored.describe().rows, stored.describe().items) == (400, 100)
        assert "tombstones stay" in caplog.text
        assert "Traceback" not in caplog.text
        graph = stored.memory.view.state.graph
        assert graph.calibration.rows <= 100 < before.calibration.rows  # linked anew all the same
    assert stored.delete(["i300"]) == 1
    stored.finish_background_work()
    assert (stored.describe().rows, stored.describe().items) == (99, 99)
    catalog.close()


def test_a_start_without_room_says_so_and_goes_on_once_there_is_some(
    catalog: ix.Catalog, tmp_path: Path, rng: np.random.Generator
) -> None:
    rows, _ = clustered(rng, 400, 20, dim=DIM)
    put_vectors(catalog.create("things", config())[0], rows)
    before = answers(catalog.get("things"))
    catalog.close()
    with FULL:
        again = opened_catalog(tmp_path, POLICY)
        assert isinstance(again.failures["things"], ix.DiskFull)
    again.load()
    assert answers(again.get("things")) == before
    again.close()


def test_without_room_vectors_that_may_be_mapped_stay_in_memory(
    tmp_path: Path, rng: np.random.Generator, caplog: pytest.LogCaptureFixture
) -> None:
    rows, _ = clustered(rng, 1500, 20, dim=DIM)
    catalog = opened_catalog(tmp_path, POLICY)
    stored = catalog.create("things", config("auto"))[0]
    with FULL, caplog.at_level(logging.WARNING):
        put_vectors(stored, rows)
        stored.finish_background_work()
        assert stored.describe().bytes_mapped == 0
        assert "stay in memory" in caplog.text
        caplog.clear()
        stored.delete([f"i{n}" for n in range(0, 1500, 2)])
        stored.delete(["i1", "i3"])
        stored.finish_background_work()
        assert stored.describe().rows == stored.describe().items == 748
        put_vectors(stored, rows[:2])
        assert not caplog.text
        before = answers(stored)
        catalog.close()
        catalog = opened_catalog(tmp_path, POLICY)
        stored = catalog.get("things")
        assert "stay in memory" in caplog.text
    stored.finish_background_work()
    assert (stored.describe().bytes_mapped, answers(stored)) == (0, before)
    put_vectors(stored, rows[:1])
    catalog.close()
    catalog = opened_catalog(tmp_path, POLICY)
    assert catalog.get("things").describe().bytes_mapped > 0
    catalog.close()


def test_space_that_the_disk_lacks_is_not_taken_in_part(tmp_path: Path) -> None:
    """Else a write beside it finds the disk full, which it is not."""
    made, none = MappedArray(tmp_path), np.empty((0, 1024), np.float32)
    room = SimpleNamespace(f_blocks=100, f_bavail=8, f_frsize=4096)
    with mock.patch.object(os, "fstatvfs", return_value=room):
        with (
            mock.patch.object(os, "posix_fallocate") as taken,
            pytest.raises(OSError, match="No space left"),
        ):
            made.with_room(none, 0, 9)
        taken.assert_not_called()
        rows = made.with_room(none, 0, 8)
        assert len(made.with_room(rows, 8, 16)) == 16  # of which the file has 8
        room.f_blocks = room.f_bavail = 0  # a file system that does not tell
        assert len(made.with_room(rows, 8, 20)) == 20


def test_a_start_that_fails_among_the_rows_leaves_no_thread(
    catalog: ix.Catalog, tmp_path: Path, rng: np.random.Generator
) -> None:
    rows, _ = clustered(rng, 40_000, 20, dim=DIM)  # several pieces are read
    put_vectors(catalog.create("things", config("memory"))[0], rows)
    catalog.close()
    error = OSError(errno.ENOSPC, "no space")
    with mock.patch.object(GrowingRows, "append", side_effect=error):
        again = opened_catalog(tmp_path, POLICY)
        assert isinstance(again.failures["things"], ix.DiskFull)
        assert not [each for each in threading.enumerate() if each.name.startswith("ahead")]
    again.load()
    assert len(again.get("things")) == 40_000
    again.close()


def test_the_usual_storage_is_not_written_down() -> None:
    """Files of before have none, and are read; their configurations stay byte for byte."""
    assert "storage" not in config("auto").to_dict()
    for storage in ("auto", "memory", "mapped"):
        assert ix.CollectionConfig.from_dict(config(storage).to_dict()) == config(storage)
    assert ix.CollectionConfig.from_dict(config().to_dict()) == config()


@pytest.mark.parametrize("dim", [DIM, None])
def test_room_is_made_for_all_that_is_put_and_for_what_is_pending(
    tmp_path: Path, rng: np.random.Generator, dim: int | None
) -> None:
    rows, _ = clustered(rng, 4000, 20, dim=DIM)
    made = MemoryCollection(config(dim=dim), threads=1, policies=POLICY, folder=tmp_path)
    first, were_pending = 0, 0
    for size in (1, 3, 700, *[1] * 200, 60, *[1] * 100):
        raw = raw_of(made.space, rows[first : first + size])
        ids = [f"i{n}" for n in range(first, first + size)]
        parts = made.encode([ix.ItemBatch(ids, raw, [None] * size)])
        parts[0].sequences = range(first + 1, first + size + 1)
        made.make_room([each.vectors for each in parts])
        with FULL:
            made.put(parts)
            were_pending += made.pending_count > 1
            if first % 64 == 0:
                assert len(made.view) == first + size
        first += size
        if first == 704:
            assert optimize(made, lambda adopt: adopt(), threading.Event())
    assert were_pending > 2
    assert len(made.view) == first
