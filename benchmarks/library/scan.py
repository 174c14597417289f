"""The exact scan, by copies and by floats, with memory bandwidth and FAISS.

Command: ``python -m benchmarks.library.scan --data DIR``.
"""

import time
from dataclasses import replace
from typing import Any, Final

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.bandwidth import BYTES, reading
from benchmarks.harness.datasets import DataSet, load
from benchmarks.harness.engine import Engine, one_by_one
from benchmarks.harness.report import Table, arguments
from benchmarks.harness.timing import interleaved
from gcws_search.index.contracts.parameters import ExactParams, SearchParams

SETS: Final = ("fashion_mnist", "gaussian", "synthetic, clustered", "dailysports_frames")
LIMIT: Final = 10
QUERIES: Final = 64
SINGLES: Final = 16
REPEATS: Final = 7
JACCARD_QUERIES: Final = 2
COLUMNS: Final = (
    "data", "queries/s", "by floats", "ratio", "FAISS L1", "ratio",
    "copies read, GB/s", "memory, GB/s", "share",
    "in a batch, queries/s", "by floats", "ratio", "FAISS L1", "ratio", "FAISS Jaccard", "ratio",
)  # fmt: skip


def expanded(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return positive and negative parts side by side; vectors without negatives unchanged."""
    if vectors.min() >= 0:
        return vectors
    return np.hstack([np.maximum(vectors, 0), np.maximum(-vectors, 0)])


def faiss_index(stored: NDArray[np.float32], metric: int) -> Any:  # noqa: ANN401 (untyped)
    """Return FAISS's flat index of rows."""
    index: Any = faiss.IndexFlat(stored.shape[1], metric)
    index.add(np.ascontiguousarray(stored))
    return index


def of_floats(engine: Engine) -> Engine:
    """Return the same rows without the copies that scans read first."""
    vectors = engine.view.vectors
    vectors = vectors[np.arange(vectors.count)]
    return replace(engine, view=replace(engine.view, vectors=vectors))


def add_row(table: Table, data: DataSet) -> None:
    """Measure one data set."""
    stored, held_out = data.hold_out(QUERIES)
    engine = Engine.build(stored, ExactParams(), threads=1)
    plain = of_floats(engine)
    params = SearchParams(limit=LIMIT, recall=1.0)
    batch = engine.prepare(held_out)
    singles = one_by_one(batch)[:SINGLES]
    index = faiss_index(stored, faiss.METRIC_L1)
    jaccard_index = faiss_index(expanded(stored), faiss.METRIC_Jaccard)
    asked = np.ascontiguousarray(held_out)
    some = np.ascontiguousarray(expanded(held_out)[:JACCARD_QUERIES])

    alone, alone_plain, alone_faiss, read, together, together_plain, l1, jaccard = interleaved(
        [
            lambda: [engine.search(query, params) for query in singles],
            lambda: [plain.search(query, params) for query in singles],
            lambda: [index.search(asked[i : i + 1], LIMIT) for i in range(SINGLES)],
            reading(1),
            lambda: engine.search(batch, params),
            lambda: plain.search(batch, params),
            lambda: index.search(asked, LIMIT),
            lambda: jaccard_index.search(some, LIMIT),
        ],
        repeats=REPEATS,
        clock=time.process_time,
    )
    copies = engine.view.vectors.copies
    bytes_ = stored.nbytes
    if copies is not None:
        bytes_ = copies.codes.nbytes + copies.errors.nbytes + copies.excesses.nbytes
    scanned, memory = SINGLES * bytes_ / alone, BYTES / read
    table.add(
        data.name,
        SINGLES / alone, SINGLES / alone_plain, f"{alone_plain / alone:.1f} ×",
        SINGLES / alone_faiss, f"{alone_faiss / alone:.1f} ×",
        scanned / 1e9, memory / 1e9, f"{scanned / memory:.2f}",
        QUERIES / together, QUERIES / together_plain, f"{together_plain / together:.1f} ×",
        QUERIES / l1, f"{l1 / together:.1f} ×",
        JACCARD_QUERIES / jaccard,
        f"{jaccard / together * QUERIES / JACCARD_QUERIES:,.0f} ×",
    )  # fmt: skip


def main() -> None:
    """Measure and print."""
    faiss.omp_set_num_threads(1)
    options = arguments("Speed of the exact scan.").parse_args()
    table = Table("scan", COLUMNS)
    for name in SETS:
        add_row(table, load(name, options.data))
    table.notes.append(
        f"Top {LIMIT}, one query at a time, then {QUERIES} queries in one call. Processor time, "
        f"medians of {REPEATS} turns. Single queries read all copies from memory; GB/s are theirs. "
        "`by floats` is the same scan of the same rows without copies. FAISS's L1 ranks as GMM "
        "does on L1-normalised rows only. Its Jaccard gets the positive and negative parts of a "
        "row side by side, or the row itself where no value is negative."
    )
    table.publish(options, threads="1 thread")


if __name__ == "__main__":
    main()
