"""What runs every kernel once: small made collections, put through everything a service does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from gcws_search.index.backends import GcwsBackend, make_backend
from gcws_search.index.contracts.batches import MIN_COPIED_FLOATS, SparseVector, VectorBatch
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    Form,
    GcwsParams,
    SearchParams,
    Transform,
)
from gcws_search.index.contracts.policies import ProbePolicy
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import Scanner, scan
from gcws_search.index.hashing.gcws import compress_rows
from gcws_search.index.joins.exact_join import PrefixJoin, all_pairs
from gcws_search.index.joins.pair_sink import PairSink
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.kernels.graph.pair_walk import PairRows, meet
from gcws_search.index.kernels.quantized.rows import BYTES, SHORTS
from gcws_search.index.lsh.search import TableSearch
from gcws_search.index.similarities.gmm import gmm, gmm_matrix
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.growing_rows import GrowingRows
from gcws_search.index.vectors.quantization import Quantizer
from gcws_search.index.vectors.row_copies import copies_of
from gcws_search.index.vectors.space import VectorSpace

_ROWS: Final = 1100  # enough for postings and for a second segment of tables
_EQUAL: Final = 20  # enough to tie at a limit of 3
_QUANTIZERS: Final = (Quantizer(BYTES, 0.03, 128), Quantizer(SHORTS, 1e-4))


@dataclass(frozen=True, slots=True)
class Exercise:
    """Something to run that compiles kernels."""

    name: str
    run: Callable[[], None]
    basic_for: Form | None = None  # the form of vectors that cannot be stored and scanned without

    @property
    def order(self) -> int:
        """Its turn: basics of dense vectors come first, then those of sparse ones."""
        return {"dense": 0, "sparse": 1, None: 2}[self.basic_for]


def chains() -> list[list[Exercise]]:
    """Return all exercises, the basics first.

    Those of one chain share kernels: one process should run them, in this order.
    """
    dense, sparse = _Collection(dim=24), _Collection(dim=None)
    return [
        [
            Exercise("dense hashing", dense.hash, "dense"),
            Exercise("dense tables", dense.build, "dense"),
        ],
        [
            Exercise("dense scan", dense.scan, "dense"),
            Exercise("dense similarity", dense.compare, "dense"),
        ],
        [Exercise("dense copies", dense.copy, "dense")],
        [
            Exercise("sparse hashing", sparse.hash, "sparse"),
            Exercise("sparse tables", sparse.build, "sparse"),
        ],
        [
            Exercise("sparse scan", sparse.scan, "sparse"),
            Exercise("sparse similarity", sparse.compare, "sparse"),
        ],
        [
            Exercise("dense search", dense.probe),
            Exercise("dense graph", dense.link),
            Exercise("dense pairs", dense.join),
        ],
        [Exercise("quantization", dense.quantize)],
        [
            Exercise("sparse search", sparse.probe),
            Exercise("sparse graph", sparse.link),
            Exercise("sparse pairs", sparse.join),
        ],
    ]


def _vectors(dim: int | None) -> list[list[float]] | list[SparseVector]:
    rng = np.random.default_rng(0)
    if dim is not None:
        dense: list[list[float]] = rng.standard_normal((_ROWS, dim)).tolist()
        return dense[:1] * _EQUAL + dense[_EQUAL:]
    some = [SparseVector(rng.permutation(40)[:6], rng.standard_normal(6)) for _ in range(_ROWS)]
    return some[:1] * _EQUAL + some[_EQUAL:]


class _Collection:
    """One small collection, dense or sparse, put through everything."""

    def __init__(self, *, dim: int | None) -> None:
        self._config = CollectionConfig(dim=dim, backend=GcwsParams(bands=4))
        self._backend = GcwsBackend(self._config, GcwsParams(bands=4), Workers(1))

    @cached_property
    def _rows(self) -> VectorBatch:
        rows = GrowingRows(self._config.form, self._config.dim)
        space = VectorSpace.of(self._config)
        rows.append(space.prepare(space.from_items(_vectors(self._config.dim))))
        return rows.view()

    @cached_property
    def _view(self) -> RowView:
        return RowView(self._rows, np.ones(_ROWS, np.uint8), _ROWS)

    @cached_property
    def _codes(self) -> Any:  # noqa: ANN401  # the backend's
        return self._backend.encode(self._rows)

    @cached_property
    def _state(self) -> Any:  # noqa: ANN401  # the backend's
        rows, codes = self._rows, self._codes
        state = self._backend.extend(self._backend.empty(), rows[:1000], codes[:1000])
        state = self._backend.extend(state, rows, codes[1000:])
        return self._backend.renumber(state, rows, np.arange(_ROWS))

    @cached_property
    def _linked(self) -> Any:  # noqa: ANN401  # the backend's
        linked = self._backend.linked(
            self._state, self._rows, np.ones(_ROWS, np.uint8), threading.Event()
        )
        assert linked is not None
        assert linked.graph is not None
        linked.graph.neighbours.renumber(np.arange(_ROWS), self._rows)
        return linked

    def hash(self) -> None:
        """Hash rows in every way, and transform some."""
        dim = self._config.dim
        compress_rows(self._rows)  # as rows are hashed that are too wide for a table
        self._backend.encode(self._rows)
        self._backend.sketch(self._rows, "b_bit")
        whole = CollectionConfig(dim=dim, backend=GcwsParams(bands=4, band_width=2))
        make_backend(whole, threads=1).encode(self._rows[:8])
        transform = Transform(power=0.5, normalize="l2")
        space = VectorSpace.of(CollectionConfig(dim=dim, transform=transform))
        space.prepare(space.from_items([SparseVector([1, 3], [0.5, -2.0])]))

    def build(self) -> None:
        """Make tables, and join their segments."""
        assert self._state is not None

    def scan(self) -> None:
        """Compare queries with all rows: those in tables, those put last, those of a filter."""
        nobody, none, rows = np.full(2, -1), InvertedIndex(), self._rows
        postings = none.cover(rows, Workers(1)) if rows.form == "sparse" else none
        for min_score in (0.0, 0.99):
            params = SearchParams(limit=3, recall=1.0, min_score=min_score)
            for count in (1, 2):
                for inverted in (postings, none):
                    scan(
                        self._view,
                        rows[:count],
                        params,
                        skip=nobody[:count],
                        inverted=inverted,
                        workers=Workers(1),
                    )
        Scanner(self._view, none, 0.0).collect(rows[:1], -1, 0.5)

    def probe(self) -> None:
        """Search as collections are searched that have no graph."""
        backend, state = self._backend, self._state
        params = SearchParams(limit=3, recall=0.5, min_score=0.99)
        tables = TableSearch(
            backend.plan, backend.encode, state.tables, state.inverted, Workers(1), ProbePolicy()
        )
        for count in (1, 2):
            queries, nobody, patient = (
                self._rows[:count],
                np.full(count, -1),
                np.full(count, np.inf),
            )
            backend.search(state, self._view, queries, params)
            # So few rows would be scanned.
            tables.answers(self._view, queries, params, nobody, patient)

    def quantize(self) -> None:
        """Round rows in each way that a graph may hold them."""
        for quantizer in _QUANTIZERS:  # which of them a collection takes depends on its rows
            quantizer.round(self._rows.dense, self._rows.norms)

    def copy(self) -> None:
        """Copy as many rows as a scan reads copies of, and scan them."""
        times = -(-MIN_COPIED_FLOATS // self._rows.dense.size)
        dense, norms = np.tile(self._rows.dense, (times, 1)), np.tile(self._rows.norms, times)
        copies = copies_of(dense, _QUANTIZERS[0])
        rows = VectorBatch("dense", dense=dense, norms=norms, copies=copies)
        view, none = RowView(rows, np.ones(len(rows), np.uint8), len(rows)), InvertedIndex()
        params, nobody = SearchParams(limit=3, recall=1.0), np.full(2, -1)
        scan(view, rows[:2], params, skip=nobody, inverted=none, workers=Workers(1))
        Scanner(view, none, 0.0).collect(rows[:1], -1, 0.5)
        all_pairs(view, min_score=0.99, limit=3, stop=None, workers=Workers(1))

    def link(self) -> None:
        """Build and calibrate the graph."""
        alive = np.ones(_ROWS, np.uint8)
        self._backend.graphs.scans_are_enough(self._rows, alive, self._state.inverted)
        assert self._linked is not None

    def join(self) -> None:
        """Find pairs: by tables, by the graph, all with all."""
        for recall in (0.5, 1.0):
            self._backend.pairs(self._state, self._view, min_score=0.99, recall=recall)
        self._backend.pairs(self._linked, self._view, min_score=0.99, recall=0.5, limit=3)
        rows, found = self._rows, np.empty((2, _ROWS), np.int32)
        if rows.form == "dense":  # done for collections that are too large to compare all rows
            alive, some, threshold = np.ones(_ROWS, np.uint8), np.arange(2), np.float32(0.99)
            meet(PairRows(*rows_of(rows), alive), some, threshold, 0, _ROWS, found[0], found[1])
            return
        # For more rows: so few are compared all with all.
        prefixes = PrefixJoin.of(self._view, 0.99)
        if prefixes is not None:
            prefixes.offer(PairSink(self._view, 0.99, None), Workers(1))

    def compare(self) -> None:
        """Score rows against rows."""
        gmm(self._rows[:1], self._rows[1:2])
        gmm_matrix(self._rows[:2], self._rows[:2])
