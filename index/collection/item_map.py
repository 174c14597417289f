"""A map: positions in a plane for a sample of items and for further vectors, with their neighbours.

Positions come from kernel PCA on landmarks with the GMM ([KPCA] §3). Two axes cannot show all
similarity, so each point also has its neighbours within the sample, by exact scores. Starting from
the axes, positions can be arranged by neighbours; the result is cached until an item changes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from gcws_search.index.collection.explain import Explainable
from gcws_search.index.collection.islands import arrange_by_neighbours, find_islands
from gcws_search.index.collection.items import View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.name_scan import split, widen, with_mass
from gcws_search.index.contracts.analysis import (
    NEIGHBOURS,
    NO_NEIGHBOUR,
    ItemMap,
    MapParams,
    Places,
)
from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.batches import SparseVector, Text, VectorBatch
from gcws_search.index.contracts.errors import InvalidParameter, InvalidVector, ItemNotFound
from gcws_search.index.contracts.hits import BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import scan
from gcws_search.index.payload import Filter, first_scalar
from gcws_search.index.similarities import gmm_matrix, gmm_rows
from gcws_search.index.threads import Workers, limit_blas
from gcws_search.index.vectors.inputs import OneVector

MAX_ALSO: Final = 1_000
MAX_READ: Final = 1 << 36
"""All pairs are compared where that reads at most this many numbers. With 20,000 of 70,000 rows of
784 floats searches take 2.3 seconds of a processor, and comparing all pairs 9.5."""
MIN_SHARE: Final = 0.125
"""All pairs are compared where the sample is a smaller share of the items. A search goes past the
items that are not in it: for 20,000 of 1,000,000 rows of 16 floats searches take 30 seconds, and
comparing all pairs one."""
_RECALL: Final = 0.9
_AXES: Final = 2
_ROWS_A_THREAD: Final = 64
_ROWS_AT_ONCE: Final = 1024
_BESIDE: Final = 3  # neighbours whose mean is the position of a further point, on islands


def kernel_axes(landmarks: Float64s) -> tuple[Float64s, Float64s]:
    """Return (m, 2) and (2,) so that ``kernel @ axes - middle`` are positions by kernel PCA.

    An axis along which the landmarks do not differ is zero.

    landmarks: (m, m), the kernel between landmarks; ``kernel`` is (n, m), the kernel between
    vectors and landmarks.
    """
    m, means = len(landmarks), landmarks.mean(axis=1)
    centred = landmarks - means[:, None] - means[None, :] + means.mean()
    eigenvalues, vectors = np.linalg.eigh((centred + centred.T) / 2)
    axes = np.zeros((m, _AXES))
    round_off = eigenvalues[-1] * m * np.finfo(np.float32).eps
    for axis in range(min(_AXES, m)):
        value, vector = eigenvalues[-1 - axis], vectors[:, -1 - axis]
        if value > max(round_off, 0.0):
            # The sign of an eigenvector is arbitrary: the greatest entry is made positive.
            sign = np.sign(vector[np.argmax(np.abs(vector))])
            axes[:, axis] = sign * vector / np.sqrt(value)
    axes -= axes.mean(axis=0)  # centres the rows of any kernel
    return axes, means @ axes


class _Point(NamedTuple):
    """A vector that is mapped in addition to the sample."""

    vector: VectorBatch  # one row: its coordinates that the space has
    mass: float  # the magnitude of its other coordinates, which no item shares
    row: int  # its row if it is an item, else -1


@limit_blas
def map_items(
    memory: MemoryCollection,
    params: MapParams,
    *,
    where: Filter | None = None,
    also: Sequence[Explainable] = (),
    stop: threading.Event | None = None,
    max_read: int = MAX_READ,
    min_share: float = MIN_SHARE,
) -> ItemMap:
    """Return a map of items sampled without replacement; of all if there are no more.

    where: a filter on the items of the sample.
    also: ids and vectors that get positions and neighbours too, at most `MAX_ALSO`.
    max_read, min_share: neighbours are computed above both limits; see `MAX_READ`, `MIN_SHARE`.
    Raises InvalidParameter, ItemNotFound, InvalidVector at ``("also", number, …)``, and, during the
        arrangement, CancelledError of `concurrent.futures` once ``stop`` is set.
    """
    if len(also) > MAX_ALSO:
        raise InvalidParameter(expected=f"at most {MAX_ALSO}", got=str(len(also)), loc=("also",))
    view, points = _points(memory, also)
    rng = np.random.default_rng(params.seed)
    permitted = memory.mask(view, where)
    candidates = np.flatnonzero(permitted)
    rows = np.sort(rng.choice(candidates, min(params.sample, len(candidates)), replace=False))
    name = rows.tobytes(), params.landmarks, params.seed
    arrangement = None if params.places == "axes" else memory.cached_arrangement(view, name)
    is_new = params.places == "islands" and arrangement is None
    neighbours, scores = np.empty((len(rows), 0), np.int64), np.empty((len(rows), 0))
    has_neighbours = params.neighbours or is_new
    sample = view.vectors[rows if has_neighbours or points else rows[:0]]
    if has_neighbours:
        searched = len(rows) * sample.numbers > max_read and len(rows) >= min_share * len(view)
        neighbours, scores = _neighbours(memory, view, rows, sample, searched=searched)
    also_neighbours, also_scores = _neighbours_of(points, sample, rows)
    if arrangement is None:
        count = min(params.landmarks, len(rows))
        landmarks = view.vectors[rows[np.sort(rng.choice(len(rows), count, replace=False))]]
        xy, also_xy = _coordinates(view, rows, landmarks, points, memory.backend.workers)
        if is_new:
            xy = arrange_by_neighbours(xy, neighbours, scores, stop)
            arrangement = find_islands(memory, view, rows, sample, xy)
            memory.cache_arrangement(view, name, arrangement)
    if arrangement is not None:
        xy, also_xy = arrangement.xy, _places_beside(arrangement.xy, also_neighbours)
    if not params.neighbours:
        neighbours, scores = neighbours[:, :0], scores[:, :0]
    values, islands = None, None if arrangement is None else arrangement.islands
    if params.key is not None:
        values = [first_scalar(view.payloads[row], params.key) for row in rows.tolist()]
        islands = None if arrangement is None else arrangement.islands_by(values)
    return ItemMap(
        ids=view.ids.of(rows),
        sample=Places(xy, neighbours, scores),
        also=Places(also_xy, also_neighbours, also_scores),
        values=values,
        islands=islands,
    )


def _places_beside(xy: Float64s, neighbours: Int64s) -> Float64s:
    """Return (p, 2), the mean position of each point's first neighbours; (0, 0) without any."""
    near = neighbours[:, :_BESIDE]
    present = near != NO_NEIGHBOUR
    sums = np.where(present[:, :, None], xy[near], 0.0).sum(axis=1)
    return np.asarray(sums / np.maximum(present.sum(axis=1), 1)[:, None], np.float64)


def _points(memory: MemoryCollection, also: Sequence[Explainable]) -> tuple[View, list[_Point]]:
    """Return a view, and the points to map in addition to the sample."""
    ids = [each for each in also if isinstance(each, str)]
    view, rows = memory.locate(ids)
    row_of = dict(zip(ids, rows, strict=True))
    points = []
    for number, each in enumerate(also):
        if isinstance(each, str):
            row = row_of[each]
            if row is None:
                raise ItemNotFound(each)
            points.append(_Point(view.vectors[row : row + 1], 0.0, row))
        else:
            points.append(_Point(*_vector(memory, view, each, number), -1))
    return view, points


def _vector(
    memory: MemoryCollection, view: View, given: Sequence[float] | OneVector, number: int
) -> tuple[VectorBatch, float]:
    """Return a transformed vector, and the magnitude of its unknown names."""
    space = view.space
    try:
        if isinstance(given, SparseVector) and given.names is not None:
            try:
                coordinates, unknown = memory.names.find(given.names, beyond_dim=True)
            except InvalidVector as error:
                raise error.at(0, "names") from None
            given = SparseVector(coordinates, given.values)
            if unknown and space.dim is not None:
                return split(space, widen(space, given))
        if isinstance(given, Text):
            return space.prepare(space.from_texts([given.text])), 0.0
        return space.prepare(space.from_items([given])), 0.0
    except InvalidVector as error:
        raise error.at("also", number, skip=1) from None


def _coordinates(
    view: View, rows: Int64s, landmarks: VectorBatch, points: Sequence[_Point], workers: Workers
) -> tuple[Float64s, Float64s]:
    """Return (n, 2) and (p, 2): the positions of the sample's rows and of the points."""
    if not len(rows):
        return np.zeros((0, _AXES)), np.zeros((len(points), _AXES))
    axes, middle = kernel_axes(gmm_matrix(landmarks, landmarks).astype(np.float64))
    xy = np.empty((len(rows), _AXES))

    def place(first: int, last: int) -> None:
        for start in range(first, last, _ROWS_AT_ONCE):
            part = slice(start, min(start + _ROWS_AT_ONCE, last))
            xy[part] = gmm_matrix(view.vectors[rows[part]], landmarks) @ axes - middle

    workers.split(len(rows), place, min_size=_ROWS_A_THREAD)
    others = [_scores(point, landmarks) @ axes - middle for point in points]
    return xy, np.reshape(others, (len(points), _AXES))


def _scores(point: _Point, rows: VectorBatch) -> Float64s:
    """Return the GMM of a point with each of the rows."""
    return with_mass(gmm_rows(point.vector, rows), point.vector, rows, point.mass)


def _neighbours(
    memory: MemoryCollection, view: View, rows: Int64s, vectors: VectorBatch, *, searched: bool
) -> tuple[Int64s, Float64s]:
    """Return the neighbours of each row among these rows, in the form of `Places`."""
    workers = memory.backend.workers
    params = SearchParams(limit=NEIGHBOURS, recall=_RECALL)
    if searched:
        permitted = np.zeros(len(view), np.uint8)
        permitted[rows] = 1
        found = memory.search_rows(view, permitted, vectors, params, skip=rows)
        place_of = np.zeros(len(view), np.int64)
        place_of[rows] = np.arange(len(rows))
        return _as_places(found, place_of)
    if view.vectors.copies is not None:
        own = view.vectors.copies.part(rows)
        vectors = VectorBatch("dense", dense=vectors.dense, norms=vectors.norms, copies=own)
    inverted = InvertedIndex.of(vectors, workers)
    places = np.arange(len(rows))
    everyone = RowView(vectors, np.ones(len(rows), np.uint8), len(rows))
    found = scan(
        everyone, vectors, params, skip=places, inverted=inverted, workers=workers, with_ties=False
    )
    return _as_places(found, places)


def _as_places(found: BatchHits, place_of: Int64s) -> tuple[Int64s, Float64s]:
    """Return hits in the form of `Places`; ``place_of`` is each row's index in the sample."""
    sizes = np.minimum(found.sizes, NEIGHBOURS)
    width = int(sizes.max(initial=0))
    present = np.arange(width) < sizes[:, None]
    neighbours = np.full(present.shape, NO_NEIGHBOUR)
    neighbours[present] = place_of[found.rows[:, :width][present]]
    return neighbours, np.where(present, found.scores[:, :width], 0.0)


def _neighbours_of(
    points: Sequence[_Point], sample: VectorBatch, rows: Int64s
) -> tuple[Int64s, Float64s]:
    """Return the neighbours of the points in the sample, except themselves."""
    width = min(NEIGHBOURS, len(rows))
    neighbours = np.full((len(points), width), NO_NEIGHBOUR)
    scores = np.zeros((len(points), width))
    for number, point in enumerate(points):
        values = _scores(point, sample)
        others = np.flatnonzero(rows != point.row)
        best = others[np.lexsort((others, -values[others]))][:width]
        neighbours[number, : len(best)] = best
        scores[number, : len(best)] = values[best]
    return neighbours, scores
