"""Working memory of searches, reused so that a search allocates little."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Int64s
from gcws_search.index.kernels.graph.beam_search import ADDRESSES
from gcws_search.index.kernels.graph.candidate_pool import places_for
from gcws_search.index.kernels.quantized.rows import places

SLOTS: Final = 6
"""Searches over dense rows that take their steps in turn."""
SPARSE_SLOTS: Final = 2
"""The same over sparse rows: each has a table of its query, which should stay in cache."""
_ROOM: Final = 2
"""Column of the addresses that holds how many rows a search may see."""
_MAX_FREE: Final = 16
"""Scratch memory that is held for reuse; only more threads than that take more at once."""


@dataclass(frozen=True, slots=True)
class ScratchSizes:
    """Sizes of memory that the searches of one call need.

    One search can see at most ``room`` rows. ``longest`` is the non-zero count of the longest
    sparse vector, 0 for dense ones; ``keys`` are places in tables.
    """

    rows: int
    room: int
    beam: int
    longest: int
    keys: int

    def covers(self, other: ScratchSizes) -> bool:
        """Return whether memory of this size is enough for ``other``."""
        return (
            self.rows >= other.rows
            and self.room >= other.room
            and self.beam >= other.beam
            and self.longest >= other.longest
            and self.keys >= other.keys
        )

    def for_queries(self, longest: int) -> ScratchSizes:
        """Return a size that is also enough for sparse queries."""
        return self if longest <= self.longest else replace(self, longest=longest)

    def with_room(self) -> ScratchSizes:
        """Return a size that stays enough while some rows and segments are added."""
        return replace(self, rows=2 * self.rows, keys=2 * self.keys)


class Scratch:
    """Arrays of a few searches that run interleaved.

    The (slots, ADDRESSES) `addresses` are as `beam_search.scratch_at` takes them, and valid while
    this object lives. ``first`` are those of one slot, for a single query.
    """

    def __init__(self, sizes: ScratchSizes) -> None:
        self.sizes = sizes
        table = places(sizes.longest) if sizes.longest else 1
        other = np.zeros(table, np.float32)
        self._arrays: list[AnyArray] = [other]
        self.addresses: Int64s = np.empty(
            (SPARSE_SLOTS if sizes.longest else SLOTS, ADDRESSES), np.int64
        )
        for slot in self.addresses:
            arrays = (
                np.zeros(sizes.rows // 64 + 1, np.uint64),
                np.empty(sizes.room + 1, np.int32),
                np.empty(places_for(sizes.room), np.uint64),  # pages are allocated at first use
                np.empty(sizes.room + 1, np.uint64),
                np.empty(sizes.room + 1, np.float32),
                np.zeros(table, np.float32),
                np.empty(sizes.keys, np.int64),
                np.empty(sizes.keys, np.int64),
            )
            self._arrays += arrays
            words, seen, pool, fresh, scores, own, places_of_any, own_places = (
                array.ctypes.data for array in arrays
            )
            slot[:] = (
                *(words, seen, sizes.room, pool, fresh, scores),
                *(own, other.ctypes.data, places_of_any, own_places),
            )
        self.first = self.addresses[:1]

    def limit(self, room: int) -> None:
        """Let a search see at most ``room`` rows, even if there is memory for more."""
        self.addresses[:, _ROOM] = room


class ScratchPool:
    """Unused working memory; any thread takes some and gives it back."""

    def __init__(self) -> None:
        self._free: deque[Scratch] = deque(maxlen=_MAX_FREE)

    def take(self, sizes: ScratchSizes) -> Scratch:
        """Return memory for a few searches, for this thread alone until it is given back."""
        try:
            scratch = self._free.pop()
        except IndexError:
            return Scratch(sizes.with_room())
        if not scratch.sizes.covers(sizes):
            return Scratch(sizes.with_room())
        scratch.limit(sizes.room)
        return scratch

    def give(self, scratch: Scratch) -> None:
        """Take memory back; not after an error, because marks may still be set."""
        self._free.append(scratch)

    def clear(self) -> None:
        """Free all unused memory."""
        self._free.clear()

    @contextmanager
    def lend(self, sizes: ScratchSizes) -> Iterator[Scratch]:
        """Lend memory for a few searches."""
        scratch = self.take(sizes)
        yield scratch
        self.give(scratch)
