"""Logarithms, cosines and sines in float32, from exactly rounded steps.

Library functions differ between machines, vector widths and loop tails. These are fixed sequences
of IEEE operations, so equal inputs give equal outputs everywhere.

`log_normal` is accurate to the last bit or two (the polynomial of Cephes ``logf``, S. L. Moshier).
`log_quick` has a relative error below 10^-5 and half the steps (a Chebyshev interpolant of
log(1 + m)/m), which is enough for random numbers.

Angles are in turns. An angle of t turns equals t − ⌊t + ½⌋ turns, which float32 computes without
rounding, so large angles lose no precision. The result is folded onto a quarter: with f in [−½, ½]
turns, cos f = sin(¼ − |f|). The polynomial is the minimax one with five odd terms for sin 2πg on
[0, ¼]: its error is 3.3·10^-9, in float32 2·10^-7.
"""

# Lanes and addresses have no Python type.
# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN201, ANN202

import numpy as np

from gcws_search.index.kernels.compiling import inner
from gcws_search.index.kernels.lanes.vector import (
    absolute,
    as_floats,
    as_ints,
    floor,
    fma,
    less,
    select,
    signed_shift,
    splat,
    to_floats,
)

_BITS_OF_SQRT_HALF = np.float32(0.70710678118654752440).view(np.int32)
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440e-4)
_ZERO = np.float32(0.0)
_HALF = np.float32(0.5)
_ONE = np.float32(1.0)
_P0 = np.float32(7.0376836292e-2)
_P1 = np.float32(-1.1514610310e-1)
_P2 = np.float32(1.1676998740e-1)
_P3 = np.float32(-1.2420140846e-1)
_P4 = np.float32(1.4249322787e-1)
_P5 = np.float32(-1.6668057665e-1)
_P6 = np.float32(2.0000714765e-1)
_P7 = np.float32(-2.4999993993e-1)
_P8 = np.float32(3.3333331174e-1)
_LN2 = np.float32(0.6931471805599453)
_Q0 = np.float32(1.000003695487976)
_Q1 = np.float32(-0.49989479780197144)
_Q2 = np.float32(0.3326590657234192)
_Q3 = np.float32(-0.2543335556983948)
_Q4 = np.float32(0.2196570783853531)
_Q5 = np.float32(-0.14021623134613037)
_EXPONENT_SHIFT = np.int32(23)
_NOT_MANTISSA = np.int32(-(2**23))
_SMALLEST_NORMAL = np.float32(1.1754943508222875e-38)
_TWO_24 = np.float32(16777216.0)
_LN_2_24 = np.float32(16.635532333438687)
_QUARTER = np.float32(0.25)
_S0 = np.float32(6.28318516008935)
_S1 = np.float32(-41.3416550313834)
_S2 = np.float32(81.60100407107097)
_S3 = np.float32(-76.54978224058232)
_S4 = np.float32(39.53670564384083)


@inner
def _split(x):
    """Return (e, m) with x = 2^e·(1 + m) and 1 + m in [√½, √2)."""
    bits = as_ints(x)
    above = bits - splat(_BITS_OF_SQRT_HALF)  # its upper nine bits, with a sign, are e
    mantissa = as_floats(bits - (above & splat(_NOT_MANTISSA)))
    return to_floats(signed_shift(above, splat(_EXPONENT_SHIFT))), mantissa - splat(_ONE)


@inner
def log_normal(x):
    """Return log x for lanes of positive, normal float32."""
    exponent, m = _split(x)
    square = m * m
    p = splat(_P0) * m + splat(_P1)
    p = p * m + splat(_P2)
    p = p * m + splat(_P3)
    p = p * m + splat(_P4)
    p = p * m + splat(_P5)
    p = p * m + splat(_P6)
    p = p * m + splat(_P7)
    p = p * m + splat(_P8)
    y = (p * m * square + exponent * splat(_LN2_LOW)) - splat(_HALF) * square
    return (m + y) + exponent * splat(_LN2_HIGH)


@inner
def log_quick(x):
    """Return log x for lanes of positive, normal float32, to a relative 10^-5, also near 1."""
    exponent, m = _split(x)
    q = fma(splat(_Q5), m, splat(_Q4))
    q = fma(q, m, splat(_Q3))
    q = fma(q, m, splat(_Q2))
    q = fma(q, m, splat(_Q1))
    q = fma(q, m, splat(_Q0))
    return fma(exponent, splat(_LN2), q * m)


@inner
def log_positive(x):
    """Return log x for lanes of positive float32, subnormal ones included."""
    small = less(x, splat(_SMALLEST_NORMAL))
    log = log_normal(select(small, x * splat(_TWO_24), x))
    return log - select(small, splat(_LN_2_24), splat(_ZERO))


@inner
def cosine(turns):
    """Return cos 2πt of lanes t of float32."""
    rest = turns - floor(turns + splat(_HALF))
    g = splat(_QUARTER) - absolute(rest)
    square = g * g
    p = fma(splat(_S4), square, splat(_S3))
    p = fma(p, square, splat(_S2))
    p = fma(p, square, splat(_S1))
    p = fma(p, square, splat(_S0))
    return p * g


@inner
def sine(turns):
    """Return sin 2πt of lanes t of float32 in [0, 1)."""
    return cosine(turns - splat(_QUARTER))
