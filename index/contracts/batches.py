"""Vectors as arrays: as sent, and as they are hashed and scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from gcws_search.index.contracts.arrays import (
    LANES,
    AnyArray,
    Float32s,
    Float64s,
    Int32s,
    Int64s,
    UInt8s,
    UInt32s,
)
from gcws_search.index.contracts.parameters import Form

# The parts that a form lacks, shared by all batches.
_NO_ROWS = np.empty((0, 0), np.float32)
_NO_CODES = np.empty((0, 0), np.uint8)
_NO_INDPTR = np.zeros(1, np.int64)
_NO_INDICES = np.empty(0, np.int32)
_NO_SLOTS = np.empty(0, np.uint32)
_NO_VALUES = np.empty(0, np.float32)

MIN_COPIED_FLOATS: Final = 1 << 18
"""Scans of fewer floats, 1 MB, are as quick without copies: second caches hold them."""


JsonVector = list[float] | dict[str, list[Any]]
"""A vector as the API shows it."""


@dataclass(frozen=True, slots=True)
class SparseVector:
    """One vector by its non-zero coordinates, or by their names: in any order, all distinct.

    indices: 0-based; None if the coordinates have names.
    """

    indices: Sequence[int] | AnyArray
    values: Sequence[float] | AnyArray
    names: Sequence[str] | None = None


class Text(NamedTuple):
    """One text, in place of a vector."""

    text: str


def named_vector(names: Sequence[str], values: Sequence[float] | AnyArray) -> SparseVector:
    """Return one vector given by the names of its coordinates."""
    return SparseVector((), values, names)


def names_of(vector: object) -> Sequence[str] | None:
    """Return the names of a vector's coordinates; None if it is given otherwise."""
    return vector.names if isinstance(vector, SparseVector) else None


@dataclass(slots=True, init=False, eq=False)
class RawBatch:
    """Checked vectors as they were sent, float32.

    dense: (n, dim) float32; (0, 0) when sparse.
    indptr: (n + 1,) int64.
    indices: (nnz,) int32, coordinates, ascending within a row.
    values: (nnz,) float32, signed, never zero.
    norms: (n,) float64, L1 norms of dense vectors, if the check has computed them.
    """

    form: Form
    count: int = field(init=False)
    dense: Float32s
    indptr: Int64s
    indices: Int32s
    values: Float32s
    norms: Float64s | None

    def __init__(
        self,
        form: Form,
        *,
        dense: Float32s = _NO_ROWS,
        indptr: Int64s = _NO_INDPTR,
        indices: Int32s = _NO_INDICES,
        values: Float32s = _NO_VALUES,
        norms: Float64s | None = None,
    ) -> None:
        self.form, self.dense, self.norms = form, dense, norms
        self.indptr, self.indices, self.values = indptr, indices, values
        self.count = len(dense) if form == "dense" else len(indptr) - 1

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: slice | Int64s) -> RawBatch:
        if self.form == "dense":
            return RawBatch("dense", dense=self.dense[rows])
        indptr, take = take_rows(self.indptr, rows)
        return RawBatch(
            "sparse", indptr=indptr, indices=self.indices[take], values=self.values[take]
        )


class RowCopies(NamedTuple):
    """Dense rows as bytes with a common step, and the difference between each copy and its row.

    `kernels.quantized.quantize` defines error and excess.

    codes: (n, stride) uint8.
    norms: (n,) float32, L1 norms of the copies, in steps.
    errors, excesses: (n,) float32.
    origin: the byte of 0.
    """

    codes: UInt8s
    norms: Float32s
    errors: Float32s
    excesses: Float32s
    step: float
    origin: int

    def part(self, rows: slice | Int64s) -> RowCopies:
        """Return the copies of some rows."""
        return RowCopies(
            self.codes[rows],
            self.norms[rows],
            self.errors[rows],
            self.excesses[rows],
            self.step,
            self.origin,
        )


@dataclass(slots=True, init=False, eq=False)
class VectorBatch:
    """Transformed vectors, ready to be hashed and scored.

    floats: (n, width) float32, signed; (0, 0) when sparse. ``width`` is dim rounded up to whole
        vector registers, padded with zeros that neither hashes nor scores see. (0, width) if the
        rows are whole numbers, stored as the bytes of ``copies``.
    indptr: (n + 1,) int64, from 0 to nnz.
    slots: (nnz,) uint32, 2i for a positive coordinate i, 2i + 1 for a negative one; ascending
        within a row.
    values: (nnz,) float32, magnitudes, positive.
    norms: (n,) float32, L1 norms.
    copies: of all rows, if the collection has them. Rows selected by number have none.
    width: length of a dense row, including padding; 0 when sparse.
    holds_bytes: whether the rows are whole numbers, stored only as bytes.
    codes: the (n, stride) bytes in that case; (0, 0) for floats.
    """

    form: Form
    count: int = field(init=False)
    floats: Float32s
    indptr: Int64s
    slots: UInt32s
    values: Float32s
    norms: Float32s
    copies: RowCopies | None
    width: int = field(init=False)
    holds_bytes: bool = field(init=False)
    codes: UInt8s = field(init=False)

    def __init__(
        self,
        form: Form,
        *,
        dense: Float32s = _NO_ROWS,
        indptr: Int64s = _NO_INDPTR,
        slots: UInt32s = _NO_SLOTS,
        values: Float32s = _NO_VALUES,
        norms: Float32s = _NO_VALUES,
        copies: RowCopies | None = None,
    ) -> None:
        self.form, self.floats, self.norms, self.copies = form, dense, norms, copies
        self.count, self.width = len(norms), dense.shape[1]
        self.indptr, self.slots, self.values = indptr, slots, values
        self.holds_bytes, self.codes = False, _NO_CODES
        if copies is not None and len(dense) < self.count:
            self.holds_bytes, self.codes = True, copies.codes

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: slice | Int64s) -> VectorBatch:
        """Return some of the vectors; a prefix ``[:count]`` copies nothing."""
        if self.form == "dense":
            norms, copies = self.norms[rows], None
            if self.copies is not None and isinstance(rows, slice) and rows.step in (None, 1):
                copies = self.copies.part(rows)
            if not self.holds_bytes:
                dense = self.floats[rows]
            elif copies is not None:
                dense = self.floats
            else:
                dense = widen(self.codes[rows], self.width)
            return VectorBatch("dense", dense=dense, norms=norms, copies=copies)
        indptr, take = take_rows(self.indptr, rows)
        return VectorBatch(
            "sparse",
            indptr=indptr,
            slots=self.slots[take],
            values=self.values[take],
            norms=self.norms[rows],
        )

    @property
    def dense(self) -> Float32s:
        """The (n, width) rows; computed at each call if bytes are stored."""
        return widen(self.codes, self.width) if self.holds_bytes else self.floats

    def with_floats(self) -> VectorBatch:
        """Return the same rows as floats, for work that reads them often."""
        if not self.holds_bytes:
            return self
        return VectorBatch("dense", dense=self.dense, norms=self.norms, copies=self.copies)

    @property
    def longest(self) -> int:
        """Number of slots of the longest sparse vector."""
        if self.count == 1:  # NumPy takes ten times as long
            return int(self.indptr[1] - self.indptr[0])
        return int(np.diff(self.indptr).max(initial=0))

    @property
    def numbers(self) -> int:
        """Count of numbers that a scan of all vectors reads."""
        return self.count * self.width if self.form == "dense" else len(self.values)


def widen(codes: UInt8s, width: int) -> Float32s:
    """Return the (n, width) numbers of the first ``width`` of (n, stride) bytes."""
    return codes[:, :width].astype(np.float32)


Batch = TypeVar("Batch", RawBatch, VectorBatch)


def round_up(count: int) -> int:
    """Return a count rounded up to whole vector registers, as for dense rows and samples."""
    return -(-count // LANES) * LANES


def row_width(form: Form, dim: int | None) -> int | None:
    """Return the length of a dense row in memory; None for sparse rows."""
    return round_up(dim) if form == "dense" and dim is not None else None


def row_padded(rows: VectorBatch, width: int) -> VectorBatch:
    """Return rows padded with zeros; ``width`` is ignored for sparse rows."""
    if rows.form == "sparse" or rows.width == width:
        return rows
    dense = np.pad(rows.dense, ((0, 0), (0, width - rows.width)))
    return VectorBatch("dense", dense=dense, norms=rows.norms)


def take_rows(indptr: Int64s, rows: slice | Int64s) -> tuple[Int64s, slice | Int64s]:
    """Return the borders of the chosen compressed rows, from 0 on, and their entries' places."""
    if isinstance(rows, slice):
        first, last, step = rows.indices(len(indptr) - 1)
        if step == 1:
            borders = indptr[first : max(first, last) + 1]
            entries = slice(borders[0], borders[-1])
            return borders if borders[0] == 0 else borders - borders[0], entries
        rows = np.arange(first, last, step)
    counts = np.diff(indptr)[rows]
    taken = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=taken[1:])
    shift = np.repeat(indptr[:-1][rows] - taken[:-1], counts)
    return taken, np.arange(taken[-1]) + shift


def concatenate(batches: Sequence[Batch]) -> Batch:
    """Return the vectors of several batches of one form, in order."""
    first, arrays = batches[0], dict[str, Any]()
    norms: list[str] = ["norms"] if isinstance(first, VectorBatch) else []
    entries = ["slots" if norms else "indices", "values"]
    for name in (["dense"] if first.form == "dense" else entries) + norms:
        arrays[name] = np.concatenate([getattr(batch, name) for batch in batches])
    if first.form == "sparse":
        counts = np.concatenate([[0], *(np.diff(batch.indptr) for batch in batches)])
        arrays["indptr"] = counts.cumsum().astype(np.int64)
    return type(first)(first.form, **arrays)
