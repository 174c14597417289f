"""Exact kernels between vectors, as objects: what a backend estimates, and what users may ask for.

ρ is the cosine of two vectors, r a distance. Sources: [GMM] §1.5 (RBF, folded RBF), [RFF], [POLYA].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Final, Protocol

import numpy as np

from gcws_search.index.contracts.arrays import Bools, Float64s, Int64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import (
    MAX_GAMMA,
    MAX_SCALE,
    Distribution,
    RandomBinningParams,
    require,
)
from gcws_search.index.similarities.polya import Pitches, curve_of, pitches

WORKED_ON: Final = 1 << 19
"""Numbers worked on at a time: a few megabytes."""

Each = Callable[[Float64s], Float64s]
"""What is done to |x_d − y_d|, entry by entry; gives the neutral element of its fold at 0."""
_INFINITE_DISTANCE: Final = 1e300
"""No two coordinates so far apart share a bin."""
_MANY: Final = 1 << 13
"""For at least this many distances kernels are read off a curve, right to 10^-8."""


def folded_differences(
    queries: VectorBatch,
    rows: VectorBatch,
    each: Each,
    fold: np.ufunc,
    *,
    worked_on: int = WORKED_ON,
) -> Float64s:
    """Return the (m, n) folds of each(|x_d − y_d|) over all coordinates d."""
    out = np.empty((len(queries), len(rows)), np.float64)
    for part in _parts(rows, worked_on):
        if rows.form == "dense":
            values = rows.dense[part].astype(np.float64)
            for i, query in enumerate(queries.dense.astype(np.float64)):
                out[i, part] = fold.reduce(each(np.abs(values - query)), axis=1)
            continue
        entries = _Entries.of(rows[part])
        for i in range(len(queries)):
            shared = _Shared.of(_Entries.of(queries[i : i + 1]), entries)
            ours = each(np.abs(entries.values - shared.values))
            lone = np.broadcast_to(each(np.abs(shared.query.values)), shared.matched.shape)
            theirs = np.where(shared.matched, fold.identity, lone)
            out[i, part] = fold(fold.reduceat(ours, entries.starts), fold.reduce(theirs, axis=1))
    return out


def cosines(queries: VectorBatch, rows: VectorBatch, *, worked_on: int = WORKED_ON) -> Float64s:
    """Return the (m, n) cosines ρ of m queries and n rows, ``worked_on`` numbers at a time."""
    out = np.empty((len(queries), len(rows)), np.float64)
    known = np.unique(_Entries.of(queries).coordinates) if queries.form == "sparse" else None
    left, lengths = _rows_and_norms(queries, known)
    for part in _parts(rows, worked_on):
        right, norms = _rows_and_norms(rows[part], known)
        products = left @ right.T
        dots = products if known is None else products.toarray()
        out[:, part] = dots / (lengths[:, None] * norms)
    return np.clip(out, -1.0, 1.0)


def _rows_and_norms(batch: VectorBatch, known: Int64s | None) -> tuple[Any, Float64s]:
    """Return (n, width) vectors and their L2 norms; of sparse ones, the known coordinates alone."""
    if known is None:
        rows = batch.dense.astype(np.float64)
        return rows, np.sqrt(np.einsum("ij,ij->i", rows, rows))
    from scipy import sparse  # noqa: PLC0415  # no start waits for it

    entries = _Entries.of(batch)
    norms = np.sqrt(np.add.reduceat(entries.values**2, entries.starts))
    places = np.minimum(np.searchsorted(known, entries.coordinates), len(known) - 1)
    both = known[places] == entries.coordinates
    cells = entries.owners[both], places[both]
    shape = len(batch), len(known)
    return sparse.csr_array((entries.values[both], cells), shape=shape), norms


def _parts(rows: VectorBatch, worked_on: int) -> Iterator[slice]:
    """Yield runs of rows that are worked on together."""
    width = rows.dense.shape[1] if rows.form == "dense" else len(rows.values) // max(1, len(rows))
    step = max(1, worked_on // max(1, width))
    for first in range(0, len(rows), step):
        yield slice(first, min(first + step, len(rows)))


@dataclass(frozen=True, slots=True)
class _Entries:
    """The non-zero entries of sparse rows, none of them empty."""

    starts: Int64s  # (n,): where the entries of each row begin
    owners: Int64s  # (nnz,): the row of each entry
    coordinates: Int64s  # (nnz,): rising within a row
    values: Float64s  # (nnz,): signed

    @classmethod
    def of(cls, batch: VectorBatch) -> _Entries:
        """Return the entries of a sparse batch."""
        first = batch.indptr[0]
        entries = slice(first, batch.indptr[-1])
        slots = batch.slots[entries].astype(np.int64)
        magnitudes = batch.values[entries].astype(np.float64)
        owners = np.repeat(np.arange(len(batch)), np.diff(batch.indptr))
        signed = np.where(slots & 1, -magnitudes, magnitudes)
        return cls(batch.indptr[:-1] - first, owners, slots >> 1, signed)


@dataclass(frozen=True, slots=True)
class _Shared:
    """One query beside some rows."""

    query: _Entries
    values: Float64s  # (nnz of rows,): the query's, 0 where it has not the coordinate
    matched: Bools  # (n, nnz of query): whether a row has the query's coordinate too

    @classmethod
    def of(cls, query: _Entries, rows: _Entries) -> _Shared:
        """Match the coordinates of a query with those of rows."""
        last = len(query.coordinates) - 1
        places = np.minimum(np.searchsorted(query.coordinates, rows.coordinates), last)
        both = query.coordinates[places] == rows.coordinates
        matched = np.zeros((len(rows.starts), last + 1), np.bool_)
        matched[rows.owners[both], places[both]] = True
        return cls(query, np.where(both, query.values[places], 0.0), matched)


class Kernel(Protocol):
    """An exact kernel between vectors as they are hashed and scored."""

    @property
    def name(self) -> str:
        """The word that names the kernel in the API."""

    def scores(self, queries: VectorBatch, rows: VectorBatch) -> Float64s:
        """Return the (m, n) values of m queries and n rows of one space."""


def _require_number(name: str, value: object, maximum: float) -> None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= maximum
    require(good, name=name, expected=f"a number above 0, at most {maximum:g}", got=value)


@dataclass(frozen=True, slots=True)
class RbfKernel:
    """exp(−γ(1 − ρ))."""

    gamma: float = 1.0  # γ, above 0
    name = "rbf"

    def __post_init__(self) -> None:
        """Raise InvalidParameter when γ is outside its range."""
        _require_number("gamma", self.gamma, MAX_GAMMA)

    def scores(self, queries: VectorBatch, rows: VectorBatch) -> Float64s:
        """Return the (m, n) values, in float64."""
        return np.asarray(np.exp(-self.gamma * (1.0 - cosines(queries, rows))), np.float64)


@dataclass(frozen=True, slots=True)
class FoldedRbfKernel:
    """½ exp(−γ(1 − ρ)) + ½ exp(−γ(1 + ρ))."""

    gamma: float = 1.0  # γ, above 0
    name = "folded_rbf"

    def __post_init__(self) -> None:
        """Raise InvalidParameter when γ is outside its range."""
        _require_number("gamma", self.gamma, MAX_GAMMA)

    def scores(self, queries: VectorBatch, rows: VectorBatch) -> Float64s:
        """Return the (m, n) values, in float64."""
        rho = cosines(queries, rows)
        same, opposite = (np.exp(-self.gamma * (1.0 - side * rho)) for side in (1.0, -1.0))
        return np.asarray((same + opposite) / 2.0, np.float64)


@dataclass(frozen=True, slots=True)
class LaplaceKernel:
    """exp(−‖u − v‖₁/σ)."""

    scale: float = 1.0  # σ, above 0
    name = "laplace"

    def __post_init__(self) -> None:
        """Raise InvalidParameter when σ is outside its range."""
        _require_number("scale", self.scale, MAX_SCALE)

    def scores(self, queries: VectorBatch, rows: VectorBatch) -> Float64s:
        """Return the (m, n) values, in float64."""
        distances = folded_differences(queries, rows, lambda each: each, np.add)
        with np.errstate(over="ignore"):  # an infinite distance has kernel 0
            return np.asarray(np.exp(-distances / self.scale), np.float64)


@dataclass(frozen=True, slots=True)
class GaussianKernel:
    """exp(−‖u − v‖²/2σ²)."""

    scale: float = 1.0  # σ, above 0
    name = "gaussian"

    def __post_init__(self) -> None:
        """Raise InvalidParameter when σ is outside its range."""
        _require_number("scale", self.scale, MAX_SCALE)

    def scores(self, queries: VectorBatch, rows: VectorBatch) -> Float64s:
        """Return the (m, n) values, in float64."""
        with np.errstate(over="ignore"):
            squares = folded_differences(queries, rows, lambda x: (x / self.scale) ** 2, np.add)
        return np.asarray(np.exp(-squares / 2.0), np.float64)


@dataclass(frozen=True, slots=True)
class PolyaKernel:
    """Π_d k(|x_d − y_d|), k(r) = E[(1 − r/S)₊]: the chance that all coordinates share bins."""

    distribution: Distribution = "gamma"  # of the pitches S
    shape: float | None = None  # None takes the distribution's default, or it has no shape
    scale: float = 1.0  # the mean pitch: S is multiplied by scale/E[S]
    _pitches: Pitches = field(init=False, repr=False, compare=False)
    name = "polya"

    def __post_init__(self) -> None:
        """Raise InvalidParameter when a field is outside its range; fill in the shape."""
        if self.shape is not None:
            _require_kind("shape", self.shape, int | float, "null or a number")
        _require_kind("distribution", self.distribution, str, "the name of a distribution")
        _require_number("scale", self.scale, MAX_SCALE)
        params = RandomBinningParams(
            distribution=self.distribution, shape=self.shape, scale=self.scale
        )
        object.__setattr__(self, "shape", params.shape)
        object.__setattr__(self, "_pitches", pitches(params.distribution, params.shape))

    def along(self, distances: Float64s) -> Float64s:
        """Return k(r), entry by entry, for distances r ≥ 0 along one coordinate."""
        with np.errstate(over="ignore"):
            units = distances / self.scale
            raw = units * self._pitches.mean
        curve = curve_of(self.distribution, self.shape) if units.size >= _MANY else None
        if curve is not None:
            return curve.along(np.minimum(units, _INFINITE_DISTANCE))
        return self._pitches.kernel(np.minimum(raw, _INFINITE_DISTANCE))

    def scores(self, queries: VectorBatch, rows: VectorBatch) -> Float64s:
        """Return the (m, n) values, in float64."""
        return folded_differences(queries, rows, self.along, np.multiply)


def _require_kind(name: str, value: object, kind: type | UnionType, expected: str) -> None:
    good = isinstance(value, kind) and not isinstance(value, bool)
    require(good, name=name, expected=expected, got=value)
