"""Features whose inner products estimate a kernel, scanned for every query."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np

from gcws_search.index.backend import Backend, ProgressReport, no_report
from gcws_search.index.comparison.features import FourierMap, NystroemMap, draw_landmarks
from gcws_search.index.contracts.arrays import (
    Float32s,
    Int64s,
    UInt8s,
    UInt64s,
    large,
    with_room,
)
from gcws_search.index.contracts.batches import VectorBatch, padded_width, row_width
from gcws_search.index.contracts.hits import METHODS, BatchHits, RowView
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    FourierParams,
    NystroemParams,
    SearchParams,
)
from gcws_search.index.contracts.saved_index import UNKNOWN, SavedIndex, count_of
from gcws_search.index.exact.rerank import Ranked, batch_hits, refuse_proof, rerank, scan_by
from gcws_search.index.similarities.gmm import EPSILON, GmmKernel
from gcws_search.index.similarities.kernels import FoldedRbfKernel, Kernel, RbfKernel
from gcws_search.index.threads import Workers

FeatureMap = FourierMap | NystroemMap
GROWTH: Final = 4
"""Landmarks are drawn again once the rows have grown by this factor."""
_FLOATS_A_THREAD: Final = 1 << 19  # work below which a second thread does not pay
_PRODUCT_FLOATS: Final = 1 << 19
"""Features times queries of one matrix product: BLAS copies no operand of one so small."""
_LEAST_FLOATS: Final = 1 << 17
"""Features of one matrix product at least: below, what NumPy does about it takes longer."""
_BLOCKS: Final = 8
"""Products that are looked at together."""
_ROOM: Final = 8
"""Times the pool: candidates that are gathered before the worst of them are left out."""
_MAX_ROWS: Final = 1 << 40
_NO_CODES: Final = np.empty((0, 0), np.uint64)
_NOTHING: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class FeatureState:
    """The features of a number of rows."""

    rows: int
    # (rows or more, padded k): zeros after the k features of a row; empty while there is no map.
    features: Float32s
    map: FeatureMap | None  # None while landmarks have not been drawn
    drawn_from: int = 0  # live rows that landmarks were drawn from


class FeatureBackend(Backend[FeatureState]):
    """A scan of features: Fourier features of a fixed map, or Nyström's, learned from the rows."""

    code_width = 0
    chunk_rows = 4096  # mapped between two looks at whether to stop

    def __init__(
        self, config: CollectionConfig, params: FourierParams | NystroemParams, workers: Workers
    ) -> None:
        self._params = params
        self._dim, self._form = config.dim, config.form
        self.workers = workers
        self._behind = workers.behind()
        self.kind = params.kind
        self.kernel = _own_kernel(params)
        self._fixed: FourierMap | None = None
        if isinstance(params, FourierParams):
            width = row_width(config.form, config.dim)
            self._fixed = FourierMap(params, width, workers)

    def encode(self, batch: VectorBatch) -> UInt64s:
        """Return (n, 0) words: features are made from the rows."""
        return np.empty((len(batch), 0), np.uint64)

    def encoder(self, state: FeatureState) -> Callable[[VectorBatch], UInt64s]:
        """Return what makes (n, padded k / 2) words of rows, two features a word, by their map."""
        return self.encode if state.map is None else partial(_encode, state.map)

    def empty(self) -> FeatureState:
        """Return the features of no rows."""
        return _empty_state(self._fixed)

    def extend(self, state: FeatureState, rows: VectorBatch, codes: UInt64s) -> FeatureState:
        """Return the features of all ``rows``; ``state`` has those of the first ones.

        ``codes`` are what `encode` returned, and features are made here, or what `encoder` did.
        """
        n, features = len(rows), state.features
        if state.map is not None and n > state.rows:
            features = with_room(features, state.rows, n)
            if codes.shape[1] == 0:
                state.map.fill(rows[state.rows :], features[state.rows : n])
            else:
                features[state.rows : n] = codes.view(np.float32)
        return replace(state, rows=n, features=features)

    def renumber(self, state: FeatureState, rows: VectorBatch, new_rows: Int64s) -> FeatureState:
        """Return the features after a compaction."""
        features = state.features
        if state.map is not None:
            features = large((len(rows), features.shape[1]), np.float32)
            np.take(state.features, np.flatnonzero(new_rows >= 0), axis=0, out=features)
        return replace(state, rows=len(rows), features=features)

    def is_overdue(self, state: FeatureState, rows: int, live: int) -> bool:
        """Return whether landmarks should be drawn, or drawn again."""
        del rows
        if isinstance(self._params, FourierParams) or live < self._params.landmarks:
            return False
        return state.map is None or live >= GROWTH * state.drawn_from

    def optimize(
        self,
        state: FeatureState,
        rows: VectorBatch,
        alive: UInt8s,
        stop: threading.Event,
        report: ProgressReport = no_report,
    ) -> FeatureState | None:
        """Return the features by landmarks drawn from the live rows."""
        if isinstance(self._params, FourierParams):
            return state
        live = np.flatnonzero(alive)
        if stop.is_set() or len(live) == 0:
            return None
        learned = NystroemMap(self._params, rows[draw_landmarks(self._params, live)], self._behind)
        features = large((len(rows), padded_width(learned.width)), np.float32)
        for first in range(0, len(rows), self.chunk_rows):
            if stop.is_set():
                return None
            part = slice(first, first + self.chunk_rows)
            learned.fill(rows[part], features[part])
            report(min(1.0, part.stop / len(rows)))
        learned.workers = self.workers  # a write waits for these
        return FeatureState(len(rows), features, learned, len(live))

    def adopt(
        self, state: FeatureState, rows: VectorBatch, replacement: FeatureState
    ) -> FeatureState | None:
        """Return the replacement with features of the rows put since."""
        del state
        return self.extend(replacement, rows, _NO_CODES)

    def saved(self, state: FeatureState) -> SavedIndex | None:
        """Return the landmarks; all else is made from the rows."""
        if not isinstance(state.map, NystroemMap):
            return None
        none = np.broadcast_to(np.int32(UNKNOWN), (state.rows, 1))
        return SavedIndex(none, {"drawn_from": state.drawn_from, "map": state.map.to_notes()})

    def restore(self, rows: VectorBatch, codes: UInt64s, saved: SavedIndex) -> FeatureState:
        """Return the features of all rows."""
        del codes
        return self.extend(self._state_of(saved.notes) or self.empty(), rows, _NO_CODES)

    def _state_of(self, notes: dict[str, Any]) -> FeatureState | None:
        """Return an empty state with the saved landmarks; None without any."""
        if isinstance(self._params, FourierParams):
            return None
        try:
            drawn_from = count_of(notes["drawn_from"], 1, _MAX_ROWS)
            learned = NystroemMap.from_notes(
                self._params, notes["map"], self._dim, self._form, self.workers
            )
            return _empty_state(learned, drawn_from)
        except (KeyError, ValueError):  # the owner of the notes reports it
            return None

    def search(
        self,
        state: FeatureState,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s | None = None,
    ) -> BatchHits:
        """Return the hits of each query: the best by estimate, scored as ``params`` say.

        Raises InvalidParameter where a proof is asked for: features give none.
        """
        refuse_proof(self.kind, params)
        skipped = np.full(len(queries), -1, np.int64) if skip is None else skip
        if state.map is None or (params.recall == 1 and params.rerank != "none"):
            return scan_by(self.kernel, view, queries, params, skipped, self.workers)
        m, n, features = len(queries), len(view.vectors), state.features
        sought = np.empty((m, features.shape[1]), np.float32)
        state.map.fill(queries, sought)
        pool = max(1, min(params.pool, view.permitted_count))
        answers: list[Ranked | None] = [None] * m

        def finish(first: int, last: int, parts: list[list[Ranked]]) -> None:
            for i in range(first, last):
                rows, estimates = _first_of([part[i - first] for part in parts], pool)
                query = queries[i : i + 1]
                answers[i] = rerank(view.vectors, query, rows, estimates, params, self.kernel)

        def scan(first: int, last: int, rows: slice) -> list[Ranked]:
            some, skip_ours = sought[first:last], skipped[first:last]
            return best_products(some, features, view.permitted, skip_ours, rows, pool)

        if m < self.workers.threads:
            parts: list[list[Ranked]] = []
            self.workers.split(
                n,
                lambda first, last: parts.append(scan(0, m, slice(first, last))),
                min_size=_FLOATS_A_THREAD // max(1, m * features.shape[1]),
            )
            finish(0, m, parts)
        else:
            self.workers.split(
                m, lambda first, last: finish(first, last, [scan(first, last, slice(0, n))])
            )
        return batch_hits(
            METHODS.index(self.kind),
            [answer for answer in answers if answer is not None],
            candidates=view.permitted_count,
            scored=0 if params.rerank == "none" else min(pool, view.permitted_count),
        )

    def nbytes(self, state: FeatureState) -> int:
        """Bytes of memory the features and their map hold."""
        return state.features.nbytes + (0 if state.map is None else state.map.nbytes)

    def stats(self, state: FeatureState) -> dict[str, Any]:
        """Return what there is to know of the features."""
        width = None if state.map is None else state.map.width
        return {
            "features": width,
            "feature_bytes": state.features.nbytes,
            "map_bytes": 0 if state.map is None else state.map.nbytes,
            "bytes_per_item": None if width is None else 4 * padded_width(width),
        }


def best_products(
    queries: Float32s,
    features: Float32s,
    permitted: UInt8s,
    skip: Int64s,
    rows: slice,
    pool: int,
) -> list[Ranked]:
    """Return the ``pool`` best rows of each query by inner product; equal products by rising row.

    Products of BLAS depend in their last bits on what is multiplied together. So they only choose
    candidates, with a margin for their rounding. Candidates are ranked by float64 sums, which
    depend on a query and a row alone.

    Features are (n or more, width), of norm √2 or less, about; queries are (m, width).
    """
    m, width = queries.shape
    margins = (4 * width * EPSILON * np.linalg.norm(queries, axis=1)).astype(np.float32)
    bounds = np.full(m, np.finfo(np.float32).min)
    found = _NOTHING, _NOTHING, bounds[:0]
    parts, size, room = [found], 0, _ROOM * pool * m
    columns, block = queries.T, max(1, max(_LEAST_FLOATS, _PRODUCT_FLOATS // m) // width)
    all_permitted, skips = permitted[rows].all(), bool((skip >= 0).any())
    for first in range(rows.start, rows.stop, _BLOCKS * block):
        last = min(first + _BLOCKS * block, rows.stop)
        products = np.empty((last - first, m), np.float32)
        for start in range(first, last, block):
            some = slice(start - first, min(start + block, last) - first)
            np.matmul(features[start : first + some.stop], columns, out=products[some])
        if not all_permitted:
            products[permitted[first:last] == 0] = -np.inf
        if skips:
            own = np.flatnonzero((skip >= first) & (skip < last))
            products[skip[own] - first, own] = -np.inf
        if first == rows.start and last - first > pool:
            behind = last - first - pool
            bounds = np.maximum(bounds, np.partition(products, behind, axis=0)[behind] - margins)
        places, which = np.nonzero(products >= bounds)
        parts.append((places + first, which, products[places, which]))
        size += len(places)
        if size > room or last == rows.stop:
            found = _cut(parts, pool, margins, bounds)
            parts, size = [found], len(found[0])
            room = max(_ROOM * pool * m, 2 * size)
    near, which, _ = found
    borders = np.searchsorted(which, np.arange(m + 1))
    estimates = np.empty(len(near))
    for query, (first, last) in enumerate(pairwise(borders.tolist())):
        doubles = queries[query].astype(np.float64)
        for start in range(first, last, block):
            part = slice(start, min(start + block, last))
            np.sum(features[near[part]] * doubles, axis=1, out=estimates[part])
    return [
        _first_of([(near[first:last], estimates[first:last])], pool)
        for first, last in pairwise(borders.tolist())
    ]


def _cut(
    parts: list[tuple[Int64s, Int64s, Float32s]], pool: int, margins: Float32s, bounds: Float32s
) -> tuple[Int64s, Int64s, Float32s]:
    """Drop rows that cannot be among the ``pool`` best of their query.

    ``bounds``, the least product that counts for each query, is changed in place.
    """
    rows, which, products = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(which, kind="stable")
    rows, which, products = rows[order], which[order], products[order]
    borders = np.searchsorted(which, np.arange(len(bounds) + 1)).tolist()
    for query, (first, last) in enumerate(pairwise(borders)):
        if last - first > pool:
            behind = last - first - pool
            least = np.partition(products[first:last], behind)[behind] - margins[query]
            bounds[query] = max(bounds[query], least)
    stays = products >= bounds[which]
    return rows[stays], which[stays], products[stays]


def _first_of(parts: list[Ranked], pool: int) -> Ranked:
    """Return the ``pool`` best rows of all parts, and their estimates."""
    rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in parts)])
    estimates = np.concatenate([np.empty(0), *(estimates for _, estimates in parts)])
    order = np.lexsort((rows, -estimates))[:pool]
    return rows[order], estimates[order]


def _empty_state(learned: FeatureMap | None, drawn_from: int = 0) -> FeatureState:
    width = 0 if learned is None else padded_width(learned.width)
    return FeatureState(0, np.empty((0, width), np.float32), learned, drawn_from)


def _encode(own_map: FeatureMap, batch: VectorBatch) -> UInt64s:
    """Return the (n, padded k / 2) features of new rows."""
    features = large((len(batch), padded_width(own_map.width)), np.float32)
    own_map.fill(batch, features)
    return features.view(np.uint64)


def _own_kernel(params: FourierParams | NystroemParams) -> Kernel:
    if params.kind == "gmm_nystroem":
        return GmmKernel()
    if params.kind == "folded_rff":
        return FoldedRbfKernel(params.gamma)
    return RbfKernel(params.gamma)
