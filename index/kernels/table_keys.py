"""Keys of dense vectors, by parameters out of a table: samples are packed as soon as drawn."""

import numpy as np
from numba import njit

from index.arrays import LANES, Float32s, UInt64s
from index.kernels.gcws import sketch_from_table
from index.kernels.keys import pack_prefix_keys, pack_whole_keys


@njit(cache=True, nogil=True)
def keys_from_table(
    rows: Float32s,
    table: Float32s,
    slot_count: int,
    band: int,
    band_width: int,
    bits: int,
    encoding: int,
    prefix: bool,
    out: UInt64s,
) -> None:
    """Write the keys of signed dense rows in some bands.

    Parameters
    ----------
    rows, table, slot_count : see `gcws.sketch_from_table`
    band, band_width, bits, encoding : see `keys.pack_prefix_keys`
    prefix : bool
        Whether keys are prefix-ordered rather than hashed whole.
    out : (n, bands) uint64, written in place
    """
    first = band * band_width // LANES
    samples = -(-(band + out.shape[1]) * band_width // LANES) * LANES - first * LANES
    slots = np.empty((rows.shape[0], samples), np.uint32)
    levels = np.empty((rows.shape[0], samples), np.uint32)
    sketch_from_table(rows, table, slot_count, first, slots, levels)
    start = first * LANES
    if prefix:
        pack_prefix_keys(slots, levels, start, band, band_width, bits, encoding, out)
    else:
        pack_whole_keys(slots, levels, start, band, band_width, bits, encoding, out)
