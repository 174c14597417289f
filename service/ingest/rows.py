"""A chunk of a load: ids, payloads, and vectors that are not validated yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import numpy as np

from gcws_search import index as ix
from gcws_search.index import AnyArray, Int64s
from gcws_search.service.errors import InvalidRequest, MalformedBody
from gcws_search.service.ingest.names import Naming
from gcws_search.service.problems import place


class RowError(MalformedBody):
    """A row that cannot be read at all.

    Attributes
    ----------
    row : int
        Its number in the whole load.
    """

    def __init__(self, row: int, detail: str) -> None:
        self.row = row
        super().__init__(f"row {row}: {detail}")


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that cannot be stored.

    Attributes
    ----------
    number : int
        Its number in the whole load.
    error : Exception
        Why; its place begins with the row.
    """

    number: int
    error: Exception

    @classmethod
    def of(cls, number: int, error: Exception, *inner: str) -> Reject:
        """Return the reject for what is wrong with one row, or with its field ``inner``.

        ``error`` says it of the row itself, without its number.
        """
        match error:
            case ix.InvalidInput():
                return cls(number, error.at("rows", number, *inner))
            case ix.ItemExists():
                return cls(number, ix.ItemExists(error.item_id, number))
            case InvalidRequest():
                found = [(("rows", number, *loc), message) for loc, message in error.errors]
                return cls(number, InvalidRequest(error.code, found, place(*found[0])))
        return cls(number, RowError(number, str(error)))


class Vectors(Protocol):
    """Unchecked vectors."""

    def __len__(self) -> int:
        """Return how many."""

    def part(self, rows: slice | Int64s) -> Vectors:
        """Return some of them."""

    def check(self, space: ix.VectorSpace, naming: Naming) -> ix.RawBatch:
        """Return them checked; InvalidVector names the first bad one."""


@dataclass(frozen=True, slots=True)
class DenseVectors:
    """``array``: (n, dim) numbers of any type."""

    array: AnyArray

    def __len__(self) -> int:
        """Return how many."""
        return len(self.array)

    def part(self, rows: slice | Int64s) -> DenseVectors:
        """Return some of them."""
        return DenseVectors(self.array[rows])

    def check(self, space: ix.VectorSpace, _naming: Naming) -> ix.RawBatch:
        """Return them checked."""
        return space.from_dense(self.array)


@dataclass(frozen=True, slots=True)
class SparseVectors:
    """Compressed rows: ``indptr`` (n + 1,), ``indices`` and ``values`` (nnz,)."""

    indptr: Int64s
    indices: AnyArray
    values: AnyArray

    def __len__(self) -> int:
        """Return how many."""
        return len(self.indptr) - 1

    def part(self, rows: slice | Int64s) -> SparseVectors:
        """Return some of them."""
        chosen = np.arange(len(self))[rows]
        starts = self.indptr[chosen]
        counts = self.indptr[chosen + 1] - starts
        indptr = np.zeros(len(chosen) + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        take = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], counts)
        return SparseVectors(indptr, self.indices[take], self.values[take])

    def check(self, space: ix.VectorSpace, _naming: Naming) -> ix.RawBatch:
        """Return them checked."""
        return space.from_sparse(self.indptr, self.indices, self.values)


@dataclass(frozen=True, slots=True)
class MixedVectors:
    """Vectors of any form: arrays, `SparseVector` and `NamedVector`."""

    vectors: list[AnyArray | ix.SparseVector | ix.NamedVector]

    def __len__(self) -> int:
        """Return how many."""
        return len(self.vectors)

    def part(self, rows: slice | Int64s) -> MixedVectors:
        """Return some of them."""
        if isinstance(rows, slice):
            return MixedVectors(self.vectors[rows])
        return MixedVectors([self.vectors[row] for row in rows])

    def check(self, space: ix.VectorSpace, naming: Naming) -> ix.RawBatch:
        """Return them checked."""
        rows: list[AnyArray | ix.SparseVector] = []
        for row, vector in enumerate(self.vectors):
            if not isinstance(vector, ix.NamedVector):
                rows.append(vector)
                continue
            try:
                indices = naming.named(vector.names, len(vector.values))
            except ix.InvalidVector as error:
                raise error.at(row) from None
            rows.append(ix.SparseVector(indices, vector.values))
        return space.from_items(rows)


@dataclass(frozen=True, slots=True)
class NamedVectors:
    """Compressed rows of names.

    Attributes
    ----------
    indptr : (n + 1,) int64
    names : list of str
        Each once.
    codes : (nnz,) int64
        Places in ``names``.
    values : (nnz,) numbers
    """

    indptr: Int64s
    names: list[str]
    codes: Int64s
    values: AnyArray

    def __len__(self) -> int:
        """Return how many."""
        return len(self.indptr) - 1

    def part(self, rows: slice | Int64s) -> NamedVectors:
        """Return some of them."""
        some = SparseVectors(self.indptr, self.codes, self.values).part(rows)
        used, codes = np.unique(some.indices, return_inverse=True)
        names = [self.names[place] for place in used.tolist()]
        return NamedVectors(some.indptr, names, codes.astype(np.int64), some.values)

    def check(self, space: ix.VectorSpace, naming: Naming) -> ix.RawBatch:
        """Return them checked."""
        return space.from_sparse(self.indptr, self.coordinates(naming), self.values)

    def coordinates(self, naming: Naming) -> Int64s:
        """Return the coordinate of each entry, (nnz,).

        Raises
        ------
        InvalidVector
            At ``(row, "names", place)``.
        """
        row_of = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        _, firsts = np.unique(row_of * len(self.names) + self.codes, return_index=True)
        if len(firsts) < len(self.codes):
            at = int(np.setdiff1d(np.arange(len(self.codes)), firsts)[0])
            raise self._at(at, "different names", f"{self.names[self.codes[at]]!r:.80} twice")
        try:
            coordinates = np.array(naming.coordinates(self.names), np.int64)
        except ix.InvalidVector as error:
            first = int(np.flatnonzero(self.codes == error.loc[0])[0])
            raise self._at(first, error.expected, error.got) from None
        return coordinates[self.codes]

    def one_by_one(
        self, space: ix.VectorSpace, naming: Naming
    ) -> Iterator[tuple[ix.RawBatch | ix.SparseVector, list[str]]]:
        """Yield each vector, and its names that a fixed space does not have: then a SparseVector.

        Raises
        ------
        InvalidVector
            At ``(row, …)``.
        """
        coordinates, dim = self.coordinates(naming), space.dim or 0
        for row, (start, stop) in enumerate(pairwise(self.indptr.tolist())):
            indices, values = coordinates[start:stop].copy(), self.values[start:stop]
            beyond = indices >= dim
            if beyond.any():
                indices[beyond] = dim + np.arange(np.count_nonzero(beyond))
                unknown = [self.names[code] for code in self.codes[start:stop][beyond].tolist()]
                yield ix.SparseVector(indices, values), unknown
                continue
            try:
                yield space.from_sparse(np.array([0, len(indices)]), indices, values), []
            except ix.InvalidVector as error:
                error.loc = (row, *error.loc[1:])
                raise

    def _at(self, entry: int, expected: str, got: str) -> ix.InvalidVector:
        row = int(np.searchsorted(self.indptr, entry, side="right")) - 1
        place = entry - int(self.indptr[row])
        return ix.InvalidVector(expected=expected, got=got, loc=(row, "names", place))


@dataclass(frozen=True, slots=True)
class ItemRows:
    """A chunk of a load.

    Attributes
    ----------
    numbers : (n,) int64
        Each row's number in the whole load.
    ids : list of n str or None
        None: the collection numbers the item.
    vectors : Vectors
        n of them.
    rejects : list of Reject
        Rows of this stretch that are unreadable and not among the n.
    size : int
        Bytes of the body up to the end of this stretch.
    """

    numbers: Int64s
    ids: list[str | None]
    payloads: list[bytes | None]
    vectors: Vectors
    rejects: list[Reject] = field(default_factory=list)
    size: int = 0

    def __len__(self) -> int:
        """Return the number of readable rows."""
        return len(self.ids)

    @property
    def end(self) -> int:
        """The number of the row behind this stretch."""
        rejected = max((reject.number for reject in self.rejects), default=-1)
        return 1 + max(rejected, int(self.numbers[-1]) if len(self) else -1)

    def after(self, number: int) -> ItemRows:
        """Return what there is of this stretch from a row on."""
        first = int(np.searchsorted(self.numbers, number))
        rejects = [reject for reject in self.rejects if reject.number >= number]
        if not first and len(rejects) == len(self.rejects):
            return self
        chosen = self.part(np.arange(first, len(self)))
        return replace(chosen, rejects=rejects, size=self.size)

    def part(self, rows: Int64s) -> ItemRows:
        """Return some of the readable rows, without rejects."""
        return ItemRows(
            self.numbers[rows],
            [self.ids[row] for row in rows],
            [self.payloads[row] for row in rows],
            self.vectors.part(rows),
        )
