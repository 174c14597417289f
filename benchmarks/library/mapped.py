"""Vectors in memory and in a mapped file: ``python -m benchmarks.library.mapped``.

The generated, clustered set in a collection of each storage, each in a separate process. Queries
are held out and sent one by one on one thread. Before a *cold* query, all pages of the mapped file
are evicted from memory.
"""

import mmap
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
import psutil

from benchmarks.harness.report import Table, arguments
from benchmarks.library.growth import in_own_process, memory_of_process, save_made
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams, Storage

ROWS: Final = 1_000_000
DIM: Final = 128
QUERIES: Final = 1000
COLD_QUERIES: Final = 100
SCANS: Final = 20
TARGETS: Final = (0.9, 0.95, 0.99)
_CHUNK: Final = 1 << 15
_PAGE_OUT: Final = 21
"""MADV_PAGEOUT of Linux, which Python has no name for."""

COLUMNS: Final = (
    "storage", "items", "dim", "put, s", "longest put, ms", "put and linked, s",
    "peak while filling, GiB", "start, s", "memory after a start, GiB", "mapped, GiB",
    *(f"µs a query at {target}" for target in TARGETS),
    *(f"cold, µs at {target}" for target in TARGETS), "exact scan, ms", "cold, ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """What one storage costs a process that has just been started.

    ``asked`` and ``cold`` are seconds of a query, a scan's the last.
    """

    start_seconds: float
    memory: int
    mapped: int
    asked: list[float]
    cold: list[float]


@dataclass(frozen=True, slots=True)
class Filled:
    """What putting all rows costs.

    Attributes
    ----------
    put_seconds, linked_seconds : float
        Until all are put, and until the graph is built.
    longest_put_seconds : float
        Of the slowest batch.
    peak_bytes : int
        Memory at most, pages of mapped files included.
    """

    put_seconds: float
    longest_put_seconds: float
    linked_seconds: float
    peak_bytes: int


def fill(data: Path, folder: Path, storage: Storage) -> Filled:
    """Put all rows into a collection."""
    longest = 0.0
    catalog = Catalog.open(folder, durability="normal")
    catalog.load()
    with (data / "stored.npy").open("rb") as file:  # mapped, its pages would count
        np.lib.format.read_magic(file)
        (rows, dim), _, dtype = np.lib.format.read_array_header_1_0(file)
        collection = catalog.create("made", CollectionConfig(dim=dim, storage=storage))[0]
        began = time.perf_counter()
        for first in range(0, rows, _CHUNK):
            chunk = np.fromfile(file, dtype, min(_CHUNK, rows - first) * dim).reshape(-1, dim)
            ids = [*map(str, range(first, first + len(chunk)))]
            items = ItemBatch(ids, collection.space.from_dense(chunk), [None] * len(ids))
            batch_began = time.perf_counter()
            collection.put(items)
            longest = max(longest, time.perf_counter() - batch_began)
        put = time.perf_counter() - began
    collection.finish_background_work()
    seconds = time.perf_counter() - began
    catalog.close()
    return Filled(put, longest, seconds, memory_of_process("VmHWM"))


def start(data: Path, folder: Path) -> Measured:
    """Return what the collection costs a process that has just been started."""
    queries = np.load(data / "queries.npy")
    before, began = _unmapped_bytes(), time.perf_counter()
    catalog = Catalog.open(folder, durability="normal", threads=1)
    catalog.load()
    seconds = time.perf_counter() - began
    collection = catalog.get("made")
    collection.finish_background_work()
    memory = _unmapped_bytes() - before
    asked = [_median(collection, queries, each) for each in (*TARGETS, 1.0)]
    cold = [_median(collection, queries, each, cold=True) for each in (*TARGETS, 1.0)]
    mapped = collection.describe().bytes_mapped
    catalog.close()
    return Measured(seconds, memory, mapped, asked, cold)


def _median(
    collection: StoredCollection,
    queries: Any,  # noqa: ANN401
    recall: float,
    *,
    cold: bool = False,
) -> float:
    """Return the median time of a query; before a cold one all vectors are paged out."""
    params = SearchParams(limit=10, recall=recall)
    if recall == 1.0 or cold:
        queries = queries[: SCANS if recall == 1.0 else COLD_QUERIES]
    taken = []
    for query in queries:
        raw = collection.space.from_dense(query[None])
        if cold:
            _page_out(collection)
        began = time.perf_counter()
        collection.search(raw, params)
        taken.append(time.perf_counter() - began)
    return float(np.median(taken))


def _page_out(collection: StoredCollection) -> None:
    """Give the pages of the mapped vectors back to the disk."""
    array: Any = collection.memory.view.vectors.dense
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None) if not isinstance(array, memoryview) else array.obj
    if collection.config.storage == "mapped" and array is not None:
        array.flush()
        array.madvise(_PAGE_OUT)


def _unmapped_bytes() -> int:
    memory = psutil.Process().memory_info()
    return int(memory.rss - memory.shared)


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = arguments("Vectors in memory beside vectors in a mapped file.", data=False)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument(
        "--storage", nargs="+", choices=get_args(Storage), default=get_args(Storage)
    )
    options = parser.parse_args(given)
    table = Table("mapped", COLUMNS)
    for storage in options.storage:
        with tempfile.TemporaryDirectory() as data, tempfile.TemporaryDirectory() as folder:
            in_own_process(save_made, Path(data), options.rows, options.dim)
            filled: Filled = in_own_process(fill, Path(data), Path(folder), storage)
            found: Measured = in_own_process(start, Path(data), Path(folder))
        cold = found.cold if storage == "mapped" else []
        cells = [*(f"{1e6 * each:,.0f}" for each in cold[:-1])] or [""] * len(TARGETS)
        table.add(
            storage, f"{options.rows:,}", str(options.dim),
            filled.put_seconds, 1e3 * filled.longest_put_seconds, filled.linked_seconds,
            filled.peak_bytes / 2**30,
            found.start_seconds, found.memory / 2**30, found.mapped / 2**30,
            *(f"{1e6 * each:,.0f}" for each in found.asked[:-1]), *cells,
            1e3 * found.asked[-1], 1e3 * cold[-1] if cold else "",
        )  # fmt: skip
        print(table.rows[-1], flush=True)
    table.notes.append(
        f"Synthetic clusters. {QUERIES:,} held-out queries one by one, {COLD_QUERIES} of them "
        f"cold, and {SCANS} scans; top 10, medians of wall time. Memory is the growth since before "
        "the start of what the system cannot reclaim."
    )
    table.publish(options, threads="1 thread asks, all build")


if __name__ == "__main__":
    main()
