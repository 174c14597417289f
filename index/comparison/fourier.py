"""Random Fourier features: cosines of Gaussian projections.

With u scaled to unit L2 norm, R ~ N(0, 1) and w ~ U(0, 2π), feature j of u is
√(2/k) cos(√γ u·R_j + w_j). Normalised features (NRFF) are divided by the L2 norm of the row that
they make. Folded features have no w, and √(1/k).

Source: [GMM] §3; [RFF].
"""

from __future__ import annotations

import math
import threading
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, large
from gcws_search.index.contracts.batches import VectorBatch, padded_width
from gcws_search.index.contracts.parameters import FourierParams
from gcws_search.index.hashing.gcws import compress_rows
from gcws_search.index.kernels.hashing.fourier import (
    fill_normals,
    fill_phases,
    project_sparse,
    write_cosines,
)
from gcws_search.index.threads import Workers

_FEWEST_ROWS: Final = 4
"""Dense rows of a matrix product, at least. Fewer are multiplied by other routines of BLAS, which
sum in another order: a row alone would have other last bits than in a batch."""
_CHUNK_FLOATS: Final = 1 << 18
"""Features made at a time: a megabyte."""
_COORDINATES_A_THREAD: Final = 64
_ROWS_A_THREAD: Final = 48
_SPARSE_ROWS_A_THREAD: Final = 4


class FourierMap:
    """Fourier features of vectors.

    dense_width: length of dense rows in memory; None when rows are sparse.
    """

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
                self._write_cosines(out[part])

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
            self._write_cosines(part)

        self._workers.split(len(batch), work, min_size=_SPARSE_ROWS_A_THREAD)

    def _write_cosines(self, out: Float32s) -> None:
        write_cosines(self._phases, self._amplitudes, self._is_normalised, out)

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
