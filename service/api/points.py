"""An item by its id, or a vector; all names of a vector count, known ones and others."""

from __future__ import annotations

from gcws_search import index as ix
from gcws_search.service.api.bodies import ExplainedBody
from gcws_search.service.contract import Point
from gcws_search.service.guards.limits import Limits, require_short_vector
from gcws_search.service.models import VectorBody, vector_of


def point_to_explain(body: ExplainedBody, limits: Limits, word: str) -> Point:
    """Return an id or a vector whose similarity is to be explained.

    Raises
    ------
    InvalidParameter, InvalidVector
        At ``(word, …)``.
    """
    raw = body.vector
    if (raw is None) == (body.id is None):
        got = "neither" if raw is None else "both"
        raise ix.InvalidParameter(expected="one of 'vector' and 'id'", got=got, loc=(word,))
    return str(body.id) if raw is None else _vector(raw, limits, word, "vector")


def point_to_map(raw: str | int | VectorBody, limits: Limits, number: int) -> Point:
    """Return an id or a vector that is given a place on a map besides the sample.

    Raises
    ------
    InvalidVector
        At ``("also", number, …)``.
    """
    return str(raw) if isinstance(raw, str | int) else _vector(raw, limits, "also", number)


def _vector(raw: VectorBody, limits: Limits, *loc: str | int) -> ix.OneVector:
    require_short_vector(raw, limits, *loc)
    vector = vector_of(raw)
    if isinstance(vector, ix.NamedVector):
        try:
            ix.require_different_names(vector)
        except ix.InvalidVector as error:
            raise error.at(*loc) from None
    return vector
