"""Hash tables over random bins, candidates gathered from deep prefixes to shallow ones."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gcws_search.index.backends.rerank import Ranked, packed, refuse_proof, reranked, scanned
from gcws_search.index.contracts.arrays import Int64s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch, row_width
from gcws_search.index.contracts.hits import BANDS, DEPTH, METHODS, BatchHits, RowView
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    RandomBinningParams,
    SearchParams,
)
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import scan
from gcws_search.index.hashing.banding import BandPlan
from gcws_search.index.hashing.gcws import Signatures
from gcws_search.index.hashing.random_binning import RandomBinning
from gcws_search.index.kernels.lsh import gather as counters
from gcws_search.index.kernels.lsh.gather import COUNTERS
from gcws_search.index.lsh.gather import gathered
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.similarities.public import PolyaKernel
from gcws_search.index.threads import Workers

_CHUNK_ROWS: Final = 256
"""Rows sketched at a time: their samples stay in cache until they are packed."""
_METHOD: Final = METHODS.index("random_binning")


class RandomBinningBackend:
    """Hash tables over bands of random bins; an estimate of a product kernel of Polya's class.

    Parameters
    ----------
    config : CollectionConfig
    params : RandomBinningParams
    workers : Workers
    """

    kind = "random_binning"

    def __init__(
        self, config: CollectionConfig, params: RandomBinningParams, workers: Workers
    ) -> None:
        self.workers = workers
        self.plan = BandPlan.of_codes(params.bands)
        self.kernel = PolyaKernel(params.distribution, params.shape, params.scale)
        width = row_width(config.form, config.dim)
        self.binning = RandomBinning(params, samples=self.plan.samples, dense_width=width)

    @property
    def code_width(self) -> int:
        """Words stored for each row: its key in each table."""
        return self.plan.bands

    def encode(self, batch: VectorBatch) -> UInt64s:
        """Return the (n, bands) keys of the vectors; pure, any thread."""
        keys = np.empty((len(batch), self.plan.bands), np.uint64)

        def encode_rows(first: int, last: int) -> None:
            for start in range(first, last, _CHUNK_ROWS):
                chunk = slice(start, min(start + _CHUNK_ROWS, last))
                samples = self.binning.sketch(batch[chunk])
                self.plan.pack(Signatures(samples, samples.view(np.int32)), keys[chunk])

        self.workers.split(len(batch), encode_rows, min_size=16)
        return keys

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

        Raises
        ------
        InvalidParameter
            A proof is asked for: tables of another kernel's samples prove nothing of GMM.
        """
        refuse_proof(self.kind, params)
        if len(queries) == 0:
            return BatchHits.none()
        skipped = np.full(len(queries), -1, np.int64) if skip is None else skip
        everything = params.recall == 1 or view.permitted_count <= params.pool
        if everything and params.rerank == "gmm":
            none = InvertedIndex()
            return scan(view, queries, params, skip=skipped, inverted=none, workers=self.workers)
        if everything and params.rerank == "own":
            return scanned(view, queries, params, skipped, self.kernel)
        return self._gathered(state, view, queries, params, skipped)

    def _gathered(
        self,
        state: Tables,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s,
    ) -> BatchHits:
        """Return hits out of the candidates that the tables give."""
        m = len(queries)
        samples = self.binning.sketch(queries)
        keys = self.plan.keys(Signatures(samples, samples.view(np.int32)))
        counts = np.zeros((m, COUNTERS), np.int64)
        candidates = np.zeros(m, np.int64)
        answers: list[Ranked | None] = [None] * m

        def answer(first: int, last: int) -> None:
            found = gathered(
                self.plan,
                state,
                view,
                keys[first:last],
                skip[first:last],
                pool=params.pool,
                counts=counts[first:last],
            )
            for i, rows in enumerate(found, first):
                candidates[i] = len(rows)
                estimates = np.empty(0, np.float64)
                query = queries[i : i + 1]
                if params.rerank == "none":
                    estimates = self.binning.shared(query, view.vectors[rows])
                answers[i] = reranked(view.vectors, query, rows, estimates, params, self.kernel)

        self.workers.split(m, answer)
        hits = packed(
            _METHOD,
            [each for each in answers if each is not None],
            candidates=candidates,
            scored=0 if params.rerank == "none" else candidates,
        )
        hits.work[:, BANDS] = self.plan.bands
        hits.work[:, DEPTH] = counts[:, counters.DEPTH]
        return hits

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
