"""Counter-based randomness: a function of (seed, slot, sample) and nothing else.

r and c are Gamma(2, 1) = −log(U₁U₂), β is U(0, 1). Each (slot, sample) has three 32-bit words: the
halves of one give the two uniforms of r, those of another give c, and the third gives β. Every step
is integer arithmetic or an exactly rounded float32 operation, so a stored table and the generator
agree to the bit.

The winning slot among n has an e^(−r) of about 1/n, so the uniforms of r need a fine resolution
near 0: 16 bits alone would make collisions 6 % too rare at n = 10,000 and 20 % at 100,000. c and β
of a winner have ordinary values, for which 16 bits are enough. So the lower half of β's word gives
16 further bits to both uniforms of r. It is the same for both, which matters only if both are
small, as for winners among 10^8 slots.

Pitches and offsets of bins, and normal numbers of feature maps, come from the same words of a
coordinate and a sample, or a pair of features.

The mixing steps are those of Wellons' ``lowbias32`` and of Steele's ``splitmix64``.
"""

# Lanes and addresses have no Python type.
# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN201, ANN202

from typing import Final

import numpy as np

from gcws_search.index.kernels.compiling import inner
from gcws_search.index.kernels.lanes.functions import cosine, log_quick, sine
from gcws_search.index.kernels.lanes.vector import (
    floor,
    fma,
    product_of_halves,
    root,
    splat,
    to_floats,
)

_GOLDEN_64 = np.uint64(0x9E3779B97F4A7C15)
_MIX_64_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_64_B = np.uint64(0x94D049BB133111EB)
_LOW_32 = np.uint64(0xFFFFFFFF)
# int32 lanes contain bits: these are 32-bit patterns, wrapped to the signed range.
_GOLDEN_32 = np.int32(0x9E3779B9 - 2**32)
_MIX_32_A = np.int32(0x7FEB352D)
_MIX_32_B = np.int32(0x846CA68B - 2**32)
# These distinguish the words of a (slot, sample): w ^ (w >> 16) of three numbers w, because
# (x ^ w) ^ ((x ^ w) >> 16) is the value for x ^ the value for w.
_DRAW_R, _DRAW_C, _DRAW_BETA, _DRAW_RADIUS, _DRAW_ANGLE, _DRAW_PITCH, _DRAW_OFFSET = (
    np.int32(w ^ (w >> 16))
    for w in (0x05EBCA6B, 0x42B2AE35, 0x165667B1, 0x27D4EB2F, 0x61C88647, 0x3C6EF372, 0x1B873593)
)
_1 = np.int32(1)
_9 = np.int32(9)
_15 = np.int32(15)
_16 = np.int32(16)
_MASK_16 = np.int32(0xFFFF)
_TO_16 = np.float32(2.0**-16)
_TO_23 = np.float32(2.0**-23)
_ZERO = np.float32(0.0)
_HALF_16 = np.float32(2.0**-17)
_HALF_23 = np.float32(2.0**-24)
_TO_32 = np.float32(2.0**-32)
_HALF_32 = np.float32(2.0**-33)
_TO_16_BELOW_1 = np.float32(2.0**-16 - 2.0**-36)
_ONE = np.float32(1.0)
_MINUS_TWO = np.float32(-2.0)
_MAX_LEFT = np.int32(2**17 - 1)  # 2^16·((1 − V₁) + (1 − V₂)) for the smallest midpoints
_QUARTER = np.float32(2.0**-18)

RATE_SCALE: Final = 2.0**32
"""What products of `min_chance` and `min_clock` are scaled by."""


@inner
def mix64(x: np.uint64) -> np.uint64:
    """Return the splitmix64 finaliser of x: a bijection in which every bit affects every other."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_64_A
    x = (x ^ (x >> np.uint64(27))) * _MIX_64_B
    return x ^ (x >> np.uint64(31))


@inner
def slot_words(seed: np.uint64, slot: np.uint32) -> tuple[np.int32, np.int32]:
    """Return the 2 × 32 bits from which all randomness of one slot is derived."""
    key = mix64(mix64(seed) + (np.uint64(slot) + np.uint64(1)) * _GOLDEN_64)
    return np.int32(key & _LOW_32), np.int32(key >> np.uint64(32))


@inner
def _draw(x, low, which):
    y = (x ^ splat(which)) * splat(_MIX_32_A)
    y = ((y ^ (y >> splat(_15))) + low) * splat(_MIX_32_B)
    return y ^ (y >> splat(_16))


@inner
def _gamma(word):
    """Return −log(U₁U₂) for the midpoints in (0, 1) given by the halves of a word."""
    first = fma(to_floats(word >> splat(_16)), splat(_TO_16), splat(_HALF_16))
    second = fma(to_floats(word & splat(_MASK_16)), splat(_TO_16), splat(_HALF_16))
    return splat(_ZERO) - log_quick(first * second)


@inner
def fine_gamma(word, finer):
    """Return the same with uniforms of 32 bits: the lower half of ``finer`` extends both.

    The second is below 1 - 2^-20, so the gamma number has an inverse.
    """
    end = fma(to_floats(finer & splat(_MASK_16)), splat(_TO_32), splat(_HALF_32))
    first = fma(to_floats(word >> splat(_16)), splat(_TO_16), end)
    second = fma(to_floats(word & splat(_MASK_16)), splat(_TO_16_BELOW_1), end)
    return splat(_ZERO) - log_quick(first * second)


@inner
def _uniform(word):
    """Return the midpoint in (0, 1) given by the upper 23 bits of a word."""
    return fma(to_floats(word >> splat(_9)), splat(_TO_23), splat(_HALF_23))


@inner
def mix(low, high, samples):
    """Return the common part of the words of sixteen slots (see `slot_words`) and samples."""
    return mix_terms(low, high, weyl(samples))


@inner
def weyl(samples):
    """Return the Weyl terms of sixteen samples, for `mix_terms`."""
    return samples * splat(_GOLDEN_32)


@inner
def mix_terms(low, high, terms):
    """Return `mix`, given `weyl` of the samples: a loop over slots computes that once."""
    x = terms + low
    x = (x ^ (x >> splat(_16))) * splat(_MIX_32_A)
    x = (x ^ (x >> splat(_15))) * splat(_MIX_32_B)
    x = (x ^ (x >> splat(_16))) + high
    return x ^ (x >> splat(_16))


@inner
def pitch_and_offset(x, low):
    """Return (r, β) from `mix`: the step of log ũ, and its offset."""
    third = _draw(x, low, _DRAW_BETA)
    return fine_gamma(_draw(x, low, _DRAW_R), third), _uniform(third)


@inner
def clock(x, low):
    """Return c from `mix`."""
    return _gamma(_draw(x, low, _DRAW_C))


@inner
def base_of(r, beta, c):
    """Return log c − r(1 − β)."""
    return fma(r, beta - splat(_ONE), log_quick(c))


@inner
def hash_parameters(low, high, samples):
    """Return (r, 1/r, β, log c − r(1 − β)) of sixteen slots and samples; see `mix`."""
    x = mix(low, high, samples)
    r, beta = pitch_and_offset(x, low)
    return r, splat(_ONE) / r, beta, base_of(r, beta, clock(x, low))


@inner
def min_chance(x, low):
    """Return a lower bound of 2^16·e^(−r) from `mix`, without a logarithm.

    e^(−r) = U₁U₂. The uniforms are cut to their first 16 bits, and so is the product, which becomes
    0 for one (slot, sample) in 5,000.
    """
    u = _draw(x, low, _DRAW_R)
    return to_floats(product_of_halves(u >> splat(_16), u))


@inner
def min_clock(x, low):
    """Return a lower bound of 2^16·c from `mix`, without a logarithm.

    c = −log V₁V₂ ≥ −2 log(1 − s/2) ≥ s + s²/4 with s = (1 − V₁) + (1 − V₂).
    """
    v = _draw(x, low, _DRAW_C)
    s = to_floats(splat(_MAX_LEFT) - (v >> splat(_16)) - (v & splat(_MASK_16)))
    return s * fma(s, splat(_QUARTER), splat(_ONE))


@inner
def level_of(log_value, inverse_r, beta):
    """Return t = floor(log ũ / r + β), as float lanes."""
    return floor(fma(log_value, inverse_r, beta))


@inner
def arrival_of(level, r, base):
    """Return a = log c − r(t + 1 − β); the slot with the smallest a is the sample's i*."""
    return fma(splat(_ZERO) - r, level, base)


@inner
def normal_pair(low, high, pairs):
    """Return two N(0, 1) numbers for each of sixteen pairs of features, by Box and Muller.

    The radius comes from 23 bits, so no number exceeds 5.8 in magnitude.
    """
    x = mix(low, high, pairs)
    radius = root(splat(_MINUS_TWO) * log_quick(_uniform(_draw(x, low, _DRAW_RADIUS))))
    angle = _uniform(_draw(x, low, _DRAW_ANGLE))
    return radius * cosine(angle), radius * sine(angle)


@inner
def uniforms(low, high, samples):
    """Return sixteen U(0, 1) numbers; for the parameters see `mix`."""
    return _uniform(_draw(mix(low, high, samples), low, _DRAW_BETA))


@inner
def bin_words(low, high, samples):
    """Return the parameters of the bins of sixteen samples along a coordinate.

    32 bits that choose the pitch, the offset's U(0, 1), and odd numbers that hash the bins.
    """
    x = mix(low, high, samples)
    offset = _uniform(_draw(x, low, _DRAW_OFFSET))
    return _draw(x, low, _DRAW_PITCH), offset, x | splat(_1)


@inner
def scramble(x):
    """Apply a bijection to int32 lanes in which every bit affects every other."""
    x = (x ^ (x >> splat(_16))) * splat(_MIX_32_A)
    x = (x ^ (x >> splat(_15))) * splat(_MIX_32_B)
    return x ^ (x >> splat(_16))
