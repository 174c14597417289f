"""Features whose inner products estimate a kernel: random Fourier features, and Nyström's.

Fourier: with u scaled to unit L2 norm, R ~ N(0, 1) and w ~ U(0, 2π), feature j of u is
√(2/k) cos(√γ u·R_j + w_j). Normalised features (NRFF) are divided by the L2 norm of the row that
they make. Folded features have no w, and √(1/k) ([GMM] §3; [RFF]).

Nyström: with A the landmarks, K_s = kernel(A, A) = V D Vᵀ and K = kernel(B, A), the features of B
are H = K V D^(-1/2) ([TGMM] §2.3). Eigenvalues at or below round-off are dropped, for their
inverses are noise. Kernel values are float64, so that what is kept is right to float32.
"""

from __future__ import annotations

import base64
import math
import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Float32s, Float64s, Int64s, large
from gcws_search.index.contracts.batches import VectorBatch, padded_width, row_width
from gcws_search.index.contracts.parameters import MAX_DIM, Form, FourierParams, NystroemParams
from gcws_search.index.contracts.saved_index import fields_of
from gcws_search.index.hashing.gcws import compress_rows
from gcws_search.index.kernels.gmm.rows import dense_norms, sparse_norms
from gcws_search.index.kernels.hashing.fourier import (
    fill_normals,
    fill_phases,
    project_sparse,
    write_cosines,
)
from gcws_search.index.similarities.gmm import gmm_rows
from gcws_search.index.similarities.kernels import RbfKernel
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.space import MAX_NORM

_FEWEST_ROWS: Final = 4
"""Dense rows of a matrix product, at least. Fewer are multiplied by other routines of BLAS, which
sum in another order: a row alone would have other last bits than in a batch."""
_CHUNK_FLOATS: Final = 1 << 18
"""Features made at a time: a megabyte."""
_COORDINATES_A_THREAD: Final = 64
_ROWS_A_THREAD: Final = 48
_SPARSE_ROWS_A_THREAD: Final = 4
_CHUNK_ROWS: Final = 256
_KERNEL_ROWS_A_THREAD: Final = 16
_NOTES_VERSION: Final = 1
_TYPES: Final = {"dense": "<f4", "indptr": "<i8", "slots": "<u4", "values": "<f4", "norms": "<f4"}
"""Arrays of landmarks as they are kept."""

_Arrays = dict[str, AnyArray]
"""Arrays by the names they have in notes."""


class FourierMap:
    """Fourier features of vectors: of dense rows of a width in memory, or of sparse ones."""

    def __init__(
        self, params: FourierParams, dense_width: int | None, workers: Workers | None = None
    ) -> None:
        self.width = params.features
        self._seed = np.uint64(params.seed)
        self._dense_width = dense_width
        self._workers = workers or Workers(1)
        self._is_normalised = params.kind == "nrff"
        self._scale = math.sqrt(params.gamma) / (2 * math.pi)
        padded = padded_width(self.width)
        self._phases, self._amplitudes = np.zeros(padded, np.float32), np.zeros(padded, np.float32)
        if params.kind != "folded_rff":
            fill_phases(self._seed, self._phases)
        sum_of_squares = self.width if params.kind == "folded_rff" else self.width / 2
        self._amplitudes[: self.width] = 1 / math.sqrt(sum_of_squares)
        self._projection: Float32s | None = None
        self._filling = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of phases, and of the projection once dense rows have been seen."""
        matrix = 0 if self._projection is None else self._projection.nbytes
        return matrix + self._phases.nbytes + self._amplitudes.nbytes

    def transform(self, batch: VectorBatch) -> Float32s:
        """Return the (n, k) features of n vectors: to the bit the same alone and in a batch."""
        out = large((len(batch), padded_width(self.width)), np.float32)
        self.fill(batch, out)
        return out[:, : self.width]

    def fill(self, batch: VectorBatch, out: Float32s) -> None:
        """Write features, and zeros after them, to an (n, padded_width(k)) array."""
        if batch.form == "dense" and self._dense_width is not None:
            self._fill_dense(batch.dense, out)
        else:
            self._fill_sparse(batch, out)

    def _fill_dense(self, rows: Float32s, out: Float32s) -> None:
        projection = self._matrix()
        chunk = max(_FEWEST_ROWS, _CHUNK_FLOATS // sum(projection.shape))

        def work(first: int, last: int) -> None:
            for start in range(first, last, chunk):
                part = slice(start, min(start + chunk, last))
                some = rows[part].astype(np.float64)
                factors = self._scale / np.sqrt(np.einsum("ij,ij->i", some, some))
                unit = np.zeros((max(_FEWEST_ROWS, len(some)), some.shape[1]), np.float32)
                np.multiply(some, factors[:, None], out=unit[: len(some)], casting="same_kind")
                if len(some) < _FEWEST_ROWS:
                    out[part] = (unit @ projection)[: len(some)]
                else:
                    np.matmul(unit, projection, out=out[part])
                write_cosines(self._phases, self._amplitudes, self._is_normalised, out[part])

        self._workers.split(len(rows), work, min_size=_ROWS_A_THREAD)

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

        self._workers.split(len(batch), work, min_size=_SPARSE_ROWS_A_THREAD)

    def _matrix(self) -> Float32s:
        """Return the (width, padded k) projection of all coordinates."""
        with self._filling:
            if self._projection is None:
                shape = self._dense_width or 0, len(self._phases)
                matrix: Float32s = large(shape, np.float32)
                self._workers.split(
                    len(matrix),
                    lambda first, last: fill_normals(self._seed, first, matrix[first:last]),
                    min_size=_COORDINATES_A_THREAD,
                )
                self._projection = matrix
            return self._projection


def draw_landmarks(params: NystroemParams, rows: Int64s) -> Int64s:
    """Return the rows that are landmarks, rising, out of distinct ones: all if they are few."""
    count = min(params.landmarks, len(rows))
    return np.sort(np.random.default_rng(params.seed).choice(rows, count, replace=False))


class NystroemMap:
    """Features of GMM or RBF by landmarks.

    ``width`` is the number of eigenvalues that are kept, at most one a landmark. There is at least
    one landmark, of the form of the vectors to be mapped.
    """

    def __init__(
        self, params: NystroemParams, landmarks: VectorBatch, workers: Workers | None = None
    ) -> None:
        self.workers = workers or Workers(1)
        self._landmarks = landmarks
        self._rbf = RbfKernel(params.gamma) if params.kind == "rbf_nystroem" else None
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
        """Bytes of memory the map holds."""
        batch = self._landmarks
        arrays = (batch.dense, batch.indptr, batch.slots, batch.values, batch.norms)
        return sum(array.nbytes for array in arrays) + self._weights.nbytes

    def transform(self, batch: VectorBatch) -> Float32s:
        """Return the (n, k) features of n vectors."""
        out = large((len(batch), padded_width(self.width)), np.float32)
        self.fill(batch, out)
        return out[:, : self.width]

    def fill(self, batch: VectorBatch, out: Float32s) -> None:
        """Write features, and zeros after them, to an (n, padded_width(k)) array."""
        out[:, self.width :] = 0

        self._split(
            batch, out[:, : self.width], lambda some: self._kernel_values(some) @ self._weights
        )

    def _kernel_values(self, batch: VectorBatch) -> Float64s:
        """Return the (n, m) kernel of n vectors and m landmarks."""
        landmarks = self._landmarks
        if self._rbf is not None:
            return self._rbf.scores(batch, landmarks)
        return np.array([gmm_rows(batch[i : i + 1], landmarks) for i in range(len(batch))])

    def _split(
        self, batch: VectorBatch, out: AnyArray, work: Callable[[VectorBatch], Float64s]
    ) -> None:
        """Write ``work`` of all vectors, some at a time on each thread."""

        def run(first: int, last: int) -> None:
            for start in range(first, last, _CHUNK_ROWS):
                part = slice(start, min(start + _CHUNK_ROWS, last))
                out[part] = work(batch[part])

        self.workers.split(len(batch), run, min_size=_KERNEL_ROWS_A_THREAD)

    def to_notes(self) -> dict[str, Any]:
        """Return the landmarks as JSON; the rest of the map is made from them."""
        if self._notes is None:
            batch = self._landmarks
            self._notes = {
                "version": _NOTES_VERSION,
                "form": batch.form,
                "width": batch.dense.shape[1],
                **{name: _text(getattr(batch, name)) for name in _TYPES},
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
        """Inverse of `to_notes` for vectors of a form; ValueError or KeyError of any others."""
        fields = fields_of(notes)
        if fields.get("version") != _NOTES_VERSION:
            raise ValueError("no notes of this version")
        if fields["form"] != form:
            raise ValueError(f"landmarks in another form than {form}")
        arrays = {name: _array(fields.get(name, ""), kind) for name, kind in _TYPES.items()}
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
        # A row of zeros to its end is summed in another order than when it came.
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
        raise ValueError("lists of unlike length")
    if indptr[0] != 0 or indptr[-1] != len(slots) or (indptr[1:] <= indptr[:-1]).any():
        raise ValueError("borders of rows that do not rise")
    columns = (slots >> 1).astype(np.int64)
    rises = columns[1:] > columns[:-1]
    rises[indptr[1:-1] - 1] = True
    bound = MAX_DIM + 1 if dim is None else dim
    if not rises.all() or (columns >= bound).any() or not (values > 0).all():
        raise ValueError("no rows in compressed form")
    return VectorBatch("sparse", indptr=indptr, slots=slots, values=values, norms=arrays["norms"])


def _text(array: AnyArray) -> str:
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode()


def _array(text: object, kind: str) -> AnyArray:
    if not isinstance(text, str):
        raise ValueError("no array")
    little = np.frombuffer(bytearray(base64.b64decode(text, validate=True)), kind)
    return little.astype(little.dtype.newbyteorder("="), copy=False)
