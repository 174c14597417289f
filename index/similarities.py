"""Exact similarities of vectors: GMM first, then the other kernels, as users call and name them.

GMM is Σ min / Σ max over the slots ([GMM] eq. 4-6). Of the other kernels ρ is the cosine of two
vectors, r a distance. Sources: [GMM] §1.5 (RBF, folded RBF), [RFF], [POLYA].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.arrays import Bools, Float32s, Float64s, Int64s
from gcws_search.index.contracts.batches import SparseVector, VectorBatch
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import (
    MAX_DENSE_DIM,
    MAX_GAMMA,
    MAX_SCALE,
    MAX_SHAPE,
    Distribution,
    Form,
    RandomBinningParams,
    Transform,
    Within,
    require,
)
from gcws_search.index.kernels.gmm.dense import matrix_dense
from gcws_search.index.kernels.gmm.exact_rerank import exact_rows
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.kernels.gmm.sparse import matrix_sparse
from gcws_search.index.polya import curve_of, pitches
from gcws_search.index.threads import limit_blas
from gcws_search.index.vectors.space import VectorSpace

EPSILON: Final = 2.0**-24
"""Relative error of one float32 rounding."""


def exact_scores(vectors: VectorBatch, query: VectorBatch, rows: Int64s) -> Float64s:
    """Return the float64 GMM of one query and chosen rows."""
    out = np.empty(len(rows), np.float64)
    exact_rows(rows_of(query), 0, rows_of(vectors, as_held=True), rows, out)
    return out


def tolerance(vectors: VectorBatch, queries: VectorBatch) -> float:
    """Return the maximum error of a float32 score of a query and a row."""
    if vectors.form == "dense":
        return float((vectors.width / 32 + 16) * EPSILON)
    return 2.0 * (queries.longest + 8) * EPSILON


def gmm(a: VectorBatch, b: VectorBatch) -> float:
    """Return the GMM of two single vectors of one space, in float64."""
    return float(exact_scores(b, a, np.zeros(1, np.int64))[0])


def gmm_rows(query: VectorBatch, rows: VectorBatch) -> Float64s:
    """Return the (n,) GMM of one vector with each of n rows, in float64."""
    return exact_scores(rows, query, np.arange(len(rows)))


def gmm_matrix(a: VectorBatch, b: VectorBatch) -> Float32s:
    """Return the (n, m) GMM of n vectors with m others, in float32."""
    out = np.empty((len(a), len(b)), np.float32)
    if a.form == "dense":
        matrix_dense(a.dense, a.norms, b.dense, b.norms, out)
        return out
    matrix_sparse(rows_of(a), rows_of(b), out)
    return out


@dataclass(frozen=True, slots=True)
class Kernel:
    """An exact kernel between vectors as they are hashed and scored."""

    name: str  # the word that names it in the API
    # Returns the (m, n) values of m queries and n rows of one space, in float64.
    scores: Callable[[VectorBatch, VectorBatch], Float64s]


GMM: Final = Kernel("gmm", lambda queries, rows: gmm_matrix(queries, rows).astype(np.float64))
"""To float32 rounding."""

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
            dense = rows[part].dense.astype(np.float64)
            for i, sought in enumerate(queries.dense.astype(np.float64)):
                out[i, part] = fold.reduce(each(np.abs(dense - sought)), axis=1)
            continue
        entries = _Entries.of(rows[part])
        for i in range(len(queries)):
            query = _Entries.of(queries[i : i + 1])
            values, matched = _match(query, entries)
            ours = each(np.abs(entries.values - values))
            lone = np.broadcast_to(each(np.abs(query.values)), matched.shape)
            theirs = np.where(matched, fold.identity, lone)
            out[i, part] = fold(fold.reduceat(ours, entries.starts), fold.reduce(theirs, axis=1))
    return out


@limit_blas
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
    """Return (n, width) vectors and their L2 norms; of sparse ones, only the known coordinates."""
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
    """Yield runs of rows that are processed together."""
    width = rows.width if rows.form == "dense" else len(rows.values) // max(1, len(rows))
    step = max(1, worked_on // max(1, width))
    for first in range(0, len(rows), step):
        yield slice(first, min(first + step, len(rows)))


@dataclass(frozen=True, slots=True)
class _Entries:
    """The non-zero entries of sparse rows, none of them empty."""

    starts: Int64s  # (n,): start of each row's entries
    owners: Int64s  # (nnz,): the row of each entry
    coordinates: Int64s  # (nnz,): ascending within a row
    values: Float64s  # (nnz,): signed

    @classmethod
    def of(cls, batch: VectorBatch) -> _Entries:
        slots, magnitudes = batch.slots.astype(np.int64), batch.values.astype(np.float64)
        owners = np.repeat(np.arange(len(batch)), np.diff(batch.indptr))
        signed = np.where(slots & 1, -magnitudes, magnitudes)
        return cls(batch.indptr[:-1], owners, slots >> 1, signed)


def _match(query: _Entries, rows: _Entries) -> tuple[Float64s, Bools]:
    """Return a query's value at each entry of rows, or 0, and which of its entries rows have.

    The latter is (n, nnz of query).
    """
    last = len(query.coordinates) - 1
    places = np.minimum(np.searchsorted(query.coordinates, rows.coordinates), last)
    both = query.coordinates[places] == rows.coordinates
    matched = np.zeros((len(rows.starts), last + 1), np.bool_)
    matched[rows.owners[both], places[both]] = True
    return np.where(both, query.values[places], 0.0), matched


def _number(name: str, value: float, maximum: float) -> float:
    """Return a number above 0, of any type, as a float; raise InvalidParameter."""
    bounds = Within(0, maximum, is_open=True)
    require(bounds.holds(value), name=name, expected=str(bounds), got=value)
    return float(value)


def rbf_kernel(gamma: float = 1.0) -> Kernel:
    """Return exp(−γ(1 − ρ)), γ above 0; raise InvalidParameter when it is outside its range."""
    gamma = _number("gamma", gamma, MAX_GAMMA)
    return Kernel("rbf", lambda queries, rows: np.exp(-gamma * (1.0 - cosines(queries, rows))))


def folded_rbf_kernel(gamma: float = 1.0) -> Kernel:
    """Return ½ exp(−γ(1 − ρ)) + ½ exp(−γ(1 + ρ)); see `rbf_kernel`."""
    gamma = _number("gamma", gamma, MAX_GAMMA)

    def scores(queries: VectorBatch, rows: VectorBatch) -> Float64s:
        rho = cosines(queries, rows)
        same, opposite = (np.exp(-gamma * (1.0 - side * rho)) for side in (1.0, -1.0))
        return np.asarray((same + opposite) / 2.0, np.float64)

    return Kernel("folded_rbf", scores)


def laplace_kernel(scale: float = 1.0) -> Kernel:
    """Return exp(−‖u − v‖₁/σ), σ above 0; raise InvalidParameter when it is outside its range."""
    scale = _number("scale", scale, MAX_SCALE)

    def scores(queries: VectorBatch, rows: VectorBatch) -> Float64s:
        distances = folded_differences(queries, rows, lambda each: each, np.add)
        with np.errstate(over="ignore"):  # an infinite distance has kernel 0
            return np.asarray(np.exp(-distances / scale), np.float64)

    return Kernel("laplace", scores)


def gaussian_kernel(scale: float = 1.0) -> Kernel:
    """Return exp(−‖u − v‖²/2σ²); see `laplace_kernel`."""
    scale = _number("scale", scale, MAX_SCALE)

    def scores(queries: VectorBatch, rows: VectorBatch) -> Float64s:
        with np.errstate(over="ignore"):
            squares = folded_differences(queries, rows, lambda x: (x / scale) ** 2, np.add)
        return np.asarray(np.exp(-squares / 2.0), np.float64)

    return Kernel("gaussian", scores)


def polya_kernel(
    distribution: Distribution = "gamma", shape: float | None = None, scale: float = 1.0
) -> Kernel:
    """Return Π_d k(|x_d − y_d|), the chance that all coordinates share bins; see `polya_along`."""
    along = polya_along(distribution, shape, scale)
    return Kernel("polya", lambda a, b: folded_differences(a, b, along, np.multiply))


def polya_along(distribution: Distribution, shape: float | None = None, scale: float = 1.0) -> Each:
    """Return k(r) = E[(1 − r/S)₊], entry by entry, for distances r ≥ 0 along one coordinate.

    The pitches S of the distribution are multiplied by scale/E[S]. A shape of None takes the
    default, or the distribution has none. Raises InvalidParameter when one is outside its range.
    """
    if shape is not None:
        shape = _number("shape", shape, MAX_SHAPE)
    scale = _number("scale", scale, MAX_SCALE)
    params = RandomBinningParams(distribution=distribution, shape=shape, scale=scale)
    law = pitches(params.distribution, params.shape)

    def along(distances: Float64s) -> Float64s:
        with np.errstate(over="ignore"):
            units = distances / scale
            raw = units * law.mean
        curve = curve_of(distribution, params.shape) if units.size >= _MANY else None
        if curve is not None:
            return curve.along(np.minimum(units, _INFINITE_DISTANCE))
        return law.kernel(np.minimum(raw, _INFINITE_DISTANCE))

    return along


Vector = Sequence[float] | Float32s | SparseVector
"""A vector as a user has it."""


_KERNELS: Final[dict[str, Callable[..., Kernel]]] = {
    "gmm": lambda: GMM,
    "rbf": rbf_kernel,
    "folded_rbf": folded_rbf_kernel,
    "laplace": laplace_kernel,
    "gaussian": gaussian_kernel,
    "polya": polya_kernel,
}
KERNEL_NAMES: Final = tuple(_KERNELS)
"""The words that name exact kernels in the API."""


def correlation_from_gmm(score: float) -> float:
    """Return ρ̂_g = 1 − 2((1 − g)/(1 + g))², the robust estimate of ρ from a GMM value g ([TGMM]).

    Raises
    ------
    InvalidParameter
        The score is outside [0, 1].
    """
    if not 0 <= score <= 1:
        raise InvalidParameter(expected="a number in [0, 1]", got=repr(score), loc=("score",))
    return 1.0 - 2.0 * ((1.0 - score) / (1.0 + score)) ** 2


def similarity(a: Vector, b: Vector) -> float:
    """Return the GMM of two vectors as a user has them, dense or sparse.

    Raises
    ------
    InvalidVector
        A vector is none, or the two do not fit together; row 0 is ``a``, row 1 is ``b``.
    """
    batch = _pair(a, b)
    return gmm(batch[:1], batch[1:])


def rbf(a: Vector, b: Vector, *, gamma: float = 1.0) -> float:
    """Return exp(−γ(1 − ρ)), ρ the cosine of two vectors ([GMM] §1.5).

    Raises
    ------
    InvalidVector
        See `similarity`.
    InvalidParameter
        γ is outside its range.
    """
    return score(rbf_kernel(gamma), a, b)


def folded_rbf(a: Vector, b: Vector, *, gamma: float = 1.0) -> float:
    """Return ½ exp(−γ(1 − ρ)) + ½ exp(−γ(1 + ρ)), meant for non-negative vectors; see `rbf`."""
    return score(folded_rbf_kernel(gamma), a, b)


def laplace(a: Vector, b: Vector, *, scale: float = 1.0) -> float:
    """Return exp(−‖a − b‖₁/scale); see `rbf`."""
    return score(laplace_kernel(scale), a, b)


def gaussian(a: Vector, b: Vector, *, scale: float = 1.0) -> float:
    """Return exp(−‖a − b‖²/(2·scale²)); see `rbf`."""
    return score(gaussian_kernel(scale), a, b)


def polya(
    a: Vector,
    b: Vector,
    *,
    distribution: Distribution = "gamma",
    shape: float | None = None,
    scale: float = 1.0,
) -> float:
    """Return the product over coordinates of one of Polya's kernels; see `polya_along`, `rbf`."""
    return score(polya_kernel(distribution, shape, scale), a, b)


def kernel_named(name: str, params: Mapping[str, Any]) -> Kernel:
    """Return one of `KERNEL_NAMES`; parameters that are missing have their defaults.

    Raises InvalidParameter (there is no such kernel or parameter, or it is outside its range).
    """
    make = _KERNELS.get(name)
    if make is None:
        expected = f"one of {', '.join(map(repr, KERNEL_NAMES))}"
        raise InvalidParameter(expected=expected, got=repr(name)[:80], loc=("kernel",))
    known = [*signature(make).parameters]
    for given in params:
        if given not in known:
            expected = " or ".join(known) or f"no parameters of {name}"
            raise InvalidParameter(expected=expected, got=repr(given)[:80], loc=("params",))
    try:
        return make(**params)
    except InvalidParameter as error:
        raise error.at("params") from None


def score(kernel: Kernel, a: Vector, b: Vector) -> float:
    """Return a kernel's value of two vectors as a user has them; raises what `similarity` does."""
    if kernel is GMM:
        return similarity(a, b)
    batch = _pair(a, b)
    return float(kernel.scores(batch[:1], batch[1:])[0, 0])


def _pair(a: Vector, b: Vector) -> VectorBatch:
    dims = [len(vector) for vector in (a, b) if not isinstance(vector, SparseVector)]
    dim = dims[0] if dims else None
    form: Form = "dense" if dim is not None and dim <= MAX_DENSE_DIM else "sparse"
    space = VectorSpace(dim, form, Transform())
    return space.prepare(space.from_items([a, b]))
