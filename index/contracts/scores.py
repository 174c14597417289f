"""Kinds of scores, and the ranking of the index for each: GMM or containment."""

from __future__ import annotations

from math import nextafter
from numbers import Real
from typing import Any, Final, Literal, get_args

from gcws_search.index.contracts.errors import InvalidParameter

ScoreKind = Literal["gmm", "bray_curtis", "containment"]
"""The GMM J; 1 less the Bray-Curtis dissimilarity, 2 J / (1 + J); Σ min / Σ of the query."""
SCORE_KINDS: Final[tuple[ScoreKind, ...]] = get_args(ScoreKind)

Ranking = Literal["gmm", "containment"]
"""What the index ranks by: the other kinds are monotone functions of one of these."""

OTHER_NAMES: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("ruzicka", "weighted_jaccard", "jaccard", "min_max", "minmax", "tanimoto"), "gmm"
    ),
    **dict.fromkeys(("count_tanimoto", "generalized_jaccard"), "gmm"),
    **dict.fromkeys(("soergel", "jaccard_distance"), "1 - gmm"),
    **dict.fromkeys(("sorensen", "dice", "czekanowski", "histogram_intersection"), "bray_curtis"),
    **dict.fromkeys(("braycurtis", "percentage_difference"), "1 - bray_curtis"),
    **dict.fromkeys(("subset_score", "contained", "inclusion"), "containment"),
}
"""What fields call these, and what that is here; a histogram intersection is of rows of one sum."""


def check_score(word: object) -> ScoreKind:
    """Return a kind of score; InvalidParameter explains other fields' names for one."""
    for kind in SCORE_KINDS:
        if word == kind:
            return kind
    expected = " or ".join(map(repr, SCORE_KINDS))
    plain = str(word).lower().replace(" ", "_").replace("-", "_")
    meant = OTHER_NAMES.get(plain, plain if plain in SCORE_KINDS else None)
    if meant is not None:
        expected += f"; {word} is {meant}"
    raise InvalidParameter(expected=expected, got=repr(word), loc=("score",))


def ranking_of(kind: ScoreKind) -> Ranking:
    """Return the ranking of the index for a kind of score."""
    return "containment" if kind == "containment" else "gmm"


def score_of(kind: ScoreKind, ranked: Any) -> Any:  # noqa: ANN401 (a number, or an array)
    """Return the score of a kind, converted from that of its `Ranking`."""
    return 2.0 * ranked / (1.0 + ranked) if kind == "bray_curtis" else ranked


def shown_score(kind: ScoreKind, ranked: Any, *, distance: bool) -> Any:  # noqa: ANN401
    """Return the score of a kind, or its distance, converted from that of its ranking."""
    return 1.0 - score_of(kind, ranked) if distance else score_of(kind, ranked)


def least_ranked(kind: ScoreKind, least: float) -> float:
    """Return the ranking's score for a minimum of a kind; invalid values are returned unchanged."""
    if kind != "bray_curtis" or not isinstance(least, Real) or not 0 < least <= 1:
        return least
    found = least / (2.0 - least)
    while score_of(kind, below := nextafter(found, 0.0)) >= least:
        found = below
    while score_of(kind, found) < least:
        found = nextafter(found, 1.0)
    return found
