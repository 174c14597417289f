"""Nyström features: learned from landmarks, rows whose kernel matrix is taken apart.

With A the landmarks, K_s = kernel(A, A) = V D Vᵀ and K = kernel(B, A), the features of B are
H = K V D^(-1/2) ([TGMM] §2.3). Eigenvalues at or below round-off are dropped, for their inverses
are noise. Kernel values are float64, so that what is kept is right to float32.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Float32s, Float64s, Int64s, large
from gcws_search.index.contracts.batches import VectorBatch, padded_width, row_width
from gcws_search.index.contracts.parameters import MAX_DIM, Form, NystroemParams
from gcws_search.index.contracts.saved_index import fields_of
from gcws_search.index.hashing.gcws import compressed
from gcws_search.index.kernels.gmm.norms import dense_norms, sparse_norms
from gcws_search.index.similarities.gmm import exact_scores
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.validation import MAX_NORM

_CHUNK_ROWS: Final = 256
_ROWS_A_THREAD: Final = 16
_NOTES_VERSION: Final = 1
_TYPES: Final = {"dense": "<f4", "indptr": "<i8", "slots": "<u4", "values": "<f4", "norms": "<f4"}
"""Arrays of landmarks as they are kept."""

_Work = Callable[[VectorBatch], Float64s]
Arrays = dict[str, AnyArray]
"""Arrays by the names they have in notes."""


def drawn_landmarks(params: NystroemParams, rows: Int64s) -> Int64s:
    """Return the rows that are landmarks, rising: all, where there are no more than wanted.

    Parameters
    ----------
    params : NystroemParams
        How many are wanted, and the seed they are drawn by.
    rows : (n,) int64
        Those to choose from, distinct.
    """
    count = min(params.landmarks, len(rows))
    return np.sort(np.random.default_rng(params.seed).choice(rows, count, replace=False))


class _Gmm:
    """GMM with fixed landmarks."""

    def __init__(self, landmarks: VectorBatch) -> None:
        self._landmarks = landmarks
        self._all = np.arange(len(landmarks))
        self.nbytes = self._all.nbytes

    def matrix(self, batch: VectorBatch) -> Float64s:
        """Return the (n, m) values of n vectors and m landmarks."""
        out = np.empty((len(batch), len(self._all)))
        for i in range(len(batch)):
            out[i] = exact_scores(self._landmarks, batch[i : i + 1], self._all)
        return out


class _Rbf:
    """exp(−γ(1 − ρ)) with fixed landmarks; sparse ones by the coordinates that they have."""

    def __init__(self, landmarks: VectorBatch, gamma: float) -> None:
        self._gamma = gamma
        self._known = np.unique(landmarks.slots >> 1)
        self._units = self._unit(landmarks).T
        held = (
            (self._units,)
            if isinstance(self._units, np.ndarray)
            else (
                self._units.data,
                self._units.indices,
                self._units.indptr,
            )
        )
        self.nbytes = self._known.nbytes + sum(array.nbytes for array in held)

    def _unit(self, batch: VectorBatch) -> Any:  # noqa: ANN401 (an array or a sparse one)
        """Return the (n, coordinates) vectors in units of their L2 norms."""
        if batch.form == "dense":
            rows = batch.dense.astype(np.float64)
            return rows / np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        from scipy import sparse  # noqa: PLC0415  # no start waits for it

        indptr, slots, magnitudes = compressed(batch)
        counts = np.diff(indptr)
        values = np.where(slots & 1, -1.0, 1.0) * magnitudes
        values /= np.repeat(np.sqrt(np.add.reduceat(values**2, indptr[:-1])), counts)
        places = np.minimum(np.searchsorted(self._known, slots >> 1), len(self._known) - 1)
        values[self._known[places] != slots >> 1] = 0.0
        shape = len(batch), len(self._known)
        return sparse.csr_array((values, places, indptr), shape=shape)

    def matrix(self, batch: VectorBatch) -> Float64s:
        """Return the (n, m) values of n vectors and m landmarks."""
        if len(batch) == 0:
            return np.empty((0, self._units.shape[1]))
        products = self._unit(batch) @ self._units
        cosines = products if isinstance(products, np.ndarray) else products.toarray()
        return np.asarray(np.exp(-self._gamma * (1.0 - np.clip(cosines, -1.0, 1.0))))


class NystroemMap:
    """Features of GMM or RBF by landmarks.

    Parameters
    ----------
    params : NystroemParams
    landmarks : VectorBatch
        At least one; of the form of the vectors to be mapped.
    workers : Workers or None
        Threads for its kernels; None takes the caller's alone.

    Attributes
    ----------
    width : int
        How many eigenvalues are kept, at most one a landmark.
    """

    def __init__(
        self, params: NystroemParams, landmarks: VectorBatch, workers: Workers | None = None
    ) -> None:
        self.workers = workers or Workers(1)
        self._landmarks = landmarks
        is_gmm = params.kind == "gmm_nystroem"
        self._values = _Gmm(landmarks) if is_gmm else _Rbf(landmarks, params.gamma)
        own = np.empty((len(landmarks), len(landmarks)))
        self._split(landmarks, own, self._values.matrix)
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
        return sum(array.nbytes for array in arrays) + self._weights.nbytes + self._values.nbytes

    def transform(self, batch: VectorBatch) -> Float32s:
        """Return the (n, k) features of n vectors."""
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
        out[:, self.width :] = 0

        def features(some: VectorBatch) -> Float64s:
            return self._values.matrix(some) @ self._weights

        self._split(batch, out[:, : self.width], features)

    def _split(self, batch: VectorBatch, out: AnyArray, work: _Work) -> None:
        """Write ``work`` of all vectors, some at a time on each thread."""

        def run(first: int, last: int) -> None:
            for start in range(first, last, _CHUNK_ROWS):
                part = slice(start, min(start + _CHUNK_ROWS, last))
                out[part] = work(batch[part])

        self.workers.split(len(batch), run, min_size=_ROWS_A_THREAD)

    def to_notes(self) -> dict[str, Any]:
        """Return what has been learned, JSON-able: the landmarks, from which all else is made."""
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
        """Inverse of `to_notes` for vectors of ``dim`` coordinates, kept in a form.

        Raises
        ------
        ValueError, KeyError
            These are no such notes.
        """
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


def _dense_landmarks(arrays: Arrays, dim: int | None) -> VectorBatch:
    width = row_width("dense", dim)
    dense = arrays["dense"].reshape(len(arrays["norms"]), width or 0)
    if dense[:, dim:].any():
        raise ValueError("something beyond the last coordinate")
    return VectorBatch("dense", dense=dense, norms=arrays["norms"])


def _sparse_landmarks(arrays: Arrays, dim: int | None) -> VectorBatch:
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
