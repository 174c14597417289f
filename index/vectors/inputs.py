"""Unchecked vectors, as they come from a client, a file or a body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Float32s, Int64s
from gcws_search.index.contracts.batches import (
    JsonVector,
    RawBatch,
    SparseVector,
    Text,
    named_vector,
    take_rows,
)
from gcws_search.index.contracts.errors import InvalidInput, InvalidVector, quantity

if TYPE_CHECKING:
    from gcws_search.index.vectors.space import VectorSpace

E = TypeVar("E", bound=InvalidInput)

OneVector = AnyArray | SparseVector | Text
Find = Callable[[Sequence[str]], Sequence[int]]
"""Returns the coordinates of different names; raises InvalidVector at ``(place,)``."""

_FLOAT_BYTES: Final = 4
_NO_INDPTR: Final = np.zeros(1, np.int64)
_NO_ENTRIES: Final = np.empty(0, np.int64)


@dataclass(slots=True, init=False, eq=False)
class InputVectors:
    """Unchecked vectors: all dense, all sparse, or a list of texts or of vectors in mixed forms."""

    dense: AnyArray | None  # (n, dim) numbers of any type and order
    indptr: Int64s  # (n + 1,) the start of each sparse row, and the end of the last one
    indices: AnyArray  # (nnz,) integers: coordinates, or indices of ``names``
    values: AnyArray  # (nnz,) numbers
    names: list[str] | None  # distinct names of the coordinates, if these are given by name
    columns: list[str] | None  # names of a dense matrix's columns; `check` ignores them
    mixed: list[OneVector] | None

    def __init__(
        self,
        dense: AnyArray | None = None,
        *,
        columns: list[str] | None = None,
        mixed: list[OneVector] | None = None,
    ) -> None:
        self.dense, self.columns, self.mixed, self.names = dense, columns, mixed, None
        self.indptr, self.indices, self.values = _NO_INDPTR, _NO_ENTRIES, _NO_ENTRIES

    @classmethod
    def sparse(
        cls, indptr: Int64s, indices: AnyArray, values: AnyArray, names: list[str] | None = None
    ) -> InputVectors:
        """Return vectors in compressed rows."""
        found = cls()
        found.indptr, found.indices, found.values, found.names = indptr, indices, values, names
        return found

    def __len__(self) -> int:
        if self.dense is not None:
            return len(self.dense)
        return len(self.indptr) - 1 if self.mixed is None else len(self.mixed)

    def part(self, rows: slice | Int64s) -> InputVectors:
        """Return some of the vectors, with their names."""
        if self.dense is not None:
            return InputVectors(self.dense[rows], columns=self.columns)
        if self.mixed is not None:
            numbers = np.arange(len(self.mixed))[rows].tolist()
            return InputVectors(mixed=[self.mixed[number] for number in numbers])
        indptr, entries = take_rows(self.indptr, rows)
        indices, values = self.indices[entries], self.values[entries]
        if self.names is None:
            return InputVectors.sparse(indptr, indices, values)
        is_used = np.zeros(len(self.names), np.bool_)
        is_used[indices] = True
        if is_used.all():
            return InputVectors.sparse(indptr, indices, values, self.names)
        names = [self.names[code] for code in np.flatnonzero(is_used).tolist()]
        return InputVectors.sparse(indptr, (np.cumsum(is_used) - 1)[indices], values, names)

    def check(self, space: VectorSpace, find: Find) -> RawBatch:
        """Return the vectors in the form of the index; raise InvalidVector at the first bad row."""
        if space.text is not None:
            return self._check_texts(space)
        if self.dense is not None:
            return space.from_dense(self.dense)
        if self.mixed is None:
            return space.from_sparse(self.indptr, self.coordinates(find), self.values)
        rows: list[AnyArray | SparseVector] = []
        for row, vector in enumerate(self.mixed):
            try:
                if isinstance(vector, Text):
                    space.from_texts([vector.text])
                elif isinstance(vector, SparseVector):
                    rows.append(with_coordinates(vector, find))
                else:
                    rows.append(vector)
            except InvalidVector as error:
                raise error.at(row, skip=isinstance(vector, Text)) from None
        return space.from_items(rows)

    def _check_texts(self, space: VectorSpace) -> RawBatch:
        """Return texts in the form of the index."""
        texts: list[str] = []
        for row, vector in enumerate(self.mixed or ()):
            if not isinstance(vector, Text):
                space.refuse_vectors(row)
            else:
                texts.append(vector.text)
        if len(texts) < len(self):
            space.refuse_vectors(0)
        return space.from_texts(texts)

    @property
    def texts(self) -> list[str] | None:
        """The texts, if all vectors are texts; else None."""
        if not self.mixed or not all(isinstance(each, Text) for each in self.mixed):
            return None
        return [each.text for each in self.mixed if isinstance(each, Text)]

    def coordinates(self, find: Find) -> AnyArray:
        """Return the (nnz,) coordinates; raise InvalidVector at ``(row, "names", place)``."""
        if self.names is None:
            return self.indices
        row_of = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        _, firsts = np.unique(row_of * len(self.names) + self.indices, return_index=True)
        if len(firsts) < len(self.indices):
            at = int(np.setdiff1d(np.arange(len(self.indices)), firsts)[0])
            name = self.names[self.indices[at]]
            raise self._error(at, "different names", f"{name!r:.80} twice")
        try:
            coordinates = np.array(find(self.names), np.int64)
        except InvalidVector as error:
            at = int(np.flatnonzero(self.indices == error.loc[0])[0])
            raise self._error(at, error.expected, error.got) from None
        return coordinates[self.indices]

    def _error(self, entry: int, expected: str, got: str) -> InvalidVector:
        row = int(np.searchsorted(self.indptr, entry, side="right")) - 1
        place = entry - int(self.indptr[row])
        return InvalidVector(expected=expected, got=got, loc=(row, "names", place))

    def one_by_one(
        self, space: VectorSpace, find: Find
    ) -> Iterator[tuple[RawBatch | SparseVector, list[str]]]:
        """Yield each query by names of a fixed space, with its names that the space does not have.

        A query with unknown names is a SparseVector with coordinates from ``dim`` on for these.
        Raises InvalidVector at ``(row, …)``.
        """
        assert self.names is not None
        coordinates, dim = self.coordinates(find), space.dim or 0
        for row, (start, stop) in enumerate(pairwise(self.indptr.tolist())):
            indices, values = coordinates[start:stop].copy(), self.values[start:stop]
            beyond = indices >= dim
            if beyond.any():
                indices[beyond] = dim + np.arange(np.count_nonzero(beyond))
                unknown = [self.names[code] for code in self.indices[start:stop][beyond].tolist()]
                yield SparseVector(indices, values), unknown
                continue
            try:
                yield space.from_sparse(np.array([0, len(indices)]), indices, values), []
            except InvalidVector as error:
                error.loc = (row, *error.loc[1:])
                raise

    def matrix(self) -> Float32s:
        """Return dense vectors as (n, dim) float32 in C order; not copied if they are."""
        assert self.dense is not None
        with np.errstate(over="ignore", invalid="ignore"):
            return np.ascontiguousarray(self.dense, np.float32)

    @property
    def row_bytes(self) -> int:
        """Bytes of a dense vector in float32, of the mean sparse vector's numbers, or of a text."""
        if texts := self.texts:
            return sum(map(len, texts)) // len(texts)
        if self.dense is not None:
            return _FLOAT_BYTES * int(self.dense.shape[1])
        return 2 * _FLOAT_BYTES * (1 + len(self.values) // max(1, len(self)))

    def json(self) -> Iterator[JsonVector]:
        """Yield each dense or sparse vector in the form of the API."""
        if self.dense is not None:
            for row in self.matrix():
                yield row.tolist()
            return
        with np.errstate(over="ignore"):  # infinities are refused later
            values = self.values.astype(np.float32).tolist()
        keys = self.indices.tolist()
        word = "indices"
        if self.names is not None:
            word, keys = "names", [self.names[code] for code in keys]
        for start, stop in pairwise(self.indptr.tolist()):
            yield {word: keys[start:stop], "values": values[start:stop]}

    def first(self) -> OneVector:
        """Return only the first vector; dense ones in float32."""
        if self.dense is not None:
            row: Float32s = self.part(slice(0, 1)).matrix()[0]
            return row
        if self.mixed is not None:
            return self.mixed[0]
        entries = slice(self.indptr[0], self.indptr[1])
        indices, values = self.indices[entries], self.values[entries]
        if self.names is None:
            return SparseVector(indices, values)
        return named_vector([self.names[code] for code in indices.tolist()], values)


def with_coordinates(vector: SparseVector, find: Find) -> SparseVector:
    """Return a vector without names; raise InvalidVector at ``("names", place)`` or ``()``."""
    if vector.names is None:
        return vector
    require_different_names(vector)
    try:
        return SparseVector(find(vector.names), vector.values)
    except InvalidVector as error:
        raise error.at("names") from None


def require_different_names(vector: OneVector) -> None:
    """Raise InvalidVector unless a vector with names has one name per value, all distinct."""
    if not isinstance(vector, SparseVector) or vector.names is None:
        return
    names, count = vector.names, len(vector.values)
    if len(names) != count:
        raise InvalidVector(
            expected="as many names as values",
            got=f"{quantity(len(names), 'name')}, {quantity(count, 'value')}",
        )
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for place, name in enumerate(names):
        if name in seen:
            raise InvalidVector(
                expected="different names", got=f"{name!r:.80} twice", loc=("names", place)
            )
        seen.add(name)


def bad_rows(count: int, check: Callable[[slice], object], kind: type[E]) -> dict[int, E]:
    """Find the rows for which a check raises, by halving slices: a few calls per bad row."""
    bad: dict[int, E] = {}
    runs = [(0, count)] if count else []
    while runs:
        first, last = runs.pop()
        try:
            check(slice(first, last))
        except kind as error:
            if last - first == 1:
                bad[first] = error.with_traceback(None)  # its frames refer to the checked data
            else:
                middle = (first + last) // 2
                runs += [(middle, last), (first, middle)]
    return bad
