"""Names of coordinates in vectors: looked up, reserved, or given coordinates for one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gcws_search import index as ix
from gcws_search.index import AnyArray
from gcws_search.service.contract import CollectionProtocol
from gcws_search.service.models import VectorBody, vector_of

Use = Literal["store", "search", "search together"]


class Naming:
    """Turns names into coordinates for one query, or for the items of one request.

    A name that no coordinate has takes one where items are stored, or gets one for this query
    alone, and is among ``unknown``. Of queries that are searched together in a space of fixed dim
    it is refused.
    """

    __slots__ = ("_names", "_use", "unknown")

    def __init__(self, collection: CollectionProtocol, use: Use) -> None:
        self._names = collection.names
        self._use = use
        self.unknown: list[str] = []

    def coordinates(self, names: Sequence[str]) -> list[int]:
        """Return the coordinates of different names; InvalidVector is at ``(place,)``."""
        if self._use == "store":
            return self._names.reserve(names)
        found, unknown = self._names.find(names, beyond_dim=self._use == "search")
        self.unknown += unknown
        return found


def pair_of(a: VectorBody, b: VectorBody) -> list[AnyArray | ix.SparseVector]:
    """Return two vectors of no collection; names of both are coordinates that they share.

    InvalidVector, at ``(0 or 1, …)``: a name stands twice, or one vector alone has names.
    """
    coordinates: dict[str, int] = {}
    found: list[AnyArray | ix.SparseVector] = []
    both = vector_of(a), vector_of(b)
    for row, vector in enumerate(both):
        if isinstance(vector, ix.NamedVector):
            if not isinstance(both[1 - row], ix.NamedVector):
                raise ix.InvalidVector(
                    expected="names in both vectors, or in none", got="them in one", loc=(row,)
                )
            try:
                ix.require_different_names(vector)
            except ix.InvalidVector as error:
                raise error.at(row) from None
            indices = [coordinates.setdefault(name, len(coordinates)) for name in vector.names]
            found.append(ix.SparseVector(indices, vector.values))
        else:
            found.append(vector)
    return found
