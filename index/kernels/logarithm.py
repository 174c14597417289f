"""A natural logarithm in float32 made of exactly rounded steps.

Library logarithms differ between machines, vector widths and loop tails. This one is a fixed
sequence of IEEE additions and multiplications (no fused steps), so one input gives one output
everywhere. Relative error below 2^-23 away from 1, absolute error below 2^-24 near it.

Source: the polynomial of Cephes ``logf`` (S. L. Moshier).
"""

import numpy as np
from numba import njit

from index.arrays import Float32s
from index.kernels.simd import (
    LANES,
    as_floats,
    as_ints,
    less,
    load,
    select,
    splat,
    store,
    to_floats,
)

_SQRT_HALF = np.float32(0.70710678118654752440)
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
_EXPONENT_SHIFT = np.int32(23)
_EXPONENT_BIAS = np.int32(126)
_MANTISSA_BITS = np.int32(0x7FFFFF)
_BITS_OF_HALF = np.int32(0x3F000000)
_SMALLEST_NORMAL = np.float32(1.1754943508222875e-38)
_TWO_24 = np.float32(16777216.0)
_LN_2_24 = np.float32(16.635532333438687)


@njit(cache=True, nogil=True)
def log_normal(x):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 (lanes have no Python type)
    """Return log x for lanes of positive, normal float32."""
    bits = as_ints(x)
    exponent = to_floats((bits >> splat(_EXPONENT_SHIFT)) - splat(_EXPONENT_BIAS))
    mantissa = as_floats((bits & splat(_MANTISSA_BITS)) | splat(_BITS_OF_HALF))
    low = less(mantissa, splat(_SQRT_HALF))
    exponent = exponent - select(low, splat(_ONE), splat(_ZERO))
    m = (mantissa + select(low, mantissa, splat(_ZERO))) - splat(_ONE)
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


@njit(cache=True, nogil=True)
def log_values(values: Float32s, out: Float32s) -> None:
    """Write the logs of positive values, subnormal ones included.

    Parameters
    ----------
    values, out : (n,) float32; out written in place
    """
    padded = np.ones(LANES, np.float32)
    result = np.empty(LANES, np.float32)
    for start in range(0, values.shape[0], LANES):
        count = min(LANES, values.shape[0] - start)
        for lane in range(count):
            padded[lane] = values[start + lane]
        x = load(padded, 0)
        small = less(x, splat(_SMALLEST_NORMAL))
        log = log_normal(select(small, x * splat(_TWO_24), x))
        store(result, 0, log - select(small, splat(_LN_2_24), splat(_ZERO)))
        for lane in range(count):
            out[start + lane] = result[lane]
