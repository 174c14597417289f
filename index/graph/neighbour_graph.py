"""The neighbour graph: each row is linked to nearby rows in several directions.

A row finds its neighbours by a search of the rows linked before it, entered through the hash
tables. Links run both ways: a row is added to the neighbours of the rows that it chose. Rows
linked in random order give a good graph. Rows linked in order of arrival give a worse one if they
arrive in clusters. So the graph is rebuilt in random order when the collection has grown by half;
until then new rows are linked in order of arrival.

Links change in place while others read them. A reader may see part of an old row of links and part
of a new one, or a number that mixes old and new bytes and so names any row. That costs at most one
step of its search. Links to rows that a reader does not know yet are ignored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import AddressSpace, Int32s, Int64s, UInt8s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.links import LinkArray
from gcws_search.index.graph.recall_watch import DriftMonitor
from gcws_search.index.graph.scratch import ScratchPool, ScratchSizes
from gcws_search.index.kernels.graph.beam_search import NONE, Graph
from gcws_search.index.kernels.graph.bridges import bridge
from gcws_search.index.kernels.graph.build import (
    LinkRule,
    choose_neighbours,
    find_starts,
    join_links,
    list_joins,
)
from gcws_search.index.kernels.graph.entry_points import ROWS_A_SIDE
from gcws_search.index.kernels.ordering.keys import sort_keys
from gcws_search.index.kernels.quantized.rows import SPARSE
from gcws_search.index.threads import ALONE, PIECES, Workers
from gcws_search.index.vectors.quantization import QuantizedRows, QuantizedView, Quantizer

WIDTH: Final = 32
"""R: places for the neighbours of one row."""
SEEN_A_PLACE: Final = 64
"""Rows that a search has room to see, for each place of its beam."""


LINKED_COPIES: Final = 8
"""Of more equal rows than this, the others are copies; see `NeighbourGraph.link_copies`."""

_CHOSEN: Final = 24
"""Neighbours that a row chooses; the other places are for rows that choose it."""
_AFTER_OVERFLOW: Final = 22
"""Neighbours left when a row has too many. With 26, building 100,000 clustered rows took 6 % more
processor time, and searches scored as many rows; with 24, those of fingerprints scored 2 to 8 %
more."""
_DIVERSITY: Final = np.float32(1.2)
"""See `kernels.graph.build.prune`."""
_BEAM, _SPARSE_BEAM, _NARROW_BEAM = 48, 56, 24
"""Width of the beam of a row's search for its neighbours: that of dense rows, of sparse ones, and
of dense ones that lie along few dimensions. Of sparse rows, 48 took 0.94 of the time to build, and
queries of 3,000 rows found 0.01 less."""
_EARLY: Final = 0.25
_EARLY_FACTOR: Final = 2
"""Of the last kind this share, the first ones, is linked with a beam that many times as wide: they
lead from cluster to cluster. Without, queries of 12,000 clustered rows scored 1.5 times as many."""
_TABLE_FACTOR: Final = 2
"""These and sparse rows are linked through more tables than a search enters by, this factor: else
queries scored up to 1.17 times as many. With a wider beam instead, linking took 1.2 to 1.4 times as
long. Rows of more dimensions are near to few rows of their buckets: with the narrow beam queries
scored up to 14 % more."""
_ROUND_SHARE: Final = 10
"""A round links at most 1/_ROUND_SHARE of the rows linked before it. With 25, building took up to 8
% more processor time, and searches scored as many rows."""
_MIN_ROUND, _MAX_ROUND = 64, 8192
"""Rows of a round at least and at most, whatever the share. Where the first rounds had a row each,
queries of 12,000 clustered rows scored 1.1 times as many."""
_CHILDREN: Final = 8
"""Copies below each copy."""
_NO_ROWS: Final = np.empty(0, np.int64)
_NO_LEADERS: Final = np.empty(0, np.int32)
_NO_DRIFT: Final = DriftMonitor()
_ROWS_A_STEP: Final = 1 << 16
_STEPS: Final = 16
_LOOKED_AT: Final = 4
"""Neighbours of a new row that are looked at first: most name it."""
_STEPS_BEHIND: Final = 3
"""Links between a row's neighbours and the row behind them that may name it, at most."""


@dataclass(frozen=True, slots=True)
class NeighbourLinks:
    """The (n, WIDTH) links of rows, as one reader sees them: neighbours, then `NONE`.

    Searches enter through the first ``entry_tables``.
    """

    array: LinkArray
    quantized: QuantizedView
    entry_tables: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.array)


class NeighbourGraph:
    """The graph of one collection; any number of threads read the links that its methods return.

    One thread at a time changes it: `extend` enforces this, for other methods the caller does.
    ``narrow``: rows are dense with few effective dimensions, so a narrow beam is enough to link
    them. The graph starts with a copy of (n, WIDTH) ``links``; without them no row is linked.
    ``drift`` covers the rows linked since the graph was built, by any state.
    """

    def __init__(
        self,
        quantizer: Quantizer,
        rows: VectorBatch,
        tables: int,
        *,
        narrow: bool = False,
        drift: DriftMonitor = _NO_DRIFT,
        links: Int32s | None = None,
    ) -> None:
        self.scratch = ScratchPool()
        self.drift, self.narrow = drift, narrow
        self._quantized = QuantizedRows(quantizer, rows.width)
        self._tables = tables
        wide = _SPARSE_BEAM if quantizer.kind == SPARSE else _BEAM
        self._beam = _NARROW_BEAM if narrow else wide
        self._links = LinkArray.of(np.empty((0, WIDTH), np.int32), len(rows))
        self._room = AddressSpace()
        self._count = 0
        self._longest = 0
        self._extending = threading.Lock()
        self._in_turn = 0  # all rows before this one are linked or need no links
        self._take_in(rows, links)

    @property
    def nbytes(self) -> int:
        """Bytes of memory in use."""
        return self._links.nbytes + self._quantized.nbytes

    @property
    def quantizer(self) -> Quantizer:
        """The quantizer of the rows."""
        return self._quantized.quantizer

    def cover(self, rows: VectorBatch, workers: Workers = ALONE) -> NeighbourLinks:
        """Add new rows without links; return the links of all of ``rows``."""
        n = len(rows)
        if n > self._count:
            self._take_in(rows, None)
        links = LinkArray(self._links.packed[:n])
        return NeighbourLinks(links, self._quantized.cover(rows, workers), self._tables)

    def _take_in(self, rows: VectorBatch, links: Int32s | None) -> None:
        """Add new rows, with the (n, WIDTH) links of all rows or without links."""
        n = len(rows)
        if links is not None:  # they may name later rows
            self._hold(links, max(n, int(links.max(initial=NONE)) + 1))
        else:
            if not self._links.has_room(n):
                self._hold(self._links, n)
            packed = self._room.with_room(self._links.packed, self._count, n)
            self._links = LinkArray(packed)
            self._links[self._count : n] = NONE
        if rows.form == "sparse":
            new = np.diff(rows.indptr[self._count : n + 1])
            self._longest = max(self._longest, int(new.max(initial=0)))
        self._count = n

    def _hold(self, links: Int32s | LinkArray, rows: int) -> None:
        """Store a copy of links that name some of ``rows`` rows."""
        self._links = LinkArray.of(links, rows)
        self._room.adopt(self._links.packed)

    @property
    def tables(self) -> int:
        """Number of tables through which rows are linked, if there are as many."""
        more = self.narrow or self.quantizer.kind == SPARSE
        return self._tables * (_TABLE_FACTOR if more else 1)

    def sizes(
        self, segments: int, beam: int, room: int, *, rows_a_side: int = ROWS_A_SIDE
    ) -> ScratchSizes:
        """Return the working memory of searches that see ``room`` rows after entering."""
        keys = self.tables * segments
        entered = keys * 2 * rows_a_side
        return ScratchSizes(self._count, room + entered + WIDTH, beam, self._longest, max(1, keys))

    def mark_all_linked(self) -> None:
        """Record that all present rows are linked."""
        self._in_turn = self._count

    def extend(
        self,
        rows: VectorBatch,
        keys: UInt64s,
        segments: Int64s,
        workers: Workers,
        *,
        measured: Int64s = _NO_ROWS,
        measure: Callable[[NeighbourLinks, Int64s], DriftMonitor] | None = None,
    ) -> NeighbourLinks:
        """Link the last len(keys) of ``rows`` in order; return the links of all ``rows``.

        They enter through the tables of (s, 6) ``segments``, which have their ``keys``. Any thread;
        calls run one by one. Rows that are linked already are skipped. The rows ``measured`` are
        linked last; before that, ``measure`` gets all links and returns the drift.
        """
        with self._extending:
            links = self.cover(rows)
            begins = len(rows) - len(keys)
            first = max(self._in_turn, begins)
            last_ones = measured[measured >= first]
            alive = np.ones(len(rows), np.uint8)
            alive[last_ones] = 0

            others = np.flatnonzero(alive[first:]) + first
            if len(others):
                own = keys[others - begins]
                self.link(others, own, segments, links, alive, linked=first, workers=workers)
            if len(last_ones):
                if measure is not None:
                    self.drift = measure(links, last_ones)
                alive[last_ones] = 1
                linked = len(rows) - len(last_ones)
                own = keys[last_ones - begins]
                self.link(last_ones, own, segments, links, alive, linked=linked, workers=workers)
            self._name_new(np.arange(first, len(rows)), links)
            self._in_turn = max(self._in_turn, len(rows))
        return links

    def link(  # noqa: PLR0913 (what it reads, what it changes, and how)
        self,
        chosen: Int64s,
        keys: UInt64s,
        segments: Int64s,
        links: NeighbourLinks,
        alive: UInt8s,
        *,
        linked: int,
        workers: Workers,
        stop: threading.Event | None = None,
        leaders: Int32s = _NO_LEADERS,
    ) -> None:
        """Link the rows ``chosen``, in this order, in rounds; ``linked`` rows are linked already.

        Once ``stop`` is set, the remaining rows are skipped. ``keys`` are those of the chosen rows,
        (k, t), in the tables of ``segments``. Rows that are ``alive`` may be chosen as neighbours.
        By (n,) or (0,) ``leaders``, a search that meets a copy of a row in a table enters at its
        leader instead.
        """
        done = 0
        while done < len(chosen) and not (stop is not None and stop.is_set()):
            share = (linked + done) // _ROUND_SHARE
            size = max(_MIN_ROUND, min(_MAX_ROUND, share))
            part = slice(done, done + size)
            early = self.narrow and linked + done < _EARLY * self._count
            beam = self._beam * (_EARLY_FACTOR if early else 1)
            self._link_round(
                chosen[part],
                keys[part],
                segments,
                links,
                alive,
                beam=beam,
                workers=workers,
                leaders=leaders,
            )
            done += size

    def _link_round(  # noqa: PLR0913 (as `link`)
        self,
        chosen: Int64s,
        keys: UInt64s,
        segments: Int64s,
        links: NeighbourLinks,
        alive: UInt8s,
        *,
        beam: int,
        workers: Workers,
        leaders: Int32s,
    ) -> None:
        """Let rows find their neighbours, then link these back.

        Rows are processed in the order of the first table: consecutive rows see much the same rows,
        which then stay in the processor's cache. All see the graph as it was before the round.
        """
        own = np.empty((len(chosen), WIDTH), np.int32)
        sizes = self.sizes(len(segments), beam, SEEN_A_PLACE * beam)
        graph = Graph(links.quantized.addresses, segments, links.array.packed)
        if len(chosen) > 1:
            order = np.argsort(keys[:, 0], kind="stable")
            chosen, keys = chosen[order], keys[order]
        keys = np.ascontiguousarray(keys)
        rule = LinkRule(beam, _CHOSEN, _DIVERSITY)

        def choose(first: int, last: int) -> None:
            part = slice(first, last)
            with self.scratch.lend(sizes) as scratch:
                addresses = scratch.addresses
                choose_neighbours(
                    graph, addresses, chosen[part], keys[part], alive, leaders, rule, own[part]
                )

        workers.split(len(chosen), choose, min_size=4, pieces=PIECES)
        links.array[chosen] = own
        targets = np.empty(own.size, np.uint64)
        sources = np.empty(own.size, np.int32)
        count = list_joins(chosen, own, targets, sources)
        targets, sources = targets[:count], sources[:count]
        sort_keys(targets, sources, np.empty_like(targets), np.empty_like(sources))
        pruning = LinkRule(beam, _AFTER_OVERFLOW, _DIVERSITY)

        def join(first: int, last: int) -> None:
            with self.scratch.lend(sizes) as scratch:
                rows, addresses, out = graph.rows, scratch.addresses, links.array.packed
                join_links(rows, addresses, targets, sources, first, last, pruning, out)

        workers.split(count, join, min_size=64, pieces=PIECES)

    def link_copies(self, groups: Sequence[Int64s], links: NeighbourLinks) -> None:
        """Link copies of some rows to these, and as a tree below them.

        Without this, a thousand equal rows would fill the links of each other and of all rows
        nearby, and lead nowhere else. So only the first rows of a group are linked like others; the
        last of these is the root of a tree. A copy links to its parent, its children and the
        neighbours of one first row. ``groups`` hold equal rows; the first `LINKED_COPIES` of each
        are linked. ``links`` change in place.
        """
        array, children, linked = links.array, _CHILDREN, LINKED_COPIES
        for group in groups:
            root, copies = group[linked - 1], np.append(group[linked:], NONE)
            last = len(copies) - 1
            shared = array[group[:linked], : WIDTH - children - 1]
            for first in range(0, last, _ROWS_A_STEP):
                place = np.arange(first, min(first + _ROWS_A_STEP, last))
                parents = np.where(place < children, root, copies[place // children - 1])
                below = children * (place[:, None] + 1) + np.arange(children)
                lines = np.column_stack(
                    [parents, copies[np.minimum(below, last)], shared[place % linked]]
                )
                order = np.argsort(lines == NONE, axis=1, kind="stable")
                array[copies[place]] = np.take_along_axis(lines, order, axis=1)
            line = array[root]
            own, topmost = line[line != NONE][: WIDTH - children], copies[: min(children, last)]
            line[:] = NONE
            line[: len(own) + len(topmost)] = np.concatenate([own, topmost])
            array[root] = line

    def reach_all(self, chosen: Int64s, links: NeighbourLinks) -> None:
        """Ensure that links lead to each of these rows, from the rows that most others link to.

        Pruning may have left a row without incoming links, or only with links from unreachable
        rows. Such rows could be found only through the tables. ``links`` change in place.
        """
        array = links.array
        naming = np.zeros(len(array), np.int64)
        step = max(_ROWS_A_STEP, len(array) // _STEPS)  # each step examines all counts
        for first in range(0, len(array), step):
            part = array[first : first + step]
            naming += np.bincount(part[part != NONE], minlength=len(array))
        order = chosen[np.argsort(-naming[chosen], kind="stable")]
        starts, above = np.empty((2, len(order)), np.int32)
        walks = find_starts(array.packed, order, starts, above)
        for row, near in zip(starts[:walks].tolist(), above[:walks], strict=True):
            if near != NONE:
                _link_from(near[None], row, array)

    def _name_new(self, chosen: Int64s, links: NeighbourLinks) -> None:
        """Do the same as `reach_all` for a few new rows, without reading all links."""
        array = links.array
        for first in range(0, len(chosen), _ROWS_A_STEP):
            part = chosen[first : first + _ROWS_A_STEP]
            nearest = array[part, :_LOOKED_AT]
            likely = (array[nearest] == part[:, None, None]).any(axis=(1, 2))
            for row in part[~likely].tolist():
                own = array[row]
                own = own[own != NONE]
                if not (array[own] == row).any():
                    _link_from(own, row, array)

    def renumber(self, new_rows: Int64s, rows: VectorBatch) -> NeighbourGraph:
        """Return the graph after a compaction; links to removed rows are bridged.

        Links to rows that ``new_rows`` does not cover are dropped: another thread may have added
        them meanwhile.
        """
        remaining, dead = np.flatnonzero(new_rows >= 0), np.flatnonzero(new_rows < 0)
        names = np.append(new_rows, NONE).astype(np.int32)  # the last entry maps NONE
        names[dead] = np.arange(len(remaining), len(new_rows))
        taken = NeighbourGraph(
            self.quantizer, rows[:0], self._tables, narrow=self.narrow, drift=self.drift
        )
        with self._extending:  # links change in place
            links, deleted = self._links.take(remaining), self._links.take(dead)
            taken._quantized = self._quantized.take(remaining)
        for own_links in (links, deleted):
            for first in range(0, len(own_links), _ROWS_A_STEP):
                part = own_links[first : first + _ROWS_A_STEP]
                renamed = names[np.minimum(part, len(new_rows))]
                order = np.argsort(renamed < 0, axis=1, kind="stable")
                part[:] = np.take_along_axis(renamed, order, 1)
        bridge(links, deleted, NONE)
        taken._hold(links, len(rows))
        taken._count = taken._in_turn = len(remaining)
        taken._longest = self._longest
        return taken


def _link_from(near: Int32s, row: int, array: LinkArray) -> None:
    """Link to a row from the first of some rows with free places, or from a row behind these.

    All rows of a tight group may have chosen the same central row, which has no place for all of
    them: they are linked from the rows that it links to.
    """
    for steps in range(_STEPS_BEHIND + 1):
        with_room = near[array[near, -1] == NONE]
        if len(with_room):
            chosen = with_room[row % len(with_room) if steps else 0]
            array[chosen, np.argmax(array[chosen] == NONE)] = row
            return
        near = np.unique(array[near])
        near = near[(near != NONE) & (near != row)]
