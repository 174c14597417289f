"""Compile every kernel, or take it from numba's cache, before the first request needs it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gcws_search.index.backends import GcwsBackend, make_backend
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    ExactParams,
    GcwsParams,
    SearchParams,
    Transform,
)
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.quantized_scan import BoundedRows
from gcws_search.index.exact.scan import Scanner, scan
from gcws_search.index.hashing.gcws import compressed
from gcws_search.index.joins.pair_sink import PairSink
from gcws_search.index.joins.prefix_join import PrefixJoin
from gcws_search.index.kernels import CACHE_FOLDER
from gcws_search.index.kernels.gmm.tiled_scan import MANY
from gcws_search.index.kernels.graph.pair_walk import PairRows, meet
from gcws_search.index.kernels.quantized.rows import BYTES, SHORTS
from gcws_search.index.lsh.probe import TableSearch
from gcws_search.index.similarities.public import gmm, gmm_matrix
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.growing_rows import GrowingRows
from gcws_search.index.vectors.quantization import QuantizedRows, Quantizer
from gcws_search.index.vectors.space import SparseVector, VectorSpace

Progress = Callable[[int, int, str], None]
"""Called with (steps done, steps in all, name of the step now done)."""

_ROWS = 1100  # enough for postings and for a second segment of tables
_EQUAL = 20  # enough to tie at a limit of 3
_ROUNDINGS = (Quantizer(BYTES, 0.03, 128), Quantizer(SHORTS, 1e-4))


def kernels_are_cached() -> bool:
    """Return whether kernels of these sources have been compiled before, on this machine."""
    return any(Path(CACHE_FOLDER).rglob("*.nbi"))


def compile_kernels(progress: Progress | None = None) -> float:
    """Run each kernel once on small made data; return the seconds it took.

    The first run on a machine compiles for its processor, which takes most of a minute; later ones
    read numba's cache (beside the sources, or in the folder NUMBA_CACHE_DIR names).
    """
    started = time.perf_counter()
    steps = [*_Exercise(dim=24).steps(), *_Exercise(dim=None).steps()]
    steps += [("transforms", _transform), ("whole keys", _classical)]
    for done, (name, step) in enumerate(steps):
        step()
        if progress is not None:
            progress(done + 1, len(steps), name)
    return time.perf_counter() - started


def _vectors(dim: int | None) -> list[list[float]] | list[SparseVector]:
    rng = np.random.default_rng(0)
    if dim is not None:
        dense: list[list[float]] = rng.standard_normal((_ROWS, dim)).tolist()
        return dense[:1] * _EQUAL + dense[_EQUAL:]
    some = [SparseVector(rng.permutation(40)[:6], rng.standard_normal(6)) for _ in range(_ROWS)]
    return some[:1] * _EQUAL + some[_EQUAL:]


class _Exercise:
    """One small collection, dense or sparse, put through everything."""

    def __init__(self, *, dim: int | None) -> None:
        self._config = CollectionConfig(dim=dim, backend=GcwsParams(bands=4))
        self._rows = GrowingRows(self._config.form, dim)
        self._backend = GcwsBackend(self._config, GcwsParams(bands=4), Workers(1))
        self._codes = np.empty((0, 0), np.uint64)
        self._state: Any = None
        self._linked: Any = None

    def steps(self) -> list[tuple[str, Callable[[], None]]]:
        """Return what to run, in this order, and what it compiles."""
        form = self._config.form
        return [
            (f"{form} hashing", self._hash),
            (f"{form} tables", self._build),
            (f"{form} scan", lambda: self._search(1.0, 0.0)),
            (f"{form} search", lambda: self._search(0.5, 0.99)),
            (f"{form} neighbour lists", self._link),
            (f"{form} pairs", self._pairs),
            (f"{form} similarity", self._similarity),
        ]

    def _hash(self) -> None:
        space = VectorSpace.of(self._config)
        batch = space.prepare(space.from_items(_vectors(self._config.dim)))
        compressed(batch)  # as rows are hashed that are too wide for a table
        self._rows.append(batch)
        self._codes = self._backend.encode(batch)
        self._backend.sketch(batch, "b_bit")

    def _build(self) -> None:
        rows, codes = self._rows.view(), self._codes
        state = self._backend.extend(self._backend.empty(), rows[:1000], codes[:1000])
        state = self._backend.extend(state, rows, codes[1000:])
        self._state = self._backend.renumber(state, rows, np.arange(_ROWS))

    def _view(self) -> RowView:
        return RowView(self._rows.view(), np.ones(_ROWS, np.uint8), _ROWS)

    def _search(self, recall: float, min_score: float) -> None:
        params = SearchParams(limit=3, recall=recall, min_score=min_score)
        for count in (1, 2):
            queries = self._rows.view()[:count]
            self._backend.search(self._state, self._view(), queries, params)
            self._scan_latest(queries, params)
            if recall < 1:  # so few rows would be scanned
                self._probe(queries, params)

    def _scan_latest(self, queries: VectorBatch, params: SearchParams) -> None:
        """Scan as rows are scanned that were put last."""
        nobody, none = np.full(len(queries), -1), InvertedIndex()
        scan(self._view(), queries, params, skip=nobody, inverted=none, workers=Workers(1))
        Scanner(self._view(), none, 0.0).collect(queries[:1], -1, 0.5)

    def _probe(self, queries: VectorBatch, params: SearchParams) -> None:
        backend, state, count = self._backend, self._state, len(queries)
        search = TableSearch(backend.plan, backend.encode, state.tables, state.inverted, Workers(1))
        nobody, patient = np.full(count, -1), np.full(count, np.inf)
        search.answers(self._view(), queries, params, nobody, patient)

    def _link(self) -> None:
        rows = self._rows.view()
        if rows.form == "dense":  # which of them a collection takes depends on its rows
            for rounding in _ROUNDINGS:
                rounding.round(rows.dense, rows.norms)
            self._scan_rounded(rows)
        alive = np.ones(_ROWS, np.uint8)
        # So few sparse rows are judged, and need no lists.
        self._backend.improved(self._state, rows, alive, threading.Event())
        self._linked = self._backend.linked(self._state, rows, alive, threading.Event())

    def _scan_rounded(self, rows: VectorBatch) -> None:
        """Scan as lists of wide rows are measured."""
        view = QuantizedRows(_ROUNDINGS[0], rows.dense.shape[1]).cover(rows)
        scan(
            self._view(),
            rows[:MANY],
            SearchParams(limit=3, recall=1.0),
            skip=np.full(MANY, -1),
            inverted=InvertedIndex(),
            workers=Workers(1),
            rounded=BoundedRows.measured(view, Workers(1)),
        )

    def _pairs(self) -> None:
        for recall in (0.5, 1.0):
            self._backend.pairs(self._state, self._view(), min_score=0.99, recall=recall)
        self._backend.pairs(self._linked, self._view(), min_score=0.99, recall=0.5, limit=3)
        rows, found = self._rows.view(), np.empty((2, _ROWS), np.int32)
        if rows.form == "dense":  # done for collections that are too large to compare all rows
            alive, some, least = np.ones(_ROWS, np.uint8), np.arange(2), np.float32(0.99)
            whole = PairRows(rows.dense, rows.indptr, rows.slots, rows.values, rows.norms, alive)
            meet(whole, some, least, 0, _ROWS, found[0], found[1])
            return
        prefixes = PrefixJoin.of(
            self._view(), 0.99
        )  # for more rows: so few are compared all with all
        if prefixes is not None:
            prefixes.offer(PairSink(self._view(), 0.99, None), Workers(1))

    def _similarity(self) -> None:
        rows = self._rows.view()
        gmm(rows[:1], rows[1:2])
        gmm_matrix(rows[:2], rows[:2])


def _transform() -> None:
    for dim in (4, None):
        config = CollectionConfig(
            dim=dim, transform=Transform(power=0.5, normalize="l2"), backend=ExactParams()
        )
        space = VectorSpace.of(config)
        space.prepare(space.from_items([SparseVector([1, 3], [0.5, -2.0])]))


def _classical() -> None:
    for dim in (24, None):
        config = CollectionConfig(dim=dim, backend=GcwsParams(bands=4, band_width=2))
        space = VectorSpace.of(config)
        batch = space.prepare(space.from_items(_vectors(dim)[:8]))
        make_backend(config, threads=1).encode(batch)
