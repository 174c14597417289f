"""Pairs of rows: as a kernel lists them, and merged in rising runs, each pair one number."""

from typing import NamedTuple

from gcws_search.index.contracts.arrays import Float64s, Int32s, UInt64s
from gcws_search.index.kernels.compiling import kernel


class RowPairs(NamedTuple):
    """Room for pairs of rows."""

    a: Int32s  # (capacity,): the lesser row of each pair
    b: Int32s  # (capacity,): the greater one


@kernel
def keep_new(fresh: UInt64s, known: UInt64s) -> int:
    """Move to the front of ``fresh``, once each, the numbers that are not known; return how many.

    Both rise; ``fresh`` may have repetitions, and is overwritten.
    """
    count = place = 0
    for i in range(fresh.shape[0]):
        number = fresh[i]
        if count > 0 and fresh[count - 1] == number:
            continue
        while place < known.shape[0] and known[place] < number:
            place += 1
        if place == known.shape[0] or known[place] != number:
            fresh[count] = number
            count += 1
    return count


@kernel
def merge(
    a: UInt64s, a_scores: Float64s, b: UInt64s, b_scores: Float64s, out: UInt64s, scores: Float64s
) -> None:
    """Write two rising runs with their scores as one, to ``out`` and ``scores``."""
    i = j = 0
    for place in range(out.shape[0]):
        if j == b.shape[0] or (i < a.shape[0] and a[i] <= b[j]):
            out[place], scores[place] = a[i], a_scores[i]
            i += 1
        else:
            out[place], scores[place] = b[j], b_scores[j]
            j += 1
