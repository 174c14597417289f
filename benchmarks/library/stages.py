"""The gain of each stage of a graph search, measured without it.

Command: ``python -m benchmarks.library.stages --data DIR``. The graph is rebuilt and calibrated
without the stage, so recall is equal within the error of calibration. Queries are held out and sent
in one call on one thread; the time is the minimum of some runs.
"""

from collections.abc import Sequence
from time import process_time
from typing import Final

import numpy as np

from benchmarks.harness.datasets import DataSet, load
from benchmarks.harness.engine import Engine, row_hits
from benchmarks.harness.report import Table, arguments
from benchmarks.library.recall import LIMIT, mean_recall
from gcws_search.index import Policies
from gcws_search.index.contracts.hits import GRAPH, METHOD
from gcws_search.index.contracts.parameters import ExactParams, GcwsParams, SearchParams
from gcws_search.index.graph.lifecycle import GraphPolicy
from gcws_search.index.graph.search_plan import STAGES, SearchPolicy
from gcws_search.index.warmup.compile import compile_kernels

QUERIES: Final = 400
RUNS: Final = 12
TARGETS: Final = (0.8, 0.9, 0.99)
SETS: Final = (
    "letter",
    "covtype93k",
    "dailysports_frames",
    "fashion_mnist",
    "synthetic, clustered",
)
OPTIONAL: Final = (None, *STAGES)
"""Stages that can be left out; None leaves out none."""
COLUMNS: Final = (
    "data", "recall asked", "stage left out", "recall", "answered by the graph",
    "rows scored quickly", "µs",
)  # fmt: skip


def add_rows(table: Table, data: DataSet, targets: Sequence[float]) -> None:
    """Measure one data set without each of the stages."""
    stored, held_out = data.hold_out(QUERIES)
    exact = Engine.build(stored, ExactParams(), threads=1)
    everything = SearchParams(limit=LIMIT, recall=1.0)
    truth = row_hits(exact.search(exact.prepare(held_out), everything))
    for left_out in OPTIONAL:
        stages = tuple(stage for stage in STAGES if stage is not left_out)
        policies = Policies(graph=GraphPolicy(search=SearchPolicy(stages=stages)))
        engine = Engine.build(stored, GcwsParams(), threads=1, compiled=True, policies=policies)
        queries = engine.prepare(held_out)
        for target in targets:
            params = SearchParams(limit=LIMIT, recall=target)
            seconds = []
            for _ in range(RUNS):
                start = process_time()
                found = engine.search(queries, params)
                seconds.append(process_time() - start)
            hits = row_hits(found)
            table.add(
                data.name,
                f"{target}",
                "none" if left_out is None else left_out.value,
                f"{mean_recall(hits, truth):.4f}",
                f"{np.mean(found.work[:, METHOD] == GRAPH):.3f}",
                float(np.mean([each.explanation.candidates for each in hits])),
                min(seconds) / len(hits) * 1e6,
            )


def main() -> None:
    """Measure and print."""
    parser = arguments("What each stage of a graph search wins.")
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS, metavar="NAME")
    parser.add_argument("--targets", nargs="+", type=float, default=TARGETS, metavar="RECALL")
    options = parser.parse_args()
    compile_kernels()
    table = Table("stages", COLUMNS)
    for name in options.sets:
        add_rows(table, load(name, options.data), options.targets)
    table.publish(options, threads="1 thread, processor time")


if __name__ == "__main__":
    main()
