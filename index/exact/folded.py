"""All rows with enough score for many queries, exactly, by sums of groups of coordinates.

Rows in the order of their norms are divided into runs of similar norm, each with its own step; see
`kernels.quantized.folded`. The number of groups is chosen with a sample of the rows: more groups
take longer, and exclude more rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s, UInt8s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.cost_model import folded_nanoseconds
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.kernels.lsh.bucket_join import exact_pairs
from gcws_search.index.kernels.ordering.keys import RowPairs
from gcws_search.index.kernels.quantized.folded import (
    BLOCK,
    PLACES,
    ROUNDING,
    TOGETHER,
    FoldedQueries,
    FoldedRows,
    add_masses,
    fold_rows,
    keep_near,
    round_sums,
    scan_folded,
)
from gcws_search.index.similarities import tolerance
from gcws_search.index.threads import Workers

_STEPS: Final = 250.0
"""What two rows of the greatest norm of a run must share, in steps."""
_SPREAD: Final = 1.25
"""The greatest norm of a run over the least. With 2, joins of dense rows took 1.1 times as long,
and of fingerprints 0.7 to 1.2 times."""
_GROUPS: Final = (16, 32, 64, 128)
_SAMPLED: Final = 1024
_JUDGED: Final = 32
"""Rows and queries on which groups are chosen."""
_PAIRS: Final = 1 << 16
"""Pairs that are scored at a time."""
_CHUNK: Final = 1 << 15
"""Rows that are folded at a time."""

Found = tuple[Int64s, Int64s, Float64s]
"""Places of queries in a batch, rows of their hits, and scores; in any order."""


def least_folded(view: RowView) -> float:
    """Return the minimum nanoseconds of a query: the fewest groups exclude all rows."""
    return folded_nanoseconds(view, _GROUPS[0], 0.0)


def score_pairs(
    queries: VectorBatch, vectors: VectorBatch, places: Int64s, rows: Int64s, min_score: float
) -> Found:
    """Return the pairs of queries and rows that score at least ``min_score``."""
    asked, held = rows_of(queries), rows_of(vectors)
    count = keep_near(asked, held, places, rows, min_score - tolerance(vectors, queries))
    places, rows = places[:count].copy(), rows[:count].copy()
    scores = np.empty(count, np.float64)
    exact_pairs(asked, places, held, rows, scores)
    good = scores >= min_score
    return places[good], rows[good], scores[good]


def _in_steps(norms: Float32s, step: float) -> Float32s:
    """Return norms divided by a step that may be too small for float32."""
    return (norms.astype(np.float64) / step).astype(np.float32)


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows of similar norm."""

    rows: Int64s  # (r,), by ascending norm
    norms: tuple[float, float]  # smallest and greatest
    step: float
    folded: FoldedRows


class FoldedJoin:
    """The permitted rows of a view, to be joined with others, with a minimum score above 0.

    Attributes
    ----------
    nanoseconds : float
        Expected time of a query.
    """

    def __init__(
        self, view: RowView, queries: VectorBatch, min_score: float, workers: Workers
    ) -> None:
        """Fold the rows into as many groups as queries like these need."""
        view = view.with_floats()
        self._vectors, self._min_score, self._workers = view.vectors, min_score, workers
        norms = view.vectors.norms
        rows = np.flatnonzero(view.permitted)
        rows = rows[np.argsort(norms[rows], kind="stable")]
        self._share = max(0.0, min_score / (1.0 + min_score) - ROUNDING)
        self._group_of = self._choose_groups(view, queries, rows)
        self._runs: list[_Run] = []
        ordered = norms[rows]
        first = 0
        while first < len(rows):
            least = float(ordered[first])
            last = int(np.searchsorted(ordered, np.float32(_SPREAD * least), "right"))
            last = max(last, first + 1)
            greatest = float(ordered[last - 1])
            self._runs.append(self._run(rows[first:last], (least, greatest)))
            first = last

    def _choose_groups(self, view: RowView, queries: VectorBatch, rows: Int64s) -> UInt8s:
        """Return (PLACES,) the group of each place: enough groups to exclude most rows quickly."""
        some = rows[:: max(1, len(rows) // _SAMPLED)].copy()  # kernels take contiguous arrays
        asked = np.arange(0, len(queries), max(1, len(queries) // _JUDGED))
        norms = self._vectors.norms[some]
        needed = self._share * np.add.outer(queries.norms[asked], norms)
        lost = self._share * norms / _STEPS / 2.0  # an eighth of a step for each code of both
        masses = np.zeros(PLACES, np.float64)
        add_masses(rows_of(self._vectors), some, masses)
        ranks = np.empty(PLACES, np.int64)
        ranks[np.argsort(-masses, kind="stable")] = np.arange(PLACES)
        choices = []
        for groups in _GROUPS:
            # Alternate the direction, so that the groups have similar sums.
            turn, place = np.divmod(ranks, groups)
            self.groups, group_of = groups, np.where(turn % 2, groups - 1 - place, place)
            self._group_of = group_of.astype(np.uint8)
            x, y = self._fold(queries, asked), self._fold(self._vectors, some)
            near = [
                np.minimum(one, y).sum(axis=1) >= least - groups * lost
                for one, least in zip(x, needed, strict=True)
            ]
            cost = folded_nanoseconds(view, groups, float(np.mean(near)))
            choices.append((cost, groups, self._group_of))
        self.nanoseconds, self.groups, best = min(choices, key=lambda choice: choice[0])
        return best

    def _fold(self, vectors: VectorBatch, rows: Int64s) -> Float32s:
        """Return (r, groups) sums of some rows."""
        sums = np.empty((len(rows), self.groups), np.float32)
        fold_rows(rows_of(vectors), rows, self._group_of, sums)
        return sums

    def _run(self, rows: Int64s, norms: tuple[float, float]) -> _Run:
        blocks = -(-len(rows) // BLOCK)
        step = max(2.0 * self._share, ROUNDING) * norms[1] / _STEPS
        codes = np.zeros((blocks * BLOCK, self.groups), np.uint8)
        errors = np.zeros(blocks * BLOCK, np.float32)

        def fold(first: int, last: int) -> None:
            for start in range(first, last, _CHUNK):
                part = slice(start, min(start + _CHUNK, last))
                sums = self._fold(self._vectors, rows[part])
                round_sums(sums, step, codes[part], errors[part])

        self._workers.split(len(rows), fold, min_size=BLOCK)
        ordered = _in_steps(self._vectors.norms[rows], step)
        starts = np.arange(0, len(rows), BLOCK)
        ends = np.minimum(starts + BLOCK, len(rows)) - 1
        folded = FoldedRows(
            np.ascontiguousarray(codes.reshape(blocks, BLOCK, self.groups).transpose(0, 2, 1)),
            ordered[starts],
            ordered[ends],
            errors.reshape(blocks, BLOCK).max(axis=1),
            len(rows),
        )
        return _Run(rows, norms, step, folded)

    def __call__(self, queries: VectorBatch) -> Found:
        """Return the rows with enough score for each of some queries."""
        order = np.argsort(queries.norms, kind="stable")
        ordered = queries.norms[order]
        sums = self._fold(queries, order)
        none = np.empty(0, np.int64)
        found: list[Found] = [(none, none, np.empty(0, np.float64))]
        for run in self._runs:
            first = int(np.searchsorted(ordered, run.norms[0] * self._min_score * (1 - ROUNDING)))
            end = run.norms[1] / self._min_score * (1 + ROUNDING)
            last = int(np.searchsorted(ordered, end, "right"))
            if first == last:
                continue
            count = -(-(last - first) // TOGETHER) * TOGETHER
            chosen = np.minimum(np.arange(first, first + count), last - 1)
            codes = np.empty((count, self.groups), np.uint8)
            errors = np.empty(count, np.float32)
            round_sums(sums[chosen], run.step, codes, errors)
            asked = FoldedQueries(codes, _in_steps(ordered[chosen], run.step), errors)

            def join(start: int, end: int) -> None:
                for a, b in self._near(run, asked, TOGETHER * start, TOGETHER * end):  # noqa: B023
                    there = a < last - first  # noqa: B023
                    chosen = np.argsort(a[there], kind="stable")
                    places = order[first + a[there][chosen]]  # noqa: B023
                    rows = run.rows[b[there][chosen]]  # noqa: B023
                    found.append(score_pairs(queries, self._vectors, places, rows, self._min_score))

            self._workers.split(count // TOGETHER, join)
        places, rows, scores = (np.concatenate(part) for part in zip(*found, strict=True))
        return places, rows, scores

    def _near(
        self, run: _Run, asked: FoldedQueries, first: int, last: int
    ) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield places of queries and of rows that may score enough."""
        out = RowPairs(np.empty(_PAIRS, np.int32), np.empty(_PAIRS, np.int32))
        block, query = 0, first
        threshold = self._min_score * (1 - ROUNDING)
        while block < len(run.folded.codes):
            count, block, query = scan_folded(
                asked, run.folded, threshold, self._share, first, last, block, query, out
            )
            yield out.a[:count].astype(np.int64), out.b[:count].astype(np.int64)
