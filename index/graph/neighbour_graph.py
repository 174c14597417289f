"""Neighbour lists: for each row the rows nearest to it in several directions.

A row finds its list by searching with the lists of the rows linked before it, entered through the
hash tables, and joins the lists of those it found. Rows linked in random order give good lists;
rows linked as they come, less so when they come in clusters. So lists are made anew, in random
order, when the collection has grown by half, and rows are linked as they come in between.

Lists change in place while others read them: a reader may see part of an old list and part of a
new one, which costs nothing but a step of its walk. Entries for rows that a reader does not know
yet are passed over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Int32s, Int64s, UInt8s, UInt64s, with_room
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.graph.drift import DriftMonitor
from gcws_search.index.graph.scratch import ScratchPool, ScratchSizes
from gcws_search.index.kernels.graph.beam_search import NONE
from gcws_search.index.kernels.graph.build import choose_neighbours, join_lists, list_joins
from gcws_search.index.kernels.ordering.radix_sort import sort_keys
from gcws_search.index.kernels.quantized.rows import SPARSE
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.quantization import QuantizedRows, QuantizedView, Quantizer

WIDTH: Final = 32
"""R: entries of a list."""
BESIDE: Final = 2
"""Rows looked at on each side of a key's place."""
SEEN_A_PLACE: Final = 64
"""Rows that a walk has room to see, for each place of its beam."""
MIN_ROWS: Final = 2048
"""Smaller collections have no lists: scanning them is as fast."""

_OWN: Final = 24
"""Neighbours that a row chooses; the rest of its list is for those that choose it."""
_AFTER_OVERFLOW: Final = 22
"""Neighbours left when a list overflows, chosen by the row or not: pruning is dear, and shall not
follow each that joins. With 26, building 100,000 clustered rows took 6 % more processor time, and
searches scored as many rows."""
_BEAM: Final = 48
_SPARSE_BEAM: Final = 56
_NARROW_BEAM: Final = 24
"""Width of the beam of a row's search for its own list: that of dense rows, of sparse ones, and of
dense ones that lie along few dimensions."""
_EARLY: Final = 0.25
_WIDER: Final = 2
"""Of the last kind this share, the first ones, is linked by a beam so many times as wide: they lead
from cluster to cluster. Without, queries for 100 hits scored up to 14 % more rows."""
_MORE_TABLES: Final = 2
"""And they are linked through so many times the tables of a walk, if there are, which finds more
near rows than the wider beam does: with that, linking took 1.2 to 1.4 times as long, and queries
for 10 hits scored 5 to 13 % more rows at recall 0.95. Rows of more dimensions are nearest to few of
those in their buckets: with the narrow beam queries scored up to 14 % more. Sparse rows are linked
through as many, for each row that a walk scores is dear: hashing and linking 30,000 fingerprints
took 6.3 s, and 8.0 s by a beam of 64 through half of the tables, which had queries score more."""
_DIVERSITY: Final = np.float32(1.2)
"""See `kernels.linking.prune`."""
_ROUND_SHARE: Final = 10
"""A round links at most 1/_ROUND_SHARE of the rows linked before it. With 25, building took up to
8 % more processor time, and searches scored as many rows."""
_MIN_ROUND: Final = 64
_MAX_ROUND: Final = 8192
"""Rows of a round at least and at most, whatever the share."""
_PIECES: Final = 4
"""A round is cut into so many parts for each thread."""
_NOBODY: Final = np.empty(0, np.int64)
_NO_CHECKS: Final = DriftMonitor()


@dataclass(frozen=True, slots=True)
class NeighbourLists:
    """The lists of rows 0 … n-1, as one reader sees them.

    Attributes
    ----------
    links : (n, WIDTH) int32
        Neighbours of each row, `NONE` after the last.
    coarse : QuantizedView
    tables : int
        Through how many tables walks enter.
    """

    links: Int32s
    coarse: QuantizedView
    tables: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.links)


class NeighbourGraph:
    """The lists of one collection; any number of readers of what `cover` and `extend` returned.

    One thread at a time changes them: `extend` sees to it, of all else its caller does.

    Parameters
    ----------
    rounding : Quantizer
    rows : VectorBatch
        All rows; none of them is linked yet.
    tables : int
        Tables through which walks enter.
    narrow : bool
        Whether dense rows lie along few dimensions, so that a narrow beam is enough to link them.
    checks : DriftMonitor
        Of rows that are linked already.
    """

    def __init__(
        self,
        rounding: Quantizer,
        rows: VectorBatch,
        tables: int,
        *,
        narrow: bool = False,
        checks: DriftMonitor = _NO_CHECKS,
    ) -> None:
        self._spaces = ScratchPool()
        self._coarse = QuantizedRows(rounding, rows.dense.shape[1])
        self._tables = tables
        self._narrow = narrow
        self._beam = _SPARSE_BEAM if rounding.kind == SPARSE else _BEAM
        if narrow:
            self._beam = _NARROW_BEAM
        self._links: Int32s = np.empty((0, WIDTH), np.int32)
        self._count = 0
        self._longest = 0
        self._extending = threading.Lock()
        self._in_turn = 0  # rows before this one were linked, or had no need to be
        self._checks = checks
        self.cover(rows)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return self._links.nbytes + self._coarse.nbytes

    @property
    def checks(self) -> DriftMonitor:
        """Of rows linked since the lists were made, by whatever state."""
        return self._checks

    @property
    def narrow(self) -> bool:
        """Whether the rows lie along few dimensions."""
        return self._narrow

    @property
    def rounding(self) -> Quantizer:
        """How rows are rounded."""
        return self._coarse.rounding

    def cover(self, rows: VectorBatch) -> NeighbourLists:
        """Take in new rows, with empty lists; return the lists of all of ``rows``."""
        n = len(rows)
        if n > self._count:
            self._links = with_room(self._links, self._count, n)
            self._links[self._count : n] = NONE
            if rows.form == "sparse":
                new = np.diff(rows.indptr[self._count : n + 1])
                self._longest = max(self._longest, int(new.max(initial=0)))
            self._count = n
        return NeighbourLists(self._links[:n], self._coarse.cover(rows), self._tables)

    @property
    def tables(self) -> int:
        """Through how many tables rows are linked, if there are so many."""
        more = self._narrow or self.rounding.kind == SPARSE
        return self._tables * (_MORE_TABLES if more else 1)

    def linked_through(self, tables: Tables) -> int:
        """Return in how many of the tables the keys of rows must be known to link them."""
        return min(self.tables, tables.bands)

    def sizes(self, tables: Tables, beam: int, room: int) -> ScratchSizes:
        """Return what walks over these lists need, and rows to be linked.

        Parameters
        ----------
        tables : Tables
        beam : int
        room : int
            Rows that a walk may see once it has entered.
        """
        keys = self.linked_through(tables) * len(tables.segments)
        entered = keys * 2 * BESIDE
        return ScratchSizes(self._count, room + entered + WIDTH, beam, self._longest, max(1, keys))

    @property
    def spaces(self) -> ScratchPool:
        """Memory for walks."""
        return self._spaces

    def all_linked(self) -> None:
        """Take note that all rows there are have their lists."""
        self._in_turn = self._count

    def extend(
        self,
        rows: VectorBatch,
        keys: UInt64s,
        tables: Tables,
        workers: Workers,
        *,
        checked: Int64s = _NOBODY,
        check: Callable[[NeighbourLists, Int64s], DriftMonitor] | None = None,
    ) -> NeighbourLists:
        """Link the last len(keys) of ``rows`` in order, but for those that are linked already.

        Any thread: one waits for the other.

        Parameters
        ----------
        rows : VectorBatch
        keys : (n, bands) uint64
        tables : Tables
            Of all rows.
        workers : Workers
        checked : (c,) int64
            Of these rows, those that come last.
        check : callable
            Returns the checks with those of some of these rows, given all lists, before they are
            linked.

        Returns
        -------
        Lists
            Of all ``rows``.
        """
        with self._extending:
            lists = self.cover(rows)
            begins = len(rows) - len(keys)
            first = max(self._in_turn, begins)
            late = checked[checked >= first]
            alive = np.ones(len(rows), np.uint8)
            alive[late] = 0
            early = np.flatnonzero(alive[first:]) + first
            used = keys[:, : self.linked_through(tables)]
            for new in (early, late):
                if not len(new):
                    continue
                if new is late and check is not None:
                    self._checks = check(lists, late)
                alive[new] = 1
                linked = first if new is early else len(rows) - len(late)
                self.link(
                    new, used[new - begins], tables, lists, alive, linked=linked, workers=workers
                )
            self._in_turn = max(self._in_turn, len(rows))
        return lists

    def link(  # noqa: PLR0913 (what it reads, what it changes, and how)
        self,
        chosen: Int64s,
        keys: UInt64s,
        tables: Tables,
        lists: NeighbourLists,
        alive: UInt8s,
        *,
        linked: int,
        workers: Workers,
        stop: threading.Event | None = None,
    ) -> None:
        """Give rows their lists, round by round, and let them join those of others.

        Parameters
        ----------
        chosen : (c,) int64
            Rows, in the order of the rounds in which they are linked.
        keys : (c, t) uint64
            Their keys in the first tables, as many as `linked_through` says.
        tables : Tables
        lists : NeighbourLists
            Of all rows.
        alive : (n,) uint8
            Rows that may be chosen as neighbours.
        linked : int
            How many rows have lists already.
        workers : Workers
        stop : threading.Event or None
            Once set, the rest is left.
        """
        done = 0
        while done < len(chosen) and not (stop is not None and stop.is_set()):
            size = max(_MIN_ROUND, min(_MAX_ROUND, (linked + done) // _ROUND_SHARE))
            part = slice(done, done + size)
            early = self._narrow and linked + done < _EARLY * self._count
            beam = self._beam * (_WIDER if early else 1)
            self._link_round(
                chosen[part], keys[part], tables, lists, alive, beam=beam, workers=workers
            )
            done += size

    def _link_round(
        self,
        chosen: Int64s,
        keys: UInt64s,
        tables: Tables,
        lists: NeighbourLists,
        alive: UInt8s,
        *,
        beam: int,
        workers: Workers,
    ) -> None:
        """Let rows find their lists in those there are, then join the lists of those they chose.

        Rows take their turns in the order of the first table: those beside each other there see
        much the same rows, which the processor's cache then holds. All see the lists as they were
        before the round.
        """
        own = np.empty((len(chosen), WIDTH), np.int32)
        sizes = self.sizes(tables, beam, SEEN_A_PLACE * beam)
        if len(chosen) > 1:
            order = np.argsort(keys[:, 0], kind="stable")
            chosen, keys = chosen[order], keys[order]
        keys = np.ascontiguousarray(keys)

        def choose(first: int, last: int) -> None:
            with self._spaces.taken(sizes) as space:
                choose_neighbours(
                    lists.coarse.addresses,
                    space,
                    chosen[first:last],
                    keys[first:last],
                    tables.addresses,
                    BESIDE,
                    lists.links,
                    alive,
                    beam,
                    _OWN,
                    _DIVERSITY,
                    own[first:last],
                )

        workers.split(len(chosen), choose, least=4, pieces=_PIECES)
        lists.links[chosen] = own
        targets = np.empty(own.size, np.uint64)
        sources = np.empty(own.size, np.int32)
        count = list_joins(chosen, own, targets, sources)
        targets, sources = targets[:count], sources[:count]
        sort_keys(targets, sources, np.empty_like(targets), np.empty_like(sources))

        def join(first: int, last: int) -> None:
            with self._spaces.taken(sizes) as space:
                join_lists(
                    lists.coarse.addresses,
                    space,
                    targets,
                    sources,
                    first,
                    last,
                    _AFTER_OVERFLOW,
                    _DIVERSITY,
                    lists.links,
                )

        workers.split(count, join, least=64, pieces=_PIECES)

    def renumber(self, new_rows: Int64s, rows: VectorBatch) -> NeighbourGraph:
        """Return the lists after a compaction; entries for rows that are gone are left out.

        So are those for rows beyond: who works behind has linked them, but they wait still.
        """
        kept = np.flatnonzero(new_rows >= 0)
        names = np.append(new_rows, NONE)  # the last one is that of NONE, too
        renamed = names[np.minimum(self._links[kept], len(new_rows))]
        order = np.argsort(renamed < 0, axis=1, kind="stable")
        taken = NeighbourGraph(
            self.rounding, rows[:0], self._tables, narrow=self._narrow, checks=self._checks
        )
        taken._coarse = self._coarse.take(kept)
        taken._links = np.take_along_axis(renamed, order, 1).astype(np.int32)
        taken._count = taken._in_turn = len(kept)
        taken._longest = self._longest
        return taken


def keys_by_row(tables: Tables, count: int, first: int = 0) -> UInt64s:
    """Return (n - first, count): the keys of the rows from ``first`` on in the first tables."""
    keys = np.empty((len(tables) - first, count), np.uint64)
    end = 0
    for segment in tables.segments:
        start, end = end, end + len(segment)
        for table in range(count if end > first else 0):
            rows, held = segment.rows[table], segment.keys[table]
            if start < first:
                newer = rows >= first
                rows, held = rows[newer], held[newer]
            keys[rows - first, table] = held
    return keys
