"""Features whose inner products estimate a kernel: random Fourier features, and Nyström's.

Fourier: with u scaled to unit L2 norm, R ~ N(0, 1) and w ~ U(0, 2π), feature j of u is
√(2/k) cos(√γ u·R_j + w_j). Normalised features (NRFF) are divided by the L2 norm of the row that
they make. Folded features have no w, and √(1/k) ([GMM] §3; [RFF]).

Nyström: with A the landmarks, K_s = kernel(A, A) = V D Vᵀ and K = kernel(B, A), the features of B
are H = K V D^(-1/2) ([TGMM] §2.3). Eigenvalues at or below round-off are dropped, because their
inverses are noise. Kernel values are float64, so that the features are exact to float32.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from gcws_search.index.backend import Backend, ProgressReport, no_report
from gcws_search.index.contracts.arrays import (
    LANES,
    AnyArray,
    Float32s,
    Float64s,
    Int64s,
    UInt8s,
    UInt64s,
    large,
    with_room,
)
from gcws_search.index.contracts.batches import VectorBatch, round_up, row_width
from gcws_search.index.contracts.hits import METHODS, BatchHits, RowView
from gcws_search.index.contracts.parameters import (
    MAX_DIM,
    CollectionConfig,
    Form,
    FourierParams,
    NystroemParams,
    SearchParams,
)
from gcws_search.index.contracts.saved_index import (
    UNKNOWN,
    SavedIndex,
    array_of,
    array_text,
    count_of,
    fields_of,
)
from gcws_search.index.exact.scan import Ranked, batch_hits, refuse_proof, rerank, scan_by
from gcws_search.index.hashing.gcws import compress_rows
from gcws_search.index.kernels.gmm.rows import dense_norms, sparse_norms
from gcws_search.index.kernels.hashing.fourier import (
    fill_normals,
    fill_phases,
    project_dense,
    project_sparse,
    write_cosines,
)
from gcws_search.index.similarities import (
    EPSILON,
    GMM,
    Kernel,
    folded_rbf_kernel,
    gmm_rows,
    rbf_kernel,
)
from gcws_search.index.threads import Workers, limit_blas
from gcws_search.index.vectors.space import MAX_NORM

_CHUNK_FLOATS: Final = 1 << 18
"""Features made at a time: a megabyte."""
_DRAWN: Final = 64
"""Coordinates whose normal numbers are drawn at a time."""
_CHUNK_ROWS: Final = 256
_NOTES_VERSION: Final = 1
_TYPES: Final = {"dense": "<f4", "indptr": "<i8", "slots": "<u4", "values": "<f4", "norms": "<f4"}
"""Arrays of landmarks as they are kept."""

_Arrays = dict[str, AnyArray]
"""Arrays by the names they have in notes."""


class FourierMap:
    """Fourier features of vectors: of dense rows with a fixed width, or of sparse ones."""

    def __init__(
        self, params: FourierParams, dense_width: int | None, workers: Workers | None = None
    ) -> None:
        self.width = params.features
        self._seed = np.uint64(params.seed)
        self._dense_width = dense_width
        self._workers = workers or Workers(1)
        self._is_normalised = params.kind == "nrff"
        self._scale = math.sqrt(params.gamma) / (2 * math.pi)
        padded = round_up(self.width)
        self._phases, self._amplitudes = np.zeros(padded, np.float32), np.zeros(padded, np.float32)
        if params.kind != "folded_rff":
            fill_phases(self._seed, self._phases)
        sum_of_squares = self.width if params.kind == "folded_rff" else self.width / 2
        self._amplitudes[: self.width] = 1 / math.sqrt(sum_of_squares)
        self._projection: Float32s | None = None
        self._filling = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of phases, and of the projection once dense rows have been mapped."""
        matrix = 0 if self._projection is None else self._projection.nbytes
        return matrix + self._phases.nbytes + self._amplitudes.nbytes

    def fill(self, batch: VectorBatch, out: Float32s) -> None:
        """Write features, padded with zeros, to an (n, round_up(k)) array."""
        if batch.form == "dense" and self._dense_width is not None:
            self._fill_dense(batch.dense, out)
        else:
            self._fill_sparse(batch, out)

    def _fill_dense(self, rows: Float32s, out: Float32s) -> None:
        panels = self._panels()
        chunk = max(6, _CHUNK_FLOATS // (rows.shape[1] + out.shape[1]))

        def work(first: int, last: int) -> None:
            for start in range(first, last, chunk):
                part = slice(start, min(start + chunk, last))
                project_dense(rows[part], panels, self._scale, out[part])
                write_cosines(self._phases, self._amplitudes, self._is_normalised, out[part])

        self._workers.split(len(rows), work, min_size=48)

    def _fill_sparse(self, batch: VectorBatch, out: Float32s) -> None:
        indptr, slots, magnitudes = compress_rows(batch)
        values = np.where(slots & np.uint32(1), -1.0, 1.0) * magnitudes
        if len(batch):
            norms = np.sqrt(np.add.reduceat(np.square(values), indptr[:-1]))
            values *= np.repeat(self._scale / norms, np.diff(indptr))
        scaled = values.astype(np.float32)

        def work(first: int, last: int) -> None:
            part = out[first:last]
            project_sparse(indptr[first : last + 1], slots, scaled, self._seed, part)
            write_cosines(self._phases, self._amplitudes, self._is_normalised, part)

        self._workers.split(len(batch), work, min_size=4)

    def _panels(self) -> Float32s:
        """Return the projection of all coordinates, in panels of sixteen features."""
        with self._filling:
            if self._projection is None:
                width, count = self._dense_width or 0, len(self._phases) // LANES
                panels: Float32s = large((count, width, LANES), np.float32)

                def draw(first: int, last: int) -> None:
                    for start in range(first, last, _DRAWN):
                        drawn = np.empty((min(_DRAWN, last - start), count, LANES), np.float32)
                        fill_normals(self._seed, start, drawn.reshape(len(drawn), -1))
                        panels[:, start : start + len(drawn)] = drawn.swapaxes(0, 1)

                self._workers.split(width, draw, min_size=_DRAWN)
                self._projection = panels
            return self._projection


def draw_landmarks(params: NystroemParams, rows: Int64s) -> Int64s:
    """Return landmarks sampled from distinct rows, ascending; all rows if they are few."""
    count = min(params.landmarks, len(rows))
    return np.sort(np.random.default_rng(params.seed).choice(rows, count, replace=False))


class NystroemMap:
    """Features of GMM or RBF by landmarks.

    ``width`` is the number of eigenvalues used, at most one per landmark. There is at least one
    landmark, with the form of the mapped vectors.
    """

    @limit_blas
    def __init__(
        self, params: NystroemParams, landmarks: VectorBatch, workers: Workers | None = None
    ) -> None:
        self.workers = workers or Workers(1)
        self._landmarks = landmarks
        self._rbf = rbf_kernel(params.gamma) if params.kind == "rbf_nystroem" else None
        own = np.empty((len(landmarks), len(landmarks)))
        self._split(landmarks, own, self._kernel_values)
        eigenvalues, vectors = np.linalg.eigh((own + own.T) / 2)
        round_off = eigenvalues[-1] * len(landmarks) * np.finfo(np.float64).eps
        significant = eigenvalues > round_off
        self._weights: Float64s = vectors[:, significant] / np.sqrt(eigenvalues[significant])
        self.width = int(significant.sum())
        self._notes: dict[str, Any] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the map."""
        batch = self._landmarks
        arrays = (batch.dense, batch.indptr, batch.slots, batch.values, batch.norms)
        return sum(array.nbytes for array in arrays) + self._weights.nbytes

    @limit_blas
    def fill(self, batch: VectorBatch, out: Float32s) -> None:
        """Write features, padded with zeros, to an (n, round_up(k)) array."""
        out[:, self.width :] = 0
        self._split(
            batch, out[:, : self.width], lambda some: self._kernel_values(some) @ self._weights
        )

    def _kernel_values(self, batch: VectorBatch) -> Float64s:
        """Return the (n, m) kernel between n vectors and m landmarks."""
        landmarks = self._landmarks
        if self._rbf is not None:
            return self._rbf.scores(batch, landmarks)
        return np.array([gmm_rows(batch[i : i + 1], landmarks) for i in range(len(batch))])

    def _split(
        self, batch: VectorBatch, out: AnyArray, work: Callable[[VectorBatch], Float64s]
    ) -> None:
        """Run ``work`` on all vectors, in pieces on each thread."""

        def run(first: int, last: int) -> None:
            for start in range(first, last, _CHUNK_ROWS):
                part = slice(start, min(start + _CHUNK_ROWS, last))
                out[part] = work(batch[part])

        self.workers.split(len(batch), run, min_size=16)

    def to_notes(self) -> dict[str, Any]:
        """Return the landmarks as JSON; the rest of the map is computed from them."""
        if self._notes is None:
            batch = self._landmarks
            self._notes = {
                "version": _NOTES_VERSION,
                "form": batch.form,
                "width": batch.width,
                **{name: array_text(getattr(batch, name), kind) for name, kind in _TYPES.items()},
            }
        return self._notes

    @classmethod
    def from_notes(
        cls,
        params: NystroemParams,
        notes: object,
        dim: int | None,
        form: Form,
        workers: Workers | None = None,
    ) -> NystroemMap:
        """Inverse of `to_notes` for vectors of a form; ValueError or KeyError if not valid."""
        fields = fields_of(notes)
        if fields.get("version") != _NOTES_VERSION:
            raise ValueError("not notes of this version")
        if fields["form"] != form:
            raise ValueError(f"landmarks in another form than {form}")
        arrays = {name: array_of(fields.get(name, ""), kind) for name, kind in _TYPES.items()}
        make = _dense_landmarks if form == "dense" else _sparse_landmarks
        landmarks = make(arrays, dim)
        if not 1 <= len(landmarks) <= params.landmarks:
            raise ValueError(f"{len(landmarks)} landmarks")
        norms = np.empty(len(landmarks))
        if form == "dense":
            dense_norms(landmarks.dense, norms)
        else:
            sparse_norms(landmarks.indptr, landmarks.values, norms)
        is_norm = (norms > 0) & (norms <= MAX_NORM)
        # Trailing zeros of a row would change the order of summation.
        if not is_norm.all() or not np.allclose(norms, landmarks.norms, rtol=1e-6, atol=0.0):
            raise ValueError("norms are not those of the landmarks")
        return cls(params, landmarks, workers)


def _dense_landmarks(arrays: _Arrays, dim: int | None) -> VectorBatch:
    width = row_width("dense", dim)
    dense = arrays["dense"].reshape(len(arrays["norms"]), width or 0)
    if dense[:, dim:].any():
        raise ValueError("something beyond the last coordinate")
    return VectorBatch("dense", dense=dense, norms=arrays["norms"])


def _sparse_landmarks(arrays: _Arrays, dim: int | None) -> VectorBatch:
    indptr, slots, values = arrays["indptr"], arrays["slots"], arrays["values"]
    if len(indptr) != len(arrays["norms"]) + 1 or len(slots) != len(values):
        raise ValueError("arrays of different lengths")
    if indptr[0] != 0 or indptr[-1] != len(slots) or (indptr[1:] <= indptr[:-1]).any():
        raise ValueError("row offsets do not increase")
    columns = (slots >> 1).astype(np.int64)
    rises = columns[1:] > columns[:-1]
    rises[indptr[1:-1] - 1] = True
    bound = MAX_DIM + 1 if dim is None else dim
    if not rises.all() or (columns >= bound).any() or not (values > 0).all():
        raise ValueError("not rows in compressed form")
    return VectorBatch("sparse", indptr=indptr, slots=slots, values=values, norms=arrays["norms"])


FeatureMap = FourierMap | NystroemMap


def map_rows(own_map: FeatureMap, batch: VectorBatch) -> Float32s:
    """Return the (n, padded k) features of n vectors, bit-identical alone and in a batch."""
    features: Float32s = large((len(batch), round_up(own_map.width)), np.float32)
    own_map.fill(batch, features)
    return features


GROWTH: Final = 4
"""Landmarks are drawn again once the rows have grown by this factor."""
_FLOATS_A_THREAD: Final = 1 << 19  # work below which a second thread does not pay
_QUERIES_A_THREAD: Final = 16
_ROWS_A_HIT: Final = 100
"""Of each thread: up to so many queries, and from so many rows on, threads divide the rows. Each
part has a pool of its own, but the features are read once."""
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
    # (rows or more, padded k): zeros after the k features of a row; empty without a map.
    features: Float32s
    map: FeatureMap | None  # None until landmarks have been chosen
    drawn_from: int = 0  # number of live rows when landmarks were chosen


class FeatureBackend(Backend[FeatureState]):
    """A scan of features: Fourier features of a fixed map, or Nyström features from the rows."""

    code_width = 0
    chunk_rows = 4096  # mapped between two checks for a stop

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
        """Return (n, 0) words: features are computed from the rows."""
        return np.empty((len(batch), 0), np.uint64)

    def encoder(self, state: FeatureState) -> Callable[[VectorBatch], UInt64s]:
        """Return a function that maps rows to (n, padded k / 2) words of two features each."""
        own_map = state.map
        if own_map is None:
            return self.encode
        return lambda batch: map_rows(own_map, batch).view(np.uint64)

    def empty(self) -> FeatureState:
        """Return the features of zero rows."""
        return _empty_state(self._fixed)

    def extend(self, state: FeatureState, rows: VectorBatch, codes: UInt64s) -> FeatureState:
        """Return the features of all ``rows``; ``state`` has those of the first ones.

        ``codes`` are the result of `encode`, and features are computed here, or that of `encoder`.
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
        """Return whether landmarks should be chosen, or chosen again."""
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
        """Return the features by landmarks chosen from the live rows."""
        if isinstance(self._params, FourierParams):
            return state
        live = np.flatnonzero(alive)
        if stop.is_set() or len(live) == 0:
            return None
        learned = NystroemMap(self._params, rows[draw_landmarks(self._params, live)], self._behind)
        features = large((len(rows), round_up(learned.width)), np.float32)
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
        """Return the replacement, with features of the rows put since."""
        del state
        return self.extend(replacement, rows, _NO_CODES)

    def saved(self, state: FeatureState) -> SavedIndex | None:
        """Return the landmarks; everything else is computed from the rows."""
        if not isinstance(state.map, NystroemMap):
            return None
        none = np.broadcast_to(np.int32(UNKNOWN), (state.rows, 1))
        return SavedIndex(none, {"drawn_from": state.drawn_from, "map": state.map.to_notes()})

    def restore(self, rows: VectorBatch, codes: UInt64s, saved: SavedIndex) -> FeatureState:
        """Return the features of all rows, by the saved landmarks if there are any."""
        del codes
        state, notes = self.empty(), saved.notes
        if isinstance(self._params, NystroemParams):
            with suppress(KeyError, ValueError):  # the owner of the notes reports it
                drawn_from = count_of(notes["drawn_from"], 1, _MAX_ROWS)
                learned = NystroemMap.from_notes(
                    self._params, notes["map"], self._dim, self._form, self.workers
                )
                state = _empty_state(learned, drawn_from)
        return self.extend(state, rows, _NO_CODES)

    @limit_blas
    def search(
        self,
        state: FeatureState,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s | None = None,
    ) -> BatchHits:
        """Return the hits of each query: the best by estimate, scored as ``params`` specify.

        Raises InvalidParameter if a proof is requested: features give none.
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

        threads = self.workers.threads
        is_small = threads < m <= _QUERIES_A_THREAD * threads  # smaller products would be slower
        if m < threads or (is_small and n > _ROWS_A_HIT * pool * threads):
            parts: list[list[Ranked]] = []
            self.workers.split(
                n,
                lambda first, last: parts.append(scan(0, m, slice(first, last))),
                min_size=_FLOATS_A_THREAD // max(1, m * features.shape[1]),
            )
            self.workers.split(
                m, lambda first, last: finish(first, last, [part[first:last] for part in parts])
            )
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
        """Bytes of memory of the features and their map."""
        return state.features.nbytes + (0 if state.map is None else state.map.nbytes)

    def stats(self, state: FeatureState) -> dict[str, Any]:
        """Return statistics of the features."""
        width = None if state.map is None else state.map.width
        return {
            "features": width,
            "feature_bytes": state.features.nbytes,
            "map_bytes": 0 if state.map is None else state.map.nbytes,
            "bytes_per_item": None if width is None else 4 * round_up(width),
        }


def best_products(
    queries: Float32s, features: Float32s, permitted: UInt8s, skip: Int64s, rows: slice, pool: int
) -> list[Ranked]:
    """Return the ``pool`` best rows of each query by inner product; equal products by row.

    The last bits of BLAS products depend on what is multiplied together. So they only choose
    candidates, with a margin for rounding. Candidates are ranked by float64 sums, which depend only
    on a query and a row.

    Features are (n or more, width), with norms of about √2 or less; queries are (m, width).
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

    ``bounds``, the minimum relevant product of each query, is changed in place.
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
    """Return the ``pool`` best rows of all parts, with their estimates."""
    rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in parts)])
    estimates = np.concatenate([np.empty(0), *(estimates for _, estimates in parts)])
    order = np.lexsort((rows, -estimates))[:pool]
    return rows[order], estimates[order]


def _empty_state(learned: FeatureMap | None, drawn_from: int = 0) -> FeatureState:
    width = 0 if learned is None else round_up(learned.width)
    return FeatureState(0, np.empty((0, width), np.float32), learned, drawn_from)


def _own_kernel(params: FourierParams | NystroemParams) -> Kernel:
    if params.kind == "gmm_nystroem":
        return GMM
    if params.kind == "folded_rff":
        return folded_rbf_kernel(params.gamma)
    return rbf_kernel(params.gamma)
