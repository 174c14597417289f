"""Rows that share a band with queries, with the samples of all keys divided into new bands.

A key of a table has the samples of one band. The concatenated keys of a row are its code. It is
divided into bands of another width, chosen for one minimum score; no sample is left over. The
queries are put into buckets, and the rows are looked up one by one.
"""

from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Int32s, UInt8s, UInt64s
from gcws_search.index.kernels.compiling import inlined, inner, kernel

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: Fibonacci hashing."""
_FILTER_BITS = np.uint64(4)
"""A filter has a bit for each 1/2^_FILTER_BITS of a bucket, most of them 0."""
_WORD_BITS = np.uint64(6)
_BIT = np.uint64(63)
_ONE = np.uint64(1)


class BandShape(NamedTuple):
    """How codes are divided into bands."""

    depths: int  # samples per key
    bits: int  # of a sample
    width: int  # samples per band, at most those of a key
    bands: int


class Buckets(NamedTuple):
    """Queries by the buckets of their bands' hashes."""

    starts: Int32s  # (bands, 2^b + 1)
    queries: Int32s  # (bands, m): ascending within a bucket
    filters: UInt64s  # (bands, 2^(b + 4) / 64): bits of the hashes that occur


class _Place(NamedTuple):
    """The place of a band in a code: in one key, or at its end and the start of the next one."""

    word: int
    next: int
    left: np.uint64  # bits of the first key before the band
    right: np.uint64  # all bits of that key outside of the band
    rest: np.uint64  # bits of the band in the next key


@inner
def _place(band: int, shape: BandShape) -> _Place:
    word, first = band * shape.width // shape.depths, band * shape.width % shape.depths
    some = min(shape.width, shape.depths - first)
    bits = np.uint64(shape.bits)
    rest = np.uint64(shape.width - some) * bits
    following = word + 1 if some < shape.width else word
    return _Place(
        word, following, np.uint64(first) * bits, np.uint64(64) - np.uint64(some) * bits, rest
    )


@inlined
def _band(codes: Any, row: Any, place: Any) -> Any:
    """Return the bits of a band of a vector, from the codes of many vectors."""
    found = (codes[place.word, row] << place.left) >> place.right
    if place.rest > np.uint64(0):
        more = codes[place.next, row] >> (np.uint64(64) - place.rest)
        found = (found << place.rest) | more
    return found


@inner
def _shift(size: int) -> np.uint64:
    """Return the shift that maps a hash to ``size`` values, a power of two."""
    shift = 64
    while size > 1:
        size //= 2
        shift -= 1
    return np.uint64(shift)


@kernel
def fill_buckets(codes: UInt64s, shape: BandShape, out: Buckets) -> None:
    """Put queries into buckets by their (keys, m) codes."""
    shape, out = BandShape(*shape), Buckets(*out)
    shift = _shift(out.starts.shape[1] - 1)
    out.filters[:] = np.uint64(0)
    for band in range(shape.bands):
        starts, queries, bits = out.starts[band], out.queries[band], out.filters[band]
        place = _place(band, shape)
        starts[:] = 0
        for query in range(codes.shape[1]):
            hashed = _band(codes, query, place) * _MULTIPLIER
            starts[np.int64(hashed >> shift)] += 1
            bit = hashed >> (shift - _FILTER_BITS)
            bits[np.int64(bit >> _WORD_BITS)] |= _ONE << (bit & _BIT)
        end = np.int32(0)
        for bucket in range(starts.shape[0]):
            end += starts[bucket]
            starts[bucket] = end
        for query in range(codes.shape[1] - 1, -1, -1):
            bucket = np.int64((_band(codes, query, place) * _MULTIPLIER) >> shift)
            starts[bucket] -= 1
            queries[starts[bucket]] = query


@kernel
def join_buckets(
    asked: UInt64s,
    buckets: Buckets,
    codes: UInt64s,
    permitted: UInt8s,
    shape: BandShape,
    band: int,
    first: int,
    last: int,
    at: int,
    out: UInt64s,
) -> tuple[int, int, int]:
    """List queries and permitted rows that share a band, as query * 2^32 + row.

    asked, codes (keys, m), (keys, n): codes of queries and of rows.
    first, last: range of rows. The work stops when ``out`` is full, and can continue from a row and
        a place in its bucket: ``first`` and 0 at the start.
    Returns pairs written, and where to continue: ``last`` when all is done.
    """
    buckets, shape = Buckets(*buckets), BandShape(*shape)
    shift = _shift(buckets.starts.shape[1] - 1)
    place = _place(band, shape)
    starts, queries, bits = buckets.starts[band], buckets.queries[band], buckets.filters[band]
    here, there = codes[place.word], codes[place.next]
    found = 0
    for row in range(first, last):
        own = (here[row] << place.left) >> place.right
        if place.rest > np.uint64(0):
            own = (own << place.rest) | (there[row] >> (np.uint64(64) - place.rest))
        hashed = own * _MULTIPLIER
        bit = hashed >> (shift - _FILTER_BITS)
        there_is_one = (bits[np.int64(bit >> _WORD_BITS)] >> (bit & _BIT)) & _ONE
        if there_is_one == np.uint64(0) or permitted[row] == 0:
            continue
        bucket = np.int64(hashed >> shift)
        for entry in range(starts[bucket] + at, starts[bucket + 1]):
            query = queries[entry]
            if _band(asked, query, place) == own:
                if found == out.shape[0]:
                    return found, row, entry - starts[bucket]
                out[found] = np.uint64(query) << np.uint64(32) | np.uint64(row)
                found += 1
        at = 0
    return found, last, 0
