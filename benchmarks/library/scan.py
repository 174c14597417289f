"""The exact scan, by copies and by floats, beside memory bandwidth and FAISS.

Command: ``python -m benchmarks.library.scan --data DIR``.
"""

from collections.abc import Callable
from dataclasses import replace
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

SETS: Final = ("fashion_mnist", "gaussian", "made, clustered", "dailysports_frames")
LIMIT: Final = 10
QUERIES: Final = 64
SINGLES: Final = 16
JACCARD_QUERIES: Final = 2
COLUMNS: Final = (
    "data", "threads", "queries/s", "by floats", "ratio", "FAISS L1", "ratio",
    "copies read, GB/s", "memory, GB/s", "share",
    "in a batch, queries/s", "by floats", "ratio", "FAISS L1", "ratio", "FAISS Jaccard", "ratio",
)  # fmt: skip


def expanded(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return positive and negative parts side by side; vectors without negatives as they are."""
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
    vectors = replace(engine.view.vectors, copies=None)
    return replace(engine, view=replace(engine.view, vectors=vectors))


def add_row(table: Table, data: DataSet, threads: int) -> None:
    """Measure one data set with so many threads."""
    stored, held_out = data.hold_out(QUERIES)
    engine = Engine.build(stored, ExactParams(), threads=1)
    team = Engine.build(stored, ExactParams(), threads=threads)
    params = SearchParams(limit=LIMIT, recall=1.0)
    batch = engine.prepare(held_out)
    singles = one_by_one(batch)[:SINGLES]
    faiss.omp_set_num_threads(threads)
    index = faiss_index(stored, faiss.METRIC_L1)
    jaccard_index = faiss_index(expanded(stored), faiss.METRIC_Jaccard)
    asked = [np.ascontiguousarray(held_out[i : i + 1]) for i in range(SINGLES)]

    def one_at_a_time(engine: Engine) -> Callable[[], object]:
        return in_threads(lambda _: [engine.search(query, params) for query in singles], threads)

    single, plain, rival, read, together, plain_together, l1, jaccard = interleaved(
        [
            one_at_a_time(engine),
            one_at_a_time(of_floats(engine)),
            lambda: [index.search(query, LIMIT) for query in asked],
            reading(threads),
            lambda: team.search(batch, params),
            lambda: of_floats(team).search(batch, params),
            lambda: index.search(np.ascontiguousarray(held_out), LIMIT),
            lambda: jaccard_index.search(expanded(held_out)[:JACCARD_QUERIES], LIMIT),
        ],
        repeats=5,
    )
    copies = engine.view.vectors.copies
    rate, batch_rate = SINGLES * threads / single, QUERIES / together
    scanned = rate * (stored.nbytes if copies is None else copies.codes.nbytes)
    memory, jaccard_rate = BYTES / read, JACCARD_QUERIES / jaccard
    table.add(
        data.name, f"{threads}",
        rate, SINGLES * threads / plain, f"{plain / single:.1f} ×",
        SINGLES / rival, f"{rate * rival / SINGLES:.1f} ×",
        scanned / 1e9, memory / 1e9, f"{scanned / memory:.2f}",
        batch_rate, QUERIES / plain_together, f"{plain_together / together:.1f} ×",
        QUERIES / l1, f"{l1 / together:.1f} ×",
        jaccard_rate, f"{batch_rate / jaccard_rate:,.0f} ×",
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
        f"top {LIMIT}; one query at a time a thread, then {QUERIES} queries in one call, which "
        "share out the threads. Single queries read all copies from memory: GB/s are of these. "
        "`by floats` is the same scan of the same rows without copies. "
        "FAISS's L1 ranks as GMM does on L1-normalised rows only. Jaccard is asked on the "
        "positive and negative parts side by side, on the rows themselves where none is negative."
    )
    table.publish(options, threads="threads as stated")


if __name__ == "__main__":
    main()
