"""GCWS samples of vectors with too many possible slots for a table: by generator and bounds.

Letters as in `gcws`. Since L/r + β − 1 < t ≤ L/r + β, a is in [log(c·e^(−r)/ũ), log(c/ũ)]. So a
slot cannot win a sample if c·e^(−r)/ũ is not below e^a of an earlier slot. A lower bound of
c·e^(−r) needs no logarithm (`_find_rates`). About one (slot, sample) in twelve remains to be
computed, because slots of great values come first.

The minimum of m values e^a is exponential with the rate S = Σũ, so SURE/S is nearly always above
it. Samples start with this limit, as if an earlier slot had reached it. Samples that no slot
brings below it are computed again, in full.

Limits are e^a times the row's greatest ũ, so they do not depend on the vector's scale. They are
raised by more than all roundings (of a and of that bound together: below 10^-3) and by the gap of
a power of two below its chord. They are compared as bits, which order positive floats.

Source: [GMM] Algorithm 1; [ICWS] §3.
"""

# Lanes and addresses have no Python type.
# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN202

from typing import NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import LANES, Float32s, Int32s, Int64s, UInt32s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.hashing.randomness import (
    RATE_SCALE,
    arrival_of,
    base_of,
    clock,
    hash_parameters,
    level_of,
    min_chance,
    min_clock,
    mix,
    mix_terms,
    pitch_and_offset,
    slot_words,
    weyl,
)
from gcws_search.index.kernels.lanes.functions import log_positive
from gcws_search.index.kernels.lanes.vector import (
    HALF,
    SPARE,
    append_less,
    as_floats,
    as_ints,
    at,
    fma,
    lane_numbers,
    less,
    load,
    lower,
    offset,
    pointer,
    select,
    signed_shift,
    splat,
    store,
    to_ints,
)

_MAX_DRAWN = 32  # slots: up to here computing all of them is faster
_BATCH = 128  # (slot, sample)s computed at a time
_SURE = 6.0
_NONE = np.int64(2**63 - 1)
_POSITION = np.int64(0xFFFFFFFF)
_INFINITY = np.float32(np.inf)
_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_NO_BITS = np.int32(0)
_A_HALF = np.int32(HALF)
_EXPONENT = np.int32(23)
_SIGN = np.int32(31)
_MAGNITUDE = np.int32(0x7FFFFFFF)
_LOWEST = np.float32(-80.0)
_HIGHEST = np.float32(80.0)
# Float32 bits count powers of two in 2^23, from 127 below zero: read as a line they are 2^x or up
# to 6 % above. Adding 2^15 raises a limit by at least 0.2 %.
_BITS_PER_UNIT = np.float32(2.0**23 / np.log(2.0))
_BITS_OF_ONE = np.float32(127.0 * 2.0**23 + 2.0**15)


class _StreamScratch(NamedTuple):
    """Working memory for the samples of one row."""

    # (3, longest): `slot_words` of the row's slots, and the order of visits.
    words: Int32s
    ends: Int32s  # (256,)
    drawn: Int32s  # (3m,): the first 2m are overwritten; see `_find_rates`
    # (m,): the upper half sorts as a does, the lower half is the slot's position in the row. So the
    # minimum is the smallest a, and among equal ones the first.
    best: Int64s
    limits: Int32s  # (m,): bits of the limits of e^a
    # (7, ·): (slot, sample)s to compute: sample, both words of the slot, bits of log ũ, position;
    # and room for two intermediate numbers.
    queue: Int32s


@kernel
def sketch_from_stream(
    indptr: Int64s,
    slots: UInt32s,
    values: Float32s,
    seed: np.uint64,
    first_block: int,
    wanted: int,
    out_slots: UInt32s,
    out_levels: UInt32s,
) -> None:
    """Compute samples of rows.

    Slots ascend in each compressed row, values are positive, and no row is empty.
    out_slots, out_levels (n, m): i*, and t* as the bits of an int32, of ``wanted`` samples from
      block ``first_block`` of LANES samples on. m is the next multiple of LANES; further columns
      have no meaning.
    """
    n, m = out_slots.shape
    longest = 0
    for row in range(n):
        longest = max(longest, indptr[row + 1] - indptr[row])
    logs = np.empty(longest + LANES, np.float32)
    words = np.empty((3, longest), np.int32)
    ends = np.empty(256, np.int32)
    drawn = np.empty(3 * m, np.int32)
    best = np.empty(m, np.int64)
    limits = np.empty(m, np.int32)
    queue = np.empty((7, _BATCH + m + SPARE), np.int32)
    scratch = _StreamScratch(words, ends, drawn, best, limits, queue)
    first = first_block * LANES
    lanes = HALF if wanted <= HALF else LANES
    for b in range(0, m, LANES):
        samples = lane_numbers() & splat(np.int32(lanes - 1))
        store(drawn, 2 * m + b, weyl(samples + splat(np.int32(first + b))))
    for row in range(n):
        here = slice(indptr[row], indptr[row + 1])
        count = indptr[row + 1] - indptr[row]
        for i in range(count):
            logs[i] = values[indptr[row] + i]
        for i in range(0, count, LANES):
            store(logs, i, log_positive(load(logs, i)))
        if count <= _MAX_DRAWN:
            _sketch_short(slots[here], logs, seed, first, out_slots[row], out_levels[row])
        else:
            _choose_slots(slots[here], values[here], logs, seed, first, wanted, lanes, scratch)
            _write_samples(slots[here], logs, words, best, first, out_slots[row], out_levels[row])


@inner
def _sketch_short(
    slots: UInt32s,
    logs: Float32s,
    seed: np.uint64,
    first: int,
    out_slots: UInt32s,
    out_levels: UInt32s,
) -> None:
    """Compute every (slot, sample) of a row."""
    for b in range(0, out_slots.shape[0], LANES):
        samples = lane_numbers() + splat(np.int32(first + b))
        minimum = splat(_INFINITY)
        best_level = splat(_ZERO)
        best_slot = splat(np.int32(0))
        for position in range(slots.shape[0]):
            low, high = slot_words(seed, slots[position])
            r, inverse_r, beta, base = hash_parameters(splat(low), splat(high), samples)
            t = level_of(splat(logs[position]), inverse_r, beta)
            a = arrival_of(t, r, base)
            wins = less(a, minimum)
            minimum = select(wins, a, minimum)
            best_level = select(wins, t, best_level)
            best_slot = select(wins, splat(np.int32(slots[position])), best_slot)
        store(out_slots, b, best_slot)
        store(out_levels, b, to_ints(best_level))


@inner
def _choose_slots(
    slots: UInt32s,
    values: Float32s,
    logs: Float32s,
    seed: np.uint64,
    first: int,
    wanted: int,
    lanes: int,
    out: _StreamScratch,
) -> None:
    """Find the i* of each wanted sample.

    lanes: LANES; or HALF if two slots share the lanes, because so few samples are wanted.
    """
    words, best, limits, queue = out.words, out.best, out.limits, out.queue
    count = slots.shape[0]
    greatest = _ZERO
    for position in range(count):
        greatest = max(greatest, values[position])
    share = np.float64(0.0)
    for position in range(count):
        share += values[position] / greatest
    limits_as_floats = limits.view(np.float32)
    limits_as_floats[:wanted] = _SURE / share
    limits_as_floats[wanted:] = _ZERO  # no bound is below it
    start = limits[0]
    best[:wanted] = _NONE
    best[wanted:] = 0
    log_greatest = log_positive(splat(greatest))
    size = queue.shape[1]
    to_queue, to_best, to_limits = pointer(queue), pointer(best), pointer(limits)
    to_drawn = pointer(out.drawn)
    rates, bars = pointer(out.drawn.view(np.float32)), pointer(limits_as_floats)
    m = limits.shape[0] if lanes == LANES else HALF
    order = words[2, :count]
    _by_falling_power(values, out.ends, order)
    filled = 0
    for visited in range(count):
        position = order[visited]
        low, high = slot_words(seed, slots[position])
        words[0, position], words[1, position] = low, high
        scale = np.float32(values[position] / greatest * RATE_SCALE)
        begin = filled
        place = 0
        if lanes == LANES:
            _find_rates(splat(low), splat(high), m, to_drawn)
        elif visited & 1:
            place = HALF
        else:
            low_2, high_2 = slot_words(seed, slots[order[min(visited + 1, count - 1)]])
            is_first = less(lane_numbers(), splat(_A_HALF))
            lows = select(is_first, splat(low), splat(low_2))
            highs = select(is_first, splat(high), splat(high_2))
            _find_rates(lows, highs, LANES, to_drawn)
        for b in range(0, m, HALF):
            filled = append_less(
                to_queue, filled, offset(rates, place + b), offset(bars, b), scale, np.int32(b)
            )
        while True:  # also if none was chosen: a branch on that is often mispredicted
            store(to_queue, size + begin, splat(low))
            store(to_queue, 2 * size + begin, splat(high))
            store(to_queue, 3 * size + begin, as_ints(splat(logs[position])))
            store(to_queue, 4 * size + begin, splat(np.int32(position)))
            begin += LANES
            if begin >= filled:
                break
        if filled >= _BATCH or visited == count - 1:
            _draw(to_queue, size, filled, first, log_greatest, to_best, to_limits)
            filled = 0
    log_bits = logs.view(np.int32)
    for sample in range(wanted):
        if limits[sample] < start:
            continue
        for position in range(count):
            queue[0, filled] = sample
            queue[1, filled], queue[2, filled] = words[0, position], words[1, position]
            queue[3, filled] = log_bits[position]
            queue[4, filled] = position
            filled += 1
            if filled == _BATCH or position == count - 1:
                _draw(to_queue, size, filled, first, log_greatest, to_best, to_limits)
                filled = 0


@inner
def _by_falling_power(values: Float32s, ends: Int32s, out: Int32s) -> None:
    """List the values' places, those of the greatest power of two first: they win most often.

    ends (256,): the count of each power; overwritten.
    """
    powers = values.view(np.int32)
    least, greatest = _MAGNITUDE, _NO_BITS
    for i in range(values.shape[0]):
        least, greatest = min(least, powers[i]), max(greatest, powers[i])
    least, greatest = least >> _EXPONENT, greatest >> _EXPONENT
    ends[least : greatest + 1] = 0
    if least == greatest:
        for i in range(values.shape[0]):
            out[i] = i
        return
    for i in range(values.shape[0]):
        ends[powers[i] >> _EXPONENT] += 1
    end = 0
    for power in range(greatest, least - 1, -1):
        end += ends[power]
        ends[power] = end
    for i in range(values.shape[0] - 1, -1, -1):
        power = powers[i] >> _EXPONENT
        ends[power] -= 1
        out[ends[power]] = i


@inner
def _find_rates(low, high, m, drawn):
    """Write lower bounds of RATE_SCALE · c·e^(−r) of slots and m samples.

    Three short loops: while a processor waits for one step, it looks ahead only a few dozen steps,
    and a long dependency chain leaves it nothing to do.
    """
    for b in range(0, m, LANES):
        store(drawn, b, mix_terms(low, high, load(drawn, 2 * m + b)))
    for b in range(0, m, LANES):
        store(drawn, m + b, as_ints(min_chance(load(drawn, b), low)))
    for b in range(0, m, LANES):
        chance = as_floats(load(drawn, m + b))
        store(drawn, b, as_ints(min_clock(load(drawn, b), low) * chance))


@inner
def _draw(queue, size, filled, first, log_greatest, best, limits):
    """Compute the queued entries; lower ``best`` and ``limits``.

    Several loops, each over the whole queue, keep dependency chains short (see `_find_rates`).
    Numbers written one by one are slow to read sixteen at a time until they have left the
    processor's store queue.
    """
    for i in range(0, filled, LANES):
        samples = load(queue, i) + splat(np.int32(first))
        store(queue, 2 * size + i, mix(load(queue, size + i), load(queue, 2 * size + i), samples))
    for i in range(0, filled, LANES):
        r, beta = pitch_and_offset(load(queue, 2 * size + i), load(queue, size + i))
        store(queue, 5 * size + i, as_ints(r))
        store(queue, 6 * size + i, as_ints(beta))
    for i in range(0, filled, LANES):
        store(queue, size + i, as_ints(clock(load(queue, 2 * size + i), load(queue, size + i))))
    for i in range(0, filled, LANES):
        r, beta = as_floats(load(queue, 5 * size + i)), as_floats(load(queue, 6 * size + i))
        base = base_of(r, beta, as_floats(load(queue, size + i)))
        t = level_of(as_floats(load(queue, 3 * size + i)), splat(_ONE) / r, beta)
        a = arrival_of(t, r, base) + splat(_ZERO)  # turns -0 into 0
        bits = as_ints(a)
        flip = signed_shift(bits, splat(_SIGN)) & splat(_MAGNITUDE)
        store(queue, size + i, bits ^ flip)
        power = a + log_greatest
        power = select(less(power, splat(_LOWEST)), splat(_LOWEST), power)
        power = select(less(power, splat(_HIGHEST)), power, splat(_HIGHEST))
        limit = fma(power, splat(_BITS_PER_UNIT), splat(_BITS_OF_ONE))
        store(queue, 2 * size + i, to_ints(limit))
    for i in range(filled):
        sample = np.int64(at(queue, i))
        arrival = np.int64(at(queue, size + i))
        lower(best, sample, arrival << 32 | np.int64(at(queue, 4 * size + i)))
        lower(limits, sample, at(queue, 2 * size + i))


@inner
def _write_samples(
    slots: UInt32s,
    logs: Float32s,
    words: Int32s,
    best: Int64s,
    first: int,
    out_slots: UInt32s,
    out_levels: UInt32s,
) -> None:
    """Write i* and its t*."""
    low = np.empty(LANES, np.int32)
    high = np.empty(LANES, np.int32)
    log = np.empty(LANES, np.float32)
    for b in range(0, best.shape[0], LANES):
        for lane in range(LANES):
            position = best[b + lane] & _POSITION
            low[lane], high[lane] = words[0, position], words[1, position]
            log[lane] = logs[position]
            out_slots[b + lane] = slots[position]
        samples = lane_numbers() + splat(np.int32(first + b))
        _, inverse_r, beta, _ = hash_parameters(load(low, 0), load(high, 0), samples)
        store(out_levels, b, to_ints(level_of(load(log, 0), inverse_r, beta)))
