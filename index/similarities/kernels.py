"""Exact kernels between vectors, as objects: what a backend estimates, and what users may ask for.

ρ is the cosine of two vectors, r a distance. Sources: [GMM] §1.5 (RBF, folded RBF), [RFF], [POLYA].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import UnionType
from typing import Final, Protocol

import numpy as np

from gcws_search.index.contracts.arrays import Float64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import (
    MAX_GAMMA,
    MAX_SCALE,
    Distribution,
    RandomBinningParams,
    require,
)
from gcws_search.index.similarities.distances import cosines, folded_differences
from gcws_search.index.similarities.polya import Pitches, pitches
from gcws_search.index.similarities.polya_curves import curve_of

_INFINITE_DISTANCE: Final = 1e300
"""No two coordinates so far apart share a bin."""
_MANY: Final = 1 << 13
"""For at least this many distances kernels are read off a curve, right to 10^-8."""


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
