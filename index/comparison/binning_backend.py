"""Hash tables over random bins, candidates gathered from deep prefixes to shallow ones."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gcws_search.index.backend import Backend
from gcws_search.index.comparison.binning import RandomBinning
from gcws_search.index.contracts.arrays import Int64s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch, row_width
from gcws_search.index.contracts.hits import METHODS, BatchHits, RowView
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    RandomBinningParams,
    SearchParams,
)
from gcws_search.index.exact.rerank import Ranked, refuse_proof, rerank, scan_by
from gcws_search.index.hashing.banding import BandPlan
from gcws_search.index.hashing.gcws import Signatures
from gcws_search.index.lsh.gather import search_tables
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.similarities.public import PolyaKernel
from gcws_search.index.threads import Workers

_CHUNK_ROWS: Final = 256
"""Rows sketched at a time: their samples stay in cache until they are packed."""


class RandomBinningBackend(Backend[Tables]):
    """Hash tables over bands of random bins; an estimate of a product kernel of Polya's class."""

    kind = "random_binning"

    def __init__(
        self, config: CollectionConfig, params: RandomBinningParams, workers: Workers
    ) -> None:
        self.workers = workers
        self.plan = BandPlan.of_codes(params.bands)
        self.code_width = self.plan.bands  # its key in each table
        self.kernel = PolyaKernel(params.distribution, params.shape, params.scale)
        width = row_width(config.form, config.dim)
        self.binning = RandomBinning(params, samples=self.plan.samples, dense_width=width)

    def encode(self, batch: VectorBatch) -> UInt64s:
        """Return the (n, bands) keys of the vectors; pure, any thread."""
        keys = np.empty((len(batch), self.plan.bands), np.uint64)

        def encode_rows(first: int, last: int) -> None:
            for start in range(first, last, _CHUNK_ROWS):
                chunk = slice(start, min(start + _CHUNK_ROWS, last))
                self.plan.pack(self._sketch(batch[chunk]), keys[chunk])

        self.workers.split(len(batch), encode_rows, min_size=16)
        return keys

    def _sketch(self, batch: VectorBatch) -> Signatures:
        samples = self.binning.sketch(batch)
        return Signatures(samples, samples.view(np.int32))

    def empty(self) -> Tables:
        """Return the tables of no rows."""
        return Tables.of(self.plan.bands, ())

    def extend(self, state: Tables, rows: VectorBatch, codes: UInt64s) -> Tables:
        """Return the tables with the last len(codes) of ``rows`` added."""
        return state.extend(codes, len(rows) - len(codes), self.workers)

    def renumber(self, state: Tables, rows: VectorBatch, new_rows: Int64s) -> Tables:
        """Return the tables after a compaction."""
        del rows
        return state.renumber(new_rows)

    def search(
        self,
        state: Tables,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s | None = None,
    ) -> BatchHits:
        """Return the hits of each query: rows that share its deepest prefixes, scored as asked.

        Where ``recall`` is 1, or no more rows are permitted than are candidates, all permitted rows
        are scored, unless estimates alone are wanted.

        Raises InvalidParameter where a proof is asked for: tables of another kernel's samples prove
        nothing of GMM.
        """
        refuse_proof(self.kind, params)
        if len(queries) == 0:
            return BatchHits.none()
        skipped = np.full(len(queries), -1, np.int64) if skip is None else skip
        everything = params.recall == 1 or view.permitted_count <= params.pool
        if everything and params.rerank != "none":
            return scan_by(self.kernel, view, queries, params, skipped, self.workers)
        vectors = view.vectors

        def rank(i: int, rows: Int64s) -> Ranked:
            query, estimates = queries[i : i + 1], np.empty(0, np.float64)
            if params.rerank == "none":
                estimates = self.binning.overlaps(query, vectors[rows])
            return rerank(vectors, query, rows, estimates, params, self.kernel)

        keys = self.plan.keys(self._sketch(queries))
        method = METHODS.index(self.kind)
        return search_tables(
            method,
            self.plan,
            state,
            view,
            keys,
            rank,
            params=params,
            skip=skipped,
            workers=self.workers,
        )

    def nbytes(self, state: Tables) -> int:
        """Bytes of memory the tables hold, and the parameters of the bins."""
        return state.nbytes + self.binning.nbytes

    def stats(self, state: Tables) -> dict[str, Any]:
        """Return table statistics."""
        rows = len(state)
        return {
            "bands": self.plan.bands,
            "band_width": self.plan.band_width,
            "samples": self.plan.samples,
            "key_bits_per_sample": self.plan.bits,
            "segments": [len(segment) for segment in state.segments],
            "table_bytes": state.nbytes,
            "bytes_per_item_and_table": state.nbytes / (rows * self.plan.bands) if rows else None,
            "parameter_bytes": self.binning.nbytes,
        }
