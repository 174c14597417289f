"""Quantized copies of dense rows, used to build and search the neighbour graph.

A value is stored as one byte or as int16, with one step for the whole collection. The smallest
type that keeps the nearest rows apart is used (see `choose_quantizer`). If neither does, the
float32 rows are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import (
    AddressSpace,
    Float32s,
    Float64s,
    Int64s,
    UInt8s,
    growable,
    with_room,
)
from gcws_search.index.contracts.batches import RowCopies, VectorBatch
from gcws_search.index.contracts.parameters import Form
from gcws_search.index.contracts.saved_index import count_of, list_of, number_of
from gcws_search.index.kernels.quantized.l1_distance import REGISTER_BYTES
from gcws_search.index.kernels.quantized.quantize import distances_of_groups, round_rows
from gcws_search.index.kernels.quantized.rows import BYTES, FLOATS, MAX_SHORT, SHORTS, SPARSE
from gcws_search.index.threads import ALONE, Workers

_ROWS_A_THREAD: Final = 4096
_CUTS: Final = (1.0, 0.9999, 0.999, 0.99)
"""Shares of the magnitudes that are within range; the rest is cut off."""
_NEAREST: Final = (3, 10)
_MIN_AGREEMENT: Final = 0.98
"""This share of the k rows nearest to a row must be among the 2k nearest by quantized distance, for
each k of `_NEAREST`. Ten alone would pass in clusters of twenty that quantization merges, and fail
once these have thirty."""
_BYTE_VALUES: Final = 255
_SIGNED_VALUES: Final = 127

_MAX_FLOATS: Final = 48
"""Rows of up to so many numbers are searched as they are where bytes do not tell near rows apart:
int16 would be held beside them. Searches of rows of 45 took as long so, of 54 1.08 times, of 90
1.12, of 225 1.5."""

_MIN_STEP: Final = float(np.finfo(np.float32).tiny)
"""Smaller numbers have few digits, and one divided by them is more than a float32 holds."""

_MIN_DISTANCE: Final = 1e-3
"""Smaller distances are raised to this: zero has no logarithm."""

_SIZES: Final = {BYTES: 1, SHORTS: 2, FLOATS: 4, SPARSE: 0}
"""Bytes of an entry."""

NAMES: Final = {BYTES: "uint8", SHORTS: "int16", FLOATS: "float32", SPARSE: "sparse"}


@dataclass(frozen=True, slots=True)
class Quantizer:
    """How vectors are rounded to coarse rows."""

    kind: int  # `BYTES`, `SHORTS`, `FLOATS` or `SPARSE`
    step: float = 1.0  # value of one unit; 1 if nothing is rounded
    origin: int = 0  # the byte of the value 0

    @classmethod
    def from_list(cls, document: object, form: Form) -> Quantizer:
        """Return a quantizer for rows of a form, from JSON; ValueError if it is not valid."""
        kind, step, origin = list_of(document, max_count=3)
        kinds = (SPARSE,) if form == "sparse" else (BYTES, SHORTS, FLOATS)
        if count_of(kind, BYTES, SPARSE) not in kinds:
            raise ValueError(f"{form} rows are not stored as {NAMES[kind]}")
        low = _MIN_STEP if kind in (BYTES, SHORTS) else 1.0
        high = float(np.finfo(np.float32).max) if kind in (BYTES, SHORTS) else 1.0
        origin = count_of(origin, 0, _SIGNED_VALUES + 1 if kind == BYTES else 0)
        if origin not in (0, _SIGNED_VALUES + 1):
            raise ValueError(f"{origin} stands for 0")
        return cls(kind, number_of(step, low, high), origin)

    def stride(self, width: int) -> int:
        """Return the bytes of one row of ``width`` floats."""
        size = _SIZES[self.kind]
        return -(-width * size // REGISTER_BYTES) * REGISTER_BYTES

    def write(self, dense: Float32s, out: UInt8s, out_norms: Float32s) -> None:
        """Write rows as bytes or int16 to (n, stride) bytes, and their norms in units."""
        if self.kind == BYTES:
            round_rows(dense, self.step, self.origin, 0.0, 255.0, out, out_norms)
        else:
            round_rows(dense, self.step, 0, -MAX_SHORT, MAX_SHORT, out.view(np.int16), out_norms)


def byte_quantizers(
    magnitudes: Float32s, *, signed: bool, cuts: Sequence[float] = _CUTS
) -> list[Quantizer]:
    """Return possible byte quantizers for some numbers, the one with the widest range first.

    None for no numbers, or for numbers so small that they have few digits. ``cuts`` are the shares
    of the magnitudes that are within range, falling.
    """
    if len(magnitudes) == 0:
        return []
    values, origin = (_SIGNED_VALUES, _SIGNED_VALUES + 1) if signed else (_BYTE_VALUES, 0)
    steps = [cut / values for cut in np.quantile(magnitudes, cuts).astype(float).tolist()]
    return [Quantizer(BYTES, step, origin) for step in steps] if min(steps) >= _MIN_STEP else []


def choose_quantizer(
    groups: Float32s, centres: Float32s, rows: Float32s, copies: RowCopies | None = None
) -> Quantizer:
    """Return the smallest form of rows that still distinguishes near rows.

    groups (g, near, width): rows near each of the (g, width) centres.
    rows: all rows: int16 cover their greatest values, unless these are so few and so great that
      other rows could not be distinguished.
    copies: the byte copies that scans read. They are shared if they distinguish near rows, even if
      other bytes do so better, because those would need additional memory.

    Rows that are not longer than their copies (up to 16 numbers) are searched as they are, and so
    are rows of up to `_MAX_FLOATS` numbers that bytes do not suit.
    """
    width = rows.shape[1]
    if Quantizer(BYTES).stride(width) >= Quantizer(FLOATS).stride(width):
        return Quantizer(FLOATS)
    magnitudes = np.abs(groups[groups != 0])
    signed = bool((groups < 0).any() or (centres < 0).any())
    bytes_, greatest = byte_quantizers(magnitudes, signed=signed), float(magnitudes.max(initial=0))
    if not bytes_ or greatest / MAX_SHORT < _MIN_STEP:
        return Quantizer(FLOATS)
    exact = _distances(groups, centres)
    if copies is not None:
        shared = Quantizer(BYTES, copies.step, copies.origin)
        if _agreement(shared, groups, centres, exact) >= _MIN_AGREEMENT:
            return shared
    quantizer, agreement = _best(bytes_, groups, centres, exact)
    if agreement < _MIN_AGREEMENT and width > _MAX_FLOATS:
        widest = max(float(rows.max()), -float(rows.min()))
        shorts = [Quantizer(SHORTS, each / MAX_SHORT) for each in (widest, greatest)]
        quantizer, agreement = _best(shorts, groups, centres, exact)
    return quantizer if agreement >= _MIN_AGREEMENT else Quantizer(FLOATS)


def dimension(groups: Float32s, centres: Float32s) -> float:
    """Return d if about r^d rows are within r of a row ([DIMENSION] eq. 8, mean of inverses)."""
    distances = np.maximum(_distances(groups, centres), _MIN_DISTANCE)
    inverse = float(np.mean(np.log(distances.max(axis=1, keepdims=True) / distances)))
    return 1.0 / inverse if inverse > 0 else np.inf


def _distances(
    groups: Float32s,
    centres: Float32s,
    step: float = 0.0,
    low: float = -np.inf,
    high: float = np.inf,
) -> Float64s:
    """Return (g, near) 1 − GMM of each centre and its near rows, rounded if a step is given."""
    out = np.empty(groups.shape[:2], np.float64)
    distances_of_groups(groups, centres, step, np.float32(low), np.float32(high), out)
    return out


def _best(
    quantizers: list[Quantizer], groups: Float32s, centres: Float32s, exact: Float64s
) -> tuple[Quantizer, float]:
    """Return the first quantizer with the best agreement, and that agreement."""
    agreements = [_agreement(quantizer, groups, centres, exact) for quantizer in quantizers]
    best = int(np.argmax(agreements))
    return quantizers[best], agreements[best]


def _agreement(quantizer: Quantizer, groups: Float32s, centres: Float32s, exact: Float64s) -> float:
    """Return the share of the nearest rows that are among twice as many after rounding."""
    low, high = -MAX_SHORT, MAX_SHORT
    if quantizer.kind == BYTES:
        low, high = -quantizer.origin, _BYTE_VALUES - quantizer.origin
    rounded = _distances(groups, centres, quantizer.step, low, high)
    order = np.lexsort((-exact, rounded), axis=1)  # worst case: tied rows come in the worst order
    return min(_share_of_nearest(exact, order, nearest) for nearest in _NEAREST)


def _share_of_nearest(exact: Float64s, order: Int64s, nearest: int) -> float:
    """Return the share of the nearest rows among twice as many first rows of an order."""
    # By distance, not by row: copies of one row may replace each other.
    found = np.sort(np.take_along_axis(exact, order[:, : 2 * nearest], 1), axis=1)[:, :nearest]
    wanted = np.sort(exact, axis=1)[:, nearest - 1 : nearest]
    return float(np.mean(found <= wanted + 1e-9))


class QuantizedRows:
    """The coarse copies of a collection's rows, growing with them; empty if none is needed.

    If the rows' own byte copies have the same bytes, these are shared.
    """

    def __init__(self, quantizer: Quantizer, width: int) -> None:
        self.quantizer = quantizer
        self._is_copied = quantizer.kind in (BYTES, SHORTS)
        stride = quantizer.stride(width) if self._is_copied else 0
        self._copies = np.empty((0, stride), np.uint8)
        self._norms = np.empty(0, np.float32)
        self._room = AddressSpace()
        self._count = 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use."""
        return self._copies.nbytes + self._norms.nbytes

    def cover(self, rows: VectorBatch, workers: Workers = ALONE) -> QuantizedView:
        """Add the new rows, and return all of them."""
        n, copies = len(rows), rows.copies
        if copies is not None and self.quantizer == Quantizer(BYTES, copies.step, copies.origin):
            if self._count:  # drop them: earlier ones stay with their views
                self._copies, self._norms = self._copies[:0].copy(), self._norms[:0].copy()
                self._room = AddressSpace()
                self._count = 0
            return QuantizedView.of(self.quantizer, rows, copies.codes, copies.norms)
        if not self._is_copied:
            same = rows.dense.view(np.uint8) if rows.form == "dense" else np.empty((0, 0), np.uint8)
            return QuantizedView.of(self.quantizer, rows, same, rows.norms)
        if n > self._count:
            start = self._count
            codes = self._copies = self._room.with_room(self._copies, start, n)
            norms = self._norms = with_room(self._norms, start, n)

            def write(first: int, last: int) -> None:
                part = slice(start + first, start + last)
                self.quantizer.write(rows[part].dense, codes[part], norms[part])

            workers.split(n - start, write, min_size=_ROWS_A_THREAD)
            self._count = n
        return QuantizedView.of(self.quantizer, rows, self._copies[:n], self._norms[:n])

    def take(self, places: Int64s) -> QuantizedRows:
        """Return the copies of some rows, in the given order."""
        taken = QuantizedRows(self.quantizer, 0)
        taken._is_copied, taken._copies = self._is_copied, self._copies[:0]
        if self._count:
            copies = growable((len(places), self._copies.shape[1]), np.uint8)
            # The default mode buffers the whole result, to keep ``out`` unchanged on errors.
            np.take(self._copies, places, axis=0, out=copies, mode="clip")
            taken._room.adopt(copies)
            taken._copies, taken._norms = copies, self._norms[places]
            taken._count = len(places)
        return taken


@dataclass(frozen=True, slots=True)
class QuantizedView:
    """Rows by address, as kernels read them."""

    quantizer: Quantizer
    rows: VectorBatch
    copies: UInt8s  # (n, stride)
    norms: Float32s  # (n,)
    # (11,) for `kernels.quantized.rows`: `rows_at`, `vectors_at`; valid while this object lives.
    addresses: Int64s

    @classmethod
    def of(
        cls, quantizer: Quantizer, rows: VectorBatch, copies: UInt8s, norms: Float32s
    ) -> QuantizedView:
        """Return a view of arrays."""
        parts = (norms, rows.indptr, rows.slots, rows.values, rows.floats, rows.codes)
        addresses = [quantizer.kind, copies.ctypes.data, copies.shape[1]]
        addresses += [part.ctypes.data for part in parts]
        addresses += [rows.codes.shape[1], rows.width]
        return cls(quantizer, rows, copies, norms, np.array(addresses, np.int64))
