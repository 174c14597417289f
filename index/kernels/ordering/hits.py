"""The best hits so far: a heap with the worst hit on top, or a list of all hits; exact ranking.

A hit is better if its score is higher, and among equal scores if its row is lower. So the result
does not depend on the order of the rows.
"""

from typing import NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s
from gcws_search.index.kernels.compiling import inner


class Heaps(NamedTuple):
    """The best hits so far of m queries, a heap of k places for each."""

    scores: Float32s  # (m, k); (m, 0) for lists, which add each row that scores enough
    rows: Int64s  # (m, k)
    sizes: Int64s  # (m,): number of hits


class Heap(NamedTuple):
    """The best hits so far of one query."""

    scores: Float32s  # (k,)
    rows: Int64s  # (k,)


def empty_heaps(count: int, places: int) -> Heaps:
    """Return a heap of ``places`` places for each of ``count`` queries."""
    return Heaps(
        np.empty((count, places), np.float32),
        np.empty((count, places), np.int64),
        np.zeros(count, np.int64),
    )


def empty_lists(count: int, places: int) -> Heaps:
    """Return lists for ``count`` queries, each with room for ``places`` rows."""
    return Heaps(
        np.empty((count, 0), np.float32),
        np.empty((count, places), np.int64),
        np.zeros(count, np.int64),
    )


@inner
def threshold(scores: Float32s, size: int, min_score: np.float32) -> np.float32:
    """Return the score from which a heap of ``size`` hits, or a list, accepts a hit."""
    return max(scores[0], min_score) if 0 < size == scores.shape[0] else min_score


@inner
def _worse(
    score_a: np.float32, row_a: int | np.int64, score_b: np.float32, row_b: int | np.int64
) -> bool:
    return bool(score_a < score_b or (score_a == score_b and row_a > row_b))


@inner
def push(scores: Float32s, rows: Int64s, size: int, score: np.float32, row: int | np.int64) -> int:
    """Offer one hit to a heap or a list, written in place; return the new size.

    A full heap drops its worst hit, or this one. A list, which has no ``scores``, takes all.
    """
    if size < scores.shape[0]:
        child = size
        while child > 0:
            parent = (child - 1) // 2
            if not _worse(score, row, scores[parent], rows[parent]):
                break
            scores[child] = scores[parent]
            rows[child] = rows[parent]
            child = parent
        scores[child] = score
        rows[child] = row
        return size + 1
    if scores.shape[0] == 0:
        rows[size] = row
        return size + 1
    if not _worse(scores[0], rows[0], score, row):
        return size
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and _worse(
            scores[child + 1], rows[child + 1], scores[child], rows[child]
        ):
            child += 1
        if not _worse(scores[child], rows[child], score, row):
            break
        scores[parent] = scores[child]
        rows[parent] = rows[child]
        parent = child
    scores[parent] = score
    rows[parent] = row
    return size


@inner
def rank(
    exact: Float64s,
    rows: Int64s,
    size: int,
    min_score: float,
    is_nearly_sorted: bool,
    out: Float64s,
) -> int:
    """Sort hits by falling score, equal scores by ascending row; drop those below ``min_score``.

    ``exact`` has the scores of the first ``size`` rows; these are sorted in place, and the scores
    are written to ``out`` in the new order. Returns the number of remaining hits.
    """
    count = 0
    for i in range(size):
        if exact[i] >= min_score:
            out[count] = exact[i]
            rows[count] = rows[i]
            count += 1
    gap = 1 if is_nearly_sorted else count // 2
    while gap > 0:  # Shell sort, because lists are mostly short
        for i in range(gap, count):
            score = out[i]
            row = rows[i]
            place = i
            while place >= gap and (
                out[place - gap] < score or (out[place - gap] == score and rows[place - gap] > row)
            ):
                out[place] = out[place - gap]
                rows[place] = rows[place - gap]
                place -= gap
            out[place] = score
            rows[place] = row
        gap //= 2
    return count
