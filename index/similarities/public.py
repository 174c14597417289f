"""Exact kernels as a user calls and names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from gcws_search.index.contracts.arrays import Float32s
from gcws_search.index.contracts.batches import SparseVector, VectorBatch
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.parameters import MAX_DENSE_DIM, Distribution, Form, Transform
from gcws_search.index.similarities.gmm import GmmKernel, gmm
from gcws_search.index.similarities.kernels import (
    FoldedRbfKernel,
    GaussianKernel,
    Kernel,
    LaplaceKernel,
    PolyaKernel,
    RbfKernel,
)
from gcws_search.index.vectors.space import VectorSpace

Vector = Sequence[float] | Float32s | SparseVector
"""A vector as a user has it."""


_KERNELS: Final[dict[str, Any]] = {
    "gmm": GmmKernel,
    "rbf": RbfKernel,
    "folded_rbf": FoldedRbfKernel,
    "laplace": LaplaceKernel,
    "gaussian": GaussianKernel,
    "polya": PolyaKernel,
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
    return score(RbfKernel(gamma), a, b)


def folded_rbf(a: Vector, b: Vector, *, gamma: float = 1.0) -> float:
    """Return ½ exp(−γ(1 − ρ)) + ½ exp(−γ(1 + ρ)), meant for non-negative vectors; see `rbf`."""
    return score(FoldedRbfKernel(gamma), a, b)


def laplace(a: Vector, b: Vector, *, scale: float = 1.0) -> float:
    """Return exp(−‖a − b‖₁/scale); see `rbf`."""
    return score(LaplaceKernel(scale), a, b)


def gaussian(a: Vector, b: Vector, *, scale: float = 1.0) -> float:
    """Return exp(−‖a − b‖²/(2·scale²)); see `rbf`."""
    return score(GaussianKernel(scale), a, b)


def polya(
    a: Vector,
    b: Vector,
    *,
    distribution: Distribution = "gamma",
    shape: float | None = None,
    scale: float = 1.0,
) -> float:
    """Return the product over coordinates of one of Polya's kernels; see `PolyaKernel`, `rbf`."""
    return score(PolyaKernel(distribution, shape, scale), a, b)


def kernel_named(name: str, params: Mapping[str, Any]) -> Kernel:
    """Return an exact kernel.

    Parameters
    ----------
    name : str
        One of `KERNEL_NAMES`.
    params : mapping
        Parameters by name; what is missing has its default.

    Raises
    ------
    InvalidParameter
        There is no such kernel or parameter, or a parameter is outside its range.
    """
    kernel_class = _KERNELS.get(name)
    if kernel_class is None:
        expected = f"one of {', '.join(map(repr, KERNEL_NAMES))}"
        raise InvalidParameter(expected=expected, got=repr(name)[:80], loc=("kernel",))
    known = [each.name for each in fields(kernel_class) if each.init]
    for given in params:
        if given not in known:
            expected = " or ".join(known) or f"no parameters of {name}"
            raise InvalidParameter(expected=expected, got=repr(given)[:80], loc=("params",))
    try:
        kernel: Kernel = kernel_class(**params)
    except InvalidParameter as error:
        raise error.at("params") from None
    return kernel


def score(kernel: Kernel, a: Vector, b: Vector) -> float:
    """Return a kernel's value of two vectors as a user has them, dense or sparse.

    Raises
    ------
    InvalidVector
        See `similarity`.
    """
    if isinstance(kernel, GmmKernel):
        return similarity(a, b)
    batch = _pair(a, b)
    return float(kernel.scores(batch[:1], batch[1:])[0, 0])


def _pair(a: Vector, b: Vector) -> VectorBatch:
    dims = [len(vector) for vector in (a, b) if not isinstance(vector, SparseVector)]
    dim = dims[0] if dims else None
    form: Form = "dense" if dim is not None and dim <= MAX_DENSE_DIM else "sparse"
    space = VectorSpace(dim, form, Transform())
    return space.prepare(space.from_items([a, b]))
