"""Re-rank depth: the expected number of hits among rows that quantized scores exclude.

A beam search ranks rows by quick scores of quantized vectors. The rows that are scored exactly show
the quality of quick scores near this query: a least-squares line of exact by quick scores, and the
standard deviation σ from it. (If rows are nearer to each other than quantization resolves, the line
is flat: a row with a lower quick score is as good.) An excluded row with quick score c beats the
last hit only if it is z = (last hit − line at c) / σ deviations or more above the line, with a
probability of about exp(−z²/2) / 2. This is summed over the rows in the beam. Below the last of
them there are about as many rows as precede it while the line rises by σ. If the beam has room,
they are below its bound: the beam may hold all rows of a tight group.

A few rows are scored exactly at first. If more than `TOLERATED_MISS` of the wanted hits are
expected among the others, more rows are scored, and the result is judged once more.
"""

from typing import Any

import numpy as np

from gcws_search.index.kernels.compiling import inlined, inner
from gcws_search.index.kernels.graph.candidate_pool import row_of, score_of
from gcws_search.index.kernels.lanes.vector import at

TOLERATED_MISS = 0.001
"""Where more hits than this are missed, for each that is wanted, more rows are scored exactly: a
tenth of what a search at 0.99 may miss."""
_MIN_SPREAD = 2.5e-7
"""Float32 sums alone make quick scores differ by this."""
_LEAST_CHANCE = 1e-5
"""Rows less likely to be hits, and all behind them, are not looked at."""


@inner
def hits_left_out(
    best: Any, size: Any, skip: Any, exact: Any, count: Any, last: Any, bound: Any
) -> Any:
    """Return the expected number of hits among the excluded rows.

    Of the ``size`` best rows of a search, ``skip`` was omitted unless it is -1. ``exact`` has the
    scores of the first ``count`` others, at least one; ``last`` is that of the last hit. No row
    with a quick score of ``bound`` or more was dropped; 0 if unknown.
    """
    quick_mean, exact_mean = 0.0, 0.0
    quick_square, exact_square, product = 0.0, 0.0, 0.0
    scored = place = 0
    first_quick, first_exact = 0.0, at(exact, 0)
    while scored < count:
        held = at(best, place)
        place += 1
        if row_of(held) != skip:
            if scored == 0:
                first_quick = np.float64(score_of(held))
            quick = score_of(held) - first_quick  # near 0, to keep precision
            score = at(exact, scored) - first_exact
            quick_mean += quick
            exact_mean += score
            quick_square += quick * quick
            exact_square += score * score
            product += quick * score
            scored += 1
    quick_mean /= count
    exact_mean /= count
    quick_variance = max(quick_square / count - quick_mean * quick_mean, 0.0)
    exact_variance = max(exact_square / count - exact_mean * exact_mean, 0.0)
    slope = 0.0
    if quick_variance > _MIN_SPREAD * _MIN_SPREAD:
        slope = max((product / count - quick_mean * exact_mean) / quick_variance, 0.0)
    spread = np.sqrt(max(exact_variance - slope * slope * quick_variance, 0.0))
    if spread < _MIN_SPREAD:
        return 0.0
    line = first_exact + exact_mean - slope * (first_quick + quick_mean)  # at a quick score of 0
    expected, chance = 0.0, 1.0
    while place < size and chance >= _LEAST_CHANCE:
        held = at(best, place)
        place += 1
        if row_of(held) != skip:
            chance = _chance_of_a_hit((last - line - slope * score_of(held)) / spread)
            expected += chance
    if chance < _LEAST_CHANCE:
        return expected
    lowest, near = np.float64(score_of(at(best, size - 1))), 0
    while near < count and slope * (score_of(at(best, size - 1 - near)) - lowest) <= spread:
        near += 1
    fall = max(slope, 1.0) * (lowest - min(bound, lowest)) if bound > 0.0 else 0.0
    return expected + near * _chance_of_a_hit((last - line - slope * lowest + fall) / spread)


@inlined
def _chance_of_a_hit(z: Any) -> Any:
    """Return the approximate probability of a hit, z deviations below the last one."""
    return 0.5 * np.exp(-0.5 * max(z, 0.0) ** 2)
