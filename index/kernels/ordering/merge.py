"""Pairs of rows: as a kernel lists them, and merged in rising runs, each pair one number."""

from typing import NamedTuple

from gcws_search.index.contracts.arrays import Float64s, Int32s, UInt64s
from gcws_search.index.kernels.compiling import kernel


class RowPairs(NamedTuple):
    """Room for pairs of rows.

    Attributes
    ----------
    a, b : (capacity,) int32
        The lesser and the greater row of each pair.
    """

    a: Int32s
    b: Int32s


@kernel
def keep_new(fresh: UInt64s, known: UInt64s) -> int:
    """Move to the front of ``fresh``, once each, the numbers that are not among those known.

    Parameters
    ----------
    fresh : (m,) uint64, overwritten
        Rising, with repetitions.
    known : (n,) uint64
        Rising.

    Returns
    -------
    int
        How many they are.
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
    """Write two rising runs with their scores as one.

    Parameters
    ----------
    a, a_scores : (m,) uint64 and float64
    b, b_scores : (n,) uint64 and float64
    out, scores : (m + n,) uint64 and float64, written in place
    """
    i = j = 0
    for place in range(out.shape[0]):
        if j == b.shape[0] or (i < a.shape[0] and a[i] <= b[j]):
            out[place], scores[place] = a[i], a_scores[i]
            i += 1
        else:
            out[place], scores[place] = b[j], b_scores[j]
            j += 1
