"""Near-duplicate pairs: a join of the tables with themselves, or all rows against all."""

from __future__ import annotations

from typing import Final

import numpy as np

from index.arrays import Float64s, Int64s, UInt64s
from index.bands import BandPlan, depth_for
from index.hits import RowView
from index.inverted import InvertedIndex
from index.kernels.join import join_table
from index.parallel import Workers
from index.params import SearchParams
from index.scan import exact_scores, scan
from index.tables import Tables

Pairs = tuple[Int64s, Int64s, Float64s]
"""Rows a < b of each pair, and their scores."""

_CAPACITY: Final = 1 << 18
_SLACK: Final = 1e-4
"""How far a float32 score may be below the exact one; exact scores decide."""


def joined_pairs(
    view: RowView,
    tables: Tables,
    plan: BandPlan,
    *,
    min_score: float,
    recall: float,
    workers: Workers,
) -> Pairs | None:
    """Return the pairs that share a bucket deep enough for the recall asked for.

    Returns None when no depth of these tables gives that recall at this score.
    """
    depth = depth_for(plan, min_score, recall)
    if depth is None:
        return None
    segment = tables.merged(workers)
    if segment is None:
        return _none()
    vectors = view.vectors
    shift = np.uint64(64 - depth * plan.bits)
    least = np.float32(max(0.0, min_score - _SLACK))
    found: list[UInt64s] = [np.empty(0, np.uint64)] * plan.bands

    def join(first: int, last: int) -> None:
        a, b = np.empty(_CAPACITY, np.int32), np.empty(_CAPACITY, np.int32)
        for table in range(first, last):
            place, partner = 0, 0
            pieces = []
            while place < len(segment):
                count, place, partner = join_table(
                    segment.keys[table], segment.rows[table], shift, vectors.dense,
                    vectors.indptr, vectors.slots, vectors.values, vectors.norms, view.permitted,
                    least, place, partner, a, b,
                )  # fmt: skip
                pieces.append(
                    a[:count].astype(np.uint64) << np.uint64(32) | b[:count].astype(np.uint64)
                )
            found[table] = np.concatenate(pieces)

    workers.split(plan.bands, join)
    packed = np.unique(np.concatenate(found))
    a = (packed >> np.uint64(32)).astype(np.int64)
    b = (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return _scored(view, a, b, min_score)


def _scored(view: RowView, a: Int64s, b: Int64s, min_score: float) -> Pairs:
    """Return the pairs whose exact score is high enough; ``a`` rises."""
    scores = np.empty(len(a), np.float64)
    borders = np.flatnonzero(np.diff(a, prepend=-1, append=-1))
    for start, stop in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        row = int(a[start])
        scores[start:stop] = exact_scores(view.vectors, view.vectors[row : row + 1], b[start:stop])
    keep = scores >= min_score
    return a[keep], b[keep], scores[keep]


def _none() -> Pairs:
    return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64)


def scanned_pairs(
    view: RowView, inverted: InvertedIndex, min_score: float, workers: Workers
) -> Pairs:
    """Return all pairs, each row compared with every later one."""
    n = len(view.vectors)
    rows = np.flatnonzero(view.permitted)
    lefts, rights, scores = [], [], []
    for row in rows.tolist():
        later = view.permitted.copy()
        later[: row + 1] = 0
        count = int(np.count_nonzero(later))
        if count == 0:
            continue
        hits = scan(
            RowView(view.vectors, later, count),
            view.vectors[row : row + 1],
            SearchParams(limit=n, recall=1.0, min_score=min_score),
            skip=np.array([-1], np.int64), inverted=inverted, workers=workers,
        )[0]  # fmt: skip
        order = np.argsort(hits.rows)
        lefts.append(np.full(len(hits.rows), row, np.int64))
        rights.append(hits.rows[order])
        scores.append(hits.scores[order])
    if not lefts:
        return _none()
    return np.concatenate(lefts), np.concatenate(rights), np.concatenate(scores)
