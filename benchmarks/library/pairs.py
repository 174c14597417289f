"""Near-duplicate pairs, compared with all rows against all.

Command: ``python -m benchmarks.library.pairs --data DIR``.

All pairs are compared for the truth, so the recall is that of every pair, not of a sample.
"""

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

import numpy as np

from benchmarks.harness.datasets import load
from benchmarks.harness.engine import Engine
from benchmarks.harness.report import Table, arguments
from gcws_search.index.contracts.arrays import Int64s
from gcws_search.index.contracts.parameters import GcwsParams
from gcws_search.index.joins import PairSink, PrefixJoin, compare_pairs
from gcws_search.index.threads import Workers

RECALLS: Final = (0.9, 0.99, 1.0)
COMPILING_SCORE: Final = 0.9
COLUMNS: Final = (
    "data", "rows", "least score", "pairs", "asked", "recall", "seconds",
    "all with all, seconds", "ratio", "build, s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    """The benchmark's parameters for one data set.

    Attributes
    ----------
    data : str
    scores : tuple of float
        Least scores wanted.
    step : int
        One in this number of rows is stored: at most two million pairs are listed at once.
    """

    data: str
    scores: tuple[float, ...]
    step: int = 1


TASKS: Final = (
    Task("fashion_mnist", (0.9, 0.8), 2),
    Task("dailysports_frames", (0.95,), 2),
    Task("news20 tf-idf", (0.8, 0.5, 0.3)),
    Task("muv_ecfp4", (0.8, 0.6)),
    Task("synthetic, clustered", (0.5,), 2),
)


def found(engine: Engine, least: float, recall: float) -> tuple[Int64s, float]:
    """Return the pairs, each as one number, and the seconds they took."""
    began = perf_counter()
    a, b, _ = engine.backend.pairs(engine.state, engine.view, min_score=least, recall=recall)
    return a << 32 | b, perf_counter() - began


def compared(engine: Engine, least: float, threads: int) -> tuple[Int64s, float]:
    """Return the same, all rows being compared with all."""
    began = perf_counter()
    sink = PairSink(engine.view, least, None)
    compare_pairs(engine.view, engine.state.inverted, sink, workers=Workers(threads))
    a, b, _ = sink.result()
    return a << 32 | b, perf_counter() - began


def add_rows(table: Table, task: Task, folder: Path, threads: int) -> None:
    """Measure one data set at every score and recall."""
    vectors = load(task.data, folder).vectors[:: task.step]
    engine = Engine.build(vectors, GcwsParams(), threads=threads)
    small = Engine.build(vectors[:3000], GcwsParams(), threads=threads)
    for recall in RECALLS:  # compiled, or read from the cache
        found(small, COMPILING_SCORE, recall)
    compared(small, COMPILING_SCORE, threads)
    if small.view.vectors.form == "sparse":  # of which so few are compared
        prefixes = PrefixJoin.of(small.view, COMPILING_SCORE)
        assert prefixes is not None
        prefixes.offer(PairSink(small.view, COMPILING_SCORE, None), Workers(threads))
    for least in task.scores:
        truth, all_seconds = compared(engine, least, threads)
        for recall in RECALLS:
            pairs, seconds = found(engine, least, recall)
            share = np.isin(pairs, truth, assume_unique=True).sum() / max(1, len(truth))
            table.add(
                task.data,
                vectors.shape[0],
                f"{least}",
                len(truth),
                f"{recall}",
                f"{share:.4f}",
                seconds,
                all_seconds,
                f"{all_seconds / seconds:.1f} ×",
                engine.build_seconds,
            )


def main() -> None:
    """Measure and print."""
    parser = arguments("Near-duplicate pairs.")
    parser.add_argument("--threads", type=int, default=1)
    names = [task.data for task in TASKS]
    parser.add_argument("--sets", nargs="+", default=names, choices=names, metavar="NAME")
    options = parser.parse_args()
    table = Table("pairs", COLUMNS)
    for task in TASKS:
        if task.data in options.sets:
            add_rows(table, task, options.data, options.threads)
    table.notes.append(
        "All-zero vectors are left out. The index, its graph and its calibration are built before. "
        "If a join needs more tables, the time to make them is part of its time."
    )
    table.publish(options, threads=f"{options.threads} threads")


if __name__ == "__main__":
    main()
