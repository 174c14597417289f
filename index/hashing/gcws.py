"""GCWS: computes samples (i*, t*) of vectors, and codes that contain part of them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import (
    LANES,
    Float32s,
    Int32s,
    Int64s,
    UInt16s,
    UInt32s,
    large,
)
from gcws_search.index.contracts.batches import VectorBatch, round_up
from gcws_search.index.kernels.hashing.band_keys import cut_samples
from gcws_search.index.kernels.hashing.gcws_stream import sketch_from_stream
from gcws_search.index.kernels.hashing.gcws_table import dense_slots, fill_table, sketch_from_table

ALGORITHM_VERSION: Final = 2
"""Hashes are comparable only under the same version, seed, slot numbering and transform."""

_TABLE_BYTES: Final = 1 << 28
"""Parameter tables above this size are not kept; the generator is asked each time."""


@dataclass(frozen=True, slots=True)
class Signatures:
    """The samples of several vectors."""

    slots: UInt32s  # (n, k): i*, the winning slot of each sample
    levels: Int32s  # (n, k): t*, the level of each

    def codes(self, bits: int, samples: int) -> UInt16s:
        """Return (n, samples): the first samples cut to b bits of i* ([BBIT]), 1-16.

        Samples are numbered from 0. Pr[equal] = p + (1 - p)·2^-b if i* is equal with probability p.
        """
        out = np.empty((len(self.slots), samples), np.uint16)
        cut_samples(self.slots, bits, out)
        return out


class Gcws:
    """A family of k GCWS hash functions ([GMM] Algorithm 1; [ICWS]).

    Pr[(i*, t*) of u = (i*, t*) of v] = GMM(u, v) for each sample.

    samples: k; rounded up to a multiple of 16.
    dense_width: dense rows have slots below twice this; None for sparse rows.
    """

    def __init__(self, *, seed: int, samples: int, dense_width: int | None) -> None:
        self.seed = seed
        self.samples = round_up(samples)
        self.slots = 2 * dense_width if dense_width is not None else 0  # 0: unknown
        table_bytes = self.slots * self.samples * 4 * np.dtype(np.float32).itemsize
        self.keeps_table = 0 < table_bytes <= _TABLE_BYTES
        self._table = np.empty(0, np.float32)
        self._blocks = 0  # blocks of samples in the table
        self._filling = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of the parameter table, as far as it is filled."""
        return self._table.nbytes * self._blocks * LANES // self.samples

    def sketch(self, batch: VectorBatch, *, first: int = 0, count: int | None = None) -> Signatures:
        """Draw samples first … first + count - 1 of each vector, or all k.

        first: a multiple of 16. The columns are padded to such a multiple, without samples.
        """
        wanted = self.samples - first if count is None else count
        out_slots = np.empty((len(batch), round_up(wanted)), np.uint32)
        out_levels = np.empty_like(out_slots)
        if self.keeps_table:
            table = self.table(first + wanted)
            sketch_from_table(batch.dense, table, self.slots, first // LANES, out_slots, out_levels)
        else:
            indptr, slots, values = compress_rows(batch)
            seed, block = np.uint64(self.seed), first // LANES
            sketch_from_stream(indptr, slots, values, seed, block, wanted, out_slots, out_levels)
        return Signatures(out_slots, out_levels.view(np.int32))

    def table(self, samples: int) -> Float32s:
        """Return the table of parameters, filled for the first ``samples``; see `fill_table`.

        Only filled parts take memory. The array is the same at each call.
        """
        blocks = round_up(samples) // LANES
        if blocks > self._blocks:
            with self._filling:
                if not self._blocks:
                    self._table = large(self.slots * self.samples * 4, np.float32)
                if blocks > self._blocks:  # unless another thread was faster
                    # Existing blocks are written again with the same values.
                    fill_table(np.uint64(self.seed), self.slots, blocks, self._table)
                    self._blocks = blocks
        return self._table


def compress_rows(batch: VectorBatch) -> tuple[Int64s, UInt32s, Float32s]:
    """Return the rows in compressed form: borders, ascending slots and magnitudes."""
    if batch.form == "sparse":
        return batch.indptr, batch.slots, batch.values
    n, width = batch.dense.shape
    indptr = np.empty(n + 1, np.int64)
    slots = np.empty(n * width + 1, np.uint32)
    values = np.empty(n * width + 1, np.float32)
    dense_slots(batch.dense, indptr, slots, values)
    return indptr, slots[: indptr[-1]], values[: indptr[-1]]
