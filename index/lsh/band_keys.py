"""Band keys of vectors, for the first and for further tables."""

from __future__ import annotations

import threading
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import LANES, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.hashing.banding import BandPlan
from gcws_search.index.hashing.gcws import Gcws
from gcws_search.index.kernels.hashing.gcws_table import Hashing, keys_from_table
from gcws_search.index.lsh.tables import SAMPLE, Tables, is_sampled
from gcws_search.index.threads import Workers, end_if

_CHUNK_ROWS: Final = 256
"""Rows sketched at a time: their samples stay in cache until they are packed."""
_SAMPLED_AT_ONCE: Final = 1 << 16
"""Rows of a sample that are copied at a time."""


class BandKeys:
    """How the rows of one index are hashed; ``plan`` has as many bands as there can be tables.

    Methods that get an event ``stop`` raise StoppedError once it is set.
    """

    def __init__(self, plan: BandPlan, hash_: Gcws, workers: Workers) -> None:
        self.plan = plan
        self._hash = hash_
        self._workers = workers
        self._hashing: Hashing | None = None
        self._drawn = 0  # number of tables whose parameters it has

    def hashing(self, tables: int) -> Hashing | None:
        """Return how kernels compute keys in the first ``tables``.

        None if they are computed without a table of parameters.
        """
        hash_ = self._hash
        if tables > self._drawn and hash_.keeps_table:
            table = hash_.table(tables * self.plan.band_width)
            self._hashing = Hashing(table, hash_.slots, *self.plan.layout)
            self._drawn = tables
        return self._hashing

    def keys(
        self,
        batch: VectorBatch,
        last: int,
        *,
        first: int = 0,
        workers: Workers | None = None,
        stop: threading.Event | None = None,
    ) -> UInt64s:
        """Return the (n, last - first) keys of vectors in tables first … last - 1; any thread."""
        keys = np.empty((batch.count, last - first), np.uint64)
        if last == first:
            return keys
        if batch.count == 1:
            self._write(batch, first, keys)
            return keys

        def draw(begin: int, end: int) -> None:
            for start in range(begin, end, _CHUNK_ROWS):
                end_if(stop)
                chunk = slice(start, min(start + _CHUNK_ROWS, end))
                some = batch if chunk == slice(0, batch.count) else batch[chunk]
                self._write(some, first, keys[chunk])

        (workers or self._workers).split(batch.count, draw, min_size=16)
        return keys

    def _write(self, batch: VectorBatch, first: int, out: UInt64s) -> None:
        """Sketch vectors and write their (n, b) keys in tables ``first`` … ``first`` + b - 1."""
        last = first + out.shape[1]
        hashing = self._hashing if last <= self._drawn else self.hashing(last)
        if hashing is not None:
            floats = batch.dense if batch.holds_bytes else batch.floats
            keys_from_table(floats, hashing, first, out)
            return
        width = self.plan.band_width
        start = first * width // LANES * LANES
        count = (first + out.shape[1]) * width - start
        signatures = self._hash.sketch(batch, first=start, count=count)
        self.plan.pack(signatures, out, start=start, band=first)

    def in_tables(
        self, codes: UInt64s, bands: int, rows: VectorBatch, workers: Workers | None = None
    ) -> UInt64s:
        """Return the (n, bands) keys of the last n ``rows``; ``codes`` has the first ones."""
        known = codes.shape[1]
        if known >= bands:
            return codes[:, :bands]
        new = rows[len(rows) - len(codes) :]
        further = self.keys(new, bands, first=known, workers=workers)
        return np.concatenate([codes, further], axis=1)

    def widen(
        self,
        tables: Tables,
        rows: VectorBatch,
        bands: int,
        workers: Workers,
        *,
        stop: threading.Event | None = None,
    ) -> Tables:
        """Return the same first of ``rows`` in ``bands`` or more tables, or in all possible."""
        bands = min(bands, self.plan.bands)
        if bands <= tables.bands:
            return tables

        def keys_of(some: slice, first: int, last: int) -> UInt64s:
            return self.keys(rows[some], last, first=first, workers=workers, stop=stop)

        return tables.widen(bands, keys_of, workers, stop=stop)

    def sampled(
        self,
        tables: Tables,
        rows: VectorBatch,
        first: int,
        last: int,
        workers: Workers,
        *,
        stop: threading.Event | None = None,
    ) -> Tables:
        """Return tables ``first`` … ``last`` - 1 with a sample of the rows in ``tables``.

        Keys that ``tables`` has are not computed again.
        """
        chosen, known = np.flatnonzero(is_sampled(np.arange(len(tables)))), min(tables.bands, last)
        codes = np.empty((len(chosen), last - first), np.uint64)
        codes[:, : known - first] = tables.keys_of(chosen, known, workers)[:, first:]
        for start in range(0, len(chosen) if known < last else 0, _SAMPLED_AT_ONCE):
            part = slice(start, start + _SAMPLED_AT_ONCE)
            some = rows[chosen[part]]
            drawn = self.keys(some, last, first=known, workers=workers, stop=stop)
            codes[part, known - first :] = drawn
        empty = Tables.of(last - first, (), first, SAMPLE)
        return empty.extend(codes, 0, workers, numbers=chosen.astype(np.int32))

    def catch_up(self, optimized: Tables, tables: Tables, rows: VectorBatch) -> Tables:
        """Return the optimized tables with the rows put since.

        If ``optimized`` has fewer tables than ``tables``, the latter is returned; it has all rows.
        """
        if optimized.bands < tables.bands:
            return tables
        if optimized.bands == tables.bands:
            return optimized.with_rows_after(tables)
        known = len(optimized)
        keys = self.keys(rows[known : len(tables)], optimized.bands)
        return optimized.extend(keys, known, self._workers)
