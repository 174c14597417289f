"""Fourier features: their random numbers, and their cosines.

Normal numbers are drawn by (seed, coordinate, pair of features). Features 32b + l and 32b + 16 + l
are a pair.
"""

import math

import numpy as np

from gcws_search.index.contracts.arrays import LANES, Float32s, Int64s, UInt32s
from gcws_search.index.kernels.compiling import kernel
from gcws_search.index.kernels.hashing.randomness import normal_pair, slot_words, uniforms
from gcws_search.index.kernels.lanes.functions import cosine
from gcws_search.index.kernels.lanes.vector import (
    fma,
    keep,
    lane_numbers,
    load,
    offset,
    pointer,
    splat,
    store,
    total,
)

_PHASES = np.uint32(2**32 - 1)  # no coordinate has this number


@kernel
def fill_phases(seed: np.uint64, out: Float32s) -> None:
    """Write phases w ~ U(0, 1), in turns, to whole registers."""
    low, high = slot_words(seed, _PHASES)
    for first in range(0, out.shape[0], LANES):
        samples = lane_numbers() + splat(np.int32(first))
        store(out, first, uniforms(splat(low), splat(high), samples))


@kernel
def fill_normals(seed: np.uint64, first: int, out: Float32s) -> None:
    """Write R ~ N(0, 1) of the coordinates from ``first`` on, (c, k); k is whole registers."""
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
def project_sparse(
    indptr: Int64s, slots: UInt32s, values: Float32s, seed: np.uint64, out: Float32s
) -> None:
    """Write the products of sparse rows with R, which is drawn as it is needed.

    Slots 2i and 2i + 1 are of coordinate i; values are signed.
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
    """Replace products t by A_j cos 2π(t_j + w_j), divided by the row's L2 norm if asked.

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
