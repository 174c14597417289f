"""Pitches S > 0 and their kernels k(r) = E[(1 − r/S)₊]: Polya's characterisation.

Every continuous family of the table is a power of a gamma variable, S = c·G^p with G ~ Gamma(s), so
one formula holds for all of them: with x = (r/c)^(1/p),

    k(r) = Q(s, x) − x^p · Γ(s − p, x)/Γ(s),        E[S] = c · Γ(s + p)/Γ(s).

Source: [RFF] §4, [POLYA].

For many distances, kernels are tabulated as cubic pieces: 2^b equal parts of each octave, so that
the bits of a number select its piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.parameters import Distribution

_SERIES_TERMS: Final = 18
"""Of the series of Γ(a, x), x < 1: the next one is below 10^-17."""
_FRACTION_TERMS: Final = 120
"""Of the continued fraction of Γ(a, x), x ≥ 1: what is left out is below 10^-16."""
_SMALL: Final = 0.1
_ROOT_TWO: Final = math.sqrt(2.0)
_MAX: Final = 1e300
_DEVIATIONS: Final = 40.0
"""Of a Poisson variable: nothing drawn lies further from the mean."""
_MIN_OCTAVE: Final = -120
_OCTAVES: Final = 160
_FINE_OCTAVE: Final = -1
_FINE_OCTAVES: Final = 2
"""Those beside 1, which may have finer pieces."""
_EXPONENT_BIAS: Final = 1023
_MANTISSA_BITS: Final = 52
_BITS: Final = ((6, None), (9, None), (6, 14))
"""Tried in turn: 64 pieces an octave are enough for all but narrow distributions, and those are
narrow about their mean; the second number is of the octaves beside it."""
_TOLERANCE: Final = 1e-8
_INSIDE: Final = (0.25, 0.5, 0.75)
_MIN: Final = 2.0**_MIN_OCTAVE


@cache
def _special() -> Any:  # noqa: ANN401 (a module without types)
    """Return SciPy's special functions, which are slow to import, for rare kernels."""
    from scipy import special  # noqa: PLC0415

    return special


@dataclass(frozen=True, slots=True)
class GammaPower:
    """S = unit · G^power with G ~ Gamma(shape)."""

    shape: float  # s
    power: float = 1.0  # p
    unit: float = 1.0  # c

    @property
    def mean(self) -> float:
        """E[S], which is also the area under the kernel over the whole line."""
        return self.unit * float(_special().poch(self.shape, self.power))

    def kernel(self, distances: Float64s) -> Float64s:
        """Return k(r) = E[(1 − r/S)₊], entry by entry, for distances r ≥ 0."""
        x = self._gamma_of(distances)
        beyond = np.asarray(_special().gammaincc(self.shape, x), np.float64)
        return np.clip(beyond - distances * self._inverse(x), 0.0, 1.0)

    def slope(self, distances: Float64s) -> Float64s:
        """Return −k'(r) = E[1/S; S > r], entry by entry, for distances r > 0."""
        return self._inverse(self._gamma_of(distances))

    def quantile(self, shares: Float64s) -> Float64s:
        """Return S with P(S ≤ s) = share, for shares in (0, 1)."""
        return self._pitch_of(_special().gammaincinv(self.shape, shares))

    def upper_quantile(self, shares: Float64s) -> Float64s:
        """Return S with P(S > s) = share; accurate for tiny shares."""
        return self._pitch_of(_special().gammainccinv(self.shape, shares))

    def _inverse(self, x: Float64s) -> Float64s:
        """Return E[1/S; G > x] = Γ(s − p, x)/(c·Γ(s)), or the largest number if it overflows."""
        order = self.shape - self.power
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            if order > 0:
                inverse = _special().gammaincc(order, x) * _special().poch(self.shape, -self.power)
            else:
                inverse = _upper_gamma(order, x) / _special().gamma(self.shape)
            return np.asarray(np.minimum(inverse / self.unit, _MAX), np.float64)

    def _gamma_of(self, pitches: Float64s) -> Float64s:
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray((pitches / self.unit) ** (1.0 / self.power), np.float64)

    def _pitch_of(self, gammas: Float64s) -> Float64s:
        return np.asarray(self.unit * gammas**self.power, np.float64)


@dataclass(frozen=True, slots=True)
class ShiftedPoisson:
    """S = 1 + N with N ~ Poisson(rate); see `GammaPower`."""

    rate: float

    @property
    def mean(self) -> float:
        """E[S]."""
        return 1.0 + self.rate

    @property
    def support(self) -> int:
        """An integer that no sampled pitch exceeds."""
        return int(self.rate + _DEVIATIONS * (1.0 + np.sqrt(self.rate))) + 2

    def kernel(self, distances: Float64s) -> Float64s:
        """Return k(r)."""
        whole = np.floor(distances)
        inverse = distances * self.slope(distances)
        return np.clip(_tail(whole, self.rate) - inverse, 0.0, 1.0)

    def slope(self, distances: Float64s) -> Float64s:
        """Return −k'(r) = P(N > ⌊r⌋)/rate."""
        return _tail(np.floor(distances) + 1.0, self.rate) / self.rate

    def quantile(self, shares: Float64s) -> Float64s:
        """Return the lower quantiles."""
        counts = self._counts()
        place = np.searchsorted(_special().pdtr(counts, self.rate), shares)
        return 1.0 + counts[np.minimum(place, len(counts) - 1)]

    def upper_quantile(self, shares: Float64s) -> Float64s:
        """Return the upper quantiles."""
        counts = self._counts()
        place = np.searchsorted(-_special().pdtrc(counts, self.rate), -shares)
        return 1.0 + counts[np.minimum(place, len(counts) - 1)]

    def _counts(self) -> Float64s:
        reach = _DEVIATIONS * (1.0 + np.sqrt(self.rate))
        first = np.floor(max(0.0, self.rate - reach))
        return np.arange(first, self.rate + reach + 1.0)


Pitches = GammaPower | ShiftedPoisson
"""The law of a pitch S, in its family's own unit."""


def pitches(distribution: Distribution, shape: float | None = None) -> Pitches:
    """Return the law of a family's pitches, in the family's own unit.

    The shape is s of gamma, ν of chi_square and chi, m of nakagami (Ω = 1), κ of weibull, μ of
    shifted_poisson, in its range; None if the family has none.
    """
    if distribution == "shifted_poisson":
        return ShiftedPoisson(1.0 if shape is None else shape)
    return _POWERS[distribution](1.0 if shape is None else shape)


_POWERS: Final[dict[Distribution, Callable[[float], GammaPower]]] = {
    "gamma": GammaPower,
    "exponential": GammaPower,
    "chi_square": lambda nu: GammaPower(nu / 2.0, unit=2.0),
    "chi": lambda nu: GammaPower(nu / 2.0, power=0.5, unit=_ROOT_TWO),
    "half_normal": lambda _: GammaPower(0.5, power=0.5, unit=_ROOT_TWO),
    "rayleigh": lambda _: GammaPower(1.0, power=0.5, unit=_ROOT_TWO),
    "nakagami": lambda m: GammaPower(m, power=0.5, unit=m**-0.5),
    "weibull": lambda kappa: GammaPower(1.0, power=1.0 / kappa),
}
"""Continuous families, by their shape; 1 for those that have none."""


def _tail(count: Float64s, rate: float) -> Float64s:
    """Return P(N ≥ count) for integer counts."""
    return np.asarray(np.where(count > 0, _special().gammainc(np.maximum(count, 1.0), rate), 1.0))


def _upper_gamma(order: float, x: Float64s) -> Float64s:
    """Return Γ(a, x) for a ≤ 0 and x ≥ 0."""
    out = np.full_like(x, np.inf)  # at 0
    low, high = (x > 0) & (x < 1.0), x >= 1.0
    out[low] = x[low] ** order * np.exp(-x[low]) * _scaled_below(order, x[low])
    out[high] = x[high] ** order * np.exp(-x[high]) * _scaled_above(order, x[high])
    return out


def _scaled_above(order: float, x: Float64s) -> Float64s:
    """Return x^−a · e^x · Γ(a, x) for a ≤ 0 and x ≥ 1: Legendre's continued fraction."""
    tail = np.zeros_like(x)
    for n in range(_FRACTION_TERMS, 0, -1):
        tail = n * (n - order) / (x + 2 * n + 1 - order - tail)
    return 1.0 / (x + 1.0 - order - tail)


def _scaled_below(order: float, x: Float64s) -> Float64s:
    """Return x^−a · e^x · Γ(a, x) for a ≤ 0 and 0 < x < 1.

    Up from a to an order near 0, then down by Γ(a, x) = (Γ(a + 1, x) − x^a e^−x)/a, which damps
    errors for x < 1.
    """
    steps = round(-order)
    base = order + steps  # within ±½
    scale = x**-base * np.exp(x)
    scaled = scale * _near_zero(base, x)
    for step in range(1, steps + 1):
        scaled = (x * scaled - 1.0) / (base - step)
    return scaled


def _near_zero(order: float, x: Float64s) -> Float64s:
    """Return Γ(a, x) for |a| ≤ ½ and 0 < x < 1."""
    if order > 0:
        return np.asarray(_special().gammaincc(order, x) * _special().gamma(order))
    if order == 0:
        return np.asarray(_special().exp1(x))
    # Γ(a) − x^a/a without the pole at a = 0, then the other terms of the series.
    total = (np.expm1(_log_gamma_1p(order)) - np.expm1(order * np.log(x))) / order
    term = x**order
    for n in range(1, _SERIES_TERMS + 1):
        term = -term * x / n
        total = total - term / (order + n)
    return np.asarray(total)


def _log_gamma_1p(a: float) -> float:
    """Return log Γ(1 + a), accurate also near a = 0."""
    if abs(a) > _SMALL:
        return float(_special().gammaln(1.0 + a))
    orders = np.arange(2, 20)
    series = _special().zeta(orders) * (-a) ** orders / orders
    return float(-np.euler_gamma * a + series.sum())


@dataclass(frozen=True, slots=True)
class Cubics:
    """Cubic pieces; below the smallest octave, the kernel itself."""

    law: Pitches
    bits: int  # b
    # (5, 1 + octaves · 2^b + 1): start of each piece, and its coefficients by ascending power of
    # the distance from there. The first piece begins at 0; the last one has no end.
    pieces: Float64s
    fine_bits: int  # b of the fine pieces
    fine: Float64s  # (5, fine octaves · 2^b) or (5, 0): used instead in the octaves next to 1

    def along(self, distances: Float64s) -> Float64s:
        """Return k(r·E[S]), entry by entry, for distances in units of the mean pitch."""
        flat = np.ascontiguousarray(distances, np.float64).reshape(-1)
        words = flat.view(np.int64)
        before = ((_MIN_OCTAVE + _EXPONENT_BIAS) << self.bits) - 1
        places = (words >> (_MANTISSA_BITS - self.bits)) - before
        values = _cubic(self.pieces, np.clip(places, 0, self.pieces.shape[1] - 1), flat)
        if self.fine.size:
            before = (_FINE_OCTAVE + _EXPONENT_BIAS) << self.fine_bits
            places = (words >> (_MANTISSA_BITS - self.fine_bits)) - before
            here = np.flatnonzero((places >= 0) & (places < self.fine.shape[1]))
            values[here] = _cubic(self.fine, places[here], flat[here])
        near = np.flatnonzero((flat > 0) & (flat < _MIN))
        values[near] = self.law.kernel(flat[near] * self.law.mean)
        return values.reshape(distances.shape)


def _cubic(pieces: Float64s, places: Int64s, distances: Float64s) -> Float64s:
    start, constant, linear, square, cube = (row.take(places) for row in pieces)
    t = distances - start
    return np.asarray(constant + t * (linear + t * (square + t * cube)))


@dataclass(frozen=True, slots=True)
class Lines:
    """Straight pieces between integers: the kernel of an integer pitch."""

    mean: float  # E[S]
    ends: Float64s  # (p,): k at 0, 1, …; the last is 0

    def along(self, distances: Float64s) -> Float64s:
        """Return k(r·E[S]), entry by entry, for distances in units of the mean pitch."""
        last = len(self.ends) - 1
        raw = np.minimum(distances, last / self.mean) * self.mean
        piece = np.minimum(raw.astype(np.int64), last - 1)
        left = self.ends[piece]
        return np.asarray(left + (raw - piece) * (self.ends[piece + 1] - left), np.float64)


PolyaCurve = Cubics | Lines


@lru_cache(maxsize=16)
def curve_of(distribution: Distribution, shape: float | None) -> PolyaCurve | None:
    """Return a curve within 10^-8 of the kernel everywhere; None if no size reaches that."""
    law = pitches(distribution, shape)
    if isinstance(law, ShiftedPoisson):
        return Lines(law.mean, np.append(law.kernel(np.arange(law.support + 1.0)), 0.0))
    for bits, fine_bits in _BITS:
        pieces = _pieces(law, bits, _MIN_OCTAVE, _OCTAVES)
        places = _test_points(pieces[:, 0])
        first, last = np.zeros((1, 5)), np.zeros((1, 5))
        first[0, 1] = 1.0  # only 0 itself is read here
        fine = np.empty((0, 5))
        if fine_bits is not None:
            fine = _pieces(law, fine_bits, _FINE_OCTAVE, _FINE_OCTAVES)
            places = np.append(places, _test_points(fine[:, 0]))
        whole = np.concatenate([first, pieces, last])
        curve = Cubics(law, bits, whole.T.copy(), fine_bits or 0, fine.T.copy())
        if np.max(np.abs(curve.along(places) - law.kernel(places * law.mean))) < _TOLERANCE:
            return curve
    return None


def _pieces(law: Pitches, bits: int, octave: int, octaves: int) -> Float64s:
    """Return the (octaves · 2^bits, 5) pieces from 2^octave on, each exact at its ends."""
    starts = 2.0 ** np.arange(octave, octave + octaves)[:, None]
    inner = starts * (1.0 + np.arange(2**bits) / 2**bits)
    ends = np.append(inner, starts[-1] * 2.0)
    values, slopes = law.kernel(ends * law.mean), -law.slope(ends * law.mean) * law.mean
    widths = np.diff(ends)
    rise = np.diff(values) / widths
    left, right = slopes[:-1], slopes[1:]
    square = (3.0 * rise - 2.0 * left - right) / widths
    cube = (left + right - 2.0 * rise) / widths**2
    return np.stack([ends[:-1], values[:-1], left, square, cube], axis=1)


def _test_points(starts: Float64s) -> Float64s:
    """Return points inside each piece except the last, and its start."""
    widths = np.diff(starts)
    inside = [starts[:-1] + share * widths for share in (0.0, *_INSIDE)]
    return np.concatenate([*inside, starts[-1:]])
