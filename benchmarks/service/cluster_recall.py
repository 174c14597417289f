"""Recall of merged answers: ``python -m benchmarks.service.cluster_recall --data DIR``.

Items are divided over shards by their ids, as in a cluster. Each shard has its own index, and
answers held-out queries one at a time. The answer is the best hits of all shards. A hit counts if
its score is at least that of the last true one, so that ties cannot lower the recall.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.datasets import DataSet, load
from benchmarks.harness.engine import Engine, RowHits, one_by_one, row_hits
from benchmarks.harness.report import Table, arguments
from gcws_search.index.backends import POLICIES, Policies
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import GcwsParams, Guarantee, SearchParams
from gcws_search.index.warmup.compile import compile_kernels
from gcws_search.service.cluster.contract import bucket_of

QUERIES: Final = 500
BUCKETS: Final = 32
SHARDS: Final = (1, 2, 4, 8)
LIMITS: Final = (1, 10, 30, 100)
TARGETS: Final = (0.8, 0.9, 0.95, 0.99)
GUARANTEES: Final[tuple[Guarantee, ...]] = ("measured", "proven")
ROUNDING: Final = 1e-9
SETS: Final = ("fashion_mnist", "dailysports_frames", "news20 words")
RANKS: Final = ((0, 1), (1, 3), (3, 10), (10, 30), (30, 100))
"""Groups of ranks, from and to; the nearest is 0."""
RANKED_SHARDS: Final = 4
RANKED_LIMITS: Final = (10, 100)
"""Whose hits are told by rank."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of the items, its index, and the true hits of all queries among them.

    Attributes
    ----------
    engine : Engine
    truth : sequence of RowHits
        As many as the greatest limit.
    """

    engine: Engine
    truth: Sequence[RowHits]


class Cell(NamedTuple):
    """What one question found, one entry a query.

    Attributes
    ----------
    merged : (m,) float64
        Recall of the merged answer.
    own : (m,) float64
        Mean recall of the shards among their own items.
    ranked, counted : (limit,) float64
        How many of the shards' true hits of each rank were found, and how many there are. Hits that
        tie with the last one are left out, because others may stand for them.
    """

    merged: Floats
    own: Floats
    ranked: Floats
    counted: Floats


def divided(rows: int, shards: int) -> list[NDArray[np.int64]]:
    """Return the rows of each shard, with their numbers as ids."""
    places = np.array([bucket_of(str(row), BUCKETS) % shards for row in range(rows)])
    return [np.flatnonzero(places == shard) for shard in range(shards)]


class Cluster:
    """The stored rows of a data set, divided over shards, and held-out queries.

    Parameters
    ----------
    data : DataSet
    shards : int
    queries : int
        How many rows are held out.
    policies : Policies
    """

    def __init__(
        self, data: DataSet, shards: int, queries: int, policies: Policies = POLICIES
    ) -> None:
        stored, held_out = data.hold_out(queries)
        self.queries: list[VectorBatch] = []
        self.shards: list[Shard] = []
        exact = SearchParams(limit=max(LIMITS), recall=1.0)
        for rows in divided(stored.shape[0], shards):
            engine = Engine.build(
                stored[rows], GcwsParams(), threads=1, compiled=True, policies=policies
            )
            batch = engine.prepare(held_out)
            self.queries = self.queries or one_by_one(batch)
            self.shards.append(Shard(engine, row_hits(engine.search(batch, exact))))
        together = zip(*(shard.truth for shard in self.shards), strict=True)
        self.scores = [np.concatenate([one.scores for one in each]) for each in together]
        for scores in self.scores:
            scores[::-1].sort()

    def with_all_tables(self) -> None:
        """Build the tables that a service builds once proven recall is requested."""
        self.shards = [Shard(each.engine.with_all_tables(), each.truth) for each in self.shards]

    def ask(self, params: SearchParams) -> Cell:
        """Return the hits of all shards for each query."""
        limit = params.limit
        ranked, counted = np.zeros(limit), np.zeros(limit)
        merged, own = [], []
        for number, query in enumerate(self.queries):
            scores = self.scores[number]
            least, hits, shares = last(scores, limit), 0, []
            for shard in self.shards:
                truth = shard.truth[number]
                [found] = row_hits(shard.engine.search(query, params))
                hits += int(np.count_nonzero(found.scores >= least))
                own_least = last(truth.scores, limit)
                wanted = min(limit, len(truth.scores))
                shares.append(min(np.count_nonzero(found.scores >= own_least) / wanted, 1.0))
                nearer = truth.scores[:limit] > own_least + 2 * ROUNDING
                counted[: len(nearer)] += nearer
                ranked[: len(nearer)] += nearer & np.isin(truth.rows[:limit], found.rows)
            merged.append(min(hits / min(limit, len(scores)), 1.0))
            own.append(float(np.mean(shares)))
        return Cell(np.array(merged), np.array(own), ranked, counted)


def last(scores: Floats, limit: int) -> float:
    """Return the minimum score of the best hits."""
    return float(scores[min(limit, len(scores)) - 1]) - ROUNDING


def cells(
    data: DataSet, shards: int, guarantees: Sequence[Guarantee], queries: int
) -> Iterator[tuple[SearchParams, Cell]]:
    """Yield every question with what it found."""
    cluster = Cluster(data, shards, queries)
    for guarantee in guarantees:
        if guarantee == "proven":
            cluster.with_all_tables()
        for asked in TARGETS:
            for limit in LIMITS:
                params = SearchParams(limit=limit, recall=asked, guarantee=guarantee)
                yield params, cluster.ask(params)


def add_rows(merged: Table, by_rank: Table, data: DataSet, queries: int) -> None:
    """Measure one data set."""
    found = {
        (shards, params.guarantee, params.recall, params.limit): cell
        for shards in SHARDS
        for params, cell in cells(data, shards, GUARANTEES, queries)
    }
    for guarantee in GUARANTEES:
        for asked in TARGETS:
            columns = [
                " · ".join(
                    f"{found[shards, guarantee, asked, limit].merged.mean():.3f}"
                    for shards in SHARDS
                )
                for limit in LIMITS
            ]
            merged.add(data.name, guarantee, f"{asked}", *columns)
            for limit in RANKED_LIMITS:
                cell = found[RANKED_SHARDS, guarantee, asked, limit]
                shares = [share(cell, first, end) for first, end in RANKS]
                own = f"{cell.own.mean():.4f}"
                by_rank.add(data.name, guarantee, f"{asked}", f"{limit}", own, *shares)


def share(cell: Cell, first: int, end: int) -> str:
    """Return the share of the hits of some ranks that was found; empty without hits."""
    counted = cell.counted[first:end].sum()
    return f"{cell.ranked[first:end].sum() / counted:.4f}" if counted else ""


def main() -> None:
    """Measure and print."""
    parser = arguments("Recall of the merged answers of shards.")
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="NAME")
    parser.add_argument("--queries", type=int, default=QUERIES)
    options = parser.parse_args()
    compile_kernels()
    ranks = [
        f"rank {first + 1}" + (f" to {end}" if end > first + 1 else "") for first, end in RANKS
    ]
    kinds = ["data", "guarantee", "asked"]
    merged = Table("cluster recall", [*kinds, *(f"limit {limit}" for limit in LIMITS)])
    by_rank = Table("cluster recall by rank", [*kinds, "limit", "all", *ranks])
    for name in options.sets:
        add_rows(merged, by_rank, load(name, options.data), options.queries)
    shards = " · ".join(map(str, SHARDS))
    merged.notes.append(
        f"Recall of the merged answer of {shards} shards; {options.queries:,} random queries "
        "a set, which are not stored."
    )
    by_rank.notes.append(
        f"Share of true hits found, by their rank on the shard: {RANKED_SHARDS} shards, each with "
        "its own items. Hits that tie with the last are left out of the ranks."
    )
    for table in (merged, by_rank):
        table.publish(options, threads="1 thread")


if __name__ == "__main__":
    main()
