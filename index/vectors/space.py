"""The vector space: the only place where input becomes arrays; its errors explain bad input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Float32s, Int32s, Int64s
from gcws_search.index.contracts.batches import (
    RawBatch,
    SparseVector,
    VectorBatch,
    concatenate,
    round_up,
)
from gcws_search.index.contracts.errors import InvalidVector, Loc, quantity
from gcws_search.index.contracts.parameters import (
    MAX_DIM,
    CollectionConfig,
    Form,
    TextParams,
    Transform,
)
from gcws_search.index.kernels.gmm.rows import dense_norms, sparse_norms, transform_rows
from gcws_search.index.vectors.texts import rows_of_texts
from gcws_search.index.vectors.weights import Weights, fixed

MAX_NORM: Final = 8e37
"""Largest L1 norm of a vector: two norms and a distance of two must sum to a finite float32."""
_ROWS_AND_COLUMNS: Final = 2
_NORM_ORDERS: Final = {"none": 0, "l1": 1, "l2": 2}


def numbers(values: Any, kinds: str, loc: Loc) -> AnyArray:  # noqa: ANN401 (whatever was sent)
    """Return an array of permitted kinds of numbers; strings and fractions are not converted.

    kinds: permitted kinds of dtype, of "i", "u", "f". Raises InvalidVector at ``loc``.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidVector(expected="numbers", got=str(error), loc=loc) from error
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in kinds:
        got = f"{array.dtype.name} among them"
        if array.dtype == object and all(isinstance(each, int) for each in array.flat):
            got = "one beyond 64 bits"
        expected = "numbers" if "f" in kinds else "integers"
        raise InvalidVector(expected=expected, got=got, loc=loc)
    return array


def flat(values: Any, kinds: str, loc: Loc) -> AnyArray:  # noqa: ANN401 (whatever was sent)
    """Return the result of `numbers`; nested lists are refused."""
    array = numbers(values, kinds, loc)
    if array.ndim != 1:
        raise InvalidVector(expected="numbers", got="lists of them", loc=loc)
    return array


def bad_row(
    floats: Float32s, raw: AnyArray, columns: Int32s | None, norm: float, row: int
) -> InvalidVector:
    """Return which number makes a row's norm zero, too large or not finite."""
    if norm == 0:
        return InvalidVector(
            expected="a vector with a non-zero value", got="all zeros in float32", loc=(row,)
        )
    bad = np.flatnonzero(~np.isfinite(floats))
    if len(bad):
        at = int(bad[0])
        name: tuple[str | int, ...] = (at,) if columns is None else ("values", at)
        return InvalidVector(
            expected="a finite float32", got=repr(raw[at].item()), loc=(row, *name)
        )
    return InvalidVector(
        expected=f"an L1 norm of at most {MAX_NORM:g}", got=f"{norm:g}", loc=(row,)
    )


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """Which vectors a collection accepts, and how they become rows."""

    dim: int | None
    form: Form  # how rows are stored; input in the other form is converted
    transform: Transform
    weights: Weights | None = None  # those of the transform; None until they are learned
    text: TextParams | None = None  # how texts become vectors; None if texts are not accepted
    word: str = field(init=False)  # the API's name for the input of a row
    is_plain: bool = field(init=False)  # whether the transform leaves vectors unchanged

    def __post_init__(self) -> None:
        """Check once whether the transform has no effect."""
        object.__setattr__(self, "word", "vector" if self.text is None else "text")
        given = self.transform.weights
        if self.weights is None and isinstance(given, tuple):
            object.__setattr__(self, "weights", fixed(given))
        rest = replace(self.transform, weights=None)
        object.__setattr__(self, "is_plain", self.weights is None and rest == Transform())

    @classmethod
    def of(cls, config: CollectionConfig, weights: Weights | None = None) -> VectorSpace:
        """Return the space of a collection; ``weights`` are those of its file."""
        return cls(config.dim, config.form, config.transform, weights, config.text)

    def from_texts(self, texts: Sequence[str]) -> RawBatch:
        """Return the rows of texts; InvalidVector at ``(row,)`` for a text without tokens."""
        if self.text is None:
            raise InvalidVector(
                expected="a vector (this is not a collection of texts)", got="a text", loc=(0,)
            )
        return rows_of_texts(texts, self.text)

    def refuse_vectors(self, *loc: int) -> None:
        """Raise InvalidVector if the space accepts only texts."""
        if self.text is not None:
            raise InvalidVector(
                expected="`text` (this is a collection of texts)", got="a vector", loc=loc
            )

    def widened(self, count: int) -> VectorSpace:
        """Return a dense space with ``count`` more coordinates, which are not centred."""
        transform, weights = self.transform, self.weights
        if transform.center is not None:
            transform = replace(transform, center=(*transform.center, *[0.0] * count))
        weights = None if weights is None else weights.widened(count)
        return VectorSpace((self.dim or 0) + count, "dense", transform, weights)

    def from_dense(self, array: AnyArray, *, first_row: int = 0) -> RawBatch:
        """Check (n, dim) integers or floats: vectors given by all their coordinates.

        The batch shares their memory if nothing had to be converted. Errors count rows from
        ``first_row`` on. Raises InvalidVector for a wrong length, a number that is not finite in
        float32, or an all-zero vector.
        """
        if self.dim is None:
            self.refuse_vectors(first_row)
            raise InvalidVector(
                expected="a sparse vector (the collection has no fixed dim)",
                got="a dense one",
                loc=(first_row,),
            )
        if array.ndim != _ROWS_AND_COLUMNS or array.dtype.kind not in "fiub":
            raise InvalidVector(
                expected="a two-dimensional array of numbers",
                got=f"{quantity(array.ndim, 'dimension')} of {array.dtype}",
            )
        if array.shape[1] != self.dim:
            raise InvalidVector(
                expected=quantity(self.dim, "value"),
                got=quantity(array.shape[1], "value"),
                loc=(first_row,),
            )
        usable = array.dtype == np.float32 and array.flags.carray
        dense = array
        if not usable:
            with np.errstate(over="ignore", invalid="ignore"):
                dense = array.astype(np.float32, order="C")
        norms = np.empty(len(dense), np.float64)
        dense_norms(dense, norms)
        alone = len(norms) == 1 and 0 < norms.item() <= MAX_NORM  # the usual query
        for row in () if alone else np.flatnonzero(~((norms > 0) & (norms <= MAX_NORM)))[:1]:
            raise bad_row(
                dense[row], np.asarray(array[row]), None, norms[row], first_row + int(row)
            )
        if self.form == "sparse":
            return _compress(dense)
        return RawBatch("dense", dense=dense, norms=norms)

    def from_sparse(
        self, indptr: AnyArray, indices: AnyArray, values: AnyArray, *, first_row: int = 0
    ) -> RawBatch:
        """Check vectors given by their non-zero coordinates, in compressed rows.

        Indices are in any order within a row; explicit zeros are dropped. Raises InvalidVector for
        lists of unequal length, an invalid indptr, a duplicate, negative or too large index, a
        number that is not finite in float32, or an all-zero vector.
        """
        if len(indptr) - 1 == 1 and indptr[0] == 0 and indptr[1] == len(indices):
            usual = self._usual(SparseVector(indices, values))
            if usual is not None:
                return usual
        indptr = np.require(indptr, np.int64, ["C", "W"])
        n = len(indptr) - 1
        if len(indices) != len(values):
            raise InvalidVector(
                expected="as many indices as values",
                got=f"{len(indices)} indices, {quantity(len(values), 'value')}",
                loc=(first_row,),
            )
        if n < 0 or indptr[0] != 0 or indptr[-1] != len(indices) or np.any(np.diff(indptr) < 0):
            raise InvalidVector(
                expected=f"increasing row offsets from 0 to {len(indices)}",
                got="others",
                loc=(first_row,),
            )
        if len(indices) and indices.dtype.kind not in "iu":
            raise InvalidVector(
                expected="integer indices", got=str(indices.dtype), loc=(first_row, "indices")
            )
        row_of = np.repeat(np.arange(n), np.diff(indptr))
        self._check_indices(indptr, row_of, indices, first_row)
        with np.errstate(over="ignore", invalid="ignore"):
            floats = np.require(values, np.float32, ["C", "W"])
        columns = indices.astype(np.int32)
        norms = np.empty(n, np.float64)
        sparse_norms(indptr, floats, norms)
        for row in np.flatnonzero(~((norms > 0) & (norms <= MAX_NORM)))[:1]:
            entries = slice(indptr[row], indptr[row + 1])
            raise bad_row(
                floats[entries], values[entries], columns[entries], norms[row], first_row + int(row)
            )
        same_row = row_of[1:] == row_of[:-1]
        if np.any(same_row & (columns[1:] <= columns[:-1])):
            order = np.lexsort((columns, row_of))
            columns, floats = columns[order], floats[order]
            equal = np.flatnonzero(same_row & (columns[1:] == columns[:-1]))
            if len(equal):
                raise InvalidVector(
                    expected="distinct indices",
                    got=f"index {columns[equal[0]]} twice",
                    loc=(first_row + int(row_of[equal[0]]), "indices"),
                )
        keep = floats != 0
        if not keep.all():
            columns, floats = columns[keep], floats[keep]
            indptr = _borders(np.bincount(row_of[keep], minlength=n))
        raw = RawBatch("sparse", indptr=indptr, indices=columns, values=floats)
        return raw if self.form == "sparse" else self._expand(raw)

    def _check_indices(
        self, indptr: Int64s, row_of: Int64s, indices: AnyArray, first_row: int
    ) -> None:
        bound = self.dim if self.dim is not None else MAX_DIM + 1
        outside = np.flatnonzero((indices < 0) | (indices >= bound))
        if len(outside):
            at = int(outside[0])
            row = int(row_of[at])
            raise InvalidVector(
                expected=f"an index from 0 to {bound - 1}",
                got=str(indices[at]),
                loc=(first_row + row, "indices", at - int(indptr[row])),
            )

    def from_items(self, vectors: Sequence[Sequence[float] | Float32s | SparseVector]) -> RawBatch:
        """Check vectors in mixed forms, for example from JSON, like the other methods."""
        if not vectors:
            return self.empty()
        if len(vectors) == 1 and isinstance(vectors[0], SparseVector):
            usual = self._usual(vectors[0])
            if usual is not None:
                return usual
        if not any(isinstance(vector, SparseVector) for vector in vectors):
            return self._stack_dense(vectors, 0)
        pieces: list[RawBatch] = []
        for sparse, run in groupby(vectors, key=lambda vector: isinstance(vector, SparseVector)):
            stack = self._stack_sparse if sparse else self._stack_dense
            pieces.append(stack(list(run), sum(map(len, pieces))))
        return concatenate(pieces)

    def _usual(self, vector: SparseVector) -> RawBatch | None:
        """Return a vector with nothing to sort, drop or refuse; None for any other vector.

        Most queries are such vectors; the general path takes five times as long.
        """
        try:
            columns, weights = np.asarray(vector.indices), np.asarray(vector.values)
        except (TypeError, ValueError, OverflowError):
            return None
        if not columns.ndim == weights.ndim == 1 or not (count := len(columns)) == len(weights) > 0:
            return None
        if columns.dtype not in (np.int64, np.int32) or weights.dtype.kind != "f":
            return None
        bound = self.dim if self.dim is not None else MAX_DIM + 1
        if columns[0] < 0 or columns[-1] >= bound or (columns[1:] <= columns[:-1]).any():
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            floats = weights.astype(np.float32)
        indptr, norms = np.array([0, count], np.int64), np.empty(1, np.float64)
        sparse_norms(indptr, floats, norms)
        if not 0 < norms.item() <= MAX_NORM or np.count_nonzero(floats) < count:
            return None
        raw = RawBatch("sparse", indptr=indptr, indices=columns.astype(np.int32), values=floats)
        return raw if self.form == "sparse" else self._expand(raw)

    def _stack_sparse(self, vectors: Sequence[Any], first_row: int) -> RawBatch:
        indices, values = [], []
        for row, vector in enumerate(vectors, first_row):
            if len(vector.indices) != len(vector.values):
                raise InvalidVector(
                    expected="as many indices as values",
                    got=f"{len(vector.indices)} indices, {quantity(len(vector.values), 'value')}",
                    loc=(row,),
                )
            columns = flat(vector.indices, "iu", (row, "indices"))
            if columns.dtype.kind == "u":  # too large for any space, or the caller's own array
                self._check_indices(np.array([0, len(columns)]), 0 * columns, columns, row)
            indices.append(columns.astype(np.int64))
            values.append(flat(vector.values, "iuf", (row, "values")))
        indptr = _borders([len(columns) for columns in indices])
        return self.from_sparse(
            indptr, np.concatenate(indices), np.concatenate(values), first_row=first_row
        )

    def _stack_dense(self, vectors: Sequence[Any], first_row: int) -> RawBatch:
        for row, vector in enumerate(vectors):
            if self.dim is not None and len(vector) != self.dim:
                raise InvalidVector(
                    expected=quantity(self.dim, "value"),
                    got=quantity(len(vector), "value"),
                    loc=(first_row + row,),
                )
        try:  # from_dense explains why there is no dim
            array = np.empty(0) if self.dim is None else numbers(vectors, "iuf", (first_row,))
        except InvalidVector:
            for row, vector in enumerate(vectors):
                numbers(vector, "iuf", (first_row + row,))
            raise
        return self.from_dense(array, first_row=first_row)

    def empty(self) -> RawBatch:
        """Return an empty batch."""
        if self.form == "dense":
            return RawBatch("dense", dense=np.empty((0, self.dim or 0), np.float32))
        return RawBatch("sparse")

    def _expand(self, raw: RawBatch) -> RawBatch:
        dense = np.zeros((raw.count, self.dim or 0), np.float32)
        dense[np.repeat(np.arange(len(raw)), np.diff(raw.indptr)), raw.indices] = raw.values
        return RawBatch("dense", dense=dense)

    def prepare(self, raw: RawBatch) -> VectorBatch:
        """Apply the transform, and number the slots ([GMM] eq. 4 and 7, [TUNE]).

        Raises InvalidVector if a vector becomes all zero, or too large for float32.
        """
        unchanged = self.is_plain
        values = raw.dense if raw.form == "dense" else raw.values
        if not unchanged:
            values = self._transform(raw)
        norms = raw.norms
        if norms is None or not unchanged:
            norms = np.empty(raw.count, np.float64)
            if raw.form == "dense":
                dense_norms(values, norms)
            else:
                sparse_norms(raw.indptr, values, norms)
        if not unchanged:
            for row in np.flatnonzero(~((norms > 0) & (norms <= MAX_NORM)))[:1]:
                raise InvalidVector(
                    expected=f"an L1 norm above 0 and at most {MAX_NORM:g} after the transform",
                    got=f"{norms[row]:g}",
                    loc=(int(row),),
                )
        single = norms.astype(np.float32)
        if raw.form == "dense":
            width = round_up(values.shape[1])
            if width > values.shape[1]:  # pad with zeros to whole vector registers
                padded = np.zeros((len(values), width), np.float32)
                padded[:, : values.shape[1]] = values
                values = padded
            return VectorBatch("dense", dense=values, norms=single)
        slots = raw.indices.astype(np.uint32) * np.uint32(2) + (values < 0)
        indptr, magnitudes = raw.indptr, np.abs(values)
        if not unchanged and not magnitudes.all():  # a power may underflow
            keep = magnitudes > 0
            row_of = np.repeat(np.arange(len(raw)), np.diff(indptr))
            indptr = _borders(np.bincount(row_of[keep], minlength=len(raw)))
            slots, magnitudes = slots[keep], magnitudes[keep]
        return VectorBatch("sparse", indptr=indptr, slots=slots, values=magnitudes, norms=single)

    def _transform(self, raw: RawBatch) -> Float32s:
        values = raw.dense if raw.form == "dense" else raw.values
        transform = self.transform
        centred = values.astype(np.float64)
        indptr = raw.indptr
        if raw.form == "dense":
            if transform.center is not None:
                centred -= np.asarray(transform.center, np.float64)
            indptr = np.arange(len(raw) + 1, dtype=np.int64) * centred.shape[1]
        out = np.empty(values.shape, np.float32)
        with np.errstate(over="ignore"):
            if (weights := self.weights) is not None:
                if weights.center is not None:
                    centred -= weights.center
                centred *= weights.weights if raw.form == "dense" else weights.of(raw.indices)
            transform_rows(
                indptr,
                centred.reshape(-1),
                transform.power,
                _NORM_ORDERS[transform.normalize],
                out.reshape(-1),
            )
        return out

    def to_blobs(self, raw: RawBatch) -> list[bytes]:
        """Return each vector as little-endian bytes: float32; if sparse, int32 indices first."""
        if raw.form == "dense":
            rows = raw.dense.astype("<f4", copy=False)
            return [row.tobytes() for row in rows]
        indices = raw.indices.astype("<i4", copy=False)
        values = raw.values.astype("<f4", copy=False)
        borders = raw.indptr.tolist()
        return [
            indices[start:stop].tobytes() + values[start:stop].tobytes()
            for start, stop in pairwise(borders)
        ]

    def from_blobs(self, blobs: Sequence[bytes]) -> RawBatch:
        """Inverse of `to_blobs`; ValueError if bytes do not have the length of a vector."""
        data = bytearray().join(blobs)  # writable: kernels are compiled only for such arrays
        if self.form == "dense":
            width = 4 * (self.dim or 0)
            if {*map(len, blobs)} - {width}:
                raise ValueError(f"a vector's bytes are not {self.dim} numbers")
            dense = np.frombuffer(data, "<f4").astype(np.float32, copy=False)
            return RawBatch("dense", dense=dense.reshape(len(blobs), self.dim or 0))
        counts = np.fromiter(map(len, blobs), np.int64, len(blobs)) // 8
        indptr = _borders(counts)
        words = np.frombuffer(data, "<i4").astype(np.int32, copy=False)
        if len(words) != 2 * indptr[-1]:
            raise ValueError("a sparse vector's bytes are not pairs of index and value")
        # A row with c entries has c indices, then c values.
        at = np.arange(indptr[-1]) + np.repeat(indptr[:-1], counts)
        indices = words[at]
        if not self._are_indices(indptr, indices):
            raise ValueError("a sparse vector's indices are not increasing within its dimensions")
        return RawBatch(
            "sparse",
            indptr=indptr,
            indices=indices,
            values=words[at + np.repeat(counts, counts)].view(np.float32),
        )

    def _are_indices(self, indptr: Int64s, indices: Int32s) -> bool:
        """Return whether the indices of compressed rows ascend, and belong to this space."""
        if not len(indices):
            return True
        bound = self.dim if self.dim is not None else MAX_DIM + 1
        rises = indices[1:] > indices[:-1]
        starts = indptr[1:-1]
        rises[starts[(starts > 0) & (starts < len(indices))] - 1] = True
        return bool(rises.all() and indices.min() >= 0 and int(indices.max()) < bound)

    def from_file(self, blobs: Sequence[bytes]) -> VectorBatch:
        """Return vectors of a file as rows; ValueError or InvalidVector if they are not valid."""
        raw = self.from_blobs(blobs)
        if raw.form == "sparse" and not raw.values.all():
            raise ValueError("a sparse vector holds a zero")
        vectors = self.prepare(raw)
        sound = (vectors.norms > 0) & (vectors.norms <= np.float32(MAX_NORM))
        if not sound.all():
            raise ValueError(f"{np.count_nonzero(~sound)} rows hold no vectors")
        return vectors

    def to_json(self, raw: RawBatch, row: int) -> list[float] | dict[str, list[Any]]:
        """Return one vector in the form of the API."""
        if raw.form == "dense":
            dense: list[float] = raw.dense[row].tolist()
            return dense
        entries = slice(raw.indptr[row], raw.indptr[row + 1])
        return {"indices": raw.indices[entries].tolist(), "values": raw.values[entries].tolist()}


def _compress(dense: Float32s) -> RawBatch:
    rows, columns = np.nonzero(dense)
    indptr = _borders(np.bincount(rows, minlength=len(dense)))
    return RawBatch(
        "sparse", indptr=indptr, indices=columns.astype(np.int32), values=dense[rows, columns]
    )


def _borders(counts: Int64s | list[int]) -> Int64s:
    """Return the starts of compressed rows with these counts, and the end of the last one."""
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    return indptr
