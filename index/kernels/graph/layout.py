"""Positions of a graph's rows in a plane: neighbours attract each other, other rows repel.

Stochastic gradient descent of UMAP's loss ([UMAP] §3.2) with the curve 1 / (1 + d²): its powers a
and b are 1, so no step takes a power.
"""

from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.hashing.randomness import mix64

_APART: Final = 5  # random rows that repel a row at each attraction
_LONGEST: Final = 4.0  # longest step along an axis
_TOUCHING: Final = 0.001  # avoids infinite steps of rows at equal positions


@inner
def _step(rate: float, pull: float, gap: float) -> float:
    return rate * min(_LONGEST, max(-_LONGEST, pull * gap))


@kernel
def arrange(
    neighbours: Int64s,
    periods: Float64s,
    turn: int,
    rounds: int,
    draws: np.uint64,
    due: Float64s,
    out: Float64s,
) -> np.uint64:
    """Move rows in one round; return the count of random numbers used so far.

    neighbours: (n, k), rows that attract each row.
    periods: (n, k), rounds between attractions, at least 1; infinite for none.
    turn, rounds: number of this round, from 1 on, and of all rounds.
    draws: random numbers used by earlier calls.
    due: (n, k), the round of the next attraction, at first the periods, written in place.
    out: (n, 2), the positions, written in place.
    """
    n, k = neighbours.shape
    rate = 1.0 - (turn - 1) / rounds
    for row in range(n):
        for place in range(k):
            if due[row, place] > turn:
                continue
            due[row, place] += periods[row, place]
            other = neighbours[row, place]
            x = out[row, 0] - out[other, 0]
            y = out[row, 1] - out[other, 1]
            pull = -2.0 / (1.0 + x * x + y * y)
            out[row, 0] += _step(rate, pull, x)
            out[row, 1] += _step(rate, pull, y)
            out[other, 0] -= _step(rate, pull, x)
            out[other, 1] -= _step(rate, pull, y)
            for _ in range(_APART):
                draws += np.uint64(1)
                other = np.int64(mix64(draws) % np.uint64(n))
                x = out[row, 0] - out[other, 0]
                y = out[row, 1] - out[other, 1]
                square = x * x + y * y
                pull = 2.0 / ((_TOUCHING + square) * (1.0 + square))
                out[row, 0] += _step(rate, pull, x)
                out[row, 1] += _step(rate, pull, y)
    return draws
