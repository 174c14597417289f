"""An index in memory, without store or service: searched by the benchmarks of the library."""

import threading
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.harness.datasets import Vectors
from gcws_search.index.backend import Backend
from gcws_search.index.backends import POLICIES, GcwsBackend, Policies, make_backend
from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import BatchHits, Explanation, LiveSample, RowView
from gcws_search.index.contracts.parameters import BackendParams, CollectionConfig, SearchParams
from gcws_search.index.vectors.growing_rows import GrowingRows
from gcws_search.index.vectors.space import VectorSpace

COMPILING_ROWS: Final = 2100
"""Enough for every kernel to be used."""


class RowHits(NamedTuple):
    """The hits of one query by row, by falling score, and what they cost."""

    rows: Int64s
    scores: Float64s
    explanation: Explanation


def row_hits(found: BatchHits) -> list[RowHits]:
    """Return the hits of each query."""
    return [RowHits(*found.hits(number), found.explanation(number)) for number in range(len(found))]


@dataclass(frozen=True, slots=True)
class Engine:
    """Rows, and one backend's index of them.

    Attributes
    ----------
    build_seconds : float
        For hashing and building, on as many threads as were asked for.
    table_seconds : float
        For hashing and the first tables alone.
    """

    config: CollectionConfig
    space: VectorSpace
    backend: Backend[Any]
    state: Any
    view: RowView
    build_seconds: float
    table_seconds: float

    @classmethod
    def build(
        cls,
        vectors: Vectors,
        params: BackendParams,
        *,
        threads: int,
        compiled: bool = False,
        policies: Policies = POLICIES,
    ) -> "Engine":
        """Return an index of ``vectors``.

        Unless they are ``compiled``, kernels are beforehand, on a part of the vectors.
        """
        config = config_for(vectors, params)
        if not compiled:
            few = _build(vectors[:COMPILING_ROWS], config, threads)
            if isinstance(few.backend, GcwsBackend):  # so few rows may need no graph
                alive = few.view.permitted
                few.backend.linked(few.state, few.view.vectors, alive, threading.Event())
        return _build(vectors, config, threads, policies)

    def with_all_tables(self) -> "Engine":
        """Return the same with the tables that a service makes once proofs are asked for."""
        if not isinstance(self.backend, GcwsBackend):
            return self
        began = perf_counter()
        state = self.backend.with_all_tables(self.state, self.view.vectors)
        seconds = self.build_seconds + perf_counter() - began
        return replace(self, state=state, build_seconds=seconds)

    def with_threads(self, threads: int) -> "Engine":
        """Return the same index, searched on this number of threads."""
        backend: Backend[Any] = make_backend(self.config, threads=threads)
        return replace(self, backend=backend, state=on_threads(self.state, backend))

    def prepare(self, vectors: Vectors) -> VectorBatch:
        """Return vectors as this index's queries."""
        return prepare(self.space, vectors)

    def search(self, queries: VectorBatch, params: SearchParams) -> BatchHits:
        """Return the hits of each query."""
        return self.backend.search(self.state, self.view, queries, params)


def on_threads(state: Any, backend: Backend[Any]) -> Any:  # noqa: ANN401  # of any backend
    """Return the state of a backend, its graph searched by the threads of another one like it.

    Those threads hash the queries, too.
    """
    graph = getattr(state, "graph", None)
    if graph is None or not isinstance(backend, GcwsBackend):
        return state
    graph = replace(graph, workers=backend.workers, band_keys=backend.band_keys)
    return replace(state, graph=graph)


def config_for(vectors: Vectors, params: BackendParams) -> CollectionConfig:
    """Return the configuration of a collection for these vectors."""
    return CollectionConfig(dim=int(vectors.shape[1]), backend=params)


def prepare(space: VectorSpace, vectors: Vectors) -> VectorBatch:
    """Return vectors as rows: checked and ready to be hashed and scored."""
    if isinstance(vectors, np.ndarray):
        return space.prepare(space.from_dense(vectors))
    return space.prepare(space.from_sparse(vectors.indptr, vectors.indices, vectors.data))


def one_by_one(batch: VectorBatch) -> list[VectorBatch]:
    """Return each vector of a batch as a batch of its own."""
    return [batch[np.array([row])] for row in range(len(batch))]


def _in_memory(space: VectorSpace, vectors: Vectors) -> VectorBatch:
    """Return vectors as a collection holds them."""
    rows = GrowingRows(space.form, space.dim)
    rows.append(prepare(space, vectors))
    return rows.view()


def _build(
    vectors: Vectors, config: CollectionConfig, threads: int, policies: Policies = POLICIES
) -> Engine:
    space = VectorSpace.of(config)
    rows = _in_memory(space, vectors)
    backend: Backend[Any] = make_backend(config, threads=threads, policies=policies)
    began = perf_counter()
    state = backend.extend(backend.empty(), rows, backend.encode(rows))
    table_seconds = perf_counter() - began
    alive = np.ones(len(rows), np.uint8)
    if backend.is_overdue(state, len(rows), len(rows)):
        state = backend.optimize(state, rows, alive, threading.Event())
    build_seconds = perf_counter() - began
    view = RowView(rows, alive, len(rows), LiveSample.of(alive))
    return Engine(config, space, backend, state, view, build_seconds, table_seconds)
