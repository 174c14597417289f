"""Fourier features: their random numbers, and their cosines.

Normal numbers depend on (seed, coordinate, pair of features). Features 32b + l and 32b + 16 + l
are a pair.
"""

import math

import numpy as np

from gcws_search.index.contracts.arrays import LANES, Float32s, Int64s, UInt32s
from gcws_search.index.kernels.compiling import kernel
from gcws_search.index.kernels.hashing.randomness import normal_pair, slot_words, uniforms
from gcws_search.index.kernels.lanes.functions import cosine
from gcws_search.index.kernels.lanes.vector import (
    at,
    fma,
    keep,
    lane_numbers,
    load,
    offset,
    pointer,
    splat,
    store,
    to_doubles,
    total,
)

_PHASES = np.uint32(2**32 - 1)  # no coordinate has this number


@kernel
def fill_phases(seed: np.uint64, out: Float32s) -> None:
    """Write phases w ~ U(0, 1), in turns, in whole registers."""
    low, high = slot_words(seed, _PHASES)
    for first in range(0, out.shape[0], LANES):
        samples = lane_numbers() + splat(np.int32(first))
        store(out, first, uniforms(splat(low), splat(high), samples))


@kernel
def fill_normals(seed: np.uint64, first: int, out: Float32s) -> None:
    """Write R ~ N(0, 1) of the coordinates from ``first`` on, (c, k); k fills whole registers."""
    n, k = out.shape
    to_out = pointer(out)
    for i in range(n):
        low, high = slot_words(seed, np.uint32(first + i))
        for j in range(0, k, 2 * LANES):
            pairs = lane_numbers() + splat(np.int32(j // 2))
            even, odd = normal_pair(splat(low), splat(high), pairs)
            store(to_out, i * k + j, even)
            if j + LANES < k:
                store(to_out, i * k + j + LANES, odd)


@kernel
def project_dense(rows: Float32s, panels: Float32s, scale: float, out: Float32s) -> None:
    """Write the products of rows, scaled to this L2 norm, with R, summed by ascending coordinate.

    rows (n, width): whole registers, none all zeros. panels (k / LANES, width, LANES): R.
    out (n, k).

    Six rows times sixteen features are in registers, the maximum for AVX2.
    """
    n, width = rows.shape
    k = out.shape[1]
    data = pointer(rows)
    scaled = np.empty((n, width), np.float32)
    for row in range(n):
        squares = splat(np.float64(0.0))
        for i in range(0, width, LANES):
            numbers = to_doubles(load(data, row * width + i))
            squares = squares + numbers * numbers
        factor = scale / math.sqrt(total(squares))
        for i in range(width):
            scaled[row, i] = np.float32(np.float64(rows[row, i]) * factor)
    x, r, to_out = pointer(scaled), pointer(panels), pointer(out)
    for j in range(0, k, LANES):
        panel = offset(r, j * width)
        for row in range(0, n, 6):
            # Beyond the last row, it is computed again.
            n1, n2, n3 = min(row + 1, n - 1), min(row + 2, n - 1), min(row + 3, n - 1)
            n4, n5 = min(row + 4, n - 1), min(row + 5, n - 1)
            x0, x1, x2 = offset(x, row * width), offset(x, n1 * width), offset(x, n2 * width)
            x3, x4, x5 = offset(x, n3 * width), offset(x, n4 * width), offset(x, n5 * width)
            a0 = a1 = a2 = a3 = a4 = a5 = splat(np.float32(0.0))
            for i in range(width):
                drawn = load(panel, i * LANES)
                a0 = fma(splat(at(x0, i)), drawn, a0)
                a1 = fma(splat(at(x1, i)), drawn, a1)
                a2 = fma(splat(at(x2, i)), drawn, a2)
                a3 = fma(splat(at(x3, i)), drawn, a3)
                a4 = fma(splat(at(x4, i)), drawn, a4)
                a5 = fma(splat(at(x5, i)), drawn, a5)
            store(to_out, row * k + j, a0)
            store(to_out, n1 * k + j, a1)
            store(to_out, n2 * k + j, a2)
            store(to_out, n3 * k + j, a3)
            store(to_out, n4 * k + j, a4)
            store(to_out, n5 * k + j, a5)
    keep(scaled)


@kernel
def project_sparse(
    indptr: Int64s, slots: UInt32s, values: Float32s, seed: np.uint64, out: Float32s
) -> None:
    """Write the products of sparse rows with R, which is generated when needed.

    Slots 2i and 2i + 1 belong to coordinate i; values are signed.
    out (n, k): k is whole registers.
    """
    n, k = out.shape
    products = np.empty((k + 2 * LANES - 1) // (2 * LANES) * 2 * LANES, np.float32)
    p = pointer(products)
    for row in range(n):
        products[:] = np.float32(0.0)
        for entry in range(indptr[row], indptr[row + 1]):
            low, high = slot_words(seed, slots[entry] >> np.uint32(1))
            x = splat(values[entry])
            for j in range(0, products.shape[0], 2 * LANES):
                pairs = lane_numbers() + splat(np.int32(j // 2))
                even, odd = normal_pair(splat(low), splat(high), pairs)
                store(p, j, fma(x, even, load(p, j)))
                store(p, j + LANES, fma(x, odd, load(p, j + LANES)))
        out[row] = products[:k]
    keep(products)


@kernel
def write_cosines(phases: Float32s, amplitudes: Float32s, normalised: bool, out: Float32s) -> None:
    """Replace products t by A_j cos 2π(t_j + w_j), divided by the row's L2 norm if ``normalised``.

    phases, amplitudes (k,): w in turns, and A; k is whole registers. out (n, k).
    """
    n, k = out.shape
    to_out, w, a = pointer(out), pointer(phases), pointer(amplitudes)
    for i in range(n):
        row = offset(to_out, i * k)
        squares = splat(np.float32(0.0))
        for j in range(0, k, LANES):
            features = cosine(load(row, j) + load(w, j)) * load(a, j)
            squares = fma(features, features, squares)
            store(row, j, features)
        norm = math.sqrt(total(squares))
        if normalised and norm > 0.0:
            factor = splat(np.float32(1.0 / norm))
            for j in range(0, k, LANES):
                store(row, j, load(row, j) * factor)
