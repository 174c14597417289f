"""Vectors in any form that Python knows: arrays, sparse matrices, dicts, lists of either."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from gcws_search.index import InvalidInput, InvalidVector
from gcws_search.index.contracts.arrays import AnyArray, Int64s

if TYPE_CHECKING:
    from gcws_search import index as ix

JsonVector = list[float] | dict[str, list[Any]]
"""A vector as the API shows it."""

FLOAT_BYTES: Final = 4
_ROWS_AND_COLUMNS: Final = 2
_MAX_INDEX: Final = 2**31 - 1


Find = Callable[[list[str]], Sequence[int]]
"""Returns the coordinates of different names; raises InvalidVector at ``(place,)``."""


@dataclass(frozen=True, slots=True)
class DenseRows:
    """Unchecked vectors by all their coordinates.

    Attributes
    ----------
    array : (n, dim) numbers of any type and order
    """

    array: AnyArray

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self.array)

    def part(self, rows: slice | Int64s) -> DenseRows:
        """Return some of the vectors."""
        return DenseRows(self.array[rows])

    def check(self, space: ix.VectorSpace, _find: Find | None = None) -> ix.RawBatch:
        """Return the vectors as the index takes them; InvalidVector names the first bad one."""
        return space.from_dense(self.array)

    def matrix(self) -> NDArray[np.float32]:
        """Return (n, dim) float32 in C order; the array itself where it is so."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.ascontiguousarray(self.array, np.float32)

    @property
    def row_bytes(self) -> int:
        """Bytes of one vector in float32."""
        return FLOAT_BYTES * int(self.array.shape[1])

    def json(self) -> Iterator[JsonVector]:
        """Yield each vector as the API takes it."""
        for row in self.matrix():
            yield row.tolist()


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Unchecked vectors by their non-zero coordinates, in compressed rows.

    Attributes
    ----------
    indptr : (n + 1,) int64
        Where each row begins, and where the last one ends.
    indices : (nnz,) integers
        Coordinates, or places in ``names``.
    values : (nnz,) numbers
    names : list of str, or None
        Of the coordinates, each once, where these are given by name.
    """

    indptr: Int64s
    indices: AnyArray
    values: AnyArray
    names: list[str] | None = None

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self.indptr) - 1

    def part(self, rows: slice | Int64s) -> SparseRows:
        """Return some of the vectors, with the names that these have."""
        if isinstance(rows, slice) and rows.step is None:
            first, last, _ = rows.indices(len(self))
            indptr = self.indptr[first : max(first, last) + 1]
            entries: slice | Int64s = slice(indptr[0], indptr[-1])
            indptr = indptr - indptr[0]
        else:
            chosen = np.arange(len(self))[rows]
            starts = self.indptr[chosen]
            indptr = np.zeros(len(chosen) + 1, np.int64)
            np.cumsum(self.indptr[chosen + 1] - starts, out=indptr[1:])
            entries = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], np.diff(indptr))
        indices, values = self.indices[entries], self.values[entries]
        if self.names is None:
            return SparseRows(indptr, indices, values)
        used, indices = np.unique(indices, return_inverse=True)
        return SparseRows(indptr, indices, values, [self.names[code] for code in used.tolist()])

    def check(self, space: ix.VectorSpace, find: Find | None = None) -> ix.RawBatch:
        """Return the vectors as the index takes them; InvalidVector names the first bad one."""
        return space.from_sparse(self.indptr, self.coordinates(find), self.values)

    def coordinates(self, find: Find | None) -> AnyArray:
        """Return the coordinate of each entry, (nnz,).

        Raises
        ------
        InvalidVector
            At ``(row, "names", place)``.
        """
        if self.names is None:
            return self.indices
        assert find is not None
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
        self, space: ix.VectorSpace, find: Find
    ) -> Iterator[tuple[ix.RawBatch | ix.SparseVector, list[str]]]:
        """Yield each query by name of a fixed space, and its names that the space does not have.

        A query with such names is a SparseVector; ``find`` gives them coordinates beyond ``dim``.

        Raises
        ------
        InvalidVector
            At ``(row, …)``.
        """
        from gcws_search.index import SparseVector  # noqa: PLC0415

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

    @property
    def row_bytes(self) -> int:
        """Bytes of a vector of mean length: indices and values."""
        return 2 * FLOAT_BYTES * (1 + len(self.values) // max(1, len(self)))

    def json(self) -> Iterator[JsonVector]:
        """Yield each vector as the API takes it."""
        values = self.values.astype(np.float32).tolist()
        keys = self.indices.tolist()
        word = "indices"
        if self.names is not None:
            word, keys = "names", [self.names[code] for code in keys]
        for start, stop in pairwise(self.indptr.tolist()):
            yield {word: keys[start:stop], "values": values[start:stop]}


Rows = DenseRows | SparseRows


def parse_rows(data: Any) -> Rows:
    """Return vectors of any kind as rows.

    Parameters
    ----------
    data : (n, dim) array, scipy sparse matrix, or sequence of vectors
        A vector of a sequence is a sequence of numbers, a dict of names or coordinates and their
        values, a set of these, or ``{"indices": […], "values": […]}``.

    Raises
    ------
    InvalidVector
        It is none of these.
    """
    if hasattr(data, "tocsr"):
        return _from_scipy(data)
    require_many(data)
    if not hasattr(data, "__array__"):
        data = list(data)
        if data and all(isinstance(each, Mapping | Set) for each in data):
            return _from_dicts([_weights(each) for each in data])
        if data and all(hasattr(each, "tocsr") for each in data):
            parts = [_from_scipy(each) for each in data]
            indptr = np.cumsum([0, *(n for part in parts for n in np.diff(part.indptr).tolist())])
            indices = np.concatenate([part.indices for part in parts])
            values = np.concatenate([part.values for part in parts])
            return SparseRows(indptr.astype(np.int64), indices, values)
    return DenseRows(_numbers(data))


def is_frame(data: Any) -> bool:
    """Return whether data have named columns."""
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "to_table")


def require_many(data: Any) -> None:
    """Raise InvalidVector for what people give in the place of vectors, saying what to give."""
    if isinstance(data, str | PathLike):
        hint = "`gcws-search load` loads files, and id= asks for an item"
    elif isinstance(data, Mapping):
        columns = any(isinstance(each, Sequence) for each in data.values())
        hint = "pandas.DataFrame(…) makes a frame of columns" if columns else "put it in a list"
    elif hasattr(data, "collect"):
        hint = ".collect() makes a frame of it"
    elif not isinstance(data, Iterable):
        hint = "put vectors in a list"
    else:
        return
    raise InvalidVector(expected="a list of vectors", got=f"{_article(data)}; {hint}")


def _article(what: Any) -> str:
    word = type(what).__name__
    return f"an {word}" if word[0].lower() in "aeiou" else f"a {word}"


def _weights(vector: Mapping[Any, Any] | Set[Any]) -> Mapping[Any, Any]:
    """Return a vector as a dict; everything in a set counts 1."""
    if isinstance(vector, Mapping):
        return vector
    return dict.fromkeys(sorted(vector, key=str), 1.0)


def is_id(what: Any) -> bool:
    """Return whether this is the id of an item, where a vector may stand too."""
    return isinstance(what, str | int | np.integer) and not isinstance(what, bool)


def row_of(vector: Any) -> Rows:
    """Return one vector of any kind as the only row; see `parse_rows`.

    Raises
    ------
    InvalidVector
        It is no vector, or several.
    """
    if isinstance(vector, Mapping | Set):
        return parse_rows([vector])
    if isinstance(vector, str):
        raise InvalidVector(
            expected="a vector", got=f"the string {vector!r:.40}; id= asks for an item"
        )
    if hasattr(vector, "tocsr"):
        rows: Rows = _from_scipy(vector)
    else:
        array = _numbers([vector] if np.ndim(vector) == 1 else vector)
        rows = DenseRows(array)
    if len(rows) != 1:
        raise InvalidVector(expected="one vector", got=f"{len(rows)}; `query_many` takes several")
    return rows


def _numbers(data: Any) -> NDArray[Any]:
    """Return a two-dimensional array of numbers."""
    try:
        if np.ma.is_masked(data):
            raise InvalidVector(
                expected="numbers everywhere", got="masked ones; .filled(0) makes them zeros"
            )
        array = np.asarray(data)
        if array.dtype.kind == "O":  # such as what pandas makes of mixed columns
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidVector(
            expected="vectors of numbers, all of one length", got=_lengths(data)
        ) from None
    if array.dtype.kind not in "fiub":
        hint = "; a text is a dict of words and weights" if array.dtype.kind in "US" else ""
        raise InvalidVector(expected="an array of numbers", got=f"an array of {array.dtype}{hint}")
    if array.ndim == 1 and not array.size:
        return array.reshape(0, 0)
    if array.ndim != _ROWS_AND_COLUMNS:
        raise InvalidVector(
            expected="an array of two dimensions, a row a vector",
            got="1 dimension; put a vector in a list"
            if array.ndim == 1
            else f"{array.ndim} dimensions",
        )
    return array


def _lengths(data: Any) -> str:
    """Return in words what a sequence of vectors holds that make no array."""
    for number, vector in enumerate(data):
        if hasattr(vector, "GetNonzeroElements"):
            return f"{_article(vector)}; GetNonzeroElements() makes a dict of it"
        if not hasattr(vector, "__len__") or isinstance(vector, str):
            return f"{vector!r:.40} as vector {number}"
        if len(vector) != len(data[0]):
            return f"{len(vector)} values in vector {number}, {len(data[0])} in vector 0"
    return "values that are no numbers"


def _from_scipy(matrix: Any) -> SparseRows:
    """Return the rows of a sparse matrix or array; entries given twice are added up."""
    compressed = matrix.tocsr()
    if compressed.ndim == 1:
        indptr = np.array([0, compressed.nnz], np.int64)
        return SparseRows(indptr, compressed.indices, compressed.data)
    if not compressed.has_canonical_format:
        compressed = compressed.copy()
        compressed.sum_duplicates()
    return SparseRows(compressed.indptr.astype(np.int64), compressed.indices, compressed.data)


def _from_dicts(vectors: Sequence[Mapping[Any, Any]]) -> SparseRows:
    """Return the rows of dicts: ``{name: value}``, ``{index: value}``, or as JSON has them."""
    pairs = [_coordinates(vector, row) for row, vector in enumerate(vectors)]
    indptr = np.zeros(len(pairs) + 1, np.int64)
    np.cumsum([len(keys) for keys, _ in pairs], out=indptr[1:])
    keys = list(chain.from_iterable(keys for keys, _ in pairs))
    kinds = set(map(type, keys))
    try:
        values = np.array([*chain.from_iterable(values for _, values in pairs)], np.float64)
    except (TypeError, ValueError):
        raise InvalidVector(expected="numbers as values", got=_odd(pairs)) from None
    if kinds and all(issubclass(kind, str) for kind in kinds):
        names = [*dict.fromkeys(keys)]
        places = dict(zip(names, range(len(names)), strict=True))
        codes = np.fromiter(map(places.__getitem__, keys), np.int64, len(keys))
        return SparseRows(indptr, codes, values, names)
    if any(not issubclass(kind, int | np.integer) or issubclass(kind, bool) for kind in kinds):
        raise InvalidVector(
            expected="coordinates that are all names or all whole numbers",
            got=" and ".join(sorted(kind.__name__ for kind in kinds)),
        )
    if max(keys, default=0) > _MAX_INDEX:
        raise InvalidVector(
            expected=f"coordinates of at most {_MAX_INDEX}, or names (str) for larger ones",
            got=str(max(keys)),
        )
    return SparseRows(indptr, np.array(keys, np.int64), values)


def _coordinates(vector: Mapping[Any, Any], row: int) -> tuple[list[Any], list[Any]]:
    for word in ("indices", "names"):
        if set(vector) == {word} or set(vector) == {word, "values"}:
            keys = vector[word]
            if isinstance(keys, str | int | float):
                break  # a vector with a coordinate of that name
            values = vector.get("values", [1.0] * len(keys))
            if len(keys) != len(values):
                got = f"{len(keys)} and {len(values)}"
                raise InvalidVector(expected=f"as many {word} as values", got=got, loc=(row,))
            return list(keys), list(values)
    return list(vector), list(vector.values())


def _odd(pairs: Sequence[tuple[list[Any], list[Any]]]) -> str:
    values = chain.from_iterable(values for _, values in pairs)
    return repr(next((v for v in values if not isinstance(v, int | float)), "others"))[:40]


def bad_rows(count: int, check: Callable[[slice], object]) -> dict[int, InvalidInput]:
    """Find the rows that a check of many rows at once refuses, by halving: a few checks a bad row.

    Parameters
    ----------
    check : callable
        Raises InvalidInput when any row of the slice is bad.
    """
    bad: dict[int, InvalidInput] = {}
    stretches = [(0, count)] if count else []
    while stretches:
        first, last = stretches.pop()
        try:
            check(slice(first, last))
        except InvalidInput as error:
            if last - first == 1:
                bad[first] = error
            else:
                middle = (first + last) // 2
                stretches += [(middle, last), (first, middle)]
    return bad
