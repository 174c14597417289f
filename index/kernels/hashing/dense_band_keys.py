"""Keys of dense vectors, by parameters out of a table: samples are packed as soon as drawn."""

from typing import NamedTuple

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import LANES, Float32s, UInt64s
from gcws_search.index.kernels.hashing.band_keys import pack_prefix_keys, pack_whole_keys
from gcws_search.index.kernels.hashing.gcws_table import sketch_from_table
from gcws_search.index.kernels.lanes.border import from_python


class BandLayout(NamedTuple):
    """How samples become keys.

    Attributes
    ----------
    width : int
        Samples of a band.
    bits : int
        Of a sample.
    encoding : int
        See `band_keys.pack_prefix_keys`.
    prefix : bool
        Whether keys are prefix-ordered rather than hashed whole.
    """

    width: int
    bits: int
    encoding: int
    prefix: bool


@from_python
@njit(cache=True, nogil=True)
def keys_from_table(
    rows: Float32s,
    table: Float32s,
    slot_count: int,
    band: int,
    layout: BandLayout,
    out: UInt64s,
) -> None:
    """Write the keys of signed dense rows in some bands.

    Parameters
    ----------
    rows, table, slot_count : see `gcws_table.sketch_from_table`
    band : int
        The first one.
    layout : BandLayout
    out : (n, bands) uint64, written in place
    """
    layout = BandLayout(*layout)
    band_width, bits, encoding = layout.width, layout.bits, layout.encoding
    first = band * band_width // LANES
    samples = -(-(band + out.shape[1]) * band_width // LANES) * LANES - first * LANES
    slots = np.empty((rows.shape[0], samples), np.uint32)
    levels = np.empty((rows.shape[0], samples), np.uint32)
    sketch_from_table(rows, table, slot_count, first, slots, levels)
    start = first * LANES
    if layout.prefix:
        pack_prefix_keys(slots, levels, start, band, band_width, bits, encoding, out)
    else:
        pack_whole_keys(slots, levels, start, band, band_width, bits, encoding, out)
