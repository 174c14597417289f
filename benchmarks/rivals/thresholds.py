"""Recall by score instead of by count: ``python -m benchmarks.rivals.thresholds --data DIR``.

Queries ask for every item that is at least so similar (``min_score``). The thresholds are
quantiles of the queries' tenth scores, so that most queries have a few, some or many such items.
"""

from collections.abc import Sequence
from time import perf_counter
from typing import Final

import numpy as np

from benchmarks.harness.datasets import DataSet, load
from benchmarks.harness.engine import Engine, RowHits, row_hits
from benchmarks.harness.report import Table, arguments
from benchmarks.library.recall import LIMIT, QUERIES, ROUNDING, SETS
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import CollectionConfig, ExactParams, SearchParams

QUANTILES: Final = (0.9, 0.5, 0.1)
TARGETS: Final = (0.9, 0.99)
MAX: Final = 1000
COLUMNS: Final = (
    "data", "least score", "its quantile", "true items a query", "asked", "share found",
    "queries/s", "exact scan, queries/s", "ratio",
)  # fmt: skip


def timed(
    engine: Engine, queries: VectorBatch, params: SearchParams
) -> tuple[Sequence[RowHits], float]:
    """Return the hits of all queries, asked in one call, and queries a second."""
    engine.search(queries[:2], params)
    began = perf_counter()
    hits = engine.search(queries, params)
    seconds = perf_counter() - began
    return row_hits(hits), len(queries) / seconds


def share_found(found: Sequence[RowHits], true: Sequence[RowHits], least: float) -> float:
    """Return the share of all queries' true items that were found, `MAX` a query at most."""
    there = [_reaching(hits, least) for hits in true]
    got = [min(_reaching(hits, least), most) for hits, most in zip(found, there, strict=True)]
    return sum(got) / max(1, sum(there))


def _reaching(hits: RowHits, least: float) -> int:
    return min(MAX, int(np.count_nonzero(hits.scores >= least - ROUNDING)))


def add_rows(table: Table, data: DataSet) -> None:
    """Measure one data set at every threshold and target."""
    stored, held_out = data.hold_out(QUERIES)
    exact = Engine.build(stored, ExactParams(), threads=1)
    default = CollectionConfig(dim=int(stored.shape[1])).backend
    engine = Engine.build(stored, default, threads=1)
    queries = engine.prepare(held_out)
    nearest = row_hits(exact.search(queries, SearchParams(limit=LIMIT, recall=1.0)))
    tenth = [hits.scores[LIMIT - 1] for hits in nearest]
    for quantile in QUANTILES:
        least = float(np.quantile(tenth, quantile))
        scan = SearchParams(limit=MAX, recall=1.0, min_score=least)
        truth, scan_rate = timed(exact, queries, scan)
        for target in TARGETS:
            asked = SearchParams(limit=MAX, recall=target, min_score=least)
            found, rate = timed(engine, queries, asked)
            table.add(
                data.name,
                f"{least:.3f}",
                f"{quantile:.0%}",
                float(np.mean([_reaching(hits, least) for hits in truth])),
                f"{target}",
                f"{share_found(found, truth, least):.4f}",
                rate,
                scan_rate,
                f"{rate / scan_rate:.1f} ×",
            )


def main() -> None:
    """Measure and print."""
    parser = arguments("Recall of everything that is at least so similar.")
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS, metavar="NAME")
    options = parser.parse_args()
    table = Table("thresholds", COLUMNS)
    for name in options.sets:
        add_rows(table, load(name, options.data))
    table.notes.append(
        f"{QUERIES:,} held-out queries in one call. The quantile is that of the queries' tenth "
        f"scores. The share is that of the true items of all queries, at most {MAX:,} a query."
    )
    table.publish(options, threads="1 thread")


if __name__ == "__main__":
    main()
