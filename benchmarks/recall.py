"""What recall is asked and what comes: ``python -m benchmarks.recall --data DIR``.

A query's recall is the share of its ten hits whose exact score reaches that of the tenth true
neighbour, so that ties cannot lower it. Queries are held out, and answered one at a time by one
thread; the exact scan answers the same queries in the same run.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from time import perf_counter
from typing import Final

import numpy as np

from benchmarks.datasets import DataSet, load
from benchmarks.engine import Engine, one_by_one
from benchmarks.report import Table, arguments
from index.backends.protocol import RowHits
from index.batches import VectorBatch
from index.params import ExactParams, GcwsParams, SearchParams

QUERIES: Final = 1000
LIMIT: Final = 10
TARGETS: Final = (0.8, 0.9, 0.95, 0.99)
ROUNDING: Final = 1e-9
SETS: Final = (
    "fashion_mnist", "dailysports_frames", "muv_ecfp4", "covtype93k", "news20 tf-idf", "letter",
    "made, clustered",
)  # fmt: skip
COLUMNS: Final = (
    "data", "asked", "recall", "queries/s", "exact scan, queries/s", "ratio", "candidates",
    "scored", "method", "build, s", "bytes an item and table", "index bytes an item",
)  # fmt: skip


def timed(
    engine: Engine, queries: Sequence[VectorBatch], params: SearchParams
) -> tuple[list[RowHits], float]:
    """Return the hits of each query, asked one by one, and queries a second."""
    engine.search(queries[0], params)
    began = perf_counter()
    hits = [engine.search(query, params)[0] for query in queries]
    return hits, len(queries) / (perf_counter() - began)


def mean_recall(found: Sequence[RowHits], true: Sequence[RowHits]) -> float:
    """Return the mean share of hits that score as well as the ``LIMIT``-th true one."""
    shares = []
    for hits, truth in zip(found, true, strict=True):
        wanted = min(LIMIT, len(truth.scores))
        if wanted == 0:
            continue
        least = truth.scores[wanted - 1] - ROUNDING
        shares.append(min(int(np.count_nonzero(hits.scores >= least)), wanted) / wanted)
    return float(np.mean(shares))


def add_rows(table: Table, data: DataSet, targets: Sequence[float], bands: int) -> None:
    """Measure one data set at every target."""
    stored, held_out = data.hold_out(QUERIES)
    exact = Engine.build(stored, ExactParams(), threads=1)
    queries = one_by_one(exact.prepare(held_out))
    truth, scan_rate = timed(exact, queries, SearchParams(limit=LIMIT, recall=1.0))
    engine = Engine.build(stored, GcwsParams(bands=bands), threads=1)
    bytes_ = engine.backend.stats(engine.state)["bytes_per_item_and_table"]
    memory = engine.backend.nbytes(engine.state) / stored.shape[0]
    for target in targets:
        found, rate = timed(engine, queries, SearchParams(limit=LIMIT, recall=target))
        explained = [hits.explanation for hits in found]
        table.add(
            data.name,
            f"{target}",
            f"{mean_recall(found, truth):.4f}",
            rate,
            scan_rate,
            f"{rate / scan_rate:.1f} ×",
            statistics.fmean(e.candidates for e in explained),
            statistics.fmean(e.scored for e in explained),
            ", ".join(name for name, _ in Counter(e.method for e in explained).most_common()),
            engine.build_seconds,
            bytes_,
            memory,
        )


def main() -> None:
    """Measure and print."""
    parser = arguments("Recall asked and recall measured.")
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS, metavar="NAME")
    parser.add_argument("--targets", nargs="+", type=float, default=TARGETS, metavar="RECALL")
    parser.add_argument("--bands", type=int, default=GcwsParams().bands)
    options = parser.parse_args()
    table = Table("recall", COLUMNS)
    for name in options.sets:
        add_rows(table, load(name, options.data), options.targets, options.bands)
    table.notes.append(
        f"{QUERIES:,} queries a set, drawn at random and not stored; {options.bands} tables; "
        "all-zero vectors left out; candidates and exact scores are means over the queries."
    )
    table.publish(options, threads="1 thread, building included")


if __name__ == "__main__":
    main()
