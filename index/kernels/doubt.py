"""Whether rounding tells the hits of a walk from the rows that are not scored exactly.

A walk keeps rows by their quick scores, which are those of rounded vectors. The rows that are
scored exactly show what rounding does near this query: exact less quick score, by its mean μ and
its standard deviation σ. A row left out, of quick score c at most, beats the last hit only where
its own difference lies z = (last hit − c − μ) / σ deviations up or more, of which the chance is
about exp(−z²/2) / 2; and there are about as many such rows as lie within σ above c.
"""

from typing import Any

import numpy as np
from numba import njit

from index.kernels.pool import row_of, score_of
from index.kernels.simd import at

_MOST_MISSED = 0.25
"""So many missed hits are put up with, for each that is wanted."""
_LEAST_SPREAD = 2.5e-7
"""Float32 sums alone make quick scores differ by so much."""


@njit(cache=True, nogil=True)
def rounding_hides_hits(
    best: Any, size: Any, skip: Any, exact: Any, count: Any, last: Any, limit: Any
) -> Any:
    """Return whether more hits are to be expected among the rows left out than may be missed.

    Parameters
    ----------
    best : address of uint64
        The best rows of a walk, see `kernels.pool`.
    size : int
    skip : int
        The row that was passed over, or -1.
    exact : address of float64
        Scores of the first ``count`` of the others, one at least.
    count : int
    last : float
        The exact score of the last hit.
    limit : int
        Hits wanted.
    """
    total, square = 0.0, 0.0
    scored = place = 0
    while scored < count:
        held = at(best, place)
        place += 1
        if row_of(held) != skip:
            difference = at(exact, scored) - score_of(held)
            total += difference
            square += difference * difference
            scored += 1
    mean = total / count
    spread = np.sqrt(max(square / count - mean * mean, 0.0))
    if spread < _LEAST_SPREAD:
        return False
    left_out = score_of(at(best, min(place, size - 1)))
    z = (last - left_out - mean) / spread
    near = 0
    while near < place and score_of(at(best, place - 1 - near)) <= left_out + spread:
        near += 1
    chance = 0.5 * np.exp(-0.5 * max(z, 0.0) ** 2)
    return chance * near > _MOST_MISSED * limit
