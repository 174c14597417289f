"""Signs that a query is hard or foreign: its hits are about as far away as other rows."""

from typing import Any, Final

import numpy as np
from numba import njit

from gcws_search.index.kernels.graph.beam_search import MIN_DISTANCE
from gcws_search.index.kernels.graph.candidate_pool import score_of
from gcws_search.index.kernels.lanes.vector import at

CONTRAST_PLACE: Final = 10
"""The first hit's distance is compared with that of the hit at this place; a beam holds more."""
CROWD: Final = 2
"""A query is hard if this many times the hits wanted are about as far as the first."""


@njit(cache=True, nogil=True)
def score_at(best: Any, size: Any, place: Any) -> Any:
    """Return the quick score of the hit at a place, counted from 1, or of the last; 0 for none."""
    return score_of(at(best, min(size, place) - 1)) if size > 0 else np.float32(0.0)


@njit(cache=True, nogil=True)
def has_low_contrast(best: Any, size: Any, own: Any, factor: Any, nearest: Any) -> Any:
    """Return whether the first hit is about as far away as the one at `CONTRAST_PLACE`.

    A query among rows like it is near to some of them. From outside, all rows are about as far.
    Copies of one row are exactly as far.
    """
    if size < own + CONTRAST_PLACE:
        return False
    first = np.float32(1.0) - score_of(at(best, own))
    last = np.float32(1.0) - score_of(at(best, own + CONTRAST_PLACE - 1))
    return factor * max(last, nearest) < first < last


@njit(cache=True, nogil=True)
def are_alike(best: Any, size: Any, own: Any, plan: Any) -> Any:
    """Return whether more rows than a search looks for are about as far as the first hit.

    Beside a cluster of rows that hardly differ, the nearest are found by seeing the whole cluster.
    Copies of one row are no such cluster: any of them will do.
    """
    place = own + CROWD * plan.wanted
    if plan.alike == 0.0 or size < place:
        return False
    first = np.float32(1.0) - score_of(at(best, own))
    last = np.float32(1.0) - score_of(at(best, place - 1))
    return 0.0 < last - first <= plan.alike * max(last, MIN_DISTANCE)
