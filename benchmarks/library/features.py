"""Speed of feature maps beside a bare matrix product, and of scans beside memory.

``python -m benchmarks.library.features``
"""

import time
from functools import partial
from typing import Final

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.harness.bandwidth import BYTES, reading
from benchmarks.harness.report import Table, arguments
from benchmarks.harness.timing import in_threads, interleaved
from gcws_search.index.comparison.features import FourierMap, best_products, map_rows
from gcws_search.index.contracts.arrays import large
from gcws_search.index.contracts.batches import VectorBatch, round_up
from gcws_search.index.contracts.parameters import CollectionConfig, FourierKind, FourierParams
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.space import VectorSpace

DIMS: Final = (16, 54, 784)
FEATURES: Final = (256, 1024)
THREADS: Final = (1, 2)
PRODUCT_FLOATS: Final = 1 << 23
"""Features made in one run: 32 MB, more than fits into most caches."""
POOL: Final = 100
BATCH: Final = 32
REPEATS: Final = 9
SETTLE_SECONDS: Final = 0.1
"""For some 20 ms after a product threads of OpenBLAS go on spinning, on processors others need."""
MAP_COLUMNS: Final = (
    "dimensions", "features", "threads", "`X @ R`, ns a feature", "NRFF, ns", "ratio of rates",
    "RFF, ns", "ratio of rates", "folded RFF, ns", "ratio of rates",
)  # fmt: skip
SCAN_COLUMNS: Final = (
    "features", "threads", "scan, GB/s", "sum of as many bytes, GB/s", "share",
    "32 queries in a batch, GFLOP/s", "`F @ Q`, GFLOP/s", "ratio",
)  # fmt: skip


def batch_of(rows: int, dim: int) -> VectorBatch:
    """Return normally distributed vectors as a collection stores them."""
    space = VectorSpace.of(CollectionConfig(dim=dim))
    return space.prepare(space.from_dense(np.random.default_rng(dim).standard_normal((rows, dim))))


def add_map(table: Table, dim: int, features: int, threads: int) -> None:
    """Measure one shape: features of a batch, and a matrix product of the same shape."""
    batch = batch_of(PRODUCT_FLOATS // features, dim)
    rows = np.ascontiguousarray(batch.dense[:, :dim])
    projection = np.random.default_rng(0).standard_normal((dim, features)).astype(np.float32)
    kinds: tuple[FourierKind, ...] = ("nrff", "rff", "folded_rff")
    nrff, rff, folded = (
        FourierMap(
            FourierParams(kind=kind, features=features), batch.dense.shape[1], Workers(threads)
        )
        for kind in kinds
    )
    with threadpool_limits(threads, user_api="blas"):
        bare, _, *ours = interleaved(
            [
                lambda: rows @ projection,
                lambda: time.sleep(SETTLE_SECONDS),
                lambda: map_rows(nrff, batch),
                lambda: map_rows(rff, batch),
                lambda: map_rows(folded, batch),
            ],
            repeats=REPEATS,
        )
    cells: list[object] = [f"{dim}", f"{features}", f"{threads}", bare / PRODUCT_FLOATS * 1e9]
    for seconds in ours:
        cells += [seconds / PRODUCT_FLOATS * 1e9, f"{bare / seconds:.2f}"]
    table.add(*cells)


def add_scan(table: Table, features: int, threads: int) -> None:
    """Measure an exact scan: one query per thread, and a batch."""
    width = round_up(features)
    n = BYTES // (4 * width)
    rng = np.random.default_rng(1)
    rows = large((n, width), np.float32)
    rows[:] = rng.standard_normal((n, width), np.float32)
    queries = rng.standard_normal((BATCH, width), np.float32)
    permitted, nobody = np.ones(n, np.uint8), np.full(BATCH, -1)

    def scan(count: int, thread: int) -> None:
        part = slice(n * thread // threads, n * (thread + 1) // threads)
        best_products(queries[:count], rows, permitted, nobody[:count], part, POOL)

    with threadpool_limits(threads, user_api="blas"):
        single, read, batch, product, _ = interleaved(
            [
                in_threads(partial(scan, 1), threads),
                reading(threads),
                in_threads(partial(scan, BATCH), threads),
                lambda: rows @ queries.T,
                lambda: time.sleep(SETTLE_SECONDS),
            ],
            repeats=REPEATS,
        )
    work = 2.0 * n * width * BATCH
    table.add(
        f"{features}",
        f"{threads}",
        rows.nbytes / single / 1e9,
        BYTES / read / 1e9,
        f"{read / single * rows.nbytes / BYTES:.2f}",
        work / batch / 1e9,
        work / product / 1e9,
        f"{product / batch:.2f}",
    )


def main() -> None:
    """Measure and print."""
    options = arguments("Speed of feature maps and of scans of features.", data=False).parse_args()
    maps, scans = Table("features", MAP_COLUMNS), Table("feature scans", SCAN_COLUMNS)
    for threads in THREADS:
        for dim in DIMS:
            for features in FEATURES:
                add_map(maps, dim, features, threads)
        for features in FEATURES:
            add_scan(scans, features, threads)
    maps.notes.append(
        f"{PRODUCT_FLOATS:,} float32 features a run. A ratio of 1 means as many features a second "
        "as entries of the bare product, which has no phases and no cosines."
    )
    scans.notes.append(
        f"One query over {BYTES >> 20} MB of features, divided between the threads. A scan keeps "
        f"the best {POOL} rows, the product keeps none."
    )
    for table in (maps, scans):
        table.publish(options, threads="threads as stated")


if __name__ == "__main__":
    main()
