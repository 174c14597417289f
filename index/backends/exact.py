"""The exact backend: every query scans all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gcws_search.index.backend import Backend
from gcws_search.index.contracts.arrays import Int64s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import BatchHits, RowView
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import scan
from gcws_search.index.similarities import GMM
from gcws_search.index.threads import Workers


class ExactBackend(Backend[InvertedIndex]):
    """An exact scan; sparse rows through an inverted index."""

    kind = "exact"
    code_width = 0
    kernel = GMM

    def __init__(self, config: CollectionConfig, workers: Workers) -> None:
        self.workers = workers

    def encode(self, batch: VectorBatch) -> UInt64s:
        """Return (n, 0) words: nothing needs to be stored."""
        return np.empty((len(batch), 0), np.uint64)

    def empty(self) -> InvertedIndex:
        """Return an empty index."""
        return InvertedIndex()

    def extend(self, state: InvertedIndex, rows: VectorBatch, codes: UInt64s) -> InvertedIndex:
        """Return the index with the last len(codes) of ``rows`` added."""
        del codes
        return state.cover(rows, self.workers)

    def renumber(self, state: InvertedIndex, rows: VectorBatch, new_rows: Int64s) -> InvertedIndex:
        """Return the index after a compaction."""
        del state, new_rows
        return self.extend(InvertedIndex(), rows, np.empty((0, 0), np.uint64))

    def search(
        self,
        state: InvertedIndex,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s | None = None,
    ) -> BatchHits:
        """Return the exact hits of each query."""
        skipped = np.full(len(queries), -1, np.int64) if skip is None else skip
        return scan(view, queries, params, skip=skipped, inverted=state, workers=self.workers)

    def inverted(self, state: InvertedIndex, rows: VectorBatch) -> InvertedIndex:
        """Return the postings of sparse rows."""
        del rows
        return state

    def nbytes(self, state: InvertedIndex) -> int:
        """Bytes of memory of the index."""
        return state.nbytes

    def stats(self, state: InvertedIndex) -> dict[str, Any]:
        """Return statistics of the index."""
        return {"postings_bytes": state.nbytes}
