"""Answers of an analysis: what each coordinate adds to a score, and a map of items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gcws_search.index.contracts.arrays import Float64s, Int64s

MAX_SHARES: Final = 4096
"""Coordinates that an explanation lists one by one."""
SHARES: Final = 50
NEIGHBOURS: Final = 15
"""Of each place on a map, at most."""
NO_NEIGHBOUR: Final = -1
_SHOWN: Final = 5


class Share(NamedTuple):
    """What one coordinate adds.

    Attributes
    ----------
    coordinate : int
        Of a name that no coordinate has: one of its own, from ``dim`` on, or the last ones of an
        open space.
    a, b : float
        The values of the two vectors after the collection's transform.
    min, max : float
        What both have, and what either has; values of unlike signs share nothing.
    """

    coordinate: int
    name: str | None
    a: float
    b: float
    min: float
    max: float

    @property
    def label(self) -> int | str:
        """The name; the number of a coordinate without one."""
        return self.coordinate if self.name is None else self.name


class Rest(NamedTuple):
    """The coordinates that are not listed: how many, and their sums of ``min`` and ``max``."""

    coordinates: int
    min: float
    max: float


@dataclass(frozen=True, slots=True, repr=False)
class Explained:
    """Why two vectors are as similar as they are.

    Attributes
    ----------
    score : float
        Their GMM, as a query returns it.
    shared, total : float
        Σ min and Σ max over all coordinates; ``score`` is their ratio.
    coordinates : list of Share
        The greatest ``min`` first, then the greatest ``max - min``.
    """

    score: float
    shared: float
    total: float
    coordinates: list[Share]
    rest: Rest

    def to_dict(self) -> dict[str, Any]:
        """Return the parts as the API shows them; a coordinate without a name has none."""
        coordinates = [
            {word: value for word, value in each._asdict().items() if value is not None}
            for each in self.coordinates
        ]
        return {
            "score": self.score,
            "shared": self.shared,
            "total": self.total,
            "coordinates": coordinates,
            "rest": self.rest._asdict(),
        }

    def __repr__(self) -> str:
        """Return the score, and what the first coordinates add to it, in one line."""
        first = self.coordinates[:_SHOWN]
        shown = ", ".join(f"{each.label} {each.min / self.total:.3f}" for each in first)
        more = ", …" if len(self.coordinates) + self.rest.coordinates > len(first) else ""
        return f"Explained({self.score:.4g}: {shown}{more})"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Places:
    """Where n vectors lie on a map, and what of the sample lies nearest to each.

    Attributes
    ----------
    xy : (n, 2) float64
    neighbours : (n, k) int64
        Places in the sample, at most `NEIGHBOURS`, the most similar first; `NO_NEIGHBOUR` behind
        the last.
    scores : (n, k) float64
        Their GMM; 0 behind the last.
    """

    xy: Float64s
    neighbours: Int64s
    scores: Float64s

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self.xy)

    def __repr__(self) -> str:
        """Return the number of places in one line."""
        return f"Places({len(self)})"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ItemMap:
    """A sample of a collection in a plane.

    Attributes
    ----------
    ids : list of str
        The sample, in the order in which its items were put.
    sample, also : Places
        Of the sample, and of what was asked for besides.
    values : list or None
        A value of each item's payload; None where none was asked for.
    """

    ids: list[str]
    sample: Places
    also: Places
    values: list[Any] | None = None

    def __repr__(self) -> str:
        """Return the sizes in one line."""
        return f"ItemMap({len(self.ids)} items, also {self.also!r})"
