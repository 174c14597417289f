"""Results of an analysis: contributions to a score, a map, the cost of backends and of recall."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple

from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.errors import InvalidParameter, quantity
from gcws_search.index.contracts.parameters import Checked, Seed, Within, require_fields
from gcws_search.index.contracts.scores import Ranking

MAX_SHARES: Final = 4096
"""Coordinates that an explanation lists one by one."""
SHARES: Final = 50
NEIGHBOURS: Final = 15
"""Of each place on a map, at most."""
NO_NEIGHBOUR: Final = -1
MAX_JOIN_LIMIT: Final = 1 << 31
MAX_PAIR_LIMIT: Final = 2**63 - 1
_SHOWN: Final = 5


MapPlaces = Literal["axes", "islands", "cached"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapParams(Checked):
    """What a map shows.

    Parameters
    ----------
    sample : int
        Maximum number of items, drawn at random; all, if there are no more.
    landmarks : int
        Items of the sample from which the axes are learned.
    seed : int
        Seed of the choice of the sample and its landmarks.
    key : str or None
        Payload key whose values are returned; dots reach into objects.
    neighbours : bool
        Whether to find the sample's neighbours: most of the time of a large map.
    places : {"axes", "islands", "cached"}
        ``axes``: by kernel PCA. ``islands``: rearranged by the neighbours, so that similar items
        lie together. ``cached``: islands if the same sample of the same items was arranged before,
        else axes.
    """

    sample: Annotated[int, Within(1, 20_000)] = 5_000
    landmarks: Annotated[int, Within(2, 1_024)] = 256
    seed: Seed = 0
    key: str | None = None
    neighbours: bool = True
    places: MapPlaces = "axes"


class Share(NamedTuple):
    """The contribution of one coordinate.

    coordinate: a name without a coordinate gets its own one, from ``dim`` on, or one of the last in
        an open space.
    a, b: the values of the two vectors after the collection's transform.
    min, max: what both vectors have, and what either has; values of opposite sign share nothing.
    """

    coordinate: int
    name: str | None
    a: float
    b: float
    min: float
    max: float

    @property
    def label(self) -> int | str:
        """The name, or the number of a coordinate without one."""
        return self.coordinate if self.name is None else self.name


class Rest(NamedTuple):
    """The coordinates that are not listed: their number, and their sums of ``min`` and ``max``."""

    coordinates: int
    min: float
    max: float


GroupMode = Literal["components", "leaders"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupParams(Checked):
    """How near-duplicates are grouped.

    Parameters
    ----------
    min_score : float
        Minimum score of a pair that joins two items.
    recall : float
        Expected share of these pairs that is found. Equal items are always found.
    mode : {"components", "leaders"}
        ``components``: everything that a chain of pairs connects. ``leaders``: every member is
        paired with the representative itself; items lead in the order of ``keep``.
    keep : str
        The representative of a group: the item stored ``first``; the ``longest``, whose numbers
        have the greatest sum; or the one with the greatest value under this payload key, numbers
        before texts.
    """

    min_score: Annotated[float, Within(0, 1, is_open=True)]
    recall: Annotated[float, Within(0, 1, is_open=True)] = 0.9
    mode: GroupMode = "components"
    keep: str = "first"

    @property
    def key(self) -> str | None:
        """The payload key in ``keep``, if it names one."""
        return None if self.keep in ("first", "longest") else self.keep


@dataclass(frozen=True, slots=True, kw_only=True)
class PairParams(Checked):
    """Which pairs of items are wanted.

    Parameters
    ----------
    min_score : float
        Minimum score of a pair, in (0, 1].
    limit : int or None
        Maximum number of pairs; None: all.
    recall : float
        Expected share of the pairs that is found, in (0, 1].
    """

    min_score: Annotated[float, Within(0, 1, is_open=True)]
    limit: Annotated[int, Within(1, MAX_PAIR_LIMIT)] | None = None
    recall: Annotated[float, Within(0, 1, is_open=True)] = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinParams:
    """Which items vectors are joined with.

    Parameters
    ----------
    min_score : float or None
        Least score of a hit, in (0, 1].
    limit : int or None
        The most hits of a vector, the best; None for all that score ``min_score``, which must be
        given then.
    recall : float
        Expected share of these hits found.
    ranking : {"gmm", "containment"}
        What hits are scored and ranked by.
    """

    min_score: Annotated[float, Within(0, 1, is_open=True)] | None = None
    limit: Annotated[int, Within(1, MAX_JOIN_LIMIT)] | None = None
    recall: Annotated[float, Within(0, 1, is_open=True)] = 0.9
    ranking: Ranking = "gmm"

    def __post_init__(self) -> None:
        """Raise InvalidParameter when a field is outside its range, or all would be hits."""
        require_fields(self)
        if self.min_score is None and self.limit is None:
            raise InvalidParameter(
                expected="min_score, or a limit", got="neither", loc=("min_score",)
            )


class Group(NamedTuple):
    """Items that are near-duplicates of each other.

    representative: the id of the member to keep.
    members: ids with exact scores to the representative, itself first, then by falling score.
    weakest: the lowest score of a pair that joins the group.
    """

    representative: str
    members: list[tuple[str, float]]
    weakest: float


class SimilarItem(NamedTuple):
    """An item that was not stored.

    row: its position in the request.
    id: None if the request gave none.
    to: the id of the most similar item stored before; if none is similar, of the most similar one
        stored by the same request.
    """

    row: int
    id: str | None
    to: str
    score: float


class Contained(NamedTuple):
    """Σ min divided by the sum of either vector."""

    a: float
    b: float


@dataclass(frozen=True, slots=True, repr=False)
class Explained:
    """The similarity of two vectors, coordinate by coordinate.

    score: their GMM, as a query returns it.
    shared, total: Σ min and Σ max over all coordinates; ``score`` is their ratio.
    contained: containment: the share of each vector that the other one has.
    coordinates: the greatest ``min`` first, then the greatest ``max - min``.
    """

    score: float
    shared: float
    total: float
    contained: Contained
    coordinates: list[Share]
    rest: Rest

    def to_dict(self) -> dict[str, Any]:
        """Return the parts in the form of the API; an unnamed coordinate has no name."""
        coordinates = [
            {word: value for word, value in each._asdict().items() if value is not None}
            for each in self.coordinates
        ]
        return {
            "score": self.score,
            "shared": self.shared,
            "total": self.total,
            "contained": self.contained._asdict(),
            "coordinates": coordinates,
            "rest": self.rest._asdict(),
        }

    def __repr__(self) -> str:
        first = self.coordinates[:_SHOWN]
        shown = ", ".join(f"{each.label} {each.min / self.total:.3f}" for each in first)
        more = ", …" if len(self.coordinates) + self.rest.coordinates > len(first) else ""
        return f"Explained({self.score:.4g}: {shown}{more})"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Places:
    """Positions of n vectors on a map, and their nearest neighbours in the sample.

    xy: (n, 2) float64.
    neighbours: (n, k) int64, indices in the sample, at most `NEIGHBOURS`, the most similar first;
        then `NO_NEIGHBOUR`.
    scores: (n, k) float64, their GMM; then 0.
    """

    xy: Float64s
    neighbours: Int64s
    scores: Float64s

    def __len__(self) -> int:
        return len(self.xy)

    def __repr__(self) -> str:
        return f"Places({len(self)})"


class Island(NamedTuple):
    """Items of a map that are close together.

    x, y: where they are densest.
    size: number of items of the sample.
    names: of the most typical coordinates, the most typical first; empty if coordinates have no
        names.
    value: the most frequent one under the map's key; None if there is none.
    """

    x: float
    y: float
    size: int
    names: list[str]
    value: Any = None


class Arrangement(NamedTuple):
    """Positions of a map's sample by its neighbours, (n, 2), and the islands there.

    island_of: (n,) the island of each item; -1 for none.
    """

    xy: Float64s
    islands: list[Island]
    island_of: Int64s

    def islands_by(self, values: Sequence[Any]) -> list[Island]:
        """Return the islands with the most frequent value of their items; None is not counted."""
        counts: list[Counter[Any]] = [Counter() for _ in self.islands]
        for island, value in zip(self.island_of.tolist(), values, strict=True):
            if island >= 0 and value is not None:
                counts[island][value] += 1
        return [
            island._replace(value=most[0][0])
            if (most := count.most_common(1)) and 2 * most[0][1] > island.size
            else island
            for island, count in zip(self.islands, counts, strict=True)
        ]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ItemMap:
    """A sample of a collection in a plane.

    ids: of the sample, in insertion order.
    sample, also: positions of the sample, and of the additionally requested vectors.
    values: one from each item's payload; None if not requested.
    islands: the largest first; None if positions are on the axes.
    hints: filter keys and values that no item has, if no item passes the filter, and the map's key
        if no item has it.
    """

    ids: list[str]
    sample: Places
    also: Places
    values: list[Any] | None = None
    islands: list[Island] | None = None
    hints: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"ItemMap({quantity(len(self.ids), 'item')}, also {self.also!r})"


@dataclass(frozen=True, slots=True)
class BackendComparison:
    """The measurements of one backend.

    kernel: the kernel that it estimates.
    recall: mean share of the exact GMM neighbours among its hits, re-ranked by GMM.
    recall_own: mean share of the exact neighbours by its own kernel, re-ranked by that kernel.
    latency_p50_seconds, latency_p95_seconds: of queries run one by one.
    candidates: mean number of rows found or scanned per query.
    build_seconds: time spent on building its index, in this process.
    """

    name: str
    kind: str
    kernel: str
    recall: float
    recall_own: float
    latency_p50_seconds: float
    latency_p95_seconds: float
    candidates: float
    bytes_per_item: float
    build_seconds: float


class CurvePoint(NamedTuple):
    """Recall and cost of searches with one beam setting.

    recall: expected, as mean over queries like the items.
    microseconds: of one query on one thread, by the cost model.
    """

    recall: float
    candidates: float
    microseconds: float


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Cost by recall, for one limit.

    points: by ascending recall; the cost ascends too.
    rows: items in the graph during the measurement, without its queries; 0 if not measured.
    holds: whether new rows and audited queries reach the calibrated recall.
    reason: why there are no points; None if there are points.
    scanned_from: queries that request this recall or more use a scan, because the graph would take
        longer; None if this holds only for recalls above .99.
    """

    limit: int
    points: tuple[CurvePoint, ...] = ()
    rows: int = 0
    holds: bool = False
    reason: str | None = None
    scanned_from: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the curve in the form of the API."""
        return asdict(self) | {"points": [point._asdict() for point in self.points]}
