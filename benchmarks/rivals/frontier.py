"""Recall and queries per second of a method, and its speed at a given recall."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.harness.datasets import Vectors
from benchmarks.harness.engine import Engine, RowHits, row_hits
from benchmarks.library.recall import mean_recall
from benchmarks.rivals.methods import LIMIT, Rows
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import ExactParams, SearchParams
from gcws_search.index.similarities import exact_scores


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of one method.

    Attributes
    ----------
    threads : int
    setting : float
    queries : int
        In the batch.
    recall : float
    seconds, cpu_seconds : sequence of float
        Of each turn: the median over its calls for the whole batch.
    """

    threads: int
    setting: float
    queries: int
    recall: float
    seconds: Sequence[float]
    cpu_seconds: Sequence[float]

    @property
    def rate(self) -> float:
        """Queries a second, in the median."""
        return self.queries / statistics.median(self.seconds)

    @property
    def best_rate(self) -> float:
        """Queries a second in the best turn."""
        return self.queries / min(self.seconds)

    @property
    def cpu_rate(self) -> float:
        """Queries a second of processor time in the best turn, whoever else was busy."""
        return self.queries / min(self.cpu_seconds)


@dataclass(frozen=True, slots=True)
class Truth:
    """The true neighbours of the queries, and the rows that answers are scored by."""

    rows: VectorBatch
    queries: VectorBatch
    hits: Sequence[RowHits]

    @classmethod
    def of(cls, stored: Vectors, held_out: Vectors) -> "Truth":
        """Scan all rows."""
        exact = Engine.build(stored, ExactParams(), threads=2)
        queries = exact.prepare(held_out)
        hits = row_hits(exact.search(queries, SearchParams(limit=LIMIT, recall=1.0)))
        return cls(exact.view.vectors, queries, hits)

    def recall(self, found: Rows) -> float:
        """Return the mean recall of an answer, whose rows are scored exactly here."""
        return mean_recall([self._scored(m, rows) for m, rows in enumerate(found)], self.hits)

    def _scored(self, m: int, rows: Rows) -> RowHits:
        rows = np.unique(rows[rows >= 0])
        scores = exact_scores(self.rows, self.queries[m : m + 1], rows)
        return RowHits(rows, scores, self.hits[m].explanation)


def rate_at(recall: float, points: Sequence[tuple[float, float]]) -> float | None:
    """Return the queries per second at a recall, or None if it is not reached.

    Parameters
    ----------
    recall : float
    points : sequence of (recall, queries a second)

    Notes
    -----
    Points that another one beats in both do not count. Between two neighbours the logarithm of
    the speed is linear in the recall. Nothing is extrapolated: below the lowest recall the speed
    is that of the lowest, which keeps more than was asked.
    """
    best: list[tuple[float, float]] = []
    for point in sorted(points, reverse=True):
        if not best or point[1] > best[-1][1]:
            best.append(point)
    if not best or recall > best[0][0]:
        return None
    recalls, rates = zip(*reversed(best), strict=True)
    return float(np.exp(np.interp(recall, recalls, np.log(rates))))
