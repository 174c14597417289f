"""Names of coordinates in vectors: looked up, reserved, or given coordinates for one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gcws_search import index as ix
from gcws_search.index import AnyArray
from gcws_search.service.contract import CollectionProtocol
from gcws_search.service.models import NamedBody, PackedBody, SparseBody, VectorBody

Use = Literal["store", "search", "search together"]


class Naming:
    """Turns names into coordinates for one query, or for the items of one request.

    Parameters
    ----------
    use : {"store", "search", "search together"}
        What becomes of a name that no coordinate has: it takes one where items are stored, or it
        gets one for this query alone. Of queries that are searched together in a space of fixed dim
        it is refused.

    Attributes
    ----------
    unknown : list of str
        Names that have a coordinate for this query alone.
    """

    __slots__ = ("_names", "_use", "unknown")

    def __init__(self, collection: CollectionProtocol, use: Use) -> None:
        self._names = collection.names
        self._use = use
        self.unknown: list[str] = []

    def coordinates(self, names: Sequence[str]) -> list[int]:
        """Return the coordinates of different names.

        Raises
        ------
        InvalidVector
            At ``(place,)``.
        """
        if self._use == "store":
            return self._names.reserve(names)
        found, unknown = self._names.find(names, beyond_dim=self._use == "search")
        self.unknown += unknown
        return found

    def sparse(self, body: SparseBody | NamedBody) -> ix.SparseVector:
        """Return a sparse vector as the index takes it.

        Raises
        ------
        InvalidVector
            At ``("names", place)`` or at ``()``.
        """
        if isinstance(body, SparseBody):
            return ix.SparseVector(body.indices, body.weights)
        return ix.SparseVector(self.named(body.names, len(body.weights)), body.weights)

    def named(self, names: Sequence[str], values: int) -> list[int]:
        """Return the coordinates of the names of one vector, which has ``values`` values.

        Raises
        ------
        InvalidVector
            At ``("names", place)`` or at ``()``.
        """
        require_different(names, values)
        try:
            return self.coordinates(names)
        except ix.InvalidVector as error:
            raise error.at("names") from None


def require_different(names: Sequence[str], values: int) -> None:
    """Raise InvalidVector unless a vector of ``values`` values has a name for each, none twice."""
    if len(names) != values:
        raise ix.InvalidVector(
            expected="as many names as values", got=f"{len(names)} names, {values} values"
        )
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for place, name in enumerate(names):
        if name in seen:
            raise ix.InvalidVector(
                expected="different names", got=f"{name!r:.80} twice", loc=("names", place)
            )
        seen.add(name)


def shared(a: VectorBody, b: VectorBody) -> list[AnyArray | ix.SparseVector]:
    """Return two vectors of no collection; names of both are coordinates that they share.

    Raises
    ------
    InvalidVector
        At ``(0 or 1, …)``: a name stands twice, or one vector alone has names.
    """
    coordinates: dict[str, int] = {}
    found: list[AnyArray | ix.SparseVector] = []
    for row, body in enumerate((a, b)):
        if isinstance(body, NamedBody):
            other = b if row == 0 else a
            if not isinstance(other, NamedBody):
                raise ix.InvalidVector(
                    expected="names in both vectors, or in none", got="them in one", loc=(row,)
                )
            try:
                require_different(body.names, len(body.weights))
            except ix.InvalidVector as error:
                raise error.at(row) from None
            indices = [coordinates.setdefault(name, len(coordinates)) for name in body.names]
            found.append(ix.SparseVector(indices, body.weights))
        elif isinstance(body, SparseBody):
            found.append(ix.SparseVector(body.indices, body.weights))
        else:
            found.append(body.weights if isinstance(body, PackedBody) else body)
    return found
