"""GCWS samples by drawing every (slot, sample): what faster kernels must give to the bit."""

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import LANES, Float32s, Int32s, UInt32s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.hashing.gcws import Signatures, compress_rows
from gcws_search.index.kernels.hashing.randomness import (
    RATE_SCALE,
    arrival_of,
    fine_gamma,
    hash_parameters,
    level_of,
    min_chance,
    min_clock,
    mix,
    slot_words,
)
from gcws_search.index.kernels.lanes.functions import log_positive
from gcws_search.index.kernels.lanes.vector import lane_numbers, load, splat, store


def plain_sketch(batch: VectorBatch, *, seed: int, first: int, count: int) -> Signatures:
    """Return samples first … first + count - 1 of each vector."""
    indptr, slots, _ = compress_rows(batch)
    winners, levels = [], []
    for row, (a, t) in enumerate(plain_arrivals(batch, seed=seed, first=first, count=count)):
        best = np.argmin(a, axis=0)  # the first of equal ones
        winners.append(slots[indptr[row] :][best])
        levels.append(t[best, np.arange(count)])
    return Signatures(np.array(winners), np.array(levels).astype(np.int32))


def plain_arrivals(
    batch: VectorBatch, *, seed: int, first: int, count: int
) -> list[tuple[Float32s, Float32s]]:
    """Return a and t of each vector, both (its slots, samples) float32."""
    indptr, slots, values = compress_rows(batch)
    out = []
    for row in range(len(batch)):
        here = slice(indptr[row], indptr[row + 1])
        arrivals, levels = np.empty((2, len(slots[here]), count), np.float32)
        _draw_all(slots[here], values[here], np.uint64(seed), first, arrivals, levels)
        out.append((arrivals, levels))
    return out


@njit(nogil=True)
def _draw_all(
    slots: UInt32s, values: Float32s, seed: np.uint64, first: int, a: Float32s, t: Float32s
) -> None:
    for position in range(len(slots)):
        low, high = slot_words(seed, slots[position])
        log = log_positive(splat(values[position]))
        for b in range(0, a.shape[1], LANES):
            samples = lane_numbers() + splat(np.int32(first + b))
            r, inverse_r, beta, base = hash_parameters(splat(low), splat(high), samples)
            level = level_of(log, inverse_r, beta)
            store(t[position], b, level)
            store(a[position], b, arrival_of(level, r, base))


def rate_bounds(*, seed: int, slots: int, samples: int) -> Float32s:
    """Return lower bounds of c·e^(-r), (slots, samples) float32."""
    out = np.empty((slots, samples), np.float32)
    _bound_all(np.uint64(seed), out)
    return out


@njit(nogil=True)
def _bound_all(seed: np.uint64, out: Float32s) -> None:
    scale = splat(np.float32(1 / RATE_SCALE))
    for slot in range(out.shape[0]):
        low, high = slot_words(seed, np.uint32(slot))
        for b in range(0, out.shape[1], LANES):
            samples = lane_numbers() + splat(np.int32(b))
            x = mix(splat(low), splat(high), samples)
            bound = min_chance(x, splat(low)) * min_clock(x, splat(low))
            store(out[slot], b, bound * scale)


def fine_gammas(words: Int32s, endings: Int32s) -> Float32s:
    """Return the r that each word and the lower half of its ending name; a multiple of 16."""
    out = np.empty(len(words), np.float32)
    _name_all(words, endings, out)
    return out


@njit(nogil=True)
def _name_all(words: Int32s, endings: Int32s, out: Float32s) -> None:
    for i in range(0, len(words), LANES):
        store(out, i, fine_gamma(load(words, i), load(endings, i)))
