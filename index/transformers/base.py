"""Common parts of all transformers: input, threads, and what a pickled copy leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Final, Protocol, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from gcws_search.index.contracts.arrays import AnyArray, Int64s
from gcws_search.index.contracts.batches import VectorBatch, row_width
from gcws_search.index.contracts.errors import InvalidInput, InvalidParameter
from gcws_search.index.contracts.parameters import CollectionConfig
from gcws_search.index.threads import Workers, available_threads
from gcws_search.index.vectors.space import VectorSpace

_CHUNK_ROWS: Final = 1024
"""Rows mapped at a time."""
_WHOLE: Final = ("samples", "bits", "features", "landmarks", "seed")
_REAL: Final = ("gamma", "scale")


@contextmanager
def value_errors() -> Iterator[None]:
    """Raise what is wrong with parameters or vectors as scikit-learn's users expect it."""
    try:
        yield
    except InvalidInput as error:
        raise ValueError(error.detail) from error


def batch_of(space: VectorSpace, X: Any, rows: Int64s) -> VectorBatch:  # noqa: ANN401
    """Return some rows, none of them zero, as the maps take them."""
    some = X[rows]
    if not sparse.issparse(some):
        return space.prepare(space.from_dense(np.ascontiguousarray(some)))
    some.sum_duplicates()
    return space.prepare(space.from_sparse(some.indptr, some.indices, some.data))


def filled_rows(X: Any, rows: slice) -> Int64s:  # noqa: ANN401
    """Return which of some rows are not zero in float32."""
    some = X[rows]
    if sparse.issparse(some):
        entries = np.repeat(np.arange(some.shape[0]), np.diff(some.indptr))
        nonzero = some.data.astype(np.float32) != 0
        return np.asarray(np.unique(entries[nonzero]) + rows.start)
    return np.asarray(np.flatnonzero((some.astype(np.float32) != 0).any(axis=1)) + rows.start)


class Map(Protocol):
    """What a fitted transformer asks of a map; see `FeatureMap`."""

    @property
    def width(self) -> int:
        """Number of columns that come out."""

    def transform(self, batch: VectorBatch) -> AnyArray:
        """Return what a line of output is made of, for each vector."""


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A map at work; made of what was learned, and not kept with it."""

    space: VectorSpace
    map: Map
    workers: Workers

    def fill(self, X: Any, out: AnyArray) -> None:  # noqa: ANN401
        """Write features of all rows that are not zero; the others are left as they are."""

        def work(first: int, last: int) -> None:
            for start in range(first, last, _CHUNK_ROWS):
                rows = filled_rows(X, slice(start, min(start + _CHUNK_ROWS, last)))
                if len(rows):
                    out[rows] = self.map.transform(batch_of(self.space, X, rows))

        with np.errstate(over="ignore"), value_errors():
            self.workers.split(X.shape[0], work, min_size=_CHUNK_ROWS // 4)


class Transformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What all have in common: input, threads, and what is left out of a copy."""

    n_jobs: int | None

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: ANN401
        """Take note of the number of columns, and learn what there is to learn.

        Parameters
        ----------
        X : (n, dim) array or sparse matrix of finite numbers
        y : ignored

        Raises
        ------
        ValueError
            A parameter is outside its range, or ``X`` is nothing to be fitted to.
        """
        del y
        checked = self._checked(X, reset=True)
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

    def _checked(self, X: Any, *, reset: bool) -> Any:  # noqa: ANN401
        kinds = [np.float64, np.float32]
        return validate_data(self, X, accept_sparse="csr", dtype=kinds, reset=reset)

    def _learn(self, X: Any) -> None:  # noqa: ANN401
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

    def _map(self, dense_width: int | None) -> Map:
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether `fit` has been called."""
        return hasattr(self, "_n_features_out")

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401
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
