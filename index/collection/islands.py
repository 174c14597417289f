"""Arrange the sample of a map by neighbours so that islands appear, and name the islands.

Weights of neighbours follow UMAP ([UMAP] §3.1), with the distance 1 - GMM.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import Final

import numpy as np

from gcws_search.index.collection.items import View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.analysis import NO_NEIGHBOUR, Arrangement, Island
from gcws_search.index.contracts.arrays import Bools, Float64s, Int64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.kernels.graph.layout import arrange
from gcws_search.index.payload import item_text
from gcws_search.index.vectors.texts import tokens_by_coordinate

_SPREAD: Final = 10.0  # largest distance of the initial positions from the middle
_DIGITS: Final = 3  # decimal places of positions
_ROUNDS: Final = ((10_000, 500), (None, 200))  # (most rows, rounds of arranging)
_HALVINGS: Final = 40
_LEAST_WIDTH: Final = 1e-3  # share of the mean distance
_CELLS: Final = 32  # cells along each axis of the grid that finds islands
_STRAY: Final = 0.01  # share of the positions beyond each edge of the grid
_LEAST_SPAN: Final = 1e-9
_NEAR: Final = 2  # cells around the densest one, from which the island is labelled
_LEAST_SHARE: Final = 0.01  # share of the sample that an island needs
_LEAST_ITEMS: Final = 5
_NAMES: Final = 3  # names per island
_TEXTS: Final = 500  # items of an island from which its names are taken


def arrange_by_neighbours(
    xy: Float64s, neighbours: Int64s, scores: Float64s, stop: threading.Event | None = None
) -> Float64s:
    """Return (n, 2) positions that place neighbours together, starting from ``xy``.

    neighbours, scores: see `Places`. A row without neighbours does not move.
    Raises CancelledError of `concurrent.futures` once ``stop`` is set.
    """
    out = _SPREAD * xy / (np.abs(xy).max(initial=0.0) or 1.0)
    weights = _weights(scores, (neighbours != NO_NEIGHBOUR) & (scores > 0))
    if weights.any():
        rounds = next(count for most, count in _ROUNDS if most is None or len(xy) <= most)
        with np.errstate(divide="ignore"):
            periods = weights.max() / weights
        due, draws = periods.copy(), np.uint64(0)
        for turn in range(1, rounds + 1):
            if stop is not None and stop.is_set():
                raise CancelledError
            draws = np.uint64(arrange(neighbours, periods, turn, rounds, draws, due, out))
    return np.asarray(np.round(out, _DIGITS), np.float64)


def _weights(scores: Float64s, present: Bools) -> Float64s:
    """Return (n, k) weights: 1 for the nearest; a row of m neighbours sums to log2(m)."""
    distances = np.where(present, 1.0 - scores, np.inf)
    gaps = distances - distances.min(axis=1, keepdims=True, initial=1.0)
    wanted = np.log2(present.sum(axis=1, keepdims=True) + 1.0)
    low, high = np.zeros_like(wanted), np.full_like(wanted, np.inf)
    width = np.ones_like(wanted)
    for _ in range(_HALVINGS):
        is_wide = np.exp(-gaps / width).sum(axis=1, keepdims=True) > wanted
        low, high = np.where(is_wide, low, width), np.where(is_wide, width, high)
        width = np.where(np.isinf(high), 2 * width, (low + high) / 2)
    least = _LEAST_WIDTH * (distances[present].mean() if present.any() else 1.0)
    return np.asarray(np.exp(-gaps / np.maximum(width, least or 1.0)), np.float64)


def find_islands(
    memory: MemoryCollection, view: View, rows: Int64s, vectors: VectorBatch, xy: Float64s
) -> Arrangement:
    """Return the islands of a sample, the largest first, named by their coordinates.

    rows: (n,) the rows of the sample in the view; vectors, xy: their vectors and positions.
    """
    if not len(xy):
        return Arrangement(xy, [], np.zeros(0, np.int64))
    island_of, peaks = _islands_of(xy)
    least = max(_LEAST_ITEMS, _LEAST_SHARE * len(rows))
    sizes = np.bincount(island_of, minlength=len(peaks))
    order = [int(each) for each in np.argsort(-sizes, kind="stable") if sizes[each] >= least]
    weights = _Weights(vectors) if len(memory.names) or memory.space.text else None
    found, numbers = [], np.full(len(peaks), -1)
    for number, island in enumerate(order):
        numbers[island] = number
        members = np.flatnonzero(island_of == island)
        names: list[str] = []
        if weights is not None:
            names = _names(memory, view, rows[members], weights.distinct(members))
        x, y = peaks[island]
        found.append(Island(x=float(x), y=float(y), size=len(members), names=names))
    return Arrangement(xy, found, numbers[island_of])


def _islands_of(xy: Float64s) -> tuple[Int64s, Float64s]:
    """Return (n,) the island of each position, and (islands, 2) the densest point of each.

    Each grid cell points to the fullest cell around it; following these leads to the peak.
    """
    low, high = np.quantile(xy, [_STRAY, 1 - _STRAY], axis=0)
    span = max(float((high - low).max()), _LEAST_SPAN)
    cells = np.clip((_CELLS * (xy - low) / span).astype(np.int64), 0, _CELLS - 1)
    flat = cells[:, 0] + _CELLS * cells[:, 1]
    counts = np.bincount(flat, minlength=_CELLS**2).reshape(_CELLS, _CELLS)
    density = np.pad(_around(counts.astype(np.float64)), 1)
    # Among equally full cells the last one is chosen, so there are no cycles.
    rank = np.zeros(density.size, np.int64)
    rank[np.argsort(density, axis=None, kind="stable")] = np.arange(density.size)
    numbers = np.pad(np.arange(_CELLS**2).reshape(_CELLS, _CELLS), 1)
    shifts = [(up, left) for up in range(3) for left in range(3)]
    square = rank.reshape(density.shape)
    ranks = np.stack([square[u : u + _CELLS, v : v + _CELLS] for u, v in shifts])
    cell_at = np.stack([numbers[u : u + _CELLS, v : v + _CELLS] for u, v in shifts])
    best = ranks.argmax(axis=0)[None]
    leads = np.take_along_axis(cell_at, best, axis=0).ravel()
    while (further := leads[leads] != leads).any():
        leads = np.where(further, leads[leads], leads)
    tops, island_of = np.unique(leads[flat], return_inverse=True)
    peaks = np.array([xy[_is_near(cells, top)].mean(axis=0) for top in tops.tolist()])
    return island_of, peaks.reshape(-1, 2)


def _is_near(cells: Int64s, top: int) -> Bools:
    return np.asarray((np.abs(cells - [top % _CELLS, top // _CELLS]) <= _NEAR).all(axis=1))


def _around(counts: Float64s) -> Float64s:
    padded = np.pad(counts, 1)
    sums = sum(
        padded[up : up + _CELLS, left : left + _CELLS] for up in range(3) for left in range(3)
    )
    return np.asarray(sums, np.float64)


class _Weights:
    """Positive values of vectors, each vector normalized to a sum of 1, for groups of rows."""

    def __init__(self, vectors: VectorBatch) -> None:
        if vectors.form == "dense":
            values = np.maximum(vectors.dense, 0)
            self._rows, columns = np.nonzero(values)
            self._values = values[self._rows, columns].astype(np.float64)
        else:
            owners = np.repeat(np.arange(len(vectors)), np.diff(vectors.indptr))
            is_positive = vectors.slots & 1 == 0
            self._rows, columns = owners[is_positive], vectors.slots[is_positive] >> 1
            self._values = vectors.values[is_positive].astype(np.float64)
        self._count = len(vectors)
        sums = np.bincount(self._rows, self._values, len(vectors))
        self._values /= sums[self._rows]
        self._coordinates, self._columns = np.unique(columns, return_inverse=True)
        self._all = np.bincount(self._columns, self._values, len(self._coordinates))

    def distinct(self, members: Int64s) -> list[int]:
        """Return the coordinates most typical of a group, the most typical first.

        The order is by p log(p / q), with the mean weight p in the group and q in all rows.
        """
        is_member = np.zeros(self._count, np.bool_)
        is_member[members] = True
        chosen = is_member[self._rows]
        sums = np.bincount(
            self._columns[chosen], self._values[chosen], minlength=len(self._coordinates)
        )
        p, q = sums / len(members), self._all / self._count
        gains = np.where(p > q, p * np.log(np.maximum(p, q) / np.maximum(q, 1e-300)), 0.0)
        best = np.argsort(-gains, kind="stable")[: 4 * _NAMES]
        return [int(self._coordinates[each]) for each in best if gains[each] > 0]


def _names(
    memory: MemoryCollection, view: View, rows: Int64s, coordinates: Sequence[int]
) -> list[str]:
    """Return the names of the first coordinates that have one."""
    if memory.space.text is None:
        return [name for _, name in memory.names.of(coordinates)][:_NAMES]
    texts = [item_text(view.payloads[row]) for row in rows[:_TEXTS].tolist()]
    tokens = tokens_by_coordinate(texts, memory.space.text)
    return [tokens[each] for each in coordinates if each in tokens][:_NAMES]
