"""Random binning: discrete samples that collide with the probability of a Polya kernel."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import LANES, Float32s, Float64s, UInt32s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import Distribution, RandomBinningParams
from gcws_search.index.hashing.gcws import compress_rows, round_up
from gcws_search.index.kernels.hashing.binning import (
    CELLS,
    OCTAVES,
    STRIDE,
    bins_from_stream,
    bins_from_table,
    fill_bins,
)
from gcws_search.index.similarities.polya import pitches

_TABLE_FLOATS: Final = 1 << 26
"""Larger tables of parameters are not kept: 256 MB."""
_SHARES_A_CELL: Final = 4
_LARGEST: Final = 2.0**126
"""Bound of 1/S: S below its inverse tells all ordinary numbers apart anyhow."""


class RandomBinning:
    """A family of k random binnings ([RFF] §4).

    Pr[sample of u = sample of v] = Π_d k(|u_d − v_d|), k the kernel of the pitches' distribution.

    samples: k; rounded up to a multiple of 16.
    dense_width: coordinates are below this when rows are dense; None when they are sparse.
    """

    def __init__(
        self, params: RandomBinningParams, *, samples: int, dense_width: int | None
    ) -> None:
        self.samples = round_up(samples)
        self._seed = np.uint64(params.seed)
        self._inverses = _inverse_pitches(params.distribution, params.shape, params.scale)
        self._width = dense_width or 0
        self._keeps_table = 0 < self._width * self.samples * STRIDE // LANES <= _TABLE_FLOATS

    @property
    def nbytes(self) -> int:
        """Bytes of the table of pitches, and of the parameter table once it has been needed."""
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
        """Return the (n,) shares of the k samples that n vectors have in common with one."""
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
    """Return E[S]/S of each cell of `kernels.hashing.binning`, its mean over the cell."""
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
