"""Fourier features of vectors scaled to unit L2 norm: cosines of random projections.

Feature j of u is A_j cos 2π(p·R_j + w_j) with p = s·u/‖u‖, s = √γ/2π and A_j an amplitude; angles
are in turns. Normalised features (NRFF) are divided by the L2 norm of the row they make.

R is N(0, 1), drawn by (seed, coordinate, pair of features): features 32b + l and 32b + 16 + l are
a pair. Products are summed by rising coordinate, one fused step each, and a zero changes no sum, so
a row has the same features alone, in a batch, dense and sparse.

Dense rows: six rows times sixteen features are held in registers while the coordinates pass by.

Source: [GMM] §3; [RFF].
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import LANES, Float32s, Float64s, Int64s, UInt32s
from gcws_search.index.kernels.hashing.randomness import normal_pair, slot_words, uniforms
from gcws_search.index.kernels.lanes.border import from_python
from gcws_search.index.kernels.lanes.trigonometry import cosine
from gcws_search.index.kernels.lanes.vector import (
    at,
    fused,
    keep,
    lane_numbers,
    load,
    narrowed,
    offset,
    pointer,
    splat,
    store,
    total,
    widened,
)

_TOGETHER = 6
_CHUNK_FLOATS = 1 << 14
"""Floats of the scaled rows, or of their features, that stay in cache (64 KB each)."""
_PHASES = np.uint32(2**32 - 1)  # no coordinate has this number
_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)


class Cosines(NamedTuple):
    """How projections become features: A_j cos 2π(p·R_j + w_j).

    Attributes
    ----------
    phases : (k,) float32
        w, in turns.
    amplitudes : (k,) float32
        A.
    scale : float
        s.
    normalised : bool
        Whether rows of features are divided by their L2 norms.
    """

    phases: Float32s
    amplitudes: Float32s
    scale: float
    normalised: bool


@njit(cache=True, nogil=True)
def fill_phases(seed: np.uint64, out: Float32s) -> None:
    """Write phases w ~ U(0, 1), in turns.

    Parameters
    ----------
    out : (whole registers,) float32, written in place
    """
    low, high = slot_words(seed, _PHASES)
    for first in range(0, out.shape[0], LANES):
        samples = lane_numbers() + splat(np.int32(first))
        store(out, first, uniforms(splat(low), splat(high), samples))


@njit(cache=True, nogil=True)
def fill_projection(seed: np.uint64, width: int, first: int, last: int, out: Float32s) -> None:
    """Write R of the coordinates first … last - 1.

    Parameters
    ----------
    width : int
        Coordinates in all.
    out : (panels · width · LANES,) float32, written in place
        [p, i, l] holds R of coordinate i and feature p·LANES + l.
    """
    panels = out.shape[0] // (width * LANES)
    for i in range(first, last):
        low, high = slot_words(seed, np.uint32(i))
        for panel in range(0, panels, 2):
            pairs = lane_numbers() + splat(np.int32(panel // 2 * LANES))
            even, odd = normal_pair(splat(low), splat(high), pairs)
            store(out, (panel * width + i) * LANES, even)
            if panel + 1 < panels:
                store(out, ((panel + 1) * width + i) * LANES, odd)


@njit(cache=True, nogil=True)
def _scaled_row(row, width, scale, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (addresses)
    """Write s·u/‖u‖ of one dense row."""
    squares = splat(np.float64(0.0))
    for i in range(0, width, LANES):
        x = widened(load(row, i))
        squares = squares + x * x
    factor = splat(np.float64(scale / math.sqrt(total(squares))))
    for i in range(0, width, LANES):
        store(out, i, narrowed(widened(load(row, i)) * factor))


@njit(cache=True, nogil=True)
def _six_projections(x, width, panel):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (addresses, lanes)
    """Return the products of six rows with one panel of R."""
    a0 = splat(_ZERO)
    a1 = splat(_ZERO)
    a2 = splat(_ZERO)
    a3 = splat(_ZERO)
    a4 = splat(_ZERO)
    a5 = splat(_ZERO)
    x1 = offset(x, width)
    x2 = offset(x, 2 * width)
    x3 = offset(x, 3 * width)
    x4 = offset(x, 4 * width)
    x5 = offset(x, 5 * width)
    for i in range(width):
        r = load(panel, i * LANES)
        a0 = fused(splat(at(x, i)), r, a0)
        a1 = fused(splat(at(x1, i)), r, a1)
        a2 = fused(splat(at(x2, i)), r, a2)
        a3 = fused(splat(at(x3, i)), r, a3)
        a4 = fused(splat(at(x4, i)), r, a4)
        a5 = fused(splat(at(x5, i)), r, a5)
    return a0, a1, a2, a3, a4, a5


@njit(cache=True, nogil=True)
def _normalise(row, width):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 (addresses)
    """Divide a row of features by its L2 norm, in place."""
    squares = splat(_ZERO)
    for j in range(0, width, LANES):
        f = load(row, j)
        squares = fused(f, f, squares)
    norm = math.sqrt(total(squares))
    factor = splat(np.float32(_ONE / norm) if norm > _ZERO else _ZERO)
    for j in range(0, width, LANES):
        store(row, j, load(row, j) * factor)


@from_python
@njit(cache=True, nogil=True)
def dense_features(
    rows: Float32s,
    projection: Float32s,
    cosines: Cosines,
    out: Float32s,
) -> None:
    """Write the features of dense rows.

    Parameters
    ----------
    rows : (n, width) float32
        Whole registers; no row is all zeros.
    projection : see `fill_projection`
    cosines : Cosines
    out : (n, k) float32, written in place
        k is whole registers.
    """
    cosines = Cosines(*cosines)
    n, width = rows.shape
    k = out.shape[1]
    data, to_out = pointer(rows), pointer(out)
    r, w, a = pointer(projection), pointer(cosines.phases), pointer(cosines.amplitudes)
    scale = cosines.scale
    chunk = max(1, _CHUNK_FLOATS // max(width, k) // _TOGETHER) * _TOGETHER
    # Rows that fill up the last six are written here, for nobody.
    spare = np.empty(k, np.float32)
    scaled = np.zeros((chunk, width), np.float32)
    x, to_spare = pointer(scaled), pointer(spare)
    for first in range(0, n, chunk):
        count = min(chunk, n - first)
        for i in range(count):
            _scaled_row(offset(data, (first + i) * width), width, scale, offset(x, i * width))
        for panel in range(k // LANES):
            j = panel * LANES
            phase, amplitude = load(w, j), load(a, j)
            some = offset(r, j * width)
            for i in range(0, count, _TOGETHER):
                p0, p1, p2, p3, p4, p5 = _six_projections(offset(x, i * width), width, some)
                here = offset(to_out, (first + i) * k)
                left = count - i
                store(here, j, cosine(p0 + phase) * amplitude)
                there = offset(here, k) if left > 1 else to_spare
                store(there, j, cosine(p1 + phase) * amplitude)
                there = offset(here, 2 * k) if left > 2 else to_spare
                store(there, j, cosine(p2 + phase) * amplitude)
                there = offset(here, 3 * k) if left > 3 else to_spare
                store(there, j, cosine(p3 + phase) * amplitude)
                there = offset(here, 4 * k) if left > 4 else to_spare
                store(there, j, cosine(p4 + phase) * amplitude)
                there = offset(here, 5 * k) if left > 5 else to_spare
                store(there, j, cosine(p5 + phase) * amplitude)
        if cosines.normalised:
            for i in range(count):
                _normalise(offset(to_out, (first + i) * k), k)
    keep(scaled)
    keep(spare)


@njit(cache=True, nogil=True)
def _sparse_norm(slots: UInt32s, values: Float32s, sums: Float64s) -> float:
    """Return ‖u‖, summed in the order in which `_scaled_row` sums."""
    sums[:] = 0.0
    for i in range(slots.shape[0]):
        x = np.float64(values[i])
        sums[(slots[i] >> np.uint32(1)) % np.uint32(LANES)] += x * x
    half = LANES // 2
    while half:
        for lane in range(half):
            sums[lane] += sums[lane + half]
        half //= 2
    return math.sqrt(sums[0])


@from_python
@njit(cache=True, nogil=True)
def sparse_features(
    indptr: Int64s,
    slots: UInt32s,
    values: Float32s,
    seed: np.uint64,
    cosines: Cosines,
    out: Float32s,
) -> None:
    """Write the features of sparse rows; R is drawn as it is needed.

    Parameters
    ----------
    indptr, slots, values : rows in compressed form
        Slots 2i and 2i + 1 of coordinate i, rising; magnitudes; no row empty.
    seed : uint64
    cosines, out : see `dense_features`
    """
    cosines = Cosines(*cosines)
    n, k = out.shape
    whole = (k + 2 * LANES - 1) // (2 * LANES) * 2 * LANES
    products = np.empty(whole, np.float32)
    sums = np.empty(LANES, np.float64)
    p, to_out = pointer(products), pointer(out)
    w, a = pointer(cosines.phases), pointer(cosines.amplitudes)
    for row in range(n):
        here = slice(indptr[row], indptr[row + 1])
        factor = cosines.scale / _sparse_norm(slots[here], values[here], sums)
        products[:] = _ZERO
        for entry in range(indptr[row], indptr[row + 1]):
            low, high = slot_words(seed, slots[entry] >> np.uint32(1))
            size = np.float32(np.float64(values[entry]) * factor)
            x = splat(-size if slots[entry] & np.uint32(1) else size)
            for j in range(0, whole, 2 * LANES):
                pairs = lane_numbers() + splat(np.int32(j // 2))
                even, odd = normal_pair(splat(low), splat(high), pairs)
                store(p, j, fused(x, even, load(p, j)))
                store(p, j + LANES, fused(x, odd, load(p, j + LANES)))
        features = offset(to_out, row * k)
        for j in range(0, k, LANES):
            store(features, j, cosine(load(p, j) + load(w, j)) * load(a, j))
        if cosines.normalised:
            _normalise(features, k)
