"""Feature maps as scikit-learn transformers: linear methods on their output approximate kernels.

Inner products of rows estimate the kernel; those of the one-hot maps do so when divided by
``samples``. A row of zeros has no cosine, no samples and no GMM: its features are all zero. Random
binning is the exception: to it a row of zeros is a point like others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Final, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gcws_search.index.comparison.binning import RandomBinning
from gcws_search.index.comparison.fourier import FeatureMap, FourierMap
from gcws_search.index.comparison.nystroem import NystroemMap, draw_landmarks
from gcws_search.index.contracts.arrays import AnyArray, Float32s, Int64s, UInt16s, UInt32s
from gcws_search.index.contracts.batches import VectorBatch, row_width
from gcws_search.index.contracts.errors import InvalidInput, InvalidParameter
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    Distribution,
    FourierKind,
    FourierParams,
    GcwsParams,
    NystroemKind,
    NystroemParams,
    RandomBinningParams,
)
from gcws_search.index.hashing.gcws import Gcws
from gcws_search.index.threads import Workers, available_threads
from gcws_search.index.vectors.space import VectorSpace

__all__ = [
    "FoldedRffFeatures",
    "GcwsFeatures",
    "GmmNystroem",
    "NrffFeatures",
    "RandomBinningFeatures",
    "RbfNystroem",
    "RffFeatures",
]

_CHUNK_ROWS: Final = 1024
"""Rows mapped at a time."""
_WHOLE: Final = ("samples", "bits", "features", "landmarks", "seed")
_REAL: Final = ("gamma", "scale")
MAX_SAMPLES: Final = 16384
MAX_BITS: Final = 16
_NOTHING: Final = VectorBatch("sparse", indptr=np.zeros(2, np.int64), norms=np.zeros(1, np.float32))
"""One vector of zeros."""


@contextmanager
def value_errors() -> Iterator[None]:
    """Raise what is wrong with parameters or vectors as scikit-learn's users expect it."""
    try:
        yield
    except InvalidInput as error:
        raise ValueError(error.detail) from error


def batch_of(space: VectorSpace, X: Any, rows: Int64s) -> VectorBatch:
    """Return some rows, none of them zero, as the maps take them."""
    some = X[rows]
    if not sparse.issparse(some):
        return space.prepare(space.from_dense(np.ascontiguousarray(some)))
    some.sum_duplicates()
    return space.prepare(space.from_sparse(some.indptr, some.indices, some.data))


def nonzero_rows(X: Any, rows: slice) -> Int64s:
    """Return which of some rows are not zero in float32."""
    some = X[rows]
    if sparse.issparse(some):
        entries = np.repeat(np.arange(some.shape[0]), np.diff(some.indptr))
        nonzero = some.data.astype(np.float32) != 0
        return np.asarray(np.unique(entries[nonzero]) + rows.start)
    return np.asarray(np.flatnonzero((some.astype(np.float32) != 0).any(axis=1)) + rows.start)


@dataclass(frozen=True, slots=True)
class _Codes:
    """A map to (n, samples) codes of b bits; ``width`` counts the columns that they stand for."""

    transform: Callable[[VectorBatch], UInt16s | UInt32s]
    samples: int
    bits: int

    @property
    def width(self) -> int:
        """Columns: 2^b a sample."""
        return self.samples << self.bits


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A map at work; made of what was learned, and not kept with it."""

    space: VectorSpace
    map: FeatureMap | _Codes
    workers: Workers

    def fill(self, X: Any, out: AnyArray) -> None:
        """Write features of all rows that are not zero; the others are left as they are."""

        def work(first: int, last: int) -> None:
            for start in range(first, last, _CHUNK_ROWS):
                rows = nonzero_rows(X, slice(start, min(start + _CHUNK_ROWS, last)))
                if len(rows):
                    out[rows] = self.map.transform(batch_of(self.space, X, rows))

        with np.errstate(over="ignore"), value_errors():
            self.workers.split(X.shape[0], work, min_size=_CHUNK_ROWS // 4)


class _Transformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What all have in common: input, threads, and what is left out of a copy."""

    n_jobs: int | None

    def fit(self, X: Any, y: object = None) -> Self:
        """Take note of the number of columns, and learn what there is to learn.

        Parameters
        ----------
        X : (n, dim) array or sparse matrix of finite numbers

        Raises
        ------
        ValueError
            A parameter is outside its range, or ``X`` is nothing to be fitted to.
        """
        del y
        checked = self._validate(X, reset=True)
        with np.errstate(over="ignore"), value_errors():
            self._require_numbers()
            self._learn(checked)
            self._start()
        return self

    def _require_numbers(self) -> None:
        for names, kind, expected in (
            (_WHOLE, Integral, "a whole number"),
            (_REAL, Real, "a number"),
        ):
            for name in names:
                value = getattr(self, name, 1)  # 1: it has no such parameter
                if not isinstance(value, kind) or isinstance(value, bool):
                    raise InvalidParameter(expected=expected, got=repr(value)[:80], loc=(name,))

    def _validate(self, X: Any, *, reset: bool) -> Any:
        kinds = [np.float64, np.float32]
        return validate_data(self, X, accept_sparse="csr", dtype=kinds, reset=reset)

    def _learn(self, X: Any) -> None:
        """Keep what of ``X`` the map needs."""

    def _start(self) -> None:
        threads: Any = 1 if self.n_jobs is None else self.n_jobs
        threads = available_threads() if threads == -1 else threads
        if not isinstance(threads, Integral) or isinstance(threads, bool) or threads < 1:
            raise InvalidParameter(
                expected="null, -1 or at least 1", got=repr(self.n_jobs), loc=("n_jobs",)
            )
        space = VectorSpace.of(CollectionConfig(dim=self.n_features_in_))
        width = row_width(space.form, self.n_features_in_)
        self._fitted = _Fitted(space, self._map(width), Workers(int(threads)))
        self._n_features_out = self._fitted.map.width

    def _map(self, dense_width: int | None) -> FeatureMap | _Codes:
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether `fit` has been called."""
        return hasattr(self, "_n_features_out")

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn should know: sparse input is fine, output is float32."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return parameters and what was learned; threads and locks cannot be copied."""
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_fitted", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make a map of what was learned."""
        super().__setstate__(state)
        if self.__sklearn_is_fitted__():
            self._start()


class _RealFeatures(_Transformer):
    """Real features."""

    def transform(self, X: Any) -> Float32s:
        """Return the (n, k) float32 features of n rows.

        Raises
        ------
        ValueError
            ``X`` has another number of columns, or numbers that are not finite in float32.
        """
        check_is_fitted(self)
        checked = self._validate(X, reset=False)
        out = np.zeros((checked.shape[0], self._n_features_out), np.float32)
        self._fitted.fill(checked, out)
        return out


class _FourierFeatures(_RealFeatures):
    _kind: ClassVar[FourierKind]

    def __init__(
        self,
        *,
        features: int = 512,
        gamma: float = 1.0,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.features = features
        self.gamma = gamma
        self.seed = seed
        self.n_jobs = n_jobs

    def _map(self, dense_width: int | None) -> FeatureMap:
        params = FourierParams(
            kind=self._kind, features=self.features, gamma=self.gamma, seed=self.seed
        )
        return FourierMap(params, dense_width)


class RffFeatures(_FourierFeatures):
    """Random Fourier features of the RBF kernel e^{-γ(1 - ρ)}, ρ the cosine of two rows.

    Parameters
    ----------
    features : int
        k, 1-16384.
    gamma : float
        γ, above 0.
    n_jobs : int or None
        Threads; -1 takes as many as the process may use.
    """

    _kind = "rff"


class NrffFeatures(_FourierFeatures):
    """Random Fourier features scaled to unit length: the same kernel, and a smaller variance.

    Parameters are those of `RffFeatures`.
    """

    _kind = "nrff"


class FoldedRffFeatures(_FourierFeatures):
    """Features of the folded kernel ½e^{-γ(1 - ρ)} + ½e^{-γ(1 + ρ)}.

    Parameters are those of `RffFeatures`.
    """

    _kind = "folded_rff"


class _NystroemFeatures(_RealFeatures):
    _kind: ClassVar[NystroemKind]
    seed: int
    landmarks: int

    def _params(self) -> NystroemParams:
        return NystroemParams(kind=self._kind, landmarks=self.landmarks, seed=self.seed)

    def _learn(self, X: Any) -> None:
        params = self._params()
        filled = nonzero_rows(X, slice(0, X.shape[0]))
        if not len(filled):
            raise InvalidParameter(expected="a row that is not all zeros", got="none", loc=("X",))
        space = VectorSpace.of(CollectionConfig(dim=X.shape[1]))
        self.landmarks_ = batch_of(space, X, draw_landmarks(params, filled))

    def _map(self, dense_width: int | None) -> FeatureMap:
        del dense_width
        return NystroemMap(self._params(), self.landmarks_)


class GmmNystroem(_NystroemFeatures):
    """Nyström features of GMM ([TGMM] §2.3).

    Parameters
    ----------
    landmarks : int
        How many rows are landmarks, 1-4096; all of them where there are fewer.
    seed : int
        Of the choice of landmarks.
    n_jobs : int or None
        Threads; -1 takes as many as the process may use.
    """

    _kind = "gmm_nystroem"

    def __init__(self, *, landmarks: int = 256, seed: int = 0, n_jobs: int | None = None) -> None:
        self.landmarks = landmarks
        self.seed = seed
        self.n_jobs = n_jobs


class RbfNystroem(_NystroemFeatures):
    """Nyström features of the RBF kernel e^{-γ(1 - ρ)}, ρ the cosine of two rows.

    Parameters
    ----------
    landmarks, seed, n_jobs : see `GmmNystroem`
    gamma : float
        γ, above 0.
    """

    _kind = "rbf_nystroem"

    def __init__(
        self,
        *,
        landmarks: int = 256,
        gamma: float = 1.0,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.landmarks = landmarks
        self.gamma = gamma
        self.seed = seed
        self.n_jobs = n_jobs

    def _params(self) -> NystroemParams:
        return NystroemParams(
            kind=self._kind, landmarks=self.landmarks, gamma=self.gamma, seed=self.seed
        )


class _OneHot(_Transformer, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Codes of b bits, each as one 1 among 2^b columns."""

    samples: int
    bits: int

    def _sizes(self) -> tuple[int, int]:
        """Return how many samples, of how many bits."""
        for name, maximum in (("samples", MAX_SAMPLES), ("bits", MAX_BITS)):
            value = getattr(self, name)
            if not (isinstance(value, int | np.integer) and 1 <= value <= maximum):
                raise InvalidParameter(expected=f"1 to {maximum}", got=repr(value), loc=(name,))
        return int(self.samples), int(self.bits)

    def _zero(self) -> UInt32s | None:
        """Return the codes of a row of zeros, None where it has none."""
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
        none = np.uint32(1 << bits)  # no code is as large
        codes = np.full((n, samples), none, np.uint32)
        zero = self._zero()
        if zero is not None:
            codes[:] = zero
        self._fitted.fill(checked, codes)
        columns = codes.astype(np.int32) + (np.arange(samples, dtype=np.int32) << bits)
        counts = np.where(codes[:, 0] == none, 0, samples)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        indices = columns[counts > 0].reshape(-1)
        ones = np.ones(len(indices), np.float32)
        return sparse.csr_matrix((ones, indices, indptr), shape=(n, self._n_features_out))


class GcwsFeatures(_OneHot):
    """b-bit GCWS samples, one-hot: a linear method on them approximates GMM ([GMM] §1.4).

    Products divided by ``samples`` estimate GMM + (1 - GMM)·2^-bits.

    Parameters
    ----------
    samples : int
        k, 1-16384.
    bits : int
        b, 1-16: bits of each winning slot that are used ([BBIT]).
    n_jobs : int or None
        Threads; -1 takes as many as the process may use.
    """

    def __init__(
        self, *, samples: int = 256, bits: int = 8, seed: int = 0, n_jobs: int | None = None
    ) -> None:
        self.samples = samples
        self.bits = bits
        self.seed = seed
        self.n_jobs = n_jobs

    def _map(self, dense_width: int | None) -> _Codes:
        seed = GcwsParams(seed=self.seed).seed
        samples, bits = self._sizes()
        hashes = Gcws(seed=seed, samples=samples, dense_width=dense_width)
        return _Codes(lambda batch: hashes.sketch(batch).codes(bits, samples), samples, bits)


class RandomBinningFeatures(_OneHot):
    """Random bins, one-hot: a linear method on them approximates a product kernel ([RFF], [POLYA]).

    Products divided by ``samples`` estimate K + (1 - K)·2^-bits, K = Π_d k(|x_d - y_d|).

    Parameters
    ----------
    samples : int
        k, 1-16384.
    distribution, shape, scale : see `RandomBinningParams`
    bits : int
        b, 1-16: bits that bins are hashed to.
    n_jobs : int or None
        Threads; -1 takes as many as the process may use.
    """

    def __init__(
        self,
        *,
        samples: int = 256,
        distribution: Distribution = "gamma",
        shape: float | None = None,
        scale: float = 1.0,
        bits: int = 12,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.samples = samples
        self.distribution = distribution
        self.shape = shape
        self.scale = scale
        self.bits = bits
        self.seed = seed
        self.n_jobs = n_jobs

    def _map(self, dense_width: int | None) -> _Codes:
        params = RandomBinningParams(
            distribution=self.distribution, shape=self.shape, scale=self.scale, seed=self.seed
        )
        samples, bits = self._sizes()
        binning = RandomBinning(params, samples=samples, dense_width=dense_width)
        mask = np.uint32((1 << bits) - 1)
        return _Codes(lambda batch: binning.sketch(batch)[:, :samples] & mask, samples, bits)

    def _zero(self) -> UInt32s:
        return np.asarray(self._fitted.map.transform(_NOTHING), np.uint32)
