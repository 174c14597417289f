"""The number and width of bands that find the pairs of a score.

A pair of score s shares one of L bands of w samples with probability 1 - (1 - s^w)^L.
Source: [LSH].
"""

from __future__ import annotations

from math import comb, log1p
from typing import Final

import numpy as np

from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import GcwsParams
from gcws_search.index.cost_model import bucket_nanoseconds, hash_nanoseconds
from gcws_search.index.hashing.banding import BandPlan
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.kernels.lsh.bucket_join import exact_pairs

_MAX_WIDTH: Final = 16
_MAX_BANDS: Final = 256
_SAMPLE: Final = 512
"""Rows by which hashing is judged."""
_PAIRS: Final = 1 << 15
"""By which the shape of the bands is chosen."""


def choose_bands(rows: VectorBatch, min_score: float, recall: float) -> tuple[int, int]:
    """Return bands and samples a band that find pairs of a score fastest; see `band_costs`."""
    costs = band_costs(rows, min_score, recall)
    return min(costs, key=costs.__getitem__)


def band_costs(rows: VectorBatch, min_score: float, recall: float) -> dict[tuple[int, int], float]:
    """Return nanoseconds by (bands, samples a band); empty if no choice reaches the recall.

    Each pair that scores ``min_score`` shares a key with probability at least ``recall``. Chance
    collisions are estimated from random pairs.
    """
    n, rng = len(rows), np.random.default_rng(0)
    some = rows[np.sort(rng.choice(n, min(n, _SAMPLE), replace=False)).astype(np.int64)]
    view = RowView(some, np.ones(len(some), np.uint8), len(some))
    a, b = rng.integers(0, n, (2, _PAIRS))
    a, b = a[a != b], b[a != b]
    scores = np.empty(len(a))
    exact_pairs(rows_of(rows), a, rows_of(rows), b, scores)
    shared = np.ones_like(scores)  # the probability that a pair shares a key of this width
    costs: dict[tuple[int, int], float] = {}
    for width in range(1, _MAX_WIDTH + 1):
        bands = bands_for(width, min_score, recall)
        if bands > _MAX_BANDS:
            break
        hashing = n * float(np.mean(hash_nanoseconds(some, band_plan(bands, width))))
        shared *= scores
        alike = comb(n, 2) * bands * float(np.mean(shared)) if len(scores) else 0.0
        costs[bands, width] = hashing + bucket_nanoseconds(view, alike, 0)
    return costs


def band_plan(bands: int, width: int) -> BandPlan:
    """Return the plan of keys that are hashed whole."""
    return BandPlan.of(GcwsParams(bands=bands, band_width=width))


def bands_for(width: int, score: float, recall: float) -> int:
    """Return the number of bands of a width that find a pair of a score with a probability."""
    if score >= 1:
        return 1
    return max(1, int(np.ceil(log1p(-min(recall, 1 - 1e-9)) / log1p(-(score**width)) - 1e-9)))


def recall_of(bands: int, width: int, score: float) -> float:
    """Return the probability that bands find a pair of a score."""
    return float(-np.expm1(bands * log1p(-(score**width)))) if score < 1 else 1.0
