"""The exact scan, beside memory bandwidth and FAISS.

Command: ``python -m benchmarks.library.scan --data DIR``.
"""

from collections.abc import Callable
from typing import Any, Final

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.bandwidth import BYTES, reading
from benchmarks.harness.datasets import DataSet, load
from benchmarks.harness.engine import Engine, one_by_one
from benchmarks.harness.report import Table, arguments
from benchmarks.harness.timing import in_threads, interleaved
from gcws_search.index.contracts.parameters import ExactParams, SearchParams

SETS: Final = ("fashion_mnist", "made, clustered")
LIMIT: Final = 10
QUERIES: Final = 32
JACCARD_QUERIES: Final = 2
COLUMNS: Final = (
    "data", "threads", "queries/s", "GB/s", "memory, GB/s", "share",
    "queries/s in a batch", "FAISS L1, queries/s in a batch", "ratio",
    "FAISS Jaccard, queries/s in a batch", "ratio",
)  # fmt: skip


def expanded(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return positive and negative parts side by side; vectors without negatives as they are."""
    if vectors.min() >= 0:
        return vectors
    return np.hstack([np.maximum(vectors, 0), np.maximum(-vectors, 0)])


def faiss_search(
    stored: NDArray[np.float32], queries: NDArray[np.float32], metric: int
) -> Callable[[], object]:
    """Return a work that searches FAISS's flat index for all queries in one call."""
    index: Any = faiss.IndexFlat(stored.shape[1], metric)
    index.add(np.ascontiguousarray(stored))
    asked = np.ascontiguousarray(queries)
    return lambda: index.search(asked, LIMIT)


def add_row(table: Table, data: DataSet, threads: int) -> None:
    """Measure one data set with so many threads."""
    stored, held_out = data.hold_out(QUERIES)
    engine = Engine.build(stored, ExactParams(), threads=1)
    team = Engine.build(stored, ExactParams(), threads=threads)
    params = SearchParams(limit=LIMIT, recall=1.0)
    batch = engine.prepare(held_out)
    singles = one_by_one(batch)
    faiss.omp_set_num_threads(threads)

    def one_at_a_time(_: int) -> None:
        for query in singles:
            engine.search(query, params)

    single, read, together, l1, jaccard = interleaved(
        [
            in_threads(one_at_a_time, threads),
            reading(threads),
            lambda: team.search(batch, params),
            faiss_search(stored, held_out, faiss.METRIC_L1),
            faiss_search(
                expanded(stored), expanded(held_out)[:JACCARD_QUERIES], faiss.METRIC_Jaccard
            ),
        ],
        repeats=5,
    )
    rate, batch_rate = QUERIES * threads / single, QUERIES / together
    rivals = QUERIES / l1, JACCARD_QUERIES / jaccard
    scanned, memory = rate * stored.nbytes, BYTES / read
    table.add(
        data.name, f"{threads}", rate, scanned / 1e9, memory / 1e9, f"{scanned / memory:.2f}",
        batch_rate, rivals[0], f"{batch_rate / rivals[0]:.1f} ×",
        rivals[1], f"{batch_rate / rivals[1]:,.0f} ×",
    )  # fmt: skip


def main() -> None:
    """Measure and print."""
    options = arguments("Speed of the exact scan.").parse_args()
    table = Table("scan", COLUMNS)
    for name in SETS:
        data = load(name, options.data)
        for threads in (1, 2):
            add_row(table, data, threads)
    table.notes.append(
        f"top {LIMIT}; one query at a time a thread (each reads every row once) for GB/s, "
        f"{QUERIES} queries in one call for the rivals, who share them out over their threads. "
        "FAISS's L1 ranks as GMM does on L1-normalised rows only. Jaccard is asked on the "
        "positive and negative parts side by side, on the rows themselves where none is negative."
    )
    table.publish(options, threads="threads as stated")


if __name__ == "__main__":
    main()
