"""Feature maps: from vectors to real features whose inner products estimate a kernel."""

from __future__ import annotations

import math
import threading
from typing import Final, Protocol

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, large
from gcws_search.index.contracts.batches import VectorBatch, padded_width
from gcws_search.index.contracts.parameters import FourierParams
from gcws_search.index.hashing.gcws import compressed
from gcws_search.index.kernels.features.fourier import (
    Cosines,
    dense_features,
    fill_phases,
    fill_projection,
    sparse_features,
)
from gcws_search.index.threads import Workers

_COORDINATES_A_THREAD: Final = 64
_ROWS_A_THREAD: Final = 48
_SPARSE_ROWS_A_THREAD: Final = 4


class FeatureMap(Protocol):
    """A map from vectors to k real features each."""

    @property
    def width(self) -> int:
        """The number of features, k."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory the map holds."""

    def transform(self, batch: VectorBatch) -> Float32s:
        """Return the (n, k) features of n vectors; any thread.

        The inner product of two rows is the estimate of the kernel.
        """

    def fill(self, batch: VectorBatch, out: Float32s) -> None:
        """Write features, and zeros after them; any thread.

        Parameters
        ----------
        batch : VectorBatch
        out : (n, padded_width(k)) float32, written in place
        """


class FourierMap:
    """Cosines of Gaussian projections ([GMM] §3; [RFF]).

    With u scaled to unit L2 norm, R ~ N(0, 1) and w ~ U(0, 2π), feature j is √(2/k) cos(√γ u·R_j +
    w_j); ``nrff`` scales rows of features to unit length; ``folded_rff`` has no w, and √(1/k).

    Parameters
    ----------
    params : FourierParams
    dense_width : int or None
        Length of dense rows in memory; None when rows are sparse.
    workers : Workers or None
        Threads for its kernels; None takes the caller's alone.
    """

    def __init__(
        self, params: FourierParams, dense_width: int | None, workers: Workers | None = None
    ) -> None:
        self.width = params.features
        self._seed = np.uint64(params.seed)
        self._dense_width = dense_width
        self._workers = workers or Workers(1)
        padded = padded_width(self.width)
        phases, amplitudes = np.zeros(padded, np.float32), np.zeros(padded, np.float32)
        if params.kind != "folded_rff":
            fill_phases(self._seed, phases)
        sum_of_squares = self.width if params.kind == "folded_rff" else self.width / 2
        amplitudes[: self.width] = 1 / math.sqrt(sum_of_squares)
        scale = math.sqrt(params.gamma) / (2 * math.pi)
        self._cosines = Cosines(phases, amplitudes, scale, params.kind == "nrff")
        self._projection: Float32s | None = None
        self._filling = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of the projection, those of its matrix once dense rows have been seen."""
        matrix = 0 if self._projection is None else self._projection.nbytes
        return matrix + self._cosines.phases.nbytes + self._cosines.amplitudes.nbytes

    def transform(self, batch: VectorBatch) -> Float32s:
        """Return the (n, k) features of n vectors.

        A vector has the same ones alone and in a batch, dense and sparse.
        """
        out = large((len(batch), padded_width(self.width)), np.float32)
        self.fill(batch, out)
        return out[:, : self.width]

    def fill(self, batch: VectorBatch, out: Float32s) -> None:
        """Write features, and zeros after them.

        Parameters
        ----------
        batch : VectorBatch
        out : (n, padded_width(k)) float32, written in place
        """
        if batch.form == "dense" and self._dense_width is not None:
            self._fill_dense(batch.dense, out)
        else:
            self._fill_sparse(batch, out)

    def _fill_dense(self, rows: Float32s, out: Float32s) -> None:
        projection = self._matrix()

        def work(first: int, last: int) -> None:
            dense_features(rows[first:last], projection, self._cosines, out[first:last])

        self._workers.split(len(rows), work, min_size=_ROWS_A_THREAD)

    def _fill_sparse(self, batch: VectorBatch, out: Float32s) -> None:
        indptr, slots, values = compressed(batch)

        def work(first: int, last: int) -> None:
            borders = indptr[first : last + 1]
            sparse_features(borders, slots, values, self._seed, self._cosines, out[first:last])

        self._workers.split(len(batch), work, min_size=_SPARSE_ROWS_A_THREAD)

    def _matrix(self) -> Float32s:
        if self._projection is None:
            with self._filling:
                if self._projection is None:
                    self._projection = self._filled()
        return self._projection

    def _filled(self) -> Float32s:
        width = self._dense_width or 0
        matrix: Float32s = large(width * padded_width(self.width), np.float32)

        def work(first: int, last: int) -> None:
            fill_projection(self._seed, width, first, last, matrix)

        self._workers.split(width, work, min_size=_COORDINATES_A_THREAD)
        return matrix
