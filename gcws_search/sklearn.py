"""GMM for scikit-learn: feature maps whose inner products are kernels, and nearest neighbours.

Inner products of features estimate the kernel; those of the one-hot maps do so when divided by
``samples``. A row of zeros has no cosine, no samples and no GMM: its features are all zero. Random
binning is the exception: it treats a row of zeros like any other point.

Needs the extra ``learn``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gcws_search import index as ix
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.optimizer import optimize
from gcws_search.index.comparison.features import (
    FeatureMap,
    FourierMap,
    NystroemMap,
    draw_landmarks,
    map_rows,
)
from gcws_search.index.comparison.random_binning import RandomBinning
from gcws_search.index.contracts.arrays import AnyArray, Float64s, Int64s, UInt32s
from gcws_search.index.contracts.batches import VectorBatch, row_width
from gcws_search.index.hashing.gcws import Gcws
from gcws_search.index.threads import Workers, available_threads
from gcws_search.index.vectors.space import VectorSpace

__all__ = [
    "FoldedRffFeatures",
    "GcwsFeatures",
    "GmmKNeighborsTransformer",
    "GmmNeighbors",
    "GmmNystroem",
    "NrffFeatures",
    "RandomBinningFeatures",
    "RbfNystroem",
    "RffFeatures",
]

_Map = Callable[[VectorBatch], AnyArray]
"""From vectors to features, or to codes that stand for some."""

_KINDS: Final = [np.float64, np.float32]
_SPARSE_SHARE: Final = 1 / 32
"""Share of numbers that are not zero below which rows of a sparse matrix stay sparse."""
_CHUNK_ROWS: Final = 1024
"""Rows mapped at a time."""
_MAX_SAMPLES: Final = 16384
_MAX_BITS: Final = 16
_NOTHING: Final = VectorBatch("sparse", indptr=np.zeros(2, np.int64), norms=np.zeros(1, np.float32))
"""One vector of zeros."""


@contextmanager
def _value_errors() -> Iterator[None]:
    """Raise invalid parameters and vectors as ValueError, as scikit-learn does."""
    try:
        yield
    except ix.InvalidInput as error:
        raise ValueError(error.detail) from error


def _raw(space: VectorSpace, rows: Any) -> ix.RawBatch:
    """Return rows, none of them zero, as a space expects them."""
    if space.dim is None:
        rows = sparse.csr_matrix(rows)
    if not sparse.issparse(rows):
        return space.from_dense(np.ascontiguousarray(rows))
    return space.from_sparse(rows.indptr, rows.indices, rows.data)


def _nonzero_rows(X: Any, rows: slice) -> Int64s:
    """Return which of some rows are not zero in float32."""
    some = X[rows]
    if sparse.issparse(some):
        entries = np.repeat(np.arange(some.shape[0]), np.diff(some.indptr))
        nonzero = some.data.astype(np.float32) != 0
        return np.asarray(np.unique(entries[nonzero]) + rows.start)
    return np.asarray(np.flatnonzero((some.astype(np.float32) != 0).any(axis=1)) + rows.start)


def _mapping(own_map: FeatureMap) -> tuple[_Map, int]:
    """Return a map to features, and the number of features."""
    return lambda batch: map_rows(own_map, batch)[:, : own_map.width], own_map.width


def _threads(n_jobs: Any) -> int:
    threads = 1 if n_jobs is None else available_threads() if n_jobs == -1 else n_jobs
    if not isinstance(threads, Integral) or isinstance(threads, bool) or threads < 1:
        raise ix.InvalidParameter(
            expected="None, -1 or at least 1", got=repr(n_jobs), loc=("n_jobs",)
        )
    return int(threads)


@dataclass(kw_only=True, eq=False, repr=False)
class _Estimator(BaseEstimator):
    """Shared by maps and neighbours: input checks, and pickling without locks and threads."""

    _learned: ClassVar[str]
    """An attribute that is there once `fit` has been called."""
    _started: ClassVar[tuple[str, ...]]
    """What `_start` makes again after unpickling."""

    seed: int = 0
    n_jobs: int | None = None

    def fit(self, X: Any, y: object = None) -> Self:
        """Fit to rows.

        Parameters
        ----------
        X : (n, dim) array or sparse matrix of finite numbers

        Raises
        ------
        ValueError
            A parameter is outside its range, or ``X`` cannot be fitted to.
        """
        del y
        checked = self._validate(X, reset=True)
        with np.errstate(over="ignore"), _value_errors():
            self._learn(checked)
            self._start()
        return self

    def _validate(self, X: Any, *, reset: bool) -> Any:
        checked = validate_data(self, X, accept_sparse="csr", dtype=_KINDS, reset=reset)
        if sparse.issparse(checked) and not checked.has_canonical_format:
            checked = checked.copy()
            checked.sum_duplicates()
        return checked

    def _learn(self, X: Any) -> None:
        """Keep the required parts of ``X``."""

    def _start(self) -> None:
        """Rebuild the state that follows from what was learned."""
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, self._learned)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__().items()
        return {name: value for name, value in state if name not in self._started}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.__sklearn_is_fitted__():
            self._start()


class _Transformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _Estimator):
    _learned = "_n_features_out"
    _started = ("_map", "_space", "_workers")

    def _start(self) -> None:
        self._workers = Workers(_threads(self.n_jobs))
        self._space = VectorSpace.of(ix.CollectionConfig(dim=self.n_features_in_))
        width = row_width(self._space.form, self.n_features_in_)
        self._map, self._n_features_out = self._features(width)

    def _features(self, dense_width: int | None) -> tuple[_Map, int]:
        """Return the map, and its number of columns."""
        raise NotImplementedError

    def _fill(self, X: Any, out: AnyArray) -> None:
        """Write features of all non-zero rows; other rows stay unchanged."""

        def work(first: int, last: int) -> None:
            for start in range(first, last, _CHUNK_ROWS):
                rows = _nonzero_rows(X, slice(start, min(start + _CHUNK_ROWS, last)))
                if len(rows):
                    out[rows] = self._map(self._space.prepare(_raw(self._space, X[rows])))

        with np.errstate(over="ignore"), _value_errors():
            self._workers.split(X.shape[0], work, min_size=_CHUNK_ROWS // 4)

    def transform(self, X: Any) -> Any:
        """Return the (n, k) float32 features of n rows.

        Raises
        ------
        ValueError
            ``X`` has another number of columns, or numbers that are not finite in float32.
        """
        check_is_fitted(self)
        checked = self._validate(X, reset=False)
        out = np.zeros((checked.shape[0], self._n_features_out), np.float32)
        self._fill(checked, out)
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class RffFeatures(_Transformer):
    """Random Fourier features of the RBF kernel e^{-γ(1 - ρ)}, ρ the cosine of two rows.

    Parameters
    ----------
    features : int
        k, 1-16384.
    gamma : float
        γ, above 0.
    n_jobs : int or None
        Threads; -1: as many as the process may use.
    """

    _kind: ClassVar[ix.FourierKind] = "rff"

    features: int = 512
    gamma: float = 1.0

    def _features(self, dense_width: int | None) -> tuple[_Map, int]:
        params = ix.FourierParams(
            kind=self._kind, features=self.features, gamma=self.gamma, seed=self.seed
        )
        return _mapping(FourierMap(params, dense_width))


class NrffFeatures(RffFeatures):
    """Random Fourier features scaled to unit length: the same kernel, and a smaller variance.

    Parameters are those of `RffFeatures`.
    """

    _kind = "nrff"


class FoldedRffFeatures(RffFeatures):
    """Features of the folded kernel ½e^{-γ(1 - ρ)} + ½e^{-γ(1 + ρ)}.

    Parameters are those of `RffFeatures`.
    """

    _kind = "folded_rff"


@dataclass(kw_only=True, eq=False, repr=False)
class GmmNystroem(_Transformer):
    """Nyström features of GMM ([TGMM] §2.3).

    Parameters
    ----------
    landmarks : int
        Number of landmark rows, 1-4096; all rows if there are fewer.
    seed : int
        Seed of the choice of landmarks.
    n_jobs : see `RffFeatures`
    """

    _kind: ClassVar[ix.NystroemKind] = "gmm_nystroem"

    landmarks: int = 256

    def _params(self) -> ix.NystroemParams:
        return ix.NystroemParams(kind=self._kind, landmarks=self.landmarks, seed=self.seed)

    def _learn(self, X: Any) -> None:
        params = self._params()
        filled = _nonzero_rows(X, slice(0, X.shape[0]))
        if not len(filled):
            raise ix.InvalidParameter(
                expected="a row that is not all zeros", got="none", loc=("X",)
            )
        space = VectorSpace.of(ix.CollectionConfig(dim=X.shape[1]))
        self.landmarks_ = space.prepare(_raw(space, X[draw_landmarks(params, filled)]))

    def _features(self, dense_width: int | None) -> tuple[_Map, int]:
        del dense_width
        return _mapping(NystroemMap(self._params(), self.landmarks_))


@dataclass(kw_only=True, eq=False, repr=False)
class RbfNystroem(GmmNystroem):
    """Nyström features of the RBF kernel e^{-γ(1 - ρ)}, ρ the cosine of two rows.

    Parameters
    ----------
    landmarks, seed, n_jobs : see `GmmNystroem`
    gamma : float
        γ, above 0.
    """

    _kind = "rbf_nystroem"

    gamma: float = 1.0

    def _params(self) -> ix.NystroemParams:
        return ix.NystroemParams(
            kind=self._kind, landmarks=self.landmarks, gamma=self.gamma, seed=self.seed
        )


class _OneHot(_Transformer, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Codes of b bits, each as one 1 among 2^b columns."""

    samples: int
    bits: int

    def _sizes(self) -> tuple[int, int]:
        """Return the number of samples and their bits."""
        for name, maximum in (("samples", _MAX_SAMPLES), ("bits", _MAX_BITS)):
            value = getattr(self, name)
            is_whole = isinstance(value, Integral) and not isinstance(value, bool)
            if not (is_whole and 1 <= value <= maximum):
                expected = f"a whole number from 1 to {maximum}"
                raise ix.InvalidParameter(expected=expected, got=repr(value)[:80], loc=(name,))
        return int(self.samples), int(self.bits)

    def _zero(self) -> UInt32s | None:
        return None

    def transform(self, X: Any) -> sparse.csr_matrix:
        """Return the (n, samples · 2^bits) float32 one-hot rows, ``samples`` ones in each.

        Raises
        ------
        ValueError
            ``X`` has another number of columns, or numbers that are not finite in float32.
        """
        check_is_fitted(self)
        checked = self._validate(X, reset=False)
        n, (samples, bits) = checked.shape[0], self._sizes()
        none = np.uint32(1 << bits)  # greater than all codes
        codes = np.full((n, samples), none, np.uint32)
        zero = self._zero()
        if zero is not None:
            codes[:] = zero
        self._fill(checked, codes)
        columns = codes.astype(np.int32) + (np.arange(samples, dtype=np.int32) << bits)
        counts = np.where(codes[:, 0] == none, 0, samples)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        indices = columns[counts > 0].reshape(-1)
        ones = np.ones(len(indices), np.float32)
        return sparse.csr_matrix((ones, indices, indptr), shape=(n, self._n_features_out))


@dataclass(kw_only=True, eq=False, repr=False)
class GcwsFeatures(_OneHot):
    """b-bit GCWS samples, one-hot: a linear method on them approximates GMM ([GMM] §1.4).

    Products divided by ``samples`` estimate GMM + (1 - GMM)·2^-bits.

    Parameters
    ----------
    samples : int
        k, 1-16384.
    bits : int
        b, 1-16: bits used of each winning slot ([BBIT]).
    n_jobs : see `RffFeatures`
    """

    samples: int = 256
    bits: int = 8

    def _features(self, dense_width: int | None) -> tuple[_Map, int]:
        seed = ix.GcwsParams(seed=self.seed).seed
        samples, bits = self._sizes()
        hashes = Gcws(seed=seed, samples=samples, dense_width=dense_width)
        return lambda batch: hashes.sketch(batch).codes(bits, samples), samples << bits


@dataclass(kw_only=True, eq=False, repr=False)
class RandomBinningFeatures(_OneHot):
    """Random bins, one-hot: a linear method on them approximates a product kernel ([RFF], [POLYA]).

    Products divided by ``samples`` estimate K + (1 - K)·2^-bits, K = Π_d k(|x_d - y_d|).

    Parameters
    ----------
    samples : int
        k, 1-16384.
    distribution, shape, scale : see `RandomBinningParams`
    bits : int
        b, 1-16: bits of the hash of a bin.
    n_jobs : see `RffFeatures`
    """

    samples: int = 256
    distribution: ix.Distribution = "gamma"
    shape: float | None = None
    scale: float = 1.0
    bits: int = 12

    def _features(self, dense_width: int | None) -> tuple[_Map, int]:
        params = ix.RandomBinningParams(
            distribution=self.distribution, shape=self.shape, scale=self.scale, seed=self.seed
        )
        samples, bits = self._sizes()
        binning = RandomBinning(params, samples=samples, dense_width=dense_width)
        mask = np.uint32((1 << bits) - 1)
        return lambda batch: binning.sketch(batch)[:, :samples] & mask, samples << bits

    def _zero(self) -> UInt32s:
        return np.asarray(self._map(_NOTHING), np.uint32)


@dataclass(kw_only=True, eq=False, repr=False)
class GmmNeighbors(_Estimator):
    """Nearest neighbours by the distance 1 − GMM.

    A row of zeros shares nothing with any other: its distance to all is 1.

    Parameters
    ----------
    n_neighbors : int
        Number of neighbours, unless `kneighbors` gets another one.
    recall : float
        Expected share of the true neighbours, in (0, 1]; 1 scans all rows.
    seed : int
        Seed of the hash.
    n_jobs : see `RffFeatures`

    Attributes
    ----------
    n_samples_fit_ : int
        Number of rows.
    """

    _learned = "n_samples_fit_"
    _started = ("_memory", "_filled")

    n_neighbors: int = 5
    recall: float = 0.9

    def _learn(self, X: Any) -> None:
        self._require_count(self.n_neighbors)
        ix.SearchParams(recall=self.recall)  # refuses what no search takes
        self.n_samples_fit_ = int(X.shape[0])
        self._rows = X.copy()

    def _start(self) -> None:
        """Index the stored rows."""
        self._filled = _nonzero_rows(self._rows, slice(0, self.n_samples_fit_))
        is_sparse = sparse.issparse(self._rows) and (
            self._rows.nnz <= _SPARSE_SHARE * self._rows.shape[0] * self._rows.shape[1]
        )
        dim = None if is_sparse else self.n_features_in_
        config = ix.CollectionConfig(dim=dim, backend=ix.GcwsParams(seed=self.seed))
        self._memory = MemoryCollection(config, threads=_threads(self.n_jobs))
        if not len(self._filled):
            return
        raw = _raw(self._memory.space, self._rows[self._filled])
        ids = [*map(str, self._filled.tolist())]
        [encoded] = self._memory.encode([ix.ItemBatch(ids, raw, [None] * len(ids))])
        encoded.sequences = range(1, len(ids) + 1)
        self._memory.put([encoded])
        stop = threading.Event()
        while self._memory.overdue(self._memory.view) is not None:
            optimize(self._memory, lambda adopt: adopt(), stop)

    def _require_count(self, count: Any) -> None:
        is_whole = isinstance(count, Integral) and not isinstance(count, bool)
        if not is_whole or count < 1:
            raise ValueError(f"n_neighbors: expected at least 1, got {count!r}")

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """Return the nearest rows of the index, nearest first.

        Parameters
        ----------
        X : (m, dim) array or sparse matrix, or None
            None: the rows of the index, each left out of its own neighbours.

        Returns
        -------
        distances : (m, n_neighbors) float64
            1 − GMM; only with ``return_distance``.
        indices : (m, n_neighbors) int64
            Row numbers of the fitted data.

        Raises
        ------
        ValueError
            ``X`` has another number of columns, or there are fewer rows than neighbours.
        """
        check_is_fitted(self)
        count = self.n_neighbors if n_neighbors is None else n_neighbors
        self._require_count(count)
        there = self.n_samples_fit_ - (X is None)
        if count > there:
            raise ValueError(f"n_neighbors: expected at most {there} rows, got {count}")
        if X is None:
            checked, own = self._rows, np.arange(self.n_samples_fit_)
        else:
            checked = self._validate(X, reset=False)
            own = np.full(checked.shape[0], -1, np.int64)
        with np.errstate(over="ignore"), _value_errors():
            distances, indices = self._nearest(checked, own, int(count))
        return (distances, indices) if return_distance else indices

    def _nearest(self, X: Any, own: Int64s, count: int) -> tuple[Float64s, Int64s]:
        """Return distances and rows; ``own``: the row that each query excludes, or -1."""
        indices = np.full((len(own), count), -1, np.int64)
        distances = np.ones((len(own), count))
        asked = _nonzero_rows(X, slice(0, len(own)))
        if len(asked) and len(self._filled):
            memory = self._memory
            queries = memory.space.prepare(_raw(memory.space, X[asked]))
            skip = np.searchsorted(self._filled, own[asked])
            skip[own[asked] < 0] = -1
            params = ix.SearchParams(limit=count, recall=self.recall)
            hits = memory.search(memory.view, queries, params, skip=skip).found
            width = min(count, hits.rows.shape[1])
            present = np.arange(width) < hits.sizes[:, None]
            rows = np.where(present, self._filled[hits.rows[:, :width] * present], -1)
            indices[asked, :width] = rows
            scores = np.where(present, hits.scores[:, :width], 0.0)
            distances[asked, :width] = np.clip(1.0 - scores, 0.0, 1.0)
        for query in np.flatnonzero(indices[:, -1] < 0):
            known = {*indices[query].tolist(), int(own[query])}
            others = (row for row in range(self.n_samples_fit_) if row not in known)
            for place in np.flatnonzero(indices[query] < 0):
                indices[query, place] = next(others)
        return distances, indices

    def kneighbors_graph(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        mode: Literal["connectivity", "distance"] = "connectivity",
    ) -> sparse.csr_matrix:
        """Return the (m, n) sparse matrix of neighbours: ones, or distances.

        Parameters
        ----------
        X, n_neighbors : see `kneighbors`
        """
        distances, indices = self.kneighbors(X, n_neighbors)
        return self._graph(distances, indices, mode)

    def _graph(self, distances: Float64s, indices: Int64s, mode: str) -> sparse.csr_matrix:
        if mode not in ("connectivity", "distance"):
            raise ValueError(f"mode: expected 'connectivity' or 'distance', got {mode!r}")
        values = distances if mode == "distance" else np.ones_like(distances)
        indptr = np.arange(len(indices) + 1) * indices.shape[1]
        shape = (len(indices), self.n_samples_fit_)
        return sparse.csr_matrix((values.ravel(), indices.ravel(), indptr), shape)


class GmmKNeighborsTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, GmmNeighbors):
    """The sparse matrix of distances 1 − GMM to the nearest rows, for ``metric="precomputed"``.

    A row has ``n_neighbors`` + 1 entries, as scikit-learn requires of such a matrix: a row of the
    index is its own neighbour at distance 0.

    Parameters are those of `GmmNeighbors`.
    """

    def _learn(self, X: Any) -> None:
        super()._learn(X)
        self._n_features_out = self.n_samples_fit_

    def transform(self, X: Any) -> sparse.csr_matrix:
        """Return the (m, n) distances of m rows to their nearest, nearest first.

        Raises
        ------
        ValueError
            See `kneighbors`.
        """
        check_is_fitted(self)
        return self.kneighbors_graph(X, self.n_neighbors + 1, "distance")

    def fit_transform(self, X: Any, y: object = None) -> sparse.csr_matrix:
        """Return the (n, n) distances of the rows to themselves and their nearest."""
        self.fit(X, y)
        distances, indices = self.kneighbors(None)
        own = np.arange(self.n_samples_fit_)[:, None]
        return self._graph(
            np.hstack([np.zeros_like(own, float), distances]), np.hstack([own, indices]), "distance"
        )
