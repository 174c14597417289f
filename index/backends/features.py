"""Features whose inner products estimate a kernel, scanned for every query."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from gcws_search.index.backends.protocol import Encoder, ProgressReport, no_report
from gcws_search.index.backends.rerank import Ranked, packed, refuse_proof, reranked, scanned
from gcws_search.index.contracts.arrays import Float32s, Int64s, UInt8s, UInt64s, large, with_room
from gcws_search.index.contracts.batches import VectorBatch, padded_width, row_width
from gcws_search.index.contracts.hits import METHODS, BatchHits, RowView
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    FourierParams,
    NystroemParams,
    SearchParams,
)
from gcws_search.index.contracts.policies import FeaturePolicy
from gcws_search.index.contracts.saved_index import UNKNOWN, SavedIndex, count_of
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import scan
from gcws_search.index.features.fourier import FeatureMap, FourierMap
from gcws_search.index.features.nystroem import NystroemMap, drawn_landmarks
from gcws_search.index.kernels.features.inner_product import scan_products
from gcws_search.index.kernels.ordering.heap import Heaps, empty_heaps
from gcws_search.index.similarities.public import FoldedRbfKernel, GmmKernel, Kernel, RbfKernel
from gcws_search.index.threads import Workers

_FLOATS_A_THREAD: Final = 1 << 19  # work below which a second thread does not pay
_MAX_ROWS: Final = 1 << 40

_NO_ROWS: Final = np.empty(0, np.int64)
_NO_ESTIMATES: Final = np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class FeatureState:
    """The features of a number of rows.

    Attributes
    ----------
    rows : int
    features : (rows or more, padded k) float32
        Zeros after the k features of a row; empty while there is no map.
    map : FeatureMap or None
        None while landmarks have not been drawn.
    drawn_from : int
        Live rows that landmarks were drawn from.
    """

    rows: int
    features: Float32s
    map: FeatureMap | None
    drawn_from: int = 0


@dataclass(frozen=True, slots=True)
class FeatureEncoder:
    """Makes features of rows to come: their codes, two features a word.

    Attributes
    ----------
    map : FeatureMap
        The one of the state that the rows are to be added to.
    """

    map: FeatureMap

    def encode(self, batch: VectorBatch) -> UInt64s:
        """Return the (n, padded k / 2) features."""
        features = large((len(batch), padded_width(self.map.width)), np.float32)
        self.map.fill(batch, features)
        return features.view(np.uint64)


class FeatureBackend:
    """A scan of features: Fourier features of a fixed map, or Nyström's, learned from the rows.

    Parameters
    ----------
    config : CollectionConfig
    params : FourierParams or NystroemParams
    workers : Workers
    policy : FeaturePolicy
    """

    code_width = 0

    def __init__(
        self,
        config: CollectionConfig,
        params: FourierParams | NystroemParams,
        workers: Workers,
        policy: FeaturePolicy,
    ) -> None:
        self._policy = policy
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

    def encoder(self, state: FeatureState) -> Encoder:
        """Return what makes features by the map of a state; the backend itself without one."""
        return self if state.map is None else FeatureEncoder(state.map)

    def empty(self) -> FeatureState:
        """Return the features of no rows."""
        return self._started(self._fixed)

    def _started(self, learned: FeatureMap | None, drawn_from: int = 0) -> FeatureState:
        width = 0 if learned is None else padded_width(learned.width)
        return FeatureState(0, np.empty((0, width), np.float32), learned, drawn_from)

    def extend(self, state: FeatureState, rows: VectorBatch, codes: UInt64s) -> FeatureState:
        """Return the features with the last len(codes) of ``rows`` added.

        Parameters
        ----------
        state : FeatureState
        rows : VectorBatch
        codes : (n, 0) or (n, padded k / 2) uint64
            What `encode` returned, and features are made here; or what `encoder` did.
        """
        return self._extended(state, rows, codes)

    def _extended(
        self, state: FeatureState, rows: VectorBatch, codes: UInt64s | None = None
    ) -> FeatureState:
        """Return the features of all ``rows``; ``state`` has those of the first rows."""
        n, features = len(rows), state.features
        if state.map is not None and n > state.rows:
            features = with_room(features, state.rows, n)
            if codes is None or codes.shape[1] == 0:
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
        return state.map is None or live >= self._policy.growth * state.drawn_from

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
        learned = NystroemMap(self._params, rows[drawn_landmarks(self._params, live)], self._behind)
        features = large((len(rows), padded_width(learned.width)), np.float32)
        chunk_rows = self._policy.chunk_rows
        for first in range(0, len(rows), chunk_rows):
            if stop.is_set():
                return None
            part = slice(first, first + chunk_rows)
            learned.fill(rows[part], features[part])
            report(min(1.0, part.stop / len(rows)))
        learned.workers = self.workers  # who puts rows is waited for
        return FeatureState(len(rows), features, learned, len(live))

    def adopt(
        self, state: FeatureState, rows: VectorBatch, optimize: FeatureState
    ) -> FeatureState | None:
        """Return the replacement with features of the rows put since."""
        del state
        return self._extended(optimize, rows)

    def saved(self, state: FeatureState) -> SavedIndex | None:
        """Return the landmarks; all else is made from the rows."""
        if not isinstance(state.map, NystroemMap):
            return None
        none = np.broadcast_to(np.int32(UNKNOWN), (state.rows, 1))
        return SavedIndex(none, {"drawn_from": state.drawn_from, "map": state.map.to_notes()})

    def restore(self, rows: VectorBatch, codes: UInt64s, saved: SavedIndex) -> FeatureState:
        """Return the features of all rows."""
        del codes
        return self._extended(self._state_of(saved.notes) or self.empty(), rows)

    def _state_of(self, notes: dict[str, Any]) -> FeatureState | None:
        """Return the state of no rows with the landmarks that were kept, None without any."""
        if isinstance(self._params, FourierParams):
            return None
        try:
            drawn_from = count_of(notes["drawn_from"], 1, _MAX_ROWS)
            learned = NystroemMap.from_notes(
                self._params, notes["map"], self._dim, self._form, self.workers
            )
            return self._started(learned, drawn_from)
        except (KeyError, ValueError):  # who keeps the notes tells of it
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

        Raises
        ------
        InvalidParameter
            A proof is asked for: features give none.
        """
        refuse_proof(self.kind, params)
        skipped = np.full(len(queries), -1, np.int64) if skip is None else skip
        exact = state.map is None or (params.recall == 1 and params.rerank != "none")
        if exact and (params.rerank == "gmm" or isinstance(self.kernel, GmmKernel)):
            none = InvertedIndex()
            return scan(view, queries, params, skip=skipped, inverted=none, workers=self.workers)
        if exact or state.map is None:
            return scanned(view, queries, params, skipped, self.kernel)
        return self._estimated(state.map, state.features, view, queries, params, skipped)

    def _estimated(
        self,
        feature_map: FeatureMap,
        features: Float32s,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s,
    ) -> BatchHits:
        """Return hits out of the best rows by estimate."""
        m, n, width = len(queries), len(view.vectors), features.shape[1]
        sought = np.empty((m, width), np.float32)
        feature_map.fill(queries, sought)
        pool = max(1, min(params.pool, view.permitted_count))
        answers: list[Ranked | None] = [None] * m

        def finish(first: int, last: int, parts: Sequence[Heaps]) -> None:
            for i in range(first, last):
                rows, estimates = _best(parts, i - first, pool)
                query = queries[i : i + 1]
                answers[i] = reranked(view.vectors, query, rows, estimates, params, self.kernel)

        def offer(first: int, last: int, rows: slice) -> Heaps:
            ours = empty_heaps(last - first, pool)
            some, skip_ours = sought[first:last], skip[first:last]
            scan_products(some, features, view.permitted, skip_ours, rows.start, rows.stop, ours)
            return ours

        if m < self.workers.threads:
            parts: list[Heaps] = []
            size = _FLOATS_A_THREAD // max(1, m * width)
            self.workers.split(
                n,
                lambda first, last: parts.append(offer(0, m, slice(first, last))),
                min_size=size,
            )
            finish(0, m, parts)
        else:
            self.workers.split(
                m, lambda first, last: finish(first, last, [offer(first, last, slice(0, n))])
            )
        scored = 0 if params.rerank == "none" else min(pool, view.permitted_count)
        done = [answer for answer in answers if answer is not None]
        method = METHODS.index(self.kind)
        return packed(method, done, candidates=view.permitted_count, scored=scored)

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


def _best(parts: Sequence[Heaps], query: int, pool: int) -> Ranked:
    """Return the ``pool`` best rows of one query over all parts, and their estimates."""
    sizes = [part.sizes[query] for part in parts]
    found = list(zip(parts, sizes, strict=True))
    rows = np.concatenate([_NO_ROWS, *(part.rows[query, :size] for part, size in found)])
    estimates = np.concatenate(
        [_NO_ESTIMATES, *(part.scores[query, :size] for part, size in found)]
    )
    if len(rows) > pool:
        order = np.lexsort((rows, -estimates))[:pool]
        rows, estimates = rows[order], estimates[order]
    return rows, estimates.astype(np.float64)


def _own_kernel(params: FourierParams | NystroemParams) -> Kernel:
    if params.kind == "gmm_nystroem":
        return GmmKernel()
    if params.kind == "folded_rff":
        return FoldedRbfKernel(params.gamma)
    return RbfKernel(params.gamma)
