"""When the neighbour graph is built, extended, rebuilt and saved in a file."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Int32s, Int64s, UInt8s, UInt64s, growable
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import Form, SearchParams
from gcws_search.index.contracts.saved_index import UNKNOWN, SavedIndex, count_of
from gcws_search.index.cost_model import (
    counted_scan_nanoseconds,
    dense_scan_nanoseconds,
    scan_nanoseconds,
)
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import scan, scan_work
from gcws_search.index.graph import recall_watch
from gcws_search.index.graph.calibrate import QUERIES, SUMS, calibrate
from gcws_search.index.graph.held_out import HeldOut
from gcws_search.index.graph.neighbour_graph import (
    LINKED_COPIES,
    WIDTH,
    NeighbourGraph,
    NeighbourLinks,
)
from gcws_search.index.graph.recall_curve import NOT_CALIBRATED, Calibration, SearchSetting
from gcws_search.index.graph.recall_watch import (
    DriftMonitor,
    MissAllowance,
    rows_to_measure,
    shares_found,
)
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.graph.search_plan import SearchPolicy
from gcws_search.index.hashing.banding import FIRST_TABLES
from gcws_search.index.kernels.graph.beam_search import NONE
from gcws_search.index.kernels.graph.candidate_pool import MAX_ROWS
from gcws_search.index.kernels.quantized.rows import BYTES, SPARSE
from gcws_search.index.lsh.band_keys import BandKeys
from gcws_search.index.lsh.tables import NO_TABLES, Tables, is_sampled
from gcws_search.index.threads import StoppedError, Workers
from gcws_search.index.vectors.equal_rows import equal_groups
from gcws_search.index.vectors.quantization import Quantizer, choose_quantizer, dimension

_NOTES_VERSION: Final = 10
"""Of what is saved: a graph with notes of another version is rebuilt."""
_MIN_LIVE: Final = 0.75
"""The graph is rebuilt when fewer of the rows linked than this share are still alive."""
_MIN_NEW: Final = 1 / 64
"""And when its recall has drifted, and this share of the rows is newer than it."""
_NARROW_DIMENSIONS: Final = 10.0
"""Rows that lie along fewer dimensions are linked with a narrow beam."""
_SAMPLED: Final = 64
"""Quantizers and dimensions are judged by so many rows, and so many rows next to each; the cost of
a scan by so many queries."""
_WIDE: Final = 128
"""Rows of more floats are measured by half as many queries, for the exact scan takes longer. They
have whole tables, for it takes longer to hash them again."""
_MAX_HELD_OUT: Final = 32
"""At most one row in this many is held out of the graph at first, to calibrate it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPolicy:
    """When a graph is built, and with which numbers."""

    min_rows: int = 2048  # smaller collections have no graph: a scan is as fast
    growth: float = 1.5  # the graph is rebuilt after growth by this factor
    # Up to this many rows, searches enter through the first tables (`banding.FIRST_TABLES`), and
    # through twice as many for ``rows_to_double`` times the rows. With more rows, fewer of a key's
    # neighbours are near rows: of 1,000,000 rows in 10,000 clusters, no beam brought recall beyond
    # 0.988 through 8 tables, or beyond 0.997 through 16.
    rows_of_tables: int = 150_000
    rows_to_double: int = 8
    # From this many dense narrow rows on, a graph keeps ``whole_tables`` of all rows, and a sample
    # in other tables: this saves 36 bytes a row. Searches of 19,000 rows became 5 % slower. Without
    # any table of all rows, queries for word vectors took 1.1 to 2 times as long.
    min_sampled_rows: int = 32_768
    whole_tables: int = 4
    max_key_bytes: int = 1 << 29  # limit of keys that are looked up before rows are linked
    scan_factor: float = 2.0  # a graph of sparse rows is built if a scan costs this many
    search: SearchPolicy = field(default_factory=SearchPolicy)

    def entry_tables(self, rows: int, bands: int) -> int:
        """Return how many of ``bands`` tables searches of ``rows`` rows enter through."""
        tables = FIRST_TABLES
        while rows > self.rows_of_tables and tables < bands:
            rows //= self.rows_to_double
            tables *= 2
        return min(tables, bands)


class GraphLifecycle:
    """Builds, extends and saves the neighbour graphs of one index.

    ``workers`` are the threads of searches, and of work that readers wait for. ``allowance`` is
    shared by all its graphs, so it survives a rebuild.
    """

    def __init__(self, band_keys: BandKeys, workers: Workers, policy: GraphPolicy) -> None:
        self._band_keys = band_keys
        self._workers = workers
        self.policy = policy
        self.allowance = MissAllowance()

    def is_overdue(self, graph: GraphSearch | None, rows: int, live: int) -> bool:
        """Return whether a graph should be built or rebuilt."""
        policy = self.policy
        if live < policy.min_rows or rows > MAX_ROWS:
            return False
        if graph is None or rows > policy.growth * graph.built:
            return True
        if graph.neighbours.drift.has_drifted and rows - graph.built > _MIN_NEW * rows:
            return True
        # Rows that were dead when the graph was built are not in it, so they do not count.
        linked = graph.calibration.rows + max(0, rows - graph.built)
        return live < _MIN_LIVE * linked

    def scans_are_enough(self, rows: VectorBatch, alive: UInt8s, inverted: InvertedIndex) -> bool:
        """Return whether scans of sparse rows are about as fast as any graph search.

        This counts the work of scans for some of the rows, so equal rows give equal answers.
        ``inverted`` may lack a few rows.
        """
        if rows.form == "dense":
            return False
        live = np.flatnonzero(alive)
        chosen = live[:: max(1, len(live) // _SAMPLED)][:_SAMPLED]
        view = RowView(rows, alive, len(live))
        work = scan_work(view, rows[chosen], recall_watch.LIMIT, skip=chosen, inverted=inverted)
        entries = float(rows.indptr[-1]) / max(1, len(rows))
        quickest = self.policy.search.min_search_nanoseconds(entries)
        return counted_scan_nanoseconds(work) <= self.policy.scan_factor * quickest

    def empty(self, rows: VectorBatch, alive: UInt8s, workers: Workers) -> NeighbourGraph:
        """Return a graph of all rows without links: quantized, with its entry tables chosen."""
        tables = self.policy.entry_tables(len(rows), self._band_keys.plan.bands)
        if rows.form == "sparse":
            return NeighbourGraph(Quantizer(SPARSE), rows, tables)
        groups, centres = self._near_groups(rows, alive, workers)
        narrow = dimension(groups, centres) < _NARROW_DIMENSIONS
        if rows.holds_bytes:
            quantizer = Quantizer(BYTES)
        else:
            quantizer = choose_quantizer(groups, centres, rows.dense, rows.copies)
        return NeighbourGraph(quantizer, rows, tables, narrow=narrow)

    def _near_groups(
        self, rows: VectorBatch, alive: UInt8s, workers: Workers
    ) -> tuple[Float32s, Float32s]:
        """Return the (g, near, width) nearest rows of (g, width) sampled rows, and these."""
        live = np.flatnonzero(alive)
        centres = live[:: max(1, len(live) // _SAMPLED)][:_SAMPLED]
        near = min(_SAMPLED, len(live) - 1)
        found = scan(
            RowView(rows, alive, len(live)),
            rows[centres],
            SearchParams(limit=near, recall=1.0),
            skip=centres,
            inverted=InvertedIndex(),
            workers=workers,
        )
        groups = found.rows[:, :near]
        return rows[groups.ravel()].dense.reshape(*groups.shape, -1), rows[centres].dense

    def build(
        self,
        rows: VectorBatch,
        alive: UInt8s,
        tables: Tables,
        inverted: InvertedIndex,
        *,
        workers: Workers,
        stop: threading.Event,
    ) -> GraphSearch | None:
        """Return a calibrated graph of all rows, linked in random order; None when stopped.

        Rows are linked through more tables than searches use. Of tables that are not kept whole, a
        sample is kept, because a row takes 12 bytes in each table.
        """
        order = np.random.default_rng(0).permutation(np.flatnonzero(alive))
        queries = QUERIES // 2 if rows.width > _WIDE else QUERIES
        held_out = order[: min(queries, len(order) // _MAX_HELD_OUT)]
        neighbours = self.empty(rows, alive, workers)
        try:
            links = neighbours.cover(rows, workers)
            all_tables = self._band_keys.widen(tables, rows, neighbours.tables, workers, stop=stop)
        except StoppedError:
            return None
        segments = all_tables.addresses
        last = min(neighbours.tables, all_tables.bands)
        linked = order[len(held_out) :]
        visible = alive.copy()
        visible[held_out] = 0
        codes = all_tables.codes(min(FIRST_TABLES, last)).T
        groups = equal_groups(rows, linked, codes, more_than=LINKED_COPIES)
        del codes
        leaders = np.arange(len(rows) if groups else 0, dtype=np.int32)
        for group in groups:
            leaders[group[LINKED_COPIES:]] = group[0]
            visible[group[LINKED_COPIES:]] = 0
        single = linked[leaders[linked] == linked] if groups else linked
        at_once = self.policy.max_key_bytes // (8 * last)
        for done in range(0, len(single), at_once):
            if stop.is_set():
                return None
            chosen = single[done : done + at_once]
            keys = all_tables.keys_of(chosen, last, workers)
            neighbours.link(
                chosen,
                keys,
                segments,
                links,
                visible,
                linked=done,
                workers=workers,
                stop=stop,
                leaders=leaders,
            )
        neighbours.link_copies(groups, links)
        neighbours.reach_all(linked, links)
        if stop.is_set():
            return None
        graph = self._search_of(neighbours, links, NOT_CALIBRATED, len(rows), workers)
        whole = min(tables.bands, self._band_keys.plan.first)
        is_narrow = rows.form == "dense" and rows.width <= _WIDE
        if is_narrow and len(rows) >= self.policy.min_sampled_rows:
            whole = min(whole, self.policy.whole_tables)
        graph = replace(graph, whole=whole, further=None)
        graph = self.with_entries(graph, all_tables, rows, workers)
        keys = all_tables.keys_of(held_out, last, workers)
        sample = HeldOut.of(
            graph,
            tables.some(whole),
            RowView(rows, alive, len(order)),
            held_out,
            keys,
            inverted,
            sums=self._sums(len(held_out)),
            stop=stop,
        )
        try:
            calibration = self._calibrate(sample)
        except StoppedError:
            return None
        neighbours.link(
            held_out,
            keys,
            segments,
            links,
            alive,
            linked=len(linked),
            workers=workers,
            stop=stop,
            leaders=leaders,
        )
        if stop.is_set():  # some rows may have been skipped
            return None
        neighbours.reach_all(order, links)
        neighbours.mark_all_linked()
        neighbours.scratch.clear()  # linking and calibrating need more memory than most searches
        return replace(graph, calibration=calibration, workers=self._workers)

    def with_entries(
        self,
        graph: GraphSearch,
        tables: Tables,
        rows: VectorBatch,
        workers: Workers,
        stop: threading.Event | None = None,
    ) -> GraphSearch:
        """Return a graph with the sampled tables that its searches enter through.

        Raises StoppedError (``stop`` is set).
        """
        if graph.further is not None:
            return graph
        first, last = graph.whole, graph.links.entry_tables
        if first >= last:
            return replace(graph, further=NO_TABLES)
        further = self._band_keys.sampled(tables, rows, first, last, workers, stop=stop)
        return replace(graph, further=further)

    def _sums(self, items: int) -> int:
        """Return the number of sums of two items that calibrate a graph."""
        share, min_sums = SUMS
        return max(int(share * items), min(items, min_sums))

    def _calibrate(self, sample: HeldOut) -> Calibration:
        """Return the calibration measured with held-out rows."""
        linked, queries = sample.linked, sample.queries[: min(_SAMPLED, sample.items)]
        if queries.form == "dense":
            cost = float(scan_nanoseconds(linked, queries).mean())
            alone = dense_scan_nanoseconds(linked, 1)
        else:
            none = np.full(len(queries), -1, np.int64)
            work = scan_work(
                linked, queries, recall_watch.LIMIT, skip=none, inverted=sample.inverted
            )
            cost = alone = counted_scan_nanoseconds(work)

        def max_candidates(limit: int) -> float:
            return sample.graph.candidates_within(sample.view, self.policy.growth * alone, limit)

        return calibrate(sample, scan_nanoseconds=cost / sample.rows, max_candidates=max_candidates)

    def extend(
        self,
        graph: GraphSearch,
        rows: VectorBatch,
        keys: UInt64s,
        tables: Tables,
        inverted: InvertedIndex,
        *,
        workers: Workers,
    ) -> GraphSearch | None:
        """Return the graph with the last len(keys) of ``rows`` linked; None drops the graph.

        It is dropped if more rows are put at once than are linked. ``keys`` are the new rows' first
        keys; ``tables`` and ``inverted`` have these rows. The graph must have its entry tables.
        """
        first, further = len(rows) - len(keys), graph.further or NO_TABLES
        if len(keys) > first or len(rows) > MAX_ROWS:
            return None
        last = further.first + further.bands or min(tables.bands, graph.neighbours.tables)
        keys = self._band_keys.in_tables(keys, last, rows, workers)
        if further.bands:
            chosen = np.flatnonzero(is_sampled(np.arange(first, len(rows))))
            numbers = (first + chosen).astype(np.int32)
            own = keys[chosen, further.first :]
            further = further.extend(own, first, workers, numbers=numbers)
            graph = replace(graph, further=further)
        segments = graph.segments(tables)
        setting = graph.calibration.setting(recall_watch.LIMIT, recall_watch.RECALL)
        if setting is None:
            links = graph.neighbours.extend(rows, keys, segments, workers)
            return replace(graph, links=links)
        known = setting

        def measure(links: NeighbourLinks, new: Int64s) -> DriftMonitor:
            searched = replace(graph, links=links, workers=workers)
            return self._measure_drift(searched, rows, new, tables, known, inverted)

        measured = rows_to_measure(first, len(rows), rows.numbers)
        links = graph.neighbours.extend(
            rows, keys, segments, workers, measured=measured, measure=measure
        )
        return replace(graph, links=links)

    def _measure_drift(
        self,
        graph: GraphSearch,
        rows: VectorBatch,
        new: Int64s,
        tables: Tables,
        setting: SearchSetting,
        inverted: InvertedIndex,
    ) -> DriftMonitor:
        """Return the drift after some new rows, to which no links lead yet.

        Rows that were dead when the graph was built are ignored: no links lead to them.
        """
        hidden = (graph.links.array[: len(rows), 0] == NONE).astype(np.uint8)
        queries, params = rows[new], SearchParams(limit=recall_watch.LIMIT)
        none = np.full(len(new), -1, np.int64)
        view = RowView(rows, np.ones(len(rows), np.uint8), len(rows))
        plan = graph.plan_for(tables, view, recall_watch.LIMIT, setting)
        found, _ = graph.search(plan, tables, view, queries, params, none, hidden=hidden)
        others = RowView(rows, 1 - hidden, len(rows) - int(hidden.sum()))
        true = scan(
            others,
            queries,
            replace(params, recall=1.0),
            skip=none,
            inverted=inverted,
            workers=graph.workers,
        )
        lowest = true.scores[np.arange(len(true)), true.sizes - 1]
        shares = shares_found(found, lowest, true.sizes)
        return graph.neighbours.drift.with_more(shares, setting.first.recall)

    def catch_up(
        self, graph: GraphSearch, rows: VectorBatch, tables: Tables, inverted: InvertedIndex
    ) -> GraphSearch | None:
        """Return a graph that was built for the first of ``rows``, with the others linked.

        None if there are too many others.
        """
        known = len(graph.links)
        if len(rows) == known:
            return graph
        if len(rows) > self.policy.growth * known:
            return None
        bands = min(graph.neighbours.tables, tables.bands)
        keys = tables.keys_of(np.arange(known, len(rows)), bands, self._workers)
        return self.extend(graph, rows, keys, tables, inverted, workers=self._workers)

    def renumber(
        self, graph: GraphSearch, rows: VectorBatch, new_rows: Int64s
    ) -> GraphSearch | None:
        """Return the graph after a compaction; None if too little of it is left."""
        if len(rows) < self.policy.min_rows:
            return None
        if self.is_overdue(graph, len(new_rows), len(rows)):  # recall would be too low
            return None
        neighbours = graph.neighbours.renumber(new_rows, rows)
        built = min(graph.built, len(rows))
        further = None if graph.further is None else graph.further.renumber(new_rows)
        links = neighbours.cover(rows)
        return replace(graph, neighbours=neighbours, links=links, built=built, further=further)

    def save(self, graph: GraphSearch) -> SavedIndex:
        """Return what a file stores of a graph."""
        quantizer = graph.neighbours.quantizer
        notes: dict[str, Any] = {
            "version": _NOTES_VERSION,
            "rounding": [quantizer.kind, quantizer.step, quantizer.origin],
            "tables": graph.links.entry_tables,
            "whole": graph.whole,
            "narrow": graph.neighbours.narrow,
            "built": graph.built,
            "calibration": graph.calibration.to_dict(),
            "shortfalls": list(graph.neighbours.drift.shortfalls),
            "allowance": self.allowance.to_list(),
        }
        return SavedIndex(graph.links.array, notes)

    def byte_step(self, notes: dict[str, Any], form: Form) -> tuple[float, int] | None:
        """Return step and origin of the byte copies of rows of a form; None without them."""
        try:
            quantizer = Quantizer.from_list(notes.get("rounding"), form)
        except ValueError:
            return None
        return (quantizer.step, quantizer.origin) if quantizer.kind == BYTES else None

    def restore(self, rows: VectorBatch, tables: Tables, saved: SavedIndex) -> GraphSearch | None:
        """Return a graph as it was saved; None if there was none.

        Rows whose links are unknown are linked again. If the graph needs more tables than there
        are, it waits for them instead: making them takes longer than everything else.
        """
        policy, workers = self.policy, self._workers
        unknown = np.flatnonzero(saved.links[:, 0] == UNKNOWN)
        if len(rows) < policy.min_rows or len(unknown) > len(rows) / 2:
            return None
        notes = saved.notes
        if notes.get("version") != _NOTES_VERSION:
            return None
        try:
            quantizer = Quantizer.from_list(notes["rounding"], rows.form)
            used = count_of(notes["tables"], 1, self._band_keys.plan.bands)
            first = self._band_keys.plan.first
            whole = count_of(notes.get("whole", first), 1, first)
            calibration = Calibration.from_dict(notes["calibration"])
            built = count_of(notes["built"], 1, MAX_ROWS)
            narrow = notes["narrow"] is True and rows.form == "dense"
            drift = DriftMonitor.from_list(notes.get("shortfalls", []))
            self.allowance.restore(notes.get("allowance", []))
        except (KeyError, ValueError):  # `Checkpoints` reports it
            return None
        neighbours = NeighbourGraph(
            quantizer,
            rows,
            used,
            narrow=narrow,
            drift=drift,
            links=_own_links(saved.links[:], unknown),
        )
        links = neighbours.cover(rows, workers)
        # Rows that were dead when the graph was built, or died since, are gone.
        built = min(built, len(rows))
        graph = self._search_of(neighbours, links, calibration, built, workers)
        graph = replace(graph, whole=whole, further=None)
        if tables.bands >= used:
            graph = self.with_entries(graph, tables, rows, workers)
        if len(unknown):
            alive = np.ones(len(rows), np.uint8)
            known = len(rows) - len(unknown)
            all_tables = self._band_keys.widen(tables, rows, used, workers)
            graph = self.with_entries(graph, all_tables, rows, workers)
            keys = all_tables.keys_of(unknown, used, workers)
            segments = all_tables.addresses
            neighbours.link(unknown, keys, segments, links, alive, linked=known, workers=workers)
        neighbours.mark_all_linked()
        return graph

    def _search_of(
        self,
        neighbours: NeighbourGraph,
        links: NeighbourLinks,
        calibration: Calibration,
        built: int,
        workers: Workers,
    ) -> GraphSearch:
        own = self._band_keys, workers, self.policy.search, self.allowance
        return GraphSearch(neighbours, links, calibration, built, *own)


def _own_links(saved: Int32s, unknown: Int64s) -> Int32s:
    """Return saved links as (n, WIDTH) int32, without those of ``unknown`` rows.

    The array of (n, R) ``saved`` is reused and changed in place if R is WIDTH.
    """
    links = saved
    if saved.shape[1] != WIDTH:
        links = growable((len(saved), WIDTH), np.int32)
        links.fill(NONE)
        width = min(WIDTH, saved.shape[1])
        links[:, :width] = saved[:, :width]
    links[unknown] = NONE
    return links
