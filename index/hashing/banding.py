"""Bands of samples: their width, number, keys, and collision probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, UInt64s
from gcws_search.index.contracts.parameters import KEY_BITS, GcwsParams
from gcws_search.index.hashing.gcws import Signatures
from gcws_search.index.kernels.hashing.band_keys import B_BIT, FULL, ZERO_BIT, BandLayout, pack_keys

PREFIX_BITS: Final = 4
"""Bits a prefix-ordered key keeps of one sample, unless the encoding says how many."""
FIRST_TABLES: Final = 8
"""Searches of a small graph enter through this many tables, so every item is hashed for these.
Larger collections and proofs need more, which are built of all rows at once."""

_ENCODINGS: Final = {"full": FULL, "zero_bit": ZERO_BIT, "b_bit": B_BIT}


@dataclass(frozen=True, slots=True)
class BandPlan:
    """The shape of a collection's keys."""

    bands: int  # L, one table per band
    band_width: int  # samples per band
    prefix: bool  # keys are prefix-ordered (depth chosen per query) rather than hashed whole
    depths: int  # number of depths of a key: its samples, or 1 when hashed whole
    bits: int  # bits of the key per depth
    step: int  # samples per unit of depth
    # Probability that the stored bits of two different samples are equal. Samples of a pair with
    # similarity s are equal with probability s if both parts are stored, and at least s if fewer
    # are. So stored samples are equal with probability at least s + (1 - s)·floor.
    floor: float
    encoding: int
    code_bits: int  # of one sample

    @classmethod
    def of(cls, params: GcwsParams) -> BandPlan:
        """Return the plan of a collection's parameters."""
        encoding, is_whole = _ENCODINGS[params.encoding], params.band_width is not None
        bits = params.bits if is_whole or encoding == B_BIT else PREFIX_BITS
        width = params.band_width or KEY_BITS // bits
        return cls(
            bands=params.bands,
            band_width=width,
            prefix=not is_whole,
            depths=1 if is_whole else width,
            bits=KEY_BITS if is_whole else bits,
            step=width if is_whole else 1,
            floor=0.0 if is_whole else 2.0**-bits,
            encoding=encoding,
            code_bits=bits,
        )

    @property
    def samples(self) -> int:
        """Number of samples for all bands."""
        return self.bands * self.band_width

    @property
    def first(self) -> int:
        """Number of bands whose keys all items have from the start: all, if depth is fixed."""
        return min(self.bands, FIRST_TABLES) if self.prefix else self.bands

    @property
    def layout(self) -> BandLayout:
        """How samples become keys."""
        return BandLayout(self.band_width, self.code_bits, self.encoding, self.prefix)

    def of_first(self, bands: int) -> BandPlan:
        """Return the plan of only the first bands."""
        return self if bands == self.bands else replace(self, bands=bands)

    def pack(self, signatures: Signatures, out: UInt64s, *, start: int = 0, band: int = 0) -> None:
        """Write (n, b) keys of the bands from ``band`` on, from samples that begin at ``start``."""
        levels = signatures.levels.view(np.uint32)
        pack_keys(signatures.slots, levels, start, band, self.layout, out)

    def keys(self, signatures: Signatures) -> UInt64s:
        """Return the (n, bands) keys of samples 0 … bands·band_width - 1."""
        out = np.empty((len(signatures.slots), self.bands), np.uint64)
        self.pack(signatures, out)
        return out


def match_probabilities(plan: BandPlan, scores: Float64s, depth: int) -> Float64s:
    """Return the probability that one band matches down to a depth, by scores of pairs."""
    chances: Float64s = (scores + (1.0 - scores) * plan.floor) ** (depth * plan.step)
    return chances


def depth_for(plan: BandPlan, score: float, recall: float) -> int | None:
    """Return the greatest depth at which a pair of this score is found with a probability.

    None if even the smallest depth finds it in all bands with less than ``recall``.
    """
    if score <= 0:
        return None
    for depth in range(plan.depths, 0, -1):
        match = float(match_probabilities(plan, np.array(score), depth))
        if 1.0 - (1.0 - match) ** plan.bands >= recall:
            return depth
    return None
