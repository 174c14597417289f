"""Kinds of scores: monotone functions of the GMM, so that all rank items alike."""

from __future__ import annotations

from math import nextafter
from typing import Any, Final, Literal, get_args

from gcws_search.index.contracts.errors import InvalidParameter

ScoreKind = Literal["gmm", "bray_curtis"]
"""The GMM J; and 1 less the Bray-Curtis dissimilarity, 2 J / (1 + J)."""
SCORE_KINDS: Final[tuple[ScoreKind, ...]] = get_args(ScoreKind)

OTHER_NAMES: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("ruzicka", "weighted_jaccard", "jaccard", "min_max", "minmax", "tanimoto"), "gmm"
    ),
    **dict.fromkeys(("count_tanimoto", "generalized_jaccard"), "gmm"),
    **dict.fromkeys(("soergel", "jaccard_distance"), "1 - gmm"),
    **dict.fromkeys(("sorensen", "dice", "czekanowski", "histogram_intersection"), "bray_curtis"),
    **dict.fromkeys(("braycurtis", "percentage_difference"), "1 - bray_curtis"),
}
"""What fields call these, and what that is here; a histogram intersection is of rows of one sum."""


def check_score(word: object) -> ScoreKind:
    """Return a kind of score; InvalidParameter tells what another field's name for one is here."""
    for kind in SCORE_KINDS:
        if word == kind:
            return kind
    expected = " or ".join(map(repr, SCORE_KINDS))
    plain = str(word).lower().replace(" ", "_").replace("-", "_")
    if plain in OTHER_NAMES:
        expected += f"; {word} is {OTHER_NAMES[plain]}"
    raise InvalidParameter(expected=expected, got=repr(word), loc=("score",))


def score_of(kind: ScoreKind, gmm: Any) -> Any:  # noqa: ANN401 (a number, or an array)
    """Return the score of a kind."""
    return gmm if kind == "gmm" else 2.0 * gmm / (1.0 + gmm)


def shown_score(kind: ScoreKind, gmm: Any, *, distance: bool) -> Any:  # noqa: ANN401
    """Return the score of a kind, or its distance, of a GMM or an array of them."""
    return 1.0 - score_of(kind, gmm) if distance else score_of(kind, gmm)


def least_gmm(kind: ScoreKind, least: float) -> float:
    """Return the least GMM whose score of a kind is ``least``; what is no score as it is."""
    if kind == "gmm" or not 0 < least <= 1:
        return least
    found = least / (2.0 - least)
    while score_of(kind, below := nextafter(found, 0.0)) >= least:
        found = below
    while score_of(kind, found) < least:
        found = nextafter(found, 1.0)
    return found
