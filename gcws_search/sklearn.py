"""GMM for scikit-learn: nearest neighbours, and feature maps whose inner products are kernels.

Needs the extra ``learn``.
"""

from __future__ import annotations

import threading
from numbers import Integral
from typing import Any, Final, Literal, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.optimizer import optimize
from gcws_search.index.comparison.sklearn import (
    FoldedRffFeatures,
    GcwsFeatures,
    GmmNystroem,
    NrffFeatures,
    RandomBinningFeatures,
    RbfNystroem,
    RffFeatures,
    nonzero_rows,
    value_errors,
)
from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams, SearchParams
from gcws_search.index.threads import available_threads

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

_KINDS: Final = [np.float64, np.float32]
_SPARSE_SHARE: Final = 1 / 32
"""Share of numbers that are not zero below which rows of a sparse matrix stay sparse."""


class GmmNeighbors(BaseEstimator):
    """Nearest neighbours by the distance 1 − GMM.

    A row of zeros shares nothing with any other: its distance to all is 1.

    Parameters
    ----------
    n_neighbors : int
        How many, unless `kneighbors` is given another number.
    recall : float
        Expected share of the true neighbours, in (0, 1]; 1 scans all rows.
    seed : int
        Of the hash.
    n_jobs : int or None
        Threads; -1 takes as many as the process may use.

    Attributes
    ----------
    n_samples_fit_ : int
        Number of rows.
    """

    def __init__(
        self,
        *,
        n_neighbors: int = 5,
        recall: float = 0.9,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.recall = recall
        self.seed = seed
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: object = None) -> Self:
        """Index rows.

        Parameters
        ----------
        X : (n, dim) array or sparse matrix of finite numbers

        Raises
        ------
        ValueError
            A parameter is outside its range, or ``X`` is nothing to be fitted to.
        """
        del y
        checked = validate_data(self, X, accept_sparse="csr", dtype=_KINDS, reset=True)
        self._require_count(self.n_neighbors)
        self.n_samples_fit_ = int(checked.shape[0])
        self._rows = checked.copy()
        with np.errstate(over="ignore"), value_errors():
            self._start()
        return self

    def _start(self) -> None:
        """Index the rows that are kept."""
        self._filled = nonzero_rows(self._rows, slice(0, self.n_samples_fit_))
        is_sparse = sparse.issparse(self._rows) and (
            self._rows.nnz <= _SPARSE_SHARE * self._rows.shape[0] * self._rows.shape[1]
        )
        dim = None if is_sparse else self.n_features_in_
        config = CollectionConfig(dim=dim, backend=GcwsParams(seed=self.seed))
        self._memory = MemoryCollection(config, threads=self._threads())
        if not len(self._filled):
            return
        raw = _raw(self._memory, self._rows[self._filled])
        ids = [*map(str, self._filled.tolist())]
        [encoded] = self._memory.encode([ItemBatch(ids, raw, [None] * len(ids))])
        encoded.sequences = range(1, len(ids) + 1)
        self._memory.put([encoded])
        stop = threading.Event()
        while self._memory.overdue(self._memory.view) is not None:
            optimize(self._memory, lambda adopt: adopt(), stop)

    def _threads(self) -> int:
        wanted: Any = 1 if self.n_jobs is None else self.n_jobs
        threads = available_threads() if wanted == -1 else wanted
        if not isinstance(threads, Integral) or isinstance(threads, bool) or threads < 1:
            raise InvalidParameter(
                expected="None, -1 or at least 1", got=repr(self.n_jobs), loc=("n_jobs",)
            )
        return int(threads)

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
            None takes the rows of the index, each left out of its own neighbours.

        Returns
        -------
        distances : (m, n_neighbors) float64
            1 − GMM; only with ``return_distance``.
        indices : (m, n_neighbors) int64
            Rows of what was fitted.

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
            checked = validate_data(self, X, accept_sparse="csr", dtype=_KINDS, reset=False)
            own = np.full(checked.shape[0], -1, np.int64)
        with np.errstate(over="ignore"), value_errors():
            distances, indices = self._nearest(checked, own, int(count))
        return (distances, indices) if return_distance else indices

    def _nearest(self, X: Any, own: Int64s, count: int) -> tuple[Float64s, Int64s]:
        """Return distances and rows; ``own`` is the row that each query is not to find, or -1."""
        indices = np.full((len(own), count), -1, np.int64)
        distances = np.ones((len(own), count))
        asked = nonzero_rows(X, slice(0, len(own)))
        if len(asked) and len(self._filled):
            memory = self._memory
            queries = memory.space.prepare(_raw(memory, X[asked]))
            skip = np.searchsorted(self._filled, own[asked])
            skip[own[asked] < 0] = -1
            params = SearchParams(limit=count, recall=self.recall)
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

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether `fit` has been called."""
        return hasattr(self, "n_samples_fit_")

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn should know: sparse input is fine."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return parameters and rows; the index is made of them again."""
        state: dict[str, Any] = dict(super().__getstate__())
        for name in ("_memory", "_filled"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Index the rows again."""
        super().__setstate__(state)
        if self.__sklearn_is_fitted__():
            self._start()


class GmmKNeighborsTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, GmmNeighbors):
    """The sparse matrix of distances 1 − GMM to the nearest rows, for ``metric="precomputed"``.

    A line has ``n_neighbors`` + 1 entries, as scikit-learn asks of such a matrix: a row of the
    index is its own neighbour at distance 0.

    Parameters are those of `GmmNeighbors`.
    """

    def fit(self, X: Any, y: object = None) -> Self:
        """Index rows; see `GmmNeighbors.fit`."""
        super().fit(X, y)
        self._n_features_out = self.n_samples_fit_
        return self

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


def _raw(memory: MemoryCollection, rows: Any) -> Any:
    """Return rows, none of them zero, as a collection takes them."""
    if memory.space.form == "sparse":
        rows = sparse.csr_matrix(rows)
    if not sparse.issparse(rows):
        return memory.space.from_dense(np.ascontiguousarray(rows))
    rows.sum_duplicates()
    return memory.space.from_sparse(rows.indptr, rows.indices, rows.data)
