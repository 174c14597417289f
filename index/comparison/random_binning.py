"""Random binning: samples that collide with a Polya kernel's probability, and tables of them."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np

from gcws_search.index.backend import Backend
from gcws_search.index.contracts.arrays import LANES, Float32s, Float64s, Int64s, UInt32s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch, round_up, row_width
from gcws_search.index.contracts.hits import METHODS, BatchHits, RowView
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    Distribution,
    GcwsParams,
    RandomBinningParams,
    SearchParams,
)
from gcws_search.index.exact.scan import Ranked, refuse_proof, rerank, scan_by
from gcws_search.index.hashing.banding import BandPlan
from gcws_search.index.hashing.gcws import Signatures, compress_rows
from gcws_search.index.kernels.hashing.binning import (
    CELLS,
    OCTAVES,
    STRIDE,
    bins_from_stream,
    bins_from_table,
    fill_bins,
)
from gcws_search.index.lsh.search import search_tables
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.polya import pitches
from gcws_search.index.similarities import polya_kernel
from gcws_search.index.threads import Workers

_TABLE_FLOATS: Final = 1 << 26
"""Larger tables of parameters are not kept: 256 MB."""
_SHARES_A_CELL: Final = 4
_LARGEST: Final = 2.0**126
"""Bound of 1/S: S below its inverse tells all ordinary numbers apart anyhow."""
_CHUNK_ROWS: Final = 256
"""Rows sketched at a time: their samples stay in cache until they are packed."""


class RandomBinning:
    """A family of k random binnings ([RFF] §4).

    Pr[sample of u = sample of v] = Π_d k(|u_d − v_d|), k the kernel of the pitches' distribution.

    samples: k; rounded up to a multiple of 16.
    dense_width: dense rows have coordinates below this; None for sparse rows.
    """

    def __init__(
        self, params: RandomBinningParams, *, samples: int, dense_width: int | None
    ) -> None:
        self.samples = round_up(samples)
        self._seed = np.uint64(params.seed)
        with np.errstate(over="ignore"):
            inverses = _raw_inverses(params.distribution, params.shape) / params.scale
        # 1/S of each cell, where S has the mean ``scale``.
        self._inverses = np.clip(inverses, 1 / _LARGEST, _LARGEST).astype(np.float32)
        self._width = dense_width or 0
        self._keeps_table = 0 < self._width * self.samples * STRIDE // LANES <= _TABLE_FLOATS

    @property
    def nbytes(self) -> int:
        """Bytes of the table of pitches, and of the parameter table once it is used."""
        table: Float32s | None = self.__dict__.get("_table")
        return self._inverses.nbytes + (0 if table is None else table.nbytes)

    def sketch(self, batch: VectorBatch) -> UInt32s:
        """Return the (n, k) samples of each vector."""
        out = np.empty((len(batch), self.samples), np.uint32)
        indptr, slots, magnitudes = compress_rows(batch)
        values = np.where(slots & np.uint32(1), -magnitudes, magnitudes)
        coordinates = slots >> np.uint32(1)
        if self._keeps_table:
            bins_from_table(indptr, coordinates, values, self._table, self._width, out)
        else:
            bins_from_stream(indptr, coordinates, values, self._seed, self._inverses, out)
        return out

    def overlaps(self, query: VectorBatch, rows: VectorBatch) -> Float64s:
        """Return the (n,) shares of the k samples that n vectors share with one."""
        return np.asarray(np.mean(self.sketch(rows) == self.sketch(query), axis=1), np.float64)

    @cached_property
    def _table(self) -> Float32s:
        """Parameters of all coordinates of dense rows; see `fill_bins`."""
        blocks = self.samples // LANES
        table = np.empty(blocks * self._width * STRIDE, np.float32)
        fill_bins(self._seed, self._inverses, self._width, blocks, table)
        return table


@lru_cache(maxsize=16)
def _raw_inverses(distribution: Distribution, shape: float | None) -> Float64s:
    """Return E[S]/S of each cell of `kernels.hashing.binning`, as mean over the cell."""
    law = pitches(distribution, shape)
    octaves = 2.0 ** np.arange(OCTAVES)[:, None]
    places = (np.arange(CELLS * _SHARES_A_CELL) + 0.5) / (CELLS * _SHARES_A_CELL)
    shares = np.append(octaves * (1.0 + places), np.full(_SHARES_A_CELL, octaves[-1] * 2.0)) / 2**32
    sides = [law.quantile(shares), law.upper_quantile(shares)]
    with np.errstate(divide="ignore", over="ignore"):
        inverses = np.minimum(law.mean / np.concatenate(sides), _LARGEST)
    return np.asarray(inverses.reshape(-1, _SHARES_A_CELL).mean(axis=1), np.float64)


class RandomBinningBackend(Backend[Tables]):
    """Hash tables over bands of random bins; estimates a product kernel of Polya's class."""

    kind = "random_binning"

    def __init__(
        self, config: CollectionConfig, params: RandomBinningParams, workers: Workers
    ) -> None:
        self.workers = workers
        # A sample is one number, used as i*.
        self.plan = BandPlan.of(GcwsParams(bands=params.bands, encoding="zero_bit"))
        self.code_width = self.plan.bands  # its key in each table
        self.kernel = polya_kernel(params.distribution, params.shape, params.scale)
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
        """Return empty tables."""
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
        """Return the hits of each query: rows that share its deepest prefixes, scored as requested.

        If ``recall`` is 1, or at most as many rows are permitted as are candidates, all permitted
        rows are scored, unless only estimates are requested.

        Raises InvalidParameter if a proof is requested: tables of another kernel's samples prove
        nothing about GMM.
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
        """Bytes of memory of the tables, and of the parameters of the bins."""
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
