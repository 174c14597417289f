"""Requested and measured recall: ``python -m benchmarks.library.recall --data DIR``.

A query's recall is the share of its ten hits whose exact score reaches that of the tenth true
neighbour, so that ties cannot lower it. Queries are held out, and answered by one thread, one at a
time and in one call; the exact scan answers the same queries in the same run.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from time import perf_counter
from typing import Final

import numpy as np

from benchmarks.harness.datasets import DataSet, load
from benchmarks.harness.engine import Engine, RowHits, one_by_one, row_hits
from benchmarks.harness.report import Table, arguments
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import ExactParams, GcwsParams, Guarantee, SearchParams
from gcws_search.index.warmup.compile import compile_kernels

QUERIES: Final = 1000
LIMIT: Final = 10
TARGETS: Final = (0.8, 0.9, 0.95, 0.99)
GUARANTEES: Final[tuple[Guarantee, ...]] = ("measured", "proven")
ROUNDING: Final = 1e-9
SETS: Final = (
    "fashion_mnist", "dailysports_frames", "muv_ecfp4", "covtype93k", "news20 tf-idf", "letter",
    "synthetic, clustered",
)  # fmt: skip
COLUMNS: Final = (
    "data", "guarantee", "asked", "recall", "queries/s", "in one call", "exact scan, queries/s",
    "in one call", "ratio", "in one call", "candidates", "scored", "method",
)  # fmt: skip


def timed(
    engine: Engine, queries: Sequence[VectorBatch], params: SearchParams
) -> tuple[list[RowHits], float]:
    """Return the hits of queries sent one by one, and queries per second."""
    engine.search(queries[0], params)
    began = perf_counter()
    hits = [row_hits(engine.search(query, params))[0] for query in queries]
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


def at_once(engine: Engine, queries: VectorBatch, params: SearchParams) -> float:
    """Return queries per second in one call."""
    engine.search(queries, params)
    began = perf_counter()
    engine.search(queries, params)
    return len(queries) / (perf_counter() - began)


def add_rows(table: Table, data: DataSet, targets: Sequence[float]) -> None:
    """Measure one data set at every target, in either sense of the promise."""
    stored, held_out = data.hold_out(QUERIES)
    exact = Engine.build(stored, ExactParams(), threads=1)
    batch = exact.prepare(held_out)
    queries = one_by_one(batch)
    whole = SearchParams(limit=LIMIT, recall=1.0)
    truth, scan_rate = timed(exact, queries, whole)
    scan_at_once = at_once(exact, batch, whole)
    engine = Engine.build(stored, GcwsParams(), threads=1)
    for guarantee in GUARANTEES:
        if guarantee == "proven":
            engine = engine.with_all_tables()
        for target in targets:
            params = SearchParams(limit=LIMIT, recall=target, guarantee=guarantee)
            found, rate = timed(engine, queries, params)
            rate_at_once = at_once(engine, batch, params)
            explained = [hits.explanation for hits in found]
            table.add(
                data.name,
                guarantee,
                f"{target}",
                f"{mean_recall(found, truth):.4f}",
                rate,
                rate_at_once,
                scan_rate,
                scan_at_once,
                f"{rate / scan_rate:.1f} ×",
                f"{rate_at_once / scan_at_once:.1f} ×",
                statistics.fmean(e.candidates for e in explained),
                statistics.fmean(e.scored for e in explained),
                ", ".join(name for name, _ in Counter(e.method for e in explained).most_common()),
            )


def main() -> None:
    """Measure and print."""
    parser = arguments("Recall asked and recall measured.")
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS, metavar="NAME")
    parser.add_argument("--targets", nargs="+", type=float, default=TARGETS, metavar="RECALL")
    options = parser.parse_args()
    compile_kernels()
    table = Table("recall", COLUMNS)
    for name in options.sets:
        add_rows(table, load(name, options.data), options.targets)
    table.notes.append(
        f"{QUERIES:,} random queries a set, which are not stored. Parameters are the defaults, "
        "all-zero vectors are left out. Candidates and exact scores are means over the queries."
    )
    table.publish(options, threads="1 thread")


if __name__ == "__main__":
    main()
