"""The GCWS backend: chooses among graph, hash tables and scan; scores hits exactly.

Inserting one row into tables and graph costs many times its share of a bulk insert. So new rows
stay in the delta, which is scanned exactly beside the index. A background thread merges them all at
once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Final

import numpy as np

from gcws_search.index.backend import Backend, ProgressReport, no_report
from gcws_search.index.backends.policies import POLICIES, Policies
from gcws_search.index.contracts.analysis import CostCurve
from gcws_search.index.contracts.arrays import Int64s, UInt8s, UInt16s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch, row_width
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.hits import BatchHits, Pairs, RowView
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    Encoding,
    GcwsParams,
    SearchParams,
)
from gcws_search.index.contracts.saved_index import UNKNOWN, SavedIndex
from gcws_search.index.cost_model import Tally
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import refuse_proof, scan
from gcws_search.index.graph.lifecycle import GraphLifecycle
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.graph.search_plan import TRIED, Skipped
from gcws_search.index.hashing.banding import BandPlan
from gcws_search.index.hashing.gcws import Gcws, Signatures
from gcws_search.index.joins import PairJoin, PairSink
from gcws_search.index.lsh.band_join import BandJoin
from gcws_search.index.lsh.band_keys import BandKeys
from gcws_search.index.lsh.search import TableSearch, search_by_samples
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.similarities import GMM
from gcws_search.index.threads import StoppedError, Workers


@dataclass(frozen=True, slots=True)
class Delta:
    """The codes of the ``count`` rows after those of the index.

    ``last`` has the (n, bands) codes of the rows added last, ``before`` the earlier ones, so that
    appending copies none of them.
    """

    last: UInt64s | None = None
    count: int = 0
    before: Delta | None = None

    def with_more(self, codes: UInt64s) -> Delta:
        """Return the delta with further rows."""
        count = len(codes)
        return Delta(codes, self.count + count, self) if count else self

    def has_room(
        self, policies: Policies, rows: VectorBatch, count: int = 0, numbers: int = 0
    ) -> bool:
        """Return whether a scan stays cheap after ``count`` further rows with ``numbers`` numbers.

        The rows of the delta are the last of ``rows``.
        """
        if self.count + count > policies.max_delta_rows:
            return False
        if rows.form == "dense":
            own = self.count * rows.width
        else:
            own = int(rows.indptr[-1] - rows.indptr[-1 - self.count])
        return own + numbers <= policies.max_delta_numbers

    @property
    def codes(self) -> UInt64s:
        """The (count, bands) codes; there is at least one row."""
        parts: list[UInt64s] = []
        delta: Delta | None = self
        while delta is not None and delta.last is not None:
            parts.append(delta.last)
            delta = delta.before
        return parts[0] if len(parts) == 1 else np.concatenate(parts[::-1])

    def after(self, count: int) -> Delta:
        """Return the rows after the first ``count``."""
        if count == self.count:
            return _NO_DELTA
        return Delta(self.codes[count:], self.count - count) if count else self

    def some(self, places: Int64s) -> Delta:
        """Return some of the rows: (m,) int64, ascending, counted from the first."""
        return Delta(self.codes[places], len(places)) if len(places) else _NO_DELTA


_NO_DELTA: Final = Delta()

Search = Callable[[RowView, Int64s], BatchHits]
"""Returns the hits among rows; called with the row that each query must not return, or -1."""


def with_delta(
    search: Search,
    view: RowView,
    count: int,
    queries: VectorBatch,
    params: SearchParams,
    skip: Int64s,
    *,
    workers: Workers,
) -> BatchHits:
    """Return the hits that ``search`` finds in the index, merged with those of the delta.

    The delta has the last ``count`` rows of the view.
    """
    known = view.vectors.count - count
    permitted = view.permitted[known:]
    new = int(np.count_nonzero(permitted))
    sample = view.sample
    if sample is not None:
        rows = sample.rows[sample.rows < known]
        sample = replace(sample, rows=rows) if len(rows) else None
    older = RowView(
        view.vectors[:known], view.permitted[:known], view.permitted_count - new, sample
    )
    found = search(older, np.where(skip < known, skip, -1))
    if not new:
        return found
    if queries.count == 1 and found.sizes[0] >= params.limit:  # lower scores do not count
        last_score = float(found.scores[0, params.limit - 1])
        params = replace(params, min_score=min(1.0, max(params.min_score, last_score)))
    near = scan(
        RowView(view.vectors[known:], permitted, new),
        queries,
        params,
        skip=np.where(skip >= known, skip - known, -1),
        inverted=InvertedIndex(),
        workers=workers,
    )
    return found.merge(near.shift(known), params.limit)


_NONE: Final = np.full(1, -1, np.int64)
"""Stands for the row that one query must not return."""
_FEW: Final = 8
"""Queries that scan rows without postings sooner than these are made."""
_MAX_TALLIES: Final = 256
"""Kinds of proofs whose costs are remembered, at most."""


@dataclass(frozen=True, slots=True)
class GcwsState:
    """The index of a number of rows."""

    tables: Tables  # with a graph, only its entry tables and those that were used
    inverted: InvertedIndex  # for exact scans of sparse rows; empty for dense ones
    graph: GraphSearch | None = None
    delta: Delta = _NO_DELTA  # newer rows, outside the index; empty until a graph is decided on
    scanned: int = 0  # number of rows at which scans were as fast as a graph; or 0

    @property
    def graph_is_decided(self) -> bool:
        """Whether a graph has been built, or found useless."""
        return self.graph is not None or self.scanned > 0

    @property
    def graph_is_waiting(self) -> bool:
        """Whether a graph lacks its entry tables, e.g. after a restart."""
        return self.graph is not None and self.graph.further is None


class GcwsBackend(Backend[GcwsState]):
    """Hash tables over bands of GCWS samples."""

    kind = "gcws"
    kernel = GMM
    promises_recall = True

    def __init__(
        self,
        config: CollectionConfig,
        params: GcwsParams,
        workers: Workers,
        policies: Policies = POLICIES,
    ) -> None:
        self._form = config.form
        self._params = params
        self._policies = policies
        self.workers = workers
        self._behind = workers.behind()
        self.plan = BandPlan.of(params)
        # Its key in each of the first tables; sparse rows are hashed when tables are needed.
        self.code_width = 0 if config.form == "sparse" and self.plan.prefix else self.plan.first
        width = row_width(config.form, config.dim)
        self.hash = Gcws(seed=params.seed, samples=self.plan.samples, dense_width=width)
        self.band_keys = BandKeys(self.plan, self.hash, workers)
        self.graphs = GraphLifecycle(self.band_keys, workers, policies.graph)
        self._wanted = 0  # number of tables that searches could use
        self._tallies: dict[tuple[int, float, float, int], Tally] = {}

    def encode(self, batch: VectorBatch) -> UInt64s:
        """Return the (n, code_width) keys of vectors in the first tables; pure, any thread.

        For sparse rows there are none: scans need no tables. The tables that link and enter a graph
        are made before it.
        """
        return self.band_keys.keys(batch, self.code_width)

    def empty(self) -> GcwsState:
        """Return an empty index."""
        return GcwsState(Tables.of(self.code_width, ()), InvertedIndex())

    def extend(self, state: GcwsState, rows: VectorBatch, codes: UInt64s) -> GcwsState:
        """Return the index with the last len(codes) of ``rows`` added."""
        delta = state.delta.with_more(codes)
        extended = GcwsState(state.tables, state.inverted, state.graph, delta, state.scanned)
        if self.can_defer(extended, rows, 0, 0):
            return extended
        return self.complete(extended, rows, self.workers)

    def can_defer(self, state: GcwsState, rows: VectorBatch, count: int, numbers: int) -> bool:
        """Return whether further rows would stay in the delta.

        While a graph lacks entry tables, all rows stay there. A write that made these tables took
        18 s for 3,000,000 rows. `optimize` makes them in the background; until then tables or scans
        answer.
        """
        if state.graph_is_waiting:
            return True
        delta = state.delta
        if (
            self._form == "sparse"
            and self._postings_wait(state)
            and not self.workers.searches_are_expected
        ):
            return delta.count + count <= self._policies.max_without_postings
        return state.graph_is_decided and delta.has_room(self._policies, rows, count, numbers)

    def _postings_wait(self, state: GcwsState) -> bool:
        """Return whether sparse rows only lack postings, and can be scanned without."""
        return state.graph is None and not state.tables.bands

    def _with_postings(self, state: GcwsState, rows: VectorBatch) -> GcwsState:
        """Return the state with postings of all rows, if too many lack them for a scan.

        `optimize` adds the postings once rows arrive slowly.
        """
        is_waiting = self._form == "sparse" and self._postings_wait(state)
        if not is_waiting or state.delta.has_room(self._policies, rows):
            return state
        return self.complete(state, rows, self.workers)

    def complete(self, state: GcwsState, rows: VectorBatch, workers: Workers) -> GcwsState:
        """Return the state with all of ``rows`` in tables and graph."""
        delta = state.delta
        if not delta.count:
            return state
        state = self._with_entries(state, rows, workers)
        graph = state.graph
        codes = self.band_keys.in_tables(delta.codes, state.tables.bands, rows, workers)
        max_merge_rows = self._policies.max_merge_rows
        tables = state.tables.extend(codes, len(rows) - delta.count, workers, max_merge_rows)
        inverted = state.inverted.cover(rows, workers)
        if graph is not None:
            known = delta.codes if self.code_width else codes
            graph = self.graphs.extend(graph, rows, known, tables, inverted, workers=workers)
        return replace(state, tables=tables, inverted=inverted, graph=graph, delta=_NO_DELTA)

    def _with_entries(
        self,
        state: GcwsState,
        rows: VectorBatch,
        workers: Workers,
        stop: threading.Event | None = None,
    ) -> GcwsState:
        """Return ``state`` with the entry tables of its graph.

        Raises StoppedError (``stop`` is set).
        """
        graph, tables = state.graph, state.tables
        if graph is None or graph.further is not None:
            return state
        tables = self._first_tables(state, rows, workers, stop)
        graph = self.graphs.with_entries(graph, tables, rows, workers, stop)
        return replace(state, tables=self._kept(tables, graph), graph=graph)

    def _kept(self, tables: Tables, graph: GraphSearch | None) -> Tables:
        """Return the entry tables of a graph, if there is one, and tables that were used."""
        return tables.some(max(self._wanted, 0 if graph is None else graph.whole))

    def _first_tables(
        self,
        state: GcwsState,
        rows: VectorBatch,
        workers: Workers,
        stop: threading.Event | None = None,
    ) -> Tables:
        """Return the tables of a state, at least the first ones, with the rows of its tables."""
        return self.band_keys.widen(state.tables, rows, self.plan.first, workers, stop=stop)

    def with_all_tables(self, state: GcwsState, rows: VectorBatch) -> GcwsState:
        """Return ``state`` with all tables; `optimize` makes them once they are needed."""
        tables = self.band_keys.widen(state.tables, rows, self.plan.bands, self.workers)
        return replace(state, tables=tables)

    def renumber(self, state: GcwsState, rows: VectorBatch, new_rows: Int64s) -> GcwsState:
        """Return the index after a compaction."""
        known = len(state.tables)
        delta = state.delta.some(np.flatnonzero(new_rows[known:] >= 0))
        left, new_rows = rows[: len(rows) - delta.count], new_rows[:known]
        graph = None if state.graph is None else self.graphs.renumber(state.graph, left, new_rows)
        tables = state.tables.renumber(new_rows)
        inverted = InvertedIndex.of(left, self.workers)
        scanned = min(state.scanned, len(rows))
        renumbered = GcwsState(tables, inverted, graph, delta, scanned)
        if renumbered.graph_is_decided:
            return renumbered
        return self.complete(renumbered, rows, self.workers)

    def is_overdue(self, state: GcwsState, rows: int, live: int) -> bool:
        """Return whether the delta has rows, tables are to be merged, or more is to be built."""
        return (
            bool(state.delta.count)
            or state.tables.merge_is_due
            or self.graph_is_overdue(state, rows, live)
            or state.graph_is_waiting
            or self._tables_wanted(state) > 0
        )

    def _tables_wanted(self, state: GcwsState) -> int:
        """Return the total number of tables to be made; 0 if none is missing."""
        wanted = self._wanted
        return wanted if state.tables.bands < wanted and len(state.tables) > 0 else 0

    def graph_is_overdue(self, state: GcwsState, rows: int, live: int) -> bool:
        """Return whether a graph should be built or rebuilt."""
        growth = self.graphs.policy.growth
        if not self.plan.prefix or (state.graph is None and state.scanned * growth >= rows):
            return False
        return self.graphs.is_overdue(state.graph, rows, live)

    def optimize(
        self,
        state: GcwsState,
        rows: VectorBatch,
        alive: UInt8s,
        stop: threading.Event,
        report: ProgressReport = no_report,
    ) -> GcwsState | None:
        """Return ``state`` with all rows in tables and graph; None if stopped.

        First, segments of tables that are due are merged. An overdue graph is built in random order
        and calibrated, unless scans are fast enough. Otherwise further tables are made if they are
        needed. They come first if a graph cannot be searched without them.
        """
        del report  # a graph is built without progress reports
        live = int(np.count_nonzero(alive))
        wanted = self._tables_wanted(state)
        is_overdue = self.graph_is_overdue(state, len(rows), live)
        try:
            state = replace(state, tables=state.tables.with_due_merges(self._behind, stop))
            if state.graph_is_waiting or not is_overdue:
                tables = self.band_keys.widen(state.tables, rows, wanted, self._behind, stop=stop)
                state = replace(state, tables=tables)
                state = self._with_entries(state, rows, self._behind, stop)
                return self.complete(state, rows, self._behind)
        except StoppedError:
            return None
        state = self.complete(replace(state, graph=None, scanned=0), rows, self._behind)
        if self.graphs.scans_are_enough(rows, alive, state.inverted):
            return replace(state, tables=self._kept(state.tables, None), scanned=len(rows))
        return self.linked(state, rows, alive, stop)

    def linked(
        self, state: GcwsState, rows: VectorBatch, alive: UInt8s, stop: threading.Event
    ) -> GcwsState | None:
        """Return ``state`` with a graph of all rows, built in random order; None if stopped.

        `optimize` builds one only if it is useful.
        """
        state = self.complete(replace(state, graph=None, scanned=0), rows, self._behind)
        try:
            tables = self._first_tables(state, rows, self._behind, stop)
        except StoppedError:
            return None
        built = self.graphs.build(
            rows, alive, tables, state.inverted, workers=self._behind, stop=stop
        )
        if built is None:
            return None
        return replace(state, tables=self._kept(tables, built), graph=built)

    def adopt(
        self, state: GcwsState, rows: VectorBatch, replacement: GcwsState
    ) -> GcwsState | None:
        """Return ``state`` with tables and graph that were built for the first of its rows.

        If many rows were put at once meanwhile, its own tables have more rows than the new ones.
        Then only a rebuilt graph and further tables are taken.
        """
        relinked = replacement.graph
        further = len(replacement.tables) - len(state.tables)
        if further >= 0:
            adopted = replace(replacement, delta=state.delta.after(further))
            if self.can_defer(adopted, rows, 0, 0):
                return adopted
            return self.complete(adopted, rows, self._behind)  # it had no limit while tables lacked
        tables = self.band_keys.catch_up(replacement.tables, state.tables, rows)
        state = replace(state, tables=tables)
        if relinked is None:
            state = replace(state, graph=None, scanned=replacement.scanned)
        elif state.graph is None or state.graph.neighbours is not relinked.neighbours:
            known = rows[: len(tables)]
            graph = self.graphs.catch_up(relinked, known, tables, state.inverted)
            if graph is None:
                return None
            state = replace(state, tables=self._kept(tables, graph), graph=graph, scanned=0)
        return state

    def saved(self, state: GcwsState) -> SavedIndex | None:
        """Return the neighbour graph; everything else is rebuilt from the codes."""
        return None if state.graph is None else self.graphs.save(state.graph)

    def byte_step(self, notes: dict[str, Any]) -> tuple[float, int] | None:
        """Return step and origin of a saved graph's byte copies; None without them."""
        return self.graphs.byte_step(notes, self._form)

    def restore(self, rows: VectorBatch, codes: UInt64s, saved: SavedIndex) -> GcwsState:
        """Return the index of all rows.

        The last rows without saved links go to the delta, or are linked at once if it has no room.
        While the graph lacks entry tables, all of them wait in the delta: making these tables for
        3,000,000 rows took 18 s of a start.
        """
        known = self._rows_linked(saved, len(rows))
        state = self.extend(self.empty(), rows[:known], codes[:known])
        state = self.complete(state, rows[:known], self.workers)
        if not self.plan.prefix:
            return self.extend(state, rows, codes[known:])
        first = replace(saved, links=saved.links[:known])
        unknown = int(np.count_nonzero(first.links[:, 0] == UNKNOWN))
        if 0 < 2 * unknown <= known:  # they are linked at once, through tables
            state = replace(state, tables=self._first_tables(state, rows, self.workers))
        graph = self.graphs.restore(rows[:known], state.tables, first)
        if graph is not None:
            tables = state.tables if graph.further is None else self._kept(state.tables, graph)
            state = replace(state, tables=tables, graph=graph)
        return self.extend(state, rows, codes[known:])

    @staticmethod
    def _rows_linked(saved: SavedIndex, rows: int) -> int:
        """Return the number of rows before the last ones, whose links are unknown.

        All rows, if more than half have no links, because then the graph is rebuilt. Also all rows,
        if others lack links: these are linked at once, and other rows may name the last ones.
        """
        linked = int(np.count_nonzero(saved.links[:, 0] != UNKNOWN))
        is_first = bool((saved.links[:linked, 0] != UNKNOWN).all())
        return linked if is_first and 2 * linked >= rows else rows

    def search(
        self,
        state: GcwsState,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s | None = None,
    ) -> BatchHits:
        """Return the hits of each query, at the requested mean recall."""
        if skip is not None:
            skipped = skip
        else:
            skipped = _NONE if queries.count == 1 else np.full(queries.count, -1, np.int64)
        if params.rerank == "none":
            refuse_proof("an estimate", params)
            return search_by_samples(
                self.plan,
                self.hash,
                self._params,
                self._tables_of_all(state, view.vectors),
                view,
                queries,
                keys=self.band_keys.keys(queries, self.plan.bands),
                params=params,
                skip=skipped,
                workers=self.workers,
            )
        if queries.count > _FEW:
            state = self._with_postings(state, view.vectors)
        if not state.delta.count or params.recall >= 1:  # a scan takes all rows
            return self._search_indexed(state, view, queries, params, skipped)
        return with_delta(
            lambda older, skip: self._search_indexed(state, older, queries, params, skip),
            view,
            state.delta.count,
            queries,
            params,
            skipped,
            workers=self.workers,
        )

    def allowance(self) -> list[tuple[int | None, float]]:
        """Return the share of the allowed misses aimed at, by greatest limit; None for any."""
        return self.graphs.allowance.by_limit

    def take_audit(self, limit: int, asked: float, found: float) -> None:
        """Record the requested and the measured recall of a query; one thread."""
        self.graphs.allowance.take(limit, asked, found)

    def finds_too_little(self) -> bool:
        """Return whether queries audited last found less than requested, on average."""
        return self.graphs.allowance.finds_too_little

    def curve(self, state: GcwsState, view: RowView, limit: int) -> CostCurve:
        """Return the cost by recall, for a limit; no points if there is no graph."""
        if state.graph is not None:
            return state.graph.curve(view, limit)
        min_rows = self.graphs.policy.min_rows
        if not self.plan.prefix:
            reason = "hash tables alone answer where 'band_width' is a number"
        elif state.scanned:
            reason = "scans are about as quick as searches of a graph"
        elif view.permitted_count < min_rows:
            reason = f"a graph is built from {min_rows} items on"
        else:
            reason = "the graph is being built"
        return CostCurve(limit, reason=reason)

    def _tables_of_all(self, state: GcwsState, rows: VectorBatch) -> Tables:
        """Return all tables of all rows; estimates must not depend on the tables made so far."""
        self._ask_for_tables(state, self.plan.bands)
        tables = self.with_all_tables(state, rows).tables
        if not state.delta.count:
            return tables
        codes = self.band_keys.in_tables(state.delta.codes, tables.bands, rows)
        return tables.extend(codes, len(tables), self.workers)

    def _ask_for_tables(self, state: GcwsState, bands: int) -> None:
        """Record that this many tables would be useful, once more urgent work is done."""
        if state.tables.bands < bands:
            self._wanted = max(self._wanted, bands)

    def _search_indexed(
        self,
        state: GcwsState,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s,
    ) -> BatchHits:
        """Return the hits among rows that are all in the index, or those of an exact scan."""
        graph = state.graph
        if graph is None:
            return self._probe(state, view, queries, params, skip)
        plan = graph.plan(state.tables, view, params, queries.count)
        if isinstance(plan, Skipped):
            return self._probe(state, view, queries, params, skip)
        first = min(TRIED, queries.count) if plan.tally.seen < TRIED else queries.count
        asked = (queries, skip) if first == queries.count else (queries[:first], skip[:first])
        hits, outcomes = graph.search(plan, state.tables, view, asked[0], params, asked[1])
        if any(outcomes.tolist()):  # queries that the graph could not answer
            left = np.flatnonzero(outcomes)
            hits = hits.overwrite(left, self._probe(state, view, queries[left], params, skip[left]))
        if first == queries.count:
            return hits
        rest = self._search_indexed(state, view, queries[first:], params, skip[first:])
        every = np.arange(queries.count)
        return BatchHits.combine([(every[:first], hits), (every[first:], rest)])

    def _probe(
        self,
        state: GcwsState,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s,
    ) -> BatchHits:
        """Return the hits by tables alone, or by a scan if that is quicker."""
        tally = None
        if params.guarantee == "proven":
            self._ask_for_tables(state, self.plan.bands)
            tally = self._tally(view, params)
        bands = state.tables.bands
        if not bands:
            return scan(
                view, queries, params, skip=skip, inverted=state.inverted, workers=self.workers
            )
        plan, keys_of = self.plan.of_first(bands), partial(self.band_keys.keys, last=bands)
        tables = TableSearch(
            plan, keys_of, state.tables, state.inverted, self.workers, self._policies.probe, tally
        )
        return tables.search(view, queries, params, skip)

    def _tally(self, view: RowView, params: SearchParams) -> Tally | None:
        """Return recent times of similar proofs; None for classical banding, without a choice."""
        if not self.plan.prefix:
            return None
        kind = params.limit, params.recall, params.min_score, view.permitted_count.bit_length()
        known = self._tallies.get(kind)
        if known is None:
            if len(self._tallies) >= _MAX_TALLIES:  # any recall may be requested
                self._tallies.clear()
            known = self._tallies[kind] = Tally(0.0)
        return known

    def inverted(self, state: GcwsState, rows: VectorBatch) -> InvertedIndex:
        """Return the postings of sparse rows; a few of the last rows have none."""
        return self._with_postings(state, rows).inverted

    def pairs(
        self,
        state: GcwsState,
        view: RowView,
        *,
        min_score: float,
        recall: float,
        limit: int | None = None,
        stop: threading.Event | None = None,
        max_pairs: int | None = None,
    ) -> Pairs:
        """Return pairs of permitted rows a < b with GMM at least ``min_score``, with scores."""
        if state.tables.bands:
            state = self.complete(state, view.vectors, self.workers)

        def widen(bands: int) -> Tables:
            self._ask_for_tables(state, bands)
            return self.band_keys.widen(state.tables, view.vectors, bands, self.workers)

        policy = self._policies.pairs
        sink = PairSink(view, min_score, limit, stop, max_pairs=max_pairs, policy=policy)
        links = None if state.graph is None else state.graph.links.array
        join = PairJoin(
            view, state.tables, self.plan, widen, links, state.inverted, self.workers, policy,
            seed=self.hash.seed,
        )  # fmt: skip
        join.offer(sink, recall)
        return sink.result()

    def band_join(
        self,
        state: GcwsState,
        view: RowView,
        queries: VectorBatch,
        *,
        min_score: float,
        recall: float,
    ) -> BandJoin | None:
        """Return a join of permitted rows with queries like these, if bands can find them."""
        if not self.plan.prefix or recall >= 1:
            return None
        first = self.plan.first
        if state.tables.bands:
            self._ask_for_tables(state, first)
        codes = state.tables.codes(first) if state.tables.bands >= first else None
        if codes is not None and state.delta.count:
            keys = state.delta.codes
            if not self.code_width:
                keys = self.band_keys.keys(view.vectors[len(state.tables) :], first)
            codes = np.concatenate([codes, keys.T], axis=1)
        join = BandJoin(
            view, codes, self.plan, self.band_keys.keys, queries,
            min_score=min_score, recall=recall, workers=self.workers,
        )  # fmt: skip
        return None if join.nanoseconds == inf else join

    def sketch(
        self, batch: VectorBatch, encoding: Encoding, *, is_wider: bool = False
    ) -> Signatures | UInt16s:
        """Return the samples of vectors, or for ``b_bit`` (n, k) uint16: bits of each i* ([BBIT]).

        For ``zero_bit`` levels are to be ignored. ``is_wider``: there are slots beyond the space,
        which the parameter table does not have.
        """
        k = self.plan.samples
        drawn = self.hash
        if is_wider:
            drawn = Gcws(seed=drawn.seed, samples=drawn.samples, dense_width=None)
        signatures = drawn.sketch(batch)
        if encoding == "b_bit":
            return signatures.codes(self._params.bits, k)
        if encoding not in ("full", "zero_bit"):
            raise InvalidParameter(
                expected="'full', 'zero_bit' or 'b_bit'", got=repr(encoding), loc=("encoding",)
            )
        return Signatures(signatures.slots[:, :k], signatures.levels[:, :k])

    def nbytes(self, state: GcwsState) -> int:
        """Bytes of memory of the index, including the parameter table."""
        graph = 0 if state.graph is None else state.graph.nbytes
        return state.tables.nbytes + state.inverted.nbytes + self.hash.nbytes + graph

    def stats(self, state: GcwsState) -> dict[str, Any]:
        """Return table statistics."""
        rows, bands = len(state.tables), state.tables.bands
        return {
            "bands": self.plan.bands,
            "bands_made": bands,
            "band_width": self.plan.band_width,
            "samples": self.plan.samples,
            "key_bits_per_sample": self.plan.bits if self.plan.prefix else None,
            "segments": [len(segment) for segment in state.tables.segments],
            "table_bytes": state.tables.nbytes,
            "bytes_per_item_and_table": (
                state.tables.nbytes / (rows * bands) if rows and bands else None
            ),
            "parameter_bytes": self.hash.nbytes,
            "postings_bytes": state.inverted.nbytes,
            "delta_rows": state.delta.count,
            "graph": None if state.graph is None else state.graph.stats(),
            "rows_better_scanned": state.scanned,
        }
