"""Join many queries with the rows that share a band of samples with them.

A pair of score s shares one of L bands of d samples with probability 1 - (1 - p(s)^d)^L. L is the
number of bands that finds a pair of the minimum score with the requested recall. d is the cheapest
number of samples: a larger d excludes more rows, but needs more bands and keys.
Source: [LSH].
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf, log, log1p
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.cost_model import band_join_nanoseconds, hash_nanoseconds
from gcws_search.index.exact.folded import Found, score_pairs
from gcws_search.index.hashing.banding import BandPlan, match_probabilities
from gcws_search.index.kernels.lsh.band_join import BandShape, Buckets, fill_buckets, join_buckets
from gcws_search.index.kernels.ordering.keys import keep_new
from gcws_search.index.threads import Workers

_SAMPLED: Final = 256
_JUDGED: Final = 32
"""Rows and queries on which the number of samples is chosen."""
_PAIRS: Final = 1 << 16
"""Pairs that are listed at a time."""
_ROWS: Final = 1 << 13
_MAX_PENDING: Final = 1 << 22
"""Rows that pass by together, and pairs from which they are scored then."""
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(0xFFFFFFFF)


class BandJoin:
    """The permitted rows of a view, to be joined with others, with a minimum score above 0.

    codes: (keys, n) of all rows; None if they must be hashed.
    keys_of: returns the (m, keys) first keys of vectors.
    nanoseconds: expected per query of a long run; infinite if no number of bands reaches the
        recall.
    setup_nanoseconds: to hash all rows, before the first queries.
    """

    def __init__(  # noqa: PLR0913 (what is joined, and how)
        self,
        view: RowView,
        codes: UInt64s | None,
        plan: BandPlan,
        keys_of: Callable[[VectorBatch, int], UInt64s],
        queries: VectorBatch,
        *,
        min_score: float,
        recall: float,
        workers: Workers,
    ) -> None:
        """Choose bands for queries like these."""
        self._view, self._codes, self._keys_of = view.with_floats(), codes, keys_of
        self._min_score, self._workers = min_score, workers
        self.nanoseconds, self.setup_nanoseconds = inf, 0.0
        some = queries[: min(_JUDGED, len(queries))]
        rows = np.flatnonzero(view.permitted)
        sampled = rows[:: max(1, len(rows) // _SAMPLED)]
        if codes is None:
            of_sampled = keys_of(view.vectors[sampled], plan.first).T
        else:
            of_sampled = codes[:, sampled]
        shares = self._matching_shares(plan, some, of_sampled)
        match = float(match_probabilities(plan, np.array(min_score), 1))
        for width in range(1, plan.depths + 1):
            missed = log1p(-(match**width)) if match < 1 else -inf
            bands = max(1, ceil(log(1.0 - recall) / missed))
            keys = -(-bands * width // plan.depths)
            if keys > len(of_sampled):
                break
            found = float(np.mean(1.0 - (1.0 - shares**width) ** bands))
            hashing = float(hash_nanoseconds(some, plan.of_first(keys)).mean())
            cost = hashing + band_join_nanoseconds(view, bands, found)
            if cost < self.nanoseconds:
                self.nanoseconds, self._keys = cost, keys
                self._shape = BandShape(plan.depths, plan.bits, width, bands)
        if codes is None and self.nanoseconds < inf:
            each = hash_nanoseconds(view.vectors[sampled], plan.of_first(self._keys))
            self.setup_nanoseconds = len(view.vectors) * float(each.mean())

    def _matching_shares(self, plan: BandPlan, queries: VectorBatch, codes: UInt64s) -> Float64s:
        """Return (q, r) the share of samples that queries and some rows have in common."""
        asked = self._keys_of(queries, len(codes)).T
        differing = asked[:, :, None] ^ codes[:, None, :]
        mask, matches = np.uint64((1 << plan.bits) - 1), np.zeros(differing.shape[1:], np.int64)
        for sample in range(plan.depths):
            shift = np.uint64(64 - (sample + 1) * plan.bits)
            matches += np.count_nonzero((differing >> shift) & mask == 0, axis=0)
        shares: Float64s = matches / (len(codes) * plan.depths)
        return shares

    def __call__(self, queries: VectorBatch) -> Found:
        """Return the rows found whose score with a query is high enough."""
        view, shape, m = self._view, self._shape, len(queries)
        if self._codes is None:
            self._codes = np.ascontiguousarray(self._keys_of(view.vectors, self._keys).T)
        codes = self._codes
        asked = np.ascontiguousarray(self._keys_of(queries, self._keys).T)
        size = 1 << max(2, (m - 1).bit_length())
        buckets = Buckets(
            np.empty((shape.bands, size + 1), np.int32),
            np.empty((shape.bands, m), np.int32),
            np.empty((shape.bands, size // 4), np.uint64),
        )
        fill_buckets(asked, shape, buckets)
        none, no_pairs = np.empty(0, np.int64), np.empty(0, np.uint64)
        found: list[Found] = [(none, none, np.empty(0, np.float64))]

        def join(first: int, last: int) -> None:
            out, pending = np.empty(_PAIRS, np.uint64), [no_pairs]

            def score() -> None:
                pairs = np.sort(np.concatenate(pending))
                pairs = pairs[: keep_new(pairs, no_pairs)]
                places, rows = (pairs >> _HALF).astype(np.int64), (pairs & _LOW).astype(np.int64)
                found.append(score_pairs(queries, view.vectors, places, rows, self._min_score))
                pending[:] = [no_pairs]

            for start in range(first, last, _ROWS):
                end = min(start + _ROWS, last)
                for band in range(shape.bands):
                    row, at = start, 0
                    while row < end:
                        count, row, at = join_buckets(
                            asked, buckets, codes, view.permitted, shape, band, row, end, at, out
                        )
                        pending.append(out[:count].copy())
                if sum(map(len, pending)) > _MAX_PENDING:
                    score()
            score()

        self._workers.split(len(view.vectors), join)
        places, rows, scores = (np.concatenate(part) for part in zip(*found, strict=True))
        return places, rows, scores
