"""Signs that a query is hard or foreign: its hits are about as far away as other rows."""

from typing import Any, Final

import numpy as np

from gcws_search.index.kernels.compiling import inner
from gcws_search.index.kernels.graph.candidate_pool import row_of, score_of
from gcws_search.index.kernels.lanes.vector import at

CONTRAST_PLACE: Final = 10
"""The first hit's distance is compared with that of the hit at this place; a beam holds more."""
TIED_PLACE: Final = 2
"""Whether hits tie is told by the distances of this one and the one at `CONTRAST_PLACE`: one may be
the row of which others are variants."""
FEW_PLACE: Final = 4
"""A short search may have found few rows of a group, up to this place: it goes on as a hard one."""
GAP: Final = 64.0
"""They tie if the hit at `CONTRAST_PLACE` is this many times as far behind as they differ."""


@inner
def score_at(best: Any, size: Any, place: Any) -> Any:
    """Return the quick score of the hit at a place, counted from 1, or of the last; 0 for none."""
    return score_of(at(best, min(size, place) - 1)) if size > 0 else np.float32(0.0)


@inner
def has_low_contrast(best: Any, size: Any, own: Any, factor: Any, nearest: Any) -> Any:
    """Return whether the first hit is about as far away as the one at `CONTRAST_PLACE`.

    A query among similar rows is near some of them. From an outlying query all rows are about
    equally far. Copies of one row are exactly equally far.
    """
    if size < own + CONTRAST_PLACE:
        return False
    first = np.float32(1.0) - score_of(at(best, own))
    last = np.float32(1.0) - score_of(at(best, own + CONTRAST_PLACE - 1))
    return factor * max(last, nearest) < first < last


@inner
def count_tied(best: Any, size: Any, own: Any, tied: Any, vectors: Any) -> Any:
    """Return how many of the first hits are about equally far, as in a tight group.

    The result is `CONTRAST_PLACE`, or `FEW_PLACE` if the others are not in a group, or 0.

    In such a group a row links to a few others, which are no nearer to the query than most: the
    nearest are found only by seeing the whole group. Copies of one row do not count, because any of
    them will do; quantized rows may be copies although dense ``vectors``, by address, differ.
    Distances tie if they differ by less than ``tied``; 0 for none.
    """
    if tied == 0.0 or size < own + CONTRAST_PLACE:
        return 0
    first, last = at(best, own + TIED_PLACE - 1), at(best, own + CONTRAST_PLACE - 1)
    between = score_of(first) - score_of(last)
    if between >= tied:
        some = score_of(at(best, own)) - score_of(at(best, own + FEW_PLACE - 1))
        return FEW_PLACE if 0.0 < some < between / np.float32(GAP) else 0
    if between > 0.0:
        return CONTRAST_PLACE
    row, other, differing = row_of(first), row_of(last), 0
    for i in range(vectors.width):
        if vectors.stride > 0:
            a, b = row * vectors.stride + i, other * vectors.stride + i
            differing += np.int64(at(vectors.codes, a) != at(vectors.codes, b))
        else:
            a, b = row * vectors.width + i, other * vectors.width + i
            differing += np.int64(at(vectors.floats, a) != at(vectors.floats, b))
    return CONTRAST_PLACE if differing > 0 else 0
