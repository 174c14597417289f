"""Random binning: from vectors to discrete samples that collide as Polya's kernels say."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import LANES, Float32s, Float64s, UInt32s
from gcws_search.index.contracts.batches import VectorBatch, padded_width
from gcws_search.index.contracts.parameters import Distribution, RandomBinningParams
from gcws_search.index.hashing.gcws import compressed, round_up
from gcws_search.index.kernels.hashing.bin_collisions import count_collisions
from gcws_search.index.kernels.hashing.binning import (
    CELLS,
    OCTAVES,
    bins_from_stream,
    bins_from_table,
    fill_bins,
)
from gcws_search.index.similarities.polya import pitches

_TABLE_BYTES: Final = 1 << 28
"""Parameter tables above this size are not kept; the generator is asked each time."""
_ROWS_AT_ONCE: Final = 256
"""Rows compared with one vector at a time: a multiple of 16, and few enough to stay in cache."""
_PARAMETERS: Final = 3
_SHARES_A_CELL: Final = 4
_LARGEST: Final = 2.0**126
"""Of what 1/S is cut to: S below its inverse tells all ordinary numbers apart anyhow."""


class RandomBinning:
    """A family of k random binnings ([RFF] §4).

    Pr[sample of u = sample of v] = Π_d k(|u_d − v_d|), k the kernel of the pitches' distribution.

    Parameters
    ----------
    params : RandomBinningParams
        Distribution, shape, scale and seed.
    samples : int
        k; rounded up to a multiple of 16.
    dense_width : int or None
        Coordinates are below this when rows are dense; None when they are sparse.
    """

    def __init__(
        self, params: RandomBinningParams, *, samples: int, dense_width: int | None
    ) -> None:
        self.samples = round_up(samples)
        self._seed = np.uint64(params.seed)
        self._inverses = _inverse_pitches(params.distribution, params.shape, params.scale)
        self._width = dense_width or 0
        self._table_floats = self._width * self.samples * _PARAMETERS
        item = np.dtype(np.float32).itemsize
        self._keeps_table = 0 < self._table_floats * item <= _TABLE_BYTES
        self._table: Float32s | None = None
        self._filling = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of the table of pitches, and of the parameter table once it has been needed."""
        return self._inverses.nbytes + (0 if self._table is None else self._table.nbytes)

    def sketch(self, batch: VectorBatch, *, count: int | None = None) -> UInt32s:
        """Return the (n, count) samples of each vector.

        Parameters
        ----------
        batch : VectorBatch
        count : int or None
            How many samples, the first ones; a multiple of 16. By default all k.
        """
        out = np.empty((len(batch), self.samples if count is None else count), np.uint32)
        indptr, slots, magnitudes = compressed(batch)
        values = np.where(slots & np.uint32(1), -magnitudes, magnitudes)
        coordinates = slots >> np.uint32(1)
        if self._keeps_table:
            bins_from_table(indptr, coordinates, values, self._parameters(), self._width, out)
        else:
            bins_from_stream(indptr, coordinates, values, self._seed, self._inverses, out)
        return out

    def shared(self, query: VectorBatch, rows: VectorBatch) -> Float64s:
        """Return the (n,) shares of the k samples that n vectors have in common with one.

        Parameters
        ----------
        query : VectorBatch
            One vector.
        rows : VectorBatch
        """
        if not self._keeps_table:
            return np.asarray(np.mean(self.sketch(rows) == self.sketch(query), axis=1), np.float64)
        counts, sought = np.empty(padded_width(len(rows)), np.int64), query.dense[0]
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows.dense[first : first + _ROWS_AT_ONCE]
            values = np.zeros((len(sought), padded_width(len(part))), np.float32)
            values[:, : len(part)] = part.T
            lows = np.minimum(part.min(axis=0), sought)
            highs = np.maximum(part.max(axis=0), sought)
            count_collisions(
                values,
                lows,
                highs,
                sought,
                self._parameters(),
                self.samples // LANES,
                counts[first : first + values.shape[1]],
            )
        return np.asarray(counts[: len(rows)] / self.samples, np.float64)

    def _parameters(self) -> Float32s:
        if self._table is None:
            with self._filling:
                if self._table is None:
                    table = np.empty(self._table_floats, np.float32)
                    blocks = self.samples // LANES
                    fill_bins(self._seed, self._inverses, self._width, blocks, table)
                    self._table = table
        return self._table


@lru_cache(maxsize=16)
def _raw_inverses(distribution: Distribution, shape: float | None) -> Float64s:
    """Return E[S]/S of each cell of `kernels.binning`, its mean over the cell."""
    law = pitches(distribution, shape)
    octaves = 2.0 ** np.arange(OCTAVES)[:, None]
    places = (np.arange(CELLS * _SHARES_A_CELL) + 0.5) / (CELLS * _SHARES_A_CELL)
    shares = np.append(octaves * (1.0 + places), np.full(_SHARES_A_CELL, octaves[-1] * 2.0)) / 2**32
    sides = [law.quantile(shares), law.upper_quantile(shares)]
    with np.errstate(divide="ignore", over="ignore"):
        inverses = np.minimum(law.mean / np.concatenate(sides), _LARGEST)
    return np.asarray(inverses.reshape(-1, _SHARES_A_CELL).mean(axis=1), np.float64)


def _inverse_pitches(distribution: Distribution, shape: float | None, scale: float) -> Float32s:
    """Return 1/S of each cell, S of mean ``scale``."""
    with np.errstate(over="ignore"):
        inverses = _raw_inverses(distribution, shape) / scale
    return np.clip(inverses, 1 / _LARGEST, _LARGEST).astype(np.float32)
