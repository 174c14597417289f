"""Putting hits in order by their exact scores."""

from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.kernels.compiling import inner


@inner
def rank(exact: Float64s, rows: Int64s, size: int, min_score: float, out: Float64s) -> int:
    """Sort hits by falling score, equal scores by rising row, and drop those below ``min_score``.

    ``exact`` has the scores of the first ``size`` rows; these are sorted in place, and the scores
    written to ``out`` in their new order. Returns how many hits are left.
    """
    count = _keep(exact, rows, size, min_score, out)
    gap = count // 2
    while gap > 0:  # Shell sort: short lists, mostly
        _sort_by(gap, count, out, rows)
        gap //= 2
    return count


@inner
def rank_nearly_sorted(
    exact: Float64s, rows: Int64s, size: int, min_score: float, out: Float64s
) -> int:
    """Do what `rank` does, quickest where hits are nearly in order already."""
    count = _keep(exact, rows, size, min_score, out)
    _sort_by(1, count, out, rows)
    return count


@inner
def _keep(exact: Float64s, rows: Int64s, size: int, min_score: float, out: Float64s) -> int:
    """Move hits that score enough to the front; return how many there are."""
    count = 0
    for i in range(size):
        if exact[i] >= min_score:
            out[count] = exact[i]
            rows[count] = rows[i]
            count += 1
    return count


@inner
def _sort_by(gap: int, count: int, out_scores: Float64s, out_rows: Int64s) -> None:
    """Sort hits whose places are a multiple of ``gap`` apart among themselves, in place."""
    for i in range(gap, count):
        score = out_scores[i]
        row = out_rows[i]
        place = i
        while place >= gap and (
            out_scores[place - gap] < score
            or (out_scores[place - gap] == score and out_rows[place - gap] > row)
        ):
            out_scores[place] = out_scores[place - gap]
            out_rows[place] = out_rows[place - gap]
            place -= gap
        out_scores[place] = score
        out_rows[place] = row
