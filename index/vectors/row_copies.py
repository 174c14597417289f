"""Copies of dense rows in bytes, kept up with the rows: a scan reads them first.

The step of the copies is chosen by trial: some rows are searched for among others, and the step
that leaves fewest rows to be read as floats is taken. Where all leave too many, there are no
copies, and scans read floats.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import AddressSpace, Float32s, large, with_room
from gcws_search.index.contracts.batches import MIN_COPIED_FLOATS, RowCopies, VectorBatch
from gcws_search.index.kernels.gmm.rows import HitFilter, rows_of
from gcws_search.index.kernels.ordering.hits import empty_heaps
from gcws_search.index.kernels.quantized.quantize import copy_rows
from gcws_search.index.kernels.quantized.rows import BYTES
from gcws_search.index.kernels.quantized.scan import scan_copies
from gcws_search.index.vectors.quantization import Quantizer, byte_quantizers

_MIN_RATIO: Final = 3
"""A row is at least this many times as long as its copy, or scans gain little."""
_SAMPLED: Final = 1024
_SEARCHED: Final = 32
_HITS: Final = 10
"""Rows by which a step is judged, those that are searched for, and the hits of each."""
_CUTS: Final = (1.0, 0.9999, 0.999, 0.99, 0.95, 0.8)
"""Shares of the magnitudes that bytes reach: what is cut off tells rows apart by its sum alone."""
_MAX_LEFT: Final = 0.25
"""Share of the rows that may be left to be read as floats, of so few rows."""
_GAIN: Final = 0.8
"""A new step leaves at most this share of the rows that the old one leaves."""
_GROWTH: Final = 2
"""The step is judged again when the rows have grown by this factor."""


class GrowingCopies:
    """The copies of a collection's dense rows; one writer adds, readers hold views."""

    def __init__(self, width: int) -> None:
        self._pays = 0 < _MIN_RATIO * Quantizer(BYTES).stride(width) <= 4 * width
        self._copies: RowCopies | None = None
        self._room = AddressSpace()
        self._judged = 0
        self._reserved = 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, room to grow included."""
        return sum(part.nbytes for part in (self._copies or ()) if isinstance(part, np.ndarray))

    def reserve(self, count: int) -> None:
        """Make room for ``count`` rows in all, once there are copies."""
        self._reserved = count

    def of_no_rows(self) -> GrowingCopies:
        """Return copies of the same step, yet of no rows."""
        empty = GrowingCopies(0)
        empty._pays, empty._judged = self._pays, self._judged
        known = self._copies
        if known is not None:
            empty._copies = known.part(slice(0))
        return empty

    def cover(self, rows: VectorBatch, first: int) -> None:
        """Take in the rows from ``first`` on, out of all; views of before do not see them."""
        n, known = len(rows), self._copies
        if not self._pays or (known is None and rows.dense.size < MIN_COPIED_FLOATS):
            return
        room = max(n, self._reserved)
        if n >= _GROWTH * self._judged:
            chosen = _choose_quantizer(rows, known)
            if chosen is None:
                self._copies, self._room = None, AddressSpace()
            elif known is None or (chosen.step, chosen.origin) != (known.step, known.origin):
                known, first = _empty(0, rows.dense.shape[1], chosen), 0
                self._copies = known
            self._judged = n  # last, for `of_no_rows` may be called meanwhile
        if self._copies is None or known is None:
            return
        self._copies = RowCopies(
            self._room.with_room(known.codes, first, room),
            with_room(known.norms, first, room),
            with_room(known.errors, first, room),
            with_room(known.excesses, first, room),
            known.step,
            known.origin,
        )
        copy_rows(rows.dense[first:], first, self._copies)

    def view(self, count: int) -> RowCopies | None:
        """Return the copies of the first rows, None where there are no copies."""
        return None if self._copies is None else self._copies.part(slice(0, count))


def copies_of(dense: Float32s, like: RowCopies | Quantizer) -> RowCopies:
    """Return copies of rows with the step and the origin of others."""
    copies = _empty(len(dense), dense.shape[1], like)
    copy_rows(dense, 0, copies)
    return copies


def _empty(count: int, width: int, like: RowCopies | Quantizer) -> RowCopies:
    """Return copies of ``count`` rows that are yet to be written."""
    return RowCopies(
        large((count, Quantizer(BYTES).stride(width)), np.uint8),
        np.empty(count, np.float32),
        np.empty(count, np.float32),
        np.empty(count, np.float32),
        like.step,
        like.origin,
    )


def _choose_quantizer(rows: VectorBatch, known: RowCopies | None) -> Quantizer | None:
    """Return the step that leaves fewest rows, the known one unless another is much better."""
    places = np.linspace(0, len(rows) - 1, min(_SAMPLED, len(rows))).astype(np.int64)
    sample = rows[np.random.default_rng(0).permutation(places)]
    values = sample.dense[sample.dense != 0]
    signed = bool((values < 0).any())
    tried = byte_quantizers(np.abs(values), signed=signed, cuts=_CUTS)
    left = [_left(sample, each) for each in tried]
    if known is not None:
        own = Quantizer(BYTES, known.step, known.origin)
        share = _left(sample, own)
        if share <= _MAX_LEFT and not any(each < _GAIN * share for each in left):
            return own
    best = int(np.argmin(left)) if left else -1
    return tried[best] if left and left[best] <= _MAX_LEFT else None


def _left(sample: VectorBatch, quantizer: Quantizer) -> float:
    """Return the share of rows that a scan by copies reads as floats."""
    copies, n = copies_of(sample.dense, quantizer), len(sample)
    searched = np.arange(0, n, max(1, n // _SEARCHED))  # a stride would compile the scan again
    queries = sample[searched]
    wanted = HitFilter(np.ones(n, np.uint8), searched, np.float32(0.0))
    heaps = empty_heaps(len(queries), _HITS)
    read = scan_copies(rows_of(queries), rows_of(sample), copies, wanted, 0, n, heaps)
    return read / (n * len(queries))
