"""Time to copy, restore, check and vacuum the file of a collection, by its bytes.

Run as ``python -m benchmarks.library.file_maintenance``.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.harness.report import Table, arguments
from benchmarks.harness.timing import median_seconds, seconds
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.check import check_directory
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams
from gcws_search.index.storage.schema import RowBatch

ROWS: Final = 100_000
DIM: Final = 128
CHUNK: Final = 8192
NAME: Final = "made"


def fill(stored: StoredCollection, rows: int) -> None:
    """Put this many items, and wait until their graph is built."""
    rng = np.random.default_rng(0)
    for first in range(0, rows, CHUNK):
        count = min(CHUNK, rows - first)
        raw = stored.space.from_dense(rng.standard_normal((count, DIM), np.float32))
        ids = [f"i{n}" for n in range(first, first + count)]
        stored.put(ItemBatch(ids, raw, [b'{"n":%d}' % n for n in range(first, first + count)]))
    stored.finish_background_work()


def loaded(folder: Path) -> Catalog:
    """Open a folder and load its collections."""
    catalog = Catalog.open(folder)
    catalog.load()
    return catalog


def measure(folder: Path, rows: int) -> Table:
    """Time all operations on a file."""
    table = Table("files", ("what", "seconds", "MB/s"))
    catalog = loaded(folder)
    config = CollectionConfig(dim=DIM, backend=GcwsParams())
    stored = catalog.create(NAME, config)[0]
    fill(stored, rows)
    path = folder / f"{NAME}.sqlite"

    def add(what: str, took: float, bytes_: int) -> None:
        table.add(what, took, bytes_ / took / 1e6)

    took = seconds(lambda: catalog.snapshot(NAME, "s"))
    add("snapshot", took, catalog.snapshots.get(NAME, "s").bytes_)
    took = seconds(lambda: catalog.restore(NAME, "s", replace=True))
    add("restore: checked, put in its place, loaded", took, path.stat().st_size)
    catalog.close()
    size = path.stat().st_size
    add("check of a sound file", seconds(lambda: [*check_directory(folder)]), size)
    took = seconds(lambda: loaded(folder).close())
    add("load", took, size)
    vectors, ids = [bytes(4 * DIM)] * rows, [f"i{n}" for n in range(rows)]
    took = median_seconds(lambda: RowBatch(ids, vectors, [], [None] * rows))
    add("of this, checksums of contents", took, 4 * DIM * rows)
    _measure_deletes(folder, table)
    return table


def _measure_deletes(folder: Path, table: Table) -> None:
    catalog = loaded(folder)
    stored, path = catalog.get(NAME), folder / f"{NAME}.sqlite"
    ids = [item.id for item in stored.page(limit=len(stored)).items]
    before = path.stat().st_size
    took = seconds(lambda: stored.delete(ids[: len(ids) * 9 // 10]))
    table.add("delete 9 of 10 items", took, before / took / 1e6)
    took = seconds(stored.finish_background_work)
    after = path.stat().st_size
    table.add("until their space is given back", took, (before - after) / took / 1e6)
    table.notes.append(f"{before / 1e6:,.0f} MB before the deletes, {after / 1e6:,.0f} MB after.")
    catalog.close()


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = arguments("What work on whole files costs.", data=False)
    parser.add_argument("--rows", type=int, default=ROWS, metavar="ITEMS")
    options = parser.parse_args(given)
    with tempfile.TemporaryDirectory() as folder:
        table = measure(Path(folder), options.rows)
    table.notes.append(f"{options.rows:,} random vectors of {DIM} dimensions, gcws, durable.")
    table.publish(options, threads="all threads")


if __name__ == "__main__":
    main()
